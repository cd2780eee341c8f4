//! Stores that are opened for reading only: they say the same, and nothing of them is written.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use gabion::{Db, Durability, Engine, Error, Options, Result, WriteBatch};
use gabion_media::{Disk, SimDisk, Tear};

use crate::support::{
    PanicContext, Step, Subject, Twin, Workload, assert_sound, assert_twin, base_seed, bytes_of,
    engines_on_disks, keyspace, mapped, option_sets, small_options,
};

/// All files of a disk.
fn files(sim: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let names = sim.names();
    names
        .iter()
        .map(|name| (name.clone(), sim.raw(name).unwrap()))
        .collect()
}

fn read(sim: &SimDisk, options: &Options) -> Result<Db> {
    Db::open_on(Disk::simulated(sim), options.clone().read_only(true))
}

/// Opens what a crash or a close has left for reading, twice at the same time, and compares it with
/// what an opening for writing makes of a copy.
fn assert_reads(sim: &SimDisk, options: &Options, twin: Option<&Twin>) {
    let (before, operations) = (files(sim), sim.ops());
    let db = read(sim, options).unwrap();
    assert_eq!(sim.ops(), operations, "opened");
    let found = assert_sound(&db).unwrap();
    assert_eq!(sim.ops(), operations, "read");
    if let Some(twin) = twin {
        assert_twin(&db, twin);
    }
    let other = read(sim, options).unwrap();
    assert!(assert_sound(&other).unwrap() == found);
    let locked = Db::open_on(Disk::simulated(sim), options.clone());
    assert!(
        locked.is_err_and(|error| error.is_locked()),
        "somebody reads"
    );
    assert_eq!(sim.ops(), operations, "before changes");
    refuses_changes(&db);
    assert_eq!(sim.ops(), operations, "changes");
    db.wait_idle().unwrap();
    assert!(db.stats().read_only.unwrap().contains("opened read-only"));
    let snapshot = db.snapshot();
    drop(db.begin().unwrap());
    db.close().unwrap();
    drop((snapshot, other));
    assert_eq!(sim.ops(), operations, "operations that change the disk");
    assert!(files(sim) == before);

    let copy = sim.process_kill(sim.ops());
    let db = Db::open_on(Disk::simulated(&copy), options.clone()).unwrap();
    assert!(assert_sound(&db).unwrap() == found);
    assert!(
        read(&copy, options).is_err_and(|error| error.is_locked()),
        "somebody writes"
    );
    db.close().unwrap();
}

fn refuses_changes(db: &Db) {
    let refused = |what: &str, result: Result<()>| match result {
        Err(Error::OpenedReadOnly) => {}
        result => panic!("{what}: {result:?}"),
    };
    let own = db.default_keyspace();
    refused("a put", db.put("key", "value"));
    refused("a delete", db.delete("key"));
    refused(
        "a merge",
        keyspace(db, "default").unwrap().merge("key", "value"),
    );
    refused("a range delete", own.delete_range("a".."b"));
    refused("an update", own.update("key", |_| Some("value")).map(drop));
    refused("a new keyspace", db.keyspace("new").map(drop));
    refused("a drop", db.drop_keyspace("second"));
    refused("a flush", db.flush());
    refused("a compaction", own.compact::<&str>(..));
    let mut batch = WriteBatch::new();
    batch.put(own, "key", "value").unwrap();
    refused("a batch", db.write(&batch));
    let mut transaction = db.begin().unwrap();
    transaction.put(own, "key", "value").unwrap();
    refused("a transaction", transaction.commit());
    if db.engine().capabilities().ingest {
        refused("an ingest", own.ingest([("key", "value")]).map(drop));
    }
}

#[test]
fn what_was_closed_or_killed_reads_the_same_and_is_not_touched() {
    for engine in engines_on_disks() {
        for (number, options) in option_sets(engine).into_iter().enumerate() {
            let _context = PanicContext(|| format!("{engine}, option set {number}"));
            // Threads may write while it is copied, so the copy is one of an earlier moment.
            let sim = SimDisk::recording();
            let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
            let mut twin = Twin::new(crate::support::KEYSPACES.len());
            let workload = Workload::new(base_seed() ^ number as u64, 240);
            for (step, next) in (0..).zip(workload.steps) {
                match next {
                    Step::Write { operations, sync } => {
                        let level = sync.then_some(Durability::Sync);
                        subject.write(&operations, level).unwrap();
                        operations
                            .iter()
                            .for_each(|operation| twin.apply(operation));
                    }
                    Step::Flush => subject.db.flush().unwrap(),
                    Step::WaitIdle => subject.db.wait_idle().unwrap(),
                    _ => {}
                }
                if step % 120 == 119 {
                    let killed = sim.process_kill(sim.ops());
                    assert_reads(&killed, &options, Some(&twin));
                    for tear in Tear::ALL {
                        let cut = sim.power_cut(sim.ops(), step, tear);
                        assert_reads(&cut, &options, None);
                    }
                }
            }
            let Subject { db, keyspaces, .. } = subject;
            drop(keyspaces);
            db.close().unwrap();
            assert_reads(&sim, &options, Some(&twin));
        }
    }
}

/// In a directory of the system, beside other readers and threads.
#[test]
fn a_directory_is_read_and_not_changed() {
    for engine in engines_on_disks() {
        let dir = tempfile::tempdir().unwrap();
        let options = small_options().engine(engine);
        let db = options.clone().open(dir.path()).unwrap();
        for number in 0..2_000u64 {
            db.put(number.to_le_bytes(), bytes_of(number, 100)).unwrap();
        }
        db.close().unwrap();
        let listed = || {
            let entries = std::fs::read_dir(dir.path()).unwrap().map(|entry| {
                let entry = entry.unwrap();
                let metadata = entry.metadata().unwrap();
                (
                    entry.file_name(),
                    (metadata.len(), metadata.modified().unwrap()),
                )
            });
            entries.collect::<BTreeMap<_, _>>()
        };
        let before = listed();
        let readers = [0, 2].map(|threads| {
            let options = Options::default()
                .read_only(true)
                .background_threads(threads);
            options.open(dir.path()).unwrap()
        });
        for db in &readers {
            assert_eq!(db.engine(), engine);
            assert_eq!(db.iter().count(), 2_000);
            for number in 0..2_000u64 {
                let found = db.get(number.to_le_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(&bytes_of(number, 100)[..]));
            }
        }
        let error = options.clone().open(dir.path()).unwrap_err();
        assert!(error.is_locked(), "{error}");
        for db in readers {
            db.close().unwrap();
        }
        assert_eq!(listed(), before);
        let missing = dir.path().join("missing");
        assert!(Options::default().read_only(true).open(&missing).is_err());
        assert!(!missing.exists(), "no store is made");
        options.open(dir.path()).unwrap().close().unwrap();
    }
}

/// Stores in mapped files, with and without a checkpoint, that were closed, or whose process ended.
#[test]
fn a_mapped_store_is_looked_at() {
    for engine in [Engine::Scmkv, Engine::Sptree] {
        for checkpoints in [false, true] {
            let _context = PanicContext(|| format!("{engine}, checkpoints {checkpoints}"));
            let dir = tempfile::tempdir().unwrap();
            let options = mapped(small_options(), |own| own.checkpoints(checkpoints));
            let options = options.engine(engine);
            let db = options.clone().open(dir.path()).unwrap();
            for number in 0..500u64 {
                db.put(number.to_le_bytes(), bytes_of(number, 100)).unwrap();
            }
            db.keyspace("second").unwrap().put("key", "value").unwrap();
            db.close().unwrap();
            let before = contents(dir.path());
            let readers = [0, 2].map(|threads| {
                let options = options.clone().read_only(true).background_threads(threads);
                options.open(dir.path()).unwrap()
            });
            for db in &readers {
                assert_eq!(db.default_keyspace().pairs().count(), 500);
                for number in 0..500u64 {
                    let found = db.get(number.to_le_bytes()).unwrap();
                    assert_eq!(found.as_deref(), Some(&bytes_of(number, 100)[..]));
                }
                let second = db.existing_keyspace("second").unwrap();
                assert_eq!(second.get("key").unwrap().as_deref(), Some(&b"value"[..]));
                for refused in [
                    db.put("key", "value"),
                    db.delete("key"),
                    db.keyspace("third").map(drop),
                    second.update("key", |_| Some("value")).map(drop),
                ] {
                    assert!(matches!(refused, Err(Error::OpenedReadOnly)), "{refused:?}");
                }
                assert!(db.stats().read_only.unwrap().contains("opened read-only"));
                db.wait_idle().unwrap();
            }
            let error = options.clone().open(dir.path()).unwrap_err();
            assert!(error.is_locked(), "{error}");
            readers.into_iter().for_each(|db| db.close().unwrap());
            assert!(contents(dir.path()) == before);
            let db = options.clone().open(dir.path()).unwrap();
            let refused = options.read_only(true).open(dir.path());
            assert!(
                refused.is_err_and(|error| error.is_locked()),
                "somebody writes"
            );
            db.close().unwrap();
        }
    }
}

/// All files of a directory.
fn contents(dir: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let files = entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()));
    files.collect()
}
