//! A visitor that panics leaves nothing behind: no lock, no guard, no block.

use std::borrow::Borrow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Keys, check};
use crate::{Index, Item, registry};

const ENTRIES: u64 = 300;

/// A panic that tells nobody of itself.
fn leave() {
    std::panic::resume_unwind(Box::new(()));
}

/// Whatever can be done to an index, by a thread of its own.
fn use_all<K: Item + ?Sized>(keys: &Keys<K>, index: &dyn Index<K>) {
    for number in 0..ENTRIES {
        let key = (keys.key)(number);
        let key: &K = key.borrow();
        assert_eq!(index.get(key).expect("sound"), Some(number));
        assert_eq!(index.update(key, 7).expect("space"), Some(number));
        assert_eq!(index.remove(key).expect("sound"), Some(7));
        assert_eq!(index.insert(key, number).expect("space"), None);
    }
    let mut count = 0;
    index.for_each(&mut |_, _| count += 1).expect("sound");
    assert_eq!(count, ENTRIES);
    index.compact().expect("space");
}

fn follow<K: Item + ?Sized>(keys: &Keys<K>) {
    let index = keys.create();
    for number in 0..ENTRIES {
        let key = (keys.key)(number);
        assert_eq!(index.insert(key.borrow(), number).expect("space"), None);
    }
    for place in [0, 1, ENTRIES / 2, ENTRIES - 1] {
        let mut seen = 0;
        let visited = catch_unwind(AssertUnwindSafe(|| {
            index.for_each(&mut |_, _| {
                if seen == place {
                    leave();
                }
                seen += 1;
            })
        }));
        assert!(visited.is_err(), "{}: at {place}", keys.name);
        // The same thread could pass a lock that it holds, and another one could wait for none.
        use_all(keys, &*index);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                use_all(keys, &*index);
                // What a thread has retired waits in a batch of its own.
                index.pool().collect();
            });
        });
        index.pool().collect();
        check(&*index).unwrap_or_else(|error| panic!("{}: {error}", keys.name));
    }
    // Nor does a guard keep what is given up from here on.
    for number in 0..ENTRIES {
        let key = (keys.key)(number);
        assert_eq!(index.remove(key.borrow()).expect("sound"), Some(number));
    }
    index.pool().collect();
    let stats = index.pool().stats();
    assert_eq!(stats.retired_bytes, 0, "{}", keys.name);
    check(&*index).unwrap_or_else(|error| panic!("{}: {error}", keys.name));
}

/// A visitor may use the index that it visits.
fn visit_and_change<K: Item + ?Sized>(keys: &Keys<K>) {
    let index = keys.create();
    for number in 0..ENTRIES {
        let key = (keys.key)(number);
        assert_eq!(index.insert(key.borrow(), number).expect("space"), None);
    }
    let mut removed = 0;
    index
        .for_each(&mut |key, value| {
            assert_eq!(index.remove(key).expect("sound"), Some(value));
            removed += 1;
        })
        .expect("sound");
    assert_eq!(removed, ENTRIES, "{}", keys.name);
    assert!(index.is_empty().expect("sound"), "{}", keys.name);
    index.pool().collect();
    check(&*index).unwrap_or_else(|error| panic!("{}: {error}", keys.name));
}

#[test]
fn a_visitor_that_panics_leaves_nothing_behind() {
    for index in registry::all() {
        Keys::words(index).iter().for_each(follow);
        Keys::strings(index).iter().for_each(follow);
    }
}

#[test]
fn a_visitor_may_change_what_it_visits() {
    for index in registry::all() {
        Keys::words(index).iter().for_each(visit_and_change);
        Keys::strings(index).iter().for_each(visit_and_change);
    }
}
