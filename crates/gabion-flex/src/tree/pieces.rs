//! Reading the tree: the extent at an offset, and the extents of a range.

use super::leaf::Leaf;
use super::node::NONE;
use super::{Extent, FlexTree};

impl FlexTree {
    /// The leaf that covers an offset below the length, and where in it the offset lies.
    #[inline]
    pub(super) fn leaf_at(&self, offset: u64) -> (&Leaf, u64) {
        let mut x = offset;
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inners[node];
            let at = inner.find(x);
            x -= inner.shifts[at];
            node = inner.children[at];
        }
        (&self.leaves[node], x)
    }

    /// The extent that covers an offset, as a whole; `None` at the end and behind it.
    #[inline]
    pub fn lookup(&self, offset: u64) -> Option<Extent> {
        if offset >= self.len {
            return None;
        }
        let (leaf, x) = self.leaf_at(offset);
        let mut entry = leaf.entry(leaf.find(x));
        entry.offset += offset - x;
        Some(entry)
    }

    /// The extents of a range in order, the first and the last one cut to it. What lies behind the
    /// end is left out. Costs one lookup, then a step per extent.
    pub fn range(&self, offset: u64, len: u64) -> Pieces<'_> {
        let end = offset.saturating_add(len).min(self.len);
        let mut pieces = Pieces {
            tree: self,
            leaf: &self.leaves[self.root],
            at: 0,
            skip: 0,
            offset,
            end,
        };
        if offset < end {
            let (leaf, x) = self.leaf_at(offset);
            pieces.leaf = leaf;
            pieces.at = leaf.find(x);
            pieces.skip = x - leaf.entry(pieces.at).offset;
        }
        pieces
    }

    /// All extents in order.
    pub fn iter(&self) -> Pieces<'_> {
        self.range(0, self.len)
    }
}

impl<'t> IntoIterator for &'t FlexTree {
    type Item = Extent;
    type IntoIter = Pieces<'t>;

    fn into_iter(self) -> Pieces<'t> {
        self.iter()
    }
}

/// The extents of a range, made by [`FlexTree::range`].
#[derive(Clone, Debug)]
pub struct Pieces<'t> {
    tree: &'t FlexTree,
    leaf: &'t Leaf,
    at: usize,
    /// Bytes of the next extent that lie before the range.
    skip: u64,
    offset: u64,
    end: u64,
}

impl Iterator for Pieces<'_> {
    type Item = Extent;

    #[inline]
    fn next(&mut self) -> Option<Extent> {
        if self.offset >= self.end {
            return None;
        }
        if self.at == self.leaf.count() {
            if self.leaf.next == NONE {
                return None;
            }
            self.leaf = &self.tree.leaves[self.leaf.next];
            self.at = 0;
        }
        let mut piece = self.leaf.entry(self.at).behind(self.skip);
        self.skip = 0;
        self.at += 1;
        piece.offset = self.offset;
        piece.len = piece.len.min(self.end - self.offset);
        self.offset += piece.len;
        Some(piece)
    }
}
