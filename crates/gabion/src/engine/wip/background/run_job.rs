//! Runs the job that is due in a bucket.

use std::sync::Arc;

use gabion_media::Purpose;

use crate::Result;
use crate::engine::wip::bucket::Bucket;
use crate::engine::wip::jobs::compact::Compaction;
use crate::engine::wip::policy::compaction_picker::{CompactionScope, JobKind};
use crate::engine::wip::{Wip, WipKeyspace};

impl Wip {
    /// Serves a bucket that was found without a lock; false when nothing is due there.
    pub(super) fn serve_found(
        &self,
        keyspace: &Arc<WipKeyspace>,
        bucket: &Arc<Bucket>,
    ) -> Result<bool> {
        if !bucket.reserve() {
            return Ok(true);
        }
        // The bucket may have been split since it was found, and then it stays reserved.
        if !keyspace.has(bucket) {
            return Ok(true);
        }
        let result = self.serve(keyspace, bucket);
        if keyspace.has(bucket) {
            bucket.release();
        }
        // Others have left it alone meanwhile.
        if !matches!(result, Ok(false)) || bucket.demand.is_open() {
            self.touch(bucket);
        }
        result
    }

    /// Does what is most pressing in a bucket that is reserved; false when nothing is due.
    pub(super) fn serve(&self, keyspace: &Arc<WipKeyspace>, bucket: &Arc<Bucket>) -> Result<bool> {
        let circumstances = self.circumstances(self.has_leisure());
        let due = self.due(bucket, &bucket.state.load(), &circumstances)?;
        let done = due.map(|due| self.carry_out(keyspace, bucket, due.job));
        done.transpose().map(|done| done.is_some())
    }

    /// Does a job in a bucket that is reserved, with what is in its levels by now: since it was
    /// found due, level 0 may have got more runs.
    pub(super) fn carry_out(
        &self,
        keyspace: &Arc<WipKeyspace>,
        bucket: &Arc<Bucket>,
        job: JobKind,
    ) -> Result<()> {
        match job {
            JobKind::Split { ways } => {
                if !self.split(keyspace, bucket, ways)? {
                    bucket.set_unsplittable(&bucket.state.load());
                }
                Ok(())
            }
            JobKind::Compact(CompactionScope::OnDemand) => {
                bucket.demand.begin();
                let result = self.compact(&compaction(bucket, CompactionScope::OnDemand));
                bucket.demand.end(result.is_ok());
                result
            }
            JobKind::Compact(scope) => self.compact(&compaction(bucket, scope)),
        }
    }
}

fn compaction(bucket: &Arc<Bucket>, scope: CompactionScope) -> Compaction {
    let levels = Arc::clone(&bucket.state.load().levels);
    match scope {
        CompactionScope::Level(level) => Compaction::of_level(bucket, &levels, level),
        CompactionScope::Whole => Compaction::of_bucket(bucket, &levels, Purpose::Compaction),
        CompactionScope::Unshare => Compaction::of_bucket(bucket, &levels, Purpose::Split),
        CompactionScope::Rewrite | CompactionScope::OnDemand => {
            Compaction::rewriting(bucket, &levels, Purpose::Compaction)
        }
        CompactionScope::Leisure => Compaction::at_leisure(bucket, &levels),
        CompactionScope::Young { last } => Compaction::compact_young_runs(bucket, &levels, last),
    }
}
