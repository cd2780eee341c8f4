//! Checkpoints: stores of their own with all that was acknowledged before, whatever fails.

use gabion::{Db, Durability, Engine, Error, MappedOptions, Options};
use gabion_media::{Disk, Fault, FaultKind, SimDisk, Tear};

use crate::support::{
    KEYSPACES, PanicContext, SeededRng, Step, Subject, Twin, Workload,
    assert_copies_beside_writers, assert_twin, base_seed, engines_on_disks, option_sets,
    small_options,
};

/// Applies the writes of a workload to a store and its twin.
fn write_all(subject: &Subject, twin: &mut Twin, workload: &Workload) {
    for step in &workload.steps {
        if let Step::Write { operations, .. } = step {
            subject.write(operations, None).unwrap();
            *twin = twin.after(operations);
        }
    }
}

fn assert_undamaged(disk: &Disk) {
    let report = gabion::check_disk(disk).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn a_checkpoint_holds_what_the_store_held_and_both_go_on() {
    for engine in engines_on_disks() {
        for (number, options) in option_sets(engine).into_iter().enumerate() {
            let _context = PanicContext(|| format!("{engine}, option set {number}: {options:?}"));
            let seed = base_seed() + number as u64;
            let disk = Disk::simulated(&SimDisk::new());
            let subject = Subject::open(&disk, &options).unwrap();
            let mut twin = Twin::new(KEYSPACES.len());
            let mut copies = Vec::new();
            for round in 0..4 {
                let target = Disk::simulated(&SimDisk::new());
                subject.db.checkpoint_on(&target).unwrap();
                assert_undamaged(&target);
                copies.push((target, twin.clone()));
                write_all(&subject, &mut twin, &Workload::new(seed + round * 97, 90));
            }
            subject.db.close().unwrap();
            for (target, mut copied) in copies {
                let copy = Subject::open(&target, &options).unwrap();
                assert_twin(&copy.db, &copied);
                write_all(&copy, &mut copied, &Workload::new(seed, 60));
                copy.db.close().unwrap();
                let again = Subject::open(&target, &options).unwrap();
                assert_twin(&again.db, &copied);
            }
            let again = Subject::open(&disk, &options).unwrap();
            assert_twin(&again.db, &twin);
        }
    }
}

#[test]
fn a_checkpoint_beside_writers_is_a_prefix_of_what_they_wrote() {
    for engine in engines_on_disks() {
        for threads in [0, 2] {
            let options = small_options().engine(engine).background_threads(threads);
            assert_copies_beside_writers(&options, |db| {
                let target = Disk::simulated(&SimDisk::new());
                db.checkpoint_on(&target).unwrap();
                (target, None)
            });
        }
    }
}

/// A store with some history, and its twin.
fn some_store(options: &Options) -> (Subject, Twin) {
    let subject = Subject::open(&Disk::simulated(&SimDisk::new()), options).unwrap();
    let mut twin = Twin::new(KEYSPACES.len());
    write_all(&subject, &mut twin, &Workload::new(base_seed(), 120));
    (subject, twin)
}

#[test]
fn a_loss_of_power_leaves_a_whole_checkpoint_or_none() {
    for engine in engines_on_disks() {
        let options = small_options().engine(engine);
        let (subject, twin) = some_store(&options);
        let sim = SimDisk::recording();
        subject.db.checkpoint_on(&Disk::simulated(&sim)).unwrap();
        for (cut, tear) in (0..=sim.ops()).flat_map(|op| Tear::ALL.map(|tear| (op, tear))) {
            let _context = PanicContext(|| format!("{engine}: {tear:?} after operation {cut}"));
            let after = Disk::simulated(&sim.power_cut(cut, base_seed() ^ cut, tear));
            let opened = Db::open_on(after, options.clone().create_if_missing(false));
            match opened {
                Ok(db) => assert_twin(&db, &twin),
                Err(error) => {
                    assert!(cut < sim.ops(), "{error}");
                    assert!(error.to_string().len() > 20, "{error}");
                }
            }
        }
    }
}

/// FlexDB said that the store was read-only: the copy was.
#[test]
fn a_fault_of_the_other_disk_harms_only_the_checkpoint() {
    let kinds = [
        FaultKind::Eio,
        FaultKind::NoSpace,
        FaultKind::ShortWrite,
        FaultKind::SyncFails { keep: false },
    ];
    for engine in engines_on_disks() {
        let options = small_options().engine(engine);
        let (subject, mut twin) = some_store(&options);
        let mut random = SeededRng::new(base_seed());
        let sim = SimDisk::new();
        subject.db.checkpoint_on(&Disk::simulated(&sim)).unwrap();
        let (operations, mut refused) = (sim.ops(), 0);
        for op in 0..operations {
            let kind = kinds[random.index(kinds.len())];
            let _context = PanicContext(|| format!("{engine}: {kind:?} at operation {op}"));
            let sim = SimDisk::recording();
            sim.inject(Fault::forever(op, kind));
            match subject.db.checkpoint_on(&Disk::simulated(&sim)) {
                Err(error) => {
                    refused += 1;
                    assert!(matches!(error, Error::Media(_)), "{error}");
                    assert_eq!(subject.db.stats().read_only, None);
                }
                Ok(()) => {
                    // What the fault hit was not needed: the copy must be whole.
                    sim.clear_faults();
                    let after = Disk::simulated(&sim.power_cut(sim.ops(), op, Tear::DropAll));
                    let copy = Subject::open(&after, &options).unwrap();
                    assert_twin(&copy.db, &twin);
                }
            }
            write_all(&subject, &mut twin, &Workload::new(op, 2));
        }
        assert!(
            refused > operations / 2,
            "{engine}: {refused} of {operations}"
        );
        assert_twin(&subject.db, &twin);
    }
}

#[test]
fn a_checkpoint_in_the_file_system_shares_the_tables_of_wipdb() {
    use std::os::unix::fs::MetadataExt;

    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for engine in engines_on_disks() {
        let (store, copy) = (path(&format!("{engine}")), path(&format!("deep/{engine}")));
        let db = Options::default().engine(engine).open(&store).unwrap();
        for key in 0..2000_u32 {
            db.put(key.to_le_bytes(), [7; 100]).unwrap();
        }
        db.checkpoint(&copy).unwrap();
        let tables: Vec<_> = std::fs::read_dir(&copy)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_name().to_string_lossy().ends_with(".tbl"))
            .map(|entry| entry.metadata().unwrap())
            .collect();
        assert_eq!(!tables.is_empty(), engine == Engine::Wip);
        assert!(tables.iter().all(|table| table.nlink() == 2));

        // The place is taken now, and nothing of it is harmed.
        let error = db.checkpoint(&copy).unwrap_err().to_string();
        assert!(error.contains("already exists"), "{error}");
        db.delete_range::<&[u8]>(..).unwrap();
        db.compact::<&[u8]>(..).unwrap();
        db.close().unwrap();
        std::fs::remove_dir_all(&store).unwrap();
        let db = Db::open(&copy).unwrap();
        assert_eq!(db.engine(), engine);
        assert_eq!(db.iter().count(), 2000);
        db.put("more", "stones").unwrap();
        db.close().unwrap();
        let report = gabion::check(&copy).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let left = std::fs::read_dir(path("deep")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(
            left.iter()
                .all(|name| !name.to_string_lossy().contains("incomplete")),
            "{left:?}"
        );
    }
}

#[test]
fn what_cannot_be_a_checkpoint_is_told_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = Db::open(path("store")).unwrap();
    db.put("basket", "stones").unwrap();
    for (place, word) in [(dir.path().join(".."), "name"), (path("store"), "exists")] {
        let error = db.checkpoint(&place).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let mut interrupted = Disk::create_system(&path("copy.incomplete"))
        .unwrap()
        .create_append("note", gabion_media::Purpose::Checkpoint)
        .unwrap();
    interrupted.append(b"somebody's").unwrap();
    let error = db.checkpoint(path("copy")).unwrap_err().to_string();
    assert!(error.contains("copy.incomplete"), "{error}");
    assert!(path("copy.incomplete").join("note").exists());
    assert!(!path("copy").exists());

    db.clone().close().unwrap();
    let error = db.checkpoint(path("late")).unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    assert!(!path("late").exists() && !path("late.incomplete").exists());

    let options = Options::default()
        .engine(Engine::Scmkv)
        .durability(Durability::Buffered)
        .mapped(
            MappedOptions::default()
                .pool_bytes(64 << 20)
                .expected_records(64),
        );
    let db = options.open(path("pool")).unwrap();
    let error = db.checkpoint(path("of the pool")).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(!path("of the pool").exists() && !path("of the pool.incomplete").exists());
}
