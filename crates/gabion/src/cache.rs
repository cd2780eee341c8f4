//! The block cache: the blocks of all tables of a store that were read lately, within one budget.
//!
//! Blocks are immutable and are found by file and offset. File numbers are never used twice, so a
//! deleted file's blocks need no removal: nobody asks for them, and they age out. Which block goes
//! is decided by `quick_cache` (a CLOCK-like policy that resists scans); this module adds the
//! weights and the counts.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

/// What a cached block costs beyond its bytes: key, hash table slot, list links, reference counts.
const OVERHEAD_BYTES: u64 = 80;
/// The size from which the number of blocks is estimated.
const USUAL_BLOCK_BYTES: u64 = 4096;
/// Counters, so that threads that read at the same time rarely share one.
const STRIPES: usize = 16;

/// Place of a block: number of the file and offset in it.
pub(crate) type BlockId = (u64, u64);

/// What the cache did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheStats {
    /// Lookups that found the block.
    pub(crate) hits: u64,
    /// Lookups that did not.
    pub(crate) misses: u64,
    /// Bytes held now, overhead included.
    pub(crate) bytes: u64,
}

/// Blocks by place, bounded by bytes, shared by all threads.
#[derive(Debug)]
pub(crate) struct BlockCache {
    blocks: Cache<BlockId, Arc<[u8]>, ByBytes>,
    counters: [Counters; STRIPES],
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<BlockId, Arc<[u8]>> for ByBytes {
    fn weight(&self, _: &BlockId, block: &Arc<[u8]>) -> u64 {
        block.len() as u64 + OVERHEAD_BYTES
    }
}

/// The counters of some threads, on cache lines of their own (two, since lines are fetched in
/// pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl BlockCache {
    /// A cache of at most `capacity_bytes`.
    pub(crate) fn new(capacity_bytes: u64) -> BlockCache {
        let blocks = capacity_bytes / (USUAL_BLOCK_BYTES + OVERHEAD_BYTES);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(usize::try_from(blocks).unwrap_or(usize::MAX))
            .weight_capacity(capacity_bytes)
            .build()
            .expect("both required options are given");
        BlockCache {
            blocks: Cache::with_options(
                options,
                ByBytes,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            counters: Default::default(),
        }
    }

    /// The block at `id`, if it is here.
    #[inline]
    pub(crate) fn get(&self, id: BlockId) -> Option<Arc<[u8]>> {
        let found = self.blocks.get(&id);
        let counters = &self.counters[stripe()];
        let counter = if found.is_some() {
            &counters.hits
        } else {
            &counters.misses
        };
        // ORDER: Relaxed; a count that orders nothing, read by `stats` only.
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Adds the block at `id`. One that is larger than a shard of the cache is not kept.
    pub(crate) fn insert(&self, id: BlockId, block: Arc<[u8]>) {
        self.blocks.insert(id, block);
    }

    /// Counts so far.
    pub(crate) fn stats(&self) -> CacheStats {
        // ORDER: Relaxed; partner is `get`. Counts of the same moment are not promised.
        let sum = |counter: fn(&Counters) -> &AtomicU64| {
            self.counters
                .iter()
                .map(|counters| counter(counters).load(Ordering::Relaxed))
                .sum()
        };
        CacheStats {
            hits: sum(|counters| &counters.hits),
            misses: sum(|counters| &counters.misses),
            bytes: self.blocks.weight(),
        }
    }
}

/// The calling thread's counter.
#[inline]
fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            // ORDER: Relaxed; only the distinctness of the numbers matters.
            stripe.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        stripe.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(len: usize) -> Arc<[u8]> {
        Arc::from(vec![7; len])
    }

    #[test]
    fn counts_hits_and_misses() {
        let cache = BlockCache::new(1 << 20);
        assert!(cache.get((1, 0)).is_none());
        cache.insert((1, 0), block(4096));
        assert_eq!(cache.get((1, 0)).as_deref(), Some(&[7; 4096][..]));
        assert!(cache.get((1, 4096)).is_none());
        assert!(cache.get((2, 0)).is_none());
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses), (1, 3));
        assert_eq!(stats.bytes, 4096 + OVERHEAD_BYTES);
    }

    #[test]
    fn stays_within_its_capacity() {
        let capacity = 1 << 20;
        let cache = BlockCache::new(capacity);
        for number in 0..2000 {
            cache.insert((number, 0), block(4096));
            assert!(cache.stats().bytes <= capacity);
        }
        assert!(cache.stats().bytes > capacity / 2);
    }

    #[test]
    fn a_cache_of_nothing_keeps_nothing() {
        let cache = BlockCache::new(0);
        cache.insert((1, 0), block(10));
        assert!(cache.get((1, 0)).is_none());
        assert_eq!(cache.stats().bytes, 0);
    }
}
