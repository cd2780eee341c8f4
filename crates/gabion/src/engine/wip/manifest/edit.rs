//! Edits: the changes of the store's structure, and their bytes.
//!
//! # Layout
//! A group is a payload: the number of its edits (varint), then the edits. An edit is its tag (1
//! byte) and its fields in the order below. Numbers are varints; byte strings and names have their
//! length (varint) in front. Tags are never reused.
//!
//! | tag | edit | fields |
//! |---|---|---|
//! | 1 | `AddKeyspace` | id, name (UTF-8) |
//! | 2 | `AddBucket` | id, keyspace, lower bound, flushed sequence number |
//! | 3 | `RemoveBucket` | id |
//! | 4 | `AddTable` | bucket, level (1 byte), run, file |
//! | 5 | `RemoveTable` | bucket, file |
//! | 6 | `NewFile` | file, then the fields of [`FileMeta`] and [`TableAge`]; keys and sketch as |
//! | | | byte strings |
//! | 7 | `DropFile` | file |
//! | 8 | `FlushedSeq` | bucket, sequence number |
//! | 9 | `LogTail` | segment |
//! | 10 | `LogSealed` | segment, length |
//! | 11 | `LastSeq` | sequence number |
//! | 12 | `NextFile` | number |
//! | 13 | `NextBucket` | id |
//! | 14 | `DropKeyspace` | id |
//! | 15 | `NextKeyspace` | id |
//! | 16 | `SetOptions` | keyspace, its options (`keyspace_options`) as a byte string |
//! | 17 | `NewFile` | of a table with entries that expire: as 6, then the fields of [`Expiries`] |
//! | 18 | `UnixMillis` | milliseconds since 1970 |

use std::iter::once;

use crate::KeyspaceOptions;
use crate::engine::expiries::{Expiries, MARKS};
use crate::expiry::UnixMillis;
use crate::log::codec::{MalformedPayload, PayloadReader, put_bytes, put_varint};
use crate::types::Seq;

/// What the store knows about a table without opening it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileMeta {
    /// Size of the file.
    pub(crate) file_bytes: u64,
    /// Number of entries, tombstones included.
    pub(crate) entries: u64,
    /// Number of tombstones, range deletes included.
    pub(crate) tombstones: u64,
    /// Ranges of keys that were deleted.
    pub(crate) range_deletes: u64,
    /// Bytes of keys and values as users wrote them.
    pub(crate) user_bytes: u64,
    /// Smallest key.
    pub(crate) smallest: Vec<u8>,
    /// Largest key.
    pub(crate) largest: Vec<u8>,
    /// Smallest sequence number.
    pub(crate) min_seq: Seq,
    /// Largest sequence number.
    pub(crate) max_seq: Seq,
    /// Sketch of the distinct keys, in the table's encoding.
    pub(crate) sketch: Vec<u8>,
    /// The entries that expire.
    pub(crate) expiries: Option<Box<Expiries>>,
}

/// What is known of the age of a table's entries. Times are in seconds since 1970, plus one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableAge {
    /// Entries that newer ones of the same key follow.
    pub(crate) superseded: u64,
    /// When the first of its entries was written.
    pub(crate) born: u64,
    /// Since when it may hold garbage of its own; 0 when it holds none.
    pub(crate) garbage_since: u64,
}

/// One change of the store's structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VersionEdit {
    /// A keyspace exists from now on.
    AddKeyspace { id: u32, name: String },
    /// A bucket of a keyspace holds the keys from `lower` up to the next bucket's. Where it takes
    /// the place of a bucket with the same bound, that one is removed first.
    AddBucket {
        id: u64,
        keyspace: u32,
        lower: Vec<u8>,
        flushed_seq: Seq,
    },
    /// A bucket is gone, and what refers to tables in it.
    RemoveBucket { id: u64 },
    /// A table becomes part of a run of a bucket. The higher the run, the newer.
    AddTable {
        bucket: u64,
        level: u8,
        run: u64,
        file: u64,
    },
    /// A table is no longer part of a bucket.
    RemoveTable { bucket: u64, file: u64 },
    /// A table file exists and is durable.
    NewFile {
        file: u64,
        meta: FileMeta,
        age: TableAge,
    },
    /// A table file is not needed any more; no bucket refers to it.
    DropFile { file: u64 },
    /// All writes to a bucket up to this number are in tables.
    FlushedSeq { bucket: u64, seq: Seq },
    /// The log is needed from this segment on.
    LogTail { segment: u64 },
    /// The log's segment is durable and valid up to this length; 0: it holds nothing.
    LogSealed { segment: u64, length: u64 },
    /// Sequence numbers up to this one are used.
    LastSeq { seq: Seq },
    /// File numbers below this one are used.
    NextFile { number: u64 },
    /// Bucket ids below this one are used.
    NextBucket { id: u64 },
    /// A keyspace is gone, with its buckets and the tables that only they refer to.
    DropKeyspace { id: u32 },
    /// Keyspace ids below this one are used.
    NextKeyspace { id: u32 },
    /// A keyspace has these options from now on.
    SetOptions { id: u32, options: KeyspaceOptions },
    /// Readers have gone by this moment, or an earlier one.
    Moment { moment: UnixMillis },
}

/// Encodes a group.
pub(super) fn encode_group<'a>(edits: impl ExactSizeIterator<Item = &'a VersionEdit>) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, edits.len() as u64);
    edits.for_each(|edit| edit.encode(&mut bytes));
    bytes
}

/// Decodes a group.
pub(super) fn decode_group(payload: &[u8]) -> Result<Vec<VersionEdit>, MalformedPayload> {
    let mut reader = PayloadReader::new(payload, 0);
    let count = reader.varint()?;
    let mut edits = Vec::new();
    for _ in 0..count {
        edits.push(VersionEdit::decode(&mut reader)?);
    }
    match reader.is_empty() {
        true => Ok(edits),
        false => Err(reader.malformed("bytes follow the last edit")),
    }
}

impl VersionEdit {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let mut plain = |tag: u8, numbers: &[u64]| {
            bytes.push(tag);
            numbers.iter().for_each(|number| put_varint(bytes, *number));
        };
        match self {
            VersionEdit::AddKeyspace { id, name } => {
                plain(1, &[u64::from(*id)]);
                put_bytes(bytes, name.as_bytes());
            }
            VersionEdit::AddBucket {
                id,
                keyspace,
                lower,
                flushed_seq,
            } => {
                plain(2, &[*id, u64::from(*keyspace)]);
                put_bytes(bytes, lower);
                put_varint(bytes, *flushed_seq);
            }
            VersionEdit::RemoveBucket { id } => plain(3, &[*id]),
            VersionEdit::AddTable {
                bucket,
                level,
                run,
                file,
            } => {
                plain(4, &[*bucket]);
                bytes.push(*level);
                put_varint(bytes, *run);
                put_varint(bytes, *file);
            }
            VersionEdit::RemoveTable { bucket, file } => plain(5, &[*bucket, *file]),
            VersionEdit::NewFile { file, meta, age } => {
                plain(if meta.expiries.is_some() { 17 } else { 6 }, &[*file]);
                meta.encode(bytes);
                age.encode(bytes);
                if let Some(Expiries { entries, marks }) = meta.expiries.as_deref() {
                    let numbers = once(entries).chain(marks);
                    numbers.for_each(|number| put_varint(bytes, *number));
                }
            }
            VersionEdit::DropFile { file } => plain(7, &[*file]),
            VersionEdit::FlushedSeq { bucket, seq } => plain(8, &[*bucket, *seq]),
            VersionEdit::LogTail { segment } => plain(9, &[*segment]),
            VersionEdit::LogSealed { segment, length } => plain(10, &[*segment, *length]),
            VersionEdit::LastSeq { seq } => plain(11, &[*seq]),
            VersionEdit::NextFile { number } => plain(12, &[*number]),
            VersionEdit::NextBucket { id } => plain(13, &[*id]),
            VersionEdit::DropKeyspace { id } => plain(14, &[u64::from(*id)]),
            VersionEdit::NextKeyspace { id } => plain(15, &[u64::from(*id)]),
            VersionEdit::Moment { moment } => plain(18, &[*moment]),
            VersionEdit::SetOptions { id, options } => {
                plain(16, &[u64::from(*id)]);
                put_bytes(bytes, &options.encode());
            }
        }
    }

    fn decode(reader: &mut PayloadReader<'_>) -> Result<VersionEdit, MalformedPayload> {
        Ok(match reader.u8()? {
            1 => VersionEdit::AddKeyspace {
                id: reader.varint_u32()?,
                name: decode_name(reader)?,
            },
            2 => VersionEdit::AddBucket {
                id: reader.varint()?,
                keyspace: reader.varint_u32()?,
                lower: reader.bytes()?.to_vec(),
                flushed_seq: reader.varint()?,
            },
            3 => VersionEdit::RemoveBucket {
                id: reader.varint()?,
            },
            4 => VersionEdit::AddTable {
                bucket: reader.varint()?,
                level: reader.u8()?,
                run: reader.varint()?,
                file: reader.varint()?,
            },
            5 => VersionEdit::RemoveTable {
                bucket: reader.varint()?,
                file: reader.varint()?,
            },
            6 => VersionEdit::NewFile {
                file: reader.varint()?,
                meta: FileMeta::decode(reader)?,
                age: TableAge::decode(reader)?,
            },
            17 => {
                let file = reader.varint()?;
                let (mut meta, age) = (FileMeta::decode(reader)?, TableAge::decode(reader)?);
                meta.expiries = Some(Box::new(decode_expiries(reader, meta.entries)?));
                VersionEdit::NewFile { file, meta, age }
            }
            18 => VersionEdit::Moment {
                moment: reader.varint()?,
            },
            7 => VersionEdit::DropFile {
                file: reader.varint()?,
            },
            8 => VersionEdit::FlushedSeq {
                bucket: reader.varint()?,
                seq: reader.varint()?,
            },
            9 => VersionEdit::LogTail {
                segment: reader.varint()?,
            },
            10 => VersionEdit::LogSealed {
                segment: reader.varint()?,
                length: reader.varint()?,
            },
            11 => VersionEdit::LastSeq {
                seq: reader.varint()?,
            },
            12 => VersionEdit::NextFile {
                number: reader.varint()?,
            },
            13 => VersionEdit::NextBucket {
                id: reader.varint()?,
            },
            14 => VersionEdit::DropKeyspace {
                id: reader.varint_u32()?,
            },
            15 => VersionEdit::NextKeyspace {
                id: reader.varint_u32()?,
            },
            16 => VersionEdit::SetOptions {
                id: reader.varint_u32()?,
                options: KeyspaceOptions::decode(reader.bytes()?)?,
            },
            _ => return Err(reader.malformed("the kind of an edit is unknown")),
        })
    }
}

fn decode_name(reader: &mut PayloadReader<'_>) -> Result<String, MalformedPayload> {
    let name = String::from_utf8(reader.bytes()?.to_vec());
    name.map_err(|_| reader.malformed("a name is not valid UTF-8"))
}

impl FileMeta {
    fn encode(&self, bytes: &mut Vec<u8>) {
        for number in [
            self.file_bytes,
            self.entries,
            self.tombstones,
            self.range_deletes,
            self.user_bytes,
        ] {
            put_varint(bytes, number);
        }
        put_bytes(bytes, &self.smallest);
        put_bytes(bytes, &self.largest);
        put_varint(bytes, self.min_seq);
        put_varint(bytes, self.max_seq);
        put_bytes(bytes, &self.sketch);
    }

    fn decode(reader: &mut PayloadReader<'_>) -> Result<FileMeta, MalformedPayload> {
        Ok(FileMeta {
            file_bytes: reader.varint()?,
            entries: reader.varint()?,
            tombstones: reader.varint()?,
            range_deletes: reader.varint()?,
            user_bytes: reader.varint()?,
            smallest: reader.bytes()?.to_vec(),
            largest: reader.bytes()?.to_vec(),
            min_seq: reader.varint()?,
            max_seq: reader.varint()?,
            sketch: reader.bytes()?.to_vec(),
            expiries: None,
        })
    }
}

fn decode_expiries(reader: &mut PayloadReader<'_>, of: u64) -> Result<Expiries, MalformedPayload> {
    let (entries, mut marks) = (reader.varint()?, [0; MARKS]);
    for mark in &mut marks {
        *mark = reader.varint()?;
    }
    let expiries = Expiries { entries, marks };
    match expiries.is_sound(of) {
        true => Ok(expiries),
        false => Err(reader.malformed("the counts of entries that expire contradict each other")),
    }
}

impl TableAge {
    fn encode(&self, bytes: &mut Vec<u8>) {
        for number in [self.superseded, self.born, self.garbage_since] {
            put_varint(bytes, number);
        }
    }

    fn decode(reader: &mut PayloadReader<'_>) -> Result<TableAge, MalformedPayload> {
        Ok(TableAge {
            superseded: reader.varint()?,
            born: reader.varint()?,
            garbage_since: reader.varint()?,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn meta() -> FileMeta {
        FileMeta {
            expiries: None,
            file_bytes: 300,
            entries: 3,
            tombstones: 1,
            range_deletes: 1,
            user_bytes: 40,
            smallest: b"a".to_vec(),
            largest: b"bc".to_vec(),
            min_seq: 5,
            max_seq: 9,
            sketch: vec![0xfe],
        }
    }

    /// One edit of each kind with its bytes.
    fn golden() -> Vec<(VersionEdit, &'static [u8])> {
        let add_bucket = VersionEdit::AddBucket {
            id: 2,
            keyspace: 1,
            lower: b"m".to_vec(),
            flushed_seq: 200,
        };
        vec![
            (
                VersionEdit::AddKeyspace {
                    id: 1,
                    name: "ks".to_owned(),
                },
                b"\x01\x01\x02ks",
            ),
            (add_bucket, b"\x02\x02\x01\x01m\xc8\x01"),
            (VersionEdit::RemoveBucket { id: 2 }, b"\x03\x02"),
            (
                VersionEdit::AddTable {
                    bucket: 2,
                    level: 1,
                    run: 7,
                    file: 300,
                },
                b"\x04\x02\x01\x07\xac\x02",
            ),
            (
                VersionEdit::RemoveTable { bucket: 2, file: 4 },
                b"\x05\x02\x04",
            ),
            (
                VersionEdit::NewFile {
                    file: 4,
                    meta: meta(),
                    age: TableAge {
                        superseded: 2,
                        born: 300,
                        garbage_since: 0,
                    },
                },
                b"\x06\x04\xac\x02\x03\x01\x01\x28\x01a\x02bc\x05\x09\x01\xfe\x02\xac\x02\x00",
            ),
            (VersionEdit::DropFile { file: 4 }, b"\x07\x04"),
            (
                VersionEdit::FlushedSeq { bucket: 2, seq: 9 },
                b"\x08\x02\x09",
            ),
            (VersionEdit::LogTail { segment: 3 }, b"\x09\x03"),
            (
                VersionEdit::LogSealed {
                    segment: 3,
                    length: 128,
                },
                b"\x0a\x03\x80\x01",
            ),
            (VersionEdit::LastSeq { seq: 9 }, b"\x0b\x09"),
            (VersionEdit::NextFile { number: 5 }, b"\x0c\x05"),
            (VersionEdit::NextBucket { id: 3 }, b"\x0d\x03"),
            (VersionEdit::DropKeyspace { id: 300 }, b"\x0e\xac\x02"),
            (VersionEdit::NextKeyspace { id: 301 }, b"\x0f\xad\x02"),
            (
                VersionEdit::SetOptions {
                    id: 300,
                    options: KeyspaceOptions::default().filter_bits_per_key(8),
                },
                b"\x10\xac\x02\x03\x03\x01\x08",
            ),
            (
                VersionEdit::NewFile {
                    file: 4,
                    meta: FileMeta {
                        expiries: Some(Box::new(Expiries {
                            entries: 2,
                            marks: [5, 5, 5, 5, 6, 6, 6, 6, 300],
                        })),
                        ..meta()
                    },
                    age: TableAge::default(),
                },
                b"\x11\x04\xac\x02\x03\x01\x01\x28\x01a\x02bc\x05\x09\x01\xfe\0\0\0\
                \x02\x05\x05\x05\x05\x06\x06\x06\x06\xac\x02",
            ),
            (VersionEdit::Moment { moment: 300 }, b"\x12\xac\x02"),
        ]
    }

    #[test]
    fn edits_have_these_bytes() {
        for (edit, expected) in golden() {
            let group = encode_group([&edit].into_iter());
            assert_eq!(group, [&[1], expected].concat(), "{edit:?}");
        }
        let edits: Vec<VersionEdit> = golden().into_iter().map(|(edit, _)| edit).collect();
        let group = encode_group(edits.iter());
        assert_eq!(decode_group(&group), Ok(edits));
    }

    #[test]
    fn unknown_tags_trailing_bytes_and_cuts_are_refused() {
        assert!(decode_group(&[1, 0]).is_err());
        assert!(decode_group(&[1, 19]).is_err());
        assert!(decode_group(&[0, 0]).is_err());
        assert!(
            decode_group(&[1, 1, 1, 1, 0xff]).is_err(),
            "a name must be UTF-8"
        );
        let edits: Vec<VersionEdit> = golden().into_iter().map(|(edit, _)| edit).collect();
        let group = encode_group(edits.iter());
        for cut in 0..group.len() {
            assert!(decode_group(&group[..cut]).is_err(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn damaged_groups_do_not_panic(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let edits: Vec<VersionEdit> = golden().into_iter().map(|(edit, _)| edit).collect();
            let mut group = encode_group(edits.iter());
            for (at, byte) in flips {
                let at = at.index(group.len());
                group[at] = byte;
            }
            if let Ok(edits) = decode_group(&group) {
                prop_assert_eq!(encode_group(edits.iter()), group, "one encoding per value");
            }
        }

        #[test]
        fn random_groups_do_not_panic(group: Vec<u8>) {
            let _ = decode_group(&group);
        }
    }
}
