//! SCMKV: pairs in logs and a hash table, in a mapped file.
//!
//! # Idea
//! [`gabion_index::Scmkv`] is a store of keys and values in a pool: logs of records, a table of
//! words that lead to them, a cleaner. Its essay says how it works and what it comes from. Here it
//! becomes an engine: a directory with a lock, keyspaces, batches, the durabilities of the facade,
//! errors that name files. There is no log in front of it and no MemTable: a write is in the pool.
//!
//! # Files
//! See `layout`: a root file, the pool, the pool's checkpoint.
//!
//! # What it cannot do
//! Keys have no order, so there are no scans and no deletes of ranges; old versions are not kept,
//! so there are no snapshots. `Engine::capabilities` says so, and who tries it gets
//! [`Error::Unsupported`].
//!
//! # Rooms
//! | file | journey |
//! |---|---|
//! | `writepath`, `gate` | a single write |
//! | `batch` | a batch, which is whole or absent after a crash, and for readers |
//! | `readpath` | gets, walks |
//! | `recovery`, `layout` | open and close, the root and the keys |
//! | `stats`, `verify` | what there is, and whether it is sound |
//!
//! # Invariants
//! - I1. A keyspace is a number in front of its keys. All keyspaces share the pool; which there are
//!   stands in the pool, too.
//! - I2. At most one batch is being written. Until all of it is in the pool, a copy of it is, and
//!   nobody else writes (`gate`, B1).
//! - I3. Writes end before the store closes: they look whether it is open after they passed the
//!   gate.
//!
//! # Durability
//! | class of the pool | `Sync` | `Interval` | `Buffered` |
//! |---|---|---|---|
//! | power | flushed before it returns | logs flushed at intervals | as pages fill |
//! | power by sync | a checkpoint before it returns | at intervals | at a persist or close |
//! | process | refused | as buffered | never |
//!
//! Persistent memory has the first class, an ordinary file and shared memory have the second one,
//! or the third without a checkpoint. A checkpoint holds what has changed since the last one;
//! writers that come together share one.
//!
//! The end of the process loses nothing in any of them. After a power loss, a store on a checkpoint
//! is what it was at the last one, a prefix of the writes. One on persistent memory that is not
//! written at `Sync` may have lost the newest writes of each log, which threads have of their own,
//! but never a part of a batch, and never a delete.
//!
//! With a checkpoint, a read may return a value that is being made durable by another thread.
//!
//! # Recovery
//! The pool recovers itself, then the store in it; then a batch of which a copy is there is applied
//! once more.

mod batch;
mod gate;
mod layout;
mod readpath;
mod recovery;
mod stats;
mod verify;
mod writepath;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwapOption;
use gabion_index::scmkv::{Durability as Flushed, Scmkv};
use gabion_media::DirLock;
use gabion_media::pmem::{Class, Pool};
use parking_lot::Mutex;

use super::counters::Counters;
use super::health::Health;
use super::keyspaces::{Keyspaces, Named};
use super::schedule::Schedule;
use super::write;
use crate::types::Seq;
use crate::{Error, Options, Result};

use gate::Gate;

pub(super) use layout::ROOT_NAME;
pub(crate) use readpath::Walk;
pub(super) use verify::check_disk;

/// The longest value, in bytes: with the longest key it fits into a page.
pub(crate) const VALUE_BYTES_MAX: u64 = 15 << 17;

/// One write, as its writer hands it in.
pub(crate) type Write<'w> = write::Write<'w, Keyspace>;

/// A keyspace: a number in front of its keys.
pub(crate) struct Keyspace {
    id: u32,
    name: String,
}

impl Named for Keyspace {
    fn id(&self) -> u32 {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// The engine. Background threads share it with the facade.
pub(crate) struct ScmStore {
    options: Options,
    /// What is open; none once the store is closed.
    opened: ArcSwapOption<Opened>,
    pub(super) keyspaces: Keyspaces<Keyspace>,
    /// Held by whoever makes a keyspace.
    making: Mutex<()>,
    gate: Gate,
    schedule: Schedule,
    counters: Counters,
    /// Writes since the last one that did the background's work.
    unattended: AtomicU64,
    pub(super) health: Health,
    /// Held until the store is closed.
    lock: Mutex<Option<DirLock>>,
}

/// An open pool and the store in it.
pub(super) struct Opened {
    store: Scmkv,
    pool: Pool,
}

/// What the engine cannot do.
pub(super) fn unsupported(operation: &'static str) -> Error {
    Error::Unsupported {
        engine: "scmkv",
        operation,
    }
}

impl Opened {
    /// Whether there is any way to survive the loss of power.
    fn can_sync(&self) -> bool {
        matches!(self.pool.class(), Class::Power | Class::PowerBySync)
    }

    /// Makes everything written so far survive the loss of power, where that can be.
    fn persist(&self) -> Result<()> {
        self.store.persist().map_err(|error| self.error(error))
    }

    /// An error of the store in the pool, with the pool's file.
    #[cold]
    fn error(&self, error: gabion_index::Error) -> Error {
        recovery::index_error(&self.pool, error)
    }

    fn put(&self, key: &[u8], value: &[u8], flushed: Flushed) -> Result<()> {
        match self.store.put_with(key, value, flushed) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        match self.store.delete(key) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.store.get(key).map_err(|error| self.error(error))
    }
}

impl ScmStore {
    /// Does something with what is open.
    #[inline]
    fn with<R>(&self, act: impl FnOnce(&Opened) -> Result<R>) -> Result<R> {
        match &*self.opened.load() {
            Some(opened) => act(opened),
            None => Err(Error::Closed),
        }
    }

    /// The keyspace of that name, made durably if it does not exist.
    pub(crate) fn create_keyspace(&self, name: &str) -> Result<Arc<Keyspace>> {
        if let Some(keyspace) = self.keyspaces.find(name) {
            return Ok(keyspace);
        }
        let _making = self.making.lock();
        if let Some(keyspace) = self.keyspaces.find(name) {
            return Ok(keyspace);
        }
        let id = u32::try_from(self.keyspaces.load().len()).expect("fewer than 2^32 keyspaces");
        self.with(|opened| {
            let pass = self.gate.pass();
            self.health.check_writable()?;
            opened.put(&layout::name_key(id), name.as_bytes(), Flushed::Strict)?;
            drop(pass);
            // DURABLE: the name, before anything is in the keyspace.
            self.sync(opened)
        })?;
        let name = name.to_owned();
        let keyspace = Arc::new(Keyspace { id, name });
        self.keyspaces.add(&keyspace);
        Ok(keyspace)
    }

    /// There are no snapshots: whoever reads at one is told so.
    #[expect(clippy::unused_self, reason = "as the other engines have it")]
    pub(crate) fn begin_snapshot(&self) -> Seq {
        0
    }

    #[expect(clippy::unused_self, reason = "as above")]
    pub(crate) fn share_snapshot(&self, _seq: Seq) {}

    #[expect(clippy::unused_self, reason = "as above")]
    pub(crate) fn end_snapshot(&self, _seq: Seq) {}

    /// Keeps the first failure that makes the store read-only, and passes the error on. A shortage
    /// is none: what failed for it may be tried again.
    fn fail(&self, error: Error) -> Error {
        if !error.is_shortage() {
            self.health.fail(&error);
        }
        error
    }
}
