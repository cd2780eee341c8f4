//! Option sets so small that every mechanism of the engine runs all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gabion::{
    Clock, Compression, Durability, Engine, MappedOptions, MemTableForm, Options, TableReads,
    Tuning,
};

use super::SeededRng;

/// A store in which a few hundred writes flush, compact, split and turn the log over, all of it in
/// the writing thread.
pub(crate) fn small_options() -> Options {
    Options::default()
        .durability(Durability::Buffered)
        .log_bytes_max(16 << 10)
        .background_threads(0)
        .mapped(small_mapped())
        .tuning(small_tuning())
}

/// The sizes of [`small_options`].
pub(crate) fn small_tuning() -> Tuning {
    Tuning::default()
        .memtable_budget_bytes(64 << 10)
        .cache_bytes(64 << 10)
        .bucket_bytes(8 << 10)
        .block_bytes(256)
        .split_ways(4)
        .sublevels_min(2)
        .sublevels_max(4)
        .scans_until_ordered(2)
}

/// The mapped file of [`small_options`].
pub(crate) fn small_mapped() -> MappedOptions {
    MappedOptions::default()
        .pool_bytes(64 << 20)
        .expected_records(64)
        .checkpoints(false)
}

/// The sizes of [`roomy_options`].
pub(crate) fn roomy_tuning() -> Tuning {
    small_tuning().bucket_bytes(256 << 10)
}

/// Small options with buckets so large that a table of a few writes is small beside them.
pub(crate) fn roomy_options() -> Options {
    small_options().tuning(roomy_tuning())
}

/// Options with other tuning.
pub(crate) fn tuned(mut options: Options, change: impl FnOnce(Tuning) -> Tuning) -> Options {
    options.tuning = change(options.tuning);
    options
}

/// Options with another mapped file.
pub(crate) fn mapped(
    mut options: Options,
    change: impl FnOnce(MappedOptions) -> MappedOptions,
) -> Options {
    options.mapped = change(options.mapped);
    options
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
            let least = options.memory_sizes().memtables / 4;
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
        small().tuning(small_tuning().memtable_budget_bytes(8 << 10)),
        small().tuning(small_tuning().cache_bytes(0)),
        small()
            .tuning(small_tuning().memtable_budget_bytes(1 << 10))
            .log_bytes_max(2 << 10),
        small()
            .background_threads(1)
            .tuning(small_tuning().memtable_budget_bytes(16 << 10)),
        small()
            .background_threads(2)
            .durability(Durability::Sync)
            .tuning(
                small_tuning()
                    .memtable_budget_bytes(4 << 10)
                    .cache_bytes(1 << 10),
            ),
        small()
            .background_threads(2)
            .durability(Durability::default())
            .log_bytes_max(2 << 10),
        small()
            .tuning(small_tuning().memtable_budget_bytes(1 << 20))
            .log_bytes_max(1 << 20),
        small()
            .tuning(small_tuning().memtable_budget_bytes(16 << 10))
            .memory_bytes_max(8 << 10),
    ]
}

/// Four ways for SCMKV: with and without threads and a checkpoint, at all durabilities, with many
/// buckets and few.
fn scmkv_option_sets() -> Vec<Options> {
    let small = || small_options().engine(Engine::Scmkv);
    vec![
        // A store that is made without a checkpoint has none later.
        small().mapped(small_mapped().checkpoints(true)),
        small()
            .space_amplification_max(1.25)
            .mapped(small_mapped().expected_records(4096)),
        small()
            .mapped(small_mapped().checkpoints(true))
            .background_threads(2)
            .durability(Durability::Sync),
        small()
            .mapped(small_mapped().checkpoints(true))
            .background_threads(1)
            .durability(Durability::default()),
    ]
}

/// Three ways for SPTree: with and without a thread and a checkpoint, at all durabilities.
fn sptree_option_sets() -> Vec<Options> {
    let small = || small_options().engine(Engine::Sptree);
    vec![
        small().mapped(small_mapped().checkpoints(true)),
        small()
            .mapped(small_mapped().checkpoints(true))
            .background_threads(2)
            .durability(Durability::Sync),
        small()
            .mapped(small_mapped().checkpoints(true))
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
        small().tuning(
            small_tuning()
                .memtable_budget_bytes(4 << 10)
                .bucket_bytes(4 << 10)
                .block_bytes(64),
        ),
        small().tuning(
            small_tuning()
                .filter_bits_per_key(0)
                .split_ways(2)
                .sublevels_max(2)
                .read_weight(0)
                .paranoid_checks(true),
        ),
        small()
            .tuning(
                small_tuning()
                    .split_ways(8)
                    .sublevels_min(4)
                    .sublevels_max(8),
            )
            .log_bytes_max(1 << 20),
        small().tuning(
            small_tuning()
                .memtable_budget_bytes(256 << 10)
                .bucket_bytes(16 << 10)
                .block_bytes(512),
        ),
        small().tuning(
            small_tuning()
                .cache_bytes(0)
                .bucket_bytes(4 << 10)
                .filter_bits_per_key(2),
        ),
        small().background_threads(2),
        small().background_threads(2).tuning(
            small_tuning()
                .memtable_budget_bytes(16 << 10)
                .bucket_bytes(4 << 10),
        ),
        small().background_threads(1).tuning(
            small_tuning()
                .split_ways(2)
                .sublevels_max(2)
                .filter_bits_per_key(0),
        ),
        small()
            .background_threads(2)
            .durability(Durability::Sync)
            .tuning(small_tuning().block_bytes(128)),
        small().background_threads(3).tuning(
            small_tuning()
                .split_ways(8)
                .sublevels_max(8)
                .paranoid_checks(true)
                .cache_bytes(1 << 10),
        ),
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
        .map(|(mut set, ((way, form), compression))| {
            set.tuning.memtable_form = form;
            set.table_reads(way).compression(compression)
        })
        .collect()
}

/// An option set of an engine that a seed draws: each option by itself, so that what no list of
/// sets has side by side comes together.
///
/// Where the background may write so little that a test would wait for it, and sometimes else, the
/// clock is one that is moved by hand, by a [`Ticker`].
pub(crate) fn drawn_options(engine: Engine, seed: u64) -> Options {
    let mut random = SeededRng::new(seed);
    let random = &mut random;
    let mapped = engine.capabilities().mapped;
    let checkpoints = one_of(random, &[true, true, false]);
    let (memtables, tuning) = drawn_sizes(random);
    let tuning = drawn_levels(random, tuning);
    let tuning = drawn_forms(random, tuning);
    let options = drawn_background(random, Options::default().tuning(tuning));
    // No ceiling that matters, or one that leaves the MemTables less than their budget.
    let ceilings = [0, memtables / 4, memtables / 2];
    let compressions: Vec<_> = Compression::available().collect();
    options
        .engine(engine)
        .create_if_missing(one_of(random, &[true, false]))
        .error_if_exists(one_of(random, &[true, false]))
        .durability(drawn_durability(random, mapped, checkpoints))
        .memory_bytes_max(one_of(random, &ceilings))
        .log_bytes_max(one_of(random, &[1 << 10, 2 << 10, 16 << 10, 1 << 20]))
        .compression(one_of(random, &compressions))
        .table_reads(one_of(random, &[TableReads::Cached, TableReads::Mapped]))
        .space_amplification_max(one_of(random, &[1.25, 2.0, f64::MAX, f64::INFINITY]))
        // No model's transaction is as old as either.
        .transaction_age_max(one_of(
            random,
            &[Duration::MAX, Duration::from_secs(1 << 40)],
        ))
        .mapped(drawn_mapped(random, mapped, checkpoints))
        .changes_bytes_max(one_of(random, &[0, 10 << 10, 1 << 30]))
}

fn drawn_mapped(random: &mut SeededRng, mapped: bool, checkpoints: bool) -> MappedOptions {
    MappedOptions::default()
        .checkpoints(checkpoints)
        .expected_records(one_of(random, &[0, 1, 64, 4096]))
        .pool_bytes(one_of(random, &[64 << 20, (64 << 20) + 12_345, 96 << 20]))
        // Others have no such file, and no use for the path.
        .pool_path((!mapped && random.below(2) == 0).then(|| PathBuf::from("no such place")))
}

/// Sizes, and that of the MemTables among them.
fn drawn_sizes(random: &mut SeededRng) -> (u64, Tuning) {
    let memtables = one_of(random, &[4 << 10, 16 << 10, 64 << 10, 256 << 10]);
    let tuning = Tuning::default()
        .memtable_budget_bytes(memtables)
        .cache_bytes(one_of(random, &[0, 1 << 10, 64 << 10]))
        .bucket_bytes(one_of(random, &[1 << 10, 4 << 10, 8 << 10, 64 << 10]))
        .block_bytes(one_of(random, &[64, 128, 256, 4 << 10, 32 << 10]));
    (memtables, tuning)
}

fn drawn_levels(random: &mut SeededRng, tuning: Tuning) -> Tuning {
    let sublevels_min = one_of(random, &[2, 3, 4]);
    tuning
        .sublevels_min(sublevels_min)
        .sublevels_max(sublevels_min + one_of(random, &[0, 1, 4]))
        .split_ways(one_of(random, &[2, 3, 4, 8, 64]))
        .read_weight(one_of(random, &[0, 1, 100, u32::MAX]))
}

fn drawn_forms(random: &mut SeededRng, tuning: Tuning) -> Tuning {
    let forms = [
        MemTableForm::Adaptive,
        MemTableForm::Ordered,
        MemTableForm::Hash,
    ];
    tuning
        .memtable_form(one_of(random, &forms))
        .scans_until_ordered(one_of(random, &[0, 1, 100, u32::MAX]))
        .filter_bits_per_key(one_of(random, &[0, 1, 10, 32]))
        .paranoid_checks(one_of(random, &[false, true]))
        .concurrent_writers(one_of(random, &[false, true]))
}

fn drawn_background(random: &mut SeededRng, mut options: Options) -> Options {
    let rate = one_of(random, &[0, 0, 1_000, 50_000, 1 << 20, u64::MAX]);
    let is_limited = (1..u64::MAX).contains(&rate);
    // A clock that moves on by seconds while a job takes a moment would make everything garbage
    // that is too old, again and again.
    let a_day = Duration::from_secs(24 * 3600);
    let ages = [a_day, Duration::MAX, Duration::from_secs(1)];
    let ages = if is_limited { &ages[..2] } else { &ages };
    if is_limited || random.below(4) == 0 {
        options.tuning.clock = Clock::manual();
    }
    options.tuning.background_bytes_per_second_max = rate;
    options
        .background_threads(one_of(random, &[0, 0, 1, 2, 3]))
        .garbage_age_max(one_of(random, ages))
        .expiry_lag_max(one_of(random, ages))
}

/// Mapped stores write a checkpoint for each sync, and have no `Sync` without checkpoints.
fn drawn_durability(random: &mut SeededRng, mapped: bool, checkpoints: bool) -> Durability {
    let least = match mapped {
        true => Duration::from_millis(1),
        false => Duration::from_nanos(1),
    };
    let levels = [
        Durability::Buffered,
        Durability::default(),
        Durability::Interval(least),
        Durability::Interval(Duration::MAX),
        Durability::Sync,
    ];
    let usable = if mapped && !checkpoints { 4 } else { 5 };
    one_of(random, &levels[..usable])
}

fn one_of<T: Copy>(random: &mut SeededRng, values: &[T]) -> T {
    values[random.index(values.len())]
}

/// Moves a clock on that is moved by hand, from a thread of its own, as long as it lives: fast
/// enough for a limit on what the background writes.
pub(crate) struct Ticker {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// That of a store's clock; it does nothing where this is the system's.
    pub(crate) fn of(options: &Options) -> Ticker {
        let ends = Arc::new(AtomicBool::new(false));
        let clock = options.tuning.clock.clone();
        let step = match options.tuning.background_bytes_per_second_max {
            0 => Duration::from_millis(1),
            // A job asks for 64 KiB at once: it waits for some steps.
            rate => Duration::from_millis((20_000_000 / rate).clamp(1, 20_000)),
        };
        let own = Arc::clone(&ends);
        let tick = move || {
            // ORDER: Relaxed; a flag that orders nothing.
            while !own.load(Ordering::Relaxed) {
                clock.advance(step);
                std::thread::sleep(Duration::from_micros(200));
            }
        };
        let is_manual = format!("{:?}", options.tuning.clock).starts_with("Clock::manual");
        Ticker {
            ends,
            thread: is_manual.then(|| std::thread::spawn(tick)),
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // ORDER: Relaxed, as above.
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a ticker only ticks");
        }
    }
}

/// The fields of a struct as it prints itself, each with its value.
fn printed_fields(printed: &dyn Debug) -> BTreeMap<String, String> {
    let text = format!("{printed:#?}");
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("    ")) {
        match line.split_once(": ") {
            Some((name, value)) if !line.starts_with(' ') => {
                fields.push((name.to_owned(), value.to_owned()));
            }
            // A value of several lines.
            _ => fields.last_mut().expect("a field comes first").1 += line,
        }
    }
    fields.into_iter().collect()
}

/// The fields of options and of the structs in them, without those of a store that
/// changes nothing, which is no store for these tests (`read_only.rs` and `followers` have their
/// own).
fn all_fields(options: &Options) -> BTreeMap<String, String> {
    let mut fields = printed_fields(options);
    for name in ["read_only", "follower"] {
        fields.remove(name).expect("an option");
    }
    for (name, own) in [
        ("mapped", printed_fields(&options.mapped)),
        ("tuning", printed_fields(&options.tuning)),
    ] {
        fields.remove(name).expect("a struct in the options");
        fields.extend(own);
    }
    fields
}

/// The limit on what the background writes was in no set of options that a test drew, and a store
/// with it hung within seconds. What is new in [`Options`] is to be drawn, too.
#[test]
fn every_option_is_drawn() {
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for engine in Engine::ALL {
        for seed in 0..64 {
            for (name, value) in all_fields(&drawn_options(*engine, seed)) {
                values.entry(name).or_default().insert(value);
            }
        }
    }
    let all = all_fields(&Options::default());
    assert!(all.len() > 25 && all.keys().eq(values.keys()), "{all:?}");
    for (name, values) in values {
        let drawn = values.len();
        assert!(drawn > 1, "drawn_options does not draw {name}: {values:?}");
    }
}
