//! The engines behind the facade, and which of them a store is of.
//!
//! The facade holds a store, its keyspaces and its scans as enums of the engines, so that a call
//! costs one predictable branch.

pub(crate) mod flexdb;
pub(crate) mod wip;

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use gabion_media::Disk;

use crate::db::Store;
use crate::options::{Durability, Engine, Options};
use crate::types::{Kind, Seq};
use crate::{Error, Result, Slice, Stats};

use flexdb::Flex;
use wip::Wip;

pub(crate) use wip::key_range;
pub use wip::{CheckReport, Problem};

/// The longest key of any engine, in bytes.
pub(crate) const KEY_BYTES_MAX: u64 = wip::KEY_BYTES_MAX;

/// The longest value of any engine, in bytes.
pub(crate) const VALUE_BYTES_MAX: u64 = wip::VALUE_BYTES_MAX;

/// The largest batch, in bytes of keys, values and their headers: it is one record of the log.
pub(crate) const BATCH_BYTES_MAX: u64 = wip::BATCH_BYTES_MAX;

/// An open store of one of the engines.
#[derive(Clone)]
pub(crate) enum Handle {
    Wip(Arc<Wip>),
    Flex(Arc<Flex>),
}

/// A keyspace of a store.
#[derive(Clone)]
pub(crate) enum Keyspace {
    Wip(Arc<wip::Keyspace>),
    Flex(Arc<flexdb::Keyspace>),
}

/// A scan of a keyspace.
pub(crate) enum Scan {
    Wip(Box<wip::Scan>),
    Flex {
        scan: Box<flexdb::Scan>,
        /// Stays open as long as the scan lives.
        _store: Arc<Store>,
    },
}

/// One write, as the facade hands it in.
#[derive(Clone, Copy)]
pub(crate) enum Write<'w> {
    /// A single operation.
    Single {
        keyspace: &'w Keyspace,
        kind: Kind,
        key: &'w [u8],
        value: &'w [u8],
    },
    /// Encoded operations.
    Batch(&'w crate::log::BatchEncoder),
}

/// Both engines do the same thing, each in its way.
macro_rules! each {
    ($handle:expr, $engine:ident => $call:expr) => {
        match $handle {
            Handle::Wip($engine) => $call,
            Handle::Flex($engine) => $call,
        }
    };
}

/// A keyspace that another store's engine made.
#[cold]
fn foreign() -> ! {
    panic!("the keyspace belongs to another store")
}

impl Keyspace {
    pub(crate) fn id(&self) -> u32 {
        match self {
            Keyspace::Wip(keyspace) => keyspace.id,
            Keyspace::Flex(keyspace) => keyspace.id,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Keyspace::Wip(keyspace) => &keyspace.name,
            Keyspace::Flex(keyspace) => &keyspace.name,
        }
    }
}

impl Handle {
    /// Opens the store on a disk with the engine that made it, or makes one with the options'.
    pub(crate) fn open(disk: Disk, options: Options) -> Result<Handle> {
        let engine = match (
            disk.exists(flexdb::ROOT_NAME)?,
            disk.exists(wip::names::CURRENT)?,
        ) {
            (true, _) => Engine::Flex,
            (false, true) => Engine::Wip,
            (false, false) => options.engine,
        };
        Ok(match engine {
            Engine::Wip => Handle::Wip(Wip::open(disk, options)?),
            Engine::Flex => Handle::Flex(Flex::open(disk, options)?),
        })
    }

    pub(crate) fn close(&self) -> Result<()> {
        each!(self, engine => engine.close())
    }

    pub(crate) fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        Ok(match self {
            Handle::Wip(engine) => Keyspace::Wip(engine.create_keyspace(name)?),
            Handle::Flex(engine) => Keyspace::Flex(engine.create_keyspace(name)?),
        })
    }

    pub(crate) fn find_keyspace(&self, name: &str) -> Option<Keyspace> {
        match self {
            Handle::Wip(engine) => engine.find_keyspace(name).map(Keyspace::Wip),
            Handle::Flex(engine) => engine.find_keyspace(name).map(Keyspace::Flex),
        }
    }

    pub(crate) fn keyspace_names(&self) -> Vec<String> {
        each!(self, engine => engine.keyspace_names())
    }

    /// Performs a write of so many bytes of keys and values.
    #[inline]
    pub(crate) fn write(&self, write: Write<'_>, user_bytes: u64, sync: bool) -> Result<()> {
        match self {
            Handle::Wip(engine) => {
                let write = match write {
                    Write::Batch(operations) => wip::Write::Batch(operations),
                    Write::Single {
                        keyspace: Keyspace::Wip(keyspace),
                        kind,
                        key,
                        value,
                    } => wip::Write::Single {
                        keyspace,
                        kind,
                        key,
                        value,
                    },
                    Write::Single { .. } => foreign(),
                };
                engine.write(write, user_bytes, sync)
            }
            Handle::Flex(engine) => {
                let write = match write {
                    Write::Batch(operations) => flexdb::Write::Batch(operations),
                    Write::Single {
                        keyspace: Keyspace::Flex(keyspace),
                        kind,
                        key,
                        value,
                    } => flexdb::Write::Single {
                        keyspace,
                        kind,
                        key,
                        value,
                    },
                    Write::Single { .. } => foreign(),
                };
                engine.write(write, user_bytes, sync)
            }
        }
    }

    /// The value of a key, now or at a registered number.
    #[inline]
    pub(crate) fn get(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        snapshot: Option<Seq>,
    ) -> Result<Option<Slice>> {
        match (self, keyspace) {
            (Handle::Wip(engine), Keyspace::Wip(keyspace)) => engine.get(keyspace, key, snapshot),
            (Handle::Flex(engine), Keyspace::Flex(keyspace)) => engine.get(keyspace, key, snapshot),
            _ => foreign(),
        }
    }

    /// The values of several keys at a registered number.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
        snapshot: Seq,
    ) -> Result<Vec<Option<Slice>>> {
        match (self, keyspace) {
            (Handle::Wip(engine), Keyspace::Wip(keyspace)) => {
                engine.multi_get(keyspace, keys, snapshot)
            }
            (Handle::Flex(engine), Keyspace::Flex(keyspace)) => {
                engine.multi_get(keyspace, keys, snapshot)
            }
            _ => foreign(),
        }
    }

    /// WipDB, of a store that is of it.
    pub(crate) fn wip(&self) -> &Wip {
        match self {
            Handle::Wip(engine) => engine,
            Handle::Flex(_) => foreign(),
        }
    }

    pub(crate) fn begin_snapshot(&self) -> Seq {
        each!(self, engine => engine.begin_snapshot())
    }

    pub(crate) fn share_snapshot(&self, seq: Seq) {
        each!(self, engine => engine.share_snapshot(seq));
    }

    pub(crate) fn end_snapshot(&self, seq: Seq) {
        each!(self, engine => engine.end_snapshot(seq));
    }

    pub(crate) fn flush(&self) -> Result<()> {
        each!(self, engine => engine.flush())
    }

    pub(crate) fn persist(&self, durability: Durability) -> Result<()> {
        each!(self, engine => engine.persist(durability))
    }

    pub(crate) fn wait_idle(&self) -> Result<()> {
        each!(self, engine => engine.wait_idle())
    }

    pub(crate) fn stats(&self) -> Stats {
        each!(self, engine => engine.stats())
    }

    pub(crate) fn compact_range(
        &self,
        keyspace: &Keyspace,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<()> {
        match (self, keyspace) {
            (Handle::Wip(engine), Keyspace::Wip(keyspace)) => {
                engine.compact_range(keyspace, lower, upper)
            }
            (Handle::Flex(engine), Keyspace::Flex(keyspace)) => {
                engine.compact_range(keyspace, lower, upper)
            }
            _ => foreign(),
        }
    }
}

/// A scan of a store at a number whose registration it takes over.
pub(crate) fn scan(
    store: &Arc<Store>,
    keyspace: &Keyspace,
    seq: Seq,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> Scan {
    match (&store.engine, keyspace) {
        (Handle::Wip(_), Keyspace::Wip(keyspace)) => {
            let store = Arc::clone(store) as _;
            Scan::Wip(Box::new(wip::Scan::new(store, keyspace, seq, lower, upper)))
        }
        (Handle::Flex(engine), Keyspace::Flex(keyspace)) => Scan::Flex {
            scan: Box::new(flexdb::Scan::new(engine, keyspace, seq, lower, upper)),
            _store: Arc::clone(store),
        },
        _ => foreign(),
    }
}

/// As the macro above, for scans.
macro_rules! each_scan {
    ($scan:expr, $own:ident => $call:expr) => {
        match $scan {
            Scan::Wip($own) => $call,
            Scan::Flex { scan: $own, .. } => $call,
        }
    };
}

impl Scan {
    /// Goes to the next pair; false at the end.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        each_scan!(self, scan => scan.advance())
    }

    /// The next pair from the end.
    #[inline]
    pub(crate) fn next_back(&mut self) -> Result<Option<(Slice, Slice)>> {
        each_scan!(self, scan => scan.next_back())
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        each_scan!(self, scan => scan.key())
    }

    #[inline]
    pub(crate) fn value(&self) -> Slice {
        each_scan!(self, scan => scan.value())
    }

    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        each_scan!(self, scan => scan.value_bytes())
    }
}

/// Reads every byte of the store in the directory `path` and checks it: checksums, order, counts,
/// filters, and that all files fit together. Changes nothing. The store must not be open.
///
/// Damage is reported in [`CheckReport::problems`].
///
/// # Errors
/// [`Error::NotAStore`], [`Error::NewerFormat`], [`Error::Media`] when the store is open or the
/// medium fails.
pub fn check(path: impl AsRef<Path>) -> Result<CheckReport> {
    let path = path.as_ref();
    if !path.is_dir() {
        return Err(Error::NotAStore {
            path: path.to_owned(),
            why: "the directory does not exist".to_owned(),
        });
    }
    check_disk(&Disk::system(path)?)
}

/// As [`check`], on a disk of any kind.
///
/// # Errors
/// As there.
#[doc(hidden)]
pub fn check_disk(disk: &Disk) -> Result<CheckReport> {
    if disk.exists(flexdb::ROOT_NAME)? {
        return flexdb::check_disk(disk);
    }
    wip::check_disk(disk)
}
