//! What the background does next, and who does it.
//!
//! # Idea
//! No queue of jobs is kept: what is due follows from the state of the store, so it is looked for
//! whenever a thread is free. Flushes come first, because writers wait for their memory; one thread
//! does nothing else. Then, over all buckets, the most pressing of:
//!
//! 1. a level with `sublevels_max` runs;
//! 2. a bucket at its capacity: a split, or a full compaction when half of it is hidden versions;
//! 3. a bucket that shares overlapping tables with its siblings: a full compaction of its slices;
//! 4. a bucket of which half is hidden versions: a full compaction;
//! 5. a level with `sublevels_min` runs, when nothing else is due;
//! 6. when nobody writes: a bucket whose younger runs together are half as large as its largest, a
//!    full compaction. Reads then find one run where there were several, for at most three bytes
//!    written per byte that came since the last time.
//!
//! Each job leaves fewer runs or smaller buckets, so an idle store comes to rest.
//!
//! The paper's read-aware priority (section 2.3.7) belongs into [`Due::rank`]: it orders levels of
//! the fifth kind by their reads.
//!
//! # Capacity of a bucket
//! `bucket_bytes`, grown with the store so that a bucket's share of the MemTable budget stays worth
//! a flush, and varied by a quarter up or down from bucket to bucket, so that buckets that fill at
//! the same rate do not all split at the same time.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gabion_media::Purpose;
use parking_lot::{Condvar, Mutex};

use super::bucket::{Bucket, BucketState, Run};
use super::compact::Compaction;
use super::{Keyspace, Wip};
use crate::options::Durability;
use crate::types::Seq;
use crate::{Error, Result};

/// The share of the MemTable budget below which buckets grow instead of splitting: the paper's
/// MemTable.
const MEMTABLE_SHARE_BYTES: u64 = 2 << 20;

/// Buckets grow to at most this many times `bucket_bytes`: 1 GiB by default, as in the paper.
const CAPACITY_GROWTH_MAX: u64 = 16;

/// How long the background waits before it tries again after it found no space.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// A store that took no write for this long is idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);

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
    /// The sequence number that was visible when idleness was last looked at, and since when.
    quiet_since: Option<(Seq, Instant)>,
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

/// Something that is due in a bucket.
enum Due {
    Split { ways: usize },
    Compact { job: Compaction, rank: u32 },
}

impl Due {
    /// Higher is more pressing.
    fn rank(&self) -> u32 {
        match self {
            Due::Split { .. } => 3_000,
            Due::Compact { rank, .. } => *rank,
        }
    }
}

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
        if self.flush_one()? {
            return Ok(true);
        }
        if flushes_only {
            return Ok(false);
        }
        let Some((keyspace, bucket)) = self.most_pressing(self.is_idle())? else {
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

    /// Does what is most pressing in a bucket that is reserved.
    fn serve(&self, keyspace: &Arc<Keyspace>, bucket: &Arc<Bucket>) -> Result<bool> {
        match self.due(bucket, self.capacity_base(), self.is_idle())? {
            Some(Due::Split { ways }) => {
                if !self.split(keyspace, bucket, ways)? {
                    bucket.set_unsplittable(&bucket.state.load());
                }
                Ok(true)
            }
            Some(Due::Compact { job, .. }) => self.compact(&job).map(|()| true),
            None => Ok(false),
        }
    }

    fn most_pressing(&self, idle: bool) -> Result<Option<(Arc<Keyspace>, Arc<Bucket>)>> {
        let base = self.capacity_base();
        let mut best = None;
        let mut best_rank = 0;
        for (keyspace, bucket) in self.buckets() {
            if bucket.is_busy() {
                continue;
            }
            if let Some(due) = self.due(&bucket, base, idle)?
                && due.rank() > best_rank
            {
                best_rank = due.rank();
                best = Some((keyspace, bucket));
            }
        }
        Ok(best)
    }

    /// What is most pressing in a bucket.
    fn due(&self, bucket: &Arc<Bucket>, capacity_base: u64, idle: bool) -> Result<Option<Due>> {
        let state = bucket.state.load_full();
        let levels = &state.levels;
        let options = &self.options;
        let fullest = (0..levels.depth()).max_by_key(|level| levels.level(*level).len());
        let Some(fullest) = fullest else {
            return Ok(None);
        };
        let count = levels.level(fullest).len();
        let runs = levels.runs().count();
        if count >= options.sublevels_max {
            let rank = 4_000 + u32::try_from(count).unwrap_or(999).min(999);
            let job = Compaction::of_level(bucket, levels, fullest);
            return Ok(Some(Due::Compact { job, rank }));
        }
        let bytes = Wip::bytes(bucket, &state)?;
        let capacity = varied(capacity_base, bucket.id);
        if bytes >= capacity && bucket.may_split(&state) {
            let live = Wip::live_bytes(&state, bytes);
            if live >= capacity / 2 {
                let ways = options.split_ways as u64 * live / capacity;
                let ways = usize::try_from(ways).unwrap_or(usize::MAX);
                return Ok(Some(Due::Split {
                    ways: ways.clamp(2, options.split_ways),
                }));
            }
        }
        if runs > 1 && shares_overlapping_tables(bucket, &state) {
            let job = Compaction::of_bucket(bucket, levels, Purpose::Split);
            return Ok(Some(Due::Compact { job, rank: 2_000 }));
        }
        if count < options.sublevels_min {
            if !idle || runs < 2 || !is_worth_rewriting(&state, bytes) {
                return Ok(None);
            }
            let job = Compaction::of_bucket(bucket, levels, Purpose::Compaction);
            return Ok(Some(Due::Compact { job, rank: 1 }));
        }
        if is_worth_rewriting(&state, bytes) && Wip::live_bytes(&state, bytes) <= bytes / 2 {
            let job = Compaction::of_bucket(bucket, levels, Purpose::Compaction);
            return Ok(Some(Due::Compact { job, rank: 1_000 }));
        }
        let job = Compaction::of_level(bucket, levels, fullest);
        Ok(Some(Due::Compact {
            job,
            rank: u32::try_from(count).unwrap_or(999),
        }))
    }

    /// The size at which buckets of a store of this size split, before it is varied.
    fn capacity_base(&self) -> u64 {
        let options = &self.options;
        let total = self.counters.table_bytes();
        let share = MEMTABLE_SHARE_BYTES.min(options.bucket_bytes / 32).max(1);
        let buckets_max = (options.memtable_budget_bytes / share).max(1);
        let grown = total.saturating_mul(2) / buckets_max;
        grown.clamp(
            options.bucket_bytes,
            options.bucket_bytes * CAPACITY_GROWTH_MAX,
        )
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
        self.schedule.wake_all();
    }

    /// Without background threads: does all that is due.
    pub(crate) fn run_inline(&self) {
        if self.options.background_threads > 0 {
            return;
        }
        while self.do_one_or_record(false) {}
        if self.failure().is_none()
            && let Err(error) = self.relieve_log()
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
        Ok(self.throttle.is_stopped_by_runs() || !self.lock_install().frozen.is_empty())
    }

    /// Waits until no MemTable is frozen.
    pub(crate) fn wait_flushed(&self) -> Result<()> {
        self.wait_until(|| self.lock_install().frozen.is_empty())
    }

    /// Waits until nothing is due, as if nobody would write any more.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.schedule.state.lock().waiting += 1;
        self.schedule.wake_all();
        let result = self.wait_until(|| {
            let quiet = self.schedule.state.lock().running == 0;
            quiet && !self.has_frozen() && matches!(self.most_pressing(true), Ok(None))
        });
        self.schedule.state.lock().waiting -= 1;
        result
    }

    /// Whether nobody has written for a while, or somebody waits for the background to rest.
    fn is_idle(&self) -> bool {
        let visible = self.visible();
        let mut state = self.schedule.state.lock();
        // Without background threads the clock decides nothing, so that a store is deterministic.
        if state.waiting > 0 || self.options.background_threads == 0 {
            return state.waiting > 0;
        }
        match state.quiet_since {
            Some((seq, since)) if seq == visible => since.elapsed() >= IDLE_AFTER,
            _ => {
                state.quiet_since = Some((visible, Instant::now()));
                false
            }
        }
    }

    fn wait_until(&self, done: impl Fn() -> bool) -> Result<()> {
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

    /// Prepares log segments ahead and keeps the log below its limit.
    fn tend_log(&self) {
        while !self.schedule.stopped() {
            let result = self.prepare_segment().and_then(|()| self.relieve_log());
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

/// A capacity between three and five quarters of `base`, fixed for a bucket.
fn varied(base: u64, bucket: u64) -> u64 {
    // The multiplier is 2^64 divided by the golden ratio: neighbouring numbers spread evenly.
    let spread = bucket.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    base / 4 * 3 + base / 512 * spread
}

/// Whether two runs that reach beyond the bucket overlap inside it.
fn shares_overlapping_tables(bucket: &Bucket, state: &BucketState) -> bool {
    let slices: Vec<Run> = state
        .levels
        .runs()
        .filter(|run| {
            run.tables
                .iter()
                .any(|file| !bucket.contains(&file.meta.smallest, &file.meta.largest))
        })
        .cloned()
        .collect();
    slices.len() > 1 && Run::in_order(&slices).is_none()
}

/// Whether what came after a bucket's largest run is half as large as that run. Then a full
/// compaction writes at most three bytes per byte that came; and versions that a snapshot protects
/// are not rewritten again and again.
fn is_worth_rewriting(state: &BucketState, bytes: u64) -> bool {
    let run_bytes = |run: &Run| {
        run.tables
            .iter()
            .map(|file| file.meta.file_bytes)
            .sum::<u64>()
    };
    let largest = state.levels.runs().map(run_bytes).max().unwrap_or(0);
    bytes.saturating_sub(largest) >= largest / 2
}
