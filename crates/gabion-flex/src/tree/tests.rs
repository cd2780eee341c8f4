//! The tree against its twins.

use proptest::prelude::*;

use gabion_media::crc32c;

use super::persist::tests::Slots;
use super::{Extent, FlexTree, HOLE, Leaf, SavedLeaves};
use crate::twin::{PlainTree, SortedArray};

/// A change; places and lengths are fractions of what is there.
#[derive(Clone, Debug)]
enum Step {
    Insert {
        place: u16,
        len: u64,
        address: Option<u64>,
    },
    Append {
        len: u64,
        address: u64,
    },
    /// Continues the extent before `place` on the medium.
    Continue {
        place: u16,
        len: u64,
    },
    Collapse {
        place: u16,
        len: u64,
    },
    CollapseMost {
        place: u16,
    },
    Remap {
        place: u16,
        len: u64,
        address: Option<u64>,
    },
    Replace {
        place: u16,
        removed: u64,
        len: u64,
        address: Option<u64>,
    },
    /// Puts what continues the extent before `place` there in the place of some bytes.
    ReplaceContinued {
        place: u16,
        removed: u64,
        len: u64,
    },
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![0..1_000_000_u64, (HOLE - 2_000_000)..(HOLE - 1_000_000)]
}

fn step() -> impl Strategy<Value = Step> {
    let address_or_hole = || prop::option::weighted(0.8, address());
    let short = || prop_oneof![1..200_u64, 1..20_u64];
    prop_oneof![
        8 => (any::<u16>(), short(), address_or_hole())
            .prop_map(|(place, len, address)| Step::Insert { place, len, address }),
        2 => (short(), address()).prop_map(|(len, address)| Step::Append { len, address }),
        2 => (any::<u16>(), 1..50_u64).prop_map(|(place, len)| Step::Continue { place, len }),
        3 => (any::<u16>(), 1..400_u64).prop_map(|(place, len)| Step::Collapse { place, len }),
        1 => any::<u16>().prop_map(|place| Step::CollapseMost { place }),
        3 => (any::<u16>(), short(), address_or_hole())
            .prop_map(|(place, len, address)| Step::Remap { place, len, address }),
        3 => (any::<u16>(), 0..300_u64, 0..200_u64, address_or_hole())
            .prop_map(|(place, removed, len, address)| Step::Replace {
                place,
                removed,
                len,
                address,
            }),
        1 => (any::<u16>(), 1..100_u64, 1..50_u64)
            .prop_map(|(place, removed, len)| Step::ReplaceContinued { place, removed, len }),
    ]
}

/// An offset from 0 to `len`.
fn offset_of(place: u16, len: u64) -> u64 {
    len * u64::from(place) / u64::from(u16::MAX)
}

/// Extents that continue each other, as one.
fn joined(extents: impl IntoIterator<Item = Extent>) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::new();
    for extent in extents {
        match all.last_mut() {
            Some(last) if last.behind(last.len).address == extent.address => last.len += extent.len,
            _ => all.push(extent),
        }
    }
    all
}

struct Pair {
    tree: FlexTree,
    twin: SortedArray,
    extent_max: u32,
    /// Where the leaves are that the tree does not have.
    medium: Slots,
}

impl Pair {
    fn new(extent_max: u32) -> Pair {
        Pair {
            tree: FlexTree::new(extent_max),
            twin: SortedArray::new(extent_max),
            extent_max,
            medium: Slots::default(),
        }
    }

    /// A leaf as the medium has it.
    fn leaf(&self, absent: &super::AbsentLeaf) -> Leaf {
        let bytes = &self.medium.nodes[&absent.place.slot];
        assert_eq!(crc32c::crc32c(bytes), absent.place.crc);
        Leaf::decode(bytes, absent.place, absent.len, self.extent_max).unwrap()
    }

    /// Takes the leaves in that a change of a range touches.
    fn admit(&mut self, offset: u64, len: u64) {
        let range = (offset.saturating_sub(1), offset + len);
        for absent in self.tree.absent_in(range.0, range.1, usize::MAX, |_| false) {
            let leaf = self.leaf(&absent);
            assert!(self.tree.admit(&absent, &leaf), "{absent:?}");
            assert!(!self.tree.admit(&absent, &leaf), "it is there");
        }
    }

    /// The extents of a range, with leaves that the tree does not have.
    fn range(&self, offset: u64, len: u64) -> Vec<Extent> {
        let mut leaves = SavedLeaves::default();
        loop {
            let mut pieces = self.tree.range_with(offset, len, Some(&leaves));
            let found: Vec<Extent> = pieces.by_ref().collect();
            let Some(from) = pieces.missing_from() else {
                return found;
            };
            let has = |place| leaves.get(place).is_some();
            let missing = self
                .tree
                .absent_in(from, offset.saturating_add(len), 3, has);
            assert!(missing[0].offset == from || from == offset, "{missing:?}");
            for absent in missing {
                leaves.insert(absent.place, self.leaf(&absent));
            }
        }
    }

    fn insert(&mut self, offset: u64, len: u64, address: u64) {
        self.admit(offset, 0);
        self.tree.insert(offset, len, address);
        self.twin.insert(offset, len, address);
    }

    fn collapse(&mut self, offset: u64, len: u64) {
        let (mut freed, mut expected) = (Vec::new(), Vec::new());
        self.admit(offset, len);
        self.tree.collapse(offset, len, |extent| freed.push(extent));
        self.twin
            .collapse(offset, len, |extent| expected.push(extent));
        assert_eq!(joined(freed), joined(expected));
    }

    fn replace(&mut self, offset: u64, removed: u64, (len, address): (u64, u64)) {
        let (mut freed, mut expected) = (Vec::new(), Vec::new());
        self.admit(offset, removed);
        self.tree
            .replace(offset, removed, (len, address), |extent| freed.push(extent));
        self.twin
            .collapse(offset, removed, |extent| expected.push(extent));
        self.twin.insert(offset, len, address);
        assert_eq!(joined(freed), joined(expected));
    }

    fn apply(&mut self, step: &Step) {
        let all = self.twin.len();
        match *step {
            Step::Insert {
                place,
                len,
                address,
            } => {
                self.insert(offset_of(place, all), len, address.unwrap_or(HOLE));
            }
            Step::Append { len, address } => {
                self.admit(all, 0);
                self.tree.append(len, address);
                self.twin.insert(all, len, address);
            }
            Step::Continue { place, len } => {
                let Some(extent) = self.twin.lookup(offset_of(place, all)) else {
                    return;
                };
                let end = extent.behind(extent.len).address;
                if end == HOLE || end < HOLE - 1000 {
                    self.insert(extent.end(), len, end);
                }
            }
            Step::Collapse { place, len } => {
                let offset = offset_of(place, all);
                self.collapse(offset, len.min(all - offset));
            }
            Step::CollapseMost { place } => {
                let offset = offset_of(place, all) / 8;
                self.collapse(offset, (all - offset) / 8 * 7);
            }
            Step::Remap {
                place,
                len,
                address,
            } => {
                let offset = offset_of(place, all);
                let len = len.min(all - offset);
                let (mut freed, mut expected) = (Vec::new(), Vec::new());
                let address = address.unwrap_or(HOLE);
                self.admit(offset, len);
                self.tree
                    .remap(offset, len, address, |extent| freed.push(extent));
                self.twin
                    .remap(offset, len, address, |extent| expected.push(extent));
                assert_eq!(joined(freed), joined(expected));
            }
            Step::Replace {
                place,
                removed,
                len,
                address,
            } => {
                let offset = offset_of(place, all);
                let removed = removed.min(all - offset);
                self.replace(offset, removed, (len, address.unwrap_or(HOLE)));
            }
            Step::ReplaceContinued {
                place,
                removed,
                len,
            } => {
                let Some(extent) = self.twin.lookup(offset_of(place, all)) else {
                    return;
                };
                let end = extent.behind(extent.len).address;
                if end < HOLE - 1000 {
                    let removed = removed.min(all - extent.end());
                    self.replace(extent.end(), removed, (len, end));
                }
            }
        }
    }

    fn assert_equal(&self) {
        self.tree.check().unwrap_or_else(|what| panic!("{what}"));
        assert_eq!(self.tree.len(), self.twin.len());
        assert_eq!(
            joined(self.range(0, u64::MAX)),
            joined(self.twin.extents().iter().copied())
        );
    }

    /// A walk gives what the iterator does, also one that is ended.
    fn assert_walks(&self, offset: u64, len: u64) {
        let all: Vec<Extent> = self.tree.range(offset, len).collect();
        for most in [1, all.len() / 2 + 1, usize::MAX] {
            let mut walked = Vec::new();
            let is_all = self.tree.range(offset, len).walk(|extent| {
                walked.push(extent);
                walked.len() < most
            });
            assert_eq!(walked, all[..all.len().min(most)]);
            assert_eq!(is_all, walked.len() < most);
        }
    }

    fn assert_reads(&self, offset: u64, len: u64) {
        self.assert_walks(offset, len);
        self.tree.prefetch(offset);
        let found = self.range(offset, len);
        let expected = self.twin.range(offset, len);
        assert_eq!(joined(found), joined(expected), "{len} bytes at {offset}");
        if self.tree.absent_count() > 0 {
            return;
        }
        let extent = self.tree.lookup(offset);
        assert_eq!(extent.is_some(), offset < self.twin.len());
        if let (Some(found), Some(expected)) = (extent, self.twin.lookup(offset)) {
            let address = |extent: Extent| extent.behind(offset - extent.offset).address;
            assert!(found.offset <= offset && offset < found.end());
            assert_eq!(address(found), address(expected));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_tree_equals_a_sorted_array(
        extent_max in prop_oneof![Just(7_u32), Just(100), Just(1 << 17)],
        filled in 0..1500_u64,
        steps in prop::collection::vec(step(), 1..150),
        reads in prop::collection::vec((any::<u16>(), 0..5000_u64), 8),
    ) {
        let mut pair = Pair::new(extent_max);
        for number in 0..filled {
            let offset = pair.twin.len() * (number * 7919 % 97) / 97;
            pair.insert(offset, 1 + number % 90, number * 1000);
        }
        for (number, step) in steps.iter().enumerate() {
            pair.apply(step);
            if number % 16 == 0 {
                pair.assert_equal();
            }
        }
        pair.assert_equal();
        for (place, len) in reads {
            pair.assert_reads(offset_of(place, pair.twin.len()), len);
        }
        pair.assert_reads(pair.twin.len(), 1);
        pair.assert_reads(0, u64::MAX);
        let all = pair.twin.len();
        pair.collapse(0, all);
        pair.assert_equal();
        pair.insert(0, 5, 5);
        pair.assert_equal();
    }

    /// The saves, and how the rest goes, are decided by the numbers of the steps.
    #[test]
    fn a_tree_whose_leaves_come_and_go_equals_a_sorted_array(
        filled in 0..2500_u64,
        steps in prop::collection::vec(step(), 1..150),
        reads in prop::collection::vec((any::<u16>(), 0..5000_u64), 8),
        leaves_max in 1..12_usize,
        saves_in in 1..20_usize,
    ) {
        let mut pair = Pair::new(100);
        for number in 0..filled {
            let offset = pair.twin.len() * (number * 7919 % 97) / 97;
            pair.insert(offset, 1 + number % 90, number * 1000);
        }
        pair.tree.mark_use(true);
        for (number, step) in steps.iter().enumerate() {
            pair.apply(step);
            if number % saves_in == 0 {
                let outline = pair.medium.save(&mut pair.tree);
                prop_assert_eq!(pair.tree.dirty_count(), 0);
                if number % 3 == 0 {
                    let loaded = pair.medium.load_some(100, &outline);
                    pair.tree = loaded.unwrap().0;
                    pair.tree.mark_use(number % 2 == 0);
                }
            }
            let before = pair.tree.present_count();
            drop(pair.tree.evict(leaves_max, 1000));
            drop(pair.tree.evict(leaves_max, 1000));
            let most = leaves_max.max(pair.tree.dirty_count());
            prop_assert!(pair.tree.present_count() <= most.min(before).max(1));
            if number % 8 == 0 {
                pair.assert_equal();
            }
        }
        pair.assert_equal();
        for (place, len) in reads {
            pair.assert_reads(offset_of(place, pair.twin.len()), len);
        }
        pair.assert_reads(0, u64::MAX);
        let all = pair.twin.len();
        pair.collapse(0, all);
        pair.assert_equal();
        prop_assert_eq!(pair.tree.absent_count(), 0);
    }

    #[test]
    fn a_plain_tree_equals_a_sorted_array(
        steps in prop::collection::vec((any::<u16>(), 1..60_u32), 1..2500),
        reads in prop::collection::vec((any::<u16>(), 0..5000_u64), 8),
    ) {
        let mut tree = PlainTree::new(100);
        let mut twin = SortedArray::new(100);
        for (number, (place, len)) in steps.into_iter().enumerate() {
            let offset = if number % 3 == 0 { twin.len() } else { offset_of(place, twin.len()) };
            let address = number as u64 * 1000;
            tree.insert(offset, len, address);
            twin.insert(offset, len.into(), address);
        }
        prop_assert_eq!(tree.len(), twin.len());
        for (place, len) in reads {
            let offset = offset_of(place, twin.len());
            prop_assert_eq!(tree.lookup(offset), twin.lookup(offset));
            let mut found = Vec::new();
            let end = offset + len;
            tree.for_each_in(offset, len, |extent| found.push(extent.clipped(offset, end)));
            prop_assert_eq!(found, twin.range(offset, len).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_large_tree_grows_and_shrinks_through_all_levels() {
    const EXTENTS: u64 = 300_000;
    let mut tree = FlexTree::new(1 << 17);
    for number in 0..EXTENTS {
        let offset = tree.len() / 10 * (number * 7919 % 10_007) / 10_007 * 10;
        tree.insert(offset, 10, number * 100);
    }
    tree.check().unwrap();
    assert_eq!((tree.extent_count(), tree.height), (EXTENTS, 3));
    let mut seen: Vec<u64> = tree.iter().map(|extent| extent.address / 100).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..EXTENTS));

    let mut left = EXTENTS;
    for number in 0.. {
        let len = (10 * (1 + number % 500)).min(tree.len());
        if len == 0 {
            break;
        }
        let offset = (tree.len() - len) / 10 * (number * 7919 % 10_007) / 10_007 * 10;
        let mut freed = 0;
        tree.collapse(offset, len, |extent| freed += extent.len);
        left -= len / 10;
        assert_eq!((freed, tree.extent_count()), (len, left));
        if number % 100 == 0 {
            tree.check().unwrap();
        }
    }
    assert_eq!((tree.height, tree.node_count()), (0, 1));
}

/// A tree of one leaf kept the memory of all that it once had.
#[test]
fn a_tree_that_falls_to_one_leaf_gives_the_memory_of_others_back() {
    let mut tree = FlexTree::new(1 << 17);
    for number in 0..100_000 {
        tree.insert(0, 10, number * 100);
    }
    let leaves = tree.present_count() * size_of::<Leaf>();
    let whole = tree.memory_bytes();
    assert!(leaves > 1 << 20, "{leaves}");
    // From the front, so that the root is the last leaf.
    while tree.len() > 50 {
        let len = (tree.len() - 50).min(1_000);
        tree.collapse(0, len, |_| {});
    }
    assert_eq!((tree.height, tree.present_count()), (0, 1));
    assert!(tree.is_beyond(1));
    let gone = tree.evict(1, 1_000);
    assert!(!tree.is_beyond(1));
    let gone: usize = gone.iter().map(|leaves| size_of_val(&leaves[..])).sum();
    assert!(gone > leaves / 20 * 19, "{gone} of {leaves}");
    assert_eq!(tree.memory_bytes(), whole - gone);
    tree.check().unwrap();
    let left: Vec<u64> = tree.iter().map(|extent| extent.address).collect();
    assert_eq!(left, [400, 300, 200, 100, 0]);
}

#[test]
fn appends_leave_full_nodes_behind() {
    let mut tree = FlexTree::new(1 << 17);
    for number in 0..100_000 {
        tree.append(10, number * 100);
    }
    tree.check().unwrap();
    let fewest = 100_000 / super::node::ENTRIES_MAX;
    assert!(
        tree.node_count() < fewest * 110 / 100,
        "{} nodes",
        tree.node_count()
    );
}

#[test]
fn huge_holes_are_cut_into_extents() {
    let mut tree = FlexTree::new(100);
    tree.append(5, 1);
    tree.insert(3, 10 << 32, HOLE);
    tree.check().unwrap();
    assert_eq!(tree.len(), (10 << 32) + 5);
    assert_eq!(
        tree.lookup(1 << 33).map(|extent| extent.is_hole()),
        Some(true)
    );
    let mut holes = 0;
    tree.collapse(3, 10 << 32, |extent| holes += extent.len);
    assert_eq!((holes, tree.len(), tree.extent_count()), (10 << 32, 5, 2));
}
