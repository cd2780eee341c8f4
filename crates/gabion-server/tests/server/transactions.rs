//! `MULTI`, `EXEC` and `WATCH`, also by many at once.

use crate::support::{Server, check};

#[test]
fn queued_commands_run_as_a_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    check(
        &mut server.connect(),
        &[
            ("exec", "-ERR EXEC without MULTI"),
            ("multi", "OK"),
            ("multi", "-ERR MULTI calls can not be nested"),
            ("set k 1", "QUEUED"),
            ("incr k", "QUEUED"),
            ("append k x", "QUEUED"),
            ("incr k", "QUEUED"),
            ("rename k l", "QUEUED"),
            ("get l", "QUEUED"),
            (
                "exec",
                "[OK 2 2 -ERR value is not an integer or out of range OK \"2x\"]",
            ),
            ("dbsize", "1"),
            ("multi", "OK"),
            ("set k", "-ERR wrong number of arguments for 'set' command"),
            ("set k 2", "QUEUED"),
            (
                "exec",
                "-EXECABORT Transaction discarded because of previous errors.",
            ),
            ("exists k", "0"),
            ("multi", "OK"),
            ("set k 2", "QUEUED"),
            ("flushall", "QUEUED"),
            ("set m 3", "QUEUED"),
            ("dbsize", "QUEUED"),
            ("keys *", "QUEUED"),
            ("discard", "OK"),
            ("multi", "OK"),
            ("set k 2", "QUEUED"),
            ("flushall", "QUEUED"),
            ("set m 3", "QUEUED"),
            ("keys *", "QUEUED"),
            ("exec", "[OK OK OK [\"m\"]]"),
            ("dbsize", "1"),
        ],
    );
}

#[test]
fn a_change_of_a_watched_key_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let (mut one, mut other) = (server.connect(), server.connect());
    for (change, is_noticed) in [
        ("set other 1", false),
        ("get k", false),
        ("set k 2", true),
        ("del k", true),
        ("expire k 100", true),
        ("rename k l", true),
        ("flushdb", true),
        ("swapdb 0 1", true),
    ] {
        one.say("set k 1");
        check(
            &mut one,
            &[("watch k", "OK"), ("multi", "OK"), ("set done 1", "QUEUED")],
        );
        other.say(change);
        let expected = if is_noticed { "nil" } else { "[OK]" };
        assert_eq!(one.say("exec"), expected, "{change}");
    }
    one.say("set k 1");
    check(
        &mut one,
        &[("watch k", "OK"), ("unwatch", "OK"), ("multi", "OK")],
    );
    other.say("set k 2");
    assert_eq!(one.say("exec"), "[]");
}

/// Transfers between two accounts by `EXEC`, increments of one number, and readers of both accounts
/// who always see the same sum.
#[test]
fn commands_of_many_are_atomic() {
    const ROUNDS: i64 = 300;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    server.connect().say("mset a 1000 b 1000");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..ROUNDS {
                    client.say("incr n");
                    client.say("multi");
                    client.say("decr a");
                    client.say("incr b");
                    client.say("exec");
                }
            });
        }
        scope.spawn(|| {
            let mut client = server.connect();
            for _ in 0..ROUNDS {
                let shown = client.say("mget a b");
                let sum: i64 = shown
                    .split(|letter: char| !letter.is_ascii_digit() && letter != '-')
                    .filter_map(|number| number.parse::<i64>().ok())
                    .sum();
                assert_eq!(sum, 2000, "{shown}");
            }
        });
    });
    let total = 3 * ROUNDS;
    let shown = server.connect().say("mget a b n");
    assert_eq!(
        shown,
        format!("[\"{}\" \"{}\" \"{total}\"]", 1000 - total, 1000 + total)
    );
}
