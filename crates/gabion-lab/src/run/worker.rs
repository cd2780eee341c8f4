//! One thread of a phase: draws records, makes requests, takes their times.
//!
//! A latency is the time of a call alone: the next requests are drawn before its clock starts, but
//! for the records of a batch, which are put together in the call. In a closed loop the clock is
//! read once per call: the end of a call is the start of the next. Where calls are so short that
//! the clock would be a large part of them, only one call of [`STRIDE`] is timed, and stands for
//! all of them in the histogram; the choice is made anew for every window of calls. Throughput
//! always counts every operation, and all of the time.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::gate::Gate;
use super::pace::{Pace, Wait};
use super::progress::Counter;
use super::requests::Requests;
use super::{Phase, Runner};
use crate::Error;
use crate::measure::Latencies;
use crate::target::{Batch, Session};
use crate::workload::generators::part_of;
use crate::workload::keys::{GENERATION_MAX, KeyId};
use crate::workload::{Operation, ScanLength, Workers, Workload, below};

/// Steps through the store that share one clock read: a step is much shorter than the clock.
const STEPS_PER_CLOCK_READ: u64 = 64;
/// Calls after which is decided whether the next ones are all timed.
const WINDOW: u64 = 1024;
/// Calls of which one is timed, where they are short.
pub(super) const STRIDE: u64 = 32;
/// Mean time of a call below which it is short, the clock's own time included: that is 25 to 40
/// nanoseconds on a virtual machine, and then more than a tenth of the call.
const SHORT: Duration = Duration::from_nanos(300);

/// What one thread did.
#[derive(Debug)]
pub(super) struct WorkerResult {
    pub(super) operations: u64,
    pub(super) found: u64,
    pub(super) conflicts: u64,
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
pub(super) struct WorkerCounters<'r> {
    /// Lets it go on, wait and end.
    pub(super) gate: &'r Gate,
    /// What the thread has done.
    pub(super) counter: &'r Counter,
}

/// One thread of a phase.
pub(super) struct Worker<'r> {
    run: &'r Runner<'r>,
    workload: &'r Workload,
    thread: usize,
    session: Box<dyn Session + 'r>,
    requests: Requests<'r>,
    /// Records of a write.
    batch_len: u64,
    batch: Batch,
    /// Where stepping through the store starts.
    first: u64,
    pub(super) done: WorkerResult,
}

impl<'r> Worker<'r> {
    /// Thread number `thread` of a phase.
    pub(super) fn new(
        run: &'r Runner<'r>,
        phase: &Phase<'r>,
        thread: usize,
    ) -> Result<Worker<'r>, Error> {
        Worker::with(run, phase, thread, run.requests(phase, thread))
    }

    /// The thread that puts at a pace beside the others of a phase.
    pub(super) fn paced(run: &'r Runner<'r>, phase: &Phase<'r>) -> Result<Worker<'r>, Error> {
        Worker::with(run, phase, 0, run.paced_requests(phase))
    }

    fn with(
        run: &'r Runner<'r>,
        phase: &Phase<'r>,
        thread: usize,
        requests: Requests<'r>,
    ) -> Result<Worker<'r>, Error> {
        let (workload, settings) = (phase.workload, &run.settings);
        let (first, end) = part_of(thread as u64, phase.threads as u64, settings.num);
        let batch_len = match workload.workers {
            Workers::Writers => settings.batch,
            Workers::Threads => 1,
        };
        Ok(Worker {
            run,
            workload,
            thread,
            session: run.store.session()?,
            requests,
            batch_len,
            batch: Batch::default(),
            first: match workload.is_walk_back() {
                true => end.saturating_sub(1),
                false => first,
            },
            done: WorkerResult {
                operations: 0,
                found: 0,
                conflicts: 0,
                bytes_user: 0,
                calls: vec![0; workload.mix.len()],
                latencies: workload.mix.iter().map(|_| Latencies::new()).collect(),
                is_sampled: false,
            },
        })
    }

    /// Which thread of how many it is, and how many operations it does.
    pub(super) fn share(&self, phase: &Phase<'_>) -> ((usize, usize), u64) {
        let (first, end) = part_of(self.thread as u64, phase.threads as u64, phase.total);
        ((self.thread, phase.threads), end - first)
    }

    /// Whether the worker steps through the store, which has no pace.
    pub(super) fn is_walk(&self) -> bool {
        self.workload.is_walk()
    }

    /// Does `operations` operations, each as soon as the one before has ended.
    pub(super) fn work(
        &mut self,
        operations: u64,
        shared: WorkerCounters<'_>,
    ) -> Result<(), Error> {
        if self.workload.is_walk() {
            return self.walk(operations, shared);
        }
        let mut is_short = false;
        while self.done.operations < operations && (shared.gate.is_open() || shared.gate.pass()) {
            let begin = Instant::now();
            let mut calls = 0;
            while calls < WINDOW && self.goes_on(operations, shared) {
                calls += match is_short {
                    true => self.sample(operations)?,
                    false => self.time_each(operations, shared)?,
                };
                shared.counter.set(self.done.operations);
            }
            if calls > 0 {
                is_short = begin.elapsed().as_nanos() < SHORT.as_nanos() * u128::from(calls);
            }
        }
        Ok(())
    }

    /// Whether there is more to do, and leave to do it at once.
    #[inline]
    fn goes_on(&self, operations: u64, shared: WorkerCounters<'_>) -> bool {
        self.done.operations < operations && shared.gate.is_open()
    }

    /// Some calls with the time of each; how many there were.
    fn time_each(&mut self, operations: u64, shared: WorkerCounters<'_>) -> Result<u64, Error> {
        let mut last = Instant::now();
        for call in 0..STRIDE {
            if !self.goes_on(operations, shared) {
                return Ok(call);
            }
            if self.requests.are_spent() {
                self.draw();
                last = Instant::now();
            }
            let (part, done) = self.call(operations - self.done.operations)?;
            self.done.operations += done;
            let now = Instant::now();
            self.done.latencies[part].record(now - last);
            last = now;
            shared.counter.set(self.done.operations);
        }
        Ok(STRIDE)
    }

    /// [`STRIDE`] calls of which the last is timed for all of them; how many there were.
    fn sample(&mut self, operations: u64) -> Result<u64, Error> {
        self.done.is_sampled = true;
        let mut calls = 1;
        let left = operations - self.done.operations;
        match self.workload.mix {
            // Phases of one kind of short calls, by loops that do nothing else.
            [(Operation::Read | Operation::ReadMissing, _)] => {
                calls += self.gets(left.min(STRIDE) - 1)?;
            }
            [(Operation::Put, _)] if self.batch_len == 1 && !self.workload.synced => {
                calls += self.puts(left.min(STRIDE) - 1)?;
            }
            _ => {
                while calls < STRIDE && self.done.operations + 1 < operations {
                    self.done.operations += self.call(operations - self.done.operations)?.1;
                    calls += 1;
                }
            }
        }
        if self.done.operations < operations {
            self.prepare();
            let begin = Instant::now();
            let (part, done) = self.call(operations - self.done.operations)?;
            self.done.operations += done;
            self.done.latencies[part].record_many(begin.elapsed(), calls);
        }
        Ok(calls)
    }

    fn gets(&mut self, calls: u64) -> Result<u64, Error> {
        let mut found = 0;
        for _ in 0..calls {
            self.prepare();
            let at = self.requests.take();
            found += u64::from(self.session.get(self.requests.key(at))?);
        }
        self.done.found += found;
        self.done.calls[0] += calls;
        self.done.operations += calls;
        Ok(calls)
    }

    fn puts(&mut self, calls: u64) -> Result<u64, Error> {
        let mut bytes = 0;
        for _ in 0..calls {
            self.prepare();
            let at = self.requests.take();
            let key = self.requests.key(at);
            let value = self.run.values.value(self.requests.random(at));
            self.session.put(key, value)?;
            bytes += key.len() + value.len();
        }
        self.done.bytes_user += bytes as u64;
        self.done.calls[0] += calls;
        self.done.operations += calls;
        Ok(calls)
    }

    /// Does `operations` operations, or goes on until it is stopped, each when it is due.
    pub(super) fn work_at_pace(
        &mut self,
        operations: u64,
        mut pace: Pace,
        shared: WorkerCounters<'_>,
    ) -> Result<(), Error> {
        while self.done.operations < operations {
            self.prepare();
            let due = pace.next_due();
            pace.wait_until(due, || shared.gate.is_ended());
            if shared.gate.is_ended() {
                let left = (operations - self.done.operations).div_ceil(self.batch_len);
                self.charge_overdue(&pace, due, left, shared);
                break;
            }
            let (part, done) = self.call(operations - self.done.operations)?;
            self.done.operations += done;
            self.done.latencies[part].record(due.elapsed());
            // Those of a batch are due with its first one.
            pace.skip(done - 1);
            shared.counter.set(self.done.operations);
        }
        Ok(())
    }

    /// Puts records at the run's pace until it is stopped.
    pub(super) fn put_at_pace(mut self, shared: WorkerCounters<'_>) -> Result<WorkerResult, Error> {
        let rate = self.run.settings.write_rate as f64;
        let mut pace = Pace::new(Instant::now(), rate, (0, 1), Wait::Sleep);
        loop {
            self.prepare();
            let due = pace.next_due();
            pace.wait_until(due, || shared.gate.is_ended());
            if shared.gate.is_ended() {
                self.charge_overdue(&pace, due, u64::MAX, shared);
                return Ok(self.done);
            }
            let at = self.requests.take();
            self.put_key(at)?;
            self.done.latencies[0].record(due.elapsed());
            self.done.calls[0] += 1;
        }
    }

    /// Charges for at most `calls_max` calls that were due when the phase ended, the first of them
    /// at `due`, and were not begun: for what they had waited then, each part of the mix for its
    /// share.
    fn charge_overdue(
        &mut self,
        pace: &Pace,
        due: Instant,
        calls_max: u64,
        shared: WorkerCounters<'_>,
    ) {
        let end = shared.gate.ended_at();
        let mut charged = 0;
        for (wait, calls) in pace.overdue(due, end, self.batch_len, calls_max) {
            let share = |calls: u64, percent: u32| calls * u64::from(percent) / 100;
            for (latencies, (_, percent)) in self.done.latencies.iter_mut().zip(self.workload.mix) {
                let count = share(charged + calls, *percent) - share(charged, *percent);
                latencies.record_many(wait, count);
            }
            charged += calls;
        }
    }

    /// Draws requests if there are none left.
    #[inline]
    fn prepare(&mut self) {
        if self.requests.are_spent() {
            self.draw();
        }
    }

    /// Draws the next requests.
    #[inline]
    fn draw(&mut self) {
        self.requests.draw(self.run.items_settled());
    }

    /// One call of the store. Returns which part of the mix it was, and how many operations, at
    /// most `left`.
    #[inline]
    fn call(&mut self, left: u64) -> Result<(usize, u64), Error> {
        self.prepare();
        let at = self.requests.take();
        let part = self.requests.part(at);
        self.done.calls[part] += 1;
        let operation = self.workload.mix[part].0;
        // Ahead of the others, since a jump through a table costs as much as all else here.
        if matches!(operation, Operation::Read | Operation::ReadMissing) {
            self.done.found += u64::from(self.session.get(self.requests.key(at))?);
            return Ok((part, 1));
        }
        match operation {
            Operation::Put => return Ok((part, self.write(at, false, left)?)),
            Operation::Delete => return Ok((part, self.write(at, true, left)?)),
            Operation::Next | Operation::Previous | Operation::Read | Operation::ReadMissing => {
                unreachable!("reads are done, and phases that step do nothing else")
            }
            Operation::Compact => self.run.store.compact()?,
            Operation::Restart => {
                let sentence = "a restart needs a process of its own; use `gabion lab run`";
                return Err(Error::Request(sentence.to_owned()));
            }
            Operation::Rest => {
                std::thread::sleep(Duration::from_secs(self.run.settings.rest_seconds));
            }
            Operation::Count => {
                self.done.found += self.run.count_records(&mut *self.session)?;
            }
            Operation::Insert => self.insert(at)?,
            Operation::ReadModifyWrite => {
                self.done.found += u64::from(self.session.get(self.requests.key(at))?);
                self.put_key(at)?;
            }
            Operation::Merge => {
                let key = self.requests.key(at);
                self.session.merge(key, 1)?;
                self.done.bytes_user += (key.len() + size_of::<i64>()) as u64;
            }
            Operation::Transaction(records) => self.transact(at, records)?,
            Operation::Seek => self.scan(at, 1)?,
            Operation::Scan(ScanLength::Fixed(entries)) => self.scan(at, u64::from(entries))?,
            Operation::Scan(ScanLength::UpTo(entries)) => {
                let entries = 1 + below(self.requests.random(at), u64::from(entries));
                self.scan(at, entries)?;
            }
        }
        Ok((part, 1))
    }

    /// Puts a record that was not there before.
    fn insert(&mut self, at: usize) -> Result<(), Error> {
        // ORDER: Relaxed; the counter hands out numbers and publishes nothing.
        let item = self.run.items_written.fetch_add(1, Ordering::Relaxed);
        if item >= self.run.items.capacity() {
            return Err(Error::Meaningless(
                "the keys for inserted records are used up; use a larger --num".to_owned(),
            ));
        }
        self.requests.replace(at, self.run.items.record(item));
        self.put_key(at)
    }

    #[inline]
    fn put_key(&mut self, at: usize) -> Result<(), Error> {
        let value = self.run.values.value(self.requests.random(at));
        let key = self.requests.key(at);
        match self.workload.synced {
            true => self.session.put_synced(key, value)?,
            false => self.session.put(key, value)?,
        }
        self.done.bytes_user += (key.len() + value.len()) as u64;
        Ok(())
    }

    fn delete_key(&mut self, at: usize) -> Result<(), Error> {
        let key = self.requests.key(at);
        self.session.delete(key)?;
        self.done.bytes_user += key.len() as u64;
        Ok(())
    }

    /// Puts or deletes one record, or a batch that begins with it where the phase only writes.
    #[inline]
    fn write(&mut self, at: usize, is_delete: bool, left: u64) -> Result<u64, Error> {
        match self.batch_len {
            1 => {
                match is_delete {
                    true => self.delete_key(at)?,
                    false => self.put_key(at)?,
                }
                Ok(1)
            }
            len => self.write_batch(at, is_delete, len.min(left)),
        }
    }

    /// Reads and puts so many records in a transaction, the one drawn and those that follow it.
    fn transact(&mut self, at: usize, records: u32) -> Result<(), Error> {
        self.fill_batch(at, false, u64::from(records));
        let done = self.session.transact(&self.batch)?;
        self.done.found += done.found;
        self.done.conflicts += done.conflicts;
        self.done.bytes_user += self.batch.bytes();
        Ok(())
    }

    fn write_batch(&mut self, at: usize, is_delete: bool, len: u64) -> Result<u64, Error> {
        self.fill_batch(at, is_delete, len);
        self.done.bytes_user += self.batch.bytes();
        match self.workload.synced {
            true => self.session.write_synced(&self.batch)?,
            false => self.session.write(&self.batch)?,
        }
        Ok(len)
    }

    /// Makes the batch one of so many records, the one drawn and those that follow it.
    fn fill_batch(&mut self, mut at: usize, is_delete: bool, len: u64) {
        self.batch.clear();
        for record in 0..len {
            if record > 0 {
                self.prepare();
                at = self.requests.take();
            }
            if is_delete {
                self.batch.delete(self.requests.key(at));
            } else {
                let value = self.run.values.value(self.requests.random(at));
                self.batch.put(self.requests.key(at), value);
            }
        }
    }

    fn scan(&mut self, at: usize, entries: u64) -> Result<(), Error> {
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        self.done.found += self.session.scan(self.requests.key(at), entries)? as u64;
        Ok(())
    }

    /// Steps through the store, and from its end on to its start; or backwards.
    fn walk(&mut self, operations: u64, shared: WorkerCounters<'_>) -> Result<(), Error> {
        let mut key = self.run.keys.buffer(1);
        let is_back = self.workload.is_walk_back();
        let mut last = Instant::now();
        let mut restarted = false;
        while self.done.operations < operations && !shared.gate.is_ended() {
            let first = KeyId {
                number: self.first,
                generation: if is_back { GENERATION_MAX } else { 0 },
            };
            self.run.keys.write(first, &mut key);
            let mut steps = match is_back {
                true => self.session.steps_back(&key)?,
                false => self.session.steps(&key)?,
            };
            while self.done.operations < operations {
                if !shared.gate.is_open() {
                    if !shared.gate.pass() {
                        break;
                    }
                    last = Instant::now();
                }
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
            if self.done.operations < operations && !shared.gate.is_ended() {
                if restarted {
                    return Err(Error::Meaningless(format!(
                        "{} found no record at all: run a fill of the same --num first",
                        self.workload.name
                    )));
                }
                restarted = true;
                self.first = match is_back {
                    true => self.run.settings.num - 1,
                    false => 0,
                };
            }
        }
        Ok(())
    }
}
