//! Writes: under the lock of a node, into its buffer and the logs, or into the base.
//!
//! Pairs go to the buffer, after the logs have them. If the buffer is full it is merged first; if
//! there is none to be had, or the base has no space for what is in it, the pair goes to the base.
//! Deletes always do.
//!
//! Whatever goes to the base is logged, too, and after that, if the node has changes above the
//! floor: else recovery would take an older change for the last one.

use std::sync::atomic::Ordering;

use super::{Base, Layered};
use crate::Result;
use crate::spoton::buffer::{Buffer, Tagged};
use crate::spoton::log::{ChangeSlot, LoggedChange};
use crate::spoton::mnode::LockedNode;

/// What a node has of a key.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Its place in the buffer.
    place: Option<usize>,
    value: Option<u64>,
}

impl<B: Base, const PAGE: usize> Layered<B, PAGE> {
    /// Stores `value` under `key`, whether it is there or not, and returns the value before.
    ///
    /// # Errors
    /// No space in the pool: nothing has changed then.
    pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>> {
        self.write(key, value, false)
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        self.write(key, value, true)
    }

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn remove(&self, key: u64) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        self.tend()?;
        let position = self.base.position(key);
        let node = self.lock(position);
        let found = self.find(&node, key, position, self.tag(key))?;
        if found.value.is_none() {
            return Ok(None);
        }
        let slot = self.slot_if_due(&node)?;
        self.base.remove(&key)?;
        if let Some(slot) = slot {
            self.fill(&node, slot, key, None);
        }
        if let (Some(buffer), Some(place)) = (self.buffer_of(&node, position), found.place) {
            buffer.remove(place);
            if buffer.count() == 0 {
                self.release_if_empty(&node);
            }
        }
        Ok(found.value)
    }

    /// Stores a value; only if the key is there, if `is_update`.
    #[inline]
    fn write(&self, key: u64, value: u64, is_update: bool) -> Result<Option<u64>> {
        let (position, tag) = (self.base.position(key), self.tag(key));
        let entry = Tagged { key, value, tag };
        let _within = self.pool.write_guard();
        loop {
            self.tend()?;
            let node = self.lock(position);
            let found = self.find(&node, key, position, tag)?;
            if is_update && found.value.is_none() {
                return Ok(None);
            }
            let buffer = self.buffer_of(&node, position);
            let is_full = buffer.is_some_and(|buffer| buffer.count() == self.shape.pairs);
            if let (Some(buffer), Some(place)) = (buffer, found.place) {
                let slot = self.logs.slot()?;
                self.fill(&node, slot, key, Some(value));
                buffer.set_value(place, value);
            } else if is_full && self.merge_if_room(&node, position)? {
                // The range of the node may have changed.
                continue;
            } else if let Some(buffer) = self.free_buffer(&node, position) {
                let slot = self.logs.slot()?;
                self.fill(&node, slot, key, Some(value));
                buffer.push(entry);
            } else {
                let slot = self.slot_if_due(&node)?;
                self.base.insert(&key, value)?;
                if let Some(slot) = slot {
                    self.fill(&node, slot, key, Some(value));
                }
            }
            return Ok(found.value);
        }
    }

    #[inline]
    fn find(&self, node: &LockedNode<'_>, key: u64, position: u64, tag: u8) -> Result<Found> {
        let buffer = self.buffer_of(node, position);
        if let Some((place, value)) = buffer.and_then(|buffer| buffer.find(key, tag)) {
            return Ok(Found {
                place: Some(place),
                value: Some(value),
            });
        }
        Ok(Found {
            place: None,
            value: self.base.get(&key)?,
        })
    }

    /// A buffer of the node with room for a pair with this position: its own, or a free one.
    pub(super) fn free_buffer(&self, node: &LockedNode<'_>, position: u64) -> Option<&Buffer> {
        if node.buffer().is_none() {
            node.set_buffer(self.buffers.take(node.number));
        }
        let buffer = self.buffer_of(node, position);
        buffer.filter(|buffer| buffer.count() < self.shape.pairs)
    }

    /// Takes the buffer of a node away if nothing waits in any of its ways.
    pub(super) fn release_if_empty(&self, node: &LockedNode<'_>) {
        if self.buffers_of(node).all(|buffer| buffer.count() == 0) {
            self.release_buffer(node);
        }
    }

    /// Takes the empty buffer of a node away.
    pub(super) fn release_buffer(&self, node: &LockedNode<'_>) {
        if let Some(number) = node.buffer() {
            node.set_buffer(None);
            self.buffers.give_back(number);
        }
    }

    /// Room in the logs for a change of the base, if they have changes of the node that count.
    fn slot_if_due(&self, node: &LockedNode<'_>) -> Result<Option<ChangeSlot<'_, PAGE>>> {
        // ORDER: Acquire pairs with the release of `raise`; an older floor costs a record.
        let is_due = node.last() > self.floor.load(Ordering::Acquire);
        is_due.then(|| self.logs.slot()).transpose()
    }

    /// Writes the next change to the logs, durably.
    pub(super) fn fill(
        &self,
        node: &LockedNode<'_>,
        slot: ChangeSlot<'_, PAGE>,
        key: u64,
        value: Option<u64>,
    ) {
        // ORDER: Relaxed: among changes of one node the lock sees to the order.
        let number = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
        slot.fill(LoggedChange { key, number, value });
        node.set_last(number);
    }
}
