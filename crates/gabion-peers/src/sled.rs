//! sled 0.34, a Bw-tree in Rust. The last stable release is from 2021; 1.0 is in alpha.
//!
//! **Guide**: the documentation of sled's `Config`: the mode for throughput instead of the one for
//! little space, the cache of the run. It has nothing to set for filters, blocks or threads.
//!
//! **Durability**: a plain write is in sled's own buffer, which is written and synced every
//! 500 ms, its default: less than the other stores give, for the death of the process costs what
//! was written since. A synced write is a write and a flush.

use std::hint::black_box;

use gabion_lab::Error;
use gabion_lab::target::{Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target};
use serde_json::{Value, json};
use sled::{Config, Db, Mode};

use crate::{ABILITIES, check_existing, peer_error};

const NAME: &str = "sled";

pub(crate) const TARGET: Target = Target {
    name: NAME,
    about: "sled 0.34.7, a Bw-tree in Rust",
    abilities: ABILITIES,
    cache: Cache::Own,
    loses: "by a power loss or the death of the process the puts of the last 500 ms",
    open,
};

/// Time between two syncs, in milliseconds.
const FLUSH_EVERY_MS: u64 = 500;

pub(crate) struct Sled {
    db: Db,
    settings: Value,
}

fn fail(error: impl std::fmt::Display) -> Error {
    peer_error(NAME, error)
}

fn open(asked: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Sled::open(asked)?))
}

impl Sled {
    fn open(asked: &StoreOptions) -> Result<Sled, Error> {
        check_existing(NAME, asked, "conf")?;
        let db = Config::new()
            .path(&asked.dir)
            .mode(Mode::HighThroughput)
            .cache_capacity(asked.cache_bytes)
            .flush_every_ms(Some(FLUSH_EVERY_MS))
            .use_compression(false)
            .open()
            .map_err(fail)?;
        let settings = json!({
            "guide": "documentation of sled's Config",
            "compression": "none",
            "mode": "HighThroughput",
            "cache_capacity": asked.cache_bytes,
            "flush_every_ms": FLUSH_EVERY_MS,
            "threads": "sled's own choice",
            "put": "in the process's memory, written and synced every 500 ms",
            "put_synced": "put, then flush",
        });
        Ok(Sled { db, settings })
    }

    /// All records, by sled's own iterator.
    #[cfg(test)]
    pub(crate) fn contents(asked: &StoreOptions) -> crate::tests::Map {
        let store = Sled::open(asked).unwrap();
        let records = store.db.iter();
        records
            .map(Result::unwrap)
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect()
    }
}

impl Store for Sled {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(SledSession { db: &self.db }))
    }

    fn settle(&self) -> Result<(), Error> {
        self.db.flush().map(drop).map_err(fail)
    }

    fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    fn settings(&self) -> Value {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.settle()
    }
}

struct SledSession<'a> {
    db: &'a Db,
}

impl Session for SledSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.db.insert(key, value).map(drop).map_err(fail)
    }

    fn put_synced(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put(key, value)?;
        self.db.flush().map(drop).map_err(fail)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut records = sled::Batch::default();
        for (key, value) in batch.iter() {
            match value {
                Some(value) => records.insert(key, value),
                None => records.remove(key),
            }
        }
        self.db.apply_batch(records).map_err(fail)
    }

    fn write_synced(&mut self, batch: &Batch) -> Result<(), Error> {
        self.write(batch)?;
        self.db.flush().map(drop).map_err(fail)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.db.remove(key).map(drop).map_err(fail)
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        let value = self.db.get(key).map_err(fail)?;
        Ok(value.inspect(|value| _ = black_box(&**value)).is_some())
    }

    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error> {
        self.steps(from)?(entries)
    }

    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        Ok(steps_over(self.db.range(from..)))
    }

    fn steps_back(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        Ok(steps_over(self.db.range(..=from).rev()))
    }
}

/// Steps over the entries of a range.
fn steps_over<'a, T>(mut range: impl Iterator<Item = sled::Result<T>> + 'a) -> Steps<'a> {
    Box::new(move |entries| {
        let mut count = 0;
        for entry in range.by_ref().take(entries) {
            black_box(entry.map_err(fail)?);
            count += 1;
        }
        Ok(count)
    })
}
