//! The background threads: who does the work that is due.
//!
//! # Idea
//! Flushes come first, because writers wait for their memory; one thread does nothing else. Then
//! comes the most pressing of what [`super::policy`] finds due in the buckets. How threads sleep
//! and wake is that of all engines ([`crate::engine::scheduler`]).
//!
//! | file | journey |
//! |---|---|
//! | `bucket_queue` | the buckets to inspect, and the jobs that are due in them |
//! | `facts` | what the policy judges by, as it is now |
//! | `inspect` | looks at buckets, by these facts |
//! | `run_job` | does what is due in one |
//! | `idleness` | how little is written; waits until nothing is due |
//! | `memory_ceiling` | the store's memory is kept below it |

pub(super) mod bucket_queue;
mod facts;
mod idleness;
mod inspect;
mod memory_ceiling;
#[cfg(test)]
mod policy_tests;
mod run_job;
#[cfg(test)]
mod scale_tests;

use std::sync::Arc;
use std::time::Duration;

use super::Wip;
use super::policy::space::SpacePressure;
use crate::engine::ssd::{SsdEngine, spawn};
use crate::{Error, Result};

pub(super) use facts::expired_bytes;

/// How many shortages in a row whoever waits for the background sits out.
const SHORTAGES_WAITED: u32 = 2;

impl Wip {
    /// Starts the threads that do the work.
    pub(super) fn start_workers(self: &Arc<Wip>) -> Result<()> {
        let count = self.options.background_threads;
        for number in 0..count {
            let flushes_only = number == 0 && count > 1;
            spawn(
                self,
                &format!("gabion-work-{number}"),
                move |engine: &Wip| {
                    let step = || engine.do_one_or_record(flushes_only);
                    engine.schedule.work(step);
                },
            )?;
        }
        Ok(())
    }

    /// Does one thing that is due; false when there was none or it failed.
    fn do_one_or_record(&self, flushes_only: bool) -> bool {
        if self.health.failure().is_some() {
            return false;
        }
        match self.settle_store().and_then(|()| self.do_one(flushes_only)) {
            Ok(done) => {
                if done {
                    self.schedule.set_shortage(None);
                    self.after_job();
                }
                done
            }
            // Nobody needs what was worked on any more; something else may be due.
            Err(Error::KeyspaceDropped) => true,
            Err(error) => {
                self.record(error);
                false
            }
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
        let (leisure, timed) = (self.has_leisure(), self.options.background_threads > 0);
        let all = self.agenda.begin_step(self.bucket_count(), leisure, timed);
        let served = self.serve_next(leisure, all)?;
        // Writers may wait for what no look at few buckets finds.
        if served || must_make_room && !all && self.serve_next(leisure, true)? {
            return Ok(true);
        }
        if must_make_room {
            // Snapshots hold the garbage, or others work on it.
            self.look_at_space()?;
            return Ok(self.flush_one()? || self.make_one_ready());
        }
        Ok(self.join_some(all)? || self.make_one_ready())
    }

    /// Serves the bucket in which something is most pressing, of those that were touched or of all;
    /// false when nothing is due there.
    fn serve_next(&self, leisure: bool, all: bool) -> Result<bool> {
        let mut next = self.next_pressing(leisure, all)?;
        while let Some((keyspace, bucket)) = next {
            if self.serve_found(&keyspace, &bucket)? {
                return Ok(true);
            }
            // What was due a while ago may not be any more.
            next = self.next_pressing(leisure, false)?;
        }
        Ok(false)
    }

    /// Makes a table ready for readers; false when there is none, or the store has no leisure.
    pub(in super::super) fn make_one_ready(&self) -> bool {
        if !self.has_leisure() {
            return false;
        }
        let Some(file) = self.fresh.take() else {
            return false;
        };
        let mut is_done = true;
        let table = file.table();
        let made = table.and_then(|table| {
            table.make_ready(|| {
                is_done = self.has_leisure() && !self.schedule.is_stopping();
                is_done
            })
        });
        if let Err(error) = made {
            tracing::debug!(%error, "a new table could not be prewarmed");
        } else if !is_done {
            self.fresh.add(&file);
        }
        true
    }

    /// Whether a flush has to wait for compactions that make room for it. Not when these find no
    /// room themselves.
    fn must_make_room(&self) -> bool {
        self.space_need() == SpacePressure::Stop
            && !self.syncer.is_room_short()
            && self.schedule.check_shortage().is_ok()
    }

    /// What follows an opening, a job and an ingest: writers may go on, other jobs may have become
    /// due. Looks at what was touched.
    pub(super) fn after_job(&self) {
        if let Err(error) = self.look_at_touched().and_then(|()| self.look_at_space()) {
            // Who compacts the bucket meets the same error.
            tracing::warn!(%error, "the used space could not be measured yet");
        }
        self.schedule.wake();
    }

    /// Without background threads: does all that is due.
    pub(crate) fn run_inline(&self) {
        if self.options.background_threads > 0 || !self.unsettled.is_settled() {
            return;
        }
        while self.do_one_or_record(false) {}
        if self.health.failure().is_none()
            && let Err(error) = self.relieve_log().and_then(|()| self.shrink_log())
        {
            self.record(error);
        }
    }

    /// Whether a stalled writer has something to wait for. Memory that readers hold in MemTables
    /// which are tables already is not: the reader may be the writer itself. The writer looks for
    /// itself: what the background told last may be gone, without a job left that would tell so.
    pub(crate) fn relief_is_due(&self) -> Result<bool> {
        self.check_progress()?;
        self.throttle.set_memory(self.pool.allocated_bytes());
        if self.throttle.is_stopped_by_runs() {
            self.tell_runs();
        }
        if self.throttle.is_stopped_by_space() {
            self.look_at_space()?;
        }
        let stopped = self.throttle.is_stopped_by_runs() || self.throttle.is_stopped_by_space();
        Ok(stopped || !self.lock_install().frozen.is_empty())
    }

    /// Waits until something is `done`; an error if the background is short of something again and
    /// again. What it began before may find no room once more, where there is some now.
    pub(super) fn wait_until(&self, done: impl Fn() -> bool) -> Result<()> {
        let mut shortages = 0;
        loop {
            self.run_inline();
            if done() {
                return Ok(());
            }
            match self.check_progress() {
                Err(error) if error.is_shortage() && shortages < SHORTAGES_WAITED => {
                    shortages += 1;
                    self.schedule.set_shortage(None);
                    self.schedule.wake();
                }
                progress => progress?,
            }
            self.schedule.wait(Duration::from_millis(2));
        }
    }

    /// Prepares log segments ahead, keeps the log below its limit, and shortens it when nobody
    /// writes.
    pub(super) fn maintain_log(&self) {
        if !self.unsettled.is_settled() {
            return;
        }
        let result = match self.is_idle() {
            true => self.shrink_log(),
            false => {
                self.syncer.prepare_next_or_warn();
                Ok(())
            }
        };
        if let Err(error) = result.and_then(|()| self.relieve_log()) {
            self.record(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, Fault, FaultKind, SimDisk};

    use super::*;
    use crate::Options;
    use crate::engine::ssd::Lifecycle;

    /// A store turned read-only, or refused writes that had to wait, when the next segment of the
    /// log could not be made ahead, though nobody needed it yet.
    #[test]
    fn a_segment_that_cannot_be_prepared_concerns_nobody_yet() {
        for kind in [FaultKind::NoSpace, FaultKind::Eio] {
            let sim = SimDisk::new();
            let options = Options::default().background_threads(0);
            let engine = Wip::open(Disk::simulated(&sim), options).unwrap();
            let keyspace = engine.create_keyspace("keyspace").unwrap();
            engine.put_for_tests(&keyspace, b"key", b"value");
            assert!(engine.syncer.needs_next() && !engine.is_idle());
            let before = sim.ops();
            sim.inject(Fault::forever(before, kind));
            engine.maintain_log();
            assert!(sim.ops() > before || engine.syncer.needs_next());
            sim.clear_faults();
            engine.check_progress().unwrap();
            engine.maintain_log();
            assert!(!engine.syncer.needs_next());
            engine.close().unwrap();
        }
    }

    /// Two threads that had done a job told writers of the runs, and the one that had looked first
    /// told last: of runs that were merged meanwhile. No job was left, and writers waited for ever.
    #[test]
    fn a_stalled_writer_does_not_wait_for_runs_that_are_gone() {
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        engine.throttle.set_runs(1 << 10);
        assert!(engine.throttle.is_stopped_by_runs());
        assert!(!engine.relief_is_due().unwrap());
        assert!(!engine.throttle.is_stopped_by_runs());
        engine.close().unwrap();
    }
}
