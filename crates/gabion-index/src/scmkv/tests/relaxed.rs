//! Images that a failure of the power may leave of a relaxed store. Here is a single log: it holds
//! what it held after some operation, no earlier than the last one that made everything durable;
//! never a later one without an earlier one, never a mix, and never what was deleted. And what one
//! recovery has shown stays.

use std::collections::BTreeMap;

use gabion_media::pmem::explore::{Explorer, History, HistoryStep, Report, Run, Subject};
use gabion_media::pmem::trace::Trace;

use super::super::Durability;
use super::crash::{self, Op, Small, few, histories, random_history};
use crate::Seed;
use crate::suite::crash::from_env;

type Content = BTreeMap<u64, u64>;

pub(super) fn relaxed() -> Small {
    Small {
        durability: Durability::Relaxed,
        bytes: 160 << 10,
        keeps_for_copies: false,
    }
}

/// A run of which a failure may take the end.
pub(super) struct Tail {
    run: Run<Small>,
    /// What it holds after so many steps, the creation included.
    states: Vec<Option<Content>>,
    /// The step up to which all is durable after so many steps.
    floors: Vec<usize>,
}

impl Tail {
    pub(super) fn record(subject: &Small, (name, setup, acts): &crash::History) -> Tail {
        let run = Run::record(subject, name, setup, acts).expect(name);
        let mut tail = Tail {
            run,
            states: vec![None, Some(subject.empty())],
            floors: vec![0, 1],
        };
        let mut content = subject.empty();
        let setup = setup.iter().map(|op| HistoryStep::Op(*op));
        for act in setup.chain(acts.iter().cloned()) {
            let steps = tail.states.len();
            let is_durable = match &act {
                HistoryStep::Op(op) | HistoryStep::Elsewhere(op) => {
                    subject.expect(&mut content, op);
                    // A delete that found nothing left what was put before it to a loss of power.
                    matches!(op, Op::Delete(_) | Op::PutStrict(..) | Op::Persist)
                }
                HistoryStep::Reopen | HistoryStep::Restart => true,
            };
            tail.states.push(Some(content.clone()));
            let floor = tail.floors[steps - 1];
            tail.floors.push(if is_durable { steps } else { floor });
        }
        tail
    }

    /// The states that a failure in a phase may leave, by their numbers.
    fn allowed(&self, phase: usize) -> std::ops::RangeInclusive<usize> {
        let done = phase / 2;
        self.floors[done]..=done + phase % 2
    }
}

impl History<Content> for Tail {
    fn trace(&self) -> &Trace {
        self.run.trace()
    }

    fn judge(&self, phase: usize, content: Option<&Content>) -> Result<(), String> {
        let allowed = self.allowed(phase);
        if self.states[allowed.clone()]
            .iter()
            .any(|state| state.as_ref() == content)
        {
            return Ok(());
        }
        Err(format!(
            "it holds {content:?}, which is none of the states {allowed:?}: {:?}",
            &self.states[allowed.clone()]
        ))
    }

    fn demand(&self, phase: usize) -> u64 {
        let allowed = self.allowed(phase);
        if allowed.start() == allowed.end() {
            return self.run.demand(phase);
        }
        let (first, last) = (*allowed.start() as u64, *allowed.end() as u64);
        Seed::new(first).hash_u64(last)
    }

    fn name(&self) -> &str {
        History::<Content>::name(&self.run)
    }

    fn is_explored(&self, phase: usize) -> bool {
        self.run.is_explored(phase)
    }

    fn kind(&self, phase: usize) -> &'static str {
        self.run.kind(phase)
    }

    fn tell(&self, phase: usize) -> String {
        self.run.tell(phase)
    }

    fn step(&self, op: u32) -> &str {
        self.run.step(op)
    }
}

#[test]
fn power_failures_take_a_tail_of_a_relaxed_store_and_no_more() {
    let subject = relaxed();
    let mut explorer = Explorer::new(&subject, few());
    let mut total = Report::default();
    let random = (0..from_env("GABION_CRASH_HISTORIES", 2)).map(random_history);
    for history in histories().into_iter().chain(random) {
        let tail = Tail::record(&subject, &history);
        let report = explorer.explore(&tail);
        assert!(report.is_clean(), "{}: {report}", history.0);
        total.add(report);
    }
    println!("relaxed: {total}");
}

/// The judge of these tests must not let a lost put pass where it was made durable, nor a mix.
#[test]
fn the_judge_tells_a_tail_from_a_hole() {
    let subject = relaxed();
    let history = (
        "judge",
        vec![Op::Put(1, 1)],
        crash::acts([Op::Put(2, 2), Op::Put(3, 3), Op::Persist, Op::Put(4, 4)]),
    );
    let tail = Tail::record(&subject, &history);
    let state = |keys: &[u64]| -> Content { keys.iter().map(|key| (*key, *key)).collect() };
    let is_allowed = |steps: usize, keys: &[u64]| tail.judge(2 * steps, Some(&state(keys))).is_ok();
    // Steps: create, put 1, put 2, put 3, persist, put 4.
    assert!(is_allowed(4, &[1, 2, 3]) && is_allowed(4, &[1]) && is_allowed(4, &[]));
    assert!(!is_allowed(4, &[1, 3]) && !is_allowed(4, &[2]) && !is_allowed(4, &[1, 2, 3, 4]));
    assert!(is_allowed(6, &[1, 2, 3]) && is_allowed(6, &[1, 2, 3, 4]));
    assert!(!is_allowed(6, &[1, 2]) && !is_allowed(6, &[1, 2, 4]));
}
