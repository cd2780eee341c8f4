//! P-HOT: a height-optimized trie in persistent memory.
//!
//! # Idea
//! In a binary trie of keys an inner node stands only where keys part, and parts them by one bit.
//! Pieces of this trie of up to 32 children make a node: it looks at the bits by which its piece
//! parts keys, wherever they lie, and at no other, and finds the child by one search among partial
//! keys of few bits. So every node has many children, whatever the keys are like, and the trie is
//! low. A search skips all bits by which nothing parts, and compares the key once, with the leaf at
//! its end.
//!
//! A node changes by being replaced: the new one is made beside it, and the store of one word puts
//! it in its place. Readers take no lock; writers lock the nodes that go and the one in which that
//! word is (ROWEX).
//!
//! # Layout
//! See `layout.rs`; what the partial keys are, `form.rs`; which bits a key has, `bits.rs`. In DRAM
//! there are only the locks of nodes, 32 KiB.
//!
//! ```text
//!  root ──► node, height 2: bits 0, 3, 17 ──┬──► node, height 1: bits 20, 21, 40 ──► leaves
//!           partial keys 000 001 100 110    ├──► leaf
//!                                           ├──► node, height 1: bits 18, 33 ──────► leaves
//!                                           └──► leaf
//! ```
//!
//! # Invariants
//! - I1. Children are in the order of keys. Neighbours part at the bit that the partial keys say,
//!   and at none before it. So all keys below a node have the same bits before its first one.
//! - I2. A node has 2 to 32 children, and is higher than each of them; so no way is without an end.
//! - I3. Nothing in a node changes but the words of its children, under its lock, and that it is
//!   given up. The value of a leaf changes under the lock of the node that refers to it.
//! - I4. What is reachable is durable, but for the last step to it.
//! - I5. Who replaces nodes has the lock of the lowest first and takes those above it without
//!   waiting.
//! - I6. A node that is given up was durably out of the trie before it says so.
//! - I7. Who makes nodes holds their locks until the allocator knows that they are in use, and with
//!   them the leaf that came: nobody gives one of them up before.
//!
//! # Inserts
//! The search for the new key ends at a leaf; the bit at which the two part tells the node that is
//! to part them: the lowest whose first bit comes before it. There
//! - if one child alone is on the other side, and is a node with room, that node takes the leaf;
//! - else, if one child alone is there, and the node is higher than that by more than 1, the child
//!   and the leaf become a node between (*leaf-node pushdown*, if the child is a leaf);
//! - else, if there is room, the node is replaced by one with a child more;
//! - else both sides of its topmost bit become nodes of their own, and that bit goes up: into the
//!   node above, which is replaced as well (*parent pull-up*), or, if that is higher by more than 1
//!   or there is none, into a new node of two children (*intermediate node creation*). If the node
//!   above is full too, it is split in this way first, in a step of its own.
//!
//! # Linearization point
//! Writes: the store of the child or of the value. Reads: the load of the child in the last node,
//! or of the value. To split a node changes no content.
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
//! | insert | leaf; new node, 1 to 14 lines and mostly 2 to 5; child above | 2 |
//! | insert beside a leaf alone | leaf; new node of one line; child | 2 |
//! | insert that splits | leaf; three nodes; child above | 2 |
//! | update | leaf | 1 |
//! | delete | new node, if two or more are left; child above | 2 |
//!
//! Besides, the allocator notes each block that comes or goes, a line each, before the first fence.
//!
//! # Recovery
//! Nothing is read but the root. Every operation is one store of 8 bytes, so nothing is half done.
//!
//! # Deletes
//! A delete replaces the node by one without the child, or by the only child that is left. So it
//! needs space, for a node that is no larger than the one that goes: the pool keeps that back, a
//! block of each size, so that a full trie can be emptied. `compact` puts small nodes together,
//! side by side and with the node above, where one has room for the children of both.
//!
//! # Deviations from the paper
//! - There is one layout for nodes, with masks over as many windows of eight bytes as the bits
//!   need, where the paper has one for each number of bytes and of bits. Bits are extracted, and
//!   partial keys searched, by arithmetic on words, without instructions that not every processor
//!   has.
//! - A full node above is split first, so that no insert or delete replaces more than two nodes,
//!   and a crash finds few notes of the allocator.
//! - Keys of any length, of which one may be the beginning of another; see `bits.rs`. Deletes.
//! - RECIPE's P-HOT keeps dirty bits in words of children, beside the type of node. Here locks are
//!   in DRAM and tell readers what may not be durable yet.
//! - A value is a word in the leaf and updated in place. Heights may be greater than they need be
//!   after deletes, until a node is split or compacted.
//!
//! # The paper's terms
//! | paper, section | here |
//! |---|---|
//! | BiNode, discriminative bit (HOT, 3) | an inner node of a [`form`], its bit |
//! | k-constrained trie, compound node, k | [`node::Node`], [`layout::ROOM`] |
//! | sparse and dense partial key (4) | lane; the partial key of the key in [`node::Node::find`] |
//! | result candidate, mismatching bit (3) | the leaf of [`path`], [`bits::differ`] |
//! | normal insert, pushdown, pull-up, intermediate node (3) | `writepath.rs` |
//! | ROWEX, obsolete (5) | [`NodeLocks`], `is_dead` |
//! | conversion by copy-on-write (RECIPE, 4) | `publish` |
//!
//! Sources: R. Binna, E. Zangerle, M. Pichl, G. Specht, V. Leis, "HOT: a height optimized trie
//! index for main-memory database systems", SIGMOD 2018; S. K. Lee et al., "RECIPE", SOSP 2019.

mod bits;
mod check;
mod compact;
mod form;
mod layout;
mod node;
mod path;
mod publish;
mod readpath;
mod recovery;
mod scan;
#[cfg(test)]
mod tests;
mod writepath;

use std::marker::PhantomData;

use gabion_media::pmem::{Medium, Pool};

use crate::node_lock::NodeLocks;
use crate::{Error, Item};
pub(crate) use check::REGISTERED;

/// A P-HOT from `K`, `u64` or `[u8]`, to words in a pool of persistent memory.
///
/// All operations take `&self` and may be called from any thread. A write is durable when it
/// returns, as far as the class of the pool promises; see [`Pool`].
pub struct Hot<K: Item + ?Sized> {
    medium: Medium,
    pool: Pool,
    /// Offset of the word with the topmost child.
    top: u64,
    locks: NodeLocks,
    keys: PhantomData<fn(&K)>,
}

impl<K: Item + ?Sized> Hot<K> {
    /// The pool that the trie lies in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

#[cold]
fn damaged(offset: u64) -> Error {
    Error::damaged("a child in a trie", offset)
}
