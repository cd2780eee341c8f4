//! Keeps the store's memory below its ceiling: the memory of spaces, their indexes and past
//! generations determines how much MemTables and the cache may use ([`crate::memory`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::partition::TREES_ONE_IN;
use super::{Flex, FlexKeyspace};
use crate::stats::MemoryStats;

/// Trees are short of memory when less than one in so many of their part is left.
const SHORT_ONE_IN: u64 = 8;

/// A tree is idle when so many rounds have ended since its space was used.
const QUIET_ROUNDS: u32 = 4;

/// What a tree may have that takes `bytes`, where all take `sum` and may take `most`.
fn share_of(bytes: u64, sum: u64, most: u64, is_idle: bool) -> u64 {
    let share = if sum <= most {
        bytes + (most - sum)
    } else {
        u64::try_from(u128::from(most) * u128::from(bytes) / u128::from(sum)).unwrap_or(most)
    };
    if is_idle { share.min(bytes / 2) } else { share }
}

impl Flex {
    /// Counts what the spaces and their indexes take by now, and lets MemTables and the cache use
    /// what is left. The caller holds the merge lock, or nobody else has the store yet.
    pub(super) fn fit_memory(&self) {
        self.fit_trees();
        self.memory.pool().set_limit(self.memory.memtable_budget());
        self.cache.shrink();
    }

    /// Gives each space's tree a budget: what it has and all that is left of the trees' part of the
    /// ceiling; or, when they have more than that part, each one less in proportion. Where little
    /// is left, one that was not used for [some rounds](QUIET_ROUNDS) gives up a half of what it
    /// has. A round ends here if a space was used in it: while none is, none needs what others
    /// have.
    ///
    /// There may be very many spaces. One that was not used has what it had, and keeps its budget
    /// unless much less is left than when that was given.
    fn fit_trees(&self) {
        let keyspaces = self.keyspaces.load();
        if !keyspaces.iter().any(|own| own.partition.is_used()) {
            return;
        }
        let most = self.options.memory_ceiling() / TREES_ONE_IN;
        let end_round = |keyspace: &Arc<FlexKeyspace>| {
            let quiet = keyspace.partition.end_round();
            if quiet == 0 {
                keyspace.partition.count_memory();
            }
            quiet
        };
        let quiet: Vec<u32> = keyspaces.iter().map(end_round).collect();
        let bytes = |keyspace: &Arc<FlexKeyspace>| keyspace.partition.tree_bytes();
        let sum: u64 = keyspaces.iter().map(bytes).sum();
        let left = most.saturating_sub(sum);
        let is_short = left < most / SHORT_ONE_IN;
        // ORDER: Relaxed (both); the caller's lock orders them.
        let given = self.trees_left.load(Ordering::Relaxed);
        let is_for_all = sum > most || left < given / 2;
        let given = if is_for_all { left } else { left.max(given) };
        self.trees_left.store(given, Ordering::Relaxed);
        // One that has little must be able to grow.
        let least = most / 4 / (keyspaces.len() as u64).max(1);
        for (keyspace, quiet) in keyspaces.iter().zip(quiet) {
            let partition = &keyspace.partition;
            let bytes = partition.tree_bytes();
            let is_idle = quiet >= QUIET_ROUNDS && is_short && bytes > least;
            if quiet > 0 && !is_idle && !is_for_all {
                continue;
            }
            if is_idle && let Err(error) = partition.checkpoint() {
                // What changed can go when it is saved; where that is short of space it stays. Who
                // needs what else has failed is told when it fails again.
                if !error.is_shortage() {
                    tracing::warn!(%error, "an idle keyspace could not be saved and keeps its \
                                            memory");
                    continue;
                }
            }
            let share = share_of(bytes, sum, most, is_idle);
            partition.space().set_index_bytes(Some(share.max(least)));
            partition.count_memory();
            #[cfg(test)]
            FITTED.set(FITTED.get() + 1);
        }
    }

    /// Who has how much of the memory. Images of the past stand with the MemTables.
    pub(super) fn memory_stats(&self, images: u64) -> MemoryStats {
        for keyspace in self.keyspaces.load().iter() {
            keyspace.partition.count_memory();
        }
        let stats = self.memory.stats(self.cache.bytes());
        MemoryStats {
            tables: stats.tables.saturating_sub(images),
            memtables: stats.memtables + images,
            ..stats
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Spaces whose trees this thread has given a budget.
    pub(super) static FITTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, Fault, FaultKind, SimDisk};

    use super::super::Write;
    use super::*;
    use crate::engine::ssd::{CommitWrites, Lifecycle};
    use crate::types::Kind;
    use crate::{Options, Tuning};

    const KIB: u64 = 1 << 10;

    fn key(number: u64) -> [u8; 8] {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
    }

    fn put(engine: &Flex, keyspace: &Arc<FlexKeyspace>, number: u64, value: &[u8]) {
        let key = key(number);
        let write = Write::Single {
            keyspace,
            kind: Kind::Put,
            key: &key,
            value,
        };
        engine.write(write, 8 + value.len() as u64, false).unwrap();
    }

    fn open(options: Options) -> (Arc<Flex>, Arc<FlexKeyspace>) {
        let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        (engine, keyspace)
    }

    fn options() -> Options {
        Options::default()
            .background_threads(0)
            .tuning(
                Tuning::default()
                    .memtable_budget_bytes(256 * KIB)
                    .cache_bytes(4096 * KIB),
            )
            .log_bytes_max(4096 * KIB)
    }

    fn now(engine: &Flex) -> MemoryStats {
        engine.stats().memory
    }

    #[test]
    fn the_ceiling_is_kept_far_past_each_part() {
        let (engine, keyspace) = open(options().memory_bytes_max(2048 * KIB));
        // What a chunk and a directory that grows may add.
        let slack = 96 * KIB;
        let mut most = MemoryStats::default();
        for number in 0..60_000 {
            put(&engine, &keyspace, number, &[7; 50]);
            if number % 97 == 0 {
                for other in (number / 2..number).step_by(1009) {
                    assert!(engine.get(&keyspace, &key(other), None).unwrap().is_some());
                }
            }
            if number % 500 == 0 {
                let now = now(&engine);
                let over = (now.tables + 96 * KIB).saturating_sub(now.bytes_max);
                assert!(
                    now.bytes <= now.bytes_max + over + slack,
                    "after {number}: {now:?}"
                );
                most.tables = most.tables.max(now.tables);
                most.memtables = most.memtables.max(now.memtables);
                most.cache = most.cache.max(now.cache);
            }
        }
        let now = now(&engine);
        println!("at most {most:?}, at the end {now:?}");
        // Each part alone has come to where it had to give way.
        assert!(most.cache > 512 * KIB && now.cache < most.cache, "{most:?}");
        assert!(most.memtables > 128 * KIB, "{most:?}");
        assert!(now.memtables_max <= 384 * KIB, "{now:?}");
        engine.close().unwrap();
    }

    #[test]
    fn a_ceiling_below_what_spaces_need_leaves_memtables_their_least() {
        let (engine, keyspace) = open(options().memory_bytes_max(64 * KIB));
        for number in 0..20_000 {
            put(&engine, &keyspace, number, &[7; 50]);
            if number % 100 == 0 {
                let found = engine.get(&keyspace, &key(number / 2), None);
                assert!(found.unwrap().is_some());
            }
        }
        let now = now(&engine);
        assert_eq!((now.memtables_max, now.cache), (96 * KIB, 0), "{now:?}");
        assert!(now.bytes > now.bytes_max, "the store says so: {now:?}");
        engine.close().unwrap();
    }

    #[test]
    fn trees_that_do_not_fit_keep_to_their_part() {
        let ceiling = 512 * KIB;
        let (engine, keyspace) = open(options().memory_bytes_max(ceiling));
        let other = engine.create_keyspace("another").unwrap();
        for number in 0..80_000 {
            put(&engine, &keyspace, number, &[7; 20]);
            if number % 10 == 0 {
                put(&engine, &other, number, &[8; 20]);
            }
        }
        engine.flush().unwrap();
        let stats = [&keyspace, &other].map(|own| own.partition.space().stats());
        let whole: u64 = stats.iter().map(|stats| stats.tree_nodes << 10).sum();
        let trees = [&keyspace, &other].map(|own| own.partition.space().index_bytes());
        let sum: u64 = trees.iter().sum();
        println!("{trees:?} of {whole} bytes in memory");
        assert!(whole > 2 * ceiling / TREES_ONE_IN, "{whole}");
        // What the last group touched, and the least that each may have.
        assert!(sum <= ceiling / TREES_ONE_IN + 32 * KIB, "{trees:?}");
        assert!(trees[0] > 2 * trees[1], "in proportion: {trees:?}");
        for number in (0..80_000).step_by(7) {
            let found = engine.get(&keyspace, &key(number), None).unwrap();
            assert_eq!(found.as_deref(), Some(&[7; 20][..]));
            let found = engine.get(&other, &key(number), None).unwrap();
            assert_eq!(found.is_some(), number % 10 == 0);
        }
        engine.close().unwrap();
    }

    /// Each space was opened with all of the trees' part, and memory that a tree had was not given
    /// back.
    #[test]
    fn trees_of_many_spaces_keep_to_their_part_from_the_opening_on() {
        let sim = SimDisk::new();
        let ceiling = 512 * KIB;
        let options = options().memory_bytes_max(ceiling);
        let open = || Flex::open(Disk::simulated(&sim), options.clone()).unwrap();
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let engine = open();
        for name in names {
            let keyspace = engine.create_keyspace(name).unwrap();
            for number in 0..20_000 {
                put(&engine, &keyspace, number, &[7; 100]);
            }
        }
        engine.close().unwrap();
        drop(engine);
        let engine = open();
        let (mut sum, mut fetched) = (0, 0);
        for name in names {
            let keyspace = engine.create_keyspace(name).unwrap();
            let stats = keyspace.partition.space().stats();
            sum += stats.tree_memory_bytes;
            fetched += stats.tree_leaves_fetched << 10;
        }
        println!("{sum} bytes of memory, {fetched} fetched");
        assert!(fetched > 2 * ceiling / TREES_ONE_IN, "{fetched}");
        // What the last read of each fetched.
        assert!(sum <= ceiling / TREES_ONE_IN + 32 * KIB, "{sum}");
        // Nor was one of them taken for idle because it was just opened, nor is it while nobody
        // uses the store.
        for _ in 0..2 * QUIET_ROUNDS {
            let keyspaces = engine.keyspaces.load();
            let budgets: Vec<u64> = keyspaces.iter().map(budget).collect();
            let sum: u64 = budgets.iter().sum();
            assert!(sum >= ceiling / TREES_ONE_IN / 8 * 7, "{budgets:?}");
            engine.tidy().unwrap();
        }
        engine.close().unwrap();
    }

    /// A keyspace that nobody used any more kept what its tree had in memory, and another one that
    /// needed it got none of it.
    #[test]
    fn the_tree_of_an_idle_keyspace_gives_its_memory_to_others() {
        let ceiling = 512 * KIB;
        let (engine, idle) = open(options().memory_bytes_max(ceiling));
        for number in 0..40_000 {
            put(&engine, &idle, number, &[7; 20]);
        }
        engine.flush().unwrap();
        let most = ceiling / TREES_ONE_IN;
        let trees = |keyspace: &Arc<FlexKeyspace>| {
            let stats = keyspace.partition.space().stats();
            let bytes = keyspace.partition.space().index_bytes();
            (bytes, stats.tree_memory_bytes, stats.tree_memory_bytes_max)
        };
        let before = trees(&idle);
        assert!(before.0 > most * 3 / 4, "{before:?} of {most}");
        let busy = engine.create_keyspace("busy").unwrap();
        for number in 0..40_000 {
            put(&engine, &busy, number, &[8; 20]);
        }
        engine.flush().unwrap();
        let after = [trees(&idle), trees(&busy)];
        println!("of {most} bytes {before:?} before, {after:?} after");
        // The least that each may have, and what lies above leaves.
        assert!(after[0].0 <= most / 8 + 8 * KIB, "{after:?}");
        assert!(after[1].0 > most / 2, "{after:?}");
        // Memory goes in chunks, the last of which is half of all.
        assert!(after[0].1 <= 3 * after[0].0, "{after:?}");
        for number in (0..40_000).step_by(7) {
            let found = engine.get(&idle, &key(number), None).unwrap();
            assert_eq!(found.as_deref(), Some(&[7; 20][..]));
        }
        engine.close().unwrap();
    }

    #[test]
    fn shares_are_what_is_left_or_in_proportion_and_idle_trees_never_get_more() {
        assert_eq!(share_of(300, 400, 1_000, false), 900);
        assert_eq!(share_of(300, 950, 1_000, true), 150);
        assert_eq!(share_of(300, 1_500, 1_000, false), 200);
        assert_eq!(share_of(300, 1_500, 1_000, true), 150);
        // Less than a half: when all have more than twice their part.
        assert_eq!(share_of(300, 3_000, 1_000, true), 100);
    }

    /// Two keyspaces that leave little of the trees' part.
    fn filled(sim: &SimDisk, ceiling: u64) -> (Arc<Flex>, [Arc<FlexKeyspace>; 2]) {
        let disk = Disk::simulated(sim);
        let engine = Flex::open(disk, options().memory_bytes_max(ceiling)).unwrap();
        let keyspaces = ["one", "two"].map(|name| engine.create_keyspace(name).unwrap());
        for number in 0..30_000 {
            for keyspace in &keyspaces {
                put(&engine, keyspace, number, &[7; 20]);
            }
        }
        engine.flush().unwrap();
        (engine, keyspaces)
    }

    fn budget(keyspace: &Arc<FlexKeyspace>) -> u64 {
        let stats = keyspace.partition.space().stats();
        stats.tree_memory_bytes_max.unwrap()
    }

    fn read_all(engine: &Flex, keyspace: &Arc<FlexKeyspace>) {
        for number in 0..30_000 {
            let found = engine.get(keyspace, &key(number), None).unwrap();
            assert_eq!(found.as_deref(), Some(&[7; 20][..]));
        }
    }

    /// A tree that could not be saved made the merge fail that wanted another one to have more.
    #[test]
    fn a_keyspace_that_cannot_be_saved_keeps_its_memory() {
        let sim = SimDisk::new();
        let ceiling = 512 * KIB;
        let (engine, [read, idle]) = filled(&sim, ceiling);
        sim.inject(Fault {
            at: sim.ops(),
            kind: FaultKind::Eio,
            forever: true,
        });
        let before = sim.ops();
        for _ in 0..2 * QUIET_ROUNDS {
            read_all(&engine, &read);
            assert!(!engine.tidy().unwrap());
        }
        assert!(sim.ops() > before, "it was tried");
        let most = ceiling / TREES_ONE_IN;
        assert!(budget(&idle) > most * 3 / 8, "{} of {most}", budget(&idle));
        sim.clear_faults();
        put(&engine, &read, 0, b"more");
        engine.flush().unwrap();
        read_all(&engine, &idle);
        engine.close().unwrap();
    }

    /// Memory was dealt out by merges only: a keyspace that was only read kept the little that it
    /// had when writes ended.
    #[test]
    fn a_keyspace_that_is_only_read_gets_the_memory_of_an_idle_one() {
        let sim = SimDisk::new();
        let ceiling = 512 * KIB;
        let (engine, [read, idle]) = filled(&sim, ceiling);
        let most = ceiling / TREES_ONE_IN;
        let before = [budget(&read), budget(&idle)];
        for round in 0..4 * QUIET_ROUNDS {
            read_all(&engine, &read);
            while engine.tidy().unwrap() {}
            if round + 1 < QUIET_ROUNDS {
                assert!(budget(&idle) > most / 4, "not idle yet");
            }
        }
        let after = [budget(&read), budget(&idle)];
        println!("of {most} bytes {before:?} before, {after:?} after");
        assert!(before[0] < most * 5 / 8, "{before:?} of {most}");
        assert!(after[0] > most * 5 / 8, "{after:?} of {most}");
        assert!(after[1] < before[1] / 2, "{after:?} of {most}");
        read_all(&engine, &idle);
        engine.close().unwrap();
    }

    #[test]
    fn a_snapshot_costs_one_old_value_of_each_key_however_often_keys_change() {
        let (engine, keyspace) = open(options());
        let keys = 2_000;
        for number in 0..keys {
            put(&engine, &keyspace, number, &[1; 100]);
        }
        let snapshots: Vec<_> = (0..3_u8)
            .map(|round| {
                for number in 0..keys {
                    put(&engine, &keyspace, number, &[10 + round; 100]);
                }
                engine.begin_snapshot()
            })
            .collect();
        for round in 0..60_u8 {
            for number in 0..keys {
                put(&engine, &keyspace, number, &[100 + round; 100]);
            }
        }
        engine.flush().unwrap();
        // Of each key one value for each snapshot, with what comes with it.
        let images = 3 * keys * (128 + 96);
        let held = now(&engine).memtables;
        // Besides, the generations in which snapshots stand, and the one that takes writes.
        let others = 800 * KIB;
        assert!(held <= images + others, "{held} bytes for {images}");
        assert!(held >= images / 2, "{held} bytes");
        for (round, seq) in (0_u8..).zip(&snapshots) {
            for number in (0..keys).step_by(37) {
                let found = engine.get(&keyspace, &key(number), Some(*seq)).unwrap();
                assert_eq!(found.as_deref(), Some(&[10 + round; 100][..]));
            }
        }
        // Without the one in the middle, its neighbours are as good as one.
        engine.end_snapshot(snapshots[1]);
        put(&engine, &keyspace, keys, b"");
        engine.flush().unwrap();
        let held = now(&engine).memtables;
        assert!(held <= images * 2 / 3 + others, "{held} bytes");
        for (round, seq) in [(10, snapshots[0]), (12, snapshots[2])] {
            let found = engine.get(&keyspace, &key(5), Some(seq)).unwrap();
            assert_eq!(found.as_deref(), Some(&[round; 100][..]));
            engine.end_snapshot(seq);
        }
        assert!(now(&engine).memtables < 256 * KIB);
        engine.close().unwrap();
    }
}
