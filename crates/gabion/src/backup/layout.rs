//! What is in the files of a repository, byte by byte.
//!
//! # Root, `BACKUPS`
//! A root file (`engine/root_file.rs`) with magic `GABIONBR`, and nothing behind its head.
//!
//! # Description, `<id>.backup`
//! Of the same form, with magic `GABIONBK`; behind the head, as variable-length integers and byte
//! strings (`log/codec.rs`) unless something else is said:
//!
//! | field | meaning |
//! |---|---|
//! | id | number of the backup, as in its name |
//! | engine | name of the engine |
//! | store | directory of the store |
//! | created | milliseconds since 1970 |
//! | position | sequence number of the last write |
//! | bytes copied, files copied | what was new to the repository |
//! | log | 1 byte, 0 or 1; if 1, the backup's place in an archived log (`archive`), then: |
//! | chain | number of the backup with which the log begins |
//! | place | 16 bytes: the position up to which it was archived before |
//! | next keyspace | all keyspaces below this number are in a backup or in what is archived |
//! | taken | milliseconds since 1970, when the backup's moment was over |
//! | count of files | then, for each of them: |
//! | name, length | of the file |
//! | count of pieces | then, for each of them, in the order in which they lie in the file: |
//! | gap | bytes of zeros in front of the piece that no object holds |
//! | length | of the piece |
//! | hash | 32 bytes: BLAKE3 of the piece, the name of its object |
//! | known | 1 byte, 0 or 1; if 1, 16 bytes by which the piece is known unread |
//!
//! What the pieces leave of the file's length reads as zeros, too.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

use gabion_media::{Disk, Purpose};

use super::objects::{HASH_BYTES, ObjectHash};
use super::source::{KNOWN_BYTES, KnownPieces};
use crate::engine::is_file_of_store;
use crate::engine::root_file::{RootFile, RootFileError};
use crate::log::MalformedPayload;
use crate::log::codec::{PayloadReader, put_bytes, put_varint};
use crate::names::parse_number;
use crate::position::Position;
use crate::{Engine, Error, Result};

/// Name of the file by which a repository is known.
pub(super) const ROOT_NAME: &str = "BACKUPS";

// The table says so.
const _: () = assert!(HASH_BYTES == 32 && KNOWN_BYTES == 16);

/// The root of a repository.
pub(super) const ROOT: RootFile = RootFile {
    name: ROOT_NAME,
    magic: *b"GABIONBR",
    format: 1,
};

/// The frame of a description; its name is that of the backup.
const DESCRIPTION: RootFile = RootFile {
    name: "",
    magic: *b"GABIONBK",
    format: 1,
};

const BACKUP_SUFFIX: &str = ".backup";

/// Name of the description of a backup.
pub(super) fn backup_name(id: u64) -> String {
    format!("{id:016x}{BACKUP_SUFFIX}")
}

/// The number in such a name.
pub(super) fn parse_backup_name(name: &str) -> Option<u64> {
    parse_number(name.strip_suffix(BACKUP_SUFFIX)?)
}

/// What a backup is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BackupDescription {
    pub(super) engine: Engine,
    pub(super) store: String,
    pub(super) created_ms: u64,
    pub(super) position: u64,
    pub(super) bytes_copied: u64,
    pub(super) files_copied: u64,
    pub(super) log: Option<LogLink>,
    pub(super) files: Vec<BackupFile>,
}

/// Where a chain ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainEnd {
    pub(super) chain: u64,
    pub(super) at: Position,
    /// All keyspaces below this number are told of.
    pub(super) next_keyspace: u32,
}

/// What of a log belongs to a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogLink {
    /// What is archived behind this place follows the backup, or is in it already.
    pub(super) place: ChainEnd,
    /// Nothing in the backup was written later.
    pub(super) taken_ms: u64,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BackupFile {
    pub(super) name: String,
    pub(super) len: u64,
    /// In the order of their offsets; what lies between them is zero.
    pub(super) pieces: Vec<FilePiece>,
}

/// A part of a file that an object holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePiece {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) hash: ObjectHash,
    pub(super) known: Option<KnownPieces>,
}

impl BackupDescription {
    /// Bytes of all pieces: what a restore reads.
    pub(super) fn bytes(&self) -> u64 {
        self.pieces().map(|piece| piece.len).sum()
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = &FilePiece> {
        self.files.iter().flat_map(|file| &file.pieces)
    }

    /// Reads the description of a backup.
    pub(super) fn read(disk: &Disk, id: u64) -> Result<BackupDescription> {
        let name = backup_name(id);
        let bytes = disk.read_all(&name)?;
        decode(&bytes, id).map_err(|error| match error {
            RootFileError::Malformed(malformed) => malformed.in_file(disk.path_of(&name), 0),
            RootFileError::Newer(found) => Error::NewerFormat {
                file: disk.path_of(&name),
                found,
                supported: DESCRIPTION.format,
            },
        })
    }

    /// Writes the description, whose objects are all durable.
    ///
    /// DURABLE: when it returns, there is a backup of that number.
    pub(super) fn write(&self, disk: &Disk, id: u64) -> Result<()> {
        Ok(disk.replace(&backup_name(id), &encode(self, id), Purpose::Metadata)?)
    }
}

fn encode(description: &BackupDescription, id: u64) -> Vec<u8> {
    DESCRIPTION.encode(|out| {
        put_varint(out, id);
        put_bytes(out, description.engine.name().as_bytes());
        put_bytes(out, description.store.as_bytes());
        put_varint(out, description.created_ms);
        put_varint(out, description.position);
        put_varint(out, description.bytes_copied);
        put_varint(out, description.files_copied);
        out.push(u8::from(description.log.is_some()));
        if let Some(LogLink { place, taken_ms }) = description.log {
            put_varint(out, place.chain);
            out.extend(place.at.to_bytes());
            put_varint(out, place.next_keyspace.into());
            put_varint(out, taken_ms);
        }
        put_varint(out, description.files.len() as u64);
        for file in &description.files {
            put_bytes(out, file.name.as_bytes());
            put_varint(out, file.len);
            put_varint(out, file.pieces.len() as u64);
            let mut end = 0;
            for piece in &file.pieces {
                put_varint(out, piece.offset - end);
                put_varint(out, piece.len);
                out.extend(piece.hash.0);
                out.push(u8::from(piece.known.is_some()));
                out.extend(piece.known.iter().flat_map(|known| known.0));
                end = piece.offset + piece.len;
            }
        }
    })
}

fn decode(bytes: &[u8], id: u64) -> Result<BackupDescription, RootFileError> {
    DESCRIPTION.decode(bytes, |reader| {
        if reader.varint()? != id {
            return Err(reader.malformed("the description belongs to another backup"));
        }
        let engine = text(reader)?;
        let engine = engine.parse().map_err(|_: String| {
            reader.malformed("the description names an engine that this program does not know")
        })?;
        let store = text(reader)?.to_owned();
        let created_ms = reader.varint()?;
        let position = reader.varint()?;
        let bytes_copied = reader.varint()?;
        let files_copied = reader.varint()?;
        let log = match reader.u8()? {
            0 => None,
            1 => Some(LogLink {
                place: ChainEnd {
                    chain: reader.varint()?,
                    at: Position::from_bytes(array(reader)?),
                    next_keyspace: reader.varint_u32()?,
                },
                taken_ms: reader.varint()?,
            }),
            _ => return Err(reader.malformed("the log is neither archived nor not archived")),
        };
        let mut files = Vec::new();
        let mut bytes: u64 = 0;
        for _ in 0..reader.varint()? {
            let file = decode_file(reader)?;
            bytes = bytes.checked_add(file.len).ok_or_else(|| {
                reader.malformed("the lengths of the files add up to more than a file can have")
            })?;
            files.push(file);
        }
        Ok(BackupDescription {
            engine,
            store,
            created_ms,
            position,
            bytes_copied,
            files_copied,
            log,
            files,
        })
    })
}

fn decode_file(reader: &mut PayloadReader<'_>) -> Result<BackupFile, MalformedPayload> {
    let name = text(reader)?.to_owned();
    if !is_file_of_store(&name) {
        return Err(reader.malformed("a file name is not that of a file of a store"));
    }
    let len = reader.varint()?;
    let mut pieces = Vec::new();
    let mut end: u64 = 0;
    for _ in 0..reader.varint()? {
        let (gap, piece_len) = (reader.varint()?, reader.varint()?);
        let offset = end.checked_add(gap);
        let behind = offset.and_then(|offset| offset.checked_add(piece_len));
        let (Some(offset), Some(behind)) = (offset, behind.filter(|behind| *behind <= len)) else {
            return Err(reader.malformed("a piece reaches past the end of its file"));
        };
        pieces.push(FilePiece {
            offset,
            len: piece_len,
            hash: ObjectHash(array::<HASH_BYTES>(reader)?),
            known: match reader.u8()? {
                0 => None,
                1 => Some(KnownPieces(array::<KNOWN_BYTES>(reader)?)),
                _ => return Err(reader.malformed("a marker is neither 0 nor 1")),
            },
        });
        end = behind;
    }
    Ok(BackupFile { name, len, pieces })
}

pub(super) fn text<'a>(reader: &mut PayloadReader<'a>) -> Result<&'a str, MalformedPayload> {
    let bytes = reader.bytes()?;
    std::str::from_utf8(bytes).map_err(|_| reader.malformed("a name is not UTF-8"))
}

pub(super) fn array<const N: usize>(
    reader: &mut PayloadReader<'_>,
) -> Result<[u8; N], MalformedPayload> {
    let bytes = reader.take(N)?;
    let array = bytes.first_chunk::<N>();
    array
        .copied()
        .ok_or_else(|| reader.malformed("a field reaches past the end of its record"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::root_file::assert_refuses_all_else;
    use crate::names::{CURRENT, table_name};

    fn description() -> BackupDescription {
        let piece = |offset, len, byte, known| FilePiece {
            offset,
            len,
            hash: ObjectHash([byte; HASH_BYTES]),
            known,
        };
        BackupDescription {
            engine: Engine::Wip,
            store: "/data/stones".to_owned(),
            created_ms: 1_700_000_000_000,
            position: 300,
            bytes_copied: 17,
            files_copied: 1,
            log: None,
            files: vec![
                BackupFile {
                    name: CURRENT.to_owned(),
                    len: 0,
                    pieces: Vec::new(),
                },
                BackupFile {
                    name: table_name(7),
                    len: 40,
                    pieces: vec![
                        piece(4, 10, 0xab, None),
                        piece(14, 20, 0xcd, Some(KnownPieces([0xef; KNOWN_BYTES]))),
                    ],
                },
            ],
        }
    }

    #[test]
    fn a_description_has_these_bytes() {
        let bytes = encode(&description(), 2);
        assert_eq!(&bytes[..12], b"GABIONBK\x01\0\0\0");
        let mut golden = b"\x02\x03wip\x0c/data/stones".to_vec();
        golden.extend([0x80, 0xd0, 0x95, 0xff, 0xbc, 0x31, 0xac, 0x02, 17, 1, 0, 2]);
        golden.extend(b"\x07CURRENT\0\0");
        golden.extend(b"\x140000000000000007.tbl\x28\x02");
        golden.extend([4, 10]);
        golden.extend([0xab; 32]);
        golden.extend([0, 0, 20]);
        golden.extend([0xcd; 32]);
        golden.push(1);
        golden.extend([0xef; 16]);
        assert_eq!(&bytes[16..], golden);
        assert_eq!(decode(&bytes, 2), Ok(description()));
        assert_refuses_all_else(&bytes, |bytes| decode(bytes, 2));
        assert!(decode(&bytes, 3).is_err());

        let with_log = BackupDescription {
            log: Some(LogLink {
                place: ChainEnd {
                    chain: 9,
                    at: Position::from_bytes([0xaa; 16]),
                    next_keyspace: 5,
                },
                taken_ms: 300,
            }),
            ..description()
        };
        let bytes = encode(&with_log, 2);
        let at = golden.iter().position(|byte| *byte == 17).unwrap() + 2;
        let mut log = vec![1, 9];
        log.extend([0xaa; 16]);
        log.extend([5, 0xac, 0x02]);
        golden.splice(at..=at, log);
        assert_eq!(bytes[16..], golden);
        assert_eq!(decode(&bytes, 2), Ok(with_log));
        assert_refuses_all_else(&bytes, |bytes| decode(bytes, 2));
    }

    #[test]
    fn what_no_store_can_be_made_of_is_refused() {
        let refused = |change: fn(&mut BackupFile)| {
            let mut description = description();
            change(&mut description.files[1]);
            decode(&encode(&description, 1), 1).unwrap_err()
        };
        for error in [
            refused(|file| file.name = "../CURRENT".to_owned()),
            refused(|file| file.name = "notes".to_owned()),
            refused(|file| file.len = 33),
        ] {
            assert!(matches!(error, RootFileError::Malformed(_)), "{error:?}");
        }
    }

    #[test]
    fn names_of_backups_come_back() {
        assert_eq!(parse_backup_name(&backup_name(0x2a)), Some(0x2a));
        assert_eq!(parse_backup_name("2a.backup"), None);
    }
}
