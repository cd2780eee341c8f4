//! What the logs of write buffers are on a medium.
//!
//! All numbers are little-endian, all offsets count bytes from the start of the pool.
//!
//! **Page** of n records, one of which is its head: 32 n bytes, at a multiple of 256:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | offset of the next page, 0 if there is none |
//! | 8 | 24 | unused |
//! | 32 | 32 n - 32 | records |
//!
//! **Record** of a log:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | key |
//! | 8 | 8 | value, 0 if the key was deleted |
//! | 16 | 8 | change: twice its number, plus one if the key was deleted |
//! | 24 | 8 | hash of the words before and of the record's offset |
//!
//! A record without that hash is none. See `log.rs` for which of the others count.

use std::mem::offset_of;

use gabion_media::media_struct;
use gabion_media::pmem::PAtomicU64;

/// Hint of blocks that are pages of logs.
pub(crate) const PAGE_HINT: u64 = 2;

/// Alignment of pages of logs, to lines of the medium.
pub(crate) const PAGE_ALIGN: u64 = 256;

media_struct! {
    /// What a page of a log begins with.
    pub(crate) struct PageHead {
        pub(crate) next: PAtomicU64,
        pub(crate) unused: [PAtomicU64; 3],
    }

    /// A record of a log.
    pub(crate) struct Record {
        pub(crate) key: PAtomicU64,
        pub(crate) value: PAtomicU64,
        pub(crate) change: PAtomicU64,
        pub(crate) check: PAtomicU64,
    }
}

const _: () = {
    assert!(size_of::<PageHead>() == 32);
    assert!(offset_of!(PageHead, next) == 0);
    assert!(size_of::<Record>() == 32);
    assert!(offset_of!(Record, value) == 8);
    assert!(offset_of!(Record, change) == 16);
    assert!(offset_of!(Record, check) == 24);
};

/// Bytes of a page of so many records, its head among them.
pub(crate) const fn page_bytes(records: usize) -> u64 {
    (records * size_of::<Record>()) as u64
}
