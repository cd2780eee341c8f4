//! Many readers and one writer: every read sees one state of the space.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gabion_flex::{Edit, FlexSpace, Options, SpaceStats};
use gabion_media::{Disk, SimDisk};

use crate::support::{SeededRng, base_seed, setting};

/// Bytes of a record, which are all the same.
const RECORD: usize = 48;

/// Records of a read.
const READ: usize = 40;

/// The writer inserts, removes, replaces and moves whole records, in groups that keep the sum of
/// the first bytes of all records at 0 modulo 251: so a read of all that mixes two states, or sees
/// a part of a group, has another sum or a record of two bytes.
#[test]
fn reads_see_one_state() {
    let stats = run(None, setting("GABION_FLEX_CONCURRENT_GROUPS", 4_000));
    assert!(stats.collections > 3 && stats.commits > 20, "{stats:?}");
}

/// The tree takes 60 leaves, of which a tenth may be in memory.
#[test]
fn reads_see_one_state_while_leaves_come_and_go() {
    let groups = setting("GABION_FLEX_CONCURRENT_GROUPS", 4_000);
    let stats = run(Some(6 << 10), groups);
    assert!(stats.tree_leaves_fetched > groups, "{stats:?}");
    assert!(stats.checkpoints > groups / 20, "{stats:?}");
}

fn run(index_bytes: Option<u64>, groups: u64) -> SpaceStats {
    let seed = base_seed();
    let options = Options::default()
        .segment_bytes(16 << 10)
        .block_bytes(512)
        .log_bytes(16 << 10)
        .commit_bytes(2_000)
        .index_bytes(index_bytes)
        .capacity_bytes(Some(40 * (16 << 10)));
    let space = FlexSpace::open_on(Disk::simulated(&SimDisk::new()), options).unwrap();
    let done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (space, done, reads) = (space.clone(), &done, &reads);
            scope.spawn(move || {
                let mut random = SeededRng::new(seed + reader);
                // ORDER: Relaxed; the flag and the count stand for themselves.
                while !done.load(Ordering::Relaxed) {
                    if random.one_in(4) {
                        assert_whole(&space);
                    } else {
                        assert_records(&space, &mut random);
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let written = std::panic::catch_unwind(AssertUnwindSafe(|| write(&space, seed, groups)));
        // ORDER: Relaxed; the flag stands for itself.
        done.store(true, Ordering::Relaxed);
        written.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    });
    assert_whole(&space);
    let stats = space.stats();
    println!(
        "concurrent: {} reads, {} collections, {} leaves fetched",
        reads.into_inner(),
        stats.collections,
        stats.tree_leaves_fetched
    );
    stats
}

fn write(space: &FlexSpace, seed: u64, groups: u64) {
    let mut random = SeededRng::new(seed ^ 0xc0c0);
    for _ in 0..groups {
        let count = space.len() / RECORD as u64;
        let offset = |random: &mut SeededRng, count: u64| random.below(count + 1) * RECORD as u64;
        let byte = u8::try_from(random.below(251)).unwrap();
        let (record, inverse) = ([byte; RECORD], [(251 - byte) % 251; RECORD]);
        if count < 3_000 {
            let (first, second) = (offset(&mut random, count), offset(&mut random, count + 1));
            space
                .apply(&[
                    Edit::Insert {
                        offset: first,
                        data: &record,
                    },
                    Edit::Insert {
                        offset: second,
                        data: &inverse,
                    },
                ])
                .unwrap();
        } else {
            // What is removed comes back elsewhere in the same group.
            let len = (1 + random.below(60)) * RECORD as u64;
            let from = offset(&mut random, count - 60);
            let mut moved = vec![0; usize::try_from(len).unwrap()];
            assert_eq!(space.read_at(from, &mut moved).unwrap(), moved.len());
            let to = offset(&mut random, count - 60);
            space
                .apply(&[
                    Edit::Collapse { offset: from, len },
                    Edit::Insert {
                        offset: to,
                        data: &moved,
                    },
                ])
                .unwrap();
        }
        if random.one_in(200) {
            space.defrag(0, space.len()).unwrap();
        }
        if random.one_in(50) {
            space.sync().unwrap();
        }
    }
}

fn assert_records(space: &FlexSpace, random: &mut SeededRng) {
    let mut bytes = [0; READ * RECORD];
    let offset = random.below(3_100) * RECORD as u64;
    let len = space.read_at(offset, &mut bytes).unwrap();
    assert_eq!(len % RECORD, 0, "a read ends within a record");
    for record in bytes[..len].chunks(RECORD) {
        assert!(
            record.iter().all(|byte| *byte == record[0]),
            "a torn record: {record:?}"
        );
    }
}

fn assert_whole(space: &FlexSpace) {
    let mut bytes = vec![0; 8_000 * RECORD];
    let len = space.read_at(0, &mut bytes).unwrap();
    let sum: u64 = bytes[..len]
        .iter()
        .step_by(RECORD)
        .map(|byte| u64::from(*byte))
        .sum();
    assert_eq!(sum % 251, 0, "a part of a group is seen");
}
