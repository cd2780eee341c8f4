//! Gabion's SPTree engine as a target.

use gabion::{Engine, MappedOptions};
use serde_json::json;

use super::gabion_store::{opened, options_of};
use crate::Error;
use crate::target::{Cache, Store, StoreOptions, Target, TargetCapabilities};

/// The target `sptree`.
pub const TARGET: Target = Target {
    name: "sptree",
    about: concat!(
        "Gabion's SPTree engine, version ",
        env!("CARGO_PKG_VERSION")
    ),
    abilities: TargetCapabilities {
        ordered: true,
        backward: true,
        synced_writes: true,
        persistent: true,
        files: true,
        transactions: false,
        merges: false,
    },
    cache: Cache::Page,
    loses: "by a power loss what was put since the last checkpoint",
    open,
};

/// What a record takes in a pool beside its bytes, at most: its item's head and checksum, what the
/// allocator rounds up, its share of a leaf that is half full and of the copy of a batch.
const OVERHEAD_BYTES: u64 = 128;
/// Space besides, in bytes.
const SPARE_BYTES: u64 = 256 << 20;

/// A pool for twice the records: old items wait for their last readers.
fn pool_bytes(options: &StoreOptions) -> u64 {
    let record_bytes = options.record_bytes.saturating_add(OVERHEAD_BYTES);
    record_bytes
        .saturating_mul(options.records.saturating_mul(2))
        .saturating_add(SPARE_BYTES)
}

fn open(options: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    let mapped = MappedOptions::default()
        .pool_bytes(pool_bytes(options))
        .expected_records(options.records);
    let store = options_of(Engine::Sptree, options).mapped(mapped);
    let settings = json!({
        "durability": store.durability.to_string(),
        "pool_bytes": store.mapped.pool_bytes,
        "background_threads": store.background_threads,
    });
    Ok(opened(store.open(&options.dir)?, settings))
}
