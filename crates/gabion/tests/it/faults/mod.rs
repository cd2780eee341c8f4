//! A fault at every operation of many small workloads: I/O errors, a full disk, short writes,
//! failed syncs with both outcomes for the pages, wrong bits.
//!
//! What must hold whatever fails: nothing panics; every refusal is a sentence; a write that was
//! refused is not seen afterwards; reads go on; what was acknowledged is there when the store is
//! opened again without the fault: after the end of the process all of it, after the loss of power
//! as much as the durability promised. That includes stores that were opened again after a failed
//! sync had made the system forget what it had to write. A store goes on writing after a full disk
//! and is read-only after a failed sync.

mod run;

use gabion::{Durability, Engine, Options};
use gabion_media::{Disk, Fault, FaultKind, SimDisk};
use run::{Counts, Run};

use crate::support::{
    PanicContext, SeededRng, Subject, Workload, assert_twin, base_seed, bytes_of, each_seed,
    engines_on_disks, roomy_options, roomy_tuning, setting, small_options, small_tuning,
    with_little_memory,
};

/// Writes per workload.
const WRITES: usize = 16;

/// What strikes an operation: the kind, and whether it strikes for good.
const FAULTS: [(FaultKind, bool); 10] = [
    (FaultKind::Eio, false),
    (FaultKind::NoSpace, false),
    (FaultKind::ShortWrite, false),
    (FaultKind::SyncFails { keep: true }, false),
    (FaultKind::SyncFails { keep: false }, false),
    (FaultKind::NoSpace, true),
    (FaultKind::Eio, true),
    (FaultKind::SyncFails { keep: false }, true),
    (FaultKind::SyncTears { seed: 0x7ea2 }, false),
    (FaultKind::SyncTears { seed: 0x7ea3 }, true),
];

/// What strikes a read.
const READ_FAULTS: [(FaultKind, bool); 3] = [
    (FaultKind::ReadEio, false),
    (FaultKind::BitFlip { bit: 12_345 }, false),
    (FaultKind::ReadEio, true),
];

fn options_of(engine: Engine, seed: u64) -> Options {
    let mut random = SeededRng::new(seed ^ 0x0fa1_0175);
    let durability = [Durability::Sync, Durability::Buffered][random.index(2)];
    let memtables = [4 << 10, 48 << 10, 96 << 10][random.index(3)];
    let log_bytes_max = [2 << 10, 16 << 10][random.index(2)];
    let options = small_options()
        .engine(engine)
        .durability(durability)
        .tuning(
            small_tuning()
                .memtable_budget_bytes(memtables)
                .bucket_bytes(4 << 10)
                .cache_bytes([0, 64 << 10][random.index(2)])
                .sublevels_max([2, 4][random.index(2)]),
        )
        .log_bytes_max(log_bytes_max);
    with_little_memory(options, seed)
}

/// Those of a workload whose tables are small and do not overlap.
fn appending_options_of(seed: u64) -> Options {
    let mut random = SeededRng::new(seed ^ 0x00a9_9e4d);
    let durability = [Durability::Sync, Durability::Buffered][random.index(2)];
    roomy_options()
        .durability(durability)
        .log_bytes_max([2 << 10, 16 << 10][random.index(2)])
        .tuning(
            roomy_tuning()
                .cache_bytes([0, 64 << 10][random.index(2)])
                .sublevels_min([2, 4][random.index(2)]),
        )
}

/// Runs a workload without a fault, to count its operations, and then with one at each.
fn strike_everywhere(seed: u64, workload: &Workload, options: &Options) -> Counts {
    let sound = SimDisk::recording();
    let mut counts = Counts::default();
    Run::new(&sound, options).play(workload, &mut counts);
    assert_eq!(counts.refused, 0, "a sound disk refuses nothing");
    counts.workloads += 1;
    let operations = (1..=sound.ops()).map(|at| (at, &FAULTS[..]));
    let reads = (1..=sound.reads()).map(|at| (at, &READ_FAULTS[..]));
    for (at, kinds) in operations.chain(reads) {
        // The next seed strikes the same number with the next kind.
        let (kind, forever) = kinds[usize::try_from((seed + at) % kinds.len() as u64).unwrap()];
        let fault = if forever {
            Fault::forever(at, kind)
        } else {
            Fault::once(at, kind)
        };
        let _context = PanicContext(|| {
            let what = sound.describe(at).unwrap_or_default();
            format!("seed {seed}, {fault:?} (operation {at} was: {what}), {options:?}")
        });
        let sim = SimDisk::recording();
        sim.inject(fault);
        let mut run = Run::new(&sim, options);
        run.play(workload, &mut counts);
        run.finish(&mut counts);
        counts.faults += 1;
    }
    counts
}

#[test]
fn a_fault_at_every_operation_loses_nothing_acknowledged() {
    strike_workloads(setting("GABION_FAULT_WORKLOADS", 36), |seed| {
        usual(Engine::Wip, seed)
    });
}

#[test]
fn a_fault_at_every_operation_loses_nothing_while_small_tables_are_gathered() {
    let workloads = setting("GABION_FAULT_WORKLOADS", 36) / 9;
    let counts = strike_workloads(workloads, |seed| {
        let workload = Workload::appending(seed, WRITES);
        strike_everywhere(seed, &workload, &appending_options_of(seed))
    });
    assert!(counts.coalesced_tables > counts.faults, "{counts:?}");
}

#[test]
fn a_fault_at_every_operation_of_an_ingest_loses_nothing_acknowledged() {
    strike_workloads(setting("GABION_FAULT_WORKLOADS", 36) / 6, |seed| {
        let workload = Workload::ingesting(seed, WRITES);
        strike_everywhere(seed, &workload, &options_of(Engine::Wip, seed))
    });
}

/// An ingest whose tables' names could not be synced was refused, and the store went on. But the
/// failed sync had forgotten the name of the log's first segment, too; the next sync, which the
/// log asked for, succeeded without it, and writes were acknowledged that no power loss spared.
#[test]
fn a_failed_sync_of_names_for_an_ingest_is_one_of_the_logs_names() {
    let workload = Workload::ingesting(25, WRITES);
    let counts = strike_everywhere(25, &workload, &options_of(Engine::Wip, 25));
    assert!(counts.read_only > 0, "{counts:?}");
}

#[test]
fn a_fault_at_every_operation_of_a_flex_store_loses_nothing_acknowledged() {
    strike_workloads(setting("GABION_FAULT_WORKLOADS", 36) / 6, |seed| {
        usual(Engine::Flex, seed)
    });
}

fn usual(engine: Engine, seed: u64) -> Counts {
    let workload = Workload::new(seed, WRITES);
    strike_everywhere(seed, &workload, &options_of(engine, seed))
}

/// Strikes so many workloads, one for each seed.
fn strike_workloads(workloads: u64, strike: impl Fn(u64) -> Counts + Sync) -> Counts {
    let first = base_seed();
    let mut counts = Counts::default();
    for sum in each_seed(first, |begun| begun < workloads, strike) {
        counts.merge(&sum);
    }
    println!("faults: from seed {first}, {counts:?}");
    assert_eq!(counts.workloads, workloads);
    assert!(counts.faults > 60 * workloads, "{counts:?}");
    assert!(counts.refused > counts.faults / 2, "{counts:?}");
    assert!(
        counts.went_on > workloads,
        "writes go on after a full disk: {counts:?}"
    );
    assert!(counts.read_only > 5 * workloads, "{counts:?}");
    counts
}

#[test]
fn a_fault_at_every_operation_leaves_a_keyspace_whole_or_gone() {
    strike_workloads(setting("GABION_FAULT_WORKLOADS", 36) / 6, |seed| {
        dropping(Engine::Wip, seed)
    });
}

/// When the directory's sync found no space, the root was the new one already, and the store went
/// on with the old one: a keyspace that should have stayed was gone after the next open, or one
/// that should not have come was there without its space.
#[test]
fn a_fault_at_every_operation_leaves_a_keyspace_of_a_flex_store_whole_or_gone() {
    strike_workloads(setting("GABION_FAULT_WORKLOADS", 36) / 9, |seed| {
        dropping(Engine::Flex, seed)
    });
}

fn dropping(engine: Engine, seed: u64) -> Counts {
    let workload = Workload::dropping(seed, WRITES);
    strike_everywhere(seed, &workload, &options_of(engine, seed))
}

#[test]
fn writes_go_on_when_a_full_disk_has_space_again() {
    engines_on_disks().for_each(go_on_after_full);
}

fn go_on_after_full(engine: Engine) {
    for seed in base_seed()..base_seed() + 10 {
        let _context = PanicContext(|| format!("{engine}, seed {seed}"));
        let options = options_of(engine, seed).log_bytes_max(16 << 10);
        let sim = SimDisk::recording();
        let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        let mut twin = crate::support::Twin::new(crate::support::KEYSPACES.len());
        let mut random = SeededRng::new(seed);
        let mut refused = 0;
        let mut went_on = 0;
        for round in 0..600_u64 {
            // The disk is full in every second hundred of writes.
            let full = round / 100 % 2 == 1;
            if round % 100 == 0 {
                let used: usize = sim
                    .names()
                    .iter()
                    .filter_map(|name| sim.raw(name))
                    .map(|f| f.len())
                    .sum();
                sim.set_capacity(full.then_some(used as u64 + 6_000));
            }
            let keyspace = random.index(2);
            let key = format!("{:04}", random.below(200)).into_bytes();
            let value = Some(bytes_of(round, random.index(300)));
            let operation = crate::support::Operation::new(keyspace, key, value);
            match subject.write(std::slice::from_ref(&operation), None) {
                Ok(()) => {
                    twin.apply(&operation);
                    went_on += u64::from(refused > 0);
                }
                Err(error) => {
                    refused += 1;
                    run::assert_sentence(&error);
                    assert!(full && error.is_no_space(), "round {round}: {error}");
                }
            }
        }
        assert!(refused > 0, "the disk was never full");
        assert_twin(&subject.db, &twin);
        assert_eq!(subject.db.stats().read_only, None);
        assert!(went_on > 100, "{went_on} writes after the first refusal");
        let after = sim.process_kill(sim.ops());
        after.set_capacity(None);
        let subject = Subject::open(&Disk::simulated(&after), &options).unwrap();
        assert_twin(&subject.db, &twin);
    }
}
