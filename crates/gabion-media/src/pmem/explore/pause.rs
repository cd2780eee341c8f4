//! Turns of the threads of a recorded run.
//!
//! # Idea
//! Bugs of concurrency need one thread to stop at a bad moment while others go far. So after any
//! step a thread may pause until the others have taken a number of steps; both are drawn from a
//! seed. A thread that waits for a lock takes no steps, so that a pause also ends when all threads
//! of the run are pausing, or after a while. The outcome depends on the system's scheduler too:
//! what the seed fixes is how often and how long threads pause, not the run.
//!
//! Few, long preemptions find most bugs (PCT, ASPLOS 2010).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::seeded::SeededRng;

/// One step in so many is followed by a pause,
const PAUSE_ONE_IN: u64 = 8;
/// in which the others take up to so many steps.
const STEPS_MAX: u64 = 64;
/// A pause gives way so many times at most.
const PATIENCE: u32 = 16;

/// When threads pause, and for how long.
pub(super) struct PauseSchedule {
    random: Mutex<SeededRng>,
    steps: AtomicU64,
    running: AtomicUsize,
    pausing: AtomicUsize,
}

// ORDER: Relaxed throughout: the numbers stand for themselves and guard nothing.
impl PauseSchedule {
    pub(super) fn new(seed: u64) -> PauseSchedule {
        PauseSchedule {
            random: Mutex::new(SeededRng::new(seed)),
            steps: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            pausing: AtomicUsize::new(0),
        }
    }

    /// So many threads begin to run.
    pub(super) fn begin(&self, threads: usize) {
        self.running.store(threads, Ordering::Relaxed);
    }

    /// A thread has come to its end.
    pub(super) fn leave(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a step.
    pub(super) fn count(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets others go first, now and then.
    pub(super) fn pause(&self) {
        if self.running.load(Ordering::Relaxed) < 2 {
            return;
        }
        let mut random = self.random.lock();
        if !random.one_in(PAUSE_ONE_IN) {
            return;
        }
        let wanted = 1 + random.below(STEPS_MAX);
        drop(random);
        let end = self.steps.load(Ordering::Relaxed) + wanted;
        self.pausing.fetch_add(1, Ordering::Relaxed);
        for _ in 0..PATIENCE {
            let is_over = self.steps.load(Ordering::Relaxed) >= end
                || self.pausing.load(Ordering::Relaxed) >= self.running.load(Ordering::Relaxed);
            if is_over {
                break;
            }
            std::thread::yield_now();
        }
        self.pausing.fetch_sub(1, Ordering::Relaxed);
    }
}
