//! redb 4, a copy-on-write B+ tree in Rust.
//!
//! **Guide**: the documentation of redb's `Builder` and `Durability`, and `docs/design.md` of its
//! source. It has a cache to set, and per transaction whether it is durable.
//!
//! **Durability**: a plain write is a transaction with `Durability::None`: in redb's memory until
//! the next durable one, so that the death of the process costs what was written since; less than
//! the other stores give. Pages that a durable state uses are freed by durable transactions only,
//! so every so many bytes of records, as many as other stores keep in their write buffer, one
//! transaction is durable. A synced write has `Durability::Immediate`, with one sync: the
//! checksummed commit, which is the default, not the one in two phases.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use gabion_lab::Error;
use gabion_lab::target::{
    Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target, TargetCapabilities,
    Transacted,
};
use redb::{
    AccessGuard, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, Table,
    TableDefinition,
};
use serde_json::{Value, json};

use crate::{ABILITIES, check_existing, peer_error, saturated, write_buffer_bytes};

const NAME: &str = "redb";

pub(crate) const TARGET: Target = Target {
    name: NAME,
    about: "redb 4.5.0, a copy-on-write B+ tree in Rust",
    abilities: TargetCapabilities {
        transactions: true,
        ..ABILITIES
    },
    cache: Cache::Own,
    loses: "by a power loss or the death of the process what was put since the last durable \
            transaction",
    open,
};

const FILE: &str = "records.redb";

const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

pub(crate) struct Redb {
    db: Database,
    /// Bytes of records written since the last durable transaction.
    bytes_not_durable: Mutex<u64>,
    /// At how many of them a transaction is durable.
    bytes_not_durable_max: u64,
    settings: Value,
}

fn fail(error: impl std::fmt::Display) -> Error {
    peer_error(NAME, error)
}

fn open(asked: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Redb::open(asked)?))
}

impl Redb {
    fn open(asked: &StoreOptions) -> Result<Redb, Error> {
        check_existing(NAME, asked, FILE)?;
        let write_buffer_bytes = write_buffer_bytes(asked);
        let db = Database::builder()
            .set_cache_size(saturated(asked.cache_bytes))
            .create(asked.dir.join(FILE))
            .map_err(fail)?;
        let settings = json!({
            "guide": "documentation of redb's Builder and Durability, docs/design.md",
            "compression": "none",
            "cache_size": asked.cache_bytes,
            "put": "a transaction with Durability::None",
            "put_synced": "a transaction with Durability::Immediate, commit in one phase",
            "write": "a transaction with Durability::None",
            "durable_every_bytes": write_buffer_bytes,
            "read": "a transaction per get and per scan",
            "threads": "none in the background",
        });
        let store = Redb {
            db,
            bytes_not_durable: Mutex::new(0),
            bytes_not_durable_max: write_buffer_bytes,
            settings,
        };
        // Creates the table.
        store.write_with(true, 0, |_| Ok(()))?;
        Ok(store)
    }

    /// All records, by redb's own iterator.
    #[cfg(test)]
    pub(crate) fn contents(asked: &StoreOptions) -> crate::tests::Map {
        let store = Redb::open(asked).unwrap();
        let records = store.read().unwrap().range::<&[u8]>(..).unwrap();
        records
            .map(Result::unwrap)
            .map(|(key, value)| (key.value().to_vec(), value.value().to_vec()))
            .collect()
    }

    /// Does `work`, which writes `bytes` of records, in a transaction and commits it.
    fn write_with<R>(
        &self,
        is_synced: bool,
        bytes: usize,
        work: impl FnOnce(&mut Table<&[u8], &[u8]>) -> Result<R, redb::StorageError>,
    ) -> Result<R, Error> {
        let mut txn = self.db.begin_write().map_err(fail)?;
        let is_durable = self.count(bytes) || is_synced;
        let durability = if is_durable {
            Durability::Immediate
        } else {
            Durability::None
        };
        txn.set_durability(durability).map_err(fail)?;
        let mut table = txn.open_table(RECORDS).map_err(fail)?;
        let done = work(&mut table).map_err(fail)?;
        drop(table);
        txn.commit().map_err(fail)?;
        Ok(done)
    }

    /// Counts what a transaction writes; whether it must be durable.
    fn count(&self, bytes: usize) -> bool {
        let lock = self.bytes_not_durable.lock();
        let mut counted = lock.unwrap_or_else(PoisonError::into_inner);
        *counted += bytes as u64;
        let is_due = *counted >= self.bytes_not_durable_max;
        if is_due {
            *counted = 0;
        }
        is_due
    }

    /// The records as they are now.
    fn read(&self) -> Result<ReadOnlyTable<&'static [u8], &'static [u8]>, Error> {
        let txn = self.db.begin_read().map_err(fail)?;
        txn.open_table(RECORDS).map_err(fail)
    }
}

impl Store for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(RedbSession { store: self }))
    }

    fn settle(&self) -> Result<(), Error> {
        // The second one frees the pages that the first one let go.
        self.write_with(true, 0, |_| Ok(()))?;
        self.write_with(true, 0, |_| Ok(()))
    }

    fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    fn settings(&self) -> Value {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.settle()?;
        self.db.close().map_err(fail)
    }
}

struct RedbSession<'a> {
    store: &'a Redb,
}

impl RedbSession<'_> {
    fn write_all(&self, is_synced: bool, batch: &Batch) -> Result<(), Error> {
        self.store
            .write_with(is_synced, saturated(batch.bytes()), |table| {
                for (key, value) in batch.iter() {
                    match value {
                        Some(value) => table.insert(key, value).map(drop)?,
                        None => table.remove(key).map(drop)?,
                    }
                }
                Ok(())
            })
    }
}

impl Session for RedbSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.store
            .write_with(false, key.len() + value.len(), |table| {
                table.insert(key, value).map(drop)
            })
    }

    fn put_synced(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.store
            .write_with(true, key.len() + value.len(), |table| {
                table.insert(key, value).map(drop)
            })
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        self.write_all(false, batch)
    }

    fn write_synced(&mut self, batch: &Batch) -> Result<(), Error> {
        self.write_all(true, batch)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.store
            .write_with(false, key.len(), |table| table.remove(key).map(drop))
    }

    /// Its transactions that write run one after the other, so that none has a conflict.
    fn transact(&mut self, batch: &Batch) -> Result<Transacted, Error> {
        let bytes = saturated(batch.bytes());
        let found = self.store.write_with(false, bytes, |table| {
            let mut found = 0;
            for (key, value) in batch.iter() {
                let read = table.get(key)?;
                found += u64::from(read.inspect(|read| _ = black_box(read.value())).is_some());
                match value {
                    Some(value) => table.insert(key, value).map(drop)?,
                    None => table.remove(key).map(drop)?,
                }
            }
            Ok(found)
        })?;
        Ok(Transacted {
            found,
            conflicts: 0,
        })
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        let value = self.store.read()?.get(key).map_err(fail)?;
        Ok(value
            .inspect(|value| _ = black_box(value.value()))
            .is_some())
    }

    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error> {
        self.steps(from)?(entries)
    }

    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        let range = self.store.read()?.range(from..).map_err(fail)?;
        Ok(steps_over(range))
    }

    fn steps_back(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        let range = self.store.read()?.range(..=from).map_err(fail)?;
        Ok(steps_over(range.rev()))
    }
}

type Record<'a> = (
    AccessGuard<'a, &'static [u8]>,
    AccessGuard<'a, &'static [u8]>,
);

/// Steps over the entries of a range.
fn steps_over<'a>(
    mut range: impl Iterator<Item = Result<Record<'a>, redb::StorageError>> + 'a,
) -> Steps<'a> {
    Box::new(move |entries| {
        let mut count = 0;
        for entry in range.by_ref().take(entries) {
            let (key, value) = entry.map_err(fail)?;
            black_box((key.value(), value.value()));
            count += 1;
        }
        Ok(count)
    })
}
