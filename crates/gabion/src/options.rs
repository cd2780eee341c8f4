//! Options: one plain struct, behaviour first, performance second.
//!
//! Every default is a named constant with the reason for its number. Values are checked when the
//! store is opened; one that cannot work is an [`Error::InvalidOption`] that names it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::types::INITIAL_LEVELS;
use crate::{Clock, Engine, Error, Result};

/// Power loss costs at most this much by default: at ten syncs per second the syncs cost a few
/// per cent of one core and each finds a few megabytes to write.
pub const DEFAULT_SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// Default memory of all MemTables together where there is enough. A hundred buckets get 2 MiB
/// each, the size of the paper's MemTables (section 2.4.1), with room for those that are being
/// flushed.
pub const DEFAULT_MEMTABLE_BUDGET_BYTES: u64 = 256 << 20;

/// Default size of the block cache where there is enough memory. All keyspaces share it.
pub const DEFAULT_CACHE_BYTES: u64 = 256 << 20;

/// Default room for open tables below the ceiling of [`Options::memory_bytes_max`] where there is
/// enough memory: with ten bits per key for filters and 16-byte keys with 100-byte values, for
/// about 100 million keys.
pub const DEFAULT_TABLE_MEMORY_BYTES: u64 = 256 << 20;

/// Default size of the log past which MemTables that pin its tail are flushed. It bounds the time
/// to open: what is in no table yet, at most the MemTable budget, takes two processors about a
/// second per four million small records; what is in tables is only read.
pub const DEFAULT_LOG_BYTES_MAX: u64 = 1 << 30;

/// Default size at which a bucket splits. Large enough that a MemTable is a fraction of it, small
/// enough that rewriting a whole bucket takes less than a second.
pub const DEFAULT_BUCKET_BYTES: u64 = 64 << 20;

/// Default size of a table's blocks: one page of the system's page cache and of most drives.
pub const DEFAULT_BLOCK_BYTES: usize = 4096;

/// Default size of the filters: about 1 % false positives.
pub const DEFAULT_FILTER_BITS_PER_KEY: u32 = 10;

/// Default number of background threads: one for flushes, which writers wait for, and one for
/// everything else.
pub const DEFAULT_BACKGROUND_THREADS: usize = 2;

/// More background threads than this gain nothing on any machine, and a system may refuse them.
const BACKGROUND_THREADS_MAX: usize = 1024;

/// Up to this number of processors single writes run one behind the other by default. With two, and
/// one of them busy with the background's work, a writer that the system interrupts holds up the
/// other so often that two side by side reach half of what they reach one behind the other.
pub const DEFAULT_PROCESSORS_OF_ONE_LANE: usize = 2;

/// Default number of buckets into which a full one splits (the paper's N).
pub const DEFAULT_SPLIT_WAYS: usize = 8;

/// Default number of sublevels at which a level must be compacted (the paper's T).
pub const DEFAULT_SUBLEVELS_MAX: usize = 8;

/// Default number of sublevels at which a level may be compacted when nothing else is due (the
/// paper's min_count).
pub const DEFAULT_SUBLEVELS_MIN: usize = 4;

/// Default weight of reads in the order of compactions (the paper's read_weight): a level that is
/// read as much as the average counts as much as one with ten times the average of sublevels.
pub const DEFAULT_READ_WEIGHT: u32 = 10;

/// Default number of searches by range that meet new writes in a MemTable before it keeps its keys
/// in order. Sorting what is new costs such a search some microseconds, and all others a walk over
/// several sorted parts; to put a MemTable of 2 MiB in order costs some milliseconds once, and from
/// then on a put costs about half as much again.
pub const DEFAULT_SEARCHES_UNTIL_ORDERED: u32 = 16;

/// Default cap on the space of the tables, as a multiple of what is live in them. Each byte of a
/// new version then costs at most about one and a half bytes of compaction for it; at 1.5 it would
/// be three.
pub const DEFAULT_SPACE_AMPLIFICATION_MAX: f64 = 2.0;

/// Default age at which old versions and deleted keys must be gone. A bucket in which anything was
/// overwritten is rewritten once in that time at most, which is 12 MB/s for a terabyte.
pub const DEFAULT_GARBAGE_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Default size of the file of a store that is mapped. Its space is taken as it is needed, in steps
/// of a 64th of this: so it is a limit that few stores meet, and an empty store takes 128 MiB.
pub const DEFAULT_POOL_BYTES: u64 = 8 << 30;

/// What a completed write survives.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Power loss: the log is on the medium before the write returns. Writers that come together
    /// share a sync.
    Sync,
    /// Process death always; power loss except for the last writes, at most this long ago.
    ///
    /// A sync begins by the age of the oldest write that it is for, and earlier by the time that
    /// the last syncs took. On a medium that takes more than half of the interval for a sync, the
    /// last writes are at most two syncs old, since one that comes just after a sync has begun
    /// waits for the next; and a sync that takes longer than those before it adds the difference.
    ///
    /// A thread of the store syncs. Without [threads](Options::background_threads) the next write
    /// does, of any level, once the interval has passed; a store that nobody writes to any more is
    /// synced by its close, or by [`Db::persist`](crate::Db::persist).
    Interval(Duration),
    /// Process death always; power loss as far as the system has written on its own.
    Buffered,
}

impl Durability {
    /// Whether a write must be on the medium before it is acknowledged.
    pub(crate) fn is_sync(self) -> bool {
        self == Durability::Sync
    }
}

impl Default for Durability {
    fn default() -> Durability {
        Durability::Interval(DEFAULT_SYNC_INTERVAL)
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Sync => f.write_str("sync"),
            Durability::Interval(interval) => write!(f, "interval:{}", interval.as_millis()),
            Durability::Buffered => f.write_str("buffered"),
        }
    }
}

impl FromStr for Durability {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes: `sync`, `buffered`, `interval:MS`.
    fn from_str(text: &str) -> Result<Durability, String> {
        match text {
            "sync" => Ok(Durability::Sync),
            "buffered" => Ok(Durability::Buffered),
            "interval" => Ok(Durability::default()),
            _ => text
                .strip_prefix("interval:")
                .and_then(|ms| ms.parse().ok())
                .map(|ms| Durability::Interval(Duration::from_millis(ms)))
                .ok_or_else(|| {
                    format!(
                        "{text:?} is no durability; use sync, interval:MILLISECONDS or buffered"
                    )
                }),
        }
    }
}

/// How the blocks of tables are read.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableReads {
    /// In place, where the system keeps the files in memory. A block is read by a call and its
    /// checksum is compared when it is first needed since its table was opened; later reads cost
    /// no call, no copy and none of the memory of [`Options::cache_bytes`]. The price: memory is
    /// the system's to manage, damage that befalls a block after it was checked is not noticed
    /// until the table is opened again, and a page that the system dropped and cannot read again
    /// ends the process (`SIGBUS`), as does a file that another program cuts short. What was
    /// written survives that, as it survives every end of the process.
    ///
    /// The fastest way while the data fit into memory. Where a file cannot be mapped, its blocks
    /// go through the cache.
    #[default]
    Mapped,
    /// Through the block cache of [`Options::cache_bytes`]: memory stays within that, every block
    /// that comes from the medium is checked, and every failure of the medium is an error. The
    /// better way for data many times larger than memory.
    Cached,
}

impl fmt::Display for TableReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TableReads::Mapped => "mapped",
            TableReads::Cached => "cached",
        })
    }
}

impl FromStr for TableReads {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<TableReads, String> {
        match text {
            "mapped" => Ok(TableReads::Mapped),
            "cached" => Ok(TableReads::Cached),
            _ => Err(format!("{text:?} is no way to read; use mapped or cached")),
        }
    }
}

/// How MemTables keep their records.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemTableForm {
    /// Each bucket by itself: a hash table, until searches by range have met new writes
    /// [`Options::searches_until_ordered`] times in one MemTable; then in order, until a MemTable
    /// is flushed that was not searched.
    #[default]
    Adaptive,
    /// A hash table, which is sorted for searches and flushes. The fastest for writes.
    Hash,
    /// A hash table for gets and a tree of the keys for searches by range, both kept with every
    /// write. The fastest for searches between writes.
    Ordered,
}

impl fmt::Display for MemTableForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemTableForm::Adaptive => "adaptive",
            MemTableForm::Hash => "hash",
            MemTableForm::Ordered => "ordered",
        })
    }
}

impl FromStr for MemTableForm {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<MemTableForm, String> {
        match text {
            "adaptive" => Ok(MemTableForm::Adaptive),
            "hash" => Ok(MemTableForm::Hash),
            "ordered" => Ok(MemTableForm::Ordered),
            _ => Err(format!(
                "{text:?} is no form of a MemTable; use adaptive, hash or ordered"
            )),
        }
    }
}

/// How the blocks of new tables are compressed. Tables of all kinds may stand side by side: each
/// block says how it is compressed, and what was written before stays as it is until it is
/// compacted.
///
/// A compressed block is not read in place ([`TableReads::Mapped`]) but unpacked into the cache of
/// [`Options::cache_bytes`]. A block that does not become smaller by an eighth is stored as it is,
/// and a table in which all are is mapped as ever. Larger blocks ([`Options::block_bytes`], 16 KiB,
/// say) compress better.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// By LZ4: little effort.
    Lz4,
    /// By Zstandard, at a level of 1 to 19: smaller, and slower with each level. Only with the
    /// feature `zstd`, which needs a C compiler to build.
    Zstd(i32),
}

/// The level of Zstandard if none is given: its own default.
const ZSTD_LEVEL: i32 = 3;

impl Compression {
    /// What this program was built with; of Zstandard the usual level.
    pub fn available() -> impl Iterator<Item = Compression> {
        let all = [
            Compression::None,
            Compression::Lz4,
            Compression::Zstd(ZSTD_LEVEL),
        ];
        all.into_iter()
            .filter(|compression| compression.check().is_ok())
    }

    /// Why it cannot be had, if so.
    fn check(self) -> Result<(), &'static str> {
        match self {
            Compression::Zstd(_) if !cfg!(feature = "zstd") => {
                Err("this program was built without the feature zstd of gabion; use none or lz4")
            }
            Compression::Zstd(level) if !(1..=19).contains(&level) => {
                Err("the levels of Zstandard are 1 to 19")
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::Lz4 => f.write_str("lz4"),
            Compression::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes: `none`, `lz4`, `zstd:LEVEL`; `zstd` is level 3.
    fn from_str(text: &str) -> Result<Compression, String> {
        let compression = match text {
            "none" => Some(Compression::None),
            "lz4" => Some(Compression::Lz4),
            "zstd" => Some(Compression::Zstd(ZSTD_LEVEL)),
            _ => text
                .strip_prefix("zstd:")
                .and_then(|level| level.parse().ok())
                .map(Compression::Zstd),
        };
        let compression = compression
            .ok_or_else(|| format!("{text:?} is no compression; use none, lz4 or zstd:LEVEL"))?;
        compression
            .check()
            .map(|()| compression)
            .map_err(str::to_owned)
    }
}

/// How a store is opened and how it behaves. `Options::default()` suits most uses; each field has a
/// setter of the same name, so that options chain:
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("store");
/// use gabion::{Durability, Options};
///
/// let db = Options::default().durability(Durability::Sync).cache_bytes(64 << 20).open(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Options {
    // Behaviour.
    /// Make the store when the directory is missing or empty. Default: true.
    pub create_if_missing: bool,
    /// Fail when the store exists. Default: false.
    pub error_if_exists: bool,
    /// The engine of a new store; one that exists keeps its own. Default: [`Engine::Wip`].
    pub engine: Engine,
    /// What writes survive unless they ask for something else, such as by
    /// [`Keyspace::put_with`](crate::Keyspace::put_with). Default: [`DEFAULT_SYNC_INTERVAL`].
    pub durability: Durability,

    /// How long old versions and deleted keys stay in tables at most, if no snapshot needs them:
    /// then the part of the store that holds them is compacted, even if nobody writes. Counts from
    /// the open for what was in the log only. At least a second; [`Duration::MAX`] for no limit.
    /// Only [`Engine::Wip`] knows ages: [`Engine::Flex`] removes what is overwritten when it
    /// merges, but the bytes stay on the medium until their segment is emptied, which only the
    /// amount of garbage decides. Default: [`DEFAULT_GARBAGE_AGE_MAX`].
    pub garbage_age_max: Duration,
    /// How soon the space of records that have [expired](crate::Keyspace::put_expiring) comes back,
    /// where they are an eighth or more of a part of the store, with or without traffic. What is
    /// less goes with other garbage ([`Options::garbage_age_max`]). Default: ten minutes. At least
    /// a second.
    pub expiry_lag_max: Duration,
    /// How long a transaction may be open: it keeps old versions alive as a snapshot does. One that
    /// is older is ended, and what it does next is
    /// [`Error::TransactionTooOld`](crate::Error::TransactionTooOld). The background looks twice a
    /// second; without background threads none is ended. [`Duration::MAX`] for no limit, which is
    /// the default.
    pub transaction_age_max: Duration,
    /// Cap on the space amplification: the bytes of all tables over the bytes that they would have
    /// without old versions and deleted keys, which is estimated, rather too low. Writers are
    /// slowed down before it is reached, and wait at it as long as there is garbage that no
    /// snapshot needs; the log, and the outputs of compactions that have not ended, are not in it.
    /// [`Engine::Flex`] has segments in place of tables. It collects garbage when they have as much
    /// as the cap allows, or a quarter of their bytes if that is less: so a cap above 1.33 changes
    /// nothing. Some segments that it keeps in reserve come on top. At least 1.25; infinite for
    /// none. Default: [`DEFAULT_SPACE_AMPLIFICATION_MAX`].
    pub space_amplification_max: f64,

    /// Size in bytes of the file of a new store whose engine is
    /// [mapped](crate::Capabilities::mapped): it is never larger. Its space is reserved as it is
    /// needed, and kept. At least 64 MiB. Default: [`DEFAULT_POOL_BYTES`].
    pub pool_bytes: u64,
    /// Where that file lies, if not in the store's directory: on persistent memory, in shared
    /// memory. Noted in the store. Default: `None`.
    pub pool_path: Option<PathBuf>,
    /// Whether a new store that is mapped and lies in an ordinary file, or in shared memory, has a
    /// checkpoint in its directory, to which it is brought back after a power loss. Without one it
    /// survives the end of the process only, [`Durability::Sync`] is refused,
    /// [`Durability::Interval`] is as [`Durability::Buffered`], and a store that is open while the
    /// system goes down is lost. Persistent memory needs none. Default: true.
    pub checkpoints: bool,

    // Performance.
    /// Records that a new store should be ready for, if its engine is mapped: its hash table has at
    /// least twice as many buckets. With many more, it doubles while the store is in use.
    /// Default: 0, for 65,536.
    pub records_planned: u64,
    /// Memory of all MemTables together, in bytes. Default: `None`, for what follows from
    /// [`Options::memory_bytes_max`].
    pub memtable_budget_bytes: Option<u64>,
    /// How MemTables keep their records. Default: [`MemTableForm::Adaptive`].
    pub memtable_form: MemTableForm,
    /// Searches by range that meet new writes in a MemTable before it keeps its keys in order, if
    /// the form is adaptive. Default: [`DEFAULT_SEARCHES_UNTIL_ORDERED`].
    pub searches_until_ordered: u32,
    /// How the blocks of tables are read. Default: [`TableReads::Mapped`].
    pub table_reads: TableReads,
    /// Mapped blocks are read by a call and checked each time that they are looked for, not only
    /// the first time; and what flushes and compactions write is checked for its order. Finds
    /// damage that befalls what is in memory, for the price of a call and a checksum. Default:
    /// false.
    pub paranoid_checks: bool,
    /// Size of the block cache in bytes, for tables that are not mapped. Compressed ones never are.
    /// 0: no cache. Default: `None`, for what follows from [`Options::memory_bytes_max`].
    pub cache_bytes: Option<u64>,
    /// The memory that the store may use, in bytes, in WipDB and FlexDB: the one setting that most
    /// stores need, from which the sizes of MemTables and of the cache follow unless they are set.
    ///
    /// It is a ceiling for MemTables, for indexes and filters of open tables, and for the block
    /// cache together; in FlexDB, indexes, trees and buffers of spaces and what snapshots need
    /// stand for the tables, and MemTables have half of their budget more, at which writers stop.
    /// Open tables come first, since no read can do without them. MemTables have half of the
    /// ceiling if tables are mapped and not compressed, a quarter otherwise, and
    /// [`DEFAULT_MEMTABLE_BUDGET_BYTES`] at most; or what the tables leave, but at least a quarter
    /// of that. The cache has the rest and gives blocks up when the others grow. The trees of
    /// FlexDB's spaces keep to a quarter of the ceiling: what does not fit is read when it is
    /// needed. When tables leave less than a quarter of the MemTables' budget the ceiling is
    /// passed, which [`Stats::memory`](crate::Stats::memory) shows. The pages of mapped tables are
    /// the system's and come on top; it takes them back when it needs them.
    ///
    /// 0: it follows from the memory that the process may use, which is that of the machine or the
    /// limit of its control group or of one above it, as the system reports when the store
    /// is opened. MemTables have an eighth of it, at most [`DEFAULT_MEMTABLE_BUDGET_BYTES`], the
    /// cache an eighth, or a quarter if all blocks go through it, at most [`DEFAULT_CACHE_BYTES`],
    /// and the ceiling is their sum and an eighth for open tables, at most
    /// [`DEFAULT_TABLE_MEMORY_BYTES`]: 768 MiB from 2 GiB on, and where the system does not tell.
    /// [`Options::memory_sizes`] shows what comes of it. Default: 0.
    pub memory_bytes_max: u64,
    /// Size of the log in bytes that is kept before MemTables are flushed for it. Default:
    /// [`DEFAULT_LOG_BYTES_MAX`].
    pub log_bytes_max: u64,
    /// Size in bytes at which a bucket splits. Default: [`DEFAULT_BUCKET_BYTES`].
    pub bucket_bytes: u64,
    /// Size of a table's blocks in bytes. Default: [`DEFAULT_BLOCK_BYTES`].
    pub block_bytes: usize,
    /// How the blocks of new tables are compressed. Default: [`Compression::None`].
    pub compression: Compression,
    /// Bits per key of the filters; 0 means no filters. Default:
    /// [`DEFAULT_FILTER_BITS_PER_KEY`].
    pub filter_bits_per_key: u32,
    /// Threads for flushes, compactions and splits. With 0 the thread that writes does the
    /// background work as it falls due, which makes a store deterministic, and syncs for
    /// [`Durability::Interval`]. At most 1,024. Default: [`DEFAULT_BACKGROUND_THREADS`].
    pub background_threads: usize,
    /// Bytes that flushes, compactions and splits, or merges and collections of garbage, may
    /// write per second; 0: no limit. Flushes come first, then compactions of full levels. The
    /// limit gives way where writers would be stopped: a store that is written to faster than this
    /// flushes as fast as it must. Default: 0.
    pub background_bytes_per_second_max: u64,
    /// Whether single writes of several threads run side by side or one behind the other. Default:
    /// side by side with more than [`DEFAULT_PROCESSORS_OF_ONE_LANE`] processors.
    pub writers_side_by_side: bool,
    /// Number of buckets into which a full one splits, at most. Default: [`DEFAULT_SPLIT_WAYS`].
    pub split_ways: usize,
    /// Sublevels at which a level may be compacted, at least: where a bucket holds more than 32
    /// flushes, its levels take more. Default: [`DEFAULT_SUBLEVELS_MIN`].
    pub sublevels_min: usize,
    /// Sublevels at which a level must be compacted, at least, as for `sublevels_min`. Default:
    /// [`DEFAULT_SUBLEVELS_MAX`].
    pub sublevels_max: usize,
    /// How much the reads of a bucket weigh, relative to the number of its sublevels, when one of
    /// several compactions must come first; 0 means that reads do not count. Default:
    /// [`DEFAULT_READ_WEIGHT`].
    pub read_weight: u32,

    // For tests.
    /// Where the store gets the time from. Default: the system's clock.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            create_if_missing: true,
            error_if_exists: false,
            engine: Engine::default(),
            durability: Durability::default(),
            garbage_age_max: DEFAULT_GARBAGE_AGE_MAX,
            expiry_lag_max: Duration::from_secs(600),
            transaction_age_max: Duration::MAX,
            space_amplification_max: DEFAULT_SPACE_AMPLIFICATION_MAX,
            pool_bytes: DEFAULT_POOL_BYTES,
            pool_path: None,
            checkpoints: true,
            records_planned: 0,
            memtable_budget_bytes: None,
            memtable_form: MemTableForm::default(),
            searches_until_ordered: DEFAULT_SEARCHES_UNTIL_ORDERED,
            table_reads: TableReads::default(),
            paranoid_checks: false,
            cache_bytes: None,
            memory_bytes_max: 0,
            log_bytes_max: DEFAULT_LOG_BYTES_MAX,
            bucket_bytes: DEFAULT_BUCKET_BYTES,
            block_bytes: DEFAULT_BLOCK_BYTES,
            compression: Compression::default(),
            filter_bits_per_key: DEFAULT_FILTER_BITS_PER_KEY,
            background_threads: DEFAULT_BACKGROUND_THREADS,
            background_bytes_per_second_max: 0,
            writers_side_by_side: std::thread::available_parallelism()
                .is_ok_and(|processors| processors.get() > DEFAULT_PROCESSORS_OF_ONE_LANE),
            split_ways: DEFAULT_SPLIT_WAYS,
            sublevels_min: DEFAULT_SUBLEVELS_MIN,
            sublevels_max: DEFAULT_SUBLEVELS_MAX,
            read_weight: DEFAULT_READ_WEIGHT,
            clock: Clock::system(),
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $name: $type) -> Options {
                self.$name = $name.into();
                self
            }
        )*
    };
}

impl Options {
    setters! {
        /// Sets [`Options::create_if_missing`].
        create_if_missing: bool,
        /// Sets [`Options::error_if_exists`].
        error_if_exists: bool,
        /// Sets [`Options::engine`].
        engine: Engine,
        /// Sets [`Options::durability`].
        durability: Durability,
        /// Sets [`Options::garbage_age_max`].
        garbage_age_max: Duration,
        /// Sets [`Options::expiry_lag_max`].
        expiry_lag_max: Duration,
        /// Sets [`Options::transaction_age_max`].
        transaction_age_max: Duration,
        /// Sets [`Options::space_amplification_max`].
        space_amplification_max: f64,
        /// Sets [`Options::pool_bytes`].
        pool_bytes: u64,
        /// Sets [`Options::pool_path`].
        pool_path: Option<PathBuf>,
        /// Sets [`Options::checkpoints`].
        checkpoints: bool,
        /// Sets [`Options::records_planned`].
        records_planned: u64,
        /// Sets [`Options::memtable_budget_bytes`].
        memtable_budget_bytes: u64,
        /// Sets [`Options::memtable_form`].
        memtable_form: MemTableForm,
        /// Sets [`Options::searches_until_ordered`].
        searches_until_ordered: u32,
        /// Sets [`Options::table_reads`].
        table_reads: TableReads,
        /// Sets [`Options::paranoid_checks`].
        paranoid_checks: bool,
        /// Sets [`Options::cache_bytes`].
        cache_bytes: u64,
        /// Sets [`Options::memory_bytes_max`].
        memory_bytes_max: u64,
        /// Sets [`Options::log_bytes_max`].
        log_bytes_max: u64,
        /// Sets [`Options::bucket_bytes`].
        bucket_bytes: u64,
        /// Sets [`Options::block_bytes`].
        block_bytes: usize,
        /// Sets [`Options::compression`].
        compression: Compression,
        /// Sets [`Options::filter_bits_per_key`].
        filter_bits_per_key: u32,
        /// Sets [`Options::background_threads`].
        background_threads: usize,
        /// Sets [`Options::background_bytes_per_second_max`].
        background_bytes_per_second_max: u64,
        /// Sets [`Options::writers_side_by_side`].
        writers_side_by_side: bool,
        /// Sets [`Options::split_ways`].
        split_ways: usize,
        /// Sets [`Options::sublevels_min`].
        sublevels_min: usize,
        /// Sets [`Options::sublevels_max`].
        sublevels_max: usize,
        /// Sets [`Options::read_weight`].
        read_weight: u32,
        /// Sets [`Options::clock`].
        clock: Clock,
    }

    /// Checks every value that could not work, as [`Db::open`](crate::Db::open) does first.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) with the first of them.
    pub fn check(&self) -> Result<()> {
        let sizes = self.memory_sizes();
        let rules: [(&'static str, bool, &'static str); 14] = [
            (
                "pool_bytes",
                (64 << 20..=1 << 47).contains(&self.pool_bytes),
                "64 MiB are the least that a store needs, and 128 TiB the most that it can use",
            ),
            (
                "garbage_age_max",
                self.garbage_age_max >= Duration::from_secs(1),
                "ages are counted in seconds",
            ),
            (
                "expiry_lag_max",
                self.expiry_lag_max >= Duration::from_secs(1),
                "what is sooner would never rest",
            ),
            (
                "space_amplification_max",
                self.space_amplification_max >= 1.25,
                "1.25 is the least that can be kept",
            ),
            (
                "memtable_budget_bytes",
                sizes.memtables >= 1 << 10,
                "at least 1024 bytes are needed",
            ),
            (
                "memory_bytes_max",
                sizes.bytes_max >= sizes.memtables / 4,
                "in bytes, at least a quarter of memtable_budget_bytes, or 256 KiB if that is not \
                 set; 0 stands for the default",
            ),
            (
                "log_bytes_max",
                self.log_bytes_max >= 1 << 10,
                "at least 1024 bytes are needed",
            ),
            (
                "bucket_bytes",
                self.bucket_bytes >= 1 << 10,
                "at least 1024 bytes are needed",
            ),
            (
                "block_bytes",
                (64..=32 << 10).contains(&self.block_bytes),
                "blocks have 64 to 32768 bytes",
            ),
            (
                "filter_bits_per_key",
                self.filter_bits_per_key <= 32,
                "at most 32 bits are useful",
            ),
            (
                "background_threads",
                self.background_threads <= BACKGROUND_THREADS_MAX,
                "at most 1024 threads; more than there are processors gain little",
            ),
            (
                "split_ways",
                (2..=64).contains(&self.split_ways),
                "a split makes 2 to 64 buckets",
            ),
            (
                "sublevels_min",
                (2..=self.sublevels_max).contains(&self.sublevels_min),
                "it lies between 2 and sublevels_max",
            ),
            (
                "sublevels_max",
                (2..=64 / INITIAL_LEVELS).contains(&self.sublevels_max),
                "it lies between 2 and 21",
            ),
        ];
        for (option, holds, why) in rules {
            if !holds {
                return Err(Error::InvalidOption {
                    option,
                    why: why.to_owned(),
                });
            }
        }
        if let Err(why) = self.compression.check() {
            return Err(Error::InvalidOption {
                option: "compression",
                why: why.to_owned(),
            });
        }
        match self.durability {
            Durability::Interval(interval) if interval.is_zero() => Err(Error::InvalidOption {
                option: "durability",
                why: "an interval of zero is Durability::Sync; ask for that".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_work_and_bad_values_are_named() {
        Options::default().check().unwrap();
        let bad = [
            (
                Options::default().memtable_budget_bytes(0),
                "memtable_budget_bytes",
            ),
            (
                // Meant in MiB, it seems.
                Options::default().memory_bytes_max(512),
                "memory_bytes_max",
            ),
            (
                Options::default()
                    .memtable_budget_bytes(64 << 20)
                    .memory_bytes_max(1 << 20),
                "memory_bytes_max",
            ),
            (Options::default().block_bytes(1 << 20), "block_bytes"),
            (Options::default().pool_bytes(1 << 20), "pool_bytes"),
            (
                Options::default().background_threads(usize::MAX),
                "background_threads",
            ),
            (Options::default().split_ways(1), "split_ways"),
            (Options::default().sublevels_min(9), "sublevels_min"),
            (Options::default().sublevels_max(100), "sublevels_max"),
            (
                Options::default().compression(Compression::Zstd(20)),
                "compression",
            ),
            (
                Options::default().durability(Durability::Interval(Duration::ZERO)),
                "durability",
            ),
        ];
        for (options, name) in bad {
            match options.check() {
                Err(Error::InvalidOption { option, .. }) => assert_eq!(option, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for durability in [
            Durability::Sync,
            Durability::Buffered,
            Durability::default(),
        ] {
            assert_eq!(durability.to_string().parse(), Ok(durability));
        }
        assert!("soon".parse::<Durability>().is_err());
        for reads in [TableReads::Mapped, TableReads::Cached] {
            assert_eq!(reads.to_string().parse(), Ok(reads));
        }
        assert!("fast".parse::<TableReads>().is_err());
        for compression in Compression::available() {
            assert_eq!(compression.to_string().parse(), Ok(compression));
        }
        for bad in ["zip", "zstd:0", "zstd:20", "zstd:", "lz4:1"] {
            assert!(bad.parse::<Compression>().is_err(), "{bad}");
        }
        let zstd = "zstd".parse::<Compression>();
        assert_eq!(zstd.is_ok(), cfg!(feature = "zstd"));
        for form in ["adaptive", "hash", "ordered"] {
            assert_eq!(form.parse::<MemTableForm>().unwrap().to_string(), form);
        }
        assert!("skip".parse::<MemTableForm>().is_err());
        for engine in Engine::ALL {
            assert_eq!(engine.name().parse(), Ok(*engine));
        }
        assert!("rocks".parse::<Engine>().unwrap_err().contains("wip"));
    }
}
