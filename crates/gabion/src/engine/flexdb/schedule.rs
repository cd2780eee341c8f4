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
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Flex;
use crate::options::Durability;
use crate::{Error, Result};

/// How long the background waits before it tries again after it found no space.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// How long a thread sleeps at most when nothing wakes it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long a stopped writer waits before it looks again.
const STALL_SLICE: Duration = Duration::from_millis(10);

/// The longest delay of a write that is slowed down.
const DELAY_MAX: Duration = Duration::from_micros(400);

/// The common ground of writers and background threads.
#[derive(Default)]
pub(super) struct Schedule {
    state: Mutex<State>,
    /// There may be something to merge.
    work: Condvar,
    /// A merge has ended or failed.
    rest: Condvar,
    /// The log needs attention.
    log: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    wakes: u64,
    log_wakes: u64,
    stop: bool,
    /// A merge found no space and will be tried again.
    no_space: Option<Error>,
}

impl Schedule {
    /// There may be something to merge, or somebody who waits should look again.
    pub(super) fn wake(&self) {
        self.state.lock().wakes += 1;
        self.work.notify_all();
        self.rest.notify_all();
    }

    /// The log needs attention.
    pub(super) fn wake_log(&self) {
        self.state.lock().log_wakes += 1;
        self.log.notify_all();
    }

    /// Ends the threads and waits for what they do.
    pub(super) fn stop(&self) {
        self.state.lock().stop = true;
        self.work.notify_all();
        self.log.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
    }
}

/// What a background thread does.
type Body = Box<dyn FnOnce(&Arc<Flex>) + Send>;

impl Flex {
    /// Starts the background threads.
    pub(super) fn start_threads(self: &Arc<Flex>) {
        if self.options.background_threads == 0 {
            return;
        }
        let mut threads = self.schedule.threads.lock();
        let mut spawn = |name: &str, body: Body| {
            let engine = Arc::clone(self);
            let thread = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || body(&engine));
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => tracing::error!(%error, "a background thread could not be started"),
            }
        };
        spawn("gabion-merge", Box::new(|engine| engine.merge_always()));
        spawn("gabion-log", Box::new(|engine| engine.tend_log()));
        if let Durability::Interval(interval) = self.options.durability {
            let body = move |engine: &Arc<Flex>| engine.sync_at_intervals(interval);
            spawn("gabion-sync", Box::new(body));
        }
    }

    fn merge_always(&self) {
        loop {
            let wakes = {
                let state = self.schedule.state.lock();
                if state.stop {
                    return;
                }
                state.wakes
            };
            let merged = self.merge_or_record();
            self.schedule.rest.notify_all();
            let mut state = self.schedule.state.lock();
            let pause = match (merged, state.no_space.is_some()) {
                (true, _) => continue,
                (false, true) => RETRY_AFTER,
                (false, false) => LOOK_AGAIN,
            };
            if state.wakes == wakes && !state.stop {
                self.schedule.work.wait_for(&mut state, pause);
            }
        }
    }

    /// Merges what is oldest; false when there was nothing or it failed.
    fn merge_or_record(&self) -> bool {
        if self.failure().is_some() {
            return false;
        }
        match self.merge_oldest() {
            Ok(merged) => {
                if merged {
                    self.schedule.state.lock().no_space = None;
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
            self.schedule.state.lock().no_space = Some(error.clone());
            return error;
        }
        if self.failure().is_none() {
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
            self.counters.count_slowdown(began.elapsed());
            return Ok(());
        }
        while self.waiting_bytes() > stop {
            self.run_inline();
            self.check_writable()?;
            if self.view.load().frozen().is_empty() {
                // One write alone was larger; it is in the generation that takes writes.
                break;
            }
            let mut state = self.schedule.state.lock();
            if let Some(error) = &state.no_space {
                return Err(error.clone());
            }
            self.schedule.work.notify_all();
            self.schedule.rest.wait_for(&mut state, STALL_SLICE);
        }
        self.counters.count_stall(began.elapsed());
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
                return self.check_writable();
            }
            self.check_writable()?;
            let mut state = self.schedule.state.lock();
            if let Some(error) = &state.no_space {
                return Err(error.clone());
            }
            let wait = Duration::from_millis(2);
            self.schedule.rest.wait_for(&mut state, wait);
        }
    }

    /// Prepares segments of the log ahead.
    fn tend_log(&self) {
        loop {
            if self.syncer.needs_next()
                && let Err(error) = self.syncer.prepare_next()
            {
                // The writer tries again when it needs the segment.
                tracing::warn!(%error, "the log's next segment could not be prepared");
            }
            let mut state = self.schedule.state.lock();
            if !state.stop && state.log_wakes == 0 {
                self.schedule.log.wait_for(&mut state, LOOK_AGAIN);
            }
            if state.stop {
                return;
            }
            state.log_wakes = 0;
        }
    }

    /// Bounds what power loss costs.
    fn sync_at_intervals(&self, interval: Duration) {
        loop {
            {
                let mut state = self.schedule.state.lock();
                if !state.stop {
                    self.schedule.log.wait_for(&mut state, interval);
                }
                if state.stop {
                    return;
                }
            }
            if self.failure().is_none()
                && self.syncer.durable_lsn() < self.syncer.appended_lsn()
                && let Err(error) = self.syncer.sync()
            {
                self.fail(error);
            }
        }
    }
}
