//! The tree in special situations, and the bugs that were published of others.

use gabion_media::pmem::PAtomicU64;

use super::layout::{NODE_BYTES, TO_LAYER};
use super::{Masstree, REGISTERED};
use crate::blink::{Descent, Node as _, NodeInit, NodeSplit};
use crate::suite::damage::{ask_all, may_be};
use crate::suite::words::{check, fill_the_pool, grow_by_threads};
use crate::suite::{self, Keys, fresh, interleaved, while_flipped, words};
use crate::{Index, Item, OrderedIndex};

fn tree<K: Item + ?Sized>(size: u64) -> Masstree<K> {
    Masstree::create(&suite::pool(size, Masstree::<K>::pool_options())).expect("a tree")
}

/// The published code compares strings wrongly whose length is no multiple of eight, and has
/// trouble with keys that begin others.
#[test]
fn keys_that_begin_others_are_keys() {
    let tree: Masstree<[u8]> = tree(4 << 20);
    let keys: Vec<Vec<u8>> = (0..60).map(|len| vec![b's'; len]).collect();
    for (key, value) in keys.iter().rev().zip(0..) {
        assert_eq!(tree.insert(key, value).expect("space"), None);
        assert_eq!(tree.insert(key, value + 100).expect("space"), Some(value));
    }
    let mut found = Vec::new();
    tree.scan(&keys[5], 50, &mut found).expect("sound");
    assert!(found.iter().map(|(key, _)| key).eq(&keys[5..55]));
    check(&tree, 60);
    for (key, value) in keys.iter().rev().zip(100..) {
        assert_eq!(tree.get(key).expect("sound"), Some(value));
        assert_eq!(tree.remove(key).expect("sound"), Some(value));
        assert_eq!(tree.get(key).expect("sound"), None);
    }
    assert_eq!(check(&tree, 0), 1);
}

/// Keys with a long beginning in common need many layers, which go with them.
#[test]
fn layers_come_and_go() {
    let tree: Masstree<[u8]> = tree(16 << 20);
    let key = |number: u64| [vec![b'x'; 1000], number.to_le_bytes().to_vec()].concat();
    tree.insert(&key(0), 0).expect("space");
    assert_eq!(check(&tree, 1), 2);
    for number in 1..200 {
        tree.insert(&key(number), number).expect("space");
    }
    assert!(check(&tree, 200) > 142, "a layer for each 7 bytes");
    for number in 0..200 {
        assert_eq!(tree.get(&key(number)).expect("sound"), Some(number));
        assert_eq!(tree.remove(&key(number)).expect("sound"), Some(number));
    }
    assert_eq!(check(&tree, 0), 1);
}

/// Nodes whose entries were deleted take no space for long, in whatever order keys come and go.
#[test]
fn a_queue_does_not_grow() {
    let tree: Masstree<u64> = tree(4 << 20);
    let (most, left) = words::queue(&tree);
    assert!(most < 60, "{most} nodes for 100 keys");
    assert_eq!(left, 3, "a node on each level");
}

/// The least and the greatest word are keys like any other, and borders of nodes too.
#[test]
fn the_greatest_word_is_a_key() {
    words::ends_are_keys(&tree(1 << 20));
}

#[test]
fn threads_grow_a_tree_together() {
    grow_by_threads(&tree(64 << 20));
}

/// When the pool is full, inserts fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_tree_usable() {
    fill_the_pool(&tree(320 << 10));
}

/// Threads that make and empty the same layers: no key is lost with a layer that is given up.
#[test]
fn threads_agree_about_layers() {
    let tree: Masstree<[u8]> = tree(32 << 20);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let tree = &tree;
            scope.spawn(move || {
                let key = |number: u64| {
                    let prefix = [b'a' + u8::try_from(number % 5).expect("small"); 20];
                    [&prefix[..], &thread.to_le_bytes()[..1]].concat()
                };
                for round in 0..4000 {
                    let key = key(round);
                    assert_eq!(tree.insert(&key, round).expect("space"), None);
                    assert_eq!(tree.get(&key).expect("sound"), Some(round));
                    let mut found = Vec::new();
                    tree.scan(&key, 1, &mut found).expect("sound");
                    assert_eq!(found, [(key.clone(), round)]);
                    assert_eq!(tree.remove(&key).expect("sound"), Some(round));
                }
            });
        }
    });
    tree.compact().expect("sound");
    assert_eq!(check(&tree, 0), 1);
}

/// Where the value is that a slice has in the leaf of a layer with one.
fn value_at(tree: &Masstree<[u8]>, first: u64, word: u64) -> u64 {
    let layer = tree.layer(first);
    let leaf = layer.first_leaf();
    let slot = leaf.find(word).expect("a slot");
    tree.pool.offset_of(&leaf.body.slots[slot].value).raw()
}

/// The layer that a slice of the first one leads to.
fn layer_below(tree: &Masstree<[u8]>, word: u64) -> u64 {
    let mut reference = [0; 8];
    tree.pool
        .read(value_at(tree, tree.root, word), &mut reference);
    let reference = u64::from_le_bytes(reference);
    assert!(reference & TO_LAYER != 0, "to a record");
    reference & !TO_LAYER
}

/// The record that was written for a new layer came into sight with it, and whoever deleted the key
/// at once, under the lock of the layer's leaf, was told that the pool has no such block: the
/// allocator did not know yet that it is in use.
#[test]
fn what_has_just_come_can_go() {
    let (director, pool) = fresh::directed_pool(96 << 10, Masstree::<[u8]>::pool_options());
    let tree: Masstree<[u8]> = Masstree::create(&pool).expect("a tree");
    let keys = [&b"granite sandstone, red"[..], b"granite stone"];
    tree.insert(keys[0], 1).expect("space");
    let word = super::slice::of(keys[0], 0);
    let at = value_at(&tree, tree.root, word);
    let come = || assert_eq!(tree.insert(keys[1], 2).expect("space"), None);
    let went = fresh::go_at_once(&director, at, come, || tree.remove(keys[0]));
    assert_eq!(went.expect("it is there"), Some(1));
    check(&tree, 1);
}

/// The published reader answers with what it sees. Here it first makes that durable if a writer may
/// be between store and flush; without that, an answer is lost in a crash.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&REGISTERED).expect("words are keys");
    interleaved::catch_readers(keys, |file| {
        file.ends_with("masstree/readpath.rs") || file.ends_with("masstree/node.rs")
    });
}

/// A reference to the layer that it is in was followed for ever by whoever visits all entries.
#[test]
fn a_layer_below_itself_keeps_nobody_for_ever() {
    const KEYS: [&[u8]; 2] = [b"granite sandstone, red", b"granite stone, green"];
    let slice = |depth| super::slice::of(KEYS[0], depth);
    ask_all(
        Masstree::<[u8]>::pool_options,
        move |pool| {
            let tree: Masstree<[u8]> = Masstree::create(pool).expect("a tree");
            for key in KEYS {
                tree.insert(key, 1).expect("space");
            }
            vec![value_at(&tree, layer_below(&tree, slice(0)), slice(1))]
        },
        move |wrong, pool| {
            let tree: Masstree<[u8]> = Masstree::open(pool).expect("a sound root");
            let layer = layer_below(&tree, slice(0));
            pool.write(wrong.0, &(layer | TO_LAYER).to_le_bytes());
            assert!(tree.scan(b"", 1000, &mut Vec::new()).is_err());
            assert!(tree.len().is_err());
            assert!(Index::for_each(&tree, &mut |_, _| ()).is_err());
            assert!(tree.compact().is_err());
            assert!(tree.check().is_err());
            for key in KEYS {
                may_be(wrong, tree.get(key));
                may_be(wrong, tree.insert(key, 2));
                may_be(wrong, tree.remove(key));
            }
        },
    );
}

/// The permutation of the first leaf, and the offset of the topmost node.
#[test]
fn a_wrong_first_leaf_is_found() {
    let tree: Masstree<u64> = tree(1 << 20);
    tree.insert(&1, 1).expect("space");
    let root = tree.pool().root::<PAtomicU64>().raw();
    for at in [112, 113, 120, 126] {
        let checked = while_flipped(tree.pool(), root + at, 8, || tree.check());
        assert!(checked.is_err(), "byte {at}");
    }
    check(&tree, 1);
}

/// The leaves of this tree are never replaced: one that handed its range over to its neighbour is
/// damage, though every key is found.
#[test]
fn a_leaf_without_a_range_is_damage() {
    let tree: Masstree<u64> = tree(1 << 20);
    for key in 0..200 {
        tree.insert(&key, key).expect("space");
    }
    let layer = tree.layer(tree.root);
    let guard = tree.pool().enter();
    let leaf = layer.descend(0, 100).expect("sound").expect("a leaf");
    let (low, range) = (leaf.head().low(), leaf.head().range());
    assert!(low > 0 && !range.is_last());
    let born = NodeInit {
        level: 0,
        low,
        neighbour: range.neighbour,
        bound: range.bound,
    };
    let copy = layer.build(&born, &leaf.entries(range)).expect("space");
    let copy = copy.commit::<u8>().raw();
    let mut state = [0; 8];
    tree.pool().read(leaf.at, &mut state);
    // The version, above bit 16, says which of two links holds.
    let link = leaf.at + 8 + 16 * u64::from(state[2] & 1);
    tree.pool().write(link, &copy.to_le_bytes());
    tree.pool().write(link + 8, &low.to_le_bytes());
    drop(guard);
    for key in 0..200 {
        assert_eq!(tree.get(&key).expect("sound"), Some(key));
    }
    let error = tree.check().expect_err("a leaf has no range");
    assert!(error.to_string().contains("the range of a node"), "{error}");
}

/// Where a layer belongs is read from the medium when the layer has become empty, and was followed
/// without a look.
#[test]
fn a_layer_that_belongs_nowhere_stays() {
    let tree: Masstree<[u8]> = tree(1 << 20);
    let keys = [&b"granite sand"[..], b"granite stone"];
    for (key, value) in keys.into_iter().zip(0..) {
        assert_eq!(tree.insert(key, value).expect("space"), None);
    }
    let first = layer_below(&tree, super::slice::of(keys[0], 0));
    // An offset behind the end of the pool.
    while_flipped(tree.pool(), first + NODE_BYTES + 5, 1, || {
        for (key, value) in keys.into_iter().zip(0..) {
            assert_eq!(tree.remove(key).expect("the entry is sound"), Some(value));
        }
    });
    assert_eq!(tree.get(keys[0]).expect("sound"), None);
    tree.compact().expect("sound");
    assert_eq!(check(&tree, 0), 1);
}

/// Counts what is done to a medium: steps, and the lines that they concern.
#[derive(Default)]
struct Work(std::sync::atomic::AtomicU64);

impl gabion_media::pmem::trace::Watcher for Work {
    fn event(&self, event: gabion_media::pmem::trace::TraceEvent<'_>) {
        use gabion_media::pmem::trace::TraceStep;
        let bytes = match event.step {
            TraceStep::Store { bytes, .. } | TraceStep::NtStore { bytes, .. } => bytes.len() as u64,
            TraceStep::Load { len, .. } => len,
            _ => 0,
        };
        // ORDER: Relaxed: one thread.
        self.0
            .fetch_add(1 + bytes / 64, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The second of two keys that begin alike made a layer for each seven bytes, and for each layer
/// went all the way down again and copied the rest of the first key: 2 s for 64 KiB. All that is
/// done to them is in proportion to their length.
#[test]
fn long_common_beginnings_cost_what_they_are_long() {
    let work = std::sync::Arc::new(Work::default());
    let pool = gabion_media::pmem::Pool::anonymous(gabion_media::pmem::PoolOptions {
        size: 64 << 20,
        heaps: 1,
        watcher: Some(work.clone()),
        ..Masstree::<[u8]>::pool_options()
    });
    let tree = Masstree::<[u8]>::create(&pool.expect("memory")).expect("a tree");
    let costs = |length: usize| {
        let key = |last| [vec![7; length], vec![last]].concat();
        let middle = [vec![7; length / 2], vec![9]].concat();
        let count = |step: &dyn Fn()| {
            // ORDER: Relaxed: one thread.
            let before = work.0.load(std::sync::atomic::Ordering::Relaxed);
            step();
            work.0.load(std::sync::atomic::Ordering::Relaxed) - before
        };
        tree.insert(&key(1), 1).expect("space");
        let costs = [
            count(&|| assert_eq!(tree.insert(&key(2), 2).expect("space"), None)),
            count(&|| assert_eq!(tree.insert(&middle, 3).expect("space"), None)),
            count(&|| assert_eq!(tree.get(&key(2)).expect("sound"), Some(2))),
            count(&|| assert_eq!(tree.len().expect("sound"), 3)),
            count(&|| assert_eq!(tree.check().expect("sound").entries, 3)),
            count(&|| assert_eq!(tree.remove(&key(1)).expect("sound"), Some(1))),
            count(&|| tree.compact().expect("space")),
            count(&|| assert_eq!(tree.remove(&middle).expect("sound"), Some(3))),
            count(&|| assert_eq!(tree.remove(&key(2)).expect("sound"), Some(2))),
        ];
        assert_eq!(check(&tree, 0), 1);
        costs
    };
    let (one, four) = (costs(4 << 10), costs(16 << 10));
    for (number, (one, four)) in one.into_iter().zip(four).enumerate() {
        assert!(
            four <= 5 * one,
            "step {number}: {one}, and {four} for four times the length"
        );
    }
}

/// A record stays where it is when layers come above it: it is found, read, changed and given up
/// there, and after a restart.
#[test]
fn records_stay_where_they_are() {
    let tree: Masstree<[u8]> = tree(4 << 20);
    let key = |common: usize, rest: u8| [vec![5; common], vec![rest; 100]].concat();
    tree.insert(&key(200, 0), 0).expect("space");
    for (number, common) in [10, 60, 61, 62, 63, 64, 130, 199].into_iter().enumerate() {
        let value = number as u64 + 1;
        assert_eq!(tree.insert(&key(common, 9), value).expect("space"), None);
        assert_eq!(tree.get(&key(200, 0)).expect("sound"), Some(value - 1));
        assert_eq!(
            tree.update(&key(200, 0), value).expect("sound"),
            Some(value - 1)
        );
        check(&tree, value + 1);
    }
    let again = Masstree::<[u8]>::open(tree.pool()).expect("the tree");
    let mut found = Vec::new();
    again.scan(&key(200, 0), 1, &mut found).expect("sound");
    assert_eq!(found, [(key(200, 0), 8)]);
    assert_eq!(again.remove(&key(200, 0)).expect("sound"), Some(8));
    check(&again, 8);
}
