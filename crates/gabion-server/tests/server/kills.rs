//! Kills by signal 9 under load: what was acknowledged is there afterwards, whatever `appendfsync`
//! is, and what is there besides is a beginning of what was sent, in whole commands.
//!
//! Each of some clients sends pipelines of random commands for keys of its own, and keeps a model
//! of them. After a kill the keys must be what the model is after some number of its commands:
//! those that were acknowledged at least, those that were sent at most. So `EXEC` and scripts,
//! which are commands of the model, are there as a whole or not at all.
//!
//! `GABION_SERVER_KILL_ROUNDS` sets the number of kills; 6 unless it is set. A kill leaves what the
//! system has in memory, so this shows nothing about power loss.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::process::{Numbers, Process, number_of, serve_if_asked};
use crate::support::{Client, Value, request};

const TEST: &str = "kills::what_was_acknowledged_survives_kills";

/// Clients that write at a time.
const CLIENTS: usize = 4;

/// The longest pipeline.
const PIPELINE_MAX: usize = 16;

/// Entries that a stream keeps.
const ENTRIES_MAX: usize = 20;

/// Writes to two keys by a script.
const PAIR: &str = "redis.call('SET', KEYS[1], ARGV[1]) \
                    return redis.call('HSET', KEYS[2], 'of', ARGV[1])";

/// A command.
#[derive(Clone, Debug)]
enum Step {
    Set(usize, usize, usize),
    Add(usize),
    Push(usize, bool),
    Pop(bool),
    Put(usize, usize),
    Score(usize, usize),
    Join(usize),
    Leave(usize),
    Entry(usize),
    Forget,
    Exec(usize),
    Script(usize),
}

/// What a client's keys hold.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    strings: BTreeMap<usize, String>,
    sum: usize,
    list: VecDeque<String>,
    hash: BTreeMap<String, String>,
    scores: BTreeMap<String, usize>,
    set: BTreeSet<String>,
    entries: VecDeque<String>,
}

/// A value that shows its number, of about so many bytes.
fn value(number: usize, length: usize) -> String {
    format!("{number}{}", "-".repeat(length))
}

impl Step {
    fn random(numbers: &mut Numbers) -> Step {
        let value = numbers.below(1_000_000);
        let (key, few) = (numbers.below(4), numbers.below(30));
        match numbers.below(12) {
            // Some have kilobytes, so that the log and the MemTables grow.
            0 => Step::Set(key, value, *numbers.one_of(&[0, 10, 300, 8_000])),
            1 => Step::Add(few),
            2 => Step::Push(value, few % 2 == 0),
            3 => Step::Pop(few % 2 == 0),
            4 => Step::Put(few, value),
            5 => Step::Score(few, value),
            6 => Step::Join(few),
            7 => Step::Leave(few),
            8 => Step::Entry(value),
            9 if few == 0 => Step::Forget,
            9 | 10 => Step::Exec(value),
            _ => Step::Script(value),
        }
    }

    /// The requests of the step for the keys of a client.
    fn requests(&self, client: usize) -> Vec<Vec<String>> {
        let key = |name: &str| format!("{client}:{name}");
        let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        match *self {
            Step::Set(at, number, length) => vec![vec![
                "SET".to_owned(),
                key(&format!("string{at}")),
                value(number, length),
            ]],
            Step::Add(by) => vec![words(format!("INCRBY {} {by}", key("sum")))],
            Step::Push(number, true) => vec![words(format!("LPUSH {} {number}", key("list")))],
            Step::Push(number, false) => vec![words(format!("RPUSH {} {number}", key("list")))],
            Step::Pop(true) => vec![words(format!("LPOP {}", key("list")))],
            Step::Pop(false) => vec![words(format!("RPOP {}", key("list")))],
            Step::Put(field, number) => {
                vec![words(format!("HSET {} f{field} {number}", key("hash")))]
            }
            Step::Score(member, score) => {
                vec![words(format!("ZADD {} {score} m{member}", key("scores")))]
            }
            Step::Join(member) => vec![words(format!("SADD {} m{member}", key("set")))],
            Step::Leave(member) => vec![words(format!("SREM {} m{member}", key("set")))],
            Step::Entry(number) => vec![words(format!(
                "XADD {} MAXLEN {ENTRIES_MAX} * n {number}",
                key("entries")
            ))],
            Step::Forget => vec![words(format!("DEL {} {}", key("list"), key("hash")))],
            Step::Exec(number) => vec![
                words("MULTI".to_owned()),
                words(format!("SET {} {number}", key("string0"))),
                words(format!("HSET {} of {number}", key("hash"))),
                words(format!("INCRBY {} 1", key("sum"))),
                words("EXEC".to_owned()),
            ],
            Step::Script(number) => {
                let mut request = words("EVAL".to_owned());
                request.push(PAIR.to_owned());
                request.extend(words(format!(
                    "2 {} {} {number}",
                    key("string1"),
                    key("hash")
                )));
                vec![request]
            }
        }
    }

    fn apply(&self, model: &mut Model) {
        match *self {
            Step::Set(at, number, length) => {
                model.strings.insert(at, value(number, length));
            }
            Step::Add(by) => model.sum += by,
            Step::Push(number, true) => model.list.push_front(number.to_string()),
            Step::Push(number, false) => model.list.push_back(number.to_string()),
            Step::Pop(true) => drop(model.list.pop_front()),
            Step::Pop(false) => drop(model.list.pop_back()),
            Step::Put(field, number) => {
                model.hash.insert(format!("f{field}"), number.to_string());
            }
            Step::Score(member, score) => {
                model.scores.insert(format!("m{member}"), score);
            }
            Step::Join(member) => {
                model.set.insert(format!("m{member}"));
            }
            Step::Leave(member) => {
                model.set.remove(&format!("m{member}"));
            }
            Step::Entry(number) => {
                model.entries.push_back(number.to_string());
                if model.entries.len() > ENTRIES_MAX {
                    model.entries.pop_front();
                }
            }
            Step::Forget => {
                model.list.clear();
                model.hash.clear();
            }
            Step::Exec(number) => {
                model.strings.insert(0, number.to_string());
                model.hash.insert("of".to_owned(), number.to_string());
                model.sum += 1;
            }
            Step::Script(number) => {
                model.strings.insert(1, number.to_string());
                model.hash.insert("of".to_owned(), number.to_string());
            }
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("{other:?} is no bulk"),
    }
}

fn texts(value: Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        other => panic!("{other:?} is no array"),
    }
}

/// What the keys of a client hold.
fn found(connection: &mut Client, client: usize) -> Model {
    let key = |name: &str| format!("{client}:{name}");
    let strings = (0..4).filter_map(|at| {
        let value = connection.ask(&["GET", &key(&format!("string{at}"))]);
        (value != Value::Null).then(|| (at, text(&value)))
    });
    let strings = strings.collect();
    let sum = match connection.ask(&["GET", &key("sum")]) {
        Value::Null => 0,
        sum => text(&sum).parse().unwrap(),
    };
    let list = texts(connection.ask(&["LRANGE", &key("list"), "0", "-1"]));
    let hash = texts(connection.ask(&["HGETALL", &key("hash")]));
    let scores = texts(connection.ask(&["ZRANGE", &key("scores"), "0", "-1", "WITHSCORES"]));
    let set = texts(connection.ask(&["SMEMBERS", &key("set")]));
    let Value::Array(entries) = connection.ask(&["XRANGE", &key("entries"), "-", "+"]) else {
        panic!("no array");
    };
    let entries = entries.into_iter().map(|entry| match entry {
        Value::Array(mut parts) => texts(parts.remove(1)).remove(1),
        other => panic!("{other:?} is no entry"),
    });
    let pairs = |all: Vec<String>| -> Vec<(String, String)> {
        all.chunks(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect()
    };
    Model {
        strings,
        sum,
        list: list.into(),
        hash: pairs(hash).into_iter().collect(),
        scores: pairs(scores)
            .into_iter()
            .map(|(member, score)| (member, score.parse().unwrap()))
            .collect(),
        set: set.into_iter().collect(),
        entries: entries.collect(),
    }
}

/// What a client has sent since the model, and how much of it was acknowledged.
struct Sent {
    steps: Vec<Step>,
    acknowledged: usize,
}

/// Sends pipelines until the server dies.
fn write_until_killed(
    mut connection: Client,
    client: usize,
    numbers: &mut Numbers,
    acknowledged: &AtomicUsize,
) -> Sent {
    let mut sent = Sent {
        steps: Vec::new(),
        acknowledged: 0,
    };
    loop {
        let length = 1 + numbers.below(PIPELINE_MAX);
        let steps: Vec<Step> = (0..length).map(|_| Step::random(numbers)).collect();
        sent.steps.extend(steps.iter().cloned());
        if send(
            &mut connection,
            client,
            &steps,
            &mut sent.acknowledged,
            acknowledged,
        )
        .is_err()
        {
            return sent;
        }
    }
}

/// Sends steps in one pipeline, and counts those that are acknowledged.
fn send(
    connection: &mut Client,
    client: usize,
    steps: &[Step],
    own: &mut usize,
    all: &AtomicUsize,
) -> io::Result<()> {
    let requests = |step: &Step| step.requests(client);
    let bytes: Vec<u8> = steps
        .iter()
        .flat_map(requests)
        .flat_map(|words| request(&words))
        .collect();
    connection.try_send_raw(&bytes)?;
    for step in steps {
        for words in requests(step) {
            let reply = connection.try_read()?;
            assert!(!matches!(reply, Value::Error(_)), "{words:?}: {reply:?}");
        }
        *own += 1;
        // ORDER: Relaxed; the killer waits for a number of them.
        all.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Brings a model to what was found after a kill, which must be one of the states that it may have.
fn advance(model: &mut Model, sent: &Sent, found: &Model, place: &str) {
    for step in &sent.steps[..sent.acknowledged] {
        step.apply(model);
    }
    let acknowledged = model.clone();
    for step in &sent.steps[sent.acknowledged..] {
        if model == found {
            return;
        }
        step.apply(model);
    }
    assert!(
        model == found,
        "{place}: {found:#?} is no state after {acknowledged:#?} and some of {:#?}",
        &sent.steps[sent.acknowledged..]
    );
}

#[test]
fn what_was_acknowledged_survives_kills() {
    serve_if_asked();
    let dir = tempfile::tempdir().unwrap();
    let mut models = vec![Model::default(); CLIENTS];
    for round in 0..number_of("GABION_SERVER_KILL_ROUNDS", 6) {
        let fsync = ["always", "everysec", "no"][usize::try_from(round % 3).unwrap()];
        let mut seeds = Numbers(round);
        let most = 1 + seeds.below(3_000);
        let mut server = Process::start(TEST, dir.path(), fsync, "");
        let acknowledged = AtomicUsize::new(0);
        let all_sent: Vec<Sent> = std::thread::scope(|scope| {
            let acknowledged = &acknowledged;
            let writers: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let connection = server.connect();
                    let mut numbers = Numbers((round << 32) | client as u64);
                    scope.spawn(move || {
                        write_until_killed(connection, client, &mut numbers, acknowledged)
                    })
                })
                .collect();
            // ORDER: Relaxed; a number to wait for.
            while acknowledged.load(Ordering::Relaxed) < most
                && !writers.iter().any(|writer| writer.is_finished())
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.kill();
            let ended = writers.into_iter().map(|writer| writer.join().unwrap());
            ended.collect()
        });
        let server = Process::start(TEST, dir.path(), fsync, "");
        let mut connection = server.connect();
        for (client, (model, sent)) in models.iter_mut().zip(&all_sent).enumerate() {
            let place = format!("round {round} of {fsync}, client {client}");
            advance(model, sent, &found(&mut connection, client), &place);
        }
    }
}
