//! The trie in special situations, and nodes against a naive twin.

use std::ops::Range;

use gabion_media::pmem::{Pool, PoolOptions};
use proptest::prelude::*;

use super::bits::{Position, bit_in_window, differ, window, window_of};
use super::form::UnpackedNode;
use super::layout::{Child, ROOM};
use super::node::Node;
use super::{Hot, REGISTERED};
use crate::suite::{
    self, Keys, find_by_scan, fresh, interleaved, moved, strings, while_flipped, words,
};
use crate::{Error, Item, OrderedIndex, Seed};

fn trie<K: Item + ?Sized>(size: u64) -> Hot<K> {
    Hot::create(&suite::pool(size, Hot::<K>::pool_options())).expect("a trie")
}

/// No block of the pool is lost, and all invariants hold.
fn check<K: Item + ?Sized>(trie: &Hot<K>) -> u64 {
    let checked = trie.check().expect("sound");
    assert_eq!(checked.entries, trie.len().expect("sound"));
    assert_eq!(checked.blocks, trie.pool().stats().used_blocks);
    checked.blocks
}

/// Heights and numbers of children of all nodes on the way to a key.
fn nodes_on_way<K: Item + ?Sized>(trie: &Hot<K>, key: &K) -> Vec<(u32, usize)> {
    let path = trie.seek(key).expect("sound").expect("nobody writes");
    let nodes = path.iter().filter_map(|step| step.place.node);
    nodes.map(|node| (node.height(), node.count())).collect()
}

/// A leaf for tests that read no leaf.
fn some_child(number: usize) -> Child {
    Child::leaf(16 * (1 + number as u64))
}

/// The form of some keys, in their order.
fn form_of<K: Item + ?Sized>(keys: &[&K]) -> UnpackedNode {
    let part = |at: usize| differ(keys[at], keys[at + 1]).expect("different keys");
    let mut form = UnpackedNode::pair(some_child(0), part(0), some_child(1));
    for at in 1..keys.len() - 1 {
        form.part(at, part(at), some_child(at + 1));
    }
    let parts = (0..keys.len() - 1).map(part);
    assert!(parts.eq(positions(&form)));
    form
}

/// Where neighbours part.
fn positions(form: &UnpackedNode) -> Vec<Position> {
    (0..).map_while(|slot| form.position(slot)).collect()
}

/// That two forms have the same children and partial keys of the same bits.
fn assert_same(one: &UnpackedNode, two: &UnpackedNode) {
    assert_eq!(one.image(0).bytes(), two.image(0).bytes());
}

/// The child that a key can be below: bit by bit, from the topmost inner node down.
fn descend<K: Item + ?Sized>(positions: &[Position], key: &K) -> usize {
    let mut range: Range<usize> = 0..positions.len();
    while let Some(at) = range.clone().min_by_key(|at| positions[*at]) {
        let offset = window_of(positions[at]);
        let bit = window(key, offset) & bit_in_window(offset, positions[at]);
        range = if bit == 0 {
            range.start..at
        } else {
            at + 1..range.end
        };
    }
    range.start
}

/// A node of sorted keys is found as it was made, and finds for each key what its twin finds.
fn compare_node<K: Item + ?Sized>(keys: &[&K], probes: &[&K]) {
    let pool = Pool::anonymous(PoolOptions {
        size: 1 << 20,
        ..PoolOptions::default()
    });
    let pool = pool.expect("memory");
    let form = form_of(keys);
    let image = form.image(7);
    let space = pool.alloc_aligned(image.bytes().len() as u64, 64, 0);
    let at = space.expect("space").commit::<u8>().raw();
    pool.write(at, image.bytes());
    let node = Node::new(&pool, at).expect("a node");
    assert_eq!((node.height(), node.count()), (7, keys.len()));
    assert_eq!(image.bytes().len(), 8 * node.shape().words());
    assert_same(&UnpackedNode::of(&node), &form);
    assert!(node.is_image(image.bytes()));
    for (slot, key) in keys.iter().enumerate() {
        assert_eq!(node.find(*key), slot, "{key:?} among {keys:?}");
    }
    for key in probes.iter().chain(keys) {
        let found = node.find(*key);
        assert_eq!(
            found,
            descend(&positions(&form), *key),
            "{key:?} in {keys:?}"
        );
    }
}

/// Changes of forms give the forms of the keys that are there then.
fn compare_changes<K: Item + ?Sized>(keys: &[&K], at: usize) {
    let at = at % keys.len();
    let whole = form_of(keys);
    let without: Vec<&K> = keys[..at].iter().chain(&keys[at + 1..]).copied().collect();
    let mut form = whole.clone();
    form.remove(at);
    assert_eq!(form.len(), keys.len() - 1);
    assert!(!form.children().contains(&some_child(at)));
    if without.len() > 1 {
        let twin = form_of(&without);
        assert_eq!(positions(&form), positions(&twin));
        assert_eq!(form.image(0).bytes().len(), twin.image(0).bytes().len());
        let slot = descend(&positions(&form), keys[at]);
        let position = differ(without[slot], keys[at]).expect("different keys");
        let around = form.around(slot, position);
        let has_one = keys[at] > without[slot];
        form.insert(around, position, has_one, some_child(at));
        assert_same(&form, &whole);
    }
    let (left, position, right) = whole.split();
    assert_eq!(left.len() + right.len(), keys.len());
    let mut both = match right.only() {
        Some(only) => UnpackedNode::pair(some_child(99), position, only),
        None => UnpackedNode::pair(some_child(99), position, some_child(98)),
    };
    if right.only().is_none() {
        both.absorb(1, &right);
    }
    if left.only().is_none() {
        both.absorb(0, &left);
    } else {
        let first = left.children()[0];
        let mut rest = both.clone();
        rest.remove(0);
        assert_eq!(rest.children(), right.children());
        assert_eq!(first, some_child(0));
        return;
    }
    assert_same(&both, &whole);
}

fn sorted<K: Item + ?Sized>(keys: &mut Vec<K::Owned>) {
    keys.sort();
    keys.dedup();
    keys.truncate(ROOM);
}

proptest! {
    #[test]
    fn nodes_of_words_are_the_twins(
        keys in prop::collection::vec(any::<u64>(), 2..ROOM + 1),
        masks in prop::array::uniform3(any::<u64>()),
        probes in prop::collection::vec(any::<u64>(), 8),
        at: usize,
    ) {
        // Random words, words that part at few bits, and words that are near each other.
        let few = masks[0] & masks[1] & masks[2] | 1;
        for mask in [u64::MAX, few, masks[0] & masks[1] | 1, 63] {
            let mut keys: Vec<u64> = keys.iter().map(|key| key & mask).collect();
            keys.extend([0, mask]);
            sorted::<u64>(&mut keys);
            let keys: Vec<&u64> = keys.iter().collect();
            compare_node(&keys, &probes.iter().collect::<Vec<_>>());
            compare_changes(&keys, at);
        }
    }

    #[test]
    fn nodes_of_strings_are_the_twins(
        keys in prop::collection::vec(prop::collection::vec(0..3_u8, 0..40), 2..ROOM + 1),
        probes in prop::collection::vec(prop::collection::vec(0..4_u8, 0..40), 8),
        at: usize,
    ) {
        let mut keys = keys;
        keys.extend([Vec::new(), vec![2; 41]]);
        sorted::<[u8]>(&mut keys);
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        compare_node(&keys, &probes.iter().map(Vec::as_slice).collect::<Vec<_>>());
        compare_changes(&keys, at);
    }
}

/// Nodes with lanes of all sizes and with as many windows as there can be.
#[test]
fn nodes_of_many_bits_and_windows() {
    for count in 2..=ROOM {
        // Each key begins the next one, with 9 bytes more.
        let chain: Vec<Vec<u8>> = (0..count).map(|number| vec![7; 9 * number]).collect();
        // Each key parts from all before it at a bit of its own.
        let stairs: Vec<u64> = (0..count).map(|at| !(u64::MAX >> (2 * at))).collect();
        let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
        compare_node(&chain, &[&[7; 40][..], &[6], &[8], &[7; 1000]]);
        let stairs: Vec<&u64> = stairs.iter().collect();
        compare_node(&stairs, &[&0, &1, &u64::MAX, &(1 << 63), &(3 << 60)]);
        for at in 0..count {
            compare_changes(&chain, at);
            compare_changes(&stairs, at);
        }
    }
}

/// Every way to insert is taken, and makes the nodes that the paper says.
#[test]
fn inserts_are_those_of_the_paper() {
    let trie: Hot<u64> = trie(64 << 20);
    let insert = |key: u64| assert_eq!(trie.insert(&key, !key).expect("space"), None);
    let on_way = |key: u64| nodes_on_way(&trie, &key);
    insert(0);
    assert_eq!(on_way(0), []);
    insert(2);
    assert_eq!(on_way(0), [(1, 2)]);
    (2..ROOM as u64).for_each(|number| insert(2 * number));
    assert_eq!(on_way(0), [(1, 32)]);
    // The topmost node is split: an intermediate node above both sides, of which one is a leaf.
    insert(64);
    assert_eq!(
        (on_way(0), on_way(64)),
        (vec![(2, 2), (1, 32)], vec![(2, 2)])
    );
    // Leaf-node pushdown.
    insert(66);
    assert_eq!(on_way(64), [(2, 2), (1, 2)]);
    // Parent pull-up.
    insert(1);
    assert_eq!(
        (on_way(0), on_way(62)),
        (vec![(2, 3), (1, 17)], vec![(2, 3), (1, 16)])
    );
    // Before the first bit of all nodes: a normal insert into the topmost one.
    insert(1 << 20);
    assert_eq!(
        (on_way(1 << 20), on_way(0)),
        (vec![(2, 4)], vec![(2, 4), (1, 17)])
    );
    (34..1024).for_each(|number| insert(2 * number));
    insert(1 << 30);
    // 33 nodes of up to 32 children, below two or more, below one.
    assert_eq!(on_way(0)[0].0, 3);
    // A leaf in the topmost node becomes a node far lower than that. When it is split, there is
    // room for an intermediate node between.
    assert_eq!(on_way(1 << 30), on_way(0)[..1]);
    (1..ROOM as u64).for_each(|number| insert(1 << 30 | number));
    assert_eq!(on_way(1 << 30)[1..], [(1, 32)]);
    // So there is if it is full and the new leaf parts from all of it.
    insert(1 << 30 | 32);
    assert_eq!(on_way(1 << 30)[1..], [(2, 2), (1, 32)]);
    assert_eq!(on_way(1 << 30 | 32)[1..], [(2, 2)]);
    // A node with room takes a leaf that parts from all of it.
    insert(1 << 40 | 5);
    insert(1 << 40 | 4);
    insert(1 << 40);
    assert_eq!(on_way(1 << 40)[1..], [(1, 3)]);
    // Full nodes below full nodes: those above are split first.
    (1..1024).for_each(|number| insert(2 * number + 1));
    let others = [1 << 20, 1 << 40, 1 << 40 | 4, 1 << 40 | 5];
    let keys = (0..2048).chain((0..=32).map(|number| 1 << 30 | number));
    for key in keys.chain(others) {
        assert_eq!(trie.get(&key).expect("sound"), Some(!key));
    }
    check(&trie);
    assert!(on_way(0)[0].0 <= 4, "{:?}", on_way(0));
}

/// Random words make a trie of the height that the paper has for as many: nodes have more than half
/// of their room on average.
#[test]
fn tries_of_random_words_are_low() {
    let trie: Hot<u64> = trie(32 << 20);
    let order = Seed::new(5);
    for number in 0..40_000 {
        let key = order.hash_u64(number);
        assert_eq!(trie.insert(&key, number).expect("space"), None);
    }
    for number in 0..40_000 {
        let key = order.hash_u64(number);
        assert_eq!(trie.get(&key).expect("sound"), Some(number));
        assert_eq!(trie.get(&!key).expect("sound"), None);
    }
    let blocks = check(&trie);
    let nodes = blocks - 1 - 40_000;
    assert!(40_000 / nodes >= 12, "{nodes} nodes");
    let height = nodes_on_way(&trie, &0)[0].0;
    assert!(height <= 5, "{height}");
}

/// Every key is the beginning of all longer ones, so that the binary trie has no width at all.
#[test]
fn keys_within_keys_and_long_prefixes() {
    let trie = trie::<[u8]>(16 << 20);
    strings::keys_within_keys(&trie);
    assert_eq!(check(&trie), 1);
}

/// Keys that each go on where the one before ends fill every node of a long way down, and each new
/// one parts them all: each of four threads brings every fourth key, and takes every eighth again.
#[test]
fn chains_of_full_nodes_part_beside_each_other() {
    const KEYS: usize = 1200;
    const THREADS: usize = 4;
    let trie = trie::<[u8]>(64 << 20);
    let longest = [b'a'; KEYS];
    let key = |length: usize| &longest[..length];
    std::thread::scope(|scope| {
        for first in 1..=THREADS {
            let trie = &trie;
            scope.spawn(move || {
                for length in (first..=KEYS).step_by(THREADS) {
                    assert_eq!(trie.insert(key(length), 1).expect("space"), None);
                }
                for length in (first..=KEYS).step_by(2 * THREADS) {
                    assert_eq!(trie.remove(key(length)).expect("sound"), Some(1));
                }
            });
        }
    });
    let is_left = |length: usize| (length - 1) % (2 * THREADS) >= THREADS;
    for length in 1..=KEYS {
        let expected = is_left(length).then_some(1);
        assert_eq!(trie.get(key(length)).expect("sound"), expected, "{length}");
    }
    check(&trie);
    assert_eq!(trie.len().expect("sound"), (KEYS / 2) as u64);
}

/// A node that parts leaves two new ones below a third. Whoever deleted a key there at once was
/// told that the pool has no such block: the allocator did not know yet that they are in use.
#[test]
fn what_has_just_come_can_go() {
    let (director, pool) = fresh::directed_pool(96 << 10, Hot::<u64>::pool_options());
    let trie: Hot<u64> = Hot::create(&pool).expect("a trie");
    for key in (0..16).chain(32..48) {
        trie.insert(&key, key).expect("space");
    }
    assert_eq!(nodes_on_way(&trie, &0), [(1, ROOM)]);
    let root = pool.offset_of(trie.root().word).raw();
    let come = || assert_eq!(trie.insert(&48, 48).expect("space"), None);
    let went = fresh::go_at_once(&director, root, come, || trie.remove(&48));
    assert_eq!(went.expect("it is there"), Some(48));
    assert_eq!(nodes_on_way(&trie, &0), [(2, 2), (1, 16)]);
    trie.pool().collect();
    check(&trie);
}

/// Deletes leave small nodes, and `compact` puts them together.
#[test]
fn a_compaction_fills_nodes() {
    let trie: Hot<u64> = trie(16 << 20);
    let order = Seed::new(9);
    let keys: Vec<u64> = (0..5000).map(|number| order.hash_u64(number)).collect();
    for key in &keys {
        assert_eq!(trie.insert(key, !key).expect("space"), None);
    }
    let (gone, kept) = keys.split_at(4500);
    for key in gone {
        assert_eq!(trie.remove(key).expect("space"), Some(!key));
    }
    let before = check(&trie);
    trie.compact().expect("space");
    trie.pool().collect();
    let after = check(&trie);
    // Nodes are more than a third full, but for those whose children are all large.
    assert!(
        after < before && (after - 501) * 10 < 500,
        "{before} {after}"
    );
    for key in kept {
        assert_eq!(trie.get(key).expect("sound"), Some(!key));
    }
    for key in gone {
        assert_eq!(trie.get(key).expect("sound"), None);
    }
}

/// When the pool is full, writes that need space fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_trie_usable() {
    let pool = Pool::anonymous(PoolOptions {
        size: 320 << 10,
        heaps: 1,
        chunk_bytes: 4096,
        ..Hot::<u64>::pool_options()
    });
    let trie: Hot<u64> = Hot::create(&pool.expect("a pool in memory")).expect("a trie");
    let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut kept = 0;
    let failed = loop {
        match trie.insert(&key(kept), kept) {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, Error::Media(_)), "{failed}");
    assert!(kept > 100);
    check(&trie);
    for number in 0..kept {
        assert_eq!(
            trie.update(&key(number), !number).expect("sound"),
            Some(number)
        );
        assert_eq!(trie.get(&key(number)).expect("sound"), Some(!number));
    }
    assert_eq!(trie.get(&key(kept)).expect("sound"), None);
    let mut gone = 0;
    for number in 0..kept {
        match trie.remove(&key(number)) {
            Ok(value) => {
                assert_eq!(value, Some(!number));
                gone += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::Media(_)), "{error}");
                assert_eq!(trie.get(&key(number)).expect("sound"), Some(!number));
            }
        }
    }
    assert!(gone > 0);
    check(&trie);
    trie.pool().collect();
    assert_eq!(trie.insert(&key(kept), 1).expect("space"), None);
    check(&trie);
}

/// A node with any wrong bit is told or, where the bit is not looked at, harmless; nothing panics.
#[test]
fn wrong_bits_do_no_harm() {
    let trie: Hot<[u8]> = trie(1 << 20);
    let keys: Vec<Vec<u8>> = (0..40)
        .map(|number| vec![number * 6; 1 + usize::from(number)])
        .collect();
    for (number, key) in (0..).zip(&keys) {
        trie.insert(key, number).expect("space");
    }
    let child = trie.child(&trie.root());
    let node = trie.node(child).expect("a node");
    let bytes = 8 * node.shape().words() as u64;
    for bit in 0..8 * bytes {
        let (at, mask) = (node.at + bit / 8, 1 << (bit % 8));
        let is_sound = while_flipped(&trie.medium, at, mask, || {
            for key in &keys {
                let _ = trie.get(key);
            }
            let _ = trie.scan(&[], 100, &mut Vec::new());
            trie.check().is_ok()
        });
        // The height may be greater than it need be, and a state has bits without a meaning.
        assert!(!is_sound || (25..64).contains(&bit), "bit {bit}");
    }
    check(&trie);
}

/// Threads that insert, delete and scan all at once, and replace each other's nodes.
#[test]
fn threads_agree() {
    words::threads_agree(&trie::<u64>(64 << 20));
}

/// The published reader answers with what it sees. Here it first makes that durable if a writer may
/// be between store and flush; without that, an answer is lost in a crash.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&REGISTERED).expect("words are keys");
    interleaved::catch_readers(keys, |file| {
        file.ends_with("hot/readpath.rs") || file.ends_with("hot/path.rs")
    });
}

fn leaf_of_first_key(trie: &Hot<u64>) -> u64 {
    let child = trie.child(&trie.root());
    assert!(child.is_leaf());
    child.at()
}

/// The lock of the place that a reader came by says nothing about a leaf that has moved below a new
/// node.
#[test]
fn a_lookup_does_not_trust_the_lock_of_a_leaf_that_has_moved() {
    let read = |trie: &Hot<u64>| trie.get(&moved::KEYS[0]).expect("sound");
    let options = Hot::<u64>::pool_options();
    moved::answers_are_durable(options, Hot::create, leaf_of_first_key, read);
}

/// Nor for a scan.
#[test]
fn a_scan_does_not_trust_the_lock_of_a_leaf_that_has_moved() {
    let read = |trie: &Hot<u64>| find_by_scan(trie, &moved::KEYS[0]).expect("sound");
    let options = Hot::<u64>::pool_options();
    moved::answers_are_durable(options, Hot::create, leaf_of_first_key, read);
}
