//! Runs a phase: threads in a closed or open loop, each with its own generator and histograms.
//!
//! The seconds of a phase are those of its operations alone. Afterwards the store makes everything
//! durable and finishes its background work, which is timed as `settle_s` and counted in the bytes
//! written, so that no phase pays for another and no amplification is left uncounted.

mod complete;
mod live;
mod pace;
mod progress;
mod requests;
mod settings;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Error;
use crate::measure::{self, Latencies, ProcessUse, Space};
use crate::result::{Moment, OperationLatency, PhaseResult, amplification, counts_note};
use crate::target::{Counters, Store};
use crate::workload::generators::{Items, part_of};
use crate::workload::keys::{KeyShape, ValuePool};
use crate::workload::{Distribution, Workers, Workload};
use live::Live;
use pace::{Pace, Wait};
use progress::{Counter, Timeline};
use worker::{Done, Share, Shared, Worker};

pub use settings::Settings;

/// A store and what is known about it.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The open store.
    pub store: &'a dyn Store,
    /// Name of the target.
    pub target: &'a str,
    /// Directory of its files.
    pub dir: &'a Path,
    /// Whether it held records before the run, so that nobody knows how many it holds.
    pub existing: bool,
    /// Which repetition of the run this is, from 0.
    pub repetition: u32,
}

/// Runs phases on one store, one after the other.
pub struct Runner<'a> {
    subject: Subject<'a>,
    store: &'a dyn Store,
    settings: Settings,
    keys: KeyShape,
    values: ValuePool,
    items: Items,
    items_written: AtomicU64,
    live: Option<Live>,
    machine: String,
}

/// What all threads of a phase did, and in what time.
struct Outcome {
    operations: u64,
    found: u64,
    bytes_user: u64,
    seconds: f64,
    latencies: Latencies,
    by_operation: BTreeMap<String, OperationLatency>,
    throughput: Vec<Moment>,
    /// The phase was ended by its time limit.
    is_capped: bool,
    is_sampled: bool,
    /// Operations of each thread.
    done_by_thread: Vec<u64>,
}

/// Figures of the store and the process at one time.
struct Marks {
    counters: Counters,
    process: ProcessUse,
}

impl<'a> Runner<'a> {
    /// A runner on a store.
    ///
    /// # Errors
    /// [`Error::Request`] when the settings cannot work.
    pub fn new(subject: Subject<'a>, settings: Settings) -> Result<Runner<'a>, Error> {
        Ok(Runner {
            store: subject.store,
            keys: settings.key_shape()?,
            values: ValuePool::new(settings.value_bytes, settings.seed),
            items: Items::new(settings.num, settings.seed),
            items_written: AtomicU64::new(settings.num),
            live: (!subject.existing).then(|| Live::new(settings.num)),
            machine: measure::machine(),
            subject,
            settings,
        })
    }

    /// Runs one phase to its end, background work included.
    ///
    /// # Errors
    /// What the store says, or [`Error::Meaningless`] when the phase did not do what its figures
    /// would claim.
    pub fn run(&self, workload: &Workload) -> Result<PhaseResult, Error> {
        if self.settings.warm_up > 0 && workload.workers == Workers::Threads {
            self.perform(workload, self.settings.warm_up, "warm-up")?;
        }
        measure::reset_rss_max();
        let before = self.marks()?;

        let total = workload.operations(self.settings.num, self.settings.reads);
        let outcome = self.perform(workload, total, workload.name)?;
        check(workload, total, &outcome)?;

        let settle = Instant::now();
        self.store.settle()?;
        let settle_s = settle.elapsed().as_secs_f64();

        let after = self.marks()?;
        let mut result = self.result(workload, &outcome, settle_s, (&before, &after))?;
        if self.settings.complete_fills
            && let Some(count) = self.complete(workload, &outcome)?
        {
            self.store.settle()?;
            result.records_live = self.records_live();
            result.notes.push(format!(
                "the {count} records that it had not come to were put after it, unmeasured"
            ));
        }
        Ok(result)
    }

    /// How many records the store holds, where that is known.
    fn records_live(&self) -> Option<u64> {
        self.live.as_ref().and_then(Live::count)
    }

    /// Seconds after which a phase ends.
    fn seconds_max(&self, workload: &Workload) -> Option<u64> {
        match workload.workers {
            Workers::Writers => self.settings.fill_seconds_max,
            Workers::Threads => None,
        }
        .or(self.settings.seconds_max)
    }

    fn marks(&self) -> Result<Marks, Error> {
        Ok(Marks {
            counters: self.store.counters()?,
            process: ProcessUse::now(),
        })
    }

    fn threads(&self, workload: &Workload) -> usize {
        match workload.workers {
            Workers::Writers => self.settings.writers,
            Workers::Threads => self.settings.threads,
        }
        .max(1)
    }

    /// Starts the threads, watches them until they end and puts their figures together.
    fn perform(&self, workload: &Workload, total: u64, stream: &str) -> Result<Outcome, Error> {
        let threads = self.threads(workload);
        let distribution = workload.distribution(self.settings.distribution);
        let start = Barrier::new(threads + usize::from(workload.paced_writer) + 1);
        let stop = AtomicBool::new(false);
        let counters: Vec<Counter> = (0..=threads).map(|_| Counter::default()).collect();
        let (ended, ends) = mpsc::channel();
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let (start, shared) = (&start, shared(&stop, &counters[thread]));
                    let (first, end) = part_of(thread as u64, threads as u64, total);
                    let share = Share {
                        thread,
                        threads,
                        operations: end - first,
                    };
                    let ended = ended.clone();
                    scope.spawn(move || {
                        let worker = Worker::new(self, workload, share, distribution, stream);
                        start.wait();
                        let begin = Instant::now();
                        let done = worker.and_then(|worker| self.drive(worker, share, shared));
                        let end = Instant::now();
                        // The watcher waits for the end of every worker.
                        let _ = ended.send(done.is_ok());
                        done.map(|done| (done, begin, end))
                    })
                })
                .collect();
            let pacer = workload.paced_writer.then(|| {
                let (start, shared) = (&start, shared(&stop, &counters[threads]));
                let share = Share {
                    thread: threads,
                    threads: threads + 1,
                    operations: u64::MAX,
                };
                scope.spawn(move || {
                    let worker = Worker::new(self, workload, share, Distribution::Uniform, stream);
                    start.wait();
                    worker?.put_at_pace(shared)
                })
            });
            start.wait();
            let begin = Instant::now();
            let limit = self.seconds_max(workload).map(Duration::from_secs);
            let (timeline, is_capped) = watch(begin, limit, &ends, &stop, &counters[..threads]);
            // ORDER: Relaxed; the flag only ends loops, no data depends on it.
            stop.store(true, Ordering::Relaxed);
            let done: Vec<_> = workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker does not panic"))
                .collect();
            let paced = pacer
                .map(|pacer| pacer.join().expect("the paced writer does not panic"))
                .transpose()?;
            let done = done.into_iter().collect::<Result<Vec<_>, Error>>()?;
            let first = done.iter().map(|(_, begin, _)| *begin).min();
            let last = done.iter().map(|(.., end)| *end).max();
            let seconds = last.zip(first).map_or(0.0, |(l, f)| (l - f).as_secs_f64());
            let done: Vec<Done> = done.into_iter().map(|(done, ..)| done).collect();
            let mut outcome = Outcome::gather(workload, &done, paced.as_ref(), seconds);
            outcome.throughput = timeline.moments(seconds, outcome.operations);
            outcome.is_capped = is_capped && outcome.operations < total;
            Ok(outcome)
        })
    }

    /// Lets one worker do its share in the loop that the settings ask for.
    fn drive(
        &self,
        mut worker: Worker<'_>,
        share: Share,
        shared: Shared<'_>,
    ) -> Result<Done, Error> {
        match self.settings.rate {
            Some(rate) if !worker.is_walk() => {
                let place = (share.thread, share.threads);
                let pace = Pace::new(Instant::now(), rate as f64, place, Wait::Spin);
                worker.work_at_pace(share.operations, pace, shared)?;
            }
            _ => worker.work(share.operations, shared)?,
        }
        Ok(worker.done)
    }

    fn result(
        &self,
        workload: &Workload,
        outcome: &Outcome,
        settle_s: f64,
        (before, after): (&Marks, &Marks),
    ) -> Result<PhaseResult, Error> {
        let settings = &self.settings;
        let bytes_user = outcome.bytes_user;
        let (was, is) = (&before.counters, &after.counters);
        let written = is
            .written
            .map(|is| is.since(&was.written.unwrap_or_default()));
        let (wa_without_log, wa_with_log) =
            written.map_or((None, None), |written| written.amplification(bytes_user));
        let (process_before, process) = (&before.process, &after.process);
        let bytes_written_process = since(process_before.bytes_written, process.bytes_written);
        let distribution = workload.distribution(settings.distribution).name();
        let seconds_of = |was, is| since(was, is).map(|nanos| nanos as f64 / 1e9);
        let space = Space::of(self.subject.dir).map_err(|source| Error::File {
            action: "list",
            path: self.subject.dir.to_owned(),
            source,
        })?;
        let bytes_live = self
            .records_live()
            .map(|records| records * settings.record_bytes())
            .filter(|bytes| *bytes > 0 && space.files > 0);
        Ok(PhaseResult {
            target: self.subject.target.to_owned(),
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
            space_bytes: space.bytes,
            stall_s: seconds_of(was.stall_ns, is.stall_ns),
            slowdown_s: seconds_of(was.slowdown_ns, is.slowdown_ns),
            settle_s,
            found: outcome.found,
            latency_us_by_operation: outcome.by_operation.clone(),
            repetition: self.subject.repetition,
            rate_per_s: settings
                .rate
                .filter(|_| !workload.is_walk())
                .map(|rate| rate as f64),
            bytes_read_process: since(process_before.bytes_read, process.bytes_read),
            space_amplification: bytes_live.map(|live| space.bytes as f64 / live as f64),
            files: space.files,
            records_live: self.records_live(),
            throughput: outcome.throughput.clone(),
            latency_curve: outcome.latencies.curve(),
            pm: None,
            settings: json!({
                "distribution": distribution,
                "reads": settings.reads,
                "writers": settings.writers,
                "threads": settings.threads,
                "batch": settings.batch,
                "write_rate": settings.write_rate,
                "warm_up": settings.warm_up,
                "seconds_max": self.seconds_max(workload),
                "complete_fills": settings.complete_fills,
                "store": self.store.settings(),
            }),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: self.machine.clone(),
            notes: self.notes(
                workload,
                outcome,
                written.map(|w| w.total),
                bytes_written_process,
            ),
        })
    }

    /// What a reader of the figures must know.
    fn notes(
        &self,
        workload: &Workload,
        outcome: &Outcome,
        own: Option<u64>,
        process: Option<u64>,
    ) -> Vec<String> {
        let mut notes: Vec<String> = own
            .and_then(|own| counts_note(own, process))
            .into_iter()
            .collect();
        if outcome.is_capped {
            let total = workload.operations(self.settings.num, self.settings.reads);
            notes.push(format!(
                "ended by its time limit of {} s after {} of {total} operations",
                self.seconds_max(workload).unwrap_or_default(),
                outcome.operations
            ));
        }
        if outcome.is_sampled {
            notes.push(format!(
                "operations are so short that only one in {} was timed; throughput counts all",
                worker::STRIDE
            ));
        }
        notes
    }
}

/// Notes what the threads have done until all of them have ended, one has failed, or the time
/// is up; says whether it was up.
fn watch(
    begin: Instant,
    limit: Option<Duration>,
    ends: &mpsc::Receiver<bool>,
    stop: &AtomicBool,
    counters: &[Counter],
) -> (Timeline, bool) {
    let mut timeline = Timeline::new();
    let mut running = counters.len();
    let mut is_capped = false;
    while running > 0 {
        let due = match limit {
            Some(limit) if !is_capped => timeline.next_due().min(limit),
            _ => timeline.next_due(),
        };
        match ends.recv_timeout(due.saturating_sub(begin.elapsed())) {
            Ok(is_done) => {
                running -= 1;
                if !is_done {
                    // ORDER: Relaxed; the flag only ends loops, no data depends on it.
                    stop.store(true, Ordering::Relaxed);
                }
            }
            Err(_) => {
                let elapsed = begin.elapsed();
                if elapsed >= timeline.next_due() {
                    timeline.look(elapsed, counters);
                }
                if limit.is_some_and(|limit| elapsed >= limit) {
                    is_capped = true;
                    // ORDER: Relaxed; the flag only ends loops, no data depends on it.
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
    }
    (timeline, is_capped)
}

fn shared<'r>(stop: &'r AtomicBool, counter: &'r Counter) -> Shared<'r> {
    Shared { stop, counter }
}

/// What a counter grew by, where there is one.
fn since(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    after.map(|after| after.saturating_sub(before.unwrap_or(0)))
}

/// Fails when the phase did not do what its figures would claim.
fn check(workload: &Workload, wanted: u64, outcome: &Outcome) -> Result<(), Error> {
    let name = workload.name;
    if outcome.operations != wanted && !outcome.is_capped {
        return Err(Error::Meaningless(format!(
            "{name} did {} of {wanted} operations; its figures would mean nothing",
            outcome.operations
        )));
    }
    if workload.reads_only_missing() && outcome.found > 0 {
        return Err(Error::Meaningless(format!(
            "{name} found {} keys that are never written; the store holds other data",
            outcome.found
        )));
    }
    let reads = workload.mix.iter().any(|(op, _)| op.must_find());
    if reads && outcome.operations > 0 && outcome.found == 0 {
        return Err(Error::Meaningless(format!(
            "{name} found no record at all: run a fill of the same --num and --key-size first"
        )));
    }
    Ok(())
}

impl Outcome {
    fn gather(workload: &Workload, done: &[Done], paced: Option<&Done>, seconds: f64) -> Outcome {
        let all = || done.iter().chain(paced);
        let mut outcome = Outcome {
            operations: done.iter().map(|done| done.operations).sum(),
            found: done.iter().map(|done| done.found).sum(),
            bytes_user: all().map(|done| done.bytes_user).sum(),
            seconds,
            latencies: Latencies::new(),
            by_operation: BTreeMap::new(),
            throughput: Vec::new(),
            is_capped: false,
            is_sampled: done.iter().any(|done| done.is_sampled),
            done_by_thread: done.iter().map(|done| done.operations).collect(),
        };
        for (at, (operation, _)) in workload.mix.iter().enumerate() {
            let mut latencies = Latencies::new();
            for done in done {
                latencies.merge(&done.latencies[at]);
            }
            outcome.latencies.merge(&latencies);
            let calls = done.iter().map(|done| done.calls[at]).sum();
            outcome.insert(operation.name(), calls, &latencies);
        }
        if let Some(paced) = paced {
            outcome.insert("paced_put", paced.calls[0], &paced.latencies[0]);
        }
        outcome
    }

    fn insert(&mut self, name: &str, calls: u64, latencies: &Latencies) {
        self.by_operation.insert(
            name.to_owned(),
            OperationLatency {
                calls,
                latency_us: latencies.percentiles(),
            },
        );
    }
}

#[cfg(test)]
mod tests;
