//! Iterators of transactions against a map: own writes on stored pairs, from both ends.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::{engines, open};
use crate::support::{SeededRng, base_seed, each_seed, setting, small_options};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn small(random: &mut SeededRng, limit: u64) -> u8 {
    u8::try_from(random.below(limit)).expect("a small limit")
}

fn key(random: &mut SeededRng) -> Vec<u8> {
    let number = small(random, 60);
    match number % 7 {
        0 => vec![b'k'],
        1 => vec![b'k', number, 0],
        _ => vec![b'k', number],
    }
}

fn bounds(random: &mut SeededRng) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut bound = || match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(random)),
        _ => Bound::Excluded(key(random)),
    };
    (bound(), bound())
}

/// The pairs of a map in a range that may hold no key.
fn in_range(map: &Map, range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<(Vec<u8>, Vec<u8>)> {
    use std::ops::RangeBounds;
    let pairs = map.iter().filter(|(key, _)| range.contains(*key));
    pairs
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[test]
fn a_range_is_what_a_map_has_from_both_ends() {
    let runs = setting("GABION_CASES", 20);
    for engine in engines() {
        each_seed(
            base_seed(),
            |begun| begun < runs,
            |seed| {
                let random = &mut SeededRng::new(seed);
                let db = open(engine, small_options());
                let keyspace = db.keyspace("keyspace").unwrap();
                let mut map = Map::new();
                for number in 0..random.below(150) {
                    let (key, value) = (key(random), number.to_le_bytes().to_vec());
                    keyspace.put(&key, &value).unwrap();
                    map.insert(key, value);
                    if random.below(40) == 0 {
                        db.flush().unwrap();
                    }
                }
                let mut transaction = db.begin().unwrap();
                // Nobody's business.
                keyspace.delete_range(vec![b'k', 3]..vec![b'k', 9]).unwrap();
                for number in 0..small(random, 60) {
                    match random.below(8) {
                        0 => {
                            let range = bounds(random);
                            transaction.delete_range(&keyspace, range.clone()).unwrap();
                            in_range(&map, &range)
                                .iter()
                                .for_each(|(key, _)| drop(map.remove(key)));
                        }
                        1 | 2 => {
                            let key = key(random);
                            transaction.delete(&keyspace, &key).unwrap();
                            map.remove(&key);
                        }
                        3..6 => {
                            let (key, value) = (key(random), vec![b'o', number]);
                            transaction.put(&keyspace, &key, &value).unwrap();
                            map.insert(key, value);
                        }
                        _ => {
                            let range = bounds(random);
                            let mut expected =
                                std::collections::VecDeque::from(in_range(&map, &range));
                            let mut iter = transaction.range(&keyspace, range);
                            loop {
                                let is_front = random.below(2) == 0;
                                let (found, expected) = match is_front {
                                    true => (iter.next(), expected.pop_front()),
                                    false => (iter.next_back(), expected.pop_back()),
                                };
                                let found = found.transpose().unwrap();
                                let found =
                                    found.map(|(key, value)| (key.to_vec(), value.to_vec()));
                                assert_eq!(found, expected);
                                if found.is_none() || random.below(20) == 0 {
                                    break;
                                }
                            }
                            assert!(!expected.is_empty() || iter.next().is_none());
                        }
                    }
                    let key = key(random);
                    let found = transaction.get(&keyspace, &key).unwrap();
                    assert_eq!(found.as_deref(), map.get(&key).map(Vec::as_slice));
                }
            },
        );
    }
}
