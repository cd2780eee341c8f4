//! SPTree: a B+-tree whose leaves are in persistent memory and all else in DRAM.
//!
//! # Idea
//! A search that follows pointers through persistent memory waits for it at each step; so what
//! leads to the leaves is in DRAM, and costs the medium nothing. What is needed to find it again
//! after a crash is kept in persistent memory, too, but behind the operations' backs: a second
//! tree, which a thread of its own brings up to date. A filter in DRAM knows which keys are not in
//! a leaf, so that those who ask for absent keys seldom come to the medium at all.
//!
//! # Layout
//! ```text
//!  top     router: radix tree in DRAM               backup: FAST&FAIR in persistent memory
//!              │ lkey → node                            ╎ lkey → leaf (for recovery only)
//!  middle   ┌──▼───┐   ┌──────┐   ┌──────┐              ╎
//!           │ node │◄─►│ node │◄─►│ node │  DRAM        ╎
//!           └──┬───┘   └──┬───┘   └──┬───┘              ╎
//!  bottom   ┌──▼───┐   ┌──▼───┐   ┌──▼───┐              ╎
//!           │ leaf ├──►│ leaf ├──►│ leaf │  medium ◄╌╌╌╌╯
//!           └──────┘   └──────┘   └──────┘
//! ```
//! See `layout.rs` for what is on the medium. A node (`mnode.rs`) has its leaf's range and place, a
//! lock with a version, links to both sides, and a Bloom filter over the keys. DRAM takes 128 bytes
//! for the node of each leaf, 64 more for its order once it was scanned, and the router.
//!
//! # Invariants
//! - I1. The ranges of the leaves in the chain, from lkey to hkey, cover all words without gaps and
//!   without overlaps, but for what `split.rs` and `merge.rs` say of crashes. The last leaf has no
//!   upper end, so the greatest word is a key like any other.
//! - I2. Each key is in one slot, of the leaf whose range has it. A bit of a bitmap is set only
//!   after pair and tag are durable.
//! - I3. Each entry of the backup names a leaf in the chain by its lkey, at any moment of a crash
//!   (B1 in `backup.rs`). Leaves that it does not name are reached from those before them.
//! - I4. A leaf is written to only under the lock of its node, and what was written is durable
//!   before the lock is let go.
//! - I5. Who waits for a lock holds none but that of the left neighbour.
//! - I6. The filter of a node holds all keys of its leaf, and perhaps others.
//! - I7. The router may be wrong; nodes know their range.
//!
//! # Linearization point
//! Insert and delete: the store of the bitmap. Update: the store of the value. Lookups and each
//! leaf of a scan: the first look at the node's word in the last attempt. They wait for whoever
//! holds the lock.
//!
//! # Durability point
//! The persist of the line with that store, before the lock is let go. Since readers take nothing
//! from under a lock, what they return is durable.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert | pair, tag; head | 2 |
//! | update | pair | 1 |
//! | delete | head | 1 |
//! | split | the new leaf, 18; head | 2, and later an insert in the backup |
//! | merge | pairs and tags; head | a delete in the backup and 2 |
//!
//! # Recovery
//! `recovery.rs`: a look at each leaf, in parallel. What a crash left of a split is finished, what
//! it left of a merge is taken back, and leaves that the backup missed are found from their left
//! neighbours.
//!
//! # Deviations from the paper
//! - A half-done split is finished where the paper drops the new leaf: both are right, as the two
//!   leaves agree, and one rule does for splits and merges.
//! - A merge takes the right leaf out of the backup first, so that the backup never names a leaf
//!   that is gone and there need be no mark for such leaves.
//! - Sequence arrays and their versions are in DRAM: they are never needed after a crash, and in
//!   the leaf they would cost writes of the medium.
//! - Leaves merge when both together fill no more than half of one, lest they split soon after.
//! - One lock does for a split, see `split.rs`.
//! - The filter has one word for each key, of a line of eight, rather than bits anywhere.
//! - There are no write buffers yet, and so no logs.
//!
//! # The paper's terms
//! | paper, section | here |
//! |---|---|
//! | DRAM top layer (4.4.1) | `router.rs`, on [`Art`](crate::Art) |
//! | PMEM top layer, background thread (4.4.1) | `backup.rs`, on [`FastFair`](crate::FastFair) |
//! | Mnode, Bnode (4.4.1) | `mnode.rs`, `leaf.rs` |
//! | optimistic lock (4.4.2) | the word of a node |
//! | two-phase insertion (4.4.1) | `Leaf::put` |
//! | `seqs`, `cur_ver`, `sort_ver` (4.4.4) | `mnode::Order`, `changes`, `sorted` |
//!
//! Source: X. Zhao, "Designing large-scale key-value systems on high-speed storage devices",
//! dissertation, University of Texas at Arlington, 2022, chapter 4.

mod backup;
mod bloom;
mod check;
mod layout;
mod leaf;
mod merge;
mod mnode;
mod readpath;
mod recovery;
mod router;
mod scan;
mod split;
#[cfg(test)]
mod tests;
mod writepath;

use gabion_media::pmem::{Medium, Pool};

use crate::Seed;
use backup::Backup;
pub(crate) use check::REGISTERED;
#[cfg(test)]
pub(crate) use check::TINY;
use mnode::Mnodes;
use router::Router;

/// An SPTree from words to words in a pool of persistent memory. Leaves have so many pairs, at most
/// 64 and a multiple of 8.
///
/// All operations take `&self` and may be called from any thread. A write is durable when it
/// returns, as far as the class of the pool promises; see [`Pool`].
pub struct SpTree<const PAIRS: usize = 64> {
    medium: Medium,
    pool: Pool,
    /// Where the root block is.
    root: u64,
    seed: Seed,
    nodes: Mnodes,
    router: Router,
    backup: Backup,
}

impl<const N: usize> SpTree<N> {
    /// The pool that the tree lies in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Bytes of DRAM that the tree takes.
    pub fn dram_bytes(&self) -> u64 {
        self.nodes.bytes() + self.router.bytes()
    }
}
