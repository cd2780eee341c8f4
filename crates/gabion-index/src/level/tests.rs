//! Level hashing in special situations.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, Pool};

use super::form::{Form, Lines, Padded, Quads, StreamedQuads};
use super::places::TOP_BITS_MIN;
use super::writepath::{NOTE_OFFSET_BITS, ValueOf};
use super::{LevelHash, LevelTable};
use crate::bucket::{Bucket, Value};
use crate::suite::words::{check, drain, fill, fill_the_pool, grow_by_threads};
use crate::suite::{self, Keys, SMALL, interleaved, while_flipped};
use crate::{Error, Index};

fn pool(size: u64) -> Pool {
    pool_of::<Lines>(size)
}

fn pool_of<F: Form>(size: u64) -> Pool {
    suite::pool(size, LevelTable::<F>::pool_options())
}

/// The slides tell that 1.2 % of inserts move an entry; here it is some more.
#[test]
fn a_table_grows_far_past_its_plan_and_moves_few_entries() {
    grow_and_empty::<Lines>();
    grow_and_empty::<Padded>();
    grow_and_empty::<Quads>();
    grow_and_empty::<StreamedQuads>();
}

fn grow_and_empty<F: Form>() {
    let pool = pool_of::<F>(16 << 20);
    let table = LevelTable::<F>::create(&pool, SMALL).expect("a table");
    assert_eq!(table.top().bits(), TOP_BITS_MIN);
    let count = 50_000;
    fill(&table, count);
    assert!(
        table.moves() > 0 && table.moves() * 100 < count * 5,
        "{}",
        table.moves()
    );
    drain(&table, count, 0);
}

#[test]
fn threads_grow_a_table_together() {
    let table = LevelHash::create(&pool(64 << 20), SMALL).expect("a table");
    grow_by_threads(&table);
    let table = LevelTable::<Padded>::create(&pool_of::<Padded>(64 << 20), SMALL).expect("a table");
    grow_by_threads(&table);
    let table = LevelTable::<Quads>::create(&pool_of::<Quads>(64 << 20), SMALL).expect("a table");
    grow_by_threads(&table);
}

/// When the pool is full, inserts that need room fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_table_usable() {
    let table = LevelHash::create(&pool(256 << 10), SMALL).expect("a table");
    fill_the_pool(&table);
    let table =
        LevelTable::<Padded>::create(&pool_of::<Padded>(256 << 10), SMALL).expect("a table");
    fill_the_pool(&table);
}

/// The published code leaves two entries of one key when the power fails within a movement: an
/// update changes one of them, and a delete brings the other back.
#[test]
fn recovery_ends_one_of_two_equal_entries() {
    end_one_of_two::<Lines>();
    end_one_of_two::<Padded>();
    end_one_of_two::<Quads>();
}

fn end_one_of_two<F: Form>() {
    let pool = pool_of::<F>(1 << 20);
    let table = LevelTable::<F>::create(&pool, SMALL).expect("a table");
    table.insert(&5, 50).expect("space");
    let hashes = table.hashes(5);
    let levels = table.levels(table.top());
    let places = table.places(&levels, hashes);
    let from = places
        .into_iter()
        .find(|line| line.find(5).is_some())
        .expect("it is there");
    let to = places
        .into_iter()
        .find(|line| line.find(5).is_none())
        .expect("another place");
    to.put(&pool, 2, 5, ValueOf::<F>::of_word(50));
    let slot = from.find(5).expect("it is there") as u64;
    let at = pool.offset_of(from).raw();
    assert!(table.check().is_err());
    let note = at | slot << NOTE_OFFSET_BITS;
    table
        .state()
        .note
        .store_persist(&pool, note, Ordering::Relaxed);
    let table = LevelTable::<F>::open(&pool).expect("a table");
    check(&table, 1);
    assert_eq!(table.remove(&5).expect("sound"), Some(50));
    assert_eq!(table.get(&5).expect("sound"), None);
    // A note that means nothing any more does no harm.
    table.insert(&6, 60).expect("space");
    for note in [1, at | 7 << NOTE_OFFSET_BITS, u64::MAX, at + 8] {
        table
            .state()
            .note
            .store_persist(&pool, note, Ordering::Relaxed);
        let table = LevelTable::<F>::open(&pool).expect("a table");
        check(&table, 1);
    }
}

#[test]
fn what_is_no_table_is_refused() {
    let pool = pool(1 << 20);
    assert!(matches!(LevelHash::open(&pool), Err(Error::NoRoot)));
    let table = LevelHash::create(&pool, SMALL).expect("a table");
    assert!(matches!(
        LevelHash::create(&pool, SMALL),
        Err(Error::RootTaken)
    ));
    table.insert(&1, 1).expect("space");
    let root = pool.root::<PAtomicU64>().raw();
    let is_refused = |at, mask| {
        let opened = while_flipped(&pool, at, mask, || LevelHash::open(&pool));
        matches!(opened, Err(Error::Damaged { .. } | Error::NoRoot))
    };
    assert!((0..64).all(|at| is_refused(root + at, 1)));
    // The bits of the top level, and the parts of its offset that lead out of the pool.
    assert!((0..6).all(|bit| is_refused(root + 64 + 6, 1 << bit)));
    assert!((0..8).all(|bit| is_refused(root + 64 + 5, 1 << bit)));
    check(&LevelHash::open(&pool).expect("a table"), 1);
}

/// The published readers return what they see. Here they make it durable first if a writer may be
/// between publish and flush; without that, an answer is lost in a crash, and the explorer sees it.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&super::REGISTERED).expect("words are keys");
    interleaved::catch_readers(keys, |file| file.ends_with("level/readpath.rs"));
}
