//! Absent leaves: leaves that are on the medium only, and how they are evicted and loaded.
//!
//! # Idea
//! Leaves are nearly all of a tree, and each one that did not change since it was saved can be
//! read again. So such a leaf may be absent: its parent has, in place of its number, the slot in
//! which it was saved, and the checksum. What the parent says of it otherwise, where it begins,
//! goes on being true: insertions in front of it change shifts only. Inner nodes, which are a
//! fortieth of the tree, stay.
//!
//! # Invariants
//! - A1. An absent leaf is clean: what is in its slot is what it holds. The slot belongs to the
//!   saved tree as long as the leaf is absent, so nothing else is written there.
//! - A2. A change of the tree meets present leaves only. Who changes a range has admitted before,
//!   by [`FlexTree::absent_in`], the leaves that cover it, the byte in front of it and the one
//!   behind: a leaf that is emptied goes, and what is then put at its place comes into a neighbour.
//!   Neighbours that are absent are not merged.
//! - A3. A root that is a leaf is present.
//!
//! # Who goes
//! Clean leaves that nobody read since the hand came by last (second chance). The hand is an offset
//! of the address space, so no node needs to know its parent, and what moves it does no harm. Who
//! was read is a bit in the parent, which readers have in their hands; trees without a limit do not
//! note it.

use std::collections::BTreeMap;

use super::FlexTree;
use super::leaf::Leaf;
use super::node::{NONE, is_absent};
use super::persist::NodePlace;

/// What moving a leaf costs, which copies a kilobyte, in steps of the hand: by estimate.
pub(crate) const MOVE_STEPS: usize = 3;

/// A leaf that is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AbsentLeaf {
    /// Where it begins in the address space.
    pub(crate) offset: u64,
    /// Bytes that it covers.
    pub(crate) len: u64,
    pub(crate) place: NodePlace,
}

/// Leaves as they were saved, by their places.
#[derive(Debug, Default)]
pub(crate) struct SavedLeaves(BTreeMap<u32, (u32, Leaf)>);

impl SavedLeaves {
    pub(crate) fn insert(&mut self, place: NodePlace, leaf: Leaf) {
        self.0.insert(place.slot, (place.crc, leaf));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, place: NodePlace) -> Option<&Leaf> {
        let found = self.0.get(&place.slot).filter(|own| own.0 == place.crc);
        found.map(|(_, leaf)| leaf)
    }
}

/// Where a leaf stands in the tree.
pub(super) struct LeafPosition {
    /// Its parent, and which child it is; none if it is the root.
    pub(super) parent: u32,
    pub(super) at: usize,
    /// Its number, or where it was saved.
    pub(super) child: u32,
    /// The bytes that it covers.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Where those of its parent end.
    pub(super) parent_end: u64,
}

impl FlexTree {
    /// The leaf that covers an offset, or the last one for the end.
    pub(super) fn spot(&self, offset: u64) -> LeafPosition {
        let mut spot = LeafPosition {
            parent: NONE,
            at: 0,
            child: self.root,
            start: 0,
            end: self.len,
            parent_end: self.len,
        };
        for _ in 0..self.height {
            let inner = &self.inners[spot.child];
            let at = inner.find(offset - spot.start);
            spot.parent_end = spot.end;
            if at + 1 < inner.count {
                spot.end = spot.start + inner.shifts[at + 1];
            }
            spot = LeafPosition {
                parent: spot.child,
                at,
                child: inner.children[at],
                start: spot.start + inner.shifts[at],
                ..spot
            };
        }
        spot
    }

    /// The first `most` absent leaves that cover a byte of `from..=to`, but for some.
    pub(crate) fn absent_in(
        &self,
        from: u64,
        to: u64,
        most: usize,
        but: impl Fn(NodePlace) -> bool,
    ) -> Vec<AbsentLeaf> {
        let mut found = Vec::new();
        if self.absent == 0 {
            return found;
        }
        let mut at = from.min(self.len);
        loop {
            let spot = self.spot(at);
            let place = self.inners[spot.parent].place_of(spot.at);
            if let Some(place) = place.filter(|place| !but(*place)) {
                found.push(AbsentLeaf {
                    offset: spot.start,
                    len: spot.end - spot.start,
                    place,
                });
            }
            at = spot.end;
            if at > to || at >= self.len || found.len() == most {
                return found;
            }
        }
    }

    /// Takes a leaf in that was read; false if it is no longer absent, or no longer there.
    pub(crate) fn admit(&mut self, absent: &AbsentLeaf, leaf: &Leaf) -> bool {
        if self.height == 0 || absent.offset >= self.len {
            return false;
        }
        let spot = self.spot(absent.offset);
        if self.inners[spot.parent].place_of(spot.at) != Some(absent.place) {
            return false;
        }
        let id = self.leaves.add();
        self.leaves[id] = leaf.clone();
        let parent = &mut self.inners[spot.parent];
        parent.children[spot.at] = id;
        parent.used.set(spot.at);
        self.absent -= 1;
        true
    }

    /// Whether there is something to do for [`FlexTree::evict`].
    pub(crate) fn is_beyond(&self, leaves_max: usize) -> bool {
        (self.height > 0 && self.leaves.len() > leaves_max) || self.leaves.has_spare_chunk()
    }

    /// Lets clean leaves go that were not read lately, until `leaves_max` are left or the hand has
    /// passed `reach` leaves that are in memory; a parent with none behind the hand counts as one,
    /// and a leaf that is moved as [`MOVE_STEPS`] more. Where far fewer leaves are left than there
    /// were, those that the hand passes are moved together, until the rest of their memory can be
    /// given back. That is returned, to be dropped when readers wait no more.
    #[must_use = "to be dropped without the lock of the readers"]
    pub(crate) fn evict(&mut self, leaves_max: usize, mut reach: usize) -> Vec<Vec<Leaf>> {
        let mut gone = Vec::new();
        while self.is_beyond(leaves_max) && reach > 0 {
            reach -= 1;
            if self.height == 0 {
                if let Some(id) = self.leaves.move_down(self.root) {
                    self.root = id;
                }
                self.leaves.shrink(&mut gone);
                continue;
            }
            if self.hand >= self.len {
                self.hand = 0;
            }
            let spot = self.spot(self.hand);
            let parent = &mut self.inners[spot.parent];
            let mut children = spot.at..parent.count;
            let Some(at) = children.find(|at| !is_absent(parent.children[*at])) else {
                self.hand = spot.parent_end;
                continue;
            };
            self.hand = if at + 1 < parent.count {
                spot.start + (parent.shifts[at + 1] - parent.shifts[spot.at])
            } else {
                spot.parent_end
            };
            let child = parent.children[at];
            let saved = self.leaves[child].saved;
            let is_clean = !saved.dirty && !is_absent(saved.slot);
            if self.leaves.len() > leaves_max && !parent.used.take(at) && is_clean {
                let (slot, crc) = (saved.slot, saved.crc);
                parent.put_away(at, NodePlace { slot, crc });
                self.leaves.remove(child);
                self.absent += 1;
            } else if let Some(id) = self.leaves.move_down(child) {
                parent.children[at] = id;
                reach = reach.saturating_sub(MOVE_STEPS);
            }
            self.leaves.shrink(&mut gone);
        }
        gone
    }

    /// Lets readers tell the hand which leaves they read.
    pub(crate) fn mark_use(&mut self, marks: bool) {
        self.marks_use = marks;
    }

    /// Memory of the nodes that are in memory.
    pub(crate) fn present_bytes(&self) -> usize {
        self.leaves.len() * size_of::<Leaf>() + self.inner_bytes()
    }

    /// Leaves in memory.
    pub(crate) fn present_count(&self) -> usize {
        self.leaves.len()
    }

    /// Leaves that are not.
    pub(crate) fn absent_count(&self) -> usize {
        self.absent
    }

    /// Leaves that changed since they were saved, which must stay.
    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty
    }

    /// Memory of the inner nodes in bytes.
    pub(crate) fn inner_bytes(&self) -> usize {
        self.inners.memory_bytes()
    }
}
