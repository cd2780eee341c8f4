//! TurboHash: a hash table in persistent memory.
//!
//! # Idea
//! Keys are hashed to *shards*, of which there are so many from the start that their number never
//! changes. A shard is a small table of its own: an array of 256-byte *buckets*, the unit that the
//! paper's medium reads and writes, probed linearly. A shard that is full is built anew, larger,
//! while reads go on; nothing else is ever rehashed. All that an operation changes lies in one
//! bucket, and one store of 8 bytes makes it visible. Readers take no lock and write nothing.
//!
//! # Layout
//! See `layout.rs`. In DRAM there are 16 bytes for each shard (`shard.rs`): the mirror of the
//! directory, the lock and the counts.
//!
//! # Invariants
//! - I1. A bucket has at least one slot whose valid bit is 0. So every update finds room beside the
//!   version that it replaces.
//! - I2. The number of valid slots of a bucket never falls as long as its array is in use: an
//!   update sets one bit and clears one, a delete clears none. So a bucket that once was full,
//!   with thirteen valid slots, stays full.
//! - I3. All buckets on the path of an entry before its own are full. With I2: a bucket that is not
//!   full ends every path through it.
//! - I4. The slot and the tag of a valid slot change only if it is also deleted; and slots are
//!   written only by the holder of the shard's lock. So what a reader takes from a live slot is the
//!   entry if the metadata did not change meanwhile.
//! - I5. A key has at most one live slot in its shard.
//! - I6. Metadata names only slots, and slots name only records, that are durable by then; a
//!   directory names only arrays that are.
//!
//! # Linearization point
//! Writes: the store of the bucket's metadata; a build of a shard changes no content. Reads: the
//! second load of the metadata of the bucket that decides, which found it unchanged.
//!
//! # Durability point
//! The persist of the metadata, before the shard's lock is released. A reader that sees the lock
//! taken after it has read flushes the metadata on its path itself before it answers: what was read
//! is then durable, so no answer is lost in a crash. That costs a load of a word in a line that the
//! reader has already, and a flush only when a writer is at work in the same shard.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert, update | slot; metadata | 2 |
//! | delete | metadata | 1 |
//! | build of a shard | the array, past the cache; its place and the version | 2 |
//!
//! A tag lies in the line of its metadata, and a place in that of its version. On x86-64 the stores
//! to one line reach the medium in their order, so these are flushed once; elsewhere twice.
//!
//! With records, their lines join the first persist of insert and update.
//!
//! # Recovery
//! Reads the directory, a word or three for each shard, and nothing else: a slot that was being
//! written is not named by metadata yet. Counts of entries come back shard by shard when a writer
//! first needs them.
//!
//! # Deviations from the paper
//! - A bucket is found by the product of hash and number of buckets (the high half), not by a mask.
//!   So a shard can have any number of buckets and grows by about a third when the scope is
//!   exhausted: the load after growth is about 0.65 instead of 0.43, and memory per entry at most
//!   32 bytes. The order of buckets is still the order of hashes, so builds go through both arrays
//!   once from front to back.
//! - Of the free slots of a bucket, an entry takes one in the cache line that its hash names if it
//!   can. So a reader asks for the metadata and the slot at once instead of one after the other.
//! - Readers of tables without records announce nothing, not even to the reclamation: they look
//!   after the fact whether the shard is still where it was. Places carry a version for that.
//! - A reader looks at the metadata again in every bucket, also if no tag matched. The paper's
//!   reader, which does so only for a match, can miss a key that was updated twice meanwhile.
//! - The probing scope of shards with fewer buckets than sixteen is all of them.
//!
//! # The paper's terms
//! | paper, section | here |
//! |---|---|
//! | shard descriptor in Pmem (3.3.1) | [`layout::ShardDescriptor`] |
//! | shard descriptor in DRAM, WriteLock (3.3.1) | [`shard::Shard`] |
//! | bucket, slot, tag (3.3.3) | [`layout::Bucket`], [`layout::Slot`] |
//! | valid and delete bitmaps, sequence number (3.3.3) | [`layout::BucketMeta`] |
//! | FindSlot, NeedRetry (algorithm 1) | `readpath.rs`, `search` |
//! | FindSlotForInsert, Insert, Delete (2 to 4) | `writepath.rs`: `locate`, `enter`, `erase` |
//! | Shard rehashing, garbage collection (3.3.5, 3.4.6) | `build.rs` |
//!
//! Source: X. Zhao, dissertation, chapter 3, "TurboHash: a hash table for key-value store on
//! persistent memory", with its appendix.

mod batch;
mod build;
mod check;
mod iter;
mod layout;
mod probe;
mod readpath;
mod record;
mod recovery;
mod shard;
mod space;
mod stats;
mod writepath;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use gabion_media::pmem::{Medium, POff, Pool};

use crate::{Item, Seed};
use layout::{SHARD_BITS_MAX, ShardDescriptor};
use shard::Shard;

pub(crate) use check::REGISTERED;
pub use iter::Iter;
pub use stats::TurboStats;

/// How a table is made and used.
#[derive(Clone, Debug)]
pub struct Options {
    /// Entries that the table is planned for. It works beyond, but its shards become large.
    /// Kept on the medium; only [`TurboHash::create`] looks at it.
    pub capacity: u64,
    /// Binary logarithm of the number of shards, at most 20; by default what suits the capacity.
    /// Kept on the medium; only [`TurboHash::create`] looks at it.
    pub shard_bits: Option<u32>,
    /// Seed of the hash function, by default drawn at random. Kept on the medium; only
    /// [`TurboHash::create`] looks at it.
    pub seed: Option<u64>,
    /// Whether shards are built anew by themselves when deleted slots make paths long or when few
    /// entries are left. Growth does not depend on it.
    pub collects_garbage: bool,
}

/// Entries of a shard at the planned capacity: 52 buckets, 13 KB, which fit into a cache of the
/// first or second level while they are built anew.
const ENTRIES_OF_SHARD: u64 = 512;

impl Default for Options {
    fn default() -> Options {
        Options {
            capacity: 1 << 20,
            shard_bits: None,
            seed: None,
            collects_garbage: true,
        }
    }
}

impl Options {
    fn shard_bits(&self) -> u32 {
        let suitable = || {
            (self.capacity / ENTRIES_OF_SHARD)
                .checked_ilog2()
                .unwrap_or(0)
        };
        self.shard_bits.unwrap_or_else(suitable).min(SHARD_BITS_MAX)
    }
}

/// A hash table in a pool of persistent memory, from `K` to `V`, each `u64` or `[u8]`.
///
/// All operations take `&self` and may be called from any thread. A write is durable when it
/// returns, as far as the class of the pool promises; see [`Pool`]. Writes of one key take effect
/// one after the other; an operation is never seen by halves.
pub struct TurboHash<K: Item + ?Sized, V: Item + ?Sized> {
    medium: Medium,
    shards: Box<[Shard]>,
    /// What is left of a hash when it is shifted right by one and by this is the shard.
    shard_shift: u32,
    seed: Seed,
    directory: POff<ShardDescriptor>,
    /// Buckets that a shard begins with.
    first_count: u64,
    collects_garbage: bool,
    pool: Pool,
    keys: PhantomData<fn(&K)>,
    values: PhantomData<fn(&V)>,
}

impl<K: Item + ?Sized, V: Item + ?Sized> TurboHash<K, V> {
    /// The pool that the table lies in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline]
    fn shard_index(&self, hash: u64) -> u64 {
        hash >> 1 >> self.shard_shift
    }
}
