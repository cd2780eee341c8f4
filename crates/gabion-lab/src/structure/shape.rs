//! Load, paths, and the times that depend on them.

use std::time::Instant;

use gabion_index::Result;
use gabion_index::turbo::Options;

use super::{Scale, Table, key_of, table};

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
pub(super) fn scopes(scale: Scale) -> Result<Vec<String>> {
    let mut lines = vec![
        "load (mean distance) before each of the first six rehashes".to_owned(),
        "paper: scope 16, sixth: 0.80 (1.7)".to_owned(),
    ];
    let first = usize::try_from(scale.of(1 << 20, 64)).expect("far below all memory");
    for scope in [2, 4, 8, 16, 32] {
        let mut line = format!("scope {scope:>2}:");
        let mut keys = 0;
        let mut buckets = first;
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
            line += &format!("  {load:.2} ({:.2})", table.distance());
            buckets *= 2;
        }
        lines.push(line);
    }
    Ok(lines)
}

/// Inserts of the paper in figure 3.8, and entries of its other tables.
const ENTRIES: u64 = 100_000_000;
/// Loads of figure 3.8 that are shown.
const SAMPLES: u64 = 100;
/// Binary logarithm of the paper's number of shards.
const SHARD_BITS: u32 = 16;

/// Figure 3.8: the load factor after every hundredth of the inserts.
pub(super) fn load_factors(scale: Scale) -> Result<Vec<String>> {
    let inserts = scale.of(ENTRIES, 10_000);
    let mut lines = vec![
        format!("load after each hundredth of {inserts} inserts; paper: peak 0.85"),
        "the paper's setup, as many shards of 16 buckets, which the scope covers:".to_owned(),
    ];
    let shards = scale.of(1 << SHARD_BITS, 2).ilog2();
    let planned = shards_planned(shards);
    lines.push(loads(inserts, planned, Some(shards))?);
    lines.push("shards as the table chooses them for a plan of an eighth:".to_owned());
    lines.push(loads(inserts, inserts / 8, None)?);
    Ok(lines)
}

/// The plan with which shards begin with 16 buckets: 70 percent of their usable slots.
fn shards_planned(bits: u32) -> u64 {
    planned(16) << bits
}

/// The plan of a shard that begins with so many buckets.
fn planned(buckets: u64) -> u64 {
    buckets * 13 * 70 / 100
}

fn loads(inserts: u64, capacity: u64, shard_bits: Option<u32>) -> Result<String> {
    let options = Options {
        capacity,
        shard_bits,
        ..Options::default()
    };
    let table = table(inserts, &options)?;
    let mut peak = 0.0_f64;
    let mut line = String::new();
    for sample in 0..SAMPLES {
        for number in sample * inserts / SAMPLES..(sample + 1) * inserts / SAMPLES {
            table.put(&key_of(number), &number)?;
        }
        let load = table.stats().load_factor();
        peak = peak.max(load);
        line += &format!(" {load:.2}");
    }
    let bytes = table.stats().bytes as f64 / table.len() as f64;
    Ok(format!(
        "{line}\npeak {peak:.3}; at the end {bytes:.1} bytes per entry"
    ))
}

/// A table of `entries`, or somewhat fewer, that fill it to `load` of all slots, and that neither
/// grows nor collects garbage meanwhile; and how many they are.
fn filled(entries: u64, load: f64) -> Result<(Table, u64)> {
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
    let table = table(entries, &options)?;
    fill(&table, 0, entries)?;
    Ok((table, entries))
}

fn fill(table: &Table, round: u64, entries: u64) -> Result<()> {
    for number in round * entries..(round + 1) * entries {
        table.put(&key_of(number), &number)?;
    }
    Ok(())
}

/// Deletes all keys of the first round and inserts those of the second.
fn refill(table: &Table, entries: u64) -> Result<()> {
    for number in 0..entries {
        table.remove(&key_of(number))?;
    }
    fill(table, 1, entries)
}

/// Figure 3.9: buckets that a lookup of an absent key looks at.
pub(super) fn probe_distances(scale: Scale) -> Result<Vec<String>> {
    let entries = scale.of(ENTRIES, 10_000);
    let mut lines = vec![
        "load of all 14 slots (of the 13 usable): mean and longest distance, homes by it"
            .to_owned(),
        "paper, at 0.8: (a) mean 1.34, longest 6; (b) mean 6.13".to_owned(),
    ];
    for target in [0.557, 0.6, 0.65, 0.7, 0.743] {
        let (table, entries) = filled(entries, target)?;
        lines.push(distances("(a) loaded", &table));
        refill(&table, entries)?;
        lines.push(distances("(b) deleted and loaded anew", &table));
        table.compact()?;
        lines.push(distances("(c) garbage collected", &table));
    }
    lines.push(
        "By simulation, a random function with 13 slots to a bucket gives 1.02 at half of them, \
         1.07 at 0.6, 1.22 at 0.7, 1.39 at 0.75, 1.72 at 0.8: there 1 in 50 exceeds 6."
            .to_owned(),
    );
    Ok(lines)
}

fn distances(name: &str, table: &Table) -> String {
    let stats = table.stats();
    let (mean, longest) = (stats.path_mean(), stats.path_max());
    let load = stats.load_factor();
    let usable = load * 14.0 / 13.0;
    format!(
        "{name:>28} {load:.2} ({usable:.2}): {mean:.2}, {longest:>2}; {:?}",
        stats.path_lengths
    )
}

/// Figure 3.10: what lookups take before and after garbage collection.
pub(super) fn latencies(scale: Scale) -> Result<Vec<String>> {
    let entries = scale.of(ENTRIES, 10_000);
    let (table, entries) = filled(entries, 0.743)?;
    let mut lines = vec![
        "ns per lookup in DRAM, present and absent keys, each lookup after the one before"
            .to_owned(),
        "paper, absent keys on Optane at 0.8: 570, deleted and loaded anew 1750, then back"
            .to_owned(),
    ];
    lines.push(lookup_times("(a) loaded", &table, 0, entries)?);
    refill(&table, entries)?;
    lines.push(lookup_times(
        "(b) deleted and loaded anew",
        &table,
        1,
        entries,
    )?);
    table.compact()?;
    lines.push(lookup_times("(c) garbage collected", &table, 1, entries)?);
    Ok(lines)
}

fn lookup_times(name: &str, table: &Table, round: u64, entries: u64) -> Result<String> {
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
    let (present, absent) = (time(round * entries)?, time(9 * entries)?);
    Ok(format!("{name:>28}: {present:.0}, {absent:.0}"))
}

/// Figure 3.11: the time to build a shard anew, by its size.
pub(super) fn build_times(_: Scale) -> Result<Vec<String>> {
    let mut lines =
        vec!["us to build a shard anew; the paper's text: 5 to 6 us for 8192 buckets".to_owned()];
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
        lines.push(format!("{:>6} buckets: {best:.1}", table.stats().buckets));
    }
    Ok(lines)
}
