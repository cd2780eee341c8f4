//! Throughput over time, sampled at even intervals.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::result::TimelinePoint;

/// The first interval. It doubles whenever there are too many moments.
const INTERVAL_FIRST: Duration = Duration::from_millis(10);
/// Moments at which the interval doubles and pairs of moments become one.
const MOMENTS_MAX: usize = 200;

/// Operations that one thread has done, on a cache line of its own.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Says that the thread has done so many operations.
    #[inline]
    pub(super) fn set(&self, operations: u64) {
        // ORDER: Relaxed; a figure to look at, nothing is read because of it.
        self.0.store(operations, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        // ORDER: Relaxed; as in `set`.
        self.0.load(Ordering::Relaxed)
    }
}

/// Moments of a phase: 100 to 200 of them, however long it takes.
#[derive(Debug)]
pub(super) struct Timeline {
    interval: Duration,
    /// Time and operations done until then.
    samples: Vec<(f64, u64)>,
}

impl Timeline {
    pub(super) fn new() -> Timeline {
        Timeline {
            interval: INTERVAL_FIRST,
            samples: Vec::new(),
        }
    }

    /// How long after the start the next look is due: at the first even time behind the last look.
    /// Times that went by meanwhile, as when threads kept the watch from running, are not made up
    /// for: what was done in next to no time has no rate.
    pub(super) fn next_due(&self) -> Duration {
        let looked = self.samples.last().map_or(0.0, |(at, _)| *at);
        let intervals = (looked / self.interval.as_secs_f64() + 1e-6).floor() + 1.0;
        self.interval.mul_f64(intervals)
    }

    /// Notes what the threads have done until now, and returns it.
    pub(super) fn look(&mut self, elapsed: Duration, counters: &[Counter]) -> u64 {
        let operations = counters.iter().map(Counter::get).sum();
        self.note(elapsed, operations);
        operations
    }

    fn note(&mut self, elapsed: Duration, operations: u64) {
        self.samples.push((elapsed.as_secs_f64(), operations));
        if self.samples.len() == MOMENTS_MAX {
            // Every second sample stays: the last of each pair.
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                !keep
            });
            self.interval *= 2;
        }
    }

    /// The rates between the looks, the phase's end included.
    pub(super) fn moments(&self, seconds: f64, operations: u64) -> Vec<TimelinePoint> {
        let half = self.interval.as_secs_f64() / 2.0;
        // What is left after the last look is too short for a rate of its own; it goes with it.
        let looks = self.samples.iter().filter(|(at, _)| *at < seconds - half);
        let mut before = (0.0, 0);
        let mut moments = Vec::new();
        for &(at, done) in looks.chain([&(seconds, operations)]) {
            let rate = done.saturating_sub(before.1) as f64 / (at - before.0).max(1e-9);
            moments.push(TimelinePoint {
                seconds: at,
                ops_per_s: rate,
            });
            before = (at, done);
        }
        moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_phase_keeps_its_operations_in_few_moments() {
        let mut timeline = Timeline::new();
        let mut elapsed = Duration::ZERO;
        for _ in 0..2000 {
            elapsed = timeline.next_due();
            let millis = u64::try_from(elapsed.as_millis()).unwrap();
            timeline.note(elapsed, 5 * millis);
        }
        let seconds = elapsed.as_secs_f64() + 0.001;
        let moments = timeline.moments(seconds, 5 * 1000 * elapsed.as_secs());
        assert!((100..=200).contains(&moments.len()), "{}", moments.len());
        let (last, others) = moments.split_last().unwrap();
        assert!(
            others
                .iter()
                .all(|moment| (moment.ops_per_s - 5000.0).abs() < 1.0)
        );
        assert_eq!(last.seconds.to_bits(), seconds.to_bits());
    }

    /// Looks that were missed were made up for one behind the other, in stretches of microseconds
    /// in which nothing was done, or whatever a thread had just told.
    #[test]
    fn looks_that_are_late_are_not_made_up_for() {
        let mut timeline = Timeline::new();
        let late = 5 * INTERVAL_FIRST + INTERVAL_FIRST / 3;
        timeline.note(late, 50);
        assert_eq!(timeline.next_due(), 6 * INTERVAL_FIRST);
        for look in 6..20 {
            assert_eq!(timeline.next_due(), look * INTERVAL_FIRST);
            timeline.note(look * INTERVAL_FIRST, u64::from(look) * 10);
        }
    }

    #[test]
    fn a_short_phase_is_one_moment() {
        let moments = Timeline::new().moments(0.001, 7);
        assert_eq!(moments.len(), 1);
        assert!((moments[0].ops_per_s - 7000.0).abs() < 1e-6);
    }
}
