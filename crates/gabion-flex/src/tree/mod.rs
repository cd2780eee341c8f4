//! FlexTree: an index of extents in which ranges are inserted and removed in logarithmic time.
//!
//! # Idea
//! A B+-tree maps offsets of an address space to addresses on a medium. If its entries held
//! offsets, inserting bytes at the front would change every entry. Here each child pointer carries
//! a shift, and the offset of an entry is its partial offset plus the shifts on the path to it. So
//! an insertion changes the entries behind it in one leaf, and the shifts behind the path in one
//! node per level.
//!
//! # Layout
//! Nodes are numbered and lie in arenas; a leaf takes 1 KiB and holds up to 60 extents of 16 bytes
//! (`leaf`), an inner node up to 60 children (`inner`). Numbers that a search compares lie side by
//! side. A walk from leaf to leaf goes by the parent. Holes are extents like others, with the
//! address [`HOLE`]. The tree of a space may have leaves that are not in memory (`absent_leaf`).
//!
//! # Invariants
//! - I1. The first partial offset of a leaf and the first shift of an inner node are 0.
//! - I2. Extents follow each other without gaps, and none is empty. So the entries of a leaf need
//!   only their order to be walked with offsets.
//! - I3. No node below the root is empty; the root is a leaf, or has two children or more.
//! - I4. A node is dirty if it or one below it differs from what was saved of it.
//!
//! # Operations
//! On the way down to an insertion, full nodes are split. The threshold is one below the capacity,
//! since an insertion in the middle of an extent adds two entries. A node that becomes the last one
//! by appends takes nothing over, so that appends leave full nodes behind. After a removal a small
//! node is merged with a neighbour, if both together fill at most three quarters.
//!
//! # Deviations from the paper
//! - I1 holds always: a leaf or inner node is re-based when a split or a merge makes it, not when
//!   its partial offsets grow too large. So the shift of a child is its pivot, too, and is kept
//!   once; shifts are never negative; and a partial offset stays below 2^38, the length of 60
//!   extents, whatever happens to the tree.
//! - Removal works leaf by leaf, not extent by extent.
//!
//! # Terms of the paper
//! partial offset: `partial`; shift and pivot: `shifts`; unmapped range: hole.
//!
//! Source: Chen, Zhong, Wu: Efficient Data Management with a Flexible Address Space, section 3.

mod absent_leaf;
mod arena;
mod change;
mod extent;
mod extent_iter;
mod inner;
mod leaf;
mod node;
mod persist;

#[cfg(test)]
mod tests;

/// The nodes, for the twin that uses them without shifts.
pub(crate) mod plain {
    pub(crate) use super::inner::Inner;
    pub(crate) use super::leaf::{Leaf, LeafPatch};
    pub(crate) use super::node::NONE;
}

pub(crate) use self::absent_leaf::{AbsentLeaf, MOVE_STEPS, SavedLeaves};
pub use self::extent::{Extent, HOLE};
pub use self::extent_iter::ExtentIter;
pub(crate) use self::leaf::Leaf;
pub(crate) use self::persist::{
    LoadError, MISCOUNTED, NODE_BYTES, NodeBytes, NodePlace, SaveResult, SavedOutline,
};

use self::arena::{ArenaReserve, NodeArena};
use self::extent::ADDRESS_BITS;
use self::inner::Inner;
use self::node::{ENTRIES_MAX, is_absent};

/// An index of extents over an address space without gaps, from 0 to [`FlexTree::len`].
#[derive(Clone, Debug)]
pub struct FlexTree {
    leaves: NodeArena<Leaf>,
    inners: NodeArena<Inner>,
    root: u32,
    /// Levels of inner nodes above the leaves.
    height: usize,
    len: u64,
    extents: u64,
    extent_max: u32,
    /// Slots of saved nodes that are no longer part of the tree.
    dropped: Vec<u32>,
    /// Leaves that are not in memory.
    absent: usize,
    /// Leaves that changed since they were saved.
    dirty: usize,
    /// Where the hand of `absent_leaf` is.
    hand: u64,
    /// Whether readers note which leaves they read.
    marks_use: bool,
}

/// Memory for the next nodes of a tree: see [`FlexTree::ahead`].
#[derive(Debug)]
pub(crate) struct NodesAhead {
    leaves: Option<ArenaReserve<Leaf>>,
    inners: Option<ArenaReserve<Inner>>,
}

impl FlexTree {
    /// An empty address space whose extents have at most `extent_max` bytes, holes up to 2^32 - 1.
    ///
    /// # Panics
    /// If `extent_max` is 0.
    pub fn new(extent_max: u32) -> FlexTree {
        assert!(extent_max > 0, "extents need at least one byte");
        let mut leaves = NodeArena::new(Leaf::EMPTY);
        let root = leaves.add();
        FlexTree {
            leaves,
            inners: NodeArena::new(Inner::empty()),
            root,
            height: 0,
            len: 0,
            extents: 0,
            extent_max,
            dropped: Vec::new(),
            absent: 0,
            dirty: 1,
            hand: 0,
            marks_use: false,
        }
    }

    /// Bytes in the address space, holes included.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the address space has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Extents, holes included.
    pub fn extent_count(&self) -> u64 {
        self.extents
    }

    /// Nodes on all levels.
    pub fn node_count(&self) -> usize {
        self.leaves.len() + self.absent + self.inners.len()
    }

    /// Memory of the nodes in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.leaves.memory_bytes() + self.inners.memory_bytes()
    }

    /// Has the system give memory for the next nodes, if there is little for them, while others
    /// read the tree; it may have to clear large pages, which takes long. What is returned is for
    /// [`FlexTree::take_ahead`].
    pub(crate) fn ahead(&self) -> Option<NodesAhead> {
        let (leaves, inners) = (self.leaves.ahead(), self.inners.ahead());
        let is_some = leaves.is_some() || inners.is_some();
        is_some.then_some(NodesAhead { leaves, inners })
    }

    /// Takes memory for the next nodes.
    pub(crate) fn take_ahead(&mut self, ahead: NodesAhead) {
        if let Some(leaves) = ahead.leaves {
            self.leaves.take_ahead(leaves);
        }
        if let Some(inners) = ahead.inners {
            self.inners.take_ahead(inners);
        }
    }

    /// Whether memory was asked for ahead for all leaves that there are.
    #[cfg(test)]
    pub(crate) fn is_ahead(&self) -> bool {
        self.leaves.is_ahead()
    }

    /// Checks the invariants of every node, in time linear in their number, and says what does not
    /// hold.
    pub fn check(&self) -> Result<(), String> {
        let mut walk = Walk {
            tree: self,
            extents: 0,
            absent: 0,
            dirty: 0,
        };
        walk.node(self.root, self.height, self.len)?;
        let len = self.len;
        let counts_all = walk.absent == 0;
        if (walk.absent, walk.dirty) != (self.absent, self.dirty) {
            return Err(format!(
                "{} leaves are absent and {} dirty, the tree says {} and {}",
                walk.absent, walk.dirty, self.absent, self.dirty
            ));
        }
        if counts_all && walk.extents != self.extents {
            return Err(format!(
                "the nodes hold {} extents over {len} bytes, the tree says {} over {}",
                walk.extents, self.extents, self.len
            ));
        }
        if self.height > 0 && self.inners[self.root].count < 2 {
            return Err("the root has one child".to_owned());
        }
        Ok(())
    }
}

/// A walk over all nodes that checks the invariants.
struct Walk<'t> {
    tree: &'t FlexTree,
    extents: u64,
    absent: usize,
    dirty: usize,
}

impl Walk<'_> {
    /// Checks a node, which covers `len` bytes, and all below it.
    fn node(&mut self, id: u32, height: usize, len: u64) -> Result<(), String> {
        if height == 0 {
            return self.leaf(id, len);
        }
        let inner = &self.tree.inners[id];
        if inner.count == 0 || inner.count > ENTRIES_MAX {
            return Err(format!("inner node {id} has {} children", inner.count));
        }
        if inner.shifts[inner.count..]
            .iter()
            .any(|shift| *shift != u64::MAX)
        {
            return Err(format!("inner node {id} has a shift behind its last child"));
        }
        let shifts = &inner.shifts[..inner.count];
        let ends = shifts[1..].iter().copied().chain([len]);
        for (at, (shift, end)) in shifts.iter().zip(ends).enumerate() {
            if end <= *shift || shifts[0] != 0 {
                return Err(format!(
                    "child {at} of node {id} has shift {shift} and ends at {end}"
                ));
            }
            self.node(inner.children[at], height - 1, end - shift)?;
        }
        Ok(())
    }

    fn leaf(&mut self, id: u32, len: u64) -> Result<(), String> {
        if is_absent(id) {
            self.absent += 1;
            return Ok(());
        }
        let leaf = &self.tree.leaves[id];
        if leaf.count() == 0 && self.tree.height > 0 {
            return Err(format!("leaf {id} is empty"));
        }
        self.dirty += usize::from(leaf.saved.dirty);
        let mut end = 0;
        for at in 0..leaf.count() {
            let entry = leaf.entry(at);
            let longest = if entry.is_hole() {
                u32::MAX
            } else {
                self.tree.extent_max
            };
            if entry.offset != end || entry.len == 0 || entry.len > u64::from(longest) {
                return Err(format!(
                    "entry {at} of leaf {id} is {entry:?} and begins at {end}"
                ));
            }
            end = entry.end();
        }
        self.extents += leaf.count() as u64;
        match end == len {
            true => Ok(()),
            false => Err(format!("leaf {id} ends at {end}, not {len}")),
        }
    }
}
