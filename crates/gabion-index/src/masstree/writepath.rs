//! Writes: one leaf of one layer, under its lock.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Guard, PAtomicU64, POff, Reserved};

use super::layer::{Layer, LockedNode};
use super::layout::{
    FIRST_BYTES, HINT_LAYER, HINT_RECORD, KEY_BYTES_MAX, NODE_ALIGN, RECORD_BYTES, SLOTS, TO_LAYER,
};
use super::node::{Node, image};
use super::readpath::{KeySuffix, LayerLookup, SliceTarget};
use super::{Masstree, damaged, slice};
use crate::blink::{Descent, NodeInit, NodeSplit, Tree};
use crate::node_lock::NodeGuard;
use crate::{Error, Item, Result};

/// Layers that come above a record in one step: each of them is a note of the allocator.
const LAYERS_AT_ONCE: usize = 8;

/// What refers to a record: the entry of a slice in a leaf that is locked.
struct Spot<'a> {
    /// First leaf of the layer.
    first: u64,
    slice: u64,
    reference: &'a PAtomicU64,
}

/// A key at the layer where it is, or would be.
#[derive(Clone, Copy)]
struct Place<'k> {
    /// First leaf of the layer.
    first: u64,
    /// Layers above it.
    depth: usize,
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
    Record(KeySuffix<'a>),
    /// The slot leads to the record of another key.
    Other(usize, KeySuffix<'a>),
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
                    depth,
                    slice: word,
                    rest,
                };
                if rest.is_none() {
                    break place;
                }
                match self.layer(first).look(depth, word, rest, &mut must_fence)? {
                    None => continue 'root,
                    Some(LayerLookup::Below(below)) => first = below,
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
    fn find<'a>(&'a self, leaf: &LockedNode<'_>, place: &Place<'_>) -> Result<Found<'a>> {
        let Some(slot) = leaf.node.find(place.slice) else {
            return Ok(Found::Nothing);
        };
        let Some(rest) = place.rest else {
            return Ok(Found::Slot(slot));
        };
        Ok(
            match SliceTarget::new(&self.medium, leaf.node.value(slot), place.depth)? {
                SliceTarget::Layer(_) => Found::Layer,
                SliceTarget::Rest(record) if record.is(&self.medium, rest) => Found::Record(record),
                SliceTarget::Rest(record) => Found::Other(slot, record),
            },
        )
    }

    /// Stores another value in the place of a key that is there, and returns the one before.
    fn replace(&self, leaf: &LockedNode<'_>, found: &Found<'_>, value: u64) -> Option<u64> {
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
        leaf: &LockedNode<'_>,
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

    /// Puts layers in the place of a record: those of the slices that its key and that of a place
    /// have in common, and one in which they part. If somebody is in the way, there are fewer.
    ///
    /// Neither key is looked at again in between, and the record stays where it is: so the work is
    /// in proportion to what the keys have in common.
    #[cold]
    fn deepen(
        &self,
        leaf: &LockedNode<'_>,
        place: &Place<'_>,
        slot: usize,
        record: KeySuffix<'_>,
        guard: &Guard<'_>,
    ) -> Result<()> {
        debug_assert!(place.rest.is_some(), "there is more behind the slice");
        let there = record.rest(&self.medium);
        let count = slice::common(&there, place.rest.unwrap_or_default()) + 1;
        let pieces = there.chunks(slice::PIECE).take(count).enumerate();
        let slices: Vec<u64> = pieces
            .map(|(number, _)| slice::of_bytes(&there[number * slice::PIECE..]))
            .collect();
        let mut spot = Spot {
            first: place.first,
            slice: place.slice,
            reference: &leaf.node.body.slots[slot].value,
        };
        record.note_origin(&self.medium, place.depth);
        // That of the last layer so far, where the record is now.
        let mut lock: Option<(u64, NodeGuard<'_>)> = None;
        for slices in slices.chunks(LAYERS_AT_ONCE) {
            let last = lock.iter().map(|(_, lock)| lock);
            let held: Vec<&NodeGuard<'_>> = std::iter::once(&leaf.lock).chain(last).collect();
            let Some(added) = self.add_layers(&held, &spot, slices, record, guard)? else {
                return Ok(());
            };
            spot = added.0;
            // A lock that is held already stays with its holder.
            let is_one = |(first, _): &(u64, _)| self.locks.are_one(*first, spot.first);
            if !lock.as_ref().is_some_and(is_one) {
                lock = Some((spot.first, added.1));
            }
        }
        Ok(())
    }

    /// Puts the layers of some slices of the key of a record between what refers to it and the
    /// record. Returns what refers to it then, with its lock; none if somebody is in the way.
    fn add_layers<'a>(
        &'a self,
        held: &[&NodeGuard<'a>],
        spot: &Spot<'_>,
        slices: &[u64],
        record: KeySuffix<'_>,
        guard: &Guard<'_>,
    ) -> Result<Option<(Spot<'a>, NodeGuard<'a>)>> {
        let reserve = |_| self.pool.alloc_aligned(FIRST_BYTES, NODE_ALIGN, HINT_LAYER);
        let spaces = slices.iter().map(reserve);
        let spaces: Vec<Reserved<'_>> = spaces.collect::<gabion_media::Result<_>>()?;
        let firsts: Vec<u64> = spaces
            .iter()
            .map(|space| space.offset::<u8>().raw())
            .collect();
        let (Some(&top), Some(&last), Some(&slice)) =
            (firsts.first(), firsts.last(), slices.last())
        else {
            return Ok(None);
        };
        // Nobody takes the record of the last layer away, and then the layers, before the allocator
        // knows that they are in use.
        let Some(lock) = self.locks.try_beside(held, last) else {
            return Ok(None);
        };
        let is_end = slice::is_last::<K>(slice);
        let end = if is_end { record.value() } else { record.at };
        let below = firsts
            .iter()
            .skip(1)
            .map(|first| first | TO_LAYER)
            .chain([end]);
        let mut above = [spot.first, spot.slice];
        for ((&first, &slice), value) in firsts.iter().zip(slices).zip(below) {
            let mut bytes = image(&NodeInit::lone(0), first, &[(slice, value)]);
            bytes.extend(above.into_iter().flat_map(u64::to_le_bytes));
            self.medium.write(first, &bytes);
            self.medium.flush_range(first, FIRST_BYTES);
            above = [first, slice];
        }
        let old: POff<u8> = POff::new(record.at);
        let retiring = is_end.then(|| self.pool.retire(old, spot.first | HINT_RECORD));
        let retiring = retiring.transpose()?;
        // DURABLE: the layers, and for which one the record was made, before anything leads to
        // them; what the allocator noted.
        self.medium.fence();
        // ORDER: Release pairs with the acquire in `Node::value`.
        // DURABLE: the layers.
        spot.reference
            .store_persist(&self.medium, top | TO_LAYER, Ordering::Release);
        for space in spaces {
            space.commit::<u8>();
        }
        if let Some(retiring) = retiring {
            retiring.commit(guard);
        }
        let node = Node::new(&self.medium, last).ok_or_else(|| damaged(last))?;
        let spot = Spot {
            first: last,
            slice,
            reference: &node.body.slots[0].value,
        };
        Ok(Some((spot, lock)))
    }
}
