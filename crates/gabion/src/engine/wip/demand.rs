//! Compactions that a user asks for.
//!
//! # Idea
//! The caller freezes the MemTables of the range and waits for their flush; then it marks the
//! buckets of the range and waits until no mark is left. The marks are what is due for the
//! background (`due`), which merges everything that a marked bucket has into one run of the last
//! level, so that old versions and tombstones are gone that no reader needs. So the threads of the
//! store do all the work, and a store that is closed meanwhile is left by all of them.
//!
//! # Invariants
//! - D1: a mark is taken away by a job that merges all runs of its bucket and began after it was
//!   set. A bucket that splits hands its mark to its children.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::bucket::Bucket;
use super::{Keyspace, Wip};
use crate::Result;
use crate::engine::ssd::SsdEngine;

const NONE: u8 = 0;
const ASKED: u8 = 1;
const BEGUN: u8 = 2;

/// The mark of a bucket.
#[derive(Default)]
pub(crate) struct Demand(AtomicU8);

impl Demand {
    /// Sets the mark. Who sets it while a job serves it wants another one.
    pub(crate) fn ask(&self) {
        // ORDER: Release pairs with the Acquire in `begin`: the job finds the tables that were
        // there when it was asked for.
        self.0.store(ASKED, Ordering::Release);
    }

    /// Whether a job must be done that has not begun.
    pub(crate) fn is_asked(&self) -> bool {
        // ORDER: Acquire, as in `is_open`.
        self.0.load(Ordering::Acquire) == ASKED
    }

    /// Whether there is still something to wait for.
    pub(crate) fn is_open(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `end`: who finds the mark taken away finds what
        // the compaction installed.
        self.0.load(Ordering::Acquire) != NONE
    }

    /// A job begins.
    pub(crate) fn begin(&self) {
        // ORDER: Acquire pairs with the Release in `ask`.
        self.0.swap(BEGUN, Ordering::Acquire);
    }

    /// The job has ended. The mark is gone unless it failed or somebody asked for another one.
    pub(crate) fn end(&self, succeeded: bool) {
        let next = if succeeded { NONE } else { ASKED };
        // ORDER: Release pairs with the Acquire in `is_open`. On failure somebody asked again.
        let _ = self
            .0
            .compare_exchange(BEGUN, next, Ordering::Release, Ordering::Relaxed);
    }
}

impl Wip {
    /// Merges what the buckets of a range have into one run each, and waits until that is done.
    /// `upper` is the first key above the range.
    pub(crate) fn compact_range(
        &self,
        keyspace: &Arc<Keyspace>,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<()> {
        self.check_writable()?;
        let touched = || -> Vec<Arc<Bucket>> {
            let router = keyspace.router.load();
            router.touching(lower, upper).cloned().collect()
        };
        let frozen = {
            let _alone = self.leader.write();
            keyspace.dropped.check()?;
            let buckets = touched();
            self.freeze_all(buckets.iter().map(|bucket| (keyspace, bucket)))
        };
        self.wait_flushed(&frozen)?;
        {
            // Splits install the children with this lock held: none of them is missed (D1).
            let _install = self.lock_install();
            for bucket in touched() {
                bucket.demand.ask();
                self.touch(&bucket);
            }
        }
        self.after_job();
        let is_dropped = || keyspace.dropped.is_set();
        self.wait_until(|| is_dropped() || !touched().iter().any(|of| of.awaits_demand()))?;
        keyspace.dropped.check()
    }
}
