//! Tables with two hashes in special situations, for every scheme.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, Pool};

use super::{Scheme, TwoHash, note_of};
use crate::bucket::{Bucket, Value};
use crate::registered::Registered;
use crate::suite::words::{check, drain, find};
use crate::suite::{self, Keys, SMALL, interleaved, while_flipped};
use crate::{Error, Index};

fn pool<S: Scheme>(size: u64) -> Pool {
    suite::pool(size, TwoHash::<S>::pool_options())
}

pub(crate) fn table<S: Scheme>(size: u64) -> TwoHash<S> {
    TwoHash::create(&pool::<S>(size), SMALL).expect("a table")
}

/// It grows far past its plan, each time when it is well filled, and moves entries if it may.
pub(crate) fn grows<S: Scheme>() {
    let table = table::<S>(16 << 20);
    let count = 30_000;
    let mut slots = table.slots();
    let mut loads = Vec::new();
    for key in 0..count {
        assert_eq!(table.insert(&key, key * 3).expect("space"), None);
        if table.slots() != slots && key > 1000 {
            loads.push(key * 100 / slots);
        }
        slots = table.slots();
    }
    assert!(loads.iter().all(|load| *load >= 55), "{loads:?}");
    find(&table, count);
    assert_eq!(table.moves() > 0, S::MOVES_MAX > 0, "{}", table.moves());
    let again = TwoHash::<S>::open(table.pool()).expect("a table");
    drain(&again, count, 0);
}

/// The power fails between the two halves of a movement.
pub(crate) fn ends_movements<S: Scheme>() {
    if S::MOVES_MAX == 0 {
        return;
    }
    let table = table::<S>(1 << 20);
    table.insert(&5, 50).expect("space");
    let array = table.table();
    let homes: Vec<u64> = S::spots(array.bits(), table.hashes(5))
        .map(|spot| spot.line)
        .collect();
    let (from, to) = (table.line(array, homes[0]), table.line(array, homes[1]));
    let slot = from.find(5).expect("it is there");
    let value = <S::Bucket as Bucket>::Value::of_word(50);
    to.put(&table.medium, 2, 5, value);
    assert!(table.check().is_err());
    let note = note_of(TwoHash::<S>::line_at(array, homes[0]), slot);
    let set_note = |note| {
        let word = &table.state().note;
        // ORDER: Relaxed: read by recovery only.
        word.store_persist(&table.medium, note, Ordering::Relaxed);
    };
    set_note(note);
    let again = TwoHash::<S>::open(table.pool()).expect("a table");
    check(&again, 1);
    assert_eq!(again.get(&5).expect("sound"), Some(50));
    // A note that means nothing any more does no harm.
    for note in [1, note | 7 << 48, u64::MAX, note + 8] {
        set_note(note);
        check(&TwoHash::<S>::open(table.pool()).expect("a table"), 1);
    }
}

/// Two keys that have slots of one line, and no lock in common: a thread for each puts it in and
/// takes it out again, and always finds it as it left it.
pub(crate) fn neighbours_keep_their_tokens<S: Scheme>(table: &TwoHash<S>, keys: [u64; 2]) {
    let array = table.table();
    let [one, other] = keys.map(|key| {
        table.insert(&key, key).expect("space");
        let hashes = table.hashes(key);
        let at = table.find(array, hashes, key).expect("it is there").0;
        (at, TwoHash::<S>::stripes_of(array, hashes))
    });
    assert!(std::ptr::eq(one.0, other.0), "they share a line");
    assert!(one.1.iter().all(|stripe| !other.1.contains(stripe)));
    std::thread::scope(|scope| {
        for key in keys {
            scope.spawn(move || {
                for turn in 0..200_000 {
                    assert_eq!(table.remove(&key).expect("sound"), Some(key), "{turn}");
                    assert_eq!(table.get(&key).expect("sound"), None, "{turn}");
                    assert_eq!(table.insert(&key, key).expect("space"), None, "{turn}");
                    assert_eq!(table.get(&key).expect("sound"), Some(key), "{turn}");
                }
            });
        }
    });
    assert_eq!(table.table(), array, "it has not grown");
}

/// Keys whose hashes lead to these two places of a table.
pub(crate) fn keys_of<S: Scheme>(
    table: &TwoHash<S>,
    places: [u64; 2],
) -> impl Iterator<Item = u64> {
    let bits = table.table().bits();
    (0..).filter(move |key| table.hashes(*key).map(|hash| hash >> (64 - bits)) == places)
}

pub(crate) fn refuses<S: Scheme>() {
    let pool = pool::<S>(1 << 20);
    assert!(matches!(TwoHash::<S>::open(&pool), Err(Error::NoRoot)));
    let table = TwoHash::<S>::create(&pool, SMALL).expect("a table");
    let again = TwoHash::<S>::create(&pool, SMALL);
    assert!(matches!(again, Err(Error::RootTaken)));
    table.insert(&1, 1).expect("space");
    let root = pool.root::<PAtomicU64>().raw();
    let is_refused = |at, mask| {
        let opened = while_flipped(&pool, at, mask, || TwoHash::<S>::open(&pool));
        matches!(opened, Err(Error::Damaged { .. } | Error::NoRoot))
    };
    assert!((0..64).all(|at| is_refused(root + at, 1)));
    // The number of places, far too large, and an offset that leads out of the pool.
    assert!(is_refused(root + 64 + 6, 32) && is_refused(root + 64 + 5, 1));
    check(&TwoHash::<S>::open(&pool).expect("a table"), 1);
}

/// Readers make durable what they answer if a writer may be between store and flush; without that,
/// an answer is lost in a crash, and the explorer sees it.
pub(crate) fn catches_readers(registered: &'static Registered) {
    let keys = Keys::words(registered).expect("words are keys");
    interleaved::catch_readers(keys, |file| file.ends_with("twohash/readpath.rs"));
}

/// The tests of a scheme.
macro_rules! twohash_tests {
    ($scheme:ty, $registered:expr) => {
        use crate::suite::words::{fill_the_pool, grow_by_threads};
        use crate::twohash::tests;

        #[test]
        fn a_table_grows_far_past_its_plan() {
            tests::grows::<$scheme>();
        }

        #[test]
        fn threads_grow_a_table_together() {
            grow_by_threads(&tests::table::<$scheme>(64 << 20));
        }

        /// When the pool is full, inserts that need room fail, and everything else goes on.
        #[test]
        fn a_full_pool_leaves_the_table_usable() {
            fill_the_pool(&tests::table::<$scheme>(256 << 10));
        }

        #[test]
        fn recovery_ends_one_of_two_equal_entries() {
            tests::ends_movements::<$scheme>();
        }

        #[test]
        fn what_is_no_table_is_refused() {
            tests::refuses::<$scheme>();
        }

        #[test]
        fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
            tests::catches_readers(&$registered);
        }
    };
}

pub(crate) use twohash_tests;
