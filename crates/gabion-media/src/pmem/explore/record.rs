//! Records a history: runs it once, with all steps on the medium and the results.

use std::sync::Arc;

use super::check::hash_of_value;
use super::subject::{OpOutcome, Subject, SubjectMedium};
use super::watch::EventRecorder;
use crate::pmem::region::Region;
use crate::pmem::trace::{Trace, TraceStep};
use crate::seeded::mix;

/// A part of a history.
#[derive(Clone, Debug)]
pub enum HistoryStep<Op> {
    /// An operation.
    Op(Op),
    /// An operation on another thread, while this one waits. Fences are those of one thread, so
    /// what one thread left without a fence another cannot rely on.
    Elsewhere(Op),
    /// The structure is closed, and opened again.
    Reopen,
    /// The process ends without closing the structure, and the next one opens it, after the system
    /// has made durable what the first one stored: so it is when a pool is opened
    /// ([`Pool::open`](crate::pmem::Pool::open)).
    Restart,
}

/// The thread that the system's own flushes are reported with.
pub(super) const SYSTEM: u32 = u32::MAX;

/// A run of a history on one thread: what the explorer explores.
///
/// The first thing it does is to create the structure.
pub struct Run<S: Subject> {
    /// Name for reports.
    pub(super) name: String,
    pub(super) trace: Trace,
    /// What was done by each step of the history, the first being the creation.
    pub(super) names: Vec<&'static str>,
    pub(super) steps: Vec<String>,
    /// What the structure held before the history, and after each step.
    contents: Vec<Option<S::Content>>,
    /// The hash of each.
    hashes: Vec<u64>,
    /// Steps before this one only prepare; crashes in them are not explored.
    first: usize,
}

/// Where a history stands in a phase: the phases are the stretches between the begins and the
/// returns of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PhaseProgress {
    /// Steps that have returned.
    pub(super) done: usize,
    /// Whether the next one is under way.
    pub(super) is_under_way: bool,
}

impl PhaseProgress {
    /// The standing in a phase: each step begins and returns once.
    pub(super) fn in_phase(phase: usize) -> PhaseProgress {
        PhaseProgress {
            done: phase / 2,
            is_under_way: phase % 2 == 1,
        }
    }
}

impl<S: Subject> Run<S> {
    /// Creates the structure, prepares it with `setup` and then acts. Crashes are explored in
    /// the acts; if there is no setup, in the creation too.
    ///
    /// # Errors
    /// A sentence, if an operation fails, does not do what the twin says, or stores past the
    /// medium.
    pub fn record(
        subject: &S,
        name: &str,
        setup: &[S::Op],
        acts: &[HistoryStep<S::Op>],
    ) -> Result<Run<S>, String> {
        let region = Region::new(usize::try_from(subject.bytes()).unwrap_or(usize::MAX));
        let recorder = Arc::new(EventRecorder::new(region.to_vec(), None));
        let stage = SubjectMedium::new(region.clone(), recorder.clone());
        let mut run = Run {
            name: name.to_owned(),
            trace: Trace::default(),
            names: Vec::new(),
            steps: Vec::new(),
            contents: vec![None],
            hashes: Vec::new(),
            first: if setup.is_empty() { 0 } else { setup.len() + 1 },
        };
        let mut content = subject.empty();
        let mut structure = run.do_step(&recorder, "create", "create".to_owned(), || {
            subject.create(&stage)
        })?;
        recorder.compare(&region)?;
        run.contents.push(Some(content.clone()));
        let setup = setup.iter().cloned().map(HistoryStep::Op);
        for act in setup.chain(acts.iter().cloned()) {
            let is_closed = matches!(act, HistoryStep::Reopen);
            let is_elsewhere = matches!(act, HistoryStep::Elsewhere(_));
            match act {
                HistoryStep::Op(op) | HistoryStep::Elsewhere(op) => {
                    let text = format!("{op:?}{}", if is_elsewhere { " elsewhere" } else { "" });
                    let outcome = run.do_step(&recorder, subject.name(&op), text, || {
                        let apply = || subject.apply(&structure, &op);
                        if is_elsewhere {
                            on_another_thread(apply)
                        } else {
                            apply()
                        }
                    })?;
                    if outcome == OpOutcome::Done {
                        subject.expect(&mut content, &op);
                    }
                }
                HistoryStep::Reopen | HistoryStep::Restart => {
                    let name = if is_closed { "reopen" } else { "restart" };
                    structure = run.do_step(&recorder, name, name.to_owned(), || {
                        if is_closed {
                            subject.close(structure)?;
                        } else {
                            drop(structure);
                            recorder.sync(region.len() as u64);
                        }
                        let opened = subject.open(&stage)?;
                        opened.ok_or_else(|| "it is gone after it was closed".to_owned())
                    })?;
                }
            }
            let step = run.steps.last().map_or("", String::as_str);
            let bypassed = recorder.compare(&region);
            bypassed.map_err(|error| format!("after {step}: {error}"))?;
            let holds = subject.content(&structure)?;
            if holds != content {
                return Err(format!(
                    "after {step} it holds {holds:?} instead of {content:?}"
                ));
            }
            run.contents.push(Some(content.clone()));
        }
        run.trace = recorder.take();
        run.hashes = run.contents.iter().map(hash_of_value).collect();
        drop(structure);
        Ok(run)
    }

    fn do_step<R>(
        &mut self,
        recorder: &EventRecorder,
        name: &'static str,
        text: String,
        act: impl FnOnce() -> Result<R, String>,
    ) -> Result<R, String> {
        let op = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        recorder.mark(TraceStep::Begin { op }, 0);
        let result = act().map_err(|error| format!("{text}: {error}"))?;
        recorder.mark(TraceStep::End { op }, 0);
        self.names.push(name);
        self.steps.push(text);
        Ok(result)
    }

    /// The first step that is not setup.
    pub(super) fn first(&self) -> usize {
        self.first
    }
}

/// Runs something on a thread of its own, and waits for it.
fn on_another_thread<R: Send>(act: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| match scope.spawn(act).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// A history that was run and can be explored: a [`Run`], or a
/// [`ConcurrentRun`](super::ConcurrentRun).
pub trait History<C> {
    /// The events of the run.
    fn trace(&self) -> &Trace;

    /// Whether this content is one that a crash in `phase` may leave. `None`: there is no
    /// structure yet.
    fn judge(&self, phase: usize, content: Option<&C>) -> Result<(), String>;

    /// A number that is equal for phases that allow the same contents, and for a phase that allows
    /// just one the same as that of a recovery that has shown it.
    fn demand(&self, phase: usize) -> u64;

    /// Name of the run, for reports.
    fn name(&self) -> &str;

    /// Whether crashes in this phase are explored.
    fn is_explored(&self, phase: usize) -> bool;

    /// The kind of step that a crash in this phase is counted under.
    fn kind(&self, phase: usize) -> &'static str;

    /// Where the history stands, for people.
    fn tell(&self, phase: usize) -> String;

    /// What a step is, for people.
    fn step(&self, op: u32) -> &str;
}

/// The number of a demand for one content or, of a step under way, another.
pub(super) fn demand_of(before: u64, after: u64) -> u64 {
    mix(before ^ after.rotate_left(32))
}

impl<S: Subject> History<S::Content> for Run<S> {
    fn trace(&self) -> &Trace {
        &self.trace
    }

    fn judge(&self, phase: usize, content: Option<&S::Content>) -> Result<(), String> {
        let standing = PhaseProgress::in_phase(phase);
        let before = self.contents[standing.done].as_ref();
        if content == before {
            return Ok(());
        }
        if !standing.is_under_way {
            return Err(format!("it holds {content:?} instead of {before:?}"));
        }
        let after = self.contents[standing.done + 1].as_ref();
        if content == after {
            return Ok(());
        }
        Err(format!(
            "it holds {content:?}, which is neither {before:?} nor {after:?}"
        ))
    }

    fn demand(&self, phase: usize) -> u64 {
        let standing = PhaseProgress::in_phase(phase);
        let after = standing.done + usize::from(standing.is_under_way);
        demand_of(self.hashes[standing.done], self.hashes[after])
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_explored(&self, phase: usize) -> bool {
        // When a step has returned, what is demanded is still its affair.
        phase > 2 * self.first
    }

    fn kind(&self, phase: usize) -> &'static str {
        let step = phase.saturating_sub(1) / 2;
        self.names.get(step).copied().unwrap_or("end")
    }

    fn tell(&self, phase: usize) -> String {
        let PhaseProgress { done, is_under_way } = PhaseProgress::in_phase(phase);
        let step = |at: usize| self.steps.get(at).map_or("", String::as_str);
        if is_under_way {
            format!("during step {done}, {}", step(done))
        } else if done == 0 {
            "before the first step".to_owned()
        } else {
            format!("after step {}, {}, returned", done - 1, step(done - 1))
        }
    }

    fn step(&self, op: u32) -> &str {
        self.steps.get(op as usize).map_or("", String::as_str)
    }
}
