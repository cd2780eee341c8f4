//! P-CLHT in special situations.

use gabion_media::pmem::{PAtomicU64, Pool, PoolOptions};

use super::PClht;
use super::table::{BITS_MIN, suitable_bits};
use crate::suite::words::{check, fill_the_pool, grow_by_threads};
use crate::suite::{Keys, interleaved};
use crate::{Error, Index, Plan};

fn pool(size: u64) -> Pool {
    let options = PoolOptions {
        size,
        heaps: 4,
        ..PClht::pool_options()
    };
    Pool::anonymous(options).expect("a pool in memory")
}

const SMALL: Plan = Plan {
    capacity: 8,
    seed: Some(7),
};

#[test]
fn a_table_grows_far_past_its_plan_and_shrinks_again() {
    let table = PClht::create(&pool(16 << 20), SMALL).expect("a table");
    assert_eq!(table.table().bits(), BITS_MIN);
    for key in 0..20_000 {
        assert_eq!(table.insert(&key, key * 3).expect("space"), None);
    }
    for key in 0..20_000 {
        assert_eq!(table.get(&key).expect("sound"), Some(key * 3));
        assert_eq!(table.get(&(key + 20_000)).expect("sound"), None);
    }
    check(&table, 20_000);
    let bits = table.table().bits();
    for key in 100..20_000 {
        assert_eq!(table.remove(&key).expect("sound"), Some(key * 3));
    }
    table.compact().expect("space");
    check(&table, 100);
    assert!(table.table().bits() < bits && table.table().bits() >= suitable_bits(100));
}

/// Threads that insert find a lock held by one that makes the table grow, and help it.
#[test]
fn threads_that_wait_help_the_table_to_grow() {
    let table = PClht::create(&pool(64 << 20), SMALL).expect("a table");
    grow_by_threads(&table);
}

/// When the pool is full, inserts that need room fail, and everything else goes on.
#[test]
fn a_full_pool_leaves_the_table_usable() {
    let table = PClht::create(&pool(256 << 10), SMALL).expect("a table");
    fill_the_pool(&table);
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
        let mut byte = [0];
        pool.read(at, &mut byte);
        pool.write(at, &[byte[0] ^ mask]);
        match PClht::open(&pool) {
            Err(_) => refused += 1,
            // A word that leads to another place of the pool: to no table.
            Ok(table) => drop(table.check()),
        }
        pool.write(at, &byte);
    }
    assert!(refused >= 8 * 64, "{refused}");
    let table = PClht::open(&pool).expect("a table");
    check(&table, 50);
}

/// The published readers return what they see. Here they make it durable first if a writer may be
/// between publish and flush; without that, an answer is lost in a crash, and the explorer sees it.
#[test]
fn a_reader_that_answers_before_the_answer_is_durable_is_caught() {
    let keys = Keys::words(&super::REGISTERED).expect("words are keys");
    interleaved::catch_readers(keys, |file| file.ends_with("pclht/read.rs"));
}
