//! Clients that are told when keys change that they have read.

use crate::support::{Client, Server, check};

fn told(client: &mut Client) -> String {
    format!("{:?}", client.read())
}

/// A client of RESP3 that tracks with some options.
fn follower(server: &Server, options: &str) -> Client {
    let mut client = server.connect();
    client.say("hello 3");
    assert_eq!(client.say(&format!("client tracking on {options}")), "OK");
    client
}

#[test]
fn who_has_read_a_key_is_told_once_of_each_change() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut writer = server.connect();
    let mut reader = follower(&server, "");
    writer.say("mset a 1 b 2 c 3");
    reader.say("mget a b");
    for line in ["set a 2", "set a 3", "set c 3", "del b"] {
        writer.say(line);
    }
    assert_eq!(told(&mut reader), ">[\"invalidate\" [\"a\"]]");
    assert_eq!(told(&mut reader), ">[\"invalidate\" [\"b\"]]");
    assert_eq!(reader.say("get a"), "\"3\"");
    // Its own changes come behind their replies, whole transactions included.
    assert_eq!(reader.say("incr a"), "4");
    assert_eq!(told(&mut reader), ">[\"invalidate\" [\"a\"]]");
    reader.say("get a");
    check(
        &mut reader,
        &[("multi", "OK"), ("incr a", "QUEUED"), ("get c", "QUEUED")],
    );
    assert_eq!(reader.say("exec"), "[5 \"3\"]");
    assert_eq!(told(&mut reader), ">[\"invalidate\" [\"a\"]]");
    // Whatever removes a key.
    reader.say("get c");
    writer.say("pexpire c 1");
    assert_eq!(told(&mut reader), ">[\"invalidate\" [\"c\"]]");
    reader.say("get d");
    writer.say("set d 1 px 1");
    assert_eq!(told(&mut reader), ">[\"invalidate\" [\"d\"]]");
    writer.say("flushdb");
    assert_eq!(told(&mut reader), ">[\"invalidate\" nil]");
    writer.say("swapdb 0 1");
    assert_eq!(told(&mut reader), ">[\"invalidate\" nil]");
    // Nobody tracks any more.
    check(
        &mut reader,
        &[("get a", "nil"), ("client tracking off", "OK")],
    );
    writer.say("set a 1");
    assert_eq!(reader.say("ping"), "PONG");
    let info = writer.say("info");
    for line in [
        "tracking_clients:0",
        "tracking_total_keys:0",
        "tracking_total_items:0",
    ] {
        assert!(info.contains(line), "{line}");
    }
}

#[test]
fn a_key_that_expires_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut writer = server.connect();
    writer.say("set k v px 30");
    writer.say("hset h f v g w");
    let mut reader = follower(&server, "");
    let mut all = follower(&server, "bcast prefix k");
    reader.say("get k");
    assert_eq!(told(&mut reader), ">[\"invalidate\" [\"k\"]]");
    assert_eq!(told(&mut all), ">[\"invalidate\" [\"k\"]]");
    reader.say("hget h g");
    writer.say("hpexpire h 1 fields 1 f");
    assert_eq!(told(&mut reader), ">[\"invalidate\" [\"h\"]]");
}

#[test]
fn options_say_who_is_told_of_what() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut writer = server.connect();
    writer.say("mset a 1 b 2");
    let mut chosen = follower(&server, "optin");
    check(
        &mut chosen,
        &[
            ("get a", "\"1\""),
            ("client caching yes", "OK"),
            ("get b", "\"2\""),
            ("get a", "\"1\""),
        ],
    );
    let mut others = follower(&server, "optout noloop");
    check(
        &mut others,
        &[
            ("client caching no", "OK"),
            ("get a", "\"1\""),
            ("get b", "\"2\""),
            ("set b 3", "OK"),
            ("get b", "\"3\""),
        ],
    );
    let mut prefixes = follower(&server, "bcast prefix a prefix b");
    writer.say("mset a 2 b 4 c 5 a 3");
    assert_eq!(told(&mut chosen), ">[\"invalidate\" [\"b\"]]");
    assert_eq!(told(&mut others), ">[\"invalidate\" [\"b\"]]");
    assert_eq!(told(&mut prefixes), ">[\"invalidate\" [\"a\"]]");
    assert_eq!(told(&mut prefixes), ">[\"invalidate\" [\"b\"]]");
    for client in [&mut chosen, &mut others, &mut prefixes] {
        assert_eq!(client.say("ping"), "PONG");
    }
}

#[test]
fn another_connection_is_told_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let (mut ear, mut reader, mut writer) = (server.connect(), server.connect(), server.connect());
    let id = ear.say("client id");
    // A client of RESP2 that does not listen is told nothing.
    check(
        &mut reader,
        &[
            (&format!("client tracking on redirect {id}"), "OK"),
            ("get a", "nil"),
        ],
    );
    writer.say("set a 1");
    assert_eq!(ear.say("ping"), "PONG");
    ear.say("subscribe __redis__:invalidate");
    reader.say("get a");
    writer.say("set a 2");
    assert_eq!(
        told(&mut ear),
        "[\"message\" \"__redis__:invalidate\" [\"a\"]]"
    );
    writer.say("flushall");
    assert_eq!(told(&mut ear), "[\"message\" \"__redis__:invalidate\" nil]");
    assert_eq!(reader.say("client getredir"), id);
    reader.say("hello 3");
    reader.say("get a");
    ear.send(&["quit"]);
    assert!(ear.is_ended());
    writer.say("set a 3");
    assert_eq!(
        told(&mut reader),
        format!(">[\"tracking-redir-broken\" {id}]")
    );
    assert!(
        reader
            .say("client trackinginfo")
            .contains("broken_redirect")
    );
}

#[test]
fn the_table_of_keys_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut admin = server.connect();
    admin.say("config set tracking-table-max-keys 3");
    let mut reader = follower(&server, "");
    reader.say("mget a b c");
    // The oldest makes room; one that is read again keeps its place.
    reader.send(&["mget", "c", "d"]);
    reader.read();
    assert_eq!(told(&mut reader), ">[\"invalidate\" [\"a\"]]");
    assert!(admin.say("info stats").contains("tracking_total_keys:3"));
    admin.say("config set tracking-table-max-keys 1");
    assert_eq!(told(&mut reader), ">[\"invalidate\" [\"b\"]]");
    assert_eq!(told(&mut reader), ">[\"invalidate\" [\"c\"]]");
    assert!(admin.say("info stats").contains("tracking_total_keys:1"));
    admin.say("config set tracking-table-max-keys 0");
    reader.say("mget e f g h");
    assert!(admin.say("info stats").contains("tracking_total_keys:5"));
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    let switch = "disabling tracking for this client, and then re-enabling it with a different \
                  mode.";
    check(
        &mut client,
        &[
            ("client tracking maybe", "-ERR syntax error"),
            ("client tracking on nothing", "-ERR syntax error"),
            ("client tracking on redirect", "-ERR syntax error"),
            ("client tracking on redirect x", "-ERR Invalid client ID"),
            (
                "client tracking on redirect 999",
                "-ERR The client ID you want redirect to does not exist",
            ),
            (
                "client tracking on prefix a",
                "-ERR PREFIX option requires BCAST mode to be enabled",
            ),
            (
                "client tracking on bcast optin",
                "-ERR OPTIN and OPTOUT are not compatible with BCAST",
            ),
            (
                "client tracking on optin optout",
                "-ERR You can't specify both OPTIN mode and OPTOUT mode",
            ),
            (
                "client caching yes",
                "-ERR CLIENT CACHING can be called only when the client is in tracking mode with \
                 OPTIN or OPTOUT mode enabled",
            ),
            ("client getredir", "-1"),
            ("client tracking on optin", "OK"),
            (
                "client caching no",
                "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ),
            ("client caching maybe", "-ERR syntax error"),
            (
                "client tracking on optout",
                &format!("-ERR You can't switch OPTIN/OPTOUT mode before {switch}"),
            ),
            (
                "client tracking on bcast",
                &format!("-ERR You can't switch BCAST mode on/off before {switch}"),
            ),
            ("client getredir", "0"),
            ("reset", "RESET"),
            ("client getredir", "-1"),
            (
                "client tracking on bcast prefix ab prefix a",
                "-ERR Prefix 'ab' overlaps with an existing prefix 'a'. Prefixes for a single \
                 client must not overlap.",
            ),
            ("client getredir", "-1"),
        ],
    );
}
