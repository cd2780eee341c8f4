//! The layout of a P-HOT on its medium.
//!
//! All numbers are little-endian, all offsets count bytes from the start of the pool. The root is
//! that of `root.rs`, with the magic `GbPHotW1` for keys that are words and `GbPHotS1` for strings;
//! behind it, in a line of its own, lies one word: the child that is the topmost node, or the only
//! leaf, or none.
//!
//! **Child**, 8 bytes: the offset of a node or leaf, a multiple of 16, and in its lowest four bits
//! what it is: 1 leaf, 2 node. 0 is none.
//!
//! **Node**, aligned to 64, of `n` children, `w` windows and `l` words of lanes:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | state, see below |
//! | 8 | 16 | first window: offset in a key in bytes, then the mask of 64 bits from there on |
//! | 8 + 16 w | 8 l | lanes: a partial key for each child, the first lowest, 1s behind the last |
//! | 8 + 16 w + 8 l | 8 n | the children, in the order of keys |
//!
//! **State**:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 to 7 | number of children, 2 to 32 |
//! | 8 to 15 | number of windows, 1 to 31 |
//! | 16 to 23 | number of bits that the masks select, 1 to 31; lanes have 8, 16 or 32 bits |
//! | 24 | given up |
//! | 32 to 63 | height: more than that of each child, a leaf having 0 |
//!
//! **Leaf**: see `leaf.rs`.

use gabion_media::media_struct;
use gabion_media::pmem::PAtomicU64;

/// Children of a node, at most.
pub(super) const ROOM: usize = 32;

/// Alignment of nodes, so that they take as few lines as they can.
pub(super) const NODE_ALIGN: u64 = 64;

/// Bit of a state: the node is given up.
pub(super) const DEAD: u64 = 1 << 24;

const WINDOWS_SHIFT: u32 = 8;
const BITS_SHIFT: u32 = 16;
const HEIGHT_SHIFT: u32 = 32;

/// Words of a window.
pub(super) const WINDOW_WORDS: usize = 2;

/// Words of a node, at most: a window for each bit, and lanes of 32 bits.
pub(super) const WORDS_MAX: usize = 1 + WINDOW_WORDS * (ROOM - 1) + ROOM / 2 + ROOM;

media_struct! {
    /// What lies behind the root.
    pub(super) struct RootBlock {
        pub(super) child: PAtomicU64,
        pub(super) unused: [PAtomicU64; 7],
    }
}

const _: () = {
    assert!(size_of::<RootBlock>() == 64 && std::mem::offset_of!(RootBlock, child) == 0);
    // A partial key fits into a lane, as do the numbers of a state into their bytes.
    assert!(ROOM - 1 < 32);
};

/// How many there are of what in a node: all that a state says but the height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeShape {
    pub(super) children: usize,
    pub(super) windows: usize,
    pub(super) bits: usize,
}

impl NodeShape {
    /// The shape of a node with a state; none if no node can have it.
    #[inline]
    pub(super) fn of(state: u64) -> Option<NodeShape> {
        let byte = |shift: u32| (state >> shift & 0xff) as usize;
        let shape = NodeShape {
            children: byte(0),
            windows: byte(WINDOWS_SHIFT),
            bits: byte(BITS_SHIFT),
        };
        let is_sound = (2..=ROOM).contains(&shape.children)
            && (1..shape.children).contains(&shape.bits)
            && (1..=shape.bits).contains(&shape.windows);
        is_sound.then_some(shape)
    }

    /// The state of a node of this shape.
    pub(super) fn state(self, height: u32) -> u64 {
        self.children as u64
            | (self.windows as u64) << WINDOWS_SHIFT
            | (self.bits as u64) << BITS_SHIFT
            | u64::from(height) << HEIGHT_SHIFT
    }

    /// Bits of a lane.
    #[inline]
    pub(super) fn lane_bits(self) -> usize {
        match self.bits {
            0..=8 => 8,
            9..=16 => 16,
            _ => 32,
        }
    }

    /// The first word of the lanes.
    #[inline]
    pub(super) fn lanes_at(self) -> usize {
        1 + WINDOW_WORDS * self.windows
    }

    /// The first word of the children.
    #[inline]
    pub(super) fn children_at(self) -> usize {
        self.lanes_at() + (self.children * self.lane_bits()).div_ceil(64)
    }

    /// Words of the node.
    #[inline]
    pub(super) fn words(self) -> usize {
        self.children_at() + self.children
    }
}

/// The height in a state.
#[inline]
pub(super) fn height_of(state: u64) -> u32 {
    (state >> HEIGHT_SHIFT) as u32
}

const LEAF: u64 = 1;
const NODE: u64 = 2;
const KIND: u64 = 15;

/// A reference to a node or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Child(pub(super) u64);

impl Child {
    pub(super) const NONE: Child = Child(0);

    /// What the allocator's notes of leaves and of nodes say that they are.
    pub(super) const LEAF_HINT: u64 = LEAF;
    pub(super) const NODE_HINT: u64 = NODE;

    /// A reference to the leaf at an offset, a multiple of 16.
    pub(super) fn leaf(at: u64) -> Child {
        debug_assert!(at.is_multiple_of(KIND + 1), "blocks are aligned");
        Child(at | LEAF)
    }

    /// A reference to the node at an offset, a multiple of 16.
    pub(super) fn node(at: u64) -> Child {
        debug_assert!(at.is_multiple_of(KIND + 1), "blocks are aligned");
        Child(at | NODE)
    }

    #[inline]
    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(super) fn is_leaf(self) -> bool {
        self.0 & KIND == LEAF
    }

    #[inline]
    pub(super) fn is_node(self) -> bool {
        self.0 & KIND == NODE
    }

    /// What it is, as a hint for the allocator.
    pub(super) fn hint(self) -> u64 {
        self.0 & KIND
    }

    /// Its offset.
    #[inline]
    pub(super) fn at(self) -> u64 {
        self.0 & !KIND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_tells_a_shape_and_nothing_else() {
        for (children, windows, bits, words) in [
            (2, 1, 1, 1 + 2 + 1 + 2),
            (32, 1, 5, 1 + 2 + 4 + 32),
            (9, 2, 8, 1 + 4 + 2 + 9),
            (10, 2, 9, 1 + 4 + 3 + 10),
            (32, 31, 31, WORDS_MAX),
        ] {
            let shape = NodeShape {
                children,
                windows,
                bits,
            };
            let state = shape.state(u32::MAX);
            assert_eq!(NodeShape::of(state), Some(shape));
            assert_eq!(NodeShape::of(state | DEAD), Some(shape));
            assert_eq!((height_of(state), height_of(shape.state(1))), (u32::MAX, 1));
            assert_eq!(shape.words(), words);
        }
        for state in [
            0, 1, 0x01_01_01, 0x01_01_21, 0x02_01_02, 0x01_02_02, 0x01_00_02,
        ] {
            assert_eq!(NodeShape::of(state), None, "{state:x}");
        }
    }
}
