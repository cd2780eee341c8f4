//! Clevel hashing in special situations.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, Pool};

use super::Clevel;
use super::layout::{SlotWord, moved_word};
use crate::suite::words::{check, grow_by_threads};
use crate::suite::{self, Keys, SMALL, interleaved, while_flipped};
use crate::{Error, Index, IndexPlan};

fn pool(size: u64) -> Pool {
    suite::pool(size, Clevel::<u64>::pool_options())
}

#[test]
fn a_table_grows_far_past_its_plan() {
    let table: Clevel<u64> = Clevel::create(&pool(32 << 20), SMALL).expect("a table");
    check(&table, 0);
    let count = 50_000;
    for key in 0..count {
        assert_eq!(table.insert(&key, key * 3).expect("space"), None);
    }
    for key in 0..count {
        assert_eq!(table.get(&key).expect("sound"), Some(key * 3));
        assert_eq!(table.get(&(key + count)).expect("sound"), None);
    }
    check(&table, count);
    for key in 0..count {
        assert_eq!(table.update(&key, key).expect("space"), Some(key * 3));
        assert_eq!(table.remove(&key).expect("sound"), Some(key));
        assert_eq!(table.update(&key, 1).expect("sound"), None);
    }
    check(&table, 0);
}

/// Tags and 32 slots to choose from are for this: a level comes when the others are nearly full,
/// and while the last one is emptied there are three and not more.
#[test]
fn levels_are_nearly_full_when_one_comes() {
    let plan = IndexPlan {
        capacity: 3000,
        ..SMALL
    };
    let table: Clevel<u64> = Clevel::create(&pool(32 << 20), plan).expect("a table");
    let start = table.context();
    let mut key = 0;
    while table.context() == start {
        table.insert(&key, key).expect("space");
        key += 1;
    }
    let slots = (8 * 3) << start.last();
    assert!(key * 10 >= slots * 8, "{key} of {slots}");
    let mut most = 0;
    for key in key..20 * key {
        table.insert(&key, key).expect("space");
        most = most.max(table.context().upwards().count());
    }
    assert_eq!(most, 3);
}

#[test]
fn threads_grow_a_table_together() {
    let table: Clevel<u64> = Clevel::create(&pool(64 << 20), SMALL).expect("a table");
    grow_by_threads(&table);
    let table: Clevel<u64, 2> = Clevel::create(&pool(64 << 20), SMALL).expect("a table");
    grow_by_threads(&table);
}

/// Four threads insert the same keys at the same time, while levels come and go. Of those that
/// insert one, exactly one finds nothing before it, and the others find what another one has put
/// there: the published table lets two of them through and drops one later.
#[test]
fn of_those_that_insert_one_key_one_is_the_first() {
    let (threads, count) = (4_u64, 3000);
    for round in 0..4 {
        let table: Clevel<u64, 2> = Clevel::create(&pool(64 << 20), SMALL).expect("a table");
        let start = std::sync::Barrier::new(4);
        let insert_all = |thread: u64| {
            start.wait();
            let insert = |key: u64| table.insert(&key, thread).expect("space");
            (0..count).map(insert).collect::<Vec<_>>()
        };
        let found: Vec<Vec<Option<u64>>> = std::thread::scope(|scope| {
            let insert_all = &insert_all;
            let spawned = (0..threads).map(|thread| scope.spawn(move || insert_all(thread)));
            let spawned: Vec<_> = spawned.collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("ends");
            spawned.into_iter().map(join).collect()
        });
        for key in 0..count {
            let number = usize::try_from(key).expect("small");
            let last = table.get(&key).expect("sound");
            let mut seen: Vec<_> = found.iter().map(|found| found[number]).collect();
            seen.push(last);
            seen.sort_unstable();
            let all = [None, Some(0), Some(1), Some(2), Some(3)];
            assert_eq!(seen, all, "round {round}, key {key}");
        }
        check(&table, count);
    }
}

/// When the pool is full, inserts that need room fail, and everything else goes on: an update with
/// the space of what was replaced before.
#[test]
fn a_full_pool_leaves_the_table_usable() {
    let table: Clevel<u64> = Clevel::create(&pool(1 << 20), SMALL).expect("a table");
    let mut kept = 0;
    let failed = loop {
        match table.insert(&kept, kept) {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, Error::Media(_)), "{failed}");
    check(&table, kept);
    assert_eq!(table.get(&kept).expect("sound"), None);
    assert_eq!(table.remove(&0).expect("no space is needed"), Some(0));
    for key in 1..kept {
        assert_eq!(table.update(&key, key + 1).expect("space"), Some(key));
        assert_eq!(table.get(&key).expect("sound"), Some(key + 1));
    }
    assert_eq!(table.insert(&0, 5).expect("room"), None);
    check(&table, kept);
}

/// A crash between the two halves of a move leaves an item in two slots: recovery closes the one
/// in the last level, also in the bucket that was counted as moved. What was only on its way stays.
#[test]
fn recovery_ends_one_of_two_equal_entries() {
    for counted in [0, 1] {
        let pool = pool(1 << 20);
        let table: Clevel<u64, 2> = Clevel::create(&pool, SMALL).expect("a table");
        table.grow(table.context()).expect("space");
        let context = table.context();
        let of_first_bucket = |key: &u64| {
            super::places::homes(context.last(), table.seed.hash_u64(*key)).contains(&0)
        };
        let keys: Vec<u64> = (0..).filter(of_first_bucket).take(2).collect();
        let [moved, kept] = keys[..] else {
            unreachable!("two were taken")
        };
        let bucket = table.bucket(context.last(), 0);
        let moving = table.moving.lock();
        for (key, slot) in keys.iter().zip(&bucket.slots) {
            // Into the last level, where inserts put nothing while it goes.
            table.insert(key, 100 + key).expect("space");
            let hash = table.seed.hash_u64(*key);
            let (place, word) = table
                .find(context, hash, key)
                .expect("sound")
                .expect("there");
            slot.store(&pool, word.0, Ordering::Relaxed);
            if *key == kept {
                place.store(&pool, 0, Ordering::Relaxed);
                slot.store(&pool, word.as_leaving().0, Ordering::Relaxed);
            }
        }
        let state = table.state();
        state.moved.store(
            &pool,
            moved_word(context.last(), counted),
            Ordering::Relaxed,
        );
        drop(moving);
        assert!(table.check().is_err());
        let table: Clevel<u64, 2> = Clevel::open(&pool).expect("a table");
        assert_eq!(
            SlotWord(bucket.slots[0].peek(Ordering::Relaxed)),
            SlotWord::CLOSED,
            "{counted}"
        );
        check(&table, 2);
        assert_eq!(table.remove(&moved).expect("sound"), Some(100 + moved));
        assert_eq!(table.get(&moved).expect("sound"), None);
        assert_eq!(table.update(&kept, 7).expect("space"), Some(100 + kept));
        table.compact().expect("space");
        assert_eq!(table.context().upwards().count(), 2);
    }
}

#[test]
fn a_compacted_table_has_two_levels_and_all_entries() {
    let table: Clevel<u64, 2> = Clevel::create(&pool(4 << 20), SMALL).expect("a table");
    for _ in 0..6 {
        table.grow(table.context()).expect("space");
    }
    for key in 0..200 {
        table.insert(&key, key).expect("space");
    }
    table.compact().expect("space");
    assert_eq!(table.context().upwards().count(), 2);
    check(&table, 200);
    assert!((0..200).all(|key| table.get(&key).expect("sound") == Some(key)));
}

#[test]
fn what_is_no_table_is_refused() {
    let pool = pool(1 << 20);
    assert!(matches!(Clevel::<u64>::open(&pool), Err(Error::NoRoot)));
    let table: Clevel<u64> = Clevel::create(&pool, SMALL).expect("a table");
    let again = Clevel::<u64>::create(&pool, SMALL);
    assert!(matches!(again, Err(Error::RootTaken)));
    table.insert(&1, 1).expect("space");
    let root = pool.root::<PAtomicU64>().raw();
    let is_refused = |at, mask| {
        let opened = while_flipped(&pool, at, mask, || Clevel::<u64>::open(&pool));
        matches!(opened, Err(Error::Damaged { .. } | Error::NoRoot))
    };
    assert!((0..64).all(|at| is_refused(root + at, 1)));
    // Offsets of levels: of those that are there, out of the pool or not that of a line; and of
    // some that are not there.
    let level = |bits: u64| root + 64 + 64 + 8 * bits;
    for bits in [1, 2] {
        assert!((3..8).all(|byte| is_refused(level(bits) + byte, 1)));
        assert!((0..6).all(|bit| is_refused(level(bits), 1 << bit)));
    }
    assert!(
        [0, 4, 39]
            .into_iter()
            .all(|bits| is_refused(level(bits), 64))
    );
    check(&Clevel::<u64>::open(&pool).expect("a table"), 1);
}

/// A reader that answers before the answer is durable is caught: it is one whose flush, or fence,
/// is left out.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&super::REGISTERED).expect("words are keys");
    let is_readers =
        |file: &str| file.ends_with("clevel/readpath.rs") || file.ends_with("places.rs");
    interleaved::catch_readers(keys, is_readers);
}
