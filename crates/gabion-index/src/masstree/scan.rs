//! Scans: leaf by leaf, and into the layers between.

use super::layer::Layer;
use super::readpath::SliceTarget;
use super::{Masstree, slice};
use crate::blink::{Descent, Node as _};
use crate::index::scan_on;
use crate::{Item, OrderedIndex, Result};

/// Times that a leaf is copied without its lock before it is copied with it.
const TRIES: u32 = 4;

/// Entries of a leaf, as they were at one moment; all of them durable.
pub(super) struct CopiedEntries {
    pub(super) entries: Vec<(u64, SliceContent)>,
    /// Where the next leaf begins, if there is one.
    pub(super) next: Option<u64>,
}

/// What a slice leads to.
pub(super) enum SliceContent {
    /// The value of the key that ends with the slice.
    Value(u64),
    /// The rest of a key, and its value.
    Rest(Vec<u8>, u64),
    /// A layer.
    Layer(u64),
}

/// A layer that a scan is in.
struct Frame {
    first: u64,
    /// Whether the keys of the layer agree with that from which the scan begins, so far.
    is_bounded: bool,
    /// What comes next, the last one first.
    pending: Vec<(u64, SliceContent)>,
    /// Where to go on behind that.
    next: Option<u64>,
}

impl<K: Item + ?Sized> Masstree<K> {
    /// The entries of the leaf of a slice, from that on, in a layer of a depth; none if the layer
    /// is gone.
    pub(super) fn copy(
        &self,
        layer: &Layer<'_>,
        depth: usize,
        from: u64,
    ) -> Result<Option<CopiedEntries>> {
        let mut tries = 0;
        loop {
            let Some(leaf) = layer.descend(0, from)? else {
                return Ok(None);
            };
            let lock = (tries >= TRIES).then(|| self.locks.lock(leaf.at));
            let glance = layer.glance(leaf);
            let is_quiet = || {
                let is_free = lock.is_some() || !glance.stamp.is_locked();
                is_free && layer.is_still(&glance)
            };
            if !glance.range.has(from) {
                continue;
            }
            tries += 1;
            let mut entries = leaf.entries(glance.range);
            // What an entry leads to has a meaning only if it was there at one moment.
            if !is_quiet() {
                continue;
            }
            entries.retain(|(slice, _)| *slice >= from);
            let entries = entries
                .into_iter()
                .map(|(slice, value)| Ok((slice, self.content(depth, slice, value)?)));
            let entries = entries.collect::<Result<Vec<_>>>()?;
            if is_quiet() {
                let next = (!glance.range.is_last()).then_some(glance.range.bound);
                return Ok(Some(CopiedEntries { entries, next }));
            }
        }
    }

    fn content(&self, depth: usize, slice: u64, value: u64) -> Result<SliceContent> {
        if slice::is_last::<K>(slice) {
            return Ok(SliceContent::Value(value));
        }
        Ok(match SliceTarget::new(&self.medium, value, depth)? {
            SliceTarget::Layer(first) => SliceContent::Layer(first),
            SliceTarget::Rest(record) => {
                SliceContent::Rest(record.rest(&self.medium), record.value())
            }
        })
    }

    /// Appends entries from `from` on until there are `end`. False if a layer was given up
    /// meanwhile: then there may be more.
    fn scan_once(&self, from: &K, end: usize, found: &mut Vec<(K::Owned, u64)>) -> Result<bool> {
        // The slices that led to the layers of the frames but the first.
        let mut before: Vec<u64> = Vec::new();
        let mut frames = vec![Frame::new(self.root, true, slice::of(from, 0))];
        while found.len() < end {
            let depth = before.len();
            let Some(frame) = frames.last_mut() else {
                break;
            };
            let Some((word, content)) = frame.pending.pop() else {
                let Some(start) = frame.next.take() else {
                    frames.pop();
                    before.pop();
                    continue;
                };
                let Some(mut copy) = self.copy(&self.layer(frame.first), depth, start)? else {
                    return Ok(false);
                };
                copy.entries.reverse();
                (frame.pending, frame.next) = (copy.entries, copy.next);
                continue;
            };
            let is_bounded = frame.is_bounded && word == slice::of(from, depth);
            match content {
                SliceContent::Value(value) => {
                    found.push((slice::key::<K>(&before, word, &[]), value));
                }
                SliceContent::Rest(rest, value) => {
                    if !is_bounded || &rest[..] >= slice::rest(from, depth) {
                        found.push((slice::key::<K>(&before, word, &rest), value));
                    }
                }
                SliceContent::Layer(first) => {
                    self.layer(frame.first).expect_below(word, first)?;
                    before.push(word);
                    let start = match is_bounded {
                        true => slice::of(from, depth + 1),
                        false => 0,
                    };
                    frames.push(Frame::new(first, is_bounded, start));
                }
            }
        }
        Ok(true)
    }
}

impl Frame {
    fn new(first: u64, is_bounded: bool, start: u64) -> Frame {
        Frame {
            first,
            is_bounded,
            pending: Vec::new(),
            next: Some(start),
        }
    }
}

impl<K: Item + ?Sized> OrderedIndex<K> for Masstree<K> {
    fn scan(&self, from: &K, limit: usize, found: &mut Vec<(K::Owned, u64)>) -> Result<()> {
        let _guard = self.pool.enter();
        scan_on(from, limit, found, |from, end, found| {
            self.scan_once(from, end, found)
        })
    }
}
