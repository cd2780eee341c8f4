//! Snapshots: a store as it was at one moment.

use std::sync::{Mutex, PoisonError};

use gabion_bindings::{Code, Failure, Reader, Result};
use napi_derive::napi;

/// A moment of a store.
#[napi]
pub struct Snapshot {
    /// None once it was given up.
    snapshot: Mutex<Option<gabion::Snapshot>>,
}

impl Snapshot {
    pub(crate) fn new(snapshot: gabion::Snapshot) -> Snapshot {
        Snapshot {
            snapshot: Mutex::new(Some(snapshot)),
        }
    }

    /// What reads at that moment.
    ///
    /// # Errors
    /// [`Code::Closed`] once it was given up.
    pub fn reader(&self) -> Result<Reader> {
        let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = snapshot.as_ref().ok_or_else(snapshot_closed)?;
        Ok(Reader::Snapshot(snapshot.clone()))
    }
}

/// Why something cannot be read any more.
pub(crate) fn snapshot_closed() -> Failure {
    Failure::Refused(Code::Closed, "the snapshot is closed; take another".into())
}

#[napi]
impl Snapshot {
    /// Gives it up, so that the store need not keep what it sees. Iterators go on.
    #[napi]
    pub fn close(&self) {
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        snapshot.take();
    }
}
