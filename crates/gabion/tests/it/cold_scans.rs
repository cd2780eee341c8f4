//! Scans of what is not in memory: that they let the system read before they wait for it.

use gabion::{Options, TableReads};
use gabion_media::{Disk, ReadStep, SimDisk};

use crate::support::{Subject, small_options, small_tuning};

const KEYS: usize = 6_000;
const RUNS: usize = 4;

/// Several runs of one bucket, of some hundred kilobytes each.
fn options(reads: TableReads) -> Options {
    small_options()
        .tuning(
            small_tuning()
                .memtable_budget_bytes(64 << 20)
                .bucket_bytes(256 << 20)
                .block_bytes(4 << 10)
                .sublevels_min(8)
                .sublevels_max(8)
                .cache_bytes(0),
        )
        .log_bytes_max(64 << 20)
        .table_reads(reads)
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// A store whose tables are open, on a disk that has nothing in memory.
fn cold_store(sim: &SimDisk, options: &Options) -> Subject {
    let open = || Subject::open(&Disk::simulated(sim), options).expect("the store opens");
    let subject = open();
    for run in 0..RUNS {
        for number in (run..KEYS).step_by(RUNS) {
            let put = subject.keyspaces[0].put(key(number), [7; 500]);
            put.expect("put");
        }
        subject.db.flush().expect("flush");
    }
    subject.db.close().expect("close");
    let subject = open();
    for number in 0..RUNS {
        let found = subject.keyspaces[0].get(key(number)).expect("get");
        assert!(found.is_some());
    }
    sim.set_forgets(true);
    subject
}

/// What is done while so many pairs are taken from either end.
fn scan(sim: &SimDisk, subject: &Subject, pairs: usize, from_end: bool) -> Vec<ReadStep> {
    sim.begin_trace();
    let range = subject.keyspaces[0].range(key(10)..key(KEYS - 10));
    let pair = |pair: gabion::Result<_>| drop(pair.expect("scan"));
    match from_end {
        false => range.take(pairs).for_each(pair),
        true => range.rev().take(pairs).for_each(pair),
    }
    sim.end_trace()
}

/// Bytes of the steps that `is_wanted` chooses.
fn bytes(steps: &[ReadStep], is_wanted: fn(&ReadStep) -> bool) -> u64 {
    let wanted = steps.iter().filter(|step| is_wanted(step));
    let lengths = wanted.map(|step| match step {
        ReadStep::Announced { place, .. } | ReadStep::Read { place, .. } => place.end - place.start,
    });
    lengths.sum()
}

fn is_announced(step: &ReadStep) -> bool {
    matches!(step, ReadStep::Announced { .. })
}

#[test]
fn a_search_announces_what_it_reads_of_each_run() {
    for reads in [TableReads::Cached, TableReads::Mapped] {
        let sim = SimDisk::new();
        let subject = cold_store(&sim, &options(reads));
        // One search in some asks whether mapped blocks are still there.
        let mut searches = (0..100).map(|_| scan(&sim, &subject, 1, false));
        let steps = searches.find(|steps| !steps.is_empty()).expect("announced");
        let announced = steps.iter().take_while(|step| is_announced(step)).count();
        assert_eq!(announced, RUNS, "{reads}: {steps:?}");
        for (at, step) in steps.iter().enumerate() {
            assert!(step.was_announced(&steps[..at]), "{reads}: {step:?}");
        }
    }
}

#[test]
fn a_long_scan_lets_the_system_read_ahead() {
    for (reads, from_end) in [
        (TableReads::Cached, false),
        (TableReads::Cached, true),
        (TableReads::Mapped, false),
        (TableReads::Mapped, true),
    ] {
        let sim = SimDisk::new();
        let subject = cold_store(&sim, &options(reads));
        let steps = scan(&sim, &subject, KEYS, from_end);
        let unannounced = steps
            .iter()
            .enumerate()
            .filter(|(at, step)| !step.was_announced(&steps[..*at]));
        let unannounced: Vec<_> = unannounced.map(|(_, step)| step.clone()).collect();
        let all = bytes(&steps, |step| !is_announced(step));
        assert!(all > (KEYS * 450) as u64, "{all} bytes read");
        // What is read before a cursor looks ahead for the first time.
        let late = bytes(&unannounced, |_| true);
        assert!(late < all / 5, "{reads}, {from_end}: {late} of {all} bytes");
        // Where all is in memory, nobody announces anything, but for what was never read.
        sim.set_forgets(false);
        for _ in 0..100 {
            scan(&sim, &subject, 1, from_end);
        }
        let steps = scan(&sim, &subject, KEYS, from_end);
        let announced = bytes(&steps, is_announced);
        assert!(announced < all / 50, "{announced} bytes");
    }
}

#[test]
fn a_short_scan_announces_no_more_than_it_reads() {
    let sim = SimDisk::new();
    let subject = cold_store(&sim, &options(TableReads::Mapped));
    // Twice, so that all that it needs was read.
    for _ in 0..2 {
        let steps = scan(&sim, &subject, 50, false);
        let announced = bytes(&steps, is_announced);
        assert!(announced <= RUNS as u64 * (5 << 10), "{announced} bytes");
    }
}
