//! Freezing: a MemTable takes no more writes, and waits for its flush.
//!
//! # When
//! When MemTables use more than their share of the memory, those that are too large are frozen, and
//! the largest ones until the rest fits. Besides, whoever needs what is in memory to be in tables
//! freezes it: a flush, a compaction or an ingest that a user asks for, garbage of an age
//! (`aging`), a log that is too long (`log_reclaim`, `rest`), a join of large MemTables (`join`);
//! and a split freezes what its parts share.
//!
//! # Invariants
//! - F1: it is done with the leader held alone, so nobody is about to insert into the MemTable
//!   (`writepath`, I3), and with the install lock.
//! - F2: who waits for flushes waits for those of the MemTables that were frozen when the wait
//!   began, and for no others: under steady writes there are always some. A store without threads
//!   does all that is due meanwhile.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::memtable::{MemTable, OrderPolicy};
use crate::engine::wip::background::bucket_queue::BUCKETS_PER_STEP;
use crate::engine::wip::bucket::{Bucket, BucketState};
use crate::engine::wip::policy::aging::is_overdue;
use crate::engine::wip::{ImmutableMemTable, InstallState, Wip, WipKeyspace};
use crate::{Error, Result};

impl Wip {
    /// Replaces the active MemTable of a bucket, if it holds anything, and queues the full one for
    /// its flush (F1).
    pub(in super::super) fn freeze(
        &self,
        install: &mut InstallState,
        keyspace: &Arc<WipKeyspace>,
        bucket: &Bucket,
    ) {
        debug_assert!(self.leader.try_read().is_none(), "the leader is held alone");
        let state = bucket.state.load_full();
        // Who found the bucket before it was split finds its MemTable frozen already.
        if state.active.is_empty() || !keyspace.has(bucket) || bucket.is_dropped() {
            return;
        }
        let (common, expected) = (bucket.common_prefix_len(), state.active.keys());
        let frozen = self.queue_frozen(install, keyspace, bucket, &state);
        let active = self.new_memtable(&state.active, common, expected);
        active.take_over_gaps(&state.active);
        bucket.state.store(Arc::new(BucketState {
            active,
            frozen,
            levels: Arc::clone(&state.levels),
            deletes: state.deletes.clone(),
        }));
    }

    /// As [`Wip::freeze`], of a bucket that was found without its keyspace.
    pub(in super::super) fn freeze_bucket(&self, install: &mut InstallState, bucket: &Bucket) {
        let keyspaces = self.keyspaces.load();
        if let Some(keyspace) = keyspaces.live(bucket.keyspace) {
            self.freeze(install, keyspace, bucket);
        }
    }

    /// Queues a state's active MemTable for its flush; returns the frozen ones with it in front.
    pub(in super::super) fn queue_frozen(
        &self,
        install: &mut InstallState,
        keyspace: &Arc<WipKeyspace>,
        bucket: &Bucket,
        state: &BucketState,
    ) -> Vec<Arc<MemTable>> {
        if state.active.is_empty() {
            return state.frozen.clone();
        }
        install.frozen.push_back(ImmutableMemTable {
            table: Arc::clone(&state.active),
            keyspace: Arc::clone(keyspace),
            lower: bucket.lower().into(),
            upper: bucket.upper().map(Into::into),
            born: self.written.freeze(bucket).unwrap_or_else(|| self.time()),
            flushing: false,
        });
        self.schedule.wake();
        std::iter::once(&state.active)
            .chain(&state.frozen)
            .cloned()
            .collect()
    }

    /// A MemTable for about `expected` keys that share their first `common` bytes, in the place of
    /// `before`.
    pub(in super::super) fn new_memtable(
        &self,
        before: &MemTable,
        common: usize,
        expected: usize,
    ) -> Arc<MemTable> {
        let keep = match OrderPolicy::of(&self.options) {
            OrderPolicy::AfterSearches(_) if before.hands_on_order() => OrderPolicy::Always,
            keep => keep,
        };
        Arc::new(MemTable::with_order(&self.pool, expected, keep, common))
    }

    /// Freezes MemTables when they use more memory than their share, after inserts into many.
    pub(in super::super) fn freeze_if_over(&self, install: &mut InstallState) {
        if self.must_look_at_memory() {
            self.freeze_due(install);
        }
    }

    /// As [`Wip::freeze_if_over`], after an insert into `table`, which may be too large.
    #[inline]
    pub(in super::super) fn freeze_if_due(&self, install: &mut InstallState, table: &MemTable) {
        if self.is_freeze_due(table) {
            self.freeze_due(install);
        }
    }

    /// Whether MemTables may use more memory than their share, after an insert into `table`.
    #[inline]
    pub(in super::super) fn is_freeze_due(&self, table: &MemTable) -> bool {
        // The first of the two tells the throttle, too, what is allocated.
        self.must_look_at_memory() || table.memory_bytes() > self.throttle.limits().table_bytes_max
    }

    /// Whether the active MemTables may use more memory than their share. Tells the throttle what
    /// all of them use.
    #[inline]
    pub(in super::super) fn must_look_at_memory(&self) -> bool {
        self.throttle.set_memory_seen(self.pool.allocated_bytes());
        self.throttle.must_look(self.pool.taken_bytes())
    }

    /// Freezes each MemTable that is too large, and the largest ones until the rest fits (F1): of
    /// very many small ones at least so many that a look at all of them costs each frozen one a
    /// look at [`BUCKETS_PER_STEP`].
    pub(in super::super) fn freeze_due(&self, install: &mut InstallState) {
        self.fit_memory();
        let limits = self.throttle.limits();
        let memory = |bucket: Arc<Bucket>| (bucket.state.load().active.memory_bytes(), bucket);
        let mut tables: Vec<_> = self.written.buckets().into_iter().map(memory).collect();
        self.count_visits(tables.len());
        tables.sort_by_key(|(bytes, _)| *bytes);
        let mut active: u64 = tables.iter().map(|(bytes, _)| bytes).sum();
        let least = match active > limits.active_bytes_max {
            true => tables.len() / BUCKETS_PER_STEP,
            false => 0,
        };
        let mut frozen = 0;
        while let Some((bytes, bucket)) = tables.pop() {
            let fits = bytes <= limits.table_bytes_max && active <= limits.active_bytes_max;
            if fits && frozen >= least {
                break;
            }
            self.freeze_bucket(install, &bucket);
            active -= bytes;
            frozen += 1;
        }
        let room = limits.active_bytes_max.saturating_sub(active);
        self.throttle.look_again_at(self.pool.taken_bytes() + room);
    }

    /// Freezes MemTables whose entries are as old as garbage may become, and others whose deletes
    /// give room back once they are in tables: at rest, the ones that delete much of their buckets;
    /// where medium or merges are short of room, the ones that delete ranges, and at rest all.
    /// False when there is none.
    pub(in super::super) fn freeze_aged(&self) -> Result<bool> {
        let aged = self.aged_buckets();
        if aged.is_empty() {
            return Ok(false);
        }
        self.count_visits(aged.len());
        let _alone = self.leader.write();
        let mut install = self.lock_install();
        for bucket in &aged {
            self.freeze_bucket(&mut install, bucket);
        }
        Ok(true)
    }

    /// Whether [`Wip::freeze_aged`] has something to do.
    pub(in super::super) fn has_aged_memtables(&self) -> bool {
        !self.aged_buckets().is_empty()
    }

    /// The buckets whose MemTables are to be frozen.
    fn aged_buckets(&self) -> Vec<Arc<Bucket>> {
        let (now, age_max) = (self.time(), self.options.garbage_age_max);
        let is_overdue = |since| is_overdue(since, now, age_max);
        let is_short = self.syncer.is_room_short() || self.schedule.check_shortage().is_err();
        let at_rest = self.is_idle();
        if !is_short && !at_rest {
            return self.written.buckets_since(|since| is_overdue(Some(since)));
        }
        let mut buckets = self.written.buckets();
        buckets.retain(|bucket| match (is_short, at_rest) {
            (true, true) => true,
            (true, false) => bucket.deletes_ranges() || is_overdue(bucket.written_since()),
            (false, _) => bucket.deletes_much() || is_overdue(bucket.written_since()),
        });
        buckets
    }

    /// Freezes all that is in memory (F1); returns what waits for its flush then, as
    /// [`Wip::freeze_all`].
    pub(in super::super) fn freeze_everything(&self) -> Vec<Weak<MemTable>> {
        let mut install = self.lock_install();
        let written = self.written.buckets();
        self.count_visits(written.len());
        for bucket in &written {
            self.freeze_bucket(&mut install, bucket);
        }
        let waiting = install.frozen.iter();
        sorted(
            waiting
                .map(|frozen| Arc::downgrade(&frozen.table))
                .collect(),
        )
    }

    /// Freezes what buckets have in memory (F1); returns what of them waits for its flush then, in
    /// such a way that who waits for that, too, keeps none of it in memory.
    pub(in super::super) fn freeze_all<'b>(
        &self,
        buckets: impl IntoIterator<Item = (&'b Arc<WipKeyspace>, &'b Arc<Bucket>)>,
    ) -> Vec<Weak<MemTable>> {
        let mut install = self.lock_install();
        let mut frozen = Vec::new();
        for (keyspace, bucket) in buckets {
            self.freeze(&mut install, keyspace, bucket);
            frozen.extend(bucket.state.load().frozen.iter().map(Arc::downgrade));
        }
        drop(install);
        sorted(frozen)
    }

    /// Waits until these MemTables, of [`Wip::freeze_all`], are tables (F2). Where the background
    /// is short of something, which may be for a merge alone, or for what it began a while ago,
    /// the caller flushes, and fails only if that does.
    pub(in super::super) fn wait_flushed(&self, frozen: &[Weak<MemTable>]) -> Result<()> {
        // What was short of something is tried again.
        self.schedule.set_shortage(None);
        let is_flushed = || {
            let install = self.lock_install();
            // What was frozen first is at the front, so that most looks end soon.
            let mut left = install.frozen.iter().map(|left| Arc::as_ptr(&left.table));
            !left.any(|left| frozen.binary_search_by_key(&left, Weak::as_ptr).is_ok())
        };
        loop {
            match self.wait_until(is_flushed) {
                Err(error) if error.is_shortage() => self.flush_here()?,
                waited => return waited,
            }
        }
    }

    /// Flushes one MemTable in the place of the background, or waits a moment for who does.
    fn flush_here(&self) -> Result<()> {
        match self.flush_one() {
            Ok(false) => self.schedule.wait(Duration::from_millis(2)),
            // Nobody needs what was flushed any more.
            Ok(true) | Err(Error::KeyspaceDropped) => {}
            Err(error) => {
                self.record(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Freezes what the first bucket of a keyspace has in memory, as if somebody were flushing it
    /// ever since.
    #[cfg(test)]
    pub(in super::super) fn freeze_for_tests(&self, keyspace: &Arc<WipKeyspace>) {
        let router = keyspace.router.load();
        let _alone = self.leader.write();
        let mut install = self.lock_install();
        self.freeze(&mut install, keyspace, &router.buckets()[0]);
        install.frozen.back_mut().unwrap().flushing = true;
    }
}

/// In the order of their addresses, each once: after a split several buckets hold the same one.
pub(in super::super) fn sorted(mut tables: Vec<Weak<MemTable>>) -> Vec<Weak<MemTable>> {
    tables.sort_unstable_by_key(Weak::as_ptr);
    tables.dedup_by_key(|table| table.as_ptr());
    tables
}
