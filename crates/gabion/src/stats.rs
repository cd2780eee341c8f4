//! Statistics of a store: what it did and what it holds, as a struct and as JSON.

use std::time::Duration;

use gabion_media::{Purpose, WriteCounts};
use serde::Serialize;

/// Counts since the store was opened, and current sizes. Sizes are in bytes unless the name says
/// otherwise.
///
/// The names are WipDB's. For the other engines they mean the nearest counterpart; a field without
/// one is 0.
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
    /// Bytes of keys and values that the user wrote.
    pub user_bytes: u64,
    /// Number of writes: single operations and batches.
    pub writes: u64,
    /// Bytes written to the medium, by purpose.
    pub written: WrittenBytes,
    /// Syncs of files and directories.
    pub syncs: u64,
    /// Write amplification without the log, as the papers count it: bytes written per byte in
    /// `user_bytes`. 0 before the first write.
    pub write_amplification_without_log: f64,
    /// Upper bound of [`Stats::write_amplification_without_log`] while the store is filled, given
    /// its present buckets and MemTable memory. `None` if the engine has no bound, or if the data
    /// is too large for the memory. Compactions for readers at leisure, at a user's call, and
    /// because of the age of garbage come on top.
    pub write_amplification_bound: Option<f64>,
    /// Write amplification with the log: bytes written per byte in `user_bytes`. 0 before the first
    /// write.
    pub write_amplification_with_log: f64,

    /// Bytes of log segments that are kept for recovery.
    pub log_bytes: u64,
    /// Bytes of the log's files: full segments, the whole of the segment being written, and spare
    /// segments. An idle store frees the spare ones.
    pub log_file_bytes: u64,
    /// Bytes of log segments that are kept for [consumers](crate::Db::consumer) alone;
    /// `log_file_bytes` includes them. At most
    /// [`Options::changes_bytes_max`](crate::Options::changes_bytes_max).
    pub log_bytes_kept_for_consumers: u64,
    /// Memory of the MemTables.
    pub memtable_bytes: u64,
    /// The block cache.
    pub cache: CacheStats,
    /// Memory of the loaded indexes and filters.
    pub index_and_filter_bytes: u64,
    /// All memory that counts towards [`crate::Options::memory_bytes_max`].
    pub memory: MemoryStats,
    /// Bytes of all tables.
    pub table_bytes: u64,
    /// Estimated bytes of tables that current readers can see, which full compactions would leave.
    /// The estimate uses counts and sketches of keys.
    pub live_bytes: u64,
    /// A low estimate of the same. The store uses this one to keep
    /// [`crate::Options::space_amplification_max`].
    pub live_bytes_min: u64,
    /// Bytes of all tables over `live_bytes`; 1 for no tables.
    pub space_amplification: f64,
    /// Bytes of all tables and of the log's files over `live_bytes`.
    pub space_amplification_with_log: f64,
    /// Bytes of tables that current readers cannot see.
    pub garbage: GarbageStats,
    /// Bytes of all files of the store: its tables and its log.
    pub space_bytes: u64,
    /// Number of table files.
    pub tables: u64,
    /// Number of buckets.
    pub buckets: u64,
    /// Number of buckets whose MemTable keeps its keys in order, because range scans and writes
    /// alternate there.
    pub ordered_buckets: u64,

    /// MemTables flushed to tables.
    pub flushes: u64,
    /// Compactions, including those that only moved files.
    pub compactions: u64,
    /// Bucket splits.
    pub splits: u64,
    /// Joins of small neighbouring buckets into one.
    pub joins: u64,
    /// Small tables that compactions combined with their neighbours instead of moving them, as they
    /// move larger ones. Counts where keys are written in order.
    pub coalesced_tables: u64,
    /// Tables that compactions dropped without reading, because all their records had expired.
    pub expired_tables_dropped: u64,
    /// Time that writers were slowed down or stopped, in nanoseconds.
    pub slowdown_ns: u64,
    /// Time that writers were stopped, in nanoseconds.
    pub stall_ns: u64,
    /// Times that a writer was stopped.
    pub stalls: u64,
    /// Longest delay of a single write, in nanoseconds.
    pub slowdown_ns_max: u64,
    /// Time that background jobs waited for [`crate::Tuning::background_bytes_per_second_max`], in
    /// nanoseconds.
    pub background_wait_ns: u64,

    /// Number of writes that readers see, since the store was created.
    pub visible_seq: u64,
    /// Open snapshots, transactions and iterators.
    pub snapshots: u64,
    /// Open transactions.
    pub transactions: u64,
    /// Age of the oldest open transaction, in nanoseconds.
    pub transaction_age_ns_max: u64,
    /// The store's default durability, as [`crate::Durability`] prints it.
    pub durability: String,
    /// Why the store is read-only; `None` if it takes writes.
    pub read_only: Option<String>,
    /// The lag of a [follower](crate::Options::follower); `None` if the store is not one.
    pub follower: Option<FollowerStats>,
    /// What each keyspace holds.
    pub keyspaces: Vec<KeyspaceStats>,
    /// The file of an open [mapped](crate::Capabilities::mapped) store.
    pub mapped: Option<MappedStats>,
}

impl Stats {
    /// The statistics as a JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and strings always become JSON")
    }
}

/// How far a follower lags behind the store that it follows.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FollowerStats {
    /// Writes in the log that readers of the follower do not see yet.
    pub lag_writes: u64,
    /// Bytes of these writes in the log. Like `lag_writes`, it does not count writes that the log
    /// no longer has.
    pub lag_bytes: u64,
    /// Time since the follower had caught up, in nanoseconds; 0 if nothing was written since.
    pub lag_ns: u64,
    /// Number of times that it has caught up.
    pub catch_ups: u64,
    /// Number of times that it was so far behind that it read the whole manifest again.
    pub manifest_reloads: u64,
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
    /// The counts of a disk.
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

/// Estimate of what current readers cannot see in tables. Snapshots may need some of it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct GarbageStats {
    /// Bytes of old versions, of deleted keys and of tombstones.
    pub old_version_bytes: u64,
    /// Bytes that range deletes hide.
    pub deleted_range_bytes: u64,
    /// Bytes of tables shared after a split that no longer belong to any bucket's part.
    pub shared_bytes: u64,
    /// Number of tombstones, range deletes included.
    pub tombstones: u64,
    /// Bytes of expired records, estimated from a few expiry times of each table.
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

/// The memory of a store, by use. Memory that users hold and the system's page cache are not
/// included.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct MemoryStats {
    /// The sum of all uses.
    pub bytes: u64,
    /// The limit; 0 for an engine without one.
    pub bytes_max: u64,
    /// Indexes, filters and other memory of open tables, including removed tables that readers
    /// still use.
    pub tables: u64,
    /// MemTables, and the memory that sorts them.
    pub memtables: u64,
    /// What MemTables may use at present: less than [`crate::Tuning::memtable_budget_bytes`] if
    /// tables need much.
    pub memtables_max: u64,
    /// Free chunks of MemTables, kept for reuse.
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
    /// Its own options, as [`crate::KeyspaceOptions`] prints them.
    pub options: String,
    /// Its buckets, in the order of their keys.
    pub buckets: Vec<BucketStats>,
}

/// What a bucket holds.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct BucketStats {
    /// The smallest key that belongs to the bucket; bytes other than printable ASCII are escaped.
    pub lower: String,
    /// Memory of its MemTables. A MemTable that waits for its flush after a split counts for each
    /// of the new buckets.
    pub memtable_bytes: u64,
    /// Whether its active MemTable keeps its keys in order.
    pub memtable_is_ordered: bool,
    /// Bytes of the tables of each sublevel, newest first, by level. A table that several buckets
    /// share counts for each.
    pub levels: Vec<Vec<u64>>,
    /// Estimated number of reads that had to look at its tables: scans, and gets that found nothing
    /// in MemTables. One read in 64 is counted.
    pub reads: u64,
}

/// The file of a mapped store: what it holds, and what happened in it since the store was opened.
/// Sizes are in bytes unless the name says otherwise. Fields that the engine does not have are 0:
/// only `Scmkv` has a hash table and pages, only `Sptree` has leaves.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Serialize)]
pub struct MappedStats {
    /// Its path.
    pub file: String,
    /// The failures that it survives: `power`, `power-by-sync`, `process`.
    pub class: &'static str,
    /// The size that it can grow to.
    pub file_bytes_max: u64,
    /// Bytes that are not in use, whether reserved on the disk or not.
    pub free_bytes: u64,
    /// Number of buckets of the hash table.
    pub hash_buckets: u64,
    /// Whether the hash table is being moved to one of twice the size.
    pub is_growing: bool,
    /// Length of the longest chain of the hash table, in lines of 64 bytes. If it has more than
    /// two, the table is too small and grows in the background.
    pub longest_chain_lines: u64,
    /// Size of a page.
    pub page_bytes: u64,
    /// Limit of the number of pages.
    pub pages_max: u64,
    /// Number of pages that the cleaner emptied.
    pub cleaned_pages: u64,
    /// Bytes that the cleaner moved for this.
    pub moved_bytes: u64,
    /// Number of records lost in a power failure, as found when the store was opened.
    pub lost_records: u64,
    /// Number of leaves of the tree.
    pub leaves: u64,
    /// Size of the checkpoint's file.
    pub checkpoint_bytes: u64,
    /// The pages.
    pub pages: Vec<PageStats>,
}

/// A page of a mapped store.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PageStats {
    /// Its number.
    pub number: u32,
    /// `log` for records, `chains` for parts of the hash table, `reserve` for an empty page.
    pub usage: &'static str,
    /// Whether it is full.
    pub is_full: bool,
    /// Live bytes in it; `None` if they have not been counted since a crash.
    pub live_bytes: Option<u64>,
    /// Number of pages that became full after it did.
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
