//! The path down to a key: the places of children, and when a value read there may be used.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, POff};

use super::bits::Position;
use super::layout::{Child, RootBlock};
use super::node::Node;
use super::{Hot, damaged};
use crate::leaf::LeafRef;
use crate::line::LINE_BYTES;
use crate::{Item, Result};

/// Lines that are asked for of a node before its state tells how many it has.
const PREFETCHED_LINES: u64 = 6;

/// Steps that a way has room for at first: as many as it has in a trie of some millions of random
/// words, and few enough that the memory is given by the thread's own cache of `malloc`.
const STEPS: usize = 8;

/// A word with a child: a slot of a node, or the root.
#[derive(Clone, Copy)]
pub(super) struct ChildWord<'a> {
    /// The node, but for the root.
    pub(super) node: Option<Node<'a>>,
    pub(super) slot: usize,
    pub(super) word: &'a PAtomicU64,
    /// The offset by which it is locked.
    pub(super) lock: u64,
}

impl<'a> ChildWord<'a> {
    #[inline]
    pub(super) fn of(node: Node<'a>, slot: usize) -> ChildWord<'a> {
        ChildWord {
            node: Some(node),
            slot,
            word: node.slot(slot),
            lock: node.at,
        }
    }

    /// Whether nothing leads here any more.
    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        self.node.is_some_and(|node| node.is_dead())
    }

    /// Whether the place is in use and has this child. Under its lock this stays so.
    #[inline]
    pub(super) fn has(&self, child: Child) -> bool {
        // ORDER: Acquire: what is read afterwards is no older than the child.
        self.word.peek(Ordering::Acquire) == child.0 && !self.is_dead()
    }
}

/// A place on a way, and the child that was there: the next place is in it.
#[derive(Clone, Copy)]
pub(super) struct PathStep<'a> {
    pub(super) place: ChildWord<'a>,
    pub(super) child: Child,
}

/// The number of the step at whose node a key parts, at a bit, from what the way leads to: the
/// lowest whose first bit comes before that; 0 if there is none.
pub(super) fn host(path: &[PathStep<'_>], position: Position) -> usize {
    let is_host = |step: &PathStep<'_>| {
        let first = step.place.node.map(|node| node.first_position());
        first.is_some_and(|first| first < position)
    };
    path.iter().rposition(is_host).unwrap_or(0)
}

impl<K: Item + ?Sized> Hot<K> {
    /// The place of the topmost child.
    #[inline]
    pub(super) fn root(&self) -> ChildWord<'_> {
        let top: &RootBlock = self.medium.at(POff::new(self.top));
        ChildWord {
            node: None,
            slot: 0,
            word: &top.child,
            lock: self.top,
        }
    }

    /// The child at a place.
    #[inline]
    pub(super) fn child(&self, place: &ChildWord<'_>) -> Child {
        // ORDER: Acquire pairs with the release that published the child.
        Child(place.word.load(&self.medium, Ordering::Acquire))
    }

    /// Asks for the first line of a leaf, or the first ones of a node.
    #[inline]
    pub(super) fn prefetch(&self, child: Child) {
        let lines = if child.is_node() { PREFETCHED_LINES } else { 1 };
        for line in 0..lines {
            self.medium.prefetch(child.at() + line * LINE_BYTES);
        }
    }

    /// The node that a child is. Asks for its lines at once: where in it the search goes on is
    /// told by the first one, and again by the partial keys.
    #[inline]
    pub(super) fn node(&self, child: Child) -> Result<Node<'_>> {
        self.prefetch(child);
        let node = child.is_node().then(|| Node::new(&self.medium, child.at()));
        node.flatten().ok_or_else(|| damaged(child.at()))
    }

    /// The node that is the child at a place.
    #[inline]
    pub(super) fn node_below(&self, place: &ChildWord<'_>, child: Child) -> Result<Node<'_>> {
        let node = self.node(child)?;
        // Else a wrong bit could lead in a circle.
        match place.node {
            Some(above) if above.height() <= node.height() => Err(damaged(node.at)),
            _ => Ok(node),
        }
    }

    /// Tells of damage if the node of a place is given up and the place above still leads there:
    /// it was taken out before, of that one or of its replacement, until which that one is locked.
    #[cold]
    pub(super) fn expect_replaced(
        &self,
        above: &ChildWord<'_>,
        place: &ChildWord<'_>,
    ) -> Result<()> {
        let is_dead = place.is_dead() && !self.locks.is_locked(above.lock);
        let child = Child::node(place.lock);
        if is_dead && above.has(child) {
            return Err(damaged(child.at()));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn leaf(&self, child: Child) -> Result<LeafRef<'_>> {
        let leaf = child
            .is_leaf()
            .then(|| LeafRef::new(&self.medium, child.at()));
        leaf.flatten().ok_or_else(|| damaged(child.at()))
    }

    /// Sees to it that what was read at a place, a child or the value of the leaf that is the
    /// child, is durable after a fence, for which it asks if one is needed. False if it may not be
    /// used: then its lock says nothing about it any more.
    #[inline]
    pub(super) fn vouch(
        &self,
        place: &ChildWord<'_>,
        child: Child,
        leaf: Option<LeafRef<'_>>,
        must_fence: &mut bool,
    ) -> bool {
        if self.locks.is_locked(place.lock) {
            self.flush_seen(place, leaf);
            *must_fence = true;
            return true;
        }
        // A leaf that has another place by now, below this one, may have been changed there.
        leaf.map_or(!place.is_dead(), |_| place.has(child))
    }

    /// Flushes what was seen under a lock that a writer holds.
    #[cold]
    #[inline(never)]
    fn flush_seen(&self, place: &ChildWord<'_>, leaf: Option<LeafRef<'_>>) {
        let _within = self.pool.write_guard();
        self.medium.flush(place.word);
        if let Some(leaf) = leaf {
            self.medium.flush(&leaf.leaf.value);
        }
    }

    /// The way down to the only leaf that can be that of `key`, whose last child is this leaf, or
    /// none if the trie is empty; what it goes along is durable. None if a node on it was given up.
    pub(super) fn seek(&self, key: &K) -> Result<Option<Vec<PathStep<'_>>>> {
        let mut path = Vec::with_capacity(STEPS);
        let is_whole = self.go_on(key, self.root(), None, &mut path)?;
        Ok(is_whole.then_some(path))
    }

    /// Goes on with the way down to `key` from a place, to its leaf or only as far as the node that
    /// is locked by `end`; what it goes along is durable. False if a node on it was given up.
    pub(super) fn go_on<'a>(
        &'a self,
        key: &K,
        mut place: ChildWord<'a>,
        end: Option<u64>,
        path: &mut Vec<PathStep<'a>>,
    ) -> Result<bool> {
        let mut must_fence = false;
        let is_whole = loop {
            let child = self.child(&place);
            path.push(PathStep { place, child });
            if !self.vouch(&place, child, None, &mut must_fence) {
                if let [.., above, last] = &path[..] {
                    self.expect_replaced(&above.place, &last.place)?;
                }
                break false;
            }
            if !child.is_node() || end == Some(place.lock) {
                break true;
            }
            let node = self.node_below(&place, child)?;
            place = ChildWord::of(node, node.find(key));
        };
        if must_fence {
            // DURABLE: the way, before anything that is only reached by it.
            self.medium.fence();
        }
        Ok(is_whole)
    }

    /// The key of the first or the last leaf below a child.
    pub(super) fn some_key(&self, mut child: Child, is_last: bool) -> Result<K::Owned> {
        let mut place = self.root();
        while !child.is_leaf() {
            let node = self.node_below(&place, child)?;
            place = ChildWord::of(node, if is_last { node.count() - 1 } else { 0 });
            child = self.child(&place);
        }
        let key = self.leaf(child)?.key::<K>();
        key.ok_or_else(|| damaged(child.at()))
    }
}
