//! The tree in special situations, and the bugs that were published of others.

use gabion_media::pmem::{Pool, PoolOptions};

use super::layout::Header;
use super::{FastFair, REGISTERED, TINY};
use crate::blink::Checks;
use crate::suite::{self, Keys, interleaved, while_flipped, words};
use crate::{Error, OrderedIndex};

fn tree<const N: usize>(size: u64) -> FastFair<N> {
    FastFair::create(&suite::pool(size, FastFair::<N>::pool_options())).expect("a tree")
}

/// No block of the pool is lost, and all invariants hold.
fn check<const N: usize>(tree: &FastFair<N>) -> u64 {
    let checked = tree.check().expect("sound");
    assert_eq!(checked.entries, tree.len().expect("sound"));
    assert_eq!(checked.blocks, tree.pool().stats().used_blocks);
    checked.blocks
}

/// The published code tells a live slot by a value that differs from its neighbour's, and a free
/// one by the value 0: equal values of neighbours, and zeros, are lost there.
#[test]
fn equal_values_and_zeros_are_kept() {
    let tree: FastFair = tree(4 << 20);
    for key in 0..500 {
        assert_eq!(tree.insert(key * 7 % 500, 0).expect("space"), None);
    }
    for key in 0..500 {
        assert_eq!(tree.get(key).expect("sound"), Some(0));
        assert_eq!(tree.update(key, 5).expect("sound"), Some(0));
    }
    for key in (0..500).step_by(2) {
        assert_eq!(tree.remove(key).expect("sound"), Some(5));
    }
    for key in 0..500 {
        let value = tree.get(key).expect("sound");
        assert_eq!(value, (key % 2 == 1).then_some(5));
    }
    check(&tree);
}

/// The key that marks free slots is a key like any other.
#[test]
fn the_greatest_key_is_a_key() {
    let tree: FastFair = tree(1 << 20);
    let scan = |from| {
        let mut found = Vec::new();
        tree.scan(&from, 10, &mut found).expect("sound");
        found
    };
    assert_eq!(tree.update(u64::MAX, 1).expect("sound"), None);
    assert_eq!(tree.get(u64::MAX).expect("sound"), None);
    assert_eq!(tree.insert(u64::MAX, 2).expect("space"), None);
    assert_eq!(tree.insert(u64::MAX - 1, 3).expect("space"), None);
    assert_eq!(tree.update(u64::MAX, 4).expect("sound"), Some(2));
    assert_eq!(scan(0), [(u64::MAX - 1, 3), (u64::MAX, 4)]);
    assert_eq!(scan(u64::MAX), [(u64::MAX, 4)]);
    let pool = tree.pool().clone();
    let again: FastFair = FastFair::open(&pool).expect("a tree");
    assert_eq!(again.remove(u64::MAX).expect("sound"), Some(4));
    assert_eq!(again.remove(u64::MAX).expect("sound"), None);
    assert_eq!(scan(0), [(u64::MAX - 1, 3)]);
    check(&again);
}

/// Nodes whose entries were deleted take no space for long, in whatever order keys come and go.
#[test]
fn a_queue_does_not_grow() {
    let tree: FastFair<5> = tree(4 << 20);
    let (most, left) = words::queue(&tree);
    assert!(most < 200, "{most} nodes for 100 keys");
    assert!(left < 40, "{left} nodes for no key");
}

/// When the pool is full, inserts fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_tree_usable() {
    let tree: FastFair<5> = tree(320 << 10);
    let mut kept = 0;
    let failed = loop {
        match tree.insert(kept, kept) {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, Error::Media(_)), "{failed}");
    assert!(kept > 100);
    check(&tree);
    for key in 0..kept {
        assert_eq!(tree.get(key).expect("sound"), Some(key));
    }
    assert_eq!(tree.get(kept).expect("sound"), None);
    for key in 0..kept / 2 {
        assert_eq!(tree.remove(key).expect("sound"), Some(key));
    }
    tree.pool().collect();
    assert_eq!(tree.insert(kept, 1).expect("space"), None);
    check(&tree);
}

#[test]
fn what_is_no_tree_of_this_kind_is_refused() {
    let pool = Pool::anonymous(PoolOptions {
        size: 1 << 20,
        ..FastFair::<29>::pool_options()
    })
    .expect("a pool in memory");
    assert!(matches!(FastFair::<29>::open(&pool), Err(Error::NoRoot)));
    drop(FastFair::<29>::create(&pool).expect("a tree"));
    let again = FastFair::<29>::create(&pool);
    assert!(matches!(again, Err(Error::RootTaken)));
    assert!(matches!(FastFair::<13>::open(&pool), Err(Error::OtherKind)));
    let root = pool.root::<Header>().raw();
    for bit in 0..8 * 32 {
        let (at, mask) = (root + bit / 8, 1 << (bit % 8));
        // The top may lead elsewhere in the pool; what is there is no tree.
        let open = || FastFair::<29>::open(&pool).and_then(|tree| tree.check());
        let checked = while_flipped(&pool, at, mask, open);
        assert!(checked.is_err(), "bit {bit}");
    }
    FastFair::<29>::open(&pool).expect("a tree");
}

/// Threads that insert, delete and scan all at once, in trees of many levels.
#[test]
fn threads_agree() {
    words::threads_agree(&tree::<5>(32 << 20));
}

/// The same where all of them begin at leaves.
#[test]
fn threads_agree_with_ways_in_dram() {
    words::threads_agree(&tree::<5>(32 << 20).cached().expect("memory"));
}

/// Leaves, and those that the ways in DRAM lead to.
fn leaves(tree: &FastFair<5>) -> (u64, u64) {
    let mut leaves = 0;
    let counted = tree.check_levels(&mut |node| {
        leaves += u64::from(node.head.level() == 0);
        Ok(())
    });
    counted.expect("sound");
    let paths = tree.paths.as_ref().expect("ways in DRAM");
    (leaves, paths.check(|_, _| true).expect("sound"))
}

/// The ways in DRAM lead to all leaves, whether they came and went by and by or are found.
#[test]
fn ways_in_dram_lead_to_all_leaves() {
    let tree = tree::<5>(4 << 20).cached().expect("memory");
    assert_eq!(leaves(&tree), (1, 1));
    for key in 0..2000_u64 {
        tree.insert(key * 7 % 2000, key).expect("space");
    }
    check(&tree);
    let (many, known) = leaves(&tree);
    assert!(many > 400 && known == many, "{known} of {many}");
    assert!(tree.dram_bytes() > 8 * many);
    let found = FastFair::open(tree.pool()).expect("a tree");
    assert_eq!(leaves(&found.cached().expect("memory")), (many, many));
    for key in 100..2000 {
        assert!(tree.remove(key).expect("sound").is_some());
    }
    tree.compact().expect("sound");
    tree.pool().collect();
    check(&tree);
    let (few, known) = leaves(&tree);
    assert!(few * 4 < many && known == few, "{known} of {few}");
    for key in 0..2000 {
        assert_eq!(tree.get(key).expect("sound").is_some(), key < 100);
    }
}

/// The published reader answers with what it sees. Here it first makes that durable if a writer may
/// be between store and flush; without that, an answer is lost in a crash.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&REGISTERED).expect("words are keys");
    interleaved::catch_readers(keys, |file| file.ends_with("fastfair/readpath.rs"));
}

/// The published writer inserts over a link to a new node that is not durable yet, and the entry is
/// lost with the link.
#[test]
fn a_writer_that_trusts_a_link_is_caught() {
    let keys = Keys::words(&TINY).expect("words are keys");
    interleaved::catch_writers(keys, |file| file.ends_with("blink/descent.rs"));
}
