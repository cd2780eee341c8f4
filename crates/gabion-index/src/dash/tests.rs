//! Dash in special situations.

use gabion_media::pmem::{PAtomicU64, Pool};

use super::Dash;
use super::layout::{OverflowMeta, SLOTS};
use crate::extendible::uneven::uneven_key;
use crate::suite::words::{check, drain, fill, fill_the_pool, grow_by_threads, insert_alike};
use crate::suite::{self, Keys, SMALL, crash, interleaved, while_flipped};
use crate::{Error, Index, IndexPlan};

fn pool(size: u64) -> Pool {
    suite::pool(size, Dash::<u64>::pool_options())
}

/// Slots that hold entries, and all slots.
fn load<const USABLE: u32>(table: &Dash<u64, USABLE>) -> (u64, u64) {
    let entries = table.len().expect("sound");
    let mut slots = 0;
    let of_segment = table.shape.buckets() * u64::from(USABLE);
    let visit = |_, _| {
        slots += of_segment;
        Ok(())
    };
    table.segments.for_each_segment(visit).expect("sound");
    (entries, slots)
}

#[test]
fn a_table_grows_far_past_its_plan() {
    for capacity in [8, 20_000] {
        let plan = IndexPlan { capacity, ..SMALL };
        let table: Dash<u64> = Dash::create(&pool(32 << 20), plan).expect("a table");
        check(&table, 0);
        fill(&table, 30_000);
        drain(&table, 30_000, 0);
    }
}

/// What balancing, moving and stashing are for: segments are nearly full before they are split.
#[test]
fn segments_are_nearly_full_when_they_are_split() {
    let plan = IndexPlan {
        capacity: 20_000,
        seed: Some(7),
    };
    let table: Dash<u64> = Dash::create(&pool(32 << 20), plan).expect("a table");
    let (_, before) = load(&table);
    let mut most = 0.0_f64;
    for key in 0..60_000 {
        table.insert(&key, key).expect("space");
        if key % 100 == 0 {
            let (entries, slots) = load(&table);
            if slots > before {
                break;
            }
            most = most.max(entries as f64 / slots as f64);
        }
    }
    assert!(most > 0.8, "{most}");
}

#[test]
fn threads_grow_a_table_together() {
    let table: Dash<u64> = Dash::create(&pool(64 << 20), SMALL).expect("a table");
    grow_by_threads(&table);
    let table: Dash<u64, 3> = Dash::make(&pool(128 << 20), SMALL).expect("a table");
    grow_by_threads(&table);
}

/// When the pool is full, inserts that need room fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_table_usable() {
    let table: Dash<u64> = Dash::create(&pool(256 << 10), SMALL).expect("a table");
    fill_the_pool(&table);
}

/// Keys that share the first bits of their hashes make segments split again and again.
#[test]
fn keys_that_share_the_first_bits_of_their_hashes_split_again_and_again() {
    let table: Dash<u64, 3> = Dash::make(&pool(16 << 20), SMALL).expect("a table");
    insert_alike(&table, 54, 0x2bc);
    assert!(table.segments.directory().bits() > 10);
}

#[test]
fn what_is_no_table_is_refused() {
    let pool = pool(1 << 20);
    assert!(matches!(Dash::<u64>::open(&pool), Err(Error::NoRoot)));
    let table: Dash<u64> = Dash::create(&pool, SMALL).expect("a table");
    let again = Dash::<u64>::create(&pool, SMALL);
    assert!(matches!(again, Err(Error::RootTaken)));
    assert!(matches!(Dash::<[u8]>::open(&pool), Err(Error::OtherKind)));
    for key in 0..100 {
        table.insert(&key, key).expect("space");
    }
    let entries = || Dash::<u64>::open(&pool).and_then(|table| Ok(table.check()?.entries));
    let is_refused = |at, mask| {
        let found = while_flipped(&pool, at, mask, entries);
        matches!(found, Err(Error::Damaged { .. } | Error::NoRoot))
    };
    let root = pool.root::<PAtomicU64>().raw();
    assert!((0..64).all(|at| is_refused(root + at, 1)));
    // The parts of the directory's offset that lead out of the pool, and of its entries' offsets.
    assert!((0..8).all(|bit| is_refused(root + 64 + 5, 1 << bit)));
    let directory = table.segments.directory();
    for number in 0..directory.len() {
        let entry = directory.entry(number).raw();
        assert!(
            (0..8).all(|bit| is_refused(entry + 5, 1 << bit)),
            "{number}"
        );
    }
    let opened: Dash<u64> = Dash::open(&pool).expect("a table");
    check(&opened, 100);
}

/// What a crash may leave in a segment is mended by the first writer, and no reader minds: an entry
/// that is in two neighbours, and notes of entries that are not in the stash.
#[test]
fn a_writer_mends_what_a_crash_left() {
    let pool = pool(1 << 20);
    let table: Dash<u64> = Dash::create(&pool, SMALL).expect("a table");
    for key in 0..20 {
        table.insert(&key, key + 1).expect("space");
    }
    let hash = table.seed.hash_u64(5);
    let segment = table.segments.segment(hash);
    let home = table.shape.home(hash);
    let after = table.shape.after(home);
    let (home, after) = (
        table.bucket_at(segment, home),
        table.bucket_at(segment, after),
    );
    let from = table
        .search(segment, hash, &5)
        .expect("sound")
        .expect("there");
    let (target, is_away) = if std::ptr::eq(from.bucket, home) {
        (after, true)
    } else {
        (home, false)
    };
    let slot = target.meta().free(SLOTS).trailing_zeros();
    target.fill(&pool, slot, from.bucket.tag(from.slot), 5, 6);
    target.publish(&pool, target.meta().with(slot, is_away));
    home.set_overflow(&pool, OverflowMeta::default().with(9, 0));
    let opened: Dash<u64> = Dash::open(&pool).expect("a table");
    assert_eq!(opened.get(&5).expect("sound"), Some(6));
    assert_eq!(home.overflow(), OverflowMeta::default().with(9, 0));
    assert_eq!(opened.update(&5, 60).expect("sound"), Some(6));
    assert_eq!(opened.get(&5).expect("sound"), Some(60));
    assert_eq!(home.overflow(), OverflowMeta::default());
    assert_eq!(opened.remove(&5).expect("sound"), Some(60));
    assert_eq!(opened.get(&5).expect("sound"), None);
    check(&opened, 19);
}

/// A reader that answers before the answer is durable is caught: without its flushes, or its fence,
/// an answer is lost in a crash, and the explorer sees it.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&super::REGISTERED).expect("words are keys");
    interleaved::catch_readers(keys, |file| file.ends_with("dash/readpath.rs"));
}

#[test]
fn power_failures_in_splits_over_many_lines_of_the_directory_lose_nothing() {
    crash::survive(Keys {
        name: super::TINY.name,
        makers: &super::TINY.words,
        key: uneven_key,
    });
}
