//! The top layer in DRAM: from a key to the node of the greatest lkey up to it.
//!
//! It is our radix tree in a pool of ordinary memory. Its answers are hints: a node knows its
//! range, and who finds the wrong one goes on along the links of the middle layer. So nothing here
//! needs to be exact while nodes split and merge, and a router without memory for more only makes
//! ways longer.
//!
//! The bounds of nodes are in the same pool, if they are strings (`item.rs`). That of its lkey
//! belongs to a node; the node on its left has it as its hkey.

use std::cmp::Ordering;

use gabion_media::pmem::{Medium, POff, Pool};

use super::item::{self, Bound, LEAST};
use super::layout::ITEM_HINT;
use crate::spoton::search_starts::trie;
use crate::stored_key::KeyParts;
use crate::{Art, Item};

/// Where a search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SearchStart {
    /// Number of a node.
    pub(crate) node: u64,
    /// Offset of its leaf, or another one: good for a prefetch.
    pub(crate) leaf: u64,
}

/// Binary logarithm of the unit of leaf offsets.
const LEAF_UNIT_LOG: u32 = 7;

impl SearchStart {
    fn pack(self) -> u64 {
        (self.leaf >> LEAF_UNIT_LOG) << 32 | self.node & 0xffff_ffff
    }

    #[inline]
    fn unpack(word: u64) -> SearchStart {
        SearchStart {
            node: word & 0xffff_ffff,
            leaf: word >> 32 << LEAF_UNIT_LOG,
        }
    }
}

/// The router.
pub(crate) struct Router<K: Item + ?Sized> {
    art: Art<K>,
}

impl<K: Item + ?Sized> Router<K> {
    /// An empty router for a tree of so many leaves in `medium`.
    pub(crate) fn new(medium: &Medium, leaves: u64) -> crate::Result<Router<K>> {
        Ok(Router {
            art: trie(medium, leaves)?,
        })
    }

    /// The pool in ordinary memory.
    pub(super) fn pool(&self) -> &Pool {
        self.art.pool()
    }

    /// Where to look for `key`.
    #[inline]
    pub(crate) fn find(&self, key: &K) -> Option<SearchStart> {
        self.art.floor_hint(key).map(SearchStart::unpack)
    }

    /// Leads to the node of a leaf from its lkey on. Without memory for that nothing happens.
    pub(crate) fn add(&self, lkey: &K, hint: SearchStart) {
        let _ = self.art.insert(lkey, hint.pack());
    }

    /// Leads to a node no more.
    pub(crate) fn remove(&self, lkey: &K) {
        let _ = self.art.remove(lkey);
    }

    /// The node that the router names for an lkey.
    pub(super) fn exact(&self, lkey: &K) -> Option<u64> {
        let word = self.art.get(lkey).ok()??;
        Some(SearchStart::unpack(word).node)
    }

    /// A bound for a node.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn bound(&self, key: &K) -> crate::Result<Bound<'_>> {
        Bound::new(self.pool(), key)
    }

    /// Where a bound stands to a key.
    #[inline]
    pub(super) fn compare(&self, bound: u64, key: &KeyParts<'_>) -> Ordering {
        // Nothing in ordinary memory is damaged.
        item::compare_bound::<K>(self.pool(), bound, key).unwrap_or(Ordering::Equal)
    }

    /// The key that is a bound.
    ///
    /// # Errors
    /// What is no bound.
    pub(super) fn key(&self, bound: u64) -> crate::Result<K::Owned> {
        item::bound_key::<K>(self.pool(), bound)
    }

    /// Gives up a bound that no node has any more.
    pub(super) fn give_up(&self, bound: u64) {
        if K::IS_WORD || bound == LEAST {
            return;
        }
        let pool = self.pool();
        if let Ok(retiring) = pool.retire(POff::<u8>::new(bound), ITEM_HINT) {
            retiring.commit(&pool.enter());
        }
    }

    /// Bytes of DRAM in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.pool().stats().used_bytes
    }
}
