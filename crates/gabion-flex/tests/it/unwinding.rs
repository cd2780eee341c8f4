//! Closures that are given to a space and panic: each once, at each call. The space is as before
//! and goes on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use gabion_flex::{
    CheckedPiece, DurablePoint, Edit, Extent, FlexSpace, FlexTree, HOLE, Options, check_content,
};
use gabion_media::{Disk, SimDisk};

use crate::support::{PanicContext, SeededRng, bytes_of, read_all};

const SEGMENT_BYTES: u32 = 4 << 10;

fn options() -> Options {
    Options::default()
        .segment_bytes(SEGMENT_BYTES)
        .block_bytes(256)
        .log_bytes(8 << 10)
        .capacity_bytes(Some(24 << 12))
}

fn open(sim: &SimDisk) -> FlexSpace {
    FlexSpace::open_on(Disk::simulated(sim), options()).unwrap()
}

/// Calls `run` and returns whether a panic came out of it; the panic is not told on standard error.
fn unwinds<T>(run: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_err()
}

/// Unwinds without a word.
fn unwind() -> ! {
    resume_unwind(Box::new("a closure of the user"))
}

/// The closure that is called when only the change is left panicked, and what was placed for the
/// change stayed in use, though nothing referred to it. The next checkpoint made that durable: a
/// space of no bytes that was full for good, and whose check complained.
#[test]
fn what_was_placed_for_a_change_that_unwinds_is_free_again() {
    let sim = SimDisk::new();
    let space = open(&sim);
    let before = (space.room(), space.stats().live_bytes);
    let data = bytes_of(1, 9_000);
    let insert = || {
        vec![Edit::Insert {
            offset: 0,
            data: &data,
        }]
    };
    for _ in 0..100 {
        assert!(unwinds(|| space.apply_under(insert, || unwind())));
        assert_eq!((space.room(), space.stats().live_bytes), before);
    }
    space.checkpoint().unwrap();
    drop(space);
    let report = gabion_flex::check_disk(&Disk::simulated(&sim)).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
    let space = open(&sim);
    assert_eq!((space.len(), space.stats().live_bytes), (0, 0));
    space.append(&data).unwrap();
    assert_eq!(read_all(&space).unwrap(), data);
}

/// The edits that each closure of `apply_under` may unwind from: of each kind, long and short.
fn groups(data: &[u8]) -> Vec<Vec<Edit<'_>>> {
    let short = &data[..100];
    vec![
        vec![Edit::Insert { offset: 10, data }],
        vec![Edit::InsertMarked { offset: 0, data }],
        vec![Edit::Write { offset: 5, data }],
        vec![
            Edit::Collapse {
                offset: 20,
                len: 3_000,
            },
            Edit::InsertMarked { offset: 20, data },
        ],
        vec![
            Edit::Insert {
                offset: 7,
                data: short,
            },
            Edit::Punch { offset: 0, len: 90 },
            Edit::InsertHole {
                offset: 40,
                len: 1 << 20,
            },
        ],
        vec![],
    ]
}

#[test]
fn each_closure_of_a_change_may_panic() {
    let data = bytes_of(2, 9_000);
    for (number, edits) in groups(&data).into_iter().enumerate() {
        for in_lock in [false, true] {
            let _context =
                PanicContext(|| format!("group {number}, in the second closure: {in_lock}"));
            let sim = SimDisk::new();
            let space = open(&sim);
            space.append(&bytes_of(3, 20_000)).unwrap();
            space.collapse_range(1_000, 5_000).unwrap();
            space.sync().unwrap();
            let (twin, live) = (read_all(&space).unwrap(), space.stats().live_bytes);
            let room = space.room();
            let run = || match in_lock {
                false => space.apply_under(|| unwind(), || ()),
                true => space.apply_under(|| edits.clone(), || unwind()),
            };
            assert!(unwinds(run));
            assert!(read_all(&space).unwrap() == twin);
            assert_eq!((space.stats().live_bytes, space.room()), (live, room));
            assert_eq!(space.stats().read_only, None);
            // What unwound is done by the next one.
            let held = space.apply_under(|| edits.clone(), || 7).unwrap();
            assert_eq!(held, 7);
            let after = read_all(&space).unwrap();
            space.checkpoint().unwrap();
            drop(space);
            let report = gabion_flex::check_disk(&Disk::simulated(&sim)).unwrap();
            assert!(report.problems.is_empty(), "{report:?}");
            assert!(read_all(&open(&sim)).unwrap() == after);
        }
    }
}

#[test]
fn who_looks_at_a_content_may_panic_at_each_piece() {
    let sim = SimDisk::new();
    let space = open(&sim);
    for number in 0..30 {
        space.insert_range(number, &bytes_of(number, 300)).unwrap();
    }
    space.sync().unwrap();
    let twin = read_all(&space).unwrap();
    drop(space);
    let disk = Disk::simulated(&sim);
    let mut pieces = 0;
    let point = DurablePoint::default();
    check_content(&disk, point, |_| pieces += 1).unwrap();
    assert!(pieces > 20, "{pieces}");
    for at in 0..pieces {
        let mut left = at;
        let look = |_: &CheckedPiece<'_>| match left {
            0 => unwind(),
            _ => left -= 1,
        };
        assert!(unwinds(|| check_content(&disk, point, look)));
    }
    // The lock was given up each time.
    assert!(read_all(&open(&sim)).unwrap() == twin);
}

fn tree(random: &mut SeededRng) -> FlexTree {
    let mut tree = FlexTree::new(1 << 12);
    for number in 0..2_000 {
        let address = if random.one_in(9) { HOLE } else { number << 13 };
        tree.insert(random.below(tree.len() + 1), 1 + random.below(90), address);
    }
    tree
}

/// Bytes by address, holes together.
fn bytes_by_address(extents: impl Iterator<Item = Extent>) -> BTreeMap<u64, u64> {
    let mut sums = BTreeMap::new();
    for extent in extents {
        let address = if extent.is_hole() {
            HOLE
        } else {
            extent.address & !0x1fff
        };
        *sums.entry(address).or_default() += extent.len;
    }
    sums
}

#[test]
fn who_is_told_what_leaves_a_tree_may_panic_at_each_call() {
    let mut random = SeededRng::new(5);
    let whole = tree(&mut random);
    let (offset, len) = (whole.len() / 5, whole.len() / 10);
    type Change = fn(&mut FlexTree, u64, u64, &mut dyn FnMut(Extent));
    let changes: [Change; 3] = [
        |tree, offset, len, freed| tree.collapse(offset, len, freed),
        |tree, offset, len, freed| tree.remap(offset, len, 1 << 40, freed),
        |tree, offset, len, freed| tree.replace(offset, len, (50, 1 << 40), freed),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut calls = 0;
        change(&mut whole.clone(), offset, len, &mut |_| calls += 1);
        assert!(calls > 100, "{calls}");
        for at in 0..calls {
            let _context = PanicContext(|| format!("change {number}, call {at}"));
            let mut tree = whole.clone();
            let freed = RefCell::new(Vec::new());
            let mut left = at;
            let mut each = |extent| {
                if left == 0 {
                    unwind();
                }
                left -= 1;
                freed.borrow_mut().push(extent);
            };
            assert!(unwinds(|| change(&mut tree, offset, len, &mut each)));
            tree.check().unwrap();
            // What is gone was told, all of it, and what was told of the last leaf may be there.
            let there = bytes_by_address(
                tree.iter()
                    .filter(|extent| extent.is_hole() || extent.address < 1 << 40),
            );
            let mut told = bytes_by_address(freed.borrow().iter().copied());
            for (address, bytes) in bytes_by_address(whole.iter()) {
                let there = there.get(&address).copied().unwrap_or_default();
                let told = told.remove(&address).unwrap_or_default();
                assert!(
                    there + told >= bytes,
                    "{address}: {there} + {told} < {bytes}"
                );
            }
            tree.collapse(0, tree.len(), |_| ());
            assert!(tree.is_empty());
        }
    }
}
