//! Buckets of one cache line: three pairs of words and the tokens that say which are entries.
//!
//! ```text
//! 0        8       16       24       32       40       48       56       64
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! | tokens |  key   | value  |  key   | value  |  key   | value  |  link  |
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! ```
//!
//! Bit `i` of the tokens is set if pair `i` is an entry; the link is the table's. A pair is written
//! before its token, and both lie in one line, whose stores reach the medium in their order on
//! x86-64: one flush makes both durable. Elsewhere, and where a table does not promise that they
//! lie in one line, the pair is persisted first ([`PairFlush`]). A value is replaced by one store
//! of a word. Who has the lock of a whole line changes its tokens by plain stores; where the slots
//! of a line have different locks, by atomic changes of one bit ([`Line::put_among`]).
//!
//! The word of the tokens has room for a lock above them, which counts how often it was taken and
//! let go, and so is odd while it is held. Where tables have their locks elsewhere it is 0.

use std::sync::atomic::Ordering;

use gabion_media::media_struct;
use gabion_media::pmem::{Medium, PAtomicU64, POff};

/// Pairs of a line.
pub(crate) const PAIRS: usize = 3;

/// The tokens of all pairs.
const ALL_TOKENS: u64 = (1 << PAIRS) - 1;

/// What taking a lock, or letting it go, adds to the word of the tokens.
const ONE_HOLD: u64 = 1 << 8;

/// Bytes of a line, and its alignment.
pub(crate) const LINE_BYTES: u64 = 64;

/// When the pair of a new entry is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairFlush {
    /// With its token, by one flush: both lie in one line.
    WithToken,
    /// Before its token, by a flush and a fence of its own.
    Before,
}

impl PairFlush {
    /// Whether the pair must be durable before its token is stored.
    #[inline]
    fn is_before(self) -> bool {
        self == PairFlush::Before || !cfg!(target_arch = "x86_64")
    }
}

media_struct! {
    /// A bucket.
    pub(crate) struct Line {
        tokens: PAtomicU64,
        pairs: [Pair; PAIRS],
        pub(crate) link: PAtomicU64,
    }

    /// A pair of words.
    pub(crate) struct Pair {
        pub(crate) key: PAtomicU64,
        pub(crate) value: PAtomicU64,
    }
}

const _: () = {
    assert!(size_of::<Line>() as u64 == LINE_BYTES);
    assert!(std::mem::offset_of!(Line, tokens) == 0);
    assert!(std::mem::offset_of!(Line, pairs) == 8);
    assert!(std::mem::offset_of!(Line, link) == 56);
};

// ORDER: Acquire throughout: pairs with the releasing stores below, and keeps the loads of a lookup
// in their order, tokens before pairs, all before the second look at the lock.
impl Line {
    /// The tokens, as bits.
    #[inline]
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens.peek(Ordering::Acquire)
    }

    /// A bit for each slot that has an entry of `key`. No branch depends on which of them that is:
    /// it would be foreseen wrongly as often as not, and the processor could not go on to other
    /// lines while this one is on its way.
    #[inline]
    fn matches(&self, key: u64) -> u64 {
        let tokens = self.tokens();
        let is_key = |slot: usize| u64::from(self.pairs[slot].key.peek(Ordering::Acquire) == key);
        (0..PAIRS).fold(0, |bits, slot| bits | is_key(slot) << slot) & tokens
    }

    /// The value of `key`, if it is here.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        let pair = &self.pairs[self.find(key)?];
        Some(pair.value.peek(Ordering::Acquire))
    }

    /// As [`Line::get`], while others change other slots of the line, which have other locks. The
    /// token that led to the pair may have been that of an entry that has gone since, in whose slot
    /// somebody is writing `key`, which is not there yet: so it is looked at again.
    #[inline]
    pub(crate) fn get_among(&self, key: u64) -> Option<u64> {
        let slot = self.find(key)?;
        let value = self.pairs[slot].value.peek(Ordering::Acquire);
        (self.tokens() >> slot & 1 != 0).then_some(value)
    }

    /// The slot of `key`. Only the holder of its lock can rely on it.
    #[inline]
    pub(crate) fn find(&self, key: u64) -> Option<usize> {
        let matches = self.matches(key);
        (matches != 0).then(|| (matches.trailing_zeros() as usize).min(PAIRS - 1))
    }

    /// The first slot that holds no entry.
    #[inline]
    pub(crate) fn free_slot(&self) -> Option<usize> {
        let slot = self.tokens().trailing_ones() as usize;
        (slot < PAIRS).then_some(slot)
    }

    /// Number of entries.
    #[inline]
    pub(crate) fn entry_count(&self) -> u32 {
        (self.tokens() & ALL_TOKENS).count_ones()
    }

    /// The entry in a slot, if there is one.
    pub(crate) fn entry(&self, slot: usize) -> Option<(u64, u64)> {
        let pair = &self.pairs[slot];
        let is_there = self.tokens() >> slot & 1 != 0;
        is_there.then(|| {
            let key = pair.key.peek(Ordering::Acquire);
            (key, pair.value.peek(Ordering::Acquire))
        })
    }

    /// All entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..PAIRS).filter_map(|slot| self.entry(slot))
    }

    /// Whether no token is set that has no pair, and no lock was ever taken here.
    pub(crate) fn is_sound(&self) -> bool {
        self.tokens() & !ALL_TOKENS == 0
    }

    /// Whether no token is set that has no pair, and the lock that is here is free.
    pub(crate) fn is_sound_and_free(&self) -> bool {
        self.tokens() & (2 * ONE_HOLD - 1) & !ALL_TOKENS == 0
    }

    /// The lock: odd while somebody holds it, and another number whenever somebody took it.
    #[inline]
    pub(crate) fn holds(&self) -> u64 {
        self.tokens() / ONE_HOLD
    }

    /// How the pair of a slot becomes durable in a line that may lie across two of the cache's.
    pub(crate) fn pair_flush(&self, medium: &Medium, slot: usize) -> PairFlush {
        let line = medium.offset_of(&self.tokens).raw() / LINE_BYTES;
        match medium.offset_of(&self.pairs[slot].value).raw() / LINE_BYTES == line {
            true => PairFlush::WithToken,
            false => PairFlush::Before,
        }
    }
}

// ORDER: Release throughout: pairs with the acquiring loads above.
impl Line {
    /// Puts an entry into a free slot, durably.
    #[inline]
    pub(crate) fn put(&self, medium: &Medium, slot: usize, key: u64, value: u64) {
        self.put_as(PairFlush::WithToken, medium, slot, key, value);
    }

    /// As [`Line::put`], if pair and token may need a flush each.
    #[inline(always)]
    pub(crate) fn put_as(
        &self,
        flush: PairFlush,
        medium: &Medium,
        slot: usize,
        key: u64,
        value: u64,
    ) {
        self.fill(flush, medium, slot, key, value);
        // ORDER: Relaxed: only the holder of the lock writes.
        let tokens = self.tokens.peek(Ordering::Relaxed) | 1 << slot;
        // DURABLE: the pair, by the order of stores to a line or before; the entry, by this.
        self.tokens.store_persist(medium, tokens, Ordering::Release);
    }

    /// As [`Line::put`], while others change other slots of the line, which have other locks.
    #[inline]
    pub(crate) fn put_among(&self, medium: &Medium, slot: usize, key: u64, value: u64) {
        self.fill(PairFlush::WithToken, medium, slot, key, value);
        self.tokens.fetch_or(medium, 1 << slot, Ordering::Release);
        // DURABLE: the pair, by the order of stores to a line or before; the entry, by this.
        medium.persist(&self.tokens);
    }

    /// Writes the pair of a free slot.
    #[inline(always)]
    fn fill(&self, flush: PairFlush, medium: &Medium, slot: usize, key: u64, value: u64) {
        let pair = &self.pairs[slot];
        pair.value.store(medium, value, Ordering::Release);
        pair.key.store(medium, key, Ordering::Release);
        if flush.is_before() {
            // DURABLE: the pair, before its token.
            medium.persist(pair);
        }
    }

    /// Ends the entry in a slot that gets another one at once. The old one has an equal elsewhere,
    /// and recovery knows: its token may be found with any part of the new pair before it goes.
    /// Readers must not find that; so they are made to look again before the new pair is written.
    #[inline]
    pub(crate) fn vacate(&self, medium: &Medium, slot: usize) {
        // ORDER: Relaxed: only the holder of the lock writes.
        let others = self.tokens.peek(Ordering::Relaxed) & !(1 << slot);
        self.tokens.store(medium, others, Ordering::Release);
        if !cfg!(target_arch = "x86_64") {
            // DURABLE: the end of the old entry, before its pair is written over.
            medium.persist(&self.tokens);
        }
    }

    /// Replaces the value of the entry in a slot, durably, and returns the value before.
    #[inline]
    pub(crate) fn replace(&self, medium: &Medium, slot: usize, value: u64) -> u64 {
        let cell = &self.pairs[slot].value;
        // ORDER: Relaxed: only the holder of the lock writes.
        let old = cell.peek(Ordering::Relaxed);
        // DURABLE: the new value, by this.
        cell.store_persist(medium, value, Ordering::Release);
        old
    }

    /// Ends the entry in a slot, durably, and returns its value.
    #[inline]
    pub(crate) fn remove(&self, medium: &Medium, slot: usize) -> u64 {
        // ORDER: Relaxed: only the holder of the lock writes.
        let old = self.pairs[slot].value.peek(Ordering::Relaxed);
        let tokens = self.tokens.peek(Ordering::Relaxed) & !(1 << slot);
        // DURABLE: the end of the entry, by this.
        self.tokens.store_persist(medium, tokens, Ordering::Release);
        old
    }

    /// As [`Line::remove`], while others change other slots of the line, which have other locks.
    #[inline]
    pub(crate) fn remove_among(&self, medium: &Medium, slot: usize) -> u64 {
        // ORDER: Relaxed: only the holder of the slot's lock writes its value.
        let old = self.pairs[slot].value.peek(Ordering::Relaxed);
        self.tokens
            .fetch_and(medium, !(1 << slot), Ordering::Release);
        // DURABLE: the end of the entry, by this.
        medium.persist(&self.tokens);
        old
    }

    /// Takes the lock if it is free. It is for threads, not for the medium: nothing is flushed.
    #[inline]
    pub(crate) fn try_hold(&self, medium: &Medium) -> bool {
        // ORDER: Relaxed: a hint for the exchange.
        let word = self.tokens.peek(Ordering::Relaxed) & !ONE_HOLD;
        let held = word + ONE_HOLD;
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        // ORDER: Acquire pairs with the release of `let_go`.
        self.tokens
            .compare_exchange(medium, word, held, success, failure)
            .is_ok()
    }

    /// Lets the lock go.
    #[inline]
    pub(crate) fn let_go(&self, medium: &Medium) {
        // ORDER: Relaxed: only the holder of the lock writes.
        let free = self.tokens.peek(Ordering::Relaxed).wrapping_add(ONE_HOLD);
        self.tokens.store(medium, free, Ordering::Release);
    }
}

/// An array of lines, as many as a power of two, and as a word on a medium: the offset in the low
/// 48 bits, the binary logarithm of the number above. Its order is that of the first bits of
/// hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Array(pub(crate) u64);

impl Array {
    /// Bits of the number of lines, at most: more than any pool has room for.
    pub(crate) const BITS_MAX: u32 = 38;

    const OFFSET_BITS: u32 = 48;

    /// The array of 2^`bits` lines at `offset`.
    #[inline]
    pub(crate) fn new(offset: u64, bits: u32) -> Array {
        debug_assert!(
            offset >> Self::OFFSET_BITS == 0,
            "pools are smaller than 256 TiB"
        );
        Array(offset | u64::from(bits) << Self::OFFSET_BITS)
    }

    /// Whether it is there at all, with so many bits at least, and lies within the medium together
    /// with what follows it: so many bytes for its length.
    pub(crate) fn is_within(
        self,
        medium: &Medium,
        bits_min: u32,
        bytes: impl FnOnce(u64) -> u64,
    ) -> bool {
        let bits = bits_min..=Self::BITS_MAX;
        bits.contains(&self.bits())
            && self.offset() != 0
            && self.offset().is_multiple_of(LINE_BYTES)
            && self.offset() <= medium.len()
            && self.offset() + bytes(self.len()) <= medium.len()
    }

    /// Offset of the first line.
    #[inline]
    pub(crate) fn offset(self) -> u64 {
        self.0 & ((1 << Self::OFFSET_BITS) - 1)
    }

    /// Binary logarithm of the number of lines.
    #[inline]
    pub(crate) fn bits(self) -> u32 {
        (self.0 >> Self::OFFSET_BITS & 63) as u32
    }

    /// Number of lines.
    #[inline]
    pub(crate) fn len(self) -> u64 {
        1 << self.bits()
    }

    /// The number of the line that the first bits of a hash are; there is more than one line.
    #[inline]
    pub(crate) fn home(self, hash: u64) -> u64 {
        hash >> (64 - self.bits())
    }

    /// Where the line with a number is, or what follows the last one.
    #[inline]
    pub(crate) fn line(self, number: u64) -> POff<Line> {
        POff::new(self.offset() + number * LINE_BYTES)
    }
}

/// A line in the making, in DRAM.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Image {
    tokens: u64,
    pairs: [(u64, u64); PAIRS],
    /// The link.
    pub(crate) link: u64,
}

impl Image {
    /// Adds an entry; false if there is no room.
    #[inline]
    pub(crate) fn add(&mut self, key: u64, value: u64) -> bool {
        let slot = self.tokens.trailing_ones() as usize;
        if slot == PAIRS {
            return false;
        }
        self.pairs[slot] = (key, value);
        self.tokens |= 1 << slot;
        true
    }

    /// Appends the bytes of the line.
    pub(crate) fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.tokens.to_le_bytes());
        for (key, value) in self.pairs {
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        bytes.extend_from_slice(&self.link.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_media::pmem::{Pool, PoolOptions, ROOT_HINT};

    #[test]
    fn a_line_follows_its_entries() {
        let pool = Pool::anonymous(PoolOptions {
            size: 1 << 20,
            ..PoolOptions::default()
        })
        .expect("memory");
        let space = pool.alloc_aligned(LINE_BYTES, LINE_BYTES, ROOT_HINT);
        let space = space.expect("space");
        let at: POff<Line> = space.offset();
        let mut image = Image::default();
        assert!(image.add(0, 7));
        let mut bytes = Vec::new();
        image.append_to(&mut bytes);
        pool.write(at.raw(), &bytes);
        let line = pool.at(at);
        assert_eq!(
            (line.get(0), line.find(0), line.free_slot()),
            (Some(7), Some(0), Some(1))
        );
        line.put(&pool, 1, 5, 50);
        line.put(&pool, 2, 6, 60);
        assert_eq!((line.free_slot(), line.entry_count()), (None, 3));
        assert_eq!(line.replace(&pool, 1, 51), 50);
        assert_eq!(line.remove(&pool, 0), 7);
        assert_eq!(
            (line.get(0), line.get(5), line.free_slot()),
            (None, Some(51), Some(0))
        );
        line.put_among(&pool, 0, 9, 90);
        assert_eq!((line.get(9), line.get_among(9)), (Some(90), Some(90)));
        assert_eq!(line.remove_among(&pool, 0), 90);
        assert_eq!((line.get(9), line.get_among(9)), (None, None));
        line.vacate(&pool, 2);
        assert_eq!((line.get(6), line.free_slot()), (None, Some(0)));
        line.put(&pool, 2, 8, 80);
        assert_eq!(line.entries().collect::<Vec<_>>(), [(5, 51), (8, 80)]);
        assert!(line.is_sound());
        assert!(line.try_hold(&pool) && !line.try_hold(&pool));
        line.put_as(PairFlush::Before, &pool, 0, 4, 40);
        assert_eq!((line.holds(), line.entry_count()), (1, 3));
        assert!(!line.is_sound_and_free());
        line.let_go(&pool);
        assert_eq!((line.holds(), line.get(4)), (2, Some(40)));
        assert!(line.is_sound_and_free() && !line.is_sound());
    }

    /// A line that begins in the middle of one of the cache's has pairs in the next.
    #[test]
    fn pairs_behind_the_end_of_a_cache_line_are_flushed_first() {
        let pool = Pool::anonymous(PoolOptions::default()).expect("memory");
        let space = pool.alloc_aligned(2 * LINE_BYTES, LINE_BYTES, ROOT_HINT);
        let at = space.expect("space").offset::<Line>().raw();
        for (shift, lone) in [(0, 3), (8, 3), (16, 2), (32, 1), (48, 0), (56, 0)] {
            let line: &Line = pool.at(POff::new(at + shift));
            let is_before = |slot| line.pair_flush(&pool, slot) == PairFlush::Before;
            assert_eq!(
                (0..PAIRS).take_while(|&slot| !is_before(slot)).count(),
                lone
            );
        }
    }

    #[test]
    fn an_image_takes_three() {
        let mut image = Image::default();
        assert!((0..3).all(|key| image.add(key, key)) && !image.add(3, 3));
    }
}
