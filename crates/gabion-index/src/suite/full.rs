//! Full pools: what was stored can be removed again, all of it, and then as much fits in as before.
//!
//! A full P-HOT kept three quarters of its entries for ever: a delete there makes a new node, for
//! which there was no space, and what deletes gave back was of other sizes. Every index is filled
//! to the last byte here, by one thread and by several, and emptied in several orders, in the
//! same process and after the pool was closed and opened again.

use std::borrow::Borrow;

use gabion_media::pmem::{Pool, PoolOptions, Region};

use super::{Keys, SMALL, check};
use crate::{Index, Item, registry};

/// Bytes of a pool: some chunks, and some thousands of entries.
const BYTES: usize = 1 << 20;

/// Inserts without space after which an index counts as full: those of large nodes fail first.
const REFUSALS: usize = 50;

/// Threads that write at the same time.
const THREADS: usize = 3;

/// How many of a hundred entries fit in again at least.
const AGAIN_PERCENT: usize = 95;

/// The same of a table in one shard, which grows by a larger array beside its old one: by a step
/// less, if the arrays before had other sizes.
const AGAIN_OF_ONE_SHARD_PERCENT: usize = 80;

/// The same of several threads, each time: how many fit in depends on whose node is split first
/// when space ends. Three fifths and more were seen.
const AGAIN_BY_THREADS_PERCENT: usize = 40;

fn again_percent(name: &str) -> usize {
    match name {
        "turbohash" => AGAIN_OF_ONE_SHARD_PERCENT,
        _ => AGAIN_PERCENT,
    }
}

fn options<K: Item + ?Sized>(keys: &Keys<K>) -> PoolOptions {
    PoolOptions {
        heaps: 4,
        ..(keys.makers.pool_options)()
    }
}

/// Inserts keys, every `step`th one from `first` on, until there is no space for more. Returns the
/// numbers of those that are there.
fn fill<K: Item + ?Sized>(
    keys: &Keys<K>,
    index: &dyn Index<K>,
    first: u64,
    step: usize,
) -> Vec<u64> {
    let mut kept = Vec::new();
    let mut refusals = 0;
    for number in (first..).step_by(step) {
        match index.insert((keys.key)(number).borrow(), number) {
            Ok(before) => {
                assert_eq!(before, None, "{}: {number}", keys.name);
                kept.push(number);
            }
            Err(error) => {
                assert!(error.is_no_space(), "{}: {error}", keys.name);
                refusals += 1;
            }
        }
        if refusals == REFUSALS {
            break;
        }
    }
    kept
}

/// Removes keys, in one of some orders. Returns how many were not removed for want of space.
fn empty<K: Item + ?Sized>(
    keys: &Keys<K>,
    index: &dyn Index<K>,
    kept: &[u64],
    order: usize,
) -> usize {
    let count = kept.len();
    // Coprime to the count, so that all places are visited.
    let stride = (count / 3..).find(|stride| is_coprime(*stride, count));
    let stride = stride.unwrap_or(1);
    let mut refused = 0;
    for step in 0..count {
        let place = match order % 3 {
            0 => step * stride % count,
            1 => step,
            _ => count - 1 - step,
        };
        let number = kept[place];
        match index.remove((keys.key)(number).borrow()) {
            Ok(before) => assert_eq!(before, Some(number), "{}: {number}", keys.name),
            Err(error) => {
                assert!(error.is_no_space(), "{}: {error}", keys.name);
                refused += 1;
            }
        }
    }
    refused
}

fn is_coprime(one: usize, two: usize) -> bool {
    let (mut one, mut two) = (one, two);
    while two != 0 {
        (one, two) = (two, one % two);
    }
    one == 1
}

/// What is wrong after all keys were removed, of which so many were refused.
fn expect_empty<K: Item + ?Sized>(
    index: &dyn Index<K>,
    kept: usize,
    refused: usize,
) -> Result<(), String> {
    let len = index.len().expect("sound");
    if refused > 0 || len > 0 {
        return Err(format!("{refused} of {kept} refused, {len} left"));
    }
    check(index)?;
    // Some leave to this what deletes could give back.
    index.compact().map_err(|error| error.to_string())?;
    index.pool().collect();
    check(index)
}

fn expect_as_many(before: usize, again: usize, percent: usize) -> Result<(), String> {
    if again * 100 < before * percent {
        return Err(format!("{again} fit in again of {before}"));
    }
    Ok(())
}

/// One thread, and orders of deletes one after the other; the pool is opened anew in between.
fn by_one<K: Item + ?Sized>(keys: &Keys<K>) -> Result<(), String> {
    let region = Region::new(BYTES);
    let pool = Pool::create_in(&region, options(keys)).expect("a pool in memory");
    let mut index = (keys.makers.create)(&pool, SMALL).expect("space");
    let mut pool = pool;
    let mut first = None;
    for order in 0..3 {
        let kept = fill(keys, &*index, order as u64 * 7, 1);
        let before = *first.get_or_insert(kept.len());
        expect_as_many(before, kept.len(), again_percent(keys.name))
            .map_err(|error| format!("order {order}: {error}"))?;
        check(&*index)?;
        if order == 1 {
            drop(index);
            pool.close().expect("closed");
            pool = Pool::open_in(&region, options(keys)).expect("the pool");
            index = (keys.makers.open)(&pool).expect("the index");
        }
        let refused = empty(keys, &*index, &kept, order);
        expect_empty(&*index, kept.len(), refused).map_err(|e| format!("order {order}: {e}"))?;
        if order == 0 {
            drop(index);
            pool.close().expect("closed");
            pool = Pool::open_in(&region, options(keys)).expect("the pool");
            index = (keys.makers.open)(&pool).expect("the index");
        }
    }
    let kept = fill(keys, &*index, 0, 1);
    expect_as_many(first.unwrap_or(0), kept.len(), again_percent(keys.name))
        .map_err(|error| format!("in the end: {error}"))
}

/// Several threads fill, and several remove what others have stored.
fn by_threads<K: Item + ?Sized>(keys: &Keys<K>) -> Result<(), String> {
    let region = Region::new(BYTES);
    let pool = Pool::create_in(&region, options(keys)).expect("a pool in memory");
    let index = (keys.makers.create)(&pool, SMALL).expect("space");
    let index = &*index;
    let mut first = None;
    for round in 0..3 {
        let all: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let fill = |thread| move || fill(keys, index, thread as u64, THREADS);
            let fills: Vec<_> = (0..THREADS)
                .map(|thread| scope.spawn(fill(thread)))
                .collect();
            let kept = fills.into_iter().map(|fill| fill.join().expect("no panic"));
            kept.collect()
        });
        let count: usize = all.iter().map(Vec::len).sum();
        expect_as_many(*first.get_or_insert(count), count, AGAIN_BY_THREADS_PERCENT)
            .map_err(|error| format!("threads, round {round}: {error}"))?;
        let refused: usize = std::thread::scope(|scope| {
            let numbered = all.iter().enumerate();
            let empties: Vec<_> = numbered
                .map(|(thread, kept)| scope.spawn(move || empty(keys, index, kept, thread + round)))
                .collect();
            let refused = empties
                .into_iter()
                .map(|empty| empty.join().expect("no panic"));
            refused.sum()
        });
        expect_empty(index, count, refused).map_err(|error| format!("threads: {error}"))?;
    }
    Ok(())
}

/// What is wrong with the entries of the registry that have such keys.
fn all_of<K: Item + ?Sized>(
    keys: impl Fn(&'static registry::Registered) -> Option<Keys<K>>,
    follow: fn(&Keys<K>) -> Result<(), String>,
) {
    let mut wrong = Vec::new();
    for index in registry::all() {
        if let Some(keys) = keys(index)
            && let Err(error) = follow(&keys)
        {
            wrong.push(format!("{}: {error}", index.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Words one behind the other, so that nodes are as full as they can be.
fn dense(index: &'static registry::Registered) -> Option<Keys<u64>> {
    Some(Keys {
        key: |number| number,
        ..Keys::words(index)?
    })
}

#[test]
fn full_indexes_of_words_can_be_emptied() {
    all_of(Keys::words, by_one);
}

#[test]
fn full_indexes_of_dense_words_can_be_emptied() {
    all_of(dense, by_one);
}

#[test]
fn full_indexes_of_strings_can_be_emptied() {
    all_of(Keys::strings, by_one);
}

#[test]
fn full_indexes_of_words_can_be_emptied_by_threads() {
    all_of(dense, by_threads);
}

#[test]
fn full_indexes_of_strings_can_be_emptied_by_threads() {
    all_of(Keys::strings, by_threads);
}
