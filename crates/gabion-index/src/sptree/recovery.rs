//! Making a tree, and finding it again.
//!
//! Recovery takes the leaves that the backup names and cuts them into runs, one for each thread. A
//! thread goes along the chain from each leaf of its run to the next: most often that is one step,
//! and leaves in between are those that the backup did not learn of in time, which it is told of
//! now. On its way it mends what a crash left of a split or a merge, and makes node, filter and
//! router entry of each leaf. Then the leaves take what the logs have for them (`replay.rs`). In a
//! tree of strings it looks at each item, too: filters are made of whole keys.

use std::borrow::Borrow;
use std::cmp::Ordering;

use gabion_media::pmem::{Claim, Class, Medium, Pool, PoolOptions, Reachable};

use super::backup::{Backup, Leaves};
use super::bloom::tag_of;
use super::buffer::Buffers;
use super::item::{ItemRef, LEAST, bound_key, compare, compare_bound, key_of};
use super::layout::{
    BACKUP_AT, ITEM_HINT, LEAF_ALIGN, MOVING_AT, Moving, first_leaf_at, leaf_bytes,
};
use super::leaf::{Change, Leaf, slots};
use super::log::{self, Logs};
use super::mnode::{Born, Locked, Mnodes};
use super::router::{Hint, Router};
use super::steps::{Step, is_made};
use super::{Holds, Options, SpTree, Tending, TreeKey};
use crate::index::{Plan, root_of};
use crate::spoton::layout::PAGE_HINT;
use crate::stored::{Parts, word_of};
use crate::{Error, Result, Seed, root};

/// Leaves that are worth a thread.
const LEAVES_PER_THREAD: usize = 1024;

/// A tree that was found.
pub(super) struct Found<K: TreeKey + ?Sized, const N: usize> {
    pub(super) tree: SpTree<K, N>,
    /// Blocks of its backup, unless that was told of leaves since they were counted.
    pub(super) backup_blocks: Option<u64>,
}

/// Leaves that the backup names and whose lines are asked for before it is their turn.
const AHEAD: usize = 2;

/// What a thread has recovered.
struct Run<'a, K: TreeKey + ?Sized> {
    /// Number of the first node.
    first: u64,
    last: Locked<'a>,
    /// Leaves that the backup does not name.
    missing: Leaves<K>,
    /// What is to be mended.
    mends: Vec<Mend>,
}

/// The next leaf of a leaf: its offset, its lkey as it stands there, and the key that this is.
struct Next<K: TreeKey + ?Sized> {
    at: u64,
    bound: u64,
    lkey: K::Owned,
}

/// What a crash left half done in a leaf, and how the leaf should be: its hkey is the next leaf's
/// lkey, and what is not below that has no bit.
struct Mend {
    leaf: u64,
    hkey: u64,
    bitmap: u64,
}

fn damaged(offset: u64) -> Error {
    Error::damaged("the chain of leaves of an SPTree", offset)
}

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
    pub fn create(pool: &Pool, plan: Plan) -> Result<Self> {
        Self::make(pool, plan, Options::default(), Tending::Thread)
    }

    pub(super) fn make(
        pool: &Pool,
        plan: Plan,
        options: Options,
        tending: Tending,
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
        Ok(Self::find(pool, options, tending, None)?.tree)
    }

    /// Finds the tree that is the root of `pool`, and makes what it has in DRAM: costs a look at
    /// the whole backup, at each leaf, at each item if keys are strings, and at each page of the
    /// logs, by all processors. If it had write buffers, it has none now, and its logs are given
    /// up.
    ///
    /// # Errors
    /// No tree there, one with leaves of another size, or damage on the medium.
    pub fn open(pool: &Pool) -> Result<Self> {
        Ok(Self::find(pool, Options::default(), Tending::Thread, None)?.tree)
    }

    /// Finds the tree. What `holds` denies of the key and the value of a pair is damage.
    pub(super) fn find(
        pool: &Pool,
        options: Options,
        tending: Tending,
        holds: Option<Holds>,
    ) -> Result<Found<K, N>> {
        let root = pool.root::<Moving>().raw();
        if root == 0 {
            return Err(Error::NoRoot);
        }
        let [_, seed, _, pairs, ..] = root::read(pool, root, K::MAGIC)?;
        if pairs != Self::PAIRS {
            return Err(Error::OtherKind);
        }
        let seed = Seed::new(seed);
        let _within = pool.write_guard();
        let leaves = pool.len() / leaf_bytes(N);
        let tree = SpTree {
            medium: Medium::clone(pool),
            pool: pool.clone(),
            root,
            seed,
            saves_reads: pool.class() == Class::Power,
            nodes: Mnodes::new(leaves),
            router: Router::new(pool, leaves)?,
            backup: Backup::open(pool, root + BACKUP_AT, tending)?,
            buffers: Buffers::new(options.buffer_bytes, leaves),
            logs: Logs::open(pool, root + MOVING_AT, seed),
        };
        // Scans go by the backup's invariants: a damaged one could keep them for ever.
        let backup_blocks = tree.backup.check()?;
        let is_backup_whole = tree.recover(holds)?;
        tree.replay()?;
        Ok(Found {
            tree,
            backup_blocks: Some(backup_blocks).filter(|_| is_backup_whole),
        })
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

    /// Threads that may help to open the tree: on a medium that somebody watches none.
    pub(super) fn processors(&self) -> usize {
        if self.medium.is_watched() {
            return 1;
        }
        std::thread::available_parallelism().map_or(1, |count| count.get())
    }

    /// Recovers all leaves, and says whether the backup named them all.
    fn recover(&self, holds: Option<Holds>) -> Result<bool> {
        let least = bound_key::<K>(&self.medium, LEAST)?;
        let mut starts = vec![(least, self.root + Self::FIRST_LEAF_AT)];
        starts.extend(self.backup.leaves()?);
        let threads = (starts.len() / LEAVES_PER_THREAD + 1).min(self.processors());
        let share = starts.len().div_ceil(threads);
        let ends = starts.iter().skip(share).step_by(share).cloned().map(Some);
        let parts = starts.chunks(share).zip(ends.chain([None]));
        let runs = by_threads(parts.collect(), |(part, end)| {
            self.recover_run(part, end, holds)
        })?;
        for (run, next) in runs.iter().zip(runs.iter().skip(1)) {
            let node = self.nodes.get(next.first);
            run.last.set_hkey(node.map_or(u64::MAX, |node| node.lkey()));
            run.last.link(node.map(|node| (next.first, node)));
        }
        let is_backup_whole = runs.iter().all(|run| run.missing.is_empty());
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
        Ok(is_backup_whole)
    }

    /// Recovers the leaves from the first of `starts` on, until the one at `end` or the last one.
    fn recover_run(
        &self,
        starts: &[(K::Owned, u64)],
        end: Option<(K::Owned, u64)>,
        holds: Option<Holds>,
    ) -> Result<Run<'_, K>> {
        let mut ahead = starts.iter().skip(AHEAD);
        let mut starts = starts.iter().cloned().peekable();
        let (mut lkey, mut at) = starts.peek().cloned().ok_or_else(|| damaged(self.root))?;
        let (mut missing, mut mends) = (Vec::new(), Vec::new());
        let mut before: Option<Locked<'_>> = None;
        let mut first = None;
        let _pins = self.pin();
        loop {
            let leaf = self.leaf(at)?;
            if bound_key::<K>(&self.medium, leaf.lkey())? != lkey {
                return Err(damaged(at));
            }
            let next = self.next_of(leaf)?;
            if next.as_ref().is_some_and(|next| next.lkey <= lkey) {
                return Err(damaged(at));
            }
            let kept = self.kept(leaf, next.as_ref())?;
            if let Some(holds) = holds {
                self.check_pairs(leaf, kept, holds)?;
            }
            if is_made(Step::Mend) {
                mends.extend(mend(leaf, next.as_ref().map(|next| next.bound), kept));
            }
            let start = (lkey, at);
            let is_known = starts.next_if_eq(&start).is_some();
            if let Some((_, later)) = ahead.next().filter(|_| is_known) {
                Leaf::<N>::prefetch_all(&self.medium, *later);
            }
            let node = self.enlist(leaf, &start.0, kept, before.as_ref())?;
            if !is_known {
                missing.push(start);
            }
            first = first.or(Some(node.number));
            before = Some(node);
            let next = next.map(|next| (next.lkey, next.at));
            match (next, &end) {
                (Some(next), Some(end)) if next == *end => break,
                (None, None) => break,
                (Some(next), end) if end.as_ref().is_none_or(|end| next.0 < end.0) => {
                    (lkey, at) = next;
                }
                _ => return Err(damaged(at)),
            }
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

    /// The next leaf of a leaf.
    fn next_of(&self, leaf: Leaf<'_, N>) -> Result<Option<Next<K>>> {
        let at = leaf.next();
        if at == 0 {
            return Ok(None);
        }
        let bound = self.leaf(at)?.lkey();
        let lkey = bound_key::<K>(&self.medium, bound)?;
        Ok(Some(Next { at, bound, lkey }))
    }

    /// The slots of a leaf whose keys are below its end, as bits.
    fn kept(&self, leaf: Leaf<'_, N>, next: Option<&Next<K>>) -> Result<u64> {
        let Some(next) = next else {
            return Ok(leaf.bitmap());
        };
        let end: &K = next.lkey.borrow();
        let end = Parts::of(end);
        let mut kept = 0;
        for (slot, key, value) in leaf.entries() {
            let order = compare::<K>(&self.medium, [key, value], &end)?;
            kept |= u64::from(order == Ordering::Less) << slot;
        }
        Ok(kept)
    }

    /// Checks the pairs in some slots of a leaf of strings: what the leaf has of each, and what
    /// `holds` says of it.
    fn check_pairs(&self, leaf: Leaf<'_, N>, kept: u64, holds: Holds) -> Result<()> {
        for slot in slots(kept) {
            let [word, at] = leaf.pair(slot);
            let item = ItemRef::new(&self.medium, at)?;
            let key = item.key();
            let of_pair = K::rebuild(word_of(&key), &key);
            let of_pair: &K = of_pair.borrow();
            let is_tagged = leaf.tag(slot) == tag_of(of_pair.seeded_hash(&self.seed));
            if !is_tagged || word != word_of(&key) || !holds(&key, &item.value()) {
                return Err(Error::damaged("a pair of an SPTree", at));
            }
        }
        Ok(())
    }

    /// Makes the node of a leaf, on the right of another one, which gets its end by that.
    fn enlist(
        &self,
        leaf: Leaf<'_, N>,
        lkey: &K::Owned,
        kept: u64,
        before: Option<&Locked<'_>>,
    ) -> Result<Locked<'_>> {
        let bound = if leaf.lkey() == LEAST {
            LEAST
        } else {
            let bound = self.router.bound(lkey.borrow())?;
            let word = bound.word;
            bound.commit();
            word
        };
        let born = Born {
            leaf: leaf.at,
            lkey: bound,
            hkey: u64::MAX,
            next: 0,
            prev: 0,
            count: kept.count_ones() as usize,
            merged: leaf.merged(),
        };
        let node = self.nodes.add(born).ok_or_else(|| damaged(leaf.at))?;
        let mut hashes = Vec::with_capacity(N);
        for slot in slots(kept) {
            let key = key_of::<K>(&self.medium, leaf.pair(slot))?;
            let key: &K = key.borrow();
            hashes.push(key.seeded_hash(&self.seed));
        }
        node.bloom.refill(hashes.into_iter());
        if let Some(before) = before {
            before.set_hkey(bound);
            before.link(Some((node.number, &node)));
        }
        let hint = Hint {
            node: node.number,
            leaf: leaf.at,
        };
        self.router.add(lkey.borrow(), hint);
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

/// What is to be mended in a leaf, if there is anything.
fn mend<const N: usize>(leaf: Leaf<'_, N>, bound: Option<u64>, kept: u64) -> Option<Mend> {
    let hkey = bound.unwrap_or(u64::MAX);
    (leaf.hkey() != hkey || kept != leaf.bitmap()).then_some(Mend {
        leaf: leaf.at,
        hkey,
        bitmap: kept,
    })
}

/// What recovery of the pool asks: whether a tree durably refers to a block. A leaf and an item
/// tell a key; if they are in use, the way along the chain to that key ends at the leaf, or at that
/// which refers to the item. The pool itself answers for its root.
fn is_referenced<K: TreeKey + ?Sized, const N: usize>(medium: &Medium, claim: Claim) -> bool {
    let root = root_of(medium);
    if root == 0 {
        return false;
    }
    match claim.hint {
        hint if hint == K::LEAF_HINT => is_in_chain::<K, N>(medium, root, claim) == Some(true),
        PAGE_HINT if K::IS_WORD => log::is_in_chain::<N>(medium, root + MOVING_AT, claim),
        ITEM_HINT if !K::IS_WORD => is_item::<K, N>(medium, root, claim) == Some(true),
        _ => K::is_in_backup(medium, root + BACKUP_AT, claim),
    }
}

fn is_in_chain<K: TreeKey + ?Sized, const N: usize>(
    medium: &Medium,
    root: u64,
    claim: Claim,
) -> Option<bool> {
    let at = claim.block.raw();
    if !at.is_multiple_of(LEAF_ALIGN) || claim.size < leaf_bytes(N) {
        return None;
    }
    let lkey = Leaf::<N>::new(medium, at)?.lkey();
    let lkey = bound_key::<K>(medium, lkey).ok()?;
    Some(leaf_of::<K, N>(medium, root, &lkey)?.at == at)
}

fn is_item<K: TreeKey + ?Sized, const N: usize>(
    medium: &Medium,
    root: u64,
    claim: Claim,
) -> Option<bool> {
    let at = claim.block.raw();
    let key = key_of::<K>(medium, [0, at]).ok()?;
    let leaf = leaf_of::<K, N>(medium, root, &key)?;
    let is_bound = leaf.lkey() == at && at != LEAST;
    Some(is_bound || leaf.entries().any(|(_, _, value)| value == at))
}

/// The last leaf of the chain whose lkey is not above a key.
fn leaf_of<'m, K: TreeKey + ?Sized, const N: usize>(
    medium: &'m Medium,
    root: u64,
    key: &K::Owned,
) -> Option<Leaf<'m, N>> {
    let key: &K = key.borrow();
    let parts = Parts::of(key);
    let known = K::leaf_in_backup(medium, root + BACKUP_AT, key);
    let first = root + SpTree::<K, N>::FIRST_LEAF_AT;
    let mut leaf = Leaf::<N>::new(medium, known.unwrap_or(first))?;
    for _ in 0..medium.len() / leaf_bytes(N) {
        let next = leaf.next();
        if next == 0 {
            return Some(leaf);
        }
        let next = Leaf::<N>::new(medium, next)?;
        if compare_bound::<K>(medium, next.lkey(), &parts).ok()? == Ordering::Greater {
            return Some(leaf);
        }
        leaf = next;
    }
    None
}

impl<const N: usize> SpTree<u64, N> {
    /// As [`SpTree::create`], with write buffers.
    ///
    /// # Errors
    /// As [`SpTree::create`].
    pub fn create_with(pool: &Pool, plan: Plan, options: Options) -> Result<Self> {
        Self::make(pool, plan, options, Tending::Thread)
    }

    /// As [`SpTree::open`]. A tree may be opened with another budget than it had before.
    ///
    /// # Errors
    /// As [`SpTree::open`].
    pub fn open_with(pool: &Pool, options: Options) -> Result<Self> {
        Ok(Self::find(pool, options, Tending::Thread, None)?.tree)
    }
}
