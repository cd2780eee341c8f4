//! Gabion's SCMKV as targets: the engine on a file, and the store in a pool in memory, where a put
//! is relaxed or strict and the instructions that persistent memory needs are executed or not.

use std::hint::black_box;

use gabion::{Engine, MappedOptions};
use gabion_index::Scmkv;
use gabion_index::scmkv::{Durability as Flushed, Options as StoreSettings};
use gabion_media::pmem::{Pool, PoolOptions};
use serde_json::json;

use super::gabion_store::{opened, options_of};
use crate::Error;
use crate::result::BytesWritten;
use crate::target::{
    Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target, TargetCapabilities,
};

/// The target `scmkv`.
pub const TARGET: Target = Target {
    name: "scmkv",
    about: concat!("Gabion's SCMKV engine, version ", env!("CARGO_PKG_VERSION")),
    abilities: TargetCapabilities {
        ordered: false,
        backward: false,
        synced_writes: true,
        persistent: true,
        files: true,
        transactions: false,
        merges: false,
    },
    cache: Cache::Page,
    loses: "by a power loss what was put since the last checkpoint",
    open: open_engine,
};

/// The target `scmkv-relaxed`.
pub const RELAXED: Target = Target {
    name: "scmkv-relaxed",
    about: "SCMKV in memory: relaxed puts, with the flushes that persistent memory needs",
    abilities: TargetCapabilities {
        ordered: false,
        backward: false,
        synced_writes: false,
        persistent: false,
        files: false,
        transactions: false,
        merges: false,
    },
    cache: Cache::Memory,
    loses: "all of it, by the death of the process",
    open: |options| open_in_memory(options, Flushed::Relaxed, true),
};

/// The target `scmkv-relaxed-noflush`.
pub const RELAXED_NOFLUSH: Target = Target {
    name: "scmkv-relaxed-noflush",
    about: "the same without flushes",
    open: |options| open_in_memory(options, Flushed::Relaxed, false),
    ..RELAXED
};

/// The target `scmkv-strict`.
pub const STRICT: Target = Target {
    name: "scmkv-strict",
    about: "SCMKV in memory: strict puts, with the flushes that persistent memory needs",
    open: |options| open_in_memory(options, Flushed::Strict, true),
    ..RELAXED
};

/// The target `scmkv-strict-noflush`.
pub const STRICT_NOFLUSH: Target = Target {
    name: "scmkv-strict-noflush",
    about: "the same without flushes",
    open: |options| open_in_memory(options, Flushed::Strict, false),
    ..RELAXED
};

/// What a record takes in a pool beside its bytes, at most: its head, the rest of its last line,
/// its word.
const OVERHEAD_BYTES: u64 = 96;
/// Space besides, in bytes.
const SPARE_BYTES: u64 = 256 << 20;

/// A pool for three times the records, so that garbage is cleaned now and then.
fn pool_bytes(options: &StoreOptions) -> u64 {
    let record_bytes = options.record_bytes.saturating_add(OVERHEAD_BYTES);
    let records = options.records.saturating_mul(3);
    record_bytes
        .saturating_mul(records)
        .saturating_add(SPARE_BYTES)
}

fn open_engine(options: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    let mapped = MappedOptions::default()
        .pool_bytes(pool_bytes(options))
        .expected_records(options.records);
    let store = options_of(Engine::Scmkv, options).mapped(mapped);
    let settings = json!({
        "durability": store.durability.to_string(),
        "pool_bytes": store.mapped.pool_bytes,
        "expected_records": store.mapped.expected_records,
        "space_amplification_max": store.space_amplification_max,
        "background_threads": store.background_threads,
    });
    Ok(opened(store.open(&options.dir)?, settings))
}

struct InMemory {
    store: Scmkv,
    durability: Flushed,
    flushes: bool,
}

fn open_in_memory(
    options: &StoreOptions,
    durability: Flushed,
    flushes: bool,
) -> Result<Box<dyn Store>, Error> {
    let pool = PoolOptions {
        size: pool_bytes(options),
        always_flush: flushes,
        ..Scmkv::pool_options()
    };
    let pool = Pool::anonymous(pool).map_err(failed)?;
    let settings = StoreSettings {
        capacity: Some(options.records),
        durability,
        cleans: options.background_threads > 0,
        ..StoreSettings::default()
    };
    Ok(Box::new(InMemory {
        store: Scmkv::create(&pool, &settings)?,
        durability,
        flushes,
    }))
}

impl Store for InMemory {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        let value = Vec::new();
        let store = &self.store;
        Ok(Box::new(InMemorySession { store, value }))
    }

    fn settle(&self) -> Result<(), Error> {
        Ok(self.store.persist()?)
    }

    fn counters(&self) -> Result<Counters, Error> {
        let stats = self.store.stats();
        let (flush, gc) = (stats.record_bytes, stats.moved_bytes);
        let metadata = stats.chain_bytes + 8 * (stats.records + stats.deletes);
        Ok(Counters {
            written: Some(BytesWritten {
                flush,
                gc,
                metadata,
                total: flush + gc + metadata,
                ..BytesWritten::default()
            }),
            ..Counters::default()
        })
    }

    fn settings(&self) -> serde_json::Value {
        json!({
            "durability": format!("{:?}", self.durability).to_lowercase(),
            "flushes": self.flushes,
        })
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        let pool = self.store.pool().clone();
        self.store.close()?;
        pool.close().map_err(failed)
    }
}

fn failed(error: gabion_media::Error) -> Error {
    Error::Structure(error.into())
}

fn unordered() -> Error {
    Error::Request("SCMKV has no order to step or scan in".to_owned())
}

fn unsynced() -> Error {
    Error::Request("in memory nothing is durable".to_owned())
}

struct InMemorySession<'a> {
    store: &'a Scmkv,
    value: Vec<u8>,
}

impl Session for InMemorySession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.store.put(key, value)?;
        Ok(())
    }

    fn put_synced(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), Error> {
        Err(unsynced())
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        for (key, value) in batch.iter() {
            match value {
                Some(value) => self.store.put(key, value)?,
                None => self.store.delete(key)?,
            };
        }
        Ok(())
    }

    fn write_synced(&mut self, _batch: &Batch) -> Result<(), Error> {
        Err(unsynced())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.store.delete(key)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        self.value.clear();
        let found = self.store.get_into(key, &mut self.value)?;
        black_box(&self.value);
        Ok(found)
    }

    fn scan(&mut self, _from: &[u8], _entries: usize) -> Result<usize, Error> {
        Err(unordered())
    }

    fn steps(&mut self, _from: &[u8]) -> Result<Steps<'_>, Error> {
        Err(unordered())
    }

    fn steps_back(&mut self, _from: &[u8]) -> Result<Steps<'_>, Error> {
        Err(unordered())
    }
}
