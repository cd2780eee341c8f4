//! What a FAST&FAIR tree keeps on its medium.
//!
//! All numbers are little-endian, all offsets count bytes from the start of the pool.
//!
//! **Header**, 64 bytes at the pool's root. The first leaf follows 256 bytes behind its begin; it
//! is never given up.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | magic, `GbFsFai1` |
//! | 8 | 8 | slots of a node |
//! | 16 | 8 | hash of the words before under the seed 0 |
//! | 24 | 8 | offset of the topmost node |
//! | 32 | 8 | 1 if the greatest key of all, 2^64 - 1, is there, else 0 |
//! | 40 | 8 | its value |
//! | 48 | 16 | zero |
//!
//! **Node**, 48 bytes and its slots, 512 bytes with 29 of them, aligned to 256 or its size:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 48 | head, see `blink.rs` |
//! | 48 | 16 n | slots: key, and value or offset of a node of the level below |
//!
//! ```text
//!          line 0                     line 1                 line 2
//! ┌─────────────────────┬────┐┌────┬────┬────┬────┐┌────┬────┬────┬────┐
//! │ state, links, low   │ s0 ││ s1 │ s2 │ s3 │ s4 ││ s5 │ s6 │ s7 │ s8 │ ...
//! └─────────────────────┴────┘└────┴────┴────┴────┘└────┴────┴────┴────┘
//! ```
//!
//! A link without neighbour has the bound 2^64 - 1; every key in a node is below its bound. The
//! first slot of an inner node has the node's low as its key.

use std::mem::offset_of;

use gabion_media::media_struct;
use gabion_media::pmem::PAtomicU64;

use crate::blink::{HEAD_BYTES, NO_BOUND};

/// `GbFsFai1`, as the first word of a header.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"GbFsFai1");

/// Bytes from the header to the first leaf.
pub(super) const FIRST_LEAF: u64 = 256;

/// What no key in a node reaches. The one key that equals it has a place of its own.
pub(super) const NO_KEY: u64 = NO_BOUND;

media_struct! {
    /// The header of a tree.
    pub(super) struct Header {
        pub(super) magic: PAtomicU64,
        pub(super) slots: PAtomicU64,
        pub(super) check: PAtomicU64,
        pub(super) top: PAtomicU64,
        pub(super) has_greatest: PAtomicU64,
        pub(super) greatest: PAtomicU64,
        pub(super) unused: [PAtomicU64; 2],
    }

    /// A slot of a node.
    pub(super) struct Slot {
        pub(super) key: PAtomicU64,
        pub(super) value: PAtomicU64,
    }
}

const _: () = {
    assert!(size_of::<Header>() == 64);
    assert!(offset_of!(Header, slots) == 8);
    assert!(offset_of!(Header, check) == 16);
    assert!(offset_of!(Header, top) == 24);
    assert!(offset_of!(Header, has_greatest) == 32);
    assert!(offset_of!(Header, greatest) == 40);
    assert!(size_of::<Slot>() == 16);
};

/// Bytes of a node with so many slots.
pub(super) const fn node_bytes(slots: usize) -> u64 {
    HEAD_BYTES + (slots * size_of::<Slot>()) as u64
}

/// Where nodes begin: at multiples of the unit in which the medium writes, if they are that large.
pub(super) const fn node_align(slots: usize) -> u64 {
    let bytes = node_bytes(slots);
    if bytes < FIRST_LEAF {
        bytes
    } else {
        FIRST_LEAF
    }
}

/// Whether a slot is the first in its cache line. The first four lie behind the head.
#[inline]
pub(super) fn begins_line(slot: usize) -> bool {
    slot % 4 == 1
}
