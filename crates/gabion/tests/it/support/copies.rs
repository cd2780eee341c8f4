//! Copies of a store that are made beside its writers: checkpoints and backups.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gabion::{Db, Options, Result, WriteBatch};
use gabion_media::{Disk, SimDisk};

/// Keys that a batch gives the same number, in several buckets.
const STAMPED: [&str; 4] = ["00", "33", "66", "99"];

/// Copies that are made.
const COPIES: usize = 12;

/// The numbers of the newest batch and of the newest single write that a store holds, after a look
/// at all of it.
fn newest(db: &Db) -> Result<(u64, u64)> {
    let number = |value: &[u8]| u64::from_le_bytes(*value.first_chunk().unwrap());
    let (one, other) = (db.default_keyspace(), db.keyspace("other")?);
    let mut batches = Vec::new();
    for keyspace in [one, &other] {
        for key in STAMPED {
            batches.push(keyspace.get(key)?.map_or(0, |value| number(&value)));
        }
    }
    let first = batches[0];
    assert!(
        batches.iter().all(|batch| *batch == first),
        "half a batch: {batches:?}"
    );
    let mut singles: Vec<u64> = Vec::new();
    for pair in one.prefix("single ") {
        singles.push(number(&pair?.1));
    }
    singles.sort_unstable();
    let last = singles.len() as u64;
    assert!(
        singles.iter().copied().eq(1..=last),
        "a write before the newest one of {last} is missing"
    );
    Ok((first, last))
}

/// One writer of batches, one of single writes, and copies all the time: each has a prefix of what
/// they wrote, with all that was acknowledged before it began. `copy` makes one and returns it with
/// the number of the newest write that is in it, where that is known.
pub(crate) fn assert_copies_beside_writers(
    options: &Options,
    mut copy: impl FnMut(&Db) -> (Disk, Option<u64>),
) {
    let db = Db::open_on(Disk::simulated(&SimDisk::new()), options.clone()).unwrap();
    let other = db.keyspace("other").unwrap();
    let acknowledged = [const { AtomicU64::new(0) }; 2];
    // ORDER: SeqCst (all); what is acknowledged before a copy begins must be in it.
    let now = || {
        acknowledged
            .each_ref()
            .map(|one| one.load(Ordering::SeqCst))
    };
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0_u64;
            // ORDER: as above.
            while !ended.load(Ordering::SeqCst) {
                number += 1;
                let mut batch = WriteBatch::new();
                for key in STAMPED {
                    for keyspace in [db.default_keyspace(), &other] {
                        batch.put(keyspace, key, number.to_le_bytes()).unwrap();
                    }
                }
                db.write(batch).unwrap();
                // ORDER: as above.
                acknowledged[0].store(number, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            let mut number = 0_u64;
            // ORDER: as above.
            while !ended.load(Ordering::SeqCst) {
                number += 1;
                // The keys of the numbers are far apart from each other.
                let key = format!("single {:016x}", number.reverse_bits());
                db.put(key, number.to_le_bytes()).unwrap();
                // ORDER: as above.
                acknowledged[1].store(number, Ordering::SeqCst);
            }
        });
        // Copies of a store that nobody writes to yet would show nothing.
        while now().contains(&0) {
            std::thread::yield_now();
        }
        for _ in 0..COPIES {
            let before = now();
            let (target, position) = copy(&db);
            let most = now();
            let copied = Db::open_on(target, options.clone()).unwrap();
            let found = newest(&copied).unwrap();
            assert!((before[0]..=most[0] + 1).contains(&found.0), "{found:?}");
            assert!((before[1]..=most[1] + 1).contains(&found.1), "{found:?}");
            // Each write of both has a number of its own.
            assert!(
                position.is_none_or(|position| found.0 + found.1 <= position),
                "{found:?} up to {position:?}"
            );
        }
        // ORDER: as above.
        ended.store(true, Ordering::SeqCst);
    });
}
