//! What tests on simulated media share: choices that follow from a seed, and seeds by the thousand.
//!
//! A run on a [`SimDisk`](crate::SimDisk) or a watched pool follows from its seed alone. So a test
//! is a function of a seed; it is run for many, and one that fails is run again.

use std::sync::atomic::{AtomicU64, Ordering};

/// Threads of [`each_seed`].
const THREADS: usize = 2;

/// A generator of choices (SplitMix64; Steele, Lea, Flood, 2014): the same seed makes the same
/// choices for ever. Crashes need variety, not strength.
#[derive(Clone, Debug)]
pub struct SeededRng(u64);

impl SeededRng {
    /// The generator with a seed.
    pub fn new(seed: u64) -> SeededRng {
        SeededRng(seed)
    }

    /// The next number, of 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`; 0 if there is none.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit.max(1)
    }

    /// An index of `count` things; 0 if there are none.
    pub fn index(&mut self, count: usize) -> usize {
        // Below a number that was a usize, so it is one.
        usize::try_from(self.below(count as u64)).unwrap_or(usize::MAX)
    }

    /// True once in `count` times.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A bijection of the 64-bit numbers in which every input bit reaches every output bit.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The number in an environment variable, or a default: how large a test is, and where it begins.
///
/// # Panics
/// When the variable holds no number.
pub fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

/// Says where a test was when it panicked: its words are made and printed only then.
pub struct PanicContext<F: Fn() -> String>(pub F);

impl<F: Fn() -> String> Drop for PanicContext<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("while: {}", (self.0)());
        }
    }
}

/// Runs seeds from `first` on, two at a time, as long as `goes_on` says so of the number of seeds
/// that were begun. Returns what the runs returned, in any order; a panic of one is passed on.
pub fn each_seed<T: Send>(
    first: u64,
    goes_on: impl Fn(u64) -> bool + Sync,
    run: impl Fn(u64) -> T + Sync,
) -> Vec<T> {
    let begun = AtomicU64::new(0);
    let worker = || {
        let mut results = Vec::new();
        loop {
            // ORDER: Relaxed; the number stands for itself.
            let number = begun.fetch_add(1, Ordering::Relaxed);
            if !goes_on(number) {
                return results;
            }
            results.push(run(first + number));
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        let results = threads.into_iter().flat_map(|thread| {
            thread
                .join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        });
        results.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        // The first three of seed 1234567, as published with the reference implementation.
        let mut random = SeededRng::new(1_234_567);
        let numbers = [random.word(), random.word(), random.word()];
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
        assert_eq!((random.below(0), random.index(0)), (0, 0));
    }

    #[test]
    fn every_seed_is_run_once_until_enough_were() {
        let mut seeds = each_seed(7, |begun| begun < 100, |seed| seed);
        seeds.sort_unstable();
        assert_eq!(seeds, (7..107).collect::<Vec<_>>());
        assert!(each_seed(7, |_| false, |seed| seed).is_empty());
    }

    #[test]
    #[should_panic(expected = "the seed is 3")]
    fn a_panic_of_a_run_is_the_tests() {
        each_seed(
            0,
            |begun| begun < 5,
            |seed| assert_ne!(seed, 3, "the seed is {seed}"),
        );
    }
}
