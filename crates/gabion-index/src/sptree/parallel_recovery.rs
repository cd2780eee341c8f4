//! Recovery, run by run, while the tree is served.
//!
//! # Idea
//! An opening cuts the leaves that the backup names into runs. For each run it makes one node, a
//! *raw* one (`mnode.rs`), which has the range of the run and leads to its first leaf. So the
//! ranges of all nodes cover all keys from the start, and every search ends: at a node that is
//! there, or at a raw one. Whoever comes to a raw node recovers its run first: locks it, goes along
//! the chain (`walk.rs`), mends what a crash left, makes the other nodes (`build.rs`), and brings
//! into the leaves what the logs have for them (`replay.rs`). Then the raw node is the first of the
//! run's. Threads of the tree do the same, run after run; where it has none, each write recovers
//! one run more.
//!
//! # Invariants
//! - R1. A raw node and the leaves of its run belong to who holds its lock. Nobody merges a raw
//!   node into its neighbour. So the leaf that a run begins with is in the chain, with the same
//!   lkey, as long as the run before it is not recovered, and runs can be recovered in any order.
//! - R2. Runs meet where nothing is to be mended. A leaf that a crash left with what belongs to the
//!   next one has that in its own run. Else a pair of strings could go from the next leaf, and its
//!   item be used for another one, while this leaf still refers to it.
//! - R3. Before a node is there for others, its leaf is mended and has its records of the logs,
//!   durably, and the backup knows of it. A crash before leaves what it found, and some of that
//!   done.
//! - R4. A run that cannot be recovered stays raw, and nothing is there of it. Who needs it gets
//!   the error each time; others do not.
//! - R5. Nobody has a write buffer before all runs are recovered. So nothing is added to the logs
//!   while records in them count that no leaf has, and their pages are taken for use all at once,
//!   at the end.
//!
//! # Trees that are checked
//! What an opening of those has to tell, it tells before anybody is served: the heads of all leaves
//! say how many pairs there are, and so whether the pool has the blocks that the tree needs. If
//! they do not fit, or if a head shows what a crash left, all is recovered by the opening and
//! counted again. Else there is nothing to mend, and a run in which there is something is damaged.
//! So who reads such a tree writes nothing to the pool, not even after its end (`SpTree::finish`).
//! The pairs of a leaf are checked when its run is recovered, before anybody sees them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};

use parking_lot::Mutex;

use super::backup::Leaves;
use super::log::LoggedChange;
use super::steps::{Step, is_taken};
use super::walk::damaged;
use super::{PairCheck, SpTree, TreeKey};
use crate::Result;
use crate::parallel::by_threads;

/// Leaves of a run, if the backup names them all: so many that a run costs no more beside them than
/// a hundredth, and so few that who waits for one waits for a fraction of a millisecond.
const LEAVES_PER_RUN: usize = 128;
/// The same on a medium that somebody watches, whose trees are small.
const LEAVES_PER_RUN_WATCHED: usize = 2;
/// Runs that are worth a thread.
const RUNS_PER_THREAD: usize = 8;

/// What is left to be done of the recovery of a tree.
pub(super) struct PendingRecovery<K: TreeKey + ?Sized> {
    /// By the numbers of the nodes that stand for them; none once a run is recovered.
    runs: Box<[Mutex<Option<LeafRun<K>>>]>,
    /// The next run for those who recover one after the other.
    next: AtomicUsize,
    /// Runs that are not recovered.
    left: AtomicUsize,
    /// Leaves that are known and have no node.
    unbuilt: AtomicU64,
    is_over: AtomicBool,
    /// Whether nobody is to begin with another run unasked.
    is_stopped: Arc<AtomicBool>,
    /// Whether threads of the tree are at work.
    has_threads: bool,
    checking: Option<OpenCheck>,
    /// Held by who ends it.
    ending: Mutex<()>,
}

/// What the opening of a tree that is checked found.
#[derive(Clone, Copy)]
pub(super) struct OpenCheck {
    pub(super) holds: PairCheck,
    /// Number of leaves.
    pub(super) leaves: u64,
    /// Whether all heads fit to each other and to the blocks of the pool.
    pub(super) is_sound: bool,
}

/// Leaves one behind the other.
pub(super) struct LeafRun<K: TreeKey + ?Sized> {
    /// Those that the backup names, with their lkeys: the first leaf, and most of the others.
    pub(super) starts: Leaves<K>,
    /// The leaf behind the last one, unless that is the last one of all.
    pub(super) end: Option<(K::Owned, u64)>,
    /// What the logs may have for the leaves, in no order.
    pub(super) records: Vec<Vec<LoggedChange>>,
}

impl<K: TreeKey + ?Sized> Default for PendingRecovery<K> {
    fn default() -> PendingRecovery<K> {
        PendingRecovery::new(Vec::new(), 0, None, false)
    }
}

impl<K: TreeKey + ?Sized> PendingRecovery<K> {
    fn new(
        runs: Vec<LeafRun<K>>,
        leaves: u64,
        checking: Option<OpenCheck>,
        has_threads: bool,
    ) -> PendingRecovery<K> {
        let count = runs.len();
        let leaves = checking.map_or(leaves, |checking| checking.leaves);
        PendingRecovery {
            runs: runs.into_iter().map(|run| Mutex::new(Some(run))).collect(),
            next: AtomicUsize::new(0),
            left: AtomicUsize::new(count),
            unbuilt: AtomicU64::new(leaves.saturating_sub(count as u64)),
            is_over: AtomicBool::new(false),
            is_stopped: Arc::default(),
            has_threads,
            checking,
            ending: Mutex::new(()),
        }
    }

    /// Whether nothing is left to be done.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        // ORDER: Acquire pairs with the release of `settle`: the logs are ready for use.
        self.is_over.load(Ordering::Acquire)
    }

    /// Leaves that are known and have no node.
    pub(super) fn unbuilt(&self) -> u64 {
        // ORDER: Relaxed: a number, and no more.
        self.unbuilt.load(Ordering::Relaxed)
    }

    /// What is asked of each pair, if the tree is checked.
    pub(super) fn holds(&self) -> Option<PairCheck> {
        self.checking.map(|checking| checking.holds)
    }

    /// Says that nodes are made for the leaves of a run, so many, and returns how many leaves more
    /// than the first one were known before.
    pub(super) fn expect(&self, leaves: usize, run: &LeafRun<K>) -> u64 {
        let known = match self.checking {
            Some(_) => leaves,
            None => run.starts.len(),
        };
        let fresh = (known as u64).saturating_sub(1);
        // ORDER: Relaxed: a number, and no more.
        self.unbuilt.fetch_sub(fresh, Ordering::Relaxed);
        fresh
    }

    /// Says that so many leaves have no nodes after all.
    pub(super) fn expect_again(&self, fresh: u64) {
        // ORDER: as above.
        self.unbuilt.fetch_add(fresh, Ordering::Relaxed);
    }

    /// Whether what is to be mended is what a crash left.
    pub(super) fn may_mend(&self) -> bool {
        self.checking.is_none_or(|checking| !checking.is_sound)
    }

    /// The next run for those who recover one after the other.
    fn take(&self) -> Option<u64> {
        // ORDER: Relaxed: a wish, and a number; runs have locks.
        if self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        (next < self.runs.len()).then_some(next as u64)
    }
}

/// Who recovers a tree beside its service, unasked: threads, which the owner's tree has, or
/// writers.
#[derive(Debug, Default)]
pub(super) struct RecoveryWorker {
    is_stopped: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl RecoveryWorker {
    /// Ends that before another run is begun with.
    pub(super) fn finish(&self) {
        // ORDER: Relaxed: a wish.
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.lock().take() {
            // Its end is all that counts.
            let _ = thread.join();
        }
    }
}

impl Drop for RecoveryWorker {
    fn drop(&mut self) {
        self.finish();
    }
}

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// Begins with the recovery: cuts the leaves that the backup names into runs, and makes a node
    /// for each. What fits into one run is recovered at once.
    pub(super) fn begin(
        &mut self,
        starts: Leaves<K>,
        checking: Option<OpenCheck>,
        has_threads: bool,
    ) -> Result<()> {
        let leaves = starts.len() as u64;
        let mut runs = self.cut(starts)?;
        self.share_records(&mut runs)?;
        self.add_raw_nodes(&runs)?;
        let has_threads = has_threads && runs.len() > 1;
        self.recovery = Arc::new(PendingRecovery::new(runs, leaves, checking, has_threads));
        if self.recovery.runs.len() == 1 {
            return self.recover_all();
        }
        self.worker.is_stopped = Arc::clone(&self.recovery.is_stopped);
        if has_threads {
            let tree = self.share();
            // Who needs what could not be recovered is told.
            let work = move || drop(tree.recover_by_threads());
            let Ok(thread) = Builder::new().spawn(work) else {
                // The system gives none. Who needs what could not be recovered is told here, too.
                let _ = self.recover_by_threads();
                return Ok(());
            };
            *self.worker.thread.get_mut() = Some(thread);
        }
        Ok(())
    }

    /// The same tree, for its own threads.
    fn share(&self) -> SpTree<K, N> {
        SpTree {
            worker: RecoveryWorker::default(),
            medium: self.medium.clone(),
            pool: self.pool.clone(),
            root: self.root,
            seed: self.seed,
            saves_reads: self.saves_reads,
            keeps_slot: self.keeps_slot,
            nodes: Arc::clone(&self.nodes),
            router: Arc::clone(&self.router),
            backup: Arc::clone(&self.backup),
            buffers: Arc::clone(&self.buffers),
            logs: Arc::clone(&self.logs),
            recovery: Arc::clone(&self.recovery),
        }
    }

    /// Cuts leaves into runs, where nothing is to be mended (R2).
    fn cut(&self, starts: Leaves<K>) -> Result<Vec<LeafRun<K>>> {
        if !starts.is_sorted_by(|one, two| one.0 < two.0) {
            return Err(damaged(self.root));
        }
        let length = if self.medium.is_watched() {
            LEAVES_PER_RUN_WATCHED
        } else {
            LEAVES_PER_RUN
        };
        let mut runs: Vec<LeafRun<K>> = Vec::new();
        let mut run: Leaves<K> = Vec::new();
        for start in starts {
            let before = run.last().filter(|_| run.len() >= length);
            if before.is_some_and(|(_, before)| self.is_border(*before, &start)) {
                runs.push(LeafRun {
                    starts: std::mem::take(&mut run),
                    end: Some(start.clone()),
                    records: Vec::new(),
                });
            }
            run.push(start);
        }
        runs.push(LeafRun {
            starts: run,
            end: None,
            records: Vec::new(),
        });
        Ok(runs)
    }

    /// Whether two leaves follow one another and the left one is not to be mended.
    fn is_border(&self, left: u64, right: &(K::Owned, u64)) -> bool {
        if !is_taken(Step::Border) {
            return true;
        }
        let Ok((left, Some(next))) = self.leaf_and_next(left) else {
            return false;
        };
        let is_sound = self
            .mend_of(left, Some(&next))
            .is_ok_and(|mend| mend.is_none());
        is_sound && next.at == right.1 && next.lkey == right.0
    }

    /// Recovers the run that a raw node stands for, or waits for who does. Whoever calls holds no
    /// lock but that of the left neighbour, and the guard of the pool if that.
    ///
    /// # Errors
    /// Damage on the medium, or no memory: then the node is still raw.
    #[cold]
    pub(super) fn recover_run(&self, number: u64) -> Result<()> {
        let _within = self.pool.write_guard();
        let _pins = self.pin();
        let node = self.nodes.get(number);
        let Some(head) = node.and_then(|node| node.lock_raw(number)) else {
            return Ok(());
        };
        let place = usize::try_from(number).ok();
        let place = place.and_then(|place| self.recovery.runs.get(place));
        let mut place = place.ok_or_else(|| damaged(head.leaf()))?.lock();
        let run = place.as_ref().ok_or_else(|| damaged(head.leaf()))?;
        if is_taken(Step::Run) {
            self.build(&head, run)?;
        }
        head.set_raw(false);
        *place = None;
        drop((place, head));
        // ORDER: AcqRel: who ends the recovery comes after all runs.
        if self.recovery.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            // What fails is tried again, and told, by who waits for the end.
            let _ = self.settle();
        }
        Ok(())
    }

    /// Waits until all of the tree is in memory, and helps with it. Nobody needs to: whoever asks
    /// for a key that is not there yet has what belongs to it recovered first.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn recover_all(&self) -> Result<()> {
        if self.recovery.is_over() {
            return Ok(());
        }
        self.recover_by_threads()?;
        (0..self.recovery.runs.len() as u64).try_for_each(|number| self.recover_run(number))?;
        self.settle()
    }

    /// Recovers what nobody has begun with, by as many threads as are worth it. Runs that fail are
    /// left to who needs them.
    fn recover_by_threads(&self) -> Result<()> {
        // ORDER: Relaxed: a hint.
        let left = self.recovery.left.load(Ordering::Relaxed);
        let threads = (left / RUNS_PER_THREAD + 1).min(self.processors());
        by_threads((0..threads).collect(), |_: usize| {
            while let Some(number) = self.recovery.take() {
                let _ = self.recover_run(number);
            }
            Ok(())
        })
        .map(drop)
    }

    /// Recovers a run, where there are no threads for that. Whoever calls holds no lock.
    #[cold]
    pub(super) fn tend_recovery(&self) {
        if !self.recovery.has_threads
            && let Some(number) = self.recovery.take()
        {
            // It may be no run of this operation's.
            let _ = self.recover_run(number);
        }
    }

    /// Ends the recovery, when no node is raw any more.
    fn settle(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        let _ending = self.recovery.ending.lock();
        if self.recovery.is_over() {
            return Ok(());
        }
        self.end_replay()?;
        // ORDER: Relaxed: a number, and no more.
        self.recovery.unbuilt.store(0, Ordering::Relaxed);
        // ORDER: Release pairs with the acquire of `is_over`.
        self.recovery.is_over.store(true, Ordering::Release);
        Ok(())
    }
}
