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
//! side. Leaves are linked in both directions. Holes are extents like others, with the address
//! [`HOLE`].
//!
//! # Invariants
//! - I1. The first partial offset of a leaf and the first shift of an inner node are 0.
//! - I2. Extents follow each other without gaps, and none is empty. So the entries of a leaf need
//!   only their order to be walked with offsets, and a walk crosses leaves without a search.
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

mod arena;
mod change;
mod extent;
mod inner;
mod leaf;
mod node;
mod persist;
mod pieces;

#[cfg(test)]
mod tests;

/// The nodes, for the twin that uses them without shifts.
pub(crate) mod plain {
    pub(crate) use super::inner::Inner;
    pub(crate) use super::leaf::{Leaf, Piece};
    pub(crate) use super::node::NONE;
}

pub use self::extent::{Extent, HOLE};
pub(crate) use self::persist::{LoadError, NODE_BYTES, NodeBytes, NodePlace, Outline, Saving};
pub use self::pieces::Pieces;

use self::arena::Arena;
use self::extent::ADDRESS_BITS;
use self::inner::Inner;
use self::leaf::Leaf;
use self::node::{ENTRIES_MAX, NONE};

/// An index of extents over an address space without gaps, from 0 to [`FlexTree::len`].
#[derive(Clone, Debug)]
pub struct FlexTree {
    leaves: Arena<Leaf>,
    inners: Arena<Inner>,
    root: u32,
    /// Levels of inner nodes above the leaves.
    height: usize,
    len: u64,
    extents: u64,
    extent_max: u32,
    /// Slots of saved nodes that are no longer part of the tree.
    dropped: Vec<u32>,
}

impl FlexTree {
    /// An empty address space whose extents have at most `extent_max` bytes, holes up to 2^32 - 1.
    ///
    /// # Panics
    /// If `extent_max` is 0.
    pub fn new(extent_max: u32) -> FlexTree {
        assert!(extent_max > 0, "extents need at least one byte");
        let mut leaves = Arena::new(Leaf::EMPTY);
        let root = leaves.add();
        FlexTree {
            leaves,
            inners: Arena::new(Inner::EMPTY),
            root,
            height: 0,
            len: 0,
            extents: 0,
            extent_max,
            dropped: Vec::new(),
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
        self.leaves.len() + self.inners.len()
    }

    /// Memory of the nodes in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.leaves.memory_bytes() + self.inners.memory_bytes()
    }

    /// Checks the invariants of every node, in time linear in their number, and says what does not
    /// hold.
    pub fn check(&self) -> Result<(), String> {
        let mut walk = Walk {
            tree: self,
            extents: 0,
            leaf: NONE,
        };
        let len = walk.node(self.root, self.height)?;
        if len != self.len || walk.extents != self.extents {
            return Err(format!(
                "the nodes hold {} extents over {len} bytes, the tree says {} over {}",
                walk.extents, self.extents, self.len
            ));
        }
        if self.height > 0 && self.inners[self.root].count < 2 {
            return Err("the root has one child".to_owned());
        }
        if walk.leaf != NONE && self.leaves[walk.leaf].next != NONE {
            return Err("the last leaf is linked to another".to_owned());
        }
        Ok(())
    }
}

/// A walk over all nodes that checks the invariants.
struct Walk<'t> {
    tree: &'t FlexTree,
    extents: u64,
    /// The leaf before.
    leaf: u32,
}

impl Walk<'_> {
    /// Checks a node and all below it, and returns the bytes that it covers.
    fn node(&mut self, id: u32, height: usize) -> Result<u64, String> {
        if height == 0 {
            return self.leaf(id);
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
        let mut end = 0;
        for at in 0..inner.count {
            if inner.shifts[at] != end {
                let shift = inner.shifts[at];
                return Err(format!(
                    "child {at} of node {id} has shift {shift}, not {end}"
                ));
            }
            end += self.node(inner.children[at], height - 1)?;
        }
        Ok(end)
    }

    fn leaf(&mut self, id: u32) -> Result<u64, String> {
        let leaf = &self.tree.leaves[id];
        if leaf.count() == 0 && self.tree.height > 0 {
            return Err(format!("leaf {id} is empty"));
        }
        if leaf.prev != self.leaf {
            return Err(format!(
                "leaf {id} is linked to {}, not {}",
                leaf.prev, self.leaf
            ));
        }
        if self.leaf != NONE && self.tree.leaves[self.leaf].next != id {
            return Err(format!("leaf {} is not linked to {id}", self.leaf));
        }
        self.leaf = id;
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
        Ok(end)
    }
}
