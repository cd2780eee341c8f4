//! P-Masstree: a trie of B-link trees in persistent memory.
//!
//! # Idea
//! A key is cut into slices of a word. The slices at one place of all keys that agree before it are
//! the keys of a B-link tree, a *layer*, so a key of a word needs one layer, and a long one shares
//! its layers with those that begin alike. Entries of a node lie in whatever slots were free; their
//! order is in one word, the *permutation*. So an insert writes a free slot and then stores the
//! permutation with it, which publishes it at its place at once: nothing is shifted, and there is
//! no log. A delete stores the permutation without the slot.
//!
//! # Layout
//! See `layout.rs`. In DRAM there are only the locks of nodes, 32 KiB.
//!
//! ```text
//!  layer of first slices              layer behind "granite"
//!  ┌────────────────────────┐         ┌──────────────────┐
//!  │ "gabbro"  6 ──► value  │    ┌───►│ " stone" 6 ──► v │
//!  │ "granite" 8 ──► layer ─┼────┘    │ "s"      1 ──► v │
//!  │ "sandsto" 8 ──► record │         └──────────────────┘
//!  └─────────────┬──────────┘
//!                └──► | value | slice | 2 | "ne" |
//! ```
//!
//! # Invariants
//! - I1. The rules of `blink.rs` hold in each layer.
//! - I2. The entries of a node are those whose slots the permutation names, in the order of their
//!   keys, up to the bound. What a split left behind the bound is durably out of the permutation
//!   before one of its slots is used again.
//! - I3. A slot that is in the permutation changes only in its value, by one store. A slot is
//!   written before the permutation names it, and that is durable.
//! - I4. The value of a slice that ends a key is the key's; that of a slice with more behind it
//!   leads to a record with the rest of one key, or to the layer of the next slices of several.
//! - I5. A record's value, and what a slice leads to, change only under the lock of the leaf.
//! - I6. A layer that is given up has no entry and one node, is durably out of the layer above, and
//!   then says so. Its first leaf has been its first leaf from the begin.
//!
//! # Linearization point
//! Insert and delete: the store of the permutation. Update: the store of the value. Reads: the load
//! of the value, or of the permutation that lacks the slice, if the leaf's lock and range are
//! afterwards what they were; while one writer holds the lock, it makes one such store. That a
//! record gives way to a layer with the same key changes no content.
//!
//! # Durability point
//! The persist of that store, before the lock is released. A reader who finds the lock of a leaf
//! taken flushes what it has seen there before it answers; a writer does so before it goes on to
//! the layer below.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert | the slot; the node's first line, with the permutation | 2 |
//! | update | the slot | 1 |
//! | delete | the first line | 1 |
//! | insert or delete of a long key | those, and the record | 2 |
//! | split | the new node, 5; the first line; an insert in the parent | 2 and those |
//! | layers behind a slice, eight at a time | their leaves, the length of a record; the slot | 2 |
//!
//! # Recovery
//! Nothing is read but the root. What a crash leaves half done is sound as it is: entries behind
//! the bound are dropped by the next writer of the node, and a node that its parent does not know
//! gets an entry there from the next writer who reaches it from the left.
//!
//! # Deviations from the paper
//! - A slice has seven bytes and, lowest in its word, how many of them there are, or 8 if the key
//!   goes on. So the slices of a layer are different words, of which any one can be a border; the
//!   paper's have eight bytes and a length beside them, and equal ones must stay in one node.
//! - Inner nodes are built as leaves are, as in RECIPE's.
//! - A split is one store, of the new link with the bound (`blink.rs`); RECIPE's stores the link,
//!   the permutation and the parent, and repairs what a crash left between them, the root's split
//!   excepted.
//! - Locks and versions are in DRAM. A reader meets no bit that says "inserting" or "splitting".
//! - Nodes and layers without entries are given up at once, where the paper lets a task do so
//!   later.
//!
//! # The paper's terms
//! | paper, section | here |
//! |---|---|
//! | keyslice (4.2) | `slice.rs` |
//! | permuter (4.6.2) | [`permutation::Permutation`] |
//! | border node, interior node (4.2) | [`node::Node`] |
//! | key suffix | [`layout::SuffixRecord`] |
//! | trie layer, `next_layer` | [`layer::Layer`] |
//!
//! Sources: Y. Mao, E. Kohler, R. Morris, "Cache craftiness for fast multicore key-value storage",
//! EuroSys 2012; S. K. Lee et al., "RECIPE", SOSP 2019.

mod check;
mod layer;
mod layout;
mod node;
mod permutation;
mod prune;
mod readpath;
mod recovery;
mod scan;
mod slice;
#[cfg(test)]
mod tests;
mod writepath;

use std::marker::PhantomData;

use gabion_media::pmem::{Medium, Pool};

use crate::node_lock::NodeLocks;
use crate::{Error, Item};
pub(crate) use check::REGISTERED;
use layer::Layer;

/// A P-Masstree from `K`, `u64` or `[u8]`, to words in a pool of persistent memory.
///
/// All operations take `&self` and may be called from any thread. A write is durable when it
/// returns, as far as the class of the pool promises; see [`Pool`].
pub struct Masstree<K: Item + ?Sized> {
    medium: Medium,
    pool: Pool,
    /// Offset of the first leaf of the layer of first slices.
    root: u64,
    locks: NodeLocks,
    keys: PhantomData<fn(&K)>,
}

impl<K: Item + ?Sized> Masstree<K> {
    /// The pool that the tree lies in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The layer whose first leaf is at an offset.
    #[inline]
    fn layer(&self, first: u64) -> Layer<'_> {
        Layer {
            medium: &self.medium,
            pool: &self.pool,
            locks: &self.locks,
            first,
        }
    }
}

#[cold]
fn damaged(offset: u64) -> Error {
    Error::damaged("a link or a slot of a Masstree", offset)
}
