//! A leaf: how pairs are found in it, put into it and taken out of it.
//!
//! A pair becomes an entry in two phases (the paper's two-phase insertion): pairs and tags are
//! written and made durable, then the bitmap is. So there are two persists however many pairs come
//! at once. Items of strings are durable with the pairs. Words of the head lie in one line, whose
//! stores reach the medium in their order on x86-64; elsewhere each of those that must come first
//! is persisted alone.
//!
//! Whoever writes holds the lock of the leaf's node in DRAM.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Medium, PAtomicU64, POff};

use super::item;
use super::layout::{Head, PAIRS_AT, Pair, Tags};
use super::steps::{Step, is_taken};
pub(super) use crate::spoton::buffer::Tagged;
use crate::{Item, Result, tags};

/// A leaf, as it lies in the pool.
pub(super) struct Leaf<'a, const N: usize> {
    medium: &'a Medium,
    pub(super) head: &'a Head,
    tags: &'a Tags,
    pairs: &'a [Pair; N],
    /// The leaf's offset.
    pub(super) at: u64,
}

impl<const N: usize> Clone for Leaf<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<const N: usize> Copy for Leaf<'_, N> {}

/// What a leaf begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafInit {
    pub(super) next: u64,
    pub(super) lkey: u64,
    pub(super) hkey: u64,
    pub(super) merged: u64,
}

/// The bits of a bitmap of so many pairs.
pub(super) const fn all_bits(pairs: usize) -> u64 {
    if pairs == 64 {
        u64::MAX
    } else {
        (1 << pairs) - 1
    }
}

/// The bytes of a new leaf.
pub(super) fn image(start: LeafInit, pairs: usize, entries: &[Tagged]) -> Vec<u8> {
    let bitmap = all_bits(entries.len());
    let head = [
        bitmap,
        start.next,
        start.lkey,
        start.hkey,
        start.merged,
        0,
        0,
        0,
    ];
    let mut bytes = Vec::with_capacity(128 + 16 * pairs);
    bytes.extend(head.into_iter().flat_map(u64::to_le_bytes));
    bytes.extend(entries.iter().map(|entry| entry.tag));
    bytes.resize(128, 0);
    let words = entries.iter().flat_map(|entry| [entry.key, entry.value]);
    bytes.extend(words.flat_map(u64::to_le_bytes));
    bytes
}

// ORDER: Acquire throughout: pairs with the releasing stores below, and keeps loads in their order
// and before the second look at a lock.
impl<'a, const N: usize> Leaf<'a, N> {
    /// The leaf at an offset, if there can be one.
    #[inline]
    pub(super) fn new(medium: &'a Medium, at: u64) -> Option<Leaf<'a, N>> {
        let pairs = medium.try_at(POff::new(at.checked_add(PAIRS_AT)?))?;
        let head = medium.try_at(POff::new(at))?;
        let tags = medium.try_at(POff::new(at + size_of::<Head>() as u64))?;
        Some(Leaf {
            medium,
            head,
            tags,
            pairs,
            at,
        })
    }

    #[inline]
    pub(super) fn bitmap(&self) -> u64 {
        self.head.bitmap.peek(Ordering::Acquire) & all_bits(N)
    }

    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.head.next.peek(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn lkey(&self) -> u64 {
        self.head.lkey.peek(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn hkey(&self) -> u64 {
        self.head.hkey.peek(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn merged(&self) -> u64 {
        self.head.merged.peek(Ordering::Acquire)
    }

    /// Number of entries.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.bitmap().count_ones() as usize
    }

    #[inline]
    pub(super) fn key(&self, slot: usize) -> u64 {
        self.pairs[slot].key.peek(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn value(&self, slot: usize) -> u64 {
        self.pairs[slot].value.peek(Ordering::Acquire)
    }

    /// The words of a pair.
    #[inline]
    pub(super) fn pair(&self, slot: usize) -> [u64; 2] {
        [self.key(slot), self.value(slot)]
    }

    /// The slot of `key`.
    ///
    /// # Errors
    /// A damaged item.
    #[inline]
    pub(super) fn find<K: Item + ?Sized>(&self, key: &K, tag: u8) -> Result<Option<usize>> {
        self.medium.touch_range(self.at, PAIRS_AT);
        let words: [u64; 8] =
            std::array::from_fn(|word| self.tags.words[word].peek(Ordering::Acquire));
        let mut matches = tags::match_64(&words, tag) & self.bitmap();
        while matches != 0 {
            let slot = matches.trailing_zeros() as usize;
            let Some(pair) = self.pairs.get(slot) else {
                break;
            };
            self.medium.touch(pair);
            let is_key = if K::IS_WORD {
                pair.key.peek(Ordering::Acquire) == key.word()
            } else {
                item::is_key(self.medium, self.pair(slot), key)?
            };
            if is_key {
                return Ok(Some(slot));
            }
            matches &= matches - 1;
        }
        Ok(None)
    }

    /// The entries, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (usize, u64, u64)> + use<'a, N> {
        let leaf = *self;
        leaf.medium.touch_range(leaf.at, PAIRS_AT);
        slots(leaf.bitmap()).map(move |slot| {
            leaf.medium.touch(&leaf.pairs[slot]);
            (slot, leaf.key(slot), leaf.value(slot))
        })
    }

    /// The tag of a slot.
    pub(super) fn tag(&self, slot: usize) -> u8 {
        let word = self.tags.words[slot / 8].peek(Ordering::Acquire);
        word.to_le_bytes()[slot % 8]
    }

    /// Asks for head and tags.
    #[inline]
    pub(super) fn prefetch(medium: &Medium, at: u64) {
        medium.prefetch(at);
        medium.prefetch(at + size_of::<Head>() as u64);
    }

    /// Asks for all lines.
    #[inline]
    pub(super) fn prefetch_all(medium: &Medium, at: u64) {
        for line in 0..(PAIRS_AT / 64 + N as u64 / 4) {
            medium.prefetch(at + 64 * line);
        }
    }
}

/// The slots of a bitmap.
pub(super) fn slots(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (slot < 64).then_some(slot)
    })
}

/// Pairs of a line of the cache, and the bits of the slots of the first line.
const SLOTS_PER_LINE: usize = 4;
const LINE_SLOTS: u64 = (1 << SLOTS_PER_LINE) - 1;

/// What changes in the head of a leaf, in the order in which it does.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeadChange {
    Bitmap(u64),
    Next(u64),
    Hkey(u64),
    Merged(u64),
}

impl HeadChange {
    /// The step that this is, if a test leaves it out.
    #[inline]
    const fn step(self) -> Option<Step> {
        match self {
            HeadChange::Bitmap(_) => None,
            HeadChange::Next(_) => Some(Step::Next),
            HeadChange::Hkey(_) => Some(Step::Hkey),
            HeadChange::Merged(_) => Some(Step::Merged),
        }
    }
}

// ORDER: Release throughout: pairs with the acquiring loads above.
impl<const N: usize> Leaf<'_, N> {
    /// Puts entries into free slots, durably. There is room.
    #[inline]
    pub(super) fn put(&self, entries: &[Tagged]) {
        self.put_and(entries, 0, &[]);
    }

    /// As [`Leaf::put`]; takes the entries of the slots `dropped` away by the same store of the
    /// bitmap, and changes other words of the head behind it.
    #[inline]
    pub(super) fn put_and(&self, entries: &[Tagged], dropped: u64, changes: &[HeadChange]) {
        let mut bitmap = self.bitmap();
        let before = bitmap;
        for entry in entries {
            let slot = (bitmap.trailing_ones() as usize).min(N - 1);
            self.fill(slot, *entry);
            bitmap |= 1 << slot;
        }
        self.flush_filled(bitmap ^ before);
        // DURABLE: pairs and tags, before the bitmap shows them.
        self.medium.fence();
        self.change_word(HeadChange::Bitmap(bitmap & !dropped));
        self.change_head(changes);
    }

    /// Writes an entry to a slot.
    #[inline]
    fn fill(&self, slot: usize, entry: Tagged) {
        let pair = &self.pairs[slot];
        pair.key.store(self.medium, entry.key, Ordering::Release);
        pair.value
            .store(self.medium, entry.value, Ordering::Release);
        let word = &self.tags.words[slot / 8];
        let shift = slot % 8 * 8;
        // ORDER: Acquire: only the holder of the lock writes.
        let others = word.peek(Ordering::Acquire) & !(0xff << shift);
        let tags = others | u64::from(entry.tag) << shift;
        word.store(self.medium, tags, Ordering::Release);
    }

    /// Flushes the lines of the pairs of these slots, each once, and the tags.
    #[inline]
    fn flush_filled(&self, mut filled: u64) {
        if filled == 0 {
            return;
        }
        while filled != 0 {
            let slot = filled.trailing_zeros() as usize;
            self.medium.flush(&self.pairs[slot]);
            filled &= !(LINE_SLOTS << (slot / SLOTS_PER_LINE * SLOTS_PER_LINE));
        }
        self.medium.flush(self.tags);
    }

    /// Changes words of the head, in this order, and makes all changes of the head durable.
    #[inline]
    pub(super) fn change_head(&self, changes: &[HeadChange]) {
        for change in changes {
            self.change_word(*change);
        }
        // DURABLE: the changes, by the order of stores to a line.
        self.medium.persist(self.head);
    }

    #[inline]
    fn change_word(&self, change: HeadChange) {
        if change.step().is_some_and(|step| !is_taken(step)) {
            return;
        }
        let (word, value): (&PAtomicU64, u64) = match change {
            HeadChange::Bitmap(value) => (&self.head.bitmap, value),
            HeadChange::Next(value) => (&self.head.next, value),
            HeadChange::Hkey(value) => (&self.head.hkey, value),
            HeadChange::Merged(value) => (&self.head.merged, value),
        };
        if !cfg!(target_arch = "x86_64") {
            // DURABLE: what comes first, where stores to a line may change places.
            self.medium.persist(self.head);
        }
        word.store(self.medium, value, Ordering::Release);
    }

    /// Stores another value in a slot and flushes it.
    pub(super) fn set_value(&self, slot: usize, value: u64) {
        let word = &self.pairs[slot].value;
        word.store(self.medium, value, Ordering::Release);
        self.medium.flush(word);
    }

    /// Stores another value in a slot, durably, and returns the one before.
    #[inline]
    pub(super) fn replace(&self, slot: usize, value: u64) -> u64 {
        let word = &self.pairs[slot].value;
        // ORDER: Acquire: only the holder of the lock writes.
        let before = word.peek(Ordering::Acquire);
        // DURABLE: the update.
        word.store_persist(self.medium, value, Ordering::Release);
        before
    }

    /// Takes the entry of a slot away, durably, and returns its value.
    #[inline]
    pub(super) fn remove(&self, slot: usize) -> u64 {
        let before = self.value(slot);
        self.change_head(&[HeadChange::Bitmap(self.bitmap() & !(1 << slot))]);
        before
    }
}
