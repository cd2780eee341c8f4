//! What a store takes on the medium, and that it gives back what it does not need.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gabion::{Clock, Db, Durability, Engine, Options};
use gabion_media::{Disk, SimDisk, Tear};

use crate::support::{
    Change, KEYSPACES, Operation, PanicContext, SeededRng, Subject, Twin, assert_twin, base_seed,
    bytes_of, option_sets, small_options, small_tuning, tuned,
};

/// Bytes of the log's files.
fn log_file_bytes(sim: &SimDisk) -> u64 {
    let names = sim.names();
    let logs = names.iter().filter(|name| name.ends_with(".log"));
    logs.filter_map(|name| sim.raw(name))
        .map(|bytes| bytes.len() as u64)
        .sum()
}

/// Puts random pairs into all keyspaces, and into a twin.
fn put_some(subject: &Subject, twin: &mut Twin, random: &mut SeededRng, count: usize) {
    for _ in 0..count {
        let key = format!("{:05}", random.below(5_000)).into_bytes();
        let value = bytes_of(random.word(), random.index(120));
        let operation = Operation::new(random.index(KEYSPACES.len()), key, Some(value));
        subject
            .write(std::slice::from_ref(&operation), None)
            .unwrap();
        twin.apply(&operation);
    }
}

#[test]
fn the_log_of_an_idle_store_is_a_segment_or_less() {
    for (number, options) in option_sets(gabion::Engine::Wip).into_iter().enumerate() {
        let _context = PanicContext(|| format!("option set {number}: {options:?}"));
        let sim = SimDisk::recording();
        let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        let mut twin = Twin::new(KEYSPACES.len());
        let mut random = SeededRng::new(base_seed());
        let segment = (options.log_bytes_max / 16).max(4 << 10);
        for round in 0..4 {
            put_some(&subject, &mut twin, &mut random, [300, 40, 1, 500][round]);
            let before = subject.db.stats();
            subject.db.wait_idle().unwrap();
            let after = subject.db.stats();
            let files = log_file_bytes(&sim);
            assert_eq!(after.log_file_bytes, files, "round {round}");
            assert!(after.log_bytes <= segment, "{} bytes", after.log_bytes);
            assert!(
                files <= 2 * segment,
                "{files} bytes after {}",
                before.log_bytes
            );
            subject.db.wait_idle().unwrap();
            let again = subject.db.stats();
            assert_eq!(again.flushes, after.flushes, "what rests is left alone");
            assert_eq!(again.log_bytes, after.log_bytes);
        }
        assert_twin(&subject.db, &twin);
        let killed = sim.process_kill(sim.ops());
        drop(subject);
        for image in [killed, sim] {
            let subject = Subject::open(&Disk::simulated(&image), &options).unwrap();
            assert_twin(&subject.db, &twin);
        }
    }
}

/// Options under which some thousand writes of some hundred bytes make tables of which the fixed
/// parts are small.
pub(crate) fn capped(cap: f64) -> Options {
    small_options()
        .tuning(
            small_tuning()
                .block_bytes(1 << 10)
                .memtable_budget_bytes(256 << 10)
                .bucket_bytes(256 << 10),
        )
        .log_bytes_max(1 << 20)
        .space_amplification_max(cap)
}

/// The bytes of a store's tables when each holds what is live and nothing else.
pub(crate) fn live_bytes(sim: &SimDisk, options: &Options) -> u64 {
    let copy = sim.process_kill(sim.ops());
    let options = options.clone().space_amplification_max(f64::INFINITY);
    let options = options.background_threads(0);
    let db = Db::open_on(Disk::simulated(&copy), options).unwrap();
    db.flush().unwrap();
    db.default_keyspace().compact::<&[u8]>(..).unwrap();
    db.stats().table_bytes
}

/// Writes that make garbage in several ways, a batch at a time.
fn make_garbage(random: &mut SeededRng, phase: usize) -> WriteParts {
    let keys = 3_000;
    (0..60)
        .map(|_| {
            let key = |number: u64| format!("key {number:08}").into_bytes();
            match phase {
                // Uniform, values of one length.
                0 | 1 => (key(random.below(keys)), Some(200)),
                // Nine of ten writes fall on a tenth of the keys.
                2 => {
                    let hot = !random.one_in(10);
                    (
                        key(random.below(if hot { keys / 10 } else { keys })),
                        Some(200),
                    )
                }
                // Values become shorter, and longer again.
                3 => (key(random.below(keys)), Some(20)),
                4 => (key(random.below(keys)), Some(random.index(400))),
                // Most keys are deleted.
                5 => (key(random.below(keys)), None),
                _ => (key(random.below(keys)), random.one_in(2).then_some(100)),
            }
        })
        .collect()
}

type WriteParts = Vec<(Vec<u8>, Option<usize>)>;

fn write_parts(db: &Db, random: &mut SeededRng, parts: WriteParts) {
    for (key, len) in parts {
        match len {
            Some(len) => db.put(key, bytes_of(random.word(), len)).unwrap(),
            None => db.delete(key).unwrap(),
        }
    }
}

#[test]
fn the_tables_never_pass_the_cap_whatever_is_overwritten() {
    let sets = [
        capped(1.25),
        tuned(capped(1.5), |own| own.split_ways(2).sublevels_max(8)),
        capped(2.0),
        tuned(capped(2.0), |own| {
            own.memtable_budget_bytes(64 << 10).bucket_bytes(64 << 10)
        }),
        tuned(capped(3.0), |own| {
            own.sublevels_max(8).sublevels_min(4).split_ways(8)
        }),
        tuned(capped(f64::INFINITY), |own| {
            own.sublevels_max(8).sublevels_min(8)
        }),
    ];
    for options in sets {
        let cap = options.space_amplification_max;
        let _context = PanicContext(|| format!("{options:?}"));
        let sim = SimDisk::recording();
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        let mut random = SeededRng::new(base_seed());
        let mut highest: f64 = 0.0;
        for phase in 0..7 {
            for batch in 0..100 {
                let parts = make_garbage(&mut random, phase);
                write_parts(&db, &mut random, parts);
                if batch % 10 != 9 {
                    continue;
                }
                // What is in no table yet is not what the cap is about.
                db.flush().unwrap();
                let stats = db.stats();
                let live = live_bytes(&sim, &options);
                let amplification = ratio(stats.table_bytes, live);
                highest = highest.max(amplification);
                assert!(
                    amplification <= cap,
                    "phase {phase}, batch {batch}: {} of {live} bytes, estimated {} and {}",
                    stats.table_bytes,
                    stats.live_bytes,
                    stats.live_bytes_min
                );
            }
        }
        assert!(cap.is_finite() || highest > 2.5, "without a cap: {highest}");
        db.wait_idle().unwrap();
        let before = db.stats().compactions;
        db.wait_idle().unwrap();
        assert_eq!(db.stats().compactions, before, "no endless work");
    }
}

#[test]
fn garbage_that_a_snapshot_holds_stops_nobody_and_goes_with_the_snapshot() {
    let options = capped(1.5);
    let sim = SimDisk::recording();
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let mut random = SeededRng::new(base_seed());
    let mut overwrite = |batches: usize| {
        for _ in 0..batches {
            let parts = make_garbage(&mut random, 0);
            write_parts(&db, &mut random, parts);
        }
        db.flush().unwrap();
        db.stats()
    };
    overwrite(100);
    let snapshot = db.snapshot();
    let begun = db.stats();
    let held = overwrite(200);
    let written = held.user_bytes - begun.user_bytes;
    let compacted = held.written.compaction - begun.written.compaction;
    assert!(compacted < 12 * written, "{compacted} for {written} bytes");
    drop(snapshot);
    let after = overwrite(20);
    let live = live_bytes(&sim, &options);
    assert!(ratio(after.table_bytes, live) <= 1.5, "{after:?}");
}

#[test]
fn the_cap_is_kept_while_others_flush_and_compact() {
    let options = capped(1.5).background_threads(2);
    let sim = SimDisk::recording();
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let mut random = SeededRng::new(base_seed());
    let mut put_all = |check: &dyn Fn(u64)| {
        for number in 0..12_000 {
            let key = format!("key {:08}", number * 7 % 3_000);
            db.put(key, bytes_of(random.word(), 200)).unwrap();
            if number % 50 == 0 {
                check(db.stats().table_bytes);
            }
        }
    };
    put_all(&|_| {});
    let live = live_bytes(&sim, &options);
    // A job holds its input and its output; a flush that must not wait adds a MemTable.
    let slack = options.tuning.bucket_bytes * 5 / 4 + options.memory_sizes().memtables / 8;
    put_all(&|bytes| assert!(bytes <= live + live / 2 + slack, "{bytes} of {live}"));
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn ratio(bytes: u64, live: u64) -> f64 {
    bytes as f64 / (live as f64).max(1.0)
}

#[test]
fn small_neighbours_are_joined_and_grow_apart_again() {
    for threads in [0, 2] {
        // Memory for several records in the MemTable of each of some dozens of buckets.
        let options = small_options()
            .background_threads(threads)
            .tuning(small_tuning().memtable_budget_bytes(512 << 10))
            .log_bytes_max(256 << 10);
        let sim = SimDisk::recording();
        let mut subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        let mut twin = Twin::new(KEYSPACES.len());
        let mut random = SeededRng::new(base_seed());
        let key = |number: u64| format!("{number:05}").into_bytes();
        for round in 0..3 {
            for _ in 0..3_000 {
                let value = bytes_of(random.word(), 60);
                let operation = Operation::new(0, key(random.below(2_000)), Some(value));
                subject
                    .write(std::slice::from_ref(&operation), None)
                    .unwrap();
                twin.apply(&operation);
            }
            subject.db.wait_idle().unwrap();
            let full = subject.db.stats();
            assert!(full.buckets > 20, "{} buckets", full.buckets);
            if round == 0 {
                assert_eq!(full.joins, 0, "what was just split is not joined");
            }
            let (snapshot, before) = (subject.db.snapshot(), twin.clone());
            let iterator = subject.db.iter();
            for number in 0..2_000 {
                if number % 1_000 > 5 {
                    let operation = Operation::new(0, key(number), None);
                    subject
                        .write(std::slice::from_ref(&operation), None)
                        .unwrap();
                    twin.apply(&operation);
                }
            }
            for _ in 0..2 {
                subject.keyspaces[0].compact::<&[u8]>(..).unwrap();
                subject.db.wait_idle().unwrap();
            }
            assert_twin(&subject.db, &twin);
            assert_eq!(iterator.count(), before.pairs(0).len());
            assert_eq!(
                snapshot.iter(&subject.keyspaces[0]).count(),
                before.pairs(0).len()
            );
            drop(snapshot);
            subject.keyspaces[0].compact::<&[u8]>(..).unwrap();
            subject.db.wait_idle().unwrap();
            let joined = subject.db.stats();
            assert!(
                joined.joins > full.joins && joined.buckets < 16,
                "{} buckets",
                joined.buckets
            );
            subject.db.wait_idle().unwrap();
            let again = subject.db.stats();
            assert_eq!((again.joins, again.splits), (joined.joins, joined.splits));
            assert_twin(&subject.db, &twin);
            if round == 1 {
                subject.db.close().unwrap();
                subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
                assert_twin(&subject.db, &twin);
            }
        }
        let killed = sim.process_kill(sim.ops());
        let subject = Subject::open(&Disk::simulated(&killed), &options).unwrap();
        assert_twin(&subject.db, &twin);
    }
}

#[test]
fn a_power_cut_at_any_moment_of_a_join_loses_nothing() {
    // So many parts are too small to be joined under these options, and not under the next.
    let apart = small_options()
        .durability(Durability::Sync)
        .tuning(
            small_tuning()
                .memtable_budget_bytes(512 << 10)
                .split_ways(64),
        )
        .log_bytes_max(256 << 10);
    let options = tuned(apart.clone(), |own| own.split_ways(2));
    let sim = SimDisk::recording();
    let disk = Disk::simulated(&sim);
    let mut twin = Twin::new(KEYSPACES.len());
    let subject = Subject::open(&disk, &apart).unwrap();
    let apply = |twin: &mut Twin, operation: Operation| {
        let operations = std::slice::from_ref(&operation);
        subject.write(operations, None).unwrap();
        twin.apply(&operation);
    };
    let key = |number: u64| format!("{number:05}").into_bytes();
    for number in 0..300 {
        apply(
            &mut twin,
            Operation::new(0, key(number), Some(bytes_of(number, 60))),
        );
    }
    subject.db.flush().unwrap();
    subject.db.wait_idle().unwrap();
    for number in (0..300).filter(|number| number % 20 != 0) {
        apply(&mut twin, Operation::new(0, key(number), None));
    }
    subject.db.flush().unwrap();
    // Some of the buckets have something in their MemTables, a range delete among it.
    for number in (0..300).step_by(50) {
        apply(
            &mut twin,
            Operation::new(0, key(number + 3), Some(bytes_of(7, 3))),
        );
    }
    let range = (Bound::Included(key(95)), Bound::Excluded(key(125)));
    let change = Change::DeleteRange(range);
    apply(
        &mut twin,
        Operation {
            keyspace: 0,
            change,
        },
    );
    let before = subject.db.stats();
    assert!(before.buckets > 8, "{} buckets", before.buckets);
    drop(subject);

    let subject = Subject::open(&disk, &options).unwrap();
    let begin = sim.ops();
    subject.db.wait_idle().unwrap();
    let after = subject.db.stats();
    assert!(
        after.joins > 0 && after.buckets < before.buckets,
        "{} joins",
        after.joins
    );
    assert_twin(&subject.db, &twin);
    let end = sim.ops();
    println!("{} joins in {} operations", after.joins, end - begin);
    for op in begin..=end {
        for style in [Tear::DropAll, Tear::KeepAll, Tear::Random512] {
            let image = sim.power_cut(op, base_seed() + op, style);
            let _context =
                PanicContext(|| format!("power cut after {op} of {begin}..{end}, {style:?}"));
            let db = Db::open_on(Disk::simulated(&image), options.clone()).unwrap();
            assert_twin(&db, &twin);
            // What follows the recovery joins the rest.
            if op % 8 == 0 {
                db.wait_idle().unwrap();
                assert_twin(&db, &twin);
            }
        }
    }
}

#[test]
fn neighbours_are_joined_under_readers_and_writers() {
    const BANDS: u64 = 40;
    const WAVES: u64 = 4;
    let key = |band: u64, number: u64| format!("{:02} {number:05}", band % BANDS).into_bytes();
    let options = small_options().background_threads(2).tuning(
        small_tuning()
            .memtable_budget_bytes(96 << 10)
            .bucket_bytes(16 << 10),
    );
    let sim = SimDisk::new();
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let keyspace = db.default_keyspace();
    for band in 0..BANDS {
        keyspace.put(key(band, 7), "stays").unwrap();
    }
    // ORDER: Relaxed (all); the flag only ends the readers.
    let writing = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (db, writing) = (&db, &writing);
            scope.spawn(move || {
                // ORDER: Relaxed, as above.
                while writing.load(Ordering::Relaxed) {
                    let snapshot = db.snapshot();
                    let pairs = |reverse: bool| -> Vec<_> {
                        let iterator = snapshot.iter(db.default_keyspace()).map(Result::unwrap);
                        let mut pairs: Vec<_> = iterator.collect();
                        if reverse {
                            let iterator = snapshot.iter(db.default_keyspace()).rev();
                            pairs = iterator.map(Result::unwrap).collect();
                            pairs.reverse();
                        }
                        pairs
                    };
                    let found = pairs(reader == 0);
                    assert!(found.is_sorted_by(|a, b| a.0 < b.0));
                    let again = pairs(false);
                    assert!(found == again, "a snapshot does not change");
                    for (key, value) in found.iter().step_by(37) {
                        let single = snapshot.get(db.default_keyspace(), key).unwrap();
                        assert_eq!(single.as_ref(), Some(value));
                    }
                    // Every wave leaves the keys of each band whose number is 7 as they are.
                    let marks = found.iter().filter(|(key, _)| key.ends_with(b" 00007"));
                    assert_eq!(marks.count() as u64, BANDS);
                    assert!(db.get(key(reader, 7)).unwrap().is_some());
                }
            });
        }
        for wave in 0..WAVES {
            for number in (0..100 * BANDS).filter(|number| number / BANDS != 7) {
                let value = bytes_of(wave * 1000 + number, 60);
                keyspace.put(key(number, number / BANDS), value).unwrap();
            }
            for number in (0..100 * BANDS).filter(|number| number / BANDS != 7) {
                keyspace.delete(key(number, number / BANDS)).unwrap();
            }
            db.wait_idle().unwrap();
            keyspace.compact::<&[u8]>(..).unwrap();
            db.wait_idle().unwrap();
        }
        // ORDER: Relaxed, as above.
        writing.store(false, Ordering::Relaxed);
    });
    let stats = db.stats();
    println!("joins: {} of {} splits", stats.joins, stats.splits);
    assert!(stats.joins >= WAVES && stats.splits >= WAVES, "{stats:?}");
    let expected: Vec<_> = (0..BANDS).map(|band| key(band, 7)).collect();
    let left = |db: &Db| -> Vec<_> { db.iter().map(|pair| pair.unwrap().0.to_vec()).collect() };
    assert_eq!(left(&db), expected);
    db.close().unwrap();
    let db = Db::open_on(Disk::simulated(&sim), options).unwrap();
    assert_eq!(left(&db), expected);
}

/// Bytes of the files of FlexDB's spaces, without what was given back within them.
fn space_file_bytes(sim: &SimDisk) -> u64 {
    let names = sim.names();
    let files = names.iter().filter(|name| name.ends_with("DATA"));
    files
        .filter_map(|name| sim.raw(name))
        .map(|bytes| {
            bytes
                .chunks(512)
                .filter(|part| part.iter().any(|b| *b != 0))
                .count() as u64
        })
        .sum::<u64>()
        * 512
}

/// Overwrites and removes most of a FlexDB store, in all keyspaces.
fn make_holes(subject: &Subject, twin: &mut Twin, random: &mut SeededRng) {
    for number in 0..6_000_u64 {
        let key = format!("{:05}", random.below(2_000)).into_bytes();
        let value = (number < 4_000 || random.one_in(3)).then(|| bytes_of(number, 120));
        let operation = Operation::new(random.index(KEYSPACES.len()), key, value);
        subject
            .write(std::slice::from_ref(&operation), None)
            .unwrap();
        twin.apply(&operation);
    }
}

#[test]
fn a_flexdb_at_rest_has_little_garbage_and_a_short_log() {
    for threads in [0, 2] {
        let clock = Clock::manual();
        let options = small_options()
            .engine(Engine::Flex)
            .tuning(
                small_tuning()
                    .memtable_budget_bytes(128 << 10)
                    .clock(clock.clone()),
            )
            .log_bytes_max(256 << 10)
            .background_threads(threads);
        let sim = SimDisk::recording();
        let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        let mut twin = Twin::new(KEYSPACES.len());
        make_holes(&subject, &mut twin, &mut SeededRng::new(base_seed()));
        subject.db.flush().unwrap();
        let full = space_file_bytes(&sim);
        if threads == 0 {
            subject.db.wait_idle().unwrap();
        } else {
            // Nobody asks for it; the time alone does.
            let rests = |stats: &gabion::Stats| stats.written.gc > 0 && stats.log_bytes <= 16 << 10;
            while !rests(&subject.db.stats()) {
                clock.advance(Duration::from_secs(1));
                std::thread::sleep(Duration::from_millis(1));
            }
            subject.db.wait_idle().unwrap();
        }
        let stats = subject.db.stats();
        assert!(stats.written.gc > 0, "garbage was collected");
        assert!(stats.log_bytes <= 16 << 10, "{} bytes", stats.log_bytes);
        let live = stats.live_bytes;
        // Segments of 16 KiB: the open ones of three spaces, their footers and reserves.
        let most = live * 8 / 7 + live / 8 + 3 * 6 * (16 << 10);
        let files = space_file_bytes(&sim);
        assert!(files <= most, "{files} bytes for {live}, {full} before");
        assert!(files < full, "{files} of {full} bytes");
        for _ in 0..3 {
            clock.advance(Duration::from_secs(100));
            subject.db.wait_idle().unwrap();
        }
        assert_eq!(
            subject.db.stats().written,
            stats.written,
            "what rests is left alone"
        );
        assert_twin(&subject.db, &twin);
        let killed = sim.process_kill(sim.ops());
        drop(subject);
        for image in [killed, sim] {
            let subject = Subject::open(&Disk::simulated(&image), &options).unwrap();
            assert_twin(&subject.db, &twin);
        }
    }
}
