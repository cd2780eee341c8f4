//! Layered indexes: an index in persistent memory, its *base*, below write buffers in DRAM.
//!
//! # Idea
//! What a small write costs the medium is a line of it, and a place of its own in the base costs
//! some more. So pairs wait in DRAM, in a buffer for each part of the base, and come to the base
//! many at a time, sorted, when their buffer is full. Until then they are in logs, one behind the
//! other, of which a line holds eight. The base is any of several indexes ([`Base`]), as it is; so
//! what the layer is worth shows in a comparison with the base alone.
//!
//! # Layout
//! ```text
//!              router: radix tree in DRAM
//!                │ key → node
//!             ┌──▼───┐   ┌──────┐   ┌──────┐
//!      DRAM   │ node │◄─►│ node │◄─►│ node │   ranges of positions
//!             └──┬───┘   └──┬───┘   └──────┘
//!           write buffer  write buffer ╌╌╌╌╌╌╌► logs, in pages
//!             ───────────────────────────────────────────────── medium
//!              base: FAST&FAIR, P-Skiplist or CCEH    floor
//! ```
//! See `layout.rs` for what is on the medium. Nodes, buffers and logs are parts of `spoton`, the
//! router is [`sptree`](crate::sptree)'s. A node stands for a *part* of the base: a leaf of
//! FAST&FAIR, what is between two tall nodes of a P-Skiplist, or a segment of CCEH. Its range is
//! the part's when the index is opened, and follows it later on (`merge.rs`). Nothing but the worth
//! of a buffer depends on that. Ranges are of *positions*: a key's position is the key itself, or,
//! in a base that has no order of keys, its hash, by whose first bits segments are ordered as
//! leaves are by keys. So all that is said here of nodes, logs, floor and recovery is said of both.
//!
//! The base itself may have the ways to its parts in DRAM ([`Options::caches_paths`]). That is a
//! matter of the base, which says why it is sound; nothing on the medium differs, nor does any
//! flush or fence.
//!
//! # Invariants
//! - I1. The ranges of nodes cover all positions without gaps and without overlaps. A key has one
//!   position for ever, and one way of its node's buffer.
//! - I2. The pairs of the keys of a node change, in its buffer, in the base or in the logs, only
//!   under its lock. All that was changed is durable before the lock is let go.
//! - I3. Changes in the logs have numbers, which rise with the order in which they were made; one
//!   number for each change of the index. A key of which the logs have changes above the floor has
//!   what the last of them says, and no other key has anything in a buffer. The base may be behind
//!   only in what a buffer has; it is ahead only under a lock, or, after a crash, until recovery.
//! - I4. The base has all changes up to the floor, durably. So recovery needs those above it only.
//! - I5. A page of the logs is filled again when no change in it counts: when the floor was raised
//!   above all of them, or, after a crash, when for each of them there is another one of the same
//!   key elsewhere: a later one that says something else, or an earlier one that says the same, and
//!   so do all between them.
//! - I6. Of the pages, as many are empty as all pairs in buffers need, whenever nobody raises the
//!   floor. So it can be raised though the base has no space for them (`merge.rs`).
//! - I7. Who waits for a lock holds none but that of the left neighbour, and a place in the logs
//!   only under the lock of a node. Who changes the pool entered it (`Pool::write_guard`) before.
//!
//! # Linearization point
//! Of a change that is logged, the last store of its record; of another one, that of the base.
//! Lookups, and each node of a scan: the first look at the node's word in the last attempt. They
//! wait for whoever holds the lock.
//!
//! # Durability point
//! The persist of the record, or that of the base. A change that goes to the base and to the logs
//! goes to the base first: without its record it is undone by recovery, as the record before it
//! says what the key has, if that counts. Since readers take nothing from under a lock, what they
//! return is durable.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert, update | record | 1 |
//! | insert, update without a buffer | as in the base; record, if the logs count | |
//! | delete | as in the base, if that has the key; record, if the logs count | |
//! | merge of a buffer | as in the base, for each pair, or for all at once | |
//!
//! # Recovery
//! `recovery.rs`: the base is found as it is, which is sound by itself. Of each key in the logs the
//! last change above the floor says what it has; where the base does not have that, it goes to a
//! buffer. Nothing is written, but for deletes of keys that the base has and whose last change says
//! that they are deleted.
//!
//! # Deviations from the paper
//! - The dissertation measures the layers and does not say how they are made, neither how the
//!   buffers survive a crash nor how threads share them.
//! - There are as many buffers as the index was made for. Nodes have one while there is something
//!   in it; writes to a node that gets none go to the base.
//! - Buffers of FAST&FAIR have 14 pairs, half of a leaf; those of P-Skiplist 15 where the paper has
//!   16, so that a buffer is 256 bytes. Those of CCEH consist of 32 such, each for eight
//!   buckets, so 480 pairs for a segment where half of it are 512; merged in place, each goes
//!   by itself (`segments.rs`).
//!
//! # The paper's terms
//! | paper, section | here |
//! |---|---|
//! | write buffer (4.3.1) | `spoton/buffer.rs` |
//! | nodes whose height is higher than two (4.3.1) | [`Base::next_part`] of a list |
//! | in-place merging (4.3.2) | `merge.rs` |
//! | write buffer of a segment (4.3.1) | the ways of a node's buffer; `segments.rs` |
//! | out-of-place merging (4.3.2) | [`Options::merges_out_of_place`]; `renew.rs` of both bases |
//! | caching internal nodes (4.3.3) | [`Options::caches_paths`]; `spoton/search_starts.rs` |
//! | caching the directory (4.3.3) | the same; `extendible/mirror.rs` |
//!
//! Source: X. Zhao, "Designing large-scale key-value systems on high-speed storage devices",
//! dissertation, University of Texas at Arlington, 2022, section 4.3.

mod base;
mod check;
mod layout;
mod merge;
mod readpath;
mod recovery;
#[cfg(test)]
mod segment_tests;
mod segments;
#[cfg(test)]
mod tests;
mod writepath;

use std::sync::atomic::AtomicU64;

use gabion_media::pmem::{Medium, Pool};
use parking_lot::Mutex;

use crate::Seed;
use crate::spoton::buffer::Buffers;
use crate::spoton::log::Logs;
use crate::spoton::mnode::Mnodes;
use crate::sptree::router::Router;
pub use base::{Base, Shape};
pub(crate) use check::{
    BUFFERED_CCEH, BUFFERED_FASTFAIR, BUFFERED_SKIPLIST, CACHED_FASTFAIR, CACHED_SKIPLIST,
    RENEWED_CACHED_CCEH, RENEWED_CACHED_FASTFAIR, RENEWED_CCEH, RENEWED_FASTFAIR,
};
#[cfg(test)]
pub(crate) use check::{
    TINY_CACHED_FASTFAIR, TINY_CACHED_SKIPLIST, TINY_CCEH, TINY_FASTFAIR, TINY_RENEWED_CACHED_CCEH,
    TINY_RENEWED_CACHED_FASTFAIR, TINY_RENEWED_CCEH, TINY_RENEWED_FASTFAIR, TINY_SKIPLIST,
};

/// An index of words below write buffers, in a pool of persistent memory. Pages of its logs have
/// room for `PAGE` - 1 records.
///
/// It is ordered if its base is: [`Cceh`](crate::Cceh) is not.
///
/// All operations take `&self` and may be called from any thread. A write is durable when it
/// returns, as far as the class of the pool promises; see [`Pool`].
///
/// ```
/// use gabion_index::{IndexPlan, FastFair, Layered, OrderedIndex};
/// use gabion_media::pmem::{Pool, PoolOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// type Tree = Layered<FastFair>;
/// let pool = Pool::anonymous(PoolOptions { size: 16 << 20, ..Tree::pool_options() })?;
/// let tree = Tree::create(&pool, IndexPlan { capacity: 1000, seed: None })?;
/// for key in (0..1000).rev() {
///     tree.insert(key * 10, key)?;
/// }
/// let mut found = Vec::new();
/// tree.scan(&4995, 2, &mut found)?;
/// assert_eq!(found, [(5000, 500), (5010, 501)]);
/// # Ok(())
/// # }
/// ```
pub struct Layered<B: Base, const PAGE: usize = 64> {
    medium: Medium,
    pool: Pool,
    /// Where the root block is.
    root: u64,
    seed: Seed,
    base: B,
    nodes: Mnodes,
    router: Router<u64>,
    /// What buffers are for this base.
    shape: Shape,
    buffers: Buffers,
    logs: Logs<PAGE>,
    /// The first pages of the logs, which lie in the root block.
    pages: u64,
    /// Empty pages below which the floor is raised.
    reserve: usize,
    merges_out_of_place: bool,
    /// The number of the last change.
    changes: AtomicU64,
    /// As on the medium.
    floor: AtomicU64,
    /// Held by whoever raises the floor.
    round: Mutex<()>,
}

/// What a layered index is made for, and how it works from one opening to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Write buffers, 1 at least; by default one for each part of a base of the planned entries, as
    /// far as the logs for them take no more than an eighth of the pool. Each takes 264 bytes of
    /// DRAM while it is used, and the logs have 96 bytes of the pool for each pair in it: 1.4 KiB.
    /// A segment of CCEH has 32 of these, which count as one: 8.3 KiB of DRAM, and 45 KiB of logs.
    /// It is a fact of the index, from its making on; an opening does not look at this.
    pub buffers: Option<u64>,
    /// Whether buffers are merged out of place, which takes fewer persists: a leaf of FAST&FAIR is
    /// replaced by a new one, or by two, and so is a segment of CCEH. For a list, where each pair
    /// has a node of its own, there is no difference. By default they are merged in place.
    pub merges_out_of_place: bool,
    /// Whether the ways to the parts of the base are in DRAM as well, so that few searches read the
    /// upper levels of the base. All writes must go through one handle then. By default they are
    /// not.
    pub caches_paths: bool,
}

impl<B: Base, const PAGE: usize> Layered<B, PAGE> {
    /// The pool that the index lies in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Bytes of DRAM that nodes, router and buffers take, and the ways to the parts of the base.
    pub fn dram_bytes(&self) -> u64 {
        let layer = self.nodes.bytes() + self.router.bytes() + self.buffers.bytes();
        layer + self.base.dram_bytes()
    }

    /// Bytes of the pool that the logs take.
    pub fn log_bytes(&self) -> u64 {
        self.logs.bytes()
    }
}
