//! How long the log may be, and which MemTables to log again, rather than flush, to shorten it.
//!
//! `jobs/log_reclaim` and `jobs/log_shrink` act on it.

use crate::Options;
use crate::log::LogOptions;

/// A log of this size is left as it is at rest, however small the segments are.
const REST_BYTES_MIN: u64 = 4 << 10;

/// MemTables with fewer bytes of keys and values than this are logged again instead of flushed,
/// unless the whole budget is so small that this would be a good part of it.
const RELOG_BYTES_MAX: u64 = 32 << 10;

/// An opening gathers the log if it has more files than this besides those that are full: what a
/// run of a program pays for reading some more files, and gathering, which is as much work as some
/// runs, is rare.
pub(crate) const FILES_MAX: u64 = 16;

/// MemTables with fewer bytes than this are logged again then: a flush takes several syncs.
const GATHERED_BYTES_MAX: u64 = 256 << 10;

/// The part of the budget of MemTables from which on one is not small: one in so many bytes.
const SMALL_PARTS: u64 = 64;

/// The lengths. Bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLength {
    /// A log of more is shortened; not below what a store at rest keeps.
    pub(crate) most: u64,
    /// A log of more is shortened at rest: one of a segment is left as it is.
    pub(crate) at_rest: u64,
    /// What is left of a log that was shortened at rest, at most.
    pub(crate) rested: u64,
    /// MemTables of up to so many bytes of keys and values are logged again instead of flushed.
    pub(crate) relogged: u64,
    /// The same where an opening gathers the log.
    pub(crate) gathered: u64,
    /// The largest segment.
    segment: u64,
}

impl LogLength {
    /// Those of a store with these options.
    pub(crate) fn of(options: &Options) -> LogLength {
        let segment = LogOptions::within(options.log_bytes_max).segment_bytes_max;
        let at_rest = segment.max(REST_BYTES_MIN);
        let small = options.memtable_budget() / SMALL_PARTS;
        LogLength {
            most: options.log_bytes_max.max(at_rest),
            at_rest,
            rested: at_rest / 2,
            relogged: RELOG_BYTES_MAX.min(small),
            gathered: GATHERED_BYTES_MAX.min(small),
            segment,
        }
    }

    /// Whether a log of so many bytes in so many ended files is to be gathered.
    pub(crate) fn is_scattered(&self, bytes: u64, files: usize) -> bool {
        files as u64 > FILES_MAX + 2 * (bytes / self.segment)
    }

    /// How many of the MemTables that take so many bytes in the log, the smallest first, are logged
    /// again at rest; the others are flushed.
    pub(crate) fn relogged_when_idle(&self, sizes: impl IntoIterator<Item = u64>) -> usize {
        let mut sum = 0;
        let fits = |bytes: &u64| {
            sum += bytes;
            *bytes <= self.relogged && sum <= self.rested
        };
        sizes.into_iter().take_while(fits).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_memtables_are_logged_again_as_far_as_they_fit() {
        let length = LogLength {
            most: 1000,
            at_rest: 100,
            rested: 50,
            relogged: 30,
            gathered: 30,
            segment: 100,
        };
        let cases: [(&[u64], usize); 4] = [
            (&[], 0),
            (&[20, 30], 2),
            (&[20, 31], 1),
            (&[10, 20, 21, 29], 2),
        ];
        for (sizes, count) in cases {
            assert_eq!(length.relogged_when_idle(sizes.iter().copied()), count);
        }
        assert!(!length.is_scattered(99, 16) && length.is_scattered(99, 17));
        assert!(!length.is_scattered(100, 18) && length.is_scattered(100, 19));
    }

    /// A limit below the smallest segment moves nothing of a log that a store at rest keeps.
    #[test]
    fn no_limit_is_below_what_rests() {
        for bytes in [0, 1 << 10, 1 << 20, 1 << 30] {
            let length = LogLength::of(&Options::default().log_bytes_max(bytes));
            assert!(length.most >= length.at_rest && length.most >= bytes);
            assert!(length.rested <= length.at_rest / 2 && length.rested > 0);
        }
    }
}
