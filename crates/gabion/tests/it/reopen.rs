//! Closing and opening: at any point, twice, with other things still open.

use std::path::Path;

use gabion::{Db, Durability, Engine, Error, Iter, Keyspace, Options, Snapshot, WriteBatch};
use gabion_media::pmem::Pool;
use gabion_media::{Disk, SimDisk};

use crate::support::{
    KEYSPACES, Operation, PanicContext, Place, SeededRng, Step, Subject, Twin, Workload,
    assert_twin, base_seed, copy_with_holes, engines_on_disks, log_number, small_options,
    small_tuning,
};

/// Applies the writes of a workload, calling `between` after each.
fn write_all(workload: &Workload, mut write: impl FnMut(&[Operation])) -> Twin {
    let mut twin = Twin::new(KEYSPACES.len());
    for step in &workload.steps {
        if let Step::Write { operations, .. } = step {
            write(operations);
            operations
                .iter()
                .for_each(|operation| twin.apply(operation));
        }
    }
    twin
}

#[test]
fn the_end_of_the_process_after_any_write_loses_nothing() {
    Engine::ALL
        .iter()
        .for_each(|engine| end_after_any_write(*engine));
}

fn end_after_any_write(engine: Engine) {
    // Files are copied, which takes longer.
    let seeds = if engine.capabilities().mapped { 2 } else { 6 };
    for seed in base_seed()..base_seed() + seeds {
        let workload = Workload::new(seed, 60).within(engine);
        let mut place = Place::of(engine);
        let mut twin = Twin::new(KEYSPACES.len());
        let open = |place: &Place| {
            Subject::open(&place.disk(), &small_options().engine(engine)).expect("the store opens")
        };
        let mut subject = open(&place);
        for (number, step) in workload.steps.iter().enumerate() {
            let Step::Write { operations, .. } = step else {
                continue;
            };
            let _context = PanicContext(|| format!("seed {seed}, step {number}"));
            subject.write(operations, None).unwrap();
            operations
                .iter()
                .for_each(|operation| twin.apply(operation));
            let after = place.kill();
            assert_twin(&open(&after).db, &twin);
            // Every tenth death is a real one: the workload goes on with what it left.
            if number % 10 == 9 {
                place = after.kill();
                subject = open(&place);
            }
        }
    }
}

#[test]
fn a_copy_of_the_files_of_a_running_store_opens() {
    Engine::ALL.iter().for_each(|engine| copy_files(*engine));
}

fn copy_files(engine: Engine) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let workload = Workload::new(base_seed(), 150).within(engine);
    let disk = Disk::create_system(&path).unwrap();
    let subject = Subject::open(&disk, &small_options().engine(engine)).unwrap();
    let twin = write_all(&workload, |operations| {
        subject.write(operations, None).unwrap()
    });
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        copy_with_holes(&entry.path(), &copy.join(entry.file_name())).unwrap();
    }
    if engine.capabilities().mapped {
        // Nobody wrote meanwhile, which only whoever has made the copy can know.
        Pool::adopt(&copy.join("store.pool")).unwrap();
    }
    assert_twin(&small_options().engine(engine).open(&copy).unwrap(), &twin);
    assert_twin(&subject.db, &twin);
    drop(subject);
    assert_twin(&Db::open(&path).unwrap(), &twin);
}

#[test]
fn other_options_read_what_was_written_before() {
    Engine::ALL
        .iter()
        .for_each(|engine| open_with_other_options(*engine));
}

fn open_with_other_options(engine: Engine) {
    let place = Place::of(engine);
    let disk = place.disk();
    let mut twin = Twin::new(KEYSPACES.len());
    for (number, options) in crate::support::option_sets(engine).into_iter().enumerate() {
        let _context = PanicContext(|| format!("option set {number}, {engine}"));
        let subject = Subject::open(&disk, &options).unwrap();
        assert_twin(&subject.db, &twin);
        let workload = Workload::new(base_seed() + number as u64, 60).within(engine);
        for step in workload.steps {
            if let Step::Write { operations, .. } = step {
                subject.write(&operations, None).unwrap();
                operations
                    .iter()
                    .for_each(|operation| twin.apply(operation));
            }
        }
        subject.db.close().unwrap();
    }
    assert_twin(&Db::open_on(disk, Options::default()).unwrap(), &twin);
}

#[test]
fn a_store_that_is_open_is_refused_and_says_who_holds_it() {
    Engine::ALL.iter().for_each(|engine| open_twice(*engine));
}

fn open_twice(engine: Engine) {
    let options = || Options::default().engine(engine);
    let dir = tempfile::tempdir().unwrap();
    let db = options().open(dir.path()).unwrap();
    db.put("key", "value").unwrap();
    let checked = match engine.capabilities().followers {
        false => gabion::check(dir.path()).err(),
        // It is checked beside who writes it.
        true => {
            let report = gabion::check(dir.path()).unwrap();
            assert!(report.problems.is_empty() && report.log_operations == 1);
            options().read_only(true).open(dir.path()).err()
        }
    };
    // Whoever has the store may be about to remove a file: it is no matter of others'.
    let removed = dir.path().join("00000000000000ff.log");
    std::os::unix::fs::symlink("removed", &removed).unwrap();
    for refused in [options().open(dir.path()).err(), checked] {
        let refused = refused.expect("the store is open");
        assert!(refused.is_locked() && !refused.is_no_space(), "{refused}");
        let message = refused.to_string();
        assert!(message.contains("LOCK"), "{message}");
        assert!(
            message.contains(&std::process::id().to_string()),
            "{message}"
        );
    }
    std::fs::remove_file(removed).unwrap();
    db.put("key", "still there").unwrap();
    db.close().unwrap();
    let db = options().open(dir.path()).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"still there"[..]));
}

#[test]
fn a_closed_store_refuses_politely() {
    Engine::ALL
        .iter()
        .for_each(|engine| use_after_close(*engine));
}

fn use_after_close(engine: Engine) {
    let place = Place::of(engine);
    let db = Db::open_on(place.disk(), small_options().engine(engine)).unwrap();
    let keyspace = db.keyspace("other").unwrap();
    keyspace.put("key", "value").unwrap();
    let (snapshot, mut begun) = (db.snapshot(), keyspace.pairs());
    db.clone().close().unwrap();
    assert_reads_are_refused(&db, &keyspace, &snapshot);
    // What began before may go on, with what it began with.
    match begun.next() {
        Some(Ok((key, value))) => assert_eq!((&*key, &*value), (&b"key"[..], &b"value"[..])),
        Some(Err(error)) => assert!(matches!(error, Error::Closed), "{error}"),
        None => panic!("the pair is missing, and nobody is told"),
    }
    drop(begun);
    assert!(matches!(keyspace.put("key", "late"), Err(Error::Closed)));
    assert!(matches!(keyspace.delete("key"), Err(Error::Closed)));
    assert!(matches!(db.flush(), Err(Error::Closed)));
    assert!(matches!(db.persist(Durability::Sync), Err(Error::Closed)));
    assert!(matches!(db.keyspace("new"), Err(Error::Closed)));
    assert!(matches!(db.compact::<&str>(..), Err(Error::Closed)));
    if engine.capabilities().snapshots {
        let target = Disk::simulated(&SimDisk::new());
        assert!(matches!(db.checkpoint_on(&target), Err(Error::Closed)));
        assert_eq!(target.list().unwrap(), Vec::<String>::new());
    }
    let mut batch = WriteBatch::new();
    batch.put(&keyspace, "key", "late").unwrap();
    assert!(matches!(db.write(batch), Err(Error::Closed)));
    db.clone().close().unwrap();
    // The old handles may still be there when the store is opened again.
    let again = Db::open_on(place.disk(), small_options().engine(engine)).unwrap();
    let found = again
        .existing_keyspace("other")
        .unwrap()
        .get("key")
        .unwrap();
    assert_eq!(found.as_deref(), Some(&b"value"[..]));
}

/// Reads of a closed store went on with what it had: with values that were overwritten since, if
/// somebody had opened it again.
fn assert_reads_are_refused(db: &Db, keyspace: &Keyspace, snapshot: &Snapshot) {
    let first = |mut pairs: Iter| pairs.next().expect("an error").map(drop);
    let last = |mut pairs: Iter| pairs.next_back().expect("an error").map(drop);
    let mut reads = vec![
        db.get("key").map(drop),
        keyspace.get("key").map(drop),
        keyspace.contains("key").map(drop),
        keyspace.multi_get(&["key"]).map(drop),
        keyspace.pairs().next().expect("an error").map(drop),
        snapshot.get(keyspace, "key").map(drop),
        snapshot.multi_get(keyspace, &["key"]).map(drop),
    ];
    if db.engine().capabilities().ordered {
        reads.push(first(keyspace.iter()));
        reads.push(last(keyspace.range("a"..)));
        reads.push(first(keyspace.prefix("k")));
        reads.push(first(snapshot.iter(keyspace)));
        reads.push(keyspace.cursor::<&str>(..).advance().map(drop));
    }
    for (number, read) in reads.into_iter().enumerate() {
        assert!(
            matches!(read, Err(Error::Closed)),
            "read {number}: {read:?}"
        );
    }
    assert_eq!(db.stats().read_only, None, "figures can still be had");
}

/// The keys of a store that is closed and put back while a scan of it goes on.
fn keys() -> impl Iterator<Item = String> {
    (0..3000).map(|number| format!("key {number:04}"))
}

/// A store of tables only, each of which a scan takes some of.
fn store_at(path: &Path, value: &str) -> Db {
    let db = small_options().open(path).unwrap();
    keys().for_each(|key| db.put(key, value).unwrap());
    db.compact::<&str>(..).unwrap();
    db.wait_idle().unwrap();
    db
}

/// Puts the files of one directory in the place of those of another.
fn put_back(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(to).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy_with_holes(&entry.path(), &to.join(entry.file_name())).unwrap();
    }
}

/// It deleted its tables by their names, whosever these were by then.
#[test]
fn a_scan_that_ends_after_its_store_removes_nothing_of_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let db = store_at(&path, "before");
    let mut scan = db.iter();
    assert!(scan.next().unwrap().is_ok());
    std::fs::create_dir(&copy).unwrap();
    put_back(&path, &copy);
    // The scan is the last one that needs what the copy consists of.
    keys().for_each(|key| db.put(key, "after").unwrap());
    db.compact::<&str>(..).unwrap();
    db.wait_idle().unwrap();
    db.close().unwrap();
    put_back(&copy, &path);
    drop(scan);
    let db = small_options().open(&path).unwrap();
    let values = db.iter().map(|pair| pair.unwrap().1);
    assert_eq!(values.filter(|value| **value == *b"before").count(), 3000);
}

/// It opened the other store's tables that had the names of its own.
#[test]
fn a_scan_that_goes_on_after_its_store_reads_nothing_of_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("store"), dir.path().join("other"));
    // All is done by this thread, so that both give the same names to their files.
    store_at(&other, "other").close().unwrap();
    let db = store_at(&path, "first");
    let mut scan = db.iter();
    assert!(scan.next().unwrap().is_ok());
    db.close().unwrap();
    put_back(&other, &path);
    let (mut pairs, mut refused) = (1, false);
    for pair in scan {
        match pair {
            Ok((key, value)) => {
                assert_eq!(&*value, b"first", "{}", key.escape_ascii());
                pairs += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::Closed), "{error}");
                refused = true;
                break;
            }
        }
    }
    assert!(
        pairs == 3000 || refused,
        "{pairs} pairs, and nobody is told"
    );
}

#[test]
fn keyspaces_are_kept_in_order_and_apart() {
    Engine::ALL
        .iter()
        .for_each(|engine| reopen_keyspaces(*engine));
}

fn reopen_keyspaces(engine: Engine) {
    let place = Place::of(engine);
    let open = || Db::open_on(place.disk(), small_options().engine(engine)).unwrap();
    let names = ["zeta", "alpha", "with space", "ümlaut", &"n".repeat(255)];
    let db = open();
    for (number, name) in names.iter().enumerate() {
        db.keyspace(name)
            .unwrap()
            .put("key", number.to_string())
            .unwrap();
    }
    db.close().unwrap();
    for _ in 0..2 {
        let db = open();
        let expected: Vec<_> = [gabion::DEFAULT_KEYSPACE].iter().chain(&names).collect();
        assert_eq!(db.keyspace_names().iter().collect::<Vec<_>>(), expected);
        for (number, name) in names.iter().enumerate() {
            let value = db.existing_keyspace(name).unwrap().get("key").unwrap();
            assert_eq!(value.as_deref(), Some(number.to_string().as_bytes()));
        }
        assert!(db.is_empty_by_scan());
        let message = db
            .existing_keyspace("beta")
            .expect_err("unknown")
            .to_string();
        assert!(
            message.contains("beta") && message.contains("alpha"),
            "{message}"
        );
    }
}

trait Scan {
    fn is_empty_by_scan(&self) -> bool;
}

impl Scan for Db {
    fn is_empty_by_scan(&self) -> bool {
        self.default_keyspace().pairs().next().is_none()
    }
}

#[test]
fn snapshots_and_iterators_keep_the_store_open() {
    Engine::ALL
        .iter()
        .filter(|engine| engine.capabilities().snapshots)
        .for_each(|engine| drop_all_but_readers(*engine));
}

fn drop_all_but_readers(engine: Engine) {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    let db = Db::open_on(disk.clone(), small_options().engine(engine)).unwrap();
    for number in 0..500 {
        db.put(format!("key {number:03}"), "before").unwrap();
    }
    let keyspace = db.default_keyspace().clone();
    let snapshot = db.snapshot();
    let mut iterator = db.iter();
    for number in 0..500 {
        db.put(format!("key {number:03}"), "after").unwrap();
    }
    drop(db);
    assert!(
        Db::open_on(disk.clone(), small_options().engine(engine)).is_err(),
        "the store is still open"
    );
    let values = snapshot.iter(&keyspace).map(|pair| pair.unwrap().1);
    assert_eq!(values.filter(|value| **value == *b"before").count(), 500);
    drop(snapshot);
    drop(keyspace);
    assert_eq!(iterator.by_ref().take(10).count(), 10);
    assert_eq!(iterator.rev().count(), 490);
    let db = Db::open_on(disk, small_options().engine(engine)).unwrap();
    assert_eq!(db.get("key 499").unwrap().as_deref(), Some(&b"after"[..]));
}

#[test]
fn opening_again_and_again_changes_nothing() {
    engines_on_disks().for_each(open_again_and_again);
}

fn open_again_and_again(engine: Engine) {
    for seed in base_seed()..base_seed() + 8 {
        let sim = SimDisk::recording();
        let subject =
            Subject::open(&Disk::simulated(&sim), &small_options().engine(engine)).unwrap();
        let workload = Workload::new(seed, 80);
        let twin = write_all(&workload, |operations| {
            subject.write(operations, None).unwrap()
        });
        let sequence = subject.db.stats().visible_seq;
        let mut sim = sim.process_kill(sim.ops());
        let mut sizes = Vec::new();
        for round in 0..8 {
            let _context = PanicContext(|| format!("seed {seed}, round {round}"));
            let db = Db::open_on(Disk::simulated(&sim), small_options().engine(engine)).unwrap();
            db.wait_idle().unwrap();
            assert_twin(&db, &twin);
            assert_eq!(db.stats().visible_seq, sequence, "sequence numbers go on");
            let names = sim.names();
            let bytes: usize = names
                .iter()
                .filter_map(|name| sim.raw(name))
                .map(|f| f.len())
                .sum();
            sizes.push((names.len(), bytes));
            if round % 2 == 0 {
                sim = sim.process_kill(sim.ops());
            } else {
                db.close().unwrap();
            }
        }
        // Only the manifest or root notes, in three or four bytes, that an open began a segment of
        // the log that held nothing; it forgets that when the tail of the log moves on.
        let (files, bytes) = sizes[3];
        for (more, size) in (1..).zip(&sizes[4..]) {
            assert_eq!(size.0, files, "files: {sizes:?}");
            assert!(size.1 <= bytes + 4 * more, "bytes: {sizes:?}");
        }
    }
}

#[test]
fn sequence_numbers_never_go_back() {
    engines_on_disks().for_each(count_on);
}

fn count_on(engine: Engine) {
    let mut random = SeededRng::new(base_seed());
    let mut sim = SimDisk::recording();
    let mut last = 0;
    let mut segments = 0;
    for round in 0..40_u64 {
        let db = Db::open_on(Disk::simulated(&sim), small_options().engine(engine)).unwrap();
        let sequence = db.stats().visible_seq;
        assert!(sequence >= last, "round {round}: {sequence} after {last}");
        let written = random.below(30);
        for number in 0..written {
            db.put(format!("{}", number % 7), vec![0; 60]).unwrap();
        }
        last = db.stats().visible_seq;
        assert_eq!(last, sequence + written);
        segments = log_number(&sim.names()).max(segments);
        match random.below(3) {
            0 => db.close().unwrap(),
            1 => sim = sim.process_kill(sim.ops()),
            _ => {
                db.flush().unwrap();
                sim = sim.process_kill(sim.ops());
            }
        }
    }
    assert!(
        segments >= 40,
        "every open begins a segment of the log: {segments}"
    );
}

/// FlexDB merges everything at its close, and saves the trees of its spaces.
#[test]
fn a_flexdb_that_was_closed_repeats_nothing_when_it_is_opened() {
    for threads in [0, 2] {
        let options = small_options()
            .engine(Engine::Flex)
            .background_threads(threads)
            .tuning(small_tuning().memtable_budget_bytes(1 << 20))
            .log_bytes_max(1 << 20);
        let sim = SimDisk::new();
        let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        let twin = write_all(&Workload::new(base_seed(), 150), |operations| {
            subject.write(operations, None).unwrap()
        });
        assert_eq!(subject.db.stats().flushes, 0, "the log has it all");
        subject.db.close().unwrap();
        let report = gabion::check_disk(&Disk::simulated(&sim)).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
        assert_eq!((report.log_segments, report.log_operations), (0, 0));
        assert_eq!(log_number(&sim.names()), 0, "no segment is left");
        let db = Db::open_on(Disk::simulated(&sim), options).unwrap();
        assert_eq!(db.stats().memtable_bytes, 0, "nothing was replayed");
        assert_twin(&db, &twin);
    }
}
