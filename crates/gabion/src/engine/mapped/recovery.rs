//! Opening and closing a store.
//!
//! # Open
//! 1. Lock the directory. Read the root, or make a store.
//! 2. Open the pool, which its checkpoint may have to stand in for, and the store in it.
//! 3. Apply the batch that was being written, if there is one.
//! 4. Read the names of the keyspaces. Start the threads.
//!
//! # Making a store
//! The root says first that a store is being made, then that it is: what an interruption leaves is
//! removed by the next opening, which makes the store anew. Only a pool that was not there before
//! is ever removed.
//!
//! # Close
//! Stop the threads, wait for those who stay and keep writers out. Close the store in the pool,
//! then the pool. Its file is released when the last reader has left.
//!
//! # Without space
//! A close whose checkpoint finds no space makes the pool's own file durable, where that survives
//! as much (`Pool::close`). The next opening makes the checkpoint before it changes anything; if
//! there is still no space, the store is *looked at*: its pool is mapped so that nothing of the
//! file changes, reads go on, and writes are refused for want of space until the store is opened
//! again. A store that is opened for reading only is looked at, too, by any number of processes. So
//! nothing that was closed can be lost to a power failure.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwapOption;
use gabion_media::Disk;
use gabion_media::pmem::{Pool, PoolOptions};
use parking_lot::Mutex;

use super::batch_gate::{BatchGate, GateLanes};
use super::layout::{CHECKPOINT_NAME, POOL_NAME, Root, name_key};
use super::sync_promises::SyncPromises;
use super::{Mapped, MappedKeyspace, OpenPool, PoolStore};
use crate::engine::counters::Counters;
use crate::engine::health::Health;
use crate::engine::keyspaces::KeyspaceTable;
use crate::engine::root_file::{RootFile, no_store, store_exists};
use crate::engine::scheduler::BackgroundScheduler;
use crate::names::LOCK;
use crate::options::Durability;
use crate::{Error, Options, Result};

/// Bytes of a line of a chain.
const LINE_BYTES: u64 = 64;

/// Times that a close gives way to readers who have not left.
const PATIENCE: u32 = 1000;

impl<S: PoolStore> Mapped<S> {
    /// Opens the store on `disk`, recovering it if need be, and starts its threads.
    pub(crate) fn open(disk: Disk, options: Options) -> Result<Arc<Self>> {
        if !disk.path().is_dir() {
            return Err(Self::unsupported(
                "disks other than a directory of the system",
            ));
        }
        // Nothing is left behind where no store is to be made, not even the lock file.
        let exists = S::ROOT.exists(&disk)? && is_made(&disk, &S::ROOT);
        if !exists && !options.create_if_missing {
            return Err(no_store(&disk));
        }
        if exists && options.error_if_exists {
            return Err(store_exists(&disk));
        }
        let lock = match disk.is_read_only() {
            true => disk.lock_shared(LOCK)?,
            false => disk.lock(LOCK)?,
        };
        let opened = match Root::read(&disk, &S::ROOT) {
            Ok(root) if root.is_made && options.error_if_exists => return Err(store_exists(&disk)),
            Ok(root) if root.is_made => open_pool::<S>(&disk, &root, &options)?,
            Ok(_) if disk.is_read_only() => return Err(no_store(&disk)),
            Ok(root) => {
                Pool::remove(&root.pool_path(&disk))?;
                Pool::remove(&disk.path_of(CHECKPOINT_NAME))?;
                make_pool(&disk, root, &options)?
            }
            Err(Error::Media(error)) if error.is_not_found() => make(&disk, &options)?,
            Err(error) => return Err(error),
        };
        if options.durability == Durability::Sync && !opened.can_sync() {
            return Err(Error::InvalidOption {
                option: "durability",
                why: format!(
                    "{} has no checkpoint and does not survive a power loss; use \
                     Durability::Buffered",
                    opened.pool.path().display()
                ),
            });
        }
        let engine = Arc::new(Mapped {
            options,
            opened: ArcSwapOption::empty(),
            keyspaces: KeyspaceTable::new(Vec::new()),
            making: Mutex::new(()),
            gate: BatchGate::default(),
            stays: GateLanes::default(),
            schedule: BackgroundScheduler::default(),
            promises: SyncPromises::default(),
            counters: Counters::default(),
            unattended: AtomicU64::new(0),
            health: Health::default(),
            lock: Mutex::new(Some(lock)),
        });
        engine.recover_batch(&opened)?;
        for id in 0.. {
            let Some(name) = opened.get(&name_key(id))? else {
                break;
            };
            engine.keyspaces.add(&Arc::new(MappedKeyspace {
                id,
                name: String::from_utf8_lossy(&name).into_owned(),
            }));
        }
        engine.opened.store(Some(Arc::new(opened)));
        // Those that were started hold the store.
        let started = engine.start_threads();
        started.inspect_err(|_| drop(engine.close()))?;
        Ok(engine)
    }

    /// Starts the thread that syncs, where that can be: it sleeps until a write is promised a sync.
    fn start_threads(self: &Arc<Self>) -> Result<()> {
        let syncs = self.with(|opened| Ok(opened.shortage.is_none() && opened.can_sync()))?;
        if !syncs {
            return Ok(());
        }
        let fail = |engine: &Self, error| drop(engine.fail(error));
        self.schedule
            .spawn("gabion-sync", self, Self::keep_promises, fail)
    }

    /// Closes the store; a second call does nothing.
    pub(crate) fn close(&self) -> Result<()> {
        if !self.health.close() {
            return Ok(());
        }
        self.promises.stop();
        self.schedule.stop();
        let alone = (self.stays.close(), self.gate.close());
        let Some(opened) = self.opened.swap(None) else {
            return Ok(());
        };
        // Whoever passes from here on finds that the store is closed (I3).
        drop(alone);
        let finished = opened.told(opened.store.finish());
        // DURABLE: everything that was written.
        let closed = finished.and_then(|()| Ok(opened.pool.clone().close()?));
        release(opened);
        self.lock.lock().take();
        match self.health.failure() {
            Some(_) => self.health.check(),
            None => closed,
        }
    }
}

/// Lets go of a pool, so that its file is free for the next opener. A reader that takes long, such
/// as a walk, keeps it.
fn release<S>(mut opened: Arc<OpenPool<S>>) {
    for _ in 0..PATIENCE {
        opened = match Arc::try_unwrap(opened) {
            Ok(_) => return,
            Err(opened) => opened,
        };
        std::thread::yield_now();
    }
}

/// Whether a store is whole, or too damaged to tell. Of one that is not, as making it was
/// interrupted, nothing was ever told to anybody: it is as good as none.
fn is_made(disk: &Disk, file: &RootFile) -> bool {
    Root::read(disk, file).map_or(true, |root| root.is_made)
}

fn pool_options<S: PoolStore>(options: &Options, checkpoint: Option<PathBuf>) -> PoolOptions {
    PoolOptions {
        size: options.mapped.pool_bytes,
        checkpoint,
        #[cfg(test)]
        checkpoint_disk: tests::checkpoint_disk(),
        ..S::pool_options()
    }
}

fn open_pool<S: PoolStore>(disk: &Disk, root: &Root, options: &Options) -> Result<OpenPool<S>> {
    let pool_options = pool_options::<S>(options, root.checkpoint_path(disk));
    let path = root.pool_path(disk);
    let look = |shares| {
        let options = pool_options.clone();
        Pool::inspect(&path, PoolOptions { shares, ..options })
    };
    let opened = match disk.is_read_only() {
        true => look(true).map(|pool| (pool, Some(Error::OpenedReadOnly))),
        false => Pool::open(&path, pool_options.clone()).map(|pool| (pool, None)),
    };
    let (pool, shortage) = match opened {
        Err(error) if root.has_checkpoint && error.is_no_space() && !disk.is_read_only() => {
            tracing::warn!(%error, "the store is read only until it is opened with space");
            (look(false)?, Some(Error::from(error)))
        }
        opened => opened?,
    };
    // Nothing goes on in the background where nothing can be changed.
    let threads = match &shortage {
        Some(_) => 0,
        None => options.background_threads,
    };
    let options = options.clone().background_threads(threads);
    let store = S::open(&pool, &options).map_err(|error| index_error(&pool, error))?;
    Ok(OpenPool {
        store,
        pool,
        shortage,
    })
}

/// An error of the store in a pool, with the pool's file.
pub(super) fn index_error(pool: &Pool, error: gabion_index::Error) -> Error {
    use gabion_index::Error as IndexError;
    let (offset, what) = match error {
        IndexError::Media(error) => return error.into(),
        IndexError::Limit { what, bytes, limit } => {
            let size = bytes;
            return Error::Limit { what, size, limit };
        }
        IndexError::ChainLimit { lines, limit } => {
            return Error::Limit {
                what: "chain of a bucket of the hash table",
                size: lines * LINE_BYTES,
                limit: limit * LINE_BYTES,
            };
        }
        IndexError::Damaged { what, offset } => (offset, format!("{what} is damaged")),
        other => (0, other.to_string()),
    };
    let file = pool.path().to_owned();
    Error::Corruption { file, offset, what }
}

/// Makes a store where none is.
fn make<S: PoolStore>(disk: &Disk, options: &Options) -> Result<OpenPool<S>> {
    let pool = match &options.mapped.pool_path {
        Some(path) => std::path::absolute(path).map_err(|error| Error::InvalidOption {
            option: "pool_path",
            why: error.to_string(),
        })?,
        None => PathBuf::from(POOL_NAME),
    };
    let root = Root {
        is_made: false,
        has_checkpoint: options.mapped.checkpoints,
        pool,
    };
    let path = root.pool_path(disk);
    if path.exists() {
        return Err(gabion_media::Error::AlreadyExists { path }.into());
    }
    root.write(disk, &S::ROOT)?;
    make_pool(disk, root, options)
}

/// Makes the pool of a store whose root says that it is being made.
fn make_pool<S: PoolStore>(disk: &Disk, root: Root, options: &Options) -> Result<OpenPool<S>> {
    let pool_options = pool_options::<S>(options, root.checkpoint_path(disk));
    let pool = Pool::create(&root.pool_path(disk), pool_options)?;
    let store = S::create(&pool, options).map_err(|error| index_error(&pool, error))?;
    let opened = OpenPool {
        store,
        pool,
        shortage: None,
    };
    if opened.can_sync() {
        opened.persist()?;
    }
    // DURABLE: an empty store is in the pool.
    let root = Root {
        is_made: true,
        ..root
    };
    root.write(disk, &S::ROOT)?;
    Ok(opened)
}

#[cfg(test)]
pub(super) use tests::set_checkpoint_disk;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use gabion_media::{Fault, FaultKind, SimDisk};

    use super::*;
    use crate::MappedOptions;
    use crate::engine::scmkv::Scmkv;
    use crate::engine::sptree::TreeStore;
    use crate::types::Kind;

    thread_local! {
        /// The disk that fills up, of the checkpoints of pools that this thread opens.
        static CHECKPOINTS: RefCell<Option<SimDisk>> = const { RefCell::new(None) };
    }

    pub(super) fn checkpoint_disk() -> Option<Disk> {
        CHECKPOINTS.with_borrow(|sim| sim.as_ref().map(Disk::simulated))
    }

    pub(in super::super) fn set_checkpoint_disk(sim: Option<&SimDisk>) {
        CHECKPOINTS.set(sim.cloned());
    }

    fn open<S: PoolStore>(dir: &std::path::Path, durability: Durability) -> Result<Arc<Mapped<S>>> {
        let options = Options::default()
            .engine(S::ENGINE)
            .durability(durability)
            .mapped(
                MappedOptions::default()
                    .pool_bytes(32 << 20)
                    .checkpoints(true)
                    .expected_records(64),
            )
            .background_threads(1);
        Mapped::open(Disk::system(dir)?, options)
    }

    fn put<S: PoolStore>(store: &Mapped<S>, key: &[u8], sync: bool) -> Result<()> {
        let keyspace = &*store.create_keyspace("some")?;
        let write = super::super::Write::Single {
            keyspace,
            kind: Kind::Put,
            key,
            value: key,
        };
        store.write(write, 0, sync)
    }

    fn has<S: PoolStore>(store: &Mapped<S>, key: &[u8]) -> bool {
        let keyspace = store.create_keyspace("some").expect("it is there");
        let found = store.get(&keyspace, key, None).expect("sound");
        found.is_some_and(|value| value[..] == *key)
    }

    /// A close after writes on a full disk failed, though nothing was lost: its checkpoint found no
    /// space. What was acknowledged is there after it, also when the power fails later.
    #[test]
    fn a_store_closes_without_space_for_its_checkpoint() {
        close_without_space::<Scmkv>();
        close_without_space::<TreeStore>();
    }

    fn close_without_space<S: PoolStore>() {
        for durability in [
            Durability::default(),
            Durability::Buffered,
            Durability::Sync,
        ] {
            let (dir, sim) = (tempfile::tempdir().expect("a directory"), SimDisk::new());
            CHECKPOINTS.set(Some(sim.clone()));
            let store = open::<S>(dir.path(), durability).expect("it opens");
            put(&store, b"early", true).expect("space");
            sim.set_capacity(Some(0));
            put(&store, b"late", false).expect("the pool has space");
            let refused = put(&store, b"synced", true).expect_err("no space");
            assert!(refused.is_no_space(), "{refused}");
            store.close().expect("it closes");
            for _ in 0..2 {
                let store = open::<S>(dir.path(), durability).expect("it opens");
                assert!(has(&store, b"early") && has(&store, b"late"));
                for sync in [false, true] {
                    let refused = put(&store, b"later", sync).expect_err("no space");
                    assert!(refused.is_no_space(), "{refused}");
                }
                let refused = store.create_keyspace("other").map(drop);
                assert!(refused.is_err_and(|error| error.is_no_space()));
                store.persist(Durability::Sync).expect("nothing is lost");
                store.wait_idle().expect("nothing is due");
                store.close().expect("it closes");
            }
            sim.set_capacity(None);
            let store = open::<S>(dir.path(), durability).expect("it opens");
            put(&store, b"later", false).expect("space");
            // The power fails: the pool's file is gone, and the checkpoint stands in for it.
            drop(store.opened.swap(None));
            store.lock.lock().take();
            std::fs::remove_file(dir.path().join(POOL_NAME)).expect("it is there");
            let store = open::<S>(dir.path(), durability).expect("it opens");
            assert!(has(&store, b"early") && has(&store, b"late") && !has(&store, b"later"));
            // What is no want of space is told.
            put(&store, b"more", false).expect("space");
            sim.inject(Fault::forever(sim.ops() + 1, FaultKind::Eio));
            store.close().expect_err("it fails");
        }
        CHECKPOINTS.set(None);
    }

    /// A store that was not closed, and is opened without space, does not say that all is durable.
    #[test]
    fn what_was_not_closed_is_not_durable() {
        durable_without_space::<Scmkv>();
        durable_without_space::<TreeStore>();
    }

    fn durable_without_space<S: PoolStore>() {
        let mut short = 0;
        for operation in 1..20 {
            let (dir, sim) = (tempfile::tempdir().expect("a directory"), SimDisk::new());
            CHECKPOINTS.set(Some(sim.clone()));
            let store = open::<S>(dir.path(), Durability::Buffered).expect("it opens");
            put(&store, b"early", true).expect("space");
            put(&store, b"late", false).expect("space");
            // The process is killed.
            drop(store.opened.swap(None));
            store.lock.lock().take();
            sim.inject(Fault::once(sim.ops() + operation, FaultKind::NoSpace));
            let store = open::<S>(dir.path(), Durability::Buffered).expect("it opens");
            assert!(has(&store, b"early") && has(&store, b"late"));
            if put(&store, b"later", false).is_err_and(|error| error.is_no_space()) {
                short += 1;
                let told = store.persist(Durability::Sync);
                assert!(told.is_err_and(|error| error.is_no_space()));
            }
        }
        CHECKPOINTS.set(None);
        assert!(short > 0);
    }

    /// Nothing is damaged where a limit is reached, and no copy has to be restored.
    #[test]
    fn a_chain_that_is_too_long_is_a_limit() {
        let pool = Pool::anonymous(PoolOptions {
            size: 1 << 20,
            ..PoolOptions::default()
        })
        .expect("memory");
        let error = gabion_index::Error::ChainLimit {
            lines: 64,
            limit: 63,
        };
        let Error::Limit { size, limit, .. } = index_error(&pool, error) else {
            panic!("it is a limit");
        };
        assert_eq!((size, limit), (64 * 64, 63 * 64));
    }
}
