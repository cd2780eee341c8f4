//! Detects leisure and idleness.
//!
//! # Idea
//! A store has *leisure* while few or no writes come for each read of its tables: then compactions
//! that nothing else requires pay for themselves (`compaction_picker`, rule 11; `cpu_throttle`). It
//! is *idle* when nobody has written for a while ([`crate::engine::idle_timer`]): then it shrinks
//! its log (`rest`). If somebody waits for the store to be idle, it counts as both; during an
//! ingest, as neither.

use std::time::Duration;

use crate::Options;
use crate::engine::idle_timer::IdleTimer;
use crate::types::Seq;

/// Whether a store has leisure is judged by what came in at least this time.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// A store with so many gets of its tables per write has leisure: what it compacts for them in
/// advance, nine bytes at most for each that is written, costs less than they gain by it. YCSB's
/// readers with one insert in twenty operations are above it, those with one in ten are not. Reads
/// are counted by samples, so of a few reads per second only what they are on average counts.
const GETS_PER_WRITE: u64 = 16;

/// How little is written.
#[derive(Default)]
pub(crate) struct IdleDetector {
    /// The beginning of the period by which the store's leisure is judged, and the judgement of the
    /// one before.
    period: Option<ActivitySample>,
    leisure: bool,
    /// Whether the store is at rest, and who waits for that.
    pub(crate) idle: IdleTimer,
    /// Ingests that are not finished: they write, though no number shows it.
    ingests: usize,
}

/// What was read and written up to a moment.
#[derive(Clone, Copy)]
pub(crate) struct ActivitySample {
    /// The moment, by the store's clock.
    pub(crate) at: Duration,
    /// What was visible then.
    pub(crate) seq: Seq,
    /// The reads of tables until then, in gets.
    pub(crate) gets: u64,
}

impl ActivitySample {
    /// Whether hardly anything was written from here to there for the reads that came.
    fn is_leisure_until(&self, end: &ActivitySample) -> bool {
        let gets = end.gets.saturating_sub(self.gets);
        let writes = end.seq.saturating_sub(self.seq);
        gets >= writes.saturating_mul(GETS_PER_WRITE)
    }
}

impl IdleDetector {
    /// Counts an ingest: until it ends the store neither has leisure nor is at rest.
    pub(crate) fn begin_ingest(&mut self) {
        self.ingests += 1;
    }

    /// An ingest ends; what comes from now on is judged.
    pub(crate) fn end_ingest(&mut self) {
        self.ingests -= 1;
        (self.period, self.leisure) = (None, false);
        self.idle.begin_anew();
    }

    /// Whether the reads that come gain by compactions that nothing else asks for: in the last
    /// while hardly anything was written beside them, or nothing; or somebody waits for the
    /// background to rest.
    pub(crate) fn has_leisure(&mut self, now: ActivitySample, options: &Options) -> bool {
        let decided = self.decided(options);
        decided.unwrap_or_else(|| self.judge(now))
    }

    /// Whether nobody has written for so long that the log may give its space back.
    pub(crate) fn is_idle(&mut self, now: ActivitySample, options: &Options) -> bool {
        let decided = self.decided(options);
        decided.unwrap_or_else(|| self.idle.is_quiet(now.seq, now.at))
    }

    /// Whether the store is to do what it does at leisure or at rest, where that is not a matter of
    /// how much is written.
    fn decided(&self, options: &Options) -> Option<bool> {
        let decided = self.idle.decided(options);
        decided.or_else(|| (self.ingests > 0).then_some(false))
    }

    /// Whether the last whole period was one of leisure, and the one of now is one so far.
    fn judge(&mut self, now: ActivitySample) -> bool {
        let period = *self.period.get_or_insert(now);
        let so_far = period.is_leisure_until(&now);
        if now.at.saturating_sub(period.at) >= PERIOD {
            self.leisure = so_far;
            self.period = Some(now);
        }
        self.leisure && so_far
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_leisure_after_a_period_of_few_writes_until_more_come() {
        let mut idleness = IdleDetector::default();
        let mut has_leisure = |ms: u64, seq, gets| {
            let at = Duration::from_millis(ms);
            let options = Options::default().background_threads(1);
            idleness.has_leisure(ActivitySample { at, seq, gets }, &options)
        };
        assert!(!has_leisure(0, 100, 0));
        assert!(!has_leisure(999, 100, 50), "no period has passed");
        assert!(has_leisure(1_000, 100, 50), "nothing was written in it");
        assert!(has_leisure(1_500, 104, 50 + 64), "sixteen gets per write");
        assert!(!has_leisure(1_600, 105, 50 + 64), "too many writes");
        assert!(has_leisure(1_700, 105, 50 + 80), "the reads have caught up");
        assert!(!has_leisure(2_000, 1_105, 50 + 80), "a burst");
        assert!(!has_leisure(2_500, 1_105, 50 + 80), "it ended the period");
        assert!(has_leisure(3_000, 1_105, 50 + 80));
        // Another thread looked at the figures before: nothing was written since then.
        assert!(has_leisure(2_999, 1_104, 50 + 79));
    }
}
