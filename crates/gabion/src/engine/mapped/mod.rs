//! Engines that keep all their pairs in a pool: what is around the structure in it.
//!
//! # Idea
//! A structure of `gabion_index` keeps keys and values in a pool, which is a mapped file. Here it
//! becomes an engine: a directory with a lock, keyspaces, batches, the durabilities of the facade,
//! errors that name files. There is no log in front of it and no MemTable: a write is in the pool.
//! [`PoolStore`] says what an engine brings; `engine/scmkv` and `engine/sptree` are those that
//! there are.
//!
//! # Files
//! See `layout`: a root file, the pool, the pool's checkpoint.
//!
//! # What none of them can do
//! Old versions are not kept, so there are no snapshots, and a scan is of several moments.
//! `Engine::capabilities` says so, and who tries it gets [`Error::Unsupported`].
//!
//! # Rooms
//! | file | journey |
//! |---|---|
//! | `writepath`, `batch_gate` | a single write |
//! | `sync_promises` | the syncs of writes at `Interval` |
//! | `batch` | a batch, which is whole or absent after a crash, and for readers |
//! | `update` | a value becomes what a closure makes of it |
//! | `readpath` | gets |
//! | `recovery`, `layout` | open and close, the root and the keys |
//! | `stats`, `verify` | what there is, and whether it is sound |
//!
//! # Invariants
//! - I1. A keyspace is a number in front of its keys. All keyspaces share the pool; which there are
//!   stands in the pool, too.
//! - I2. At most one batch is being written. Until all of it is in the pool, a copy of it is, and
//!   nobody else writes (`batch_gate`, B1). A delete of a range is such a batch.
//! - I3. Whoever changes the pool or makes it durable ends before the store closes, and looks
//!   whether it is open after it passed what a close waits for: a single write or a batch the
//!   gate, all else (syncs, collections of garbage) [`Mapped::stay`]. That comes before the gate,
//!   and is held by no thread twice. The threads of the engine are joined.
//!
//! # Durability
//! | class of the pool | `Sync` | `Interval` | `Buffered` |
//! |---|---|---|---|
//! | power | flushed before it returns | at intervals what is not | as the structure does it |
//! | power by sync | a checkpoint before it returns | at intervals | at a persist or close |
//! | process | refused | as buffered | never |
//!
//! Persistent memory has the first class, an ordinary file and shared memory have the second one,
//! or the third without a checkpoint. A checkpoint holds what has changed since the last one, all
//! of it, flushed or not: so a synced write makes all that was written before it durable, by
//! whatever thread and at whatever level. Writers that come together share one. On persistent
//! memory it makes durable what its own thread has written before.
//!
//! The level is that of the write, whatever the store's (`sync_promises`).
//!
//! A close makes everything durable, if need be without space for a checkpoint (`recovery`).
//!
//! The end of the process loses nothing in any of them. After a power loss, a store on a checkpoint
//! is what it was at the last one, a prefix of the writes. On persistent memory what a write below
//! `Sync` promises is the engine's own, but a batch is never there in part.
//!
//! With a checkpoint, a read may return a value that is being made durable by another thread.
//!
//! # Recovery
//! The pool recovers itself, then the structure in it; then a batch of which a copy is there is
//! applied once more.

mod batch;
mod batch_gate;
mod layout;
mod readpath;
mod recovery;
mod stats;
mod sync_promises;
mod update;
mod verify;
mod writepath;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwapOption;
use gabion_index::index::CheckSummary;
use gabion_media::DirLock;
use gabion_media::pmem::{Pool, PoolClass, PoolOptions};
use parking_lot::Mutex;

use super::counters::Counters;
use super::health::Health;
use super::keyspaces::{KeyspaceId, KeyspaceTable};
use super::root_file::RootFile;
use super::scheduler::BackgroundScheduler;
use super::write;
use crate::expiry::ReadPoint;
use crate::{Engine, Error, Options, Result};

use batch_gate::{BatchGate, GateLanes, SharedPass};
use sync_promises::SyncPromises;

pub(super) use batch::COPY_BYTES_MAX;
pub(crate) use gabion_index::scmkv::Durability as Flushed;
pub(super) use layout::{end_of, is_own_file, key_of, remove_pool, with_key};
pub(crate) use stats::PoolStoreStats;
pub(super) use verify::check_disk;

/// What the structure in a pool can say.
pub(crate) type IndexResult<T> = std::result::Result<T, gabion_index::Error>;

/// One write, as its writer hands it in.
pub(crate) type Write<'w> = write::Write<'w, MappedKeyspace>;

/// A structure of keys and values in a pool, of which the engine is made.
///
/// All of it may be called from any thread. The engine keeps writers out where a method says so.
/// What is put is there for readers at once, and survives the end of the process.
pub(crate) trait PoolStore: Sized + Send + Sync + 'static {
    /// The engine.
    const ENGINE: Engine;

    /// The file by which a store of the engine is known.
    const ROOT: RootFile;

    /// Options of the pool; its size and its checkpoint are the engine's.
    fn pool_options() -> PoolOptions;

    /// Makes an empty structure the root of a pool.
    fn create(pool: &Pool, options: &Options) -> IndexResult<Self>;

    /// Finds the structure in a pool, and recovers it.
    fn open(pool: &Pool, options: &Options) -> IndexResult<Self>;

    /// Stores a value under a key. On persistent memory it survives the loss of power, if it is to
    /// be strict, and as the structure has it if not.
    fn put(&self, key: &[u8], value: &[u8], flushed: Flushed) -> IndexResult<()>;

    /// As a strict [`PoolStore::put`], in space that is kept back for one pair at a time: a full
    /// pool has it, too, if it could be set aside before and the last such pair was deleted. The
    /// key is not there, and below all others that ever are; nobody else writes. Key and value have
    /// up to [`COPY_BYTES_MAX`] together.
    fn put_copy(&self, key: &[u8], value: &[u8]) -> IndexResult<()>;

    /// Deletes a key, if it is there, so that this and all before it survives the loss of power.
    fn delete(&self, key: &[u8]) -> IndexResult<()>;

    /// Deletes all keys from one on and below another one, as [`PoolStore::delete`] does. Asked of
    /// ordered structures only, and nobody else writes.
    fn delete_range(&self, _lower: &[u8], _upper: &[u8]) -> IndexResult<()> {
        Err(gabion_index::Error::Damaged {
            what: "deletes of ranges, as its keys are not ordered",
            offset: 0,
        })
    }

    /// Appends the value of a key to `value`, and says whether it is there.
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> IndexResult<bool>;

    /// Makes sure that there is space for puts of so many bytes of keys and values each, as long as
    /// nobody else writes; or says that there is none.
    fn reserve(&self, pairs: &[u64]) -> IndexResult<()>;

    /// Makes everything written so far survive the loss of power, where that can be.
    fn persist(&self) -> IndexResult<()>;

    /// Ends what goes on in the background, for good. Nobody writes from here on.
    fn finish(&self) -> IndexResult<()>;

    /// Does a piece of the background's work; false if none is due.
    fn work(&self) -> IndexResult<bool>;

    /// Gives back what space can be given back, or some of it, if it is told to stop.
    fn compact(&self, stops: &dyn Fn() -> bool) -> IndexResult<()>;

    /// Reads all pairs and checks all invariants, while nobody writes.
    fn check(&self) -> IndexResult<CheckSummary>;

    /// Counts and sizes.
    fn measure(&self) -> PoolStoreStats;
}

/// A keyspace: a number in front of its keys.
pub(crate) struct MappedKeyspace {
    id: u32,
    name: String,
}

impl KeyspaceId for MappedKeyspace {
    fn id(&self) -> u32 {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// The engine. Background threads share it with the facade.
pub(crate) struct Mapped<S> {
    options: Options,
    /// What is open; none once the store is closed.
    opened: ArcSwapOption<OpenPool<S>>,
    pub(super) keyspaces: KeyspaceTable<MappedKeyspace>,
    /// Held by whoever makes a keyspace.
    making: Mutex<()>,
    gate: BatchGate,
    /// Passed by those who keep the store from closing, but single writes and batches.
    stays: GateLanes,
    schedule: BackgroundScheduler,
    /// Of writes that shall survive a loss of power within a time.
    promises: SyncPromises,
    counters: Counters,
    /// Writes since the last one that did the background's work.
    unattended: AtomicU64,
    pub(super) health: Health,
    /// Held until the store is closed.
    lock: Mutex<Option<DirLock>>,
}

/// An open pool and the structure in it.
pub(crate) struct OpenPool<S> {
    pub(super) store: S,
    pool: Pool,
    /// Why nothing can be changed: the opening found no space (`recovery`).
    shortage: Option<Error>,
}

impl<S: PoolStore> OpenPool<S> {
    /// Whether there is any way to survive the loss of power.
    fn can_sync(&self) -> bool {
        self.shortage.is_some()
            || matches!(self.pool.class(), PoolClass::Power | PoolClass::PowerBySync)
    }

    /// An error if nothing can be changed.
    #[inline]
    fn check_space(&self) -> Result<()> {
        match &self.shortage {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Makes everything written so far survive the loss of power, where that can be. What could not
    /// be changed does already if the store was closed.
    fn persist(&self) -> Result<()> {
        match &self.shortage {
            None => self.told(self.store.persist()),
            Some(_) if self.pool.was_closed() => Ok(()),
            Some(shortage) => Err(shortage.clone()),
        }
    }

    /// A result of the structure in the pool, whose error names the pool's file.
    #[inline]
    pub(super) fn told<T>(&self, result: IndexResult<T>) -> Result<T> {
        result.map_err(|error| recovery::index_error(&self.pool, error))
    }

    fn put(&self, key: &[u8], value: &[u8], flushed: Flushed) -> Result<()> {
        self.told(self.store.put(key, value, flushed))
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.told(self.store.delete(key))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        let is_there = self.told(self.store.get_into(key, &mut value))?;
        Ok(is_there.then_some(value))
    }
}

impl<S: PoolStore> Mapped<S> {
    /// What the engine cannot do.
    pub(super) fn unsupported(operation: &'static str) -> Error {
        Error::Unsupported {
            engine: S::ENGINE.name(),
            operation,
        }
    }

    /// Keeps the store from closing as long as the result is held; an error if it is closed.
    fn stay(&self) -> Result<SharedPass<'_>> {
        self.health.check_here()?;
        let pass = self.stays.pass();
        self.health.check_open()?;
        Ok(pass)
    }

    /// Does something with what is open.
    #[inline]
    pub(super) fn with<R>(&self, act: impl FnOnce(&OpenPool<S>) -> Result<R>) -> Result<R> {
        match &*self.opened.load() {
            Some(opened) => act(opened),
            None => Err(Error::Closed),
        }
    }

    /// The keyspace of that name, made durably if it does not exist.
    pub(crate) fn create_keyspace(&self, name: &str) -> Result<Arc<MappedKeyspace>> {
        if let Some(keyspace) = self.keyspaces.find(name) {
            return Ok(keyspace);
        }
        self.health.check_here()?;
        let _making = self.making.lock();
        if let Some(keyspace) = self.keyspaces.find(name) {
            return Ok(keyspace);
        }
        let id = u32::try_from(self.keyspaces.load().len()).expect("fewer than 2^32 keyspaces");
        self.with(|opened| {
            opened.check_space()?;
            let _stay = self.stay()?;
            let pass = self.gate.pass();
            self.health.check_writable()?;
            opened.put(&layout::name_key(id), name.as_bytes(), Flushed::Strict)?;
            drop(pass);
            // DURABLE: the name, before anything is in the keyspace.
            self.sync(opened)
        })?;
        let name = name.to_owned();
        let keyspace = Arc::new(MappedKeyspace { id, name });
        self.keyspaces.add(&keyspace);
        Ok(keyspace)
    }

    /// There are no snapshots: whoever reads at one is told so.
    #[expect(clippy::unused_self, reason = "as the other engines have it")]
    pub(crate) fn begin_snapshot(&self) -> ReadPoint {
        ReadPoint::default()
    }

    #[expect(clippy::unused_self, reason = "as above")]
    pub(crate) fn share_snapshot(&self, _point: ReadPoint) {}

    #[expect(clippy::unused_self, reason = "as above")]
    pub(crate) fn end_snapshot(&self, _point: ReadPoint) {}

    /// Whether it was opened for reading only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    /// Keeps the first failure that makes the store read-only, and passes the error on. A shortage
    /// is none: what failed for it may be tried again.
    fn fail(&self, error: Error) -> Error {
        if !error.is_shortage() {
            self.health.fail(&error);
        }
        error
    }
}
