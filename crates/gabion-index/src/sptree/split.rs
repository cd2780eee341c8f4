//! Growth: a leaf that is full with its write buffer gives the upper half of its entries to a new
//! one.
//!
//! The paper's steps:
//! 0. What is in the write buffer comes into the leaf, durably, so that both leaves have it and
//!    neither needs the logs before this.
//! 1. The writer holds the lock of the full leaf's node. The paper locks the next one, too; here
//!    the one link of that node that changes belongs to the holder of its left neighbour's lock.
//! 2. The new leaf, with the upper half, the old hkey and the old next, is made durable; then the
//!    full leaf's `next` leads to it, which is what makes its block allocated.
//! 3. The full leaf's hkey and bitmap drop what has moved. All three words lie in one line and
//!    reach the medium in this order, so one persist does for 2 and 3.
//! 4. The node of the new leaf is linked, and the router and the backup are told.
//!
//! The bounds of a new leaf, if keys are strings, are durable with it. They are no longer than it
//! takes to tell the greatest key that stays from the least one that goes.
//!
//! A crash between 2 and 3 leaves a leaf whose hkey is above its right neighbour's lkey, and both
//! have the same entries there: recovery finishes the split. (The paper drops the new leaf.)

use std::borrow::Borrow;

use super::item::{Bound, bound_between, key_of};
use super::layout::{LEAF_ALIGN, leaf_bytes};
use super::leaf::{HeadChange, LeafInit, Tagged, image};
use super::mnode::{LockedNode, NodeInit};
use super::router::SearchStart;
use super::steps::{Step, is_taken};
use super::{SpTree, TreeKey};
use crate::{Error, Result};

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// Splits the full leaf of a node.
    #[cold]
    pub(super) fn split(&self, node: LockedNode<'_>) -> Result<()> {
        if is_taken(Step::FlushBeforeSplit) {
            self.flush(&node)?;
        }
        let leaf = self.leaf(node.leaf())?;
        let entry = |(slot, key, value)| Ok((key_of::<K>(&self.medium, [key, value])?, slot));
        let entries: Result<Vec<(K::Owned, usize)>> = leaf.entries().map(entry).collect();
        let mut entries = entries?;
        if entries.len() <= N / 2 {
            return Err(Error::damaged("the bitmap of a full leaf", leaf.at));
        }
        let (lower, (first, _), _) = entries.select_nth_unstable(N / 2);
        let kept = lower.iter().fold(0, |bits, (_, slot)| bits | 1 << slot);
        let last = lower.iter().map(|(key, _)| key).max();
        let mid = last.map_or_else(
            || first.clone(),
            |last| bound_between::<K>(last.borrow(), (*first).borrow()),
        );
        let (lower, upper) = entries.split_at(N / 2);
        let tagged = |&(_, slot): &(K::Owned, usize)| Tagged {
            key: leaf.key(slot),
            value: leaf.value(slot),
            tag: leaf.tag(slot),
        };
        let moved: Vec<Tagged> = upper.iter().map(tagged).collect();
        let bound = Bound::new::<K>(&self.pool, mid.borrow())?;
        let bound_of_node = self.router.bound(mid.borrow())?;
        let start = LeafInit {
            next: leaf.next(),
            lkey: bound.word,
            hkey: leaf.hkey(),
            merged: if is_taken(Step::Inherit) {
                leaf.merged()
            } else {
                0
            },
        };
        let space = self
            .pool
            .alloc_aligned(leaf_bytes(N), LEAF_ALIGN, K::LEAF_HINT)?;
        let at = space.offset::<u8>().raw();
        let born = NodeInit {
            leaf: at,
            lkey: bound_of_node.word,
            hkey: node.hkey(),
            next: node.next(),
            prev: node.number + 1,
            count: moved.len(),
            merged: leaf.merged(),
        };
        // Before anything is published, so that nothing has changed if there is none.
        let new = self.nodes.add(born).ok_or(Error::Limit {
            what: "number of leaves",
            bytes: self.medium.len(),
            limit: self.medium.len(),
        })?;
        let bytes = image(start, N, &moved);
        self.medium.write(at, &bytes);
        self.medium.flush_range(at, bytes.len() as u64);
        // DURABLE: the new leaf, before the full one leads to it.
        self.medium.fence();
        leaf.change_head(&[
            HeadChange::Next(at),
            HeadChange::Hkey(bound.word),
            HeadChange::Bitmap(kept),
        ]);
        space.commit::<u8>();
        bound.commit();

        let hashes = |keys: &[(K::Owned, usize)]| -> Vec<u64> {
            let keys = keys.iter().map(|(key, _)| key.borrow());
            keys.map(|key: &K| key.seeded_hash(&self.seed)).collect()
        };
        new.bloom.refill(hashes(upper).into_iter());
        node.bloom.refill(hashes(lower).into_iter());
        let number = new.number;
        let right = new.next().checked_sub(1);
        new.link(right.and_then(|right| Some((right, self.nodes.get(right)?))));
        node.set_hkey(bound_of_node.word);
        bound_of_node.commit();
        node.set_count(lower.len());
        node.note_change();
        node.link(self.nodes.get(number).map(|new| (number, new)));
        let hint = SearchStart {
            node: number,
            leaf: at,
        };
        self.router.add(mid.borrow(), hint);
        self.backup.add(mid, at);
        Ok(())
    }
}
