//! The root file `FLEXDB`: what a store of the engine consists of.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `GABFLXDB` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of bytes 0 to 12 and 16 to the end |
//! | 16 | 8 | a number that every newer write of the store exceeds |
//! | 24 | 8 | oldest segment of the log that is needed |
//! | 32 | .. | count of sealed segments; of each its number and length |
//! | | .. | count of keyspaces; of each, see below |
//!
//! | of a keyspace | |
//! |---|---|
//! | name | its length, its bytes |
//! | reached | how far its space was durable: version of its tree, offset in the log of that |
//!
//! Counts, numbers, lengths and offsets of the lists are varints, all else is little-endian. The
//! file is replaced as a whole, by renaming another one, so that it has one state or the next.
//!
//! # Other files
//! | name | |
//! |---|---|
//! | `{:016x}.log` | a segment of the log |
//! | `{:08x}-...` | the space of the keyspace with that number: the files of a `FlexSpace` |
//! | `LOCK` | keeps a second opener out |

use std::collections::BTreeMap;

use gabion_flex::DurablePoint;
use gabion_media::{Disk, Purpose, TEMPORARY_SUFFIX};

use crate::log::Malformed;
use crate::log::codec::{Reader, put_bytes, put_varint};
use crate::names::LOCK;
use crate::types::{SEQ_MAX, Seq};
use crate::{Error, Result};

/// Name of the root file.
pub(crate) const ROOT_NAME: &str = "FLEXDB";

const MAGIC: [u8; 8] = *b"GABFLXDB";

/// The version that this program writes, and the newest that it reads.
const FORMAT: u32 = 1;

const CRC_OFFSET: usize = 12;
const BODY_OFFSET: usize = 16;

const _: () = assert!(MAGIC.len() + size_of::<u32>() == CRC_OFFSET);
const _: () = assert!(CRC_OFFSET + size_of::<u32>() == BODY_OFFSET);

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Root {
    /// Every newer write has a larger number.
    pub(super) last_seq: Seq,
    /// The oldest segment of the log that is needed.
    pub(super) log_tail: u64,
    /// Valid lengths of segments, 0 for one that holds nothing.
    pub(super) sealed: BTreeMap<u64, u64>,
    /// A keyspace's number is its position.
    pub(super) keyspaces: Vec<RootKeyspace>,
}

/// What the root knows of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RootKeyspace {
    pub(super) name: String,
    /// How far its space had come, durably, when the log's tail was moved for the last time. What
    /// the space holds up to there is nowhere else.
    pub(super) reached: DurablePoint,
}

/// What the names of the files of a keyspace's space begin with.
pub(super) fn space_prefix(keyspace: u32) -> String {
    format!("{keyspace:08x}-")
}

impl Root {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.last_seq.to_le_bytes());
        bytes.extend(self.log_tail.to_le_bytes());
        put_varint(&mut bytes, self.sealed.len() as u64);
        for (segment, length) in &self.sealed {
            put_varint(&mut bytes, *segment);
            put_varint(&mut bytes, *length);
        }
        put_varint(&mut bytes, self.keyspaces.len() as u64);
        for RootKeyspace { name, reached } in &self.keyspaces {
            put_bytes(&mut bytes, name.as_bytes());
            put_varint(&mut bytes, reached.tree_version);
            put_varint(&mut bytes, reached.log_offset);
        }
        let crc = checksum(&bytes);
        bytes[CRC_OFFSET..BODY_OFFSET].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Root, Decoded> {
        let mut reader = Reader::new(bytes, 0);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(reader
                .malformed("the root file does not begin with its magic")
                .into());
        }
        let format = reader.u32()?;
        if reader.u32()? != checksum(bytes) {
            return Err(reader
                .malformed("the checksum of the root file is wrong")
                .into());
        }
        if format > FORMAT {
            return Err(Decoded::Newer(format));
        }
        let mut root = Root {
            last_seq: reader.u64()?,
            log_tail: reader.u64()?,
            ..Root::default()
        };
        if root.last_seq > SEQ_MAX {
            return Err(reader.malformed("the newest number is out of range").into());
        }
        for _ in 0..reader.varint()? {
            let segment = reader.varint()?;
            root.sealed.insert(segment, reader.varint()?);
        }
        for _ in 0..reader.varint()? {
            let name = std::str::from_utf8(reader.bytes()?);
            let name = name.map_err(|_| reader.malformed("a name is no text"))?;
            root.keyspaces.push(RootKeyspace {
                name: name.to_owned(),
                reached: DurablePoint {
                    tree_version: reader.varint()?,
                    log_offset: reader.varint()?,
                },
            });
        }
        if !reader.is_empty() {
            return Err(reader
                .malformed("the root file goes on behind its end")
                .into());
        }
        Ok(root)
    }

    /// Reads the file.
    pub(super) fn read(disk: &Disk) -> Result<Root> {
        let file = || disk.path_of(ROOT_NAME);
        Root::decode(&disk.read_all(ROOT_NAME)?).map_err(|error| match error {
            Decoded::Malformed(malformed) => malformed.in_file(file(), 0),
            Decoded::Newer(found) => Error::NewerFormat {
                file: file(),
                found,
                supported: FORMAT,
            },
        })
    }

    /// Replaces the file.
    ///
    /// DURABLE: when it returns, this is what a recovery begins with.
    pub(super) fn write(&self, disk: &Disk) -> Result<()> {
        Ok(disk.replace(ROOT_NAME, &self.encode(), Purpose::Metadata)?)
    }

    /// Forgets seals of segments that are not needed.
    pub(super) fn forget_seals(&mut self) {
        self.sealed = self.sealed.split_off(&self.log_tail);
    }
}

/// Whether the directory holds a store of the engine. An error for one that can hold none.
pub(super) fn exists(disk: &Disk) -> Result<bool> {
    let names = disk.list()?;
    if names.iter().any(|name| name == ROOT_NAME) {
        return Ok(true);
    }
    let temporary = format!("{ROOT_NAME}{TEMPORARY_SUFFIX}");
    let ours = |name: &&String| **name == LOCK || **name == temporary;
    match names.iter().find(|name| !ours(name)) {
        None => Ok(false),
        Some(name) => Err(Error::NotAStore {
            path: disk.path().to_owned(),
            why: format!(
                "it has no file {ROOT_NAME} and holds other files, such as {name}. Choose an empty \
                 or new directory"
            ),
        }),
    }
}

/// Why bytes are no root.
#[derive(Debug, PartialEq, Eq)]
enum Decoded {
    Malformed(Malformed),
    Newer(u32),
}

impl From<Malformed> for Decoded {
    fn from(malformed: Malformed) -> Decoded {
        Decoded::Malformed(malformed)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let head = crc32c::crc32c(bytes.get(..CRC_OFFSET).unwrap_or_default());
    crc32c::crc32c_append(head, bytes.get(BODY_OFFSET..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Root {
        Root {
            last_seq: 77,
            log_tail: 3,
            sealed: BTreeMap::from([(3, 500), (4, 0)]),
            keyspaces: [("default", 2, 64), ("other", 900, 1 << 40)]
                .map(|(name, tree_version, log_offset)| RootKeyspace {
                    name: name.to_owned(),
                    reached: DurablePoint {
                        tree_version,
                        log_offset,
                    },
                })
                .to_vec(),
        }
    }

    #[test]
    fn a_root_comes_back_and_every_flipped_bit_and_cut_is_seen() {
        let bytes = root().encode();
        assert_eq!(Root::decode(&bytes), Ok(root()));
        assert_eq!(&bytes[..12], b"GABFLXDB\x01\0\0\0");
        assert_eq!((bytes[16], bytes[24]), (77, 3));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Root::decode(&damaged).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Root::decode(&bytes[..len]).is_err(), "cut to {len}");
        }
    }

    #[test]
    fn a_newer_format_is_told() {
        let mut bytes = root().encode();
        bytes[8] = 2;
        let crc = checksum(&bytes);
        bytes[CRC_OFFSET..BODY_OFFSET].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Root::decode(&bytes), Err(Decoded::Newer(2)));
    }
}
