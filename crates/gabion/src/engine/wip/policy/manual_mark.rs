//! Marks a bucket for a manual compaction (`jobs/manual_compaction`).
//!
//! # Invariants
//! - D1: only a job that merges all runs of the bucket, and began after the mark was set, removes
//!   it. A bucket that splits passes its mark to its children.

use std::sync::atomic::{AtomicU8, Ordering};

const NONE: u8 = 0;
const ASKED: u8 = 1;
const BEGUN: u8 = 2;

/// The mark of a bucket.
#[derive(Default)]
pub(crate) struct ManualCompactionMark(AtomicU8);

impl ManualCompactionMark {
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
