//! The layout of a P-ART on its medium.
//!
//! All numbers are little-endian, all offsets count bytes from the start of the pool.
//!
//! **Header**, 64 bytes at the pool's root, followed by the root node, of 256 children and level 0,
//! which is never replaced:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | magic, `GbPArt_1` |
//! | 8 | 8 | 1 if keys are strings of bytes, else 0 |
//! | 16 | 8 | hash of the words before under the seed 0 |
//! | 24 | 40 | zero |
//!
//! **Child**, 8 bytes: the offset of a node or leaf, a multiple of 16, and in its lowest four bits
//! what it is: 1 leaf, 2 to 5 node of 4, 16, 48, 256 children. 0 is none.
//!
//! **Node**, aligned to 64:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | bits 0 to 31 level: bytes of a key before the one that decides here; bit 32 given up |
//! | 8 | 8 | the eight bytes before that, or as many as there are, the last one lowest |
//! | 16 | 8 | end: child with the key that has no more bytes than the level |
//! | 24 | | the rest |
//!
//! | children | rest |
//! |---|---|
//! | 4 | 8 bytes: key byte of each child, 4 unused; 4 children. One cache line in all |
//! | 16 | 8 unused; 16 key bytes; 16 children |
//! | 48 | 8 unused; 256 bytes: number of the child plus 1, or 0; 48 children |
//! | 256 | 8 unused; 256 children |
//!
//! A child of 4 or 16 is there if it is not 0, whatever its key byte; one of 48 if a byte has its
//! number.
//!
//! **Leaf**: see `leaf.rs`.

use std::mem::offset_of;

use gabion_media::media_struct;
use gabion_media::pmem::PAtomicU64;

use crate::leaf::Leaf;

/// `GbPArt_1`, as the first word of a header.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"GbPArt_1");

/// Alignment of nodes: a node of four children is one cache line.
pub(super) const NODE_ALIGN: u64 = 64;
/// Most bytes of a key: a level has 32 bits.
pub(super) const KEY_BYTES_MAX: u64 = u32::MAX as u64;
/// Bit of a node's first word: the node is given up.
pub(super) const DEAD: u64 = 1 << 32;

media_struct! {
    /// The header of a trie, and its root.
    pub(super) struct Header {
        pub(super) magic: PAtomicU64,
        pub(super) kind: PAtomicU64,
        pub(super) check: PAtomicU64,
        pub(super) unused: [PAtomicU64; 5],
        pub(super) root: Node256,
    }

    /// What every node begins with.
    pub(super) struct Head {
        pub(super) state: PAtomicU64,
        pub(super) before: PAtomicU64,
        pub(super) end: PAtomicU64,
    }

    /// A node of up to 4 children.
    pub(super) struct Node4 {
        pub(super) head: Head,
        pub(super) keys: PAtomicU64,
        pub(super) children: [PAtomicU64; 4],
    }

    /// A node of up to 16 children.
    pub(super) struct Node16 {
        pub(super) head: Head,
        pub(super) unused: PAtomicU64,
        pub(super) keys: [PAtomicU64; 2],
        pub(super) children: [PAtomicU64; 16],
    }

    /// A node of up to 48 children.
    pub(super) struct Node48 {
        pub(super) head: Head,
        pub(super) unused: PAtomicU64,
        pub(super) index: [PAtomicU64; 32],
        pub(super) children: [PAtomicU64; 48],
    }

    /// A node of up to 256 children.
    pub(super) struct Node256 {
        pub(super) head: Head,
        pub(super) unused: PAtomicU64,
        pub(super) children: [PAtomicU64; 256],
    }
}

const _: () = {
    assert!(offset_of!(Header, kind) == 8 && offset_of!(Header, check) == 16);
    assert!(offset_of!(Header, root) == 64);
    assert!(offset_of!(Head, before) == 8 && offset_of!(Head, end) == 16);
    assert!(size_of::<Node4>() == 64 && offset_of!(Node4, keys) == 24);
    assert!(offset_of!(Node4, children) == 32);
    assert!(size_of::<Node16>() == 176 && offset_of!(Node16, keys) == 32);
    assert!(offset_of!(Node16, children) == 48);
    assert!(size_of::<Node48>() == 672 && offset_of!(Node48, index) == 32);
    assert!(offset_of!(Node48, children) == 288);
    assert!(size_of::<Node256>() == 2080 && offset_of!(Node256, children) == 32);
};

/// What a child is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    None,
    Leaf,
    Node4,
    Node16,
    Node48,
    Node256,
}

impl Kind {
    const ALL: [Kind; 6] = [
        Kind::None,
        Kind::Leaf,
        Kind::Node4,
        Kind::Node16,
        Kind::Node48,
        Kind::Node256,
    ];

    /// Children that a node of this kind has room for.
    pub(super) fn room(self) -> usize {
        match self {
            Kind::None | Kind::Leaf => 0,
            Kind::Node4 => 4,
            Kind::Node16 => 16,
            Kind::Node48 => 48,
            Kind::Node256 => 256,
        }
    }

    /// Bytes of a node of this kind.
    pub(super) fn bytes(self) -> u64 {
        let bytes = match self {
            Kind::None => 0,
            Kind::Leaf => size_of::<Leaf>(),
            Kind::Node4 => size_of::<Node4>(),
            Kind::Node16 => size_of::<Node16>(),
            Kind::Node48 => size_of::<Node48>(),
            Kind::Node256 => size_of::<Node256>(),
        };
        bytes as u64
    }

    /// Where the key bytes, or the index, and the children of a node of this kind begin.
    pub(super) fn places(self) -> (usize, usize) {
        match self {
            Kind::Node4 => (offset_of!(Node4, keys), offset_of!(Node4, children)),
            Kind::Node16 => (offset_of!(Node16, keys), offset_of!(Node16, children)),
            Kind::Node48 => (offset_of!(Node48, index), offset_of!(Node48, children)),
            _ => (0, offset_of!(Node256, children)),
        }
    }

    /// The smallest kind of node with room for so many children.
    pub(super) fn for_children(count: usize) -> Kind {
        let nodes = [Kind::Node4, Kind::Node16, Kind::Node48];
        let fitting = nodes.into_iter().find(|kind| count <= kind.room());
        fitting.unwrap_or(Kind::Node256)
    }
}

/// A reference to a node or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Child(pub(super) u64);

impl Child {
    pub(super) const NONE: Child = Child(0);

    /// A reference to what lies at an offset, a multiple of 16.
    pub(super) fn new(kind: Kind, at: u64) -> Child {
        debug_assert!(at.is_multiple_of(16), "blocks are aligned");
        Child(at | kind as u64)
    }

    /// What it is; none also for what can be no child, on a damaged medium.
    #[inline]
    pub(super) fn kind(self) -> Kind {
        let kind = (self.0 & 15) as usize;
        if kind < Kind::ALL.len() {
            Kind::ALL[kind]
        } else {
            Kind::None
        }
    }

    #[inline]
    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(super) fn is_leaf(self) -> bool {
        self.0 & 15 == Kind::Leaf as u64
    }

    /// Its offset.
    #[inline]
    pub(super) fn at(self) -> u64 {
        self.0 & !15
    }
}
