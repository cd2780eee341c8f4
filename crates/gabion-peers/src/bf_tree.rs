//! Bf-Tree 0.5, a B tree of disk pages with small pages of their hot records in memory, in Rust,
//! without its log.
//!
//! **Guide**: the README and the documentation of `Config`, which leave everything at its defaults
//! but the size of the cache: leaf pages of 4 KiB, and of the reads that go to a leaf page three in
//! ten take their record along into memory. The cache has to be a power of two, so it is the
//! largest one that is not above the run's.
//!
//! **Durability**: none. The store has a log, but what would replay it is said to be incomplete,
//! and is: a split in it is not replayed. What it does have are snapshots, whole copies of the
//! store, and to be able to make one costs every operation. So nothing of a store is of use when
//! its process is gone, it has no synced puts, and its figures lack the bytes of a log. They count
//! what it writes to its file because its cache is full.
//!
//! **Keys** have 64 bytes at most, a key and its value together 1,900.
//!
//! **Values** are never empty in Bf-Tree. One of zeros alone, or of nothing, has one more here.
//!
//! **Scans** go forwards only, and an open scan holds the lock of a leaf, at which a writer would
//! wait for ever. So steps look their place up again each time that some are asked for.
//!
//! **Settling** is short: there is nothing in the background.

use std::fs::File;
use std::hint::black_box;
use std::path::PathBuf;

use bf_tree::{BfTree, Config, LeafInsertResult, LeafReadResult, ScanReturnField};
use gabion_lab::Error;
use gabion_lab::target::{
    Batch, Cache, Counters, Session, Steps, Store, StoreOptions, Target, TargetCapabilities,
};
use serde_json::{Value, json};

use crate::{ABILITIES, check_existing, is_zeros, peer_error, saturated};

const NAME: &str = "bf-tree";

pub(crate) const TARGET: Target = Target {
    name: NAME,
    about: "Bf-Tree 0.5.7 without its log, a B tree with pages for hot records, in Rust",
    abilities: TargetCapabilities {
        backward: false,
        synced_writes: false,
        persistent: false,
        ..ABILITIES
    },
    cache: Cache::Own,
    loses: "all of it, by the death of the process: it has no log here",
    open,
};

const FILE: &str = "records.bftree";

/// The longest key.
const KEY_BYTES_MAX: usize = 64;

/// A key and a value together, at most; what is left of Bf-Tree's own 1,952 goes to longer keys.
const RECORD_BYTES_MAX: usize = 1900;

/// A key and a value together, at least: of one byte each.
const RECORD_BYTES_MIN: usize = 2;

/// The smallest cache: the default one of Bf-Tree.
const CACHE_BYTES_MIN: u64 = 32 << 20;

pub(crate) struct BfTreeStore {
    tree: BfTree,
    file: PathBuf,
    settings: Value,
}

fn fail(error: impl std::fmt::Display) -> Error {
    peer_error(NAME, error)
}

fn open(asked: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(BfTreeStore::open(asked)?))
}

impl BfTreeStore {
    fn open(asked: &StoreOptions) -> Result<BfTreeStore, Error> {
        check_existing(NAME, asked, FILE)?;
        if asked.existing {
            return Err(fail("without its log it does not open a store again"));
        }
        let cache_bytes: usize = saturated(asked.cache_bytes.max(CACHE_BYTES_MIN));
        let cache_bytes = 1 << cache_bytes.ilog2();
        let file = asked.dir.join(FILE);
        // It panics where it cannot make its file.
        File::create_new(&file).map_err(|error| fail(format!("{}: {error}", file.display())))?;
        let mut config = Config::new(&file, cache_bytes);
        config
            .cb_max_key_len(KEY_BYTES_MAX)
            .cb_min_record_size(RECORD_BYTES_MIN)
            .cb_max_record_size(RECORD_BYTES_MAX);
        let tree = BfTree::with_config(config, None).map_err(|error| fail(format!("{error:?}")))?;
        let settings = json!({
            "guide": "Bf-Tree's README and the documentation of its Config",
            "compression": "none",
            "cb_size_byte": cache_bytes,
            "leaf_page_size": "4096 (default)",
            "read_promotion_rate": "30 % (default)",
            "cb_max_key_len": KEY_BYTES_MAX,
            "cb_max_record_size": RECORD_BYTES_MAX,
            "storage_backend": "Std: pread and pwrite (default)",
            "threads": "none in the background",
            "put": "in memory or in a page of the file, without a log",
            "put_synced": "none",
            "write": "puts and deletes one after the other, not atomic",
        });
        Ok(BfTreeStore {
            tree,
            file,
            settings,
        })
    }
}

impl Store for BfTreeStore {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(BfTreeSession {
            tree: &self.tree,
            record: vec![0; KEY_BYTES_MAX + RECORD_BYTES_MAX],
        }))
    }

    fn settle(&self) -> Result<(), Error> {
        // So that nobody pays for writing back what a phase before has written.
        let synced = File::open(&self.file).and_then(|file| file.sync_data());
        synced.map_err(|error| fail(format!("{}: {error}", self.file.display())))
    }

    fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    fn settings(&self) -> Value {
        self.settings.clone()
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

struct BfTreeSession<'a> {
    tree: &'a BfTree,
    /// Room for the longest record.
    record: Vec<u8>,
}

fn put(tree: &BfTree, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let inserted = match is_zeros(value) {
        true => tree.insert(key, &vec![0; value.len() + 1]),
        false => tree.insert(key, value),
    };
    match inserted {
        LeafInsertResult::Success => Ok(()),
        LeafInsertResult::InvalidKV(why) => Err(fail(why)),
    }
}

/// Steps over at most `entries` records from `from` on, or from behind it; `record` has the key of
/// the last one and its value behind it. Returns how many there were, and the size of that key.
fn step(
    tree: &BfTree,
    (from, is_behind): (&[u8], bool),
    entries: usize,
    record: &mut [u8],
) -> Result<(usize, usize), Error> {
    // Nothing is below a key of one zero but the empty one, which Bf-Tree does not have.
    let from = if from.is_empty() { &[0] } else { from };
    let wanted = entries.saturating_add(usize::from(is_behind));
    if wanted == 0 {
        return Ok((0, 0));
    }
    let scan = tree.scan_with_count(from, wanted, ScanReturnField::KeyAndValue);
    let mut scan = scan.map_err(|error| fail(format!("{error:?}")))?;
    let (mut count, mut size) = (0, 0);
    while count < entries {
        let Some((key_size, value_size)) = scan.next(record) else {
            break;
        };
        black_box(&record[..key_size + value_size]);
        if is_behind && count == 0 && record[..key_size] == *from {
            continue;
        }
        (count, size) = (count + 1, key_size);
    }
    Ok((count, size))
}

impl Session for BfTreeSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        put(self.tree, key, value)
    }

    fn put_synced(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), Error> {
        Err(fail("without its log it has no synced puts"))
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        for (key, value) in batch.iter() {
            match value {
                Some(value) => put(self.tree, key, value)?,
                None => self.tree.delete(key),
            }
        }
        Ok(())
    }

    fn write_synced(&mut self, _batch: &Batch) -> Result<(), Error> {
        Err(fail("without its log it has no synced writes"))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.tree.delete(key);
        Ok(())
    }

    fn get(&mut self, key: &[u8]) -> Result<bool, Error> {
        match self.tree.read(key, &mut self.record) {
            LeafReadResult::Found(size) => {
                black_box(&self.record[..size as usize]);
                Ok(true)
            }
            LeafReadResult::NotFound | LeafReadResult::Deleted => Ok(false),
            LeafReadResult::InvalidKey => Err(fail(format!("no key has {} bytes", key.len()))),
        }
    }

    fn scan(&mut self, from: &[u8], entries: usize) -> Result<usize, Error> {
        Ok(step(self.tree, (from, false), entries, &mut self.record)?.0)
    }

    fn steps(&mut self, from: &[u8]) -> Result<Steps<'_>, Error> {
        let mut from = from.to_vec();
        let mut is_behind = false;
        Ok(Box::new(move |entries| {
            let place = (&*from, is_behind);
            let (count, key_size) = step(self.tree, place, entries, &mut self.record)?;
            if count > 0 {
                from.clear();
                from.extend_from_slice(&self.record[..key_size]);
                is_behind = true;
            }
            Ok(count)
        }))
    }

    fn steps_back(&mut self, _from: &[u8]) -> Result<Steps<'_>, Error> {
        Err(fail("it cannot scan in reverse order"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Values come back as they were put, those of zeros too, which are kept in another form.
    #[test]
    fn values_are_those_that_were_put() {
        let dir = tempfile::tempdir().unwrap();
        let store = BfTreeStore::open(&crate::tests::options(dir.path(), false)).unwrap();
        let mut map = BTreeMap::new();
        for i in 0..5000_usize {
            let key = format!("key {:04}", i % 2500).into_bytes();
            let value = match i % 5 {
                0 => vec![0; i % 300],
                _ => format!("{i} ").repeat(i % 40).into_bytes(),
            };
            put(&store.tree, &key, &value).unwrap();
            map.insert(key, value);
        }
        let mut record = vec![0; RECORD_BYTES_MAX];
        for (key, value) in &map {
            let LeafReadResult::Found(size) = store.tree.read(key, &mut record) else {
                panic!("{key:?} is lost");
            };
            let mut held = &record[..size as usize];
            if is_zeros(held) {
                held = &held[1..];
            }
            assert_eq!(held, value);
        }
        assert!(map.values().any(Vec::is_empty));
    }

    #[test]
    fn what_is_too_long_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let store = BfTreeStore::open(&crate::tests::options(dir.path(), false)).unwrap();
        let mut session = store.session().unwrap();
        let long = [1; 3000];
        assert!(session.put(b"key", &long).is_err());
        assert!(session.put(&long[..65], b"value").is_err());
        assert!(session.get(&long[..65]).is_err());
        assert!(session.put(&long[..64], &long[..1836]).is_ok());
        assert!(session.get(&long[..64]).unwrap());
    }
}
