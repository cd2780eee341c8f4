//! fjall 3, a log-structured merge tree in Rust.
//!
//! **Guide**: fjall's README and the documentation of its options, which ask for a cache that holds
//! the data where it can and leave the rest at its defaults: blocks of 4 KiB, filters with a false
//! positive in ten thousand on level 0 and ten bits per key below, a write buffer of 64 MiB.
//!
//! **Durability**: each write hands the journal to the operating system; a synced one then syncs
//! the journal's data, as the README shows it.
//!
//! **Settling** is watched from outside: the write buffer is flushed, and fjall is at rest when for
//! a while nothing is flushed and no compaction runs or has ended.

use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

use fjall::config::CompressionPolicy;
use fjall::{
    CompressionType, Conflict, Database, Guard, Keyspace, KeyspaceCreateOptions,
    OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode, Readable,
};
use gabion_lab::Error;
use gabion_lab::target::{
    Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target, TargetCapabilities,
    Transacted,
};
use serde_json::{Value, json};

use crate::{ABILITIES, LOSES_UNSYNCED, check_existing, peer_error, write_buffer_bytes};

const NAME: &str = "fjall";

pub(crate) const TARGET: Target = Target {
    name: NAME,
    about: "fjall 3.1.13, a log-structured merge tree in Rust",
    abilities: TargetCapabilities {
        transactions: true,
        ..ABILITIES
    },
    cache: Cache::Own,
    loses: LOSES_UNSYNCED,
    open,
};

/// How long fjall must be at rest, in looks of [`LOOK`].
const LOOKS: usize = 10;

/// Time between two looks. A worker takes the next compaction from its queue at once.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct Fjall {
    db: OptimisticTxDatabase,
    records: OptimisticTxKeyspace,
    settings: Value,
}

fn fail(error: impl std::fmt::Display) -> Error {
    peer_error(NAME, error)
}

fn open(asked: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Fjall::open(asked)?))
}

impl Fjall {
    fn open(asked: &StoreOptions) -> Result<Fjall, Error> {
        check_existing(NAME, asked, "version")?;
        let write_buffer_bytes = write_buffer_bytes(asked);
        let threads = asked.background_threads.max(1);
        let db = OptimisticTxDatabase::builder(&asked.dir)
            .cache_size(asked.cache_bytes)
            .worker_threads(threads)
            .journal_compression(CompressionType::None)
            .open()
            .map_err(fail)?;
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(write_buffer_bytes)
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        };
        let records = db.keyspace("records", options).map_err(fail)?;
        let settings = json!({
            "guide": "fjall's README and the documentation of its options",
            "compression": "none",
            "max_memtable_size": write_buffer_bytes,
            "cache_size": asked.cache_bytes,
            "worker_threads": threads,
            "block_size": 4096,
            "filters": "false positives 0.0001 on level 0, 10 bits per key below (default)",
            "compaction": "levelled (default)",
            "max_journaling_size": "512 MiB (default)",
            "put": "journal written, not synced",
            "put_synced": "journal written, then PersistMode::SyncData",
        });
        Ok(Fjall {
            db,
            records,
            settings,
        })
    }

    /// The database without what watches over transactions.
    fn db(&self) -> &Database {
        self.db.inner()
    }

    /// The same of the records.
    fn records(&self) -> &Keyspace {
        self.records.inner()
    }

    /// All records, by fjall's own iterator.
    #[cfg(test)]
    pub(crate) fn contents(asked: &StoreOptions) -> crate::tests::Map {
        let store = Fjall::open(asked).unwrap();
        let records = store.records().iter();
        records
            .map(|record| record.into_inner().unwrap())
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect()
    }
}

impl Store for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(FjallSession { store: self }))
    }

    fn settle(&self) -> Result<(), Error> {
        self.records().rotate_memtable_and_wait().map_err(fail)?;
        let mut completed = self.db().compactions_completed();
        let mut looks = 0;
        while looks < LOOKS {
            sleep(LOOK);
            let is_at_rest = self.records().sealed_memtable_count() == 0
                && self.db().outstanding_flushes() == 0
                && self.db().active_compactions() == 0
                && self.db().compactions_completed() == completed;
            looks = if is_at_rest { looks + 1 } else { 0 };
            completed = self.db().compactions_completed();
        }
        self.db().persist(PersistMode::SyncAll).map_err(fail)
    }

    fn compact(&self) -> Result<(), Error> {
        self.settle()?;
        self.records().major_compact().map_err(fail)?;
        self.settle()
    }

    fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    fn settings(&self) -> Value {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.db().persist(PersistMode::SyncAll).map_err(fail)
    }
}

struct FjallSession<'a> {
    store: &'a Fjall,
}

impl Session for FjallSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.store.records().insert(key, value).map_err(fail)
    }

    fn put_synced(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put(key, value)?;
        self.store.db().persist(PersistMode::SyncData).map_err(fail)
    }

    fn write_synced(&mut self, batch: &Batch) -> Result<(), Error> {
        self.write(batch)?;
        self.store.db().persist(PersistMode::SyncData).map_err(fail)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut records =
            fjall::OwnedWriteBatch::with_capacity(self.store.db().clone(), batch.len());
        for (key, value) in batch.iter() {
            match value {
                Some(value) => records.insert(self.store.records(), key, value),
                None => records.remove(self.store.records(), key),
            }
        }
        records.commit().map_err(fail)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.store.records().remove(key).map_err(fail)
    }

    fn transact(&mut self, batch: &Batch) -> Result<Transacted, Error> {
        let mut done = Transacted::default();
        loop {
            done.found = 0;
            let records = &self.store.records;
            let mut txn = self.store.db.write_tx().map_err(fail)?;
            for (key, value) in batch.iter() {
                let read = txn.get(records, key).map_err(fail)?;
                done.found += u64::from(read.inspect(|read| _ = black_box(&**read)).is_some());
                match value {
                    Some(value) => txn.insert(records, key, value),
                    None => txn.remove(records, key),
                }
            }
            match txn.commit().map_err(fail)? {
                Ok(()) => return Ok(done),
                Err(Conflict) => done.conflicts += 1,
            }
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        let value = self.store.records().get(key).map_err(fail)?;
        Ok(value.inspect(|value| _ = black_box(&**value)).is_some())
    }

    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error> {
        self.steps(from)?(entries)
    }

    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        Ok(steps_over(self.store.records().range(from..)))
    }

    fn steps_back(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        Ok(steps_over(self.store.records().range(..=from).rev()))
    }
}

/// Steps over the entries of a range.
fn steps_over<'a>(mut range: impl Iterator<Item = Guard> + 'a) -> Steps<'a> {
    Box::new(move |entries| {
        let mut count = 0;
        for entry in range.by_ref().take(entries) {
            black_box(entry.into_inner().map_err(fail)?);
            count += 1;
        }
        Ok(count)
    })
}
