//! Option sets so small that every mechanism of the engine runs all the time.

use gabion::{Compression, Durability, Engine, MemTableForm, Options, TableReads};

use super::Random;

/// A store in which a few hundred writes flush, compact, split and turn the log over, all of it in
/// the writing thread.
pub(crate) fn small_options() -> Options {
    Options::default()
        .durability(Durability::Buffered)
        .memtable_budget_bytes(64 << 10)
        .cache_bytes(64 << 10)
        .log_bytes_max(16 << 10)
        .bucket_bytes(8 << 10)
        .block_bytes(256)
        .background_threads(0)
        .split_ways(4)
        .sublevels_min(2)
        .sublevels_max(4)
        .searches_until_ordered(2)
        .pool_bytes(64 << 20)
        .records_planned(64)
        .checkpoints(false)
}

/// The same with buckets so large that a table of a few writes is small beside them.
pub(crate) fn roomy_options() -> Options {
    small_options().bucket_bytes(256 << 10)
}

/// The engines whose stores may lie on any disk, simulated ones included.
pub(crate) fn engines_on_disks() -> impl Iterator<Item = Engine> {
    let all = Engine::ALL.iter().copied();
    all.filter(|engine| !engine.capabilities().mapped)
}

/// Ways to be small of an engine.
pub(crate) fn option_sets(engine: Engine) -> Vec<Options> {
    match engine {
        Engine::Flex => flex_option_sets(),
        Engine::Scmkv => scmkv_option_sets(),
        Engine::Sptree => sptree_option_sets(),
        _ => wip_option_sets(),
    }
}

/// Half of the stores of FlexDB have so little memory that hardly a leaf of their spaces' trees can
/// stay in it.
pub(crate) fn with_little_memory(options: Options, seed: u64) -> Options {
    match options.engine {
        Engine::Flex if seed.is_multiple_of(2) => {
            let least = options.memtable_budget_bytes / 4;
            options.memory_bytes_max(least)
        }
        _ => options,
    }
}

/// Eight ways for FlexDB: without and with a cache, large and tiny MemTables, with threads, and
/// with so little memory that the trees of spaces have two leaves of it.
fn flex_option_sets() -> Vec<Options> {
    let small = || small_options().engine(Engine::Flex);
    vec![
        small().memtable_budget_bytes(8 << 10),
        small().cache_bytes(0),
        small()
            .memtable_budget_bytes(1 << 10)
            .log_bytes_max(2 << 10),
        small()
            .background_threads(1)
            .memtable_budget_bytes(16 << 10),
        small()
            .background_threads(2)
            .durability(Durability::Sync)
            .memtable_budget_bytes(4 << 10)
            .cache_bytes(1 << 10),
        small()
            .background_threads(2)
            .durability(Durability::default())
            .log_bytes_max(2 << 10),
        small()
            .memtable_budget_bytes(1 << 20)
            .log_bytes_max(1 << 20),
        small()
            .memtable_budget_bytes(16 << 10)
            .memory_bytes_max(8 << 10),
    ]
}

/// Four ways for SCMKV: with and without threads and a checkpoint, at all durabilities, with many
/// buckets and few.
fn scmkv_option_sets() -> Vec<Options> {
    let small = || small_options().engine(Engine::Scmkv);
    vec![
        // A store that is made without a checkpoint has none later.
        small().checkpoints(true),
        small().space_amplification_max(1.25).records_planned(4096),
        small()
            .checkpoints(true)
            .background_threads(2)
            .durability(Durability::Sync),
        small()
            .checkpoints(true)
            .background_threads(1)
            .durability(Durability::default()),
    ]
}

/// Three ways for SPTree: with and without a thread and a checkpoint, at all durabilities.
fn sptree_option_sets() -> Vec<Options> {
    let small = || small_options().engine(Engine::Sptree);
    vec![
        small().checkpoints(true),
        small()
            .checkpoints(true)
            .background_threads(2)
            .durability(Durability::Sync),
        small()
            .checkpoints(true)
            .background_threads(1)
            .durability(Durability::default()),
    ]
}

/// Twelve ways to be small, half of them with background threads, half of them with mapped tables,
/// a third of them with each form of the MemTables, pairs of them with the same compression.
fn wip_option_sets() -> Vec<Options> {
    let small = small_options;
    let sets = vec![
        small(),
        small()
            .memtable_budget_bytes(4 << 10)
            .bucket_bytes(4 << 10)
            .block_bytes(64),
        small()
            .filter_bits_per_key(0)
            .split_ways(2)
            .sublevels_max(2)
            .read_weight(0)
            .paranoid_checks(true),
        small()
            .split_ways(8)
            .sublevels_min(4)
            .sublevels_max(8)
            .log_bytes_max(1 << 20),
        small()
            .memtable_budget_bytes(256 << 10)
            .bucket_bytes(16 << 10)
            .block_bytes(512),
        small()
            .cache_bytes(0)
            .bucket_bytes(4 << 10)
            .filter_bits_per_key(2),
        small().background_threads(2),
        small()
            .background_threads(2)
            .memtable_budget_bytes(16 << 10)
            .bucket_bytes(4 << 10),
        small()
            .background_threads(1)
            .split_ways(2)
            .sublevels_max(2)
            .filter_bits_per_key(0),
        small()
            .background_threads(2)
            .durability(Durability::Sync)
            .block_bytes(128),
        small()
            .background_threads(3)
            .split_ways(8)
            .sublevels_max(8)
            .paranoid_checks(true)
            .cache_bytes(1 << 10),
        small()
            .background_threads(2)
            .durability(Durability::default())
            .log_bytes_max(2 << 10)
            .space_amplification_max(1.25),
    ];
    let ways = [TableReads::Cached, TableReads::Mapped];
    let ways = ways.into_iter().cycle();
    let forms = [
        MemTableForm::Adaptive,
        MemTableForm::Ordered,
        MemTableForm::Hash,
    ];
    let forms = forms.into_iter().cycle();
    let compressions: Vec<_> = Compression::available()
        .flat_map(|one| [one, one])
        .collect();
    let compressions = compressions.into_iter().cycle();
    sets.into_iter()
        .zip(ways.zip(forms).zip(compressions))
        .map(|(set, ((way, form), compression))| {
            set.table_reads(way)
                .memtable_form(form)
                .compression(compression)
        })
        .collect()
}

/// An option set of WipDB that a seed draws: each option by itself, so that what no list of sets
/// has side by side comes together.
pub(crate) fn drawn_options(seed: u64) -> Options {
    let mut random = Random::new(seed);
    let random = &mut random;
    let memtables = one_of(random, &[4 << 10, 16 << 10, 64 << 10, 256 << 10]);
    // None that matters, or one that leaves the MemTables less than their budget.
    let ceiling = one_of(random, &[0, memtables / 4, memtables / 2]);
    let sublevels_min = one_of(random, &[2, 3, 4]);
    let forms = [
        MemTableForm::Adaptive,
        MemTableForm::Ordered,
        MemTableForm::Hash,
    ];
    let durabilities = [
        Durability::Buffered,
        Durability::default(),
        Durability::Sync,
    ];
    let compressions: Vec<_> = Compression::available().collect();
    small_options()
        .memtable_budget_bytes(memtables)
        .memory_bytes_max(ceiling)
        .sublevels_min(sublevels_min)
        .sublevels_max(sublevels_min + one_of(random, &[0, 1, 4]))
        .cache_bytes(one_of(random, &[0, 1 << 10, 64 << 10]))
        .log_bytes_max(one_of(random, &[1 << 10, 2 << 10, 16 << 10, 1 << 20]))
        .bucket_bytes(one_of(random, &[1 << 10, 4 << 10, 8 << 10, 64 << 10]))
        .block_bytes(one_of(random, &[64, 128, 256, 4 << 10, 32 << 10]))
        .background_threads(one_of(random, &[0, 0, 1, 2, 3]))
        .split_ways(one_of(random, &[2, 3, 4, 8, 64]))
        .searches_until_ordered(one_of(random, &[0, 1, 100]))
        .read_weight(one_of(random, &[0, 1, 100]))
        .filter_bits_per_key(one_of(random, &[0, 1, 10, 32]))
        .paranoid_checks(one_of(random, &[false, true]))
        .writers_side_by_side(one_of(random, &[false, true]))
        .space_amplification_max(one_of(random, &[1.25, 2.0, f64::INFINITY]))
        .memtable_form(one_of(random, &forms))
        .table_reads(one_of(random, &[TableReads::Cached, TableReads::Mapped]))
        .durability(one_of(random, &durabilities))
        .compression(one_of(random, &compressions))
}

fn one_of<T: Copy>(random: &mut Random, values: &[T]) -> T {
    values[random.index(values.len())]
}
