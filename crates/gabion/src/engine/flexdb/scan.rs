//! Range scans, from either end.
//!
//! # Idea
//! A scan is three parts: pairs that were read for the front, pairs that were read for the back,
//! and the range of keys between them that was not read yet. When the front runs out, it reads the
//! first interval of that range from the space and the writes of the same keys from the MemTables,
//! and decides key by key what the reader sees; the back reads the last interval. So the two ends
//! meet wherever they meet, and a scan holds the pairs of two intervals and no lock.
//!
//! # Linearization
//! A scan reads at a number that is registered as long as it lives, as a get at a number does.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use super::generation::{Layer, View};
use super::partition::Held;
use super::{Flex, Keyspace};
use crate::engine::key_range;
use crate::engine::memtable::MemCursor;
use crate::types::{Kind, Seq};
use crate::{Result, Slice};

/// Keys of one MemTable that are read at a time at most.
const KEYS_MAX: usize = 128;

type Pair = (Slice, Slice);

/// The pairs of a keyspace in a range.
pub(crate) struct Scan {
    engine: Arc<Flex>,
    keyspace: Arc<Keyspace>,
    /// Registered.
    seq: Seq,
    sources: Option<Sources>,
    front: VecDeque<Pair>,
    back: VecDeque<Pair>,
    /// The keys that were not read yet: from the first one up to, but without, the second one;
    /// `None` when there is none left.
    middle: Option<(Vec<u8>, Option<Vec<u8>>)>,
    current: Option<Pair>,
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.engine.end_snapshot(self.seq);
    }
}

/// Writes of the keyspace, newest generation first.
struct Sources {
    view: Arc<View>,
    layers: Vec<Source>,
}

struct Source {
    layer: Arc<Layer>,
    cursor: MemCursor,
}

/// What images say about keys, of one generation.
struct Images {
    list: Vec<(Vec<u8>, Option<Slice>)>,
    at: usize,
}

impl Scan {
    /// A scan at `seq`, whose registration it takes over.
    pub(crate) fn new(
        engine: &Arc<Flex>,
        keyspace: &Arc<Keyspace>,
        seq: Seq,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Scan {
        Scan {
            engine: Arc::clone(engine),
            keyspace: Arc::clone(keyspace),
            seq,
            sources: None,
            front: VecDeque::new(),
            back: VecDeque::new(),
            middle: key_range((lower, upper)),
            current: None,
        }
    }

    /// Goes to the next pair; false at the end. An error ends the scan.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        self.current = None;
        while self.front.is_empty() {
            let Some((lower, upper)) = self.middle.take() else {
                self.current = self.back.pop_front();
                return Ok(self.current.is_some());
            };
            let read = self.read_front(&lower, upper.as_deref());
            let end = read.inspect_err(|_| self.end())?;
            self.middle = rest(end, upper);
        }
        self.current = self.front.pop_front();
        Ok(true)
    }

    /// The next pair from the end. An error ends the scan.
    pub(crate) fn next_back(&mut self) -> Result<Option<Pair>> {
        while self.back.is_empty() {
            let Some((lower, upper)) = self.middle.take() else {
                return Ok(self.front.pop_back());
            };
            let read = self.read_back(&lower, upper.as_deref());
            let begin = read.inspect_err(|_| self.end())?;
            self.middle = (begin > lower).then_some((lower, Some(begin)));
        }
        Ok(self.back.pop_back())
    }

    fn end(&mut self) {
        self.front.clear();
        self.back.clear();
        self.middle = None;
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |(key, _)| key)
    }

    pub(crate) fn value(&self) -> Slice {
        self.current
            .as_ref()
            .map_or_else(|| Slice::new(&[]), |(_, value)| value.clone())
    }

    pub(crate) fn value_bytes(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |(_, value)| value)
    }

    /// Reads the first pairs of the range into the front; returns the first key behind them, `None`
    /// for the end of all keys.
    fn read_front(&mut self, lower: &[u8], upper: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        loop {
            let mut sources = self.take_sources();
            let held = self.keyspace.partition.interval(lower)?;
            if self.engine.is_outdated(&sources.view) {
                continue;
            }
            let mut end = smaller(held.found.upper.as_deref(), upper).map(<[u8]>::to_vec);
            for source in &mut sources.layers {
                source.cursor.seek(lower);
                // Where so many keys are reached, the part that is read ends.
                let mut keys = 0;
                while source.cursor.valid() && is_below(source.cursor.key(), end.as_deref()) {
                    keys += 1;
                    if keys > KEYS_MAX {
                        end = Some(source.cursor.key().to_vec());
                        break;
                    }
                    source.cursor.next_key();
                }
            }
            let reader = (self.keyspace.id, self.seq);
            let mut window = Window::new(&mut sources, &held, (lower, end.as_deref()), reader);
            while let Some(pair) = window.next() {
                self.front.push_back(pair);
            }
            self.sources = Some(sources);
            return Ok(end);
        }
    }

    /// Reads the last pairs of the range into the back; returns the first key of the part that was
    /// read.
    fn read_back(&mut self, lower: &[u8], upper: Option<&[u8]>) -> Result<Vec<u8>> {
        loop {
            let mut sources = self.take_sources();
            let Some(held) = self.keyspace.partition.interval_below(upper)? else {
                return Ok(lower.to_vec());
            };
            if self.engine.is_outdated(&sources.view) {
                continue;
            }
            let mut begin = held.found.lower.to_vec().max(lower.to_vec());
            for source in &mut sources.layers {
                match upper {
                    Some(upper) => source.cursor.seek_before(upper),
                    None => source.cursor.seek_last(),
                }
                let mut versions = 0;
                while source.cursor.valid() && source.cursor.key() > &*begin {
                    versions += 1;
                    if versions > KEYS_MAX {
                        begin = source.cursor.key().to_vec();
                        break;
                    }
                    source.cursor.prev();
                }
            }
            let reader = (self.keyspace.id, self.seq);
            let mut window = Window::new(&mut sources, &held, (&begin, upper), reader);
            let mut read = VecDeque::new();
            while let Some(pair) = window.next() {
                read.push_back(pair);
            }
            self.back = read;
            self.sources = Some(sources);
            return Ok(begin);
        }
    }

    /// The MemTables to read, those of before if nothing newer was merged.
    fn take_sources(&mut self) -> Sources {
        let known = self.sources.take();
        if let Some(sources) = known.filter(|known| !self.engine.is_outdated(&known.view)) {
            return sources;
        }
        let view = self.engine.view.load_full();
        let layers = view.for_reader(self.seq).filter_map(|generation| {
            let layer = generation.layer(self.keyspace.id)?;
            Some(Source {
                cursor: layer.table.sorted(),
                layer,
            })
        });
        Sources {
            layers: layers.collect(),
            view,
        }
    }
}

/// The keys from `end` on and below `upper`.
fn rest(end: Option<Vec<u8>>, upper: Option<Vec<u8>>) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let end = end?;
    let is_left = upper.as_ref().is_none_or(|upper| end < *upper);
    is_left.then_some((end, upper))
}

fn smaller<'k>(a: Option<&'k [u8]>, b: Option<&'k [u8]>) -> Option<&'k [u8]> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

fn is_below(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

/// A part of the range, within one interval, that is read key by key.
struct Window<'w> {
    sources: &'w mut Sources,
    held: &'w Held,
    /// The next pair of the interval, and the first one that is not read.
    at: usize,
    to: usize,
    images: Vec<Images>,
    end: Option<&'w [u8]>,
    seq: Seq,
}

impl<'w> Window<'w> {
    /// The interval was read before, so images of what was overwritten since are there.
    fn new(
        sources: &'w mut Sources,
        held: &'w Held,
        (lower, end): (&'w [u8], Option<&'w [u8]>),
        (keyspace, seq): (u32, Seq),
    ) -> Window<'w> {
        for source in &mut sources.layers {
            source.cursor.seek(lower);
        }
        // A generation may have got writes of the keyspace only after the sources were taken.
        let newer = sources
            .view
            .for_reader(seq)
            .filter(|own| own.max_seq() > seq);
        let lists = newer.filter_map(|own| own.with_layer(keyspace, |own| own.images(lower, end)));
        let images = lists
            .filter(|list| !list.is_empty())
            .map(|list| Images { list, at: 0 })
            .collect();
        let interval = &held.interval;
        let to = end.map_or(interval.len(), |end| interval.count_below(end));
        Window {
            at: interval.count_below(lower).min(to),
            to,
            images,
            end,
            seq,
            sources,
            held,
        }
    }

    /// The next pair that the reader sees.
    fn next(&mut self) -> Option<Pair> {
        loop {
            if self.sources.layers.is_empty() && self.images.is_empty() {
                return self.next_merged();
            }
            let key = self.smallest()?;
            if let Some(value) = self.decide(&key) {
                return Some((key, value));
            }
        }
    }

    /// The next pair of the interval.
    fn next_merged(&mut self) -> Option<Pair> {
        let interval = &self.held.interval;
        (self.at < self.to).then(|| {
            self.at += 1;
            (interval.key_slice(self.at - 1), interval.value(self.at - 1))
        })
    }

    /// The smallest key that is left.
    fn smallest(&self) -> Option<Slice> {
        let interval = &self.held.interval;
        let mut smallest = (self.at < self.to).then(|| interval.key(self.at));
        let mut is_merged = true;
        let cursors = self.sources.layers.iter().map(|source| &source.cursor);
        let written = cursors.filter(|cursor| cursor.valid()).map(MemCursor::key);
        let noted = self.images.iter().filter_map(Images::key);
        for key in written.filter(|key| is_below(key, self.end)).chain(noted) {
            if smallest.is_none_or(|smallest| key < smallest) {
                smallest = Some(key);
                is_merged = false;
            }
        }
        smallest.map(|key| match is_merged {
            true => interval.key_slice(self.at),
            false => Slice::new(key),
        })
    }

    /// What the reader sees of a key, which is the smallest that is left; leaves it behind.
    fn decide(&mut self, key: &[u8]) -> Option<Slice> {
        // `None` as long as nothing decided.
        let mut seen: Option<Option<Slice>> = None;
        for source in &mut self.sources.layers {
            let deleted = match seen {
                None => source.layer.deleted(key, self.seq),
                Some(_) => 0,
            };
            let cursor = &mut source.cursor;
            let mut newest = 0;
            while cursor.valid() && cursor.key() == key {
                if cursor.seq() > self.seq {
                    cursor.next();
                    continue;
                }
                if seen.is_none() {
                    newest = cursor.seq();
                    if newest > deleted {
                        seen = Some((cursor.kind() == Kind::Put).then(|| cursor.value()));
                    }
                }
                cursor.next_key();
            }
            if seen.is_none() && deleted > newest {
                seen = Some(None);
            }
        }
        let mut image = None;
        for images in &mut self.images {
            if let Some(noted) = images.take(key) {
                image = Some(noted);
            }
        }
        let interval = &self.held.interval;
        let mut merged = None;
        if self.at < self.to && interval.key(self.at) == key {
            merged = Some(interval.value(self.at));
            self.at += 1;
        }
        seen.or(image).unwrap_or(merged)
    }
}

impl Images {
    fn key(&self) -> Option<&[u8]> {
        self.list.get(self.at).map(|(key, _)| &key[..])
    }

    /// The image of a key, which is not above the next one.
    fn take(&mut self, key: &[u8]) -> Option<Option<Slice>> {
        let (next, value) = self.list.get(self.at)?;
        match (**next).cmp(key) {
            Ordering::Equal => {
                self.at += 1;
                Some(value.clone())
            }
            _ => None,
        }
    }
}
