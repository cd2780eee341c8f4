//! Random numbers for workloads: small, fast, and the same on every machine for the same seed.
//!
//! SplitMix64 (Steele, Lea, Flood, 2014): a Weyl sequence through a mixing function. Every seed
//! gives a full period of 2^64, so threads may use neighbouring seeds after one mixing step.

/// The increment of the Weyl sequence: 2^64 divided by the golden ratio, made odd.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A deterministic source of random numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The source for one stream (a thread, say) of one seed. Streams of one seed are unrelated.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut rng = Rng {
            state: mix(seed ^ mix(stream.wrapping_add(GOLDEN))),
        };
        rng.next_u64();
        rng
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// A number in `0..bound`, uniform to within `bound / 2^64`. `bound` must not be zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        below(self.next_u64(), bound)
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// A random number cut down to `0..bound`, uniform to within `bound / 2^64`.
#[inline]
pub(crate) fn below(random: u64, bound: u64) -> u64 {
    let wide = u128::from(random) * u128::from(bound);
    (wide >> 64) as u64
}

/// A bijection of the 64-bit numbers in which every input bit reaches every output bit.
#[inline]
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_and_streams_differ() {
        let take = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.next_u64(), rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(take(7, 1), take(7, 1));
        assert_ne!(take(7, 1), take(7, 2));
        assert_ne!(take(7, 1), take(8, 1));
    }

    #[test]
    fn below_fills_its_range_evenly() {
        let mut rng = Rng::new(1, 0);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[usize::try_from(rng.below(10)).unwrap()] += 1;
        }
        // Each count has mean 10,000 and standard deviation 95; five of those are allowed.
        for count in counts {
            assert!((9_525..=10_475).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn unit_has_the_mean_and_variance_of_the_uniform_distribution() {
        let mut rng = Rng::new(2, 0);
        let (mut sum, mut squares) = (0.0, 0.0);
        let n = 100_000;
        for _ in 0..n {
            let u = rng.unit();
            assert!((0.0..1.0).contains(&u));
            sum += u;
            squares += u * u;
        }
        let mean = sum / f64::from(n);
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        assert!((squares / f64::from(n) - 1.0 / 3.0).abs() < 0.005);
    }

    #[test]
    fn bytes_has_the_length_asked_for() {
        for len in [0, 1, 8, 13] {
            assert_eq!(Rng::new(3, 0).bytes(len).len(), len);
        }
    }
}
