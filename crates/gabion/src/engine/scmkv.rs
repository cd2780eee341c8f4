//! SCMKV: pairs in logs and a hash table, in a mapped file.
//!
//! [`gabion_index::Scmkv`] is a store of keys and values in a pool: logs of records, a table of
//! words that lead to them, a cleaner. Its essay says how it works and what it comes from;
//! [`engine/mapped`](super::mapped) makes an engine of it.
//!
//! Keys have no order, so there are no scans and no deletes of ranges, but walks.
//!
//! On persistent memory, a put takes effect and survives the end of the process at the store of a
//! word in the hash table. One that is not strict, since it was not written at `Sync`, survives the
//! loss of power as soon as its log is flushed: such a loss may take the newest writes of each log,
//! which threads have of their own, but never a part of a batch, and never a delete.

use std::sync::Arc;

pub(super) use gabion_index::Scmkv;
use gabion_index::index::CheckSummary;
use gabion_index::scmkv::{Entry, Options as StoreOptions, PageStats as PoolPage, PageUse};
use gabion_media::pmem::{Pool, PoolOptions};

use super::keyspaces::KeyspaceId;
use super::mapped::{
    self, Flushed, IndexResult, Mapped, MappedKeyspace, PoolStore, PoolStoreStats,
};
use super::open_store::OpenStore;
use super::root_file::RootFile;
use crate::options::Durability;
use crate::stats::{MappedStats, PageStats, WrittenBytes};
use crate::{Engine, Options, Result, Slice, names};

/// The unit of space of a pool: half a page.
const CHUNK_BYTES: u64 = 1 << 20;

/// Threads that may allocate without waiting for each other: few do, and for few pages.
const HEAPS: u32 = 8;

/// Records that a store is ready for, if nobody says how many there will be.
const RECORDS_PLANNED: u64 = 1 << 16;

/// Bytes of a word of the hash table, of which each record and each delete writes one.
const WORD_BYTES: u64 = 8;

/// The engine.
pub(crate) type ScmStore = Mapped<Scmkv>;

/// Options of the store in the pool.
fn store_options(options: &Options) -> StoreOptions {
    let durability = match options.durability {
        Durability::Sync => Flushed::Strict,
        Durability::Interval(_) | Durability::Buffered => Flushed::Relaxed,
    };
    let capacity = match options.mapped.expected_records {
        0 => RECORDS_PLANNED,
        planned => planned,
    };
    StoreOptions {
        capacity: Some(capacity),
        durability,
        cleans: options.background_threads > 0,
        keeps_for_copies: true,
        space_amplification_max: options.space_amplification_max,
        ..StoreOptions::default()
    }
}

impl PoolStore for Scmkv {
    const ENGINE: Engine = Engine::Scmkv;

    const ROOT: RootFile = RootFile {
        name: names::SCMKV_ROOT,
        magic: *b"GABSCMKV",
        format: 1,
    };

    fn pool_options() -> PoolOptions {
        PoolOptions {
            chunk_bytes: CHUNK_BYTES,
            heaps: HEAPS,
            ..Scmkv::pool_options()
        }
    }

    fn create(pool: &Pool, options: &Options) -> IndexResult<Scmkv> {
        Scmkv::create(pool, &store_options(options))
    }

    fn open(pool: &Pool, options: &Options) -> IndexResult<Scmkv> {
        Scmkv::open(pool, &store_options(options))
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8], flushed: Flushed) -> IndexResult<()> {
        self.put_with(key, value, flushed)?;
        Ok(())
    }

    fn put_copy(&self, key: &[u8], value: &[u8]) -> IndexResult<()> {
        Scmkv::put_copy(self, key, value)
    }

    fn delete(&self, key: &[u8]) -> IndexResult<()> {
        Scmkv::delete(self, key)?;
        Ok(())
    }

    #[inline]
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> IndexResult<bool> {
        Scmkv::get_into(self, key, value)
    }

    fn reserve(&self, pairs: &[u64]) -> IndexResult<()> {
        Scmkv::reserve(self, pairs.len() as u64, pairs.iter().sum())
    }

    fn persist(&self) -> IndexResult<()> {
        Scmkv::persist(self)
    }

    fn finish(&self) -> IndexResult<()> {
        Scmkv::finish(self)
    }

    fn work(&self) -> IndexResult<bool> {
        Scmkv::work(self)
    }

    /// Empties all pages that hold garbage now.
    fn compact(&self, stops: &dyn Fn() -> bool) -> IndexResult<()> {
        // Writers make garbage meanwhile, without end.
        for _ in 0..2 * self.stats().pages {
            if stops() || self.collect_garbage()?.pages == 0 {
                break;
            }
        }
        Ok(())
    }

    fn check(&self) -> IndexResult<CheckSummary> {
        Scmkv::check(self)
    }

    /// There is no log in front of the pool: its logs are what holds the data.
    fn measure(&self) -> PoolStoreStats {
        let store = self.stats();
        PoolStoreStats {
            written: WrittenBytes {
                flush: store.record_bytes,
                gc: store.moved_bytes,
                metadata: WORD_BYTES * (store.records + store.deletes) + store.chain_bytes,
                ..WrittenBytes::default()
            },
            tables: store.pages,
            table_bytes: store.pages * store.page_bytes,
            live_bytes: store.live_bytes,
            garbage_bytes: store.garbage_bytes,
            compactions: store.cleaned_pages,
            mapped: MappedStats {
                hash_buckets: store.buckets,
                is_growing: store.is_growing,
                longest_chain_lines: store.longest_chain_lines,
                page_bytes: store.page_bytes,
                pages_max: store.pages_max,
                cleaned_pages: store.cleaned_pages,
                moved_bytes: store.moved_bytes,
                lost_records: store.lost_records,
                pages: self.pages().iter().map(page).collect(),
                ..MappedStats::default()
            },
            ..PoolStoreStats::default()
        }
    }
}

fn page(page: &PoolPage) -> PageStats {
    PageStats {
        number: page.number,
        usage: match page.usage {
            PageUse::Log => "log",
            PageUse::Chains => "chains",
            PageUse::Reserve => "reserve",
        },
        is_full: page.is_full,
        live_bytes: page.is_counted.then_some(page.live_bytes),
        age: page.age,
    }
}

/// A walk through all pairs of a keyspace, bucket by bucket of the hash table. Costs a look at all
/// pairs of the store. It takes the pool for each bucket anew, so that it does not keep it from
/// being closed.
pub(crate) struct Walk {
    keyspace: u32,
    /// Where the next entries begin.
    from: Option<u64>,
    entries: Vec<Entry>,
    store: Arc<dyn OpenStore<ScmStore>>,
}

impl Walk {
    pub(crate) fn new(store: Arc<dyn OpenStore<ScmStore>>, keyspace: &MappedKeyspace) -> Walk {
        Walk {
            keyspace: keyspace.id(),
            from: Some(0),
            entries: Vec::new(),
            store,
        }
    }

    /// The next pair. A forked child gets an error, though the walk may have pairs in hand.
    pub(crate) fn next(&mut self) -> Result<Option<(Slice, Slice)>> {
        let is_over = self.entries.is_empty() && self.from.is_none();
        if !is_over && let Err(forked) = self.store.engine().health.check_here() {
            (self.entries, self.from) = (Vec::new(), None);
            return Err(forked);
        }
        loop {
            while let Some((key, value)) = self.entries.pop() {
                if let Some(key) = mapped::key_of(self.keyspace, &key) {
                    return Ok(Some((Slice::new(key), Slice::new(&value))));
                }
            }
            let Some(from) = self.from.take() else {
                return Ok(None);
            };
            (self.entries, self.from) = self
                .store
                .engine()
                .read(|opened| opened.told(opened.store.entries_from(from)))?;
        }
    }
}
