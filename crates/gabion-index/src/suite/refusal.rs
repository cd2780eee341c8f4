//! What is opened must be what was made: an empty pool has no index, one that has an index gets no
//! other, and what is of another kind or has a wrong bit in its root is refused.

use std::borrow::Borrow;

use gabion_media::pmem::{PAtomicU64, Pool, PoolOptions};

use super::{Keys, SMALL, check, while_flipped};
use crate::index::Makers;
use crate::{Error, Index, Item, registry};

/// Entries of the index.
const ENTRIES: u64 = 20;

/// Bytes of the root that every index has under a check: its kind, and what it needs to know.
const CHECKED: u64 = 24;

/// The index, unless it is refused as what it is not.
fn open<K: Item + ?Sized>(makers: &Makers<K>, pool: &Pool) -> Option<Box<dyn Index<K>>> {
    match (makers.open)(pool) {
        Err(Error::NoRoot | Error::OtherKind | Error::Damaged { .. }) => None,
        opened => Some(opened.expect("an index, or a refusal")),
    }
}

/// Others refuse an index, but for those that write the same form in another way.
fn is_refused_or_same<K: Item + ?Sized>(name: &str, makers: &Makers<K>, pool: &Pool) {
    if let Some(index) = open(makers, pool) {
        check(&*index).unwrap_or_else(|error| panic!("opened as {name}: {error}"));
        assert_eq!(index.len().expect("sound"), ENTRIES, "opened as {name}");
    }
}

/// All entries are there and no others.
fn assert_whole<K: Item + ?Sized>(keys: &Keys<K>, index: &dyn Index<K>) {
    check(index).expect("sound");
    assert_eq!(index.len().expect("sound"), ENTRIES);
    for number in 0..ENTRIES {
        let key = (keys.key)(number);
        assert_eq!(index.get(key.borrow()).expect("sound"), Some(number));
    }
}

pub(crate) fn follow<K: Item + ?Sized>(keys: &Keys<K>) {
    let options = PoolOptions {
        size: 1 << 20,
        heaps: 1,
        chunk_bytes: 4096,
        ..(keys.makers.pool_options)()
    };
    let pool = Pool::anonymous(options).expect("a pool in memory");
    assert!(matches!((keys.makers.open)(&pool), Err(Error::NoRoot)));
    let index = (keys.makers.create)(&pool, SMALL).expect("space");
    let again = (keys.makers.create)(&pool, SMALL);
    assert!(matches!(again, Err(Error::RootTaken)));
    for number in 0..ENTRIES {
        let key = (keys.key)(number);
        let before = index.insert(key.borrow(), number);
        assert_eq!(before.expect("space"), None);
    }
    drop(index);
    for other in registry::all() {
        is_refused_or_same(other.name, &other.words, &pool);
        if let Some(strings) = &other.strings {
            is_refused_or_same(other.name, strings, &pool);
        }
    }
    let root = pool.root::<PAtomicU64>().raw();
    for bit in 0..8 * CHECKED {
        let (at, mask) = (root + bit / 8, 1 << (bit % 8));
        let is_refused = while_flipped(&pool, at, mask, || open(keys.makers, &pool).is_none());
        assert!(is_refused, "{}: bit {bit}", keys.name);
    }
    let index = (keys.makers.open)(&pool).expect("an index");
    assert_whole(keys, &*index);
}
