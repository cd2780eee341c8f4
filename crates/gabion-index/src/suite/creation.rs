//! Creation is all or nothing: where there is no space for all of a new index, the pool is as it
//! was, and takes another one.
//!
//! Indexes of several blocks made their root first and asked for the others then. A pool without
//! space for these had a root all the same: it took no other index, and could not be opened.

use gabion_media::pmem::{PAtomicU64, Pool, PoolOptions, Region};

use super::{Keys, SMALL, check};
use crate::index::IndexPlan;
use crate::{Error, Index, Item, registry};

/// Bytes of a chunk. Space is refused where the next chunk is needed: in pools that are larger by a
/// chunk each, every reservation of a creation is refused once, but for those beside others of
/// their size.
const CHUNK: usize = 4096;

/// Bytes of the largest pool that is tried, and how many steps it takes to get there from a
/// multiple of 64 KiB on.
const BYTES_MAX: usize = 4 << 20;
const FINE_UPTO: usize = 256 << 10;

fn options<K: Item + ?Sized>(keys: &Keys<K>) -> PoolOptions {
    PoolOptions {
        heaps: 1,
        chunk_bytes: CHUNK as u64,
        ..(keys.makers.pool_options)()
    }
}

/// Creates an index in a pool, by which the pool has one or is as it was.
fn create<K: Item + ?Sized>(
    keys: &Keys<K>,
    pool: &Pool,
    plan: IndexPlan,
) -> Option<Box<dyn Index<K>>> {
    let before = pool.stats();
    let refusal = match (keys.makers.create)(pool, plan) {
        Ok(index) => return Some(index),
        Err(refusal) => refusal,
    };
    let is_plan = matches!(refusal, Error::ShardLimit | Error::Limit { .. });
    assert!(is_plan || refusal.is_no_space(), "{}: {refusal}", keys.name);
    assert!(pool.root::<PAtomicU64>().is_null(), "{}: a root", keys.name);
    pool.collect();
    let after = pool.stats();
    assert_eq!(after.used_bytes, before.used_bytes, "{}", keys.name);
    assert_eq!(after.free_bytes, before.free_bytes, "{}", keys.name);
    assert!(matches!((keys.makers.open)(pool), Err(Error::NoRoot)));
    None
}

/// The index works, in whatever space the pool has.
fn use_it<K: Item + ?Sized>(keys: &Keys<K>, index: &dyn Index<K>) {
    use std::borrow::Borrow;
    for number in 0..20 {
        let key = (keys.key)(number);
        match index.insert(key.borrow(), number) {
            Ok(before) => assert_eq!(before, None),
            Err(error) => assert!(error.is_no_space(), "{}: {error}", keys.name),
        }
    }
    check(index).unwrap_or_else(|error| panic!("{}: {error}", keys.name));
}

/// Creates an index in pools of all sizes, from those that have room for nothing on.
fn in_every_size<K: Item + ?Sized>(keys: &Keys<K>, plan: IndexPlan) {
    let fine = (1..FINE_UPTO / CHUNK).map(|chunks| chunks * CHUNK);
    let coarse = (FINE_UPTO..=BYTES_MAX).step_by(64 << 10);
    let mut created = 0;
    for bytes in fine.chain(coarse) {
        let region = Region::new(bytes);
        let Ok(pool) = Pool::create_in(&region, options(keys)) else {
            continue;
        };
        if let Some(index) = create(keys, &pool, plan) {
            use_it(keys, &*index);
            created += 1;
        } else if let Some(smaller) = create(keys, &pool, SMALL) {
            // What was refused has left room for a smaller one.
            use_it(keys, &*smaller);
        }
        if created == 4 {
            return;
        }
    }
    assert!(created > 0, "{}: never created", keys.name);
}

/// Plans at the ends of what can be asked for are refused, or are plans for an index that works.
fn at_the_ends<K: Item + ?Sized>(keys: &Keys<K>) {
    let powers = [20, 31, 32, 33, 47, 48, 62, 63].map(|log| 1 << log);
    for capacity in [0, 1, u64::MAX - 1, u64::MAX].into_iter().chain(powers) {
        let pool = super::pool(1 << 20, (keys.makers.pool_options)());
        let plan = IndexPlan { capacity, ..SMALL };
        if let Some(index) = create(keys, &pool, plan) {
            use_it(keys, &*index);
            assert!(
                !index.is_empty().expect("sound"),
                "{}: {capacity}",
                keys.name
            );
        }
    }
}

fn for_all(follow_words: fn(&Keys<u64>), follow_strings: fn(&Keys<[u8]>)) {
    for index in registry::all() {
        Keys::words(index).iter().for_each(follow_words);
        Keys::strings(index).iter().for_each(follow_strings);
    }
}

const LARGER: IndexPlan = IndexPlan {
    capacity: 5000,
    ..SMALL
};

#[test]
fn a_pool_has_all_of_an_index_or_nothing() {
    for_all(
        |keys| in_every_size(keys, SMALL),
        |keys| in_every_size(keys, SMALL),
    );
}

#[test]
fn a_pool_has_all_of_a_planned_index_or_nothing() {
    for_all(
        |keys| in_every_size(keys, LARGER),
        |keys| in_every_size(keys, LARGER),
    );
}

/// A TurboHash took plans of shards that no pool could have, and for some counted beyond 64 bits.
#[test]
fn a_plan_that_cannot_work_is_refused() {
    for_all(at_the_ends, at_the_ends);
}
