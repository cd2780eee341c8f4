//! CCEH in special situations.

use gabion_media::pmem::{PAtomicU64, Pool};

use super::Cceh;
use crate::extendible::uneven::uneven_key;
use crate::suite::words::{check, drain, fill, fill_the_pool, grow_by_threads, insert_alike};
use crate::suite::{self, Keys, SMALL, crash, interleaved, while_flipped};
use crate::{Error, Index, IndexPlan, registry};

fn pool(size: u64) -> Pool {
    suite::pool(size, Cceh::<false>::pool_options())
}

fn grow_and_drain<const COPIES: bool>(plan: IndexPlan) {
    grow_and_drain_in::<COPIES, 4, false>(plan);
}

fn grow_and_drain_in<const COPIES: bool, const SCOPE: u64, const TWICE: bool>(plan: IndexPlan) {
    let pool = suite::pool(32 << 20, Cceh::<COPIES, SCOPE, TWICE>::pool_options());
    let table = Cceh::<COPIES, SCOPE, TWICE>::create(&pool, plan).expect("a table");
    check(&table, 0);
    fill(&table, 30_000);
    drain(&table, 30_000, 0);
}

#[test]
fn a_table_grows_far_past_its_plan() {
    grow_and_drain::<false>(SMALL);
    grow_and_drain::<true>(SMALL);
    let large = IndexPlan {
        capacity: 20_000,
        ..SMALL
    };
    grow_and_drain::<false>(large);
    grow_and_drain::<true>(large);
    for plan in [SMALL, large] {
        grow_and_drain_in::<true, 8, false>(plan);
        grow_and_drain_in::<true, 8, true>(plan);
    }
}

/// More buckets for a key fill segments more before they are split.
#[test]
fn a_wider_scope_and_a_second_home_fill_segments_more() {
    let most = |index: &'static registry::Registered| {
        let pool = suite::pool(32 << 20, (index.words.pool_options)());
        let plan = IndexPlan {
            capacity: 4096,
            ..SMALL
        };
        let table = (index.words.create)(&pool, plan).expect("a table");
        let mut most = 0;
        for key in 0..40_000 {
            table.insert(&key, key).expect("space");
            if key > 10_000 && key % 500 == 0 {
                // All blocks but the root and the directory are segments.
                let segments = table.check().expect("sound").blocks - 2;
                most = most.max(key / segments);
            }
        }
        most
    };
    let [narrow, wide, two] = [&super::COPYING, &super::SCOPE_8, &super::TWO_HOMES].map(most);
    assert!(
        narrow * 11 < wide * 10 && wide * 11 < two * 10,
        "{narrow}, {wide}, {two}"
    );
}

#[test]
fn threads_grow_a_table_together() {
    let table = Cceh::<true>::create(&pool(64 << 20), SMALL).expect("a table");
    grow_by_threads(&table);
}

/// When the pool is full, inserts that need room fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_table_usable() {
    let table = Cceh::<false>::create(&pool(256 << 10), SMALL).expect("a table");
    fill_the_pool(&table);
}

/// The published code crashes when about sixteen splits follow each other, as keys that share the
/// first bits of their hashes make them do.
#[test]
fn keys_that_share_the_first_bits_of_their_hashes_split_again_and_again() {
    let table = Cceh::<false>::create(&pool(16 << 20), SMALL).expect("a table");
    insert_alike(&table, 52, 0xabc);
    assert!(table.segments.directory().bits() > 12);
}

#[test]
fn what_is_no_table_is_refused() {
    let pool = pool(1 << 20);
    assert!(matches!(Cceh::<false>::open(&pool), Err(Error::NoRoot)));
    let table = Cceh::<false>::create(&pool, SMALL).expect("a table");
    let again = Cceh::<false>::create(&pool, SMALL);
    assert!(matches!(again, Err(Error::RootTaken)));
    for key in 0..100 {
        table.insert(&key, key).expect("space");
    }
    let entries = || Cceh::<false>::open(&pool).and_then(|table| Ok(table.check()?.entries));
    let flip = |at, mask| while_flipped(&pool, at, mask, entries);
    let is_refused =
        |at, mask| matches!(flip(at, mask), Err(Error::Damaged { .. } | Error::NoRoot));
    let is_harmless =
        |at, mask| flip(at, mask).is_ok_and(|entries| entries == 100) || is_refused(at, mask);
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
        // A flip that makes a split out of it which had begun is put right.
        assert!(
            (0..6).all(|bit| is_harmless(entry + 6, 1 << bit)),
            "{number}"
        );
    }
    check(&Cceh::<false>::open(&pool).expect("a table"), 100);
}

/// The directory of a table that is open is checked before it is followed: the check ended the
/// process where an entry led out of the pool.
#[test]
fn a_directory_that_is_damaged_while_it_is_used_is_found() {
    let pool = pool(1 << 20);
    let table = Cceh::<false>::create(&pool, SMALL).expect("a table");
    for key in 0..100 {
        table.insert(&key, key).expect("space");
    }
    let directory = table.segments.directory();
    // A count asks the first entry of a segment only.
    let segment = |number: u64| table.segments.segment(number << (64 - directory.bits()));
    let is_repeated = |number: u64| number > 0 && segment(number) == segment(number - 1);
    let repeated: Vec<bool> = (0..directory.len()).map(is_repeated).collect();
    for (number, is_repeated) in (0..).zip(repeated) {
        let entry = directory.entry(number).raw();
        for mask in (0..8).map(|bit| 1 << bit) {
            let is_found = while_flipped(&pool, entry + 5, mask, || {
                let is_told = matches!(table.check(), Err(Error::Damaged { .. }));
                is_told && table.count().is_ok_and(|count| count == 100) == is_repeated
            });
            assert!(is_found, "{number}: {mask}");
            // The depth, and two bits that say nothing.
            let _ = while_flipped(&pool, entry + 6, mask, || table.check().map(|_| ()));
        }
    }
    check(&table, 100);
}

/// The published readers return what they see. Here they make it durable first if a writer may be
/// between publish and flush; without that, an answer is lost in a crash, and the explorer sees it.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&super::REGISTERED).expect("words are keys");
    interleaved::catch_readers(keys, |file| file.ends_with("cceh/readpath.rs"));
}

#[test]
fn power_failures_in_splits_over_many_lines_of_the_directory_lose_nothing() {
    for index in [
        &super::REGISTERED,
        &super::COPYING,
        &super::SCOPE_8,
        &super::TWO_HOMES,
    ] {
        let keys = || Keys {
            name: index.name,
            makers: &index.words,
            key: uneven_key,
        };
        crash::survive(keys());
    }
}
