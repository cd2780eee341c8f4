//! What is done to the directory, and that no crash of it loses anything.
//!
//! `GABION_CRASH_OPS` is the number of operations that are drawn, three times; see
//! [`Limits::from_env`] for the others.

use super::super::super::{Act, Explorer, Limits, Run};
use super::{Op, SLOTS, drain, lazily, put, put_two, small};
use crate::seeded::Random;

/// Small and large blocks, new, replaced and freed, at once and later.
fn blocks() -> Vec<Act<Op>> {
    vec![
        put(0, 48, 1),
        put(1, 48, 2),
        put(0, 200, 3),
        Act::Op(Op::Delete { slot: 1 }),
        put(2, 6000, 4),
        put(2, 9000, 5),
        Act::Op(Op::Delete { slot: 2 }),
        Act::Op(Op::PutTwo {
            slot: 3,
            size: 64,
            value: 10,
        }),
        Act::Op(Op::PutTwo {
            slot: 3,
            size: 32,
            value: 20,
        }),
        Act::Op(Op::PutLazily {
            slot: 3,
            size: 104,
            value: 30,
        }),
        Act::Op(Op::PutLazily {
            slot: 0,
            size: 48,
            value: 31,
        }),
        Act::Op(Op::Collect),
        Act::Op(Op::GiveUp { slot: 0, size: 48 }),
        Act::Op(Op::GiveUp {
            slot: 1,
            size: 5000,
        }),
        put(0, 48, 40),
        Act::Reopen,
        put(0, 48, 41),
        Act::Op(Op::Delete { slot: 3 }),
    ]
}

/// References move while intents of operations before are not erased yet.
fn moves() -> Vec<Act<Op>> {
    vec![
        put(0, 48, 1),
        Act::Op(Op::Move),
        put(0, 64, 2),
        put(1, 64, 3),
        Act::Op(Op::Delete { slot: 0 }),
        Act::Op(Op::Move),
        put(4, 304, 4),
        Act::Op(Op::Move),
        Act::Op(Op::Move),
        Act::Reopen,
        Act::Op(Op::Move),
    ]
}

/// Operations that are given up, each followed by ones that use what it had in hand.
fn given_up() -> Vec<Act<Op>> {
    let mut acts = vec![put(0, 48, 1), put(1, 48, 2)];
    for round in 0..4 {
        let give_up = Act::Op(Op::GiveUp {
            slot: round % 2,
            size: 48,
        });
        acts.extend([
            give_up.clone(),
            Act::Op(Op::Move),
            put(2 + round % 2, 48, 10 + round),
            put(4 + round % 2, 48, 20 + round),
            Act::Op(Op::Delete {
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
fn full() -> Vec<Act<Op>> {
    let mut acts: Vec<Act<Op>> = (0..SLOTS)
        .map(|slot| put(slot, 12_000, 100 + slot))
        .collect();
    acts.extend([
        put(5, 56, 200),
        put(5, 3000, 201),
        Act::Op(Op::PutTwo {
            slot: 4,
            size: 12_000,
            value: 202,
        }),
        Act::Op(Op::Delete { slot: 0 }),
        put(0, 2504, 203),
        put(1, 12_000, 204),
    ]);
    acts
}

/// Blocks of half a chunk, of which few are free at a time, so that each is used again at once:
/// what earlier operations left undone about them shows.
fn used_again() -> Vec<Act<Op>> {
    vec![
        put_two(3, 2048, 10),
        put_two(3, 2048, 20),
        put(1, 2048, 30),
        lazily(1, 2048, 40),
        Act::Op(Op::Collect),
        put(4, 2048, 50),
        put(0, 2048, 60),
        // Two slabs; one of them is emptied, and its chunk becomes a large block.
        Act::Op(Op::Delete { slot: 0 }),
        Act::Op(Op::Delete { slot: 1 }),
        Act::Op(Op::Delete { slot: 4 }),
        put(5, 3000, 70),
        put(2, 3000, 80),
        put(0, 3000, 90),
    ]
}

/// Publishes without anything that is freed, so that intents are overwritten and never erased.
fn only_puts() -> Vec<Act<Op>> {
    vec![
        put_two(0, 304, 10),
        put(1, 304, 20),
        put(2, 304, 30),
        put_two(3, 304, 40),
        put_two(4, 304, 50),
        // Given up, with the intent that goes last in a line of its own; the directory moves, and
        // where it was something else is written.
        Act::Op(Op::GiveUp { slot: 4, size: 48 }),
        Act::Op(Op::Move),
        Act::Op(Op::Collect),
        put(5, 48, 60),
        put(5, 48, 70),
    ]
}

/// The process ends with intents on the medium and blocks that wait for readers, and the next one
/// uses these blocks.
fn restarted() -> Vec<Act<Op>> {
    vec![
        put_two(3, 2048, 10),
        lazily(3, 2048, 20),
        Act::Restart,
        put(1, 2048, 30),
        lazily(2, 6000, 40),
        lazily(2, 6000, 50),
        Act::Restart,
        put(4, 6000, 60),
        Act::Restart,
        Act::Reopen,
        put(0, 48, 70),
    ]
}

/// What one thread did without a fence of its own after it, and another relies on.
fn elsewhere() -> Vec<Act<Op>> {
    let there = |act| match act {
        Act::Op(op) => Act::Elsewhere(op),
        other => other,
    };
    vec![
        // The state of a block that was committed, and an operation that erases its intent.
        put(0, 48, 1),
        Act::Elsewhere(Op::Move),
        // An intent to retire that was given up, and other content where its hint leads.
        put_two(1, 48, 1),
        Act::Op(Op::GiveUp { slot: 1, size: 48 }),
        Act::Elsewhere(Op::Move),
        Act::Elsewhere(Op::Collect),
        there(put(2, 48, 2)),
        there(put(2, 48, 3)),
        // A new slab, of which only the other thread uses a block.
        Act::Op(Op::Delete { slot: 0 }),
        Act::Op(Op::GiveUp { slot: 0, size: 304 }),
        there(put(0, 304, 2)),
        // Blocks that were freed, at once and by a collection.
        put(3, 2048, 3),
        put(3, 2048, 4),
        there(put(4, 2048, 5)),
        lazily(4, 2048, 6),
        Act::Op(Op::Collect),
        there(put(5, 2048, 7)),
        // A slab that became a free chunk.
        Act::Op(Op::Delete { slot: 3 }),
        Act::Op(Op::Delete { slot: 5 }),
        there(put(3, 3000, 8)),
        there(put(5, 3000, 9)),
        // Runs that recovery freed.
        lazily(5, 6000, 10),
        lazily(5, 6000, 11),
        Act::Restart,
        there(put(1, 6000, 12)),
        // A pool that was closed.
        Act::Reopen,
        there(put(3, 48, 18)),
    ]
}

/// Intents that recovery erased, and a block that they name.
fn erased_elsewhere() -> Vec<Act<Op>> {
    vec![
        put_two(3, 2048, 10),
        lazily(3, 2048, 20),
        Act::Restart,
        Act::Elsewhere(Op::Put {
            slot: 1,
            size: 2048,
            value: 30,
        }),
    ]
}

/// Retired blocks that are found and freed when their slab is read.
fn read_elsewhere() -> Vec<Act<Op>> {
    vec![
        put(0, 2048, 1),
        put(1, 2048, 2),
        lazily(1, 2048, 3),
        Act::Restart,
        Act::Op(Op::Collect),
        Act::Elsewhere(Op::Put {
            slot: 2,
            size: 2048,
            value: 4,
        }),
    ]
}

/// Closed while intents of operations that are over are on the medium.
fn closed() -> Vec<Act<Op>> {
    vec![
        put(0, 48, 1),
        Act::Reopen,
        put(1, 48, 2),
        put(2, 304, 3),
        Act::Reopen,
    ]
}

/// All histories by their names.
pub(super) fn all() -> Vec<(&'static str, Vec<Act<Op>>)> {
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
fn drawn(seed: u64, count: usize) -> Vec<Act<Op>> {
    let mut random = Random::new(seed);
    let mut acts = Vec::new();
    for value in (1000..).step_by(2).take(count) {
        let slot = random.word() % SLOTS;
        let size = [32, 48, 48, 104, 304, 2048, 2504, 9000][random.index(8)];
        let act = match random.below(16) {
            0..6 => put(slot, size, value),
            6 | 7 => Act::Op(Op::PutLazily { slot, size, value }),
            8 | 9 => Act::Op(Op::PutTwo { slot, size, value }),
            10 | 11 => Act::Op(Op::Delete { slot }),
            12 => Act::Op(Op::GiveUp { slot, size }),
            13 => Act::Op(Op::Move),
            14 => Act::Op(Op::Collect),
            _ if random.below(4) == 0 => {
                acts.extend(drain().map(Act::Op));
                continue;
            }
            _ if random.one_in(2) => Act::Restart,
            _ => Act::Reopen,
        };
        let act = match act {
            Act::Op(op) if random.one_in(4) => Act::Elsewhere(op),
            act => act,
        };
        acts.push(act);
    }
    acts
}

fn assert_pool_is_clean(name: &str, acts: &[Act<Op>]) {
    let subject = small();
    let run = Run::record(&subject, name, &[], acts).unwrap();
    let limits = Limits {
        nested_probes: 1,
        ..Limits::from_env()
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
    let limits = Limits::from_env();
    let count = std::env::var("GABION_CRASH_OPS").map_or(40, |text| text.parse().unwrap());
    for seed in limits.seed..limits.seed + 3 {
        assert_pool_is_clean(&format!("drawn from {seed:#x}"), &drawn(seed, count));
    }
}
