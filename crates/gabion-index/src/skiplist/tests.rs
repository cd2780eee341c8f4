//! The list in special situations.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, POff, Pool};

use super::layout::{FACE_BYTES, LEVELS};
use super::{REGISTERED, SkipList, TALL_LEVEL};
use crate::suite::words::{check, fill_the_pool, grow_by_threads};
use crate::suite::{self, Keys, SMALL, interleaved, words};
use crate::{Error, OrderedIndex, Result};

fn pool(size: u64) -> Pool {
    suite::pool(size, SkipList::<u64>::pool_options())
}

fn list(size: u64) -> SkipList<u64> {
    SkipList::create(&pool(size), SMALL).expect("a list")
}

/// Links that lead back: searches went round for ever, and so did the count of the entries.
#[test]
fn links_in_a_ring_are_told() {
    let list = list(1 << 20);
    for key in 0..40_u64 {
        list.insert(&(10 * key), key).expect("space");
    }
    let mut nodes = vec![list.head().next(0)];
    while let Some(next) = nodes
        .last()
        .map(|at| list.node(*at).expect("sound").next(0))
        && next != 0
    {
        nodes.push(next);
    }
    // Searches below its key do not come to the last node that is on level 0 only.
    let low = |at: &&u64| list.node(**at).expect("sound").height() == 1;
    let last = *nodes.iter().rfind(low).expect("most are");
    let key = list.node(last).expect("sound").stored().word;
    let link = last + FACE_BYTES;
    let sound = list.node(last).expect("sound").next(0);
    for to in [last, nodes[0]] {
        list.medium.write(link, &to.to_le_bytes());
        let is_told = |said: Result<Option<u64>>| matches!(said, Err(Error::Damaged { .. }));
        assert!(is_told(list.get(&(key + 1))));
        assert!(is_told(list.insert(&(key + 1), 1)));
        assert!(is_told(list.remove(&(key + 1))));
        assert!(is_told(list.len().map(Some)));
        let all = list.scan(&0, usize::MAX, &mut Vec::new());
        assert!(is_told(all.map(|()| None)));
    }
    list.medium.write(link, &sound.to_le_bytes());
    words::check(&list, 40);
}

/// One node in four is on the next level, so a search looks at few nodes.
#[test]
fn levels_thin_out() {
    let list = list(16 << 20);
    for key in 0..40_000_u64 {
        list.insert(&key, key).expect("space");
    }
    let mut counts = [0_u64; LEVELS];
    for (level, count) in counts.iter_mut().enumerate() {
        let mut next = list.head().next(level);
        while next != 0 {
            *count += 1;
            next = list.node(next).expect("sound").next(level);
        }
    }
    assert_eq!(counts[0], 40_000);
    for level in 1..5 {
        let expected = 40_000 >> (2 * level);
        let apart = counts[level].abs_diff(expected);
        assert!(apart * apart < 36 * expected, "{counts:?}");
    }
    check(&list, 40_000);
}

#[test]
fn threads_grow_a_list_together() {
    grow_by_threads(&list(64 << 20));
}

/// When the pool is full, inserts fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_list_usable() {
    fill_the_pool(&list(256 << 10));
}

/// Threads that insert, delete and scan all at once.
#[test]
fn threads_agree() {
    words::threads_agree(&list(32 << 20));
}

/// The same where lookups begin at tall nodes.
#[test]
fn threads_agree_with_ways_in_dram() {
    words::threads_agree(&list(32 << 20).cached().expect("memory"));
}

/// Tall nodes, and those that the ways in DRAM lead to.
fn tall_nodes(list: &SkipList<u64>) -> (u64, u64) {
    let mut tall = 0;
    let mut next = list.head().next(TALL_LEVEL);
    while next != 0 {
        tall += 1;
        next = list.node(next).expect("sound").next(TALL_LEVEL);
    }
    let paths = list.paths.as_ref().expect("ways in DRAM");
    (tall, paths.check(|_, _| true).expect("sound"))
}

/// The ways in DRAM lead to all tall nodes, whether they came and went by and by or are found.
#[test]
fn ways_in_dram_lead_to_all_tall_nodes() {
    let list = list(4 << 20).cached().expect("memory");
    assert_eq!(tall_nodes(&list), (0, 0));
    for key in 0..4000_u64 {
        list.insert(&(key * 7 % 4000), key).expect("space");
    }
    check(&list, 4000);
    let (many, known) = tall_nodes(&list);
    assert!(many > 150 && known == many, "{known} of {many}");
    assert!(list.dram_bytes() > 8 * many);
    let found = SkipList::open(list.pool()).expect("a list");
    assert_eq!(tall_nodes(&found.cached().expect("memory")), (many, many));
    for key in 100..4000 {
        assert!(list.remove(&key).expect("sound").is_some());
    }
    check(&list, 100);
    let (few, known) = tall_nodes(&list);
    assert!(few * 4 < many && known == few, "{known} of {few}");
    for key in 0..4000 {
        assert_eq!(list.get(&key).expect("sound").is_some(), key < 100);
    }
}

/// A node that a crash left on fewer levels than it is high enough for can be found, passed and
/// taken out.
#[test]
fn a_node_may_lack_shortcuts() {
    let list = list(1 << 20);
    for key in 0..200_u64 {
        list.insert(&key, key).expect("space");
    }
    let top = (0..LEVELS)
        .rev()
        .find(|level| list.head().next(*level) != 0)
        .expect("a level");
    assert!(top > 0);
    let at = list.head().next(top);
    let node = list.node(at).expect("sound");
    let next = node.next(top);
    list.head().link(&list.medium, top, next);
    check(&list, 200);
    let key = node.stored().word;
    assert_eq!(list.get(&key).expect("sound"), Some(key));
    assert_eq!(list.remove(&key).expect("sound"), Some(key));
    check(&list, 199);
}

/// Readers make durable what they answer if a writer may be between store and flush; without that,
/// an answer is lost in a crash, and the explorer sees it.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&REGISTERED).expect("words are keys");
    interleaved::catch_readers(keys, |file| file.ends_with("skiplist/readpath.rs"));
}

/// A writer that goes on from a node whose place is not durable yet loses its entry with it.
#[test]
fn a_writer_that_trusts_a_link_is_caught() {
    let keys = Keys::words(&REGISTERED).expect("words are keys");
    interleaved::catch_writers(keys, |file| file.ends_with("skiplist/search.rs"));
}

/// A link that leads out of the pool, and one to what is no node.
#[test]
fn a_wrong_link_is_found() {
    let list = list(1 << 20);
    list.insert(&1, 1).expect("space");
    let root = list.pool().root::<PAtomicU64>().raw();
    let link: &PAtomicU64 = list.medium.at(POff::new(list.head + FACE_BYTES));
    for wrong in [1 << 40, 8, u64::MAX, root] {
        let right = link.peek(Ordering::Relaxed);
        link.store(&list.medium, wrong, Ordering::Relaxed);
        assert!(list.get(&1).is_err() || list.check().is_err(), "{wrong}");
        link.store(&list.medium, right, Ordering::Relaxed);
    }
    check(&list, 1);
}
