//! Runs a phase: threads in a closed loop, each with its own generator and histograms, one clock
//! read per call (the end of a call is the start of the next).
//!
//! The seconds of a phase are those of its operations alone. Afterwards the store makes everything
//! durable and finishes its background work, which is timed as `settle_s` and counted in the bytes
//! written, so that no phase pays for another and no amplification is left uncounted.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gabion::{Db, Durability, Iter, Keyspace, Stats, WriteBatch};
use serde_json::json;

use super::generators::{Distribution, Generator, Items, part_of};
use super::keys::{KeyId, KeyShape, ValuePool};
use super::measure::{self, Latencies, ProcessUse};
use super::report::{BytesWritten, OperationLatency, PhaseResult, amplification, counts_note};
use super::workloads::{Operation, ScanLength, Workers, Workload};
use crate::failure::Failure;

/// Steps through the store that share one clock read: a step is much shorter than the clock.
const STEPS_PER_CLOCK_READ: u64 = 64;

/// What all phases of a run share.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Name of the engine.
    pub(crate) target: String,
    /// Records in the data set.
    pub(crate) num: u64,
    /// Operations of the phases that read.
    pub(crate) reads: u64,
    /// Threads of the phases that only write.
    pub(crate) writers: usize,
    /// Threads of all other phases.
    pub(crate) threads: usize,
    /// Puts per write of the phases that only write.
    pub(crate) batch: u64,
    /// Size of every key.
    pub(crate) key_bytes: usize,
    /// Size of every value.
    pub(crate) value_bytes: usize,
    /// Replaces the phases' own distributions where they allow it.
    pub(crate) distribution: Option<Distribution>,
    /// Where all random numbers start.
    pub(crate) seed: u64,
    /// Puts per second of the paced writer.
    pub(crate) write_rate: u64,
    /// How the store was opened, for the report.
    pub(crate) store: serde_json::Value,
}

impl Settings {
    /// The form of the keys, or why the settings cannot work.
    pub(crate) fn key_shape(&self) -> Result<KeyShape, Failure> {
        if self.num == 0 {
            return Err(Failure::usage("a run needs at least one record"));
        }
        KeyShape::new(self.key_bytes, self.num).map_err(Failure::usage)
    }
}

/// Runs phases on one store, one after the other.
pub(crate) struct Runner<'a> {
    db: &'a Db,
    settings: Settings,
    keys: KeyShape,
    values: ValuePool,
    items: Items,
    items_written: AtomicU64,
    machine: String,
}

/// What one thread did.
struct Done {
    operations: u64,
    found: u64,
    latencies: Vec<Latencies>,
}

/// What all threads of a phase did, and in what time.
struct Outcome {
    operations: u64,
    found: u64,
    seconds: f64,
    latencies: Latencies,
    by_operation: BTreeMap<&'static str, OperationLatency>,
}

impl<'a> Runner<'a> {
    /// A runner on `db`, or why the settings cannot work.
    pub(crate) fn new(db: &'a Db, settings: Settings) -> Result<Runner<'a>, Failure> {
        let keys = settings.key_shape()?;
        Ok(Runner {
            db,
            keys,
            values: ValuePool::new(settings.value_bytes, settings.seed),
            items: Items::new(settings.num, settings.seed),
            items_written: AtomicU64::new(settings.num),
            machine: measure::machine(),
            settings,
        })
    }

    /// Runs one phase to its end, background work included.
    pub(crate) fn run(&self, workload: &Workload) -> Result<PhaseResult, Failure> {
        let before = self.db.stats();
        measure::reset_rss_max();
        let process_before = ProcessUse::now();

        let outcome = self.perform(workload)?;
        self.check(workload, &outcome)?;

        let settle = Instant::now();
        self.db.persist(Durability::Sync)?;
        self.db.wait_idle()?;
        let settle_s = settle.elapsed().as_secs_f64();

        let process = ProcessUse::now();
        let stats = self.db.stats();
        Ok(self.result(
            workload,
            &outcome,
            settle_s,
            (&before, &stats),
            (&process_before, &process),
        ))
    }

    fn threads(&self, workload: &Workload) -> usize {
        match workload.workers {
            Workers::Writers => self.settings.writers,
            Workers::Threads => self.settings.threads,
        }
        .max(1)
    }

    /// Starts the threads, waits for them and puts their figures together.
    fn perform(&self, workload: &Workload) -> Result<Outcome, Failure> {
        let threads = self.threads(workload);
        let total = workload.operations(self.settings.num, self.settings.reads);
        let paced = usize::from(workload.paced_writer);
        let start = Barrier::new(threads + paced + 1);
        // ORDER: Relaxed everywhere; the flag carries no data, joining the threads does.
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let (start, stop) = (&start, &stop);
                    scope.spawn(move || {
                        let mut worker = Worker::new(self, workload, thread, threads);
                        let (first, end) = part_of(thread as u64, threads as u64, total);
                        start.wait();
                        let done = worker.work(end - first, stop);
                        if done.is_err() {
                            // ORDER: Relaxed; the flag only ends loops, no data depends on it.
                            stop.store(true, Ordering::Relaxed);
                        }
                        done.map(|()| worker.done)
                    })
                })
                .collect();
            let pacer = workload.paced_writer.then(|| {
                let (start, stop) = (&start, &stop);
                scope.spawn(move || {
                    let worker = Worker::new(self, workload, threads, threads + 1);
                    start.wait();
                    worker.put_at_pace(self.settings.write_rate, stop)
                })
            });
            start.wait();
            let begin = Instant::now();
            let done: Vec<_> = workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker does not panic"))
                .collect();
            let seconds = begin.elapsed().as_secs_f64();
            // ORDER: Relaxed; the flag only ends loops, no data depends on it.
            stop.store(true, Ordering::Relaxed);
            let paced = pacer
                .map(|pacer| pacer.join().expect("the paced writer does not panic"))
                .transpose()?;
            let done = done.into_iter().collect::<Result<Vec<_>, Failure>>()?;
            Ok(Outcome::gather(workload, &done, paced.as_ref(), seconds))
        })
    }

    /// Fails when the phase did not do what its figures would claim.
    fn check(&self, workload: &Workload, outcome: &Outcome) -> Result<(), Failure> {
        let name = workload.name;
        let wanted = workload.operations(self.settings.num, self.settings.reads);
        if outcome.operations != wanted {
            return Err(Failure::new(format!(
                "{name} did {} of {wanted} operations; its figures would mean nothing",
                outcome.operations
            )));
        }
        let only_absent = workload
            .mix
            .iter()
            .all(|(op, _)| *op == Operation::ReadMissing);
        if only_absent && outcome.found > 0 {
            return Err(Failure::new(format!(
                "{name} found {} keys that are never written; the store holds other data",
                outcome.found
            )));
        }
        let reads = workload.mix.iter().any(|(op, _)| op.must_find());
        if reads && wanted > 0 && outcome.found == 0 {
            return Err(Failure::new(format!(
                "{name} found no record at all: run a fill of the same --num and --key-size first"
            )));
        }
        Ok(())
    }

    fn result(
        &self,
        workload: &Workload,
        outcome: &Outcome,
        settle_s: f64,
        (before, stats): (&Stats, &Stats),
        (process_before, process): (&ProcessUse, &ProcessUse),
    ) -> PhaseResult {
        let settings = &self.settings;
        let bytes_user = stats.user_bytes.saturating_sub(before.user_bytes);
        let written = BytesWritten::between(&before.written, &stats.written);
        let (wa_without_log, wa_with_log) = written.amplification(bytes_user);
        let bytes_written_process = process
            .bytes_written
            .zip(process_before.bytes_written)
            .map(|(now, before)| now.saturating_sub(before));
        let distribution = workload.distribution(settings.distribution).name();
        let seconds_of = |nanos: u64, before: u64| nanos.saturating_sub(before) as f64 / 1e9;
        PhaseResult {
            target: settings.target.clone(),
            workload: format!("{} {distribution}", workload.name),
            phase: workload.name.to_owned(),
            records: settings.num,
            operations: outcome.operations,
            threads: self.threads(workload),
            key_bytes: settings.key_bytes,
            value_bytes: settings.value_bytes,
            seed: settings.seed,
            seconds: outcome.seconds,
            ops_per_s: outcome.operations as f64 / outcome.seconds.max(1e-9),
            latency_us: outcome.latencies.percentiles(),
            cpu_user_s: process.cpu_user_s - process_before.cpu_user_s,
            cpu_sys_s: process.cpu_sys_s - process_before.cpu_sys_s,
            rss_bytes_max: process.rss_bytes_max,
            bytes_user,
            bytes_written: written,
            bytes_written_process,
            wa_without_log,
            wa_with_log,
            wa_process: bytes_written_process.and_then(|b| amplification(b, bytes_user)),
            space_bytes: stats.space_bytes,
            stall_s: seconds_of(stats.stall_ns, before.stall_ns),
            slowdown_s: seconds_of(stats.slowdown_ns, before.slowdown_ns),
            settle_s,
            found: outcome.found,
            latency_us_by_operation: outcome.by_operation.clone(),
            pm: None,
            settings: json!({
                "distribution": distribution,
                "reads": settings.reads,
                "writers": settings.writers,
                "threads": settings.threads,
                "batch": settings.batch,
                "write_rate": settings.write_rate,
                "store": settings.store,
            }),
            version: env!("CARGO_PKG_VERSION"),
            machine: self.machine.clone(),
            notes: counts_note(written.total(), bytes_written_process)
                .into_iter()
                .collect(),
        }
    }
}

impl Outcome {
    fn gather(workload: &Workload, done: &[Done], paced: Option<&Done>, seconds: f64) -> Outcome {
        let mut outcome = Outcome {
            operations: done.iter().map(|done| done.operations).sum(),
            found: done.iter().map(|done| done.found).sum(),
            seconds,
            latencies: Latencies::new(),
            by_operation: BTreeMap::new(),
        };
        for (at, (operation, _)) in workload.mix.iter().enumerate() {
            let mut latencies = Latencies::new();
            for done in done {
                latencies.merge(&done.latencies[at]);
            }
            outcome.latencies.merge(&latencies);
            outcome.insert(operation.name(), &latencies);
        }
        if let Some(paced) = paced {
            outcome.insert("paced_put", &paced.latencies[0]);
        }
        outcome
    }

    fn insert(&mut self, name: &'static str, latencies: &Latencies) {
        self.by_operation.insert(
            name,
            OperationLatency {
                calls: latencies.count(),
                latency_us: latencies.percentiles(),
            },
        );
    }
}

/// One thread of a phase.
struct Worker<'r, 'd> {
    run: &'r Runner<'d>,
    workload: &'r Workload,
    keyspace: &'r Keyspace,
    generator: Generator,
    key: Vec<u8>,
    /// Where stepping through the store starts.
    first: u64,
    steps: Option<Iter>,
    done: Done,
}

impl<'r, 'd> Worker<'r, 'd> {
    fn new(
        run: &'r Runner<'d>,
        workload: &'r Workload,
        thread: usize,
        threads: usize,
    ) -> Worker<'r, 'd> {
        let settings = &run.settings;
        let (first, _) = part_of(thread as u64, threads as u64, settings.num);
        let stream = stream_of(workload.name, thread);
        Worker {
            run,
            workload,
            keyspace: run.db.default_keyspace(),
            generator: Generator::new(
                workload.distribution(settings.distribution),
                &run.items,
                first,
                settings.seed,
                stream,
            ),
            key: Vec::with_capacity(settings.key_bytes),
            first,
            steps: None,
            done: Done {
                operations: 0,
                found: 0,
                latencies: workload.mix.iter().map(|_| Latencies::new()).collect(),
            },
        }
    }

    /// Does `operations` operations, each as soon as the one before has ended.
    fn work(&mut self, operations: u64, stop: &AtomicBool) -> Result<(), Failure> {
        let mut last = Instant::now();
        // ORDER: Relaxed; the flag only ends loops, no data depends on it.
        while self.done.operations < operations && !stop.load(Ordering::Relaxed) {
            let at = match self.workload.mix.len() {
                1 => 0,
                _ => self.workload.choose(self.generator.rng().below(100)),
            };
            let operation = self.workload.mix[at].0;
            let count = self.call(operation, operations - self.done.operations)?;
            let now = Instant::now();
            let latencies = &mut self.done.latencies[at];
            match operation {
                Operation::Next => {
                    let per_step = (now - last).as_nanos() / u128::from(count.max(1));
                    let per_step = u64::try_from(per_step).unwrap_or(u64::MAX);
                    latencies.record_many(Duration::from_nanos(per_step), count);
                }
                _ => latencies.record(now - last),
            }
            self.done.operations += count;
            last = now;
        }
        Ok(())
    }

    /// One call of the store. Returns how many operations it was, at most `left`.
    #[inline]
    fn call(&mut self, operation: Operation, left: u64) -> Result<u64, Failure> {
        match operation {
            Operation::Put | Operation::Delete => return self.write(operation, left),
            Operation::Next => return self.step(left),
            Operation::Insert => {
                // ORDER: Relaxed; the counter hands out numbers and publishes nothing.
                let item = self.run.items_written.fetch_add(1, Ordering::Relaxed);
                if item >= self.run.items.capacity() {
                    return Err(Failure::new(
                        "the keys for inserted records are used up; use a larger --num",
                    ));
                }
                self.run
                    .keys
                    .write(self.run.items.record(item), &mut self.key);
                self.put_key()?;
            }
            Operation::ReadMissing => {
                let id = self.generator.next(0);
                self.run.keys.write_absent(id.number, &mut self.key);
                self.done.found += u64::from(self.keyspace.get(&self.key)?.is_some());
            }
            Operation::Read => {
                self.draw_key();
                self.done.found += u64::from(self.keyspace.get(&self.key)?.is_some());
            }
            Operation::ReadModifyWrite => {
                self.draw_key();
                self.done.found += u64::from(self.keyspace.get(&self.key)?.is_some());
                self.put_key()?;
            }
            Operation::Seek => self.scan(1)?,
            Operation::Scan(ScanLength::Fixed(entries)) => self.scan(u64::from(entries))?,
            Operation::Scan(ScanLength::UpTo(entries)) => {
                let entries = 1 + self.generator.rng().below(u64::from(entries));
                self.scan(entries)?;
            }
        }
        Ok(1)
    }

    /// Draws a record and writes its key into `self.key`.
    #[inline]
    fn draw_key(&mut self) {
        // Records that other threads are inserting just now may not be there yet, so the newest
        // ones are left out: one per thread.
        let in_flight = self.run.settings.threads as u64;
        // ORDER: Relaxed; a count that is late only makes the newest records less popular.
        let written = self.run.items_written.load(Ordering::Relaxed);
        let settled = written.saturating_sub(in_flight).max(self.run.settings.num);
        self.run
            .keys
            .write(self.generator.next(settled), &mut self.key);
    }

    #[inline]
    fn put_key(&mut self) -> Result<(), Failure> {
        let value = self.run.values.draw(self.generator.rng());
        match self.workload.synced {
            true => self.keyspace.put_with(&self.key, value, Durability::Sync)?,
            false => self.keyspace.put(&self.key, value)?,
        }
        Ok(())
    }

    /// Puts or deletes one record, or a batch where the phase only writes.
    #[inline]
    fn write(&mut self, operation: Operation, left: u64) -> Result<u64, Failure> {
        let batch = match self.workload.workers {
            Workers::Writers => self.run.settings.batch.clamp(1, left),
            Workers::Threads => 1,
        };
        if batch == 1 {
            self.draw_key();
            match operation {
                Operation::Delete => self.keyspace.delete(&self.key)?,
                _ => self.put_key()?,
            }
            return Ok(1);
        }
        let mut writes = WriteBatch::new();
        for _ in 0..batch {
            self.draw_key();
            match operation {
                Operation::Delete => writes.delete(self.keyspace, &self.key)?,
                _ => {
                    let value = self.run.values.draw(self.generator.rng());
                    writes.put(self.keyspace, &self.key, value)?;
                }
            }
        }
        match self.workload.synced {
            true => self.run.db.write_with(writes, Durability::Sync)?,
            false => self.run.db.write(writes)?,
        }
        Ok(batch)
    }

    fn scan(&mut self, entries: u64) -> Result<(), Failure> {
        self.draw_key();
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        for entry in self.keyspace.range(&self.key[..]..).take(entries) {
            std::hint::black_box(entry?);
            self.done.found += 1;
        }
        Ok(())
    }

    /// Steps through the store, and from its end on to its start.
    fn step(&mut self, left: u64) -> Result<u64, Failure> {
        let wanted = left.min(STEPS_PER_CLOCK_READ);
        let mut count = 0;
        let mut restarted = false;
        while count < wanted {
            let steps = match &mut self.steps {
                Some(steps) => steps,
                None => {
                    let first = KeyId {
                        number: self.first,
                        generation: 0,
                    };
                    self.run.keys.write(first, &mut self.key);
                    self.steps.insert(self.keyspace.range(&self.key[..]..))
                }
            };
            match steps.next() {
                Some(entry) => {
                    std::hint::black_box(entry?);
                    count += 1;
                    restarted = false;
                }
                None if restarted => {
                    return Err(Failure::new(
                        "readseq found no record at all: run a fill of the same --num first",
                    ));
                }
                None => {
                    restarted = true;
                    self.first = 0;
                    self.steps = None;
                }
            }
        }
        self.done.found += count;
        Ok(count)
    }

    /// Puts records at `rate` per second until told to stop. A put's latency counts from the moment
    /// at which it was due, so a store that stops for a while is charged for every put it delays.
    fn put_at_pace(mut self, rate: u64, stop: &AtomicBool) -> Result<Done, Failure> {
        let interval = Duration::from_secs(1).div_f64(rate.max(1) as f64);
        let mut due = Instant::now();
        // ORDER: Relaxed; the flag only ends loops, no data depends on it.
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now < due {
                thread::sleep(due - now);
                continue;
            }
            self.draw_key();
            self.put_key()?;
            self.done.latencies[0].record(due.elapsed());
            self.done.operations += 1;
            due += interval;
        }
        Ok(self.done)
    }
}

/// The stream of random numbers of one thread of one phase: two phases do not draw alike.
fn stream_of(phase: &str, thread: usize) -> u64 {
    let name = phase
        .bytes()
        .fold(0u64, |hash, byte| super::rng::mix(hash ^ u64::from(byte)));
    name.wrapping_add(thread as u64)
}
