//! Gabion's TurboHash as targets: a hash table of byte strings in memory, in a mapped file, and on
//! the model of a persistent medium.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use gabion_index::TurboHash;
use gabion_index::turbo::Options;
use gabion_media::pmem::model::{Model, Preset};
use gabion_media::pmem::trace::Watcher;
use gabion_media::pmem::{Pool, PoolOptions};
use parking_lot::Mutex;
use serde_json::json;

use crate::Error;
use crate::result::BytesWritten;
use crate::target::{
    Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target, TargetCapabilities,
};

/// The target `turbohash`.
pub const MEMORY: Target = Target {
    name: "turbohash",
    about: "Gabion's TurboHash in memory that nothing survives",
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
    open: |options| {
        let pool = Pool::anonymous(pool_options(options, None)).map_err(failed)?;
        Ok(Box::new(Table::create(pool, options, None)?))
    },
};

/// The target `turbohash-file`.
pub const FILE: Target = Target {
    name: "turbohash-file",
    about: "the same in a mapped file, where it survives the process",
    abilities: TargetCapabilities {
        persistent: true,
        files: true,
        transactions: false,
        merges: false,
        ..MEMORY.abilities
    },
    cache: Cache::Page,
    loses: "by a power loss whatever was not written back",
    open: open_file,
};

/// The target `turbohash-model`.
pub const MODEL: Target = Target {
    name: "turbohash-model",
    about: "the same on the model of persistent memory, which counts what the media write",
    open: |options| {
        let model = Arc::new(Mutex::new(Model::new(Preset::OPTANE)));
        let pool = Pool::anonymous(pool_options(options, Some(model.clone()))).map_err(failed)?;
        Ok(Box::new(Table::create(pool, options, Some(model))?))
    },
    ..MEMORY
};

/// The file of the pool in the directory of the store.
const FILE_NAME: &str = "table.pool";
/// Memory per record beside its bytes, in bytes: its slot at the lowest load after a growth, while
/// old and new shard stand side by side, and what the allocator rounds up.
const OVERHEAD_BYTES: u64 = 160;
/// Memory besides, in bytes.
const SPARE_BYTES: u64 = 64 << 20;

type Strings = TurboHash<[u8], [u8]>;

struct Table {
    table: Strings,
    model: Option<Arc<Mutex<Model>>>,
}

fn open_file(options: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    let path = options.dir.join(FILE_NAME);
    if options.existing {
        return reopen(&path);
    }
    let pool = Pool::create(&path, pool_options(options, None)).map_err(failed)?;
    Ok(Box::new(Table::create(pool, options, None)?))
}

fn reopen(path: &Path) -> Result<Box<dyn Store>, Error> {
    let pool = Pool::open(path, Strings::pool_options()).map_err(failed)?;
    let table = Strings::open(&pool, &Options::default())?;
    Ok(Box::new(Table { table, model: None }))
}

fn pool_options(options: &StoreOptions, watcher: Option<Arc<dyn Watcher>>) -> PoolOptions {
    // Twice, since workloads insert records beyond those of the fill.
    let record_bytes = options.record_bytes.saturating_add(OVERHEAD_BYTES);
    PoolOptions {
        size: record_bytes
            .saturating_mul(options.records)
            .saturating_mul(2)
            .saturating_add(SPARE_BYTES),
        chunk_bytes: 1 << 20,
        watcher,
        ..Strings::pool_options()
    }
}

impl Table {
    fn create(
        pool: Pool,
        options: &StoreOptions,
        model: Option<Arc<Mutex<Model>>>,
    ) -> Result<Table, Error> {
        let planned = Options {
            capacity: options.records,
            ..Options::default()
        };
        let table = Strings::create(&pool, &planned)?;
        Ok(Table { table, model })
    }
}

impl Store for Table {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(&self.table))
    }

    fn settle(&self) -> Result<(), Error> {
        Ok(())
    }

    fn counters(&self) -> Result<Counters, Error> {
        let written = self.model.as_ref().map(|model| {
            let mut model = model.lock();
            model.drain_all();
            let costs = model.costs();
            BytesWritten {
                total: costs.media_writes * costs.media_line_bytes,
                ..BytesWritten::default()
            }
        });
        Ok(Counters {
            written,
            ..Counters::default()
        })
    }

    fn settings(&self) -> serde_json::Value {
        json!({ "durability": format!("{:?}", self.table.pool().class()) })
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        let pool = self.table.pool().clone();
        drop(self.table);
        pool.close().map_err(failed)
    }
}

fn failed(error: gabion_media::Error) -> Error {
    Error::Structure(error.into())
}

fn unordered() -> Error {
    Error::Request("turbohash has no order to step or scan in".to_owned())
}

fn unsynced() -> Error {
    Error::Request("turbohash makes no single write durable on storage".to_owned())
}

impl Session for &Strings {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        Strings::put(self, key, value)?;
        Ok(())
    }

    fn put_synced(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), Error> {
        Err(unsynced())
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        for (key, value) in batch.iter() {
            match value {
                Some(value) => drop(Strings::put(self, key, value)?),
                None => drop(self.remove(key)?),
            }
        }
        Ok(())
    }

    fn write_synced(&mut self, _batch: &Batch) -> Result<(), Error> {
        Err(unsynced())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.remove(key)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(black_box(Strings::get(self, key)?).is_some())
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
