//! Writes: one leaf of one layer, under its lock.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Guard, POff, Reserved};

use super::layer::{Layer, Locked};
use super::layout::{
    FIRST_BYTES, HINT_LAYER, HINT_RECORD, KEY_BYTES_MAX, NODE_ALIGN, RECORD_BYTES, SLOTS, TO_LAYER,
};
use super::node::image;
use super::readpath::{Known, Rest, Target};
use super::{Masstree, slice};
use crate::blink::{Born, Descent, Growth, Tree};
use crate::{Error, Item, Result};

/// A key at the layer where it is, or would be.
#[derive(Clone, Copy)]
struct Place<'k> {
    /// First leaf of the layer.
    first: u64,
    slice: u64,
    /// What the key has behind the slice, if that is not its last.
    rest: Option<&'k [u8]>,
}

/// What a locked leaf has for a key.
enum Found<'a> {
    Nothing,
    /// The slot holds the value.
    Slot(usize),
    /// The slot leads to the record of the key.
    Record(Rest<'a>),
    /// The slot leads to the record of another key.
    Other(usize, Rest<'a>),
    /// The slot leads to a layer, since a moment ago.
    Layer,
}

impl<K: Item + ?Sized> Masstree<K> {
    /// Stores `value` under `key`, whether it is there or not, and returns the value before.
    ///
    /// # Errors
    /// No space in the pool, or a key that is too long: nothing has changed then.
    pub fn insert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        let bytes = key.bytes().len() as u64;
        if bytes > KEY_BYTES_MAX {
            return Err(Error::TooLong { bytes });
        }
        loop {
            let guard = self.pool.enter();
            let place = self.seek(key)?;
            let layer = self.layer(place.first);
            let Some((leaf, stray)) = layer.lock_leaf(place.slice)? else {
                continue;
            };
            match self.find(&leaf, &place)? {
                Found::Nothing if leaf.count < SLOTS => self.add(&layer, &leaf, &place, value)?,
                Found::Nothing => {
                    layer.split(leaf)?;
                    continue;
                }
                Found::Other(slot, record) => {
                    self.deepen(&leaf, &place, slot, record, &guard)?;
                    continue;
                }
                Found::Layer => continue,
                there => {
                    let before = self.replace(&leaf, &there, value);
                    drop(leaf);
                    layer.adopt(stray);
                    return Ok(before);
                }
            }
            drop(leaf);
            layer.adopt(stray);
            return Ok(None);
        }
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        loop {
            let _guard = self.pool.enter();
            let place = self.seek(key)?;
            let layer = self.layer(place.first);
            let Some((leaf, stray)) = layer.lock_leaf(place.slice)? else {
                continue;
            };
            let found = self.find(&leaf, &place)?;
            if matches!(found, Found::Layer) {
                continue;
            }
            let before = self.replace(&leaf, &found, value);
            drop(leaf);
            layer.adopt(stray);
            return Ok(before);
        }
    }

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn remove(&self, key: &K) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        loop {
            let guard = self.pool.enter();
            let place = self.seek(key)?;
            let layer = self.layer(place.first);
            let Some((mut leaf, stray)) = layer.lock_leaf(place.slice)? else {
                continue;
            };
            let before = match self.find(&leaf, &place)? {
                Found::Layer => continue,
                Found::Nothing | Found::Other(..) => None,
                Found::Slot(slot) => {
                    let before = leaf.node.value(slot);
                    layer.remove_entry(&mut leaf, place.slice);
                    Some(before)
                }
                Found::Record(record) => {
                    let before = record.value();
                    let space: POff<u8> = POff::new(record.at);
                    let retiring = self.pool.retire(space, place.first | HINT_RECORD)?;
                    // DURABLE: what the allocator noted.
                    self.medium.fence();
                    layer.remove_entry(&mut leaf, place.slice);
                    retiring.commit(&guard);
                    Some(before)
                }
            };
            let (is_empty, low) = (leaf.count == 0, leaf.node.body.head.low());
            drop(leaf);
            layer.adopt(stray);
            if before.is_some() && is_empty {
                // What is not given back now can be later; the entry is gone either way.
                let _ = self.prune(place.first, low, &guard);
            }
            return Ok(before);
        }
    }

    /// The layer that a key is in, or would be, as far as layers go; the way there is durable.
    fn seek<'k>(&self, key: &'k K) -> Result<Place<'k>> {
        'root: loop {
            let mut must_fence = false;
            let (mut first, mut depth) = (self.root, 0);
            let place = loop {
                let word = slice::of(key, depth);
                let rest = (!slice::is_last::<K>(word)).then(|| slice::rest(key, depth));
                let place = Place {
                    first,
                    slice: word,
                    rest,
                };
                if rest.is_none() {
                    break place;
                }
                match self.layer(first).look(word, rest, &mut must_fence)? {
                    None => continue 'root,
                    Some(Known::Below(below)) => first = below,
                    Some(_) => break place,
                }
                depth += 1;
            };
            if must_fence {
                // DURABLE: the way, before anything that is only reached over it.
                self.medium.fence();
            }
            return Ok(place);
        }
    }

    /// What a locked leaf has for a key.
    fn find<'a>(&'a self, leaf: &Locked<'_>, place: &Place<'_>) -> Result<Found<'a>> {
        let Some(slot) = leaf.node.find(place.slice) else {
            return Ok(Found::Nothing);
        };
        let Some(rest) = place.rest else {
            return Ok(Found::Slot(slot));
        };
        Ok(match Target::new(&self.medium, leaf.node.value(slot))? {
            Target::Layer(_) => Found::Layer,
            Target::Rest(record) if record.is(&self.medium, rest) => Found::Record(record),
            Target::Rest(record) => Found::Other(slot, record),
        })
    }

    /// Stores another value in the place of a key that is there, and returns the one before.
    fn replace(&self, leaf: &Locked<'_>, found: &Found<'_>, value: u64) -> Option<u64> {
        let word = match found {
            Found::Slot(slot) => &leaf.node.body.slots[*slot].value,
            Found::Record(record) => &record.record.value,
            _ => return None,
        };
        // ORDER: Acquire, Release: pairs with the loads of readers.
        let before = word.peek(Ordering::Acquire);
        // DURABLE: the update.
        word.store_persist(&self.medium, value, Ordering::Release);
        Some(before)
    }

    /// Adds a key to a leaf that has room for it.
    fn add(
        &self,
        layer: &Layer<'_>,
        leaf: &Locked<'_>,
        place: &Place<'_>,
        value: u64,
    ) -> Result<()> {
        let Some(rest) = place.rest else {
            layer.insert_entry(leaf, (place.slice, value));
            return Ok(());
        };
        let record = self.new_record(place.first, place.slice, value, rest)?;
        let at = record.offset::<u8>().raw();
        // Its fence between slot and permutation is also that of the record.
        layer.insert_entry(leaf, (place.slice, at));
        record.commit::<u8>();
        Ok(())
    }

    /// Reserves and writes a record of a layer, without a fence.
    fn new_record(&self, first: u64, slice: u64, value: u64, rest: &[u8]) -> Result<Reserved<'_>> {
        let size = RECORD_BYTES + rest.len() as u64;
        let record = self.pool.alloc(size, first | HINT_RECORD)?;
        let at = record.offset::<u8>().raw();
        let words = [value, slice, rest.len() as u64];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend_from_slice(rest);
        self.medium.write(at, &bytes);
        self.medium.flush_range(at, size);
        Ok(record)
    }

    /// Puts a layer with the key of a record in the place of that record, unless somebody is in the
    /// way.
    #[cold]
    fn deepen(
        &self,
        leaf: &Locked<'_>,
        place: &Place<'_>,
        slot: usize,
        record: Rest<'_>,
        guard: &Guard<'_>,
    ) -> Result<()> {
        debug_assert!(place.rest.is_some(), "there is more behind the slice");
        let rest = record.rest(&self.medium);
        let word = slice::of_bytes(&rest);
        let space = self
            .pool
            .alloc_aligned(FIRST_BYTES, NODE_ALIGN, HINT_LAYER)?;
        let first = space.offset::<u8>().raw();
        // Nobody takes the record of the new layer away before the allocator knows that it is in
        // use.
        let Some(_layer_lock) = self.locks.try_beside(&[&leaf.lock], first) else {
            return Ok(());
        };
        let (shorter, value) = if slice::is_last::<K>(word) {
            (None, record.value())
        } else {
            let rest = slice::rest_of_bytes(&rest);
            let shorter = self.new_record(first, word, record.value(), rest)?;
            let at = shorter.offset::<u8>().raw();
            (Some(shorter), at)
        };
        let mut bytes = image(&Born::lone(0), first, &[(word, value)]);
        bytes.extend(
            [place.first, place.slice]
                .into_iter()
                .flat_map(u64::to_le_bytes),
        );
        self.medium.write(first, &bytes);
        self.medium.flush_range(first, FIRST_BYTES);
        let old: POff<u8> = POff::new(record.at);
        let retiring = self.pool.retire(old, place.first | HINT_RECORD)?;
        // DURABLE: the layer and its record, before anything leads to them; what the allocator
        // noted.
        self.medium.fence();
        let reference = &leaf.node.body.slots[slot].value;
        // ORDER: Release pairs with the acquire in `Node::value`.
        // DURABLE: the layer.
        reference.store_persist(&self.medium, first | TO_LAYER, Ordering::Release);
        space.commit::<u8>();
        if let Some(shorter) = shorter {
            shorter.commit::<u8>();
        }
        retiring.commit(guard);
        Ok(())
    }
}
