//! The engines behind the facade, and which of them a store is of.
//!
//! The facade holds a store, its keyspaces and its scans as enums of the engines, so that a call
//! costs one predictable branch.
//!
//! Each engine has a folder. `ssd` is what WipDB and FlexDB have around what makes them different,
//! and `mapped` the same for SCMKV and SPTree. What engines share besides stands beside them:
//! `write` and its queue, `memtable`, `range_deletes`, `snapshots`, `keyspaces`, `scheduler`,
//! `idle_timer`, `health`, `counters`, `root_file`, `check`, `repair` and `destroy`. The mapped
//! engines are compiled with the feature `pm`; `mapped_absent` stands for them in a build without
//! it.

mod check;
mod counters;
mod destroy;
mod expiries;
mod files;
pub(crate) mod flexdb;
mod health;
mod idle_timer;
mod keyspaces;
mod live_options;
#[cfg(feature = "pm")]
mod mapped;
#[cfg(not(feature = "pm"))]
mod mapped_absent;
pub(crate) mod memtable;
pub(crate) mod open_store;
mod persistent_list;
mod range_deletes;
mod read_set;
mod repair;
pub(crate) mod root_file;
mod scan;
mod scheduler;
#[cfg(feature = "pm")]
pub(crate) mod scmkv;
mod snapshots;
#[cfg(feature = "pm")]
pub(crate) mod sptree;
mod ssd;
pub(crate) mod wip;
mod write;

use std::sync::Arc;
use std::time::Duration;

use gabion_flex::ReaderWaits;
use gabion_media::Disk;

use crate::backup::source::BackupSource;
use crate::capabilities::Engine;
use crate::expiry::{ReadPoint, StoredRecord, UnixMillis};
use crate::limits::NAME_BYTES_MAX;
use crate::memory::TableMemory;
use crate::merge::MergeOperator;
use crate::options::{Durability, Options};
use crate::position::Position;
use crate::types::Seq;
use crate::{Error, KeyspaceOptions, Result, Slice, Stats, log};

use files::engine_of;
use flexdb::Flex;
use health::Health;
use keyspaces::{DroppableKeyspace, KeyspaceId};
#[cfg(not(feature = "pm"))]
use mapped_absent::{mapped, scmkv, sptree};
use ssd::{CommitWrites, ConsumerStore, FeedSource, Lifecycle, SsdEngine};
use wip::Wip;
use write::Update;

pub(crate) use files::is_file_of_store;
pub(crate) use read_set::{ReadMark, ReadSet};
pub(crate) use scan::{EngineScan, scan, scan_snapshot, walk};
pub(crate) use scmkv::{ScmStore, Walk};
pub(crate) use sptree::SpStore;
pub(crate) use ssd::{ChangeFeed, ConsumerState, FeedItem, OpenTransaction, wait_for};
pub(crate) use write::UpdateOutcome;

pub use check::{CheckReport, Problem, check, check_disk};
pub use destroy::{destroy, destroy_disk};
pub use repair::{LostEntries, RepairReport, repair, repair_disk};

/// An open store of one of the engines.
#[derive(Clone)]
pub(crate) enum EngineHandle {
    Wip(Arc<Wip>),
    Flex(Arc<Flex>),
    Scmkv(Arc<ScmStore>),
    Sptree(Arc<SpStore>),
}

/// A keyspace of a store.
#[derive(Clone)]
pub(crate) enum EngineKeyspace {
    Wip(Arc<wip::WipKeyspace>),
    Flex(Arc<flexdb::FlexKeyspace>),
    Scmkv(Arc<mapped::MappedKeyspace>),
    Sptree(Arc<mapped::MappedKeyspace>),
}

/// One write, as the facade hands it in.
pub(crate) type Write<'w> = write::Write<'w, EngineKeyspace>;

/// All engines do the same thing, each in its way.
macro_rules! each {
    ($handle:expr, $engine:ident => $call:expr) => {
        match $handle {
            EngineHandle::Wip($engine) => $call,
            EngineHandle::Flex($engine) => $call,
            EngineHandle::Scmkv($engine) => $call,
            EngineHandle::Sptree($engine) => $call,
        }
    };
}

/// Engines that keep a log do the same thing; others have no changes to tell.
macro_rules! each_logged {
    ($handle:expr, $engine:ident => $call:expr) => {
        match $handle {
            EngineHandle::Wip($engine) => $call,
            EngineHandle::Flex($engine) => $call,
            EngineHandle::Scmkv(_) => Err(ScmStore::unsupported("changes and consumers")),
            EngineHandle::Sptree(_) => Err(SpStore::unsupported("changes and consumers")),
        }
    };
}

/// As the first macro above, with a keyspace of the store.
macro_rules! each_with {
    ($handle:expr, $keyspace:ident, $engine:ident => $call:expr) => {
        match ($handle, $keyspace) {
            (EngineHandle::Wip($engine), EngineKeyspace::Wip($keyspace)) => $call,
            (EngineHandle::Flex($engine), EngineKeyspace::Flex($keyspace)) => $call,
            (EngineHandle::Scmkv($engine), EngineKeyspace::Scmkv($keyspace)) => $call,
            (EngineHandle::Sptree($engine), EngineKeyspace::Sptree($keyspace)) => $call,
            _ => foreign(),
        }
    };
}

/// Puts the payloads of records behind the log of a store of an engine that nobody has open, as if
/// the store had written them before it was closed.
pub(crate) fn extend_log<'r>(
    engine: Engine,
    disk: &Disk,
    records: impl Iterator<Item = &'r [u8]>,
) -> Result<()> {
    let (from, sealed) = match engine {
        Engine::Wip => wip::log_place(disk)?,
        Engine::Flex => flexdb::log_place(disk)?,
        Engine::Scmkv | Engine::Sptree => {
            return Err(Error::Unsupported {
                engine: engine.name(),
                operation: "logs of single writes",
            });
        }
    };
    log::extend(disk, from, &sealed, records)
}

/// A keyspace that another store's engine made.
#[cold]
pub(crate) fn foreign() -> ! {
    panic!("the keyspace belongs to another store")
}

impl EngineKeyspace {
    pub(crate) fn id(&self) -> u32 {
        match self {
            EngineKeyspace::Wip(keyspace) => keyspace.id(),
            EngineKeyspace::Flex(keyspace) => keyspace.id(),
            EngineKeyspace::Scmkv(keyspace) | EngineKeyspace::Sptree(keyspace) => keyspace.id(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            EngineKeyspace::Wip(keyspace) => keyspace.name(),
            EngineKeyspace::Flex(keyspace) => keyspace.name(),
            EngineKeyspace::Scmkv(keyspace) | EngineKeyspace::Sptree(keyspace) => keyspace.name(),
        }
    }

    /// Its options.
    pub(crate) fn options(&self) -> KeyspaceOptions {
        match self {
            EngineKeyspace::Wip(keyspace) => KeyspaceOptions::clone(&keyspace.own_options().get()),
            EngineKeyspace::Flex(keyspace) => KeyspaceOptions::clone(&keyspace.own_options().get()),
            EngineKeyspace::Scmkv(_) | EngineKeyspace::Sptree(_) => KeyspaceOptions::default(),
        }
    }

    /// How long after a put its value expires, if the put says nothing.
    #[inline]
    pub(crate) fn default_expiry(&self) -> Option<Duration> {
        match self {
            EngineKeyspace::Wip(keyspace) => keyspace.own_options().default_expiry(),
            EngineKeyspace::Flex(keyspace) => keyspace.own_options().default_expiry(),
            EngineKeyspace::Scmkv(_) | EngineKeyspace::Sptree(_) => None,
        }
    }

    /// What merged operands mean, if the engine merges any.
    pub(crate) fn merge_operator(&self) -> Option<MergeOperator> {
        match self {
            EngineKeyspace::Wip(keyspace) => keyspace.own_options().merge_operator(),
            EngineKeyspace::Flex(keyspace) => keyspace.own_options().merge_operator(),
            EngineKeyspace::Scmkv(_) | EngineKeyspace::Sptree(_) => None,
        }
    }

    /// An error if the keyspace was dropped, for those who read at `seq`.
    fn check_at(&self, seq: Seq) -> Result<()> {
        match self {
            EngineKeyspace::Wip(keyspace) => keyspace.dropped.check_at(seq),
            EngineKeyspace::Flex(keyspace) => keyspace.dropped.check_at(seq),
            EngineKeyspace::Scmkv(_) | EngineKeyspace::Sptree(_) => Ok(()),
        }
    }

    #[inline]
    fn wip(&self) -> &wip::WipKeyspace {
        match self {
            EngineKeyspace::Wip(keyspace) => keyspace,
            _ => foreign(),
        }
    }

    #[inline]
    fn flex(&self) -> &flexdb::FlexKeyspace {
        match self {
            EngineKeyspace::Flex(keyspace) => keyspace,
            _ => foreign(),
        }
    }

    #[inline]
    fn mapped(&self) -> &mapped::MappedKeyspace {
        match self {
            EngineKeyspace::Scmkv(keyspace) | EngineKeyspace::Sptree(keyspace) => keyspace,
            _ => foreign(),
        }
    }
}

impl EngineHandle {
    /// Opens the store on a disk with the engine that made it, or makes one with the options'.
    pub(crate) fn open(disk: Disk, options: Options) -> Result<EngineHandle> {
        let engine = engine_of(&disk)?.unwrap_or(options.engine);
        EngineHandle::open_with(engine, disk, options)
    }

    /// Opens a store that the caller is making, though its directory is marked as incomplete.
    pub(crate) fn open_unfinished(disk: Disk, options: Options) -> Result<EngineHandle> {
        EngineHandle::open_with(options.engine, disk, options)
    }

    fn open_with(engine: Engine, disk: Disk, options: Options) -> Result<EngineHandle> {
        if options.follower && !engine.capabilities().followers {
            return Err(Error::Unsupported {
                engine: engine.name(),
                operation: "followers; open the store read-only while no other process writes to \
                            it",
            });
        }
        Ok(match engine {
            Engine::Wip if options.follower => EngineHandle::Wip(Wip::follow(disk, options)?),
            Engine::Wip => EngineHandle::Wip(Wip::open(disk, options)?),
            Engine::Flex => EngineHandle::Flex(Flex::open(disk, options)?),
            Engine::Scmkv => EngineHandle::Scmkv(ScmStore::open(disk, options)?),
            Engine::Sptree => EngineHandle::Sptree(SpStore::open(disk, options)?),
        })
    }

    /// Which of the engines it is.
    pub(crate) fn engine(&self) -> Engine {
        match self {
            EngineHandle::Wip(_) => Engine::Wip,
            EngineHandle::Flex(_) => Engine::Flex,
            EngineHandle::Scmkv(_) => Engine::Scmkv,
            EngineHandle::Sptree(_) => Engine::Sptree,
        }
    }

    /// Whether it was opened for reading only.
    fn is_read_only(&self) -> bool {
        match self {
            EngineHandle::Wip(engine) => engine.disk.is_read_only(),
            EngineHandle::Flex(engine) => engine.disk.is_read_only(),
            EngineHandle::Scmkv(engine) => engine.is_read_only(),
            EngineHandle::Sptree(engine) => engine.is_read_only(),
        }
    }

    fn health(&self) -> &Health {
        each!(self, engine => &engine.health)
    }

    fn check_open(&self) -> Result<()> {
        self.health().check_open()
    }

    /// Whether the store is this process's, and not its parent's.
    #[inline]
    fn is_here(&self) -> bool {
        self.health().is_here()
    }

    /// As [`EngineHandle::is_here`], for who closes the store; tells a child, too, that was made
    /// without the system's library.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.health().is_of_this_process()
    }

    pub(crate) fn close(&self) -> Result<()> {
        match self.is_of_this_process() {
            true => each!(self, engine => engine.close()),
            false => Err(self.health().forked()),
        }
    }

    /// The keyspace of that name, made durably if it does not exist; with these options from now
    /// on, if they are given.
    pub(crate) fn create_keyspace(
        &self,
        name: &str,
        options: Option<&KeyspaceOptions>,
    ) -> Result<EngineKeyspace> {
        let size = name.len() as u64;
        if !(1..=NAME_BYTES_MAX).contains(&size) {
            return Err(Error::Limit {
                what: "name of a keyspace (1 to 255 bytes)",
                size,
                limit: NAME_BYTES_MAX,
            });
        }
        if let Some(options) = options {
            options.check_for(self.engine())?;
        }
        Ok(match self {
            EngineHandle::Wip(engine) => EngineKeyspace::Wip(engine.keyspace_with(name, options)?),
            EngineHandle::Flex(engine) => {
                EngineKeyspace::Flex(engine.keyspace_with(name, options)?)
            }
            EngineHandle::Scmkv(engine) => EngineKeyspace::Scmkv(engine.create_keyspace(name)?),
            EngineHandle::Sptree(engine) => EngineKeyspace::Sptree(engine.create_keyspace(name)?),
        })
    }

    pub(crate) fn find_keyspace(&self, name: &str) -> Option<EngineKeyspace> {
        match self {
            EngineHandle::Wip(engine) => engine.keyspaces.find(name).map(EngineKeyspace::Wip),
            EngineHandle::Flex(engine) => engine.keyspaces.find(name).map(EngineKeyspace::Flex),
            EngineHandle::Scmkv(engine) => engine.keyspaces.find(name).map(EngineKeyspace::Scmkv),
            EngineHandle::Sptree(engine) => engine.keyspaces.find(name).map(EngineKeyspace::Sptree),
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
            EngineHandle::Wip(engine) => engine.drop_keyspace(name),
            EngineHandle::Flex(engine) => engine.drop_keyspace(name),
            EngineHandle::Scmkv(_) | EngineHandle::Sptree(_) => Err(Error::Unsupported {
                engine: self.engine().name(),
                operation: "dropping keyspaces; delete the keys instead",
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
            EngineHandle::Wip(engine) => {
                engine.write(write.with_keyspace(EngineKeyspace::wip), user_bytes, sync)?;
                engine.promise(durability);
                Ok(())
            }
            EngineHandle::Flex(engine) => {
                engine.write(write.with_keyspace(EngineKeyspace::flex), user_bytes, sync)?;
                engine.promise(durability);
                Ok(())
            }
            EngineHandle::Scmkv(engine) => {
                engine.write(
                    write.with_keyspace(EngineKeyspace::mapped),
                    user_bytes,
                    sync,
                )?;
                engine.promise(durability);
                Ok(())
            }
            EngineHandle::Sptree(engine) => {
                engine.write(
                    write.with_keyspace(EngineKeyspace::mapped),
                    user_bytes,
                    sync,
                )?;
                engine.promise(durability);
                Ok(())
            }
        }
    }

    /// Changes the record of a key to what `change` makes of it; returns the one that it had.
    pub(crate) fn update(
        &self,
        keyspace: &EngineKeyspace,
        key: &[u8],
        change: Update<'_>,
        durability: Durability,
    ) -> Result<Option<StoredRecord>> {
        self.health().check_here()?;
        each_with!(self, keyspace, engine => {
            let old = engine.update(keyspace, key, change, durability.is_sync())?;
            engine.promise(durability);
            Ok(old)
        })
    }

    /// Begins a transaction, if the engine has them.
    pub(crate) fn begin_transaction(&self) -> Result<Arc<OpenTransaction>> {
        self.check_open()?;
        match self {
            EngineHandle::Wip(engine) => Ok(engine.begin_transaction()),
            EngineHandle::Flex(engine) => Ok(engine.begin_transaction()),
            EngineHandle::Scmkv(_) => Err(ScmStore::unsupported("transactions; use updates")),
            EngineHandle::Sptree(_) => Err(SpStore::unsupported("transactions; use updates")),
        }
    }

    /// Ends one, committed or not.
    pub(crate) fn end_transaction(&self, transaction: &Arc<OpenTransaction>) {
        match self {
            EngineHandle::Wip(engine) if self.is_here() => engine.end_transaction(transaction),
            EngineHandle::Flex(engine) if self.is_here() => engine.end_transaction(transaction),
            _ => {}
        }
    }

    /// Counts so many bytes of memory that the store's users hold, below its ceiling, until the
    /// result is dropped; `None` for an engine without a ceiling.
    pub(crate) fn charge_memory(&self) -> Option<TableMemory> {
        match self {
            EngineHandle::Wip(engine) => Some(engine.charge_memory()),
            EngineHandle::Flex(engine) => Some(engine.charge_memory()),
            EngineHandle::Scmkv(_) | EngineHandle::Sptree(_) => None,
        }
    }

    /// The value of a key, now or at a registered point.
    #[inline]
    pub(crate) fn get(
        &self,
        keyspace: &EngineKeyspace,
        key: &[u8],
        snapshot: Option<ReadPoint>,
    ) -> Result<Option<Slice>> {
        each_with!(self, keyspace, engine => {
            engine.health.check_open()?;
            engine.get(keyspace, key, snapshot)
        })
    }

    /// The record of a key, now or at a registered point. For engines in which records expire.
    pub(crate) fn find_record(
        &self,
        keyspace: &EngineKeyspace,
        key: &[u8],
        snapshot: Option<ReadPoint>,
    ) -> Result<Option<StoredRecord>> {
        self.check_open()?;
        match (self, keyspace) {
            (EngineHandle::Wip(engine), EngineKeyspace::Wip(keyspace)) => {
                engine.find_record(keyspace, key, snapshot)
            }
            (EngineHandle::Flex(engine), EngineKeyspace::Flex(keyspace)) => {
                engine.find_record(keyspace, key, snapshot)
            }
            _ => Err(self.no_expiry()),
        }
    }

    /// This moment, for what expires; an error of an engine in which nothing does.
    pub(crate) fn moment(&self) -> Result<UnixMillis> {
        match self {
            EngineHandle::Wip(engine) => Ok(engine.moments.now()),
            EngineHandle::Flex(engine) => Ok(engine.moments.now()),
            EngineHandle::Scmkv(_) | EngineHandle::Sptree(_) => Err(self.no_expiry()),
        }
    }

    fn no_expiry(&self) -> Error {
        Error::Unsupported {
            engine: self.engine().name(),
            operation: "records that expire",
        }
    }

    /// The values of several keys at a registered point.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &EngineKeyspace,
        keys: &[K],
        snapshot: ReadPoint,
    ) -> Result<Vec<Option<Slice>>> {
        each_with!(self, keyspace, engine => {
            engine.health.check_open()?;
            engine.multi_get(keyspace, keys, snapshot)
        })
    }

    /// The values of several keys now, if the engine has no snapshots to read them from.
    pub(crate) fn multi_get_now<K: AsRef<[u8]>>(
        &self,
        keyspace: &EngineKeyspace,
        keys: &[K],
    ) -> Option<Result<Vec<Option<Slice>>>> {
        match (self, keyspace) {
            (EngineHandle::Scmkv(engine), EngineKeyspace::Scmkv(keyspace)) => {
                Some(engine.multi_get_now(keyspace, keys))
            }
            (EngineHandle::Sptree(engine), EngineKeyspace::Sptree(keyspace)) => {
                Some(engine.multi_get_now(keyspace, keys))
            }
            _ => None,
        }
    }

    /// In a forked child, nobody reads at the point.
    pub(crate) fn begin_snapshot(&self) -> ReadPoint {
        match self.is_here() {
            true => each!(self, engine => engine.begin_snapshot()),
            false => ReadPoint::default(),
        }
    }

    pub(crate) fn share_snapshot(&self, point: ReadPoint) {
        if self.is_here() {
            each!(self, engine => engine.share_snapshot(point));
        }
    }

    pub(crate) fn end_snapshot(&self, point: ReadPoint) {
        if self.is_here() {
            each!(self, engine => engine.end_snapshot(point));
        }
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.health().check_here()?;
        each!(self, engine => engine.flush())
    }

    pub(crate) fn persist(&self, durability: Durability) -> Result<()> {
        self.health().check_here()?;
        if self.is_read_only() {
            return Ok(());
        }
        each!(self, engine => engine.persist(durability))
    }

    /// Writes the store as it is now to an empty directory.
    pub(crate) fn checkpoint(&self, target: &Disk) -> Result<()> {
        self.check_copies("checkpoints of a store that was opened read-only")?;
        match self {
            EngineHandle::Wip(engine) => engine.checkpoint(target),
            EngineHandle::Flex(engine) => engine.checkpoint(target),
            EngineHandle::Scmkv(_) => Err(ScmStore::unsupported("checkpoints")),
            EngineHandle::Sptree(_) => Err(SpStore::unsupported("checkpoints")),
        }
    }

    /// The store as it is now, for a backup; files that are written for it go to `staging`.
    /// `is_continued` says that what is logged later will be put behind it; the caller flushes then
    /// before the backup counts.
    pub(crate) fn backup(&self, staging: &Disk, is_continued: bool) -> Result<BackupSource> {
        self.check_copies("backups of a store that was opened read-only")?;
        match self {
            EngineHandle::Wip(engine) => engine.backup(staging, is_continued),
            EngineHandle::Flex(engine) => engine.backup(staging),
            EngineHandle::Scmkv(_) => Err(ScmStore::unsupported("backups")),
            EngineHandle::Sptree(_) => Err(SpStore::unsupported("backups")),
        }
    }

    /// An error where no log is archived.
    pub(crate) fn check_archive(&self) -> Result<()> {
        self.check_copies("archives of the log of a store that was opened for reading only")?;
        match self {
            EngineHandle::Wip(_) | EngineHandle::Flex(_) => Ok(()),
            EngineHandle::Scmkv(_) => Err(ScmStore::unsupported("backups")),
            EngineHandle::Sptree(_) => Err(SpStore::unsupported("backups")),
        }
    }

    /// An error where no copies are made: in a fork, and of a store that was opened for reading.
    fn check_copies(&self, operation: &'static str) -> Result<()> {
        self.health().check_here()?;
        match self.is_read_only() {
            false => Ok(()),
            true => Err(Error::Unsupported {
                engine: self.engine().name(),
                operation,
            }),
        }
    }

    /// Reads what another process has written since.
    pub(crate) fn catch_up(&self) -> Result<bool> {
        self.health().check_here()?;
        match self {
            EngineHandle::Wip(engine) => engine.catch_up(),
            EngineHandle::Flex(_) | EngineHandle::Scmkv(_) | EngineHandle::Sptree(_) => Ok(false),
        }
    }

    /// Reads what was written from a position on.
    pub(crate) fn feed(&self, since: Position, durable_only: bool) -> Result<ChangeFeed> {
        self.check_open()?;
        each_logged!(self, engine => Ok(engine.feed(since, durable_only)))
    }

    /// What comes next in a feed, if there is something, as `read` reads it.
    pub(crate) fn feed_next<T>(
        &self,
        feed: &mut ChangeFeed,
        read: impl FnOnce(FeedItem<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let fed = each_logged!(self, engine => feed.next(engine))?;
        fed.map(read).transpose()
    }

    /// The next record in a feed, as [`EngineHandle::feed_next`]; with those of events that are no
    /// changes.
    pub(crate) fn feed_next_record<T>(
        &self,
        feed: &mut ChangeFeed,
        read: impl FnOnce(FeedItem<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let fed = each_logged!(self, engine => feed.next_record(engine))?;
        fed.map(read).transpose()
    }

    /// The name of the keyspace of that number, if it is there.
    pub(crate) fn keyspace_name(&self, id: u32) -> Option<Arc<str>> {
        match self {
            EngineHandle::Wip(engine) => engine.keyspaces.name_of(id),
            EngineHandle::Flex(engine) => engine.keyspaces.name_of(id),
            EngineHandle::Scmkv(_) | EngineHandle::Sptree(_) => None,
        }
    }

    /// The keyspace of that number, if it is there and was not dropped.
    pub(crate) fn live_keyspace(&self, id: u32) -> Option<EngineKeyspace> {
        match self {
            EngineHandle::Wip(engine) => {
                let keyspaces = engine.keyspaces.load();
                keyspaces.live(id).cloned().map(EngineKeyspace::Wip)
            }
            EngineHandle::Flex(engine) => {
                let keyspaces = engine.keyspaces.load();
                keyspaces.live(id).cloned().map(EngineKeyspace::Flex)
            }
            EngineHandle::Scmkv(_) | EngineHandle::Sptree(_) => None,
        }
    }

    /// A number above those of all keyspaces that are there.
    pub(crate) fn keyspaces_end(&self) -> u32 {
        let last = match self {
            EngineHandle::Wip(engine) => engine.keyspaces.load().iter().last().map(|own| own.id),
            EngineHandle::Flex(engine) => engine.keyspaces.load().iter().last().map(|own| own.id),
            EngineHandle::Scmkv(_) | EngineHandle::Sptree(_) => None,
        };
        last.map_or(0, |last| last + 1)
    }

    /// Where the store is now.
    pub(crate) fn position(&self) -> Result<Position> {
        each_logged!(self, engine => engine.position())
    }

    /// Where the oldest changes begin that are there.
    pub(crate) fn oldest_position(&self) -> Result<Position> {
        self.check_open()?;
        each_logged!(self, engine => engine.oldest_position())
    }

    /// Makes a consumer, if there is none of that name.
    pub(crate) fn consumer(&self, name: &str) -> Result<Position> {
        self.health().check_here()?;
        each_logged!(self, engine => engine.consumer(name))
    }

    /// Where a consumer stands.
    pub(crate) fn consumer_position(&self, name: &str) -> Result<Position> {
        each_logged!(self, engine => engine.consumer_position(name))
    }

    /// All consumers.
    pub(crate) fn consumer_states(&self) -> Result<Vec<ConsumerState>> {
        self.check_open()?;
        each_logged!(self, engine => Ok(engine.consumer_states()))
    }

    /// A consumer has come to a position.
    pub(crate) fn acknowledge(&self, name: &str, position: Position) -> Result<()> {
        self.health().check_here()?;
        each_logged!(self, engine => engine.acknowledge(name, position))
    }

    /// Forgets a consumer.
    pub(crate) fn drop_consumer(&self, name: &str) -> Result<()> {
        self.health().check_here()?;
        each_logged!(self, engine => engine.drop_consumer(name))
    }

    /// Begins an ingest of sorted pairs.
    pub(crate) fn ingest<'e>(&'e self, keyspace: &'e EngineKeyspace) -> Result<wip::WipIngest<'e>> {
        match (self, keyspace) {
            (EngineHandle::Wip(engine), EngineKeyspace::Wip(keyspace)) => engine.ingest(keyspace),
            _ => Err(Error::Unsupported {
                engine: self.engine().name(),
                operation: "ingests; write batches instead",
            }),
        }
    }

    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.health().check_here()?;
        if self.is_read_only() {
            return Ok(());
        }
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
            EngineHandle::Flex(engine) if self.is_here() => Some(engine.reader_waits()),
            _ => None,
        }
    }

    pub(crate) fn compact_range(
        &self,
        keyspace: &EngineKeyspace,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<()> {
        self.health().check_here()?;
        each_with!(self, keyspace, engine => engine.compact_range(keyspace, lower, upper))
    }
}
