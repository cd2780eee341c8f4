//! How little is written: leisure, and rest.
//!
//! # Idea
//! A store has *leisure* while few writes come for the reads of its tables, or none: then
//! compactions that nothing else asks for pay for themselves (`due`, kind 9; `gentle`). It is at
//! *rest* when nobody has written for a while ([`crate::engine::idle`]): then its log gives space
//! back (`rest`). Who waits for the store to be idle has it count as both; an ingest that is under
//! way, as neither.

use std::time::Duration;

use crate::Result;
use crate::engine::idle::Idle;
use crate::engine::ssd::SsdEngine;
use crate::engine::wip::Wip;
use crate::types::Seq;

/// Whether a store has leisure is judged by what came in at least this time.
const PERIOD: Duration = Duration::from_secs(1);

/// A store with so many gets of its tables per write has leisure: what it compacts for them in
/// advance, nine bytes at most for each that is written, costs less than they gain by it. YCSB's
/// readers with one insert in twenty operations are above it, those with one in ten are not. Reads
/// are counted by samples, so of a few reads per second only what they are on average counts.
const GETS_PER_WRITE: u64 = 16;

/// How little is written.
#[derive(Default)]
pub(in super::super) struct Idleness {
    /// The period by which the store's leisure is judged, and the judgement of the one before.
    period: Option<Period>,
    leisure: bool,
    /// Whether the store is at rest.
    idle: Idle,
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
        (self.period, self.leisure) = (None, false);
        self.idle.begin_anew();
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
    /// Waits until nothing is due, as if nobody would write any more.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.settle_store()?;
        self.idleness.lock().idle.begin_wait();
        // What found no space is tried again.
        self.schedule.set_shortage(None);
        self.schedule.wake();
        self.schedule.wake_log();
        let result = self.wait_until(|| {
            let rests = self.schedule.rests_since();
            rests.is_some()
                && !self.has_frozen()
                && self.agenda.is_empty()
                && !self.may_rest_log()
                && !self.has_aged_memtables()
                && self.fresh.is_empty()
                && !self.is_anything_due()
                && self.schedule.rests_since() == rests
        });
        self.idleness.lock().idle.end_wait();
        result
    }

    /// Whether anything is due in any bucket, or any buckets may be joined, once the store is at
    /// rest. Looks at all of them; the background is told of what is found.
    fn is_anything_due(&self) -> bool {
        let is_due = !matches!(self.most_pressing(true), Ok(None));
        let is_due = is_due || !matches!(self.may_join(), Ok(false));
        if is_due {
            self.schedule.wake();
        }
        is_due
    }

    /// Runs `work` as if somebody waited for the store to rest.
    #[cfg(test)]
    pub(in super::super) fn rest_for_tests(&self, work: impl FnOnce()) {
        self.idleness.lock().idle.begin_wait();
        work();
        self.idleness.lock().idle.end_wait();
    }

    /// Whether the reads that come gain by compactions that nothing else asks for: in the last
    /// while hardly anything was written beside them, or nothing; or somebody waits for the
    /// background to rest.
    pub(in super::super) fn has_leisure(&self) -> bool {
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
        let decided = idleness.idle.decided(&self.options);
        decided.or_else(|| (idleness.ingests > 0).then_some(false))
    }

    /// Counts an ingest: until it ends the store neither has leisure nor is at rest.
    pub(in super::super) fn begin_ingest(&self) {
        self.idleness.lock().ingests += 1;
    }

    pub(in super::super) fn end_ingest(&self) {
        let mut idleness = self.idleness.lock();
        idleness.ingests -= 1;
        idleness.begin_anew();
    }

    /// Whether nobody waits for what is done at leisure: not for the store to rest, nor for its
    /// close, nor as a writer for the bucket or the thread that it keeps.
    pub(in super::super) fn is_unhurried(&self) -> bool {
        let is_awaited = self.idleness.lock().idle.is_awaited();
        !is_awaited
            && self.has_leisure()
            && !self.throttle.holds_up_writers()
            && !self.schedule.is_stopping()
    }

    /// Whether nobody has written for so long that the log may give its space back.
    pub(in super::super) fn is_at_rest(&self) -> bool {
        let (visible, now) = (self.visible(), self.options.clock.now());
        let mut idleness = self.idleness.lock();
        let decided = self.decided(&idleness);
        decided.unwrap_or_else(|| idleness.idle.is_quiet(visible, now))
    }

    /// Reads that asked tables, in gets.
    pub(in super::super) fn reads_of_tables(&self) -> u64 {
        self.table_reads.get()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::engine::idle::REST_AFTER;
    use crate::engine::ssd::Lifecycle;
    use crate::engine::wip::Keyspace;
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
            engine.put_for_tests(&keyspace, b"key", b"value");
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
