//! Load, paths, and the times that depend on them.

use std::time::Instant;

use gabion_index::turbo::Options;
use gabion_index::{Result, TurboHash};
use gabion_media::pmem::{Pool, PoolOptions};

use super::{Shown, key_of};
use crate::rows::{Column, Table, column};
use crate::scale::Scale;

/// A table from words to words.
type Turbo = TurboHash<u64, u64>;

/// An empty table in DRAM with space for `entries`.
fn turbo(entries: u64, options: &Options) -> Result<Turbo> {
    let pool = Pool::anonymous(PoolOptions {
        size: entries * 100 + (64 << 20),
        chunk_bytes: 1 << 20,
        ..Turbo::pool_options()
    })?;
    Turbo::create(&pool, options)
}

/// A plain table with linear probing, as the paper's motivation has it: buckets of 16 slots, only
/// counted.
struct Counted {
    counts: Vec<u8>,
    scope: usize,
}

impl Counted {
    const SLOTS: u8 = 16;

    fn path(&self, key: u64) -> impl Iterator<Item = usize> {
        let buckets = self.counts.len();
        let wide = u128::from(key) * buckets as u128;
        let home = usize::try_from(wide >> 64).expect("below the number of buckets");
        (0..self.scope.min(buckets)).map(move |step| (home + step) % buckets)
    }

    /// False if the scope is exhausted.
    fn add(&mut self, key: u64) -> bool {
        let free = self.path(key).find(|&at| self.counts[at] < Counted::SLOTS);
        free.map(|at| self.counts[at] += 1).is_some()
    }

    /// Mean number of buckets that a search for an absent key looks at.
    fn distance(&self) -> f64 {
        let keys = 0..100_000_u64;
        let steps = |key| {
            let end = |at: usize| self.counts[at] < Counted::SLOTS;
            self.path(key).position(end).map_or(self.scope, |at| at + 1)
        };
        keys.clone().map(|key| steps(key_of(!key))).sum::<usize>() as f64 / keys.count() as f64
    }
}

/// Figure 3.1: load and distance before each rehash, by the scope.
pub(crate) fn scopes(scale: Scale) -> Shown {
    let about = "load, and mean distance of a search for an absent key, before each of the first \
                 six rehashes";
    let rehashes = ["1st", "2nd", "3rd", "4th", "5th", "6th"];
    let columns = [column("load", "", 2), column("distance", "", 2)];
    let columns = Column::grouped(&rehashes, &columns);
    let mut table = Table::new(about, &["scope"], columns);
    let first = usize::try_from(scale.of(1 << 20, 64)).expect("far below all memory");
    for scope in [2, 4, 8, 16, 32] {
        let mut values = Vec::new();
        let mut keys = 0;
        let mut buckets = first;
        for _ in rehashes {
            let counts = vec![0; buckets];
            let mut counted = Counted { counts, scope };
            let moved = (0..keys).all(|key| counted.add(key_of(key)));
            assert!(moved, "a table of twice the size has room");
            while counted.add(key_of(keys)) {
                keys += 1;
            }
            let slots = buckets * usize::from(Counted::SLOTS);
            values.extend([keys as f64 / slots as f64, counted.distance()]);
            buckets *= 2;
        }
        table.row(&[&scope.to_string()], values);
    }
    Ok(vec![table.note("paper: scope 16, sixth: 0.80 and 1.7")])
}

/// Inserts of the paper in figure 3.8, and entries of its other tables.
const ENTRIES: u64 = 100_000_000;
/// Loads of figure 3.8, each after so many per cent of the inserts more.
const SAMPLES: u64 = 100;
/// Loads that are shown, one of so many.
const SHOWN: u64 = 5;
/// Binary logarithm of the paper's number of shards.
const SHARD_BITS: u32 = 16;

/// Figure 3.8: the load factor while the table grows, sampled after every hundredth of the inserts.
pub(crate) fn load_factors(scale: Scale) -> Shown {
    let inserts = scale.of(ENTRIES, 10_000);
    let shards = scale.of(1 << SHARD_BITS, 2).ilog2();
    let papers = loads(inserts, shards_planned(shards), Some(shards))?;
    let own = loads(inserts, inserts / 8, None)?;
    let about = format!(
        "load while {inserts} are inserted: shards as the paper has them, 16 buckets each, which \
         the scope covers, and as the table chooses them for a plan of an eighth"
    );
    let columns = ["paper's shards", "own shards"].map(|name| column(name, "", 2));
    let mut table = Table::new(about, &["inserted, %"], columns).named("loads");
    for (at, loads) in papers.samples.iter().zip(&own.samples).enumerate() {
        let part = (at as u64 + 1) * 100 / SAMPLES;
        if part.is_multiple_of(SHOWN) {
            table.row(&[&part.to_string()], [*loads.0, *loads.1]);
        }
    }
    let columns = [
        column("peak", "", 3),
        column("bytes per entry", "at the end", 1),
    ];
    let mut peaks = Table::new("", &["shards"], columns).named("peaks");
    for (name, loads) in [("paper's", &papers), ("own", &own)] {
        let peak = loads.samples.iter().copied().fold(0.0, f64::max);
        peaks.row(&[name], [peak, loads.bytes_of_entry]);
    }
    Ok(vec![table, peaks.note("paper: peak 0.85")])
}

/// The plan with which shards begin with 16 buckets: 70 percent of their usable slots.
fn shards_planned(bits: u32) -> u64 {
    planned(16) << bits
}

/// The plan of a shard that begins with so many buckets.
fn planned(buckets: u64) -> u64 {
    buckets * 13 * 70 / 100
}

/// What comes of inserts into an empty table.
struct Loads {
    samples: Vec<f64>,
    bytes_of_entry: f64,
}

fn loads(inserts: u64, capacity: u64, shard_bits: Option<u32>) -> Result<Loads> {
    let options = Options {
        capacity,
        shard_bits,
        ..Options::default()
    };
    let table = turbo(inserts, &options)?;
    let mut samples = Vec::new();
    for sample in 0..SAMPLES {
        for number in sample * inserts / SAMPLES..(sample + 1) * inserts / SAMPLES {
            table.put(&key_of(number), &number)?;
        }
        samples.push(table.stats().load_factor());
    }
    Ok(Loads {
        samples,
        bytes_of_entry: table.stats().bytes as f64 / table.len() as f64,
    })
}

/// A table of `entries`, or somewhat fewer, that fill it to `load` of all slots, and that neither
/// grows nor collects garbage meanwhile; and how many they are.
fn filled(entries: u64, load: f64) -> Result<(Turbo, u64)> {
    let shard_bits = (entries / 4096).max(1).ilog2();
    let of_bucket = 14.0 * load;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "numbers of buckets and of entries"
    )]
    let (buckets, of_shard) = {
        let buckets = ((entries >> shard_bits) as f64 / of_bucket).max(1.0) as u64;
        // As many as the table does not round: numbers with four significant bits.
        let buckets =
            buckets >> buckets.ilog2().saturating_sub(3) << buckets.ilog2().saturating_sub(3);
        (buckets, (buckets as f64 * of_bucket) as u64)
    };
    let options = Options {
        capacity: planned(buckets) << shard_bits,
        shard_bits: Some(shard_bits),
        collects_garbage: false,
        ..Options::default()
    };
    let entries = of_shard << shard_bits;
    let table = turbo(entries, &options)?;
    fill(&table, 0, entries)?;
    Ok((table, entries))
}

fn fill(table: &Turbo, round: u64, entries: u64) -> Result<()> {
    for number in round * entries..(round + 1) * entries {
        table.put(&key_of(number), &number)?;
    }
    Ok(())
}

/// Deletes all keys of the first round and inserts those of the second.
fn refill(table: &Turbo, entries: u64) -> Result<()> {
    for number in 0..entries {
        table.remove(&key_of(number))?;
    }
    fill(table, 1, entries)
}

/// Figure 3.9: buckets that a lookup of an absent key looks at.
pub(crate) fn probe_distances(scale: Scale) -> Shown {
    let entries = scale.of(ENTRIES, 10_000);
    let load = [
        column("of all 14 slots", "", 2),
        column("of the 13 usable", "", 2),
    ];
    let distance = [column("mean", "", 2), column("longest", "", 0)];
    let columns = [
        Column::grouped(&["load"], &load),
        Column::grouped(&["distance"], &distance),
    ];
    let columns = columns.concat();
    let about = "buckets that a lookup of an absent key looks at; behind them, homes by distance";
    let mut table = Table::new(about, &["filled to", "state"], columns);
    for target in [0.557, 0.6, 0.65, 0.7, 0.743] {
        let (turbo, entries) = filled(entries, target)?;
        let filled = target.to_string();
        distances(&[&filled, LOADED], &turbo, &mut table);
        refill(&turbo, entries)?;
        distances(&[&filled, LOADED_ANEW], &turbo, &mut table);
        turbo.compact()?;
        distances(&[&filled, COLLECTED], &turbo, &mut table);
    }
    let table = table.note("paper, at 0.8: (a) mean 1.34, longest 6; (b) mean 6.13");
    Ok(vec![table.note(
        "By simulation, a random function with 13 slots to a bucket gives 1.02 at half of them, \
         1.07 at 0.6, 1.22 at 0.7, 1.39 at 0.75, 1.72 at 0.8: there 1 in 50 exceeds 6.",
    )])
}

/// States of a table in figures 3.9 and 3.10.
const LOADED: &str = "(a) loaded";
const LOADED_ANEW: &str = "(b) deleted and loaded anew";
const COLLECTED: &str = "(c) garbage collected";

fn distances(at: &[&str], turbo: &Turbo, table: &mut Table) {
    let stats = turbo.stats();
    let load = stats.load_factor();
    let longest = stats.path_max() as f64;
    let values = [load, load * 14.0 / 13.0, stats.path_mean(), longest];
    table.row_with(at, values, format!("{:?}", stats.path_lengths));
}

/// Figure 3.10: what lookups take before and after garbage collection.
pub(crate) fn latencies(scale: Scale) -> Shown {
    let entries = scale.of(ENTRIES, 10_000);
    let (turbo, entries) = filled(entries, 0.743)?;
    let about = "times of lookups in DRAM, each after the one before";
    let columns = ["present key", "absent key"].map(|name| column(name, "ns", 0));
    let mut table = Table::new(about, &["state"], columns);
    table.row(&[LOADED], lookup_times(&turbo, 0, entries)?);
    refill(&turbo, entries)?;
    table.row(&[LOADED_ANEW], lookup_times(&turbo, 1, entries)?);
    turbo.compact()?;
    table.row(&[COLLECTED], lookup_times(&turbo, 1, entries)?);
    Ok(vec![table.note(
        "paper, absent keys on Optane at 0.8: 570, deleted and loaded anew 1750, then back",
    )])
}

fn lookup_times(table: &Turbo, round: u64, entries: u64) -> Result<[f64; 2]> {
    const LOOKUPS: u64 = 1_000_000;
    let time = |first: u64| -> Result<f64> {
        let start = Instant::now();
        let mut found = 0;
        for number in 0..LOOKUPS {
            // The next key depends on the last answer.
            let key = key_of(first + (number.wrapping_mul(7919) + found % 2) % entries);
            found += u64::from(table.get(&key)?.is_some());
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / LOOKUPS as f64)
    };
    Ok([time(round * entries)?, time(9 * entries)?])
}

/// Figure 3.11: the time to build a shard anew, by its size.
pub(crate) fn build_times(_: Scale) -> Shown {
    let columns = [column("built anew", "us", 1)];
    let mut shown = Table::new("", &["buckets of a shard"], columns);
    for buckets in [16, 64, 256, 1024, 2048, 4096, 8192_u64] {
        let entries = buckets * 13 * 60 / 100;
        let options = Options {
            capacity: entries,
            shard_bits: Some(0),
            ..Options::default()
        };
        let table = turbo(entries, &options)?;
        for number in 0..entries {
            table.put(&key_of(number), &number)?;
        }
        let mut best = f64::INFINITY;
        for _ in 0..20 {
            // A deleted slot makes the shard worth collecting.
            table.remove(&key_of(0))?;
            let start = Instant::now();
            table.compact()?;
            best = best.min(start.elapsed().as_secs_f64() * 1e6);
            table.put(&key_of(0), &0)?;
        }
        shown.row(&[&table.stats().buckets.to_string()], [best]);
    }
    Ok(vec![
        shown.note("the paper's text: 5 to 6 us for 8192 buckets"),
    ])
}
