//! A write: log, MemTable, publication.
//!
//! # Idea
//! Whoever writes holds the writer's lock: it appends to the log, inserts into MemTables and
//! publishes. Writes that must survive the loss of power queue instead; the head of the queue
//! leads: it takes all that wait behind it along and syncs the log once for all of them. While it
//! syncs, the next group gathers.
//!
//! # Invariants
//! - W1. The order of records in the log is the order of numbers, of inserts and of publication.
//! - W2. A write is in the log, and on the medium where that was asked for, before it is in a
//!   MemTable: no read returns a value that a power loss can undo which it was not allowed to.
//! - W3. A generation is frozen under the writer's lock, so all of its numbers are published.
//!
//! # Failures
//! A record that finds no space for the next segment of the log fails its write and changes
//! nothing; later writes may succeed. After a failed sync, or another failed write of the log, the
//! store is read-only: nobody knows what is on the medium.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::generation::Generation;
use super::{Flex, Keyspace};
use crate::engine::wip::keep_order;
use crate::log::{BatchEncoder, Log, OpHead, batch_head};
use crate::options::Durability;
use crate::types::{Kind, SEQ_MAX, Seq, hash_key};
use crate::{Error, Result};

/// Bytes of waiting writes that one leader takes at most, so that the first of them does not wait
/// for a gigabyte of others.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// The write half of the log, and the number of the next write.
pub(super) struct Writer {
    /// `None` once the store is closed.
    pub(super) log: Option<Log>,
    pub(super) next_seq: Seq,
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

/// The queue of writes that are synced together.
#[derive(Default)]
pub(super) struct WriteQueue {
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

impl Flex {
    /// Performs a write: in the log, in its MemTables, visible.
    ///
    /// `user_bytes` are the bytes of its keys and values.
    pub(crate) fn write(&self, write: Write<'_>, user_bytes: u64, sync: bool) -> Result<()> {
        self.check_writable()?;
        self.admit()?;
        if sync {
            self.queue_or_lead(write)?;
        } else {
            self.write_now(&mut self.writer.lock(), write)?;
        }
        self.counters.count_write(user_bytes);
        self.run_inline();
        Ok(())
    }

    fn write_now(&self, writer: &mut Writer, write: Write<'_>) -> Result<()> {
        let first = self.log_write(writer, write)?;
        self.insert(write, first);
        self.publish(writer.next_seq - 1);
        self.freeze_if_full(writer);
        Ok(())
    }

    fn queue_or_lead(&self, write: Write<'_>) -> Result<()> {
        let mut queue = self.queue.state.lock();
        if !queue.led {
            queue.led = true;
            drop(queue);
            return self.lead(write);
        }
        let waiter = Arc::new(Waiter {
            operations: write.encode(),
            turn: Mutex::new(Turn::Waiting),
            changed: Condvar::new(),
        });
        queue.waiting.push_back(Arc::clone(&waiter));
        drop(queue);
        match waiter.wait() {
            Some(result) => result,
            None => self.lead(Write::Batch(&waiter.operations)),
        }
    }

    /// Leads one group: the own write and all that wait behind it; then passes the lead on.
    fn lead(&self, own: Write<'_>) -> Result<()> {
        let group = self.take_group();
        let result = self.commit_group(&mut self.writer.lock(), own, &group);
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
        writer: &mut Writer,
        own: Write<'_>,
        group: &[Arc<Waiter>],
    ) -> Result<()> {
        let own_logged = self.log_write(writer, own);
        let logged: Vec<Result<Seq>> = group
            .iter()
            .map(|waiter| self.log_write(writer, Write::Batch(&waiter.operations)))
            .collect();
        if let Err(error) = self.syncer.sync() {
            let error = self.fail(error);
            group
                .iter()
                .for_each(|waiter| waiter.set(Turn::Done(Err(error.clone()))));
            return Err(error);
        }
        if let Ok(first) = &own_logged {
            self.insert(own, *first);
        }
        for (waiter, logged) in group.iter().zip(&logged) {
            if let Ok(first) = logged {
                self.insert(Write::Batch(&waiter.operations), *first);
            }
        }
        self.publish(writer.next_seq - 1);
        self.freeze_if_full(writer);
        for (waiter, logged) in group.iter().zip(logged) {
            waiter.set(Turn::Done(logged.map(|_| ())));
        }
        own_logged.map(|_| ())
    }

    /// Appends a write to the log; returns its first sequence number.
    fn log_write(&self, writer: &mut Writer, write: Write<'_>) -> Result<Seq> {
        // Whoever waited for the lock may find the store failed.
        self.check_writable()?;
        let first = writer.next_seq;
        let count = u64::from(write.count());
        if first + count > SEQ_MAX {
            return Err(Error::Limit {
                what: "sequence number",
                size: first,
                limit: SEQ_MAX,
            });
        }
        let log = writer.log.as_mut().ok_or(Error::Closed)?;
        let segment = log.current_segment();
        let head = batch_head(first, write.count());
        let appended = match write {
            Write::Single {
                keyspace,
                kind,
                key,
                value,
            } => {
                let operation = OpHead::new(kind, keyspace.id, key.len(), value.len());
                log.append(&[&head, operation.as_bytes(), key, value])
            }
            Write::Batch(operations) => log.append(&[&head, operations.bytes()]),
        };
        if let Err(error) = appended {
            // A failure that ends the log ends all writing.
            return Err(match self.syncer.check() {
                Ok(()) => error,
                Err(cause) => self.fail(cause),
            });
        }
        if log.current_segment() != segment {
            self.schedule.wake_log();
        }
        writer.next_seq += count;
        Ok(first)
    }

    /// Inserts a logged write into the generation that takes writes.
    fn insert(&self, write: Write<'_>, first: Seq) {
        let view = self.view.load();
        let active = view.active();
        let protected = || self.snapshots.protect(|| self.visible());
        match write {
            Write::Single {
                keyspace,
                kind,
                key,
                value,
            } => {
                let change = (kind, key, value);
                active.insert(keyspace.id, change, hash_key(key), first, protected);
            }
            Write::Batch(operations) => {
                for operation in operations.ops(first).map_while(Result::ok) {
                    let hash = hash_key(operation.key);
                    let change = (operation.kind, operation.key, operation.value);
                    active.insert(operation.keyspace, change, hash, operation.seq, protected);
                }
            }
        }
    }

    /// Bytes of the generation that takes writes at which it is frozen: so that another one may
    /// fill while it is merged, and a third one has begun.
    pub(super) fn active_bytes_max(&self) -> u64 {
        self.options.memtable_budget_bytes / 5 * 2
    }

    fn freeze_if_full(&self, writer: &Writer) {
        let view = self.view.load();
        let full = view.active().bytes() > self.active_bytes_max();
        // As long as generations wait, the log may shrink without this one.
        let waits = !view.frozen().is_empty();
        if full || (!waits && self.syncer.live_bytes() > self.options.log_bytes_max) {
            self.freeze(writer);
        }
    }

    /// Lets a new generation take the writes, unless there were none.
    pub(super) fn freeze(&self, writer: &Writer) {
        if self.view.load().active().is_empty() {
            return;
        }
        let segment = writer.log.as_ref().map_or(0, Log::current_segment);
        self.change_view(|view| {
            let number = view.active().number + 1;
            let next = Generation::new(number, segment, &self.pool, keep_order(&self.options));
            view.waiting.insert(0, Arc::new(next));
        });
        self.schedule.wake();
    }

    /// Merges everything written so far and waits for it.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        self.freeze(&self.writer.lock());
        self.wait_idle()
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
