//! Turns: the processes of one repetition work one at a time, a little each, so that all meet the
//! machine in the same state.
//!
//! A phase gives its turn away when it has worked for so long, and waits for the next one. What
//! passes until then belongs to others and counts nowhere: neither in the seconds of the phase nor
//! in a latency. Opening a store, warming up, settling and phases that run at a pace are not cut.

use std::time::Duration;

use crate::Error;

/// Says when this process may work.
pub trait Turns {
    /// How long a turn is; `None` when nobody waits for one.
    fn length(&self) -> Option<Duration>;

    /// Waits for the next turn.
    ///
    /// # Errors
    /// When none will come.
    fn take(&mut self) -> Result<(), Error>;

    /// Gives the turn away.
    ///
    /// # Errors
    /// When nobody is there to take it.
    fn give(&mut self) -> Result<(), Error>;
}

/// Nobody waits for a turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTurns;

impl Turns for NoTurns {
    fn length(&self) -> Option<Duration> {
        None
    }

    fn take(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn give(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
