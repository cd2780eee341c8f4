//! Acts on leisure and idleness ([`super::super::policy::idle_detector`]).

use crate::Result;
use crate::engine::ssd::SsdEngine;
use crate::engine::wip::Wip;
use crate::engine::wip::policy::idle_detector::ActivitySample;

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
            let rests = self.schedule.idle_epoch();
            rests.is_some()
                && !self.has_frozen()
                && self.agenda.is_empty()
                && !self.may_shrink_log()
                && !self.has_aged_memtables()
                && self.fresh.is_empty()
                && !self.is_anything_due()
                && self.schedule.idle_epoch() == rests
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
    pub(in super::super) fn idle_for_tests(&self, work: impl FnOnce()) {
        self.idleness.lock().idle.begin_wait();
        work();
        self.idleness.lock().idle.end_wait();
    }

    /// Whether the store has leisure.
    pub(in super::super) fn has_leisure(&self) -> bool {
        let now = self.activity();
        self.idleness.lock().has_leisure(now, &self.options)
    }

    /// Whether the store is at rest.
    pub(in super::super) fn is_idle(&self) -> bool {
        let now = self.activity();
        self.idleness.lock().is_idle(now, &self.options)
    }

    /// Whether nobody waits for what is done at leisure: not for the store to rest, nor for its
    /// close, nor as a writer for the bucket or the thread that it keeps.
    pub(in super::super) fn is_unhurried(&self) -> bool {
        let is_awaited = self.idleness.lock().idle.is_awaited();
        !is_awaited
            && self.has_leisure()
            && !self.throttle.delays_writers()
            && !self.schedule.is_stopping()
    }

    /// What was read and written so far.
    fn activity(&self) -> ActivitySample {
        ActivitySample {
            at: self.options.tuning.clock.now(),
            seq: self.visible(),
            gets: self.reads_of_tables(),
        }
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
    use crate::Tuning;
    use crate::engine::idle_timer::REST_AFTER;
    use crate::engine::ssd::Lifecycle;
    use crate::engine::wip::WipKeyspace;
    use crate::engine::wip::policy::idle_detector::PERIOD;
    use crate::{Clock, Options};

    /// A store with a background thread, whose clock only the test moves.
    fn store() -> (Clock, Arc<Wip>, Arc<WipKeyspace>) {
        let clock = Clock::manual();
        let options = Options::default()
            .background_threads(1)
            .tuning(Tuning::default().clock(clock.clone()));
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
        let looks = || (engine.has_leisure(), engine.is_idle());
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
}
