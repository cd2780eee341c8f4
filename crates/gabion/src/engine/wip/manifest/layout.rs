//! `CURRENT` and the header of a manifest.
//!
//! # Layout of `CURRENT`
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `GABIONCU` |
//! | 8 | 4 | format version of the store |
//! | 12 | 4 | CRC-32C of the file without these four bytes |
//! | 16 | 8 | number of the manifest in force |
//! | 24 | 8 | length of that manifest if the store was closed cleanly, else 0 |
//!
//! # Layout of a manifest's header
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `GABIONMF` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of the header without these four bytes |
//! | 16 | 8 | number of the manifest, the same as in its name |
//! | 24 | 8 | zero |
//! | 32 | .. | frames |
//!
//! All numbers are little-endian.

use gabion_media::crc32c;

/// First bytes of `CURRENT`.
pub(super) const CURRENT_MAGIC: [u8; 8] = *b"GABIONCU";

/// First bytes of a manifest.
pub(super) const MANIFEST_MAGIC: [u8; 8] = *b"GABIONMF";

/// The version that this program writes and reads.
pub(super) const VERSION: u32 = 1;

/// Size of `CURRENT` and of a manifest's header in bytes.
pub(super) const HEADER_BYTES: usize = 32;

const CRC_OFFSET: usize = 12;
const TAIL_OFFSET: usize = 16;

const _: () = assert!(CURRENT_MAGIC.len() + size_of_val(&VERSION) == CRC_OFFSET);
const _: () = assert!(CRC_OFFSET + size_of::<u32>() == TAIL_OFFSET);
const _: () = assert!(TAIL_OFFSET + 2 * size_of::<u64>() == HEADER_BYTES);

/// What `CURRENT` says; and, with a `clean_len` of zero, what a manifest's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Number of the manifest.
    pub(super) manifest: u64,
    /// Its length after a clean close, else 0.
    pub(super) clean_len: u64,
}

/// What 32 bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderState {
    Valid(Header),
    /// The magic is another one.
    Foreign,
    /// The magic is right and the rest is not.
    Invalid,
    /// Valid, of a newer format version.
    Newer(u32),
}

impl Header {
    /// The bytes on media.
    pub(super) fn encode(&self, magic: [u8; 8]) -> [u8; HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(magic);
        bytes.extend(VERSION.to_le_bytes());
        let mut tail = Vec::from(self.manifest.to_le_bytes());
        tail.extend(self.clean_len.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), &tail);
        bytes.extend(crc.to_le_bytes());
        bytes.extend(tail);
        bytes.try_into().expect("the fields add up to the header")
    }

    /// Checks bytes that should be a header with this magic.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES], magic: [u8; 8]) -> HeaderState {
        let (front, tail) = bytes.split_at(TAIL_OFFSET);
        let (covered, crc) = front.split_at(CRC_OFFSET);
        if covered.first_chunk() != Some(&magic) {
            return HeaderState::Foreign;
        }
        let (version, crc) = (covered.last_chunk(), crc.first_chunk());
        let (Some(version), Some(crc)) = (version, crc) else {
            return HeaderState::Invalid;
        };
        if crc32c::crc32c_append(crc32c::crc32c(covered), tail) != u32::from_le_bytes(*crc) {
            return HeaderState::Invalid;
        }
        match (
            u32::from_le_bytes(*version),
            tail.first_chunk(),
            tail.last_chunk(),
        ) {
            (VERSION, Some(manifest), Some(clean_len)) => HeaderState::Valid(Header {
                manifest: u64::from_le_bytes(*manifest),
                clean_len: u64::from_le_bytes(*clean_len),
            }),
            (newer, ..) if newer > VERSION => HeaderState::Newer(newer),
            _ => HeaderState::Invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_these_bytes() {
        let header = Header {
            manifest: 0x15,
            clean_len: 0x0102,
        };
        let bytes = header.encode(CURRENT_MAGIC);
        let mut golden = b"GABIONCU\x01\0\0\0".to_vec();
        golden.extend(GOLDEN_CRC);
        golden.extend([0x15, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes, golden[..]);
        assert_eq!(
            Header::decode(&bytes, CURRENT_MAGIC),
            HeaderState::Valid(header)
        );
        assert_eq!(Header::decode(&bytes, MANIFEST_MAGIC), HeaderState::Foreign);
    }

    const GOLDEN_CRC: [u8; 4] = [0x9e, 0x58, 0x6a, 0x67];

    #[test]
    fn every_flipped_bit_is_seen() {
        let bytes = Header {
            manifest: 3,
            clean_len: 0,
        }
        .encode(MANIFEST_MAGIC);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes;
                damaged[at] ^= 1 << bit;
                let expected = if at < 8 {
                    HeaderState::Foreign
                } else {
                    HeaderState::Invalid
                };
                assert_eq!(
                    Header::decode(&damaged, MANIFEST_MAGIC),
                    expected,
                    "{at} {bit}"
                );
            }
        }
    }

    #[test]
    fn a_newer_version_is_told_and_no_program_wrote_version_0() {
        let header = Header {
            manifest: 3,
            clean_len: 0,
        };
        for (version, state) in [(2, HeaderState::Newer(2)), (0, HeaderState::Invalid)] {
            let mut bytes = header.encode(MANIFEST_MAGIC);
            bytes[8] = version;
            let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..]);
            bytes[12..16].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Header::decode(&bytes, MANIFEST_MAGIC), state);
        }
    }
}
