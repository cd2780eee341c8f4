//! The engines behind the facade, and which of them a store is of.
//!
//! The facade holds a store, its keyspaces and its scans as enums of the engines, so that a call
//! costs one predictable branch.
//!
//! Each engine has a folder. What engines share stands beside them: `write` and its queue,
//! `memtable`, `range_deletes`, `snapshots`, `keyspaces`, `schedule`, `idle`, `pace`, `health`,
//! `unsettled`, `counters`, `root_file`, `check`, `repair` and `destroy`; and `mapped`, which is
//! all of an engine but the structure in its pool. The mapped engines are compiled with the feature
//! `pm`; `absent` stands for them in a build without it.

#[cfg(not(feature = "pm"))]
mod absent;
mod check;
mod counters;
mod destroy;
pub(crate) mod flexdb;
mod health;
mod idle;
mod keyspaces;
#[cfg(feature = "pm")]
mod mapped;
pub(crate) mod memtable;
mod ordered;
mod pace;
mod range_deletes;
mod repair;
mod root_file;
mod schedule;
#[cfg(feature = "pm")]
pub(crate) mod scmkv;
mod snapshots;
#[cfg(feature = "pm")]
pub(crate) mod sptree;
mod unsettled;
pub(crate) mod wip;
mod write;

use std::ops::Bound;
use std::sync::Arc;

use gabion_flex::ReaderWaits;
use gabion_media::{Disk, TEMPORARY_SUFFIX};

use crate::capabilities::Engine;
use crate::db::{Lease, Opened};
use crate::names::{self, LOCK, is_file_of_wip};
use crate::new_dir;
use crate::options::{Durability, Options};
use crate::types::Seq;
use crate::{Error, Result, Slice, Stats};

#[cfg(not(feature = "pm"))]
use absent::{mapped, scmkv, sptree};
use flexdb::Flex;
use health::Health;
use keyspaces::Named;
use scmkv::ScmStore;
use sptree::SpStore;
use wip::Wip;

pub(crate) use scmkv::Walk;

pub use check::{CheckReport, Problem, check, check_disk};
pub use destroy::{destroy, destroy_disk};
pub use repair::{Lost, RepairReport, repair, repair_disk};

/// The longest key of any engine, in bytes.
pub(crate) const KEY_BYTES_MAX: u64 = (64 << 10) - 1;

/// The longest value of any engine, in bytes. A value and its key fit into one frame of the log and
/// one block of a table, both of which state lengths in 31 bits.
pub(crate) const VALUE_BYTES_MAX: u64 = 1 << 30;

/// The longest value of [`Engine::Scmkv`], in bytes: with the longest key it fits into a page.
pub(crate) const SCMKV_VALUE_BYTES_MAX: u64 = 15 << 17;

/// The longest value of [`Engine::Sptree`], in bytes: a scan copies whole values, a few ahead.
pub(crate) const SPTREE_VALUE_BYTES_MAX: u64 = 16 << 20;

/// The largest batch, in bytes of keys, values and their headers: it is one record of the log.
pub(crate) const BATCH_BYTES_MAX: u64 = (1 << 30) + (1 << 20);

/// The longest name of a keyspace, in bytes.
const NAME_BYTES_MAX: u64 = 255;

/// An open store of one of the engines.
#[derive(Clone)]
pub(crate) enum Handle {
    Wip(Arc<Wip>),
    Flex(Arc<Flex>),
    Scmkv(Arc<ScmStore>),
    Sptree(Arc<SpStore>),
}

/// A keyspace of a store.
#[derive(Clone)]
pub(crate) enum Keyspace {
    Wip(Arc<wip::Keyspace>),
    Flex(Arc<flexdb::Keyspace>),
    Scmkv(Arc<mapped::Keyspace>),
    Sptree(Arc<mapped::Keyspace>),
}

/// A scan of a keyspace.
pub(crate) enum Scan {
    Wip(Box<wip::Scan>),
    Flex {
        scan: Box<flexdb::Scan>,
        /// Stays open as long as the scan lives.
        _store: Arc<Lease>,
    },
    Sptree {
        scan: Box<sptree::Scan>,
        /// As above.
        _store: Arc<Lease>,
    },
    /// The engine has none, or the store is closed, or the keyspace was dropped: the error that
    /// tells so, until it is told.
    Refused(Option<Error>),
}

/// One write, as the facade hands it in.
pub(crate) type Write<'w> = write::Write<'w, Keyspace>;

/// All engines do the same thing, each in its way.
macro_rules! each {
    ($handle:expr, $engine:ident => $call:expr) => {
        match $handle {
            Handle::Wip($engine) => $call,
            Handle::Flex($engine) => $call,
            Handle::Scmkv($engine) => $call,
            Handle::Sptree($engine) => $call,
        }
    };
}

/// As the macro above, with a keyspace of the store.
macro_rules! each_with {
    ($handle:expr, $keyspace:ident, $engine:ident => $call:expr) => {
        match ($handle, $keyspace) {
            (Handle::Wip($engine), Keyspace::Wip($keyspace)) => $call,
            (Handle::Flex($engine), Keyspace::Flex($keyspace)) => $call,
            (Handle::Scmkv($engine), Keyspace::Scmkv($keyspace)) => $call,
            (Handle::Sptree($engine), Keyspace::Sptree($keyspace)) => $call,
            _ => foreign(),
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
            Keyspace::Wip(keyspace) => keyspace.id(),
            Keyspace::Flex(keyspace) => keyspace.id(),
            Keyspace::Scmkv(keyspace) | Keyspace::Sptree(keyspace) => keyspace.id(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Keyspace::Wip(keyspace) => keyspace.name(),
            Keyspace::Flex(keyspace) => keyspace.name(),
            Keyspace::Scmkv(keyspace) | Keyspace::Sptree(keyspace) => keyspace.name(),
        }
    }

    /// An error if the keyspace was dropped, for those who read at `seq`.
    fn check_at(&self, seq: Seq) -> Result<()> {
        match self {
            Keyspace::Wip(keyspace) => keyspace.dropped.check_at(seq),
            Keyspace::Flex(keyspace) => keyspace.dropped.check_at(seq),
            Keyspace::Scmkv(_) | Keyspace::Sptree(_) => Ok(()),
        }
    }

    #[inline]
    fn wip(&self) -> &wip::Keyspace {
        match self {
            Keyspace::Wip(keyspace) => keyspace,
            _ => foreign(),
        }
    }

    #[inline]
    fn flex(&self) -> &flexdb::Keyspace {
        match self {
            Keyspace::Flex(keyspace) => keyspace,
            _ => foreign(),
        }
    }

    #[inline]
    fn mapped(&self) -> &mapped::Keyspace {
        match self {
            Keyspace::Scmkv(keyspace) | Keyspace::Sptree(keyspace) => keyspace,
            _ => foreign(),
        }
    }
}

impl Handle {
    /// Opens the store on a disk with the engine that made it, or makes one with the options'.
    pub(crate) fn open(disk: Disk, options: Options) -> Result<Handle> {
        Ok(match engine_of(&disk)?.unwrap_or(options.engine) {
            Engine::Wip => Handle::Wip(Wip::open(disk, options)?),
            Engine::Flex => Handle::Flex(Flex::open(disk, options)?),
            Engine::Scmkv => Handle::Scmkv(ScmStore::open(disk, options)?),
            Engine::Sptree => Handle::Sptree(SpStore::open(disk, options)?),
        })
    }

    /// Which of the engines it is.
    pub(crate) fn engine(&self) -> Engine {
        match self {
            Handle::Wip(_) => Engine::Wip,
            Handle::Flex(_) => Engine::Flex,
            Handle::Scmkv(_) => Engine::Scmkv,
            Handle::Sptree(_) => Engine::Sptree,
        }
    }

    fn health(&self) -> &Health {
        each!(self, engine => &engine.health)
    }

    /// Whether the store is this process's, and not its parent's.
    #[inline]
    fn is_here(&self) -> bool {
        self.health().is_here()
    }

    /// As [`Handle::is_here`], for who closes the store; tells a child, too, that was made without
    /// the system's library.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.health().is_of_this_process()
    }

    pub(crate) fn close(&self) -> Result<()> {
        match self.is_of_this_process() {
            true => each!(self, engine => engine.close()),
            false => Err(self.health().forked()),
        }
    }

    /// The keyspace of that name, made durably if it does not exist.
    pub(crate) fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        let size = name.len() as u64;
        if !(1..=NAME_BYTES_MAX).contains(&size) {
            return Err(Error::Limit {
                what: "name of a keyspace (1 to 255 bytes)",
                size,
                limit: NAME_BYTES_MAX,
            });
        }
        Ok(match self {
            Handle::Wip(engine) => Keyspace::Wip(engine.create_keyspace(name)?),
            Handle::Flex(engine) => Keyspace::Flex(engine.create_keyspace(name)?),
            Handle::Scmkv(engine) => Keyspace::Scmkv(engine.create_keyspace(name)?),
            Handle::Sptree(engine) => Keyspace::Sptree(engine.create_keyspace(name)?),
        })
    }

    pub(crate) fn find_keyspace(&self, name: &str) -> Option<Keyspace> {
        match self {
            Handle::Wip(engine) => engine.keyspaces.find(name).map(Keyspace::Wip),
            Handle::Flex(engine) => engine.keyspaces.find(name).map(Keyspace::Flex),
            Handle::Scmkv(engine) => engine.keyspaces.find(name).map(Keyspace::Scmkv),
            Handle::Sptree(engine) => engine.keyspaces.find(name).map(Keyspace::Sptree),
        }
    }

    /// The names of all keyspaces, in the order in which they were made.
    pub(crate) fn keyspace_names(&self) -> Vec<String> {
        each!(self, engine => engine.keyspaces.names())
    }

    /// Drops the keyspace of that name, durably; false when there is none.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.health().check_here()?;
        match self {
            Handle::Wip(engine) => engine.drop_keyspace(name),
            Handle::Flex(engine) => engine.drop_keyspace(name),
            Handle::Scmkv(_) | Handle::Sptree(_) => Err(Error::Unsupported {
                engine: self.engine().name(),
                operation: "drops of keyspaces; delete their keys instead",
            }),
        }
    }

    /// Performs a write of so many bytes of keys and values, at a durability.
    #[inline]
    pub(crate) fn write(
        &self,
        write: Write<'_>,
        user_bytes: u64,
        durability: Durability,
    ) -> Result<()> {
        write.prefetch();
        let sync = durability.is_sync();
        match self {
            Handle::Wip(engine) => {
                engine.write(write.with_keyspace(Keyspace::wip), user_bytes, sync)?;
                engine.promise(durability);
                Ok(())
            }
            Handle::Flex(engine) => {
                engine.write(write.with_keyspace(Keyspace::flex), user_bytes, sync)?;
                engine.promise(durability);
                Ok(())
            }
            Handle::Scmkv(engine) => {
                engine.write(write.with_keyspace(Keyspace::mapped), user_bytes, sync)?;
                engine.promise(durability);
                Ok(())
            }
            Handle::Sptree(engine) => {
                engine.write(write.with_keyspace(Keyspace::mapped), user_bytes, sync)?;
                engine.promise(durability);
                Ok(())
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
        each_with!(self, keyspace, engine => {
            engine.health.check_open()?;
            engine.get(keyspace, key, snapshot)
        })
    }

    /// The values of several keys at a registered number.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
        snapshot: Seq,
    ) -> Result<Vec<Option<Slice>>> {
        each_with!(self, keyspace, engine => {
            engine.health.check_open()?;
            engine.multi_get(keyspace, keys, snapshot)
        })
    }

    /// The values of several keys now, if the engine has no snapshots to read them from.
    pub(crate) fn multi_get_now<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Option<Result<Vec<Option<Slice>>>> {
        match (self, keyspace) {
            (Handle::Scmkv(engine), Keyspace::Scmkv(keyspace)) => {
                Some(engine.multi_get_now(keyspace, keys))
            }
            (Handle::Sptree(engine), Keyspace::Sptree(keyspace)) => {
                Some(engine.multi_get_now(keyspace, keys))
            }
            _ => None,
        }
    }

    /// A walk through all pairs of a keyspace, if the engine has no scans.
    pub(crate) fn walk(&self, keyspace: &Keyspace) -> Option<Walk> {
        match (self, keyspace) {
            (Handle::Scmkv(engine), Keyspace::Scmkv(keyspace)) => Some(engine.walk(keyspace)),
            _ => None,
        }
    }

    /// WipDB, of a store that is of it.
    pub(crate) fn wip(&self) -> &Wip {
        match self {
            Handle::Wip(engine) => engine,
            _ => foreign(),
        }
    }

    /// In a forked child, nobody reads at the number.
    pub(crate) fn begin_snapshot(&self) -> Seq {
        match self.is_here() {
            true => each!(self, engine => engine.begin_snapshot()),
            false => 0,
        }
    }

    pub(crate) fn share_snapshot(&self, seq: Seq) {
        if self.is_here() {
            each!(self, engine => engine.share_snapshot(seq));
        }
    }

    pub(crate) fn end_snapshot(&self, seq: Seq) {
        if self.is_here() {
            each!(self, engine => engine.end_snapshot(seq));
        }
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.health().check_here()?;
        each!(self, engine => engine.flush())
    }

    pub(crate) fn persist(&self, durability: Durability) -> Result<()> {
        self.health().check_here()?;
        each!(self, engine => engine.persist(durability))
    }

    /// Writes the store as it is now to an empty directory.
    pub(crate) fn checkpoint(&self, target: &Disk) -> Result<()> {
        self.health().check_here()?;
        match self {
            Handle::Wip(engine) => engine.checkpoint(target),
            Handle::Flex(engine) => engine.checkpoint(target),
            Handle::Scmkv(_) => Err(ScmStore::unsupported("checkpoints")),
            Handle::Sptree(_) => Err(SpStore::unsupported("checkpoints")),
        }
    }

    /// Begins an ingest of sorted pairs.
    pub(crate) fn ingest<'e>(&'e self, keyspace: &'e Keyspace) -> Result<wip::Ingest<'e>> {
        match (self, keyspace) {
            (Handle::Wip(engine), Keyspace::Wip(keyspace)) => engine.ingest(keyspace),
            _ => Err(Error::Unsupported {
                engine: self.engine().name(),
                operation: "ingests; write batches instead",
            }),
        }
    }

    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.health().check_here()?;
        each!(self, engine => engine.wait_idle())
    }

    /// In a forked child, that this is one.
    pub(crate) fn stats(&self) -> Stats {
        match self.health().check_here() {
            Ok(()) => each!(self, engine => engine.stats()),
            Err(forked) => Stats {
                read_only: Some(forked.to_string()),
                ..Stats::default()
            },
        }
    }

    /// `None` for an engine that does not measure it.
    pub(crate) fn reader_waits(&self) -> Option<ReaderWaits> {
        match self {
            Handle::Flex(engine) if self.is_here() => Some(engine.reader_waits()),
            _ => None,
        }
    }

    pub(crate) fn compact_range(
        &self,
        keyspace: &Keyspace,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<()> {
        self.health().check_here()?;
        each_with!(self, keyspace, engine => engine.compact_range(keyspace, lower, upper))
    }
}

/// The engine of the store on a disk; none if there is no store. An error if there is a part of
/// one.
fn engine_of(disk: &Disk) -> Result<Option<Engine>> {
    new_dir::refuse_unfinished(disk)?;
    // CURRENT comes last: other stores have files of that name.
    for engine in Engine::ALL.iter().rev() {
        if disk.exists(engine.root_name())? {
            return Ok(Some(*engine));
        }
    }
    Ok(None)
}

impl Engine {
    /// The file by which a store of the engine is known.
    fn root_name(self) -> &'static str {
        match self {
            Engine::Flex => flexdb::ROOT_NAME,
            Engine::Scmkv => names::SCMKV_ROOT,
            Engine::Sptree => names::SPTREE_ROOT,
            Engine::Wip => names::CURRENT,
        }
    }

    /// Whether a file of that name is one of a store of the engine, beside the lock.
    fn owns(self, name: &str) -> bool {
        let whole = name.strip_suffix(TEMPORARY_SUFFIX).unwrap_or(name);
        whole == self.root_name()
            || match self {
                Engine::Flex => flexdb::is_own_file(whole),
                Engine::Scmkv | Engine::Sptree => mapped::is_own_file(whole),
                Engine::Wip => is_file_of_wip(whole),
            }
    }
}

/// Whether a file of that name is one of a store of any engine.
pub(crate) fn is_file_of_store(name: &str) -> bool {
    name == LOCK || Engine::ALL.iter().any(|engine| engine.owns(name))
}

/// There is no store where one should be opened, and none is to be made.
fn no_store(disk: &Disk) -> Error {
    Error::NotAStore {
        path: disk.path().to_owned(),
        why: "the directory is empty".to_owned(),
    }
}

/// There is a store where a new one should be made.
fn store_exists(disk: &Disk) -> Error {
    Error::InvalidOption {
        option: "error_if_exists",
        why: format!("{} holds a store already", disk.path().display()),
    }
}

/// The keys of a range from the first one on and below the second one, where there is one; `None`
/// when the range holds no key.
pub(crate) fn key_range(
    (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let lower = match lower {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => successor(key),
        Bound::Unbounded => Vec::new(),
    };
    let upper = match upper {
        Bound::Included(key) => Some(successor(key)),
        Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Unbounded => None,
    };
    let holds_keys = upper.as_ref().is_none_or(|upper| lower < *upper);
    holds_keys.then_some((lower, upper))
}

/// The smallest key above `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// A scan of a store at a number whose registration it takes over.
pub(crate) fn scan(
    store: &Opened,
    keyspace: &Keyspace,
    seq: Seq,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> Scan {
    let is_open = each!(&store.engine, engine => engine.health.check_open());
    if let Err(refused) = is_open.and_then(|()| keyspace.check_at(seq)) {
        store.engine.end_snapshot(seq);
        return Scan::Refused(Some(refused));
    }
    match (&store.engine, keyspace) {
        (Handle::Wip(_), Keyspace::Wip(keyspace)) => {
            let store = Arc::clone(store.lease()) as _;
            Scan::Wip(Box::new(wip::Scan::new(store, keyspace, seq, lower, upper)))
        }
        (Handle::Flex(engine), Keyspace::Flex(keyspace)) => Scan::Flex {
            scan: Box::new(flexdb::Scan::new(engine, keyspace, seq, lower, upper)),
            _store: Arc::clone(store.lease()),
        },
        (Handle::Sptree(engine), Keyspace::Sptree(keyspace)) => Scan::Sptree {
            scan: Box::new(sptree::Scan::new(
                engine,
                keyspace,
                key_range((lower, upper)),
            )),
            _store: Arc::clone(store.lease()),
        },
        (Handle::Scmkv(_), Keyspace::Scmkv(_)) => {
            Scan::Refused(Some(ScmStore::unsupported("scans")))
        }
        _ => foreign(),
    }
}

/// As [`scan`], of a snapshot.
pub(crate) fn scan_snapshot(
    store: &Opened,
    keyspace: &Keyspace,
    seq: Seq,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> Scan {
    match scan(store, keyspace, seq, lower, upper) {
        Scan::Sptree { .. } => Scan::Refused(Some(SpStore::unsupported("snapshots"))),
        scan => scan,
    }
}

/// As the macro above, for scans.
macro_rules! each_scan {
    ($scan:expr, $own:ident => $call:expr, $none:expr) => {
        match $scan {
            Scan::Wip($own) => $call,
            Scan::Flex { scan: $own, .. } => $call,
            Scan::Sptree { scan: $own, .. } => $call,
            Scan::Refused(_) => $none,
        }
    };
}

impl Scan {
    /// Goes to the next pair; false at the end.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        self.check()?;
        each_scan!(self, scan => scan.advance(), Ok(false))
    }

    /// The next pair from the end.
    #[inline]
    pub(crate) fn next_back(&mut self) -> Result<Option<(Slice, Slice)>> {
        self.check()?;
        each_scan!(self, scan => scan.next_back(), Ok(None))
    }

    /// The error of a scan that cannot be, once.
    #[inline]
    fn check(&mut self) -> Result<()> {
        match self {
            Scan::Refused(error) => error.take().map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        each_scan!(self, scan => scan.key(), &[])
    }

    #[inline]
    pub(crate) fn value(&mut self) -> Slice {
        each_scan!(self, scan => scan.value(), Slice::new(&[]))
    }

    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        each_scan!(self, scan => scan.value_bytes(), &[])
    }
}
