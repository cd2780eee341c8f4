//! RocksDB 11.8, compiled from source for the machine at hand.
//!
//! **Guide**: "Setup Options and Basic Tuning" of RocksDB's wiki. From it: level compaction with
//! dynamic level sizes, filters of ten bits per key, index and filter blocks in the block cache and
//! those of level 0 pinned there, data synced every MiB while tables are written, the smallest
//! overlap first in compactions, the newest table format (all but the filters, the cache and
//! `bytes_per_sync` are defaults by now).
//!
//! **Where it differs**: blocks of 4 KiB, RocksDB's default, for the guide's 16 KiB save memory for
//! indexes at the price of reads, and all stores here have blocks or pages of 4 KiB.
//!
//! **Cache**: the LRU cache, which is the default. HyperClockCache is meant for many threads;
//! RocksDB's own benchmark with two threads showed no difference beyond its noise.
//!
//! **Durability**: the log is written at each write and synced only for synced ones.
//!
//! **Counters**: tickers, without histograms and timers, which cost time.

use std::hint::black_box;

use gabion_lab::Error;
use gabion_lab::result::BytesWritten;
use gabion_lab::target::{
    Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target, TargetCapabilities,
    Transacted,
};
use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedOptions, Cache as BlockCache, DB, DBAccess, DBRawIteratorWithThreadMode, ErrorKind,
    MergeOperands, OptimisticTransactionDB, OptimisticTransactionOptions, Options, ReadOptions,
    WaitForCompactOptions, WriteBatchWithTransaction, WriteOptions,
};
use serde_json::{Value, json};

use crate::{ABILITIES, LOSES_UNSYNCED, check_existing, peer_error, saturated, write_buffer_bytes};

const NAME: &str = "rocksdb";

pub(crate) const TARGET: Target = Target {
    name: NAME,
    about: "RocksDB 11.8.1, a log-structured merge tree in C++",
    abilities: ABILITIES,
    cache: Cache::Own,
    loses: LOSES_UNSYNCED,
    open: |asked| open(asked, Form::Plain),
};

/// RocksDB whose records are counters, by a merge operator in Rust: its own in C++ is not offered
/// by the crate.
pub(crate) const COUNTERS: Target = Target {
    name: "rocksdb-counters",
    about: "RocksDB 11.8.1 with a merge operator that adds",
    abilities: TargetCapabilities {
        merges: true,
        ..ABILITIES
    },
    open: |asked| open(asked, Form::Counters),
    ..TARGET
};

/// RocksDB by the interface that has transactions: it keeps MemTables for longer, to find conflicts
/// in them.
pub(crate) const TRANSACTIONS: Target = Target {
    name: "rocksdb-txn",
    about: "RocksDB 11.8.1 opened as its OptimisticTransactionDB",
    abilities: TargetCapabilities {
        transactions: true,
        ..ABILITIES
    },
    open: |asked| open(asked, Form::Transactions),
    ..TARGET
};

/// Bits per key of the filters: one false positive in a hundred.
const FILTER_BITS: f64 = 10.0;

const BLOCK_BYTES: usize = 4096;

/// How much of a table is written between two syncs, so that the last one is short.
const BYTES_PER_SYNC: u64 = 1 << 20;

/// The newest format of tables.
const FORMAT_VERSION: i32 = 7;

/// How a store is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Counters,
    Transactions,
}

/// A store, without transactions or with them.
enum Handle {
    Plain(DB),
    Transactions(OptimisticTransactionDB),
}

/// What both kinds of a store can do.
macro_rules! on {
    ($handle:expr, $db:ident => $call:expr) => {
        match $handle {
            Handle::Plain($db) => $call,
            Handle::Transactions($db) => $call,
        }
    };
}

pub(crate) struct Rocks {
    db: Handle,
    options: Options,
    settings: Value,
    holds_flushes: bool,
}

fn fail(error: impl std::fmt::Display) -> Error {
    peer_error(NAME, error)
}

fn open(asked: &StoreOptions, form: Form) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Rocks::open(asked, form)?))
}

/// The counter to which all operands are added; `None`, which RocksDB takes for damage, if one of
/// them is none.
fn add(_key: &[u8], counter: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut sum = 0i64;
    for amount in counter.into_iter().chain(operands) {
        sum = sum.wrapping_add(i64::from_le_bytes(amount.try_into().ok()?));
    }
    Some(sum.to_le_bytes().to_vec())
}

impl Rocks {
    fn open(asked: &StoreOptions, form: Form) -> Result<Rocks, Error> {
        check_existing(NAME, asked, "CURRENT")?;
        let write_buffer_bytes: usize = match asked.hold_flushes {
            // Not far more than is needed, since it reserves files of that size for its log.
            true => saturated(asked.records.saturating_mul(2 * (asked.record_bytes + 128))),
            false => saturated(write_buffer_bytes(asked)),
        };
        // One thread for flushes is always there, so one more is the least.
        let background_jobs: i32 = saturated(asked.background_threads.max(2));

        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&BlockCache::new_lru_cache(saturated(asked.cache_bytes)));
        table.set_block_size(BLOCK_BYTES);
        table.set_bloom_filter(FILTER_BITS, false);
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_format_version(FORMAT_VERSION);

        let mut options = Options::default();
        options.create_if_missing(!asked.existing);
        options.set_error_if_exists(!asked.existing);
        options.set_block_based_table_factory(&table);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_compaction_pri(rocksdb::CompactionPri::MinOverlappingRatio);
        options.set_write_buffer_size(write_buffer_bytes);
        options.set_max_background_jobs(background_jobs);
        options.set_bytes_per_sync(BYTES_PER_SYNC);
        options.enable_statistics();
        options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        if form == Form::Counters {
            options.set_merge_operator_associative("add", add);
        }
        let db = match form {
            Form::Plain | Form::Counters => DB::open(&options, &asked.dir).map(Handle::Plain),
            Form::Transactions => {
                OptimisticTransactionDB::open(&options, &asked.dir).map(Handle::Transactions)
            }
        };
        let db = db.map_err(fail)?;

        let settings = json!({
            "guide": "RocksDB wiki, Setup Options and Basic Tuning",
            "compiled": "from source, for the machine at hand",
            "compression": "none",
            "write_buffer_size": write_buffer_bytes,
            "block_cache_bytes": asked.cache_bytes,
            "cache_index_and_filter_blocks": true,
            "pin_l0_filter_and_index_blocks_in_cache": true,
            "filter_bits_per_key": FILTER_BITS,
            "block_size": BLOCK_BYTES,
            "format_version": FORMAT_VERSION,
            "compaction": "level, dynamic level sizes, least overlap first",
            "max_background_jobs": background_jobs,
            "bytes_per_sync": BYTES_PER_SYNC,
            "statistics": "tickers only",
            "put": "log written, not synced",
            "put_synced": "log synced",
            "stalls": "slowdowns are counted with stops",
        });
        Ok(Rocks {
            db,
            options,
            settings,
            holds_flushes: asked.hold_flushes,
        })
    }

    /// All records, by RocksDB's own iterator.
    #[cfg(test)]
    pub(crate) fn contents(asked: &StoreOptions) -> crate::tests::Map {
        let store = Rocks::open(asked, Form::Plain).unwrap();
        let Handle::Plain(db) = &store.db else {
            unreachable!("it was opened so")
        };
        let records = db.iterator(rocksdb::IteratorMode::Start);
        records
            .map(Result::unwrap)
            .map(|(key, value)| (key.into_vec(), value.into_vec()))
            .collect()
    }
}

impl Store for Rocks {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        Ok(Box::new(RocksSession {
            db: &self.db,
            read: ReadOptions::default(),
            unsynced: WriteOptions::default(),
            synced,
        }))
    }

    fn settle(&self) -> Result<(), Error> {
        on!(&self.db, db => db.flush_wal(true)).map_err(fail)?;
        let mut options = WaitForCompactOptions::default();
        options.set_flush(!self.holds_flushes);
        on!(&self.db, db => db.wait_for_compact(&options)).map_err(fail)
    }

    fn compact(&self) -> Result<(), Error> {
        on!(&self.db, db => db.compact_range(None::<&[u8]>, None::<&[u8]>));
        self.settle()
    }

    fn counters(&self) -> Result<Counters, Error> {
        let ticker = |ticker| self.options.get_ticker_count(ticker);
        let mut written = BytesWritten {
            log: ticker(Ticker::WalFileBytes),
            flush: ticker(Ticker::FlushWriteBytes),
            compaction: ticker(Ticker::CompactWriteBytes),
            ..BytesWritten::default()
        };
        written.total = written.log + written.flush + written.compaction;
        Ok(Counters {
            written: Some(written),
            stall_ns: Some(ticker(Ticker::StallMicros) * 1000),
            slowdown_ns: None,
        })
    }

    fn settings(&self) -> Value {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        on!(&self.db, db => db.flush_wal(true)).map_err(fail)
    }
}

struct RocksSession<'a> {
    db: &'a Handle,
    read: ReadOptions,
    unsynced: WriteOptions,
    synced: WriteOptions,
}

impl Session for RocksSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        on!(self.db, db => db.put_opt(key, value, &self.unsynced)).map_err(fail)
    }

    fn put_synced(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        on!(self.db, db => db.put_opt(key, value, &self.synced)).map_err(fail)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        on!(self.db, db => db.write_opt(records(batch), &self.unsynced)).map_err(fail)
    }

    fn write_synced(&mut self, batch: &Batch) -> Result<(), Error> {
        on!(self.db, db => db.write_opt(records(batch), &self.synced)).map_err(fail)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        on!(self.db, db => db.delete_opt(key, &self.unsynced)).map_err(fail)
    }

    fn merge(&mut self, key: &[u8], amount: i64) -> Result<(), Error> {
        on!(self.db, db => db.merge_opt(key, amount.to_le_bytes(), &self.unsynced)).map_err(fail)
    }

    fn transact(&mut self, batch: &Batch) -> Result<Transacted, Error> {
        let Handle::Transactions(db) = self.db else {
            return Err(Error::Request(format!("{NAME} was opened without them")));
        };
        let mut options = OptimisticTransactionOptions::default();
        options.set_snapshot(true);
        let mut done = Transacted::default();
        loop {
            done.found = 0;
            let txn = db.transaction_opt(&self.unsynced, &options);
            for (key, value) in batch.iter() {
                let read = txn.get_pinned_for_update(key, true).map_err(fail)?;
                done.found += u64::from(read.inspect(|read| _ = black_box(&**read)).is_some());
                match value {
                    Some(value) => txn.put(key, value),
                    None => txn.delete(key),
                }
                .map_err(fail)?;
            }
            match txn.commit() {
                Ok(()) => return Ok(done),
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => {
                    done.conflicts += 1;
                }
                Err(error) => return Err(fail(error)),
            }
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        let value = on!(self.db, db => db.get_pinned_opt(key, &self.read)).map_err(fail)?;
        Ok(value.inspect(|value| _ = black_box(&**value)).is_some())
    }

    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error> {
        self.steps(from)?(entries)
    }

    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        Ok(on!(self.db, db => {
            let mut iterator = db.raw_iterator();
            iterator.seek(from);
            steps_with(iterator, DBRawIteratorWithThreadMode::next)
        }))
    }

    fn steps_back(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        Ok(on!(self.db, db => {
            let mut iterator = db.raw_iterator();
            iterator.seek_for_prev(from);
            steps_with(iterator, DBRawIteratorWithThreadMode::prev)
        }))
    }
}

/// The records of a batch as RocksDB takes them.
fn records<const TRANSACTIONS: bool>(batch: &Batch) -> WriteBatchWithTransaction<TRANSACTIONS> {
    let mut records = WriteBatchWithTransaction::default();
    for (key, value) in batch.iter() {
        match value {
            Some(value) => records.put(key, value),
            None => records.delete(key),
        }
    }
    records
}

/// Steps from where the iterator is, each by `advance`.
fn steps_with<'a, D: DBAccess>(
    mut iterator: DBRawIteratorWithThreadMode<'a, D>,
    advance: fn(&mut DBRawIteratorWithThreadMode<'a, D>),
) -> Steps<'a> {
    let mut is_first = true;
    Box::new(move |entries| {
        let mut count = 0;
        while count < entries {
            // Moves before an entry is read, so that no entry is reached that nobody asked for.
            if !std::mem::take(&mut is_first) && iterator.valid() {
                advance(&mut iterator);
            }
            let Some(item) = iterator.item() else {
                break;
            };
            black_box(item);
            count += 1;
        }
        iterator.status().map_err(fail)?;
        Ok(count)
    })
}
