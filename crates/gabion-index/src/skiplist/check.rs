//! The invariants, checked; and what the registry knows of the list.

use std::borrow::Borrow;
use std::collections::HashSet;

use gabion_media::pmem::Pool;

use super::layout::LEVELS;
use super::node::Node;
use super::search::TALL_LEVEL;
use super::{SkipList, damaged};
use crate::index::{CheckSummary, Makers, index_by_methods};
use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};
use crate::spoton::search_starts::told;
use crate::{Error, IndexPlan, Item, Result};

impl<K: Item + ?Sized, const BITS: u32> SkipList<K, BITS> {
    /// Number of entries; exact if nobody writes. Reads all nodes.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn len(&self) -> Result<u64> {
        let _guard = self.pool.enter();
        let (mut at, mut last, mut count) = (self.head().next(0), None, 0);
        while at != 0 {
            let node = self.node_behind(last, at)?;
            (at, last) = (node.next(0), Some(node.stored()));
            count += 1;
        }
        Ok(count)
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.head().next(0) == 0)
    }

    fn next_of(&self, node: &Node<'_>, level: usize) -> Result<Option<Node<'_>>> {
        let at = node.next(level);
        (at != 0).then(|| self.node(at)).transpose()
    }

    /// Checks all invariants, while nobody writes.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<CheckSummary> {
        let (mut entries, mut below) = (0, HashSet::new());
        for level in 0..LEVELS {
            let mut on_level = HashSet::new();
            let mut node = self.head();
            let mut last: Option<K::Owned> = None;
            while let Some(next) = self.next_of(&node, level)? {
                let key = next.key::<K>(&self.medium);
                let key = key.ok_or_else(|| damaged(next.at))?;
                let is_behind = last.is_none_or(|last| last.borrow() < key.borrow());
                if !is_behind || next.is_dead() || next.height() <= level {
                    return Err(Error::damaged("the order or the state of a node", next.at));
                }
                if level > 0 && !below.contains(&next.at) {
                    return Err(Error::damaged("a shortcut", node.at));
                }
                on_level.insert(next.at);
                last = Some(key);
                node = next;
            }
            if level == 0 {
                entries = on_level.len() as u64;
            }
            below = on_level;
        }
        if let Some(paths) = &self.paths {
            paths.check(|key, at| {
                let node = self.node(at).ok().filter(|node| !node.is_dead());
                let tall = node.filter(|node| node.height() > TALL_LEVEL);
                let of_node = tall.and_then(|node| node.key::<K>(&self.medium));
                of_node.is_some_and(|of_node| of_node.borrow() == key)
            })?;
        }
        // The root and the nodes.
        let blocks = entries + 1;
        Ok(CheckSummary { entries, blocks })
    }
}

index_by_methods!([K: Item + ?Sized, const BITS: u32], SkipList<K, BITS>, K, |key| key);

fn create<K: Item + ?Sized, const BITS: u32, const IS_CACHED: bool>(
    pool: &Pool,
    plan: IndexPlan,
) -> Result<Box<SkipList<K, BITS>>> {
    told::<IS_CACHED, _>(SkipList::create(pool, plan), SkipList::cached)
}

fn open<K: Item + ?Sized, const BITS: u32, const IS_CACHED: bool>(
    pool: &Pool,
) -> Result<Box<SkipList<K, BITS>>> {
    told::<IS_CACHED, _>(SkipList::open(pool), SkipList::cached)
}

const fn makers<K: Item + ?Sized, const BITS: u32, const IS_CACHED: bool>() -> Makers<K> {
    Makers {
        pool_options: SkipList::<K, BITS>::pool_options,
        create: |pool, plan| Ok(create::<K, BITS, IS_CACHED>(pool, plan)?),
        open: |pool| Ok(open::<K, BITS, IS_CACHED>(pool)?),
        create_ordered: Some(|pool, plan| Ok(create::<K, BITS, IS_CACHED>(pool, plan)?)),
    }
}

const fn registered<const BITS: u32, const IS_CACHED: bool>(
    name: &'static str,
    title: &'static str,
) -> Registered {
    Registered {
        name,
        title,
        kind: IndexKind::List,
        reads: ReadProtocol::LockFree,
        persists: PersistCounts {
            insert: 2,
            update: 1,
            remove: 2,
        },
        source: "W. Pugh, CACM 1990; X. Zhao, dissertation, section 4.2",
        words: makers::<u64, BITS, IS_CACHED>(),
        strings: Some(makers::<[u8], BITS, IS_CACHED>()),
    }
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = registered::<2, false>("p-skiplist", "P-Skiplist");

/// What the registry knows of a list with the ways to its tall nodes in DRAM.
pub(crate) static CACHED: Registered =
    registered::<2, true>("p-skiplist-c", "P-Skiplist, ways in DRAM");

/// A list in which every second node is on the next level, for tests of few entries.
#[cfg(test)]
pub(crate) static TALL: Registered = registered::<1, false>("p-skiplist-tall", "P-Skiplist (tall)");

/// The same with the ways to its tall nodes in DRAM.
#[cfg(test)]
pub(crate) static TALL_CACHED: Registered = registered::<1, true>("p-skiplist-c-tall", "");
