//! Whether a store takes writes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// The first failure of a store, and whether it is closed.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failure: OnceLock<(Error, String)>,
    closed: AtomicBool,
}

impl Health {
    /// The failure that made the store read-only.
    #[inline]
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(|(_, text)| text.as_str())
    }

    /// An error of this store as another one tells it that this one is a copy of, or is made from:
    /// where this store is read-only, what made it so. Nobody writes to a copy but who makes it,
    /// and that the copy is read-only reads as if the other store were.
    pub(crate) fn told_by_another(&self, error: Error) -> Error {
        match (error, self.failure.get()) {
            (Error::ReadOnly { .. }, Some((first, _))) => first.clone(),
            (error, _) => error,
        }
    }

    /// Keeps the first failure.
    pub(crate) fn fail(&self, error: &Error) {
        if self.failure.set((error.clone(), error.to_string())).is_ok() {
            tracing::error!(%error, "the store is read-only from here on");
        }
    }

    /// Closes the store; whether this call did.
    pub(crate) fn close(&self) -> bool {
        // ORDER: Relaxed; the engine's lock on the log's write half orders what writers did.
        !self.closed.swap(true, Ordering::Relaxed)
    }

    /// An error if something has failed.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match self.failure() {
            None => Ok(()),
            Some(cause) => Err(Error::ReadOnly {
                cause: cause.to_owned(),
            }),
        }
    }

    /// An error once the store is closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        // ORDER: Relaxed; closing waits for writers through their lock on the log, and for readers
        // not at all.
        match self.closed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::Closed),
        }
    }

    /// An error unless the store takes writes.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check()?;
        self.check_open()
    }
}
