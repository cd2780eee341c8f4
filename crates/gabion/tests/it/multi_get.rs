//! Gets of many keys at once: that their reads overlap. What they find is the model's business.

use gabion::{Options, TableReads};
use gabion_media::{Disk, ReadStep, SimDisk};

use crate::support::{Subject, small_options, small_tuning};

/// Keys that go through a search together.
const GROUP: usize = 32;

const KEYS: usize = 4_000;

/// Blocks of some four pairs each in several runs of one bucket.
fn options(reads: TableReads, cache_bytes: u64) -> Options {
    small_options()
        .tuning(
            small_tuning()
                .memtable_budget_bytes(32 << 20)
                .bucket_bytes(64 << 20)
                .sublevels_min(8)
                .sublevels_max(8)
                .cache_bytes(cache_bytes),
        )
        .log_bytes_max(32 << 20)
        .table_reads(reads)
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// A store whose tables are open and whose blocks are not in memory, but for that of the first key.
fn cold_store(sim: &SimDisk, options: &Options) -> Subject {
    let open = || Subject::open(&Disk::simulated(sim), options).expect("the store opens");
    let subject = open();
    for run in 0..3 {
        for number in (run..KEYS).step_by(3) {
            let put = subject.keyspaces[0].put(key(number), [7; 50]);
            put.expect("put");
        }
        subject.db.flush().expect("flush");
    }
    subject.db.close().expect("close");
    let subject = open();
    assert_eq!(subject.db.stats().tables, 3);
    for number in 0..3 {
        let found = subject.keyspaces[0].get(key(number)).expect("get");
        assert!(found.is_some());
    }
    subject
}

/// Gets keys far from each other and returns what was done for it.
fn get_far_keys(sim: &SimDisk, subject: &Subject, count: usize) -> Vec<ReadStep> {
    let keys: Vec<_> = (0..count).map(|at| key(100 + at * 29)).collect();
    sim.begin_trace();
    let found = subject.keyspaces[0].multi_get(&keys).expect("multi_get");
    let steps = sim.end_trace();
    assert!(
        found
            .iter()
            .all(|value| value.as_deref() == Some(&[7; 50][..]))
    );
    steps
}

/// The most reads that were announced and not waited for.
fn under_way_max(steps: &[ReadStep]) -> usize {
    let mut under_way = 0_usize;
    let counts = steps.iter().map(|step| {
        match step {
            ReadStep::Announced { .. } => under_way += 1,
            ReadStep::Read { .. } => under_way = under_way.saturating_sub(1),
        }
        under_way
    });
    counts.max().unwrap_or(0)
}

#[test]
fn the_reads_of_a_group_are_all_announced_before_one_is_waited_for() {
    // A cache of nothing, one that has room for all, and mappings.
    let ways = [
        (TableReads::Cached, 0),
        (TableReads::Cached, 8 << 20),
        (TableReads::Mapped, 0),
    ];
    for (reads, cache_bytes) in ways {
        let sim = SimDisk::new();
        let subject = cold_store(&sim, &options(reads, cache_bytes));
        let steps = get_far_keys(&sim, &subject, 3 * GROUP);
        let is_read = |step: &&ReadStep| matches!(step, ReadStep::Read { .. });
        let reads_done = steps.iter().filter(is_read).count();
        assert!(reads_done >= 3 * GROUP, "{reads_done} reads");
        for (at, step) in steps.iter().enumerate() {
            assert!(step.was_announced(&steps[..at]), "{step:?}");
        }
        assert!(under_way_max(&steps) >= GROUP, "{steps:?}");
    }
}

#[test]
fn mapped_blocks_are_announced_again_once_the_system_drops_them() {
    let sim = SimDisk::new();
    let subject = cold_store(&sim, &options(TableReads::Mapped, 0));
    get_far_keys(&sim, &subject, GROUP);
    let steps = get_far_keys(&sim, &subject, GROUP);
    assert!(steps.is_empty(), "all is in memory: {steps:?}");
    sim.set_forgets(true);
    // Read in place, so that a disk sees no reads. One group in some asks.
    let is_announced = |_| under_way_max(&get_far_keys(&sim, &subject, GROUP)) >= GROUP;
    assert!((0..100).any(is_announced));
    assert!((0..100).all(is_announced), "one group finds it out for all");
    sim.set_forgets(false);
    let settles = (0..1_000).any(|_| get_far_keys(&sim, &subject, GROUP).is_empty());
    assert!(settles, "announced for ever");
}
