//! Followers beside writers that do not wait for them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion::{Db, Options, WriteBatch};
use gabion_media::{Disk, SimDisk};

use super::follow;
use crate::support::{SeededRng, base_seed, existing_keyspace, keyspace, setting, small_options};

const KEYS: u64 = 300;
const NAMES: [&str; 3] = ["default", "some", "other"];

/// What the write of a number does: a batch of the same value in each keyspace, so that what is
/// there after it is known by the number alone.
fn write(db: &Db, number: u64) {
    let mut batch = WriteBatch::new();
    for name in NAMES {
        let keyspace = keyspace(db, name).unwrap();
        let key = (number % KEYS).to_le_bytes();
        let value = [number.to_le_bytes(); 8].concat();
        batch.put(&keyspace, key, value).unwrap();
    }
    db.write(&batch).unwrap();
}

/// Panics unless a follower has what the first so many writes have left, whatever their number;
/// returns that.
fn assert_prefix(db: &Db) -> u64 {
    let snapshot = db.snapshot();
    let mut found = Vec::new();
    for name in NAMES {
        let keyspace = existing_keyspace(db, name).unwrap();
        let pairs = snapshot.iter(&keyspace).map(Result::unwrap);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let pairs: BTreeMap<u64, u64> = pairs
            .map(|(key, value)| (number(&key), number(&value)))
            .collect();
        found.push(pairs);
    }
    let last = found[0].values().max().copied().unwrap_or(0);
    for pairs in &found {
        for key in 0..KEYS {
            // The newest write up to the last one with that key.
            let behind = (last + KEYS - key) % KEYS;
            let expected = last.checked_sub(behind).filter(|number| *number > 0);
            assert_eq!(pairs.get(&key).copied(), expected, "key {key} at {last}");
        }
    }
    last
}

fn run(options: &Options, writer: impl Fn() -> Db, follower: impl Fn() -> Db + Sync) -> (u64, u64) {
    let db = writer();
    write(&db, 1);
    let ends = AtomicBool::new(false);
    let followed = std::thread::scope(|scope| {
        let (db, ends) = (&db, &ends);
        scope.spawn(move || {
            for number in 2..setting("GABION_FOLLOWER_WRITES", 4_000) {
                write(db, number);
                if number % 1000 == 0 {
                    db.flush().unwrap();
                }
            }
            // ORDER: Relaxed; it only ends the others.
            ends.store(true, Ordering::Relaxed);
        });
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let mut random = SeededRng::new(base_seed() + thread);
                let follower = &follower;
                scope.spawn(move || {
                    let (mut looks, mut last) = (0, 0);
                    let mut own = follower();
                    // ORDER: Relaxed, as above.
                    while !ends.load(Ordering::Relaxed) {
                        if random.one_in(50) {
                            own = follower();
                        }
                        own.catch_up().unwrap();
                        let found = assert_prefix(&own);
                        assert!(found >= last, "{found} after {last}");
                        last = found;
                        looks += 1;
                    }
                    looks
                })
            })
            .collect();
        let looks = threads.into_iter().map(|thread| thread.join().unwrap());
        looks.sum::<u64>()
    });
    let own = follower();
    let last = assert_prefix(&own);
    assert_eq!(last, assert_prefix(&db), "{options:?}");
    (followed, db.stats().splits)
}

#[test]
fn what_is_seen_beside_a_writer_is_a_prefix_of_its_writes() {
    let options = small_options().background_threads(2);
    let sim = SimDisk::new();
    let writer = || Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let (looks, splits) = run(&options, writer, || follow(&sim, &options));
    println!("simulated: {looks} looks, {splits} splits");
    let dir = tempfile::tempdir().unwrap();
    let writer = || options.clone().open(dir.path()).unwrap();
    let follower = || options.clone().follower(true).open(dir.path()).unwrap();
    let (looks, splits) = run(&options, writer, follower);
    println!("in a directory: {looks} looks, {splits} splits");
    assert!(looks > 4 && splits > 0);
}

/// Threads that read, one key after the other, while another one lets the follower catch up: what
/// they find never goes back.
#[test]
fn reads_never_go_back() {
    let options = small_options().background_threads(2);
    let sim = SimDisk::new();
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    write(&db, 1);
    let follower = follow(&sim, &options);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, follower, ends) = (&db, &follower, &ends);
        scope.spawn(move || {
            for number in 2..setting("GABION_FOLLOWER_WRITES", 4_000) {
                // One key only, in two keyspaces, and others that make tables.
                let mut batch = WriteBatch::new();
                for name in [NAMES[0], NAMES[1]] {
                    let keyspace = keyspace(db, name).unwrap();
                    batch.put(&keyspace, "key", number.to_le_bytes()).unwrap();
                    let other = (number % KEYS).to_le_bytes();
                    batch.put(&keyspace, other, [0; 60]).unwrap();
                }
                db.write(&batch).unwrap();
            }
            // ORDER: Relaxed; it only ends the others.
            ends.store(true, Ordering::Relaxed);
        });
        for _ in 0..2 {
            scope.spawn(move || {
                let (mut last, mut turn) = (0, 0);
                // ORDER: Relaxed, as above.
                while !ends.load(Ordering::Relaxed) {
                    turn += 1;
                    let keyspace = existing_keyspace(follower, NAMES[turn % 2]).unwrap();
                    let found = keyspace.get("key").unwrap();
                    let found = found.map_or(0, |value| {
                        u64::from_le_bytes(value[..8].try_into().unwrap())
                    });
                    assert!(found >= last, "{found} after {last}");
                    last = found;
                }
            });
        }
        // ORDER: Relaxed, as above.
        while !ends.load(Ordering::Relaxed) {
            follower.catch_up().unwrap();
        }
    });
    follower.catch_up().unwrap();
    assert_eq!(
        follower.get("key").unwrap().as_deref(),
        db.get("key").unwrap().as_deref()
    );
}

/// What is in the manifest alone comes in its turn among the writes: a follower finds an ingest or
/// a drop with whatever was written behind it.
#[test]
fn ingests_and_drops_are_seen_before_what_is_behind_them() {
    let options = small_options().background_threads(1);
    let sim = SimDisk::new();
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let number_of = |value: Option<&[u8]>| {
        value.map_or(0, |value| {
            u64::from_le_bytes(value[..8].try_into().unwrap())
        })
    };
    let (filled, notes) = (
        db.keyspace("filled").unwrap(),
        db.keyspace("notes").unwrap(),
    );
    let follower = follow(&sim, &options);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, ends) = (&db, &ends);
        scope.spawn(move || {
            for number in 1..setting("GABION_FOLLOWER_EDITS", 400) {
                let value = number.to_le_bytes();
                filled.ingest([("key", value)]).unwrap();
                notes.put("ingested", value).unwrap();
                let brief = db.keyspace("brief").unwrap();
                brief.put("key", value).unwrap();
                db.drop_keyspace("brief").unwrap();
                notes.put("dropped", value).unwrap();
            }
            // ORDER: Relaxed; it only ends the others.
            ends.store(true, Ordering::Relaxed);
        });
        // ORDER: Relaxed, as above.
        while !ends.load(Ordering::Relaxed) {
            follower.catch_up().unwrap();
            let get = |keyspace: &str, key: &str| {
                let keyspace = follower.existing_keyspace(keyspace).unwrap();
                number_of(keyspace.get(key).unwrap().as_deref())
            };
            let (ingested, noted) = (get("filled", "key"), get("notes", "ingested"));
            let turns = [noted, noted + 1];
            assert!(turns.contains(&ingested), "{ingested} beside {noted}");
            let dropped = get("notes", "dropped");
            assert!([noted, noted.saturating_sub(1)].contains(&dropped));
            if let Ok(brief) = follower.existing_keyspace("brief") {
                let found = number_of(brief.get("key").unwrap().as_deref());
                // It is there empty, or with what was not dropped yet.
                assert!(
                    [0, dropped + 1].contains(&found),
                    "{found} behind {dropped}"
                );
            }
        }
    });
    follower.catch_up().unwrap();
    assert_eq!(super::content(&follower), super::content(&db));
}
