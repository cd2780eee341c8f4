//! Segments, and their buckets. The directory is that of `extendible`.
//!
//! **Bucket**, 64 bytes: four pairs of 16 bytes, key and value.

use std::hint::select_unpredictable;
use std::sync::atomic::Ordering;

use gabion_media::media_struct;
use gabion_media::pmem::{Medium, POff};

use crate::extendible::Segment;
use crate::line::{LINE_BYTES, Pair};

/// Pairs of a bucket.
pub(crate) const PAIRS: usize = 4;

/// Buckets that an entry may lie in, from each of its homes on, in the published code.
pub(super) const SCOPE: u64 = 4;

/// Bits of a segment's number of buckets: 16 KiB; and of one in a table for few entries.
const SEGMENT_BITS_MAX: u32 = 8;
const SEGMENT_BITS_MIN: u32 = 2;

media_struct! {
    /// A bucket.
    pub(super) struct Bucket {
        pub(super) pairs: [Pair; PAIRS],
    }
}

const _: () = {
    assert!(size_of::<Bucket>() as u64 == LINE_BYTES);
    assert!(size_of::<Pair>() * PAIRS == size_of::<Bucket>());
    // The buckets that an entry may lie in are different ones.
    assert!(1 << SEGMENT_BITS_MIN >= SCOPE);
};

/// Where the bucket of a segment with a number is.
#[inline]
pub(super) fn bucket_of(segment: Segment, number: u64) -> POff<Bucket> {
    POff::new(segment.offset() + number * LINE_BYTES)
}

/// The numbers of the buckets that an entry with this hash may lie in, in order, in a segment whose
/// last bucket has the number `last`: `scope` of them in a circle from the one that the last bits
/// of the hash name, and with two homes as many again from the one that the bits before name. These
/// may be the same.
#[inline]
pub(super) fn path(
    hash: u64,
    last: u64,
    scope: u64,
    has_two_homes: bool,
) -> impl Iterator<Item = u64> {
    let homes = 1 + u64::from(has_two_homes);
    (0..homes * scope).map(move |step| {
        let home = hash >> (step / scope * u64::from(SEGMENT_BITS_MAX));
        home.wrapping_add(step % scope) & last
    })
}

/// Bits of the number of buckets of a segment, in a table that is planned for so many entries.
pub(crate) fn segment_bits(capacity: u64) -> u32 {
    // A table has eight segments at least, unless it is very small.
    let bits = (capacity / 32).checked_ilog2().unwrap_or(0);
    bits.clamp(SEGMENT_BITS_MIN, SEGMENT_BITS_MAX)
}

/// The depth of all segments of a new table: half of the slots are filled when it is as full as it
/// is planned to be, or more, but fewer than are when segments split.
pub(super) fn planned_depth(capacity: u64, segment_bits: u32) -> u32 {
    let slots = (PAIRS as u64) << segment_bits;
    let bits = (capacity / slots * 2).checked_ilog2().unwrap_or(0);
    bits.clamp(1, 28)
}

// ORDER: Acquire throughout: pairs with the releasing stores below, and keeps the loads of a lookup
// in their order.
impl Bucket {
    #[inline]
    pub(super) fn key(&self, slot: usize) -> u64 {
        self.pairs[slot].key.peek(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn value(&self, slot: usize) -> u64 {
        self.pairs[slot].value.peek(Ordering::Acquire)
    }

    /// The first slot with this key, entry or not. No branch depends on which of them that is: it
    /// cannot be foreseen, and the processor would not go on to the lines of the next lookup.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<usize> {
        let earlier = |found, slot| select_unpredictable(self.key(slot) == key, slot, found);
        let found = (0..PAIRS).rev().fold(PAIRS, earlier);
        (found < PAIRS).then_some(found)
    }
}

// ORDER: Release throughout: pairs with the acquiring loads above.
impl Bucket {
    /// Writes a pair over one that is no entry, durably.
    #[inline]
    pub(super) fn put(&self, medium: &Medium, slot: usize, key: u64, value: u64) {
        let pair = &self.pairs[slot];
        pair.value.store(medium, value, Ordering::Release);
        if !cfg!(target_arch = "x86_64") {
            // DURABLE: the value, before the key makes it an entry.
            medium.persist(&pair.value);
        }
        // DURABLE: the value, by the order of stores to a line; the entry, by this.
        pair.key.store_persist(medium, key, Ordering::Release);
    }

    /// Replaces a value, durably, and returns the value before.
    #[inline]
    pub(super) fn replace(&self, medium: &Medium, slot: usize, value: u64) -> u64 {
        let old = self.value(slot);
        // DURABLE: the new value, by this.
        self.pairs[slot]
            .value
            .store_persist(medium, value, Ordering::Release);
        old
    }

    /// Makes a pair none, durably, by a key that is none here, and returns its value.
    #[inline]
    pub(super) fn remove(&self, medium: &Medium, slot: usize, filler: u64) -> u64 {
        // DURABLE: the end of the entry, by this.
        self.pairs[slot]
            .key
            .store_persist(medium, filler, Ordering::Release);
        self.value(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_in_a_circle_from_each_home() {
        let numbers = |scope, has_two| path(0x1_0207, 7, scope, has_two).collect::<Vec<_>>();
        assert_eq!(numbers(4, false), [7, 0, 1, 2]);
        assert_eq!(numbers(8, false), [7, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(numbers(4, true), [7, 0, 1, 2, 2, 3, 4, 5]);
    }

    #[test]
    fn sizes_suit_the_plan() {
        assert_eq!([0, 8, 1000, 8192].map(segment_bits), [2, 2, 4, 8]);
        assert_eq!(planned_depth(8, 2), 1);
        let depth = planned_depth(10_000_000, 8);
        let slots = 1024_u64 << depth;
        assert!((45..90).contains(&(10_000_000 * 100 / slots)));
    }
}
