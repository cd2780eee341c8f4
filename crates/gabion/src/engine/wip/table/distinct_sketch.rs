//! How many distinct keys are in a set of tables, without reading them.
//!
//! # Idea
//! A HyperLogLog sketch (Flajolet et al. 2007): the hash of every key selects one of 1024
//! registers, and the register keeps the largest rank seen, the rank being the position of the
//! first set bit in the rest of the hash. The sketch of a union is the maximum of the registers, so
//! the engine knows how many keys a compaction of several tables would leave before it reads a
//! byte. The estimate is Ertl's improved raw estimator (arXiv:1702.01284, algorithm 6), which is
//! unbiased from zero on and needs no tables of corrections. Its standard error is
//! 1.04 / sqrt(1024) = 3.3 %.
//!
//! # Layout of the encoded sketch
//! Little-endian. First byte: the form. Unknown forms are refused.
//!
//! | form | what follows |
//! |---|---|
//! | 1, sparse | for every register that is not zero, ascending: u16 = register << 6 \| rank |
//! | 2, dense | the 1024 ranks, 6 bits each, four ranks in three bytes, lowest bits first |
//!
//! # Invariants
//! - I1: a rank is at most [`RANK_MAX`]; decoding refuses larger ones, so the estimate is finite.
//! - I2: the encoding is a function of the registers: sparse exactly when it is shorter.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

/// log2 of the number of registers.
const INDEX_BITS: u32 = 10;
const REGISTERS: usize = 1 << INDEX_BITS;
/// All 54 remaining bits of the hash are zero.
const RANK_MAX: u8 = 64 - 10 + 1;

const FORM_SPARSE: u8 = 1;
const FORM_DENSE: u8 = 2;
const DENSE_BYTES: usize = REGISTERS * 6 / 8;

/// Estimates the number of distinct keys added; sketches of several tables can be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DistinctSketch {
    ranks: Box<[u8; REGISTERS]>,
}

impl Default for DistinctSketch {
    fn default() -> DistinctSketch {
        DistinctSketch {
            ranks: Box::new([0; REGISTERS]),
        }
    }
}

impl DistinctSketch {
    /// Counts the key with this hash (of [`crate::types::hash_key`]); twice is as good as once.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64) {
        let register = (hash >> (64 - INDEX_BITS)) as usize;
        let rest = (hash << INDEX_BITS) | (1 << (INDEX_BITS - 1));
        #[expect(clippy::cast_possible_truncation, reason = "leading zeros of 64 bits")]
        let rank = rest.leading_zeros() as u8 + 1;
        if let Some(kept) = self.ranks.get_mut(register) {
            *kept = (*kept).max(rank);
        }
    }

    /// Makes this the sketch of the union of both sets.
    pub(crate) fn merge(&mut self, other: &DistinctSketch) {
        for (kept, rank) in self.ranks.iter_mut().zip(other.ranks.iter()) {
            *kept = (*kept).max(*rank);
        }
    }

    /// The estimated number of distinct keys; standard error 3.3 %.
    pub(crate) fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let zeros = self.ranks.iter().filter(|rank| **rank == 0).count();
        let mut sum = registers * sigma(zeros as f64 / registers);
        for rank in self.ranks.iter().filter(|rank| **rank > 0) {
            sum += (-f64::from(*rank)).exp2();
        }
        let estimate = registers * registers / (2.0 * std::f64::consts::LN_2 * sum);
        #[expect(clippy::cast_possible_truncation, reason = "saturates, by intention")]
        #[expect(clippy::cast_sign_loss, reason = "never negative")]
        let rounded = estimate.round() as u64;
        rounded
    }

    /// The bytes that [`DistinctSketch::decode`] takes, at most 769.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let used = self.ranks.iter().filter(|rank| **rank > 0).count();
        if used * 2 >= DENSE_BYTES {
            return self.encode_dense();
        }
        let mut bytes = Vec::with_capacity(1 + used * 2);
        bytes.push(FORM_SPARSE);
        for (register, rank) in (0u16..).zip(self.ranks.iter()) {
            if *rank > 0 {
                bytes.extend_from_slice(&(register << 6 | u16::from(*rank)).to_le_bytes());
            }
        }
        bytes
    }

    fn encode_dense(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + DENSE_BYTES);
        bytes.push(FORM_DENSE);
        for four in self.ranks.chunks_exact(4) {
            let word = four
                .iter()
                .rev()
                .fold(0u32, |word, rank| word << 6 | u32::from(*rank));
            bytes.extend(word.to_le_bytes().iter().take(3));
        }
        bytes
    }

    /// Decodes what [`DistinctSketch::encode`] made; `None` when the bytes are no sketch.
    pub(crate) fn decode(bytes: &[u8]) -> Option<DistinctSketch> {
        let (form, body) = bytes.split_first()?;
        let sketch = match *form {
            FORM_SPARSE => DistinctSketch::decode_sparse(body)?,
            FORM_DENSE => DistinctSketch::decode_dense(body)?,
            _ => return None,
        };
        let sound = sketch.ranks.iter().all(|rank| *rank <= RANK_MAX);
        sound.then_some(sketch)
    }

    fn decode_sparse(body: &[u8]) -> Option<DistinctSketch> {
        let (pairs, rest) = body.as_chunks::<2>();
        if !rest.is_empty() {
            return None;
        }
        let mut sketch = DistinctSketch::default();
        for pair in pairs {
            let word = u16::from_le_bytes(*pair);
            let rank = sketch.ranks.get_mut(usize::from(word >> 6))?;
            *rank = u8::try_from(word & 63).ok()?;
        }
        Some(sketch)
    }

    fn decode_dense(body: &[u8]) -> Option<DistinctSketch> {
        if body.len() != DENSE_BYTES {
            return None;
        }
        let mut sketch = DistinctSketch::default();
        let (triples, _) = body.as_chunks::<3>();
        for (four, [a, b, c]) in sketch.ranks.chunks_exact_mut(4).zip(triples) {
            let word = u32::from_le_bytes([*a, *b, *c, 0]);
            for (position, rank) in (0u32..).zip(four) {
                *rank = u8::try_from(word >> (6 * position) & 63).ok()?;
            }
        }
        Some(sketch)
    }
}

/// Ertl's sigma: x + sum of x^(2^k) * 2^(k-1) over k >= 1; infinite for x = 1 (an empty sketch).
fn sigma(x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut weight, mut sum) = (x, 1.0, x);
    loop {
        power *= power;
        let before = sum;
        sum += power * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::hash_key;

    fn sketch_of(range: std::ops::Range<u64>) -> DistinctSketch {
        let mut sketch = DistinctSketch::default();
        for number in range {
            sketch.add(hash_key(&number.to_le_bytes()));
        }
        sketch
    }

    #[test]
    fn estimates_within_ten_percent() {
        for count in [
            0u64, 1, 10, 100, 1000, 2500, 5000, 20_000, 100_000, 1_000_000,
        ] {
            let estimate = sketch_of(0..count).estimate();
            let error = estimate.abs_diff(count);
            assert!(error <= count / 10, "{count} estimated as {estimate}");
        }
    }

    #[test]
    fn a_merged_sketch_is_the_sketch_of_the_union() {
        let mut merged = sketch_of(0..30_000);
        merged.merge(&sketch_of(20_000..50_000));
        assert_eq!(merged, sketch_of(0..50_000));
        merged.merge(&sketch_of(0..50_000));
        assert_eq!(merged, sketch_of(0..50_000));
    }

    #[test]
    fn both_forms_survive_a_round_trip() {
        for count in [0, 1, 100, 383, 500, 10_000, 1_000_000] {
            let sketch = sketch_of(0..count);
            let bytes = sketch.encode();
            assert!(bytes.len() <= 1 + DENSE_BYTES);
            assert_eq!(DistinctSketch::decode(&bytes), Some(sketch));
        }
        assert_eq!(sketch_of(0..10).encode().len(), 21);
        assert_eq!(sketch_of(0..100_000).encode()[0], FORM_DENSE);
    }

    #[test]
    fn the_extreme_hashes_have_ranks() {
        let mut sketch = DistinctSketch::default();
        sketch.add(0);
        sketch.add(u64::MAX);
        assert_eq!(sketch.ranks[0], RANK_MAX);
        assert_eq!(sketch.ranks[REGISTERS - 1], 1);
        assert_eq!(DistinctSketch::decode(&sketch.encode()), Some(sketch));
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let dense = sketch_of(0..100_000).encode();
        for bytes in [
            &[][..],
            &[0],
            &[3],
            &[1, 0],
            &[1, 0x3f, 0],
            &dense[..768],
            &[2; 700],
            &[2; 770],
            &[[2].as_slice(), &[0xff; 768]].concat(),
        ] {
            assert_eq!(DistinctSketch::decode(bytes), None, "{bytes:?}");
        }
    }
}
