//! The MemTable against a naive twin, and with readers beside its writer.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gabion_media::seeded::SeededRng;
use proptest::prelude::*;

use super::*;
use crate::operands::Operands;
use crate::types::{SEQ_MAX, hash_key};

/// Key, sequence number, kind, value.
type Version = (Vec<u8>, Seq, Kind, Vec<u8>);

/// Key and sequence number, in the order of tables.
type Place = (Vec<u8>, Reverse<Seq>);

/// All versions in the order of tables: what the MemTable has to agree with.
#[derive(Default)]
struct Twin {
    records: BTreeMap<Place, (Kind, Vec<u8>)>,
}

impl Twin {
    fn get(&self, key: &[u8], seq: Seq) -> Option<(Seq, Kind, &[u8])> {
        let from = (key.to_vec(), Reverse(seq));
        let ((found, Reverse(seq)), (kind, value)) = self.records.range(from..).next()?;
        (found == key).then_some((*seq, *kind, value))
    }

    fn insert(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> bool {
        if self
            .get(key, SEQ_MAX)
            .is_some_and(|(newest, _, _)| newest >= seq)
        {
            return false;
        }
        self.records
            .insert((key.to_vec(), Reverse(seq)), (kind, value.to_vec()));
        true
    }

    fn list(&self) -> Vec<Version> {
        let records = self.records.iter();
        records
            .map(|((k, Reverse(s)), (kind, v))| (k.clone(), *s, *kind, v.clone()))
            .collect()
    }

    fn newest(&self) -> Vec<Version> {
        let mut newest = self.list();
        newest.dedup_by(|older, newer| older.0 == newer.0);
        newest
    }
}

fn list(cursor: &mut MemCursor) -> Vec<Version> {
    let mut records = Vec::new();
    cursor.seek_first();
    while cursor.valid() {
        let (key, value) = (cursor.key().to_vec(), cursor.value_bytes().to_vec());
        records.push((key, cursor.seq(), cursor.kind(), value));
        cursor.next();
    }
    records
}

/// The newest version of each key, found without a look at every older one.
fn list_keys(cursor: &mut MemCursor) -> Vec<Version> {
    let mut newest: Vec<Version> = Vec::new();
    cursor.seek_first();
    while cursor.valid() {
        if newest.last().is_none_or(|(key, ..)| key != cursor.key()) {
            let (key, value) = (cursor.key().to_vec(), cursor.value_bytes().to_vec());
            newest.push((key, cursor.seq(), cursor.kind(), value));
        }
        cursor.next_key();
    }
    newest
}

#[derive(Clone, Debug)]
enum Step {
    Insert {
        key: Vec<u8>,
        seq_back: u64,
        kind: Kind,
        value_len: usize,
    },
    Get {
        key: Vec<u8>,
        seq_back: u64,
    },
    Sorted,
    Walk {
        key: Vec<u8>,
        moves: Vec<Move>,
    },
}

#[derive(Clone, Copy, Debug)]
enum Move {
    First,
    Last,
    Seek,
    SeekBefore,
    Next,
    Prev,
}

/// Keys that collide in their beginnings, in zeros at their ends, and with each other.
fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let tail = || proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xff)], 0..4);
    prop_oneof![
        4 => (0..40u8).prop_map(|n| vec![b'k', n]),
        2 => tail(),
        2 => tail().prop_map(|tail| [&b"a beginning that is shared"[..], &tail].concat()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![Just(Kind::Put), Just(Kind::Delete)];
    let value_len = prop_oneof![20 => 0..200usize, 1 => 16_000..17_000usize];
    let step = prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        1 => Just(Move::Seek),
        1 => Just(Move::SeekBefore),
        6 => Just(Move::Next),
        6 => Just(Move::Prev),
    ];
    prop_oneof![
        20 => (any_key(), 0..4u64, kind, value_len).prop_map(|(key, seq_back, kind, value_len)| {
            Step::Insert { key, seq_back, kind, value_len }
        }),
        5 => (any_key(), 0..100u64).prop_map(|(key, seq_back)| Step::Get { key, seq_back }),
        1 => Just(Step::Sorted),
        1 => (any_key(), proptest::collection::vec(step, 0..40))
            .prop_map(|(key, moves)| Step::Walk { key, moves }),
    ]
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 2 } else { cases },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Moves a cursor and a position in the twin's list alike.
fn walk(cursor: &mut MemCursor, twin: &Twin, key: &[u8], moves: &[Move]) {
    let records = twin.list();
    let below = records.iter().filter(|(k, ..)| k.as_slice() < key).count();
    let mut position: Option<usize> = None;
    for step in moves {
        position = match (step, position) {
            (Move::First, _) => Some(0),
            (Move::Last, _) => records.len().checked_sub(1),
            (Move::Seek, _) => Some(below),
            (Move::SeekBefore, _) => below.checked_sub(1),
            (Move::Next, Some(position)) => Some(position + 1),
            (Move::Prev, Some(position)) => position.checked_sub(1),
            (Move::Next | Move::Prev, None) => continue,
        }
        .filter(|position| *position < records.len());
        match step {
            Move::First => cursor.seek_first(),
            Move::Last => cursor.seek_last(),
            Move::Seek => cursor.seek(key),
            Move::SeekBefore => cursor.seek_before(key),
            Move::Next => cursor.next(),
            Move::Prev => cursor.prev(),
        }
        assert_eq!(cursor.valid(), position.is_some(), "{step:?}");
        if let Some(position) = position {
            let (key, seq, kind, value) = &records[position];
            assert_eq!(
                (cursor.key(), cursor.seq(), cursor.kind()),
                (&key[..], *seq, *kind)
            );
            assert_eq!(cursor.value(), &value[..]);
        }
    }
}

fn any_keep() -> impl Strategy<Value = OrderPolicy> {
    prop_oneof![
        Just(OrderPolicy::Never),
        (0..5u32).prop_map(OrderPolicy::AfterSearches),
        Just(OrderPolicy::Always),
    ]
}

fn run(steps: Vec<Step>, hash: impl Fn(&[u8]) -> u64, (expected_keys, keep): (usize, OrderPolicy)) {
    let pool = ChunkPool::new(1 << 20);
    let table = MemTable::with_order(&pool, expected_keys, keep, 0);
    let mut twin = Twin::default();
    let mut seq = 10;
    let (mut user_bytes, mut tombstones) = (0, 0);
    for step in steps {
        match step {
            Step::Insert {
                key,
                seq_back,
                kind,
                value_len,
            } => {
                seq += 3;
                let seq = seq - seq_back * 3;
                let value = vec![seq.to_le_bytes()[0]; value_len];
                let inserted = twin.insert(&key, seq, kind, &value);
                table.prefetch(hash(&key));
                assert_eq!(table.insert(&key, hash(&key), seq, kind, &value), inserted);
                user_bytes += if inserted { key.len() + value.len() } else { 0 };
                tombstones += u64::from(inserted && kind == Kind::Delete);
            }
            Step::Get { key, seq_back } => {
                let seq = (seq + 1).saturating_sub(seq_back);
                let entry = table.get(&key, hash(&key), seq);
                assert_eq!(entry.map(|e| (e.seq, e.kind, e.value)), twin.get(&key, seq));
            }
            Step::Sorted => {
                // Before somebody has them sorted, and after.
                assert_eq!(list_keys(&mut table.newest().cursor()), twin.newest());
                assert_eq!(list(&mut table.search()), twin.list());
                assert_eq!(list_keys(&mut table.sorted()), twin.newest());
                assert_eq!(list_keys(&mut table.newest().cursor()), twin.newest());
            }
            Step::Walk { key, moves } => walk(&mut table.search(), &twin, &key, &moves),
        }
    }
    let seqs = || twin.records.keys().map(|(_, Reverse(seq))| *seq);
    let mut keys: Vec<_> = twin.records.keys().map(|(key, _)| key).collect();
    keys.dedup();
    assert_eq!(list_keys(&mut table.newest().cursor()), twin.newest());
    assert_eq!(table.items(), twin.records.len());
    assert_eq!(table.is_empty(), twin.records.is_empty());
    assert_eq!(table.keys(), keys.len());
    assert_eq!(table.user_bytes(), user_bytes as u64);
    assert_eq!(table.tombstones(), tombstones);
    assert_eq!(table.max_seq(), seqs().max().unwrap_or(0));
    let mut cursor = table.sorted();
    assert_eq!(list(&mut cursor), twin.list());
    drop(table);
    assert_eq!(list(&mut cursor), twin.list());
    drop(cursor);
    assert_eq!(pool.allocated_bytes(), 0);
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn agrees_with_a_sorted_map(
        steps in proptest::collection::vec(any_step(), 0..if cfg!(miri) { 30 } else { 600 }),
        expected_keys in 0..300usize,
        keep in any_keep(),
    ) {
        run(steps, hash_key, (expected_keys, keep));
    }

    #[test]
    fn agrees_with_a_sorted_map_when_hashes_collide(
        steps in proptest::collection::vec(any_step(), 0..if cfg!(miri) { 30 } else { 600 }),
        hashes in 1..4u64,
        keep in any_keep(),
    ) {
        run(steps, |key| (hash_key(key) % hashes) << 48, (0, keep));
    }
}

/// A key that orders like its number.
fn key_of(number: u64) -> [u8; 8] {
    number.swap_bytes().to_le_bytes()
}

/// Puts keys with one version each into a table that is in order, and into its twin.
fn insert_all(table: &MemTable, twin: &mut Twin, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        let (key, seq) = (key_of(key), key + 1);
        table.insert(&key, hash_key(&key), seq, Kind::Put, b"");
        twin.insert(&key, seq, Kind::Put, b"");
    }
}

#[test]
fn a_tree_of_several_levels_is_in_order_whatever_order_it_was_filled_in() {
    let count = if cfg!(miri) { 300 } else { 20_000u64 };
    let scattered = |key: u64| key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    type Filling = Box<dyn Iterator<Item = u64>>;
    let fillings: [Filling; 4] = [
        Box::new(0..count),
        Box::new((0..count).rev()),
        Box::new((0..count).map(scattered)),
        Box::new((0..count).map(move |key| key % 2 * count + key / 2)),
    ];
    for (number, filling) in fillings.into_iter().enumerate() {
        let table = MemTable::with_order(&ChunkPool::new(0), 0, OrderPolicy::Always, 3);
        let mut twin = Twin::default();
        insert_all(&table, &mut twin, filling);
        assert!(table.is_in_order() && !table.hands_on_order());
        assert_eq!(list(&mut table.search()), twin.list());
        assert!(table.hands_on_order());
        let expected = twin.records.len() as u64;
        assert_eq!(count_through(&mut table.search(), SEQ_MAX, true), expected);
        for key in (0..count).step_by(37).map(scattered) {
            let key = key_of(key);
            let mut cursor = table.sorted();
            cursor.seek(&key);
            let place = (key.to_vec(), Reverse(SEQ_MAX));
            let next = twin.records.range(place.clone()..).next();
            let next = next.map(|((key, _), _)| key.as_slice());
            assert_eq!(
                cursor.valid().then(|| cursor.key()),
                next,
                "filling {number}"
            );
            cursor.seek_before(&key);
            let last = twin.records.range(..place).next_back();
            let last = last.map(|((key, _), _)| key.as_slice());
            assert_eq!(
                cursor.valid().then(|| cursor.key()),
                last,
                "filling {number}"
            );
        }
    }
}

#[test]
fn keys_that_ascend_fill_their_nodes() {
    let held = |keys: &mut dyn Iterator<Item = u64>, keep| {
        let table = MemTable::with_order(&ChunkPool::new(0), 2_000, keep, 0);
        insert_all(&table, &mut Twin::default(), keys);
        table.memory_bytes()
    };
    let hash = held(&mut (0..2_000), OrderPolicy::Never);
    let ascending = held(&mut (0..2_000), OrderPolicy::Always);
    let chunk = 64 << 10;
    // A node of 256 bytes for 14 keys, and a chunk that is not full.
    assert!(
        ascending <= hash + 2_000 * 256 / 13 + chunk,
        "{hash} {ascending}"
    );
}

proptest! {
    #![proptest_config(config(200))]

    /// A cursor that stands somewhere while others insert goes on through all that was there when
    /// it was made, in order and once.
    #[test]
    fn cursors_outlive_the_splits_of_their_leaves(
        before in proptest::collection::btree_set(0..400u64, 1..120),
        after in proptest::collection::vec(0..400u64, 0..200),
        steps in 0..60usize,
        backward: bool,
    ) {
        let table = MemTable::with_order(&ChunkPool::new(0), 0, OrderPolicy::Always, 0);
        let mut twin = Twin::default();
        insert_all(&table, &mut twin, before.iter().copied());
        let mut cursor = table.search();
        let mut seen = Vec::new();
        let mut step = |cursor: &mut MemCursor| {
            let bytes = cursor.key().try_into().unwrap();
            seen.push(u64::from_le_bytes(bytes).swap_bytes());
            match backward {
                true => cursor.prev(),
                false => cursor.next(),
            }
        };
        match backward {
            true => cursor.seek_last(),
            false => cursor.seek_first(),
        }
        for _ in 0..steps {
            if cursor.valid() {
                step(&mut cursor);
            }
        }
        insert_all(&table, &mut twin, after);
        while cursor.valid() {
            step(&mut cursor);
        }
        if backward {
            seen.reverse();
        }
        prop_assert!(seen.is_sorted_by(|a, b| a < b), "{:?}", seen);
        prop_assert!(before.iter().all(|key| seen.binary_search(key).is_ok()), "{:?}", seen);
        let all = seen.iter().all(|key| twin.get(&key_of(*key), SEQ_MAX).is_some());
        prop_assert!(all, "{:?}", seen);
    }
}

#[test]
fn searches_between_writes_put_a_table_in_order() {
    let pool = ChunkPool::new(0);
    let table = MemTable::with_order(&pool, 0, OrderPolicy::AfterSearches(3), 0);
    let mut twin = Twin::default();
    insert_all(&table, &mut twin, 0..1000);
    for round in 0..3 {
        assert!(!table.is_in_order() && !table.hands_on_order());
        // What was met once, and what a flush sorts, does not count.
        insert_all(&table, &mut twin, [2_000 + round, 1_500 - round]);
        assert_eq!(list(&mut table.sorted()), twin.list());
        insert_all(&table, &mut twin, [3_000 + round, 2_500 - round]);
        assert_eq!(list(&mut table.search()), twin.list());
        assert_eq!(list(&mut table.search()), twin.list());
    }
    assert!(table.is_in_order() && table.hands_on_order());
    // The list that was sorted is gone, the nodes are in the table's own memory.
    assert_eq!(pool.allocated_bytes(), table.memory_bytes());
    let next = MemTable::with_order(&pool, 0, OrderPolicy::Always, 0);
    insert_all(&next, &mut Twin::default(), 0..10);
    next.sorted().seek_first();
    assert!(!next.hands_on_order(), "a flush is no search");
}

#[test]
fn an_empty_table_holds_nothing() {
    let pool = ChunkPool::new(0);
    let table = MemTable::new(&pool, 1_000_000);
    assert_eq!(pool.allocated_bytes(), 0);
    assert_eq!(table.get(b"key", hash_key(b"key"), SEQ_MAX), None);
    let mut cursor = table.sorted();
    cursor.seek_last();
    assert!(!cursor.valid());
    cursor.seek(b"");
    assert!(!cursor.valid());
}

#[test]
fn the_pool_counts_what_the_tables_hold() {
    let count = if cfg!(miri) { 100 } else { 3000 };
    let pool = ChunkPool::new(1 << 20);
    let held = |tables: &[MemTable]| tables.iter().map(MemTable::memory_bytes).sum::<u64>();
    let mut tables = Vec::new();
    for generation in 1..6u64 {
        let table = MemTable::new(&pool, 0);
        for i in 0..count * generation {
            let key = i.to_le_bytes();
            let value = vec![0; if i % 97 == 0 { 20_000 } else { 100 }];
            table.insert(&key, hash_key(&key), i + 1, Kind::Put, &value);
        }
        assert!(table.memory_bytes() > table.user_bytes());
        tables.push(table);
        assert_eq!(pool.allocated_bytes(), held(&tables));
        if generation == 3 {
            tables.remove(0);
            assert_eq!(pool.allocated_bytes(), held(&tables));
        }
    }
    drop(tables);
    assert_eq!(pool.allocated_bytes(), 0);
}

#[test]
fn a_hot_key_takes_one_slot_and_keeps_its_versions() {
    let versions = if cfg!(miri) { 100 } else { 50_000 };
    let pool = ChunkPool::new(0);
    let table = MemTable::new(&pool, 0);
    let hash = hash_key(b"hot");
    for seq in 1..=versions {
        assert!(table.insert(b"hot", hash, seq, Kind::Put, &seq.to_le_bytes()));
        let entry = table.get(b"hot", hash, SEQ_MAX).unwrap();
        assert_eq!((entry.seq, entry.value), (seq, &seq.to_le_bytes()[..]));
    }
    assert_eq!(table.keys(), 1);
    for seq in [1, versions / 2, versions] {
        assert_eq!(table.get(b"hot", hash, seq).unwrap().seq, seq);
    }
    assert_eq!(table.get(b"hot", hash, 0), None);
    // As nobody has sorted it, older versions are left out.
    assert_eq!(list(&mut table.newest().cursor()).len(), 1);
    let seqs: Vec<_> = list(&mut table.sorted())
        .iter()
        .map(|(_, seq, ..)| *seq)
        .collect();
    assert!(seqs.iter().copied().eq((1..=versions).rev()));
    // They lie in one run, so one step passes all of them.
    let mut cursor = table.sorted();
    cursor.seek(b"hot");
    assert_eq!(cursor.seq(), versions);
    cursor.next_key();
    assert!(!cursor.valid());
}

#[test]
fn long_shared_beginnings_sort_level_by_level() {
    // One odd key makes all others agree in their prefixes, and they agree in many more bytes.
    let count = if cfg!(miri) { 40u32 } else { 5000 };
    let table = MemTable::new(&ChunkPool::new(0), 0);
    let mut twin = Twin::default();
    let mut insert = |key: &[u8], seq| {
        table.insert(key, hash_key(key), seq, Kind::Put, b"");
        twin.insert(key, seq, Kind::Put, b"");
    };
    insert(b"odd", 1);
    for i in 0..count {
        let number = format!("{:08x}", i.wrapping_mul(0x9e37_79b9));
        insert(
            format!("tenant/000000001/user/{}/{number}", number.len()).as_bytes(),
            2,
        );
        insert(
            format!("tenant/000000001/user/{}", &number[..3]).as_bytes(),
            u64::from(i) + 3,
        );
        insert(&vec![0; (i % 50) as usize], u64::from(i) + 3);
    }
    assert_eq!(list(&mut table.sorted()), twin.list());
}

#[test]
fn keys_at_both_ends_of_the_allowed_lengths() {
    let table = MemTable::new(&ChunkPool::new(0), 0);
    for len in [0, 1, 65_534, 65_535] {
        let key = vec![7; len];
        assert!(table.insert(&key, hash_key(&key), 1, Kind::Put, &key));
        assert_eq!(table.get(&key, hash_key(&key), 1).unwrap().value, key);
    }
}

#[test]
fn a_key_that_is_too_long_leaves_the_table_as_it_was() {
    let table = MemTable::new(&ChunkPool::new(0), 0);
    table.insert(b"a", hash_key(b"a"), 1, Kind::Put, b"1");
    let insert = || table.insert(&[0; 65_536], 5, 2, Kind::Put, b"");
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(insert)).is_err());
    table.insert(b"b", hash_key(b"b"), 3, Kind::Put, b"2");
    let keys: Vec<_> = list(&mut table.sorted())
        .into_iter()
        .map(|(key, ..)| key)
        .collect();
    assert_eq!(keys, [b"a", b"b"]);
}

#[test]
fn the_first_pin_stays_until_it_is_replaced() {
    let table = MemTable::new(&ChunkPool::new(0), 0);
    assert_eq!(table.pin(), None);
    table.pin_once(3);
    table.pin_once(2);
    assert_eq!(table.pin(), Some(3));
    table.replace_pin(9);
    table.pin_once(10);
    assert_eq!(table.pin(), Some(9));
}

#[test]
fn the_oldest_pin_stays_where_records_come_in_any_order() {
    let table = MemTable::new(&ChunkPool::new(0), 0);
    for (segment, pin) in [(5, 5), (7, 5), (3, 3), (4, 3)] {
        table.pin_no_later(segment);
        assert_eq!(table.pin(), Some(pin));
    }
}

#[test]
fn sorted_views_are_shared_until_something_is_inserted() {
    let pool = ChunkPool::new(0);
    let table = MemTable::new(&pool, 0);
    for i in 0..1000u32 {
        let key = i.to_le_bytes();
        table.insert(&key, hash_key(&key), 1, Kind::Put, b"");
    }
    let first = table.sorted();
    let counted = pool.allocated_bytes();
    let _second = table.sorted();
    assert_eq!(pool.allocated_bytes(), counted);
    table.insert(b"new", hash_key(b"new"), 2, Kind::Put, b"");
    let mut third = table.sorted();
    assert_eq!(list(&mut third).len(), 1001);
    // The large run is shared, only the new record was sorted.
    assert!(pool.allocated_bytes() - counted < 100);
    drop(first);
}

/// What the readers below look for: key `i` has version `v` when `published >= v * keys + i + 1`.
struct Shared {
    table: MemTable,
    published: AtomicU64,
    done: AtomicBool,
}

/// Walks over all records, which must come in order, and counts those up to `seq`.
fn count_through(cursor: &mut MemCursor, seq: Seq, backward: bool) -> u64 {
    let (mut seen, mut last) = (0, None::<Place>);
    match backward {
        true => cursor.seek_last(),
        false => cursor.seek_first(),
    }
    while cursor.valid() {
        seen += u64::from(cursor.seq() <= seq);
        let here = (cursor.key().to_vec(), Reverse(cursor.seq()));
        let in_order = |last| match backward {
            true => here < last,
            false => last < here,
        };
        assert!(last.is_none_or(in_order));
        last = Some(here);
        match backward {
            true => cursor.prev(),
            false => cursor.next(),
        }
    }
    seen
}

/// Inserts versions of all keys round by round while readers look for everything published, at the
/// newest and at older sequence numbers, by gets and by cursors.
fn read_beside_the_writer(keys: u64, rounds: u64, hash: fn(u64) -> u64, keep: OrderPolicy) {
    let shared = Arc::new(Shared {
        table: MemTable::with_order(&ChunkPool::new(0), 0, keep, 0),
        published: AtomicU64::new(0),
        done: AtomicBool::new(false),
    });
    let bytes = |key: u64| key.to_le_bytes();
    // The newest version that key `key` must have at sequence number `seq`.
    let version_at =
        move |key: u64, seq: u64| (seq > key).then(|| (seq - key - 1) / keys * keys + key + 1);
    let reader = |seed: u64, scans: bool| {
        let shared = Arc::clone(&shared);
        move || {
            let (mut random, mut backward) = (seed, false);
            let mut last_round = false;
            while !last_round {
                // ORDER: Acquire pairs with the Release after the last insert.
                last_round = shared.done.load(Ordering::Acquire);
                // ORDER: Acquire pairs with the Release after each insert.
                let seq = shared.published.load(Ordering::Acquire);
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let key = (random >> 33) % keys;
                for seq in [seq, seq / 2] {
                    let entry = shared.table.get(&bytes(key), hash(key), seq);
                    assert_eq!(entry.map(|entry| entry.seq), version_at(key, seq));
                    if let Some(entry) = entry {
                        assert_eq!(entry.value, (entry.seq ^ key).to_le_bytes());
                    }
                }
                if scans {
                    backward = !backward;
                    let seen = count_through(&mut shared.table.search(), seq, backward);
                    assert_eq!(seen, seq);
                }
            }
        }
    };
    let readers: Vec<_> = (0..2)
        .map(|seed| std::thread::spawn(reader(seed, false)))
        .chain([std::thread::spawn(reader(2, true))])
        .collect();
    for seq in 1..=keys * rounds {
        let key = (seq - 1) % keys;
        let value = (seq ^ key).to_le_bytes();
        assert!(
            shared
                .table
                .insert(&bytes(key), hash(key), seq, Kind::Put, &value)
        );
        // ORDER: Release pairs with the Acquire in the readers.
        shared.published.store(seq, Ordering::Release);
    }
    // ORDER: Release pairs with the Acquire in the readers.
    shared.done.store(true, Ordering::Release);
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn readers_see_all_that_was_published_while_it_grows() {
    let keys = if cfg!(miri) { 100 } else { 20_000 };
    let hash = |key: u64| hash_key(&key.to_le_bytes());
    read_beside_the_writer(keys, 3, hash, OrderPolicy::Never);
    read_beside_the_writer(keys, 3, hash, OrderPolicy::AfterSearches(3));
}

/// Few keys, so that walks meet splits of the leaf they are in.
#[test]
fn walks_see_all_that_was_published_while_nodes_split() {
    let (keys, repeats) = if cfg!(miri) { (30, 1) } else { (60, 300) };
    let hash = |key: u64| hash_key(&key.to_le_bytes());
    for _ in 0..repeats {
        read_beside_the_writer(keys, 2, hash, OrderPolicy::Always);
    }
    let keys = if cfg!(miri) { 60 } else { 5_000 };
    read_beside_the_writer(keys, 3, hash, OrderPolicy::Always);
}

#[test]
fn readers_see_all_that_was_published_while_lines_spill() {
    let (keys, repeats) = if cfg!(miri) { (20, 1) } else { (40, 300) };
    for _ in 0..repeats {
        read_beside_the_writer(keys, 2, |key| key % 2, OrderPolicy::Never);
    }
}

/// A small MemTable is logged again whole. Where the log still has a newer write to the first key
/// of a range, replay meets that write first and the range delete, older, after it. It was taken
/// for a repetition and ignored, and what it had deleted was there again.
#[test]
fn a_range_delete_counts_though_its_first_key_has_a_newer_version() {
    let pool = ChunkPool::new(0);
    let table = MemTable::new(&pool, 0);
    assert!(table.insert(b"b", hash_key(b"b"), 3, Kind::Put, b"newer"));
    assert!(table.insert(b"c", hash_key(b"c"), 1, Kind::Put, b"deleted"));
    assert!(table.insert_range(b"b", Some(b"d"), 2));
    assert!(!table.insert_range(b"b", Some(b"d"), 2), "a repetition");
    assert!(table.insert_range(b"a", None, 4));
    let ranges = table.range_deletes().clone();
    let seqs: Vec<_> = ranges.iter().flat_map(|range| range.iter()).collect();
    assert_eq!(seqs.len(), 2);
    assert!(seqs[0].seqs == [2] && seqs[1].seqs == [4] && seqs[1].upper.is_none());
}

/// Replay goes in any order, so a merge may come before what it needs; and what it covers may come
/// behind it.
#[test]
fn what_a_merge_needs_goes_below_it_in_any_order() {
    let merge = |seq: Seq, since: Seq| (seq, Kind::Merge, Operands::one(b"x").from(since).encode());
    let put = |seq: Seq| (seq, Kind::Put, b"value".to_vec());
    // The merge 7 covers 5 and 6; 3 is hidden by the put 4.
    let versions = [
        put(3),
        put(4),
        merge(5, 5),
        merge(6, 5),
        merge(7, 5),
        merge(9, 9),
    ];
    let visible = [9, 7, 4];
    let mut order: Vec<usize> = (0..versions.len()).collect();
    let mut random = SeededRng::new(3);
    for round in 0..400 {
        for at in (1..order.len()).rev() {
            order.swap(at, random.index(at + 1));
        }
        let keep = [OrderPolicy::Never, OrderPolicy::Always][round % 2];
        let table = MemTable::with_order(&ChunkPool::new(1 << 20), 0, keep, 0);
        for at in order.iter().chain(&order) {
            let (seq, kind, stored) = &versions[*at];
            table.insert(b"key", hash_key(b"key"), *seq, *kind, stored);
        }
        let walk = |from: &dyn Fn(Seq) -> Option<(Seq, Kind, Vec<u8>)>| {
            let (mut seen, mut next) = (Vec::new(), Seq::MAX);
            while let Some((seq, kind, stored)) = from(next) {
                seen.push(seq);
                match kind {
                    Kind::Merge => next = Operands::below_of(&stored, seq).unwrap() - 1,
                    _ => break,
                }
            }
            seen
        };
        let get = |seq| {
            let entry = table.get(b"key", hash_key(b"key"), seq)?;
            Some((entry.seq, entry.kind, entry.value.to_vec()))
        };
        assert_eq!(walk(&get), visible, "{order:?}");
        let mut listed = Vec::new();
        let mut cursor = table.sorted();
        cursor.seek_first();
        while cursor.valid() {
            listed.push((cursor.seq(), cursor.kind(), cursor.value_bytes().to_vec()));
            cursor.next();
        }
        let find = |seq: Seq| listed.iter().find(|own| own.0 <= seq).cloned();
        assert_eq!(walk(&find), visible, "{order:?} {listed:?}");
        let mut newest = table.newest().cursor();
        newest.seek_first();
        assert_eq!(newest.seq(), 9);
        newest.next_key();
        assert!(!newest.valid());
    }
}
