//! The header of a log segment, and positions in the log.
//!
//! # Layout of a segment
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `GABIONLG` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of the header without these four bytes |
//! | 16 | 8 | number of the segment, the same as in its name |
//! | 24 | 8 | position at which the log ended when this segment began: the end of its predecessor |
//! | 32 | 8 | position up to which the log was durable when this segment began |
//! | 40 | 24 | zero |
//! | 64 | .. | frames (`frame`), then zeros up to the preallocated length |
//!
//! All numbers are little-endian.

use std::fmt;

use gabion_media::crc32c;

/// First bytes of a segment.
pub(crate) const MAGIC: [u8; 8] = *b"GABIONLG";

/// The version that this program writes, and the newest that it reads.
pub(crate) const VERSION: u32 = 1;

/// Size of the header in bytes.
pub(crate) const HEADER_BYTES: usize = 64;

const CRC_OFFSET: usize = 12;
const SEGMENT_OFFSET: usize = 16;
const AFTER_OFFSET: usize = 24;
const DURABLE_OFFSET: usize = 32;
const ZERO_OFFSET: usize = 40;

const _: () = assert!(MAGIC.len() + size_of_val(&VERSION) == CRC_OFFSET);
const _: () = assert!(CRC_OFFSET + size_of::<u32>() == SEGMENT_OFFSET);
const _: () = assert!(SEGMENT_OFFSET + size_of::<u64>() == AFTER_OFFSET);
const _: () = assert!(AFTER_OFFSET + size_of::<Lsn>() == DURABLE_OFFSET);
const _: () = assert!(DURABLE_OFFSET + size_of::<Lsn>() == ZERO_OFFSET);
const _: () = assert!(ZERO_OFFSET + 24 == HEADER_BYTES);

/// A position in the log: segment number in the high half, offset in the segment in the low half.
/// Positions order as the log was written.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lsn(pub(crate) u64);

impl Lsn {
    /// Largest segment number and largest offset. With segments of 16 MiB this is enough for
    /// 64 PiB of log.
    pub(crate) const PART_MAX: u64 = u32::MAX as u64;

    /// The position `offset` of `segment`; both are at most [`Lsn::PART_MAX`].
    #[inline]
    pub(crate) fn new(segment: u64, offset: u64) -> Lsn {
        debug_assert!(segment <= Lsn::PART_MAX && offset <= Lsn::PART_MAX);
        Lsn(segment << 32 | offset)
    }

    /// The segment.
    #[inline]
    pub(crate) fn segment(self) -> u64 {
        self.0 >> 32
    }

    /// The offset in the segment, in bytes.
    #[inline]
    pub(crate) fn offset(self) -> u64 {
        self.0 & Lsn::PART_MAX
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}+{}", self.segment(), self.offset())
    }
}

/// What the header of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Number of the segment.
    pub(crate) segment: u64,
    /// Where the log ended before.
    pub(crate) after: Lsn,
    /// Up to where it was durable then.
    pub(crate) durable: Lsn,
}

/// What the bytes at the front of a segment are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderState {
    /// A valid header.
    Valid(SegmentHeader),
    /// Zeros, or the file is too short: the segment was prepared and never used.
    Blank,
    /// Something else.
    Invalid,
    /// A header of a newer format version.
    Newer(u32),
}

impl SegmentHeader {
    /// The bytes on media.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..CRC_OFFSET].copy_from_slice(&VERSION.to_le_bytes());
        bytes[SEGMENT_OFFSET..AFTER_OFFSET].copy_from_slice(&self.segment.to_le_bytes());
        bytes[AFTER_OFFSET..DURABLE_OFFSET].copy_from_slice(&self.after.0.to_le_bytes());
        bytes[DURABLE_OFFSET..ZERO_OFFSET].copy_from_slice(&self.durable.0.to_le_bytes());
        let crc = header_checksum(&bytes);
        bytes[CRC_OFFSET..SEGMENT_OFFSET].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// Checks the front of the file of segment `segment`.
pub(crate) fn check_header(segment: u64, front: &[u8]) -> HeaderState {
    let Some(bytes) = front.first_chunk::<HEADER_BYTES>() else {
        let blank = front.iter().all(|byte| *byte == 0);
        return if blank {
            HeaderState::Blank
        } else {
            HeaderState::Invalid
        };
    };
    if *bytes == [0; HEADER_BYTES] {
        return HeaderState::Blank;
    }
    if bytes[..8] != MAGIC || u32_at(bytes, CRC_OFFSET) != header_checksum(bytes) {
        return HeaderState::Invalid;
    }
    match u32_at(bytes, 8) {
        0 => return HeaderState::Invalid,
        VERSION => {}
        newer => return HeaderState::Newer(newer),
    }
    let header = SegmentHeader {
        segment: u64_at(bytes, SEGMENT_OFFSET),
        after: Lsn(u64_at(bytes, AFTER_OFFSET)),
        durable: Lsn(u64_at(bytes, DURABLE_OFFSET)),
    };
    if header.segment != segment || bytes[ZERO_OFFSET..] != [0; HEADER_BYTES - ZERO_OFFSET] {
        return HeaderState::Invalid;
    }
    HeaderState::Valid(header)
}

fn header_checksum(bytes: &[u8; HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(
        crc32c::crc32c(&bytes[..CRC_OFFSET]),
        &bytes[SEGMENT_OFFSET..],
    )
}

fn u32_at(bytes: &[u8; HEADER_BYTES], offset: usize) -> u32 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    u32::from_le_bytes(field.copied().unwrap_or_default())
}

fn u64_at(bytes: &[u8; HEADER_BYTES], offset: usize) -> u64 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    u64::from_le_bytes(field.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            segment: 0x15,
            after: Lsn::new(0x14, 0x0102),
            durable: Lsn::new(0x13, 64),
        }
    }

    #[test]
    fn the_header_has_these_bytes() {
        let bytes = header().encode();
        let mut golden = b"GABIONLG\x01\0\0\0".to_vec();
        golden.extend(GOLDEN_CRC);
        golden.extend([0x15, 0, 0, 0, 0, 0, 0, 0]);
        golden.extend([2, 1, 0, 0, 0x14, 0, 0, 0]);
        golden.extend([64, 0, 0, 0, 0x13, 0, 0, 0]);
        golden.extend([0; 24]);
        assert_eq!(bytes, golden[..]);
        assert_eq!(check_header(0x15, &bytes), HeaderState::Valid(header()));
    }

    const GOLDEN_CRC: [u8; 4] = [100, 136, 74, 181];

    #[test]
    fn every_flipped_bit_and_the_wrong_file_are_seen() {
        let bytes = header().encode();
        assert_eq!(check_header(0x16, &bytes), HeaderState::Invalid);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes;
                damaged[at] ^= 1 << bit;
                assert_eq!(
                    check_header(0x15, &damaged),
                    HeaderState::Invalid,
                    "{at} {bit}"
                );
            }
        }
    }

    #[test]
    fn a_newer_version_is_told() {
        let mut bytes = header().encode();
        bytes[8] = 2;
        let crc = header_checksum(&bytes);
        bytes[CRC_OFFSET..SEGMENT_OFFSET].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(check_header(0x15, &bytes), HeaderState::Newer(2));
    }

    #[test]
    fn zeros_are_a_segment_that_was_never_used() {
        for len in [0, 1, 63, 64, 65, 1000] {
            assert_eq!(check_header(1, &vec![0; len]), HeaderState::Blank);
        }
        assert_eq!(
            check_header(0x15, &header().encode()[..63]),
            HeaderState::Invalid
        );
    }

    proptest! {
        #[test]
        fn positions_order_by_segment_then_offset(a: (u32, u32), b: (u32, u32)) {
            let lsn = |(segment, offset)| Lsn::new(u64::from(segment), u64::from(offset));
            prop_assert_eq!(lsn(a).cmp(&lsn(b)), a.cmp(&b));
            prop_assert_eq!((lsn(a).segment(), lsn(a).offset()), (a.0.into(), a.1.into()));
        }
    }
}
