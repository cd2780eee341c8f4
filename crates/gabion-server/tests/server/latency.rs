//! How long commands take, saves, and a picture.

use super::support::{Server, Value, check};

#[test]
fn histograms_are_those_of_the_calls() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    client.say("config resetstat");
    let histogram = client.say("latency histogram");
    assert!(histogram.starts_with("[\"config|resetstat\" [\"calls\" 1 \"histogram_usec\" ["));
    for _ in 0..3 {
        client.say("set a b");
    }
    client.say("client id");
    client.say("client getname");
    let Value::Array(all) = client.ask(&["latency", "histogram", "SET", "client", "nothing"])
    else {
        panic!("a list");
    };
    let names: Vec<String> = all
        .iter()
        .step_by(2)
        .map(|name| format!("{name:?}"))
        .collect();
    assert_eq!(names.len(), 3);
    for name in ["\"set\"", "\"client|id\"", "\"client|getname\""] {
        assert!(names.contains(&name.to_owned()), "{name}");
    }
    let set = names.iter().position(|name| name == "\"set\"").unwrap();
    let Value::Array(of_set) = &all[set * 2 + 1] else {
        panic!("a list");
    };
    assert_eq!(format!("{:?} {:?}", of_set[0], of_set[1]), "\"calls\" 3");
    let Value::Array(pairs) = &of_set[3] else {
        panic!("a list");
    };
    let Some(Value::Integer(last)) = pairs.last() else {
        panic!("a number");
    };
    assert_eq!(*last, 3);
    check(
        &mut client,
        &[
            ("config set latency-tracking no", "OK"),
            ("get a", "\"b\""),
            ("latency histogram get", "[]"),
            ("config set latency-tracking yes", "OK"),
        ],
    );
    let refused = client.say("config set latency-tracking-info-percentiles 101");
    assert!(refused.starts_with("-ERR CONFIG SET failed"), "{refused}");
    assert!(
        refused.ends_with("should consist of percentages from 0 to 100"),
        "{refused}"
    );
    client.ask(&[
        "config",
        "set",
        "latency-tracking-info-percentiles",
        "0.0 50.0",
    ]);
    client.say("get a");
    let info = client.say("info latencystats");
    assert!(info.contains("latency_percentiles_usec_get:p0="), "{info}");
    assert!(info.contains(",p50="), "{info}");
}

#[test]
fn what_takes_long_is_noted_by_kind() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    check(
        &mut client,
        &[
            ("latency latest", "[]"),
            ("latency history command", "[]"),
            ("latency reset command", "0"),
            (
                "latency graph command",
                "-ERR No samples available for event 'command'",
            ),
            (
                "latency help x",
                "-ERR wrong number of arguments for 'latency|help' command",
            ),
            ("debug sleep 0.01", "OK"),
            ("latency latest", "[]"),
            ("config set latency-monitor-threshold 5", "OK"),
            ("debug sleep 0.02", "OK"),
        ],
    );
    let latest = client.say("latency latest");
    assert!(latest.starts_with("[[\"command\" "), "{latest}");
    let Value::Array(history) = client.ask(&["latency", "history", "command"]) else {
        panic!("a list");
    };
    let Some(Value::Array(sample)) = history.last() else {
        panic!("a sample");
    };
    assert!(matches!(sample[1], Value::Integer(20..)), "{sample:?}");
    assert!(client.say("latency doctor").contains("command: "));
    assert!(
        client
            .say("latency graph command")
            .contains("command - high ")
    );
    client.say("config set latency-monitor-threshold 0");
    assert_ne!(client.say("latency reset"), "0");
    check(&mut client, &[("latency latest", "[]")]);
}

#[test]
fn saves_tell_when_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    let changes = |client: &mut super::support::Client| {
        let info = client.say("info persistence");
        let (_, behind) = info.split_once("rdb_changes_since_last_save:").unwrap();
        behind.split_once("\\r").unwrap().0.to_owned()
    };
    let Value::Integer(first) = client.ask(&["lastsave"]) else {
        panic!("a number");
    };
    client.say("set a b");
    assert_eq!(changes(&mut client), "1");
    check(&mut client, &[("save", "OK")]);
    assert_eq!(changes(&mut client), "0");
    let Value::Integer(second) = client.ask(&["lastsave"]) else {
        panic!("a number");
    };
    assert!(second >= first);
    client.say("set a c");
    check(
        &mut client,
        &[
            ("bgsave", "Background saving started"),
            ("bgsave x", "-ERR syntax error"),
        ],
    );
    while changes(&mut client) != "0" {
        std::thread::yield_now();
    }
    // Either it begins at once, or behind one that is under way.
    assert!(
        client
            .say("bgsave schedule")
            .starts_with("Background saving s")
    );
}

#[test]
fn a_wall_is_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    let wall = client.say("lolwut version 5 2 1");
    assert_eq!(wall.matches("+-------+-------+").count(), 2);
    assert!(wall.contains("Redis ver. 7.0"), "{wall}");
    check(
        &mut client,
        &[("lolwut x", "-ERR value is not an integer or out of range")],
    );
}
