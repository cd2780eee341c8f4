//! An index against its naive twin.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Keys, check};
use crate::{Index, Item};

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u64),
    Update(u64, u64),
    Remove(u64),
    RemoveFrom(u64),
    Get(u64),
    Scan(u64, usize),
    Compact,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let k = || 0..300_u64;
    prop_oneof![
        30 => (k(), any::<u64>()).prop_map(|(k, v)| Op::Insert(k, v)),
        8 => (k(), any::<u64>()).prop_map(|(k, v)| Op::Update(k, v)),
        12 => k().prop_map(Op::Remove),
        1 => k().prop_map(Op::RemoveFrom),
        5 => k().prop_map(Op::Get),
        3 => (k(), 0..80_usize).prop_map(|(k, limit)| Op::Scan(k, limit)),
        1 => Just(Op::Compact),
        1 => Just(Op::Reopen),
    ]
}

/// Runs random operations on both and compares all answers. proptest prints what failed.
pub(crate) fn follow<K: Item + ?Sized>(keys: &Keys<K>) {
    let config = Config {
        cases: 48,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let ops = prop::collection::vec(op(), 1..600);
    let result = runner.run(&ops, |ops| {
        run(keys, &ops);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{}: {error}", keys.name);
    }
}

fn run<K: Item + ?Sized>(keys: &Keys<K>, ops: &[Op]) {
    let mut index = keys.create();
    let mut twin = BTreeMap::new();
    for op in ops {
        index = apply(keys, index, &mut twin, op);
    }
    let mut all = BTreeMap::new();
    let mut visit = |key: &K, value| {
        let key = K::rebuild(key.word(), key.bytes());
        assert!(all.insert(key, value).is_none(), "a key twice");
    };
    index.for_each(&mut visit).expect("sound");
    assert_eq!(all, twin);
    if index.ordered().is_some() {
        let mut last = None;
        let mut visit = |key: &K, _| {
            let key = Some(K::rebuild(key.word(), key.bytes()));
            assert!(last < key, "{last:?} before {key:?}");
            last = key;
        };
        index.for_each(&mut visit).expect("sound");
    }
    check(&*index).expect("sound");
}

/// Fills an index and empties it again and again, in three orders: it has nothing then for whoever
/// looks, and needs no more space from time to time.
pub(crate) fn empty<K: Item + ?Sized>(keys: &Keys<K>) {
    let count = 400_u64;
    let index = keys.create();
    let mut blocks = Vec::new();
    for round in 0..6 {
        for number in 0..count {
            let before = index.insert((keys.key)(number).borrow(), round);
            assert_eq!(before.expect("space"), None);
        }
        assert!(!index.is_empty().expect("sound"));
        for number in 0..count {
            let number = match round % 3 {
                0 => number,
                1 => count - 1 - number,
                _ => number * 77 % count,
            };
            let before = index.remove((keys.key)(number).borrow());
            assert_eq!(before.expect("sound"), Some(round), "{number}");
        }
        assert!(index.is_empty().expect("sound"));
        let key = (keys.key)(0);
        assert_eq!(index.get(key.borrow()).expect("sound"), None);
        assert_eq!(index.update(key.borrow(), 1).expect("sound"), None);
        let mut found = Vec::new();
        let mut visit = |key: &K, value| found.push((K::rebuild(key.word(), key.bytes()), value));
        index.for_each(&mut visit).expect("sound");
        if let Some(ordered) = index.ordered() {
            ordered.scan(key.borrow(), 9, &mut found).expect("sound");
        }
        assert!(found.is_empty(), "{found:?}");
        index.compact().expect("space");
        index.pool().collect();
        check(&*index).expect("sound");
        blocks.push(index.check().expect("sound").blocks);
    }
    assert!(blocks[5] <= blocks[2], "{blocks:?}");
}

/// Runs an operation on both, and returns the index, which may be another one.
fn apply<K: Item + ?Sized>(
    keys: &Keys<K>,
    index: Box<dyn Index<K>>,
    twin: &mut BTreeMap<K::Owned, u64>,
    op: &Op,
) -> Box<dyn Index<K>> {
    let key = |number: u64| (keys.key)(number);
    match *op {
        Op::Insert(k, v) => {
            let before = index.insert(key(k).borrow(), v).expect("space");
            assert_eq!(before, twin.insert(key(k), v));
        }
        Op::Update(k, v) => {
            let before = index.update(key(k).borrow(), v).expect("space");
            let old = twin.get_mut::<K>(key(k).borrow());
            assert_eq!(before, old.map(|old| std::mem::replace(old, v)));
        }
        Op::Remove(k) => {
            let before = index.remove(key(k).borrow()).expect("sound");
            assert_eq!(before, twin.remove::<K>(key(k).borrow()));
        }
        Op::RemoveFrom(k) => {
            for k in k..300 {
                let before = index.remove(key(k).borrow()).expect("sound");
                assert_eq!(before, twin.remove::<K>(key(k).borrow()));
            }
        }
        Op::Get(k) => {
            let got = index.get(key(k).borrow()).expect("sound");
            assert_eq!(got, twin.get::<K>(key(k).borrow()).copied());
        }
        Op::Scan(k, limit) => {
            let Some(ordered) = index.ordered() else {
                return index;
            };
            let from = key(k);
            let mut found = vec![(key(k), 0)];
            ordered
                .scan(from.borrow(), limit, &mut found)
                .expect("sound");
            let expected = twin.range::<K, _>((Bound::Included(from.borrow()), Bound::Unbounded));
            let expected = expected
                .take(limit)
                .map(|(key, value)| (key.clone(), *value));
            assert!(found.into_iter().skip(1).eq(expected));
        }
        Op::Compact => index.compact().expect("space"),
        Op::Reopen => {
            let pool = index.pool().clone();
            // Some have threads of their own, which must be gone before there are others.
            drop(index);
            return (keys.makers.open)(&pool).expect("an index");
        }
    }
    index
}
