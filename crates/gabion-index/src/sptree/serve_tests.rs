//! Service while a tree is being recovered: answers, threads, damage that is met late, and what a
//! crash had left.

use std::collections::BTreeMap;

use gabion_media::pmem::{Pool, PoolOptions, Region};

use super::item::key_of;
use super::layout::PAIRS_AT;
use super::leaf::{Leaf, slots};
use super::readpath::NodeSearch;
use super::steps::{Step, leave_out};
use super::{Maintenance, Options, PairCheck, SpTree, TreeKey};
use crate::suite::{self, SMALL, words};
use crate::{Error, OrderedIndex, Result, Seed};

type Words = SpTree<u64, 8>;
type Strings = SpTree<[u8], 8>;

/// A buffer for each leaf.
const ALL: Options = Options {
    buffer_bytes: u64::MAX,
};

/// Opens a tree without threads, so that nothing is recovered that nobody asks for.
fn open<K: TreeKey + ?Sized>(pool: &Pool, options: Options) -> SpTree<K, 8> {
    SpTree::find(pool, options, Maintenance::Writers, None).expect("a tree")
}

fn holds(key: &[u8], value: &[u8]) -> bool {
    key == value
}

/// The entries of a tree that is checked.
fn entries(pool: &Pool) -> u64 {
    let tree = open_checked(pool).expect("a tree");
    tree.check().expect("sound").entries
}

fn open_checked(pool: &Pool) -> Result<Strings> {
    Strings::open_checked(pool, Maintenance::Writers, holds as PairCheck)
}

/// Runs that are not recovered.
pub(super) fn raw<K: TreeKey + ?Sized>(tree: &SpTree<K, 8>) -> usize {
    let nodes = (0..tree.nodes.in_use()).filter_map(|number| tree.nodes.get(number));
    nodes.filter(|node| node.is_raw()).count()
}

/// A tree of so many words, in no order, and without gaps between them.
fn of_words(keys: u64, options: Options) -> Pool {
    let pool = suite::pool(64 << 20, Words::pool_options());
    let tree = Words::create_with(&pool, SMALL, options).expect("a tree");
    for number in 0..keys {
        tree.insert(mixed(number, keys), number).expect("space");
    }
    pool
}

fn mixed(number: u64, keys: u64) -> u64 {
    number * 7919 % keys
}

fn key(number: u64) -> Vec<u8> {
    format!("many of {number:05}").into_bytes()
}

fn of_strings(keys: u64) -> Pool {
    let pool = suite::pool(64 << 20, Strings::pool_options());
    let tree = Strings::create_tended(&pool, SMALL, Maintenance::Writers).expect("a tree");
    for number in 0..keys {
        let key = key(mixed(number, keys));
        tree.put(&key, &key).expect("space");
    }
    tree.finish();
    pool
}

fn is_damage<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Damaged { .. }))
}

#[test]
fn the_first_answer_needs_one_run_and_no_more() {
    let keys = 20_000;
    let pool = of_words(keys, Options::default());
    let tree: Words = open(&pool, Options::default());
    let (all, leaves) = (raw(&tree), tree.leaves());
    assert!(all > 20, "{all} runs");
    assert_eq!(
        tree.get(17).expect("sound"),
        Some(17 * inverse(keys) % keys)
    );
    assert_eq!(raw(&tree), all - 1);
    // A scan comes to the next run, and a write looks for one more.
    let mut found = Vec::new();
    tree.scan(&17, 1500, &mut found).expect("sound");
    assert!(found.iter().map(|(key, _)| *key).eq(17..1517));
    assert!(raw(&tree) < all - 1 && raw(&tree) > all - 6);
    let before = raw(&tree);
    tree.update(17, 5).expect("sound");
    assert!(raw(&tree) >= before - 1);
    assert_eq!(tree.leaves(), leaves);
    tree.recover_all().expect("sound");
    assert_eq!((raw(&tree), tree.leaves()), (0, leaves));
    words::check(&tree, keys);
}

/// A node whose neighbour is raw is locked, and the router leads to it for the keys of the
/// neighbour: it forgets what it has no memory for.
#[test]
fn a_compaction_never_waits_for_what_it_holds() {
    let pool = of_words(20_000, Options::default());
    let tree: Words = open(&pool, Options::default());
    tree.get(0).expect("sound");
    for number in 1..tree.nodes.in_use() {
        let node = tree.nodes.get(number).expect("in use");
        if node.is_raw() {
            tree.router.remove(&node.lkey());
        }
    }
    let (ended, ends) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let done = tree.compact().map(|()| raw(&tree));
        let _ = ended.send(done);
    });
    let left = ends.recv_timeout(std::time::Duration::from_secs(120));
    assert_eq!(left.expect("it ends").expect("sound"), 0);
}

/// What `mixed` multiplies by, undone.
fn inverse(keys: u64) -> u64 {
    (1..keys)
        .find(|other| other * 7919 % keys == 1)
        .expect("no common divisor")
}

/// Random operations beside a map, in a tree that is left and opened again before it is recovered;
/// with buffers and without, which may change from opening to opening.
#[test]
fn answers_are_the_twins_whatever_is_recovered() {
    let keys = 40_000;
    let pool = of_words(keys, ALL);
    let mut twin: BTreeMap<u64, u64> = (0..keys)
        .map(|number| (mixed(number, keys), number))
        .collect();
    let random = Seed::new(11);
    let mut unfinished = 0;
    let budgets = [ALL, Options::default(), ALL].into_iter().cycle();
    for (round, options) in (0..40_u64).zip(budgets) {
        let tree: Words = open(&pool, options);
        for number in 0..random.hash_u64(round) % 30 {
            let drawn = random.hash_u64(round << 32 | number);
            let key = drawn % (keys + 500);
            let (before, place) = match drawn >> 32 & 7 {
                0..=2 => (tree.insert(key, drawn), twin.insert(key, drawn)),
                3 => {
                    let place = twin.get_mut(&key);
                    let before = place.map(|value| std::mem::replace(value, drawn));
                    (tree.update(key, drawn), before)
                }
                4 | 5 => (tree.remove(key), twin.remove(&key)),
                6 => {
                    let mut found = Vec::new();
                    tree.scan(&key, 40, &mut found).expect("sound");
                    let wanted = twin.range(key..).take(40);
                    assert!(wanted.map(|(key, value)| (*key, *value)).eq(found));
                    continue;
                }
                _ => (tree.get(key), twin.get(&key).copied()),
            };
            assert_eq!(before.expect("sound"), place, "round {round}, {number}");
        }
        unfinished += usize::from(raw(&tree) > 0);
        if round % 10 == 9 {
            words::check(&tree, twin.len() as u64);
        }
    }
    assert!(unfinished > 20, "{unfinished} rounds ended early");
    let tree: Words = open(&pool, Options::default());
    let mut found = Vec::new();
    tree.scan(&0, usize::MAX, &mut found).expect("sound");
    assert!(twin.iter().map(|(key, value)| (*key, *value)).eq(found));
    words::check(&tree, twin.len() as u64);
    assert_eq!(tree.log_bytes(), 0, "logs of a tree without buffers");
}

/// Runs that are emptied and merged from both sides of those that are not recovered yet.
#[test]
fn leaves_merge_up_to_runs_that_are_not_there() {
    let keys = 20_000;
    let pool = of_words(keys, Options::default());
    let tree: Words = open(&pool, Options::default());
    let all = raw(&tree);
    for key in (3000..12_000).rev() {
        assert!(tree.remove(key).expect("sound").is_some());
        // What writes recover besides is out of the way at once.
        if raw(&tree) == 0 {
            break;
        }
    }
    assert!(all > 20);
    tree.compact().expect("sound");
    let len = tree.len().expect("sound");
    words::check(&tree, len);
}

/// Threads that read, write and scan from the first moment on, beside those that recover; each
/// opening is left at another one.
#[test]
fn threads_are_served_at_once() {
    let keys = 30_000;
    for options in [ALL, Options::default()] {
        let pool = of_words(keys, options);
        for round in 0..12_u64 {
            let tree = Words::open_with(&pool, options).expect("a tree");
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let tree = &tree;
                    scope.spawn(move || {
                        let random = Seed::new(round);
                        for number in 0..30 * round {
                            let drawn = random.hash_u64(number << 2 | thread);
                            let key = drawn % keys / 3 * 3 + thread;
                            tree.insert(key, key + round).expect("space");
                            assert_eq!(tree.get(key).expect("sound"), Some(key + round));
                            let mut found = Vec::new();
                            tree.scan(&(drawn >> 20 & 0x3fff), 50, &mut found)
                                .expect("sound");
                            assert!(found.is_sorted_by(|one, two| one.0 < two.0));
                            assert_eq!(found.len(), 50);
                        }
                    });
                }
            });
            if round % 4 == 3 {
                words::check(&tree, keys);
            }
        }
    }
}

/// A leaf that is damaged: its run is told to be by each who needs it, nobody else notices, and
/// there is nothing that a later try would find wrong once the leaf is right again.
#[test]
fn damage_is_told_to_those_who_come_to_it() {
    let keys = 20_000;
    let pool = of_words(keys, ALL);
    let (victim, count) = {
        let tree: Words = open(&pool, ALL);
        tree.recover_all().expect("sound");
        let seen = NodeSearch::new(&tree, &12_000).node();
        (seen.expect("sound").node.leaf(), tree.leaves())
    };
    let mut right = [0; 8];
    pool.read(victim + 8, &mut right);
    for wrong in [3, u64::MAX, 0, victim] {
        pool.write(victim + 8, &wrong.to_le_bytes());
        for tending in [Maintenance::Writers, Maintenance::Thread] {
            let tree = Words::find(&pool, ALL, tending, None).expect("most of a tree");
            for _ in 0..3 {
                assert!(is_damage(tree.get(12_000)));
            }
            assert!(is_damage(tree.insert(12_000, 1)));
            assert!(is_damage(tree.remove(12_000)));
            for key in (0..10_000).chain(14_000..keys) {
                assert!(tree.get(key).expect("sound").is_some(), "{key}");
            }
            tree.insert(keys + 7, 1).expect("space");
            assert_eq!(tree.remove(keys + 7).expect("sound"), Some(1));
            assert!(is_damage(tree.scan(&9000, 5000, &mut Vec::new())));
            for _ in 0..2 {
                assert!(is_damage(tree.recover_all()));
                assert!(is_damage(tree.check()));
                assert!(is_damage(tree.len()));
            }
            assert!(is_damage(tree.compact()));
            if tending == Maintenance::Writers {
                pool.write(victim + 8, &right);
                assert!(tree.get(12_000).expect("sound").is_some());
                words::check(&tree, keys);
                pool.write(victim + 8, &wrong.to_le_bytes());
            }
        }
    }
    pool.write(victim + 8, &right);
    let tree: Words = open(&pool, ALL);
    words::check(&tree, keys);
    assert!(tree.leaves() >= count / 2);
}

/// What the logs have for a damaged leaf stays in them, and they are neither freed nor filled again
/// before it is right.
#[test]
fn logs_are_kept_for_a_run_that_is_damaged() {
    let keys = 20_000;
    let pool = of_words(keys, ALL);
    let victim = {
        let tree: Words = open(&pool, ALL);
        tree.recover_all().expect("sound");
        tree.update(12_000, 77).expect("sound");
        let seen = NodeSearch::new(&tree, &12_000).node();
        let seen = seen.expect("sound");
        assert!(seen.node.buffer().is_some(), "the logs have the update");
        seen.node.leaf()
    };
    let mut right = [0; 8];
    pool.read(victim + 8, &mut right);
    pool.write(victim + 8, &3_u64.to_le_bytes());
    for options in [Options::default(), ALL] {
        let tree: Words = open(&pool, options);
        assert!(tree.log_bytes() > 0);
        assert!(is_damage(tree.recover_all()));
        for key in 0..9000 {
            tree.update(key, key).expect("sound");
        }
        assert!(tree.log_bytes() > 0);
        assert_eq!(tree.buffers.used(), 0, "a buffer before the end");
    }
    pool.write(victim + 8, &right);
    let tree: Words = open(&pool, Options::default());
    assert_eq!(tree.get(12_000).expect("sound"), Some(77));
    words::check(&tree, keys);
    assert_eq!(tree.log_bytes(), 0);
}

/// An opening with a check looks at no pair before somebody needs its run; one that is damaged is
/// told then. A pair that is missing is told by the opening.
#[test]
fn a_checked_tree_tells_of_pairs_when_they_are_needed() {
    let keys = 8000;
    let pool = of_strings(keys);
    let tree = open_checked(&pool).expect("a tree");
    let all = raw(&tree);
    assert!(all > 8, "{all} runs");
    let leaf = NodeSearch::new(&tree, &key(6000)[..]).node();
    let leaf = leaf.expect("sound").node.leaf();
    assert_eq!(raw(&tree), all - 1);
    drop(tree);
    let (slot, item) = {
        let leaf = Leaf::<8>::new(&pool, leaf).expect("a leaf");
        let slot = slots(leaf.bitmap()).next().expect("a pair");
        (slot, leaf.value(slot))
    };
    // The value's first byte, and the pair's tag.
    for at in [item + 8 + key(0).len() as u64, leaf + 64 + slot as u64] {
        let mut right = [0];
        pool.read(at, &mut right);
        pool.write(at, &[right[0] ^ 4]);
        let tree = open_checked(&pool).expect("most of a tree");
        assert_eq!(tree.get(&key(10)).expect("sound"), Some(key(10)));
        assert!(is_damage(tree.get(&key(6000))));
        assert!(is_damage(tree.pairs_from(
            &key(5000),
            2000,
            &mut Vec::new()
        )));
        assert!(is_damage(tree.pairs_before(
            &key(7000),
            2000,
            &mut Vec::new()
        )));
        assert!(is_damage(tree.check()));
        pool.write(at, &right);
    }
    let mut bitmap = [0];
    pool.read(leaf, &mut bitmap);
    pool.write(leaf, &[bitmap[0] & !(1 << slot)]);
    assert!(is_damage(open_checked(&pool)));
    pool.write(leaf, &bitmap);
    assert_eq!(entries(&pool), keys);
}

/// Readers who stay longer than the tree's owner find all that there is, and write nothing.
#[test]
fn late_readers_of_a_checked_tree_write_nothing() {
    let region = Region::new(4 << 20);
    let options = || PoolOptions {
        heaps: 1,
        ..Strings::pool_options()
    };
    let pool = Pool::create_in(&region, options()).expect("a pool in memory");
    let tree = Strings::create_tended(&pool, SMALL, Maintenance::Writers).expect("a tree");
    for number in 0..3000 {
        tree.put(&key(number), &key(number)).expect("space");
    }
    // Without `finish`: some leaves are still to be told to the backup.
    drop(tree);
    let tree = open_checked(&pool).expect("a tree");
    tree.finish();
    assert!(raw(&tree) > 2);
    let image = || {
        let mut bytes = vec![0; 4 << 20];
        pool.read(0, &mut bytes);
        bytes
    };
    let before = image();
    for number in 0..3000 {
        assert_eq!(tree.get(&key(number)).expect("sound"), Some(key(number)));
    }
    assert_eq!(raw(&tree), 0);
    assert!(before == image(), "a reader wrote to the pool");
    drop(tree);
    assert_eq!(entries(&pool), 3000);
}

/// A merge that a crash left half done, between the leaves of two runs but for R2: the left leaf
/// has a pair of the right one. That goes from the right leaf, and others take its place in the
/// pool.
fn follow_a_half_done_merge() -> std::thread::Result<()> {
    let keys = 4000;
    let pool = of_strings(keys);
    let (left, right, removed) = border(&pool);
    let copied = left_by_a_merge(&pool, left, right);
    let tree: Strings = open(&pool, Options::default());
    // Nothing is recovered but what is asked for.
    tree.worker.finish();
    assert!(tree.remove(&copied).expect("sound"));
    tree.collect();
    // As long, so that they come to the same places, and less than all others.
    let others = |number: u64| format!("many of -{number:04}").into_bytes();
    for number in 0..20 {
        tree.put(&others(number), &copied).expect("space");
    }
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut found = Vec::new();
        tree.keys_from(b"", usize::MAX, &mut found).expect("sound");
        let mut wanted: Vec<_> = (0..keys).map(key).collect();
        wanted.retain(|key| *key != copied && *key != removed);
        wanted.extend((0..20).map(others));
        wanted.sort();
        assert!(found == wanted, "a scan finds what is not there");
        let checked = tree.check().expect("sound");
        assert_eq!(checked.entries, keys - 2 + 20);
        tree.collect();
        assert_eq!(checked.blocks, pool.stats().used_blocks);
    }))
}

/// The last leaf of the third run and the first one of the fourth, if nothing is to be mended, and
/// a key that is taken out of the left one to make room.
fn border(pool: &Pool) -> (u64, u64, Vec<u8>) {
    let tree: Strings = open(pool, Options::default());
    let right = tree.nodes.get(3).expect("a fourth run");
    let right_leaf = right.leaf();
    tree.recover_all().expect("sound");
    let left = right.prev().checked_sub(1).expect("a neighbour");
    let left_leaf = tree.nodes.get(left).expect("a node").leaf();
    let leaf = Leaf::<8>::new(pool, left_leaf).expect("a leaf");
    assert!(leaf.count() > 3, "it is not merged");
    let slot = slots(leaf.bitmap()).next().expect("a pair");
    let removed = key_of::<[u8]>(pool, leaf.pair(slot)).expect("sound");
    assert!(tree.remove(&removed).expect("sound"));
    (left_leaf, right_leaf, removed)
}

/// Puts a pair of the right leaf into the left one, too, and returns its key.
fn left_by_a_merge(pool: &Pool, left: u64, right: u64) -> Vec<u8> {
    let (to, from) = (
        Leaf::<8>::new(pool, left).expect("a leaf"),
        Leaf::<8>::new(pool, right).expect("a leaf"),
    );
    let free = to.bitmap().trailing_ones() as usize;
    assert!(free < 8, "no room in the left leaf");
    let slot = slots(from.bitmap()).next().expect("a pair");
    let [word, item] = from.pair(slot);
    let pair = left + PAIRS_AT + 16 * free as u64;
    pool.write(pair, &word.to_le_bytes());
    pool.write(pair + 8, &item.to_le_bytes());
    pool.write(left + 64 + free as u64, &[from.tag(slot)]);
    pool.write(left, &(to.bitmap() | 1 << free).to_le_bytes());
    key_of::<[u8]>(pool, [word, item]).expect("sound")
}

#[test]
fn runs_meet_where_nothing_is_to_be_mended() {
    follow_a_half_done_merge().expect("all keys, and no others");
    let left_out = leave_out(Step::Border);
    let missed = follow_a_half_done_merge();
    drop(left_out);
    assert!(missed.is_err(), "nobody misses {:?}", Step::Border);
}
