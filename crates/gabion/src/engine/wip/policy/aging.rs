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
//! A store at rest does not wait that long with MemTables that delete a third of their buckets, as
//! tombstones in memory hide what no figure counts as garbage. Where the medium is short of room,
//! MemTables with deletes of ranges become tables at once, and all do at rest.
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

use std::time::Duration;

/// Whether something that came at that time is now as old as garbage may become. What is that far
/// in the future counts too: it came while the clock was wrong.
pub(crate) fn is_overdue(since: Option<u64>, now: u64, age_max: Duration) -> bool {
    since.is_some_and(|since| now.abs_diff(since) >= age_max.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_that_far_from_now_is_overdue() {
        let is_overdue = |since, now| is_overdue(since, now, Duration::from_secs(10));
        assert!(!is_overdue(None, 1_000));
        assert!(!is_overdue(Some(991), 1_000) && is_overdue(Some(990), 1_000));
        assert!(!is_overdue(Some(1_009), 1_000) && is_overdue(Some(1_010), 1_000));
    }
}
