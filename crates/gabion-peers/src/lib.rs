//! Other key-value stores as targets of the lab, so that Gabion's figures stand beside theirs.
//!
//! Each store has a file of its own, which opens with the guide that it is tuned by and with what
//! was set, and why where the guide leaves a choice. What holds for all of them:
//!
//! - **Durability.** A plain write is handed to the operating system and not synced; what a store
//!   promises beyond that, or does not, its file says. [`put_synced`] returns when the record is on
//!   storage. Closing a store makes everything durable.
//! - **Memory.** The cache has [`cache_bytes`]; where a store keeps its filters and indexes in the
//!   cache, they count. Stores that live on the page cache say so.
//! - **Threads.** Work in the background may use [`background_threads`], where a store lets one
//!   choose.
//! - **No compression**, in none of them.
//! - **Reads see every write that returned before them.** A store with snapshots takes a new one
//!   for each read.
//!
//! [`put_synced`]: gabion_lab::target::Session::put_synced
//! [`cache_bytes`]: gabion_lab::target::StoreOptions::cache_bytes
//! [`background_threads`]: gabion_lab::target::StoreOptions::background_threads

use std::fmt::Display;

use gabion_lab::Error;
use gabion_lab::target::{StoreOptions, Target, TargetCapabilities};

mod bf_tree;
mod fjall;
#[cfg(feature = "leveldb")]
mod leveldb;
#[cfg(feature = "lmdb")]
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sled;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "tidesdb")]
mod tidesdb;

/// All of them, in the order in which reports show them. Those that are not written in Rust have a
/// feature each; `native` has all but TidesDB.
pub fn targets() -> &'static [Target] {
    TARGETS
}

static TARGETS: &[Target] = &[
    #[cfg(feature = "rocksdb")]
    rocksdb::TARGET,
    #[cfg(feature = "rocksdb")]
    rocksdb::COUNTERS,
    #[cfg(feature = "rocksdb")]
    rocksdb::TRANSACTIONS,
    #[cfg(feature = "leveldb")]
    leveldb::TARGET,
    #[cfg(feature = "lmdb")]
    lmdb::TARGET,
    redb::TARGET,
    fjall::TARGET,
    sled::TARGET,
    #[cfg(feature = "sqlite")]
    sqlite::TARGET,
    #[cfg(feature = "tidesdb")]
    tidesdb::TARGET,
    bf_tree::TARGET,
];

/// What all peers can do, but for Bf-Tree and TidesDB.
const ABILITIES: TargetCapabilities = TargetCapabilities {
    ordered: true,
    backward: true,
    synced_writes: true,
    persistent: true,
    files: true,
    transactions: false,
    merges: false,
};

/// What a plain put loses where the log is written at each write and not synced.
const LOSES_UNSYNCED: &str = "by a power loss what was put since the last sync of the log";

/// Memory for writes where the run leaves it to the store: RocksDB's and fjall's own default, and
/// given to LevelDB too, whose default of 4 MiB is from the time of small machines.
const WRITE_BUFFER_BYTES: u64 = 64 << 20;

/// The error `message` of `target`.
fn peer_error(target: &'static str, message: impl Display) -> Error {
    Error::Peer {
        target,
        message: message.to_string(),
    }
}

/// Checks that there is a store where one must be, and none where none may be: by `file`, which
/// every store of `target` has.
fn check_existing(target: &'static str, options: &StoreOptions, file: &str) -> Result<(), Error> {
    let dir = options.dir.display();
    match (options.existing, options.dir.join(file).exists()) {
        (true, false) => Err(peer_error(
            target,
            format!("{dir} holds no store: {file} is missing"),
        )),
        (false, true) => Err(peer_error(
            target,
            format!("{dir} holds a store already: {file} is there"),
        )),
        _ => Ok(()),
    }
}

/// The memory for writes that the run asks for, or else 64 MiB.
fn write_buffer_bytes(options: &StoreOptions) -> u64 {
    options.write_buffer_bytes.unwrap_or(WRITE_BUFFER_BYTES)
}

/// Whether the value is of zeros alone, or empty. Stores that take no empty value are given one
/// more zero for such a value, so that all values are told apart and hardly one is copied.
#[inline]
fn is_zeros(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte == 0)
}

/// `value` as a number of another type, or the largest one of that type.
fn saturated<T, U>(value: T) -> U
where
    U: TryFrom<T> + Bounded,
{
    U::try_from(value).unwrap_or(U::MAX)
}

/// Numbers that have a largest one.
trait Bounded {
    const MAX: Self;
}

impl Bounded for usize {
    const MAX: Self = usize::MAX;
}

impl Bounded for i32 {
    const MAX: Self = i32::MAX;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use gabion_lab::target::Batch;

    use super::*;

    /// The records of a store.
    pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    /// Reads all records of a closed store through the store's own interface.
    type Contents = fn(&StoreOptions) -> Map;

    const CONTENTS: &[(&str, Contents)] = &[
        #[cfg(feature = "rocksdb")]
        ("rocksdb", rocksdb::Rocks::contents),
        #[cfg(feature = "leveldb")]
        ("leveldb", leveldb::LevelDb::contents),
        #[cfg(feature = "lmdb")]
        ("lmdb", lmdb::Lmdb::contents),
        ("redb", redb::Redb::contents),
        ("fjall", fjall::Fjall::contents),
        ("sled", sled::Sled::contents),
        #[cfg(feature = "sqlite")]
        ("sqlite", sqlite::Sqlite::contents),
        #[cfg(feature = "tidesdb")]
        ("tidesdb", tidesdb::Tides::contents),
    ];

    pub(crate) fn options(dir: &Path, existing: bool) -> StoreOptions {
        StoreOptions {
            dir: dir.to_owned(),
            existing,
            cache_bytes: 8 << 20,
            write_buffer_bytes: Some(1 << 20),
            hold_flushes: false,
            background_threads: 2,
            sessions: 2,
            records: 10_000,
            record_bytes: 116,
        }
    }

    /// Sessions do not show values, so that an adapter could write anything. Here the store's own
    /// interface shows them.
    #[test]
    fn stores_hold_the_values_that_were_written() {
        let persistent = targets().iter().filter(|t| t.abilities.persistent);
        assert_eq!(persistent.clone().count(), CONTENTS.len());
        for (target, (name, contents)) in persistent.zip(CONTENTS) {
            assert_eq!(target.name, *name);
            let dir = tempfile::tempdir().unwrap();
            let store = (target.open)(&options(dir.path(), false)).unwrap();
            let mut session = store.session().unwrap();
            let mut map = Map::new();
            let mut batch = Batch::default();
            for i in 0..5000_u32 {
                // Each key comes twice, its later value is another one, and some are empty.
                let key = format!("key {:04}", i % 2500).into_bytes();
                let value = format!("{i} ").repeat((i % 40) as usize).into_bytes();
                match i % 100 {
                    0 => session.put_synced(&key, &value).unwrap(),
                    1..50 => session.put(&key, &value).unwrap(),
                    _ => batch.put(&key, &value),
                }
                map.insert(key, value);
                if i % 100 == 99 {
                    let key = format!("key {:04}", i / 2).into_bytes();
                    batch.delete(&key);
                    map.remove(&key);
                    session.write(&batch).unwrap();
                    batch.clear();
                    session.delete(b"key 0007").unwrap();
                    map.remove(&b"key 0007"[..]);
                }
            }
            drop(session);
            store.close().unwrap();
            assert!(map.values().any(Vec::is_empty));
            let held = contents(&options(dir.path(), true));
            let differs = map.iter().zip(&held).find(|(ours, theirs)| ours != theirs);
            assert_eq!(differs, None, "{name}");
            assert_eq!(held.len(), map.len(), "{name}");
        }
    }
}
