//! The tree of strings, in special situations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use gabion_media::pmem::explore::{Explorer, Run};
use gabion_media::pmem::trace::{self, LINE, TraceEvent, Watcher};
use gabion_media::pmem::{Pool, PoolOptions, Region};

use super::item::ItemRef;
use super::layout::BACKUP_AT;
use super::steps::{Step, leave_out};
use super::{Maintenance, SpTree, TINY};
use crate::suite::crash::{self, SmallSubject, histories, limits, longer_histories};
use crate::suite::{self, Keys, SMALL, STRING_COMMIT, interleaved, model};
use crate::{Art, Error, OrderedIndex, Seed};

type Strings<const N: usize> = SpTree<[u8], N>;

fn tree<const N: usize>(size: u64) -> Strings<N> {
    let pool = suite::pool(size, Strings::<N>::pool_options());
    Strings::create(&pool, SMALL).expect("a tree")
}

fn again<const N: usize>(tree: Strings<N>) -> Strings<N> {
    let pool = tree.pool().clone();
    drop(tree);
    Strings::open(&pool).expect("a tree")
}

/// All invariants hold, there are so many entries, and no block of the pool is lost.
fn check<const N: usize>(tree: &Strings<N>, entries: usize) {
    let checked = tree.check().expect("sound");
    let len = tree.len().expect("sound");
    assert_eq!((checked.entries, len), (entries as u64, entries as u64));
    tree.pool().collect();
    assert_eq!(checked.blocks, tree.pool().stats().used_blocks);
}

/// Keys of which many begin alike for longer than a pair or a node of a trie shows, and some begin
/// others.
fn key(number: u64) -> Vec<u8> {
    let family = usize::try_from(number % 7).expect("small");
    let mut key = vec![b'k'; [0, 3, 8, 9, 20, 100, 600][family]];
    let digits = number / 7;
    let count = usize::try_from(digits % 4).expect("small");
    key.extend(&digits.swap_bytes().to_le_bytes()[7 - count..]);
    key
}

fn value(drawn: u64) -> Vec<u8> {
    let len: usize = [0, 1, 8, 30, 500, 5000][usize::try_from(drawn % 6).expect("small")];
    drawn.to_le_bytes().repeat(len.div_ceil(8))[..len].to_vec()
}

type Twin = BTreeMap<Vec<u8>, Vec<u8>>;

/// Random operations on both; all answers are compared.
fn follow(tree: &Strings<8>, twin: &mut Twin, seed: u64, operations: u64) {
    let random = Seed::new(seed);
    for number in 0..operations {
        let drawn = random.hash_u64(number);
        let (key, value) = (key(drawn % 1500), value(drawn >> 20));
        match drawn >> 40 & 15 {
            0..=6 => {
                let was_there = twin.insert(key.clone(), value.clone()).is_some();
                assert_eq!(tree.put(&key, &value).expect("space"), was_there);
            }
            7..=8 => {
                let was_there = twin.contains_key(&key);
                assert_eq!(tree.replace(&key, &value).expect("space"), was_there);
                if was_there {
                    twin.insert(key, value);
                }
            }
            9..=11 => {
                let was_there = twin.remove(&key).is_some();
                assert_eq!(tree.remove(&key).expect("sound"), was_there);
            }
            12 => {
                let mut found = vec![(Vec::new(), Vec::new())];
                tree.pairs_from(&key, 20, &mut found).expect("sound");
                let wanted = twin.range(key.clone()..).take(20);
                let pairs = found.iter().skip(1).map(|(key, value)| (key, value));
                assert!(wanted.eq(pairs), "seed {seed}, operation {number}");
                found.truncate(1);
                tree.pairs_before(&key, 20, &mut found).expect("sound");
                let wanted = twin.range(..key).rev().take(20);
                let pairs = found.iter().skip(1).map(|(key, value)| (key, value));
                assert!(wanted.eq(pairs), "seed {seed}, operation {number}, down");
            }
            13 => {
                let mut found = b"before".to_vec();
                let is_there = tree.get_into(&key, &mut found).expect("sound");
                assert_eq!(is_there, twin.contains_key(&key));
                let wanted = twin.get(&key).map_or(&[][..], |value| value);
                assert_eq!(found, [b"before", wanted].concat());
            }
            _ => assert_eq!(tree.get(&key).expect("sound"), twin.get(&key).cloned()),
        }
    }
    check(tree, twin.len());
}

#[test]
fn strings_of_all_lengths_come_and_go() {
    let mut tree = tree::<8>(64 << 20);
    let mut twin = Twin::new();
    for seed in 0..12 {
        follow(&tree, &mut twin, seed, 2500);
        tree = again(tree);
        check(&tree, twin.len());
    }
    let mut found = Vec::new();
    tree.pairs_from(b"", usize::MAX, &mut found).expect("sound");
    let wanted = || twin.iter().map(|(k, v)| (k.clone(), v.clone()));
    assert!(wanted().eq(found));
    let mut found = Vec::new();
    tree.pairs_before(&[0xff], usize::MAX, &mut found)
        .expect("sound");
    assert!(wanted().rev().eq(found));
    assert!(twin.len() > 400);
}

/// What is deleted goes from both pools: items and bounds from the medium, bounds and the router's
/// nodes from DRAM.
#[test]
fn nothing_is_left_of_deleted_strings() {
    let tree = tree::<8>(64 << 20);
    let used = || {
        let pools = [tree.pool(), tree.router.pool()];
        pools.map(|pool| {
            pool.collect();
            pool.stats().used_blocks
        })
    };
    let empty = used();
    for round in 0..3 {
        for number in 0..5000 {
            tree.put(&key(number), &value(number + round))
                .expect("space");
        }
        let [items, bounds] = used();
        assert!(items > empty[0] + 4000 && bounds > empty[1] + 300);
        for number in 0..5000 {
            tree.remove(&key(number)).expect("sound");
        }
        tree.compact().expect("sound");
        check(&tree, 0);
        // Those that both tries leave to a full `compact` of their own.
        let [items, bounds] = used();
        assert!(items <= empty[0] + 8, "{items} of {}", empty[0]);
        assert!(bounds <= empty[1] + 8, "{bounds} of {}", empty[1]);
    }
}

/// Many leaves, so that recovery has several threads; and none, some or all of them are missing in
/// the backup.
#[test]
fn recovery_finds_what_the_backup_does_not_name() {
    let tree = tree::<8>(64 << 20);
    let order = Seed::new(3);
    let keys = 40_000_u64;
    let key = |number: u64| {
        [
            b"prefix beyond 8 ",
            &order.hash_u64(number).to_le_bytes()[..],
        ]
        .concat()
    };
    for number in 0..keys {
        tree.put(&key(number), &number.to_le_bytes())
            .expect("space");
    }
    check(&tree, 40_000);
    let (pool, root) = (tree.pool().clone(), tree.root);
    drop(tree);
    let forget = |tells: fn(u64) -> bool| {
        let backup = Art::<[u8]>::at(&pool, root + BACKUP_AT).expect("a backup");
        let mut leaves = Vec::new();
        backup.scan(b"", usize::MAX, &mut leaves).expect("sound");
        assert!(leaves.len() > 4096, "{}", leaves.len());
        for (number, (lkey, _)) in leaves.iter().enumerate() {
            if tells(number as u64) {
                backup.remove(&lkey[..]).expect("sound");
            }
        }
    };
    let rules: [fn(u64) -> bool; 4] = [
        |_| false,
        |number| number % 3 == 0,
        |number| number < 4000,
        |_| true,
    ];
    for (rule, tending) in rules
        .into_iter()
        .zip([Maintenance::Thread, Maintenance::Writers].repeat(2))
    {
        forget(rule);
        // What the backup is told of has its blocks, too, and none is missing or lost.
        let tree = Strings::<8>::open_checked(&pool, tending, |_, _| true).expect("a tree");
        for number in 0..keys {
            let wanted = number.to_le_bytes().to_vec();
            assert_eq!(tree.get(&key(number)).expect("sound"), Some(wanted));
        }
        check(&tree, 40_000);
    }
}

#[test]
fn a_full_pool_leaves_the_tree_usable() {
    for value_bytes in [8, 3000] {
        let tree = tree::<8>(512 << 10);
        let value = vec![1; value_bytes];
        let mut kept = 0;
        let failed = loop {
            match tree.put(&key(kept), &value) {
                Ok(_) => kept += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(failed, Error::Media(_)), "{failed}");
        let keys: std::collections::BTreeSet<_> = (0..kept).map(key).collect();
        check(&tree, keys.len());
        for key in &keys {
            assert_eq!(tree.get(key).expect("sound").as_ref(), Some(&value));
        }
        // What others may still see is not free at once.
        for key in keys.iter().take(3) {
            assert!(tree.remove(key).expect("sound"));
        }
        tree.pool().collect();
        let first = keys.first().expect("one");
        assert!(!tree.put(first, &value).expect("room"));
        let tree = again(tree);
        check(&tree, keys.len() - 2);
    }
}

/// Items that reach beyond the pool, and a bound that is not where its leaf is, are told as damage.
#[test]
fn damage_is_told() {
    let tree = tree::<8>(4 << 20);
    for number in 0..100 {
        tree.put(&number.to_string().into_bytes(), b"value")
            .expect("space");
    }
    let (pool, root) = (tree.pool().clone(), tree.root);
    drop(tree);
    let first = root + Strings::<8>::FIRST_LEAF_AT;
    let word = |at: u64| {
        let mut bytes = [0; 8];
        pool.read(at, &mut bytes);
        u64::from_le_bytes(bytes)
    };
    let second = word(first + 8);
    let item = word(first + 128 + 8);
    let bound = word(second + 16);
    assert!(ItemRef::new(&pool, item).is_ok() && ItemRef::new(&pool, bound).is_ok());
    let wrongs = [
        (item, u64::from(u32::MAX)),
        (item, u64::MAX),
        (first + 128 + 8, u64::MAX - 7),
        (first + 128 + 8, 3),
        (bound, u64::from(u32::MAX)),
        (second + 16, pool.len()),
        (second + 16, 0),
        (bound + 8, u64::MAX),
    ];
    for (at, wrong) in wrongs {
        let right = word(at);
        pool.write(at, &wrong.to_le_bytes());
        let opened = Strings::<8>::open(&pool);
        assert!(
            matches!(opened, Err(Error::Damaged { .. })),
            "{at}: {wrong:x}"
        );
        pool.write(at, &right.to_le_bytes());
    }
    check(&Strings::<8>::open(&pool).expect("a tree"), 100);
}

/// A batch of deletes found no space in a full tree for the copy that makes it one: what the pool
/// keeps back is there again and again, whatever else comes and goes, and no leaf has to split.
#[test]
fn a_full_tree_has_the_space_that_is_kept_back() {
    const COPY: usize = 100_000;
    let options = PoolOptions {
        keeps_run: Strings::<8>::item_bytes(0, COPY),
        ..Strings::<8>::pool_options()
    };
    let pool = suite::pool(2 << 20, options);
    let mut tree = Strings::<8>::create_tended(&pool, SMALL, Maintenance::Writers).expect("a tree");
    let random = Seed::new(5);
    let mut twin = Twin::new();
    let fill = |tree: &Strings<8>, twin: &mut Twin, round: u64| {
        for number in 0.. {
            let drawn = random.hash_u64(round << 32 | number);
            // Many come into the first leaf.
            let mut key = key(drawn % 9000);
            key.splice(
                0..0,
                vec![0; usize::try_from(drawn >> 40 & 3).expect("small")],
            );
            let value = value(drawn >> 20);
            match tree.put(&key, &value) {
                Ok(_) => drop(twin.insert(key, value)),
                Err(error) => {
                    assert!(error.is_no_space(), "{error}");
                    break;
                }
            }
        }
    };
    fill(&tree, &mut twin, 0);
    for round in 1..300 {
        let copy = vec![1; COPY - usize::try_from(round * 300).expect("small")];
        tree.put_copy(b"", &copy).expect("what is kept back");
        let told = tree.put(&[7; 8], &copy);
        assert!(told.is_err_and(|error| error.is_no_space()));
        if round % 50 == 0 {
            tree = again(tree);
        }
        assert_eq!(tree.get(b"").expect("sound").as_ref(), Some(&copy));
        assert!(tree.remove(b"").expect("sound"));
        let gone = twin
            .keys()
            .nth(usize::try_from(round * 7).expect("small") % twin.len());
        let gone = gone.expect("some").clone();
        assert!(tree.remove(&gone).expect("sound"));
        twin.remove(&gone);
        fill(&tree, &mut twin, round);
    }
    check(&tree, twin.len());
    let mut found = Vec::new();
    tree.pairs_from(b"", usize::MAX, &mut found).expect("sound");
    assert!(twin.into_iter().eq(found));
}

/// A reader of the last copy that is about to go keeps its space for a moment.
#[test]
fn a_copy_waits_for_readers_of_the_last_one() {
    let options = PoolOptions {
        keeps_run: Strings::<8>::item_bytes(0, 1000),
        ..Strings::<8>::pool_options()
    };
    let pool = suite::pool(2 << 20, options);
    let tree = Strings::<8>::create_tended(&pool, SMALL, Maintenance::Writers).expect("a tree");
    let copy = || tree.put_copy(b"", &[7; 1000]).expect("what is kept back");
    for _ in 0..20 {
        copy();
        std::thread::scope(|scope| {
            let (enter, entered) = mpsc::channel();
            let pool = &pool;
            scope.spawn(move || {
                let guard = pool.enter();
                enter.send(()).expect("a receiver");
                std::thread::sleep(Duration::from_millis(5));
                drop(guard);
            });
            entered.recv().expect("a reader");
            assert!(tree.remove(b"").expect("sound"));
            copy();
        });
        assert!(tree.remove(b"").expect("sound"));
    }
    check(&tree, 0);
}

/// A value says how often its key has the byte `x`.
fn holds(key: &[u8], value: &[u8]) -> bool {
    let count = key.iter().filter(|byte| **byte == b'x').count();
    value == count.to_le_bytes()
}

/// Each bit that is wrong in a leaf, an item or the backup's root: the tree is refused where
/// anything was lost by it.
#[test]
fn a_checked_tree_tells_what_an_unchecked_one_may_not() {
    let pool = suite::pool(4 << 20, Strings::<8>::pool_options());
    let tree = Strings::<8>::create_tended(&pool, SMALL, Maintenance::Writers).expect("a tree");
    let keys: Vec<Vec<u8>> = (0..100)
        .map(|number| {
            [
                &b"x".repeat(number % 9)[..],
                format!("{number:03}").as_bytes(),
            ]
            .concat()
        })
        .collect();
    for (number, key) in keys.iter().enumerate() {
        let count = number % 9;
        tree.put(key, &count.to_le_bytes()).expect("space");
    }
    tree.finish();
    check(&tree, keys.len());
    let root = tree.root;
    drop(tree);
    let open = || Strings::<8>::open_checked(&pool, Maintenance::Writers, holds);
    let all = |tree: &Strings<8>| {
        let mut found = Vec::new();
        tree.keys_from(b"", usize::MAX, &mut found).expect("sound");
        assert!(
            keys.iter()
                .all(|key| tree.get(key).is_ok_and(|value| value.is_some()))
        );
        found.len()
    };
    assert_eq!(all(&open().expect("a sound tree")), keys.len());
    let first = root + Strings::<8>::FIRST_LEAF_AT;
    let mut item = [0; 8];
    pool.read(first + 128 + 8, &mut item);
    let item = u64::from_le_bytes(item);
    let backup = root + BACKUP_AT;
    let in_use = (backup..first).filter(|place| {
        let mut byte = [0];
        pool.read(*place, &mut byte);
        byte != [0]
    });
    let places = (first..first + 256)
        .chain(item..item + 24)
        .chain(backup + 64..backup + 96)
        .chain(in_use.collect::<Vec<_>>());
    let mut refused = 0;
    for (place, bit) in places.flat_map(|place| (0..8).map(move |bit| (place, bit))) {
        let mut right = [0];
        pool.read(place, &mut right);
        pool.write(place, &[right[0] ^ 1 << bit]);
        match open() {
            Err(Error::Damaged { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
            Ok(tree) => assert_eq!(all(&tree), keys.len(), "bit {bit} of {place} from {first}"),
        }
        pool.write(place, &right);
    }
    println!("{refused} damages are refused");
    assert!(refused > 600, "{refused}");
}

/// Counts loads of a line.
#[derive(Default)]
struct Loads {
    at: AtomicU64,
    count: AtomicU64,
}

// ORDER: Relaxed throughout: one thread is at work.
impl Watcher for Loads {
    fn event(&self, event: TraceEvent<'_>) {
        if let trace::TraceStep::Load { offset, .. } = event.step
            && offset / LINE == self.at.load(Ordering::Relaxed) / LINE
        {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A checked opening looks at the backup no more often than another one, unless recovery has told
/// it of leaves. It read all of it a second time.
#[test]
fn a_backup_that_is_whole_is_checked_once() {
    let region = Region::new(1 << 20);
    let loads = Arc::new(Loads::default());
    let pool = || {
        let options = PoolOptions {
            heaps: 1,
            watcher: Some(loads.clone()),
            ..Strings::<8>::pool_options()
        };
        Pool::open_in(&region, options).expect("a pool that was closed")
    };
    {
        let options = PoolOptions {
            heaps: 1,
            ..Strings::<8>::pool_options()
        };
        let pool = Pool::create_in(&region, options).expect("a pool in memory");
        let tree = Strings::<8>::create_tended(&pool, SMALL, Maintenance::Writers).expect("a tree");
        for number in 0..1000 {
            tree.put(&key(number), b"value").expect("space");
        }
        tree.finish();
        // Behind its header is the root node, by which each key of it is looked up in a check.
        let node = tree.root + BACKUP_AT + LINE;
        loads.at.store(node, Ordering::Relaxed);
        drop(tree);
        pool.close().expect("nobody else has it");
    }
    let count = |open: &dyn Fn(&Pool) -> crate::Result<Strings<8>>| {
        let pool = pool();
        let before = loads.count.load(Ordering::Relaxed);
        let tree = open(&pool).expect("a tree");
        let count = loads.count.load(Ordering::Relaxed) - before;
        drop(tree);
        pool.close().expect("nobody else has it");
        count
    };
    let plain = count(&|pool| Strings::open(pool));
    let checked = count(&|pool| Strings::open_checked(pool, Maintenance::Writers, |_, _| true));
    assert!(
        plain > 0 && checked == plain,
        "{checked} loads, and {plain}"
    );
}

/// What `reserve` grants can be put, however little space is left, and what it refuses changes
/// nothing.
#[test]
fn what_was_reserved_can_be_put() {
    let tree = tree::<8>(2 << 20);
    let mut number = 0;
    let (mut granted, mut refused) = (0, 0);
    for round in 0..400_u64 {
        let sizes = [20, 90, 3000, 40_000, 100_000];
        let len = sizes[usize::try_from(round % 5).expect("small")];
        let count = 1 + round % 7;
        let pair = len as u64 + 8;
        if tree.reserve(&[(pair, count)].into()).is_err() {
            refused += 1;
            continue;
        }
        granted += 1;
        for _ in 0..count {
            let key = Seed::new(1).hash_u64(number).to_le_bytes();
            tree.put(&key, &vec![7; len]).expect("it was reserved");
            number += 1;
        }
    }
    assert!(granted > 20 && refused > 20, "{granted} {refused}");
    check(&tree, usize::try_from(number).expect("small"));
    check(&again(tree), usize::try_from(number).expect("small"));
}

#[test]
fn a_tree_of_other_keys_is_refused() {
    let pool = |options| {
        Pool::anonymous(PoolOptions {
            size: 1 << 20,
            ..options
        })
        .expect("a pool in memory")
    };
    let strings = pool(Strings::<8>::pool_options());
    drop(Strings::<8>::create(&strings, SMALL).expect("a tree"));
    assert!(matches!(
        Strings::<64>::open(&strings),
        Err(Error::OtherKind)
    ));
    assert!(matches!(
        SpTree::<u64, 8>::open(&strings),
        Err(Error::NoRoot)
    ));
    let words = pool(SpTree::<u64, 8>::pool_options());
    drop(SpTree::<u64, 8>::create(&words, SMALL).expect("a tree"));
    assert!(matches!(Strings::<8>::open(&words), Err(Error::NoRoot)));
}

/// Threads that insert, replace, delete and scan all at once; what is found is whole.
#[test]
fn threads_agree() {
    let tree = tree::<8>(64 << 20);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let tree = &tree;
            scope.spawn(move || {
                let key = |number: u64| format!("some key {number:05} of {thread}").into_bytes();
                let value = |round: u64, number: u64| {
                    let len = usize::try_from(round * 7 + number % 50).expect("small");
                    vec![u8::try_from(number % 50).expect("small"); len]
                };
                for round in 1..4 {
                    for number in 0..1000 {
                        let key = key(number);
                        assert!(!tree.put(&key, &value(round, number)).expect("space"));
                        assert!(tree.put(&key, &value(round + 1, number)).expect("space"));
                    }
                    let mut found = Vec::new();
                    tree.pairs_from(b"", 10_000, &mut found).expect("sound");
                    assert!(found.is_sorted_by(|one, two| one.0 < two.0));
                    let mut down = Vec::new();
                    tree.pairs_before(b"z", 10_000, &mut down).expect("sound");
                    assert!(down.is_sorted_by(|one, two| one.0 > two.0));
                    found.extend(down);
                    let is_whole = |value: &[u8]| value.iter().all(|byte| *byte == value[0]);
                    assert!(found.iter().all(|(_, value)| is_whole(value)));
                    let end = format!("of {thread}").into_bytes();
                    let own = found.iter().filter(|(key, _)| key.ends_with(&end));
                    assert_eq!(own.count(), 2000);
                    for number in 0..1000 {
                        let key = key(number);
                        let wanted = Some(value(round + 1, number));
                        assert_eq!(tree.get(&key).expect("sound"), wanted);
                        assert!(tree.remove(&key).expect("sound"));
                    }
                }
            });
        }
    });
    check(&tree, 0);
}

/// Keys that begin alike, for longer than pairs show: bounds and items decide. Without golden
/// traces, which those of the suite's strings are.
fn families() -> Keys<[u8]> {
    Keys::families(&TINY).expect("strings")
}

#[test]
fn all_answers_about_families_are_the_twins() {
    model::follow(&families());
}

#[test]
fn power_failures_lose_nothing_of_families() {
    crash::survive(families());
}

#[test]
fn power_failures_undo_no_answer_about_families() {
    interleaved::survive(families());
}

#[test]
fn every_flush_and_fence_is_missed_in_families() {
    crash::catch_mutants(families(), &[STRING_COMMIT]);
}

/// The steps of splits, merges and recovery that have to do with bounds are there for a reason.
#[test]
fn every_step_is_missed() {
    for step in [Step::Hkey, Step::Next, Step::Forget, Step::Mend] {
        let subject = SmallSubject { keys: families() };
        let mut explorer = Explorer::new(&subject, limits());
        let is_missed =
            histories()
                .into_iter()
                .chain(longer_histories())
                .any(|(name, setup, acts)| {
                    let left_out = leave_out(step);
                    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        let run = Run::record(&subject, name, &setup, &acts);
                        run.is_ok_and(|run| explorer.explore(&run).is_clean())
                    }));
                    drop(left_out);
                    !matches!(found, Ok(true))
                });
        assert!(is_missed, "nobody misses {step:?}");
    }
}
