//! Phases on the targets of the lab itself.

use std::path::Path;

use super::*;
use crate::target::{Session, StoreOptions, Target};
use crate::targets::{btreemap, empty, flex, gabion_store};
use crate::workload::WORKLOADS;

fn settings() -> Settings {
    Settings {
        num: 3000,
        reads: 2000,
        writers: 2,
        threads: 2,
        rest_seconds: 0,
        ..Settings::default()
    }
}

fn run(target: &Target, settings: &Settings, phases: &[&str]) -> Vec<PhaseResult> {
    let dir = tempfile::tempdir().unwrap();
    let store = open(target, dir.path(), settings);
    let subject = Subject {
        store: &*store,
        target: target.name,
        dir: dir.path(),
        existing: false,
        repetition: 3,
    };
    let runner = Runner::new(subject, settings.clone()).unwrap();
    let named = |name: &&str| runner.run(Workload::named(name).unwrap()).unwrap();
    phases.iter().map(named).collect()
}

fn open(target: &Target, dir: &Path, settings: &Settings) -> Box<dyn Store> {
    (target.open)(&StoreOptions {
        dir: dir.to_owned(),
        existing: false,
        cache_bytes: 8 << 20,
        write_buffer_bytes: None,
        hold_flushes: false,
        background_threads: 1,
        sessions: 2,
        records: settings.num,
        record_bytes: settings.record_bytes(),
    })
    .unwrap()
}

/// Every phase runs on every target that can do it, and does all of its operations.
#[test]
fn every_phase_runs_on_every_target() {
    for target in [gabion_store::TARGET, empty::TARGET, btreemap::TARGET] {
        let settings = settings();
        let phases: Vec<&str> = ["ycsb-load"]
            .into_iter()
            .chain(
                WORKLOADS
                    .iter()
                    .filter(|workload| workload.lacks(&target.abilities).is_none())
                    .filter(|workload| !workload.is_restart())
                    .map(|workload| workload.name)
                    // It says that it has whatever it is asked for, without an end.
                    .filter(|name| *name != "count" || target.name != "empty")
                    // The records that others have put are no counters.
                    .filter(|name| *name != "merge" || target.name != "btreemap")
                    // With 3000 inserts of its own in `ycsb-load` before, every read finds.
                    .filter(|name| !["deleterandom", "reinsert"].contains(name)),
            )
            .chain(["reinsert", "deleterandom"])
            .collect();
        for (result, phase) in run(&target, &settings, &phases).iter().zip(&phases) {
            let workload = Workload::named(phase).unwrap();
            let wanted = workload.operations(settings.num, settings.reads);
            assert_eq!(result.operations, wanted, "{} {phase}", target.name);
            assert_eq!(result.repetition, 3);
            let calls: u64 = result
                .latency_us_by_operation
                .iter()
                .filter(|(name, _)| *name != "paced_put")
                .map(|(_, latency)| latency.calls)
                .sum();
            assert_eq!(calls, wanted, "{} {phase}", target.name);
            let last = result.throughput.last().unwrap();
            assert_eq!(last.seconds.to_bits(), result.seconds.to_bits());
            assert!(!result.latency_curve.is_empty(), "{} {phase}", target.name);
        }
    }
}

#[test]
fn bytes_of_the_user_and_live_records_are_counted() {
    let settings = Settings {
        batch: 7,
        ..settings()
    };
    let phases = ["fillseq", "readrandom", "ycsb-d", "reinsert"];
    let results = run(&gabion_store::TARGET, &settings, &phases);
    assert_eq!(results[0].bytes_user, 3000 * 116);
    assert_eq!(results[1].bytes_user, 0);
    assert_eq!(results[1].wa_with_log, None);
    let inserts = results[2].latency_us_by_operation["insert"].calls;
    assert_eq!(results[2].bytes_user, inserts * 116);
    for (result, records) in results.iter().zip([3000, 3000, 3000 + inserts]) {
        let space = result.space_bytes as f64 / (records * 116) as f64;
        assert_eq!(result.space_amplification, Some(space), "{}", result.phase);
        assert!(result.files > 0);
    }
    let reinserted = results[3].space_amplification.unwrap();
    let gone = results[3].space_bytes as f64 / ((3000 + inserts) * 116) as f64;
    assert!(reinserted > gone, "{reinserted} {gone}");
}

/// Each record that a transaction reads is there, and it is put again, or for the first time.
#[test]
fn transactions_read_and_put_their_records() {
    let settings = Settings {
        distribution: Some(Distribution::Uniform),
        ..settings()
    };
    for target in [gabion_store::TARGET, flex::TARGET, btreemap::TARGET] {
        let results = run(&target, &settings, &["ycsb-load", "bank", "count"]);
        assert_eq!(results[0].conflicts, None);
        let bank = &results[1];
        assert_eq!((bank.operations, bank.found), (2000, 4000));
        assert_eq!(bank.bytes_user, 4000 * 116);
        assert_eq!(results[2].found, 3000);
        let conflicts = bank.conflicts.unwrap();
        let note = format!("begun again {conflicts} times");
        let mut notes = bank.notes.iter();
        assert!(notes.any(|told| told.contains(&note)), "{:?}", bank.notes);

        let results = run(&target, &settings, &["bank", "count"]);
        assert!(results[0].found < 4000, "most records are new");
        assert_eq!(Some(results[1].found), results[0].records_live);
    }
}

/// Each counter that was added to is there, and none else.
#[test]
fn merges_make_the_counters_that_they_draw() {
    let targets = [gabion_store::COUNTERS, flex::COUNTERS, btreemap::TARGET];
    for target in targets {
        let results = run(&target, &settings(), &["merge", "count"]);
        assert_eq!(results[0].operations, 30_000);
        assert_eq!(results[0].bytes_user, 30_000 * 24);
        assert_eq!(Some(results[1].found), results[0].records_live);
    }
}

#[test]
fn synced_writes_come_in_batches_too() {
    let settings = Settings {
        batch: 7,
        writers: 1,
        ..settings()
    };
    let results = run(
        &gabion_store::TARGET,
        &settings,
        &["fillsync", "readreverse"],
    );
    assert_eq!(results[0].operations, 1000);
    assert_eq!(results[0].bytes_user, 1000 * 116);
    let calls = results[0].latency_us_by_operation["put"].calls;
    assert_eq!(calls, 1000u64.div_ceil(7));
    assert_eq!(results[1].found, 2000);
}

#[test]
fn a_store_in_memory_has_no_space_amplification() {
    let results = run(&btreemap::TARGET, &settings(), &["fillseq"]);
    assert_eq!(
        (results[0].files, results[0].space_amplification),
        (0, None)
    );
    assert_eq!(results[0].bytes_written, None);
    assert_eq!(results[0].stall_s, None);
}

#[test]
fn an_open_loop_takes_the_time_that_its_rate_says() {
    let settings = Settings {
        reads: 200,
        rate: Some(2000),
        ..settings()
    };
    let results = run(&empty::TARGET, &settings, &["readrandom", "readseq"]);
    assert_eq!(results[0].rate_per_s, Some(2000.0));
    // The last operation is due 99.5 ms after the first; no store can be faster.
    assert!(results[0].seconds >= 0.099, "{}", results[0].seconds);
    assert_eq!(results[1].rate_per_s, None);
}

/// Batches came at the rate of single operations: a hundred times as many records with batches of a
/// hundred.
#[test]
fn an_open_loop_counts_the_records_of_batches() {
    let settings = Settings {
        num: 200,
        batch: 10,
        rate: Some(2000),
        ..settings()
    };
    let results = run(&empty::TARGET, &settings, &["fillseq"]);
    assert_eq!(results[0].latency_us_by_operation["put"].calls, 20);
    // The last batch of each of two threads is due 90 ms after its first.
    assert!(results[0].seconds >= 0.089, "{}", results[0].seconds);
}

#[test]
fn a_phase_that_hits_its_limit_says_so_and_keeps_what_it_did() {
    let settings = Settings {
        reads: 1_000_000,
        rate: Some(100),
        seconds_max: Some(1),
        ..settings()
    };
    let results = run(&empty::TARGET, &settings, &["readrandom"]);
    let result = &results[0];
    assert!(result.operations > 0 && result.operations < 1_000_000);
    let note = format!("time limit of 1 s after {} of 1000000", result.operations);
    assert!(
        result.notes.iter().any(|n| n.contains(&note)),
        "{:?}",
        result.notes
    );
}

/// A fill that its limit ended is completed to the records of one that was not.
#[test]
fn a_completed_fill_holds_what_the_whole_one_would() {
    let whole = Settings {
        num: 20_000,
        reads: 20_000,
        distribution: Some(Distribution::Uniform),
        ..settings()
    };
    // Five seconds of work, and one to do it in.
    let capped = Settings {
        rate: Some(4000),
        fill_seconds_max: Some(1),
        complete_fills: true,
        ..whole.clone()
    };
    let held = |settings: &Settings| {
        let results = run(&btreemap::TARGET, settings, &["fillrandom"]);
        (results[0].operations, results[0].records_live.unwrap())
    };
    let (operations, records) = held(&whole);
    assert_eq!(operations, 20_000);
    let (operations, completed) = held(&capped);
    assert!(operations < 20_000, "{operations}");
    assert_eq!(completed, records);
    // Nor does a limit end one that has to be whole.
    let uncapped = Settings {
        rate: Some(20_000),
        seconds_max: Some(0),
        fill_seconds_max: Some(0),
        whole_fills: true,
        complete_fills: false,
        ..capped.clone()
    };
    assert_eq!(held(&uncapped), (20_000, records));
    let incomplete = Settings {
        complete_fills: false,
        ..capped
    };
    assert!(held(&incomplete).1 < records);
}

/// A store that lost a record must not be compared with one that has it.
#[test]
fn a_count_finds_what_was_put_or_ends_the_run() {
    let phases = ["ycsb-load", "ycsb-d", "deleterandom", "count"];
    for target in [gabion_store::TARGET, btreemap::TARGET] {
        let results = run(&target, &settings(), &phases[..2]);
        let put = results[1].records_live;
        assert!(put > Some(3000));
        let mut counting = phases.to_vec();
        counting.remove(2);
        let results = run(&target, &settings(), &counting);
        assert_eq!(Some(results[2].found), put, "{}", target.name);
    }
    let refused = |target: &Target, spoil: fn(&mut dyn Session)| {
        let dir = tempfile::tempdir().unwrap();
        let store = open(target, dir.path(), &settings());
        let subject = Subject {
            store: &*store,
            target: target.name,
            dir: dir.path(),
            existing: false,
            repetition: 0,
        };
        let runner = Runner::new(subject, settings()).unwrap();
        runner.run(Workload::named("fillseq").unwrap()).unwrap();
        spoil(&mut *store.session().unwrap());
        let counted = runner.run(Workload::named("count").unwrap());
        counted.unwrap_err().to_string()
    };
    let all = |session: &mut dyn Session| {
        assert_eq!(session.scan(b"", 5000).unwrap(), 3000);
        session.put(b"zzz of somebody else", b"").unwrap();
    };
    let sentence = refused(&btreemap::TARGET, all);
    assert_eq!(sentence, "the store was given 3,000 records and holds more");
    let sentence = refused(&empty::TARGET, |_| ());
    assert_eq!(sentence, "the store was given 3,000 records and holds more");
    // Every key begins with its number, and this is the first one.
    let sentence = refused(&gabion_store::TARGET, |session| {
        let first = KeyShape::new(16, 3000).unwrap();
        let mut key = first.buffer(1);
        first.write(Default::default(), &mut key);
        session.delete(&key).unwrap();
    });
    assert_eq!(
        sentence,
        "the store was given 3,000 records and holds 2,999"
    );
}

#[test]
fn a_rest_takes_its_time_and_does_nothing() {
    let settings = Settings {
        rest_seconds: 1,
        ..settings()
    };
    let results = run(&gabion_store::TARGET, &settings, &["fillseq", "rest"]);
    assert!(results[1].seconds >= 1.0 && results[1].bytes_user == 0);
    assert_eq!(results[1].records_live, Some(3000));
    assert_eq!(results[1].settings["rest_seconds"], 1);
}

/// The second pass met what the first one had left in caches, because it drew the same records.
#[test]
fn a_second_pass_draws_other_records() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        num: 1000,
        reads: 400,
        threads: 1,
        ..settings()
    };
    let store = open(&btreemap::TARGET, dir.path(), &settings);
    let subject = Subject {
        store: &*store,
        target: "btreemap",
        dir: dir.path(),
        existing: false,
        repetition: 0,
    };
    let runner = Runner::new(subject, settings).unwrap();
    // A half of the records, so that what is found depends on what is drawn.
    runner.run(Workload::named("fillrandom").unwrap()).unwrap();
    let reads = Workload::named("readrandom").unwrap();
    let found = |pass| {
        runner
            .run_in_turns(reads, pass, &mut NoTurns)
            .unwrap()
            .found
    };
    let (first, again, second) = (found(0), found(0), found(1));
    assert_eq!(first, again);
    assert_ne!(first, second);
}

#[test]
fn a_warm_up_is_not_counted() {
    let settings = Settings {
        warm_up: 500,
        ..settings()
    };
    let phases = ["ycsb-load", "recipe-a", "readrandom"];
    let results = run(&btreemap::TARGET, &settings, &phases);
    assert!(results.iter().all(|result| result.operations <= 3000));
    assert_eq!(results[2].latency_us_by_operation["read"].calls, 2000);
    assert_eq!(results[2].found, 2000);
}

#[test]
fn one_thread_does_the_same_with_the_same_seed() {
    let settings = Settings {
        writers: 1,
        threads: 1,
        ..settings()
    };
    let phases = ["fillrandom", "readrandom", "ycsb-e"];
    let found = |seed| {
        let settings = Settings {
            seed,
            ..settings.clone()
        };
        let results = run(&btreemap::TARGET, &settings, &phases);
        [results[1].found, results[2].found]
    };
    assert_eq!(found(5), found(5));
    assert_ne!(found(5), found(6));
}

#[test]
fn calls_are_counted_whether_they_are_timed_or_not() {
    let settings = Settings {
        reads: 2_000_000,
        threads: 1,
        ..settings()
    };
    let results = run(&empty::TARGET, &settings, &["readrandom"]);
    assert_eq!(results[0].operations, 2_000_000);
    assert_eq!(results[0].latency_us_by_operation["read"].calls, 2_000_000);
}

/// A store that panics where a session begins.
struct Panics;

impl Store for Panics {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        panic!("no session")
    }

    fn settle(&self) -> Result<(), Error> {
        Ok(())
    }

    fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    fn settings(&self) -> serde_json::Value {
        json!({})
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}

/// The panic of a store ends the phase, and is what is told.
#[test]
fn a_store_that_panics_keeps_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let subject = Subject {
        store: &Panics,
        target: "panics",
        dir: dir.path(),
        existing: false,
        repetition: 0,
    };
    let runner = Runner::new(subject, settings()).unwrap();
    let reads = Workload::named("readrandom").unwrap();
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| runner.run(reads)));
    let panic = ended.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"no session"));
}
