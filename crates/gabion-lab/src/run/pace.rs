//! The schedule of an open loop: when the next operation is due, and the wait for it.
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

    /// How long those of at most `calls_max` calls had waited at `end` that were due then, the
    /// first of them at `due`, each of so many operations: each time with the number of calls for
    /// which it stands, few times however many they are.
    pub(super) fn overdue(
        &self,
        due: Instant,
        end: Instant,
        operations: u64,
        calls_max: u64,
    ) -> impl Iterator<Item = (Duration, u64)> {
        const TIMES: u64 = 1000;
        let late_s = end.saturating_duration_since(due).as_secs_f64();
        let interval_s = self.interval_s * operations as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is not negative, and too many are as many as there can be"
        )]
        let calls = ((late_s / interval_s).ceil() as u64).min(calls_max);
        let step = calls.div_ceil(TIMES).max(1);
        (0..calls.div_ceil(step)).map(move |number| {
            let first = number * step;
            let stands_for = step.min(calls - first);
            let middle = first as f64 + (stands_for - 1) as f64 / 2.0;
            let wait = Duration::from_secs_f64((late_s - middle * interval_s).max(0.0));
            (wait, stands_for)
        })
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
    fn what_is_overdue_at_the_end_is_told() {
        let start = Instant::now();
        let pace = Pace::new(start, 1.0, (0, 1), Wait::Spin);
        let overdue = |millis: u64, operations: u64, calls_max: u64| {
            let end = start + Duration::from_millis(millis);
            let told = pace.overdue(start, end, operations, calls_max);
            told.map(|(wait, calls)| (wait.as_millis(), calls))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            overdue(2_500, 1, u64::MAX),
            [(2_500, 1), (1_500, 1), (500, 1)]
        );
        assert_eq!(overdue(2_500, 1, 2), [(2_500, 1), (1_500, 1)]);
        assert_eq!(overdue(2_500, 2, u64::MAX), [(2_500, 1), (500, 1)]);
        assert_eq!(overdue(0, 1, u64::MAX), []);
        // Many are told in a few steps, all of them, and none waited longer than the first.
        let many = overdue(10_000_000, 1, u64::MAX);
        assert!(many.len() <= 1000 && many[0].0 <= 10_000_000);
        assert_eq!(many.iter().map(|(_, calls)| calls).sum::<u64>(), 10_000);
        let end = start + Duration::from_secs(3600);
        let pace = Pace::new(start, 1e9, (0, 1), Wait::Sleep);
        let told: Vec<_> = pace.overdue(start, end, 1, u64::MAX).collect();
        assert!(told.len() <= 1000 && told.iter().map(|(_, calls)| calls).sum::<u64>() > 1 << 40);
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
