//! Measures how long readers of a FlexDB store wait for writers and merges.
//!
//! ```text
//! cargo run --profile measure --example reader_waits -- DIRECTORY [RECORDS [SECONDS [THREADS]]]
//! ```
//!
//! Makes a new store of so many records, then one thread gets random ones while another one
//! overwrites them, with so many threads in the background; without any, the writer merges. The
//! cache has a sixteenth of the records, so most gets meet the locks of the space. Tells
//!
//! - the slowest gets, with and without the time in which the system had no processor for the
//!   reader's thread, which it tells in `schedstat`: what is left is work, locks and the medium;
//! - for how long each lock was asked for and held alone, which is what a reader can wait for it.
//!
//! Where more threads run than there are processors, the system stops some that hold a lock, for
//! milliseconds. What the locks themselves cost shows on an idle machine and without threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gabion::{Db, Durability, Engine, Options, ReaderWaits, Tuning};

const KEY_BYTES: usize = 27;
const VALUE_BYTES: usize = 127;

/// A get that takes as long is looked at.
const SLOW: Duration = Duration::from_micros(50);

/// Gets between two looks at what the system says of the thread.
const STRIDE: u64 = 64;

/// What the gets beside the writer took.
#[derive(Default)]
struct Gets {
    count: u64,
    slow: u64,
    longest: Duration,
    /// The longest one without the wait for a processor.
    longest_running: Duration,
}

fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'k'; KEY_BYTES];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

/// The next number of a sequence without order (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// For how long the calling thread could have run and had no processor; nothing where the system
/// does not tell.
fn without_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = text.split(' ').nth(1).and_then(|field| field.parse().ok());
    Duration::from_nanos(waited.unwrap_or_default())
}

fn read(db: &Db, records: u64, done: &AtomicBool) -> gabion::Result<Gets> {
    let mut gets = Gets::default();
    let mut random = 88_172_645_463_325_252;
    let mut before = without_processor();
    // ORDER: Relaxed; the flag stands for itself.
    while !done.load(Ordering::Relaxed) {
        let key = key(next(&mut random) % records);
        let begin = Instant::now();
        let found = db.get(key)?;
        let time = begin.elapsed();
        assert!(found.is_some(), "all records are there");
        gets.count += 1;
        gets.longest = gets.longest.max(time);
        if time >= SLOW || gets.count.is_multiple_of(STRIDE) {
            let now = without_processor();
            if time >= SLOW {
                gets.slow += 1;
                let running = time.saturating_sub(now - before);
                gets.longest_running = gets.longest_running.max(running);
            }
            before = now;
        }
    }
    Ok(gets)
}

fn print(waits: &ReaderWaits) {
    println!(
        "readers could be kept out {} times, for {} us at most, {} ms together",
        waits.count,
        waits.longest_ns / 1_000,
        waits.total_ns / 1_000_000
    );
    for (class, count) in waits.by_micros.iter().enumerate() {
        if *count > 0 {
            println!("  below {:>8} us: {count}", 1_u64 << class);
        }
    }
}

fn main() -> gabion::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("the directory of a new store");
    let mut number = |default| {
        let argument = arguments.next().map(|text| text.parse());
        argument.map_or(default, |number| number.expect("a number"))
    };
    let (records, seconds, threads) = (number(4_000_000).max(1), number(10), number(0));
    let db = Options::default()
        .engine(Engine::Flex)
        .error_if_exists(true)
        .durability(Durability::Buffered)
        .tuning(Tuning::default().cache_bytes(records * (KEY_BYTES + VALUE_BYTES) as u64 / 16))
        .background_threads(usize::try_from(threads).expect("a number of threads"))
        .open(&path)?;
    for number in 0..records {
        db.put(key(number), [7; VALUE_BYTES])?;
    }
    db.flush()?;
    println!("{records} records, {threads} threads in the background");
    println!("fill:");
    print(&db.reader_waits().unwrap_or_default());

    let filled = db.reader_waits().unwrap_or_default();
    let (done, puts) = (AtomicBool::new(false), AtomicU64::new(0));
    let gets = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&db, records, &done));
        let mut random = 7;
        let begin = Instant::now();
        let mut result = Ok(());
        while begin.elapsed() < Duration::from_secs(seconds) && result.is_ok() {
            let key = key(next(&mut random) % records);
            result = db.put(key, next(&mut random).to_le_bytes().repeat(16));
            // ORDER: Relaxed; a figure.
            puts.fetch_add(1, Ordering::Relaxed);
        }
        // ORDER: Relaxed; the flag stands for itself.
        done.store(true, Ordering::Relaxed);
        let gets = reader.join().expect("the reader does not panic")?;
        result.map(|()| gets)
    })?;
    println!(
        "{} gets beside {} puts, {} of {} us or more",
        gets.count,
        puts.into_inner(),
        gets.slow,
        SLOW.as_micros()
    );
    println!(
        "the slowest get took {:?}, without the wait for a processor {:?}",
        gets.longest, gets.longest_running
    );
    print(&since(&db.reader_waits().unwrap_or_default(), &filled));
    db.close()
}

/// What was counted between two looks. The longest time is that of both.
fn since(now: &ReaderWaits, before: &ReaderWaits) -> ReaderWaits {
    let mut waits = now.clone();
    waits.count -= before.count;
    waits.total_ns -= before.total_ns;
    for (own, before) in waits.by_micros.iter_mut().zip(before.by_micros) {
        *own -= before;
    }
    waits
}
