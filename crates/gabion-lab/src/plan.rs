//! A run as data: which targets do which phases how often, and under which settings.
//!
//! A plan is a sequence of trials. One trial is one target in a fresh directory, with all phases of
//! the plan on one store. The targets take turns, and every second turn goes backwards (A B B A),
//! so that whatever changes on the machine during a run meets all of them alike, and a target is
//! not always the one that runs after a certain other.
//!
//! A target may take part more than once, to compare settings or to see what two equal stores
//! differ by: `wip,wip` or `wip#old,wip#new`. What follows the `#` is only a label.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::result::PhaseResult;
use crate::run::{Runner, Settings, Subject};
use crate::target::{StoreOptions, Target};
use crate::targets::Registry;
use crate::text::bytes_text;
use crate::workload::Workload;

/// Space that a run asks for, per byte of its records: two copies while a compaction runs, the log,
/// and what a store with a high space amplification keeps.
const SPACE_FACTOR: u64 = 4;

/// Between the name of a target and its label.
const LABEL: char = '#';

/// How the stores of a run are opened, the same for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Memory for cached data, in bytes.
    pub cache_bytes: u64,
    /// Memory for writes that are not in tables yet; `None` leaves each target's default.
    pub write_buffer_bytes: Option<u64>,
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
    /// What all phases share.
    pub settings: Settings,
    /// How the stores are opened.
    pub resources: Resources,
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
    /// What all phases share.
    pub settings: Settings,
    /// How the store is opened.
    pub resources: Resources,
    /// An empty directory for the store.
    pub dir: PathBuf,
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
            let sentence = "a run needs a target, a workload and a repetition";
            return request(sentence.to_owned());
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
        Ok(())
    }

    /// Whether the file system below the plan's directory, which must exist, has enough space.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if it has not.
    pub fn check_space(&self, registry: &Registry) -> Result<(), Error> {
        let writes_files = |name: &String| {
            registry
                .named(without_label(name).unwrap_or(name))
                .is_ok_and(|target| target.abilities.persistent)
        };
        if !self.targets.iter().any(writes_files) {
            return Ok(());
        }
        let needed = self.space_needed();
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
                    settings: self.settings.clone(),
                    resources: self.resources.clone(),
                    dir: self.dir.join(format!("lab-{process}-{repetition}-{at}")),
                }
            })
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
fn without_label(name: &str) -> Result<&str, Error> {
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
    /// Those of the store and of the phases, and whatever `each` fails with.
    pub fn run(
        &self,
        registry: &Registry,
        mut each: impl FnMut(&PhaseResult) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let target: &Target = registry.named(without_label(&self.target)?)?;
        let store = (target.open)(&StoreOptions {
            dir: self.dir.clone(),
            existing: false,
            cache_bytes: self.resources.cache_bytes,
            write_buffer_bytes: self.resources.write_buffer_bytes,
            background_threads: self.resources.background_threads,
            records: self.settings.num,
            record_bytes: self.settings.record_bytes(),
        })?;
        let subject = Subject {
            store: &*store,
            target: &self.target,
            dir: &self.dir,
            existing: false,
            repetition: self.repetition,
        };
        let runner = Runner::new(subject, self.settings.clone())?;
        for workload in workloads(&self.workloads)? {
            each(&runner.run(workload)?)?;
        }
        drop(runner);
        store.close()
    }
}

/// The phases of these names.
fn workloads(names: &[String]) -> Result<Vec<&'static Workload>, Error> {
    let named = |name: &String| {
        Workload::named(name).ok_or_else(|| {
            Error::Request(format!(
                "no workload is named {name}; `gabion lab list` shows them"
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
    use super::*;

    pub(crate) fn plan(dir: &Path) -> Plan {
        Plan {
            targets: vec!["wip".to_owned(), "btreemap".to_owned()],
            workloads: vec!["fillseq".to_owned(), "readrandom".to_owned()],
            repetitions: 2,
            settings: Settings {
                num: 500,
                reads: 500,
                ..Settings::default()
            },
            resources: Resources {
                cache_bytes: 8 << 20,
                write_buffer_bytes: None,
                background_threads: 1,
            },
            dir: dir.to_owned(),
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
        assert!(unknown.contains("no workload is named fill;"), "{unknown}");
        let twice = sentence(|plan| plan.targets.push("wip".to_owned()));
        assert!(twice.contains("named twice"), "{twice}");
        assert!(twice.contains("wip#2"), "{twice}");
        let empty = sentence(|plan| plan.targets.push("wip#".to_owned()));
        assert!(empty.contains("empty label"), "{empty}");
        let unknown = sentence(|plan| plan.targets.push("wap#a".to_owned()));
        assert!(unknown.contains("no target is named wap;"), "{unknown}");
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
        let mut phases = Vec::new();
        let each = |result: &PhaseResult| {
            assert_eq!(result.target, "wip#new");
            phases.push((result.phase.clone(), result.repetition));
            Ok(())
        };
        trial.run(&registry, each).unwrap();
        assert_eq!(
            phases,
            [("fillseq".to_owned(), 1), ("readrandom".to_owned(), 1)]
        );
    }
}
