//! What a partition does when two meet in it, and what it takes of its space.

use gabion_media::SimDisk;

use super::*;
use crate::engine::flexdb::interval::PAIRS_MAX;
use crate::engine::memtable::ChunkPool;
use crate::memory::Memory;
use crate::types::hash_key;

/// A reader that found an interval too large took the index's lock to cut it. If a range delete
/// had removed all pairs meanwhile, the interval that was left had the same borders, so the
/// reader put what it had read in its place: the index then had bytes that the space had not.
#[test]
fn a_cut_does_not_bring_back_what_was_removed_meanwhile() {
    let sim = SimDisk::new();
    let options = Options::default().memtable_budget_bytes(64 << 10);
    let memory = Memory::new(1 << 20, 0, &ChunkPool::new(0));
    let cache = Arc::new(Cache::new(1 << 20, &memory));
    let partition = Partition::create(Disk::simulated(&sim), &cache, &options, 1).unwrap();
    for number in 0..3 * PAIRS_MAX {
        let key = format!("{number:03}").into_bytes();
        let held = partition.interval(Seek::At(&key), Reader::Merge).unwrap();
        let value = Some(Slice::from(&[7; 100][..]));
        partition.change(&held, &[Change { key, value }]).unwrap();
    }
    partition.checkpoint().unwrap();
    let reached = partition.space().durable_point();
    partition.close();

    // The recovery makes one interval of all pairs.
    let disk = Disk::simulated(&sim);
    let partition = Partition::open(disk, &cache, &options, 1, reached).unwrap();
    let read = partition.read(Seek::At(b"001")).unwrap();
    let pairs = parse(&read.bytes).unwrap();
    assert_eq!(pairs.len(), 3 * PAIRS_MAX);
    assert!(partition.clear(&read.place).unwrap());
    partition.cut(&read.place, read.version, &read.bytes, &pairs);

    let held = partition.interval(Seek::At(b"001"), Reader::User).unwrap();
    assert_eq!((held.interval.len(), held.place.len()), (0, 0));
    assert_eq!(partition.space().len(), 0);
    // And the index is as good as any.
    let key = b"001".to_vec();
    let value = Some(Slice::from(&b"again"[..]));
    partition.change(&held, &[Change { key, value }]).unwrap();
    assert!(partition.get(b"001", hash_key(b"001")).unwrap().is_some());
}

#[test]
fn garbage_is_what_the_cap_leaves() {
    for (cap, parts) in [(1.25, 6), (1.3, 7), (1.34, 8), (2.0, 8), (f64::INFINITY, 8)] {
        assert_eq!(garbage_parts(cap), parts, "{cap}");
    }
}
