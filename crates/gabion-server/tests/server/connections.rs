//! Connections: protocol, password, channels, and what a client can do to another.

use std::time::Duration;

use crate::support::{Client, Server, Value, check};

#[test]
fn malformed_requests_end_the_connection_with_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    for (bytes, said) in [
        (
            &b"*x\r\n"[..],
            "-ERR Protocol error: invalid multibulk length",
        ),
        (b"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length"),
        (
            b"*1\r\nget\r\n",
            "-ERR Protocol error: expected '$', got 'g'",
        ),
        (
            b"set \"k\r\n",
            "-ERR Protocol error: unbalanced quotes in request",
        ),
    ] {
        let mut client = server.connect();
        client.send_raw(bytes);
        assert_eq!(format!("{:?}", client.read()), said);
        assert!(client.is_ended());
    }
}

/// A page in a browser could send a form to the server's port, and what stood in the form was run.
#[test]
fn requests_of_browsers_are_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    for head in ["POST / HTTP/1.1", "GET / HTTP/1.1\r\nHost: localhost"] {
        let mut browser = server.connect();
        let form = format!("{head}\r\nContent-Length: 14\r\n\r\nSET stolen 1\r\n");
        browser.send_raw(form.as_bytes());
        assert!(browser.is_ended());
        check(&mut server.connect(), &[("exists stolen", "0")]);
    }
}

#[test]
fn pipelines_and_lines_are_answered_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    client.send_raw(b"PING\r\n\r\n*0\r\nset k 'a b'\r\n");
    for number in 0..1000 {
        client.send(&["append", "k", &number.to_string()]);
    }
    client.send_raw(b"*1\r\n$4\r\npi");
    assert_eq!(format!("{:?}", client.read()), "PONG");
    assert_eq!(format!("{:?}", client.read()), "OK");
    let mut length = 3;
    for number in 0..1000 {
        length += number.to_string().len();
        assert_eq!(
            client.read(),
            Value::Integer(i64::try_from(length).unwrap())
        );
    }
    client.send_raw(b"ng\r\n");
    assert_eq!(format!("{:?}", client.read()), "PONG");
}

#[test]
fn a_value_of_many_buffers_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    let value: Vec<u8> = (0..5_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    assert_eq!(
        client.ask(&[b"set", &b"k"[..], &value]),
        Value::Simple("OK".into())
    );
    assert!(client.ask(&["get", "k"]) == Value::Bulk(value));
}

#[test]
fn nothing_is_done_before_the_password_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(dir.path(), |config| {
        config.password = Some("secret".to_owned());
    });
    let mut client = server.connect();
    check(
        &mut client,
        &[
            ("get k", "-NOAUTH Authentication required."),
            (
                "auth wrong",
                "-WRONGPASS invalid username-password pair or user is disabled.",
            ),
            ("auth secret", "OK"),
            ("get k", "nil"),
            // So that the server can be told to end.
            (
                "config set requirepass",
                "-ERR wrong number of arguments for 'config|set' command",
            ),
        ],
    );
    let empty: [&[u8]; 4] = [b"config", b"set", b"requirepass", b""];
    assert_eq!(client.ask(&empty), Value::Simple("OK".into()));
}

#[test]
fn the_third_protocol_has_maps_and_nulls() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    let Value::Map(greeting) = client.ask(&["hello", "3"]) else {
        panic!("no map");
    };
    let proto = (Value::Bulk(b"proto".to_vec()), Value::Integer(3));
    assert!(greeting.contains(&proto), "{greeting:?}");
    check(
        &mut client,
        &[
            ("config get maxclients", "{\"maxclients\":\"10000\",}"),
            ("hello 4", "-NOPROTO unsupported protocol version"),
            ("reset", "RESET"),
            ("config get maxclients", "[\"maxclients\" \"10000\"]"),
        ],
    );
}

#[test]
fn messages_reach_those_who_listen() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let (mut one, mut other) = (server.connect(), server.connect());
    check(
        &mut one,
        &[
            ("subscribe a", "[\"subscribe\" \"a\" 1]"),
            ("psubscribe b*", "[\"psubscribe\" \"b*\" 2]"),
            ("ping", "[\"pong\" \"\"]"),
            (
                "get k",
                "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
            ),
        ],
    );
    check(
        &mut other,
        &[
            ("publish a hello", "1"),
            ("publish bee hello", "1"),
            ("publish c hello", "0"),
            ("pubsub channels", "[\"a\"]"),
            ("pubsub numsub a c", "[\"a\" 1 \"c\" 0]"),
            ("pubsub numpat", "1"),
            ("config set notify-keyspace-events KEA", "OK"),
        ],
    );
    assert_eq!(format!("{:?}", one.read()), "[\"message\" \"a\" \"hello\"]");
    assert_eq!(
        format!("{:?}", one.read()),
        "[\"pmessage\" \"b*\" \"bee\" \"hello\"]"
    );
    assert_eq!(one.say("unsubscribe"), "[\"unsubscribe\" \"a\" 1]");
    assert_eq!(
        one.say("psubscribe __key*"),
        "[\"psubscribe\" \"__key*\" 2]"
    );
    other.say("set k v px 1");
    for expected in [
        "[\"pmessage\" \"__key*\" \"__keyspace@0__:k\" \"set\"]",
        "[\"pmessage\" \"__key*\" \"__keyevent@0__:set\" \"k\"]",
        "[\"pmessage\" \"__key*\" \"__keyspace@0__:k\" \"expire\"]",
        "[\"pmessage\" \"__key*\" \"__keyevent@0__:expire\" \"k\"]",
        "[\"pmessage\" \"__key*\" \"__keyspace@0__:k\" \"expired\"]",
        "[\"pmessage\" \"__key*\" \"__keyevent@0__:expired\" \"k\"]",
    ] {
        assert_eq!(format!("{:?}", one.read()), expected);
    }
}

#[test]
fn a_client_can_be_ended_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let (mut one, mut other) = (server.connect(), server.connect());
    assert_eq!(one.say("client setname stone"), "OK");
    let id = one.say("client id");
    assert!(other.say("client list").contains("name=stone"));
    assert_eq!(other.say(&format!("client kill id {id}")), "1");
    assert!(one.is_ended());
    assert_eq!(other.say(&format!("client kill id {id}")), "0");
}

#[test]
fn more_clients_than_allowed_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    assert_eq!(client.say("config set maxclients 1"), "OK");
    let mut refused = server.connect();
    assert_eq!(
        format!("{:?}", refused.read()),
        "-ERR max number of clients reached"
    );
    assert_eq!(client.say("config set maxclients 100"), "OK");
    // A client that says nothing is disconnected.
    assert_eq!(client.say("config set timeout 1"), "OK");
    let mut silent = server.connect();
    assert!(silent.is_ended());
    drop(client);
    std::thread::sleep(Duration::from_millis(10));
}

/// Calls count where they ended, whatever ran them; a command that waits counts once.
#[test]
fn calls_and_errors_are_counted_by_command_and_kind() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let (mut client, mut waiting) = (server.connect(), server.connect());
    let info = |client: &mut Client, section: &str| match client.ask(&["info", section]) {
        Value::Bulk(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    };
    waiting.send(&["blpop", "list", "0"]);
    while !info(&mut client, "clients").contains("blocked_clients:1") {
        std::thread::yield_now();
    }
    check(
        &mut client,
        &[
            ("config resetstat", "OK"),
            ("multi", "OK"),
            ("set k 1", "QUEUED"),
            ("lpush k 1", "QUEUED"),
            (
                "exec",
                "[OK -WRONGTYPE Operation against a key holding the wrong kind of value]",
            ),
            ("lpush list 1", "1"),
            ("get", "-ERR wrong number of arguments for 'get' command"),
            ("eval return(redis.call('get','k')) 0", "\"1\""),
        ],
    );
    assert_eq!(format!("{:?}", waiting.read()), "[\"list\" \"1\"]");
    let lines = info(&mut client, "commandstats");
    for (name, calls, rejected, failed) in [
        ("set", 1, 0, 0),
        ("lpush", 2, 0, 1),
        ("blpop", 1, 0, 0),
        ("get", 1, 1, 0),
        ("eval", 1, 0, 0),
        ("exec", 1, 0, 0),
        ("config|resetstat", 1, 0, 0),
    ] {
        let line = lines
            .lines()
            .find(|line| line.starts_with(&format!("cmdstat_{name}:")));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {lines}"));
        assert!(line.contains(&format!(":calls={calls},")), "{line}");
        let ends = format!("rejected_calls={rejected},failed_calls={failed}");
        assert!(line.ends_with(&ends), "{line}");
    }
    let errors = info(&mut client, "errorstats");
    assert!(
        errors.contains("errorstat_WRONGTYPE:count=1\r\n"),
        "{errors}"
    );
    assert!(errors.contains("errorstat_ERR:count=1\r\n"), "{errors}");
    assert!(!info(&mut client, "default").contains("cmdstat_"));
    server.stop();
}
