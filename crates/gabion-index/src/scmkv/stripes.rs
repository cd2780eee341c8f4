//! The locks of writers: in DRAM, one for a range of hashes.
//!
//! The paper keeps a flag for the writer in each bucket, on the medium. Here all buckets whose
//! hashes begin with the same bits share a lock, which is free when the store is opened. A bucket
//! keeps its lock when the table doubles.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::lock::Backoff;

/// Most locks, as a binary logarithm: with so many, two of 64 threads want the same one in a third
/// of all moments at most.
const LOG2_MAX: u32 = 12;

/// The locks.
#[derive(Debug)]
pub(super) struct StripeLocks {
    locks: Box<[AtomicU32]>,
    shift: u32,
}

/// A lock that is held.
#[derive(Debug)]
pub(super) struct StripeGuard<'a>(&'a AtomicU32);

impl StripeLocks {
    /// Locks for a table that has, or had at first, so many buckets.
    pub(super) fn new(table_log2: u32) -> StripeLocks {
        let log2 = table_log2.min(LOG2_MAX);
        StripeLocks {
            locks: (0..1_u32 << log2).map(|_| AtomicU32::new(0)).collect(),
            shift: 64 - log2,
        }
    }

    #[inline]
    fn of(&self, hash: u64) -> &AtomicU32 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "at most twelve bits are left"
        )]
        let index = (hash >> self.shift) as usize;
        &self.locks[index]
    }

    /// Takes the lock of a hash, waiting for other writers.
    #[inline]
    pub(super) fn lock(&self, hash: u64) -> StripeGuard<'_> {
        take(self.of(hash))
    }

    /// Takes all locks. Whoever does so holds none.
    pub(super) fn lock_all(&self) -> Vec<StripeGuard<'_>> {
        self.locks.iter().map(take).collect()
    }

    /// Whether a writer may be between a publish and its flush.
    #[inline]
    pub(super) fn is_locked(&self, hash: u64) -> bool {
        // ORDER: the acquiring load of what was published comes before; it saw a store that its
        // writer made after taking the lock, so this sees the lock taken, or released again.
        self.of(hash).load(Ordering::Relaxed) != 0
    }
}

#[inline]
fn take(lock: &AtomicU32) -> StripeGuard<'_> {
    // ORDER: acquire pairs with the release of the unlocking store.
    let taken = lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
    if taken.is_err() {
        take_slowly(lock);
    }
    StripeGuard(lock)
}

#[cold]
fn take_slowly(lock: &AtomicU32) {
    let mut backoff = Backoff::default();
    loop {
        // ORDER: as in `take`; the failing load is only a hint for the next try.
        let taken = lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            return;
        }
        backoff.wait();
    }
}

impl Drop for StripeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // ORDER: release pairs with the acquire in `take`.
        self.0.store(0, Ordering::Release);
    }
}
