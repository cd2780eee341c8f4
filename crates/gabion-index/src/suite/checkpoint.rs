//! An index in an ordinary file with a checkpoint: what a power loss leaves is one moment of it,
//! though others write while the checkpoint is made, and no earlier one than any answer before.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gabion_media::Error as MediaError;
use gabion_media::pmem::{Pool, PoolClass, PoolOptions};

use super::crash::from_env;
use super::{Keys, check};
use crate::index::IndexPlan;
use crate::lock::Backoff;
use crate::{Error, Index, Item};

const THREADS: u64 = 3;

/// Keys that each thread goes through in turn.
const KEYS: u64 = 60;

fn pool_options<K: Item + ?Sized>(keys: &Keys<K>, checkpoint: &Path) -> PoolOptions {
    PoolOptions {
        size: 16 << 20,
        heaps: 4,
        chunk_bytes: 4096,
        checkpoint: Some(checkpoint.to_owned()),
        ..(keys.makers.pool_options)()
    }
}

/// Number `number` of a thread: a delete now and then, else an insert of the number. Each second
/// turn deletes all, so that nodes split and merge.
fn write<K: Item + ?Sized>(index: &dyn Index<K>, key: &K, number: u64) {
    with_space(|| match is_delete(number) {
        true => index.remove(key),
        false => index.insert(key, number),
    });
}

/// The answer of a change, which is tried again as long as the pool is full: a thread that is not
/// let run keeps much from being used again.
fn with_space<T>(change: impl Fn() -> crate::Result<T>) -> T {
    let mut backoff = Backoff::default();
    for _ in 0..1_000_000 {
        match change() {
            Err(Error::Media(MediaError::PoolFull { .. })) => backoff.wait(),
            done => return done.expect("sound"),
        }
    }
    panic!("the pool stays full");
}

fn is_delete(number: u64) -> bool {
    number.is_multiple_of(13) || number / KEYS % 2 == 1
}

/// What a thread's keys hold after so many writes, by their numbers among its own.
fn expected(writes: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..KEYS).filter_map(move |slot| {
        let newest = (1..=writes).rev().find(|number| number % KEYS == slot)?;
        (!is_delete(newest)).then_some((slot, newest))
    })
}

/// What an index holds of a thread is what was there after some number of its writes, of at least
/// so many and at most so many.
fn assert_prefix<K: Item + ?Sized>(
    keys: &Keys<K>,
    index: &dyn Index<K>,
    thread: u64,
    least: u64,
    most: u64,
) {
    let found = (0..KEYS).filter_map(|slot| {
        let key = (keys.key)(thread * KEYS + slot);
        Some((slot, index.get(key.borrow()).expect("sound")?))
    });
    let found: Vec<_> = found.collect();
    let is_prefix = (least..=most).any(|writes| expected(writes).eq(found.iter().copied()));
    assert!(
        is_prefix,
        "thread {thread}, {least} to {most} writes: {found:?}"
    );
}

/// Looks at everything, in turns with a compaction: an entry with a number was written with all
/// that its thread had written before.
fn look<K: Item + ?Sized>(keys: &Keys<K>, index: &dyn Index<K>, done: &[AtomicU64]) {
    // ORDER: Release pairs with the acquire of who counts: a checkpoint from then on has it.
    let note = |done: &AtomicU64, number| done.fetch_max(number, Ordering::Release);
    for (thread, done) in (0..).zip(done) {
        for slot in 0..KEYS {
            let key = (keys.key)(thread * KEYS + slot);
            if let Some(number) = index.get(key.borrow()).expect("sound") {
                note(done, number);
            }
        }
    }
    let mut slots = BTreeMap::new();
    for number in 0..THREADS * KEYS {
        slots.insert((keys.key)(number), number);
    }
    let mut meet = |key: &K, number: u64| {
        let slot = slots.get(key).copied();
        let thread = usize::try_from(slot.expect("one of the keys") / KEYS).expect("small");
        note(&done[thread], number);
    };
    match index.ordered() {
        Some(ordered) => {
            let (least, mut found) = ((keys.key)(0), Vec::new());
            ordered.scan(least.borrow(), 40, &mut found).expect("sound");
            found
                .iter()
                .for_each(|(key, number)| meet(key.borrow(), *number));
        }
        None => index.for_each(&mut meet).expect("sound"),
    }
    with_space(|| index.compact());
}

/// The number of checkpoints is `GABION_CHECKPOINTS`, 4 by default.
pub(crate) fn follow<K: Item + ?Sized>(keys: &Keys<K>) {
    let dir = tempfile::tempdir().expect("a directory");
    let checkpoint = dir.path().join("checkpoint");
    let pool = Pool::create(&dir.path().join("pool"), pool_options(keys, &checkpoint));
    let pool = pool.expect("space");
    if pool.class() != PoolClass::PowerBySync {
        // The directory is on persistent memory.
        return;
    }
    let plan = IndexPlan {
        capacity: 8,
        seed: Some(7),
    };
    let index = (keys.makers.create)(&pool, plan).expect("space");
    let done: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    // ORDER: Acquire pairs with the Release below: so many are done.
    let count = || -> Vec<u64> {
        let done = done.iter().map(|done| done.load(Ordering::Acquire));
        done.collect()
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (thread, done) in (0..).zip(&done) {
            let (index, is_over) = (&*index, &is_over);
            scope.spawn(move || {
                for number in 1.. {
                    // ORDER: Relaxed: it only has to end.
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let key = (keys.key)(thread * KEYS + number % KEYS);
                    write(index, key.borrow(), number);
                    // ORDER: Release: as above.
                    done.fetch_max(number, Ordering::Release);
                }
            });
        }
        scope.spawn(|| {
            // ORDER: Relaxed: it only has to end.
            while !is_over.load(Ordering::Relaxed) {
                look(keys, &*index, &done);
            }
        });
        for _ in 0..from_env("GABION_CHECKPOINTS", 4) {
            let before = count();
            pool.sync().expect("space");
            let after = count();
            // The pool's own file is not to be trusted after a power loss: it is not there.
            let other = tempfile::tempdir().expect("a directory");
            let copy = other.path().join("checkpoint");
            std::fs::copy(&checkpoint, &copy).expect("a copy");
            let lost = Pool::open(&other.path().join("pool"), pool_options(keys, &copy));
            let lost = (keys.makers.open)(&lost.expect("a checkpoint")).expect("an index");
            for (thread, (before, after)) in (0..).zip(before.iter().zip(&after)) {
                assert_prefix(keys, &*lost, thread, *before, after + 1);
            }
            check(&*lost).expect("sound");
            let key = (keys.key)(900);
            lost.insert(key.borrow(), 1).expect("it goes on");
        }
        // ORDER: Relaxed: as above.
        is_over.store(true, Ordering::Relaxed);
    });
    check(&*index).expect("sound");
}
