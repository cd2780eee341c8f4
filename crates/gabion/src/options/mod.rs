//! Options: [`Options`] has what an operator sets, [`MappedOptions`] what only mapped engines use,
//! and [`Tuning`] what most users never set.
//!
//! Each is a plain struct whose fields document their defaults. Opening a store checks all values;
//! the error names an invalid one.

mod mapped;
mod rules;
mod tuning;
mod values;

use std::time::Duration;

use rules::{check_rules, setters};

use crate::{Engine, Result};

pub use mapped::MappedOptions;
pub use tuning::Tuning;
pub use values::{Compression, Durability, MemTableForm, TableReads};

/// More background threads than this gain nothing on any machine, and a system may refuse them.
const BACKGROUND_THREADS_MAX: usize = 1024;

/// How to open a store and how it behaves. `Options::default()` suits most uses. Each field has a
/// setter of the same name, so calls chain:
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("store");
/// use gabion::{Durability, Options, Tuning};
///
/// let db = Options::default()
///     .durability(Durability::Sync)
///     .memory_bytes_max(256 << 20)
///     .tuning(Tuning::default().split_ways(4))
///     .open(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Options {
    // The store.
    /// The engine of a new store; an existing store keeps its own. Default: [`Engine::Wip`].
    pub engine: Engine,
    /// Create the store if the directory is missing or empty. Default: true.
    pub create_if_missing: bool,
    /// Fail if the store exists. Default: false.
    pub error_if_exists: bool,
    /// Open the store read-only. Nothing is written, not even a lock file, so the directory may be
    /// read-only too. Any number of processes may have the store open in this way at the same time,
    /// as long as none has it open for writing. The store recovers into memory what only the log
    /// has, and the pages of a [mapped](crate::Capabilities::mapped) store that change in a
    /// recovery. It syncs nothing: after the death of a writer, readers may see writes that a power
    /// loss undoes. Writes fail with [`Error::OpenedReadOnly`](crate::Error::OpenedReadOnly).
    /// Default: false.
    pub read_only: bool,
    /// Open the store as a follower: read-only, whether or not another process has it open for
    /// writing. A follower sees the store as of some write, and moves on with
    /// [`Db::catch_up`](crate::Db::catch_up). It writes and locks nothing, so any number of
    /// followers may read, also from a read-only directory. Tables that the writer has removed stay
    /// on the medium as long as a follower needs them. A follower needs memory for the writes that
    /// the writer has in its MemTables, and a descriptor for each table. Only engines with
    /// [followers](crate::Capabilities::followers). Default: false.
    pub follower: bool,
    /// The durability of writes that do not ask for another one, as
    /// [`Keyspace::put_with`](crate::Keyspace::put_with) does. Default: [`Durability::Interval`]
    /// with 100 ms.
    pub durability: Durability,

    // Resources.
    /// The memory that the store may use, in bytes, with WipDB and FlexDB. Most stores need only
    /// this setting: it determines the sizes of MemTables and of the cache unless those are set.
    ///
    /// It is a ceiling for MemTables, for indexes and filters of open tables, and for the block
    /// cache together; in FlexDB, indexes, trees and buffers of spaces and what snapshots need
    /// stand for the tables, and MemTables have half of their budget more, at which writers stop.
    /// Open tables come first, since every read needs them. MemTables get half of the ceiling if
    /// tables are mapped and not compressed, a quarter otherwise, and 256 MiB at most; or what the
    /// tables leave, but at least a quarter of that. The cache gets the rest and evicts blocks when
    /// the others grow. The trees of FlexDB's spaces keep to a quarter of the ceiling; the store
    /// reads what does not fit when it needs it. If tables leave less than a quarter of the
    /// MemTables' budget, the store exceeds the ceiling, which
    /// [`Stats::memory`](crate::Stats::memory) shows. The pages of mapped tables belong to the
    /// system and come on top; it reclaims them when it needs them.
    ///
    /// 0: the ceiling follows from the memory that the process may use: that of the machine, or the
    /// limit of its control group or of a parent group, as the system reports at the open.
    /// MemTables get an eighth of it, the cache an eighth, or a quarter if all blocks go through
    /// it, each 256 MiB at most. The ceiling is their sum plus an eighth for open tables, again 256
    /// MiB at most: 768 MiB from 2 GiB on, or if the system does not report a limit.
    /// [`Options::memory_sizes`] shows the result. Default: 0.
    pub memory_bytes_max: u64,
    /// Threads for flushes, compactions and splits. With 0 the writing thread does the background
    /// work when it is due, which makes a store deterministic, and syncs for
    /// [`Durability::Interval`]. At most 1,024. Default: 2, one for flushes, which writers wait
    /// for, and one for everything else.
    pub background_threads: usize,
    /// Size of the log in bytes beyond which the store flushes MemTables that pin its tail. It
    /// bounds the time to open: two processors replay about four million small records a second
    /// into memory, at most as many as the MemTables may hold; records that are already in tables
    /// are only read. At least 1 KiB. Default: 1 GiB.
    pub log_bytes_max: u64,
    /// Limit of the log that is kept for [consumers](crate::Db::consumer) alone, in bytes. Beyond
    /// it the store removes the oldest part of that log. A consumer that still needed it gets
    /// [`Error::ChangesGone`](crate::Error::ChangesGone). Default: 1 GiB.
    pub changes_bytes_max: u64,

    // Tables.
    /// How the blocks of new tables are compressed. Default: [`Compression::None`].
    pub compression: Compression,
    /// How the blocks of tables are read. Default: [`TableReads::Mapped`].
    pub table_reads: TableReads,

    // Garbage.
    /// Cap on the space amplification: the bytes of all tables over an estimate, on the low side,
    /// of the bytes that they would have without old versions and deleted keys. The store slows
    /// writers down before it reaches the cap, and stops them at the cap while there is garbage
    /// that no snapshot needs. The log and the outputs of running compactions do not count.
    /// [`Engine::Flex`] has segments instead of tables. It collects garbage when they have as much
    /// as the cap allows, or a quarter of their bytes if that is less, so a cap above 1.33 changes
    /// nothing. Some reserved segments come on top. At least 1.25; infinite for none. Default: 2.0,
    /// at which each byte of a new version costs at most about one and a half bytes of compaction
    /// for it; at 1.5 it would be three.
    pub space_amplification_max: f64,
    /// The longest time that old versions and deleted keys stay in tables if no snapshot needs
    /// them: then the store compacts the part that holds them, even if nobody writes. For records
    /// that were only in the log, it counts from the open. At least a second; [`Duration::MAX`] for
    /// no limit. Only [`Engine::Wip`] tracks ages: [`Engine::Flex`] removes overwritten pairs when
    /// it merges, but their bytes stay on the medium until it empties their segment, which depends
    /// only on the amount of garbage. Default: a day, in which the store rewrites a bucket with
    /// garbage once at most: 12 MB/s for a terabyte.
    pub garbage_age_max: Duration,
    /// How soon the store frees the space of [expired](crate::Keyspace::put_expiring) records, with
    /// or without traffic, where they are an eighth or more of a part of the store. Less than that
    /// goes with other garbage. At least a second. Default: ten minutes.
    pub expiry_lag_max: Duration,
    /// How long a transaction may be open, since it keeps old versions alive as a snapshot does.
    /// The store ends an older one, and its next call returns
    /// [`Error::TransactionTooOld`](crate::Error::TransactionTooOld). The background checks twice a
    /// second; without background threads the store ends none. [`Duration::MAX`] for no limit,
    /// which is the default.
    pub transaction_age_max: Duration,

    // The rest.
    /// Options of the mapped engines. Default: [`MappedOptions::default`].
    pub mapped: MappedOptions,
    /// What most users never set. Default: [`Tuning::default`].
    pub tuning: Tuning,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            engine: Engine::default(),
            create_if_missing: true,
            error_if_exists: false,
            read_only: false,
            follower: false,
            durability: Durability::default(),
            memory_bytes_max: 0,
            background_threads: 2,
            log_bytes_max: 1 << 30,
            changes_bytes_max: 1 << 30,
            compression: Compression::default(),
            table_reads: TableReads::default(),
            space_amplification_max: 2.0,
            garbage_age_max: Duration::from_secs(24 * 3600),
            expiry_lag_max: Duration::from_secs(600),
            transaction_age_max: Duration::MAX,
            mapped: MappedOptions::default(),
            tuning: Tuning::default(),
        }
    }
}

setters!(Options {
    engine: Engine,
    create_if_missing: bool,
    error_if_exists: bool,
    read_only: bool,
    follower: bool,
    durability: Durability,
    memory_bytes_max: u64,
    background_threads: usize,
    log_bytes_max: u64,
    changes_bytes_max: u64,
    compression: Compression,
    table_reads: TableReads,
    space_amplification_max: f64,
    garbage_age_max: Duration,
    expiry_lag_max: Duration,
    transaction_age_max: Duration,
    mapped: MappedOptions,
    tuning: Tuning,
});

impl Options {
    /// Those of a store that is opened for reading only.
    pub(crate) fn for_reading(self) -> Options {
        Options {
            create_if_missing: false,
            error_if_exists: false,
            ..self
        }
    }

    /// Checks all values, as [`Db::open`](crate::Db::open) does first.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for the first invalid one.
    pub fn check(&self) -> Result<()> {
        self.mapped.check()?;
        self.tuning.check()?;
        let sizes = self.memory_sizes();
        let is_zero = |durability| durability == Durability::Interval(Duration::ZERO);
        let compression = self.compression.check();
        check_rules(&[
            (
                "durability",
                !is_zero(self.durability),
                "an interval of zero is not possible; use Durability::Sync",
            ),
            (
                "memory_bytes_max",
                sizes.bytes_max >= sizes.memtables / 4,
                "it must be at least a quarter of memtable_budget_bytes, or 256 KiB if that is not \
                 set; 0 stands for the default",
            ),
            (
                "background_threads",
                self.background_threads <= BACKGROUND_THREADS_MAX,
                "it must be at most 1024 threads",
            ),
            (
                "log_bytes_max",
                self.log_bytes_max >= 1 << 10,
                "it must be at least 1024 bytes",
            ),
            (
                "compression",
                compression.is_ok(),
                compression.err().unwrap_or_default(),
            ),
            (
                "space_amplification_max",
                self.space_amplification_max >= 1.25,
                "it must be at least 1.25",
            ),
            (
                "garbage_age_max",
                self.garbage_age_max >= Duration::from_secs(1),
                "it must be at least one second",
            ),
            (
                "expiry_lag_max",
                self.expiry_lag_max >= Duration::from_secs(1),
                "it must be at least one second",
            ),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn tuned(tuning: Tuning) -> Options {
        Options::default().tuning(tuning)
    }

    #[test]
    fn defaults_work_and_bad_values_are_named() {
        Options::default().check().unwrap();
        let tuning = Tuning::default;
        let too_small = MappedOptions::default().pool_bytes(1 << 20);
        let bad = [
            (
                tuned(tuning().memtable_budget_bytes(0)),
                "memtable_budget_bytes",
            ),
            (
                // Meant in MiB, it seems.
                Options::default().memory_bytes_max(512),
                "memory_bytes_max",
            ),
            (
                tuned(tuning().memtable_budget_bytes(64 << 20)).memory_bytes_max(1 << 20),
                "memory_bytes_max",
            ),
            (tuned(tuning().block_bytes(1 << 20)), "block_bytes"),
            (Options::default().mapped(too_small), "pool_bytes"),
            (
                Options::default().background_threads(usize::MAX),
                "background_threads",
            ),
            (tuned(tuning().split_ways(1)), "split_ways"),
            (tuned(tuning().sublevels_min(9)), "sublevels_min"),
            (tuned(tuning().sublevels_max(100)), "sublevels_max"),
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
}
