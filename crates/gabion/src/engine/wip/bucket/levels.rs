//! The levels of a bucket: runs of tables. The invariants are those of the bucket.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::Bucket;
use super::file::TableFile;
use super::prefix_index::PrefixIndex;
use crate::Slice;
use crate::engine::wip::policy::bucket_shape::BucketShape;
use crate::types::Seq;

/// The runs of a bucket.
#[derive(Clone, Default)]
pub(crate) struct Levels {
    /// Runs by level, newest first (I2).
    levels: Vec<Vec<Run>>,
    /// What they are in numbers, once that is measured.
    pub(crate) shape: OnceLock<BucketShape>,
    /// Their largest sequence number, once somebody has asked for it.
    max_seq: OnceLock<Seq>,
}

impl Levels {
    /// Runs of one level, newest first; none for a level that does not exist.
    pub(crate) fn level(&self, level: usize) -> &[Run] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    /// Number of levels, the empty ones included.
    pub(crate) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// All runs, newest first.
    #[inline]
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.levels.iter().flatten()
    }

    /// The largest sequence number in them; 0 for none.
    pub(crate) fn max_seq(&self) -> Seq {
        let newest = || self.runs().map(|run| run.seqs().1).max();
        *self.max_seq.get_or_init(|| newest().unwrap_or(0))
    }

    /// All table files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.runs().flat_map(|run| run.tables.iter())
    }

    /// Adds a run as the newest of its level.
    pub(crate) fn add(&mut self, level: usize, run: Run) {
        while self.levels.len() <= level {
            self.levels.push(Vec::new());
        }
        self.levels[level].insert(0, run);
        self.shape.take();
        self.max_seq.take();
    }

    /// Removes the runs with these numbers from a level.
    pub(crate) fn remove(&mut self, level: usize, numbers: &[u64]) {
        if let Some(runs) = self.levels.get_mut(level) {
            runs.retain(|run| !numbers.contains(&run.number));
        }
        self.shape.take();
        self.max_seq.take();
    }

    /// The runs, as a bucket with another range sees them: tables that the range does not touch
    /// are left out.
    pub(crate) fn within(&self, bucket: &Bucket) -> Levels {
        let slice = |run: &Run| {
            let tables: Vec<_> = run
                .tables
                .iter()
                .filter(|file| file.concerns(bucket))
                .cloned()
                .collect();
            (!tables.is_empty()).then(|| Run::new(run.number, tables))
        };
        let levels = self
            .levels
            .iter()
            .map(|runs| runs.iter().filter_map(slice).collect());
        Levels {
            levels: levels.collect(),
            shape: OnceLock::new(),
            max_seq: OnceLock::new(),
        }
    }
}

/// A sublevel: tables that do not overlap, ordered by their keys (I3).
#[derive(Clone)]
pub(crate) struct Run {
    /// Orders the runs of a level: a higher number is newer.
    pub(crate) number: u64,
    /// The tables.
    pub(crate) tables: Arc<RunTables>,
}

/// The tables of a run. Which one has a key is found without touching any other.
pub(crate) struct RunTables {
    files: Box<[Arc<TableFile>]>,
    largest: PrefixIndex,
}

impl RunTables {
    /// The position of the first table whose largest key is not below `key`: the one that may hold
    /// it.
    #[inline]
    pub(crate) fn position_of(&self, key: &[u8]) -> usize {
        self.largest
            .count_below(key, |at| &self.files[at].meta.largest)
    }
}

impl Deref for RunTables {
    type Target = [Arc<TableFile>];

    #[inline]
    fn deref(&self) -> &[Arc<TableFile>] {
        &self.files
    }
}

impl Run {
    /// The run of that number; its tables are ordered and do not overlap.
    pub(crate) fn new(number: u64, tables: Vec<Arc<TableFile>>) -> Run {
        let keys: Vec<&Slice> = tables.iter().map(|file| &file.meta.largest).collect();
        let largest = PrefixIndex::new(&keys);
        let files = tables.into();
        Run {
            number,
            tables: Arc::new(RunTables { files, largest }),
        }
    }

    /// The table that may hold `key`.
    #[inline]
    pub(crate) fn table_for(&self, key: &[u8]) -> Option<&Arc<TableFile>> {
        self.tables.get(self.tables.position_of(key))
    }

    /// The smallest and the largest sequence number in the run's tables.
    pub(crate) fn seqs(&self) -> (Seq, Seq) {
        let metas = || self.tables.iter().map(|file| &file.meta);
        let oldest = metas().map(|meta| meta.min_seq).min();
        let newest = metas().map(|meta| meta.max_seq).max();
        (oldest.unwrap_or(0), newest.unwrap_or(0))
    }

    /// The smallest key of the run's tables.
    pub(crate) fn smallest(&self) -> &[u8] {
        self.tables.first().map_or(&[], |file| &file.meta.smallest)
    }

    /// The largest key of the run's tables.
    pub(crate) fn largest(&self) -> &[u8] {
        self.tables.last().map_or(&[], |file| &file.meta.largest)
    }

    /// The run's entries, of shared tables all.
    pub(crate) fn entries(&self) -> u64 {
        self.tables.iter().map(|file| file.meta.entries).sum()
    }

    /// Orders `runs` by their keys when no two of them overlap.
    pub(crate) fn in_order(runs: &[Run]) -> Option<Vec<&Run>> {
        let mut ordered: Vec<&Run> = runs.iter().collect();
        ordered.sort_by(|a, b| a.smallest().cmp(b.smallest()));
        let disjoint = ordered
            .windows(2)
            .all(|pair| pair[0].largest() < pair[1].smallest());
        disjoint.then_some(ordered)
    }
}
