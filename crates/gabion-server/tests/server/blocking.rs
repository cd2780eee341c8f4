//! Clients that wait for keys.

use crate::support::{Client, Server, check};

/// Waits until so many clients wait.
fn wait_for(client: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}\\r\\n");
    while !client.say("info clients").contains(&line) {
        std::thread::yield_now();
    }
}

fn send(client: &mut Client, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    client.send(&words);
}

fn reply(client: &mut Client) -> String {
    format!("{:?}", client.read())
}

#[test]
fn who_pushes_serves_who_waits_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut pusher = server.connect();
    for (wait, push, served) in [
        ("blpop k 0", "rpush k a b", "[\"k\" \"a\"]"),
        ("brpop none k 0", "rpush k a b", "[\"k\" \"b\"]"),
        ("blmove k to left right 0", "rpush k a", "\"a\""),
        ("brpoplpush k to 0", "rpush k a", "\"a\""),
        (
            "blmpop 0 1 k left count 2",
            "rpush k a b c",
            "[\"k\" [\"a\" \"b\"]]",
        ),
        ("bzpopmin k 0", "zadd k 1 a 2 b", "[\"k\" \"a\" \"1\"]"),
        ("bzpopmax k 0", "zadd k 1 a 2 b", "[\"k\" \"b\" \"2\"]"),
        ("bzmpop 0 1 k min", "zadd k 1 a", "[\"k\" [[\"a\" \"1\"]]]"),
    ] {
        pusher.say("flushall");
        let mut waiter = server.connect();
        send(&mut waiter, wait);
        wait_for(&mut pusher, 1);
        pusher.say(push);
        // It was served before the pusher's reply.
        assert!(
            pusher.say("info clients").contains("blocked_clients:0"),
            "{wait}"
        );
        assert_eq!(reply(&mut waiter), served, "{wait}");
        assert_eq!(waiter.say("ping"), "PONG");
    }
    pusher.say("flushall");
    let mut waiters: Vec<Client> = Vec::new();
    for count in 1..=3 {
        let mut waiter = server.connect();
        send(&mut waiter, "blpop k 0");
        wait_for(&mut pusher, count);
        waiters.push(waiter);
    }
    assert_eq!(pusher.say("rpush k 1 2"), "2");
    assert_eq!(reply(&mut waiters[0]), "[\"k\" \"1\"]");
    assert_eq!(reply(&mut waiters[1]), "[\"k\" \"2\"]");
    wait_for(&mut pusher, 1);
    // What one of them moves on is served, too.
    send(&mut waiters[0], "blmove other k left left 0");
    wait_for(&mut pusher, 2);
    pusher.say("rpush other x");
    assert_eq!(reply(&mut waiters[0]), "\"x\"");
    assert_eq!(reply(&mut waiters[2]), "[\"k\" \"x\"]");
    assert_eq!(pusher.say("dbsize"), "0");
}

#[test]
fn a_wait_ends_by_time_or_by_another_client_or_with_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut other = server.connect();
    let mut waiter = server.connect();
    check(
        &mut waiter,
        &[
            ("blpop k 0.01", "nil"),
            ("blmove k k left left 0.01", "nil"),
            ("blpop k -1", "-ERR timeout is negative"),
            ("blpop k x", "-ERR timeout is not a float or out of range"),
            ("blpop k 1e300", "-ERR timeout is out of range"),
            ("multi", "OK"),
            ("blpop k 0", "QUEUED"),
            ("exec", "[nil]"),
        ],
    );
    let id = waiter.say("client id");
    for (reason, said) in [
        ("", "nil"),
        (" timeout", "nil"),
        (" error", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        send(&mut waiter, "blpop k 0");
        wait_for(&mut other, 1);
        assert_eq!(other.say(&format!("client unblock {id}{reason}")), "1");
        assert_eq!(reply(&mut waiter), said);
    }
    assert_eq!(other.say(&format!("client unblock {id}")), "0");
    // A request that comes meanwhile runs afterwards.
    waiter.send_raw(b"blpop k 0\r\nping\r\n");
    wait_for(&mut other, 1);
    other.say("rpush k a");
    assert_eq!(reply(&mut waiter), "[\"k\" \"a\"]");
    assert_eq!(reply(&mut waiter), "PONG");
    send(&mut waiter, "blpop k 0");
    wait_for(&mut other, 1);
    drop(waiter);
    wait_for(&mut other, 0);
    assert_eq!(other.say("rpush k a"), "1");
    assert_eq!(other.say("llen k"), "1");
}

#[test]
fn a_key_of_another_type_or_one_that_goes_again_leaves_a_client_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let (mut waiter, mut other) = (server.connect(), server.connect());
    send(&mut waiter, "blpop k 0");
    wait_for(&mut other, 1);
    check(
        &mut other,
        &[
            ("set k 1", "OK"),
            ("del k", "1"),
            ("multi", "OK"),
            ("rpush k a", "QUEUED"),
            ("del k", "QUEUED"),
            ("exec", "[1 1]"),
        ],
    );
    wait_for(&mut other, 1);
    other.say("rpush elsewhere b");
    assert_eq!(other.say("rename elsewhere k"), "OK");
    assert_eq!(reply(&mut waiter), "[\"k\" \"b\"]");
    send(&mut waiter, "blpop k 0");
    wait_for(&mut other, 1);
    check(
        &mut other,
        &[("select 9", "OK"), ("rpush k c", "1"), ("swapdb 0 9", "OK")],
    );
    assert_eq!(reply(&mut waiter), "[\"k\" \"c\"]");
    // What a move goes to matters only once there is something.
    send(&mut waiter, "brpoplpush k s 0");
    wait_for(&mut other, 1);
    check(
        &mut other,
        &[
            ("select 0", "OK"),
            ("set s 1", "OK"),
            ("rpush k d", "1"),
            ("lrange k 0 -1", "[\"d\"]"),
        ],
    );
    assert!(reply(&mut waiter).starts_with("-WRONGTYPE"));
}
