//! SPTree: a B+-tree whose leaves are in persistent memory and all else in DRAM.
//!
//! # Idea
//! A search that follows pointers through persistent memory waits for it at each step; so
//! what leads to the leaves is in DRAM, and costs the medium nothing. What is needed to find it
//! again after a crash is kept in persistent memory, too, but behind the operations' backs: a
//! second tree, which a thread of its own brings up to date. A filter in DRAM knows which keys are
//! not in a leaf, so that those who ask for absent keys seldom come to the medium at all. And since
//! a pair costs the medium as much as a line of it does, leaves may have write buffers in DRAM:
//! pairs go to a log, one behind the other, and to their leaf many at a time.
//!
//! # Layout
//! ```text
//!  top     router: radix tree in DRAM               backup: FAST&FAIR in persistent memory
//!              │ lkey → node                            ╎ lkey → leaf (for recovery only)
//!  middle   ┌──▼───┐   ┌──────┐   ┌──────┐              ╎
//!           │ node │◄─►│ node │◄─►│ node │  DRAM        ╎
//!           └──┬──┬┘   └──┬───┘   └──┬───┘              ╎
//!              │  └ write buffer ╌╌ logs, in pages      ╎
//!  bottom   ┌──▼───┐   ┌──▼───┐   ┌──▼───┐              ╎
//!           │ leaf ├──►│ leaf ├──►│ leaf │  medium ◄╌╌╌╌╯
//!           └──────┘   └──────┘   └──────┘
//! ```
//! See `layout.rs` for what is on the medium. A node (`mnode.rs`; this and what else a node needs
//! are parts of `spoton/`, which other indexes take, too) has its leaf's range and place, a lock
//! with a version, links to both sides, and a Bloom filter over the keys of leaf and buffer. DRAM
//! takes 128 bytes for the node of each leaf, 64 more for its order once it was scanned, the
//! router, and 256 bytes for each write buffer (`buffer.rs`). What is in buffers is in the logs
//! (`log.rs`).
//!
//! Keys and values are words, or both are strings of bytes. A pair of strings is an item elsewhere
//! in the pool, of which the leaf has the place and the first bytes of the key (`item.rs`), and the
//! backup is a radix tree. The lkey of a leaf is an item then, too, and nodes have theirs in DRAM,
//! which takes the length of each twice, in the router and beside it. There are no write buffers.
//!
//! # Invariants
//! - I1. The ranges of the leaves in the chain, from lkey to hkey, cover all words without gaps and
//!   without overlaps, but for what `split.rs` and `merge.rs` say of crashes. The last leaf has no
//!   upper end, so the greatest word is a key like any other.
//! - I2. Each key is in one slot at most, of the leaf whose range has it. A bit of a bitmap is set
//!   only after pair and tag are durable. What the buffer or the logs have of a key is newer.
//! - I3. Each entry of the backup names a leaf in the chain by its lkey, at any moment of a crash
//!   (B1 in `backup.rs`). Leaves that it does not name are reached from those before them.
//! - I4. A leaf and its buffer are written to only under the lock of their node, and what was
//!   written is durable, in the leaf or in the logs, before the lock is let go.
//! - I5. Who waits for a lock holds none but that of the left neighbour. Who changes the pool
//!   entered it (`Pool::write_guard`) before it took any, so that a checkpoint, which waits for
//!   those within, finds all locks free in the end.
//! - I6. The filter of a node holds all keys of its leaf and its buffer, and perhaps others.
//! - I7. The router may be wrong; nodes know their range.
//! - I8. A leaf has free slots for all keys of its buffer that it does not have. So what is in a
//!   buffer can come into the leaf at any time, whether the pool has space or not.
//! - I9. The leaf has all changes in the logs up to `merged`, and a node without a buffer has no
//!   others.
//! - I10. Each item belongs to one pair or is the lkey of one leaf, and is durable before either
//!   refers to it. Nobody changes it, and it is not used again before those are gone who had pins
//!   when it was retired.
//!
//! # Linearization point
//! Insert and delete: the store of the bitmap. Update: the store of the value. With a buffer: the
//! last store of the record in the log. Lookups and each leaf of a scan: the first look at the
//! node's word in the last attempt. They wait for whoever holds the lock.
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
//! | insert, update with a buffer | record | 1 |
//! | delete of what is in the buffer | record; head if the leaf has the key, too | 1 or 2 |
//! | flush of a buffer | pairs, tags; head | 2 |
//! | split | the new leaf, 18; head | 2, and later an insert in the backup |
//! | merge | pairs and tags; head | a delete in the backup and 2 |
//!
//! Splits and merges flush the buffers first.
//!
//! | operation on strings | flushed lines | persists |
//! |---|---|---|
//! | insert | item; pair, tag; head | 2 |
//! | update | item; pair | 2 |
//! | delete | head | 2, the first for the allocator's note |
//!
//! # Recovery
//! An opening reads the backup and the logs, and the tree is served (`recovery.rs`). Nodes are made
//! run by run, of some leaves each, in the background and for those who come to a run first
//! (`parallel_recovery.rs`): what a crash left of a split is finished, what it left of a merge is
//! taken back, leaves that the backup missed are found from their left neighbours (`walk.rs`), and
//! leaves take what the logs have for them (`replay.rs`). All of that is durable before a node is
//! there.
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
//! - The number of the last change that a leaf has is in the leaf (`merged`). So the order of the
//!   logs' pages means nothing, each can be filled again as soon as its own records are dead, and
//!   nothing is written for that.
//! - An update of a key that only the leaf has goes to the buffer, too: to the medium that is one
//!   record among others instead of a line of its own.
//! - A leaf splits when it is full together with its buffer, not when a flush finds it full.
//! - Keys and values may be strings; the paper has words.
//! - While the tree is recovered, a key is looked up in the layers of DRAM as always, of which its
//!   part is made first; the paper searches the backup until all of them are made. And a tree with
//!   write buffers is served meanwhile, too, as one without.
//!
//! # The paper's terms
//! | paper, section | here |
//! |---|---|
//! | DRAM top layer (4.4.1) | `router.rs`, on [`Art`](crate::Art) |
//! | PMEM top layer, background thread (4.4.1) | `backup.rs`, on [`FastFair`](crate::FastFair) |
//! | Mnode, Bnode (4.4.1) | `mnode.rs`, `leaf.rs` |
//! | optimistic lock (4.4.2) | the word of a node |
//! | two-phase insertion (4.4.1) | `Leaf::put` |
//! | `seqs` (4.4.4) | `mnode::SlotOrder` |
//! | `cur_ver` equal to `sort_ver` (4.4.4) | `is_sorted` |
//! | write buffer, minor compaction (4.4.1, 4.4.4) | `buffer.rs`, `flush.rs` |
//! | write ahead log (4.4.1) | `log.rs` |
//! | service during recovery (4.5.4) | `parallel_recovery.rs` |
//!
//! Source: X. Zhao, "Designing large-scale key-value systems on high-speed storage devices",
//! dissertation, University of Texas at Arlington, 2022, chapter 4.

mod backup;
#[cfg(test)]
mod buffer_tests;
mod build;
mod check;
mod flush;
mod item;
mod kind;
mod layout;
mod leaf;
mod merge;
mod parallel_recovery;
mod reachable;
mod readpath;
mod recovery;
mod replay;
pub(crate) mod router;
mod scan;
#[cfg(test)]
mod serve_crash_tests;
#[cfg(test)]
mod serve_tests;
mod split;
mod steps;
#[cfg(test)]
mod string_tests;
mod strings;
#[cfg(test)]
mod tests;
mod walk;
mod writepath;

use std::sync::Arc;

use gabion_media::pmem::{Medium, Pool};

use crate::Seed;
use crate::spoton::{bloom, buffer, log, mnode};
use backup::Backup;
use buffer::Buffers;
pub(crate) use check::{BUFFERED, REGISTERED};
#[cfg(test)]
pub(crate) use check::{TINY, TINY_BUFFERED};
use item::Pins;
pub use kind::TreeKey;
use log::Logs;
use mnode::Mnodes;
use parallel_recovery::{PendingRecovery, RecoveryWorker};
use router::Router;
pub use scan::ScanLimit;

/// An SPTree in a pool of persistent memory: from words to words, or from strings of bytes to
/// strings. Leaves have so many pairs, at most 64 and a multiple of 8.
///
/// All operations take `&self` and may be called from any thread. A write is durable when it
/// returns, as far as the class of the pool promises; see [`Pool`].
pub struct SpTree<K: TreeKey + ?Sized = u64, const PAIRS: usize = 64> {
    /// Before all else, so that it is dropped first.
    worker: RecoveryWorker,
    medium: Medium,
    pool: Pool,
    /// Where the root block is.
    root: u64,
    seed: Seed,
    /// Whether a line of the medium is only asked for when it is needed.
    saves_reads: bool,
    /// Whether the first leaf keeps a slot for [`SpTree::put_copy`].
    keeps_slot: bool,
    nodes: Arc<Mnodes>,
    router: Arc<Router<K>>,
    backup: Arc<Backup<K>>,
    buffers: Arc<Buffers>,
    logs: Arc<Logs<PAIRS>>,
    recovery: Arc<PendingRecovery<K>>,
}

/// What a tree may take beside its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Bytes of DRAM for write buffers, 0 for none: 256 for each leaf that has one, and a thirtieth
    /// of that besides. If there are fewer buffers than leaves, those have one that are written
    /// most. What is in buffers is in logs, which take 480 bytes of the pool for each buffer.
    pub buffer_bytes: u64,
}

/// Who brings the backup of a tree up to date, and recovers what nobody has asked for yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maintenance {
    /// Threads of the tree's.
    #[default]
    Thread,
    /// Writers, now and then: there is no thread.
    Writers,
}

/// Whether a pair is as it was put, by its key and its value, for those who put a checksum into
/// their values.
pub type PairCheck = fn(&[u8], &[u8]) -> bool;

impl<K: TreeKey + ?Sized, const PAIRS: usize> SpTree<K, PAIRS> {
    /// Keeps items and bounds from being reused.
    #[inline]
    fn pin(&self) -> Pins<'_> {
        Pins::new::<K>(&self.pool, self.router.pool())
    }

    /// Brings the backup up to date and ends the tree's threads, if it has some, as the end of the
    /// tree does. For a tree that others still read, before its pool is closed: nobody
    /// writes from here on. All of it is in memory then, unless it was checked.
    pub fn finish(&self) {
        if self.recovery.holds().is_none() {
            // What is damaged is told to who needs it.
            let _ = self.recover_all();
        }
        self.worker.finish();
        self.backup.finish();
    }

    /// The pool that the tree lies in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Bytes of DRAM that the tree takes, without those for its recovery only.
    pub fn dram_bytes(&self) -> u64 {
        self.nodes.bytes() + self.router.bytes() + self.buffers.bytes()
    }

    /// Bytes of the pool that the logs of the write buffers take.
    pub fn log_bytes(&self) -> u64 {
        self.logs.bytes()
    }

    /// Number of leaves; while the tree is being recovered, without those of which its backup does
    /// not know, unless it was checked.
    pub fn leaves(&self) -> u64 {
        self.nodes.in_use() + self.recovery.unbuilt()
    }

    /// Bytes of the pool that the leaves take.
    pub fn leaf_bytes(&self) -> u64 {
        self.leaves() * layout::leaf_bytes(PAIRS)
    }
}
