//! Matching of one-byte tags, many at once.
//!
//! A tag is a byte of a key's hash that stands in a bucket beside the key. A lookup compares all
//! tags of a bucket with the tag of its key and looks only at slots that match, one in 256 of the
//! others. Buckets are read through atomics, so the functions take the tags as words: byte `i` of
//! the tags is byte `i % 8` of word `i / 8`, counted from the low end.
//!
//! [`match_16`] serves buckets of up to 16 tags with the vectors that every processor of the target
//! has (SSE2, NEON), and inlines. [`match_64`] serves larger nodes with the widest vectors that
//! [`SimdLevel::detect`] found at run time. A single vector of 16 gains nothing from a wider level:
//! the compare is one instruction at each, and a function that another level compiles cannot
//! inline.

use std::sync::LazyLock;

/// Vectors that a processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SimdLevel {
    /// No vectors: arithmetic on words.
    Portable,
    /// 128 bits, every x86-64 processor.
    #[cfg(target_arch = "x86_64")]
    Sse2,
    /// 128 bits, every 64-bit ARM processor.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// 256 bits, x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512 bits with compares into masks (AVX-512BW), x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl SimdLevel {
    /// All levels that this processor can run, the best last.
    #[must_use]
    pub(crate) fn available() -> Vec<SimdLevel> {
        let mut levels = vec![SimdLevel::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            levels.push(SimdLevel::Sse2);
            if std::arch::is_x86_feature_detected!("avx2") {
                levels.push(SimdLevel::Avx2);
            }
            if std::arch::is_x86_feature_detected!("avx512bw") {
                levels.push(SimdLevel::Avx512);
            }
        }
        #[cfg(target_arch = "aarch64")]
        levels.push(SimdLevel::Neon);
        levels
    }

    /// The best level of this processor.
    #[inline]
    #[must_use]
    pub(crate) fn detect() -> SimdLevel {
        static BEST: LazyLock<SimdLevel> =
            LazyLock::new(|| SimdLevel::available().pop().unwrap_or(SimdLevel::Portable));
        *BEST
    }
}

/// The positions, as bits, at which 16 tags equal `tag`.
#[inline]
#[must_use]
pub(crate) fn match_16(tags: [u64; 2], tag: u8) -> u16 {
    #[cfg(target_arch = "x86_64")]
    return sse2::match_16(tags, tag);
    #[cfg(target_arch = "aarch64")]
    return neon::match_16(tags, tag);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    portable::match_16(tags, tag)
}

/// The positions, as bits, at which 64 tags equal `tag`, by the best vectors of this processor.
#[inline]
#[must_use]
pub(crate) fn match_64(tags: &[u64; 8], tag: u8) -> u64 {
    match_64_at(SimdLevel::detect(), tags, tag)
}

/// [`match_64`] at a level; one that this processor lacks is replaced by one that it has.
#[must_use]
pub(crate) fn match_64_at(level: SimdLevel, tags: &[u64; 8], tag: u8) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if level == SimdLevel::Avx512 && std::arch::is_x86_feature_detected!("avx512bw") {
            return wide::match_64_avx512(tags, tag);
        }
        if level == SimdLevel::Avx2 && std::arch::is_x86_feature_detected!("avx2") {
            return wide::match_64_avx2(tags, tag);
        }
    }
    if level == SimdLevel::Portable {
        return by_quarters(tags, |quarter| portable::match_16(quarter, tag));
    }
    by_quarters(tags, |quarter| match_16(quarter, tag))
}

/// Puts the answers for four vectors of 16 tags together.
#[inline]
fn by_quarters(tags: &[u64; 8], answer: impl Fn([u64; 2]) -> u16) -> u64 {
    let (quarters, _) = tags.as_chunks::<2>();
    quarters
        .iter()
        .rev()
        .fold(0, |bits, &quarter| bits << 16 | u64::from(answer(quarter)))
}

mod portable {
    //! Arithmetic on words, for every target.

    const LOW_BITS: u64 = 0x0101_0101_0101_0101;
    const LOW_SEVEN: u64 = 0x7f7f_7f7f_7f7f_7f7f;

    /// One bit for each byte of `word` that is zero, exact for every word.
    #[inline]
    fn zero_bytes(word: u64) -> u64 {
        // The high bit of each byte of `nonzero` tells whether the byte has any bit: adding 0x7f
        // carries into it from the low seven, and no carry leaves a byte.
        let nonzero = ((word & LOW_SEVEN) + LOW_SEVEN) | word;
        let zero = !nonzero >> 7 & LOW_BITS;
        // The product collects bit 8 i at bit 56 + i.
        zero.wrapping_mul(0x0102_0408_1020_4080) >> 56
    }

    #[inline]
    pub(super) fn match_16(tags: [u64; 2], tag: u8) -> u16 {
        let wanted = LOW_BITS * u64::from(tag);
        let [low, high] = tags.map(|word| zero_bytes(word ^ wanted));
        #[expect(clippy::cast_possible_truncation, reason = "each half has 8 bits")]
        let bits = (low | high << 8) as u16;
        bits
    }
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    //! 128-bit vectors of every x86-64 processor.
    #![expect(unsafe_code, reason = "the compiler asks for the feature by name")]

    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};

    #[inline]
    pub(super) fn match_16(tags: [u64; 2], tag: u8) -> u16 {
        // SAFETY: SSE2 belongs to the target.
        unsafe { equal(tags, tag) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn equal(tags: [u64; 2], tag: u8) -> u16 {
        let [low, high] = [tags[0].cast_signed(), tags[1].cast_signed()];
        let equal = _mm_cmpeq_epi8(_mm_set_epi64x(high, low), _mm_set1_epi8(tag.cast_signed()));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the mask has 16 bits"
        )]
        let bits = _mm_movemask_epi8(equal) as u16;
        bits
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    //! Vectors that only some x86-64 processors have. Whoever calls has asked for the feature.
    #![expect(
        unsafe_code,
        reason = "functions compiled for more than the target has"
    )]

    use std::arch::x86_64::{
        _mm256_cmpeq_epi8, _mm256_movemask_epi8, _mm256_set_epi64x, _mm256_set1_epi8,
        _mm512_cmpeq_epi8_mask, _mm512_set_epi64, _mm512_set1_epi8,
    };

    pub(super) fn match_64_avx2(tags: &[u64; 8], tag: u8) -> u64 {
        assert!(std::arch::is_x86_feature_detected!("avx2"));
        // SAFETY: the processor has the feature, as the line above made sure.
        unsafe { avx2(tags, tag) }
    }

    pub(super) fn match_64_avx512(tags: &[u64; 8], tag: u8) -> u64 {
        assert!(std::arch::is_x86_feature_detected!("avx512bw"));
        // SAFETY: the processor has the feature, as the line above made sure.
        unsafe { avx512(tags, tag) }
    }

    #[target_feature(enable = "avx2")]
    fn avx2(tags: &[u64; 8], tag: u8) -> u64 {
        let [a, b, c, d, e, f, g, h] = tags.map(u64::cast_signed);
        let wanted = _mm256_set1_epi8(tag.cast_signed());
        let low = _mm256_cmpeq_epi8(_mm256_set_epi64x(d, c, b, a), wanted);
        let high = _mm256_cmpeq_epi8(_mm256_set_epi64x(h, g, f, e), wanted);
        let low = _mm256_movemask_epi8(low).cast_unsigned();
        let high = _mm256_movemask_epi8(high).cast_unsigned();
        u64::from(low) | u64::from(high) << 32
    }

    #[target_feature(enable = "avx512bw")]
    fn avx512(tags: &[u64; 8], tag: u8) -> u64 {
        let [a, b, c, d, e, f, g, h] = tags.map(u64::cast_signed);
        let tags = _mm512_set_epi64(h, g, f, e, d, c, b, a);
        _mm512_cmpeq_epi8_mask(tags, _mm512_set1_epi8(tag.cast_signed()))
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    //! 128-bit vectors of every 64-bit ARM processor.
    #![expect(unsafe_code, reason = "the compiler asks for the feature by name")]

    use std::arch::aarch64::{
        vaddv_u8, vand_u8, vceqq_u8, vcombine_u64, vcreate_u8, vcreate_u64, vdupq_n_u8,
        vget_high_u8, vget_low_u8, vreinterpretq_u8_u64,
    };

    #[inline]
    pub(super) fn match_16(tags: [u64; 2], tag: u8) -> u16 {
        // SAFETY: NEON belongs to the target.
        unsafe { equal(tags, tag) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn equal(tags: [u64; 2], tag: u8) -> u16 {
        let tags = vcombine_u64(vcreate_u64(tags[0]), vcreate_u64(tags[1]));
        let equal = vceqq_u8(vreinterpretq_u8_u64(tags), vdupq_n_u8(tag));
        // A byte of all ones keeps the bit of its position; the sum puts eight of them together.
        let positions = vcreate_u8(0x8040_2010_0804_0201);
        let low = vaddv_u8(vand_u8(vget_low_u8(equal), positions));
        let high = vaddv_u8(vand_u8(vget_high_u8(equal), positions));
        u16::from(low) | u16::from(high) << 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The naive twin: byte by byte.
    fn naive(tags: &[u64; 8], tag: u8) -> u64 {
        let bytes = tags.iter().flat_map(|word| word.to_le_bytes());
        bytes
            .enumerate()
            .filter(|&(_, byte)| byte == tag)
            .fold(0, |bits, (at, _)| bits | 1 << at)
    }

    fn check(tags: [u64; 8], tag: u8) {
        let expected = naive(&tags, tag);
        assert_eq!(match_64(&tags, tag), expected);
        for level in SimdLevel::available() {
            assert_eq!(match_64_at(level, &tags, tag), expected, "{level:?}");
        }
        let first = [tags[0], tags[1]];
        assert_eq!(u64::from(match_16(first, tag)), expected & 0xffff);
        assert_eq!(u64::from(portable::match_16(first, tag)), expected & 0xffff);
    }

    #[test]
    fn every_byte_is_found_at_every_position() {
        for tag in 0..=u8::MAX {
            for at in 0..64 {
                // Neighbours in value are the ones that sloppy arithmetic confuses.
                for other in [tag ^ 1, tag.wrapping_add(1), tag ^ 0x80, !tag] {
                    let mut bytes = [other; 64];
                    bytes[at] = tag;
                    let mut tags = [0; 8];
                    for (word, bytes) in tags.iter_mut().zip(bytes.as_chunks::<8>().0) {
                        *word = u64::from_le_bytes(*bytes);
                    }
                    check(tags, tag);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn all_levels_agree_with_the_naive_twin(
            tags in prop::array::uniform8(prop::num::u64::ANY),
            tag in prop::num::u8::ANY,
        ) {
            check(tags, tag);
            check(tags, (tags[3] >> 16 & 0xff) as u8);
        }
    }
}
