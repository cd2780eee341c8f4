//! The ends of an opening and of a close.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gabion_media::Disk;

use super::deferred_open::DeferredOpen;
use super::rate_limiter::RateLimiter;
use super::threads::start_threads;
use super::transactions::OpenTransactions;
use super::{ConsumerTable, Shell, SsdEngine, StoreLock};
use crate::engine::counters::{Counters, WriteStallCounters};
use crate::engine::health::Health;
use crate::engine::keyspaces::{DroppableKeyspace, KeyspaceTable};
use crate::engine::scheduler::BackgroundScheduler;
use crate::engine::snapshots::SnapshotList;
use crate::engine::write::WriteQueue;
use crate::expiry::ReadClock;
use crate::log::{Log, LogSyncer, PendingLog};
use crate::memory::Memory;
use crate::types::Seq;
use crate::{Error, Options, Result};

/// The log as an opening has left it.
pub(crate) struct OpenedLog {
    syncer: Arc<LogSyncer>,
    /// For whom it is kept.
    consumers: ConsumerTable,
    /// What waits for space.
    pending: Option<PendingLog>,
}

impl OpenedLog {
    /// A log that was replayed, and how settling it ended; with its write half, if it takes
    /// appends. Where there was no space for that, a store whose structure is known (`can_wait`)
    /// is open all the same, and [unsettled](super::deferred_open).
    pub(crate) fn new(
        disk: &Disk,
        consumers: ConsumerTable,
        pending: PendingLog,
        settled: Result<Log>,
        can_wait: bool,
    ) -> Result<(OpenedLog, Option<Log>)> {
        let syncer = pending.syncer();
        let (log, pending) = match settled {
            Err(error) if error.is_no_space() && can_wait => {
                if !disk.is_read_only() {
                    tracing::warn!(%error, "the store takes no writes until there is space");
                }
                // DURABLE: what was replayed, so that nobody reads what a power loss can undo.
                pending.sync(disk)?;
                (None, Some(pending))
            }
            settled => (Some(settled?), None),
        };
        let opened = OpenedLog {
            syncer,
            consumers,
            pending,
        };
        Ok((opened, log))
    }

    /// The log of a store that somebody else writes, of which nothing was read yet.
    pub(crate) fn followed(consumers: ConsumerTable, pending: PendingLog) -> OpenedLog {
        OpenedLog {
            syncer: pending.syncer(),
            consumers,
            pending: Some(pending),
        }
    }
}

impl<K: DroppableKeyspace> Shell<K> {
    /// The shell of a store whose directory is locked and whose log was replayed up to `last_seq`.
    pub(crate) fn new(
        (disk, lock): (Disk, Arc<StoreLock>),
        options: Options,
        memory: Arc<Memory>,
        keyspaces: Vec<Arc<K>>,
        log: OpenedLog,
        last_seq: Seq,
    ) -> Shell<K> {
        Shell {
            pace: RateLimiter::new(&options),
            moments: ReadClock::new(&options.tuning.clock),
            options,
            disk,
            memory,
            keyspaces: KeyspaceTable::new(keyspaces),
            visible: AtomicU64::new(last_seq),
            snapshots: SnapshotList::default(),
            transactions: OpenTransactions::default(),
            queue: WriteQueue::default(),
            syncer: log.syncer,
            consumers: log.consumers,
            schedule: BackgroundScheduler::default(),
            counters: Counters::default(),
            waits: WriteStallCounters::default(),
            unsettled: DeferredOpen::new(log.pending),
            health: Health::default(),
            lock,
        }
    }
}

impl<K: DroppableKeyspace> Shell<K> {
    /// Takes note of the consumers of a store that somebody else writes.
    pub(crate) fn renew_consumers(&self) -> Result<()> {
        match self.consumers.renew(&self.disk) {
            // The last one was dropped meanwhile.
            Err(Error::Media(error)) if error.is_not_found() => Ok(()),
            renewed => renewed,
        }
    }
}

/// The threads of a store, and its end.
pub(crate) trait Lifecycle: SsdEngine {
    /// Starts the threads of a store that was opened. Where one does not start the store is closed:
    /// those that were started hold it.
    fn start(self: &Arc<Self>) -> Result<()> {
        start_threads(self).inspect_err(|_| drop(self.close()))
    }

    /// Closes the store; a second call does nothing.
    fn close(&self) -> Result<()> {
        if !self.health.close() {
            return Ok(());
        }
        self.pace.stop();
        self.schedule.wake();
        self.schedule.stop();
        let settled = match self.disk.is_read_only() {
            true => Ok(false),
            false => self.unsettled.end(self.settle_store()),
        };
        let result = settled.and_then(|is_settled| match is_settled {
            true => self.close_log(),
            false => Ok(()),
        });
        self.release();
        result
    }
}

impl<E: SsdEngine> Lifecycle for E {}
