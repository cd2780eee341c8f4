//! Range scans, from either end.
//!
//! # Idea
//! A scan is three parts: the *window*, which is read from the front, pairs that were read for the
//! back, and the range of keys between them that was not looked at yet. A window is one interval of
//! the space and the writes of the same keys in the MemTables: each step takes the next pair of the
//! interval, or lets the MemTables decide what the reader sees of the next key. Pairs are lent from
//! where they lie. When the window is done, the next interval begins another one. The back reads a
//! whole interval at a time, and so does the front where a merge has overwritten what the reader
//! must see. The two ends meet wherever they meet, and a scan holds no lock.
//!
//! # Tombstones
//! A scan that has stepped over many keys that are gone before its first pair lets the MemTable
//! that takes the keyspace's writes remember that there is nothing, and the next ones begin behind
//! it ([`crate::engine::memtable`]); not where a pair has expired, which who reads at an earlier
//! moment may see. What scans step over otherwise is counted, and when they have
//! had more work by it than a merge is, the generation is merged ([`Generation::is_in_the_way`]).
//!
//! # Linearization
//! A scan reads at a number that is registered as long as it lives, as a get at a number does.

mod window;

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use window::{ImageIter, ScanWindow};

use super::generation::{Generation, GenerationList, GenerationPart};
use super::index::SeekTarget;
use super::partition::{CachedInterval, ReadIntent};
use super::{Flex, FlexKeyspace};
use crate::bytes::assign;
use crate::engine::memtable::{MemCursor, NOTED_FROM};
use crate::engine::open_store::OpenStore;
use crate::expiry::{ReadPoint, StoredRecord, UnixMillis, expires, has_expired, value_of};
use crate::ranges::key_range;
use crate::types::{Kind, Seq};
use crate::{Result, Slice};

/// Keys of one MemTable that are read at a time at most, where pairs are copied.
const KEYS_MAX: usize = 128;

type Pair = (Slice, StoredRecord);

/// The pairs of a keyspace in a range.
pub(crate) struct FlexScan {
    keyspace: Arc<FlexKeyspace>,
    /// Registered.
    point: ReadPoint,
    sources: Option<Sources>,
    window: Option<Window>,
    /// Until there is a pair.
    search: Option<Search>,
    /// Keys that were gone, but for those of the window.
    gone: u32,
    current: Current,
    /// Pairs of the front that were copied.
    front: VecDeque<Pair>,
    back: VecDeque<Pair>,
    back_sources: Option<Sources>,
    /// The keys that were not read yet: from the first one up to, but without, the second one;
    /// `None` when there is none left.
    middle: Option<(Vec<u8>, Option<Vec<u8>>)>,
    store: Arc<dyn OpenStore<Flex>>,
}

impl OpenStore<Flex> for Flex {
    fn engine(&self) -> &Flex {
        self
    }
}

/// The search of the front for its first pair.
#[derive(Default)]
struct Search {
    /// Where it began.
    lower: Option<Vec<u8>>,
    /// Up to where nothing was found; `None` for the end of all keys.
    upper: Option<Vec<u8>>,
}

/// Where the next pair of a window is.
enum Step {
    End,
    /// A pair of the interval.
    Merged(usize),
    /// What a source's cursor stands on.
    Written(usize),
}

/// The pair that the scan stands on.
enum Current {
    Nothing,
    /// A pair of the window's interval.
    Merged(usize),
    /// What a source's cursor stands on.
    Written(usize),
    Copied(Pair),
}

impl Drop for FlexScan {
    fn drop(&mut self) {
        let gone = self.all_gone();
        #[cfg(test)]
        STEPS.set(STEPS.get() + u64::from(gone));
        if gone >= NOTED_FROM {
            self.store.engine().count_steps(gone, self.point.seq);
        }
        self.store.engine().end_snapshot(self.point);
    }
}

/// Writes of the keyspace, newest generation first.
struct Sources {
    view: Arc<GenerationList>,
    layers: Vec<Source>,
    /// Whether the cursors stand on the first keys of what is read next.
    are_placed: bool,
    /// Whether the first layer is the newest one of those that take writes or wait to be merged.
    knows_gaps: bool,
}

struct Source {
    layer: Arc<GenerationPart>,
    cursor: MemCursor,
}

impl FlexScan {
    /// A scan at `point`, whose registration it takes over.
    pub(crate) fn new(
        store: Arc<dyn OpenStore<Flex>>,
        keyspace: &Arc<FlexKeyspace>,
        point: ReadPoint,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> FlexScan {
        FlexScan {
            keyspace: Arc::clone(keyspace),
            point,
            sources: None,
            window: None,
            search: Some(Search::default()),
            gone: 0,
            current: Current::Nothing,
            front: VecDeque::new(),
            back: VecDeque::new(),
            back_sources: None,
            middle: key_range((lower, upper)),
            store,
        }
    }

    /// Goes to the next pair; false at the end. An error ends the scan.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        if self.step() {
            return Ok(true);
        }
        match self.search {
            Some(_) => self.find_first(),
            None => self.find_next(),
        }
    }

    /// Goes to the next pair of the window, if there is one.
    #[inline]
    fn step(&mut self) -> bool {
        if let (Some(window), Some(sources)) = (&mut self.window, &mut self.sources) {
            self.current = match window.step(sources, self.point) {
                Step::End => Current::Nothing,
                Step::Merged(at) => Current::Merged(at),
                Step::Written(source) => Current::Written(source),
            };
            return !matches!(self.current, Current::Nothing);
        }
        false
    }

    /// Goes to the next pair, behind the window.
    fn find_next(&mut self) -> Result<bool> {
        while self.begin_window()? {
            if self.step() {
                return Ok(true);
            }
        }
        let next = self.front.pop_front().or_else(|| self.back.pop_front());
        self.current = next.map_or(Current::Nothing, Current::Copied);
        Ok(!matches!(self.current, Current::Nothing))
    }

    /// Goes to the first pair. If many keys had to be stepped over, that is remembered.
    fn find_first(&mut self) -> Result<bool> {
        let found = self.find_next();
        // Where something was copied, or the back has read, it is none any more.
        let has_expired = self
            .window
            .as_ref()
            .is_some_and(|window| window.has_expired);
        if let (Ok(is_pair), Some(search)) = (&found, self.search.take())
            && self.all_gone() >= NOTED_FROM
            && !has_expired
        {
            self.note_gap(&search, *is_pair);
        }
        found
    }

    #[cold]
    fn note_gap(&self, search: &Search, is_pair: bool) {
        let upper = match is_pair {
            true => Some(self.key()),
            false => search.upper.as_deref(),
        };
        let lower = search.lower.as_deref().unwrap_or_default();
        let view = self.store.engine().view.load();
        let mut waiting = view.waiting.iter();
        if is_below(lower, upper)
            && let Some(newest) = waiting.find_map(|own| own.layer(self.keyspace.id))
        {
            newest.table.note_gap((lower, upper), self.point.seq);
        }
    }

    /// Keys that were gone, so far.
    fn all_gone(&self) -> u32 {
        let last = self.window.as_ref().map_or(0, |window| window.gone);
        self.gone.saturating_add(last)
    }

    /// Begins the next window, or copies the next pairs to the front; false if there are such pairs
    /// already, or there is nothing left to read.
    fn begin_window(&mut self) -> Result<bool> {
        let mut done = self.window.take();
        if let Some(done) = &mut done {
            self.gone = self.gone.saturating_add(done.gone);
            if done.has_expired {
                self.search = None;
            }
            if let Some(search) = &mut self.search {
                search.upper = done.end.take();
            }
        }
        while self.front.is_empty()
            && let Some((lower, upper)) = self.middle.take()
        {
            let read = self.read_front(done.as_ref(), lower, upper);
            if read.inspect_err(|_| self.end())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next pair from the end. An error ends the scan.
    pub(crate) fn next_back(&mut self) -> Result<Option<(Slice, Slice)>> {
        let pair = self.take_back()?;
        Ok(pair.map(|(key, record)| (key, record.into_value())))
    }

    fn take_back(&mut self) -> Result<Option<Pair>> {
        self.search = None;
        while self.back.is_empty() {
            let Some((lower, upper)) = self.middle.take() else {
                self.copy_window();
                return Ok(self.front.pop_back());
            };
            let read = self.read_back(&lower, upper.as_deref());
            let begin = read.inspect_err(|_| self.end())?;
            self.middle = (begin > lower).then_some((lower, Some(begin)));
        }
        Ok(self.back.pop_back())
    }

    /// Copies what is left of the window to the front.
    fn copy_window(&mut self) {
        let Some(mut window) = self.window.take() else {
            return;
        };
        self.current = Current::Nothing;
        self.copy_rest(&mut window);
        self.gone = self.gone.saturating_add(window.gone);
    }

    fn copy_rest(&mut self, window: &mut Window) {
        let Some(sources) = &mut self.sources else {
            return;
        };
        loop {
            let pair = match window.step(sources, self.point) {
                Step::Merged(at) => {
                    let interval = &window.held.interval;
                    (Slice::new(interval.key(at)), interval.record(at))
                }
                Step::Written(source) => {
                    let cursor = &sources.layers[source].cursor;
                    let record = StoredRecord::new(cursor.kind(), cursor.value());
                    (Slice::new(cursor.key()), record)
                }
                Step::End => return,
            };
            self.front.push_back(pair);
        }
    }

    fn end(&mut self) {
        self.front.clear();
        self.back.clear();
        self.window = None;
        self.search = None;
        self.middle = None;
        self.current = Current::Nothing;
    }

    pub(crate) fn key(&self) -> &[u8] {
        match (&self.current, &self.window, &self.sources) {
            (Current::Merged(at), Some(window), _) => window.held.interval.key(*at),
            (Current::Written(source), _, Some(sources)) => sources.layers[*source].cursor.key(),
            (Current::Copied((key, _)), _, _) => key,
            _ => &[],
        }
    }

    pub(crate) fn value(&self) -> Slice {
        match (&self.current, &self.window) {
            (Current::Merged(at), Some(window)) => window.held.interval.record(*at).into_value(),
            (Current::Copied((_, record)), _) => record.clone().into_value(),
            _ => Slice::new(self.value_bytes()),
        }
    }

    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        let (kind, stored) = self.stored();
        value_of(kind, stored)
    }

    /// When the pair expires, if it does.
    pub(crate) fn expires(&self) -> Option<UnixMillis> {
        let (kind, stored) = self.stored();
        expires(kind, stored)
    }

    /// The kind of the pair's record, and what is stored of it.
    #[inline]
    pub(super) fn stored(&self) -> (Kind, &[u8]) {
        match (&self.current, &self.window, &self.sources) {
            (Current::Merged(at), Some(window), _) => {
                let interval = &window.held.interval;
                (interval.kind(*at), interval.stored(*at))
            }
            (Current::Written(source), _, Some(sources)) => {
                let cursor = &sources.layers[*source].cursor;
                (cursor.kind(), cursor.value_bytes())
            }
            (Current::Copied((_, record)), _, _) => record.parts(),
            _ => (Kind::Put, &[]),
        }
    }

    /// Begins a window with the first interval of the range, or copies its pairs to the front if
    /// there are images of its keys; false in the latter case. `done` is the window before.
    fn read_front(
        &mut self,
        done: Option<&Window>,
        mut lower: Vec<u8>,
        upper: Option<Vec<u8>>,
    ) -> Result<bool> {
        loop {
            let known = self.sources.take();
            let (mut sources, is_new) = self.sources_after(known);
            if let Some(search) = &mut self.search
                && search.lower.is_none()
                && let Some(behind) = sources.behind_gap(&lower, self.point.seq)
            {
                let Some(behind) = behind.filter(|key| is_below(key, upper.as_deref())) else {
                    return Ok(false);
                };
                search.lower = Some(std::mem::replace(&mut lower, behind));
            }
            let before = done.filter(|done| !is_new && done.held.place.upper() == Some(&lower));
            let partition = &self.keyspace.partition;
            let next = before
                .map(|done| partition.interval_behind(&done.held))
                .transpose()?;
            let held = match next.flatten() {
                Some(held) => held,
                None => partition.interval(SeekTarget::At(&lower), ReadIntent::User)?,
            };
            if self.store.engine().is_outdated(&sources.view) {
                continue;
            }
            if !std::mem::replace(&mut sources.are_placed, true) {
                for source in &mut sources.layers {
                    source.cursor.seek(&lower);
                }
            }
            let end = smaller(held.place.upper(), upper.as_deref()).map(<[u8]>::to_vec);
            let reader = (self.keyspace.id, self.point.seq);
            let images = ImageIter::of(&sources.view, (&lower, end.as_deref()), reader);
            if images.is_empty() {
                self.window = Some(Window::new(held, &sources, &lower, end.clone()));
                self.sources = Some(sources);
                self.middle = rest(end, upper);
                if let Some(search) = &mut self.search {
                    search.lower.get_or_insert(lower);
                }
                return Ok(true);
            }
            self.search = None;
            let end = end_of_part(&mut sources, end);
            for source in &mut sources.layers {
                source.cursor.seek(&lower);
            }
            let range = (&*lower, end.as_deref());
            let images = ImageIter::of(&sources.view, range, reader);
            self.front.extend(ScanWindow::new(
                &mut sources,
                &held,
                range,
                images,
                self.point,
            ));
            self.sources = Some(sources);
            self.middle = rest(end, upper);
            return Ok(false);
        }
    }

    /// Reads the last pairs of the range into the back; returns the first key of the part that was
    /// read.
    fn read_back(&mut self, lower: &[u8], upper: Option<&[u8]>) -> Result<Vec<u8>> {
        loop {
            let known = self.back_sources.take();
            let (mut sources, _) = self.sources_after(known);
            let seek = upper.map_or(SeekTarget::Last, SeekTarget::Below);
            let held = self.keyspace.partition.interval(seek, ReadIntent::User)?;
            if self.store.engine().is_outdated(&sources.view) {
                continue;
            }
            let mut begin = held.place.lower().max(lower).to_vec();
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
            let reader = (self.keyspace.id, self.point.seq);
            let images = ImageIter::of(&sources.view, (&begin, upper), reader);
            for source in &mut sources.layers {
                source.cursor.seek(&begin);
            }
            let mut part =
                ScanWindow::new(&mut sources, &held, (&begin, upper), images, self.point);
            self.back = part.by_ref().collect();
            self.gone = self.gone.saturating_add(part.gone);
            self.back_sources = Some(sources);
            return Ok(begin);
        }
    }

    /// The MemTables to read: those of before if nothing newer was merged, else others, which is
    /// told.
    fn sources_after(&self, known: Option<Sources>) -> (Sources, bool) {
        if let Some(known) = known.filter(|known| !self.store.engine().is_outdated(&known.view)) {
            return (known, false);
        }
        let view = self.store.engine().view.load_full();
        let source = |generation: &Arc<Generation>| {
            let layer = generation.layer(self.keyspace.id)?;
            Some(Source {
                cursor: layer.table.search(),
                layer,
            })
        };
        let mut layers: Vec<_> = view.waiting.iter().filter_map(source).collect();
        let knows_gaps = !layers.is_empty();
        layers.extend(view.past_for_reader(self.point.seq).filter_map(source));
        let sources = Sources {
            layers,
            view,
            are_placed: false,
            knows_gaps,
        };
        (sources, true)
    }
}

/// Where a part of the range ends in which no source has too many keys. The cursors stand on the
/// first ones.
fn end_of_part(sources: &mut Sources, mut end: Option<Vec<u8>>) -> Option<Vec<u8>> {
    for source in &mut sources.layers {
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
    end
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

impl Source {
    /// Moves to the newest version of a key that a reader sees, if the cursor stands on that key.
    fn see(&mut self, key: &[u8], seq: Seq) -> Option<Seq> {
        while self.cursor.valid() && self.cursor.key() == key {
            if self.cursor.seq() <= seq {
                return Some(self.cursor.seq());
            }
            self.cursor.next();
        }
        None
    }

    /// Leaves a key behind.
    fn pass(&mut self, key: &[u8]) {
        while self.cursor.valid() && self.cursor.key() == key {
            self.cursor.next_key();
        }
    }
}

/// What the MemTables say of a key.
enum Decided {
    Nothing,
    Gone,
    /// Its record has expired.
    Expired,
    /// It has the value that the cursor of a source stands on.
    Value(usize),
}

impl Sources {
    /// Where a reader at `seq` may go on that looks for the first key from `key` on, if there is
    /// nothing before; `Some(None)` where there is nothing at all.
    #[inline]
    fn behind_gap(&self, key: &[u8], seq: Seq) -> Option<Option<Vec<u8>>> {
        let newest = self.layers.first().filter(|_| self.knows_gaps)?;
        newest.layer.table.behind_gap(key, seq)
    }

    /// What a reader sees of a key. The cursors stand on it or behind it; then they stand behind
    /// it, but the one that has the value.
    fn decide(&mut self, key: &[u8], ReadPoint { seq, moment }: ReadPoint) -> Decided {
        let mut decided = Decided::Nothing;
        for (at, source) in self.layers.iter_mut().enumerate() {
            if matches!(decided, Decided::Nothing) {
                let deleted = source.layer.deleted(key, seq);
                match source.see(key, seq) {
                    Some(seen) if seen > deleted && !source.cursor.kind().is_tombstone() => {
                        let (kind, stored) = (source.cursor.kind(), source.cursor.value_bytes());
                        if !has_expired(kind, stored, || moment) {
                            decided = Decided::Value(at);
                            continue;
                        }
                        decided = Decided::Expired;
                    }
                    Some(_) => decided = Decided::Gone,
                    None if deleted > 0 => decided = Decided::Gone,
                    None => {}
                }
            }
            source.pass(key);
        }
        decided
    }

    /// Whether a range with the key was deleted, for a key that was not written.
    fn are_deleting(&self, key: &[u8], seq: Seq) -> bool {
        let mut layers = self.layers.iter();
        layers.any(|source| source.layer.deleted(key, seq) > 0)
    }

    /// The source with the smallest key below `end`.
    fn smallest(&self, end: Option<&[u8]>) -> Option<usize> {
        let mut smallest: Option<(usize, &[u8])> = None;
        for (at, source) in self.layers.iter().enumerate() {
            if !source.cursor.valid() {
                continue;
            }
            let key = source.cursor.key();
            if is_below(key, smallest.map_or(end, |(_, key)| Some(key))) {
                smallest = Some((at, key));
            }
        }
        smallest.map(|(at, _)| at)
    }
}

/// A part of the range, within one interval, that is read step by step.
struct Window {
    held: CachedInterval,
    /// The next pair of the interval, and the first one that is not read.
    at: usize,
    to: usize,
    end: Option<Vec<u8>>,
    /// Whether MemTables may have keys of the window.
    has_writes: bool,
    has_deletes: bool,
    /// The source whose cursor stands on the pair before, and its key.
    written: Option<usize>,
    key: Vec<u8>,
    /// Keys that were deleted.
    gone: u32,
    /// Whether a pair has expired.
    has_expired: bool,
}

impl Window {
    /// The cursors of the sources stand on the first keys.
    fn new(held: CachedInterval, sources: &Sources, lower: &[u8], end: Option<Vec<u8>>) -> Window {
        let interval = &held.interval;
        let whole = held.place.upper() == end.as_deref();
        let to = match &end {
            Some(end) if !whole => interval.count_below(end),
            _ => interval.len(),
        };
        let at = match held.place.lower() < lower {
            true => interval.count_below(lower).min(to),
            false => 0,
        };
        Window {
            at,
            to,
            end,
            has_writes: true,
            has_deletes: sources.layers.iter().any(|own| own.layer.has_deletes()),
            written: None,
            key: Vec::new(),
            gone: 0,
            has_expired: false,
            held,
        }
    }

    /// Goes to the next pair that the reader sees.
    #[inline]
    fn step(&mut self, sources: &mut Sources, point: ReadPoint) -> Step {
        loop {
            match self.step_to(sources, point) {
                Step::Merged(at) if self.held.interval.has_expired(at, point.moment) => {
                    self.has_expired = true;
                }
                step => return step,
            }
        }
    }

    /// As [`Window::step`], to a pair of the interval though it may have expired.
    #[inline]
    fn step_to(&mut self, sources: &mut Sources, point: ReadPoint) -> Step {
        loop {
            if self.has_writes {
                if let Some(source) = self.written.take() {
                    sources.layers[source].pass(&self.key);
                }
                match sources.smallest(self.end.as_deref()) {
                    None => self.has_writes = false,
                    Some(source) => {
                        let key = sources.layers[source].cursor.key();
                        let is_there = self.at < self.to;
                        let order = match is_there {
                            true => self.held.interval.key(self.at).cmp(key),
                            false => Ordering::Greater,
                        };
                        if order != Ordering::Less {
                            assign(&mut self.key, key);
                            self.at += usize::from(order == Ordering::Equal);
                            match sources.decide(&self.key, point) {
                                Decided::Value(source) => {
                                    self.written = Some(source);
                                    return Step::Written(source);
                                }
                                Decided::Nothing if order == Ordering::Equal => {
                                    return Step::Merged(self.at - 1);
                                }
                                Decided::Nothing => continue,
                                Decided::Gone => {
                                    self.gone += 1;
                                    continue;
                                }
                                Decided::Expired => {
                                    self.has_expired = true;
                                    continue;
                                }
                            }
                        }
                    }
                }
            }
            if self.at >= self.to {
                return Step::End;
            }
            self.at += 1;
            let key = self.held.interval.key(self.at - 1);
            if !self.has_deletes || !sources.are_deleting(key, point.seq) {
                return Step::Merged(self.at - 1);
            }
            self.gone += 1;
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Keys that were gone and that scans of the thread have stepped over.
    pub(super) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}
