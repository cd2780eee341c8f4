//! Tests of the store: against its naive twin, under crashes, with several threads, and short of
//! space.

mod checkpoints;
mod concurrent;
mod crash;
mod model;
mod mutants;
mod recovery;
mod relaxed;
mod space;

use gabion_media::pmem::{Pool, PoolOptions};

use super::{Options, Scmkv};
use crate::Result;

/// Options of pools with chunks for the smallest pages.
fn pool_options(size: u64) -> PoolOptions {
    PoolOptions {
        size,
        heaps: 4,
        chunk_bytes: 4096,
        ..Scmkv::pool_options()
    }
}

/// A pool in memory with such chunks.
fn pool(size: u64) -> Pool {
    Pool::anonymous(pool_options(size)).expect("memory")
}

/// A store of small pages with few buckets and no thread of its own.
fn small() -> Options {
    Options {
        capacity: Some(2),
        page_bytes: 4096,
        seed: Some(7),
        logs: Some(1),
        cleans: false,
        ..Options::default()
    }
}

/// All invariants hold, and no block of the pool is lost.
fn check(store: &Scmkv) -> std::result::Result<u64, String> {
    let checked = store.check().map_err(|error| error.to_string())?;
    let len = store.len().map_err(|error| error.to_string())?;
    let used = store.pool().stats().used_blocks;
    if checked.entries != len {
        return Err(format!("{} entries, the length is {len}", checked.entries));
    }
    if checked.blocks != used {
        return Err(format!(
            "{used} blocks are in use, {} reachable",
            checked.blocks
        ));
    }
    Ok(len)
}

/// A key by its number: strings of 0 to 39 bytes, many of which are prefixes of others.
fn key(number: u64) -> Vec<u8> {
    let mut key = number.to_le_bytes().to_vec();
    key.resize(8 + usize::try_from(number % 32).expect("small"), 0);
    // The first key is the empty string.
    if number == 0 { Vec::new() } else { key }
}

/// A value by its number, of 8 to 548 bytes; that of number 0 is empty.
fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    let length = usize::try_from(number % 7 * 90).expect("small");
    value.resize(8 + length, value[0]);
    if number == 0 { Vec::new() } else { value }
}

/// The number of a value, if it is whole.
fn number_of(bytes: &[u8]) -> Option<u64> {
    let number = bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (value(number) == bytes).then_some(number)
}

/// The number of a key.
fn number_of_key(bytes: &[u8]) -> Option<u64> {
    let number = bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (key(number) == bytes).then_some(number)
}

/// All entries by number, each one also looked up.
fn content(store: &Scmkv) -> std::result::Result<std::collections::BTreeMap<u64, u64>, String> {
    let mut content = std::collections::BTreeMap::new();
    let all: Result<Vec<_>> = store.iter().collect();
    for (key, value) in all.map_err(|error| error.to_string())? {
        let got = store.get(&key).map_err(|error| error.to_string())?;
        if got.as_ref() != Some(&value) {
            return Err(format!("{key:?} is {value:?} in a walk, {got:?} by a get"));
        }
        let number = number_of(&value).ok_or_else(|| format!("half a value: {value:?}"))?;
        let key = number_of_key(&key).ok_or_else(|| format!("half a key: {key:?}"))?;
        if content.insert(key, number).is_some() {
            return Err(format!("key {key} is there twice"));
        }
    }
    Ok(content)
}
