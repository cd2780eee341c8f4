//! What differs between trees of words and trees of strings: the backup, which is a tree of the
//! same keys, and by what the blocks of a pool are told apart.

use gabion_media::pmem::{BlockClaim, Medium, Pool};

use super::layout::{MAGIC_STRINGS, MAGIC_WORDS};
use crate::art::{self, Art};
use crate::fastfair::{self, FastFair};
use crate::{Item, OrderedIndex, Result};

/// A kind of keys of an [`SpTree`](crate::SpTree): `u64` or `[u8]`.
pub trait TreeKey: Item {
    /// The first word of a root, and the layout of a pool.
    #[doc(hidden)]
    const MAGIC: u64;
    /// Hint of blocks that are leaves.
    #[doc(hidden)]
    const LEAF_HINT: u64;
    /// Bytes of an empty backup.
    #[doc(hidden)]
    const BACKUP_BYTES: u64;

    /// Writes an empty backup to an offset, durable with the next fence.
    #[doc(hidden)]
    fn place_backup(medium: &Medium, at: u64);

    /// Finds the backup at an offset.
    #[doc(hidden)]
    fn open_backup(pool: &Pool, at: u64) -> Result<Box<dyn OrderedIndex<Self>>>;

    /// Whether the backup at an offset durably refers to a block; asked before there is a pool, of
    /// blocks whose hint is no leaf's, item's or page's.
    #[doc(hidden)]
    fn is_in_backup(medium: &Medium, at: u64, claim: BlockClaim) -> bool;

    /// The leaf of the greatest lkey up to `key` in the backup at an offset, or of a lesser one, or
    /// none; asked before there is a pool.
    #[doc(hidden)]
    fn leaf_in_backup(medium: &Medium, at: u64, key: &Self) -> Option<u64>;
}

impl TreeKey for u64 {
    const MAGIC: u64 = MAGIC_WORDS;
    const LEAF_HINT: u64 = 1;
    const BACKUP_BYTES: u64 = FastFair::<29>::EMPTY_BYTES;

    fn place_backup(medium: &Medium, at: u64) {
        FastFair::<29>::place(medium, at);
    }

    fn open_backup(pool: &Pool, at: u64) -> Result<Box<dyn OrderedIndex<u64>>> {
        Ok(Box::new(FastFair::<29>::at(pool, at)?))
    }

    fn is_in_backup(medium: &Medium, at: u64, claim: BlockClaim) -> bool {
        // All blocks of a FAST&FAIR tree have the hint 0.
        claim.hint == 0 && fastfair::is_referenced::<29>(medium, at, claim)
    }

    fn leaf_in_backup(medium: &Medium, at: u64, key: &u64) -> Option<u64> {
        fastfair::floor_in_leaf::<29>(medium, at, *key).map(|(_, leaf)| leaf)
    }
}

impl TreeKey for [u8] {
    const MAGIC: u64 = MAGIC_STRINGS;
    // A radix tree has the hints up to 15.
    const LEAF_HINT: u64 = 17;
    const BACKUP_BYTES: u64 = art::EMPTY_BYTES;

    fn place_backup(medium: &Medium, at: u64) {
        Art::<[u8]>::place(medium, at);
    }

    fn open_backup(pool: &Pool, at: u64) -> Result<Box<dyn OrderedIndex<[u8]>>> {
        Ok(Box::new(Art::<[u8]>::at(pool, at)?))
    }

    fn is_in_backup(medium: &Medium, at: u64, claim: BlockClaim) -> bool {
        art::is_referenced::<[u8]>(medium, at, claim)
    }

    fn leaf_in_backup(medium: &Medium, at: u64, key: &[u8]) -> Option<u64> {
        art::floor_at(medium, at, key)
    }
}
