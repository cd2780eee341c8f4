//! How many lines a directory has, in the few bits that its head has for it.

/// Growing multiplies the number of lines by `1 << GROWTH_SHIFT`.
const GROWTH_SHIFT: u32 = 2;

/// Bits of the factor and of the shift in the head's upper 16 bits.
const FACTOR_BITS: u32 = 11;
const SHIFT_BITS: u32 = 5;

/// Bits of a number of lines.
pub(super) const COUNT_BITS: u32 = FACTOR_BITS + SHIFT_BITS;

/// A number of lines that fits into 16 bits: `factor << shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineCount {
    factor: usize,
    shift: u32,
}

impl LineCount {
    /// The smallest number that can be stated and is not below `lines`.
    pub(super) fn at_least(lines: usize) -> LineCount {
        let shift = (usize::BITS - lines.leading_zeros()).saturating_sub(FACTOR_BITS);
        let factor = (lines >> shift) + usize::from(lines & ((1 << shift) - 1) != 0);
        if factor >> FACTOR_BITS == 0 {
            LineCount { factor, shift }
        } else {
            LineCount {
                factor: factor >> 1,
                shift: shift + 1,
            }
        }
    }

    /// The number after growing; `None` when it cannot be stated.
    pub(super) fn grown(self) -> Option<LineCount> {
        let shift = self.shift + GROWTH_SHIFT;
        (shift < 1 << SHIFT_BITS && self.factor.leading_zeros() > shift + 32)
            .then_some(LineCount { shift, ..self })
    }

    #[inline]
    pub(super) fn get(self) -> usize {
        self.factor << self.shift
    }

    #[inline]
    pub(super) fn to_bits(self) -> usize {
        self.factor << SHIFT_BITS | self.shift as usize
    }

    #[inline]
    pub(super) fn from_bits(bits: usize) -> LineCount {
        let shift = bits & ((1 << SHIFT_BITS) - 1);
        #[expect(clippy::cast_possible_truncation, reason = "five bits")]
        LineCount {
            factor: bits >> SHIFT_BITS,
            shift: shift as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_counts_round_up_by_little_and_survive_the_head() {
        for lines in (1..5000).chain([1 << 20, (1 << 20) + 1, 123_456_789, u32::MAX as usize / 2]) {
            let count = LineCount::at_least(lines);
            assert!(
                count.get() >= lines && count.get() <= lines + lines / 1000,
                "{lines}"
            );
            assert_eq!(LineCount::from_bits(count.to_bits()), count);
            assert!(count.to_bits() < 1 << 16);
            if let Some(grown) = count.grown() {
                assert_eq!(grown.get(), count.get() * 4);
                assert_eq!(LineCount::from_bits(grown.to_bits()), grown);
            } else {
                assert!(lines > 1 << 28);
            }
        }
    }
}
