//! From the end of a replay to a log that takes appends.
//!
//! # Idea
//! What a replay found is made durable, its seals are recorded, what is of no use goes, and a new
//! segment is begun. Each of these but the third needs space. Where there is none the log stays as
//! it was replayed, and the steps that are left are taken later, by the same code.
//!
//! # Invariant
//! - Until all steps are taken no file goes that the replay has read, and nothing is appended. So
//!   whoever replays the log again, after a crash as well, finds the same, or does so by the seals
//!   that were recorded.

use std::sync::Arc;

use gabion_media::Disk;

use super::recovery::ReplayEnd;
use super::sync::LogSyncer;
use super::{Log, LogOptions, SealedLog};
use crate::names::log_name;
use crate::{Clock, Result};

/// A log that was replayed and takes no appends yet.
#[derive(Debug)]
pub(crate) struct PendingLog {
    end: ReplayEnd,
    shared: Arc<LogSyncer>,
    /// Whether nothing but the new segment is left to make.
    is_sealed: bool,
}

impl PendingLog {
    /// The log that a replay of `disk` found.
    pub(crate) fn new(
        disk: &Disk,
        end: ReplayEnd,
        options: &LogOptions,
        clock: &Clock,
    ) -> PendingLog {
        let shared = LogSyncer::behind(disk, &end, options, clock);
        PendingLog {
            end,
            shared: Arc::new(shared),
            is_sealed: false,
        }
    }

    /// What other threads do for the log, which is nothing before it takes appends.
    pub(crate) fn syncer(&self) -> Arc<LogSyncer> {
        Arc::clone(&self.shared)
    }

    /// Number of the segment in which the log goes on.
    pub(crate) fn next_segment(&self) -> u64 {
        self.end.next_segment()
    }

    /// Makes what was replayed durable as it lies there, for a log that cannot be settled now. That
    /// needs no space, but cannot know of a sync that had failed before, as settling need not.
    pub(crate) fn sync(&self, disk: &Disk) -> Result<()> {
        for log in self.end.unproven() {
            disk.sync_file(&log_name(log.segment))?;
        }
        Ok(disk.sync_dir()?)
    }

    /// Takes the steps that are left. `record` records seals durably; it is called again until it
    /// has succeeded once. Where there is no space for a step, nothing is lost, and this may be
    /// called again.
    pub(crate) fn settle(
        &mut self,
        disk: &Disk,
        record: impl FnOnce(&[SealedLog]) -> Result<()>,
    ) -> Result<Log> {
        if !self.is_sealed {
            record(self.end.seal(disk)?)?;
            self.end.clean(disk)?;
            self.is_sealed = true;
        }
        Log::begin(&self.shared, &self.end)
    }
}
