//! The layout of a layered index on its medium, beside its base.
//!
//! All numbers are little-endian, all offsets count bytes from the start of the pool.
//!
//! **Root block**, at the pool's root:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 64 | root of an index: magic, seed, entries, buffers; records, pages, lanes of the logs |
//! | 64 | 8 | offset of the first page of the logs |
//! | 72 | 8 | floor: the base has all changes up to this number |
//! | 80 | 176 | zero |
//!
//! Then comes the base as it is when it is empty:
//!
//! | base | magic | begins with |
//! |---|---|---|
//! | FAST&FAIR | `GbLayFF1` | its header; the first leaf comes 256 bytes behind that |
//! | P-Skiplist | `GbLaySk1` | its first node |
//! | CCEH | `GbLayCc1` | the word that names its directory, in a line of its own |
//!
//! Behind that, from the next multiple of 256 on, are the first pages of the logs
//! (`spoton/layout.rs`), as many as all buffers need.

use std::mem::offset_of;

use gabion_media::media_struct;
use gabion_media::pmem::PAtomicU64;

use crate::spoton::layout::{PAGE_ALIGN, page_bytes};

/// Bytes from the root to the line of what changes.
pub(super) const MOVING_AT: u64 = 64;
/// Bytes from the root to the base.
pub(super) const BASE_AT: u64 = 256;

media_struct! {
    /// What changes in the root block.
    pub(super) struct RootState {
        pub(super) logs: PAtomicU64,
        pub(super) floor: PAtomicU64,
        pub(super) unused: [PAtomicU64; 6],
    }
}

const _: () = {
    assert!(size_of::<RootState>() == 64);
    assert!(offset_of!(RootState, logs) == 0);
    assert!(offset_of!(RootState, floor) == 8);
};

/// Where the first page of the logs is, in the block of a root with a base of so many bytes.
pub(super) const fn first_page_at(root: u64, base_bytes: u64) -> u64 {
    (root + BASE_AT + base_bytes).next_multiple_of(PAGE_ALIGN)
}

/// Bytes of a root block with a base of so many bytes and so many pages, wherever it comes to lie.
pub(super) const fn block_bytes<const PAGE: usize>(base_bytes: u64, pages: u64) -> u64 {
    BASE_AT + base_bytes + PAGE_ALIGN + pages * page_bytes(PAGE)
}
