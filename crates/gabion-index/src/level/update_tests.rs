//! Updates of values of several words: which of them are logged, and what readers see of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gabion_media::pmem::trace::{Trace, TraceEvent, TraceStep, Watcher};
use gabion_media::pmem::{PAtomicU64, Pool, PoolOptions, Region};
use parking_lot::Mutex;

use super::LevelTable;
use super::form::{Form, LoggedQuads, Quads};
use crate::bucket::{Bucket, Entry};
use crate::suite::director::{Director, store};
use crate::suite::words::check;
use crate::suite::{SMALL, while_flipped};
use crate::{Error, Index, update_log};

/// Keys of a table of 24 slots, some of whose buckets are full.
const KEYS: u64 = 16;

fn table<F: Form>(watcher: Arc<dyn Watcher>) -> LevelTable<F> {
    let pool = Pool::anonymous(PoolOptions {
        size: 1 << 20,
        watcher: Some(watcher),
        ..LevelTable::<F>::pool_options()
    });
    let table = LevelTable::<F>::create(&pool.expect("memory"), SMALL).expect("a table");
    fill(&table);
    table
}

fn fill<F: Form>(table: &LevelTable<F>) {
    for key in 0..KEYS {
        table.insert(&key, key).expect("space");
    }
    assert_eq!(table.slots(), 24, "it has not grown");
}

/// The bucket of a key, and its slot.
fn place<F: Form>(table: &LevelTable<F>, key: u64) -> (&F::Bucket, usize) {
    let levels = table.levels(table.top());
    let places = table.places(&levels, table.hashes(key));
    let find = |bucket: &F::Bucket| bucket.find(key);
    let found = places.into_iter().find_map(|it| Some((it, find(it)?)));
    found.expect("it is there")
}

/// Counts fences.
#[derive(Default)]
struct Fences(Mutex<u64>);

impl Watcher for Fences {
    fn event(&self, event: TraceEvent<'_>) {
        *self.0.lock() += u64::from(event.step == TraceStep::Fence);
    }
}

/// Persists of an update of each key whose bucket has a free slot, or has none, by the slot that it
/// goes to.
fn persists<F: Form>() -> (Vec<(Option<usize>, u64)>, usize) {
    let fences = Arc::new(Fences::default());
    let table = table::<F>(fences.clone());
    let mut counts = Vec::new();
    for key in 0..KEYS {
        let free = place(&table, key).0.free_slot();
        let before = *fences.0.lock();
        assert_eq!(table.update(&key, key + 100).expect("sound"), Some(key));
        counts.push((free, *fences.0.lock() - before));
        assert_eq!(table.get(&key).expect("sound"), Some(key + 100));
    }
    check(&table, KEYS);
    let full = counts.iter().filter(|(free, _)| free.is_none()).count();
    (counts, full)
}

/// The slides' scheme: a free slot of the bucket makes the log needless. Here it costs one persist,
/// or two where the slot does not lie in the line of the tokens; the log costs three.
#[test]
fn a_free_slot_of_the_bucket_makes_the_log_needless() {
    let (counts, full) = persists::<Quads>();
    assert!(full > 0 && full < counts.len(), "{counts:?}");
    for (free, count) in counts {
        let expected = match free {
            Some(0 | 1) => 1,
            Some(_) => 2,
            None => 3,
        };
        assert_eq!(count, expected, "{free:?}");
    }
    let (counts, _) = persists::<LoggedQuads>();
    assert!(counts.iter().all(|(_, count)| *count == 3), "{counts:?}");
}

/// A writer is stopped when half of a value is written. A reader that does not look at the lane
/// sees the half; one that does waits for the whole.
#[test]
fn no_reader_sees_half_of_a_value() {
    let director = Arc::new(Director::default());
    let region = Region::new(96 << 10);
    *director.trace.lock() = Trace::new(region.to_vec());
    let options = PoolOptions {
        heaps: 1,
        chunk_bytes: 4096,
        watcher: Some(director.clone()),
        ..LevelTable::<LoggedQuads>::pool_options()
    };
    let pool = Pool::create_in(&region, options).expect("a pool in memory");
    let table = LevelTable::<LoggedQuads>::create(&pool, SMALL).expect("a table");
    fill(&table);
    let (bucket, slot) = place(&table, 3);
    let at = pool.offset_of(&bucket.pair(slot).value()[0]).raw();
    std::thread::scope(|scope| {
        let behind_half = (store as _, at..at + 8);
        let update = || table.update(&3, 33).expect("sound");
        let writer = director.start(scope, "writer", behind_half, update);
        let seen = {
            let _without = update_log::leave_out_the_lane();
            table.get(&3).expect("sound")
        };
        assert!(![Some(3), Some(33)].contains(&seen), "{seen:?} is whole");
        let reader = scope.spawn(|| table.get(&3).expect("sound"));
        director.finish("writer");
        assert_eq!(writer.join().expect("no panic"), Some(3));
        let seen = reader.join().expect("no panic");
        assert!([Some(3), Some(33)].contains(&seen), "{seen:?}");
    });
    assert_eq!(table.get(&3).expect("sound"), Some(33));
}

/// A record that names no entry is damage, and is told; a valid one is finished.
#[test]
fn recovery_finishes_an_update_and_refuses_another_record() {
    let table = table::<Quads>(Arc::new(Fences::default()));
    let (bucket, slot) = place(&table, 5);
    let at = table.medium.offset_of(bucket).raw();
    let (log, pool) = (table.log.first_byte(), table.pool().clone());
    let words = [at | (slot as u64) << 48, 5, 55, !55];
    for (number, word) in words.into_iter().enumerate().rev() {
        let cell: &PAtomicU64 = pool.at(gabion_media::pmem::POff::new(log + 8 * number as u64));
        cell.store_persist(&pool, word, Ordering::Relaxed);
    }
    drop(table);
    let is_refused = |at, mask| {
        let opened = while_flipped(&pool, at, mask, || LevelTable::<Quads>::open(&pool));
        matches!(opened, Err(Error::Damaged { .. }))
    };
    // Another bucket, none, another slot, another key.
    let wrong = [(0, 128), (0, 8), (4, 1), (6, 1), (6, 4), (8, 1)];
    assert!(
        wrong
            .into_iter()
            .all(|(byte, mask)| is_refused(log + byte, mask))
    );
    let table = LevelTable::<Quads>::open(&pool).expect("a table");
    assert_eq!(table.get(&5).expect("sound"), Some(55));
    check(&table, KEYS);
    table.remove(&5).expect("sound");
    let table = LevelTable::<Quads>::open(&pool).expect("the record is void");
    check(&table, KEYS - 1);
}
