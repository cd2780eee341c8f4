//! Inner nodes: children and their shifts.

use super::node::{
    ABSENT, EMPTY_LANES, ENTRIES_MAX, NONE, NodeLanes, RecentlyUsed, SavedAt, count_up_to,
    is_absent,
};
use super::persist::NodePlace;

/// A node above the leaves.
///
/// The shift of a child is also its pivot (see the essay of `tree`). The first shift is 0.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Inner {
    pub(crate) shifts: NodeLanes,
    pub(crate) children: [u32; ENTRIES_MAX],
    pub(crate) count: usize,
    pub(super) saved: SavedAt,
    /// Which children were read lately.
    pub(super) used: RecentlyUsed,
    /// Checksums of the children that are not in memory; there if one may be absent.
    sums: Option<Box<[u32; ENTRIES_MAX]>>,
}

impl Inner {
    /// A node without children.
    pub(crate) const fn empty() -> Inner {
        Inner {
            shifts: EMPTY_LANES,
            children: [NONE; ENTRIES_MAX],
            count: 0,
            saved: SavedAt::NEVER,
            used: RecentlyUsed::all(),
            sums: None,
        }
    }

    /// Where a child that is not in memory was saved.
    pub(super) fn place_of(&self, at: usize) -> Option<NodePlace> {
        let child = self.children[at];
        let sums = self.sums.as_ref().filter(|_| is_absent(child))?;
        Some(NodePlace {
            slot: child & !ABSENT,
            crc: sums[at],
        })
    }

    /// Lets a child be not in memory, but in this place, whose slot is below [`ABSENT`].
    pub(super) fn put_away(&mut self, at: usize, place: NodePlace) {
        debug_assert!(!is_absent(place.slot));
        self.children[at] = place.slot | ABSENT;
        let sums = self.sums.get_or_insert_with(|| Box::new([0; ENTRIES_MAX]));
        sums[at] = place.crc;
    }

    /// The child that covers `x`, an offset in this node; the last one for the end of the node.
    /// Of several children that begin there, of which all but the last are empty, the last.
    #[inline]
    pub(crate) fn find(&self, x: u64) -> usize {
        count_up_to(&self.shifts, x) - 1
    }

    /// Adds `delta`, which may be negative in two's complement, to the shifts from `from` on.
    #[inline]
    pub(crate) fn shift_from(&mut self, from: usize, delta: u64) {
        for shift in &mut self.shifts[from..self.count] {
            *shift = shift.wrapping_add(delta);
        }
    }

    pub(crate) fn insert(&mut self, at: usize, shift: u64, child: u32) {
        debug_assert!(self.count < ENTRIES_MAX);
        self.shifts.copy_within(at..self.count, at + 1);
        self.children.copy_within(at..self.count, at + 1);
        if let Some(sums) = &mut self.sums {
            sums.copy_within(at..self.count, at + 1);
        }
        self.used = RecentlyUsed::all();
        self.shifts[at] = shift;
        self.children[at] = child;
        self.count += 1;
    }

    pub(super) fn remove(&mut self, at: usize) {
        self.shifts.copy_within(at + 1..self.count, at);
        self.children.copy_within(at + 1..self.count, at);
        if let Some(sums) = &mut self.sums {
            sums.copy_within(at + 1..self.count, at);
        }
        self.used = RecentlyUsed::all();
        self.count -= 1;
        self.shifts[self.count] = u64::MAX;
    }

    /// Moves the children from `at` on to the empty node `right`, re-bases them, and returns the
    /// shift of that node.
    pub(super) fn split(&mut self, at: usize, right: &mut Inner) -> u64 {
        let base = self.split_plain(at, right);
        right.shift_from(0, base.wrapping_neg());
        base
    }

    /// As [`Inner::split`], without re-basing.
    pub(crate) fn split_plain(&mut self, at: usize, right: &mut Inner) -> u64 {
        let base = self.shifts[at];
        let moved = self.count - at;
        right.shifts[..moved].copy_from_slice(&self.shifts[at..self.count]);
        right.children[..moved].copy_from_slice(&self.children[at..self.count]);
        if let Some(sums) = &self.sums {
            let moved_sums = right.sums.get_or_insert_with(|| Box::new([0; ENTRIES_MAX]));
            moved_sums[..moved].copy_from_slice(&sums[at..self.count]);
        }
        right.count = moved;
        self.shifts[at..self.count].fill(u64::MAX);
        self.count = at;
        base
    }

    /// Takes over the children of the right neighbour, whose shift is `base` more than this one's.
    pub(super) fn merge(&mut self, right: &Inner, base: u64) {
        let (from, to) = (self.count, self.count + right.count);
        self.shifts[from..to].copy_from_slice(&right.shifts[..right.count]);
        self.children[from..to].copy_from_slice(&right.children[..right.count]);
        if let Some(sums) = &right.sums {
            let own = self.sums.get_or_insert_with(|| Box::new([0; ENTRIES_MAX]));
            own[from..to].copy_from_slice(&sums[..right.count]);
        }
        self.used = RecentlyUsed::all();
        self.count = to;
        self.shift_from(from, base);
    }
}
