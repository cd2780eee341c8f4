//! A target that does nothing, and so measures the cost of the lab itself.

use std::hint::black_box;

use crate::Error;
use crate::target::{
    Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target, TargetCapabilities,
    Transacted,
};
use crate::workload::keys;

/// The target `empty`. It says that it has every key but those that workloads use as absent.
pub const TARGET: Target = Target {
    name: "empty",
    about: "does nothing, so that the figures show what the lab itself costs",
    abilities: TargetCapabilities {
        ordered: true,
        backward: true,
        synced_writes: true,
        persistent: false,
        files: false,
        transactions: true,
        merges: true,
    },
    cache: Cache::Memory,
    loses: "all of it, by the death of the process",
    open,
};

struct Empty;

fn open(_options: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Empty))
}

impl Store for Empty {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(Empty))
    }

    fn settle(&self) -> Result<(), Error> {
        Ok(())
    }

    fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

impl Session for Empty {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        black_box((key, value));
        Ok(())
    }

    fn put_synced(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put(key, value)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        black_box(batch);
        Ok(())
    }

    fn write_synced(&mut self, batch: &Batch) -> Result<(), Error> {
        self.write(batch)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        black_box(key);
        Ok(())
    }

    fn merge(&mut self, key: &[u8], amount: i64) -> Result<(), Error> {
        black_box((key, amount));
        Ok(())
    }

    fn transact(&mut self, batch: &Batch) -> Result<Transacted, Error> {
        Ok(Transacted {
            found: black_box(batch).len() as u64,
            conflicts: 0,
        })
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(!keys::is_absent(black_box(key)))
    }

    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error> {
        black_box(from);
        Ok(entries)
    }

    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        black_box(from);
        Ok(Box::new(|entries| Ok(black_box(entries))))
    }

    fn steps_back(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        self.steps(from)
    }
}
