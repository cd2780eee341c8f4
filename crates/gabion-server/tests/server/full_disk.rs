//! A disk that is full: writes are refused with a word that clients know, reads go on, and writes
//! do again once there is room. What was acknowledged is there, also after a kill.
//!
//! The disk is full in that the system lets no file of the server grow, by `prlimit`. Where that is
//! not to be had nothing is tested, which is said aloud.

use std::process::Command;
use std::time::Duration;

use crate::process::{Process, serve_if_asked};
use crate::support::{Client, Value};

/// Bytes of a value: some fill a log.
const VALUE_BYTES: usize = 256 << 10;

/// Rounds of a full disk.
const ROUNDS: usize = 3;

const TEST: &str = "full_disk::writes_are_refused_until_there_is_room";

/// Lets files of a process have at most so many bytes; false where that cannot be.
fn limit_files(server: &Process, bytes: &str) -> bool {
    let status = Command::new("prlimit")
        .args(["--pid", &server.id().to_string()])
        .arg(format!("--fsize={bytes}:"))
        .status();
    status.is_ok_and(|status| status.success())
}

/// The value of the key with this number.
fn value(number: usize) -> Vec<u8> {
    format!("{number:08}").repeat(VALUE_BYTES / 8).into_bytes()
}

/// Writes the key with this number; false if the server refuses, as it does on a full disk.
fn write(client: &mut Client, number: usize) -> bool {
    let key = format!("key{number}").into_bytes();
    match client.ask(&[b"SET".to_vec(), key, value(number)]) {
        Value::Simple(_) => true,
        Value::Error(text) => {
            assert!(text.starts_with("MISCONF "), "{text}");
            false
        }
        other => panic!("{other:?}"),
    }
}

fn check_all(client: &mut Client, written: &[usize]) {
    for number in written {
        let found = client.ask(&["GET", &format!("key{number}")]);
        assert!(found == Value::Bulk(value(*number)), "key{number}");
    }
}

#[test]
fn writes_are_refused_until_there_is_room() {
    serve_if_asked();
    let dir = tempfile::tempdir().unwrap();
    let mut server = Process::start(TEST, dir.path(), "everysec", "");
    if !limit_files(&server, "unlimited") {
        eprintln!("NOT TESTED: prlimit is not there");
        return;
    }
    let mut written = Vec::new();
    let mut number = 0;
    for round in 0..ROUNDS {
        let mut client = server.connect();
        assert!(limit_files(&server, "4096"));
        loop {
            number += 1;
            if !write(&mut client, number) {
                break;
            }
            written.push(number);
            assert!(number < 10_000, "writes go on though files cannot grow");
        }
        check_all(&mut client, &written);
        assert!(limit_files(&server, "unlimited"));
        // The store tries again by itself; until then writes are refused.
        loop {
            number += 1;
            if write(&mut client, number) {
                written.push(number);
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        check_all(&mut client, &written);
        if round == 1 {
            server.kill();
            server = Process::start(TEST, dir.path(), "everysec", "");
            check_all(&mut server.connect(), &written);
        }
    }
    server.kill();
    let server = Process::start(TEST, dir.path(), "everysec", "");
    check_all(&mut server.connect(), &written);
}

/// Connections took the last files that the process may open, and then the store lacked them.
#[test]
fn clients_leave_files_to_the_store() {
    serve_if_asked();
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(
        "full_disk::clients_leave_files_to_the_store",
        dir.path(),
        "everysec",
        "ulimit -n 200;",
    );
    let mut client = server.connect();
    let mut others = Vec::new();
    for _ in 0..200 {
        let mut other = server.connect();
        // Who is refused may find the connection ended before the request has left.
        let _ = other.try_send_raw(b"PING\r\n");
        match other.try_read() {
            Ok(Value::Simple(_)) => others.push(other),
            Ok(refusal) => assert_eq!(format!("{refusal:?}"), "-ERR max number of clients reached"),
            Err(_) => {}
        }
    }
    assert_eq!(
        others.len(),
        149,
        "with the first client a hundred and fifty"
    );
    let shown = client.say("info clients");
    assert!(shown.contains("maxclients:150\\r\\n"), "{shown}");
    let value = "x".repeat(20 << 10);
    for number in 0..1000 {
        let reply = client.ask(&["SET", &format!("key{number}"), &value]);
        assert_eq!(reply, Value::Simple("OK".to_owned()));
    }
}
