//! What is done to the directory, and that no crash of it loses anything.
//!
//! `GABION_CRASH_OPS` is the number of operations that are drawn, three times; see
//! [`ExploreLimits::from_env`] for the others.

use super::super::super::{ExploreLimits, Explorer, HistoryStep, Run};
use super::{Op, SLOTS, drain, lazily, put, put_two, small};
use crate::seeded::SeededRng;

/// Small and large blocks, new, replaced and freed, at once and later.
fn blocks() -> Vec<HistoryStep<Op>> {
    vec![
        put(0, 48, 1),
        put(1, 48, 2),
        put(0, 200, 3),
        HistoryStep::Op(Op::Delete { slot: 1 }),
        put(2, 6000, 4),
        put(2, 9000, 5),
        HistoryStep::Op(Op::Delete { slot: 2 }),
        HistoryStep::Op(Op::PutTwo {
            slot: 3,
            size: 64,
            value: 10,
        }),
        HistoryStep::Op(Op::PutTwo {
            slot: 3,
            size: 32,
            value: 20,
        }),
        HistoryStep::Op(Op::PutLazily {
            slot: 3,
            size: 104,
            value: 30,
        }),
        HistoryStep::Op(Op::PutLazily {
            slot: 0,
            size: 48,
            value: 31,
        }),
        HistoryStep::Op(Op::Collect),
        HistoryStep::Op(Op::GiveUp { slot: 0, size: 48 }),
        HistoryStep::Op(Op::GiveUp {
            slot: 1,
            size: 5000,
        }),
        put(0, 48, 40),
        HistoryStep::Reopen,
        put(0, 48, 41),
        HistoryStep::Op(Op::Delete { slot: 3 }),
    ]
}

/// References move while intents of operations before are not erased yet.
fn moves() -> Vec<HistoryStep<Op>> {
    vec![
        put(0, 48, 1),
        HistoryStep::Op(Op::Move),
        put(0, 64, 2),
        put(1, 64, 3),
        HistoryStep::Op(Op::Delete { slot: 0 }),
        HistoryStep::Op(Op::Move),
        put(4, 304, 4),
        HistoryStep::Op(Op::Move),
        HistoryStep::Op(Op::Move),
        HistoryStep::Reopen,
        HistoryStep::Op(Op::Move),
    ]
}

/// Operations that are given up, each followed by ones that use what it had in hand.
fn given_up() -> Vec<HistoryStep<Op>> {
    let mut acts = vec![put(0, 48, 1), put(1, 48, 2)];
    for round in 0..4 {
        let give_up = HistoryStep::Op(Op::GiveUp {
            slot: round % 2,
            size: 48,
        });
        acts.extend([
            give_up.clone(),
            HistoryStep::Op(Op::Move),
            put(2 + round % 2, 48, 10 + round),
            put(4 + round % 2, 48, 20 + round),
            HistoryStep::Op(Op::Delete {
                slot: 2 + round % 2,
            }),
            give_up,
            put(4 + round % 2, 48, 30 + round),
            put(2 + round % 2, 48, 40 + round),
        ]);
    }
    acts
}

/// Blocks until there is no space, and on with what is freed.
fn full() -> Vec<HistoryStep<Op>> {
    let mut acts: Vec<HistoryStep<Op>> = (0..SLOTS)
        .map(|slot| put(slot, 12_000, 100 + slot))
        .collect();
    acts.extend([
        put(5, 56, 200),
        put(5, 3000, 201),
        HistoryStep::Op(Op::PutTwo {
            slot: 4,
            size: 12_000,
            value: 202,
        }),
        HistoryStep::Op(Op::Delete { slot: 0 }),
        put(0, 2504, 203),
        put(1, 12_000, 204),
    ]);
    acts
}

/// Blocks of half a chunk, of which few are free at a time, so that each is used again at once:
/// what earlier operations left undone about them shows.
fn used_again() -> Vec<HistoryStep<Op>> {
    vec![
        put_two(3, 2048, 10),
        put_two(3, 2048, 20),
        put(1, 2048, 30),
        lazily(1, 2048, 40),
        HistoryStep::Op(Op::Collect),
        put(4, 2048, 50),
        put(0, 2048, 60),
        // Two slabs; one of them is emptied, and its chunk becomes a large block.
        HistoryStep::Op(Op::Delete { slot: 0 }),
        HistoryStep::Op(Op::Delete { slot: 1 }),
        HistoryStep::Op(Op::Delete { slot: 4 }),
        put(5, 3000, 70),
        put(2, 3000, 80),
        put(0, 3000, 90),
    ]
}

/// Publishes without anything that is freed, so that intents are overwritten and never erased.
fn only_puts() -> Vec<HistoryStep<Op>> {
    vec![
        put_two(0, 304, 10),
        put(1, 304, 20),
        put(2, 304, 30),
        put_two(3, 304, 40),
        put_two(4, 304, 50),
        // Given up, with the intent that goes last in a line of its own; the directory moves, and
        // where it was something else is written.
        HistoryStep::Op(Op::GiveUp { slot: 4, size: 48 }),
        HistoryStep::Op(Op::Move),
        HistoryStep::Op(Op::Collect),
        put(5, 48, 60),
        put(5, 48, 70),
    ]
}

/// The process ends with intents on the medium and blocks that wait for readers, and the next one
/// uses these blocks.
fn restarted() -> Vec<HistoryStep<Op>> {
    vec![
        put_two(3, 2048, 10),
        lazily(3, 2048, 20),
        HistoryStep::Restart,
        put(1, 2048, 30),
        lazily(2, 6000, 40),
        lazily(2, 6000, 50),
        HistoryStep::Restart,
        put(4, 6000, 60),
        HistoryStep::Restart,
        HistoryStep::Reopen,
        put(0, 48, 70),
    ]
}

/// What one thread did without a fence of its own after it, and another relies on.
fn elsewhere() -> Vec<HistoryStep<Op>> {
    let there = |act| match act {
        HistoryStep::Op(op) => HistoryStep::Elsewhere(op),
        other => other,
    };
    vec![
        // The state of a block that was committed, and an operation that erases its intent.
        put(0, 48, 1),
        HistoryStep::Elsewhere(Op::Move),
        // An intent to retire that was given up, and other content where its hint leads.
        put_two(1, 48, 1),
        HistoryStep::Op(Op::GiveUp { slot: 1, size: 48 }),
        HistoryStep::Elsewhere(Op::Move),
        HistoryStep::Elsewhere(Op::Collect),
        there(put(2, 48, 2)),
        there(put(2, 48, 3)),
        // A new slab, of which only the other thread uses a block.
        HistoryStep::Op(Op::Delete { slot: 0 }),
        HistoryStep::Op(Op::GiveUp { slot: 0, size: 304 }),
        there(put(0, 304, 2)),
        // Blocks that were freed, at once and by a collection.
        put(3, 2048, 3),
        put(3, 2048, 4),
        there(put(4, 2048, 5)),
        lazily(4, 2048, 6),
        HistoryStep::Op(Op::Collect),
        there(put(5, 2048, 7)),
        // A slab that became a free chunk.
        HistoryStep::Op(Op::Delete { slot: 3 }),
        HistoryStep::Op(Op::Delete { slot: 5 }),
        there(put(3, 3000, 8)),
        there(put(5, 3000, 9)),
        // Runs that recovery freed.
        lazily(5, 6000, 10),
        lazily(5, 6000, 11),
        HistoryStep::Restart,
        there(put(1, 6000, 12)),
        // A pool that was closed.
        HistoryStep::Reopen,
        there(put(3, 48, 18)),
    ]
}

/// Intents that recovery erased, and a block that they name.
fn erased_elsewhere() -> Vec<HistoryStep<Op>> {
    vec![
        put_two(3, 2048, 10),
        lazily(3, 2048, 20),
        HistoryStep::Restart,
        HistoryStep::Elsewhere(Op::Put {
            slot: 1,
            size: 2048,
            value: 30,
        }),
    ]
}

/// Retired blocks that are found and freed when their slab is read.
fn read_elsewhere() -> Vec<HistoryStep<Op>> {
    vec![
        put(0, 2048, 1),
        put(1, 2048, 2),
        lazily(1, 2048, 3),
        HistoryStep::Restart,
        HistoryStep::Op(Op::Collect),
        HistoryStep::Elsewhere(Op::Put {
            slot: 2,
            size: 2048,
            value: 4,
        }),
    ]
}

/// Closed while intents of operations that are over are on the medium.
fn closed() -> Vec<HistoryStep<Op>> {
    vec![
        put(0, 48, 1),
        HistoryStep::Reopen,
        put(1, 48, 2),
        put(2, 304, 3),
        HistoryStep::Reopen,
    ]
}

/// All histories by their names.
pub(super) fn all() -> Vec<(&'static str, Vec<HistoryStep<Op>>)> {
    vec![
        ("blocks", blocks()),
        ("moves", moves()),
        ("given up", given_up()),
        ("full", full()),
        ("used again", used_again()),
        ("only puts", only_puts()),
        ("restarted", restarted()),
        ("elsewhere", elsewhere()),
        ("erased elsewhere", erased_elsewhere()),
        ("read elsewhere", read_elsewhere()),
        ("closed", closed()),
    ]
}

/// Operations drawn from a seed.
fn drawn(seed: u64, count: usize) -> Vec<HistoryStep<Op>> {
    let mut random = SeededRng::new(seed);
    let mut acts = Vec::new();
    for value in (1000..).step_by(2).take(count) {
        let slot = random.word() % SLOTS;
        let size = [32, 48, 48, 104, 304, 2048, 2504, 9000][random.index(8)];
        let act = match random.below(16) {
            0..6 => put(slot, size, value),
            6 | 7 => HistoryStep::Op(Op::PutLazily { slot, size, value }),
            8 | 9 => HistoryStep::Op(Op::PutTwo { slot, size, value }),
            10 | 11 => HistoryStep::Op(Op::Delete { slot }),
            12 => HistoryStep::Op(Op::GiveUp { slot, size }),
            13 => HistoryStep::Op(Op::Move),
            14 => HistoryStep::Op(Op::Collect),
            _ if random.below(4) == 0 => {
                acts.extend(drain().map(HistoryStep::Op));
                continue;
            }
            _ if random.one_in(2) => HistoryStep::Restart,
            _ => HistoryStep::Reopen,
        };
        let act = match act {
            HistoryStep::Op(op) if random.one_in(4) => HistoryStep::Elsewhere(op),
            act => act,
        };
        acts.push(act);
    }
    acts
}

fn assert_pool_is_clean(name: &str, acts: &[HistoryStep<Op>]) {
    let subject = small();
    let run = Run::record(&subject, name, &[], acts).unwrap();
    let limits = ExploreLimits {
        nested_probes: 1,
        ..ExploreLimits::from_env()
    };
    let report = Explorer::new(&subject, limits).explore(&run);
    println!("{name}\n{report}");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn blocks_are_neither_lost_nor_given_out_twice() {
    for (name, acts) in all() {
        assert_pool_is_clean(name, &acts);
    }
}

#[test]
fn drawn_operations_are_clean() {
    let limits = ExploreLimits::from_env();
    let count = std::env::var("GABION_CRASH_OPS").map_or(40, |text| text.parse().unwrap());
    for seed in limits.seed..limits.seed + 3 {
        assert_pool_is_clean(&format!("drawn from {seed:#x}"), &drawn(seed, count));
    }
}
