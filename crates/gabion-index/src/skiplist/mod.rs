//! P-Skiplist: a sorted list with shortcuts, in persistent memory.
//!
//! # Idea
//! All entries are in one list, sorted by their keys: level 0. Every fourth node is also in the
//! list of level 1, every fourth of those in that of level 2, and so on; a search goes along the
//! highest list as far as it can, then down. Level 0 alone says what is an entry. The levels above
//! are shortcuts, but they are made durable too: they lie on the medium with the nodes, and one
//! that a crash left behind must not lead to a node that is gone. Readers take no lock; writers
//! lock the nodes whose links change.
//!
//! # Layout
//! See `layout.rs`. In DRAM there are only the locks of nodes, 32 KiB, and, if it is wanted
//! ([`SkipList::cached`]), a radix tree with the keys of *tall* nodes, those on level 2, and where
//! they are. Then lookups, and writes of nodes that are not tall, begin at a tall node, on level 1.
//!
//! ```text
//!        ┌────┐                      ┌────┐
//!  2     │    ├─────────────────────►│    ├──────────────► 0
//!        │    │     ┌────┐           │    │
//!  1     │    ├────►│    ├──────────►│    ├──────────────► 0
//!        │head│     │    │    ┌────┐ │    │    ┌────┐
//!  0     │    ├────►│  3 ├───►│  4 ├►│  7 ├───►│  9 ├───► 0
//!        └────┘     └────┘    └────┘ └────┘    └────┘
//! ```
//!
//! # Invariants
//! - I1. Keys rise along every level. A node on a level is on all levels below, durably: else the
//!   way down from it would pass a link of the level below, which may lead to a node behind it and
//!   would go on doing so when that is taken out.
//! - I2. A link leads to a node whose content is durable; a link of an upper level to one whose
//!   place on level 0 is durable.
//! - I3. The links of a node change only under its lock, and so does its value. All that was stored
//!   under a lock is durable before it is free. Who holds several locks took the first one, that
//!   of the node before the key on level 0, waiting, and the others without.
//! - I4. A node that is taken out is durably out of each level before it leaves the one below, and
//!   durably out of that before it says so. From the first of these steps on its links do not
//!   change.
//! - I5. The radix tree names tall nodes that are on level 0: one that is taken out goes from it
//!   before the first of these steps. So a search that begins there begins at a node that was on
//!   level 0 after the call.
//!
//! # Linearization point
//! Insert and delete: the store of the link on level 0. Update: the store of the value. A lookup
//! that finds its node: when that was on level 0 last before its value was loaded; by I4 there was
//! such a moment after the call, for each node that a search visits was there when it, or the node
//! before it on the way, was there last. One that finds none: the load of the link over which it
//! would have come, or the moment at which the node with that link was taken out, if that came
//! earlier.
//!
//! # Durability point
//! The persist of that store, before the locks are free. A reader who finds the lock of the node
//! before its key taken after it has read there makes the link durable before it answers, and
//! likewise the value. A writer does so for every link of level 0 that it goes along, lest what it
//! adds be lost with the way to it.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert | the node; the links before it, 1.3 on average | 1, and 1 per link |
//! | update | the node | 1 |
//! | delete | the links before it | 2, the 1st for the allocator's note; 1 per link above level 1 |
//!
//! # Recovery
//! Nothing is read but the root, and level 2 if it is to be in DRAM. What a crash may leave is a
//! node that is on the lower ones only of the levels that it is high enough for: a shortcut less.
//!
//! # Deviations from the paper
//! - The dissertation says that its list is persistent and concurrent, and no more. This one locks
//!   as the optimistic skip list of Herlihy, Lev, Luchangco and Shavit does.
//! - The height of a node is drawn by the hash of its key, not at random: the same keys always make
//!   the same list, and nobody who cannot read the seed can choose keys that make it flat.
//! - A writer who cannot have a lock for an upper level makes the node lower, and does not wait.
//!
//! # The paper's terms
//! | paper | here |
//! |---|---|
//! | level (Pugh) | level, from 0 |
//! | update vector (Pugh) | [`search::Path`] |
//! | marked, fully linked (Herlihy and others) | `is_dead`; not needed, the locks of a way in are
//!   those of the way out |
//!
//! Sources: W. Pugh, "Skip lists: a probabilistic alternative to balanced trees", CACM 1990; M.
//! Herlihy, Y. Lev, V. Luchangco, N. Shavit, "A simple optimistic skiplist algorithm", SIROCCO
//! 2007; X. Zhao, dissertation, section 4.2 (P-Skiplist).

mod check;
mod layout;
mod node;
mod readpath;
mod recovery;
mod search;
#[cfg(test)]
mod tests;
mod writepath;

use std::marker::PhantomData;

use gabion_media::pmem::{Medium, Pool};

use crate::node_lock::NodeLocks;
use crate::spoton::search_starts::SearchStarts;
use crate::{Error, Item, Seed};
pub(crate) use check::{CACHED, REGISTERED};
#[cfg(test)]
pub(crate) use check::{TALL, TALL_CACHED};
pub(crate) use recovery::is_referenced;
pub(crate) use search::TALL_LEVEL;

/// A P-Skiplist from `K`, `u64` or `[u8]`, to words in a pool of persistent memory. One node in
/// 2^`BITS` of a level is on the next.
///
/// All operations take `&self` and may be called from any thread. A write is durable when it
/// returns, as far as the class of the pool promises; see [`Pool`].
pub struct SkipList<K: Item + ?Sized, const BITS: u32 = 2> {
    medium: Medium,
    pool: Pool,
    /// Offset of the head, a node before all others.
    head: u64,
    seed: Seed,
    locks: NodeLocks,
    /// The tall nodes by their keys, if these are in DRAM.
    paths: Option<SearchStarts<K>>,
    keys: PhantomData<fn(&K)>,
}

impl<K: Item + ?Sized, const BITS: u32> SkipList<K, BITS> {
    /// The pool that the list lies in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Bytes of DRAM that the ways to tall nodes take, see [`SkipList::cached`].
    pub fn dram_bytes(&self) -> u64 {
        self.paths.as_ref().map_or(0, SearchStarts::bytes)
    }
}

#[cold]
fn damaged(offset: u64) -> Error {
    Error::damaged("a link of a skip list", offset)
}
