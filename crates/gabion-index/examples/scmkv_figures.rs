//! The figures of the SCMKV paper on this machine's memory: throughput of writes and reads, of
//! small and large objects, uniform and skewed, relaxed and strict; with and without flushes.
//!
//! ```sh
//! cargo run --release -p gabion-index --example scmkv_figures -- [THOUSANDS] [THREADS] [ONLY...]
//! ```
//!
//! By default a million small objects (16 + 100 bytes) and an eighth as many large ones
//! (128 + 512), where the paper has 64 Mi and 8 Mi, and one thread. Each of `ONLY` is a word of the
//! lines to be shown: `small`, `zipfian`, `relaxed`, `flush`, say. The store holds all objects;
//! then every line is as many writes, or reads, as there are objects. A second table shows what
//! the cleaner does where 60, 80 and 90 % of the space are live.
//!
//! Source: Z. Wang, L. Huang, Y. Zhu, "SCMKV", NPC 2017, figures 8 to 10.

use std::time::Instant;

use gabion_index::scmkv::{Durability, Options};
use gabion_index::{Result, Scmkv};
use gabion_media::pmem::{Pool, PoolOptions};

/// Objects of one size.
struct Objects {
    name: &'static str,
    key_bytes: usize,
    value_bytes: usize,
    /// One for so many small ones.
    part: u64,
}

const OBJECTS: [Objects; 2] = [
    Objects {
        name: "small",
        key_bytes: 16,
        value_bytes: 100,
        part: 1,
    },
    Objects {
        name: "large",
        key_bytes: 128,
        value_bytes: 512,
        part: 8,
    },
];

/// Which object comes next.
#[derive(Clone, Copy, Debug)]
enum Order {
    Uniform,
    Zipfian,
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// From 0 to 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Draws numbers below `count`, the lower the more often, as YCSB does.
struct Zipf {
    count: f64,
    zeta: f64,
    eta: f64,
}

/// YCSB's skew.
const THETA: f64 = 0.99;

impl Zipf {
    fn new(count: u64) -> Zipf {
        let sum = |count: u64| -> f64 { (1..=count).map(|i| (i as f64).powf(-THETA)).sum() };
        let (zeta, two) = (sum(count), sum(2));
        let count = count as f64;
        let eta = (1.0 - (2.0 / count).powf(1.0 - THETA)) / (1.0 - two / zeta);
        Zipf { count, zeta, eta }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a number below the count")]
    fn draw(&self, random: &mut Random) -> u64 {
        let fraction = random.fraction();
        let part = fraction * self.zeta;
        if part < 1.0 {
            return 0;
        }
        if part < 1.0 + 0.5_f64.powf(THETA) {
            return 1;
        }
        let place = (self.eta * fraction - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
        ((self.count * place) as u64).min(self.count as u64 - 1)
    }
}

/// The numbers of the objects of a run, drawn before it.
fn numbers(order: Order, count: u64, seed: u64) -> Vec<u64> {
    let mut random = Random(seed);
    let zipf = Zipf::new(count);
    let draw = |_| match order {
        Order::Uniform => random.next() % count,
        Order::Zipfian => zipf.draw(&mut random),
    };
    (0..count).map(draw).collect()
}

/// Puts a key together in a buffer of its size.
fn write_key(number: u64, key: &mut [u8]) {
    // Neighbours in popularity are none in the table.
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key[..8].copy_from_slice(&word.to_le_bytes());
    key[8..16].copy_from_slice(&number.to_le_bytes());
}

impl Objects {
    /// A store in memory with room for three times the objects.
    fn store(&self, count: u64, durability: Durability, flushes: bool) -> Result<Scmkv> {
        let bytes = (self.key_bytes + self.value_bytes + 64) as u64;
        let pool = Pool::anonymous(PoolOptions {
            size: count * bytes * 3 + (256 << 20),
            always_flush: flushes,
            ..Scmkv::pool_options()
        })?;
        let options = Options {
            capacity: Some(count),
            durability,
            ..Options::default()
        };
        let store = Scmkv::create(&pool, &options)?;
        let (mut key, value) = (vec![b'k'; self.key_bytes], vec![b'v'; self.value_bytes]);
        for number in 0..count {
            write_key(number, &mut key);
            store.put(&key, &value)?;
        }
        Ok(store)
    }

    /// Millions of operations a second of some threads, each of which goes through its own numbers.
    fn run(&self, store: &Scmkv, threads: &[Vec<u64>], writes: bool) -> Result<f64> {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let run = |numbers: &[u64]| -> Result<()> {
                let mut key = vec![b'k'; self.key_bytes];
                let mut value = vec![b'w'; self.value_bytes];
                for &number in numbers {
                    write_key(number, &mut key);
                    if writes {
                        store.put(&key, &value)?;
                    } else {
                        value.clear();
                        store.get_into(&key, &mut value)?;
                    }
                }
                Ok(())
            };
            let spawned: Vec<_> = threads
                .iter()
                .map(|numbers| scope.spawn(move || run(numbers)))
                .collect();
            let mut joined = spawned.into_iter().map(|thread| thread.join());
            joined.try_for_each(|result| result.expect("a thread that does not panic"))
        })?;
        let operations: usize = threads.iter().map(Vec::len).sum();
        Ok(operations as f64 / begin.elapsed().as_secs_f64() / 1e6)
    }
}

fn throughput(count: u64, threads: u64, only: &[String]) -> Result<()> {
    println!("| objects | order | durability | flushes | writes, M/s | reads, M/s |");
    println!("|---|---|---|---|---:|---:|");
    for objects in OBJECTS {
        for durability in [Durability::Relaxed, Durability::Strict] {
            for flushes in [false, true] {
                let count = count / objects.part;
                let mut store = None;
                for order in [Order::Uniform, Order::Zipfian] {
                    let flush = if flushes { "flush" } else { "noflush" };
                    let words = format!("{} {order:?} {durability:?} {flush}", objects.name);
                    let words = words.to_lowercase();
                    let is_wanted = |word: &String| words.split(' ').any(|one| one == word);
                    if !only.iter().all(is_wanted) {
                        continue;
                    }
                    if store.is_none() {
                        store = Some(objects.store(count, durability, flushes)?);
                    }
                    let Some(store) = &store else { continue };
                    let all: Vec<_> = (0..threads)
                        .map(|thread| numbers(order, count, thread + 1))
                        .collect();
                    let writes = objects.run(store, &all, true)?;
                    let reads = objects.run(store, &all, false)?;
                    let cells = words.replace(' ', " | ");
                    println!("| {cells} | {writes:.2} | {reads:.2} |");
                }
            }
        }
    }
    Ok(())
}

/// Overwrites a store of which some part of the space is live, four times over.
fn cleaning(count: u64) -> Result<()> {
    println!("| live, % | writes, M/s | moved bytes per byte of records | pages cleaned |");
    println!("|---:|---:|---:|---:|");
    let objects = &OBJECTS[0];
    for percent in [60, 80, 90] {
        let record_bytes = 160;
        let table_bytes = count.next_power_of_two() * 8 * 4;
        let pool = Pool::anonymous(PoolOptions {
            size: (count * record_bytes * 100 / percent) + table_bytes + (24 << 20),
            ..Scmkv::pool_options()
        })?;
        let options = Options {
            capacity: Some(count),
            durability: Durability::Relaxed,
            ..Options::default()
        };
        let store = Scmkv::create(&pool, &options)?;
        let all: Vec<u64> = (0..count).collect();
        objects.run(&store, &[all], true)?;
        let before = store.stats();
        let mut rates = Vec::new();
        for round in 0..4 {
            let all = numbers(Order::Uniform, count, round);
            rates.push(objects.run(&store, &[all], true)?);
        }
        let stats = store.stats();
        let (written, moved) = (
            stats.record_bytes - before.record_bytes,
            stats.moved_bytes - before.moved_bytes,
        );
        let rate = rates.len() as f64 / rates.iter().map(|rate| 1.0 / rate).sum::<f64>();
        let ratio = moved as f64 / written as f64;
        let pages = stats.cleaned_pages - before.cleaned_pages;
        println!("| {percent} | {rate:.2} | {ratio:.2} | {pages} |");
    }
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let parsed: Vec<u64> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let is_word = |arg: &&String| arg.parse::<u64>().is_err();
    let only: Vec<String> = args.iter().filter(is_word).cloned().collect();
    let count = parsed.first().copied().unwrap_or(1000) * 1000;
    let threads = parsed.get(1).copied().unwrap_or(1).max(1);
    throughput(count, threads, &only)?;
    if only.is_empty() {
        println!();
        cleaning(count)?;
    }
    Ok(())
}
