//! Slows writers down before it must stop them.
//!
//! # Idea
//! A merge costs less for each write the more writes an interval gets by it. So a generation grows
//! as long as the one before is merged, and writers bring as much as merges take: they are slowed
//! down by the *debt*, what no merge has put into the spaces yet, in the generation under way as
//! well. From seven tenths of the budget on they are delayed, more the larger it is. Where writers
//! are faster than merges it stays there, each generation becomes as large as it, and nobody waits
//! for the end of a merge.
//!
//! Memory is given back by the end of a merge only. So two generations may take twice the debt:
//! writers stop where they take one and a half times the budget, until a merge has ended. What is
//! kept for readers does not count: a writer that holds readers would wait for itself. When there
//! is no space to merge into, writes that would have to wait are refused. The budget becomes
//! smaller when spaces, their indexes and what is kept for readers leave too little of the store's
//! memory ([`crate::memory`]).

use std::time::{Duration, Instant};

use super::Flex;
use crate::Result;
use crate::stats::nanos;

/// How long a stopped writer waits before it looks again.
const STALL_SLICE: Duration = Duration::from_millis(10);

/// The longest delay of a write that is slowed down, and in how many steps it is reached.
const DELAY_MAX: Duration = Duration::from_micros(400);
const DELAY_STEPS: u32 = 16;

/// Bytes of generations at which writers stop, for a budget.
pub(super) fn stop_bytes(budget: u64) -> u64 {
    budget.saturating_add(budget / 2)
}

/// The debt at which writers are slowed down, for a budget: a little less than a half of
/// [`stop_bytes`].
fn slow_bytes(budget: u64) -> u64 {
    budget / 10 * 7
}

/// How long a write is held back by a debt above [`slow_bytes`]: the longest delay comes with a
/// tenth of the budget more.
fn delay(debt: u64, budget: u64) -> Duration {
    let step = (budget / 10 / u64::from(DELAY_STEPS)).max(1);
    let steps = debt.saturating_sub(slow_bytes(budget)) / step;
    let steps = u32::try_from(steps).map_or(DELAY_STEPS, |steps| steps.min(DELAY_STEPS));
    DELAY_MAX * steps / DELAY_STEPS
}

impl Flex {
    /// Bytes of generations at which writers are slowed down: what the options say, or less where
    /// the spaces need the memory.
    pub(super) fn budget(&self) -> u64 {
        self.memory.memtable_budget() / 3 * 2
    }

    /// Whether merges may not wait: writers are about to be slowed down.
    pub(super) fn is_pressed(&self) -> bool {
        self.debt() > slow_bytes(self.budget()) / 5 * 4
    }

    /// Bytes of the generations that take writes or wait.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.view.load().waiting_bytes()
    }

    /// Bytes of the generations that take writes or wait which no merge has put into the spaces.
    pub(super) fn debt(&self) -> u64 {
        self.view.load().debt()
    }

    /// Lets a write pass, after a while if merges fall behind; an error if they cannot go on.
    pub(super) fn admit(&self) -> Result<()> {
        let budget = self.budget();
        let stop = stop_bytes(budget);
        let (waiting, debt) = {
            let view = self.view.load();
            (view.waiting_bytes(), view.debt())
        };
        if waiting <= stop {
            let delay = delay(debt, budget);
            // Without background threads nothing is merged meanwhile.
            if !delay.is_zero() && self.options.background_threads > 0 {
                let began = Instant::now();
                std::thread::sleep(delay);
                self.waits.count_slowdown(began.elapsed());
            }
            return Ok(());
        }
        let began = Instant::now();
        while self.waiting_bytes() > stop {
            self.run_inline();
            self.health.check_writable()?;
            if self.view.load().frozen().is_empty() {
                // One write alone was larger; it is in the generation that takes writes.
                break;
            }
            self.schedule.check_shortage()?;
            self.schedule.wait(STALL_SLICE);
        }
        let waited = began.elapsed();
        self.waits.count_slowdown(waited);
        self.waits.stall_ns.add(nanos(waited));
        self.waits.stalls.add(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_delayed_by_the_debt_and_two_generations_of_it_fit() {
        for budget in [0, 100, 64 << 10, 256 << 20, u64::MAX / 2] {
            let slow = slow_bytes(budget);
            assert!(2 * u128::from(slow) <= u128::from(stop_bytes(budget)));
            assert_eq!(delay(0, budget), Duration::ZERO);
            assert_eq!(delay(slow, budget), Duration::ZERO);
            assert_eq!(delay(u64::MAX, budget), DELAY_MAX);
            let delays = (0..=40).map(|part| delay(slow + budget / 400 * part, budget));
            assert!(delays.is_sorted(), "{budget}");
        }
        let budget = 160 << 20;
        assert_eq!(delay(budget / 20 * 15, budget), DELAY_MAX / 2);
        assert_eq!(delay(budget / 10 * 8, budget), DELAY_MAX);
    }
}
