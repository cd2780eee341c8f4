//! Gabion: a key-value storage engine for fast storage.
//!
//! Gabion keeps keys and values durably in a directory, in key order with every engine but
//! [`Engine::Scmkv`]. It moves data as little as the physics of the medium allows, and reports
//! where every written byte went.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("store");
//! use gabion::{Db, Durability, Options, WriteBatch};
//!
//! let db = Options::default().durability(Durability::Sync).open(&path)?;
//! db.put("stone", "granite")?;
//!
//! let mut batch = WriteBatch::new();
//! batch.put(db.default_keyspace(), "basket", "wire")?;
//! batch.delete(db.default_keyspace(), "stone")?;
//! db.write(batch)?;
//!
//! let before = db.snapshot();
//! db.put("basket", "willow")?;
//! assert_eq!(before.get(db.default_keyspace(), "basket")?.as_deref(), Some(&b"wire"[..]));
//! println!("write amplification: {:.2}", db.stats().write_amplification_with_log);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//! - An acknowledged write survives what its [`Durability`] says. The default always survives the
//!   death of the process, and a power loss except for the last 100 ms.
//! - A crash leaves a prefix of the writes; a [`WriteBatch`] is whole or absent. [`Engine::Scmkv`]
//!   on persistent memory is the one exception: a power loss may take the newest writes of each
//!   thread that were not at [`Durability::Sync`].
//! - [`Engine::Wip`] and [`Engine::Flex`] check data when they first read it from the medium,
//!   [`Engine::Sptree`] when the store is opened, [`Engine::Scmkv`] at each read. Damage is an
//!   [`Error`] that names the file and the offset.
//! - After a failed sync the store is read-only until you reopen it; it never retries a failed sync
//!   and then acknowledges the writes.
//! - A store is open once at a time, in one process.
//!
//! # Where to read on
//! [`Db`] and [`Keyspace`] are the store, [`Options`] configure it, [`Stats`] report what it did.
//! [`Engine`] lists the engines and [`Capabilities`] what each can do. [`check`](check()) and
//! [`repair`](repair()) work on closed stores. The book in `docs` explains how to choose, tune and
//! operate a store, `ARCHITECTURE.md` how it is built.
//!
//! # Features
//! No feature is on by default. `pm` adds [`Engine::Scmkv`], [`Engine::Sptree`] and the module
//! `pm`, structures in persistent memory without a store around them. `zstd` adds
//! [`Compression::Zstd`], and compiles C.

#![deny(missing_debug_implementations)]

mod backup;
mod batch;
mod bytes;
mod cache;
mod capabilities;
mod changes;
mod clock;
mod compaction_filter;
mod db;
mod engine;
mod error;
mod expiry;
mod ingest;
mod iter;
pub mod key;
mod keyspace;
mod keyspace_expiry;
mod keyspace_merge;
mod keyspace_options;
mod limits;
mod log;
mod memory;
mod merge;
mod names;
mod new_dir;
mod operands;
mod options;
#[cfg(feature = "pm")]
pub mod pm;
mod position;
mod ranges;
mod sizes;
#[expect(unsafe_code, reason = "pages are cut into slots, which several share")]
mod slabs;
mod slice;
mod snapshot;
mod stats;
mod store_handle;
mod stripe;
#[doc(hidden)]
pub mod text;
mod threads;
mod transaction;
mod types;

pub use backup::{
    ArchivedLog, BackupInfo, BackupList, BackupLog, BackupOptions, BackupProgress,
    BackupRepository, PruneReport, RestoreUntil, RestoredUntil, RetentionPolicy, VerifyReport,
};
pub use batch::WriteBatch;
pub use capabilities::{Capabilities, Engine};
pub use changes::{
    Change, ChangeAction, Changes, ChangesOptions, Consumer, ConsumerInfo, MergeBase, Operation,
};
pub use clock::Clock;
pub use compaction_filter::{CompactionFilter, FilterDecision, SharedCompactionFilter};
pub use db::{DEFAULT_KEYSPACE, Db};
pub use engine::{
    CheckReport, LostEntries, Problem, RepairReport, check, check_disk, destroy, destroy_disk,
    repair, repair_disk,
};
pub use error::{Error, Result};
pub use expiry::Expiry;
pub use gabion_flex::ReaderWaits;
pub use gabion_media::Error as MediaError;
pub use ingest::Ingest;
pub use iter::{Cursor, Iter, Pairs};
pub use keyspace::Keyspace;
pub use keyspace_options::KeyspaceOptions;
pub use merge::{
    AddI64, AddU64, Append, BitOr, MaxBytes, Merge, MergeError, MergeOperator, MinBytes,
};
pub use options::{
    Compression, Durability, MappedOptions, MemTableForm, Options, TableReads, Tuning,
};
pub use position::Position;
pub use sizes::MemorySizes;
pub use slice::Slice;
pub use snapshot::Snapshot;
pub use stats::{
    BucketStats, CacheStats, FollowerStats, GarbageStats, KeyspaceStats, MappedStats, MemoryStats,
    PageStats, Stats, WrittenBytes,
};
pub use transaction::{Isolation, Savepoint, Transaction, TransactionIter, TransactionOptions};

/// The programs in README.md and in the book compile, and those that need no store run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/backups.md")]
#[doc = include_str!("../../../docs/changes.md")]
#[doc = include_str!("../../../docs/choosing.md")]
#[doc = include_str!("../../../docs/durability.md")]
#[doc = include_str!("../../../docs/engines/scmkv.md")]
#[doc = include_str!("../../../docs/engines/wip.md")]
#[doc = include_str!("../../../docs/getting-started.md")]
#[doc = include_str!("../../../docs/indexes.md")]
#[doc = include_str!("../../../docs/indexes/baselines.md")]
#[doc = include_str!("../../../docs/indexes/cceh.md")]
#[doc = include_str!("../../../docs/indexes/clevel.md")]
#[doc = include_str!("../../../docs/indexes/dash.md")]
#[doc = include_str!("../../../docs/indexes/fastfair.md")]
#[doc = include_str!("../../../docs/indexes/layers.md")]
#[doc = include_str!("../../../docs/indexes/level.md")]
#[doc = include_str!("../../../docs/indexes/p-art.md")]
#[doc = include_str!("../../../docs/indexes/p-bwtree.md")]
#[doc = include_str!("../../../docs/indexes/p-clht.md")]
#[doc = include_str!("../../../docs/indexes/p-hot.md")]
#[doc = include_str!("../../../docs/indexes/p-masstree.md")]
#[doc = include_str!("../../../docs/indexes/p-skiplist.md")]
#[doc = include_str!("../../../docs/indexes/sptree.md")]
#[doc = include_str!("../../../docs/indexes/turbohash.md")]
#[doc = include_str!("../../../docs/transactions.md")]
#[doc = include_str!("../../../docs/tuning.md")]
struct Book;
