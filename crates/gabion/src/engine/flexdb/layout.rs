//! The root file `FLEXDB`: what a store of the engine consists of.
//!
//! Behind the head of a root file ([`crate::engine::root_file`]) with the magic `GABFLXDB`:
//!
//! | offset | size | meaning |
//! |---|---|---|
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
//! Counts, numbers, lengths and offsets of the lists are varints, all else is little-endian.
//!
//! # Other files
//! | name | |
//! |---|---|
//! | `{:016x}.log` | a segment of the log |
//! | `{:08x}-...` | the space of the keyspace with that number: the files of a `FlexSpace` |
//! | `LOCK` | keeps a second opener out |

use std::collections::BTreeMap;

use gabion_flex::DurablePoint;
use gabion_media::Disk;

use crate::Result;
use crate::engine::root_file::{BODY_OFFSET, Decoded, RootFile};
use crate::log::Malformed;
use crate::log::codec::{Reader, put_bytes, put_varint};
use crate::types::{SEQ_MAX, Seq};

/// Name of the root file.
pub(crate) const ROOT_NAME: &str = "FLEXDB";

const FILE: RootFile = RootFile {
    name: ROOT_NAME,
    magic: *b"GABFLXDB",
    format: 1,
};

// The table above counts from there.
const _: () = assert!(BODY_OFFSET == 16);

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
    /// First number of a keyspace that was never used.
    pub(super) fn next_keyspace(&self) -> u32 {
        u32::try_from(self.keyspaces.len()).expect("fewer than 2^32 keyspaces")
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        FILE.encode(|bytes| {
            bytes.extend(self.last_seq.to_le_bytes());
            bytes.extend(self.log_tail.to_le_bytes());
            put_varint(bytes, self.sealed.len() as u64);
            for (segment, length) in &self.sealed {
                put_varint(bytes, *segment);
                put_varint(bytes, *length);
            }
            put_varint(bytes, self.keyspaces.len() as u64);
            for RootKeyspace { name, reached } in &self.keyspaces {
                put_bytes(bytes, name.as_bytes());
                put_varint(bytes, reached.tree_version);
                put_varint(bytes, reached.log_offset);
            }
        })
    }

    fn decode(bytes: &[u8]) -> Result<Root, Decoded> {
        FILE.decode(bytes, Root::decode_body)
    }

    fn decode_body(reader: &mut Reader<'_>) -> Result<Root, Malformed> {
        let mut root = Root {
            last_seq: reader.u64()?,
            log_tail: reader.u64()?,
            ..Root::default()
        };
        if root.last_seq > SEQ_MAX {
            return Err(reader.malformed("the newest number is out of range"));
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
        Ok(root)
    }

    /// Reads the file.
    pub(super) fn read(disk: &Disk) -> Result<Root> {
        FILE.read(disk, Root::decode)
    }

    /// Replaces the file.
    pub(super) fn write(&self, disk: &Disk) -> Result<()> {
        FILE.write(disk, &self.encode())
    }

    /// Forgets seals of segments that are not needed.
    pub(super) fn forget_seals(&mut self) {
        self.sealed = self.sealed.split_off(&self.log_tail);
    }
}

/// Whether the directory holds a store of the engine. An error for one that can hold none.
pub(super) fn exists(disk: &Disk) -> Result<bool> {
    FILE.exists(disk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::root_file::assert_refuses_all_else;

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
    fn a_root_comes_back_and_all_else_is_refused() {
        let bytes = root().encode();
        assert_eq!(Root::decode(&bytes), Ok(root()));
        assert_eq!(&bytes[..12], b"GABFLXDB\x01\0\0\0");
        assert_eq!((bytes[16], bytes[24]), (77, 3));
        assert_refuses_all_else(&bytes, Root::decode);
    }
}
