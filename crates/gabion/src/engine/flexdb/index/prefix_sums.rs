//! Lengths in a row, and the sums of those in front.

use std::sync::atomic::{AtomicU64, Ordering};

/// Lengths that are also summed up together.
const GROUP: usize = 64;

/// Lengths, which those change who hold the lock of the index alone.
#[derive(Debug)]
pub(super) struct PrefixSums {
    lens: Vec<AtomicU64>,
    groups: Vec<AtomicU64>,
}

impl PrefixSums {
    pub(super) fn new(lens: impl Iterator<Item = u64>) -> PrefixSums {
        let lens: Vec<u64> = lens.collect();
        let groups = lens.chunks(GROUP).map(|group| group.iter().sum::<u64>());
        PrefixSums {
            groups: groups.map(AtomicU64::new).collect(),
            lens: lens.into_iter().map(AtomicU64::new).collect(),
        }
    }

    pub(super) fn get(&self, at: usize) -> u64 {
        // ORDER: Relaxed; the lock of the index orders changes and those who rely on them.
        self.lens[at].load(Ordering::Relaxed)
    }

    /// The sum of the first `count` lengths. A look at each group and at the lengths of one.
    pub(super) fn before(&self, count: usize) -> u64 {
        let whole = &self.groups[..count / GROUP];
        let part = &self.lens[whole.len() * GROUP..count];
        // ORDER: Relaxed, as in `get`.
        let sum = |lens: &[AtomicU64]| -> u64 {
            lens.iter().map(|len| len.load(Ordering::Relaxed)).sum()
        };
        sum(whole) + sum(part)
    }

    /// Adds `delta`, which may be negative in two's complement, to a length.
    pub(super) fn add(&self, at: usize, delta: u64) {
        for sum in [&self.lens[at], &self.groups[at / GROUP]] {
            // ORDER: Relaxed (both), as in `get`; nobody else changes it meanwhile.
            let now = sum.load(Ordering::Relaxed).wrapping_add(delta);
            sum.store(now, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_equal_their_twin() {
        let mut twin: Vec<u64> = (0..300).map(|at| at * 7 % 50).collect();
        let sums = PrefixSums::new(twin.iter().copied());
        for round in 0..100_usize {
            let at = round * 89 % twin.len();
            let delta = if round % 3 == 0 {
                twin[at].wrapping_neg()
            } else {
                round as u64
            };
            twin[at] = twin[at].wrapping_add(delta);
            sums.add(at, delta);
            for count in [0, 1, at, 64, 128, 255, 256, 300] {
                assert_eq!(sums.before(count), twin[..count].iter().sum::<u64>());
            }
            assert_eq!(sums.get(at), twin[at]);
        }
    }
}
