//! What recovery finds in the leaves, without changing anything.
//!
//! From each leaf of a run that the backup names to the next one it is most often one step along
//! the chain; leaves in between are those that the backup did not learn of in time. In a tree of
//! strings each item is looked at: filters are made of whole keys.

use std::borrow::Borrow;
use std::cmp::Ordering;

use super::bloom::{Words, tag_of};
use super::item::{ItemRef, bound_key, compare, key_of};
use super::layout::leaf_bytes;
use super::leaf::{Leaf, slots};
use super::parallel_recovery::{LeafRun, OpenCheck};
use super::{PairCheck, SpTree, TreeKey};
use crate::parallel::by_threads;
use crate::stored_key::{KeyParts, word_of};
use crate::{Error, Result};

/// Leaves that are worth a thread.
const LEAVES_PER_THREAD: usize = 1024;

/// Leaves that the backup names and whose lines are asked for before it is their turn.
const AHEAD: usize = 2;

/// The next leaf of a leaf: its offset, its lkey as it stands there, and the key that this is.
pub(super) struct NextLeaf<K: TreeKey + ?Sized> {
    pub(super) at: u64,
    pub(super) bound: u64,
    pub(super) lkey: K::Owned,
}

/// How the head of a leaf should be that a crash left otherwise: its hkey is the next leaf's lkey,
/// and what is not below that has no bit.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadRepair {
    pub(super) hkey: u64,
    pub(super) bitmap: u64,
}

/// A leaf of a run.
pub(super) struct RunLeaf<K: TreeKey + ?Sized> {
    pub(super) at: u64,
    pub(super) lkey: K::Owned,
    /// Entries, those that are to go not counted.
    pub(super) count: usize,
    /// The last change that the leaf has.
    pub(super) merged: u64,
    pub(super) filter: Words,
    pub(super) mend: Option<HeadRepair>,
    /// Whether the backup names it.
    pub(super) is_named: bool,
}

/// What the heads of some leaves say.
#[derive(Clone, Copy, Debug)]
struct Heads {
    leaves: u64,
    pairs: u64,
    /// Whether each hkey is the lkey of the next leaf.
    are_linked: bool,
}

pub(super) fn damaged(offset: u64) -> Error {
    Error::damaged("the chain of leaves of an SPTree", offset)
}

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// The leaves of a run, all of which is in order.
    pub(super) fn walk(&self, run: &LeafRun<K>) -> Result<Vec<RunLeaf<K>>> {
        let mut ahead = run.starts.iter().skip(AHEAD);
        let mut starts = run.starts.iter().peekable();
        let first = starts.peek().ok_or_else(|| damaged(self.root))?;
        let (mut lkey, mut at) = (*first).clone();
        let mut parts = Vec::with_capacity(run.starts.len());
        loop {
            let (leaf, next) = self.leaf_and_next(at)?;
            if bound_key::<K>(&self.medium, leaf.lkey())? != lkey {
                return Err(damaged(at));
            }
            if next.as_ref().is_some_and(|next| next.lkey <= lkey) {
                return Err(damaged(at));
            }
            let start = (lkey, at);
            let is_named = starts.next_if(|named| **named == start).is_some();
            if let Some((_, later)) = ahead.next().filter(|_| is_named) {
                Leaf::<N>::prefetch_all(&self.medium, *later);
            }
            parts.push(self.part(leaf, next.as_ref(), start.0, is_named)?);
            let next = next.map(|next| (next.lkey, next.at));
            match (next, &run.end) {
                (Some(next), Some(end)) if next == *end => break,
                (None, None) => break,
                (Some(next), end) if end.as_ref().is_none_or(|end| next.0 < end.0) => {
                    (lkey, at) = next;
                }
                _ => return Err(damaged(at)),
            }
        }
        match starts.next() {
            None => Ok(parts),
            // The backup names what is not in the chain.
            Some(_) => Err(damaged(at)),
        }
    }

    /// What there is to be known of a leaf.
    fn part(
        &self,
        leaf: Leaf<'_, N>,
        next: Option<&NextLeaf<K>>,
        lkey: K::Owned,
        is_named: bool,
    ) -> Result<RunLeaf<K>> {
        let mend = self.mend_of(leaf, next)?;
        let kept = mend.map_or(leaf.bitmap(), |mend| mend.bitmap);
        if let Some(holds) = self.recovery.holds() {
            self.check_pairs(leaf, kept, holds)?;
        }
        let mut hashes = Vec::with_capacity(N);
        for slot in slots(kept) {
            let key = key_of::<K>(&self.medium, leaf.pair(slot))?;
            let key: &K = key.borrow();
            hashes.push(key.seeded_hash(&self.seed));
        }
        Ok(RunLeaf {
            at: leaf.at,
            lkey,
            count: hashes.len(),
            merged: leaf.merged(),
            filter: Words::of(hashes.into_iter()),
            mend,
            is_named,
        })
    }

    /// A leaf and the next one.
    pub(super) fn leaf_and_next(&self, at: u64) -> Result<(Leaf<'_, N>, Option<NextLeaf<K>>)> {
        let leaf = self.leaf(at)?;
        let at = leaf.next();
        if at == 0 {
            return Ok((leaf, None));
        }
        let bound = self.leaf(at)?.lkey();
        let lkey = bound_key::<K>(&self.medium, bound)?;
        Ok((leaf, Some(NextLeaf { at, bound, lkey })))
    }

    /// What is to be mended in a leaf, if there is anything.
    pub(super) fn mend_of(
        &self,
        leaf: Leaf<'_, N>,
        next: Option<&NextLeaf<K>>,
    ) -> Result<Option<HeadRepair>> {
        let hkey = next.map_or(u64::MAX, |next| next.bound);
        let bitmap = self.kept(leaf, next)?;
        let is_sound = leaf.hkey() == hkey && leaf.bitmap() == bitmap;
        Ok((!is_sound).then_some(HeadRepair { hkey, bitmap }))
    }

    /// The slots of a leaf whose keys are below its end, as bits.
    fn kept(&self, leaf: Leaf<'_, N>, next: Option<&NextLeaf<K>>) -> Result<u64> {
        let Some(next) = next else {
            return Ok(leaf.bitmap());
        };
        let end: &K = next.lkey.borrow();
        let end = KeyParts::of(end);
        let mut kept = 0;
        for (slot, key, value) in leaf.entries() {
            let order = compare::<K>(&self.medium, [key, value], &end)?;
            kept |= u64::from(order == Ordering::Less) << slot;
        }
        Ok(kept)
    }

    /// Checks the pairs in some slots of a leaf of strings: what the leaf has of each, and what
    /// `holds` says of it.
    fn check_pairs(&self, leaf: Leaf<'_, N>, kept: u64, holds: PairCheck) -> Result<()> {
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

    /// Looks at the heads of all leaves, of which the backup, with so many blocks, names some:
    /// whether they fit to each other, and to the blocks of the pool.
    pub(super) fn look_at_heads(
        &self,
        starts: &[(K::Owned, u64)],
        backup_blocks: u64,
        holds: PairCheck,
    ) -> Result<OpenCheck> {
        let threads = (starts.len() / LEAVES_PER_THREAD + 1).min(self.processors());
        let share = starts.len().div_ceil(threads);
        let ends = starts.iter().skip(share).step_by(share);
        let ends = ends.map(|(_, at)| *at).chain([0]);
        let parts = starts.chunks(share).zip(ends).collect();
        let heads = by_threads(parts, |(part, end)| self.heads(part, end))?;
        let leaves = heads.iter().map(|heads| heads.leaves).sum();
        let pairs: u64 = heads.iter().map(|heads| heads.pairs).sum();
        let are_linked = heads.iter().all(|heads| heads.are_linked);
        let needed = Self::blocks(backup_blocks, leaves, pairs);
        Ok(OpenCheck {
            holds,
            leaves,
            is_sound: are_linked && needed == self.blocks_in_use(),
        })
    }

    /// The heads of the leaves from the first of `starts` on, up to the one at `end`.
    fn heads(&self, starts: &[(K::Owned, u64)], end: u64) -> Result<Heads> {
        let mut heads = Heads {
            leaves: 0,
            pairs: 0,
            are_linked: true,
        };
        let mut ahead = starts.iter().skip(4 * AHEAD);
        let ends = starts.iter().skip(1).map(|(_, at)| *at).chain([end]);
        for ((_, start), end) in starts.iter().zip(ends) {
            if let Some((_, later)) = ahead.next() {
                self.medium.prefetch(*later);
            }
            let mut leaf = self.leaf(*start)?;
            loop {
                heads.leaves += 1;
                heads.pairs += leaf.count() as u64;
                let at = leaf.next();
                let next = (at != 0).then(|| self.leaf(at)).transpose()?;
                heads.are_linked &= leaf.hkey() == next.map_or(u64::MAX, |next| next.lkey());
                if at == end {
                    break;
                }
                // One that leads past the end comes to the last leaf, or to more than there are.
                leaf = next.ok_or_else(|| damaged(leaf.at))?;
                if heads.leaves > self.medium.len() / leaf_bytes(N) {
                    return Err(damaged(leaf.at));
                }
            }
        }
        Ok(heads)
    }

    /// Blocks that a checked tree of strings needs: an item for each pair, and one for the lkey of
    /// each leaf but the first one, which is in the root's block.
    fn blocks(backup_blocks: u64, leaves: u64, pairs: u64) -> u64 {
        backup_blocks + 2 * leaves - 1 + pairs
    }

    /// Blocks of the pool that are in use, after those are free again that nobody needs.
    fn blocks_in_use(&self) -> u64 {
        let _within = self.pool.write_guard();
        self.pool.collect();
        self.pool.stats().used_blocks
    }

    /// Checks that a tree that was recovered has all blocks of the pool, and no others.
    pub(super) fn check_blocks(&self) -> Result<()> {
        let backup_blocks = self.backup.settle()?;
        let needed = Self::blocks(backup_blocks, self.leaves(), self.len()?);
        if needed == self.blocks_in_use() {
            Ok(())
        } else {
            Err(Error::damaged("a reference of an SPTree", self.root))
        }
    }
}
