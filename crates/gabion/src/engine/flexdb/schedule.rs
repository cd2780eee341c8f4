//! Who merges, and who waits for it.
//!
//! # Idea
//! One thread merges what is frozen, one prepares segments of the log, and one syncs the log at
//! intervals if the durability says so. Without background threads the writer merges, so that a
//! store is deterministic.
//!
//! # Waiting
//! When the generations that wait to be merged take more than the budget, writers are slowed down,
//! more the closer the sum comes to one and a half times the budget, where they stop until a merge
//! has ended. What is kept for readers does not count: a writer that holds readers would wait for
//! itself. When there is no space to merge into, writes that would have to wait are refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Flex;
use crate::options::Durability;
use crate::stats::nanos;
use crate::{Error, Result};

/// How long a stopped writer waits before it looks again.
const STALL_SLICE: Duration = Duration::from_millis(10);

/// The longest delay of a write that is slowed down.
const DELAY_MAX: Duration = Duration::from_micros(400);

impl Flex {
    /// Starts the background threads.
    pub(super) fn start_threads(self: &Arc<Flex>) {
        if self.options.background_threads == 0 {
            return;
        }
        let engine = Arc::clone(self);
        self.schedule.spawn("gabion-merge", move || {
            engine.schedule.work(|| engine.merge_or_record());
        });
        let engine = Arc::clone(self);
        self.schedule.spawn("gabion-log", move || {
            engine.schedule.tend_log(|| engine.prepare_segment());
        });
        if let Durability::Interval(interval) = self.options.durability {
            let engine = Arc::clone(self);
            self.schedule.spawn("gabion-sync", move || {
                let sync = || engine.sync_appended();
                engine.schedule.sync_at_intervals(interval, sync);
            });
        }
    }

    /// Merges what is oldest; false when there was nothing or it failed.
    fn merge_or_record(&self) -> bool {
        if self.health.failure().is_some() {
            return false;
        }
        match self.merge_oldest() {
            Ok(merged) => {
                if merged {
                    self.schedule.set_no_space(None);
                }
                merged
            }
            Err(error) => {
                self.record(error);
                false
            }
        }
    }

    /// Keeps an error of a merge: no space is tried again, all else ends writing. Passes it on.
    pub(super) fn record(&self, error: Error) -> Error {
        if error.is_no_space() {
            tracing::warn!(%error, "a merge found no space and will be tried again");
            self.schedule.set_no_space(Some(error.clone()));
            return error;
        }
        if self.health.failure().is_none() {
            return self.fail(error);
        }
        error
    }

    /// Without background threads: merges all that is frozen.
    pub(super) fn run_inline(&self) {
        if self.options.background_threads == 0 {
            while self.merge_or_record() {}
        }
    }

    /// Bytes of the generations that take writes or wait.
    pub(super) fn waiting_bytes(&self) -> u64 {
        let view = self.view.load();
        view.waiting
            .iter()
            .map(|generation| generation.bytes())
            .sum()
    }

    /// Lets a write pass, after a while if merges fall behind; an error if they cannot go on.
    pub(super) fn admit(&self) -> Result<()> {
        let budget = self.options.memtable_budget_bytes;
        let bytes = self.waiting_bytes();
        if bytes <= budget {
            return Ok(());
        }
        let began = Instant::now();
        let stop = budget + budget / 2;
        if bytes <= stop && self.options.background_threads > 0 {
            let part = u32::try_from((bytes - budget) * 16 / budget.max(1)).unwrap_or(16);
            std::thread::sleep(DELAY_MAX * part / 8);
            self.waits.count_slowdown(began.elapsed());
            return Ok(());
        }
        while self.waiting_bytes() > stop {
            self.run_inline();
            self.health.check_writable()?;
            if self.view.load().frozen().is_empty() {
                // One write alone was larger; it is in the generation that takes writes.
                break;
            }
            self.schedule.check_space()?;
            self.schedule.wait(STALL_SLICE);
        }
        let waited = began.elapsed();
        self.waits.count_slowdown(waited);
        self.waits.stall_ns.add(nanos(waited));
        self.waits.stalls.add(1);
        Ok(())
    }

    /// Waits until nothing is left to merge.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.schedule.wake();
        loop {
            self.run_inline();
            if self.view.load().frozen().is_empty() {
                // The merge that ended last may still be syncing.
                drop(self.merge_lock.lock());
                return self.health.check_writable();
            }
            self.health.check_writable()?;
            self.schedule.check_space()?;
            self.schedule.wait(Duration::from_millis(2));
        }
    }

    /// Prepares segments of the log ahead.
    fn prepare_segment(&self) {
        if self.syncer.needs_next()
            && let Err(error) = self.syncer.prepare_next()
        {
            // The writer tries again when it needs the segment.
            tracing::warn!(%error, "the log's next segment could not be prepared");
        }
    }

    /// Bounds what power loss costs.
    fn sync_appended(&self) {
        if self.health.failure().is_none()
            && let Err(error) = self.syncer.sync()
        {
            self.fail(error);
        }
    }
}
