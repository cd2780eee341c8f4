//! What is kept of all buckets is what a look at all of them finds, and work is in proportion to
//! what changes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion_media::seeded::{SeededRng, each_seed, setting};
use gabion_media::{Disk, SimDisk};

use crate::Tuning;
use crate::engine::ssd::{CommitWrites, Lifecycle};
use crate::engine::wip::policy::space::{SpaceTotals, SpaceUsage};
use crate::engine::wip::{Wip, WipKeyspace, WipScan, Write};
use crate::expiry::ReadPoint;
use crate::types::Kind;
use crate::{Clock, Options};

/// The buckets that were looked at so far.
fn visited(engine: &Wip) -> usize {
    // ORDER: Relaxed; a figure that orders nothing.
    engine.visits.load(Ordering::Relaxed)
}

/// The sums that a look at all buckets finds: scaled runs of the fullest level 0, bytes of tables,
/// and the space of all.
fn walk(engine: &Wip) -> (usize, u64, SpaceTotals) {
    let (mut runs, mut table_bytes, mut space) = (0, 0, SpaceUsage::default());
    let mut shared: HashMap<u64, u64> = HashMap::new();
    for (_, bucket) in engine.buckets() {
        let state = bucket.state.load_full();
        let width = bucket.sizing.width(&engine.options);
        runs = runs.max(width.scaled(0, state.levels.level(0).len()));
        space.add(&engine.space_of(&bucket, &state.levels).unwrap());
        for file in state.levels.files() {
            table_bytes += file.meta.file_bytes;
            if !bucket.contains(&file.meta.smallest, &file.meta.largest) {
                let left = shared.entry(file.meta.file).or_insert(file.meta.file_bytes);
                *left = left.saturating_sub(file.bytes_in(&bucket).unwrap());
            }
        }
    }
    let files = &engine.versions.lock().manifest.state().files.clone();
    let mut totals = SpaceTotals {
        buckets: space,
        table_bytes: files.values().map(|file| file.meta.file_bytes).sum(),
        orphaned: shared.values().sum(),
        may_shrink: false,
    };
    *engine.totals.lock() = totals;
    totals.may_shrink = engine.buckets().iter().any(|(_, bucket)| {
        let state = bucket.state.load_full();
        let facts = engine.facts(bucket, &state, 0).unwrap();
        facts
            .worthwhile_garbage(&engine.circumstances(false))
            .is_some()
    });
    (runs, table_bytes, totals)
}

/// Compares what is kept with what a look at all buckets finds.
fn check(engine: &Wip) {
    let kept = engine.space_totals().unwrap();
    let (runs, table_bytes, walked) = walk(engine);
    let parts = |totals: &SpaceTotals| {
        let SpaceUsage {
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

fn write(engine: &Wip, keyspace: &WipKeyspace, kind: Kind, key: &[u8], value: &[u8]) {
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
            let mut random = SeededRng::new(seed);
            let options = Options::default()
                .background_threads(0)
                .tuning(
                    Tuning::default()
                        .clock(Clock::manual())
                        .memtable_budget_bytes(96 << 10)
                        .bucket_bytes(24 << 10),
                )
                .log_bytes_max(512 << 10);
            let sim = SimDisk::new();
            let mut engine = Wip::open(Disk::simulated(&sim), options.clone()).unwrap();
            let mut snapshots = Vec::new();
            for step in 0..1500 {
                let name = format!("keyspace {}", random.below(6));
                let keyspace = engine.create_keyspace(&name).unwrap();
                let key = random.below(400).swap_bytes().to_le_bytes();
                match random.below(60) {
                    0 => engine.flush().unwrap(),
                    1 => assert!(engine.drop_keyspace(&name).unwrap()),
                    2 => {
                        let upper = (random.below(100) + 400).swap_bytes().to_le_bytes();
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

/// A keyspace's buckets were touched before it left: who looked in between counted their runs, and
/// nobody ever took them away again. Writers waited for ever for a compaction of what was gone.
#[test]
fn what_is_kept_has_nothing_of_keyspaces_that_left_beside_a_look() {
    let options = Options::default()
        .background_threads(0)
        .tuning(Tuning::default().memtable_budget_bytes(1 << 20));
    let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // ORDER: Relaxed; it only ends the loop.
            while !done.load(Ordering::Relaxed) {
                engine.look_at_touched().unwrap();
            }
        });
        for round in 0..setting("GABION_LEDGER_DROPS", 400) {
            let name = format!("keyspace {round}");
            let keyspace = engine.create_keyspace(&name).unwrap();
            write(&engine, &keyspace, Kind::Put, b"key", b"value");
            engine.flush().unwrap();
            assert!(engine.drop_keyspace(&name).unwrap());
        }
        // ORDER: Relaxed, as above.
        done.store(true, Ordering::Relaxed);
    });
    check(&engine);
    engine.close().unwrap();
}

/// The buckets that are looked at while so many keyspaces are written and flushed twice, come to
/// rest, are opened again, and half of them dropped, some with writes in memory.
fn visits(count: usize) -> usize {
    let sim = SimDisk::new();
    // Threads take a step each time that they are woken, so what they look at varies.
    let options = Options::default()
        .background_threads(0)
        .tuning(Tuning::default().clock(Clock::manual()));
    let engine = Wip::open(Disk::simulated(&sim), options.clone()).unwrap();
    let name = |number: usize| format!("keyspace {number}");
    let all: Vec<Arc<WipKeyspace>> = (0..count)
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
    let (few, many) = (visits(250), visits(1000));
    println!("{few} visits of 250 keyspaces, {many} of 1000");
    assert!(2 * many <= 9 * few, "{few} visits of 250, {many} of 1000");
}

/// The first key from `lower` on, below `upper`, for a reader at `seq`.
fn first(
    engine: &Arc<Wip>,
    keyspace: &WipKeyspace,
    seq: ReadPoint,
    lower: &[u8],
    upper: Option<&[u8]>,
) -> Option<Vec<u8>> {
    engine.share_snapshot(seq);
    let upper = upper.map_or(Bound::Unbounded, Bound::Excluded);
    let store = Arc::<Wip>::clone(engine);
    let mut scan = WipScan::new(store, keyspace, seq, Bound::Included(lower), upper);
    scan.advance().unwrap().then(|| scan.key().to_vec())
}

/// The head of a queue was found behind the tombstones of all that was taken from it: the more
/// were taken, the longer it took, up to 150 ms after a million.
#[test]
fn the_head_of_a_queue_is_found_in_few_steps() {
    for (form, flushes) in [(1, false), (2, true)] {
        let sim = SimDisk::new();
        let options = Options::default().background_threads(0).tuning(
            Tuning::default()
                .bucket_bytes(256 << 10)
                .memtable_budget_bytes(if flushes { 256 << 10 } else { 64 << 20 }),
        );
        let engine = &Wip::open(Disk::simulated(&sim), options).unwrap();
        let keyspace = engine.create_keyspace("queue").unwrap();
        let (mut tail, mut queue, mut steps, mut most) = (0_u64, VecDeque::new(), 0, 0);
        let mut push = |queue: &mut VecDeque<u64>| {
            engine.put_for_tests(&keyspace, &tail.swap_bytes().to_le_bytes(), &[7; 100]);
            queue.push_back(tail);
            tail += 1;
        };
        (0..4_000).for_each(|_| push(&mut queue));
        let pops = 12_000;
        for number in 0..pops {
            if number % 2 == 0 || queue.len() < 2 {
                push(&mut queue);
            }
            let before = visited(engine);
            let seq = engine.begin_snapshot();
            let head = first(engine, &keyspace, seq, b"", None);
            engine.end_snapshot(seq);
            let taken = visited(engine) - before;
            assert_eq!(
                head,
                queue
                    .pop_front()
                    .map(|head| head.swap_bytes().to_le_bytes().to_vec())
            );
            write(engine, &keyspace, Kind::Delete, &head.unwrap(), &[]);
            steps += taken;
            most = most.max(taken);
        }
        println!("form {form}: {steps} steps of {pops} pops, {most} at most");
        assert!(steps <= pops * 40, "{steps} steps of {pops} pops");
        engine.close().unwrap();
    }
}

#[test]
fn scans_beside_gaps_find_what_a_map_holds() {
    let seeds = setting("GABION_GAP_SEEDS", 8);
    each_seed(
        1,
        |number| number < seeds,
        |seed| {
            println!("seed {seed}");
            let mut random = SeededRng::new(seed);
            let options = Options::default().background_threads(0).tuning(
                Tuning::default()
                    .memtable_budget_bytes(64 << 10)
                    .bucket_bytes(16 << 10),
            );
            let sim = SimDisk::new();
            let engine = &Wip::open(Disk::simulated(&sim), options).unwrap();
            let keyspace = engine.create_keyspace("keyspace").unwrap();
            let mut map: BTreeMap<Vec<u8>, ()> = BTreeMap::new();
            let mut snapshots = Vec::new();
            let key =
                |random: &mut SeededRng| random.below(1_500).swap_bytes().to_le_bytes().to_vec();
            for _ in 0..6_000 {
                match random.below(40) {
                    0..4 => {
                        let key = key(&mut random);
                        write(engine, &keyspace, Kind::Put, &key, &[7; 40]);
                        map.insert(key, ());
                    }
                    4 => {
                        let (lower, count) = (random.below(1_500), random.below(300) + 1);
                        let upper = (lower + count).swap_bytes().to_le_bytes();
                        write(
                            engine,
                            &keyspace,
                            Kind::DeleteRange,
                            &lower.swap_bytes().to_le_bytes(),
                            &upper,
                        );
                        map.retain(|key, ()| {
                            key[..] < lower.swap_bytes().to_le_bytes()[..] || key[..] >= upper[..]
                        });
                    }
                    5 => {
                        let (from, count) = (random.below(1_500), random.below(200));
                        for number in from..from + count {
                            engine.put_for_tests(
                                &keyspace,
                                &number.swap_bytes().to_le_bytes(),
                                &[8; 40],
                            );
                            map.insert(number.swap_bytes().to_le_bytes().to_vec(), ());
                        }
                    }
                    6 => snapshots.push((engine.begin_snapshot(), map.clone())),
                    7 if !snapshots.is_empty() => {
                        let (seq, _) = snapshots.swap_remove(random.index(snapshots.len()));
                        engine.end_snapshot(seq);
                    }
                    8 if random.below(8) == 0 => engine.flush().unwrap(),
                    9 if random.below(8) == 0 => {
                        engine.compact_range(&keyspace, b"", None).unwrap();
                    }
                    10 if random.below(4) == 0 => {
                        let mut ingest = engine.ingest(&keyspace).unwrap();
                        let from = random.below(1_500);
                        for number in from..from + random.below(40) + 1 {
                            ingest
                                .add(&number.swap_bytes().to_le_bytes(), &[9; 40])
                                .unwrap();
                            map.insert(number.swap_bytes().to_le_bytes().to_vec(), ());
                        }
                        ingest.finish(0).unwrap();
                    }
                    11 if random.below(8) == 0 => engine.wait_idle().unwrap(),
                    // What a queue does, from anywhere.
                    _ => {
                        let (from, now) = (key(&mut random), engine.begin_snapshot());
                        let from = if random.below(2) == 0 {
                            Vec::new()
                        } else {
                            from
                        };
                        let to = from.first().map(|_| key(&mut random));
                        let to = to.filter(|to| *to > from);
                        for _ in 0..random.below(40) {
                            let seq = engine.begin_snapshot();
                            let found = first(engine, &keyspace, seq, &from, to.as_deref());
                            engine.end_snapshot(seq);
                            let mut rest = map.range(from.clone()..).map(|(key, ())| key);
                            let expected = rest.next().cloned();
                            let expected =
                                expected.filter(|key| to.as_ref().is_none_or(|to| key < to));
                            assert_eq!(found, expected);
                            let Some(found) = found else { break };
                            write(engine, &keyspace, Kind::Delete, &found, &[]);
                            map.remove(&found);
                        }
                        engine.end_snapshot(now);
                        if let Some((seq, map)) = snapshots.first() {
                            let found = first(engine, &keyspace, *seq, &from, None);
                            let expected = map.range(from..).next().map(|(key, ())| key.clone());
                            assert_eq!(found, expected, "a snapshot");
                        }
                    }
                }
            }
            snapshots
                .into_iter()
                .for_each(|(seq, _)| engine.end_snapshot(seq));
            engine.close().unwrap();
        },
    );
}

/// Several threads push and pop: nothing is passed over, and each taker sees its own queue in
/// order.
#[test]
fn nothing_is_lost_of_queues_that_many_use() {
    const QUEUES: u8 = 3;
    let items = setting("GABION_QUEUE_ITEMS", 6_000);
    let options = Options::default().background_threads(2).tuning(
        Tuning::default()
            .bucket_bytes(256 << 10)
            .memtable_budget_bytes(1 << 20),
    );
    let sim = SimDisk::new();
    let engine = Wip::open(Disk::simulated(&sim), options).unwrap();
    let keyspace = engine.create_keyspace("queues").unwrap();
    let key = |queue: u8, number: u64| [&[queue][..], &number.swap_bytes().to_le_bytes()].concat();
    std::thread::scope(|scope| {
        let (engine, keyspace) = (&engine, &keyspace);
        for queue in 0..QUEUES {
            scope.spawn(move || {
                for number in 0..items {
                    let key = key(queue, number);
                    engine.put_for_tests(keyspace, &key, &[7; 60]);
                }
            });
            scope.spawn(move || {
                let mut next = 0;
                while next < items {
                    let seq = engine.begin_snapshot();
                    let found = first(engine, keyspace, seq, &[queue], Some(&[queue + 1]));
                    engine.end_snapshot(seq);
                    match found {
                        Some(found) => {
                            assert_eq!(found, key(queue, next));
                            write(engine, keyspace, Kind::Delete, &found, &[]);
                            next += 1;
                        }
                        None => std::thread::yield_now(),
                    }
                }
            });
        }
    });
    engine.close().unwrap();
}
