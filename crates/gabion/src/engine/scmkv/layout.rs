//! The root file `SCMKV`, and the keys of a store's pool.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `GABSCMKV` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of bytes 0 to 12 and 16 to the end |
//! | 16 | 1 | 1 while the store is being made, then 2 |
//! | 17 | 1 | 1 if the store has a checkpoint, else 0 |
//! | 18 | .. | path of the pool, from the directory on: its length as a varint, its bytes |
//!
//! The file is replaced as a whole, by renaming another one.
//!
//! # Keys in the pool
//! | key | value |
//! |---|---|
//! | 0, `K`, number of a keyspace (4 bytes) | its name |
//! | 0, `B`, number of a piece (4 bytes) | a piece of a batch that is being written, see `batch` |
//! | number of a keyspace plus one, as a varint; a key of it | its value |
//!
//! # Other files
//! | name | |
//! |---|---|
//! | `store.pool` | the pool, unless it lies elsewhere |
//! | `store.checkpoint` | what stands in for it after a power loss |
//! | `LOCK` | keeps a second opener out |

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gabion_media::{Disk, Purpose, TEMPORARY_SUFFIX};

use crate::log::Malformed;
use crate::log::codec::{Reader, VARINT_BYTES_MAX, encode_varint, put_bytes};
use crate::names::LOCK;
use crate::{Error, Result};

/// Name of the root file.
pub(crate) const ROOT_NAME: &str = "SCMKV";

/// Name of the pool's file.
pub(super) const POOL_NAME: &str = "store.pool";

/// Name of the checkpoint's file.
pub(super) const CHECKPOINT_NAME: &str = "store.checkpoint";

const MAGIC: [u8; 8] = *b"GABSCMKV";

/// The version that this program writes, and the newest that it reads.
const FORMAT: u32 = 1;

const CRC_OFFSET: usize = 12;
const BODY_OFFSET: usize = 16;

const BEING_MADE: u8 = 1;
const MADE: u8 = 2;

/// The first byte of the keys that are no user's.
const OWN_KEYS: u8 = 0;

const _: () = assert!(MAGIC.len() + size_of::<u32>() == CRC_OFFSET);
const _: () = assert!(CRC_OFFSET + size_of::<u32>() == BODY_OFFSET);

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// Whether the store is whole. What another one left behind is removed.
    pub(super) is_made: bool,
    pub(super) has_checkpoint: bool,
    /// Where the pool lies; relative to the directory.
    pub(super) pool: PathBuf,
}

impl Root {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.push(if self.is_made { MADE } else { BEING_MADE });
        bytes.push(u8::from(self.has_checkpoint));
        put_bytes(&mut bytes, self.pool.as_os_str().as_bytes());
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
        let is_made = match reader.u8()? {
            BEING_MADE => false,
            MADE => true,
            _ => return Err(reader.malformed("the state of the store is unknown").into()),
        };
        let has_checkpoint = match reader.u8()? {
            0 => false,
            1 => true,
            _ => {
                return Err(reader
                    .malformed("the flags of the store are unknown")
                    .into());
            }
        };
        let pool = PathBuf::from(OsStr::from_bytes(reader.bytes()?));
        if !reader.is_empty() {
            return Err(reader
                .malformed("the root file goes on behind its end")
                .into());
        }
        Ok(Root {
            is_made,
            has_checkpoint,
            pool,
        })
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
    /// DURABLE: when it returns, this is what an opening begins with.
    pub(super) fn write(&self, disk: &Disk) -> Result<()> {
        Ok(disk.replace(ROOT_NAME, &self.encode(), Purpose::Metadata)?)
    }

    /// The pool's file.
    pub(super) fn pool_path(&self, disk: &Disk) -> PathBuf {
        disk.path().join(&self.pool)
    }

    /// The checkpoint's file, if there is one.
    pub(super) fn checkpoint_path(&self, disk: &Disk) -> Option<PathBuf> {
        self.has_checkpoint.then(|| disk.path_of(CHECKPOINT_NAME))
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

/// Removes a file, if it is there.
pub(super) fn remove_file(path: &Path) -> Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str))
    else {
        return Ok(());
    };
    match Disk::system(directory)?.remove(name) {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
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

fn own_key(kind: u8, number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_le_bytes();
    [OWN_KEYS, kind, a, b, c, d]
}

/// The key of a keyspace's name.
pub(super) fn name_key(keyspace: u32) -> [u8; 6] {
    own_key(b'K', keyspace)
}

/// The key of a piece of the batch that is being written.
pub(super) fn piece_key(piece: u32) -> [u8; 6] {
    own_key(b'B', piece)
}

/// Keys of up to so many bytes, their keyspace included, are put together without allocating.
const SHORT_KEY_BYTES: usize = 96;

/// Calls `then` with the key that a keyspace's key has in the pool.
#[inline]
pub(super) fn with_key<R>(keyspace: u32, key: &[u8], then: impl FnOnce(&[u8]) -> R) -> R {
    let mut head = [0; VARINT_BYTES_MAX];
    let head_len = encode_varint(u64::from(keyspace) + 1, &mut head);
    let head = &head[..head_len];
    let len = head_len + key.len();
    if len <= SHORT_KEY_BYTES {
        let mut short = [0; SHORT_KEY_BYTES];
        short[..head_len].copy_from_slice(head);
        short[head_len..len].copy_from_slice(key);
        then(&short[..len])
    } else {
        then(&[head, key].concat())
    }
}

/// The key of this keyspace in a key of the pool.
pub(super) fn key_of(keyspace: u32, pool_key: &[u8]) -> Option<&[u8]> {
    with_key(keyspace, &[], |head| pool_key.strip_prefix(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Root {
        Root {
            is_made: true,
            has_checkpoint: true,
            pool: PathBuf::from("/dev/shm/some.pool"),
        }
    }

    #[test]
    fn a_root_comes_back_and_every_flipped_bit_and_cut_is_seen() {
        for is_made in [false, true] {
            let root = Root { is_made, ..root() };
            let bytes = root.encode();
            assert_eq!(Root::decode(&bytes), Ok(root));
            assert_eq!(&bytes[..12], b"GABSCMKV\x01\0\0\0");
            assert_eq!(bytes[16..19], [1 + u8::from(is_made), 1, 18]);
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(Root::decode(&damaged).is_err(), "bit {bit}");
            }
            for len in 0..bytes.len() {
                assert!(Root::decode(&bytes[..len]).is_err(), "cut to {len}");
            }
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

    #[test]
    fn keys_of_keyspaces_and_own_ones_are_all_different() {
        let mut all = std::collections::BTreeSet::new();
        for keyspace in [0, 1, 126, 127, 128, 20_000, u32::MAX] {
            for key in [
                &b""[..],
                b"\0",
                b"\x01",
                b"K\0\0\0\0",
                &[7; 95],
                &[7; 96],
                &[7; 200],
            ] {
                let is_new = with_key(keyspace, key, |pool_key| {
                    assert_eq!(key_of(keyspace, pool_key), Some(key));
                    assert_ne!(pool_key.first(), Some(&OWN_KEYS));
                    all.insert(pool_key.to_vec())
                });
                assert!(is_new, "{keyspace} {key:?}");
            }
            assert!(all.insert(name_key(keyspace).to_vec()));
            assert!(all.insert(piece_key(keyspace).to_vec()));
        }
    }
}
