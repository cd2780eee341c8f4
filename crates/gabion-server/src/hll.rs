//! HyperLogLog: estimates the number of distinct elements in 12 KiB, with an error of 0.81 %.
//!
//! Flajolet et al., *HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm*
//! (AOFA 2007); the estimate is that of Ertl, *New cardinality estimation algorithms for
//! HyperLogLog sketches* (2017), which needs no table of corrections.
//!
//! # Layout
//! The string is Redis' own, so that values move between the two:
//!
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 4 | `HYLL` |
//! | 4 | 1 | form: 0 dense, 1 sparse |
//! | 5 | 3 | zeros |
//! | 8 | 8 | the estimate, little-endian; its highest bit says that it is out of date |
//! | 16 | 12,288 if dense | registers of 6 bits, the lowest bits first |
//! | 16 | rest if sparse | runs of equal registers, as below |
//!
//! | run | registers |
//! |---|---|
//! | `00nnnnnn` | n + 1 zeros |
//! | `01nnnnnn nnnnnnnn` | n + 1 zeros |
//! | `1vvvvvnn` | n + 1 times v + 1 |

#![expect(
    clippy::cast_possible_truncation,
    reason = "runs and ranks are short, and the low bits are meant"
)]

/// Bits of a hash that choose the register.
const INDEX_BITS: u32 = 14;
/// Registers.
pub(crate) const REGISTERS: usize = 1 << INDEX_BITS;
/// The other bits of a hash.
const RANK_BITS: usize = 64 - INDEX_BITS as usize;
/// Bytes in front of the registers.
const HEAD_BYTES: usize = 16;
const DENSE_BYTES: usize = REGISTERS * 6 / 8;
const MAGIC: &[u8] = b"HYLL";
/// The greatest value that the sparse form has.
const SPARSE_VALUE_MAX: u8 = 32;
const SEED: u64 = 0xadc8_3b19;

/// Why a string is not a HyperLogLog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SketchError {
    /// It never was one.
    Other,
    /// Its runs do not fit.
    Corrupt,
}

/// A HyperLogLog, with each register in a byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HyperLogLog {
    registers: Box<[u8]>,
    /// Whether it is written in the dense form in any case.
    pub(crate) is_dense: bool,
    /// The estimate, if the string has it.
    pub(crate) cached: Option<u64>,
}

impl Default for HyperLogLog {
    fn default() -> HyperLogLog {
        HyperLogLog {
            registers: vec![0; REGISTERS].into_boxed_slice(),
            is_dense: false,
            cached: Some(0),
        }
    }
}

impl HyperLogLog {
    /// Of a string.
    pub(crate) fn read(value: &[u8]) -> Result<HyperLogLog, SketchError> {
        let (head, rest) = value
            .split_at_checked(HEAD_BYTES)
            .ok_or(SketchError::Other)?;
        let is_dense = match head[4] {
            0 if rest.len() == DENSE_BYTES => true,
            1 => false,
            _ => return Err(SketchError::Other),
        };
        if !head.starts_with(MAGIC) {
            return Err(SketchError::Other);
        }
        let mut sketch = HyperLogLog {
            is_dense,
            cached: cached(value),
            ..HyperLogLog::default()
        };
        match is_dense {
            true => sketch.read_dense(rest),
            false => sketch.read_sparse(rest).ok_or(SketchError::Corrupt)?,
        }
        Ok(sketch)
    }

    fn read_dense(&mut self, bytes: &[u8]) {
        let four = |bytes: &[u8; 3]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        for (registers, bytes) in self
            .registers
            .chunks_exact_mut(4)
            .zip(bytes.as_chunks::<3>().0)
        {
            let bits = four(bytes);
            for (index, register) in registers.iter_mut().enumerate() {
                *register = (bits >> (6 * index) & 0x3f) as u8;
            }
        }
    }

    fn read_sparse(&mut self, mut bytes: &[u8]) -> Option<()> {
        let mut at = 0;
        while let Some((first, rest)) = bytes.split_first() {
            bytes = rest;
            let (value, count) = match first >> 6 {
                0 => (0, usize::from(*first) + 1),
                1 => {
                    let (second, rest) = bytes.split_first()?;
                    bytes = rest;
                    (
                        0,
                        (usize::from(first & 0x3f) << 8 | usize::from(*second)) + 1,
                    )
                }
                _ => ((first >> 2 & 0x1f) + 1, usize::from(first & 3) + 1),
            };
            self.registers.get_mut(at..at + count)?.fill(value);
            at += count;
        }
        (at == REGISTERS).then_some(())
    }

    /// As a string: sparse as long as that takes no more than `sparse_bytes_max`.
    pub(crate) fn write(&mut self, sparse_bytes_max: usize) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEAD_BYTES);
        value.extend_from_slice(MAGIC);
        value.extend_from_slice(&[1, 0, 0, 0]);
        value.extend_from_slice(&self.cached.unwrap_or(STALE).to_le_bytes());
        self.is_dense |= !self.write_sparse(&mut value, sparse_bytes_max);
        if self.is_dense {
            value.truncate(HEAD_BYTES);
            value[4] = 0;
            for registers in self.registers.as_chunks::<4>().0 {
                let bits = registers
                    .iter()
                    .rev()
                    .fold(0, |bits, register| bits << 6 | u32::from(*register));
                value.extend_from_slice(&bits.to_le_bytes()[..3]);
            }
        }
        value
    }

    /// Appends the runs; false if there is no sparse form.
    fn write_sparse(&self, value: &mut Vec<u8>, bytes_max: usize) -> bool {
        if self.is_dense {
            return false;
        }
        for run in self.registers.chunk_by(|one, other| one == other) {
            let register = run[0];
            if register > SPARSE_VALUE_MAX || value.len() > bytes_max + HEAD_BYTES {
                return false;
            }
            match register {
                0 if run.len() <= 64 => value.push((run.len() - 1) as u8),
                0 => {
                    let [low, high, ..] = (run.len() - 1).to_le_bytes();
                    value.extend_from_slice(&[0x40 | high, low]);
                }
                _ => {
                    for part in run.chunks(4) {
                        value.push(0x80 | (register - 1) << 2 | (part.len() - 1) as u8);
                    }
                }
            }
        }
        value.len() <= bytes_max + HEAD_BYTES
    }

    /// Counts an element; false if that changes nothing.
    pub(crate) fn add(&mut self, element: &[u8]) -> bool {
        let hash = murmur(element);
        let index = hash as usize % REGISTERS;
        // The rank ends at a one behind all bits.
        let rank = (hash >> INDEX_BITS | 1 << RANK_BITS).trailing_zeros() as u8 + 1;
        let register = &mut self.registers[index];
        let changes = *register < rank;
        if changes {
            *register = rank;
            self.cached = None;
        }
        changes
    }

    /// Counts what another has counted.
    pub(crate) fn merge(&mut self, other: &HyperLogLog) {
        for (register, other) in self.registers.iter_mut().zip(&other.registers) {
            *register = (*register).max(*other);
        }
        self.is_dense |= other.is_dense;
        self.cached = None;
    }

    /// The registers.
    pub(crate) fn registers(&self) -> &[u8] {
        &self.registers
    }

    /// The estimate.
    pub(crate) fn estimate(&self) -> u64 {
        let mut histogram = [0_u32; 64];
        for register in &self.registers {
            histogram[usize::from(register & 0x3f)] += 1;
        }
        let all = REGISTERS as f64;
        let share = |count: u32| f64::from(count) / all;
        let mut sum = all * tau(1.0 - share(histogram[RANK_BITS + 1]));
        for count in histogram[1..=RANK_BITS].iter().rev() {
            sum = 0.5 * (sum + f64::from(*count));
        }
        sum += all * sigma(share(histogram[0]));
        // 1 / (2 ln 2)
        let alpha = 0.5 / std::f64::consts::LN_2;
        (alpha * all * all / sum).round() as u64
    }
}

const STALE: u64 = 1 << 63;

/// The estimate that a string has, if it is up to date.
pub(crate) fn cached(value: &[u8]) -> Option<u64> {
    let bytes = value.get(8..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes)).filter(|estimate| *estimate & STALE == 0)
}

/// The sum of x^(2^k) * 2^(k-1), and x itself.
fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut factor, mut sum) = (1.0, x);
    loop {
        x *= x;
        let next = sum + x * factor;
        if next == sum {
            return sum;
        }
        sum = next;
        factor *= 2.0;
    }
}

/// A third of 1 - x - the sum of (1 - x^(2^-k))^2 * 2^-k.
fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut factor, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        factor *= 0.5;
        let next = sum - (1.0 - x).powi(2) * factor;
        if next == sum {
            return sum / 3.0;
        }
        sum = next;
    }
}

/// Appleby's MurmurHash2 with 64 bits, the hash of Redis' sketches.
fn murmur(bytes: &[u8]) -> u64 {
    const MIX: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(MIX);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(MIX);
        word ^= word >> 47;
        hash = (hash ^ word.wrapping_mul(MIX)).wrapping_mul(MIX);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(MIX);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(MIX);
    hash ^ hash >> 47
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u32) -> HyperLogLog {
        let mut sketch = HyperLogLog::default();
        for number in 0..count {
            sketch.add(&number.to_le_bytes());
        }
        sketch
    }

    #[test]
    fn estimates_are_within_their_error() {
        assert_eq!(HyperLogLog::default().estimate(), 0);
        for count in [1, 5, 10, 1000, 20_000, 300_000] {
            let estimate = of(count).estimate() as f64;
            let error = (estimate / f64::from(count) - 1.0).abs();
            assert!(error < 4.0 * 0.0081, "{count} {estimate}");
        }
    }

    #[test]
    fn both_forms_are_read_as_they_were_written() {
        for count in [0, 1, 100, 2000] {
            let mut sketch = of(count);
            let sparse = sketch.write(100_000);
            assert!(!sketch.is_dense && sparse[4] == 1);
            assert_eq!(HyperLogLog::read(&sparse).unwrap(), sketch);
            let mut dense = sketch.clone();
            dense.is_dense = true;
            let written = dense.write(0);
            assert_eq!(written.len(), HEAD_BYTES + DENSE_BYTES);
            assert_eq!(HyperLogLog::read(&written).unwrap(), dense);
            assert_eq!(sketch.registers, dense.registers);
        }
        let mut large = of(2000);
        assert_eq!(large.write(3000)[4], 0);
    }

    #[test]
    fn a_union_counts_what_both_have_counted() {
        let (mut one, all) = (of(1000), of(3000));
        one.merge(&all);
        assert_eq!(one.registers, all.registers);
    }

    #[test]
    fn broken_strings_are_refused() {
        let whole = of(10).write(3000);
        let changed = |at: usize, byte: u8| {
            let mut broken = whole.clone();
            broken[at] = byte;
            HyperLogLog::read(&broken).err()
        };
        assert_eq!(changed(0, b'X'), Some(SketchError::Other));
        assert_eq!(changed(4, 0), Some(SketchError::Other));
        assert_eq!(changed(16, 0), Some(SketchError::Corrupt));
        let longer = [&whole[..], b"tail"].concat();
        assert_eq!(HyperLogLog::read(&longer).err(), Some(SketchError::Corrupt));
        assert_eq!(
            HyperLogLog::read(&whole[..15]).err(),
            Some(SketchError::Other)
        );
    }
}
