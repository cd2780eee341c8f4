//! Gathers the facts on which the policy decides.
//!
//! Facts that follow from the tables of a bucket alone are computed once and kept with them; the
//! rest is read on demand. This holds locks only to copy a few numbers, and decides nothing.

use crate::Result;
use crate::engine::range_deletes::{HiddenByRangeDelete, RangeDeletes};
use crate::engine::wip::Wip;
use crate::engine::wip::bucket::age::garbage_since;
use crate::engine::wip::bucket::{Bucket, BucketState, Levels, Run};
use crate::engine::wip::jobs::compact::range_deletes_of;
use crate::engine::wip::policy::bucket_shape::{BucketShape, LevelShape, RunShape};
use crate::engine::wip::policy::bucket_totals::BucketShare;
use crate::engine::wip::policy::capacity::{buckets_max, capacity_base};
use crate::engine::wip::policy::compaction_picker::{BucketFacts, StoreFacts};
use crate::engine::wip::policy::space::{SpaceEstimate, SpacePressure, SpaceUsage, scaled};
use crate::engine::wip::table::DistinctSketch;
use crate::expiry::UnixMillis;
use crate::types::Seq;

impl Wip {
    /// The time of now (`policy/aging`).
    pub(in super::super) fn time(&self) -> u64 {
        self.options.tuning.clock.unix_time().as_secs() + 1
    }

    /// What holds of the store.
    pub(in super::super) fn circumstances(&self, leisure: bool) -> StoreFacts<'_> {
        StoreFacts {
            options: &self.options,
            now: self.time(),
            leisure,
            need: self.space_need(),
            totals: *self.totals.lock(),
            oldest: self.snapshots.oldest(),
            expired_by: self.expired_by(),
            capacity_base: capacity_base(&self.options, self.table_bytes.get()),
            split_ways_max: self.split_ways_max(),
        }
    }

    /// What holds of a bucket in this state, where space comes back of what `expired_by` then.
    pub(in super::super) fn facts<'b>(
        &self,
        bucket: &'b Bucket,
        state: &'b BucketState,
        expired_by: UnixMillis,
    ) -> Result<BucketFacts<'b>> {
        Ok(BucketFacts {
            bucket: bucket.id,
            shape: self.shape_of(bucket, &state.levels)?,
            width: bucket.sizing.width(&self.options),
            reads: &bucket.reads,
            demand: &bucket.demand,
            settled: *bucket.settled.lock(),
            deleted_bytes: self.deleted_bytes(bucket, state)?,
            expired_bytes: expired_bytes(bucket, &state.levels, expired_by)?,
            may_split: bucket.may_split(state),
        })
    }

    /// What a bucket adds to the sums of all. Its levels come to know how many runs they need.
    pub(super) fn part_of(&self, bucket: &Bucket, levels: &Levels) -> Result<BucketShare> {
        let shape = self.shape_of(bucket, levels)?;
        let mut slices = Vec::new();
        let shared = levels.files().filter(|file| {
            shape.space.shares && !bucket.contains(&file.meta.smallest, &file.meta.largest)
        });
        for file in shared {
            let bytes = file.bytes_in(bucket)?;
            slices.push((file.meta.file, file.meta.file_bytes, bytes));
        }
        let flushed: Vec<u64> = shape.runs_to(0).map(|run| run.bytes).collect();
        bucket.sizing.see(shape.space.bytes, &flushed);
        let width = bucket.sizing.width(&self.options);
        Ok(BucketShare {
            runs: width.scaled(0, flushed.len()),
            table_bytes: levels.files().map(|file| file.meta.file_bytes).sum(),
            worth: shape.worth(*bucket.settled.lock()),
            space: shape.space,
            slices,
        })
    }

    /// How much of a bucket's tables nobody needs.
    pub(in super::super) fn space_of(
        &self,
        bucket: &Bucket,
        levels: &Levels,
    ) -> Result<SpaceUsage> {
        self.shape_of(bucket, levels).map(|shape| shape.space)
    }

    /// How pressing it is to give space back, by what was last looked at.
    pub(in super::super) fn space_need(&self) -> SpacePressure {
        let totals = *self.totals.lock();
        let cap = self.options.space_amplification_max;
        let coming = || self.next_flush_bytes();
        totals.need(cap, coming, || self.syncer.is_room_short())
    }

    /// Bytes of keys and values in the frozen MemTable that is flushed next.
    fn next_flush_bytes(&self) -> u64 {
        let install = self.lock_install();
        let next = install.frozen.front();
        next.map_or(0, |frozen| frozen.table.user_bytes())
    }

    /// Into how many buckets one may be split, so that the budget has memory for all of them; a
    /// keyspace's first bucket counts as none.
    pub(in super::super) fn split_ways_max(&self) -> usize {
        let buckets_max = buckets_max(&self.options, self.throttle.limits().active_bytes_max);
        let keyspaces = self.keyspaces.load().len();
        let split = self.bucket_count().saturating_sub(keyspaces);
        usize::try_from(buckets_max)
            .unwrap_or(usize::MAX)
            .saturating_sub(split)
    }

    fn shape_of<'l>(&self, bucket: &Bucket, levels: &'l Levels) -> Result<&'l BucketShape> {
        if let Some(shape) = levels.shape.get() {
            return Ok(shape);
        }
        let shape = self.measure(bucket, levels)?;
        Ok(levels.shape.get_or_init(|| shape))
    }

    fn measure(&self, bucket: &Bucket, levels: &Levels) -> Result<BucketShape> {
        let mut census = SpaceEstimate {
            deleted: self.deleted_by_ranges(bucket, levels)?,
            ..SpaceEstimate::default()
        };
        let mut sketch = DistinctSketch::default();
        let mut shape = BucketShape::default();
        for level in 0..levels.depth() {
            let runs = levels.level(level);
            let measured = runs.iter().map(|run| {
                let (bytes, entries) = count(bucket, run, &mut census, &mut sketch)?;
                census.runs.push((bytes, entries));
                let (number, entries) = (run.number, run.entries());
                Ok(RunShape {
                    number,
                    bytes,
                    entries,
                })
            });
            let measured = measured.collect::<Result<_>>()?;
            shape.levels.push(LevelShape {
                runs: measured,
                in_order: Run::in_order(runs).is_some(),
            });
        }
        census.distinct = sketch.estimate().min(census.sketched);
        Ok(BucketShape {
            space: census.space(),
            distinct_bytes: census.distinct_bytes(),
            garbage_since: garbage_since(levels),
            shares_overlapping: shares_overlapping_tables(bucket, levels),
            ..shape
        })
    }

    /// About how many bytes of older entries range deletes in tables hide; rather too many.
    fn deleted_by_ranges(&self, bucket: &Bucket, levels: &Levels) -> Result<u64> {
        if levels.files().all(|file| file.meta.range_deletes == 0) {
            return Ok(0);
        }
        let protected = self.snapshots.protect(|| self.read_point());
        let deletes = range_deletes_of(levels.runs(), &protected)?.within(bucket.range());
        let mut bytes = 0;
        for file in levels.files() {
            let size = file.bytes_in(bucket)?;
            let mut hidden = 0;
            for fragment in deletes.iter() {
                let upper = fragment.upper.as_deref();
                let beyond = upper.is_some_and(|upper| *upper <= *file.meta.smallest)
                    || *fragment.lower > *file.meta.largest;
                if fragment.newest(Seq::MAX) > file.meta.min_seq && !beyond {
                    let blocks = 2 * self.options.tuning.block_bytes as u64;
                    hidden += file.table()?.bytes_between(&fragment.lower, upper) + blocks;
                }
            }
            bytes += hidden.min(size);
        }
        Ok(bytes)
    }

    /// The bytes of tables that hold nothing in the bucket but what range deletes hide from all
    /// readers: a compaction drops them without reading them. Only range deletes that are in tables
    /// count, as there.
    fn deleted_bytes(&self, bucket: &Bucket, state: &BucketState) -> Result<u64> {
        if state.deletes.is_empty() {
            return Ok(0);
        }
        let protected = self.snapshots.protect(|| self.read_point());
        let deletes = range_deletes_of(state.levels.runs(), &protected)?;
        let deletes = RangeDeletes::of([&deletes.within(bucket.range())], &protected);
        let mut bytes = 0;
        for file in state.levels.files() {
            let meta = &file.meta;
            let hidden = HiddenByRangeDelete::from_all(meta.min_seq, meta.max_seq, &protected);
            let first = bucket.lower().max(&meta.smallest);
            if let Some(gap) = deletes.gap(first, hidden)
                && (gap.upper.as_deref() == bucket.upper()
                    || gap
                        .upper
                        .as_deref()
                        .is_none_or(|upper| *meta.largest < *upper))
            {
                bytes += file.bytes_in(bucket)?;
            }
        }
        Ok(bytes)
    }
}

/// About how many bytes of a bucket's tables have expired by a moment.
pub(in super::super) fn expired_bytes(
    bucket: &Bucket,
    levels: &Levels,
    moment: UnixMillis,
) -> Result<u64> {
    let mut bytes = 0;
    for file in levels.files() {
        if let Some(expiries) = &file.meta.expiries {
            let expired = expiries.expired_by(moment);
            bytes += scaled(file.bytes_in(bucket)?, expired, file.meta.entries);
        }
    }
    Ok(bytes)
}

/// Counts what a run has, and returns its bytes and entries; of shared tables the part in the
/// bucket's range.
fn count(
    bucket: &Bucket,
    run: &Run,
    census: &mut SpaceEstimate,
    sketch: &mut DistinctSketch,
) -> Result<(u64, u64)> {
    let (mut bytes, mut entries, mut superseded) = (0, 0, 0);
    for file in run.tables.iter() {
        let meta = &file.meta;
        let slice = file.bytes_in(bucket)?;
        let part = |count: u64| scaled(count, slice, meta.file_bytes);
        bytes += slice;
        entries += part(meta.entries);
        superseded += part(file.age.superseded);
        census.tombstones += part(meta.tombstones);
        census.sketched += meta.entries;
        census.shares |= !bucket.contains(&meta.smallest, &meta.largest);
        sketch.merge(&meta.sketch);
    }
    census.longest = census.longest.max(entries.saturating_sub(superseded));
    Ok((bytes, entries))
}

/// Whether two runs that reach beyond the bucket overlap inside it.
fn shares_overlapping_tables(bucket: &Bucket, levels: &Levels) -> bool {
    let reaches_beyond = |run: &&Run| {
        let mut metas = run.tables.iter().map(|file| &file.meta);
        metas.any(|meta| !bucket.contains(&meta.smallest, &meta.largest))
    };
    let slices: Vec<Run> = levels.runs().filter(reaches_beyond).cloned().collect();
    slices.len() > 1 && Run::in_order(&slices).is_none()
}
