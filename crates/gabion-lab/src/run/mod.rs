//! Runs a phase: threads in a closed or open loop, each with its own generator and histograms.
//!
//! The seconds of a phase are those of its operations alone. Afterwards the store makes everything
//! durable and finishes its background work, which is timed as `settle_s` and counted in the bytes
//! written, so that no phase pays for another and no amplification is left uncounted.

mod borders;
mod complete;
mod count;
mod gate;
mod live;
mod outcome;
mod pace;
mod progress;
mod requests;
mod restart;
mod settings;
mod turns;
mod watch;
mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Error;
use crate::measure::{self, ProcessUse, Space};
use crate::result::{PhaseResult, amplification};
use crate::target::{Counters, Store};
use crate::text::{counted, counts_note};
use crate::workload::generators::Items;
use crate::workload::keys::{KeyShape, ValuePool};
use crate::workload::{Distribution, Workers, Workload};
use borders::Seen;
use gate::Gate;
use live::Live;
use outcome::{Outcome, check};
use pace::{Pace, Wait};
use progress::Counter;
use watch::Watch;
use worker::{Worker, WorkerCounters, WorkerResult};

pub use settings::Settings;
pub use turns::{NoTurns, Turns};

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
    live: Option<Mutex<Live>>,
    machine: String,
}

/// What the threads of a phase are to do.
struct Phase<'p> {
    workload: &'p Workload,
    distribution: Distribution,
    /// Makes the random numbers of the phase its own.
    stream: &'p str,
    threads: usize,
    /// Operations of all threads together.
    total: u64,
}

/// Figures of the store and the process at one time.
struct Marks {
    counters: Counters,
    process: ProcessUse,
    drive_bytes: Option<u64>,
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
            values: ValuePool::new(settings.value_sizes, settings.value_bytes, settings.seed),
            items: Items::new(settings.num, settings.seed),
            items_written: AtomicU64::new(settings.num),
            live: (!subject.existing).then(|| Mutex::new(Live::new(settings.num))),
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
        self.run_in_turns(workload, 0, &mut NoTurns)
    }

    /// The same, in turns with others. The first turn must have been taken, and the last one is
    /// left to be given away. `pass` says how often the store has been through this phase before:
    /// each pass draws records of its own, or it would meet what the one before left in caches.
    ///
    /// # Errors
    /// As [`Runner::run`], and those of `turns`.
    pub fn run_in_turns(
        &self,
        workload: &Workload,
        pass: usize,
        turns: &mut dyn Turns,
    ) -> Result<PhaseResult, Error> {
        if self.settings.warm_up > 0 && workload.workers == Workers::Threads {
            let phase = self.phase(workload, self.settings.warm_up, "warm-up");
            let outcome = self.perform(&phase, &mut NoTurns)?;
            self.note_changes(&phase, &outcome);
        }
        measure::reset_rss_max();
        let before = self.marks()?;

        let total = workload.operations(self.settings.num, self.settings.reads);
        let stream = match pass {
            0 => workload.name.to_owned(),
            _ => format!("{} {pass}", workload.name),
        };
        let phase = self.phase(workload, total, &stream);
        let outcome = self.perform(&phase, turns)?;
        check(workload, total, &outcome)?;

        let settle = Instant::now();
        self.store.settle()?;
        let settle_s = settle.elapsed().as_secs_f64();

        let after = self.marks()?;
        self.note_changes(&phase, &outcome);
        let mut result = self.result(workload, &outcome, settle_s, (&before, &after))?;
        if let Some(length) = turns.length() {
            // The others' bytes are among them.
            result.bytes_written_drive = None;
            result.settings["turn_ms"] = json!(length.as_secs_f64() * 1e3);
            result.settings["turns"] = json!(outcome.turns);
        }
        if self.settings.complete_fills
            && let Some(count) = self.complete(&phase, &outcome)?
        {
            self.store.settle()?;
            self.measure_space(&mut result)?;
            result.notes.push(format!(
                "what it had not come to, {}, was put after it, unmeasured",
                counted(count, "record", "records")
            ));
        }
        Ok(result)
    }

    fn phase<'p>(&self, workload: &'p Workload, total: u64, stream: &'p str) -> Phase<'p> {
        Phase {
            workload,
            distribution: workload.distribution(self.settings.distribution),
            stream,
            threads: self.threads(workload),
            total,
        }
    }

    /// The records that the store holds, where that is known.
    fn live(&self) -> Option<MutexGuard<'_, Live>> {
        // Whoever panicked with it had noted a part of a phase, and the run ends with that.
        let live = self.live.as_ref()?;
        Some(live.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many records the store holds, where that is known.
    fn records_live(&self) -> Option<u64> {
        self.live()?.count()
    }

    /// How many items there are that everybody can read.
    #[inline]
    fn items_settled(&self) -> u64 {
        // Records that other threads are inserting just now may not be there yet, so the newest
        // ones are left out: one per thread.
        let in_flight = self.settings.threads as u64;
        // ORDER: Relaxed; a count that is late only makes the newest records less popular.
        let written = self.items_written.load(Ordering::Relaxed);
        written.saturating_sub(in_flight).max(self.settings.num)
    }

    /// Seconds after which a phase ends.
    fn seconds_max(&self, workload: &Workload) -> Option<u64> {
        match workload.workers {
            Workers::Writers if self.settings.whole_fills => return None,
            Workers::Writers => self.settings.fill_seconds_max,
            Workers::Threads => None,
        }
        .or(self.settings.seconds_max)
    }

    fn marks(&self) -> Result<Marks, Error> {
        Ok(Marks {
            counters: self.store.counters()?,
            process: ProcessUse::now(),
            drive_bytes: measure::drive_bytes_written(self.subject.dir),
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
    fn perform(&self, phase: &Phase<'_>, turns: &mut dyn Turns) -> Result<Outcome, Error> {
        let (workload, threads) = (phase.workload, phase.threads);
        let start = Barrier::new(threads + usize::from(workload.paced_writer) + 1);
        let gate = Gate::new(threads);
        let counters: Vec<Counter> = (0..=threads).map(|_| Counter::default()).collect();
        let (ended, ends) = mpsc::channel();
        thread::scope(|scope| {
            let shared = |thread: usize| WorkerCounters {
                gate: &gate,
                counter: &counters[thread],
            };
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let (start, shared, ended) = (&start, shared(thread), ended.clone());
                    scope.spawn(move || {
                        // A store that panics must not keep those who wait for this thread.
                        let worker = caught(|| Worker::new(self, phase, thread));
                        start.wait();
                        let begin = Instant::now();
                        let done = worker.and_then(|worker| {
                            caught(|| worker.and_then(|worker| self.drive(worker, phase, shared)))
                        });
                        let end = Instant::now();
                        // The watcher waits for the end of every worker.
                        let _ = ended.send(matches!(done, Ok(Ok(_))));
                        shared.gate.leave();
                        let done = done.unwrap_or_else(|panic| resume_unwind(panic));
                        done.map(|done| (done, begin, end))
                    })
                })
                .collect();
            let pacer = workload.paced_writer.then(|| {
                let (start, shared) = (&start, shared(threads));
                scope.spawn(move || {
                    let worker = caught(|| Worker::paced(self, phase));
                    start.wait();
                    worker
                        .unwrap_or_else(|panic| resume_unwind(panic))?
                        .put_at_pace(shared)
                })
            });
            start.wait();
            let borders = Seen::of(self, phase);
            let has_pace = workload.paced_writer || self.settings.rate.is_some();
            let watch = Watch {
                begin: Instant::now(),
                limit: self.seconds_max(workload).map(Duration::from_secs),
                turn: turns.length().filter(|_| !has_pace),
                gate: &gate,
                ends: &ends,
                counters: &counters[..threads],
                each_look: &|operations| borders.look(operations),
            };
            let seen = watch.run(turns);
            gate.end();
            let done: Vec<_> = workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect();
            let paced = pacer
                .map(|pacer| pacer.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .transpose()?;
            let done = done.into_iter().collect::<Result<Vec<_>, Error>>()?;
            let seen = seen?;
            let first = done.iter().map(|(_, begin, _)| *begin).min();
            let last = done.iter().map(|(.., end)| *end).max();
            let whole = last.zip(first).map_or(Duration::ZERO, |(l, f)| l - f);
            let seconds = whole.saturating_sub(seen.paused).as_secs_f64();
            let done: Vec<WorkerResult> = done.into_iter().map(|(done, ..)| done).collect();
            let mut outcome = Outcome::gather(workload, &done, paced.as_ref(), seconds);
            outcome.throughput = seen.timeline.moments(seconds, outcome.operations);
            outcome.is_capped = seen.is_capped && outcome.operations < phase.total;
            outcome.turns = seen.turns;
            outcome.borders = borders.all(outcome.operations)?;
            Ok(outcome)
        })
    }

    /// Lets one worker do its share in the loop that the settings ask for.
    fn drive(
        &self,
        mut worker: Worker<'_>,
        phase: &Phase<'_>,
        shared: WorkerCounters<'_>,
    ) -> Result<WorkerResult, Error> {
        let (place, operations) = worker.share(phase);
        match self.settings.rate {
            Some(rate) if !worker.is_walk() => {
                let pace = Pace::new(Instant::now(), rate as f64, place, Wait::Spin);
                worker.work_at_pace(operations, pace, shared)?;
            }
            _ => worker.work(operations, shared)?,
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
        let mut result = PhaseResult {
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
            memory_bytes: gabion_media::usable_memory_bytes(),
            bytes_user,
            bytes_written: written,
            bytes_written_process,
            bytes_written_drive: before
                .drive_bytes
                .zip(after.drive_bytes)
                .map(|(before, after)| after.saturating_sub(before)),
            wa_without_log,
            wa_with_log,
            wa_process: bytes_written_process.and_then(|b| amplification(b, bytes_user)),
            space_bytes: 0,
            stall_s: seconds_of(was.stall_ns, is.stall_ns),
            slowdown_s: seconds_of(was.slowdown_ns, is.slowdown_ns),
            settle_s,
            found: outcome.found,
            conflicts: workload.has_transactions().then_some(outcome.conflicts),
            latency_us_by_operation: outcome.by_operation.clone(),
            repetition: self.subject.repetition,
            rate_per_s: settings
                .rate
                .filter(|_| !workload.is_walk())
                .map(|rate| rate as f64),
            bytes_read_process: since(process_before.bytes_read, process.bytes_read),
            space_amplification: None,
            files: 0,
            records_live: None,
            restart_log_bytes: None,
            throughput: outcome.throughput.clone(),
            borders: outcome.borders.clone(),
            latency_curve: outcome.latencies.curve(),
            pm: None,
            settings: json!({
                "distribution": distribution,
                "value_sizes": settings.value_sizes,
                "reads": settings.reads,
                "writers": settings.writers,
                "threads": settings.threads,
                "batch": settings.batch,
                "write_rate": settings.write_rate,
                "warm_up": settings.warm_up,
                "seconds_max": self.seconds_max(workload),
                "complete_fills": settings.complete_fills,
                "rest_seconds": workload.is_rest().then_some(settings.rest_seconds),
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
        };
        self.measure_space(&mut result)?;
        Ok(result)
    }

    /// Puts down what the store takes now, and for how many records.
    fn measure_space(&self, result: &mut PhaseResult) -> Result<(), Error> {
        let space = Space::of(self.subject.dir).map_err(|source| Error::File {
            action: "list",
            path: self.subject.dir.to_owned(),
            source,
        })?;
        result.records_live = self.records_live();
        let live = result
            .records_live
            .map(|records| records * self.settings.record_bytes());
        let live = live.filter(|bytes| *bytes > 0 && space.files > 0);
        result.space_bytes = space.bytes;
        result.files = space.files;
        result.space_amplification = live.map(|live| space.bytes as f64 / live as f64);
        Ok(())
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
        let wanted = self.settings.write_rate as f64 * outcome.seconds;
        if workload.paced_writer && (outcome.paced as f64) < 0.98 * wanted - 1.0 {
            notes.push(format!(
                "the writer beside the readers did {:.0} of the {} puts per second that were due",
                outcome.paced as f64 / outcome.seconds.max(1e-9),
                self.settings.write_rate
            ));
        }
        if workload.has_transactions() {
            notes.push(format!(
                "transactions were begun again {} times after conflicts",
                outcome.conflicts
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

/// What `act` returns, or how it panicked.
fn caught<R>(act: impl FnOnce() -> R) -> thread::Result<R> {
    catch_unwind(AssertUnwindSafe(act))
}

/// What a counter grew by, where there is one.
fn since(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    after.map(|after| after.saturating_sub(before.unwrap_or(0)))
}

#[cfg(test)]
mod tests;
