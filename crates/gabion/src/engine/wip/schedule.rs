//! The background threads: who does the work that is due.
//!
//! # Idea
//! Flushes come first, because writers wait for their memory; one thread does nothing else. Then
//! comes the most pressing of what [`super::due`] finds in the buckets. How threads sleep and wake
//! is that of all engines ([`crate::engine::schedule`]).

use std::sync::Arc;
use std::time::Duration;

use super::Wip;
use super::space::Need;
use crate::options::Durability;
use crate::types::Seq;
use crate::{Error, Result};

/// Whether a store has leisure is judged by what came in at least this time.
const PERIOD: Duration = Duration::from_secs(1);

/// A store with so many gets of its tables per write has leisure: what it compacts for them in
/// advance, nine bytes at most for each that is written, costs less than they gain by it. YCSB's
/// readers with one insert in twenty operations are above it, those with one in ten are not. Reads
/// are counted by samples, so of a few reads per second only what they are on average counts.
const GETS_PER_WRITE: u64 = 16;

/// A store that took no write for this long gives the space of its log back. What it would save by
/// doing so between two phases of a user's work is not worth many small tables.
const REST_AFTER: Duration = Duration::from_secs(10);

/// How little is written.
#[derive(Default)]
pub(super) struct Idleness {
    /// The period by which the store's leisure is judged, and the judgement of the one before.
    period: Option<Period>,
    leisure: bool,
    /// The sequence number that was visible when this was last looked at, and since when by the
    /// store's clock.
    quiet_since: Option<(Seq, Duration)>,
    /// Callers of `wait_idle`: for them the store counts as idle.
    waiting: usize,
    /// Ingests that are not finished: they write, though no number shows it.
    ingests: usize,
}

/// A time in which reads and writes are counted.
#[derive(Clone, Copy)]
struct Period {
    /// By the store's clock.
    began: Duration,
    /// What was visible then.
    seq: Seq,
    /// The reads of tables until then, in gets.
    gets: u64,
}

impl Period {
    /// Whether hardly anything was written from here to there for the reads that came.
    fn is_leisure_until(&self, end: &Period) -> bool {
        let gets = end.gets.saturating_sub(self.gets);
        let writes = end.seq.saturating_sub(self.seq);
        gets >= writes.saturating_mul(GETS_PER_WRITE)
    }
}

impl Idleness {
    /// Judges by what comes from now on.
    fn begin_anew(&mut self) {
        (self.period, self.leisure, self.quiet_since) = (None, false, None);
    }

    /// Whether the last whole period was one of leisure, and the one of now is one so far.
    fn has_leisure(&mut self, now: Period) -> bool {
        let period = *self.period.get_or_insert(now);
        let so_far = period.is_leisure_until(&now);
        if now.began.saturating_sub(period.began) >= PERIOD {
            self.leisure = so_far;
            self.period = Some(now);
        }
        self.leisure && so_far
    }
}

impl Wip {
    /// Starts the background threads.
    pub(super) fn start_threads(self: &Arc<Wip>) {
        let count = self.options.background_threads;
        if count == 0 {
            return;
        }
        for number in 0..count {
            let flushes_only = number == 0 && count > 1;
            let engine = Arc::clone(self);
            let step = move |engine: &Wip| engine.do_one_or_record(flushes_only);
            self.schedule
                .spawn(&format!("gabion-work-{number}"), move || {
                    engine.schedule.work(|| step(&engine));
                });
        }
        let engine = Arc::clone(self);
        self.schedule.spawn("gabion-log", move || {
            engine.schedule.tend_log(|| engine.tend_log());
        });
        if let Durability::Interval(interval) = self.options.durability {
            let engine = Arc::clone(self);
            self.schedule.spawn("gabion-sync", move || {
                let sync = || engine.sync_appended();
                engine.schedule.sync_at_intervals(interval, sync);
            });
        }
    }

    /// Does one thing that is due; false when there was none or it failed.
    fn do_one_or_record(&self, flushes_only: bool) -> bool {
        if self.health.failure().is_some() {
            return false;
        }
        match self.do_one(flushes_only) {
            Ok(done) => {
                if done {
                    self.schedule.set_no_space(None);
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
            self.schedule.set_no_space(Some(error));
        } else if self.health.failure().is_none() {
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
        if self.fit_memory() {
            let _alone = self.leader.write();
            self.freeze_due(&mut self.lock_install());
        }
        if self.freeze_aged()? {
            return Ok(true);
        }
        let Some((keyspace, bucket)) = self.most_pressing(self.has_leisure())? else {
            if must_make_room {
                // Snapshots hold the garbage, or others work on it.
                self.look_at_space()?;
                return self.flush_one();
            }
            return self.join_some();
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
        self.space_need() == Need::Stop && self.schedule.check_space().is_ok()
    }

    /// What follows the opening of a store.
    pub(super) fn after_open(&self) {
        self.after_job();
    }

    /// What follows a job, and an ingest: writers may go on, other jobs may have become due.
    pub(super) fn after_job(&self) {
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
        self.table_bytes.set(table_bytes);
        self.throttle.set_runs(runs_max);
        if let Err(error) = self.look_at_space() {
            // Who compacts the bucket meets the same error.
            tracing::warn!(%error, "how much space is used stays unknown for now");
        }
        self.schedule.wake();
    }

    /// Without background threads: does all that is due.
    pub(crate) fn run_inline(&self) {
        if self.options.background_threads > 0 {
            return;
        }
        while self.do_one_or_record(false) {}
        if self.health.failure().is_none()
            && let Err(error) = self.relieve_log().and_then(|()| self.rest_log())
        {
            self.record(error);
        }
    }

    /// Whether writers can hope that a wait ends.
    pub(crate) fn check_progress(&self) -> Result<()> {
        self.health.check_writable()?;
        self.schedule.check_space()
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

    /// Waits until nothing is due, as if nobody would write any more.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.idleness.lock().waiting += 1;
        // What found no space is tried again.
        self.schedule.set_no_space(None);
        self.schedule.wake();
        self.schedule.wake_log();
        let result = self.wait_until(|| {
            let rests = self.schedule.rests_since();
            rests.is_some()
                && !self.has_frozen()
                && matches!(self.most_pressing(true), Ok(None))
                && !self.may_rest_log()
                && !self.has_aged_memtables()
                && matches!(self.may_join(), Ok(false))
                && self.schedule.rests_since() == rests
        });
        self.idleness.lock().waiting -= 1;
        result
    }

    /// Runs `work` as if somebody waited for the store to rest.
    #[cfg(test)]
    pub(super) fn rest_for_tests(&self, work: impl FnOnce()) {
        self.idleness.lock().waiting += 1;
        work();
        self.idleness.lock().waiting -= 1;
    }

    /// Whether the reads that come gain by compactions that nothing else asks for: in the last
    /// while hardly anything was written beside them, or nothing; or somebody waits for the
    /// background to rest.
    pub(super) fn has_leisure(&self) -> bool {
        let now = Period {
            began: self.options.clock.now(),
            seq: self.visible(),
            gets: self.reads_of_tables(),
        };
        let mut idleness = self.idleness.lock();
        self.decided(&idleness)
            .unwrap_or_else(|| idleness.has_leisure(now))
    }

    /// Whether the store is to do what it does at leisure or at rest, where that is not a matter of
    /// how much is written.
    fn decided(&self, idleness: &Idleness) -> Option<bool> {
        // Without background threads the clock decides nothing, so that a store is deterministic.
        if idleness.waiting > 0 || self.options.background_threads == 0 {
            return Some(idleness.waiting > 0);
        }
        (idleness.ingests > 0).then_some(false)
    }

    /// Counts an ingest: until it ends the store neither has leisure nor is at rest.
    pub(super) fn begin_ingest(&self) {
        self.idleness.lock().ingests += 1;
    }

    pub(super) fn end_ingest(&self) {
        let mut idleness = self.idleness.lock();
        idleness.ingests -= 1;
        idleness.begin_anew();
    }

    /// Whether nobody waits for what is done at leisure: not for the store to rest, nor for its
    /// close, nor as a writer for the bucket or the thread that it keeps.
    pub(super) fn is_unhurried(&self) -> bool {
        let waiting = self.idleness.lock().waiting;
        waiting == 0
            && self.has_leisure()
            && !self.throttle.holds_up_writers()
            && !self.schedule.is_stopping()
    }

    /// Whether nobody has written for so long that the log may give its space back.
    pub(super) fn is_at_rest(&self) -> bool {
        let (visible, now) = (self.visible(), self.options.clock.now());
        let mut idleness = self.idleness.lock();
        if let Some(decided) = self.decided(&idleness) {
            return decided;
        }
        match idleness.quiet_since {
            Some((seq, since)) if seq == visible => now.saturating_sub(since) >= REST_AFTER,
            _ => {
                idleness.quiet_since = Some((visible, now));
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
            self.schedule.wait(Duration::from_millis(2));
        }
    }

    /// Prepares log segments ahead, keeps the log below its limit, and shortens it when nobody
    /// writes.
    fn tend_log(&self) {
        let result = match self.is_at_rest() {
            true => self.rest_log(),
            false => self.prepare_segment(),
        };
        if let Err(error) = result.and_then(|()| self.relieve_log()) {
            self.record(error);
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

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::super::{Keyspace, Write};
    use super::*;
    use crate::types::Kind;
    use crate::{Clock, Options};

    /// A store with a background thread, whose clock only the test moves.
    fn store() -> (Clock, Arc<Wip>, Arc<Keyspace>) {
        let clock = Clock::manual();
        let options = Options::default()
            .background_threads(1)
            .clock(clock.clone());
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        (clock, engine, keyspace)
    }

    #[test]
    fn reads_of_tables_make_leisure_and_writes_end_it() {
        let (clock, engine, keyspace) = store();
        let put = || {
            let write = Write::Single {
                keyspace: &keyspace,
                kind: Kind::Put,
                key: b"key",
                value: b"value",
            };
            engine.write(write, 8, false).unwrap();
        };
        assert!(!engine.has_leisure(), "the first period begins");
        put();
        engine.flush().unwrap();
        clock.advance(PERIOD);
        assert!(!engine.has_leisure(), "it was written in the period");
        // Sampled: some ten thousand, and sixteen for each write are 1600.
        (0..10_000).for_each(|_| drop(engine.get(&keyspace, b"other", None)));
        (0..100).for_each(|_| put());
        clock.advance(PERIOD);
        assert!(engine.has_leisure());
        assert!(engine.is_unhurried());
        (0..100).for_each(|_| put());
        assert!(!engine.has_leisure());
        assert!(!engine.is_unhurried());
        engine.close().unwrap();
    }

    #[test]
    fn a_store_with_an_ingest_has_no_leisure_and_no_rest() {
        let (clock, engine, keyspace) = store();
        let looks = || (engine.has_leisure(), engine.is_at_rest());
        looks();
        clock.advance(REST_AFTER);
        assert_eq!(looks(), (true, true));
        let mut ingest = engine.ingest(&keyspace).unwrap();
        ingest.add(b"key", b"value").unwrap();
        for _ in 0..2 {
            clock.advance(REST_AFTER);
            assert_eq!(looks(), (false, false));
        }
        drop(ingest);
        assert_eq!(looks(), (false, false), "it was busy until now");
        clock.advance(REST_AFTER);
        assert_eq!(looks(), (true, true));
        engine.close().unwrap();
    }

    #[test]
    fn a_store_has_leisure_after_a_period_of_few_writes_until_more_come() {
        let mut idleness = Idleness::default();
        let mut has_leisure = |ms: u64, seq, gets| {
            let began = Duration::from_millis(ms);
            idleness.has_leisure(Period { began, seq, gets })
        };
        assert!(!has_leisure(0, 100, 0));
        assert!(!has_leisure(999, 100, 50), "no period has passed");
        assert!(has_leisure(1_000, 100, 50), "nothing was written in it");
        assert!(has_leisure(1_500, 104, 50 + 64), "sixteen gets per write");
        assert!(!has_leisure(1_600, 105, 50 + 64), "too many writes");
        assert!(has_leisure(1_700, 105, 50 + 80), "the reads have caught up");
        assert!(!has_leisure(2_000, 1_105, 50 + 80), "a burst");
        assert!(!has_leisure(2_500, 1_105, 50 + 80), "it ended the period");
        assert!(has_leisure(3_000, 1_105, 50 + 80));
        // Another thread looked at the figures before: nothing was written since then.
        assert!(has_leisure(2_999, 1_104, 50 + 79));
    }
}
