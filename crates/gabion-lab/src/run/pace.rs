//! When the next operation is due, and waiting for it.
//!
//! An operation that is due while the thread is still busy with the one before starts late, and its
//! latency counts from the moment at which it was due. So a store that stops for a while is charged
//! for every operation that it delays, not only for the one that it held; and when a phase ends,
//! for those that it has not come to, by what they have waited so far.

use std::thread;
use std::time::{Duration, Instant};

/// The last part of a wait, which is spent looking at the clock: the system wakes sleepers about so
/// late.
const SPIN: Duration = Duration::from_micros(100);

/// How a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// To the point, at the price of a busy processor.
    Spin,
    /// Leaving the processor to others; operations may start late by what the system needs to wake
    /// a thread.
    Sleep,
}

/// Operations at a fixed rate.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    start: Instant,
    interval_s: f64,
    /// Place of the first operation in the first interval.
    phase: f64,
    count: u64,
    wait: Wait,
}

impl Pace {
    /// `rate_per_s` operations per second from `start` on, by `threads` threads of which this is
    /// number `thread`.
    pub(super) fn new(
        start: Instant,
        rate_per_s: f64,
        (thread, threads): (usize, usize),
        wait: Wait,
    ) -> Pace {
        Pace {
            start,
            interval_s: threads as f64 / rate_per_s,
            phase: thread as f64 / threads as f64,
            count: 0,
            wait,
        }
    }

    /// When the next operation is due.
    pub(super) fn next_due(&mut self) -> Instant {
        let due = (self.count as f64 + self.phase) * self.interval_s;
        self.count += 1;
        // Centuries ahead is as good as never.
        self.start + Duration::from_secs_f64(due.min(1e9))
    }

    /// So many operations were done with the one that was due last.
    pub(super) fn skip(&mut self, operations: u64) {
        self.count += operations;
    }

    /// How long the operation that is due at `due` has waited until `now`, if it was due before;
    /// then `due` is when the next one is.
    pub(super) fn overdue(&mut self, due: &mut Instant, now: Instant) -> Option<Duration> {
        let late = now.checked_duration_since(*due)?;
        *due = self.next_due();
        Some(late)
    }

    /// Returns at `due`, at once if that has passed, or as soon as `is_stopped`.
    pub(super) fn wait_until(&self, due: Instant, is_stopped: impl Fn() -> bool) {
        const NAP: Duration = Duration::from_millis(50);
        while !is_stopped() {
            let now = Instant::now();
            if now >= due {
                return;
            }
            let left = due - now;
            match self.wait {
                Wait::Sleep => thread::sleep(left.min(NAP)),
                Wait::Spin if left > SPIN => thread::sleep((left - SPIN).min(NAP)),
                Wait::Spin => std::hint::spin_loop(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_rate_evenly() {
        let start = Instant::now();
        let mut paces: Vec<_> = (0..4)
            .map(|thread| Pace::new(start, 1000.0, (thread, 4), Wait::Sleep))
            .collect();
        let mut due: Vec<_> = paces
            .iter_mut()
            .flat_map(|pace| [pace.next_due(), pace.next_due(), pace.next_due()])
            .collect();
        due.sort();
        for (at, due) in (0u32..).zip(due) {
            let wanted = start + Duration::from_millis(1) * at;
            assert!(due.max(wanted) - due.min(wanted) < Duration::from_nanos(100));
        }
    }

    #[test]
    fn what_is_overdue_is_told_one_by_one() {
        let start = Instant::now();
        let mut pace = Pace::new(start, 1.0, (0, 1), Wait::Spin);
        let mut due = pace.next_due();
        let now = start + Duration::from_millis(2_500);
        let waits: Vec<_> = std::iter::from_fn(|| pace.overdue(&mut due, now)).collect();
        assert_eq!(waits, [2_500, 1_500, 500].map(Duration::from_millis));
        assert_eq!(due, start + Duration::from_secs(3));
    }

    #[test]
    fn waiting_ends_when_due_or_stopped() {
        let start = Instant::now();
        let pace = Pace::new(start, 1.0, (0, 1), Wait::Spin);
        let due = start + Duration::from_millis(2);
        pace.wait_until(due, || false);
        assert!(Instant::now() >= due);
        pace.wait_until(start + Duration::from_secs(86_400), || true);
    }
}
