//! Locks of indexes: always in DRAM, never on the medium.
//!
//! A lock word on a medium costs writes of the medium for every acquisition and is found held after
//! a crash by a thread that is gone. So whatever an index locks has its word in ordinary memory and
//! is free when a pool is opened.
//!
//! [`VersionLock`] is the optimistic lock of trees and tries: a reader notes the version, reads,
//! and asks whether the version is still the same; a writer locks, changes, and raises it.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

/// Waiting that gives way: spins first, then yields the processor, then sleeps.
#[derive(Debug, Default)]
pub struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Rounds that spin, doubling up to 64 pauses: about the time of a short critical section.
    const SPIN_ROUNDS: u32 = 7;
    /// Rounds that yield before sleeping: the holder may have lost its processor.
    const YIELD_ROUNDS: u32 = 64;

    /// Waits a little, longer from call to call.
    #[cold]
    pub fn wait(&mut self) {
        if self.rounds < Self::SPIN_ROUNDS {
            for _ in 0..1 << self.rounds {
                std::hint::spin_loop();
            }
        } else if self.rounds < Self::SPIN_ROUNDS + Self::YIELD_ROUNDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
        self.rounds = self.rounds.saturating_add(1);
    }
}

/// A lock whose readers do not write: an even version is free, an odd one is locked.
///
/// What it guards must be atomics, because readers may see it while it changes.
#[derive(Debug, Default)]
pub struct VersionLock {
    version: AtomicU64,
}

/// A version at which nobody was writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

/// The lock is held as long as this lives; its end raises the version.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct VersionGuard<'a> {
    lock: &'a VersionLock,
    locked: u64,
}

impl VersionLock {
    /// A free lock.
    #[must_use]
    pub const fn new() -> VersionLock {
        VersionLock {
            version: AtomicU64::new(0),
        }
    }

    /// Waits until nobody writes and returns the version to ask [`VersionLock::is_unchanged`] for.
    #[inline]
    pub fn begin_read(&self) -> Version {
        let mut backoff = Backoff::default();
        loop {
            // ORDER: pairs with the release in the guard's drop: the reader sees what was written
            // under all earlier guards.
            let version = self.version.load(Ordering::Acquire);
            if version & 1 == 0 {
                return Version(version);
            }
            backoff.wait();
        }
    }

    /// Whether nobody wrote since `version`: what was read in between belongs together.
    #[inline]
    #[must_use]
    pub fn is_unchanged(&self, version: Version) -> bool {
        // ORDER: pairs with the fence in `upgrade`: if a read before this line saw a write of a
        // later guard, the load below sees that guard's odd version.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version.0
    }

    /// Locks, waiting for other writers.
    #[inline]
    pub fn lock(&self) -> VersionGuard<'_> {
        let mut backoff = Backoff::default();
        loop {
            let version = self.begin_read();
            if let Some(guard) = self.upgrade(version) {
                return guard;
            }
            backoff.wait();
        }
    }

    /// Locks if nobody wrote since `version`.
    #[inline]
    pub fn upgrade(&self, version: Version) -> Option<VersionGuard<'_>> {
        // ORDER: acquire pairs with the release in the guard's drop; the fence pairs with the one
        // in `is_unchanged`, and keeps writes under the guard behind the odd version.
        let raised = self.version.compare_exchange(
            version.0,
            version.0 + 1,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        // ORDER: pairs with the fence in `is_unchanged`, as said above.
        fence(Ordering::Release);
        raised.ok().map(|_| VersionGuard {
            lock: self,
            locked: version.0 + 1,
        })
    }
}

impl Drop for VersionGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // ORDER: pairs with the acquires in `begin_read` and `upgrade`.
        self.lock.version.store(self.locked + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_reader_notices_a_writer() {
        let lock = VersionLock::new();
        let before = lock.begin_read();
        assert!(lock.is_unchanged(before));
        let guard = lock.upgrade(before).expect("nobody wrote");
        assert!(!lock.is_unchanged(before));
        assert!(lock.upgrade(before).is_none());
        drop(guard);
        assert!(!lock.is_unchanged(before));
        assert!(lock.is_unchanged(lock.begin_read()));
    }

    #[test]
    fn pairs_written_under_the_lock_are_read_whole() {
        let shared = Arc::new((VersionLock::new(), AtomicU64::new(0), AtomicU64::new(0)));
        let rounds = 20_000;
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    for _ in 0..rounds {
                        let _guard = shared.0.lock();
                        let next = shared.1.load(Ordering::Relaxed) + 1;
                        shared.1.store(next, Ordering::Relaxed);
                        shared.2.store(next * 3, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut last = 0;
        while last < 2 * rounds {
            let version = shared.0.begin_read();
            let one = shared.1.load(Ordering::Relaxed);
            let two = shared.2.load(Ordering::Relaxed);
            if shared.0.is_unchanged(version) {
                assert_eq!(two, one * 3);
                assert!(one >= last);
                last = one;
            }
        }
        for writer in writers {
            writer.join().expect("a writer");
        }
    }
}
