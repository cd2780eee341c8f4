//! Changing the tree: insert, collapse, remap and replace, and the splits and merges of nodes that
//! they need.

use super::inner::Inner;
use super::leaf::{Leaf, LeafPatch};
use super::node::{ENTRIES_MAX, NONE, SavedAt, is_absent};
use super::{Extent, FlexTree, HOLE};

/// Levels of inner nodes at most. A level is added when the root is full, and each of its children
/// came from the split of a full node: twelve levels need more operations than a machine can do.
pub(super) const HEIGHT_MAX: usize = 12;

/// Entries of two neighbours that are merged after a removal, at most: three quarters of a node, so
/// that the next insertions do not split it again.
const MERGED_MAX: usize = ENTRIES_MAX * 3 / 4;

/// The nodes above a leaf, from the root down: number and index of the child.
struct Path {
    steps: [(u32, usize); HEIGHT_MAX],
    leaf: u32,
    /// Offset in the leaf.
    x: u64,
    /// Bytes that the leaf covers.
    span: u64,
}

impl FlexTree {
    /// Appends `len` bytes at `address` to the address space.
    ///
    /// # Panics
    /// As [`FlexTree::insert`].
    #[inline]
    pub fn append(&mut self, len: u64, address: u64) {
        self.insert(self.len, len, address);
    }

    /// Inserts `len` bytes, which are at `address`, before `offset`: what is there or behind it
    /// moves by `len`. An address of [`HOLE`] inserts a hole. Bytes that continue the extent before
    /// them lengthen it.
    ///
    /// Takes time logarithmic in the number of extents.
    ///
    /// # Panics
    /// If `offset` lies behind the end, or the address space or the addresses become too large.
    #[inline]
    pub fn insert(&mut self, offset: u64, len: u64, address: u64) {
        assert!(
            offset <= self.len,
            "an insertion at {offset} of {} bytes",
            self.len
        );
        self.assert_addresses(len, address);
        assert!(
            self.len.checked_add(len).is_some(),
            "the address space has 2^64 bytes"
        );
        self.for_each_piece(offset, len, address, FlexTree::insert_piece);
    }

    /// Removes the `len` bytes from `offset` on: what is behind them moves to their place. The
    /// extents and parts of extents that go are told to `freed`, holes included.
    ///
    /// Takes time logarithmic in the number of extents, for each leaf that the range touches.
    ///
    /// # Panics
    /// If the range reaches behind the end. If `freed` panics, the tree is sound; a first part of
    /// the range may be gone, and `freed` was called for all of that.
    pub fn collapse(&mut self, offset: u64, len: u64, mut freed: impl FnMut(Extent)) {
        self.assert_range(offset, len);
        let mut left = len;
        while left > 0 {
            left -= self.collapse_in_leaf(offset, left, len - left, &mut freed);
        }
    }

    /// Lets the `len` bytes from `offset` on be at `address`, or nowhere if that is [`HOLE`].
    /// Nothing moves in the address space. Where they were before is told to `freed`, holes
    /// included.
    ///
    /// # Panics
    /// If the range reaches behind the end, or the addresses become too large. If `freed` panics,
    /// the tree is sound; a first part of the range may have moved, and a part behind it be gone.
    pub fn remap(&mut self, offset: u64, len: u64, address: u64, mut freed: impl FnMut(Extent)) {
        self.assert_range(offset, len);
        self.assert_addresses(len, address);
        self.for_each_piece(offset, len, address, |tree, offset, piece| {
            let len = u64::from(piece.len);
            if !tree.replace_in_leaf(offset, len, piece, &mut freed) {
                tree.collapse(offset, len, &mut freed);
                tree.insert_piece(offset, piece);
            }
        });
    }

    /// Removes the `removed` bytes from `offset` on and inserts `len` bytes, which are at
    /// `address`, in their place: as [`FlexTree::collapse`] and [`FlexTree::insert`], but in one
    /// step where what goes lies in one leaf and what comes is one extent.
    ///
    /// # Panics
    /// As these.
    pub fn replace(
        &mut self,
        offset: u64,
        removed: u64,
        (len, address): (u64, u64),
        mut freed: impl FnMut(Extent),
    ) {
        self.assert_range(offset, removed);
        self.assert_addresses(len, address);
        let longest = self.longest(address);
        let short = u32::try_from(len).ok().filter(|len| *len <= longest);
        let piece = short.map(|len| LeafPatch { len, address });
        let is_one_step = removed > 0 && len > 0 && (self.len - removed).checked_add(len).is_some();
        if let Some(piece) = piece.filter(|_| is_one_step)
            && self.replace_in_leaf(offset, removed, piece, &mut freed)
        {
            return;
        }
        self.collapse(offset, removed, freed);
        self.insert(offset, len, address);
    }

    #[inline]
    fn assert_range(&self, offset: u64, len: u64) {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{len} bytes at {offset} do not lie in {}",
            self.len
        );
    }

    #[inline]
    fn assert_addresses(&self, len: u64, address: u64) {
        assert!(
            address == HOLE || address.checked_add(len).is_some_and(|end| end < HOLE),
            "{len} bytes at {address} have no address below the largest"
        );
    }

    /// Cuts a range at the longest extent.
    #[inline]
    fn for_each_piece(
        &mut self,
        offset: u64,
        len: u64,
        address: u64,
        mut each: impl FnMut(&mut FlexTree, u64, LeafPatch),
    ) {
        let longest = if address == HOLE {
            u32::MAX
        } else {
            self.extent_max
        };
        let mut done = 0;
        while done < len {
            let part = u32::try_from(len - done).map_or(longest, |rest| rest.min(longest));
            let address = if address == HOLE {
                HOLE
            } else {
                address + done
            };
            each(self, offset + done, LeafPatch { len: part, address });
            done += u64::from(part);
        }
    }

    fn longest(&self, address: u64) -> u32 {
        if address == HOLE {
            u32::MAX
        } else {
            self.extent_max
        }
    }

    #[inline]
    fn insert_piece(&mut self, offset: u64, piece: LeafPatch) {
        self.split_full_root();
        let delta = u64::from(piece.len);
        let mut x = offset;
        let mut node = self.root;
        for level in (0..self.height).rev() {
            let mut at = self.inners[node].find(x);
            if self.is_full(self.inners[node].children[at], level) {
                let appends = offset == self.len;
                self.split_child(node, at, level, appends);
                at = self.inners[node].find(x);
            }
            let inner = &mut self.inners[node];
            x -= inner.shifts[at];
            inner.shift_from(at + 1, delta);
            inner.saved.dirty = true;
            node = inner.children[at];
        }
        let extent_max = self.longest(piece.address);
        let leaf = &mut self.leaves[node];
        self.dirty += usize::from(!leaf.saved.dirty);
        leaf.saved.dirty = true;
        self.extents += leaf.insert(x, piece, extent_max) as u64;
        self.len += delta;
    }

    /// Lets a piece be in the place of the `removed` bytes from `offset` on; false if these do not
    /// lie in one leaf.
    fn replace_in_leaf(
        &mut self,
        offset: u64,
        removed: u64,
        piece: LeafPatch,
        freed: &mut impl FnMut(Extent),
    ) -> bool {
        let path = self.descend(offset);
        if path.x + removed > path.span {
            return false;
        }
        let extent_max = self.longest(piece.address);
        let leaf = &mut self.leaves[path.leaf];
        let before = leaf.count() as u64;
        let base = offset - path.x;
        leaf.replace(
            path.x,
            removed,
            Some(piece),
            extent_max,
            &mut |mut extent| {
                extent.offset += base;
                freed(extent);
            },
        );
        self.extents = self.extents - before + leaf.count() as u64;
        self.set_dirty(&path);
        self.move_behind(&path, u64::from(piece.len).wrapping_sub(removed));
        self.shrink(&path);
        true
    }

    /// Removes up to `len` bytes, as many as lie in the leaf that covers `offset`, and returns how
    /// many. `done` bytes of the range were removed before.
    fn collapse_in_leaf(
        &mut self,
        offset: u64,
        len: u64,
        done: u64,
        freed: &mut impl FnMut(Extent),
    ) -> u64 {
        let path = self.descend(offset);
        let removed = len.min(path.span - path.x);
        let extent_max = self.extent_max;
        let leaf = &mut self.leaves[path.leaf];
        let before = leaf.count() as u64;
        let base = offset - path.x + done;
        leaf.replace(path.x, removed, None, extent_max, &mut |mut extent| {
            extent.offset += base;
            freed(extent);
        });
        self.extents = self.extents - before + leaf.count() as u64;
        self.set_dirty(&path);
        self.move_behind(&path, removed.wrapping_neg());
        self.shrink(&path);
        removed
    }

    /// Moves what is behind the leaf of a path by `delta`, which may be negative in two's
    /// complement: the leaf has become so much longer.
    fn move_behind(&mut self, path: &Path, delta: u64) {
        if delta == 0 {
            return;
        }
        for &(node, at) in &path.steps[..self.height] {
            self.inners[node].shift_from(at + 1, delta);
        }
        self.len = self.len.wrapping_add(delta);
    }

    /// Finds the leaf that covers `offset`, and splits it first if it is full, and the nodes above
    /// it.
    fn descend(&mut self, offset: u64) -> Path {
        self.split_full_root();
        let mut steps = [(NONE, 0); HEIGHT_MAX];
        let mut x = offset;
        let mut span = self.len;
        let mut node = self.root;
        for level in (0..self.height).rev() {
            let mut at = self.inners[node].find(x);
            if self.is_full(self.inners[node].children[at], level) {
                self.split_child(node, at, level, false);
                at = self.inners[node].find(x);
            }
            let inner = &self.inners[node];
            if at + 1 < inner.count {
                span = inner.shifts[at + 1];
            }
            span -= inner.shifts[at];
            x -= inner.shifts[at];
            steps[self.height - 1 - level] = (node, at);
            node = inner.children[at];
        }
        Path {
            steps,
            leaf: node,
            x,
            span,
        }
    }

    fn set_dirty(&mut self, path: &Path) {
        for &(node, _) in &path.steps[..self.height] {
            self.inners[node].saved.dirty = true;
        }
        self.set_leaf_dirty(path.leaf);
    }

    #[inline]
    fn set_leaf_dirty(&mut self, leaf: u32) {
        let saved = &mut self.leaves[leaf].saved;
        self.dirty += usize::from(!saved.dirty);
        saved.dirty = true;
    }

    /// Makes a leaf, which is dirty.
    fn add_leaf(&mut self) -> u32 {
        self.dirty += 1;
        self.leaves.add()
    }

    #[inline]
    fn is_full(&self, node: u32, level: usize) -> bool {
        match level {
            0 => self.leaves[node].is_full(),
            _ => self.inners[node].count == ENTRIES_MAX,
        }
    }

    /// Gives the tree a level if the root is full, so that it can be split.
    #[inline]
    fn split_full_root(&mut self) {
        if self.is_full(self.root, self.height) {
            let root = self.inners.add();
            self.inners[root].insert(0, 0, self.root);
            self.root = root;
            self.height += 1;
        }
    }

    /// Splits child `at` of an inner node, which has room. A last child that is split for an append
    /// keeps all it can, since nothing else will come before its end.
    fn split_child(&mut self, node: u32, at: usize, level: usize, appends: bool) {
        let child = self.inners[node].children[at];
        let keeps_all = appends && at + 1 == self.inners[node].count;
        let (right, base) = if level == 0 {
            self.split_leaf(child, keeps_all)
        } else {
            let mut moved = Inner::empty();
            let inner = &mut self.inners[child];
            let middle = if keeps_all {
                inner.count - 1
            } else {
                inner.count / 2
            };
            let base = inner.split(middle, &mut moved);
            inner.saved.dirty = true;
            let right = self.inners.add();
            self.inners[right] = moved;
            (right, base)
        };
        let inner = &mut self.inners[node];
        let shift = inner.shifts[at] + base;
        inner.insert(at + 1, shift, right);
        inner.saved.dirty = true;
    }

    fn split_leaf(&mut self, child: u32, keeps_all: bool) -> (u32, u64) {
        let mut moved = Leaf::EMPTY;
        let leaf = &mut self.leaves[child];
        let middle = if keeps_all {
            leaf.count()
        } else {
            leaf.count() / 2
        };
        let base = leaf.split(middle, &mut moved);
        self.set_leaf_dirty(child);
        let right = self.add_leaf();
        self.leaves[right] = moved;
        (right, base)
    }

    /// Removes or merges the nodes of a path that became small, and levels that became useless.
    fn shrink(&mut self, path: &Path) {
        for level in 0..self.height {
            let (node, at) = path.steps[self.height - 1 - level];
            let child = self.inners[node].children[at];
            let count = self.count_of(child, level);
            if count == 0 {
                self.free_node(child, level);
                self.inners[node].remove(at);
                continue;
            }
            if count > ENTRIES_MAX / 4 {
                break;
            }
            let inner = &self.inners[node];
            let fits = |left: usize| {
                left + 1 < inner.count
                    && self.count_of(inner.children[left], level)
                        + self.count_of(inner.children[left + 1], level)
                        <= MERGED_MAX
            };
            let left = [Some(at), at.checked_sub(1)]
                .into_iter()
                .flatten()
                .find(|left| fits(*left));
            let Some(left) = left else { break };
            self.merge_children(node, left, level);
        }
        while self.height > 0 && self.inners[self.root].count <= 1 {
            let old = self.root;
            self.height -= 1;
            self.root = match self.inners[old].count {
                0 => self.add_leaf(),
                _ => self.inners[old].children[0],
            };
            if self.inners[old].count == 0 {
                self.height = 0;
            }
            self.free_node(old, 1);
        }
    }

    /// Entries of a node; one that is not in memory counts as full.
    fn count_of(&self, node: u32, level: usize) -> usize {
        match level {
            0 if is_absent(node) => ENTRIES_MAX,
            0 => self.leaves[node].count(),
            _ => self.inners[node].count,
        }
    }

    fn merge_children(&mut self, node: u32, left: usize, level: usize) {
        let inner = &self.inners[node];
        let base = inner.shifts[left + 1] - inner.shifts[left];
        let (into, from) = (inner.children[left], inner.children[left + 1]);
        if level == 0 {
            let right = self.leaves[from].clone();
            self.leaves[into].merge(&right, base);
            self.set_leaf_dirty(into);
        } else {
            let right = self.inners[from].clone();
            self.inners[into].merge(&right, base);
            self.inners[into].saved.dirty = true;
        }
        self.free_node(from, level);
        self.inners[node].remove(left + 1);
    }

    /// Takes a node out of the tree; its parent must let go of it.
    fn free_node(&mut self, node: u32, level: usize) {
        let SavedAt { slot, .. } = if level == 0 {
            let saved = self.leaves[node].saved;
            self.dirty -= usize::from(saved.dirty);
            self.leaves.remove(node);
            saved
        } else {
            let saved = self.inners[node].saved;
            self.inners.remove(node);
            saved
        };
        if slot != NONE {
            self.dropped.push(slot);
        }
    }
}
