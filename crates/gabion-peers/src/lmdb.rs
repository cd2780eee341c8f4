//! LMDB 0.9, a copy-on-write B+ tree in a memory map, in C, through heed.
//!
//! **Guide**: the documentation of `mdb_env_open` and the caveats in `lmdb.h`. From it: a map far
//! larger than the data, which costs nothing but addresses; readers in thread-local slots; no
//! clearing of pages before they are written.
//!
//! **Durability**: `MDB_NOSYNC` without `MDB_WRITEMAP`: commits write to the file and do not sync
//! it, so that the death of the process loses nothing. `MDB_WRITEMAP` would be faster, but then a
//! stray pointer damages the store, and power loss damages it whatever the file system does. For a
//! synced write `MDB_NOSYNC` is off, so that it pays for both syncs of LMDB, the data's and the
//! meta page's.
//!
//! **Memory**: the page cache; the run's cache memory does not bind it. Nothing runs in the
//! background.

#![expect(
    unsafe_code,
    reason = "maps a file, and switches the syncs of an environment"
)]

use std::hint::black_box;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use gabion_lab::Error;
use gabion_lab::target::{Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target};
use heed::types::Bytes;
use heed::{
    CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, RoTxn, RwTxn, WithTls,
};
use serde_json::{Value, json};

use crate::{ABILITIES, check_existing, peer_error, saturated};

const NAME: &str = "lmdb";

pub(crate) const TARGET: Target = Target {
    name: NAME,
    about: "LMDB 0.9.70 through heed 0.23.1, a copy-on-write B+ tree in a memory map, in C",
    abilities: ABILITIES,
    cache: Cache::Page,
    loses: "by a power loss the whole store: its pages are written in any order (`MDB_NOSYNC`)",
    open,
};

/// Size of the map at least.
const MAP_BYTES_MIN: u64 = 64 << 30;

/// Size of the map, as a multiple of the records' size: half-filled pages, and old pages that
/// readers hold.
const MAP_PER_RECORDS: u64 = 16;

pub(crate) struct Lmdb {
    env: Env<WithTls>,
    /// Whether commits sync. Held while a transaction writes, which LMDB allows one at a time.
    are_commits_synced: Mutex<bool>,
    settings: Value,
}

fn fail(error: impl std::fmt::Display) -> Error {
    peer_error(NAME, error)
}

fn open(asked: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Lmdb::open(asked)?))
}

impl Lmdb {
    fn open(asked: &StoreOptions) -> Result<Lmdb, Error> {
        check_existing(NAME, asked, "data.mdb")?;
        let map_bytes = asked
            .records
            .saturating_mul(asked.record_bytes)
            .saturating_mul(MAP_PER_RECORDS)
            .clamp(MAP_BYTES_MIN, 1 << 46)
            .next_multiple_of(1 << 20);
        let mut options = EnvOpenOptions::new();
        options.map_size(saturated(map_bytes));
        // SAFETY: without syncs power loss may damage the store, which LMDB then may read as it
        // is. A store of a run is not used after that.
        unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_MEM_INIT) };
        // SAFETY: the run's own directory: nothing else opens or changes the file.
        let env = unsafe { options.open(&asked.dir) }.map_err(fail)?;
        let version = heed::lmdb_version();
        let settings = json!({
            "guide": "lmdb.h",
            "version": format!("{}.{}.{}", version.major, version.minor, version.patch),
            "compression": "none",
            "map_size": map_bytes,
            "flags": "MDB_NOSYNC, MDB_NOMEMINIT; not MDB_WRITEMAP",
            "memory": "page cache, not bound by the run's cache memory",
            "put": "a transaction, written, not synced",
            "put_synced": "a transaction with MDB_NOSYNC off: data and meta page synced",
            "write": "a transaction",
            "read": "a transaction per get and per scan",
        });
        Ok(Lmdb {
            env,
            are_commits_synced: Mutex::new(false),
            settings,
        })
    }

    /// All records, by LMDB's own cursor.
    #[cfg(test)]
    pub(crate) fn contents(asked: &StoreOptions) -> crate::tests::Map {
        let store = Lmdb::open(asked).unwrap();
        let records = store.records().unwrap();
        let txn = store.env.read_txn().unwrap();
        let records = records.iter(&txn).unwrap();
        records
            .map(Result::unwrap)
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect()
    }

    /// The records: LMDB's unnamed database, which is always there.
    fn records(&self) -> Result<Database<'_, Bytes, Bytes>, Error> {
        let txn = self.env.read_txn().map_err(fail)?;
        let opened = self.env.open_databases_and_commit(txn, |opener, txn| {
            let records = opener.open_database::<Bytes, Bytes>(txn, None)?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(records))
        });
        let records = opened.map_err(fail)?.unwrap_commit();
        records.ok_or_else(|| fail("there is no unnamed database"))
    }

    /// Does `work` in a write transaction and commits it, with or without a sync.
    fn write_with(
        &self,
        is_synced: bool,
        work: impl FnOnce(&mut RwTxn) -> heed::Result<()>,
    ) -> Result<(), Error> {
        let lock = self.are_commits_synced.lock();
        let mut are_synced = lock.unwrap_or_else(PoisonError::into_inner);
        if *are_synced != is_synced {
            let mode = if is_synced {
                FlagSetMode::Disable
            } else {
                FlagSetMode::Enable
            };
            // SAFETY: the lock lets one thread at a time do this, and no commit runs meanwhile.
            unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode) }.map_err(fail)?;
            *are_synced = is_synced;
        }
        let mut txn = self.env.write_txn().map_err(fail)?;
        work(&mut txn).map_err(fail)?;
        txn.commit().map_err(fail)
    }
}

impl Store for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(LmdbSession {
            store: self,
            records: self.records()?,
            stepped: None,
        }))
    }

    fn settle(&self) -> Result<(), Error> {
        self.env.force_sync().map_err(fail)
    }

    fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    fn settings(&self) -> Value {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.settle()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

struct LmdbSession<'a> {
    store: &'a Lmdb,
    records: Database<'a, Bytes, Bytes>,
    /// The transaction that steps go through; a thread has one at a time.
    stepped: Option<RoTxn<'a, WithTls>>,
}

impl<'a> LmdbSession<'a> {
    /// A transaction that sees the store as it is now.
    fn read(&mut self) -> Result<RoTxn<'a, WithTls>, Error> {
        self.stepped = None;
        self.store.env.read_txn().map_err(fail)
    }
}

impl LmdbSession<'_> {
    fn write_all(&mut self, is_synced: bool, batch: &Batch) -> Result<(), Error> {
        self.stepped = None;
        let records = &self.records;
        self.store.write_with(is_synced, |txn| {
            for (key, value) in batch.iter() {
                match value {
                    Some(value) => records.put(txn, key, value)?,
                    None => records.delete(txn, key).map(drop)?,
                }
            }
            Ok(())
        })
    }
}

impl Session for LmdbSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.stepped = None;
        let records = &self.records;
        self.store
            .write_with(false, |txn| records.put(txn, key, value))
    }

    fn put_synced(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.stepped = None;
        let records = &self.records;
        self.store
            .write_with(true, |txn| records.put(txn, key, value))
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        self.write_all(false, batch)
    }

    fn write_synced(&mut self, batch: &Batch) -> Result<(), Error> {
        self.write_all(true, batch)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.stepped = None;
        let records = &self.records;
        self.store
            .write_with(false, |txn| records.delete(txn, key).map(drop))
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        let txn = self.read()?;
        let value = self.records.get(&txn, key).map_err(fail)?;
        Ok(value.inspect(|value| _ = black_box(*value)).is_some())
    }

    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error> {
        let count = self.steps(from)?(entries)?;
        self.stepped = None;
        Ok(count)
    }

    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        let txn = self.read()?;
        let txn = &*self.stepped.insert(txn);
        // LMDB has no empty key and does not look for one.
        let start = if from.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Included(from)
        };
        let bounds = (start, Bound::Unbounded);
        let range = self.records.range(txn, &bounds).map_err(fail)?;
        Ok(steps_over(range))
    }

    fn steps_back(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        let txn = self.read()?;
        let txn = &*self.stepped.insert(txn);
        if from.is_empty() {
            return Ok(Box::new(|_| Ok(0)));
        }
        let bounds = (Bound::Unbounded, Bound::Included(from));
        let range = self.records.rev_range(txn, &bounds).map_err(fail)?;
        Ok(steps_over(range))
    }
}

/// Steps over the entries of a range.
fn steps_over<'a, T>(mut range: impl Iterator<Item = heed::Result<T>> + 'a) -> Steps<'a> {
    Box::new(move |entries| {
        let mut count = 0;
        for entry in range.by_ref().take(entries) {
            black_box(entry.map_err(fail)?);
            count += 1;
        }
        Ok(count)
    })
}
