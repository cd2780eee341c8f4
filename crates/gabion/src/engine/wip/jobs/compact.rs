//! Compaction: runs of a bucket become one run.
//!
//! # Idea (paper, sections 2.2.2 and 2.3.1)
//! A level compaction merges all runs of level i into one new run of level i+1 and rewrites nothing
//! there. A full compaction merges everything a bucket has into its last level: after a split, to
//! turn the slices that the bucket shares with its siblings into tables of its own, and in a bucket
//! that is full of hidden versions, to give their space back.
//!
//! Runs that do not overlap are moved, not rewritten: they become one run of several tables. So
//! ascending keys are written once. But neighbours that are both small become one table, so that a
//! run has no more tables than about two for each [`SMALL_BYTES_MAX`], however little each flush
//! brought.
//!
//! Tables of which all has expired are dropped without being read, where nothing older in the
//! bucket could come to light.
//!
//! # Crash safety
//! The output is synced before one group of edits exchanges the inputs for it. Files that no bucket
//! refers to afterwards are deleted when their last reader is gone, or at the next open.
//!
//! # Concurrency
//! The bucket is reserved, so its runs only change by flushes and ingests, which add to level 0 and
//! are newer, for each key, than all inputs. A drop of the keyspace ends the compaction.

use std::ops::RangeInclusive;
use std::sync::Arc;

use gabion_media::Purpose;

use super::version_gc::VersionGc;
use crate::Result;
use crate::engine::range_deletes::{HiddenByRangeDelete, RangeDeletes, RangeTombstones};
use crate::engine::snapshots::ProtectedSeqs;
use crate::engine::ssd::rate_limiter::IoPriority;
use crate::engine::wip::Wip;
use crate::engine::wip::bucket::age::compacted_age;
use crate::engine::wip::bucket::file::{TableFile, file_meta};
use crate::engine::wip::bucket::{Bucket, BucketState, Levels, Run};
use crate::engine::wip::manifest::{TableAge, VersionEdit};
use crate::engine::wip::policy::space::LastFullCompaction;
use crate::engine::wip::readpath::cursor::ReadPattern;
use crate::engine::wip::readpath::merge::{MergingCursor, run_source};
use crate::engine::wip::retire_all;
use crate::engine::wip::table::TableMeta;
use crate::expiry::UnixMillis;
use crate::types::INITIAL_LEVELS;
use crate::types::Seq;

/// Tables below this size are small, unless buckets are.
const SMALL_BYTES_MAX: u64 = 1 << 20;

/// The part of a bucket's capacity from which on a table is not small: one in so many bytes.
const SMALL_PARTS: u64 = 64;

/// A table that a compaction has written.
type Written = (TableMeta, TableAge);

/// Runs of one bucket that become one run.
pub(in super::super) struct Compaction {
    pub(in super::super) bucket: Arc<Bucket>,
    /// The inputs with their levels, newest first.
    inputs: Vec<(usize, Run)>,
    output_level: usize,
    purpose: Purpose,
    /// Nothing older than the inputs lies in the bucket.
    bottom: bool,
    /// The inputs are all runs of the bucket.
    whole: bool,
    /// Inputs that do not overlap are rewritten too, so that they lose what nobody needs.
    rewrites: bool,
    /// It is done because hardly anybody writes, for the reads to come.
    at_leisure: bool,
}

impl Compaction {
    /// All runs of a level into one of the next; the last level's into one of its own.
    pub(in super::super) fn of_level(
        bucket: &Arc<Bucket>,
        levels: &Levels,
        level: usize,
    ) -> Compaction {
        let inputs = runs_of(levels, level..=level);
        let output_level = (level + 1).min(INITIAL_LEVELS - 1);
        let bottom = (level + 1..levels.depth()).all(|below| levels.level(below).is_empty());
        let bucket = Arc::clone(bucket);
        Compaction {
            bucket,
            inputs,
            output_level,
            purpose: Purpose::Compaction,
            bottom,
            whole: false,
            rewrites: false,
            at_leisure: false,
        }
    }

    /// Everything into one run of the last level.
    pub(in super::super) fn of_bucket(
        bucket: &Arc<Bucket>,
        levels: &Levels,
        purpose: Purpose,
    ) -> Compaction {
        Compaction {
            bucket: Arc::clone(bucket),
            inputs: runs_of(levels, 0..=INITIAL_LEVELS - 1),
            output_level: INITIAL_LEVELS - 1,
            purpose,
            bottom: true,
            whole: true,
            rewrites: false,
            at_leisure: false,
        }
    }

    /// The same, as it is done at leisure.
    pub(in super::super) fn at_leisure(bucket: &Arc<Bucket>, levels: &Levels) -> Compaction {
        Compaction {
            at_leisure: true,
            ..Compaction::of_bucket(bucket, levels, Purpose::Compaction)
        }
    }

    /// All runs down to a level, with older ones below it, into one of that level, or of the next
    /// if it is the first: the first has the runs that are flushed meanwhile, which are newer. As
    /// it is done at leisure.
    pub(in super::super) fn compact_young_runs(
        bucket: &Arc<Bucket>,
        levels: &Levels,
        last: usize,
    ) -> Compaction {
        Compaction {
            bucket: Arc::clone(bucket),
            inputs: runs_of(levels, 0..=last),
            output_level: last.max(1),
            purpose: Purpose::Compaction,
            bottom: false,
            whole: false,
            rewrites: false,
            at_leisure: true,
        }
    }

    /// Everything, for a bucket that must lose what nobody needs: nothing is moved as it is.
    pub(in super::super) fn rewriting(
        bucket: &Arc<Bucket>,
        levels: &Levels,
        purpose: Purpose,
    ) -> Compaction {
        Compaction {
            rewrites: true,
            ..Compaction::of_bucket(bucket, levels, purpose)
        }
    }
}

/// The runs of some levels, each with its level, newest first.
fn runs_of(levels: &Levels, among: RangeInclusive<usize>) -> Vec<(usize, Run)> {
    let of_level = |level| {
        levels
            .level(level)
            .iter()
            .map(move |run| (level, run.clone()))
    };
    among.flat_map(of_level).collect()
}

impl Wip {
    /// Carries out a compaction of a bucket that the caller has reserved.
    pub(in super::super) fn compact(&self, job: &Compaction) -> Result<()> {
        let runs: Vec<Run> = job.inputs.iter().map(|(_, run)| run.clone()).collect();
        let oldest = self.snapshots.oldest();
        let mut files = runs.iter().flat_map(|run| run.tables.iter());
        let deletes = files.any(|file| file.meta.range_deletes > 0);
        let number = match Run::in_order(&runs).filter(|_| !job.rewrites && !deletes) {
            Some(ordered) => {
                let tables = ordered.iter().flat_map(|run| run.tables.iter().cloned());
                let tables: Vec<_> = tables.collect();
                let (moved, written) = self.gather(job, &tables)?;
                let coalesced_tables = tables.len() - moved.len();
                let number = self.install_compaction(job, moved, written)?;
                self.counters.coalesced_tables.add(coalesced_tables as u64);
                number
            }
            None => {
                let count = |runs: &[Run]| runs.iter().map(|run| run.tables.len()).sum::<usize>();
                let all = count(&runs);
                let left = match job.whole {
                    true => without_expired(runs, self.horizon()),
                    false => runs,
                };
                let unread = all - count(&left);
                let written = self.merge(job, &left)?.into_iter().collect();
                let number = self.install_compaction(job, Vec::new(), written)?;
                self.counters.expired_tables_dropped.add(unread as u64);
                number
            }
        };
        if job.whole {
            self.settle(&job.bucket, number, oldest);
        }
        self.counters.compactions.add(1);
        Ok(())
    }

    /// Notes that a full compaction of a bucket, which began when `oldest` was the oldest
    /// snapshot, left this run.
    fn settle(&self, bucket: &Arc<Bucket>, run: u64, oldest: Option<Seq>) {
        let reads = bucket.reads.in_gets();
        *bucket.settled.lock() = Some(LastFullCompaction { run, oldest, reads });
        self.touch(bucket);
    }

    /// Of tables in order that do not overlap: those that stay as they are, and what was made of
    /// neighbours that are small.
    fn gather(
        &self,
        job: &Compaction,
        tables: &[Arc<TableFile>],
    ) -> Result<(Vec<Arc<TableFile>>, Vec<Written>)> {
        let small_max = SMALL_BYTES_MAX.min(self.options.tuning.bucket_bytes / SMALL_PARTS);
        let is_small = |file: &TableFile| file.meta.file_bytes < small_max;
        let (mut moved, mut written) = (Vec::new(), Vec::new());
        for neighbours in tables.chunk_by(|a, b| is_small(a) && is_small(b)) {
            if let [alone] = neighbours {
                moved.push(Arc::clone(alone));
                continue;
            }
            match self.merge(job, &[Run::new(0, neighbours.to_vec())]) {
                Ok(output) => written.extend(output),
                Err(error) => {
                    written
                        .iter()
                        .for_each(|(meta, _)| self.remove_unnamed(meta.file));
                    return Err(error);
                }
            }
        }
        Ok((moved, written))
    }

    /// Merges the runs into a new table; `None` when nothing of them is left.
    fn merge(&self, job: &Compaction, runs: &[Run]) -> Result<Option<Written>> {
        let protected = self.snapshots.protect(|| self.read_point());
        let sources = runs
            .iter()
            .map(|run| run_source(&job.bucket, run, ReadPattern::Sequential));
        let mut merge = MergingCursor::new(Arc::clone(&job.bucket), sources);
        let deletes = range_deletes_of(runs, &protected)?;
        let deletes = deletes.within(job.bucket.range());
        if !deletes.is_empty() {
            let hidden = runs.iter().map(|run| {
                let (oldest, newest) = run.seqs();
                HiddenByRangeDelete::from_all(oldest, newest, &protected)
            });
            merge.leave_out(RangeDeletes::of([&deletes], &protected), hidden);
        }
        merge.seek(job.bucket.lower(), None)?;
        let output = self.create_table(job.bucket.keyspace, job.purpose, self.class_of(job))?;
        let mut output = output.within(&job.bucket);
        let keyspaces = self.keyspaces.load();
        let keyspace = keyspaces.live(job.bucket.keyspace);
        let operator = keyspace.and_then(|keyspace| keyspace.own.merge_operator());
        let filter = keyspace.and_then(|keyspace| keyspace.own.compaction_filter());
        let retain = VersionGc::new(protected, job.bottom, deletes);
        let mut retain = retain.merging(operator).filtering(filter);
        let mut add = |key: &[u8], seq, kind, value: &[u8]| output.add(key, seq, kind, value);
        while let Some(entry) = merge.current() {
            let (key, seq, kind) = (entry.key(), entry.seq(), entry.kind());
            retain.offer(key, seq, kind, entry.stored(), &mut add)?;
            merge.advance()?;
        }
        retain.finish(&mut add)?;
        if output.entries() == 0 {
            return Ok(None);
        }
        let meta = output.finish()?;
        let named = self.disk.sync_dir();
        named.inspect_err(|_| self.abandon(meta.file))?;
        let age = compacted_age(
            runs,
            job.whole,
            (retain.superseded(), meta.tombstones),
            self.time(),
        );
        Ok(Some((meta, age)))
    }

    /// How urgent a compaction is: one of a level that is full comes before others.
    fn class_of(&self, job: &Compaction) -> IoPriority {
        if job.at_leisure {
            return IoPriority::Leisure;
        }
        let runs_of = |level| job.inputs.iter().filter(|(of, _)| *of == level).count();
        let width = job.bucket.sizing.width(&self.options);
        match (0..INITIAL_LEVELS).any(|level| runs_of(level) >= width.most(level)) {
            true => IoPriority::Urgent,
            false => IoPriority::Usual,
        }
    }

    /// Exchanges the inputs for `moved`, which are tables of theirs, and those that were written;
    /// returns the number of the run.
    fn install_compaction(
        &self,
        job: &Compaction,
        moved: Vec<Arc<TableFile>>,
        written: Vec<Written>,
    ) -> Result<u64> {
        let files: Vec<u64> = written.iter().map(|(meta, _)| meta.file).collect();
        let installed = self.exchange_runs(job, moved, written);
        installed.inspect_err(|_| files.iter().for_each(|file| self.abandon(*file)))
    }

    /// As [`Wip::install_compaction`]; if it fails, what was written stays.
    fn exchange_runs(
        &self,
        job: &Compaction,
        moved: Vec<Arc<TableFile>>,
        written: Vec<Written>,
    ) -> Result<u64> {
        let bucket = &job.bucket;
        let inputs = || job.inputs.iter().flat_map(|(_, run)| run.tables.iter());
        let mut versions = self.versions.lock();
        bucket.check_dropped()?;
        let number = versions.take_file_number();
        let mut edits: Vec<VersionEdit> = inputs()
            .map(|file| VersionEdit::RemoveTable {
                bucket: bucket.id,
                file: file.meta.file,
            })
            .collect();
        edits.extend(self.moment_edit(inputs().any(|file| file.meta.expiries.is_some())));
        let mut tables = moved;
        for (meta, age) in written {
            edits.push(VersionEdit::NewFile {
                file: meta.file,
                meta: file_meta(&meta),
                age,
            });
            let file = TableFile::new(meta, age, &self.disk, &self.lock, &self.cache);
            // Opens a table with range deletes, so that the bucket's index of them can be made.
            file.range_deletes()?;
            let file = Arc::new(file);
            self.fresh.add(&file);
            tables.push(file);
        }
        tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        let level = u8::try_from(job.output_level).expect("there are a few levels");
        for file in &tables {
            let file = file.meta.file;
            edits.push(VersionEdit::AddTable {
                bucket: bucket.id,
                level,
                run: number,
                file,
            });
        }
        let moves = |file: &TableFile| tables.iter().any(|t| t.meta.file == file.meta.file);
        let dropped: Vec<_> = inputs()
            .filter(|file| !moves(file) && versions.is_last_reference(file.meta.file))
            .collect();
        edits.extend(dropped.iter().map(|file| VersionEdit::DropFile {
            file: file.meta.file,
        }));
        edits.push(versions.next_file_edit());
        self.apply(&mut versions, &edits)?;
        self.install_run(job, number, tables);
        retire_all(dropped);
        Ok(number)
    }

    /// Puts tables as one run into the place of the inputs.
    fn install_run(&self, job: &Compaction, number: u64, tables: Vec<Arc<TableFile>>) {
        let bucket = &job.bucket;
        let _install = self.lock_install();
        let state = bucket.state.load();
        let mut levels = Levels::clone(&state.levels);
        for level in 0..INITIAL_LEVELS {
            let numbers: Vec<u64> = job
                .inputs
                .iter()
                .filter(|(of, _)| *of == level)
                .map(|(_, run)| run.number)
                .collect();
            levels.remove(level, &numbers);
        }
        if !tables.is_empty() {
            levels.add(job.output_level, Run::new(number, tables));
        }
        let mut next = BucketState {
            levels: Arc::new(levels),
            ..BucketState::clone(&state)
        };
        if !next.deletes.is_empty() {
            // Should a table not open, the old index is as true as the new one.
            let protected = self.snapshots.protect(|| self.read_point());
            next.deletes = next.index_deletes(&protected).unwrap_or(next.deletes);
        }
        bucket.state.store(Arc::new(next));
        job.inputs
            .iter()
            .for_each(|(level, _)| bucket.reads.compacted(*level));
        if job.at_leisure {
            bucket.reads.compacted(job.output_level);
        }
    }
}

/// All runs of a bucket, newest first, without tables that nobody needs to read: those of which all
/// has expired, if nothing older that stays has keys among theirs.
fn without_expired(runs: Vec<Run>, horizon: UnixMillis) -> Vec<Run> {
    let is_gone = |meta: &TableMeta| {
        meta.range_deletes == 0
            && meta.expiries.is_some_and(|expiries| {
                expiries.entries + meta.tombstones == meta.entries
                    && expiries.have_all_expired_by(horizon)
            })
    };
    let mut left: Vec<Run> = Vec::new();
    for run in runs.into_iter().rev() {
        let covers = |meta: &TableMeta| {
            let mut older = left.iter().flat_map(|run| run.tables.iter());
            older.any(|older| {
                meta.smallest <= older.meta.largest && older.meta.smallest <= meta.largest
            })
        };
        let stays = |file: &&Arc<TableFile>| !is_gone(&file.meta) || covers(&file.meta);
        let tables: Vec<_> = run.tables.iter().filter(stays).cloned().collect();
        if !tables.is_empty() {
            left.push(Run::new(run.number, tables));
        }
    }
    left.reverse();
    left
}

/// The range deletes in the tables of runs.
pub(in super::super) fn range_deletes_of<'r>(
    runs: impl IntoIterator<Item = &'r Run>,
    protected: &ProtectedSeqs,
) -> Result<RangeTombstones> {
    let mut sets = Vec::new();
    for run in runs {
        for file in run.tables.iter() {
            sets.extend(file.range_deletes()?);
        }
    }
    Ok(RangeTombstones::union(sets, protected))
}
