//! The background threads: who does the work that is due.
//!
//! # Idea
//! No queue of jobs is kept: what is due follows from the state of the store, so it is looked for
//! whenever a thread is free. Flushes come first, because writers wait for their memory; one thread
//! does nothing else. Then comes the most pressing of what [`super::due`] finds in the buckets.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Wip;
use super::space::Need;
use crate::options::Durability;
use crate::types::Seq;
use crate::{Error, Result};

/// How long the background waits before it tries again after it found no space.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// A store that took no write for this long is idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// A store that took no write for this long gives the space of its log back. What it would save by
/// doing so between two phases of a user's work is not worth many small tables.
const REST_AFTER: Duration = Duration::from_secs(10);

/// How long a thread sleeps at most when nothing wakes it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The background threads' common ground.
#[derive(Default)]
pub(crate) struct Schedule {
    state: Mutex<State>,
    /// There may be something to do.
    work: Condvar,
    /// A job has ended or nothing was found to do.
    rest: Condvar,
    /// The log needs its next segment or is too large.
    log: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    /// Counts calls of `wake_all`, so that a thread does not sleep over one.
    wakes: u64,
    log_wakes: u64,
    running: usize,
    stop: bool,
    /// The background found no space and will try again.
    no_space: Option<Error>,
    /// The sequence number that was visible when idleness was last looked at, and since when
    /// by the store's clock.
    quiet_since: Option<(Seq, Duration)>,
    /// Callers of `wait_idle`: for them the store counts as idle.
    waiting: usize,
}

impl Schedule {
    /// There may be something to do.
    pub(crate) fn wake_all(&self) {
        self.state.lock().wakes += 1;
        self.work.notify_all();
        self.rest.notify_all();
    }

    /// The log needs attention.
    pub(crate) fn wake_log(&self) {
        self.state.lock().log_wakes += 1;
        self.log.notify_all();
    }

    /// Ends the threads and waits for their jobs.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.work.notify_all();
        self.log.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
    }

    fn stopped(&self) -> bool {
        self.state.lock().stop
    }
}

/// What a background thread does.
type Body = Box<dyn FnOnce(&Arc<Wip>) + Send>;

impl Wip {
    /// Starts the background threads.
    pub(crate) fn start_threads(self: &Arc<Wip>) -> Result<()> {
        let count = self.options.background_threads;
        let mut threads = self.schedule.threads.lock();
        let mut spawn = |name: String, body: Body| {
            let engine = Arc::clone(self);
            let thread = std::thread::Builder::new()
                .name(name)
                .spawn(move || body(&engine));
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => tracing::error!(%error, "a background thread could not be started"),
            }
        };
        for number in 0..count {
            let flushes_only = number == 0 && count > 1;
            let body = move |engine: &Arc<Wip>| engine.work(flushes_only);
            spawn(format!("gabion-work-{number}"), Box::new(body));
        }
        if count > 0 {
            spawn(
                "gabion-log".to_owned(),
                Box::new(|engine| engine.tend_log()),
            );
            if let Durability::Interval(interval) = self.options.durability {
                let body = move |engine: &Arc<Wip>| engine.sync_at_intervals(interval);
                spawn("gabion-sync".to_owned(), Box::new(body));
            }
        }
        Ok(())
    }

    /// What a background thread does all its life.
    fn work(&self, flushes_only: bool) {
        loop {
            let wakes = {
                let mut state = self.schedule.state.lock();
                if state.stop {
                    return;
                }
                state.running += 1;
                state.wakes
            };
            let done = self.do_one_or_record(flushes_only);
            let mut state = self.schedule.state.lock();
            state.running -= 1;
            self.schedule.rest.notify_all();
            let pause = match (done, state.no_space.is_some()) {
                (true, _) => continue,
                (false, true) => RETRY_AFTER,
                (false, false) => LOOK_AGAIN,
            };
            if state.wakes == wakes && !state.stop {
                self.schedule.work.wait_for(&mut state, pause);
            }
        }
    }

    /// Does one thing that is due; false when there was none or it failed.
    fn do_one_or_record(&self, flushes_only: bool) -> bool {
        if self.failure().is_some() {
            return false;
        }
        match self.do_one(flushes_only) {
            Ok(done) => {
                if done {
                    self.schedule.state.lock().no_space = None;
                    self.after_job();
                }
                done
            }
            Err(error) => {
                self.record(error);
                false
            }
        }
    }

    /// Keeps an error of the background: no space is tried again, all else ends writing. A job that
    /// the close of the store interrupts has not failed.
    fn record(&self, error: Error) {
        if matches!(error, Error::Closed) {
            return;
        }
        if error.is_no_space() {
            tracing::warn!(%error, "the background found no space and will try again");
            self.schedule.state.lock().no_space = Some(error);
        } else if self.failure().is_none() {
            self.fail(error);
        }
    }

    fn do_one(&self, flushes_only: bool) -> Result<bool> {
        let must_make_room = self.must_make_room();
        if !must_make_room && self.flush_one()? {
            return Ok(true);
        }
        if flushes_only {
            return Ok(false);
        }
        if self.freeze_aged()? {
            return Ok(true);
        }
        let Some((keyspace, bucket)) = self.most_pressing(self.is_idle())? else {
            if must_make_room {
                // Snapshots hold the garbage, or others work on it.
                self.look_at_space()?;
                return self.flush_one();
            }
            return Ok(false);
        };
        if !bucket.reserve() {
            return Ok(true);
        }
        // Threads look for work without a lock: this bucket may have been split since it was found,
        // and then it stays reserved.
        if !keyspace.has(&bucket) {
            return Ok(true);
        }
        let result = self.serve(&keyspace, &bucket);
        if keyspace.has(&bucket) {
            bucket.release();
        }
        result
    }

    /// Whether a flush has to wait for compactions that make room for it. Not when these find no
    /// room themselves.
    fn must_make_room(&self) -> bool {
        self.space_need() == Need::Stop && self.schedule.state.lock().no_space.is_none()
    }

    /// What follows the opening of a store.
    pub(super) fn after_open(&self) {
        self.after_job();
    }

    /// What follows a job: writers may go on, other jobs may have become due.
    fn after_job(&self) {
        let mut runs_max = 0;
        let mut table_bytes = 0;
        for (_, bucket) in self.buckets() {
            let state = bucket.state.load();
            runs_max = runs_max.max(state.levels.level(0).len());
            table_bytes += state
                .levels
                .files()
                .map(|file| file.meta.file_bytes)
                .sum::<u64>();
        }
        self.counters.set_table_bytes(table_bytes);
        self.throttle.set_runs(runs_max);
        if let Err(error) = self.look_at_space() {
            // Who compacts the bucket meets the same error.
            tracing::warn!(%error, "how much space is used stays unknown for now");
        }
        self.schedule.wake_all();
    }

    /// Without background threads: does all that is due.
    pub(crate) fn run_inline(&self) {
        if self.options.background_threads > 0 {
            return;
        }
        while self.do_one_or_record(false) {}
        if self.failure().is_none()
            && let Err(error) = self.relieve_log().and_then(|()| self.rest_log())
        {
            self.record(error);
        }
    }

    /// Whether writers can hope that a wait ends.
    pub(crate) fn check_progress(&self) -> Result<()> {
        self.check_writable()?;
        match &self.schedule.state.lock().no_space {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Whether a stalled writer has something to wait for. Memory that readers hold in MemTables
    /// which are tables already is not: the reader may be the writer itself.
    pub(crate) fn relief_is_due(&self) -> Result<bool> {
        self.check_progress()?;
        self.throttle.set_memory(self.pool.allocated_bytes());
        if self.throttle.is_stopped_by_space() {
            self.look_at_space()?;
        }
        let stopped = self.throttle.is_stopped_by_runs() || self.throttle.is_stopped_by_space();
        Ok(stopped || !self.lock_install().frozen.is_empty())
    }

    /// Waits until no MemTable is frozen.
    pub(crate) fn wait_flushed(&self) -> Result<()> {
        self.wait_until(|| self.lock_install().frozen.is_empty())
    }

    /// Waits until nothing is due, as if nobody would write any more.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        {
            let mut state = self.schedule.state.lock();
            state.waiting += 1;
            // What found no space is tried again.
            state.no_space = None;
        }
        self.schedule.wake_all();
        self.schedule.wake_log();
        let result = self.wait_until(|| {
            let quiet = self.schedule.state.lock().running == 0;
            quiet
                && !self.has_frozen()
                && matches!(self.most_pressing(true), Ok(None))
                && !self.may_rest_log()
                && !self.has_aged_memtables()
        });
        self.schedule.state.lock().waiting -= 1;
        result
    }

    /// Whether nobody has written for a while, or somebody waits for the background to rest.
    pub(super) fn is_idle(&self) -> bool {
        self.is_quiet_for(IDLE_AFTER)
    }

    /// Whether nobody has written for so long that the log may give its space back.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_quiet_for(REST_AFTER)
    }

    fn is_quiet_for(&self, time: Duration) -> bool {
        let (visible, now) = (self.visible(), self.options.clock.now());
        let mut state = self.schedule.state.lock();
        // Without background threads the clock decides nothing, so that a store is deterministic.
        if state.waiting > 0 || self.options.background_threads == 0 {
            return state.waiting > 0;
        }
        match state.quiet_since {
            Some((seq, since)) if seq == visible => now.saturating_sub(since) >= time,
            _ => {
                state.quiet_since = Some((visible, now));
                false
            }
        }
    }

    pub(super) fn wait_until(&self, done: impl Fn() -> bool) -> Result<()> {
        loop {
            self.run_inline();
            if done() {
                return Ok(());
            }
            self.check_progress()?;
            let mut state = self.schedule.state.lock();
            self.schedule
                .rest
                .wait_for(&mut state, Duration::from_millis(2));
        }
    }

    /// Prepares log segments ahead, keeps the log below its limit, and shortens it when nobody
    /// writes.
    fn tend_log(&self) {
        while !self.schedule.stopped() {
            let result = match self.is_at_rest() {
                true => self.rest_log(),
                false => self.prepare_segment(),
            };
            let result = result.and_then(|()| self.relieve_log());
            if let Err(error) = result {
                self.record(error);
            }
            let mut state = self.schedule.state.lock();
            if !state.stop && state.log_wakes == 0 {
                self.schedule.log.wait_for(&mut state, LOOK_AGAIN);
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
