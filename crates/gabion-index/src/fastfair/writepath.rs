//! Writes: one leaf, under its lock.

use std::sync::atomic::Ordering;

use super::FastFair;
use super::greatest::GREATEST;
use super::node::{MOVES_LEFT, MOVES_RIGHT, Node, Range};
use super::readpath::has;
use crate::Result;
use crate::node_lock::NodeLock;

/// A node that is locked and has no dead slot.
pub(super) struct Locked<'a, const N: usize> {
    pub(super) node: Node<'a, N>,
    pub(super) range: Range,
    /// Slots in use.
    pub(super) count: usize,
    pub(super) lock: NodeLock<'a>,
}

impl<const N: usize> Locked<'_, N> {
    /// The slot of `key`, or the one where it would go.
    pub(super) fn locate(&self, key: u64) -> std::result::Result<usize, usize> {
        let rank = self.node.rank(key);
        match rank.checked_sub(1) {
            Some(slot) if self.node.key(slot) == key => Ok(slot),
            _ => Err(rank),
        }
    }
}

impl<const N: usize> FastFair<N> {
    /// Stores `value` under `key`, whether it is there or not, and returns the value before.
    ///
    /// # Errors
    /// No space in the pool: nothing has changed then.
    pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>> {
        if key == GREATEST {
            return Ok(self.put_greatest(value, false));
        }
        let _guard = self.pool.enter();
        loop {
            let (leaf, stray) = self.lock_leaf(key)?;
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
        if key == GREATEST {
            return Ok(self.put_greatest(value, true));
        }
        let _guard = self.pool.enter();
        let (leaf, stray) = self.lock_leaf(key)?;
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
        if key == GREATEST {
            return Ok(self.remove_greatest());
        }
        let guard = self.pool.enter();
        let (mut leaf, stray) = self.lock_leaf(key)?;
        let Ok(slot) = leaf.locate(key) else {
            drop(leaf);
            self.adopt(stray);
            return Ok(None);
        };
        let before = leaf.node.value(slot);
        self.remove_at(&mut leaf, slot);
        let (is_empty, low) = (leaf.count == 0, leaf.node.low());
        drop(leaf);
        self.adopt(stray);
        if is_empty {
            // A leaf that is not given back now can be later; the entry is gone either way.
            let _ = self.give_up(0, low, &guard);
        }
        Ok(Some(before))
    }

    /// Stores another value in a slot and returns the one before.
    fn replace(&self, leaf: &Locked<'_, N>, slot: usize, value: u64) -> u64 {
        let before = leaf.node.value(slot);
        // ORDER: Release pairs with the acquire in `Node::value`.
        // DURABLE: the update.
        let at = &leaf.node.slots[slot].value;
        at.store_persist(&self.medium, value, Ordering::Release);
        before
    }

    /// Inserts an entry into a node that has room for it.
    pub(super) fn insert_at(&self, node: &Locked<'_, N>, slot: usize, entry: (u64, u64)) {
        node.lock.set_turn(MOVES_RIGHT);
        node.node.insert(&self.medium, slot, node.count, entry);
    }

    /// Takes an entry out of a node.
    pub(super) fn remove_at(&self, node: &mut Locked<'_, N>, slot: usize) {
        node.lock.set_turn(MOVES_LEFT);
        node.node.remove(&self.medium, slot, node.count);
        node.count -= 1;
    }

    /// Locks the leaf of `key`. With it comes the last node that was reached from its left
    /// neighbour: its parent may not know of it.
    fn lock_leaf(&self, key: u64) -> Result<(Locked<'_, N>, Option<Node<'_, N>>)> {
        loop {
            let mut stray = None;
            let leaf = self.descend_by(0, key, |from, to| {
                stray = Some(to);
                if self.locks.is_locked(from.at) {
                    // DURABLE: the link, before anything that is only reached over it.
                    self.medium.persist(from.head);
                }
            })?;
            if let Some(leaf) = self.lock(leaf, key) {
                return Ok((leaf, stray));
            }
        }
    }

    /// Locks a node and puts it in order; none if `key` does not belong there any more.
    pub(super) fn lock<'a>(&'a self, node: Node<'a, N>, key: u64) -> Option<Locked<'a, N>> {
        let lock = self.locks.lock(node.at);
        let range = node.range();
        has(range, key).then(|| self.tidy(node, range, lock))
    }

    /// Closes the slot that a crash left dead.
    pub(super) fn tidy<'a>(
        &self,
        node: Node<'a, N>,
        range: Range,
        lock: NodeLock<'a>,
    ) -> Locked<'a, N> {
        let survey = node.survey(range.bound);
        let count = survey.count;
        let mut locked = Locked {
            node,
            range,
            count,
            lock,
        };
        if let Some(dead) = survey.dead {
            self.remove_at(&mut locked, dead);
        }
        locked
    }
}
