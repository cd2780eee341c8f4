//! The threads that every engine has, and what becomes of errors that no caller waits for.

use std::sync::Arc;

use super::{Shell, SsdEngine};
use crate::engine::keyspaces::DroppableKeyspace;
use crate::options::Durability;
use crate::{Error, Result};

/// Starts the threads of an engine, if it has any.
pub(super) fn start_threads<E: SsdEngine>(engine: &Arc<E>) -> Result<()> {
    if engine.options.background_threads == 0 || engine.disk.is_read_only() {
        return Ok(());
    }
    engine.start_workers()?;
    spawn(engine, "gabion-log", |engine| {
        engine.schedule.maintain_log(|| {
            engine.end_old_transactions();
            engine.maintain_log();
        });
    })?;
    spawn(engine, "gabion-sync", |engine| {
        let begins_at = || engine.syncer.sync_begins_at();
        let (clock, sync) = (&engine.options.tuning.clock, || engine.sync_due());
        engine.schedule.sync_when_due(clock, begins_at, sync);
    })
}

/// Starts a thread of an engine. The store fails if it panics.
pub(in crate::engine) fn spawn<E: SsdEngine>(
    engine: &Arc<E>,
    name: &str,
    body: impl FnOnce(&E) + Send + 'static,
) -> Result<()> {
    let fail = |engine: &E, error| drop(engine.fail(error));
    engine.schedule.spawn(name, engine, body, fail)
}

impl<K: DroppableKeyspace> Shell<K> {
    /// Sees to it that what was written at `durability` comes to be durable in the time that this
    /// names, whatever the store's own durability is. Without threads it is the next write after
    /// that time which syncs.
    #[inline]
    pub(crate) fn promise(&self, durability: Durability) {
        if let Durability::Interval(time) = durability
            && self.syncer.ask(time)
        {
            self.schedule.wake_sync();
        }
        if self.options.background_threads == 0 && self.syncer.is_sync_due() {
            self.sync_due();
        }
    }

    /// Bounds what power loss costs.
    fn sync_due(&self) {
        if let Err(error) = self.syncer.sync_due()
            && self.health.failure().is_none()
        {
            self.fail(error);
        }
    }

    /// Keeps an error of the background, and passes it on: a shortage is tried again, all else ends
    /// writing. A job that the close of the store interrupts has not failed.
    pub(in crate::engine) fn record(&self, error: Error) -> Error {
        if matches!(error, Error::Closed) {
            return error;
        }
        if error.is_shortage() {
            tracing::warn!(%error, "the background will try again");
            self.schedule.set_shortage(Some(error.clone()));
        } else if self.health.failure().is_none() {
            return self.fail(error);
        }
        error
    }

    /// Whether writers can hope that a wait ends.
    pub(in crate::engine) fn check_progress(&self) -> Result<()> {
        self.health.check_writable()?;
        self.schedule.check_shortage()
    }
}
