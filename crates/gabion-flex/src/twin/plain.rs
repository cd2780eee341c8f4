//! A B+-tree of extents that holds offsets.

use crate::Extent;
use crate::tree::plain::{Inner, Leaf, LeafPatch, NONE};

/// A B+-tree without shifts: inserting moves every entry and every pivot behind, one by one.
///
/// It has the nodes of [`FlexTree`](crate::FlexTree) and searches them in the same way. It does
/// what the comparison needs: insertions at the borders of extents, appends, lookups and ranges.
#[derive(Clone, Debug)]
pub struct PlainTree {
    leaves: Vec<Leaf>,
    /// The leaf behind each.
    next: Vec<u32>,
    inners: Vec<Inner>,
    root: u32,
    height: usize,
    len: u64,
    extent_max: u32,
}

impl PlainTree {
    /// An empty address space whose extents have at most `extent_max` bytes.
    pub fn new(extent_max: u32) -> PlainTree {
        PlainTree {
            leaves: vec![Leaf::EMPTY],
            next: vec![NONE],
            inners: Vec::new(),
            root: 0,
            height: 0,
            len: 0,
            extent_max,
        }
    }

    /// Bytes in the address space.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the address space has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The leaf that covers an offset.
    #[inline]
    fn leaf_at(&self, offset: u64) -> u32 {
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inners[node as usize];
            node = inner.children[inner.find(offset)];
        }
        node
    }

    /// The extent that covers an offset, as a whole.
    #[inline]
    pub fn lookup(&self, offset: u64) -> Option<Extent> {
        if offset >= self.len {
            return None;
        }
        let leaf = &self.leaves[self.leaf_at(offset) as usize];
        Some(leaf.entry(leaf.find(offset)))
    }

    /// Calls `each` with the extents that a range touches, in order and uncut.
    pub fn for_each_in(&self, offset: u64, len: u64, mut each: impl FnMut(Extent)) {
        let end = offset.saturating_add(len).min(self.len);
        if offset >= end {
            return;
        }
        let mut node = self.leaf_at(offset);
        let mut at = self.leaves[node as usize].find(offset);
        loop {
            let leaf = &self.leaves[node as usize];
            for at in at..leaf.count() {
                let extent = leaf.entry(at);
                if extent.offset >= end {
                    return;
                }
                each(extent);
            }
            node = self.next[node as usize];
            if node == NONE {
                return;
            }
            at = 0;
        }
    }

    /// Inserts `len` bytes, at most the longest extent, at `address` before `offset`. An insertion
    /// in the middle of an extent cuts it.
    ///
    /// # Panics
    /// If `offset` lies behind the end, or `len` is 0 or too long.
    pub fn insert(&mut self, offset: u64, len: u32, address: u64) {
        assert!(offset <= self.len && len > 0 && len <= self.extent_max);
        if self.leaves[self.leaf_at(offset) as usize].is_full() {
            self.split(offset);
        }
        let node = self.leaf_at(offset);
        let delta = u64::from(len);
        let leaf = &mut self.leaves[node as usize];
        leaf.insert(offset, LeafPatch { len, address }, self.extent_max);
        if offset < self.len {
            let mut next = self.next[node as usize];
            while next != NONE {
                self.leaves[next as usize].shift_all(delta);
                next = self.next[next as usize];
            }
            for inner in &mut self.inners {
                let all = inner.shifts[0] > offset;
                let from = if all { 0 } else { inner.find(offset) + 1 };
                inner.shift_from(from, delta);
            }
        }
        self.len += delta;
    }

    /// Splits the leaf that covers an offset, and the full nodes above it on the way down.
    fn split(&mut self, offset: u64) {
        let full = |inner: &Inner| inner.count == inner.children.len();
        if self.height == 0 || full(&self.inners[self.root as usize]) {
            let mut root = Inner::empty();
            root.insert(0, 0, self.root);
            self.root = number(self.inners.len());
            self.inners.push(root);
            self.height += 1;
        }
        let appends = offset == self.len;
        let mut node = self.root as usize;
        for level in (0..self.height).rev() {
            let mut at = self.inners[node].find(offset);
            let child = self.inners[node].children[at] as usize;
            if level == 0 {
                let added = number(self.leaves.len());
                let mut right = Leaf::EMPTY;
                let leaf = &mut self.leaves[child];
                let middle = if appends {
                    leaf.count()
                } else {
                    leaf.count() / 2
                };
                let pivot = leaf.split_plain(middle, &mut right);
                let next = std::mem::replace(&mut self.next[child], added);
                self.inners[node].insert(at + 1, pivot, added);
                self.leaves.push(right);
                self.next.push(next);
                return;
            }
            if full(&self.inners[child]) {
                let added = number(self.inners.len());
                let mut right = Inner::empty();
                let middle = self.inners[child].count / 2;
                let pivot = self.inners[child].split_plain(middle, &mut right);
                self.inners[node].insert(at + 1, pivot, added);
                self.inners.push(right);
                at = self.inners[node].find(offset);
            }
            node = self.inners[node].children[at] as usize;
        }
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 nodes fit into memory")
}
