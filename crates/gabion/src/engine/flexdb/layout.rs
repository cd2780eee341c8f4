//! The root file `FLEXDB`: what a store of the engine consists of.
//!
//! Behind the head of a root file ([`crate::engine::root_file`]) with the magic `GABFLXDB`:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 16 | 8 | a number that every newer write of the store exceeds |
//! | 24 | 8 | oldest segment of the log that is needed |
//! | 32 | 8 | the latest moment by which readers went; 0 where nothing expires |
//! | 40 | .. | count of sealed segments; of each its number and length |
//! | | .. | first number of a keyspace that was never used |
//! | | .. | count of keyspaces; of each, see below |
//!
//! | of a keyspace | |
//! |---|---|
//! | number | above that of the one before |
//! | name | its length, its bytes |
//! | reached | how far its space was durable: version of its tree, offset in the log of that |
//! | expires | 1 byte: 1 if anything in it may expire, else 0 |
//! | options | its own (`keyspace_options`): their length, their bytes |
//!
//! Counts, numbers, lengths and offsets of the lists are varints, all else is little-endian.
//!
//! # Other files
//! | name | |
//! |---|---|
//! | `{:016x}.log` | a segment of the log |
//! | `{:08x}-...` | the space of the keyspace with that number: the files of a `FlexSpace` |
//! | `LOCK` | keeps a second opener out |
//!
//! # Cost
//! A change of the keyspaces writes the file anew: some 20 bytes for each. For thousands that is
//! less than the three files of a new space cost. Their bytes are kept (`root_keyspaces`).

use std::collections::BTreeMap;

use gabion_flex::DurablePoint;
use gabion_media::Disk;

use super::root_keyspaces::RootKeyspaces;
use crate::engine::root_file::{BODY_OFFSET, RootFile, RootFileError};
use crate::expiry::UnixMillis;
use crate::log::MalformedPayload;
use crate::log::codec::{PayloadReader, put_bytes, put_varint};
use crate::names::{CONSUMERS, parse_log_name};
use crate::types::{SEQ_MAX, Seq};
use crate::{KeyspaceOptions, Result};

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
    /// The latest moment by which readers went; 0 where nothing expires.
    pub(super) moment: UnixMillis,
    /// Valid lengths of segments, 0 for one that holds nothing.
    pub(super) sealed: BTreeMap<u64, u64>,
    /// First number of a keyspace that was never used.
    pub(super) next_keyspace: u32,
    /// Ascending by their numbers. Each change of a root begins with a copy, so copies share what
    /// they have in common.
    pub(super) keyspaces: RootKeyspaces,
}

/// What the root knows of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RootKeyspace {
    pub(super) id: u32,
    pub(super) name: String,
    /// How far its space had come, durably, when the log's tail was moved for the last time. What
    /// the space holds up to there is nowhere else.
    pub(super) reached: DurablePoint,
    /// Whether anything in it may expire.
    pub(super) expires: bool,
    /// The options that it has of its own.
    pub(super) options: KeyspaceOptions,
}

/// What the names of the files of a keyspace's space begin with.
pub(super) fn space_prefix(keyspace: u32) -> String {
    format!("{keyspace:08x}-")
}

/// The number of the keyspace to whose space the file of a name belongs, if it does to any, and its
/// name there.
pub(super) fn parse_space_name(name: &str) -> Option<(u32, &str)> {
    let keyspace = u32::from_str_radix(name.get(..8)?, 16).ok()?;
    let own = name.strip_prefix(&space_prefix(keyspace))?;
    Some((keyspace, own))
}

impl RootKeyspace {
    /// Appends what the file says of it.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        put_varint(bytes, self.id.into());
        put_bytes(bytes, self.name.as_bytes());
        put_varint(bytes, self.reached.tree_version);
        put_varint(bytes, self.reached.log_offset);
        bytes.push(self.expires.into());
        put_bytes(bytes, &self.options.encode());
    }
}

impl Root {
    /// Adds a keyspace with the next number.
    pub(super) fn add_keyspace(
        &mut self,
        name: &str,
        reached: DurablePoint,
        options: KeyspaceOptions,
    ) {
        let (id, name) = (self.next_keyspace, name.to_owned());
        self.keyspaces.push(RootKeyspace {
            id,
            name,
            reached,
            expires: false,
            options,
        });
        self.next_keyspace += 1;
    }

    /// Whether there is a keyspace of that number.
    pub(super) fn has(&self, keyspace: u32) -> bool {
        self.keyspaces.find(keyspace).is_some()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        FILE.encode(|bytes| {
            bytes.extend(self.last_seq.to_le_bytes());
            bytes.extend(self.log_tail.to_le_bytes());
            bytes.extend(self.moment.to_le_bytes());
            put_varint(bytes, self.sealed.len() as u64);
            for (segment, length) in &self.sealed {
                put_varint(bytes, *segment);
                put_varint(bytes, *length);
            }
            put_varint(bytes, self.next_keyspace.into());
            self.keyspaces.encode(bytes);
        })
    }

    fn decode(bytes: &[u8]) -> Result<Root, RootFileError> {
        FILE.decode(bytes, Root::decode_body)
    }

    fn decode_body(reader: &mut PayloadReader<'_>) -> Result<Root, MalformedPayload> {
        let mut root = Root {
            last_seq: reader.u64()?,
            log_tail: reader.u64()?,
            moment: reader.u64()?,
            ..Root::default()
        };
        if root.last_seq > SEQ_MAX {
            return Err(reader.malformed("the newest number is out of range"));
        }
        for _ in 0..reader.varint()? {
            let segment = reader.varint()?;
            root.sealed.insert(segment, reader.varint()?);
        }
        let given_out = reader.varint_u32()?;
        let mut keyspaces = Vec::new();
        for _ in 0..reader.varint()? {
            let id = reader.varint_u32()?;
            if id < root.next_keyspace || id == u32::MAX {
                return Err(reader.malformed("the numbers of the keyspaces do not ascend"));
            }
            root.next_keyspace = id + 1;
            let name = std::str::from_utf8(reader.bytes()?);
            let name = name.map_err(|_| reader.malformed("a name is not UTF-8"))?;
            keyspaces.push(RootKeyspace {
                id,
                name: name.to_owned(),
                reached: DurablePoint {
                    tree_version: reader.varint()?,
                    log_offset: reader.varint()?,
                },
                expires: match reader.u8()? {
                    expires @ 0..2 => expires == 1,
                    _ => return Err(reader.malformed("a flag of a keyspace is neither 0 nor 1")),
                },
                options: KeyspaceOptions::decode(reader.bytes()?)?,
            });
        }
        root.keyspaces = RootKeyspaces::new(&keyspaces);
        if given_out < root.next_keyspace {
            return Err(reader.malformed("the number of a keyspace was never assigned"));
        }
        root.next_keyspace = given_out;
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
/// Fails unless there is a store's root.
pub(crate) fn check_root(disk: &Disk) -> Result<()> {
    Root::read(disk).map(drop)
}

/// Whether a file of that name is a store's, beside the root and the lock.
pub(crate) fn is_own_file(name: &str) -> bool {
    let of_space =
        || parse_space_name(name).is_some_and(|(_, own)| gabion_flex::is_file_of_space(own));
    name == CONSUMERS || parse_log_name(name).is_some() || of_space()
}

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
            moment: 99,
            sealed: BTreeMap::from([(3, 500), (4, 0)]),
            next_keyspace: 9,
            keyspaces: keyspaces([0, 7]),
        }
    }

    fn keyspaces([first, second]: [u32; 2]) -> RootKeyspaces {
        let known = [(first, "default", 2, 64), (second, "other", 900, 1 << 40)];
        RootKeyspaces::new(
            &known.map(|(id, name, tree_version, log_offset)| RootKeyspace {
                id,
                name: name.to_owned(),
                reached: DurablePoint {
                    tree_version,
                    log_offset,
                },
                expires: id == 7,
                options: match id {
                    7 => KeyspaceOptions::default().merge(crate::AddI64),
                    _ => KeyspaceOptions::default(),
                },
            }),
        )
    }

    #[test]
    fn a_root_comes_back_and_all_else_is_refused() {
        let bytes = root().encode();
        assert_eq!(Root::decode(&bytes), Ok(root()));
        assert_eq!(&bytes[..12], b"GABFLXDB\x01\0\0\0");
        assert_eq!((bytes[16], bytes[24]), (77, 3));
        assert_refuses_all_else(&bytes, Root::decode);
    }

    #[test]
    fn a_change_of_a_copy_leaves_the_root_as_it_was() {
        let before = root();
        let mut after = before.clone();
        let reached = DurablePoint {
            tree_version: 3,
            log_offset: 5,
        };
        after.add_keyspace("new", reached, KeyspaceOptions::default());
        after.keyspaces.remove(0);
        after
            .keyspaces
            .set_reached(|id| (id == 7).then_some((reached, true)));
        let known = |known: &RootKeyspace| (known.id, known.name.clone(), known.reached);
        let keyspaces: Vec<_> = after.keyspaces.iter().map(known).collect();
        let expected = [(7, "other", reached), (9, "new", reached)];
        assert_eq!(
            keyspaces,
            expected.map(|(id, name, at)| (id, name.to_owned(), at))
        );
        assert_eq!(Root::decode(&after.encode()), Ok(after));
        assert_eq!(before, root());
    }

    #[test]
    fn numbers_of_keyspaces_ascend_and_were_given_out() {
        let with = |ids: [u32; 2], next_keyspace| {
            let mut root = root();
            root.keyspaces = keyspaces(ids);
            root.next_keyspace = next_keyspace;
            Root::decode(&root.encode()).is_ok()
        };
        assert!(with([0, 1], 2) && with([3, 9], 100));
        assert!(!with([1, 1], 9) && !with([2, 1], 9) && !with([0, 9], 9));
        assert!(root().has(7) && !root().has(8) && !root().has(1));
    }

    #[test]
    fn files_of_spaces_are_told_by_their_names() {
        for keyspace in [0, 7, u32::MAX] {
            let name = space_prefix(keyspace) + "DATA";
            assert_eq!(parse_space_name(&name), Some((keyspace, "DATA")));
        }
        for name in [
            "",
            "LOCK",
            "FLEXDB",
            "00000001",
            "0000000A-DATA",
            "0000000000000001.log",
        ] {
            assert_eq!(parse_space_name(name), None, "{name}");
        }
    }
}
