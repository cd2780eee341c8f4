//! What SCMKV does besides writing and reading, on this machine's memory: cleaning, what a medium
//! would write for that, and opening. Throughput is the lab's figure `scmkv`.
//!
//! ```sh
//! cargo run --profile measure -p gabion-index --example scmkv_figures -- TABLE [THOUSANDS]
//! ```
//!
//! By default there are a million small objects (16 + 100 bytes). Tables: `cleaning` is what the
//! cleaner does where 60, 80 and 90 % of the space are live; `media` what a medium would write for
//! that; `recovery` how long it takes to open the store.
//!
//! The memory is given by the system before anything is measured, as persistent memory is. Else its
//! clearing of pages at their first use would be half of the time of a write.
//!
//! Source: Z. Wang, L. Huang, Y. Zhu, "SCMKV", NPC 2017.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use gabion_index::scmkv::{Durability, Options};
use gabion_index::{Result, Scmkv};
use gabion_media::pmem::{Pool, PoolOptions, model};
use parking_lot::Mutex;

/// Bytes of the key and of the value of a small object.
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;

/// Operations of a round, at most.
const OPERATIONS_MAX: u64 = 1_000_000;

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
}

/// The numbers of the objects of a round, drawn before it.
fn numbers(count: u64, seed: u64) -> Vec<u64> {
    let mut random = Random(seed);
    let draw = |_| random.next() % count;
    (0..count.min(OPERATIONS_MAX)).map(draw).collect()
}

/// Puts a key together in a buffer of its size.
fn write_key(number: u64, key: &mut [u8; KEY_BYTES]) {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key[..8].copy_from_slice(&word.to_le_bytes());
    key[8..].copy_from_slice(&number.to_le_bytes());
}

/// Puts the objects of these numbers, relaxed; millions a second.
fn put(store: &Scmkv, numbers: &[u64]) -> Result<f64> {
    let begin = Instant::now();
    let (mut key, value) = ([0; KEY_BYTES], [b'w'; VALUE_BYTES]);
    for &number in numbers {
        write_key(number, &mut key);
        store.put_with(&key, &value, Durability::Relaxed)?;
    }
    Ok(numbers.len() as f64 / begin.elapsed().as_secs_f64() / 1e6)
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
    put(&store, &all)?;
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
    for round in 0..4 {
        let all = numbers(MODEL_OBJECTS, round);
        put(&store, &all)?;
    }
    let bytes = (KEY_BYTES + VALUE_BYTES) as u64 * 4 * MODEL_OBJECTS;
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
    for percent in [60, 80, 90] {
        let store = crowded(count, percent, 2 << 20, None)?;
        let before = store.stats();
        let mut rates = Vec::new();
        for round in 0..4 {
            let all = numbers(count, round);
            rates.push(put(&store, &all)?);
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
    let mut key = [0; KEY_BYTES];
    let open = |key: &mut [u8; KEY_BYTES]| -> Result<(Pool, Scmkv, f64)> {
        let begin = Instant::now();
        let pool = Pool::open(&file, pool_options())?;
        let store = Scmkv::open(&pool, &options)?;
        write_key(count / 2, key);
        assert!(store.contains(key)?, "the object is there");
        Ok((pool, store, begin.elapsed().as_secs_f64()))
    };
    let pool = Pool::create(&file, pool_options())?;
    let store = Scmkv::create(&pool, &options)?;
    put(&store, &(0..count).collect::<Vec<_>>())?;
    store.close()?;
    pool.close()?;
    let (pool, store, clean) = open(&mut key)?;
    let overwritten = numbers(count, 1);
    put(&store, &overwritten)?;
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

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let count = args.iter().find_map(|arg| arg.parse::<u64>().ok());
    let count = count.unwrap_or(1000) * 1000;
    let asked = |word: &str| args.iter().any(|arg| arg == word);
    if asked("cleaning") {
        cleaning(count)
    } else if asked("media") {
        media()
    } else if asked("recovery") {
        recovery(count)
    } else {
        println!("name a table: cleaning, media or recovery");
        Ok(())
    }
}
