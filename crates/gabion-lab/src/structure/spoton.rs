//! SPTree beside FAST&FAIR, with and without write buffers: what operations read from the media and
//! write to it, what the tree has in DRAM, and how long it takes to find it again.
//!
//! Volumes and times of operations are the model's, behind a cache that is as much smaller than the
//! paper's as the tree is smaller. One thread works where the paper has up to 40. What lies in DRAM
//! costs nothing on the model. The time of a recovery is that of this machine and its DRAM.
//!
//! Source: X. Zhao, dissertation, chapter 4, section 4.5.

use std::sync::Arc;
use std::time::Instant;

use gabion_index::sptree::Options;
use gabion_index::{FastFair, IndexPlan, OrderedIndex, Result, SpTree};
use gabion_media::pmem::model::{Costs, Model};
use gabion_media::pmem::{Pool, PoolOptions};
use parking_lot::Mutex;

use super::medium::{counted, dissertation_model};
use super::{Shown, key_of};
use crate::rows::{Table, column};
use crate::scale::Scale;

/// Pairs that the paper inserts.
pub(super) const ENTRIES: u64 = 120_000_000;
/// Keys of the paper's largest recovery.
const RECOVERED: u64 = 250_000_000;

/// Pairs that a scan asks for. The paper does not say how many its scans do.
const SCANNED: usize = 100;

const PLAN: IndexPlan = IndexPlan {
    capacity: 0,
    seed: Some(1),
};

/// A write buffer for each leaf.
const BUFFERED: Options = Options {
    buffer_bytes: u64::MAX,
};

/// What a tree costs per operation.
struct Volumes {
    title: &'static str,
    phases: [Costs; 4],
    operations: [u64; 4],
}

const PHASES: [&str; 4] = ["insert", "positive read", "negative read", "scan"];

impl Volumes {
    /// Bytes that the media read and wrote per operation of a phase.
    fn total(&self, phase: usize) -> f64 {
        let costs = &self.phases[phase];
        let bytes = costs.bytes_media_read() + costs.bytes_media_written();
        bytes as f64 / self.operations[phase] as f64
    }
}

/// Figures 4.6 and 4.7: volumes and times of operations, and the tree's share of DRAM.
pub(crate) fn volumes(scale: Scale) -> Shown {
    let entries = scale.of(ENTRIES, 2000);
    let about = format!("{entries} pairs; modelled, per operation");
    let columns = [
        column("read", "bytes", 0),
        column("written", "bytes", 0),
        column("total", "bytes", 0),
        column("fences", "", 2),
        column("time", "ns", 0),
    ];
    let mut table = Table::new(about, &["tree", "operation"], columns).named("volumes");
    let fair = measure(
        "FAST&FAIR",
        entries,
        FastFair::<29>::pool_options(),
        FastFair::<29>::create,
    )?;
    let (plain, plain_dram) = measure_sptree("SPTree", entries, Options::default())?;
    let (buffered, buffered_dram) = measure_sptree("SPTree with write buffers", entries, BUFFERED)?;
    for volumes in [&fair, &plain, &buffered] {
        for (phase, name) in PHASES.iter().enumerate() {
            let (costs, operations) = (&volumes.phases[phase], volumes.operations[phase] as f64);
            let each = |count: u64| count as f64 / operations;
            table.row(
                &[volumes.title, name],
                [
                    each(costs.bytes_media_read()),
                    each(costs.bytes_media_written()),
                    volumes.total(phase),
                    each(costs.fences),
                    each(costs.estimated_ns),
                ],
            );
        }
    }
    let with_buffers = "with buffers to without";
    let to_fair = "SPTree to FAST&FAIR";
    let columns = [column("total", "", 3)];
    let mut ratios = Table::new("", &["operation", "ratio of"], columns).named("ratios");
    for (phase, ratio, one, other, paper) in [
        (0, with_buffers, &buffered, &plain, "1/3"),
        (0, to_fair, &plain, &fair, "below 1"),
        (1, to_fair, &plain, &fair, "1/3"),
        (2, to_fair, &plain, &fair, "nearly 0"),
        (3, to_fair, &plain, &fair, "above 1"),
    ] {
        let ours = one.total(phase) / other.total(phase).max(f64::MIN_POSITIVE);
        let note = format!("paper: {paper}");
        ratios.row_with(&[PHASES[phase], ratio], [ours], note);
    }
    let columns = [column("per byte of the leaves", "bytes", 2)];
    let mut dram = Table::new("", &["DRAM"], columns).named("DRAM");
    dram.row_with(&["without buffers"], [plain_dram], "paper: 0.12".to_owned());
    dram.row_with(&["with buffers"], [buffered_dram], "paper: 0.33".to_owned());
    Ok(vec![table, ratios, dram])
}

/// A tree with so much for write buffers, and the DRAM that it has in the end per byte of leaves.
fn measure_sptree(title: &'static str, entries: u64, options: Options) -> Result<(Volumes, f64)> {
    let mut share = 0.0;
    let pool_options = SpTree::<u64>::pool_options();
    let volumes = measure_then(
        title,
        entries,
        pool_options,
        |pool| SpTree::<u64>::create_with(pool, PLAN, options),
        |tree| share = tree.dram_bytes() as f64 / tree.leaf_bytes() as f64,
    )?;
    Ok((volumes, share))
}

fn measure<T: OrderedIndex<u64>>(
    title: &'static str,
    entries: u64,
    options: PoolOptions,
    make: impl FnOnce(&Pool) -> Result<T>,
) -> Result<Volumes> {
    measure_then(title, entries, options, make, |_| ())
}

/// The model of a medium below an index of so many pairs.
pub(super) fn model_for(entries: u64) -> Arc<Mutex<Model>> {
    dissertation_model(entries as f64 / ENTRIES as f64)
}

/// All phases on a tree, which is looked at before its first scan.
fn measure_then<T: OrderedIndex<u64>>(
    title: &'static str,
    entries: u64,
    options: PoolOptions,
    make: impl FnOnce(&Pool) -> Result<T>,
    look: impl FnOnce(&T),
) -> Result<Volumes> {
    let model = model_for(entries);
    let pool = Pool::anonymous(PoolOptions {
        size: (64 << 20) + entries * 256,
        watcher: Some(model.clone()),
        ..options
    })?;
    let tree = make(&pool)?;
    let reads = (entries / 4).max(1);
    let scans = (entries / 400).max(1);
    let phase = |operations: u64, run: &dyn Fn(u64) -> Result<()>| -> Result<Costs> {
        let before = counted(&model);
        (0..operations).try_for_each(run)?;
        Ok(counted(&model) - before)
    };
    let inserted = phase(entries, &|number| {
        tree.insert(&key_of(number), number).map(drop)
    })?;
    // Not in the order in which they came.
    let some = |number: u64| key_of(!number) % entries;
    let read = phase(reads, &|number| {
        let found = tree.get(&key_of(some(number)))?;
        assert_eq!(found, Some(some(number)), "the tree has lost a key");
        Ok(())
    })?;
    let missed = phase(reads, &|number| {
        assert_eq!(tree.get(&key_of(entries + number))?, None);
        Ok(())
    })?;
    look(&tree);
    let scanned = phase(scans, &|number| {
        let mut found = Vec::with_capacity(SCANNED);
        tree.scan(&key_of(some(number)), SCANNED, &mut found)
    })?;
    Ok(Volumes {
        title,
        phases: [inserted, read, missed, scanned],
        operations: [entries, reads, reads, scans],
    })
}

/// Figure 4.8: the time in which a tree is found again, by its size: until it gives its first
/// answer, and until all of it is in DRAM.
pub(crate) fn recoveries(scale: Scale) -> Shown {
    let about = "the time to open a tree until it gives the first answer, and until all of it is \
                 in DRAM: without write buffers, with full ones and their logs";
    let columns = [
        column("keys", "", 0),
        column("plain, first answer", "s", 4),
        column("plain, all", "s", 4),
        column("buffers, first answer", "s", 4),
        column("buffers, all", "s", 4),
        column("plain, of a key", "ns of a processor", 0),
    ];
    let mut table = Table::new(about, &["tree"], columns);
    let largest = scale.of(RECOVERED, 4000);
    for (tree, part) in [("eighth", 8), ("quarter", 4), ("half", 2), ("whole", 1)] {
        let entries = largest / part;
        let plain = opened(entries, Options::default())?;
        let buffered = opened(entries, BUFFERED)?;
        let keys = entries as f64;
        let of_key = plain.all * 1e9 / keys * processors();
        let times = [plain.first, plain.all, buffered.first, buffered.all];
        table.row(&[tree], [&[keys][..], &times, &[of_key]].concat());
    }
    Ok(vec![table.note(
        "paper: about 1 s for 250 million keys until all is in DRAM, on 20 cores, without buffers",
    )])
}

fn processors() -> f64 {
    std::thread::available_parallelism().map_or(1, |count| count.get()) as f64
}

/// The times in which a tree is opened, in seconds.
struct Opened {
    first: f64,
    all: f64,
}

/// The times in which a tree of so many entries is opened.
fn opened(entries: u64, options: Options) -> Result<Opened> {
    let pool = Pool::anonymous(PoolOptions {
        size: (64 << 20) + entries * 128,
        ..SpTree::<u64>::pool_options()
    })?;
    let tree: SpTree = SpTree::create_with(&pool, PLAN, options)?;
    for number in 0..entries {
        tree.insert(key_of(number), number)?;
    }
    drop(tree);
    let start = Instant::now();
    let tree: SpTree = SpTree::open_with(&pool, options)?;
    let found = tree.get(key_of(entries / 2))?;
    let first = start.elapsed().as_secs_f64();
    tree.recover_all()?;
    let all = start.elapsed().as_secs_f64();
    assert_eq!(found, Some(entries / 2), "the tree has lost a key");
    assert_eq!(tree.len()?, entries, "the tree has lost a key");
    Ok(Opened { first, all })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What does not depend on the size, in the direction that the paper tells.
    #[test]
    fn buffers_and_filters_save_volume() {
        let entries = 20_000;
        let options = FastFair::<29>::pool_options();
        let fair = measure("", entries, options, FastFair::<29>::create).unwrap();
        let (plain, _) = measure_sptree("", entries, Options::default()).unwrap();
        let (buffered, _) = measure_sptree("", entries, BUFFERED).unwrap();
        let ratio = |one: &Volumes, other: &Volumes, phase| one.total(phase) / other.total(phase);
        assert!(ratio(&buffered, &plain, 0) < 1.0 / 3.0);
        assert!(ratio(&plain, &fair, 0) < 1.0);
        assert!(ratio(&plain, &fair, 1) < 1.0);
        assert!(ratio(&plain, &fair, 2) < 0.1);
        assert!(ratio(&buffered, &plain, 1) < 1.0);
    }
}
