//! The binary trie within a node, apart from how it is stored.
//!
//! Its leaves are the children of the node, in the order of keys. Each of its inner nodes parts two
//! neighbours, and all that is on their sides, at one bit: so the trie is told by the bits at which
//! neighbours part, one between each two. Of some children in a row the least of these bits is the
//! topmost inner node; it is there once only.
//!
//! ```text
//!            bit 1                children      a     b     c     d
//!           /     \               part at          4     1     7
//!       bit 4     bit 7           masks select  bits 1, 4, 7
//!       /   \     /   \           partial keys  000   010   100   101
//!      a     b   c     d
//! ```
//!
//! The partial key of a child has a 1 for each inner node on the way to it from which that goes to
//! the right, and 0s for those on which it goes to the left and for bits that are not on the way.
//! So a key can be below a child only if it has all its 1s, and of the children that pass this the
//! last one is the right one: the way to each other one leaves the key's way to the left, at a bit
//! that is 1.

use super::bits::{Position, bit_in_window, end_of_window, first_position, window_of};
use super::layout::{Child, ROOM, Shape, WINDOW_WORDS};
use super::node::Node;
use std::ops::Range;

/// Up to one child more than a node has room for, and where neighbours among them part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form {
    count: usize,
    children: [Child; ROOM + 1],
    positions: [Position; ROOM],
}

/// What a form has a node look at: offsets of windows, masks, and how many bits later masks select.
struct Windows {
    windows: [(u64, u64, u32); ROOM],
    count: usize,
    bits: u32,
}

impl Windows {
    fn of(positions: &[Position]) -> Windows {
        let mut windows = [(0, 0, 0); ROOM];
        let (mut count, mut bits, mut covered) = (0, 0, 0);
        while let Some(first) = positions.iter().filter(|at| **at >= covered).min() {
            let offset = window_of(*first);
            let range = *first..end_of_window(offset);
            let within = positions.iter().filter(|at| range.contains(at));
            let mask = within.fold(0, |mask, at| mask | bit_in_window(offset, *at));
            windows[count] = (offset, mask, 0);
            covered = range.end;
            count += 1;
        }
        for (_, mask, later) in windows[..count].iter_mut().rev() {
            *later = bits;
            bits += mask.count_ones();
        }
        Windows {
            windows,
            count,
            bits,
        }
    }

    /// The bit of a partial key for a position.
    fn bit(&self, position: Position) -> u32 {
        let windows = self.windows[..self.count].iter();
        let behind = |(offset, ..): &&(u64, u64, u32)| position < end_of_window(*offset);
        let found = windows.clone().find(behind);
        found.map_or(0, |(offset, mask, later)| {
            let bit = bit_in_window(*offset, position);
            1 << (later + (mask & (bit - 1)).count_ones())
        })
    }
}

impl Form {
    /// Two children.
    pub(super) fn pair(left: Child, position: Position, right: Child) -> Form {
        let mut form = Form::empty();
        form.children[..2].copy_from_slice(&[left, right]);
        form.positions[0] = position;
        form.count = 2;
        form
    }

    fn empty() -> Form {
        Form {
            count: 0,
            children: [Child::NONE; ROOM + 1],
            positions: [0; ROOM],
        }
    }

    /// What a node has.
    pub(super) fn of(node: &Node<'_>) -> Form {
        let mut form = Form::empty();
        let Shape { children, bits, .. } = node.shape();
        // The positions of the bits of a partial key, from the highest on.
        let mut columns = [0; ROOM];
        let mut free = columns.iter_mut();
        for (offset, mut mask) in node.windows() {
            while mask != 0
                && let Some(column) = free.next()
            {
                *column = first_position(offset, mask);
                mask &= !(1 << (u64::BITS - 1) >> mask.leading_zeros());
            }
        }
        form.count = children;
        for (slot, child) in form.children[..children].iter_mut().enumerate() {
            *child = node.child(slot);
        }
        for (slot, position) in form.positions[..children - 1].iter_mut().enumerate() {
            let parted = node.lane(slot) ^ node.lane(slot + 1);
            let column = (parted.leading_zeros() as usize).wrapping_sub(32 - bits);
            *position = columns.get(column).copied().unwrap_or(0);
        }
        form
    }

    /// Number of children.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The children.
    pub(super) fn children(&self) -> &[Child] {
        &self.children[..self.count]
    }

    /// Where neighbours part.
    pub(super) fn positions(&self) -> &[Position] {
        &self.positions[..self.count.saturating_sub(1)]
    }

    /// The only child, if there is one.
    pub(super) fn only(&self) -> Option<Child> {
        (self.count == 1).then_some(self.children[0])
    }

    /// The children next to one, with it, that part behind a bit: below the inner node that is to
    /// part at that bit.
    pub(super) fn around(&self, slot: usize, position: Position) -> Range<usize> {
        let positions = self.positions();
        let before = positions[..slot].iter().rev();
        let behind = positions[slot..].iter();
        let parted = |at: &&Position| **at > position;
        let first = slot - before.take_while(parted).count();
        first..slot + 1 + behind.take_while(parted).count()
    }

    /// Puts another child in the place of one.
    pub(super) fn replace(&mut self, slot: usize, child: Child) {
        self.children[slot] = child;
    }

    fn put(&mut self, slot: usize, child: Child, between: usize, position: Position) {
        self.children.copy_within(slot..self.count, slot + 1);
        self.children[slot] = child;
        self.positions
            .copy_within(between..self.count - 1, between + 1);
        self.positions[between] = position;
        self.count += 1;
    }

    /// Parts children that are [`Form::around`] a bit from a new one, which has a 1 there or not.
    pub(super) fn insert(
        &mut self,
        around: Range<usize>,
        position: Position,
        has_one: bool,
        child: Child,
    ) {
        if has_one {
            self.put(around.end, child, around.end - 1, position);
        } else {
            self.put(around.start, child, around.start, position);
        }
    }

    /// Puts two children in the place of one.
    pub(super) fn part(&mut self, slot: usize, left: Child, position: Position, right: Child) {
        self.children[slot] = left;
        self.put(slot + 1, right, slot, position);
    }

    /// Puts the children of a node in the place of that node.
    pub(super) fn absorb(&mut self, slot: usize, below: &Form) {
        self.children[slot] = below.children[0];
        let rest = below.children[1..].iter().zip(below.positions());
        for (number, (child, position)) in rest.enumerate() {
            self.put(slot + 1 + number, *child, slot + number, *position);
        }
    }

    /// Takes a child out, and with it the inner node right above it: of those that part it from its
    /// neighbours the lower one.
    pub(super) fn remove(&mut self, slot: usize) {
        let positions = self.positions();
        let before = slot.checked_sub(1).and_then(|at| positions.get(at));
        let between = if before > positions.get(slot) {
            slot - 1
        } else {
            slot
        };
        self.children.copy_within(slot + 1..self.count, slot);
        let last = self.count.saturating_sub(1);
        if between + 1 < last {
            self.positions.copy_within(between + 1..last, between);
        }
        self.count = last;
    }

    /// Both sides of the topmost inner node, and its bit.
    pub(super) fn split(&self) -> (Form, Position, Form) {
        let positions = self.positions().iter().enumerate();
        let topmost = positions.min_by_key(|(_, position)| **position);
        let (at, position) = topmost.map_or((0, 0), |(at, position)| (at, *position));
        let side = |children: Range<usize>| {
            let mut form = Form::empty();
            form.count = children.len();
            let parts = children.start..children.end.saturating_sub(1);
            form.positions[..parts.len()].copy_from_slice(&self.positions[parts]);
            form.children[..children.len()].copy_from_slice(&self.children[children]);
            form
        };
        (side(0..at + 1), position, side(at + 1..self.count))
    }

    /// The bytes of a node of these children.
    pub(super) fn image(&self, height: u32) -> Vec<u8> {
        let windows = Windows::of(self.positions());
        let shape = Shape {
            children: self.count,
            windows: windows.count,
            bits: windows.bits as usize,
        };
        let mut bytes = Vec::with_capacity(8 * shape.words());
        bytes.extend(shape.state(height).to_le_bytes());
        for (offset, mask, _) in &windows.windows[..windows.count] {
            bytes.extend(offset.to_le_bytes());
            bytes.extend(mask.to_le_bytes());
        }
        debug_assert_eq!(bytes.len(), 8 * (1 + WINDOW_WORDS * windows.count));
        let lane_bytes = shape.lane_bits() / 8;
        let mut partial = 0_u32;
        bytes.extend(&partial.to_le_bytes()[..lane_bytes]);
        for position in self.positions() {
            let bit = windows.bit(*position);
            // Above the inner node the way is that of the child before; below it goes to the left.
            partial = partial & !(bit | (bit - 1)) | bit;
            bytes.extend(&partial.to_le_bytes()[..lane_bytes]);
        }
        bytes.resize(8 * shape.children_at(), 0xff);
        for child in self.children() {
            bytes.extend(child.0.to_le_bytes());
        }
        bytes
    }
}
