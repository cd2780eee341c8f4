//! What only engines use whose stores are one mapped file.

use std::path::PathBuf;

use super::rules::{check_rules, setters};
use crate::Result;

/// Options of [mapped](crate::Capabilities::mapped) engines:
/// [`Engine::Scmkv`](crate::Engine::Scmkv) and [`Engine::Sptree`](crate::Engine::Sptree). They
/// apply to a new store. An existing store keeps its own, and other engines ignore them.
///
/// ```
/// use gabion::{Engine, MappedOptions, Options};
///
/// let mapped = MappedOptions::default().pool_bytes(1 << 30).expected_records(1_000_000);
/// let options = Options::default().engine(Engine::Scmkv).mapped(mapped);
/// # options.check().unwrap();
/// ```
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct MappedOptions {
    /// Size of the store's file in bytes, which never grows beyond it. The store reserves its space
    /// as needed, in steps of a 64th of this, and keeps it; so it is a limit that few stores reach.
    /// At least 64 MiB. Default: 8 GiB, with which an empty store takes 128 MiB.
    pub pool_bytes: u64,
    /// Path of that file, if not in the store's directory: for example on persistent memory or in
    /// shared memory. The store records it. Default: `None`.
    pub pool_path: Option<PathBuf>,
    /// Whether a store in an ordinary file or in shared memory has a checkpoint in its directory,
    /// from which it recovers after a power loss. Without a checkpoint it survives only the end of
    /// the process: it refuses [`Durability::Sync`](crate::Durability::Sync), treats
    /// [`Durability::Interval`](crate::Durability::Interval) as
    /// [`Durability::Buffered`](crate::Durability::Buffered), and is lost if the system goes down
    /// while it is open. Persistent memory needs none. Default: true.
    pub checkpoints: bool,
    /// Number of records to plan for: the hash table begins with at least twice as many buckets.
    /// With many more records, it doubles while the store is in use. Default: 0, for 65,536.
    pub expected_records: u64,
}

impl Default for MappedOptions {
    fn default() -> MappedOptions {
        MappedOptions {
            pool_bytes: 8 << 30,
            pool_path: None,
            checkpoints: true,
            expected_records: 0,
        }
    }
}

setters!(MappedOptions {
    pool_bytes: u64,
    pool_path: Option<PathBuf>,
    checkpoints: bool,
    expected_records: u64,
});

impl MappedOptions {
    /// Checks every value that could not work.
    pub(super) fn check(&self) -> Result<()> {
        check_rules(&[(
            "pool_bytes",
            (64 << 20..=1 << 47).contains(&self.pool_bytes),
            "it must be between 64 MiB and 128 TiB",
        )])
    }
}
