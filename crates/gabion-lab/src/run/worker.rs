//! One thread of a phase: draws records, makes requests, takes their times.
//!
//! In a closed loop the clock is read once per call: the end of a call is the start of the next.
//! Where calls are so short that the clock would be a large part of them, only one call of
//! [`STRIDE`] is timed, and stands for all of them in the histogram; the choice is made anew for
//! every window of calls. Throughput always counts every operation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Runner;
use super::live::Live;
use super::pace::{Pace, Wait};
use super::progress::Counter;
use crate::Error;
use crate::measure::Latencies;
use crate::target::{Batch, Session};
use crate::workload::generators::{Generator, part_of};
use crate::workload::keys::KeyId;
use crate::workload::{Distribution, Operation, ScanLength, Workers, Workload, mix};

/// Steps through the store that share one clock read: a step is much shorter than the clock.
const STEPS_PER_CLOCK_READ: u64 = 64;
/// Calls after which is decided whether the next ones are all timed.
const WINDOW: u64 = 1024;
/// Calls of which one is timed, where they are short.
pub(super) const STRIDE: u64 = 16;
/// Mean time of a call below which it is short: about five times what a clock costs on a virtual
/// machine.
const SHORT: Duration = Duration::from_nanos(150);

/// What one thread did.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) operations: u64,
    pub(super) found: u64,
    /// Bytes of keys and values that were put, and of keys that were deleted.
    pub(super) bytes_user: u64,
    /// Calls of each part of the mix.
    pub(super) calls: Vec<u64>,
    /// Latencies of each part of the mix.
    pub(super) latencies: Vec<Latencies>,
    /// Calls that stood for others, because they were too short for the clock.
    pub(super) is_sampled: bool,
}

/// What a thread shares with those who watch it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared<'r> {
    /// Set when the phase is to end early.
    pub(super) stop: &'r AtomicBool,
    /// What the thread has done.
    pub(super) counter: &'r Counter,
}

impl Shared<'_> {
    #[inline]
    fn is_stopped(&self) -> bool {
        // ORDER: Relaxed; the flag only ends loops, no data depends on it.
        self.stop.load(Ordering::Relaxed)
    }
}

/// One thread of a phase.
pub(super) struct Worker<'r> {
    run: &'r Runner<'r>,
    workload: &'r Workload,
    session: Box<dyn Session + 'r>,
    live: Option<&'r Live>,
    generator: Generator,
    key: Vec<u8>,
    batch: Batch,
    /// Where stepping through the store starts.
    first: u64,
    pub(super) done: Done,
}

/// Which thread of how many, and how many operations it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) thread: usize,
    pub(super) threads: usize,
    pub(super) operations: u64,
}

impl<'r> Worker<'r> {
    /// A worker that draws from `distribution`; `stream` makes its random numbers its own.
    pub(super) fn new(
        run: &'r Runner<'r>,
        workload: &'r Workload,
        share: Share,
        distribution: Distribution,
        stream: &str,
    ) -> Result<Worker<'r>, Error> {
        let settings = &run.settings;
        let (first, _) = part_of(share.thread as u64, share.threads as u64, settings.num);
        Ok(Worker {
            run,
            workload,
            session: run.store.session()?,
            live: run.live.as_ref(),
            generator: Generator::new(
                distribution,
                &run.items,
                first,
                share.operations,
                settings.seed,
                stream_of(stream, share.thread),
            ),
            key: run.keys.buffer(),
            batch: Batch::default(),
            first,
            done: Done {
                operations: 0,
                found: 0,
                bytes_user: 0,
                calls: vec![0; workload.mix.len()],
                latencies: workload.mix.iter().map(|_| Latencies::new()).collect(),
                is_sampled: false,
            },
        })
    }

    /// Whether the worker steps through the store, which has no pace.
    pub(super) fn is_walk(&self) -> bool {
        self.workload.is_walk()
    }

    /// Does `operations` operations, each as soon as the one before has ended.
    pub(super) fn work(&mut self, operations: u64, shared: Shared<'_>) -> Result<(), Error> {
        if self.workload.is_walk() {
            return self.walk(operations, shared);
        }
        let mut stride = 1;
        let mut last = Instant::now();
        while self.done.operations < operations && !shared.is_stopped() {
            let begin = last;
            let calls = match stride {
                1 => self.window_timed(operations, shared, &mut last)?,
                _ => self.window_sampled(operations, shared, &mut last)?,
            };
            let mean = (last - begin).as_nanos() / u128::from(calls.max(1));
            stride = if mean < SHORT.as_nanos() { STRIDE } else { 1 };
        }
        Ok(())
    }

    /// A window of calls with the time of each.
    fn window_timed(
        &mut self,
        operations: u64,
        shared: Shared<'_>,
        last: &mut Instant,
    ) -> Result<u64, Error> {
        for call in 0..WINDOW {
            if self.done.operations >= operations || shared.is_stopped() {
                return Ok(call);
            }
            let at = self.choose();
            self.done.operations += self.call(at, operations - self.done.operations)?;
            let now = Instant::now();
            self.done.latencies[at].record(now - *last);
            *last = now;
            shared.counter.set(self.done.operations);
        }
        Ok(WINDOW)
    }

    /// A window of calls in which every [`STRIDE`]th is timed for all of them.
    fn window_sampled(
        &mut self,
        operations: u64,
        shared: Shared<'_>,
        last: &mut Instant,
    ) -> Result<u64, Error> {
        self.done.is_sampled = true;
        let mut calls = 0;
        while calls < WINDOW && self.done.operations < operations && !shared.is_stopped() {
            let mut untimed = 1;
            while untimed < STRIDE && self.done.operations + 1 < operations {
                let at = self.choose();
                self.done.operations += self.call(at, operations - self.done.operations)?;
                untimed += 1;
            }
            calls += untimed;
            if self.done.operations < operations {
                let begin = Instant::now();
                let at = self.choose();
                self.done.operations += self.call(at, operations - self.done.operations)?;
                *last = Instant::now();
                self.done.latencies[at].record_many(*last - begin, untimed);
            }
            shared.counter.set(self.done.operations);
        }
        *last = Instant::now();
        Ok(calls)
    }

    /// Does `operations` operations, or goes on until it is stopped, each when it is due.
    pub(super) fn work_at_pace(
        &mut self,
        operations: u64,
        mut pace: Pace,
        shared: Shared<'_>,
    ) -> Result<(), Error> {
        while self.done.operations < operations {
            let due = pace.next_due();
            pace.wait_until(due, || shared.is_stopped());
            if shared.is_stopped() {
                break;
            }
            let at = self.choose();
            self.done.operations += self.call(at, operations - self.done.operations)?;
            self.done.latencies[at].record(due.elapsed());
            shared.counter.set(self.done.operations);
        }
        Ok(())
    }

    /// Puts records at the run's pace until it is stopped.
    pub(super) fn put_at_pace(mut self, shared: Shared<'_>) -> Result<Done, Error> {
        let rate = self.run.settings.write_rate.max(1) as f64;
        let mut pace = Pace::new(Instant::now(), rate, (0, 1), Wait::Sleep);
        loop {
            let due = pace.next_due();
            pace.wait_until(due, || shared.is_stopped());
            if shared.is_stopped() {
                return Ok(self.done);
            }
            let id = self.draw_key();
            self.put_key(id)?;
            self.done.latencies[0].record(due.elapsed());
            self.done.calls[0] += 1;
        }
    }

    /// Which part of the mix comes next.
    #[inline]
    fn choose(&mut self) -> usize {
        match self.workload.mix.len() {
            1 => 0,
            _ => self.workload.choose(self.generator.rng().below(100)),
        }
    }

    /// One call of the store. Returns how many operations it was, at most `left`.
    #[inline]
    fn call(&mut self, at: usize, left: u64) -> Result<u64, Error> {
        self.done.calls[at] += 1;
        match self.workload.mix[at].0 {
            Operation::Put => return self.write(false, left),
            Operation::Delete => return self.write(true, left),
            Operation::Next => unreachable!("phases that step through the store do nothing else"),
            Operation::Insert => self.insert()?,
            Operation::ReadMissing => {
                let id = self.generator.next(0);
                self.run.keys.write_absent(id.number, &mut self.key);
                self.done.found += u64::from(self.session.get(&self.key)?);
            }
            Operation::Read => {
                self.draw_key();
                self.done.found += u64::from(self.session.get(&self.key)?);
            }
            Operation::ReadModifyWrite => {
                let id = self.draw_key();
                self.done.found += u64::from(self.session.get(&self.key)?);
                self.put_key(id)?;
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
    fn draw_key(&mut self) -> KeyId {
        // Records that other threads are inserting just now may not be there yet, so the newest
        // ones are left out: one per thread.
        let in_flight = self.run.settings.threads as u64;
        // ORDER: Relaxed; a count that is late only makes the newest records less popular.
        let written = self.run.items_written.load(Ordering::Relaxed);
        let settled = written.saturating_sub(in_flight).max(self.run.settings.num);
        let id = self.generator.next(settled);
        self.run.keys.write(id, &mut self.key);
        id
    }

    /// Puts a record that was not there before.
    fn insert(&mut self) -> Result<(), Error> {
        // ORDER: Relaxed; the counter hands out numbers and publishes nothing.
        let item = self.run.items_written.fetch_add(1, Ordering::Relaxed);
        if item >= self.run.items.capacity() {
            return Err(Error::Meaningless(
                "the keys for inserted records are used up; use a larger --num".to_owned(),
            ));
        }
        let id = self.run.items.record(item);
        self.run.keys.write(id, &mut self.key);
        if let Some(live) = self.live {
            live.insert();
        }
        self.put_key(id)
    }

    #[inline]
    fn put_key(&mut self, id: KeyId) -> Result<(), Error> {
        let value = self.run.values.draw(self.generator.rng());
        match self.workload.synced {
            true => self.session.put_synced(&self.key, value)?,
            false => self.session.put(&self.key, value)?,
        }
        self.done.bytes_user += (self.key.len() + value.len()) as u64;
        if let Some(live) = self.live {
            live.put(id);
        }
        Ok(())
    }

    fn delete_key(&mut self, id: KeyId) -> Result<(), Error> {
        self.session.delete(&self.key)?;
        self.done.bytes_user += self.key.len() as u64;
        if let Some(live) = self.live {
            live.delete(id);
        }
        Ok(())
    }

    /// Puts or deletes one record, or a batch where the phase only writes. Writes that each wait
    /// for the disk are never put together.
    #[inline]
    fn write(&mut self, is_delete: bool, left: u64) -> Result<u64, Error> {
        let batch = match self.workload.workers {
            Workers::Writers if !self.workload.synced => self.run.settings.batch.clamp(1, left),
            Workers::Writers | Workers::Threads => 1,
        };
        if batch == 1 {
            let id = self.draw_key();
            match is_delete {
                true => self.delete_key(id)?,
                false => self.put_key(id)?,
            }
            return Ok(1);
        }
        self.batch.clear();
        for _ in 0..batch {
            let id = self.draw_key();
            self.done.bytes_user += self.key.len() as u64;
            if is_delete {
                self.batch.delete(&self.key);
            } else {
                let value = self.run.values.draw(self.generator.rng());
                self.done.bytes_user += value.len() as u64;
                self.batch.put(&self.key, value);
            }
            match self.live {
                Some(live) if is_delete => live.delete(id),
                Some(live) => live.put(id),
                None => {}
            }
        }
        self.session.write(&self.batch)?;
        Ok(batch)
    }

    fn scan(&mut self, entries: u64) -> Result<(), Error> {
        self.draw_key();
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        self.done.found += self.session.scan(&self.key, entries)? as u64;
        Ok(())
    }

    /// Steps through the store, and from its end on to its start.
    fn walk(&mut self, operations: u64, shared: Shared<'_>) -> Result<(), Error> {
        let mut last = Instant::now();
        let mut restarted = false;
        while self.done.operations < operations && !shared.is_stopped() {
            let first = KeyId {
                number: self.first,
                generation: 0,
            };
            self.run.keys.write(first, &mut self.key);
            let mut steps = self.session.steps(&self.key)?;
            while self.done.operations < operations && !shared.is_stopped() {
                let wanted = STEPS_PER_CLOCK_READ.min(operations - self.done.operations);
                let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
                let count = steps(wanted)?;
                let now = Instant::now();
                if count > 0 {
                    let count = count as u64;
                    let per_step = (now - last).div_f64(count as f64);
                    self.done.latencies[0].record_many(per_step, count);
                    self.done.calls[0] += count;
                    self.done.operations += count;
                    self.done.found += count;
                    restarted = false;
                }
                last = now;
                shared.counter.set(self.done.operations);
                if count < wanted {
                    break;
                }
            }
            if self.done.operations < operations && !shared.is_stopped() {
                if restarted {
                    return Err(Error::Meaningless(format!(
                        "{} found no record at all: run a fill of the same --num first",
                        self.workload.name
                    )));
                }
                restarted = true;
                self.first = 0;
            }
        }
        Ok(())
    }
}

/// The stream of random numbers of one thread of one phase: two phases do not draw alike.
fn stream_of(phase: &str, thread: usize) -> u64 {
    let name = phase
        .bytes()
        .fold(0u64, |hash, byte| mix(hash ^ u64::from(byte)));
    name.wrapping_add(thread as u64)
}
