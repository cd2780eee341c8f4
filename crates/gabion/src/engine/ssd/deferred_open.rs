//! A store opened without space for what an open writes.
//!
//! # Idea
//! An open reads, and ends with writes: it makes replayed records durable and begins a new segment
//! of the log. On a full disk these writes fail, but reads do not need them. So such a store is
//! open and *unsettled*: it reads from what the replay has put into memory. The first change tries
//! the end of the open again, and so does the background now and then; until it succeeds, all
//! changes fail for lack of space. A store opened read-only stays unsettled.
//!
//! # Invariants
//! - U1. Before the opening has ended nothing of the store changes, neither in memory nor on the
//!   medium, but what the end of an opening writes, which a crash may interrupt anywhere. So an
//!   unsettled store that is closed, or whose process ends, has lost nothing.
//! - U2. This lock is taken before all others of an engine.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::log::PendingLog;
use crate::{Error, Result};

/// What is left of an opening.
#[derive(Debug)]
pub(crate) struct DeferredOpen {
    is_settled: AtomicBool,
    /// The log, until it takes appends or the store is closed.
    log: Mutex<Option<PendingLog>>,
}

impl DeferredOpen {
    /// Of a store whose log is not settled, if it is given.
    pub(crate) fn new(log: Option<PendingLog>) -> DeferredOpen {
        DeferredOpen {
            is_settled: AtomicBool::new(log.is_none()),
            log: Mutex::new(log),
        }
    }

    /// Whether nothing is left.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `settle`: the log takes appends.
        self.is_settled.load(Ordering::Acquire)
    }

    /// Ends the opening by `settle`, unless it has ended.
    #[inline]
    pub(crate) fn settle(&self, settle: impl FnOnce(&mut PendingLog) -> Result<()>) -> Result<()> {
        match self.is_settled() {
            true => Ok(()),
            false => self.settle_now(settle),
        }
    }

    #[cold]
    fn settle_now(&self, settle: impl FnOnce(&mut PendingLog) -> Result<()>) -> Result<()> {
        let mut log = self.log.lock();
        if self.is_settled() {
            return Ok(());
        }
        settle(log.as_mut().ok_or(Error::Closed)?)?;
        *log = None;
        tracing::info!("there is space again, and the store takes writes");
        // ORDER: Release pairs with the Acquire in `is_settled`.
        self.is_settled.store(true, Ordering::Release);
        Ok(())
    }

    /// What becomes of a store that is being closed, by the last try to settle it: false if it
    /// stays as it was opened, for want of space. A writer that began before may have settled it
    /// since.
    pub(crate) fn end(&self, settled: Result<()>) -> Result<bool> {
        match settled {
            Err(error) if error.is_shortage() => {
                let mut log = self.log.lock();
                if self.is_settled() {
                    return Ok(true);
                }
                tracing::warn!(%error, "the store stays as it is");
                *log = None;
                Ok(false)
            }
            settled => settled.map(|()| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, Purpose, SimDisk};

    use super::*;

    /// A writer that had begun when its store was closed settled it after the close had found no
    /// space for that. The close left the log to the writer, which appended to it later.
    #[test]
    fn a_close_ends_what_somebody_else_has_settled() {
        let sim = SimDisk::new();
        sim.set_capacity(Some(0));
        let mut file = Disk::simulated(&sim)
            .create_append("file", Purpose::Log)
            .unwrap();
        let no_space = Error::from(file.append(b"granite").unwrap_err());
        assert!(no_space.is_no_space(), "{no_space}");
        let unsettled = DeferredOpen::new(None);
        assert!(unsettled.end(Err(no_space.clone())).unwrap());
        assert!(unsettled.end(Ok(())).unwrap());
        let failed = unsettled.end(Err(Error::Closed));
        assert!(matches!(failed, Err(Error::Closed)), "{failed:?}");
    }
}
