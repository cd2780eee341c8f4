//! Replays by several threads: what a store says does not depend on how many there are.

use std::collections::BTreeMap;
use std::ops::Bound;

use gabion_media::seeded::SeededRng;
use gabion_media::{Disk, SimDisk};

use super::super::readpath::scan::WipScan;
use super::super::{Wip, WipKeyspace, Write};
use super::*;
use crate::engine::ssd::CommitWrites;
use crate::log::BatchEncoder;
use crate::{AddI64, KeyspaceOptions, Tuning};

/// Keys of each keyspace: few, so that most are overwritten in the log.
const KEYS: u64 = 1_500;

const NAMES: [&str; 3] = ["one", "another", "third"];

type Twin = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// Small buckets; the log is kept, and MemTables are flushed when somebody asks for it.
fn options() -> Options {
    Options::default()
        .background_threads(0)
        .tuning(
            Tuning::default()
                .bucket_bytes(8 << 10)
                .memtable_budget_bytes(64 << 20),
        )
        .log_bytes_max(2 << 20)
}

fn open(sim: &SimDisk, threads: usize) -> Arc<Wip> {
    Wip::open_by_threads(Disk::simulated(sim), options(), Some(threads)).unwrap()
}

fn keyspaces(engine: &Wip) -> Vec<Arc<WipKeyspace>> {
    let keyspaces = NAMES.map(|name| engine.create_keyspace(name).unwrap());
    keyspaces.into()
}

/// Adds a random operation to a batch and does it in the twin.
fn add(random: &mut SeededRng, batch: &mut BatchEncoder, keyspace: u32, twin: &mut Twin) {
    let number = random.below(KEYS);
    match random.below(3_000) {
        0 => {
            let upper = key(number + random.below(KEYS / 2));
            batch.op(Kind::DeleteRange, keyspace, &key(number), &upper);
            twin.retain(|other, _| *other < key(number) || *other >= upper);
        }
        1..300 => {
            batch.op(Kind::Delete, keyspace, &key(number), b"");
            twin.remove(&key(number));
        }
        _ => {
            let value = vec![random.word().to_le_bytes()[0]; random.index(60)];
            batch.op(Kind::Put, keyspace, &key(number), &value);
            twin.insert(key(number), value);
        }
    }
}

/// Writes batches, most of them of one operation.
fn write(random: &mut SeededRng, engine: &Wip, twins: &mut [Twin], operations: u64) {
    let keyspaces = keyspaces(engine);
    let mut written = 0;
    while written < operations {
        let mut batch = BatchEncoder::default();
        let count = match random.below(10) {
            0 => 1 + random.below(300),
            _ => 1,
        };
        for _ in 0..count {
            let at = random.index(NAMES.len());
            add(random, &mut batch, keyspaces[at].id, &mut twins[at]);
        }
        engine.write(Write::Batch(&batch), 0, false).unwrap();
        written += count;
    }
}

/// Sorted pairs, some of them of keys that the log has.
fn ingest(random: &mut SeededRng, engine: &Wip, twins: &mut [Twin]) {
    let at = random.index(NAMES.len());
    let keyspace = &keyspaces(engine)[at];
    let mut ingest = engine.ingest(keyspace).unwrap();
    let first = random.below(KEYS);
    for number in first..first + 100 {
        ingest.add(&key(number), b"ingested").unwrap();
        twins[at].insert(key(number), b"ingested".to_vec());
    }
    ingest.finish(0).unwrap();
}

/// All that a store says: by scans from both ends, which must agree, and by gets.
fn read(engine: &Arc<Wip>, keyspace: &WipKeyspace) -> Twin {
    let scan = || {
        let store = Arc::<Wip>::clone(engine);
        let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
        WipScan::new(store, keyspace, engine.begin_snapshot(), lower, upper)
    };
    let mut forward = Vec::new();
    let mut front = scan();
    while front.advance().unwrap() {
        forward.push((front.key().to_vec(), front.value_bytes().to_vec()));
    }
    let mut backward = Vec::new();
    let mut back = scan();
    while let Some((key, value)) = back.next_back().unwrap() {
        backward.push((key.to_vec(), value.to_vec()));
    }
    backward.reverse();
    assert_eq!(forward, backward);
    let found: Twin = forward.into_iter().collect();
    for number in 0..KEYS + 100 {
        let value = engine.get(keyspace, &key(number), None).unwrap();
        assert_eq!(value.as_deref(), found.get(&key(number)).map(Vec::as_slice));
    }
    found
}

fn assert_same(engine: &Arc<Wip>, twins: &[Twin]) {
    for (keyspace, twin) in keyspaces(engine).iter().zip(twins) {
        assert!(read(engine, keyspace) == *twin, "{}", keyspace.name);
    }
}

/// A write that a table has may be above what its bucket says to be flushed, where pairs were
/// ingested. A merge of which the table has folded its base must not come back above it.
#[test]
fn a_write_that_a_table_has_is_not_replayed() {
    let engine = open(&SimDisk::new(), 0);
    let counters = KeyspaceOptions::default().merge(AddI64);
    let keyspace = engine.keyspace_with("counters", Some(&counters)).unwrap();
    for number in 0..3_i64 {
        let write = Write::Single {
            keyspace: &keyspace,
            kind: Kind::Operand,
            key: b"key",
            value: &number.to_le_bytes(),
        };
        engine.write(write, 0, false).unwrap();
    }
    engine.flush().unwrap();
    let last = engine.visible();
    let has = |in_tables, key: &[u8], seq| {
        let target = Target::new(&keyspace, keyspace.router.load_full(), vec![in_tables]);
        let operation = LogOp {
            seq,
            kind: Kind::Merge,
            keyspace: keyspace.id,
            key,
            value: &[],
        };
        target.has(0, hash_key(key), &operation).unwrap()
    };
    let ingested = (0, last + 2);
    assert!(has(ingested, b"key", last) && has(ingested, b"key", last - 1));
    assert!(!has(ingested, b"key", last + 1) && !has(ingested, b"other", last));
    // Where nothing was ingested, what is flushed says it alone.
    assert!(has((last, last), b"other", last) && !has((0, last), b"key", last));
}

/// What the MemTables say of themselves.
fn pins(engine: &Wip) -> Vec<(u64, Option<u64>, Seq, usize)> {
    let buckets = engine.buckets().into_iter().map(|(_, bucket)| {
        let active = Arc::clone(&bucket.state.load().active);
        (bucket.id, active.pin(), active.max_seq(), active.keys())
    });
    buckets.collect()
}

#[test]
fn a_store_says_the_same_however_many_threads_replay_its_log() {
    for seed in 0..6 {
        let mut random = SeededRng::new(seed);
        let sim = SimDisk::new();
        let mut twins = vec![Twin::new(); NAMES.len()];
        let engine = open(&sim, 0);
        write(&mut random, &engine, &mut twins, 4_000);
        engine.flush().unwrap();
        engine.wait_idle().unwrap();
        for _ in 0..3 {
            write(&mut random, &engine, &mut twins, 4_000);
            ingest(&mut random, &engine, &mut twins);
        }
        write(&mut random, &engine, &mut twins, 4_500);
        if seed % 2 == 1 {
            // The log has writes to it, in batches with others, and to another one of its name.
            assert!(engine.drop_keyspace(NAMES[1]).unwrap());
            twins[1].clear();
        }
        write(&mut random, &engine, &mut twins, 4_500);
        let segments = sim
            .names()
            .iter()
            .filter(|name| name.ends_with(".log"))
            .count();
        assert!(segments > 2, "{segments} segments");
        let buckets = keyspaces(&engine)[0].router.load().buckets().len();
        assert!(buckets > 4, "{buckets} buckets");
        let left = sim.process_kill(sim.ops());
        drop(engine);

        let mut expected = None;
        for threads in [0, 1, 2, 5] {
            let sim = left.process_kill(left.ops());
            let engine = open(&sim, threads);
            assert_same(&engine, &twins);
            let found = (engine.visible(), pins(&engine));
            assert_eq!(
                *expected.get_or_insert(found.clone()),
                found,
                "{threads} threads"
            );

            // It goes on as any store does, and is killed again, before and after a flush.
            let (mut random, mut twins) = (SeededRng::new(seed), twins.clone());
            write(&mut random, &engine, &mut twins, 3_000);
            let again = open(&sim.process_kill(sim.ops()), threads);
            assert_same(&again, &twins);
            engine.flush().unwrap();
            engine.wait_idle().unwrap();
            write(&mut random, &engine, &mut twins, 300);
            let again = open(&sim.process_kill(sim.ops()), 5 - threads);
            assert_same(&again, &twins);
            again.close().unwrap();
            assert_same(&open(&sim.process_kill(sim.ops()), threads), &twins);
        }
    }
}
