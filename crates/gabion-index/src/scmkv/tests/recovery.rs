//! Opening: what is refused, what is found after a crash, what a clean close saves.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gabion_media::pmem::Pool;

use super::super::layout::{
    AT_MOST, Entry, Header, NotedBytes, PAGE_HEAD_BYTES, PageState, RECORD_HEAD_BYTES, TablePlace,
};
use super::super::{Durability, Options, Scmkv};
use super::{check, content, key, pool, pool_options, small, value};
use crate::Error;

fn relaxed() -> Options {
    Options {
        durability: Durability::Relaxed,
        ..small()
    }
}

/// Spoils the value of the newest record of the only log, as a failure of the power may.
fn lose_last(store: &Scmkv) {
    let log = store.volume.logs.mine();
    let head = log.records.expect("an open page");
    let page = &store.volume.pages;
    let end = head.start + page.bytes;
    let records: Vec<_> =
        super::super::record::records(store.pool(), head.start, end, head.generation).collect();
    let last = records.last().expect("a record");
    let at = last.address + RECORD_HEAD_BYTES + last.key_bytes;
    store.pool().write(at, &[0xee]);
}

fn reopen(store: Scmkv) -> Result<Scmkv, Error> {
    let pool = store.pool().clone();
    drop(store);
    Scmkv::open(&pool, &relaxed())
}

#[test]
fn a_lost_put_gives_way_to_what_it_replaced() {
    let store = Scmkv::create(&pool(256 << 10), &relaxed()).expect("space");
    for number in 1..4 {
        store.put(&key(number), &value(number)).expect("space");
    }
    store.put(&key(2), &value(20)).expect("space");
    lose_last(&store);
    let store = reopen(store).expect("a store");
    assert_eq!(store.get(&key(2)).expect("sound"), Some(value(2)));
    assert_eq!(store.stats().lost_records, 1);
    // A new key that is lost is not there; the one before stays.
    store.put(&key(9), &value(9)).expect("space");
    lose_last(&store);
    let store = reopen(store).expect("a store");
    assert_eq!(store.get(&key(9)).expect("sound"), None);
    assert_eq!(check(&store), Ok(3));
    // Several lost versions of one key.
    for number in 30..33 {
        store.put(&key(3), &value(number)).expect("space");
    }
    let log = store.volume.logs.mine().records.expect("an open page");
    store.pool().write(
        log.start + PAGE_HEAD_BYTES + RECORD_HEAD_BYTES + 11,
        &[0xee],
    );
    let store = reopen(store).expect("a store");
    assert_eq!(store.get(&key(3)).expect("sound"), Some(value(3)));
    assert_eq!(store.stats().lost_records, 3);
    check(&store).expect("sound");
}

/// A key that was deleted and put again, and then lost: neither is there, nor what was deleted.
#[test]
fn rolling_back_does_not_bring_back_what_was_deleted() {
    let store = Scmkv::create(&pool(256 << 10), &relaxed()).expect("space");
    store.put(&key(1), &value(1)).expect("space");
    assert!(store.delete(&key(1)).expect("sound"));
    store.put(&key(1), &value(2)).expect("space");
    lose_last(&store);
    let store = reopen(store).expect("a store");
    assert_eq!(store.get(&key(1)).expect("sound"), None);
    assert_eq!(check(&store), Ok(0));
}

/// What was made durable on purpose and is not what was written is damage, and is not taken back
/// silently.
#[test]
fn damage_before_the_mark_is_told() {
    let store = Scmkv::create(&pool(256 << 10), &relaxed()).expect("space");
    store.put(&key(1), &value(1)).expect("space");
    store.persist().expect("a pool in memory");
    lose_last(&store);
    let error = reopen(store).expect_err("damage");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

/// The cleaner gives a page back only when no record can be rolled back to one in it.
#[test]
fn what_a_lost_record_replaced_is_there_though_its_page_was_cleaned() {
    let store = Scmkv::create(&pool(256 << 10), &relaxed()).expect("space");
    for number in 0..40 {
        store
            .put(&key(number), &value(6 + 7 * number))
            .expect("space");
    }
    let before = content(&store).expect("sound");
    // Everything in the first pages is replaced by records that are not durable yet; they fit into
    // one page.
    for number in 0..20 {
        store.put(&key(number), &value(7 * number)).expect("space");
    }
    let replaced = content(&store).expect("sound");
    while store.collect_garbage().expect("sound").pages > 0 {}
    // Now they are durable: what the explorer may lose is nothing of them.
    let log = store.volume.logs.mine().records.expect("an open page");
    assert_eq!(log.persisted, log.tail);
    store.put(&key(3), &value(1)).expect("space");
    lose_last(&store);
    let store = reopen(store).expect("a store");
    assert_eq!(content(&store).expect("sound"), replaced);
    assert_ne!(before, replaced);
    check(&store).expect("sound");
}

/// A clean close keeps the open pages open and all usage known; a crash makes them full and leaves
/// the usage to be counted.
#[test]
fn a_clean_close_is_told_from_a_crash() {
    let store = Scmkv::create(&pool(256 << 10), &small()).expect("space");
    for number in 0..30 {
        store.put(&key(number), &value(number)).expect("space");
    }
    let pages = store.stats();
    let pool = store.pool().clone();
    store.close().expect("it closes");
    let store = Scmkv::open(&pool, &small()).expect("a store");
    let reopened = store.stats();
    assert_eq!(reopened.live_bytes, pages.live_bytes);
    assert_eq!((reopened.pages, reopened.pages_uncounted), (pages.pages, 0));
    store.put(&key(99), &value(1)).expect("space");
    assert_eq!(store.stats().pages, pages.pages);
    drop(store);
    let store = Scmkv::open(&pool, &small()).expect("a store");
    let crashed = store.stats();
    assert_eq!(crashed.pages_uncounted, crashed.pages - 2);
    let is_open = |number: &u32| {
        let state = store.volume.pages.page(*number).state();
        matches!(state, PageState::LogOpen | PageState::ChainsOpen)
    };
    assert_eq!(store.volume.pages.numbers().filter(is_open).count(), 0);
    while store.work().expect("sound") {}
    assert_eq!(store.stats().pages_uncounted, 0);
    assert_eq!(check(&store), Ok(31));
}

/// After a crash, a writer that finds no space does not wait until all pages are counted: it cleans
/// the first ones that have plenty of garbage.
#[test]
fn a_writer_without_space_counts_no_more_pages_than_it_needs() {
    let store = Scmkv::create(&pool(512 << 10), &small()).expect("space");
    let mut count = 0;
    while store.put(&key(count), &value(6)).is_ok() {
        count += 1;
    }
    for number in 0..count {
        if number % 8 != 0 {
            store.delete(&key(number)).expect("sound");
        }
    }
    let store = reopen(store).expect("a store");
    let uncounted = store.stats().pages_uncounted;
    assert!(uncounted > 80, "{uncounted}");
    store.put(&key(1), &value(6)).expect("space");
    let left = store.stats().pages_uncounted;
    assert!(
        left + 10 > uncounted && left < uncounted,
        "{uncounted}, {left}"
    );
    // And all of it comes, page by page.
    for number in 0..count * 3 / 4 {
        store.put(&key(number), &value(13)).expect("space");
    }
    check(&store).expect("sound");
}

#[test]
fn what_is_no_store_is_refused() {
    let empty = pool(256 << 10);
    assert!(matches!(Scmkv::open(&empty, &small()), Err(Error::NoRoot)));
    let store = Scmkv::create(&empty, &small()).expect("space");
    drop(store);
    let again = Scmkv::create(&empty, &small());
    assert!(matches!(again, Err(Error::RootTaken)));
}

/// Every bit of the header and of the page table that is flipped is refused, or changes nothing,
/// and nothing panics. The next put once went over live records where a page was said to end before
/// them, or to hold nothing, and a page whose live bytes were said to be none was given back.
#[test]
fn flipped_bits_of_the_header_are_refused_or_harmless() {
    const NEW: std::ops::Range<u64> = 100..120;
    let pool = pool(128 << 10);
    let store = Scmkv::create(&pool, &small()).expect("space");
    for number in 0..40 {
        store.put(&key(number), &value(number)).expect("space");
    }
    // Some of the pages are of the cleaner's log.
    for number in 0..20 {
        store.delete(&key(number)).expect("sound");
    }
    while store.collect_garbage().expect("sound").pages > 0 {}
    let expected = content(&store).expect("sound");
    let mut with_new = expected.clone();
    with_new.extend(NEW.map(|number| (number, number)));
    store.close().expect("it closes");
    let root = pool.root::<Header>().raw();
    let region = Arc::clone(pool.region());
    pool.close().expect("it closes");
    let image = region.to_vec();
    let mut refused = 0;
    for bit in 0..8 * (128 + 8 * 32) {
        let at = usize::try_from(root + bit / 8).expect("small");
        region.write(0, &image);
        region.write(at, &[image[at] ^ (1 << (bit % 8))]);
        let pool = Pool::open_in(&region, pool_options(128 << 10)).expect("a pool");
        // What is opened is not in use, or told by other means as well.
        let Ok(store) = Scmkv::open(&pool, &small()) else {
            refused += 1;
            continue;
        };
        assert!(!(8 * 64..8 * 72).contains(&bit), "another table: bit {bit}");
        assert_eq!(content(&store).as_ref(), Ok(&expected), "bit {bit}");
        for number in NEW {
            store.put(&key(number), &value(number)).expect("space");
        }
        assert_eq!(content(&store).as_ref(), Ok(&with_new), "bit {bit}");
        while store.collect_garbage().expect("sound").pages > 0 {}
        assert_eq!(content(&store).as_ref(), Ok(&with_new), "bit {bit}");
        assert_eq!(check(&store), Ok(with_new.len() as u64), "bit {bit}");
    }
    assert!(refused > 8 * 48, "{refused}");
}

/// A table that would begin in what describes the pool was opened: its header and its allocator
/// were read as buckets, and written to as such.
#[test]
fn a_table_in_front_of_all_blocks_is_damage() {
    let pool = pool(128 << 10);
    let store = Scmkv::create(&pool, &small()).expect("space");
    let log2 = store.volume.table().log2();
    store.close().expect("it closes");
    let header: &Header = pool.at(pool.root::<Header>());
    for offset in [0, 4096, pool.blocks_at() - 8] {
        for (at, log2) in [(&header.table, log2), (&header.next, log2 + 1)] {
            let place = TablePlace::new(offset, log2);
            // ORDER: Relaxed: one thread has the pool.
            let before = at.load(&pool, Ordering::Relaxed);
            at.store_persist(&pool, place.0, Ordering::Relaxed);
            let opened = Scmkv::open(&pool, &small()).map(drop);
            assert!(matches!(opened, Err(Error::Damaged { .. })), "{offset}");
            at.store_persist(&pool, before, Ordering::Relaxed);
        }
    }
    drop(Scmkv::open(&pool, &small()).expect("sound"));
}

/// Pages of which more is live than there is in them: sums of such numbers ended the process, or
/// told the cleaner that all is well.
#[test]
fn more_live_bytes_than_there_are_is_damage() {
    let pool = pool(128 << 10);
    let store = Scmkv::create(&pool, &small()).expect("space");
    for number in 0..40 {
        store.put(&key(number), &value(number)).expect("space");
    }
    store.finish().expect("it closes");
    let pages = &store.volume.pages;
    let numbers: Vec<u32> = pages.numbers().collect();
    assert!(numbers.len() > 3);
    // ORDER: Relaxed throughout: one thread has the pool.
    let set_live = |more: u64| {
        let set = |number: &u32| {
            let descriptor = pages.descriptor(*number);
            let before = descriptor.live.load(&pool, Ordering::Relaxed);
            let end = descriptor.end.load(&pool, Ordering::Relaxed);
            let generation = pages.page(*number).generation();
            let end = NotedBytes::End.bytes_of(end, generation).expect("sound");
            let live = NotedBytes::Live.word(end + more, generation);
            descriptor.live.store(&pool, live, Ordering::Relaxed);
            (descriptor, before)
        };
        numbers.iter().map(set).collect::<Vec<_>>()
    };
    for more in [1, RECORD_HEAD_BYTES, 1 << 31] {
        let before = set_live(more);
        let opened = Scmkv::open(&pool, &small()).map(drop);
        assert!(matches!(opened, Err(Error::Damaged { .. })), "{more}");
        for (descriptor, live) in before {
            descriptor.live.store(&pool, live, Ordering::Relaxed);
        }
    }
    // Bounds may be of other times: no more is said of the page than that it is full.
    set_live(AT_MOST | 1 << 31);
    let again = Scmkv::open(&pool, &small()).expect("sound");
    assert!(again.stats().live_bytes <= numbers.len() as u64 * 4096);
    while again.collect_garbage().expect("sound").pages > 0 {}
    assert_eq!(check(&again), Ok(40));
}

/// A flipped bit in a record is found when it is read.
#[test]
fn flipped_bits_of_records_are_found() {
    let pool = pool(128 << 10);
    let store = Scmkv::create(&pool, &small()).expect("space");
    store.put(&key(5), &value(5)).expect("space");
    let head = store.volume.logs.mine().records.expect("an open page");
    let record = head.start + PAGE_HEAD_BYTES;
    let length = RECORD_HEAD_BYTES + key(5).len() as u64 + value(5).len() as u64;
    for bit in 0..8 * length {
        let mut byte = [0];
        pool.read(record + bit / 8, &mut byte);
        pool.write(record + bit / 8, &[byte[0] ^ (1 << (bit % 8))]);
        assert!(store.check().is_err(), "bit {bit}");
        match store.get(&key(5)) {
            // A key that is not what was asked for is another key.
            Ok(None) | Err(Error::Damaged { .. }) => {}
            // The address of the record before, and the check of the head, concern recovery.
            Ok(Some(found)) => assert_eq!(found, value(5), "bit {bit}"),
            Err(error) => panic!("bit {bit}: {error}"),
        }
        pool.write(record + bit / 8, &byte);
    }
    check(&store).expect("sound");
}

/// A bucket that says that it has moved, and nothing takes the place of its table: whoever came to
/// it looked for the next table for ever. All ones are that mark.
#[test]
fn a_bucket_that_has_moved_nowhere_is_damage() {
    let store = Scmkv::create(&pool(128 << 10), &small()).expect("space");
    for number in 0..8 {
        store.put(&key(number), &value(number)).expect("space");
    }
    let volume = &store.volume;
    let hash = volume.seed.hash_bytes(&key(3));
    let is_damage = |result: Result<(), Error>| matches!(result, Err(Error::Damaged { .. }));
    let is_told = || {
        is_damage(store.get(&key(3)).map(drop))
            && is_damage(store.contains(&key(3)).map(drop))
            && is_damage(store.put(&key(3), &value(4)).map(drop))
            && is_damage(store.delete(&key(3)).map(drop))
            && is_damage(store.len().map(drop))
            && is_damage(store.check().map(drop))
            && content(&store).is_err()
    };
    let while_moved = |places: &[u64], look: &dyn Fn()| {
        let words = places.iter().map(|at| {
            let mut word = [0; 8];
            volume.medium.read(*at, &mut word);
            volume.medium.write(*at, &Entry::MOVED.0.to_le_bytes());
            (*at, word)
        });
        let words: Vec<_> = words.collect();
        look();
        for (at, word) in words {
            volume.medium.write(at, &word);
        }
    };
    let bucket = volume.table().bucket_of(hash);
    while_moved(&[bucket], &|| assert!(is_told()));
    check(&store).expect("sound");
    // There is a next table, and its bucket says the same.
    volume.begin_enlarging().expect("space");
    let next = volume.next_table().bucket_of(hash);
    while_moved(&[bucket, next], &|| assert!(is_told()));
    store.enlarge().expect("space");
    assert_eq!(check(&store), Ok(8));
}
