//! Work is in proportion to what it is for: no tombstone is stepped over again and again, and no
//! reader pays for all others.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use gabion_media::seeded::{SeededRng, each_seed, setting};
use gabion_media::{Disk, SimDisk};

use super::commit::LOOKS;
use super::memory_ceiling::FITTED;
use super::scan::STEPS;
use super::{Flex, FlexKeyspace, FlexScan, Write};
use crate::engine::snapshots::COLLECTED;
use crate::engine::ssd::{CommitWrites, Lifecycle};
use crate::expiry::ReadPoint;
use crate::log::BatchEncoder;
use crate::types::Kind;
use crate::{Options, Tuning};

fn write(engine: &Flex, keyspace: &FlexKeyspace, kind: Kind, key: &[u8], value: &[u8]) {
    let write = Write::Single {
        keyspace,
        kind,
        key,
        value,
    };
    let bytes = key.len() + value.len();
    engine.write(write, bytes as u64, false).unwrap();
}

/// A key; keys ascend as their numbers do.
fn key(number: u64) -> [u8; 8] {
    number.swap_bytes().to_le_bytes()
}

/// The first key from `lower` on, below `upper`, for a reader at `seq`; or the last one.
fn end_key(
    engine: &Arc<Flex>,
    keyspace: &Arc<FlexKeyspace>,
    seq: ReadPoint,
    (lower, upper): (&[u8], Option<&[u8]>),
    is_front: bool,
) -> Option<Vec<u8>> {
    engine.share_snapshot(seq);
    let upper = upper.map_or(Bound::Unbounded, Bound::Excluded);
    let store = Arc::<Flex>::clone(engine);
    let mut scan = FlexScan::new(store, keyspace, seq, Bound::Included(lower), upper);
    match is_front {
        true => scan.advance().unwrap().then(|| scan.key().to_vec()),
        false => scan.next_back().unwrap().map(|(key, _)| key.to_vec()),
    }
}

/// The first key of all for who reads now, or the last one.
fn newest_end_key(
    engine: &Arc<Flex>,
    keyspace: &Arc<FlexKeyspace>,
    is_front: bool,
) -> Option<Vec<u8>> {
    let seq = engine.begin_snapshot();
    let found = end_key(engine, keyspace, seq, (b"", None), is_front);
    engine.end_snapshot(seq);
    found
}

/// Steps over keys that are gone.
fn steps_of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = STEPS.get();
    let result = work();
    (result, STEPS.get() - before)
}

/// The head of a queue was found behind the tombstones of all that was taken from it: the more
/// were taken, the longer it took, until the MemTables were full.
#[test]
fn the_head_of_a_queue_is_found_in_few_steps() {
    for (budget, pushed_first) in [(64 << 20, false), (256 << 10, false), (64 << 20, true)] {
        let options = Options::default()
            .background_threads(0)
            .tuning(Tuning::default().memtable_budget_bytes(budget));
        let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("queue").unwrap();
        let (mut tail, mut queue, mut steps) = (0_u64, VecDeque::new(), 0);
        let mut push = |queue: &mut VecDeque<u64>| {
            write(&engine, &keyspace, Kind::Put, &key(tail), &[7; 100]);
            queue.push_back(tail);
            tail += 1;
        };
        let pops = 12_000;
        (0..4_000).for_each(|_| push(&mut queue));
        if pushed_first {
            (0..pops).for_each(|_| push(&mut queue));
            engine.flush().unwrap();
        }
        for number in 0..pops {
            if number % 2 == 0 || queue.len() < 2 {
                push(&mut queue);
            }
            let (head, taken) = steps_of(|| newest_end_key(&engine, &keyspace, true));
            let expected = queue.pop_front().map(|head| key(head).to_vec());
            assert_eq!(head, expected);
            write(&engine, &keyspace, Kind::Delete, &head.unwrap(), &[]);
            steps += taken;
        }
        println!("a budget of {budget}: {steps} steps of {pops} pops");
        assert!(steps <= pops * 40, "{steps} steps of {pops} pops");
        engine.close().unwrap();
    }
}

/// Whoever takes from the end of a store, or puts in front of what is gone, finds no gap that is
/// known; each stepped over all tombstones in memory.
#[test]
fn tombstones_that_scans_step_over_again_and_again_are_merged() {
    for takes_last in [true, false] {
        let options = Options::default().background_threads(0);
        let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("stack").unwrap();
        let count = 6_000_u64;
        for number in 1..=count {
            write(&engine, &keyspace, Kind::Put, &key(number), &[7; 20]);
        }
        engine.flush().unwrap();
        let ((), steps) = steps_of(|| {
            for number in 1..=count {
                let next = match takes_last {
                    true => count + 1 - number,
                    false => number,
                };
                let found = newest_end_key(&engine, &keyspace, !takes_last);
                assert_eq!(found, Some(key(next).to_vec()));
                write(&engine, &keyspace, Kind::Delete, &key(next), &[]);
                if !takes_last && number < count {
                    // Something more urgent, which is done with at once.
                    let urgent = [0];
                    write(&engine, &keyspace, Kind::Put, &urgent, &[]);
                    assert_eq!(
                        newest_end_key(&engine, &keyspace, true),
                        Some(urgent.to_vec())
                    );
                    write(&engine, &keyspace, Kind::Delete, &urgent, &[]);
                }
            }
        });
        println!("last {takes_last}: {steps} steps of {count}");
        // All of them: 18 million.
        assert!(steps <= count * 400, "{steps} steps of {count}");
        engine.close().unwrap();
    }
}

/// A store of a thousand keys in memory, of which 990 are gone.
fn mostly_gone() -> (Arc<Flex>, Arc<FlexKeyspace>) {
    let options = Options::default().background_threads(0);
    let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let keyspace = engine.create_keyspace("keyspace").unwrap();
    for number in 0..1_000 {
        write(&engine, &keyspace, Kind::Put, &key(number), &[7; 20]);
        if number % 100 > 0 {
            write(&engine, &keyspace, Kind::Delete, &key(number), &[]);
        }
    }
    (engine, keyspace)
}

/// Who only reads is helped by the thread that merges.
#[test]
fn tombstones_before_readers_are_merged_without_a_write() {
    let (engine, keyspace) = mostly_gone();
    let count = || {
        let seq = engine.begin_snapshot();
        let (store, all) = (Arc::<Flex>::clone(&engine), Bound::Unbounded);
        let mut scan = FlexScan::new(store, &keyspace, seq, all, all);
        let mut pairs = 0;
        while scan.advance().unwrap() {
            pairs += 1;
        }
        pairs
    };
    let (pairs, of_one) = steps_of(count);
    assert_eq!((pairs, of_one), (10, 990));
    for _ in 0..200 {
        assert_eq!(count(), 10);
        engine.run_inline();
    }
    assert_eq!(steps_of(count), (10, 0), "they are merged");
    engine.close().unwrap();
}

/// What a reader of an earlier moment steps over is in the past, and merges do not help: each
/// 130,000 steps of it froze a generation of a few writes.
#[test]
fn tombstones_of_the_past_let_nothing_be_merged() {
    let (engine, keyspace) = mostly_gone();
    let snapshot = engine.begin_snapshot();
    // So this generation stays as what the snapshot reads.
    write(&engine, &keyspace, Kind::Put, &key(5), &[7; 20]);
    engine.flush().unwrap();
    let count = |seq: ReadPoint| {
        engine.share_snapshot(seq);
        let (store, all) = (Arc::<Flex>::clone(&engine), Bound::Unbounded);
        let mut scan = FlexScan::new(store, &keyspace, seq, all, all);
        let mut pairs = 0;
        while scan.next_back().unwrap().is_some() {
            pairs += 1;
        }
        pairs
    };
    write(&engine, &keyspace, Kind::Put, &key(5), &[7; 20]);
    let frozen = engine.newest_frozen();
    let (pairs, steps) = steps_of(|| {
        (0..300)
            .map(|_| {
                engine.run_inline();
                count(snapshot)
            })
            .sum::<usize>()
    });
    assert_eq!(pairs, 300 * 10);
    assert!(steps > 200_000, "{steps} steps");
    assert_eq!(engine.newest_frozen(), frozen);
    engine.end_snapshot(snapshot);
    engine.close().unwrap();
}

#[test]
fn scans_beside_gaps_find_what_a_map_holds() {
    let seeds = setting("GABION_GAP_SEEDS", 3);
    each_seed(1, |number| number < seeds, compare_with_a_map);
}

fn compare_with_a_map(seed: u64) {
    println!("seed {seed}");
    let mut random = SeededRng::new(seed);
    let options = Options::default()
        .background_threads(0)
        .tuning(Tuning::default().memtable_budget_bytes(64 << 10));
    let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let keyspace = engine.create_keyspace("keyspace").unwrap();
    let mut map: BTreeMap<Vec<u8>, ()> = BTreeMap::new();
    let mut snapshots = Vec::new();
    let key = |number: u64| key(number).to_vec();
    for _ in 0..6_000 {
        match random.below(40) {
            0..4 => {
                let key = key(random.below(1_500));
                write(&engine, &keyspace, Kind::Put, &key, &[7; 40]);
                map.insert(key, ());
            }
            4 => {
                let (lower, count) = (random.below(1_500), random.below(300));
                let (lower, upper) = (key(lower), key(lower + count));
                write(&engine, &keyspace, Kind::DeleteRange, &lower, &upper);
                map.retain(|key, ()| *key < lower || *key >= upper);
            }
            5 => {
                let (from, count) = (random.below(1_500), random.below(200));
                let mut batch = BatchEncoder::default();
                for number in from..=from + count {
                    batch.op(Kind::Put, keyspace.id, &key(number), &[8; 40]);
                    map.insert(key(number), ());
                }
                engine.write(Write::Batch(&batch), 0, false).unwrap();
            }
            6 => snapshots.push((engine.begin_snapshot(), map.clone())),
            7 if !snapshots.is_empty() => {
                let (seq, _) = snapshots.swap_remove(random.index(snapshots.len()));
                engine.end_snapshot(seq);
            }
            8 if random.below(8) == 0 => engine.flush().unwrap(),
            9 if random.below(8) == 0 => {
                // A generation begins that has nothing of the keyspace yet.
                engine.freeze(&engine.writer.lock());
            }
            10 if random.below(20) == 0 => engine.wait_idle().unwrap(),
            // What a queue does, from anywhere and from either end.
            _ => {
                let is_front = random.below(4) > 0;
                let from = random.below(2) * random.below(1_500);
                let to = from + random.below(1_500);
                let (from, to) = (key(from), (random.below(2) == 0).then(|| key(to)));
                let to = to.filter(|to| *to > from);
                let range = (&*from, to.as_deref());
                for _ in 0..random.below(40) {
                    let seq = engine.begin_snapshot();
                    let found = end_key(&engine, &keyspace, seq, range, is_front);
                    engine.end_snapshot(seq);
                    assert_eq!(found, expected_end_key(&map, range, is_front));
                    let Some(found) = found else { break };
                    write(&engine, &keyspace, Kind::Delete, &found, &[]);
                    map.remove(&found);
                }
                for (seq, map) in snapshots.iter().take(2) {
                    let found = end_key(&engine, &keyspace, *seq, range, is_front);
                    assert_eq!(found, expected_end_key(map, range, is_front), "a snapshot");
                }
            }
        }
    }
    let end = |(seq, _)| engine.end_snapshot(seq);
    snapshots.into_iter().for_each(end);
    engine.close().unwrap();
}

fn expected_end_key(
    map: &BTreeMap<Vec<u8>, ()>,
    (lower, upper): (&[u8], Option<&[u8]>),
    is_front: bool,
) -> Option<Vec<u8>> {
    let upper = upper.map_or(Bound::Unbounded, Bound::Excluded);
    let mut range = map.range::<[u8], _>((Bound::Included(lower), upper));
    let found = match is_front {
        true => range.next(),
        false => range.next_back(),
    };
    found.map(|(key, ())| key.clone())
}

/// A scan whose back has taken pairs has not found that there are none.
#[test]
fn no_gap_is_noted_that_the_back_has_read() {
    let options = Options::default().background_threads(0);
    let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let keyspace = engine.create_keyspace("keyspace").unwrap();
    for number in 0..100_u8 {
        write(&engine, &keyspace, Kind::Put, &[number], &[]);
        if number < 98 {
            write(&engine, &keyspace, Kind::Delete, &[number], &[]);
        }
    }
    let seq = engine.begin_snapshot();
    let (store, all) = (Arc::<Flex>::clone(&engine), Bound::Unbounded);
    let mut scan = FlexScan::new(store, &keyspace, seq, all, all);
    for expected in [99, 98] {
        let (key, _) = scan.next_back().unwrap().unwrap();
        assert_eq!(*key, [expected]);
    }
    assert!(!scan.advance().unwrap());
    drop(scan);
    assert_eq!(newest_end_key(&engine, &keyspace, true), Some(vec![98]));
    assert_eq!(newest_end_key(&engine, &keyspace, true), Some(vec![98]));
    engine.close().unwrap();
}

/// Several threads push and pop: nothing is passed over, and each taker sees its own queue in
/// order.
#[test]
fn nothing_is_lost_of_queues_that_many_use() {
    const QUEUES: u8 = 3;
    let items = setting("GABION_QUEUE_ITEMS", 6_000);
    let options = Options::default()
        .background_threads(2)
        .tuning(Tuning::default().memtable_budget_bytes(1 << 20));
    let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let keyspace = engine.create_keyspace("queues").unwrap();
    let queue_key = |queue: u8, number: u64| [&[queue][..], &key(number)].concat();
    std::thread::scope(|scope| {
        let (engine, keyspace) = (&engine, &keyspace);
        for queue in 0..QUEUES {
            scope.spawn(move || {
                for number in 0..items {
                    let key = queue_key(queue, number);
                    write(engine, keyspace, Kind::Put, &key, &[7; 60]);
                }
            });
            scope.spawn(move || {
                let mut next = 0;
                while next < items {
                    let range = ([queue], [queue + 1]);
                    let range = (&range.0[..], Some(&range.1[..]));
                    let seq = engine.begin_snapshot();
                    let found = end_key(engine, keyspace, seq, range, true);
                    engine.end_snapshot(seq);
                    match found {
                        Some(found) => {
                            assert_eq!(found, queue_key(queue, next));
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

/// Each end of a snapshot collected and sorted the numbers of all others, and looked at all of the
/// past, once a merge had left something to it: 100,000 took 32 s to drop.
#[test]
fn the_end_of_a_snapshot_looks_at_no_other_one() {
    let options = Options::default().background_threads(0);
    let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let keyspace = engine.create_keyspace("keyspace").unwrap();
    let (count, merges) = (3_000_usize, 30);
    let mut snapshots = Vec::new();
    for (number, key) in (0..count).zip((0..50).map(key).cycle()) {
        write(&engine, &keyspace, Kind::Put, &key, &[7; 20]);
        snapshots.push(engine.begin_snapshot());
        if (number + 1) % (count / merges) == 0 {
            engine.flush().unwrap();
        }
    }
    assert_eq!(engine.view.load().past.len(), merges);
    let (collected, looks) = (COLLECTED.get(), LOOKS.get());
    // Those in the middle go first.
    let (first, last) = (snapshots[0], snapshots[count - 1]);
    snapshots[1..count - 1]
        .iter()
        .for_each(|seq| engine.end_snapshot(*seq));
    engine.end_snapshot(first);
    assert_eq!(
        engine.view.load().past.len(),
        0,
        "who reads at the last needs none"
    );
    engine.end_snapshot(last);
    assert_eq!(COLLECTED.get(), collected);
    let looks = LOOKS.get() - looks;
    assert!(looks <= count + merges, "{looks} looks at the past");
    engine.close().unwrap();
}

/// Each delete of a range collected and sorted the numbers of all snapshots.
#[test]
fn a_delete_of_a_range_looks_at_no_snapshot() {
    let options = Options::default().background_threads(0);
    let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let keyspace = engine.create_keyspace("keyspace").unwrap();
    let mut snapshots = Vec::new();
    for number in 0..1_000 {
        write(&engine, &keyspace, Kind::Put, &key(number), &[7; 20]);
        snapshots.push(engine.begin_snapshot());
    }
    let before = COLLECTED.get();
    for number in 0..500 {
        let (lower, upper) = (key(2 * number), key(2 * number + 1));
        write(&engine, &keyspace, Kind::DeleteRange, &lower, &upper);
    }
    assert_eq!(COLLECTED.get(), before);
    // What deletes one key twice must know who reads in between.
    write(&engine, &keyspace, Kind::DeleteRange, &key(0), &key(600));
    assert!(COLLECTED.get() <= before + snapshots.len());
    for (number, seq) in snapshots.into_iter().enumerate() {
        let count = |seq: Option<ReadPoint>| {
            let keys = (0..1_000).map(key);
            let found = keys.map(|key| engine.get(&keyspace, &key, seq).unwrap());
            found.flatten().count()
        };
        if number % 97 == 0 {
            assert_eq!(count(Some(seq)), number + 1);
            assert_eq!(count(None), 200);
        }
        engine.end_snapshot(seq);
    }
    engine.close().unwrap();
}

/// A merge gave the tree of each keyspace a new budget, for which it kept out readers of all of
/// them: 2.5 ms after one write, of 4,000 keyspaces.
#[test]
fn a_merge_leaves_keyspaces_alone_that_are_not_used() {
    let options = Options::default().background_threads(0);
    let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let count = 100;
    let create = |number| engine.create_keyspace(&format!("{number}")).unwrap();
    let keyspaces: Vec<_> = (0..count).map(create).collect();
    let put = |number: usize, value: &[u8]| {
        write(&engine, &keyspaces[number], Kind::Put, b"key", value);
    };
    let fitted_by = |work: &dyn Fn()| {
        let before = FITTED.get();
        work();
        FITTED.get() - before
    };
    let fitted = fitted_by(&|| {
        (0..count).for_each(|number| put(number, b"first"));
        engine.flush().unwrap();
    });
    assert_eq!(fitted, count);
    for number in 0..10 {
        let fitted = fitted_by(&|| {
            put(number, b"second");
            put(50, format!("{number}").as_bytes());
            engine.flush().unwrap();
        });
        assert_eq!(fitted, 2, "after {number}");
    }
    assert_eq!(fitted_by(&|| engine.flush().unwrap()), 0);
    engine.close().unwrap();
}

/// Each drop woke the thread that merges, which looked at all other keyspaces, and kept the next
/// drop waiting meanwhile.
#[test]
fn a_drop_lets_nobody_look_at_the_other_keyspaces() {
    let options = Options::default().background_threads(0);
    let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let keyspaces = ["written", "empty", "other"].map(|name| engine.create_keyspace(name).unwrap());
    write(&engine, &keyspaces[0], Kind::Put, b"key", &[]);
    let wakes = engine.schedule.wakes();
    assert!(engine.drop_keyspace("written").unwrap());
    assert!(engine.schedule.wakes() > wakes, "what was frozen is merged");
    let (wakes, steps) = (engine.schedule.wakes(), FITTED.get());
    assert!(engine.drop_keyspace("empty").unwrap());
    assert_eq!((engine.schedule.wakes(), FITTED.get()), (wakes, steps));
    assert!(!engine.keyspaces.load().has_leaving());
    assert_eq!(engine.keyspaces.names(), ["other"]);
    engine.close().unwrap();
}
