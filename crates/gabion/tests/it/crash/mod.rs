//! The explorer of power cuts: every state of the disk that a crash may leave is opened.
//!
//! A workload runs on a simulated disk that records its operations; all background work is done by
//! the writing thread, so the order of operations follows from the seed. For every operation the
//! disk is rebuilt as a power cut right after it may leave it: nothing unsynced kept, all kept, or
//! sectors of 512 or 4096 bytes and directory entries kept and lost at random. Each image must
//! open, and hold the result of exactly the first `k` writes: `k` is at least the number of writes
//! that were acknowledged as durable by then and at most the number begun.
//!
//! Recovery writes too, so the power is also cut during it, and during the recovery from that:
//! whatever the first recovery would have found must be found again.

mod explore;
mod record;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use explore::{Counts, explore};
use gabion::{Durability, Engine, Options};
use gabion_media::{Fault, FaultKind, SimDisk};
use record::Recording;

use crate::support::{
    SeededRng, Totals, Workload, base_seed, each_seed, engines_on_disks, roomy_options,
    roomy_tuning, setting, small_options, small_tuning, with_little_memory,
};

/// Writes of a workload.
const WRITES: usize = 70;

/// Writes of a workload that flushes after most of them.
const WRITES_APPENDING: usize = 24;

/// Writes of a workload with ingests between them.
const WRITES_INGESTING: usize = 40;

/// Writes of a workload with drops of keyspaces between them.
const WRITES_DROPPING: usize = 40;

/// The options of the workload with a seed: as small as possible, everything done by the writer.
fn options_of(engine: Engine, seed: u64) -> Options {
    let mut random = SeededRng::new(seed ^ 0x0007_1045);
    let durability = [Durability::Sync, Durability::Buffered][random.index(2)];
    let memtables = [4 << 10, 48 << 10, 96 << 10, 160 << 10][random.index(4)];
    let log_bytes_max = [2 << 10, 16 << 10, 64 << 10][random.index(3)];
    let options = small_options()
        .engine(engine)
        .durability(durability)
        .tuning(
            small_tuning()
                .memtable_budget_bytes(memtables)
                .bucket_bytes([4 << 10, 8 << 10, 16 << 10][random.index(3)])
                .sublevels_max([2, 4][random.index(2)])
                .split_ways([2, 8][random.index(2)]),
        )
        .log_bytes_max(log_bytes_max);
    with_little_memory(options, seed)
}

/// Those of a workload whose tables are small and do not overlap: some are combined and
/// others moved, two runs or several at a time.
fn appending_options_of(seed: u64) -> Options {
    let mut random = SeededRng::new(seed ^ 0x00a9_9e4d);
    let durability = [Durability::Sync, Durability::Buffered][random.index(2)];
    let sublevels_min = [2, 3, 5][random.index(3)];
    let memtables = [4 << 10, 64 << 10][random.index(2)];
    let log_bytes_max = [2 << 10, 64 << 10][random.index(2)];
    roomy_options()
        .durability(durability)
        .tuning(
            roomy_tuning()
                .memtable_budget_bytes(memtables)
                .sublevels_min(sublevels_min)
                .sublevels_max(sublevels_min + random.index(3)),
        )
        .log_bytes_max(log_bytes_max)
}

/// Records and explores workloads, one for each seed, until so many images were opened.
fn explore_all(engine: Engine, wanted: u64, record: impl Fn(u64) -> Recording + Sync) -> Totals {
    let began = Instant::now();
    let done = AtomicU64::new(0);
    // ORDER: Relaxed (both); the number stands for itself.
    let goes_on = |_| done.load(Ordering::Relaxed) < wanted;
    let sums = each_seed(base_seed(), goes_on, |seed| {
        let recording = record(seed);
        let counts = explore(&recording);
        done.fetch_add(counts.images(), Ordering::Relaxed);
        (counts, recording.totals)
    });
    let mut counts = Counts::default();
    let mut totals = Totals::default();
    for sum in sums {
        counts.merge(&sum.0);
        totals.merge(&sum.1);
    }
    let seconds = began.elapsed().as_secs_f64();
    let per_second = f64::from(u32::try_from(counts.images()).unwrap_or(u32::MAX)) / seconds;
    println!(
        "crash: {engine} from seed {}, {counts:?}, {totals:?}",
        base_seed()
    );
    println!(
        "crash: {} images, {per_second:.0} images/s",
        counts.images()
    );
    assert!(counts.images() >= wanted, "{counts:?}");
    assert!(counts.during_recovery > wanted / 40, "{counts:?}");
    assert!(
        counts.lost_writes > wanted / 40,
        "power cuts that lose nothing show nothing"
    );
    totals
}

fn usual(engine: Engine, seed: u64) -> Recording {
    let workload = Workload::new(seed, WRITES);
    Recording::new(seed, &workload, options_of(engine, seed))
}

fn appending(seed: u64) -> Recording {
    let workload = Workload::appending(seed, WRITES_APPENDING);
    Recording::new(seed, &workload, appending_options_of(seed))
}

fn ingesting(seed: u64) -> Recording {
    let workload = Workload::ingesting(seed, WRITES_INGESTING);
    Recording::new(seed, &workload, options_of(Engine::Wip, seed))
}

fn dropping(engine: Engine, seed: u64) -> Recording {
    let workload = Workload::dropping(seed, WRITES_DROPPING);
    Recording::new(seed, &workload, options_of(engine, seed))
}

// Coverage is asked for per image, so that it is the same for longer runs.

#[test]
fn a_power_cut_after_any_operation_leaves_a_prefix_with_all_that_was_durable() {
    let wanted = setting("GABION_CRASH_POINTS", 20_000);
    let totals = explore_all(Engine::Wip, wanted, |seed| usual(Engine::Wip, seed));
    assert!(
        totals.flushes > wanted / 250 && totals.compactions > wanted / 400,
        "{totals:?}"
    );
    assert!(
        totals.splits > wanted / 2_500 && totals.log_segments > wanted / 400,
        "{totals:?}"
    );
}

#[test]
fn a_power_cut_leaves_a_prefix_while_small_tables_are_gathered() {
    let wanted = setting("GABION_CRASH_POINTS", 20_000) / 10;
    let totals = explore_all(Engine::Wip, wanted, appending);
    assert!(
        totals.coalesced_tables > wanted / 250 && totals.compactions > wanted / 400,
        "{totals:?}"
    );
}

#[test]
fn a_power_cut_leaves_an_ingest_whole_or_not_at_all() {
    let wanted = setting("GABION_CRASH_POINTS", 20_000) / 3;
    let totals = explore_all(Engine::Wip, wanted, ingesting);
    assert!(
        totals.flushes > wanted / 250 && totals.compactions > wanted / 400,
        "{totals:?}"
    );
    assert!(
        totals.splits > wanted / 2_500 && totals.joins > wanted / 20_000,
        "{totals:?}"
    );
}

#[test]
fn a_power_cut_leaves_a_prefix_in_a_flex_store() {
    let wanted = setting("GABION_CRASH_POINTS", 20_000) / 3;
    let totals = explore_all(Engine::Flex, wanted, |seed| usual(Engine::Flex, seed));
    assert!(
        totals.flushes > wanted / 250 && totals.log_segments > wanted / 1_000,
        "{totals:?}"
    );
}

#[test]
fn a_power_cut_leaves_a_keyspace_whole_or_gone() {
    let wanted = setting("GABION_CRASH_POINTS", 20_000) / 3;
    let totals = explore_all(Engine::Wip, wanted, |seed| dropping(Engine::Wip, seed));
    assert!(
        totals.flushes > wanted / 400 && totals.compactions > wanted / 1_000,
        "{totals:?}"
    );
    assert!(totals.log_segments > wanted / 1_000, "{totals:?}");
}

#[test]
fn a_power_cut_leaves_a_keyspace_of_a_flex_store_whole_or_gone() {
    let wanted = setting("GABION_CRASH_POINTS", 20_000) / 3;
    let totals = explore_all(Engine::Flex, wanted, |seed| dropping(Engine::Flex, seed));
    assert!(
        totals.flushes > wanted / 400 && totals.log_segments > wanted / 1_000,
        "{totals:?}"
    );
}

/// A disk that only says that it has synced is found out, whenever it begins to lie: so a sync that
/// an engine leaves out is, too.
#[test]
fn a_disk_that_lies_about_its_syncs_is_found_out() {
    for engine in engines_on_disks() {
        let workload = Workload::new(7, WRITES / 4);
        let options = options_of(engine, 7).durability(Durability::Sync);
        let sound = Recording::new(7, &workload, options.clone());
        explore(&sound);
        let operations = sound.sim.ops();
        for part in 1..4 {
            let sim = SimDisk::recording();
            sim.inject(Fault::forever(operations * part / 4, FaultKind::SyncLies));
            let lied_to = Recording::on(sim, 7, &workload, options.clone());
            let explored = catch_unwind(AssertUnwindSafe(|| explore(&lied_to)));
            assert!(
                explored.is_err(),
                "{engine}: nobody noticed, from {part}/4 on"
            );
        }
    }
}
