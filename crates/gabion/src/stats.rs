//! What a store did and what it holds: as a struct and as JSON.

use std::time::Duration;

use gabion_media::{Purpose, WriteCounts};
use serde::Serialize;

/// Counts since the store was opened, and sizes as they are now. Bytes unless a name says else.
///
/// The words are WipDB's. With the other engines they stand for what comes nearest; what has no
/// counterpart is 0.
///
/// | | `Wip` | `Flex` | `Scmkv` | `Sptree` |
/// |---|---|---|---|---|
/// | bytes of tables | table files | spaces: segments, trees, logs | pages in use | all blocks |
/// | `buckets` | buckets | keyspaces | 0 | 0 |
/// | `flushes` | MemTables that became tables | generations merged | 0 | 0 |
/// | `compactions` | merges of runs | calls of `compact` with changes | emptied pages | 0 |
/// | `splits` | of buckets | 0 | 0 | leaves more than at the opening |
/// | `index_and_filter_bytes` | of open tables | of spaces, and for snapshots | 0 | all memory |
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = gabion::Db::open(dir.path())?;
/// db.put("stone", "granite")?;
/// let stats = db.stats();
/// assert_eq!((stats.writes, stats.user_bytes), (1, 12));
/// assert!(stats.to_json().contains("\"user_bytes\": 12"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stats {
    /// Bytes of keys and values that were written by the user.
    pub user_bytes: u64,
    /// Number of writes: single operations and batches.
    pub writes: u64,
    /// Bytes written to the medium, by purpose.
    pub written: WrittenBytes,
    /// Syncs of files and directories.
    pub syncs: u64,
    /// Bytes written without the log, per byte of the user: the papers' convention. 0 before the
    /// first write.
    pub write_amplification_without_log: f64,
    /// What [`Stats::write_amplification_without_log`] is at most while the store is filled, by
    /// what its buckets and its memory for MemTables are now; none where an engine has no such
    /// bound, or the data are too large for the memory. What is done for readers at leisure, at the
    /// wish of a user and for the age of garbage comes on top.
    pub write_amplification_bound: Option<f64>,
    /// Bytes written, log included, per byte of the user. 0 before the first write.
    pub write_amplification_with_log: f64,

    /// Bytes of log segments that are kept for recovery.
    pub log_bytes: u64,
    /// Bytes that the log's files take: the segments, the rest of the one that is written, and
    /// those that are kept for what comes next. A store that nobody writes to gives them back.
    pub log_file_bytes: u64,
    /// Bytes of log segments that are kept for [consumers](crate::Db::consumer) alone, which are
    /// among those. At most [`Options::changes_bytes_max`](crate::Options::changes_bytes_max).
    pub log_bytes_kept_for_consumers: u64,
    /// Memory of the MemTables.
    pub memtable_bytes: u64,
    /// The block cache.
    pub cache: CacheStats,
    /// Memory of the indexes and filters that are loaded.
    pub index_and_filter_bytes: u64,
    /// All memory that counts towards [`crate::Options::memory_bytes_max`].
    pub memory: MemoryStats,
    /// Bytes of all tables.
    pub table_bytes: u64,
    /// What of the tables a reader of now can see, estimated from counts and sketches of keys: the
    /// bytes that full compactions would leave.
    pub live_bytes: u64,
    /// The same, estimated low: [`crate::Options::space_amplification_max`] is kept by this.
    pub live_bytes_min: u64,
    /// Bytes of all tables over `live_bytes`; 1 for no tables.
    pub space_amplification: f64,
    /// Bytes of all tables and of the log's files over `live_bytes`.
    pub space_amplification_with_log: f64,
    /// What of the tables nobody sees.
    pub garbage: GarbageStats,
    /// Bytes of all files of the store: its tables and its log.
    pub space_bytes: u64,
    /// Number of table files.
    pub tables: u64,
    /// Number of buckets.
    pub buckets: u64,
    /// Number of buckets whose MemTable keeps its keys in order, because they are searched by range
    /// between their writes.
    pub buckets_in_order: u64,

    /// MemTables that became tables.
    pub flushes: u64,
    /// Compactions, those that moved files without writing included.
    pub compactions: u64,
    /// Buckets that were split.
    pub splits: u64,
    /// How often small neighbours became one bucket.
    pub joins: u64,
    /// Small tables that compactions wrote anew, as one with their neighbours, where they moved
    /// larger ones as they are: tables of keys that come in order.
    pub gathered: u64,
    /// Tables that compactions dropped unread, because all in them had expired.
    pub dropped_unread: u64,
    /// Time that writers were slowed down or stopped, in nanoseconds.
    pub slowdown_ns: u64,
    /// Time that writers were stopped, in nanoseconds.
    pub stall_ns: u64,
    /// How often a writer was stopped.
    pub stalls: u64,
    /// The longest time that a single write was held back, in nanoseconds.
    pub slowdown_ns_max: u64,
    /// Time that jobs of the background waited for
    /// [`crate::Tuning::background_bytes_per_second_max`], in nanoseconds.
    pub background_wait_ns: u64,

    /// Number of writes that readers see, over the store's whole life.
    pub visible_seq: u64,
    /// Snapshots, transactions and iterators that are open.
    pub snapshots: u64,
    /// Transactions that are open.
    pub transactions: u64,
    /// How long the oldest of them has been open, in nanoseconds.
    pub transaction_age_ns_max: u64,
    /// The durability at which the store runs, as [`crate::Durability`] prints it.
    pub durability: String,
    /// Why the store takes no more writes, if it does not.
    pub read_only: Option<String>,
    /// How far a [follower](crate::Options::follower) is behind, if the store is one.
    pub follower: Option<FollowerStats>,
    /// What each keyspace holds.
    pub keyspaces: Vec<KeyspaceStats>,
    /// The file of a store that is [mapped](crate::Capabilities::mapped), while it is open.
    pub mapped: Option<MappedStats>,
}

impl Stats {
    /// All of it as a JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and strings always become JSON")
    }
}

/// How far a follower is behind the store that it follows, and what it did for that.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FollowerStats {
    /// Writes that the log has and readers of the follower do not see yet.
    pub lag_writes: u64,
    /// Their bytes in the log. As of the writes, those are not in it which the log does not have
    /// any more.
    pub lag_bytes: u64,
    /// How long ago the follower had caught up, in nanoseconds; 0 if nothing was written since.
    pub lag_ns: u64,
    /// How often it has caught up.
    pub catch_ups: u64,
    /// How often it was so far behind that it began again with the manifest.
    pub reopened: u64,
}

/// Bytes written to the medium, by purpose.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WrittenBytes {
    /// The write-ahead log.
    pub log: u64,
    /// MemTables written to tables.
    pub flush: u64,
    /// Tables merged within a bucket.
    pub compaction: u64,
    /// Tables rewritten because their bucket was split.
    pub split: u64,
    /// Tables rewritten because buckets were merged.
    pub merge: u64,
    /// Garbage collection.
    pub gc: u64,
    /// Checkpoints.
    pub checkpoint: u64,
    /// The manifest and other records of the store's structure.
    pub metadata: u64,
}

impl WrittenBytes {
    /// What a disk has counted.
    pub(crate) fn of(counts: &WriteCounts) -> WrittenBytes {
        WrittenBytes {
            log: counts.bytes_of(Purpose::Log),
            flush: counts.bytes_of(Purpose::Flush),
            compaction: counts.bytes_of(Purpose::Compaction),
            split: counts.bytes_of(Purpose::Split),
            merge: counts.bytes_of(Purpose::Merge),
            gc: counts.bytes_of(Purpose::Gc),
            checkpoint: counts.bytes_of(Purpose::Checkpoint),
            metadata: counts.bytes_of(Purpose::Metadata),
        }
    }

    /// Everything.
    pub fn total(&self) -> u64 {
        self.log + self.without_log()
    }

    /// The purposes that wrote something, with their bytes.
    pub fn by_purpose(&self) -> Vec<(&'static str, u64)> {
        let mut purposes = vec![
            ("log", self.log),
            ("flush", self.flush),
            ("compaction", self.compaction),
            ("split", self.split),
            ("merge", self.merge),
            ("gc", self.gc),
            ("checkpoint", self.checkpoint),
            ("metadata", self.metadata),
        ];
        purposes.retain(|(_, bytes)| *bytes > 0);
        purposes
    }

    /// Everything but the log.
    pub fn without_log(&self) -> u64 {
        let tables = self.flush + self.compaction + self.split + self.merge;
        tables + self.gc + self.checkpoint + self.metadata
    }
}

/// What of the tables nobody sees, estimated. Snapshots may need some of it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct GarbageStats {
    /// Bytes of old versions, of deleted keys and of tombstones.
    pub old_version_bytes: u64,
    /// Bytes that range deletes hide.
    pub deleted_range_bytes: u64,
    /// Bytes of tables that buckets share after a split which are in no bucket's part any more.
    pub shared_bytes: u64,
    /// Number of tombstones, range deletes included.
    pub tombstones: u64,
    /// Bytes of what has expired, estimated from a few moments of each table.
    pub expired_bytes: u64,
}

/// The block cache, which mapped tables do not use.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CacheStats {
    /// Blocks found in the cache.
    pub hits: u64,
    /// Blocks read from the medium.
    pub misses: u64,
    /// Bytes in the cache.
    pub bytes: u64,
    /// Bytes that the cache may use now.
    pub bytes_max: u64,
}

/// The memory of a store, by who has it. What users hold is not in it, nor the system's pages.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct MemoryStats {
    /// All of it.
    pub bytes: u64,
    /// The ceiling; 0 for an engine that has none.
    pub bytes_max: u64,
    /// Open tables: indexes, filters and the like, those that only readers still have included.
    pub tables: u64,
    /// MemTables, and what sorts them.
    pub memtables: u64,
    /// What MemTables may use now: less than [`crate::Tuning::memtable_budget_bytes`] if tables
    /// need much.
    pub memtables_max: u64,
    /// Chunks of MemTables that wait to be used again.
    pub recycled: u64,
    /// The block cache.
    pub cache: u64,
}

/// What a keyspace holds.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// The options that it has of its own, as [`crate::KeyspaceOptions`] prints them.
    pub options: String,
    /// Its buckets, in the order of their keys.
    pub buckets: Vec<BucketStats>,
}

/// What a bucket holds.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct BucketStats {
    /// The smallest key that belongs to the bucket, with bytes that are no printable ASCII escaped.
    pub lower: String,
    /// Memory of its MemTables; one that waits for its flush after a split counts for each bucket.
    pub memtable_bytes: u64,
    /// Whether the MemTable that takes its writes keeps its keys in order.
    pub memtable_in_order: bool,
    /// Bytes of the tables of each sublevel, newest first, by level. A table that several buckets
    /// share counts for each.
    pub levels: Vec<Vec<u64>>,
    /// Reads that had to look at its tables: gets that found nothing in MemTables, and scans. From
    /// samples of one in 64.
    pub reads: u64,
}

/// The file of a mapped store: what it is, what is in it, and what was done to it since the store
/// was opened. Bytes unless a name says else; what the engine has not is 0: a hash table and pages
/// are of `Scmkv`, leaves of `Sptree`.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Serialize)]
pub struct MappedStats {
    /// Its path.
    pub file: String,
    /// What it survives: `power`, `power-by-sync`, `process`.
    pub class: &'static str,
    /// Its size when all of it is in use.
    pub file_bytes_max: u64,
    /// Not in use, whether its space on the disk is reserved or not.
    pub free_bytes: u64,
    /// Number of buckets of the hash table.
    pub hash_buckets: u64,
    /// Whether the hash table is moving to one of twice the size.
    pub is_enlarging: bool,
    /// Lines of 64 bytes of the longest chain of the hash table. More than two say that it is too
    /// small; it is enlarged in the background then.
    pub longest_chain_lines: u64,
    /// Of a page.
    pub page_bytes: u64,
    /// Number of pages that there can be.
    pub pages_max: u64,
    /// Number of pages that were emptied.
    pub cleaned_pages: u64,
    /// Moved for that.
    pub moved_bytes: u64,
    /// Number of records that were lost with the power, as the opening found.
    pub rolled_back: u64,
    /// Number of leaves of the tree.
    pub leaves: u64,
    /// In the checkpoint's file.
    pub checkpoint_bytes: u64,
    /// What is in each page.
    pub pages: Vec<PageStats>,
}

/// A page of a mapped store.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PageStats {
    /// Its number.
    pub number: u32,
    /// `log` for records, `chains` for parts of the hash table, `reserve` for one that is empty.
    pub usage: &'static str,
    /// Whether it takes no more.
    pub is_full: bool,
    /// Bytes in it that are live; `None` if they were not counted since a crash.
    pub live_bytes: Option<u64>,
    /// Pages that became full since it did.
    pub age: u64,
}

/// `part` over `whole`; 0 when there is no whole.
#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio of byte counts for people"
)]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => part as f64 / whole as f64,
    }
}

/// A duration in nanoseconds, at most 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
