//! What the policy says is due is what the background does.

use std::sync::Arc;

use gabion_media::{Disk, SimDisk};

use crate::engine::ssd::Lifecycle;
use crate::engine::wip::bucket::{BucketState, Run};
use crate::engine::wip::jobs::compact::Compaction;
use crate::engine::wip::policy::bucket_shape::{RunShape, has_young};
use crate::engine::wip::policy::compaction_picker::{CompactionScope, JobKind};
use crate::engine::wip::policy::space::SpacePressure;
use crate::engine::wip::{Wip, WipKeyspace};
use crate::{Options, Tuning};

/// Makes a run of level 0 in the only bucket of each keyspace. Nothing is written after the
/// last flush, so no other job is done.
fn add_runs(engine: &Wip, keyspaces: &[&Arc<WipKeyspace>]) {
    for keyspace in keyspaces {
        engine.put_for_tests(keyspace, b"key", b"value");
    }
    for keyspace in keyspaces {
        engine.flush_for_tests(keyspace);
    }
}

#[test]
fn the_bucket_that_is_read_comes_first_unless_reads_weigh_nothing() {
    for (read_weight, expected) in [(10, "read"), (0, "written")] {
        let options = Options::default()
            .background_threads(0)
            .tuning(Tuning::default().read_weight(read_weight));
        let disk = Disk::simulated(&SimDisk::new());
        let engine = Wip::open(disk, options).unwrap();
        let written = engine.create_keyspace("written").unwrap();
        let read = engine.create_keyspace("read").unwrap();
        for _ in 0..engine.options.tuning.sublevels_min {
            assert!(engine.most_pressing(false).unwrap().is_none());
            add_runs(&engine, &[&written, &read]);
        }
        assert!(engine.get(&read, b"key", None).unwrap().is_some());
        let (keyspace, bucket) = engine.most_pressing(false).unwrap().unwrap();
        assert_eq!(keyspace.name, expected);
        assert!(bucket.reserve());
        assert!(engine.serve(&keyspace, &bucket).unwrap());
        assert_eq!(bucket.reads.of_level(0), 0);
        engine.close().unwrap();
    }
}

/// What says that buckets are never to be split ended the process.
#[test]
fn buckets_may_be_as_large_as_can_be() {
    for bucket_bytes in [1 << 58, 1 << 60, u64::MAX] {
        let options = Options::default()
            .background_threads(0)
            .tuning(Tuning::default().bucket_bytes(bucket_bytes));
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        engine.put_for_tests(&keyspace, b"key", b"value");
        engine.flush().unwrap();
        let found = engine.get(&keyspace, b"key", None).unwrap();
        assert_eq!(found.as_deref(), Some(&b"value"[..]));
        engine.close().unwrap();
    }
}

#[test]
fn what_is_much_read_becomes_one_run_sooner() {
    let options = Options::default().background_threads(0);
    let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let keyspace = engine.create_keyspace("keyspace").unwrap();
    let put = |keys| engine.put_run_for_tests(&keyspace, keys, 7);
    put(0..1000);
    put(1000..1250);
    let due = || engine.most_pressing(true).unwrap();
    assert!(due().is_none(), "a quarter is young");
    let read = |count: u32| {
        (0..count)
            .for_each(|key| drop(engine.get(&keyspace, &key.swap_bytes().to_le_bytes(), None)));
    };
    read(1249);
    assert!(due().is_none(), "not yet read as often as it has entries");
    read(1);
    assert!(
        engine.most_pressing(false).unwrap().is_none(),
        "while it is written"
    );
    let (_, bucket) = due().expect("much read");
    assert!(bucket.reserve());
    // For a job, somebody waits for the store to rest.
    engine.idle_for_tests(|| {
        assert!(engine.serve(&keyspace, &bucket).unwrap());
    });
    bucket.release();
    assert_eq!(bucket.state.load().levels.runs().count(), 1);
    // Another young run must wait for other reads.
    put(0..250);
    assert!(due().is_none());
    // 1250 entries of the first compaction, of which none is gone, and these 250.
    (0..187).for_each(|_| engine.count_scan(&bucket));
    assert!(due().is_none(), "187 scans are less than 1500 gets");
    engine.count_scan(&bucket);
    assert!(due().is_some());
    engine.close().unwrap();
}

#[test]
fn what_is_young_and_read_becomes_one_run_beside_the_oldest() {
    let options = Options::default().background_threads(0);
    let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let keyspace = engine.create_keyspace("keyspace").unwrap();
    let put = |keys, value| engine.put_run_for_tests(&keyspace, keys, value);
    let key = |number: u32| number.swap_bytes().to_le_bytes();
    let read = |count: u32| {
        (0..count).for_each(|number| drop(engine.get(&keyspace, &key(number), None)));
    };
    let due = || engine.most_pressing(true).unwrap();
    let serve = || {
        let (_, bucket) = due().expect("something is due");
        assert!(bucket.reserve());
        engine.idle_for_tests(|| assert!(engine.serve(&keyspace, &bucket).unwrap()));
        bucket.release();
    };
    let shape = |expected: [usize; 3]| {
        let router = keyspace.router.load();
        let state = router.buckets()[0].state.load();
        let found = [0, 1, 2].map(|level| state.levels.level(level).len());
        assert_eq!(found, expected);
    };
    put(0..1000, 1);
    put(1000..2000, 1);
    serve();
    shape([0, 0, 1]);

    put(0..100, 2);
    put(50..150, 3);
    shape([2, 0, 1]);
    assert!(
        due().is_none(),
        "200 of 2200 entries are young, and hardly read"
    );
    read(199);
    assert!(due().is_none(), "not yet read as often as they are entries");
    read(1);
    assert!(
        engine.most_pressing(false).unwrap().is_none(),
        "while it is written"
    );
    serve();
    shape([0, 1, 1]);
    assert!(due().is_none(), "one run beside the oldest");
    for number in 0..2000 {
        let value = engine.get(&keyspace, &key(number), None).unwrap().unwrap();
        let newest = match number {
            0..50 => 2,
            50..150 => 3,
            _ => 1,
        };
        assert_eq!(*value, [newest; 100]);
    }
    // Less than an eighth of the young run is younger than it.
    put(0..10, 4);
    read(300);
    assert!(
        due().is_none(),
        "it would write 16 bytes per byte that came"
    );
    put(10..20, 4);
    assert!(due().is_some());
    engine.close().unwrap();
}

/// Beside the whole of a table that a bucket shares with its siblings, young runs looked small,
/// however large they were beside the bucket's part of it: they stayed at rest.
#[test]
fn young_runs_are_compared_with_the_part_of_a_shared_table_that_is_the_bucket_s() {
    let options = Options::default().background_threads(0);
    let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let [shared, own] = ["shared", "own"].map(|name| engine.create_keyspace(name).unwrap());
    engine.put_run_for_tests(&own, 0..700, 2);
    engine.put_run_for_tests(&shared, 0..8000, 1);
    let parent = Arc::clone(&shared.router.load().buckets()[0]);
    assert!(parent.reserve());
    let split = JobKind::Split { ways: 8 };
    engine.idle_for_tests(|| engine.carry_out(&shared, &parent, split).unwrap());
    let first = |keyspace: &WipKeyspace| {
        let bucket = Arc::clone(&keyspace.router.load().buckets()[0]);
        let run = bucket.state.load().levels.runs().next().unwrap().clone();
        (bucket, run)
    };
    let ((child, old), (_, young)) = (first(&shared), first(&own));
    let bytes = |run: &Run| -> u64 {
        let files = run.tables.iter();
        files.map(|file| file.bytes_in(&child).unwrap()).sum()
    };
    assert!(
        8 * bytes(&old) < 9 * old.tables[0].meta.file_bytes,
        "a slice"
    );
    assert!((2 * bytes(&old) / 3..bytes(&old)).contains(&bytes(&young)));
    for runs in [[&old, &young], [&young, &old]] {
        let shapes = runs.map(|run| RunShape {
            bytes: bytes(run),
            ..RunShape::default()
        });
        assert!(has_young(shapes.iter(), 2));
        assert!(!has_young(shapes.iter(), 1));
    }
    engine.close().unwrap();
}

#[test]
fn what_is_flushed_while_young_runs_become_one_stays_newer() {
    let sim = SimDisk::new();
    let options = Options::default().background_threads(0);
    let engine = Wip::open(Disk::simulated(&sim), options.clone()).unwrap();
    let keyspace = engine.create_keyspace("keyspace").unwrap();
    engine.put_run_for_tests(&keyspace, 0..1000, 1);
    let bucket = Arc::clone(&keyspace.router.load().buckets()[0]);
    let job = |state: &BucketState| Compaction::at_leisure(&bucket, &state.levels);
    engine.idle_for_tests(|| engine.compact(&job(&bucket.state.load())).unwrap());
    engine.put_run_for_tests(&keyspace, 0..100, 2);
    engine.put_run_for_tests(&keyspace, 0..100, 3);
    let young = Compaction::compact_young_runs(&bucket, &bucket.state.load().levels, 0);
    engine.put_run_for_tests(&keyspace, 0..100, 4);
    engine.idle_for_tests(|| engine.compact(&young).unwrap());

    let key = 7_u32.swap_bytes().to_le_bytes();
    let found = engine.get(&keyspace, &key, None).unwrap();
    assert_eq!(*found.unwrap(), [4; 100]);
    engine.close().unwrap();
    let engine = Wip::open(Disk::simulated(&sim), options).unwrap();
    let keyspace = engine.create_keyspace("keyspace").unwrap();
    let found = engine.get(&keyspace, &key, None).unwrap();
    assert_eq!(*found.unwrap(), [4; 100]);
    engine.close().unwrap();
}

/// A job took the runs before it took the mark. What was flushed, and asked for, between the
/// two was not merged, and who had asked was told that it was.
#[test]
fn a_compaction_on_demand_merges_all_that_was_there_when_it_was_asked_for() {
    let options = Options::default().background_threads(0);
    let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let keyspace = engine.create_keyspace("keyspace").unwrap();
    let bucket = Arc::clone(&keyspace.router.load().buckets()[0]);
    assert!(bucket.reserve());
    engine.put_run_for_tests(&keyspace, 0..100, 1);
    bucket.demand.ask();
    let circumstances = engine.circumstances(false);
    let due = engine
        .due(&bucket, &bucket.state.load(), &circumstances)
        .unwrap();
    let job = due.expect("somebody asks for it").job;
    assert_eq!(job, JobKind::Compact(CompactionScope::OnDemand));
    engine.put_run_for_tests(&keyspace, 50..150, 2);
    bucket.demand.ask();
    engine.carry_out(&keyspace, &bucket, job).unwrap();
    let runs = bucket.state.load().levels.runs().count();
    assert!(bucket.demand.is_open() || runs == 1, "{runs} runs");
    bucket.release();
    engine.close().unwrap();
}

/// Far from the cap nobody compacts for garbage, but on a medium that is nearly full.
#[test]
fn garbage_is_compacted_where_the_medium_is_nearly_full() {
    let sim = SimDisk::new();
    let options = Options::default().background_threads(0);
    let engine = Wip::open(Disk::simulated(&sim), options).unwrap();
    let keyspace = engine.create_keyspace("keyspace").unwrap();
    engine.put_run_for_tests(&keyspace, 0..10_000, 1);
    engine.put_run_for_tests(&keyspace, (0..10_000).step_by(3), 2);
    engine.look_at_space().unwrap();
    assert_eq!(engine.space_need(), SpacePressure::None);
    let names = sim.names();
    let files = names.iter().filter_map(|name| sim.raw(name));
    let used: u64 = files.map(|file| file.len() as u64).sum();
    for (free, need) in [
        (used, SpacePressure::None),
        (used / 16, SpacePressure::Compact),
    ] {
        sim.set_capacity(Some(used + free));
        engine.syncer.look_at_room();
        assert_eq!(engine.space_need(), need, "{free} bytes beside {used}");
    }
    sim.set_capacity(None);
    engine.close().unwrap();
}
