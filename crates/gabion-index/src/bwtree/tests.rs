//! The tree in special situations, and the bugs that were published of others.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, POff, Pool, PoolOptions};

use super::layout::KEY_BYTES_MAX;
use super::{BwTree, REGISTERED};
use crate::root::ROOT_BYTES;
use crate::stored_key::KeyParts;
use crate::suite::damage::{ask_bits, may_be};
use crate::suite::words::{check, fill_the_pool, grow_by_threads};
use crate::suite::{self, Keys, interleaved, while_flipped, words};
use crate::{Error, Index, Item, OrderedIndex};

type Tiny = BwTree<u64, 6, 3>;

fn tree<K: Item + ?Sized, const ENTRIES: usize, const DELTAS: u64>(
    size: u64,
) -> BwTree<K, ENTRIES, DELTAS> {
    let options = BwTree::<K, ENTRIES, DELTAS>::pool_options();
    BwTree::create(&suite::pool(size, options)).expect("a tree")
}

/// Pages whose entries were deleted take no space for long, in whatever order keys come and go.
#[test]
fn a_queue_does_not_grow() {
    let tree: Tiny = tree(4 << 20);
    let (most, left) = words::queue(&tree);
    // Two for each page of three entries and more.
    assert!(most < 120, "{most} blocks for 100 keys");
    assert_eq!(left, 2, "the root and a page");
}

/// The least and the greatest word are keys like any other, and borders of pages too.
#[test]
fn the_greatest_word_is_a_key() {
    words::ends_are_keys(&tree::<u64, 6, 3>(1 << 20));
}

#[test]
fn threads_grow_a_tree_together() {
    grow_by_threads(&tree::<u64, 64, 8>(64 << 20));
    grow_by_threads(&tree::<u64, 6, 3>(64 << 20));
}

/// When the pool is full, inserts fail, and everything else goes on: a split leaves a page free.
#[test]
fn a_full_pool_leaves_the_tree_usable() {
    fill_the_pool(&tree::<u64, 64, 8>(640 << 10));
    fill_the_pool(&tree::<u64, 6, 3>(320 << 10));
}

/// Keys with many bytes have deltas of many lines, and pages of few entries.
#[test]
fn keys_have_up_to_eight_kilobytes() {
    let tree: BwTree<[u8]> = tree(64 << 20);
    let longest = usize::try_from(KEY_BYTES_MAX).expect("small");
    let key = |number: usize| [vec![b'x'; number * 97 % (longest - 8)], vec![1; 8]].concat();
    let mut keys: Vec<Vec<u8>> = (0..120).map(key).collect();
    keys.push(vec![b'x'; longest]);
    keys.push(Vec::new());
    for (value, key) in (0..).zip(&keys) {
        assert_eq!(tree.insert(key, value).expect("space"), None);
        assert_eq!(tree.insert(key, value).expect("space"), Some(value));
    }
    let too_long = vec![b'x'; longest + 1];
    let refused = tree.insert(&too_long, 1);
    assert!(matches!(refused, Err(Error::Limit { .. })), "{refused:?}");
    assert_eq!(tree.remove(&too_long).expect("sound"), None);
    assert_eq!(tree.get(&too_long).expect("sound"), None);
    check(&tree, 122);
    let mut found = Vec::new();
    tree.scan(&[], 1000, &mut found).expect("sound");
    let mut sorted = keys.clone();
    sorted.sort();
    assert!(found.iter().map(|(key, _)| key).eq(&sorted));
    for (value, key) in (0..).zip(&keys) {
        assert_eq!(tree.remove(key).expect("sound"), Some(value));
    }
    tree.compact().expect("space");
    assert!(check(&tree, 0) < 20);
}

/// A compaction goes on from the bound of the page before. If the page that began there has been
/// taken in meanwhile, by one that its parent does not know, the parent was told of that one under
/// the bound, beside its low: an entry that stayed, and led everybody in circles, when the page was
/// gone.
#[test]
fn a_parent_is_told_of_a_page_by_its_low() {
    let tree: Tiny = tree(1 << 20);
    (0..40).for_each(|key| assert_eq!(tree.insert(&key, key).expect("space"), None));
    let guard = tree.pool.enter();
    let way = tree.descend(0, &KeyParts::of(&20_u64)).expect("sound");
    let cell = way.expect("a leaf").page.cell;
    // A split of which nobody has told the parent yet.
    let lock = tree.locks.lock(cell);
    let page = tree.freeze(cell).expect("sound");
    let entries = page.entries();
    let keys: Vec<u64> = entries.iter().map(|(key, _)| key.word).collect();
    assert!(keys.len() >= 3, "{keys:?}");
    let split = tree.split(&lock, &page, &entries, 1, &guard);
    assert!(split.expect("space").is_some());
    drop(lock);
    let tended = tree.tend(0, &keys[keys.len() - 1], &guard);
    let page = tended.expect("space").expect("a leaf");
    assert!(page.low().word < keys[keys.len() - 1]);
    drop(guard);
    check(&tree, 40);
    tree.compact().expect("space");
    check(&tree, 40);
}

/// Threads that insert, delete and scan all at once, in trees of many levels.
#[test]
fn threads_agree() {
    words::threads_agree(&tree::<u64, 6, 3>(32 << 20));
}

/// The published code keeps the count of taken lines beside the page, where a crash leaves it
/// behind the deltas, so that one is written over, or a line is lost for ever. Here lines that a
/// crash left taken go with their page.
#[test]
fn lines_that_were_taken_for_nothing_go_with_their_page() {
    let tree: BwTree<u64> = tree(1 << 20);
    for key in 0..3 {
        tree.insert(&key, key).expect("space");
    }
    let pool = tree.pool().clone();
    let cell: &PAtomicU64 = pool.at(POff::new(pool.root::<PAtomicU64>().raw() + ROOT_BYTES));
    for key in 3..500 {
        // Another line is taken, by a writer who is gone.
        let word = super::layout::PageWord(cell.load(&pool, Ordering::Relaxed));
        if word.taken() < 8 && key < 60 {
            cell.store(&pool, word.take(1).0, Ordering::Relaxed);
        }
        tree.insert(&key, key).expect("space");
    }
    check(&tree, 500);
    let again: BwTree<u64> = BwTree::open(&pool).expect("a tree");
    check(&again, 500);
}

/// A page that a crash left frozen is read as it is, and thawed by the next writer.
#[test]
fn a_frozen_page_is_thawed() {
    let tree: BwTree<u64> = tree(1 << 20);
    let pool = tree.pool().clone();
    let cell: &PAtomicU64 = pool.at(POff::new(pool.root::<PAtomicU64>().raw() + ROOT_BYTES));
    for key in 0..100 {
        let word = super::layout::PageWord(cell.load(&pool, Ordering::Relaxed));
        cell.store(&pool, word.frozen().0, Ordering::Relaxed);
        assert_eq!(tree.get(&key).expect("sound"), None);
        assert_eq!(tree.insert(&key, key).expect("space"), None);
        assert_eq!(tree.get(&key).expect("sound"), Some(key));
    }
    check(&tree, 100);
}

#[test]
fn what_is_no_tree_is_refused() {
    let pool = Pool::anonymous(PoolOptions {
        size: 1 << 20,
        ..BwTree::<u64>::pool_options()
    })
    .expect("a pool in memory");
    assert!(matches!(BwTree::<u64>::open(&pool), Err(Error::NoRoot)));
    let tree: BwTree<u64> = BwTree::create(&pool).expect("a tree");
    let again = BwTree::<u64>::create(&pool);
    assert!(matches!(again, Err(Error::RootTaken)));
    assert!(matches!(BwTree::<[u8]>::open(&pool), Err(Error::NoRoot)));
    for key in 0..20 {
        tree.insert(&key, key).expect("space");
    }
    let root = pool.root::<PAtomicU64>().raw();
    for at in root..root + 64 {
        let opened = while_flipped(&pool, at, 1, || BwTree::<u64>::open(&pool));
        assert!(opened.is_err(), "byte {at}");
    }
    // The word of the topmost page, and the head of that.
    let mut word = [0; 8];
    pool.read(root + ROOT_BYTES, &mut word);
    let page = super::layout::PageWord(u64::from_le_bytes(word)).base();
    for (at, bit) in [
        (root + ROOT_BYTES + 3, 1),
        (root + ROOT_BYTES + 6, 8),
        (page, 1),
        (page + 8, 64),
        (page + 16, 1),
    ] {
        let checked = while_flipped(&pool, at, bit, || tree.check());
        assert!(checked.is_err(), "byte {at}");
    }
    check(&BwTree::<u64>::open(&pool).expect("a tree"), 20);
}

/// A place that leads out of the medium was taken for that of an empty rest, which was read all the
/// same, out of the medium, when the page was written anew.
#[test]
fn a_place_behind_the_medium_is_not_read() {
    for field in [24, 40] {
        let tree: BwTree<[u8], 6, 3> = tree(1 << 20);
        let pool = tree.pool().clone();
        let key = |number: u64| format!("a key of a page, {number:03}").into_bytes();
        for number in 0..40 {
            tree.insert(&key(number), number).expect("space");
        }
        let guard = tree.pool.enter();
        let way = tree.descend(0, &KeyParts::of(&key(20)[..])).expect("sound");
        let page = way.expect("a leaf").page;
        assert!(page.word.base() != 0 && page.right != 0);
        let place = page.word.base() + field;
        drop(guard);
        suite::while_flipped(&pool, place + 3, 1 << 7, || {
            // What they answer is damaged as the page is, but they answer.
            for number in 0..40 {
                let _ = tree.insert(&[&key(number)[..], b"+"].concat(), number);
                let _ = tree.remove(&key(number));
            }
            let _ = tree.check();
        });
    }
}

/// Where each page says that its range ends.
fn bounds(tree: &Tiny) -> Vec<u64> {
    let _guard = tree.pool.enter();
    let mut bounds = Vec::new();
    let (mut level, mut from) = (0, 0);
    while let Some(way) = tree.descend(level, &KeyParts::of(&from)).expect("sound") {
        let head = way.page.word.base();
        bounds.extend([head + 32, head + 40]);
        match tree.bound_behind(&way.page, &from).expect("sound") {
            Some(bound) => from = bound,
            None => (level, from) = (level + 1, 0),
        }
    }
    bounds
}

/// The place of a bound tells the bytes of a key, and a word with one of them is greater than the
/// same word without: a page had a key that was its own bound, and whoever went on behind that came
/// back to the page, for ever.
#[test]
fn a_wrong_bit_of_a_bound_keeps_nobody_for_ever() {
    // The bytes of the key are in the upper half of a place.
    ask_bits(
        (28..44).collect(),
        Tiny::pool_options,
        |pool| {
            let tree = Tiny::create(pool).expect("a tree");
            for key in 0..40 {
                tree.insert(&key, key).expect("space");
            }
            let bounds = bounds(&tree);
            assert!(bounds.len() > 10);
            bounds
        },
        |wrong, pool| {
            let tree = match Tiny::open(pool) {
                Ok(tree) => tree,
                Err(error) => return may_be::<()>(wrong, Err(error)),
            };
            may_be(wrong, tree.scan(&0, 1000, &mut Vec::new()));
            may_be(wrong, tree.len());
            may_be(wrong, Index::for_each(&tree, &mut |_, _| ()));
            for key in 0..40 {
                may_be(wrong, tree.get(&key));
            }
            may_be(wrong, tree.compact());
            may_be(wrong, tree.check());
        },
    );
}

/// The published reader answers with what it sees. Here it first makes that durable if a writer may
/// be between store and flush; without that, an answer is lost in a crash.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&REGISTERED).expect("words are keys");
    interleaved::catch_readers(keys, |file| file.ends_with("bwtree/readpath.rs"));
}
