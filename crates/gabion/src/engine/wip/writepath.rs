//! A write: limits, queue, log, MemTable, publication.
//!
//! # Idea
//! Writers queue; the head of the queue leads. The leader appends one frame for each waiting write
//! to the log, syncs the log once if any of them asked for it, inserts all of them into MemTables
//! and publishes their sequence numbers. While it syncs, the next group gathers: a sync starts the
//! moment the medium is free, with whatever is waiting then, and no timer is involved. A lone
//! writer finds the queue empty and pays for two uncontended locks.
//!
//! # Invariants
//! - I1: the order of frames in the log is the order of sequence numbers and of publication.
//! - I2: a write is in the log before it is in a MemTable, and at [`Durability::Sync`] on the
//!   medium before it is in a MemTable: no read returns a value that a power loss can undo.
//! - I3: MemTables are written with the install lock held, so that freezing and splitting see no
//!   half-inserted group and no insert goes to a bucket that was replaced.
//!
//! # Durability points
//! `Interval` and `Buffered`: the copy into the log's mapping. `Sync`: the return of the sync.
//!
//! # Failures
//! A frame that finds no space for the next log segment fails its write and changes nothing; later
//! writes may succeed. A failed sync leaves unknown what is on the medium, so the store turns
//! read-only and the group's writes are not acknowledged, though a recovery may find them.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::bucket::Router;
use super::memtable::MemTable;
use super::{Install, Keyspace, Wip};
use crate::log::{BatchEncoder, Log, Op, OpHead, batch_head};
use crate::options::Durability;
use crate::types::{Kind, SEQ_MAX, Seq, hash_key};
use crate::{Error, Result};

/// Bytes of waiting writes that one leader takes at most, so that the first of them does not wait
/// for a gigabyte of others.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// Operations of a batch whose cache lines are fetched ahead of their inserts.
const PREFETCH_OPERATIONS: usize = 16;

/// What only the leader touches.
pub(crate) struct Leader {
    /// The write half of the log; `None` once the store is closed.
    pub(crate) log: Option<Log>,
    /// The sequence number of the next write.
    pub(crate) next_seq: Seq,
}

impl Leader {
    /// The log, unless the store is closed.
    #[inline]
    pub(crate) fn log(&mut self) -> Result<&mut Log> {
        self.log.as_mut().ok_or(Error::Closed)
    }
}

/// One write, as its writer hands it in.
#[derive(Clone, Copy)]
pub(crate) enum Write<'w> {
    /// A single operation.
    Single {
        keyspace: &'w Arc<Keyspace>,
        kind: Kind,
        key: &'w [u8],
        value: &'w [u8],
    },
    /// Encoded operations.
    Batch(&'w BatchEncoder),
}

impl Write<'_> {
    fn count(&self) -> u32 {
        match self {
            Write::Single { .. } => 1,
            Write::Batch(operations) => operations.count(),
        }
    }

    /// The operations in the log's encoding, owned, for the leader of another thread.
    fn encode(&self) -> BatchEncoder {
        match self {
            Write::Single {
                keyspace,
                kind,
                key,
                value,
            } => {
                let mut operations = BatchEncoder::default();
                operations.op(*kind, keyspace.id, key, value);
                operations
            }
            Write::Batch(operations) => (*operations).clone(),
        }
    }
}

/// The writers' queue.
#[derive(Default)]
pub(crate) struct WriteQueue {
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    /// Somebody leads.
    led: bool,
    waiting: VecDeque<Arc<Waiter>>,
}

/// A write that waits for a leader, or for its turn to lead.
struct Waiter {
    operations: BatchEncoder,
    sync: bool,
    turn: Mutex<Turn>,
    changed: Condvar,
}

enum Turn {
    Waiting,
    Lead,
    Done(Result<()>),
}

impl Waiter {
    fn set(&self, turn: Turn) {
        *self.turn.lock() = turn;
        self.changed.notify_one();
    }

    /// Waits until the write is done or this thread must lead; `None` means lead.
    fn wait(&self) -> Option<Result<()>> {
        let mut turn = self.turn.lock();
        loop {
            match std::mem::replace(&mut *turn, Turn::Waiting) {
                Turn::Waiting => self.changed.wait(&mut turn),
                Turn::Lead => return None,
                Turn::Done(result) => return Some(result),
            }
        }
    }
}

impl Wip {
    /// Performs a write: in the log, in its MemTables, visible.
    ///
    /// `user_bytes` are the bytes of its keys and values.
    pub(crate) fn write(&self, write: Write<'_>, user_bytes: u64, sync: bool) -> Result<()> {
        self.check_writable()?;
        self.throttle.admit(user_bytes, || self.relief_is_due())?;
        self.queue_or_lead(write, sync)?;
        self.counters.count_write(user_bytes);
        self.run_inline();
        Ok(())
    }

    fn queue_or_lead(&self, write: Write<'_>, sync: bool) -> Result<()> {
        let mut queue = self.queue.state.lock();
        if queue.led {
            let waiter = Arc::new(Waiter {
                operations: write.encode(),
                sync,
                turn: Mutex::new(Turn::Waiting),
                changed: Condvar::new(),
            });
            queue.waiting.push_back(Arc::clone(&waiter));
            drop(queue);
            if let Some(result) = waiter.wait() {
                return result;
            }
            return self.lead(Write::Batch(&waiter.operations), sync);
        }
        queue.led = true;
        drop(queue);
        self.lead(write, sync)
    }

    /// Leads one group: the own write and all that wait behind it; then passes the lead on.
    fn lead(&self, own: Write<'_>, own_sync: bool) -> Result<()> {
        let group = self.take_group();
        let result = {
            let mut leader = self.leader.lock();
            self.commit_group(&mut leader, own, own_sync, &group)
        };
        let mut queue = self.queue.state.lock();
        match queue.waiting.pop_front() {
            Some(next) => next.set(Turn::Lead),
            None => queue.led = false,
        }
        result
    }

    fn take_group(&self) -> Vec<Arc<Waiter>> {
        let mut queue = self.queue.state.lock();
        let mut bytes = 0;
        let mut group = Vec::new();
        while let Some(waiter) = queue.waiting.front() {
            bytes += waiter.operations.bytes().len();
            if bytes > GROUP_BYTES_MAX && !group.is_empty() {
                break;
            }
            group.extend(queue.waiting.pop_front());
        }
        group
    }

    /// Logs, syncs, inserts and publishes a group. The result is the own write's; the others get
    /// theirs through their waiters.
    fn commit_group(
        &self,
        leader: &mut Leader,
        own: Write<'_>,
        own_sync: bool,
        group: &[Arc<Waiter>],
    ) -> Result<()> {
        let segment = leader.log.as_ref().map_or(0, Log::current_segment);
        let own_logged = self.log_write(leader, own);
        let mut logged = Vec::with_capacity(group.len());
        for waiter in group {
            logged.push(self.log_write(leader, Write::Batch(&waiter.operations)));
        }
        let sync = own_sync || group.iter().any(|waiter| waiter.sync);
        let synced = match sync {
            true => self
                .syncer
                .sync()
                .map_err(|error| self.fail(error))
                .map(|_| ()),
            false => Ok(()),
        };
        if let Err(error) = synced {
            group
                .iter()
                .for_each(|waiter| waiter.set(Turn::Done(Err(error.clone()))));
            return Err(error);
        }
        let mut install = self.lock_install();
        if let Ok(first) = &own_logged {
            self.insert(&mut install, own, *first, segment);
        }
        for (waiter, logged) in group.iter().zip(&logged) {
            if let Ok(first) = logged {
                self.insert(
                    &mut install,
                    Write::Batch(&waiter.operations),
                    *first,
                    segment,
                );
            }
        }
        let current = leader.log.as_ref().map_or(segment, Log::current_segment);
        self.publish(leader.next_seq - 1, current);
        drop(install);
        if current != segment {
            self.schedule.wake_log();
        }
        for (waiter, logged) in group.iter().zip(logged) {
            waiter.set(Turn::Done(logged.map(|_| ())));
        }
        own_logged.map(|_| ())
    }

    /// Appends a write to the log; returns its first sequence number.
    fn log_write(&self, leader: &mut Leader, write: Write<'_>) -> Result<Seq> {
        let first = leader.next_seq;
        let count = u64::from(write.count());
        if first + count > SEQ_MAX {
            return Err(Error::Limit {
                what: "sequence number",
                size: first,
                limit: SEQ_MAX,
            });
        }
        let head = batch_head(first, write.count());
        match write {
            Write::Single {
                keyspace,
                kind,
                key,
                value,
            } => {
                let operation = OpHead::new(kind, keyspace.id, key.len(), value.len());
                leader
                    .log()?
                    .append(&[&head, operation.as_bytes(), key, value])?;
            }
            Write::Batch(operations) => {
                leader.log()?.append(&[&head, operations.bytes()])?;
            }
        }
        leader.next_seq += count;
        Ok(first)
    }

    /// Inserts a logged write into its MemTables.
    fn insert(&self, install: &mut Install, write: Write<'_>, first: Seq, segment: u64) {
        match write {
            Write::Single {
                keyspace,
                kind,
                key,
                value,
            } => {
                if kind == Kind::DeleteRange {
                    self.delete_range(keyspace, key, value, first, segment);
                    self.freeze_due_after_ranges(install);
                    return;
                }
                let hash = hash_key(key);
                let router = keyspace.router.load();
                let bucket = router.route(key);
                let state = bucket.state.load();
                state.active.insert(key, hash, first, kind, value);
                state.active.pin_once(segment);
                self.freeze_if_due(install, &state.active);
            }
            Write::Batch(operations) => self.insert_batch(install, operations, first, segment),
        }
    }

    /// Inserts a range delete into the MemTables of all buckets that it concerns. `upper` is the
    /// first key above the range, empty for the end of all keys.
    fn delete_range(
        &self,
        keyspace: &Keyspace,
        lower: &[u8],
        upper: &[u8],
        seq: Seq,
        segment: u64,
    ) {
        let upper = (!upper.is_empty()).then_some(upper);
        let protected = self.snapshots.protect(|| self.visible());
        for bucket in keyspace.router.load().touching(lower, upper) {
            bucket.delete_range((lower, upper), seq, segment, &protected);
        }
    }

    /// As [`Wip::freeze_if_due`], after inserts into many MemTables.
    fn freeze_due_after_ranges(&self, install: &mut Install) {
        if self.throttle.must_look(self.pool.allocated_bytes()) {
            self.freeze_due(install);
        }
    }

    /// Inserts the operations of a batch, windows of them at a time: first all their MemTables are
    /// found and the cache lines that the inserts need are asked for, then they are inserted.
    fn insert_batch(
        &self,
        install: &mut Install,
        operations: &BatchEncoder,
        first: Seq,
        segment: u64,
    ) {
        let keyspaces = self.keyspaces.load();
        let mut operations = operations.ops(first).map_while(Result::ok);
        let mut router: Option<(u32, Arc<Router>)> = None;
        let mut window = Vec::with_capacity(PREFETCH_OPERATIONS);
        loop {
            for operation in operations.by_ref().take(PREFETCH_OPERATIONS) {
                let id = operation.keyspace;
                let (_, router) = match router.take() {
                    Some(known) if known.0 == id => router.insert(known),
                    _ => router.insert((id, keyspaces[id as usize].router.load_full())),
                };
                let hash = hash_key(operation.key);
                let table: Arc<MemTable> =
                    Arc::clone(&router.route(operation.key).state.load().active);
                table.prefetch(hash);
                window.push((operation, hash, table));
            }
            if window.is_empty() {
                return;
            }
            let mut large = false;
            for (operation, hash, table) in window.drain(..) {
                let Op {
                    key,
                    seq,
                    kind,
                    value,
                    keyspace,
                } = operation;
                if kind == Kind::DeleteRange {
                    let keyspace = &keyspaces[keyspace as usize];
                    self.delete_range(keyspace, key, value, seq, segment);
                    continue;
                }
                table.insert(key, hash, seq, kind, value);
                table.pin_once(segment);
                if table.memory_bytes() > self.throttle.limits().table_bytes_max {
                    large = true;
                }
            }
            if large || self.throttle.must_look(self.pool.allocated_bytes()) {
                self.freeze_due(install);
            }
        }
    }

    /// Freezes MemTables when they use more memory than their share, after an insert into `table`.
    #[inline]
    fn freeze_if_due(&self, install: &mut Install, table: &MemTable) {
        let large = table.memory_bytes() > self.throttle.limits().table_bytes_max;
        if large || self.throttle.must_look(self.pool.allocated_bytes()) {
            self.freeze_due(install);
        }
    }

    /// Freezes each MemTable that is too large, and the largest ones until the rest fits.
    fn freeze_due(&self, install: &mut Install) {
        let limits = self.throttle.limits();
        let mut tables: Vec<_> = self
            .buckets()
            .into_iter()
            .map(|(keyspace, bucket)| {
                let bytes = bucket.state.load().active.memory_bytes();
                (bytes, keyspace, bucket)
            })
            .collect();
        tables.sort_by_key(|(bytes, ..)| *bytes);
        let mut active: u64 = tables.iter().map(|(bytes, ..)| bytes).sum();
        while let Some((bytes, keyspace, bucket)) = tables.pop() {
            if bytes <= limits.table_bytes_max && active <= limits.active_bytes_max {
                break;
            }
            self.freeze(install, &keyspace, &bucket);
            active -= bytes;
        }
        let room = limits.active_bytes_max.saturating_sub(active);
        self.throttle
            .look_again_at(self.pool.allocated_bytes() + room);
    }

    /// Freezes all MemTables and waits until they are tables.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        {
            let mut install = self.lock_install();
            for (keyspace, bucket) in self.buckets() {
                self.freeze(&mut install, &keyspace, &bucket);
            }
        }
        self.wait_flushed()
    }

    /// Makes everything acknowledged durable at a level.
    pub(crate) fn persist(&self, durability: Durability) -> Result<()> {
        self.check_writable()?;
        match durability {
            Durability::Sync | Durability::Interval(_) => {
                self.syncer.sync().map_err(|error| self.fail(error))?;
            }
            Durability::Buffered => {}
        }
        Ok(())
    }
}
