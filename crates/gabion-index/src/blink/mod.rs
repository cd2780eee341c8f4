//! B-link trees: how nodes that hold sorted entries become a tree of levels, whatever a node is.
//!
//! Nodes of a level are linked, and each knows the least key that belongs to it, its *low*, and
//! what all its keys are below, its *bound*. So a node that was split is complete before its
//! parent knows: who misses a key there goes on to the right. A node without right neighbour takes
//! every key from its low on. A [`Tree`] says how entries stand in its nodes; what it gets for that
//! is descent, growth and the end of nodes.
//!
//! # Head of a node
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | state: bits 0 to 7 level, 0 for a leaf; bit 8 given up; bits 16 to 63 version |
//! | 8 | 16 | link if the version is even: the right neighbour, and the bound of the keys |
//! | 24 | 16 | link if the version is odd |
//! | 40 | 8 | low |
//!
//! # Rules
//! - A link and an entry of an inner node name only nodes whose content is durable.
//! - A node changes only under its lock. Who holds several locks has taken them from the top down
//!   and from left to right, and all but the first without waiting.
//! - A node that is given up was durably out of entries and links before it says so, and the
//!   allocator knew that it was in use: who makes a node has the lock of its left neighbour until
//!   then.
//! - A node that no entry of its parent names gets one from the next writer who reaches it from the
//!   left ([`NodeSplit::adopt`]).
//! - A node without entries, or an inner one that is left with its first child alone, is given up,
//!   unless it is the first child of its parent; its range goes to the left neighbour. A first
//!   child waits until its parent is given up itself. What is not done because another thread has a
//!   lock is left to later deletes and to [`NodeRemoval::give_up_all`].
//! - A leaf whose entries are replaced ([`Renewal`]) hands its range over to its right neighbour,
//!   which has the same low then, and is given up at once; or, if somebody is in the way, when
//!   somebody comes there again. Until then it is on the way from its left neighbour, whether its
//!   parent knows it or the one that has its range.
//!
//! Source: P. Lehman, S. B. Yao, "Efficient locking for concurrent operations on B-trees", TODS
//! 1981; D. Hwang et al., FAST 2018, section 4 (FAIR).

mod check;
mod descent;
mod removal;
mod renewal;
mod split;

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use gabion_media::media_struct;
use gabion_media::pmem::{Medium, PAtomicU64, Pool};

use crate::node_lock::{NodeGuard, NodeLocks};
use crate::{Error, Result};
pub(crate) use check::Checks;
pub(crate) use descent::{Descent, find};
pub(crate) use removal::NodeRemoval;
pub(crate) use renewal::{Renewal, is_spent};
pub(crate) use split::NodeSplit;

/// The bound of a node without right neighbour.
pub(crate) const NO_BOUND: u64 = u64::MAX;

/// Bytes of a head.
pub(crate) const HEAD_BYTES: u64 = 48;

/// Bit of a state: the node is given up.
const DEAD: u64 = 1 << 8;
/// The part of a state that counts links.
const ONE_VERSION: u64 = 1 << 16;

media_struct! {
    /// What every node begins with.
    pub(crate) struct Head {
        state: PAtomicU64,
        links: [Link; 2],
        low: PAtomicU64,
    }

    /// Where the keys above those of a node are.
    struct Link {
        neighbour: PAtomicU64,
        bound: PAtomicU64,
    }
}

const _: () = {
    assert!(size_of::<Head>() as u64 == HEAD_BYTES);
    assert!(offset_of!(Head, links) == 8 && size_of::<Link>() == 16);
    assert!(offset_of!(Head, low) == 40);
};

/// A node's state and link, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeRange {
    state: u64,
    /// The right neighbour, 0 if there is none.
    pub(crate) neighbour: u64,
    /// What is above all keys of the node, if it has a neighbour.
    pub(crate) bound: u64,
}

impl NodeRange {
    /// Whether the node was given up.
    #[inline]
    pub(crate) fn is_dead(self) -> bool {
        self.state & DEAD != 0
    }

    /// The node's level, 0 for a leaf.
    #[inline]
    pub(crate) fn level(self) -> u64 {
        self.state & 0xff
    }

    /// Whether there is no node to the right.
    #[inline]
    pub(crate) fn is_last(self) -> bool {
        self.neighbour == 0
    }

    /// Whether a key is below the bound.
    #[inline]
    pub(crate) fn is_below_bound(self, key: u64) -> bool {
        key < self.bound || self.is_last()
    }

    /// Whether the node is in use and `key` is below its bound.
    #[inline]
    pub(crate) fn has(self, key: u64) -> bool {
        !self.is_dead() && self.is_below_bound(key)
    }
}

/// What a new node begins with.
pub(crate) struct NodeInit {
    pub(crate) level: u64,
    pub(crate) low: u64,
    pub(crate) neighbour: u64,
    pub(crate) bound: u64,
}

impl NodeInit {
    /// The only node of a level.
    pub(crate) fn lone(level: u64) -> NodeInit {
        NodeInit {
            level,
            low: 0,
            neighbour: 0,
            bound: NO_BOUND,
        }
    }

    /// The words of the head.
    pub(crate) fn head(&self) -> [u64; 6] {
        [self.level, self.neighbour, self.bound, 0, 0, self.low]
    }
}

// ORDER: Acquire throughout: pairs with the releasing stores below, and keeps loads in their order.
impl Head {
    /// The node's level, 0 for a leaf.
    #[inline]
    pub(crate) fn level(&self) -> u64 {
        self.state.peek(Ordering::Acquire) & 0xff
    }

    /// The least key that belongs here. It never changes.
    #[inline]
    pub(crate) fn low(&self) -> u64 {
        self.low.peek(Ordering::Acquire)
    }

    /// State and link.
    #[inline]
    pub(crate) fn range(&self) -> NodeRange {
        loop {
            let state = self.state.peek(Ordering::Acquire);
            let link = &self.links[usize::from(state & ONE_VERSION != 0)];
            let range = NodeRange {
                state,
                neighbour: link.neighbour.peek(Ordering::Acquire),
                bound: link.bound.peek(Ordering::Acquire),
            };
            if self.state.peek(Ordering::Acquire) == state {
                return range;
            }
        }
    }
}

// ORDER: Release throughout: pairs with the acquiring loads above.
impl Head {
    /// Gives the node another neighbour and bound at one moment, durably with the next persist of
    /// the head.
    fn link(&self, medium: &Medium, neighbour: u64, bound: u64) {
        let state = self.range().state.wrapping_add(ONE_VERSION);
        let link = &self.links[usize::from(state & ONE_VERSION != 0)];
        link.neighbour.store(medium, neighbour, Ordering::Release);
        link.bound.store(medium, bound, Ordering::Release);
        // The link lies in the state's line, so it is on the medium when the state is.
        self.state.store(medium, state, Ordering::Release);
    }

    /// Says that the node is given up. Nothing leads here any more, and that is durable.
    pub(crate) fn give_up(&self, medium: &Medium) {
        let state = self.range().state | DEAD;
        self.state.store(medium, state, Ordering::Release);
    }
}

/// A node of a tree.
pub(crate) trait Node<'a>: Copy {
    /// Its offset.
    fn at(&self) -> u64;

    /// Its head.
    fn head(&self) -> &'a Head;

    /// Asks for all lines of the node, so that their misses overlap.
    fn prefetch(&self);

    /// What the entry with the greatest key up to `key` leads to, in an inner node. While somebody
    /// writes, this may be any node that an entry led to since.
    fn child(&self, key: u64) -> u64;

    /// The entry with the greatest key up to `key`. The caller keeps others from writing.
    fn entry_upto(&self, key: u64) -> Option<(u64, u64)>;

    /// The entries below the bound, in the order of their keys. The caller keeps others from
    /// writing, or finds out afterwards.
    fn entries(&self, range: NodeRange) -> Vec<(u64, u64)>;
}

/// A node that is locked and in order.
pub(crate) struct LockedNode<'a, N> {
    pub(crate) node: N,
    pub(crate) range: NodeRange,
    /// Entries.
    pub(crate) count: usize,
    pub(crate) lock: NodeGuard<'a>,
}

/// A B-link tree. Keys are words.
pub(crate) trait Tree: Sized {
    /// A node.
    type Node<'a>: Node<'a>
    where
        Self: 'a;

    /// Entries that a node has room for.
    const ROOM: usize;
    /// What offsets of nodes are multiples of.
    const ALIGN: u64;
    /// Whether leaves hand their ranges over ([`Renewal`]).
    const RENEWS: bool = false;

    /// The pool that the tree lies in.
    fn pool(&self) -> &Pool;

    /// Its medium.
    fn medium(&self) -> &Medium;

    /// The locks of nodes.
    fn locks(&self) -> &NodeLocks;

    /// The node at an offset.
    fn node(&self, at: u64) -> Result<Self::Node<'_>>;

    /// The word with the offset of the topmost node.
    fn top_word(&self) -> &PAtomicU64;

    /// What is locked to change that word. No node of a level above 0.
    fn top_lock(&self) -> u64;

    /// Whether the tree was given up as a whole.
    #[inline]
    fn is_gone(&self) -> bool {
        false
    }

    /// What recovery is told of the blocks of nodes.
    fn hint(&self) -> u64;

    /// The bytes of a new node.
    fn image(born: &NodeInit, entries: &[(u64, u64)]) -> Vec<u8>;

    /// Puts a locked node in order that a crash or a split left with more than its entries.
    fn tidy<'a>(
        &'a self,
        node: Self::Node<'a>,
        range: NodeRange,
        lock: NodeGuard<'a>,
    ) -> LockedNode<'a, Self::Node<'a>>;

    /// Puts an entry into a node that has room for it and not its key, durably.
    fn insert_entry<'a>(&'a self, node: &LockedNode<'a, Self::Node<'a>>, entry: (u64, u64));

    /// Takes the entry of a key out of a node, durably.
    fn remove_entry<'a>(&'a self, node: &mut LockedNode<'a, Self::Node<'a>>, key: u64);

    /// Sees to it that nothing comes back when the bound rises: durable with the next fence.
    fn clear_behind<'a>(&'a self, node: &LockedNode<'a, Self::Node<'a>>);

    /// A leaf to begin at on the way to a key, if one is known without a way there. It was in use
    /// at a moment since the caller entered the pool; if others write, its low may be behind the
    /// key.
    #[inline]
    fn leaf_before(&self, _key: u64) -> Option<u64> {
        None
    }

    /// Is told of a node that its parent knows from now on. Whoever gives the node up needs a lock
    /// that is held meanwhile.
    fn note_child(&self, _child: &Self::Node<'_>) {}

    /// Is told of a node that is about to be given up, and to which nothing leads any more, under
    /// the lock of its parent.
    fn note_end(&self, _node: &Self::Node<'_>) {}

    /// Is told that leaves without a range may be before the one with this low. No lock is held.
    ///
    /// # Errors
    /// No room for a note of the allocator, or damage.
    fn pass_by(&self, _low: u64) -> Result<()> {
        Ok(())
    }

    /// Forgets the entries of a node from its new bound on, if they are not forgotten by
    /// themselves. The head is made durable next.
    fn forget_from(&self, _node: &Self::Node<'_>, _bound: u64) {}
}

#[cold]
fn damaged(offset: u64) -> Error {
    Error::damaged("a node of a tree", offset)
}
