//! P-ART: an adaptive radix tree in persistent memory.
//!
//! # Idea
//! A key is a string of bytes and a path: each node decides by one byte, has as many children as
//! there are bytes in use there, and comes in four sizes. Where all keys below a node go on alike,
//! there is no node (path compression); where only one key is left, its leaf follows at once (lazy
//! expansion). A leaf has all of its key, so a search may skip bytes and compares once, at its end.
//! Readers take no lock; writers lock the node that changes and, to replace a node, the one above
//! it (ROWEX).
//!
//! # Layout
//! See `layout.rs`. In DRAM there are only the locks of nodes, 32 KiB.
//!
//! ```text
//!  root, level 0 ──'g'──► node, level 3, before "gab" ──'i'──► leaf "gabion"
//!                                                      ──end──► leaf "gab"
//! ```
//!
//! # Invariants
//! - I1. All keys below a node have the same bytes before its level; up to eight of these stand in
//!   the node. Neither changes as long as the node is in use.
//! - I2. Levels grow from node to node. Every node but the root has a child.
//! - I3. The child of a byte leads to the keys with that byte at the node's level, the end to the
//!   key that has no byte there. Each key has one leaf.
//! - I4. What is reachable is durable, but for the last step to it.
//! - I5. A node is written to, and the value of a leaf in it too, only under the node's lock. Who
//!   replaces a node has its lock first and takes that of the node above without waiting.
//! - I6. A node that is given up was durably out of its parent before it says so.
//!
//! # Linearization point
//! Writes: the store of the child, or of the byte of the index that names it, or of the value.
//! Reads: the load of the child in the last node, or of the value. Another size of a node changes
//! no content.
//!
//! # Durability point
//! The persist of that store, before the lock is released. A reader who finds a node's lock taken
//! after it has read there flushes what it saw before it answers; a writer does so before it goes
//! on, lest what it adds be lost with the way to it. Who finds the node given up, or, after it has
//! read a value, another child in the place of the leaf, starts again: another lock guards now what
//! it read.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert | leaf; key bytes in 16, child in 48; child or index | 2 |
//! | update | leaf | 1 |
//! | delete | child or index | 2, the first for the allocator's note |
//! | insert with a new node of 4, or into a full node | leaf; node; child above | 2 |
//! | delete that leaves a smaller node, or none | node; child above | 2 |
//!
//! # Deletes
//! A delete that leaves 40 of 256, 12 of 48, 3 of 16 children or one child replaces the node by a
//! smaller one or by that child, in the same step, unless somebody is at work above; `compact` does
//! the rest. A node that would be left empty always goes with its last leaf.
//!
//! # Recovery
//! Nothing is read but the header. Every operation is one store of 8 bytes, so nothing is half
//! done.
//!
//! # Deviations from the paper
//! - RECIPE's P-ART shortens the prefix of a node after a new node was put above it, and repairs
//!   what a crash left between the two. Here a node has its level and the bytes before it, counted
//!   from the root; how many of them are its prefix follows from where it hangs. So a prefix is
//!   split by the one store that puts the new node in place, and joined by the one that takes a
//!   node away.
//! - No node counts its children, so no count can disagree with them (`node.rs`).
//! - A key may be the beginning of another one: a node has a child for the key that ends there.
//! - Locks and versions are in DRAM; the root is never replaced.
//! - A value is a word in the leaf and updated in place.
//!
//! # The paper's terms
//! | paper, section | here |
//! |---|---|
//! | Node4 to Node256 (ART, 3) | [`layout::Node4`] to [`layout::Node256`] |
//! | optimistic path compression, lazy expansion (ART, 3.5) | `readpath.rs`, `has_prefix` |
//! | ROWEX, obsolete (4.3) | [`NodeLocks`], `is_dead` |
//! | conversion to persistence: flush and fence after each store (RECIPE, 4) | the table above |
//!
//! Sources: V. Leis et al., "The adaptive radix tree", ICDE 2013; the same, "The ART of practical
//! synchronization", DaMoN 2016; S. K. Lee et al., "RECIPE", SOSP 2019.

mod check;
mod floor;
mod key;
mod layout;
mod node;
mod readpath;
mod recovery;
mod scan;
mod shape;
mod stretch;
#[cfg(test)]
mod tests;
mod writepath;

use std::marker::PhantomData;

use gabion_media::pmem::{Medium, Pool};

use crate::Item;
use crate::node_lock::NodeLocks;
pub(crate) use check::REGISTERED;
pub(crate) use floor::floor_at;
use layout::Child;
pub(crate) use recovery::{EMPTY_BYTES, is_referenced};

/// A P-ART from `K`, `u64` or `[u8]`, to words in a pool of persistent memory.
///
/// All operations take `&self` and may be called from any thread. A write is durable when it
/// returns, as far as the class of the pool promises; see [`Pool`].
pub struct Art<K: Item + ?Sized> {
    medium: Medium,
    pool: Pool,
    root: Child,
    locks: NodeLocks,
    keys: PhantomData<fn(&K)>,
}

impl<K: Item + ?Sized> Art<K> {
    /// The pool that the trie lies in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}
