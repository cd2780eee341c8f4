//! Merging a frozen generation into the spaces: the paper's committer.
//!
//! # Order
//! 1. The log is synced: nothing is in a space that a power loss could take from the log (I2).
//! 2. Some intervals at a time, in the order of the keys, the writes of a keyspace are put into its
//!    space. If readers of earlier moments are registered, what is overwritten is noted before.
//! 3. The generation leaves the view; for readers of earlier moments it stays among the past ones.
//! 4. The spaces are synced, then the root says that the log's segments before those of the next
//!    generation are not needed, then these are removed.
//!
//! A failure before the third step leaves the generation where it was, and all of it is merged
//! again; one behind it leaves the last step to do: when there was no space, after a while; else
//! when the store is opened again. A generation counts as merged when all four are done.
//!
//! # Committers
//! A large generation is merged by several threads, as many as the store has for the background:
//! the keys of a keyspace are cut into ranges where leaves of its index begin, and who is free
//! takes the next range. Reading, decoding, planning and the new decoded forms are each one's own
//! work; the space is changed by one at a time, a few intervals of a leaf together.
//!
//! # Waiting
//! Readers of cached intervals wait for nothing; others while the trees of one interval's change
//! are updated. Writers wait for nothing here; when generations that wait take more than the
//! budget, new writes wait (`schedule`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gabion_flex::Round;

use super::generation::{Generation, Layer};
use super::index::Seek;
use super::layout::Root;
use super::partition::{Change, Held, Partition, Reader};
use super::{Flex, Keyspace};
use crate::engine::memtable::MemCursor;
use crate::engine::pace::{Class, STEP_BYTES};
use crate::engine::range_deletes::{Fragment, Fragments};
use crate::log::LogSyncer;
use crate::types::{Kind, SEQ_MAX, Seq};
use crate::{Result, Slice};

/// Keys that are changed together at most: bounds how long readers wait.
const CHANGES_MAX: usize = 64;

/// Intervals that are changed together at most, to share what a change costs in locks.
const INTERVALS_MAX: usize = 8;

/// Bytes of new pairs that are written together at most, if they are more than one.
const CHANGE_BYTES_MAX: usize = 64 << 10;

/// Writes of a keyspace that are worth several threads.
const SHARED_MIN: usize = 1_000;

/// After a compaction, segments have less garbage than a sixteenth.
const COMPACTED: Round = Round {
    segments: 8,
    garbage_parts: 2,
};

/// Ranges for each of these threads, so that none is left over with much to do.
const RANGES_PER_THREAD: usize = 4;

impl Flex {
    /// Merges the oldest frozen generation, or ends the merge before if that failed; false when
    /// there is nothing to merge.
    pub(super) fn merge_oldest(&self) -> Result<bool> {
        let _lock = self.merge_lock.lock();
        let view = self.view.load_full();
        let Some(generation) = view.frozen().last() else {
            return self.end_merge();
        };
        // DURABLE: the log holds all writes of the generation before a space does.
        self.syncer.sync().map_err(|error| self.fail(error))?;
        // ORDER: Release pairs with the Acquire in `is_outdated`.
        self.merging.fetch_max(generation.number, Ordering::Release);
        // Who registers from here on reads at the generation's newest number or a later one.
        let max_seq = generation.max_seq();
        let protected = self.snapshots.protect(|| max_seq);
        let notes = protected.stripe(max_seq) != Some(0);
        let keyspaces = self.keyspaces.load();
        let pay = |bytes| self.pay(Class::Flush, bytes);
        let job = Job {
            generation,
            notes,
            pay: &pay,
        };
        job.merge_layers(&keyspaces, self.options.background_threads)?;
        self.change_view(|view| {
            view.waiting.pop();
            if notes {
                view.past.insert(0, Arc::clone(generation));
            }
        });
        self.fold_past();
        self.forget_past();
        self.fit_memory();
        self.counters.flushes.add(1);
        self.end_merge()
    }

    /// Makes what has left the view durable in the spaces, so that the log is not needed for it;
    /// false when it is so already. The caller holds the merge lock.
    fn end_merge(&self) -> Result<bool> {
        let view = self.view.load_full();
        let Some(oldest) = view.waiting.last() else {
            return Ok(false);
        };
        let merged = oldest.number - 1;
        if self.is_merged(merged) {
            return Ok(false);
        }
        // The newest write that is merged; the log holds it durably. In this order: what is visible
        // and not merged has made the oldest generation that waits say so.
        let last_seq = self.visible().min(oldest.min_seq() - 1);
        for keyspace in self.keyspaces.load().iter() {
            keyspace.partition.sync()?;
        }
        // DURABLE: what the merged generations wrote is in the spaces.
        self.move_tail(oldest.first_segment, last_seq)?;
        // ORDER: Release pairs with the Acquire in `is_merged`: who sees the number finds the root
        // as it was written, and nothing of its generation left to do.
        self.merged.store(merged, Ordering::Release);
        Ok(true)
    }

    /// Whether all generations up to that number are in the spaces, durably, and need no log.
    pub(super) fn is_merged(&self, number: u64) -> bool {
        // ORDER: Acquire pairs with the Release in `end_merge`.
        self.merged.load(Ordering::Acquire) >= number
    }

    /// Says durably that the log is not needed before a segment, and that newer writes have larger
    /// numbers than `last_seq`.
    fn move_tail(&self, tail: u64, last_seq: Seq) -> Result<()> {
        let mut root = self.root.lock();
        if tail > root.log_tail {
            let mut next = root.clone();
            next.log_tail = tail;
            next.last_seq = next.last_seq.max(last_seq);
            self.note_reached(&mut next);
            self.write_root(&mut root, next)?;
        }
        drop(root);
        remove_log(&self.syncer, tail);
        Ok(())
    }

    /// Brings a root whose tail has moved up to date: it forgets seals of segments that are not
    /// needed, and says how far the spaces have come, which are synced.
    pub(super) fn note_reached(&self, root: &mut Root) {
        root.forget_seals();
        let keyspaces = self.keyspaces.load();
        for (known, keyspace) in root.keyspaces.iter_mut().zip(keyspaces.iter()) {
            known.reached = keyspace.partition.space().durable_point();
        }
    }

    /// Lets past generations take no more memory than the readers of today need. The caller holds
    /// the merge lock.
    fn fold_past(&self) {
        let view = self.view.load_full();
        if view.past.is_empty() {
            return;
        }
        // Outside of the lock of the view, since it takes its time. Readers only become fewer, and
        // only a merge adds to the past: at worst something stays that is forgotten next.
        let readers = self.snapshots.protect(|| SEQ_MAX);
        let folded = view.folded_past(&readers);
        self.change_view(|view| view.past = folded);
    }

    /// Lets go of past generations that no reader needs.
    pub(super) fn forget_past(&self) {
        let oldest = self.snapshots.protect(|| SEQ_MAX).last_of(0);
        let needed = |past: &Arc<Generation>| past.max_seq() > oldest;
        if !self.view.load().past.iter().all(needed) {
            self.change_view(|view| view.past.retain(needed));
        }
    }

    /// Merges everything, and writes all intervals of a range anew that lie in several extents.
    pub(crate) fn compact_range(
        &self,
        keyspace: &Keyspace,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<()> {
        self.flush()?;
        let mut at = Some(lower.to_vec());
        let mut changed = false;
        while let Some(key) = at.filter(|key| upper.is_none_or(|upper| &**key < upper)) {
            self.health.check_writable()?;
            let lock = self.merge_lock.lock();
            let held = keyspace.partition.interval(Seek::At(&key), Reader::Merge)?;
            let done = keyspace.partition.defragment(&held);
            let done = done.map_err(|error| self.record(error))?;
            changed |= done;
            at = held.place.upper().map(<[u8]>::to_vec);
            drop(lock);
            if done {
                self.pay(Class::Usual, held.place.len());
            }
        }
        self.collect_all(keyspace)?;
        let _lock = self.merge_lock.lock();
        // What is free goes back to the file system with a checkpoint only.
        let saved = keyspace.partition.checkpoint();
        saved.map_err(|error| self.record(error))?;
        if changed {
            self.counters.compactions.add(1);
        }
        Ok(())
    }

    /// Collects the garbage of a keyspace's space, as far as it is worth it.
    fn collect_all(&self, keyspace: &Keyspace) -> Result<()> {
        loop {
            self.health.check_writable()?;
            let lock = self.merge_lock.lock();
            let moved = keyspace.partition.collect(COMPACTED);
            let moved = moved.map_err(|error| self.record(error))?;
            drop(lock);
            match moved {
                Some(moved) => self.pay(Class::Usual, moved),
                None => return Ok(()),
            }
        }
    }
}

/// Removes segments that the root says are not needed.
fn remove_log(syncer: &LogSyncer, tail: u64) {
    if let Err(error) = syncer.remove_before(tail) {
        // The next open, or the next call, removes them.
        tracing::warn!(%error, "a log segment that is not needed any more stays for now");
    }
}

/// The merge of a generation.
struct Job<'m> {
    generation: &'m Generation,
    /// Whether somebody needs what is overwritten.
    notes: bool,
    /// Called with what was written, to keep to the limit.
    pay: &'m (dyn Fn(u64) + Sync),
}

impl Job<'_> {
    /// Merges all layers, by several threads if they are large.
    fn merge_layers(&self, keyspaces: &[Arc<Keyspace>], threads: usize) -> Result<()> {
        let layers = self.generation.layers();
        let mut merges = Vec::new();
        for (keyspace, layer) in keyspaces.iter().zip(layers.iter()) {
            if layer.is_empty() {
                continue;
            }
            // Small ones are not worth a thread; besides, a store without threads stays
            // deterministic.
            let borders = match threads > 1 && layer.table.items() >= SHARED_MIN {
                true => keyspace
                    .partition
                    .index()
                    .borders(threads * RANGES_PER_THREAD),
                false => Vec::new(),
            };
            let ends = borders.iter().cloned().map(Some).chain([None]);
            let begins = std::iter::once(Vec::new()).chain(borders.iter().cloned());
            merges.extend(begins.zip(ends).map(|(begin, end)| Merge {
                job: self,
                keyspace,
                layer,
                begin,
                end,
            }));
        }
        let result = run_all(&merges, threads);
        for keyspace in keyspaces {
            keyspace.partition.index().prune();
        }
        result
    }
}

/// Runs merges of different ranges, by so many threads at most.
fn run_all(merges: &[Merge<'_>], threads: usize) -> Result<()> {
    if merges.len() < 2 || threads < 2 {
        return merges.iter().try_for_each(Merge::run);
    }
    let next = AtomicUsize::new(0);
    let work = || {
        // ORDER: Relaxed; the number only has to differ.
        while let Some(merge) = merges.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = merge.run() {
                // What the others have not begun is of no use any more.
                next.store(merges.len(), Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    };
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let others = 1..threads.min(merges.len());
        let others: Vec<_> = others.map(|_| scope.spawn(work)).collect();
        let own = work();
        let joined = others.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        std::iter::once(own).chain(joined).collect()
    });
    results.into_iter().collect()
}

/// The merge of one keyspace's writes in a range of keys, which begins and ends where leaves of the
/// index begin.
struct Merge<'m> {
    job: &'m Job<'m>,
    keyspace: &'m Arc<Keyspace>,
    layer: &'m Layer,
    begin: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl Merge<'_> {
    fn partition(&self) -> &Partition {
        &self.keyspace.partition
    }

    fn run(&self) -> Result<()> {
        let mut cursor = self.layer.table.sorted();
        cursor.seek(&self.begin);
        let deletes = self.layer.deletes();
        let mut at = self.begin.clone();
        let mut group = Group::default();
        while let Some(start) = next_key(&cursor, &deletes, &at) {
            if self.end.as_ref().is_some_and(|end| start >= *end) {
                break;
            }
            let next = self.step(&mut group, &mut cursor, &deletes, &start)?;
            if group.written >= STEP_BYTES {
                (self.job.pay)(std::mem::take(&mut group.written));
            }
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        self.apply(&mut group)?;
        (self.job.pay)(group.written);
        self.partition().count_memory();
        Ok(())
    }

    /// Merges what concerns the interval of `start`, or a part of it, or adds it to the group;
    /// returns the first key that is left, `None` at the end of all keys.
    fn step(
        &self,
        group: &mut Group,
        cursor: &mut MemCursor,
        deletes: &Fragments,
        start: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let place = self.partition().find(start);
        let upper = place.upper();
        let written = cursor.valid() && upper.is_none_or(|upper| cursor.key() < upper);
        // What lies in front of `start` is merged already.
        let whole = |fragment: &Fragment| {
            let covers_end = match (&fragment.upper, upper) {
                (None, _) => true,
                (Some(end), Some(upper)) => upper <= &**end,
                (Some(_), None) => false,
            };
            *place.lower() == *start && covers_end
        };
        if !self.job.notes && !written && deletes.find(start).is_some_and(whole) {
            self.apply(group)?;
            if place.len() > 0 && !self.partition().clear(&place)? {
                return Ok(Some(start.to_vec()));
            }
            return Ok(upper.map(<[u8]>::to_vec));
        }
        let interval = || self.partition().interval(Seek::At(start), Reader::Merge);
        let mut held = interval()?;
        if !group.takes(&held) {
            self.apply(group)?;
            // It may begin elsewhere now.
            held = interval()?;
        }
        let (changes, next) = self.changes(cursor, deletes, &held, start, group);
        if self.job.notes {
            self.note(&held, &changes);
        }
        let is_whole = next.as_deref() == held.place.upper();
        group.add(held, changes);
        if !is_whole || group.is_full() {
            self.apply(group)?;
        }
        Ok(next)
    }

    /// Makes the changes of a group, which is empty then.
    fn apply(&self, group: &mut Group) -> Result<()> {
        group.written += self.partition().change(&group.wanted)?;
        *group = Group {
            written: group.written,
            ..Group::default()
        };
        Ok(())
    }

    /// The changes of an interval from `start` on, at most so many that readers do not wait long
    /// for them and the rest of the group, and the first key behind them.
    fn changes(
        &self,
        cursor: &mut MemCursor,
        deletes: &Fragments,
        held: &Held,
        start: &[u8],
        group: &Group,
    ) -> (Vec<Change>, Option<Vec<u8>>) {
        let upper = held.place.upper();
        let mut writes = Vec::new();
        let mut bytes = group.bytes;
        while cursor.valid() && upper.is_none_or(|upper| cursor.key() < upper) {
            if group.keys + writes.len() >= CHANGES_MAX || bytes > CHANGE_BYTES_MAX {
                break;
            }
            let key = cursor.key().to_vec();
            let deleted = deletes.find(&key).map_or(0, |found| found.newest(SEQ_MAX));
            let is_put = cursor.kind() == Kind::Put && cursor.seq() > deleted;
            let value = is_put.then(|| cursor.value());
            bytes += bytes_of(&key, value.as_ref());
            // Older versions of the key may be in other runs of the cursor.
            while cursor.valid() && cursor.key() == key {
                cursor.next_key();
            }
            writes.push(Change { key, value });
        }
        let rest = cursor.valid() && upper.is_none_or(|upper| cursor.key() < upper);
        let end = match rest {
            true => Some(cursor.key().to_vec()),
            false => upper.map(<[u8]>::to_vec),
        };
        if deletes.is_empty() {
            return (writes, end);
        }
        (
            with_deleted(writes, deletes, held, start, end.as_deref()),
            end,
        )
    }

    /// Notes what the space holds of the keys that are about to change.
    fn note(&self, held: &Held, changes: &[Change]) {
        let interval = &held.interval;
        let mut bytes = 0;
        for change in changes {
            let at = interval.count_below(&change.key);
            let is_there = at < interval.len() && interval.key(at) == change.key;
            let value = is_there.then(|| Slice::new(interval.value_bytes(at)));
            bytes += self.layer.note_image(&change.key, value);
        }
        self.job.generation.add_image_bytes(bytes);
    }
}

/// Intervals of one leaf of the index, which the merge has looked up, and what it does with them.
#[derive(Default)]
struct Group {
    wanted: Vec<(Held, Vec<Change>)>,
    keys: usize,
    /// Of the new pairs.
    bytes: usize,
    /// Bytes that groups before have written and nobody has paid for.
    written: u64,
}

impl Group {
    /// Whether an interval may be changed with the others: whatever they become concerns one leaf.
    fn takes(&self, held: &Held) -> bool {
        let first = self.wanted.first();
        first.is_none_or(|(first, _)| Arc::ptr_eq(&first.place.leaf, &held.place.leaf))
    }

    fn add(&mut self, held: Held, changes: Vec<Change>) {
        self.keys += changes.len();
        let bytes = changes
            .iter()
            .map(|change| bytes_of(&change.key, change.value.as_ref()));
        self.bytes += bytes.sum::<usize>();
        self.wanted.push((held, changes));
    }

    fn is_full(&self) -> bool {
        self.wanted.len() == INTERVALS_MAX
            || self.keys >= CHANGES_MAX
            || self.bytes > CHANGE_BYTES_MAX
    }
}

/// Bytes of a new pair.
fn bytes_of(key: &[u8], value: Option<&Slice>) -> usize {
    key.len() + value.map_or(0, |value| value.len())
}

/// The smallest key from `at` on that a merge must look at.
fn next_key(cursor: &MemCursor, deletes: &Fragments, at: &[u8]) -> Option<Vec<u8>> {
    let written = cursor.valid().then(|| cursor.key());
    let deleted = match deletes.find(at) {
        Some(_) => Some(at),
        None => deletes.next_lower(at),
    };
    let next = match (written, deleted) {
        (Some(written), Some(deleted)) => written.min(deleted),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return None,
    };
    Some(next.to_vec())
}

/// The changes together with the pairs of the interval that deleted ranges cover, from `start` up
/// to `end`.
fn with_deleted(
    writes: Vec<Change>,
    deletes: &Fragments,
    held: &Held,
    start: &[u8],
    end: Option<&[u8]>,
) -> Vec<Change> {
    let interval = &held.interval;
    let from = interval.count_below(start);
    let to = end.map_or(interval.len(), |end| interval.count_below(end));
    let mut changes = Vec::with_capacity(writes.len() + to.saturating_sub(from));
    let mut writes = writes.into_iter().peekable();
    for at in from..to {
        let key = interval.key(at);
        while let Some(write) = writes.next_if(|write| &*write.key < key) {
            changes.push(write);
        }
        let is_written = writes.peek().is_some_and(|write| write.key == key);
        if !is_written && deletes.find(key).is_some() {
            changes.push(Change {
                key: key.to_vec(),
                value: None,
            });
        }
    }
    changes.extend(writes);
    changes
}
