//! Layered indexes in special situations.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use gabion_media::pmem::model::{Model, Preset};
use gabion_media::pmem::{Pool, PoolOptions};
use parking_lot::Mutex;

use super::layout::{BASE_AT, MOVING_AT, RootState};
use super::recovery::{Waiting, starts_of};
use super::{Base, Layered, Options};
use crate::cceh::Cceh;
use crate::fastfair::FastFair;
use crate::index::IndexPlan;
use crate::registry::by_name;
use crate::skiplist::SkipList;
use crate::spoton::buffer::{Buffer, Tagged};
use crate::suite::damage::{ask_all, may_be};
use crate::suite::{self, SMALL, essay, words};
use crate::{Index, Seed};

/// Small parts and pages, so that few entries take many of them.
type TinyTree = Layered<FastFair<5>, 8>;

pub(super) fn pool<B: Base, const PAGE: usize>(size: u64) -> Pool {
    suite::pool(size, Layered::<B, PAGE>::pool_options())
}

pub(super) fn with(buffers: u64) -> Options {
    Options {
        buffers: Some(buffers),
        ..Options::default()
    }
}

fn index<B: Base, const PAGE: usize>(size: u64, buffers: u64) -> Layered<B, PAGE> {
    Layered::create_with(&pool::<B, PAGE>(size), SMALL, with(buffers)).expect("space")
}

/// The index as a crash of the process leaves it: what is in buffers is in the logs only.
pub(super) fn again<B: Base, const PAGE: usize>(index: Layered<B, PAGE>) -> Layered<B, PAGE> {
    let pool = index.pool().clone();
    drop(index);
    Layered::open(&pool).expect("an index")
}

pub(super) fn nodes<B: Base, const PAGE: usize>(index: &Layered<B, PAGE>) -> u64 {
    let (mut count, mut lkey) = (0, Some(0));
    while let Some(key) = lkey {
        count += 1;
        lkey = index.see(key).bound;
    }
    assert_eq!(count, index.nodes.in_use());
    count
}

pub(super) fn parts<B: Base, const PAGE: usize>(index: &Layered<B, PAGE>) -> u64 {
    let (mut count, mut part) = (0, Some(0));
    while let Some(key) = part {
        count += 1;
        part = index.base.next_part(key).expect("sound");
    }
    count
}

/// Pairs that may wait for one node.
fn pairs_of_node<B: Base>() -> usize {
    let shape = B::shape(SMALL.capacity);
    shape.ways * shape.pairs
}

/// Keys of which pairs wait in buffers.
fn keys_waiting<B: Base, const PAGE: usize>(index: &Layered<B, PAGE>) -> Vec<u64> {
    let (mut keys, mut lkey) = (Vec::new(), Some(0));
    while let Some(key) = lkey {
        let seen = index.see(key);
        let entries = index.buffers_of(seen.node).flat_map(Buffer::entries);
        keys.extend(entries.map(|entry| entry.key));
        lkey = seen.bound;
    }
    keys
}

/// Pairs that wait in buffers.
pub(super) fn waiting<B: Base, const PAGE: usize>(index: &Layered<B, PAGE>) -> u64 {
    keys_waiting(index).len() as u64
}

/// Random writes, each answer compared with a map's; all entries in the end.
pub(super) fn follow<B: Base, const PAGE: usize>(
    index: &Layered<B, PAGE>,
    twin: &mut BTreeMap<u64, u64>,
    seed: u64,
) {
    let random = Seed::new(seed);
    for number in 0..3000 {
        let drawn = random.hash_u64(number);
        let key = (drawn % 400) << 48;
        let (found, expected) = match drawn >> 32 & 7 {
            0..=3 => (index.insert(key, drawn), twin.insert(key, drawn)),
            4 => {
                let value = twin.get_mut(&key);
                let before = value.map(|value| std::mem::replace(value, drawn));
                (index.update(key, drawn), before)
            }
            5 | 6 => (index.remove(key), twin.remove(&key)),
            _ => (index.get(key), twin.get(&key).copied()),
        };
        let found = found.expect("space");
        assert_eq!(found, expected, "seed {seed}, operation {number}");
    }
    compare(index, twin);
}

pub(super) fn compare<B: Base, const PAGE: usize>(
    index: &Layered<B, PAGE>,
    twin: &BTreeMap<u64, u64>,
) {
    words::check(index, twin.len() as u64);
    let mut found = Vec::new();
    let mut visit = |key: &u64, value| found.push((*key, value));
    index.for_each(&mut visit).expect("sound");
    if let Some(ordered) = index.ordered() {
        let mut scanned = Vec::new();
        ordered.scan(&0, usize::MAX, &mut scanned).expect("sound");
        assert_eq!(found, scanned);
    }
    found.sort_unstable();
    assert!(twin.iter().map(|(key, value)| (*key, *value)).eq(found));
}

fn reopen_again_and_again<B: Base, const PAGE: usize>(buffers: u64) {
    let mut index = index::<B, PAGE>(4 << 20, buffers);
    let mut twin = BTreeMap::new();
    for seed in 0..6 {
        follow(&index, &mut twin, seed);
        let waited = waiting(&index);
        index = again(index);
        assert!(waiting(&index) <= waited, "seed {seed}");
        compare(&index, &twin);
    }
}

/// Few buffers, for which nodes have to wait, and as many as anybody wants; pages of the logs are
/// filled again and again.
#[test]
fn nothing_is_lost_from_opening_to_opening() {
    for buffers in [1, 4, 60, 1000] {
        reopen_again_and_again::<FastFair<5>, 8>(buffers);
        reopen_again_and_again::<SkipList<u64, 1>, 8>(buffers);
    }
    for buffers in [1, 4, 60] {
        reopen_again_and_again::<Cceh<false>, 8>(buffers);
    }
    reopen_again_and_again::<FastFair, 64>(20);
    reopen_again_and_again::<SkipList<u64>, 64>(20);
}

/// A pool of ordinary size: parts get nodes of their own as the base grows, and lose them as it
/// shrinks.
fn ranges_follow<B: Base, const PAGE: usize>() {
    let index = index::<B, PAGE>(16 << 20, 500);
    let random = Seed::new(5);
    let mut keys: Vec<u64> = (0..6000).map(|number| random.hash_u64(number)).collect();
    for &key in &keys {
        index.insert(key, key).expect("space");
    }
    index.compact().expect("space");
    assert_eq!(waiting(&index), 0);
    let (most, had) = (parts(&index), nodes(&index));
    assert!(most > 100 && had * 10 > most * 6, "{had} for {most} parts");
    let index = again(index);
    assert_eq!(nodes(&index), most);
    keys.sort_unstable();
    for &key in &keys[100..] {
        assert_eq!(index.remove(key).expect("sound"), Some(key));
    }
    (0..2).for_each(|_| index.compact().expect("space"));
    assert_eq!(nodes(&index), parts(&index));
    assert!(parts(&index) * 10 < most);
    words::check(&index, 100);
}

#[test]
fn ranges_follow_the_parts_of_the_base() {
    ranges_follow::<FastFair, 64>();
    ranges_follow::<SkipList<u64>, 64>();
}

#[test]
fn threads_grow_an_index_together() {
    words::grow_by_threads(&index::<FastFair, 64>(64 << 20, 2000));
    words::grow_by_threads(&index::<SkipList<u64>, 64>(64 << 20, 2000));
    words::grow_by_threads(&index::<Cceh<false>, 64>(64 << 20, 2000));
}

/// Threads that insert, delete and scan all at once.
#[test]
fn threads_agree() {
    words::threads_agree(&index::<FastFair<5>, 8>(32 << 20, 50));
    words::threads_agree(&index::<SkipList<u64, 1>, 8>(32 << 20, 50));
}

/// When the pool is full, inserts fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_index_usable() {
    words::fill_the_pool(&index::<FastFair, 64>(512 << 10, 30));
    words::fill_the_pool(&index::<SkipList<u64>, 64>(512 << 10, 30));
    words::fill_the_pool(&index::<Cceh<false>, 64>(512 << 10, 30));
}

/// Inserts random keys until the pool is full and the base has no space for so many pairs, and
/// returns what is there.
fn fill_up<B: Base, const PAGE: usize>(index: &Layered<B, PAGE>, stuck: u64) -> BTreeMap<u64, u64> {
    let random = Seed::new(9);
    let mut twin = BTreeMap::new();
    // Refused once is not full: other parts may have room.
    let (mut refused, mut rounds) = (0, 0);
    for number in 0.. {
        let key = random.hash_u64(number);
        match index.insert(key, number) {
            Ok(before) => assert_eq!(before, twin.insert(key, number)),
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                refused += 1;
            }
        }
        if refused == 2000 {
            index.go_round().expect("pages");
            let waits = waiting(index);
            if waits >= stuck {
                break;
            }
            (refused, rounds) = (0, rounds + 1);
            assert!(rounds < 10, "{waits} pairs wait, and not {stuck}");
        }
    }
    twin
}

/// The base has no space for what is in the buffers, and the logs get no more pages: the floor is
/// raised all the same, however often, and a crash loses nothing.
fn raise_in_a_full_pool<B: Base, const PAGE: usize>(size: u64) {
    let mut index = index::<B, PAGE>(size, 40);
    let mut twin = fill_up(&index, 1);
    // ORDER: Relaxed: nobody else is at work.
    let floor = index.floor.load(Ordering::Relaxed);
    let keys: Vec<u64> = twin.keys().copied().collect();
    for round in 0..8 {
        for key in &keys {
            let before = index.update(*key, round).expect("sound");
            assert_eq!(before, twin.insert(*key, round));
        }
        index = again(index);
        compare(&index, &twin);
    }
    let raised = index.floor.load(Ordering::Relaxed);
    assert!(raised > floor, "{raised}");
    for key in &keys {
        assert_eq!(index.remove(*key).expect("sound"), twin.remove(key));
    }
    words::check(&index, 0);
}

#[test]
fn a_full_pool_does_not_keep_the_floor() {
    raise_in_a_full_pool::<FastFair<5>, 8>(256 << 10);
    raise_in_a_full_pool::<SkipList<u64, 1>, 8>(256 << 10);
    // Directories of all sizes have chunks of their own.
    raise_in_a_full_pool::<Cceh<false>, 8>(2 << 20);
}

/// A round logs anew what the base has no space for, and a crash comes before the floor is raised,
/// though each page that was full before has changes that count: its pages are empty again, and
/// everything goes on.
fn crash_late_in_a_round<B: Base, const PAGE: usize>(buffers: u64) {
    let mut index = index::<B, PAGE>(2 << 20, buffers);
    let mut twin = fill_up(&index, buffers * pairs_of_node::<B>() as u64 * 9 / 10);
    index = again(index);
    let stuck = keys_waiting(&index);
    let needed = stuck.len().div_ceil(PAGE - 1);
    let least = index.reserve - 1;
    assert!(
        2 * needed > least,
        "{needed} pages for what waits, and {least} are empty"
    );
    // Each of the pages with what waits has something else, too.
    let is_other = |key: &u64| !stuck.contains(key);
    let others: Vec<u64> = twin.keys().copied().filter(is_other).collect();
    let (beside, others) = others.split_at(stuck.len());
    let both = stuck.iter().zip(beside).flat_map(|(one, two)| [*one, *two]);
    for key in both {
        assert_eq!(index.update(key, 1).expect("sound"), twin.insert(key, 1));
    }
    index = again(index);
    for key in others.iter().copied() {
        if index.logs.spare() <= least {
            break;
        }
        assert_eq!(index.update(key, 1).expect("sound"), twin.insert(key, 1));
    }
    for _ in 0..3 {
        assert_eq!(index.logs.spare(), least);
        let mut next = Some(0);
        while let Some(key) = next {
            next = index.visit(key).expect("pages");
        }
        assert!(index.logs.spare() < least);
        index = again(index);
    }
    compare(&index, &twin);
    let keys: Vec<u64> = twin.keys().copied().collect();
    for key in &keys {
        assert_eq!(index.update(*key, 2).expect("sound"), twin.insert(*key, 2));
    }
    index = again(index);
    compare(&index, &twin);
    for key in &keys {
        assert_eq!(index.remove(*key).expect("sound"), twin.remove(key));
    }
    words::check(&index, 0);
}

#[test]
fn a_crash_late_in_a_round_takes_no_pages() {
    crash_late_in_a_round::<SkipList<u64, 1>, 8>(100);
}

/// All buffers are full, the base has no space, and a crash finds changes in it that the logs do
/// not have: those are undone all the same.
fn undo_in_a_full_pool<B: Base, const PAGE: usize>() {
    let (buffers, undone) = (20, 30);
    let mut index = index::<B, PAGE>(2 << 20, buffers);
    let most = 20 * pairs_of_node::<B>();
    let twin = fill_up(&index, most as u64 * 9 / 10);
    index = again(index);
    let stuck = keys_waiting(&index);
    let is_stored = |key: &&u64| !stuck.contains(key);
    let keys: Vec<u64> = twin
        .keys()
        .filter(is_stored)
        .take(undone)
        .copied()
        .collect();
    assert!(stuck.len() + undone > most, "{} pairs wait", stuck.len());
    for key in &keys {
        assert_eq!(
            index.update(*key, twin[key]).expect("sound"),
            Some(twin[key])
        );
        index.base.update(key, 1 << 60).expect("sound");
    }
    for _ in 0..2 {
        index = again(index);
        compare(&index, &twin);
    }
    for (key, value) in &twin {
        assert_eq!(index.remove(*key).expect("sound"), Some(*value));
    }
    words::check(&index, 0);
}

#[test]
fn changes_are_undone_in_a_full_pool() {
    undo_in_a_full_pool::<SkipList<u64, 1>, 8>();
}

/// A crash finds an insert in the base that the logs do not have, of a key that was deleted last.
fn undo_an_insert<B: Base, const PAGE: usize>() {
    let mut index = index::<B, PAGE>(1 << 20, 4);
    for key in 1..20 {
        index.insert(key, key).expect("space");
    }
    assert_eq!(index.remove(7).expect("sound"), Some(7));
    index.base.insert(&7, 1).expect("space");
    for _ in 0..2 {
        index = again(index);
        assert_eq!(index.get(7).expect("sound"), None);
        words::check(&index, 18);
    }
}

#[test]
fn an_insert_without_record_is_undone() {
    undo_an_insert::<FastFair<5>, 8>();
    undo_an_insert::<SkipList<u64, 1>, 8>();
    undo_an_insert::<Cceh<false>, 8>();
}

/// A base of small parts fills a pool, and there are more of them than nodes.
fn open_with_many_parts<B: Base, const PAGE: usize>() {
    let mut index = index::<B, PAGE>(2 << 20, 4);
    let mut twin = fill_up(&index, 1);
    for key in keys_waiting(&index) {
        assert_eq!(index.remove(key).expect("sound"), twin.remove(&key));
    }
    let (most, parts) = (index.nodes.room() as u64, parts(&index));
    assert!(parts > most, "{parts} parts, and room for {most} nodes");
    index = again(index);
    assert!(nodes(&index) * 3 > most);
    compare(&index, &twin);
}

#[test]
fn small_parts_share_nodes() {
    open_with_many_parts::<FastFair<5>, 8>();
    open_with_many_parts::<SkipList<u64, 1>, 8>();
}

/// The router may know of no node but the first. A round finds the right neighbours of nodes all
/// the same.
fn join_without_router<B: Base, const PAGE: usize>() {
    let index = index::<B, PAGE>(1 << 20, 40);
    let keys = || (0..500).map(|key| key << 40);
    for key in keys() {
        index.insert(key, key).expect("space");
    }
    index.compact().expect("space");
    assert!(nodes(&index) > 20);
    let mut lkey = index.see(0).bound;
    while let Some(key) = lkey {
        index.router.remove(&key);
        lkey = index.see(key).bound;
    }
    for key in keys() {
        assert_eq!(index.remove(key).expect("sound"), Some(key));
    }
    let (told, hears) = mpsc::channel();
    // A round that waits for itself would keep this thread for ever.
    std::thread::spawn(move || {
        (0..2).for_each(|_| index.compact().expect("space"));
        told.send((nodes(&index), parts(&index)))
            .expect("a listener");
    });
    let (nodes, parts) = hears.recv_timeout(Duration::from_secs(60)).expect("an end");
    assert_eq!(nodes, parts);
}

#[test]
fn a_round_needs_no_router() {
    join_without_router::<FastFair<5>, 8>();
    join_without_router::<SkipList<u64, 1>, 8>();
}

/// More buffers than a pool could have logs for are refused, and leave it as it is.
#[test]
fn absurd_numbers_of_buffers_are_refused() {
    let pool = pool::<FastFair<5>, 8>(1 << 20);
    for buffers in [1 << 20, 10_u64.pow(16), 1 << 60, u64::MAX / 2 + 1, u64::MAX] {
        let made = TinyTree::create_with(&pool, SMALL, with(buffers));
        assert!(made.is_err(), "{buffers}");
    }
    let plan = IndexPlan {
        capacity: u64::MAX,
        ..SMALL
    };
    let index = TinyTree::create(&pool, plan).expect("space");
    index.insert(1, 2).expect("space");
    words::check(&index, 1);
}

fn waiting_at(position: u64, way: usize) -> Waiting {
    let (key, value, tag) = (position, 0, 0);
    let entry = Tagged { key, value, tag };
    Waiting {
        position,
        way,
        entry,
    }
}

/// Where nodes begin: at parts, and where a buffer is full.
#[test]
fn nodes_have_room_for_what_waits() {
    let pending: Vec<Waiting> = (10..17).map(|key| waiting_at(key, 0)).collect();
    let found = starts_of(&[0, 11, 20], &pending, 2);
    assert_eq!(found, (vec![0, 11, 13, 15, 20], 4));
    let found = starts_of(&[0], &pending, 2);
    assert_eq!(found, (vec![0, 12, 14, 16], 4));
    assert_eq!(starts_of(&[0, 11], &[], 2), (vec![0, 11], 0));
    // Each way has room of its own.
    let pending: Vec<Waiting> = (10..17)
        .map(|key| waiting_at(key, usize::from(key % 2 == 1)))
        .collect();
    assert_eq!(starts_of(&[0], &pending, 2), (vec![0, 14], 2));
    // What shares a position stays together.
    let places = [10, 11, 11, 12, 12, 12, 13];
    let pending: Vec<Waiting> = places.into_iter().map(|at| waiting_at(at, 0)).collect();
    assert_eq!(starts_of(&[0], &pending, 3), (vec![0, 12, 13], 3));
}

/// The opening went along the leaves of the base, and not to its end if one was damaged.
#[test]
fn a_wrong_bit_of_the_base_keeps_no_opening_for_ever() {
    ask_all(
        TinyTree::pool_options,
        |pool| {
            let index = TinyTree::create(pool, SMALL).expect("space");
            for number in 0..40 {
                index.insert(10 * (number * 7 % 40), number).expect("space");
            }
            index.base.words()
        },
        |wrong, pool| {
            let opened = TinyTree::open(pool);
            may_be(wrong, opened.and_then(|index| index.insert(5, 5)));
        },
    );
}

/// The table of the root block is that of the types.
#[test]
fn the_table_is_right() {
    let table = essay::table(include_str!("layout.rs"), "Root block");
    let rows = [(0, 64), (MOVING_AT, 8), (72, 8), (80, 176)];
    assert_eq!(table, rows);
    assert_eq!(80 + 176, BASE_AT);
    assert_eq!(
        MOVING_AT + std::mem::offset_of!(RootState, floor) as u64,
        72
    );
}

/// Bytes that the media write for an insert of a random key, and read for a lookup, on the model.
fn volumes(name: &str) -> [u64; 2] {
    const KEYS: u64 = 20_000;
    let registered = by_name(name).expect("an index");
    let ways = Preset::OPTANE.cache_ways as u64 * 64;
    let model = Model::new(Preset::OPTANE.with_cache(16 * ways));
    let model = Arc::new(Mutex::new(model));
    let pool = Pool::anonymous(PoolOptions {
        size: 32 << 20,
        watcher: Some(model.clone()),
        ..(registered.words.pool_options)()
    });
    let plan = IndexPlan {
        capacity: KEYS,
        seed: Some(7),
    };
    let index = (registered.words.create)(&pool.expect("memory"), plan).expect("space");
    let count = || {
        let mut model = model.lock();
        model.drain_all();
        model.costs()
    };
    let random = Seed::new(1);
    let begun = count();
    for number in 0..KEYS {
        let key = random.hash_u64(number);
        index.insert(&key, number).expect("space");
    }
    let inserted = count();
    for number in (0..KEYS).map(|number| number * 7919 % KEYS) {
        let key = random.hash_u64(number);
        assert_eq!(index.get(&key).expect("sound"), Some(number));
    }
    let written = (inserted - begun).bytes_media_written();
    let read = (count() - inserted).bytes_media_read();
    let volumes = [written / KEYS, read / KEYS];
    println!("{name}: {volumes:?} bytes written for an insert, read for a lookup");
    volumes
}

/// With buffers the media write less, as figure 4.2 has it, though all lies in the same pool. With
/// the ways in DRAM they read less, as figure 4.4 has it, and write what they wrote.
#[test]
fn layers_save_volume() {
    for base in ["fastfair", "p-skiplist"] {
        let [plain, buffered] = ["", "-b"].map(|layers| volumes(&format!("{base}{layers}")));
        let [cached, both] = ["-c", "-bc"].map(|layers| volumes(&format!("{base}{layers}")));
        assert!(buffered[0] * 3 < plain[0] * 2);
        assert!(cached[1] * 4 < plain[1] * 3);
        assert!(both[1] * 4 < buffered[1] * 3);
        assert!(cached[0] <= plain[0] * 21 / 20 && both[0] <= buffered[0] * 21 / 20);
    }
    let [plain, buffered, renewed] = ["cceh", "cceh-b", "cceh-bo"].map(volumes);
    assert!(buffered[0] * 2 < plain[0] && renewed[0] * 2 < plain[0]);
    let [plain, renewed, cached] = ["fastfair", "fastfair-bo", "fastfair-boc"].map(volumes);
    assert!(renewed[0] * 2 < plain[0]);
    assert!(cached[1] * 4 < renewed[1] * 3 && cached[0] <= renewed[0] * 21 / 20);
}
