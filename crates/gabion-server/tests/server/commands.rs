//! What commands reply, as dialogues.

use std::time::Duration;

use crate::support::{Server, Value, check};

const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range";
const SYNTAX: &str = "-ERR syntax error";

#[test]
fn strings() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = &mut server.connect();
    check(
        client,
        &[
            ("set k v", "OK"),
            ("get k", "\"v\""),
            ("get none", "nil"),
            ("set k w nx", "nil"),
            ("set k w xx get", "\"v\""),
            ("set none w xx", "nil"),
            ("set k 1 ex 100 px 5", SYNTAX),
            ("set k 1 nx xx", SYNTAX),
            ("set k 1 ex 0", "-ERR invalid expire time in 'set' command"),
            ("set k 1 ex x", NOT_AN_INTEGER),
            ("set k 1 ex 100", "OK"),
            ("ttl k", "100"),
            ("set k 2 keepttl", "OK"),
            ("ttl k", "100"),
            ("set k 2", "OK"),
            ("ttl k", "-1"),
            ("getex k ex 50", "\"2\""),
            ("ttl k", "50"),
            ("getex k persist", "\"2\""),
            ("ttl k", "-1"),
            ("append k 34", "3"),
            ("strlen k", "3"),
            ("getrange k 1 -1", "\"34\""),
            ("setrange k 5 x", "6"),
            ("get k", "\"234\\x00\\x00x\""),
            ("setrange k -1 x", "-ERR offset is out of range"),
            ("getdel k", "\"234\\x00\\x00x\""),
            ("exists k", "0"),
            ("getset k 1", "nil"),
            ("mset a 1 b 2 a 3", "OK"),
            (
                "mset a 1 b",
                "-ERR wrong number of arguments for 'mset' command",
            ),
            ("mget a b c", "[\"3\" \"2\" nil]"),
            ("msetnx c 1 a 1", "0"),
            ("exists c", "0"),
            ("msetnx c 1 d 1", "1"),
            ("dbsize", "5"),
            ("set x ohmytext", "OK"),
            ("set y mynewtext", "OK"),
            ("lcs x y", "\"mytext\""),
            ("lcs x y len", "6"),
            (
                "lcs x y idx withmatchlen minmatchlen 4",
                "[\"matches\" [[[4 7] [5 8] 4]] \"len\" 6]",
            ),
        ],
    );
}

#[test]
fn numbers() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    check(
        &mut server.connect(),
        &[
            ("incr n", "1"),
            ("decrby n 3", "-2"),
            ("incrby n 9223372036854775807", "9223372036854775805"),
            ("incrby n 9", "-ERR increment or decrement would overflow"),
            (
                "decrby n -9223372036854775808",
                "-ERR decrement would overflow",
            ),
            ("incrby n 1.5", NOT_AN_INTEGER),
            ("set f 10.50", "OK"),
            ("incrbyfloat f 0.1", "\"10.6\""),
            ("incrbyfloat f -5", "\"5.6\""),
            ("incrbyfloat f x", "-ERR value is not a valid float"),
            ("incr f", NOT_AN_INTEGER),
            ("expire n 100", "1"),
            ("decrby n 1", "9223372036854775804"),
            ("ttl n", "100"),
        ],
    );
}

#[test]
fn keys() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    check(
        &mut server.connect(),
        &[
            ("mset a 1 b 2 c 3", "OK"),
            ("rename a b", "OK"),
            ("get b", "\"1\""),
            ("dbsize", "2"),
            ("rename a b", "-ERR no such key"),
            ("renamenx b c", "0"),
            ("renamenx b d", "1"),
            ("copy d e", "1"),
            ("copy d e", "0"),
            ("copy c e replace", "1"),
            ("get e", "\"3\""),
            (
                "copy e e",
                "-ERR source and destination objects are the same",
            ),
            ("expire e 100", "1"),
            ("copy e other db 3", "1"),
            ("move e 3", "1"),
            ("keys *", "[\"c\" \"d\"]"),
            ("select 3", "OK"),
            ("keys *", "[\"e\" \"other\"]"),
            ("ttl other", "100"),
            ("swapdb 0 3", "OK"),
            ("keys ?", "[\"c\" \"d\"]"),
            ("del c d x", "2"),
            ("dbsize", "0"),
            ("randomkey", "nil"),
            ("select 0", "OK"),
            ("touch e other x", "2"),
            ("type e", "string"),
            ("type x", "none"),
            ("object encoding e", "\"int\""),
            ("select 16", "-ERR DB index is out of range"),
            ("flushdb", "OK"),
            ("dbsize", "0"),
            ("info keyspace", "\"# Keyspace\\r\\n\""),
        ],
    );
}

#[test]
fn expiry() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = &mut server.connect();
    check(
        client,
        &[
            ("set k v", "OK"),
            ("expire k 100 xx", "0"),
            ("expire k 100 gt", "0"),
            ("expire k 100 nx", "1"),
            ("expire k 50 gt", "0"),
            ("expire k 50 lt", "1"),
            (
                "expire k 50 nx gt",
                "-ERR NX and XX, GT or LT options at the same time are not compatible",
            ),
            (
                "expire k 9223372036854775807",
                "-ERR invalid expire time in 'expire' command",
            ),
            ("pexpireat k 33177117420000", "1"),
            ("expiretime k", "33177117420"),
            ("pexpiretime k", "33177117420000"),
            ("persist k", "1"),
            ("persist k", "0"),
            ("expire k -1", "1"),
            ("exists k", "0"),
            ("ttl k", "-2"),
            ("mset a 1 b 1", "OK"),
            ("pexpire a 1", "1"),
        ],
    );
    // The key is gone at its moment, and is no longer counted soon after.
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(client.say("exists a"), "0");
    while client.say("dbsize") != "1" {
        std::thread::sleep(Duration::from_millis(10));
    }
    let info = client.say("info keyspace");
    assert!(info.contains("db0:keys=1,expires=0"), "{info}");
}

#[test]
fn scans_meet_every_key_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = &mut server.connect();
    for number in 0..1000 {
        client.ask(&["set", &format!("key:{number}"), "v"]);
    }
    for (options, expected) in [
        (&["count", "7"][..], 1000),
        (&["match", "key:1??"], 100),
        (&["type", "string"], 1000),
        (&["type", "list"], 0),
    ] {
        let mut cursor = b"0".to_vec();
        let mut found = Vec::new();
        loop {
            let mut request = vec![b"scan".to_vec(), cursor];
            request.extend(options.iter().map(|option| option.as_bytes().to_vec()));
            let Value::Array(mut reply) = client.ask(&request) else {
                panic!("no array");
            };
            let Some(Value::Array(keys)) = reply.pop() else {
                panic!("no keys");
            };
            found.extend(keys.into_iter().map(|key| format!("{key:?}")));
            let Some(Value::Bulk(next)) = reply.pop() else {
                panic!("no cursor");
            };
            cursor = next;
            if cursor == b"0" {
                break;
            }
        }
        let count = found.len();
        found.sort();
        found.dedup();
        assert_eq!((count, found.len()), (expected, expected), "{options:?}");
    }
    assert_eq!(client.say("scan x"), "-ERR invalid cursor");
    assert_eq!(client.say("scan 0 count 0"), SYNTAX);
    assert!(client.say("randomkey").starts_with("\"key:"));
}
