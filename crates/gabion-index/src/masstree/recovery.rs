//! Creation and recovery of a tree.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{BlockClaim, Medium, Pool, PoolOptions, Reachable};

use super::Masstree;
use super::layer::above;
use super::layout::{
    FIRST_BYTES, HINT_BITS, HINT_LAYER, HINT_NODE, HINT_RECORD, NODE_BYTES, TO_LAYER,
};
use super::node::{Node, image};
use super::readpath::KeySuffix;
use crate::blink::{self, Node as _, NodeInit};
use crate::index::root_of;
use crate::node_lock::NodeLocks;
use crate::root::{self, ROOT_BYTES};
use crate::{Error, Item, Result};

/// Layers that recovery looks at for one block, at the most.
const LAYERS_MAX: usize = 1 << 30;

impl<K: Item + ?Sized> Masstree<K> {
    const MAGIC: u64 = u64::from_le_bytes(if K::IS_WORD {
        *b"GbMassW1"
    } else {
        *b"GbMassS1"
    });

    /// Makes an empty tree the root of `pool`.
    ///
    /// A crash before the return leaves the tree or a pool without root, and then nothing is lost
    /// but time.
    ///
    /// # Errors
    /// The pool has a root already, or no space.
    pub fn create(pool: &Pool) -> Result<Self> {
        let fill = |first| {
            pool.write(first, &image(&NodeInit::lone(0), first, &[]));
            pool.flush_range(first, NODE_BYTES);
        };
        let root = root::create_filled(pool, NODE_BYTES, fill, |_| vec![Self::MAGIC])?;
        Ok(Self::with(pool, root))
    }

    /// Finds the tree that is the root of `pool`. Reads the root and the head of one node.
    ///
    /// # Errors
    /// No such tree there, or a damaged root.
    pub fn open(pool: &Pool) -> Result<Self> {
        let (root, _) = root::find(pool, Self::MAGIC)?;
        let first = root + ROOT_BYTES;
        match Node::new(pool, first) {
            Some(_) => Ok(Self::with(pool, root)),
            None => Err(Error::damaged("the first leaf of a Masstree", first)),
        }
    }

    /// Options of pools for trees: the layout id, and how recovery finds what is in use. Whoever
    /// makes or opens the pool sets the rest.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        PoolOptions {
            layout: Self::MAGIC,
            reachable: Reachable::ask_fn(is_referenced),
            ..PoolOptions::default()
        }
    }

    fn with(pool: &Pool, root: u64) -> Self {
        Masstree {
            medium: Medium::clone(pool),
            pool: pool.clone(),
            root: root + ROOT_BYTES,
            locks: NodeLocks::new(),
            keys: PhantomData,
        }
    }
}

/// What recovery of the pool asks: whether a tree durably refers to a block, of the kind and in the
/// layer that the hint tells. The pool itself answers for its root.
fn is_referenced(medium: &Medium, claim: BlockClaim) -> bool {
    let at = claim.block.raw();
    let first = claim.hint & !HINT_BITS;
    match claim.hint & HINT_BITS {
        HINT_LAYER => claim.size >= FIRST_BYTES && depth_of(medium, at).is_some(),
        HINT_NODE => {
            let claimed = Node::new(medium, at).filter(|_| claim.size >= NODE_BYTES);
            let found = claimed
                .and_then(|node| find(medium, first, node.head().level(), node.head().low()));
            found.is_some_and(|node| node.at == at) && depth_of(medium, first).is_some()
        }
        HINT_RECORD => {
            let depth = depth_of(medium, first);
            depth.is_some_and(|depth| is_record_in_use(medium, at, claim.size, first, depth))
        }
        _ => false,
    }
}

/// Whether the layer with this first leaf, which is of a depth, or one below it durably refers to a
/// record: layers may have come between since an operation said where the record is.
fn is_record_in_use(medium: &Medium, at: u64, size: u64, first: u64, depth: usize) -> bool {
    // A record that was not moved was made for this layer; else it says for which one.
    let origin = KeySuffix::origin(medium, at).and_then(|origin| usize::try_from(origin).ok());
    let record = KeySuffix::new(medium, at, depth.max(origin.unwrap_or(0)));
    let mut record = record.filter(|record| size >= record.bytes());
    let mut first = first;
    while let Some(here) = record {
        match entry(medium, first, here.slice(medium)) {
            Some(reference) if reference == at => return true,
            Some(reference) if reference & TO_LAYER != 0 => first = reference & !TO_LAYER,
            _ => return false,
        }
        record = here.below();
    }
    false
}

/// The depth of the layer with this first leaf, if it is reached from the layer of first slices.
fn depth_of(medium: &Medium, mut first: u64) -> Option<usize> {
    let root = root_of(medium) + ROOT_BYTES;
    for depth in 0..LAYERS_MAX {
        if first == root {
            return Some(depth);
        }
        let above = above(medium, first)?;
        // ORDER: Relaxed: for recovery, when nobody writes.
        let parent = above.first.load(medium, Ordering::Relaxed);
        let slice = above.slice.load(medium, Ordering::Relaxed);
        if entry(medium, parent, slice) != Some(first | TO_LAYER) {
            return None;
        }
        first = parent;
    }
    None
}

/// The node of a level of a layer that `low` belongs to, while nobody writes.
fn find(medium: &Medium, first: u64, level: u64, low: u64) -> Option<Node<'_>> {
    // ORDER: Relaxed: as above.
    let top = Node::new(medium, first)?
        .body
        .top
        .load(medium, Ordering::Relaxed);
    blink::find(|at| Node::new(medium, at), top, level, low)
}

/// What a slice of a layer leads to, while nobody writes.
fn entry(medium: &Medium, first: u64, slice: u64) -> Option<u64> {
    let leaf = find(medium, first, 0, slice)?;
    Some(leaf.value(leaf.find(slice)?))
}
