//! Keys that go from one server to another.

use crate::support::{Server, check};

#[test]
fn keys_are_handed_over_or_stay() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let from = Server::start(one.path());
    let to = Server::start(other.path());
    let (mut client, mut target) = (from.connect(), to.connect());
    target.say("acl setuser mover on >pw +@all ~*");
    target.say("set taken x");
    let place = format!("migrate 127.0.0.1 {}", to.port());
    let say = |client: &mut crate::support::Client, line: &str, words: &[&str]| {
        let mut all: Vec<&str> = line.split_whitespace().collect();
        all.extend(words);
        format!("{:?}", client.ask(&all))
    };
    check(
        &mut client,
        &[
            ("set s 1 px 100000", "OK"),
            ("rpush l a b", "2"),
            ("hset h f v", "1"),
            ("set taken y", "OK"),
            (&format!("{place} nothing 0 1000"), "NOKEY"),
            (&format!("{place} s 3 1000 copy"), "OK"),
            ("get s", "\"1\""),
            (&format!("{place} s 0 1000"), "OK"),
            ("exists s", "0"),
            (
                &format!("{place} l 0 1000 keys h"),
                "-ERR When using MIGRATE KEYS option, the key \
              argument must be set to the empty string",
            ),
            (&format!("{place} l 0 1000 sometimes"), "-ERR syntax error"),
            (
                &format!("{place} l 99 1000"),
                "-ERR Target instance replied with error: ERR DB index \
              is out of range",
            ),
            (
                &format!("{place} l 0 1000 auth wrong"),
                "-ERR Target instance replied with error: \
              ERR AUTH <password> called without any password configured for the default user. Are \
              you sure your configuration is correct?",
            ),
            (
                &format!("{place} taken 0 1000"),
                "-ERR Target instance replied with error: BUSYKEY \
              Target key name already exists.",
            ),
            ("mget taken", "[\"y\"]"),
            ("llen l", "2"),
        ],
    );
    // Those that are taken go, those that are refused stay.
    let several = [
        "", "0", "1000", "auth2", "mover", "pw", "keys", "l", "taken", "no", "h",
    ];
    assert!(say(&mut client, &place, &several).contains("BUSYKEY"));
    assert_eq!(client.say("exists l h taken"), "1");
    let replace = ["", "0", "1000", "replace", "keys", "taken"];
    assert_eq!(say(&mut client, &place, &replace), "OK");
    assert_eq!(client.say("dbsize"), "0");
    check(
        &mut target,
        &[
            ("get s", "\"1\""),
            ("lrange l 0 -1", "[\"a\" \"b\"]"),
            ("hget h f", "\"v\""),
            ("get taken", "\"y\""),
            ("select 3", "OK"),
            ("get s", "\"1\""),
        ],
    );
    let ttl = target.say("pttl s");
    assert!(
        (1..=100_000).contains(&ttl.parse::<i64>().unwrap()),
        "{ttl}"
    );
    to.stop();
    client.say("set s 1");
    let said = client.say(&format!("{place} s 0 1000"));
    assert_eq!(said, "-IOERR error or timeout connecting to the client");
    assert_eq!(client.say("get s"), "\"1\"");
}
