//! The numbers of a bucket's tables, on which most of the policy depends.
//!
//! `background/facts` computes it once for each set of tables and keeps it with them.

use super::space::{GarbageWorth, LastFullCompaction, SpaceUsage, WORTH_ONE_IN};

/// The tables of a bucket.
#[derive(Clone, Debug, Default)]
pub(crate) struct BucketShape {
    /// How much of them nobody needs.
    pub(crate) space: SpaceUsage,
    /// About how many of the bytes each key's newest version has, by the tables' sketches.
    pub(crate) distinct_bytes: u64,
    /// The levels, the newest first.
    pub(crate) levels: Vec<LevelShape>,
    /// Since when there may be garbage (`aging`).
    pub(crate) garbage_since: Option<u64>,
    /// Some runs reach beyond the bucket, and overlap each other.
    pub(crate) shares_overlapping: bool,
}

/// A level of a bucket.
#[derive(Clone, Debug, Default)]
pub(crate) struct LevelShape {
    /// The runs, newest first.
    pub(crate) runs: Vec<RunShape>,
    /// No two of them overlap.
    pub(crate) in_order: bool,
}

/// A run of a bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunShape {
    /// The run's number.
    pub(crate) number: u64,
    /// Its bytes; of shared tables the part in the bucket's range.
    pub(crate) bytes: u64,
    /// Its entries; of shared tables all.
    pub(crate) entries: u64,
}

impl BucketShape {
    /// The runs down to a level, newest first.
    pub(crate) fn runs_to(&self, last: usize) -> impl Iterator<Item = &RunShape> {
        let levels = self.levels.iter().take(last.saturating_add(1));
        levels.flat_map(|level| &level.runs)
    }

    /// All runs, newest first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &RunShape> {
        self.runs_to(usize::MAX)
    }

    /// Number of entries.
    pub(crate) fn entries(&self) -> u64 {
        self.runs().map(|run| run.entries).sum()
    }

    /// Whether a compaction of the bucket for its garbage is worth what it writes (`space`, P1),
    /// as far as that is no matter of other buckets. The last full compaction left `settled`.
    pub(crate) fn worth(&self, settled: Option<LastFullCompaction>) -> GarbageWorth {
        if self.space.garbage() < (self.space.bytes / WORTH_ONE_IN).max(1) {
            return GarbageWorth::No;
        }
        let Some(settled) = settled else {
            return GarbageWorth::Yes;
        };
        let Some(run) = self.runs().find(|run| run.number == settled.run) else {
            return GarbageWorth::Yes;
        };
        // What a snapshot holds is not rewritten for each flush.
        let all = self.entries();
        let newer = all - run.entries;
        let is_worth = match settled.oldest {
            None => newer > 0,
            Some(_) => newer > all / WORTH_ONE_IN,
        };
        match is_worth {
            true => GarbageWorth::Yes,
            false => GarbageWorth::Unless(settled.oldest),
        }
    }
}

/// Whether what came after the largest of some runs is one part in `part` of that run, or more.
/// Then to make them one writes at most `part + 1` bytes per byte that came; and versions that a
/// snapshot protects are not rewritten again and again.
pub(crate) fn has_young<'r>(runs: impl Iterator<Item = &'r RunShape>, part: u64) -> bool {
    let (mut all, mut largest) = (0, 0);
    for run in runs {
        all += run.bytes;
        largest = run.bytes.max(largest);
    }
    all - largest >= largest / part
}
