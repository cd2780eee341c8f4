//! Paths through the buckets of a shard, and what a hash says about them.
//!
//! | bits of the hash | meaning |
//! |---|---|
//! | 0 to 7 | tag |
//! | 8 to 39 | home bucket, scaled to the number of buckets |
//! | 40 to 43 | the slot whose cache line the entry prefers |
//! | the top ones | shard |

use gabion_media::pmem::{Medium, POff};
use gabion_media::prefetch_line;
use std::sync::atomic::Ordering;

use super::layout::{
    BUCKET_BYTES, Bucket, BucketMeta, HEAD_BYTES, LINE_BYTES, SLOTS, SLOTS_OF_LINE, ShardPlace,
    Slot, line_of_slot,
};
use crate::tags;

/// Buckets that an entry may lie in, from its home on: the paper's probing scope.
pub(super) const SCOPE: u64 = 16;

/// The tag of a hash.
#[inline]
pub(super) fn tag_of(hash: u64) -> u8 {
    (hash & 0xff) as u8
}

/// The four bits of a hash that name the cache line which the entry prefers. Slots count, not
/// lines: the first line has room for half as many as the others.
#[inline]
fn preference(hash: u64) -> usize {
    (hash >> 40 & 0xf) as usize
}

/// The line of each preference, two bits each.
const LINES: u64 = {
    let (mut lines, mut preference) = (0, 0);
    while preference < 16 {
        lines |= line_of_slot((preference * SLOTS) >> 4) << (2 * preference);
        preference += 1;
    }
    lines
};

/// The slots in the line of each preference, as bits.
const SLOTS_OF_PREFERENCE: [u16; 16] = {
    let (mut slots, mut preference) = ([0; 16], 0);
    while preference < 16 {
        slots[preference] = SLOTS_OF_LINE[(LINES >> (2 * preference) & 3) as usize];
        preference += 1;
    }
    slots
};

/// The cache line of a bucket that an entry prefers.
#[inline]
pub(super) fn line_of(hash: u64) -> u64 {
    LINES >> (2 * preference(hash)) & 3
}

/// One of the free slots `free`, in the preferred cache line if there is one.
#[inline]
pub(super) fn choose_slot(free: u16, hash: u64) -> u32 {
    debug_assert!(free != 0, "one of no slots");
    let preferred = free & SLOTS_OF_PREFERENCE[preference(hash)];
    let free = if preferred == 0 { free } else { preferred };
    free.trailing_zeros()
}

/// The numbers of the buckets that an entry may lie in, in order.
#[derive(Clone, Debug)]
pub(super) struct ProbePath {
    next: u64,
    count: u64,
    rest: u64,
}

impl ProbePath {
    /// The path of `hash` through `place`.
    #[inline]
    pub(super) fn new(place: ShardPlace, hash: u64) -> ProbePath {
        ProbePath::from_bucket(place, home(place.count(), hash))
    }

    /// The path of hashes whose home is the bucket with number `index`.
    #[inline]
    pub(super) fn from_bucket(place: ShardPlace, index: u64) -> ProbePath {
        let count = place.count();
        ProbePath {
            next: index,
            count,
            rest: count.min(SCOPE),
        }
    }
}

/// The home bucket of a hash among `count` buckets.
#[inline]
pub(super) fn home(count: u64, hash: u64) -> u64 {
    ((hash >> 8 & 0xffff_ffff) * count) >> 32
}

impl Iterator for ProbePath {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.rest = self.rest.checked_sub(1)?;
        let index = self.next;
        self.next = if index + 1 == self.count {
            0
        } else {
            index + 1
        };
        Some(index)
    }
}

/// The bucket with number `index` at `place`, of which metadata and tags are read.
#[inline]
pub(super) fn bucket_at(medium: &Medium, place: ShardPlace, index: u64) -> &Bucket {
    let offset = place.offset() + index * BUCKET_BYTES;
    let bucket = medium.at(POff::new(offset));
    medium.touch_range(offset, HEAD_BYTES);
    bucket
}

/// The home bucket of `hash` at `place`, unless the shard is empty.
#[inline]
pub(super) fn home_at(medium: &Medium, place: ShardPlace, hash: u64) -> Option<&Bucket> {
    let count = place.count();
    (count != 0).then(|| bucket_at(medium, place, home(count, hash)))
}

/// Asks for the two cache lines of a home bucket that most operations on `hash` need.
#[inline]
pub(super) fn prefetch_lines(home: &Bucket, hash: u64) {
    let first: *const u8 = std::ptr::from_ref(home).cast();
    prefetch_line(first);
    let preferred = (line_of(hash) * LINE_BYTES % BUCKET_BYTES) as usize;
    prefetch_line(first.wrapping_add(preferred));
}

// ORDER: Acquire throughout: pairs with the releasing stores of `enter` and `erase`, and keeps the
// loads of a lookup in their order, metadata before tags and slots, those before metadata again.
impl Bucket {
    /// The metadata as it is now.
    #[inline]
    pub(super) fn meta(&self) -> BucketMeta {
        BucketMeta(self.meta.peek(Ordering::Acquire))
    }

    /// The slots, live or not, with this tag, as bits.
    #[inline]
    pub(super) fn matches(&self, tag: u8) -> u16 {
        let [low, high] = &self.tags;
        let words = [low.peek(Ordering::Acquire), high.peek(Ordering::Acquire)];
        tags::match_16(words, tag)
    }

    /// A slot that is read.
    #[inline]
    pub(super) fn read_slot(&self, medium: &Medium, slot: u32) -> &Slot {
        let slot = self.slot(slot);
        medium.touch(slot);
        slot
    }

    /// A slot.
    #[inline]
    pub(super) fn slot(&self, slot: u32) -> &Slot {
        // There are fourteen slots, and bits of metadata from a medium for sixteen.
        &self.slots[(slot as usize).min(SLOTS as usize - 1)]
    }
}

// ORDER: Acquire throughout: as for `Bucket`.
impl Slot {
    /// The key, or the word that stands for it.
    #[inline]
    pub(super) fn key(&self) -> u64 {
        self.key.peek(Ordering::Acquire)
    }

    /// The value, or the offset of the record.
    #[inline]
    pub(super) fn value(&self) -> u64 {
        self.value.peek(Ordering::Acquire)
    }
}

/// The positions of the set bits, from the low end.
#[inline]
pub(super) fn bits(bits: u16) -> impl Iterator<Item = u32> {
    let mut bits = u32::from(bits);
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        bit
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_within_its_scope_and_wraps() {
        let place = |count| ShardPlace::new(0, count, 0).expect("a place");
        let top = 0xffff_ffff_u64 << 8;
        let of = |count, hash| ProbePath::new(place(count), hash).collect::<Vec<_>>();
        assert_eq!(of(0, 5), []);
        assert_eq!(of(1, top), [0]);
        assert_eq!(of(3, top), [2, 0, 1]);
        assert_eq!(of(100, 0), (0..16).collect::<Vec<_>>());
        assert_eq!(of(20, top)[..2], [19, 0]);
        assert_eq!(of(20, top).len(), 16);
    }

    #[test]
    fn a_slot_in_the_preferred_line_is_chosen_if_there_is_one() {
        for hash in (0..16).map(|bits: u64| bits << 40) {
            let slot = choose_slot(0x3fff, hash);
            assert_eq!(line_of_slot(slot), line_of(hash));
            assert_eq!(choose_slot(1 << 13, hash), 13);
        }
    }

    #[test]
    fn bits_are_counted_from_the_low_end() {
        assert_eq!(bits(0b1000_0000_0000_0101).collect::<Vec<_>>(), [0, 2, 15]);
        assert_eq!(bits(0).count(), 0);
    }
}
