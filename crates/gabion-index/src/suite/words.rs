//! What the special tests of several indexes of words do alike.

use crate::{Error, Index, Item, OrderedIndex, Seed};

/// All invariants hold, there are so many entries, and no block of the pool is lost. Returns the
/// number of blocks. For indexes of strings as well.
pub(crate) fn check<K: Item + ?Sized>(index: &dyn Index<K>, entries: u64) -> u64 {
    let checked = index.check().expect("sound");
    assert_eq!(
        (checked.entries, index.len().expect("sound")),
        (entries, entries)
    );
    index.pool().collect();
    assert_eq!(checked.blocks, index.pool().stats().used_blocks);
    checked.blocks
}

/// Inserts `count` keys into an empty index, and finds them and no others.
pub(crate) fn fill(index: &dyn Index<u64>, count: u64) {
    for key in 0..count {
        assert_eq!(index.insert(&key, key * 3).expect("space"), None);
    }
    find(index, count);
}

/// Finds the keys of [`fill`] and no others.
pub(crate) fn find(index: &dyn Index<u64>, count: u64) {
    for key in 0..count {
        assert_eq!(index.get(&key).expect("sound"), Some(key * 3));
        assert_eq!(index.get(&(key + count)).expect("sound"), None);
    }
    check(index, count);
}

/// Removes all keys but the first `kept` of what [`fill`] has inserted.
pub(crate) fn drain(index: &dyn Index<u64>, count: u64, kept: u64) {
    for key in kept..count {
        assert_eq!(index.remove(&key).expect("sound"), Some(key * 3));
    }
    check(index, kept);
}

/// Four threads insert into an index that was planned for few entries, and make it grow.
pub(crate) fn grow_by_threads(index: &dyn Index<u64>) {
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for number in 0..20_000 {
                    let key = number * threads + thread;
                    assert_eq!(index.insert(&key, key).expect("space"), None);
                    assert_eq!(index.get(&key).expect("sound"), Some(key));
                }
            });
        }
    });
    check(index, 20_000 * threads);
}

/// Forty keys whose hashes, with the seed of [`SMALL`](super::SMALL), are alike but for the last
/// `bits`: they split a segment of an empty index again and again.
pub(crate) fn insert_alike(index: &dyn Index<u64>, bits: u32, first_bits: u64) {
    let seed = super::SMALL.seed.map(Seed::new).expect("it has one");
    let alike = (0..).filter(|key| seed.hash_u64(*key) >> bits == first_bits);
    let alike: Vec<u64> = alike.take(40).collect();
    for (count, key) in (1..).zip(&alike) {
        assert_eq!(index.insert(key, *key).expect("space"), None);
        check(index, count);
    }
    for key in &alike {
        assert_eq!(index.get(key).expect("sound"), Some(*key));
    }
}

/// Inserts ascending keys into an empty index, and removes each of them a hundred keys later; then
/// the last ones. Returns the most blocks that there were, and those that are left.
pub(crate) fn queue(index: &dyn Index<u64>) -> (u64, u64) {
    let mut most = 0;
    for key in 0..20_000 {
        assert_eq!(index.insert(&key, key).expect("space"), None);
        if key >= 100 {
            assert_eq!(index.remove(&(key - 100)).expect("sound"), Some(key - 100));
        }
        if key % 1000 == 999 {
            most = most.max(check(index, 100));
        }
    }
    for key in 0..20_000 {
        index.remove(&key).expect("sound");
    }
    index.compact().expect("space");
    (most, check(index, 0))
}

/// The least and the greatest word are keys of an empty index like any other.
pub(crate) fn ends_are_keys(index: &dyn OrderedIndex<u64>) {
    for distance in 0..100 {
        let (low, high) = (distance, u64::MAX - distance);
        assert_eq!(index.insert(&high, high).expect("space"), None);
        assert_eq!(index.insert(&low, low).expect("space"), None);
    }
    let mut found = Vec::new();
    index.scan(&(u64::MAX - 3), 10, &mut found).expect("sound");
    let last = (0..4).rev().map(|distance| u64::MAX - distance);
    assert!(found.into_iter().eq(last.map(|key| (key, key))));
    check(index, 200);
    for distance in 0..100 {
        let high = u64::MAX - distance;
        assert_eq!(index.remove(&high).expect("sound"), Some(high));
    }
    check(index, 100);
}

/// Inserts into an empty index until its pool is full: then inserts that need room fail, and
/// everything else goes on.
pub(crate) fn fill_the_pool(index: &dyn Index<u64>) {
    let mut kept = 0;
    let failed = loop {
        match index.insert(&kept, kept) {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, Error::Media(_)), "{failed}");
    check(index, kept);
    for key in 0..kept {
        assert_eq!(index.update(&key, key + 1).expect("sound"), Some(key));
        assert_eq!(index.get(&key).expect("sound"), Some(key + 1));
    }
    assert_eq!(index.get(&kept).expect("sound"), None);
    assert_eq!(index.remove(&0).expect("sound"), Some(1));
    assert_eq!(index.insert(&0, 5).expect("room"), None);
    check(index, kept);
}

/// Threads that insert, delete and visit all at once, each its own keys of an empty index; by scans
/// if it is ordered.
pub(crate) fn threads_agree(index: &dyn Index<u64>) {
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let keys = || (0..2000).map(|number| (number * 3 + thread) << 4);
                for round in 0..4 {
                    for key in keys() {
                        assert_eq!(index.insert(&key, round).expect("space"), None);
                    }
                    let mut found = Vec::new();
                    if let Some(ordered) = index.ordered() {
                        ordered.scan(&0, 10_000, &mut found).expect("sound");
                        assert!(found.is_sorted_by(|one, two| one.0 < two.0));
                    } else {
                        let mut visit = |key: &u64, value| found.push((*key, value));
                        index.for_each(&mut visit).expect("sound");
                    }
                    let own = found.iter().filter(|(key, _)| (key >> 4) % 3 == thread);
                    assert_eq!(own.count(), 2000);
                    for key in keys() {
                        assert_eq!(index.get(&key).expect("sound"), Some(round));
                        assert_eq!(index.remove(&key).expect("sound"), Some(round));
                    }
                }
            });
        }
    });
    assert!(index.is_empty().expect("sound"));
    index.compact().expect("space");
    check(index, 0);
}
