//! Creation and recovery of a tree, and of the search paths to its leaves in DRAM.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{BlockClaim, Medium, POff, Pool, PoolOptions, ROOT_HINT, Reachable};

use super::layout::{FIRST_LEAF, Header, MAGIC, node_align, node_bytes};
use super::node::{Node, image};
use super::{FastFair, node_at};
use crate::blink::{self, Descent, NodeInit};
use crate::index::root_of;
use crate::node_lock::NodeLocks;
use crate::spoton::search_starts::SearchStarts;
use crate::{Error, Result, Seed};

/// Leaves with the same low that recovery looks at for one block: more than there are if nobody is
/// in the way again and again.
const ROW_MAX: usize = 10_000;

/// The first words of a header.
fn constants(slots: usize) -> [u64; 3] {
    let bytes: Vec<u8> = [MAGIC, slots as u64]
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect();
    [MAGIC, slots as u64, Seed::new(0).hash_bytes(&bytes)]
}

impl<const N: usize> FastFair<N> {
    /// Makes an empty tree the root of `pool`.
    ///
    /// A crash before the return leaves the tree or a pool without root, and then nothing is lost
    /// but time.
    ///
    /// # Errors
    /// The pool has a root already, or no space.
    pub fn create(pool: &Pool) -> Result<Self> {
        let _within = pool.write_guard();
        if !pool.root::<Header>().is_null() {
            return Err(Error::RootTaken);
        }
        let space = pool.alloc_aligned(Self::EMPTY_BYTES, FIRST_LEAF, ROOT_HINT)?;
        let root = space.offset::<Header>();
        Self::place(pool, root.raw());
        // DURABLE: header and leaf, before the root refers to them.
        pool.fence();
        pool.set_root(root);
        space.commit::<Header>();
        Ok(Self::with(pool, root))
    }

    /// Bytes of a tree without entries: its header and its first leaf.
    pub(crate) const EMPTY_BYTES: u64 = FIRST_LEAF + node_bytes(N);

    /// Writes an empty tree to `root`, durable with the next fence.
    pub(crate) fn place(medium: &Medium, root: u64) {
        let leaf = root + FIRST_LEAF;
        let [magic, slots, check] = constants(Self::SLOTS_OF_NODE);
        let words = [magic, slots, check, leaf, 0, 0, 0, 0];
        let header: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        medium.write(root, &header);
        medium.write(leaf, &image::<N>(&NodeInit::lone(0), &[]));
        medium.flush_range(root, size_of::<Header>() as u64);
        medium.flush_range(leaf, node_bytes(N));
    }

    /// Finds the tree that is the root of `pool`. Reads the header and nothing else.
    ///
    /// # Errors
    /// No tree there, one with nodes of another size, or a damaged header.
    pub fn open(pool: &Pool) -> Result<Self> {
        let root = pool.root::<Header>();
        if root.is_null() {
            return Err(Error::NoRoot);
        }
        Self::at(pool, root.raw())
    }

    /// Finds the tree whose header is at `root`.
    ///
    /// # Errors
    /// As [`FastFair::open`].
    pub(crate) fn at(pool: &Pool, root: u64) -> Result<Self> {
        let root = POff::<Header>::new(root);
        let damaged = || Error::damaged("the header of a FAST&FAIR tree", root.raw());
        let Some(header) = pool.try_at(root) else {
            return Err(damaged());
        };
        let words = [&header.magic, &header.slots, &header.check];
        // ORDER: Relaxed: these words do not change.
        let [magic, slots, check] = words.map(|word| word.load(pool, Ordering::Relaxed));
        if magic != MAGIC {
            return Err(Error::NoRoot);
        }
        let expected = usize::try_from(slots).map(constants);
        if expected.is_ok_and(|expected| expected[2] == check) {
            if slots != N as u64 {
                return Err(Error::OtherKind);
            }
            // ORDER: Relaxed: nobody writes while a tree is opened.
            let top = header.top.load(pool, Ordering::Relaxed);
            if node_at::<N>(pool, top).is_some() {
                return Ok(Self::with(pool, root));
            }
        }
        Err(damaged())
    }

    /// Options of pools for trees: the layout id, and how recovery finds what is in use. Whoever
    /// makes or opens the pool sets the rest.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        PoolOptions {
            layout: MAGIC,
            reachable: Reachable::ask_fn(|medium, claim| {
                is_referenced::<N>(medium, root_of(medium), claim)
            }),
            ..PoolOptions::default()
        }
    }

    fn with(pool: &Pool, header: POff<Header>) -> Self {
        FastFair {
            medium: Medium::clone(pool),
            pool: pool.clone(),
            header,
            locks: NodeLocks::new(),
            paths: None,
        }
    }

    /// The same tree with the ways to its leaves in DRAM from now on: lookups and writes read no
    /// inner node, unless an inner node changes. Reads those above the leaves. From now on all
    /// writes must go through this handle: another one does not tell this one what goes.
    ///
    /// # Errors
    /// No memory, or damage on the medium.
    pub fn cached(mut self) -> Result<Self> {
        let paths = SearchStarts::new(&self.medium, self.medium.len() / node_bytes(N))?;
        let (header, top) = (self.header.raw(), self.top()?);
        if top.head.level() == 0 {
            paths.add(&0, top.at);
            self.paths = Some(paths);
            return Ok(self);
        }
        let mut low = Some(0);
        while let Some(key) = low {
            let parent = find::<N>(&self.medium, header, 1, key);
            let parent = parent.ok_or(Error::Damaged {
                what: "the nodes above the leaves of a FAST&FAIR tree",
                offset: header,
            })?;
            let range = parent.head.range();
            for (low, leaf) in parent.live_entries(range.bound) {
                paths.add(&low, leaf);
            }
            // A bound that does not rise is damage; so far the leaves are known.
            low = Some(range.bound).filter(|bound| !range.is_last() && *bound > key);
        }
        self.paths = Some(paths);
        Ok(self)
    }
}

/// What recovery of the pool asks: whether the tree whose header is at `root` durably refers to a
/// block. A block is a node, and tells its level and its low; if it is in use, the search for these
/// ends there, or, if it is spent, its left neighbour leads there. The pool itself answers for its
/// root.
pub(crate) fn is_referenced<const N: usize>(medium: &Medium, root: u64, claim: BlockClaim) -> bool {
    let at = claim.block.raw();
    let is_aligned = at.is_multiple_of(node_align(N)) && claim.size >= node_bytes(N);
    let claimed = node_at::<N>(medium, at).filter(|_| is_aligned);
    claimed.is_some_and(|node| {
        let (level, low) = (node.head.level(), node.head.low());
        if blink::is_spent(node) {
            let left = find::<N>(medium, root, 0, low - 1);
            return left.is_some_and(|left| is_behind(medium, left, node));
        }
        let found = find::<N>(medium, root, level, low);
        found.is_some_and(|found| found.at == at)
    })
}

/// Whether the links from a leaf on lead to another one, along those with the same low.
fn is_behind<'a, const N: usize>(medium: &'a Medium, left: Node<'a, N>, node: Node<'a, N>) -> bool {
    let behind = |node: &Node<'a, N>| node_at::<N>(medium, node.head.range().neighbour);
    let row = std::iter::successors(behind(&left), behind).take(ROW_MAX);
    let mut row = row.take_while(|other| other.head.low() == node.head.low());
    row.any(|other| other.at == node.at)
}

/// The last entry up to `key` in the leaf of that key, of the tree whose header is at `root`, while
/// nobody writes. There may be none in that leaf, and some before it.
pub(crate) fn floor_in_leaf<const N: usize>(
    medium: &Medium,
    root: u64,
    key: u64,
) -> Option<(u64, u64)> {
    let leaf = find::<N>(medium, root, 0, key)?;
    let slot = leaf.rank(key).checked_sub(1)?;
    Some((leaf.key(slot), leaf.value(slot)))
}

/// The node of a level that `low` belongs to, while nobody writes.
fn find<const N: usize>(medium: &Medium, root: u64, level: u64, low: u64) -> Option<Node<'_, N>> {
    let root: &Header = medium.try_at(POff::new(root))?;
    // ORDER: Relaxed: for recovery, when nobody writes.
    let top = root.top.load(medium, Ordering::Relaxed);
    blink::find(|at| node_at::<N>(medium, at), top, level, low)
}
