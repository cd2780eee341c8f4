//! The gate between changes and checkpoints: many may change a pool at the same time, and a
//! checkpoint is made while nobody does.

use std::cell::Cell;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::alloc::thread;

/// Locks of a gate. Threads with different numbers modulo this do not touch the same line.
const LANES: usize = 16;

/// Lets changes pass, or a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Gate {
    lanes: [Lane; LANES],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(RwLock<()>);

/// A checkpoint has the pool for itself.
pub(super) struct Closed<'a>(#[expect(dead_code, reason = "held")] Vec<RwLockWriteGuard<'a, ()>>);

/// Allows changes of a pool as long as it is held. See
/// [`Pool::write_guard`](super::Pool::write_guard).
#[derive(Debug)]
pub struct WriteGuard<'a> {
    lane: Option<RwLockReadGuard<'a, ()>>,
}

thread_local! {
    /// Gates that this thread has passed and not left.
    static PASSED: Cell<u32> = const { Cell::new(0) };
}

impl Gate {
    /// Waits for a checkpoint in progress. May be called again by a thread that has passed.
    pub(super) fn pass(&self) -> WriteGuard<'_> {
        let lane = &self.lanes[thread::small_number() as usize % LANES];
        PASSED.set(PASSED.get() + 1);
        // Recursive, so that a thread within does not wait for a checkpoint that waits for it.
        WriteGuard {
            lane: Some(lane.0.read_recursive()),
        }
    }

    /// Waits until nobody is within, and lets nobody in.
    pub(super) fn close(&self) -> Closed<'_> {
        Closed(self.lanes.iter().map(|lane| lane.0.write()).collect())
    }
}

impl<'a> WriteGuard<'a> {
    /// The guard of a pool that has no gate.
    pub(super) fn free() -> WriteGuard<'a> {
        WriteGuard { lane: None }
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        if self.lane.is_some() {
            PASSED.set(PASSED.get() - 1);
        }
    }
}

/// Whether this thread is within a gate.
pub(super) fn is_within() -> bool {
    PASSED.get() > 0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_checkpoint_sees_changes_whole() {
        let gate = Gate::default();
        let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let outer = gate.pass();
                        first.fetch_add(1, Ordering::Relaxed);
                        let inner = gate.pass();
                        second.fetch_add(1, Ordering::Relaxed);
                        drop((inner, outer));
                        assert!(!is_within());
                    }
                });
            }
            for _ in 0..200 {
                let closed = gate.close();
                assert_eq!(
                    first.load(Ordering::Relaxed),
                    second.load(Ordering::Relaxed)
                );
                drop(closed);
            }
        });
        assert_eq!(second.load(Ordering::Relaxed), 6000);
    }
}
