//! Several writers, readers, scans and snapshots at once, while buckets split and compact.
//!
//! Every value says who wrote it and how many times that writer had written, so each reader can
//! tell on its own whether time went backwards for it. Batches give several keys of two keyspaces
//! the same stamp, so each snapshot can tell whether it saw half a batch.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use gabion::{Db, Durability, Engine, Keyspace, Snapshot, WriteBatch};
use gabion_media::{Disk, SimDisk, Tear};

use crate::support::{
    PanicContext, SeededRng, base_seed, engines_on_disks, setting, small_options, small_tuning,
};

const WRITERS: u64 = 4;
const READERS: u64 = 3;

/// Keys that a batch gives the same stamp, spread over the key space.
const STAMPED: [&str; 5] = ["00 stamp", "11 stamp", "22 stamp", "77 stamp", "zz stamp"];

/// Counts down when its thread ends, also by a panic, so that readers never wait for ever.
struct Leaves<'c>(&'c AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        // ORDER: Release pairs with the Acquire of the readers' loops.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Who wrote a value, and which of its writes it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    writer: u64,
    number: u64,
}

impl Stamp {
    fn value(self) -> Vec<u8> {
        let mut value = Vec::from(self.writer.to_le_bytes());
        value.extend(self.number.to_le_bytes());
        value.resize(16 + usize::try_from(self.number % 90).unwrap(), b'.');
        value
    }

    fn read(value: &[u8]) -> Stamp {
        let (writer, rest) = value.split_first_chunk().unwrap();
        let (number, rest) = rest.split_first_chunk().unwrap();
        let stamp = Stamp {
            writer: u64::from_le_bytes(*writer),
            number: u64::from_le_bytes(*number),
        };
        assert_eq!(stamp.value()[16..], *rest, "a value is whole");
        stamp
    }
}

/// The newest that one reader has seen of each key and writer.
#[derive(Default)]
struct Seen(HashMap<(Vec<u8>, u64), u64>);

impl Seen {
    fn see(&mut self, key: &[u8], stamp: Stamp) {
        let newest = self.0.entry((key.to_vec(), stamp.writer)).or_insert(0);
        let key = key.escape_ascii();
        assert!(
            stamp.number >= *newest,
            "{key}: {stamp:?} was read after number {newest}"
        );
        *newest = stamp.number;
    }
}

fn own_key(writer: u64, number: u64) -> String {
    format!("{:02} own {writer} {number:03}", number * 7 % 89)
}

fn shared_key(number: u64) -> String {
    format!("{:02} shared {number:03}", number * 11 % 89)
}

/// One writer: own keys, shared keys and stamped batches in turn.
fn write(writer: u64, db: &Db, other: &Keyspace, writes: u64, durability: Durability) {
    let mut random = SeededRng::new(base_seed() * 100 + writer);
    let keyspace = db.default_keyspace();
    for number in 1..=writes {
        let value = Stamp { writer, number }.value();
        match random.below(8) {
            0 => {
                let mut batch = WriteBatch::new();
                for key in STAMPED {
                    batch.put(keyspace, key, &value).unwrap();
                    batch.put(other, key, &value).unwrap();
                }
                db.write_with(batch, durability).unwrap();
            }
            1 => keyspace
                .put_with(shared_key(random.below(50)), &value, durability)
                .unwrap(),
            _ => keyspace
                .put_with(own_key(writer, number % 400), &value, durability)
                .unwrap(),
        }
    }
}

/// All stamped keys of both keyspaces have one stamp, however the snapshot is read.
fn assert_whole(snapshot: &Snapshot, keyspaces: [&Keyspace; 2], seen: &mut Seen) {
    let mut stamps = Vec::new();
    for keyspace in keyspaces {
        for key in STAMPED {
            stamps.push(
                snapshot
                    .get(keyspace, key)
                    .unwrap()
                    .map(|value| Stamp::read(&value)),
            );
        }
        let scanned = snapshot.iter(keyspace).map(Result::unwrap);
        let scanned = scanned.filter(|(key, _)| key.ends_with(b"stamp"));
        let scanned: Vec<_> = scanned
            .map(|(_, value)| Some(Stamp::read(&value)))
            .collect();
        let got: Vec<_> = stamps[stamps.len() - STAMPED.len()..].to_vec();
        let got: Vec<_> = got.into_iter().filter(Option::is_some).collect();
        assert_eq!(scanned, got, "scan and gets of a snapshot agree");
    }
    assert!(
        stamps.windows(2).all(|pair| pair[0] == pair[1]),
        "half a batch: {stamps:?}"
    );
    if let Some(stamp) = stamps[0] {
        STAMPED
            .iter()
            .for_each(|key| seen.see(key.as_bytes(), stamp));
    }
}

/// One reader, until the last writer has left.
fn read(reader: u64, db: &Db, other: &Keyspace, writers_left: &AtomicUsize) -> u64 {
    let mut random = SeededRng::new(base_seed() * 1000 + reader);
    let mut seen = Seen::default();
    let mut rounds = 0;
    let keyspace = db.default_keyspace();
    // ORDER: Acquire pairs with the Release of `Leaves`.
    while writers_left.load(Ordering::Acquire) > 0 {
        rounds += 1;
        for _ in 0..20 {
            let key = match random.below(3) {
                0 => STAMPED[random.index(STAMPED.len())].to_owned(),
                1 => shared_key(random.below(50)),
                _ => own_key(random.below(WRITERS), random.below(400)),
            };
            if let Some(value) = db.get(&key).unwrap() {
                seen.see(key.as_bytes(), Stamp::read(&value));
            }
        }
        match random.below(3) {
            0 => assert_whole(&db.snapshot(), [keyspace, other], &mut seen),
            1 => {
                let mut last = None;
                for pair in db.range("10".."60") {
                    let (key, value) = pair.unwrap();
                    assert!(last.as_ref() < Some(&key), "a scan is in order");
                    seen.see(&key, Stamp::read(&value));
                    last = Some(key);
                }
            }
            _ => {
                let snapshot = db.snapshot();
                let forward: Vec<_> = snapshot.iter(keyspace).map(Result::unwrap).collect();
                let mut backward: Vec<_> =
                    snapshot.iter(keyspace).rev().map(Result::unwrap).collect();
                backward.reverse();
                assert!(forward == backward, "both directions of a snapshot agree");
                for (key, value) in &forward {
                    seen.see(key, Stamp::read(value));
                }
            }
        }
    }
    rounds
}

/// Every own key holds the last stamp that its writer gave it.
fn assert_last_writes(db: &Db, writes: u64) {
    for writer in 0..WRITERS {
        let mut random = SeededRng::new(base_seed() * 100 + writer);
        let mut last = HashMap::new();
        for number in 1..=writes {
            match random.below(8) {
                0 => {}
                1 => {
                    random.below(50);
                }
                _ => {
                    last.insert(own_key(writer, number % 400), number);
                }
            }
        }
        for (key, number) in last {
            let found = db.get(&key).unwrap().map(|value| Stamp::read(&value));
            assert_eq!(found, Some(Stamp { writer, number }), "{key}");
        }
    }
}

#[test]
fn readers_never_see_time_go_back_nor_half_a_batch() {
    let writes = setting("GABION_WRITES", 3_000);
    let ways = [1, 2, 3].map(|threads| (Engine::Wip, threads));
    let ways = ways.into_iter().chain([(Engine::Flex, 2)]);
    for (round, (engine, threads)) in ways.enumerate() {
        let _context = PanicContext(|| format!("round {round}, {engine}, {threads} threads"));
        let dir = tempfile::tempdir().unwrap();
        let options = small_options()
            .engine(engine)
            .background_threads(threads)
            .tuning(
                small_tuning()
                    .concurrent_writers(threads != 2)
                    .memtable_budget_bytes(128 << 10)
                    .split_ways(2 + 3 * round),
            )
            .log_bytes_max(256 << 10);
        let db = options.clone().open(dir.path()).unwrap();
        let other = db.keyspace("other").unwrap();
        let writers_left = AtomicUsize::new(usize::try_from(WRITERS).unwrap());
        let rounds: u64 = std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (db, other, left) = (&db, &other, &writers_left);
                scope.spawn(move || {
                    let _leaves = Leaves(left);
                    write(writer, db, other, writes, Durability::Buffered);
                });
            }
            let reader = |reader| {
                let (db, other, left) = (&db, &other, &writers_left);
                scope.spawn(move || read(reader, db, other, left))
            };
            let readers: Vec<_> = (0..READERS).map(reader).collect();
            readers
                .into_iter()
                .map(|reader| reader.join().unwrap())
                .sum()
        });
        db.wait_idle().unwrap();
        assert_last_writes(&db, writes);
        let stats = db.stats();
        println!(
            "concurrent: {} writes, {rounds} rounds of reading, {} flushes, {} compactions, {} \
             splits",
            stats.writes, stats.flushes, stats.compactions, stats.splits
        );
        assert!(rounds > 0 && stats.flushes > 20);
        let restructured = stats.splits > 5 && stats.compactions > 20;
        assert!(engine == Engine::Flex || restructured);
        assert_eq!(stats.writes, WRITERS * writes);
        db.close().unwrap();
        drop(other);
        let db = options.open(dir.path()).unwrap();
        assert_last_writes(&db, writes);
        let other = db.existing_keyspace("other").unwrap();
        let whole = [db.default_keyspace(), &other];
        assert_whole(&db.snapshot(), whole, &mut Seen::default());
    }
}

/// Eight writers at `Sync`. After each acknowledgement a writer notes how many operations the disk
/// has done: a power cut at any later operation must leave its write.
#[test]
fn writers_who_share_a_sync_are_all_durable_when_they_are_told_so() {
    engines_on_disks().for_each(share_syncs);
}

fn share_syncs(engine: Engine) {
    const SYNCING: u64 = 8;
    let writes = setting("GABION_WRITES", 3_000) / 30;
    let sim = SimDisk::recording();
    let options = small_options()
        .engine(engine)
        .background_threads(2)
        .tuning(small_tuning().memtable_budget_bytes(128 << 10))
        .durability(Durability::Sync);
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let write = |writer: u64| {
        let mut acknowledged = Vec::new();
        for number in 1..=writes {
            let stamp = Stamp { writer, number };
            db.put(format!("{writer} {:02}", number % 10), stamp.value())
                .unwrap();
            acknowledged.push(sim.ops());
        }
        acknowledged
    };
    let acknowledged: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> = (0..SYNCING)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    db.close().unwrap();
    let mut random = SeededRng::new(base_seed());
    let last = acknowledged.iter().flatten().copied().max().unwrap();
    for image in 0..400 {
        let op = 1 + image * last / 400;
        let style = Tear::ALL[random.index(Tear::ALL.len())];
        let cut = random.word();
        let _context =
            PanicContext(|| format!("power cut {style:?} {cut:#x} after {op} of {last}"));
        let after = sim.power_cut(op, cut, style);
        let db = Db::open_on(Disk::simulated(&after), options.clone()).unwrap();
        for (writer, acknowledged) in (0..).zip(&acknowledged) {
            let mut found: Vec<u64> = Vec::new();
            for pair in db.prefix(format!("{writer} ")) {
                found.push(Stamp::read(&pair.unwrap().1).number);
            }
            found.sort_unstable();
            let newest = found.last().copied().unwrap_or(0);
            let least = acknowledged.iter().filter(|at| **at <= op).count() as u64;
            assert!(
                newest >= least,
                "writer {writer}: {newest} writes, {least} acknowledged"
            );
            // The ten keys hold the ten newest of the writer's first writes.
            let expected: Vec<u64> = (newest.saturating_sub(9).max(1)..=newest).collect();
            assert_eq!(found, expected, "writer {writer}: a prefix of its writes");
        }
    }
}

/// Single writes go side by side, with each other and with what needs to be alone: their own
/// groups, freezing, splits. Each writer sees its own writes at once, snapshots see every key go
/// forward only and never change, and the last writes come back.
#[test]
fn single_writes_side_by_side_are_seen_in_their_order() {
    let writes = setting("GABION_WRITES", 3_000) / 3;
    let key = |writer: u64| format!("writer-{writer}");
    let read = |value: Option<gabion::Slice>| {
        value.map_or(0, |value| {
            u64::from_le_bytes(*value.first_chunk().expect("eight bytes and more"))
        })
    };
    let ways = [
        (Engine::Wip, true),
        (Engine::Wip, false),
        (Engine::Flex, true),
    ];
    for (engine, side_by_side) in ways {
        let dir = tempfile::tempdir().unwrap();
        let options = small_options()
            .engine(engine)
            .background_threads(2)
            .tuning(
                small_tuning()
                    .concurrent_writers(side_by_side)
                    .memtable_budget_bytes(128 << 10)
                    // With buckets of the usual tests' size, the writers may come to wait for the
                    // syncs of thousands of tables of a few entries.
                    .bucket_bytes(24 << 10),
            )
            .log_bytes_max(256 << 10);
        let db = options.clone().open(dir.path()).unwrap();
        let writers_left = AtomicUsize::new(usize::try_from(WRITERS).unwrap());
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (db, left) = (&db, &writers_left);
                scope.spawn(move || {
                    let _leaves = Leaves(left);
                    for number in 1..=writes {
                        let value = [number.to_le_bytes(), [7; 8]].concat();
                        db.put(key(writer), &value).unwrap();
                        assert_eq!(read(db.get(key(writer)).unwrap()), number);
                        // All writers write to one key, which must never lose a version's order.
                        db.put("shared", &value).unwrap();
                        let other = format!("{:04x}-{writer}", number * 0x9E37 % 0x10000);
                        db.put(other, vec![1; 80]).unwrap();
                        if number % 64 == writer {
                            let mut batch = WriteBatch::new();
                            batch.put(db.default_keyspace(), "shared", &value).unwrap();
                            batch
                                .put(db.default_keyspace(), key(writer), &value)
                                .unwrap();
                            db.write(batch).unwrap();
                        }
                    }
                });
            }
            scope.spawn(|| {
                let mut seen = vec![0; usize::try_from(WRITERS).unwrap()];
                // ORDER: Acquire pairs with the Release of the writers' end.
                while writers_left.load(Ordering::Acquire) > 0 {
                    let snapshot = db.snapshot();
                    let shared = snapshot.get(db.default_keyspace(), "shared").unwrap();
                    for (writer, seen) in (0..WRITERS).zip(&mut seen) {
                        let now = read(snapshot.get(db.default_keyspace(), key(writer)).unwrap());
                        assert!(
                            now >= *seen,
                            "writer {writer} went back from {seen} to {now}"
                        );
                        *seen = now;
                    }
                    assert_eq!(
                        snapshot.get(db.default_keyspace(), "shared").unwrap(),
                        shared
                    );
                }
            });
        });
        let stats = db.stats();
        println!(
            "side by side: {} flushes, {} compactions, {} splits",
            stats.flushes, stats.compactions, stats.splits
        );
        // Only WipDB has buckets to split.
        let splits = engine == Engine::Wip;
        assert!(
            stats.flushes > 0 && (stats.splits > 0) == splits,
            "{stats:?}"
        );
        drop(db);
        let db = options.open(dir.path()).unwrap();
        for writer in 0..WRITERS {
            assert_eq!(read(db.get(key(writer)).unwrap()), writes);
        }
        assert_eq!(read(db.get("shared").unwrap()), writes);
    }
}
