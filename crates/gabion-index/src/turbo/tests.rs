//! The table against its naive twin, a `BTreeMap`, and in special situations.

use std::collections::BTreeMap;

use gabion_media::pmem::{POff, Pool};
use proptest::prelude::*;

use super::layout::{BUCKET_BYTES, Bucket, ShardPlace};
use super::probe::ProbePath;
use super::shard::Shard;
use super::{Options, TurboHash};
use crate::suite::damage::{ask_bits, may_be};
use crate::suite::{self, Keys, interleaved, while_flipped};
use crate::{Error, Index, Item};

fn pool(size: u64) -> Pool {
    suite::pool(size, TurboHash::<u64, u64>::pool_options())
}

fn small() -> Options {
    Options {
        capacity: 8,
        shard_bits: Some(1),
        seed: Some(7),
        collects_garbage: true,
    }
}

fn table<K: Item + ?Sized, V: Item + ?Sized>(options: &Options) -> TurboHash<K, V> {
    TurboHash::create(&pool(16 << 20), options).expect("a table")
}

/// No block of the pool is lost, and all invariants hold.
fn check<K: Item + ?Sized, V: Item + ?Sized>(table: &TurboHash<K, V>) {
    let checked = table.check().expect("sound");
    assert_eq!(checked.entries, table.len());
    assert_eq!(checked.blocks, table.pool().stats().used_blocks);
}

/// An operation on a key of few.
#[derive(Clone, Debug)]
enum Op {
    Insert(u8, u16),
    Update(u8, u16),
    Remove(u8),
    RemoveRange(u8),
    GetOrInsert(u8, u16),
    Swap(u8, Option<u16>, Option<u16>),
    Get(u8),
    GetMany(Vec<u8>),
    PutMany(Vec<(u8, u16)>),
    Clear,
    Compact,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let k = any::<u8>;
    // Few values, so that swaps find what they expect.
    let v = || 0..4_u16;
    prop_oneof![
        30 => (k(), v()).prop_map(|(k, v)| Op::Insert(k, v)),
        8 => (k(), v()).prop_map(|(k, v)| Op::Update(k, v)),
        12 => k().prop_map(Op::Remove),
        1 => k().prop_map(Op::RemoveRange),
        4 => (k(), v()).prop_map(|(k, v)| Op::GetOrInsert(k, v)),
        6 => (k(), prop::option::of(v()), prop::option::of(v()))
            .prop_map(|(k, old, new)| Op::Swap(k, old, new)),
        4 => k().prop_map(Op::Get),
        1 => prop::collection::vec(k(), 0..80).prop_map(Op::GetMany),
        1 => prop::collection::vec((k(), v()), 0..80).prop_map(Op::PutMany),
        1 => Just(Op::Compact),
        1 => Just(Op::Reopen),
        1 => (0..8_u8).prop_map(|n| if n == 0 { Op::Clear } else { Op::Compact }),
    ]
}

/// Does the same to a table and to its twin, and compares all answers.
struct Pair<K: Item + ?Sized, V: Item + ?Sized> {
    table: TurboHash<K, V>,
    twin: BTreeMap<K::Owned, V::Owned>,
    key: fn(u8) -> K::Owned,
    value: fn(u16) -> V::Owned,
}

impl<K: Item + ?Sized, V: Item + ?Sized> Pair<K, V> {
    fn apply(&mut self, op: &Op) {
        use std::borrow::Borrow;
        let (table, twin) = (&mut self.table, &mut self.twin);
        let (key, value) = (self.key, self.value);
        match op {
            Op::Insert(k, v) => {
                let before = table.insert(key(*k).borrow(), value(*v).borrow());
                assert_eq!(before.expect("space"), twin.insert(key(*k), value(*v)));
            }
            Op::Update(k, v) => {
                let before = table.update(key(*k).borrow(), value(*v).borrow());
                let old = twin.get_mut::<K>(key(*k).borrow());
                let expected = old.map(|old| std::mem::replace(old, value(*v)));
                assert_eq!(before.expect("space"), expected);
            }
            Op::Remove(k) => {
                let before = table.remove(key(*k).borrow()).expect("sound");
                assert_eq!(before, twin.remove::<K>(key(*k).borrow()));
            }
            Op::RemoveRange(k) => {
                for k in *k..k.saturating_add(64) {
                    let before = table.remove(key(k).borrow()).expect("sound");
                    assert_eq!(before, twin.remove::<K>(key(k).borrow()));
                }
            }
            Op::GetOrInsert(k, v) => {
                let now = table.get_or_insert(key(*k).borrow(), value(*v).borrow());
                let expected = twin.entry(key(*k)).or_insert(value(*v));
                assert_eq!(&now.expect("space"), expected);
            }
            Op::Swap(k, old, new) => {
                let (old, new) = (old.map(value), new.map(value));
                let before = twin.get::<K>(key(*k).borrow()).cloned();
                let swapped = table.compare_and_swap(
                    key(*k).borrow(),
                    old.as_ref().map(Borrow::borrow),
                    new.as_ref().map(Borrow::borrow),
                );
                assert_eq!(swapped.expect("space"), (before == old, before.clone()));
                if before == old {
                    match new {
                        Some(new) => twin.insert(key(*k), new),
                        None => twin.remove::<K>(key(*k).borrow()),
                    };
                }
            }
            Op::Get(k) => {
                let got = table.get(key(*k).borrow()).expect("sound");
                assert_eq!(got.as_ref(), twin.get::<K>(key(*k).borrow()));
                let has = table.contains(key(*k).borrow()).expect("sound");
                assert_eq!(has, got.is_some());
            }
            Op::GetMany(keys) => {
                let keys: Vec<_> = keys.iter().map(|k| key(*k)).collect();
                let mut values = vec![None; keys.len()];
                table.get_many(&keys, &mut values).expect("sound");
                let expected: Vec<_> = keys
                    .iter()
                    .map(|key| twin.get::<K>(key.borrow()).cloned())
                    .collect();
                assert_eq!(values, expected);
            }
            Op::PutMany(entries) => {
                let entries: Vec<_> = entries.iter().map(|(k, v)| (key(*k), value(*v))).collect();
                let new = table.put_many(&entries).expect("space");
                let before = twin.len();
                twin.extend(entries);
                assert_eq!(new, (twin.len() - before) as u64);
            }
            Op::Clear => {
                table.clear().expect("sound");
                twin.clear();
            }
            Op::Compact => table.compact().expect("space"),
            Op::Reopen => {
                let pool = table.pool().clone();
                *table = TurboHash::open(&pool, &small()).expect("a table");
            }
        }
    }

    fn compare(&self) {
        let all: Result<Vec<_>, Error> = self.table.iter().collect();
        let all = all.expect("sound");
        assert_eq!(all.len(), self.twin.len());
        assert_eq!(all.into_iter().collect::<BTreeMap<_, _>>(), self.twin);
        assert_eq!(self.table.is_empty(), self.twin.is_empty());
        check(&self.table);
    }
}

fn word_key(k: u8) -> u64 {
    u64::from(k) << 48 | u64::from(k)
}

fn word_value(v: u16) -> u64 {
    u64::from(v)
}

/// Keys of lengths 0 to 99, some of which are prefixes of others.
fn byte_key(k: u8) -> Vec<u8> {
    vec![k / 100; usize::from(k % 100)]
}

fn byte_value(v: u16) -> Vec<u8> {
    vec![9; usize::from(v) * 21]
}

fn follow<K: Item + ?Sized, V: Item + ?Sized>(
    ops: &[Op],
    key: fn(u8) -> K::Owned,
    value: fn(u16) -> V::Owned,
) {
    let mut pair: Pair<K, V> = Pair {
        table: table(&small()),
        twin: BTreeMap::new(),
        key,
        value,
    };
    for op in ops {
        pair.apply(op);
    }
    pair.compare();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn words_follow_the_twin(ops in prop::collection::vec(op(), 1..400)) {
        follow::<u64, u64>(&ops, word_key, word_value);
    }

    #[test]
    fn strings_follow_the_twin(ops in prop::collection::vec(op(), 1..400)) {
        follow::<[u8], [u8]>(&ops, byte_key, byte_value);
    }

    #[test]
    fn mixed_kinds_follow_the_twin(ops in prop::collection::vec(op(), 1..200)) {
        follow::<[u8], u64>(&ops, byte_key, word_value);
        follow::<u64, [u8]>(&ops, word_key, byte_value);
    }
}

#[test]
fn a_table_works_far_past_its_plan() {
    let table: TurboHash<u64, u64> = table(&small());
    for key in 0..20_000 {
        assert!(table.put(&key, &(key * 3)).expect("space"));
    }
    for key in 0..20_000 {
        assert_eq!(table.get(&key).expect("sound"), Some(key * 3));
        assert_eq!(table.get(&(key + 20_000)).expect("sound"), None);
    }
    check(&table);
    for key in 0..20_000 {
        assert_eq!(table.fetch_add(&key, 1).expect("space"), Some(key * 3));
    }
    assert_eq!(table.fetch_add(&20_000, 5).expect("space"), None);
    assert_eq!(table.get(&20_000).expect("sound"), Some(5));
    check(&table);
}

/// Keys whose homes are neighbours fill their path when the rest of the array is empty.
#[test]
fn keys_that_crowd_at_one_place_make_their_shard_grow() {
    let table: TurboHash<u64, u64> = table(&small());
    let place = ShardPlace::new(0, 64, 0).expect("a place");
    let is_near = |hash: u64| {
        let home = ProbePath::new(place, hash).next();
        table.shard_index(hash) == 0 && home == Some(20)
    };
    let crowd = (0..).filter(|key| is_near(u64::hash_of_slot(*key, &table.seed)));
    for (count, key) in crowd.enumerate().take(600) {
        let added = table.put(&key, &(key * 3));
        assert!(added.is_ok_and(|new| new), "key {count} of the crowd");
    }
    check(&table);
    assert_eq!(table.len(), 600);
}

/// Deletes give the space back by themselves.
#[test]
fn mass_deletes_shrink_the_table() {
    let table: TurboHash<u64, u64> = table(&small());
    for key in 0..20_000 {
        table.put(&key, &key).expect("space");
    }
    let full = table.stats().buckets;
    for key in 0..19_990 {
        table.remove(&key).expect("sound");
    }
    check(&table);
    let drained = table.stats().buckets;
    assert!(drained * 100 < full, "{drained} of {full} buckets are left");
    table.clear().expect("sound");
    assert_eq!(table.stats().buckets, 0);
    check(&table);
}

/// Without garbage collection deletes stretch the paths of absent keys, with it they do not.
#[test]
fn garbage_is_collected_when_it_stretches_paths() {
    let paths = |collects_garbage| {
        let options = Options {
            collects_garbage,
            ..small()
        };
        let table: TurboHash<u64, u64> = table(&options);
        let count = 9_000;
        for round in 0..8 {
            for key in 0..count {
                table.put(&(round * count + key), &key).expect("space");
                if round > 0 {
                    table.remove(&((round - 1) * count + key)).expect("sound");
                }
            }
        }
        check(&table);
        table.stats()
    };
    let (littered, clean) = (paths(false), paths(true));
    assert!(littered.path_mean() > 4.0, "{littered:?}");
    assert!(clean.path_mean() < 2.0, "{clean:?}");
}

/// When the pool is full, inserts fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_table_usable() {
    let size = 256 << 10;
    let table: TurboHash<[u8], [u8]> =
        TurboHash::create(&pool(size), &small()).expect("a small table");
    let mut kept = 0_u64;
    let failed = loop {
        match table.put(&kept.to_le_bytes(), &[1; 100]) {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, Error::Media(_)), "{failed}");
    assert!(kept > 100);
    check(&table);
    for key in 0..kept {
        let value = table.get(&key.to_le_bytes()).expect("sound");
        assert_eq!(value.as_deref(), Some(&[1; 100][..]));
    }
    assert_eq!(table.get(&kept.to_le_bytes()).expect("sound"), None);
    for key in 0..kept / 2 {
        assert!(table.remove(&key.to_le_bytes()).expect("sound").is_some());
    }
    table.pool().collect();
    assert!(table.put(&kept.to_le_bytes(), &[2; 100]).expect("space"));
    check(&table);
}

#[test]
fn what_is_no_table_of_these_kinds_is_refused() {
    let pool = pool(1 << 20);
    let open = TurboHash::<u64, u64>::open(&pool, &small());
    assert!(matches!(open, Err(Error::NoRoot)));
    drop(TurboHash::<u64, u64>::create(&pool, &small()).expect("a table"));
    let again = TurboHash::<u64, u64>::create(&pool, &small());
    assert!(matches!(again, Err(Error::RootTaken)));
    let other = TurboHash::<u64, [u8]>::open(&pool, &small());
    assert!(matches!(other, Err(Error::OtherKind)));
    let mut values = [None; 2];
    let table = TurboHash::<u64, u64>::open(&pool, &small()).expect("a table");
    let lengths = table.get_many(&[1_u64], &mut values);
    assert!(matches!(lengths, Err(Error::Lengths { one: 1, two: 2 })));
}

/// Every bit of header and directory that is flipped is found, or changes nothing.
#[test]
fn a_damaged_header_or_directory_is_refused() {
    let pool = pool(1 << 20);
    let table = TurboHash::<u64, u64>::create(&pool, &small()).expect("a table");
    for key in 0..50 {
        table.put(&key, &key).expect("space");
    }
    let root = pool.root::<super::layout::Header>().raw();
    let mut refused = 0;
    for bit in 0..8 * (64 + 2 * 32) {
        let (at, mask) = (root + bit / 8, 1 << (bit % 8));
        let open = || TurboHash::<u64, u64>::open(&pool, &small());
        while_flipped(&pool, at, mask, || match open() {
            Err(_) => refused += 1,
            // Damage of what is not in use, or a place that leads elsewhere in the pool.
            Ok(table) => drop(table.check()),
        });
    }
    assert!(refused > 8 * 64 - 64, "{refused}");
}

/// The words of metadata of all buckets.
fn metadata(table: &TurboHash<u64, u64>) -> Vec<u64> {
    let places = table.shards.iter().map(Shard::place);
    let bucket = |place: ShardPlace| {
        (0..place.count()).map(move |index| place.offset() + index * BUCKET_BYTES)
    };
    places.flat_map(bucket).collect()
}

/// A wrong bit in the metadata of a bucket made writers write over an entry, as what seemed free
/// was none of its slots, and an update found no free slot where one is always left.
#[test]
fn a_wrong_bit_in_metadata_is_told_or_harmless() {
    const KEYS: u64 = 100;
    ask_bits(
        (0..32).collect(),
        TurboHash::<u64, u64>::pool_options,
        |pool| {
            let table = TurboHash::<u64, u64>::create(pool, &small()).expect("a table");
            let is_full = |at: &u64| {
                let bucket: &Bucket = pool.at(POff::new(*at));
                bucket.meta().empty().count_ones() == 1
            };
            let mut keys = 0..KEYS;
            while !metadata(&table).iter().any(is_full) {
                let key = keys.next().expect("some bucket is full before");
                table.put(&key, &key).expect("space");
            }
            metadata(&table)
        },
        |wrong, pool| {
            let table = TurboHash::<u64, u64>::open(pool, &small()).expect("a sound header");
            may_be(wrong, table.check());
            may_be(wrong, Index::for_each(&table, &mut |_, _| ()));
            for key in 0..KEYS {
                let found = table.get(&key).expect("words are always sound");
                assert!(found.is_none_or(|value| value == key), "{wrong:?}: {key}");
                may_be(wrong, table.update(&key, &key));
            }
            for key in 0..KEYS {
                // What was there before is there, or the entry that a wrong bit has ended.
                let found = table.get(&key).expect("words are always sound");
                assert!(found.is_none_or(|value| value == key), "{wrong:?}: {key}");
            }
            for key in 0..KEYS {
                may_be(wrong, table.insert(&(key + KEYS), &0));
                may_be(wrong, table.remove(&key));
            }
            may_be(wrong, table.compact());
            may_be(wrong, table.check());
        },
    );
}

/// The paper's reader returns what it sees. Here it first makes it durable if a writer may be
/// between publish and flush; without that, an answer is lost in a crash, and the explorer sees it.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&super::REGISTERED).expect("words are keys");
    interleaved::catch_readers(keys, |file| file.ends_with("turbo/readpath.rs"));
}
