//! A node: how entries are found in it, come and go.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Medium, POff};
use gabion_media::prefetch_line;

use super::layout::{Body, SLOTS};
use super::permutation::Permutation;
use crate::blink::{self, Head, NodeInit, NodeRange};

/// A node, as it lies in the pool.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    pub(super) body: &'a Body,
    /// The node's offset.
    pub(super) at: u64,
}

// ORDER: Acquire throughout: pairs with the releasing stores of writers, and keeps loads in their
// order, the permutation before the slots.
impl<'a> Node<'a> {
    /// The node at an offset, if it can be one.
    #[inline]
    pub(super) fn new(medium: &'a Medium, at: u64) -> Option<Node<'a>> {
        let body: &Body = medium.try_at(POff::new(at))?;
        medium.touch(body);
        Some(Node { body, at })
    }

    #[inline]
    pub(super) fn permutation(&self) -> Permutation {
        Permutation(self.body.permutation.peek(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn slice(&self, slot: usize) -> u64 {
        self.body.slots[slot].slice.peek(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn value(&self, slot: usize) -> u64 {
        self.body.slots[slot].value.peek(Ordering::Acquire)
    }

    /// The number of entries up to a slice.
    #[inline]
    pub(super) fn rank(&self, permutation: Permutation, slice: u64) -> usize {
        let (mut first, mut count) = (0, permutation.count());
        while count > 0 {
            let half = count / 2;
            let is_before = self.slice(permutation.slot(first + half)) <= slice;
            first = if is_before { first + half + 1 } else { first };
            count = if is_before { count - half - 1 } else { half };
        }
        first
    }

    /// The slot of a slice.
    #[inline]
    pub(super) fn find(&self, slice: u64) -> Option<usize> {
        let permutation = self.permutation();
        let rank = self.rank(permutation, slice).checked_sub(1)?;
        let slot = permutation.slot(rank);
        (self.slice(slot) == slice).then_some(slot)
    }

    /// Makes durable what a search saw, but for the fence: the first line, and a slot.
    #[cold]
    #[track_caller]
    pub(super) fn flush(&self, medium: &Medium, slot: Option<usize>) {
        medium.flush(&self.body.permutation);
        if let Some(slot) = slot {
            medium.flush(&self.body.slots[slot]);
        }
    }
}

impl<'a> blink::Node<'a> for Node<'a> {
    #[inline]
    fn at(&self) -> u64 {
        self.at
    }

    #[inline]
    fn head(&self) -> &'a Head {
        &self.body.head
    }

    #[inline]
    fn prefetch(&self) {
        prefetch_line(std::ptr::from_ref(self.body).cast());
        for slot in (0..SLOTS).step_by(4) {
            prefetch_line(std::ptr::from_ref(&self.body.slots[slot]).cast());
        }
    }

    #[inline]
    fn child(&self, key: u64) -> u64 {
        let permutation = self.permutation();
        // The first entry has the low as its slice, unless the pool is damaged.
        let rank = self.rank(permutation, key).max(1) - 1;
        self.value(permutation.slot(rank))
    }

    fn entry_upto(&self, key: u64) -> Option<(u64, u64)> {
        let permutation = self.permutation();
        let slot = permutation.slot(self.rank(permutation, key).checked_sub(1)?);
        Some((self.slice(slot), self.value(slot)))
    }

    fn entries(&self, range: NodeRange) -> Vec<(u64, u64)> {
        let permutation = self.permutation();
        (0..permutation.count())
            .map(|rank| permutation.slot(rank))
            .map(|slot| (self.slice(slot), self.value(slot)))
            .filter(|(slice, _)| range.is_below_bound(*slice))
            .collect()
    }
}

/// The bytes of a new node.
pub(super) fn image(born: &NodeInit, top: u64, entries: &[(u64, u64)]) -> Vec<u8> {
    let first = born.head().into_iter();
    let first = first.chain([Permutation::first(entries.len()).0, top]);
    let slots = entries.iter().copied().chain(std::iter::repeat((0, 0)));
    let slots = slots.take(SLOTS).flat_map(|(slice, value)| [slice, value]);
    first.chain(slots).flat_map(u64::to_le_bytes).collect()
}
