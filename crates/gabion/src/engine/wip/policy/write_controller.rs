//! Slows writers down before it must stop them.
//!
//! # Idea
//! Writers outrun the background when MemTables fill faster than they are flushed, runs pile up
//! faster than they are merged, or old versions come faster than they go. Each of the three is a
//! pressure between 0 and 1. Above a soft limit, every written byte costs a delay that grows with
//! `pressure / (1 - pressure)`: barely measurable at first, and equal to the background's own speed
//! somewhere before 1. Writers sleep when their accumulated delay is worth a sleep. At pressure 1
//! the writer waits for the background; that time is a stall. An ingest that needs unchanged
//! MemTables for a moment (`ingest`) stops all writers, which is a stall, too.
//!
//! # Memory
//! The budget covers active and frozen MemTables. Active ones may use 60 % of it, so that 40 % can
//! be on their way to the medium; delays begin at 80 % of the budget, writers stop at 105 %. Where
//! open tables need much memory, the budget is less than the options say (`crate::memory`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::engine::counters::WriteStallCounters;
use crate::engine::ssd::rate_limiter::StallCauses;
use crate::stats::nanos;
use crate::{Options, Result};

/// Nanoseconds of delay per byte at half pressure: slows 116-byte writes to about 1 M/s.
const DELAY_NS_PER_BYTE: f64 = 4.0;

/// Debts below this are carried over, because sleeping takes at least 60 us.
const SLEEP_NS_MIN: u64 = 200_000;

/// No single write pays more than this for its delay.
const SLEEP_NS_MAX: u64 = 10_000_000;

/// A pressure of 1 in what [`WriteController`] keeps.
const PRESSURE_ONE: f64 = 1e6;

/// How long a stalled writer waits before it looks again.
const STALL_SLICE: Duration = Duration::from_millis(10);

/// Limits that follow from the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemTableLimits {
    /// Memory of all active MemTables.
    pub(crate) active_bytes_max: u64,
    /// Memory of one active MemTable.
    pub(crate) table_bytes_max: u64,
}

impl MemTableLimits {
    #[inline]
    fn of_budget(budget: u64) -> MemTableLimits {
        MemTableLimits {
            active_bytes_max: budget / 10 * 6,
            table_bytes_max: budget / 8,
        }
    }
}

/// Parts of the budget at which delays begin and at which writers stop.
const DELAY_AT: f64 = 0.80;
const STOP_AT: f64 = 1.05;

/// The pressure on writers.
pub(crate) struct WriteController {
    /// What all MemTables may use.
    budget: AtomicU64,
    runs_delay: f64,
    runs_stop: f64,
    /// How much memory MemTables have taken, ever, when the active ones are to be added up.
    look_at_bytes: AtomicU64,
    /// Memory of all MemTables when it was last looked at.
    memory_bytes: AtomicU64,
    /// The most runs that any bucket has in its level 0.
    runs_max: AtomicU64,
    /// The pressure of garbage, in millionths.
    space: AtomicU64,
    debt_ns: AtomicU64,
    /// How many hold all writers back.
    holders: AtomicUsize,
    /// Without background threads nobody could end a wait, so nobody waits.
    off: bool,
    lock: Mutex<()>,
    relieved: Condvar,
}

impl WriteController {
    /// The limits of these options, no pressure.
    pub(crate) fn new(options: &Options) -> WriteController {
        #[expect(
            clippy::cast_precision_loss,
            reason = "limits need no more than 53 bits"
        )]
        let sublevels_max = options.tuning.sublevels_max as f64;
        WriteController {
            budget: AtomicU64::new(options.memtable_budget()),
            runs_delay: sublevels_max * 1.5,
            runs_stop: sublevels_max * 4.0,
            look_at_bytes: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
            runs_max: AtomicU64::new(0),
            space: AtomicU64::new(0),
            debt_ns: AtomicU64::new(0),
            holders: AtomicUsize::new(0),
            off: options.background_threads == 0,
            lock: Mutex::new(()),
            relieved: Condvar::new(),
        }
    }

    /// The limits.
    #[inline]
    pub(crate) fn limits(&self) -> MemTableLimits {
        // ORDER: Relaxed: figures for pacing, no data depends on them (all of this file).
        MemTableLimits::of_budget(self.budget.load(Ordering::Relaxed))
    }

    /// MemTables may use `budget` from now on; returns whether that is less than before.
    pub(crate) fn set_budget(&self, budget: u64) -> bool {
        // ORDER: Relaxed (both), as above.
        let before = self.budget.swap(budget, Ordering::Relaxed);
        if budget < before {
            self.look_at_bytes.store(0, Ordering::Relaxed);
        }
        if before != budget {
            self.wake();
        }
        budget < before
    }

    /// MemTables use `allocated`.
    #[inline]
    pub(crate) fn set_memory_seen(&self, allocated: u64) {
        // ORDER: Relaxed, as above.
        if self.memory_bytes.load(Ordering::Relaxed) != allocated {
            // Writers on other cores read this with every write, and it changes with few of them.
            self.memory_bytes.store(allocated, Ordering::Relaxed);
        }
    }

    /// MemTables have taken so much memory, ever: whether the active ones may have come above their
    /// limit. What was given back meanwhile is not taken off, so no flush is a reason to look.
    #[inline]
    pub(crate) fn must_look(&self, taken: u64) -> bool {
        // ORDER: Relaxed, as above.
        taken > self.look_at_bytes.load(Ordering::Relaxed)
    }

    /// The active MemTables cannot come above their limit before all have taken so much.
    pub(crate) fn look_again_at(&self, taken: u64) {
        // ORDER: Relaxed, as above.
        self.look_at_bytes.store(taken, Ordering::Relaxed);
    }

    /// A frozen MemTable is a table now; all MemTables use `allocated`.
    pub(crate) fn flushed(&self, allocated: u64) {
        // ORDER: Relaxed, as above.
        self.memory_bytes.store(allocated, Ordering::Relaxed);
        self.wake();
    }

    /// All MemTables use `allocated`, as a stalled writer sees when it looks again.
    pub(crate) fn set_memory(&self, allocated: u64) {
        // ORDER: Relaxed, as above.
        self.memory_bytes.store(allocated, Ordering::Relaxed);
    }

    /// Whether the fullest level 0 alone stops writers.
    #[expect(
        clippy::cast_precision_loss,
        reason = "pressure needs no more than 53 bits"
    )]
    pub(crate) fn is_stopped_by_runs(&self) -> bool {
        // ORDER: Relaxed, as above.
        self.runs_max.load(Ordering::Relaxed) as f64 >= self.runs_stop
    }

    /// Whether writers are half way between their first delay and a stop, or beyond. Who holds all
    /// of them back waits for flushes.
    pub(crate) fn pressed(&self) -> StallCauses {
        let [by_memory, by_runs, by_space] = self.pressures().map(|pressure| pressure >= 0.5);
        // ORDER: Relaxed, as in `admit`.
        let are_held = self.holders.load(Ordering::Relaxed) > 0;
        StallCauses {
            by_memory: by_memory || are_held,
            by_merges: by_runs || by_space,
        }
    }

    /// Whether writers are delayed or stopped.
    pub(crate) fn delays_writers(&self) -> bool {
        self.pressure() > 0.0
    }

    /// The fullest level 0 has this many runs.
    pub(crate) fn set_runs(&self, runs: usize) {
        // ORDER: Relaxed, as above.
        self.runs_max.store(runs as u64, Ordering::Relaxed);
        self.wake();
    }

    /// What was told last.
    #[cfg(test)]
    pub(crate) fn runs_max_for_tests(&self) -> usize {
        // ORDER: Relaxed, as above.
        usize::try_from(self.runs_max.load(Ordering::Relaxed)).unwrap()
    }

    /// A level 0 has so many runs, perhaps more than any other.
    pub(crate) fn raise_runs(&self, runs: usize) {
        // ORDER: Relaxed, as above.
        self.runs_max.fetch_max(runs as u64, Ordering::Relaxed);
    }

    /// The pressure of garbage: none up to 0, stop from 1 on.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and a million"
    )]
    pub(crate) fn set_space(&self, pressure: f64) {
        let pressure = (pressure.clamp(0.0, 1.0) * PRESSURE_ONE) as u64;
        // ORDER: Relaxed, as above.
        self.space.store(pressure, Ordering::Relaxed);
        self.wake();
    }

    /// Whether the garbage alone stops writers.
    pub(crate) fn is_stopped_by_space(&self) -> bool {
        self.space_pressure() >= 1.0
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "pressure needs no more than 53 bits"
    )]
    fn space_pressure(&self) -> f64 {
        // ORDER: Relaxed, as above.
        self.space.load(Ordering::Relaxed) as f64 / PRESSURE_ONE
    }

    /// Lets stalled writers look again.
    pub(crate) fn wake(&self) {
        self.relieved.notify_all();
    }

    /// The pressure: 0 none, 1 stop.
    fn pressure(&self) -> f64 {
        let [memory, runs, space] = self.pressures();
        memory.max(runs).max(space).clamp(0.0, 1.0)
    }

    /// The pressures of memory, of runs and of garbage, not bounded.
    #[expect(
        clippy::cast_precision_loss,
        reason = "pressure needs no more than 53 bits"
    )]
    fn pressures(&self) -> [f64; 3] {
        // ORDER: Relaxed, as above.
        let memory = self.memory_bytes.load(Ordering::Relaxed) as f64;
        let runs = self.runs_max.load(Ordering::Relaxed) as f64;
        let budget = self.budget.load(Ordering::Relaxed) as f64;
        let memory = (memory - budget * DELAY_AT) / (budget * (STOP_AT - DELAY_AT));
        let runs = (runs - self.runs_delay) / (self.runs_stop - self.runs_delay);
        [memory, runs, self.space_pressure()]
    }

    /// Lets a write of `bytes` pass, after the delay that the pressure asks for; `waits` count it.
    /// A stalled writer
    /// waits as long as `relief_is_due`, which may also end the wait with an error.
    #[inline]
    pub(crate) fn admit(
        &self,
        bytes: u64,
        waits: &WriteStallCounters,
        relief_is_due: impl Fn() -> Result<bool>,
    ) -> Result<()> {
        // ORDER: Relaxed; a writer that misses it is one of those that were admitted before.
        if self.holders.load(Ordering::Relaxed) > 0 {
            self.wait_while_held(waits);
        }
        let pressure = self.pressure();
        if pressure > 0.0 && !self.off {
            self.slow_down(pressure, bytes, waits, relief_is_due)
        } else {
            Ok(())
        }
    }

    /// Holds all writers back that are not admitted yet, until what it returns is dropped.
    pub(crate) fn hold(&self) -> WriteStall<'_> {
        // ORDER: Relaxed, as in `admit`.
        self.holders.fetch_add(1, Ordering::Relaxed);
        WriteStall(self)
    }

    #[cold]
    fn wait_while_held(&self, waits: &WriteStallCounters) {
        let began = Instant::now();
        waits.stalls.add(1);
        // ORDER: Relaxed, as in `admit`.
        while self.holders.load(Ordering::Relaxed) > 0 {
            let mut guard = self.lock.lock();
            self.relieved.wait_for(&mut guard, STALL_SLICE);
        }
        waits.stall_ns.add(nanos(began.elapsed()));
        waits.count_slowdown(began.elapsed());
    }

    #[cold]
    fn slow_down(
        &self,
        mut pressure: f64,
        bytes: u64,
        waits: &WriteStallCounters,
        relief_is_due: impl Fn() -> Result<bool>,
    ) -> Result<()> {
        let began = Instant::now();
        if pressure >= 1.0 {
            waits.stalls.add(1);
            while pressure >= 1.0 {
                if !relief_is_due()? {
                    pressure = 0.0;
                    break;
                }
                let mut guard = self.lock.lock();
                self.relieved.wait_for(&mut guard, STALL_SLICE);
                pressure = self.pressure();
            }
            waits.stall_ns.add(nanos(began.elapsed()));
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a delay of at most some milliseconds"
        )]
        let delay =
            (bytes as f64 * DELAY_NS_PER_BYTE * pressure / (1.0 - pressure).max(1e-3)) as u64;
        // ORDER: Relaxed, as above.
        let debt = self.debt_ns.fetch_add(delay, Ordering::Relaxed) + delay;
        if debt >= SLEEP_NS_MIN {
            let debt = self.debt_ns.swap(0, Ordering::Relaxed).min(SLEEP_NS_MAX);
            std::thread::sleep(Duration::from_nanos(debt));
        }
        waits.count_slowdown(began.elapsed());
        Ok(())
    }
}

/// Holds writers back as long as it lives.
pub(crate) struct WriteStall<'t>(&'t WriteController);

impl Drop for WriteStall<'_> {
    fn drop(&mut self) {
        // ORDER: Relaxed, as in `admit`.
        self.0.holders.fetch_sub(1, Ordering::Relaxed);
        self.0.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ingest that waits for flushes holds all writers back. Under a limit on what the
    /// background writes they went at its pace, though it gives way where writers are stopped.
    #[test]
    fn who_holds_writers_back_presses_for_flushes() {
        let throttle = WriteController::new(&Options::default());
        assert!(!throttle.pressed().by_memory);
        let held = throttle.hold();
        let StallCauses {
            by_memory,
            by_merges,
        } = throttle.pressed();
        assert!(by_memory && !by_merges);
        drop(held);
        assert!(!throttle.pressed().by_memory);
    }
}
