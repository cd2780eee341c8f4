//! The search path of an index, in DRAM (guideline C): from a key to a node in the pool to begin
//! at.
//!
//! A radix tree in ordinary memory has the first key of each node at which searches may begin, so
//! that they need not read what is above those in the pool. It is made anew when an index is
//! opened, and follows what is linked there and what goes.
//!
//! A node that it names was part of the index at a moment after the search began: whoever takes a
//! node out forgets it here before that begins, or at least before it is given back
//! ([`SearchStarts::forget`]), and whoever searches keeps what it finds from being used again
//! (`Pool::enter`) before it asks. Apart from that the answers are hints. While others write, or
//! without memory for more, the node may be too far to the left, behind the key, or none: who asks
//! looks at the node's key, and goes the long way if it must.

use gabion_media::pmem::{Medium, Pool, PoolOptions, Region};

use crate::{Art, Error, Index, Item, Result};

/// Bytes for each key there may be: more than a radix tree takes for sparse keys. Of a mapping the
/// system gives only what is touched.
const BYTES_PER_KEY: u64 = 320;
/// Most bytes that are taken as a region.
const REGION_MAX: u64 = 8 << 20;
/// What a radix tree takes at least.
const BYTES_MIN: u64 = 192 << 10;
/// Bytes of an index for one of its radix tree's, for strings: a key here is in the index, too,
/// and no longer than the keys that it lies between, of which that has some dozens.
const BYTES_PER_STRING_BYTE: u64 = 2;

/// What says that there is no node: the pool's own header is there.
const NOWHERE: u64 = 0;

/// An empty radix tree in ordinary memory, for so many keys of an index in `medium`.
pub(crate) fn trie<K: Item + ?Sized>(medium: &Medium, keys: u64) -> Result<Art<K>> {
    let strings = if K::IS_WORD {
        0
    } else {
        medium.len() / BYTES_PER_STRING_BYTE
    };
    let size = (keys * BYTES_PER_KEY + BYTES_MIN + strings).next_multiple_of(4096);
    let options = Art::<K>::pool_options();
    // An exploration opens indexes by the million: a small region costs less than a mapping. All of
    // it is touched.
    let pool = if medium.is_watched() && size <= REGION_MAX {
        let region = Region::new(usize::try_from(size).unwrap_or(usize::MAX));
        let options = PoolOptions {
            heaps: 1,
            chunk_bytes: 4096,
            ..options
        };
        Pool::create_in(&region, options)?
    } else {
        Pool::anonymous(PoolOptions { size, ..options })?
    };
    Art::create(&pool)
}

/// An index that was made or found, as it is or with its ways in DRAM.
pub(crate) fn told<const IN_DRAM: bool, T>(
    index: Result<T>,
    cached: fn(T) -> Result<T>,
) -> Result<Box<T>> {
    let index = if IN_DRAM { cached(index?)? } else { index? };
    Ok(Box::new(index))
}

/// Where searches may begin.
pub(crate) struct SearchStarts<K: Item + ?Sized> {
    art: Art<K>,
}

impl<K: Item + ?Sized> SearchStarts<K> {
    /// None, with room for so many nodes of an index in `medium`.
    pub(crate) fn new(medium: &Medium, nodes: u64) -> Result<SearchStarts<K>> {
        Ok(SearchStarts {
            art: trie(medium, nodes)?,
        })
    }

    /// Where to begin on the way to `key`, if that is known.
    #[inline]
    pub(crate) fn find(&self, key: &K) -> Option<u64> {
        self.art.floor_hint(key).filter(|at| *at != NOWHERE)
    }

    /// Lets searches from `first` on begin at a node, and at no other one that had this key.
    pub(crate) fn add(&self, first: &K, at: u64) {
        // Without memory for a new key the ways are longer.
        let _ = self.art.insert(first, at);
    }

    /// Lets no search begin at the node with this key any more.
    pub(crate) fn forget(&self, first: &K) {
        // Without memory a tree may keep a key, but never what it led to.
        let _ = self.art.update(first, NOWHERE);
        let _ = self.art.remove(first);
    }

    /// Checks all nodes that are named, while nobody writes, and returns their number.
    ///
    /// # Errors
    /// The first one that is not what it should be for its key.
    pub(crate) fn check(&self, is_right: impl Fn(&K, u64) -> bool) -> Result<u64> {
        let (mut count, mut wrong) = (0, None);
        self.art.for_each(&mut |first, at| {
            if at != NOWHERE {
                count += 1;
                wrong = wrong.or((!is_right(first, at)).then_some(at));
            }
        })?;
        wrong.map_or(Ok(count), |offset| {
            Err(Error::damaged("a way in DRAM", offset))
        })
    }

    /// Bytes of DRAM in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.art.pool().stats().used_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_begins_at_the_last_node_that_is_known() {
        let pool = Pool::anonymous(PoolOptions::default()).expect("memory");
        let paths = SearchStarts::<u64>::new(&pool, 10_000).expect("memory");
        assert_eq!(paths.find(&7), None);
        paths.add(&0, 256);
        paths.add(&1000, 512);
        assert_eq!(
            [999, 1000].map(|key| paths.find(&key)),
            [Some(256), Some(512)]
        );
        paths.add(&1000, 768);
        assert_eq!(paths.find(&u64::MAX), Some(768));
        paths.forget(&1000);
        assert_eq!(paths.find(&u64::MAX), Some(256));
        paths.forget(&1000);
        let count = paths.check(|key, at| (*key, at) == (0, 256));
        assert_eq!(count.expect("sound"), 1);
        assert!(paths.check(|_, _| false).is_err());
    }
}
