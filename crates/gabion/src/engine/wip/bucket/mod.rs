//! Buckets: the parts of a keyspace's key range, and what each of them is made of.
//!
//! # Idea (paper, sections 2.3.1 and 2.3.5)
//! The router cuts the key range of a keyspace into buckets. A bucket is a miniature log-structured
//! merge tree: one MemTable that takes writes, frozen ones that wait for their flush, and levels
//! of overlapping sublevels, here called runs, on the medium.
//!
//! # Layout
//! `Router -> Bucket -> BucketState -> {MemTable.., Levels -> Run -> TableFile}`. Everything behind
//! an `ArcSwap` is immutable: a reader takes a state with one load and keeps it as long as it
//! likes; a change installs a new state. MemTables are the exception: the active one grows.
//!
//! # Invariants
//! - I1: the buckets of a router cover all keys without overlap; the first one's lower bound is the
//!   empty key.
//! - I2: for one key, everything in `active` is newer than everything in `frozen`, which is ordered
//!   newest first; all of it is newer than level 0, a level is newer than the next one, and within
//!   a level runs are ordered newest first.
//! - I3: the tables of a run do not overlap and are ordered by their keys.
//! - I4: a table may hold keys outside the bucket's range (a split shares the parent's tables among
//!   the children, as slices). Such keys are another bucket's business: whoever reads a bucket
//!   keeps to its range.
//! - I5: a state is replaced only with the install lock held (see `writepath`).

pub(super) mod age;
pub(super) mod file;
mod levels;
pub(super) mod prefix_index;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::policy::manual_mark::ManualCompactionMark;
use super::policy::read_counter::ReadCounter;
use super::policy::run_limits::RunLimitEstimate;
use super::policy::space::LastFullCompaction;
use crate::engine::memtable::MemTable;
use crate::engine::range_deletes::{RangeDeletes, RangeTombstones};
use crate::engine::snapshots::ProtectedSeqs;
use crate::types::Seq;
use crate::{Error, Result};

use prefix_index::{PrefixIndex, common_prefix_len};

pub(super) use levels::{Levels, Run, RunTables};

/// The buckets of one keyspace at one moment.
pub(crate) struct Router {
    index: PrefixIndex,
    buckets: Vec<Arc<Bucket>>,
    /// Who reads at a smaller number needs an earlier router: 0 but in a follower.
    since: AtomicU64,
}

impl Router {
    /// Takes buckets ordered by their lower bounds.
    pub(crate) fn new(buckets: Vec<Arc<Bucket>>) -> Router {
        debug_assert!(
            buckets
                .first()
                .is_some_and(|bucket| bucket.lower.is_empty()),
            "I1"
        );
        let pivots: Vec<&[u8]> = buckets
            .iter()
            .skip(1)
            .map(|bucket| bucket.lower())
            .collect();
        Router {
            index: PrefixIndex::new(&pivots),
            buckets,
            since: AtomicU64::new(0),
        }
    }

    /// The smallest number at which the buckets have what a reader sees.
    #[inline]
    pub(crate) fn since(&self) -> Seq {
        // ORDER: Relaxed; it was set before anybody else had the router.
        self.since.load(Ordering::Relaxed)
    }

    /// Readers below a number need an earlier router. Nobody else has this one yet.
    pub(crate) fn set_since(&self, seq: Seq) {
        // ORDER: Relaxed, as above.
        self.since.store(seq, Ordering::Relaxed);
    }

    /// The bucket of `key`.
    #[inline]
    pub(crate) fn route(&self, key: &[u8]) -> &Arc<Bucket> {
        &self.buckets[self.position(key)]
    }

    /// The bucket of the keys just below `key`; of the largest keys for `None`.
    pub(crate) fn route_below(&self, key: Option<&[u8]>) -> &Arc<Bucket> {
        let Some(key) = key else {
            return &self.buckets[self.buckets.len() - 1];
        };
        let position = self.position(key);
        if position > 0 && self.buckets[position].lower() == key {
            &self.buckets[position - 1]
        } else {
            &self.buckets[position]
        }
    }

    /// The buckets that may hold keys in `[lower, upper)`.
    pub(crate) fn touching<'r>(
        &'r self,
        lower: &[u8],
        upper: Option<&'r [u8]>,
    ) -> impl Iterator<Item = &'r Arc<Bucket>> {
        let rest = self.buckets[self.position(lower)..].iter();
        rest.take_while(move |bucket| upper.is_none_or(|upper| bucket.lower() < upper))
    }

    /// The buckets whose range lies in `[lower, upper)`.
    pub(crate) fn within<'r>(
        &'r self,
        lower: &'r [u8],
        upper: Option<&'r [u8]>,
    ) -> impl Iterator<Item = &'r Arc<Bucket>> {
        let touched = self.touching(lower, upper);
        touched.filter(move |bucket| bucket.is_within(lower, upper))
    }

    /// All buckets, ordered by their keys.
    pub(crate) fn buckets(&self) -> &[Arc<Bucket>] {
        &self.buckets
    }

    /// The position of the bucket of `key`.
    #[inline]
    pub(crate) fn position(&self, key: &[u8]) -> usize {
        self.index
            .count_not_above(key, |i| self.buckets[i + 1].lower())
    }
}

/// A part of the key range.
pub(crate) struct Bucket {
    /// The bucket's number in the manifest.
    pub(crate) id: u64,
    /// The number of its keyspace.
    pub(crate) keyspace: u32,
    lower: Box<[u8]>,
    upper: Option<Box<[u8]>>,
    /// Bytes that every key of the bucket begins with.
    common: usize,
    /// What the bucket holds.
    pub(crate) state: ArcSwap<BucketState>,
    /// Held by a writer from its sequence number to its insert (`writepath`, I4).
    pub(crate) turns: Mutex<()>,
    /// A compaction or a split works on the bucket.
    busy: AtomicBool,
    /// The keyspace was dropped.
    dropped: AtomicBool,
    /// The bucket is on the list of those that have changed (`bucket_queue`).
    touched: AtomicBool,
    /// Number of table files when the bucket could not be split; 0 if that was never tried.
    unsplittable_files: AtomicUsize,
    /// How often the bucket is read.
    pub(crate) reads: ReadCounter,
    /// Whether somebody waits for a full compaction.
    pub(crate) demand: ManualCompactionMark,
    /// Since when the active MemTable holds entries (`written`); 0 while it holds none.
    written: AtomicU64,
    /// What the last full compaction left.
    pub(crate) settled: Mutex<Option<LastFullCompaction>>,
    /// How many runs its levels need.
    pub(super) sizing: RunLimitEstimate,
}

impl Bucket {
    /// A bucket of the keys from `lower` up to but without `upper`.
    pub(crate) fn new(
        (keyspace, id): (u32, u64),
        lower: &[u8],
        upper: Option<&[u8]>,
        state: BucketState,
    ) -> Bucket {
        let common = upper.map_or(0, |upper| common_prefix_len(lower, upper));
        Bucket {
            id,
            keyspace,
            lower: lower.into(),
            upper: upper.map(Into::into),
            common,
            state: ArcSwap::from_pointee(state),
            turns: Mutex::default(),
            busy: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            unsplittable_files: AtomicUsize::new(0),
            reads: ReadCounter::default(),
            demand: ManualCompactionMark::default(),
            written: AtomicU64::new(0),
            settled: Mutex::default(),
            sizing: RunLimitEstimate::default(),
        }
    }

    /// The smallest key that may be in the bucket.
    pub(crate) fn lower(&self) -> &[u8] {
        &self.lower
    }

    /// The first key above the bucket; `None` for the last bucket.
    pub(crate) fn upper(&self) -> Option<&[u8]> {
        self.upper.as_deref()
    }

    /// The bucket's keys: the smallest, and the first one above.
    pub(crate) fn range(&self) -> (&[u8], Option<&[u8]>) {
        (self.lower(), self.upper())
    }

    /// Number of bytes that every key of the bucket begins with.
    pub(crate) fn common_prefix_len(&self) -> usize {
        self.common
    }

    /// Whether the bucket's range lies in `[lower, upper)`.
    fn is_within(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        *self.lower >= *lower
            && match (self.upper(), upper) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(own), Some(upper)) => own <= upper,
            }
    }

    /// Whether somebody waits for a full compaction, and there is something to compact.
    pub(crate) fn awaits_demand(&self) -> bool {
        self.demand.is_open() && self.state.load().levels.runs().next().is_some()
    }

    /// Whether the bucket's range contains all keys from `smallest` to `largest`.
    pub(crate) fn contains(&self, smallest: &[u8], largest: &[u8]) -> bool {
        *self.lower <= *smallest && self.upper().is_none_or(|upper| largest < upper)
    }

    /// Whether any key from `smallest` to `largest` may be in the bucket.
    pub(crate) fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        *self.lower <= *largest && self.upper().is_none_or(|upper| smallest < upper)
    }

    /// Deletes the keys of a range as far as they are the bucket's, by an entry in its MemTable. A
    /// bucket that holds nothing is left as it is. The caller has the install lock (I5). Returns
    /// whether it is the MemTable's first entry.
    pub(crate) fn delete_range<P: Deref<Target = ProtectedSeqs>>(
        &self,
        (lower, upper): (&[u8], Option<&[u8]>),
        seq: Seq,
        segment: u64,
        protected: &P,
    ) -> bool {
        let state = self.state.load_full();
        if state.is_empty() {
            return false;
        }
        let lower = lower.max(self.lower());
        let upper = match (upper, self.upper()) {
            (Some(upper), Some(own)) => Some(upper.min(own)),
            (upper, own) => upper.or(own),
        };
        // A record that is replayed a second time is there already.
        if !state.active.insert_range(lower, upper, seq) {
            return false;
        }
        let is_first = state.active.pin_once(segment);
        let range = RangeTombstones::of_range(lower, upper, seq);
        self.state.store(Arc::new(BucketState {
            deletes: state.deletes.with(range, protected),
            ..BucketState::clone(&state)
        }));
        is_first
    }

    /// Since when the active MemTable holds entries, if it does.
    pub(super) fn written_since(&self) -> Option<u64> {
        // ORDER: Relaxed; it changes with the list of `writepath/dirty_buckets` locked.
        let since = self.written.load(Ordering::Relaxed);
        (since > 0).then_some(since)
    }

    /// Whether the active MemTable holds deletes of ranges.
    pub(super) fn deletes_ranges(&self) -> bool {
        !self.state.load().active.range_deletes().is_empty()
    }

    /// Whether what the active MemTable deletes may be a large part of the bucket: a third of the
    /// entries of its tables, or ranges.
    pub(super) fn deletes_much(&self) -> bool {
        let state = self.state.load();
        let entries: u64 = state.levels.runs().map(Run::entries).sum();
        let tombstones = state.active.tombstones();
        let deletes_ranges = !state.active.range_deletes().is_empty();
        entries > 0 && (tombstones >= entries.div_ceil(3) || deletes_ranges)
    }

    /// The active MemTable holds entries since then.
    pub(super) fn set_written(&self, since: u64) {
        // ORDER: Relaxed, as above.
        self.written.store(since, Ordering::Relaxed);
    }

    /// As [`Bucket::written_since`]; from now on it holds none.
    pub(super) fn take_written(&self) -> Option<u64> {
        // ORDER: Relaxed, as above.
        let since = self.written.swap(0, Ordering::Relaxed);
        (since > 0).then_some(since)
    }

    /// Puts the bucket on the list of those that have changed; false if it is there.
    pub(super) fn set_touched(&self) -> bool {
        // ORDER: AcqRel, with that of `clear_touched`: who takes the bucket off the list finds
        // what was changed before somebody found it on the list.
        !self.touched.swap(true, Ordering::AcqRel)
    }

    /// Takes the bucket off the list.
    pub(super) fn clear_touched(&self) {
        // ORDER: AcqRel, as above.
        self.touched.swap(false, Ordering::AcqRel);
    }

    /// Reserves the bucket for one compaction or split.
    pub(crate) fn reserve(&self) -> bool {
        // ORDER: Acquire pairs with the Release of `release`: what the last job did is seen.
        !self.busy.swap(true, Ordering::Acquire)
    }

    /// Ends the reservation.
    pub(crate) fn release(&self) {
        // ORDER: Release pairs with the Acquire of `reserve`.
        self.busy.store(false, Ordering::Release);
    }

    /// Says that the tables of `state` offer no key to split at: they hold one key's versions, or
    /// one large value.
    pub(crate) fn set_unsplittable(&self, state: &BucketState) {
        // ORDER: Relaxed, a hint that belongs to no other data.
        self.unsplittable_files
            .store(state.levels.files().count(), Ordering::Relaxed);
    }

    /// Whether a split is worth trying: it was not tried in vain on the same tables.
    pub(crate) fn may_split(&self, state: &BucketState) -> bool {
        // ORDER: Relaxed, as above.
        self.unsplittable_files.load(Ordering::Relaxed) != state.levels.files().count()
    }

    /// Says that the bucket went with its keyspace: it stays as it is. The caller holds the
    /// manifest, the leader and the install lock.
    pub(crate) fn set_dropped(&self) {
        // ORDER: Relaxed; who decides by it holds one of these locks.
        self.dropped.store(true, Ordering::Relaxed);
    }

    /// Whether the bucket went with its keyspace: for who holds one of these locks. For others a
    /// hint.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        // ORDER: Relaxed, as above.
        self.dropped.load(Ordering::Relaxed)
    }

    /// An error if the bucket went with its keyspace, which ends a job that works on it.
    pub(crate) fn check_dropped(&self) -> Result<()> {
        match self.is_dropped() {
            true => Err(Error::KeyspaceDropped),
            false => Ok(()),
        }
    }

    /// Whether a job has reserved the bucket: a hint for choosing the next job.
    pub(crate) fn is_busy(&self) -> bool {
        // ORDER: Relaxed, a hint; `reserve` decides.
        self.busy.load(Ordering::Relaxed)
    }
}

/// What a bucket holds at one moment (I2).
#[derive(Clone)]
pub(crate) struct BucketState {
    /// Takes the writes.
    pub(crate) active: Arc<MemTable>,
    /// Full MemTables on their way to level 0, newest first.
    pub(crate) frozen: Vec<Arc<MemTable>>,
    /// What is on the medium.
    pub(crate) levels: Arc<Levels>,
    /// The range deletes in all of these.
    pub(crate) deletes: RangeDeletes,
}

impl BucketState {
    /// The MemTables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// Whether no key was ever written or all are gone.
    pub(crate) fn is_empty(&self) -> bool {
        self.memtables().all(|table| table.is_empty()) && self.levels.runs().next().is_none()
    }

    /// The index of the range deletes that MemTables and tables hold.
    pub(crate) fn index_deletes(&self, protected: &ProtectedSeqs) -> Result<RangeDeletes> {
        let mut sets: Vec<RangeTombstones> = Vec::new();
        for table in self.memtables() {
            sets.extend(table.range_deletes().iter().cloned());
        }
        let mut files: Vec<&RangeTombstones> = Vec::new();
        for file in self.levels.files() {
            files.extend(file.range_deletes()?);
        }
        Ok(RangeDeletes::of(sets.iter().chain(files), protected))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::engine::memtable::ChunkPool;

    /// What a new bucket holds.
    pub(in super::super) fn empty_state() -> BucketState {
        BucketState {
            active: Arc::new(MemTable::new(&ChunkPool::new(0), 0)),
            frozen: Vec::new(),
            levels: Arc::default(),
            deletes: RangeDeletes::default(),
        }
    }

    #[test]
    fn a_range_touches_the_buckets_that_its_keys_may_be_in() {
        let bounds: [&[u8]; 4] = [b"", b"c", b"f", b"m"];
        let upper = |at: usize| bounds.get(at + 1).copied();
        let buckets = (0..4).map(|at| {
            Arc::new(Bucket::new(
                (0, at as u64),
                bounds[at],
                upper(at),
                empty_state(),
            ))
        });
        let router = Router::new(buckets.collect());
        for (lower, end) in [("", None), ("c", Some("f")), ("d", Some("fa")), ("x", None)] {
            let end = end.map(str::as_bytes);
            let found: Vec<_> = router
                .touching(lower.as_bytes(), end)
                .map(|b| b.id)
                .collect();
            let touches = |bucket: &&Arc<Bucket>| {
                end.is_none_or(|end| bucket.lower() < end)
                    && bucket.upper().is_none_or(|upper| lower.as_bytes() < upper)
            };
            let expected = router.buckets().iter().filter(touches);
            assert_eq!(found, expected.map(|bucket| bucket.id).collect::<Vec<_>>());
        }
    }
}
