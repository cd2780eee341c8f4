//! SCMKV beside a Masstree, in memory: throughput of writes and reads, of small and large objects,
//! uniform and skewed, with and without flushes.
//!
//! A store holds all objects; then a thread writes, or reads, as many as there are, or a million if
//! that is less, of numbers that were drawn before. The Masstree leads to values that lie one
//! behind the other, each put to a new place, without what it would cost to use places again. All
//! memory was given by the system before anything is measured, as persistent memory is: else its
//! clearing of pages at their first use would be half of the time of a write. The paper runs in
//! DRAM, as this does.
//!
//! Source: Z. Wang, L. Huang, Y. Zhu, "SCMKV", NPC 2017, section 4, figures 8 to 10.

use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use gabion_index::scmkv::{Durability, Options};
use gabion_index::{Masstree, Result, Scmkv};
use gabion_media::pmem::{PAtomicU64, Pool, PoolOptions};

use super::Shown;
use crate::rows::{Table, column};
use crate::scale::Scale;
use crate::workload::generators::{Generator, Items};
use crate::workload::keys::KeyId;
use crate::workload::{Distribution, mix};

/// Objects of one size.
#[derive(Clone, Copy)]
struct Objects {
    name: &'static str,
    key_bytes: usize,
    value_bytes: usize,
    /// The paper's.
    count: u64,
}

const OBJECTS: [Objects; 2] = [
    Objects {
        name: "small",
        key_bytes: 16,
        value_bytes: 100,
        count: 64 << 20,
    },
    Objects {
        name: "large",
        key_bytes: 128,
        value_bytes: 512,
        count: 8 << 20,
    },
];

const ORDERS: [Distribution; 2] = [Distribution::Uniform, Distribution::Zipfian];

/// Operations of a thread in a run, at most.
const OPERATIONS_MAX: u64 = 1_000_000;

/// Bytes of a record in a pool beside key and value, at most.
const RECORD_BYTES: u64 = 64;

/// Bytes among which reads wait for one another, and how many reads, at the paper's size.
const LATENCY_BYTES: u64 = 32 << 30;
const LATENCY_READS: u64 = 120_000_000;

/// Throughput of a store, in millions per second.
struct Rates {
    order: Distribution,
    threads: u64,
    writes: f64,
    reads: f64,
    /// Writes each of which is flushed as a whole; a Masstree has one kind of writes.
    strict_writes: Option<f64>,
}

/// Figures 8 to 10: writes and reads, millions per second.
pub(crate) fn throughput(scale: Scale) -> Shown {
    let processors = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let columns = [column("time", "ns", 0)];
    let mut memory = Table::new("", &["memory"], columns).named("memory");
    let wait = latency_ns(scale)?;
    memory.row(&["a read that waits for the one before"], [wait]);
    let columns = ["writes", "reads", "strict writes"].map(|name| column(name, "M/s", 2));
    let axes = &["objects", "system", "order", "threads"];
    let mut table = Table::new(Objects::about(scale), axes, columns).headings(1);
    for objects in OBJECTS {
        let count = scale.of(objects.count, 2000);
        for (system, flushes) in [("SCMKV-noflush", false), ("SCMKV-flush", true)] {
            for rates in objects.scmkv(count, flushes, processors)? {
                rates.row(objects.name, system, &mut table);
            }
        }
        for rates in objects.masstree(count)? {
            rates.row(objects.name, "Masstree", &mut table);
        }
    }
    let table = table.note(
        "paper: with flushes 2.6 times Masstree's writes of small uniform objects and 7 times of \
         large ones, 10 and 30 times LevelDB's; flushes cost 40 % of small and 20 % of large \
         skewed writes; 2.1 M/s on one core, 5.4 on four, 6.7 on ten",
    );
    Ok(vec![memory, table])
}

impl Rates {
    fn row(&self, objects: &str, system: &str, table: &mut Table) {
        let at = [
            objects,
            system,
            self.order.name(),
            &self.threads.to_string(),
        ];
        let values = [Some(self.writes), Some(self.reads), self.strict_writes];
        table.row(&at, values);
    }
}

/// The numbers of the objects of a run, drawn before it.
fn numbers(order: Distribution, count: u64, stream: u64) -> Vec<u64> {
    let items = Items::new(count, 1);
    let operations = count.min(OPERATIONS_MAX);
    let mut generator = Generator::new(order, &items, 0, operations, 1, stream);
    let mut ids = vec![KeyId::default(); usize::try_from(operations).unwrap_or(0)];
    generator.fill(&mut ids, count);
    ids.iter().map(|id| id.number).collect()
}

/// Makes the first bytes of a key those of object `number`. Neighbours in popularity are none in
/// the table.
fn write_key(number: u64, key: &mut [u8]) {
    key[..8].copy_from_slice(&mix(number).to_le_bytes());
    key[8..16].copy_from_slice(&number.to_le_bytes());
}

/// Millions per second of `operations` in the time since `start`.
fn rate(operations: usize, start: Instant) -> f64 {
    operations as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// What the threads of a run do.
#[derive(Clone, Copy)]
enum Does {
    Puts(Durability),
    Gets,
}

impl Objects {
    /// How many there are of each size.
    fn about(scale: Scale) -> String {
        let told = OBJECTS.map(|objects| {
            let Objects {
                name,
                key_bytes,
                value_bytes,
                ..
            } = objects;
            let count = scale.of(objects.count, 2000);
            format!("{name}: {count} objects of {key_bytes} + {value_bytes} bytes")
        });
        told.join("; ")
    }

    /// Rates of a store of `count` objects: of each order, on one thread and on more.
    fn scmkv(self, count: u64, flushes: bool, threads_max: u64) -> Result<Vec<Rates>> {
        let bytes = (self.key_bytes + self.value_bytes) as u64 + RECORD_BYTES;
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
        let relaxed = Does::Puts(Durability::Relaxed);
        self.run(&store, &[(0..count).collect()], relaxed)?;
        let mut stream = 0;
        let mut all = Vec::new();
        for order in ORDERS {
            for threads in 1..=threads_max {
                let mut run = |does| {
                    // Other objects each time: those of the last run are in the cache still.
                    stream += threads;
                    let drawn = (stream..stream + threads).map(|it| numbers(order, count, it));
                    self.run(&store, &drawn.collect::<Vec<_>>(), does)
                };
                all.push(Rates {
                    order,
                    threads,
                    writes: run(relaxed)?,
                    reads: run(Does::Gets)?,
                    strict_writes: Some(run(Does::Puts(Durability::Strict))?),
                });
            }
        }
        Ok(all)
    }

    /// The rate of some threads, each of which goes through its own numbers.
    fn run(self, store: &Scmkv, threads: &[Vec<u64>], does: Does) -> Result<f64> {
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
                        let found = store.get_into(&key, &mut value)?;
                        assert!(found, "the store has lost an object");
                    }
                }
            }
            Ok(())
        };
        let start = Instant::now();
        thread::scope(|scope| {
            let spawned: Vec<_> = threads
                .iter()
                .map(|numbers| scope.spawn(move || run(numbers)))
                .collect();
            let mut joined = spawned.into_iter().map(|thread| thread.join());
            joined.try_for_each(|result| result.expect("a worker does not panic"))
        })?;
        Ok(rate(threads.iter().map(Vec::len).sum(), start))
    }

    /// Rates of a Masstree of `count` objects on one thread.
    fn masstree(self, count: u64) -> Result<Vec<Rates>> {
        let tree: Masstree<[u8]> = Masstree::create(&pool_in_memory(PoolOptions {
            size: count * (self.key_bytes as u64 + 80) * 2 + (256 << 20),
            ..Masstree::<[u8]>::pool_options()
        })?)?;
        let drawn = ORDERS.map(|order| numbers(order, count, 1));
        // Others than were written: those lie one behind the other in the order of the writes.
        let to_read = ORDERS.map(|order| numbers(order, count, 2));
        let places =
            drawn.iter().map(Vec::len).sum::<usize>() + usize::try_from(count).unwrap_or(0);
        let mut values = vec![b'v'; self.value_bytes * places];
        let mut key = vec![b'k'; self.key_bytes];
        let value = vec![b'w'; self.value_bytes];
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
        let mut writes = Vec::new();
        for drawn in &drawn {
            let start = Instant::now();
            for &number in drawn {
                put(number, &mut key)?;
            }
            writes.push(rate(drawn.len(), start));
        }
        let mut read = vec![0; self.value_bytes];
        let mut all = Vec::new();
        for ((order, to_read), writes) in ORDERS.into_iter().zip(&to_read).zip(writes) {
            let start = Instant::now();
            for &number in to_read {
                write_key(number, &mut key);
                let at = tree.get(&key)?.and_then(|at| usize::try_from(at).ok());
                let at = at.expect("the tree has every object");
                read.copy_from_slice(&values[at..][..self.value_bytes]);
                black_box(&read);
            }
            all.push(Rates {
                order,
                threads: 1,
                writes,
                reads: rate(to_read.len(), start),
                strict_writes: None,
            });
        }
        Ok(all)
    }
}

/// Nanoseconds of a read of memory that waits for the one before, at random places of a pool.
fn latency_ns(scale: Scale) -> Result<f64> {
    let words = scale.of(LATENCY_BYTES, 1 << 20) / 8;
    let reads = scale.of(LATENCY_READS, 1000);
    let pool = pool_in_memory(PoolOptions {
        size: words * 8 * 2 + (64 << 20),
        ..Scmkv::pool_options()
    })?;
    let block = pool.alloc_aligned(words * 8, 64, 0)?;
    let start = block.offset::<PAtomicU64>();
    pool.zero(start.raw(), words * 8);
    let mut place = 0;
    let begin = Instant::now();
    for number in 0..reads {
        let word: &PAtomicU64 = pool.at(start.element(mix(place ^ number) % words));
        // ORDER: Relaxed: nobody else has the pool.
        place = word.peek(Ordering::Relaxed);
    }
    black_box(place);
    Ok(begin.elapsed().as_nanos() as f64 / reads as f64)
}

/// A pool whose memory the system has given already.
fn pool_in_memory(options: PoolOptions) -> Result<Pool> {
    let pool = Pool::anonymous(options)?;
    for word in pool.region().words().iter().step_by(4096 / 8) {
        // ORDER: Relaxed: nobody else has the pool.
        word.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    Ok(pool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Row;

    /// Each system has a row for each size and order, with flushes one for each count of threads.
    #[test]
    fn every_system_has_its_rates() {
        let tables = throughput(Scale(0.000_01)).unwrap();
        let rows = &tables[1].rows;
        let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        for (system, count) in [
            ("SCMKV-noflush", processors),
            ("SCMKV-flush", processors),
            ("Masstree", 1),
        ] {
            for order in ["uniform", "zipfian"] {
                let is_meant = |row: &&Row| row.at[1] == system && row.at[2] == order;
                let found: Vec<&Row> = rows.iter().filter(is_meant).collect();
                assert_eq!(found.len(), 2 * count, "{system} {order} {rows:#?}");
                for row in found {
                    let threads: usize = row.at[3].parse().unwrap();
                    assert!((1..=processors).contains(&threads), "{row:?}");
                    let has = row.values.iter().map(Option::is_some);
                    let is_strict = system != "Masstree";
                    assert!(has.eq([true, true, is_strict]), "{row:?}");
                }
            }
        }
    }

    /// Skewed numbers name few objects, uniform ones many, and no two threads draw the same.
    #[test]
    fn numbers_are_drawn_as_their_order_says() {
        let distinct = |order, stream| {
            let mut drawn = numbers(order, 20_000, stream);
            assert_eq!(drawn.len(), 20_000);
            assert!(drawn.iter().all(|number| *number < 20_000));
            drawn.sort_unstable();
            drawn.dedup();
            drawn.len()
        };
        let uniform = distinct(Distribution::Uniform, 1);
        assert!((12_000..13_300).contains(&uniform), "{uniform}");
        let zipfian = distinct(Distribution::Zipfian, 1);
        assert!(zipfian < 9_000, "{zipfian}");
        let draw = |stream| numbers(Distribution::Uniform, 20_000, stream);
        assert_ne!(draw(1), draw(2));
    }
}
