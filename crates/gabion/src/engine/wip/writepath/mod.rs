//! A write: queue, log, MemTable, publication.
//!
//! # Idea
//! A short single write that needs no sync goes its own way, side by side with others of its kind:
//! it reserves its place in the log, which gives its sequence number, inserts into its MemTable and
//! fills the place, in this order or the other, and publishes when all numbers below its own are
//! published. Nothing of this takes a lock that writers of different buckets share for writing; but
//! where processors are few, these writers go one behind the other
//! ([`Tuning::concurrent_writers`]).
//!
//! All other writes queue; the head of the queue leads, with everybody else kept out. The leader
//! appends one frame for each waiting write to the log, syncs the log once if any of them asked for
//! it, inserts all of them into MemTables and publishes their sequence numbers. While it syncs, the
//! next group gathers: a sync starts the moment the medium is free, with whatever is waiting then,
//! and no timer is involved.
//!
//! [`Tuning::concurrent_writers`]: crate::Tuning::concurrent_writers
//!
//! # Invariants
//! - I1: the order of frames in the log is the order of sequence numbers and of publication.
//! - I2: a write is in the log before it is published, and at [`Durability::Sync`] on the medium
//!   before it is in a MemTable: no read returns a value that a power loss can undo. It is
//!   acknowledged after all writes of lower numbers are in the log, so that no hole is in front of
//!   it.
//! - I3: MemTables are written with the leader lock held, shared or alone. Freezing and splitting
//!   hold it alone, so they see no half-inserted write, and no insert goes to a bucket that was
//!   replaced; and whoever holds it alone finds every number that was given out published, unless
//!   the log has failed.
//! - I4: one key's versions enter its MemTable in the order of their numbers: writers that go side
//!   by side take number and turn under their bucket's lock, or under that of the one lane.
//!
//! # Durability points
//! `Interval` and `Buffered`: the copy into the log's mapping. `Sync`: the return of the sync.
//!
//! # Failures
//! A frame that finds no space for the next log segment fails its write and changes nothing; later
//! writes may succeed. A failed sync leaves unknown what is on the medium, so the store turns
//! read-only and the group's writes are not acknowledged, though a recovery may find them.

pub(super) mod dirty_buckets;
pub(super) mod freeze;
pub(super) mod grouped;

use std::cell::{LazyCell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::bucket::{Bucket, BucketState};
use super::{InstallState, Wip, WipKeyspace, Write};
use crate::engine::memtable::MemTable;
use crate::engine::ssd::merge;
use crate::log::{BATCH_HEAD_BYTES, Log, LogOpHead, SegmentPurpose, batch_head};
use crate::types::{Kind, SEQ_MAX, Seq, hash_key};
use crate::{Error, Result};

/// How often a writer looks whether it is its turn to publish before it sleeps: some microseconds,
/// several times as long as a write takes that goes side by side with its own.
const TURN_SPINS: u32 = 50;

/// How often a writer looks whether the lane is free before it sleeps: several times as long as a
/// write holds it. To sleep and be woken costs several writes.
const LANE_SPINS: u32 = 50;

/// How long a writer sleeps at most before it looks again whether it is its turn.
const TURN_SLEEP: Duration = Duration::from_micros(100);

thread_local! {
    /// Memory in which this thread puts frames together.
    static STAGING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The write half of the log, and the numbers that go with it. Held shared by writers that go side
/// by side, alone by all others.
pub(crate) struct WipWriteHalf {
    /// The write half of the log; `None` before the store is settled and once it is closed.
    log: Option<Log>,
    /// The sequence number of the next write is this and the number of reservations in the log's
    /// segment; wraps around.
    base: Seq,
}

impl WipWriteHalf {
    /// Goes on in `log`, if it takes appends already, with the number `next`.
    pub(crate) fn new(log: Option<Log>, next: Seq) -> WipWriteHalf {
        let reservations = log.as_ref().map_or(0, Log::reservations);
        WipWriteHalf {
            base: next.wrapping_sub(reservations),
            log,
        }
    }

    /// The sequence number of the next write. Whoever holds the leader shared does not know it.
    pub(super) fn next_seq(&mut self) -> Seq {
        let reservations = self.log.as_ref().map_or(0, Log::reservations);
        self.base.wrapping_add(reservations)
    }

    /// The segment that the log's next record goes to, unless it begins a new one.
    pub(crate) fn segment(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::current_segment)
    }

    /// Appends a record of `count` numbers to the log; a failure uses up none.
    pub(crate) fn append(
        &mut self,
        parts: &[&[u8]],
        count: u64,
        room: SegmentPurpose,
    ) -> Result<u64> {
        let next = self.next_seq();
        let log = self.log.as_mut().ok_or(Error::Closed)?;
        let appended = log.append(parts, room);
        let used = if appended.is_ok() { count } else { 0 };
        self.base = (next + used).wrapping_sub(log.reservations());
        appended.map(|_| log.current_segment())
    }

    /// Takes the next number for what stands in no record of the log. It must be published before
    /// anybody else has the leader.
    pub(crate) fn take_number(&mut self) -> Result<Seq> {
        self.check()?;
        let next = self.next_seq();
        if next > SEQ_MAX {
            return Err(Error::Limit {
                what: "sequence number",
                size: next,
                limit: SEQ_MAX,
            });
        }
        self.base = self.base.wrapping_add(1);
        Ok(next)
    }

    /// An error when the log has failed, so that not all numbers that were given out are published.
    pub(crate) fn check(&self) -> Result<()> {
        self.log.as_ref().ok_or(Error::Closed)?.check()
    }

    /// Goes on in a new, small segment of the log, and returns its number.
    pub(crate) fn begin_small(&mut self) -> Result<u64> {
        let next = self.next_seq();
        let log = self.log.as_mut().ok_or(Error::Closed)?;
        let begun = log.begin_small();
        self.base = next.wrapping_sub(log.reservations());
        begun
    }

    /// Takes the log out for its end, with the number of the last write.
    pub(crate) fn take(&mut self) -> Option<(Log, Seq)> {
        let last = self.next_seq() - 1;
        let log = self.log.take()?;
        self.base = last + 1;
        Some((log, last))
    }
}

/// Where writers wait for each other that go side by side.
pub(crate) struct PublishOrder {
    /// Held from a number to its publication where writers go one behind the other: a writer that
    /// the system interrupts holds up all others, and then it is better that these have not begun.
    lane: Option<Mutex<()>>,
    sleeping: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl PublishOrder {
    /// Writers go side by side, or one behind the other.
    pub(crate) fn new(side_by_side: bool) -> PublishOrder {
        PublishOrder {
            lane: (!side_by_side).then(Mutex::default),
            sleeping: AtomicUsize::new(0),
            lock: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    #[inline]
    fn lane(&self) -> Option<MutexGuard<'_, ()>> {
        let lane = self.lane.as_ref()?;
        for _ in 0..LANE_SPINS {
            if let Some(guard) = lane.try_lock() {
                return Some(guard);
            }
            std::hint::spin_loop();
        }
        Some(lane.lock())
    }

    #[cold]
    fn sleep_until(&self, is_over: impl Fn() -> Result<bool>) -> Result<()> {
        // ORDER: Relaxed (all); a waker that misses a sleeper costs it `TURN_SLEEP` at most.
        self.sleeping.fetch_add(1, Ordering::Relaxed);
        let mut guard = self.lock.lock();
        let result = loop {
            match is_over() {
                Ok(false) => {
                    self.changed.wait_for(&mut guard, TURN_SLEEP);
                }
                Ok(true) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // ORDER: Relaxed, as above.
        self.sleeping.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Something was published.
    #[inline]
    fn wake(&self) {
        // ORDER: Relaxed, see `sleep_until`.
        if self.sleeping.load(Ordering::Relaxed) > 0 {
            let _guard = self.lock.lock();
            self.changed.notify_all();
        }
    }
}

impl Wip {
    /// Puts a pair.
    #[cfg(test)]
    pub(super) fn put_for_tests(&self, keyspace: &WipKeyspace, key: &[u8], value: &[u8]) {
        let write = Write::Single {
            keyspace,
            kind: Kind::Put,
            key,
            value,
        };
        let bytes = key.len() + value.len();
        crate::engine::ssd::CommitWrites::write(self, write, bytes as u64, false).unwrap();
    }

    /// Performs a short single write side by side with others; false, and nothing done, when it is
    /// another one or the log needs its next segment.
    pub(super) fn write_concurrently(&self, write: Write<'_>, hash: u64) -> Result<bool> {
        let Write::Single {
            keyspace,
            kind,
            key,
            value,
        } = write
        else {
            return Ok(false);
        };
        // A range delete changes the states of buckets, which needs the leader alone.
        if kind == Kind::DeleteRange || self.visible() > SEQ_MAX / 2 {
            return Ok(false);
        }
        let mut operation = LogOpHead::new(kind, keyspace.id, key.len(), value.len());

        let leader = self.leader.read();
        let log = leader.log.as_ref().ok_or(Error::Closed)?;
        keyspace.dropped.check()?;
        let router = keyspace.router.load();
        let bucket = router.route(key);
        let state = bucket.state.load();
        let table = &state.active;
        table.prefetch(hash);
        let segment = log.current_segment();
        let lane = self.turns.lane();
        // Who has the lane is alone anyway.
        let turn = lane.is_none().then(|| bucket.turns.lock());
        let merged;
        let (mut kind, mut value) = (kind, value);
        if kind == Kind::PutExpiring {
            keyspace.own.set_expires();
        } else if kind == Kind::Operand {
            merged = self.merge_concurrently(keyspace, &state, (key, hash), value)?;
            (kind, value) = (merged.0, &merged.1);
            operation = LogOpHead::new(kind, keyspace.id, key.len(), value.len());
        }
        let operation = operation.as_bytes();
        let size = BATCH_HEAD_BYTES + operation.len() + key.len() + value.len();
        let Some(place) = log.reserve(size)? else {
            return Ok(false);
        };
        let seq = leader.base.wrapping_add(place.number());
        let insert = || {
            table.insert(key, hash, seq, kind, value);
            if table.pin_once(segment) {
                self.begin_written(bucket, table);
            }
        };
        let head = batch_head(seq, 1);
        let parts = [&head, operation, key, value];
        let fill = || STAGING.with_borrow_mut(|staging| place.fill(staging, &parts));
        let end = if lane.is_none() {
            insert();
            // Others wait for it.
            drop(turn);
            fill()?
        } else {
            drop(turn);
            // The memory that the insert waits for comes while the log is written.
            let end = fill()?;
            insert();
            end
        };
        self.await_turn(log, seq)?;
        log.set_appended(end);
        self.publish(seq, segment);
        drop(lane);
        self.turns.wake();

        let full = self.is_freeze_due(table).then(|| Arc::clone(bucket));
        drop((state, router, leader));
        if let Some(bucket) = full {
            let _alone = self.leader.write();
            // Others that have seen the same may have come first.
            let state = bucket.state.load();
            self.freeze_if_due(&mut self.lock_install(), &state.active);
        }
        Ok(true)
    }

    /// What a merge writes that goes side by side with other writes: its key's turn is held.
    #[cold]
    fn merge_concurrently(
        &self,
        keyspace: &WipKeyspace,
        state: &BucketState,
        (key, hash): (&[u8], u64),
        operand: &[u8],
    ) -> Result<(Kind, Vec<u8>)> {
        let older = self.older(keyspace, state, key, hash)?;
        // The number is not known yet.
        merge::<Wip>(keyspace, key, (&[operand], 0), older, || self.moments.now())
    }

    /// Waits until all writes in front of `seq` are published. They are on their way: each of them
    /// has only to fill its place and to publish. An error when one of them failed.
    ///
    /// When this takes long, the system has taken the processor away from one of them. Then this
    /// thread sleeps, so that the other may run in its place.
    #[inline]
    fn await_turn(&self, log: &Log, seq: Seq) -> Result<()> {
        for _ in 0..TURN_SPINS {
            if self.visible() == seq - 1 {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.turns.sleep_until(|| match log.check() {
            Ok(()) => Ok(self.visible() == seq - 1),
            Err(error) => Err(error),
        })
    }

    /// Appends a write to the log, if its keyspaces are there; returns its first sequence number.
    pub(super) fn log_write(&self, leader: &mut WipWriteHalf, write: Write<'_>) -> Result<Seq> {
        self.keyspaces.check_write(write)?;
        self.note_expiring(write);
        let (first, segment) = (leader.next_seq(), leader.segment());
        let count = u64::from(write.count());
        let append = |parts: &[&[u8]]| leader.append(parts, count, write.room_for());
        if write.log(first, append)? != segment {
            self.schedule.wake_log();
        }
        Ok(first)
    }

    /// Notes in which keyspaces a write has something that expires.
    fn note_expiring(&self, write: Write<'_>) {
        match write {
            Write::Single { keyspace, kind, .. } => {
                if kind == Kind::PutExpiring {
                    keyspace.own.set_expires();
                }
            }
            Write::Batch(operations) | Write::Transaction(operations, _) => {
                if operations.has(Kind::PutExpiring) {
                    let keyspaces = self.keyspaces.load();
                    let operations = operations.ops(1).map_while(Result::ok);
                    let expiring = operations.filter(|op| op.kind == Kind::PutExpiring);
                    let expiring = expiring.filter_map(|op| keyspaces.live(op.keyspace));
                    expiring.for_each(|keyspace| keyspace.own.set_expires());
                }
            }
        }
    }

    /// Inserts logged writes into their MemTables, and publishes them. No MemTable is frozen
    /// between those that are `whole`.
    pub(super) fn insert_all<'w>(
        &self,
        leader: &mut WipWriteHalf,
        writes: impl Iterator<Item = (Write<'w>, Seq)>,
        segment: u64,
        whole: bool,
    ) {
        let mut install = self.lock_install();
        let (mut inserted, mut is_due) = (false, false);
        for (write, first) in writes {
            is_due |= self.insert(&mut install, write, first, (segment, whole));
            inserted = true;
        }
        if is_due {
            self.freeze_due(&mut install);
        }
        if inserted {
            self.publish(leader.next_seq() - 1, leader.segment());
        }
    }

    /// Inserts a logged write into its MemTables. A `whole` one freezes none; returns whether some
    /// are to be frozen.
    fn insert(
        &self,
        install: &mut InstallState,
        write: Write<'_>,
        first: Seq,
        (segment, whole): (u64, bool),
    ) -> bool {
        match write {
            Write::Single {
                keyspace,
                kind,
                key,
                value,
            } => {
                if kind == Kind::DeleteRange {
                    self.delete_range(keyspace, key, value, first, segment);
                    if !whole {
                        self.freeze_if_over(install);
                    }
                    return whole && self.must_look_at_memory();
                }
                let hash = hash_key(key);
                let router = keyspace.router.load();
                let bucket = router.route(key);
                let state = bucket.state.load();
                state.active.insert(key, hash, first, kind, value);
                if state.active.pin_once(segment) {
                    self.begin_written(bucket, &state.active);
                }
                let is_due = self.is_freeze_due(&state.active);
                if is_due && !whole {
                    self.freeze_due(install);
                }
                whole && is_due
            }
            Write::Batch(operations) | Write::Transaction(operations, _) => {
                self.insert_batch(install, operations, first, (segment, whole))
            }
        }
    }

    /// Inserts a range delete into the MemTables of all buckets that it concerns. `upper` is the
    /// first key above the range, empty for the end of all keys.
    pub(super) fn delete_range(
        &self,
        keyspace: &WipKeyspace,
        lower: &[u8],
        upper: &[u8],
        seq: Seq,
        segment: u64,
    ) {
        let upper = (!upper.is_empty()).then_some(upper);
        let protected = LazyCell::new(|| self.snapshots.protect(|| self.read_point()));
        for bucket in keyspace.router.load().touching(lower, upper) {
            if bucket.delete_range((lower, upper), seq, segment, &protected) {
                self.begin_written(bucket, &bucket.state.load().active);
            }
        }
    }

    /// A bucket's active MemTable has got its first record.
    #[cold]
    pub(super) fn begin_written(&self, bucket: &Arc<Bucket>, table: &Arc<MemTable>) {
        self.written.begin(bucket, table, self.time());
    }
}
