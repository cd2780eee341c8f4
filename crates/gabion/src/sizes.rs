//! The sizes of what a store has in memory: those that were set, and what follows for the others.
//!
//! # The rule
//! There are three sizes: the ceiling ([`Options::memory_bytes_max`]), MemTables
//! ([`Tuning::memtable_budget_bytes`]) and the block cache ([`Tuning::cache_bytes`]). Those that
//! are set hold. FlexDB's cache keeps below its size by what nobody counts ([`crate::memory`]).
//!
//! *With a ceiling*, MemTables have a part of it, and the cache what they leave, less what open
//! tables take at the moment. *Without one*, both have a part of what the process may use, and the
//! ceiling is their sum and room for open tables, an eighth, 256 MiB at most.
//!
//! | tables are read | the ceiling | MemTables, 256 MiB at most | the cache |
//! |---|---|---|---|
//! | in place | set | half of it | the rest of it |
//! | through the cache | set | a quarter of it | the rest of it |
//! | in place | not set | an eighth of all | an eighth of all, 256 MiB at most |
//! | through the cache | not set | an eighth of all | a quarter of all, 256 MiB at most |
//!
//! What is read in place is in the page cache, which has what the store does not take: without a
//! ceiling, five eighths at least, and nearly seven where no table is compressed. A cache of the
//! store's own makes do with less beside it; half of all is the ceiling then. From 2 GiB on nothing
//! grows any more, so that a store leaves a large machine to others unless it is told otherwise.
//!
//! What the process may use is read when a store is opened and holds until it is closed.
//!
//! [`Tuning::memtable_budget_bytes`]: crate::Tuning::memtable_budget_bytes
//! [`Tuning::cache_bytes`]: crate::Tuning::cache_bytes

use crate::{Compression, Engine, Options, TableReads};

/// Most memory of all MemTables together that follows from other sizes. A hundred buckets get
/// 2 MiB each, the size of the paper's MemTables (section 2.4.1), with room for those that are
/// being flushed.
const MEMTABLES_MOST: u64 = 256 << 20;

/// Most memory of the block cache where there is no ceiling.
const CACHE_MOST: u64 = 256 << 20;

/// Most room for open tables below a ceiling that follows from other sizes: with ten bits per key
/// for filters and 16-byte keys with 100-byte values, for about 100 million keys.
pub(crate) const TABLES_MOST: u64 = 256 << 20;

/// MemTables have this much even if their part is less: a flush of less costs more for its file
/// than for what it writes. It is also what tells a ceiling that was meant in MiB.
const MEMTABLES_LEAST: u64 = 1 << 20;

/// Bytes of memory that a store may use, and of its parts.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySizes {
    /// The ceiling, [`Options::memory_bytes_max`].
    pub bytes_max: u64,
    /// All MemTables, [`Tuning::memtable_budget_bytes`](crate::Tuning::memtable_budget_bytes).
    pub memtables: u64,
    /// The block cache, [`Tuning::cache_bytes`](crate::Tuning::cache_bytes), which also keeps to
    /// what the others leave.
    pub cache: u64,
}

impl MemorySizes {
    /// Those of a store with these options, in a process that may use so much.
    fn of(options: &Options, usable: Option<u64>) -> MemorySizes {
        let usable = usable.unwrap_or(u64::MAX);
        let in_place = reads_in_place(options);
        let (memtables, cache) = (
            options.tuning.memtable_budget_bytes,
            options.tuning.cache_bytes,
        );
        let part = |of: u64, one_in: u64| {
            let part = MEMTABLES_MOST.min(of / one_in);
            memtables.unwrap_or(part.max(MEMTABLES_LEAST))
        };
        if options.memory_bytes_max > 0 {
            let bytes_max = options.memory_bytes_max;
            let memtables = part(bytes_max, if in_place { 2 } else { 4 });
            return MemorySizes {
                bytes_max,
                memtables,
                cache: cache.unwrap_or(bytes_max.saturating_sub(memtables)),
            };
        }
        let memtables = part(usable, 8);
        let of_cache = usable / if in_place { 8 } else { 4 };
        let cache = cache.unwrap_or(CACHE_MOST.min(of_cache));
        let tables = TABLES_MOST.min(usable / 8);
        MemorySizes {
            bytes_max: memtables.saturating_add(cache).saturating_add(tables),
            memtables,
            cache,
        }
    }
}

/// Whether blocks of new tables are read where the system has them.
fn reads_in_place(options: &Options) -> bool {
    options.engine == Engine::Wip
        && options.table_reads == TableReads::Mapped
        && options.compression == Compression::None
}

impl Options {
    /// What a store that is opened now with these options may use of the memory: what was set, and
    /// what follows for the rest from the ceiling, or from the memory that the process may use. Of
    /// [mapped](crate::Capabilities::mapped) engines it says nothing.
    pub fn memory_sizes(&self) -> MemorySizes {
        let usable = match self.memory_bytes_max {
            0 => gabion_media::usable_memory_bytes(),
            _ => None,
        };
        MemorySizes::of(self, usable)
    }

    /// The options of an open store of that engine: all sizes are set.
    pub(crate) fn settled(self, engine: Engine) -> Options {
        let mut options = self.engine(engine);
        let sizes = options.memory_sizes();
        options.memory_bytes_max = sizes.bytes_max;
        options.tuning.memtable_budget_bytes = Some(sizes.memtables);
        options.tuning.cache_bytes = Some(sizes.cache);
        options
    }

    /// The ceiling.
    pub(crate) fn memory_ceiling(&self) -> u64 {
        self.memory_sizes().bytes_max
    }

    /// Bytes of all MemTables.
    pub(crate) fn memtable_budget(&self) -> u64 {
        let set = self.tuning.memtable_budget_bytes;
        set.unwrap_or_else(|| self.memory_sizes().memtables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tuning;

    const MIB: u64 = 1 << 20;

    /// MemTables, cache and ceiling in MiB where the process may use so many.
    fn sizes(options: &Options, usable: Option<u64>) -> (u64, u64, u64) {
        let sizes = MemorySizes::of(options, usable.map(|mib| mib * MIB));
        (
            sizes.memtables / MIB,
            sizes.cache / MIB,
            sizes.bytes_max / MIB,
        )
    }

    /// Ways to open a store whose blocks go through its cache.
    fn through_the_cache() -> [Options; 3] {
        [
            Options::default().engine(Engine::Flex),
            Options::default().table_reads(TableReads::Cached),
            Options::default().compression(Compression::Lz4),
        ]
    }

    #[test]
    fn without_a_ceiling_the_parts_follow_from_what_may_be_used() {
        let mapped = Options::default();
        for large in [None, Some(1 << 20), Some(3072), Some(2048)] {
            assert_eq!(sizes(&mapped, large), (256, 256, 768));
            for cached in through_the_cache() {
                assert_eq!(sizes(&cached, large), (256, 256, 768));
            }
        }
        assert_eq!(sizes(&mapped, Some(512)), (64, 64, 192));
        assert_eq!(sizes(&mapped, Some(64)), (8, 8, 24));
        for cached in through_the_cache() {
            assert_eq!(sizes(&cached, Some(512)), (64, 128, 256));
            assert_eq!(sizes(&cached, Some(1024)), (128, 256, 512));
        }
        // However little there is, something works.
        assert_eq!(sizes(&mapped, Some(0)), (1, 0, 1));
        mapped.check().unwrap();
    }

    #[test]
    fn the_parts_follow_from_the_ceiling() {
        for usable in [None, Some(100), Some(1 << 20)] {
            let of = |options: &Options, mib: u64| {
                sizes(&options.clone().memory_bytes_max(mib * MIB), usable)
            };
            assert_eq!(of(&Options::default(), 64), (32, 32, 64));
            assert_eq!(of(&Options::default(), 1000), (256, 744, 1000));
            for cached in through_the_cache() {
                assert_eq!(of(&cached, 64), (16, 48, 64));
                assert_eq!(of(&cached, 320), (80, 240, 320));
                assert_eq!(of(&cached, 4096), (256, 3840, 4096));
            }
            let largest = Options::default().memory_bytes_max(u64::MAX);
            assert_eq!(MemorySizes::of(&largest, None).memtables, 256 * MIB);
        }
    }

    #[test]
    fn what_is_set_holds() {
        let both = Options::default().tuning(
            Tuning::default()
                .memtable_budget_bytes(100 * MIB)
                .cache_bytes(0),
        );
        assert_eq!(sizes(&both, None), (100, 0, 356));
        assert_eq!(sizes(&both, Some(512)), (100, 0, 164));
        assert_eq!(sizes(&both.memory_bytes_max(50 * MIB), None), (100, 0, 50));
        let cache = Options::default().tuning(Tuning::default().cache_bytes(1024 * MIB));
        assert_eq!(sizes(&cache, None), (256, 1024, 1536));
        let memtables =
            Options::default().tuning(Tuning::default().memtable_budget_bytes(u64::MAX));
        assert_eq!(MemorySizes::of(&memtables, None).bytes_max, u64::MAX);
    }

    #[test]
    fn settled_options_stay_as_they_are() {
        for options in through_the_cache() {
            let engine = options.engine;
            let settled = options.settled(engine);
            let sizes = settled.memory_sizes();
            assert_eq!(settled.tuning.memtable_budget_bytes, Some(sizes.memtables));
            assert_eq!(settled.tuning.cache_bytes, Some(sizes.cache));
            assert_eq!(settled.memory_bytes_max, sizes.bytes_max);
            let again = settled.clone().settled(engine);
            assert_eq!(again.memory_sizes(), sizes);
        }
    }
}
