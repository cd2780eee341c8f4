//! The gate between changes and checkpoints: many may change a pool at the same time, and a
//! checkpoint is made while nobody does.

use std::cell::Cell;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::alloc::thread;

/// Locks of a gate. Threads with different numbers modulo this do not touch the same line.
const LANES: usize = 16;

/// Lets changes pass, or a checkpoint.
#[derive(Debug, Default)]
pub(super) struct CheckpointGate {
    lanes: [Lane; LANES],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(RwLock<()>);

/// A checkpoint has the pool for itself.
pub(super) struct ClosedGate<'a>(
    #[expect(dead_code, reason = "held")] Vec<RwLockWriteGuard<'a, ()>>,
);

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

impl CheckpointGate {
    /// Waits for a checkpoint in progress. May be called again by a thread that has passed.
    pub(super) fn pass(&self) -> WriteGuard<'_> {
        self.pass_by(thread::small_number() as usize % LANES)
    }

    fn pass_by(&self, lane: usize) -> WriteGuard<'_> {
        let lane = &self.lanes[lane];
        // A thread within must not wait for a checkpoint that waits for it. Others wait behind one,
        // or it would never come to its turn where threads share a lane.
        let passed = if is_within() {
            lane.0.read_recursive()
        } else {
            lane.0.read()
        };
        PASSED.set(PASSED.get() + 1);
        WriteGuard { lane: Some(passed) }
    }

    /// Waits until nobody is within, and lets nobody in.
    pub(super) fn close(&self) -> ClosedGate<'_> {
        ClosedGate(self.lanes.iter().map(|lane| lane.0.write()).collect())
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
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// With more threads than lanes some share one, and nearly always one of them was within: a
    /// checkpoint waited for as long as they changed the pool.
    #[test]
    fn nobody_passes_before_a_checkpoint_that_waits() {
        let gate = CheckpointGate::default();
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            let within = gate.pass_by(3);
            let tells = tell.clone();
            scope.spawn(|| {
                let _closed = gate.close();
                tells.send("closed").expect("heard");
                drop(tells);
            });
            // The checkpoint waits for this lane as soon as nobody gets in any more.
            while gate.lanes[3].0.try_read().is_some() {
                std::thread::yield_now();
            }
            let (comes, came) = mpsc::channel();
            scope.spawn(|| {
                comes.send(()).expect("heard");
                let _passed = gate.pass_by(3);
                tell.send("passed").expect("heard");
                drop((comes, tell));
            });
            came.recv().expect("told");
            // Long enough to come to the gate; should it not be, the test shows nothing.
            std::thread::sleep(Duration::from_millis(20));
            drop(within);
        });
        assert_eq!(told.iter().collect::<Vec<_>>(), ["closed", "passed"]);
    }

    #[test]
    fn a_checkpoint_sees_changes_whole() {
        let gate = CheckpointGate::default();
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
