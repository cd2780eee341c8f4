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
//! takes the next range. Reading, decoding and planning are each one's own work; the space is
//! changed by one at a time, a few intervals of a leaf together.
//!
//! # Memory
//! A merge waits for memory more than for anything else. So it gathers some intervals of a leaf
//! without looking at what they hold, and asks for their forms meanwhile; what it gathers lies in
//! one buffer, and the forms change in place.
//!
//! # Waiting
//! Readers of cached intervals wait while the form that they read changes; others while the trees
//! of the change of a few intervals are updated. Writers wait for nothing here; a merge tells
//! how far it has come, and new writes wait when too much is left to merge (`schedule`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gabion_flex::GcRound;

use super::expiry_sweep::{change_held, changes_of};
use super::generation::{Generation, GenerationPart};
use super::index::{IntervalRef, SeekTarget};
use super::interval::Interval;
use super::layout::Root;
use super::partition::{IntervalChanges, MergeChanges, Partition, ReadIntent};
use super::{Flex, FlexKeyspace};
use crate::Result;
use crate::bytes::assign;
use crate::engine::keyspaces::KeyspaceView;
use crate::engine::memtable::{MemCursor, NewestVersions};
use crate::engine::range_deletes::{RangeTombstone, RangeTombstones};
use crate::engine::snapshots::ProtectedSeqs;
use crate::engine::ssd::rate_limiter::{IoPriority, STEP_BYTES};
use crate::expiry::{ReadPoint, UnixMillis, has_expired};
use crate::log::LogSyncer;
use crate::threads::side_by_side;
use crate::types::{SEQ_MAX, Seq};

/// Keys that are changed together at most: bounds how long readers wait.
const CHANGES_MAX: usize = 64;

/// Intervals that are changed together at most, to share what a change costs in locks.
const INTERVALS_MAX: usize = 16;

/// Bytes of new pairs that are written together at most, if they are more than one.
const CHANGE_BYTES_MAX: usize = 64 << 10;

/// Writes of a keyspace that are worth several threads.
const SHARED_MIN: usize = 1_000;

/// After a compaction, segments have less garbage than a sixteenth.
const COMPACTED: GcRound = GcRound {
    segments: 8,
    garbage_parts: 2,
};

/// Ranges for each of these threads, so that none is left over with much to do.
const RANGES_PER_THREAD: usize = 4;

impl Flex {
    /// Merges the oldest frozen generation, or ends the merge before if that failed; false when
    /// there is nothing to merge, or the store is closed.
    pub(super) fn merge_oldest(&self) -> Result<bool> {
        let _lock = self.merge_lock.lock();
        if !self.has_directory() {
            return Ok(false);
        }
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
        let newest = ReadPoint {
            seq: max_seq,
            ..self.read_point()
        };
        let protected = self.snapshots.protect(|| newest);
        let notes = protected.stripe(max_seq) != Some(0);
        let keyspaces = self.keyspaces.load();
        let pay = |bytes| self.pay(IoPriority::Flush, bytes);
        let job = Job {
            generation,
            key_bytes: generation.begin_merge(),
            notes,
            horizon: protected.horizon(),
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
        self.forget_dropped();
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
        // Without those that were forgotten just now.
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
        if keyspaces.iter().any(|own| own.expiring.lock().any()) {
            root.moment = root.moment.max(self.moments.now());
        }
        root.keyspaces.set_reached(|id| {
            let keyspace = keyspaces.live(id)?;
            let expires = keyspace.expiring.lock().any();
            Some((keyspace.partition.space().durable_point(), expires))
        });
    }

    /// Lets past generations take no more memory than the readers of today need. The caller holds
    /// the merge lock.
    fn fold_past(&self) {
        let view = self.view.load_full();
        if view.past.is_empty() {
            return;
        }
        // Outside of the lock of the view, since it takes its time. Who registers meanwhile stands
        // behind all of the past, to which only a merge adds: at worst something stays that is
        // forgotten next.
        let folded = view.folded_past(&self.readers());
        self.change_view(|view| view.past = folded);
    }

    /// Those who read, and who register from now on.
    fn readers(&self) -> ProtectedSeqs {
        self.snapshots.protect(|| self.read_point())
    }

    /// Lets go of past generations that no reader needs.
    pub(super) fn forget_past(&self) {
        let oldest = self.snapshots.oldest_protected(|| self.visible());
        self.forget_past_up_to(oldest);
    }

    /// Lets go of past generations without a write above `oldest`, at which or above which all
    /// read. Since it was found out, others may have registered, and what they need been merged.
    fn forget_past_up_to(&self, oldest: Seq) {
        let needed = |past: &Arc<Generation>| {
            #[cfg(test)]
            LOOKS.set(LOOKS.get() + 1);
            past.max_seq() > oldest
        };
        // The oldest one goes first, and whoever ends a scan comes here.
        if !self.view.load().past.last().is_none_or(needed) {
            self.change_view(|view| view.past.retain(needed));
        }
    }

    /// Merges everything, removes what has expired in a range, asks the keyspace's filter about the
    /// rest unless somebody reads an earlier moment, and writes all intervals anew that lie in
    /// several extents.
    pub(crate) fn compact_range(
        &self,
        keyspace: &FlexKeyspace,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<()> {
        self.flush()?;
        let horizon = self.horizon();
        let filter = keyspace.own.compaction_filter();
        let filter = filter.filter(|_| self.snapshots.oldest().is_none());
        let mut at = Some(lower.to_vec());
        // Up to which key pairs have been looked at; nothing when all have been.
        let mut looked_at: Option<Vec<u8>> = at.clone();
        let mut changed = false;
        while let Some(key) = at.filter(|key| upper.is_none_or(|upper| &**key < upper)) {
            self.health.check_writable()?;
            let lock = self.lock_merges_of(keyspace)?;
            let partition = &keyspace.partition;
            let held = partition.interval(SeekTarget::At(&key), ReadIntent::Merge)?;
            if looked_at.as_ref().is_some_and(|up_to| *up_to <= key) {
                // Once: a filter may answer otherwise when it sees what it has made.
                looked_at = held.place.upper().map(<[u8]>::to_vec);
                let changes = changes_of(&held.interval, &key, horizon, filter.as_ref());
                if changes.len() > 0 {
                    let written = change_held(partition, held, &changes);
                    let written = written.map_err(|error| self.fail_unless_short(error))?;
                    changed = true;
                    at = Some(key);
                    drop(lock);
                    self.pay(IoPriority::Usual, written);
                    continue;
                }
            }
            let done = partition.defragment(&held);
            let done = done.map_err(|error| self.fail_unless_short(error))?;
            changed |= done;
            // What has become small may have been joined with what nobody has looked at yet.
            let ends = [held.place.upper(), looked_at.as_deref()];
            at = ends.into_iter().flatten().min().map(<[u8]>::to_vec);
            drop(lock);
            if done {
                self.pay(IoPriority::Usual, held.place.len());
            }
        }
        self.collect_all(keyspace)?;
        let _lock = self.lock_merges_of(keyspace)?;
        // What is free goes back to the file system with a checkpoint only.
        let saved = keyspace.partition.checkpoint();
        saved.map_err(|error| self.fail_unless_short(error))?;
        if changed {
            self.counters.compactions.add(1);
        }
        Ok(())
    }

    /// Collects the garbage of a keyspace's space, as far as it is worth it.
    fn collect_all(&self, keyspace: &FlexKeyspace) -> Result<()> {
        loop {
            self.health.check_writable()?;
            let lock = self.lock_merges_of(keyspace)?;
            let moved = keyspace.partition.collect(COMPACTED);
            let moved = moved.map_err(|error| self.fail_unless_short(error))?;
            drop(lock);
            match moved {
                Some(moved) => self.pay(IoPriority::Usual, moved),
                None => return Ok(()),
            }
        }
    }
}

/// Removes segments that the root says are not needed.
pub(super) fn remove_log(syncer: &LogSyncer, tail: u64) {
    if let Err(error) = syncer.remove_before(tail) {
        // The next open, or the next call, removes them.
        tracing::warn!(%error, "a log segment that is no longer needed could not be removed yet");
    }
}

/// The merge of a generation.
struct Job<'m> {
    generation: &'m Generation,
    /// What a key counts for in what is left to merge.
    key_bytes: u64,
    /// Whether somebody needs what is overwritten.
    notes: bool,
    /// What expires up to then is gone for all who read.
    horizon: UnixMillis,
    /// Called with what was written, to keep to the limit.
    pay: &'m (dyn Fn(u64) + Sync),
}

impl Job<'_> {
    /// Merges all layers, by several threads if they are large.
    fn merge_layers(&self, keyspaces: &KeyspaceView<FlexKeyspace>, threads: usize) -> Result<()> {
        let layers = self.generation.layers();
        let written = layers.iter().filter(|layer| !layer.is_empty());
        // Nobody needs what was written to one that is gone.
        let known = written.filter_map(|layer| {
            let keyspace = keyspaces.of_reader(layer.keyspace)?;
            Some((layer, layer.table.newest(), layer.deletes(), keyspace))
        });
        let known: Vec<_> = known.collect();
        let mut merges = Vec::new();
        for (layer, newest, deletes, keyspace) in &known {
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
                newest,
                deletes,
                begin,
                end,
            }));
        }
        let result = run_all(&merges, threads);
        for (.., keyspace) in &known {
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
    let results = side_by_side(0..threads.min(merges.len()), |_| work());
    results.into_iter().collect()
}

/// The merge of one keyspace's writes in a range of keys, which begins and ends where leaves of the
/// index begin.
struct Merge<'m> {
    job: &'m Job<'m>,
    keyspace: &'m Arc<FlexKeyspace>,
    layer: &'m GenerationPart,
    newest: &'m NewestVersions<'m>,
    deletes: &'m RangeTombstones,
    begin: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl Merge<'_> {
    fn partition(&self) -> &Partition {
        &self.keyspace.partition
    }

    fn run(&self) -> Result<()> {
        let mut cursor = self.newest.cursor();
        cursor.seek(&self.begin);
        let deletes = self.deletes;
        let mut at = self.begin.clone();
        let mut start = Vec::new();
        let mut group = Group::default();
        while let Some(next) = next_key(&cursor, deletes, &at) {
            if self.end.as_ref().is_some_and(|end| next >= &**end) {
                break;
            }
            assign(&mut start, next);
            let goes_on = self.step(&mut group, &mut cursor, &start, &mut at)?;
            if group.written >= STEP_BYTES {
                (self.job.pay)(std::mem::take(&mut group.written));
            }
            if !goes_on {
                break;
            }
        }
        self.apply(&mut group)?;
        (self.job.pay)(group.written);
        self.partition().count_memory();
        Ok(())
    }

    /// Merges what concerns the interval of `start`, or a part of it, or adds it to the group;
    /// `at` is the first key that is left then. False at the end of all keys.
    fn step(
        &self,
        group: &mut Group,
        cursor: &mut MemCursor,
        start: &[u8],
        at: &mut Vec<u8>,
    ) -> Result<bool> {
        let deletes = self.deletes;
        let mut place = group.find(self.partition(), start);
        if !self.job.notes && self.is_cleared(&place, cursor, deletes, start) {
            self.apply(group)?;
            if place.len() > 0 && !self.partition().clear(&place)? {
                assign(at, start);
                return Ok(true);
            }
            return Ok(set_next(at, place.upper()));
        }
        if !group.takes(&place) {
            self.apply(group)?;
            // It may begin elsewhere now.
            place = self.partition().find(start);
        }
        let reads = self.job.notes || !deletes.is_empty() || !place.leaf.prefetch_form(place.at);
        let mut interval = None;
        if reads {
            let held = self.partition().read_found(place, start)?;
            if !group.takes(&held.place) {
                // Reading it has cut it.
                self.apply(group)?;
                assign(at, start);
                return Ok(true);
            }
            place = held.place;
            interval = Some(held.interval);
        }
        let first = group.changes.len();
        let upper = place.upper();
        let covered = Covered::new(deletes, interval.as_deref(), start);
        let covered = (covered, self.job.horizon);
        let is_whole = add_changes(&mut group.changes, cursor, deletes, upper, covered);
        let changes = first..group.changes.len();
        if self.job.notes
            && let Some(interval) = &interval
        {
            self.note(interval, &group.changes, changes.clone());
        }
        let goes_on = match is_whole {
            true => set_next(at, upper),
            false => set_next(at, Some(cursor.key())),
        };
        group.wanted.push(IntervalChanges {
            place,
            interval,
            changes,
        });
        if !is_whole || group.is_full() {
            self.apply(group)?;
        }
        Ok(goes_on)
    }

    /// Whether all that the merge does with an interval is to remove its pairs.
    fn is_cleared(
        &self,
        place: &IntervalRef,
        cursor: &MemCursor,
        deletes: &RangeTombstones,
        start: &[u8],
    ) -> bool {
        let upper = place.upper();
        // What lies in front of `start` is merged already.
        let whole = |fragment: &RangeTombstone| {
            let covers_end = match (&fragment.upper, upper) {
                (None, _) => true,
                (Some(end), Some(upper)) => upper <= &**end,
                (Some(_), None) => false,
            };
            *place.lower() == *start && covers_end
        };
        let is_written = cursor.valid() && upper.is_none_or(|upper| cursor.key() < upper);
        !is_written && deletes.find(start).is_some_and(whole)
    }

    /// Makes the changes of a group, which is empty then.
    fn apply(&self, group: &mut Group) -> Result<()> {
        let wanted = std::mem::take(&mut group.wanted);
        group.written += self.partition().change(wanted, &group.changes)?;
        let Job {
            generation,
            key_bytes,
            ..
        } = self.job;
        if !group.changes.expiring().is_empty() {
            let mut expiring = self.keyspace.expiring.lock();
            for (moment, bytes) in group.changes.expiring() {
                expiring.add(*moment, *bytes);
            }
        }
        generation.note_merged(group.changes.len() as u64 * key_bytes);
        group.changes.clear();
        Ok(())
    }

    /// Notes what the space holds of the keys that are about to change.
    fn note(&self, interval: &Interval, changes: &MergeChanges, range: Range<usize>) {
        let (slabs, mut bytes) = (self.partition().slabs(), 0);
        for change in range {
            let key = changes.key(change);
            let at = interval.count_below(key);
            let is_there = at < interval.len() && interval.key(at) == key;
            let found = is_there.then(|| (interval.kind(at), interval.stored(at)));
            bytes += self.layer.note_image(slabs, key, found);
        }
        self.job.generation.add_image_bytes(bytes);
    }
}

/// Sets the key to go on with; false if there is none.
fn set_next(at: &mut Vec<u8>, next: Option<&[u8]>) -> bool {
    if let Some(next) = next {
        assign(at, next);
    }
    next.is_some()
}

/// Intervals of one leaf of the index, which the merge has looked up, and what it does with them.
#[derive(Default)]
struct Group {
    wanted: Vec<IntervalChanges>,
    changes: MergeChanges,
    /// Bytes that groups before have written and nobody has paid for.
    written: u64,
}

impl Group {
    /// The interval of a key, which is above those before: most are in the leaf of the last one.
    fn find(&self, partition: &Partition, key: &[u8]) -> IntervalRef {
        let last = self.wanted.last();
        let beside = last.and_then(|last| last.place.in_leaf(key));
        beside.unwrap_or_else(|| partition.find(key))
    }

    /// Whether an interval may be changed with the others: whatever they become concerns one leaf.
    fn takes(&self, place: &IntervalRef) -> bool {
        let first = self.wanted.first();
        first.is_none_or(|first| Arc::ptr_eq(&first.place.leaf, &place.leaf))
    }

    fn is_full(&self) -> bool {
        self.wanted.len() == INTERVALS_MAX || is_much(&self.changes)
    }
}

/// Whether these are as many changes as are made together.
fn is_much(changes: &MergeChanges) -> bool {
    changes.len() >= CHANGES_MAX || changes.bytes() > CHANGE_BYTES_MAX
}

/// Adds the changes of an interval that ends at `upper`, at most so many that readers do not wait
/// long for them and the rest of the group. Returns whether these were all; if not, the cursor
/// stands on the first key behind them.
fn add_changes(
    changes: &mut MergeChanges,
    cursor: &mut MemCursor,
    deletes: &RangeTombstones,
    upper: Option<&[u8]>,
    (mut covered, horizon): (Covered<'_>, UnixMillis),
) -> bool {
    loop {
        if !cursor.valid() || upper.is_some_and(|upper| cursor.key() >= upper) {
            covered.remove_up_to(changes, upper);
            return true;
        }
        let key = cursor.key();
        covered.remove_up_to(changes, Some(key));
        if is_much(changes) {
            return false;
        }
        covered.pass(key);
        let deleted = deletes.find(key).map_or(0, |found| found.newest(SEQ_MAX));
        let (kind, stored) = (cursor.kind(), cursor.value_bytes());
        let is_gone =
            kind.is_tombstone() || cursor.seq() <= deleted || has_expired(kind, stored, || horizon);
        match is_gone {
            true => changes.remove(key),
            false => changes.put(kind, key, stored),
        }
        // Older versions of the key may be in other runs of the cursor.
        let done = changes.len() - 1;
        while cursor.valid() && cursor.key() == changes.key(done) {
            cursor.next_key();
        }
    }
}

/// The pairs of an interval that deleted ranges cover, in their order.
struct Covered<'i> {
    /// Without any range nothing is looked at.
    of: Option<(&'i RangeTombstones, &'i Interval)>,
    at: usize,
}

impl<'i> Covered<'i> {
    /// Those from `start` on. The interval is there if there are deletes.
    fn new(
        deletes: &'i RangeTombstones,
        interval: Option<&'i Interval>,
        start: &[u8],
    ) -> Covered<'i> {
        let of = interval.filter(|_| !deletes.is_empty());
        Covered {
            at: of.map_or(0, |interval| interval.count_below(start)),
            of: of.map(|interval| (deletes, interval)),
        }
    }

    /// Removes the next pairs, up to a key.
    fn remove_up_to(&mut self, changes: &mut MergeChanges, end: Option<&[u8]>) {
        let Some((deletes, interval)) = self.of else {
            return;
        };
        let to = end.map_or(interval.len(), |end| interval.count_below(end));
        for at in self.at..to {
            let key = interval.key(at);
            if deletes.find(key).is_some() {
                changes.remove(key);
            }
        }
        self.at = self.at.max(to);
    }

    /// Leaves the pair of a key that is written to the write.
    fn pass(&mut self, key: &[u8]) {
        let is_next =
            |interval: &Interval| self.at < interval.len() && interval.key(self.at) == key;
        if self.of.is_some_and(|(_, interval)| is_next(interval)) {
            self.at += 1;
        }
    }
}

/// The smallest key from `at` on that a merge must look at.
fn next_key<'k>(
    cursor: &'k MemCursor,
    deletes: &'k RangeTombstones,
    at: &'k [u8],
) -> Option<&'k [u8]> {
    let written = cursor.valid().then(|| cursor.key());
    let deleted = match deletes.find(at) {
        Some(_) => Some(at),
        None => deletes.next_lower(at),
    };
    match (written, deleted) {
        (Some(written), Some(deleted)) => Some(written.min(deleted)),
        (Some(one), None) | (None, Some(one)) => Some(one),
        (None, None) => None,
    }
}

#[cfg(test)]
thread_local! {
    /// Past generations of which this thread has asked whether they are needed.
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::super::Write;
    use super::*;
    use crate::Options;
    use crate::engine::range_deletes::united_by;
    use crate::engine::ssd::Lifecycle;
    use crate::types::Kind;
    use crate::types::hash_key;

    /// Where nobody read, all of the past was let go of, also what was merged since somebody had
    /// looked: a snapshot that was taken meanwhile showed newer values.
    #[test]
    fn what_is_merged_for_a_reader_stays_when_somebody_forgets_who_looked_before() {
        let options = Options::default().background_threads(0);
        let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let put = |value: &[u8]| {
            let write = Write::Single {
                keyspace: &keyspace,
                kind: Kind::Put,
                key: b"key",
                value,
            };
            let mut writer = engine.writer.lock();
            engine
                .write_now(&mut writer, write, hash_key(b"key"))
                .unwrap();
        };
        put(b"old");
        let oldest = engine.readers().last_of(0);
        let snapshot = engine.begin_snapshot();
        put(b"new");
        engine.freeze(&engine.writer.lock());
        assert!(engine.merge_oldest().unwrap());
        assert_eq!(engine.view.load().past.len(), 1);

        engine.forget_past_up_to(oldest);
        let get = |snapshot| engine.get(&keyspace, b"key", snapshot).unwrap().unwrap();
        assert_eq!(*get(Some(snapshot)), *b"old");
        assert_eq!(*get(None), *b"new");
        engine.end_snapshot(snapshot);
        assert_eq!(engine.view.load().past.len(), 0);
        engine.close().unwrap();
    }

    /// Each delete of a range made a copy of all those that were in memory: 5 ms each where these
    /// were 16,000.
    #[test]
    fn deletes_of_ranges_and_their_merge_cost_what_they_say() {
        let options = Options::default().background_threads(0);
        let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let write = |kind, key: &[u8], value: &[u8]| {
            let write = Write::Single {
                keyspace: &keyspace,
                kind,
                key,
                value,
            };
            let mut writer = engine.writer.lock();
            engine.write_now(&mut writer, write, hash_key(key)).unwrap();
        };
        let key = |number: u64| format!("{number:08}");
        let count = 4096_u64;
        for number in 0..2 * count {
            write(Kind::Put, key(number).as_bytes(), b"value");
        }
        assert!(engine.freeze(&engine.writer.lock()) && engine.merge_oldest().unwrap());
        // Each is copied when sets are united, of which there are as many as the logarithm.
        let copies_max = count * 14;
        let copies = united_by(|| {
            for number in 0..count {
                let (first, behind) = (key(2 * number), key(2 * number + 1));
                write(Kind::DeleteRange, first.as_bytes(), behind.as_bytes());
            }
        });
        assert!(copies <= copies_max, "{copies} copies");
        let left = || {
            let is_there = |number: &u64| {
                let found = engine.get(&keyspace, key(*number).as_bytes(), None);
                found.unwrap().is_some()
            };
            (0..2 * count).filter(is_there).collect::<Vec<_>>()
        };
        let odd: Vec<u64> = (0..count).map(|number| 2 * number + 1).collect();
        assert!(left() == odd);
        assert!(engine.freeze(&engine.writer.lock()));
        let copies = united_by(|| assert!(engine.merge_oldest().unwrap()));
        assert!(copies <= copies_max, "{copies} copies");
        assert!(left() == odd);
        engine.close().unwrap();
    }
}
