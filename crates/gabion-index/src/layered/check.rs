//! The check of the invariants, and the entries of layered indexes in the registry.

use gabion_media::pmem::Pool;

use super::layout::{block_bytes, first_page_at};
use super::{Base, Layered, Options};
use crate::cceh::Cceh;
use crate::fastfair::FastFair;
use crate::index::{
    CheckSummary, IndexPlan, Makers, OrderedMaker, index_by_methods, visit_by_hash,
};
use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};
use crate::skiplist::SkipList;
use crate::{Error, OrderedIndex, Result};

impl<B: Base, const PAGE: usize> Layered<B, PAGE> {
    /// Number of entries; exact if nobody writes. Reads the whole base.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn len(&self) -> Result<u64> {
        let mut count = 0;
        self.visit_all(&mut |_, _| count += 1)?;
        Ok(count)
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Visits all entries, node by node.
    fn visit_all(&self, visit: &mut dyn FnMut(&u64, u64)) -> Result<()> {
        let collect =
            |from, entries: &mut Vec<(u64, u64)>| self.scan_node(from, usize::MAX, entries);
        visit_by_hash(collect, visit)
    }

    /// Checks all invariants, while nobody writes.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<CheckSummary> {
        let CheckSummary {
            mut entries,
            mut blocks,
        } = self.base.check()?;
        let chain = self.logs.chain()?;
        let first = first_page_at(self.root, B::EMPTY_BYTES);
        let block = first..self.root + block_bytes::<PAGE>(B::EMPTY_BYTES, self.pages);
        // The base counts the root block in the place of its own.
        blocks += chain.iter().filter(|page| !block.contains(page)).count() as u64;
        let (last, _) = self.last_changes(&chain);
        for (key, (logged, page)) in &last {
            if self.get(*key)? != logged.value {
                return Err(Error::damaged("the last log entry of a key", *page));
            }
        }
        let mut lkey = Some(0);
        while let Some(key) = lkey {
            let seen = self.see(key);
            if seen.node.lkey() != key || seen.bound.is_some_and(|bound| bound <= key) {
                return Err(Error::damaged("the range of a node in DRAM", key));
            }
            for (way, buffer) in self.buffers_of(seen.node).enumerate() {
                for entry in buffer.entries() {
                    let position = self.base.position(entry.key);
                    let is_here = position >= key
                        && seen.bound.is_none_or(|bound| position < bound)
                        && self.base.way(position) == way;
                    let is_last = last.get(&entry.key).and_then(|(logged, _)| logged.value);
                    if !is_here || is_last != Some(entry.value) {
                        return Err(Error::damaged("a pair in a write buffer", entry.key));
                    }
                    entries += u64::from(self.base.get(&entry.key)?.is_none());
                }
                if buffer.count() > self.shape.pairs {
                    return Err(Error::damaged("the number of pairs in a write buffer", key));
                }
            }
            lkey = seen.bound;
        }
        Ok(CheckSummary { entries, blocks })
    }
}

index_by_methods!(
    [B: Base, const PAGE: usize],
    Layered<B, PAGE>,
    u64,
    |key| *key,
    [compact],
    [
        fn for_each(&self, visit: &mut dyn FnMut(&u64, u64)) -> Result<()> {
            self.visit_all(visit)
        }

        fn ordered(&self) -> Option<&dyn OrderedIndex<u64>> {
            B::order_of(self)
        }
    ]
);

const fn options(merges_out_of_place: bool, caches_paths: bool) -> Options {
    Options {
        buffers: None,
        merges_out_of_place,
        caches_paths,
    }
}

fn create<B: Base, const PAGE: usize, const O: bool, const C: bool>(
    pool: &Pool,
    plan: IndexPlan,
) -> Result<Box<Layered<B, PAGE>>> {
    let index = Layered::create_with(pool, plan, options(O, C))?;
    Ok(Box::new(index))
}

fn open<B: Base, const PAGE: usize, const O: bool, const C: bool>(
    pool: &Pool,
) -> Result<Box<Layered<B, PAGE>>> {
    let index = Layered::open_with(pool, options(O, C))?;
    Ok(Box::new(index))
}

/// How an index above an ordered base is made as one that is ordered.
const fn in_order<B: Base + OrderedIndex<u64>, const PAGE: usize, const O: bool, const C: bool>()
-> Option<OrderedMaker<u64>> {
    Some(|pool, plan| Ok(create::<B, PAGE, O, C>(pool, plan)?))
}

/// With the layers O, merging out of place, and C, the ways in DRAM, as it is said.
const fn makers<B: Base, const PAGE: usize, const O: bool, const C: bool>(
    create_ordered: Option<OrderedMaker<u64>>,
) -> Makers<u64> {
    Makers {
        pool_options: Layered::<B, PAGE>::pool_options,
        create: |pool, plan| Ok(create::<B, PAGE, O, C>(pool, plan)?),
        open: |pool| Ok(open::<B, PAGE, O, C>(pool)?),
        create_ordered,
    }
}

/// Layers above an ordered base.
const fn registered<
    B: Base + OrderedIndex<u64>,
    const PAGE: usize,
    const O: bool,
    const C: bool,
>(
    name: &'static str,
    title: &'static str,
    kind: IndexKind,
    remove: u64,
) -> Registered {
    let words = makers::<B, PAGE, O, C>(in_order::<B, PAGE, O, C>());
    registered_as(name, title, kind, remove, words)
}

/// Layers above a hash table.
const fn registered_hash<B: Base, const PAGE: usize, const O: bool, const C: bool>(
    name: &'static str,
    title: &'static str,
    remove: u64,
) -> Registered {
    let words = makers::<B, PAGE, O, C>(None);
    registered_as(name, title, IndexKind::Hash, remove, words)
}

const fn registered_as(
    name: &'static str,
    title: &'static str,
    kind: IndexKind,
    remove: u64,
    words: Makers<u64>,
) -> Registered {
    Registered {
        name,
        title,
        kind,
        reads: ReadProtocol::Optimistic,
        persists: PersistCounts {
            insert: 1,
            update: 1,
            remove,
        },
        source: "X. Zhao, dissertation, UT Arlington 2022, section 4.3",
        words,
        strings: None,
    }
}

/// FAST&FAIR with a write buffer for each leaf.
pub(crate) static BUFFERED_FASTFAIR: Registered = registered::<FastFair<29>, 64, false, false>(
    "fastfair-b",
    "FAST&FAIR with write buffers",
    IndexKind::Tree,
    4,
);

/// P-Skiplist with a write buffer for each tall node.
pub(crate) static BUFFERED_SKIPLIST: Registered = registered::<SkipList<u64>, 64, false, false>(
    "p-skiplist-b",
    "P-Skiplist with write buffers",
    IndexKind::List,
    3,
);

/// FAST&FAIR with write buffers that are merged out of place.
pub(crate) static RENEWED_FASTFAIR: Registered = registered::<FastFair<29>, 64, true, false>(
    "fastfair-bo",
    "FAST&FAIR with write buffers, merged out of place",
    IndexKind::Tree,
    4,
);

/// FAST&FAIR with write buffers, and with the ways to its leaves in DRAM.
pub(crate) static CACHED_FASTFAIR: Registered = registered::<FastFair<29>, 64, false, true>(
    "fastfair-bc",
    "FAST&FAIR with write buffers, ways in DRAM",
    IndexKind::Tree,
    4,
);

/// FAST&FAIR with write buffers that are merged out of place, and with the ways to its leaves in
/// DRAM.
pub(crate) static RENEWED_CACHED_FASTFAIR: Registered = registered::<FastFair<29>, 64, true, true>(
    "fastfair-boc",
    "FAST&FAIR with write buffers, merged out of place, ways in DRAM",
    IndexKind::Tree,
    4,
);

/// P-Skiplist with write buffers, and with the ways to its tall nodes in DRAM.
pub(crate) static CACHED_SKIPLIST: Registered = registered::<SkipList<u64>, 64, false, true>(
    "p-skiplist-bc",
    "P-Skiplist with write buffers, ways in DRAM",
    IndexKind::List,
    3,
);

/// CCEH with a write buffer for each segment.
pub(crate) static BUFFERED_CCEH: Registered =
    registered_hash::<Cceh<false>, 64, false, false>("cceh-b", "CCEH with write buffers", 1);

/// CCEH with write buffers that are merged out of place.
pub(crate) static RENEWED_CCEH: Registered = registered_hash::<Cceh<false>, 64, true, false>(
    "cceh-bo",
    "CCEH with write buffers, merged out of place",
    2,
);

/// CCEH with write buffers that are merged out of place, and with its directory in DRAM.
pub(crate) static RENEWED_CACHED_CCEH: Registered = registered_hash::<Cceh<false>, 64, true, true>(
    "cceh-boc",
    "CCEH with write buffers, merged out of place, directory in DRAM",
    2,
);

/// Small nodes, buffers of two pairs and pages of seven records, for tests of few entries.
#[cfg(test)]
pub(crate) static TINY_FASTFAIR: Registered =
    registered::<FastFair<5>, 8, false, false>("fastfair-b-tiny", "", IndexKind::Tree, 2);

/// As a list in which every fourth node has a buffer.
#[cfg(test)]
pub(crate) static TINY_SKIPLIST: Registered =
    registered::<SkipList<u64, 1>, 8, false, false>("p-skiplist-b-tiny", "", IndexKind::List, 3);

/// The small tree, merged out of place.
#[cfg(test)]
pub(crate) static TINY_RENEWED_FASTFAIR: Registered =
    registered::<FastFair<5>, 8, true, false>("fastfair-bo-tiny", "", IndexKind::Tree, 2);

/// The small tree with the ways to its leaves in DRAM.
#[cfg(test)]
pub(crate) static TINY_CACHED_FASTFAIR: Registered =
    registered::<FastFair<5>, 8, false, true>("fastfair-bc-tiny", "", IndexKind::Tree, 2);

/// The small tree, merged out of place, with the ways to its leaves in DRAM.
#[cfg(test)]
pub(crate) static TINY_RENEWED_CACHED_FASTFAIR: Registered =
    registered::<FastFair<5>, 8, true, true>("fastfair-boc-tiny", "", IndexKind::Tree, 2);

/// The list with the ways to its tall nodes in DRAM.
#[cfg(test)]
pub(crate) static TINY_CACHED_SKIPLIST: Registered =
    registered::<SkipList<u64, 1>, 8, false, true>("p-skiplist-bc-tiny", "", IndexKind::List, 3);

/// CCEH with small pages: its segments and buffers are small where few entries are planned.
#[cfg(test)]
pub(crate) static TINY_CCEH: Registered =
    registered_hash::<Cceh<false>, 8, false, false>("cceh-b-tiny", "", 1);

/// The small table, merged out of place.
#[cfg(test)]
pub(crate) static TINY_RENEWED_CCEH: Registered =
    registered_hash::<Cceh<false>, 8, true, false>("cceh-bo-tiny", "", 2);

/// The small table, merged out of place, with its directory in DRAM.
#[cfg(test)]
pub(crate) static TINY_RENEWED_CACHED_CCEH: Registered =
    registered_hash::<Cceh<false>, 8, true, true>("cceh-boc-tiny", "", 2);
