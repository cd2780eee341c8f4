//! Histories of several threads.
//!
//! Each operation is noted with the times of its call and its return. A history is linearizable if
//! there is an order that keeps to these times in which every answer is right. Keys do not affect
//! each other, so each one's history is judged alone, by search.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Keys, check, find_by_scan};
use crate::{Index, Item};

const THREADS: u64 = 3;
/// Operations of a thread in a round. All of a round must fit into the bits of a word.
const OPS: u64 = 16;
const KEYS: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Call {
    Get,
    /// A lookup by a scan, if the index is ordered, else a get.
    Scan,
    Insert(u64),
    Update(u64),
    Remove,
}

/// An operation that has returned.
#[derive(Clone, Copy, Debug)]
struct Event {
    key: u64,
    call: Call,
    answer: Option<u64>,
    called: u64,
    returned: u64,
}

/// Numbers that look random.
fn mix(number: u64) -> u64 {
    crate::Seed::new(11).hash_u64(number)
}

/// Runs rounds of operations on few keys while another thread inserts and deletes others, so that
/// the index is rebuilt all the time. The number of rounds is `GABION_HISTORIES`, 120 by default.
pub(crate) fn linearizable<K: Item + ?Sized>(keys: &Keys<K>) {
    let rounds = std::env::var("GABION_HISTORIES").map_or(120, |text| {
        text.parse().expect("GABION_HISTORIES is a number")
    });
    let index = keys.create();
    let (clock, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| churn(keys, &*index, &is_over));
        let _end = End(&is_over);
        for round in 0..rounds {
            let events: Vec<Event> = std::thread::scope(|scope| {
                let thread = |thread| run_thread(keys, &*index, &clock, round, thread);
                let threads: Vec<_> = (0..THREADS)
                    .map(|number| scope.spawn(move || thread(number)))
                    .collect();
                let joined = threads.into_iter().map(|thread| thread.join());
                joined
                    .flat_map(|events| events.expect("a thread"))
                    .collect()
            });
            for key in 0..KEYS {
                let history: Vec<Event> = events
                    .iter()
                    .filter(|event| event.key == key)
                    .copied()
                    .collect();
                assert!(is_linearizable(&history), "round {round}: {history:#?}");
            }
        }
    });
    check(&*index).expect("sound");
}

/// Visits all entries again and again while others come and go, so that the index is rebuilt all
/// the time: what stays is seen once in each visit, with its value, and whatever else is seen was
/// there with this value. The number of visits is `GABION_VISITS`, 20 by default.
pub(crate) fn visits_miss_nothing<K: Item + ?Sized>(keys: &Keys<K>) {
    const STAY: u64 = 300;
    let visits = super::crash::from_env("GABION_VISITS", 20);
    let index = keys.create();
    for number in 0..STAY {
        let key = (keys.key)(number);
        index.insert(key.borrow(), number).expect("space");
    }
    let coming = (0..2).flat_map(|round| (0..CHURN_KEYS).map(move |number| (round, number)));
    let coming: BTreeMap<K::Owned, u64> = coming
        .map(|(round, number)| ((keys.key)(churn_number(round, number)), number))
        .collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| churn(keys, &*index, &is_over));
        let _end = End(&is_over);
        for _ in 0..visits {
            let mut seen: BTreeMap<K::Owned, Vec<u64>> = BTreeMap::new();
            let mut visit = |key: &K, value| {
                let key = K::rebuild(key.word(), key.bytes());
                seen.entry(key).or_default().push(value);
            };
            index.for_each(&mut visit).expect("sound");
            for number in 0..STAY {
                let key = (keys.key)(number);
                let values = seen.remove::<K>(key.borrow());
                assert_eq!(values, Some(vec![number]), "{key:?}");
            }
            for (key, values) in seen {
                let value = coming.get::<K::Owned>(&key).copied();
                assert!(
                    values.iter().all(|seen| Some(*seen) == value),
                    "{key:?} with {values:?}, not {value:?}"
                );
            }
        }
    });
    check(&*index).expect("sound");
}

/// Ends what others do, also when a test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keys that come and go at a time.
const CHURN_KEYS: u64 = 400;

/// The number of such a key, of every other round.
fn churn_number(round: u64, number: u64) -> u64 {
    1 << 40 | (round % 2) << 20 | number
}

/// Grows and shrinks the index until it is over.
fn churn<K: Item + ?Sized>(keys: &Keys<K>, index: &dyn Index<K>, is_over: &AtomicBool) {
    let mut round = 0;
    while !is_over.load(Ordering::Relaxed) {
        let key = |number| (keys.key)(churn_number(round, number));
        for number in 0..CHURN_KEYS {
            index.insert(key(number).borrow(), number).expect("space");
        }
        for number in 0..CHURN_KEYS {
            let value = index.remove(key(number).borrow()).expect("sound");
            assert_eq!(value, Some(number));
        }
        round += 1;
    }
}

fn run_thread<K: Item + ?Sized>(
    keys: &Keys<K>,
    index: &dyn Index<K>,
    clock: &AtomicU64,
    round: u64,
    thread: u64,
) -> Vec<Event> {
    let mut events = Vec::new();
    for number in 0..OPS {
        let value = round << 16 | thread << 8 | number;
        let random = mix(value);
        let key = random % KEYS;
        let call = match random >> 32 & 7 {
            0 | 1 => Call::Get,
            2 => Call::Scan,
            3 | 4 => Call::Insert(value),
            5 => Call::Update(value),
            _ => Call::Remove,
        };
        let owned = (keys.key)(round * KEYS + key);
        let key_now = owned.borrow();
        let called = clock.fetch_add(1, Ordering::SeqCst);
        let answer = match call {
            Call::Get => index.get(key_now),
            Call::Scan => match index.ordered() {
                Some(ordered) => find_by_scan(ordered, key_now),
                None => index.get(key_now),
            },
            Call::Insert(value) => index.insert(key_now, value),
            Call::Update(value) => index.update(key_now, value),
            Call::Remove => index.remove(key_now),
        };
        let returned = clock.fetch_add(1, Ordering::SeqCst);
        let answer = answer.expect("space");
        events.push(Event {
            key,
            call,
            answer,
            called,
            returned,
        });
    }
    events
}

/// What an operation makes of a value, if its answer is right.
fn step(value: Option<u64>, event: &Event) -> Option<Option<u64>> {
    if event.answer != value {
        return None;
    }
    Some(match event.call {
        Call::Get | Call::Scan => value,
        Call::Insert(new) => Some(new),
        Call::Update(new) => value.map(|_| new),
        Call::Remove => None,
    })
}

/// Whether there is an order in which all answers are right.
fn is_linearizable(history: &[Event]) -> bool {
    assert!(history.len() <= 64, "the bits of a word");
    let mut dead = HashSet::new();
    search(history, 0, None, &mut dead)
}

fn search(
    history: &[Event],
    done: u64,
    value: Option<u64>,
    dead: &mut HashSet<(u64, Option<u64>)>,
) -> bool {
    if done.count_ones() as usize == history.len() {
        return true;
    }
    if !dead.insert((done, value)) {
        return false;
    }
    let open = || (0..history.len()).filter(|event| done >> event & 1 == 0);
    // Nothing can come before an operation that returned before it was called.
    let first_return = open()
        .map(|event| history[event].returned)
        .min()
        .unwrap_or(0);
    let candidates: Vec<usize> = open()
        .filter(|&event| history[event].called < first_return)
        .collect();
    candidates.into_iter().any(|event| {
        step(value, &history[event])
            .is_some_and(|value| search(history, done | 1 << event, value, dead))
    })
}

#[test]
fn the_judge_tells_right_from_wrong() {
    let event = |call, answer, called, returned| Event {
        key: 0,
        call,
        answer,
        called,
        returned,
    };
    let insert = event(Call::Insert(5), None, 0, 3);
    let during = |answer| event(Call::Get, answer, 1, 2);
    let after = |answer| event(Call::Get, answer, 4, 5);
    assert!(is_linearizable(&[insert, during(None), after(Some(5))]));
    assert!(is_linearizable(&[insert, during(Some(5)), after(Some(5))]));
    assert!(!is_linearizable(&[insert, during(Some(5)), after(None)]));
    assert!(!is_linearizable(&[insert, during(Some(6))]));
    let remove = event(Call::Remove, Some(5), 6, 9);
    let late = event(Call::Get, Some(5), 7, 8);
    assert!(is_linearizable(&[insert, remove, late]));
    let later = event(Call::Get, Some(5), 10, 11);
    assert!(!is_linearizable(&[insert, remove, later]));
    assert!(is_linearizable(&[]));
}
