//! The figures of the SCMKV paper on this machine's memory: throughput of writes and reads, of
//! small and large objects, uniform and skewed, relaxed and strict; with and without flushes.
//!
//! ```sh
//! cargo run --release -p gabion-index --example scmkv_figures -- [THOUSANDS] [THREADS] [ONLY...]
//! ```
//!
//! By default a million small objects (16 + 100 bytes) and an eighth as many large ones
//! (128 + 512), where the paper has 64 Mi and 8 Mi, and one thread. `ONLY` are words of the lines
//! to be shown: `small`, `zipfian`, `relaxed`, `flush`, say. The store holds all objects; then each
//! thread of a line writes, or reads, as many as there are, or a million if that is less.
//!
//! Other tables are asked for by a word: by `cleaning` what the cleaner does where 60, 80 and 90 %
//! of the space are live; by `media` what a medium would write for that; by `recovery` how long it
//! takes to open the store; by `masstree` what the paper compares with.
//!
//! The memory is given by the system before anything is measured, as persistent memory is. Else its
//! clearing of pages at their first use would be half of the time of a write.
//!
//! Source: Z. Wang, L. Huang, Y. Zhu, "SCMKV", NPC 2017, figures 8 to 10.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gabion_index::scmkv::{Durability, Options};
use gabion_index::{Masstree, Result, Scmkv};
use gabion_media::pmem::{PAtomicU64, Pool, PoolOptions, model};
use parking_lot::Mutex;

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

/// Operations of a thread in a line, at most.
const OPERATIONS_MAX: u64 = 1_000_000;

/// The numbers of the objects of a run, drawn before it.
fn numbers(order: Order, count: u64, seed: u64) -> Vec<u64> {
    let mut random = Random(seed);
    let zipf = Zipf::new(count);
    let draw = |_| match order {
        Order::Uniform => random.next() % count,
        Order::Zipfian => zipf.draw(&mut random),
    };
    (0..count.min(OPERATIONS_MAX)).map(draw).collect()
}

/// Puts a key together in a buffer of its size.
fn write_key(number: u64, key: &mut [u8]) {
    // Neighbours in popularity are none in the table.
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key[..8].copy_from_slice(&word.to_le_bytes());
    key[8..16].copy_from_slice(&number.to_le_bytes());
}

/// What the threads of a run do.
#[derive(Clone, Copy, Debug)]
enum Does {
    Puts(Durability),
    Gets,
}

impl Objects {
    /// A store in memory with room for three times the objects.
    fn store(&self, count: u64, flushes: bool) -> Result<Scmkv> {
        let bytes = (self.key_bytes + self.value_bytes + 64) as u64;
        let pool = pool_in_memory(PoolOptions {
            size: count * bytes * 3 + (256 << 20),
            always_flush: flushes,
            ..Scmkv::pool_options()
        })?;
        let options = Options {
            capacity: Some(count),
            durability: Durability::Relaxed,
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
    fn run(&self, store: &Scmkv, threads: &[Vec<u64>], does: Does) -> Result<f64> {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let run = |numbers: &[u64]| -> Result<()> {
                let mut key = vec![b'k'; self.key_bytes];
                let mut value = vec![b'w'; self.value_bytes];
                for &number in numbers {
                    write_key(number, &mut key);
                    match does {
                        Does::Puts(durability) => {
                            store.put_with(&key, &value, durability)?;
                        }
                        Does::Gets => {
                            value.clear();
                            store.get_into(&key, &mut value)?;
                        }
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
    println!("A read that waits for the one before: {:.0} ns", latency()?);
    println!();
    println!("| objects | flushes | order | threads | relaxed writes, M/s | strict | reads |");
    println!("|---|---|---|---:|---:|---:|---:|");
    let is_wanted = |word: &str, of: &[&str]| {
        let asked: Vec<_> = of
            .iter()
            .filter(|one| only.iter().any(|o| o == *one))
            .collect();
        asked.is_empty() || asked.contains(&&word)
    };
    for objects in OBJECTS {
        for flush in ["noflush", "flush"] {
            let is_wanted_here = is_wanted(objects.name, &["small", "large"])
                && is_wanted(flush, &["noflush", "flush"]);
            if !is_wanted_here {
                continue;
            }
            let count = count / objects.part;
            let store = objects.store(count, flush == "flush")?;
            // Other objects each time: those of the last run are in the cache still.
            let mut seed = 0;
            for (order, name) in [(Order::Uniform, "uniform"), (Order::Zipfian, "zipfian")] {
                for threads in 1..=threads {
                    if !is_wanted(name, &["uniform", "zipfian"]) {
                        continue;
                    }
                    let mut run = |does| -> Result<f64> {
                        let all: Vec<_> = (0..threads)
                            .map(|_| {
                                seed += 1;
                                numbers(order, count, seed)
                            })
                            .collect();
                        objects.run(&store, &all, does)
                    };
                    let relaxed = run(Does::Puts(Durability::Relaxed))?;
                    let strict = run(Does::Puts(Durability::Strict))?;
                    let reads = run(Does::Gets)?;
                    let object = objects.name;
                    print!("| {object} | {flush} | {name} | {threads} ");
                    println!("| {relaxed:.2} | {strict:.2} | {reads:.2} |");
                }
            }
        }
    }
    Ok(())
}

/// Bytes of the record of a small object.
const RECORD_BYTES: u64 = 160;

/// A store of small objects that take so many per cent of its space.
fn crowded(count: u64, percent: u64, page_bytes: u64, watcher: Option<Model>) -> Result<Scmkv> {
    let table_bytes = count.next_power_of_two() * 8 * 4;
    let pool = pool_in_memory(PoolOptions {
        size: (count * RECORD_BYTES * 100 / percent) + table_bytes + 12 * page_bytes,
        chunk_bytes: page_bytes.min(64 << 10),
        watcher: watcher.map(|model| model as _),
        ..Scmkv::pool_options()
    })?;
    let options = Options {
        capacity: Some(count),
        durability: Durability::Relaxed,
        page_bytes,
        ..Options::default()
    };
    let store = Scmkv::create(&pool, &options)?;
    let all: Vec<u64> = (0..count).collect();
    OBJECTS[0].run(&store, &[all], Does::Puts(Durability::Relaxed))?;
    Ok(store)
}

/// The model of a medium, as a watcher.
type Model = Arc<Mutex<model::Model>>;

/// Objects on the model of a medium, on which each step costs a thousand times what it does, and
/// their pages, of which there shall be many all the same.
const MODEL_OBJECTS: u64 = 50_000;
const MODEL_PAGE_BYTES: u64 = 64 << 10;

/// Bytes that an Optane module would write for each byte that users put, at so many per cent.
fn media_writes(percent: u64) -> Result<f64> {
    let model: Model = Arc::new(Mutex::new(model::Model::new(model::Preset::OPTANE)));
    let store = crowded(
        MODEL_OBJECTS,
        percent,
        MODEL_PAGE_BYTES,
        Some(Arc::clone(&model)),
    )?;
    let written = || {
        let mut model = model.lock();
        model.drain_all();
        let costs = model.costs();
        costs.media_writes * costs.media_line_bytes
    };
    let before = written();
    let objects = &OBJECTS[0];
    for round in 0..4 {
        let all = numbers(Order::Uniform, MODEL_OBJECTS, round);
        objects.run(&store, &[all], Does::Puts(Durability::Relaxed))?;
    }
    let bytes = (objects.key_bytes + objects.value_bytes) as u64 * 4 * MODEL_OBJECTS;
    Ok((written() - before) as f64 / bytes as f64)
}

fn media() -> Result<()> {
    println!("| live, % | media writes per user byte (model) |");
    println!("|---:|---:|");
    for percent in [60, 80, 90] {
        println!("| {percent} | {:.2} |", media_writes(percent)?);
    }
    Ok(())
}

/// Overwrites a store of which some part of the space is live, four times over.
fn cleaning(count: u64) -> Result<()> {
    println!("| live, % | writes, M/s | moved bytes per byte of records | pages cleaned |");
    println!("|---:|---:|---:|---:|");
    let objects = &OBJECTS[0];
    for percent in [60, 80, 90] {
        let store = crowded(count, percent, 2 << 20, None)?;
        let before = store.stats();
        let mut rates = Vec::new();
        for round in 0..4 {
            let all = numbers(Order::Uniform, count, round);
            rates.push(objects.run(&store, &[all], Does::Puts(Durability::Relaxed))?);
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

/// How long it takes until a store of small objects in a file answers: closed, and left as by the
/// end of the process; and until it knows again what is live in each page. The file lies in the
/// directory for temporary files.
fn recovery(count: u64) -> Result<()> {
    let file = std::env::temp_dir().join(format!("scmkv-{}.pool", std::process::id()));
    let pool_options = || PoolOptions {
        size: count * RECORD_BYTES * 2 + (256 << 20),
        chunk_bytes: 1 << 20,
        ..Scmkv::pool_options()
    };
    let options = Options {
        capacity: Some(count),
        durability: Durability::Relaxed,
        cleans: false,
        ..Options::default()
    };
    let objects = &OBJECTS[0];
    let mut key = vec![b'k'; objects.key_bytes];
    let open = |key: &mut [u8]| -> Result<(Pool, Scmkv, f64)> {
        let begin = Instant::now();
        let pool = Pool::open(&file, pool_options())?;
        let store = Scmkv::open(&pool, &options)?;
        write_key(count / 2, key);
        assert!(store.contains(key)?, "the object is there");
        Ok((pool, store, begin.elapsed().as_secs_f64()))
    };
    let pool = Pool::create(&file, pool_options())?;
    let store = Scmkv::create(&pool, &options)?;
    objects.run(
        &store,
        &[(0..count).collect()],
        Does::Puts(Durability::Relaxed),
    )?;
    store.close()?;
    pool.close()?;
    let (pool, store, clean) = open(&mut key)?;
    let overwritten = numbers(Order::Uniform, count, 1);
    objects.run(&store, &[overwritten], Does::Puts(Durability::Relaxed))?;
    drop((store, pool));
    let (pool, store, unclean) = open(&mut key)?;
    let begin = Instant::now();
    while store.stats().pages_uncounted > 0 {
        store.work()?;
    }
    let counted = begin.elapsed().as_secs_f64();
    println!("| objects | opened after a close, ms | after a crash, ms | all counted after, ms |");
    println!("|---:|---:|---:|---:|");
    let [clean, unclean, counted] = [clean, unclean, counted].map(|seconds| seconds * 1e3);
    println!("| {count} | {clean:.1} | {unclean:.1} | {counted:.0} |");
    drop((store, pool));
    if let Err(error) = std::fs::remove_file(&file) {
        println!("{} is left: {error}", file.display());
    }
    Ok(())
}

/// A pool in memory that the system has given already, as persistent memory is: pages that it gives
/// and clears at the first touch would be half of the time of a write.
fn pool_in_memory(options: PoolOptions) -> Result<Pool> {
    let pool = Pool::anonymous(options)?;
    for word in pool.region().words().iter().step_by(4096 / 8) {
        // ORDER: Relaxed: nobody else has the pool.
        word.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    Ok(pool)
}

/// Nanoseconds of a read of memory that waits for the one before, in a GiB of a pool.
fn latency() -> Result<f64> {
    const BYTES: u64 = 1 << 30;
    const READS: u64 = 4_000_000;
    let pool = pool_in_memory(PoolOptions {
        size: 2 * BYTES,
        ..Scmkv::pool_options()
    })?;
    let block = pool.alloc_aligned(BYTES, 64, 0)?;
    let start = block.offset::<PAtomicU64>();
    pool.zero(start.raw(), BYTES);
    let mut random = Random(0);
    let begin = Instant::now();
    for _ in 0..READS {
        let word: &PAtomicU64 = pool.at(start.element(random.next() % (BYTES / 8)));
        // ORDER: Relaxed: as above.
        random.0 ^= word.peek(Ordering::Relaxed);
    }
    Ok(begin.elapsed().as_secs_f64() * 1e9 / READS as f64)
}

/// The same objects with a Masstree in memory: the tree leads to values that lie one behind the
/// other, each put to a new place. On one thread, without what it would cost to use places again.
fn masstree(count: u64) -> Result<()> {
    println!("| objects | order | writes, M/s | reads, M/s |");
    println!("|---|---|---:|---:|");
    for objects in OBJECTS {
        let count = count / objects.part;
        let tree: Masstree<[u8]> = Masstree::create(&pool_in_memory(PoolOptions {
            size: count * (objects.key_bytes as u64 + 80) * 2 + (256 << 20),
            ..Masstree::<[u8]>::pool_options()
        })?)?;
        let places = count + 2 * OPERATIONS_MAX.min(count);
        let mut values = vec![b'v'; objects.value_bytes * usize::try_from(places).unwrap_or(0)];
        let (mut key, value) = (
            vec![b'k'; objects.key_bytes],
            vec![b'w'; objects.value_bytes],
        );
        let mut next = 0;
        let mut put = |number: u64, key: &mut [u8]| -> Result<()> {
            write_key(number, key);
            values[next..][..value.len()].copy_from_slice(&value);
            tree.insert(key, next as u64)?;
            next += value.len();
            Ok(())
        };
        for number in 0..count {
            put(number, &mut key)?;
        }
        let mut lines = Vec::new();
        for order in [Order::Uniform, Order::Zipfian] {
            let all = numbers(order, count, 1);
            let begin = Instant::now();
            for &number in &all {
                put(number, &mut key)?;
            }
            lines.push((order, all, begin.elapsed()));
        }
        let mut read = vec![0; objects.value_bytes];
        for (order, all, writing) in lines {
            let begin = Instant::now();
            for &number in &all {
                write_key(number, &mut key);
                let at = tree.get(&key)?.expect("it was put");
                let at = usize::try_from(at).expect("a place");
                read.copy_from_slice(&values[at..][..objects.value_bytes]);
                std::hint::black_box(&read);
            }
            let rate = |time: Duration| all.len() as f64 / time.as_secs_f64() / 1e6;
            let [writes, reads] = [writing, begin.elapsed()].map(rate);
            println!(
                "| {} | {order:?} | {writes:.2} | {reads:.2} |",
                objects.name
            );
        }
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
    let asked = |word: &str| only.iter().any(|one| one == word);
    if asked("cleaning") {
        cleaning(count)
    } else if asked("media") {
        media()
    } else if asked("recovery") {
        recovery(count)
    } else if asked("masstree") {
        masstree(count)
    } else {
        throughput(count, threads, &only)
    }
}
