//! Writes: one leaf or its write buffer, under the lock of its node.
//!
//! A node that has a buffer, or gets one, takes inserts and updates there, after the logs have
//! them. That costs no look at the leaf unless the filter says that the key may be in it. A delete
//! goes to the logs if the buffer has the key, and to the leaf if that has it, in this order: so
//! whatever a crash leaves, the older value in the leaf does not come back (the paper's rule for
//! deletes).
//!
//! If there is no room for the logs, the buffer goes to the leaf and the write with it, as it does
//! without buffers. So the logs never make a write fail.

use super::SpTree;
use super::bloom::tag_of;
use super::buffer::{Buffer, buffered_max};
use super::leaf::{Leaf, Tagged};
use super::log::Logged;
use super::mnode::Locked;
use super::readpath::Search;
use super::steps::{Step, is_made};
use crate::Result;

/// Where a node has a key: at a place of its buffer, and then nobody has looked for it in the leaf,
/// or in a slot of the leaf.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    place: Option<usize>,
    slot: Option<usize>,
    value: Option<u64>,
}

impl<const N: usize> SpTree<N> {
    /// Stores `value` under `key`, whether it is there or not, and returns the value before.
    ///
    /// # Errors
    /// No space in the pool: nothing has changed then.
    pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let hash = self.seed.hash_u64(key);
        let tag = tag_of(hash);
        let entry = Tagged { key, value, tag };
        self.tend_logs()?;
        let mut search = Search::new(self, key);
        loop {
            let node = search.lock();
            let leaf = self.leaf(node.leaf())?;
            let found = if node.bloom.may_hold(hash) {
                self.find_in(&node, &leaf, key, tag)
            } else {
                Found::default()
            };
            if found.value.is_none() && node.count() == N {
                self.split(node)?;
                continue;
            }
            self.put(&node, &leaf, entry, found)?;
            if found.value.is_none() {
                node.bloom.add(hash);
                node.set_count(node.count() + 1);
                node.note_change();
            }
            return Ok(found.value);
        }
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let hash = self.seed.hash_u64(key);
        let tag = tag_of(hash);
        self.tend_logs()?;
        let Some(node) = self.lock_if_held(key, hash) else {
            return Ok(None);
        };
        let leaf = self.leaf(node.leaf())?;
        let found = self.find_in(&node, &leaf, key, tag);
        if found.value.is_some() {
            self.put(&node, &leaf, Tagged { key, value, tag }, found)?;
        }
        Ok(found.value)
    }

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn remove(&self, key: u64) -> Result<Option<u64>> {
        let hash = self.seed.hash_u64(key);
        self.tend_logs()?;
        let Some(node) = self.lock_if_held(key, hash) else {
            return Ok(None);
        };
        let leaf = self.leaf(node.leaf())?;
        let found = self.find_in(&node, &leaf, key, tag_of(hash));
        if found.value.is_none() {
            return Ok(None);
        }
        self.take_out(&node, &leaf, key, found)?;
        node.set_count(node.count() - 1);
        if node.count() <= N / 4 {
            // Leaves that are not merged now can be later; the entry is gone either way.
            let _ = self.merge_around(node);
        }
        Ok(found.value)
    }

    /// The node of a key, locked; none if its filter knows that the key is not there.
    #[inline]
    fn lock_if_held(&self, key: u64, hash: u64) -> Option<Locked<'_>> {
        let mut search = Search::new(self, key);
        loop {
            let seen = search.node();
            if !seen.node.bloom.may_hold(hash) {
                if seen.node.is_still(seen.word) {
                    return None;
                }
                continue;
            }
            if let Some(node) = seen.node.lock_seen(seen.number, seen.word) {
                return Some(node);
            }
        }
    }

    #[inline]
    fn find_in(&self, node: &Locked<'_>, leaf: &Leaf<'_, N>, key: u64, tag: u8) -> Found {
        let buffer = self.buffer_of(node);
        if let Some((place, value)) = buffer.and_then(|buffer| buffer.find(key, tag)) {
            return Found {
                place: Some(place),
                value: Some(value),
                ..Found::default()
            };
        }
        let slot = leaf.find(key, tag);
        Found {
            slot,
            value: slot.map(|slot| leaf.value(slot)),
            ..Found::default()
        }
    }

    /// Stores an entry, for which there is room.
    #[inline]
    fn put(
        &self,
        node: &Locked<'_>,
        leaf: &Leaf<'_, N>,
        entry: Tagged,
        found: Found,
    ) -> Result<()> {
        let Some(buffer) = self.buffer_for(node)? else {
            put_into(leaf, entry, found.slot);
            return Ok(());
        };
        if found.place.is_none() && buffer.count() == buffered_max(N) {
            self.flush(node)?;
        }
        if self.log(node, entry.key, Some(entry.value)) {
            put_aside(buffer, entry, found.place);
            node.note_change();
            return Ok(());
        }
        self.flush(node)?;
        put_into(leaf, entry, leaf.find(entry.key, entry.tag));
        Ok(())
    }

    /// Takes an entry away that is there.
    #[inline]
    fn take_out(
        &self,
        node: &Locked<'_>,
        leaf: &Leaf<'_, N>,
        key: u64,
        found: Found,
    ) -> Result<()> {
        let mut slot = found.slot;
        if let (Some(buffer), Some(place)) = (self.buffer_of(node), found.place) {
            if !is_made(Step::DeleteRecord) || self.log(node, key, None) {
                buffer.remove(place);
            } else {
                self.flush(node)?;
            }
            if is_made(Step::DeleteOlder) {
                slot = leaf.find(key, tag_of(self.seed.hash_u64(key)));
            }
        }
        if let Some(slot) = slot {
            leaf.remove(slot);
        }
        Ok(())
    }

    /// Writes the next change of a node to the logs, durably; false if there is no room for it.
    #[inline]
    fn log(&self, node: &Locked<'_>, key: u64, value: Option<u64>) -> bool {
        let number = node.last() + 1;
        let is_logged = self.logs.append(Logged { key, number, value });
        if is_logged {
            node.set_last(number);
        }
        is_logged
    }
}

/// Stores an entry in a leaf, durably: in the slot that has its key, or in a free one.
#[inline]
fn put_into<const N: usize>(leaf: &Leaf<'_, N>, entry: Tagged, slot: Option<usize>) {
    match slot {
        Some(slot) => {
            leaf.replace(slot, entry.value);
        }
        None => leaf.put(&[entry]),
    }
}

/// Stores an entry in a buffer: in the place that has its key, or in a free one.
#[inline]
fn put_aside(buffer: &Buffer, entry: Tagged, place: Option<usize>) {
    match place {
        Some(place) => buffer.set_value(place, entry.value),
        None => buffer.push(entry),
    }
}
