//! FAST&FAIR: a B+-tree in persistent memory whose nodes are kept in order by stores of 8 bytes.
//!
//! # Idea
//! A node's entries are sorted, and an insert shifts those behind it, as in any array. But it does
//! so in steps none of which loses an entry (`node.rs`), so there is no log, and readers who come
//! across a shift need not wait for its end (FAST). Nodes of a level are linked, and each knows the
//! least key that belongs to it and what all its keys are below. So a node that was split is
//! complete before its parent knows (FAIR): who misses a key there goes on to the right. That part
//! is shared with other trees and lies in `blink.rs`.
//!
//! # Layout
//! See `layout.rs`. In DRAM there are only the locks of nodes, 32 KiB, and, if it is wanted
//! ([`FastFair::cached`]), a radix tree with what the nodes above the leaves say: the low of each
//! leaf and where it is. Then lookups and writes begin at a leaf, and the inner nodes are for the
//! next opening.
//!
//! # Invariants
//! - I1. The ranges of a level's nodes, from low to bound, cover all words but the greatest,
//!   without gaps and without overlaps: the bound of a node is the low of its right neighbour. A
//!   leaf whose range another one took has an empty one, until it is given up.
//! - I2. Keys of a node never fall from slot to slot, up to the first one at or above the bound. Of
//!   equal keys the rightmost counts; at most one slot is dead.
//! - I3. The value in a slot of an inner node, dead slots aside, is a node of the next level with
//!   the slot's key as its low. The first slot has the low of its own node. Every node in use is
//!   reached from its left neighbour, whether a slot names it or not.
//! - I4. Links and slots name only nodes whose content is durable.
//! - I5. A node is written to only under its lock. Who holds several locks has taken them from the
//!   top down and from left to right, and all but the first without waiting.
//! - I6. A node that is given up was durably out of slots and links before it says so.
//! - I7. The radix tree names leaves that their parents know, or knew, and those only; a leaf goes
//!   from it before it is given back. The lock of the parent guards both.
//!
//! # Linearization point
//! Insert: the store of the key. Update: the store of the value. Delete: the store of the next key
//! over the entry's own. Inserts out of place: for those of a leaf, the store of the old leaf's
//! link. Reads: the loads of key and value in the last attempt. Splits and the end of nodes change
//! no content.
//!
//! # Durability point
//! The persist of the line with that store, before the lock is released. A reader who finds the
//! leaf's lock taken after it has read flushes the leaf itself before it answers. A writer who went
//! to the right over the link of a node that somebody has locked flushes the link first: the entry
//! would be lost with it. Readers do not, so what they find of keys that come out of place may not
//! be durable: whoever stores these keeps readers from them (`renew.rs`).
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert, delete | those from the entry to the end, 1 to 8, each once | as many |
//! | update | 1 | 1 |
//! | split | the new node, 8; the link, 1; an insert in the parent | 2 and those |
//! | end of a node | a delete in the parent; free lines and link on the left | those and 2 |
//! | many inserts in a leaf out of place | the new node, 8; 3 links | 4 |
//! | the same, with two new nodes | 8 more; an insert in the parent | 4 and those |
//!
//! # Deletes
//! A leaf without entries, and an inner node that is left with its first child alone, are given up,
//! unless they are the first child of their parent; their range goes to the left neighbour. A first
//! child waits, and takes the entries of its range, until its parent is given up itself. What is
//! not done because another thread has a lock is left to later deletes and to `compact`.
//!
//! # Recovery
//! Nothing is read but the header. What a crash left half done is sound as it is: a dead slot is
//! closed by the next writer of its node, slots at or above the bound are free, and a node that no
//! slot of its parent names gets one from the next writer who reaches it from the left. The radix
//! tree is made anew from the nodes above the leaves; writers who begin at leaves reach no inner
//! node from the left, so one that its parent does not know stays so until the tree is opened
//! without. A leaf that handed its range over (`blink/renewal.rs`) goes when the one that has it is
//! replaced or given up, when a writer comes along it, or with `compact`.
//!
//! # Deviations from the paper
//! - A slot is dead if its key equals the next one. In the paper it is dead if its value equals the
//!   one before, so that equal values of neighbours are lost. Here every value may be stored.
//! - Free slots have the key 2^64 - 1 or any other at or above the bound, so splits need not clear
//!   what they moved. The entry of that one key is in the header.
//! - Nodes know their range. A reader who is to the right of its key, because an entry moved under
//!   its eyes, starts again; the paper's compares the first key of the neighbour. Link and bound
//!   change together, by a version that says which of two copies holds.
//! - Nodes are given up one by one; the paper merges.
//! - Locks and the direction of moves (the paper's switch counter) are in DRAM.
//! - Whoever finds the lock free before and after it searches a leaf takes what it found; only the
//!   others search in the direction of the moves.
//!
//! # The paper's terms
//! | paper, section | here |
//! |---|---|
//! | FAST insertion and deletion (3) | `node.rs`: `insert`, `remove` |
//! | FAIR split (4) | `blink.rs`: `split` |
//! | switch_counter, lock-free search (4.2) | [`NodeGuard::set_turn`](crate::node_lock::NodeGuard),
//!   `find_beside_writer` |
//! | sibling pointer | the link of a head, `blink.rs` |
//!
//! # The study's optimisations
//! The number of slots says which of the write-amplification study's optimisations a tree has.
//! Nodes of 29 slots, of 512 bytes, are without padding, so that no slot lies in two lines
//! ("removal of unintended bloat", section IV-A); with 28 the slots come 8 bytes later, as in the
//! published code, and one slot of four lies in two lines. Nodes of 13 slots have 256 bytes, the
//! medium's unit ("XPLine-aware unit sizing", IV-D). An insert or a delete flushes every line that
//! it shifts once in each of them, with the border between two lines within a slot or between
//! slots; where the slot of an insert lies in two lines itself, that is one line more.
//!
//! Source: D. Hwang et al., "Endurable transient inconsistency in byte-addressable persistent
//! B+-tree", FAST 2018.

mod check;
#[cfg(test)]
mod damage_tests;
mod greatest;
mod layout;
mod node;
mod readpath;
mod recovery;
mod renew;
#[cfg(test)]
mod renewed;
#[cfg(test)]
mod tests;
mod tree;
mod writepath;

use gabion_media::pmem::{Medium, POff, Pool};

use crate::node_lock::NodeLocks;
use crate::spoton::search_starts::SearchStarts;
pub(crate) use check::{CACHED, PADDED, REGISTERED, REGISTERED_256};
#[cfg(test)]
pub(crate) use check::{TINY, TINY_CACHED, TINY_PADDED};
use layout::{Header, node_bytes, slots_at};
use node::Node;
pub(crate) use recovery::{floor_in_leaf, is_referenced};
#[cfg(test)]
pub(crate) use renewed::{TINY_RENEWED, TINY_RENEWED_CACHED};

/// A FAST&FAIR tree from words to words in a pool of persistent memory. `SLOTS` is 29, which makes
/// nodes of 512 bytes, or 13, for nodes of 256; 28 or 12 make padded nodes of these sizes.
///
/// All operations take `&self` and may be called from any thread. A write is durable when it
/// returns, as far as the class of the pool promises; see [`Pool`].
pub struct FastFair<const SLOTS: usize = 29> {
    medium: Medium,
    pool: Pool,
    header: POff<Header>,
    locks: NodeLocks,
    /// The leaves by their lows, if these are in DRAM.
    paths: Option<SearchStarts<u64>>,
}

impl<const N: usize> FastFair<N> {
    /// Slots come in lines of four behind the first, or are padded to that.
    const SLOTS_OF_NODE: usize = {
        assert!(N >= 4 && N % 4 <= 1, "nodes fill their cache lines");
        N
    };

    /// The pool that the tree lies in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Bytes of DRAM that the ways to leaves take, see [`FastFair::cached`].
    pub fn dram_bytes(&self) -> u64 {
        self.paths.as_ref().map_or(0, SearchStarts::bytes)
    }

    fn header(&self) -> &Header {
        self.medium.at(self.header)
    }
}

/// The node at an offset, if it can be one.
#[inline]
fn node_at<const N: usize>(medium: &Medium, at: u64) -> Option<Node<'_, N>> {
    let slots = POff::new(at.checked_add(slots_at(N))?);
    let slots: &[layout::Slot; N] = medium.try_at(slots)?;
    let head = medium.try_at(POff::new(at))?;
    medium.touch_range(at, node_bytes(N));
    Some(Node { head, slots, at })
}
