//! The process is killed, the power lost or the medium fails at every operation of a backup, a
//! prune and a restore: what was there before can be restored, and all goes on.

use gabion::{BackupOptions, BackupRepository, Db, Error, Options, RetentionPolicy};
use gabion_media::{Disk, Fault, FaultKind, SimDisk, Tear};

use super::{assert_restores, assert_whole, backup, engines, repository, some_store, write_all};
use crate::support::{
    PanicContext, SeededRng, Subject, Twin, Workload, assert_twin, base_seed, small_options,
};

/// Calls `test` with what each kill, and each loss of power, after an operation from `from` on
/// leaves, and with the operation.
fn each_image(sim: &SimDisk, from: u64, test: impl Fn(&SimDisk, u64)) {
    for op in from..=sim.ops() {
        let image = |what: &str, image: &SimDisk| {
            let done = sim.describe(op).unwrap_or_default();
            let _context = PanicContext(|| format!("{what} after operation {op} ({done})"));
            test(image, op);
        };
        image("killed", &sim.process_kill(op));
        for style in Tear::ALL {
            let lost = sim.power_cut(op, base_seed() ^ op, style);
            image(&format!("power lost, {style:?},"), &lost);
        }
    }
}

/// A store, three moments of which are in a repository, and those moments.
fn some_repository(options: &Options) -> (Subject, Twin, SimDisk, Vec<Twin>) {
    let (subject, mut twin) = some_store(&SimDisk::new(), options);
    let to = SimDisk::recording();
    let mut moments = Vec::new();
    for round in 0..3 {
        moments.push(twin.clone());
        backup(&subject.db, &to);
        write_all(&subject, &mut twin, &Workload::new(base_seed() + round, 50));
    }
    (subject, twin, to, moments)
}

/// Asserts that a repository holds these backups, and that each restores to its moment.
fn assert_holds(repository: &BackupRepository, backups: &[(u64, &Twin)], options: &Options) {
    assert_whole(repository);
    let listed = repository.list().unwrap().backups;
    let ids: Vec<u64> = listed.iter().map(|own| own.id).collect();
    assert!(ids.iter().eq(backups.iter().map(|(id, _)| id)), "{ids:?}");
    for (id, twin) in backups {
        assert_restores(repository, *id, options, twin);
    }
}

#[test]
fn a_repository_whose_making_is_interrupted_is_made_by_the_next() {
    let sim = SimDisk::recording();
    repository(&sim);
    each_image(&sim, 0, |image, _| {
        assert!(repository(image).list().unwrap().backups.is_empty());
        BackupRepository::open_on(Disk::simulated(image)).unwrap();
    });
}

#[test]
fn a_backup_that_is_interrupted_is_whole_or_none() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let (subject, twin, to, moments) = some_repository(&options);
        let before = to.ops();
        backup(&subject.db, &to);
        let _context = PanicContext(|| format!("{engine}"));
        each_image(&to, before, |image, op| {
            let repository = repository(image);
            let mut expected: Vec<(u64, &Twin)> = (1..).zip(&moments).collect();
            let listed = repository.list().unwrap().backups;
            match listed.len() {
                3 => assert!(op < to.ops(), "it returned"),
                _ => expected.push((4, &twin)),
            }
            // The newest ones stand for all: they have what is new.
            assert_whole(&repository);
            let listed: Vec<u64> = listed.iter().map(|own| own.id).collect();
            assert!(
                listed.iter().eq(expected.iter().map(|(id, _)| id)),
                "{listed:?}"
            );
            let (id, newest) = expected.last().unwrap();
            assert_restores(&repository, *id, &options, newest);

            let again = backup(&subject.db, image);
            assert_eq!(again.id, id + 1);
            assert_whole(&repository);
            assert_restores(&repository, again.id, &options, &twin);
            let left = image.names();
            assert!(
                !left
                    .iter()
                    .any(|name| name.starts_with("new-") || name.ends_with(".tmp")),
                "{left:?}"
            );
        });
    }
}

#[test]
fn a_prune_that_is_interrupted_leaves_what_stays() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let (_subject, _, to, moments) = some_repository(&options);
        let before = to.ops();
        repository(&to).prune(RetentionPolicy::newest(1)).unwrap();
        let after = to.names();
        let _context = PanicContext(|| format!("{engine}"));
        each_image(&to, before, |image, _| {
            let repository = repository(image);
            assert_whole(&repository);
            assert_restores(&repository, 3, &options, &moments[2]);
            repository.prune(RetentionPolicy::newest(1)).unwrap();
            assert_holds(&repository, &[(3, &moments[2])], &options);
            assert_eq!(image.names(), after);
        });
    }
}

#[test]
fn a_restore_that_is_interrupted_is_no_store_and_is_done_again() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let (_subject, _, to, moments) = some_repository(&options);
        let repository = repository(&to);
        let sim = SimDisk::recording();
        let restore = |sim: &SimDisk| {
            repository.restore_on(3, &Disk::simulated(sim), BackupOptions::default())
        };
        restore(&sim).unwrap();
        let _context = PanicContext(|| format!("{engine}"));
        each_image(&sim, 0, |image, op| {
            let copy = image.process_kill(0);
            let opened = Db::open_on(
                Disk::simulated(&copy),
                options.clone().create_if_missing(false),
            );
            match opened {
                Ok(db) => {
                    assert!(op + 1 >= sim.ops(), "it was not whole yet");
                    assert_twin(&db, &moments[2]);
                }
                Err(error) => {
                    assert!(op < sim.ops() && error.to_string().len() > 40, "{error}");
                    restore(image).unwrap();
                    let db = Db::open_on(Disk::simulated(image), options.clone()).unwrap();
                    assert_twin(&db, &moments[2]);
                }
            }
        });
    }
}

/// The repository's disk fails at each operation of a backup; then a backup succeeds.
#[test]
fn a_fault_of_the_repository_harms_neither_it_nor_the_store() {
    let kinds = [
        FaultKind::Eio,
        FaultKind::NoSpace,
        FaultKind::ShortWrite,
        FaultKind::SyncFails { keep: false },
    ];
    for engine in engines() {
        let options = small_options().engine(engine);
        let (subject, twin, to, moments) = some_repository(&options);
        let image = || to.process_kill(to.ops());
        let probe = image();
        backup(&subject.db, &probe);
        let (operations, mut refused) = (probe.ops(), 0);
        let mut random = SeededRng::new(base_seed());
        for op in 1..=operations {
            let (kind, forever) = (kinds[random.index(kinds.len())], random.one_in(2));
            let _context =
                PanicContext(|| format!("{engine}: {kind:?} at operation {op}, {forever}"));
            let image = image();
            let repository = repository(&image);
            image.inject(Fault {
                at: op,
                kind,
                forever,
            });
            let made = subject.db.backup(&repository, BackupOptions::default());
            image.clear_faults();
            if let Err(error) = &made {
                refused += 1;
                assert!(matches!(error, Error::Media(_)), "{error}");
            }
            assert_eq!(subject.db.stats().read_only, None);
            // What an error leaves, the loss of power leaves, too.
            let after = image.power_cut(image.ops(), op, Tear::DropAll);
            for image in [&image, &after] {
                let repository = self::repository(image);
                assert_whole(&repository);
                let newest = repository.list().unwrap().backups.last().unwrap().id;
                assert!(newest == 4 || made.is_err());
                let expected = if newest == 4 { &twin } else { &moments[2] };
                assert_restores(&repository, newest, &options, expected);
                let again = backup(&subject.db, image);
                let lost = image.power_cut(image.ops(), op, Tear::DropAll);
                assert_restores(&self::repository(&lost), again.id, &options, &twin);
            }
        }
        assert!(
            refused > operations / 3,
            "{engine}: {refused} of {operations}"
        );
    }
}

/// The store's disk cannot be read somewhere: that is told, and is no backup.
#[test]
fn a_store_that_cannot_be_read_is_told_and_not_backed_up() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let sim = SimDisk::new();
        let (subject, twin) = some_store(&sim, &options);
        subject.db.flush().unwrap();
        let before = sim.reads();
        backup(&subject.db, &SimDisk::new());
        let reads = sim.reads() - before;
        let mut refused = 0;
        for read in 1..=reads {
            let to = SimDisk::new();
            sim.inject(Fault::once(sim.reads() + read, FaultKind::ReadEio));
            let made = subject
                .db
                .backup(&repository(&to), BackupOptions::default());
            sim.clear_faults();
            let repository = repository(&to);
            match made {
                Ok(made) => assert_restores(&repository, made.id, &options, &twin),
                Err(error) => {
                    refused += 1;
                    assert!(matches!(error, Error::Media(_)), "{error}");
                    assert!(repository.list().unwrap().backups.is_empty());
                    let again = backup(&subject.db, &to);
                    assert_restores(&repository, again.id, &options, &twin);
                }
            }
        }
        assert!(refused > 0, "{engine}: none of {reads}");
    }
}

/// A restore meets each fault; then nothing is left, or what is left is no store.
#[test]
fn a_fault_of_a_restore_leaves_no_store() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let (_subject, _, to, moments) = some_repository(&options);
        let repository = repository(&to);
        let probe = SimDisk::new();
        let restore = |sim: &SimDisk| {
            repository.restore_on(3, &Disk::simulated(sim), BackupOptions::default())
        };
        restore(&probe).unwrap();
        for op in 1..=probe.ops() {
            for kind in [FaultKind::Eio, FaultKind::NoSpace] {
                let _context = PanicContext(|| format!("{engine}: {kind:?} at operation {op}"));
                let sim = SimDisk::recording();
                sim.inject(Fault::once(op, kind));
                if let Err(error) = restore(&sim) {
                    assert!(matches!(error, Error::Media(_)), "{error}");
                    let left = sim.names();
                    assert!(
                        left.is_empty()
                            || left.contains(&"INCOMPLETE".to_owned())
                            || op + 1 >= probe.ops(),
                        "{left:?}"
                    );
                    restore(&sim)
                        .or_else(|error| {
                            // All of it was there when the last sync failed.
                            match op + 1 >= probe.ops() {
                                true => Ok(()),
                                false => Err(error),
                            }
                        })
                        .unwrap();
                }
                let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
                assert_twin(&db, &moments[2]);
            }
        }
    }
}

/// The repository's disk fills up at any byte: what is in it stays good, and a backup succeeds when
/// there is room.
#[test]
fn a_disk_that_fills_up_leaves_the_repository_good() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let (subject, twin, to, moments) = some_repository(&options);
        let used = |sim: &SimDisk| -> u64 {
            let sizes = sim
                .names()
                .into_iter()
                .map(|name| sim.raw(&name).unwrap().len() as u64);
            sizes.sum()
        };
        let whole = to.process_kill(to.ops());
        backup(&subject.db, &whole);
        let (before, after) = (used(&to), used(&whole));
        let mut refused = 0;
        for part in 0..20 {
            let image = to.process_kill(to.ops());
            image.set_capacity(Some(before + (after - before) * part / 20));
            let made = subject
                .db
                .backup(&repository(&image), BackupOptions::default());
            let Err(error) = made else {
                continue;
            };
            refused += 1;
            assert!(error.is_no_space(), "{error}");
            let repository = repository(&image);
            assert_whole(&repository);
            assert_restores(&repository, 3, &options, &moments[2]);
            // A prune works without room, too.
            repository.prune(RetentionPolicy::newest(1)).unwrap();
            assert_restores(&repository, 3, &options, &moments[2]);
            image.set_capacity(None);
            let again = backup(&subject.db, &image);
            assert_restores(&repository, again.id, &options, &twin);
        }
        assert!(refused > 10, "{engine}: {refused}");
    }
}
