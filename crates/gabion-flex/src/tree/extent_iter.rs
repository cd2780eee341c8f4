//! Reading the tree: the extent at an offset, and the extents of a range.

use super::absent_leaf::SavedLeaves;
use super::inner::Inner;
use super::leaf::Leaf;
use super::node::is_absent;
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
    pub fn range(&self, offset: u64, len: u64) -> ExtentIter<'_> {
        self.range_with(offset, len, None)
    }

    /// As [`FlexTree::range`], with leaves to use where the tree has them not in memory. It ends
    /// at the first one that is not there either, see [`ExtentIter::missing_from`].
    pub(crate) fn range_with<'t>(
        &'t self,
        offset: u64,
        len: u64,
        leaves: Option<&'t SavedLeaves>,
    ) -> ExtentIter<'t> {
        ExtentIter {
            tree: self,
            leaves,
            parent: None,
            leaf: &NO_LEAF,
            at: 0,
            offset,
            end: offset.saturating_add(len).min(self.len),
            misses: false,
        }
    }

    /// Asks for the memory of the leaf that covers an offset, if there is one in memory. The nodes
    /// above it are looked at.
    pub(crate) fn prefetch(&self, offset: u64) {
        if offset < self.len {
            let (_, child, _) = self.child_at(offset);
            if !is_absent(child) {
                self.leaves[child].prefetch();
            }
        }
    }

    /// Calls `each` with the extents of the leaves that are in memory.
    pub(crate) fn for_each_present(&self, mut each: impl FnMut(Extent)) {
        let mut from = 0;
        loop {
            let mut pieces = self.range_with(from, u64::MAX, None);
            pieces.walk(|extent| {
                each(extent);
                true
            });
            match pieces.missing_from() {
                Some(at) => from = self.spot(at).end,
                None => return,
            }
        }
    }

    /// All extents in order.
    pub fn iter(&self) -> ExtentIter<'_> {
        self.range(0, self.len)
    }
}

impl<'t> IntoIterator for &'t FlexTree {
    type Item = Extent;
    type IntoIter = ExtentIter<'t>;

    fn into_iter(self) -> ExtentIter<'t> {
        self.iter()
    }
}

/// What a walk has before its first leaf.
static NO_LEAF: Leaf = Leaf::EMPTY;

/// The extents of a range, made by [`FlexTree::range`].
#[derive(Clone, Debug)]
pub struct ExtentIter<'t> {
    tree: &'t FlexTree,
    leaves: Option<&'t SavedLeaves>,
    /// The parent of the leaf, and which child that is; none if it is the root, or there is none.
    parent: Option<(&'t Inner, usize)>,
    leaf: &'t Leaf,
    at: usize,
    offset: u64,
    end: u64,
    /// Whether the next leaf is missing.
    misses: bool,
}

/// A leaf of a walk, and where in it the walk goes on.
struct Entered<'t> {
    parent: Option<(&'t Inner, usize)>,
    leaf: &'t Leaf,
    at: usize,
    /// Bytes of its first extent that lie before the walk.
    skip: u64,
}

impl FlexTree {
    /// The leaf that covers `offset`, which is the one behind the child of `parent`; `None` if it
    /// is missing. Takes and returns values, so that a walk can be in registers.
    #[inline(never)]
    fn enter<'t>(
        &'t self,
        leaves: Option<&'t SavedLeaves>,
        parent: Option<(&'t Inner, usize)>,
        offset: u64,
    ) -> Option<Entered<'t>> {
        let (parent, child, x) = match parent {
            Some((inner, at)) if at + 1 < inner.count => {
                (Some((inner, at + 1)), inner.children[at + 1], 0)
            }
            _ => self.child_at(offset),
        };
        let leaf = if is_absent(child) {
            let (inner, at) = parent?;
            leaves?.get(inner.place_of(at)?)?
        } else {
            if self.marks_use
                && let Some((inner, at)) = parent
            {
                inner.used.set(at);
            }
            &self.leaves[child]
        };
        let at = if x == 0 { 0 } else { leaf.find(x) };
        Some(Entered {
            parent,
            leaf,
            at,
            skip: x - leaf.entry(at).offset,
        })
    }

    /// The leaf that covers an offset: its parent, its number, and where in it the offset lies.
    #[inline]
    fn child_at(&self, offset: u64) -> (Option<(&Inner, usize)>, u32, u64) {
        let (mut parent, mut child, mut x) = (None, self.root, offset);
        for _ in 0..self.height {
            let inner = &self.inners[child];
            let at = inner.find(x);
            x -= inner.shifts[at];
            child = inner.children[at];
            parent = Some((inner, at));
        }
        (parent, child, x)
    }
}

impl ExtentIter<'_> {
    /// Calls `each` with the rest of the extents in order, as long as it returns true; says whether
    /// it always did. It goes leaf by leaf, and asks for the memory of the next leaf ahead, which a
    /// walk over many waits for.
    pub(crate) fn walk(&mut self, mut each: impl FnMut(Extent) -> bool) -> bool {
        while let Some(first) = self.next() {
            if !each(first) {
                return false;
            }
            let (leaf, from) = (self.leaf, self.at);
            if from == leaf.count() || self.offset == self.end {
                continue;
            }
            // Where the leaf begins in the address space.
            let base = self.offset - leaf.entry(from).offset;
            if base + leaf.span() > self.end {
                continue;
            }
            self.prefetch_next();
            for at in from..leaf.count() {
                let mut extent = leaf.entry(at);
                extent.offset += base;
                if !each(extent) {
                    return false;
                }
            }
            self.at = leaf.count();
            self.offset = base + leaf.span();
        }
        true
    }

    /// Asks for the memory of the leaf behind this one, if both have the same parent.
    fn prefetch_next(&self) {
        if let Some((inner, at)) = self.parent
            && at + 1 < inner.count
            && !is_absent(inner.children[at + 1])
        {
            self.tree.leaves[inner.children[at + 1]].prefetch();
        }
    }

    /// Where the walk ended because a leaf is not in memory, if so.
    pub(crate) fn missing_from(&self) -> Option<u64> {
        self.misses.then_some(self.offset)
    }
}

impl Iterator for ExtentIter<'_> {
    type Item = Extent;

    #[inline]
    fn next(&mut self) -> Option<Extent> {
        if self.offset >= self.end {
            return None;
        }
        let mut piece = if self.at < self.leaf.count() {
            self.leaf.entry(self.at)
        } else {
            let Some(entered) = self.tree.enter(self.leaves, self.parent, self.offset) else {
                self.misses = true;
                self.end = self.offset;
                return None;
            };
            self.parent = entered.parent;
            self.leaf = entered.leaf;
            self.at = entered.at;
            entered.leaf.entry(entered.at).behind(entered.skip)
        };
        self.at += 1;
        piece.offset = self.offset;
        piece.len = piece.len.min(self.end - self.offset);
        self.offset += piece.len;
        Some(piece)
    }
}
