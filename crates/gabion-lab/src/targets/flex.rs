//! Gabion's FlexDB engine as a target.

use gabion::{Db, Engine};
use serde_json::json;

use super::gabion_store::{counters, opened, options_of};
use crate::Error;
use crate::target::{Cache, Store, StoreOptions, Target, TargetCapabilities};

/// The target `flex`.
pub const TARGET: Target = Target {
    name: "flex",
    about: concat!(
        "Gabion's FlexDB engine, version ",
        env!("CARGO_PKG_VERSION")
    ),
    abilities: TargetCapabilities {
        ordered: true,
        backward: true,
        synced_writes: true,
        persistent: true,
        files: true,
        transactions: true,
        merges: false,
    },
    cache: Cache::Own,
    loses: "by a power loss what was not synced; what is left is a prefix of the puts",
    open,
};

/// The target `flex-counters`.
pub const COUNTERS: Target = Target {
    name: "flex-counters",
    about: "flex with a keyspace of counters",
    abilities: TargetCapabilities {
        merges: true,
        ..TARGET.abilities
    },
    open: |options| {
        let (db, settings) = open_db(options)?;
        counters(db, settings)
    },
    ..TARGET
};

fn open(options: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    let (db, settings) = open_db(options)?;
    Ok(opened(db, settings))
}

/// An open store, and what it was set to.
fn open_db(options: &StoreOptions) -> Result<(Db, serde_json::Value), Error> {
    let store = options_of(Engine::Flex, options);
    let sizes = store.memory_sizes();
    let settings = json!({
        "durability": store.durability.to_string(),
        "cache_bytes": sizes.cache,
        "memtable_budget_bytes": sizes.memtables,
        "log_bytes_max": store.log_bytes_max,
        "background_threads": store.background_threads,
    });
    Ok((store.open(&options.dir)?, settings))
}
