//! Creation and recovery of a tree.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{BlockClaim, Medium, PAtomicU64, POff, Pool, PoolOptions, Reachable};

use super::BwTree;
use super::layout::{CELL_BYTES, HINT_CELL, HINT_PAGE, LINE_BYTES, PageWord};
use super::page::Page;
use crate::index::root_of;
use crate::node_lock::NodeLocks;
use crate::pending::PendingCells;
use crate::root::{self, ROOT_BYTES};
use crate::stored_key::{KeyParts, StoredKey};
use crate::{Item, Result};

/// Pages that recovery looks at for one block: more than any sound tree needs.
const STEPS_MAX: u32 = 10_000;

impl<K: Item + ?Sized, const ENTRIES: usize, const DELTAS: u64> BwTree<K, ENTRIES, DELTAS> {
    const MAGIC: u64 = u64::from_le_bytes(if K::IS_WORD {
        *b"GbBwtrW1"
    } else {
        *b"GbBwtrS1"
    });

    /// Makes an empty tree the root of `pool`.
    ///
    /// A crash before the return leaves the tree or a pool without root, and then nothing is lost
    /// but time.
    ///
    /// # Errors
    /// The pool has a root already, or no space.
    pub fn create(pool: &Pool) -> Result<Self> {
        let root = root::create(pool, CELL_BYTES, |_| vec![Self::MAGIC])?;
        Ok(Self::with(pool, root))
    }

    /// Finds the tree that is the root of `pool`. Reads the root and the topmost page.
    ///
    /// # Errors
    /// No such tree there, or a damaged root.
    pub fn open(pool: &Pool) -> Result<Self> {
        let (root, _) = root::find(pool, Self::MAGIC)?;
        let tree = Self::with(pool, root);
        tree.load(tree.root)?;
        Ok(tree)
    }

    /// Options of pools for trees: the layout id, and how recovery finds what is in use. Whoever
    /// makes or opens the pool sets the rest.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        PoolOptions {
            layout: Self::MAGIC,
            reachable: Reachable::ask_fn(is_referenced),
            keeps_back: true,
            ..PoolOptions::default()
        }
    }

    fn with(pool: &Pool, root: u64) -> Self {
        BwTree {
            medium: Medium::clone(pool),
            pool: pool.clone(),
            root: root + ROOT_BYTES,
            locks: NodeLocks::new(),
            pending: PendingCells::new(),
            keys: PhantomData,
        }
    }
}

/// What recovery of the pool asks: whether a tree durably refers to a block, of the kind that is
/// the hint. A page tells its level and its low, and a cell leads to a page; if either is in use,
/// the search for that low on that level ends there. The pool itself answers for its root.
fn is_referenced(medium: &Medium, claim: BlockClaim) -> bool {
    let at = claim.block.raw();
    match claim.hint {
        HINT_PAGE if at.is_multiple_of(LINE_BYTES) => {
            let page = Page::new(medium, 0, PageWord::of_page(at), 0);
            let page = page.filter(|page| page.bytes() <= claim.size);
            let found = page.and_then(|page| find(medium, page.level, page.low()));
            found.is_some_and(|found| found.word.base() == at)
        }
        HINT_CELL if claim.size >= CELL_BYTES => {
            let page = read(medium, at);
            let found = page.and_then(|page| find(medium, page.level, page.low()));
            found.is_some_and(|found| found.cell == at)
        }
        _ => false,
    }
}

/// The page of a cell, while nobody writes.
fn read(medium: &Medium, at: u64) -> Option<Page<'_>> {
    let cell: &PAtomicU64 = medium.try_at(POff::new(at))?;
    // ORDER: Relaxed: for recovery, when nobody writes.
    let word = PageWord(cell.load(medium, Ordering::Relaxed));
    Page::new(medium, at, word, 0)
}

/// The page of a level that a low belongs to, while nobody writes.
fn find(medium: &Medium, level: u64, low: StoredKey) -> Option<Page<'_>> {
    let rest = low.rest_bytes(medium);
    let key = KeyParts {
        word: low.word,
        len: low.len,
        rest: &rest,
    };
    let mut page = read(medium, root_of(medium).checked_add(ROOT_BYTES)?)?;
    for _ in 0..STEPS_MAX {
        let next = if !page.has(&key) {
            page.right
        } else if page.level == level {
            return Some(page);
        } else {
            page.floor(&key).filter(|_| page.level > level)?
        };
        page = read(medium, next)?;
    }
    None
}
