//! Whether a store accepts writes, and whether it belongs to this process.
//!
//! A forked child has a copy of an open store without its threads, and locks of it that threads of
//! the parent held stay locked for ever. So whoever is about to take a lock asks here first.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion_media::Owner;

use crate::{Error, Result};

/// The first failure of a store, and whether it is closed.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failure: OnceLock<(Error, String)>,
    closed: AtomicBool,
    owner: Owner,
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
    pub(crate) fn as_error_of_copy(&self, error: Error) -> Error {
        match (error, self.failure.get()) {
            (Error::ReadOnly { .. }, Some((first, _))) => first.clone(),
            (error, _) => error,
        }
    }

    /// Keeps the first failure.
    pub(crate) fn fail(&self, error: &Error) {
        if self.failure.set((error.clone(), error.to_string())).is_ok() {
            tracing::error!(%error, "the store is now read-only");
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

    /// Whether the store was opened by this process, and not by one that this is a fork of.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    /// As [`Health::is_here`], by the process id, too.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.owner.is_this_process()
    }

    /// What is told to a forked child.
    pub(crate) fn forked(&self) -> Error {
        Error::Forked {
            owner: self.owner.process(),
        }
    }

    /// An error in a forked child.
    #[inline]
    pub(crate) fn check_here(&self) -> Result<()> {
        match self.is_here() {
            true => Ok(()),
            false => Err(self.forked()),
        }
    }

    /// An error once the store is closed, and in a forked child.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_here()?;
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
