//! Whether a store is idle: nobody has written for a while, or somebody waits for it to be idle.
//!
//! # Idea
//! An idle store gives back what it keeps for later writes. The background checks now and then
//! whether the visible sequence number has changed since it last looked; this costs writers
//! nothing. A caller who waits for the store to be idle need not wait for that time to pass.
//!
//! Without background threads the clock decides nothing, so that a store is deterministic: it is
//! idle if somebody waits for that.

use std::time::Duration;

use crate::Options;
use crate::types::Seq;

/// How long nobody has written to a store at rest. What it would save by resting between two phases
/// of a user's work is not worth many small tables, or merges of little.
pub(crate) const REST_AFTER: Duration = Duration::from_secs(10);

/// Since when nobody writes, and whether somebody waits for that.
#[derive(Debug, Default)]
pub(crate) struct IdleTimer {
    /// The sequence number that was visible when this was last looked at, and since when by the
    /// store's clock.
    quiet_since: Option<(Seq, Duration)>,
    /// Callers of `wait_idle`.
    waiting: usize,
}

impl IdleTimer {
    /// Somebody waits for the store to be idle, up to [`IdleTimer::end_wait`].
    pub(crate) fn begin_wait(&mut self) {
        self.waiting += 1;
    }

    pub(crate) fn end_wait(&mut self) {
        self.waiting -= 1;
    }

    /// Whether somebody waits.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting > 0
    }

    /// Whether the store counts as idle, where that is not a matter of how long nobody has written.
    pub(crate) fn decided(&self, options: &Options) -> Option<bool> {
        (self.is_awaited() || options.background_threads == 0).then_some(self.is_awaited())
    }

    /// Whether nobody has written for [`REST_AFTER`], by what is visible and by the clock now.
    pub(crate) fn is_quiet(&mut self, visible: Seq, now: Duration) -> bool {
        match self.quiet_since {
            Some((seq, since)) if seq == visible => now.saturating_sub(since) >= REST_AFTER,
            _ => {
                self.quiet_since = Some((visible, now));
                false
            }
        }
    }

    /// The store was busy until now.
    pub(crate) fn begin_anew(&mut self) {
        self.quiet_since = None;
    }
}
