//! The levels, and the places of a key in them.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, POff};

use super::Clevel;
use super::layout::{BUCKET_BYTES, Bucket, LEVELS, SlotWord};
use crate::Item;

/// Bits of the last level, at least.
pub(super) const BITS_MIN: u32 = 1;

/// Bits of the first level, at most: the lowest bit of a hash, which hints do without, is the last
/// of those that choose a bucket of a level with 2^32.
pub(super) const BITS_MAX: u32 = 31;

const _: () = assert!(BITS_MAX < 32 && (BITS_MAX as usize) < LEVELS);

/// Percent of the slots that a table is planned to fill: it holds some more.
const PLANNED_LOAD: u64 = 80;

/// Which levels there are: from the last, which is the smallest, to the first, each twice as large
/// as the one before. Both only ever rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context(pub(super) u64);

impl Context {
    /// What is added when a level is put before the first one.
    pub(super) const ONE_FIRST: u64 = 1;
    /// What is added when the last level is dropped.
    pub(super) const ONE_LAST: u64 = 1 << 32;

    pub(super) fn new(first: u32, last: u32) -> Context {
        Context(u64::from(last) << 32 | u64::from(first))
    }

    /// Bits of the first level.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    pub(super) fn first(self) -> u32 {
        self.0 as u32
    }

    /// Bits of the last level.
    #[inline]
    pub(super) fn last(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Bits of all levels from the last one on.
    #[inline]
    pub(super) fn upwards(self) -> RangeInclusive<u32> {
        self.last()..=self.first()
    }

    /// Whether the last level is being moved: there are two when that is over.
    #[inline]
    pub(super) fn is_resizing(self) -> bool {
        self.first() > self.last() + 1
    }
}

/// Bits of the last level of a table that is planned for so many entries.
pub(super) fn planned_bits(capacity: u64, used: usize) -> u32 {
    // Both levels have three times as many buckets as the last one.
    let buckets = u128::from(capacity) * 100 / (3 * used as u128 * u128::from(PLANNED_LOAD));
    let buckets = u64::try_from(buckets).unwrap_or(u64::MAX);
    let buckets = buckets.clamp(1 << BITS_MIN, 1 << (BITS_MAX - 1));
    buckets.next_power_of_two().ilog2()
}

/// The numbers of the two buckets of a hash in a level.
#[inline]
pub(super) fn homes(bits: u32, hash: u64) -> [u64; 2] {
    [hash >> (64 - bits), hash.rotate_left(32) >> (64 - bits)]
}

impl<K: Item + ?Sized, const USED: usize> Clevel<K, USED> {
    /// Which levels there are.
    #[inline]
    pub(super) fn context(&self) -> Context {
        // ORDER: SeqCst pairs with the changes in `resize.rs`: the levels are read as they were
        // built, and whoever announces an item and finds the context as it was is seen by
        // everybody who finds another one.
        Context(self.context.load(Ordering::SeqCst))
    }

    /// Where the bucket with a number in the level with so many bits is.
    #[inline]
    pub(super) fn bucket_at(&self, bits: u32, number: u64) -> u64 {
        // ORDER: Relaxed: stored before the context that told of the level.
        let level = self.levels[bits as usize % LEVELS].load(Ordering::Relaxed);
        level + number * BUCKET_BYTES
    }

    /// The bucket with a number in the level with so many bits.
    #[inline]
    pub(super) fn bucket(&self, bits: u32, number: u64) -> &Bucket {
        let bucket = self.medium.at(POff::new(self.bucket_at(bits, number)));
        self.medium.touch(bucket);
        bucket
    }

    /// The two buckets of a hash in the level with so many bits, which may be the same.
    #[inline]
    pub(super) fn candidates(&self, bits: u32, hash: u64) -> [&Bucket; 2] {
        homes(bits, hash).map(|number| self.bucket(bits, number))
    }

    /// The slots of a bucket that are used.
    #[inline]
    pub(super) fn slots<'a>(&self, bucket: &'a Bucket) -> &'a [PAtomicU64] {
        &bucket.slots[..USED]
    }

    /// All slots that a key may be in, from the last level on.
    #[inline]
    pub(super) fn places(&self, context: Context, hash: u64) -> impl Iterator<Item = &PAtomicU64> {
        let buckets = move |bits| self.candidates(bits, hash);
        let slots = move |bucket| self.slots(bucket);
        context.upwards().flat_map(buckets).flat_map(slots)
    }

    /// A free slot for a new entry: in the emptier bucket of the highest level of some that has
    /// one.
    pub(super) fn free_place(&self, levels: RangeInclusive<u32>, hash: u64) -> Option<&PAtomicU64> {
        // ORDER: Relaxed: who takes a slot looks again.
        let is_free = |slot: &&PAtomicU64| SlotWord(slot.peek(Ordering::Relaxed)) == SlotWord::FREE;
        for bits in levels.rev() {
            let [one, other] = self.candidates(bits, hash).map(|bucket| {
                let free = || self.slots(bucket).iter().filter(is_free);
                (free().count(), free().next())
            });
            let (_, slot) = if other.0 > one.0 { other } else { one };
            if slot.is_some() {
                return slot;
            }
        }
        None
    }

    /// Puts another word into a slot if it holds `old`.
    #[inline]
    pub(super) fn exchange(&self, slot: &PAtomicU64, old: SlotWord, new: SlotWord) -> bool {
        // ORDER: SeqCst: of two that announce an item for the same key, the later one sees the
        // other, in `is_alone`. Pairs with the acquiring loads of readers as well. Relaxed: who
        // fails loads again.
        let (yes, no) = (Ordering::SeqCst, Ordering::Relaxed);
        slot.compare_exchange(&self.medium, old.0, new.0, yes, no)
            .is_ok()
    }

    /// Starts to make durable all that was seen in the places of a key.
    #[cold]
    pub(super) fn flush_places(&self, context: Context, hash: u64) {
        for bits in context.upwards() {
            for bucket in self.candidates(bits, hash) {
                self.medium.flush(bucket);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::recovery::item_hint;
    use super::*;

    #[test]
    fn a_context_is_two_numbers() {
        let context = Context::new(7, 6);
        assert_eq!((context.first(), context.last()), (7, 6));
        assert!(!context.is_resizing());
        let grown = Context(context.0 + Context::ONE_FIRST);
        assert!(grown.is_resizing() && grown.upwards().eq(6..=8));
        assert_eq!(Context(grown.0 + Context::ONE_LAST), Context::new(8, 7));
    }

    #[test]
    fn a_table_is_planned_with_room_to_spare() {
        assert_eq!((planned_bits(0, 8), planned_bits(8, 2)), (1, 1));
        for capacity in [1000, 10_000_000] {
            let slots = (3_u64 << planned_bits(capacity, 8)) * 8;
            assert!(slots * 8 / 10 >= capacity && slots * 4 / 10 < capacity);
        }
        assert_eq!(planned_bits(u64::MAX, 8), BITS_MAX - 1);
    }

    #[test]
    fn a_hint_has_the_homes_of_its_hash() {
        for hash in (0..1000).map(|number| crate::Seed::new(number).hash_u64(number)) {
            for bits in BITS_MIN..=BITS_MAX {
                assert_eq!(homes(bits, item_hint(hash)), homes(bits, hash));
            }
        }
        assert_ne!(homes(BITS_MAX + 1, item_hint(0)), homes(BITS_MAX + 1, 0));
    }

    #[test]
    fn homes_are_the_first_bits_of_both_hashes() {
        let hash = 0x8000_0000_4000_0000;
        assert_eq!(homes(1, hash), [1, 0]);
        assert_eq!(homes(3, hash), [4, 2]);
    }
}
