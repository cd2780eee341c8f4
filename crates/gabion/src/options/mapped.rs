//! What only engines use whose stores are one mapped file.

use std::path::PathBuf;

use super::rules::{check_rules, setters};
use crate::Result;

/// Options of [mapped](crate::Capabilities::mapped) engines:
/// [`Engine::Scmkv`](crate::Engine::Scmkv) and [`Engine::Sptree`](crate::Engine::Sptree). They hold
/// for a store that is made. One that exists keeps its own, and other engines have no use for them.
///
/// ```
/// use gabion::{Engine, MappedOptions, Options};
///
/// let mapped = MappedOptions::default().pool_bytes(1 << 30).records_planned(1_000_000);
/// let options = Options::default().engine(Engine::Scmkv).mapped(mapped);
/// # options.check().unwrap();
/// ```
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct MappedOptions {
    /// Size of the store's file in bytes: it is never larger. Its space is reserved as it is
    /// needed, in steps of a 64th of this, and kept: so it is a limit that few stores meet. At
    /// least 64 MiB. Default: 8 GiB, with which an empty store takes 128 MiB.
    pub pool_bytes: u64,
    /// Where that file lies, if not in the store's directory: on persistent memory, in shared
    /// memory. Noted in the store. Default: `None`.
    pub pool_path: Option<PathBuf>,
    /// Whether a store that lies in an ordinary file, or in shared memory, has a checkpoint in its
    /// directory, to which it is brought back after a power loss. Without one it survives the end
    /// of the process only, [`Durability::Sync`](crate::Durability::Sync) is refused,
    /// [`Durability::Interval`](crate::Durability::Interval) is as
    /// [`Durability::Buffered`](crate::Durability::Buffered), and a store that is open while the
    /// system goes down is lost. Persistent memory needs none. Default: true.
    pub checkpoints: bool,
    /// Records that the store should be ready for: its hash table has at least twice as many
    /// buckets. With many more, it doubles while the store is in use. Default: 0, for 65,536.
    pub records_planned: u64,
}

impl Default for MappedOptions {
    fn default() -> MappedOptions {
        MappedOptions {
            pool_bytes: 8 << 30,
            pool_path: None,
            checkpoints: true,
            records_planned: 0,
        }
    }
}

setters!(MappedOptions {
    pool_bytes: u64,
    pool_path: Option<PathBuf>,
    checkpoints: bool,
    records_planned: u64,
});

impl MappedOptions {
    /// Checks every value that could not work.
    pub(super) fn check(&self) -> Result<()> {
        check_rules(&[(
            "pool_bytes",
            (64 << 20..=1 << 47).contains(&self.pool_bytes),
            "64 MiB are the least that a store needs, and 128 TiB the most that it can use",
        )])
    }
}
