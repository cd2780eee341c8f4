//! The indexes in DRAM beside concurrent maps, 8 + 8 bytes, larger than the cache.
//!
//! ```sh
//! cargo bench -p gabion-index --features maps --bench maps -- ENTRIES THREADS ROUNDS [MAP...]
//! ```
//!
//! By default 8,000,000 entries, one thread, 3 rounds, all hash maps; 50,000,000 entries need 6
//! GiB of memory. Each phase has as many operations as there are entries; `--operations N` makes it
//! so many in all phases but the insertions. With `--flush` the indexes flush and fence as they do
//! on persistent memory.
//!
//! Every index of the registry can be named, `fastfair` or `p-art` for example, `btreemap`, which
//! is the standard one under a lock, and `treeindex`, the B+-tree of the crate `scc`, whose
//! readers take no lock and whose scans are not measured. In each round every map is made, filled,
//! read, asked for absent keys, updated, read with 5 % (`B`) and with 50 % (`A`) inserts of new
//! keys among the reads, scanned by 50 entries and by 1 to 100 with 5 % inserts among the scans
//! (`E`) if it is ordered, and drained in its turn, every thread with its share of random keys;
//! what is shown are the medians of the rounds. A rate is that of the processor time of the
//! threads, times their number, so that other work on the machine disturbs it little; on an idle
//! machine that is the rate of the clock.
//!
//! The row `machine` is what the memory itself gives at the same time: reads of random cache lines
//! of as many bytes as the table has, each of which waits for the one before (`chained`), or none
//! of which does (`independent`).

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_index::index::IndexPlan;
use gabion_index::turbo::Options;
use gabion_index::{Index, TurboHash, registry};
use gabion_media::pmem::{PAtomicU64, Pool, PoolOptions, ROOT_HINT};
use parking_lot::RwLock;

/// What is measured of a map.
trait Map: Sync {
    fn insert(&self, key: u64, value: u64);
    fn get(&self, key: u64) -> Option<u64>;
    fn update(&self, key: u64, value: u64);
    fn remove(&self, key: u64) -> bool;
    /// Looks up many keys and counts those found; none if the map has no such operation.
    fn get_many(&self, _keys: &[u64]) -> Option<usize> {
        None
    }
    /// Asks for entries from a key on and counts them; none if the map knows no order.
    fn scan(&self, _from: u64, _limit: usize) -> Option<usize> {
        None
    }
    /// Stores many entries; false if the map has no such operation.
    fn put_many(&self, _entries: &[(u64, u64)]) -> bool {
        false
    }
}

impl Map for TurboHash<u64, u64> {
    fn insert(&self, key: u64, value: u64) {
        self.put(&key, &value).expect("space");
    }

    fn get(&self, key: u64) -> Option<u64> {
        TurboHash::get(self, &key).expect("sound")
    }

    fn update(&self, key: u64, value: u64) {
        self.put(&key, &value).expect("space");
    }

    fn remove(&self, key: u64) -> bool {
        TurboHash::remove(self, &key).expect("sound").is_some()
    }

    fn get_many(&self, keys: &[u64]) -> Option<usize> {
        let mut values = [None; BATCH];
        let values = &mut values[..keys.len()];
        TurboHash::get_many(self, keys, values).expect("sound");
        Some(values.iter().flatten().count())
    }

    fn put_many(&self, entries: &[(u64, u64)]) -> bool {
        TurboHash::put_many(self, entries).is_ok()
    }
}

impl Map for dashmap::DashMap<u64, u64> {
    fn insert(&self, key: u64, value: u64) {
        dashmap::DashMap::insert(self, key, value);
    }

    fn get(&self, key: u64) -> Option<u64> {
        dashmap::DashMap::get(self, &key).map(|value| *value)
    }

    fn update(&self, key: u64, value: u64) {
        dashmap::DashMap::insert(self, key, value);
    }

    fn remove(&self, key: u64) -> bool {
        dashmap::DashMap::remove(self, &key).is_some()
    }
}

impl Map for papaya::HashMap<u64, u64> {
    fn insert(&self, key: u64, value: u64) {
        self.pin().insert(key, value);
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.pin().get(&key).copied()
    }

    fn update(&self, key: u64, value: u64) {
        self.pin().insert(key, value);
    }

    fn remove(&self, key: u64) -> bool {
        self.pin().remove(&key).is_some()
    }
}

impl Map for scc::HashMap<u64, u64> {
    fn insert(&self, key: u64, value: u64) {
        let _ = scc::HashMap::insert(self, key, value);
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.read(&key, |_, value| *value)
    }

    fn update(&self, key: u64, value: u64) {
        scc::HashMap::update(self, &key, |_, old| *old = value);
    }

    fn remove(&self, key: u64) -> bool {
        scc::HashMap::remove(self, &key).is_some()
    }
}

/// A value that is changed in place. The tree's ranges are not measured: those of version 2.4 of
/// `scc` took 200 microseconds and more for 50 of 20,000 entries, wherever they began.
#[derive(Debug)]
struct Cell(AtomicU64);

// ORDER: Relaxed throughout: values publish nothing.
impl Clone for Cell {
    fn clone(&self) -> Cell {
        Cell(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl Map for scc::TreeIndex<u64, Cell> {
    fn insert(&self, key: u64, value: u64) {
        let _ = scc::TreeIndex::insert(self, key, Cell(AtomicU64::new(value)));
    }

    fn get(&self, key: u64) -> Option<u64> {
        // ORDER: as above.
        self.peek_with(&key, |_, value| value.0.load(Ordering::Relaxed))
    }

    fn update(&self, key: u64, value: u64) {
        // ORDER: as above.
        self.peek_with(&key, |_, old| old.0.store(value, Ordering::Relaxed));
    }

    fn remove(&self, key: u64) -> bool {
        scc::TreeIndex::remove(self, &key)
    }
}

/// An index of the registry.
struct Registered(Box<dyn Index<u64>>);

impl Registered {
    fn new(index: &registry::Registered, size: Size) -> Registered {
        let Size { entries, .. } = size;
        let options = PoolOptions {
            size: entries * 400 + (64 << 20),
            chunk_bytes: 1 << 20,
            always_flush: size.is_flushed,
            ..(index.words.pool_options)()
        };
        let pool = Pool::anonymous(options).expect("memory");
        let plan = IndexPlan {
            capacity: entries,
            seed: None,
        };
        Registered((index.words.create)(&pool, plan).expect("an index"))
    }
}

impl Map for Registered {
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(&key, value).expect("space");
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).expect("sound")
    }

    fn update(&self, key: u64, value: u64) {
        self.0.update(&key, value).expect("space");
    }

    fn remove(&self, key: u64) -> bool {
        self.0.remove(&key).expect("sound").is_some()
    }

    fn scan(&self, from: u64, limit: usize) -> Option<usize> {
        let ordered = self.0.ordered()?;
        let mut found = Vec::with_capacity(limit);
        ordered.scan(&from, limit, &mut found).expect("sound");
        Some(found.len())
    }
}

impl Map for RwLock<BTreeMap<u64, u64>> {
    fn insert(&self, key: u64, value: u64) {
        self.write().insert(key, value);
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.read().get(&key).copied()
    }

    fn update(&self, key: u64, value: u64) {
        self.write().insert(key, value);
    }

    fn remove(&self, key: u64) -> bool {
        self.write().remove(&key).is_some()
    }

    fn scan(&self, from: u64, limit: usize) -> Option<usize> {
        let map = self.read();
        let entries = map.range(from..).take(limit);
        let found: Vec<_> = entries.map(|(key, value)| (*key, *value)).collect();
        Some(black_box(found).len())
    }
}

/// `hashbrown` tables, each behind a lock.
struct Locked {
    hasher: hashbrown::DefaultHashBuilder,
    tables: Vec<RwLock<hashbrown::HashMap<u64, u64>>>,
}

impl Locked {
    const TABLES: usize = 64;

    fn new(capacity: usize) -> Locked {
        let table = |_| RwLock::new(hashbrown::HashMap::with_capacity(capacity / Locked::TABLES));
        Locked {
            hasher: hashbrown::DefaultHashBuilder::default(),
            tables: (0..Locked::TABLES).map(table).collect(),
        }
    }

    fn table(&self, key: u64) -> &RwLock<hashbrown::HashMap<u64, u64>> {
        let hash = self.hasher.hash_one(key) >> 40;
        &self.tables[usize::try_from(hash).expect("24 bits") % Locked::TABLES]
    }
}

impl Map for Locked {
    fn insert(&self, key: u64, value: u64) {
        self.table(key).write().insert(key, value);
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.table(key).read().get(&key).copied()
    }

    fn update(&self, key: u64, value: u64) {
        self.table(key).write().insert(key, value);
    }

    fn remove(&self, key: u64) -> bool {
        self.table(key).write().remove(&key).is_some()
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Size {
    entries: u64,
    /// Operations of each phase but the first.
    operations: u64,
    threads: u64,
    is_flushed: bool,
}

/// Keys of a batch.
const BATCH: usize = 256;

/// A permutation of the words, to make keys of numbers.
fn key_of(number: u64) -> u64 {
    let mut key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key ^= key >> 32;
    key = key.wrapping_mul(0xd6e8_feb8_6659_fd93);
    key ^ (key >> 29)
}

/// A number below `limit`, drawn by `seed`.
fn draw(seed: u64, limit: u64) -> u64 {
    let wide = u128::from(key_of(seed ^ 0x5bd1_e995_1234)) * u128::from(limit);
    u64::try_from(wide >> 64).expect("a high half")
}

/// Nanoseconds of processor time of this thread.
fn processor_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split(' ').next().unwrap_or_default();
    first.parse().unwrap_or(f64::NAN)
}

/// Memory of the process in bytes.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Rates in M/s, or bytes per entry, of all rounds, by row and column.
#[derive(Default)]
struct Figures {
    columns: Vec<&'static str>,
    rounds: BTreeMap<(String, &'static str), Vec<f64>>,
}

impl Figures {
    fn add(&mut self, row: &str, column: &'static str, figure: f64) {
        if !self.columns.contains(&column) {
            self.columns.push(column);
        }
        let rounds = self.rounds.entry((row.to_owned(), column)).or_default();
        rounds.push(figure);
    }

    fn median(&self, row: &str, column: &'static str) -> Option<f64> {
        let mut rounds = self.rounds.get(&(row.to_owned(), column))?.clone();
        rounds.sort_unstable_by(f64::total_cmp);
        rounds.get(rounds.len() / 2).copied()
    }

    fn print(&self, rows: &[&str]) {
        print!("{:10}", "M/s");
        self.columns.iter().for_each(|name| print!(" {name:>14}"));
        for row in rows {
            print!("\n{row:10}");
            for column in &self.columns {
                match self.median(row, column) {
                    Some(figure) => print!(" {figure:>14.2}"),
                    None => print!(" {:>14}", ""),
                }
            }
        }
        println!("\n\nns per operation and thread; a chained read of the machine counts as 1");
        let wait = self.median("machine", "chained").unwrap_or(f64::NAN);
        for row in rows {
            print!("{row:10}");
            for column in self.columns.iter().filter(|name| **name != BYTES) {
                match self.median(row, column) {
                    Some(rate) => print!(" {:>7.1} {:>6.2}", 1e3 / rate, wait / rate),
                    None => print!(" {:>14}", ""),
                }
            }
            println!();
        }
    }
}

const BYTES: &str = "bytes/entry";

/// Runs `work` with each of the ranges that the threads share `entries` in; M/s.
fn rate(entries: u64, threads: u64, work: impl Fn(std::ops::Range<u64>) + Sync) -> f64 {
    let part = |thread| entries * thread / threads..entries * (thread + 1) / threads;
    let run = |range| {
        let before = processor_ns();
        work(range);
        processor_ns() - before
    };
    let run = &run;
    let processor: f64 = std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || run(part(thread))))
            .collect();
        spawned
            .into_iter()
            .map(|thread| thread.join().expect("a thread"))
            .sum()
    });
    entries as f64 / processor * 1e3 * threads as f64
}

/// What the memory gives.
fn measure_machine(entries: u64, threads: u64, figures: &mut Figures) {
    let lines = entries / 2;
    let pool = Pool::anonymous(PoolOptions {
        size: lines * 64 + (64 << 20),
        ..PoolOptions::default()
    })
    .expect("memory");
    let block = pool.alloc(lines * 64, ROOT_HINT).expect("memory");
    let words = block.offset::<PAtomicU64>();
    let line_at = |number: u64| -> &PAtomicU64 { pool.at(words.element(number * 8)) };
    // ORDER: Relaxed: nobody else knows the memory.
    (0..lines).for_each(|line| line_at(line).store(&pool, key_of(line), Ordering::Relaxed));
    let chained = |range: std::ops::Range<u64>| {
        let mut state = range.start;
        for _ in range {
            state = key_of(state ^ line_at(draw(state, lines)).peek(Ordering::Relaxed));
        }
        black_box(state);
    };
    let independent = |range: std::ops::Range<u64>| {
        let read = |seed| line_at(draw(seed, lines)).peek(Ordering::Relaxed);
        black_box(range.map(read).fold(0, u64::wrapping_add));
    };
    figures.add("machine", "chained", rate(entries / 4, threads, chained));
    figures.add(
        "machine",
        "independent",
        rate(entries, threads, independent),
    );
}

fn measure(name: &str, size: Size, figures: &mut Figures) {
    let Size {
        entries, threads, ..
    } = size;
    let before = memory();
    let map = &*make(name, size);
    let inserted = rate(entries, threads, |range| {
        range.for_each(|number| map.insert(key_of(number), number));
    });
    figures.add(name, "insert", inserted);
    let bytes = memory().saturating_sub(before) as f64 / entries as f64;
    let mut phase = |column, work: &(dyn Fn(std::ops::Range<u64>) + Sync)| {
        figures.add(name, column, rate(size.operations, threads, work));
    };
    phase("read", &|range| {
        range.for_each(|seed| assert!(map.get(key_of(draw(seed, entries))).is_some()));
    });
    phase("missing", &|range| {
        range.for_each(|number| assert!(map.get(key_of(number + entries * 7)).is_none()));
    });
    phase("update", &|range| {
        range.for_each(|seed| map.update(key_of(draw(seed, entries)), seed));
    });
    for (column, percent) in [("B", 5), ("A", 50)] {
        let first = entries * (percent + 10);
        phase(column, &|range| {
            for number in range {
                if draw(number, 100) < percent {
                    map.insert(key_of(first + number), number);
                } else {
                    assert!(map.get(key_of(draw(number + 1, entries))).is_some());
                }
            }
        });
    }
    if map.scan(0, 1).is_some() {
        phase("scan50", &|range| {
            for seed in range {
                black_box(map.scan(key_of(draw(seed, entries)), 50));
            }
        });
        let first = entries * 80;
        phase("E", &|range| {
            for number in range {
                if draw(number, 100) < 5 {
                    map.insert(key_of(first + number), number);
                } else {
                    let limit = draw(number + 2, 100) + 1;
                    let limit = usize::try_from(limit).expect("a small number");
                    black_box(map.scan(key_of(draw(number + 1, entries)), limit));
                }
            }
        });
    }
    if map.get_many(&[key_of(0)]).is_some() {
        let read_many = |range: std::ops::Range<u64>, key: &dyn Fn(u64) -> u64, found| {
            let mut keys = [0; BATCH];
            for first in range.step_by(BATCH) {
                for (seed, place) in (first..).zip(&mut keys) {
                    *place = key(seed);
                }
                assert_eq!(map.get_many(&keys), Some(found));
            }
        };
        phase("batched read", &|range| {
            read_many(range, &|seed| key_of(draw(seed, entries)), BATCH);
        });
        phase("batched missing", &|range| {
            read_many(range, &|number| key_of(number + entries * 7), 0);
        });
        phase("batched update", &|range| {
            let mut updates = [(0, 0); BATCH];
            for first in range.step_by(BATCH) {
                for (seed, entry) in (first..).zip(&mut updates) {
                    *entry = (key_of(draw(seed, entries)), seed);
                }
                assert!(map.put_many(&updates));
            }
        });
    }
    phase("delete", &|range| {
        range.for_each(|number| assert!(map.remove(key_of(number))));
    });
    figures.add(name, BYTES, bytes);
}

fn turbohash(size: Size) -> TurboHash<u64, u64> {
    let Size { entries, .. } = size;
    let options = PoolOptions {
        size: entries * 100 + (64 << 20),
        chunk_bytes: 1 << 20,
        always_flush: size.is_flushed,
        ..TurboHash::<u64, u64>::pool_options()
    };
    let pool = Pool::anonymous(options).expect("memory");
    let options = Options {
        capacity: entries,
        ..Options::default()
    };
    TurboHash::create(&pool, &options).expect("a table")
}

fn make(name: &str, size: Size) -> Box<dyn Map> {
    let capacity = usize::try_from(size.entries).expect("a number of entries");
    match name {
        "turbohash" => Box::new(turbohash(size)),
        "dashmap" => Box::new(dashmap::DashMap::with_capacity(capacity)),
        "papaya" => Box::new(papaya::HashMap::with_capacity(capacity)),
        "scc" => Box::new(scc::HashMap::with_capacity(capacity)),
        "treeindex" => Box::new(scc::TreeIndex::<u64, Cell>::new()),
        "btreemap" => Box::new(RwLock::new(BTreeMap::<u64, u64>::new())),
        "hashbrown" => Box::new(Locked::new(capacity)),
        _ => match registry::by_name(name) {
            Some(index) => Box::new(Registered::new(index, size)),
            None => panic!("no map is called {name}"),
        },
    }
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let is_flushed = args.iter().any(|arg| arg == "--flush");
    let mut operations = None;
    if let Some(at) = args.iter().position(|arg| arg == "--operations") {
        operations = args.get(at + 1).and_then(|arg| arg.parse().ok());
        args.drain(at..(at + 2).min(args.len()));
    }
    args.retain(|arg| !arg.starts_with("--"));
    let mut args = args.into_iter().peekable();
    let mut number = |default| {
        let parsed = args.peek().and_then(|arg| arg.parse().ok());
        if parsed.is_some() {
            args.next();
        }
        parsed.unwrap_or(default)
    };
    let (entries, threads): (u64, u64) = (number(8_000_000), number(1));
    let rounds = number(3);
    let size = Size {
        entries,
        operations: operations.unwrap_or(entries).min(entries),
        threads,
        is_flushed,
    };
    let wanted: Vec<String> = args.collect();
    let mut names = vec!["turbohash", "dashmap", "papaya", "scc", "hashbrown"];
    if !wanted.is_empty() {
        names = wanted.iter().map(String::as_str).collect();
    }
    let Size { operations, .. } = size;
    println!(
        "{entries} entries, {operations} operations, {threads} threads, medians of {rounds} rounds"
    );
    let mut figures = Figures::default();
    for _ in 0..rounds {
        measure_machine(entries, threads, &mut figures);
        for name in &names {
            measure(name, size, &mut figures);
        }
    }
    let rows: Vec<_> = ["machine"].into_iter().chain(names).collect();
    figures.print(&rows);
}
