//! The interface of an index that can be the base of a layered one.

use gabion_media::pmem::{BlockClaim, Medium, Pool, RoomRequest};

use super::Layered;
use crate::fastfair::{self, FastFair};
use crate::skiplist::{self, SkipList, TALL_LEVEL};
use crate::spoton::buffer::ROOM;
use crate::{Index, OrderedIndex, Result, Seed};

/// An index of words that a [`Layered`] one may lie on: [`FastFair`], [`SkipList`] or
/// [`Cceh<false>`](crate::Cceh).
pub trait Base: Index<u64> + Sized + 'static {
    /// The first word of a root, and the layout of a pool.
    #[doc(hidden)]
    const MAGIC: u64;
    /// Bytes of an empty base.
    #[doc(hidden)]
    const EMPTY_BYTES: u64;

    /// What buffers are for it, if it is made for so many entries.
    #[doc(hidden)]
    fn shape(entries: u64) -> Shape;

    /// Writes an empty base to an offset where zeros are, durable with the next fence.
    #[doc(hidden)]
    fn place(medium: &Medium, at: u64);

    /// Finds the base at an offset, with the seed and the entries that it was made for.
    #[doc(hidden)]
    fn find(pool: &Pool, at: u64, seed: u64, entries: u64) -> Result<Self>;

    /// Gives an empty base as many parts as so many entries need, if that can be done before they
    /// come.
    #[doc(hidden)]
    fn grow(&self, _entries: u64) -> Result<()> {
        Ok(())
    }

    /// What an empty base takes of the pool when it is found first and has as many parts as so many
    /// entries need.
    #[doc(hidden)]
    fn planned_parts(_entries: u64) -> Vec<RoomRequest> {
        Vec::new()
    }

    /// Whether the base at an offset durably refers to a block; asked before there is a pool.
    #[doc(hidden)]
    fn is_referenced(medium: &Medium, at: u64, claim: BlockClaim) -> bool;

    /// Keeps what leads to parts in DRAM from now on.
    #[doc(hidden)]
    fn cached(self) -> Result<Self>;

    /// Bytes of DRAM that takes.
    #[doc(hidden)]
    fn dram_bytes(&self) -> u64;

    /// The position of a key. Parts are ranges of positions, and so are those of nodes. By default
    /// the order is that of keys. Keys may share a position.
    #[doc(hidden)]
    #[inline]
    fn position(&self, key: u64) -> u64 {
        key
    }

    /// Which way of a buffer is that of the keys with a position, the same for ever.
    #[doc(hidden)]
    #[inline]
    fn way(&self, _position: u64) -> usize {
        0
    }

    /// Stores pairs, in the order of their positions, out of place if that saves persists. All are
    /// durable when this returns. Nobody relies on what is found of these keys meanwhile. By
    /// default they go to their places one after the other.
    #[doc(hidden)]
    fn insert_all(&self, pairs: &[(u64, u64)]) -> Result<()> {
        pairs
            .iter()
            .try_for_each(|(key, value)| self.insert(key, *value).map(drop))
    }

    /// Where the first part behind a position begins that deserves a buffer of its own, or did a
    /// moment ago.
    #[doc(hidden)]
    fn next_part(&self, position: u64) -> Result<Option<u64>>;

    /// Appends all entries from a position on up to another one, which is returned; none if up to
    /// the end. So many are wanted at least, but if a part has less it may be those of a part.
    #[doc(hidden)]
    fn collect(&self, from: u64, wanted: usize, found: &mut Vec<(u64, u64)>)
    -> Result<Option<u64>>;

    /// An index above such a base with what those can do that know the order of their keys, if it
    /// does.
    #[doc(hidden)]
    fn order_of<const PAGE: usize>(index: &Layered<Self, PAGE>) -> Option<&dyn OrderedIndex<u64>>;
}

/// What buffers are for a base.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Buffers of each node, a power of two.
    pub ways: usize,
    /// Pairs that each of them has room for.
    pub pairs: usize,
    /// Parts of the base when it has the entries that it is made for.
    pub parts: u64,
}

impl Shape {
    /// One buffer of so many pairs for each part, which has twice as many when it is full.
    fn of_halves(pairs: usize, entries: u64) -> Shape {
        Shape {
            ways: 1,
            pairs,
            // They are two thirds full.
            parts: entries.saturating_mul(2) / (3 * pairs as u64),
        }
    }

    /// Pairs that wait for one node, at most.
    pub(super) fn pairs_of_node(self) -> u64 {
        (self.ways * self.pairs) as u64
    }
}

/// [`Base::collect`] of an ordered base.
fn collect_by_scan(
    base: &impl OrderedIndex<u64>,
    from: u64,
    wanted: usize,
    found: &mut Vec<(u64, u64)>,
) -> Result<Option<u64>> {
    base.scan(&from, wanted, found)?;
    let last = found.last().filter(|_| found.len() == wanted);
    Ok(last.and_then(|(key, _)| key.checked_add(1)))
}

/// What ordered bases say of their order.
macro_rules! in_order {
    () => {
        fn collect(
            &self,
            from: u64,
            wanted: usize,
            found: &mut Vec<(u64, u64)>,
        ) -> Result<Option<u64>> {
            collect_by_scan(self, from, wanted, found)
        }

        fn order_of<const PAGE: usize>(
            index: &Layered<Self, PAGE>,
        ) -> Option<&dyn OrderedIndex<u64>> {
            Some(index)
        }
    };
}

const fn at_most_room(pairs: usize) -> usize {
    if pairs < ROOM { pairs } else { ROOM }
}

/// A buffer for each leaf, with half of its pairs.
impl<const N: usize> Base for FastFair<N> {
    const MAGIC: u64 = u64::from_le_bytes(*b"GbLayFF1");
    const EMPTY_BYTES: u64 = Self::EMPTY_BYTES;

    fn place(medium: &Medium, at: u64) {
        FastFair::<N>::place(medium, at);
    }

    fn shape(entries: u64) -> Shape {
        Shape::of_halves(at_most_room(N / 2), entries)
    }

    fn find(pool: &Pool, at: u64, _seed: u64, _entries: u64) -> Result<Self> {
        FastFair::at(pool, at)
    }

    fn is_referenced(medium: &Medium, at: u64, claim: BlockClaim) -> bool {
        fastfair::is_referenced::<N>(medium, at, claim)
    }

    fn insert_all(&self, pairs: &[(u64, u64)]) -> Result<()> {
        FastFair::insert_all(self, pairs)
    }

    fn cached(self) -> Result<Self> {
        FastFair::cached(self)
    }

    fn dram_bytes(&self) -> u64 {
        FastFair::dram_bytes(self)
    }

    fn next_part(&self, position: u64) -> Result<Option<u64>> {
        self.end_of_leaf(position)
    }

    in_order!();
}

/// A buffer for the nodes from each tall one on, of which there are as many as it has pairs. A node
/// of a list is new in any case, so there is no other way to merge it.
impl<const BITS: u32> Base for SkipList<u64, BITS> {
    const MAGIC: u64 = u64::from_le_bytes(*b"GbLaySk1");
    const EMPTY_BYTES: u64 = Self::HEAD_BYTES;

    /// Zeros are an empty list.
    fn place(_medium: &Medium, _at: u64) {}

    fn shape(entries: u64) -> Shape {
        Shape::of_halves(at_most_room(1 << (TALL_LEVEL * BITS as usize)), entries)
    }

    fn find(pool: &Pool, at: u64, seed: u64, _entries: u64) -> Result<Self> {
        Ok(SkipList::at(pool, at, Seed::new(seed)))
    }

    fn is_referenced(medium: &Medium, at: u64, claim: BlockClaim) -> bool {
        skiplist::is_referenced::<u64>(medium, at, claim)
    }

    fn cached(self) -> Result<Self> {
        SkipList::cached(self)
    }

    fn dram_bytes(&self) -> u64 {
        SkipList::dram_bytes(self)
    }

    fn next_part(&self, position: u64) -> Result<Option<u64>> {
        // Else the list is damaged.
        let next = self.next_on(TALL_LEVEL, &position)?;
        Ok(next.filter(|next| *next > position))
    }

    in_order!();
}
