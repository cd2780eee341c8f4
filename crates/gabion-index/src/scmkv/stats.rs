//! Statistics: what the store did, and what its pages hold.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{LINE_BYTES, PageState};
use super::{Scmkv, Volume};

/// What was done since the store was opened.
#[derive(Debug, Default)]
pub(super) struct Counts {
    deletes: AtomicU64,
    cleaned_pages: AtomicU64,
    moved_bytes: AtomicU64,
    longest_chain: AtomicU64,
    chain_bytes: AtomicU64,
    lost_records: AtomicU64,
}

// ORDER: Relaxed throughout: statistics.
impl Counts {
    pub(super) fn deleted(&self) {
        self.deletes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn cleaned(&self, moved: u64) {
        self.cleaned_pages.fetch_add(1, Ordering::Relaxed);
        self.moved_bytes.fetch_add(moved, Ordering::Relaxed);
    }

    pub(super) fn lost_records(&self, records: u64) {
        self.lost_records.fetch_add(records, Ordering::Relaxed);
    }

    /// Lines of the longest chain since the table was made.
    pub(super) fn longest_chain(&self) -> u64 {
        self.longest_chain.load(Ordering::Relaxed)
    }

    pub(super) fn chain_of(&self, lines: u64) {
        self.chain_bytes
            .fetch_add(lines * LINE_BYTES, Ordering::Relaxed);
        self.longest_chain.fetch_max(lines, Ordering::Relaxed);
    }

    /// The table was enlarged: chains are short again.
    pub(super) fn forget_chains(&self) {
        self.longest_chain.store(0, Ordering::Relaxed);
    }
}

/// What a page is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageUse {
    /// Records.
    Log,
    /// Chains of the hash table.
    Chains,
    /// Nothing: kept for the cleaner.
    Reserve,
}

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageStats {
    /// Its number.
    pub number: u32,
    /// What it is used for.
    pub usage: PageUse,
    /// Whether it takes no more.
    pub is_full: bool,
    /// Bytes of live records or chains. Of a page that was full before a crash and has not been
    /// counted since, 0.
    pub live_bytes: u64,
    /// Whether `live_bytes` is known.
    pub is_counted: bool,
    /// Pages that became full since it did.
    pub age: u64,
}

/// What a store did since it was opened, and what it holds. Bytes unless a name says else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScmkvStats {
    /// Buckets of the hash table.
    pub buckets: u64,
    /// Whether the table is moving to one of twice the size.
    pub is_growing: bool,
    /// Lines of the longest chain that was made since the table was. More than
    /// two say that the table is too small.
    pub longest_chain_lines: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Number of pages in use, the cleaner's included.
    pub pages: u64,
    /// Number of pages that there can be.
    pub pages_max: u64,
    /// Number of pages whose live bytes are not known since a crash.
    pub pages_uncounted: u64,
    /// In live records and chains.
    pub live_bytes: u64,
    /// In full pages, and not live.
    pub garbage_bytes: u64,
    /// Number of records that users put.
    pub records: u64,
    /// Their bytes in the logs.
    pub record_bytes: u64,
    /// In chains that were written, those that were moved included.
    pub chain_bytes: u64,
    /// Number of deletes that found their key.
    pub deletes: u64,
    /// Number of pages that were emptied.
    pub cleaned_pages: u64,
    /// Records and chains that were moved for that.
    pub moved_bytes: u64,
    /// Number of records that the last recovery found to be lost.
    pub lost_records: u64,
}

impl Volume {
    /// Finds out how many pages there can be: those in use and what the pool has space for.
    pub(super) fn count_pages(&self) {
        let pool = self.pool.stats();
        let used = self.pages.numbers().count() as u64;
        let free = (pool.free_bytes + pool.retired_bytes) / self.pages.bytes;
        let count = u64::from(self.pages.count()).min(used + free);
        // ORDER: Relaxed: a number that stands for itself.
        self.pages_max.store(count, Ordering::Relaxed);
    }

    /// Pages that there can be.
    pub(super) fn pages_max(&self) -> u64 {
        // ORDER: Relaxed: as above.
        self.pages_max.load(Ordering::Relaxed)
    }
}

impl Scmkv {
    /// What the store did and what it holds. Costs a look at each log, which may wait for a put
    /// that is under way, and at each page's numbers.
    pub fn stats(&self) -> ScmkvStats {
        let volume = &self.volume;
        // ORDER: Relaxed: statistics.
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut stats = ScmkvStats {
            buckets: volume.table().buckets(),
            is_growing: !volume.next_table().is_none(),
            longest_chain_lines: volume.counts.longest_chain(),
            page_bytes: volume.pages.bytes,
            pages_max: volume.pages_max(),
            chain_bytes: load(&volume.counts.chain_bytes),
            deletes: load(&volume.counts.deletes),
            cleaned_pages: load(&volume.counts.cleaned_pages),
            moved_bytes: load(&volume.counts.moved_bytes),
            lost_records: load(&volume.counts.lost_records),
            ..ScmkvStats::default()
        };
        for log in volume.logs.each() {
            stats.records += log.puts;
            stats.record_bytes += log.put_bytes;
        }
        for page in self.pages() {
            stats.pages += 1;
            stats.pages_uncounted += u64::from(!page.is_counted);
            stats.live_bytes += page.live_bytes;
            if page.is_full && page.is_counted {
                stats.garbage_bytes += volume.pages.bytes.saturating_sub(page.live_bytes);
            }
        }
        stats
    }

    /// What each page holds.
    pub fn pages(&self) -> Vec<PageStats> {
        let pages = &self.volume.pages;
        let stats = |number| {
            let page = pages.page(number);
            let state = page.state();
            PageStats {
                number,
                usage: match state {
                    PageState::LogOpen | PageState::LogFull => PageUse::Log,
                    PageState::ChainsOpen | PageState::ChainsFull => PageUse::Chains,
                    PageState::Reserve | PageState::Free => PageUse::Reserve,
                },
                is_full: state.is_full(),
                live_bytes: page.live(),
                is_counted: page.is_counted(),
                age: pages.now().saturating_sub(page.stamp()),
            }
        };
        pages.numbers().map(stats).collect()
    }
}
