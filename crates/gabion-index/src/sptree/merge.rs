//! Shrinking: a leaf with few entries gives them to its left neighbour.
//!
//! The paper's steps, for a left and a right leaf with room for both's entries in the left one:
//! 0. What is in both write buffers comes into the leaves, durably.
//! 1. The writer holds the locks of both nodes. The second is taken without waiting where that
//!    could be for each other. The backup forgets the right leaf, durably (the paper does this
//!    last): so it never names a leaf that is gone.
//! 2. The right leaf's entries are put into the left leaf in two phases. They are at or above
//!    the left leaf's hkey, so they do not count yet.
//! 3. The left leaf's hkey becomes that of the right one, and its `next`, too, which drops the
//!    right leaf. Bitmap, hkey and next lie in one line and reach the medium in this order.
//! 4. The router and the middle layer forget the right node.
//!
//! A crash after 2 leaves pairs at or above the hkey, which recovery takes out; one between hkey
//! and next leaves two leaves whose ranges overlap, as a split does, and recovery takes the left
//! one's back. The right leaf is whole until it is dropped. A crash after 1 leaves a leaf that the
//! backup does not name, as a split does.

use std::borrow::Borrow;

use gabion_media::pmem::POff;

use super::item::{LEAST, key_of};
use super::layout::ITEM_HINT;
use super::leaf::{HeadChange, Tagged};
use super::mnode::LockedNode;
use super::readpath::NodeSearch;
use super::steps::{Step, is_taken};
use super::{SpTree, TreeKey};
use crate::Result;

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// Entries that two leaves may have together to become one: half of a leaf, lest it is split
    /// soon after.
    const MERGED_MAX: usize = N / 2;

    /// Merges the leaf of a node with a neighbour if both have few entries and nobody else is at
    /// work there.
    #[cold]
    pub(super) fn merge_around(&self, node: LockedNode<'_>) -> Result<()> {
        let right = node.next().checked_sub(1);
        if let Some(right) = right.and_then(|right| self.try_lock(right))
            && Self::fit(&node, &right)
        {
            return self.merge(&node, right);
        }
        let left = node.prev().checked_sub(1);
        if let Some(left) = left.and_then(|left| self.try_lock(left))
            && left.next() == node.number + 1
            && Self::fit(&left, &node)
        {
            return self.merge(&left, node);
        }
        Ok(())
    }

    /// Merges all neighbours that have few entries.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn compact(&self) -> Result<()> {
        let mut key = self.router.key(LEAST)?;
        loop {
            let _within = self.pool.write_guard();
            let _pins = self.pin();
            let node = NodeSearch::new(self, key.borrow()).lock()?;
            let Some(number) = node.next().checked_sub(1) else {
                return Ok(());
            };
            // Whoever holds a lock waits only for those on the right. By its number: a search for
            // it by key may come along the node itself, whose lock is held.
            let Some(right) = self.nodes.lock(number) else {
                // It is raw; nobody else merges it into this one.
                drop(node);
                self.recover_run(number)?;
                continue;
            };
            if Self::fit(&node, &right) {
                key = self.router.key(node.lkey())?;
                self.merge(&node, right)?;
            } else {
                key = self.router.key(right.lkey())?;
            }
        }
    }

    fn try_lock(&self, number: u64) -> Option<LockedNode<'_>> {
        let node = self.nodes.get(number)?;
        node.try_lock(number)
    }

    fn fit(left: &LockedNode<'_>, right: &LockedNode<'_>) -> bool {
        left.count() + right.count() <= Self::MERGED_MAX
    }

    /// Merges the leaf of `right` into that of its left neighbour.
    fn merge(&self, node: &LockedNode<'_>, right: LockedNode<'_>) -> Result<()> {
        if is_taken(Step::FlushBeforeMerge) {
            self.flush(node)?;
            self.flush(&right)?;
        }
        let guard = self.pool.enter();
        let (left_leaf, right_leaf) = (self.leaf(node.leaf())?, self.leaf(right.leaf())?);
        let (lkey, bound) = (self.router.key(right.lkey())?, right.lkey());
        let retire = |at: u64, hint| self.pool.retire(POff::<u8>::new(at), hint);
        let retiring = retire(right_leaf.at, K::LEAF_HINT)?;
        let retiring_bound = if K::IS_WORD {
            None
        } else {
            Some(retire(right_leaf.lkey(), ITEM_HINT)?)
        };
        let mut hashes = Vec::with_capacity(right_leaf.count());
        let mut moved = Vec::with_capacity(right_leaf.count());
        for (slot, key, value) in right_leaf.entries() {
            let owned = key_of::<K>(&self.medium, [key, value])?;
            let of_entry: &K = owned.borrow();
            hashes.push(of_entry.seeded_hash(&self.seed));
            moved.push(Tagged {
                key,
                value,
                tag: right_leaf.tag(slot),
            });
        }
        if is_taken(Step::Forget) {
            self.backup.forget(lkey.borrow())?;
        }
        let merged = left_leaf.merged().max(right_leaf.merged());
        left_leaf.put_and(
            &moved,
            0,
            &[
                HeadChange::Merged(merged),
                HeadChange::Hkey(right_leaf.hkey()),
                HeadChange::Next(right_leaf.next()),
            ],
        );
        retiring.commit(&guard);
        if let Some(retiring) = retiring_bound {
            retiring.commit(&guard);
        }

        hashes.into_iter().for_each(|hash| node.bloom.add(hash));
        node.note_change();
        node.set_count(node.count() + right.count());
        node.set_last(merged);
        node.set_merged(merged);
        self.release_buffer(&right);
        node.set_hkey(right.hkey());
        let next = right.next().checked_sub(1);
        node.link(next.and_then(|next| Some((next, self.nodes.get(next)?))));
        self.router.remove(lkey.borrow());
        let number = right.number;
        right.bury();
        self.router.give_up(bound);
        self.nodes.give_back(number);
        Ok(())
    }
}
