//! Picks the job of a bucket: a list of rules, of which the first that applies decides.
//!
//! # The rules, in their order
//! 1. `garbage`: the tables have almost as much garbage as they may have (`space`), and a good part
//!    of the bucket is garbage: a full compaction;
//! 2. `full_level`: a level has `sublevels_max` runs, or more where it needs more (`run_limits`): a
//!    compaction of the level;
//! 3. `split`: the bucket is at its capacity, and a full compaction would leave half of that: a
//!    split;
//! 4. `demanded`: a user wants the bucket compacted (`manual_mark`): a full compaction, for which
//!    the first two wait;
//! 5. `aged`: the bucket holds garbage as old as it may become (`aging`): a full compaction;
//! 6. `expired`: an eighth of the bucket has expired, a while ago: a full compaction;
//! 7. `deleted`: half of the bucket are tables that range deletes hide: a full compaction;
//! 8. `shared`: the bucket shares overlapping tables with its siblings: a full compaction of its
//!    slices;
//! 9. `hidden`: a level has `sublevels_min` runs, or more likewise, and half of the bucket is
//!    hidden versions: a full compaction;
//! 10. `level`: a level with so many runs, where less is hidden: a compaction of the level;
//! 11. `leisure`: nobody writes, or little beside the reads, and the bucket's younger runs together
//!     are half as large as its largest: a full compaction. Reads then find one run where there
//!     were several, for at most three bytes written per byte that came since the last time. A
//!     bucket that was read as often as it has entries since its last full compaction
//!     (`read_counter`) need only have an eighth: the reads to come gain more than the nine bytes
//!     per byte cost. Where that is not so, what the levels above the oldest runs have becomes one
//!     run, by the same measure, if it was read as often as it has entries since it last did.
//!
//! Which bucket comes first, when several wait, is a matter of [`JobPriority`], and within a kind
//! of what is read most ([`super::job_score`]).
//!
//! Each job leaves fewer runs or smaller buckets, so an idle store comes to rest. A new rule joins
//! the test `rules_apply_in_their_order` and the model in `bound_tests`.

use super::aging::is_overdue;
use super::bucket_shape::{BucketShape, has_young};
use super::capacity::{split_ways, varied};
use super::job_score::{JobPriority, JobScore};
use super::manual_mark::ManualCompactionMark;
use super::read_counter::ReadCounter;
use super::run_limits::RunLimits;
use super::space::{LastFullCompaction, SpacePressure, SpaceTotals};
use crate::Options;
use crate::engine::expiries::is_worth;
use crate::expiry::UnixMillis;
use crate::types::Seq;

/// What holds of the store when it is looked for what is due.
pub(crate) struct StoreFacts<'s> {
    pub(crate) options: &'s Options,
    /// The time (`aging`).
    pub(crate) now: u64,
    /// Nobody writes, or little beside the reads.
    pub(crate) leisure: bool,
    /// How pressing it is to give space back.
    pub(crate) need: SpacePressure,
    /// The space of all tables when it was last looked at.
    pub(crate) totals: SpaceTotals,
    /// The oldest snapshot.
    pub(crate) oldest: Option<Seq>,
    /// Entries that expired up to then are to give their space back.
    pub(crate) expired_by: UnixMillis,
    /// The size at which buckets split, before it is varied.
    pub(crate) capacity_base: u64,
    /// Buckets that a split may make of one.
    pub(crate) split_ways_max: usize,
}

/// What holds of a bucket.
pub(crate) struct BucketFacts<'b> {
    /// The bucket's number.
    pub(crate) bucket: u64,
    pub(crate) shape: &'b BucketShape,
    pub(crate) width: RunLimits,
    pub(crate) reads: &'b ReadCounter,
    pub(crate) demand: &'b ManualCompactionMark,
    /// What the last full compaction left.
    pub(crate) settled: Option<LastFullCompaction>,
    /// Bytes of tables that hold nothing but what range deletes hide from all readers.
    pub(crate) deleted_bytes: u64,
    /// Bytes of entries that expired a while ago.
    pub(crate) expired_bytes: u64,
    /// A split was not tried in vain on the same tables.
    pub(crate) may_split: bool,
}

/// Something that is due in a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PickedJob {
    pub(crate) job: JobKind,
    pub(crate) claim: JobScore,
}

/// What is to be done in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// Cut it into so many.
    Split { ways: usize },
    /// Make one run of several.
    Compact(CompactionScope),
}

/// What a compaction makes one run of, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompactionScope {
    /// All runs of a level.
    Level(usize),
    /// Everything.
    Whole,
    /// Everything, nothing of which stays as it is, so that what nobody needs is gone.
    Rewrite,
    /// The same, which a user waits for, of what is there when it begins (`manual_mark`, D1).
    OnDemand,
    /// Everything, so that the slices of shared tables become a table of the bucket's own.
    Unshare,
    /// Everything, at leisure.
    Leisure,
    /// All runs down to a level, with older ones below it, at leisure.
    Young { last: usize },
}

/// What a rule finds due.
type PickRule = fn(&BucketFacts<'_>, &StoreFacts<'_>) -> Option<PickedJob>;

/// The rules.
const RULES: [PickRule; 11] = [
    garbage, full_level, split, demanded, aged, expired, deleted, shared, hidden, level, leisure,
];

/// What is due in a bucket.
pub(crate) fn due(facts: &BucketFacts<'_>, circumstances: &StoreFacts<'_>) -> Option<PickedJob> {
    RULES.iter().find_map(|rule| rule(facts, circumstances))
}

fn garbage(facts: &BucketFacts<'_>, circumstances: &StoreFacts<'_>) -> Option<PickedJob> {
    if circumstances.need == SpacePressure::None || facts.is_demanded() {
        return None;
    }
    let share = facts.worthwhile_garbage(circumstances)?;
    let claim = JobScore {
        urgency: match facts.full_level() {
            Some(_) => JobPriority::Full,
            None => JobPriority::Garbage,
        },
        reads: 0,
        sublevels: usize::try_from(share).unwrap_or(usize::MAX),
    };
    let job = JobKind::Compact(CompactionScope::Rewrite);
    Some(PickedJob { job, claim })
}

fn full_level(facts: &BucketFacts<'_>, _: &StoreFacts<'_>) -> Option<PickedJob> {
    let level = facts.full_level().filter(|_| !facts.is_demanded())?;
    Some(facts.due_in_level(JobPriority::Full, level))
}

fn split(facts: &BucketFacts<'_>, circumstances: &StoreFacts<'_>) -> Option<PickedJob> {
    let capacity = varied(circumstances.capacity_base, facts.bucket);
    let (live, ways_max) = (facts.shape.distinct_bytes, circumstances.split_ways_max);
    let is_full = facts.shape.space.bytes >= capacity && live >= capacity / 2;
    (is_full && ways_max >= 2 && facts.may_split).then(|| {
        let ways = split_ways(circumstances.options, live, capacity).clamp(2, ways_max);
        facts.due(JobPriority::Split, JobKind::Split { ways })
    })
}

fn demanded(facts: &BucketFacts<'_>, _: &StoreFacts<'_>) -> Option<PickedJob> {
    let is_due = facts.is_demanded();
    is_due.then(|| facts.compact(JobPriority::Demanded, CompactionScope::OnDemand))
}

fn aged(facts: &BucketFacts<'_>, circumstances: &StoreFacts<'_>) -> Option<PickedJob> {
    let age_max = circumstances.options.garbage_age_max;
    let is_due = is_overdue(facts.shape.garbage_since, circumstances.now, age_max);
    is_due.then(|| facts.compact(JobPriority::Aged, CompactionScope::Rewrite))
}

fn expired(facts: &BucketFacts<'_>, _: &StoreFacts<'_>) -> Option<PickedJob> {
    let is_due = is_worth(facts.expired_bytes, facts.shape.space.bytes);
    is_due.then(|| facts.compact(JobPriority::Aged, CompactionScope::Rewrite))
}

fn deleted(facts: &BucketFacts<'_>, _: &StoreFacts<'_>) -> Option<PickedJob> {
    let is_due = facts.deleted_bytes > facts.shape.space.bytes / 2;
    is_due.then(|| facts.compact(JobPriority::Hidden, CompactionScope::Whole))
}

fn shared(facts: &BucketFacts<'_>, _: &StoreFacts<'_>) -> Option<PickedJob> {
    let is_due = facts.shape.shares_overlapping;
    is_due.then(|| facts.compact(JobPriority::Shared, CompactionScope::Unshare))
}

fn hidden(facts: &BucketFacts<'_>, _: &StoreFacts<'_>) -> Option<PickedJob> {
    let shape = facts.shape;
    let is_due = facts.fullest_level().is_some()
        && has_young(shape.runs(), 2)
        && shape.distinct_bytes <= shape.space.bytes / 2;
    is_due.then(|| facts.compact(JobPriority::Hidden, CompactionScope::Whole))
}

fn level(facts: &BucketFacts<'_>, _: &StoreFacts<'_>) -> Option<PickedJob> {
    let level = facts.fullest_level()?;
    Some(facts.due_in_level(JobPriority::Level, level))
}

fn leisure(facts: &BucketFacts<'_>, circumstances: &StoreFacts<'_>) -> Option<PickedJob> {
    let scope = circumstances
        .leisure
        .then(|| facts.at_leisure())
        .flatten()?;
    Some(facts.compact(JobPriority::Leisure, scope))
}

impl BucketFacts<'_> {
    fn due(&self, urgency: JobPriority, job: JobKind) -> PickedJob {
        let claim = JobScore {
            urgency,
            reads: self.reads.of_bucket(),
            sublevels: self.shape.runs().count(),
        };
        PickedJob { job, claim }
    }

    fn compact(&self, urgency: JobPriority, scope: CompactionScope) -> PickedJob {
        self.due(urgency, JobKind::Compact(scope))
    }

    fn due_in_level(&self, urgency: JobPriority, level: usize) -> PickedJob {
        let claim = JobScore {
            urgency,
            reads: self.reads.of_level(level),
            sublevels: self.width.scaled(level, self.runs_of(level)),
        };
        let job = JobKind::Compact(CompactionScope::Level(level));
        PickedJob { job, claim }
    }

    fn runs_of(&self, level: usize) -> usize {
        self.shape.levels[level].runs.len()
    }

    fn is_full(&self, level: usize) -> bool {
        self.runs_of(level) >= self.width.most(level)
    }

    /// The fullest of the levels that may be compacted.
    fn fullest_level(&self) -> Option<usize> {
        let levels = self.shape.levels.iter().enumerate();
        let ready = levels.filter(|(level, shape)| {
            let runs = shape.runs.len();
            self.width.may_compact(*level, runs, shape.in_order)
        });
        ready.map(|(level, _)| level).max_by_key(|level| {
            (
                self.is_full(*level),
                self.width.scaled(*level, self.runs_of(*level)),
            )
        })
    }

    /// The fullest of the levels that must be compacted.
    fn full_level(&self) -> Option<usize> {
        self.fullest_level().filter(|level| self.is_full(*level))
    }

    /// Whether a user waits, and there is something to compact.
    fn is_demanded(&self) -> bool {
        self.demand.is_asked() && self.shape.runs().next().is_some()
    }

    /// The garbage of the bucket that is worth a compaction for it, in thousandths of its bytes.
    pub(crate) fn worthwhile_garbage(&self, circumstances: &StoreFacts<'_>) -> Option<u64> {
        let (space, totals) = (&self.shape.space, &circumstances.totals);
        let is_worth = space.shares && totals.are_orphans_many()
            || self
                .shape
                .worth(self.settled)
                .is_worth(circumstances.oldest);
        is_worth.then(|| space.garbage_share())
    }

    /// Whether the bucket was read as often since its last full compaction as it has entries, a
    /// scan counted as several gets.
    fn is_much_read(&self) -> bool {
        let before = self.settled.map_or(0, |settled| settled.reads);
        self.reads.in_gets().saturating_sub(before) >= self.shape.entries()
    }

    /// What the reads to come gain by, in a bucket to which hardly anybody writes.
    fn at_leisure(&self) -> Option<CompactionScope> {
        let part = if self.is_much_read() { 8 } else { 2 };
        if self.shape.runs().nth(1).is_some() && has_young(self.shape.runs(), part) {
            return Some(CompactionScope::Leisure);
        }
        let levels = self.shape.levels.iter().enumerate().rev();
        let mut filled = levels.filter(|(_, level)| !level.runs.is_empty());
        let (_, (last, _)) = (filled.next()?, filled.next()?);
        let young = || self.shape.runs_to(last);
        let is_due = young().nth(1).is_some()
            && self.reads.of_level(last) >= young().map(|run| run.entries).sum()
            && has_young(young(), 8);
        is_due.then_some(CompactionScope::Young { last })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::bucket_shape::{LevelShape, RunShape};
    use super::super::run_limits::RunLimitEstimate;
    use super::super::space::SpaceUsage;
    use super::*;
    use crate::Tuning;

    const HOUR: u64 = 3_600;

    /// A bucket of three levels with so many runs of 100 bytes and entries, for which the options'
    /// least number of runs suffices.
    struct Given {
        options: Options,
        shape: BucketShape,
        reads: ReadCounter,
        demand: ManualCompactionMark,
        settled: Option<LastFullCompaction>,
        deleted_bytes: u64,
        expired_bytes: u64,
        leisure: bool,
        need: SpacePressure,
        oldest: Option<Seq>,
        capacity: u64,
        /// How many flushes the bucket holds.
        flushes: u64,
    }

    fn given(runs: [usize; 3]) -> Given {
        let level = |runs| LevelShape {
            runs: vec![
                RunShape {
                    number: 0,
                    bytes: 100,
                    entries: 100,
                };
                runs
            ],
            in_order: false,
        };
        let bytes = 100 * runs.iter().sum::<usize>() as u64;
        let space = SpaceUsage {
            bytes,
            live: bytes,
            live_min: bytes,
            entries: bytes,
            ..SpaceUsage::default()
        };
        Given {
            options: Options::default()
                .tuning(Tuning::default().sublevels_min(4).sublevels_max(8))
                .garbage_age_max(Duration::from_secs(HOUR)),
            shape: BucketShape {
                space,
                distinct_bytes: bytes,
                levels: runs.map(level).into(),
                ..BucketShape::default()
            },
            reads: ReadCounter::default(),
            demand: ManualCompactionMark::default(),
            settled: None,
            deleted_bytes: 0,
            expired_bytes: 0,
            leisure: false,
            need: SpacePressure::None,
            oldest: None,
            capacity: 1 << 20,
            flushes: 1,
        }
    }

    impl Given {
        fn read(&self, times: u64) {
            let counted: u64 = (0..times).map(|_| self.reads.count(true)).sum();
            assert_eq!(counted, times);
        }

        fn due(&self) -> Option<(JobPriority, JobKind)> {
            let sizing = RunLimitEstimate::default();
            sizing.see(self.flushes, &[1]);
            let facts = BucketFacts {
                bucket: 0,
                shape: &self.shape,
                width: sizing.width(&self.options),
                reads: &self.reads,
                demand: &self.demand,
                settled: self.settled,
                deleted_bytes: self.deleted_bytes,
                expired_bytes: self.expired_bytes,
                may_split: true,
            };
            let circumstances = StoreFacts {
                options: &self.options,
                now: 100 * HOUR,
                leisure: self.leisure,
                need: self.need,
                totals: SpaceTotals::default(),
                oldest: self.oldest,
                expired_by: 0,
                capacity_base: self.capacity,
                split_ways_max: 100,
            };
            due(&facts, &circumstances).map(|due| (due.claim.urgency, due.job))
        }
    }

    fn compact(urgency: JobPriority, scope: CompactionScope) -> Option<(JobPriority, JobKind)> {
        Some((urgency, JobKind::Compact(scope)))
    }

    #[test]
    fn nothing_is_due_in_a_bucket_of_few_runs() {
        for runs in [[0, 0, 0], [3, 3, 3]] {
            assert_eq!(given(runs).due(), None);
        }
    }

    /// A bucket to which every rule applies; what the first of them needs is taken away, and the
    /// next one's turn comes.
    #[test]
    fn rules_apply_in_their_order() {
        let mut given = given([8, 0, 1]);
        given.need = SpacePressure::Compact;
        given.shape.space.live_min = 0;
        given.capacity = 400;
        given.shape.garbage_since = Some(99 * HOUR);
        given.deleted_bytes = 451;
        given.expired_bytes = 112;
        given.shape.shares_overlapping = true;
        given.leisure = true;
        given.demand.ask();
        // For who waits for the bucket the first two wait.
        let ways = split_ways(&given.options, 900, varied(400, 0));
        let split = Some((JobPriority::Split, JobKind::Split { ways }));
        assert_eq!(given.due(), split);
        given.demand = ManualCompactionMark::default();
        assert_eq!(
            given.due(),
            compact(JobPriority::Full, CompactionScope::Rewrite)
        );
        given.need = SpacePressure::None;
        assert_eq!(
            given.due(),
            compact(JobPriority::Full, CompactionScope::Level(0))
        );
        given.shape.levels[0].runs.pop();
        assert_eq!(given.due(), split);
        given.shape.distinct_bytes = varied(400, 0) / 2 - 1;
        given.demand.ask();
        assert_eq!(
            given.due(),
            compact(JobPriority::Demanded, CompactionScope::OnDemand)
        );
        given.demand = ManualCompactionMark::default();
        assert_eq!(
            given.due(),
            compact(JobPriority::Aged, CompactionScope::Rewrite)
        );
        given.shape.garbage_since = Some(99 * HOUR + 1);
        assert_eq!(
            given.due(),
            compact(JobPriority::Aged, CompactionScope::Rewrite)
        );
        given.expired_bytes = 111;
        assert_eq!(
            given.due(),
            compact(JobPriority::Hidden, CompactionScope::Whole)
        );
        given.deleted_bytes = 450;
        assert_eq!(
            given.due(),
            compact(JobPriority::Shared, CompactionScope::Unshare)
        );
        given.shape.shares_overlapping = false;
        assert_eq!(
            given.due(),
            compact(JobPriority::Hidden, CompactionScope::Whole)
        );
        given.capacity = 1 << 20;
        given.shape.distinct_bytes = 451;
        assert_eq!(
            given.due(),
            compact(JobPriority::Level, CompactionScope::Level(0))
        );
        given.shape.levels[0].runs.truncate(3);
        assert_eq!(
            given.due(),
            compact(JobPriority::Leisure, CompactionScope::Leisure)
        );
        given.leisure = false;
        assert_eq!(given.due(), None);
    }

    #[test]
    fn the_fullest_level_comes_first_and_runs_in_order_need_not_be_many() {
        let level = |runs| given(runs).due();
        assert_eq!(
            level([4, 5, 0]),
            compact(JobPriority::Level, CompactionScope::Level(1))
        );
        assert_eq!(
            level([8, 5, 0]),
            compact(JobPriority::Full, CompactionScope::Level(0))
        );
        let mut wide = given([4, 0, 0]);
        wide.flushes = 500;
        assert_eq!(wide.due(), None, "the bucket needs ten");
        wide.shape.levels[0].in_order = true;
        assert_eq!(
            wide.due(),
            compact(JobPriority::Level, CompactionScope::Level(0))
        );
        wide.options.tuning.sublevels_min = 5;
        assert_eq!(wide.due(), None, "fewer than the options' least");
    }

    #[test]
    fn garbage_goes_where_it_is_worth_it_and_no_snapshot_holds_it() {
        let mut given = given([1, 0, 1]);
        given.need = SpacePressure::Stop;
        given.shape.space.live_min = 176;
        assert_eq!(given.due(), None, "24 of 200 bytes");
        given.shape.space.live_min = 175;
        assert_eq!(
            given.due(),
            compact(JobPriority::Garbage, CompactionScope::Rewrite)
        );
        // The last full compaction left the older run, for a snapshot.
        given.shape.levels[0].runs[0].entries = 10;
        given.shape.levels[2].runs[0].number = 9;
        given.settled = Some(LastFullCompaction {
            run: 9,
            oldest: Some(7),
            reads: 0,
        });
        given.oldest = Some(7);
        assert_eq!(given.due(), None, "the snapshot holds it");
        given.oldest = None;
        assert_eq!(
            given.due(),
            compact(JobPriority::Garbage, CompactionScope::Rewrite)
        );
        given.oldest = Some(7);
        given.shape.levels[0].runs[0].entries = 15;
        assert_eq!(
            given.due(),
            compact(JobPriority::Garbage, CompactionScope::Rewrite)
        );
    }

    #[test]
    fn young_runs_become_one_at_leisure_where_they_are_read() {
        let mut given = given([2, 0, 1]);
        given.leisure = true;
        given.shape.levels[2].runs[0].bytes = 1000;
        assert_eq!(given.due(), None, "200 bytes beside 1000");
        given.read(200);
        assert_eq!(
            given.due(),
            compact(JobPriority::Leisure, CompactionScope::Young { last: 0 })
        );
        given.read(100);
        assert_eq!(
            given.due(),
            compact(JobPriority::Leisure, CompactionScope::Leisure)
        );
        given.shape.levels[2].runs[0].bytes = 1608;
        assert_eq!(
            given.due(),
            compact(JobPriority::Leisure, CompactionScope::Young { last: 0 })
        );
        given.leisure = false;
        assert_eq!(given.due(), None);
    }
}
