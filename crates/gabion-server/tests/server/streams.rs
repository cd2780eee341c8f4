//! Streams and places: dialogues, and random commands for streams compared with a plain map.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::support::{Client, Server, Value, check};

const BAD_ID: &str = "-ERR Invalid stream ID specified as stream command argument";

#[test]
fn entries() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    check(
        &mut server.connect(),
        &[
            ("xadd s 1-1 a 1 b 2", "\"1-1\""),
            ("xadd s 1-* a 2", "\"1-2\""),
            ("xadd s 2 a 3", "\"2-0\""),
            (
                "xadd s 2 a 3",
                "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
            ),
            (
                "xadd s 0-0 a 3",
                "-ERR The ID specified in XADD must be greater than 0-0",
            ),
            ("xadd s x a 3", BAD_ID),
            (
                "xadd s 3 a",
                "-ERR wrong number of arguments for 'xadd' command",
            ),
            ("xadd none nomkstream 3 a 1", "nil"),
            ("xlen s", "3"),
            ("type s", "stream"),
            (
                "xrange s - +",
                "[[\"1-1\" [\"a\" \"1\" \"b\" \"2\"]] [\"1-2\" [\"a\" \"2\"]] \
                 [\"2-0\" [\"a\" \"3\"]]]",
            ),
            ("xrange s (1-1 1", "[[\"1-2\" [\"a\" \"2\"]]]"),
            ("xrevrange s + - count 1", "[[\"2-0\" [\"a\" \"3\"]]]"),
            (
                "xread count 1 streams s none 1-1 0",
                "[[\"s\" [[\"1-2\" [\"a\" \"2\"]]]]]",
            ),
            ("xread streams s $", "nil"),
            ("xread block 1 streams s $", "nil"),
            (
                "xread streams s t 1",
                "-ERR Unbalanced 'xread' list of streams: for each stream key an ID \
                 or '$' must be specified.",
            ),
            ("xdel s 1-1 9-9", "1"),
            ("xadd s maxlen = 2 5 a 4", "\"5-0\""),
            ("xadd s minid 5 6 a 5", "\"6-0\""),
            ("xlen s", "2"),
            ("xtrim s maxlen 1", "1"),
            ("xadd s 6-1 a 5", "\"6-1\""),
            // Whole nodes only: both entries are in one.
            ("xtrim s maxlen ~ 1", "0"),
            ("xtrim s maxlen ~ 0", "2"),
            (
                "xtrim s maxlen 0 limit 1",
                "-ERR syntax error, LIMIT cannot be used without the special ~ option",
            ),
            ("xadd s maxlen 0 7 a 6", "\"7-0\""),
            ("xlen s", "0"),
            ("exists s", "1"),
            ("xsetid s 9", "OK"),
            (
                "xadd s 8 a 1",
                "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
            ),
            ("set k v", "OK"),
            (
                "xadd k * a 1",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
        ],
    );
}

#[test]
fn groups() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    check(
        &mut server.connect(),
        &[
            ("xgroup create s g $ mkstream", "OK"),
            (
                "xgroup create s g $",
                "-BUSYGROUP Consumer Group name already exists",
            ),
            ("xadd s 1 a 1", "\"1-0\""),
            ("xadd s 2 a 2", "\"2-0\""),
            ("xadd s 3 a 3", "\"3-0\""),
            (
                "xreadgroup group g one count 2 streams s >",
                "[[\"s\" [[\"1-0\" [\"a\" \"1\"]] [\"2-0\" [\"a\" \"2\"]]]]]",
            ),
            (
                "xreadgroup group g two streams s >",
                "[[\"s\" [[\"3-0\" [\"a\" \"3\"]]]]]",
            ),
            ("xreadgroup group g two streams s >", "nil"),
            (
                "xreadgroup group g one streams s 1",
                "[[\"s\" [[\"2-0\" [\"a\" \"2\"]]]]]",
            ),
            (
                "xreadgroup group x one streams s >",
                "-NOGROUP No such key 's' or consumer group 'x' in XREADGROUP with GROUP option",
            ),
            (
                "xpending s g",
                "[3 \"1-0\" \"3-0\" [[\"one\" \"2\"] [\"two\" \"1\"]]]",
            ),
            ("xack s g 1 9", "1"),
            ("xclaim s g two 0 2 justid", "[\"2-0\"]"),
            ("xpending s g", "[2 \"2-0\" \"3-0\" [[\"two\" \"2\"]]]"),
            ("xdel s 3", "1"),
            (
                "xautoclaim s g one 0 0",
                "[\"0-0\" [[\"2-0\" [\"a\" \"2\"]]] [\"3-0\"]]",
            ),
            ("xpending s g - + 10 two", "[]"),
            ("xgroup delconsumer s g one", "1"),
            ("xpending s g", "[0 nil nil nil]"),
            ("xgroup createconsumer s g new", "1"),
            ("xgroup createconsumer s g new", "0"),
            ("xgroup setid s g 0", "OK"),
            (
                "xreadgroup group g new noack streams s >",
                "[[\"s\" [[\"1-0\" [\"a\" \"1\"]] [\"2-0\" [\"a\" \"2\"]]]]]",
            ),
            ("xpending s g", "[0 nil nil nil]"),
            (
                "xinfo groups s",
                "[[\"name\" \"g\" \"consumers\" 2 \"pending\" 0 \"last-delivered-id\" \"2-0\" \
                 \"entries-read\" nil \"lag\" nil]]",
            ),
            ("xgroup destroy s g", "1"),
            ("xgroup destroy s g", "0"),
            ("xinfo groups s", "[]"),
        ],
    );
}

#[test]
fn readers_wait_for_entries() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = &mut server.connect();
    check(
        client,
        &[("xadd s 1 a 1", "\"1-0\""), ("xgroup create s g $", "OK")],
    );
    let (mut one, mut other) = (server.connect(), server.connect());
    one.send(&["xread", "block", "0", "streams", "s", "$"]);
    other.send(&[
        "xreadgroup",
        "group",
        "g",
        "c",
        "block",
        "0",
        "streams",
        "s",
        ">",
    ]);
    while !client.say("info clients").contains("blocked_clients:2") {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.say("xadd s 2 a 2"), "\"2-0\"");
    for reader in [&mut one, &mut other] {
        assert_eq!(
            format!("{:?}", reader.read()),
            "[[\"s\" [[\"2-0\" [\"a\" \"2\"]]]]]"
        );
    }
    other.send(&[
        "xreadgroup",
        "group",
        "g",
        "c",
        "block",
        "0",
        "streams",
        "s",
        ">",
    ]);
    while !client.say("info clients").contains("blocked_clients:1") {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.say("del s"), "1");
    assert_eq!(
        format!("{:?}", other.read()),
        "-UNBLOCKED the stream key no longer exists"
    );
}

#[test]
fn places() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    check(
        &mut server.connect(),
        &[
            (
                "geoadd g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania",
                "2",
            ),
            ("geoadd g xx ch 13.361389 38.2 Palermo 1 1 x", "1"),
            ("geoadd g 13.361389 38.115556 Palermo", "0"),
            ("geodist g Palermo Catania km", "\"166.2742\""),
            ("geodist g Palermo none", "nil"),
            (
                "geohash g Palermo Catania",
                "[\"sqc8b49rny0\" \"sqdtr74hyu0\"]",
            ),
            (
                "geosearch g fromlonlat 15 37 byradius 200 km asc",
                "[\"Catania\" \"Palermo\"]",
            ),
            (
                "geosearch g frommember Palermo bybox 10 10 km withdist",
                "[[\"Palermo\" \"0.0000\"]]",
            ),
            (
                "georadius g 15 37 200 km withdist count 1",
                "[[\"Catania\" \"56.4413\"]]",
            ),
            ("georadius g 15 37 200 km storedist d", "2"),
            ("zcard d", "2"),
            ("geosearchstore d g fromlonlat 0 0 byradius 1 m", "0"),
            ("exists d", "0"),
            (
                "geoadd g 181 0 x",
                "-ERR invalid longitude,latitude pair 181.000000,0.000000",
            ),
            (
                "georadius g 0 0 1 parsec",
                "-ERR unsupported unit provided. please use M, KM, FT, MI",
            ),
            (
                "geosearch g fromlonlat 0 0 byradius 1 m any",
                "-ERR the ANY argument requires COUNT argument",
            ),
        ],
    );
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8, u8),
    Delete(u8),
    Trim(u8),
    Range(u8, u8, bool),
    Read(u8),
    Deliver(u8),
    Acknowledge(u8),
    Claim(u8, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..4_u8, any::<u8>()).prop_map(|(by, value)| Step::Add(by, value)),
        1 => (0..40_u8).prop_map(Step::Delete),
        1 => (0..20_u8).prop_map(Step::Trim),
        1 => (0..40_u8, 0..40_u8, any::<bool>()).prop_map(|(a, b, back)| Step::Range(a, b, back)),
        1 => (0..40_u8).prop_map(Step::Read),
        2 => (0..3_u8).prop_map(Step::Deliver),
        1 => (0..40_u8).prop_map(Step::Acknowledge),
        1 => (0..3_u8, 0..40_u8).prop_map(|(to, id)| Step::Claim(to, id)),
    ];
    prop::collection::vec(step, 1..60)
}

/// What a stream should be, with ids of whole milliseconds.
#[derive(Default)]
struct Model {
    entries: BTreeMap<u64, u8>,
    last: u64,
    delivered: u64,
    /// Who has which entry.
    pending: BTreeMap<u64, u8>,
}

fn shown(entries: impl IntoIterator<Item = (u64, u8)>) -> Value {
    let bulk = |text: String| Value::Bulk(text.into_bytes());
    let one = |(id, value): (u64, u8)| {
        let fields = vec![bulk("f".to_owned()), bulk(value.to_string())];
        Value::Array(vec![bulk(format!("{id}-0")), Value::Array(fields)])
    };
    Value::Array(entries.into_iter().map(one).collect())
}

fn of_stream(entries: Vec<(u64, u8)>) -> Value {
    match entries.is_empty() {
        true => Value::Null,
        false => Value::Array(vec![Value::Array(vec![
            Value::Bulk(b"s".to_vec()),
            shown(entries),
        ])]),
    }
}

fn apply(step: &Step, model: &mut Model) -> (String, Value) {
    match step {
        Step::Add(by, value) => {
            model.last += u64::from(*by);
            model.entries.insert(model.last, *value);
            let id = format!("{}-0", model.last);
            (
                format!("xadd s {id} f {value}"),
                Value::Bulk(id.into_bytes()),
            )
        }
        Step::Delete(id) => {
            let removed = model.entries.remove(&u64::from(*id)).is_some();
            (format!("xdel s {id}"), Value::Integer(i64::from(removed)))
        }
        Step::Trim(length) => {
            let mut count = 0;
            while model.entries.len() > usize::from(*length) {
                model.entries.pop_first();
                count += 1;
            }
            (format!("xtrim s maxlen {length}"), Value::Integer(count))
        }
        Step::Range(from, to, is_backward) => {
            let inside = |(id, _): &(&u64, &u8)| (u64::from(*from)..=u64::from(*to)).contains(*id);
            let mut found: Vec<_> = model
                .entries
                .iter()
                .filter(inside)
                .map(|(id, value)| (*id, *value))
                .collect();
            let request = match is_backward {
                true => format!("xrevrange s {to} {from}"),
                false => format!("xrange s {from} {to}"),
            };
            if *is_backward {
                found.reverse();
            }
            (request, shown(found))
        }
        Step::Read(after) => {
            let found = model.entries.range(u64::from(*after) + 1..);
            let found = found.map(|(id, value)| (*id, *value)).collect();
            (format!("xread streams s {after}-0"), of_stream(found))
        }
        Step::Deliver(to) => {
            let found: Vec<_> = model.entries.range(model.delivered + 1..).take(2).collect();
            let found: Vec<_> = found.into_iter().map(|(id, value)| (*id, *value)).collect();
            for (id, _) in &found {
                model.delivered = *id;
                model.pending.insert(*id, *to);
            }
            let request = format!("xreadgroup group g c{to} count 2 streams s >");
            (request, of_stream(found))
        }
        Step::Acknowledge(id) => {
            let removed = model.pending.remove(&u64::from(*id)).is_some();
            (format!("xack s g {id}"), Value::Integer(i64::from(removed)))
        }
        Step::Claim(to, id) => {
            let wide = u64::from(*id);
            let mut claimed = Vec::new();
            if model.pending.contains_key(&wide) {
                match model.entries.contains_key(&wide) {
                    true => {
                        model.pending.insert(wide, *to);
                        claimed.push(Value::Bulk(format!("{id}-0").into_bytes()));
                    }
                    false => {
                        model.pending.remove(&wide);
                    }
                }
            }
            (
                format!("xclaim s g c{to} 0 {id} justid"),
                Value::Array(claimed),
            )
        }
    }
}

fn run(client: &mut Client, steps: &[Step]) {
    client.say("del s");
    client.say("xgroup create s g 0 mkstream");
    let mut model = Model::default();
    for step in steps {
        let (request, expected) = apply(step, &mut model);
        let words: Vec<&str> = request.split(' ').collect();
        assert_eq!(client.ask(&words), expected, "{request}");
    }
    let length = i64::try_from(model.entries.len()).unwrap();
    assert_eq!(client.ask(&["xlen", "s"]), Value::Integer(length));
    let Value::Array(pending) = client.ask(&["xpending", "s", "g", "-", "+", "100"]) else {
        panic!("no array");
    };
    let found: Vec<String> = pending
        .iter()
        .map(|row| match row {
            Value::Array(row) => format!("{:?} {:?}", row[0], row[1]),
            other => panic!("{other:?} is no row"),
        })
        .collect();
    let expected: Vec<String> = model
        .pending
        .iter()
        .map(|(id, owner)| format!("\"{id}-0\" \"c{owner}\""))
        .collect();
    assert_eq!(found, expected);
    let mut counts = [0; 3];
    for owner in model.pending.values() {
        counts[usize::from(*owner)] += 1;
    }
    let Value::Array(consumers) = client.ask(&["xinfo", "consumers", "s", "g"]) else {
        panic!("no array");
    };
    for row in consumers {
        let Value::Array(row) = row else {
            panic!("no row");
        };
        let owner = format!("{:?}", row[1])
            .trim_matches(['"', 'c'])
            .parse::<usize>()
            .unwrap();
        assert_eq!(row[3], Value::Integer(counts[owner]), "consumer {owner}");
    }
}

#[test]
fn random_commands_do_what_a_map_does() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = std::cell::RefCell::new(server.connect());
    proptest!(ProptestConfig::with_cases(100), |(steps in steps())| {
        run(&mut client.borrow_mut(), &steps);
    });
}
