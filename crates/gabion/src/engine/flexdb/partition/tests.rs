//! What a partition does when two meet in it, and what it takes of its space.

use std::collections::BTreeMap;
use std::ops::{Bound, Range, RangeBounds};

use gabion_media::SimDisk;
use gabion_media::seeded::SeededRng;

use super::*;
use crate::Tuning;
use crate::engine::flexdb::interval::PAIRS_MAX;
use crate::engine::memtable::ChunkPool;
use crate::expiry::StoredRecord;
use crate::memory::Memory;
use crate::types::Kind;
use crate::types::hash_key;

fn put(partition: &Partition, held: CachedInterval, key: &[u8], value: &[u8]) {
    let mut changes = MergeChanges::default();
    changes.put(Kind::Put, key, value);
    let wanted = wanted_of(held, 0..1, true);
    partition.change(vec![wanted], &changes).unwrap();
}

fn wanted_of(held: CachedInterval, changes: Range<usize>, is_read: bool) -> IntervalChanges {
    let CachedInterval { place, interval } = held;
    let interval = is_read.then_some(interval);
    IntervalChanges {
        place,
        interval,
        changes,
    }
}

/// A reader that found an interval too large took the index's lock to cut it. If a range delete
/// had removed all pairs meanwhile, the interval that was left had the same borders, so the
/// reader put what it had read in its place: the index then had bytes that the space had not.
#[test]
fn a_cut_does_not_bring_back_what_was_removed_meanwhile() {
    let sim = SimDisk::new();
    let options = Options::default().tuning(Tuning::default().memtable_budget_bytes(64 << 10));
    let memory = Memory::new(1 << 20, 0, &ChunkPool::new(0));
    let cache = Arc::new(IntervalCache::new(1 << 20, &memory));
    let partition = Partition::create(Disk::simulated(&sim), &cache, &options, 1).unwrap();
    for number in 0..3 * PAIRS_MAX {
        let key = format!("{number:03}").into_bytes();
        let held = partition
            .interval(SeekTarget::At(&key), ReadIntent::Merge)
            .unwrap();
        put(&partition, held, &key, &[7; 100]);
    }
    partition.checkpoint().unwrap();
    let reached = partition.space().durable_point();
    partition.close();

    // The recovery makes one interval of all pairs.
    let disk = Disk::simulated(&sim);
    let partition = Partition::open(disk, &cache, &options, 1, reached).unwrap();
    let read = partition.read(SeekTarget::At(b"001")).unwrap();
    let pairs = parse(&read.bytes).unwrap();
    assert_eq!(pairs.len(), 3 * PAIRS_MAX);
    assert!(partition.clear(&read.place).unwrap());
    partition.cut(&read.place, read.version, &read.bytes, &pairs);

    let held = partition
        .interval(SeekTarget::At(b"001"), ReadIntent::User)
        .unwrap();
    assert_eq!((held.interval.len(), held.place.len()), (0, 0));
    assert_eq!(partition.space().len(), 0);
    // And the index is as good as any.
    put(&partition, held, b"001", b"again");
    assert!(partition.get(b"001", hash_key(b"001")).unwrap().is_some());
}

/// Intervals that are changed together, each in its own way, are what they would be one by one.
#[test]
fn intervals_of_a_leaf_change_together() {
    let sim = SimDisk::new();
    let options = Options::default().tuning(Tuning::default().memtable_budget_bytes(64 << 10));
    let memory = Memory::new(4 << 20, 0, &ChunkPool::new(0));
    let cache = Arc::new(IntervalCache::new(1 << 18, &memory));
    let partition = Partition::create(Disk::simulated(&sim), &cache, &options, 1).unwrap();
    let mut random = SeededRng::new(7);
    let mut twin: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let key_of = |number: u64| format!("{number:05}").into_bytes();
    let (mut together, mut emptied, mut most) = (0, 0, 0);
    for round in 0..1_500 {
        // At first more comes, then more goes.
        let puts = if round < 800 { 80 } else { 3 };
        let mut wanted: Vec<IntervalChanges> = Vec::new();
        let mut all = MergeChanges::default();
        let mut at = key_of(random.below(8_000));
        while wanted.len() < 8 {
            let held = partition
                .interval(SeekTarget::At(&at), ReadIntent::Merge)
                .unwrap();
            let other = |first: &IntervalChanges| !Arc::ptr_eq(&first.place.leaf, &held.place.leaf);
            if wanted.first().is_some_and(other) {
                break;
            }
            let range = (
                Bound::Included(held.place.lower().to_vec()),
                held.place
                    .upper()
                    .map_or(Bound::Unbounded, |upper| Bound::Excluded(upper.to_vec())),
            );
            let mut changes = BTreeMap::new();
            if random.one_in(30) {
                emptied += 1;
                let gone = twin.range(range.clone());
                changes.extend(gone.map(|(key, _)| (key.clone(), None)));
            }
            let lower = str::from_utf8(held.place.lower()).unwrap();
            let lower = lower.parse().unwrap_or(0);
            for _ in 0..random.below(12) {
                let key = key_of(lower + random.below(60));
                let value = vec![7; random.index(100)];
                if range.contains(&key) {
                    changes.insert(key, (random.below(100) < puts).then_some(value));
                }
            }
            let first = all.len();
            for (key, value) in changes {
                match value {
                    Some(value) => {
                        all.put(Kind::Put, &key, &value);
                        twin.insert(key, value);
                    }
                    None => {
                        all.remove(&key);
                        twin.remove(&key);
                    }
                }
            }
            let upper = held.place.upper().map(<[u8]>::to_vec);
            wanted.push(wanted_of(held, first..all.len(), random.one_in(2)));
            match upper {
                // Some are left out.
                Some(upper) if random.below(4) > 0 => at = upper,
                Some(_) | None => break,
            }
        }
        together += usize::from(wanted.len() > 2);
        partition.change(wanted, &all).unwrap();
        if round % 25 == 0 {
            partition.index().prune();
            assert_holds(&partition, &twin);
            most = most.max(twin.len());
        }
    }
    assert!(together > 200 && emptied > 50, "{together}, {emptied}");
    assert!(
        most > 2 * twin.len() && most > 1_000,
        "{most}, {}",
        twin.len()
    );
    assert_holds(&partition, &twin);
}

/// All pairs of a partition, interval by interval.
fn assert_holds(partition: &Partition, twin: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut found = BTreeMap::new();
    let mut len = 0;
    let mut next = Some(
        partition
            .interval(SeekTarget::At(b""), ReadIntent::User)
            .unwrap(),
    );
    while let Some(held) = next {
        len += held.place.len();
        for at in 0..held.interval.len() {
            let (key, value) = (held.interval.key(at), held.interval.stored(at));
            assert!(held.place.lower() <= key);
            assert!(held.place.upper().is_none_or(|upper| key < upper));
            found.insert(key.to_vec(), value.to_vec());
        }
        next = partition.interval_behind(&held).unwrap();
    }
    assert_eq!(&found, twin);
    assert_eq!(len, partition.space().len());
    for (key, value) in twin {
        let got = partition.get(key, hash_key(key)).unwrap();
        assert_eq!(got.as_ref().map(StoredRecord::value), Some(&**value));
    }
}

#[test]
fn garbage_is_what_the_cap_leaves() {
    for (cap, parts) in [(1.25, 6), (1.3, 7), (1.34, 8), (2.0, 8), (f64::INFINITY, 8)] {
        assert_eq!(garbage_parts(cap), parts, "{cap}");
    }
}
