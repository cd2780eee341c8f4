//! Starts, pauses and ends the threads of a phase, so that several stores can take turns.
//!
//! A thread looks at the gate before each call, which costs a load and a branch. While the gate is
//! open nobody takes a lock.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const ENDED: u8 = 2;

/// Where the threads of a phase pass on their way to the next call.
#[derive(Debug)]
pub(super) struct Gate {
    /// Changes only under the lock.
    state: AtomicU8,
    /// Threads that work.
    working: Mutex<usize>,
    changed: Condvar,
    /// When the phase was ended.
    ended_at: OnceLock<Instant>,
}

// ORDER: Relaxed throughout; what a thread did before it stopped working is handed over by the
// lock, and a thread that learns late of a change only does a call more.
impl Gate {
    /// An open gate for so many threads, all of which count as working.
    pub(super) fn new(threads: usize) -> Gate {
        Gate {
            state: AtomicU8::new(OPEN),
            working: Mutex::new(threads),
            changed: Condvar::new(),
            ended_at: OnceLock::new(),
        }
    }

    fn working(&self) -> MutexGuard<'_, usize> {
        // A count is whole whatever its holder did.
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, working: MutexGuard<'g, usize>) -> MutexGuard<'g, usize> {
        let woken = self.changed.wait(working);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> u8 {
        // ORDER: Relaxed; see above.
        self.state.load(Ordering::Relaxed)
    }

    fn change(&self, state: u8) {
        // ORDER: Relaxed; see above.
        self.state.store(state, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Whether the next call may be made at once.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.state() == OPEN
    }

    /// Whether the phase is to end.
    #[inline]
    pub(super) fn is_ended(&self) -> bool {
        self.state() == ENDED
    }

    /// Waits while the gate is closed; whether the thread is to go on.
    #[cold]
    pub(super) fn pass(&self) -> bool {
        let mut working = self.working();
        *working -= 1;
        self.changed.notify_all();
        while self.state() == CLOSED {
            working = self.wait(working);
        }
        *working += 1;
        self.state() == OPEN
    }

    /// A thread has come to the end of its work.
    pub(super) fn leave(&self) {
        *self.working() -= 1;
        self.changed.notify_all();
    }

    /// Returns when all threads wait at the gate or have left; does nothing once they are to end.
    pub(super) fn close(&self) {
        let mut working = self.working();
        if self.is_ended() {
            return;
        }
        self.change(CLOSED);
        while *working > 0 {
            working = self.wait(working);
        }
    }

    /// Lets them go on, unless they are to end.
    pub(super) fn open(&self) {
        let _working = self.working();
        if !self.is_ended() {
            self.change(OPEN);
        }
    }

    /// Ends the phase.
    pub(super) fn end(&self) {
        let _working = self.working();
        self.ended_at.get_or_init(Instant::now);
        self.change(ENDED);
    }

    /// When the phase was ended; now, if it was not.
    pub(super) fn ended_at(&self) -> Instant {
        self.ended_at.get().copied().unwrap_or_else(Instant::now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    /// Counts go on while the gate is open and stand still while it is closed.
    #[test]
    fn threads_stand_still_while_the_gate_is_closed() {
        let gate = Gate::new(3);
        let count = AtomicU64::new(0);
        // ORDER: Relaxed throughout; the gate's lock orders what is compared.
        let now = || count.load(Ordering::Relaxed);
        thread::scope(|scope| {
            for thread in 0..3 {
                let (gate, count) = (&gate, &count);
                scope.spawn(move || {
                    // One of them leaves early; nobody may wait for it.
                    let mut left = if thread == 0 { 10 } else { u64::MAX };
                    while left > 0 && (gate.is_open() || gate.pass()) {
                        count.fetch_add(1, Ordering::Relaxed);
                        left -= 1;
                    }
                    gate.leave();
                });
            }
            for _ in 0..100 {
                gate.close();
                let closed = now();
                thread::yield_now();
                assert_eq!(now(), closed);
                gate.open();
                while now() == closed {
                    thread::yield_now();
                }
            }
            gate.end();
            gate.close();
            gate.open();
            assert!(gate.is_ended() && !gate.is_open());
        });
        assert_eq!(*gate.working(), 0);
    }
}
