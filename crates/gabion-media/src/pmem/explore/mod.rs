//! Explores what a power failure may leave, and checks that a structure survives it.
//!
//! # Idea
//! A history of operations is run once on a watched medium. From its events follows, for every
//! moment, which stores are certain to have reached the medium and which are not: a flush counts
//! once its thread has fenced, and until then the caches may have written a line back or not
//! ([`uncertain`] has the rules). The explorer lays out every image that may be left, opens the
//! structure on it and compares what it holds with what the history allows: all operations that
//! had returned, and the one under way whole or absent. Then the recovered structure must take
//! further operations, and the power may fail again during its recovery.
//!
//! A structure plugs in by the trait [`Subject`]. [`Run`] records a history whose operations come
//! one after the other, [`ConcurrentRun`] one of several threads at once; both find stores that
//! bypassed the medium. [`Explorer`] explores it, and [`Explorer::mutants`] leaves out each flush
//! and each fence in turn: a mutant that survives shows a flush without need, or a history that is
//! missing.
//!
//! # Why it is fast
//! - Images are laid out in one piece of memory by changing the lines that differ, and taken back
//!   by restoring those that the check wrote: [`check`].
//! - A hash of the image follows each change, and an image that was good under the same demand is
//!   not tried again: [`walk`].
//! - A line that a check does not read is not varied, for subjects that report their loads:
//!   [`choose`].
//!
//! Sources: Jaaru (ASPLOS 2021) for varying only what recovery reads, Witcher (SOSP 2021) for
//! mutants and comparing outputs, Yat (ATC 2014) for the images between fences.

mod check;
mod choose;
mod concurrent;
mod excerpt;
mod golden;
mod image;
mod mutant;
mod pause;
mod record;
mod report;
mod subject;
#[cfg(test)]
mod tests;
mod uncertain;
mod walk;
mod watch;

pub use concurrent::{Access, ConcurrentRun, Keyed};
pub use mutant::{Barrier, Mutant, MutantOutcome, MutantReport};
pub use record::{History, HistoryStep, Run};
pub use report::{KindCounts, Report, Violation};
pub use subject::{OpOutcome, Subject, SubjectMedium};

use std::collections::BTreeSet;

use crate::pmem::trace::TraceStep;
use mutant::BarrierCount;
use walk::{KnownImages, SiteSet, Walker};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// The power: what was not flushed and fenced may be lost.
    Power,
    /// The process, at any of its stores; all of them survive. So it is also with caches that
    /// are saved when the power fails.
    Process,
}

/// How far an exploration goes.
#[derive(Clone, Copy, Debug)]
pub struct ExploreLimits {
    /// What fails.
    pub failure: CrashKind,
    /// A moment with at most so many images has all of them tried.
    pub all: u64,
    /// Of other moments, so many images are tried besides.
    pub sample: usize,
    /// The same as `all` for crashes during recovery.
    pub nested_all: u64,
    /// The same as `sample` for crashes during recovery.
    pub nested_sample: usize,
    /// So many of the subject's probes are part of what may crash after a recovery.
    pub nested_probes: usize,
    /// 1: crashes of the history; 2: also of the recoveries from them; 3: also of the recoveries
    /// from those.
    pub depth: u32,
    /// A check that takes more steps on the medium is taken to be endless.
    pub steps: u64,
    /// So many violations end the exploration.
    pub violations: usize,
    /// Where random choices begin.
    pub seed: u64,
}

impl Default for ExploreLimits {
    /// All images of a moment up to 4,096, else 512; crashes during recovery, with up to 256
    /// images for each moment, else 32, and no probe after it.
    fn default() -> ExploreLimits {
        ExploreLimits {
            failure: CrashKind::Power,
            all: 4096,
            sample: 512,
            nested_all: 256,
            nested_sample: 32,
            nested_probes: 0,
            depth: 2,
            steps: 200_000,
            violations: 4,
            seed: 0x67_61_62_69_6f_6e,
        }
    }
}

impl ExploreLimits {
    /// The default, with what the environment says instead: `GABION_CRASH_ALL`,
    /// `GABION_CRASH_SAMPLE`, `GABION_CRASH_DEPTH` and `GABION_CRASH_SEED` for long runs and to
    /// repeat one. Numbers are decimal, or hexadecimal after `0x`.
    ///
    /// # Panics
    /// If one of them is not a number.
    pub fn from_env() -> ExploreLimits {
        let number = |name: &str, default: u64| {
            let Ok(text) = std::env::var(name) else {
                return default;
            };
            let number = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => text.parse(),
            };
            number.unwrap_or_else(|_| panic!("{name} is {text:?}, which is not a number"))
        };
        let default = ExploreLimits::default();
        let small = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        ExploreLimits {
            all: number("GABION_CRASH_ALL", default.all),
            sample: small(number("GABION_CRASH_SAMPLE", default.sample as u64)),
            depth: u32::try_from(number("GABION_CRASH_DEPTH", u64::from(default.depth)))
                .unwrap_or(u32::MAX),
            seed: number("GABION_CRASH_SEED", default.seed),
            ..default
        }
    }

    fn all(&self, level: u32) -> u64 {
        if level == 0 {
            self.all
        } else {
            self.nested_all
        }
    }

    fn samples(&self, level: u32) -> usize {
        if level == 0 {
            self.sample
        } else {
            self.nested_sample
        }
    }
}

/// Explores the runs of a subject.
pub struct Explorer<'s, S: Subject> {
    subject: &'s S,
    limits: ExploreLimits,
    seen: KnownImages,
    run_places: SiteSet,
    recovery_places: SiteSet,
}

impl<'s, S: Subject> Explorer<'s, S> {
    /// An explorer that has seen no image yet.
    pub fn new(subject: &'s S, limits: ExploreLimits) -> Explorer<'s, S> {
        Explorer {
            subject,
            limits,
            seen: KnownImages::default(),
            run_places: SiteSet::new(),
            recovery_places: SiteSet::new(),
        }
    }

    /// Tries the images that failures during a run may leave, on one thread or on several.
    pub fn explore(&mut self, run: &dyn History<S::Content>) -> Report {
        let walker = Walker::new(self.subject, run, &self.limits, &mut self.seen, None);
        let (report, places) = walker.run();
        self.run_places.extend(places.run);
        self.recovery_places.extend(places.recovery);
        report
    }

    /// A mutant for the flushes, and one for the fences, of each place in the source that the runs
    /// explored so far have passed.
    pub fn places(&self) -> Vec<Mutant> {
        let places = self.run_places.union(&self.recovery_places);
        places
            .map(|(place, barrier)| Mutant::Place(*place, *barrier))
            .collect()
    }

    /// Tries whether one of some runs gives any of [`Explorer::places`] away.
    ///
    /// The runs must have been explored before, and found clean.
    pub fn mutants(&mut self, runs: &[&dyn History<S::Content>]) -> MutantReport {
        let places = self.places().into_iter();
        MutantReport {
            tried: places.map(|place| self.try_mutant(place, runs)).collect(),
        }
    }

    /// Leaves out each flush and each fence by its number within each kind of operation, in the
    /// runs that have operations of that kind. See [`Explorer::mutants`].
    pub fn numbered_mutants(&mut self, runs: &[&dyn History<S::Content>]) -> MutantReport {
        let mut known = BTreeSet::new();
        for run in runs {
            let mut count = BarrierCount::default();
            let mut phase = 0;
            for event in run.trace().iter() {
                phase += usize::from(matches!(
                    event.step,
                    TraceStep::Begin { .. } | TraceStep::End { .. }
                ));
                let number = count.number(event.step);
                if let (Some(number), Some(barrier)) = (number, Barrier::of(event.step))
                    && run.is_explored(phase)
                {
                    known.insert((run.kind(phase), number, barrier));
                }
            }
        }
        let mut report = MutantReport::default();
        for (kind, number, barrier) in known {
            report
                .tried
                .push(self.try_mutant(Mutant::Number(kind, number, barrier), runs));
        }
        report
    }

    /// Tries whether one of some runs gives a mutant away.
    pub fn try_mutant(
        &mut self,
        mutant: Mutant,
        runs: &[&dyn History<S::Content>],
    ) -> MutantOutcome {
        let limits = ExploreLimits {
            violations: 1,
            ..self.limits
        };
        // A good image stays good without a flush, unless its recovery is a mutant too.
        let is_in_recovery = match &mutant {
            Mutant::Place(place, barrier) => self.recovery_places.contains(&(*place, *barrier)),
            Mutant::Number(..) => false,
        };
        let mut fresh = KnownImages::default();
        let mut tried = MutantOutcome {
            mutant,
            caught: None,
            images: 0,
        };
        for run in runs {
            let seen = if is_in_recovery {
                &mut fresh
            } else {
                &mut self.seen
            };
            let mutant = Some(&tried.mutant);
            let (report, _) = Walker::new(self.subject, *run, &limits, seen, mutant).run();
            tried.images += report.images();
            tried.caught = report.violations.into_iter().next();
            if tried.caught.is_some() {
                break;
            }
        }
        tried
    }
}
