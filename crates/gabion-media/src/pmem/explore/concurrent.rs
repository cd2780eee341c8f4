//! Histories on several threads: every key must be durably linearizable.
//!
//! # What is demanded
//! Keys are independent, and linearizability of a whole follows from that of each key (Herlihy
//! and Wing, 1990). A crash adds one more read of each key: what recovery shows. There must be an
//! order of the operations on the key that keeps to the order in which they returned and began,
//! in which each operation finds what it saw, and which ends with what recovery shows. Operations
//! that had returned must be in it; those under way may be (durable linearizability, Izraelevitz
//! et al., DISC 2016). So a read that returned a value binds the recovery to it.
//!
//! # Threads
//! The threads are real ones and pause now and then, so that the others overtake them (`pause`).
//! How they interleave differs from run to run; the trace keeps how they did, and all that follows
//! from it is repeatable.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Barrier};

use parking_lot::Mutex;

use super::check::hash_of_value;
use super::pause::PauseSchedule;
use super::record::History;
use super::subject::{Subject, SubjectMedium};
use super::watch::EventRecorder;
use crate::pmem::region::Region;
use crate::pmem::trace::{Trace, TraceStep, Watcher};
use crate::seeded::mix;

/// Operations on a key at most, as the search for their order keeps them as bits.
const OPERATIONS: usize = 64;

/// What an operation saw of its key, and what it left there. `None` inside: the key is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The key.
    pub key: u64,
    /// The value before, if the operation told it.
    pub saw: Option<Option<u64>>,
    /// The value after, if the operation may have changed it.
    pub left: Option<Option<u64>>,
}

/// A subject that maps keys to values and whose operations concern one key each.
pub trait Keyed: Subject<Content = BTreeMap<u64, u64>> {
    /// Runs an operation and tells what it saw and left. Called from several threads.
    ///
    /// # Errors
    /// A sentence; none is expected.
    fn access(&self, structure: &Self::Structure, op: &Self::Op) -> Result<Access, String>;
}

/// A run of a history on several threads.
pub struct ConcurrentRun {
    name: String,
    trace: Trace,
    operations: Vec<Operation>,
    /// What the structure held before the threads began.
    before: BTreeMap<u64, u64>,
    /// The operations by key.
    keys: BTreeMap<u64, Vec<usize>>,
    /// Begins and returns before those of the threads.
    first: usize,
}

/// An operation of a thread. Moments are numbers of phases.
struct Operation {
    number: u32,
    text: String,
    access: Access,
    /// The first phase in which it is under way.
    begin: usize,
    /// The first phase in which it has returned.
    end: usize,
}

impl ConcurrentRun {
    /// Creates the structure, prepares it with `setup`, and lets each thread run its operations,
    /// with pauses that are drawn from `seed`.
    ///
    /// # Errors
    /// A sentence, if an operation fails or stores past the medium, if there are too many for one
    /// key, or if the outcome without any crash is not linearizable.
    pub fn record<S>(
        subject: &S,
        name: &str,
        setup: &[S::Op],
        threads: &[Vec<S::Op>],
        seed: u64,
    ) -> Result<ConcurrentRun, String>
    where
        S: Keyed,
    {
        let region = Region::new(usize::try_from(subject.bytes()).unwrap_or(usize::MAX));
        let recorder = Arc::new(EventRecorder::new(
            region.to_vec(),
            Some(PauseSchedule::new(seed)),
        ));
        let stage = SubjectMedium::new(region.clone(), recorder.clone());
        let structure = subject.create(&stage)?;
        for op in setup {
            subject.apply(&structure, op)?;
        }
        let before = subject.content(&structure)?;
        // All of the setup is one step for the walk.
        recorder.mark(TraceStep::Begin { op: u32::MAX }, 0);
        recorder.mark(TraceStep::End { op: u32::MAX }, 0);
        let done = run_threads(subject, &structure, &recorder, threads)?;
        recorder.compare(&region)?;
        let after = subject.content(&structure)?;
        let trace = recorder.take();
        drop(structure);
        let mut run = ConcurrentRun {
            name: name.to_owned(),
            operations: Vec::new(),
            before,
            keys: BTreeMap::new(),
            first: 2,
            trace,
        };
        run.place(done)?;
        let last = 2 + 2 * run.operations.len();
        let judged = run.judge(last, Some(&after));
        judged.map_err(|error| format!("without any crash: {error}"))?;
        Ok(run)
    }

    /// Finds the begins and returns of the operations in the trace.
    fn place(&mut self, mut done: BTreeMap<u32, (String, Access)>) -> Result<(), String> {
        let mut phase = 0;
        let mut places: BTreeMap<u32, usize> = BTreeMap::new();
        for event in self.trace.iter() {
            let (op, is_begin) = match event.step {
                TraceStep::Begin { op } => (op, true),
                TraceStep::End { op } => (op, false),
                _ => continue,
            };
            phase += 1;
            if is_begin {
                places.insert(op, phase);
            } else if let (Some(begin), Some((text, access))) = (places.get(&op), done.remove(&op))
            {
                let ops = self.keys.entry(access.key).or_default();
                ops.push(self.operations.len());
                if ops.len() > OPERATIONS {
                    return Err(format!(
                        "more than {OPERATIONS} operations on {}",
                        access.key
                    ));
                }
                self.operations.push(Operation {
                    number: op,
                    text,
                    access,
                    begin: *begin,
                    end: phase,
                });
            }
        }
        Ok(())
    }

    /// Whether `shown` is what a crash in `phase` may leave of a key.
    fn is_explained(&self, key: u64, phase: usize, shown: Option<u64>) -> bool {
        let none = Vec::new();
        let all = self.keys.get(&key).unwrap_or(&none).iter();
        let begun: Vec<&Operation> = all
            .map(|op| &self.operations[*op])
            .filter(|op| op.begin <= phase)
            .collect();
        let returned = |op: &Operation| op.end <= phase;
        let must = (0..).zip(&begun).fold(
            0u64,
            |must, (at, op)| {
                if returned(op) { must | 1 << at } else { must }
            },
        );
        let mut tried = HashSet::new();
        let mut open = vec![(0u64, self.before.get(&key).copied())];
        while let Some((ordered, value)) = open.pop() {
            if ordered & must == must && value == shown {
                return true;
            }
            if !tried.insert((ordered, value)) {
                continue;
            }
            for (at, op) in begun.iter().enumerate() {
                let is_earlier = |other: &&Operation| returned(other) && other.end <= op.begin;
                let mut before = (0..).zip(&begun).filter(|(_, other)| is_earlier(other));
                let is_next = ordered >> at & 1 == 0
                    && before.all(|(other, _): (usize, _)| ordered >> other & 1 == 1)
                    && op.access.saw.is_none_or(|saw| saw == value);
                if is_next {
                    open.push((ordered | 1 << at, op.access.left.unwrap_or(value)));
                }
            }
        }
        false
    }
}

/// Tells the others when its thread ends, also by a panic.
struct Leaves<'p>(&'p PauseSchedule);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Runs the operations of all threads. Returns what they did by their numbers.
fn run_threads<S>(
    subject: &S,
    structure: &S::Structure,
    recorder: &EventRecorder,
    threads: &[Vec<S::Op>],
) -> Result<BTreeMap<u32, (String, Access)>, String>
where
    S: Keyed,
{
    let done = Mutex::new(BTreeMap::new());
    let error = Mutex::new(None);
    let start = Barrier::new(threads.len());
    let (shared, failed, start) = (&done, &error, &start);
    if let Some(pace) = recorder.pace() {
        pace.begin(threads.len());
    }
    std::thread::scope(|scope| {
        let mut first = 0;
        for (thread, ops) in (0..).zip(threads) {
            let numbers = first..;
            first += u32::try_from(ops.len()).unwrap_or(u32::MAX);
            scope.spawn(move || {
                start.wait();
                let _leaves = recorder.pace().map(Leaves);
                for (number, op) in numbers.zip(ops) {
                    recorder.mark(TraceStep::Begin { op: number }, thread);
                    recorder.pause();
                    let access = subject.access(structure, op);
                    recorder.mark(TraceStep::End { op: number }, thread);
                    match access {
                        Ok(access) => {
                            let text = format!("{op:?} of thread {thread}");
                            shared.lock().insert(number, (text, access));
                        }
                        Err(error) => {
                            *failed.lock() = Some(format!("{op:?}: {error}"));
                            return;
                        }
                    }
                }
            });
        }
    });
    match error.into_inner() {
        Some(error) => Err(error),
        None => Ok(done.into_inner()),
    }
}

impl History<BTreeMap<u64, u64>> for ConcurrentRun {
    fn trace(&self) -> &Trace {
        &self.trace
    }

    fn judge(&self, phase: usize, content: Option<&BTreeMap<u64, u64>>) -> Result<(), String> {
        let Some(content) = content else {
            return Err("it was never created".to_owned());
        };
        let keys: BTreeSet<u64> = content
            .keys()
            .chain(self.before.keys())
            .chain(self.keys.keys())
            .copied()
            .collect();
        for key in keys {
            let shown = content.get(&key).copied();
            if self.is_explained(key, phase, shown) {
                continue;
            }
            let mut text = format!("no order of the operations on key {key} ends with {shown:?}:");
            for op in self.keys.get(&key).into_iter().flatten() {
                let op = &self.operations[*op];
                if op.begin <= phase {
                    let state = if op.end <= phase {
                        "returned"
                    } else {
                        "under way"
                    };
                    text.push_str(&format!(" {} ({state}, {:?});", op.text, op.access));
                }
            }
            return Err(text);
        }
        Ok(())
    }

    fn demand(&self, phase: usize) -> u64 {
        mix(hash_of_value(&self.name) ^ mix(phase as u64))
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_explored(&self, phase: usize) -> bool {
        phase >= self.first
    }

    fn kind(&self, _: usize) -> &'static str {
        "concurrent"
    }

    fn tell(&self, phase: usize) -> String {
        let is_open = |op: &&Operation| op.begin <= phase && phase < op.end;
        let open = self.operations.iter().filter(is_open);
        let open: Vec<&str> = open.map(|op| op.text.as_str()).collect();
        format!(
            "while {} operations are under way: {}",
            open.len(),
            open.join(", ")
        )
    }

    fn step(&self, op: u32) -> &str {
        let found = self
            .operations
            .iter()
            .find(|operation| operation.number == op);
        found.map_or("", |operation| &operation.text)
    }
}
