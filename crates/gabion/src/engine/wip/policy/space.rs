//! How much of the tables nobody needs, and what is done before it is too much.
//!
//! # Idea
//! The space amplification of a store is the bytes of its tables over the bytes that they would
//! have if each held only what a reader of now can see. The first is known exactly; the second is
//! estimated for each bucket, and the estimate that the cap goes by is low, so that the cap is
//! kept:
//!
//! - A run has a key once (but for versions that a snapshot protected). So a bucket of one run has
//!   no old versions, and every bucket has at least as many keys as its longest run has entries.
//! - Where the sketches of the tables (`table::sketch`) promise more keys than that, nine tenths of
//!   them count: three standard errors less.
//! - Each tombstone takes one key away; a range delete takes the blocks away that it touches in
//!   tables with older entries.
//! - The keys that are left have the entries of the runs with the shortest ones.
//!
//! What is still taken to be like the average are the lengths of entries within one run.
//!
//! # The cap
//! From 70 % of the garbage that the cap allows on, buckets are compacted for their garbage, the
//! one with the largest share first (`due`). Each byte written so makes room for `cap - 1` bytes
//! of new versions, as long as they fall evenly; uneven ones cost less. From 85 % on writers are
//! slowed down (`throttle`), and at the cap they wait. A flush that would pass the cap comes after
//! the compactions that make room for it. A bucket is worth it if an eighth of it is garbage that
//! no snapshot holds; when none is, there is nothing to wait for, and nobody waits. On a medium
//! that is nearly full buckets are compacted for their garbage wherever it is worth it.
//!
//! Not in the figure: the outputs of jobs that are not finished, and tables that are gone from the
//! store and stay on the medium for iterators that began before.
//!
//! # Invariants
//! - P1: after a compaction for its garbage a bucket is not worth another one before new tables
//!   come or the oldest snapshot ends.

use std::sync::Arc;

use crate::Result;
use crate::engine::wip::Wip;
use crate::engine::wip::bucket::{Bucket, BucketState, Levels, Run};
use crate::engine::wip::jobs::compact::range_deletes_of;
use crate::engine::wip::jobs::split::slice_bytes;
use crate::engine::wip::table::Sketch;
use crate::types::Seq;

/// Shares of the garbage that the cap allows, in hundredths: from which on buckets are compacted
/// for their garbage, and writers slowed down.
const COMPACT_FROM: f64 = 0.70;
const SLOW_FROM: f64 = 0.85;

/// A bucket is compacted for its garbage when this part of it is garbage: one in so many bytes.
const WORTH_ONE_IN: u64 = 8;

/// A single run of which the sketch finds at least this share of its entries, in hundredths, has
/// no two versions of a key: its standard error is three of them.
const DISTINCT_FROM: u64 = 80;

/// What the tables of a bucket hold. Bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Space {
    /// All of it; of shared tables the part in the bucket's range.
    pub(crate) bytes: u64,
    /// What readers see of it, by the best estimate.
    pub(crate) live: u64,
    /// What readers see of it, by the low estimate.
    pub(crate) live_min: u64,
    /// What range deletes hide.
    pub(crate) deleted: u64,
    /// Number of tombstones.
    pub(crate) tombstones: u64,
    /// Number of entries.
    pub(crate) entries: u64,
    /// Some tables reach beyond the bucket.
    pub(crate) shares: bool,
}

impl Space {
    /// The bytes that a full compaction gives back, by the low estimate of what it leaves.
    pub(crate) fn garbage(&self) -> u64 {
        self.bytes - self.live_min
    }

    pub(in super::super) fn add(&mut self, other: &Space) {
        self.bytes += other.bytes;
        self.live += other.live;
        self.live_min += other.live_min;
        self.deleted += other.deleted;
        self.tombstones += other.tombstones;
        self.entries += other.entries;
        self.shares |= other.shares;
    }

    /// Takes away what was added; whether any part shares tables is not known any more.
    pub(in super::super) fn take(&mut self, other: &Space) {
        self.bytes -= other.bytes;
        self.live -= other.live;
        self.live_min -= other.live_min;
        self.deleted -= other.deleted;
        self.tombstones -= other.tombstones;
        self.entries -= other.entries;
    }
}

/// The space of all tables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Sums over the buckets.
    pub(crate) buckets: Space,
    /// Bytes of the table files.
    pub(crate) table_bytes: u64,
    /// Bytes of shared tables that are in no bucket's part.
    pub(crate) orphaned: u64,
    /// Some bucket is worth a compaction for its garbage.
    pub(crate) may_shrink: bool,
}

impl Totals {
    /// Whether so much of shared tables is in no bucket's part that buckets are compacted for it.
    pub(in super::super) fn are_orphans_many(&self) -> bool {
        self.orphaned > self.table_bytes / WORTH_ONE_IN
    }

    /// The space amplification by the low estimate of what is live; 1 for an empty store.
    fn amplification_max(&self) -> f64 {
        ratio(self.table_bytes, self.buckets.live_min)
    }

    /// Bytes over what is live by the best estimate.
    pub(crate) fn amplification(&self, bytes: u64) -> f64 {
        ratio(bytes, self.buckets.live)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio of byte counts needs no more than 53 bits"
)]
fn ratio(bytes: u64, live: u64) -> f64 {
    match (bytes, live) {
        (0, _) => 1.0,
        (bytes, live) => bytes as f64 / (live as f64).max(1.0),
    }
}

/// How pressing it is to give space back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Need {
    /// Far from the cap.
    None,
    /// Buckets are compacted for their garbage.
    Compact,
    /// At the cap, or a flush would pass it.
    Stop,
}

/// What a compaction of a bucket for its garbage depends on (P1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Worth {
    /// It is not worth what it writes.
    No,
    /// It is, unless this is the oldest snapshot.
    Unless(Option<Seq>),
    /// It is.
    Yes,
}

/// What a full compaction left, and the oldest snapshot and the number of reads of then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) run: u64,
    pub(crate) oldest: Option<Seq>,
    pub(crate) reads: u64,
}

impl Wip {
    /// What the tables of a bucket hold; kept with them.
    pub(in super::super) fn space_of(&self, bucket: &Bucket, state: &BucketState) -> Result<Space> {
        if let Some(space) = state.levels.space.get() {
            return Ok(*space);
        }
        let space = self.measure(bucket, &state.levels)?;
        Ok(*state.levels.space.get_or_init(|| space))
    }

    fn measure(&self, bucket: &Bucket, levels: &Levels) -> Result<Space> {
        let mut space = Space::default();
        let mut sketch = Sketch::default();
        let mut sketched = 0;
        let mut longest = 0;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for run in levels.runs() {
            let (mut bytes, mut entries) = (0, 0);
            let mut superseded = 0;
            for file in run.tables.iter() {
                let meta = &file.meta;
                let slice = slice_bytes(bucket, file)?;
                let part = |count: u64| scaled(count, slice, meta.file_bytes);
                bytes += slice;
                entries += part(meta.entries);
                superseded += part(file.age.superseded);
                space.tombstones += part(meta.tombstones);
                sketched += meta.entries;
                space.shares |= !bucket.contains(&meta.smallest, &meta.largest);
                sketch.merge(&meta.sketch);
            }
            space.bytes += bytes;
            space.entries += entries;
            runs.push((bytes, entries));
            longest = longest.max(entries.saturating_sub(superseded));
        }
        space.deleted = self.deleted_by_ranges(bucket, levels)?;
        let found = sketch.estimate().min(sketched);
        let distinct = scaled(space.entries, found, sketched);
        let (distinct, distinct_min) = match runs.len() {
            0 | 1 if found * 100 >= longest * DISTINCT_FROM => (longest, longest),
            0 | 1 => (distinct, distinct / 10 * 9),
            _ => (distinct.max(longest), longest.max(distinct / 10 * 9)),
        };
        let live = scaled(
            space.bytes,
            distinct.saturating_sub(space.tombstones),
            space.entries,
        );
        space.live = live.saturating_sub(space.deleted);
        let live_min = shortest(&mut runs, distinct_min.saturating_sub(space.tombstones));
        space.live_min = live_min.saturating_sub(space.deleted).min(space.live);
        Ok(space)
    }

    /// About how many bytes of older entries range deletes in tables hide; rather too many.
    fn deleted_by_ranges(&self, bucket: &Bucket, levels: &Levels) -> Result<u64> {
        if levels.files().all(|file| file.meta.range_deletes == 0) {
            return Ok(0);
        }
        let protected = self.snapshots.protect(|| self.visible());
        let deletes = range_deletes_of(levels.runs(), &protected)?.within(bucket.range());
        let mut bytes = 0;
        for file in levels.files() {
            let size = slice_bytes(bucket, file)?;
            let mut hidden = 0;
            for fragment in deletes.iter() {
                let upper = fragment.upper.as_deref();
                let beyond = upper.is_some_and(|upper| *upper <= *file.meta.smallest)
                    || *fragment.lower > *file.meta.largest;
                if fragment.newest(Seq::MAX) > file.meta.min_seq && !beyond {
                    let blocks = 2 * self.options.block_bytes as u64;
                    hidden += file.table()?.bytes_between(&fragment.lower, upper) + blocks;
                }
            }
            bytes += hidden.min(size);
        }
        Ok(bytes)
    }

    /// Whether a compaction of the bucket for its garbage is worth what it writes (P1), as far as
    /// that is no matter of other buckets.
    pub(in super::super) fn worth(bucket: &Bucket, space: &Space, levels: &Levels) -> Worth {
        if space.garbage() < (space.bytes / WORTH_ONE_IN).max(1) {
            return Worth::No;
        }
        let Some(settled) = *bucket.settled.lock() else {
            return Worth::Yes;
        };
        let Some(run) = levels.runs().find(|run| run.number == settled.run) else {
            return Worth::Yes;
        };
        // What a snapshot holds is not rewritten for each flush.
        let entries = |run: &Run| -> u64 { run.tables.iter().map(|file| file.meta.entries).sum() };
        let all: u64 = levels.runs().map(entries).sum();
        let newer = all - entries(run);
        let is_worth = match settled.oldest {
            None => newer > 0,
            Some(_) => newer > all / WORTH_ONE_IN,
        };
        match is_worth {
            true => Worth::Yes,
            false => Worth::Unless(settled.oldest),
        }
    }

    /// As [`Wip::worth`], when the tables of all buckets are these.
    fn may_shrink(&self, bucket: &Bucket, space: &Space, levels: &Levels, totals: &Totals) -> bool {
        if space.shares && totals.are_orphans_many() {
            return true;
        }
        match Wip::worth(bucket, space, levels) {
            Worth::No => false,
            Worth::Yes => true,
            Worth::Unless(oldest) => oldest != self.snapshots.oldest(),
        }
    }

    /// The garbage of a bucket that is worth a compaction for it, in thousandths of its bytes.
    pub(in super::super) fn worthwhile_garbage(
        &self,
        bucket: &Bucket,
        state: &BucketState,
    ) -> Result<Option<u64>> {
        let totals = *self.totals.lock();
        let space = self.space_of(bucket, state)?;
        let worth = self.may_shrink(bucket, &space, &state.levels, &totals);
        Ok(worth.then(|| scaled(1000, space.garbage(), space.bytes)))
    }

    /// Looks how near the cap is, and tells writers.
    pub(in super::super) fn look_at_space(&self) -> Result<()> {
        if !self.options.space_amplification_max.is_finite() {
            return Ok(());
        }
        let totals = self.space_totals()?;
        let pressure = match totals.may_shrink {
            true => {
                let part = self.part_of_allowed(totals.amplification_max());
                (part - SLOW_FROM) / (1.0 - SLOW_FROM)
            }
            false => 0.0,
        };
        self.throttle.set_space(pressure);
        *self.totals.lock() = totals;
        Ok(())
    }

    /// The garbage at this amplification as a part of what the cap allows.
    fn part_of_allowed(&self, amplification: f64) -> f64 {
        (amplification - 1.0) / (self.options.space_amplification_max - 1.0)
    }

    /// How pressing it is to give space back, by what was last looked at.
    pub(in super::super) fn space_need(&self) -> Need {
        let totals = *self.totals.lock();
        if !totals.may_shrink || !self.options.space_amplification_max.is_finite() {
            return Need::None;
        }
        let coming = self.next_flush_bytes();
        let after = Totals {
            table_bytes: totals.table_bytes + coming,
            ..totals
        };
        if self.part_of_allowed(after.amplification_max()) >= 1.0 {
            Need::Stop
        } else if self.part_of_allowed(totals.amplification_max()) >= COMPACT_FROM
            || self.syncer.is_room_short()
        {
            Need::Compact
        } else {
            Need::None
        }
    }

    /// Bytes of keys and values in the frozen MemTable that is flushed next.
    fn next_flush_bytes(&self) -> u64 {
        let install = self.lock_install();
        let next = install.frozen.front();
        next.map_or(0, |frozen| frozen.table.user_bytes())
    }

    /// Notes that a full compaction of a bucket, which began when `oldest` was the oldest
    /// snapshot, left this run.
    pub(in super::super) fn settle(&self, bucket: &Arc<Bucket>, run: u64, oldest: Option<Seq>) {
        let reads = bucket.reads.in_gets();
        *bucket.settled.lock() = Some(Settled { run, oldest, reads });
        self.touch(bucket);
    }
}

/// The bytes of `keys` entries, the runs with the shortest ones first.
fn shortest(runs: &mut [(u64, u64)], keys: u64) -> u64 {
    let length = |(bytes, entries): &(u64, u64)| bytes.checked_div(*entries).unwrap_or(0);
    runs.sort_by_key(length);
    let (mut left, mut sum) = (keys, 0);
    for (bytes, entries) in runs {
        let taken = left.min(*entries);
        sum += scaled(*bytes, taken, *entries);
        left -= taken;
    }
    sum
}

/// `amount * part / whole`; 0 of nothing.
fn scaled(amount: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(amount) * u128::from(part);
    let scaled = product.checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::Options;
    use crate::engine::ssd::Lifecycle;

    /// Far from the cap nobody compacts for garbage, but on a medium that is nearly full.
    #[test]
    fn garbage_is_compacted_where_the_medium_is_nearly_full() {
        let sim = SimDisk::new();
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&sim), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        engine.put_run_for_tests(&keyspace, 0..10_000, 1);
        engine.put_run_for_tests(&keyspace, (0..10_000).step_by(3), 2);
        engine.look_at_space().unwrap();
        assert_eq!(engine.space_need(), Need::None);
        let names = sim.names();
        let files = names.iter().filter_map(|name| sim.raw(name));
        let used: u64 = files.map(|file| file.len() as u64).sum();
        for (free, need) in [(used, Need::None), (used / 16, Need::Compact)] {
            sim.set_capacity(Some(used + free));
            engine.syncer.look_at_room();
            assert_eq!(engine.space_need(), need, "{free} bytes beside {used}");
        }
        sim.set_capacity(None);
        engine.close().unwrap();
    }

    #[test]
    fn the_shortest_entries_are_what_is_left() {
        let runs = [(1000, 10), (100, 5), (400, 5)];
        for (keys, expected) in [(0, 0), (3, 60), (5, 100), (10, 500), (20, 1500), (99, 1500)] {
            assert_eq!(shortest(&mut runs.clone(), keys), expected, "{keys} keys");
        }
        assert_eq!(shortest(&mut [], 7), 0);
        assert_eq!(shortest(&mut [(70, 0)], 7), 0);
    }
}
