//! A layer: a B-link tree of slices.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Medium, PAtomicU64, POff, Pool};

use super::damaged;
use super::layout::{HINT_NODE, NODE_ALIGN, NODE_BYTES, ParentLayer, SLOTS};
use super::node::{Node, image};
use crate::blink::{self, Head, NodeInit, NodeRange};
use crate::node_lock::{NodeGuard, NodeLocks};
use crate::{Error, Result};

/// A layer. What it refers to lies in the tree that it is a layer of.
#[derive(Clone, Copy)]
pub(super) struct Layer<'t> {
    pub(super) medium: &'t Medium,
    pub(super) pool: &'t Pool,
    pub(super) locks: &'t NodeLocks,
    /// Offset of the first leaf.
    pub(super) first: u64,
}

/// A node that is locked and has no entry behind its bound.
pub(super) type LockedNode<'a> = blink::LockedNode<'a, Node<'a>>;

impl<'t> Layer<'t> {
    /// The first leaf. Whoever went to this layer has seen it.
    #[inline]
    pub(super) fn first_leaf(&self) -> Node<'t> {
        let node = Node::new(self.medium, self.first);
        node.expect("the leaf was there when the layer was found")
    }
}

impl Layer<'_> {
    /// Tells of damage if a layer that a slice of this one leads to does not say that it belongs
    /// there: else a wrong bit could lead in a circle.
    pub(super) fn expect_below(&self, word: u64, first: u64) -> Result<()> {
        let above = above(self.medium, first);
        // ORDER: Relaxed: these words do not change.
        let words = above.map(|above| {
            let first = above.first.load(self.medium, Ordering::Relaxed);
            (first, above.slice.load(self.medium, Ordering::Relaxed))
        });
        if words != Some((self.first, word)) {
            return Err(Error::damaged("the place of a layer", first));
        }
        Ok(())
    }
}

/// Where the layer of a first leaf belongs.
pub(super) fn above(medium: &Medium, first: u64) -> Option<&ParentLayer> {
    medium.try_at(POff::new(first.checked_add(NODE_BYTES)?))
}

// ORDER: Release throughout: pairs with the acquiring loads of `Node`.
impl blink::Tree for Layer<'_> {
    type Node<'a>
        = Node<'a>
    where
        Self: 'a;

    const ROOM: usize = SLOTS;
    const ALIGN: u64 = NODE_ALIGN;

    fn pool(&self) -> &Pool {
        self.pool
    }

    #[inline]
    fn medium(&self) -> &Medium {
        self.medium
    }

    #[inline]
    fn locks(&self) -> &NodeLocks {
        self.locks
    }

    #[inline]
    fn node(&self, at: u64) -> Result<Node<'_>> {
        Node::new(self.medium, at).ok_or_else(|| damaged(at))
    }

    #[inline]
    fn top_word(&self) -> &PAtomicU64 {
        &self.first_leaf().body.top
    }

    fn top_lock(&self) -> u64 {
        self.first
    }

    fn is_gone(&self) -> bool {
        let head: &Head = &self.first_leaf().body.head;
        head.range().is_dead()
    }

    fn hint(&self) -> u64 {
        self.first | HINT_NODE
    }

    fn image(born: &NodeInit, entries: &[(u64, u64)]) -> Vec<u8> {
        image(born, 0, entries)
    }

    fn tidy<'a>(&'a self, node: Node<'a>, range: NodeRange, lock: NodeGuard<'a>) -> LockedNode<'a> {
        let mut permutation = node.permutation();
        let is_behind = |rank| !range.is_below_bound(node.slice(permutation.slot(rank)));
        let count = permutation.count();
        let behind = (0..count).rev().take_while(|&rank| is_behind(rank)).count();
        if behind > 0 {
            permutation = permutation.cut(count - behind);
            let word = &node.body.permutation;
            // DURABLE: that slots are free, before they are used.
            word.store_persist(self.medium, permutation.0, Ordering::Release);
            // Readers that have the permutation from before must look again before one of these
            // slots is written: they would go astray by its slice.
            lock.step();
        }
        let count = permutation.count();
        LockedNode {
            node,
            range,
            count,
            lock,
        }
    }

    fn insert_entry<'a>(&'a self, node: &LockedNode<'a>, entry: (u64, u64)) {
        let LockedNode { node, .. } = node;
        let permutation = node.permutation();
        let slot = &node.body.slots[permutation.slot(permutation.count())];
        slot.slice.store(self.medium, entry.0, Ordering::Release);
        slot.value.store(self.medium, entry.1, Ordering::Release);
        // DURABLE: the slot, before the permutation names it, and what the value leads to.
        self.medium.persist(slot);
        let permutation = permutation.with(node.rank(permutation, entry.0));
        let word = &node.body.permutation;
        // DURABLE: the entry.
        word.store_persist(self.medium, permutation.0, Ordering::Release);
    }

    fn remove_entry<'a>(&'a self, locked: &mut LockedNode<'a>, key: u64) {
        let node = locked.node;
        let permutation = node.permutation();
        let rank = node.rank(permutation, key).checked_sub(1);
        let rank = rank.filter(|&rank| node.slice(permutation.slot(rank)) == key);
        if let Some(rank) = rank {
            let word = &node.body.permutation;
            // DURABLE: the end of the entry.
            word.store_persist(self.medium, permutation.without(rank).0, Ordering::Release);
            locked.count -= 1;
        }
    }

    /// No entry is behind the bound of a node in order.
    fn clear_behind<'a>(&'a self, _node: &LockedNode<'a>) {}

    fn forget_from(&self, node: &Node<'_>, bound: u64) {
        let permutation = node.permutation();
        let count = match bound.checked_sub(1) {
            Some(last) => node.rank(permutation, last),
            None => 0,
        };
        // In the line of the head and after the link, so that no entry is lost between them.
        let word = &node.body.permutation;
        word.store(self.medium, permutation.cut(count).0, Ordering::Release);
    }
}
