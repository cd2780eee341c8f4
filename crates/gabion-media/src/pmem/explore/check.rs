//! Checks crash images one after the other in the same memory: lays each out, opens it, checks it,
//! and restores the memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ExploreLimits;
use super::image::{CrashImage, LineWords, WORDS};
use super::subject::{OpOutcome, Subject, SubjectMedium};
use super::watch::{CheckWatcher, StepLimitReached};
use crate::pmem::region::Region;
use crate::pmem::trace::TraceStep;
use crate::seeded::mix;

/// What is demanded of the images of a moment.
pub(super) enum ImageCheck<C> {
    /// What the history allows in the phase that it is in.
    History,
    /// What a recovery that came to its end has shown, or what the operations after it made of
    /// that; of one under way both contents.
    Either(Option<C>, Option<C>),
}

/// Says whether a content is as it must be. `None`: there is no structure yet.
pub(super) type ContentCheck<'v, C> = dyn Fn(Option<&C>) -> Result<(), String> + 'v;

/// The memory in which images are checked, and the durable content behind it.
///
/// Between checks the memory equals the image.
pub(super) struct CheckMemory<'s, S: Subject> {
    subject: &'s S,
    stage: SubjectMedium,
    lens: Arc<CheckWatcher>,
    pub(super) image: CrashImage,
    probes: Vec<S::Op>,
    /// So many probes are recorded behind a recovery.
    recorded: usize,
    steps: u64,
}

impl<'s, S: Subject> CheckMemory<'s, S> {
    pub(super) fn new(subject: &'s S, base: &[u8], limits: &ExploreLimits) -> CheckMemory<'s, S> {
        let image = CrashImage::new(base);
        let lens = Arc::new(CheckWatcher::new(image.lines().len()));
        let bench = CheckMemory {
            subject,
            stage: SubjectMedium::new(Region::new(base.len()), lens.clone()),
            lens,
            image,
            probes: subject.probes(),
            recorded: limits.nested_probes,
            steps: limits.steps,
        };
        for line in (0..).take(bench.image.lines().len()) {
            bench.lay(line, bench.image.line(line));
        }
        bench
    }

    pub(super) fn lens(&self) -> &CheckWatcher {
        &self.lens
    }

    /// Puts a content of a line into the memory.
    pub(super) fn lay(&self, line: u32, content: &LineWords) {
        let at = line as usize * WORDS;
        let words = &self.stage.region().words()[at..at + WORDS];
        for (word, value) in words.iter().zip(content) {
            // ORDER: Relaxed: no other thread uses the memory between checks.
            word.store(*value, Ordering::Relaxed);
        }
    }

    /// Puts all lines into the memory that changed in the image since a mark.
    pub(super) fn lay_since(&self, mark: usize) {
        for line in self.image.changed_since(mark) {
            self.lay(line, self.image.line(line));
        }
    }

    /// Takes image and memory back to a mark.
    pub(super) fn undo(&mut self, mark: usize) {
        for line in self.image.undo(mark) {
            self.lay(line, self.image.line(line));
        }
    }

    /// Brings the memory back to the image, after a check of lines that were laid out by hand.
    pub(super) fn restore(&self, laid: impl Iterator<Item = u32>) {
        for line in laid {
            self.lay(line, self.image.line(line));
        }
        self.lens
            .written(|line| self.lay(line, self.image.line(line)));
    }

    /// Opens the structure in the memory as it is and checks it. Returns what it holds, `None` if
    /// it was never created, and then what it holds after each recorded probe.
    pub(super) fn check(
        &self,
        judge: &ContentCheck<'_, S::Content>,
        records: bool,
        is_thorough: bool,
    ) -> Result<Vec<Option<S::Content>>, String> {
        self.lens.begin(self.steps, records);
        let run = || self.open_and_check(judge, records, is_thorough);
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| Err(told(&*payload)))
    }

    fn open_and_check(
        &self,
        judge: &ContentCheck<'_, S::Content>,
        records: bool,
        is_thorough: bool,
    ) -> Result<Vec<Option<S::Content>>, String> {
        let opened = self.subject.open(&self.stage);
        let opened = opened.map_err(|error| format!("it does not open: {error}"))?;
        self.lens.recovered();
        let content = match &opened {
            Some(structure) => Some(self.content(structure)?),
            None => None,
        };
        judge(content.as_ref())?;
        let mut shown = vec![content.clone()];
        let structure = match opened {
            Some(structure) => structure,
            None => {
                self.lens.stop_recording();
                let created = self.subject.create(&self.stage);
                created.map_err(|error| format!("it cannot be created again: {error}"))?
            }
        };
        let records = records && content.is_some();
        let holds = content.unwrap_or_else(|| self.subject.empty());
        self.probe(structure, holds, records.then_some(&mut shown), is_thorough)?;
        Ok(shown)
    }

    fn content(&self, structure: &S::Structure) -> Result<S::Content, String> {
        let content = self.subject.content(structure);
        content.map_err(|error| format!("an invariant does not hold: {error}"))
    }

    /// Lets a recovered structure take operations; now and then it is closed and opened as well.
    fn probe(
        &self,
        structure: S::Structure,
        mut holds: S::Content,
        mut shown: Option<&mut Vec<Option<S::Content>>>,
        is_thorough: bool,
    ) -> Result<(), String> {
        for (number, op) in (1..).zip(&self.probes) {
            if number as usize > self.recorded {
                self.lens.stop_recording();
                shown = None;
            }
            self.lens.mark(TraceStep::Begin { op: number });
            let outcome = self.subject.apply(&structure, op);
            match outcome.map_err(|error| format!("after recovery {op:?} fails: {error}"))? {
                OpOutcome::Done => self.subject.expect(&mut holds, op),
                OpOutcome::Refused => {}
            }
            self.lens.mark(TraceStep::End { op: number });
            if let Some(shown) = &mut shown {
                shown.push(Some(holds.clone()));
            }
        }
        self.lens.stop_recording();
        if !self.probes.is_empty() {
            let content = self.content(&structure)?;
            if content != holds {
                return Err(format!(
                    "after recovery and {} operations it holds {content:?} instead of {holds:?}",
                    self.probes.len()
                ));
            }
        }
        if !is_thorough {
            return Ok(());
        }
        self.subject.close(structure)?;
        let opened = self.subject.open(&self.stage);
        let opened = opened.map_err(|error| format!("it does not open again: {error}"))?;
        let Some(structure) = opened else {
            return Err("it is gone after it was closed".to_owned());
        };
        let content = self.content(&structure)?;
        if content == holds {
            Ok(())
        } else {
            Err(format!(
                "closed and opened again it holds {content:?} instead of {holds:?}"
            ))
        }
    }
}

/// What a panic says.
fn told(payload: &(dyn std::any::Any + Send)) -> String {
    if payload.is::<StepLimitReached>() {
        return "it does not come to an end".to_owned();
    }
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!("it panics: {}", text.unwrap_or_default())
}

/// A hash of a value, equal for equal values of one process.
pub(super) fn hash_of_value(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    mix(hasher.finish())
}
