//! Shapes of data and ways of use at which stores break: very many keyspaces, one key for ever,
//! keys that differ in their last byte only, one huge value, nothing but deletes, very many
//! snapshots, opens and closes of nothing.
//!
//! Every test runs on each engine that keeps its keys in order, and compares with a naive twin what
//! the store says before and after it was closed, or killed, and opened again.

use std::collections::BTreeMap;

use gabion::{Db, Durability, Engine, Keyspace, Options, WriteBatch};
use gabion_media::{Disk, SimDisk};

use crate::support::{Context, Random, base_seed, bytes_of, setting, small_options};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs a test on every ordered engine, with all work in the caller and with two threads beside it.
fn on_each_engine(test: impl Fn(&SimDisk, &Options)) {
    let ordered = Engine::ALL
        .iter()
        .filter(|engine| engine.capabilities().ordered);
    for &engine in ordered {
        for threads in [0, 2] {
            let _context = Context(|| format!("engine {engine}, {threads} background threads"));
            let options = small_options().engine(engine).background_threads(threads);
            test(&SimDisk::recording(), &options);
        }
    }
}

/// Keys in the order of their numbers.
fn key_of(number: u64) -> Vec<u8> {
    format!("{number:020}").into_bytes()
}

fn open(sim: &SimDisk, options: &Options) -> Db {
    Db::open_on(Disk::simulated(sim), options.clone()).expect("the store opens")
}

/// Bytes of the blocks of all files that hold anything: what a file system takes, as holes take
/// nothing. The manifest does not count: it is written anew when it is long.
fn file_bytes(sim: &SimDisk) -> u64 {
    let names = sim.names();
    let names = names.iter().filter(|name| !name.starts_with("manifest"));
    let files = names.filter_map(|name| sim.raw(name));
    files.map(|file| taken_bytes(&file)).sum()
}

fn taken_bytes(file: &[u8]) -> u64 {
    let is_taken = |block: &&[u8]| block.iter().any(|byte| *byte != 0);
    file.chunks(4096).filter(is_taken).count() as u64 * 4096
}

/// The files and their sizes, for messages.
fn listing(sim: &SimDisk) -> String {
    let names = sim.names();
    let sizes = names.iter().map(|name| {
        let bytes = sim.raw(name).unwrap_or_default();
        format!("{name}: {} of {}", taken_bytes(&bytes), bytes.len())
    });
    sizes.collect::<Vec<_>>().join(", ")
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for end in (1..items.len()).rev() {
        items.swap(end, random.index(end + 1));
    }
}

/// What a killed process leaves.
fn killed(sim: &SimDisk) -> SimDisk {
    sim.process_kill(sim.ops())
}

fn pairs_of(keyspace: &Keyspace) -> Pairs {
    let pairs = keyspace.iter().map(|pair| pair.expect("a sound store"));
    pairs
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect()
}

/// Asserts that a keyspace holds exactly `twin`, by gets and by scans in both directions.
fn assert_holds(keyspace: &Keyspace, twin: &Pairs) {
    assert_eq!(pairs_of(keyspace).len(), twin.len());
    assert!(pairs_of(keyspace) == *twin, "a scan differs from the twin");
    let backwards = keyspace.iter().rev().map(|pair| pair.unwrap().0.to_vec());
    assert!(backwards.eq(twin.keys().rev().cloned()));
    for (key, value) in twin {
        assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

#[test]
fn very_many_keyspaces_stay_apart() {
    let count = setting("GABION_KEYSPACES", 300);
    on_each_engine(|sim, options| {
        let name = |number: u64| format!("keyspace {number}");
        let db = open(sim, options);
        for number in 0..count {
            let keyspace = db.keyspace(&name(number)).unwrap();
            keyspace.put("number", number.to_string()).unwrap();
            keyspace.put(number.to_le_bytes(), "its own").unwrap();
        }
        let check = |db: &Db| {
            assert_eq!(db.keyspace_names().len() as u64, count + 1);
            for number in 0..count {
                let keyspace = db.existing_keyspace(&name(number)).unwrap();
                let twin = Pairs::from([
                    (b"number".to_vec(), number.to_string().into_bytes()),
                    (number.to_le_bytes().to_vec(), b"its own".to_vec()),
                ]);
                assert_eq!(pairs_of(&keyspace), twin, "keyspace {number}");
            }
        };
        check(&db);
        let left = killed(sim);
        db.close().unwrap();
        check(&open(&left, options));
        check(&open(sim, options));
    });
}

#[test]
fn one_key_is_written_over_and_over() {
    on_each_engine(|sim, options| {
        let db = open(sim, options);
        let mut longest_store = 0;
        for number in 0..6_000_u64 {
            db.put("the only key", bytes_of(number, 100)).unwrap();
            if number % 500 == 499 {
                db.wait_idle().unwrap();
                longest_store = longest_store.max(file_bytes(sim));
            }
        }
        assert!(
            longest_store < 300 << 10,
            "{longest_store} bytes for one pair: {}",
            listing(sim)
        );
        let last = bytes_of(5_999, 100);
        assert_eq!(db.get("the only key").unwrap().as_deref(), Some(&last[..]));
        drop(db);
        let db = open(&killed(sim), options);
        assert_eq!(db.iter().count(), 1);
        assert_eq!(db.get("the only key").unwrap().as_deref(), Some(&last[..]));
    });
}

#[test]
fn keys_that_share_a_thousand_bytes_are_told_apart() {
    on_each_engine(|sim, options| {
        let mut random = Random::new(base_seed());
        let db = open(sim, options);
        let mut twin = Pairs::new();
        let key = |number: u64| [&[b'p'; 1000][..], &key_of(number)].concat();
        for _ in 0..1_500 {
            let (key, value) = (key(random.below(700)), bytes_of(random.word(), 20));
            db.put(&key, &value).unwrap();
            twin.insert(key, value.to_vec());
        }
        // The prefix itself, and a key that leaves it early.
        for extra in [vec![b'p'; 1000], b"pp".to_vec(), vec![b'p'; 999]] {
            db.put(&extra, "extra").unwrap();
            twin.insert(extra, b"extra".to_vec());
        }
        assert_holds(db.default_keyspace(), &twin);
        for from in [0, 1, 350, 699, 700] {
            let range = key(from)..key(from + 20);
            let found = db.range(range.clone()).count();
            assert_eq!(
                found,
                twin.keys().filter(|key| range.contains(*key)).count()
            );
        }
        db.delete_range(key(100)..key(200)).unwrap();
        twin.retain(|other, _| !(key(100)..key(200)).contains(other));
        assert_holds(db.default_keyspace(), &twin);
        drop(db);
        assert_holds(open(&killed(sim), options).default_keyspace(), &twin);
    });
}

#[test]
fn deletes_of_what_was_never_there_leave_nothing() {
    on_each_engine(|sim, options| {
        let db = open(sim, options);
        for number in 0..5_000_u64 {
            db.delete(key_of(number)).unwrap();
        }
        db.delete_range::<&[u8]>(..).unwrap();
        db.compact::<&[u8]>(..).unwrap();
        db.wait_idle().unwrap();
        assert_eq!(db.iter().count(), 0);
        let bytes = file_bytes(sim);
        assert!(
            bytes < 200 << 10,
            "{bytes} bytes hold nothing: {}",
            listing(sim)
        );
        db.close().unwrap();
        let db = open(sim, options);
        assert_eq!(db.iter().count(), 0);
        assert_eq!(db.get(key_of(7)).unwrap(), None);
    });
}

#[test]
fn everything_that_was_put_is_deleted_and_the_space_given_back() {
    on_each_engine(|sim, options| {
        let mut random = Random::new(base_seed());
        let db = open(sim, options);
        for _ in 0..3 {
            let mut keys: Vec<u64> = (0..1_500).collect();
            for key in &keys {
                db.put(key_of(*key), bytes_of(*key, 200)).unwrap();
            }
            shuffle(&mut keys, &mut random);
            for key in &keys {
                db.delete(key_of(*key)).unwrap();
            }
            assert_eq!(db.iter().count(), 0);
        }
        db.compact::<&[u8]>(..).unwrap();
        db.wait_idle().unwrap();
        let bytes = file_bytes(sim);
        assert!(
            bytes < 300 << 10,
            "{bytes} bytes hold nothing: {}",
            listing(sim)
        );
        drop(db);
        assert_eq!(open(&killed(sim), options).iter().count(), 0);
    });
}

#[test]
fn hundreds_of_snapshots_each_keep_their_moment() {
    let count = setting("GABION_SNAPSHOTS", 120);
    on_each_engine(|sim, options| {
        let mut random = Random::new(base_seed());
        let db = open(sim, options);
        let mut twin = Pairs::new();
        let mut taken = Vec::new();
        for _ in 0..count {
            for _ in 0..12 {
                let key = key_of(random.below(150));
                if random.one_in(5) {
                    db.delete(&key).unwrap();
                    twin.remove(&key);
                } else {
                    let value = bytes_of(random.word(), random.index(90));
                    db.put(&key, &value).unwrap();
                    twin.insert(key, value.to_vec());
                }
            }
            if random.one_in(20) {
                db.compact::<&[u8]>(..).unwrap();
            }
            taken.push((db.snapshot(), twin.clone()));
        }
        db.wait_idle().unwrap();
        // The first to go is any, so that others are kept on both sides of it.
        shuffle(&mut taken, &mut random);
        while let Some((snapshot, twin)) = taken.pop() {
            let found: Pairs = snapshot
                .iter(db.default_keyspace())
                .map(|pair| pair.unwrap())
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect();
            assert!(found == twin, "a snapshot has changed");
            if taken.len() % 40 == 0 {
                db.compact::<&[u8]>(..).unwrap();
            }
        }
        assert_holds(db.default_keyspace(), &twin);
    });
}

#[test]
fn opening_and_closing_nothing_takes_no_space() {
    on_each_engine(|sim, options| {
        let mut sizes = Vec::new();
        for _ in 0..40 {
            let db = open(sim, options);
            assert_eq!(db.iter().count(), 0);
            db.close().unwrap();
            sizes.push((sim.names().len(), file_bytes(sim)));
        }
        let (files, bytes) = sizes[20..].iter().fold((0, 0), |most, size| {
            (most.0.max(size.0), most.1.max(size.1))
        });
        assert!(files < 20 && bytes < 64 << 10, "{sizes:?}");
        for _ in 0..40 {
            drop(open(sim, options));
            assert!(sim.names().len() <= files + 4, "{:?}", sim.names());
        }
    });
}

#[test]
fn one_value_is_as_large_as_all_others_together() {
    let bytes = usize::try_from(setting("GABION_VALUE_BYTES", 8 << 20)).expect("it fits");
    on_each_engine(|sim, options| {
        let db = open(sim, options);
        let huge = bytes_of(base_seed(), bytes);
        for number in 0..200_u64 {
            db.put(key_of(number), bytes_of(number, 300)).unwrap();
        }
        let middle = [key_of(100), key_of(7)].concat();
        let keyspace = db.default_keyspace();
        keyspace.put_with(&middle, &huge, Durability::Sync).unwrap();
        let check = |db: &Db| {
            let found = db.get(&middle).unwrap().expect("it was put");
            assert!(*found == *huge, "the value has changed");
            assert_eq!(db.iter().count(), 201);
            let lengths = db.iter().rev().map(|pair| pair.unwrap().1.len());
            assert_eq!(lengths.sum::<usize>(), 200 * 300 + bytes);
        };
        check(&db);
        db.flush().unwrap();
        check(&db);
        let left = killed(sim);
        db.put(&middle, "small again").unwrap();
        db.compact::<&[u8]>(..).unwrap();
        db.wait_idle().unwrap();
        let now = file_bytes(sim);
        assert!(
            now < bytes as u64 / 2 + (1 << 20),
            "{now} bytes are kept: {}",
            listing(sim)
        );
        drop(db);
        check(&open(&left, options));
        let db = open(&killed(sim), options);
        assert_eq!(
            db.get(&middle).unwrap().as_deref(),
            Some(&b"small again"[..])
        );
    });
}

/// A batch with every kind of operation on the same keys takes effect in its order, at once.
#[test]
fn a_batch_that_contradicts_itself_is_obeyed_in_order() {
    on_each_engine(|sim, options| {
        let db = open(sim, options);
        let other = db.keyspace("other").unwrap();
        for round in 0..50_u64 {
            let mut batch = WriteBatch::new();
            for keyspace in [db.default_keyspace(), &other] {
                batch.put(keyspace, "a", "first").unwrap();
                batch.delete(keyspace, "a").unwrap();
                batch.put(keyspace, "b", round.to_string()).unwrap();
                batch.delete_range(keyspace, "a".."z").unwrap();
                batch.put(keyspace, "c", round.to_string()).unwrap();
                batch.put(keyspace, "c", (round + 1).to_string()).unwrap();
            }
            db.write(batch).unwrap();
            let twin = Pairs::from([(b"c".to_vec(), (round + 1).to_string().into_bytes())]);
            assert_holds(db.default_keyspace(), &twin);
            assert_holds(&other, &twin);
        }
        drop((db, other));
        let db = open(&killed(sim), options);
        for name in [gabion::DEFAULT_KEYSPACE, "other"] {
            let keyspace = db.existing_keyspace(name).unwrap();
            assert_eq!(keyspace.get("c").unwrap().as_deref(), Some(&b"50"[..]));
            assert_eq!(keyspace.iter().count(), 1);
        }
    });
}
