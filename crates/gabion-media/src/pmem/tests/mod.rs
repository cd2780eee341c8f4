//! Tests of pools as a whole: what opening refuses, what survives, and what the allocator keeps.

mod drive;
mod kill;
mod power;
mod refusals;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::*;
use crate::{Error, PoolFault};

const LAYOUT: u64 = 0x0067_6162_696f_6e01;

fn options() -> PoolOptions {
    PoolOptions {
        size: 1 << 20,
        layout: LAYOUT,
        heaps: 2,
        chunk_bytes: 4096,
        ..PoolOptions::default()
    }
}

/// Publishes a new block of `size` bytes in `word` as the rules say.
fn put(pool: &Pool, word: POff<PAtomicU64>, size: u64, fill: u8) -> POff {
    let block = pool.alloc(size, word.raw()).unwrap();
    pool.write(
        block.offset::<u8>().raw(),
        &vec![fill; usize::try_from(size).unwrap()],
    );
    pool.flush_range(block.offset::<u8>().raw(), size);
    pool.fence();
    let cell = pool.at(word);
    cell.store_persist(pool, block.offset::<u8>().raw(), Ordering::Release);
    block.commit()
}

fn take(pool: &Pool, word: POff<PAtomicU64>) {
    let cell = pool.at(word);
    let block = POff::<u8>::new(cell.load(pool, Ordering::Acquire));
    let retiring = pool.retire(block, word.raw()).unwrap();
    pool.fence();
    cell.store_persist(pool, 0, Ordering::Release);
    retiring.commit(&pool.enter());
}

/// A root of `count` words, all null.
fn new_root(pool: &Pool, count: u64) -> POff<PAtomicU64> {
    let root = pool.alloc(count * 8, ROOT_HINT).unwrap();
    pool.zero(root.offset::<u8>().raw(), count * 8);
    pool.fence();
    pool.set_root(root.offset::<PAtomicU64>());
    root.commit()
}

#[test]
fn a_block_is_found_again_in_every_kind_of_pool() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let region = Region::new(1 << 20);
    let check = |pool: &Pool, word: POff<PAtomicU64>| {
        let block = pool.at(word).load(pool, Ordering::Acquire);
        assert!(pool.equals(block, &[7; 100]));
        assert_eq!(pool.stats().used_blocks, 2);
    };
    let fill = |pool: Pool| {
        let word = new_root(&pool, 4).element(2);
        put(&pool, word, 100, 7);
        check(&pool, word);
        pool
    };
    let pool = fill(Pool::create(&path, options()).unwrap());
    assert_eq!(pool.class(), PoolClass::Process);
    drop(pool);
    let pool = Pool::open(&path, options()).unwrap();
    assert!(!pool.was_closed());
    check(&pool, pool.root::<PAtomicU64>().element(2));
    pool.close().unwrap();
    let pool = Pool::open(&path, options()).unwrap();
    assert!(pool.was_closed());
    check(&pool, pool.root::<PAtomicU64>().element(2));

    drop(fill(Pool::create_in(&region, options()).unwrap()));
    let pool = Pool::open_in(&region, options()).unwrap();
    check(&pool, pool.root::<PAtomicU64>().element(2));

    assert_eq!(
        fill(Pool::anonymous(options()).unwrap()).class(),
        PoolClass::None
    );
}

#[test]
fn a_retired_block_is_free_once_its_readers_are_gone() {
    let pool = Pool::anonymous(options()).unwrap();
    let word = new_root(&pool, 1);
    put(&pool, word, 3000, 1);
    let reader = pool.enter();
    take(&pool, word);
    pool.collect();
    assert_eq!(pool.stats().retired_bytes, 3000_u64.next_multiple_of(4096));
    drop(reader);
    pool.collect();
    assert_eq!(pool.stats().retired_bytes, 0);
    assert_eq!(pool.stats().used_blocks, 1);
}

#[test]
fn a_full_pool_says_so_and_stays_usable() {
    let pool = Pool::anonymous(options()).unwrap();
    let root = new_root(&pool, 400);
    let mut count = 0;
    let error = loop {
        match pool.alloc(3000, 0) {
            Ok(_) => {}
            Err(error) => break error,
        }
        put(&pool, root.element(count), 3000, 2);
        count += 1;
    };
    assert!(
        matches!(error, Error::PoolFull { wanted: 3000, .. }),
        "{error}"
    );
    assert!(count > 150, "{count}");
    take(&pool, root);
    put(&pool, root, 3000, 3);
    assert!(pool.alloc(3000, 0).is_err());
    for index in 0..count {
        take(&pool, root.element(index));
    }
    pool.collect();
    assert!(pool.alloc(500_000, 0).is_ok(), "{:?}", pool.stats());
}

fn refusal(path: &Path, options: PoolOptions) -> PoolFault {
    match Pool::open(path, options) {
        Err(Error::Pool { fault, path: told }) => {
            assert_eq!(told, path);
            fault
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pool_has_one_opener() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = Pool::create(&path, options()).unwrap();
    let locked = Pool::open(&path, options()).unwrap_err();
    assert!(
        matches!(&locked, Error::Locked { holder: Some(told), .. }
            if told.process == std::process::id()),
        "{locked}"
    );
    assert!(matches!(
        Pool::create(&path, options()),
        Err(Error::AlreadyExists { .. })
    ));
    drop(pool);
    Pool::open(&path, options()).unwrap();
}

#[test]
fn a_pool_of_another_layout_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    Pool::create(&path, options()).unwrap().close().unwrap();
    let other = PoolOptions {
        layout: 1,
        ..options()
    };
    assert_eq!(
        refusal(&path, other),
        PoolFault::Layout {
            found: LAYOUT,
            wanted: 1
        }
    );
}

/// Keeps what it is told.
#[derive(Default)]
struct Recorder(parking_lot::Mutex<Vec<String>>);

impl trace::Watcher for Recorder {
    fn event(&self, event: trace::TraceEvent<'_>) {
        self.0.lock().push(event.to_string());
    }
}

#[test]
fn a_watcher_sees_each_step_with_its_place() {
    let recorder = Arc::new(Recorder::default());
    let watcher: Arc<dyn trace::Watcher> = recorder.clone();
    let options = PoolOptions {
        watcher: Some(watcher),
        ..options()
    };
    let region = Region::new(1 << 20);
    let pool = Pool::create_in(&region, options).unwrap();
    let word = new_root(&pool, 8);
    recorder.0.lock().clear();
    pool.at(word).store(&pool, 5, Ordering::Release);
    pool.persist(pool.at(word));
    let changed = pool
        .at(word)
        .compare_exchange(&pool, 5, 6, Ordering::AcqRel, Ordering::Acquire);
    assert_eq!(changed, Ok(5));
    assert_eq!(
        pool.at(word)
            .compare_exchange(&pool, 5, 7, Ordering::AcqRel, Ordering::Acquire),
        Err(6)
    );
    assert_eq!(pool.at(word).fetch_add(&pool, 2, Ordering::AcqRel), 6);
    assert_eq!(pool.at(word).peek(Ordering::Acquire), 8);
    pool.write_past_cache(word.raw() + 3, &[9; 14]);
    let events = recorder.0.lock();
    let kinds: Vec<_> = events
        .iter()
        .map(|event| event.split_whitespace().nth(1).unwrap())
        .collect();
    let expected = [
        "store", "flush", "fence", "load", "store", "load", "load", "store", "store", "flush",
        "store", "flush", "ntstore",
    ];
    assert_eq!(kinds, expected, "{events:#?}");
    assert!(
        events
            .iter()
            .all(|event| event.contains("pmem/tests/mod.rs:")),
        "{events:#?}"
    );
}
