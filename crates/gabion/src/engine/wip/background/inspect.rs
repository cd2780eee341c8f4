//! Inspects buckets: which jobs are due in them, and their shares of the sums.

use std::sync::Arc;
use std::time::Instant;

use crate::Result;
use crate::engine::wip::bucket::{Bucket, BucketState};
use crate::engine::wip::policy::compaction_picker::{PickedJob, StoreFacts, due};
use crate::engine::wip::policy::space::SpaceTotals;
use crate::engine::wip::{Wip, WipKeyspace};

impl Wip {
    /// The bucket in which something is most pressing, of those that no job has reserved; all are
    /// looked at for that.
    pub(in super::super) fn most_pressing(
        &self,
        leisure: bool,
    ) -> Result<Option<(Arc<WipKeyspace>, Arc<Bucket>)>> {
        self.look_at_all(leisure)?;
        let first = self.agenda.first_due();
        Ok(first.and_then(|bucket| self.with_keyspace(bucket)))
    }

    /// As [`Wip::most_pressing`], for a step of the background: looks at those that were touched,
    /// or at all if `all`, and takes the one that it finds off the agenda.
    pub(in super::super) fn next_pressing(
        &self,
        leisure: bool,
        all: bool,
    ) -> Result<Option<(Arc<WipKeyspace>, Arc<Bucket>)>> {
        match all {
            true => self.look_at_all(leisure)?,
            false => self.score_buckets(leisure)?,
        }
        while let Some(bucket) = self.agenda.take_due() {
            self.count_visits(1);
            if !bucket.is_busy()
                && let Some(found) = self.with_keyspace(bucket)
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Looks for what is due in all buckets.
    fn look_at_all(&self, leisure: bool) -> Result<()> {
        let began = Instant::now();
        let circumstances = self.circumstances(leisure);
        // What is touched from here on is looked at again.
        drop(self.agenda.take_unscored());
        let mut due = Vec::new();
        for (_, bucket) in self.buckets() {
            if !bucket.is_busy()
                && let Some(found) = self.due(&bucket, &bucket.state.load(), &circumstances)?
            {
                due.push((found.claim, bucket));
            }
        }
        let look = (leisure, began);
        self.agenda
            .set_due(due, self.options.tuning.read_weight, look);
        Ok(())
    }

    /// Looks for what is due in the buckets that were touched.
    fn score_buckets(&self, leisure: bool) -> Result<()> {
        let unjudged = self.agenda.take_unscored();
        if unjudged.is_empty() {
            return Ok(());
        }
        self.count_visits(unjudged.len());
        let circumstances = self.circumstances(leisure);
        for bucket in &unjudged {
            if !bucket.is_busy()
                && let Some(found) = self.due(bucket, &bucket.state.load(), &circumstances)?
            {
                let weight = self.options.tuning.read_weight;
                self.agenda.add_due(&found.claim, bucket, weight);
            }
        }
        Ok(())
    }

    /// A bucket with its keyspace, unless one of them is there no more.
    pub(in super::super) fn with_keyspace(
        &self,
        bucket: Arc<Bucket>,
    ) -> Option<(Arc<WipKeyspace>, Arc<Bucket>)> {
        let keyspaces = self.keyspaces.load();
        let keyspace = keyspaces.live(bucket.keyspace)?;
        keyspace
            .has(&bucket)
            .then(|| (Arc::clone(keyspace), bucket))
    }

    /// What is due in a bucket in this state.
    pub(super) fn due(
        &self,
        bucket: &Bucket,
        state: &BucketState,
        circumstances: &StoreFacts<'_>,
    ) -> Result<Option<PickedJob>> {
        let facts = self.facts(bucket, state, circumstances.expired_by)?;
        Ok(due(&facts, circumstances))
    }

    /// Brings the sums up to date with the buckets that were touched, and tells writers of the
    /// runs. What of them cannot be measured is touched again.
    pub(in super::super) fn look_at_touched(&self) -> Result<()> {
        let mut result = Ok(());
        let touched = self.agenda.take_touched();
        if touched.is_empty() {
            return result;
        }
        self.count_visits(touched.len());
        let mut ledger = self.ledger.lock();
        for (id, bucket) in touched {
            let present = bucket.as_ref().filter(|bucket| self.has_bucket(bucket));
            let Some(bucket) = present else {
                ledger.set(id, None);
                continue;
            };
            match self.part_of(bucket, &bucket.state.load().levels) {
                Ok(part) => ledger.set(id, Some(part)),
                Err(error) => {
                    self.agenda.touch(bucket);
                    result = Err(error);
                }
            }
            let has_neighbours = bucket.upper().is_some() || !bucket.lower().is_empty();
            self.agenda.add_unjudged(bucket, has_neighbours);
        }
        self.table_bytes.set(ledger.table_bytes());
        self.throttle.set_runs(ledger.runs_max());
        result
    }

    /// Tells writers of the runs as they are now.
    pub(in super::super) fn tell_runs(&self) {
        // Who compacts a bucket that cannot be measured meets the same error.
        let _ = self.look_at_touched();
        self.throttle.set_runs(self.ledger.lock().runs_max());
    }

    /// Looks how near the cap is, and tells writers.
    pub(in super::super) fn look_at_space(&self) -> Result<()> {
        let cap = self.options.space_amplification_max;
        if !cap.is_finite() {
            return Ok(());
        }
        let totals = self.space_totals()?;
        self.throttle.set_space(totals.pressure(cap));
        *self.totals.lock() = totals;
        Ok(())
    }

    /// The space of all tables.
    pub(in super::super) fn space_totals(&self) -> Result<SpaceTotals> {
        self.look_at_touched()?;
        let table_bytes = self.versions.lock().file_bytes_and_count().0;
        let oldest = self.snapshots.oldest();
        Ok(self.ledger.lock().totals(table_bytes, oldest))
    }

    /// Whether a bucket is one of a keyspace that is there.
    pub(in super::super) fn has_bucket(&self, bucket: &Bucket) -> bool {
        let keyspaces = self.keyspaces.load();
        let keyspace = keyspaces.live(bucket.keyspace);
        keyspace.is_some_and(|keyspace| keyspace.has(bucket))
    }

    /// Touches a bucket whose tables, jobs or neighbours have changed.
    pub(in super::super) fn touch(&self, bucket: &Arc<Bucket>) {
        self.agenda.touch(bucket);
    }
}
