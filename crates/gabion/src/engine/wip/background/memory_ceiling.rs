//! Keeps the store's memory below its ceiling: the counts of [`crate::memory`] determine how much
//! MemTables and the block cache may use.

use crate::engine::wip::Wip;
use crate::stats::MemoryStats;

impl Wip {
    /// Lets MemTables and cache use what open tables leave of the ceiling. Returns whether
    /// MemTables may use less than before; then those that are too large by now are to be frozen.
    pub(in super::super) fn fit_memory(&self) -> bool {
        let budget = self.memory.memtable_budget();
        let shrunk = self.throttle.set_budget(budget);
        self.pool.set_limit(budget);
        self.cache.yield_room();
        shrunk
    }

    /// Who has how much of the memory.
    pub(in super::super) fn memory_stats(&self) -> MemoryStats {
        self.memory.stats(self.cache.stats().bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::Tuning;
    use crate::engine::ssd::Lifecycle;
    use crate::engine::wip::WipKeyspace;
    use crate::options::TableReads;
    use crate::{Compression, Options};

    const KIB: u64 = 1 << 10;

    /// Adds up what the structures of a store hold, one by one. No reader may hold any.
    fn walk(engine: &Wip) -> MemoryStats {
        let mut tables = HashMap::new();
        let mut memtables = HashMap::new();
        for (_, bucket) in engine.buckets() {
            let state = bucket.state.load();
            for table in state.memtables() {
                memtables.insert(Arc::as_ptr(table), table.held_bytes());
            }
            for table in state.levels.files().filter_map(|file| file.opened()) {
                tables.insert(Arc::as_ptr(table), table.memory_bytes() as u64);
            }
        }
        let (_, recycled) = engine.pool.waiting_bytes_for_tests();
        let cache = engine.cache.walk_bytes_for_tests();
        let (tables, memtables) = (tables.values().sum(), memtables.values().sum());
        MemoryStats {
            bytes: tables + memtables + recycled + cache,
            tables,
            memtables,
            recycled,
            cache,
            ..MemoryStats::default()
        }
    }

    /// Compares what is counted with what is there; returns it.
    fn counted(engine: &Wip) -> MemoryStats {
        let (counted, walked) = (engine.memory_stats(), walk(engine));
        let parts = |stats: &MemoryStats| {
            let MemoryStats {
                tables,
                memtables,
                recycled,
                cache,
                bytes,
                ..
            } = *stats;
            [tables, memtables, recycled, cache, bytes]
        };
        assert_eq!(parts(&counted), parts(&walked));
        counted
    }

    fn put(engine: &Wip, keyspace: &Arc<WipKeyspace>, number: u64, len: usize) {
        let key = number_key(number);
        let value = vec![7; len];
        engine.put_for_tests(keyspace, &key, &value);
    }

    fn options() -> Options {
        Options::default()
            .background_threads(0)
            .tuning(
                Tuning::default()
                    .memtable_budget_bytes(256 * KIB)
                    .cache_bytes(512 * KIB)
                    .bucket_bytes(256 * KIB)
                    .filter_bits_per_key(32)
                    .block_bytes(1 << 10),
            )
            .memory_bytes_max(576 * KIB)
            .table_reads(TableReads::Cached)
            .log_bytes_max(1024 * KIB)
    }

    #[test]
    fn the_ceiling_is_kept_far_past_each_part() {
        for compression in [Compression::None, Compression::Lz4] {
            let options = options()
                .memory_bytes_max(544 * KIB)
                .compression(compression);
            let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
            let keyspace = engine.create_keyspace("keyspace").unwrap();
            // What a chunk, a directory that grows and a twentieth of the budget may add.
            let slack = 96 * KIB;
            let mut most = MemoryStats::default();
            for number in 0..60_000 {
                put(&engine, &keyspace, number, 16);
                if number % 97 == 0 {
                    // A get of each ninety-seventh key keeps tables open and the cache in use.
                    for other in (number / 2..number).step_by(1009) {
                        let key = number_key(other);
                        assert!(engine.get(&keyspace, &key, None).unwrap().is_some());
                    }
                }
                if number % 500 == 0 {
                    let now = counted(&engine);
                    let least = 64 * KIB;
                    let over = (now.tables + least).saturating_sub(now.bytes_max);
                    assert!(
                        now.bytes <= now.bytes_max + over + slack,
                        "after {number}: {now:?}"
                    );
                    most.tables = most.tables.max(now.tables);
                    most.memtables = most.memtables.max(now.memtables);
                    most.cache = most.cache.max(now.cache);
                    most.recycled = most.recycled.max(now.recycled);
                }
            }
            let now = counted(&engine);
            println!("at most {most:?}, at the end {now:?}");
            // Each part alone has come to where it had to give way.
            assert!(most.cache > 192 * KIB && now.cache < most.cache, "{most:?}");
            assert!(most.memtables > 128 * KIB && most.recycled > 0, "{most:?}");
            assert!(now.memtables_max < 256 * KIB, "{now:?}");
            engine.close().unwrap();
        }
    }

    #[test]
    fn a_ceiling_below_what_tables_need_leaves_memtables_a_quarter() {
        let options = options().memory_bytes_max(64 * KIB);
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        for number in 0..20_000 {
            put(&engine, &keyspace, number, 16);
            let key = number_key(number / 2);
            if number % 100 == 0 {
                assert!(engine.get(&keyspace, &key, None).unwrap().is_some());
            }
        }
        let now = counted(&engine);
        assert_eq!((now.memtables_max, now.cache), (64 * KIB, 0), "{now:?}");
        assert!(now.bytes > now.bytes_max, "the store says so: {now:?}");
        engine.close().unwrap();
    }

    #[test]
    fn an_idle_store_gives_memtables_up_when_tables_need_the_memory() {
        let sim = SimDisk::new();
        let engine = Wip::open(Disk::simulated(&sim), options()).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        (0..60_000).for_each(|number| put(&engine, &keyspace, number, 16));
        engine.flush().unwrap();
        engine.close().unwrap();
        // No table is open now, so MemTables have all that they may have.
        let engine = Wip::open(Disk::simulated(&sim), options()).unwrap();
        let keyspace = engine.keyspaces.find("keyspace").unwrap();
        (0..1_500).for_each(|number| put(&engine, &keyspace, number, 50));
        let before = counted(&engine);
        for number in 0..60_000 {
            let key = number_key(number);
            assert!(engine.get(&keyspace, &key, None).unwrap().is_some());
        }
        engine.run_inline();
        let after = counted(&engine);
        println!("{before:?}, {after:?}");
        assert!(after.tables > before.tables && after.memtables_max < before.memtables_max);
        assert!(after.memtables <= after.memtables_max, "{after:?}");
        engine.close().unwrap();
    }

    fn number_key(number: u64) -> [u8; 8] {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
    }
}
