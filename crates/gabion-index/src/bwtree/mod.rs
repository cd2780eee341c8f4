//! P-BwTree: a B-link tree whose pages change by deltas, in persistent memory.
//!
//! # Idea
//! Pages do not refer to each other by their places but by *cells*: a cell holds the word of its
//! page, which says where the page lies now. A page is written once and never changed. A write
//! appends a *delta* to it, "this key has this value" or "this key is deleted", and puts it before
//! the deltas that are there by one exchange of the word: what was read of the page is still true,
//! or the exchange fails. So readers take no lock and writers to a leaf none either. When a page
//! has eight deltas it is written anew with them applied, or as two pages, and one more exchange
//! puts that in its place; its neighbours and its parent, which know only the cell, need no change.
//!
//! # Layout
//! See `layout.rs`. In DRAM there are the locks of cells, 32 KiB, and marks of words that may not
//! be durable yet, 16 KiB.
//!
//! ```text
//!   cell            page
//!  ┌──────────┐    ┌──────┬─────────────┬───────────┬─────────┬─────────┬─────────┬──────┐
//!  │ page,    ├───►│ head │ 3 5 8 9 ... │ values    │ 5 = 11  │ 4 = 7   │ no 8    │ free │
//!  │ line 3   │    └──────┴─────────────┴───────────┴─────────┴────┬────┴────┬────┴──────┘
//!  └────┬─────┘                                        line 1 ◄────┘ ◄───────┘  ▲
//!       └───────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! # Invariants
//! - I1. A page and its deltas are durable before the word of a cell leads to them. Then they do
//!   not change until nothing leads to them any more and every reader of that time is gone.
//! - I2. Keys of a page rise, from its low on and below its bound, which is the low of its right
//!   neighbour. The low of a cell's page is the same for ever. On each level the pages from the
//!   first one on over their right neighbours have all keys.
//! - I3. An entry of an inner page is the low of a page of the level below with its cell; the first
//!   is the page's own low. A page need not be known to its parent: it is found from its left
//!   neighbour, and the next writer who comes that way tells the parent.
//! - I4. The lines that a word counts as taken contain all deltas that it leads to. A line belongs
//!   to the writer who took it by an exchange of the word.
//! - I5. Who replaces a page holds the lock of its cell and freezes it first: a frozen page takes
//!   no deltas. Inner pages change only under their lock. A thread waits for one lock at the most,
//!   and only if it holds no other.
//! - I6. Nobody relies on a word that is not durable: who finds a cell marked after loading its
//!   word makes it durable. What an exchange puts above a word makes that durable with itself.
//! - I7. A page that is given up was frozen, was then forgotten by its parent, and then taken in by
//!   its left neighbour, each of which is durable before the next; then its word says that it is
//!   dead. The cell is not used again as long as somebody can be on the way there.
//!
//! # Linearization point
//! Insert, update and delete: the exchange of the word. A lookup: the load of the word of the leaf,
//! or, if that is frozen, the same load, confirmed by a second look at the word that led there: as
//! long as that is what it was, the page was not given up. A delete or an update that finds nothing
//! is a lookup. That a page is replaced, splits or takes in another one changes no content.
//!
//! # Durability point
//! The persist of the word after that exchange, by the writer or by whoever saw it before.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | insert, update, delete | the delta; the cell | 2 |
//! | every eighth one also | the new page, at most 19; the cell; the allocator's notes | 2 |
//! | split | two pages and a cell; the cell; then a delta of the parent | 2 and 2 |
//! | merge | a page; a delta of the parent; the cell | 4 |
//! | a level more; a level less | a page and a cell; nothing; then the root's cell | 2 |
//!
//! # Recovery
//! Nothing is read but the root and the topmost page. Each change of shape is one exchange, so a
//! crash leaves it done or not done, and what the tree does not lead to then the allocator takes
//! back, by its notes: pages, cells, and with a page all lines that a writer had taken in it. What
//! can be left undone is small: a page that its parent does not know, see I3, and one that is
//! frozen, which the next writer thaws.
//!
//! # Deviations from the papers
//! - Deltas lie in lines of the page that they belong to, as in the OpenBw-Tree. There a page has a
//!   counter of its own for those taken, which a crash can leave behind them, and a list of chunks
//!   beside the page; here both are in the one word that publishes a delta, so there is nothing to
//!   flush, and nothing to lose.
//! - The mapping table is no array but the cells, which are blocks of the allocator. So it needs
//!   neither a limit nor a list of free places, and its places come and go with their pages.
//! - A split writes both halves anew instead of adding a split delta: it is due only when a page is
//!   written anew in any case, and so it takes one exchange. A merge is the same: a new page in the
//!   place of the left one instead of a delta that refers to two.
//! - The topmost page keeps its cell. A level more or less moves words between two cells.
//! - Changes of shape are made under locks, which are in DRAM, where the papers let everybody help:
//!   a block belongs to the thread that reserved it until that has told the allocator. So a writer
//!   to a page that has no room left waits for whoever replaces it. Readers wait for nobody.
//!
//! # The papers' terms
//! | paper | here |
//! |---|---|
//! | logical id, entry of the mapping table | cell |
//! | base node | page |
//! | delta record, delta chain | [`page::Delta`], [`page::Page::deltas`] |
//! | consolidation | `rebuild` |
//! | separator delta, index term delete delta | deltas of inner pages |
//! | remove node delta | freezing |
//!
//! Sources: J. Levandoski, D. Lomet, S. Sengupta, "The Bw-Tree: a B-tree for new hardware
//! platforms", ICDE 2013; Z. Wang et al., "Building a Bw-Tree takes more than just buzz words",
//! SIGMOD 2018; S. K. Lee et al., "RECIPE", SOSP 2019.

mod check;
mod image;
mod layout;
mod merge;
mod page;
mod readpath;
mod recovery;
mod shape;
#[cfg(test)]
mod tests;
mod writepath;

use std::marker::PhantomData;

use gabion_media::pmem::{Medium, Pool};

use crate::node_lock::NodeLocks;
use crate::pending::PendingCells;
use crate::{Error, Item};
pub(crate) use check::REGISTERED;
#[cfg(test)]
pub(crate) use check::TINY;

/// A P-BwTree from `K`, `u64` or `[u8]`, to words in a pool of persistent memory, with up to
/// `ENTRIES` entries in a page and about `DELTAS` deltas.
///
/// All operations take `&self` and may be called from any thread. A write is durable when it
/// returns, as far as the class of the pool promises; see [`Pool`].
pub struct BwTree<K: Item + ?Sized, const ENTRIES: usize = 64, const DELTAS: u64 = 8> {
    medium: Medium,
    pool: Pool,
    /// Offset of the cell of the topmost page.
    root: u64,
    locks: NodeLocks,
    pending: PendingCells,
    keys: PhantomData<fn(&K)>,
}

impl<K: Item + ?Sized, const ENTRIES: usize, const DELTAS: u64> BwTree<K, ENTRIES, DELTAS> {
    /// The pool that the tree lies in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

#[cold]
fn damaged(offset: u64) -> Error {
    Error::damaged("a cell or a page of a Bw-tree", offset)
}
