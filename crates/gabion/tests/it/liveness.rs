//! Everything goes on, whatever the options: every kind of work side by side, each of which must do
//! a fixed number of things, and a close among all of it.
//!
//! Nothing here depends on how fast anything is. Each worker counts what it has done, and a worker
//! that does nothing for minutes is named and ends the process: its thread cannot be ended.
//!
//! `GABION_LIVENESS` is the number of option sets that are drawn for each engine.
//!
//! What this found and keeps from coming back:
//! - A store with a limit on what its background writes stood still for good within seconds of puts
//!   beside ingests: a job that waited behind a more urgent one kept the limit's lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gabion::{Db, Durability, Engine, Error, Keyspace, Options, Result, Tuning, WriteBatch};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    PanicContext, Place, SeededRng, Ticker, base_seed, bytes_of, drawn_options, setting, tuned,
};

/// Longer than any machine takes for one thing, by far.
const A_HANG: Duration = Duration::from_secs(300);

/// Keys of puts and ingests.
const KEYS: u64 = 400;

/// What a worker does again and again.
type Work = fn(&Db, &mut SeededRng) -> Result<()>;

/// A kind of work, and how often it is done.
struct Worker {
    name: &'static str,
    times: u64,
    work: Work,
    done: AtomicU64,
    /// Whether its thread has come to its end.
    ended: AtomicU64,
}

impl Worker {
    fn new(name: &'static str, times: u64, work: Work) -> Worker {
        Worker {
            name,
            times,
            work,
            done: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    // ORDER: Relaxed throughout; the counts order nothing.
    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed) > 0
    }

    /// Does the work so often as it must, or, with `for_ever`, until the store is closed.
    fn run(&self, db: &Db, seed: u64, for_ever: bool) {
        let _ends = Ends(self);
        let mut random = SeededRng::new(seed);
        while for_ever || self.done() < self.times {
            match (self.work)(db, &mut random) {
                Ok(()) => {}
                Err(Error::Closed) if for_ever => break,
                // Somebody else drops keyspaces.
                Err(Error::KeyspaceDropped | Error::NoSuchKeyspace { .. }) => {}
                Err(error) => panic!("{}: {error}", self.name),
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Notes the end of a worker, a panic included.
struct Ends<'w>(&'w Worker);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        // ORDER: Relaxed, as above.
        self.0.ended.store(1, Ordering::Relaxed);
    }
}

fn key(number: u64) -> String {
    format!("{number:08}")
}

/// The keyspace that is dropped and made again all the time, or the one that always is there.
fn some_keyspace(db: &Db, random: &mut SeededRng) -> Result<Keyspace> {
    match random.below(4) {
        0 => db.keyspace("passing"),
        _ => Ok(db.default_keyspace().clone()),
    }
}

fn put(db: &Db, random: &mut SeededRng) -> Result<()> {
    let keyspace = some_keyspace(db, random)?;
    let value = bytes_of(random.below(1 << 20), 50 + random.index(300));
    let key = key(random.below(KEYS));
    match random.below(8) {
        0 => keyspace.delete(key),
        1 => keyspace.put_with(key, value, Durability::Interval(Duration::from_millis(1))),
        _ => keyspace.put(key, value),
    }
}

fn write_batch(db: &Db, random: &mut SeededRng) -> Result<()> {
    let keyspace = some_keyspace(db, random)?;
    let can = db.engine().capabilities();
    let mut batch = WriteBatch::new();
    for _ in 0..20 {
        batch.put(&keyspace, key(random.below(KEYS)), [7; 100])?;
    }
    if can.ordered {
        let from = random.below(KEYS);
        batch.delete_range(&keyspace, key(from)..key(from + 5))?;
    }
    db.write(&batch)
}

fn ingest(db: &Db, random: &mut SeededRng) -> Result<()> {
    let keyspace = some_keyspace(db, random)?;
    let step = 1 + random.below(4);
    let pairs = (0..KEYS / step).map(|number| (key(number * step), [8; 150]));
    keyspace.ingest(pairs).map(drop)
}

fn compact(db: &Db, random: &mut SeededRng) -> Result<()> {
    match db.engine().capabilities().ordered {
        true => {
            let from = random.below(KEYS);
            db.compact(key(from)..key(from + KEYS / 2))
        }
        false => db.compact::<&[u8]>(..),
    }
}

fn checkpoint(db: &Db, _: &mut SeededRng) -> Result<()> {
    db.checkpoint_on(&Disk::simulated(&SimDisk::new()))
}

fn drop_keyspace(db: &Db, _: &mut SeededRng) -> Result<()> {
    db.keyspace("passing")?.put("key", "value")?;
    db.drop_keyspace("passing")
}

fn read_snapshot(db: &Db, random: &mut SeededRng) -> Result<()> {
    let snapshot = db.snapshot();
    let keyspace = db.default_keyspace();
    let from = random.below(KEYS);
    let range = snapshot.range(keyspace, key(from)..key(from + 50));
    let first = range.collect::<Result<Vec<_>>>()?;
    let again = snapshot.range(keyspace, key(from)..key(from + 50));
    assert!(
        again.collect::<Result<Vec<_>>>()? == first,
        "a snapshot has changed"
    );
    Ok(())
}

fn scan(db: &Db, random: &mut SeededRng) -> Result<()> {
    let pairs = db.default_keyspace().pairs();
    let most = 1 + random.index(1_000);
    let pairs = pairs.take(most).collect::<Result<Vec<_>>>()?;
    assert!(pairs.len() <= most);
    Ok(())
}

fn get(db: &Db, random: &mut SeededRng) -> Result<()> {
    some_keyspace(db, random)?.get(key(random.below(KEYS)))?;
    Ok(())
}

fn stats(db: &Db, _: &mut SeededRng) -> Result<()> {
    assert!(db.stats().writes < u64::MAX);
    // Statistics are there of a closed store, too; this is not.
    db.persist(Durability::Buffered)
}

/// The work that an engine can do.
fn workers(engine: Engine) -> Vec<Worker> {
    let can = engine.capabilities();
    let all = [
        Some(Worker::new("put", 200, put)),
        Some(Worker::new("another put", 200, put)),
        Some(Worker::new("batch", 30, write_batch)),
        can.ingest.then(|| Worker::new("ingest", 6, ingest)),
        Some(Worker::new("compact", 4, compact)),
        Some(Worker::new("flush", 8, |db, _| db.flush())),
        Some(Worker::new("persist", 10, |db, _| {
            db.persist(Durability::default())
        })),
        can.checkpoint
            .then(|| Worker::new("checkpoint", 3, checkpoint)),
        can.drop_keyspace
            .then(|| Worker::new("drop_keyspace", 6, drop_keyspace)),
        can.snapshots
            .then(|| Worker::new("snapshot", 30, read_snapshot)),
        Some(Worker::new("scan", 20, scan)),
        Some(Worker::new("get", 200, get)),
        Some(Worker::new("stats", 40, stats)),
    ];
    all.into_iter().flatten().collect()
}

/// Waits until all have ended. Whoever does nothing for [`A_HANG`] is named, and that is the end.
fn watch(workers: &[&Worker], place: &str) {
    let mut moved: Vec<_> = workers
        .iter()
        .map(|own| (own.done(), Instant::now()))
        .collect();
    while !workers.iter().all(|worker| worker.has_ended()) {
        std::thread::sleep(Duration::from_millis(2));
        for (worker, (done, since)) in workers.iter().zip(&mut moved) {
            if worker.done() != *done || worker.has_ended() {
                (*done, *since) = (worker.done(), Instant::now());
            }
            if since.elapsed() > A_HANG {
                for other in workers {
                    let (name, ended) = (other.name, other.has_ended());
                    eprintln!(
                        "{name}: {} of {}, ended: {ended}",
                        other.done(),
                        other.times
                    );
                }
                eprintln!("{} stands still with {place}", worker.name);
                std::process::abort();
            }
        }
    }
}

fn open(place: &Place, options: &Options) -> Db {
    let options = options
        .clone()
        .create_if_missing(true)
        .error_if_exists(false);
    Db::open_on(place.disk(), options).expect("the store opens")
}

/// All kinds of work side by side, first until each has done enough, then until the store is closed
/// in the middle of it.
fn live(options: &Options, seed: u64, name: &str) {
    let place = match Place::of(options.engine) {
        Place::Simulated(_) => Place::Simulated(SimDisk::new()),
        directory => directory,
    };
    let _ticker = Ticker::of(options);
    let began = Instant::now();
    for for_ever in [false, true] {
        let db = open(&place, options);
        let workers = workers(options.engine);
        let close = Worker::new("close", 1, |db, _| db.clone().close());
        std::thread::scope(|scope| {
            for (number, worker) in (0..).zip(&workers) {
                let db = &db;
                scope.spawn(move || worker.run(db, seed + number, for_ever));
            }
            let are_busy = || workers.iter().all(|worker| worker.done() > 0);
            let all: Vec<_> = workers.iter().collect();
            if !for_ever {
                watch(&all, name);
            }
            let (close, db) = (&close, &db);
            scope.spawn(move || {
                let began = Instant::now();
                while for_ever && !are_busy() && began.elapsed() < A_HANG {
                    std::thread::sleep(Duration::from_millis(1));
                }
                close.run(db, 0, false);
            });
            watch(&all.into_iter().chain([close]).collect::<Vec<_>>(), name);
        });
        for worker in &workers {
            assert!(for_ever || worker.done() == worker.times, "{}", worker.name);
        }
    }
    assert!(open(&place, options).close().is_ok());
    println!("liveness: {:?}, {name}", began.elapsed());
}

fn live_under_drawn_options(engine: Engine, sets: u64) {
    for seed in 0..setting("GABION_LIVENESS", sets) {
        let seed = 100 * base_seed() + seed;
        let options = drawn_options(engine, seed);
        // Hundreds of buckets are work for a thread, and no more to wait for.
        let bucket_bytes = options.tuning.bucket_bytes.max(16 << 10);
        let options = tuned(options, |own| own.bucket_bytes(bucket_bytes));
        let name = format!("{engine}, seed {seed}: {options:?}");
        let _context = PanicContext(|| name.clone());
        live(&options, seed, &name);
    }
}

/// The option sets in which the background is limited, by the system's clock: so that a wait can
/// come too late.
fn live_at_a_rate(engine: Engine) {
    for threads in [1, 2, 3] {
        let options = Options::default()
            .engine(engine)
            .background_threads(threads)
            .tuning(
                Tuning::default()
                    .background_bytes_per_second_max(4_000_000)
                    .memtable_budget_bytes(64 << 10)
                    .bucket_bytes(64 << 10),
            )
            .log_bytes_max(1 << 20);
        let name = format!("{engine}, {threads} threads");
        let _context = PanicContext(|| name.clone());
        live(&options, base_seed(), &name);
    }
}

#[test]
fn wip_goes_on_under_all_options() {
    live_under_drawn_options(Engine::Wip, 4);
}

#[test]
fn flex_goes_on_under_all_options() {
    live_under_drawn_options(Engine::Flex, 4);
}

#[test]
fn mapped_engines_go_on_under_all_options() {
    live_under_drawn_options(Engine::Scmkv, 2);
    live_under_drawn_options(Engine::Sptree, 2);
}

#[test]
fn wip_goes_on_at_a_limited_rate() {
    live_at_a_rate(Engine::Wip);
}

#[test]
fn flex_goes_on_at_a_limited_rate() {
    live_at_a_rate(Engine::Flex);
}
