//! The layout of a P-Masstree on its medium.
//!
//! All numbers are little-endian, all offsets count bytes from the start of the pool. The root is
//! that of `root.rs`, with the magic `GbMassW1` for keys that are words and `GbMassS1` for strings;
//! behind it lies the first leaf of the layer of first slices.
//!
//! **Node**, aligned to 64:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 48 | head, see `blink.rs` |
//! | 48 | 8 | permutation, see below |
//! | 56 | 8 | in the first leaf of a layer: offset of the topmost node, else zero |
//! | 64 | 240 | 15 slots: slice, and value, reference, or offset of a node of the level below |
//!
//! Bits 0 to 3 of a permutation are the number of entries; then follow all slots, four bits each:
//! first those of the entries, in the order of their keys.
//!
//! ```text
//!            line 0                 line 1        line 2          line 4
//! ┌──────────────────┬───────┬───┐┌──┬──┬──┬──┐┌──┬──┬──┬──┐   ┌──┬──┬──┐
//! │ state, links,low │ perm. │top││ 0│ 1│ 2│ 3││ 4│ 5│ 6│ 7│...│12│13│14│
//! └──────────────────┴───────┴───┘└──┴──┴──┴──┘└──┴──┴──┴──┘   └──┴──┴──┘
//! ```
//!
//! **Above**, behind the first leaf of every layer but that of first slices:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 304 | 8 | offset of the first leaf of the layer above |
//! | 312 | 8 | the slice there that leads here |
//!
//! **Reference**: offset, a multiple of 16, and in its lowest bit 1 for a layer, 0 for a record.
//!
//! **Record**, aligned to 16:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | value |
//! | 8 | 8 | the slice that leads here |
//! | 16 | 4 | bytes of the key behind that slice |
//! | 20 | 4 | if layers came above the record since it was made: the depth of the layer that it |
//! | | | was made for, and 1; else 0 |
//! | 24 | | these bytes; the first ones are those of the slices of these layers |

use std::mem::offset_of;

use gabion_media::media_struct;
use gabion_media::pmem::PAtomicU64;

use crate::blink::Head;

/// Slots of a node.
pub(super) const SLOTS: usize = 15;

/// Bytes of a node.
pub(super) const NODE_BYTES: u64 = 304;

/// What offsets of nodes are multiples of.
pub(super) const NODE_ALIGN: u64 = 64;

/// Bytes of the first leaf of a layer with what is above it.
pub(super) const FIRST_BYTES: u64 = NODE_BYTES + 16;

/// Bytes of a record before those of the key.
pub(super) const RECORD_BYTES: u64 = 24;

/// Where the depth lies in the word with the length of a record.
pub(super) const ORIGIN_SHIFT: u32 = 32;

/// Bytes of a key, at most.
pub(super) const KEY_BYTES_MAX: u64 = u32::MAX as u64;

/// Bit of a reference: to a layer.
pub(super) const TO_LAYER: u64 = 1;

/// The kinds of blocks, in the lowest bits of hints; above them the layer's first leaf.
pub(super) const HINT_NODE: u64 = 1;
/// A record.
pub(super) const HINT_RECORD: u64 = 2;
/// The first leaf of a layer, which tells itself where it belongs.
pub(super) const HINT_LAYER: u64 = 3;
/// Bits of the kind in a hint.
pub(super) const HINT_BITS: u64 = 3;

media_struct! {
    /// A node.
    pub(super) struct Body {
        pub(super) head: Head,
        pub(super) permutation: PAtomicU64,
        pub(super) top: PAtomicU64,
        pub(super) slots: [Slot; SLOTS],
    }

    /// A slot of a node.
    pub(super) struct Slot {
        pub(super) slice: PAtomicU64,
        pub(super) value: PAtomicU64,
    }

    /// Where the layer of a first leaf belongs.
    pub(super) struct ParentLayer {
        pub(super) first: PAtomicU64,
        pub(super) slice: PAtomicU64,
    }

    /// The rest of a key, without its bytes.
    pub(super) struct SuffixRecord {
        pub(super) value: PAtomicU64,
        pub(super) slice: PAtomicU64,
        pub(super) len: PAtomicU64,
    }
}

const _: () = {
    assert!(size_of::<Body>() as u64 == NODE_BYTES);
    assert!(offset_of!(Body, permutation) == 48 && offset_of!(Body, top) == 56);
    assert!(offset_of!(Body, slots) == 64 && size_of::<Slot>() == 16);
    assert!(size_of::<ParentLayer>() as u64 == FIRST_BYTES - NODE_BYTES);
    assert!(size_of::<SuffixRecord>() as u64 == RECORD_BYTES);
    assert!(offset_of!(SuffixRecord, slice) == 8 && offset_of!(SuffixRecord, len) == 16);
};
