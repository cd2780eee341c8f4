//! Frames: how records lie in logs and manifests.
//!
//! # Layout
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | CRC-32C, see below |
//! | 4 | 4 | word: payload length in the low 31 bits, at least 1; the top bit says: a mark |
//! | 8 | .. | payload; of a mark: a position (8), before which everything was durable |
//!
//! The checksum covers, in this order: the file's magic (8) and number (8), the frame's offset in
//! the file (8), the frame with zero in place of its checksum.
//!
//! All numbers are little-endian. Frames follow each other without gaps. The checksum binds a frame
//! to its place: an old frame at another offset or in another file is not valid.
//!
//! # Torn or corrupt
//! The end of a file that lost power may hold anything. A reader that meets an invalid frame at
//! position `p` cannot tell by it whether the bytes were never completely written (then the log
//! ends at `p`) or were durable and are damaged now (then what follows is lost, and that must be
//! said). Marks tell: a mark with a position beyond `p`, found anywhere, proves that the bytes at
//! `p` were durable once. A mark is 16 bytes with a checksum of its own and a fixed word, so all
//! marks of a damaged region are found in linear time, wherever they begin ([`marks`]).
//!
//! # Invariants
//! - I1. A word of zero is no frame: preallocated space reads as the end of the log.
//! - I2. A mark is true: it is written after the sync that it tells of has returned.

use memchr::memmem;

use gabion_media::crc32c;

/// Bytes of a frame before its payload.
pub(crate) const FRAME_HEADER_BYTES: usize = 8;

/// Bytes of a whole mark.
pub(crate) const MARK_BYTES: usize = 16;

/// Longest payload in bytes.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = MARK_BIT - 1;

const MARK_BIT: u32 = 1 << 31;
const MARK_WORD: u32 = MARK_BIT | 8;

/// The file in which frames lie; part of their checksums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameSeed {
    seed: u32,
}

/// What begins at a position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParsedFrame<'a> {
    /// A valid frame with a record.
    Record(&'a [u8]),
    /// A valid mark.
    Mark(u64),
    /// Zeros: the frames end here.
    Blank,
    /// More bytes are needed to tell: this many from the position on.
    Short(usize),
    /// No valid frame.
    Invalid,
}

impl FrameSeed {
    /// The file with this magic and number.
    pub(crate) fn new(magic: &[u8; 8], number: u64) -> FrameSeed {
        let seed = crc32c::crc32c_append(crc32c::crc32c(magic), &number.to_le_bytes());
        FrameSeed { seed }
    }

    #[inline]
    fn checksum(self, offset: u64, word: u32, parts: &[&[u8]]) -> u32 {
        // One aligned string of sixteen bytes is much cheaper to checksum than two short ones.
        let front = u128::from(offset) | u128::from(word) << 96;
        let mut crc = crc32c::crc32c_append(self.seed, &front.to_le_bytes());
        for part in parts {
            crc = crc32c::crc32c_append(crc, part);
        }
        crc
    }

    /// The whole frame of the record at `offset` whose payload consists of the parts, `len` bytes
    /// together, put together in `staging`. For short records this is faster than a header and
    /// parts: a checksum over one string costs half of that over several.
    ///
    /// # Panics
    /// When the payload is empty or longer than [`PAYLOAD_BYTES_MAX`].
    #[inline]
    pub(crate) fn stage<'s>(
        self,
        staging: &'s mut Vec<u8>,
        offset: u64,
        len: u32,
        parts: &[&[u8]],
    ) -> &'s [u8] {
        check_len(len);
        staging.clear();
        staging.extend_from_slice(&offset.to_le_bytes());
        staging.extend_from_slice(&header(0, len));
        parts
            .iter()
            .for_each(|part| staging.extend_from_slice(part));
        let crc = crc32c::crc32c_append(self.seed, staging);
        let frame = staging.get_mut(size_of_val(&offset)..).unwrap_or_default();
        if let Some(field) = frame.first_chunk_mut() {
            *field = crc.to_le_bytes();
        }
        frame
    }

    /// Header of the record at `offset` whose payload consists of the parts, `len` bytes together.
    ///
    /// # Panics
    /// When the payload is empty or longer than [`PAYLOAD_BYTES_MAX`].
    #[inline]
    pub(crate) fn header(self, offset: u64, len: u32, parts: &[&[u8]]) -> [u8; FRAME_HEADER_BYTES] {
        check_len(len);
        header(self.checksum(offset, len, parts), len)
    }

    /// The mark at `offset` that says that everything before position `durable` is durable.
    #[inline]
    pub(crate) fn mark(self, offset: u64, durable: u64) -> [u8; MARK_BYTES] {
        let payload = durable.to_le_bytes();
        let crc = self.checksum(offset, MARK_WORD, &[&payload]);
        let mut mark = [0; MARK_BYTES];
        let (front, back) = mark.split_at_mut(FRAME_HEADER_BYTES);
        front.copy_from_slice(&header(crc, MARK_WORD));
        back.copy_from_slice(&payload);
        mark
    }

    /// What begins at the front of `bytes`, which lie at `offset` and may reach beyond it.
    #[inline]
    pub(crate) fn parse(self, offset: u64, bytes: &[u8]) -> ParsedFrame<'_> {
        let Some((header, rest)) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>() else {
            return ParsedFrame::Short(FRAME_HEADER_BYTES);
        };
        let [c0, c1, c2, c3, w0, w1, w2, w3] = *header;
        let crc = u32::from_le_bytes([c0, c1, c2, c3]);
        let word = u32::from_le_bytes([w0, w1, w2, w3]);
        if word == 0 {
            return if crc == 0 {
                ParsedFrame::Blank
            } else {
                ParsedFrame::Invalid
            };
        }
        if word & MARK_BIT != 0 && word != MARK_WORD {
            return ParsedFrame::Invalid;
        }
        let len = (word & !MARK_BIT) as usize;
        let Some(payload) = rest.get(..len) else {
            return ParsedFrame::Short(FRAME_HEADER_BYTES + len);
        };
        if self.checksum(offset, word, &[payload]) != crc {
            return ParsedFrame::Invalid;
        }
        if word != MARK_WORD {
            return ParsedFrame::Record(payload);
        }
        match payload.first_chunk::<8>() {
            Some(position) => ParsedFrame::Mark(u64::from_le_bytes(*position)),
            None => ParsedFrame::Invalid,
        }
    }
}

/// The positions in all marks that lie completely within `bytes`, which begin at `offset`.
pub(crate) fn marks(place: FrameSeed, offset: u64, bytes: &[u8]) -> impl Iterator<Item = u64> {
    const WORD: [u8; 4] = MARK_WORD.to_le_bytes();
    memmem::find_iter(bytes, &WORD).filter_map(move |word_at| {
        let start = word_at.checked_sub(4)?;
        let mark = bytes.get(start..start + MARK_BYTES)?;
        match place.parse(offset + start as u64, mark) {
            ParsedFrame::Mark(position) => Some(position),
            _ => None,
        }
    })
}

#[inline]
fn check_len(len: u32) {
    assert!(
        0 < len && len <= PAYLOAD_BYTES_MAX,
        "a payload of {len} bytes"
    );
}

#[inline]
fn header(crc: u32, word: u32) -> [u8; FRAME_HEADER_BYTES] {
    let [c0, c1, c2, c3] = crc.to_le_bytes();
    let [w0, w1, w2, w3] = word.to_le_bytes();
    [c0, c1, c2, c3, w0, w1, w2, w3]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place() -> FrameSeed {
        FrameSeed::new(b"TESTFILE", 7)
    }

    fn frame(offset: u64, payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).unwrap();
        let mut bytes = place().header(offset, len, &[payload]).to_vec();
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn a_frame_has_these_bytes() {
        let bytes = frame(64, b"gabion");
        assert_eq!(bytes[4..], *b"\x06\0\0\0gabion");
        let mut covered = b"TESTFILE".to_vec();
        covered.extend([7, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0]);
        covered.extend([0; 4]);
        covered.extend(&bytes[4..]);
        assert_eq!(bytes[..4], crc32c::crc32c(&covered).to_le_bytes());
        assert_eq!(bytes[..4], GOLDEN_FRAME_CRC);

        let mark = place().mark(64, 0x0102_0304);
        assert_eq!(mark[4..], [8, 0, 0, 0x80, 4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(mark[..4], GOLDEN_MARK_CRC);
    }

    const GOLDEN_FRAME_CRC: [u8; 4] = [230, 216, 176, 64];
    const GOLDEN_MARK_CRC: [u8; 4] = [53, 100, 19, 80];

    #[test]
    fn a_payload_in_parts_is_the_payload() {
        let whole = place().header(9, 6, &[b"gabion"]);
        assert_eq!(place().header(9, 6, &[b"ga", b"", b"bio", b"n"]), whole);
        let mut staging = vec![1; 100];
        let staged = place().stage(&mut staging, 9, 6, &[b"ga", b"", b"bio", b"n"]);
        assert_eq!(staged, frame(9, b"gabion"));
    }

    #[test]
    fn a_frame_is_valid_at_its_place_only() {
        let bytes = frame(64, b"gabion");
        assert_eq!(place().parse(64, &bytes), ParsedFrame::Record(b"gabion"));
        assert_eq!(place().parse(65, &bytes), ParsedFrame::Invalid);
        for other in [
            FrameSeed::new(b"TESTFILE", 8),
            FrameSeed::new(b"TESTFILF", 7),
        ] {
            assert_eq!(other.parse(64, &bytes), ParsedFrame::Invalid);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        for bytes in [frame(64, b"gabion"), place().mark(64, 5).to_vec()] {
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= 1 << bit;
                    let parsed = place().parse(64, &damaged);
                    assert!(
                        matches!(parsed, ParsedFrame::Invalid | ParsedFrame::Short(_)),
                        "{at} {bit}"
                    );
                }
                let expected = if at < 8 { 8 } else { bytes.len() };
                assert_eq!(
                    place().parse(64, &bytes[..at]),
                    ParsedFrame::Short(expected)
                );
            }
        }
    }

    #[test]
    fn zeros_are_the_end() {
        assert_eq!(place().parse(0, &[0; 8]), ParsedFrame::Blank);
        assert_eq!(place().parse(0, &[0; 7]), ParsedFrame::Short(8));
        assert_eq!(
            place().parse(0, &[1, 0, 0, 0, 0, 0, 0, 0]),
            ParsedFrame::Invalid
        );
    }

    proptest! {
        #[test]
        fn random_bytes_are_no_frame(offset: u64, bytes: Vec<u8>) {
            let parsed = place().parse(offset, &bytes);
            prop_assert!(!matches!(parsed, ParsedFrame::Record(_) | ParsedFrame::Mark(_)));
        }

        #[test]
        fn marks_are_found_among_anything(
            before in prop::collection::vec(any::<u8>(), 0..40),
            between in prop::collection::vec(prop::sample::select(vec![0u8, 8, 0x80]), 0..40),
            positions: [u64; 2],
        ) {
            let mut bytes = before;
            bytes.extend(place().mark(100 + bytes.len() as u64, positions[0]));
            bytes.extend(between);
            bytes.extend(place().mark(100 + bytes.len() as u64, positions[1]));
            bytes.extend(place().mark(5, 17));
            let found: Vec<u64> = marks(place(), 100, &bytes).collect();
            prop_assert_eq!(found, positions);
        }
    }
}
