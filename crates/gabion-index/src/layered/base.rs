//! What an index must have to be the base of a layered one.

use gabion_media::pmem::{Claim, Medium, Pool};

use crate::fastfair::{self, FastFair};
use crate::skiplist::{self, SkipList, TALL_LEVEL};
use crate::spoton::buffer::ROOM;
use crate::{OrderedIndex, Result, Seed};

/// An index of words that a [`Layered`](super::Layered) one may lie on: [`FastFair`] or
/// [`SkipList`].
pub trait Base: OrderedIndex<u64> + Sized + 'static {
    /// The first word of a root, and the layout of a pool.
    #[doc(hidden)]
    const MAGIC: u64;
    /// Pairs that a buffer has room for.
    #[doc(hidden)]
    const BUFFERED: usize;
    /// Bytes of an empty base.
    #[doc(hidden)]
    const EMPTY_BYTES: u64;

    /// Writes an empty base to an offset where zeros are, durable with the next fence.
    #[doc(hidden)]
    fn place(medium: &Medium, at: u64);

    /// Finds the base at an offset.
    #[doc(hidden)]
    fn find(pool: &Pool, at: u64, seed: u64) -> Result<Self>;

    /// Whether the base at an offset durably refers to a block; asked before there is a pool.
    #[doc(hidden)]
    fn is_referenced(medium: &Medium, at: u64, claim: Claim) -> bool;

    /// Keeps what leads to parts in DRAM from now on.
    #[doc(hidden)]
    fn cached(self) -> Result<Self>;

    /// Bytes of DRAM that takes.
    #[doc(hidden)]
    fn dram_bytes(&self) -> u64;

    /// Stores pairs, in the order of their keys, out of place if that saves persists. All are
    /// durable when this returns. Nobody relies on what is found of these keys meanwhile.
    #[doc(hidden)]
    fn insert_all(&self, pairs: &[(u64, u64)]) -> Result<()>;

    /// Where the first part behind `key` begins that deserves a buffer of its own, or did a moment
    /// ago.
    #[doc(hidden)]
    fn next_part(&self, key: u64) -> Result<Option<u64>>;
}

const fn at_most_room(pairs: usize) -> usize {
    if pairs < ROOM { pairs } else { ROOM }
}

/// A buffer for each leaf, with half of its pairs.
impl<const N: usize> Base for FastFair<N> {
    const MAGIC: u64 = u64::from_le_bytes(*b"GbLayFF1");
    const BUFFERED: usize = at_most_room(N / 2);
    const EMPTY_BYTES: u64 = Self::EMPTY_BYTES;

    fn place(medium: &Medium, at: u64) {
        FastFair::<N>::place(medium, at);
    }

    fn find(pool: &Pool, at: u64, _seed: u64) -> Result<Self> {
        FastFair::at(pool, at)
    }

    fn is_referenced(medium: &Medium, at: u64, claim: Claim) -> bool {
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

    fn next_part(&self, key: u64) -> Result<Option<u64>> {
        self.end_of_leaf(key)
    }
}

/// A buffer for the nodes from each tall one on, of which there are as many as it has pairs.
impl<const BITS: u32> Base for SkipList<u64, BITS> {
    const MAGIC: u64 = u64::from_le_bytes(*b"GbLaySk1");
    const BUFFERED: usize = at_most_room(1 << (TALL_LEVEL * BITS as usize));
    const EMPTY_BYTES: u64 = Self::HEAD_BYTES;

    /// Zeros are an empty list.
    fn place(_medium: &Medium, _at: u64) {}

    fn find(pool: &Pool, at: u64, seed: u64) -> Result<Self> {
        Ok(SkipList::at(pool, at, Seed::new(seed)))
    }

    fn is_referenced(medium: &Medium, at: u64, claim: Claim) -> bool {
        skiplist::is_referenced::<u64>(medium, at, claim)
    }

    /// A node of a list is new in any case.
    fn insert_all(&self, pairs: &[(u64, u64)]) -> Result<()> {
        pairs
            .iter()
            .try_for_each(|(key, value)| self.insert(key, *value).map(drop))
    }

    fn cached(self) -> Result<Self> {
        SkipList::cached(self)
    }

    fn dram_bytes(&self) -> u64 {
        SkipList::dram_bytes(self)
    }

    fn next_part(&self, key: u64) -> Result<Option<u64>> {
        // Else the list is damaged.
        let next = self.next_on(TALL_LEVEL, &key)?;
        Ok(next.filter(|next| *next > key))
    }
}
