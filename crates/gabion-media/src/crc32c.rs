//! Checksums: CRC-32C (Castagnoli), the one of all formats that are checksummed by 32 bits.
//!
//! Where a fuzzer writes the bytes (`--cfg fuzzing`, which its tool sets) all checksums are the
//! same, or it would never come behind one; so what is made of bytes that are checksummed rightly,
//! but make no sense, can be seen.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `bytes`.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// The checksum of the bytes that `checksum` is of, followed by `bytes`.
#[inline]
#[must_use]
pub fn crc32c_append(checksum: u32, bytes: &[u8]) -> u32 {
    if cfg!(fuzzing) {
        return 0;
    }
    // A digest begins with the state, which is the complement of the checksum.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!checksum));
    digest.update(bytes);
    // A checksum of 32 bits.
    (digest.finalize() & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit, as the polynomial says.
    fn by_bits(mut checksum: u32, bytes: &[u8]) -> u32 {
        checksum = !checksum;
        for byte in bytes {
            checksum ^= u32::from(*byte);
            for _ in 0..8 {
                let is_odd = checksum & 1 != 0;
                checksum = checksum >> 1 ^ if is_odd { 0x82f6_3b78 } else { 0 };
            }
        }
        !checksum
    }

    #[test]
    fn the_checksum_is_that_of_rfc_3720() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn parts_of_all_lengths_make_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..5000_u32)
            .map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()[3])
            .collect();
        for len in (0..600).chain([1023, 1024, 1025, 4095, 4096, 4113, 5000]) {
            let (front, back) = bytes[..len].split_at(len / 3);
            let whole = by_bits(0, &bytes[..len]);
            assert_eq!(crc32c(&bytes[..len]), whole, "{len} bytes");
            assert_eq!(
                crc32c_append(crc32c(front), back),
                whole,
                "{len} bytes in two parts"
            );
        }
    }
}
