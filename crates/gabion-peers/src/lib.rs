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
//! - **Reads see every write that returned before them.** A store with snapshots takes a new one for
//!   each read.
//!
//! [`put_synced`]: gabion_lab::target::Session::put_synced
//! [`cache_bytes`]: gabion_lab::target::StoreOptions::cache_bytes
//! [`background_threads`]: gabion_lab::target::StoreOptions::background_threads

use std::fmt::Display;

use gabion_lab::Error;
use gabion_lab::target::{Abilities, StoreOptions, Target};

mod fjall;
mod leveldb;
mod lmdb;
mod redb;
mod rocksdb;
mod sled;
mod sqlite;

/// All of them, in the order in which reports show them.
pub fn targets() -> &'static [Target] {
    &TARGETS
}

static TARGETS: [Target; 7] = [
    rocksdb::TARGET,
    leveldb::TARGET,
    lmdb::TARGET,
    redb::TARGET,
    fjall::TARGET,
    sled::TARGET,
    sqlite::TARGET,
];

/// What all peers can do.
const ABILITIES: Abilities = Abilities {
    ordered: true,
    synced_writes: true,
    persistent: true,
};

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
