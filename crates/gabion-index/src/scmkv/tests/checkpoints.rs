//! A store in an ordinary file with a checkpoint: what a power loss leaves is one moment of it,
//! though others write while the checkpoint is made.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gabion_media::pmem::{Pool, PoolClass, PoolOptions};

use super::super::{Durability, Options, Scmkv};
use super::{check, content, key, small, value};

const THREADS: u64 = 3;

/// Keys that each thread goes through in turn.
const KEYS: u64 = 20;

/// Checkpoints of each store.
const ROUNDS: u64 = 8;

fn pool_options(checkpoint: &Path) -> PoolOptions {
    PoolOptions {
        size: 1 << 20,
        heaps: 4,
        chunk_bytes: 4096,
        checkpoint: Some(checkpoint.to_owned()),
        ..Scmkv::pool_options()
    }
}

fn options(durability: Durability) -> Options {
    Options {
        durability,
        logs: Some(3),
        ..small()
    }
}

/// Number `number` of a thread: a delete now and then, else a put of the number.
fn write(store: &Scmkv, thread: u64, number: u64) {
    let key = key(1 + thread * KEYS + number % KEYS);
    if number.is_multiple_of(13) {
        store.delete(&key).expect("sound");
    } else {
        store.put(&key, &value(number)).expect("space");
    }
}

/// What a thread's keys hold after so many writes.
fn expected(thread: u64, writes: u64) -> Vec<(u64, u64)> {
    let slots = (0..KEYS).filter_map(|slot| {
        let newest = (1..=writes).rev().find(|number| number % KEYS == slot)?;
        (newest % 13 != 0).then_some((1 + thread * KEYS + slot, newest))
    });
    slots.collect()
}

/// How many writes of each thread a store holds: those of each are a prefix.
fn writes_in(store: &Scmkv, most: u64) -> Vec<u64> {
    let content = content(store).expect("sound");
    let of_thread = |thread: u64| {
        let keys = 1 + thread * KEYS..1 + (thread + 1) * KEYS;
        let found: Vec<_> = content.range(keys).map(|(k, v)| (*k, *v)).collect();
        let newest = found.iter().map(|(_, number)| *number).max().unwrap_or(0);
        // Deletes behind the newest put show only by what is missing.
        let counts = newest..=(newest + KEYS + 13).min(most);
        let fits = |count: &u64| expected(thread, *count) == found;
        let count = counts.rev().find(fits);
        count.unwrap_or_else(|| panic!("thread {thread}: a mix: {found:?}"))
    };
    (0..THREADS).map(of_thread).collect()
}

/// Opens what a power loss leaves: the pool's own file is not to be trusted, so it is not there.
fn after_power_loss(checkpoint: &Path, durability: Durability) -> (tempfile::TempDir, Scmkv) {
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("checkpoint");
    std::fs::copy(checkpoint, &copy).expect("a copy");
    let pool = Pool::open(&dir.path().join("pool"), pool_options(&copy)).expect("a checkpoint");
    let store = Scmkv::open(&pool, &options(durability)).expect("a store");
    (dir, store)
}

#[test]
fn a_checkpoint_is_one_moment_of_the_store() {
    for durability in [Durability::Strict, Durability::Relaxed] {
        let dir = tempfile::tempdir().expect("a directory");
        let checkpoint = dir.path().join("checkpoint");
        let pool = Pool::create(&dir.path().join("pool"), pool_options(&checkpoint));
        let pool = pool.expect("space");
        if pool.class() != PoolClass::PowerBySync {
            // The directory is on persistent memory.
            return;
        }
        let store = Scmkv::create(&pool, &options(durability)).expect("space");
        let done: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (thread, done) in (0..).zip(&done) {
                let (store, is_over) = (&store, &is_over);
                scope.spawn(move || {
                    for number in 1.. {
                        // ORDER: Relaxed: it only has to end.
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        write(store, thread, number);
                        // ORDER: Release pairs with the Acquire below: it is done.
                        done.store(number, Ordering::Release);
                    }
                });
            }
            for round in 0..ROUNDS {
                // ORDER: Acquire pairs with the Release above.
                let count = || -> Vec<u64> {
                    done.iter()
                        .map(|done| done.load(Ordering::Acquire))
                        .collect()
                };
                let before = count();
                store.persist().expect("space");
                let after = count();
                let (_dir, lost) = after_power_loss(&checkpoint, durability);
                let most = 1 + after.iter().copied().max().unwrap_or(0);
                for (thread, (found, least)) in
                    (0..).zip(writes_in(&lost, most).iter().zip(&before))
                {
                    assert!(
                        found >= least,
                        "round {round}: {found} writes of thread {thread}, {least} were synced"
                    );
                }
                check(&lost).expect("sound");
                lost.put(&key(900), &value(1)).expect("it goes on");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        check(&store).expect("sound");
    }
}
