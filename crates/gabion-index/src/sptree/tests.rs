//! The tree in special situations.

use std::mem::offset_of;
use std::sync::mpsc;
use std::time::Duration;

use gabion_media::pmem::{Pool, PoolOptions};

use super::layout::{BACKUP_AT, Head, PAIRS_AT, leaf_bytes};
use super::router::SearchStart;
use super::{BUFFERED, REGISTERED, SpTree, TINY, TINY_BUFFERED};
use crate::suite::{self, SMALL, essay, while_flipped, words};
use crate::{Error, FastFair, OrderedIndex};

const FIRST_LEAF_AT: u64 = SpTree::<u64, 8>::FIRST_LEAF_AT;

fn tree<const N: usize>(size: u64) -> SpTree<u64, N> {
    let pool = suite::pool(size, SpTree::<u64, N>::pool_options());
    SpTree::create(&pool, SMALL).expect("a tree")
}

/// A permutation of the words.
fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

#[test]
fn the_table_is_that_of_the_types() {
    let rows = essay::table(include_str!("layout.rs"), "Leaf");
    let (offsets, bytes): (Vec<u64>, Vec<u64>) = rows.into_iter().unzip();
    let head = [
        offset_of!(Head, bitmap),
        offset_of!(Head, next),
        offset_of!(Head, lkey),
        offset_of!(Head, hkey),
        offset_of!(Head, merged),
        offset_of!(Head, unused),
        size_of::<Head>(),
    ];
    let of_types = head.into_iter().map(|offset| offset as u64);
    let of_types: Vec<u64> = of_types.chain([PAIRS_AT, leaf_bytes(64)]).collect();
    assert_eq!(offsets, of_types[..8]);
    let ends = offsets
        .iter()
        .zip(bytes)
        .map(|(offset, bytes)| offset + bytes);
    assert!(ends.eq(of_types[1..].iter().copied()));
}

#[test]
fn it_grows_by_threads() {
    for registered in [&REGISTERED, &TINY, &BUFFERED, &TINY_BUFFERED] {
        let pool = suite::pool(64 << 20, (registered.words.pool_options)());
        let index = (registered.words.create)(&pool, SMALL).expect("a tree");
        words::grow_by_threads(&*index);
    }
}

#[test]
fn a_full_pool_leaves_the_tree_usable() {
    words::fill_the_pool(&tree::<64>(512 << 10));
    words::fill_the_pool(&tree::<8>(512 << 10));
}

/// The greatest word is above every hkey, and a key like any other.
#[test]
fn the_greatest_key_is_a_key() {
    let tree: SpTree<u64, 8> = tree(1 << 20);
    for key in (0..100).map(|number| u64::MAX - number) {
        assert_eq!(tree.insert(key, !key).expect("space"), None);
    }
    for key in (0..100).map(|number| u64::MAX - number) {
        assert_eq!(tree.get(key).expect("sound"), Some(!key));
    }
    let mut found = Vec::new();
    tree.scan(&(u64::MAX - 1), 10, &mut found).expect("sound");
    assert_eq!(found, [(u64::MAX - 1, 1), (u64::MAX, 0)]);
    assert_eq!(tree.remove(u64::MAX).expect("sound"), Some(0));
    assert_eq!(tree.get(u64::MAX).expect("sound"), None);
    words::check(&tree, 99);
}

/// Leaves whose entries were deleted take no space for long, in whatever order keys come and go.
#[test]
fn a_queue_does_not_grow() {
    let tree: SpTree<u64, 8> = tree(4 << 20);
    let (most, _) = words::queue(&tree);
    assert!(most < 200, "{most} blocks for 100 keys");
}

/// Many leaves, so that recovery has several threads; and none, some or all of them are missing in
/// the backup.
#[test]
fn recovery_finds_what_the_backup_does_not_name() {
    let tree: SpTree<u64, 8> = tree(32 << 20);
    let keys = 40_000_u64;
    for number in 0..keys {
        tree.insert(mixed(number), number).expect("space");
    }
    words::check(&tree, keys);
    let (pool, root) = (tree.pool().clone(), tree.root);
    drop(tree);
    let forget = |tells: fn(u64) -> bool| {
        let backup: FastFair = FastFair::at(&pool, root + BACKUP_AT).expect("a backup");
        let mut leaves = Vec::new();
        backup.scan(&0, usize::MAX, &mut leaves).expect("sound");
        assert!(leaves.len() > 4096, "{}", leaves.len());
        for (number, (lkey, _)) in leaves.iter().enumerate() {
            if tells(number as u64) {
                backup.remove(*lkey).expect("sound");
            }
        }
    };
    let rules: [fn(u64) -> bool; 4] = [
        |_| false,
        |number| number % 3 == 0,
        |number| number < 4000,
        |_| true,
    ];
    for rule in rules {
        forget(rule);
        let tree: SpTree<u64, 8> = SpTree::open(&pool).expect("a tree");
        for number in 0..keys {
            assert_eq!(tree.get(mixed(number)).expect("sound"), Some(number));
        }
        words::check(&tree, keys);
    }
}

/// The router may be wrong (I7): one that led to a node which is not in use was asked again for
/// ever.
#[test]
fn a_router_that_leads_nowhere_keeps_nobody_for_ever() {
    let tree: SpTree<u64, 8> = tree(1 << 20);
    for number in 0..100 {
        tree.insert(number, number).expect("space");
    }
    let unused = SearchStart {
        node: tree.leaves() + 1,
        leaf: 0,
    };
    let node = tree.nodes.get(unused.node).expect("memory of a node");
    assert_eq!(node.look(), None);
    tree.router.add(&50, unused);
    let (told, hears) = mpsc::channel();
    std::thread::spawn(move || {
        for number in 50..100 {
            assert_eq!(tree.get(number).expect("sound"), Some(number));
            assert_eq!(tree.insert(number, 7).expect("space"), Some(number));
        }
        told.send(()).expect("a listener");
    });
    hears
        .recv_timeout(Duration::from_secs(60))
        .expect("an end, and no panic");
}

/// Bitmaps that are damaged while the tree is in use: a split found fewer entries than it was to
/// move, and a delete one that nobody had counted.
#[test]
fn damaged_bitmaps_of_a_tree_in_use_are_told() {
    let tree: SpTree<u64, 8> = tree(1 << 20);
    for number in 0..8 {
        tree.insert(number, number).expect("space");
    }
    let bitmap = tree.root + FIRST_LEAF_AT;
    let told = while_flipped(tree.pool(), bitmap, 0xff, || tree.insert(8, 8));
    assert!(matches!(told, Err(Error::Damaged { .. })), "{told:?}");
    for number in 0..8 {
        assert_eq!(tree.remove(number).expect("sound"), Some(number));
    }
    let told = while_flipped(tree.pool(), bitmap, 0xff, || tree.remove(5));
    assert!(matches!(told, Err(Error::Damaged { .. })), "{told:?}");
    words::check(&tree, 0);
}

/// A backup that names what is no leaf, and a chain that leads nowhere, are told as damage.
#[test]
fn damage_is_told() {
    let tree: SpTree<u64, 8> = tree(4 << 20);
    for number in 0..1000 {
        tree.insert(mixed(number), number).expect("space");
    }
    let (pool, root) = (tree.pool().clone(), tree.root);
    drop(tree);
    // By the opening, or by who comes to the leaves.
    let is_refused = || {
        let opened = SpTree::<u64, 8>::open(&pool);
        let checked = opened.and_then(|tree| tree.check());
        matches!(checked, Err(Error::Damaged { .. }))
    };
    let mut next = [0; 8];
    pool.read(root + FIRST_LEAF_AT + 8, &mut next);
    for wrong in [1, u64::MAX, root, root + FIRST_LEAF_AT, 0] {
        pool.write(root + FIRST_LEAF_AT + 8, &wrong.to_le_bytes());
        assert!(is_refused(), "next is {wrong}");
    }
    pool.write(root + FIRST_LEAF_AT + 8, &next);
    let backup: FastFair = FastFair::at(&pool, root + BACKUP_AT).expect("a backup");
    backup.insert(5, root).expect("space");
    assert!(is_refused(), "the backup names the root");
    backup.remove(5).expect("sound");
    words::check(&SpTree::<u64, 8>::open(&pool).expect("a tree"), 1000);
}

/// Each bit that is wrong in the backup's header or first node: the tree is refused, or all is
/// there as the chain of leaves has it.
#[test]
fn a_wrong_bit_of_the_backup_keeps_no_opening_for_ever() {
    let tree: SpTree<u64, 8> = tree(4 << 20);
    for number in 0..600 {
        tree.insert(mixed(number), number).expect("space");
    }
    let (pool, root) = (tree.pool().clone(), tree.root);
    drop(tree);
    let backup = root + BACKUP_AT;
    let (mut refused, mut found) = (0, 0);
    for (place, bit) in
        (backup..root + FIRST_LEAF_AT).flat_map(|place| (0..8).map(move |bit| (place, bit)))
    {
        let mut right = [0];
        pool.read(place, &mut right);
        pool.write(place, &[right[0] ^ 1 << bit]);
        let opened = SpTree::<u64, 8>::open(&pool);
        match opened.and_then(|tree| tree.recover_all().map(|()| tree)) {
            Err(Error::Damaged { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
            Ok(tree) => {
                let all = (0..600).all(|number| tree.get(mixed(number)).ok() == Some(Some(number)));
                assert!(all, "bit {bit} of {place} from {backup}");
                found += 1;
            }
        }
        pool.write(place, &right);
    }
    assert!(refused > 100 && found > 0, "{refused} refused, {found} not");
}

#[test]
fn what_is_no_tree_of_this_kind_is_refused() {
    let pool = Pool::anonymous(PoolOptions {
        size: 1 << 20,
        ..SpTree::<u64, 64>::pool_options()
    })
    .expect("a pool in memory");
    assert!(matches!(SpTree::<u64, 64>::open(&pool), Err(Error::NoRoot)));
    drop(SpTree::<u64, 64>::create(&pool, SMALL).expect("a tree"));
    let again = SpTree::<u64, 64>::create(&pool, SMALL);
    assert!(matches!(again, Err(Error::RootTaken)));
    assert!(matches!(
        SpTree::<u64, 8>::open(&pool),
        Err(Error::OtherKind)
    ));
}

/// Threads that insert, delete and scan all at once.
#[test]
fn threads_agree() {
    words::threads_agree(&tree::<8>(32 << 20));
}
