//! Whether a history of a register is linearizable: whether each operation can have taken effect at
//! one moment between its call and its return.
//!
//! The checker walks through calls and returns in the order in which they happened, with all states
//! that the register can be in: a value, and which of the operations that are under way have taken
//! effect. At a return it lets those under way take effect in any order until the one that returns
//! has, and keeps the states in which that works. No state left: not linearizable.

use std::collections::{BTreeSet, HashSet};

/// An operation on one register, between two moments of a clock that all clients share.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// The value that a swap gives; a read gives none.
    pub(crate) new: Option<String>,
    /// The value that it found; `None` if no answer came. Then it may take effect at any moment
    /// after its call, or never.
    pub(crate) found: Option<Option<String>>,
    pub(crate) called: u64,
    pub(crate) returned: u64,
}

#[derive(Clone, Eq, Hash, PartialEq)]
struct State {
    value: Option<String>,
    /// Operations under way that have taken effect.
    done: BTreeSet<usize>,
}

impl State {
    /// The state after an operation, if it finds there what it found.
    fn after(&self, number: usize, operation: &Operation) -> Option<State> {
        if operation
            .found
            .as_ref()
            .is_some_and(|found| *found != self.value)
        {
            return None;
        }
        let mut after = self.clone();
        if operation.new.is_some() {
            after.value.clone_from(&operation.new);
        }
        after.done.insert(number);
        Some(after)
    }
}

/// Checks a history of a register that had no value.
pub(crate) fn check(history: &[Operation]) -> Result<(), String> {
    let mut events = Vec::new();
    for (number, operation) in history.iter().enumerate() {
        events.push((operation.called, false, number));
        if operation.found.is_some() {
            events.push((operation.returned, true, number));
        }
    }
    events.sort_unstable();
    let mut under_way = BTreeSet::new();
    let mut states = HashSet::from([State {
        value: None,
        done: BTreeSet::new(),
    }]);
    for (_, is_return, number) in events {
        if !is_return {
            under_way.insert(number);
            continue;
        }
        states = until_done(states, number, &under_way, history);
        under_way.remove(&number);
        if states.is_empty() {
            return Err(format!("no order explains {:?}", history[number]));
        }
    }
    Ok(())
}

/// The states in which the operation `number` has taken effect, without it.
fn until_done(
    states: HashSet<State>,
    number: usize,
    under_way: &BTreeSet<usize>,
    history: &[Operation],
) -> HashSet<State> {
    let mut seen = states.clone();
    let mut open: Vec<State> = states.into_iter().collect();
    let mut kept = HashSet::new();
    while let Some(mut state) = open.pop() {
        if state.done.remove(&number) {
            kept.insert(state);
            continue;
        }
        for next in under_way.difference(&state.done) {
            if let Some(after) = state.after(*next, &history[*next])
                && seen.insert(after.clone())
            {
                open.push(after);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use gabion_media::seeded::SeededRng;

    use super::*;

    fn swap(new: &str, found: Option<&str>, called: u64, returned: u64) -> Operation {
        Operation {
            new: Some(new.to_owned()),
            found: Some(found.map(str::to_owned)),
            called,
            returned,
        }
    }

    fn get(found: &str, called: u64, returned: u64) -> Operation {
        Operation {
            new: None,
            ..swap("", Some(found), called, returned)
        }
    }

    fn unanswered(new: &str, called: u64) -> Operation {
        Operation {
            found: None,
            ..swap(new, None, called, called)
        }
    }

    #[test]
    fn a_read_of_an_overwritten_value_is_refused_unless_it_ran_beside() {
        let swaps = [swap("a", None, 0, 1), swap("b", Some("a"), 2, 5)];
        let with = |operation: Operation| [&swaps[..], &[operation]].concat();
        assert!(check(&with(get("b", 6, 7))).is_ok());
        assert!(check(&with(get("a", 6, 7))).is_err(), "it is stale");
        assert!(
            check(&with(get("a", 3, 7))).is_ok(),
            "it began before the return"
        );
        assert!(
            check(&with(get("b", 3, 4))).is_ok(),
            "the swap had effect before"
        );
        assert!(
            check(&with(get("c", 3, 4))).is_err(),
            "nobody gave that value"
        );
    }

    #[test]
    fn two_reads_do_not_see_values_in_turns() {
        let history = |first, second| {
            [
                swap("a", None, 0, 1),
                swap("b", Some("a"), 2, 9),
                get(first, 3, 4),
                get(second, 5, 6),
            ]
        };
        assert!(check(&history("a", "b")).is_ok());
        assert!(check(&history("b", "a")).is_err());
    }

    #[test]
    fn a_swap_without_an_answer_has_effect_late_or_never_but_once() {
        let history = |found: &[&str]| {
            let mut history = vec![swap("a", None, 0, 1), unanswered("b", 2)];
            history.extend(
                (3..)
                    .step_by(2)
                    .zip(found)
                    .map(|(at, found)| get(found, at, at + 1)),
            );
            check(&history)
        };
        assert!(history(&["a", "a"]).is_ok());
        assert!(history(&["a", "b", "b"]).is_ok());
        assert!(history(&["b", "a"]).is_err());
    }

    #[test]
    fn a_swap_that_is_lost_is_noticed_by_the_next_one() {
        assert!(check(&[swap("a", None, 0, 1), swap("b", None, 2, 3)]).is_err());
    }

    /// Histories of a real register, with intervals around the moments of effect, are accepted; the
    /// same with one stale answer are not.
    #[test]
    fn drawn_histories_are_accepted_and_stale_answers_refused() {
        for seed in 0..200 {
            let mut rng = SeededRng::new(seed);
            let mut value: Option<String> = None;
            let mut history = Vec::new();
            for number in 0..60 {
                // Effects are 10 apart and intervals reach across some of them.
                let at = 1000 + number * 10;
                let new = rng.one_in(2).then(|| number.to_string());
                history.push(Operation {
                    new: new.clone(),
                    found: Some(value.clone()),
                    called: at - rng.below(35),
                    returned: at + 1 + rng.below(35),
                });
                value = new.or(value);
            }
            assert_eq!(check(&history), Ok(()), "seed {seed}");
            history.push(swap("last", value.as_deref(), 2000, 2001));
            history.push(Operation {
                new: None,
                found: Some(value),
                called: 2002,
                returned: 2003,
            });
            assert!(check(&history).is_err(), "seed {seed}");
        }
    }
}
