//! Reads: through the layers without locks.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Medium, POff};

use super::layer::Layer;
use super::layout::{ORIGIN_SHIFT, RECORD_BYTES, SuffixRecord, TO_LAYER};
use super::node::Node;
use super::{Masstree, damaged, slice};
use crate::blink::{Descent, NodeRange};
use crate::node_lock::LockVersion;
use crate::{Item, Result};

/// What a slice with more behind it leads to.
pub(super) enum SliceTarget<'a> {
    /// The rest of one key.
    Rest(KeySuffix<'a>),
    /// The layer with this first leaf.
    Layer(u64),
}

/// A record, as it is read in the layer of some depth.
#[derive(Clone, Copy)]
pub(super) struct KeySuffix<'a> {
    pub(super) record: &'a SuffixRecord,
    pub(super) at: u64,
    /// Bytes of the key in the record.
    len: u64,
    /// How many of them stand in slices of layers that came above the record since.
    skip: u64,
}

/// What a layer knows of a key.
pub(super) enum LayerLookup {
    /// It is not there.
    Nothing,
    /// Its value.
    Value(u64),
    /// The layer with this first leaf knows.
    Below(u64),
}

impl<'a> SliceTarget<'a> {
    /// What a reference in the layer of a depth leads to.
    pub(super) fn new(medium: &'a Medium, reference: u64, depth: usize) -> Result<SliceTarget<'a>> {
        if reference & TO_LAYER != 0 {
            let first = reference & !TO_LAYER;
            let node = Node::new(medium, first).filter(|_| reference > TO_LAYER);
            return node
                .map(|_| SliceTarget::Layer(first))
                .ok_or_else(|| damaged(first));
        }
        KeySuffix::new(medium, reference, depth)
            .map(SliceTarget::Rest)
            .ok_or_else(|| damaged(reference))
    }
}

// ORDER: Acquire throughout: pairs with the release that made the record reachable, and for values
// with that of an update.
impl<'a> KeySuffix<'a> {
    /// The record at an offset, to which the layer of a depth refers, if there can be one.
    pub(super) fn new(medium: &'a Medium, at: u64, depth: usize) -> Option<KeySuffix<'a>> {
        let record: &SuffixRecord = medium.try_at(POff::new(at))?;
        medium.touch(record);
        let (len, origin) = unpack(record.len.peek(Ordering::Acquire));
        let above = match origin {
            Some(origin) => (depth as u64).checked_sub(origin)?,
            None => 0,
        };
        let skip = above.checked_mul(slice::PIECE as u64)?;
        let end = at.checked_add(RECORD_BYTES)?.checked_add(len)?;
        (at != 0 && end <= medium.len() && skip <= len).then_some(KeySuffix {
            record,
            at,
            len,
            skip,
        })
    }

    /// The depth of the layer that the record was made for, if another one refers to it.
    pub(super) fn origin(medium: &'a Medium, at: u64) -> Option<u64> {
        let record: &SuffixRecord = medium.try_at(POff::new(at))?;
        unpack(record.len.load(medium, Ordering::Acquire)).1
    }

    /// Says of which depth the layer is that refers to the record, before another one does. The
    /// caller fences before that.
    pub(super) fn note_origin(&self, medium: &Medium, depth: usize) {
        let (len, origin) = unpack(self.record.len.peek(Ordering::Acquire));
        if origin.is_none() {
            let word = len | (depth as u64 + 1) << ORIGIN_SHIFT;
            // ORDER: Release: pairs with the acquire of readers.
            self.record.len.store(medium, word, Ordering::Release);
            medium.flush(&self.record.len);
        }
    }

    /// Bytes of the record.
    pub(super) fn bytes(&self) -> u64 {
        RECORD_BYTES + self.len
    }

    /// The value.
    pub(super) fn value(&self) -> u64 {
        self.record.value.peek(Ordering::Acquire)
    }

    /// The slice that leads here.
    pub(super) fn slice(&self, medium: &Medium) -> u64 {
        let Some(before) = self.skip.checked_sub(slice::PIECE as u64) else {
            return self.record.slice.peek(Ordering::Acquire);
        };
        let mut bytes = [0; slice::PIECE + 1];
        let left = usize::try_from(self.len - before).unwrap_or(usize::MAX);
        let count = left.min(bytes.len());
        medium.read(self.at + RECORD_BYTES + before, &mut bytes[..count]);
        slice::of_bytes(&bytes[..count])
    }

    /// The record as a layer so many more levels below has it; none if the key is no longer.
    pub(super) fn below(self) -> Option<KeySuffix<'a>> {
        let skip = self.skip + slice::PIECE as u64;
        (skip <= self.len).then_some(KeySuffix { skip, ..self })
    }

    /// Whether these bytes are the rest of the key.
    pub(super) fn is(&self, medium: &Medium, rest: &[u8]) -> bool {
        self.len - self.skip == rest.len() as u64 && medium.equals(self.rest_at(), rest)
    }

    /// The rest of the key.
    pub(super) fn rest(&self, medium: &Medium) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len - self.skip).unwrap_or(0)];
        medium.read(self.rest_at(), &mut bytes);
        bytes
    }

    fn rest_at(&self) -> u64 {
        self.at + RECORD_BYTES + self.skip
    }
}

/// The bytes of a record, and the depth of the layer that it was made for, if that is told.
fn unpack(word: u64) -> (u64, Option<u64>) {
    (
        word & ((1 << ORIGIN_SHIFT) - 1),
        (word >> ORIGIN_SHIFT).checked_sub(1),
    )
}

/// A leaf as a reader found it.
#[derive(Clone, Copy)]
pub(super) struct LeafView<'a> {
    pub(super) leaf: Node<'a>,
    pub(super) stamp: LockVersion,
    pub(super) range: NodeRange,
}

impl<'t> Layer<'t> {
    /// Looks at a leaf.
    #[inline]
    pub(super) fn glance<'a>(&self, leaf: Node<'a>) -> LeafView<'a> {
        let stamp = self.locks.stamp(leaf.at);
        let range = leaf.body.head.range();
        LeafView { leaf, stamp, range }
    }

    /// Whether what was read of a leaf since a glance was in it all at one moment: there was no
    /// writer, or one, which makes one change.
    #[inline]
    pub(super) fn is_still(&self, glance: &LeafView<'_>) -> bool {
        let range = glance.leaf.body.head.range();
        // After the range: who sees the lock as it was sees a range that was made before.
        range == glance.range && self.locks.stamp(glance.leaf.at) == glance.stamp
    }

    /// What this layer, which is of a depth, knows of a key with this slice; `rest` is what the key
    /// has behind the slice, if that is not its last. None if the layer is gone. Sets `must_fence`
    /// if what was seen was flushed, and must be fenced before anybody relies on it.
    #[inline]
    pub(super) fn look(
        &self,
        depth: usize,
        slice: u64,
        rest: Option<&[u8]>,
        must_fence: &mut bool,
    ) -> Result<Option<LayerLookup>> {
        loop {
            let Some(leaf) = self.descend(0, slice)? else {
                return Ok(None);
            };
            let glance = self.glance(leaf);
            if !glance.range.has(slice) {
                continue;
            }
            let slot = leaf.find(slice);
            let value = slot.map(|slot| leaf.value(slot));
            if !self.is_still(&glance) {
                continue;
            }
            let (known, record) = match (value, rest) {
                (None, _) => (LayerLookup::Nothing, None),
                (Some(value), None) => (LayerLookup::Value(value), None),
                (Some(value), Some(rest)) => match SliceTarget::new(self.medium, value, depth)? {
                    SliceTarget::Layer(first) => (LayerLookup::Below(first), None),
                    SliceTarget::Rest(record) if record.is(self.medium, rest) => {
                        (LayerLookup::Value(record.value()), Some(record))
                    }
                    SliceTarget::Rest(_) => (LayerLookup::Nothing, None),
                },
            };
            // The record was the slice's while its value was read, and the lock of the leaf its.
            if record.is_some() && !self.is_still(&glance) {
                continue;
            }
            if glance.stamp.is_locked() {
                let _within = self.pool.write_guard();
                leaf.flush(self.medium, slot);
                if let Some(record) = record {
                    self.medium.flush(&record.record.value);
                }
                *must_fence = true;
            }
            return Ok(Some(known));
        }
    }
}

impl<K: Item + ?Sized> Masstree<K> {
    /// The value of `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<u64>> {
        let _guard = self.pool.enter();
        'root: loop {
            let mut must_fence = false;
            let (mut first, mut depth) = (self.root, 0);
            let value = loop {
                let word = slice::of(key, depth);
                let rest = (!slice::is_last::<K>(word)).then(|| slice::rest(key, depth));
                match self.layer(first).look(depth, word, rest, &mut must_fence)? {
                    None => continue 'root,
                    Some(LayerLookup::Nothing) => break None,
                    Some(LayerLookup::Value(value)) => break Some(value),
                    Some(LayerLookup::Below(below)) => first = below,
                }
                depth += 1;
            };
            if must_fence {
                // DURABLE: what was seen of writers who are at work.
                self.medium.fence();
            }
            return Ok(value);
        }
    }
}
