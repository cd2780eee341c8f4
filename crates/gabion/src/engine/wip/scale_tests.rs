//! What is kept of all buckets is what a look at all of them finds, and work is in proportion to
//! what changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gabion_media::seeded::{Random, each_seed, setting};
use gabion_media::{Disk, SimDisk};

use super::space::{Space, Totals};
use super::split::slice_bytes;
use super::{Keyspace, Wip, Write};
use crate::types::Kind;
use crate::{Clock, Options};

/// The buckets that were looked at so far.
fn visited(engine: &Wip) -> usize {
    // ORDER: Relaxed; a figure that orders nothing.
    engine.visits.load(Ordering::Relaxed)
}

/// The sums that a look at all buckets finds: runs of the fullest level 0, bytes of tables, and
/// the space of all.
fn walk(engine: &Wip) -> (usize, u64, Totals) {
    let (mut runs, mut table_bytes, mut space) = (0, 0, Space::default());
    let mut shared: HashMap<u64, u64> = HashMap::new();
    for (_, bucket) in engine.buckets() {
        let state = bucket.state.load_full();
        runs = runs.max(state.levels.level(0).len());
        space.add(&engine.space_of(&bucket, &state).unwrap());
        for file in state.levels.files() {
            table_bytes += file.meta.file_bytes;
            if !bucket.contains(&file.meta.smallest, &file.meta.largest) {
                let left = shared.entry(file.meta.file).or_insert(file.meta.file_bytes);
                *left = left.saturating_sub(slice_bytes(&bucket, file).unwrap());
            }
        }
    }
    let files = &engine.versions.lock().manifest.state().files.clone();
    let mut totals = Totals {
        buckets: space,
        table_bytes: files.values().map(|file| file.meta.file_bytes).sum(),
        orphaned: shared.values().sum(),
        may_shrink: false,
    };
    *engine.totals.lock() = totals;
    totals.may_shrink = engine.buckets().iter().any(|(_, bucket)| {
        let state = bucket.state.load_full();
        engine.worthwhile_garbage(bucket, &state).unwrap().is_some()
    });
    (runs, table_bytes, totals)
}

/// Compares what is kept with what a look at all buckets finds.
fn check(engine: &Wip) {
    let kept = engine.space_totals().unwrap();
    let (runs, table_bytes, walked) = walk(engine);
    let parts = |totals: &Totals| {
        let Space {
            bytes,
            live,
            live_min,
            deleted,
            tombstones,
            entries,
            ..
        } = totals.buckets;
        let sums = [bytes, live, live_min, deleted, tombstones, entries];
        (sums, totals.table_bytes, totals.orphaned, totals.may_shrink)
    };
    assert_eq!(parts(&kept), parts(&walked));
    assert_eq!(engine.table_bytes.get(), table_bytes);
    assert_eq!(engine.throttle.runs_max_for_tests(), runs);

    let mut written = BTreeMap::new();
    // ORDER: Relaxed; no other thread changes it.
    let mut tail = engine.published_segment.load(Ordering::Relaxed);
    for (_, bucket) in engine.buckets() {
        let state = bucket.state.load_full();
        if !state.active.is_empty() {
            written.insert(bucket.id, bucket.written_since());
        }
        let pins = state.memtables().filter_map(|table| table.pin());
        tail = pins.fold(tail, u64::min);
    }
    assert!(written.values().all(Option::is_some));
    let listed = engine.written.buckets();
    assert_eq!(listed.len(), written.len());
    assert!(listed.iter().all(|of| written.contains_key(&of.id)));
    assert_eq!(engine.log_tail([]), tail);
    assert_eq!(engine.bucket_count(), engine.buckets().len());
}

fn write(engine: &Wip, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
    let write = Write::Single {
        keyspace,
        kind,
        key,
        value,
    };
    let bytes = key.len() + value.len();
    engine.write(write, bytes as u64, false).unwrap();
}

#[test]
fn what_is_kept_of_all_buckets_is_what_a_look_at_all_finds() {
    let seeds = setting("GABION_LEDGER_SEEDS", 6);
    each_seed(
        1,
        |number| number < seeds,
        |seed| {
            println!("seed {seed}");
            let mut random = Random::new(seed);
            let options = Options::default()
                .background_threads(0)
                .clock(Clock::manual())
                .memtable_budget_bytes(96 << 10)
                .bucket_bytes(24 << 10)
                .log_bytes_max(512 << 10);
            let sim = SimDisk::new();
            let mut engine = Wip::open(Disk::simulated(&sim), options.clone()).unwrap();
            let mut snapshots = Vec::new();
            for step in 0..1500 {
                let name = format!("keyspace {}", random.below(6));
                let keyspace = engine.create_keyspace(&name).unwrap();
                let key = random.below(400).to_be_bytes();
                match random.below(60) {
                    0 => engine.flush().unwrap(),
                    1 => assert!(engine.drop_keyspace(&name).unwrap()),
                    2 => {
                        let upper = (random.below(100) + 400).to_be_bytes();
                        write(&engine, &keyspace, Kind::DeleteRange, &key, &upper);
                    }
                    3 => snapshots.push(engine.begin_snapshot()),
                    4 if !snapshots.is_empty() => {
                        engine.end_snapshot(snapshots.swap_remove(random.index(snapshots.len())));
                    }
                    5 => engine.compact_range(&keyspace, b"", None).unwrap(),
                    6 => engine.wait_idle().unwrap(),
                    7 if snapshots.is_empty() => {
                        engine.close().unwrap();
                        engine = Wip::open(Disk::simulated(&sim), options.clone()).unwrap();
                    }
                    8..20 => write(&engine, &keyspace, Kind::Delete, &key, &[]),
                    _ => {
                        let value = vec![7; random.index(700)];
                        write(&engine, &keyspace, Kind::Put, &key, &value);
                    }
                }
                if step % 20 == 0 {
                    check(&engine);
                }
            }
            snapshots
                .into_iter()
                .for_each(|seq| engine.end_snapshot(seq));
            engine.close().unwrap();
        },
    );
}

/// The buckets that are looked at while so many keyspaces are written and flushed twice, come to
/// rest, are opened again, and half of them dropped, some with writes in memory.
fn visits(count: usize, threads: usize) -> usize {
    let sim = SimDisk::new();
    let options = Options::default()
        .background_threads(threads)
        .clock(Clock::manual());
    let engine = Wip::open(Disk::simulated(&sim), options.clone()).unwrap();
    let name = |number: usize| format!("keyspace {number}");
    let all: Vec<Arc<Keyspace>> = (0..count)
        .map(|number| engine.create_keyspace(&name(number)).unwrap())
        .collect();
    for _ in 0..2 {
        for keyspace in &all {
            engine.put_for_tests(keyspace, b"key", b"value");
        }
        engine.flush().unwrap();
    }
    let so_far = |what| println!("  {what}: {}", visited(&engine));
    so_far("flushes");
    engine.wait_idle().unwrap();
    so_far("rest");
    for keyspace in &all {
        engine.put_for_tests(keyspace, b"key", b"another");
    }
    so_far("puts");
    engine.close().unwrap();
    let mut visits = visited(&engine);
    let engine = Wip::open(Disk::simulated(&sim), options).unwrap();
    for number in (0..count).step_by(2) {
        assert!(engine.drop_keyspace(&name(number)).unwrap());
    }
    println!("  drops: {}", visits + visited(&engine));
    // One write at a time, each of them flushed.
    let keyspace = engine.create_keyspace(&name(1)).unwrap();
    for _ in 0..count {
        engine.put_for_tests(&keyspace, b"key", b"value");
        engine.flush().unwrap();
    }
    visits += visited(&engine);
    println!("  all: {visits}");
    engine.close().unwrap();
    visits
}

/// The background looked at all buckets after each of its jobs: a flush of 4,000 keyspaces took 40
/// times as long as one of 1,000, and one of 10,000 did not end. So did a drop, and, without
/// threads, a put.
#[test]
fn work_is_in_proportion_to_what_changes() {
    for threads in [0, 2] {
        let (few, many) = (visits(250, threads), visits(1000, threads));
        println!("{threads} threads: {few} visits of 250 keyspaces, {many} of 1000");
        assert!(2 * many <= 9 * few, "{few} visits of 250, {many} of 1000");
    }
}
