//! What is due in a bucket, and which bucket comes first.
//!
//! # Kinds of jobs, the most urgent first
//! 1. a level with `sublevels_max` runs, or more where it needs more (`width`): a compaction of the
//!    level;
//! 2. when the tables have almost as much garbage as they may have (`space`): a bucket of which a
//!    good part is garbage, a full compaction;
//! 3. a bucket at its capacity: a split, or a full compaction when half of it is hidden versions;
//! 4. a bucket that a user wants compacted (`demand`): a full compaction;
//! 5. a bucket that holds garbage as old as it may become (`aging`): a full compaction;
//! 6. a bucket that shares overlapping tables with its siblings: a full compaction of its slices;
//! 7. a bucket of which half is hidden versions, or half are tables that range deletes hide: a full
//!    compaction;
//! 8. a level with `sublevels_min` runs, or more likewise, when nothing else is due;
//! 9. when nobody writes, or little beside the reads: a bucket whose younger runs together are half
//!    as large as its largest, a full compaction. Reads then find one run where there were several,
//!    for at most three bytes written per byte that came since the last time. A bucket that was
//!    read as often as it has entries since its last full compaction (`reads`) need only have an
//!    eighth: the reads to come gain more than the nine bytes per byte cost. Where that is not so,
//!    what the levels above the oldest runs have becomes one run, by the same measure, if it was
//!    read as often as it has entries since it last did.
//!
//! Within a kind, [`super::priority`] prefers what is read most.
//!
//! Each job leaves fewer runs or smaller buckets, so an idle store comes to rest.
//!
//! # Capacity of a bucket
//! `bucket_bytes`, grown with the store so that a bucket's share of the MemTable budget stays worth
//! a flush, and varied by a quarter up or down from bucket to bucket, so that buckets that fill at
//! the same rate do not all split at the same time.
//!
//! # Number of buckets
//! Each bucket that is written takes memory for its MemTable. Where more buckets than memory for
//! them were made, each flush would write next to nothing, for ever. So no split makes more than
//! the MemTable budget has memory for; a bucket that may not split stays one and grows.

use std::sync::Arc;
use std::time::Instant;

use gabion_media::Purpose;

use super::aging::garbage_since;
use super::priority::{Claim, Urgency};
use super::space::Need;
use crate::engine::range_deletes::{Deletes, Hidden};
use crate::engine::wip::bucket::{Bucket, BucketState, Run};
use crate::engine::wip::jobs::compact::{Compaction, range_deletes_of};
use crate::engine::wip::jobs::split::{run_bytes, slice_bytes};
use crate::engine::wip::{Keyspace, Wip};
use crate::{Options, Result};

/// The share of the MemTable budget below which buckets grow instead of splitting: the paper's
/// MemTable.
const MEMTABLE_SHARE_BYTES: u64 = 2 << 20;

/// A bucket is not split when less than this of the MemTable budget would be left for each: a flush
/// of less costs more for its file than for what it writes.
const MEMTABLE_BYTES_MIN: u64 = 64 << 10;

/// Buckets grow to at most this many times `bucket_bytes`: 1 GiB by default, as in the paper.
const CAPACITY_GROWTH_MAX: u64 = 16;

/// What holds of the store when it is looked for what is due.
struct Circumstances {
    /// The size at which buckets split, before it is varied.
    capacity_base: u64,
    /// Buckets that a split may make of one.
    split_ways_max: usize,
    /// Nobody writes, or little beside the reads.
    leisure: bool,
    /// How pressing it is to give space back.
    need: Need,
}

/// Something that is due in a bucket.
struct Due {
    job: Job,
    claim: Claim,
}

enum Job {
    Split {
        ways: usize,
    },
    Compact(Compaction),
    /// A compaction that a user waits for, of what is there when it begins (`demand`, D1).
    OnDemand,
}

impl Wip {
    /// Does what is most pressing in a bucket that is reserved; false when nothing is due.
    pub(in super::super) fn serve(
        &self,
        keyspace: &Arc<Keyspace>,
        bucket: &Arc<Bucket>,
    ) -> Result<bool> {
        let due = self.due(bucket, &self.circumstances(self.has_leisure()))?;
        let done = due.map(|due| self.carry_out(keyspace, bucket, due.job));
        done.transpose().map(|done| done.is_some())
    }

    /// Does a job in a bucket that is reserved.
    fn carry_out(&self, keyspace: &Arc<Keyspace>, bucket: &Arc<Bucket>, job: Job) -> Result<()> {
        match job {
            Job::Split { ways } => {
                if !self.split(keyspace, bucket, ways)? {
                    bucket.set_unsplittable(&bucket.state.load());
                }
                Ok(())
            }
            Job::Compact(job) => self.compact(&job),
            Job::OnDemand => {
                bucket.demand.begin();
                let levels = Arc::clone(&bucket.state.load().levels);
                let job = Compaction::rewriting(bucket, &levels, Purpose::Compaction);
                let result = self.compact(&job);
                bucket.demand.end(result.is_ok());
                result
            }
        }
    }

    /// The bucket in which something is most pressing, of those that no job has reserved; all are
    /// looked at for that.
    pub(in super::super) fn most_pressing(
        &self,
        leisure: bool,
    ) -> Result<Option<(Arc<Keyspace>, Arc<Bucket>)>> {
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
    ) -> Result<Option<(Arc<Keyspace>, Arc<Bucket>)>> {
        match all {
            true => self.look_at_all(leisure)?,
            false => self.look_at_unjudged(leisure)?,
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
        drop(self.agenda.take_unjudged());
        let mut due = Vec::new();
        for (_, bucket) in self.buckets() {
            if !bucket.is_busy()
                && let Some(found) = self.due(&bucket, &circumstances)?
            {
                due.push((found.claim, bucket));
            }
        }
        let look = (leisure, began);
        self.agenda.set_due(due, self.options.read_weight, look);
        Ok(())
    }

    /// Looks for what is due in the buckets that were touched.
    fn look_at_unjudged(&self, leisure: bool) -> Result<()> {
        let unjudged = self.agenda.take_unjudged();
        if unjudged.is_empty() {
            return Ok(());
        }
        self.count_visits(unjudged.len());
        let circumstances = self.circumstances(leisure);
        for bucket in &unjudged {
            if !bucket.is_busy()
                && let Some(found) = self.due(bucket, &circumstances)?
            {
                let weight = self.options.read_weight;
                self.agenda.add_due(&found.claim, bucket, weight);
            }
        }
        Ok(())
    }

    /// A bucket with its keyspace, unless one of them is there no more.
    pub(in super::super) fn with_keyspace(
        &self,
        bucket: Arc<Bucket>,
    ) -> Option<(Arc<Keyspace>, Arc<Bucket>)> {
        let keyspaces = self.keyspaces.load();
        let keyspace = keyspaces.live(bucket.keyspace)?;
        keyspace
            .has(&bucket)
            .then(|| (Arc::clone(keyspace), bucket))
    }

    fn circumstances(&self, leisure: bool) -> Circumstances {
        Circumstances {
            capacity_base: self.capacity_base(self.table_bytes.get()),
            split_ways_max: self.split_ways_max(),
            leisure,
            need: self.space_need(),
        }
    }

    /// What is most pressing in a bucket.
    fn due(&self, bucket: &Arc<Bucket>, circumstances: &Circumstances) -> Result<Option<Due>> {
        let Circumstances {
            capacity_base,
            split_ways_max,
            leisure,
            need,
        } = *circumstances;
        let state = bucket.state.load_full();
        let levels = &state.levels;
        let options = &self.options;
        if levels.depth() == 0 {
            return Ok(None);
        }
        let width = bucket.sizing.width(options);
        let count = |level: usize| levels.level(level).len();
        let is_full = |level: usize| count(level) >= width.most(level);
        let fullest = (0..levels.depth())
            .filter(|level| {
                // What is in order is moved, not written again.
                count(*level) >= width.least(*level)
                    || count(*level) >= options.sublevels_min
                        && Run::in_order(levels.level(*level)).is_some()
            })
            .max_by_key(|level| (is_full(*level), width.scaled(*level, count(*level))));
        let is_full = fullest.is_some_and(is_full);
        let runs = levels.runs().count();
        let of_level = |level, urgency| Due {
            job: Job::Compact(Compaction::of_level(bucket, levels, level)),
            claim: Claim {
                urgency,
                reads: bucket.reads.of_level(level),
                sublevels: width.scaled(level, count(level)),
            },
        };
        let of_bucket = |urgency, job| Due {
            job,
            claim: Claim {
                urgency,
                reads: bucket.reads.of_bucket(),
                sublevels: runs,
            },
        };
        let compact = |purpose| Job::Compact(Compaction::of_bucket(bucket, levels, purpose));
        let demanded = runs > 0 && bucket.demand.is_asked();
        if need > Need::None
            && !demanded
            && let Some(share) = self.worthwhile_garbage(bucket, &state)?
        {
            let claim = Claim {
                urgency: match is_full {
                    true => Urgency::Full,
                    false => Urgency::Garbage,
                },
                reads: 0,
                sublevels: usize::try_from(share).unwrap_or(usize::MAX),
            };
            let job = Job::Compact(Compaction::rewriting(bucket, levels, Purpose::Compaction));
            return Ok(Some(Due { job, claim }));
        }
        if let Some(level) = fullest.filter(|_| is_full && !demanded) {
            return Ok(Some(of_level(level, Urgency::Full)));
        }
        let bytes = Wip::bytes(bucket, &state)?;
        let capacity = varied(capacity_base, bucket.id);
        if bytes >= capacity && split_ways_max >= 2 && bucket.may_split(&state) {
            let live = Wip::live_bytes(&state, bytes);
            if live >= capacity / 2 {
                let ways = split_ways(options, live, capacity).clamp(2, split_ways_max);
                return Ok(Some(of_bucket(Urgency::Split, Job::Split { ways })));
            }
        }
        if demanded {
            return Ok(Some(of_bucket(Urgency::Demanded, Job::OnDemand)));
        }
        if self.is_overdue(garbage_since(levels)) {
            let job = Job::Compact(Compaction::rewriting(bucket, levels, Purpose::Compaction));
            return Ok(Some(of_bucket(Urgency::Aged, job)));
        }
        if self.deleted_bytes(bucket, &state)? > bytes / 2 {
            let job = compact(Purpose::Compaction);
            return Ok(Some(of_bucket(Urgency::Hidden, job)));
        }
        if runs > 1 && shares_overlapping_tables(bucket, &state) {
            return Ok(Some(of_bucket(Urgency::Shared, compact(Purpose::Split))));
        }
        let Some(level) = fullest else {
            let job = at_leisure(bucket, &state)?.filter(|_| leisure);
            return Ok(job.map(|job| of_bucket(Urgency::Leisure, Job::Compact(job))));
        };
        if has_young(bucket, state.levels.runs(), 2)? && Wip::live_bytes(&state, bytes) <= bytes / 2
        {
            return Ok(Some(of_bucket(
                Urgency::Hidden,
                compact(Purpose::Compaction),
            )));
        }
        Ok(Some(of_level(level, Urgency::Level)))
    }

    /// The bytes of tables that hold nothing in the bucket but what range deletes hide from all
    /// readers: a compaction drops them without reading them. Only range deletes that are in tables
    /// count, as there.
    fn deleted_bytes(&self, bucket: &Bucket, state: &BucketState) -> Result<u64> {
        if state.deletes.is_empty() {
            return Ok(0);
        }
        let protected = self.snapshots.protect(|| self.visible());
        let deletes = range_deletes_of(state.levels.runs(), &protected)?;
        let deletes = Deletes::of([&deletes.within(bucket.range())], &protected);
        let mut bytes = 0;
        for file in state.levels.files() {
            let meta = &file.meta;
            let hidden = Hidden::from_all(meta.min_seq, meta.max_seq, &protected);
            let first = bucket.lower().max(&meta.smallest);
            if let Some(gap) = deletes.gap(first, hidden)
                && (gap.upper.as_deref() == bucket.upper()
                    || gap
                        .upper
                        .as_deref()
                        .is_none_or(|upper| *meta.largest < *upper))
            {
                bytes += slice_bytes(bucket, file)?;
            }
        }
        Ok(bytes)
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

    /// The size at which buckets split in a store whose tables have `total` bytes, before it is
    /// varied.
    pub(in super::super) fn capacity_base(&self, total: u64) -> u64 {
        capacity_base(&self.options, total)
    }
}

/// Into how many buckets one with so many live bytes is split, at most.
pub(in super::super) fn split_ways(options: &Options, live: u64, capacity: u64) -> usize {
    let ways = options.split_ways as u64 * live / capacity;
    usize::try_from(ways).map_or(options.split_ways, |ways| ways.min(options.split_ways))
}

/// How many buckets there may be where active MemTables may use so much memory.
pub(in super::super) fn buckets_max(options: &Options, active_bytes_max: u64) -> u64 {
    let least = MEMTABLE_BYTES_MIN.min(options.bucket_bytes / 32).max(1);
    active_bytes_max / least
}

/// The size at which buckets split in a store whose tables have `total` bytes, before it is varied.
pub(in super::super) fn capacity_base(options: &Options, total: u64) -> u64 {
    let share = MEMTABLE_SHARE_BYTES.min(options.bucket_bytes / 32).max(1);
    let buckets_max = (options.memtable_budget() / share).max(1);
    let grown = total.saturating_mul(2) / buckets_max;
    let most = options.bucket_bytes.saturating_mul(CAPACITY_GROWTH_MAX);
    grown.clamp(options.bucket_bytes, most)
}

/// A capacity between three and five quarters of `base`, fixed for a bucket.
pub(in super::super) fn varied(base: u64, bucket: u64) -> u64 {
    // The multiplier is 2^64 divided by the golden ratio: neighbouring numbers spread evenly.
    let spread = bucket.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    (base / 4 * 3).saturating_add(base / 512 * spread)
}

/// Whether two runs that reach beyond the bucket overlap inside it.
fn shares_overlapping_tables(bucket: &Bucket, state: &BucketState) -> bool {
    let slices: Vec<Run> = state
        .levels
        .runs()
        .filter(|run| {
            run.tables
                .iter()
                .any(|file| !bucket.contains(&file.meta.smallest, &file.meta.largest))
        })
        .cloned()
        .collect();
    slices.len() > 1 && Run::in_order(&slices).is_none()
}

/// Whether a bucket was read as often since its last full compaction as it has entries, a scan
/// counted as several gets.
fn is_much_read(bucket: &Bucket, state: &BucketState) -> bool {
    let before = bucket.settled.lock().map_or(0, |settled| settled.reads);
    let entries: u64 = state.levels.files().map(|file| file.meta.entries).sum();
    bucket.reads.in_gets().saturating_sub(before) >= entries
}

/// What the reads to come gain by, in a bucket to which hardly anybody writes.
fn at_leisure(bucket: &Arc<Bucket>, state: &BucketState) -> Result<Option<Compaction>> {
    let levels = &state.levels;
    let part = if is_much_read(bucket, state) { 8 } else { 2 };
    if levels.runs().nth(1).is_some() && has_young(bucket, levels.runs(), part)? {
        return Ok(Some(Compaction::at_leisure(bucket, levels)));
    }
    let mut filled = (0..levels.depth())
        .rev()
        .filter(|level| !levels.level(*level).is_empty());
    let (Some(_), Some(last)) = (filled.next(), filled.next()) else {
        return Ok(None);
    };
    let young = || (0..=last).flat_map(|level| levels.level(level));
    let entries = |run: &Run| run.tables.iter().map(|file| file.meta.entries).sum::<u64>();
    let worth = young().nth(1).is_some()
        && bucket.reads.of_level(last) >= young().map(entries).sum()
        && has_young(bucket, young(), 8)?;
    Ok(worth.then(|| Compaction::of_young(bucket, levels, last)))
}

/// Whether what came after the largest of some runs is one part in `part` of that run, or more.
/// Then to make them one writes at most `part + 1` bytes per byte that came; and versions that a
/// snapshot protects are not rewritten again and again. Of tables that reach beyond the bucket the
/// part in its range counts.
fn has_young<'r>(bucket: &Bucket, runs: impl Iterator<Item = &'r Run>, part: u64) -> Result<bool> {
    let (mut all, mut largest) = (0, 0);
    for run in runs {
        let bytes = run_bytes(bucket, run)?;
        all += bytes;
        largest = bytes.max(largest);
    }
    Ok(all - largest >= largest / part)
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::engine::ssd::Lifecycle;

    /// Makes a run of level 0 in the only bucket of each keyspace. Nothing is written after the
    /// last flush, so no other job is done.
    fn add_runs(engine: &Wip, keyspaces: &[&Arc<Keyspace>]) {
        for keyspace in keyspaces {
            engine.put_for_tests(keyspace, b"key", b"value");
        }
        for keyspace in keyspaces {
            engine.flush_for_tests(keyspace);
        }
    }

    #[test]
    fn the_bucket_that_is_read_comes_first_unless_reads_weigh_nothing() {
        for (read_weight, expected) in [(10, "read"), (0, "written")] {
            let options = Options::default()
                .background_threads(0)
                .read_weight(read_weight);
            let disk = Disk::simulated(&SimDisk::new());
            let engine = Wip::open(disk, options).unwrap();
            let written = engine.create_keyspace("written").unwrap();
            let read = engine.create_keyspace("read").unwrap();
            for _ in 0..engine.options.sublevels_min {
                assert!(engine.most_pressing(false).unwrap().is_none());
                add_runs(&engine, &[&written, &read]);
            }
            assert!(engine.get(&read, b"key", None).unwrap().is_some());
            let (keyspace, bucket) = engine.most_pressing(false).unwrap().unwrap();
            assert_eq!(keyspace.name, expected);
            assert!(bucket.reserve());
            assert!(engine.serve(&keyspace, &bucket).unwrap());
            assert_eq!(bucket.reads.of_level(0), 0);
            engine.close().unwrap();
        }
    }

    /// What says that buckets are never to be split ended the process.
    #[test]
    fn buckets_may_be_as_large_as_can_be() {
        for bucket_bytes in [1 << 58, 1 << 60, u64::MAX] {
            let options = Options::default()
                .background_threads(0)
                .bucket_bytes(bucket_bytes);
            let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
            let keyspace = engine.create_keyspace("keyspace").unwrap();
            engine.put_for_tests(&keyspace, b"key", b"value");
            engine.flush().unwrap();
            let found = engine.get(&keyspace, b"key", None).unwrap();
            assert_eq!(found.as_deref(), Some(&b"value"[..]));
            let base = engine.capacity_base(u64::MAX);
            assert!(base >= bucket_bytes);
            assert!((0..100).all(|bucket| varied(base, bucket) >= base / 4 * 3));
            engine.close().unwrap();
        }
    }

    #[test]
    fn what_is_much_read_becomes_one_run_sooner() {
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let put = |keys| engine.put_run_for_tests(&keyspace, keys, 7);
        put(0..1000);
        put(1000..1250);
        let due = || engine.most_pressing(true).unwrap();
        assert!(due().is_none(), "a quarter is young");
        let read = |count: u32| {
            (0..count)
                .for_each(|key| drop(engine.get(&keyspace, &key.swap_bytes().to_le_bytes(), None)));
        };
        read(1249);
        assert!(due().is_none(), "not yet read as often as it has entries");
        read(1);
        assert!(
            engine.most_pressing(false).unwrap().is_none(),
            "while it is written"
        );
        let (_, bucket) = due().expect("much read");
        assert!(bucket.reserve());
        // For a job, somebody waits for the store to rest.
        engine.rest_for_tests(|| {
            assert!(engine.serve(&keyspace, &bucket).unwrap());
        });
        bucket.release();
        assert_eq!(bucket.state.load().levels.runs().count(), 1);
        // Another young run must wait for other reads.
        put(0..250);
        assert!(due().is_none());
        // 1250 entries of the first compaction, of which none is gone, and these 250.
        (0..187).for_each(|_| engine.count_scan(&bucket));
        assert!(due().is_none(), "187 scans are less than 1500 gets");
        engine.count_scan(&bucket);
        assert!(due().is_some());
        engine.close().unwrap();
    }

    #[test]
    fn what_is_young_and_read_becomes_one_run_beside_the_oldest() {
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let put = |keys, value| engine.put_run_for_tests(&keyspace, keys, value);
        let key = |number: u32| number.swap_bytes().to_le_bytes();
        let read = |count: u32| {
            (0..count).for_each(|number| drop(engine.get(&keyspace, &key(number), None)));
        };
        let due = || engine.most_pressing(true).unwrap();
        let serve = || {
            let (_, bucket) = due().expect("something is due");
            assert!(bucket.reserve());
            engine.rest_for_tests(|| assert!(engine.serve(&keyspace, &bucket).unwrap()));
            bucket.release();
        };
        let shape = |expected: [usize; 3]| {
            let router = keyspace.router.load();
            let state = router.buckets()[0].state.load();
            let found = [0, 1, 2].map(|level| state.levels.level(level).len());
            assert_eq!(found, expected);
        };
        put(0..1000, 1);
        put(1000..2000, 1);
        serve();
        shape([0, 0, 1]);

        put(0..100, 2);
        put(50..150, 3);
        shape([2, 0, 1]);
        assert!(
            due().is_none(),
            "200 of 2200 entries are young, and hardly read"
        );
        read(199);
        assert!(due().is_none(), "not yet read as often as they are entries");
        read(1);
        assert!(
            engine.most_pressing(false).unwrap().is_none(),
            "while it is written"
        );
        serve();
        shape([0, 1, 1]);
        assert!(due().is_none(), "one run beside the oldest");
        for number in 0..2000 {
            let value = engine.get(&keyspace, &key(number), None).unwrap().unwrap();
            let newest = match number {
                0..50 => 2,
                50..150 => 3,
                _ => 1,
            };
            assert_eq!(*value, [newest; 100]);
        }
        // Less than an eighth of the young run is younger than it.
        put(0..10, 4);
        read(300);
        assert!(
            due().is_none(),
            "it would write 16 bytes per byte that came"
        );
        put(10..20, 4);
        assert!(due().is_some());
        engine.close().unwrap();
    }

    /// Beside the whole of a table that a bucket shares with its siblings, young runs looked small,
    /// however large they were beside the bucket's part of it: they stayed at rest.
    #[test]
    fn young_runs_are_compared_with_the_part_of_a_shared_table_that_is_the_bucket_s() {
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let [shared, own] = ["shared", "own"].map(|name| engine.create_keyspace(name).unwrap());
        engine.put_run_for_tests(&own, 0..700, 2);
        engine.put_run_for_tests(&shared, 0..8000, 1);
        let parent = Arc::clone(&shared.router.load().buckets()[0]);
        assert!(parent.reserve());
        let split = Job::Split { ways: 8 };
        engine.rest_for_tests(|| engine.carry_out(&shared, &parent, split).unwrap());
        let first = |keyspace: &Keyspace| {
            let bucket = Arc::clone(&keyspace.router.load().buckets()[0]);
            let run = bucket.state.load().levels.runs().next().unwrap().clone();
            (bucket, run)
        };
        let ((child, old), (_, young)) = (first(&shared), first(&own));
        let bytes = |run| run_bytes(&child, run).unwrap();
        assert!(
            8 * bytes(&old) < 9 * old.tables[0].meta.file_bytes,
            "a slice"
        );
        assert!((2 * bytes(&old) / 3..bytes(&old)).contains(&bytes(&young)));
        for runs in [[&old, &young], [&young, &old]] {
            assert!(has_young(&child, runs.into_iter(), 2).unwrap());
            assert!(!has_young(&child, runs.into_iter(), 1).unwrap());
        }
        engine.close().unwrap();
    }

    #[test]
    fn what_is_flushed_while_young_runs_become_one_stays_newer() {
        let sim = SimDisk::new();
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&sim), options.clone()).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        engine.put_run_for_tests(&keyspace, 0..1000, 1);
        let bucket = Arc::clone(&keyspace.router.load().buckets()[0]);
        let job = |state: &BucketState| Compaction::at_leisure(&bucket, &state.levels);
        engine.rest_for_tests(|| engine.compact(&job(&bucket.state.load())).unwrap());
        engine.put_run_for_tests(&keyspace, 0..100, 2);
        engine.put_run_for_tests(&keyspace, 0..100, 3);
        let young = Compaction::of_young(&bucket, &bucket.state.load().levels, 0);
        engine.put_run_for_tests(&keyspace, 0..100, 4);
        engine.rest_for_tests(|| engine.compact(&young).unwrap());

        let key = 7_u32.swap_bytes().to_le_bytes();
        let found = engine.get(&keyspace, &key, None).unwrap();
        assert_eq!(*found.unwrap(), [4; 100]);
        engine.close().unwrap();
        let engine = Wip::open(Disk::simulated(&sim), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let found = engine.get(&keyspace, &key, None).unwrap();
        assert_eq!(*found.unwrap(), [4; 100]);
        engine.close().unwrap();
    }

    /// A job took the runs before it took the mark. What was flushed, and asked for, between the
    /// two was not merged, and who had asked was told that it was.
    #[test]
    fn a_compaction_on_demand_merges_all_that_was_there_when_it_was_asked_for() {
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let bucket = Arc::clone(&keyspace.router.load().buckets()[0]);
        assert!(bucket.reserve());
        engine.put_run_for_tests(&keyspace, 0..100, 1);
        bucket.demand.ask();
        let due = engine.due(&bucket, &engine.circumstances(false)).unwrap();
        let job = due.expect("somebody asks for it").job;
        assert!(matches!(job, Job::OnDemand));
        engine.put_run_for_tests(&keyspace, 50..150, 2);
        bucket.demand.ask();
        engine.carry_out(&keyspace, &bucket, job).unwrap();
        let runs = bucket.state.load().levels.runs().count();
        assert!(bucket.demand.is_open() || runs == 1, "{runs} runs");
        bucket.release();
        engine.close().unwrap();
    }
}
