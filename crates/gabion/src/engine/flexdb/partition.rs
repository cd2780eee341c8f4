//! A partition: all merged pairs of a keyspace, sorted in one space, with their index.
//!
//! # Idea
//! The space holds the pairs one behind the other and nothing else. The index says where each
//! interval lies, and has the decoded form of those that are cached; who finds one there waits for
//! nothing but a change of that form. Others hold the index's lock while they look up where in the
//! space an interval lies, and where on the medium that is; the medium is read without it. A change
//! of a few intervals holds it alone for as long as the trees of both change, which takes
//! microseconds; the data is written before.
//!
//! # Invariants
//! - P1. The intervals of the index cover the space; each holds the pairs of its keys.
//! - P2. Content changes under the writer's lock of the space, which tells offsets that stay true
//!   until the change is made. What an interval holds is changed only by the holder of the merge
//!   lock, or by the one committer to which that gave the interval's leaf. Readers may cut an
//!   interval that a recovery left too large, which changes the index only.
//! - P3. Every insertion begins with a pair and is marked, and cuts are between pairs; so marks are
//!   where pairs begin, and a recovery finds pairs without reading the others.
//!
//! # Rooms
//! | file | journey |
//! |---|---|
//! | here | opening and closing; finding, reading and cutting intervals |
//! | `change` | a merge puts its writes into an interval |
//! | `rebuild` | the index of a space that was opened |
//!
//! # Durability
//! A change is a group of the space: a crash finds it whole or not at all.

mod change;
mod rebuild;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use gabion_flex::{DurablePoint, FetchedNodes, FlexSpace, GcRound, ReaderWaits};
use gabion_media::Disk;

use super::cache::IntervalCache;
use super::index::{
    EXTENTS_UNKNOWN, IntervalEdit, IntervalIndex, IntervalRef, NewInterval, SeekTarget,
};
use super::interval::{Interval, PairRef, cuts, parse};
use crate::expiry::StoredRecord;
use crate::memory::TableMemory;
use crate::slabs::{Buffer, Slabs};
use crate::{Error, Options, Result};

pub(super) use change::{IntervalChanges, MergeChanges};

/// The file of a space that holds its data, for messages.
pub(super) const DATA_NAME: &str = "DATA";

#[derive(Debug)]
pub(super) struct Partition {
    space: FlexSpace,
    index: Arc<IntervalIndex>,
    cache: Arc<IntervalCache>,
    /// What the space and the index take of the store's memory.
    memory: TableMemory,
    /// Whether the space changed since it was synced.
    dirty: AtomicBool,
    /// Whether it changed since its tree was saved.
    unsaved: AtomicBool,
    /// Whether garbage was collected since then.
    collected: AtomicBool,
    /// Rounds that have ended since the space was read or changed.
    quiet_rounds: AtomicU32,
    /// What the tree of the space had in memory when that was counted.
    tree_bytes: AtomicU64,
    /// Whether others may change the files.
    closed: AtomicBool,
    /// For messages.
    path: PathBuf,
}

/// An interval and what belongs to it.
#[derive(Debug)]
pub(super) struct CachedInterval {
    pub(super) place: IntervalRef,
    pub(super) interval: Arc<Interval>,
}

/// An interval as it was read.
struct Encoded {
    place: IntervalRef,
    /// The [version](super::index::IndexLeaf::version) of the leaf at that time.
    version: u32,
    offset: u64,
    bytes: Buffer,
}

/// For whom an interval is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadIntent {
    /// A user: what it reads is worth keeping.
    User,
    /// A merge, which reads all that it changes: that is cached where nothing has to go for it.
    Merge,
}

/// How often the medium is read without the lock before it is held to read.
const TRIES_MAX: usize = 3;

/// Bytes of a space's log before its tree is saved, at most. Random pairs touch most leaves of the
/// tree between two savings, so each of these writes all of it; four times the log is a fourth of
/// that for each pair. A recovery repeats up to 2.8 million operations, as many as there may be
/// writes in the store's own log.
const LOG_BYTES_MAX: u64 = 4 * gabion_flex::DEFAULT_LOG_BYTES;

/// Of the ceiling of the store's memory, one part in so many is what the trees of spaces may take.
pub(super) const TREES_ONE_IN: u64 = 4;

/// Parts of 32 of a space that may be garbage, for the cap on the space amplification: rounded
/// down, and not more than a space has by itself.
fn garbage_parts(space_amplification_max: f64) -> u32 {
    let garbage = |parts: u32| f64::from(parts) / 32.0;
    let is_below = |parts: &u32| space_amplification_max * (1.0 - garbage(*parts)) >= 1.0;
    let mut parts = (1..=gabion_flex::DEFAULT_GARBAGE_PARTS).rev();
    parts.find(is_below).unwrap_or(1)
}

/// Options of one of so many spaces that suit the store's. A small store has small segments.
fn space_options(options: &Options, spaces: usize) -> gabion_flex::Options {
    let wanted = (options.memtable_budget() / 8).next_power_of_two();
    let segment = wanted.clamp(4 << 10, gabion_flex::DEFAULT_SEGMENT_BYTES.into());
    let segment = u32::try_from(segment).unwrap_or(gabion_flex::DEFAULT_SEGMENT_BYTES);
    let log = (options.memtable_budget() / 4).clamp(16 << 10, LOG_BYTES_MAX);
    // What a tree has in memory it gives back in part and late: so none begins with more than its
    // share.
    let trees = options.memory_ceiling() / TREES_ONE_IN;
    gabion_flex::Options::default()
        .segment_bytes(segment)
        .block_bytes((segment / 8).min(gabion_flex::DEFAULT_BLOCK_BYTES))
        .log_bytes(log)
        .garbage_parts(garbage_parts(options.space_amplification_max))
        .index_bytes(Some(trees / (spaces as u64).max(1)))
        .measure_waits(true)
        .managed(true)
}

impl Partition {
    /// Makes the partition of a disk of its own, in a store that then has so many `spaces`.
    pub(super) fn create(
        disk: Disk,
        cache: &Arc<IntervalCache>,
        options: &Options,
        spaces: usize,
    ) -> Result<Partition> {
        Partition::with_space(disk, cache, space_options(options, spaces))
    }

    /// Opens the partition of a disk of its own, which has come as far as `reached`, in a store
    /// with so many `spaces`, and builds its index.
    pub(super) fn open(
        disk: Disk,
        cache: &Arc<IntervalCache>,
        options: &Options,
        spaces: usize,
        reached: DurablePoint,
    ) -> Result<Partition> {
        let options = space_options(options, spaces);
        let options = options.create(false).reached(reached);
        Partition::with_space(disk, cache, options)
    }

    fn with_space(
        disk: Disk,
        cache: &Arc<IntervalCache>,
        options: gabion_flex::Options,
    ) -> Result<Partition> {
        let path = disk.path_of(DATA_NAME);
        let space = FlexSpace::open_on(disk, options)?;
        let mut partition = Partition {
            index: Arc::new(IntervalIndex::new(
                &[NewInterval::first()],
                cache.cached_bytes(),
            )),
            space,
            cache: Arc::clone(cache),
            memory: cache.memory().charge_table(0),
            dirty: AtomicBool::new(false),
            unsaved: AtomicBool::new(false),
            collected: AtomicBool::new(false),
            quiet_rounds: AtomicU32::new(0),
            tree_bytes: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            path,
        };
        partition.rebuild()?;
        cache.register(&partition.index);
        Ok(partition)
    }

    /// The memory that pairs are kept in.
    pub(super) fn slabs(&self) -> &Arc<Slabs> {
        self.cache.slabs()
    }

    pub(super) fn space(&self) -> &FlexSpace {
        &self.space
    }

    /// Makes all changes durable. The holder of the merge lock calls it.
    pub(super) fn sync(&self) -> Result<()> {
        // ORDER: Relaxed (all); the merge lock orders changes and syncs.
        if self.dirty.load(Ordering::Relaxed) {
            self.space.sync()?;
            self.dirty.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether something changed since the last sync.
    #[cfg(test)]
    pub(super) fn is_dirty(&self) -> bool {
        // ORDER: Relaxed, as in `sync`.
        self.dirty.load(Ordering::Relaxed)
    }

    /// Saves the tree, so that the next opening repeats nothing, and gives back free space.
    pub(super) fn checkpoint(&self) -> Result<()> {
        // ORDER: Relaxed (all), as in `sync`.
        if self.unsaved.load(Ordering::Relaxed) {
            self.space.checkpoint()?;
            self.dirty.store(false, Ordering::Relaxed);
            self.unsaved.store(false, Ordering::Relaxed);
            self.collected.store(false, Ordering::Relaxed);
            self.count_memory();
        }
        Ok(())
    }

    /// Whether nothing changed since the tree was saved. The holder of the merge lock asks.
    pub(super) fn is_saved(&self) -> bool {
        // ORDER: Relaxed, as in `sync`.
        !self.unsaved.load(Ordering::Relaxed)
    }

    /// Whether garbage was collected since the tree was saved. The holder of the merge lock asks.
    pub(super) fn was_collected(&self) -> bool {
        // ORDER: Relaxed, as in `sync`.
        self.collected.load(Ordering::Relaxed)
    }

    /// A round of collection; returns how many bytes were moved, `None` when no segment is worth
    /// it. The holder of the merge lock calls it.
    pub(super) fn collect(&self, round: GcRound) -> Result<Option<u64>> {
        let moved = self.space.collect_some(round)?;
        if moved.is_some() {
            self.begin_change();
            // ORDER: Relaxed, as in `sync`.
            self.collected.store(true, Ordering::Relaxed);
        }
        Ok(moved)
    }

    /// Whether the space was read or changed since a round ended last, or opened.
    pub(super) fn is_used(&self) -> bool {
        // ORDER: Relaxed; a hint that orders nothing.
        self.quiet_rounds.load(Ordering::Relaxed) == 0
    }

    /// Ends a round; returns how many had ended before since the space was used.
    pub(super) fn end_round(&self) -> u32 {
        // ORDER: Relaxed (all), as in `is_used`.
        let ended = self.quiet_rounds.load(Ordering::Relaxed);
        // A use meanwhile counts for the next one.
        let (next, order) = (ended.saturating_add(1), Ordering::Relaxed);
        let _ = self
            .quiet_rounds
            .compare_exchange(ended, next, order, order);
        ended
    }

    /// What the tree of the space had in memory when [`Partition::count_memory`] was called. It has
    /// the same until the space is used.
    pub(super) fn tree_bytes(&self) -> u64 {
        // ORDER: Relaxed, a figure.
        self.tree_bytes.load(Ordering::Relaxed)
    }

    /// For how long changes could keep out readers of what is not cached.
    pub(super) fn reader_waits(&self) -> ReaderWaits {
        let mut waits = self.index.reader_waits();
        waits.add(&self.space.reader_waits());
        waits
    }

    /// Gives the files up: what is not cached cannot be read any more.
    pub(super) fn close(&self) {
        // ORDER: Release pairs with the Acquire in `load`.
        self.closed.store(true, Ordering::Release);
        self.space.close();
    }

    /// Counts what the space and the index take of the store's memory by now.
    pub(super) fn count_memory(&self) {
        let bytes = self.index.memory_bytes() + self.space.memory_bytes();
        self.memory.set(bytes);
        // ORDER: Relaxed, a figure.
        self.tree_bytes
            .store(self.space.index_bytes(), Ordering::Relaxed);
    }

    pub(super) fn index(&self) -> &IntervalIndex {
        &self.index
    }

    fn corrupt(&self, offset: u64, what: &str) -> Error {
        Error::Corruption {
            file: self.path.clone(),
            offset,
            what: format!("{what} (an offset in the sorted space)"),
        }
    }

    /// The record of `key`, which has that hash, though it may have expired.
    #[inline]
    pub(super) fn get(&self, key: &[u8], hash: u64) -> Result<Option<StoredRecord>> {
        let record = |interval: &Interval| interval.find(key, hash).map(|at| interval.record(at));
        if let Some(found) = self.index.with_cached(key, record) {
            self.cache.count(true);
            return Ok(found);
        }
        Ok(record(
            &self
                .interval(SeekTarget::At(key), ReadIntent::User)?
                .interval,
        ))
    }

    /// An interval, read if it is not cached.
    pub(super) fn interval(
        &self,
        seek: SeekTarget<'_>,
        reader: ReadIntent,
    ) -> Result<CachedInterval> {
        loop {
            if let Some(held) = self.cached(self.index.find(seek), reader) {
                return Ok(held);
            }
            if let Some(held) = self.load(seek, reader)? {
                match reader {
                    ReadIntent::User => self.cache.shrink_some(),
                    ReadIntent::Merge => self.cache.shrink(),
                }
                return Ok(held);
            }
        }
    }

    /// The interval behind another one, read if it is not cached; `None` behind the last one.
    pub(super) fn interval_behind(&self, held: &CachedInterval) -> Result<Option<CachedInterval>> {
        let next = held.place.next();
        if let Some(held) = next.and_then(|place| self.cached(place, ReadIntent::User)) {
            return Ok(Some(held));
        }
        let upper = held.place.upper();
        let read = upper.map(|upper| self.interval(SeekTarget::At(upper), ReadIntent::User));
        read.transpose()
    }

    /// The interval of a place, if it is cached.
    fn cached(&self, place: IntervalRef, reader: ReadIntent) -> Option<CachedInterval> {
        let interval = match reader {
            ReadIntent::User => place.leaf.cached(place.at),
            ReadIntent::Merge => place.leaf.peek(place.at),
        }?;
        self.cache.count(true);
        Some(CachedInterval { place, interval })
    }

    /// Reads the bytes of an interval, all as they are at one moment.
    fn read(&self, seek: SeekTarget<'_>) -> Result<Encoded> {
        self.note_use();
        // Memory is made before the lock is taken. Only a guess: the interval may change.
        let mut bytes = self.buffer(self.index.find(seek).len())?;
        let mut fetched = FetchedNodes::default();
        let mut tries = 0;
        let (place, version, offset, read) = loop {
            let share = self.index.share();
            let (place, offset) = self.index.locate(seek);
            let version = place.leaf.version();
            if bytes.len() as u64 != place.len() {
                bytes = self.buffer(place.len())?;
            }
            let buffer = bytes.own();
            let read = if tries < TRIES_MAX {
                let reading = self.space.begin_read(offset, buffer, &mut fetched);
                drop(share);
                reading.finish()?
            } else {
                // Collections were quicker several times, or what the space's index has of this was
                // not in memory again: now the changes of this space wait.
                Some(self.space.read_at(offset, buffer)?)
            };
            if let Some(read) = read {
                break (place, version, offset, read);
            }
            tries += 1;
        };
        self.cache.count(false);
        // ORDER: Acquire pairs with the Release in `close`: what was read before is of this store.
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        if read != bytes.len() {
            return Err(self.corrupt(offset, "the space ends within an interval"));
        }
        Ok(Encoded {
            place,
            version,
            offset,
            bytes,
        })
    }

    /// A buffer of this length.
    fn buffer(&self, len: u64) -> Result<Buffer> {
        let len = usize::try_from(len).map_err(|_| self.corrupt(0, "an interval is too long"))?;
        Ok(self.cache.slabs().take(len))
    }

    /// Reads an interval; `None` when it was too large, and is cut now.
    fn load(&self, seek: SeekTarget<'_>, reader: ReadIntent) -> Result<Option<CachedInterval>> {
        let Encoded {
            place,
            version,
            offset,
            bytes,
        } = self.read(seek)?;
        let pairs = parse(&bytes)
            .map_err(|malformed| self.corrupt(offset + malformed.at as u64, malformed.what))?;
        let key_of = |pair: &PairRef| pair.key_in(&bytes);
        let below = pairs
            .first()
            .is_some_and(|first| key_of(first) < place.lower());
        let above = |upper| pairs.last().is_some_and(|last| key_of(last) >= upper);
        if below || place.upper().is_some_and(above) {
            return Err(self.corrupt(
                offset,
                "an interval has keys that belong to another interval",
            ));
        }
        let Some(interval) = Interval::new(bytes.clone(), &pairs, 0) else {
            self.cut(&place, version, &bytes, &pairs);
            return Ok(None);
        };
        let caches = match reader {
            ReadIntent::User => self.cache.takes(&interval),
            ReadIntent::Merge => self.cache.has_room_for(&interval),
        };
        let interval = Arc::new(interval);
        if caches {
            self.index.fill(&place, version, &interval);
        }
        Ok(Some(CachedInterval { place, interval }))
    }

    /// Cuts an interval that a recovery left too large.
    fn cut(&self, place: &IntervalRef, version: u32, bytes: &[u8], pairs: &[PairRef]) {
        let new = self.intervals_of(place.lower(), bytes, pairs, false);
        let ahead = self.index.ahead();
        // Somebody else may have been quicker, or have removed the pairs.
        if !self.index.is_as_it_was(place, version) {
            return;
        }
        let cut = IntervalEdit::others(place.lower(), 1, new);
        let ready = self.index.prepare(&ahead, vec![cut]);
        let made = self.index.make(&mut ahead.alone(), ready);
        if made.is_large {
            self.index.cut_branch(place.lower());
        }
    }

    /// Cuts pairs that begin from `lower` on into intervals; without any, there is none.
    fn intervals_of(
        &self,
        lower: &[u8],
        bytes: &[u8],
        pairs: &[PairRef],
        cached: bool,
    ) -> Vec<NewInterval> {
        if pairs.is_empty() {
            return Vec::new();
        }
        let start = |at: usize| pairs.get(at).map_or(bytes.len(), |pair| pair.start);
        let cuts = cuts((0..pairs.len()).map(|at| start(at + 1) - start(at)));
        let ends = cuts.iter().copied().chain([pairs.len()]);
        let starts = std::iter::once(0).chain(cuts.iter().copied());
        let new = |(from, to): (usize, usize)| {
            let part = &bytes[start(from)..start(to)];
            let buffer = || self.cache.slabs().copy(part);
            let interval = || Interval::new(buffer(), &pairs[from..to], start(from));
            let interval = cached.then(interval).flatten();
            NewInterval {
                key: match from {
                    0 => lower.to_vec(),
                    _ => pairs[from].key_in(bytes).to_vec(),
                },
                len: part.len() as u64,
                extents: EXTENTS_UNKNOWN,
                interval: interval.filter(|own| self.cache.takes(own)).map(Arc::new),
            }
        };
        starts.zip(ends).map(new).collect()
    }

    /// What a merge looks at: the interval of `key`, unread.
    pub(super) fn find(&self, key: &[u8]) -> IntervalRef {
        self.index.find(SeekTarget::At(key))
    }

    /// The interval of `key`, which was just found at a place, for a merge.
    pub(super) fn read_found(&self, place: IntervalRef, key: &[u8]) -> Result<CachedInterval> {
        match self.cached(place, ReadIntent::Merge) {
            Some(held) => Ok(held),
            None => self.interval(SeekTarget::At(key), ReadIntent::Merge),
        }
    }

    fn note_use(&self) {
        if !self.is_used() {
            // ORDER: Relaxed, as in `is_used`.
            self.quiet_rounds.store(0, Ordering::Relaxed);
        }
    }

    fn begin_change(&self) {
        self.note_use();
        // ORDER: Relaxed (both), see `sync`.
        self.dirty.store(true, Ordering::Relaxed);
        self.unsaved.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
