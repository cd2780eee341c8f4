//! Readers beside a process that writes: commands, and kills of either.
//!
//! `GABION_FOLLOW_ROUNDS` sets the number of kills; 10 unless it is set.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use gabion::{Db, Engine, Options, Tuning, WriteBatch};

use crate::support::{Place, names};

/// Keys that the writer goes through in turn.
const KEYS: u64 = 2_000;

/// The variable that makes a test the writer of the store that it names, or who follows it.
const DIR: &str = "GABION_FOLLOW_DIR";
const ROLE: &str = "GABION_FOLLOW_ROLE";

fn options() -> Options {
    Options::default()
        .tuning(
            Tuning::default()
                .memtable_budget_bytes(512 << 10)
                .bucket_bytes(128 << 10),
        )
        .log_bytes_max(1 << 20)
}

fn value_of(number: u64) -> String {
    let rest = usize::try_from(number % 150).unwrap();
    format!("{number} {}", "x".repeat(rest))
}

fn last_number(db: &Db) -> u64 {
    let last = db.get("last").unwrap();
    last.map_or(0, |last| {
        std::str::from_utf8(&last).unwrap().parse().unwrap()
    })
}

/// Writes numbered batches for ever.
fn write_until_killed(dir: &str) -> ! {
    let db = options().open(dir).unwrap();
    let keyspace = db.default_keyspace().clone();
    let mut number = last_number(&db);
    let mut out = std::io::stdout().lock();
    loop {
        number += 1;
        let mut batch = WriteBatch::new();
        let key = format!("key {:05}", number % KEYS);
        batch.put(&keyspace, key, value_of(number)).unwrap();
        batch.put(&keyspace, "last", number.to_string()).unwrap();
        db.write(batch).unwrap();
        if number.is_multiple_of(100) {
            writeln!(out, "{number}").unwrap();
            out.flush().unwrap();
        }
    }
}

/// Panics unless a store holds what the first so many batches leave; returns their number.
fn assert_prefix(db: &Db) -> u64 {
    let snapshot = db.snapshot();
    let pairs = snapshot.iter(db.default_keyspace()).map(Result::unwrap);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let pairs: BTreeMap<String, String> = pairs
        .map(|(key, value)| (text(&key), text(&value)))
        .collect();
    let last = pairs.get("last").map_or(0, |last| last.parse().unwrap());
    for key in 0..KEYS {
        let behind = (last + KEYS - key) % KEYS;
        let expected = last.checked_sub(behind).filter(|number| *number > 0);
        let found = pairs.get(&format!("key {key:05}"));
        assert_eq!(found, expected.map(value_of).as_ref(), "{key} at {last}");
    }
    last
}

/// Follows for ever, and prints what it has come to.
fn follow_until_killed(dir: &str) -> ! {
    let db = options().follower(true).open(dir).unwrap();
    let mut last = 0;
    let mut out = std::io::stdout().lock();
    loop {
        db.catch_up().unwrap();
        let found = assert_prefix(&db);
        assert!(found >= last, "{found} after {last}");
        last = found;
        writeln!(out, "{last}").unwrap();
        out.flush().unwrap();
    }
}

/// A process of this test in a role, and what it prints.
fn start(role: &str, dir: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "follow::either_may_be_killed_at_any_time",
            "--nocapture",
        ])
        .env(DIR, dir)
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

/// The next number that a process prints; panics if it has ended.
fn next_number(out: &mut impl BufRead) -> u64 {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "it has ended");
        if let Ok(number) = line.trim().parse() {
            return number;
        }
    }
}

#[test]
fn either_may_be_killed_at_any_time() {
    if let Ok(dir) = std::env::var(DIR) {
        match std::env::var(ROLE).unwrap().as_str() {
            "writer" => write_until_killed(&dir),
            _ => follow_until_killed(&dir),
        }
    }
    let rounds = std::env::var("GABION_FOLLOW_ROUNDS").map_or(10, |text| text.parse().unwrap());
    let place = Place::new();
    let dir = place.db();
    let (mut writer, mut written) = start("writer", &dir);
    next_number(&mut written);
    let (mut follower, mut followed) = start("follower", &dir);
    let own = options().follower(true).open(&dir).unwrap();
    let mut kills = [0, 0];
    for round in 0..rounds {
        // In other places in each round.
        for _ in 0..1 + round * 7 % 13 {
            next_number(&mut written);
            next_number(&mut followed);
        }
        if round % 2 == 0 {
            writer.kill().unwrap();
            writer.wait().unwrap();
            own.catch_up().unwrap();
            let last = assert_prefix(&own);
            // Nothing that the writer has told of is missing, though nobody has recovered it.
            for line in written.lines().map(Result::unwrap) {
                let told = line.parse::<u64>();
                assert!(told.is_ok_and(|told| told <= last), "{line} of {last}");
            }
            let fresh = options().follower(true).open(&dir).unwrap();
            assert_eq!(assert_prefix(&fresh), last);
            fresh.close().unwrap();
            (writer, written) = start("writer", &dir);
            kills[0] += 1;
        } else {
            follower.kill().unwrap();
            follower.wait().unwrap();
            (follower, followed) = start("follower", &dir);
            kills[1] += 1;
        }
        let told = next_number(&mut written);
        own.catch_up().unwrap();
        assert!(assert_prefix(&own) >= told);
    }
    writer.kill().unwrap();
    follower.kill().unwrap();
    writer.wait().unwrap();
    follower.wait().unwrap();
    let db = options().open(&dir).unwrap();
    own.catch_up().unwrap();
    assert_eq!(assert_prefix(&own), assert_prefix(&db));
    db.close().unwrap();
    println!("{} kills of writers, {} of followers", kills[0], kills[1]);
}

/// Commands that read run beside a process that writes, from a directory that they cannot write
/// to, and leave every file of it as it is.
#[test]
fn commands_that_read_run_beside_a_writer() {
    let place = Place::new();
    let db = Options::default().open(place.db()).unwrap();
    for number in 0..2_000u32 {
        db.put(format!("key {number:04}"), "value").unwrap();
    }
    db.flush().unwrap();
    db.put("key 0007", "another").unwrap();
    let listed = || {
        let entries = std::fs::read_dir(place.db()).unwrap().map(Result::unwrap);
        let entries = entries.map(|entry| {
            let metadata = entry.metadata().unwrap();
            (entry.file_name(), metadata.len(), metadata.modified().ok())
        });
        let mut all: Vec<_> = entries.collect();
        all.sort();
        all
    };
    db.persist(gabion::Durability::Sync).unwrap();
    db.wait_idle().unwrap();
    let mode = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place.db(), permissions).unwrap();
    };
    mode(0o555);
    let before: Vec<_> = listed();
    assert_eq!(place.ok(&["get", "key 0007"]), "another\n");
    assert_eq!(place.ok(&["scan", "--limit", "1"]).lines().count(), 1);
    assert!(place.ok(&["dump"]).contains("records: 2000"));
    names(&place.ok(&["check"]), &["checked: ", "table"]);
    names(&place.ok(&["stats"]), &["behind the writer"]);
    assert!(place.ok(&["changes"]).contains("another"));
    mode(0o755);
    let after = listed();
    let named = |all: &[(std::ffi::OsString, u64, _)]| {
        let all = all.iter();
        all.map(|(name, len, _)| (name.clone(), *len))
            .collect::<Vec<_>>()
    };
    assert_eq!(named(&before), named(&after));
    // The writer still can write.
    db.put("key", "later").unwrap();
    assert_eq!(place.ok(&["get", "key"]), "later\n");
    db.close().unwrap();

    let flex = Place::new();
    let db = Options::default()
        .engine(Engine::Flex)
        .open(flex.db())
        .unwrap();
    db.put("key", "value").unwrap();
    names(&flex.fails(1, &["get", "key"]), &["LOCK"]);
    names(
        &flex.fails(1, &["changes", "--follow"]),
        &["flex", "followers"],
    );
}

/// `changes --follow` prints what comes, and ends when it is told to.
#[test]
fn changes_are_followed_until_a_signal() {
    let place = Place::new();
    let db = Options::default().open(place.db()).unwrap();
    db.put("first", "1").unwrap();
    let mut child = place
        .command(&["changes", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut wait_for = |key: &str| {
        let mut line = String::new();
        while !line.contains(key) {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "it has ended");
        }
    };
    wait_for("first");
    for number in 0..20 {
        let key = format!("key {number}");
        db.put(&key, "value").unwrap();
        if number == 10 {
            db.flush().unwrap();
        }
        wait_for(&key);
    }
    // Another process goes on.
    db.close().unwrap();
    place.ok(&["put", "from", "elsewhere"]);
    wait_for("elsewhere");
    let id = i32::try_from(child.id()).unwrap();
    let kill = Command::new("kill")
        .args(["-INT", &id.to_string()])
        .status();
    assert!(kill.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let limited = place.ok(&["changes", "--follow", "--limit", "3"]);
    assert_eq!(limited.lines().count(), 3);
}
