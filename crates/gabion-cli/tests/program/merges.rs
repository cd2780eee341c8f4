//! Counters, and commands that read beside each other.

use std::io::Read;
use std::process::Stdio;

use crate::support::{Place, names};

#[test]
fn operands_are_merged_by_the_operator_of_the_keyspace() {
    let place = Place::new();
    place.ok(&["put", "k", "v"]);
    let created = place.ok(&["keyspace", "create", "hits", "--merge", "add_i64"]);
    assert_eq!(created, "hits merge=add_i64\n");
    for by in ["40", "-3", "5"] {
        place.ok(&["merge", "/", by, "--number", "--keyspace", "hits"]);
    }
    let get = ["get", "/", "--number", "--keyspace", "hits"];
    assert_eq!(place.ok(&get), "42\n");
    names(
        &place.fails(1, &["merge", "/", "text", "--keyspace", "hits"]),
        &["add_i64", "4 bytes"],
    );
    names(
        &place.fails(2, &["merge", "/", "x", "--number", "--keyspace", "hits"]),
        &["x", "not a number"],
    );
    names(
        &place.fails(1, &["merge", "k", "v"]),
        &["default", "no merge operator"],
    );
    names(
        &place.fails(1, &["get", "k", "--number"]),
        &["1 bytes", "8"],
    );
    let other = ["keyspace", "set", "hits", "--merge", "max_bytes"];
    names(&place.fails(1, &other), &["hits", "add_i64", "max_bytes"]);
    let unknown = ["keyspace", "set", "hits", "--merge", "add_f64"];
    let refused = place.run(&unknown);
    assert_eq!(refused.status, Some(2));
    names(&refused.stderr, &["add_i64", "append:"]);
    place.ok(&["keyspace", "set", "hits", "--reset"]);
    let listed = place.ok(&["keyspace", "list", "--json"]);
    assert!(listed.contains("\"merge\": \"add_i64\""), "{listed}");
    // A dump has what the operands amount to.
    place.ok(&["dump", "a.dump", "--keyspace", "hits"]);
    place.ok(&["load", "a.dump", "--keyspace", "copy"]);
    let copied = ["get", "/", "--number", "--keyspace", "copy"];
    assert_eq!(place.ok(&copied), "42\n");
}

/// One command had the store for itself: others that only read failed meanwhile.
#[test]
fn commands_that_read_go_side_by_side() {
    let place = Place::new();
    for number in 0..20 {
        place.ok(&["put", &format!("key {number}"), &"v".repeat(9_000)]);
    }
    // It prints more than a pipe holds, so it has the store open until somebody reads.
    let mut scan = place.command(&["scan"]);
    let mut scan = scan.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    let mut output = scan.stdout.take().unwrap();
    output.read_exact(&mut first).unwrap();
    assert_eq!(place.ok(&["get", "key 7"]).len(), 9_001);
    assert_eq!(place.ok(&["scan", "--keys-only"]).lines().count(), 20);
    place.ok(&["stats"]);
    place.ok(&["check"]);
    names(&place.fails(1, &["put", "key", "value"]), &["locked"]);
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    assert!(scan.wait().unwrap().success());
    place.ok(&["put", "key", "value"]);
}
