//! Making a tree, and finding it again.
//!
//! An opening looks at the backup, and, of a tree that is to be checked, at the head of each leaf.
//! Then it may be asked for everything: what else there is to do is done run by run
//! (`parallel_recovery.rs`), by threads of the tree and by those who ask.

use std::sync::Arc;

use gabion_media::pmem::{Medium, Pool, PoolClass, PoolOptions, Reachable};

use super::backup::Backup;
use super::buffer::Buffers;
use super::item::{LEAST, bound_key};
use super::layout::{BACKUP_AT, MOVING_AT, RootState, first_leaf_at, leaf_bytes};
use super::log::Logs;
use super::mnode::Mnodes;
use super::parallel_recovery::{PendingRecovery, RecoveryWorker};
use super::reachable::is_referenced;
use super::router::Router;
use super::{Maintenance, Options, PairCheck, SpTree, TreeKey};
use crate::index::IndexPlan;
use crate::{Error, Result, Seed, root};

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// The pairs of a leaf fill whole words of tags.
    const PAIRS: u64 = {
        assert!(
            N >= 8 && N <= 64 && N.is_multiple_of(8),
            "a bitmap is a word"
        );
        N as u64
    };

    /// Where the first leaf is, from the root on.
    pub(super) const FIRST_LEAF_AT: u64 = first_leaf_at(K::BACKUP_BYTES);

    /// Makes an empty tree without write buffers the root of `pool`. Of the plan only the seed
    /// counts.
    ///
    /// A crash before the return leaves the tree or a pool without root, and then nothing is lost
    /// but time.
    ///
    /// # Errors
    /// The pool has a root already, or no space.
    pub fn create(pool: &Pool, plan: IndexPlan) -> Result<Self> {
        Self::make(pool, plan, Options::default(), Maintenance::Thread)
    }

    pub(super) fn make(
        pool: &Pool,
        plan: IndexPlan,
        options: Options,
        tending: Maintenance,
    ) -> Result<Self> {
        let _within = pool.write_guard();
        let seed = plan.seed.unwrap_or_else(Seed::random);
        let rest = Self::FIRST_LEAF_AT + leaf_bytes(N) - root::ROOT_BYTES;
        let fill = |behind| {
            // The first leaf is as the zeros are, but for its hkey, which opening mends.
            pool.zero(behind, rest);
            K::place_backup(pool, behind - root::ROOT_BYTES + BACKUP_AT);
        };
        let words = |_| vec![K::MAGIC, seed, plan.capacity, Self::PAIRS];
        root::create_filled(pool, rest, fill, words)?;
        let tree = Self::find(pool, options, tending, None)?;
        tree.recover_all()?;
        Ok(tree)
    }

    /// Finds the tree that is the root of `pool`: costs a look at the whole backup, and at each
    /// page of the logs. What it has in DRAM is made by all processors while it is served, and of
    /// the part that an operation needs before that: a look at each leaf, and at each item if keys
    /// are strings. [`SpTree::recover_all`] waits for it. If the tree had write buffers, it has
    /// none now, and its logs are given up then.
    ///
    /// # Errors
    /// No tree there, one with leaves of another size, or damage on the medium. Damage of leaves is
    /// told by the operations that come to them.
    pub fn open(pool: &Pool) -> Result<Self> {
        Self::find(pool, Options::default(), Maintenance::Thread, None)
    }

    /// Finds the tree, and begins with its recovery. What `holds` denies of the key and the value
    /// of a pair is damage.
    pub(super) fn find(
        pool: &Pool,
        options: Options,
        tending: Maintenance,
        holds: Option<PairCheck>,
    ) -> Result<Self> {
        let root = pool.root::<RootState>().raw();
        if root == 0 {
            return Err(Error::NoRoot);
        }
        let [_, seed, _, pairs, ..] = root::read(pool, root, K::MAGIC)?;
        if pairs != Self::PAIRS {
            return Err(Error::OtherKind);
        }
        let seed = Seed::new(seed);
        let within = pool.write_guard();
        let leaves = pool.len() / leaf_bytes(N);
        let has_threads = tending == Maintenance::Thread && !pool.is_watched();
        let mut tree = SpTree {
            worker: RecoveryWorker::default(),
            medium: Medium::clone(pool),
            pool: pool.clone(),
            root,
            seed,
            saves_reads: pool.class() == PoolClass::Power,
            keeps_slot: pool.keeps_run(),
            nodes: Arc::new(Mnodes::new(leaves)),
            router: Arc::new(Router::new(pool, leaves)?),
            backup: Arc::new(Backup::open(pool, root + BACKUP_AT, tending)?),
            buffers: Arc::new(Buffers::new(options.buffer_bytes, leaves)),
            logs: Arc::new(Logs::open(pool, root + MOVING_AT, seed)),
            recovery: Arc::new(PendingRecovery::default()),
        };
        // Scans go by the backup's invariants: a damaged one could keep them for ever.
        let backup_blocks = tree.backup.check()?;
        let least = bound_key::<K>(&tree.medium, LEAST)?;
        let mut starts = vec![(least, root + Self::FIRST_LEAF_AT)];
        starts.extend(tree.backup.leaves()?);
        let looked = holds.map(|holds| tree.look_at_heads(&starts, backup_blocks, holds));
        let checking = looked.transpose()?;
        let is_sound = checking.is_none_or(|checking| checking.is_sound);
        tree.begin(starts, checking, has_threads && is_sound)?;
        // Threads that help enter the pool by themselves.
        drop(within);
        if !is_sound {
            tree.recover_all()?;
            tree.check_blocks()?;
        }
        Ok(tree)
    }

    /// Options of pools for trees: the layout id, and how recovery finds what is in use. Whoever
    /// makes or opens the pool sets the rest.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        PoolOptions {
            layout: K::MAGIC,
            reachable: Reachable::ask_fn(is_referenced::<K, N>),
            ..PoolOptions::default()
        }
    }

    /// Threads that may help to recover the tree: on a medium that somebody watches none.
    pub(super) fn processors(&self) -> usize {
        if self.medium.is_watched() {
            return 1;
        }
        std::thread::available_parallelism().map_or(1, |count| count.get())
    }
}

impl<const N: usize> SpTree<u64, N> {
    /// As [`SpTree::create`], with write buffers.
    ///
    /// # Errors
    /// As [`SpTree::create`].
    pub fn create_with(pool: &Pool, plan: IndexPlan, options: Options) -> Result<Self> {
        Self::make(pool, plan, options, Maintenance::Thread)
    }

    /// As [`SpTree::open`]. A tree may be opened with another budget than it had before.
    ///
    /// # Errors
    /// As [`SpTree::open`].
    pub fn open_with(pool: &Pool, options: Options) -> Result<Self> {
        Self::find(pool, options, Maintenance::Thread, None)
    }
}
