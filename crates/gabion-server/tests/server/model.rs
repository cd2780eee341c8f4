//! Random commands for strings and keys, compared with a plain map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::support::{Client, Server, Value};

/// What the server should hold: a value, and whether it expires, in an hour.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, bool)>;

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u16, bool),
    Get(u8),
    Append(u8, u16),
    IncrBy(u8, i16),
    Del(u8, u8),
    Rename(u8, u8),
    Copy(u8, u8, bool),
    Persist(u8),
    MsetNx(u8, u8),
    GetDel(u8),
    Keys,
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..6_u8;
    let step = prop_oneof![
        (key.clone(), any::<u16>(), any::<bool>()).prop_map(|(k, v, e)| Step::Set(k, v, e)),
        key.clone().prop_map(Step::Get),
        (key.clone(), any::<u16>()).prop_map(|(k, v)| Step::Append(k, v)),
        (key.clone(), any::<i16>()).prop_map(|(k, by)| Step::IncrBy(k, by)),
        (key.clone(), key.clone()).prop_map(|(a, b)| Step::Del(a, b)),
        (key.clone(), key.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
        (key.clone(), key.clone(), any::<bool>()).prop_map(|(a, b, r)| Step::Copy(a, b, r)),
        key.clone().prop_map(Step::Persist),
        (key.clone(), key.clone()).prop_map(|(a, b)| Step::MsetNx(a, b)),
        key.prop_map(Step::GetDel),
        Just(Step::Keys),
        Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..60)
}

fn name(key: u8) -> Vec<u8> {
    format!("key{key}").into_bytes()
}

fn bulk(value: Option<&(Vec<u8>, bool)>) -> Value {
    value.map_or(Value::Null, |(value, _)| Value::Bulk(value.clone()))
}

/// The request of a step, and the reply that the model gives.
fn apply(step: &Step, model: &mut Model) -> (Vec<Vec<u8>>, Option<Value>) {
    let ok = Value::Simple("OK".to_owned());
    let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
    match step {
        Step::Set(key, value, expires) => {
            let value = value.to_string().into_bytes();
            let mut request = words(&[b"set", &name(*key), &value]);
            if *expires {
                request.extend(words(&[b"ex", b"3600"]));
            }
            model.insert(name(*key), (value, *expires));
            (request, Some(ok))
        }
        Step::Get(key) => (
            words(&[b"get", &name(*key)]),
            Some(bulk(model.get(&name(*key)))),
        ),
        Step::Append(key, value) => {
            let value = value.to_string().into_bytes();
            let entry = model.entry(name(*key)).or_default();
            entry.0.extend_from_slice(&value);
            let length = i64::try_from(entry.0.len()).unwrap();
            (
                words(&[b"append", &name(*key), &value]),
                Some(Value::Integer(length)),
            )
        }
        Step::IncrBy(key, by) => {
            let request = words(&[b"incrby", &name(*key), by.to_string().as_bytes()]);
            let old = model.get(&name(*key)).map_or(Some(0), |(value, _)| {
                let text = std::str::from_utf8(value).unwrap();
                let number = text.parse::<i64>().ok();
                number.filter(|number| number.to_string() == text)
            });
            let Some(new) = old.and_then(|old| old.checked_add(i64::from(*by))) else {
                return (request, None);
            };
            model.entry(name(*key)).or_default().0 = new.to_string().into_bytes();
            (request, Some(Value::Integer(new)))
        }
        Step::Del(one, other) => {
            let mut count = 0;
            for key in [one, other] {
                count += i64::from(model.remove(&name(*key)).is_some());
            }
            (
                words(&[b"del", &name(*one), &name(*other)]),
                Some(Value::Integer(count)),
            )
        }
        Step::Rename(from, to) => {
            let request = words(&[b"rename", &name(*from), &name(*to)]);
            match model.remove(&name(*from)) {
                Some(value) => {
                    model.insert(name(*to), value);
                    (request, Some(ok))
                }
                None => (request, None),
            }
        }
        Step::Copy(from, to, replaces) => {
            let mut request = words(&[b"copy", &name(*from), &name(*to)]);
            if *replaces {
                request.push(b"replace".to_vec());
            }
            if from == to {
                return (request, None);
            }
            let value = model.get(&name(*from)).cloned();
            let copies = value.filter(|_| *replaces || !model.contains_key(&name(*to)));
            let count = i64::from(copies.is_some());
            if let Some(value) = copies {
                model.insert(name(*to), value);
            }
            (request, Some(Value::Integer(count)))
        }
        Step::Persist(key) => {
            let entry = model.get_mut(&name(*key)).filter(|(_, expires)| *expires);
            let count = i64::from(entry.is_some());
            if let Some((_, expires)) = entry {
                *expires = false;
            }
            (
                words(&[b"persist", &name(*key)]),
                Some(Value::Integer(count)),
            )
        }
        Step::MsetNx(one, other) => {
            let keys = [name(*one), name(*other)];
            let is_free = keys.iter().all(|key| !model.contains_key(key));
            if is_free {
                model.insert(keys[0].clone(), (b"1".to_vec(), false));
                model.insert(keys[1].clone(), (b"2".to_vec(), false));
            }
            let request = words(&[b"msetnx", &keys[0], b"1", &keys[1], b"2"]);
            (request, Some(Value::Integer(i64::from(is_free))))
        }
        Step::GetDel(key) => {
            let reply = bulk(model.get(&name(*key)));
            model.remove(&name(*key));
            (words(&[b"getdel", &name(*key)]), Some(reply))
        }
        Step::Keys => {
            let keys = model.keys().cloned().map(Value::Bulk).collect();
            (words(&[b"keys", b"*"]), Some(Value::Array(keys)))
        }
        Step::Flush => {
            model.clear();
            (words(&[b"flushdb"]), Some(ok))
        }
    }
}

fn run(client: &mut Client, steps: &[Step], in_one: bool) {
    let mut model = Model::new();
    client.say("flushall");
    let mut expected = Vec::new();
    if in_one {
        client.say("multi");
    }
    for step in steps {
        let (request, reply) = apply(step, &mut model);
        let found = client.ask(&request);
        match in_one {
            true => expected.push(reply),
            false => compare(&found, reply.as_ref(), step),
        }
    }
    if in_one {
        let Value::Array(found) = client.ask(&["exec"]) else {
            panic!("no array");
        };
        assert_eq!(found.len(), steps.len());
        for ((found, expected), step) in found.iter().zip(&expected).zip(steps) {
            compare(found, expected.as_ref(), step);
        }
    }
    let size = i64::try_from(model.len()).unwrap();
    assert_eq!(client.ask(&["dbsize"]), Value::Integer(size));
    let expiring = model.values().filter(|(_, expires)| *expires).count();
    let info = client.say("info keyspace");
    let counted = format!("keys={size},expires={expiring},");
    assert!(
        model.is_empty() || info.contains(&counted),
        "{info} {counted}"
    );
}

fn compare(found: &Value, expected: Option<&Value>, step: &Step) {
    match expected {
        Some(expected) => assert_eq!(found, expected, "{step:?}"),
        None => assert!(matches!(found, Value::Error(_)), "{step:?} {found:?}"),
    }
}

#[test]
fn random_commands_do_what_a_map_does() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = std::cell::RefCell::new(server.connect());
    proptest!(ProptestConfig::with_cases(100), |(steps in steps(), in_one: bool)| {
        run(&mut client.borrow_mut(), &steps, in_one);
    });
    drop(client);
}
