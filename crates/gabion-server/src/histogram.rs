//! Histograms of durations, in a fixed number of buckets.
//!
//! # Layout
//! A bucket is a range of nanoseconds. The first four have 64 ns each; above, every power of two
//! is cut into four, so a bucket's bounds are less than 25 % apart. The last bucket also takes what
//! is longer than nine minutes. Powers of two are bounds, which is what `LATENCY HISTOGRAM` shows.
//!
//! # Cost
//! A connection records into [`LocalHistogram`], plain numbers and a mask of the buckets in use,
//! and adds it up when its round ends. So a call costs no atomic operation, and a round one for
//! each different bucket.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of buckets: as many as a mask has bits.
pub(crate) const BUCKETS: usize = 128;

/// Nanoseconds of each of the first buckets, as a power of two.
const UNIT_BITS: u32 = 6;

/// Counts of one connection that are not added to the shared histogram yet.
#[derive(Debug)]
pub(crate) struct LocalHistogram {
    counts: [u32; BUCKETS],
    used: u128,
}

/// Counts by duration, shared.
#[derive(Debug)]
pub(crate) struct Histogram([AtomicU64; BUCKETS]);

/// Counts by duration at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HistogramSnapshot([u64; BUCKETS]);

/// The bucket of a duration.
#[inline]
fn bucket(nanos: u64) -> usize {
    let units = nanos >> UNIT_BITS;
    if units < 4 {
        return usize::try_from(units).unwrap_or_default();
    }
    let power = units.ilog2();
    let quarter = (units >> (power - 2)) & 3;
    let index = u64::from(power - 1) * 4 + quarter;
    usize::try_from(index).map_or(BUCKETS - 1, |index| index.min(BUCKETS - 1))
}

/// The first duration above a bucket, in nanoseconds.
fn end(bucket: usize) -> u64 {
    let next = bucket as u64 + 1;
    let units = match next < 4 {
        true => next,
        false => (4 + next % 4) << (next / 4 - 1),
    };
    units << UNIT_BITS
}

impl Default for LocalHistogram {
    fn default() -> LocalHistogram {
        LocalHistogram {
            counts: [0; BUCKETS],
            used: 0,
        }
    }
}

impl LocalHistogram {
    /// A call took so long.
    #[inline]
    pub(crate) fn record(&mut self, nanos: u64) {
        let bucket = bucket(nanos);
        self.counts[bucket] += 1;
        self.used |= 1 << bucket;
    }

    /// Moves the counts into a histogram.
    pub(crate) fn add_up(&mut self, histogram: &Histogram) {
        while self.used != 0 {
            let bucket = self.used.trailing_zeros() as usize;
            self.used &= self.used - 1;
            let count = std::mem::take(&mut self.counts[bucket]);
            // ORDER: Relaxed; a count orders nothing.
            histogram.0[bucket].fetch_add(u64::from(count), Ordering::Relaxed);
        }
    }

    /// Forgets the counts.
    pub(crate) fn clear(&mut self) {
        *self = LocalHistogram::default();
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Histogram {
    /// A call took so long.
    pub(crate) fn record(&self, nanos: u64) {
        // ORDER: Relaxed; a count orders nothing.
        self.0[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    /// Begins anew.
    pub(crate) fn reset(&self) {
        for count in &self.0 {
            // ORDER: Relaxed, as above.
            count.store(0, Ordering::Relaxed);
        }
    }

    /// The counts now.
    pub(crate) fn counts(&self) -> HistogramSnapshot {
        // ORDER: Relaxed, as above.
        HistogramSnapshot(std::array::from_fn(|bucket| {
            self.0[bucket].load(Ordering::Relaxed)
        }))
    }
}

impl HistogramSnapshot {
    /// How many calls there were.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The calls since an earlier moment; all of them, if the histogram began anew meanwhile.
    pub(crate) fn since(&self, earlier: &HistogramSnapshot) -> HistogramSnapshot {
        let pairs = || self.0.iter().zip(&earlier.0);
        match pairs().all(|(now, then)| now >= then) {
            true => HistogramSnapshot(std::array::from_fn(|at| self.0[at] - earlier.0[at])),
            false => self.clone(),
        }
    }

    /// A duration, in nanoseconds, that so many percent of the calls did not exceed: the end of
    /// the bucket in which the last of them is. 0 without calls.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank among counted calls"
    )]
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let rank = (self.total() as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return end(bucket);
            }
        }
        0
    }

    /// How many calls took less than each power of two from 1,024 ns on, up to the first that all
    /// did: pairs of nanoseconds and a count.
    pub(crate) fn by_powers_of_two(&self) -> Vec<(u64, u64)> {
        let total = self.total();
        let mut pairs = Vec::new();
        let mut seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count;
            let end = end(bucket);
            if end >= 1024 && end.is_power_of_two() {
                pairs.push((end, seen));
                if seen == total {
                    break;
                }
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        let mut start = 0;
        for index in 0..BUCKETS {
            let end = end(index);
            assert_eq!((bucket(start), bucket(end - 1)), (index, index));
            assert!(
                start < 256 || (end - start) * 4 <= start,
                "{start} to {end}"
            );
            start = end;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn nothing_has_no_percentiles() {
        let counts = Histogram::default().counts();
        assert_eq!((counts.total(), counts.percentile(99.0)), (0, 0));
        assert_eq!(counts.by_powers_of_two(), [(1024, 0)]);
    }

    proptest! {
        /// The twin keeps all durations, sorted.
        #[test]
        fn percentiles_and_powers_are_those_of_all_durations(
            mut nanos in prop::collection::vec(0_u64..1 << 36, 1..300),
            percent in 0.0_f64..=100.0,
        ) {
            let (histogram, mut recent) = (Histogram::default(), LocalHistogram::default());
            for (index, one) in nanos.iter().enumerate() {
                match index % 3 {
                    0 => histogram.record(*one),
                    _ => recent.record(*one),
                }
            }
            recent.add_up(&histogram);
            recent.add_up(&histogram);
            let counts = histogram.counts();
            nanos.sort_unstable();
            let count = nanos.len() as u64;
            prop_assert_eq!(counts.total(), count);
            // The first of which so many percent are no longer.
            let covers = |place: usize| (place + 1) as f64 >= nanos.len() as f64 * percent / 100.0;
            let place = (0..nanos.len()).find(|place| covers(*place)).expect("all are 100 %");
            let exact = nanos[place];
            let found = counts.percentile(percent);
            prop_assert!(found > exact && found <= exact + exact / 4 + 64, "{found} {exact}");
            for (end, below) in counts.by_powers_of_two() {
                let exact = nanos.iter().filter(|nanos| **nanos < end).count() as u64;
                prop_assert_eq!(below, exact, "below {}", end);
            }
            prop_assert_eq!(counts.by_powers_of_two().last().map(|last| last.1), Some(count));
        }

        #[test]
        fn differences_are_the_calls_between(
            before in prop::collection::vec(0_u64..1 << 30, 0..50),
            after in prop::collection::vec(0_u64..1 << 30, 0..50),
        ) {
            let (both, alone) = (Histogram::default(), Histogram::default());
            before.iter().for_each(|nanos| both.record(*nanos));
            let earlier = both.counts();
            for nanos in &after {
                both.record(*nanos);
                alone.record(*nanos);
            }
            prop_assert_eq!(both.counts().since(&earlier), alone.counts());
            both.reset();
            alone.reset();
            after.iter().for_each(|nanos| alone.record(*nanos));
            if !before.is_empty() {
                prop_assert_eq!(both.counts().since(&earlier), both.counts());
            }
        }
    }
}
