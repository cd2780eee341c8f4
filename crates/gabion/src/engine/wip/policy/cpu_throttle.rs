//! Compactions at leisure leave the processors to the store's readers.
//!
//! # Idea
//! A compaction that runs because few writes come (`compaction_picker`, rule 11) helps later reads,
//! but nobody waits for it, and readers may need all processors. So while reads come steadily, it
//! sleeps after each stretch of work, three times as long as the stretch took: it uses a quarter of
//! a processor.
//!
//! It continues without sleeping when writes resume, somebody waits for the store to become idle,
//! or the store closes, and while few reads come.
//!
//! # Invariants
//! - G1: a sleeping compaction is between two blocks of its output and holds no lock; meanwhile
//!   only flushes and readers of its bucket continue.

use std::time::{Duration, Instant};

/// A stretch of work takes at least this long: enough for the reads in it to be counted, which is
/// done by samples.
const STRETCH_MIN: Duration = Duration::from_millis(5);

/// Rests after a stretch of work, in stretches.
const RESTS: u32 = 3;

/// No single rest is longer: that long at most goes by before a writer or a close is noticed.
const REST_MAX: Duration = Duration::from_millis(30);

/// Fewer gets per millisecond do not fill a processor.
const READS_PER_MS_MIN: u64 = 20;

/// The pace of one job.
pub(crate) struct CpuThrottle {
    /// When the last stretch ended, and its rest.
    stretch_ended: Instant,
    rest_ended: Instant,
    /// Reads of all tables until then, in gets.
    reads: u64,
}

impl CpuThrottle {
    /// The pace of a job that begins now, when so many `read_counter` of tables have come.
    pub(crate) fn new(reads: u64) -> CpuThrottle {
        let now = Instant::now();
        CpuThrottle {
            stretch_ended: now,
            rest_ended: now,
            reads,
        }
    }

    /// Rests if it is time to, and if readers gain by it: by the `read_counter` that have come, and
    /// if nobody waits for the job.
    pub(crate) fn step(
        &mut self,
        reads: impl FnOnce() -> u64,
        is_unhurried: impl FnOnce() -> bool,
    ) {
        let worked = self.rest_ended.elapsed();
        if worked < STRETCH_MIN {
            return;
        }
        let reads = reads();
        let came = reads.saturating_sub(self.reads);
        let rest = rest_after(worked, self.stretch_ended.elapsed(), came);
        self.reads = reads;
        self.stretch_ended = Instant::now();
        if !rest.is_zero() && is_unhurried() {
            std::thread::sleep(rest);
        }
        self.rest_ended = Instant::now();
    }
}

/// How long to rest after a stretch of work, with `read_counter` since the stretch before it ended,
/// which was `since` ago.
fn rest_after(worked: Duration, since: Duration, reads: u64) -> Duration {
    let many = u128::from(READS_PER_MS_MIN) * since.as_millis().max(1);
    match u128::from(reads) >= many {
        true => (worked * RESTS).min(REST_MAX),
        false => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_among_many_reads_takes_a_quarter_of_the_time() {
        let ms = Duration::from_millis;
        assert_eq!(rest_after(ms(5), ms(20), 400), ms(15));
        assert_eq!(rest_after(ms(5), ms(20), 399), Duration::ZERO);
        assert_eq!(rest_after(ms(5), ms(5), 0), Duration::ZERO);
        // A step that took long, as where the medium was slow, ends no later for it.
        assert_eq!(rest_after(ms(500), ms(520), 1 << 40), REST_MAX);
    }
}
