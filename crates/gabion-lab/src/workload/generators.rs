//! Key distributions: choose the record of the next request.
//!
//! Every generator takes constant time and memory per draw and gives the same sequence for the
//! same seed.
//!
//! - *uniform*: every record equally likely.
//! - *zipfian*: rank r (from 1) with probability r^-0.99 / H, the ranks spread over the key space
//!   by a permutation, so that the popular keys are not neighbours. Drawn exactly (see
//!   [`zipf`](super::zipf)), and not by the approximation that YCSB uses.
//! - *latest*: Zipfian over age; the newest record is the most popular.
//! - *sequential*: one after the other in key order.
//! - *zipfian-composite*: the first part of a key Zipfian, the rest uniform, as when a popular user
//!   owns many records: neighbours are popular together.
//! - *exponential*: the first keys most likely, with a mean of a tenth of the key space: popular
//!   records are neighbours.
//! - *regions*: four quarters of the key space in turn, each for a quarter of the draws:
//!   exponential, normal (its mean in the middle, its standard deviation an eighth of the region),
//!   uniform, and exponential from the end downwards (WipDB paper, section 2.4.2).
//! - *shuffled*: every record once, in the permutation's order. Loads use it.

use serde::{Deserialize, Serialize};

use super::keys::{GENERATION_MAX, KeyId};
use super::rng::{Rng, mix};
use super::zipf::Zipf;

/// First parts of keys in *zipfian-composite*: those that three decimal digits can tell apart
/// (FlexSpace paper, section 6.2).
const COMPOSITE_GROUPS: u64 = 1000;
/// Mean of *exponential* as a part of its range.
const EXPONENTIAL_MEAN: f64 = 0.1;
/// Standard deviation of the normal region as a part of it.
const NORMAL_DEVIATION: f64 = 0.125;
/// Regions of *regions*.
const REGIONS: u64 = 4;

/// How requests choose their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Every record equally likely.
    Uniform,
    /// Few records take most requests; the popular ones are spread over the key space.
    Zipfian,
    /// New records are the popular ones.
    Latest,
    /// In key order.
    Sequential,
    /// Few groups of neighbouring records take most requests.
    ZipfianComposite,
    /// Neighbouring records at the start of the key space take most requests.
    Exponential,
    /// Four parts of the key space in turn, each with a distribution of its own.
    Regions,
    /// Every record once, in random order.
    Shuffled,
}

impl Distribution {
    /// The name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Uniform => "uniform",
            Distribution::Zipfian => "zipfian",
            Distribution::Latest => "latest",
            Distribution::Sequential => "sequential",
            Distribution::ZipfianComposite => "zipfian-composite",
            Distribution::Exponential => "exponential",
            Distribution::Regions => "regions",
            Distribution::Shuffled => "shuffled",
        }
    }
}

/// A permutation of `0..n` that looks random, in constant memory: a bijection of the smallest power
/// of two that holds `n`, repeated until the image is below `n` (fewer than two rounds on average).
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    n: u64,
    mask: u64,
    shift: u32,
    offset: u64,
}

impl Permutation {
    /// A permutation of `0..n`, one per seed. `n` must not be zero.
    pub(crate) fn new(n: u64, seed: u64) -> Permutation {
        let bits = (64 - (n - 1).leading_zeros()).max(1);
        Permutation {
            n,
            mask: u64::MAX >> (64 - bits),
            shift: (bits / 2).max(1),
            offset: mix(seed),
        }
    }

    /// The image of `x`, which must be below `n` or what rounds made of such a number.
    #[inline]
    pub(crate) fn apply(&self, mut x: u64) -> u64 {
        loop {
            x = self.round(x);
            if x < self.n {
                return x;
            }
        }
    }

    /// Replaces numbers by their images. That a round leaves the range is as random as the image,
    /// so the second round is always computed: three of four need no third one, at worst.
    #[inline]
    fn apply_all(&self, ids: &mut [KeyId]) {
        for id in ids {
            let first = self.round(id.number);
            let second = self.round(first);
            id.number = std::hint::select_unpredictable(first < self.n, first, second);
            if id.number >= self.n {
                id.number = self.apply(id.number);
            }
        }
    }

    /// A bijection of the numbers up to `mask`.
    #[inline]
    fn round(&self, mut x: u64) -> u64 {
        // Adding, multiplying by an odd number and xor with the own high bits are each bijections
        // of the numbers of so many bits.
        x = x.wrapping_add(self.offset) & self.mask;
        x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15) & self.mask;
        x ^= x >> self.shift;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9) & self.mask;
        x ^= x >> self.shift;
        x = x.wrapping_mul(0x94D0_49BB_1331_11EB) & self.mask;
        x ^ (x >> self.shift)
    }
}

/// The records of a run in order of age: item `i` is the i-th record that a load writes, and items
/// from `num` on are inserted by workloads.
#[derive(Clone, Debug)]
pub(crate) struct Items {
    num: u64,
    permutation: Permutation,
}

impl Items {
    /// `num` records, whose keys a permutation chosen by `seed` gives to ages.
    pub(crate) fn new(num: u64, seed: u64) -> Items {
        Items {
            num,
            permutation: Permutation::new(num, seed),
        }
    }

    /// How many items can have keys of their own.
    pub(crate) fn capacity(&self) -> u64 {
        self.num.saturating_mul(GENERATION_MAX + 1)
    }

    /// The record that is item `item`.
    #[inline]
    pub(crate) fn record(&self, item: u64) -> KeyId {
        if item < self.num {
            return KeyId {
                number: self.permutation.apply(item),
                generation: 0,
            };
        }
        KeyId {
            number: self.permutation.apply(item % self.num),
            generation: item / self.num,
        }
    }
}

/// Where part `part` of `parts` equal parts of `0..whole` starts and ends.
#[inline]
pub(crate) fn part_of(part: u64, parts: u64, whole: u64) -> (u64, u64) {
    let cut = |part: u64| {
        if let Some(product) = part.checked_mul(whole) {
            return product / parts;
        }
        let at = u128::from(part) * u128::from(whole) / u128::from(parts);
        #[expect(clippy::cast_possible_truncation, reason = "at most `whole`")]
        let at = at as u64;
        at
    };
    (cut(part), cut(part + 1))
}

/// A place in `[0, 1)` from the exponential distribution, cut off at 1.
#[inline]
fn exponential(rng: &mut Rng) -> f64 {
    let kept = -(-1.0 / EXPONENTIAL_MEAN).exp_m1();
    let place = -EXPONENTIAL_MEAN * (-rng.unit() * kept).ln_1p();
    place.clamp(0.0, BELOW_ONE)
}

/// A place in `[0, 1)` from the normal distribution around the middle, cut off at both ends.
#[inline]
fn normal(rng: &mut Rng) -> f64 {
    loop {
        // Box and Muller's transformation; the draw under the logarithm is never zero.
        let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
        let angle = std::f64::consts::TAU * rng.unit();
        let place = 0.5 + NORMAL_DEVIATION * radius * angle.cos();
        if (0.0..1.0).contains(&place) {
            return place;
        }
    }
}

/// The largest number below one.
const BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

/// The record at `place`, from 0 to below 1, of the records from `start` to before `end`.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in the range, cut to its record"
)]
fn record_at(place: f64, start: u64, end: u64) -> u64 {
    let length = end - start;
    start + ((place * length as f64) as u64).min(length.saturating_sub(1))
}

/// One thread's draws from a distribution.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    items: Items,
    rng: Rng,
    draw: Draw,
}

#[derive(Clone, Debug)]
enum Draw {
    Uniform,
    Zipfian(Zipf),
    Latest(Zipf),
    Sequential {
        next: u64,
    },
    /// Groups by popularity, and where each starts and ends.
    Composite {
        groups: Zipf,
        ranges: Vec<(u64, u64)>,
    },
    Exponential,
    Regions {
        drawn: u64,
        expected: u64,
    },
    Shuffled {
        next: u64,
    },
}

impl Generator {
    /// Draws for a thread that starts its own part of the key space at item `first`, which matters
    /// to the distributions that go through the records in an order, and that will draw about
    /// `expected` times, which matters to those that change over time.
    pub(crate) fn new(
        distribution: Distribution,
        items: &Items,
        first: u64,
        expected: u64,
        seed: u64,
        stream: u64,
    ) -> Generator {
        let num = items.num;
        let draw = match distribution {
            Distribution::Uniform => Draw::Uniform,
            Distribution::Zipfian => Draw::Zipfian(Zipf::new(num)),
            Distribution::Latest => Draw::Latest(Zipf::new(num)),
            Distribution::Sequential => Draw::Sequential { next: first },
            Distribution::ZipfianComposite => {
                let groups = COMPOSITE_GROUPS.min(num);
                let spread = Permutation::new(groups, seed);
                let range = |rank| part_of(spread.apply(rank), groups, num);
                Draw::Composite {
                    groups: Zipf::new(groups),
                    ranges: (0..groups).map(range).collect(),
                }
            }
            Distribution::Exponential => Draw::Exponential,
            Distribution::Regions => Draw::Regions {
                drawn: 0,
                expected: expected.max(1),
            },
            Distribution::Shuffled => Draw::Shuffled { next: first },
        };
        Generator {
            items: items.clone(),
            rng: Rng::new(seed, stream),
            draw,
        }
    }

    /// The next records, as many as `ids` has room for. `items_written` is the number of items that
    /// the store holds now; only *latest* looks at it.
    #[inline]
    pub(crate) fn fill(&mut self, ids: &mut [KeyId], items_written: u64) {
        let Generator { items, rng, draw } = self;
        let num = items.num;
        match draw {
            Draw::Uniform => ids.fill_with(|| in_order(rng.below(num))),
            Draw::Zipfian(zipf) => {
                ids.fill_with(|| in_order(zipf.draw(rng)));
                items.permutation.apply_all(ids);
            }
            Draw::Latest(zipf) => ids.fill_with(|| {
                let age = zipf.draw(rng);
                items.record(items_written.saturating_sub(1 + age))
            }),
            Draw::Sequential { next } => ids.fill_with(|| in_order(step(next, num))),
            Draw::Composite { groups, ranges } => ids.fill_with(|| {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "below the number of groups"
                )]
                let (start, end) = ranges[groups.draw(rng) as usize];
                in_order(start + rng.below(end - start))
            }),
            Draw::Exponential => ids.fill_with(|| in_order(record_at(exponential(rng), 0, num))),
            Draw::Regions { drawn, expected } => ids.fill_with(|| {
                let region = (*drawn * REGIONS / *expected).min(REGIONS - 1);
                *drawn += 1;
                let place = match region {
                    0 => exponential(rng),
                    1 => normal(rng),
                    2 => rng.unit(),
                    _ => BELOW_ONE - exponential(rng),
                };
                let (start, end) = part_of(region, REGIONS, num);
                in_order(record_at(place, start, end).min(num - 1))
            }),
            Draw::Shuffled { next } => {
                ids.fill_with(|| in_order(step(next, num)));
                items.permutation.apply_all(ids);
            }
        }
    }

    /// The next record, as [`Generator::fill`] gives it.
    #[cfg(test)]
    fn next(&mut self, items_written: u64) -> KeyId {
        let mut ids = [KeyId::default()];
        self.fill(&mut ids, items_written);
        ids[0]
    }

    /// Random numbers for the choices around the keys, unrelated to those of the keys.
    pub(crate) fn split(&mut self) -> Rng {
        Rng::new(self.rng.next_u64(), 0)
    }
}

/// The record of a fill that has this place in key order.
#[inline]
fn in_order(number: u64) -> KeyId {
    KeyId {
        number,
        generation: 0,
    }
}

/// Steps from `next` to the number after it, and from the last one below `num` to 0.
#[inline]
fn step(next: &mut u64, num: u64) -> u64 {
    let number = if *next < num { *next } else { *next % num };
    *next = number + 1;
    number
}

#[cfg(test)]
mod tests {
    use super::super::zipf::ZIPF_EXPONENT;
    use super::*;
    use std::collections::HashSet;

    fn generator(distribution: Distribution, num: u64) -> Generator {
        Generator::new(distribution, &Items::new(num, 42), 0, num, 42, 7)
    }

    fn probability(rank: u64, n: u64) -> f64 {
        let weight = |rank: u64| ((rank + 1) as f64).powf(-ZIPF_EXPONENT);
        weight(rank) / (0..n).map(weight).sum::<f64>()
    }

    /// Whether `hits` of `draws` is within five standard deviations of probability `p`.
    fn agrees(hits: u64, draws: u64, p: f64) -> bool {
        let mean = draws as f64 * p;
        let deviation = (mean * (1.0 - p)).sqrt();
        (hits as f64 - mean).abs() <= 5.0 * deviation + 1.0
    }

    #[test]
    fn a_permutation_reaches_every_number_once() {
        for n in [1, 2, 3, 7, 8, 9, 1000, 65_536, 100_001] {
            let permutation = Permutation::new(n, 5);
            let seen: HashSet<u64> = (0..n).map(|x| permutation.apply(x)).collect();
            assert_eq!(seen.len() as u64, n);
            assert!(seen.iter().all(|x| *x < n));
            let mut ids: Vec<KeyId> = (0..n).map(in_order).collect();
            permutation.apply_all(&mut ids);
            let images = (0..n).map(|x| in_order(permutation.apply(x)));
            assert!(images.eq(ids), "{n} at once");
        }
    }

    #[test]
    fn a_permutation_leaves_no_order() {
        let n = 100_000;
        let permutation = Permutation::new(n, 6);
        let ascending = (1..n)
            .filter(|x| permutation.apply(*x) > permutation.apply(x - 1))
            .count();
        assert!(agrees(ascending as u64, n - 1, 0.5), "{ascending}");
    }

    #[test]
    fn uniform_reaches_every_record_equally_often() {
        let mut generator = generator(Distribution::Uniform, 100);
        let draws = 200_000;
        let mut counts = vec![0u64; 100];
        for _ in 0..draws {
            let id = generator.next(100);
            assert_eq!(id.generation, 0);
            counts[usize::try_from(id.number).unwrap()] += 1;
        }
        assert!(counts.iter().all(|c| agrees(*c, draws, 0.01)), "{counts:?}");
    }

    #[test]
    fn zipfian_gives_the_permuted_ranks_their_probabilities() {
        let num = 500;
        let items = Items::new(num, 42);
        let mut generator = generator(Distribution::Zipfian, num);
        let draws = 200_000;
        let mut counts = vec![0u64; 500];
        for _ in 0..draws {
            counts[usize::try_from(generator.next(num).number).unwrap()] += 1;
        }
        for rank in 0..num {
            let number = usize::try_from(items.record(rank).number).unwrap();
            assert!(
                agrees(counts[number], draws, probability(rank, num)),
                "rank {rank}"
            );
        }
    }

    #[test]
    fn latest_prefers_the_newest_items_also_inserted_ones() {
        let num = 1000;
        let items = Items::new(num, 42);
        let mut generator = generator(Distribution::Latest, num);
        let written = num + 10;
        let draws = 100_000;
        let mut newest = 0;
        let mut inserted = 0;
        for _ in 0..draws {
            let id = generator.next(written);
            newest += u64::from(id == items.record(written - 1));
            inserted += u64::from(id.generation == 1);
        }
        assert!(agrees(newest, draws, probability(0, num)));
        let ten: f64 = (0..10).map(|age| probability(age, num)).sum();
        assert!(agrees(inserted, draws, ten));
    }

    #[test]
    fn sequential_goes_round_in_key_order() {
        let items = Items::new(5, 1);
        let mut generator = Generator::new(Distribution::Sequential, &items, 3, 7, 1, 0);
        let numbers: Vec<u64> = (0..7).map(|_| generator.next(5).number).collect();
        assert_eq!(numbers, [3, 4, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn composite_is_zipfian_over_groups_and_uniform_inside() {
        let num = 20_500;
        let spread = Permutation::new(COMPOSITE_GROUPS, 42);
        let mut generator = generator(Distribution::ZipfianComposite, num);
        let draws = 400_000;
        let mut counts = vec![0u64; 20_500];
        for _ in 0..draws {
            counts[usize::try_from(generator.next(num).number).unwrap()] += 1;
        }
        for rank in 0..COMPOSITE_GROUPS {
            let (start, end) = part_of(spread.apply(rank), COMPOSITE_GROUPS, num);
            let group = &counts[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()];
            let count = group.iter().sum();
            assert!(
                agrees(count, draws, probability(rank, COMPOSITE_GROUPS)),
                "rank {rank}"
            );
            for one in group {
                assert!(
                    agrees(*one, count, 1.0 / group.len() as f64),
                    "rank {rank}: {group:?}"
                );
            }
        }
    }

    /// How far the empirical distribution of `places` is from `cdf` at most.
    fn distance(mut places: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
        places.sort_by(f64::total_cmp);
        let count = places.len() as f64;
        let gap = |(at, place): (usize, &f64)| {
            let expected = cdf(*place);
            (expected - at as f64 / count)
                .abs()
                .max((expected - (at + 1) as f64 / count).abs())
        };
        places.iter().enumerate().map(gap).fold(0.0, f64::max)
    }

    /// The bound of Kolmogorov and Smirnov's test that one of 10,000 right samples exceeds.
    fn distance_max(count: u64) -> f64 {
        2.23 / (count as f64).sqrt()
    }

    fn exponential_cdf(place: f64) -> f64 {
        (-place / EXPONENTIAL_MEAN).exp_m1() / (-1.0 / EXPONENTIAL_MEAN).exp_m1()
    }

    #[test]
    fn uniform_and_exponential_have_their_distribution_functions() {
        let (num, draws) = (10_000_000, 100_000);
        type Cdf = fn(f64) -> f64;
        let cases: [(Distribution, Cdf); 2] = [
            (Distribution::Uniform, |place| place),
            (Distribution::Exponential, exponential_cdf),
        ];
        for (distribution, cdf) in cases {
            let mut generator = generator(distribution, num);
            let mut draw = |_| generator.next(num).number as f64 / num as f64;
            let apart = distance((0..draws).map(&mut draw).collect(), cdf);
            assert!(apart < distance_max(draws), "{distribution:?}: {apart}");
        }
    }

    #[test]
    fn regions_come_in_turn_each_with_its_distribution() {
        let num = 400_000u64;
        let mut generator = generator(Distribution::Regions, num);
        let region = num / REGIONS;
        let normal_density = |place: f64| (-((place - 0.5) / NORMAL_DEVIATION).powi(2) / 2.0).exp();
        let steps = 10_000u32;
        let mut below = vec![0.0];
        for step in 0..steps {
            let middle = (f64::from(step) + 0.5) / f64::from(steps);
            below.push(below.last().unwrap() + normal_density(middle));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "in 0..1"
        )]
        let normal_cdf =
            |place: f64| below[(place * f64::from(steps)) as usize] / below.last().unwrap();
        let cdfs: [&dyn Fn(f64) -> f64; 4] =
            [&exponential_cdf, &normal_cdf, &|place| place, &|place| {
                1.0 - exponential_cdf(1.0 - place)
            }];
        for (at, cdf) in (0u64..).zip(cdfs) {
            let mut draw = |_| {
                let number = generator.next(num).number;
                assert_eq!(number / region, at, "{number}");
                (number % region) as f64 / region as f64
            };
            let apart = distance((0..region).map(&mut draw).collect(), cdf);
            assert!(apart < distance_max(region), "region {at}: {apart}");
        }
        assert!(
            generator.next(num).number / region == 3,
            "the last region stays"
        );
    }

    #[test]
    fn parts_cover_the_whole_without_overlap() {
        for (parts, whole) in [(1, 10), (3, 10), (1000, 1000), (7, u64::MAX)] {
            let mut at = 0;
            for part in 0..parts {
                let (start, end) = part_of(part, parts, whole);
                assert_eq!(start, at);
                assert!(end > start);
                at = end;
            }
            assert_eq!(at, whole);
        }
    }

    #[test]
    fn shuffled_reaches_every_record_once() {
        let num = 3000;
        let mut generator = generator(Distribution::Shuffled, num);
        let seen: HashSet<u64> = (0..num).map(|_| generator.next(num).number).collect();
        assert_eq!(seen.len(), 3000);
    }

    #[test]
    fn items_beyond_the_load_are_new_records() {
        let items = Items::new(10, 1);
        let ids: HashSet<KeyId> = (0..30).map(|item| items.record(item)).collect();
        assert_eq!(ids.len(), 30);
        assert_eq!(items.capacity(), 10 * (GENERATION_MAX + 1));
    }

    #[test]
    fn one_seed_gives_one_sequence() {
        for distribution in [
            Distribution::Uniform,
            Distribution::Zipfian,
            Distribution::Latest,
            Distribution::ZipfianComposite,
            Distribution::Exponential,
            Distribution::Regions,
        ] {
            let mut a = generator(distribution, 10_000);
            let mut b = generator(distribution, 10_000);
            assert!(
                (0..1000).all(|_| a.next(10_000) == b.next(10_000)),
                "{distribution:?}"
            );
        }
    }
}
