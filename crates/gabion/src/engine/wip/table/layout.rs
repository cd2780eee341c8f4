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
//! | properties | `properties_bytes` | [`Properties`] and a section trailer |
//! | footer | 64 | see below |
//!
//! Footer. Magic, version and checksum keep their places in every version of the format. A table
//! with features that the program does not know is refused.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `"GabionTb"` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | what the table has of [`Features`] |
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
use super::features::Features;
use super::sketch::Sketch;
use crate::engine::range_deletes::{Fragment, Fragments};

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
pub(super) type Checked<T> = std::result::Result<T, &'static str>;

/// Why a footer is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FooterRefusal {
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
pub(super) fn check_part(file: u64, offset: u64, part: &[u8]) -> Checked<&[u8]> {
    match check_stored(file, offset, part)? {
        (Encoding::Plain, body) => Ok(body),
        _ => Err("a section is compressed"),
    }
}

/// Checks a part as it lies on the medium; returns how it is encoded, and the part without its
/// trailer.
pub(super) fn check_stored(file: u64, offset: u64, part: &[u8]) -> Checked<(Encoding, &[u8])> {
    if !is_intact(file, offset, part) {
        return Err("the checksum does not match");
    }
    let (body, trailer) = part
        .split_last_chunk::<TRAILER_BYTES>()
        .ok_or("it is shorter than its trailer")?;
    let encoding = u32_at(trailer, 0).and_then(Encoding::of);
    Ok((encoding.ok_or("the encoding is unknown")?, body))
}

/// The lengths of the parts of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    /// What the table has.
    pub(super) features: Features,
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
    ) -> Result<Footer, FooterRefusal> {
        if !bytes.starts_with(&MAGIC) {
            return Err(FooterRefusal::Corrupt(
                "the magic number of a table is missing",
            ));
        }
        if !is_intact(file, offset, bytes) {
            return Err(FooterRefusal::Corrupt(
                "the checksum of the footer does not match",
            ));
        }
        let word = |at| u32_at(bytes, at).unwrap_or_default();
        let long = |at| u64_at(bytes, at).unwrap_or_default();
        if word(8) > VERSION {
            return Err(FooterRefusal::Newer(word(8)));
        }
        let footer = Footer {
            features: Features::of(word(12)).map_err(FooterRefusal::UnknownFeatures)?,
            file: long(16),
            data_bytes: long(24),
            filter_bytes: long(32),
            index_bytes: long(40),
            properties_bytes: long(48),
        };
        if word(8) != VERSION || word(56) != 0 || footer.file != file {
            return Err(FooterRefusal::Corrupt("the footer contradicts itself"));
        }
        if footer.parts_end() != Some(offset) {
            return Err(FooterRefusal::Corrupt(
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

/// What is known of a table's contents without reading them.
///
/// Encoded as seven u64 in the order of the fields, then three byte strings, each with its length
/// as a u32 before it: smallest key, largest key, sketch. What follows is there if the footer has
/// the feature.
///
/// - Range deletes, which are entries of the table as well: their number as a u32, then for each
///   the first key and the first key above it (empty: the end of all keys) as byte strings, the
///   number of its sequence numbers as a u32, and these, newest first.
/// - The numbers of blocks that are compressed by LZ4 and by Zstandard, two u64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Properties {
    /// Number of entries.
    pub(super) entries: u64,
    /// Entries that are tombstones.
    pub(super) tombstones: u64,
    /// Bytes of all keys, each version counted.
    pub(super) key_bytes: u64,
    /// Bytes of all values.
    pub(super) value_bytes: u64,
    /// Smallest sequence number.
    pub(super) min_seq: u64,
    /// Largest sequence number.
    pub(super) max_seq: u64,
    /// Bits per key that the filter was made with.
    pub(super) filter_bits_per_key: u64,
    /// Smallest key.
    pub(super) smallest: Vec<u8>,
    /// Largest key.
    pub(super) largest: Vec<u8>,
    /// Sketch of the distinct keys.
    pub(super) sketch: Sketch,
    /// The range deletes among the entries.
    pub(super) deletes: Fragments,
    /// Number of compressed blocks.
    pub(super) packed: PackedBlocks,
}

/// How many blocks are compressed, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PackedBlocks {
    /// By LZ4.
    pub(super) lz4: u64,
    /// By Zstandard.
    pub(super) zstd: u64,
}

impl PackedBlocks {
    /// Counts a block.
    pub(super) fn count(&mut self, encoding: Encoding) {
        match encoding {
            Encoding::Plain => {}
            Encoding::Lz4 => self.lz4 += 1,
            Encoding::Zstd => self.zstd += 1,
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(self) -> bool {
        self == PackedBlocks::default()
    }
}

impl Properties {
    /// Of no entry yet.
    pub(super) fn empty(filter_bits_per_key: u64) -> Properties {
        Properties {
            entries: 0,
            tombstones: 0,
            key_bytes: 0,
            value_bytes: 0,
            min_seq: u64::MAX,
            max_seq: 0,
            filter_bits_per_key,
            smallest: Vec::new(),
            largest: Vec::new(),
            sketch: Sketch::default(),
            deletes: Fragments::default(),
            packed: PackedBlocks::default(),
        }
    }

    /// Of a table of which they are lost: any of its blocks may be compressed.
    pub(super) fn unknown() -> Properties {
        Properties {
            packed: PackedBlocks { lz4: 1, zstd: 0 },
            ..Properties::empty(0)
        }
    }

    /// Appends the encoded properties.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for field in [
            self.entries,
            self.tombstones,
            self.key_bytes,
            self.value_bytes,
            self.min_seq,
            self.max_seq,
            self.filter_bits_per_key,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for string in [&self.smallest, &self.largest, &self.sketch.encode()] {
            let len = u32::try_from(string.len()).expect("keys and sketches are short");
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(string);
        }
        if !self.deletes.is_empty() {
            encode_deletes(&self.deletes, out);
        }
        if !self.packed.is_empty() {
            for count in [self.packed.lz4, self.packed.zstd] {
                out.extend_from_slice(&count.to_le_bytes());
            }
        }
    }

    /// Whether all entries say 0, "before all writes": then they have the one number that the
    /// manifest gives the table.
    pub(super) fn is_numbered_by_manifest(&self) -> bool {
        (self.min_seq, self.max_seq) == (0, 0)
    }

    /// What the table has.
    pub(super) fn features(&self) -> Features {
        Features::NONE
            .with_if(!self.deletes.is_empty(), Features::RANGE_DELETES)
            .with_if(!self.packed.is_empty(), Features::PACKED_BLOCKS)
            .with_if(
                self.is_numbered_by_manifest(),
                Features::NUMBERED_BY_MANIFEST,
            )
    }

    /// Decodes what [`Properties::encode`] made of a table with these features.
    pub(super) fn decode(bytes: &[u8], features: Features) -> Checked<Properties> {
        let mut reader = Reader { bytes };
        let parsed = reader.properties(features);
        let properties = parsed.ok_or("the properties do not parse")?;
        if !reader.bytes.is_empty() {
            return Err("bytes follow the properties");
        }
        let sound = properties.entries > 0
            && properties.tombstones <= properties.entries
            && properties.min_seq <= properties.max_seq
            && properties.smallest <= properties.largest
            && properties.features() == features;
        if sound {
            Ok(properties)
        } else {
            Err("the properties contradict each other")
        }
    }
}

fn encode_deletes(deletes: &Fragments, out: &mut Vec<u8>) {
    let number = |count: usize| u32::try_from(count).expect("a table has fewer entries");
    out.extend_from_slice(&number(deletes.iter().len()).to_le_bytes());
    for fragment in deletes.iter() {
        for string in [&*fragment.lower, fragment.upper.as_deref().unwrap_or(&[])] {
            out.extend_from_slice(&number(string.len()).to_le_bytes());
            out.extend_from_slice(string);
        }
        out.extend_from_slice(&number(fragment.seqs.len()).to_le_bytes());
        for seq in &fragment.seqs {
            out.extend_from_slice(&seq.to_le_bytes());
        }
    }
}

/// Takes numbers and strings from the front of a byte string.
pub(super) struct Reader<'a> {
    /// What is left.
    pub(super) bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn properties(&mut self, features: Features) -> Option<Properties> {
        Some(Properties {
            entries: self.u64()?,
            tombstones: self.u64()?,
            key_bytes: self.u64()?,
            value_bytes: self.u64()?,
            min_seq: self.u64()?,
            max_seq: self.u64()?,
            filter_bits_per_key: self.u64()?,
            smallest: self.string()?.to_vec(),
            largest: self.string()?.to_vec(),
            sketch: Sketch::decode(self.string()?)?,
            deletes: match features.has(Features::RANGE_DELETES) {
                true => self.deletes()?,
                false => Fragments::default(),
            },
            packed: match features.has(Features::PACKED_BLOCKS) {
                true => PackedBlocks {
                    lz4: self.u64()?,
                    zstd: self.u64()?,
                },
                false => PackedBlocks::default(),
            },
        })
    }

    fn deletes(&mut self) -> Option<Fragments> {
        let count = self.u32()?;
        let mut fragments = Vec::new();
        for _ in 0..count {
            let (lower, upper) = (self.string()?, self.string()?);
            let numbers = self.u32()?;
            let seqs = (0..numbers).map_while(|_| self.u64()).collect::<Vec<_>>();
            if seqs.len() != numbers as usize {
                return None;
            }
            fragments.push(Fragment {
                lower: lower.into(),
                upper: (!upper.is_empty()).then(|| upper.into()),
                seqs,
            });
        }
        Fragments::checked(fragments)
    }

    fn u64(&mut self) -> Option<u64> {
        let (number, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
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
    use proptest::prelude::*;

    fn footer() -> Footer {
        Footer {
            features: Features::PACKED_BLOCKS,
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
            assert!(matches!(refusal, Err(FooterRefusal::Corrupt(_))), "{at}");
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
        assert_eq!(refused(8, 7), FooterRefusal::Newer(7));
        assert!(matches!(refused(8, 0), FooterRefusal::Corrupt(_)));
        assert_eq!(refused(12, 8), FooterRefusal::UnknownFeatures(8));
        let bits = 1 << 31 | 7;
        assert_eq!(refused(12, bits), FooterRefusal::UnknownFeatures(1 << 31));
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

    fn properties() -> Properties {
        Properties {
            entries: 3,
            tombstones: 1,
            key_bytes: 12,
            value_bytes: 100,
            min_seq: 5,
            max_seq: 9,
            filter_bits_per_key: 10,
            smallest: b"a".to_vec(),
            largest: b"zz".to_vec(),
            sketch: Sketch::default(),
            deletes: Fragments::default(),
            packed: PackedBlocks::default(),
        }
    }

    #[test]
    fn properties_survive_a_round_trip_and_nothing_shorter_or_longer_passes() {
        let deletes = vec![
            Fragment {
                lower: b"b"[..].into(),
                upper: Some(b"c"[..].into()),
                seqs: vec![8, 6],
            },
            Fragment {
                lower: b"d"[..].into(),
                upper: None,
                seqs: vec![9],
            },
        ];
        let with_ranges = Properties {
            deletes: Fragments::checked(deletes).unwrap(),
            ..properties()
        };
        let compressed = Properties {
            packed: PackedBlocks { lz4: 5, zstd: 0 },
            ..properties()
        };
        let unnumbered = Properties {
            min_seq: 0,
            max_seq: 0,
            ..compressed.clone()
        };
        let both = Properties {
            packed: PackedBlocks { lz4: 0, zstd: 2 },
            ..with_ranges.clone()
        };
        for (bits, properties) in [
            (0, properties()),
            (1, with_ranges),
            (2, compressed),
            (3, both),
            (6, unnumbered),
        ] {
            let features = Features::of(bits).unwrap();
            let mut bytes = Vec::new();
            properties.encode(&mut bytes);
            assert_eq!(properties.features(), features);
            assert_eq!(Properties::decode(&bytes, features), Ok(properties));
            for other in (0..8).filter(|other| *other != bits) {
                assert!(Properties::decode(&bytes, Features::of(other).unwrap()).is_err());
            }
            for len in 0..bytes.len() {
                assert!(Properties::decode(&bytes[..len], features).is_err());
            }
            bytes.push(0);
            assert!(Properties::decode(&bytes, features).is_err());
        }
    }

    #[test]
    fn range_deletes_have_these_bytes() {
        let mut bytes = Vec::new();
        encode_deletes(&Fragments::of_range(b"b", Some(b"cd"), 7), &mut bytes);
        let golden = b"\x01\0\0\0\x01\0\0\0b\x02\0\0\0cd\x01\0\0\0\x07\0\0\0\0\0\0\0";
        assert_eq!(bytes, golden);
    }

    #[test]
    fn contradictory_properties_are_refused() {
        let refused = |change: fn(&mut Properties)| {
            let mut changed = properties();
            change(&mut changed);
            let mut bytes = Vec::new();
            changed.encode(&mut bytes);
            Properties::decode(&bytes, Features::NONE).is_err()
        };
        assert!(refused(|p| p.entries = 0));
        assert!(refused(|p| p.tombstones = 4));
        assert!(refused(|p| p.min_seq = 10));
        assert!(refused(|p| p.smallest = b"zzz".to_vec()));
    }

    proptest! {
        #[test]
        fn varints_survive_a_round_trip(number: u64, shift in 0u32..64) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            let mut reader = Reader { bytes: &bytes };
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
                let _ = Properties::decode(&bytes, Features::of(bits).unwrap());
            }
            let _ = Sketch::decode(&bytes);
            let _ = check_part(1, 2, &bytes);
            if let Some(number) = (Reader { bytes: &bytes }).varint() {
                let mut again = Vec::new();
                put_varint(&mut again, number);
                prop_assert!(bytes.starts_with(&again));
            }
        }
    }
}
