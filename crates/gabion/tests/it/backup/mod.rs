//! Backups: every one restores to the store of its moment, whatever was interrupted before, after
//! and meanwhile; what did not change is neither read nor written again.

mod crash;
mod log;
mod model;
mod refusals;

use std::ops::ControlFlow;

use gabion::{
    BackupInfo, BackupOptions, BackupRepository, Db, Engine, Error, Options, RetentionPolicy,
};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    KEYSPACES, PanicContext, SeededRng, Step, Subject, Twin, Workload,
    assert_copies_beside_writers, assert_twin, base_seed, bytes_of, small_options,
};

/// The engines with backups.
fn engines() -> impl Iterator<Item = Engine> {
    let all = Engine::ALL.iter().copied();
    all.filter(|engine| engine.capabilities().backup)
}

/// The repository on a simulated disk.
fn repository(sim: &SimDisk) -> BackupRepository {
    BackupRepository::create_or_open_on(Disk::simulated(sim)).unwrap()
}

fn backup(db: &Db, to: &SimDisk) -> BackupInfo {
    db.backup(&repository(to), BackupOptions::default())
        .unwrap()
}

/// Restores a backup to a new disk.
fn restored(repository: &BackupRepository, id: u64) -> Disk {
    let target = Disk::simulated(&SimDisk::recording());
    repository
        .restore_on(id, &target, BackupOptions::default())
        .unwrap();
    target
}

/// Asserts that a backup restores to a sound store with what its twin holds.
fn assert_restores(repository: &BackupRepository, id: u64, options: &Options, twin: &Twin) {
    let target = restored(repository, id);
    let report = gabion::check_disk(&target).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let options = options.clone().create_if_missing(false);
    assert_twin(&Db::open_on(target, options).unwrap(), twin);
}

fn assert_whole(repository: &BackupRepository) {
    let list = repository.list().unwrap();
    assert!(list.problems.is_empty(), "{:?}", list.problems);
    let report = repository.verify(None, BackupOptions::default()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(report.backups, list.backups.len() as u64);
}

/// Applies the writes of a workload to a store and its twin.
fn write_all(subject: &Subject, twin: &mut Twin, workload: &Workload) {
    for step in &workload.steps {
        match step {
            Step::Write { operations, .. } => {
                subject.write(operations, None).unwrap();
                *twin = twin.after(operations);
            }
            Step::Flush => subject.db.flush().unwrap(),
            Step::WaitIdle => subject.db.wait_idle().unwrap(),
            _ => {}
        }
    }
}

/// A store with some history, and its twin.
fn some_store(sim: &SimDisk, options: &Options) -> (Subject, Twin) {
    let subject = Subject::open(&Disk::simulated(sim), options).unwrap();
    let mut twin = Twin::new(KEYSPACES.len());
    write_all(&subject, &mut twin, &Workload::new(base_seed(), 120));
    (subject, twin)
}

/// Options of a store whose tables, or segments, are much larger than all else of it.
fn larger_options(engine: Engine) -> Options {
    Options::default().engine(engine).background_threads(0)
}

/// A key that lies beside those of the numbers beside it.
fn key(number: u64) -> [u8; 8] {
    number.swap_bytes().to_le_bytes()
}

/// A store of some mebibytes that does not compress.
fn larger_store(sim: &SimDisk, options: &Options) -> Db {
    let db = Db::open_on(Disk::simulated(sim), options.clone()).unwrap();
    let seed = base_seed();
    for number in 0..12_000_u64 {
        let value = bytes_of(seed ^ number, 2_000);
        db.put(key(number), value).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    db
}

/// Bytes that a store's disk has read since a trace was begun.
fn bytes_read(sim: &SimDisk) -> u64 {
    let steps = sim.end_trace();
    let bytes = steps.iter().map(|step| match step {
        gabion_media::ReadStep::Read { place, .. } => place.end - place.start,
        gabion_media::ReadStep::Announced { .. } => 0,
    });
    bytes.sum()
}

#[test]
fn what_has_not_changed_is_neither_read_nor_written_again() {
    for engine in engines() {
        let _context = PanicContext(|| format!("{engine}"));
        let (sim, to) = (SimDisk::new(), SimDisk::new());
        let db = larger_store(&sim, &larger_options(engine));
        let first = backup(&db, &to);
        assert!(first.bytes > 24_000_000, "{first:?}");
        assert_eq!(first.bytes_copied, first.bytes);
        assert_eq!(first.files_copied, first.files);

        sim.begin_trace();
        let second = backup(&db, &to);
        let read = bytes_read(&sim);
        assert!(read * 100 < first.bytes, "{read} of {first:?}");
        assert_eq!((second.bytes_copied, second.files_copied), (0, 0));
        assert_eq!((second.id, second.position), (2, first.position));
        assert_eq!(second.bytes, first.bytes);

        // One in a hundred, in a row.
        for number in 2_000..2_120_u64 {
            let value = bytes_of(!number, 2_000);
            db.put(key(number), value).unwrap();
        }
        sim.begin_trace();
        let third = backup(&db, &to);
        let read = bytes_read(&sim);
        assert!(third.position > second.position);
        for moved in [read, third.bytes_copied] {
            assert!(
                (120 * 2_000..first.bytes * 3 / 100).contains(&moved),
                "{read}: {third:?}"
            );
        }
        db.close().unwrap();
        let repository = repository(&to);
        assert_whole(&repository);
        for (id, is_changed) in [(1, false), (2, false), (3, true)] {
            let db = Db::open_on(restored(&repository, id), larger_options(engine)).unwrap();
            for number in [0, 1_999, 2_000, 2_119, 2_120, 11_999_u64] {
                let is_new = is_changed && (2_000..2_120).contains(&number);
                let seed = if is_new {
                    !number
                } else {
                    base_seed() ^ number
                };
                let value = db.get(key(number)).unwrap();
                assert_eq!(value.as_deref(), Some(&*bytes_of(seed, 2_000)));
            }
            assert_eq!(db.iter().count(), 12_000);
        }
    }
}

/// A store is closed and opened by each backup of the program.
#[test]
fn a_store_that_was_only_opened_in_between_is_not_copied_again() {
    for engine in engines() {
        let (sim, to) = (SimDisk::new(), SimDisk::new());
        let options = larger_options(engine);
        larger_store(&sim, &options).close().unwrap();
        let open = || Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        let mut sizes = Vec::new();
        for _ in 0..3 {
            let db = open();
            sizes.push(backup(&db, &to));
            db.close().unwrap();
        }
        let first = sizes[0].bytes;
        for later in &sizes[1..] {
            assert!(later.bytes_copied < first / 500, "{engine}: {later:?}");
        }
    }
}

/// Tables of a store that was set back have the names of others that were backed up before.
#[test]
fn a_store_that_took_another_way_is_not_taken_for_what_it_was() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let (sim, to) = (SimDisk::recording(), SimDisk::new());
        let (subject, twin) = some_store(&sim, &options);
        let set_back = sim.process_kill(sim.ops());
        let mut ways = Vec::new();
        let other = Subject::open(&Disk::simulated(&set_back), &options).unwrap();
        for (way, subject) in [subject, other].iter().enumerate() {
            for round in 0..3_u64 {
                let mut twin = twin.clone();
                let seed = base_seed() ^ (way as u64) << 32 ^ round;
                let mut random = SeededRng::new(seed);
                // The same keys and lengths on both ways, so that the files have the same sizes.
                for number in 0..200_u64 {
                    let value = bytes_of(random.word(), 100);
                    let key = key(number).to_vec();
                    let operation = crate::support::Operation::new(0, key, Some(value));
                    subject
                        .write(std::slice::from_ref(&operation), None)
                        .unwrap();
                    twin.apply(&operation);
                }
                ways.push((backup(&subject.db, &to).id, twin));
            }
        }
        let repository = repository(&to);
        assert_whole(&repository);
        for (id, twin) in &ways {
            assert_restores(&repository, *id, &options, twin);
        }
    }
}

#[test]
fn a_backup_beside_writers_is_a_prefix_of_what_they_wrote() {
    for engine in engines() {
        for threads in [0, 2] {
            let options = small_options().engine(engine).background_threads(threads);
            let to = SimDisk::new();
            assert_copies_beside_writers(&options, |db| {
                let made = backup(db, &to);
                (restored(&repository(&to), made.id), Some(made.position))
            });
        }
    }
}

#[test]
fn a_backup_that_is_cancelled_is_none_and_leaves_nothing() {
    for engine in engines() {
        let (sim, to) = (SimDisk::new(), SimDisk::new());
        let db = larger_store(&sim, &larger_options(engine));
        let repository = repository(&to);
        let mut seen = Vec::new();
        let options = BackupOptions::default().progress(|progress| {
            seen.push(progress);
            match progress.bytes * 2 > progress.bytes_total {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let cancelled = db.backup(&repository, options);
        assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
        let total = seen[0].bytes_total;
        assert!(seen.iter().all(|own| own.bytes_total == total));
        assert!(
            seen.is_sorted_by(|one, next| one.bytes < next.bytes),
            "{seen:?}"
        );
        assert!(repository.list().unwrap().backups.is_empty());
        assert_eq!(to.names(), ["BACKUPS", "LOCK"]);

        let mut last = None;
        let options = BackupOptions::default().progress(|progress| {
            last = Some(progress);
            ControlFlow::Continue(())
        });
        let made = db.backup(&repository, options).unwrap();
        assert_eq!(last.map(|own| own.bytes), Some(total));
        assert_eq!(made.bytes_copied, made.bytes);
        assert_whole(&repository);

        // So may a restore and a verification be.
        let cancel = || BackupOptions::default().progress(|_| ControlFlow::Break(()));
        let target = Disk::simulated(&SimDisk::new());
        let refused = [
            repository.restore_on(made.id, &target, cancel()).err(),
            repository.verify(None, cancel()).err(),
        ];
        for error in refused {
            assert!(matches!(error, Some(Error::Cancelled)), "{error:?}");
        }
        assert!(target.list().unwrap().is_empty());
    }
}

#[test]
fn a_prune_takes_what_only_old_backups_had() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let (sim, to) = (SimDisk::new(), SimDisk::new());
        let (subject, mut twin) = some_store(&sim, &options);
        let mut twins = Vec::new();
        for round in 0..5 {
            twins.push((backup(&subject.db, &to).id, twin.clone()));
            write_all(&subject, &mut twin, &Workload::new(base_seed() + round, 80));
        }
        let repository = repository(&to);
        let before = to.names().len();
        let report = repository.prune(RetentionPolicy::newest(2)).unwrap();
        assert_eq!(report.removed, [1, 2, 3]);
        assert!(report.objects > 0 && report.bytes > 0);
        assert_eq!(
            before - to.names().len(),
            3 + usize::try_from(report.objects).unwrap()
        );
        assert_whole(&repository);
        for (id, twin) in &twins[3..] {
            assert_restores(&repository, *id, &options, twin);
        }
        let gone = repository.restore_on(2, &Disk::simulated(&SimDisk::new()), Default::default());
        let told = gone.unwrap_err().to_string();
        assert!(
            told.contains("no backup 2") && told.contains("4, 5"),
            "{told}"
        );
        // Numbers are not used again.
        assert_eq!(backup(&subject.db, &to).id, 6);
        let nothing = repository.prune(RetentionPolicy::newest(3)).unwrap();
        assert!(nothing.removed.is_empty() && nothing.objects == 0);
    }
}
