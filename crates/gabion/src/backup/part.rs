//! A part of a store's log in a repository, byte by byte.
//!
//! # Layout
//! A file `<id>.logpart` is a head and records:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | length of the head, little-endian |
//! | 4 | .. | the head |
//! | .. | .. | of each record its length, as a varint, and its payload (`log/batch.rs`) |
//!
//! The head has the form of a root file (`engine/root_file.rs`) with magic `GABIONLP`; behind its
//! own head, as in a description (`layout`):
//!
//! | field | meaning |
//! |---|---|
//! | id | number of the part, as in its name |
//! | chain | number of the backup with which its chain begins |
//! | engine, store | name of the engine, directory of the store |
//! | from, to | 16 bytes each: positions in front of its first record and behind its last |
//! | archived | milliseconds since 1970, when all of it had been read |
//! | next keyspace | all keyspaces below this number are in a backup or in records so far |
//! | length | of the records |
//! | hash | 32 bytes: BLAKE3 of the records |
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

use gabion_media::{Disk, Purpose, ReadFile};

use super::layout::{ChainEnd, array, text};
use super::objects::{HASH_BYTES, ObjectHash, STEP_BYTES};
use super::transfer::Transfer;
use crate::engine::root_file::{RootFile, RootFileError};
use crate::log::codec::{PayloadReader, put_bytes, put_varint};
use crate::names::parse_number;
use crate::position::Position;
use crate::{Engine, Error, Result};

/// Bytes in front of the head.
const LENGTH_BYTES: usize = 4;

/// No head is longer, as no path is nearly as long.
const HEAD_BYTES_MAX: u32 = 1 << 16;

const PART_SUFFIX: &str = ".logpart";

const HEAD: RootFile = RootFile {
    name: "",
    magic: *b"GABIONLP",
    format: 1,
};

/// Name of a part.
pub(super) fn part_name(id: u64) -> String {
    format!("{id:016x}{PART_SUFFIX}")
}

/// The number in such a name.
pub(super) fn parse_part_name(name: &str) -> Option<u64> {
    parse_number(name.strip_suffix(PART_SUFFIX)?)
}

/// What is known of a part without its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogPart {
    pub(super) chain: u64,
    pub(super) engine: Engine,
    pub(super) store: String,
    pub(super) from: Position,
    pub(super) to: Position,
    pub(super) archived_ms: u64,
    pub(super) next_keyspace: u32,
    /// Bytes of the records.
    pub(super) bytes: u64,
    pub(super) hash: ObjectHash,
}

/// The parts of a repository.
#[derive(Default)]
pub(super) struct LogParts {
    /// Those that can be read, in the order of their numbers.
    pub(super) good: Vec<(u64, LogPart)>,
    pub(super) bad: Vec<(u64, Error)>,
}

impl LogPart {
    /// Writes a part with these records, of which its length and hash are.
    ///
    /// DURABLE: when it returns, the part is in the repository as a whole.
    pub(super) fn write(&self, disk: &Disk, id: u64, records: &[u8]) -> Result<()> {
        let head = encode(self, id);
        let mut bytes = u32::try_from(head.len())
            .unwrap_or(u32::MAX)
            .to_le_bytes()
            .to_vec();
        bytes.extend(head);
        bytes.extend_from_slice(records);
        Ok(disk.replace(&part_name(id), &bytes, Purpose::Checkpoint)?)
    }

    /// Reads the head of a part, whose file must have its length.
    pub(super) fn read(disk: &Disk, id: u64) -> Result<LogPart> {
        let file = disk.open_read(&part_name(id))?;
        let (head, at) = read_head(disk, id, &file)?;
        let part = decode(&head, id).map_err(|error| match error {
            RootFileError::Malformed(malformed) => {
                malformed.in_file(disk.path_of(&part_name(id)), LENGTH_BYTES as u64)
            }
            RootFileError::Newer(found) => Error::NewerFormat {
                file: disk.path_of(&part_name(id)),
                found,
                supported: HEAD.format,
            },
        })?;
        match file.len() == at.saturating_add(part.bytes) {
            true => Ok(part),
            false => {
                let what = format!(
                    "the part of the log has {} bytes and should have {}: it was cut, or \
                     lengthened",
                    file.len(),
                    at.saturating_add(part.bytes)
                );
                Err(damaged(disk, id, what))
            }
        }
    }

    /// Reads the records of a part, and compares them with their hash.
    pub(super) fn read_records(
        &self,
        disk: &Disk,
        id: u64,
        transfer: &mut Transfer<'_>,
    ) -> Result<Vec<u8>> {
        let file = disk.open_read(&part_name(id))?;
        let (_, at) = read_head(disk, id, &file)?;
        let cut = || damaged(disk, id, "the part of the log was cut".to_owned());
        if file.len() < at.saturating_add(self.bytes) {
            return Err(cut());
        }
        let mut records = vec![0; usize::try_from(self.bytes).map_err(|_| cut())?];
        let mut offset = at;
        let step = usize::try_from(STEP_BYTES).unwrap_or(usize::MAX);
        for part in records.chunks_mut(step) {
            file.read_exact_at(part, offset)?;
            offset += part.len() as u64;
            transfer.moved(part.len() as u64)?;
        }
        match ObjectHash::of(&records) == self.hash {
            true => Ok(records),
            false => {
                let what = "the records of the log are not those that were written";
                Err(damaged(disk, id, what.to_owned()))
            }
        }
    }
}

impl LogParts {
    /// The parts behind a place in a chain, as far as they follow each other without a gap; and the
    /// number of the first one that does not.
    pub(super) fn behind(&self, place: ChainEnd) -> (Vec<&(u64, LogPart)>, Option<u64>) {
        let of_chain = |part: &&(u64, LogPart)| part.1.chain == place.chain;
        let mut parts: Vec<_> = self.good.iter().filter(of_chain).collect();
        parts.retain(|(_, part)| part.from >= place.at);
        parts.sort_by_key(|(_, part)| part.from);
        let mut end = place.at;
        let is_gap = |(_, part): &&(u64, LogPart)| {
            let is_next = part.from == end;
            end = part.to;
            !is_next
        };
        match parts.iter().position(is_gap) {
            None => (parts, None),
            Some(at) => {
                let gap = parts.get(at).map(|(id, _)| *id);
                parts.truncate(at);
                (parts, gap)
            }
        }
    }
}

/// Calls `take` with each record of a part, until it says that it needs no more.
pub(super) fn each_record<'r>(
    disk: &Disk,
    id: u64,
    records: &'r [u8],
    mut take: impl FnMut(&'r [u8]) -> Result<bool>,
) -> Result<bool> {
    let mut reader = PayloadReader::new(records, 0);
    while !reader.is_empty() {
        let record = reader.bytes();
        let record =
            record.map_err(|malformed| malformed.in_file(disk.path_of(&part_name(id)), 0))?;
        if !take(record)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The bytes of a part's head, and where its records begin.
fn read_head(disk: &Disk, id: u64, file: &ReadFile) -> Result<(Vec<u8>, u64)> {
    let short = || damaged(disk, id, "the part of the log has no whole head".to_owned());
    let mut length = [0; LENGTH_BYTES];
    if file.len() < LENGTH_BYTES as u64 {
        return Err(short());
    }
    file.read_exact_at(&mut length, 0)?;
    let length = u32::from_le_bytes(length);
    let at = LENGTH_BYTES as u64 + u64::from(length);
    if length > HEAD_BYTES_MAX || file.len() < at {
        return Err(short());
    }
    let mut head = vec![0; length as usize];
    file.read_exact_at(&mut head, LENGTH_BYTES as u64)?;
    Ok((head, at))
}

fn damaged(disk: &Disk, id: u64, what: String) -> Error {
    Error::Corruption {
        file: disk.path_of(&part_name(id)),
        offset: 0,
        what,
    }
}

fn encode(part: &LogPart, id: u64) -> Vec<u8> {
    HEAD.encode(|out| {
        put_varint(out, id);
        put_varint(out, part.chain);
        put_bytes(out, part.engine.name().as_bytes());
        put_bytes(out, part.store.as_bytes());
        out.extend(part.from.to_bytes());
        out.extend(part.to.to_bytes());
        put_varint(out, part.archived_ms);
        put_varint(out, part.next_keyspace.into());
        put_varint(out, part.bytes);
        out.extend(part.hash.0);
    })
}

fn decode(bytes: &[u8], id: u64) -> Result<LogPart, RootFileError> {
    HEAD.decode(bytes, |reader| {
        if reader.varint()? != id {
            return Err(reader.malformed("the part of the log is another one"));
        }
        let chain = reader.varint()?;
        let engine = text(reader)?.parse().map_err(|_: String| {
            reader.malformed("the part is of an engine that this program does not know")
        })?;
        Ok(LogPart {
            chain,
            engine,
            store: text(reader)?.to_owned(),
            from: Position::from_bytes(array(reader)?),
            to: Position::from_bytes(array(reader)?),
            archived_ms: reader.varint()?,
            next_keyspace: reader.varint_u32()?,
            bytes: reader.varint()?,
            hash: ObjectHash(array::<HASH_BYTES>(reader)?),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::BackupOptions;
    use crate::engine::root_file::assert_refuses_all_else;
    use gabion_media::SimDisk;

    fn part(records: &[u8]) -> LogPart {
        LogPart {
            chain: 7,
            engine: Engine::Flex,
            store: "/data/stones".to_owned(),
            from: Position::from_bytes([1; 16]),
            to: Position::from_bytes([2; 16]),
            archived_ms: 300,
            next_keyspace: 4,
            bytes: records.len() as u64,
            hash: ObjectHash::of(records),
        }
    }

    #[test]
    fn a_head_has_these_bytes() {
        let part = part(b"\x01a\x02bc");
        let bytes = encode(&part, 2);
        assert_eq!(&bytes[..12], b"GABIONLP\x01\0\0\0");
        let mut golden = b"\x02\x07\x04flex\x0c/data/stones".to_vec();
        golden.extend([1; 16]);
        golden.extend([2; 16]);
        golden.extend([0xac, 0x02, 4, 5]);
        golden.extend(part.hash.0);
        assert_eq!(bytes[16..], golden);
        assert_eq!(decode(&bytes, 2), Ok(part));
        assert_refuses_all_else(&bytes, |bytes| decode(bytes, 2));
        assert!(decode(&bytes, 3).is_err());
        assert_eq!(parse_part_name(&part_name(0x2a)), Some(0x2a));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_part_is_seen() {
        let records = b"\x01a\x02bc";
        let part = part(records);
        let disk = Disk::simulated(&SimDisk::new());
        part.write(&disk, 1, records).unwrap();
        let read = |disk: &Disk| {
            let mut transfer = Transfer::new(BackupOptions::default(), 0);
            let part = LogPart::read(disk, 1)?;
            part.read_records(disk, 1, &mut transfer)
        };
        assert_eq!(read(&disk).unwrap(), records);
        let mut found = Vec::new();
        each_record(&disk, 1, records, |record| {
            found.push(record.to_vec());
            Ok(true)
        })
        .unwrap();
        assert_eq!(found, [b"a".to_vec(), b"bc".to_vec()]);
        let bytes = disk.read_all(&part_name(1)).unwrap();
        let refused = |bytes: &[u8], what: String| {
            let disk = Disk::simulated(&SimDisk::new());
            disk.replace(&part_name(1), bytes, Purpose::Checkpoint)
                .unwrap();
            assert!(read(&disk).is_err(), "{what}");
        };
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            refused(&damaged, format!("byte {at}"));
            refused(&bytes[..at], format!("cut to {at}"));
        }
        refused(&[&bytes[..], &[0]].concat(), "a byte more".to_owned());
    }
}
