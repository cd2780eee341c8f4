//! Whether a store takes writes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// The first failure of a store, and whether it is closed.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failure: OnceLock<String>,
    closed: AtomicBool,
}

impl Health {
    /// The failure that made the store read-only.
    #[inline]
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Keeps the first failure.
    pub(crate) fn fail(&self, error: &Error) {
        if self.failure.set(error.to_string()).is_ok() {
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
