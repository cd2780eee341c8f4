//! The log behind backups: every write of it can be restored to, whatever is interrupted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gabion::{
    AddI64, BackupInfo, BackupOptions, BackupRepository, Clock, Db, Error, KeyspaceOptions,
    Options, RestoreUntil, RestoredUntil, Result, RetentionPolicy,
};
use gabion_media::{Disk, Fault, FaultKind, SimDisk, Tear};

use super::{assert_whole, engines, repository, some_store, write_all};
use crate::changes::machine::Machine;
use crate::changes::twin::{Written, content};
use crate::support::{
    PanicContext, SeededRng, Twin, Workload, assert_copies_beside_writers, assert_twin, base_seed,
    option_sets, setting, small_options,
};

/// Bytes of a round of most restores: a few writes.
const ROUND_BYTES: usize = 500;

fn with_log() -> BackupOptions<'static> {
    BackupOptions::default().archive_log(true)
}

fn backup(db: &Db, to: &SimDisk) -> BackupInfo {
    db.backup(&repository(to), with_log()).unwrap()
}

fn archive(db: &Db, to: &SimDisk) -> Result<u64> {
    let archived = db.archive_log(&repository(to), BackupOptions::default());
    archived.map(|archived| archived.position)
}

fn restore(
    to: &SimDisk,
    id: Option<u64>,
    until: RestoreUntil,
    options: &Options,
) -> Result<(Db, RestoredUntil)> {
    let target = Disk::simulated(&SimDisk::recording());
    let repository = repository(to).with_round_bytes(ROUND_BYTES);
    let restored = repository.restore_until_on(id, until, &target, BackupOptions::default())?;
    let report = gabion::check_disk(&target).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let options = options.clone().create_if_missing(false);
    Ok((Db::open_on(target, options).unwrap(), restored))
}

/// Asserts that the newest position of a repository's newest log is a store with what its twin has.
fn assert_restores(to: &SimDisk, options: &Options, twin: &Twin) {
    assert_whole(&repository(to));
    let newest = repository(to).list().unwrap().backups.pop().unwrap();
    let until = RestoreUntil::Position(newest.log.unwrap().position);
    let (db, restored) = restore(to, Some(newest.id), until, options).unwrap();
    assert_eq!(restored.backup, newest.id);
    assert_twin(&db, twin);
}

/// What a store held behind the last write up to a number.
fn at(written: &[Written], number: u64) -> &Written {
    let last = written.partition_point(|written| written.number <= number);
    &written[last - 1]
}

/// Everything that a store does, with reopens, drops, ingests, merges, range deletes and what
/// expires; backups with the log and archived logs in between, and prunes. Each position that the
/// repository says it can restore is what there was, and each other one is refused.
#[test]
fn each_position_of_a_history_is_restored_as_it_was() {
    let wanted = setting("GABION_LOG_RESTORES", 60);
    for engine in engines() {
        let sets: Vec<Options> = option_sets(engine);
        let (mut restores, mut refused, mut broken) = (0, 0, 0);
        for number in 0.. {
            let options = match number % 2 {
                0 => small_options().engine(engine),
                _ => sets[usize::try_from(number).unwrap() % sets.len()].clone(),
            };
            let seed = base_seed() ^ (0xa4_0000 + number);
            let _context = PanicContext(|| format!("{engine}, seed {seed}: {options:?}"));
            let mut random = SeededRng::new(seed);
            let to = SimDisk::new();
            let mut machine = Machine::new(&SimDisk::new(), options.clone(), seed);
            let is_small = random.one_in(2);
            for _ in 0..250 {
                machine.act();
                match random.below(if is_small { 12 } else { 60 }) {
                    0 | 1 => match archive(machine.db(), &to) {
                        Ok(position) => assert_eq!(position, machine.number()),
                        Err(Error::LogArchiveEnded { position, why }) => {
                            assert!(position <= machine.number() && why.len() > 10);
                            broken += 1;
                        }
                        Err(error) => panic!("{error}"),
                    },
                    2 => {
                        let made = backup(machine.db(), &to);
                        assert_eq!(made.position, machine.number());
                        assert_eq!(made.log.unwrap().position, made.position);
                    }
                    3 if random.one_in(8) => {
                        drop(
                            repository(&to)
                                .prune(RetentionPolicy::newest(1 + random.below(3)))
                                .unwrap(),
                        );
                    }
                    _ => {}
                }
            }
            assert_whole(&repository(&to));
            let backups = repository(&to).list().unwrap().backups;
            let (written, last) = (&machine.written, machine.number());
            for _ in 0..8 {
                let number = random.below(last + 2);
                let _context = PanicContext(|| format!("position {number} of {last}: {backups:?}"));
                let reaches = |own: &&BackupInfo| {
                    let end = own.log.map_or(0, |log| log.position);
                    own.log.is_some() && (own.position..=end).contains(&number)
                };
                let newest = backups.iter().rev().find(reaches);
                let all: Vec<_> = backups.iter().filter(reaches).collect();
                let id = match all.is_empty() || random.one_in(2) {
                    true => None,
                    false => Some(all[random.index(all.len())].id),
                };
                let until = RestoreUntil::Position(number);
                match (restore(&to, id, until, &options), newest) {
                    (Ok((db, restored)), Some(newest)) => {
                        let expected = at(written, number);
                        assert_eq!(restored.backup, id.unwrap_or(newest.id));
                        assert_eq!(restored.position, expected.number);
                        let found = content(&db);
                        // A keyspace that was made has no number of its own.
                        let same = written.iter().filter(|own| own.number == expected.number);
                        let mut same = same.filter(|own| own.content == found);
                        assert!(same.next().is_some(), "{found:?} instead of {expected:?}");
                        // It goes on, and has changes of its own.
                        let before = db.position().unwrap();
                        db.put("after", "the restore").unwrap();
                        assert_eq!(db.changes(before).unwrap().count(), 1);
                        restores += 1;
                    }
                    (Err(Error::NotRestorable { why, .. }), None) => {
                        assert!(!why.is_empty());
                        refused += 1;
                    }
                    (other, newest) => panic!("{:?}, and {newest:?}", other.map(|own| own.1)),
                }
            }
            if restores >= wanted {
                break;
            }
        }
        println!("{engine}: {restores} restores, {refused} refused, {broken} logs ended");
        assert!(refused > 0);
    }
}

/// The store's process is killed at each operation of two archives, with the repository as it was
/// before and behind them; and its power is lost. The next archive, or else the next backup, goes
/// on, and has all.
#[test]
fn an_archive_whose_store_is_killed_goes_on() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let (sim, to) = (SimDisk::recording(), SimDisk::recording());
        let (subject, mut twin) = some_store(&sim, &options);
        backup(&subject.db, &to);
        for round in 0..2 {
            write_all(&subject, &mut twin, &Workload::new(base_seed() + round, 40));
            subject.db.persist(gabion::Durability::Sync).unwrap();
            let before = (sim.ops(), to.ops());
            archive(&subject.db, &to).unwrap();
            let after = (sim.ops(), to.ops());
            let mut goes_on = 0;
            for op in before.0..=after.0 {
                let lost = sim.power_cut(op, base_seed() ^ op, Tear::DropAll);
                for (what, image) in [("killed", sim.process_kill(op)), ("power lost", lost)] {
                    for repository in [before.1, after.1] {
                        // The store's consumer moves on when the repository has the part.
                        if op == after.0 && repository == before.1 {
                            continue;
                        }
                        let _context = PanicContext(|| {
                            format!(
                                "{engine}: {what} after {op}, the repository after {repository}"
                            )
                        });
                        let to = to.process_kill(repository);
                        let db = Db::open_on(Disk::simulated(&image), options.clone()).unwrap();
                        match archive(&db, &to) {
                            Ok(_) => goes_on += 1,
                            Err(Error::LogArchiveEnded { .. }) => drop(backup(&db, &to)),
                            Err(error) => panic!("{error}"),
                        }
                        assert_restores(&to, &options, &twin);
                        db.close().unwrap();
                    }
                }
            }
            assert!(goes_on > 4, "{engine}: {goes_on}");
        }
    }
}

/// The repository is killed, or loses power, at each operation of an archive and of a backup with
/// the log: what was there is there, and all goes on.
#[test]
fn an_archive_that_is_interrupted_leaves_what_was_there() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let (sim, to) = (SimDisk::new(), SimDisk::recording());
        let (subject, mut twin) = some_store(&sim, &options);
        backup(&subject.db, &to);
        let mut before = twin.clone();
        for step in ["archive", "backup"] {
            write_all(&subject, &mut twin, &Workload::new(base_seed() ^ 7, 40));
            let from = to.ops();
            match step {
                "archive" => drop(archive(&subject.db, &to).unwrap()),
                _ => drop(backup(&subject.db, &to)),
            }
            for op in from..=to.ops() {
                let lost = to.power_cut(op, base_seed() ^ op, Tear::ALL[0]);
                for image in [to.process_kill(op), lost] {
                    let done = to.describe(op).unwrap_or_default();
                    let _context =
                        PanicContext(|| format!("{engine}: {step}, operation {op} ({done})"));
                    let opened = repository(&image);
                    assert_whole(&opened);
                    let newest = opened.list().unwrap().backups.pop().unwrap();
                    let position = newest.log.unwrap().position;
                    let until = RestoreUntil::Position(position);
                    let (db, _) = restore(&image, None, until, &options).unwrap();
                    let is_new = position == subject.db.stats().visible_seq;
                    assert_twin(&db, if is_new { &twin } else { &before });
                    backup(&subject.db, &image);
                    assert_restores(&image, &options, &twin);
                    let left = image.names();
                    assert!(!left.iter().any(|name| name.ends_with(".tmp")), "{left:?}");
                }
            }
            before = twin.clone();
        }
    }
}

/// The repository's disk fails, or is full, at each operation of an archive and of a backup; then
/// both succeed.
#[test]
fn a_fault_of_the_repository_ends_an_archive_and_no_log() {
    let kinds = [
        FaultKind::Eio,
        FaultKind::NoSpace,
        FaultKind::ShortWrite,
        FaultKind::SyncFails { keep: false },
    ];
    for engine in engines() {
        let options = small_options().engine(engine);
        let (sim, to) = (SimDisk::new(), SimDisk::new());
        let (subject, mut twin) = some_store(&sim, &options);
        backup(&subject.db, &to);
        let mut random = SeededRng::new(base_seed());
        let (mut failed, mut is_over) = (0, 0);
        for round in 0..200_u64 {
            write_all(&subject, &mut twin, &Workload::new(base_seed() + round, 6));
            let (kind, forever) = (kinds[random.index(kinds.len())], random.one_in(2));
            let _context = PanicContext(|| format!("{engine}: {kind:?} in round {round}"));
            let opened = repository(&to);
            let at = 1 + round % 20;
            to.inject(Fault {
                at: to.ops() + at,
                kind,
                forever,
            });
            let done = match round % 3 {
                0 => subject.db.backup(&opened, with_log()).map(drop),
                _ => subject
                    .db
                    .archive_log(&opened, Default::default())
                    .map(|_| ()),
            };
            to.clear_faults();
            match done {
                Ok(()) => is_over += 1,
                Err(error) => {
                    assert!(matches!(error, Error::Media(_)), "{error}");
                    failed += 1;
                }
            }
            assert_eq!(subject.db.stats().read_only, None);
            archive(&subject.db, &to).unwrap();
            if round % 10 == 0 {
                assert_restores(&to, &options, &twin);
            }
        }
        // One log all the time: from the first backup to the end.
        let until = RestoreUntil::Position(subject.db.stats().visible_seq);
        let (db, _) = restore(&to, Some(1), until, &options).unwrap();
        assert_twin(&db, &twin);
        assert!(failed > 20 && is_over > 20, "{engine}: {failed}, {is_over}");
    }
}

/// A restore with a log is interrupted at each operation of its disk, and meets faults.
#[test]
fn a_restore_of_a_log_that_is_interrupted_is_no_store_and_is_done_again() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let to = SimDisk::new();
        let db = Db::open_on(Disk::simulated(&SimDisk::new()), options.clone()).unwrap();
        db.keyspace("dropped").unwrap().put("key", "value").unwrap();
        let own = KeyspaceOptions::default().merge(AddI64);
        let counters = db.keyspace_with("counters", &own).unwrap();
        counters.merge("key", 4_i64.to_le_bytes()).unwrap();
        backup(&db, &to);
        for number in 0..200_u32 {
            counters.merge("key", 3_i64.to_le_bytes()).unwrap();
            db.put((number % 70).to_le_bytes(), [7; 50]).unwrap();
            if number == 100 {
                db.drop_keyspace("dropped").unwrap();
                db.keyspace("made").unwrap().put("key", "value").unwrap();
            }
        }
        let position = archive(&db, &to).unwrap();
        let expected = content(&db);
        let restore = |sim: &SimDisk| {
            let until = RestoreUntil::Position(position);
            let target = Disk::simulated(sim);
            repository(&to).restore_until_on(None, until, &target, BackupOptions::default())
        };
        let sim = SimDisk::recording();
        restore(&sim).unwrap();
        let open = |sim: &SimDisk| {
            let options = options.clone().create_if_missing(false);
            Db::open_on(Disk::simulated(sim), options)
        };
        let stride = 1 + sim.ops() / setting("GABION_LOG_IMAGES", 60);
        for op in (0..=sim.ops())
            .rev()
            .step_by(usize::try_from(stride).unwrap())
        {
            let style = Tear::ALL[usize::try_from(op).unwrap() % Tear::ALL.len()];
            let lost = sim.power_cut(op, base_seed() ^ op, style);
            for image in [sim.process_kill(op), lost] {
                let done = sim.describe(op).unwrap_or_default();
                let _context = PanicContext(|| format!("{engine}: operation {op} ({done})"));
                match open(&image.process_kill(image.ops())) {
                    Ok(db) => assert_eq!(content(&db), expected),
                    Err(error) => {
                        assert!(op < sim.ops() && error.to_string().len() > 40, "{error}");
                        restore(&image).unwrap();
                        assert_eq!(content(&open(&image).unwrap()), expected);
                    }
                }
            }
            let faulty = SimDisk::new();
            faulty.inject(Fault::once(op + 1, FaultKind::NoSpace));
            let restored = restore(&faulty);
            // It may have needed fewer operations than when it was recorded.
            faulty.clear_faults();
            if let Err(error) = restored {
                // The store that is made does not try a sync again that failed.
                let is_poisoned = matches!(&error, Error::ReadOnly { .. })
                    && error.to_string().contains("No space left");
                assert!(
                    error.is_no_space() || is_poisoned,
                    "{engine}, operation {op}: {error}"
                );
                // All is there when the last sync fails.
                if !matches!(open(&faulty), Ok(db) if content(&db) == expected) {
                    restore(&faulty).unwrap();
                }
            }
            assert_eq!(content(&open(&faulty).unwrap()), expected);
        }
    }
}

#[test]
fn an_archive_beside_writers_has_a_prefix_of_what_they_wrote() {
    for engine in engines() {
        for threads in [0, 2] {
            let options = small_options().engine(engine).background_threads(threads);
            let to = SimDisk::new();
            let mut copies = 0;
            assert_copies_beside_writers(&options, |db| {
                let position = match copies % 3 {
                    0 => backup(db, &to).position,
                    _ => archive(db, &to).unwrap(),
                };
                copies += 1;
                let target = Disk::simulated(&SimDisk::recording());
                let until = RestoreUntil::Position(position);
                let restored = repository(&to)
                    .restore_until_on(None, until, &target, BackupOptions::default())
                    .unwrap();
                assert_eq!(restored.position, position);
                (target, Some(position))
            });
        }
    }
}

/// Merges into the same keys go on over the ends of rounds, between which the store is flushed and
/// compacted: no round may end between two of which one covers the other.
#[test]
fn rounds_of_a_restore_tear_no_merges_apart() {
    for engine in engines() {
        let options = Options::default().engine(engine).background_threads(0);
        let (sim, to) = (SimDisk::new(), SimDisk::new());
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        let counted = KeyspaceOptions::default().merge(AddI64);
        let counters = db.keyspace_with("counters", &counted).unwrap();
        let name = |key: u64| format!("{key:03}");
        let mut sums = std::collections::BTreeMap::new();
        for key in 0..10 {
            counters.put(name(key), 1_000_i64.to_le_bytes()).unwrap();
            sums.insert(name(key).into_bytes(), 1_000_i64);
        }
        backup(&db, &to);
        let mut random = SeededRng::new(base_seed());
        let mut moments = Vec::new();
        for number in 0..3_000 {
            // Now and then only other keys are merged into for a while.
            let key = random.below(5) + if number / 200 % 3 == 0 { 0 } else { 5 };
            counters.merge(name(key), 1_i64.to_le_bytes()).unwrap();
            *sums.get_mut(name(key).as_bytes()).unwrap() += 1;
            if number % 500 == 250 {
                db.flush().unwrap();
            }
            if number % 300 == 299 {
                moments.push((archive(&db, &to).unwrap(), sums.clone()));
            }
        }
        for (position, sums) in &moments {
            let until = RestoreUntil::Position(*position);
            let (restored, _) = restore(&to, None, until, &options).unwrap();
            let counters = restored.keyspace("counters").unwrap();
            for is_compacted in [false, true] {
                if is_compacted {
                    counters.compact::<&[u8]>(..).unwrap();
                }
                let found = counters.iter().map(|pair| pair.unwrap());
                let found = found.map(|(key, value)| {
                    let sum = i64::from_le_bytes((*value).try_into().unwrap());
                    (key.to_vec(), sum)
                });
                assert!(found.eq(sums.clone()), "{engine}, position {position}");
            }
        }
    }
}

#[test]
fn a_time_is_what_was_archived_by_then() {
    for engine in engines() {
        let clock = Clock::manual();
        let mut options = small_options().engine(engine);
        options.tuning.clock = clock.clone();
        let (sim, to) = (SimDisk::new(), SimDisk::new());
        let repository = || super::repository(&to).with_clock(clock.clone());
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        clock.advance(Duration::from_secs(1_000));
        db.put("key", "0").unwrap();
        db.backup(&repository(), with_log()).unwrap();
        for number in 1..5 {
            clock.advance(Duration::from_secs(10));
            db.put("key", number.to_string()).unwrap();
            db.archive_log(&repository(), BackupOptions::default())
                .unwrap();
        }
        let info = repository().list().unwrap().backups.pop().unwrap();
        assert_eq!(info.log.unwrap().archived, Duration::from_secs(1_040));
        let until = |seconds| RestoreUntil::Time(UNIX_EPOCH + Duration::from_secs(seconds));
        for (seconds, expected) in [
            (1_000, "0"),
            (1_009, "0"),
            (1_010, "1"),
            (1_025, "2"),
            (1_040, "4"),
            (9_999, "4"),
        ] {
            let target = Disk::simulated(&SimDisk::new());
            let restored = repository()
                .restore_until_on(None, until(seconds), &target, BackupOptions::default())
                .unwrap();
            let copy = Db::open_on(target, options.clone()).unwrap();
            assert_eq!(
                copy.get("key").unwrap().as_deref(),
                Some(expected.as_bytes())
            );
            assert_eq!(restored.position, 1 + expected.parse::<u64>().unwrap());
        }
        let early = [until(999), RestoreUntil::Time(SystemTime::UNIX_EPOCH)];
        for early in early {
            let refused = restore(&to, None, early, &options).map(|own| own.1);
            let told = refused.unwrap_err().to_string();
            assert!(told.contains("backup 1 was made later"), "{told}");
        }
    }
}

#[test]
fn a_prune_takes_the_log_in_front_of_the_first_backup_that_stays() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let (sim, to) = (SimDisk::new(), SimDisk::new());
        let (subject, mut twin) = some_store(&sim, &options);
        let mut twins = Vec::new();
        for round in 0..4 {
            backup(&subject.db, &to);
            write_all(&subject, &mut twin, &Workload::new(base_seed() + round, 40));
            let position = archive(&subject.db, &to).unwrap();
            twins.push((position, twin.clone()));
        }
        let parts = |to: &SimDisk| {
            let names = to.names();
            let parts = names.iter().filter(|name| name.ends_with(".logpart"));
            parts.count()
        };
        assert_eq!(parts(&to), 4);
        let report = repository(&to).prune(RetentionPolicy::newest(2)).unwrap();
        assert_eq!((report.removed, report.log_parts), (vec![1, 2], 2));
        assert_eq!(parts(&to), 2);
        for (position, twin) in &twins[2..] {
            let until = RestoreUntil::Position(*position);
            let (db, _) = restore(&to, Some(3), until, &options).unwrap();
            assert_twin(&db, twin);
        }
        let until = RestoreUntil::Position(twins[0].0);
        let refused = restore(&to, None, until, &options).map(|own| own.1);
        assert!(matches!(refused, Err(Error::NotRestorable { .. })));
        // A backup without the log says nothing of it, and the log goes on behind it.
        subject
            .db
            .backup(&repository(&to), Default::default())
            .unwrap();
        write_all(&subject, &mut twin, &Workload::new(base_seed() ^ 9, 20));
        let position = archive(&subject.db, &to).unwrap();
        repository(&to).prune(RetentionPolicy::newest(2)).unwrap();
        let until = RestoreUntil::Position(position);
        let (db, restored) = restore(&to, None, until, &options).unwrap();
        assert_twin(&db, &twin);
        assert_eq!(restored.backup, 4);
    }
}

fn sentence<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("it must be refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_cannot_be_archived_or_restored_is_told() {
    for engine in engines() {
        let _context = PanicContext(|| format!("{engine}"));
        let options = small_options().engine(engine);
        let (sim, to) = (SimDisk::new(), SimDisk::new());
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        db.put("a", "1").unwrap();
        let told = sentence(archive(&db, &to));
        assert!(told.contains("no backup with the log"), "{told}");
        db.backup(&repository(&to), BackupOptions::default())
            .unwrap();
        let until = |number| RestoreUntil::Position(number);
        let told = sentence(restore(&to, None, until(1), &options));
        assert!(told.contains("backup 1 was made without the log"), "{told}");
        backup(&db, &to);
        db.put("b", "2").unwrap();
        archive(&db, &to).unwrap();
        for (number, expected) in [
            (0, "backup 2 is of position 1, which is later"),
            (3, "the log behind backup 2 ends at position 2"),
        ] {
            let told = sentence(restore(&to, None, until(number), &options));
            assert!(told.contains(expected), "{told}");
        }
        let told = sentence(restore(&to, Some(7), until(1), &options));
        assert!(told.contains("no backup 7"), "{told}");

        // Nobody keeps the log any more.
        let consumers = db.consumers().unwrap();
        assert_eq!(consumers.len(), 1);
        db.drop_consumer(&consumers[0].name).unwrap();
        db.put("c", "3").unwrap();
        let told = sentence(archive(&db, &to));
        assert!(
            told.contains("keeps no log") && told.contains("position 2"),
            "{told}"
        );
        let third = backup(&db, &to);
        assert_eq!((third.id, third.position), (3, 3));
        let told = sentence(restore(&to, Some(2), until(3), &options));
        assert!(told.contains("ends at position 2"), "{told}");

        if engine.capabilities().ingest {
            let pairs = [("x", "1"), ("y", "2")];
            db.put("d", "4").unwrap();
            db.default_keyspace().ingest(pairs).unwrap();
            db.put("e", "5").unwrap();
            for _ in 0..2 {
                let told = sentence(archive(&db, &to));
                assert!(
                    told.contains("position 4") && told.contains("ingested"),
                    "{told}"
                );
            }
            let fourth = backup(&db, &to);
            let (copy, _) = restore(&to, None, until(4), &options).unwrap();
            assert_eq!(copy.get("x").unwrap(), None);
            assert_eq!(copy.get("d").unwrap().as_deref(), Some(&b"4"[..]));
            let (copy, _) = restore(&to, None, until(fourth.position), &options).unwrap();
            assert_eq!(copy.iter().count(), 7);
        }
        db.close().unwrap();

        let reading = Db::open_on(Disk::simulated(&sim), options.clone().read_only(true)).unwrap();
        let told = sentence(archive(&reading, &to));
        assert!(told.contains("reading only"), "{told}");
    }
}

/// A part that is missing, cut or changed is told by a verification, and nothing behind it is
/// restored; the next backup begins another log.
#[test]
fn damage_of_a_part_is_told_and_ends_the_log_there() {
    for engine in engines() {
        let options = small_options().engine(engine);
        let (sim, to) = (SimDisk::new(), SimDisk::recording());
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        backup(&db, &to);
        for number in 1..=3 {
            db.put([number], [number]).unwrap();
            archive(&db, &to).unwrap();
        }
        let second = format!("{:016x}.logpart", 2);
        for damage in ["removed", "cut", "changed"] {
            let _context = PanicContext(|| format!("{engine}: {damage}"));
            let image = to.process_kill(to.ops());
            let disk = Disk::simulated(&image);
            let mut bytes = disk.read_all(&second).unwrap();
            match damage {
                "removed" => disk.remove(&second).unwrap(),
                "cut" => disk.truncate(&second, bytes.len() as u64 - 1).unwrap(),
                _ => {
                    *bytes.last_mut().unwrap() ^= 1;
                    let purpose = gabion_media::Purpose::Metadata;
                    disk.replace(&second, &bytes, purpose).unwrap();
                }
            }
            let opened = repository(&image);
            let report = opened.verify(None, BackupOptions::default()).unwrap();
            assert!(!report.problems.is_empty());
            assert!(report.log_parts >= 1);
            let until = |number| RestoreUntil::Position(number);
            let (copy, _) = restore(&image, None, until(1), &options).unwrap();
            assert_eq!(copy.iter().count(), 1);
            let told = sentence(restore(&image, None, until(3), &options));
            match damage {
                "changed" => assert!(told.contains("not those that were written"), "{told}"),
                _ => assert!(told.contains("missing or damaged"), "{told}"),
            }
            let made = db.backup(&opened, with_log()).unwrap();
            let (copy, restored) = restore(&image, None, until(3), &options).unwrap();
            assert_eq!((copy.iter().count(), restored.backup), (3, made.id));
        }
    }
}

/// Two stores in a repository have logs of their own.
#[test]
fn logs_of_several_stores_are_kept_apart() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let repository = BackupRepository::create_or_open(path("repo")).unwrap();
    let stores = ["one", "other"].map(|name| Db::open(path(name)).unwrap());
    for (store, value) in stores.iter().zip(["1", "2"]) {
        store.backup(&repository, with_log()).unwrap();
        store.put("key", value).unwrap();
        store.archive_log(&repository, Default::default()).unwrap();
    }
    for (store, value) in stores.iter().zip(["3", "4"]) {
        store.put("key", value).unwrap();
        store.archive_log(&repository, Default::default()).unwrap();
    }
    for (id, position, value) in [(1, 1, "1"), (2, 1, "2"), (1, 2, "3"), (2, 2, "4")] {
        let to = path(&format!("restored {id} {position}"));
        let until = RestoreUntil::Position(position);
        let restored = repository.restore_until(Some(id), until, &to, Default::default());
        assert_eq!(restored.unwrap().position, position);
        let copy = Db::open(to).unwrap();
        assert_eq!(copy.get("key").unwrap().as_deref(), Some(value.as_bytes()));
    }
    let until = RestoreUntil::Position(1);
    let told = sentence(repository.restore_until(None, until, path("new"), Default::default()));
    assert!(told.contains("several stores"), "{told}");
    assert!(!path("new").exists());
}
