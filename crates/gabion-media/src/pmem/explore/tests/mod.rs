//! The explorer against small structures: correct ones are clean, and each bug planted in them is
//! caught.

mod account;
mod cell;
mod concurrent;
mod golden;
mod grow;
mod heap;
mod pool;
mod shared;
mod stack;

use std::sync::atomic::Ordering;

use super::{ExploreLimits, Explorer, HistoryStep, Report, Run, Subject};
use crate::pmem::{Medium, PAtomicU64, POff};

/// Words on a medium, by offset.
pub(super) struct Words(Medium);

impl Words {
    fn word(&self, offset: u64) -> &PAtomicU64 {
        self.0.at(POff::new(offset))
    }

    #[track_caller]
    fn get(&self, offset: u64) -> u64 {
        // ORDER: Relaxed: one thread.
        self.word(offset).load(&self.0, Ordering::Relaxed)
    }

    #[track_caller]
    fn set(&self, offset: u64, value: u64) {
        // ORDER: Relaxed: one thread.
        self.word(offset).store(&self.0, value, Ordering::Relaxed);
    }

    #[track_caller]
    fn flush(&self, offset: u64) {
        self.0.flush_range(offset, 8);
    }

    #[track_caller]
    fn fence(&self) {
        self.0.fence();
    }

    #[track_caller]
    fn persist(&self, offset: u64) {
        self.flush(offset);
        self.fence();
    }
}

/// Explores a run of these operations on a new structure, with a reopening after them.
fn explore<S: Subject>(subject: &S, ops: &[S::Op], limits: ExploreLimits) -> Report {
    let mut acts: Vec<HistoryStep<S::Op>> = ops.iter().cloned().map(HistoryStep::Op).collect();
    acts.push(HistoryStep::Reopen);
    let run = Run::record(subject, "test", &[], &acts).unwrap();
    let limits = ExploreLimits {
        nested_probes: 1,
        ..limits
    };
    let report = Explorer::new(subject, limits).explore(&run);
    println!("{report}");
    report
}

#[track_caller]
fn assert_clean<S: Subject>(subject: &S, ops: &[S::Op]) -> Report {
    let report = explore(subject, ops, ExploreLimits::from_env());
    assert!(report.is_clean(), "{report}");
    report
}

/// The bug is found, and one of its violations says so in these words.
#[track_caller]
fn assert_caught<S: Subject>(subject: &S, ops: &[S::Op], says: &str) {
    let report = explore(subject, ops, ExploreLimits::from_env());
    let mut messages = report.violations.iter().map(|violation| &violation.message);
    assert!(
        messages.any(|message| message.contains(says)),
        "no {says:?} in {report}"
    );
}
