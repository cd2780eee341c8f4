//! Kills by signal 9 under load: what was acknowledged is there afterwards, in order, and no more
//! than was begun.
//!
//! `GABION_KILL_ROUNDS` sets the number of kills of each test; 100 unless it is set. kill leaves
//! the system's page cache alone, so this shows nothing about power loss; the tests of the library
//! on the simulated disk do.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use gabion::{Db, Engine, MappedOptions, Options, Tuning, WriteBatch};

use crate::support::Place;

/// Keys that the writer goes through in turn, so that it overwrites each many times.
const KEYS: u64 = 3_000;

/// The variable that makes the first test a writer on the store that it names.
const WRITER_DIR: &str = "GABION_KILL_WRITER_DIR";

/// The variable that names the writer's engine.
const WRITER_ENGINE: &str = "GABION_KILL_WRITER_ENGINE";

fn rounds() -> u64 {
    std::env::var("GABION_KILL_ROUNDS").map_or(100, |rounds| rounds.parse().unwrap())
}

/// A number that differs from round to round and is the same in every run.
fn scattered(round: u64, below: u64) -> u64 {
    ((round + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % below
}

fn options(engine: Engine) -> Options {
    Options::default()
        .engine(engine)
        .tuning(
            Tuning::default()
                .memtable_budget_bytes(1 << 20)
                .bucket_bytes(256 << 10),
        )
        .log_bytes_max(1 << 20)
        .mapped(MappedOptions::default().pool_bytes(64 << 20))
}

fn value_of(number: u64) -> String {
    format!(
        "{number} {}",
        "x".repeat(usize::try_from(number % 200).unwrap())
    )
}

/// Writes numbered batches for ever, each to two keys, and prints a number once it is acknowledged.
fn write_until_killed(dir: &str) -> ! {
    let engine = std::env::var(WRITER_ENGINE).unwrap().parse().unwrap();
    let db = options(engine).open(dir).unwrap();
    let keyspace = db.default_keyspace().clone();
    let mut number = last_number(&db);
    let mut out = std::io::stdout().lock();
    loop {
        number += 1;
        let mut batch = WriteBatch::new();
        batch
            .put(
                &keyspace,
                format!("key {:05}", number % KEYS),
                value_of(number),
            )
            .unwrap();
        batch.put(&keyspace, "last", number.to_string()).unwrap();
        db.write(batch).unwrap();
        writeln!(out, "{number}").unwrap();
        out.flush().unwrap();
    }
}

fn last_number(db: &Db) -> u64 {
    let last = db.get("last").unwrap();
    last.map_or(0, |last| {
        std::str::from_utf8(&last).unwrap().parse().unwrap()
    })
}

#[test]
fn acknowledged_batches_survive_kills() {
    if let Ok(dir) = std::env::var(WRITER_DIR) {
        write_until_killed(&dir);
    }
    kill_writers(Engine::Wip, rounds());
}

#[test]
fn acknowledged_batches_survive_kills_of_flexdb() {
    kill_writers(Engine::Flex, rounds().div_ceil(2));
}

#[test]
fn acknowledged_batches_survive_kills_of_scmkv() {
    kill_writers(Engine::Scmkv, rounds().div_ceil(2));
}

#[test]
fn acknowledged_batches_survive_kills_of_sptree() {
    kill_writers(Engine::Sptree, rounds().div_ceil(2));
}

fn kill_writers(engine: Engine, rounds: u64) {
    let place = Place::new();
    let dir = place.db();
    let mut flushes = 0;
    for round in 0..rounds {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "kill::acknowledged_batches_survive_kills",
                "--nocapture",
            ])
            .env(WRITER_DIR, &dir)
            .env(WRITER_ENGINE, engine.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let wanted = 200 + scattered(round, 8_000);
        let mut acknowledged = 0;
        let mut seen = 0;
        while let Some(Ok(line)) = lines.next() {
            let Ok(number) = line.parse::<u64>() else {
                continue;
            };
            acknowledged = number;
            seen += 1;
            if seen == wanted {
                writer.kill().unwrap();
            }
        }
        writer.wait().unwrap();
        assert!(
            seen >= wanted,
            "round {round}: the writer ended by itself after {seen} writes"
        );

        let db = options(engine).open(&dir).unwrap();
        let last = last_number(&db);
        assert!(
            last == acknowledged || last == acknowledged + 1,
            "round {round}: {acknowledged} was acknowledged, {last} is there"
        );
        for key in 0..KEYS.min(last) {
            // The largest number up to `last` with that remainder.
            let newest = last - (last % KEYS + KEYS - key) % KEYS;
            let expected = (newest > 0).then(|| value_of(newest));
            let found = db.get(format!("key {key:05}")).unwrap();
            assert_eq!(
                found.as_deref(),
                expected.as_deref().map(str::as_bytes),
                "round {round}"
            );
        }
        flushes += u64::from(db.stats().live_bytes > 0);
        db.close().unwrap();
    }
    assert!(flushes > rounds / 2, "the log alone was tested");
    let report = gabion::check(&dir).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}

/// A keyspace is dropped between kills: what was loaded into it before is not taken for loaded.
#[test]
fn a_load_that_is_killed_ends_complete_whatever_was_dropped_meanwhile() {
    const RECORDS: usize = 20_000;
    let place = Place::new();
    let lines: String = (0..RECORDS)
        .map(|n| format!("{n:09},text of {n}\n"))
        .collect();
    place.file("a.csv", lines);
    let arguments = [
        "load",
        "a.csv",
        "--no-header",
        "--batch",
        "3",
        "--keyspace",
        "K",
    ];
    let (mut begun, mut dropped) = (0, 0);
    for round in 0..rounds().div_ceil(4) {
        let mut program = place
            .command(&arguments)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(10 + scattered(round, 60)));
        program.kill().unwrap();
        program.wait().unwrap();
        if !place.db().join("CURRENT").exists() {
            continue;
        }
        let db = Db::open(place.db()).unwrap();
        if let Ok(keyspace) = db.existing_keyspace("K") {
            begun += u64::from(keyspace.iter().next().is_some());
            if round % 3 == 0 {
                db.drop_keyspace("K").unwrap();
                dropped += 1;
            }
        }
        db.close().unwrap();
    }
    assert!(begun > 0 && dropped > 0, "{begun} {dropped}");
    place.ok(&arguments);
    let db = Db::open(place.db()).unwrap();
    let keyspace = db.existing_keyspace("K").unwrap();
    assert_eq!(keyspace.iter().count(), RECORDS);
}

#[test]
fn a_load_killed_again_and_again_is_always_a_prefix_and_ends_complete() {
    const RECORDS: u64 = 60_000;
    let place = Place::new();
    let mut csv = String::from("id,text\n");
    for record in 0..RECORDS {
        csv.push_str(&format!("{record:09},some text of record {record}\n"));
    }
    place.file("a.csv", csv);
    let arguments = ["load", "a.csv", "--batch", "3"];
    let mut loaded = 0;
    // A busy machine may need long to come to the first record.
    let mut patience_ms = 4;
    for round in 0..rounds() {
        if loaded == 0 && round % 4 == 3 && patience_ms < 1000 {
            patience_ms *= 2;
        }
        let mut program = place
            .command(&arguments)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(patience_ms + round % 7));
        program.kill().unwrap();
        program.wait().unwrap();
        if !place.db().join("CURRENT").exists() {
            continue;
        }
        let db = Db::open(place.db()).unwrap();
        let mut count = 0;
        for pair in db.iter() {
            let (key, value) = pair.unwrap();
            assert_eq!(
                *key,
                *format!("{count:09}").as_bytes(),
                "round {round}: not a prefix"
            );
            let text = format!("some text of record {count}\"");
            assert!(
                value
                    .escape_ascii()
                    .to_string()
                    .contains(&text.replace('"', "\\\""))
            );
            count += 1;
        }
        assert!(
            count >= loaded,
            "round {round}: {loaded} records were there, now {count}"
        );
        loaded = count;
        db.close().unwrap();
        if loaded == RECORDS {
            break;
        }
    }
    assert!(loaded > 0, "every kill came before the first record");
    place.ok(&arguments);
    let db = Db::open(place.db()).unwrap();
    assert_eq!(db.iter().count() as u64, RECORDS);
}
