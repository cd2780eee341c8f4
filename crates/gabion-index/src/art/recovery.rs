//! Creation and recovery of a trie.

use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{BlockClaim, Medium, POff, Pool, PoolOptions, ROOT_HINT, Reachable};

use super::Art;
use super::key;
use super::layout::{Child, Header, Kind, MAGIC, NODE_ALIGN};
use super::node::Node;
use crate::index::root_of;
use crate::leaf::LeafRef;
use crate::node_lock::NodeLocks;
use crate::{Error, Item, Result, Seed};

/// Nodes that recovery looks at for one block at the most.
const STEPS_MAX: u32 = 1 << 20;

impl<K: Item + ?Sized> Art<K> {
    /// The first words of a header.
    fn constants() -> [u64; 3] {
        let kind = u64::from(!K::IS_WORD);
        let words = [MAGIC, kind].into_iter();
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        [MAGIC, kind, Seed::new(0).hash_bytes(&bytes)]
    }

    /// Makes an empty trie the root of `pool`.
    ///
    /// A crash before the return leaves the trie or a pool without root, and then nothing is lost
    /// but time.
    ///
    /// # Errors
    /// The pool has a root already, or no space.
    pub fn create(pool: &Pool) -> Result<Self> {
        let _within = pool.write_guard();
        if !pool.root::<Header>().is_null() {
            return Err(Error::RootTaken);
        }
        let space = pool.alloc_aligned(EMPTY_BYTES, NODE_ALIGN, ROOT_HINT)?;
        let root = space.offset::<Header>();
        Self::place(pool, root.raw());
        // DURABLE: header and root node, before the root refers to them.
        pool.fence();
        pool.set_root(root);
        space.commit::<Header>();
        Ok(Self::with(pool, root.raw()))
    }

    /// Writes an empty trie to `root`, a multiple of [`NODE_ALIGN`], durable with the next fence.
    pub(crate) fn place(medium: &Medium, root: u64) {
        medium.zero(root, EMPTY_BYTES);
        let header: &Header = medium.at(POff::new(root));
        let words = [&header.magic, &header.kind, &header.check];
        for (word, value) in words.into_iter().zip(Self::constants()) {
            // ORDER: Relaxed: nobody else sees the header before the root refers to it.
            word.store(medium, value, Ordering::Relaxed);
        }
        medium.flush(&header.magic);
    }

    /// Finds the trie that is the root of `pool`. Reads the header and nothing else.
    ///
    /// # Errors
    /// No trie there, one of other kinds of keys, or a damaged header.
    pub fn open(pool: &Pool) -> Result<Self> {
        let root = pool.root::<Header>();
        if root.is_null() {
            return Err(Error::NoRoot);
        }
        Self::at(pool, root.raw())
    }

    /// Finds the trie whose header is at `root`.
    ///
    /// # Errors
    /// As [`Art::open`].
    pub(crate) fn at(pool: &Pool, root: u64) -> Result<Self> {
        let root = POff::<Header>::new(root);
        let damaged = || Error::damaged("the header of a trie", root.raw());
        let Some(header) = pool.try_at(root) else {
            return Err(damaged());
        };
        let words = [&header.magic, &header.kind, &header.check];
        // ORDER: Relaxed: these words do not change.
        let [magic, kind, check] = words.map(|word| word.load(pool, Ordering::Relaxed));
        let [_, our_kind, our_check] = Self::constants();
        match (magic == MAGIC, kind == our_kind, check == our_check) {
            (false, ..) => Err(Error::NoRoot),
            (true, true, true) => Ok(Self::with(pool, root.raw())),
            (true, false, false) if kind <= 1 => Err(Error::OtherKind),
            _ => Err(damaged()),
        }
    }

    /// Options of pools for tries: the layout id, and how recovery finds what is in use. Whoever
    /// makes or opens the pool sets the rest.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        PoolOptions {
            layout: MAGIC,
            reachable: Reachable::ask_fn(|medium, claim| {
                is_referenced::<K>(medium, root_of(medium), claim)
            }),
            ..PoolOptions::default()
        }
    }

    fn with(pool: &Pool, header: u64) -> Self {
        Art {
            medium: Medium::clone(pool),
            pool: pool.clone(),
            root: root_at(header),
            locks: NodeLocks::new(),
            keys: PhantomData,
        }
    }
}

/// Bytes of a trie without entries: its header and its root.
pub(crate) const EMPTY_BYTES: u64 = size_of::<Header>() as u64;

/// The root node of the trie whose header is at an offset.
pub(super) fn root_at(header: u64) -> Child {
    Child::new(Kind::Node256, header + offset_of!(Header, root) as u64)
}

/// What recovery of the pool asks: whether the trie whose header is at `root` durably refers to a
/// block, of the kind that is the hint. If it does, the way to a key below the block leads through
/// it. The pool itself answers for its root.
pub(crate) fn is_referenced<K: Item + ?Sized>(
    medium: &Medium,
    root: u64,
    claim: BlockClaim,
) -> bool {
    let wanted = Child(claim.block.raw() | claim.hint);
    if !claim.block.raw().is_multiple_of(16)
        || claim.hint > 15
        || claim.size < wanted.kind().bytes()
    {
        return false;
    }
    let key = some_key_below::<K>(medium, wanted);
    key.is_some_and(|key| is_on_way::<K>(medium, root, &key, wanted))
}

/// A key below a child.
pub(super) fn some_key_below<K: Item + ?Sized>(
    medium: &Medium,
    mut child: Child,
) -> Option<K::Owned> {
    for _ in 0..STEPS_MAX {
        if child.is_leaf() {
            return LeafRef::new(medium, child.at())?.key::<K>();
        }
        child = Node::new(medium, child)?.first()?;
    }
    None
}

fn is_on_way<K: Item + ?Sized>(medium: &Medium, root: u64, key: &K::Owned, wanted: Child) -> bool {
    use std::borrow::Borrow;
    let key: &K = key.borrow();
    let mut child = root_at(root);
    for _ in 0..STEPS_MAX {
        if child == wanted {
            return true;
        }
        let node = Node::new(medium, child);
        let next = node.and_then(|node| node.find(key::branch(key, node.level())));
        match next {
            Some((_, next)) => child = next,
            None => return false,
        }
    }
    false
}

/// The root lies where its pool's root says, behind the header.
const _: () = assert!((offset_of!(Header, root) as u64).is_multiple_of(NODE_ALIGN));
