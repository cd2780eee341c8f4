//! The tree of nodes: what `blink.rs` is told of them.

use gabion_media::pmem::{Medium, PAtomicU64, Pool};

use super::layout::node_align;
use super::node::{MOVES_LEFT, MOVES_RIGHT, Node, image};
use super::{FastFair, node_at};
use crate::blink::{self, NodeInit, NodeRange, Renewal};
use crate::node_lock::{NodeGuard, NodeLocks};
use crate::{Error, Result};

/// A node that is locked and has no dead slot.
pub(super) type LockedNode<'a, const N: usize> = blink::LockedNode<'a, Node<'a, N>>;

/// A level 0 that is not there, which every tree has.
#[cold]
pub(super) fn no_leaf() -> Error {
    Error::damaged("the topmost node of a FAST&FAIR tree", 0)
}

impl<const N: usize> LockedNode<'_, N> {
    /// The slot of `key`, or the one where it would go.
    pub(super) fn locate(&self, key: u64) -> std::result::Result<usize, usize> {
        // A damaged node may have keys behind those in use.
        let rank = self.node.rank(key).min(self.count);
        match rank.checked_sub(1) {
            Some(slot) if self.node.key(slot) == key => Ok(slot),
            _ => Err(rank),
        }
    }
}

impl<const N: usize> blink::Tree for FastFair<N> {
    type Node<'a> = Node<'a, N>;

    const ROOM: usize = N;
    const ALIGN: u64 = node_align(N);
    const RENEWS: bool = true;

    fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline]
    fn medium(&self) -> &Medium {
        &self.medium
    }

    #[inline]
    fn locks(&self) -> &NodeLocks {
        &self.locks
    }

    #[inline]
    fn node(&self, at: u64) -> Result<Node<'_, N>> {
        node_at(&self.medium, at)
            .ok_or_else(|| Error::damaged("a link or a slot of a FAST&FAIR tree", at))
    }

    #[inline]
    fn top_word(&self) -> &PAtomicU64 {
        &self.header().top
    }

    fn top_lock(&self) -> u64 {
        self.header.raw()
    }

    /// Recovery finds a node by its level and its low, which the node itself tells.
    fn hint(&self) -> u64 {
        0
    }

    fn image(born: &NodeInit, entries: &[(u64, u64)]) -> Vec<u8> {
        image::<N>(born, entries)
    }

    /// Closes the slot that a crash left dead.
    fn tidy<'a>(
        &'a self,
        node: Node<'a, N>,
        range: NodeRange,
        lock: NodeGuard<'a>,
    ) -> LockedNode<'a, N> {
        let survey = node.survey(range.bound);
        let count = survey.count;
        let mut locked = LockedNode {
            node,
            range,
            count,
            lock,
        };
        if let Some(dead) = survey.dead {
            self.remove_at(&mut locked, dead);
        }
        locked
    }

    fn insert_entry<'a>(&'a self, node: &LockedNode<'a, N>, entry: (u64, u64)) {
        if let Err(slot) = node.locate(entry.0) {
            self.insert_at(node, slot, entry);
        }
    }

    fn remove_entry<'a>(&'a self, node: &mut LockedNode<'a, N>, key: u64) {
        if let Ok(slot) = node.locate(key) {
            self.remove_at(node, slot);
        }
    }

    fn clear_behind<'a>(&'a self, node: &LockedNode<'a, N>) {
        node.node.clear_from(&self.medium, node.count);
    }

    fn pass_by(&self, low: u64) -> Result<()> {
        self.bypass(low, &self.pool.enter())
    }

    #[inline]
    fn leaf_before(&self, key: u64) -> Option<u64> {
        self.paths.as_ref()?.find(&key)
    }

    fn note_child(&self, child: &Node<'_, N>) {
        if let Some(paths) = self.paths.as_ref().filter(|_| child.head.level() == 0) {
            paths.add(&child.head.low(), child.at);
        }
    }

    fn note_end(&self, node: &Node<'_, N>) {
        if let Some(paths) = self.paths.as_ref().filter(|_| node.head.level() == 0) {
            paths.forget(&node.head.low());
        }
    }
}

impl<const N: usize> FastFair<N> {
    /// Inserts an entry into a node that has room for it.
    pub(super) fn insert_at(&self, node: &LockedNode<'_, N>, slot: usize, entry: (u64, u64)) {
        node.lock.set_turn(MOVES_RIGHT);
        node.node.insert(&self.medium, slot, node.count, entry);
    }

    /// Takes an entry out of a node.
    pub(super) fn remove_at(&self, node: &mut LockedNode<'_, N>, slot: usize) {
        node.lock.set_turn(MOVES_LEFT);
        node.node.remove(&self.medium, slot, node.count);
        node.count -= 1;
    }
}
