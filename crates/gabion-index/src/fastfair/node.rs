//! A node: searches, and moves of entries during which none is ever lost.
//!
//! # Order
//! Keys never fall from slot to slot. Where two neighbours have the same key, the right one is the
//! entry and the left one is *dead*: the trace of a move under way, or of one that a crash cut
//! short. Slots from the first key on that reaches the node's bound are free.
//!
//! # Moves
//! Each step is a store of 8 bytes, and leaves the entries as they were:
//!
//! ```text
//! to the right        K1 V1 | K2 V2         to the left      K1 V1 | K2 V2
//! value, then key     K1 V1 | K2 V1 dead    key, then value  K2 V1 dead | K2 V2
//!                     K1 V1 dead | K1 V1                     K2 V2 dead | K2 V2
//! ```
//!
//! So the entry that is inserted appears with the store of its key, and the one that is deleted
//! vanishes with the store of its right neighbour's key over its own. Stores to one cache line
//! reach the medium in their order; where a move leaves a line, that line is made durable first.
//! That is between two slots, or, if nodes are padded (`layout.rs`), between the value and the key
//! of one.

use std::sync::atomic::Ordering;

use gabion_media::pmem::Medium;
use gabion_media::prefetch_line;

use super::layout::{NO_KEY, Slot, begins_line, is_padded, is_split, node_bytes};
use crate::blink::{self, Head, NodeInit, NodeRange};

/// A node, as it lies in the pool.
pub(crate) struct Node<'a, const N: usize> {
    pub(super) head: &'a Head,
    pub(super) slots: &'a [Slot; N],
    /// The node's offset.
    pub(super) at: u64,
}

impl<const N: usize> Clone for Node<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<const N: usize> Copy for Node<'_, N> {}

/// What the slots of a node hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeContents {
    /// Slots in use, the dead ones among them.
    pub(super) count: usize,
    /// A dead slot.
    pub(super) dead: Option<usize>,
}

// ORDER: Acquire throughout: pairs with the releasing stores below, and keeps loads in their order.
impl<const N: usize> Node<'_, N> {
    #[inline]
    pub(super) fn key(&self, slot: usize) -> u64 {
        self.slots[slot].key.peek(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn value(&self, slot: usize) -> u64 {
        self.slots[slot].value.peek(Ordering::Acquire)
    }

    /// The number of slots whose keys are at most `key`, which is below the bound: of those that
    /// begin lines first, then of the three that follow the last one of them. Without branches on
    /// keys. While somebody moves entries, the number may be wrong.
    #[inline]
    pub(super) fn rank(&self, key: u64) -> usize {
        let is_before = |slot: usize| usize::from(self.key(slot) <= key);
        let lines: usize = (1..N).step_by(4).map(is_before).sum();
        if lines == 0 {
            return is_before(0);
        }
        let first = 4 * (lines - 1) + 1;
        let behind = first + 1..(first + 4).min(N);
        first + 1 + behind.map(is_before).sum::<usize>()
    }

    /// The value of `key`, if nobody moves entries meanwhile.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<u64> {
        let slot = self.rank(key).checked_sub(1)?;
        (self.key(slot) == key).then(|| self.value(slot))
    }

    /// The value of `key`, while others may insert and update, or delete and update, but not
    /// insert and delete: `turn` says which. Entries that move pass nobody who goes the same way.
    pub(super) fn find_beside_writer(&self, key: u64, turn: u64) -> Option<u64> {
        let find = |slot: usize| {
            if self.key(slot) != key {
                return None;
            }
            let value = self.value(slot);
            let next = if slot + 1 < N {
                self.key(slot + 1)
            } else {
                NO_KEY
            };
            // Not dead, and still where it was: then the value is the one of this key.
            (next != key && self.key(slot) == key).then_some(value)
        };
        if turn == MOVES_RIGHT {
            let until = |slot: &usize| self.key(*slot) <= key;
            (0..N).take_while(until).find_map(find)
        } else {
            (0..N).rev().find_map(find)
        }
    }

    /// Looks at all slots. The caller keeps others from writing.
    pub(super) fn survey(&self, bound: u64) -> NodeContents {
        let mut survey = NodeContents {
            count: 0,
            dead: None,
        };
        let mut last = None;
        for slot in 0..N {
            let key = self.key(slot);
            if key >= bound {
                break;
            }
            if last == Some(key) {
                survey.dead = Some(slot - 1);
            }
            last = Some(key);
            survey.count = slot + 1;
        }
        survey
    }

    /// The live entries, in the order of their keys. The caller keeps others from writing, or finds
    /// out afterwards.
    pub(super) fn live_entries(&self, bound: u64) -> impl Iterator<Item = (u64, u64)> {
        let count = self.survey(bound).count;
        (0..count)
            .filter(move |&slot| slot + 1 >= count || self.key(slot) != self.key(slot + 1))
            .map(|slot| (self.key(slot), self.value(slot)))
    }
}

impl<'a, const N: usize> blink::Node<'a> for Node<'a, N> {
    #[inline]
    fn at(&self) -> u64 {
        self.at
    }

    #[inline]
    fn head(&self) -> &'a Head {
        self.head
    }

    #[inline]
    fn prefetch(&self) {
        prefetch_line(std::ptr::from_ref(self.head).cast());
        for slot in (1..N).step_by(4) {
            prefetch_line(std::ptr::from_ref(&self.slots[slot]).cast());
        }
    }

    #[inline]
    fn child(&self, key: u64) -> u64 {
        // The first slot has the low as its key, unless the pool is damaged.
        self.value(self.rank(key).max(1) - 1)
    }

    fn entry_upto(&self, key: u64) -> Option<(u64, u64)> {
        let slot = self.rank(key).checked_sub(1)?;
        Some((self.key(slot), self.value(slot)))
    }

    fn entries(&self, range: NodeRange) -> Vec<(u64, u64)> {
        self.live_entries(range.bound).collect()
    }
}

/// The bytes of a new node.
pub(super) fn image<const N: usize>(born: &NodeInit, entries: &[(u64, u64)]) -> Vec<u8> {
    let free = (NO_KEY, 0);
    let slots = entries.iter().copied().chain(std::iter::repeat(free));
    let slots = slots.take(N).flat_map(|(key, value)| [key, value]);
    let padding = is_padded(N).then_some(0);
    let words = born.head().into_iter().chain(padding);
    let words = words.chain(slots).chain(padding);
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    debug_assert!(bytes.len() as u64 == node_bytes(N), "a node's bytes");
    bytes
}

/// The turn of a lock while entries move to the right: inserts.
pub(super) const MOVES_RIGHT: u64 = 0;
/// The turn of a lock while entries move to the left: deletes.
pub(super) const MOVES_LEFT: u64 = 1;

// ORDER: Release throughout: pairs with the acquiring loads above; readers see the stores in their
// order, which is also that in which they reach the medium within a line.
impl<const N: usize> Node<'_, N> {
    /// Inserts an entry at `slot`, of `count` that are in use, none of them dead. There is room.
    pub(super) fn insert(&self, medium: &Medium, slot: usize, count: usize, entry: (u64, u64)) {
        for to in (slot + 1..=count).rev() {
            let (key, value) = (self.key(to - 1), self.value(to - 1));
            self.fill(medium, to, key, value);
            if !is_padded(N) && begins_line(to) {
                // DURABLE: the entries of this line, before the last one's old place, in the line
                // before, is overwritten.
                medium.persist(&self.slots[to]);
            }
        }
        self.fill(medium, slot, entry.0, entry.1);
        // DURABLE: the entry.
        medium.persist(&self.slots[slot].key);
    }

    /// Writes a pair over a slot that is dead or free.
    fn fill(&self, medium: &Medium, slot: usize, key: u64, value: u64) {
        let to = &self.slots[slot];
        to.value.store(medium, value, Ordering::Release);
        if is_split(slot, N) {
            // DURABLE: the value, and what moved into its line, before its key, in the line before.
            medium.persist(&to.value);
        }
        to.key.store(medium, key, Ordering::Release);
    }

    /// Takes the entry at `slot` away, dead or not, of `count` slots in use.
    pub(super) fn remove(&self, medium: &Medium, slot: usize, count: usize) {
        for from in slot + 1..count {
            let (key, value) = (self.key(from), self.value(from));
            let to = &self.slots[from - 1];
            to.key.store(medium, key, Ordering::Release);
            if is_split(from - 1, N) {
                // DURABLE: the key, and what moved into its line, before what is in the line behind
                // is overwritten.
                medium.persist(&to.key);
            }
            to.value.store(medium, value, Ordering::Release);
            if !is_padded(N) && begins_line(from) {
                // DURABLE: the line with the entry's new place, before its old one, in the line
                // behind, is overwritten.
                medium.persist(to);
            }
        }
        let last = &self.slots[count - 1];
        last.key.store(medium, NO_KEY, Ordering::Release);
        // DURABLE: the delete, if it was not yet, and that the last slot is free.
        medium.persist(&last.key);
    }

    /// Clears the slots from `count` on durably, but for the fence: the keys there are at or above
    /// the bound, which is about to rise.
    pub(super) fn clear_from(&self, medium: &Medium, count: usize) {
        let free = &self.slots[count..];
        for slot in free.iter().rev() {
            slot.key.store(medium, NO_KEY, Ordering::Release);
        }
        medium.flush(free);
    }

    /// Makes all that was stored to the node durable, but for the fence.
    #[track_caller]
    pub(super) fn flush(&self, medium: &Medium) {
        medium.flush_range(self.at, node_bytes(N));
    }
}
