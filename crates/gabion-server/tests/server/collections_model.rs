//! Random commands for lists, sets, sorted sets and hashes, compared with collections of the
//! library. The bound between the two forms of a collection is so low that most cross it; the
//! server is stopped and started again in the middle.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::support::{Client, Server, Value};

/// A collection of the model.
#[derive(Clone, Debug, PartialEq)]
enum Twin {
    List(Vec<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    Sorted(BTreeMap<Vec<u8>, i64>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

impl Twin {
    fn is_empty(&self) -> bool {
        match self {
            Twin::List(list) => list.is_empty(),
            Twin::Set(set) => set.is_empty(),
            Twin::Sorted(set) => set.is_empty(),
            Twin::Hash(hash) => hash.is_empty(),
        }
    }
}

type Model = BTreeMap<Vec<u8>, Twin>;

/// A command of one family for one key; the numbers choose members, places and scores.
#[derive(Clone, Debug)]
struct Step {
    family: u8,
    command: u8,
    key: u8,
    one: u8,
    other: u8,
    number: i8,
    to: i8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        0..4_u8,
        any::<u8>(),
        0..2_u8,
        0..24_u8,
        0..24_u8,
        -6..20_i8,
        -6..20_i8,
    )
        .prop_map(|(family, command, key, one, other, number, to)| Step {
            family,
            command,
            key,
            one,
            other,
            number,
            to,
        });
    prop::collection::vec(step, 1..150)
}

/// A member: most are short, and two are too long for a key of the store. These differ in front, as
/// others of the same score have an order of their own.
fn member(number: u8) -> Vec<u8> {
    match number {
        22 | 23 => {
            let mut long = vec![number];
            long.resize(20_000, b'x');
            long
        }
        _ => format!("member{number}").into_bytes(),
    }
}

fn bulk(bytes: &[u8]) -> Value {
    Value::Bulk(bytes.to_vec())
}

fn bulks<'a>(items: impl IntoIterator<Item = &'a Vec<u8>>) -> Value {
    Value::Array(items.into_iter().map(|item| bulk(item)).collect())
}

fn integer(count: usize) -> Value {
    Value::Integer(i64::try_from(count).unwrap())
}

/// A request, and the reply that the model gives.
struct Said {
    request: Vec<Vec<u8>>,
    reply: Value,
}

fn said(words: &[&[u8]], reply: Value) -> Said {
    Said {
        request: words.iter().map(|word| word.to_vec()).collect(),
        reply,
    }
}

/// The places from one number to another, which count from the end if they are negative.
fn places(from: i8, to: i8, count: usize) -> std::ops::Range<usize> {
    let place = |number: i8| match number < 0 {
        true => i64::from(number) + i64::try_from(count).unwrap(),
        false => i64::from(number),
    };
    let from = usize::try_from(place(from)).unwrap_or(0);
    let end = usize::try_from(place(to) + 1).unwrap_or(0).min(count);
    from..end.max(from)
}

fn on_list(step: &Step, key: &[u8], list: &mut Vec<Vec<u8>>) -> Said {
    let (one, other) = (member(step.one), member(step.other));
    let number = step.number.to_string().into_bytes();
    let to = step.to.to_string().into_bytes();
    let part = places(step.number, step.to, list.len());
    match step.command % 11 {
        0 => {
            list.insert(0, one.clone());
            list.insert(0, other.clone());
            said(&[b"lpush", key, &one, &other], integer(list.len()))
        }
        1 | 2 => {
            list.extend([one.clone(), other.clone()]);
            said(&[b"rpush", key, &one, &other], integer(list.len()))
        }
        3 => {
            let reply = match list.is_empty() {
                true => Value::Null,
                false => bulk(&list.remove(0)),
            };
            said(&[b"lpop", key], reply)
        }
        4 => {
            let taken = list.split_off(list.len().saturating_sub(3));
            let reply = match taken.is_empty() {
                true => Value::Null,
                false => bulks(taken.iter().rev()),
            };
            said(&[b"rpop", key, b"3"], reply)
        }
        5 => {
            let reply = match list.iter().position(|element| *element == one) {
                _ if list.is_empty() => Value::Integer(0),
                None => Value::Integer(-1),
                Some(place) => {
                    list.insert(place + 1, other.clone());
                    integer(list.len())
                }
            };
            said(&[b"linsert", key, b"after", &one, &other], reply)
        }
        6 => {
            let most = match step.number {
                0 => usize::MAX,
                number => usize::from(number.unsigned_abs()),
            };
            let mut gone: Vec<_> = (0..list.len()).filter(|at| list[*at] == one).collect();
            if step.number < 0 {
                gone.reverse();
            }
            gone.truncate(most);
            gone.sort_unstable();
            for place in gone.iter().rev() {
                list.remove(*place);
            }
            said(&[b"lrem", key, &number, &one], integer(gone.len()))
        }
        7 if step.command > 128 => {
            *list = list.get(part).unwrap_or_default().to_vec();
            let reply = Value::Simple("OK".to_owned());
            said(&[b"ltrim", key, &number, &to], reply)
        }
        8 => {
            let place = places(step.number, step.number, list.len());
            let is_there = list.get(place.clone()).is_some_and(|part| part.len() == 1);
            if is_there {
                list[place.start] = one.clone();
            }
            let reply = match is_there {
                true => Value::Simple("OK".to_owned()),
                false => Value::Error(String::new()),
            };
            said(&[b"lset", key, &number, &one], reply)
        }
        9 => {
            let found = list.iter().enumerate().rev();
            let found = found.filter(|(_, element)| **element == one);
            let places = found.map(|(place, _)| integer(place)).collect();
            let words: [&[u8]; 7] = [b"lpos", key, &one, b"rank", b"-1", b"count", b"0"];
            said(&words, Value::Array(places))
        }
        _ => {
            let part = list.get(part).unwrap_or_default();
            said(&[b"lrange", key, &number, &to], bulks(part))
        }
    }
}

fn on_set(step: &Step, key: &[u8], set: &mut BTreeSet<Vec<u8>>) -> Said {
    let (one, other) = (member(step.one), member(step.other));
    match step.command % 6 {
        0..=2 => {
            let count =
                usize::from(set.insert(one.clone())) + usize::from(set.insert(other.clone()));
            said(&[b"sadd", key, &one, &other], integer(count))
        }
        3 => {
            let count = usize::from(set.remove(&one)) + usize::from(set.remove(&other));
            said(&[b"srem", key, &one, &other], integer(count))
        }
        4 => {
            let has = Value::Array(vec![
                integer(usize::from(set.contains(&one))),
                integer(usize::from(set.contains(&other))),
            ]);
            said(&[b"smismember", key, &one, &other], has)
        }
        _ => said(&[b"smembers", key], bulks(set.iter())),
    }
}

/// The members of a sorted set in its order.
fn in_order(set: &BTreeMap<Vec<u8>, i64>) -> Vec<(Vec<u8>, i64)> {
    let mut all: Vec<_> = set
        .iter()
        .map(|(member, score)| (member.clone(), *score))
        .collect();
    all.sort_by(|one, other| one.1.cmp(&other.1).then_with(|| one.0.cmp(&other.0)));
    all
}

fn scored(part: &[(Vec<u8>, i64)]) -> Value {
    let of = |(member, score): &(Vec<u8>, i64)| [bulk(member), bulk(score.to_string().as_bytes())];
    Value::Array(part.iter().flat_map(of).collect())
}

fn on_sorted(step: &Step, key: &[u8], set: &mut BTreeMap<Vec<u8>, i64>) -> Said {
    let (one, other) = (member(step.one), member(step.other));
    let number = step.number.to_string().into_bytes();
    let to = step.to.to_string().into_bytes();
    let order = in_order(set);
    let part = places(step.number, step.to, order.len());
    let in_scores = |score: i64| (i64::from(step.number)..=i64::from(step.to)).contains(&score);
    match step.command % 12 {
        0..=2 => {
            let count = usize::from(set.insert(one.clone(), step.number.into()).is_none());
            let count = count + usize::from(set.insert(other.clone(), step.to.into()).is_none());
            said(&[b"zadd", key, &number, &one, &to, &other], integer(count))
        }
        3 => {
            let score = set.entry(one.clone()).or_default();
            *score += i64::from(step.number);
            let reply = bulk(score.to_string().as_bytes());
            said(&[b"zincrby", key, &number, &one], reply)
        }
        4 => {
            let count = usize::from(set.remove(&one).is_some());
            let count = count + usize::from(set.remove(&other).is_some());
            said(&[b"zrem", key, &one, &other], integer(count))
        }
        5 => {
            let place = order.iter().position(|(member, _)| *member == one);
            said(&[b"zrank", key, &one], place.map_or(Value::Null, integer))
        }
        6 => {
            let part = order.get(part).unwrap_or_default();
            said(&[b"zrange", key, &number, &to, b"withscores"], scored(part))
        }
        7 => {
            let turned: Vec<_> = order.into_iter().rev().collect();
            let part = turned.get(part).unwrap_or_default();
            said(
                &[b"zrevrange", key, &number, &to, b"withscores"],
                scored(part),
            )
        }
        8 => {
            let part: Vec<_> = order
                .into_iter()
                .filter(|(_, score)| in_scores(*score))
                .collect();
            said(
                &[b"zrangebyscore", key, &number, &to, b"withscores"],
                scored(&part),
            )
        }
        9 => {
            let count = order.iter().filter(|(_, score)| in_scores(*score)).count();
            said(&[b"zcount", key, &number, &to], integer(count))
        }
        10 if step.command > 128 => {
            let before = set.len();
            set.retain(|_, score| !in_scores(*score));
            let words: [&[u8]; 4] = [b"zremrangebyscore", key, &number, &to];
            said(&words, integer(before - set.len()))
        }
        _ => {
            let taken: Vec<_> = order.into_iter().rev().take(2).collect();
            for (member, _) in &taken {
                set.remove(member);
            }
            said(&[b"zpopmax", key, b"2"], scored(&taken))
        }
    }
}

fn on_hash(step: &Step, key: &[u8], hash: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Said {
    let (one, other) = (member(step.one), member(step.other));
    let number = step.number.to_string().into_bytes();
    match step.command % 7 {
        0..=2 => {
            let count = usize::from(hash.insert(one.clone(), number.clone()).is_none());
            let count = count + usize::from(hash.insert(other.clone(), one.clone()).is_none());
            said(&[b"hset", key, &one, &number, &other, &one], integer(count))
        }
        3 => {
            let count = usize::from(hash.remove(&one).is_some());
            let count = count + usize::from(hash.remove(&other).is_some());
            said(&[b"hdel", key, &one, &other], integer(count))
        }
        4 => {
            let value = |field| hash.get(field).map_or(Value::Null, |value| bulk(value));
            let values = Value::Array(vec![value(&one), value(&other)]);
            said(&[b"hmget", key, &one, &other], values)
        }
        5 => said(&[b"hlen", key], integer(hash.len())),
        _ => {
            let pairs = hash.iter().flat_map(|(field, value)| [field, value]);
            said(&[b"hgetall", key], bulks(pairs))
        }
    }
}

/// A command for the key as a whole: it goes, or comes elsewhere, with all that it has.
fn on_key(step: &Step, key: &[u8], other: &[u8], model: &mut Model) -> Said {
    match step.command % 3 {
        0 => {
            let count = usize::from(model.remove(key).is_some());
            said(&[b"del", key], integer(count))
        }
        1 => {
            let reply = match model.remove(key) {
                Some(twin) => {
                    model.insert(other.to_vec(), twin);
                    Value::Simple("OK".to_owned())
                }
                None => Value::Error(String::new()),
            };
            said(&[b"rename", key, other], reply)
        }
        _ => {
            let twin = model.get(key).cloned();
            let count = usize::from(twin.is_some());
            model.extend(twin.map(|twin| (other.to_vec(), twin)));
            said(&[b"copy", key, other, b"replace"], integer(count))
        }
    }
}

fn apply(step: &Step, model: &mut Model) -> Said {
    let name = |key: u8| {
        format!(
            "{}:{key}",
            ["list", "set", "sorted", "hash"][usize::from(step.family)]
        )
    };
    let (key, other) = (name(step.key).into_bytes(), name(1 - step.key).into_bytes());
    if step.command > 240 {
        return on_key(step, &key, &other, model);
    }
    let empty = match step.family {
        0 => Twin::List(Vec::new()),
        1 => Twin::Set(BTreeSet::new()),
        2 => Twin::Sorted(BTreeMap::new()),
        _ => Twin::Hash(BTreeMap::new()),
    };
    let twin = model.entry(key.clone()).or_insert(empty);
    let said = match twin {
        Twin::List(list) => on_list(step, &key, list),
        Twin::Set(set) => on_set(step, &key, set),
        Twin::Sorted(set) => on_sorted(step, &key, set),
        Twin::Hash(hash) => on_hash(step, &key, hash),
    };
    if twin.is_empty() {
        model.remove(&key);
    }
    said
}

/// A reply whose order says nothing, in an order.
fn settled(request: &[Vec<u8>], reply: Value) -> Value {
    let width = match request[0].as_slice() {
        b"smembers" => 1,
        b"hgetall" => 2,
        _ => return reply,
    };
    let Value::Array(items) = reply else {
        return reply;
    };
    let mut groups: Vec<Vec<Value>> = items.chunks(width).map(<[Value]>::to_vec).collect();
    groups.sort_by_key(|group| format!("{group:?}"));
    Value::Array(groups.concat())
}

fn compare(request: &[Vec<u8>], found: Value, expected: Value) {
    match expected {
        Value::Error(_) => assert!(matches!(found, Value::Error(_)), "{found:?}"),
        expected => {
            let (found, expected) = (settled(request, found), settled(request, expected));
            assert!(
                found == expected,
                "{request:?}: {found:?}, not {expected:?}"
            );
        }
    }
}

/// All that the model has is in the server, and nothing else.
fn compare_all(client: &mut Client, model: &Model) {
    assert_eq!(client.ask(&["dbsize"]), integer(model.len()));
    for (key, twin) in model {
        let (request, expected): (Vec<&[u8]>, _) = match twin {
            Twin::List(list) => (vec![b"lrange", key, b"0", b"-1"], bulks(list)),
            Twin::Set(set) => (vec![b"smembers", key], bulks(set)),
            Twin::Sorted(set) => (
                vec![b"zrange", key, b"0", b"-1", b"withscores"],
                scored(&in_order(set)),
            ),
            Twin::Hash(hash) => (
                vec![b"hgetall", key],
                bulks(hash.iter().flat_map(|(field, value)| [field, value])),
            ),
        };
        let found = client.ask(&request);
        let request: Vec<_> = request.iter().map(|word| word.to_vec()).collect();
        compare(&request, found, expected);
    }
}

#[test]
fn random_commands_do_what_collections_do() {
    let config = ProptestConfig::with_cases(40);
    proptest!(config, |(steps in steps(), in_one: bool, bound in 0..300_usize)| {
        // Of its own for each case: a server that a failed one leaves behind keeps its store.
        let dir = tempfile::tempdir().unwrap();
        let start = || Server::start_with(dir.path(), |config| config.packed_bytes_max = bound);
        let mut model = Model::new();
        let mut server = start();
        let mut client = server.connect();
        for half in steps.chunks(steps.len().div_ceil(2)) {
            let mut queued = Vec::new();
            if in_one {
                client.say("multi");
            }
            for step in half {
                let Said { request, reply } = apply(step, &mut model);
                let found = client.ask(&request);
                match in_one {
                    true => queued.push((request, reply)),
                    false => compare(&request, found, reply),
                }
            }
            if in_one {
                let Value::Array(found) = client.ask(&["exec"]) else {
                    panic!("no array");
                };
                for (found, (request, reply)) in found.into_iter().zip(queued) {
                    compare(&request, found, reply);
                }
            }
            compare_all(&mut client, &model);
            drop(client);
            server.stop();
            server = start();
            client = server.connect();
            compare_all(&mut client, &model);
        }
        drop(client);
    });
}
