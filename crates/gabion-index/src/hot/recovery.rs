//! Creation and recovery of a trie.

use std::borrow::Borrow;
use std::marker::PhantomData;

use gabion_media::pmem::{BlockClaim, Medium, POff, Pool, PoolOptions, Reachable};

use super::Hot;
use super::layout::{Child, RootBlock};
use super::node::Node;
use crate::index::root_of;
use crate::leaf::{LEAF_BYTES, LeafRef};
use crate::node_lock::NodeLocks;
use crate::root::{self, ROOT_BYTES};
use crate::{Error, Item, Result};

/// Nodes that recovery looks at for one block: far more than any sound trie is high.
const STEPS_MAX: u32 = 1 << 20;

const MAGIC_OF_WORDS: u64 = u64::from_le_bytes(*b"GbPHotW1");
const MAGIC_OF_STRINGS: u64 = u64::from_le_bytes(*b"GbPHotS1");

impl<K: Item + ?Sized> Hot<K> {
    const MAGIC: u64 = if K::IS_WORD {
        MAGIC_OF_WORDS
    } else {
        MAGIC_OF_STRINGS
    };

    /// Makes an empty trie the root of `pool`.
    ///
    /// A crash before the return leaves the trie or a pool without root, and then nothing is lost
    /// but time.
    ///
    /// # Errors
    /// The pool has a root already, or no space.
    pub fn create(pool: &Pool) -> Result<Self> {
        let at = root::create(pool, size_of::<RootBlock>() as u64, |_| vec![Self::MAGIC])?;
        Ok(Self::with(pool, at))
    }

    /// Finds the trie that is the root of `pool`. Reads the root and nothing else.
    ///
    /// # Errors
    /// No trie there, one of other kinds of keys, or a damaged root.
    pub fn open(pool: &Pool) -> Result<Self> {
        let other = if K::IS_WORD {
            MAGIC_OF_STRINGS
        } else {
            MAGIC_OF_WORDS
        };
        match root::find(pool, Self::MAGIC) {
            Ok((at, _)) => {
                let top: Option<&RootBlock> = pool.try_at(POff::new(at + ROOT_BYTES));
                top.ok_or_else(|| Error::damaged("the root of an index", at))?;
                Ok(Self::with(pool, at))
            }
            Err(Error::NoRoot) if root::find(pool, other).is_ok() => Err(Error::OtherKind),
            Err(error) => Err(error),
        }
    }

    /// Options of pools for tries: the layout id, and how recovery finds what is in use. Whoever
    /// makes or opens the pool sets the rest.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        PoolOptions {
            layout: MAGIC_OF_WORDS,
            reachable: Reachable::ask_fn(is_referenced::<K>),
            keeps_back: true,
            ..PoolOptions::default()
        }
    }

    fn with(pool: &Pool, root: u64) -> Self {
        Hot {
            medium: Medium::clone(pool),
            pool: pool.clone(),
            top: root + ROOT_BYTES,
            locks: NodeLocks::new(),
            keys: PhantomData,
        }
    }
}

/// What recovery of the pool asks: whether a trie durably refers to a block, of the kind that is
/// the hint. If it does, the way to a key below the block leads through it. The pool itself answers
/// for its root.
fn is_referenced<K: Item + ?Sized>(medium: &Medium, claim: BlockClaim) -> bool {
    let wanted = Child(claim.block.raw() | claim.hint);
    if wanted.at() != claim.block.raw() || claim.size < LEAF_BYTES {
        return false;
    }
    some_key_below::<K>(medium, wanted).is_some_and(|key| is_on_way::<K>(medium, &key, wanted))
}

fn some_key_below<K: Item + ?Sized>(medium: &Medium, mut child: Child) -> Option<K::Owned> {
    for _ in 0..STEPS_MAX {
        if child.is_leaf() {
            return LeafRef::new(medium, child.at())?.key::<K>();
        }
        let node = child.is_node().then(|| Node::new(medium, child.at()));
        child = node.flatten()?.child(0);
    }
    None
}

fn is_on_way<K: Item + ?Sized>(medium: &Medium, key: &K::Owned, wanted: Child) -> bool {
    let key: &K = key.borrow();
    let root = root_of(medium);
    let top: Option<&RootBlock> = medium.try_at(POff::new(root.saturating_add(ROOT_BYTES)));
    let Some(top) = top.filter(|_| root != 0) else {
        return false;
    };
    // ORDER: Relaxed: nobody writes during recovery.
    let mut child = Child(top.child.load(medium, std::sync::atomic::Ordering::Relaxed));
    for _ in 0..STEPS_MAX {
        if child == wanted {
            return true;
        }
        let node = child.is_node().then(|| Node::new(medium, child.at()));
        match node.flatten() {
            Some(node) => child = node.child(node.find(key)),
            None => return false,
        }
    }
    false
}
