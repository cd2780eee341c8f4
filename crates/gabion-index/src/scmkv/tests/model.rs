//! The store against a `BTreeMap`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::{Durability, Options, Scmkv};
use super::{check, content, key, pool, small, value};

#[derive(Clone, Debug)]
enum Op {
    Put(u64, u64, Durability),
    Delete(u64),
    DeleteFrom(u64),
    Get(u64),
    Collect,
    Enlarge,
    Persist,
    /// Closes and opens.
    Reopen,
    /// Opens what was not closed, as after the end of the process.
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let k = || 0..120_u64;
    let durability = prop_oneof![Just(Durability::Strict), Just(Durability::Relaxed)];
    prop_oneof![
        40 => (k(), 0..5000_u64, durability).prop_map(|(k, v, d)| Op::Put(k, v, d)),
        12 => k().prop_map(Op::Delete),
        1 => k().prop_map(Op::DeleteFrom),
        8 => k().prop_map(Op::Get),
        3 => Just(Op::Collect),
        1 => Just(Op::Enlarge),
        1 => Just(Op::Persist),
        1 => Just(Op::Reopen),
        1 => Just(Op::Crash),
    ]
}

fn apply(store: &mut Option<Scmkv>, options: &Options, twin: &mut BTreeMap<u64, u64>, op: &Op) {
    let open = store.as_ref().expect("a store");
    match *op {
        Op::Put(k, v, durability) => match open.put_with(&key(k), &value(v), durability) {
            Ok(is_new) => assert_eq!(is_new, twin.insert(k, v).is_none()),
            Err(error) => assert!(error.is_no_space(), "{error}"),
        },
        Op::Delete(k) => {
            let was_there = open.delete(&key(k)).expect("sound");
            assert_eq!(was_there, twin.remove(&k).is_some());
        }
        Op::DeleteFrom(from) => {
            for k in from..120 {
                let was_there = open.delete(&key(k)).expect("sound");
                assert_eq!(was_there, twin.remove(&k).is_some());
            }
        }
        Op::Get(k) => {
            let got = open.get(&key(k)).expect("sound");
            assert_eq!(got, twin.get(&k).map(|v| value(*v)));
            assert_eq!(open.contains(&key(k)).expect("sound"), got.is_some());
        }
        Op::Collect => drop(open.collect_garbage().expect("sound")),
        Op::Enlarge => {
            if let Err(error) = open.enlarge() {
                assert!(error.is_no_space(), "{error}");
            }
        }
        Op::Persist => open.persist().expect("a pool in memory"),
        Op::Reopen | Op::Crash => {
            let closing = store.take().expect("a store");
            let pool = closing.pool().clone();
            match op {
                Op::Reopen => closing.close().expect("it closes"),
                _ => drop(closing),
            }
            *store = Some(Scmkv::open(&pool, options).expect("a store"));
        }
    }
}

fn follow(ops: &[Op], size: u64) {
    let options = small();
    let mut store = Some(Scmkv::create(&pool(size), &options).expect("space"));
    let mut twin = BTreeMap::new();
    for op in ops {
        apply(&mut store, &options, &mut twin, op);
    }
    let store = store.expect("a store");
    assert_eq!(content(&store).expect("sound"), twin);
    assert_eq!(check(&store).expect("sound"), twin.len() as u64);
    assert_eq!(store.is_empty().expect("sound"), twin.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn it_follows_the_twin(ops in prop::collection::vec(op(), 1..600)) {
        follow(&ops, 512 << 10);
    }

    #[test]
    fn it_follows_the_twin_where_space_is_short(ops in prop::collection::vec(op(), 1..600)) {
        follow(&ops, 80 << 10);
    }
}

/// The authors' code follows a wrong pointer when the second of two chained items is deleted.
#[test]
fn either_of_two_chained_entries_can_be_deleted() {
    for order in [[0, 1], [1, 0]] {
        let store = Scmkv::create(&pool(256 << 10), &small()).expect("space");
        // The keys of one of the four buckets.
        let volume = &store.volume;
        let bucket = |number: &u64| volume.seed.hash_bytes(&key(*number)) >> 62 == 2;
        let keys: Vec<u64> = (1..).filter(bucket).take(2).collect();
        for &number in &keys {
            assert!(store.put(&key(number), &value(number)).expect("space"));
        }
        let [first, second] = order.map(|at| keys[at]);
        assert!(store.delete(&key(first)).expect("sound"));
        assert_eq!(store.get(&key(first)).expect("sound"), None);
        let left = store.get(&key(second)).expect("sound");
        assert_eq!(left, Some(value(second)));
        check(&store).expect("sound");
        assert!(store.delete(&key(second)).expect("sound"));
        assert_eq!(check(&store), Ok(0));
    }
}

#[test]
fn what_is_too_long_is_refused_and_the_longest_is_not() {
    let store = Scmkv::create(&pool(256 << 10), &small()).expect("space");
    let longest = usize::try_from(store.value_bytes_max()).expect("small");
    let key = vec![7; usize::try_from(store.volume.key_bytes_max).expect("small")];
    assert!(store.put(&key, &vec![1; longest]).expect("it fits"));
    assert_eq!(store.get(&key).expect("sound"), Some(vec![1; longest]));
    let long = store.put(&key, &vec![2; longest + 1]);
    assert!(matches!(
        long,
        Err(crate::Error::Limit { what: "value", .. })
    ));
    let long = store.put(&[key.clone(), key.clone()].concat(), b"");
    assert!(matches!(long, Err(crate::Error::Limit { what: "key", .. })));
    assert_eq!(store.get(&key).expect("sound"), Some(vec![1; longest]));
    check(&store).expect("sound");
}

/// All keys may fall into one bucket, however often the table doubles: it only becomes slow, and
/// then an error.
#[test]
fn a_flood_of_keys_of_one_bucket_is_an_error_in_the_end() {
    let store = Scmkv::create(&pool(1 << 20), &small()).expect("space");
    let seed = &store.volume.seed;
    let numbers = (1..).filter(|number: &u64| seed.hash_bytes(&number.to_le_bytes()) >> 52 == 1);
    let mut kept = Vec::new();
    let error = numbers
        .map(|number| {
            let put = store.put(&number.to_le_bytes(), b"x");
            put.map(|_| kept.push(number))
        })
        .find_map(Result::err)
        .expect("an end");
    assert!(matches!(error, crate::Error::ChainLimit { .. }), "{error}");
    assert_eq!(check(&store), Ok(kept.len() as u64));
    for number in &kept {
        let value = store.get(&number.to_le_bytes()).expect("sound");
        assert_eq!(value.as_deref(), Some(&b"x"[..]));
    }
    assert!(store.stats().buckets > 64);
}

/// A page that was open when the store was closed may have no room for the next record.
#[test]
fn what_is_put_after_a_clean_close_stays_within_its_page() {
    let pool = pool(256 << 10);
    let mut store = Scmkv::create(&pool, &small()).expect("space");
    for number in 0..60 {
        store
            .put(&key(number), &value(6 + 7 * number))
            .expect("space");
        store.close().expect("it closes");
        store = Scmkv::open(&pool, &small()).expect("a store");
        assert_eq!(check(&store), Ok(number + 1));
    }
}

/// Chains that cannot grow make a table double that has too many entries for its buckets.
#[test]
fn a_table_that_is_much_too_small_doubles_by_itself() {
    let store = Scmkv::create(&pool(8 << 20), &small()).expect("space");
    for number in 0..5000 {
        store.put(&key(number), b"x").expect("space");
    }
    assert!(store.stats().buckets > 1000);
    assert_eq!(check(&store), Ok(5000));
}

#[test]
fn a_table_doubles_again_and_again() {
    let store = Scmkv::create(&pool(8 << 20), &small()).expect("space");
    for number in 0..1200 {
        store.put(&key(number), &value(number % 3)).expect("space");
    }
    for doubling in 1..=8 {
        store.enlarge().expect("space");
        assert_eq!(store.stats().buckets, 4 << doubling);
        assert_eq!(check(&store), Ok(1200));
    }
    for number in 0..1200 {
        let got = store.get(&key(number)).expect("sound");
        assert_eq!(got, Some(value(number % 3)));
    }
}
