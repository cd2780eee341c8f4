//! Buckets: slots for entries, and tokens that say which of them hold one.
//!
//! Bit `i` of the word of tokens is set if slot `i` holds an entry. A pair of key and value is
//! written before its token. Where both lie in one cache line, whose stores reach the medium in
//! their order on x86-64, one flush makes both durable; elsewhere the pair is persisted first
//! ([`PairFlush`]). Who has the lock of a whole bucket changes its tokens by plain stores; where
//! the slots of a bucket have different locks, by atomic changes of one bit
//! ([`Bucket::put_among`]).
//!
//! There are two kinds, and tables are generic over them: [`Line`](crate::line::Line), a cache line
//! with three entries of two words, and [`Quad`](crate::quad::Quad), two lines with four entries
//! whose values have two words each. A value of one word is replaced by one store. One of several
//! is replaced by [`Bucket::exchange`], without a log, if its bucket has a free slot; else there is
//! [`UpdateLog`](crate::update_log::UpdateLog).

use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{Media, Medium, PAtomicU64};

use crate::line::LINE_BYTES;

/// Words of a value, at most.
pub(crate) const VALUE_WORDS_MAX: usize = 2;

/// What a bucket keeps under a key.
pub trait Value: Copy + Debug + PartialEq + Send + Sync + 'static {
    /// Words that it has.
    const WORDS: usize;

    /// The value that stands for a word in an [`Index`](crate::Index).
    fn of_word(word: u64) -> Self;

    /// The word that it stands for. If it stands for none, some word that hardly stands for
    /// another value.
    fn word(self) -> u64;

    /// Whether it stands for a word.
    fn is_whole(self) -> bool;

    /// The value with these words.
    fn of_words(word: impl Fn(usize) -> u64) -> Self;

    /// One of its words.
    fn word_at(self, at: usize) -> u64;
}

impl Value for u64 {
    const WORDS: usize = 1;

    #[inline]
    fn of_word(word: u64) -> u64 {
        word
    }

    #[inline]
    fn word(self) -> u64 {
        self
    }

    #[inline]
    fn is_whole(self) -> bool {
        true
    }

    #[inline]
    fn of_words(word: impl Fn(usize) -> u64) -> u64 {
        word(0)
    }

    #[inline]
    fn word_at(self, _: usize) -> u64 {
        self
    }
}

/// A word stands here with its complement behind it. So a value that was written in part, or read
/// while it was written, shows.
impl Value for [u64; 2] {
    const WORDS: usize = 2;

    #[inline]
    fn of_word(word: u64) -> [u64; 2] {
        [word, !word]
    }

    #[inline]
    fn word(self) -> u64 {
        let [word, complement] = self;
        match self.is_whole() {
            true => word,
            false => word ^ complement.rotate_left(32),
        }
    }

    #[inline]
    fn is_whole(self) -> bool {
        self[1] == !self[0]
    }

    #[inline]
    fn of_words(word: impl Fn(usize) -> u64) -> [u64; 2] {
        [word(0), word(1)]
    }

    #[inline]
    fn word_at(self, at: usize) -> u64 {
        self[at]
    }
}

/// A key and a value on a medium.
pub trait Entry<V: Value>: Media {
    /// The key.
    fn key(&self) -> &PAtomicU64;

    /// The words of the value.
    fn value(&self) -> &[PAtomicU64];

    // ORDER: Acquire and Release as those of `Bucket`.
    /// The value as it is.
    #[inline]
    fn load(&self) -> V {
        let words = self.value();
        V::of_words(|at| words[at].peek(Ordering::Acquire))
    }

    /// Writes a value word by word, without a flush.
    #[inline(always)]
    fn store(&self, medium: &Medium, value: V) {
        for (at, word) in self.value().iter().enumerate() {
            // ORDER: Release pairs with the acquire of `load`.
            word.store(medium, value.word_at(at), Ordering::Release);
        }
    }
}

/// When the pair of a new entry is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairFlush {
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

/// Slots with their tokens. See the module's head.
// ORDER: Acquire in all that reads: pairs with the releasing stores of what writes, and keeps the
// loads of a lookup in their order, tokens before pairs, all before the second look at the lock.
pub trait Bucket: Media {
    /// Slots.
    const SLOTS: usize;

    /// Bytes, whole cache lines. A bucket begins with a line, unless its table says otherwise.
    const BYTES: u64;

    /// What stands under a key.
    type Value: Value;

    /// A key and a value.
    type Pair: Entry<Self::Value>;

    /// The word of the tokens. What a bucket has in it above them is its own.
    fn tokens_word(&self) -> &PAtomicU64;

    /// What lies in a slot, entry or not.
    fn pair(&self, slot: usize) -> &Self::Pair;

    /// Appends the bytes of a bucket with these entries, as many as it has slots at most.
    fn append_image(entries: &[(u64, Self::Value)], bytes: &mut Vec<u8>);

    /// Tells a watcher which lines are read to look for a key, or of the tokens alone.
    #[inline]
    fn touch(&self, medium: &Medium, _key: Option<u64>)
    where
        Self: Sized,
    {
        medium.touch(self);
    }

    /// How the pair of a slot becomes durable in a bucket that begins with a cache line.
    #[inline]
    fn flush_of(_slot: usize) -> PairFlush {
        PairFlush::WithToken
    }

    /// As [`Bucket::flush_of`], wherever the bucket begins.
    fn pair_flush(&self, medium: &Medium, slot: usize) -> PairFlush {
        let line = medium.offset_of(self.tokens_word()).raw() / LINE_BYTES;
        let pair = medium.offset_of(self.pair(slot)).raw();
        let last = pair + size_of::<Self::Pair>() as u64 - 1;
        match last / LINE_BYTES == line {
            true => PairFlush::WithToken,
            false => PairFlush::Before,
        }
    }

    /// The tokens, as bits.
    #[inline]
    fn tokens(&self) -> u64 {
        // ORDER: Acquire pairs with the releases of all that stores tokens.
        self.tokens_word().peek(Ordering::Acquire)
    }

    /// A bit for each slot that has an entry of `key`. No branch depends on which of them that is:
    /// it would be foreseen wrongly as often as not, and the processor could not go on to other
    /// lines while this one is on its way.
    #[inline]
    fn matches(&self, key: u64) -> u64 {
        self.tokens() & self.keys_that_are(key, 0..Self::SLOTS)
    }

    /// A bit for each of some slots in which `key` stands, entry or not.
    #[inline]
    fn keys_that_are(&self, key: u64, slots: Range<usize>) -> u64 {
        let is_key = |slot: usize| {
            // ORDER: Acquire pairs with the release of `fill`; before the second look at a lock.
            let stored = self.pair(slot).key().peek(Ordering::Acquire);
            u64::from(stored == key)
        };
        slots.fold(0, |bits, slot| bits | is_key(slot) << slot)
    }

    /// The value of `key`, if it is here.
    #[inline]
    fn get(&self, key: u64) -> Option<Self::Value> {
        Some(self.pair(self.find(key)?).load())
    }

    /// As [`Bucket::get`], while others change other slots of the bucket, which have other locks.
    /// The token that led to the pair may have been that of an entry that has gone since, in whose
    /// slot somebody is writing `key`, which is not there yet: so it is looked at again.
    #[inline]
    fn get_among(&self, key: u64) -> Option<Self::Value> {
        let slot = self.find(key)?;
        let value = self.pair(slot).load();
        (self.tokens() >> slot & 1 != 0).then_some(value)
    }

    /// The slot of `key`. Only the holder of its lock can rely on it.
    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let matches = self.matches(key);
        (matches != 0).then(|| (matches.trailing_zeros() as usize).min(Self::SLOTS - 1))
    }

    /// The first slot that holds no entry.
    #[inline]
    fn free_slot(&self) -> Option<usize> {
        let slot = self.tokens().trailing_ones() as usize;
        (slot < Self::SLOTS).then_some(slot)
    }

    /// Number of entries.
    #[inline]
    fn entry_count(&self) -> u32 {
        (self.tokens() & ((1 << Self::SLOTS) - 1)).count_ones()
    }

    /// The entry in a slot, if there is one.
    fn entry(&self, slot: usize) -> Option<(u64, Self::Value)> {
        let pair = self.pair(slot);
        let is_there = self.tokens() >> slot & 1 != 0;
        // ORDER: Acquire pairs with the release of `fill`.
        is_there.then(|| (pair.key().peek(Ordering::Acquire), pair.load()))
    }

    /// All entries.
    fn entries(&self) -> impl Iterator<Item = (u64, Self::Value)> {
        (0..Self::SLOTS).filter_map(|slot| self.entry(slot))
    }

    /// Whether no token is set that has no slot, and nothing stands above the tokens.
    fn is_sound(&self) -> bool {
        self.tokens() >> Self::SLOTS == 0
    }

    // ORDER: Release in all that writes: pairs with the acquiring loads above.
    /// Puts an entry into a free slot, durably.
    #[inline]
    fn put(&self, medium: &Medium, slot: usize, key: u64, value: Self::Value) {
        self.put_as(Self::flush_of(slot), medium, slot, key, value);
    }

    /// As [`Bucket::put`], if pair and token may need a flush each.
    #[inline(always)]
    fn put_as(&self, flush: PairFlush, medium: &Medium, slot: usize, key: u64, value: Self::Value) {
        self.fill(flush, medium, slot, key, value);
        let word = self.tokens_word();
        // ORDER: Relaxed: only the holder of the lock writes.
        let tokens = word.peek(Ordering::Relaxed) | 1 << slot;
        // DURABLE: the pair, by the order of stores to a line or before; the entry, by this.
        word.store_persist(medium, tokens, Ordering::Release);
    }

    /// As [`Bucket::put`], while others change other slots of the bucket, which have other locks.
    #[inline]
    fn put_among(&self, medium: &Medium, slot: usize, key: u64, value: Self::Value) {
        self.fill(Self::flush_of(slot), medium, slot, key, value);
        let word = self.tokens_word();
        // ORDER: Release pairs with the acquire of `tokens`.
        word.fetch_or(medium, 1 << slot, Ordering::Release);
        // DURABLE: the pair, by the order of stores to a line or before; the entry, by this.
        medium.persist(word);
    }

    /// Writes the pair of a free slot.
    #[inline(always)]
    fn fill(&self, flush: PairFlush, medium: &Medium, slot: usize, key: u64, value: Self::Value) {
        let pair = self.pair(slot);
        pair.store(medium, value);
        // ORDER: Release pairs with the acquire of `keys_that_are`.
        pair.key().store(medium, key, Ordering::Release);
        if flush.is_before() {
            // DURABLE: the pair, before its token.
            medium.persist(pair);
        }
    }

    /// Ends the entry in a slot that gets another one at once. The old one has an equal elsewhere,
    /// and recovery knows: its token may be found with any part of the new pair before it goes, if
    /// both lie in one line. Readers must not find that; so they are made to look again before the
    /// new pair is written.
    #[inline]
    fn vacate(&self, medium: &Medium, slot: usize) {
        let word = self.tokens_word();
        // ORDER: Relaxed: only the holder of the lock writes.
        let others = word.peek(Ordering::Relaxed) & !(1 << slot);
        word.store(medium, others, Ordering::Release);
        if Self::flush_of(slot).is_before() {
            // DURABLE: the end of the old entry, before its pair is written over.
            medium.persist(word);
        }
    }

    /// Replaces the value of the entry in a slot, durably, and returns the value before. It has one
    /// word.
    #[inline]
    fn replace(&self, medium: &Medium, slot: usize, value: Self::Value) -> Self::Value {
        debug_assert!(Self::Value::WORDS == 1, "more words are not stored at once");
        let pair = self.pair(slot);
        let old = pair.load();
        let cell = &pair.value()[0];
        // ORDER: Release pairs with the acquire of `load`.
        // DURABLE: the new value, by this.
        cell.store_persist(medium, value.word_at(0), Ordering::Release);
        old
    }

    /// Replaces the value of the entry in a slot by an entry in a free one, durably, and returns
    /// the value before. One store of the tokens ends the old entry and makes the new one.
    #[inline]
    fn exchange(
        &self,
        medium: &Medium,
        slot: usize,
        free: usize,
        value: Self::Value,
    ) -> Self::Value {
        let pair = self.pair(slot);
        // ORDER: Relaxed: only the holder of the lock writes.
        let (key, old) = (pair.key().peek(Ordering::Relaxed), pair.load());
        self.fill(Self::flush_of(free), medium, free, key, value);
        let word = self.tokens_word();
        // ORDER: Relaxed: as above.
        let others = word.peek(Ordering::Relaxed) & !(1 << slot);
        // DURABLE: the pair, as for `put_as`; the update, by this.
        word.store_persist(medium, others | 1 << free, Ordering::Release);
        old
    }

    /// Ends the entry in a slot, durably, and returns its value.
    #[inline]
    fn remove(&self, medium: &Medium, slot: usize) -> Self::Value {
        let old = self.pair(slot).load();
        let word = self.tokens_word();
        // ORDER: Relaxed: only the holder of the lock writes.
        let tokens = word.peek(Ordering::Relaxed) & !(1 << slot);
        // DURABLE: the end of the entry, by this.
        word.store_persist(medium, tokens, Ordering::Release);
        old
    }

    /// As [`Bucket::remove`], while others change other slots of the bucket, which have other
    /// locks.
    #[inline]
    fn remove_among(&self, medium: &Medium, slot: usize) -> Self::Value {
        let old = self.pair(slot).load();
        let word = self.tokens_word();
        // ORDER: Release pairs with the acquire of `tokens`.
        word.fetch_and(medium, !(1 << slot), Ordering::Release);
        // DURABLE: the end of the entry, by this.
        medium.persist(word);
        old
    }
}
