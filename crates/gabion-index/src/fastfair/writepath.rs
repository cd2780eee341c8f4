//! Writes: one leaf, under its lock.

use std::sync::atomic::Ordering;

use super::FastFair;
use super::greatest::GREATEST;
use super::tree::{LockedNode, no_leaf};
use crate::Result;
use crate::blink::{Descent, NodeRemoval, NodeSplit};

impl<const N: usize> FastFair<N> {
    /// Stores `value` under `key`, whether it is there or not, and returns the value before.
    ///
    /// # Errors
    /// No space in the pool: nothing has changed then.
    pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        if key == GREATEST {
            return Ok(self.put_greatest(value, false));
        }
        let _guard = self.pool.enter();
        loop {
            let (leaf, stray) = self.lock_leaf(key)?.ok_or_else(no_leaf)?;
            let before = match leaf.locate(key) {
                Ok(slot) => Some(self.replace(&leaf, slot, value)),
                Err(slot) if leaf.count < N => {
                    self.insert_at(&leaf, slot, (key, value));
                    None
                }
                Err(_) => {
                    self.split(leaf)?;
                    continue;
                }
            };
            drop(leaf);
            self.adopt(stray);
            return Ok(before);
        }
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        if key == GREATEST {
            return Ok(self.put_greatest(value, true));
        }
        let _guard = self.pool.enter();
        let (leaf, stray) = self.lock_leaf(key)?.ok_or_else(no_leaf)?;
        let slot = leaf.locate(key).ok();
        let before = slot.map(|slot| self.replace(&leaf, slot, value));
        drop(leaf);
        self.adopt(stray);
        Ok(before)
    }

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn remove(&self, key: u64) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        if key == GREATEST {
            return Ok(self.remove_greatest());
        }
        let guard = self.pool.enter();
        let (mut leaf, stray) = self.lock_leaf(key)?.ok_or_else(no_leaf)?;
        let Ok(slot) = leaf.locate(key) else {
            drop(leaf);
            self.adopt(stray);
            return Ok(None);
        };
        let before = leaf.node.value(slot);
        self.remove_at(&mut leaf, slot);
        let (is_empty, low) = (leaf.count == 0, leaf.node.head.low());
        drop(leaf);
        self.adopt(stray);
        if is_empty {
            // A leaf that is not given back now can be later; the entry is gone either way.
            let _ = self.give_up(0, low, &guard);
        }
        Ok(Some(before))
    }

    /// Stores another value in a slot, durably, and returns the one before.
    pub(super) fn replace(&self, leaf: &LockedNode<'_, N>, slot: usize, value: u64) -> u64 {
        let before = leaf.node.value(slot);
        // ORDER: Release pairs with the acquire in `Node::value`.
        // DURABLE: the update, or the way to another child.
        let at = &leaf.node.slots[slot].value;
        at.store_persist(&self.medium, value, Ordering::Release);
        before
    }
}
