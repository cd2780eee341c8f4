//! Making a tree, and finding it again.
//!
//! Recovery takes the leaves that the backup names and cuts them into runs, one for each thread. A
//! thread goes along the chain from each leaf of its run to the next: most often that is one step,
//! and leaves in between are those that the backup did not learn of in time, which it is told of
//! now. On its way it mends what a crash left of a split or a merge, and makes node, filter and
//! router entry of each leaf. Then the leaves take what the logs have for them (`replay.rs`).

use gabion_media::pmem::{Claim, Class, Medium, Pool, PoolOptions, Reachable};

use super::backup::Backup;
use super::buffer::Buffers;
use super::layout::{
    BACKUP_AT, FIRST_LEAF_AT, LEAF_ALIGN, LEAF_HINT, MAGIC, Moving, PAGE_HINT, leaf_bytes,
};
use super::leaf::{Change, Leaf};
use super::log::{self, Logs};
use super::mnode::{Born, Locked, Mnodes};
use super::router::{Hint, Router};
use super::steps::{Step, is_made};
use super::{Options, SpTree};
use crate::fastfair::{self, FastFair};
use crate::index::{Plan, root_of};
use crate::{Error, Result, Seed, root};

/// Leaves that are worth a thread.
const LEAVES_PER_THREAD: usize = 1024;

/// What a thread has recovered.
struct Run<'a> {
    /// Number of the first node.
    first: u64,
    last: Locked<'a>,
    /// Leaves that the backup does not name.
    missing: Vec<(u64, u64)>,
    /// What is to be mended.
    mends: Vec<Mend>,
}

/// What a crash left half done in a leaf, and how the leaf should be: its hkey is the next leaf's
/// lkey, and what is not below that has no bit.
struct Mend {
    leaf: u64,
    hkey: u64,
    bitmap: u64,
}

fn damaged(offset: u64) -> Error {
    Error::Damaged {
        what: "the chain of leaves of an SPTree",
        offset,
    }
}

impl<const N: usize> SpTree<N> {
    /// The pairs of a leaf fill whole words of tags.
    const PAIRS: u64 = {
        assert!(
            N >= 8 && N <= 64 && N.is_multiple_of(8),
            "a bitmap is a word"
        );
        N as u64
    };

    /// As [`SpTree::create_with`], without write buffers.
    ///
    /// # Errors
    /// The pool has a root already, or no space.
    pub fn create(pool: &Pool, plan: Plan) -> Result<Self> {
        Self::create_with(pool, plan, Options::default())
    }

    /// Makes an empty tree the root of `pool`. Of the plan only the seed counts.
    ///
    /// A crash before the return leaves the tree or a pool without root, and then nothing is lost
    /// but time.
    ///
    /// # Errors
    /// The pool has a root already, or no space.
    pub fn create_with(pool: &Pool, plan: Plan, options: Options) -> Result<Self> {
        let seed = plan.seed.unwrap_or_else(Seed::random);
        let rest = FIRST_LEAF_AT + leaf_bytes(N) - root::ROOT_BYTES;
        let fill = |behind| {
            // The first leaf is as the zeros are, but for its hkey, which opening mends.
            pool.zero(behind, rest);
            FastFair::<29>::place(pool, behind - root::ROOT_BYTES + BACKUP_AT);
        };
        let words = |_| vec![MAGIC, seed, plan.capacity, Self::PAIRS];
        root::create_filled(pool, rest, fill, words)?;
        Self::open_with(pool, options)
    }

    /// As [`SpTree::open_with`], without write buffers.
    ///
    /// # Errors
    /// As [`SpTree::open_with`].
    pub fn open(pool: &Pool) -> Result<Self> {
        Self::open_with(pool, Options::default())
    }

    /// Finds the tree that is the root of `pool`, and makes what it has in DRAM: costs a look at
    /// each leaf and at each page of the logs, by all processors. A tree may be opened with another
    /// budget than it had before; without one its logs are given up.
    ///
    /// # Errors
    /// No tree there, one with leaves of another size, or damage on the medium.
    pub fn open_with(pool: &Pool, options: Options) -> Result<Self> {
        let root = pool.root::<Moving>().raw();
        if root == 0 {
            return Err(Error::NoRoot);
        }
        let [_, seed, _, pairs, ..] = root::read(pool, root, MAGIC)?;
        if pairs != Self::PAIRS {
            return Err(Error::OtherKind);
        }
        let seed = Seed::new(seed);
        let leaves = pool.len() / leaf_bytes(N);
        let tree = SpTree {
            medium: Medium::clone(pool),
            pool: pool.clone(),
            root,
            seed,
            saves_reads: pool.class() == Class::Power,
            nodes: Mnodes::new(leaves),
            router: Router::new(pool, leaves)?,
            backup: Backup::open(pool, root + BACKUP_AT)?,
            buffers: Buffers::new(options.buffer_bytes, leaves),
            logs: Logs::open(pool, root, seed),
        };
        tree.recover()?;
        tree.replay()?;
        Ok(tree)
    }

    /// Options of pools for trees: the layout id, and how recovery finds what is in use. Whoever
    /// makes or opens the pool sets the rest.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        PoolOptions {
            layout: MAGIC,
            reachable: Reachable::ask_fn(is_referenced::<N>),
            ..PoolOptions::default()
        }
    }

    /// Threads that may help to open the tree: on a medium that somebody watches none.
    pub(super) fn processors(&self) -> usize {
        if self.medium.is_watched() {
            return 1;
        }
        std::thread::available_parallelism().map_or(1, |count| count.get())
    }

    fn recover(&self) -> Result<()> {
        let mut starts = vec![(0, self.root + FIRST_LEAF_AT)];
        starts.extend(self.backup.leaves()?);
        let threads = (starts.len() / LEAVES_PER_THREAD + 1).min(self.processors());
        let share = starts.len().div_ceil(threads);
        let ends = starts.iter().copied().skip(share).step_by(share).map(Some);
        let parts = starts.chunks(share).zip(ends.chain([None]));
        let runs = by_threads(parts.collect(), |(part, end)| self.recover_run(part, end))?;
        for (run, next) in runs.iter().zip(runs.iter().skip(1)) {
            let node = self.nodes.get(next.first);
            run.last.link(node.map(|node| (next.first, node)));
        }
        for run in runs {
            // Only now that all of the chain was found in order.
            for mend in run.mends {
                let leaf = self.leaf(mend.leaf)?;
                leaf.change_head(&[Change::Hkey(mend.hkey), Change::Bitmap(mend.bitmap)]);
            }
            for (lkey, leaf) in run.missing {
                self.backup.add(lkey, leaf);
            }
        }
        Ok(())
    }

    /// Recovers the leaves from the first of `starts` on, until the one at `end` or the last one.
    fn recover_run(&self, starts: &[(u64, u64)], end: Option<(u64, u64)>) -> Result<Run<'_>> {
        let mut starts = starts.iter().copied().peekable();
        let &(mut lkey, mut at) = starts.peek().ok_or_else(|| damaged(self.root))?;
        let (mut missing, mut mends) = (Vec::new(), Vec::new());
        let mut before: Option<Locked<'_>> = None;
        let mut first = None;
        loop {
            let leaf = self.leaf(at)?;
            if leaf.lkey() != lkey {
                return Err(damaged(at));
            }
            let next = leaf.next();
            let bound = if next == 0 {
                None
            } else {
                Some(self.leaf(next)?.lkey())
            };
            if bound.is_some_and(|bound| bound <= lkey) {
                return Err(damaged(at));
            }
            let kept = kept(leaf, bound);
            if is_made(Step::Mend) {
                mends.extend(mend(leaf, bound, kept));
            }
            if starts.next_if_eq(&(lkey, at)).is_none() {
                missing.push((lkey, at));
            }
            let node = self.enlist(leaf, bound, kept, before.as_ref())?;
            first = first.or(Some(node.number));
            before = Some(node);
            match (bound, end) {
                (Some(bound), Some((end, _))) if bound < end => lkey = bound,
                (Some(bound), None) => lkey = bound,
                (Some(bound), Some(end)) if (bound, next) == end => break,
                (None, None) => break,
                _ => return Err(damaged(at)),
            }
            at = next;
        }
        match (first, before, starts.next()) {
            (Some(first), Some(last), None) => Ok(Run {
                first,
                last,
                missing,
                mends,
            }),
            // The backup names what is not in the chain.
            _ => Err(damaged(at)),
        }
    }

    /// Makes the node of a leaf, on the right of another one.
    fn enlist(
        &self,
        leaf: Leaf<'_, N>,
        bound: Option<u64>,
        kept: u64,
        before: Option<&Locked<'_>>,
    ) -> Result<Locked<'_>> {
        let lkey = leaf.lkey();
        let born = Born {
            leaf: leaf.at,
            lkey,
            hkey: bound.unwrap_or(u64::MAX),
            next: 0,
            prev: 0,
            count: kept.count_ones() as usize,
            merged: leaf.merged(),
        };
        let node = self.nodes.add(born).ok_or_else(|| damaged(leaf.at))?;
        let entries = leaf.entries().filter(|(slot, ..)| kept >> slot & 1 != 0);
        let hashes = entries.map(|(_, key, _)| self.seed.hash_u64(key));
        node.bloom.refill(hashes);
        if let Some(before) = before {
            before.link(Some((node.number, &node)));
        }
        let hint = Hint {
            node: node.number,
            leaf: leaf.at,
        };
        self.router.add(lkey, hint);
        Ok(node)
    }
}

/// What a function makes of all parts, each in a thread of its own if there are several.
pub(super) fn by_threads<P: Send, T: Send>(
    parts: Vec<P>,
    make: impl Fn(P) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    if parts.len() <= 1 {
        return parts.into_iter().map(make).collect();
    }
    std::thread::scope(|scope| {
        let make = &make;
        let threads: Vec<_> = parts
            .into_iter()
            .map(|part| scope.spawn(move || make(part)))
            .collect();
        let joined = threads.into_iter().map(|thread| {
            let made = thread.join();
            made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect()
    })
}

/// The slots of a leaf whose keys are below its end, as bits.
fn kept<const N: usize>(leaf: Leaf<'_, N>, bound: Option<u64>) -> u64 {
    let belongs = |key: u64| bound.is_none_or(|bound| key < bound);
    let kept = leaf.entries().filter(|(_, key, _)| belongs(*key));
    kept.fold(0, |bits, (slot, ..)| bits | 1_u64 << slot)
}

/// What is to be mended in a leaf, if there is anything.
fn mend<const N: usize>(leaf: Leaf<'_, N>, bound: Option<u64>, kept: u64) -> Option<Mend> {
    let hkey = bound.unwrap_or(u64::MAX);
    (leaf.hkey() != hkey || kept != leaf.bitmap()).then_some(Mend {
        leaf: leaf.at,
        hkey,
        bitmap: kept,
    })
}

/// What recovery of the pool asks: whether a tree durably refers to a block. A leaf tells its lkey;
/// if it is in use, the way along the chain to that key ends there. The pool itself answers for its
/// root.
fn is_referenced<const N: usize>(medium: &Medium, claim: Claim) -> bool {
    let root = root_of(medium);
    if root == 0 {
        return false;
    }
    match claim.hint {
        0 => fastfair::is_referenced::<29>(medium, root + BACKUP_AT, claim),
        LEAF_HINT => is_in_chain::<N>(medium, root, claim),
        PAGE_HINT => log::is_in_chain::<N>(medium, root, claim),
        _ => false,
    }
}

fn is_in_chain<const N: usize>(medium: &Medium, root: u64, claim: Claim) -> bool {
    let at = claim.block.raw();
    if !at.is_multiple_of(LEAF_ALIGN) || claim.size < leaf_bytes(N) {
        return false;
    }
    let Some(claimed) = Leaf::<N>::new(medium, at) else {
        return false;
    };
    let lkey = claimed.lkey();
    let known = fastfair::floor_in_leaf::<29>(medium, root + BACKUP_AT, lkey);
    let mut next = known.map_or(root + FIRST_LEAF_AT, |(_, leaf)| leaf);
    for _ in 0..medium.len() / leaf_bytes(N) {
        let Some(leaf) = Leaf::<N>::new(medium, next) else {
            return false;
        };
        if leaf.at == at || leaf.lkey() >= lkey {
            return leaf.at == at;
        }
        next = leaf.next();
    }
    false
}
