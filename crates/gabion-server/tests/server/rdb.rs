//! What Redis has written is here, and what was written here is there: a real redis-server makes
//! the files, and every key is compared through both servers. Without one this is left out aloud.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gabion::Durability;
use gabion_server::{Config, Loaded, check_rdb, load_rdb};

use crate::support::{Client, Server, Value};

/// A redis-server of its own process. It ends when it is dropped.
struct Redis {
    child: Child,
    address: SocketAddr,
}

impl Redis {
    /// One that keeps its file in `dir`; `None` where there is no such program.
    fn start(dir: &Path) -> Option<Redis> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let address = port.unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--save", "", "--dir"]).arg(dir);
        command.args(["--port", &address.port().to_string()]);
        // Small forms of all types, and large ones.
        for (name, value) in [
            ("list-max-listpack-size", "-2"),
            ("hash-max-listpack-entries", "40"),
            ("zset-max-listpack-entries", "40"),
            ("stream-node-max-entries", "7"),
        ] {
            command.args([&format!("--{name}"), value]);
        }
        let spawned = command.stdout(Stdio::null()).spawn();
        let Ok(child) = spawned else {
            eprintln!("left out: there is no redis-server here");
            return None;
        };
        let mut redis = Redis { child, address };
        while std::net::TcpStream::connect(address).is_err() {
            let ended = redis.child.try_wait().unwrap();
            assert!(ended.is_none(), "redis-server does not start: {ended:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(redis)
    }

    fn connect(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends lines of words, none of which may be answered with an error.
fn all(client: &mut Client, lines: &[&str]) {
    for line in lines {
        let said = client.say(line);
        assert!(!said.starts_with('-'), "{line}: {said}");
    }
}

/// Gives keys of all types and forms to a server, and returns how many.
fn fill(client: &mut Client) -> usize {
    let mut keys = 0;
    let one = |client: &mut Client, words: &[&[u8]]| {
        let said = format!("{:?}", client.ask(words));
        assert!(
            !said.starts_with('-'),
            "{}: {said}",
            words[0].escape_ascii()
        );
    };
    let text = |number: usize| format!("a value of some length, the {number}th of all");
    for (name, count) in [("one", 1), ("few", 30), ("many", 300), ("most", 5000)] {
        for number in 0..count {
            let member = match number % 3 {
                0 => format!("{}", number * 977),
                1 => format!("member {number}"),
                _ => text(number),
            };
            let score = match number % 4 {
                0 => "-inf".to_owned(),
                1 => format!("{number}"),
                2 => format!("{number}.125"),
                _ => "1e300".to_owned(),
            };
            let (member, score) = (member.as_bytes(), score.as_bytes());
            let of = |kind: &str| format!("{kind} {name}").into_bytes();
            one(client, &[b"rpush", &of("list"), member]);
            one(client, &[b"sadd", &of("set"), member]);
            one(client, &[b"zadd", &of("zset"), score, member]);
            one(client, &[b"hset", &of("hash"), member, score]);
            let digits = number.to_string();
            one(client, &[b"sadd", &of("intset"), digits.as_bytes()]);
        }
        keys += 5;
    }
    // Lengths at which packed forms change theirs, and bytes that are no text.
    for length in [0, 1, 63, 64, 4095, 4096, 16_377, 16_378, 16_379, 70_000] {
        let value: Vec<u8> = (0..length)
            .map(|at: u32| at.to_le_bytes()[0] ^ 0x5a)
            .collect();
        one(
            client,
            &[b"set", format!("bytes {length}").as_bytes(), &value],
        );
        one(
            client,
            &[
                b"set",
                format!("xs {length}").as_bytes(),
                &vec![b'x'; value.len()],
            ],
        );
        one(client, &[b"rpush", b"lengths", &value]);
        one(client, &[b"hset", b"a hash of lengths", &value, b"x"]);
        keys += 2;
    }
    keys += 2;
    for number in [
        "0",
        "-1",
        "127",
        "128",
        "-129",
        "32767",
        "70000",
        "-70000",
        "2147483647",
        "2147483648",
        "-9223372036854775808",
        "9223372036854775807",
        "007",
    ] {
        one(
            client,
            &[
                b"set",
                format!("number {number}").as_bytes(),
                number.as_bytes(),
            ],
        );
        one(client, &[b"rpush", b"numbers", number.as_bytes()]);
        one(client, &[b"sadd", b"set of numbers", number.as_bytes()]);
        keys += 1;
    }
    keys += 2;
    one(
        client,
        &[b"set", b"expires", b"1", b"pxat", b"9999999999999"],
    );
    one(client, &[b"pexpireat", b"hash one", b"8888888888888"]);
    one(client, &[b"set", b"\x00\xff\r\n", b"a key that is no text"]);
    one(client, &[b"pfadd", b"hll", b"a", b"b", b"c"]);
    one(client, &[b"setbit", b"bits", b"100", b"1"]);
    one(
        client,
        &[b"geoadd", b"geo", b"13.361389", b"38.115556", b"Palermo"],
    );
    keys += 5;
    streams(client);
    keys + 4
}

/// Streams with groups whose consumers have taken some entries, acknowledged some, and claimed
/// others, and with entries that were deleted.
fn streams(client: &mut Client) {
    for number in 0..60 {
        let id = format!("{}-{}", 100 + number / 7, number);
        let fields = match number % 3 {
            0 => "a 1 b 2",
            1 => "a 1 b 70000",
            _ => "other field",
        };
        all(client, &[&format!("xadd stream {id} {fields}")]);
    }
    all(
        client,
        &[
            "xadd stream * now 1",
            "xdel stream 100-3 103-21",
            "xtrim stream maxlen 50",
            "xgroup create stream readers 0",
            "xgroup create stream later $",
            "xgroup create stream counted 104-30 entriesread 31",
            "xgroup createconsumer stream readers idle",
            "xreadgroup group readers one count 7 streams stream >",
            "xreadgroup group readers two count 9 streams stream >",
            "xreadgroup group counted one count 1 streams stream >",
            "xack stream readers 102-17",
            "xclaim stream readers two 0 102-16",
            "xreadgroup group readers one streams stream 0",
            // The deleted entry still waits for its consumer.
            "xdel stream 102-18",
            "xadd emptied 5-5 a 1",
            "xdel emptied 5-5",
            "xgroup create groups-only g $ mkstream",
            "xadd plain 1-1 a 1",
        ],
    );
}

/// What a server has of a key, in words that do not depend on how it keeps it.
fn whole(client: &mut Client, key: &[u8]) -> String {
    let items = |value: Value| match value {
        Value::Array(items) => items,
        other => panic!("{other:?}"),
    };
    let kind = client.ask(&[b"type", key]);
    let sorted = |mut parts: Vec<String>| {
        parts.sort();
        parts.join("\n")
    };
    let value = match format!("{kind:?}").as_str() {
        "string" => format!("{:?}", client.ask(&[b"get", key])),
        "list" => format!("{:?}", client.ask(&[&b"lrange"[..], key, b"0", b"-1"])),
        "set" => {
            let members = items(client.ask(&[b"smembers", key]));
            sorted(members.iter().map(|member| format!("{member:?}")).collect())
        }
        "zset" => {
            let words: [&[u8]; 5] = [b"zrange", key, b"0", b"-1", b"withscores"];
            format!("{:?}", client.ask(&words))
        }
        "hash" => {
            let fields = items(client.ask(&[b"hgetall", key]));
            let pairs = fields.chunks(2).map(|pair| format!("{pair:?}"));
            sorted(pairs.collect())
        }
        "stream" => {
            let words: [&[u8]; 5] = [b"xinfo", b"stream", key, b"full", b"count"];
            let words = [&words[..], &[&b"0"[..]]].concat();
            let all = items(client.ask(&words));
            // All but how Redis lays it out in memory.
            let pairs = all.chunks(2).filter(|pair| {
                let name = format!("{:?}", pair[0]);
                !name.contains("radix")
            });
            pairs.map(|pair| format!("{pair:?}\n")).collect()
        }
        other => panic!("a key of type {other}"),
    };
    let moment = client.ask(&[b"pexpiretime", key]);
    format!("{kind:?} {moment:?} {value}")
}

fn names(client: &mut Client) -> Vec<Vec<u8>> {
    let Value::Array(keys) = client.ask(&["keys", "*"]) else {
        panic!("keys answers a row");
    };
    let names = keys.into_iter().map(|key| match key {
        Value::Bulk(name) => name,
        other => panic!("{other:?}"),
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// Compares all keys of a database.
fn compare(one: &mut Client, other: &mut Client) -> usize {
    let keys = names(one);
    assert_eq!(keys.len(), names(other).len());
    for key in &keys {
        let (ours, theirs) = (whole(one, key), whole(other, key));
        assert!(ours == theirs, "{}:\n{ours}\n{theirs}", key.escape_ascii());
    }
    keys.len()
}

fn load(dir: &Path) -> Loaded {
    let file = || std::fs::File::open(dir.join("dump.rdb")).unwrap();
    let config = Config::new(dir.join("store"));
    let checked = check_rdb(&config, file(), &mut |_| ()).unwrap();
    let loaded = load_rdb(&config, Durability::Buffered, file(), &mut |_| ()).unwrap();
    assert_eq!(checked, loaded);
    loaded
}

const PROGRAM: &str = "#!lua name=lib\nredis.register_function('twice', function(keys, args) \
                       return args[1] * 2 end)";

#[test]
fn every_key_of_a_file_of_redis_is_the_same_here() {
    let dir = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let mut theirs = redis.connect();
    let count = fill(&mut theirs);
    theirs.ask(&["function", "load", PROGRAM]);
    all(&mut theirs, &["select 9", "set ninth 1", "select 0"]);
    for compression in ["yes", "no"] {
        all(
            &mut theirs,
            &[&format!("config set rdbcompression {compression}"), "save"],
        );
        let loaded = load(dir.path());
        let (keys, libraries) = (loaded.keys, loaded.libraries);
        assert_eq!((keys, libraries, loaded.left_out), (count as u64 + 1, 1, 0));
        let server = Server::start(dir.path());
        let mut ours = server.connect();
        assert_eq!(compare(&mut ours, &mut theirs), count);
        all(&mut ours, &["select 9"]);
        assert_eq!(ours.say("get ninth"), "\"1\"");
        assert_eq!(ours.say("fcall twice 0 21"), "42");
        assert_eq!(ours.say("dbsize"), "1");
        server.stop();
    }
}

/// Restores all keys of one server at the other one.
fn hand_over(from: &mut Client, to: &mut Client) {
    for key in names(from) {
        let Value::Bulk(payload) = from.ask(&[b"dump", &key[..]]) else {
            panic!("no payload of {}", key.escape_ascii());
        };
        let moment = match from.ask(&[b"pexpiretime", &key[..]]) {
            Value::Integer(moment) => moment.max(0).to_string(),
            other => panic!("{other:?}"),
        };
        let moment = moment.as_bytes();
        let words: [&[u8]; 6] = [b"restore", &key, moment, &payload, b"replace", b"absttl"];
        let said = to.ask(&words);
        assert_eq!(format!("{said:?}"), "OK", "{}", key.escape_ascii());
    }
}

#[test]
fn what_one_server_dumps_the_other_restores() {
    let dir = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let server = Server::start(dir.path());
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    let count = fill(&mut theirs);
    hand_over(&mut theirs, &mut ours);
    assert_eq!(compare(&mut ours, &mut theirs), count);
    all(&mut theirs, &["flushall"]);
    hand_over(&mut ours, &mut theirs);
    assert_eq!(compare(&mut ours, &mut theirs), count);
    // A Redis that runs hands its keys over by itself; what is left of their time, not the moment.
    all(&mut ours, &["flushall"]);
    for key in ["expires", "hash one"] {
        assert_eq!(format!("{:?}", theirs.ask(&["persist", key])), "1");
    }
    let port = server.port().to_string();
    let mut words: Vec<&[u8]> = vec![b"migrate", b"127.0.0.1", port.as_bytes()];
    words.extend([&b""[..], b"0", b"10000", b"copy", b"keys"]);
    let keys = names(&mut theirs);
    words.extend(keys.iter().map(Vec::as_slice));
    assert_eq!(format!("{:?}", theirs.ask(&words)), "OK");
    assert_eq!(compare(&mut ours, &mut theirs), count);
    // Streams that were restored go on as streams.
    for client in [&mut ours, &mut theirs] {
        all(
            client,
            &[
                "xadd stream 9999999999999-1 a 1",
                "xreadgroup group readers one count 3 streams stream >",
                "xack stream readers 102-16",
            ],
        );
    }
    let waiting = |client: &mut Client| client.say("xpending stream readers - + 2 two");
    let count = |said: String| said.matches("two").count();
    assert_eq!(count(waiting(&mut ours)), count(waiting(&mut theirs)));
}
