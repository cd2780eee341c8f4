//! What commands for lists, sets, sorted sets and hashes reply, as dialogues; each once with all
//! collections in the records of their keys, and once with none.

use crate::support::{Client, Server, Value, check};

const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range";
const NOT_A_FLOAT: &str = "-ERR value is not a valid float";
const SYNTAX: &str = "-ERR syntax error";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_POSITIVE: &str = "-ERR value is out of range, must be positive";

fn with_both_forms(dialogue: impl Fn(&mut Client)) {
    for bound in [0, 1 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start_with(dir.path(), |config| config.packed_bytes_max = bound);
        dialogue(&mut server.connect());
    }
}

fn check_both(lines: &[(&str, &str)]) {
    with_both_forms(|client| check(client, lines));
}

#[test]
fn lists() {
    check_both(&[
        ("rpush l a b c", "3"),
        ("lpush l z", "4"),
        ("lpushx none z", "0"),
        ("rpushx l d", "5"),
        ("lrange l 0 -1", "[\"z\" \"a\" \"b\" \"c\" \"d\"]"),
        ("lrange l -100 1", "[\"z\" \"a\"]"),
        ("lrange l 3 1", "[]"),
        ("lrange l x 1", NOT_AN_INTEGER),
        ("lindex l -1", "\"d\""),
        ("lindex l 5", "nil"),
        ("lset l 1 A", "OK"),
        ("lset l 5 x", "-ERR index out of range"),
        ("lset none 0 x", "-ERR no such key"),
        ("linsert l before b x", "6"),
        ("linsert l after none x", "-1"),
        ("linsert l beside b x", SYNTAX),
        ("lrange l 0 -1", "[\"z\" \"A\" \"x\" \"b\" \"c\" \"d\"]"),
        ("lpos l b", "3"),
        ("lpos l none", "nil"),
        ("lpos l b count 0", "[3]"),
        ("lpos l b rank 2", "nil"),
        ("lpos l b maxlen 2", "nil"),
        ("lpos l b count -1", "-ERR COUNT can't be negative"),
        (
            "lpos l b rank -9223372036854775808",
            "-ERR value is out of range",
        ),
        ("ltrim l 1 -2", "OK"),
        ("lrange l 0 -1", "[\"A\" \"x\" \"b\" \"c\"]"),
        ("lrem l 1 x", "1"),
        ("lpop l", "\"A\""),
        ("rpop l 5", "[\"c\" \"b\"]"),
        ("exists l", "0"),
        ("lpop l", "nil"),
        ("lpop l 1", "nil"),
        ("lpop l -1", NOT_POSITIVE),
        ("lpop l x", NOT_POSITIVE),
        ("rpush a 1 2 3", "3"),
        ("lmove a b right left", "\"3\""),
        ("lmove a a left right", "\"1\""),
        ("lmove a b up left", SYNTAX),
        ("rpoplpush a b", "\"1\""),
        ("lrange a 0 -1", "[\"2\"]"),
        ("lrange b 0 -1", "[\"1\" \"3\"]"),
        ("lmpop 2 none b left count 10", "[\"b\" [\"1\" \"3\"]]"),
        ("lmpop 0 b left", "-ERR numkeys should be greater than 0"),
        (
            "lmpop 1 b left count 0",
            "-ERR count should be greater than 0",
        ),
        ("lmpop 1 b left", "nil"),
        ("set s 1", "OK"),
        ("lpush s 1", WRONG_TYPE),
        ("lmove a s left left", WRONG_TYPE),
        ("llen a", "1"),
        ("type a", "list"),
        ("object encoding a", "\"quicklist\""),
    ]);
}

#[test]
fn sets() {
    check_both(&[
        ("sadd s 1 2 3", "3"),
        ("sadd s 3 4", "1"),
        ("object encoding s", "\"intset\""),
        ("scard s", "4"),
        ("sismember s 4", "1"),
        ("smismember s 4 5", "[1 0]"),
        ("srem s 4 5", "1"),
        ("smove s t 3", "1"),
        ("smove s t 3", "0"),
        ("smembers t", "[\"3\"]"),
        ("sadd t x", "1"),
        ("object encoding t", "\"hashtable\""),
        ("sadd u 1 3", "2"),
        ("sinter s u", "[\"1\"]"),
        ("sinter s none", "[]"),
        ("sintercard 2 s u", "1"),
        ("sintercard 2 s u limit -1", "-ERR LIMIT can't be negative"),
        ("sintercard 0 s", "-ERR numkeys should be greater than 0"),
        (
            "sintercard 9 s",
            "-ERR Number of keys can't be greater than number of args",
        ),
        ("sdiff s u", "[\"2\"]"),
        ("sunionstore all s t u", "4"),
        ("scard all", "4"),
        ("sinterstore all s none", "0"),
        ("exists all", "0"),
        ("set k 1", "OK"),
        ("sunion s k", WRONG_TYPE),
        ("sinter none k", WRONG_TYPE),
        ("sunionstore k s", "2"),
        ("type k", "set"),
        ("spop none", "nil"),
        ("spop none 3", "[]"),
        ("spop s -1", NOT_POSITIVE),
        ("srandmember none", "nil"),
        ("srandmember none 3", "[]"),
        ("srandmember s x", NOT_AN_INTEGER),
        (
            "srandmember s -9223372036854775808",
            "-ERR value is out of range",
        ),
        ("sscan t 0 match x", "[\"0\" [\"x\"]]"),
        ("sscan t x", "-ERR invalid cursor"),
        ("sscan t 0 count 0", SYNTAX),
    ]);
}

#[test]
fn sorted_sets() {
    check_both(&[
        ("zadd z 1 a 2 b 3 c", "3"),
        ("zadd z nx 9 a", "0"),
        ("zadd z xx ch 4 a 5 none", "1"),
        ("zadd z gt ch 1 a 5 b", "1"),
        ("zadd z lt incr -1 c", "\"2\""),
        ("zadd z gt incr -1 c", "nil"),
        (
            "zrange z 0 -1 withscores",
            "[\"c\" \"2\" \"a\" \"4\" \"b\" \"5\"]",
        ),
        (
            "zadd z nx xx 1 a",
            "-ERR XX and NX options at the same time are not compatible",
        ),
        (
            "zadd z gt lt 1 a",
            "-ERR GT, LT, and/or NX options at the same time are not compatible",
        ),
        (
            "zadd z incr 1 a 2 b",
            "-ERR INCR option supports a single increment-element pair",
        ),
        ("zadd z x a", NOT_A_FLOAT),
        ("zadd z nan a", NOT_A_FLOAT),
        ("zadd z 1 a 2", SYNTAX),
        ("zscore z a", "\"4\""),
        ("zmscore z a none", "[\"4\" nil]"),
        ("zincrby z 0.5 a", "\"4.5\""),
        ("zadd i inf a", "1"),
        (
            "zincrby i -inf a",
            "-ERR resulting score is not a number (NaN)",
        ),
        ("zrank z b", "2"),
        ("zrevrank z b withscore", "[0 \"5\"]"),
        ("zrank z none", "nil"),
        ("zcount z (2 +inf", "2"),
        ("zcount z x 1", "-ERR min or max is not a float"),
        (
            "zrangebyscore z -inf (5 withscores limit 1 1",
            "[\"a\" \"4.5\"]",
        ),
        ("zrevrangebyscore z 5 2", "[\"b\" \"a\" \"c\"]"),
        ("zrange z 5 2 byscore rev", "[\"b\" \"a\" \"c\"]"),
        (
            "zrange z 0 1 limit 0 1",
            "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
             BYLEX",
        ),
        ("zadd x 0 a 0 b 0 c 0 d", "4"),
        ("zrangebylex x (a [c", "[\"b\" \"c\"]"),
        ("zrange x + - bylex rev limit 0 2", "[\"d\" \"c\"]"),
        ("zrangebylex x + -", "[]"),
        (
            "zrangebylex x a b",
            "-ERR min or max not valid string range item",
        ),
        ("zlexcount x - (c", "2"),
        ("zremrangebylex x [d +", "1"),
        ("zremrangebyrank x 0 0", "1"),
        ("zremrangebyscore x 0 0", "2"),
        ("exists x", "0"),
        ("zrangestore x z 0 1", "2"),
        ("zpopmin x", "[\"c\" \"2\"]"),
        ("zpopmax x 5", "[\"a\" \"4.5\"]"),
        ("zpopmin x", "[]"),
        ("zpopmin z -1", NOT_POSITIVE),
        ("sadd s a b", "2"),
        ("zunionstore u 2 z s weights 2 1", "3"),
        (
            "zrange u 0 -1 withscores",
            "[\"c\" \"4\" \"a\" \"10\" \"b\" \"11\"]",
        ),
        (
            "zinter 2 z s aggregate min withscores",
            "[\"a\" \"1\" \"b\" \"1\"]",
        ),
        ("zdiff 2 z s", "[\"c\"]"),
        ("zintercard 2 z s limit 1", "1"),
        (
            "zunion 0 z",
            "-ERR at least 1 input key is needed for 'zunion' command",
        ),
        ("zunion 2 z", SYNTAX),
        ("zunion 1 z weights x", "-ERR weight value is not a float"),
        (
            "zmpop 2 none z max count 2",
            "[\"z\" [[\"b\" \"5\"] [\"a\" \"4.5\"]]]",
        ),
        ("zrandmember z 5 withscores", "[\"c\" \"2\"]"),
        ("zscan z 0", "[\"0\" [\"c\" \"2\"]]"),
        ("type z", "zset"),
        ("object encoding z", "\"listpack\""),
        ("config set zset-max-ziplist-entries 0", "OK"),
        ("object encoding z", "\"skiplist\""),
    ]);
}

#[test]
fn hashes() {
    check_both(&[
        ("hset h a 1 b 2", "2"),
        ("hset h a 3", "0"),
        (
            "hset h a",
            "-ERR wrong number of arguments for 'hset' command",
        ),
        ("hget h a", "\"3\""),
        ("hmset h c x", "OK"),
        ("hsetnx h c y", "0"),
        ("hmget h a none c", "[\"3\" nil \"x\"]"),
        ("hlen h", "3"),
        ("hexists h b", "1"),
        ("hstrlen h c", "1"),
        ("hincrby h a 4", "7"),
        ("hincrby h c 1", "-ERR hash value is not an integer"),
        (
            "hincrby h a 9223372036854775807",
            "-ERR increment or decrement would overflow",
        ),
        ("hincrbyfloat h a 0.5", "\"7.5\""),
        ("hincrbyfloat h c 1", "-ERR hash value is not a float"),
        ("hincrbyfloat h a inf", "-ERR value is NaN or Infinity"),
        ("hdel h b c none", "2"),
        ("hgetall h", "[\"a\" \"7.5\"]"),
        ("hrandfield h", "\"a\""),
        (
            "hrandfield h -2 withvalues",
            "[\"a\" \"7.5\" \"a\" \"7.5\"]",
        ),
        ("hrandfield none", "nil"),
        ("hrandfield none 1", "[]"),
        ("hscan h 0 novalues", "[\"0\" [\"a\"]]"),
        ("hgetdel h fields 1 a", "[\"7.5\"]"),
        ("exists h", "0"),
        ("lpush l 1", "1"),
        ("hset l a 1", WRONG_TYPE),
    ]);
}

#[test]
fn in_resp3_collections_are_maps_sets_and_doubles() {
    with_both_forms(|client| {
        client.say("hello 3");
        check(
            client,
            &[
                ("hset h a 1", "1"),
                ("hgetall h", "{\"a\":\"1\",}"),
                ("hrandfield h 1 withvalues", "[[\"a\" \"1\"]]"),
                ("zadd z 1.5 a", "1"),
                ("zscore z a", "1.5"),
                ("zrange z 0 -1 withscores", "[[\"a\" 1.5]]"),
                ("zpopmin z", "[\"a\" 1.5]"),
                ("sadd s a", "1"),
                ("smembers s", "[\"a\"]"),
            ],
        );
    });
}

#[test]
fn fields_expire() {
    with_both_forms(|client| {
        check(
            client,
            &[
                ("hset h a 1 b 2 c 3", "3"),
                ("hexpire h 100 fields 2 a none", "[1 -2]"),
                ("httl h fields 3 a b none", "[100 -1 -2]"),
                ("hexpire h 50 gt fields 1 a", "[0]"),
                ("hexpire h 50 lt fields 1 a", "[1]"),
                ("hexpire h 50 nx fields 2 a b", "[0 1]"),
                ("hpersist h fields 2 a c", "[1 -1]"),
                ("hexpireat h 1 fields 1 b", "[2]"),
                ("hlen h", "2"),
                ("hpexpireat h 99999999999999 fields 1 a", "[1]"),
                ("hpexpiretime h fields 1 a", "[99999999999999]"),
                ("hexpiretime h fields 1 a", "[99999999999]"),
                ("hset h a 5", "0"),
                ("httl h fields 1 a", "[-1]"),
                ("hsetex h fnx ex 100 fields 1 a 6", "0"),
                ("hsetex h fxx ex 100 fields 1 a 6", "1"),
                ("hincrby h a 1", "7"),
                ("httl h fields 1 a", "[100]"),
                ("hgetex h persist fields 1 a", "[\"7\"]"),
                ("httl h fields 1 a", "[-1]"),
                (
                    "hexpire h -1 fields 1 a",
                    "-ERR invalid expire time, must be >= 0",
                ),
                (
                    "hexpire h 1 fields 2 a",
                    "-ERR The `numfields` parameter must match the number of arguments",
                ),
                ("hexpire none 1 fields 1 a", "[-2]"),
                ("debug set-active-expire 0", "OK"),
                ("hpexpire h 1 fields 1 a", "[1]"),
                ("rename h g", "OK"),
            ],
        );
        // A moment that is taken back counts no more.
        client.say("hset g c 3 d 4");
        client.say("hpexpire g 20 fields 2 c d");
        client.say("hset g c 3");
        client.say("hdel g d");
        std::thread::sleep(std::time::Duration::from_millis(25));
        check(
            client,
            &[
                ("hget g a", "nil"),
                ("hlen g", "1"),
                ("hgetall g", "[\"c\" \"3\"]"),
                ("hscan g 0", "[\"0\" [\"c\" \"3\"]]"),
                ("hsetnx g a 1", "1"),
                ("hlen g", "2"),
                ("hpexpire g 1 fields 2 a c", "[1 1]"),
                ("debug set-active-expire 1", "OK"),
            ],
        );
        // The last field takes its key along, without anybody asking.
        while client.say("dbsize") != "0" {
            std::thread::yield_now();
        }
    });
}

#[test]
fn sorting() {
    check_both(&[
        ("rpush l 3 1 2", "3"),
        ("sort l", "[\"1\" \"2\" \"3\"]"),
        ("sort l desc limit 0 2", "[\"3\" \"2\"]"),
        ("mset w1 30 w2 20 w3 10", "OK"),
        ("hset o1 name one", "1"),
        (
            "sort l by w* get # get o*->name",
            "[\"3\" nil \"2\" nil \"1\" \"one\"]",
        ),
        ("sort l by nosort", "[\"3\" \"1\" \"2\"]"),
        ("sort l by w* store to", "3"),
        ("lrange to 0 -1", "[\"3\" \"2\" \"1\"]"),
        ("sort_ro l store to", SYNTAX),
        ("sort none store to", "0"),
        ("exists to", "0"),
        ("rpush l x", "4"),
        (
            "sort l",
            "-ERR One or more scores can't be converted into double",
        ),
        ("sort l alpha", "[\"1\" \"2\" \"3\" \"x\"]"),
        ("sort w1", WRONG_TYPE),
    ]);
}

/// A scan meets what stays, whatever else comes and goes, and whichever form the set has.
#[test]
fn scans_meet_all_that_stays() {
    with_both_forms(|client| {
        for number in 0..500 {
            client.say(&format!("sadd s stays{number} goes{number}"));
        }
        let mut seen = std::collections::BTreeSet::new();
        let (mut cursor, mut step) = (b"0".to_vec(), 0);
        loop {
            let Value::Array(reply) = client.ask(&[&b"sscan"[..], b"s", &cursor]) else {
                panic!("no array");
            };
            let [Value::Bulk(next), Value::Array(members)] = reply.as_slice() else {
                panic!("{reply:?}");
            };
            for member in members {
                seen.insert(format!("{member:?}"));
            }
            client.say(&format!("srem s goes{step} goes{}", 499 - step));
            client.say(&format!("sadd s comes{step}"));
            step += 1;
            cursor = next.clone();
            if cursor == b"0" {
                break;
            }
        }
        for number in 0..500 {
            assert!(seen.contains(&format!("\"stays{number}\"")), "{number}");
        }
    });
}

/// Each member has the same chance, in a set that is so large that one is chosen by its place.
#[test]
fn members_by_chance_are_fair() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    const COUNT: usize = 400;
    let mut request = vec!["sadd".to_owned(), "s".to_owned()];
    request.extend((0..COUNT).map(|number| number.to_string()));
    client.ask(&request);
    let mut counts = vec![0_u32; COUNT];
    for _ in 0..200 {
        let Value::Array(chosen) = client.ask(&["srandmember", "s", "-200"]) else {
            panic!("no array");
        };
        for member in chosen {
            let Value::Bulk(number) = member else {
                panic!("{member:?}");
            };
            let number: usize = String::from_utf8(number).unwrap().parse().unwrap();
            counts[number] += 1;
        }
    }
    // 100 each are expected; the sum of squares is chi-square with 399 degrees of freedom, whose
    // standard deviation is 28. Six of them are never met by chance.
    let square = |count: &u32| (f64::from(*count) - 100.0).powi(2) / 100.0;
    let sum: f64 = counts.iter().map(square).sum();
    assert!(sum < 399.0 + 6.0 * 28.3, "{sum}");
}

#[test]
fn a_dump_is_restored_as_it_was() {
    with_both_forms(|client| {
        check(
            client,
            &[
                ("set string 12345", "OK"),
                ("rpush list a b 1", "3"),
                ("sadd set a 1", "2"),
                ("zadd sorted 1.5 a inf b", "2"),
                ("hset hash f v g w", "2"),
                ("hpexpireat hash 99999999999999 fields 1 f", "[1]"),
            ],
        );
        for (key, read) in [
            ("string", "get copy"),
            ("list", "lrange copy 0 -1"),
            ("set", "sismember copy 1"),
            ("sorted", "zrange copy 0 -1 withscores"),
            ("hash", "hmget copy f g"),
            ("hash", "hpexpiretime copy fields 2 f g"),
        ] {
            let Value::Bulk(dump) = client.ask(&["dump", key]) else {
                panic!("no dump of {key}");
            };
            let request: [&[u8]; 5] = [b"restore", b"copy", b"100000", &dump, b"replace"];
            assert_eq!(
                client.ask(&request),
                Value::Simple("OK".to_owned()),
                "{key}"
            );
            let copied = client.say(read);
            assert_eq!(copied, client.say(&read.replace("copy", key)));
            assert_eq!(client.say("ttl copy"), "100", "{key}");
            let busy = client.ask(&request[..4]);
            assert_eq!(
                format!("{busy:?}"),
                "-BUSYKEY Target key name already exists."
            );
        }
        let digests = client.say("debug digest-value hash copy none");
        let digests: Vec<_> = digests.trim_matches(['[', ']']).split(' ').collect();
        assert_eq!(client.say("persist copy"), "1");
        let persisted = client.say("debug digest-value copy");
        assert_eq!(persisted, format!("[{}]", digests[0]));
        assert_ne!(digests[0], digests[1]);
        assert_eq!(digests[2], format!("\"{}\"", "0".repeat(40)));
        check(
            client,
            &[
                ("dump none", "nil"),
                (
                    "restore none 0 damaged",
                    "-ERR DUMP payload version or checksum are wrong",
                ),
                ("restore none -1 x", "-ERR Invalid TTL value, must be >= 0"),
                ("restore none 0 x sometimes", SYNTAX),
            ],
        );
    });
}

/// What a large collection has had is removed once its key is gone, and the key is free at once.
#[test]
fn elements_of_a_deleted_collection_go() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(dir.path(), |config| config.packed_bytes_max = 0);
    let mut client = server.connect();
    for delete in [
        "del k",
        "set k 1",
        "rename other k",
        "pexpire k 1",
        "flushall",
    ] {
        let mut request = vec!["zadd".to_owned(), "k".to_owned()];
        request.extend((0..2000).flat_map(|number| [number.to_string(), format!("m{number}")]));
        client.say("del k");
        assert_eq!(client.ask(&request), Value::Integer(2000));
        client.say("set other x");
        client.say(delete);
        while client.say("exists k") != "0" && delete.starts_with('p') {
            std::thread::yield_now();
        }
        assert_eq!(client.say("zcard none"), "0");
        // The number is not used again: a new set has none of the old members.
        client.say("del k");
        assert_eq!(client.say("zadd k 1 new"), "1");
        assert_eq!(client.say("zrange k 0 -1"), "[\"new\"]", "{delete}");
    }
    client.say("del k other");
    drop(client);
    server.stop();
    let left = || {
        let db = gabion::Options::default()
            .open(dir.path().join("store"))
            .unwrap();
        ["elements", "garbage"].map(|name| db.keyspace(name).unwrap().iter().count())
    };
    // The background removes it while a server runs.
    let mut pause = std::time::Duration::from_millis(1);
    while left() != [0, 0] {
        let server = Server::start(dir.path());
        std::thread::sleep(pause);
        server.stop();
        pause *= 2;
        assert!(pause.as_secs() < 60);
    }
}

/// Commands that read many elements hand their thread's other tasks over, also inside of `EXEC`.
#[test]
fn many_elements_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    let numbers: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    let pairs = numbers
        .iter()
        .flat_map(|number| [number.clone(), number.clone()]);
    for (words, elements) in [
        (["sadd", "s"], numbers.clone()),
        (["rpush", "l"], numbers.clone()),
        (["hset", "h"], pairs.clone().collect()),
        (["zadd", "z"], pairs.collect()),
    ] {
        let request = words.map(str::to_owned).into_iter().chain(elements);
        let reply = client.ask(&request.collect::<Vec<_>>());
        assert_eq!(reply, Value::Integer(20_000));
    }
    let mut count = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        match client.ask(&words) {
            Value::Array(items) => items.len(),
            reply => panic!("{line}: {reply:?}"),
        }
    };
    for line in [
        "smembers s",
        "lrange l 0 -1",
        "zrange z 0 -1",
        "hkeys h",
        "sunion s none",
    ] {
        assert_eq!(count(line), 20_000, "{line}");
    }
    assert_eq!(count("hgetall h"), 40_000);
    assert_eq!(count("zunion 2 z s"), 20_000);
    client.say("multi");
    client.say("smembers s");
    let Value::Array(replies) = client.ask(&["exec"]) else {
        panic!("no array");
    };
    assert!(matches!(&replies[0], Value::Array(members) if members.len() == 20_000));
    check(
        &mut client,
        &[
            ("zrank z 19999", "19999"),
            ("zrank z 10000", "10000"),
            ("zrange z 15000 15001", "[\"15000\" \"15001\"]"),
            ("zrevrange z 15000 15001", "[\"4999\" \"4998\"]"),
            ("lindex l 12345", "\"12345\""),
            ("linsert l before 19000 x", "20001"),
            ("lindex l 19000", "\"x\""),
            ("lindex l 19001", "\"19000\""),
            ("lrem l 0 x", "1"),
            ("ltrim l 100 -100", "OK"),
            ("llen l", "19801"),
            ("ltrim l 0 9", "OK"),
            ("lrange l 8 9", "[\"108\" \"109\"]"),
            ("copy z y", "1"),
            ("zcard y", "20000"),
            ("zremrangebyrank y 5 -1", "19995"),
            ("zrange y 0 -1", "[\"0\" \"1\" \"2\" \"3\" \"4\"]"),
        ],
    );
}
