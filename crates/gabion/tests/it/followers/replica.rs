//! The example `replica`, which copies a store that another process writes, under kills of both.
//!
//! `GABION_REPLICA_KILLS` is how often one of them is killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use gabion::{AddI64, Db, KeyspaceOptions, Options, WriteBatch};

use super::content;
use crate::examples::example;
use crate::support::{SeededRng, base_seed, setting, small_options};

/// The variable that makes the test the writer of the store that it names.
const WRITER: &str = "GABION_REPLICA_WRITER";

fn options() -> Options {
    small_options()
        .background_threads(2)
        .log_bytes_max(64 << 10)
}

/// Writes what a store can hold for ever, and prints how much.
fn write_until_killed(dir: &str) -> ! {
    let db = options().open(dir).unwrap();
    let own = db.default_keyspace();
    let counters = KeyspaceOptions::default().merge(AddI64);
    let counters = db.keyspace_with("counters", &counters).unwrap();
    let mut random = SeededRng::new(u64::from(std::process::id()));
    let mut out = std::io::stdout().lock();
    for number in 1u64.. {
        let key = format!("key {:03}", random.below(200));
        match random.below(100) {
            0 => own.delete_range("key 050".."key 060").unwrap(),
            1..10 => own.delete(&key).unwrap(),
            10..30 => counters.merge(&key[..5], 1i64.to_le_bytes()).unwrap(),
            30 => {
                let keys = ["key 1", "key 2", "key 3"];
                own.ingest(keys.map(|key| (key, number.to_le_bytes())))
                    .unwrap();
            }
            31 if number.is_multiple_of(5) => {
                let _gone = db.drop_keyspace("now and then");
            }
            31..40 => {
                let other = db.keyspace("now and then").unwrap();
                let mut batch = WriteBatch::new();
                batch.put(&other, &key, number.to_le_bytes()).unwrap();
                batch.put(own, &key, number.to_le_bytes()).unwrap();
                db.write(&batch).unwrap();
            }
            _ => own.put(&key, number.to_le_bytes()).unwrap(),
        }
        if number.is_multiple_of(50) {
            writeln!(out, "{number}").unwrap();
            out.flush().unwrap();
        }
    }
    unreachable!("it is killed");
}

fn start(command: &mut Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

fn start_writer(dir: &Path) -> (Child, BufReader<ChildStdout>) {
    let name = "followers::replica::a_copy_survives_kills_of_both";
    let mut command = Command::new(std::env::current_exe().unwrap());
    start(
        command
            .args(["--exact", name, "--nocapture"])
            .env(WRITER, dir),
    )
}

fn wait_for_lines(out: &mut impl BufRead, lines: u64) {
    for _ in 0..lines {
        let mut line = String::new();
        assert!(out.read_line(&mut line).unwrap() > 0, "it has ended");
    }
}

#[test]
fn a_copy_survives_kills_of_both() {
    if let Ok(dir) = std::env::var(WRITER) {
        write_until_killed(&dir);
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, copy) = (dir.path().join("source"), dir.path().join("copy"));
    let replica = |more: &[&str]| {
        let mut command = Command::new(example("replica"));
        command.arg(&source).arg(&copy).args(more);
        command
    };
    let mut random = SeededRng::new(base_seed());
    let (mut writer, mut written) = start_writer(&source);
    wait_for_lines(&mut written, 4);
    let (mut copier, mut copied) = start(&mut replica(&[]));
    for round in 0..setting("GABION_REPLICA_KILLS", 6) {
        wait_for_lines(&mut written, 1 + random.below(10));
        wait_for_lines(&mut copied, 1);
        match round % 2 {
            0 => {
                writer.kill().unwrap();
                writer.wait().unwrap();
                (writer, written) = start_writer(&source);
                wait_for_lines(&mut written, 1);
            }
            _ => {
                copier.kill().unwrap();
                copier.wait().unwrap();
                (copier, copied) = start(&mut replica(&[]));
            }
        }
    }
    for child in [&mut writer, &mut copier] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let output = replica(&["once"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.ends_with("the copy is up to date\n"), "{text}");
    let (source, copy) = (options().open(&source).unwrap(), Db::open(&copy).unwrap());
    let (expected, found) = (content(&source), content(&copy));
    // The example makes a keyspace with its first pair.
    let filled = |content: BTreeMap<String, BTreeMap<_, _>>| {
        let pairs = content.into_iter();
        let pairs =
            pairs.filter(|(_, pairs): &(String, BTreeMap<Vec<u8>, Vec<u8>>)| !pairs.is_empty());
        pairs.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(filled(found), filled(expected));
}
