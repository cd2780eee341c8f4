//! Orders the jobs that are due.
//!
//! # Idea (paper, section 2.3.7)
//! Jobs of a more urgent kind come first. Among jobs of one kind, those that help readers most come
//! first: the priority of a level is `read_weight * reads / average reads + sublevels / average
//! sublevels`, where reads are those since its last compaction and the averages are over the levels
//! that wait. So hot buckets have few sublevels, and buckets with writes but hardly any reads wait
//! longer, which saves their bandwidth.
//!
//! The fullest levels delay writers, so among levels at `sublevels_max` only the number of
//! sublevels counts, and among buckets compacted for their garbage only its share.

/// Kinds of jobs, the least urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JobPriority {
    /// What is worth doing for the reads to come when hardly anybody writes.
    Leisure,
    /// A level of `sublevels_min` runs.
    Level,
    /// A bucket of which half is hidden versions.
    Hidden,
    /// A bucket that shares overlapping tables with others.
    Shared,
    /// A bucket with garbage as old as it may become.
    Aged,
    /// A bucket that a user wants compacted.
    Demanded,
    /// A bucket at its capacity.
    Split,
    /// A bucket with much garbage, when the store has almost as much as it may have.
    Garbage,
    /// A level of `sublevels_max` runs.
    Full,
}

/// What a job that waits is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobScore {
    pub(crate) urgency: JobPriority,
    /// Reads of what it would compact since that was compacted last.
    pub(crate) reads: u64,
    /// Sublevels that it would make one; for [`JobPriority::Garbage`] the garbage in thousandths.
    pub(crate) sublevels: usize,
}

/// Number of kinds of jobs.
const KINDS: usize = JobPriority::Full as usize + 1;

/// The reads and the sublevels of all claims of each kind: what a priority is relative to.
#[derive(Default)]
pub(crate) struct ScoreTotals([(f64, f64); KINDS]);

impl ScoreTotals {
    /// Adds a claim.
    pub(crate) fn add(&mut self, claim: &JobScore) {
        let (reads, sublevels) = &mut self.0[claim.urgency as usize];
        *reads += number(claim.reads);
        *sublevels += number(claim.sublevels as u64);
    }

    /// The priority of a claim among those of its kind.
    pub(crate) fn priority(&self, claim: &JobScore, read_weight: u32) -> f64 {
        let (reads, sublevels) = self.0[claim.urgency as usize];
        let read_weight = match claim.urgency {
            JobPriority::Full | JobPriority::Garbage => 0.0,
            _ => f64::from(read_weight),
        };
        // The averages have the same divisor, the number of claims, which changes no order.
        read_weight * number(claim.reads) / reads.max(1.0)
            + number(claim.sublevels as u64) / sublevels.max(1.0)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a priority needs no more than 53 bits"
)]
fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The position of the claim that comes first; the first of several that are equal.
    fn first(claims: &[JobScore], read_weight: u32) -> Option<usize> {
        let mut sums = ScoreTotals::default();
        claims.iter().for_each(|claim| sums.add(claim));
        let rank = |at: &usize| {
            (
                claims[*at].urgency,
                sums.priority(&claims[*at], read_weight),
            )
        };
        (0..claims.len()).rev().max_by(|a, b| {
            let ((urgency, priority), (other, others)) = (rank(a), rank(b));
            urgency.cmp(&other).then(priority.total_cmp(&others))
        })
    }

    fn level(reads: u64, sublevels: usize) -> JobScore {
        JobScore {
            urgency: JobPriority::Level,
            reads,
            sublevels,
        }
    }

    #[test]
    fn urgency_comes_before_reads() {
        let split = JobScore {
            urgency: JobPriority::Split,
            reads: 0,
            sublevels: 1,
        };
        assert_eq!(first(&[level(1_000_000, 7), split], 10), Some(1));
        assert_eq!(first(&[], 10), None);
    }

    #[test]
    fn reads_outweigh_sublevels_as_far_as_the_weight_says() {
        // Averages 30 and 6: the priorities are 10 * 40/30 + 4/6 and 10 * 20/30 + 8/6.
        let claims = [level(40, 4), level(20, 8)];
        assert_eq!(first(&claims, 10), Some(0));
        // 1 * 40/30 + 4/6 = 2.0 = 1 * 20/30 + 8/6: the first of the two.
        assert_eq!(first(&claims, 1), Some(0));
        assert_eq!(first(&claims, 0), Some(1));
    }

    #[test]
    fn without_reads_the_fullest_level_comes_first() {
        let claims = [level(0, 4), level(0, 6), level(0, 6), level(0, 5)];
        assert_eq!(first(&claims, 10), Some(1));
    }

    #[test]
    fn levels_that_hold_writers_up_are_ordered_by_their_sublevels_alone() {
        let full = |reads, sublevels| JobScore {
            urgency: JobPriority::Full,
            ..level(reads, sublevels)
        };
        assert_eq!(first(&[full(1_000, 20), full(0, 21)], 10), Some(1));
    }
}
