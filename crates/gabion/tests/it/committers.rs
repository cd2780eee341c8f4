//! Merges of a FlexDB store by several threads, beside readers and a snapshot.
//!
//! A MemTable that is large enough is merged by several committers. Whatever they do at the same
//! time, the store holds what was written, a snapshot what was there when it was taken, and no
//! reader sees a key go back. The intervals are cached all, or hardly any.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion::{Db, Engine, Iter};
use gabion_media::{Disk, SimDisk};

use crate::support::{PanicContext, SeededRng, base_seed, setting, small_options, small_tuning};

const KEYS: u64 = 20_000;
const ROUNDS: u64 = 4;

/// Writes of a round: enough for several MemTables.
const WRITES: u64 = 6_000;

type Twin = BTreeMap<Vec<u8>, Vec<u8>>;

fn key_of(number: u64) -> Vec<u8> {
    format!("key {number:08}").into_bytes()
}

/// A value that says which write wrote it.
fn value_of(write: u64) -> Vec<u8> {
    let mut value = write.to_le_bytes().to_vec();
    value.resize(8 + usize::try_from(write * 7 % 150).unwrap(), b'v');
    value
}

fn write_of(value: &[u8]) -> u64 {
    let write = u64::from_le_bytes(*value.first_chunk().unwrap());
    assert_eq!(value, value_of(write), "a value is whole");
    write
}

fn assert_pairs(iter: Iter, twin: &Twin, what: &str) {
    let mut expected = twin.iter();
    for pair in iter {
        let (key, value) = pair.unwrap();
        let next = expected
            .next()
            .map(|(key, value)| (key.escape_ascii().to_string(), write_of(value)));
        let found = (key.escape_ascii().to_string(), write_of(&value));
        assert_eq!(Some(found), next, "{what}");
    }
    assert_eq!(expected.next(), None, "{what}");
}

fn assert_equal(db: &Db, twin: &Twin, what: &str) {
    assert_pairs(db.iter(), twin, what);
    let mut backward: Vec<_> = db.iter().rev().map(|pair| pair.unwrap().0).collect();
    backward.reverse();
    assert!(backward.iter().map(|key| &**key).eq(twin.keys()), "{what}");
}

/// Makes one change of the store and of the twin.
fn write(db: &Db, twin: &mut Twin, random: &mut SeededRng, number: u64) {
    let at = random.below(KEYS);
    let key = key_of(at);
    if random.one_in(1_500) {
        // Sometimes most of all keys, so that leaves of the index become empty.
        let most = [50, KEYS][random.index(2)];
        let end = key_of(at + random.below(most));
        db.delete_range(key.clone()..end.clone()).unwrap();
        let gone: Vec<_> = twin.range(key..end).map(|(key, _)| key.clone()).collect();
        for key in gone {
            twin.remove(&key);
        }
    } else if random.one_in(5) {
        db.delete(&key).unwrap();
        twin.remove(&key);
    } else {
        db.put(&key, value_of(number)).unwrap();
        twin.insert(key, value_of(number));
    }
}

/// Tells readers to stop when it is dropped, also by a panic, so that nobody waits for them.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        // ORDER: Relaxed; the flag stands for itself.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Gets keys at random until it is told to stop; returns how many it found.
fn read(db: &Db, seed: u64, stop: &AtomicBool) -> u64 {
    let mut random = SeededRng::new(seed);
    let mut seen = BTreeMap::new();
    let mut found = 0;
    // ORDER: Relaxed; the flag stands for itself.
    while !stop.load(Ordering::Relaxed) {
        // Few keys are read often, so that a key that goes back is noticed.
        let key = key_of(match random.one_in(2) {
            true => random.below(KEYS),
            false => random.below(40) * (KEYS / 40),
        });
        let Some(value) = db.get(&key).unwrap() else {
            continue;
        };
        found += 1;
        let write = write_of(&value);
        let last = seen.insert(key, write).unwrap_or(0);
        assert!(last <= write, "a read of write {last}, then of {write}");
    }
    found
}

fn run(seed: u64, cache_bytes: u64) {
    let _context = PanicContext(|| format!("seed {seed}, a cache of {cache_bytes}"));
    let options = small_options()
        .engine(Engine::Flex)
        .tuning(
            small_tuning()
                .memtable_budget_bytes(1 << 20)
                .cache_bytes(cache_bytes),
        )
        .log_bytes_max(4 << 20)
        .background_threads(4);
    let sim = SimDisk::new();
    let open = || Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let mut db = open();
    let mut random = SeededRng::new(seed);
    let mut twin = Twin::new();
    let mut flushes = 0;
    for round in 0..ROUNDS {
        let before = (db.snapshot(), twin.clone());
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers = [1, 2].map(|reader| {
                let (db, stop) = (&db, &stop);
                scope.spawn(move || read(db, seed + reader, stop))
            });
            let stops = Stops(&stop);
            for number in 0..WRITES {
                write(&db, &mut twin, &mut random, 1 + round * WRITES + number);
            }
            db.flush().unwrap();
            drop(stops);
            let found = readers.map(|reader| reader.join().unwrap());
            assert!(round == 0 || found.iter().sum::<u64>() > 0, "{found:?}");
        });
        assert_equal(&db, &twin, "after a flush");
        let keyspace = db.default_keyspace();
        assert_pairs(before.0.iter(keyspace), &before.1, "a snapshot");
        drop(before);
        flushes += db.stats().flushes;
        let cache = db.stats().cache;
        assert!(cache.bytes <= cache_bytes, "{cache:?}");
        if round % 2 == 1 {
            db.close().unwrap();
            db = open();
            assert_equal(&db, &twin, "opened again");
        }
    }
    assert!(flushes > ROUNDS * 2, "{flushes}");
    db.close().unwrap();
    let report = gabion::check_disk(&Disk::simulated(&sim)).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn several_committers_leave_a_flex_store_as_it_was_written() {
    // GABION_COMMITTER_RUNS: how many stores are written.
    for run_number in 0..setting("GABION_COMMITTER_RUNS", 6) {
        let cache_bytes = [64 << 10, 32 << 20][usize::from(run_number % 2 == 1)];
        run(base_seed() + run_number, cache_bytes);
    }
}
