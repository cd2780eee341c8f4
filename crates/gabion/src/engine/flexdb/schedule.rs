//! Schedules merges, and makes writers wait for them.
//!
//! # Idea
//! One thread merges frozen generations and then does the maintenance that is due (`maintenance`).
//! Without background threads the writer merges, so that a store is deterministic.
//!
//! # Tombstones
//! A generation that is not full is merged when its tombstones have cost scans more work than a
//! merge would: the merging thread does it, or the next write freezes it.

use std::sync::Arc;
use std::time::Duration;

use super::Flex;
use crate::engine::ssd::rate_limiter::{IoPriority, StallCauses};
use crate::engine::ssd::{SsdEngine, spawn};
use crate::types::Seq;
use crate::{Error, Result};

impl Flex {
    /// Starts the thread that merges.
    pub(super) fn start_workers(self: &Arc<Flex>) -> Result<()> {
        spawn(self, "gabion-merge", |engine: &Flex| {
            engine.schedule.work(|| {
                engine.settle_or_record() && (engine.merge_or_record() || engine.tidy_or_record())
            });
        })
    }

    /// Settles the store if it is not; false if it cannot be.
    fn settle_or_record(&self) -> bool {
        let settled = self.settle_store().map_err(|error| self.record(error));
        settled.is_ok()
    }

    /// Merges what is oldest; false when there was nothing or it failed.
    fn merge_or_record(&self) -> bool {
        if self.health.failure().is_some() {
            return false;
        }
        self.freeze_what_is_in_the_way();
        match self.merge_oldest() {
            Ok(merged) => {
                if merged {
                    self.schedule.set_shortage(None);
                }
                merged
            }
            Err(error) => {
                self.record(error);
                false
            }
        }
    }

    /// A scan at `seq` has stepped over so many keys that are gone.
    #[cold]
    pub(super) fn count_steps(&self, steps: u32, seq: Seq) {
        let view = self.view.load();
        let active = view.active();
        // They may have been in what is merged just now. And to who reads below all that this
        // generation has, they were in the past, which no merge takes away.
        if view.frozen().is_empty() && active.min_seq() <= seq && active.count_steps(steps) {
            self.schedule.wake();
        }
    }

    fn freeze_what_is_in_the_way(&self) {
        let is_due = {
            let view = self.view.load();
            view.frozen().is_empty() && view.active().is_in_the_way()
        };
        if is_due {
            self.freeze(&self.writer.lock());
        }
    }

    /// Does what is due beside merges; false when there was nothing or it failed.
    fn tidy_or_record(&self) -> bool {
        if self.health.failure().is_some() {
            return false;
        }
        self.tidy_checked().unwrap_or_else(|error| {
            tracing::warn!(%error, "the maintenance of an idle store failed");
            false
        })
    }

    /// As [`Flex::tidy`]. A shortage means that nothing was won, and is no failure of the store.
    fn tidy_checked(&self) -> Result<bool> {
        self.tidy().map_err(|error| self.fail_unless_short(error))
    }

    /// Keeps an error of what nobody who writes waits for: all but a shortage ends writing. Passes
    /// it on.
    pub(super) fn fail_unless_short(&self, error: Error) -> Error {
        match error.is_shortage() {
            true => error,
            false => self.record(error),
        }
    }

    /// Lets a job that has written `bytes` go on when the limit on what the background writes
    /// allows it. Once the store is being closed there is none.
    pub(super) fn pay(&self, class: IoPriority, bytes: u64) {
        if bytes > 0 {
            let pressed = || StallCauses {
                by_memory: self.is_pressed(),
                by_merges: false,
            };
            // An error says that the store is closed.
            let _ = self.pace.take(class, bytes, pressed);
        }
    }

    /// Without background threads: merges all that is frozen.
    pub(super) fn run_inline(&self) {
        if self.options.background_threads == 0 {
            while self.merge_or_record() {}
        }
    }

    /// Waits until nothing is left to merge and the store is at rest.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.settle_store()?;
        self.idleness.lock().begin_wait();
        let result = self.maintain_when_idle();
        self.idleness.lock().end_wait();
        result
    }

    fn maintain_when_idle(&self) -> Result<()> {
        loop {
            self.wait_merged(|| self.newest_frozen())?;
            if !self.tidy_checked()? {
                return Ok(());
            }
        }
    }

    /// Waits until the generations up to a number are merged, wholly and durably; the error of a
    /// merge that fails meanwhile.
    pub(super) fn wait_merged(&self, newest: impl Fn() -> u64) -> Result<()> {
        // What was short of something is tried again.
        self.schedule.set_shortage(None);
        self.schedule.wake();
        loop {
            self.run_inline();
            if self.is_merged(newest()) {
                return self.health.check_writable();
            }
            self.health.check_writable()?;
            self.schedule.check_shortage()?;
            self.schedule.wait(Duration::from_millis(2));
        }
    }

    /// The number of the newest generation that takes no writes any more.
    pub(super) fn newest_frozen(&self) -> u64 {
        self.view.load().active().number - 1
    }

    /// Prepares segments of the log ahead, and syncs full ones, so that a merge has little to sync
    /// before it begins.
    pub(super) fn maintain_log(&self) {
        self.syncer.look_at_room();
        self.syncer.prepare_next_or_warn();
        let (durable, appended) = (self.syncer.durable_lsn(), self.syncer.appended_lsn());
        if durable.segment() < appended.segment() {
            self.sync_appended();
        }
    }

    /// Leaves a merge less to sync.
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
    use gabion_media::{Disk, Fault, FaultKind, SimDisk};

    use super::super::{FlexKeyspace, Write};
    use super::*;
    use crate::engine::ssd::Lifecycle;
    use crate::types::{Kind, hash_key};
    use crate::{Options, Tuning};

    fn put(engine: &Flex, keyspace: &Arc<FlexKeyspace>, value: &[u8]) {
        put_at(engine, keyspace, b"key", value);
    }

    fn put_at(engine: &Flex, keyspace: &Arc<FlexKeyspace>, key: &[u8], value: &[u8]) {
        let write = Write::Single {
            keyspace,
            kind: Kind::Put,
            key,
            value,
        };
        let hash = hash_key(key);
        let mut writer = engine.writer.lock();
        engine.write_now(&mut writer, write, hash).unwrap();
    }

    /// Generations were frozen whenever they were full, so several small ones waited for a merge
    /// that then changed each interval for each of them.
    #[test]
    fn a_generation_grows_as_long_as_another_one_waits() {
        let options = Options::default()
            .background_threads(0)
            .tuning(Tuning::default().memtable_budget_bytes(64 << 10));
        let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let most = engine.active_bytes_max();
        let mut number = 0_u32;
        let mut put_next = || {
            number += 1;
            put_at(&engine, &keyspace, &number.to_le_bytes(), &[1; 100]);
        };
        while engine.view.load().frozen().is_empty() {
            put_next();
        }
        let first = engine.waiting_bytes();
        assert!((most..most + 200).contains(&first), "{first} of {most}");
        while engine.view.load().active().bytes() < 2 * most {
            put_next();
        }
        assert_eq!(engine.view.load().frozen().len(), 1);
        assert!(engine.merge_oldest().unwrap());
        put_next();
        assert_eq!(engine.view.load().frozen().len(), 1);
        assert!(engine.view.load().frozen()[0].bytes() > 2 * most);
        engine.close().unwrap();
    }

    /// All of a generation counts as merged at the end, however often its keys were written, and as
    /// not merged when a merge begins again.
    #[test]
    fn a_merge_tells_how_far_it_has_come() {
        let options = Options::default().background_threads(0);
        let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspaces = ["one", "two"].map(|name| engine.create_keyspace(name).unwrap());
        for round in 0..5 {
            for number in 0..3_000_u32 / (1 + round) {
                let keyspace = &keyspaces[number as usize % 2];
                put_at(&engine, keyspace, &number.to_le_bytes(), &[7; 100]);
            }
        }
        assert!(engine.freeze(&engine.writer.lock()));
        let generation = Arc::clone(&engine.view.load().frozen()[0]);
        let bytes = generation.bytes();
        assert_eq!((generation.bytes_to_merge(), engine.debt()), (bytes, bytes));
        assert!(engine.merge_oldest().unwrap());
        assert!(generation.bytes_to_merge() < bytes / 100);
        assert_eq!(engine.debt(), 0);
        generation.begin_merge();
        assert_eq!(generation.bytes_to_merge(), bytes);
        engine.close().unwrap();
    }

    /// A merge found all of the log to sync that was written since the one before, and waited.
    #[test]
    fn a_segment_of_the_log_that_is_full_is_synced_before_a_merge() {
        let options = Options::default()
            .background_threads(0)
            .log_bytes_max(16 << 10);
        let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let segments = || {
            let syncer = &engine.syncer;
            (
                syncer.durable_lsn().segment(),
                syncer.appended_lsn().segment(),
            )
        };
        let (_, first) = segments();
        while segments().1 == first {
            put(&engine, &keyspace, &[1; 100]);
        }
        assert!(segments().0 <= first);
        engine.maintain_log();
        assert_eq!(segments(), (first + 1, first + 1));
        // What is not full waits.
        let durable = engine.syncer.durable_lsn();
        put(&engine, &keyspace, &[1; 100]);
        engine.maintain_log();
        assert_eq!(engine.syncer.durable_lsn(), durable);
        engine.close().unwrap();
    }

    /// A flush waited until nothing was left to merge, which under steady writes need not be for
    /// ever.
    #[test]
    fn a_wait_for_merges_is_for_those_of_its_beginning() {
        let options = Options::default().background_threads(0);
        let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let freeze = || {
            put(&engine, &keyspace, b"value");
            assert!(engine.freeze(&engine.writer.lock()));
            engine.view.load().frozen()[0].number
        };
        let (first, second) = (freeze(), freeze());
        let are_merged = || [first, second].map(|number| engine.is_merged(number));
        assert_eq!(are_merged(), [false, false]);
        assert!(engine.merge_oldest().unwrap());
        assert_eq!(are_merged(), [true, false]);
        engine.flush().unwrap();
        assert_eq!(are_merged(), [true, true]);
        assert!(!engine.merge_oldest().unwrap());
        engine.close().unwrap();
    }

    /// A compaction that found no space noted that, and the next writer that had to wait for a
    /// merge was refused, though there was space by then and the merge would have gone well.
    #[test]
    fn a_compaction_without_space_refuses_no_later_write() {
        let sim = SimDisk::new();
        let options = Options::default()
            .background_threads(0)
            .tuning(Tuning::default().memtable_budget_bytes(64 << 10));
        let engine = Flex::open(Disk::simulated(&sim), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        for number in 0..2_000_u32 {
            let key = number.wrapping_mul(0x9e37_79b1).to_le_bytes();
            put_at(&engine, &keyspace, &key, &[7; 100]);
        }
        engine.flush().unwrap();
        sim.inject(Fault::forever(sim.ops(), FaultKind::NoSpace));
        let refused = engine.compact_range(&keyspace, &[], None).unwrap_err();
        assert!(refused.is_no_space(), "{refused}");
        sim.clear_faults();
        engine.schedule.check_shortage().unwrap();
        engine.compact_range(&keyspace, &[], None).unwrap();
        engine.close().unwrap();
    }

    /// A flush waited until its generation had left the view and for the lock of the merge. One
    /// whose sync, or whose root, then found no space said that all was well, and nobody did what
    /// was left until the next merge; one that failed otherwise said so only if it had noted its
    /// failure before the flush got the lock.
    #[test]
    fn a_flush_has_synced_what_it_merged_or_says_why_not() {
        for kind in [
            FaultKind::NoSpace,
            FaultKind::Eio,
            FaultKind::SyncFails { keep: false },
        ] {
            let (mut failed, mut faults) = (0, 0);
            for at in 0.. {
                let sim = SimDisk::new();
                let options = Options::default()
                    .background_threads(1)
                    .log_bytes_max(16 << 10);
                let engine = Flex::open(Disk::simulated(&sim), options).unwrap();
                let keyspace = engine.create_keyspace("keyspace").unwrap();
                // Segments of the log are left behind, so the root is written.
                (0..20).for_each(|_| put(&engine, &keyspace, &[1; 100]));
                let begun = sim.ops();
                let fault = Fault {
                    at: begun + at,
                    kind,
                    forever: kind == FaultKind::NoSpace,
                };
                sim.inject(fault);
                let flushed = engine.flush();
                // What a fault has struck may not count as an operation.
                let is_behind_all = flushed.is_ok() && begun + at >= sim.ops();
                sim.clear_faults();
                match flushed {
                    Ok(()) => assert_is_merged(&engine, &keyspace),
                    Err(_) if engine.health.failure().is_some() => {
                        failed += 1;
                        assert!(engine.flush().is_err(), "the store is read-only");
                    }
                    Err(error) => {
                        failed += 1;
                        assert!(error.is_no_space(), "{error}");
                        merge_at_last(&engine, &keyspace);
                    }
                }
                // A store that has failed says so again.
                let _ = engine.close();
                faults += 1;
                if is_behind_all {
                    break;
                }
            }
            println!("{kind:?}: {failed} of {faults} flushes failed");
            assert!(failed >= 2 && failed < faults);
        }
    }

    /// There is space again: what was left to do is done, unless a sync has failed for good.
    fn merge_at_last(engine: &Flex, keyspace: &Arc<FlexKeyspace>) {
        while let Err(error) = engine.flush() {
            if engine.health.failure().is_some() {
                return;
            }
            assert!(error.is_no_space(), "{error}");
            // The background has not tried again yet.
            engine.schedule.wait(Duration::from_millis(10));
        }
        assert_is_merged(engine, keyspace);
    }

    fn assert_is_merged(engine: &Flex, keyspace: &Arc<FlexKeyspace>) {
        assert!(engine.is_merged(engine.newest_frozen()));
        let root = engine.root.lock();
        let known = root.keyspaces.find(keyspace.id);
        let known = known.unwrap();
        assert_eq!(known.reached, keyspace.partition.space().durable_point());
        assert!(!keyspace.partition.is_dirty());
    }
}
