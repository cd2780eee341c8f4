//! What a table says of its contents: its section of properties.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

use super::block_layout::Encoding;
use super::distinct_sketch::DistinctSketch;
use super::features::TableFeatures;
use super::layout::{CheckResult, FieldReader};
use crate::engine::expiries::{Expiries, MARKS};
use crate::engine::range_deletes::{RangeTombstone, RangeTombstones};

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
/// - The number of entries that expire, and the moments of [`Expiries`], ten u64.
/// - The number of merges, a u64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableProperties {
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
    pub(super) sketch: DistinctSketch,
    /// The range deletes among the entries.
    pub(super) deletes: RangeTombstones,
    /// Number of compressed blocks.
    pub(super) packed: CompressionCounts,
    /// The entries that expire.
    pub(super) expiries: Option<Expiries>,
    /// Entries that are merges.
    pub(super) merges: u64,
}

/// How many blocks are compressed, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CompressionCounts {
    /// By LZ4.
    pub(super) lz4: u64,
    /// By Zstandard.
    pub(super) zstd: u64,
}

impl CompressionCounts {
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
        self == CompressionCounts::default()
    }
}

impl TableProperties {
    /// Of no entry yet.
    pub(super) fn empty(filter_bits_per_key: u64) -> TableProperties {
        TableProperties {
            entries: 0,
            tombstones: 0,
            key_bytes: 0,
            value_bytes: 0,
            min_seq: u64::MAX,
            max_seq: 0,
            filter_bits_per_key,
            smallest: Vec::new(),
            largest: Vec::new(),
            sketch: DistinctSketch::default(),
            deletes: RangeTombstones::default(),
            packed: CompressionCounts::default(),
            expiries: None,
            merges: 0,
        }
    }

    /// Of a table of which they are lost: any of its blocks may be compressed, and any entry may be
    /// a merge.
    pub(super) fn unknown() -> TableProperties {
        TableProperties {
            packed: CompressionCounts { lz4: 1, zstd: 0 },
            merges: 1,
            ..TableProperties::empty(0)
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
        if let Some(Expiries { entries, marks }) = &self.expiries {
            for number in std::iter::once(entries).chain(marks) {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        if self.merges > 0 {
            out.extend_from_slice(&self.merges.to_le_bytes());
        }
    }

    /// Whether all entries say 0, "before all writes": then they have the one number that the
    /// manifest gives the table.
    pub(super) fn is_numbered_by_manifest(&self) -> bool {
        (self.min_seq, self.max_seq) == (0, 0)
    }

    /// What the table has.
    pub(super) fn features(&self) -> TableFeatures {
        TableFeatures::NONE
            .with_if(!self.deletes.is_empty(), TableFeatures::RANGE_DELETES)
            .with_if(!self.packed.is_empty(), TableFeatures::PACKED_BLOCKS)
            .with_if(self.expiries.is_some(), TableFeatures::EXPIRIES)
            .with_if(self.merges > 0, TableFeatures::MERGES)
            .with_if(
                self.is_numbered_by_manifest(),
                TableFeatures::NUMBERED_BY_MANIFEST,
            )
    }

    /// Decodes what [`TableProperties::encode`] made of a table with these features.
    pub(super) fn decode(bytes: &[u8], features: TableFeatures) -> CheckResult<TableProperties> {
        let mut reader = FieldReader { bytes };
        let parsed = reader.properties(features);
        let properties = parsed.ok_or("the properties do not parse")?;
        if !reader.bytes.is_empty() {
            return Err("bytes follow the properties");
        }
        let sound = properties.entries > 0
            && properties.tombstones <= properties.entries
            && properties.merges <= properties.entries
            && properties.min_seq <= properties.max_seq
            && properties.smallest <= properties.largest
            && properties
                .expiries
                .is_none_or(|own| own.is_sound(properties.entries))
            && properties.features() == features;
        if sound {
            Ok(properties)
        } else {
            Err("the properties contradict each other")
        }
    }
}

fn encode_deletes(deletes: &RangeTombstones, out: &mut Vec<u8>) {
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
impl FieldReader<'_> {
    fn properties(&mut self, features: TableFeatures) -> Option<TableProperties> {
        Some(TableProperties {
            entries: self.u64()?,
            tombstones: self.u64()?,
            key_bytes: self.u64()?,
            value_bytes: self.u64()?,
            min_seq: self.u64()?,
            max_seq: self.u64()?,
            filter_bits_per_key: self.u64()?,
            smallest: self.string()?.to_vec(),
            largest: self.string()?.to_vec(),
            sketch: DistinctSketch::decode(self.string()?)?,
            deletes: match features.has(TableFeatures::RANGE_DELETES) {
                true => self.deletes()?,
                false => RangeTombstones::default(),
            },
            packed: match features.has(TableFeatures::PACKED_BLOCKS) {
                true => CompressionCounts {
                    lz4: self.u64()?,
                    zstd: self.u64()?,
                },
                false => CompressionCounts::default(),
            },
            expiries: match features.has(TableFeatures::EXPIRIES) {
                true => Some(self.expiries()?),
                false => None,
            },
            merges: match features.has(TableFeatures::MERGES) {
                true => self.u64()?,
                false => 0,
            },
        })
    }

    fn expiries(&mut self) -> Option<Expiries> {
        let (entries, mut marks) = (self.u64()?, [0; MARKS]);
        for mark in &mut marks {
            *mark = self.u64()?;
        }
        Some(Expiries { entries, marks })
    }

    fn deletes(&mut self) -> Option<RangeTombstones> {
        let count = self.u32()?;
        let mut fragments = Vec::new();
        for _ in 0..count {
            let (lower, upper) = (self.string()?, self.string()?);
            let numbers = self.u32()?;
            let seqs = (0..numbers).map_while(|_| self.u64()).collect::<Vec<_>>();
            if seqs.len() != numbers as usize {
                return None;
            }
            fragments.push(RangeTombstone {
                lower: lower.into(),
                upper: (!upper.is_empty()).then(|| upper.into()),
                seqs,
            });
        }
        RangeTombstones::checked(fragments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties() -> TableProperties {
        TableProperties {
            entries: 3,
            tombstones: 1,
            key_bytes: 12,
            value_bytes: 100,
            min_seq: 5,
            max_seq: 9,
            filter_bits_per_key: 10,
            smallest: b"a".to_vec(),
            largest: b"zz".to_vec(),
            sketch: DistinctSketch::default(),
            deletes: RangeTombstones::default(),
            packed: CompressionCounts::default(),
            expiries: None,
            merges: 0,
        }
    }

    #[test]
    fn properties_survive_a_round_trip_and_nothing_shorter_or_longer_passes() {
        let deletes = vec![
            RangeTombstone {
                lower: b"b"[..].into(),
                upper: Some(b"c"[..].into()),
                seqs: vec![8, 6],
            },
            RangeTombstone {
                lower: b"d"[..].into(),
                upper: None,
                seqs: vec![9],
            },
        ];
        let with_ranges = TableProperties {
            deletes: RangeTombstones::checked(deletes).unwrap(),
            ..properties()
        };
        let compressed = TableProperties {
            packed: CompressionCounts { lz4: 5, zstd: 0 },
            ..properties()
        };
        let unnumbered = TableProperties {
            min_seq: 0,
            max_seq: 0,
            ..compressed.clone()
        };
        let both = TableProperties {
            packed: CompressionCounts { lz4: 0, zstd: 2 },
            ..with_ranges.clone()
        };
        let expiring = TableProperties {
            expiries: Some(Expiries {
                entries: 2,
                marks: [1, 2, 3, 4, 5, 6, 7, 8, 1 << 40],
            }),
            ..properties()
        };
        let merged = TableProperties {
            merges: 3,
            ..properties()
        };
        for (bits, properties) in [
            (0, properties()),
            (8, expiring),
            (16, merged),
            (1, with_ranges),
            (2, compressed),
            (3, both),
            (6, unnumbered),
        ] {
            let features = TableFeatures::of(bits).unwrap();
            let mut bytes = Vec::new();
            properties.encode(&mut bytes);
            assert_eq!(properties.features(), features);
            assert_eq!(TableProperties::decode(&bytes, features), Ok(properties));
            for other in (0..16).filter(|other| *other != bits) {
                assert!(
                    TableProperties::decode(&bytes, TableFeatures::of(other).unwrap()).is_err()
                );
            }
            for len in 0..bytes.len() {
                assert!(TableProperties::decode(&bytes[..len], features).is_err());
            }
            bytes.push(0);
            assert!(TableProperties::decode(&bytes, features).is_err());
        }
    }

    #[test]
    fn range_deletes_have_these_bytes() {
        let mut bytes = Vec::new();
        encode_deletes(&RangeTombstones::of_range(b"b", Some(b"cd"), 7), &mut bytes);
        let golden = b"\x01\0\0\0\x01\0\0\0b\x02\0\0\0cd\x01\0\0\0\x07\0\0\0\0\0\0\0";
        assert_eq!(bytes, golden);
    }

    #[test]
    fn contradictory_properties_are_refused() {
        let refused = |change: fn(&mut TableProperties)| {
            let mut changed = properties();
            change(&mut changed);
            let mut bytes = Vec::new();
            changed.encode(&mut bytes);
            TableProperties::decode(&bytes, TableFeatures::NONE).is_err()
        };
        assert!(refused(|p| p.entries = 0));
        assert!(refused(|p| p.tombstones = 4));
        assert!(refused(|p| p.min_seq = 10));
        assert!(refused(|p| p.smallest = b"zzz".to_vec()));
    }
}
