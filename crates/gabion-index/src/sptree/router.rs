//! The top layer in DRAM: from a key to the node of the greatest lkey up to it.
//!
//! It is our radix tree in a pool of ordinary memory. Its answers are hints: a node knows its
//! range, and who finds the wrong one goes on along the links of the middle layer. So nothing here
//! needs to be exact while nodes split and merge, and a router without memory for more only makes
//! ways longer.

use gabion_media::pmem::{Medium, Pool, PoolOptions, Region};

use crate::Art;

/// Where a search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    /// Number of a node.
    pub(super) node: u64,
    /// Offset of its leaf, or another one: good for a prefetch.
    pub(super) leaf: u64,
}

/// Binary logarithm of the unit of leaf offsets.
const LEAF_UNIT_LOG: u32 = 7;

impl Hint {
    fn pack(self) -> u64 {
        (self.leaf >> LEAF_UNIT_LOG) << 32 | self.node & 0xffff_ffff
    }

    #[inline]
    fn unpack(word: u64) -> Hint {
        Hint {
            node: word & 0xffff_ffff,
            leaf: word >> 32 << LEAF_UNIT_LOG,
        }
    }
}

/// The router.
pub(super) struct Router {
    art: Art<u64>,
}

/// Bytes of the router's pool for each leaf there may be: more than a radix tree takes for sparse
/// keys. The system gives only what is touched.
const BYTES_PER_LEAF: u64 = 320;
/// What its pool takes at least.
const BYTES_MIN: u64 = 192 << 10;

impl Router {
    /// An empty router for a tree of so many leaves in `medium`.
    pub(super) fn new(medium: &Medium, leaves: u64) -> crate::Result<Router> {
        let size = leaves * BYTES_PER_LEAF + BYTES_MIN;
        let options = Art::<u64>::pool_options();
        // An exploration opens trees by the million: a small region costs less than a mapping.
        let pool = if medium.is_watched() {
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
        Ok(Router {
            art: Art::create(&pool)?,
        })
    }

    /// Where to look for `key`.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<Hint> {
        self.art.floor_hint(key).map(Hint::unpack)
    }

    /// Leads to the node of a leaf from its lkey on. Without memory for that nothing happens.
    pub(super) fn add(&self, lkey: u64, hint: Hint) {
        let _ = self.art.insert(&lkey, hint.pack());
    }

    /// Leads to a node no more.
    pub(super) fn remove(&self, lkey: u64) {
        let _ = self.art.remove(&lkey);
    }

    /// The node that the router names for an lkey.
    pub(super) fn exact(&self, lkey: u64) -> Option<u64> {
        let word = self.art.get(&lkey).ok()??;
        Some(Hint::unpack(word).node)
    }

    /// Bytes of DRAM in use.
    pub(super) fn bytes(&self) -> u64 {
        self.art.pool().stats().used_bytes
    }
}
