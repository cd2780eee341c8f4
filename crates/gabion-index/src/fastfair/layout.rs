//! The layout of a FAST&FAIR tree on its medium.
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
//! **Node**, 48 bytes and its slots, 512 bytes with 29 of them, aligned to 256 or its size. With a
//! multiple of four slots they come 8 bytes later:
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
//! Nodes whose number of slots is a multiple of four are *padded*: a word of zeros follows the
//! head, as in the published code, and one follows the last slot. So the first slot of each four
//! lies in two lines:
//!
//! ```text
//!          line 0                     line 1                     line 2
//! ┌─────────────────────┬──────┐┌──────┬────┬────┬────┬──────┐┌──────┬────┬────┬────┬──────┐
//! │ state, links, low   │ 0 k0 ││ v0   │ s1 │ s2 │ s3 │ k4   ││ v4   │ s5 │ s6 │ s7 │ k8   │ ...
//! └─────────────────────┴──────┘└──────┴────┴────┴────┴──────┘└──────┴────┴────┴────┴──────┘
//! ```
//!
//! A link without neighbour has the bound 2^64 - 1; every key in a node is below its bound. A leaf
//! whose bound is its low, which is not 0, holds nothing: its range is the neighbour's. The first
//! slot of an inner node has the node's low as its key.

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

/// Whether the slots of a node come a word behind its head.
pub(super) const fn is_padded(slots: usize) -> bool {
    slots.is_multiple_of(4)
}

/// Bytes of padding before the slots, and behind them.
const fn padding_bytes(slots: usize) -> u64 {
    if is_padded(slots) { 8 } else { 0 }
}

/// Bytes from the begin of a node to its slots.
pub(super) const fn slots_at(slots: usize) -> u64 {
    HEAD_BYTES + padding_bytes(slots)
}

/// Bytes of a node with so many slots.
pub(super) const fn node_bytes(slots: usize) -> u64 {
    slots_at(slots) + (slots * size_of::<Slot>()) as u64 + padding_bytes(slots)
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

/// Whether a slot's key is the first in its cache line.
#[inline]
pub(super) fn begins_line(slot: usize) -> bool {
    slot % 4 == 1
}

/// Whether a slot, of so many, has its key in one cache line and its value in the next.
#[inline]
pub(super) fn is_split(slot: usize, slots: usize) -> bool {
    is_padded(slots) && slot.is_multiple_of(4)
}
