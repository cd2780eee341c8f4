//! Garbage collection, and what happens without space.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::layout::{Entry, LINE_BYTES};
use super::super::{Durability, Options, Scmkv};
use super::{check, content, key, number_of, pool, small, value};
use crate::Seed;

fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let seed = Seed::new(seed);
    let mut count = 0;
    move |limit| {
        count += 1;
        seed.hash_u64(count) % limit
    }
}

/// How many entries fit.
fn fill(store: &Scmkv) -> u64 {
    let mut count = 0;
    loop {
        match store.put(&key(count), &value(count)) {
            Ok(_) => count += 1,
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                return count;
            }
        }
    }
}

/// The authors' cleaner is an empty loop: their store is full for ever once its pages were used.
#[test]
fn overwriting_never_wedges_whatever_part_is_live() {
    let fits = fill(&Scmkv::create(&pool(512 << 10), &small()).expect("space"));
    assert!(fits > 500, "{fits}");
    for percent in [60, 80, 90] {
        for durability in [Durability::Strict, Durability::Relaxed] {
            let options = Options {
                durability,
                ..small()
            };
            let store = Scmkv::create(&pool(512 << 10), &options).expect("space");
            let count = fits * percent / 100;
            let mut twin = BTreeMap::new();
            let mut below = random(percent);
            for number in 0..count {
                store.put(&key(number), &value(number)).expect("space");
                twin.insert(number, number);
            }
            for round in 0..10 * fits {
                let number = below(count);
                // The size stays, so that the live part does.
                let new = number + 7 * (1000 + round);
                store.put(&key(number), &value(new)).expect("space");
                twin.insert(number, new);
            }
            assert_eq!(content(&store).expect("sound"), twin);
            check(&store).expect("sound");
            let stats = store.stats();
            assert!(stats.cleaned_pages > 100, "{percent} %: {stats:?}");
        }
    }
}

/// Puts fail, and everything else goes on: lookups, deletes, and then puts again.
#[test]
fn a_full_store_can_be_read_and_emptied() {
    let store = Scmkv::create(&pool(256 << 10), &small()).expect("space");
    let count = fill(&store);
    check(&store).expect("sound");
    for number in 0..count {
        let got = store.get(&key(number)).expect("sound").expect("there");
        assert_eq!(number_of(&got), Some(number));
    }
    assert_eq!(store.get(&key(count)).expect("sound"), None);
    let again = store.put(&key(count), &value(6));
    assert!(again.is_err_and(|error| error.is_no_space()));
    for number in (0..count).step_by(2) {
        assert!(store.delete(&key(number)).expect("no space is needed"));
    }
    assert_eq!(check(&store), Ok(count / 2));
    for number in (0..count).step_by(4) {
        assert!(store.put(&key(number), &value(number)).expect("space"));
    }
    check(&store).expect("sound");
}

/// A batch of deletes found no space in a full store for the copy that makes it one: the pages that
/// are kept for copies are there again and again, though nothing else becomes free.
#[test]
fn a_full_store_has_pages_for_one_copy_at_a_time() {
    for capacity in [64, 4096] {
        let options = Options {
            capacity: Some(capacity),
            keeps_for_copies: true,
            ..small()
        };
        let pool = pool(512 << 10);
        let mut store = Scmkv::create(&pool, &options).expect("space");
        let count = fill(&store);
        let limit = store.value_bytes_max();
        let mut below = random(capacity);
        let mut missing = BTreeSet::new();
        for round in 0..400 {
            let name = format!("copy {}", below(7)).into_bytes();
            let copy = vec![7; usize::try_from(below(limit)).expect("small")];
            store.put_copy(&name, &copy).expect("what is kept");
            if round % 100 == 50 {
                // As a crash leaves it.
                drop(store);
                store = Scmkv::open(&pool, &options).expect("a store");
            }
            assert_eq!(store.get(&name).expect("sound").as_ref(), Some(&copy));
            assert!(store.delete(&name).expect("sound"));
            // What is deleted is put again as soon as there is space, so that the store stays full
            // and the cleaner has something to move.
            let number = below(count);
            let was_there = store.delete(&key(number)).expect("sound");
            assert_eq!(was_there, missing.insert(number));
            if round % 10 == 0 {
                missing.retain(|number| store.put(&key(*number), &value(*number)).is_err());
            }
            if round % 100 == 99 {
                let left = count - missing.len() as u64;
                assert_eq!(check(&store), Ok(left), "{capacity}, round {round}");
                assert!(left * 20 > count * 19, "{left} of {count}");
                store.close().expect("closed");
                store = Scmkv::open(&pool, &options).expect("a store");
            }
        }
    }
}

/// Pages are emptied one by one until nothing is left but what is live.
#[test]
fn collecting_all_garbage_gives_the_pages_back() {
    let store = Scmkv::create(&pool(512 << 10), &small()).expect("space");
    let empty = store.stats().pages;
    let count = fill(&store);
    let full = store.stats().pages;
    for number in 0..count {
        if number % 10 != 0 {
            store.delete(&key(number)).expect("sound");
        }
    }
    while store.collect_garbage().expect("sound").pages > 0 {}
    let left = store.stats();
    assert!(left.pages * 4 < full, "{full} pages, then {left:?}");
    assert_eq!(check(&store), Ok(count.div_ceil(10)));
    for number in (0..count).step_by(10) {
        store.delete(&key(number)).expect("sound");
    }
    while store.collect_garbage().expect("sound").pages > 0 {}
    // Those that are kept for the cleaner, and the open ones of the log and the cleaner.
    let left = store.stats().pages;
    assert!(left <= empty + 4, "{empty} pages when new, {left} now");
}

/// The page with the best ratio of benefit to cost goes first: the one that is least live, and of
/// two that are equally live the older one.
#[test]
fn the_cleaner_takes_old_and_empty_pages_first() {
    let store = Scmkv::create(&pool(512 << 10), &small()).expect("space");
    let per_page = 6;
    for number in 0..8 * per_page {
        // Values of one size, so that each page holds as many.
        store
            .put(&key(1 + number * 32), &value(6 + number * 7))
            .expect("space");
    }
    let delete = |page: u64, count: u64| {
        for number in page * per_page..page * per_page + count {
            assert!(store.delete(&key(1 + number * 32)).expect("sound"));
        }
    };
    let live = || -> Vec<(u32, u64)> {
        let pages = store.pages().into_iter();
        pages
            .filter(|page| page.is_full)
            .map(|page| (page.number, page.live_bytes))
            .collect()
    };
    let full = live();
    delete(2, 3);
    delete(4, 3);
    delete(5, 1);
    let gone = |before: &[(u32, u64)]| -> Vec<usize> {
        let now = live();
        let is_gone = |at: &usize| now.iter().all(|(number, _)| *number != before[*at].0);
        (0..6).filter(is_gone).collect()
    };
    for expected in [vec![2], vec![2, 4], vec![2, 4, 5]] {
        assert_eq!(store.collect_garbage().expect("sound").pages, 1);
        assert_eq!(gone(&full), expected);
    }
    check(&store).expect("sound");
}

/// Of many writers none is told that there is no space while others clean.
#[test]
fn writers_that_meet_without_space_all_go_on() {
    let options = Options {
        logs: Some(4),
        ..small()
    };
    let store = Scmkv::create(&pool(512 << 10), &options).expect("space");
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..4000 {
                    let number = thread * 100 + round % 60;
                    store
                        .put(&key(number), &value(number + 7 * round))
                        .expect("space");
                }
            });
        }
    });
    assert_eq!(check(&store), Ok(240));
    assert!(store.stats().cleaned_pages > 100);
}

/// A reader may lose its processor for long. Writers wait for the pages that it holds up, and are
/// not told that the store is full.
#[test]
fn a_reader_that_sleeps_does_not_make_a_store_full() {
    let count = fill(&Scmkv::create(&pool(512 << 10), &small()).expect("space")) * 9 / 10;
    let pool = pool(512 << 10);
    let store = Scmkv::create(&pool, &small()).expect("space");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5 {
                let guard = pool.enter();
                std::thread::sleep(Duration::from_millis(80));
                drop(guard);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut round = 0;
        while round < 4 || !is_over.load(Ordering::Relaxed) {
            for number in 0..count {
                let put = store.put(&key(number), &value(number + 7 * round));
                put.expect("space comes when the reader wakes up");
            }
            round += 1;
        }
    });
    assert_eq!(check(&store), Ok(count));
    assert!(store.stats().cleaned_pages > 0);
}

/// A pool that is too small for a store is left as it was.
#[test]
fn a_pool_without_space_for_a_store_stays_empty() {
    let pool = pool(24 << 10);
    let created = Scmkv::create(&pool, &small());
    assert!(created.is_err_and(|error| error.is_no_space()));
    assert_eq!(pool.stats().used_blocks, 0);
    let odd = Options {
        page_bytes: 5000,
        ..small()
    };
    let created = Scmkv::create(&pool, &odd);
    assert!(matches!(
        created,
        Err(crate::Error::PageSize { bytes: 5000 })
    ));
}

/// The thread of the store cleans and enlarges without being asked.
#[test]
fn the_background_cleans_and_enlarges() {
    let options = Options {
        cleans: true,
        ..small()
    };
    let store = Scmkv::create(&pool(4 << 20), &options).expect("space");
    for number in 0..2000 {
        store.put(&key(number), &value(number % 2)).expect("space");
    }
    let mut round = 0;
    // Until it has done so; a test that hangs here has found that it does not.
    while store.stats().cleaned_pages == 0 || store.stats().buckets < 512 {
        round += 1;
        for number in 0..500 {
            store
                .put(&key(number), &value(6 + 7 * round))
                .expect("space");
        }
    }
    store.close().expect("it closes");
}

/// A bucket that moves may need two chains, and the second one another page. The page of the first
/// is full then, and nothing refers to the chain yet: a cleaner that took the page for an empty one
/// gave it back, with the chain that the table was to refer to.
#[test]
fn a_page_with_a_chain_that_is_not_published_is_not_empty() {
    let store = Scmkv::create(&pool(256 << 10), &small()).expect("space");
    let volume = &store.volume;
    let live = |address| {
        let number = volume.pages.number_of(address).expect("a page");
        volume.pages.page(number).live()
    };
    let entries = [64, 128].map(|address| Entry::record(address, 0));
    let mut log = volume.logs.mine();
    let chain = volume.half_of_bucket(&mut log, &entries, 0);
    let chain = chain.expect("space");
    assert_eq!(live(chain.address()), LINE_BYTES);
    volume.count_half_out(chain);
    assert_eq!(live(chain.address()), 0);
}
