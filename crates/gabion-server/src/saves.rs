//! The state of `SAVE` and `BGSAVE`.
//!
//! The data is in the store at all times, so a save writes no file: it syncs, after which all that
//! was acknowledged before it began survives a power loss. One runs at a time. `LASTSAVE` is when
//! the last one that succeeded began, which is the moment that is certainly safe.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clients::now_ms;
use crate::fault::Result;
use crate::server::{Server, ServerStats, counted};

/// Saves of a server.
#[derive(Debug)]
pub(crate) struct SaveState {
    last: AtomicU64,
    changes: AtomicU64,
    is_running: AtomicBool,
    is_scheduled: AtomicBool,
    has_failed: AtomicBool,
}

/// The one save that may run.
#[derive(Debug)]
pub(crate) struct SaveGuard(());

impl SaveState {
    /// Of a server that starts at this second since 1970, with nothing unsaved.
    pub(crate) fn new(now: u64) -> SaveState {
        SaveState {
            last: AtomicU64::new(now),
            changes: AtomicU64::new(0),
            is_running: AtomicBool::new(false),
            is_scheduled: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    /// The right to save, unless somebody has it.
    pub(crate) fn begin(&self) -> Option<SaveGuard> {
        // ORDER: AcqRel; with the Release at the end of `run`.
        let was_running = self.is_running.swap(true, Ordering::AcqRel);
        (!was_running).then_some(SaveGuard(()))
    }

    /// Wants another save behind the one that runs. Who then cannot begin leaves it to that one.
    pub(crate) fn schedule(&self) {
        // ORDER: AcqRel, with `take_scheduled`.
        self.is_scheduled.swap(true, Ordering::AcqRel);
    }

    /// Whether another save is wanted, which the caller sees to.
    fn take_scheduled(&self) -> bool {
        // ORDER: AcqRel, with `schedule`.
        self.is_scheduled.swap(false, Ordering::AcqRel)
    }

    /// When the last save that succeeded began, in seconds since 1970.
    pub(crate) fn last(&self) -> u64 {
        counted(&self.last)
    }

    /// Changes since then.
    pub(crate) fn changes_since(&self, counts: &ServerStats) -> u64 {
        counted(&counts.changes).saturating_sub(counted(&self.changes))
    }

    /// Whether one runs.
    pub(crate) fn is_running(&self) -> bool {
        // ORDER: Relaxed; a list shows it.
        self.is_running.load(Ordering::Relaxed)
    }

    /// Whether the last one failed.
    pub(crate) fn has_failed(&self) -> bool {
        // ORDER: Relaxed, as above.
        self.has_failed.load(Ordering::Relaxed)
    }
}

impl SaveGuard {
    /// Syncs the store.
    ///
    /// # Errors
    /// As [`gabion::Db::persist`].
    pub(crate) fn run(self, server: &Server) -> Result<()> {
        let saves = &server.saves;
        let (began, changes) = (now_ms() / 1000, counted(&server.counts.changes));
        // DURABLE: after this all that was acknowledged before the call survives a power loss.
        let saved = server.store.db.persist(gabion::Durability::Sync);
        // ORDER: Relaxed (all); lists show them.
        saves.has_failed.store(saved.is_err(), Ordering::Relaxed);
        if saved.is_ok() {
            saves.last.store(began, Ordering::Relaxed);
            saves.changes.store(changes, Ordering::Relaxed);
        }
        // ORDER: AcqRel, with `begin`; before the look at `is_scheduled`, so that who could not
        // begin is seen here.
        saves.is_running.swap(false, Ordering::AcqRel);
        match saves.take_scheduled().then(|| saves.begin()).flatten() {
            Some(next) => next.run(server),
            None => Ok(saved?),
        }
    }
}
