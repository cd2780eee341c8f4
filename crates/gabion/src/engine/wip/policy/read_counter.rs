//! Counts the reads of a bucket, by which compactions are ordered (paper, section 2.3.7).
//!
//! # Idea
//! A read that finds its key in no MemTable asks every run of its bucket, and so does a range scan
//! that enters the bucket. So the levels of a bucket are read alike, and one counter serves all of
//! them: the reads of a level since its last compaction are what the counter has gained since
//! then.
//!
//! If every get of a hot bucket added to a counter, all readers would write that one cache line. So
//! a thread samples one in [`SAMPLE_ONE_IN`] of its reads on average, and counts it as that many.
//! The gaps vary, so that sampling does not favour any fixed pattern of reads.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::INITIAL_LEVELS;

/// Reads per sample. A cache line that two processors write takes them about 100 ns, a read about
/// 500 ns; with this the counter costs a reader less than half a percent.
const SAMPLE_ONE_IN: u32 = 64;

/// Gets that gain about as much as one scan when a bucket's runs become one: for each run that is
/// gone a get asks one filter less, which is one cache line that comes beside others; a scan
/// searches one table and one block less, which are several that wait for each other, and has one
/// source less to merge.
const GETS_PER_SCAN: u64 = 8;

/// The reads of one bucket. Figures for the order of jobs: no data depends on them, so all accesses
/// are relaxed.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct ReadCounter {
    total: AtomicU64,
    /// Those of them that are scans.
    scans: AtomicU64,
    /// What the reads were, in gets, when the level was compacted last.
    at_compaction: [AtomicU64; INITIAL_LEVELS],
}

impl ReadCounter {
    /// The reads of a bucket that is one of `parts` into which another one was split.
    pub(crate) fn of_part(whole: &ReadCounter, parts: usize) -> ReadCounter {
        let share = |counter: &AtomicU64| AtomicU64::new(get(counter) / parts.max(1) as u64);
        ReadCounter {
            total: share(&whole.total),
            scans: share(&whole.scans),
            at_compaction: std::array::from_fn(|level| share(&whole.at_compaction[level])),
        }
    }

    /// Counts one read of the calling thread, or lets a later one stand for it unless `exactly`.
    /// Returns what was counted, in gets.
    #[inline]
    pub(crate) fn count(&self, exactly: bool) -> u64 {
        self.add(exactly, false)
    }

    /// Counts one scan of the calling thread, in the same way.
    #[inline]
    pub(crate) fn count_scan(&self, exactly: bool) -> u64 {
        self.add(exactly, true)
    }

    #[inline]
    fn add(&self, exactly: bool, is_scan: bool) -> u64 {
        let reads = match exactly {
            true => 1,
            false if is_sampled() => u64::from(SAMPLE_ONE_IN),
            false => return 0,
        };
        // ORDER: Relaxed, see the type.
        self.total.fetch_add(reads, Ordering::Relaxed);
        if !is_scan {
            return reads;
        }
        // ORDER: Relaxed, see the type.
        self.scans.fetch_add(reads, Ordering::Relaxed);
        reads * GETS_PER_SCAN
    }

    /// Reads since the bucket exists.
    pub(crate) fn total(&self) -> u64 {
        get(&self.total)
    }

    /// Reads since the bucket exists, each scan as the gets that would gain as much as it from a
    /// compaction.
    pub(crate) fn in_gets(&self) -> u64 {
        self.total() + get(&self.scans) * (GETS_PER_SCAN - 1)
    }

    /// Reads since the last compaction of a level, in gets.
    pub(crate) fn of_level(&self, level: usize) -> u64 {
        let since = self.at_compaction.get(level).map_or(0, get);
        self.in_gets().saturating_sub(since)
    }

    /// Reads since the last compaction of the level that waits longest, in gets.
    pub(crate) fn of_bucket(&self) -> u64 {
        let reads = (0..INITIAL_LEVELS).map(|level| self.of_level(level));
        reads.max().unwrap_or(0)
    }

    /// A level was compacted.
    pub(crate) fn compacted(&self, level: usize) {
        if let Some(since) = self.at_compaction.get(level) {
            // ORDER: Relaxed, see the type.
            since.store(self.in_gets(), Ordering::Relaxed);
        }
    }
}

fn get(counter: &AtomicU64) -> u64 {
    // ORDER: Relaxed, see `ReadCounter`.
    counter.load(Ordering::Relaxed)
}

/// Whether this read of the thread is one that is counted.
#[inline]
fn is_sampled() -> bool {
    thread_local! {
        /// Reads that pass before the next one is counted.
        static LEFT: Cell<u32> = const { Cell::new(SAMPLE_ONE_IN) };
    }
    LEFT.with(|left| match left.get().checked_sub(1) {
        Some(fewer) => {
            left.set(fewer);
            false
        }
        None => {
            left.set(next_gap());
            true
        }
    })
}

/// A number below twice [`SAMPLE_ONE_IN`] minus one: with the read that is counted, as many reads
/// as the constant says on average.
#[cold]
fn next_gap() -> u32 {
    thread_local! {
        static STATE: Cell<u32> = const { Cell::new(0x9E37_79B9) };
    }
    // Marsaglia's xorshift: any sequence without the pattern of a workload would do.
    STATE.with(|state| {
        let mut number = state.get();
        number ^= number << 13;
        number ^= number >> 17;
        number ^= number << 5;
        state.set(number);
        number % (2 * SAMPLE_ONE_IN - 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_for_all_reads_and_follow_no_pattern() {
        // Reads of three buckets in turn: each of them gets its third.
        let buckets: [ReadCounter; 3] = Default::default();
        for number in 0..300_000 {
            let _ = buckets[number % 3].count(false);
        }
        for bucket in &buckets {
            let total = bucket.total();
            assert!((90_000..110_000).contains(&total), "{total}");
        }
    }

    #[test]
    fn a_compaction_of_a_level_begins_its_count_anew() {
        let reads = ReadCounter::default();
        (0..10).for_each(|_| assert_eq!(reads.count(true), 1));
        reads.compacted(1);
        (0..5).for_each(|_| assert_eq!(reads.count(true), 1));
        assert_eq!([0, 1, 2].map(|level| reads.of_level(level)), [15, 5, 15]);
        assert_eq!((reads.of_bucket(), reads.total()), (15, 15));
        assert_eq!(reads.count_scan(true), GETS_PER_SCAN);
        assert_eq!((reads.total(), reads.in_gets()), (16, 23));
        assert_eq!([0, 1, 2].map(|level| reads.of_level(level)), [23, 13, 23]);
        (0..2).for_each(|_| assert!(reads.count_scan(true) > 0));
        let part = ReadCounter::of_part(&reads, 3);
        assert_eq!([0, 1, 2].map(|level| part.of_level(level)), [13, 10, 13]);
    }
}
