//! A part of a range whose pairs are copied, as there may be images of them.

use std::cmp::Ordering;

use super::{Decided, Pair, Sources};
use crate::Slice;
use crate::engine::flexdb::generation::GenerationList;
use crate::engine::flexdb::partition::CachedInterval;
use crate::expiry::{ReadPoint, StoredRecord};
use crate::types::Seq;

/// What images say about keys, of one generation.
pub(super) struct ImageIter {
    list: Vec<(Slice, Option<StoredRecord>)>,
    at: usize,
}

/// A part of the range, within one interval, whose pairs are copied: there may be images of them.
pub(super) struct ScanWindow<'w> {
    sources: &'w mut Sources,
    held: &'w CachedInterval,
    /// The next pair of the interval, and the first one that is not read.
    at: usize,
    to: usize,
    images: Vec<ImageIter>,
    end: Option<&'w [u8]>,
    point: ReadPoint,
    /// Keys that were deleted.
    pub(super) gone: u32,
}

impl<'w> ScanWindow<'w> {
    /// The cursors of the sources stand on the first keys.
    pub(super) fn new(
        sources: &'w mut Sources,
        held: &'w CachedInterval,
        (lower, end): (&'w [u8], Option<&'w [u8]>),
        images: Vec<ImageIter>,
        point: ReadPoint,
    ) -> ScanWindow<'w> {
        let interval = &held.interval;
        let to = end.map_or(interval.len(), |end| interval.count_below(end));
        ScanWindow {
            at: interval.count_below(lower).min(to),
            to,
            images,
            end,
            point,
            gone: 0,
            sources,
            held,
        }
    }

    /// The smallest key that is left.
    fn smallest(&self) -> Option<Slice> {
        let merged = (self.at < self.to).then(|| self.held.interval.key(self.at));
        let written = self.sources.smallest(self.end);
        let written = written.map(|at| self.sources.layers[at].cursor.key());
        let noted = self.images.iter().filter_map(ImageIter::key);
        let keys = merged.into_iter().chain(written).chain(noted);
        keys.min().map(Slice::new)
    }
}

impl Iterator for ScanWindow<'_> {
    type Item = Pair;

    /// The next pair that the reader sees.
    fn next(&mut self) -> Option<Pair> {
        loop {
            let key = self.smallest()?;
            let decided = self.sources.decide(&key, self.point);
            let written = match decided {
                Decided::Nothing => None,
                Decided::Gone => {
                    self.gone += 1;
                    Some(None)
                }
                Decided::Expired => Some(None),
                Decided::Value(source) => {
                    let source = &mut self.sources.layers[source];
                    let record = StoredRecord::new(source.cursor.kind(), source.cursor.value());
                    source.pass(&key);
                    Some(Some(record))
                }
            };
            let mut image = None;
            for images in &mut self.images {
                if let Some(noted) = images.take(&key) {
                    image = Some(noted);
                }
            }
            let interval = &self.held.interval;
            let mut merged = None;
            if self.at < self.to && interval.key(self.at) == &*key {
                merged = Some(interval.record(self.at));
                self.at += 1;
            }
            let found = written.or(image).unwrap_or(merged);
            if let Some(record) = found.and_then(|record| record.at(|| self.point.moment)) {
                return Some((key, record));
            }
        }
    }
}

impl ImageIter {
    /// The images of keys in a range that a reader needs. The interval was read before, so images
    /// of what was overwritten since are there.
    pub(super) fn of(
        view: &GenerationList,
        (lower, end): (&[u8], Option<&[u8]>),
        (keyspace, seq): (u32, Seq),
    ) -> Vec<ImageIter> {
        // A generation may have got writes of the keyspace only after the sources were taken.
        let newer = view.for_reader(seq).filter(|own| own.max_seq() > seq);
        let lists = newer.filter_map(|own| own.with_layer(keyspace, |own| own.images(lower, end)));
        let lists = lists.filter(|list| !list.is_empty());
        lists.map(|list| ImageIter { list, at: 0 }).collect()
    }

    fn key(&self) -> Option<&[u8]> {
        self.list.get(self.at).map(|(key, _)| &key[..])
    }

    /// The image of a key, which is not above the next one.
    fn take(&mut self, key: &[u8]) -> Option<Option<StoredRecord>> {
        let (next, image) = self.list.get(self.at)?;
        match (**next).cmp(key) {
            Ordering::Equal => {
                self.at += 1;
                Some(image.clone())
            }
            _ => None,
        }
    }
}
