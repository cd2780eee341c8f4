//! What an SPTree keeps on its medium.
//!
//! All numbers are little-endian, all offsets count bytes from the start of the pool.
//!
//! **Root block**, at the pool's root:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 64 | root of an index: magic, seed of hashes, planned entries, pairs of a leaf |
//! | 64 | 8 | offset of the first page of the logs, 0 if there is none |
//! | 72 | 184 | zero |
//! | 256 | | the backup, empty |
//! | | 128 + 16 n | the first leaf, which is never given up |
//!
//! | keys | magic | backup | first leaf at |
//! |---|---|---|---|
//! | words | `GbSpTre1` | FAST&FAIR tree: header, 192 bytes unused, leaf of 512 | 1024 |
//! | strings | `GbSpTrS1` | P-ART: header and root node, 2144 bytes; 32 unused | 2432 |
//!
//! **Leaf** of n pairs, 64 or a smaller multiple of 8, at a multiple of 128:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | bitmap: bit i is set if pair i is an entry |
//! | 8 | 8 | offset of the next leaf, 0 if there is none |
//! | 16 | 8 | lkey: the least key that belongs here |
//! | 24 | 8 | hkey: what all keys are below, that is the next leaf's lkey; 2^64 - 1 without one |
//! | 32 | 8 | merged: changes in the logs up to this number have no say here any more |
//! | 40 | 24 | zero |
//! | 64 | 64 | tags: byte i is one of the hash of the key of pair i |
//! | 128 | 1024 | pairs: key, value; 16 n bytes |
//!
//! If keys are strings, a pair is the first eight bytes of the key, the first one highest and with
//! zeros behind a shorter one, and the offset of an item; lkey is the offset of an item with that
//! key and no value, 0 for the empty string; and hkey is the lkey of the next leaf.
//!
//! **Item**, in trees of strings:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | length of the key, and 2^32 times that of the value |
//! | 8 | | key, value |
//!
//! Pages of the logs, of n - 1 records, are described in `spoton/layout.rs`.
//!
//! ```text
//!        head                  tags                 pairs
//! ┌──────────────────┐┌──────────────────┐┌────┬────┬────┬────┐
//! │ bitmap next lkey ││ t0 t1 t2 ... t63 ││ p0 │ p1 │ p2 │ p3 │ ...
//! │ hkey merged      ││                  ││    │    │    │    │
//! └──────────────────┘└──────────────────┘└────┴────┴────┴────┘
//! ```
//!
//! Tags and pairs without a bit in the bitmap have no meaning. So have pairs at or above the hkey:
//! a crash in the middle of a split or a merge leaves such pairs until the next recovery.

use std::mem::offset_of;

use gabion_media::media_struct;
use gabion_media::pmem::PAtomicU64;

use crate::art;
use crate::fastfair::FastFair;

/// The first word of the root of a tree of words.
pub(super) const MAGIC_WORDS: u64 = u64::from_le_bytes(*b"GbSpTre1");
/// The first word of the root of a tree of strings.
pub(super) const MAGIC_STRINGS: u64 = u64::from_le_bytes(*b"GbSpTrS1");

/// Bytes from the root to the line of what changes.
pub(super) const MOVING_AT: u64 = 64;
/// Bytes from the root to the header of the backup.
pub(super) const BACKUP_AT: u64 = 256;
/// Alignment of leaves, so that head and tags lie in one unit of the medium.
pub(super) const LEAF_ALIGN: u64 = 128;

/// Hint of blocks that are items. 2 is that of pages of logs. Those of leaves and of the backup
/// depend on the kind of keys.
pub(super) const ITEM_HINT: u64 = 18;

/// Bytes of an item before its key.
pub(super) const ITEM_BYTES: u64 = 8;

/// Bytes of a leaf before its pairs.
pub(super) const PAIRS_AT: u64 = 128;

media_struct! {
    /// What changes in the root block.
    pub(super) struct RootState {
        pub(super) logs: PAtomicU64,
        pub(super) unused: [PAtomicU64; 7],
    }

    /// The head of a leaf.
    pub(super) struct Head {
        pub(super) bitmap: PAtomicU64,
        pub(super) next: PAtomicU64,
        pub(super) lkey: PAtomicU64,
        pub(super) hkey: PAtomicU64,
        pub(super) merged: PAtomicU64,
        pub(super) unused: [PAtomicU64; 3],
    }

    /// The tags of a leaf.
    pub(super) struct Tags {
        pub(super) words: [PAtomicU64; 8],
    }

    /// A pair of a leaf.
    pub(super) struct Pair {
        pub(super) key: PAtomicU64,
        pub(super) value: PAtomicU64,
    }

    /// What an item begins with.
    pub(super) struct ItemHead {
        pub(super) lengths: PAtomicU64,
    }
}

const _: () = {
    assert!(size_of::<RootState>() == 64);
    assert!(offset_of!(RootState, logs) == 0);
    assert!(size_of::<Head>() == 64);
    assert!(offset_of!(Head, bitmap) == 0);
    assert!(offset_of!(Head, next) == 8);
    assert!(offset_of!(Head, lkey) == 16);
    assert!(offset_of!(Head, hkey) == 24);
    assert!(offset_of!(Head, merged) == 32);
    assert!(size_of::<Tags>() == 64);
    assert!(size_of::<Pair>() == 16);
    assert!((size_of::<Head>() + size_of::<Tags>()) as u64 == PAIRS_AT);
    assert!(size_of::<ItemHead>() as u64 == ITEM_BYTES);
    assert!(first_leaf_at(FastFair::<29>::EMPTY_BYTES) == 1024);
    assert!(first_leaf_at(art::EMPTY_BYTES) == 2432);
};

/// Bytes from the root to the first leaf, behind a backup of so many bytes.
pub(super) const fn first_leaf_at(backup_bytes: u64) -> u64 {
    (BACKUP_AT + backup_bytes).next_multiple_of(LEAF_ALIGN)
}

/// Bytes of a leaf with so many pairs.
pub(super) const fn leaf_bytes(pairs: usize) -> u64 {
    PAIRS_AT + (pairs * size_of::<Pair>()) as u64
}
