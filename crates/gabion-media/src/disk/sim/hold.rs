//! Operations that wait until a test releases them.
//!
//! A race between threads shows only if one of them stops at the right place. A hold stops whoever
//! creates a file of a given kind, for as long as the test needs to do everything else.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// Holds up the thread that creates a certain file; [`super::SimDisk::hold_create`] makes it.
/// Dropping it lets the thread go on.
#[derive(Debug)]
pub struct CreationHold(Arc<HoldGate>);

/// What the disk keeps of a hold.
#[derive(Debug)]
pub(super) struct HoldGate {
    suffix: Box<str>,
    state: Mutex<Position>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug)]
enum Position {
    /// So many more files of the kind are created before the one that is held up.
    Ahead(u64),
    /// The thread waits.
    Held,
    /// The gate is open for good.
    Open,
}

impl CreationHold {
    pub(super) fn new(suffix: &str, skipped: u64) -> (CreationHold, Arc<HoldGate>) {
        let gate = Arc::new(HoldGate {
            suffix: suffix.into(),
            state: Mutex::new(Position::Ahead(skipped)),
            changed: Condvar::new(),
        });
        (CreationHold(Arc::clone(&gate)), gate)
    }

    /// Whether a thread waits.
    pub fn is_reached(&self) -> bool {
        matches!(*self.0.state.lock(), Position::Held)
    }
}

impl Drop for CreationHold {
    fn drop(&mut self) {
        *self.0.state.lock() = Position::Open;
        self.0.changed.notify_all();
    }
}

impl HoldGate {
    /// Waits, if the file to be created is the one that is held up. The caller holds no lock.
    pub(super) fn pass(&self, name: &str) {
        if !name.ends_with(&*self.suffix) {
            return;
        }
        let mut state = self.state.lock();
        match &mut *state {
            Position::Ahead(0) => {
                *state = Position::Held;
                self.changed
                    .wait_while(&mut state, |state| matches!(state, Position::Held));
            }
            Position::Ahead(skipped) => *skipped -= 1,
            Position::Held | Position::Open => {}
        }
    }
}
