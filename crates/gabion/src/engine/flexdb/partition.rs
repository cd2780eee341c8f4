//! A partition: all merged pairs of a keyspace, sorted in one space, with their index.
//!
//! # Idea
//! The space holds the pairs one behind the other and nothing else. The index says where each
//! interval lies. Both change together, interval by interval: a reader holds the index's lock while
//! it looks up an interval and reads it from the space, and a change holds it alone for as long as
//! the trees of both change, which takes microseconds; the data is written before.
//!
//! # Invariants
//! - P1. The intervals of the index cover the space; each holds the pairs of its keys.
//! - P2. Only the holder of the merge lock changes content. Readers may cut an interval that a
//!   recovery left too large, which changes the index only.
//! - P3. Every insertion begins with a pair and is marked, and cuts are between pairs; so marks are
//!   where pairs begin, and a recovery finds pairs without reading the others.
//!
//! # Durability
//! A change is a group of the space: a crash finds it whole or not at all.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion_flex::{DurablePoint, Edit, FlexSpace};
use gabion_media::Disk;
use parking_lot::{RwLock, RwLockWriteGuard};

use super::cache::{Cache, Slot};
use super::index::{Entry, Found, Index, Key};
use super::interval::{Interval, cuts, pair_head, put_pair};
use crate::{Error, Options, Result, Slice};

/// The file of a space that holds its data, for messages.
pub(super) const DATA_NAME: &str = "DATA";

/// Bytes between the places at which a recovery looks for a pair (the paper's stride).
const STRIDE_BYTES: u64 = 32 << 10;

/// Bytes of a space that are worth a thread of their own in a recovery.
const THREAD_BYTES: u64 = 16 << 20;

/// Most threads of a recovery.
const THREADS_MAX: u64 = 8;

/// First bytes that a recovery reads of a pair: enough for most keys.
const FRONT_BYTES: usize = 128;

/// An interval that has this many extents, and more than half as many as pairs, is written anew
/// when it changes (the paper's rule, section 5.2).
const FRAGMENTS_MIN: usize = 4;

#[derive(Debug)]
pub(super) struct Partition {
    space: FlexSpace,
    index: RwLock<Index>,
    cache: Arc<Cache>,
    /// Whether the space changed since it was synced.
    dirty: AtomicBool,
    /// Whether it changed since its tree was saved.
    unsaved: AtomicBool,
    /// Whether others may change the files.
    closed: AtomicBool,
    /// For messages.
    path: PathBuf,
}

/// An interval and what belongs to it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) found: Found,
    pub(super) interval: Arc<Interval>,
}

/// Where pairs begin, and their keys.
type Anchors = Vec<(u64, Vec<u8>)>;

/// What a merge does with a key.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) key: Vec<u8>,
    /// The new value; `None` removes the key.
    pub(super) value: Option<Slice>,
}

/// Options of a space that suit the store's. A small store has small segments.
fn space_options(options: &Options) -> gabion_flex::Options {
    let wanted = (options.memtable_budget_bytes / 8).next_power_of_two();
    let segment = wanted.clamp(4 << 10, gabion_flex::DEFAULT_SEGMENT_BYTES.into());
    let segment = u32::try_from(segment).unwrap_or(gabion_flex::DEFAULT_SEGMENT_BYTES);
    let log = (options.memtable_budget_bytes / 4).clamp(16 << 10, gabion_flex::DEFAULT_LOG_BYTES);
    gabion_flex::Options::default()
        .segment_bytes(segment)
        .block_bytes((segment / 8).min(gabion_flex::DEFAULT_BLOCK_BYTES))
        .log_bytes(log)
}

impl Partition {
    /// Makes the partition of a disk of its own.
    pub(super) fn create(disk: Disk, cache: &Arc<Cache>, options: &Options) -> Result<Partition> {
        Partition::with_space(disk, cache, space_options(options))
    }

    /// Opens the partition of a disk of its own, which has come as far as `reached`, and builds its
    /// index.
    pub(super) fn open(
        disk: Disk,
        cache: &Arc<Cache>,
        options: &Options,
        reached: DurablePoint,
    ) -> Result<Partition> {
        let options = space_options(options).create(false).reached(reached);
        Partition::with_space(disk, cache, options)
    }

    fn with_space(
        disk: Disk,
        cache: &Arc<Cache>,
        options: gabion_flex::Options,
    ) -> Result<Partition> {
        let path = disk.path_of(DATA_NAME);
        let space = FlexSpace::open_on(disk, options)?;
        let mut partition = Partition {
            index: RwLock::new(Index::new(Entry {
                len: space.len(),
                slot: Arc::default(),
            })),
            space,
            cache: Arc::clone(cache),
            dirty: AtomicBool::new(false),
            unsaved: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            path,
        };
        partition.rebuild()?;
        Ok(partition)
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

    /// Saves the tree, so that the next opening repeats nothing, and gives back free space.
    pub(super) fn checkpoint(&self) -> Result<()> {
        // ORDER: Relaxed (all), as in `sync`.
        if self.unsaved.load(Ordering::Relaxed) {
            self.space.checkpoint()?;
            self.dirty.store(false, Ordering::Relaxed);
            self.unsaved.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives the files up: what is not cached cannot be read any more.
    pub(super) fn close(&self) {
        // ORDER: Release pairs with the Acquire in `load`.
        self.closed.store(true, Ordering::Release);
        self.space.close();
    }

    /// Number of intervals, and memory of the index.
    pub(super) fn index_size(&self) -> (usize, u64) {
        let index = self.index.read();
        (index.count(), index.memory_bytes())
    }

    fn corrupt(&self, offset: u64, what: &str) -> Error {
        Error::Corruption {
            file: self.path.clone(),
            offset,
            what: format!("{what} (an offset in the sorted space)"),
        }
    }

    /// The value of `key`, which has that hash.
    pub(super) fn get(&self, key: &[u8], hash: u64) -> Result<Option<Slice>> {
        let interval = self.interval(key)?.interval;
        Ok(interval.find(key, hash).map(|at| interval.value(at)))
    }

    /// The interval of `key`.
    pub(super) fn interval(&self, key: &[u8]) -> Result<Held> {
        loop {
            if let Some(held) = self.load(|index| Some(index.find(key)))? {
                return Ok(held);
            }
        }
    }

    /// The interval of the keys right below `key`, or below the end of all keys; `None` for the
    /// empty key.
    pub(super) fn interval_below(&self, key: Option<&[u8]>) -> Result<Option<Held>> {
        if key.is_some_and(<[u8]>::is_empty) {
            return Ok(None);
        }
        loop {
            if let Some(held) = self.load(|index| index.find_below(key))? {
                return Ok(Some(held));
            }
        }
    }

    /// Reads an interval; `None` when it was too large, and is cut now.
    fn load(&self, find: impl Fn(&Index) -> Option<Found>) -> Result<Option<Held>> {
        let index = self.index.read();
        let found = find(&index);
        let found = found.ok_or_else(|| self.corrupt(0, "there is no interval"))?;
        if let Some(interval) = found.entry.slot.get() {
            drop(index);
            self.cache.count(true);
            return Ok(Some(Held { found, interval }));
        }
        let len = usize::try_from(found.entry.len);
        let len = len.map_err(|_| self.corrupt(found.offset, "an interval is too long"))?;
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        let buffer = Arc::get_mut(&mut bytes).unwrap_or_default();
        let read = self.space.read_at(found.offset, buffer)?;
        drop(index);
        self.cache.count(false);
        // ORDER: Acquire pairs with the Release in `close`: what was read before is of this store.
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        if read != len {
            return Err(self.corrupt(found.offset, "the space ends within an interval"));
        }
        let interval = Interval::decode(bytes).map_err(|malformed| {
            self.corrupt(found.offset + malformed.at as u64, malformed.what)
        })?;
        let below = interval.len() > 0 && interval.key(0) < &*found.lower;
        let last = interval.len().checked_sub(1).map(|at| interval.key(at));
        let upper = found.upper.as_deref();
        if below || last.is_some_and(|last| upper.is_some_and(|upper| last >= upper)) {
            return Err(self.corrupt(found.offset, "an interval has keys of another one"));
        }
        if interval.is_oversize() {
            self.cut(&found, &interval);
            return Ok(None);
        }
        let interval = Arc::new(interval);
        self.cache.fill(&found.entry.slot, &interval);
        Ok(Some(Held { found, interval }))
    }

    /// Cuts an interval that a recovery left too large.
    fn cut(&self, found: &Found, interval: &Interval) {
        let lens: Vec<usize> = (0..interval.len())
            .map(|at| interval.start(at + 1) - interval.start(at))
            .collect();
        let key_of = |at: usize| interval.key(at).to_vec();
        let entries = entries_of(&found.lower, &lens, key_of);
        let mut index = self.index.write();
        // Somebody else may have been quicker.
        if Arc::ptr_eq(&index.find(&found.lower).entry.slot, &found.entry.slot) {
            index.replace(&found.lower, found.upper.as_deref(), entries);
        }
    }

    /// Changes pairs of one interval, which the holder of the merge lock has just looked up; the
    /// changes are in the order of their keys, and all keys belong to the interval. Returns whether
    /// the space changed.
    pub(super) fn change(&self, held: &Held, changes: &[Change]) -> Result<bool> {
        let Held { found, interval } = held;
        let rewrites = self.is_fragmented(found, interval);
        let Some(plan) = Plan::new(found, interval, changes, rewrites) else {
            return Ok(false);
        };
        let edits = plan.edits();
        let entries = entries_of(&found.lower, &plan.lens, |at| plan.keys[at].to_vec());
        let few = plan.lens.len() < super::interval::PAIRS_MAX / 4;
        self.install(found, &edits, entries, few)?;
        Ok(true)
    }

    /// Writes an interval anew if it lies in several extents; says whether it did.
    pub(super) fn defragment(&self, held: &Held) -> Result<bool> {
        let Held { found, interval } = held;
        if self.space.extent_count(found.offset, found.entry.len) < 2 {
            return Ok(false);
        }
        let bytes = interval.encoded(0, interval.len());
        let edits = [
            Edit::Collapse {
                offset: found.offset,
                len: found.entry.len,
            },
            Edit::InsertMarked {
                offset: found.offset,
                data: bytes,
            },
        ];
        self.begin_change();
        self.space.apply(&edits)?;
        Ok(true)
    }

    /// Removes all pairs of the interval, unread.
    pub(super) fn clear(&self, found: &Found) -> Result<()> {
        let edit = Edit::Collapse {
            offset: found.offset,
            len: found.entry.len,
        };
        let entries = entries_of(&found.lower, &[], |_| Vec::new());
        self.install(found, &[edit], entries, false)
    }

    /// What a merge looks at: the interval of `key`, unread.
    pub(super) fn find(&self, key: &[u8]) -> Found {
        self.index.read().find(key)
    }

    fn is_fragmented(&self, found: &Found, interval: &Interval) -> bool {
        let extents = self.space.extent_count(found.offset, found.entry.len);
        extents >= FRAGMENTS_MIN && extents > interval.len() / 2
    }

    fn begin_change(&self) {
        // ORDER: Relaxed (both), see `sync`.
        self.dirty.store(true, Ordering::Relaxed);
        self.unsaved.store(true, Ordering::Relaxed);
    }

    /// Changes the space and the index together.
    fn install(
        &self,
        found: &Found,
        edits: &[Edit<'_>],
        entries: Vec<(Key, Entry)>,
        joins: bool,
    ) -> Result<()> {
        self.begin_change();
        let last = entries.last().map(|(key, _)| Arc::clone(key.bytes()));
        let mut index = self.space.apply_under(edits, || self.index.write())?;
        index.replace(&found.lower, found.upper.as_deref(), entries);
        if let (true, Some(last)) = (joins, last) {
            join_with_next(&mut index, &last);
        }
        Ok(())
    }

    /// Looks for a pair at every stride and makes intervals of what lies between.
    fn rebuild(&mut self) -> Result<()> {
        let len = self.space.len();
        let threads = (len / THREAD_BYTES).clamp(1, THREADS_MAX);
        let part = len.div_ceil(threads).max(1);
        let this = &*self;
        let parts: Vec<Result<Anchors>> = std::thread::scope(|scope| {
            let spawned: Vec<_> = (0..threads)
                .map(|number| {
                    let (from, to) = (number * part, ((number + 1) * part).min(len));
                    scope.spawn(move || this.anchors(from, to))
                })
                .collect();
            let joined = spawned.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.collect()
        });
        let mut entries: Vec<(Key, Entry)> = Vec::new();
        let (mut lower, mut from) = (Vec::new(), 0);
        for anchors in parts {
            for (offset, key) in anchors? {
                if offset == 0 {
                    continue;
                }
                if key <= lower {
                    return Err(self.corrupt(offset, "a key is not above those before it"));
                }
                push_entry(&mut entries, &lower, offset - from);
                (lower, from) = (key, offset);
            }
        }
        push_entry(&mut entries, &lower, len - from);
        self.index.get_mut().replace(b"", None, entries);
        Ok(())
    }

    /// Where pairs begin, and their keys: the first one behind each stride.
    fn anchors(&self, from: u64, to: u64) -> Result<Anchors> {
        let mut anchors = Vec::new();
        let mut at = from;
        while let Some(offset) = self.space.next_mark(at).filter(|offset| *offset < to) {
            match self.key_at(offset) {
                Ok(key) => anchors.push((offset, key)),
                // The damage is told when the pair is read; its interval only is longer.
                Err(Error::Corruption { .. }) => {}
                Err(error) => return Err(error),
            }
            at = offset + STRIDE_BYTES;
        }
        Ok(anchors)
    }

    fn key_at(&self, offset: u64) -> Result<Vec<u8>> {
        let mut front = vec![0; FRONT_BYTES];
        let read = self.space.read_at(offset, &mut front)?;
        front.truncate(read);
        let malformed = |malformed: crate::log::Malformed| self.corrupt(offset, malformed.what);
        let (head, key, _) = pair_head(&front).map_err(malformed)?;
        let end = head.saturating_add(key);
        if end > front.len() {
            if end as u64 > self.space.len() - offset {
                return Err(self.corrupt(offset, "a key reaches beyond the space"));
            }
            front.resize(end, 0);
            self.space.read_at(offset, &mut front)?;
        }
        Ok(front[head..end].to_vec())
    }
}

fn push_entry(entries: &mut Vec<(Key, Entry)>, lower: &[u8], len: u64) {
    let slot = Arc::default();
    entries.push((Key::new(lower), Entry { len, slot }));
}

/// The index's entries for pairs of these lengths; without any, one for the first interval of all
/// and none for others.
fn entries_of(
    lower: &[u8],
    lens: &[usize],
    key_of: impl Fn(usize) -> Vec<u8>,
) -> Vec<(Key, Entry)> {
    let mut entries = Vec::new();
    if lens.is_empty() && !lower.is_empty() {
        return entries;
    }
    let cuts = cuts(lens);
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([lens.len()]);
    for (from, to) in starts.zip(ends) {
        let key = if from == 0 {
            lower.to_vec()
        } else {
            key_of(from)
        };
        push_entry(
            &mut entries,
            &key,
            lens[from..to].iter().sum::<usize>() as u64,
        );
    }
    entries
}

/// Joins an interval of few pairs with the next one. Both together are less than what is cut.
fn join_with_next(index: &mut RwLockWriteGuard<'_, Index>, lower: &[u8]) {
    let found = index.find(lower);
    let Some(next) = found.upper.as_deref().map(|upper| index.find(upper)) else {
        return;
    };
    let len = found.entry.len + next.entry.len;
    if len > super::interval::BYTES_MAX as u64 {
        return;
    }
    let slot: Arc<Slot> = Arc::default();
    let entry = (Key::new(&found.lower), Entry { len, slot });
    index.replace(&found.lower, next.upper.as_deref(), vec![entry]);
}

/// What becomes of an interval, and the edits that make it so.
struct Plan<'c> {
    keys: Vec<&'c [u8]>,
    lens: Vec<usize>,
    steps: Vec<Step>,
}

/// A place of the space at which bytes are removed and others inserted.
#[derive(Default)]
struct Step {
    offset: u64,
    removed: u64,
    inserted: Vec<u8>,
}

impl<'c> Plan<'c> {
    /// The plan for some changes; `None` if they change nothing.
    fn new(
        found: &Found,
        interval: &'c Interval,
        changes: &'c [Change],
        rewrites: bool,
    ) -> Option<Plan<'c>> {
        let mut plan = Plan {
            keys: Vec::new(),
            lens: Vec::new(),
            steps: Vec::new(),
        };
        let mut step = Step {
            offset: found.offset,
            ..Step::default()
        };
        let mut changed = false;
        let mut at = 0;
        for change in changes {
            let below = interval.count_below(&change.key);
            plan.keep(&mut step, interval, at..below, rewrites);
            at = below;
            let is_there = at < interval.len() && interval.key(at) == change.key;
            if is_there {
                let same = change.value.as_deref() == Some(interval.value_bytes(at));
                if same {
                    plan.keep(&mut step, interval, at..at + 1, rewrites);
                    at += 1;
                    continue;
                }
                step.removed += (interval.start(at + 1) - interval.start(at)) as u64;
                at += 1;
                changed = true;
            }
            if let Some(value) = &change.value {
                let before = step.inserted.len();
                put_pair(&mut step.inserted, &change.key, value);
                plan.keys.push(&change.key);
                plan.lens.push(step.inserted.len() - before);
                changed = true;
            }
        }
        plan.keep(&mut step, interval, at..interval.len(), rewrites);
        plan.steps.push(step);
        changed.then_some(plan)
    }

    /// Keeps pairs of the interval: in their place, or in another one if all is written anew.
    fn keep(
        &mut self,
        step: &mut Step,
        interval: &'c Interval,
        range: std::ops::Range<usize>,
        rewrites: bool,
    ) {
        for at in range.clone() {
            self.keys.push(interval.key(at));
            self.lens.push(interval.start(at + 1) - interval.start(at));
        }
        let bytes = interval.encoded(range.start, range.end);
        if rewrites {
            step.inserted.extend_from_slice(bytes);
            step.removed += bytes.len() as u64;
        } else if !bytes.is_empty() {
            let next = step.offset + step.inserted.len() as u64 + bytes.len() as u64;
            let done = std::mem::take(step);
            step.offset = next;
            self.steps.push(done);
        }
    }

    fn edits(&self) -> Vec<Edit<'_>> {
        let mut edits = Vec::new();
        for step in &self.steps {
            let offset = step.offset;
            if step.removed > 0 {
                let len = step.removed;
                edits.push(Edit::Collapse { offset, len });
            }
            if !step.inserted.is_empty() {
                let data = &step.inserted;
                edits.push(Edit::InsertMarked { offset, data });
            }
        }
        edits
    }
}
