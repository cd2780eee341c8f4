//! What time alone does: garbage goes at an age, whether anybody writes or not, and a store that
//! has nothing left to do does nothing.

use std::time::Duration;

use gabion::{Clock, Db, Engine, Options};
use gabion_media::{Disk, SimDisk};

use crate::space::{capped, live_bytes};
use crate::support::{
    KEYSPACES, Operation, PanicContext, SeededRng, Subject, Twin, assert_twin, base_seed, bytes_of,
    option_sets, tuned,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
const HOUR: Duration = Duration::from_secs(3600);

/// A store whose clock the test moves, in which nothing but age makes garbage go.
fn aging() -> (Clock, Options) {
    let clock = Clock::manual();
    let options = tuned(capped(f64::INFINITY), |own| {
        own.memtable_budget_bytes(4 << 20)
            .sublevels_min(8)
            .sublevels_max(8)
            .clock(clock.clone())
    });
    (clock, options)
}

/// Whether any table holds these bytes.
fn is_in_tables(sim: &SimDisk, bytes: &[u8]) -> bool {
    let names = sim.names();
    let tables = names.iter().filter(|name| name.ends_with(".tbl"));
    let found = |raw: &Vec<u8>| raw.windows(bytes.len()).any(|window| window == bytes);
    tables
        .filter_map(|name| sim.raw(name))
        .any(|raw| found(&raw))
}

/// Five hundred keys, of which one is deleted and one overwritten in tables of their own.
fn write_garbage(db: &Db) {
    for number in 0..500 {
        db.put(format!("key {number:04}"), [7; 100]).unwrap();
    }
    db.put("key 0100", "an old version that must go").unwrap();
    db.put("key 0200", "a deleted value that must go").unwrap();
    db.flush().unwrap();
    db.put("key 0100", "a new version").unwrap();
    db.delete("key 0200").unwrap();
}

fn garbage_left(sim: &SimDisk) -> [bool; 2] {
    [&b"an old version"[..], b"a deleted value"].map(|bytes| is_in_tables(sim, bytes))
}

#[test]
fn old_versions_and_deleted_keys_go_when_they_are_a_day_old() {
    for reopens in [false, true] {
        let (clock, options) = aging();
        let sim = SimDisk::recording();
        let open = || Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        let mut db = open();
        write_garbage(&db);
        if reopens {
            // What only the log holds would be new to the next open.
            db.flush().unwrap();
        }
        db.wait_idle().unwrap();
        clock.advance(DAY - HOUR);
        if reopens {
            db.close().unwrap();
            db = open();
        }
        db.wait_idle().unwrap();
        assert_eq!(garbage_left(&sim), [true, true], "it is not that old");
        clock.advance(HOUR);
        db.wait_idle().unwrap();
        assert_eq!(garbage_left(&sim), [false, false]);
        let stats = db.stats();
        assert_eq!(stats.garbage.tombstones, 0);
        assert_eq!(stats.table_bytes, live_bytes(&sim, &options));
        assert_eq!(db.iter().count(), 499);
        for _ in 0..3 {
            clock.advance(2 * DAY);
            db.wait_idle().unwrap();
        }
        let after = db.stats();
        assert_eq!(
            after.compactions, stats.compactions,
            "nothing is left to do"
        );
        assert_eq!(after.written.metadata, stats.written.metadata);
    }
}

/// The clock was years ahead while the garbage was made, and was set right since. Garbage from the
/// future was kept until that came.
#[test]
fn garbage_goes_though_the_clock_was_set_back() {
    let (clock, options) = aging();
    clock.advance(4_000 * DAY);
    let sim = SimDisk::recording();
    let db = Db::open_on(Disk::simulated(&sim), options).unwrap();
    write_garbage(&db);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(garbage_left(&sim), [true, true]);
    db.close().unwrap();
    let (clock, options) = aging();
    let db = Db::open_on(Disk::simulated(&sim), options).unwrap();
    clock.advance(DAY);
    db.wait_idle().unwrap();
    assert_eq!(garbage_left(&sim), [false, false]);
    assert_eq!(db.iter().count(), 499);
    let compactions = db.stats().compactions;
    for _ in 0..3 {
        clock.advance(2 * DAY);
        db.wait_idle().unwrap();
    }
    assert_eq!(db.stats().compactions, compactions, "nothing is left to do");
}

#[test]
fn a_store_that_only_grows_is_not_rewritten_for_its_age() {
    let (clock, options) = aging();
    let db = Db::open_on(Disk::simulated(&SimDisk::new()), options).unwrap();
    for number in 0..2_000 {
        db.put(format!("key {number:06}"), [7; 100]).unwrap();
        if number % 400 == 399 {
            db.flush().unwrap();
        }
    }
    db.wait_idle().unwrap();
    let before = db.stats();
    assert!(before.tables > 1, "there are runs");
    clock.advance(10 * DAY);
    db.wait_idle().unwrap();
    assert_eq!(db.stats().compactions, before.compactions);
}

#[test]
fn garbage_that_a_snapshot_needs_is_tried_once_a_day() {
    let (clock, options) = aging();
    let sim = SimDisk::recording();
    let db = Db::open_on(Disk::simulated(&sim), options).unwrap();
    for number in 0..500 {
        db.put(format!("key {number:04}"), [7; 100]).unwrap();
    }
    db.put("key 0100", "an old version that must go").unwrap();
    db.put("key 0200", "a deleted value that must go").unwrap();
    let snapshot = db.snapshot();
    db.put("key 0100", "a new version").unwrap();
    db.delete("key 0200").unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let begun = db.stats().compactions;
    for _ in 0..4 * 24 {
        clock.advance(HOUR);
        db.wait_idle().unwrap();
    }
    let tried = db.stats().compactions - begun;
    let buckets = db.stats().buckets;
    assert!(
        (buckets..=5 * buckets).contains(&tried),
        "{tried} in four days"
    );
    assert_eq!(garbage_left(&sim), [true, true]);
    let found = snapshot.get(db.default_keyspace(), "key 0200").unwrap();
    assert_eq!(found.as_deref(), Some(&b"a deleted value that must go"[..]));
    drop(snapshot);
    clock.advance(DAY);
    db.wait_idle().unwrap();
    assert_eq!(garbage_left(&sim), [false, false]);
}

/// Lets hours pass until something has happened that nobody asks for.
fn let_hours_pass(clock: &Clock, happened: impl Fn() -> bool) {
    while !happened() {
        clock.advance(HOUR);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn garbage_goes_by_itself() {
    for threads in [1, 2] {
        let (clock, options) = aging();
        let options = options.background_threads(threads);
        let sim = SimDisk::recording();
        let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
        write_garbage(&db);
        let_hours_pass(&clock, || garbage_left(&sim) == [false, false]);
        assert_eq!(db.iter().count(), 499);
        db.delete_range("key 0300".."key 0400").unwrap();
        let is_gone = || !is_in_tables(&sim, &[7; 100]);
        assert!(!is_gone());
        db.delete_range(.."key 0300").unwrap();
        db.delete_range("key 0400"..).unwrap();
        let_hours_pass(&clock, is_gone);
        assert_eq!(db.iter().count(), 0);
        let_hours_pass(&clock, || db.stats().table_bytes == 0);
    }
}

#[test]
fn a_store_that_rests_does_nothing() {
    for (number, options) in option_sets(Engine::Wip).into_iter().enumerate() {
        let _context = PanicContext(|| format!("option set {number}: {options:?}"));
        let clock = Clock::manual();
        let sim = SimDisk::recording();
        let options = tuned(options.clone(), |own| own.clock(clock.clone()));
        let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        let mut twin = Twin::new(KEYSPACES.len());
        let mut random = SeededRng::new(base_seed());
        let mut write = |count: u64| {
            for number in 0..count {
                let key = format!("{:04}", random.below(600)).into_bytes();
                let value = (!random.one_in(4)).then(|| bytes_of(number, random.index(120)));
                let operation = Operation::new(random.index(KEYSPACES.len()), key, value);
                let written = subject.write(std::slice::from_ref(&operation), None);
                written.unwrap();
                twin.apply(&operation);
            }
            twin.clone()
        };
        for count in [1_000, 30, 1] {
            let twin = write(count);
            // What was written, and what goes at an age.
            for _ in 0..3 {
                subject.db.wait_idle().unwrap();
                clock.advance(DAY + HOUR);
            }
            subject.db.wait_idle().unwrap();
            let (before, operations, reads) = (subject.db.stats(), sim.ops(), sim.reads());
            for _ in 0..5 {
                clock.advance(2 * DAY);
                subject.db.wait_idle().unwrap();
            }
            let after = subject.db.stats();
            assert_eq!(after.written, before.written, "after {count} writes");
            assert_eq!(after.compactions, before.compactions);
            if options.background_threads == 0 {
                assert_eq!((sim.ops(), sim.reads()), (operations, reads));
            }
            assert_twin(&subject.db, &twin);
        }
    }
}
