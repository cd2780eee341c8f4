//! What a store takes on the medium, and that it gives back what it does not need.

use gabion::{Db, Options};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    Context, KEYSPACES, Operation, Random, Subject, Twin, assert_twin, base_seed, bytes_of,
    option_sets, small_options,
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
fn put_some(subject: &Subject, twin: &mut Twin, random: &mut Random, count: usize) {
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
    for (number, options) in option_sets().into_iter().enumerate() {
        let _context = Context(|| format!("option set {number}: {options:?}"));
        let sim = SimDisk::recording();
        let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        let mut twin = Twin::new(KEYSPACES.len());
        let mut random = Random::new(base_seed());
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
fn capped(cap: f64) -> Options {
    small_options()
        .block_bytes(1 << 10)
        .memtable_budget_bytes(256 << 10)
        .bucket_bytes(256 << 10)
        .log_bytes_max(1 << 20)
        .space_amplification_max(cap)
}

/// The bytes of a store's tables when each holds what is live and nothing else.
fn live_bytes(sim: &SimDisk, options: &Options) -> u64 {
    let copy = sim.process_kill(sim.ops());
    let options = options.clone().space_amplification_max(f64::INFINITY);
    let options = options.background_threads(0);
    let db = Db::open_on(Disk::simulated(&copy), options).unwrap();
    db.flush().unwrap();
    db.default_keyspace().compact::<&[u8]>(..).unwrap();
    db.stats().table_bytes
}

/// Writes that make garbage in several ways, a batch at a time.
fn make_garbage(random: &mut Random, phase: usize) -> WriteParts {
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

fn write_parts(db: &Db, random: &mut Random, parts: WriteParts) {
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
        capped(1.5).split_ways(2).sublevels_max(8),
        capped(2.0),
        capped(2.0)
            .memtable_budget_bytes(64 << 10)
            .bucket_bytes(64 << 10),
        capped(3.0).sublevels_max(8).sublevels_min(4).split_ways(8),
        capped(f64::INFINITY).sublevels_max(8).sublevels_min(8),
    ];
    for options in sets {
        let cap = options.space_amplification_max;
        let _context = Context(|| format!("{options:?}"));
        let sim = SimDisk::recording();
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        let mut random = Random::new(base_seed());
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
    let mut random = Random::new(base_seed());
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
    let mut random = Random::new(base_seed());
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
    let slack = options.bucket_bytes * 5 / 4 + options.memtable_budget_bytes / 8;
    put_all(&|bytes| assert!(bytes <= live + live / 2 + slack, "{bytes} of {live}"));
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn ratio(bytes: u64, live: u64) -> f64 {
    bytes as f64 / (live as f64).max(1.0)
}
