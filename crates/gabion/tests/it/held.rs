//! A job of the background is held up where it begins to write, while everybody else goes on.
//!
//! Races between writers, jobs and the close of a store show only if one thread stops at a certain
//! place for long. Here it does: the simulated disk holds up the creation of one table, each in its
//! turn, and what must happen meanwhile is waited for, so nothing depends on time.

use std::time::Duration;

use gabion::{Db, Error, Options};
use gabion_media::{CreationHold, Disk, SimDisk};

use crate::support::{
    KEYSPACES, PanicContext, Step, Subject, Twin, Workload, assert_twin, base_seed, bytes_of,
    read_all, setting, small_options, small_tuning, tuned,
};

/// Suffix of the names of tables.
const TABLE: &str = ".tbl";

/// Looks again and again until something has happened.
fn wait_until(happened: impl Fn() -> bool) {
    while !happened() {
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn options_of(seed: u64) -> Options {
    let threads = 1 + usize::try_from(seed % 3).unwrap();
    small_options()
        .background_threads(threads)
        .tuning(
            small_tuning()
                .memtable_budget_bytes(24 << 10)
                .bucket_bytes(4 << 10)
                .split_ways(2 + usize::try_from(seed % 4).unwrap()),
        )
        .log_bytes_max([4 << 10, 1 << 20][usize::try_from(seed % 2).unwrap()])
}

/// Writes all of a workload; returns what the store must hold.
fn write_all(subject: &Subject, workload: &Workload) -> Twin {
    let mut twin = Twin::new(KEYSPACES.len());
    for step in &workload.steps {
        if let Step::Write { operations, .. } = step {
            subject.write(operations, None).unwrap();
            operations
                .iter()
                .for_each(|operation| twin.apply(operation));
        }
    }
    twin
}

/// Runs a workload with one creation of a table held up until the writer has finished or stands
/// still; returns whether there were so many tables.
fn hold_one(seed: u64, skipped: u64) -> bool {
    let options = options_of(seed);
    let _context = PanicContext(|| format!("seed {seed}, table {skipped} is held up, {options:?}"));
    let workload = Workload::new(seed, 400);
    let sim = SimDisk::new();
    let hold = sim.hold_create(TABLE, skipped);
    let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
    let (twin, reached) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_all(&subject, &workload));
        wait_until(|| hold.is_reached() || writer.is_finished());
        let reached = hold.is_reached();
        wait_until(|| writer.is_finished() || (reached && subject.db.stats().stalls > 0));
        // Order and agreement are judged inside; what is read depends on the writer.
        read_all(&subject.db).unwrap();
        drop(hold);
        (writer.join().unwrap(), reached)
    });
    assert_twin(&subject.db, &twin);
    subject.db.wait_idle().unwrap();
    assert_twin(&subject.db, &twin);
    close(subject);
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    assert_twin(&db, &twin);
    reached
}

fn close(subject: Subject) {
    let Subject { db, keyspaces, .. } = subject;
    drop(keyspaces);
    db.close().unwrap();
}

#[test]
fn everyone_goes_on_while_one_job_is_held_up() {
    let tables = setting("GABION_HELD_TABLES", 60);
    let mut reached = 0;
    for (seed, table) in (base_seed()..).zip(0..tables) {
        reached += u64::from(hold_one(seed, table));
    }
    println!("held: {reached} of {tables} tables");
    assert!(reached > tables / 2, "{reached} of {tables}");
}

/// One background thread and room for several MemTables.
fn roomy() -> Options {
    tuned(options_of(0), |own| own.memtable_budget_bytes(256 << 10))
}

/// A store whose only background thread stands before its first table, the hold, and how much was
/// written.
fn flush_held_up() -> (Subject, CreationHold, SimDisk, u64) {
    let sim = SimDisk::new();
    let hold = sim.hold_create(TABLE, 0);
    let subject = Subject::open(&Disk::simulated(&sim), &roomy()).unwrap();
    let mut written = 0;
    while subject.db.stats().memtable_bytes < 96 << 10 {
        put(&subject, written);
        written += 1;
    }
    wait_until(|| hold.is_reached());
    (subject, hold, sim, written)
}

fn put(subject: &Subject, number: u64) {
    subject.keyspaces[0]
        .put(number.to_le_bytes(), bytes_of(number, 100))
        .unwrap();
}

fn assert_all_there(db: &Db, written: u64) {
    for number in 0..written {
        let value = db.get(number.to_le_bytes()).unwrap();
        assert_eq!(value.as_deref(), Some(&*bytes_of(number, 100)));
    }
}

#[test]
fn a_job_that_meets_the_closed_store_has_not_failed() {
    let (subject, hold, sim, written) = flush_held_up();
    let Subject { db, keyspaces, .. } = subject;
    let keyspace = keyspaces[0].clone();
    drop(keyspaces);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| db.close());
        // A write may stall, but not beyond the close.
        wait_until(|| matches!(keyspace.put(b"?", b""), Err(Error::Closed)));
        drop(hold);
        closing.join().unwrap().unwrap();
    });
    drop(keyspace);
    let db = Db::open_on(Disk::simulated(&sim), roomy()).unwrap();
    assert_all_there(&db, written);
}

#[test]
fn a_stalled_writer_goes_on_once_the_flush_does() {
    let (subject, hold, _, written) = flush_held_up();
    let more = 5000;
    std::thread::scope(|scope| {
        let stalls = subject.db.stats().stalls;
        let writer = scope.spawn(|| (written..written + more).for_each(|n| put(&subject, n)));
        wait_until(|| subject.db.stats().stalls > stalls || writer.is_finished());
        assert!(!writer.is_finished(), "the writer stands still");
        drop(hold);
        writer.join().unwrap();
    });
    assert_all_there(&subject.db, written + more);
    close(subject);
}

#[test]
fn a_writer_does_not_wait_for_memory_that_its_own_iterators_hold() {
    let options = options_of(0);
    let subject = Subject::open(&Disk::simulated(&SimDisk::new()), &options).unwrap();
    let mut iterators = Vec::new();
    let written = 2000;
    for number in 0..written {
        put(&subject, number);
        if number % 10 == 0 {
            // Each keeps the MemTables of its moment, several times the budget together.
            let mut iterator = subject.db.iter();
            assert!(iterator.next().unwrap().is_ok());
            iterators.push(iterator);
        }
    }
    assert_all_there(&subject.db, written);
    drop(iterators);
    close(subject);
}

#[test]
fn memory_keeps_to_a_budget_that_is_smaller_than_any_table_while_flushes_are_held_up() {
    let budget = 4 << 10;
    let options = tuned(options_of(0), |own| own.memtable_budget_bytes(budget));
    let sim = SimDisk::new();
    let hold = sim.hold_create(TABLE, 0);
    let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
    let written = 1000;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..written).for_each(|number| put(&subject, number)));
        wait_until(|| subject.db.stats().stalls > 0 || writer.is_finished());
        let used = subject.db.stats().memtable_bytes;
        drop(hold);
        // Tables of one bucket: one in use, one frozen, one that a write began before it looked.
        assert!(used < 16 * budget, "{used} bytes");
        writer.join().unwrap();
    });
    assert_all_there(&subject.db, written);
    close(subject);
}
