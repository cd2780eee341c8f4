//! A drive that is full at any operation of a workload, and what its user does then: deletes.
//!
//! How much there is on the drive is swept from nothing up to what the workload takes, so that it
//! runs out wherever the store asks for space. Then keys are deleted one by one, in batches and by
//! ranges. Each delete is done, or refused for want of space, and then nothing of it is. So it is
//! when the store is killed and opened again on the full drive. Once there is room all of it goes
//! on, and the store holds what its naive twin does.
//!
//! What a write that found no space had begun does not stay: it may fail as often as one likes.
//!
//! Where the file system tells what is free, puts end before nothing is, and no delete is refused:
//! a store that has filled its drive is emptied, and takes as much again. In the sweep every second
//! drive does not tell, as where another program takes what is left.

use std::ops::Bound;
use std::time::{Duration, Instant};

use gabion::{Engine, Options, Result, WriteBatch};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    Change, KEYSPACES, Operation, PanicContext, SeededRng, Subject, Twin, assert_twin, base_seed,
    bytes_of, engines_on_disks, small_options, small_tuning,
};

/// Capacities of each sweep.
const CAPACITIES: u64 = 40;

/// Keys of each keyspace.
const KEYS: u64 = 200;

/// What became of writes on full drives.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    unopened: u64,
    puts_refused: u64,
    deletes_done: u64,
    deletes_refused: u64,
}

struct Run {
    options: Options,
    sim: SimDisk,
    subject: Subject,
    twin: Twin,
    random: SeededRng,
    counts: Counts,
}

fn used(sim: &SimDisk) -> u64 {
    let names = sim.names();
    let files = names.iter().filter_map(|name| sim.raw(name));
    files.map(|file| file.len() as u64).sum()
}

/// Whether it went well; if not, for want of space.
fn went_well(what: &str, result: Result<()>) -> bool {
    let Err(error) = result else { return true };
    let text = error.to_string();
    assert!(
        error.is_no_space() && text.contains("free space"),
        "{what}: {text}"
    );
    false
}

fn open(sim: &SimDisk, options: &Options) -> Result<Subject> {
    Subject::open(&Disk::simulated(sim), options)
}

impl Run {
    /// A store on a drive of some capacity; no more than it takes to make one if that is too small.
    fn new(engine: Engine, threads: usize, capacity: Option<u64>, seed: u64) -> Run {
        let options = small_options().engine(engine).background_threads(threads);
        let sim = SimDisk::new();
        sim.hide_capacity(seed.is_multiple_of(2));
        sim.set_capacity(capacity);
        let mut counts = Counts::default();
        let subject = open(&sim, &options).unwrap_or_else(|error| {
            went_well("an opening", Err(error));
            counts.unopened += 1;
            sim.set_capacity(None);
            let subject = open(&sim, &options).unwrap();
            sim.set_capacity(capacity.max(Some(used(&sim))));
            subject
        });
        Run {
            options,
            sim,
            subject,
            twin: Twin::new(KEYSPACES.len()),
            random: SeededRng::new(seed),
            counts,
        }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("{:05}", self.random.below(KEYS)).into_bytes()
    }

    /// Writes operations, and applies them to the twin if that went well.
    fn write(&mut self, operations: &[Operation]) -> bool {
        let is_done = went_well("a write", self.subject.write(operations, None));
        if is_done {
            self.twin = self.twin.after(operations);
        }
        assert_eq!(self.subject.db.stats().read_only, None);
        is_done
    }

    /// Some puts, alone or in batches.
    fn put(&mut self) -> bool {
        let keyspace = self.random.index(KEYSPACES.len());
        let count = [1, 1, 6][self.random.index(3)];
        let put = |run: &mut Run| {
            let value = bytes_of(run.random.word(), 50 + run.random.index(500));
            Operation::new(keyspace, run.key(), Some(value))
        };
        let operations: Vec<Operation> = (0..count).map(|_| put(self)).collect();
        self.write(&operations)
    }

    /// A delete, a batch of deletes, or a delete of a range.
    fn delete(&mut self) -> bool {
        let keyspace = self.random.index(KEYSPACES.len());
        let operations = match self.random.below(3) {
            0 => vec![Operation::new(keyspace, self.key(), None)],
            1 => (0..8)
                .map(|_| Operation::new(keyspace, self.key(), None))
                .collect(),
            _ => {
                let (one, other) = (self.key(), self.key());
                let range = (
                    Bound::Included(one.clone().min(other.clone())),
                    Bound::Excluded(one.max(other)),
                );
                let change = Change::DeleteRange(range);
                vec![Operation { keyspace, change }]
            }
        };
        self.write(&operations)
    }

    /// The workload, as far as there is space, and a little further.
    fn work(&mut self) {
        let mut refused = 0;
        for number in 0..160 {
            let is_done = match number % 16 {
                7 => self.delete(),
                15 => went_well("a flush", self.subject.db.flush()),
                _ => self.put(),
            };
            refused += u64::from(!is_done);
            if refused > 12 {
                break;
            }
        }
        self.counts.puts_refused += refused;
    }

    /// Writes that are larger than what is free; what they had begun does not stay.
    fn fail(&mut self) {
        let put = |number: u64| {
            let key = format!("large {number}").into_bytes();
            Operation::new(0, key, Some(bytes_of(number, 40_000)))
        };
        let large: Vec<Operation> = (0..40).map(put).collect();
        let mut before = None;
        for _ in 0..4 {
            assert!(!self.write(&large), "there is space for 1.6 MB");
            let now = used(&self.sim);
            // The first one may have begun what the next write goes on with.
            assert!(before.is_none_or(|before| now <= before), "{now} bytes");
            before = Some(now);
        }
    }

    fn deletes(&mut self) {
        for _ in 0..24 {
            match self.delete() {
                true => self.counts.deletes_done += 1,
                false => self.counts.deletes_refused += 1,
            }
        }
        assert_twin(&self.subject.db, &self.twin);
        for upkeep in [
            self.subject.db.flush(),
            self.subject.db.wait_idle(),
            self.subject.db.compact::<&[u8]>(..),
        ] {
            went_well("what makes room", upkeep);
        }
        assert_twin(&self.subject.db, &self.twin);
    }

    /// As a kill leaves it, on a drive of the same size.
    fn kill(&mut self, capacity: u64) {
        let sim = self.sim.process_kill(self.sim.ops());
        sim.set_capacity(Some(capacity.max(used(&sim))));
        self.subject = open(&sim, &self.options).unwrap();
        self.sim = sim;
        assert_twin(&self.subject.db, &self.twin);
    }

    /// There is room: all goes on.
    fn go_on(&mut self) {
        self.sim.set_capacity(None);
        let db = self.subject.db.clone();
        // What the background began before may fail once more.
        assert!((0..1000).any(|_| db.flush().is_ok()), "it does not go on");
        assert!((0..1000).any(|_| db.wait_idle().is_ok()));
        for number in 0..30 {
            let is_done = if number % 3 == 0 {
                self.delete()
            } else {
                self.put()
            };
            assert!(is_done, "there is room");
        }
        db.compact::<&[u8]>(..).unwrap();
        assert_twin(&db, &self.twin);
        db.close().unwrap();
        let report = gabion::check_disk(&Disk::simulated(&self.sim)).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        self.subject = open(&self.sim, &self.options).unwrap();
        assert_twin(&self.subject.db, &self.twin);
    }
}

#[test]
fn a_drive_that_is_full_at_any_operation_takes_deletes_or_changes_nothing() {
    for engine in engines_on_disks() {
        let mut total = Counts::default();
        for threads in [0, 2] {
            let seed = base_seed() ^ 0xf011;
            let mut whole = Run::new(engine, 0, None, seed);
            let least = used(&whole.sim) / 2;
            whole.work();
            let most = used(&whole.sim) + (64 << 10);
            for number in 0..CAPACITIES {
                let capacity = least + (most - least) * number / CAPACITIES;
                let _context = PanicContext(|| {
                    format!("{engine}, {threads} threads, {capacity} bytes, {seed}")
                });
                let mut run = Run::new(engine, threads, Some(capacity), seed ^ number);
                run.work();
                if threads == 0 {
                    run.fail();
                }
                run.deletes();
                run.kill(capacity);
                run.deletes();
                run.go_on();
                total.unopened += run.counts.unopened;
                total.puts_refused += run.counts.puts_refused;
                total.deletes_done += run.counts.deletes_done;
                total.deletes_refused += run.counts.deletes_refused;
            }
        }
        println!("full drive: {engine}, {total:?}");
        assert!(total.puts_refused > CAPACITIES, "{total:?}");
    }
}

/// A drive for many MemTables' worth, and for a manifest that grows until it is written anew.
const DRIVE_BYTES: u64 = 16 << 20;

/// By what a store is emptied.
#[derive(Clone, Copy, Debug)]
enum Emptied {
    Keys,
    Batches,
    Range,
}

/// Puts until the drive is full; returns how many there is room for.
fn fill(subject: &Subject) -> u64 {
    let keyspace = subject.db.default_keyspace();
    let (mut count, mut refused) = (0_u64, 0);
    while refused < 3 {
        let key = number_key(count);
        let value = bytes_of(count, 1000 + (count % 2000) as usize);
        let put = keyspace.put(key, &value);
        match went_well("a put", put) {
            true => (count, refused) = (count + 1, 0),
            // What the background has under way may make room.
            false => {
                refused += 1;
                went_well("a rest", subject.db.wait_idle());
            }
        }
    }
    count
}

/// Spread over all keys.
fn number_key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

fn empty(subject: &Subject, count: u64, emptied: Emptied) {
    let db = &subject.db;
    match emptied {
        Emptied::Keys => {
            for number in 0..count {
                db.delete(number_key(number)).unwrap();
            }
        }
        Emptied::Batches => {
            for first in (0..count).step_by(50) {
                let mut batch = WriteBatch::new();
                for number in first..count.min(first + 50) {
                    let key = number_key(number);
                    batch.delete(db.default_keyspace(), key).unwrap();
                }
                db.write(&batch).unwrap();
            }
        }
        Emptied::Range => db.delete_range::<&[u8]>(..).unwrap(),
    }
    assert!(db.iter().next().is_none());
}

fn fill_and_empty(options: &Options, emptied: Emptied, is_killed: bool) {
    let mut sim = SimDisk::new();
    sim.set_capacity(Some(DRIVE_BYTES));
    let mut subject = open(&sim, options).unwrap();
    let count = fill(&subject);
    if is_killed {
        sim = sim.process_kill(sim.ops());
        subject = open(&sim, options).unwrap();
    }
    let full = used(&sim);
    empty(&subject, count, emptied);
    // Room is given back without a flush or a compaction that somebody asks for.
    if options.background_threads == 0 {
        subject.db.wait_idle().unwrap();
    } else {
        let began = Instant::now();
        while used(&sim) >= full / 3 && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let left = used(&sim);
    let again = fill(&subject);
    subject.db.close().unwrap();
    println!("{count} records in {full} bytes, emptied {left}, then {again} records");
    assert!(count * 2000 > DRIVE_BYTES / 2, "{count} records fit");
    assert!(left < full / 3, "{left} bytes of {full} are left");
    assert!(again > count / 10 * 8, "{again} records after {count}");
}

#[test]
fn a_store_that_has_filled_its_drive_can_be_emptied_and_filled_again() {
    let cases = [
        (Emptied::Keys, false),
        (Emptied::Batches, true),
        (Emptied::Range, false),
    ];
    for engine in engines_on_disks() {
        for threads in [0, 2] {
            for (emptied, is_killed) in cases {
                let _context = PanicContext(|| format!("{engine}, {threads} threads, {emptied:?}"));
                let options = small_options()
                    .engine(engine)
                    .background_threads(threads)
                    .tuning(
                        small_tuning()
                            .memtable_budget_bytes(512 << 10)
                            .bucket_bytes(2 << 20),
                    )
                    .log_bytes_max(1 << 20);
                print!("{engine}, {threads} threads, {emptied:?}, killed: {is_killed}: ");
                fill_and_empty(&options, emptied, is_killed);
            }
        }
    }
}

/// What deletes hid stayed for as long as they were in memory, unless the drive was short.
#[test]
fn a_store_at_rest_has_given_back_what_was_deleted() {
    const RECORDS: u64 = 5000;
    for engine in engines_on_disks() {
        for emptied in [Emptied::Keys, Emptied::Batches, Emptied::Range] {
            let _context = PanicContext(|| format!("{engine}, {emptied:?}"));
            let options = small_options()
                .engine(engine)
                .tuning(small_tuning().memtable_budget_bytes(4 << 20))
                .log_bytes_max(4 << 20);
            let sim = SimDisk::new();
            let subject = open(&sim, &options).unwrap();
            for number in 0..RECORDS {
                let value = bytes_of(number, 1000);
                subject.db.put(number_key(number), value).unwrap();
            }
            subject.db.flush().unwrap();
            subject.db.wait_idle().unwrap();
            let full = subject.db.stats().space_bytes;
            empty(&subject, RECORDS, emptied);
            subject.db.wait_idle().unwrap();
            let left = subject.db.stats().space_bytes;
            println!("{engine}, {emptied:?}: {full} bytes, {left} at rest");
            // Its log may hold a segment.
            assert!(left < full / 4, "{left} bytes of {full} are left");
        }
    }
}

/// Each put that was refused tried a flush again, which wrote as much as there was room for, and
/// removed it.
#[test]
fn puts_that_are_refused_do_not_wear_the_drive_out() {
    for engine in engines_on_disks() {
        for threads in [0, 2] {
            let _context = PanicContext(|| format!("{engine}, {threads} threads"));
            let options = small_options()
                .engine(engine)
                .background_threads(threads)
                .tuning(small_tuning().memtable_budget_bytes(8 << 20))
                .log_bytes_max(8 << 20);
            let sim = SimDisk::new();
            let subject = open(&sim, &options).unwrap();
            for number in 0..1500 {
                let value = bytes_of(number, 1000);
                subject.db.put(number_key(number), value).unwrap();
            }
            // Somebody else takes the rest, but for a part of what a flush needs.
            sim.set_capacity(Some(used(&sim) + (200 << 10)));
            sim.hide_capacity(true);
            let mut refused = 0;
            let mut before = None;
            for number in 0..2000 {
                let put = subject.db.put(number_key(number), bytes_of(number, 1500));
                refused += u64::from(!went_well("a put", put));
                if refused == 5 {
                    before = before.or(Some(sim.ops()));
                }
            }
            let more = sim.ops() - before.unwrap();
            println!("{engine}, {threads} threads: {refused} puts refused, {more} operations");
            assert!(refused > 100, "{refused} puts were refused");
            // One of each is that a segment of the log cannot be made.
            assert!(more < 2 * refused, "{refused} puts took {more} operations");
            sim.set_capacity(None);
            subject.db.flush().unwrap();
            subject.db.put("room", "again").unwrap();
            subject.db.close().unwrap();
        }
    }
}
