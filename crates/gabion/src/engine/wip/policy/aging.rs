//! Garbage goes by a bounded time, even when nobody writes (Lethe, SIGMOD 2020: compaction by the
//! oldest tombstone).
//!
//! # Idea
//! The manifest remembers of each table when its first entry was written, and since when it may
//! hold garbage of its own: tombstones, and versions that were kept for a snapshot. A bucket may
//! hold garbage since the oldest of these times, and since the first entry of each run that lies
//! over another one. When that is [`Options::garbage_age_max`] ago, the bucket is due for a full
//! compaction; a MemTable with entries of that age becomes a table before.
//!
//! So a key that was deleted or overwritten is gone from the medium at that age and the time that
//! the job takes; and a bucket is rewritten once per that time at most, as what a compaction must
//! leave for a snapshot counts from then on. A bucket of runs that do not overlap is left alone.
//!
//! Where the medium is short of room nobody waits that long: MemTables with deletes of ranges
//! become tables at once, and all do at rest.
//!
//! # Times
//! Seconds of the system's clock since 1970, plus one; 0 is none. The age of a MemTable counts from
//! its first entry; after an open, from then on.
//!
//! # Invariants
//! - A1: a table's `born` is not later than the insertion of its first entry, and if it
//!   holds garbage of its own, `garbage_since` is not later than it could first have been garbage,
//!   or than the last full compaction of its bucket.
//!
//! [`Options::garbage_age_max`]: crate::Options::garbage_age_max

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Result;
use crate::engine::wip::Wip;
use crate::engine::wip::bucket::file::TableFile;
use crate::engine::wip::bucket::{Bucket, Levels, Run};
use crate::engine::wip::manifest::FileAge;

impl Wip {
    /// The time of now.
    pub(in super::super) fn time(&self) -> u64 {
        self.options.clock.unix_time().as_secs() + 1
    }

    /// Whether something that came at that time is as old as garbage may become. What is that far
    /// in the future counts too: it came while the clock was wrong.
    pub(in super::super) fn is_overdue(&self, since: Option<u64>) -> bool {
        let age_max = self.options.garbage_age_max.as_secs();
        since.is_some_and(|since| self.time().abs_diff(since) >= age_max)
    }

    /// Freezes MemTables whose entries are as old as garbage may become. Where medium or merges are
    /// short of room, also those with deletes of ranges, and at rest all, as deletes give room
    /// back once they are in tables. False when there is none.
    pub(in super::super) fn freeze_aged(&self) -> Result<bool> {
        let aged = self.aged_buckets();
        if aged.is_empty() {
            return Ok(false);
        }
        self.count_visits(aged.len());
        let _alone = self.leader.write();
        let mut install = self.lock_install();
        for bucket in &aged {
            self.freeze_bucket(&mut install, bucket);
        }
        Ok(true)
    }

    /// Whether [`Wip::freeze_aged`] has something to do.
    pub(in super::super) fn has_aged_memtables(&self) -> bool {
        !self.aged_buckets().is_empty()
    }

    /// The buckets whose MemTables are to be frozen.
    fn aged_buckets(&self) -> Vec<Arc<Bucket>> {
        if !self.syncer.is_room_short() && self.schedule.check_shortage().is_ok() {
            let is_overdue = |since| self.is_overdue(Some(since));
            return self.written.buckets_since(is_overdue);
        }
        let at_rest = self.is_at_rest();
        let mut buckets = self.written.buckets();
        buckets.retain(|bucket| {
            at_rest || self.is_overdue(bucket.written_since()) || bucket.deletes_ranges()
        });
        buckets
    }

    /// The age of what a flush has written: the entries of a MemTable since `born`.
    pub(in super::super) fn flushed_age(born: u64, superseded: u64, tombstones: u64) -> FileAge {
        FileAge {
            superseded,
            born,
            garbage_since: if superseded + tombstones > 0 { born } else { 0 },
        }
    }

    /// The age of what a compaction has left of `runs`, newest first. `whole`: they were all runs
    /// of their bucket, so that what is left is needed by somebody now.
    pub(in super::super) fn compacted_age(
        &self,
        runs: &[Run],
        whole: bool,
        superseded: u64,
        tombstones: u64,
    ) -> FileAge {
        let files = || runs.iter().flat_map(|run| run.tables.iter());
        let born = files().map(|file| file.age.born).min();
        let garbage_since = match (superseded + tombstones, whole) {
            (0, _) => 0,
            (_, true) => self.time(),
            (_, false) => oldest_garbage(runs).unwrap_or_else(|| self.time()),
        };
        FileAge {
            superseded,
            born: born.unwrap_or_else(|| self.time()),
            garbage_since,
        }
    }
}

impl Bucket {
    /// Since when the active MemTable holds entries, if it does.
    pub(in super::super) fn written_since(&self) -> Option<u64> {
        // ORDER: Relaxed (all of this file); it changes with the list of `written` locked.
        let since = self.written.load(Ordering::Relaxed);
        (since > 0).then_some(since)
    }

    /// Whether the active MemTable holds deletes of ranges.
    fn deletes_ranges(&self) -> bool {
        !self.state.load().active.range_deletes().is_empty()
    }

    /// The active MemTable holds entries since then.
    pub(in super::super) fn set_written(&self, since: u64) {
        // ORDER: Relaxed, as above.
        self.written.store(since, Ordering::Relaxed);
    }

    /// As [`Bucket::written_since`]; from now on it holds none.
    pub(in super::super) fn take_written(&self) -> Option<u64> {
        // ORDER: Relaxed, as above.
        let since = self.written.swap(0, Ordering::Relaxed);
        (since > 0).then_some(since)
    }
}

/// Since when a bucket may hold garbage.
pub(in super::super) fn garbage_since(levels: &Levels) -> Option<u64> {
    let runs: Vec<Run> = levels.runs().cloned().collect();
    oldest_garbage(&runs)
}

/// Since when there may be garbage in runs, which come newest first.
fn oldest_garbage(runs: &[Run]) -> Option<u64> {
    let own = |file: &TableFile| (file.age.garbage_since > 0).then_some(file.age.garbage_since);
    let files = runs.iter().flat_map(|run| run.tables.iter());
    let inside = files.filter_map(|file| own(file)).min();
    let covers = runs.iter().enumerate().filter(|(position, run)| {
        runs[position + 1..]
            .iter()
            .any(|older| run.smallest() <= older.largest() && older.smallest() <= run.largest())
    });
    let over = covers
        .flat_map(|(_, run)| run.tables.iter().map(|file| file.age.born))
        .min();
    inside.into_iter().chain(over).min()
}
