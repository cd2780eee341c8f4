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
//!
//! In a tree of strings the new item is flushed before the fence that comes before the store which
//! leads to it, and the old one is retired behind that; there are no buffers.

use gabion_media::pmem::POff;

use super::bloom::tag_of;
use super::buffer::{Buffer, buffered_max};
use super::item::{self, LEAST, Room};
use super::layout::ITEM_HINT;
use super::leaf::{Leaf, Tagged};
use super::log::LoggedChange;
use super::mnode::LockedNode;
use super::readpath::NodeSearch;
use super::steps::{Step, is_taken};
use super::{SpTree, TreeKey};
use crate::stored_key::KeyParts;
use crate::{Error, Result};

/// Where a node has a key: at a place of its buffer, and then nobody has looked for it in the leaf,
/// or in a slot of the leaf. The value is the second word of the pair.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    place: Option<usize>,
    slot: Option<usize>,
    value: Option<u64>,
}

/// A value to be written: a word or a string, whichever the tree has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'v> {
    Word(u64),
    Bytes(&'v [u8], Room),
}

/// What is to be written.
struct New<'n, K: ?Sized> {
    key: &'n K,
    value: Value<'n>,
    tag: u8,
}

impl<const N: usize> SpTree<u64, N> {
    /// Stores `value` under `key`, whether it is there or not, and returns the value before.
    ///
    /// # Errors
    /// No space in the pool: nothing has changed then.
    pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>> {
        self.insert_value(&key, Value::Word(value))
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        self.update_value(&key, Value::Word(value))
    }

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn remove(&self, key: u64) -> Result<Option<u64>> {
        self.remove_value(&key)
    }
}

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// Stores a value under a key, whether it is there or not, and returns the second word of the
    /// pair before, which the caller's pins keep.
    #[inline]
    pub(super) fn insert_value(&self, key: &K, value: Value<'_>) -> Result<Option<u64>> {
        let hash = key.seeded_hash(&self.seed);
        let tag = tag_of(hash);
        let new = New { key, value, tag };
        let _within = self.pool.write_guard();
        self.tend()?;
        let mut search = NodeSearch::new(self, key);
        loop {
            let node = search.lock()?;
            let leaf = self.leaf(node.leaf())?;
            let found = if node.bloom.may_hold(hash) {
                self.find_in(&node, &leaf, key, tag)?
            } else {
                Found::default()
            };
            if found.value.is_none() && self.is_full(&node, value) {
                self.split(node)?;
                continue;
            }
            self.store(&node, &leaf, &new, found)?;
            if found.value.is_none() {
                node.bloom.add(hash);
                node.set_count(node.count() + 1);
                node.note_change();
            }
            return Ok(found.value);
        }
    }

    /// Whether a leaf has no slot for a new pair. The last one of the first leaf is kept for a pair
    /// whose item lies in what the pool keeps back, so that this one never waits for a split.
    #[inline]
    fn is_full(&self, node: &LockedNode<'_>, value: Value<'_>) -> bool {
        let is_kept = matches!(value, Value::Bytes(_, Room::Kept));
        let keeps_one = || self.keeps_slot && node.lkey() == LEAST && !is_kept;
        match N - node.count().min(N) {
            0 => true,
            1 => keeps_one(),
            _ => false,
        }
    }

    /// As [`SpTree::insert_value`], if the key is there.
    #[inline]
    pub(super) fn update_value(&self, key: &K, value: Value<'_>) -> Result<Option<u64>> {
        let hash = key.seeded_hash(&self.seed);
        let tag = tag_of(hash);
        let _within = self.pool.write_guard();
        self.tend()?;
        let Some(node) = self.lock_if_held(key, hash)? else {
            return Ok(None);
        };
        let leaf = self.leaf(node.leaf())?;
        let found = self.find_in(&node, &leaf, key, tag)?;
        if found.value.is_some() {
            self.store(&node, &leaf, &New { key, value, tag }, found)?;
        }
        Ok(found.value)
    }

    /// Deletes a key and returns the second word of its pair, which the caller's pins keep.
    #[inline]
    pub(super) fn remove_value(&self, key: &K) -> Result<Option<u64>> {
        let hash = key.seeded_hash(&self.seed);
        let _within = self.pool.write_guard();
        self.tend()?;
        let Some(node) = self.lock_if_held(key, hash)? else {
            return Ok(None);
        };
        let leaf = self.leaf(node.leaf())?;
        let found = self.find_in(&node, &leaf, key, tag_of(hash))?;
        if found.value.is_none() {
            return Ok(None);
        }
        let Some(left) = node.count().checked_sub(1) else {
            return Err(Error::damaged("the bitmap of an empty leaf", leaf.at));
        };
        self.take_out(&node, &leaf, key, found)?;
        node.set_count(left);
        if left <= N / 4 {
            // Leaves that are not merged now can be later; the entry is gone either way.
            let _ = self.merge_around(node);
        }
        Ok(found.value)
    }

    /// The node of a key, locked; none if its filter knows that the key is not there.
    #[inline]
    fn lock_if_held(&self, key: &K, hash: u64) -> Result<Option<LockedNode<'_>>> {
        let mut search = NodeSearch::new(self, key);
        loop {
            let seen = search.node()?;
            if !seen.node.bloom.may_hold(hash) {
                if seen.node.is_still(seen.word) {
                    return Ok(None);
                }
                continue;
            }
            if let Some(node) = seen.node.lock_seen(seen.number, seen.word) {
                return Ok(Some(node));
            }
        }
    }

    #[inline]
    fn find_in(
        &self,
        node: &LockedNode<'_>,
        leaf: &Leaf<'_, N>,
        key: &K,
        tag: u8,
    ) -> Result<Found> {
        let buffer = self.buffer_of(node);
        if let Some((place, value)) = buffer.and_then(|buffer| buffer.find(key.word(), tag)) {
            return Ok(Found {
                place: Some(place),
                value: Some(value),
                ..Found::default()
            });
        }
        let slot = leaf.find(key, tag)?;
        Ok(Found {
            slot,
            value: slot.map(|slot| leaf.value(slot)),
            ..Found::default()
        })
    }

    /// Stores an entry, for which there is room.
    #[inline]
    fn store(
        &self,
        node: &LockedNode<'_>,
        leaf: &Leaf<'_, N>,
        new: &New<'_, K>,
        found: Found,
    ) -> Result<()> {
        let value = match new.value {
            Value::Word(value) => value,
            Value::Bytes(bytes, room) => {
                return self.put_item(leaf, new, (bytes, room), found.slot);
            }
        };
        let entry = Tagged {
            key: new.key.word(),
            value,
            tag: new.tag,
        };
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
        put_into(leaf, entry, leaf.find(new.key, entry.tag)?);
        Ok(())
    }

    /// Stores an item in a leaf: in the slot that has its key, or in a free one.
    #[inline]
    fn put_item(
        &self,
        leaf: &Leaf<'_, N>,
        new: &New<'_, K>,
        (value, room): (&[u8], Room),
        slot: Option<usize>,
    ) -> Result<()> {
        let item = item::reserve(&self.pool, new.key.bytes(), value, room)?;
        let at = item.offset::<u8>().raw();
        let Some(slot) = slot else {
            leaf.put(&[Tagged {
                key: KeyParts::of(new.key).word,
                value: at,
                tag: new.tag,
            }]);
            item.commit::<u8>();
            return Ok(());
        };
        let old = POff::<u8>::new(leaf.value(slot));
        let retiring = self.pool.retire(old, ITEM_HINT)?;
        // DURABLE: the item, and the notes of both, before the pair leads from one to the other.
        self.medium.fence();
        leaf.replace(slot, at);
        item.commit::<u8>();
        retiring.commit(&self.pool.enter());
        Ok(())
    }

    /// Takes an entry away that is there.
    #[inline]
    fn take_out(
        &self,
        node: &LockedNode<'_>,
        leaf: &Leaf<'_, N>,
        key: &K,
        found: Found,
    ) -> Result<()> {
        let mut slot = found.slot;
        if let (Some(buffer), Some(place)) = (self.buffer_of(node), found.place) {
            if !is_taken(Step::DeleteRecord) || self.log(node, key.word(), None) {
                buffer.remove(place);
            } else {
                self.flush(node)?;
            }
            if is_taken(Step::DeleteOlder) {
                slot = leaf.find(key, tag_of(key.seeded_hash(&self.seed)))?;
            }
        }
        match slot {
            Some(slot) if K::IS_WORD => {
                leaf.remove(slot);
            }
            Some(slot) => {
                let old = POff::<u8>::new(leaf.value(slot));
                let retiring = self.pool.retire(old, ITEM_HINT)?;
                // DURABLE: the note that the item goes.
                self.medium.fence();
                leaf.remove(slot);
                retiring.commit(&self.pool.enter());
            }
            None => {}
        }
        Ok(())
    }

    /// Writes the next change of a node to the logs, durably; false if there is no room for it.
    #[inline]
    fn log(&self, node: &LockedNode<'_>, key: u64, value: Option<u64>) -> bool {
        let number = node.last() + 1;
        let is_logged = self.logs.append(LoggedChange { key, number, value });
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
