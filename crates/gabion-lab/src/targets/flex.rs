//! Gabion's FlexDB engine as a target.

use gabion::Engine;
use serde_json::json;

use super::gabion_store::{opened, options_of};
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
    },
    cache: Cache::Own,
    loses: "by a power loss what was not synced; what is left is a prefix of the puts",
    open,
};

fn open(options: &StoreOptions) -> Result<Box<dyn Store>, Error> {
    let store = options_of(Engine::Flex, options);
    let sizes = store.memory_sizes();
    let settings = json!({
        "durability": store.durability.to_string(),
        "cache_bytes": sizes.cache,
        "memtable_budget_bytes": sizes.memtables,
        "log_bytes_max": store.log_bytes_max,
        "background_threads": store.background_threads,
    });
    Ok(opened(store.open(&options.dir)?, settings))
}
