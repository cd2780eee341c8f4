//! Parts that leaves and inner nodes share: sorted lanes of numbers, and the place where a node was
//! saved.

use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of a node at most. With them a leaf takes 1 KiB in memory and on media.
pub(crate) const ENTRIES_MAX: usize = 60;

/// Lanes of the sorted numbers: [`ENTRIES_MAX`] rounded up to whole cache lines.
pub(super) const LANES: usize = 64;

/// Lanes of one cache line.
const LINE_LANES: usize = 8;

/// No node, or no place on a medium.
pub(crate) const NONE: u32 = u32::MAX;

/// Marks a child that is not in memory; the other bits are the slot in which it was saved.
pub(super) const ABSENT: u32 = 1 << 31;

/// Whether a child is not in memory.
#[inline]
pub(super) fn is_absent(child: u32) -> bool {
    child & ABSENT != 0
}

/// Sorted numbers of a node; lanes behind the last entry hold the largest number.
pub(super) type NodeLanes = [u64; LANES];

/// Lanes without an entry.
pub(super) const EMPTY_LANES: NodeLanes = [u64::MAX; LANES];

/// How many lanes hold numbers up to `key`, which is less than the largest number.
///
/// The first numbers of all cache lines are compared first and independently, so that the lines
/// come from memory at the same time and not one after the other as in a binary search.
#[inline]
pub(super) fn count_up_to(lanes: &NodeLanes, key: u64) -> usize {
    let (lines, _) = lanes.as_chunks::<LINE_LANES>();
    let mut line = 0;
    for group in &lines[1..] {
        line += usize::from(group[0] <= key);
    }
    let within: usize = lines[line]
        .iter()
        .map(|lane| usize::from(*lane <= key))
        .sum();
    line * LINE_LANES + within
}

/// Where the present content of a node stands on a medium, if it stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedAt {
    /// Slot of the tree file, or [`NONE`] for a node that was never saved.
    pub(crate) slot: u32,
    /// Checksum of the saved node.
    pub(crate) crc: u32,
    /// Whether the node, or one below it, has changed since it was saved.
    pub(crate) dirty: bool,
}

impl SavedAt {
    pub(super) const NEVER: SavedAt = SavedAt {
        slot: NONE,
        crc: 0,
        dirty: true,
    };
}

/// Which children were read lately: a bit for each. Readers set them, the hand of `absent_leaf`
/// takes them back.
#[derive(Debug)]
pub(super) struct RecentlyUsed(AtomicU64);

impl RecentlyUsed {
    /// All of them.
    pub(super) const fn all() -> RecentlyUsed {
        RecentlyUsed(AtomicU64::new(u64::MAX))
    }

    #[inline]
    pub(super) fn set(&self, at: usize) {
        // ORDER: Relaxed (both); a hint for the hand.
        if self.0.load(Ordering::Relaxed) & 1 << at == 0 {
            self.0.fetch_or(1 << at, Ordering::Relaxed);
        }
    }

    /// Takes a bit back; says whether it was set.
    pub(super) fn take(&mut self, at: usize) -> bool {
        let bits = self.0.get_mut();
        let was_set = *bits & 1 << at != 0;
        *bits &= !(1 << at);
        was_set
    }
}

impl Clone for RecentlyUsed {
    fn clone(&self) -> RecentlyUsed {
        // ORDER: Relaxed; a hint for the hand.
        RecentlyUsed(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

/// A node number, which leaves room for the mark of absent ones.
pub(super) fn id_of(index: usize) -> u32 {
    let id = u32::try_from(index).ok().filter(|id| !is_absent(*id));
    id.expect("a number of 31 bits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counting_equals_its_twin(
            mut numbers in prop::collection::vec(0..100_u64, 0..=ENTRIES_MAX),
            key in 0..110_u64,
        ) {
            numbers.sort_unstable();
            let mut lanes = EMPTY_LANES;
            lanes[..numbers.len()].copy_from_slice(&numbers);
            let expected = numbers.iter().filter(|number| **number <= key).count();
            prop_assert_eq!(count_up_to(&lanes, key), expected);
        }
    }
}
