//! Measures what persistent memory costs through a pool: persists, the abstraction itself, and the
//! allocator beside the system's.
//!
//! ```sh
//! cargo run --profile measure -p gabion-media --example pmem_bench
//! ```
//!
//! Figures that are compared are taken in turns, and the best of several rounds counts, so that
//! other work on the machine disturbs them little.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::time::Instant;

use gabion_media::Result;
use gabion_media::pmem::{PAtomicU64, POff, Pool, PoolOptions, ROOT_HINT};

const ROUNDS: usize = 9;

/// Words of the table that is stored to: 32 MiB, more than the caches of one core.
const WORDS: u64 = 4 << 20;

fn main() -> Result<()> {
    persists()?;
    abstraction()?;
    for threads in [1, 2] {
        allocations(threads)?;
    }
    Ok(())
}

/// Numbers that no cache foresees (a linear congruential generator with Knuth's factor).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        self.0 >> 20
    }
}

/// Nanoseconds of each of `count` runs of an operation.
fn ns_of(count: u64, mut operation: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..count).for_each(&mut operation);
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

/// The best of several rounds for each of some measurements, taken in turns.
fn best_in_turns<const N: usize>(mut measure: [&mut dyn FnMut() -> f64; N]) -> [f64; N] {
    let mut best = [f64::INFINITY; N];
    for _ in 0..ROUNDS {
        for (best, measure) in best.iter_mut().zip(&mut measure) {
            *best = best.min(measure());
        }
    }
    best
}

fn table(pool: &Pool) -> Result<&[PAtomicU64]> {
    let block = pool.alloc(WORDS * 8, ROOT_HINT)?;
    let words = block.offset::<PAtomicU64>();
    pool.zero(words.raw(), WORDS * 8);
    pool.fence();
    pool.set_root(words);
    block.commit::<PAtomicU64>();
    Ok(pool.slice(words, usize::try_from(WORDS).unwrap_or(0)))
}

fn pool(always_flush: bool) -> Result<Pool> {
    Pool::anonymous(PoolOptions {
        size: 1 << 30,
        always_flush,
        ..PoolOptions::default()
    })
}

/// Store, flush and fence of 8 to 256 bytes at random places.
fn persists() -> Result<()> {
    println!("store + flush + fence in ordinary memory, ns each");
    let flushing = pool(true)?;
    let plain = pool(false)?;
    for pool in [&flushing, &plain] {
        table(pool)?;
    }
    println!(
        "{:>8} {:>12} {:>12} {:>14}",
        "bytes", "flushed", "past cache", "no flush"
    );
    for size in [8_u64, 64, 256] {
        let bytes = vec![7_u8; usize::try_from(size).unwrap_or(0)];
        let run = |pool: &Pool, is_past_cache: bool| {
            let base = pool.root::<PAtomicU64>().raw();
            let mut random = Random(1);
            ns_of(200_000, |_| {
                let at = base + random.next() % (WORDS * 8 / 256) * 256;
                if is_past_cache {
                    pool.write_past_cache(at, &bytes);
                } else {
                    pool.write(at, &bytes);
                    pool.flush_range(at, size);
                }
                pool.fence();
            })
        };
        let [flushed, past, unflushed] = best_in_turns([
            &mut || run(&flushing, false),
            &mut || run(&flushing, true),
            &mut || run(&plain, false),
        ]);
        println!("{size:>8} {flushed:>12.1} {past:>12.1} {unflushed:>14.1}");
    }
    Ok(())
}

// ORDER: Relaxed throughout: one thread; the orders are those that an index would use.
/// A random insert of 16 bytes through the pool and by plain atomics.
fn abstraction() -> Result<()> {
    let pool = pool(false)?;
    let words = table(&pool)?;
    let plain: Vec<AtomicU64> = (0..WORDS).map(AtomicU64::new).collect();
    println!("\ninsert of 16 bytes (key, then value, then persist), ns each");
    for (name, span) in [("in the cache", 1024), ("in memory", WORDS / 2)] {
        let count = 2_000_000;
        let [through, direct] = best_in_turns([
            &mut || {
                let mut random = Random(2);
                ns_of(count, |key| {
                    let at = usize::try_from((random.next() & (span - 1)) * 2).unwrap_or(0);
                    words[at + 1].store(&pool, key, Ordering::Relaxed);
                    pool.persist(&words[at + 1]);
                    // ORDER: Release, as a publish would be.
                    words[at].store_persist(&pool, key, Ordering::Release);
                })
            },
            &mut || {
                let mut random = Random(2);
                ns_of(count, |key| {
                    let at = usize::try_from((random.next() & (span - 1)) * 2).unwrap_or(0);
                    plain[at + 1].store(key, Ordering::Relaxed);
                    // ORDER: Release, as the fence of the pool and a publish.
                    compiler_fence(Ordering::Release);
                    plain[at].store(key, Ordering::Release);
                    compiler_fence(Ordering::Release);
                })
            },
        ]);
        let more = (through / direct - 1.0) * 100.0;
        println!("{name:>14}: pool {through:.2}, by hand {direct:.2}, difference {more:+.1} %");
    }
    Ok(())
}

/// Blocks that one thread keeps while it replaces them at random.
const KEPT: u64 = 4096;

/// Replaces random blocks by new ones: one allocation and one free for each operation.
fn allocations(threads: u64) -> Result<()> {
    println!("\nallocate, write 8 bytes, publish, free another; {threads} thread(s), M/s in all");
    println!(
        "{:>8} {:>10} {:>10} {:>10}",
        "bytes", "memory", "intents", "system"
    );
    for size in [16, 64, 256, 1024, 4096] {
        let memory = pool(false)?;
        let dir = std::env::temp_dir().join(format!("gabion-pmem-bench-{}", std::process::id()));
        let options = PoolOptions {
            size: 1 << 30,
            ..PoolOptions::default()
        };
        let file = Pool::create(&dir, options)?;
        // The mapping keeps the file until the pool is dropped.
        let removed = std::fs::remove_file(&dir);
        let [in_memory, in_file, system] = best_in_turns([
            &mut || -rate(threads, |_| replace_in_pool(&memory, size)),
            &mut || -rate(threads, |_| replace_in_pool(&file, size)),
            &mut || -rate(threads, |_| replace_on_heap(size)),
        ])
        .map(|rate| -rate / 1e6);
        println!("{size:>8} {in_memory:>10.2} {in_file:>10.2} {system:>10.2}");
        drop(removed);
    }
    Ok(())
}

const OPERATIONS: u64 = 200_000;

fn rate(threads: u64, work: impl Fn(u64) + Sync) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
    (threads * OPERATIONS) as f64 / start.elapsed().as_secs_f64()
}

fn replace_in_pool(pool: &Pool, size: u64) {
    let mut kept: Vec<u64> = Vec::new();
    let mut random = Random(3);
    for op in 0..OPERATIONS {
        let Ok(block) = pool.alloc(size, 0) else {
            return;
        };
        let at = block.offset::<PAtomicU64>();
        // ORDER: Relaxed: nobody else knows the block.
        pool.at(at).store(pool, op, Ordering::Relaxed);
        pool.persist(pool.at(at));
        let block = block.commit::<u8>();
        if (kept.len() as u64) < KEPT {
            kept.push(block.raw());
            continue;
        }
        let place = usize::try_from(random.next() % KEPT).unwrap_or(0);
        let old = std::mem::replace(&mut kept[place], block.raw());
        retire(pool, old);
    }
    kept.into_iter().for_each(|block| retire(pool, block));
}

fn retire(pool: &Pool, block: u64) {
    if let Ok(old) = pool.retire(POff::<u8>::new(block), 0) {
        pool.fence();
        old.commit(&pool.enter());
    }
}

fn replace_on_heap(size: u64) {
    let size = usize::try_from(size).unwrap_or(8);
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut random = Random(3);
    for op in 0..OPERATIONS {
        let mut block: Vec<u8> = Vec::with_capacity(size);
        block.extend(op.to_le_bytes());
        let block = black_box(block);
        if (kept.len() as u64) < KEPT {
            kept.push(block);
            continue;
        }
        let place = usize::try_from(random.next() % KEPT).unwrap_or(0);
        drop(std::mem::replace(&mut kept[place], block));
    }
}
