//! The bound on amplification holds whatever the ratio of the data to the memory of MemTables.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gabion_media::seeded::{SeededRng, setting};
use gabion_media::{Disk, SimDisk};

use super::bucket_shape::{BucketShape, LevelShape, RunShape};
use super::capacity::{buckets_max, capacity_base};
use super::compaction_picker::{BucketFacts, CompactionScope, JobKind, PickedJob, StoreFacts, due};
use super::manual_mark::ManualCompactionMark;
use super::read_counter::ReadCounter;
use super::run_limits::RunLimitEstimate;
use super::space::{SpacePressure, SpaceTotals, SpaceUsage};
use super::write_controller::WriteController;
use crate::engine::ssd::Lifecycle;
use crate::engine::wip::Wip;
use crate::types::INITIAL_LEVELS;
use crate::{Options, Tuning};

/// The paper's figure, rounded, with three levels and splits into eight.
const BOUND: f64 = 4.15;

#[expect(clippy::cast_precision_loss, reason = "a ratio of sums")]
fn ratio(written: u64, user: u64) -> f64 {
    written as f64 / user as f64
}

/// A bucket of the model: the bytes of its runs, and which part of all keys it has.
struct Part {
    id: u64,
    share: f64,
    levels: [Vec<u64>; INITIAL_LEVELS],
    sizing: RunLimitEstimate,
    /// Its runs are slices of tables that its siblings have slices of, too.
    shares_tables: bool,
    /// How much of all that is written brings its next flush.
    flushed_at: u64,
}

impl Part {
    fn bytes(&self) -> u64 {
        self.levels.iter().flatten().sum()
    }

    fn runs(&self) -> usize {
        self.levels.iter().map(Vec::len).sum()
    }

    /// What a bucket is measured to be in which all keys are different.
    fn shape(&self) -> BucketShape {
        let run = |bytes: &u64| RunShape {
            bytes: *bytes,
            ..RunShape::default()
        };
        let level = |runs: &Vec<u64>| LevelShape {
            runs: runs.iter().map(run).collect(),
            in_order: false,
        };
        let bytes = self.bytes();
        BucketShape {
            space: SpaceUsage {
                bytes,
                ..SpaceUsage::default()
            },
            distinct_bytes: bytes,
            levels: self.levels.iter().map(level).collect(),
            garbage_since: None,
            shares_overlapping: self.shares_tables && self.runs() > 1,
        }
    }

    /// Makes all runs of these levels one run; returns its bytes.
    fn compact(&mut self, levels: std::ops::RangeInclusive<usize>, output: usize) -> u64 {
        let bytes = self.levels[levels]
            .iter_mut()
            .flat_map(|runs| runs.drain(..))
            .sum();
        self.levels[output].push(bytes);
        bytes
    }
}

/// A store without data, in which all is done that [`due`] says, while keys that are spread evenly
/// and that are all different fill it.
struct Model {
    options: Options,
    active_bytes_max: u64,
    table_bytes_max: u64,
    parts: Vec<Part>,
    /// Buckets by their next flush.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    user: u64,
    total: u64,
    written: u64,
    runs_max: usize,
}

impl Model {
    fn new(options: Options) -> Model {
        let limits = WriteController::new(&options).limits();
        let first = Part {
            id: 1,
            share: 1.0,
            levels: Default::default(),
            sizing: RunLimitEstimate::default(),
            shares_tables: false,
            flushed_at: 0,
        };
        let mut model = Model {
            options,
            active_bytes_max: limits.active_bytes_max,
            table_bytes_max: limits.table_bytes_max,
            parts: vec![first],
            due: BinaryHeap::new(),
            user: 0,
            total: 0,
            written: 0,
            runs_max: 0,
        };
        model.wait_for_flush(0);
        model
    }

    /// What a flush brings: the largest MemTables go first, so they have between nothing and that.
    fn flush_bytes(&self) -> u64 {
        let even = 2 * self.active_bytes_max / self.parts.len() as u64;
        even.min(self.table_bytes_max)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a model need not be exact"
    )]
    fn wait_for_flush(&mut self, number: usize) {
        let after = self.flush_bytes() as f64 / self.parts[number].share;
        let part = &mut self.parts[number];
        part.flushed_at = self.user + after as u64;
        self.due.push(Reverse((part.flushed_at, number)));
    }

    /// Goes on until so much is written.
    fn fill(&mut self, user: u64) {
        while self.user < user {
            let Reverse((at, number)) = self.due.pop().expect("there is a bucket");
            if self.parts[number].flushed_at != at {
                continue;
            }
            self.user = at;
            let bytes = self.flush_bytes();
            self.parts[number].levels[0].push(bytes);
            self.written += bytes;
            self.total += bytes;
            self.settle(number);
            self.runs_max = self.runs_max.max(self.parts[number].runs());
            self.wait_for_flush(number);
        }
    }

    /// Does in a bucket all that is due.
    fn settle(&mut self, number: usize) {
        while let Some(PickedJob { job, .. }) = self.due(number) {
            match job {
                JobKind::Split { ways } => self.split(number, ways),
                JobKind::Compact(CompactionScope::Level(level)) => {
                    self.compact_level(number, level)
                }
                JobKind::Compact(scope) => {
                    assert_eq!(
                        scope,
                        CompactionScope::Unshare,
                        "nothing else is due while it is filled"
                    );
                    let part = &mut self.parts[number];
                    self.written += part.compact(0..=INITIAL_LEVELS - 1, INITIAL_LEVELS - 1);
                    part.shares_tables = false;
                }
            }
        }
    }

    fn due(&mut self, number: usize) -> Option<PickedJob> {
        let buckets_max = buckets_max(&self.options, self.active_bytes_max);
        let count = self.parts.len() as u64;
        let part = &self.parts[number];
        part.sizing.see(part.bytes(), &part.levels[0]);
        let facts = BucketFacts {
            bucket: part.id,
            shape: &part.shape(),
            width: part.sizing.width(&self.options),
            reads: &ReadCounter::default(),
            demand: &ManualCompactionMark::default(),
            settled: None,
            deleted_bytes: 0,
            expired_bytes: 0,
            may_split: true,
        };
        let circumstances = StoreFacts {
            options: &self.options,
            now: 1,
            leisure: false,
            need: SpacePressure::None,
            totals: SpaceTotals::default(),
            oldest: None,
            expired_by: 0,
            capacity_base: capacity_base(&self.options, self.total),
            split_ways_max: usize::try_from(buckets_max.saturating_sub(count)).unwrap(),
        };
        due(&facts, &circumstances)
    }

    fn compact_level(&mut self, number: usize, level: usize) {
        let output = (level + 1).min(INITIAL_LEVELS - 1);
        self.written += self.parts[number].compact(level..=level, output);
    }

    /// Cuts a bucket: it becomes the first of its children.
    fn split(&mut self, number: usize, ways: usize) {
        let count = self.parts.len();
        let part = &mut self.parts[number];
        #[expect(clippy::cast_precision_loss, reason = "a few ways")]
        let share = part.share / ways as f64;
        let slices = |runs: &Vec<u64>| runs.iter().map(|run| run / ways as u64).collect();
        let levels: [Vec<u64>; INITIAL_LEVELS] = part.levels.each_ref().map(slices);
        let child = |id| Part {
            id,
            share,
            levels: levels.clone(),
            sizing: RunLimitEstimate::of_part(&part.sizing, ways),
            shares_tables: true,
            flushed_at: 0,
        };
        let mut children: Vec<Part> = (1..=ways).map(|at| child((count + at) as u64)).collect();
        *part = children.swap_remove(0);
        self.parts.append(&mut children);
        for number in count..self.parts.len() {
            self.settle(number);
            self.wait_for_flush(number);
        }
    }
}

/// Prints amplification and runs of stores of such sizes; returns the largest amplification.
fn model(memtables: u64, sizes: &[u64]) -> f64 {
    let mut model =
        Model::new(Options::default().tuning(Tuning::default().memtable_budget_bytes(memtables)));
    let mut worst: f64 = 0.0;
    for size in sizes {
        model.fill(*size);
        let found = ratio(model.written, model.user);
        worst = worst.max(found);
        let runs: usize = model.parts.iter().map(Part::runs).sum();
        #[expect(clippy::cast_precision_loss, reason = "an average")]
        let average = runs as f64 / model.parts.len() as f64;
        println!(
            "MemTables {:>5} MiB, data {:>6} GB: {found:.2}, {} buckets, {average:.1} runs each, \
             {} at most",
            memtables >> 20,
            size / 1_000_000_000,
            model.parts.len(),
            model.runs_max,
        );
    }
    worst
}

/// Three levels of eight runs hold 512 flushes. Where a bucket had more, its last level was merged
/// within itself again and again: 8 bytes were written for each of 700 MB beside 4 MiB.
#[test]
fn the_bound_holds_for_tables_of_any_size() {
    const GB: u64 = 1_000_000_000;
    let most = setting("GABION_MODEL_GB", 300) * GB;
    for memtables in [1 << 20, 4 << 20, 64 << 20, 256 << 20, 2 << 30] {
        // More data would have more flushes in a bucket than the most that levels take runs for.
        let sizes: Vec<u64> = [GB, 10 * GB, 100 * GB, 300 * GB, 1_000 * GB, 10_000 * GB]
            .into_iter()
            .filter(|size| *size <= most && *size / memtables < 50_000)
            .collect();
        let worst = model(memtables, &sizes);
        assert!(worst <= BOUND, "{worst:.2} beside {memtables}");
    }
}

/// The same with a store: so many times what a MemTable holds.
#[test]
fn the_bound_holds_at_any_ratio_of_data_to_memtables() {
    let flushes = setting("GABION_BOUND_FLUSHES", 4096);
    let options = Options::default()
        .background_threads(0)
        .tuning(
            Tuning::default()
                .memtable_budget_bytes(128 << 10)
                .bucket_bytes(1 << 20),
        )
        .log_bytes_max(1 << 20);
    let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
    let keyspace = engine.create_keyspace("keyspace").unwrap();
    let mut random = SeededRng::new(1);
    for ratio_of in [16, 64, 256, 1024, 4096] {
        if ratio_of > flushes {
            break;
        }
        while engine.stats().flushes < ratio_of {
            engine.put_for_tests(&keyspace, &random.word().to_le_bytes(), &[7; 100]);
        }
        let stats = engine.stats();
        let runs: Vec<usize> = engine
            .buckets()
            .iter()
            .map(|(_, bucket)| bucket.state.load().levels.runs().count())
            .collect();
        let found = stats.write_amplification_without_log;
        println!("{ratio_of} flushes: {found:.2}, runs of the buckets {runs:?}");
        let told = stats.write_amplification_bound.expect("it holds");
        assert!(
            found <= told && told <= BOUND,
            "{found:.2} at {ratio_of} flushes"
        );
    }
    engine.close().unwrap();
}
