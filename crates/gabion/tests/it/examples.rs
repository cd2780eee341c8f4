//! The examples run, on a new store and again on the store that they left.
//!
//! `GABION_PM_KILLS` is how often the process of `warm_restart` is killed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gabion::pm::{Pool, TurboHash, TurboOptions};

use crate::support::{PanicContext, SeededRng, base_seed, setting};

/// Where cargo puts the examples that it builds for `cargo test`.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    profile.join("examples").join(name)
}

#[test]
fn every_example_runs_twice_and_says_what_it_did() {
    for (name, said) in [
        ("batch", "alice: 90\nbob: 110\n"),
        ("snapshot", "then: 2 stones, now: 1\n"),
        ("scan", "2026-11-05: 50 stones"),
        ("durability", "the store runs at interval:20"),
        ("bank_transfer", "10 accounts hold 1000"),
        (
            "isolation",
            "Snapshot: both commits succeed\non call after it: 0\n\
             Serializable: the transaction conflicts with a later write to the key \"alice\"",
        ),
        (
            "session_store",
            "alice's token is of Some(\"alice\")\nbob's token is of None\n\
             alice's session ends: true\nit ends still: false",
        ),
        (
            "counters",
            "/ was viewed 4000 times more\n/about was viewed: true",
        ),
        ("secondary_index", "bern: 101 people, the first is 0"),
        (
            "word_index",
            "5 texts changed\nbasket: gabion\nstones: gabion\nholes: sieve\n",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let output = Command::new(example(name))
                .arg(dir.path())
                .output()
                .unwrap_or_else(|error| {
                    panic!("{name}: {error}; `cargo test -p gabion` builds the examples")
                });
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(
                output.status.success() && text.contains(said),
                "{name}: {text}"
            );
        }
    }
}

#[test]
fn the_waits_of_readers_are_told() {
    let dir = tempfile::tempdir().unwrap();
    for threads in ["0", "2"] {
        let output = Command::new(example("reader_waits"))
            .arg(dir.path().join(threads))
            .args(["30000", "1", threads])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let told = text.contains("gets beside") && text.contains("readers could be kept out");
        assert!(output.status.success() && told, "{text}");
    }
}

/// Small, the example is quick; its own size is ten million items.
#[test]
fn a_table_in_a_file_is_there_after_a_restart() {
    const ITEMS: u64 = 200_000;
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let output = Command::new(example("warm_restart"))
            .arg(ITEMS.to_string())
            .arg(dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let says = |said: &str| text.contains(said);
        let is_told = says("items are there, and ") && says("filled up: 200000 items");
        assert!(output.status.success() && is_told, "{text}");
    }
}

/// Items of each round.
const KILL_ITEMS: u64 = 60_000;

/// What `warm_restart` gives an item in a round, as told in its source.
fn value_of(item: u64, round: u64) -> Option<u64> {
    let is_deleted = round % 2 == 1 && item.is_multiple_of(3);
    (!is_deleted).then(|| item.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round)
}

/// Runs a round until the program has told of `wanted` items, and kills it. Returns of how many it
/// had told by then.
fn run_and_kill(file: &Path, round: u64, wanted: u64) -> u64 {
    let mut child = Command::new(example("warm_restart"))
        .arg("fill")
        .arg(file)
        .args([KILL_ITEMS.to_string(), round.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = 0;
    let mut is_killed = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        told = line.unwrap().parse().unwrap();
        if told >= wanted && !is_killed {
            child.kill().unwrap();
            is_killed = true;
        }
    }
    let status = child.wait().unwrap();
    assert!(is_killed || status.success(), "{status}");
    told
}

/// A process that inserts, updates and deletes in a table in a file is killed, again and again:
/// all that it had told of is there, what it did next was done whole or not at all, and nothing
/// else has changed.
#[test]
fn what_a_killed_process_had_told_of_is_in_its_table() {
    let kills = setting("GABION_PM_KILLS", 5);
    let mut random = SeededRng::new(base_seed());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("items.gabion");
    // The round that last did an item.
    let mut rounds: Vec<Option<u64>> = vec![None; usize::try_from(KILL_ITEMS).unwrap()];
    let value_at = |item: u64, round: Option<u64>| round.and_then(|round| value_of(item, round));
    let mut unclean = 0;
    for round in 0..kills {
        let told = run_and_kill(&file, round, random.below(KILL_ITEMS));
        let _context = PanicContext(|| format!("round {round}, killed after it told of {told}"));
        let pool = Pool::open(&file, TurboHash::<u64, u64>::pool_options()).unwrap();
        unclean += u64::from(!pool.was_closed());
        let table: TurboHash<u64, u64> = TurboHash::open(&pool, &TurboOptions::default()).unwrap();
        let mut is_done = true;
        for (item, last) in (0..).zip(&mut rounds) {
            let found = table.get(&item).unwrap();
            let (before, after) = (value_at(item, *last), value_of(item, round));
            // From the first item on that the process had not come to, all are as before. An item
            // that looks the same either way says nothing.
            is_done &= item < told || found == after;
            assert_eq!(found, if is_done { after } else { before }, "item {item}");
            if is_done {
                *last = Some(round);
            }
        }
        table.check().unwrap();
        pool.close().unwrap();
    }
    println!("examples: {kills} kills, {unclean} in the middle");
    assert!(
        unclean * 2 > kills,
        "{unclean} of {kills} kills came in time"
    );
}
