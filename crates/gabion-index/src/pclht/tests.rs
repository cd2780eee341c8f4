//! P-CLHT in special situations.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, Pool};

use super::table::Table;
use super::{
    Best, ClhtTable, Coalesced, Evicting, EvictingWide, Form, PClht, Published, REGISTERED, Wide,
};
use crate::suite::words::{self, check, drain, fill_the_pool, grow_by_threads};
use crate::suite::{self, Keys, SMALL, interleaved, while_flipped};
use crate::{Error, Index};

fn pool(size: u64) -> Pool {
    pool_of::<Best>(size)
}

fn pool_of<F: Form>(size: u64) -> Pool {
    suite::pool(size, ClhtTable::<F>::pool_options())
}

/// Runs a test with each form of the table.
macro_rules! for_each_form {
    ($test:ident) => {
        $test::<Best>();
        $test::<Wide>();
        $test::<Published>();
        $test::<Coalesced>();
        $test::<Evicting>();
        $test::<EvictingWide>();
    };
}

#[test]
fn a_table_grows_far_past_its_plan_and_shrinks_again() {
    for_each_form!(grow_and_shrink);
}

fn grow_and_shrink<F: Form>() {
    let table = ClhtTable::<F>::create(&pool_of::<F>(16 << 20), SMALL).expect("a table");
    assert_eq!(table.table().bits(), Table::<F>::BITS_MIN);
    words::fill(&table, 20_000);
    let bits = table.table().bits();
    drain(&table, 20_000, 100);
    table.compact().expect("space");
    check(&table, 100);
    let least = Table::<F>::suitable_bits(100);
    assert!(table.table().bits() < bits && table.table().bits() >= least);
}

/// Threads that insert find a lock held by one that makes the table grow, and help it.
#[test]
fn threads_that_wait_help_the_table_to_grow() {
    for_each_form!(grow_together);
}

fn grow_together<F: Form>() {
    let table = ClhtTable::<F>::create(&pool_of::<F>(64 << 20), SMALL).expect("a table");
    grow_by_threads(&table);
}

/// When the pool is full, inserts that need room fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_table_usable() {
    for_each_form!(fill);
}

fn fill<F: Form>() {
    let table = ClhtTable::<F>::create(&pool_of::<F>(256 << 10), SMALL).expect("a table");
    fill_the_pool(&table);
}

/// The published table hangs if a crash left a lock in a bucket held.
#[test]
fn a_lock_that_a_crash_left_held_is_free_again() {
    for_each_form!(leave_locks);
}

fn leave_locks<F: Form>() {
    let pool = pool_of::<F>(1 << 20);
    let table = ClhtTable::<F>::create(&pool, SMALL).expect("a table");
    for key in 0..20 {
        table.insert(&key, key).expect("space");
    }
    // As a writer and a growth that came to no end.
    let held = table.lock(0);
    std::mem::forget(held);
    assert_eq!(table.get(&0).expect("sound"), Some(0));
    drop(table);
    let table = ClhtTable::<F>::open(&pool).expect("a table");
    table.lock_all().give_up();
    drop(table);
    let table = ClhtTable::<F>::open(&pool).expect("a table");
    for key in 0..40 {
        table.insert(&key, key + 1).expect("space");
    }
    check(&table, 40);
}

/// The link of a spare that led back to it kept lookups and writes of absent keys for ever, and
/// growth would have copied the entries behind it again and again.
#[test]
fn links_in_a_ring_are_told() {
    for_each_form!(lead_back);
}

fn lead_back<F: Form>() {
    let table = ClhtTable::<F>::create(&pool_of::<F>(4 << 20), SMALL).expect("a table");
    words::fill(&table, 3_000);
    let in_use = table.table();
    let chain = |number: u64| {
        let first = Some(table.bucket(in_use, number));
        std::iter::successors(first, |line| table.next(in_use, line))
    };
    let is_chained = |number: &u64| chain(*number).count() > ClhtTable::<F>::LINES;
    let number = (0..in_use.len()).find(is_chained).expect("a chain");
    let last = chain(number).last().expect("a line");
    let spare = chain(number).nth(ClhtTable::<F>::LINES).expect("a spare");
    let is_absent = |key: &u64| in_use.home(table.seed.hash_u64(*key)) == number;
    let absent = (1 << 40..).find(is_absent).expect("a key");
    let link_to = |at: u64| {
        // ORDER: Relaxed: one thread has the table.
        last.link
            .store_persist(&table.medium, at, Ordering::Relaxed);
    };
    link_to(table.medium.offset_of(spare).raw());

    assert_eq!(table.get(&absent).expect("its chain ends"), None);
    assert_eq!(table.update(&absent, 1).expect("its chain ends"), None);
    assert_eq!(table.remove(&absent).expect("its chain ends"), None);
    table.settle(in_use, table.seed.hash_u64(absent));
    let is_told = |said: crate::Result<()>| matches!(said, Err(Error::Damaged { .. }));
    assert!(is_told(table.insert(&absent, 1).map(drop)));
    assert!(is_told(table.for_each(&mut |_, _| ())));
    assert!(is_told(table.compact()));
    assert!(is_told(table.grow(in_use)));
    assert!(is_told(table.check().map(drop)));
    assert_eq!(table.table(), in_use);

    link_to(0);
    table.insert(&absent, 1).expect("space");
    assert_eq!(table.remove(&absent).expect("sound"), Some(1));
    check(&table, 3_000);
    table.compact().expect("space");
    check(&table, 3_000);
}

/// Forms differ in what lies in a pool, so one does not open another's.
#[test]
fn a_form_refuses_the_pool_of_another() {
    let pool = pool_of::<Published>(1 << 20);
    drop(ClhtTable::<Published>::create(&pool, SMALL).expect("a table"));
    assert!(matches!(
        ClhtTable::<Coalesced>::open(&pool),
        Err(Error::NoRoot)
    ));
    assert!(matches!(PClht::open(&pool), Err(Error::NoRoot)));
}

#[test]
fn what_is_no_table_is_refused() {
    let pool = pool(1 << 20);
    assert!(matches!(PClht::open(&pool), Err(Error::NoRoot)));
    let table = PClht::create(&pool, SMALL).expect("a table");
    assert!(matches!(PClht::create(&pool, SMALL), Err(Error::RootTaken)));
    for key in 0..50 {
        table.insert(&key, key).expect("space");
    }
    let root = pool.root::<PAtomicU64>().raw();
    let mut refused = 0;
    for bit in 0..8 * (64 + 8) {
        let (at, mask) = (root + bit / 8, 1 << (bit % 8));
        while_flipped(&pool, at, mask, || match PClht::open(&pool) {
            Err(_) => refused += 1,
            // A word that leads to another place of the pool: to no table.
            Ok(table) => drop(table.check()),
        });
    }
    assert!(refused >= 8 * 64, "{refused}");
    let table = PClht::open(&pool).expect("a table");
    check(&table, 50);
}

/// The published readers return what they see. Here they make it durable first if a writer may be
/// between publish and flush; without that, an answer is lost in a crash, and the explorer sees it.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&REGISTERED).expect("words are keys");
    interleaved::catch_readers(keys, |file| file.ends_with("pclht/readpath.rs"));
}
