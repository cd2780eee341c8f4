//! The exploration itself: along the events of a run, from one moment of failure to the next.
//!
//! # Which moments
//! Until a fence ends it, a store may be there or not, and with each further store the images
//! possible before remain possible. So the images at a fence, before it takes effect, contain all
//! those since the last one, and only fences need to be looked at; besides them the returns of
//! operations, at which what is demanded changes, and the end.
//!
//! # Crash during recovery
//! What `open` stores, flushes and fences while it checks an image is kept. If it stored anything,
//! its events are walked in the same way, with that image as the durable content, down to
//! [`ExploreLimits::depth`]. After its end nothing but what it showed is allowed. The first probes
//! belong to that walk: operations that come after a recovery meet what it left undone. A share of
//! the images is walked in this way even if recovery stored nothing.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;
use std::time::Instant;

use super::check::{CheckMemory, ImageCheck, hash_of_value};
use super::choose::{ChoiceSearch, LineChoices, samples};
use super::excerpt::excerpt;
use super::mutant::{Barrier, BarrierCount, Mutant};
use super::record::{History, SYSTEM, demand_of};
use super::report::{KindCounts, Report, Violation};
use super::subject::Subject;
use super::uncertain::{UncertainLine, UncertainLines, word_by_word};
use super::{CrashKind, ExploreLimits};
use crate::pmem::trace::{Trace, TraceEvent, TraceStep};
use crate::seeded::{SeededRng, mix};

/// Images known to be good: the hash of an image and its demand, and the number of the list of
/// lines that its check read.
#[derive(Default)]
pub(super) struct KnownImages {
    good: HashMap<u64, u32, BuildHasherDefault<AsItIs>>,
    lists: HashMap<Box<[u32]>, u32>,
    reads: Vec<Box<[u32]>>,
}

impl KnownImages {
    /// The number of a list of lines.
    fn list(&mut self, read: &[u32]) -> u32 {
        if let Some(list) = self.lists.get(read) {
            return *list;
        }
        let list = u32::try_from(self.reads.len()).unwrap_or(u32::MAX);
        self.lists.insert(read.into(), list);
        self.reads.push(read.into());
        list
    }
}

/// The hasher of numbers that are hashes already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Places of flushes and fences in the source.
pub(super) type SiteSet = BTreeSet<(Location<'static>, Barrier)>;

/// The places that a run passed, and those of the recoveries from its images.
#[derive(Default)]
pub(super) struct PassedSites {
    pub(super) run: SiteSet,
    pub(super) recovery: SiteSet,
}

pub(super) struct Walker<'w, S: Subject> {
    bench: CheckMemory<'w, S>,
    history: &'w dyn History<S::Content>,
    limits: &'w ExploreLimits,
    seen: &'w mut KnownImages,
    mutant: Option<&'w Mutant>,
    report: Report,
    passed: PassedSites,
    phase: usize,
    reports_loads: bool,
}

/// A level of the exploration: 0 is the run, 1 a recovery from its crash, and so on.
struct Moment<'m> {
    trace: &'m Trace,
    index: usize,
    level: u32,
}

impl<'w, S: Subject> Walker<'w, S> {
    pub(super) fn new(
        subject: &'w S,
        history: &'w dyn History<S::Content>,
        limits: &'w ExploreLimits,
        seen: &'w mut KnownImages,
        mutant: Option<&'w Mutant>,
    ) -> Walker<'w, S> {
        Walker {
            bench: CheckMemory::new(subject, history.trace().base(), limits),
            history,
            limits,
            seen,
            mutant,
            report: Report {
                seed: limits.seed,
                ..Report::default()
            },
            passed: PassedSites::default(),
            phase: 0,
            reports_loads: subject.reports_loads(),
        }
    }

    /// Explores the run.
    pub(super) fn run(mut self) -> (Report, PassedSites) {
        let began = Instant::now();
        self.walk(self.history.trace(), 0, &[]);
        self.report.elapsed = began.elapsed();
        (self.report, self.passed)
    }

    fn is_over(&self) -> bool {
        self.report.violations.len() >= self.limits.violations
    }

    /// Explores a run or, at a level above 0, a recovery and the operations behind it, after each
    /// of which `shown` has what must be there.
    fn walk(&mut self, trace: &Trace, level: u32, shown: &[Option<S::Content>]) {
        let mut demand = ImageCheck::History;
        let mut pending = UncertainLines::default();
        let mut is_fresh = false;
        let mut count = BarrierCount::default();
        for (index, event) in trace.iter().enumerate() {
            if self.is_over() {
                return;
            }
            let moment = Moment {
                trace,
                index,
                level,
            };
            match event.step {
                TraceStep::Begin { .. } | TraceStep::End { .. } if level == 0 => self.phase += 1,
                TraceStep::Begin { op } => demand = demand_behind(shown, op as usize, true),
                TraceStep::End { op } => demand = demand_behind(shown, op as usize, false),
                _ => self.pass(&event, level),
            }
            let is_end = matches!(event.step, TraceStep::End { .. });
            let name = self.history.kind(self.phase);
            let is_removed = self
                .mutant
                .is_some_and(|mutant| mutant.removes(&event, level, name, &mut count));
            let may_fail = is_end || is_fresh && event.step == TraceStep::Fence && !is_removed;
            if may_fail && self.limits.failure == CrashKind::Power {
                self.point(&mut pending, &moment, &demand);
                is_fresh = false;
            }
            if is_removed {
                continue;
            }
            match self.limits.failure {
                CrashKind::Power => is_fresh |= self.take(&mut pending, index, event),
                CrashKind::Process => self.die_at(&moment, event, &demand),
            }
            if level == 0 {
                self.bench.image.settle();
            }
        }
        if !self.is_over() {
            let end = Moment {
                trace,
                index: trace.len(),
                level,
            };
            self.point(&mut pending, &end, &demand);
        }
    }

    /// Notes the place of a flush or a fence that mutants may leave out.
    fn pass(&mut self, event: &TraceEvent<'_>, level: u32) {
        let Some(barrier) = Barrier::of(event.step) else {
            return;
        };
        if self.mutant.is_some() || event.thread == SYSTEM {
            return;
        }
        if level > 0 {
            self.passed.recovery.insert((*event.site, barrier));
        } else if self.history.is_explored(self.phase) {
            self.passed.run.insert((*event.site, barrier));
        }
    }

    /// Takes an event; what becomes certain reaches the memory too.
    fn take(&mut self, pending: &mut UncertainLines, index: usize, event: TraceEvent<'_>) -> bool {
        let mark = self.bench.image.mark();
        let is_store = pending.take(index, event, &mut self.bench.image);
        self.bench.lay_since(mark);
        is_store
    }

    /// The process dies at each word that it stores, and the caches live on.
    fn die_at(
        &mut self,
        moment: &Moment<'_>,
        event: TraceEvent<'_>,
        demand: &ImageCheck<S::Content>,
    ) {
        let mut settled = UncertainLines::default();
        for (line, content) in word_by_word(event.step, &self.bench.image) {
            self.bench.image.set(line, content);
            self.bench.lay(line, &content);
            self.point(&mut settled, moment, demand);
            if self.is_over() {
                return;
            }
        }
        if matches!(event.step, TraceStep::End { .. }) {
            self.point(&mut settled, moment, demand);
        }
    }

    fn counts(&mut self) -> &mut KindCounts {
        let kind = self.history.kind(self.phase);
        self.report.kinds.entry(kind).or_default()
    }

    /// Tries the images that a failure at this moment may leave.
    fn point(
        &mut self,
        pending: &mut UncertainLines,
        moment: &Moment<'_>,
        demand: &ImageCheck<S::Content>,
    ) {
        if moment.level == 0 {
            if !self.history.is_explored(self.phase) {
                return;
            }
            self.counts().points += 1;
        }
        let number = match demand {
            ImageCheck::History => self.history.demand(self.phase),
            ImageCheck::Either(before, after) => {
                demand_of(hash_of_value(before), hash_of_value(after))
            }
        };
        pending.refresh(&self.bench.image);
        let places: Vec<u32> = pending.lines().map(|(line, _)| line).collect();
        let lines: Vec<&UncertainLine> = pending.lines().map(|(_, line)| line).collect();
        let images = Images {
            number,
            places: &places,
            lines: &lines,
            moment,
            demand,
        };
        if self.search(&images) || self.is_over() {
            return;
        }
        if moment.level == 0 {
            self.counts().sampled += 1;
        }
        let index = moment.index as u64;
        let mut random = SeededRng::new(self.limits.seed ^ mix(index ^ self.bench.image.hash()));
        for picks in samples(&lines, self.limits.samples(moment.level), &mut random) {
            if self.is_over() {
                return;
            }
            self.image(&images, &picks);
        }
    }

    /// Tries all images that a check can tell apart, unless there are too many.
    fn search(&mut self, images: &Images<'_, S>) -> bool {
        let limit = self.limits.all(images.moment.level);
        let mut search = ChoiceSearch::new(images.lines.len());
        if !self.reports_loads {
            let combinations = images.lines.iter().try_fold(1u64, |product, line| {
                product.checked_mul(line.choices().len() as u64)
            });
            if combinations.is_none_or(|combinations| combinations > limit) {
                return false;
            }
            (0..images.lines.len()).for_each(|line| search.depends_on(line));
        }
        for _ in 0..limit {
            if self.is_over() {
                return true;
            }
            let reads = self.image(images, search.picks());
            if self.reports_loads {
                for line in &self.seen.reads[reads as usize] {
                    if let Ok(at) = images.places.binary_search(line) {
                        search.depends_on(at);
                    }
                }
            }
            if !search.advance(|line| images.lines[line].choices().len()) {
                return true;
            }
        }
        false
    }

    /// Tries an image. Returns the number of the list of lines that its check read.
    fn image(&mut self, images: &Images<'_, S>, picks: &LineChoices) -> u32 {
        let mut hash = self.bench.image.hash();
        for (at, choice) in picks {
            let choices = images.lines[*at].choices();
            hash ^= choices[0].hash ^ choices[*choice].hash;
        }
        let key = mix(hash ^ images.number);
        if let Some(reads) = self.seen.good.get(&key) {
            self.report.repeated += 1;
            return *reads;
        }
        let level = images.moment.level;
        let counts = self.counts();
        counts.images += 1;
        counts.nested += u64::from(level > 0);
        for (at, choice) in picks {
            self.bench.lay(
                images.places[*at],
                &images.lines[*at].choices()[*choice].content,
            );
        }
        let is_deep = level + 1 < self.limits.depth;
        let is_thorough = hash.is_multiple_of(8);
        let (history, phase) = (self.history, self.phase);
        let judge = |content: Option<&S::Content>| match images.demand {
            ImageCheck::History => history.judge(phase, content),
            ImageCheck::Either(before, after)
                if [before.as_ref(), after.as_ref()].contains(&content) =>
            {
                Ok(())
            }
            ImageCheck::Either(before, after) if before == after => Err(format!(
                "a recovery showed {before:?}, and one after it {content:?}"
            )),
            ImageCheck::Either(before, after) => Err(format!(
                "after a recovery it holds {content:?}, which is neither {before:?} nor {after:?}"
            )),
        };
        let result = self.bench.check(&judge, is_deep, is_thorough);
        let laid = picks.iter().map(|(at, _)| images.places[*at]);
        self.bench.restore(laid);
        let seen = &mut self.seen;
        let reads = self.bench.lens().read(|read| seen.list(read));
        match result {
            Ok(shown) => {
                seen.good.insert(key, reads);
                // What recovery leaves for later is looked at in some images.
                if let Some(recovery) = self.bench.lens().recovery(is_thorough) {
                    self.recover(images, picks, &recovery, &shown);
                }
            }
            Err(message) => self.violation(images, picks, message),
        }
        reads
    }

    /// Explores crashes of the recovery from an image.
    fn recover(
        &mut self,
        images: &Images<'_, S>,
        picks: &LineChoices,
        recovery: &Trace,
        shown: &[Option<S::Content>],
    ) {
        let mark = self.bench.image.mark();
        for (at, choice) in picks {
            let content = images.lines[*at].choices()[*choice].content;
            self.bench.image.set(images.places[*at], content);
        }
        self.bench.lay_since(mark);
        let known = self.report.violations.len();
        self.walk(recovery, images.moment.level + 1, shown);
        self.bench.undo(mark);
        let context = self.context(images, picks);
        let moment = self.history.tell(self.phase);
        for violation in &mut self.report.violations[known..] {
            violation.context.push_str("\nThe recovery was that from\n");
            violation.context.push_str(&context);
            violation.moment = format!("during or after recovery from a failure {moment}");
        }
    }

    fn violation(&mut self, images: &Images<'_, S>, picks: &LineChoices, message: String) {
        self.counts().violations += 1;
        let moment = format!(
            "{} in run {}",
            self.history.tell(self.phase),
            self.history.name()
        );
        let context = self.context(images, picks);
        self.report.violations.push(Violation {
            message,
            moment,
            context,
        });
    }

    fn context(&self, images: &Images<'_, S>, picks: &LineChoices) -> String {
        let mut fates = HashMap::new();
        for (at, line) in images.lines.iter().enumerate() {
            let choice = picks
                .iter()
                .find(|(line, _)| *line == at)
                .map_or(0, |(_, pick)| *pick);
            for (event, has_arrived) in line.fate(&line.choices()[choice]) {
                let (arrived, all) = fates.entry(event).or_insert((0, 0));
                *arrived += usize::from(has_arrived);
                *all += 1;
            }
        }
        let is_run = images.moment.level == 0;
        let step = |op: u32| match is_run {
            true => self.history.step(op).to_owned(),
            false => format!("probe {op} after the recovery"),
        };
        excerpt(images.moment.trace, images.moment.index, &fates, &step)
    }
}

/// What is demanded behind a recovery while operation `op` is under way or when it has returned.
/// Operation 0 is the recovery itself.
fn demand_behind<C: Clone>(shown: &[Option<C>], op: usize, is_begin: bool) -> ImageCheck<C> {
    let before = if is_begin { op.saturating_sub(1) } else { op };
    match (shown.get(before), shown.get(op)) {
        (Some(before), Some(after)) => ImageCheck::Either(before.clone(), after.clone()),
        _ => ImageCheck::History,
    }
}

/// The images of one moment.
struct Images<'i, S: Subject> {
    /// The number of the demand.
    number: u64,
    places: &'i [u32],
    lines: &'i [&'i UncertainLine],
    moment: &'i Moment<'i>,
    demand: &'i ImageCheck<S::Content>,
}
