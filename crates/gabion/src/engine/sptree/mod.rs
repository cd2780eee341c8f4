//! SPTree: an ordered tree whose leaves lie in a mapped file, and all else in memory.
//!
//! # Idea
//! [`SpTree`] keeps pairs of strings in a pool: leaves of 64 pairs, each of which is an item of its
//! own. What leads to the leaves is in memory. Its essay says how it works and what it comes from;
//! [`engine/mapped`](super::mapped) makes an engine of it. So this is the ordered engine for
//! persistent memory, and for data that fit into memory.
//!
//! # Layout
//! All keyspaces are in one tree, a number in front of their keys, so that a keyspace is a range
//! of keys of the pool. The tree has no checksums. Therefore the value of the pool's pair is:
//!
//! | bytes | meaning |
//! |---|---|
//! | .. | the value |
//! | 4 | CRC-32C of the pool's key and the value, little-endian |
//!
//! # Invariants
//! - P1. The checksum of a pair is looked at before anybody is given it or told that a key beside
//!   it is not there, and whenever it is read.
//! - P2. A scan has read what is below `lower` and what is from `upper` on (`scan`), each page of
//!   it before each batch or after it.
//!
//! # Durability
//! A put takes effect, and on persistent memory survives the loss of power, when its bit is set in
//! the leaf or the place of its item changes there: before it returns, whatever the level.
//!
//! # Recovery
//! An opening looks at the heads of all leaves, and tells if a pair is missing. Then the store is
//! there. All pairs are looked at by all processors meanwhile, and those that somebody needs before
//! that: nodes and filters in memory are made of them. Who comes to something damaged is told, and
//! so is a check. A close does not wait for what nobody has needed.

mod scan;

use std::cell::RefCell;
use std::collections::BTreeMap;

use gabion_index::index::CheckSummary;
use gabion_index::sptree::{Maintenance, ScanLimit};
use gabion_index::{Error as IndexError, IndexPlan, SpTree};
use gabion_media::crc32c;
use gabion_media::pmem::{Pool, PoolClass, PoolOptions};

use super::counters::Tally;
use super::mapped::{COPY_BYTES_MAX, Flushed, IndexResult, Mapped, PoolStore, PoolStoreStats};
use super::root_file::RootFile;
use crate::stats::{MappedStats, WrittenBytes};
use crate::{Engine, Options, names};

pub(crate) use scan::TreeScan;

/// Bytes of the checksum behind a value.
const CHECKSUM_BYTES: usize = 4;

/// What is stored beside the item of a put: two words of the pair, its tag, the bitmap.
const PUT_BYTES: u64 = 16 + 1 + 8;
/// What is stored for a delete: the bitmap.
const DELETE_BYTES: u64 = 8;

/// Keys that a delete of a range looks for at a time.
const KEYS_PER_PAGE: usize = 256;

/// Memory that a thread keeps for the values that it writes, in bytes.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The engine.
pub(crate) type SpStore = Mapped<TreeStore>;

/// The tree in the pool, and what was written to it since it was opened.
pub(crate) struct TreeStore {
    tree: SpTree<[u8]>,
    /// Leaves at the opening.
    leaves: u64,
    item_bytes: Tally,
    metadata_bytes: Tally,
}

fn tending(options: &Options) -> Maintenance {
    match options.background_threads {
        0 => Maintenance::Writers,
        _ => Maintenance::Thread,
    }
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), value)
}

/// The value in what the pool has for a key, if its checksum is right.
fn unsealed<'v>(key: &[u8], sealed: &'v [u8]) -> Option<&'v [u8]> {
    let (value, sum) = sealed.split_last_chunk::<CHECKSUM_BYTES>()?;
    (u32::from_le_bytes(*sum) == checksum(key, value)).then_some(value)
}

#[cold]
fn damaged() -> IndexError {
    IndexError::Damaged {
        what: "the checksum of a pair",
        offset: 0,
    }
}

impl TreeStore {
    fn new(tree: SpTree<[u8]>) -> TreeStore {
        TreeStore {
            leaves: tree.leaves(),
            tree,
            item_bytes: Tally::default(),
            metadata_bytes: Tally::default(),
        }
    }

    /// Does what needs space; once more, if there is none, when what only waits for readers that
    /// have gone is free.
    fn with_space<R>(&self, act: impl Fn() -> IndexResult<R>) -> IndexResult<R> {
        match act() {
            Err(error) if error.is_no_space() => {
                self.tree.collect();
                act()
            }
            done => done,
        }
    }

    /// Stores a value with its checksum by `put`, and counts what is written.
    fn put_sealed(
        &self,
        key: &[u8],
        value: &[u8],
        put: impl FnOnce(&[u8]) -> IndexResult<()>,
    ) -> IndexResult<()> {
        SCRATCH.with_borrow_mut(|sealed| {
            sealed.clear();
            sealed.extend(value);
            sealed.extend(checksum(key, value).to_le_bytes());
            put(sealed)?;
            let pool = self.tree.pool();
            let item_bytes = SpTree::<[u8]>::item_bytes(key.len(), sealed.len());
            self.item_bytes.add(pool.rounded_size(item_bytes));
            self.metadata_bytes.add(PUT_BYTES);
            if sealed.capacity() > SCRATCH_BYTES_MAX {
                *sealed = Vec::new();
            }
            Ok(())
        })
    }

    /// Appends pairs of the pool from a key on, or before it, to `found`, up to a limit, without
    /// their checksums. Tells whether there may be more.
    fn read_pairs(
        &self,
        way: scan::ScanDirection,
        key: &[u8],
        limit: ScanLimit,
        found: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> IndexResult<bool> {
        let begin = found.len();
        let may_be_more = match way {
            scan::ScanDirection::Up => self.tree.pairs_from(key, limit, found)?,
            scan::ScanDirection::Down => self.tree.pairs_before(key, limit, found)?,
        };
        for (key, value) in found.iter_mut().skip(begin) {
            let len = unsealed(key, value).ok_or_else(damaged)?.len();
            value.truncate(len);
        }
        Ok(may_be_more)
    }
}

impl PoolStore for TreeStore {
    const ENGINE: Engine = Engine::Sptree;

    const ROOT: RootFile = RootFile {
        name: names::SPTREE_ROOT,
        magic: *b"GABSPTRE",
        format: 1,
    };

    fn pool_options() -> PoolOptions {
        PoolOptions {
            keeps_run: SpTree::<[u8]>::item_bytes(COPY_BYTES_MAX, CHECKSUM_BYTES),
            ..SpTree::<[u8]>::pool_options()
        }
    }

    fn create(pool: &Pool, options: &Options) -> IndexResult<TreeStore> {
        let plan = IndexPlan {
            capacity: options.mapped.expected_records,
            seed: None,
        };
        SpTree::create_tended(pool, plan, tending(options)).map(TreeStore::new)
    }

    fn open(pool: &Pool, options: &Options) -> IndexResult<TreeStore> {
        let holds = |key: &[u8], sealed: &[u8]| unsealed(key, sealed).is_some();
        SpTree::open_checked(pool, tending(options), holds).map(TreeStore::new)
    }

    fn put(&self, key: &[u8], value: &[u8], _flushed: Flushed) -> IndexResult<()> {
        self.put_sealed(key, value, |sealed| {
            self.with_space(|| self.tree.put(key, sealed)).map(drop)
        })
    }

    fn put_copy(&self, key: &[u8], value: &[u8]) -> IndexResult<()> {
        self.put_sealed(key, value, |sealed| self.tree.put_copy(key, sealed))
    }

    fn delete(&self, key: &[u8]) -> IndexResult<()> {
        if self.tree.remove(key)? {
            self.metadata_bytes.add(DELETE_BYTES);
        }
        Ok(())
    }

    fn delete_range(&self, lower: &[u8], upper: &[u8]) -> IndexResult<()> {
        let mut keys = Vec::new();
        loop {
            keys.clear();
            // What was there before is gone.
            self.tree.keys_from(lower, KEYS_PER_PAGE, &mut keys)?;
            let count = keys.iter().take_while(|key| key[..] < *upper).count();
            keys.iter()
                .take(count)
                .try_for_each(|key| self.delete(key))?;
            if count < KEYS_PER_PAGE {
                return Ok(());
            }
        }
    }

    #[inline]
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> IndexResult<bool> {
        let begin = value.len();
        if !self.tree.get_into(key, value)? {
            return Ok(false);
        }
        let sealed = value.get(begin..).unwrap_or_default();
        let len = unsealed(key, sealed).ok_or_else(damaged)?.len();
        value.truncate(begin + len);
        Ok(true)
    }

    fn reserve(&self, pairs: &[u64]) -> IndexResult<()> {
        let mut blocks = BTreeMap::new();
        for bytes in pairs {
            *blocks.entry(bytes + CHECKSUM_BYTES as u64).or_default() += 1;
        }
        self.with_space(|| self.tree.reserve(&blocks))
    }

    fn persist(&self) -> IndexResult<()> {
        // DURABLE: on persistent memory each write was when it returned.
        if self.tree.pool().class() == PoolClass::PowerBySync {
            self.tree.pool().sync()?;
        }
        Ok(())
    }

    fn finish(&self) -> IndexResult<()> {
        self.tree.finish();
        Ok(())
    }

    /// Nothing waits for the background but what the tree's own thread does.
    fn work(&self) -> IndexResult<bool> {
        Ok(false)
    }

    /// Merges small leaves with their neighbours, all of them: it goes by leaves, not by bytes.
    fn compact(&self, _stops: &dyn Fn() -> bool) -> IndexResult<()> {
        self.tree.compact()?;
        self.tree.collect();
        Ok(())
    }

    fn check(&self) -> IndexResult<CheckSummary> {
        self.tree.check()
    }

    fn measure(&self) -> PoolStoreStats {
        let (leaves, pool) = (self.tree.leaves(), self.tree.pool().stats());
        let splits = leaves.saturating_sub(self.leaves);
        PoolStoreStats {
            written: WrittenBytes {
                flush: self.item_bytes.get(),
                metadata: self.metadata_bytes.get(),
                split: self.tree.leaf_bytes() / leaves.max(1) * splits,
                ..WrittenBytes::default()
            },
            tables: leaves,
            table_bytes: pool.used_bytes + pool.retired_bytes,
            live_bytes: pool.used_bytes,
            garbage_bytes: pool.retired_bytes,
            memory_bytes: self.tree.dram_bytes(),
            splits,
            mapped: MappedStats {
                leaves,
                ..MappedStats::default()
            },
            ..PoolStoreStats::default()
        }
    }
}
