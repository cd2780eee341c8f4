//! The allocator against a naive twin, from several threads, and on a file system that fills up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::super::medium::FlushMode;
use super::super::region::Region;
use super::super::{POff, Pool, PoolOptions, PoolStats, Reachable};
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Alloc { size: u64, align: u64 },
    GiveUp { size: u64 },
    Free(prop::sample::Index),
    FreeLater(prop::sample::Index),
    Collect,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![4 => 0..300_u64, 2 => 300..5000_u64, 1 => 5000..90_000_u64];
    let align = prop_oneof![4 => Just(16_u64), 1 => Just(64), 1 => Just(256), 1 => Just(4096)];
    let any_block = any::<prop::sample::Index>();
    prop_oneof![
        10 => (size.clone(), align).prop_map(|(size, align)| Step::Alloc { size, align }),
        1 => size.prop_map(|size| Step::GiveUp { size }),
        4 => any_block.clone().prop_map(Step::Free),
        4 => any_block.prop_map(Step::FreeLater),
        1 => Just(Step::Collect),
        1 => Just(Step::Reopen),
    ]
}

/// Blocks by offset: their size, as the twin knows them.
type Blocks = BTreeMap<u64, u64>;

fn nth(blocks: &Blocks, choice: &prop::sample::Index) -> Option<u64> {
    let count = blocks.len();
    (count > 0).then(|| *blocks.keys().nth(choice.index(count)).unwrap())
}

fn overlaps(blocks: &Blocks, at: u64, size: u64) -> bool {
    let before = blocks.range(..at + size).next_back();
    before.is_some_and(|(start, length)| start + length > at)
}

fn check(pool: &Pool, blocks: &Blocks) -> Result<(), TestCaseError> {
    let stats = pool.stats();
    prop_assert_eq!(stats.used_blocks, blocks.len() as u64);
    prop_assert_eq!(stats.used_bytes, blocks.values().sum::<u64>());
    prop_assert!(blocks.keys().all(|block| *block >= pool.blocks_at()));
    let lived_in = stats.used_bytes + stats.retired_bytes;
    let sum = lived_in + stats.free_bytes + stats.fragmented_bytes;
    let geometry = &pool.geometry();
    prop_assert_eq!(sum, geometry.chunks * geometry.chunk_bytes);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn blocks_are_as_a_naive_twin_has_them(
        steps in prop::collection::vec(step(), 1..200),
        chunk_shift in 12..17_u32,
    ) {
        let chunk_bytes = 1 << chunk_shift;
        let options = PoolOptions { heaps: 2, chunk_bytes, ..PoolOptions::default() };
        let region = Region::new(2 << 20);
        let mut pool = Pool::create_in(&region, options.clone()).unwrap();
        let empty = pool.stats();
        let mut blocks = Blocks::new();
        for step in &steps {
            match step {
                Step::Alloc { size, align } => {
                    let align = (*align).min(1 << chunk_shift);
                    let Ok(block) = pool.alloc_aligned(*size, align, 0) else {
                        continue;
                    };
                    let (at, length) = (block.offset::<u8>().raw(), block.size());
                    prop_assert!(length >= *size && at.is_multiple_of(align), "{at} {length}");
                    prop_assert!(!overlaps(&blocks, at, length), "{at} {length} in {blocks:?}");
                    pool.fence();
                    block.commit::<u8>();
                    blocks.insert(at, length);
                }
                Step::GiveUp { size } => {
                    if let Ok(block) = pool.alloc(*size, 0) {
                        let at = block.offset::<u8>().raw();
                        prop_assert!(!overlaps(&blocks, at, block.size()));
                    }
                }
                Step::Free(choice) | Step::FreeLater(choice) => {
                    let Some(at) = nth(&blocks, choice) else {
                        continue;
                    };
                    let old = pool.retire(POff::<u8>::new(at), 0).unwrap();
                    prop_assert_eq!(Some(&old.size()), blocks.get(&at));
                    pool.fence();
                    match step {
                        Step::Free(_) => old.commit_now(),
                        _ => old.commit(&pool.enter()),
                    }
                    blocks.remove(&at);
                    prop_assert!(pool.retire(POff::<u8>::new(at), 0).is_err(), "freed twice");
                    prop_assert!(pool.retire(POff::<u8>::new(at + 1), 0).is_err());
                }
                Step::Collect => pool.collect(),
                Step::Reopen => {
                    drop(pool);
                    // Nothing is in flight; of what was given up the question may come.
                    let there = blocks.clone();
                    let reachable = Reachable::ask_fn(move |_, claim| {
                        there.contains_key(&claim.block.raw())
                    });
                    let options = PoolOptions { reachable, ..options.clone() };
                    pool = Pool::open_in(&region, options).unwrap();
                }
            }
            check(&pool, &blocks)?;
        }
        for at in blocks.keys() {
            pool.retire(POff::<u8>::new(*at), 0).unwrap().commit_now();
        }
        pool.collect();
        prop_assert_eq!(pool.stats(), PoolStats { checkpoint_bytes: 0, ..empty });
    }
}

#[test]
fn a_block_of_no_bytes_has_a_place_of_its_own_whatever_its_alignment() {
    let region = Region::new(1 << 20);
    let options = PoolOptions {
        chunk_bytes: 4096,
        ..PoolOptions::default()
    };
    let pool = Pool::create_in(&region, options).unwrap();
    let mut blocks = Blocks::new();
    for align in [1, 64, 4096, 4096] {
        let block = pool.alloc_aligned(0, align, 0).unwrap();
        let (at, length) = (block.offset::<u8>().raw(), block.size());
        assert!(length > 0 && !overlaps(&blocks, at, length), "{align}");
        pool.fence();
        block.commit::<u8>();
        blocks.insert(at, length);
        check(&pool, &blocks).unwrap();
    }
}

#[test]
fn threads_never_share_a_block() {
    const THREADS: u64 = 4;
    let options = PoolOptions {
        heaps: 2,
        chunk_bytes: 4096,
        size: 1 << 20,
        ..PoolOptions::default()
    };
    let pool = Pool::anonymous(options).unwrap();
    let empty = pool.stats();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || {
                let mut mine: Vec<(u64, u64)> = Vec::new();
                let mut made = 0;
                for round in 0..3000_u64 {
                    let size = 16 + (round * 37 + thread * 11) % 700;
                    if mine.len() < 40
                        && let Ok(block) = pool.alloc(size, 0)
                    {
                        let at = block.offset::<u8>().raw();
                        pool.write(at, &(thread << 32 | round).to_le_bytes());
                        pool.fence();
                        block.commit::<u8>();
                        mine.push((at, thread << 32 | round));
                        made += 1;
                        continue;
                    }
                    if mine.is_empty() {
                        // The others have it all, or what they retired waits for a reader.
                        std::thread::yield_now();
                        continue;
                    }
                    let (at, stamp) =
                        mine.swap_remove(usize::try_from(round).unwrap() % mine.len());
                    assert!(
                        pool.equals(at, &stamp.to_le_bytes()),
                        "another has the block too"
                    );
                    let old = pool.retire(POff::<u8>::new(at), 0).unwrap();
                    pool.fence();
                    old.commit(&pool.enter());
                }
                for (at, stamp) in mine {
                    assert!(pool.equals(at, &stamp.to_le_bytes()));
                    pool.retire(POff::<u8>::new(at), 0)
                        .unwrap()
                        .commit(&pool.enter());
                }
                assert!(made > 100, "{made} blocks");
            });
        }
    });
    // What threads that ended have retired, too.
    pool.collect();
    let stats = pool.stats();
    assert_eq!((stats.used_blocks, stats.retired_bytes), (0, 0));
    assert_eq!(stats.size_bytes, empty.size_bytes);
}

/// An allocator on a file system with space for so many chunks.
fn allocator_with_space(chunks: &Arc<AtomicU64>) -> Allocator {
    let geometry = PoolGeometry::new(1 << 20, 1, 4096).unwrap();
    let region = Region::new(1 << 20);
    let medium = Medium::new(region, FlushMode::Nothing, false, None);
    let space = Arc::clone(chunks);
    let grow: GrowPool = Box::new(move |_, to| {
        if to <= space.load(Ordering::Relaxed) {
            return Ok(());
        }
        let full = std::io::ErrorKind::StorageFull;
        let path = std::path::Path::new("/full");
        Err(crate::Error::io("reserve the space of", path, None, full))
    });
    Allocator::open(
        medium,
        geometry,
        2,
        true,
        &Reachable::Word,
        PoolReserve::default(),
        grow,
    )
    .unwrap()
}

#[test]
fn a_full_file_system_is_an_error_and_no_more() {
    let space = Arc::new(AtomicU64::new(11));
    let allocator = allocator_with_space(&space);
    let mut tickets = Vec::new();
    let refusal = loop {
        match allocator.reserve(4096, 16, 0) {
            Ok(ticket) => {
                allocator.commit(&ticket, BlockState::Allocated);
                tickets.push(ticket);
            }
            Err(refusal) => break refusal,
        }
    };
    assert!(
        matches!(&refusal, AllocError::Failed(error) if error.is_no_space()),
        "{refusal:?}"
    );
    assert_eq!(
        tickets.len(),
        11,
        "the last chunk is had though more were asked for at once"
    );
    let ticket = tickets.pop().unwrap();
    allocator.free(&[(ticket.intent.block, ticket.intent.count)]);
    let again = allocator.reserve(4096, 16, 0).unwrap();
    assert_eq!(again.intent.block, ticket.intent.block);
    space.store(1000, Ordering::Relaxed);
    allocator.reserve(8192, 16, 0).unwrap();
}

/// What was retired waits for its last readers in batches, and a full file system was told before
/// anybody looked there.
#[test]
fn what_nobody_reads_any_more_is_had_on_a_full_file_system() {
    let space = Arc::new(AtomicU64::new(3));
    let allocator = allocator_with_space(&space);
    let tickets: Vec<_> = (0..3)
        .map(|_| {
            let ticket = allocator.reserve(4096, 16, 0).unwrap();
            allocator.commit(&ticket, BlockState::Allocated);
            ticket
        })
        .collect();
    assert!(allocator.reserve(4096, 16, 0).is_err());
    let Intent { block, count, .. } = tickets[1].intent;
    let retired = allocator.prepare_retire(block, 0).unwrap();
    allocator.commit(&retired, BlockState::Retired);
    let guard = allocator.epochs.enter();
    allocator.epochs.defer(&guard, block, count);
    drop(guard);
    assert_eq!(allocator.reserve(4096, 16, 0).unwrap().intent.block, block);
}

#[test]
fn too_many_operations_in_flight_are_refused() {
    let space = Arc::new(AtomicU64::new(1000));
    let allocator = allocator_with_space(&space);
    let open: Vec<_> = (0..SLOTS)
        .map(|_| allocator.reserve(16, 16, 0).unwrap())
        .collect();
    assert!(matches!(
        allocator.reserve(16, 16, 0),
        Err(AllocError::Busy)
    ));
    allocator.commit(&open[3], BlockState::Allocated);
    allocator.cancel(&open[4]);
    allocator.reserve(16, 16, 0).unwrap();
    allocator.reserve(16, 16, 0).unwrap();
    assert!(matches!(
        allocator.reserve(16, 16, 0),
        Err(AllocError::Busy)
    ));
}
