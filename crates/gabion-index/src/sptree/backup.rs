//! The top layer in persistent memory: from lkeys to leaves, for recovery only.
//!
//! It is a FAST&FAIR tree in the same pool. New leaves are told to a thread that inserts them in
//! batches; a crash leaves some of them out, which recovery finds by the chain of leaves. A leaf
//! that is given up is taken out first, and waits for that. So:
//!
//! - B1. Whatever the moment of a crash, each entry names a leaf in the chain by its lkey.
//!
//! A medium that somebody watches has no thread: whoever adds the second leaf to the list inserts
//! both, so that what happens is a function of the operations.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use gabion_media::pmem::Pool;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::fastfair::FastFair;
use crate::{OrderedIndex, Result};

/// Leaves that wake the thread: enough that the waking does not count.
const BATCH: usize = 64;
/// Leaves at which those who add more have to help.
const WAITING_MAX: usize = 4096;
/// How long fewer leaves wait.
const PAUSE: Duration = Duration::from_millis(20);
/// As `BATCH`, on a medium that somebody watches.
const BATCH_WATCHED: usize = 2;

/// The backup and its thread.
pub(super) struct Backup {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Held by whoever changes the tree, lest a leaf be inserted after it was taken out.
    tree: Mutex<FastFair>,
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

#[derive(Default)]
struct Waiting {
    leaves: VecDeque<(u64, u64)>,
    is_over: bool,
}

impl Shared {
    /// Inserts the leaves that wait; false if one finds no room and goes on waiting. That is no
    /// harm: recovery goes along the chain.
    fn drain(&self, tree: &MutexGuard<'_, FastFair>) -> bool {
        loop {
            let waiting = self.waiting.lock().leaves.pop_front();
            let Some((lkey, leaf)) = waiting else {
                return true;
            };
            if tree.insert(lkey, leaf).is_err() {
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
                has_room = self.drain(&self.tree.lock());
            }
            if is_over {
                return;
            }
        }
    }
}

impl Backup {
    /// The backup with its header at `root`.
    pub(super) fn open(pool: &Pool, root: u64) -> Result<Backup> {
        let shared = Arc::new(Shared {
            tree: Mutex::new(FastFair::at(pool, root)?),
            waiting: Mutex::default(),
            wake: Condvar::new(),
        });
        let worker = Arc::clone(&shared);
        let thread = (!pool.is_watched()).then(|| std::thread::spawn(move || worker.work()));
        Ok(Backup { shared, thread })
    }

    /// Tells of a new leaf.
    pub(super) fn add(&self, lkey: u64, leaf: u64) {
        let mut waiting = self.shared.waiting.lock();
        waiting.leaves.push_back((lkey, leaf));
        let count = waiting.leaves.len();
        drop(waiting);
        let helps = if self.thread.is_some() {
            count >= WAITING_MAX
        } else {
            count >= BATCH_WATCHED
        };
        if helps {
            self.shared.drain(&self.shared.tree.lock());
        } else if count == BATCH {
            self.shared.wake.notify_one();
        }
    }

    /// Takes a leaf out, durably.
    ///
    /// # Errors
    /// Damage on the medium.
    pub(super) fn forget(&self, lkey: u64) -> Result<()> {
        let tree = self.shared.tree.lock();
        // It may be among those that wait, and stay among them.
        if !self.shared.drain(&tree) {
            let mut waiting = self.shared.waiting.lock();
            waiting.leaves.retain(|(waits, _)| *waits != lkey);
        }
        tree.remove(lkey)?;
        Ok(())
    }

    /// All leaves that are not waiting, by their lkeys.
    pub(super) fn leaves(&self) -> Result<Vec<(u64, u64)>> {
        let mut leaves = Vec::new();
        let tree = self.shared.tree.lock();
        tree.scan(&0, usize::MAX, &mut leaves)?;
        Ok(leaves)
    }

    /// All leaves by their lkeys, those that are in the tree and those that wait. If there is a
    /// thread for them, only those wait for which there is no room.
    pub(super) fn all_leaves(&self) -> Result<[Vec<(u64, u64)>; 2]> {
        let tree = self.shared.tree.lock();
        if self.thread.is_some() {
            self.shared.drain(&tree);
        }
        let mut leaves = Vec::new();
        tree.scan(&0, usize::MAX, &mut leaves)?;
        let waiting = self.shared.waiting.lock();
        Ok([leaves, waiting.leaves.iter().copied().collect()])
    }

    /// Checks the tree; blocks that it consists of, its first leaf not counted.
    pub(super) fn check(&self) -> Result<u64> {
        let checked = self.shared.tree.lock().check()?;
        Ok(checked.blocks - 1)
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.waiting.lock().is_over = true;
            self.shared.wake.notify_one();
            // Its end is all that counts.
            let _ = thread.join();
        }
    }
}
