//! Load, paths, and the times that depend on them.

use std::time::Instant;

use gabion_index::Result;
use gabion_index::turbo::Options;

use super::{Table, key_of, table};

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
pub(super) fn scopes(_: u64) -> Result<()> {
    println!("load (mean distance) before each of the first six rehashes; paper: scope 16, sixth:");
    println!("0.80 (1.7)");
    for scope in [2, 4, 8, 16, 32] {
        print!("scope {scope:>2}:");
        let mut keys = 0;
        let mut buckets = 1024;
        for _ in 0..6 {
            let counts = vec![0; buckets];
            let mut table = Counted { counts, scope };
            let moved = (0..keys).all(|key| table.add(key_of(key)));
            assert!(moved, "a table of twice the size has room");
            while table.add(key_of(keys)) {
                keys += 1;
            }
            let slots = buckets * usize::from(Counted::SLOTS);
            let load = keys as f64 / slots as f64;
            print!("  {load:.2} ({:.2})", table.distance());
            buckets *= 2;
        }
        println!();
    }
    Ok(())
}

/// Figure 3.8: the load factor after every million inserts.
pub(super) fn load_factors(millions: u64) -> Result<()> {
    println!("load after each million of {millions}; paper: peak 0.85");
    println!("the paper's setup, 64K shards of 16 buckets, which the scope covers:");
    print_loads(millions, 9_000_000, Some(16))?;
    println!("shards as the table chooses them for a plan of 12 million entries:");
    print_loads(millions, 12_000_000, None)
}

fn print_loads(millions: u64, capacity: u64, shard_bits: Option<u32>) -> Result<()> {
    let options = Options {
        capacity,
        shard_bits,
        ..Options::default()
    };
    let table = table(millions * 1_000_000, &options)?;
    let mut peak = 0.0_f64;
    for million in 0..millions {
        for number in million * 1_000_000..(million + 1) * 1_000_000 {
            table.put(&key_of(number), &number)?;
        }
        let load = table.stats().load_factor();
        peak = peak.max(load);
        print!(" {load:.2}");
    }
    let bytes = table.stats().bytes as f64 / table.len() as f64;
    println!("\npeak {peak:.3}; at the end {bytes:.1} bytes per entry");
    Ok(())
}

/// Entries of the tables whose paths are looked at.
const ENTRIES: u64 = 4_000_000;

/// A table that neither grows nor collects garbage while it is filled to `load` of all slots.
fn filled(load: f64) -> Result<Table> {
    let options = Options {
        // Shards begin with 66 percent of the usable slots for their plan.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of entries"
        )]
        capacity: (ENTRIES as f64 * 0.66 * 13.0 / 14.0 / load) as u64,
        shard_bits: Some(10),
        collects_garbage: false,
        ..Options::default()
    };
    let table = table(ENTRIES, &options)?;
    fill(&table, 0)?;
    Ok(table)
}

fn fill(table: &Table, round: u64) -> Result<()> {
    for number in round * ENTRIES..(round + 1) * ENTRIES {
        table.put(&key_of(number), &number)?;
    }
    Ok(())
}

/// Deletes all keys of the first round and inserts those of the second.
fn refill(table: &Table) -> Result<()> {
    for number in 0..ENTRIES {
        table.remove(&key_of(number))?;
    }
    fill(table, 1)
}

/// Figure 3.9: buckets that a lookup of an absent key looks at.
pub(super) fn probe_distances(_: u64) -> Result<()> {
    println!("load of all 14 slots (of the 13 usable): mean and longest distance, homes by it");
    println!("paper, at 0.8: (a) mean 1.34, longest 6; (b) mean 6.13");
    for target in [0.557, 0.6, 0.65, 0.7, 0.743] {
        let table = filled(target)?;
        print_distances("(a) loaded", &table);
        refill(&table)?;
        print_distances("(b) deleted and loaded anew", &table);
        table.compact()?;
        print_distances("(c) garbage collected", &table);
    }
    println!("By simulation, a random function with 13 slots to a bucket gives 1.02 at half of");
    println!("them, 1.07 at 0.6, 1.22 at 0.7, 1.39 at 0.75, 1.72 at 0.8: there 1 in 50 exceeds 6.");
    Ok(())
}

fn print_distances(name: &str, table: &Table) {
    let stats = table.stats();
    let (mean, longest) = (stats.path_mean(), stats.path_max());
    let load = stats.load_factor();
    let usable = load * 14.0 / 13.0;
    println!(
        "{name:>28} {load:.2} ({usable:.2}): {mean:.2}, {longest:>2}; {:?}",
        stats.path_lengths
    );
}

/// Figure 3.10: what lookups take before and after garbage collection.
pub(super) fn latencies(_: u64) -> Result<()> {
    println!("ns per lookup in DRAM, present and absent keys, each lookup after the one before");
    println!("paper, absent keys on Optane at 0.8: 570, deleted and loaded anew 1750, then back");
    let table = filled(0.743)?;
    print_latencies("(a) loaded", &table, 0)?;
    refill(&table)?;
    print_latencies("(b) deleted and loaded anew", &table, 1)?;
    table.compact()?;
    print_latencies("(c) garbage collected", &table, 1)
}

fn print_latencies(name: &str, table: &Table, round: u64) -> Result<()> {
    const LOOKUPS: u64 = 1_000_000;
    let time = |first: u64| -> Result<f64> {
        let start = Instant::now();
        let mut found = 0;
        for number in 0..LOOKUPS {
            // The next key depends on the last answer.
            let key = key_of(first + (number.wrapping_mul(7919) + found % 2) % ENTRIES);
            found += u64::from(table.get(&key)?.is_some());
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / LOOKUPS as f64)
    };
    let (present, absent) = (time(round * ENTRIES)?, time(9 * ENTRIES)?);
    println!("{name:>28}: {present:.0}, {absent:.0}");
    Ok(())
}

/// Figure 3.11: the time to build a shard anew, by its size.
pub(super) fn build_times(_: u64) -> Result<()> {
    println!("us to build a shard anew; the paper's text: 5 to 6 us for 8192 buckets");
    for buckets in [16, 64, 256, 1024, 2048, 4096, 8192_u64] {
        let entries = buckets * 13 * 60 / 100;
        let options = Options {
            capacity: entries,
            shard_bits: Some(0),
            ..Options::default()
        };
        let table = table(entries, &options)?;
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
        println!("{:>6} buckets: {best:.1}", table.stats().buckets);
    }
    Ok(())
}
