//! A run as data: which targets do which phases how often, and under which settings.
//!
//! A plan is a sequence of trials. One trial is one target in a fresh directory, with all phases of
//! the plan on one store. The targets take turns, and every second turn goes backwards (A B B A),
//! so that whatever changes on the machine during a run meets all of them alike, and a target is
//! not always the one that runs after a certain other.
//!
//! The trials of one repetition run one after the other, or, where turns are asked for, at the same
//! time and each a little while at a time ([`crate::experiment`]): then they share a *table*.
//!
//! A target may take part more than once, to compare settings or to see what two equal stores
//! differ by: `wip,wip` or `wip#old,wip#new`. What follows the `#` is only a label.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::measure::ProcessUse;
use crate::result::PhaseResult;
use crate::run::{Runner, Settings, Subject, Turns};
use crate::target::{StoreOptions, Target};
use crate::targets::Registry;
use crate::text::bytes_text;
use crate::workload::Workload;

/// Space that a run asks for, per byte of its records: two copies while a compaction runs, the log,
/// and what a store with a high space amplification keeps.
const SPACE_FACTOR: u64 = 4;

/// The least limit of memory: the program itself, its values and its histograms take about half.
const MEMORY_LIMIT_MIN: u64 = 32 << 20;

/// Between the name of a target and its label.
const LABEL: char = '#';

/// How the stores of a run are opened, the same for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Memory for cached data, in bytes.
    pub cache_bytes: u64,
    /// Memory for writes that are not in tables yet; `None` leaves each target's default.
    pub write_buffer_bytes: Option<u64>,
    /// Keeps all records in memory and in the log, as far as the store can.
    pub hold_flushes: bool,
    /// Threads that a store may use in the background.
    pub background_threads: usize,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Names of the targets, each with a label of its own if it takes part more than once; the
    /// others are compared to the first.
    pub targets: Vec<String>,
    /// Names of the phases, in the order in which they run on each store.
    pub workloads: Vec<String>,
    /// How often each target goes through all phases.
    pub repetitions: u32,
    /// How long a turn is in milliseconds, if the targets of a repetition run in turns; `None` if
    /// one ends before the next begins.
    pub turn_ms: Option<u64>,
    /// What all phases share.
    pub settings: Settings,
    /// How the stores are opened.
    pub resources: Resources,
    /// Memory that the processes of a trial may use, the page cache included; `None` for all that
    /// there is.
    pub memory_limit_bytes: Option<u64>,
    /// Where each trial makes a directory of its own.
    pub dir: PathBuf,
}

/// One target going once through all phases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Name of the target, with its label if it has one.
    pub target: String,
    /// Which repetition of the plan this is, from 0.
    pub repetition: u32,
    /// Names of the phases.
    pub workloads: Vec<String>,
    /// How long a turn is in milliseconds; `None` if the trial has the machine for itself.
    pub turn_ms: Option<u64>,
    /// What all phases share.
    pub settings: Settings,
    /// How the store is opened.
    pub resources: Resources,
    /// An empty directory for the store.
    pub dir: PathBuf,
    /// Where the trial goes on, if another process began it and was killed.
    pub resume: Option<Resume>,
}

/// What a killed process leaves to the one that goes on with its trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The phase to go on with, which restarts the store.
    pub phase: usize,
    /// Records that the store held, where that is known.
    pub records_live: Option<u64>,
    /// What had been written to its log since it was opened, where the store says so.
    pub log_bytes: Option<u64>,
}

/// How a process ends that ran a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialEnd {
    /// All phases are done, and the store is closed.
    Closed,
    /// The next phase restarts the store: the process is to be killed with the store open, and
    /// another one goes on.
    ToBeKilled,
}

impl Plan {
    /// Whether the plan can be run: its targets and phases exist, every target can do every phase,
    /// and the settings make sense.
    ///
    /// # Errors
    /// [`Error::Request`] or [`Error::NotBuilt`] with the reason why not.
    pub fn check(&self, registry: &Registry) -> Result<(), Error> {
        self.settings.check()?;
        let request = |sentence: String| Err(Error::Request(sentence));
        if self.targets.is_empty() || self.workloads.is_empty() || self.repetitions == 0 {
            let sentence = "a run needs at least one target, one workload and one repetition";
            return request(sentence.to_owned());
        }
        if self.turn_ms.is_some() && self.targets.len() < 2 {
            return request("turns need a second target, to take the other ones".to_owned());
        }
        if self.turn_ms == Some(0) {
            return request("a turn needs at least a millisecond".to_owned());
        }
        if let Some(limit) = self.memory_limit_bytes {
            let cache = self.resources.cache_bytes;
            if limit < MEMORY_LIMIT_MIN {
                return request(format!(
                    "a trial needs at least {} of memory",
                    bytes_text(MEMORY_LIMIT_MIN)
                ));
            }
            if cache >= limit {
                return request(format!(
                    "a cache of {} does not fit into a memory limit of {}; make it smaller",
                    bytes_text(cache),
                    bytes_text(limit)
                ));
            }
        }
        for (at, name) in self.targets.iter().enumerate() {
            let target = registry.named(without_label(name)?)?;
            if self.targets[..at].contains(name) {
                return request(format!(
                    "the target {name} is named twice; give each a label, such as {name}#2"
                ));
            }
            for workload in workloads(&self.workloads)? {
                if let Some(why) = workload.lacks(&target.abilities) {
                    return request(format!("{name} cannot run {}: {why}", workload.name));
                }
            }
        }
        if workloads(&self.workloads)?[0].is_restart() {
            return request("a restart needs a phase before it that fills the store".to_owned());
        }
        Ok(())
    }

    /// Checks the plan, makes its directory, and looks whether there is enough space.
    ///
    /// # Errors
    /// Those of [`Plan::check`] and [`Plan::check_space`], and that the directory cannot be made.
    pub fn prepare(&self, registry: &Registry) -> Result<(), Error> {
        self.check(registry)?;
        fs::create_dir_all(&self.dir).map_err(|source| Error::file("make", &self.dir, source))?;
        self.check_space(registry)
    }

    /// Whether the file system below the plan's directory, which must exist, has enough space.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if it has not.
    pub fn check_space(&self, registry: &Registry) -> Result<(), Error> {
        let writes_files = |name: &String| {
            registry
                .named(without_label(name).unwrap_or(name))
                .is_ok_and(|target| target.abilities.files)
        };
        let stores = self
            .targets
            .iter()
            .filter(|name| writes_files(name))
            .count();
        let at_once = match self.turn_ms {
            Some(_) => stores,
            None => stores.min(1),
        };
        if at_once == 0 {
            return Ok(());
        }
        let needed = self.space_needed().saturating_mul(at_once as u64);
        let free = space_free(&self.dir)?;
        if free >= needed {
            return Ok(());
        }
        Err(Error::NoSpace {
            dir: self.dir.clone(),
            needed: bytes_text(needed),
            free: bytes_text(free),
        })
    }

    fn space_needed(&self) -> u64 {
        let settings = &self.settings;
        let records = settings.num.saturating_mul(settings.record_bytes());
        records.saturating_mul(SPACE_FACTOR)
    }

    /// The trials in the order in which they run.
    pub fn trials(&self) -> impl Iterator<Item = Trial> {
        let process = std::process::id();
        let count = self.targets.len();
        (0..self.repetitions).flat_map(move |repetition| {
            (0..count).map(move |turn| {
                let at = match repetition % 2 {
                    0 => turn,
                    _ => count - 1 - turn,
                };
                Trial {
                    target: self.targets[at].clone(),
                    repetition,
                    workloads: self.workloads.clone(),
                    turn_ms: self.turn_ms,
                    settings: self.settings.clone(),
                    resources: self.resources.clone(),
                    dir: self.dir.join(format!("lab-{process}-{repetition}-{at}")),
                    resume: None,
                }
            })
        })
    }
}

impl Plan {
    /// The trials that run together, in the order in which they do.
    pub fn tables(&self) -> impl Iterator<Item = Vec<Trial>> {
        let seats = match self.turn_ms {
            Some(_) => self.targets.len(),
            None => 1,
        };
        let mut trials = self.trials();
        std::iter::from_fn(move || {
            let table: Vec<Trial> = trials.by_ref().take(seats).collect();
            (!table.is_empty()).then_some(table)
        })
    }
}

/// `names` with numbers as labels for those that appear more than once, from the second one on.
pub fn labelled(names: &[String]) -> Vec<String> {
    let mut labelled: Vec<String> = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        let before = names[..at].iter().filter(|other| *other == name).count();
        labelled.push(match before {
            0 => name.clone(),
            _ if name.contains(LABEL) => name.clone(),
            _ => format!("{name}{LABEL}{}", before + 1),
        });
    }
    labelled
}

/// The name of a target whose label, if any, has been cut off.
pub(crate) fn without_label(name: &str) -> Result<&str, Error> {
    match name.split_once(LABEL) {
        None => Ok(name),
        Some((_, "")) => Err(Error::Request(format!(
            "the target {name} has an empty label after the {LABEL}"
        ))),
        Some((name, _)) => Ok(name),
    }
}

impl Trial {
    /// Runs all phases on one store in this process and hands each result on as soon as it is
    /// there.
    ///
    /// # Errors
    /// Those of the store and of the phases, and whatever `link` fails with.
    pub fn run(&self, registry: &Registry, link: &mut dyn TrialLink) -> Result<TrialEnd, Error> {
        link.take()?;
        let target: &Target = registry.named(without_label(&self.target)?)?;
        let before = ProcessUse::now();
        let begin = Instant::now();
        let store = (target.open)(&self.store_options())?;
        let opened = begin.elapsed();
        let subject = Subject {
            store: &*store,
            target: &self.target,
            dir: &self.dir,
            existing: self.resume.is_some(),
            repetition: self.repetition,
        };
        let runner = Runner::new(subject, self.settings.clone())?;
        let first = self.resume.map_or(0, |resume| resume.phase);
        for (at, workload) in workloads(&self.workloads)?
            .into_iter()
            .enumerate()
            .skip(first)
        {
            let result = match &self.resume {
                Some(resume) if at == first => {
                    let left = (resume.records_live, resume.log_bytes);
                    runner.restarted(workload, opened, &before, left)?
                }
                _ if workload.is_restart() => {
                    drop(runner);
                    // What closing a store does must not be done.
                    std::mem::forget(store);
                    return Ok(TrialEnd::ToBeKilled);
                }
                _ => {
                    let names = self.workloads[..at].iter();
                    let pass = names.filter(|name| *name == workload.name).count();
                    runner.run_in_turns(workload, pass, link)?
                }
            };
            link.tell(&result)?;
            // The others come to the end of the phase before the next one begins.
            link.give()?;
            link.take()?;
        }
        drop(runner);
        store.close()?;
        Ok(TrialEnd::Closed)
    }

    fn store_options(&self) -> StoreOptions {
        StoreOptions {
            dir: self.dir.clone(),
            existing: self.resume.is_some(),
            cache_bytes: self.resources.cache_bytes,
            write_buffer_bytes: self.resources.write_buffer_bytes,
            hold_flushes: self.resources.hold_flushes,
            background_threads: self.resources.background_threads,
            // One more for a writer beside the readers.
            sessions: self.settings.threads.max(self.settings.writers) + 1,
            records: self.settings.num,
            record_bytes: self.settings.record_bytes(),
        }
    }
}

/// What a trial tells, and how it comes by its turns.
pub trait TrialLink: Turns {
    /// A phase is done.
    ///
    /// # Errors
    /// When nobody listens.
    fn tell(&mut self, result: &PhaseResult) -> Result<(), Error>;
}

/// The phases of these names.
fn workloads(names: &[String]) -> Result<Vec<&'static Workload>, Error> {
    let named = |name: &String| {
        Workload::named(name).ok_or_else(|| {
            Error::Request(format!(
                "there is no workload {name}; `gabion lab list` lists all"
            ))
        })
    };
    names.iter().map(named).collect()
}

/// Bytes that a user may still write below `dir`.
fn space_free(dir: &Path) -> Result<u64, Error> {
    let space = rustix::fs::statvfs(dir).map_err(|error| Error::File {
        action: "find the free space of",
        path: dir.to_owned(),
        source: error.into(),
    })?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    pub(crate) fn plan(dir: &Path) -> Plan {
        Plan {
            targets: vec!["wip".to_owned(), "btreemap".to_owned()],
            workloads: vec!["fillseq".to_owned(), "readrandom".to_owned()],
            repetitions: 2,
            turn_ms: None,
            settings: Settings {
                num: 500,
                reads: 500,
                ..Settings::default()
            },
            resources: Resources {
                cache_bytes: 8 << 20,
                write_buffer_bytes: None,
                hold_flushes: false,
                background_threads: 1,
            },
            memory_limit_bytes: None,
            dir: dir.to_owned(),
        }
    }

    /// Keeps what a trial tells, and gives it its turns at once.
    #[derive(Default)]
    struct Heard {
        results: Vec<PhaseResult>,
        length: Option<Duration>,
        has_turn: bool,
        turns: u64,
    }

    impl Turns for Heard {
        fn length(&self) -> Option<Duration> {
            self.length
        }

        fn take(&mut self) -> Result<(), Error> {
            assert!(!self.has_turn, "a turn is taken once");
            self.has_turn = true;
            self.turns += 1;
            Ok(())
        }

        fn give(&mut self) -> Result<(), Error> {
            assert!(self.has_turn, "only a turn that one has can be given away");
            self.has_turn = false;
            Ok(())
        }
    }

    impl TrialLink for Heard {
        fn tell(&mut self, result: &PhaseResult) -> Result<(), Error> {
            assert!(self.has_turn, "nothing is done in others' turns");
            self.results.push(result.clone());
            Ok(())
        }
    }

    fn sentence(change: impl FnOnce(&mut Plan)) -> String {
        let mut plan = plan(Path::new("."));
        change(&mut plan);
        plan.check(&Registry::new(&[])).unwrap_err().to_string()
    }

    #[test]
    fn a_plan_that_cannot_run_is_refused_with_a_reason() {
        plan(Path::new(".")).check(&Registry::new(&[])).unwrap();
        let fillsync = sentence(|plan| plan.workloads.push("fillsync".to_owned()));
        assert!(
            fillsync.contains("btreemap cannot run fillsync"),
            "{fillsync}"
        );
        let unknown = sentence(|plan| plan.workloads.push("fill".to_owned()));
        assert!(unknown.contains("there is no workload fill;"), "{unknown}");
        let twice = sentence(|plan| plan.targets.push("wip".to_owned()));
        assert!(twice.contains("named twice"), "{twice}");
        assert!(twice.contains("wip#2"), "{twice}");
        let restart = sentence(|plan| plan.workloads.insert(0, "restart".to_owned()));
        assert!(restart.contains("btreemap cannot run restart"), "{restart}");
        let restart = sentence(|plan| {
            plan.targets.truncate(1);
            plan.workloads.insert(0, "restart".to_owned());
        });
        assert!(restart.contains("a phase before it"), "{restart}");
        let empty = sentence(|plan| plan.targets.push("wip#".to_owned()));
        assert!(empty.contains("empty label"), "{empty}");
        let unknown = sentence(|plan| plan.targets.push("wap#a".to_owned()));
        assert!(unknown.contains("there is no target wap;"), "{unknown}");
        let peer = sentence(|plan| plan.targets.push("lmdb".to_owned()));
        assert!(peer.contains("--features peers"), "{peer}");
        assert!(sentence(|plan| plan.repetitions = 0).contains("repetition"));
        assert!(sentence(|plan| plan.settings.key_bytes = 3).contains("at least 8"));
    }

    #[test]
    fn targets_take_turns_in_directories_of_their_own() {
        let plan = plan(Path::new("d"));
        let trials: Vec<Trial> = plan.trials().collect();
        let order: Vec<_> = trials.iter().map(|t| (t.repetition, &*t.target)).collect();
        assert_eq!(
            order,
            [(0, "wip"), (0, "btreemap"), (1, "btreemap"), (1, "wip")]
        );
        let dirs: std::collections::HashSet<_> = trials.iter().map(|t| &t.dir).collect();
        assert_eq!(dirs.len(), 4);
    }

    #[test]
    fn a_target_may_take_part_twice_under_labels() {
        let names = ["wip", "empty", "wip", "wip#a", "wip"].map(str::to_owned);
        let labels = labelled(&names);
        assert_eq!(labels, ["wip", "empty", "wip#2", "wip#a", "wip#3"]);
        let mut plan = plan(Path::new("."));
        plan.targets = labels;
        plan.check(&Registry::new(&[])).unwrap();
    }

    #[test]
    fn trials_in_turns_share_a_table() {
        let mut plan = plan(Path::new("d"));
        let sizes = |plan: &Plan| plan.tables().map(|table| table.len()).collect::<Vec<_>>();
        assert_eq!(sizes(&plan), [1, 1, 1, 1]);
        plan.turn_ms = Some(50);
        assert_eq!(sizes(&plan), [2, 2]);
        plan.check(&Registry::new(&[])).unwrap();
        let alone = sentence(|plan| {
            plan.turn_ms = Some(50);
            plan.targets.truncate(1);
        });
        assert!(alone.contains("second target"), "{alone}");
        assert!(sentence(|plan| plan.turn_ms = Some(0)).contains("millisecond"));
    }

    /// However short its turns are, a phase does all of its operations and counts each once.
    #[test]
    fn a_phase_that_is_cut_does_what_a_whole_one_does() {
        // Each takes long beside the time in which a busy system comes round to who ends a turn.
        for (workload, operations) in [
            ("readrandom", 300_000),
            ("readseq", 10_000_000),
            ("ycsb-a", 300_000),
            ("overwrite", 100_000),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let mut trial = plan(dir.path()).trials().nth(1).unwrap();
            trial.dir = dir.path().to_owned();
            trial.settings.reads = operations;
            trial.settings.num = 100_000;
            trial.settings.threads = 2;
            trial.workloads = vec!["ycsb-load".to_owned(), workload.to_owned()];
            let mut heard = Heard {
                length: Some(Duration::from_micros(200)),
                ..Heard::default()
            };
            trial.run(&Registry::new(&[]), &mut heard).unwrap();
            let result = &heard.results[1];
            assert_eq!(result.operations, operations, "{workload}");
            let calls = result.latency_us_by_operation.values();
            assert_eq!(calls.map(|calls| calls.calls).sum::<u64>(), operations);
            assert_eq!(result.records_live, Some(100_000));
            let turns = |at: usize| heard.results[at].settings["turns"].as_u64().unwrap();
            // One more at the start, and one after each phase.
            assert_eq!(heard.turns, turns(0) - 1 + turns(1) - 1 + 3);
            assert!(turns(1) > 1, "{workload}");
            assert!(heard.has_turn);
        }
    }

    #[test]
    fn a_run_that_cannot_fit_is_refused_before_it_starts() {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = plan(dir.path());
        let registry = Registry::new(&[]);
        plan.check_space(&registry).unwrap();
        plan.settings.num = u64::MAX / 1000;
        let error = plan.check_space(&registry).unwrap_err().to_string();
        assert!(error.contains("free"), "{error}");
        plan.targets = vec!["btreemap".to_owned()];
        plan.check_space(&registry).unwrap();
    }

    #[test]
    fn a_trial_hands_on_each_result() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new(&[]);
        let mut trial = plan(dir.path()).trials().nth(2).unwrap();
        trial.dir = dir.path().to_owned();
        trial.target = "wip#new".to_owned();
        let mut heard = Heard::default();
        trial.run(&registry, &mut heard).unwrap();
        let phases: Vec<_> = heard
            .results
            .iter()
            .map(|result| (&*result.target, &*result.phase, result.repetition))
            .collect();
        assert_eq!(
            phases,
            [("wip#new", "fillseq", 1), ("wip#new", "readrandom", 1)]
        );
    }
}
