//! What WipDB and FlexDB have around what makes them different: the shell of an engine that keeps
//! a log and MemTables in front of files.
//!
//! # Idea
//! Both engines log a write, insert it into a MemTable and publish its number; both have threads
//! that write MemTables to files, slow writers down when these fall behind, and replay the log at
//! an open. The shell has what is the same: [`Shell`] is the state, which an engine dereferences
//! to; [`SsdEngine`] has a method for each step that an engine does in its own way, and
//! [`CommitWrites`] and [`Lifecycle`] are the journeys made of them. `engine/mapped` is the same
//! for engines whose pairs are in a pool.
//!
//! # Rooms
//! | file | journey |
//! |---|---|
//! | `commit` | a write, from admission to publication |
//! | `merges` | what the operands of a write amount to |
//! | `validate`, `transactions` | whether a transaction may take effect; those that are open |
//! | `open` | the ends of an opening and of a close |
//! | `feed`, `consumers` | what was written, for who follows; those for whom the log is kept |
//! | `threads` | the threads that every engine has; what becomes of their errors |
//! | `stats` | the figures that every engine has |
//! | `deferred_open` | an opening that found no space for its end, and tries again |
//! | `rate_limiter` | the limit on what the background writes |
//! | `store_lock` | the lock of the directory |
//!
//! # Invariants
//! - S1. Sequence numbers are given out by whoever holds the write half of the log, and published
//!   in their order. What is published is in MemTables.
//! - S2. The first failure that leaves unknown what is on the medium ends all writing
//!   ([`Shell::fail`]); a shortage of space or descriptors does not.
//! - S3. Once a store is closed, nobody changes a file of its directory: threads are joined, the
//!   write half of the log is taken out, and all others look at the store's lock.
//!
//! # Linearization and durability points
//! A write takes effect when [`Shell::publish`] stores its number. It survives the death of the
//! process once it is in the log, and a power loss once a sync of the log that began later has
//! returned.

mod commit;
mod consumers;
mod deferred_open;
mod feed;
mod merges;
mod open;
pub(crate) mod rate_limiter;
mod stats;
mod store_lock;
mod threads;
mod transactions;
mod validate;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::Disk;

use super::counters::{Counters, WriteStallCounters};
use super::health::Health;
use super::keyspaces::{DroppableKeyspace, KeyspaceTable};
use super::scheduler::BackgroundScheduler;
use super::snapshots::SnapshotList;
use super::write::{Write, WriteQueue};
use crate::expiry::{ReadClock, ReadPoint, StoredRecord, UnixMillis, millis};
use crate::log::{LogSyncer, PendingLog};
use crate::memory::{Memory, TableMemory};
use crate::operands::OlderVersion;
use crate::options::Durability;
use crate::types::Seq;
use crate::{Error, Options, Result};

use deferred_open::DeferredOpen;
use rate_limiter::RateLimiter;
use transactions::OpenTransactions;

pub(crate) use commit::CommitWrites;
pub(crate) use consumers::{ConsumerState, ConsumerStore, ConsumerTable};
pub(crate) use feed::{ChangeFeed, FeedItem, FeedSource, wait_for};
pub(crate) use merges::merge;
pub(crate) use open::{Lifecycle, OpenedLog};
pub(crate) use store_lock::StoreLock;
pub(super) use threads::spawn;
pub(crate) use transactions::OpenTransaction;

/// What every engine of log and MemTables has. `K` is its keyspace.
pub(crate) struct Shell<K> {
    pub(super) options: Options,
    pub(super) disk: Disk,
    /// The ceiling for all that the store has in memory.
    pub(super) memory: Arc<Memory>,
    pub(super) keyspaces: KeyspaceTable<K>,
    /// The newest sequence number that readers see.
    visible: AtomicU64,
    pub(super) snapshots: SnapshotList,
    pub(super) moments: ReadClock,
    transactions: OpenTransactions,
    /// The queue of writers; its head leads.
    queue: WriteQueue,
    /// The sync half of the log, for leaders and the background.
    pub(super) syncer: Arc<LogSyncer>,
    pub(super) schedule: BackgroundScheduler,
    pub(super) pace: RateLimiter,
    pub(super) counters: Counters,
    /// What slowing them down cost writers.
    pub(super) waits: WriteStallCounters,
    /// Those for whom the log is kept.
    consumers: ConsumerTable,
    /// What the opening found no space for.
    pub(super) unsettled: DeferredOpen,
    pub(super) health: Health,
    pub(super) lock: Arc<StoreLock>,
}

/// An engine of log and MemTables: the steps that are its own, and what follows from them at once.
pub(crate) trait SsdEngine:
    Deref<Target = Shell<Self::Keyspace>> + Send + Sync + Sized + 'static
{
    /// A keyspace of it.
    type Keyspace: DroppableKeyspace;

    /// The write half of the log.
    type WriteHalf;

    /// Whether operands may be kept as they are where nobody knows what they amount to; else a
    /// merge fails with its operator.
    const KEEPS_OPERANDS: bool;

    /// Keeps all others from writing.
    fn lock_write_half(&self) -> impl DerefMut<Target = Self::WriteHalf>;

    /// The number of the next write.
    fn next_seq(half: &mut Self::WriteHalf) -> Seq;

    /// The segment to which the next record of the log goes, unless it begins a new one.
    fn segment(half: &Self::WriteHalf) -> u64;

    /// Appends a write to the log, if its keyspaces are there; returns its first number.
    fn append(&self, half: &mut Self::WriteHalf, write: Write<'_, Self::Keyspace>) -> Result<Seq>;

    /// Appends a record of an event to the log, which uses up no number.
    fn append_event(half: &mut Self::WriteHalf, payload: &[u8]) -> Result<()>;

    /// Inserts logged writes into MemTables, each with its first number, publishes them, and
    /// freezes what is full, but nothing before all of them are inserted if they are `whole`. The
    /// log's segment was `segment` before.
    fn insert_group<'w>(
        &self,
        half: &mut Self::WriteHalf,
        writes: impl Iterator<Item = (Write<'w, Self::Keyspace>, Seq)>,
        segment: u64,
        whole: bool,
    );

    /// Asks for the memory that the insert of a single write waits for; returns the hash of its
    /// key, and 0 for a batch.
    fn prefetch(&self, write: Write<'_, Self::Keyspace>) -> u64;

    /// Lets a write of so many bytes pass, after a while if the background falls behind; an error
    /// if that cannot go on.
    fn admit(&self, bytes: u64) -> Result<()>;

    /// Performs a write that needs no sync without the queue; false, and nothing done, if it must
    /// queue. `hash` is that of the key of a single write.
    fn write_concurrently(&self, write: Write<'_, Self::Keyspace>, hash: u64) -> Result<bool>;

    /// Whether a write to a key has a number above `since`, at which a reader is registered.
    /// Whoever asks has the write half. `hash` is that of the key.
    fn is_newer(
        &self,
        keyspace: &Self::Keyspace,
        key: &[u8],
        hash: u64,
        since: Seq,
    ) -> Result<bool>;

    /// As [`SsdEngine::is_newer`], for the key of a write to a range.
    fn newer_in(
        &self,
        keyspace: &Self::Keyspace,
        range: (&[u8], Option<&[u8]>),
        since: Seq,
    ) -> Result<Option<Vec<u8>>>;

    /// The record of a key now.
    fn newest(&self, keyspace: &Self::Keyspace, key: &[u8]) -> Result<Option<StoredRecord>>;

    /// What a key has below an operand that is about to be written. Whoever asks has the write
    /// half.
    fn older(&self, keyspace: &Self::Keyspace, key: &[u8]) -> Result<OlderVersion>;

    /// After a put that found no room: whether flushing what is in memory made some.
    fn gain_room(&self) -> bool;

    /// Without background threads: does all that is due.
    fn run_inline(&self);

    /// Starts the threads that write MemTables to files, if the store has background threads.
    fn start_workers(self: &Arc<Self>) -> Result<()>;

    /// Tends the log: its next segment, its length, its rest.
    fn maintain_log(&self);

    /// Tries the end of the opening again, which found no space.
    fn end_opening(&self, pending: &mut PendingLog) -> Result<()>;

    /// Takes the log out and ends it, with what should be in files then. Threads are joined.
    fn close_log(&self) -> Result<()>;

    /// Gives the directory back, once nobody changes a file any more.
    fn release(&self) {
        self.lock.release();
    }

    /// Ends a registration.
    fn end_snapshot(&self, point: ReadPoint);

    /// Ends a transaction, committed or not.
    fn end_transaction(&self, transaction: &Arc<OpenTransaction>) {
        self.transactions.end(transaction);
        if let Some(point) = transaction.take() {
            self.end_snapshot(point);
        }
    }

    /// Ends transactions that have been open for longer than the options allow.
    fn end_old_transactions(&self) {
        let age_max = self.options.transaction_age_max;
        let Some(moment) = self.options.tuning.clock.now().checked_sub(age_max) else {
            return;
        };
        for old in self.transactions.begun_before(moment) {
            if let Some(point) = old.take() {
                tracing::warn!("ended a transaction that was open for more than {age_max:?}");
                self.end_snapshot(point);
            }
        }
    }

    /// Makes everything acknowledged durable at a level.
    fn persist(&self, durability: Durability) -> Result<()> {
        self.check_writable()?;
        match durability {
            Durability::Sync | Durability::Interval(_) => self.sync_log(),
            Durability::Buffered => Ok(()),
        }
    }

    /// An error unless the store takes writes: with nothing of the opening left to do.
    #[inline]
    fn check_writable(&self) -> Result<()> {
        self.health.check_writable()?;
        self.settle_store()
    }

    /// Ends the opening, if it found no space for that.
    #[inline]
    fn settle_store(&self) -> Result<()> {
        self.unsettled.settle(|pending| {
            self.health.check()?;
            if self.disk.is_read_only() {
                return Err(Error::OpenedReadOnly);
            }
            self.end_opening(pending)?;
            self.schedule.set_shortage(None);
            Ok(())
        })
    }
}

impl<K: DroppableKeyspace> Shell<K> {
    /// The newest sequence number that readers see.
    #[inline]
    pub(crate) fn visible(&self) -> Seq {
        // ORDER: Acquire pairs with the Release in `publish`.
        self.visible.load(Ordering::Acquire)
    }

    /// Makes everything up to `seq` visible. This is where writes take effect.
    #[inline]
    pub(super) fn publish(&self, seq: Seq) {
        // ORDER: Release pairs with the Acquire in `visible` and in gets: the entries are in the
        // MemTables before their number is seen.
        self.visible.store(seq, Ordering::Release);
    }

    /// What a reader sees that begins now.
    pub(crate) fn read_point(&self) -> ReadPoint {
        ReadPoint {
            seq: self.visible(),
            moment: self.moments.now(),
        }
    }

    /// What expired up to then is gone for all who read (`expiry`, X2).
    pub(super) fn horizon(&self) -> UnixMillis {
        self.snapshots.protect(|| self.read_point()).horizon()
    }

    /// What expired up to then gives its space back: what readers may still see does not, and half
    /// of the time that it may take is waited, so that more goes together.
    pub(super) fn expired_by(&self) -> UnixMillis {
        let now = self.moments.now();
        let oldest = self.snapshots.oldest_point();
        let oldest = oldest.map_or(now, |point| point.moment);
        let wait = self.options.expiry_lag_max / 2;
        now.min(oldest).saturating_sub(millis(wait))
    }

    /// Registers a reader of what is visible now.
    pub(crate) fn begin_snapshot(&self) -> ReadPoint {
        self.snapshots.register(|| self.read_point())
    }

    /// Registers one more reader where one is registered.
    pub(crate) fn share_snapshot(&self, point: ReadPoint) {
        self.snapshots.register_again(point);
    }

    /// Begins a transaction, which reads at the newest visible number.
    pub(super) fn begin_transaction(&self) -> Arc<OpenTransaction> {
        let point = self.begin_snapshot();
        self.transactions
            .begin(point, self.options.tuning.clock.now())
    }

    /// Memory of the store's users that counts below its ceiling, none yet.
    pub(super) fn charge_memory(&self) -> TableMemory {
        self.memory.charge_table(0)
    }

    /// Makes all of the log durable.
    pub(super) fn sync_log(&self) -> Result<()> {
        // A failed sync leaves unknown what is on the medium.
        self.syncer.sync().map_err(|error| self.fail(error))?;
        Ok(())
    }

    /// Keeps the first failure that makes the store read-only, and passes the error on.
    pub(super) fn fail(&self, error: Error) -> Error {
        self.health.fail(&error);
        self.pace.stop();
        self.schedule.wake();
        error
    }
}
