//! How many runs a level may hold before it is compacted, by the size of the bucket.
//!
//! # Idea
//! Three levels of T runs each hold `T^3` flushes. A bucket with more would merge the last level
//! within itself, again and again, and the bound on amplification (`wip`) would hold for small
//! stores only. How many flushes a bucket holds follows from the data and from the memory of
//! MemTables, so T has to follow from both: it is the cube root of twice that number, since the
//! bucket grows before what is written now is merged for the last time. Runs of the last level are
//! from times when the bucket was smaller, and T too: there are up to three times as many of them,
//! and they are merged when the bucket is split, or for its garbage, or at leisure.
//!
//! The options say the least: `sublevels_min` suffice for 32 flushes. What more runs cost is reads,
//! which ask a filter for each, and scans, which merge them. So memory for MemTables buys reads:
//! eight times the memory halves the runs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::Options;

/// More runs would cost reads more than writes gain. Suffices for 55,000 flushes, as 10 TB
/// beside 256 MiB of MemTables have them (`bound_tests`).
const NEED_MAX: u64 = 48;

/// The last of the levels.
const LAST: usize = crate::types::INITIAL_LEVELS - 1;

/// How many runs a bucket needs, as far as that is known.
#[derive(Debug, Default)]
pub(crate) struct RunLimitEstimate {
    /// What a flush brings; 0 if no flush was seen yet.
    flush_bytes: AtomicU64,
    /// The runs that inner levels need ([`needed`]); 0 if that is not known.
    runs: AtomicUsize,
}

impl RunLimitEstimate {
    /// A part of a bucket needs what the whole does: it has less, and flushes bring less.
    pub(crate) fn of_part(whole: &RunLimitEstimate, parts: usize) -> RunLimitEstimate {
        // ORDER: Relaxed, as in `see`.
        let flush_bytes = whole.flush_bytes.load(Ordering::Relaxed) / parts as u64;
        RunLimitEstimate {
            flush_bytes: AtomicU64::new(flush_bytes),
            runs: AtomicUsize::new(whole.runs.load(Ordering::Relaxed)),
        }
    }

    /// The bucket has `bytes`, and what was flushed and not compacted yet has these.
    pub(crate) fn see(&self, bytes: u64, flushed: &[u64]) {
        // ORDER: Relaxed (all): figures that only say what is due, of one moment or the next.
        let count = flushed.len() as u64;
        if let Some(mean) = flushed.iter().sum::<u64>().checked_div(count) {
            self.flush_bytes.store(mean, Ordering::Relaxed);
        }
        let needed = needed(bytes, self.flush_bytes.load(Ordering::Relaxed));
        self.runs.store(needed, Ordering::Relaxed);
    }

    /// How many runs the levels take.
    pub(crate) fn width(&self, options: &Options) -> RunLimits {
        RunLimits {
            sublevels_min: options.tuning.sublevels_min,
            sublevels_max: options.tuning.sublevels_max,
            // ORDER: Relaxed, as in `see`.
            needed: self.runs.load(Ordering::Relaxed),
        }
    }
}

/// How many runs the levels of a bucket take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLimits {
    sublevels_min: usize,
    sublevels_max: usize,
    needed: usize,
}

impl RunLimits {
    /// Runs at which a level may be compacted.
    pub(crate) fn least(&self, level: usize) -> usize {
        match (level, self.needed) {
            // What lies there is not written again for less.
            (LAST, needed) if needed == 0 || needed > self.sublevels_min => self.most(LAST),
            (_, needed) => self.sublevels_min.max(needed),
        }
    }

    /// Runs at which a level must be compacted.
    pub(crate) fn most(&self, level: usize) -> usize {
        let by_need = match (level, self.needed) {
            (LAST, 0) => usize::MAX,
            (LAST, needed) => needed * 3,
            (_, needed) => needed + needed / 2,
        };
        self.sublevels_max.max(by_need)
    }

    /// Whether a level of so many runs may be compacted: runs in order are moved, not written
    /// again, so for them the options' least is enough.
    pub(crate) fn may_compact(&self, level: usize, runs: usize, in_order: bool) -> bool {
        runs >= self.least(level) || in_order && runs >= self.sublevels_min
    }

    /// Whether the levels take as many runs as the bucket needs.
    pub(crate) fn is_enough(&self) -> bool {
        (self.needed as u64) < NEED_MAX
    }

    /// So many runs of a level as they would be in a level of `sublevels_max`.
    pub(crate) fn scaled(&self, level: usize, runs: usize) -> usize {
        (runs * self.sublevels_max).div_ceil(self.most(level))
    }
}

/// What is written at most for each byte, without the log: once for each level, and once for each
/// split into so many (paper, section 2.2.4).
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
pub(crate) fn bound(split_ways: usize) -> f64 {
    let ways = split_ways as f64;
    crate::types::INITIAL_LEVELS as f64 + ways / (ways - 1.0)
}

/// The runs that inner levels need in a bucket of `bytes` to which a flush brings `flush_bytes`; 0
/// if that is not known.
fn needed(bytes: u64, flush_bytes: u64) -> usize {
    let Some(flushes) = bytes.checked_div(flush_bytes) else {
        return 0;
    };
    let flushes = flushes.saturating_mul(2).max(1);
    let root = (1..NEED_MAX).find(|root| root * root * root >= flushes);
    usize::try_from(root.unwrap_or(NEED_MAX)).expect("a small number")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No bound is told of where there are more flushes than levels take runs for.
    #[test]
    fn levels_take_what_a_bucket_needs() {
        let width = |bytes| {
            let sizing = RunLimitEstimate::default();
            sizing.see(bytes, &[9, 11]);
            sizing.width(&Options::default())
        };
        for (flushes, inner, last) in [(1, 4, 4), (32, 4, 4), (33, 5, 15), (500, 10, 30)] {
            let width = width(flushes * 10);
            assert_eq!(
                (width.least(0), width.least(LAST)),
                (inner, last),
                "{flushes}"
            );
            assert!(width.most(0) >= inner && width.is_enough());
        }
        assert!(width(51_000 * 10).is_enough() && !width(56_000 * 10).is_enough());
        let unknown = RunLimitEstimate::default().width(&Options::default());
        assert_eq!((unknown.least(0), unknown.least(LAST)), (4, usize::MAX));
    }
}
