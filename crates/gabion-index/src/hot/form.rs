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
//!
//! A form keeps the partial keys as numbers of 32 bits, which hold all bits that a node can look
//! at. So a new inner node is one more 1 in those on its right side, and where it looks at a bit
//! that no other one does, those behind that bit stay and those before it move up by one place.

use std::ops::Range;

use super::bits::{Position, bit_in_window, end_of_window, extract, first_position, window_of};
use super::layout::{Child, NodeShape, ROOM, WINDOW_WORDS, WORDS_MAX};
use super::node::Node;

/// Up to one child more than a node has room for, and their partial keys.
#[derive(Clone, Debug)]
pub(super) struct UnpackedNode {
    count: usize,
    children: [Child; ROOM + 1],
    /// The partial keys; 0 behind the last one.
    lanes: [u32; ROOM + 1],
    /// Number of bits of a partial key.
    bits: usize,
    /// Which bits of keys these are: the first one, and highest in a lane, first. Each of them
    /// parts children, so they are fewer than those.
    columns: [Position; ROOM],
}

/// The bytes of a node.
pub(super) struct NodeImage {
    words: [[u8; 8]; WORDS_MAX],
    count: usize,
}

impl NodeImage {
    pub(super) fn bytes(&self) -> &[u8] {
        self.words[..self.count].as_flattened()
    }
}

impl UnpackedNode {
    /// Two children.
    pub(super) fn pair(left: Child, position: Position, right: Child) -> UnpackedNode {
        let mut form = UnpackedNode::empty();
        form.children[0] = left;
        form.count = 1;
        form.part(0, position, right);
        form
    }

    /// No child.
    pub(super) fn empty() -> UnpackedNode {
        UnpackedNode {
            count: 0,
            children: [Child::NONE; ROOM + 1],
            lanes: [0; ROOM + 1],
            bits: 0,
            columns: [0; ROOM],
        }
    }

    /// What a node has.
    pub(super) fn of(node: &Node<'_>) -> UnpackedNode {
        let mut form = UnpackedNode::empty();
        let NodeShape { children, bits, .. } = node.shape();
        (form.count, form.bits) = (children, bits);
        let mut free = form.columns[..bits].iter_mut();
        let mut covered = 0;
        for (offset, mut mask) in node.windows() {
            while mask != 0
                && let Some(column) = free.next()
            {
                // They are in order even where they are damaged.
                *column = first_position(offset, mask).max(covered);
                covered = *column;
                mask &= !(1 << (u64::BITS - 1) >> mask.leading_zeros());
            }
        }
        node.read_lanes(&mut form.lanes[..children]);
        for (slot, child) in form.children[..children].iter_mut().enumerate() {
            *child = node.child(slot);
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

    /// Where a child and the next one part; none if there are not both.
    pub(super) fn position(&self, slot: usize) -> Option<Position> {
        let two = self.lanes[..self.count].get(slot..slot + 2)?;
        let low = (two[0] ^ two[1]).checked_ilog2()? as usize;
        self.columns[..self.bits].iter().nth_back(low).copied()
    }

    /// The only child, if there is one.
    pub(super) fn only(&self) -> Option<Child> {
        (self.count == 1).then_some(self.children[0])
    }

    /// The children next to one, with it, that part behind a bit: below the inner node that is to
    /// part at that bit.
    pub(super) fn around(&self, slot: usize, position: Position) -> Range<usize> {
        let columns = self.columns[..self.bits].iter();
        let behind = columns.filter(|column| **column > position).count();
        let way = |lane: &u32| u64::from(*lane) >> behind;
        let is_around = |lane: &&u32| way(lane) == way(&self.lanes[slot]);
        let lanes = &self.lanes[..self.count];
        let first = slot - lanes[..slot].iter().rev().take_while(is_around).count();
        first..slot + 1 + lanes[slot + 1..].iter().take_while(is_around).count()
    }

    /// Puts another child in the place of one.
    pub(super) fn replace(&mut self, slot: usize, child: Child) {
        self.children[slot] = child;
    }

    /// The bit of lanes for a position. Makes room for one if there is none.
    fn bit(&mut self, position: Position) -> u32 {
        let columns = &self.columns[..self.bits];
        let before = columns.iter().filter(|column| **column < position).count();
        let behind = self.bits - before;
        if columns.get(before) == Some(&position) {
            return 1 << (behind - 1);
        }
        self.columns.copy_within(before..self.bits, before + 1);
        self.columns[before] = position;
        self.bits += 1;
        let low = (1 << behind) - 1;
        for lane in &mut self.lanes {
            *lane = (*lane & !low) << 1 | *lane & low;
        }
        1 << behind
    }

    /// Parts children that are [`UnpackedNode::around`] a bit from a new one, which has a 1 there
    /// or not.
    pub(super) fn insert(
        &mut self,
        around: Range<usize>,
        position: Position,
        has_one: bool,
        child: Child,
    ) {
        let bit = self.bit(position);
        // Above the inner node all ways are the same, below it the new child's goes to the left.
        let way = self.lanes[around.start] & !(bit | (bit - 1));
        let (slot, lane) = if has_one {
            (around.end, way | bit)
        } else {
            self.lanes[around.clone()]
                .iter_mut()
                .for_each(|lane| *lane |= bit);
            (around.start, way)
        };
        self.children.copy_within(slot..self.count, slot + 1);
        self.lanes.copy_within(slot..self.count, slot + 1);
        self.children[slot] = child;
        self.lanes[slot] = lane;
        self.count += 1;
    }

    /// Puts a new child behind one, from which it parts at a bit.
    pub(super) fn part(&mut self, slot: usize, position: Position, child: Child) {
        self.insert(self.around(slot, position), position, true, child);
    }

    /// Puts the children of a node in the place of that node.
    pub(super) fn absorb(&mut self, slot: usize, below: &UnpackedNode) {
        self.replace(slot, below.children[0]);
        for (before, child) in below.children()[1..].iter().enumerate() {
            let position = below.position(before).unwrap_or(0);
            self.part(slot + before, position, *child);
        }
    }

    /// Takes a child out, and with it the inner node right above it: of those that part it from its
    /// neighbours the lower one.
    pub(super) fn remove(&mut self, slot: usize) {
        let before = slot.checked_sub(1).and_then(|slot| self.position(slot));
        if let Some(position) = self.position(slot).filter(|at| Some(*at) > before) {
            let other_side = self.around(slot + 1, position);
            let bit = self.bit(position);
            self.lanes[other_side]
                .iter_mut()
                .for_each(|lane| *lane &= !bit);
        }
        self.children.copy_within(slot + 1..self.count, slot);
        self.lanes.copy_within(slot + 1..self.count, slot);
        self.count -= 1;
        self.lanes[self.count] = 0;
        self.drop_unused_bits();
    }

    /// Drops the bits by which no children part any more.
    fn drop_unused_bits(&mut self) {
        let used = self.lanes.iter().fold(0, |used, lane| used | *lane);
        let bits = self.bits;
        self.bits = 0;
        for column in 0..bits {
            if used >> (bits - 1 - column) & 1 == 1 {
                self.columns[self.bits] = self.columns[column];
                self.bits += 1;
            }
        }
        for lane in &mut self.lanes[..self.count] {
            let (bits, _) = extract(u64::from(*lane), u64::from(used));
            // Bits of a lane are no more than a lane has.
            *lane = (bits & 0xffff_ffff) as u32;
        }
    }

    /// Both sides of the topmost inner node, and its bit.
    pub(super) fn split(&self) -> (UnpackedNode, Position, UnpackedNode) {
        let topmost = 1 << (self.bits - 1);
        let lanes = self.lanes[..self.count].iter();
        let middle = lanes.take_while(|lane| **lane & topmost == 0).count();
        // That neither side is empty goes without saying unless the lanes are damaged.
        let middle = middle.clamp(1, self.count - 1);
        let side = |range: Range<usize>| {
            let mut form = UnpackedNode::empty();
            form.count = range.len();
            (form.bits, form.columns) = (self.bits, self.columns);
            form.children[..range.len()].copy_from_slice(&self.children[range.clone()]);
            for (lane, old) in form.lanes.iter_mut().zip(&self.lanes[range]) {
                *lane = old & !topmost;
            }
            form.drop_unused_bits();
            form
        };
        (side(0..middle), self.columns[0], side(middle..self.count))
    }

    /// The bytes of a node of these children.
    pub(super) fn image(&self, height: u32) -> NodeImage {
        let mut image = NodeImage {
            words: [[0; 8]; WORDS_MAX],
            count: 0,
        };
        let words = &mut image.words;
        let mut windows = 0;
        let (mut offset, mut mask, mut covered) = (0, 0, 0);
        for position in &self.columns[..self.bits] {
            if *position >= covered {
                (offset, mask) = (window_of(*position), 0);
                covered = end_of_window(offset);
                words[1 + WINDOW_WORDS * windows] = offset.to_le_bytes();
                windows += 1;
            }
            mask |= bit_in_window(offset, *position);
            words[WINDOW_WORDS * windows] = mask.to_le_bytes();
        }
        let shape = NodeShape {
            children: self.count,
            windows,
            bits: self.bits,
        };
        words[0] = shape.state(height).to_le_bytes();
        let lanes = &self.lanes[..self.count];
        let space = &mut words[shape.lanes_at()..];
        match shape.lane_bits() {
            8 => pack::<8>(lanes, space),
            16 => pack::<16>(lanes, space),
            _ => pack::<32>(lanes, space),
        }
        let space = words[shape.children_at()..].iter_mut();
        for (word, child) in space.zip(self.children()) {
            *word = child.0.to_le_bytes();
        }
        image.count = shape.words();
        image
    }
}

/// Puts lanes of so many bits into words, with 1s behind the last one.
fn pack<const BITS: usize>(lanes: &[u32], words: &mut [[u8; 8]]) {
    for (word, lanes) in words.iter_mut().zip(lanes.chunks(64 / BITS)) {
        let lanes = lanes.iter().rev();
        let packed = lanes.fold(u64::MAX, |word, lane| word << BITS | u64::from(*lane));
        *word = packed.to_le_bytes();
    }
}
