//! What is kept back: in a full pool every block can be replaced by a smaller one, and there is a
//! run of chunks for one block at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::region::Region;
use super::super::{POff, Pool, PoolOptions, RoomRequest};

const BYTES: usize = 96 << 10;
const CHUNK: u64 = 4096;
/// The largest block that shares a chunk.
const LARGEST: u64 = CHUNK / 2;
/// The largest block that the run has space for.
const RUN: u64 = 3 * CHUNK;

#[derive(Clone, Debug)]
enum Step {
    /// Fills the pool with blocks of a size.
    Fill(u64),
    /// Replaces a block by one of a part of its size, in thousandths.
    Replace(prop::sample::Index, u64),
    Free(prop::sample::Index),
    /// Takes a block in the run that is kept back, of a part of it in thousandths, or frees that.
    Kept(u64),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let any_block = any::<prop::sample::Index>();
    prop_oneof![
        2 => (1..=LARGEST).prop_map(Step::Fill),
        40 => (any_block.clone(), 0..=1000_u64)
            .prop_map(|(block, part)| Step::Replace(block, part)),
        4 => any_block.prop_map(Step::Free),
        4 => (0..=1000_u64).prop_map(Step::Kept),
        1 => Just(Step::Reopen),
    ]
}

fn options() -> PoolOptions {
    PoolOptions {
        heaps: 2,
        chunk_bytes: CHUNK,
        keeps_back: true,
        keeps_run: RUN - CHUNK + 1,
        ..PoolOptions::default()
    }
}

/// Blocks by offset: their size.
type Blocks = BTreeMap<u64, u64>;

fn nth(blocks: &Blocks, choice: &prop::sample::Index) -> Option<(u64, u64)> {
    let count = blocks.len();
    let (at, size) = (count > 0).then(|| blocks.iter().nth(choice.index(count)))??;
    Some((*at, *size))
}

fn fill(pool: &Pool, blocks: &mut Blocks, size: u64) {
    while let Ok(block) = pool.alloc(size, 0) {
        let size = block.size();
        assert_eq!(blocks.insert(block.commit::<u8>().raw(), size), None);
    }
}

fn replace(pool: &Pool, blocks: &mut Blocks, (old, size): (u64, u64), wanted: u64) {
    let new = pool.alloc_instead(POff::<u8>::new(old), wanted, 16, 0);
    let new = new.expect("what is kept back");
    assert!(new.size() >= wanted && new.size() <= size);
    let retiring = pool.retire(POff::<u8>::new(old), 0).expect("a block");
    let size = new.size();
    let at = new.commit::<u8>().raw();
    // Of later readers, as deletes have them; there are none.
    retiring.commit(&pool.enter());
    blocks.remove(&old);
    assert_eq!(blocks.insert(at, size), None);
}

fn free(pool: &Pool, at: u64) {
    let retiring = pool.retire(POff::<u8>::new(at), 0).expect("a block");
    retiring.commit(&pool.enter());
}

fn run(steps: &[Step]) {
    let region = Region::new(BYTES);
    let mut pool = Pool::create_in(&region, options()).expect("a pool");
    let mut blocks = Blocks::new();
    let mut kept = None;
    fill(&pool, &mut blocks, 300);
    for step in steps {
        match step {
            Step::Fill(size) => fill(&pool, &mut blocks, *size),
            Step::Replace(choice, part) => {
                if let Some(block) = nth(&blocks, choice) {
                    replace(&pool, &mut blocks, block, block.1 * part / 1000);
                }
            }
            Step::Free(choice) => {
                if let Some((at, _)) = nth(&blocks, choice) {
                    free(&pool, at);
                    blocks.remove(&at);
                }
            }
            Step::Kept(part) => match kept.take() {
                None => {
                    let block = pool.alloc_kept(RUN * part / 1000, 0).expect("the run");
                    assert_eq!(block.size(), RUN, "nobody else has the rest");
                    let size = block.size();
                    kept = Some((block.commit::<u8>().raw(), size));
                }
                Some((at, _)) => {
                    assert!(pool.alloc_kept(1, 0).is_err(), "one block at a time");
                    free(&pool, at);
                    pool.collect();
                    // One that is given up at once is there for the next one.
                    drop(pool.alloc_kept(RUN, 0).expect("the run"));
                    assert!(pool.alloc_kept(RUN + 1, 0).is_err());
                }
            },
            Step::Reopen => {
                pool.close().expect("closed");
                pool = Pool::open_in(&region, options()).expect("a pool");
            }
        }
        let stats = pool.stats();
        let all = || blocks.iter().map(|(at, size)| (*at, *size)).chain(kept);
        assert_eq!(stats.used_blocks, all().count() as u64);
        assert_eq!(stats.used_bytes, all().map(|(_, size)| size).sum::<u64>());
        if let Some((at, size)) = kept {
            assert!(blocks.range(at..at + size).next().is_none());
        }
    }
    // Nothing is kept of a class that nobody uses.
    let all = std::mem::take(&mut blocks).into_iter().chain(kept);
    all.for_each(|(at, _)| free(&pool, at));
    pool.collect();
    let stats = pool.stats();
    assert_eq!((stats.used_bytes, stats.fragmented_bytes), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_block_of_a_full_pool_can_be_replaced(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        run(&steps);
    }
}

/// Each thread waits for what another one was lent, at the most.
#[test]
fn threads_replace_the_blocks_of_a_full_pool() {
    let region = Region::new(BYTES);
    let pool = Pool::create_in(&region, options()).expect("a pool");
    let mut blocks = Blocks::new();
    fill(&pool, &mut blocks, 500);
    fill(&pool, &mut blocks, 100);
    let all: Vec<(u64, u64)> = blocks.into_iter().collect();
    std::thread::scope(|scope| {
        for part in all.chunks(all.len().div_ceil(3)) {
            let pool = &pool;
            scope.spawn(move || {
                for &(old, size) in part {
                    let (mut old, mut wanted) = (old, size);
                    while wanted > 16 {
                        wanted = wanted * 3 / 4;
                        old = replace_when_there_is_room(pool, old, wanted);
                    }
                }
            });
        }
    });
    assert_eq!(pool.stats().used_blocks, all.len() as u64);
}

fn replace_when_there_is_room(pool: &Pool, old: u64, wanted: u64) -> u64 {
    loop {
        let guard = pool.enter();
        if let Ok(new) = pool.alloc_instead(POff::<u8>::new(old), wanted, 16, 0) {
            let retiring = pool.retire(POff::<u8>::new(old), 0).expect("a block");
            let at = new.commit::<u8>().raw();
            retiring.commit(&guard);
            return at;
        }
        drop(guard);
        std::thread::yield_now();
        pool.collect();
    }
}

/// A pool without that option gives its last block to whoever asks first.
#[test]
fn nothing_is_kept_back_unless_that_is_asked_for() {
    let region: Arc<Region> = Region::new(BYTES);
    let options = PoolOptions {
        keeps_back: false,
        ..options()
    };
    let pool = Pool::create_in(&region, options).expect("a pool");
    let mut blocks = Blocks::new();
    fill(&pool, &mut blocks, 2048);
    let (old, _) = blocks.pop_first().expect("a block");
    assert!(
        pool.alloc_instead(POff::<u8>::new(old), 2048, 16, 0)
            .is_err()
    );
    assert_eq!(pool.stats().fragmented_bytes, 0);
}

/// A store that was full before it kept a run back has one as soon as so much is free.
#[test]
fn a_run_is_kept_once_there_are_chunks_for_it() {
    let region = Region::new(BYTES);
    let before = PoolOptions {
        keeps_run: 0,
        ..options()
    };
    let pool = Pool::create_in(&region, before).expect("a pool");
    assert!(pool.alloc_kept(1, 0).is_err());
    let mut blocks = Blocks::new();
    fill(&pool, &mut blocks, CHUNK);
    pool.close().expect("closed");
    let pool = Pool::open_in(&region, options()).expect("a pool");
    assert!(pool.alloc_kept(1, 0).is_err());
    for (number, at) in blocks.into_keys().enumerate() {
        free(&pool, at);
        pool.collect();
        assert_eq!(pool.alloc_kept(RUN, 0).is_ok(), number >= 2);
        assert_eq!(pool.alloc(CHUNK, 0).is_ok(), number != 2, "it comes first");
    }
}

/// What is promised of some blocks can be had, and what is refused cannot.
#[test]
fn there_is_room_for_what_is_expected() {
    for pages in 10..40 {
        let part = |bytes, align, count| RoomRequest {
            bytes,
            align,
            count,
        };
        for parts in [
            vec![part(64, 64, 1), part(9000, 256, 2), part(16, 16, 300)],
            vec![part(2048, 16, 5), part(2000, 16, 4), part(40_000, 4096, 1)],
            vec![part(1 << 40, 16, 1)],
            vec![part(16, 16, u64::MAX)],
            vec![part(8192, 16, u64::MAX)],
        ] {
            let region = Region::new(pages << 12);
            let options = PoolOptions {
                keeps_back: false,
                ..options()
            };
            let Ok(pool) = Pool::create_in(&region, options) else {
                continue;
            };
            let used = pool.alloc(16, 0).expect("room").commit::<u8>();
            let free = pool.stats();
            let is_expected = pool.expect_room(&parts).is_ok();
            assert_eq!(pool.stats(), free, "nothing has changed");
            let mut had = Vec::new();
            let is_had = parts.iter().all(|part| {
                (0..part.count).all(|_| {
                    let block = pool.alloc_aligned(part.bytes, part.align, used.raw());
                    block.is_ok_and(|block| {
                        had.push(block.commit::<u8>());
                        true
                    })
                })
            });
            assert_eq!(is_had, is_expected, "{parts:?} in {pages} pages");
        }
    }
}
