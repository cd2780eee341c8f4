//! Dropping keyspaces: what stays readable, what is given back and when, and what jobs, writers and
//! recoveries make of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gabion::{Db, Engine, Error, Keyspace, WriteBatch};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    PanicContext, Place, SeededRng, assert_gone, base_seed, bytes_of, option_sets, setting,
    small_options, small_tuning,
};

/// The engines that can drop keyspaces.
fn engines() -> impl Iterator<Item = Engine> {
    let all = Engine::ALL.iter().copied();
    all.filter(|engine| engine.capabilities().drop_keyspace)
}

fn key(number: u64) -> String {
    format!("key {number:05}")
}

/// Puts pairs that say what they are of.
fn fill(keyspace: &Keyspace, tag: u64, count: u64) {
    for number in 0..count {
        keyspace
            .put(key(number), bytes_of(tag + number, 100))
            .unwrap();
    }
}

/// Asserts that a keyspace holds exactly what [`fill`] put.
fn assert_filled(pairs: gabion::Iter, tag: u64, count: u64) {
    let mut found = 0;
    for (number, pair) in (0..).zip(pairs) {
        let (found_key, value) = pair.unwrap();
        assert_eq!(&*found_key, key(number).as_bytes());
        assert_eq!(&*value, &*bytes_of(tag + number, 100));
        found += 1;
    }
    assert_eq!(found, count);
}

/// Bytes of all files but the manifest.
fn file_bytes(sim: &SimDisk) -> u64 {
    Place::Simulated(sim.clone()).file_bytes()
}

#[test]
fn what_cannot_be_dropped_is_told() {
    for engine in Engine::ALL.iter().copied() {
        let dir = tempfile::tempdir().unwrap();
        let options = small_options().engine(engine);
        let db = options.open(dir.path()).unwrap();
        let unsupported = |name| matches!(db.drop_keyspace(name), Err(Error::Unsupported { .. }));
        assert!(unsupported(gabion::DEFAULT_KEYSPACE));
        let other = db.keyspace("other").unwrap();
        other.put("key", "value").unwrap();
        if !engine.capabilities().drop_keyspace {
            assert!(unsupported("other") && unsupported("no such one"));
            assert_eq!(other.get("key").unwrap().as_deref(), Some(&b"value"[..]));
            continue;
        }
        for _ in 0..2 {
            match db.drop_keyspace("no such one") {
                Err(Error::NoSuchKeyspace { name, existing }) => {
                    assert_eq!((&*name, &*existing), ("no such one", "default, other"));
                }
                result => panic!("{result:?}"),
            }
        }
        db.drop_keyspace("other").unwrap();
        assert!(matches!(
            db.drop_keyspace("other"),
            Err(Error::NoSuchKeyspace { .. })
        ));
        assert_eq!(db.keyspace_names(), [gabion::DEFAULT_KEYSPACE]);
        assert_gone(&db, &other);
        db.clone().close().unwrap();
        assert!(matches!(db.drop_keyspace("other"), Err(Error::Closed)));
    }
}

#[test]
fn a_drop_gives_space_memory_and_log_back_at_once() {
    for engine in engines() {
        let _context = PanicContext(|| format!("{engine}"));
        let sim = SimDisk::new();
        // Nothing is frozen but by a flush; segments of the log are small.
        let options = small_options()
            .engine(engine)
            .tuning(small_tuning().memtable_budget_bytes(4 << 20))
            .log_bytes_max(512 << 10);
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        fill(db.default_keyspace(), 7, 50);
        db.flush().unwrap();
        let before = (file_bytes(&sim), db.stats());
        let doomed = db.keyspace("doomed").unwrap();
        fill(&doomed, 100, 2_000);
        db.flush().unwrap();
        fill(&doomed, 200, 2_000);
        let full = (file_bytes(&sim), db.stats());
        assert!(full.0 > before.0 + 350_000, "{} after {}", full.0, before.0);
        db.drop_keyspace("doomed").unwrap();
        db.wait_idle().unwrap();
        let after = (file_bytes(&sim), db.stats());
        println!(
            "{engine}: {} bytes, {} with the keyspace, {} then",
            before.0, full.0, after.0
        );
        assert!(
            after.0 < before.0 + 40_000,
            "{} after {}",
            after.0,
            before.0
        );
        assert!(
            after.1.table_bytes <= before.1.table_bytes + 20_000,
            "{:?}",
            after.1
        );
        assert!(
            after.1.memtable_bytes < full.1.memtable_bytes / 4,
            "{:?}",
            after.1
        );
        assert_eq!(after.1.keyspaces.len(), 1);
        assert_filled(db.iter(), 7, 50);
        // The old handle holds nothing up, and is told.
        assert_gone(&db, &doomed);
        db.close().unwrap();
        let report = gabion::check_disk(&Disk::simulated(&sim)).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let db = Db::open_on(Disk::simulated(&sim), options).unwrap();
        assert_eq!(db.keyspace_names(), [gabion::DEFAULT_KEYSPACE]);
        assert_filled(db.iter(), 7, 50);
    }
}

#[test]
fn readers_from_before_read_on_and_then_the_files_go() {
    for engine in engines() {
        for (number, options) in option_sets(engine).into_iter().enumerate() {
            let _context = PanicContext(|| format!("{engine}, option set {number}: {options:?}"));
            let sim = SimDisk::new();
            let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
            fill(db.default_keyspace(), 7, 20);
            let doomed = db.keyspace("doomed").unwrap();
            fill(&doomed, 100, 1_500);
            db.flush().unwrap();
            let snapshot = db.snapshot();
            doomed.put(key(1_500), bytes_of(1_600, 100)).unwrap();
            let mut iterator = doomed.iter();
            let first = iterator.next().unwrap().unwrap();
            assert_eq!(&*first.0, key(0).as_bytes());
            let untouched = doomed.iter();
            db.drop_keyspace("doomed").unwrap();
            let held = file_bytes(&sim);
            // Another one of its name is another one.
            let another = db.keyspace("doomed").unwrap();
            assert_eq!(another.iter().count(), 0);
            fill(&another, 9_000, 30);
            db.flush().unwrap();
            assert_eq!(snapshot.iter(&another).count(), 0);
            assert_gone(&db, &doomed);
            for round in 0..2 {
                assert_filled(snapshot.iter(&doomed), 100, 1_500);
                for number in (0..1_500).step_by(97) {
                    let value = snapshot.get(&doomed, key(number)).unwrap();
                    assert_eq!(value.as_deref(), Some(&*bytes_of(100 + number, 100)));
                }
                assert_eq!(snapshot.get(&doomed, key(1_500)).unwrap(), None);
                if round == 0 {
                    fill(db.default_keyspace(), 7, 300);
                    db.wait_idle().unwrap();
                }
            }
            assert_eq!(iterator.by_ref().map(Result::unwrap).count(), 1_500);
            assert_eq!(untouched.rev().map(Result::unwrap).count(), 1_501);
            drop(iterator);
            assert_filled(snapshot.iter(&doomed), 100, 1_500);
            drop(snapshot);
            db.wait_idle().unwrap();
            let left = file_bytes(&sim);
            assert!(left + 100_000 < held, "{left} bytes are left of {held}");
            assert_filled(another.iter(), 9_000, 30);
            assert_filled(db.iter(), 7, 300);
            db.close().unwrap();
        }
    }
}

/// Keyspaces come and go, with pairs in the log, in MemTables and in tables, through the end of the
/// process and clean closes; numbers that were given out twice would show old pairs.
#[test]
fn what_the_log_has_of_a_dropped_keyspace_comes_back_in_none() {
    for engine in engines() {
        for (number, options) in option_sets(engine).into_iter().enumerate() {
            let _context = PanicContext(|| format!("{engine}, option set {number}: {options:?}"));
            let mut random = SeededRng::new(base_seed() + number as u64);
            let mut sim = SimDisk::recording();
            let mut db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
            // Tags and sizes by name.
            let mut expected: [Option<(u64, u64)>; 3] = [None; 3];
            for round in 0..60_u64 {
                let at = random.index(3);
                let name = ["one", "two", "three"][at];
                let keyspace = db.keyspace(name).unwrap();
                let count = 1 + random.below(120);
                if expected[at].is_none_or(|(_, before)| before <= count) {
                    fill(&keyspace, round * 1_000, count);
                    expected[at] = Some((round * 1_000, count));
                }
                if random.one_in(3) {
                    let dropped = random.index(3);
                    let result = db.drop_keyspace(["one", "two", "three"][dropped]);
                    assert_eq!(result.is_ok(), expected[dropped].is_some());
                    expected[dropped] = None;
                }
                match random.below(6) {
                    0 => db.flush().unwrap(),
                    1 => {
                        db.close().unwrap();
                        db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
                    }
                    2 => {
                        let killed = sim.process_kill(sim.ops());
                        drop(keyspace);
                        drop(db);
                        sim = killed;
                        db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
                    }
                    _ => {}
                }
                for (name, expected) in ["one", "two", "three"].into_iter().zip(expected) {
                    match (db.existing_keyspace(name), expected) {
                        (Ok(found), Some((tag, count))) => assert_filled(found.iter(), tag, count),
                        (Err(Error::NoSuchKeyspace { .. }), None) => {}
                        (found, expected) => panic!("{name}: {found:?}, not {expected:?}"),
                    }
                }
            }
            db.close().unwrap();
            let report = gabion::check_disk(&Disk::simulated(&sim)).unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
    }
}

#[test]
fn a_checkpoint_and_a_repair_are_without_it() {
    for engine in engines() {
        let options = small_options()
            .engine(engine)
            .tuning(small_tuning().memtable_budget_bytes(1 << 20));
        let sim = SimDisk::new();
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        let doomed = db.keyspace("doomed").unwrap();
        let kept = db.keyspace("kept").unwrap();
        // A batch whose record is in the log when the one is dropped and the other is not.
        let mut batch = WriteBatch::new();
        for number in 0..50 {
            batch.put(&doomed, key(number), "to go").unwrap();
            batch
                .put(&kept, key(number), bytes_of(300 + number, 100))
                .unwrap();
        }
        db.write(&batch).unwrap();
        db.drop_keyspace("doomed").unwrap();
        fill(&db.keyspace("another").unwrap(), 500, 10);
        let target = SimDisk::new();
        db.checkpoint_on(&Disk::simulated(&target)).unwrap();
        let killed = sim.raw(if engine == Engine::Wip {
            "CURRENT"
        } else {
            "FLEXDB"
        });
        assert!(killed.is_some());
        drop((doomed, kept, db));
        let repaired = SimDisk::new();
        let disks = (Disk::simulated(&sim), Disk::simulated(&repaired));
        let report = gabion::repair_disk(&disks.0, &disks.1).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        for sim in [sim, target, repaired] {
            let report = gabion::check_disk(&Disk::simulated(&sim)).unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
            let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
            assert_eq!(db.keyspace_names(), ["default", "kept", "another"]);
            assert_filled(db.existing_keyspace("kept").unwrap().iter(), 300, 50);
            assert_filled(db.existing_keyspace("another").unwrap().iter(), 500, 10);
            assert_eq!(db.keyspace("doomed").unwrap().iter().count(), 0);
        }
    }
}

/// Every job that writes a table is held up where it begins to, while the keyspace goes.
#[test]
fn jobs_that_are_under_way_end_without_harm() {
    let tables = setting("GABION_HELD_TABLES", 60);
    let mut reached = 0;
    for skipped in 0..tables {
        let options = small_options().background_threads(2).tuning(
            small_tuning()
                .memtable_budget_bytes(24 << 10)
                .bucket_bytes(4 << 10),
        );
        let _context = PanicContext(|| format!("table {skipped} is held up"));
        let sim = SimDisk::new();
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        let doomed = db.keyspace("doomed").unwrap();
        let hold = sim.hold_create(".tbl", skipped);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0..).find_map(|round| {
                    let number = round % 700;
                    let put = doomed.put(key(number), bytes_of(round, 100));
                    put.and_then(|()| match round % 500 {
                        499 => doomed.compact::<&str>(..),
                        _ => Ok(()),
                    })
                    .err()
                })
            });
            let ingester = scope.spawn(|| {
                let pairs = (0..).map(|number| (key(number), bytes_of(number, 100)));
                doomed.ingest(pairs.take(3_000))
            });
            while !hold.is_reached() && !ingester.is_finished() {
                std::thread::yield_now();
            }
            reached += u64::from(hold.is_reached());
            db.drop_keyspace("doomed").unwrap();
            drop(hold);
            assert!(matches!(
                writer.join().unwrap(),
                Some(Error::KeyspaceDropped)
            ));
            let ingested = ingester.join().unwrap();
            assert!(
                matches!(ingested, Ok(_) | Err(Error::KeyspaceDropped)),
                "{ingested:?}"
            );
        });
        fill(db.default_keyspace(), 7, 100);
        db.wait_idle().unwrap();
        let stats = db.stats();
        assert_eq!(stats.read_only, None);
        let named = sim
            .names()
            .iter()
            .filter(|name| name.ends_with(".tbl"))
            .count();
        assert_eq!(named as u64, stats.tables, "{:?}", sim.names());
        drop(doomed);
        db.close().unwrap();
        let report = gabion::check_disk(&Disk::simulated(&sim)).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let db = Db::open_on(Disk::simulated(&sim), options).unwrap();
        assert_filled(db.iter(), 7, 100);
    }
    assert!(reached > tables / 2, "{reached} of {tables}");
}

/// Writers, readers and droppers at the same time. A value says which keyspace it was put into, of
/// all that there have been of the name.
#[test]
fn writers_readers_and_drops_go_side_by_side() {
    let writes = setting("GABION_WRITES", 3_000);
    for engine in engines() {
        for (number, options) in option_sets(engine).into_iter().enumerate() {
            let _context = PanicContext(|| format!("{engine}, option set {number}: {options:?}"));
            let seed = base_seed() + number as u64;
            let disk = Disk::simulated(&SimDisk::new());
            let db = Db::open_on(disk.clone(), options.clone()).unwrap();
            // How many there have been, and how many were told that theirs is gone.
            let (life, told) = (AtomicU64::new(0), AtomicU64::new(0));
            let done = AtomicBool::new(false);
            let current = parking(&db, 0);
            std::thread::scope(|scope| {
                let writers = [1, 2].map(|writer| {
                    let (db, current, told) = (&db, &current, &told);
                    scope.spawn(move || {
                        let mut random = SeededRng::new(seed * 31 + writer);
                        for write in 0..writes {
                            let (own, keyspace) = current.lock().unwrap().clone();
                            let key = key(random.below(300));
                            let tagged = format!("{own} {write}");
                            let mut batch = WriteBatch::new();
                            batch.put(&keyspace, &key, &tagged).unwrap();
                            batch
                                .put(db.default_keyspace(), format!("{writer}"), &tagged)
                                .unwrap();
                            let result = match random.one_in(3) {
                                true => db.write(&batch),
                                false => keyspace.put(&key, &tagged),
                            };
                            match result {
                                Ok(()) => {}
                                // ORDER: Relaxed; a count.
                                Err(Error::KeyspaceDropped) => {
                                    told.fetch_add(1, Ordering::Relaxed);
                                }
                                Err(error) => panic!("{error}"),
                            }
                            // Who never drops is never told.
                            db.put("always", "there").unwrap();
                        }
                    })
                });
                let reader = scope.spawn(|| {
                    // ORDER: Relaxed; a signal to stop.
                    while !done.load(Ordering::Relaxed) {
                        let snapshot = db.snapshot();
                        let (own, keyspace) = current.lock().unwrap().clone();
                        read_tagged(keyspace.iter(), own);
                        read_tagged(snapshot.iter(&keyspace), own);
                        match keyspace.get(key(5)) {
                            Ok(None) | Err(Error::KeyspaceDropped) => {}
                            Ok(Some(value)) => assert_eq!(tag_of(&value), own),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
                let dropper = scope.spawn(|| {
                    // ORDER: Relaxed (both); a signal to stop, and a count of this thread.
                    while !done.load(Ordering::Relaxed) || life.load(Ordering::Relaxed) < 5 {
                        let before = db.snapshot();
                        let (own, old) = current.lock().unwrap().clone();
                        let seen = before.iter(&old).map(Result::unwrap).count();
                        db.drop_keyspace("comes and goes").unwrap();
                        let again = before.iter(&old).map(Result::unwrap).count();
                        assert_eq!(seen, again, "a snapshot keeps what it saw");
                        *current.lock().unwrap() = parking(&db, own + 1).into_inner().unwrap();
                        // ORDER: Relaxed; a count.
                        life.fetch_add(1, Ordering::Relaxed);
                    }
                });
                writers
                    .into_iter()
                    .for_each(|writer| writer.join().unwrap());
                // ORDER: Relaxed; a signal to stop.
                done.store(true, Ordering::Relaxed);
                reader.join().unwrap();
                dropper.join().unwrap();
            });
            let (own, keyspace) = current.into_inner().unwrap();
            read_tagged(keyspace.iter(), own);
            let count = keyspace.iter().count();
            // ORDER: Relaxed (both); the threads have ended.
            let (life, told) = (life.load(Ordering::Relaxed), told.load(Ordering::Relaxed));
            assert!(life >= 5);
            println!("{engine}, option set {number}: {life} drops, {told} writes refused");
            drop(keyspace);
            db.close().unwrap();
            let db = Db::open_on(disk, options.clone()).unwrap();
            let keyspace = db.existing_keyspace("comes and goes").unwrap();
            read_tagged(keyspace.iter(), own);
            assert_eq!(keyspace.iter().count(), count);
        }
    }
}

/// A keyspace of its own, and which one of its name it is.
fn parking(db: &Db, own: u64) -> std::sync::Mutex<(u64, Keyspace)> {
    std::sync::Mutex::new((own, db.keyspace("comes and goes").unwrap()))
}

fn tag_of(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Asserts that all values are of this keyspace, or that it was dropped before they were read.
fn read_tagged(pairs: gabion::Iter, own: u64) {
    for pair in pairs {
        match pair {
            Ok((_, value)) => assert_eq!(tag_of(&value), own),
            Err(Error::KeyspaceDropped) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
