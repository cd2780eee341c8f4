//! Compactions that a user asks for: what they leave, and what they must not take.

use gabion::{Engine, Options, Stats};
use gabion_media::{Disk, SimDisk};

use crate::support::{Place, Subject, engines_on_disks, small_options, small_tuning};

fn open(options: &Options) -> (SimDisk, Subject) {
    let sim = SimDisk::new();
    let subject = Subject::open(&Disk::simulated(&sim), options).expect("an empty disk opens");
    (sim, subject)
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// Bytes of tables, and the most sublevels that a bucket of the first keyspace has.
fn size(stats: &Stats) -> (u64, usize) {
    let buckets = stats.keyspaces[0].buckets.iter();
    let runs = buckets.map(|bucket| bucket.levels.iter().map(Vec::len).sum());
    (stats.table_bytes, runs.max().unwrap_or(0))
}

#[test]
fn a_compaction_leaves_one_run_per_bucket_and_nothing_of_what_was_deleted() {
    for threads in [0, 2] {
        let options = small_options()
            .background_threads(threads)
            .tuning(small_tuning().sublevels_min(4).sublevels_max(8));
        let (_sim, subject) = open(&options);
        let keyspace = &subject.keyspaces[0];
        for round in 0..3 {
            for number in 0..600 {
                keyspace.put(key(number), [round; 60]).expect("put");
            }
        }
        keyspace.compact::<&[u8]>(..).expect("compact");
        let stats = subject.db.stats();
        assert!(stats.buckets > 3 + 2, "the keyspace was split");
        let (full, runs) = size(&stats);
        assert_eq!(runs, 1);
        assert!(full < 600 * 100, "{full} bytes hold old versions");

        let snapshot = subject.db.snapshot();
        for number in 0..600 {
            keyspace.delete(key(number)).expect("delete");
        }
        keyspace.compact::<&[u8]>(..).expect("compact");
        assert_eq!(snapshot.iter(keyspace).count(), 600);
        assert!(size(&subject.db.stats()).0 > full, "the snapshot sees all");

        drop(snapshot);
        keyspace.compact::<&[u8]>(..).expect("compact");
        assert_eq!(size(&subject.db.stats()), (0, 0));
        assert_eq!(keyspace.iter().count(), 0);
    }
}

#[test]
fn a_compaction_of_a_range_leaves_the_other_buckets_alone() {
    // Deleted keys are nobody's reason to compact but the caller's.
    let options = small_options()
        .tuning(small_tuning().sublevels_min(4).sublevels_max(8))
        .space_amplification_max(f64::INFINITY);
    let (_sim, subject) = open(&options);
    let keyspace = &subject.keyspaces[0];
    for number in 0..2_000 {
        keyspace.put(key(number), [7; 60]).expect("put");
    }
    keyspace.compact::<&[u8]>(..).expect("compact");
    for number in 0..2_000 {
        keyspace.delete(key(number)).expect("delete");
    }
    subject.db.flush().expect("flush");
    let before = size(&subject.db.stats()).0;
    keyspace.compact(key(500)..key(1_000)).expect("compact");
    let after = size(&subject.db.stats()).0;
    assert!(after < before, "{after} {before}");
    assert!(after > before / 3, "{after} {before}");
    // Ranges without keys ask for nothing.
    let compactions = subject.db.stats().compactions;
    keyspace.compact(key(9)..key(9)).expect("compact");
    keyspace.compact(key(9)..key(5)).expect("compact");
    assert_eq!(subject.db.stats().compactions, compactions);
}

#[test]
fn a_compaction_in_place_takes_nothing_from_a_snapshot_and_leaves_nothing_deleted() {
    for threads in [0, 2] {
        let options = small_options()
            .engine(Engine::Flex)
            .background_threads(threads);
        let (sim, subject) = open(&options);
        let keyspace = &subject.keyspaces[0];
        for round in 0..3 {
            for number in 0..600 {
                keyspace
                    .put(key(number * 7 % 600), [round; 60])
                    .expect("put");
            }
        }
        let snapshot = subject.db.snapshot();
        for number in 0..600 {
            keyspace.delete(key(number)).expect("delete");
        }
        keyspace.compact::<&[u8]>(..).expect("compact");
        assert_eq!(snapshot.iter(keyspace).count(), 600);
        let values = snapshot.iter(keyspace).map(|pair| pair.expect("read").1);
        assert!(values.rev().all(|value| *value == [2; 60]));
        assert_eq!(keyspace.iter().count(), 0);
        drop(snapshot);
        keyspace.compact::<&[u8]>(..).expect("compact");
        assert_eq!(subject.db.stats().live_bytes, 0);
        subject.db.close().expect("close");
        let report = gabion::check_disk(&Disk::simulated(&sim)).expect("check");
        assert!(report.problems.is_empty(), "{report:?}");
        assert_eq!(report.entries, 0);
    }
}

#[test]
fn writers_and_several_callers_do_not_keep_a_compaction_from_ending() {
    for engine in engines_on_disks() {
        write_and_compact(engine);
    }
}

fn write_and_compact(engine: Engine) {
    let (_sim, subject) = open(&small_options().engine(engine).background_threads(2));
    let keyspace = &subject.keyspaces[0];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..3_000 {
                keyspace.put(key(number % 700), [1; 40]).expect("put");
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                for first in 0..10 {
                    keyspace.compact(key(first * 70)..).expect("compact");
                }
            });
        }
    });
    assert_eq!(keyspace.iter().count(), 700);
}

#[test]
fn a_compaction_of_a_closed_store_is_refused() {
    for engine in Engine::ALL {
        let place = Place::of(*engine);
        let opened = Subject::open(&place.disk(), &small_options().engine(*engine));
        let subject = opened.expect("an empty disk opens");
        let keyspace = subject.keyspaces[0].clone();
        keyspace.put("key", "value").expect("put");
        subject.db.close().expect("close");
        let refused = keyspace.compact::<&[u8]>(..);
        assert!(matches!(refused, Err(gabion::Error::Closed)), "{refused:?}");
    }
}

#[test]
fn ascending_keys_in_small_flushes_leave_few_files() {
    let options = small_options().background_threads(0).tuning(
        small_tuning()
            .memtable_budget_bytes(1 << 20)
            .bucket_bytes(1 << 20)
            .sublevels_min(4)
            .sublevels_max(8),
    );
    let (sim, subject) = open(&options);
    let keyspace = &subject.keyspaces[0];
    for number in 0..600 {
        keyspace.put(key(number), [7; 60]).expect("put");
        subject.db.flush().expect("flush");
        let files = subject.db.stats().tables;
        assert!(files <= 3 * 8, "{files} files after {number} flushes");
    }
    let stats = subject.db.stats();
    assert_eq!(stats.flushes, 600);
    drop(subject);
    let again = Subject::open(&Disk::simulated(&sim), &options).expect("open again");
    assert_eq!(again.keyspaces[0].iter().count(), 600);
}
