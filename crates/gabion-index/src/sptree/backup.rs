//! The top layer in persistent memory: from lkeys to leaves, for recovery only.
//!
//! It is a FAST&FAIR tree in the same pool, or a radix tree if keys are strings. New leaves are
//! told to a thread that inserts them in batches; a crash leaves some of them out, which recovery
//! finds by the chain of leaves. A leaf that is given up is taken out first, and waits for that.
//! So:
//!
//! - B1. Whatever the moment of a crash, each entry names a leaf in the chain by its lkey.
//!
//! A medium that somebody watches has no thread: whoever adds the second leaf to the list inserts
//! both, so that what happens is a function of the operations. Nor has a tree that its writers
//! tend, where this comes with the 64th.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use gabion_media::pmem::Pool;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{Maintenance, TreeKey};
use crate::{Error, Item, OrderedIndex, Result};

/// Leaves that wake the thread: enough that the waking does not count.
const BATCH: usize = 64;
/// Leaves at which those who add more have to help.
const WAITING_MAX: usize = 4096;
/// How long fewer leaves wait.
const PAUSE: Duration = Duration::from_millis(20);
/// As `BATCH`, on a medium that somebody watches.
const BATCH_WATCHED: usize = 2;

/// The backup and its thread.
pub(super) struct Backup<K: TreeKey + ?Sized> {
    shared: Arc<Shared<K>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared<K: TreeKey + ?Sized> {
    pool: Pool,
    /// Held by whoever changes the tree, lest a leaf be inserted after it was taken out.
    tree: Mutex<Tree<K>>,
    waiting: Mutex<Waiting<K>>,
    wake: Condvar,
}

type Tree<K> = Box<dyn OrderedIndex<K>>;

/// Leaves by their lkeys.
pub(super) type Leaves<K> = Vec<(<K as Item>::Owned, u64)>;

/// What a backup has.
pub(super) struct BackupState<K: TreeKey + ?Sized> {
    /// Leaves that are in the tree.
    pub(super) named: Leaves<K>,
    /// Leaves that are not yet in it.
    pub(super) waiting: Leaves<K>,
    /// Blocks of the tree, the one that is in the root block not counted.
    pub(super) blocks: u64,
}

struct Waiting<K: TreeKey + ?Sized> {
    leaves: VecDeque<(K::Owned, u64)>,
    is_over: bool,
}

impl<K: TreeKey + ?Sized> Shared<K> {
    /// Inserts the leaves that wait; false if one finds no room and goes on waiting. That is no
    /// harm: recovery goes along the chain.
    fn drain(&self, tree: &MutexGuard<'_, Tree<K>>) -> bool {
        loop {
            let waiting = self.waiting.lock().leaves.pop_front();
            let Some((lkey, leaf)) = waiting else {
                return true;
            };
            if tree.insert(lkey.borrow(), leaf).is_err() {
                self.waiting.lock().leaves.push_front((lkey, leaf));
                return false;
            }
        }
    }

    fn work(&self) {
        let mut has_room = true;
        loop {
            let mut waiting = self.waiting.lock();
            if (waiting.leaves.len() < BATCH || !has_room) && !waiting.is_over {
                self.wake.wait_for(&mut waiting, PAUSE);
            }
            let is_over = waiting.is_over;
            let is_empty = waiting.leaves.is_empty();
            drop(waiting);
            if !is_empty {
                // Before the lock: others that are within wait for that.
                let _within = self.pool.write_guard();
                has_room = self.drain(&self.tree.lock());
            }
            if is_over {
                return;
            }
        }
    }
}

impl<K: TreeKey + ?Sized> Backup<K> {
    /// The backup with its header at `root`.
    pub(super) fn open(pool: &Pool, root: u64, tending: Maintenance) -> Result<Backup<K>> {
        let tree = K::open_backup(pool, root).map_err(|error| match error {
            // It is part of the tree's own root, which says of what kind it is.
            Error::NoRoot | Error::OtherKind => Error::damaged("the backup of an SPTree", root),
            error => error,
        })?;
        let shared = Arc::new(Shared {
            pool: pool.clone(),
            tree: Mutex::new(tree),
            waiting: Mutex::new(Waiting {
                leaves: VecDeque::new(),
                is_over: false,
            }),
            wake: Condvar::new(),
        });
        let worker = Arc::clone(&shared);
        let has_thread = tending == Maintenance::Thread && !pool.is_watched();
        // Where the system gives none, those who write do its work.
        let thread = has_thread.then(|| Builder::new().spawn(move || worker.work()));
        let thread = thread.and_then(io::Result::ok);
        Ok(Backup {
            shared,
            thread: Mutex::new(thread),
        })
    }

    fn has_thread(&self) -> bool {
        self.thread.lock().is_some()
    }

    /// Inserts what waits, as far as there is room, and ends the thread.
    pub(super) fn finish(&self) {
        if let Some(thread) = self.thread.lock().take() {
            self.shared.waiting.lock().is_over = true;
            self.shared.wake.notify_one();
            // Its end is all that counts.
            let _ = thread.join();
        } else if !self.shared.pool.is_watched() {
            let _within = self.shared.pool.write_guard();
            self.shared.drain(&self.shared.tree.lock());
            self.shared.waiting.lock().is_over = true;
        }
    }

    /// Tells of a new leaf.
    pub(super) fn add(&self, lkey: K::Owned, leaf: u64) {
        let mut waiting = self.shared.waiting.lock();
        waiting.leaves.push_back((lkey, leaf));
        let count = waiting.leaves.len();
        if waiting.is_over {
            // Whoever recovers it finds it again.
            return;
        }
        drop(waiting);
        let waiting_max = if self.has_thread() {
            WAITING_MAX
        } else if self.shared.pool.is_watched() {
            BATCH_WATCHED
        } else {
            BATCH
        };
        if count >= waiting_max {
            self.shared.drain(&self.shared.tree.lock());
        } else if count == BATCH {
            self.shared.wake.notify_one();
        }
    }

    /// Takes a leaf out, durably.
    ///
    /// # Errors
    /// Damage on the medium.
    pub(super) fn forget(&self, lkey: &K) -> Result<()> {
        let tree = self.shared.tree.lock();
        // It may be among those that wait, and stay among them.
        if !self.shared.drain(&tree) {
            let mut waiting = self.shared.waiting.lock();
            waiting.leaves.retain(|(waits, _)| waits.borrow() != lkey);
        }
        tree.remove(lkey)?;
        Ok(())
    }

    /// All leaves that are not waiting, by their lkeys.
    pub(super) fn leaves(&self) -> Result<Leaves<K>> {
        scan_all(&**self.shared.tree.lock())
    }

    /// Everything, after a check of the tree. If there is a thread for them, only those leaves wait
    /// for which there is no room.
    pub(super) fn all(&self) -> Result<BackupState<K>> {
        let _within = self.shared.pool.write_guard();
        let tree = self.shared.tree.lock();
        if self.has_thread() {
            self.shared.drain(&tree);
        }
        let blocks = tree.check()?.blocks - 1;
        let named = scan_all(&**tree)?;
        let waiting = self.shared.waiting.lock();
        Ok(BackupState {
            named,
            waiting: waiting.leaves.iter().cloned().collect(),
            blocks,
        })
    }

    /// Inserts what waits, as far as there is room, and counts as [`Backup::check`] does.
    pub(super) fn settle(&self) -> Result<u64> {
        let within = self.shared.pool.write_guard();
        self.shared.drain(&self.shared.tree.lock());
        drop(within);
        self.check()
    }

    /// Checks the tree; blocks that it consists of, the one that is in the root block not counted.
    pub(super) fn check(&self) -> Result<u64> {
        let checked = self.shared.tree.lock().check()?;
        Ok(checked.blocks - 1)
    }
}

fn scan_all<K: TreeKey + ?Sized>(tree: &dyn OrderedIndex<K>) -> Result<Leaves<K>> {
    let mut leaves = Vec::new();
    let least = K::rebuild(0, &[]);
    tree.scan(least.borrow(), usize::MAX, &mut leaves)?;
    Ok(leaves)
}

impl<K: TreeKey + ?Sized> Drop for Backup<K> {
    fn drop(&mut self) {
        if self.has_thread() {
            self.finish();
        }
    }
}
