//! The interval cache: a budget for the decoded intervals that stand in the index, and CLOCK.
//!
//! # Idea (paper, section 5.2)
//! Every interval has a place for its decoded form in the index itself, so a hit costs no search
//! beyond that of the index. When the forms are too many, a hand goes round through the leaves of
//! all indexes: a form that was read since it last came by is left once more, another one is taken
//! out. What readers still hold stays with them. Forms have room for pairs to come as long as the
//! cache has some to spare: before any form goes, the hand goes round once for all that room.
//!
//! The pairs of the forms lie in memory of the cache's own ([`crate::slabs`]). What counts is all
//! of that, with what is free in it: a form that goes gives its slot to the next one of its size.
//! When forms of other sizes come than before, what is free grows; then the hand goes round once to
//! empty pages, before it takes more forms.
//!
//! # Invariant
//! - C1. The memory of the forms is at most what the options allow and the rest of the store
//!   leaves, whenever nobody is filling or moving the hand and [`IntervalCache::shrink`] was called
//!   since the rest grew. Readers move the hand a little way at a time, so the forms that they put
//!   in may take more by one for every [`REACH`] leaves until the hand has come round.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::cached_bytes::CachedBytes;
use super::index::{EvictionStep, IntervalIndex};
use super::interval::Interval;
use crate::engine::counters::Tally;
use crate::memory::Memory;
use crate::slabs::Slabs;

/// An interval is not cached when it takes more than this part of the cache.
const LARGEST_PART: u64 = 8;

/// Forms get room for pairs to come as long as one part in so many of the cache is free.
const SPARE_ONE_IN: u64 = 16;

/// Pages are drained when one part in so many of the cache is free in them.
const FREE_ONE_IN: u64 = 16;

/// Of the cache, one part in so many is drained at a time, or more if that is needed.
const DRAINED_ONE_IN: u64 = 32;

/// So many looks at a form take as long as the hand takes for a leaf.
const LOOKS_OF_LEAF: usize = 4;

/// What a merge reads is cached if one part in so many of the cache stays free: others take slots
/// for a moment, which count as free again then.
const MERGE_LEAVES_ONE_IN: u64 = 64;

/// Leaves that the hand passes at most for a form that a reader puts in: 50 us by estimate.
const REACH: usize = 64;

/// The cache of all partitions.
#[derive(Debug)]
pub(super) struct IntervalCache {
    bytes_max: u64,
    memory: Arc<Memory>,
    bytes: CachedBytes,
    /// Whether forms may have got room since the hand went round for it.
    gave_room: AtomicBool,
    hits: Tally,
    misses: Tally,
    hand: Mutex<Hand>,
}

#[derive(Debug, Default)]
struct Hand {
    indexes: Vec<Weak<IntervalIndex>>,
    /// So many were there when those of keyspaces that are gone had just been left out.
    indexes_known: usize,
    /// Which index it points into, and the leaf by a key of it.
    index: usize,
    key: Vec<u8>,
    /// How often it goes on to where the first index begins before it takes forms.
    room_rounds: u32,
    /// The same, while it empties pages.
    drain_rounds: u32,
    /// Bytes that were free in pages when it had last done so, or less.
    free_left: u64,
}

impl Hand {
    fn takes(&self) -> EvictionStep {
        match (self.drain_rounds, self.room_rounds) {
            (0, 0) => EvictionStep::Forms,
            (0, _) => EvictionStep::Room,
            _ => EvictionStep::Pages,
        }
    }
}

impl IntervalCache {
    pub(super) fn new(bytes_max: u64, memory: &Arc<Memory>) -> IntervalCache {
        IntervalCache {
            bytes_max,
            memory: Arc::clone(memory),
            bytes: CachedBytes::new(bytes_max.min(memory.bytes_max())),
            gave_room: AtomicBool::new(false),
            hits: Tally::default(),
            misses: Tally::default(),
            hand: Mutex::default(),
        }
    }

    /// Bytes that the forms may have now.
    fn room(&self) -> u64 {
        self.bytes_max.min(self.memory.cache_room())
    }

    /// The memory that the cache shares with the rest of the store.
    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The memory that the pairs of forms lie in.
    pub(super) fn slabs(&self) -> &Arc<Slabs> {
        self.bytes.slabs()
    }

    /// The sum to which an index adds its forms.
    pub(super) fn cached_bytes(&self) -> CachedBytes {
        self.bytes.clone()
    }

    /// Takes an index into the hand's round.
    pub(super) fn register(&self, index: &Arc<IntervalIndex>) {
        let hand = &mut *self.hand.lock();
        // Those of keyspaces that are gone: when there may be as many as others.
        if hand.indexes.len() > 2 * hand.indexes_known {
            #[cfg(test)]
            LOOKS.set(LOOKS.get() + hand.indexes.len());
            hand.indexes.retain(|own| own.strong_count() > 0);
            hand.indexes_known = hand.indexes.len();
        }
        hand.indexes.push(Arc::downgrade(index));
    }

    /// Counts a read that found its interval, or did not.
    #[inline]
    pub(super) fn count(&self, hit: bool) {
        match hit {
            true => self.hits.add(1),
            false => self.misses.add(1),
        }
    }

    /// Whether an interval may be cached at all.
    pub(super) fn takes(&self, interval: &Interval) -> bool {
        interval.memory_bytes() <= self.room() / LARGEST_PART
    }

    /// Whether an interval can be cached and nothing has to go for it.
    pub(super) fn has_room_for(&self, interval: &Interval) -> bool {
        let room = self.room();
        let bytes = self.bytes() + interval.memory_bytes() + room / MERGE_LEAVES_ONE_IN;
        self.takes(interval) && bytes <= room
    }

    /// Whether forms that grow may have room for more than what they are.
    pub(super) fn is_roomy(&self) -> bool {
        let room = self.room();
        let is_roomy = self.bytes() <= room - room / SPARE_ONE_IN;
        // ORDER: Relaxed (both); a hint for the hand.
        if is_roomy && !self.gave_room.load(Ordering::Relaxed) {
            self.gave_room.store(true, Ordering::Relaxed);
        }
        is_roomy
    }

    /// Takes out forms until the others keep to the budget. Who finds somebody else at it waits for
    /// nothing: that one goes on until it is done. The caller holds no lock of an index.
    pub(super) fn shrink(&self) {
        self.slabs().give_up_spare(self.room());
        while self.bytes() > self.room() {
            let hand = self.hand.try_lock();
            if !hand.is_some_and(|mut hand| self.move_hand(&mut hand, usize::MAX)) {
                return;
            }
        }
    }

    /// As [`IntervalCache::shrink`], for a reader that has put a form in: takes out no more than it
    /// finds within reach of the hand.
    pub(super) fn shrink_some(&self) {
        if self.bytes() > self.room()
            && let Some(mut hand) = self.hand.try_lock()
        {
            self.move_hand(&mut hand, REACH);
        }
    }

    /// Moves the hand by so many leaves at most, until the forms keep to the budget; says whether
    /// they do.
    fn move_hand(&self, hand: &mut Hand, leaves_max: usize) -> bool {
        let room = self.room();
        // ORDER: Relaxed, as in `is_roomy`.
        if self.bytes() > room && self.gave_room.swap(false, Ordering::Relaxed) {
            // The round that has begun, and a whole one.
            hand.room_rounds = 2;
        }
        // Twice round at most, after the round that has begun: the first time may only find that
        // all were read.
        let (mut rounds, mut leaves) = (3 + hand.room_rounds + hand.drain_rounds, 0);
        let mut may_drain = true;
        loop {
            self.slabs().give_up_spare(room);
            let over = self.bytes().saturating_sub(room);
            if over == 0 {
                return true;
            }
            if rounds == 0 || leaves >= leaves_max {
                return false;
            }
            if hand.drain_rounds == 0 && may_drain && self.drain(hand, room, over) {
                // The round that has begun, and a whole one. Users may keep what lies in a page.
                (hand.drain_rounds, may_drain) = (2, false);
                rounds += 2;
            }
            let (taken, mut looks) = (hand.takes(), 0);
            let Hand {
                indexes,
                index,
                key,
                room_rounds,
                drain_rounds,
                free_left,
                ..
            } = &mut *hand;
            let swept = indexes.get(*index).and_then(Weak::upgrade);
            match swept.and_then(|own| own.sweep(key, taken, &mut looks)) {
                Some(next) => *key = next,
                None => {
                    *index += 1;
                    key.clear();
                }
            }
            leaves += 1 + looks / LOOKS_OF_LEAF;
            if *index >= indexes.len() {
                *index = 0;
                rounds -= 1;
                match drain_rounds {
                    0 => *room_rounds = room_rounds.saturating_sub(1),
                    1 => {
                        *drain_rounds = 0;
                        self.slabs().end_drain();
                        *free_left = self.slabs().free_bytes();
                    }
                    _ => *drain_rounds -= 1,
                }
            }
        }
    }

    /// Drains pages if much is free in them, and more than users made the hand leave there when it
    /// did so last; says whether there are any to empty.
    fn drain(&self, hand: &mut Hand, room: u64, over: u64) -> bool {
        let (slabs, part) = (self.slabs(), room / DRAINED_ONE_IN);
        let free = slabs.free_bytes();
        hand.free_left = hand.free_left.min(free);
        let is_much = free > (room / FREE_ONE_IN).max(hand.free_left + part);
        is_much && slabs.begin_drain(over.max(part))
    }

    /// Memory of the cached intervals, with what is free in their pages.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get() + self.slabs().slack_bytes()
    }

    pub(super) fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.get(), self.misses.get())
    }
}

#[cfg(test)]
thread_local! {
    /// Indexes of which this thread has asked whether they are still there.
    static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::super::index::{NewInterval, SeekTarget};
    use super::super::interval::{parse, put_pair};
    use super::super::{Flex, FlexKeyspace, Write};
    use super::*;
    use crate::engine::memtable::ChunkPool;
    use crate::engine::ssd::{CommitWrites, Lifecycle};
    use crate::types::Kind;
    use crate::{Options, Tuning};

    fn interval_in(slabs: &Arc<Slabs>, key: &[u8], value: &[u8]) -> Arc<Interval> {
        let mut bytes = Vec::new();
        put_pair(&mut bytes, Kind::Put, key, value);
        let pairs = parse(&bytes).unwrap();
        Arc::new(Interval::new(slabs.copy(&bytes), &pairs, 0).unwrap())
    }

    fn interval(key: &[u8]) -> Arc<Interval> {
        interval_in(&Slabs::new(0), key, &[7; 100])
    }

    fn key(number: usize) -> Vec<u8> {
        match number {
            0 => Vec::new(),
            _ => format!("{number:07}").into_bytes(),
        }
    }

    fn index(cache: &IntervalCache, intervals: usize) -> Arc<IntervalIndex> {
        let new = |number| NewInterval {
            key: key(number),
            len: 1,
            extents: 1,
            interval: None,
        };
        let intervals: Vec<NewInterval> = (0..intervals).map(new).collect();
        let index = Arc::new(IntervalIndex::new(&intervals, cache.cached_bytes()));
        cache.register(&index);
        index
    }

    fn fill(cache: &IntervalCache, index: &IntervalIndex, number: usize) {
        let share = index.share();
        let (place, _) = index.locate(SeekTarget::At(&key(number)));
        let version = place.leaf.version();
        drop(share);
        index.fill(&place, version, &interval(b"0123456"));
        cache.shrink();
    }

    #[test]
    fn the_budget_is_kept_and_what_is_read_stays() {
        let one = interval(b"0123456").memory_bytes();
        let memory = Memory::new(150 * one, 50 * one, &ChunkPool::new(0));
        let cache = IntervalCache::new(1_000 * one, &memory);
        let indexes = [index(&cache, 2_000), index(&cache, 500)];
        fill(&cache, &indexes[1], 77);
        for number in 0..2_000 {
            let hot = indexes[1].with_cached(&key(77), |_| ());
            assert!(hot.is_some(), "read all the time, dropped at {number}");
            fill(&cache, &indexes[0], number);
            fill(&cache, &indexes[1], number % 500);
            assert!(cache.bytes() <= 100 * one);
        }
        assert!(cache.bytes() > 60 * one, "{}", cache.bytes() / one);
        assert!(!cache.has_room_for(&interval(&[7; 13 * 200])));
        // What others need of the memory, the cache gives up.
        let _others = memory.charge_table(70 * one);
        cache.shrink();
        assert!(cache.bytes() <= 30 * one && cache.bytes() > 0);
        // A reader does a part of it, and none where somebody else does.
        let _more = memory.charge_table(20 * one);
        let before = cache.bytes();
        let hand = cache.hand.lock();
        cache.shrink_some();
        cache.shrink();
        assert_eq!(cache.bytes(), before);
        drop(hand);
        let mut calls = 0;
        while cache.bytes() > 10 * one {
            cache.shrink_some();
            calls += 1;
        }
        assert!((1..100).contains(&calls), "{calls}");
    }

    /// Forms of one size fill the cache, then forms of others come in their place: all that is free
    /// counts, and as much is cached as before.
    #[test]
    fn forms_of_other_sizes_take_the_place_of_those_before() {
        let bytes_max = 16 << 20;
        let memory = Memory::new(1 << 30, 0, &ChunkPool::new(0));
        let cache = IntervalCache::new(bytes_max, &memory);
        let (values, intervals) = ([1_000_usize, 2_500, 300, 7_000], 80_000);
        let index = index(&cache, intervals);
        let mut kept = Vec::new();
        for (round, len) in values.into_iter().enumerate() {
            let value = vec![7; len];
            for number in (round..intervals).step_by(values.len()) {
                let place = index.find(SeekTarget::At(&key(number)));
                let form = interval_in(cache.slabs(), b"0123456", &value);
                index.fill(&place, place.leaf.version(), &form);
                // Somebody keeps a value here and there.
                if number % 2_000 == 0 && len > 512 {
                    kept.push(form.record(0).into_value());
                }
                drop((place, form));
                // Readers may pass the budget by what they put in while the hand goes round.
                let most = match number / 8 % 2 {
                    0 => bytes_max + bytes_max / 8,
                    _ => bytes_max,
                };
                match most > bytes_max {
                    true => cache.shrink_some(),
                    false => cache.shrink(),
                }
                let bytes = cache.bytes();
                assert!(bytes <= most, "{len}, {number}: {bytes}");
            }
            cache.shrink();
            assert!(cache.bytes() <= bytes_max);
            let forms = cache.cached_bytes().get();
            assert!(forms > bytes_max / 100 * 75, "{len}: {forms}");
        }
        assert!(kept.len() > 8 && kept.iter().all(|value| value.iter().all(|byte| *byte == 7)));
    }

    /// A cache of records of 116 bytes had room for pairs to come for as long as it was full: a
    /// tenth of it, for which other forms went.
    #[test]
    fn a_full_cache_has_as_much_as_fits_without_room() {
        let options = Options::default().background_threads(0).tuning(
            Tuning::default()
                .memtable_budget_bytes(1 << 20)
                .cache_bytes(64 << 20),
        );
        let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let records = 40_000_u64;
        let key = |number: u64| u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for number in 0..records {
            let write = Write::Single {
                keyspace: &keyspace,
                kind: Kind::Put,
                key: &key(number).to_le_bytes(),
                value: &[7; 100],
            };
            engine.write(write, 116, false).unwrap();
        }
        engine.flush().unwrap();
        let misses = || {
            let before = engine.cache.hits_and_misses().1;
            for number in 0..records {
                let key = key(number).to_le_bytes();
                assert!(engine.get(&keyspace, &key, None).unwrap().is_some());
            }
            engine.cache.hits_and_misses().1 - before
        };
        assert_eq!(misses(), 0, "all is cached as it was merged");
        let roomy = engine.cache.bytes();
        // Others need memory.
        let room = engine.cache.memory().cache_room();
        let _others = engine.cache.memory().charge_table(room - roomy / 100 * 95);
        engine.cache.shrink();
        let dense = engine.cache.bytes();
        println!(
            "{} bytes a record with room, {} with less of it",
            roomy / records,
            dense / records
        );
        assert!(dense <= roomy / 100 * 95);
        let missed = misses();
        assert!(missed < records / 100, "room goes first: {missed}");
        engine.close().unwrap();
    }

    /// The forms of a keyspace that was dropped were counted for as long as the store was open.
    /// Past the budget each step of a merge then went round through all leaves in vain.
    #[test]
    fn the_forms_of_a_dropped_keyspace_go_with_it() {
        let options = Options::default()
            .background_threads(0)
            .tuning(Tuning::default().cache_bytes(64 << 20));
        let engine = Flex::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let kept = engine.create_keyspace("kept").unwrap();
        let gone = engine.create_keyspace("gone").unwrap();
        let fill = |keyspace: &Arc<FlexKeyspace>, records: u32| {
            for number in 0..records {
                let write = Write::Single {
                    keyspace,
                    kind: Kind::Put,
                    key: &number.swap_bytes().to_le_bytes(),
                    value: &[7; 100],
                };
                engine.write(write, 104, false).unwrap();
            }
            engine.flush().unwrap();
            engine.cache.cached_bytes().get()
        };
        let before = fill(&kept, 1_000);
        let both = fill(&gone, 40_000);
        assert!(before > 0 && both > before + (1 << 20), "{before}, {both}");
        assert!(engine.drop_keyspace("gone").unwrap());
        drop(gone);
        assert_eq!(engine.cache.cached_bytes().get(), before);
        engine.cache.shrink();
        assert!(engine.cache.bytes() < both / 2, "their pages went, too");
        engine.close().unwrap();
    }

    /// Whoever made a keyspace looked at all others, whether they were gone.
    #[test]
    fn an_index_is_registered_without_a_look_at_the_others() {
        let memory = Memory::new(1 << 20, 1 << 20, &ChunkPool::new(0));
        let cache = IntervalCache::new(1 << 20, &memory);
        let new = || {
            Arc::new(IntervalIndex::new(
                &[NewInterval::first()],
                cache.cached_bytes(),
            ))
        };
        let before = LOOKS.get();
        let count = 2_000;
        let mut indexes = Vec::new();
        for number in 0..2 * count {
            let index = new();
            cache.register(&index);
            // Every other one goes at once.
            if number % 2 == 0 {
                indexes.push(index);
            }
        }
        let looks = LOOKS.get() - before;
        assert!(looks <= 8 * count, "{looks} looks");
        let kept = cache.hand.lock().indexes.len();
        assert!((count..=2 * count + 2).contains(&kept), "{kept} kept");
    }
}
