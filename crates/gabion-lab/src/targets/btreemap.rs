//! The standard library's B-tree behind one lock: an oracle, and the floor for ordered stores.

use std::array::TryFromSliceError;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde_json::json;

use crate::Error;
use crate::target::{
    Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target, TargetCapabilities,
    Transacted,
};

/// The target `btreemap`.
pub const TARGET: Target = Target {
    name: "btreemap",
    about: "the standard library's BTreeMap in memory behind a lock, without any file",
    abilities: TargetCapabilities {
        ordered: true,
        backward: true,
        synced_writes: false,
        persistent: false,
        files: false,
        transactions: true,
        merges: true,
    },
    cache: Cache::Memory,
    loses: "all of it, by the death of the process",
    open,
};

type Records = BTreeMap<Box<[u8]>, Box<[u8]>>;

#[derive(Default)]
struct Map(RwLock<Records>);

impl Map {
    // A thread that panicked left the tree as it was before or after its change: both are trees.
    fn read(&self) -> RwLockReadGuard<'_, Records> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Records> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(_options: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Map::default()))
}

impl Store for Map {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(self))
    }

    fn settle(&self) -> Result<(), Error> {
        Ok(())
    }

    fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    fn settings(&self) -> serde_json::Value {
        json!({ "durability": "none" })
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

fn no_storage() -> Error {
    Error::Request("btreemap has no storage to sync its writes to".to_owned())
}

fn no_counter(_: TryFromSliceError) -> Error {
    Error::Request("a record of another length than 8 bytes is no counter".to_owned())
}

fn apply(records: &mut Records, batch: &Batch) {
    for (key, value) in batch.iter() {
        match value {
            Some(value) => records.insert(key.into(), value.into()),
            None => records.remove(key),
        };
    }
}

impl Session for &Map {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let (key, value) = (key.into(), value.into());
        Map::write(self).insert(key, value);
        Ok(())
    }

    fn put_synced(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), Error> {
        Err(no_storage())
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        apply(&mut Map::write(self), batch);
        Ok(())
    }

    fn write_synced(&mut self, _batch: &Batch) -> Result<(), Error> {
        Err(no_storage())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        Map::write(self).remove(key);
        Ok(())
    }

    fn merge(&mut self, key: &[u8], amount: i64) -> Result<(), Error> {
        let mut records = Map::write(self);
        let counter = match records.get(key) {
            Some(value) => i64::from_le_bytes((&**value).try_into().map_err(no_counter)?),
            None => 0,
        };
        let counter = counter.wrapping_add(amount);
        records.insert(key.into(), counter.to_le_bytes().into());
        Ok(())
    }

    fn transact(&mut self, batch: &Batch) -> Result<Transacted, Error> {
        let mut records = Map::write(self);
        let is_there = |(key, _): &(&[u8], Option<&[u8]>)| black_box(records.get(*key)).is_some();
        let found = batch.iter().filter(is_there).count() as u64;
        apply(&mut records, batch);
        Ok(Transacted {
            found,
            conflicts: 0,
        })
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(black_box(self.read().get(key)).is_some())
    }

    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error> {
        let records = self.read();
        let range = records.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        Ok(range.take(entries).map(black_box).count())
    }

    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        let map = *self;
        let mut next: Bound<Box<[u8]>> = Bound::Included(from.into());
        Ok(Box::new(move |entries| {
            let records = map.read();
            let bounds = (next.as_ref().map(|key| &**key), Bound::Unbounded);
            let mut last = None;
            let mut count = 0;
            for (key, value) in records.range::<[u8], _>(bounds).take(entries) {
                black_box(value);
                last = Some(key);
                count += 1;
            }
            if let Some(last) = last {
                next = Bound::Excluded(last.clone());
            }
            Ok(count)
        }))
    }

    fn steps_back(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        let map = *self;
        let mut next: Bound<Box<[u8]>> = Bound::Included(from.into());
        Ok(Box::new(move |entries| {
            let records = map.read();
            let bounds = (Bound::Unbounded, next.as_ref().map(|key| &**key));
            let mut last = None;
            let mut count = 0;
            for (key, value) in records.range::<[u8], _>(bounds).rev().take(entries) {
                black_box(value);
                last = Some(key);
                count += 1;
            }
            if let Some(last) = last {
                next = Bound::Excluded(last.clone());
            }
            Ok(count)
        }))
    }
}
