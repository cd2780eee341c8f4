//! Zipfian ranks, drawn exactly and without logarithms.
//!
//! Rank `r` (from 1) has the weight `r^-s`. The ranks are cut into bins: the first ones alone, the
//! others a sixteenth of their octave at a time. A draw has two steps:
//!
//! 1. The bin, with the probability of its ranks' weight together, by the alias method (Walker,
//!    "An efficient method for generating discrete random variables with general distributions",
//!    1977; built as Vose has it, 1991): two numbers of a table of some hundred entries.
//! 2. The rank in its bin, by rejection: a uniform one, kept with the probability `(r / first)^-s`.
//!    A bin's last rank is at most a sixteenth above its first, so at least 94 of 100 are kept, and
//!    those whose random number is below the smallest probability of the bin are kept unseen: few
//!    draws come to compute a power.
//!
//! A bin's weight is the sum over its ranks. Where that sum is long it comes from the formula of
//! Euler and Maclaurin, whose first term left out is below 10^-13 of the sum. All draws take
//! constant time, and the table takes some kilobytes, whatever the number of ranks.

use super::rng::Rng;

/// The exponent of all Zipfian distributions, as in YCSB.
pub(crate) const ZIPF_EXPONENT: f64 = 0.99;
/// Ranks that have bins of their own, and bins of each octave after them.
const PARTS: u64 = 16;
/// From this rank on, weights of bins are not summed up rank by rank.
const SUMMED: u64 = 1024;

/// Draws ranks `0..n` with probability proportional to `(rank + 1)^-ZIPF_EXPONENT`.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    bins: Vec<Bin>,
}

/// Some ranks next to each other, and an entry of the alias table.
#[derive(Clone, Copy, Debug)]
struct Bin {
    /// Its first rank, from 1.
    first: u64,
    /// How many ranks it has.
    ranks: u64,
    /// Random numbers below this keep any rank of the bin.
    kept_unseen: u64,
    /// Random numbers from this on choose the other bin instead of this one.
    own: u64,
    /// The other bin.
    other: usize,
}

impl Zipf {
    /// Ranks below `n`, which must not be zero.
    pub(crate) fn new(n: u64) -> Zipf {
        let mut bins = Vec::new();
        let mut first = 1;
        while first <= n {
            // Widths are powers of two, at most a sixteenth of the first rank.
            let width = (1 << first.ilog2()) / PARTS;
            let ranks = width.max(1).min(n - first + 1);
            bins.push(Bin {
                first,
                ranks,
                kept_unseen: fraction(power_over(first, first + ranks - 1)),
                own: u64::MAX,
                other: bins.len(),
            });
            first += ranks;
        }
        let weights: Vec<f64> = bins
            .iter()
            .map(|bin| weight(bin.first, bin.ranks))
            .collect();
        share_out(&mut bins, &weights);
        Zipf { bins }
    }

    /// The next rank.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> u64 {
        // Which bin it is and whether it has one rank or many is as random as the draw, so that a
        // branch on either would be foreseen wrongly half of the time: both are computed.
        let (at, rest) = part(rng.next_u64(), self.bins.len() as u64);
        #[expect(clippy::cast_possible_truncation, reason = "below the number of bins")]
        let at = at as usize;
        let Bin { own, other, .. } = self.bins[at];
        let bin = &self.bins[std::hint::select_unpredictable(rest < own, at, other)];
        let (offset, rest) = part(rng.next_u64(), bin.ranks);
        match rest < bin.kept_unseen {
            true => bin.first - 1 + offset,
            false => bin.keep_or_draw(offset, rest, rng),
        }
    }
}

impl Bin {
    /// The rank at `offset` if `rest` keeps it, or else a new draw from the bin.
    #[cold]
    fn keep_or_draw(&self, mut offset: u64, mut rest: u64, rng: &mut Rng) -> u64 {
        while rest >= self.kept_unseen
            && rest >= fraction(power_over(self.first, self.first + offset))
        {
            if self.ranks == 1 {
                break;
            }
            (offset, rest) = part(rng.next_u64(), self.ranks);
        }
        self.first - 1 + offset
    }
}

/// Cuts a random number in two: one below `parts`, and one of 64 bits, uniform to within
/// `parts / 2^64`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "both halves are wanted")]
fn part(random: u64, parts: u64) -> (u64, u64) {
    let wide = u128::from(random) * u128::from(parts);
    ((wide >> 64) as u64, wide as u64)
}

/// A part of one as a part of 2^64.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number that is too large becomes the largest one"
)]
fn fraction(part: f64) -> u64 {
    (part * 2f64.powi(64)) as u64
}

/// The weight of `rank` as a part of that of `first`.
fn power_over(first: u64, rank: u64) -> f64 {
    (rank as f64 / first as f64).powf(-ZIPF_EXPONENT)
}

/// The sum of the weights of `ranks` ranks from `first` on.
fn weight(first: u64, ranks: u64) -> f64 {
    if first < SUMMED {
        return (first..first + ranks)
            .map(|rank| (rank as f64).powf(-ZIPF_EXPONENT))
            .sum();
    }
    let (a, b) = (first as f64, (first + ranks) as f64);
    let left = 1.0 - ZIPF_EXPONENT;
    // The integral by the difference of exponents: the powers themselves differ too little.
    let integral = a.powf(left) * (left * (b / a).ln()).exp_m1() / left;
    let height = |x: f64| x.powf(-ZIPF_EXPONENT);
    let slope = |x: f64| -ZIPF_EXPONENT * height(x) / x;
    integral + (height(a) - height(b)) / 2.0 + (slope(b) - slope(a)) / 12.0
}

/// Builds the alias table: each entry is a bin that fills it in part, and another one that fills
/// the rest.
fn share_out(bins: &mut [Bin], weights: &[f64]) {
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    let mut left: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) =
        (0..bins.len()).partition(|at| left[*at] < 1.0);
    while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
        bins[poor].own = fraction(left[poor]);
        bins[poor].other = rich;
        left[rich] -= 1.0 - left[poor];
        if left[rich] < 1.0 {
            large.pop();
            small.push(rich);
        }
    }
    // What is left in either list is whole but for rounding, and stays its own.
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Whether `hits` of `draws` is within five standard deviations of probability `p`.
    fn agrees(hits: u64, draws: u64, p: f64) -> bool {
        let mean = draws as f64 * p;
        let deviation = (mean * (1.0 - p)).sqrt();
        (hits as f64 - mean).abs() <= 5.0 * deviation + 1.0
    }

    fn sum(ranks: std::ops::RangeInclusive<u64>) -> f64 {
        ranks.map(|rank| (rank as f64).powf(-ZIPF_EXPONENT)).sum()
    }

    /// The probability of every rank, as the table gives it.
    fn probabilities(n: u64) -> Vec<f64> {
        let zipf = Zipf::new(n);
        let mut of_bin = vec![0.0; zipf.bins.len()];
        for (at, bin) in zipf.bins.iter().enumerate() {
            let own = match bin.other {
                other if other == at => 1.0,
                _ => bin.own as f64 / 2f64.powi(64),
            };
            of_bin[at] += own;
            of_bin[bin.other] += 1.0 - own;
        }
        let count = zipf.bins.len() as f64;
        let mut probabilities = Vec::new();
        for (bin, part) in zipf.bins.iter().zip(of_bin) {
            let kept = (0..bin.ranks).map(|at| power_over(bin.first, bin.first + at));
            let all: f64 = kept.clone().sum();
            probabilities.extend(kept.map(|kept| part / count * kept / all));
        }
        probabilities
    }

    /// The table itself is compared, so that no draw's chance hides an error.
    #[test]
    fn the_table_gives_every_rank_its_probability() {
        for n in [1, 2, 17, 18, 1000, 1025, 100_000] {
            let all = sum(1..=n);
            let probabilities = probabilities(n);
            assert_eq!(probabilities.len() as u64, n);
            for (rank, got) in (1u64..).zip(probabilities) {
                let want = (rank as f64).powf(-ZIPF_EXPONENT) / all;
                assert!(
                    (got / want - 1.0).abs() < 1e-11,
                    "{rank} of {n}: {got} {want}"
                );
            }
        }
    }

    #[test]
    fn weights_are_sums() {
        for (first, ranks) in [(1024, 64), (1024, 1), (5000, 256), (1 << 22, 1 << 18)] {
            let (got, want) = (weight(first, ranks), sum(first..=first + ranks - 1));
            assert!(
                (got / want - 1.0).abs() < 1e-11,
                "{first} {ranks}: {got} {want}"
            );
        }
    }

    #[test]
    fn every_rank_is_drawn_with_its_probability() {
        let n = 1000;
        let zipf = Zipf::new(n);
        let mut rng = Rng::new(11, 0);
        let draws = 1_000_000;
        let mut counts = vec![0u64; 1000];
        for _ in 0..draws {
            counts[usize::try_from(zipf.draw(&mut rng)).unwrap()] += 1;
        }
        let all = sum(1..=n);
        for (rank, count) in (1u64..).zip(&counts) {
            let p = (rank as f64).powf(-ZIPF_EXPONENT) / all;
            assert!(
                agrees(*count, draws, p),
                "rank {rank}: {count} of {draws}, {p}"
            );
        }
    }

    #[test]
    fn the_tail_of_a_large_range_is_drawn_with_its_probability() {
        let n = 2_000_000;
        let zipf = Zipf::new(n);
        let mut rng = Rng::new(12, 0);
        let draws = 200_000;
        let mut below = [0u64; 4];
        let limits = [1, 100, 10_000, 1_000_000];
        for _ in 0..draws {
            let rank = zipf.draw(&mut rng);
            assert!(rank < n);
            for (count, limit) in below.iter_mut().zip(limits) {
                *count += u64::from(rank < limit);
            }
        }
        let all = sum(1..=n);
        for (count, limit) in below.into_iter().zip(limits) {
            let part = sum(1..=limit) / all;
            assert!(agrees(count, draws, part), "{count} below {limit}");
        }
    }

    #[test]
    fn the_smallest_and_the_largest_ranges_work() {
        let mut rng = Rng::new(13, 0);
        for n in 1..4 {
            let zipf = Zipf::new(n);
            let seen: HashSet<u64> = (0..1000).map(|_| zipf.draw(&mut rng)).collect();
            assert_eq!(seen, (0..n).collect());
        }
        let zipf = Zipf::new(1 << 60);
        assert!(zipf.bins.len() < 1000);
        assert!((0..1000).all(|_| zipf.draw(&mut rng) < 1 << 60));
    }
}
