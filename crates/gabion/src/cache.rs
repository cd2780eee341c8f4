//! The block cache: the blocks of all tables of a store that were read lately, within one budget.
//!
//! # Idea
//! Memory is the slow medium here: a cold cache line costs 100 to 200 ns, and a hash table takes
//! four of them to say where a block is. So there is no hash table. An open table has four bytes
//! per block ([`BlockHints`]), the number of the frame that last held the block, and a frame is one
//! cache line with the block's owner, a pointer to its bytes and a count of references. A lookup
//! reads two cold lines, the place and the frame, before it reads the block itself.
//!
//! Which block goes is decided by a CLOCK: a hand goes over the frames, lowers the counts that are
//! not 0 and takes the first block whose count is. A lookup raises the count, up to
//! [`REFERENCES_MAX`]. A new block begins at 0, so one that nobody asks for again goes at the
//! hand's next visit, and a scan flushes nothing that is in use. An insert looks at a bounded
//! number of frames; where the blocks of all of them are in use, its own is not kept, and their
//! counts are one lower for the next.
//!
//! # Invariants
//! - I1: a place is a hint. A lookup compares the frame's owner under the frame's lock; owner and
//!   bytes change only together, under that lock. Blocks are immutable and the numbers of files
//!   are never used twice in a store, so what has the right owner has the right bytes. A place
//!   whose frame was given to another block costs a miss, never a wrong answer.
//! - I2: a deleted table's blocks need no removal: nobody asks for them, and they age out.
//! - I3: a frame is full, or its number is in `spare`, or one thread is about to bring it into one
//!   of the two states: the one that took the number out of `spare`, or the block out of the frame.
//! - I4: `bytes` is at least the cost of all full frames, and is raised up to the capacity only. A
//!   cost is added before its frame is taken, and subtracted after the frame's number is in
//!   `spare`; hence the frames outside of `spare` are never more than the capacity has room for.
//!   The capacity may become less (`memory`): then no block is added before enough of them are
//!   gone, which inserts and [`BlockCache::yield_room`] see to.
//! - I5: no thread holds two locks, and the hand waits for no frame.
//! - I6: a block is held once. Of two threads that read it at the same time, one changes the place
//!   from what both saw there, and the other gives its frame back. (Where the file is open twice,
//!   or the place has come to name the same frame again, there may be two copies. Both are
//!   counted, and one that no place names ages out.)

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::memory::{Memory, TableMemory};
use crate::stripe::Striped;

/// What a cached block costs beyond its bytes: its frame, the two counts before the bytes, the
/// allocator's header and rounding.
const OVERHEAD_BYTES: u64 = size_of::<Frame>() as u64 + 16 + 16;
/// Frames that are allocated together: 256 KiB.
const SEGMENT_FRAMES: usize = 4096;
/// References are counted up to here: a block in use survives as many visits of the hand.
const REFERENCES_MAX: u8 = 3;
/// Frames that are looked at for one that may go: a few microseconds, about what the cheapest read
/// of a block takes.
const STEPS_MAX: usize = 256;

/// What the cache did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheStats {
    /// Lookups that found the block.
    pub(crate) hits: u64,
    /// Lookups that did not.
    pub(crate) misses: u64,
    /// Bytes held now, overhead included.
    pub(crate) bytes: u64,
}

/// Where the blocks of one open table were last seen in the cache.
#[derive(Debug)]
pub(crate) struct BlockHints {
    file: u64,
    /// Per block one more than the number of its frame; 0 for none.
    frames: Box<[AtomicU32]>,
}

impl BlockHints {
    /// Places for the blocks of table number `file`, none of which is known.
    pub(crate) fn new(file: u64, blocks: usize) -> BlockHints {
        BlockHints {
            file,
            frames: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.frames)
    }
}

/// Blocks of many tables, bounded by bytes, shared by all threads.
#[derive(Debug)]
pub(crate) struct BlockCache {
    maps_tables: bool,
    checks_always: bool,
    capacity_bytes_max: u64,
    /// What leaves room for the cache, if it shares a ceiling with others.
    memory: Option<Arc<Memory>>,
    frames_max: u32,
    /// The frames in the order of their numbers, allocated when they are first needed.
    segments: Box<[OnceLock<Box<[Frame]>>]>,
    upkeep: Upkeep,
    counters: Striped<Counters>,
}

/// What inserts change and lookups do not touch, hence on cache lines of its own (two, since lines
/// are fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Upkeep {
    bytes: AtomicU64,
    /// Steps of the hand so far.
    hand: AtomicU32,
    /// Frames that were ever taken; raised under the lock of `spare`.
    frames: AtomicU32,
    /// Numbers of the frames that were emptied.
    spare: Mutex<Vec<u32>>,
}

/// One cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Frame(Mutex<Held>);

const _: () = assert!(size_of::<Frame>() == 64);

/// What a frame holds.
#[derive(Debug, Default)]
struct Held {
    /// Number of the file and of the block in it; without meaning where there is no block.
    owner: (u64, usize),
    block: Option<Arc<[u8]>>,
    references: u8,
}

/// The counters of some threads.
#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl BlockCache {
    /// A cache of at most `capacity_bytes`.
    pub(crate) fn new(capacity_bytes: u64) -> BlockCache {
        // A place names one more than the number of a frame.
        let frames_max = u32::try_from(capacity_bytes / OVERHEAD_BYTES).unwrap_or(u32::MAX);
        let segments = (frames_max as usize).div_ceil(SEGMENT_FRAMES);
        BlockCache {
            maps_tables: false,
            checks_always: false,
            capacity_bytes_max: capacity_bytes,
            memory: None,
            frames_max,
            segments: (0..segments).map(|_| OnceLock::new()).collect(),
            upkeep: Upkeep::default(),
            counters: Default::default(),
        }
    }

    /// Says whether tables are to be mapped, so that only those that cannot be need the cache.
    pub(crate) fn map_tables(self, maps_tables: bool) -> BlockCache {
        BlockCache {
            maps_tables,
            ..self
        }
    }

    /// Keeps the cache within what `memory` leaves.
    pub(crate) fn within(self, memory: &Arc<Memory>) -> BlockCache {
        BlockCache {
            memory: Some(Arc::clone(memory)),
            ..self
        }
    }

    /// Bytes that blocks may use now.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        let room = self.memory.as_ref().map(|memory| memory.cache_room());
        room.map_or(self.capacity_bytes_max, |room| {
            room.min(self.capacity_bytes_max)
        })
    }

    /// Counts an open table of so many bytes, for which blocks may have to go, until the result is
    /// dropped.
    pub(crate) fn charge_table(&self, bytes: u64) -> Option<TableMemory> {
        let held = self.memory.as_ref()?.charge_table(bytes);
        self.yield_room();
        Some(held)
    }

    /// Gives blocks up until the rest fits into what the cache may use now. What other threads use
    /// at this moment may stay.
    pub(crate) fn yield_room(&self) {
        // ORDER: Relaxed (both), as in `reserve`.
        let frames = self.upkeep.frames.load(Ordering::Relaxed) as usize;
        let mut vain = (frames / STEPS_MAX + 1) * (usize::from(REFERENCES_MAX) + 1);
        while self.upkeep.bytes.load(Ordering::Relaxed) > self.capacity_bytes() && vain > 0 {
            if !self.empty_one() {
                vain -= 1;
            }
        }
    }

    /// Says whether mapped blocks are to be checked each time that they are looked for.
    pub(crate) fn check_always(self, checks_always: bool) -> BlockCache {
        BlockCache {
            checks_always,
            ..self
        }
    }

    /// Whether mapped blocks are to be checked each time that they are looked for.
    pub(crate) fn checks_always(&self) -> bool {
        self.checks_always
    }

    /// Whether tables are to be mapped.
    pub(crate) fn maps_tables(&self) -> bool {
        self.maps_tables
    }

    /// Whether block `at` of the table is here now; counts as no lookup.
    pub(crate) fn contains(&self, places: &BlockHints, at: usize) -> bool {
        places.frames.get(at).is_some_and(|place| {
            // ORDER: Relaxed; partner is the exchange in `insert`. A hint (I1).
            self.holds(place.load(Ordering::Relaxed), (places.file, at))
        })
    }

    /// Block `at` of the table, if it is here.
    #[inline]
    pub(crate) fn get(&self, places: &BlockHints, at: usize) -> Option<Arc<[u8]>> {
        let found = self.find(places, at);
        let counters = self.counters.own();
        let counter = if found.is_some() {
            &counters.hits
        } else {
            &counters.misses
        };
        // ORDER: Relaxed; a count that orders nothing, read by `stats` only.
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    #[inline]
    fn find(&self, places: &BlockHints, at: usize) -> Option<Arc<[u8]>> {
        // ORDER: Relaxed; partner is the exchange in `insert`. A hint (I1): what it speaks of is
        // behind the frame's lock.
        let place = places.frames.get(at)?.load(Ordering::Relaxed);
        let mut held = self.frame_at(place)?.0.lock();
        if held.owner != (places.file, at) {
            return None;
        }
        let block = held.block.clone()?;
        if held.references < REFERENCES_MAX {
            held.references += 1;
        }
        Some(block)
    }

    /// Adds block `at` of the table. Not kept is one that is larger than the cache, and one that
    /// finds no block that may go.
    pub(crate) fn insert(&self, places: &BlockHints, at: usize, block: Arc<[u8]>) {
        let (owner, cost) = ((places.file, at), cost(&block));
        let Some(place) = places.frames.get(at) else {
            return;
        };
        // ORDER: Relaxed; partner is the exchange below.
        let seen = place.load(Ordering::Relaxed);
        if self.holds(seen, owner) || !self.reserve(cost) {
            return;
        }
        let Some((number, frame)) = self.take_frame() else {
            return self.release(cost);
        };
        let mut held = frame.0.lock();
        // ORDER: Relaxed; partners are the same exchange of another thread and the load in `find`,
        // which waits for the frame's lock.
        match place.compare_exchange(seen, number + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                *held = Held {
                    owner,
                    block: Some(block),
                    references: 0,
                }
            }
            Err(_) => {
                drop(held);
                self.give_back(number, cost);
            }
        }
    }

    /// The cost of all blocks, added up one by one.
    #[cfg(test)]
    pub(crate) fn walk_bytes_for_tests(&self) -> u64 {
        // ORDER: Relaxed; nobody else is here.
        let frames = 0..self.upkeep.frames.load(Ordering::Relaxed);
        let held = frames.filter_map(|number| self.frame(number)?.0.lock().block.clone());
        held.map(|block| cost(&block)).sum()
    }

    /// Counts so far.
    pub(crate) fn stats(&self) -> CacheStats {
        // ORDER: Relaxed; partner is `get`. Counts of the same moment are not promised.
        let sum = |counter: fn(&Counters) -> &AtomicU64| {
            self.counters
                .all()
                .map(|counters| counter(counters).load(Ordering::Relaxed))
                .sum()
        };
        CacheStats {
            hits: sum(|counters| &counters.hits),
            misses: sum(|counters| &counters.misses),
            // ORDER: Relaxed; partner is `reserve`.
            bytes: self.upkeep.bytes.load(Ordering::Relaxed),
        }
    }

    /// The frame that a place names; `None` where it names none.
    #[inline]
    fn frame_at(&self, place: u32) -> Option<&Frame> {
        self.frame(place.checked_sub(1)?)
    }

    #[inline]
    fn frame(&self, number: u32) -> Option<&Frame> {
        let number = number as usize;
        let segment = self.segments.get(number / SEGMENT_FRAMES)?.get()?;
        segment.get(number % SEGMENT_FRAMES)
    }

    /// Whether the frame that a place names holds the owner's block.
    fn holds(&self, place: u32, owner: (u64, usize)) -> bool {
        self.frame_at(place).is_some_and(|frame| {
            let held = frame.0.lock();
            held.owner == owner && held.block.is_some()
        })
    }

    /// Adds `cost` to the bytes held, for which it empties frames; false where it does not fit.
    fn reserve(&self, cost: u64) -> bool {
        let capacity = self.capacity_bytes();
        if cost > capacity {
            return false;
        }
        let upkeep = &self.upkeep;
        // ORDER: Relaxed throughout; `bytes` is a sum that orders nothing, and its partner is
        // `release`. The number of frames only bounds the rounds, which others' inserts could
        // otherwise prolong for ever.
        for _ in 0..=upkeep.frames.load(Ordering::Relaxed) {
            let added = upkeep
                .bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| {
                    let sum = bytes.checked_add(cost)?;
                    (sum <= capacity).then_some(sum)
                });
            if added.is_ok() {
                return true;
            }
            if !self.empty_one() {
                return false;
            }
        }
        false
    }

    /// Moves the hand on until it has emptied a frame; false where it found none that may go.
    fn empty_one(&self) -> bool {
        // ORDER: Relaxed throughout; the hand only has to come by everywhere, and what the number
        // of frames speaks of is behind the `OnceLock` of a segment and the lock of a frame.
        let frames = self.upkeep.frames.load(Ordering::Relaxed);
        for _ in 0..STEPS_MAX {
            let step = self.upkeep.hand.fetch_add(1, Ordering::Relaxed);
            let Some(number) = step.checked_rem(frames) else {
                return false;
            };
            let Some(mut held) = self.frame(number).and_then(|frame| frame.0.try_lock()) else {
                continue;
            };
            if held.references > 0 {
                held.references -= 1;
            } else if let Some(block) = held.block.take() {
                drop(held);
                self.give_back(number, cost(&block));
                return true;
            }
        }
        false
    }

    /// An empty frame, which is the caller's until it is filled or given back.
    fn take_frame(&self) -> Option<(u32, &Frame)> {
        let upkeep = &self.upkeep;
        let mut spare = upkeep.spare.lock();
        let number = match spare.pop() {
            Some(number) => number,
            None => {
                // ORDER: Relaxed; it is raised under the lock of `spare` only.
                let number = upkeep.frames.load(Ordering::Relaxed);
                if number == self.frames_max {
                    return None;
                }
                let segment = number as usize / SEGMENT_FRAMES;
                let len = SEGMENT_FRAMES.min(self.frames_max as usize - segment * SEGMENT_FRAMES);
                self.segments
                    .get(segment)?
                    .get_or_init(|| (0..len).map(|_| Frame::default()).collect());
                // ORDER: Relaxed; partner is the hand, to which a new frame may come late.
                upkeep.frames.store(number + 1, Ordering::Relaxed);
                number
            }
        };
        drop(spare);
        Some((number, self.frame(number)?))
    }

    /// Gives an empty frame back, and then the `cost` that was reserved for it (I4).
    fn give_back(&self, number: u32, cost: u64) {
        self.upkeep.spare.lock().push(number);
        self.release(cost);
    }

    fn release(&self, cost: u64) {
        // ORDER: Relaxed; partner is `reserve`. A sum that orders nothing.
        self.upkeep.bytes.fetch_sub(cost, Ordering::Relaxed);
    }
}

fn cost(block: &[u8]) -> u64 {
    block.len() as u64 + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const BLOCK_COST: u64 = 4096 + OVERHEAD_BYTES;

    fn block(len: usize) -> Arc<[u8]> {
        Arc::from(vec![7; len])
    }

    /// Bytes that only this owner has.
    fn block_of(file: u64, at: usize, len: usize) -> Arc<[u8]> {
        let byte = |position: usize| (file * 131 + (at * 31 + position) as u64).to_le_bytes()[0];
        (0..len).map(byte).collect()
    }

    /// Checks I3 and I4 while no other thread is in the cache; returns the number of blocks held.
    fn check(cache: &BlockCache) -> usize {
        // ORDER: Relaxed; nobody else is here.
        let frames = cache.upkeep.frames.load(Ordering::Relaxed);
        let mut spare = cache.upkeep.spare.lock().clone();
        let (mut bytes, mut blocks, mut empty) = (0, 0, Vec::new());
        for number in 0..frames {
            match &cache.frame(number).unwrap().0.lock().block {
                Some(block) => {
                    bytes += cost(block);
                    blocks += 1;
                }
                None => empty.push(number),
            }
        }
        spare.sort_unstable();
        assert_eq!(spare, empty);
        assert_eq!(bytes, cache.stats().bytes);
        assert!(bytes <= cache.capacity_bytes());
        blocks
    }

    #[test]
    fn counts_hits_and_misses() {
        let cache = BlockCache::new(1 << 20);
        let (one, two) = (BlockHints::new(1, 2), BlockHints::new(2, 2));
        assert!(cache.get(&one, 0).is_none());
        cache.insert(&one, 0, block(4096));
        assert_eq!(cache.get(&one, 0).as_deref(), Some(&[7; 4096][..]));
        assert!(cache.get(&one, 1).is_none());
        assert!(cache.get(&two, 0).is_none());
        assert!(cache.get(&two, 2).is_none());
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses), (1, 4));
        assert_eq!(stats.bytes, BLOCK_COST);
        check(&cache);
    }

    #[test]
    fn stays_within_its_capacity_and_uses_it() {
        let capacity = 1 << 20;
        let cache = BlockCache::new(capacity);
        let places = BlockHints::new(1, 2000);
        for at in 0..2000 {
            cache.insert(&places, at, block(4096));
            assert!(cache.get(&places, at).is_some());
            check(&cache);
        }
        assert_eq!(check(&cache) as u64, capacity / BLOCK_COST);
    }

    #[test]
    fn a_cache_of_nothing_keeps_nothing() {
        for capacity in [0, 1, OVERHEAD_BYTES - 1, OVERHEAD_BYTES, OVERHEAD_BYTES + 9] {
            let cache = BlockCache::new(capacity);
            let places = BlockHints::new(1, 1);
            cache.insert(&places, 0, block(10));
            assert!(cache.get(&places, 0).is_none());
            assert_eq!(cache.stats().bytes, 0);
        }
    }

    #[test]
    fn a_block_of_the_whole_cache_is_kept_and_a_larger_one_is_not() {
        let capacity = 100 * BLOCK_COST;
        let fits = usize::try_from(capacity - OVERHEAD_BYTES).unwrap();
        let cache = BlockCache::new(capacity);
        let places = BlockHints::new(1, 102);
        for at in 0..100 {
            cache.insert(&places, at, block(4096));
        }
        cache.insert(&places, 100, block(fits + 1));
        assert!(cache.get(&places, 100).is_none());
        assert_eq!(check(&cache), 100);

        cache.insert(&places, 101, block(fits));
        assert_eq!(cache.get(&places, 101).map(|block| block.len()), Some(fits));
        assert_eq!((check(&cache), cache.stats().bytes), (1, capacity));

        // The frames that the large block emptied are used again. It was used once, so the first
        // insert only lowers its count, or takes it at the second visit.
        for at in 0..100 {
            cache.insert(&places, at, block(4096));
            cache.insert(&places, at, block(4096));
        }
        assert_eq!(check(&cache), 100);
        // ORDER: Relaxed; nobody else is here.
        assert_eq!(cache.upkeep.frames.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn blocks_go_when_the_room_becomes_less() {
        let pool = crate::engine::memtable::ChunkPool::new(0);
        let memory = Memory::new(1000 * BLOCK_COST, 0, &pool);
        let cache = BlockCache::new(800 * BLOCK_COST).within(&memory);
        let places = BlockHints::new(1, 1000);
        let fill = || {
            for at in 0..1000 {
                cache.insert(&places, at, block(4096));
                // All counts are at their maximum.
                (0..4).for_each(|_| drop(cache.get(&places, at)));
            }
        };
        fill();
        assert_eq!(check(&cache), 800);
        let held = cache.charge_table(700 * BLOCK_COST);
        assert_eq!(check(&cache), 300);
        let all = cache.charge_table(400 * BLOCK_COST);
        assert_eq!((check(&cache), cache.stats().bytes), (0, 0));
        fill();
        assert_eq!(check(&cache), 0);
        drop((held, all));
        fill();
        assert_eq!(check(&cache), 800);
    }

    #[test]
    fn many_empty_blocks_fit_beside_each_other() {
        let blocks = SEGMENT_FRAMES + 10;
        let cache = BlockCache::new(blocks as u64 * OVERHEAD_BYTES + 5);
        let places = BlockHints::new(1, blocks + 100);
        for at in 0..blocks + 100 {
            cache.insert(&places, at, block(0));
        }
        assert_eq!(check(&cache), blocks);
        assert!((100..blocks + 100).all(|at| cache.get(&places, at).is_some()));
    }

    #[test]
    fn hot_blocks_survive_a_scan() {
        let cache = BlockCache::new(1000 * BLOCK_COST);
        let (hot, scanned) = (BlockHints::new(1, 100), BlockHints::new(2, 2900));
        for at in 0..100 {
            cache.insert(&hot, at, block(4096));
        }
        for _ in 0..REFERENCES_MAX {
            assert!((0..100).all(|at| cache.get(&hot, at).is_some()));
        }
        for at in 0..2900 {
            cache.insert(&scanned, at, block(4096));
        }
        let survivors = (0..100).filter(|at| cache.get(&hot, *at).is_some());
        assert_eq!(survivors.count(), 100);
        assert_eq!(check(&cache), 1000);
    }

    #[test]
    fn what_is_not_used_any_more_ages_out() {
        let cache = BlockCache::new(1000 * BLOCK_COST);
        let (deleted, new) = (BlockHints::new(1, 1000), BlockHints::new(2, 1000));
        for _ in 0..=REFERENCES_MAX {
            for at in 0..1000 {
                cache.insert(&deleted, at, block(4096));
                assert!(cache.get(&deleted, at).is_some());
            }
        }
        // All counts are at their maximum, so the first inserts find no block that may go.
        for _ in 0..10 {
            for at in 0..1000 {
                cache.insert(&new, at, block(4096));
            }
        }
        assert!((0..1000).all(|at| cache.get(&new, at).is_some()));
        assert!((0..1000).all(|at| cache.get(&deleted, at).is_none()));
    }

    #[test]
    fn locked_frames_are_passed_by() {
        let cache = BlockCache::new(2 * BLOCK_COST);
        let places = BlockHints::new(1, 3);
        cache.insert(&places, 0, block(4096));
        cache.insert(&places, 1, block(4096));
        let locks = [0, 1].map(|number| cache.frame(number).unwrap().0.lock());
        cache.insert(&places, 2, block(4096));
        drop(locks);
        assert!(cache.get(&places, 2).is_none());
        assert_eq!(check(&cache), 2);
    }

    #[test]
    fn a_block_that_two_threads_read_is_held_once() {
        let cache = BlockCache::new(1 << 20);
        let places = BlockHints::new(1, 200);
        for at in 0..200 {
            let start = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        start.wait();
                        cache.insert(&places, at, block(4096));
                    });
                }
            });
        }
        assert_eq!(check(&cache), 200);
    }

    #[test]
    fn threads_find_only_what_is_theirs() {
        const FILES: u64 = 3;
        const BLOCKS: usize = 300;
        let len = |at: usize| at * 37 % 6000;
        let cache = BlockCache::new(1 << 20);
        let places: Vec<BlockHints> = (0..FILES)
            .map(|file| BlockHints::new(file, BLOCKS))
            .collect();
        let hits: usize = std::thread::scope(|scope| {
            let threads = (0..4u64).map(|thread| {
                let (cache, places) = (&cache, &places);
                scope.spawn(move || {
                    let mut random = thread + 1;
                    let mut hits = 0;
                    for _ in 0..30_000 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let places = &places[(random % FILES) as usize];
                        let at = (random >> 32) as usize % BLOCKS;
                        let expected = block_of(places.file, at, len(at));
                        match cache.get(places, at) {
                            Some(found) => {
                                assert_eq!(found, expected);
                                hits += 1;
                            }
                            None => cache.insert(places, at, expected),
                        }
                        assert!(cache.stats().bytes <= 1 << 20);
                    }
                    hits
                })
            });
            let threads: Vec<_> = threads.collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert!(hits > 10_000, "{hits}");
        assert!(check(&cache) > 200);
    }

    proptest! {
        #[test]
        fn finds_what_the_twin_was_given(
            capacity in prop_oneof![0..2000u64, 0..100_000u64],
            steps in prop::collection::vec((any::<bool>(), 0..3usize, 0..20usize), 1..300),
            lens in prop::collection::vec(prop_oneof![0..300usize, 0..20_000usize], 20),
        ) {
            let cache = BlockCache::new(capacity);
            let places: Vec<BlockHints> = (0..3).map(|file| BlockHints::new(file, 20)).collect();
            let mut twin = HashMap::new();
            for (inserts, file, at) in steps {
                let places = &places[file];
                if inserts {
                    let block = block_of(file as u64, at, lens[at]);
                    cache.insert(places, at, Arc::clone(&block));
                    twin.insert((file, at), block);
                } else if let Some(found) = cache.get(places, at) {
                    prop_assert_eq!(Some(&found), twin.get(&(file, at)));
                }
                check(&cache);
            }
        }
    }
}
