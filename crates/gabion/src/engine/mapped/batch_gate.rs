//! The gate between single writes, which run side by side, and batches, which run alone; and how a
//! reader notices a batch.
//!
//! # Invariants
//! - B1. While a batch is written and applied, nobody else writes. So what is written later is not
//!   older than the batch, and a recovery may apply the batch again.
//! - B2. `applied` is odd while a batch is applied. A reader that finds it even and unchanged
//!   around its reads has seen no part of a batch; else it reads again while no batch can be
//!   applied. If it is odd even then, a batch has failed in the middle, and nothing is read.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::stripe::Striped;

/// Lanes by which many pass side by side, or one alone. Nobody passes twice at a time.
#[derive(Debug, Default)]
pub(super) struct GateLanes(Striped<RwLock<()>>);

/// The gate.
#[derive(Debug, Default)]
pub(super) struct BatchGate {
    lanes: GateLanes,
    applied: AtomicU64,
}

/// One of many is within.
pub(super) type SharedPass<'a> = RwLockReadGuard<'a, ()>;

/// Nobody else is within.
pub(super) struct ExclusivePass<'a>(
    #[expect(dead_code, reason = "held")] Vec<RwLockWriteGuard<'a, ()>>,
);

/// A batch is being applied, and is there in part unless [`ApplyGuard::end`] is called.
#[must_use]
pub(super) struct ApplyGuard<'a>(&'a AtomicU64);

impl GateLanes {
    /// Keeps out who wants to be alone.
    #[inline]
    pub(super) fn pass(&self) -> SharedPass<'_> {
        self.0.own().read()
    }

    /// Keeps everybody else out.
    pub(super) fn close(&self) -> ExclusivePass<'_> {
        ExclusivePass(self.0.all().map(|lane| lane.write()).collect())
    }
}

impl BatchGate {
    /// Keeps batches out.
    #[inline]
    pub(super) fn pass(&self) -> SharedPass<'_> {
        self.lanes.pass()
    }

    /// Keeps everybody else out.
    pub(super) fn close(&self) -> ExclusivePass<'_> {
        self.lanes.close()
    }

    /// Says that a batch is being applied, to whoever reads until the end of it.
    pub(super) fn apply(&self, _alone: &ExclusivePass<'_>) -> ApplyGuard<'_> {
        // ORDER: Relaxed, with the fence: who reads anything that is stored from here on finds the
        // odd number behind it; it pairs with the fence in `read`.
        self.applied.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        ApplyGuard(&self.applied)
    }

    /// Reads something that must not be parts of a batch: again if it may have been. `None` if a
    /// batch is there in part, and stays so.
    #[inline]
    pub(super) fn read<R>(&self, mut read: impl FnMut() -> R) -> Option<R> {
        // ORDER: Acquire pairs with the Release of the end of a batch: all of it is seen.
        let before = self.applied.load(Ordering::Acquire);
        if before.is_multiple_of(2) {
            let found = read();
            // ORDER: the fence pairs with that in `apply`: if anything of a batch was read, its
            // number is seen here.
            fence(Ordering::Acquire);
            if self.applied.load(Ordering::Relaxed) == before {
                return Some(found);
            }
        }
        let _no_batch = self.pass();
        // ORDER: Relaxed: the gate orders it, in which batches change it.
        let is_whole = self.applied.load(Ordering::Relaxed).is_multiple_of(2);
        is_whole.then(read)
    }
}

impl ApplyGuard<'_> {
    /// All of the batch is there.
    pub(super) fn end(self) {
        // ORDER: Release pairs with the Acquire in `read`.
        self.0.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_what_is_applied_together_as_a_whole() {
        let gate = BatchGate::default();
        let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..2000 {
                    let alone = gate.close();
                    let applying = gate.apply(&alone);
                    first.store(round, Ordering::Relaxed);
                    std::thread::yield_now();
                    second.store(round, Ordering::Relaxed);
                    applying.end();
                }
                is_done.store(1, Ordering::Relaxed);
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while is_done.load(Ordering::Relaxed) == 0 {
                        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
                        let both = gate.read(|| (load(&first), load(&second)));
                        let (one, two) = both.expect("no batch fails");
                        assert_eq!(one, two);
                    }
                });
            }
        });
        let alone = gate.close();
        let _left = gate.apply(&alone);
        drop(alone);
        assert_eq!(gate.read(|| ()), None);
    }
}
