//! The trie in special situations, and the bugs that were published of others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::floor_at;
use super::layout::Header;
use super::node::Node;
use super::{Art, REGISTERED};
use crate::suite::damage::{ask_all, may_be};
use crate::suite::{self, Keys, find_by_scan, interleaved, moved, strings, words};
use crate::{Error, Index, Item, OrderedIndex, Seed};

fn trie<K: Item + ?Sized>(size: u64) -> Art<K> {
    Art::create(&suite::pool(size, Art::<K>::pool_options())).expect("a trie")
}

/// No block of the pool is lost, and all invariants hold.
fn check<K: Item + ?Sized>(trie: &Art<K>) -> u64 {
    let checked = trie.check().expect("sound");
    assert_eq!(checked.entries, trie.len().expect("sound"));
    assert_eq!(checked.blocks, trie.pool().stats().used_blocks);
    checked.blocks
}

/// Nodes pass through all their sizes, up and down. In the published code a scan that trusts the
/// compact count of a node of 16 misses keys that a get finds, and counts and slots of a node of 4
/// disagree after deletes.
#[test]
fn nodes_of_all_sizes_hold_what_they_should() {
    for distance in [1_u64, 1 << 8, 1 << 24, 1 << 56] {
        let trie: Art<u64> = trie(4 << 20);
        let mut twin = BTreeMap::new();
        let compare = |twin: &BTreeMap<u64, u64>| {
            let mut found = Vec::new();
            trie.scan(&0, 1000, &mut found).expect("sound");
            assert!(
                twin.iter()
                    .eq(found.iter().map(|(key, value)| (key, value)))
            );
            for key in (0..256).map(|number| number * distance) {
                assert_eq!(trie.get(&key).expect("sound"), twin.get(&key).copied());
            }
            check(&trie);
        };
        // In an order that is neither that of keys nor its reverse.
        let order: Vec<u64> = (0..256).map(|n| n * 77 % 256 * distance).collect();
        for (number, key) in (0..).zip(&order) {
            assert_eq!(trie.insert(key, number).expect("space"), None);
            twin.insert(*key, number);
            if number % 7 == 0 {
                compare(&twin);
            }
        }
        for (number, key) in order.iter().enumerate() {
            assert_eq!(trie.remove(key).expect("sound"), twin.remove(key));
            if number % 3 == 0 {
                // The slot of a deleted key is used again, by another one.
                assert_eq!(
                    trie.insert(&(key ^ distance), 9).expect("space"),
                    twin.insert(key ^ distance, 9)
                );
                assert_eq!(
                    trie.remove(&(key ^ distance)).expect("sound"),
                    twin.remove(&(key ^ distance))
                );
            }
            compare(&twin);
        }
        assert_eq!(check(&trie), 1);
    }
}

/// What byte a child of a node of 4 has is told by another word than the child. A scan that reads
/// one after the other must not take a child for that of the byte that had its slot before.
#[test]
fn scans_are_in_order_while_slots_change_hands() {
    const ROUNDS: u64 = 40_000;
    let trie: Art<u64> = trie(4 << 20);
    for fixed in [10, 250] {
        trie.insert(&fixed, fixed).expect("space");
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let key = [5, 200][usize::from(round % 2 == 1)];
                trie.insert(&key, key).expect("space");
                assert_eq!(trie.remove(&key).expect("sound"), Some(key));
            }
            // ORDER: Relaxed: nothing else is told.
            is_over.store(true, Ordering::Relaxed);
        });
        let mut found = Vec::new();
        // ORDER: Relaxed: as above.
        while !is_over.load(Ordering::Relaxed) {
            found.clear();
            trie.scan(&0, 10, &mut found).expect("sound");
            assert!(found.is_sorted_by_key(|(key, _)| *key), "{found:?}");
            for fixed in [10, 250] {
                assert!(found.contains(&(fixed, fixed)), "{found:?}");
            }
        }
    });
}

/// A leaf came into sight with a new node, under the lock of the node above, and whoever deleted it
/// at once, under that of the new one, was told that the pool has no such block: the allocator did
/// not know yet that it is in use. So it was where a node grew.
#[test]
fn what_has_just_come_can_go() {
    const ROUNDS: u64 = 4_000;
    let trie: Art<u64> = trie(4 << 20);
    // The fifth key of a byte makes a node of 4 grow, the second of another one forks.
    for fixed in [0, 1, 2, 3, 0x100] {
        trie.insert(&fixed, fixed).expect("space");
    }
    std::thread::scope(|scope| {
        for key in [4, 0x101] {
            let trie = &trie;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    assert_eq!(trie.insert(&key, round).expect("space"), None);
                    // The other thread takes it.
                    while trie.get(&key).expect("sound").is_some() {
                        std::hint::spin_loop();
                    }
                }
            });
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let taken = || trie.remove(&key).expect("sound");
                    assert_eq!(std::iter::repeat_with(taken).find_map(|v| v), Some(round));
                }
            });
        }
    });
    assert_eq!(trie.len().expect("sound"), 5);
    check(&trie);
}

/// A node is read in stretches from any place on, whatever its size.
#[test]
fn scans_begin_anywhere_in_nodes_of_all_sizes() {
    for count in [1, 2, 4, 5, 16, 17, 18, 34, 48, 49, 100, 255, 256] {
        let trie: Art<[u8]> = trie(4 << 20);
        let mut twin = BTreeMap::new();
        // The node's own end, and children whose bytes are spread evenly.
        for number in 0..=count {
            let mut key = b"node".to_vec();
            if number > 0 {
                key.push(u8::try_from((number - 1) * 256 / count).expect("a byte"));
            }
            trie.insert(&key, number).expect("space");
            twin.insert(key, number);
        }
        for from in 0..=u8::MAX {
            for limit in [1, 17, 18, 300] {
                let from = [b"node", &[from][..]].concat();
                let mut found = Vec::new();
                trie.scan(&from, limit, &mut found).expect("sound");
                let expected = twin.range(from..).take(limit);
                assert!(expected.eq(found.iter().map(|(key, value)| (key, value))));
            }
        }
        let mut found = Vec::new();
        trie.scan(b"", 300, &mut found).expect("sound");
        assert_eq!(found, twin.into_iter().collect::<Vec<_>>());
    }
}

/// Every key is the beginning of all longer ones, and bytes before a level are many more than a
/// node has room for.
#[test]
fn keys_within_keys_and_long_prefixes() {
    let trie = trie::<[u8]>(16 << 20);
    strings::keys_within_keys(&trie);
    assert_eq!(check(&trie), 1);
}

/// When the pool is full, inserts fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_trie_usable() {
    let trie: Art<u64> = trie(320 << 10);
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
        assert_eq!(trie.get(&key(number)).expect("sound"), Some(number));
    }
    assert_eq!(trie.get(&key(kept)).expect("sound"), None);
    for number in 0..kept / 2 {
        assert_eq!(trie.remove(&key(number)).expect("sound"), Some(number));
    }
    trie.compact().expect("sound");
    trie.pool().collect();
    assert_eq!(trie.insert(&key(kept), 1).expect("space"), None);
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
    interleaved::catch_readers(keys, |file| file.ends_with("art/readpath.rs"));
}

fn leaf_of_first_key(trie: &Art<u64>) -> u64 {
    let root = trie.root();
    let (_, child) = root
        .find(super::key::branch(&moved::KEYS[0], 0))
        .expect("a child");
    assert!(child.is_leaf());
    child.at()
}

/// The lock of the node that a reader came by says nothing about a leaf that has moved below a new
/// node; a lookup trusted it.
#[test]
fn a_lookup_does_not_trust_the_lock_of_a_leaf_that_has_moved() {
    let read = |trie: &Art<u64>| trie.get(&moved::KEYS[0]).expect("sound");
    let options = Art::<u64>::pool_options();
    moved::answers_are_durable(options, Art::create, leaf_of_first_key, read);
}

/// So did a scan.
#[test]
fn a_scan_does_not_trust_the_lock_of_a_leaf_that_has_moved() {
    let read = |trie: &Art<u64>| find_by_scan(trie, &moved::KEYS[0]).expect("sound");
    let options = Art::<u64>::pool_options();
    moved::answers_are_durable(options, Art::create, leaf_of_first_key, read);
}

/// The floor of a key is the greatest key up to it, whatever keys begin or end others.
#[test]
fn floors_are_those_of_a_map() {
    let trie: Art<[u8]> = trie(8 << 20);
    let mut twin = BTreeMap::new();
    let seed = Seed::new(11);
    // Few letters and long runs of one: keys that begin others, and prefixes beyond eight bytes.
    let key = |number: u64| -> Vec<u8> {
        let drawn = seed.hash_u64(number);
        let letter = |at: u64| b'a' + u8::try_from(drawn >> (2 * at) & 1).expect("a bit");
        let run = vec![letter(0); usize::try_from(drawn >> 40 & 31).expect("small")];
        let rest = (1..drawn >> 50 & 7).map(letter);
        run.into_iter().chain(rest).collect()
    };
    assert_eq!(trie.floor_hint(b"a"), None);
    for number in 0..2000 {
        let new = key(number);
        if number % 3 == 2 {
            let removed = trie.remove(&new).expect("sound");
            assert_eq!(removed, twin.remove(&new));
        } else {
            trie.insert(&new, number).expect("space");
            twin.insert(new, number);
        }
        for asked in (10_000 + number * 8..).take(8).map(key) {
            let wanted = twin.range(..=asked.clone()).next_back();
            let wanted = wanted.map(|(_, value)| *value);
            assert_eq!(trie.floor_hint(&asked), wanted, "{asked:?}");
            assert_eq!(
                floor_at(&trie.pool, trie.pool.root::<Header>().raw(), &asked[..]),
                wanted
            );
        }
    }
    assert!(twin.len() > 300);
}

/// A child that leads back to its own node was followed for ever by whoever visits all entries or
/// looks for the place of a key.
#[test]
fn a_node_below_itself_keeps_nobody_for_ever() {
    const KEYS: [&[u8]; 4] = [b"granite", b"gravel", b"greywacke", b"gypsum"];
    fn node(trie: &Art<[u8]>) -> Node<'_> {
        let (_, child) = trie.root().children()[0];
        trie.node(child).expect("a node")
    }
    ask_all(
        Art::<[u8]>::pool_options,
        |pool| {
            let trie: Art<[u8]> = Art::create(pool).expect("a trie");
            for key in KEYS {
                trie.insert(key, 1).expect("space");
            }
            let node = node(&trie);
            let (below, _) = node.find(Some(b'y')).expect("a child");
            vec![pool.offset_of(below).raw()]
        },
        |wrong, pool| {
            let trie: Art<[u8]> = Art::open(pool).expect("a sound header");
            let ring = node(&trie).child;
            pool.write(wrong.0, &ring.0.to_le_bytes());
            assert!(trie.scan(b"", 1000, &mut Vec::new()).is_err());
            assert!(trie.len().is_err());
            assert!(Index::for_each(&trie, &mut |_, _| ()).is_err());
            assert!(trie.compact().is_err());
            assert!(trie.check().is_err());
            assert_eq!(trie.floor_hint(b"h"), None);
            assert_eq!(trie.floor_hint(b"gs"), Some(1));
            for key in [KEYS[3], KEYS[0]] {
                may_be(wrong, trie.get(key));
                may_be(wrong, trie.insert(key, 2));
                may_be(wrong, trie.remove(key));
            }
        },
    );
}

/// Each wrong bit in each word of a node of each size: a check or what it counts tells of it, or
/// nothing is lost by it. In particular it ends, although lookups and scans wait for the writer
/// whom a node that seems to be given up promises.
#[test]
fn a_wrong_bit_in_a_node_is_told_or_harmless() {
    let trie: Art<[u8]> = trie(4 << 20);
    let mut twin = BTreeMap::new();
    for (first, children) in [(b'a', 3_u64), (b'b', 12), (b'c', 40), (b'd', 60)] {
        for number in 0..children {
            let mut key = vec![first; 12];
            key.extend([(number * 4).to_le_bytes()[0]]);
            trie.insert(&key, number).expect("space");
            twin.insert(key, number);
        }
    }
    let used = check(&trie);
    let nodes: Vec<_> = std::iter::once(trie.root())
        .chain(trie.root().children().iter().map(|(_, child)| {
            let node = trie.node(*child);
            node.expect("a node")
        }))
        .collect();
    let mut kinds: Vec<_> = nodes.iter().map(|node| node.child.kind()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), 4);
    let places = nodes
        .iter()
        .flat_map(|node| node.at()..node.at() + node.child.kind().bytes());
    let (mut told, mut harmless) = (0, 0);
    for (at, bit) in places.flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        suite::while_flipped(trie.pool(), at, 1 << bit, || {
            let checked = match trie.check() {
                Err(Error::Damaged { .. }) => return told += 1,
                checked => checked.expect("no other error"),
            };
            harmless += 1;
            if checked.entries != twin.len() as u64 || checked.blocks != used {
                return;
            }
            let mut found = Vec::new();
            trie.scan(b"", 1000, &mut found).expect("sound");
            let found: BTreeMap<_, _> = found.into_iter().collect();
            assert!(found == twin, "bit {bit} of {at}");
            for (key, value) in &twin {
                assert_eq!(trie.get(key).expect("sound"), Some(*value));
            }
        });
    }
    println!("{told} wrong bits told by the check, {harmless} by counts or harmless");
    assert!(told > 3000 && harmless > 0, "{told}, {harmless}");
}
