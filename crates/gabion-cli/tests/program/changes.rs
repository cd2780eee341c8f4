//! `gabion changes`: what was written, as lines and as JSON.

use serde_json::Value;

use crate::support::{Place, names};

fn lines(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .map(|line| line.split('\t').collect())
        .collect()
}

#[test]
fn changes_are_printed_in_their_order() {
    let place = Place::new();
    place.ok(&["put", "stone", "granite"]);
    place.ok(&["put", "tab\there", "line\nend", "--ttl", "1000000"]);
    place.ok(&["put", "--hex", "ff00", "5c", "--keyspace", "other"]);
    place.ok(&["del", "stone"]);
    place.ok(&["keyspace", "create", "hits", "--merge", "add_i64"]);
    place.ok(&["merge", "/", "1", "--number", "--keyspace", "hits"]);
    place.ok(&["drop", "other"]);
    let printed = place.ok(&["changes"]);
    let printed = lines(&printed);
    let rest: Vec<_> = printed.iter().map(|line| line[1..].join(" ")).collect();
    assert_eq!(
        rest[..2],
        ["default keyspace_created", "default put stone granite"]
    );
    assert!(
        rest[2].starts_with(r"default put tab\there line\nend expires_ms="),
        "{rest:?}"
    );
    assert_eq!(
        rest[3..],
        [
            "other keyspace_created",
            r"other put \xff\x00 \\",
            "default delete stone",
            "hits keyspace_created",
            r"hits merge / onto_before=5 operands=\x01\x00\x00\x00\x00\x00\x00\x00",
            "other keyspace_dropped",
        ]
    );
    let third = printed[2][0];
    let from = place.ok(&["changes", "--from", third, "--limit", "2"]);
    assert_eq!(lines(&from), printed[3..5]);
    let none = place.ok(&["changes", "--from", printed[8][0]]);
    assert_eq!(none, "");

    let json = place.ok(&["changes", "--json", "--hex"]);
    let changes: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(changes.len(), 9);
    assert_eq!(changes[2]["position"], third);
    assert_eq!(changes[4]["number"], 3);
    let put = &changes[4]["operations"][0];
    assert_eq!(put["keyspace"], "other");
    assert_eq!(
        (&put["action"], &put["key"]),
        (&"put".into(), &"ff00".into())
    );
    assert_eq!(put["value"], "5c");
    assert!(changes[2]["operations"][0]["expires_ms"].is_u64());
}

#[test]
fn a_consumer_has_each_change_once() {
    let place = Place::new();
    place.ok(&["put", "a", "1"]);
    assert_eq!(place.ok(&["changes", "--consumer", "mirror"]), "");
    for key in ["b", "c", "d"] {
        place.ok(&["put", key, "2"]);
    }
    let keys = |text: &str| -> Vec<String> {
        let all = lines(text);
        all.iter().map(|line| line[3].to_owned()).collect()
    };
    let two = place.ok(&["changes", "--consumer", "mirror", "--limit", "2"]);
    assert_eq!(keys(&two), ["b", "c"]);
    assert_eq!(keys(&place.ok(&["changes", "--consumer", "mirror"])), ["d"]);
    assert_eq!(place.ok(&["changes", "--consumer", "mirror"]), "");
    let stats = place.ok(&["stats"]);
    assert!(stats.contains("kept for consumers"), "{stats}");
}

#[test]
fn bad_positions_are_sentences() {
    let place = Place::new();
    place.ok(&["put", "a", "1"]);
    let refused = place.run(&["changes", "--from", "here"]);
    assert_eq!(refused.status, Some(2));
    names(&refused.stderr, &["here", "three numbers"]);
    names(
        &place.fails(1, &["changes", "--from", "900.64.5"]),
        &["does not have all changes", "1.0.0"],
    );
    let both = place.run(&["changes", "--from", "1.0.0", "--consumer", "one"]);
    assert_eq!(both.status, Some(2));
}

#[test]
fn engines_without_changes_say_so() {
    let place = Place::new();
    place.ok(&["put", "a", "1", "--engine", "scmkv"]);
    names(&place.fails(1, &["changes"]), &["scmkv", "changes"]);
}
