//! A store opens on a disk without a free byte: it is read, it says of each change that there is no
//! space, and goes on by itself when there is. Nothing is lost by any of it, nor by a crash.
//!
//! How much of an opening a disk has space for is tried from nothing up, so that it runs out of it
//! in each of its steps.

use gabion::{Durability, Engine, Error, Options, Result};
use gabion_media::{Disk, Fault, FaultKind, SimDisk, Tear};

use crate::support::{
    KEYSPACES, Operation, PanicContext, SeededRng, Subject, Twin, assert_sound, assert_twin,
    base_seed, bytes_of, engines_on_disks, small_options,
};

/// How a store came to its end before it is opened on a full disk.
#[derive(Clone, Copy, Debug)]
enum End {
    Closed,
    Killed,
    Cut(Tear),
}

const ENDS: [End; 4] = [
    End::Closed,
    End::Killed,
    End::Cut(Tear::DropAll),
    End::Cut(Tear::Random512),
];

fn options_of(engine: Engine, threads: usize) -> Options {
    small_options()
        .engine(engine)
        .durability(Durability::Sync)
        .background_threads(threads)
}

fn operation(random: &mut SeededRng) -> Operation {
    let key = format!("{:05}", random.below(150)).into_bytes();
    let value = bytes_of(random.word(), 20 + random.index(200));
    let keyspace = random.index(KEYSPACES.len());
    Operation::new(keyspace, key, (!random.one_in(6)).then_some(value))
}

/// What is left of a store of some writes that came to such an end, and what it holds.
fn left_by(end: End, options: &Options, seed: u64) -> (SimDisk, Twin) {
    let sim = SimDisk::recording();
    let subject = Subject::open(&Disk::simulated(&sim), options).unwrap();
    let (mut twin, mut random) = (Twin::new(KEYSPACES.len()), SeededRng::new(seed));
    for number in 0..60 + random.index(60) {
        let operation = operation(&mut random);
        subject
            .write(std::slice::from_ref(&operation), None)
            .unwrap();
        twin.apply(&operation);
        if number % 40 == 20 {
            subject.db.flush().unwrap();
        }
    }
    let left = match end {
        End::Closed => {
            subject.db.clone().close().unwrap();
            sim.process_kill(sim.ops())
        }
        End::Killed => sim.process_kill(sim.ops()),
        End::Cut(style) => sim.power_cut(sim.ops(), seed, style),
    };
    (left, twin)
}

/// Leaves so many bytes free.
fn fill(sim: &SimDisk, free: u64) {
    let names = sim.names();
    let files = names.iter().filter_map(|name| sim.raw(name));
    let used: usize = files.map(|file| file.len()).sum();
    sim.set_capacity(Some(used as u64 + free));
}

fn copy_of(sim: &SimDisk) -> SimDisk {
    let copy = sim.process_kill(sim.ops());
    copy.set_capacity(None);
    copy
}

fn assert_told(what: &str, error: &Error) {
    let text = error.to_string();
    assert!(
        error.is_no_space() && text.contains("free space"),
        "{what}: {text}"
    );
}

/// Tries a bit of everything; returns how many of the calls found no space.
fn change_all(subject: &Subject, twin: &mut Twin, random: &mut SeededRng) -> u64 {
    let mut refused = 0;
    let mut went_well = |what: &str, result: Result<()>| {
        let is_ok = result.is_ok();
        refused += u64::from(!is_ok);
        result.unwrap_or_else(|error| assert_told(what, &error));
        is_ok
    };
    let db = &subject.db;
    for _ in 0..3 {
        let operation = operation(random);
        if went_well(
            "a write",
            subject.write(std::slice::from_ref(&operation), None),
        ) {
            twin.apply(&operation);
        }
    }
    went_well("a flush", db.flush());
    went_well("a sync", db.persist(Durability::Sync));
    went_well("a wait", db.wait_idle());
    went_well("a compaction", db.compact::<&[u8]>(..));
    if went_well("a keyspace", db.keyspace("another").map(drop)) {
        went_well("a drop", db.drop_keyspace("another"));
    }
    if db.engine().capabilities().ingest {
        let put = Operation::new(0, b"ingested".to_vec(), Some([7; 30].into()));
        if went_well("an ingest", subject.ingest(std::slice::from_ref(&put))) {
            twin.apply(&put);
        }
    }
    refused
}

#[test]
fn a_store_opens_on_a_full_disk_and_takes_changes_once_there_is_space() {
    let (mut refused, mut settled) = (0, 0);
    for engine in engines_on_disks() {
        for (number, end) in (0..).zip(ENDS) {
            for threads in [0, 2] {
                let options = options_of(engine, threads);
                let seed = base_seed() + number;
                let (left, before) = left_by(end, &options, seed);
                for free in (0..9_000).step_by(499).chain([20_000, 60_000]) {
                    let _context = PanicContext(|| {
                        format!("{engine}, {end:?}, {threads} threads, {free} free")
                    });
                    let (mut twin, mut random) = (before.clone(), SeededRng::new(seed ^ free));
                    let sim = copy_of(&left);
                    fill(&sim, free);
                    let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
                    assert_twin(&subject.db, &twin);
                    let found_none = change_all(&subject, &mut twin, &mut random);
                    refused += found_none;
                    assert_twin(&subject.db, &twin);
                    assert_eq!(subject.db.stats().read_only, None);
                    assert!(free > 0 || found_none >= 8, "{found_none} refused");

                    sim.set_capacity(None);
                    // What the background began before may fail once more.
                    let goes_on = (0..1000).any(|_| subject.db.flush().is_ok());
                    assert!(goes_on, "it does not go on");
                    assert!((0..1000).any(|_| subject.db.wait_idle().is_ok()));
                    assert_eq!(change_all(&subject, &mut twin, &mut random), 0);
                    assert_twin(&subject.db, &twin);
                    subject.db.clone().close().unwrap();
                    let report = gabion::check_disk(&Disk::simulated(&sim)).unwrap();
                    assert!(report.problems.is_empty(), "{:?}", report.problems);
                    let again = Subject::open(&Disk::simulated(&sim), &options).unwrap();
                    assert_twin(&again.db, &twin);
                    settled += 1;
                }
            }
        }
    }
    println!("full disk: {refused} changes refused, {settled} stores went on");
    assert!(refused > 2 * settled, "{refused} of {settled}");
}

/// WipDB flushed before, which found no space, and there was no checkpoint.
#[test]
fn a_checkpoint_goes_to_another_disk_when_this_one_is_full() {
    for engine in engines_on_disks() {
        for threads in [0, 2] {
            let _context = PanicContext(|| format!("{engine}, {threads} threads"));
            let options = options_of(engine, threads);
            let (left, mut twin) = left_by(End::Closed, &options, base_seed());
            let sim = copy_of(&left);
            let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
            let mut random = SeededRng::new(base_seed());
            // A delete of a key that is not there takes FlexDB no room to flush.
            let put = Operation::new(0, b"new".to_vec(), Some(bytes_of(random.word(), 100)));
            subject.write(std::slice::from_ref(&put), None).unwrap();
            twin.apply(&put);
            fill(&sim, 0);
            assert_told("a flush", &subject.db.flush().unwrap_err());

            let target = Disk::simulated(&SimDisk::new());
            subject.db.checkpoint_on(&target).unwrap();
            let report = gabion::check_disk(&target).unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
            let copy = Subject::open(&target, &options).unwrap();
            assert_twin(&copy.db, &twin);
            assert_eq!(change_all(&copy, &mut twin.clone(), &mut random), 0);
            assert_twin(&subject.db, &twin);
            assert!(change_all(&subject, &mut twin, &mut random) > 0);
            assert_twin(&subject.db, &twin);
        }
    }
}

/// A checkpoint takes what an opening writes, which found no space: it is whole, or fails and
/// leaves nothing in its place, which then takes one as soon as there is space.
#[test]
fn a_checkpoint_of_an_unsettled_store_is_whole_or_nothing() {
    let (mut refused, mut taken) = (0, 0);
    for engine in engines_on_disks() {
        for (number, end) in (0..).zip(ENDS) {
            let options = options_of(engine, 0);
            let (left, twin) = left_by(end, &options, base_seed() + number);
            for free in (0..1_200).step_by(37) {
                let _context = PanicContext(|| format!("{engine}, {end:?}, {free} free"));
                let sim = copy_of(&left);
                fill(&sim, free);
                let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
                let target = Disk::simulated(&SimDisk::new());
                match subject.db.checkpoint_on(&target) {
                    Ok(()) => taken += 1,
                    Err(error) => {
                        assert_told("a checkpoint", &error);
                        let names = target.list().unwrap();
                        assert!(names.is_empty(), "{names:?}");
                        assert_twin(&subject.db, &twin);
                        refused += 1;
                        sim.set_capacity(None);
                        subject.db.checkpoint_on(&target).unwrap();
                    }
                }
                let report = gabion::check_disk(&target).unwrap();
                assert!(report.problems.is_empty(), "{:?}", report.problems);
                let copy = Subject::open(&target, &options).unwrap();
                assert_twin(&copy.db, &twin);
                assert_twin(&subject.db, &twin);
            }
        }
    }
    println!("full disk: {refused} checkpoints refused, {taken} taken");
    assert!(refused > 20 && taken > 20, "{refused}, {taken}");
}

/// A try to end the opening that may open no file is not the last one.
#[test]
fn a_store_on_a_full_disk_outlasts_a_lack_of_descriptors() {
    for engine in engines_on_disks() {
        for (number, end) in (0..).zip(ENDS) {
            for open_more in 0..6 {
                let options = options_of(engine, 0);
                let _context = PanicContext(|| format!("{engine}, {end:?}, {open_more} files"));
                let (left, mut twin) = left_by(end, &options, base_seed() + number);
                let sim = copy_of(&left);
                fill(&sim, 0);
                let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
                sim.set_capacity(None);
                sim.set_open_max(Some(sim.open_files() + open_more));
                let put = Operation::new(0, b"key".to_vec(), Some([7; 30].into()));
                let first = subject.write(std::slice::from_ref(&put), None);
                if let Err(error) = &first {
                    assert!(error.is_too_many_files(), "{error}");
                }
                assert!(open_more > 0 || first.is_err());
                sim.set_open_max(None);
                if first.is_err() {
                    assert_twin(&subject.db, &twin);
                }
                subject.write(std::slice::from_ref(&put), None).unwrap();
                twin.apply(&put);
                assert_twin(&subject.db, &twin);
                subject.db.clone().close().unwrap();
                let again = Subject::open(&Disk::simulated(&sim), &options).unwrap();
                assert_twin(&again.db, &twin);
            }
        }
    }
}

/// Its files are as they were, so that it is closed cleanly if it was before.
#[test]
fn a_store_that_was_only_read_on_a_full_disk_closes_and_is_as_it_was() {
    for engine in engines_on_disks() {
        for (number, end) in (0..).zip(ENDS) {
            for threads in [0, 2] {
                let options = options_of(engine, threads);
                let _context = PanicContext(|| format!("{engine}, {end:?}, {threads} threads"));
                let (left, twin) = left_by(end, &options, base_seed() + number);
                let sim = copy_of(&left);
                fill(&sim, 0);
                for round in 0..3 {
                    let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
                    assert_twin(&subject.db, &twin);
                    if round == 1 {
                        let refused = subject.keyspaces[0].put("key", "value");
                        assert_told("a put", &refused.unwrap_err());
                    }
                    subject.db.clone().close().unwrap();
                    let put = subject.keyspaces[0].put("key", "value");
                    assert!(matches!(put, Err(Error::Closed)), "{put:?}");
                }
                sim.set_capacity(None);
                if matches!(end, End::Closed) {
                    // Slots of a tree that hold no node of it may have been written.
                    for name in left.names().iter().filter(|name| !name.contains("TREE")) {
                        assert!(left.raw(name) == sim.raw(name), "{name} has changed");
                    }
                    let report = gabion::check_disk(&Disk::simulated(&sim)).unwrap();
                    assert!(report.problems.is_empty(), "{:?}", report.problems);
                }
                let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
                assert_twin(&subject.db, &twin);
                subject.keyspaces[0].put("key", "value").unwrap();
            }
        }
    }
}

/// A crash at any operation, from the opening on a full disk to the writes that go on after it.
#[test]
fn a_crash_around_an_opening_on_a_full_disk_loses_nothing() {
    let mut images = 0;
    for engine in engines_on_disks() {
        for (number, end) in (0..).zip(ENDS) {
            let options = options_of(engine, 0);
            let seed = base_seed() + number;
            let (left, before) = left_by(end, &options, seed);
            for free in [0, 900, 4_000] {
                let sim = copy_of(&left);
                fill(&sim, free);
                let mut history = vec![(0, before.clone())];
                let mut random = SeededRng::new(seed ^ free);
                let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
                for round in 0..30 {
                    if round == 4 {
                        sim.set_capacity(None);
                    }
                    let operation = operation(&mut random);
                    let operations = std::slice::from_ref(&operation);
                    if subject.write(operations, None).is_ok() {
                        let after = history[history.len() - 1].1.after(operations);
                        history.push((sim.ops(), after));
                    }
                }
                assert!(history.len() > 26, "{} writes", history.len());
                for op in (0..=sim.ops()).step_by(3) {
                    let done = history.partition_point(|(at, _)| *at <= op);
                    let allowed = &history[done - 1..history.len().min(done + 1)];
                    let style = Tear::ALL[random.index(Tear::ALL.len())];
                    let cut = sim.power_cut(op, random.word(), style);
                    for (image, what) in [(cut, Some(style)), (sim.process_kill(op), None)] {
                        let _context = PanicContext(|| {
                            let last = sim.describe(op).unwrap_or_default();
                            format!("{engine}, {end:?}, {free} free, {what:?} after {op} ({last})")
                        });
                        // On a disk that is full again, and on one with space.
                        for is_full in [random.one_in(3), false] {
                            match is_full {
                                true => fill(&image, 0),
                                false => image.set_capacity(None),
                            }
                            let disk = Disk::simulated(&image);
                            let again = Subject::open(&disk, &options).unwrap();
                            let found = assert_sound(&again.db).unwrap();
                            let is_allowed = allowed.iter().any(|(_, twin)| twin.equals(&found));
                            assert!(is_allowed, "{}", allowed[0].1.difference(&found));
                            match again.db.close() {
                                // What an interrupted replacement left was space for the opening.
                                Err(error) if is_full => assert_told("a close", &error),
                                closed => closed.unwrap(),
                            }
                            images += 1;
                        }
                    }
                }
            }
        }
    }
    println!("full disk: {images} images of crashes");
    assert!(images > 2_000, "{images}");
}

/// Each operation of an opening that can find no space finds none, once or from there on. Then it
/// is read, unless it was a sync: nobody knows what is on the medium then.
#[test]
fn an_opening_that_finds_no_space_at_any_operation_can_be_read() {
    let (mut opened, mut refused) = (0, 0);
    for engine in engines_on_disks() {
        for (number, end) in (0..).zip(ENDS) {
            let options = options_of(engine, 0);
            let (left, twin) = left_by(end, &options, base_seed() + number);
            let sound = copy_of(&left);
            drop(Subject::open(&Disk::simulated(&sound), &options).unwrap());
            let faults = (1..=sound.ops()).flat_map(|at| {
                let fault = |forever| match forever {
                    true => Fault::forever(at, FaultKind::NoSpace),
                    false => Fault::once(at, FaultKind::NoSpace),
                };
                [false, true].map(fault)
            });
            for fault in faults {
                let last = sound.describe(fault.at).unwrap_or_default();
                let _context = PanicContext(|| format!("{engine}, {end:?}, {fault:?} ({last})"));
                let sim = copy_of(&left);
                sim.inject(fault);
                match Subject::open(&Disk::simulated(&sim), &options) {
                    Ok(subject) => {
                        assert_twin(&subject.db, &twin);
                        opened += 1;
                    }
                    Err(error) => {
                        let text = error.to_string();
                        assert!(text.contains("sync"), "{text}");
                        refused += 1;
                    }
                }
                sim.clear_faults();
                let again = Subject::open(&Disk::simulated(&sim), &options).unwrap();
                assert_twin(&again.db, &twin);
                again.keyspaces[0].put("key", "value").unwrap();
            }
        }
    }
    println!("full disk: {opened} opened, {refused} refused");
    assert!(opened > 20, "{opened}");
}
