//! What a P-Skiplist keeps on its medium.
//!
//! All numbers are little-endian, all offsets count bytes from the start of the pool. The root is
//! that of `root.rs`, with the magic `GbSkipW1` for keys that are words and `GbSkipS1` for strings;
//! behind it lies the head, a node of height 16 whose first three words are not used.
//!
//! **Node**, aligned to 16:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | state: bits 0 to 7 height, 1 to 16; bit 8 taken out; bits 16 to 47 bytes of the key |
//! | 8 | 8 | value |
//! | 16 | 8 | the key, or its first eight bytes, see `stored_key.rs` |
//! | 24 | 8 h | links: the next node of each level, from 0 on; 0 is none |
//! | 24 + 8 h | | the bytes of the key behind the first eight |

use std::mem::offset_of;

use gabion_media::media_struct;
use gabion_media::pmem::PAtomicU64;

/// Levels of a list: with one node in four on the next, as many as 2^32 entries need.
pub(super) const LEVELS: usize = 16;

/// Bytes of a key, at most.
pub(super) const KEY_BYTES_MAX: u64 = u32::MAX as u64;

/// Bytes of a node before its links.
pub(super) const FACE_BYTES: u64 = 24;

/// Bytes of the head.
pub(super) const HEAD_BYTES: u64 = FACE_BYTES + 8 * LEVELS as u64;

/// Bits of a state: the height.
pub(super) const HEIGHT: u64 = 0xff;
/// Bit of a state: the node was taken out.
pub(super) const DEAD: u64 = 1 << 8;
/// Where the bytes of the key begin in a state.
pub(super) const LEN_SHIFT: u32 = 16;

media_struct! {
    /// What a node has before its links.
    pub(super) struct NodeHead {
        pub(super) state: PAtomicU64,
        pub(super) value: PAtomicU64,
        pub(super) word: PAtomicU64,
    }
}

const _: () = {
    assert!(size_of::<NodeHead>() as u64 == FACE_BYTES);
    assert!(offset_of!(NodeHead, value) == 8 && offset_of!(NodeHead, word) == 16);
};
