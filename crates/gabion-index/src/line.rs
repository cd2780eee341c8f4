//! Buckets of one cache line: three pairs of words and the tokens that say which are entries.
//!
//! ```text
//! 0        8       16       24       32       40       48       56       64
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! | tokens |  key   | value  |  key   | value  |  key   | value  |  link  |
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! ```
//!
//! What tokens and pairs mean, and how they change, stands in `bucket.rs`; the link is the table's.
//! A value is replaced by one store of a word.
//!
//! The word of the tokens has room for a lock above them, which counts how often it was taken and
//! let go, and so is odd while it is held. Where tables have their locks elsewhere it is 0.

use std::sync::atomic::Ordering;

use gabion_media::media_struct;
use gabion_media::pmem::{Medium, PAtomicU64, POff};

use crate::bucket::{Bucket, Entry};

/// Pairs of a line.
pub(crate) const PAIRS: usize = 3;

/// The tokens of all pairs.
const ALL_TOKENS: u64 = (1 << PAIRS) - 1;

/// What taking a lock, or letting it go, adds to the word of the tokens.
const ONE_HOLD: u64 = 1 << 8;

/// Bytes of a line, and its alignment.
pub(crate) const LINE_BYTES: u64 = 64;

media_struct! {
    /// A bucket.
    pub struct Line {
        tokens: PAtomicU64,
        pairs: [Pair; PAIRS],
        pub(crate) link: PAtomicU64,
    }

    /// A pair of words.
    pub struct Pair {
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

impl Bucket for Line {
    const SLOTS: usize = PAIRS;
    const BYTES: u64 = LINE_BYTES;
    type Value = u64;
    type Pair = Pair;

    #[inline]
    fn tokens_word(&self) -> &PAtomicU64 {
        &self.tokens
    }

    #[inline]
    fn pair(&self, slot: usize) -> &Pair {
        &self.pairs[slot]
    }

    fn append_image(entries: &[(u64, u64)], bytes: &mut Vec<u8>) {
        let mut image = LineImage::default();
        for (key, value) in entries {
            image.add(*key, *value);
        }
        image.append_to(bytes);
    }
}

impl Entry<u64> for Pair {
    #[inline]
    fn key(&self) -> &PAtomicU64 {
        &self.key
    }

    #[inline]
    fn value(&self) -> &[PAtomicU64] {
        std::slice::from_ref(&self.value)
    }
}

// ORDER: Acquire and Release as in `bucket.rs`.
impl Line {
    /// Whether no token is set that has no pair, and the lock that is here is free.
    pub(crate) fn is_sound_and_free(&self) -> bool {
        self.tokens() & (2 * ONE_HOLD - 1) & !ALL_TOKENS == 0
    }

    /// The lock: odd while somebody holds it, and another number whenever somebody took it.
    #[inline]
    pub(crate) fn holds(&self) -> u64 {
        self.tokens() / ONE_HOLD
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
pub(crate) struct LineArray(pub(crate) u64);

impl LineArray {
    /// Bits of the number of lines, at most: more than any pool has room for.
    pub(crate) const BITS_MAX: u32 = 38;

    const OFFSET_BITS: u32 = 48;

    /// The array of 2^`bits` lines at `offset`.
    #[inline]
    pub(crate) fn new(offset: u64, bits: u32) -> LineArray {
        debug_assert!(
            offset >> Self::OFFSET_BITS == 0,
            "pools are smaller than 256 TiB"
        );
        LineArray(offset | u64::from(bits) << Self::OFFSET_BITS)
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
pub(crate) struct LineImage {
    tokens: u64,
    pairs: [(u64, u64); PAIRS],
    /// The link.
    pub(crate) link: u64,
}

impl LineImage {
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
    use crate::bucket::PairFlush;
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
        let mut image = LineImage::default();
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
        let mut image = LineImage::default();
        assert!((0..3).all(|key| image.add(key, key)) && !image.add(3, 3));
    }
}
