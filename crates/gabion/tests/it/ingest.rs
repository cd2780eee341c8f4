//! Ingests: what they cost, what they refuse, what writers and readers beside them see. What they
//! leave after crashes and faults, and between all other operations, is in `crash`, `faults` and
//! `model`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gabion::{Db, Engine, Error, Ingest, Keyspace, Options};
use gabion_media::{Disk, SimDisk};

use crate::support::{SeededRng, base_seed, bytes_of, setting, small_options, small_tuning};

fn open(sim: &SimDisk, options: &Options) -> Db {
    Db::open_on(Disk::simulated(sim), options.clone()).expect("the store opens")
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:08}").into_bytes()
}

/// Ascending keys with values that say who wrote them.
fn pairs(numbers: std::ops::Range<u64>, who: &str) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    numbers.map(move |number| (key(number), format!("{who} {number:060}").into_bytes()))
}

/// Names of the tables on the disk.
fn tables(sim: &SimDisk) -> Vec<String> {
    let mut names = sim.names();
    names.retain(|name| name.ends_with(".tbl"));
    names
}

/// A repaired copy, of which the repair reports no problem.
fn repaired(sim: &SimDisk) -> SimDisk {
    let copy = SimDisk::recording();
    let report = gabion::repair_disk(&Disk::simulated(sim), &Disk::simulated(&copy)).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    copy
}

#[test]
fn what_is_ingested_is_written_once_and_splits_its_bucket() {
    let sim = SimDisk::recording();
    let options = small_options().tuning(small_tuning().bucket_bytes(32 << 10));
    let db = open(&sim, &options);
    let log = db.stats().written.log;
    let count = db
        .default_keyspace()
        .ingest(pairs(0..8_000, "load"))
        .unwrap();
    assert_eq!(count, 8_000);
    let stats = db.stats();
    assert_eq!(stats.user_bytes, 8_000 * (12 + 65));
    // A record tells those who follow.
    assert!(stats.written.log < log + 100, "{:?}", stats.written);
    let tables_written = stats.written.flush + stats.written.compaction + stats.written.split;
    assert!(
        tables_written < stats.user_bytes * 3 / 2,
        "{:?}",
        stats.written
    );
    assert!(stats.buckets > 16, "{} buckets", stats.buckets);
    assert_eq!(stats.flushes, 0);
    let check = |db: &Db| {
        let found = db.iter().map(|pair| pair.unwrap());
        let found = found.map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert!(found.eq(pairs(0..8_000, "load")));
        for number in [0, 1, 4_321, 7_999] {
            assert!(db.get(key(number)).unwrap().is_some());
        }
        assert_eq!(db.get(key(8_000)).unwrap(), None);
    };
    check(&db);
    let report = |sim: &SimDisk| gabion::check_disk(&Disk::simulated(sim)).unwrap();
    let killed = sim.process_kill(sim.ops());
    check(&open(&killed, &options));
    db.compact::<&[u8]>(..).unwrap();
    check(&db);
    db.close().unwrap();
    assert!(
        report(&sim).problems.is_empty(),
        "{:?}",
        report(&sim).problems
    );
    check(&open(&sim, &options));
}

#[test]
fn tables_that_were_not_compacted_pass_the_check_and_a_repair() {
    let sim = SimDisk::recording();
    let options = small_options().tuning(small_tuning().bucket_bytes(1 << 20));
    let db = open(&sim, &options);
    db.put(key(5), "older").unwrap();
    db.default_keyspace().ingest(pairs(0..50, "load")).unwrap();
    db.put(key(7), "newer").unwrap();
    db.close().unwrap();
    let disk = Disk::simulated(&sim);
    let report = gabion::check_disk(&disk).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let copy = repaired(&sim);
    for sim in [&sim, &copy] {
        let db = open(sim, &options);
        let mut expected: Vec<_> = pairs(0..50, "load").collect();
        expected[7].1 = b"newer".to_vec();
        let found = db.iter().map(|pair| pair.unwrap());
        assert!(
            found
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .eq(expected)
        );
    }
}

#[test]
fn what_is_not_in_order_is_refused_by_its_place_and_leaves_nothing() {
    let sim = SimDisk::recording();
    let db = open(&sim, &small_options());
    let keyspace = db.default_keyspace();
    keyspace.put(key(3), "before").unwrap();
    db.flush().unwrap();
    let tables_before = tables(&sim);
    let many = || pairs(0..2_000, "load");
    for (last, place) in [(key(1_999), 2_001), (key(7), 2_001)] {
        let error = keyspace
            .ingest(many().chain([(last.clone(), Vec::new())]))
            .expect_err("the keys do not ascend");
        let text = error.to_string();
        assert!(matches!(error, Error::OutOfOrder { position, .. } if position == place));
        assert!(text.contains(&last.escape_ascii().to_string()), "{text}");
    }
    let too_long = (vec![b'z'; 1 << 16], Vec::new());
    let error = keyspace.ingest(many().chain([too_long])).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    // An error ends an ingest, and who drops one has changed his mind.
    let mut ingest = keyspace.begin_ingest().unwrap();
    many().for_each(|(key, value)| ingest.put(key, value).unwrap());
    assert!(tables(&sim).len() > tables_before.len());
    ingest.put(key(0), "").unwrap_err();
    ingest.put(key(9_999), "").unwrap_err();
    assert!(matches!(ingest.finish(), Err(Error::OutOfOrder { .. })));
    let mut ingest = keyspace.begin_ingest().unwrap();
    many().for_each(|(key, value)| ingest.put(key, value).unwrap());
    drop(ingest);
    assert_eq!(tables(&sim), tables_before);
    assert_eq!(db.iter().count(), 1);
    assert_eq!(db.stats().user_bytes, 12 + 6);
}

#[test]
fn nothing_and_one_pair_can_be_ingested() {
    let sim = SimDisk::recording();
    let options = small_options();
    let db = open(&sim, &options);
    let nothing: [(&str, &str); 0] = [];
    let tables_before = tables(&sim);
    assert_eq!(db.default_keyspace().ingest(nothing).unwrap(), 0);
    assert_eq!(tables(&sim), tables_before);
    assert_eq!(db.default_keyspace().ingest([("", "")]).unwrap(), 1);
    assert_eq!(db.get("").unwrap().as_deref(), Some(&b""[..]));
    let db = open(&sim.process_kill(sim.ops()), &options);
    assert_eq!(db.iter().count(), 1);
}

/// The edit that names an ingest was the newest one. With the mark behind it cut off or zeroed, an
/// opening took it for one that a crash had interrupted, and removed the tables: nothing else in
/// the directory knows of them.
#[test]
fn what_was_ingested_is_in_no_edit_that_may_be_taken_for_torn() {
    let sim = SimDisk::recording();
    let options = small_options();
    let db = open(&sim, &options);
    db.put("before", "").unwrap();
    let ingested = db.default_keyspace().ingest(pairs(0..100, "load"));
    assert_eq!(ingested.unwrap(), 100);
    let killed = || sim.process_kill(sim.ops());
    let mut names = killed().names();
    names.retain(|name| name.starts_with("manifest-"));
    let [name] = &names[..] else {
        panic!("one manifest: {names:?}");
    };
    let bytes = killed().raw(name).unwrap();
    let (mut refused, mut read) = (0, 0);
    for kept in 0..=bytes.len() {
        for len in [kept, bytes.len()] {
            let copy = killed();
            let mut damaged = bytes[..kept].to_vec();
            damaged.resize(len, 0);
            copy.set_raw(name, damaged);
            match Db::open_on(Disk::simulated(&copy), options.clone()) {
                Ok(db) => {
                    assert_eq!(db.iter().count(), 101, "{kept} bytes of {}", bytes.len());
                    read += 1;
                }
                Err(error) => {
                    assert!(matches!(error, Error::Corruption { .. }), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 100 && read >= 2, "{refused} refused, {read} read");
}

/// A range delete of an empty bucket leaves nothing in it but a record of the log. Replayed after
/// an ingest it begins at a key that was ingested, in a MemTable, where it was taken for a
/// tombstone of that key. Found by the model.
#[test]
fn a_range_delete_that_is_replayed_does_not_hide_what_was_ingested_later() {
    let sim = SimDisk::recording();
    let options = small_options();
    let db = open(&sim, &options);
    db.delete_range::<&[u8]>(..).unwrap();
    let pairs = [("", "ingested"), ("a", "too")];
    assert_eq!(db.default_keyspace().ingest(pairs).unwrap(), 2);
    let killed = sim.process_kill(sim.ops());
    let copy = repaired(&killed);
    for db in [open(&killed, &options), open(&copy, &options)] {
        for flushed in [false, true] {
            if flushed {
                db.flush().unwrap();
            }
            for (key, value) in pairs {
                assert_eq!(db.get(key).unwrap().as_deref(), Some(value.as_bytes()));
                let found = db.multi_get(&[key]).unwrap().remove(0);
                assert_eq!(found.as_deref(), Some(value.as_bytes()));
            }
            assert_eq!(db.iter().count(), 2);
        }
        db.delete_range::<&[u8]>(..).unwrap();
        assert_eq!(db.get("").unwrap(), None);
        assert_eq!(db.iter().count(), 0);
    }
}

/// The same where the bucket holds keys, in a table and in a MemTable: those are deleted, and what
/// was ingested or put later is not.
#[test]
fn a_range_delete_of_the_log_deletes_in_a_repair_what_it_deleted_before() {
    let sim = SimDisk::recording();
    let options = small_options().tuning(small_tuning().bucket_bytes(1 << 20));
    let db = open(&sim, &options);
    let keyspace = db.default_keyspace();
    keyspace.put("a", "below").unwrap();
    keyspace.put("c", "in a table").unwrap();
    keyspace.put("p", "older than what is ingested").unwrap();
    db.flush().unwrap();
    keyspace.put("k", "in a MemTable").unwrap();
    keyspace.delete_range("b".."x").unwrap();
    keyspace.put("m", "later").unwrap();
    let pairs = [("d", "1"), ("p", "2"), ("w", "3"), ("z", "4")];
    keyspace.ingest(pairs).unwrap();
    keyspace.put("n", "last").unwrap();
    assert_eq!(db.stats().flushes, 1, "the log has the range delete");
    let expected = [
        ("a", "below"),
        ("d", "1"),
        ("m", "later"),
        ("n", "last"),
        ("p", "2"),
        ("w", "3"),
        ("z", "4"),
    ];
    let check = |db: &Db| {
        let found: Vec<_> = db.iter().map(|pair| pair.unwrap()).collect();
        let found = found.iter().map(|(key, value)| (&**key, &**value));
        let expected = expected.map(|(key, value)| (key.as_bytes(), value.as_bytes()));
        assert!(found.eq(expected));
    };
    check(&db);
    db.close().unwrap();
    check(&open(&repaired(&sim), &options));
    check(&open(&sim, &options));
}

/// A bucket that flushed an old version, and got a newer one by an ingest, is joined with one that
/// has not flushed as far. The old version, which the log still has, is replayed into a MemTable,
/// where it would lie before the newer one in the table.
#[test]
fn what_was_ingested_is_not_hidden_by_a_replay_after_a_join() {
    let sim = SimDisk::recording();
    let options = small_options()
        .tuning(small_tuning().split_ways(2))
        .log_bytes_max(1 << 20);
    let db = open(&sim, &options);
    let mut count = 0;
    while db.stats().buckets < 2 {
        db.put(key(count), [7; 100]).unwrap();
        count += 1;
        if count % 10 == 0 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    db.delete_range(key(count / 4)..).unwrap();
    db.compact(key(count / 4)..).unwrap();
    assert_eq!((db.stats().buckets, db.stats().joins), (2, 0));
    // The second bucket keeps this in its MemTable, and so the log what comes behind it.
    db.put(key(count), "in the log").unwrap();
    db.put(key(0), "old").unwrap();
    db.compact(..key(1)).unwrap();
    db.default_keyspace()
        .ingest([(key(0), "ingested")])
        .unwrap();
    db.delete_range(key(1)..key(count / 4)).unwrap();
    db.compact(..key(1)).unwrap();
    db.wait_idle().unwrap();
    assert_eq!((db.stats().buckets, db.stats().joins), (1, 1));
    let check = |db: &Db| {
        assert_eq!(db.get(key(0)).unwrap().as_deref(), Some(&b"ingested"[..]));
        assert_eq!(
            db.get(key(count)).unwrap().as_deref(),
            Some(&b"in the log"[..])
        );
        assert_eq!(db.iter().count(), 2);
    };
    check(&db);
    let killed = sim.process_kill(sim.ops());
    check(&open(&repaired(&killed), &options));
    check(&open(&killed, &options));
}

#[test]
fn snapshots_keep_what_an_ingest_replaces() {
    let sim = SimDisk::recording();
    let db = open(
        &sim,
        &small_options().tuning(small_tuning().bucket_bytes(64 << 10)),
    );
    let keyspace = db.default_keyspace();
    for (key, value) in pairs(0..300, "put") {
        keyspace.put(key, value).unwrap();
    }
    keyspace.delete_range(key(100)..key(150)).unwrap();
    let before = db.snapshot();
    let mut iterator = keyspace.iter();
    let first = iterator.next().unwrap().unwrap().0;
    assert_eq!(&*first, &key(0)[..]);
    keyspace.ingest(pairs(50..200, "load")).unwrap();
    let after = db.snapshot();
    keyspace.delete_range(key(60)..key(70)).unwrap();
    keyspace.put(key(55), "put again").unwrap();
    for compacted in [false, true] {
        if compacted {
            keyspace.compact::<&[u8]>(..).unwrap();
        }
        assert_eq!(before.iter(keyspace).count(), 250);
        assert_eq!(after.iter(keyspace).count(), 300);
        assert_eq!(keyspace.iter().count(), 290);
        assert_eq!(before.get(keyspace, key(120)).unwrap(), None);
        for (snapshot, number, who) in [(&before, 55, "put"), (&after, 55, "load")] {
            let found = snapshot.get(keyspace, key(number)).unwrap().unwrap();
            assert!(found.starts_with(format!("{who} 0").as_bytes()));
        }
        assert_eq!(
            keyspace.get(key(55)).unwrap().as_deref(),
            Some(&b"put again"[..])
        );
        assert_eq!(keyspace.get(key(65)).unwrap(), None);
    }
    assert_eq!(iterator.count(), 249);
}

#[test]
fn a_full_disk_refuses_an_ingest_and_nothing_else() {
    let sim = SimDisk::recording();
    let options = small_options();
    let db = open(&sim, &options);
    let keyspace = db.default_keyspace();
    keyspace.put(key(1), "before").unwrap();
    let used: usize = sim
        .names()
        .iter()
        .filter_map(|name| sim.raw(name))
        .map(|f| f.len())
        .sum();
    sim.set_capacity(Some(used as u64 + 40_000));
    let tables_before = tables(&sim);
    let error = keyspace.ingest(pairs(0..5_000, "load")).unwrap_err();
    assert!(error.to_string().contains("space"), "{error}");
    assert_eq!(tables(&sim), tables_before);
    assert_eq!(db.iter().count(), 1);
    keyspace.put(key(2), "after").unwrap();
    sim.set_capacity(None);
    keyspace.ingest(pairs(0..5_000, "load")).unwrap();
    assert_eq!(db.iter().count(), 5_000);
    drop(db);
    assert_eq!(
        open(&sim.process_kill(sim.ops()), &options).iter().count(),
        5_000
    );
}

#[test]
fn other_engines_say_that_they_have_none() {
    for engine in [Engine::Flex, Engine::Scmkv, Engine::Sptree] {
        assert!(!engine.capabilities().ingest);
        let dir = tempfile::tempdir().unwrap();
        let db = small_options().engine(engine).open(dir.path()).unwrap();
        let error = db
            .default_keyspace()
            .ingest([("key", "value")])
            .unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert_eq!(db.get("key").unwrap(), None);
    }
    assert!(Engine::Wip.capabilities().ingest);
}

/// Closes a store amid an ingest, and opens it again: the new store removes what the ingest wrote,
/// and uses the numbers of its tables again, for pairs of its own.
fn closed_amid_an_ingest(then: impl FnOnce(Ingest<'_>, &Db)) {
    let dir = tempfile::tempdir().unwrap();
    let options = small_options();
    let db = options.clone().open(dir.path()).unwrap();
    let mut ingest = db.default_keyspace().begin_ingest().unwrap();
    pairs(0..2_000, "load").for_each(|(key, value)| ingest.put(key, value).unwrap());
    db.clone().close().unwrap();
    let again = options.open(dir.path()).unwrap();
    let keyspace = again.default_keyspace();
    keyspace.ingest(pairs(0..500, "again")).unwrap();
    then(ingest, &again);
    let found = again.iter().map(|pair| pair.unwrap().1.to_vec());
    assert!(found.eq(pairs(0..500, "again").map(|pair| pair.1)));
    again.close().unwrap();
    assert!(gabion::check(dir.path()).unwrap().problems.is_empty());
}

#[test]
fn a_closed_store_takes_no_ingest_and_loses_none_of_its_files_to_one() {
    closed_amid_an_ingest(|mut ingest, again| {
        assert!(matches!(ingest.put("z", ""), Err(Error::Closed)));
        assert!(matches!(ingest.finish(), Err(Error::Closed)));
        again.compact::<&[u8]>(..).unwrap();
    });
}

#[test]
fn a_store_that_is_closed_before_the_end_of_an_ingest_has_none_of_it() {
    closed_amid_an_ingest(|ingest, _| {
        assert!(matches!(ingest.finish(), Err(Error::Closed)));
    });
}

#[test]
fn a_panic_of_what_makes_the_pairs_leaves_nothing() {
    let sim = SimDisk::recording();
    let options = small_options();
    let db = open(&sim, &options);
    let keyspace = db.default_keyspace();
    keyspace.put(key(3), "before").unwrap();
    let before = tables(&sim);
    let written = db.stats().written;
    let pairs_until_a_panic = pairs(0..2_000, "load").inspect(|pair| {
        assert!(pair.0 != key(1_900), "the source broke");
    });
    let ingest = std::panic::AssertUnwindSafe(|| keyspace.ingest(pairs_until_a_panic));
    std::panic::catch_unwind(ingest).unwrap_err();
    assert!(db.stats().written.flush > written.flush + 100_000);
    assert_eq!(tables(&sim), before);
    assert_eq!(db.iter().count(), 1);
    keyspace.put(key(2_001), "after").unwrap();
    keyspace.ingest(pairs(0..2_000, "load")).unwrap();
    db.wait_idle().unwrap();
    db.close().unwrap();
    let db = open(&sim, &options);
    assert_eq!(db.iter().count(), 2_001);
}

/// Keys of one writer, which nobody else writes but the ingests.
const KEYS_OF_WRITER: u64 = 40;
const WRITERS: u64 = 3;
const FIRST_FREE: u64 = WRITERS * KEYS_OF_WRITER;
const LAST_FREE: u64 = FIRST_FREE + 200;

/// What a value says: whose it is, and which of its writes.
fn stamp(value: &[u8]) -> (u8, u64) {
    let (who, number) = value.split_first().unwrap();
    (*who, u64::from_le_bytes(*number.first_chunk().unwrap()))
}

fn stamped(who: u8, number: u64) -> Vec<u8> {
    let padding = bytes_of(number, 50);
    [&[who][..], &number.to_le_bytes(), &padding].concat()
}

/// Ingests of everything beside writers and readers. A writer that reads its key right after its
/// put finds it, or an ingest that ended after the put began. A snapshot sees an ingest on all keys
/// that only ingests write, or on none.
#[test]
fn ingests_beside_writers_and_readers_are_in_one_order_with_them() {
    let rounds = setting("GABION_WRITES", 3_000) / 60;
    for threads in [0, 2] {
        let sim = SimDisk::new();
        let options = small_options()
            .background_threads(threads)
            .tuning(small_tuning().bucket_bytes(16 << 10));
        let db = open(&sim, &options);
        let (ended, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let puts: u64 = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (db, ended, over) = (&db, &ended, &over);
                    scope.spawn(move || write_until(over, db.default_keyspace(), writer, ended))
                })
                .collect();
            let reader = scope.spawn(|| read_until(&over, &db));
            for round in 1..=rounds {
                let numbers = 0..LAST_FREE;
                let pairs = numbers.map(|number| (key(number), stamped(b'i', round)));
                let ingested = db.default_keyspace().ingest(pairs);
                // ORDER: SeqCst; the writers compare it with their reads.
                ended.store(round, Ordering::SeqCst);
                if ingested.is_err() {
                    // ORDER: Relaxed; a hint to stop.
                    over.store(true, Ordering::Relaxed);
                }
                assert_eq!(ingested.unwrap(), LAST_FREE);
            }
            // ORDER: Relaxed; a hint to stop.
            over.store(true, Ordering::Relaxed);
            assert!(reader.join().unwrap() > 0);
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .sum()
        });
        assert!(puts > rounds, "{puts} puts beside {rounds} ingests");
        let before: Vec<_> = db.iter().map(|pair| pair.unwrap()).collect();
        assert_eq!(before.len() as u64, LAST_FREE);
        db.compact::<&[u8]>(..).unwrap();
        let after: Vec<_> = db.iter().map(|pair| pair.unwrap()).collect();
        assert!(before == after, "a compaction changes nothing");
        db.close().unwrap();
        let db = open(&sim, &options);
        let after: Vec<_> = db.iter().map(|pair| pair.unwrap()).collect();
        assert!(before == after, "a new open changes nothing");
    }
}

/// Puts and reads of one writer's keys; returns how many puts.
fn write_until(over: &AtomicBool, keyspace: &Keyspace, writer: u64, ended: &AtomicU64) -> u64 {
    let mut random = SeededRng::new(base_seed() + writer);
    let mut number = 0;
    // ORDER: Relaxed; a hint to stop.
    while !over.load(Ordering::Relaxed) {
        number += 1;
        let own = key(writer * KEYS_OF_WRITER + random.below(KEYS_OF_WRITER));
        // ORDER: SeqCst; what ended before the put must not be seen after it.
        let ended_before = ended.load(Ordering::SeqCst);
        keyspace.put(&own, stamped(b'w', number)).unwrap();
        let found = keyspace.get(&own).unwrap().expect("it was put");
        match stamp(&found) {
            (b'w', found) => assert_eq!(found, number, "an older put is seen"),
            (b'i', round) => assert!(round > ended_before, "{round} after {ended_before}"),
            (other, _) => panic!("{other} wrote nothing"),
        }
    }
    number
}

/// Looks at snapshots; returns how many saw an ingest.
fn read_until(over: &AtomicBool, db: &Db) -> u64 {
    let (mut newest, mut seen) = (0, 0);
    // ORDER: Relaxed; a hint to stop.
    while !over.load(Ordering::Relaxed) {
        let snapshot = db.snapshot();
        let keyspace = db.default_keyspace();
        let free = key(FIRST_FREE)..key(LAST_FREE);
        let rounds: Vec<_> = snapshot
            .range(keyspace, free.clone())
            .map(|pair| stamp(&pair.unwrap().1).1)
            .collect();
        let Some(first) = rounds.first() else {
            continue;
        };
        assert_eq!(
            rounds.len() as u64,
            LAST_FREE - FIRST_FREE,
            "half an ingest"
        );
        assert!(
            rounds.iter().all(|round| round == first),
            "two ingests at once"
        );
        assert!(*first >= newest, "an older ingest is seen");
        newest = *first;
        seen += 1;
        let number = FIRST_FREE + seen % (LAST_FREE - FIRST_FREE);
        let found = snapshot.get(keyspace, key(number)).unwrap().unwrap();
        assert_eq!(
            stamp(&found).1,
            newest,
            "a get and a scan of a snapshot differ"
        );
    }
    seen
}
