//! The file format of a table: where its parts lie, how they are checked.
//!
//! # Layout
//! Little-endian throughout. The parts follow each other without gaps:
//!
//! | part | length | contents |
//! |---|---|---|
//! | blocks | `data_bytes` | the entries, see [`super::block_layout`] |
//! | filter | `filter_bytes` | [`super::filter`] and a section trailer |
//! | index | `index_bytes` | [`super::index`] and a section trailer |
//! | properties | `properties_bytes` | `TableProperties` and a section trailer |
//! | footer | 64 | see below |
//!
//! Footer. Magic, version and checksum keep their places in every version of the format. A table
//! with features that the program does not know is refused.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `"GabionTb"` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | what the table has of [`TableFeatures`] |
//! | 16 | 8 | number of the file |
//! | 24 | 8 | `data_bytes` |
//! | 32 | 8 | `filter_bytes` |
//! | 40 | 8 | `index_bytes` |
//! | 48 | 8 | `properties_bytes` |
//! | 56 | 4 | zero |
//! | 60 | 4 | checksum |
//!
//! Trailer of a block or section, its last eight bytes: u32 encoding (0 = plain; 1 and 2 are
//! compressed blocks, see [`super::codec`]), u32 checksum.
//!
//! # Checksums
//! CRC-32C over the offset in the file, the number of the file (u64 each) and the part itself up to
//! the checksum. A part that is intact but lies in the wrong place, or in the wrong file, fails.
//!
//! # Invariants
//! - I1: every byte of the file is covered by exactly one checksum.
//! - I2: the lengths in the footer and the footer's own add up to the length of the file, so a
//!   file that was cut or extended is refused.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

use gabion_media::crc32c;

use super::block_layout::Encoding;
use super::features::TableFeatures;

/// First bytes of the footer.
const MAGIC: [u8; 8] = *b"GabionTb";
/// The version that this program writes and reads.
pub(super) const VERSION: u32 = 1;
/// Length of the footer.
pub(super) const FOOTER_BYTES: usize = 64;
/// Length of the trailer of a block or section.
pub(super) const TRAILER_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;

/// Magic, version, features, five numbers, zero, checksum.
const _: () = assert!(FOOTER_BYTES == MAGIC.len() + 4 + 4 + 5 * 8 + 4 + CHECKSUM_BYTES);

/// What does not hold about a part of a file; the caller adds file and offset.
pub(super) type CheckResult<T> = std::result::Result<T, &'static str>;

/// Why a footer is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FooterError {
    /// It does not pass its checks.
    Corrupt(&'static str),
    /// It is intact, and has a version of a newer program.
    Newer(u32),
    /// It is intact, and has features of a newer program: these bits.
    UnknownFeatures(u32),
}

/// The checksum of `part`, without its last four bytes, at this place.
fn checksum(file: u64, offset: u64, part: &[u8]) -> u32 {
    let covered = part.len().saturating_sub(CHECKSUM_BYTES);
    let place = u128::from(file) << 64 | u128::from(offset);
    let seed = crc32c::crc32c(&place.to_le_bytes());
    crc32c::crc32c_append(seed, part.get(..covered).unwrap_or_default())
}

/// Whether the last four bytes of `part` are its checksum.
fn is_intact(file: u64, offset: u64, part: &[u8]) -> bool {
    part.last_chunk::<CHECKSUM_BYTES>()
        .is_some_and(|stored| u32::from_le_bytes(*stored) == checksum(file, offset, part))
}

/// Ends the part that begins at `start` of `out`, and will lie at `offset` of the file, with a
/// trailer.
pub(super) fn append_trailer(out: &mut Vec<u8>, start: usize, file: u64, offset: u64) {
    append_trailer_of(Encoding::Plain, out, start, file, offset);
}

/// The same for a part that is encoded.
pub(super) fn append_trailer_of(
    encoding: Encoding,
    out: &mut Vec<u8>,
    start: usize,
    file: u64,
    offset: u64,
) {
    out.extend_from_slice(&encoding.number().to_le_bytes());
    append_checksum(out, start, file, offset);
}

fn append_checksum(out: &mut Vec<u8>, start: usize, file: u64, offset: u64) {
    out.extend_from_slice(&[0; CHECKSUM_BYTES]);
    let sum = checksum(file, offset, out.get(start..).unwrap_or_default());
    if let Some(place) = out.last_chunk_mut::<CHECKSUM_BYTES>() {
        *place = sum.to_le_bytes();
    }
}

/// Checks a section with its trailer and returns it without.
pub(super) fn check_part(file: u64, offset: u64, part: &[u8]) -> CheckResult<&[u8]> {
    match check_stored(file, offset, part)? {
        (Encoding::Plain, body) => Ok(body),
        _ => Err("a section is compressed"),
    }
}

/// Checks a part as it lies on the medium; returns how it is encoded, and the part without its
/// trailer.
pub(super) fn check_stored(file: u64, offset: u64, part: &[u8]) -> CheckResult<(Encoding, &[u8])> {
    if !is_intact(file, offset, part) {
        return Err("the checksum does not match");
    }
    let (body, trailer) = part
        .split_last_chunk::<TRAILER_BYTES>()
        .ok_or("the section is shorter than its trailer")?;
    let encoding = u32_at(trailer, 0).and_then(Encoding::of);
    Ok((encoding.ok_or("the encoding is unknown")?, body))
}

/// The lengths of the parts of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    /// What the table has.
    pub(super) features: TableFeatures,
    /// Number of the file.
    pub(super) file: u64,
    /// Length of all blocks.
    pub(super) data_bytes: u64,
    /// Length of the filter section.
    pub(super) filter_bytes: u64,
    /// Length of the index section.
    pub(super) index_bytes: u64,
    /// Length of the properties section.
    pub(super) properties_bytes: u64,
}

impl Footer {
    /// Appends the footer, which will lie at `offset` of the file.
    pub(super) fn encode(&self, out: &mut Vec<u8>, offset: u64) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.features.bits().to_le_bytes());
        for field in [
            self.file,
            self.data_bytes,
            self.filter_bytes,
            self.index_bytes,
            self.properties_bytes,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&[0; 4]);
        append_checksum(out, start, self.file, offset);
    }

    /// Decodes and checks the footer at `offset` of file `file`.
    pub(super) fn decode(
        bytes: &[u8; FOOTER_BYTES],
        file: u64,
        offset: u64,
    ) -> Result<Footer, FooterError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(FooterError::Corrupt(
                "the magic number of a table is missing",
            ));
        }
        if !is_intact(file, offset, bytes) {
            return Err(FooterError::Corrupt(
                "the checksum of the footer does not match",
            ));
        }
        let word = |at| u32_at(bytes, at).unwrap_or_default();
        let long = |at| u64_at(bytes, at).unwrap_or_default();
        if word(8) > VERSION {
            return Err(FooterError::Newer(word(8)));
        }
        let footer = Footer {
            features: TableFeatures::of(word(12)).map_err(FooterError::UnknownFeatures)?,
            file: long(16),
            data_bytes: long(24),
            filter_bytes: long(32),
            index_bytes: long(40),
            properties_bytes: long(48),
        };
        if word(8) < VERSION {
            return Err(FooterError::Corrupt(
                "it has a format version that is no longer read",
            ));
        }
        if word(8) != VERSION || word(56) != 0 || footer.file != file {
            return Err(FooterError::Corrupt("the footer contradicts itself"));
        }
        if footer.parts_end() != Some(offset) {
            return Err(FooterError::Corrupt(
                "the lengths of the parts do not add up to the length of the file",
            ));
        }
        Ok(footer)
    }

    fn parts_end(&self) -> Option<u64> {
        self.data_bytes
            .checked_add(self.filter_bytes)?
            .checked_add(self.index_bytes)?
            .checked_add(self.properties_bytes)
    }
}

/// Takes numbers and strings from the front of a byte string.
pub(super) struct FieldReader<'a> {
    /// What is left.
    pub(super) bytes: &'a [u8],
}

impl<'a> FieldReader<'a> {
    /// A u64.
    pub(super) fn u64(&mut self) -> Option<u64> {
        let (number, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// A byte string, behind its length as a u32.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    /// A u32.
    pub(super) fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.bytes.split_first_chunk::<4>()?;
        self.bytes = rest;
        Some(u32::from_le_bytes(*number))
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(taken)
    }

    /// A number in the form that [`put_varint`] writes, in its shortest form only.
    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            let low = u64::from(byte & 0x7f);
            if shift == 63 && low > 1 {
                return None;
            }
            number |= low << shift;
            if byte & 0x80 == 0 {
                return (*byte != 0 || shift == 0).then_some(number);
            }
        }
        None
    }
}

/// Appends `number` in groups of seven bits, lowest first, the top bit set on all but the last.
pub(super) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// The u16 at `at`, if it is inside.
#[inline]
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let found = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_le_bytes(*found))
}

/// The u32 at `at`, if it is inside.
#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*found))
}

/// The u64 at `at`, if it is inside.
#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*found))
}

/// Whether `a` and `b` are the same. Short strings, as keys are, are compared without a call.
#[inline]
pub(super) fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    if a.len() < 8 {
        return a.iter().zip(b).all(|(x, y)| x == y);
    }
    if a.len() <= 16 {
        // Two words, which overlap unless there are 16 bytes.
        return a.first_chunk::<8>() == b.first_chunk() && a.last_chunk::<8>() == b.last_chunk();
    }
    a == b
}

/// What follows `prefix` in `key`, if it starts with that; as [`is_same`], made for short prefixes.
#[inline]
pub(super) fn after_prefix<'k>(key: &'k [u8], prefix: &[u8]) -> Option<&'k [u8]> {
    let (front, rest) = key.split_at_checked(prefix.len())?;
    is_same(front, prefix).then_some(rest)
}

/// How many bytes `a` and `b` have in common at their fronts.
#[inline]
pub(super) fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::wip::table::DistinctSketch;
    use crate::engine::wip::table::properties::TableProperties;
    use proptest::prelude::*;

    fn footer() -> Footer {
        Footer {
            features: TableFeatures::PACKED_BLOCKS,
            file: 9,
            data_bytes: 4096,
            filter_bytes: 72,
            index_bytes: 100,
            properties_bytes: 200,
        }
    }

    fn encoded(footer: &Footer, offset: u64) -> [u8; FOOTER_BYTES] {
        let mut bytes = Vec::new();
        footer.encode(&mut bytes, offset);
        bytes.try_into().unwrap()
    }

    #[test]
    fn the_footer_is_laid_out_as_documented() {
        let bytes = encoded(&footer(), 4468);
        assert_eq!(&bytes[..8], b"GabionTb");
        assert_eq!((u32_at(&bytes, 8), u32_at(&bytes, 12)), (Some(1), Some(2)));
        for (at, value) in [(16, 9), (24, 4096), (32, 72), (40, 100), (48, 200)] {
            assert_eq!(u64_at(&bytes, at), Some(value));
        }
        assert_eq!(u32_at(&bytes, 60), Some(0x6d41_b8b0));
        assert_eq!(Footer::decode(&bytes, 9, 4468), Ok(footer()));
    }

    #[test]
    fn a_footer_elsewhere_or_damaged_is_refused() {
        let bytes = encoded(&footer(), 4468);
        assert!(Footer::decode(&bytes, 8, 4468).is_err());
        assert!(Footer::decode(&bytes, 9, 4469).is_err());
        for at in 0..FOOTER_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            let refusal = Footer::decode(&damaged, 9, 4468);
            assert!(matches!(refusal, Err(FooterError::Corrupt(_))), "{at}");
        }
        let overflowing = Footer {
            data_bytes: u64::MAX,
            ..footer()
        };
        assert!(Footer::decode(&encoded(&overflowing, 4468), 9, 4468).is_err());
    }

    #[test]
    fn a_newer_format_and_features_are_refused_by_name() {
        let refused = |at: usize, word: u32| {
            let mut bytes = encoded(&footer(), 4468).to_vec();
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            bytes.truncate(FOOTER_BYTES - CHECKSUM_BYTES);
            append_checksum(&mut bytes, 0, 9, 4468);
            Footer::decode(&bytes.try_into().unwrap(), 9, 4468).unwrap_err()
        };
        assert_eq!(refused(8, 7), FooterError::Newer(7));
        assert!(matches!(refused(8, 0), FooterError::Corrupt(why) if why.contains("version")));
        assert_eq!(refused(12, 32), FooterError::UnknownFeatures(32));
        let bits = 1 << 31 | 7;
        assert_eq!(refused(12, bits), FooterError::UnknownFeatures(1 << 31));
    }

    #[test]
    fn a_part_is_bound_to_its_place() {
        let mut part = b"something".to_vec();
        append_trailer(&mut part, 0, 3, 4096);
        assert_eq!(check_part(3, 4096, &part), Ok(&b"something"[..]));
        assert!(check_part(4, 4096, &part).is_err());
        assert!(check_part(3, 4097, &part).is_err());
        assert!(check_part(3, 4096, &part[..7]).is_err());
        assert!(check_part(3, 4096, &[]).is_err());
    }

    proptest! {
        #[test]
        fn varints_survive_a_round_trip(number: u64, shift in 0u32..64) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            let mut reader = FieldReader { bytes: &bytes };
            prop_assert_eq!(reader.varint(), Some(number));
            prop_assert!(reader.bytes.is_empty());
        }

        #[test]
        fn short_strings_are_handled_as_long_ones_are(
            a in prop::collection::vec(0u8..2, 0..40),
            b in prop::collection::vec(0u8..2, 0..40),
            cut in 0usize..40,
        ) {
            prop_assert_eq!(is_same(&a, &b), a == b);
            prop_assert!(is_same(&a, &a.clone()));
            prop_assert_eq!(after_prefix(&a, &b), a.strip_prefix(b.as_slice()));
            let (front, rest) = a.split_at(cut.min(a.len()));
            prop_assert_eq!(after_prefix(&a, front), Some(rest));
            let mut copied = vec![9; a.len() + 3];
            crate::bytes::copy_to(&mut copied, &a);
            prop_assert_eq!(copied, [&a[..], &[9; 3]].concat());
            for at in 0..a.len() {
                let mut other = a.clone();
                other[at] ^= 1;
                prop_assert!(!is_same(&a, &other));
            }
        }

        #[test]
        fn decoders_take_any_bytes_without_panic(bytes: Vec<u8>) {
            for bits in 0..8 {
                let _ = TableProperties::decode(&bytes, TableFeatures::of(bits).unwrap());
            }
            let _ = DistinctSketch::decode(&bytes);
            let _ = check_part(1, 2, &bytes);
            if let Some(number) = (FieldReader { bytes: &bytes }).varint() {
                let mut again = Vec::new();
                put_varint(&mut again, number);
                prop_assert!(bytes.starts_with(&again));
            }
        }
    }
}
