//! The root file, and the keys of a store's pool.
//!
//! Behind the head of a root file ([`crate::engine::root_file`]) with the engine's name and magic,
//! `SCMKV` and `GABSCMKV` or `SPTREE` and `GABSPTRE`:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 16 | 1 | 1 while the store is being made, then 2 |
//! | 17 | 1 | 1 if the store has a checkpoint, else 0 |
//! | 18 | .. | path of the pool, from the directory on: its length as a varint, its bytes |
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
use std::path::PathBuf;

use gabion_media::Disk;
use gabion_media::pmem::Pool;

use super::PoolStore;
use crate::Result;
use crate::engine::root_file::{BODY_OFFSET, RootFile, RootFileError};
use crate::log::MalformedPayload;
use crate::log::codec::{PayloadReader, VARINT_BYTES_MAX, encode_varint, put_bytes};

/// Name of the pool's file.
pub(super) const POOL_NAME: &str = "store.pool";

/// Name of the checkpoint's file.
pub(super) const CHECKPOINT_NAME: &str = "store.checkpoint";

const BEING_MADE: u8 = 1;
const MADE: u8 = 2;

/// The first byte of the keys that are no user's.
const OWN_KEYS: u8 = 0;

// The table above counts from there.
const _: () = assert!(BODY_OFFSET == 16);

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
    pub(super) fn encode(&self, file: &RootFile) -> Vec<u8> {
        file.encode(|bytes| {
            bytes.push(if self.is_made { MADE } else { BEING_MADE });
            bytes.push(u8::from(self.has_checkpoint));
            put_bytes(bytes, self.pool.as_os_str().as_bytes());
        })
    }

    fn decode(bytes: &[u8], file: &RootFile) -> Result<Root, RootFileError> {
        file.decode(bytes, Root::decode_body)
    }

    fn decode_body(reader: &mut PayloadReader<'_>) -> Result<Root, MalformedPayload> {
        let is_made = match reader.u8()? {
            BEING_MADE => false,
            MADE => true,
            _ => return Err(reader.malformed("the state of the store is unknown")),
        };
        let has_checkpoint = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(reader.malformed("the flags of the store are unknown")),
        };
        Ok(Root {
            is_made,
            has_checkpoint,
            pool: PathBuf::from(OsStr::from_bytes(reader.bytes()?)),
        })
    }

    /// Reads the file.
    pub(super) fn read(disk: &Disk, file: &RootFile) -> Result<Root> {
        file.read(disk, |bytes| Root::decode(bytes, file))
    }

    /// Replaces the file.
    pub(super) fn write(&self, disk: &Disk, file: &RootFile) -> Result<()> {
        file.write(disk, &self.encode(file))
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

/// Whether a file of that name is a store's, beside the root and the lock.
pub(crate) fn is_own_file(name: &str) -> bool {
    [POOL_NAME, CHECKPOINT_NAME].contains(&name)
}

/// Removes the pool, wherever it lies, durably. It may be gone, and the directory of it too.
pub(crate) fn remove_pool<S: PoolStore>(disk: &Disk) -> Result<()> {
    let path = Root::read(disk, &S::ROOT)?.pool_path(disk);
    let Some(directory) = path.parent().filter(|directory| directory.is_dir()) else {
        return Ok(());
    };
    Pool::remove(&path)?;
    // DURABLE: nothing would lead to it after a loss of power that leaves no root.
    Ok(Disk::system(directory)?.sync_dir()?)
}

const fn own_key(kind: u8, number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_le_bytes();
    [OWN_KEYS, kind, a, b, c, d]
}

/// The key of a keyspace's name.
pub(super) fn name_key(keyspace: u32) -> [u8; 6] {
    own_key(b'K', keyspace)
}

/// The key of a piece of the batch that is being written.
pub(super) const fn piece_key(piece: u32) -> [u8; 6] {
    own_key(b'B', piece)
}

/// Keys of up to so many bytes, their keyspace included, are put together without allocating.
const SHORT_KEY_BYTES: usize = 96;

/// Calls `then` with the key that a keyspace's key has in the pool.
#[inline]
pub(in crate::engine) fn with_key<R>(
    keyspace: u32,
    key: &[u8],
    then: impl FnOnce(&[u8]) -> R,
) -> R {
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
pub(in crate::engine) fn key_of(keyspace: u32, pool_key: &[u8]) -> Option<&[u8]> {
    with_key(keyspace, &[], |head| pool_key.strip_prefix(head))
}

/// The key in the pool that all keys of a keyspace below `key` are below; below its end, if that is
/// empty.
pub(in crate::engine) fn end_of(keyspace: u32, key: &[u8]) -> Vec<u8> {
    let mut end = with_key(keyspace, key, <[u8]>::to_vec);
    // The last byte of a varint is below 128.
    if key.is_empty()
        && let Some(last) = end.last_mut()
    {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::root_file::assert_refuses_all_else;

    const FILE: RootFile = RootFile {
        name: "SCMKV",
        magic: *b"GABSCMKV",
        format: 1,
    };

    fn root() -> Root {
        Root {
            is_made: true,
            has_checkpoint: true,
            pool: PathBuf::from("/dev/shm/some.pool"),
        }
    }

    #[test]
    fn a_root_comes_back_and_all_else_is_refused() {
        for is_made in [false, true] {
            let root = Root { is_made, ..root() };
            let bytes = root.encode(&FILE);
            assert_eq!(Root::decode(&bytes, &FILE), Ok(root));
            assert_eq!(&bytes[..12], b"GABSCMKV\x01\0\0\0");
            assert_eq!(bytes[16..19], [1 + u8::from(is_made), 1, 18]);
            assert_refuses_all_else(&bytes, |bytes| Root::decode(bytes, &FILE));
        }
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
        // The keys of a keyspace are a range, of which those below one of its keys are a part.
        for keyspace in [0, 1, 126, 127, 128, 20_000, u32::MAX] {
            let first = with_key(keyspace, &[], <[u8]>::to_vec);
            let keys = all.range(first.clone()..end_of(keyspace, &[]));
            assert_eq!(keys.count(), 7, "{keyspace}");
            let keys = all.range(first..end_of(keyspace, &[7; 96]));
            assert_eq!(keys.count(), 4, "{keyspace}");
            let own = all.iter().filter(|key| key_of(keyspace, key).is_some());
            assert_eq!(own.count(), 7, "{keyspace}");
        }
    }
}
