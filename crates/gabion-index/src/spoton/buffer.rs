//! Write buffers: in DRAM, each with some pairs of one leaf that are in the logs and not yet in the
//! leaf. Where a leaf has more pairs than one buffer has room for, its node has several, its
//! *ways*, and each key has its own one of them.
//!
//! # Who has one
//! As many nodes as the budget allows. While there are free buffers, a node takes one
//! with its first write. Afterwards nodes that are written much take them over from nodes that are
//! written little: a hand goes round the buffers, halves the heat of each node that it passes, and
//! stops at one that is cooler than the node that asks. A node counts its writes as heat and asks
//! from a heat of [`HEAT_MIN`] on, so that a merge into a leaf, which is what taking over costs,
//! comes once for several writes at most.
//!
//! # Invariants
//! - W1. Only the holder of the lock of a buffer's node writes to it, and readers look at the word
//!   of the node before and after, so what they take from it is of one moment.
//! - W2. Each pair of a buffer is in the logs, in a record that counts (L2 in `log.rs`).
//! - W3. A buffer without a node is empty, and so are all its ways.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::tags;

/// Pairs that a buffer has room for, so that it is 256 bytes, a line of Optane's media.
pub(crate) const ROOM: usize = 15;

/// An entry with the tag of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tagged {
    pub(crate) key: u64,
    pub(crate) value: u64,
    pub(crate) tag: u8,
}

/// Pairs of the buffer of a leaf with so many: less than half, so that a split always makes room.
pub(crate) const fn buffered_max(pairs: usize) -> usize {
    if pairs / 2 - 1 < ROOM {
        pairs / 2 - 1
    } else {
        ROOM
    }
}

/// Writes from which on a node wants a buffer of others.
pub(crate) const HEAT_MIN: u8 = 8;

/// A buffer: dense pairs, their tags, and their number as the last byte of the tags.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Buffer {
    tags: [AtomicU64; 2],
    pairs: [[AtomicU64; 2]; ROOM],
}

/// Bytes of a buffer in DRAM.
pub(crate) const BUFFER_BYTES: u64 = 256;

const _: () = assert!(size_of::<Buffer>() as u64 == BUFFER_BYTES);

/// The byte of the tags that holds their number.
const COUNT_AT: usize = ROOM;

// ORDER: Acquire and Release throughout: guarded by the word of the node.
impl Buffer {
    #[inline]
    fn words(&self) -> [u64; 2] {
        [0, 1].map(|word| self.tags[word].load(Ordering::Acquire))
    }

    fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let words = self.words().map(u64::to_le_bytes);
        bytes.copy_from_slice(words.as_flattened());
        bytes
    }

    fn set_bytes(&self, bytes: [u8; 16]) {
        for (cell, bytes) in self.tags.iter().zip(bytes.as_chunks::<8>().0) {
            // ORDER: as above.
            cell.store(u64::from_le_bytes(*bytes), Ordering::Release);
        }
    }

    /// Number of pairs.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        usize::from(self.words()[1].to_le_bytes()[COUNT_AT % 8]).min(ROOM)
    }

    /// The place of `key`, and its value.
    #[inline]
    pub(crate) fn find(&self, key: u64, tag: u8) -> Option<(usize, u64)> {
        let words = self.words();
        let count = usize::from(words[1].to_le_bytes()[COUNT_AT % 8]).min(ROOM);
        let mut matches = tags::match_16(words, tag) & ((1 << count) - 1);
        while matches != 0 {
            let place = matches.trailing_zeros() as usize;
            let [cell, value] = &self.pairs[place];
            // ORDER: as above.
            if cell.load(Ordering::Acquire) == key {
                return Some((place, value.load(Ordering::Acquire)));
            }
            matches &= matches - 1;
        }
        None
    }

    /// All pairs.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Tagged> {
        let tags = self.bytes();
        let pairs = self.pairs.iter().zip(tags).take(self.count());
        pairs.map(|([key, value], tag)| Tagged {
            // ORDER: as above.
            key: key.load(Ordering::Acquire),
            value: value.load(Ordering::Acquire),
            tag,
        })
    }

    /// Adds a pair; there is room.
    pub(crate) fn push(&self, entry: Tagged) {
        let mut tags = self.bytes();
        let place = self.count().min(ROOM - 1);
        let [key, value] = &self.pairs[place];
        // ORDER: as above.
        key.store(entry.key, Ordering::Release);
        value.store(entry.value, Ordering::Release);
        tags[place] = entry.tag;
        tags[COUNT_AT] = u8::try_from(place + 1).unwrap_or(0);
        self.set_bytes(tags);
    }

    /// Changes the value of a pair.
    pub(crate) fn set_value(&self, place: usize, value: u64) {
        // ORDER: as above.
        self.pairs[place][1].store(value, Ordering::Release);
    }

    /// Takes a pair away: the last one comes to its place.
    pub(crate) fn remove(&self, place: usize) {
        let mut tags = self.bytes();
        let Some(last) = self.count().checked_sub(1) else {
            return;
        };
        for word in 0..2 {
            // ORDER: as above.
            let moved = self.pairs[last][word].load(Ordering::Acquire);
            self.pairs[place][word].store(moved, Ordering::Release);
        }
        tags[place] = tags[last];
        tags[COUNT_AT] = u8::try_from(last).unwrap_or(0);
        self.set_bytes(tags);
    }

    /// Takes all pairs away.
    pub(crate) fn clear(&self) {
        self.set_bytes([0; 16]);
    }
}

/// Buffers of a slab.
const SLAB_LOG: u32 = 6;
const SLAB: usize = 1 << SLAB_LOG;

/// Buffers with the numbers of their nodes plus one, 0 for those that are free.
#[derive(Debug)]
struct Slab {
    buffers: Box<[Buffer]>,
    owners: [AtomicU64; SLAB],
}

/// All buffers, by numbers that each stand for all ways of a node.
#[derive(Debug)]
pub(crate) struct Buffers {
    slabs: Box<[OnceLock<Box<Slab>>]>,
    /// Ways of a node: a power of two, and no more than a slab has buffers.
    ways: usize,
    limit: u32,
    /// Buffers that were ever given to a node: those with smaller numbers.
    used: AtomicU32,
    free: Mutex<Vec<u32>>,
    /// How many are free; changed under the lock.
    spare: AtomicU32,
    hand: AtomicU32,
}

impl Buffers {
    /// Buffers for a budget in bytes, and no more than `leaves`.
    pub(crate) fn new(bytes: u64, leaves: u64) -> Buffers {
        Buffers::in_ways((bytes / BUFFER_BYTES).min(leaves), 1)
    }

    /// Buffers for so many nodes, each in ways.
    pub(crate) fn in_ways(nodes: u64, ways: usize) -> Buffers {
        debug_assert!(ways.is_power_of_two() && ways <= SLAB, "{ways}");
        let limit = u32::try_from(nodes).unwrap_or(u32::MAX - 1);
        Buffers {
            slabs: (0..(limit as usize * ways).div_ceil(SLAB))
                .map(|_| OnceLock::new())
                .collect(),
            ways,
            limit,
            used: AtomicU32::new(0),
            free: Mutex::default(),
            spare: AtomicU32::new(0),
            hand: AtomicU32::new(0),
        }
    }

    /// Whether the budget allows any.
    #[inline]
    pub(crate) fn are_some(&self) -> bool {
        self.limit != 0
    }

    /// Buffers that the budget allows.
    pub(crate) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Buffers that were ever given to a node.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        // ORDER: Relaxed: a number, and no more.
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes of DRAM that they take.
    pub(crate) fn bytes(&self) -> u64 {
        let slabs = self.slabs.iter().filter(|slab| slab.get().is_some());
        slabs.count() as u64 * SLAB as u64 * (BUFFER_BYTES + size_of::<AtomicU64>() as u64)
    }

    /// The slab of a way of a number, and the place in it.
    #[inline]
    fn place(&self, number: u32, way: usize) -> (usize, usize) {
        let place = number as usize * self.ways + way;
        (place >> SLAB_LOG, place % SLAB)
    }

    fn slab(&self, slab: usize) -> Option<&Slab> {
        self.slabs.get(slab)?.get().map(|slab| &**slab)
    }

    /// The first way of a number that was given to a node.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Buffer> {
        self.way(number, 0)
    }

    /// A way of a number that was given to a node.
    #[inline]
    pub(crate) fn way(&self, number: u32, way: usize) -> Option<&Buffer> {
        let (slab, place) = self.place(number, way);
        self.slab(slab)?.buffers.get(place)
    }

    /// All ways of a number that was given to a node.
    pub(crate) fn all_ways(&self, number: u32) -> impl Iterator<Item = &Buffer> {
        (0..self.ways).filter_map(move |way| self.way(number, way))
    }

    fn owner(&self, number: u32) -> Option<&AtomicU64> {
        let (slab, place) = self.place(number, 0);
        self.slab(slab)?.owners.get(place)
    }

    /// Says which node a buffer belongs to.
    pub(crate) fn set_owner(&self, number: u32, node: Option<u64>) {
        if let Some(owner) = self.owner(number) {
            // ORDER: Relaxed: a hint for the hand; nodes know their buffers.
            owner.store(node.map_or(0, |node| node + 1), Ordering::Relaxed);
        }
    }

    /// A buffer that no node has, for this one.
    pub(crate) fn take(&self, node: u64) -> Option<u32> {
        let number = self.take_free()?;
        self.set_owner(number, Some(node));
        Some(number)
    }

    fn take_free(&self) -> Option<u32> {
        // ORDER: Relaxed: whoever is late goes without, or finds out under the lock.
        if self.used() >= self.limit && self.spare.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut free = self.free.lock();
        if let Some(number) = free.pop() {
            // ORDER: as above.
            self.spare.fetch_sub(1, Ordering::Relaxed);
            return Some(number);
        }
        let number = self.used();
        if number >= self.limit {
            return None;
        }
        let slab = self.slabs.get(self.place(number, 0).0)?;
        slab.get_or_init(|| {
            Box::new(Slab {
                buffers: (0..SLAB).map(|_| Buffer::default()).collect(),
                owners: [const { AtomicU64::new(0) }; SLAB],
            })
        });
        // ORDER: Relaxed: changed under the lock only; the slab publishes itself.
        self.used.store(number + 1, Ordering::Relaxed);
        Some(number)
    }

    /// Takes back an empty buffer.
    pub(crate) fn give_back(&self, number: u32) {
        self.set_owner(number, None);
        let mut free = self.free.lock();
        free.push(number);
        // ORDER: Relaxed: as in `take_free`.
        self.spare.fetch_add(1, Ordering::Relaxed);
    }

    /// Moves the hand on: the buffer that it stands at, and the node that had it lately.
    pub(crate) fn advance(&self) -> Option<(u32, u64)> {
        // ORDER: Relaxed: wherever it stands will do.
        let number = self.hand.fetch_add(1, Ordering::Relaxed) % self.used().max(1);
        let owner = self.owner(number)?.load(Ordering::Relaxed);
        Some((number, owner.checked_sub(1)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn entry(key: u64, value: u64) -> Tagged {
        Tagged {
            key,
            value,
            tag: (key % 3) as u8,
        }
    }

    /// A buffer beside a map, with few tags and many changes.
    #[test]
    fn a_buffer_is_a_small_map() {
        let buffer = Buffer::default();
        let mut twin = BTreeMap::new();
        for round in 0..10_000_u64 {
            let random = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let (key, tag) = (random % 40, (random % 40 % 3) as u8);
            let found = buffer.find(key, tag);
            assert_eq!(found.map(|(_, value)| value), twin.get(&key).copied());
            match found {
                Some((place, _)) if random >> 8 & 1 == 0 => {
                    buffer.remove(place);
                    twin.remove(&key);
                }
                Some((place, _)) => {
                    buffer.set_value(place, round);
                    twin.insert(key, round);
                }
                None if buffer.count() < ROOM => {
                    buffer.push(entry(key, round));
                    twin.insert(key, round);
                }
                None => {
                    buffer.clear();
                    twin.clear();
                }
            }
            let pairs = buffer.entries().map(|entry| (entry.key, entry.value));
            assert_eq!(pairs.collect::<BTreeMap<_, _>>(), twin);
            assert_eq!(buffer.count(), twin.len());
        }
    }

    #[test]
    fn a_budget_is_kept() {
        let buffers = Buffers::new(70 * BUFFER_BYTES + 255, 1000);
        let taken: Vec<u32> = (0..80).filter_map(|node| buffers.take(node)).collect();
        assert_eq!(taken, (0..70).collect::<Vec<u32>>());
        buffers.give_back(7);
        assert_eq!(buffers.take(99), Some(7));
        assert_eq!(buffers.take(100), None);
        let owners: Vec<_> = (0..70).filter_map(|_| buffers.advance()).collect();
        assert_eq!(owners.len(), 70);
        assert!(owners.contains(&(7, 99)) && owners.contains(&(69, 69)));
        assert!(!Buffers::new(255, 1000).are_some());
        assert_eq!(Buffers::new(u64::MAX, 5).limit, 5);
    }

    /// Each way of each number is another buffer, and all of a number are in one slab.
    #[test]
    fn ways_are_apart() {
        let buffers = Buffers::in_ways(9, 16);
        let taken: Vec<u32> = (0..20).filter_map(|node| buffers.take(node)).collect();
        assert_eq!(taken, (0..9).collect::<Vec<u32>>());
        for number in &taken {
            for (way, buffer) in (0..).zip(buffers.all_ways(*number)) {
                assert_eq!(buffer.count(), 0);
                buffer.push(entry(u64::from(*number), way));
            }
        }
        for number in taken {
            for way in 0..16 {
                let buffer = buffers.way(number, way).expect("a buffer");
                let pairs: Vec<(u64, u64)> = buffer
                    .entries()
                    .map(|entry| (entry.key, entry.value))
                    .collect();
                assert_eq!(pairs, [(u64::from(number), way as u64)]);
            }
        }
    }
}
