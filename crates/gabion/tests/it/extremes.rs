//! Shapes of data and ways of use at which stores break: very many keyspaces, one key for ever,
//! keys that differ in their last byte only, one huge value, nothing but deletes, very many
//! snapshots, opens and closes of nothing.
//!
//! Every test runs on each engine with snapshots, and compares with a naive twin what
//! the store says before and after it was closed, or killed, and opened again.

use std::collections::BTreeMap;
use std::time::Duration;

use gabion::{Clock, Db, Durability, Engine, Keyspace, Options, WriteBatch};
use gabion_media::{Disk, Fault, FaultKind, SimDisk};

use crate::support::{
    PanicContext, Place, SeededRng, base_seed, bytes_of, setting, small_options, small_tuning,
    taken_bytes, tuned,
};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs a test on every engine with snapshots, with all work in the caller and with two threads
/// beside it.
fn on_each_engine(test: impl Fn(&SimDisk, &Options)) {
    let engines = Engine::ALL
        .iter()
        .filter(|engine| engine.capabilities().snapshots);
    for &engine in engines {
        for threads in [0, 2] {
            let _context =
                PanicContext(|| format!("engine {engine}, {threads} background threads"));
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

/// What a file system takes for all files but the manifest.
fn file_bytes(sim: &SimDisk) -> u64 {
    Place::Simulated(sim.clone()).file_bytes()
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

fn shuffle<T>(items: &mut [T], random: &mut SeededRng) {
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
    let count = setting("GABION_KEYSPACES", 1000);
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
        let mut random = SeededRng::new(base_seed());
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
        let mut random = SeededRng::new(base_seed());
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
        let mut random = SeededRng::new(base_seed());
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
    let bytes = setting("GABION_VALUE_BYTES", 8 << 20);
    let len = usize::try_from(bytes).expect("it fits");
    on_each_engine(|_, options| {
        let place = Place::for_bytes(bytes);
        let open = |place: &Place| Db::open_on(place.disk(), options.clone()).expect("it opens");
        let db = open(&place);
        let huge = bytes_of(base_seed(), len);
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
            assert_eq!(lengths.sum::<usize>(), 200 * 300 + len);
        };
        check(&db);
        db.flush().unwrap();
        check(&db);
        if matches!(place, Place::Directory(_)) {
            // Nobody may write while it is copied.
            db.wait_idle().unwrap();
        }
        let left = place.kill();
        db.put(&middle, "small again").unwrap();
        db.compact::<&[u8]>(..).unwrap();
        db.wait_idle().unwrap();
        let now = place.file_bytes();
        assert!(now < bytes / 2 + (1 << 20), "{now} bytes are kept");
        let after = place.kill();
        drop(db);
        check(&open(&left));
        let small = open(&after).get(&middle).unwrap();
        assert_eq!(small.as_deref(), Some(&b"small again"[..]));
    });
}

/// The time leaps by anything up to years, and the date is set back as far, before the store was
/// made and beyond, while it is written, at rest and between two openings.
#[test]
fn the_clock_jumps_and_all_else_goes_on() {
    on_each_engine(|sim, options| {
        let mut random = SeededRng::new(base_seed());
        let clock = Clock::manual();
        let options = tuned(options.clone(), |own| own.clock(clock.clone()));
        let mut db = open(sim, &options);
        let mut twin = Pairs::new();
        for round in 0..40 {
            let seconds = [1, 3_600, 1 << 20, 1 << 27][random.index(4)];
            let seconds = 1 + random.below(seconds);
            match random.below(3) {
                0 => clock.advance(Duration::from_secs(seconds)),
                1 => clock.shift_unix_time(-i64::try_from(seconds).unwrap()),
                _ => clock.shift_unix_time(i64::try_from(seconds).unwrap()),
            }
            for _ in 0..30 {
                let key = key_of(random.below(200));
                if random.one_in(4) {
                    db.delete(&key).unwrap();
                    twin.remove(&key);
                } else {
                    let value = bytes_of(random.word(), random.index(120));
                    db.put(&key, &value).unwrap();
                    twin.insert(key, value.to_vec());
                }
            }
            match round % 8 {
                1 => db.flush().unwrap(),
                3 => db.wait_idle().unwrap(),
                5 => db.compact::<&[u8]>(..).unwrap(),
                7 => {
                    db.close().unwrap();
                    db = open(sim, &options);
                }
                _ => {}
            }
            assert_holds(db.default_keyspace(), &twin);
        }
        db.wait_idle().unwrap();
        drop(db);
        assert_holds(open(&killed(sim), &options).default_keyspace(), &twin);
    });
}

/// Nothing of the key space is ever cut: all that is done to a bucket is done to all data at once.
#[test]
fn everything_lies_in_one_giant_bucket() {
    on_each_engine(|sim, options| {
        let mut random = SeededRng::new(base_seed());
        let options = tuned(options.clone(), |own| own.bucket_bytes(1 << 40));
        let db = open(sim, &options);
        let mut twin = Pairs::new();
        for round in 0..6 {
            for _ in 0..2_000 {
                let key = key_of(random.below(5_000));
                let value = bytes_of(random.word(), random.index(120));
                db.put(&key, &value).unwrap();
                twin.insert(key, value.to_vec());
            }
            let from = random.below(4_500);
            let gone = key_of(from)..key_of(from + 300);
            db.delete_range(gone.clone()).unwrap();
            twin.retain(|key, _| !gone.contains(key));
            if round % 2 == 1 {
                db.wait_idle().unwrap();
            }
            assert_holds(db.default_keyspace(), &twin);
        }
        if db.engine() == Engine::Wip {
            assert_eq!((db.stats().buckets, db.stats().splits), (1, 0));
        }
        let left = killed(sim);
        db.compact::<&[u8]>(..).unwrap();
        assert_holds(db.default_keyspace(), &twin);
        drop(db);
        assert_holds(open(&left, &options).default_keyspace(), &twin);
        assert_holds(open(sim, &options).default_keyspace(), &twin);
    });
}

/// The disk fills up while a bucket is split: at each of the operations between the write that
/// makes the split due and its end. Nothing that was acknowledged is lost, and what stands half
/// done is done when there is space.
#[test]
fn a_disk_that_is_full_in_the_middle_of_a_split_loses_nothing() {
    let options = small_options().tuning(small_tuning().bucket_bytes(16 << 10).sublevels_max(8));
    let value = |number: u64| bytes_of(number, 200).to_vec();
    // Puts until a bucket is split, at most `count`; how many, and what the disk had done before
    // and after the last one.
    let fill = |sim: &SimDisk, db: &Db, count: u64| {
        for number in 0..count {
            let before = sim.ops();
            db.put(key_of(number * 7_919 % 1_000), value(number))
                .unwrap();
            if db.stats().splits > 0 {
                return (number + 1, before, sim.ops());
            }
        }
        (count, sim.ops(), sim.ops())
    };
    let sound = SimDisk::recording();
    let (count, before, after) = fill(&sound, &open(&sound, &options), 10_000);
    assert!(
        count < 1_000 && after > before + 2,
        "{count}: {before} to {after}"
    );
    let mut refused = 0;
    for at in before + 1..=after {
        let _context = PanicContext(|| format!("full at operation {at} of {before} to {after}"));
        let sim = SimDisk::recording();
        let db = open(&sim, &options);
        fill(&sim, &db, count - 1);
        assert_eq!(
            sim.ops(),
            before,
            "a store without threads is deterministic"
        );
        sim.inject(Fault::forever(at, FaultKind::NoSpace));
        let mut twin: Pairs = (0..count - 1)
            .map(|number| (key_of(number * 7_919 % 1_000), value(number)))
            .collect();
        for number in count - 1..count + 20 {
            let key = key_of(number * 7_919 % 1_000);
            match db.put(&key, value(number)) {
                Ok(()) => drop(twin.insert(key, value(number))),
                Err(error) => {
                    assert!(error.to_string().contains("space"), "{error}");
                    refused += 1;
                }
            }
        }
        assert_holds(db.default_keyspace(), &twin);
        sim.clear_faults();
        let left = killed(&sim);
        // What changes nothing shows whether the store goes on. One that cannot tell what of its
        // log or its manifest is on the disk does not: where their sync found no space.
        let is_sync = sound.describe(at).is_some_and(|what| what.contains("sync"));
        let (key, value) = twin.first_key_value().expect("pairs were put");
        match db.put(key, value).and_then(|()| db.wait_idle()) {
            Ok(()) => assert!(db.stats().splits > 0, "what was due is done"),
            Err(_) => assert!(is_sync && db.stats().read_only.is_some(), "space is there"),
        }
        assert_holds(db.default_keyspace(), &twin);
        drop(db);
        for sim in [&left, &sim] {
            let db = open(sim, &options);
            assert_holds(db.default_keyspace(), &twin);
            db.wait_idle().unwrap();
            assert!(db.stats().buckets > 1, "the split is done by then");
            assert_holds(db.default_keyspace(), &twin);
        }
    }
    println!(
        "extremes: full at {} operations, {refused} refusals",
        after - before
    );
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
