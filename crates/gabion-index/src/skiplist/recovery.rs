//! Making a list, and finding it again; and the ways to its tall nodes in DRAM.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::marker::PhantomData;

use gabion_media::pmem::{BlockClaim, Medium, Pool, PoolOptions, Reachable};

use super::layout::{HEAD_BYTES, LEVELS};
use super::node::Node;
use super::search::TALL_LEVEL;
use super::{SkipList, damaged};
use crate::index::{IndexPlan, root_of};
use crate::node_lock::NodeLocks;
use crate::root::{ROOT_BYTES, RootFacts};
use crate::spoton::search_starts::SearchStarts;
use crate::stored_key::KeyParts;
use crate::{Item, Result, Seed};

/// Nodes that recovery looks at for one block: far more than any sound list needs.
const STEPS_MAX: u32 = 1 << 16;

impl<K: Item + ?Sized, const BITS: u32> SkipList<K, BITS> {
    const MAGIC: u64 = u64::from_le_bytes(if K::IS_WORD {
        *b"GbSkipW1"
    } else {
        *b"GbSkipS1"
    });

    /// Makes an empty list the root of `pool`.
    ///
    /// A crash before the return leaves the list or a pool without root, and then nothing is lost
    /// but time.
    ///
    /// # Errors
    /// The pool has a root already, or no space.
    pub fn create(pool: &Pool, plan: IndexPlan) -> Result<Self> {
        let facts = RootFacts::create(pool, Self::MAGIC, HEAD_BYTES, plan)?;
        Ok(Self::of(pool, &facts))
    }

    /// Finds the list that is the root of `pool`. Reads the root and nothing else.
    ///
    /// # Errors
    /// No such list there, or a damaged root.
    pub fn open(pool: &Pool) -> Result<Self> {
        Ok(Self::of(pool, &RootFacts::open(pool, Self::MAGIC)?))
    }

    /// Options of pools for lists: the layout id, and how recovery finds what is in use. Whoever
    /// makes or opens the pool sets the rest.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        PoolOptions {
            layout: Self::MAGIC,
            reachable: Reachable::ask_fn(|medium, claim| {
                let root = root_of(medium);
                root != 0 && is_referenced::<K>(medium, root + ROOT_BYTES, claim)
            }),
            ..PoolOptions::default()
        }
    }

    fn of(pool: &Pool, facts: &RootFacts) -> Self {
        Self::at(pool, facts.behind::<u8>().raw(), Seed::new(facts.seed))
    }

    /// Bytes of a list without entries: zeros.
    pub(crate) const HEAD_BYTES: u64 = HEAD_BYTES;

    /// The list whose head is at an offset.
    pub(crate) fn at(pool: &Pool, head: u64, seed: Seed) -> Self {
        SkipList {
            medium: Medium::clone(pool),
            pool: pool.clone(),
            head,
            seed,
            locks: NodeLocks::new(),
            paths: None,
            keys: PhantomData,
        }
    }

    /// The same list with the ways to its tall nodes in DRAM from now on: searches read no level
    /// above 1, but for those of writes of tall nodes and of scans that begin at a key whose node
    /// is or would be tall. Reads the tall nodes, one in 16 of all. From now on all writes must go
    /// through this handle: another one does not tell this one what goes.
    ///
    /// # Errors
    /// No memory, or damage on the medium.
    pub fn cached(mut self) -> Result<Self> {
        let paths: SearchStarts<K> =
            SearchStarts::new(&self.medium, self.medium.len() / BYTES_PER_TALL)?;
        let mut node = self.head();
        let mut last: Option<K::Owned> = None;
        loop {
            let at = node.next(TALL_LEVEL);
            if at == 0 {
                break;
            }
            node = self.node(at)?;
            let key = node.key::<K>(&self.medium).ok_or_else(|| damaged(at))?;
            if last.is_some_and(|last| last.borrow() >= key.borrow()) {
                return Err(damaged(at));
            }
            paths.add(key.borrow(), at);
            last = Some(key);
        }
        self.paths = Some(paths);
        Ok(self)
    }
}

/// Bytes of a list for each tall node that the radix tree has room for. A list of words where one
/// node in four is on the next level has one in 768 bytes.
const BYTES_PER_TALL: u64 = 256;

/// What recovery of the pool asks: whether the list whose head is at an offset durably refers to a
/// block. A block is a node and tells its key; if it is in use, the search for that ends there. The
/// pool itself answers for its root.
pub(crate) fn is_referenced<K: Item + ?Sized>(
    medium: &Medium,
    head: u64,
    claim: BlockClaim,
) -> bool {
    let at = claim.block.raw();
    let claimed = Node::new(medium, at).filter(|node| claim.size >= node.bytes());
    let key = claimed.and_then(|node| node.key::<K>(medium));
    key.is_some_and(|key| find::<K>(medium, head, key.borrow()) == Some(at))
}

/// The node of a key on level 0 of the list whose head is at an offset, while nobody writes.
fn find<K: Item + ?Sized>(medium: &Medium, head: u64, key: &K) -> Option<u64> {
    if head + HEAD_BYTES > medium.len() {
        return None;
    }
    let parts = KeyParts::of(key);
    let mut node = Node::head(medium, head);
    let mut level = LEVELS - 1;
    for _ in 0..STEPS_MAX {
        let at = node.next(level);
        let next = (at != 0).then(|| Node::new(medium, at));
        // A link that leads nowhere is damage.
        let next = match next {
            Some(next) => Some(next?),
            None => None,
        };
        match next.map(|next| (next, next.stored().compare(medium, &parts))) {
            Some((next, Ordering::Less)) => node = next,
            other if level == 0 => {
                let is_it = other.is_some_and(|(_, order)| order == Ordering::Equal);
                return is_it.then_some(at);
            }
            _ => level -= 1,
        }
    }
    None
}
