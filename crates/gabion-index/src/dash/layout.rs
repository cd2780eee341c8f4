//! The layout of Dash on its medium. The directory is that of `extendible`.
//!
//! **Root**, as in `root.rs`; its words after the magic: the seed, the planned number of entries,
//! and the kind of keys, 0 for words and 1 for strings of bytes. Behind it the word of the
//! directory.
//!
//! **Segment**: 4 to 64 buckets, as `SegmentShape` says. The last one, or two, are the stash.
//!
//! **Bucket**, 256 bytes, aligned to 256:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | metadata: bits 0 to 13 live slots, 14 to 27 those whose home is the bucket before |
//! | 8 | 14 | tags, one byte per slot |
//! | 22 | 2 | zero |
//! | 24 | 8 | overflow, see below |
//! | 32 | 224 | 14 slots of 16 bytes: key and value |
//!
//! **Overflow** of a bucket, 8 bytes: what of its entries is in the stash. Bits 0 to 31 four tags,
//! bits 32 to 35 which of them count, bits 36 to 39 which stash bucket each is about, bits 40 to 55
//! the number of entries that found no room here.
//!
//! **Key** of a slot: the key, if keys are words; else the offset of a record.
//!
//! **Record**, a multiple of 8 bytes: 8 bytes length of the key, the key, zeros.

use std::sync::atomic::Ordering;

use gabion_media::media_struct;
use gabion_media::pmem::{Medium, PAtomicU64, POff};

use crate::extendible::Segment;
use crate::line::{LINE_BYTES, Pair};
use crate::tags;

/// Bytes of a bucket, and its alignment.
pub(super) const BUCKET_BYTES: u64 = 256;
/// Bytes of a bucket before its slots: metadata, tags and overflow.
pub(super) const HEAD_BYTES: u64 = 32;
/// Words of a bucket.
pub(super) const BUCKET_WORDS: usize = 32;
/// Slots of a bucket.
pub(super) const SLOTS: u32 = 14;
/// Bits of all slots.
const ALL_SLOTS: u64 = 0x3fff;

media_struct! {
    /// A bucket.
    pub(super) struct Bucket {
        pub(super) meta: PAtomicU64,
        tags: [PAtomicU64; 2],
        pub(super) overflow: PAtomicU64,
        pub(super) slots: [Pair; SLOTS as usize],
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Bucket>() as u64 == BUCKET_BYTES && size_of::<Bucket>() == BUCKET_WORDS * 8);
    assert!(offset_of!(Bucket, tags) == 8);
    assert!(offset_of!(Bucket, overflow) == 24);
    assert!(offset_of!(Bucket, slots) as u64 == HEAD_BYTES && size_of::<Pair>() == 16);
    // Metadata, tags and overflow lie in one line, the last byte of the last tag before overflow.
    assert!(offset_of!(Bucket, slots) as u64 <= LINE_BYTES);
    assert!(offset_of!(Bucket, tags) + SLOTS as usize <= offset_of!(Bucket, overflow));
    assert!(ALL_SLOTS.count_ones() == SLOTS && 2 * SLOTS <= 64);
};

/// A bucket's metadata: which slots hold entries, and which of these come from the bucket before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketMeta(pub(super) u64);

impl BucketMeta {
    /// Slots that hold entries, as bits.
    #[inline]
    pub(super) fn live(self) -> u16 {
        (self.0 & ALL_SLOTS) as u16
    }

    /// Slots that hold entries whose home is the bucket before, as bits.
    #[inline]
    pub(super) fn away(self) -> u16 {
        (self.0 >> SLOTS & ALL_SLOTS) as u16 & self.live()
    }

    /// Slots of the first `usable` that hold no entry, as bits.
    #[inline]
    pub(super) fn free(self, usable: u32) -> u16 {
        !self.live() & ((1 << usable) - 1)
    }

    /// Whether only slots of the first `usable` hold entries, and only entries are away.
    pub(super) fn is_sound(self, usable: u32) -> bool {
        let away = u64::from(self.away()) << SLOTS;
        self.live() >> usable == 0 && self.0 == u64::from(self.live()) | away
    }

    /// With an entry in a slot.
    #[inline]
    #[must_use]
    pub(super) fn with(self, slot: u32, is_away: bool) -> BucketMeta {
        let away = u64::from(is_away) << SLOTS;
        BucketMeta(self.without(1 << slot).0 | (1 | away) << slot)
    }

    /// Without the entries in some slots, as bits.
    #[inline]
    #[must_use]
    pub(super) fn without(self, slots: u16) -> BucketMeta {
        let slots = u64::from(slots);
        BucketMeta(self.0 & !(slots | slots << SLOTS))
    }
}

/// What a bucket knows of its entries in the stash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OverflowMeta(pub(super) u64);

impl OverflowMeta {
    const TAGS: u32 = 4;
    const TAKEN: u32 = 32;
    const STASH: u32 = 36;
    const COUNT: u32 = 40;
    const COUNT_MASK: u64 = 0xffff;

    fn tag(self, at: u32) -> u8 {
        (self.0 >> (8 * at) & 0xff) as u8
    }

    fn stash(self, at: u32) -> u64 {
        self.0 >> (Self::STASH + at) & 1
    }

    fn is_taken(self, at: u32) -> bool {
        self.0 >> (Self::TAKEN + at) & 1 != 0
    }

    /// Entries of which neither tag nor place is known.
    fn count(self) -> u64 {
        self.0 >> Self::COUNT & Self::COUNT_MASK
    }

    /// With one entry more, in a stash bucket.
    #[must_use]
    pub(super) fn with(self, tag: u8, stash: u64) -> OverflowMeta {
        match (0..Self::TAGS).find(|at| !self.is_taken(*at)) {
            Some(at) => {
                let others = self.0 & !(0xff << (8 * at) | 1 << (Self::STASH + at));
                let here = u64::from(tag) << (8 * at) | stash << (Self::STASH + at);
                OverflowMeta(others | here | 1 << (Self::TAKEN + at))
            }
            None => OverflowMeta(self.0 + (1 << Self::COUNT)),
        }
    }

    /// With one entry fewer; none if there is no such entry.
    pub(super) fn without(self, tag: u8, stash: u64) -> Option<OverflowMeta> {
        let is_it =
            |at: &u32| self.is_taken(*at) && self.tag(*at) == tag && self.stash(*at) == stash;
        match (0..Self::TAGS).find(is_it) {
            Some(at) => Some(OverflowMeta(self.0 & !(1 << (Self::TAKEN + at)))),
            None if self.count() > 0 => Some(OverflowMeta(self.0 - (1 << Self::COUNT))),
            None => None,
        }
    }

    /// Whether an entry with this tag may be in this stash bucket.
    #[inline]
    pub(super) fn may_hold(self, tag: u8, stash: u64) -> bool {
        let is_it = |at: u32| self.is_taken(at) && self.tag(at) == tag && self.stash(at) == stash;
        self.0 >> Self::TAKEN != 0 && (self.count() > 0 || (0..Self::TAGS).any(is_it))
    }
}

/// The buckets of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentShape {
    /// Buckets that are homes.
    pub(super) homes: u64,
    /// Buckets of the stash, behind them.
    pub(super) stashes: u64,
}

impl SegmentShape {
    /// Binary logarithms of the fewest and the most buckets: 1 KiB, and the paper's 16 KiB.
    const BITS_MIN: u32 = 2;
    const BITS_MAX: u32 = 6;

    /// The segments of a table that is planned for so many entries: it has eight at least, unless
    /// it is very small.
    pub(super) fn planned(capacity: u64) -> SegmentShape {
        let bits = (capacity / (8 * u64::from(SLOTS))).checked_ilog2();
        let buckets = 1 << bits.unwrap_or(0).clamp(Self::BITS_MIN, Self::BITS_MAX);
        let stashes = if buckets < 32 { 1 } else { 2 };
        SegmentShape {
            homes: buckets - stashes,
            stashes,
        }
    }

    /// The depth of all segments of a new table: four fifths of the slots of homes are filled when
    /// it is as full as it is planned to be, or fewer, which is before segments split.
    pub(super) fn planned_depth(self, capacity: u64) -> u32 {
        let entries = (self.homes * u64::from(SLOTS) * 4 / 5).max(1);
        let segments = capacity.div_ceil(entries).clamp(2, 1 << 28);
        segments.next_power_of_two().ilog2()
    }

    /// All buckets.
    pub(super) fn buckets(self) -> u64 {
        self.homes + self.stashes
    }

    /// Bytes of a segment.
    pub(super) fn bytes(self) -> u64 {
        self.buckets() * BUCKET_BYTES
    }

    /// The number of the home of a hash. The bits are others than the tag's, and than those of the
    /// directory while that has less than 2^24 entries.
    #[inline]
    pub(super) fn home(self, hash: u64) -> u64 {
        ((hash >> 8 & 0xffff_ffff) * self.homes) >> 32
    }

    /// The number of the home behind one, in a circle.
    #[inline]
    pub(super) fn after(self, home: u64) -> u64 {
        if home + 1 == self.homes { 0 } else { home + 1 }
    }

    /// The number of the home before one, in a circle.
    #[inline]
    pub(super) fn before(self, home: u64) -> u64 {
        if home == 0 { self.homes - 1 } else { home - 1 }
    }

    /// The numbers of all buckets in which an entry may lie: its home, the one behind, the stash.
    #[inline]
    pub(super) fn path(self, hash: u64) -> impl Iterator<Item = u64> {
        let home = self.home(hash);
        [home, self.after(home)]
            .into_iter()
            .chain(self.homes..self.buckets())
    }
}

/// The tag of a hash.
#[inline]
pub(super) fn tag_of(hash: u64) -> u8 {
    (hash & 0xff) as u8
}

/// Where the bucket of a segment with a number is.
#[inline]
pub(super) fn bucket_of(segment: Segment, number: u64) -> POff<Bucket> {
    POff::new(segment.offset() + number * BUCKET_BYTES)
}

/// The positions of the set bits, from the low end.
#[inline]
pub(super) fn bits(bits: u16) -> impl Iterator<Item = u32> {
    let mut rest = u32::from(bits);
    std::iter::from_fn(move || {
        let bit = (rest != 0).then(|| rest.trailing_zeros());
        rest &= rest.wrapping_sub(1);
        bit
    })
}

// ORDER: Acquire throughout: pairs with the releasing stores below, and keeps the loads of a lookup
// in their order: metadata, tags and slots, metadata again; the homes before the stash.
impl Bucket {
    #[inline]
    pub(super) fn meta(&self) -> BucketMeta {
        BucketMeta(self.meta.peek(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn overflow(&self) -> OverflowMeta {
        OverflowMeta(self.overflow.peek(Ordering::Acquire))
    }

    /// The slots, live or not, with this tag, as bits.
    #[inline]
    pub(super) fn matches(&self, tag: u8) -> u16 {
        let words = self
            .tags
            .each_ref()
            .map(|word| word.peek(Ordering::Acquire));
        tags::match_16(words, tag)
    }

    /// The tag of a slot.
    pub(super) fn tag(&self, slot: u32) -> u8 {
        let word = self.tags[(slot / 8) as usize].peek(Ordering::Acquire);
        (word >> (8 * (slot % 8)) & 0xff) as u8
    }

    /// The key of a slot, which is read.
    #[inline]
    pub(super) fn key(&self, medium: &Medium, slot: u32) -> u64 {
        let pair = self.slot(slot);
        medium.touch(pair);
        pair.key.peek(Ordering::Acquire)
    }

    /// The value of a slot whose key was read.
    #[inline]
    pub(super) fn value(&self, slot: u32) -> u64 {
        self.slot(slot).value.peek(Ordering::Acquire)
    }

    #[inline]
    fn slot(&self, slot: u32) -> &Pair {
        // Metadata has bits for fourteen slots.
        &self.slots[(slot as usize).min(SLOTS as usize - 1)]
    }
}

// ORDER: Release throughout: pairs with the acquiring loads above.
impl Bucket {
    /// Writes a slot that holds no entry, durably.
    #[inline]
    pub(super) fn fill(&self, medium: &Medium, slot: u32, tag: u8, key: u64, value: u64) {
        let pair = self.slot(slot);
        pair.value.store(medium, value, Ordering::Release);
        pair.key.store(medium, key, Ordering::Release);
        let word = &self.tags[(slot / 8) as usize];
        let shift = 8 * (slot % 8);
        // ORDER: Relaxed: only the holder of the lock writes.
        let others = word.peek(Ordering::Relaxed) & !(0xff << shift);
        word.store(medium, others | u64::from(tag) << shift, Ordering::Release);
        // The tag lies in the metadata's line. On x86-64 stores to one line reach the medium in
        // their order, so the tag is there when the metadata is.
        if !cfg!(target_arch = "x86_64") {
            medium.flush(word);
        }
        // DURABLE: the pair, before the metadata names its slot.
        medium.persist(pair);
    }

    /// Makes a change of the metadata visible and durable.
    #[inline]
    pub(super) fn publish(&self, medium: &Medium, meta: BucketMeta) {
        // DURABLE: what the metadata names, by the fence before; the change itself, by this.
        self.meta.store_persist(medium, meta.0, Ordering::Release);
    }

    /// Replaces the value of a slot, durably, and returns the value before.
    #[inline]
    pub(super) fn replace(&self, medium: &Medium, slot: u32, value: u64) -> u64 {
        let cell = &self.slot(slot).value;
        // ORDER: Relaxed: only the holder of the lock writes.
        let old = cell.peek(Ordering::Relaxed);
        // DURABLE: the new value, by this.
        cell.store_persist(medium, value, Ordering::Release);
        old
    }

    /// Stores what is known of entries in the stash.
    pub(super) fn set_overflow(&self, medium: &Medium, overflow: OverflowMeta) {
        self.overflow.store(medium, overflow.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_the_constants_are() {
        let rows = crate::suite::essay::table(include_str!("layout.rs"), "Bucket");
        let mut end = 0;
        for (offset, bytes) in rows {
            assert_eq!(offset, end);
            end = offset + bytes;
        }
        assert_eq!(end, BUCKET_BYTES);
    }

    #[test]
    fn metadata_follows_entries() {
        let meta = BucketMeta(0).with(3, false).with(13, true);
        assert_eq!((meta.live(), meta.away()), (1 << 3 | 1 << 13, 1 << 13));
        assert_eq!(meta.free(3), 0b111);
        assert_eq!(meta.free(14), 0x3fff & !(1 << 3 | 1 << 13));
        assert_eq!(meta.without(1 << 13), BucketMeta(0).with(3, false));
        assert_eq!(meta.without(1 << 13).with(13, false).away(), 0);
    }

    #[test]
    fn overflow_knows_four_entries_and_counts_the_others() {
        let mut overflow = OverflowMeta::default();
        for tag in 0..6 {
            assert!(!overflow.may_hold(tag, 0));
            overflow = overflow.with(tag, u64::from(tag & 1));
            if tag == 3 {
                assert!(overflow.may_hold(3, 1) && !overflow.may_hold(3, 0));
                assert!(!overflow.may_hold(9, 1));
            }
            if tag == 4 {
                break;
            }
        }
        // One was only counted, so any may be in any.
        assert!(overflow.may_hold(9, 0) && overflow.may_hold(9, 1));
        let overflow = overflow.without(4, 0).expect("counted");
        assert_eq!(overflow.without(4, 0), None);
        let overflow = [0, 1, 2, 3].into_iter().fold(overflow, |overflow, tag| {
            overflow.without(tag, u64::from(tag & 1)).expect("known")
        });
        assert!((0..=255).all(|tag| !overflow.may_hold(tag, 0) && !overflow.may_hold(tag, 1)));
    }

    #[test]
    fn segments_suit_the_plan() {
        let shape = |homes, stashes| SegmentShape { homes, stashes };
        assert_eq!([0, 8, 447].map(SegmentShape::planned), [shape(3, 1); 3]);
        assert_eq!(SegmentShape::planned(2000), shape(15, 1));
        assert_eq!(SegmentShape::planned(1 << 40), shape(62, 2));
        assert_eq!(shape(62, 2).bytes(), 16 << 10);
        for capacity in [10_000_u64, 1_000_000, 10_000_000] {
            let shape = SegmentShape::planned(capacity);
            let slots = (shape.homes * u64::from(SLOTS)) << shape.planned_depth(capacity);
            assert!((40..=80).contains(&(capacity * 100 / slots)), "{capacity}");
        }
        let shape = shape(62, 2);
        let last = u64::MAX;
        assert_eq!((shape.home(0), shape.home(last)), (0, 61));
        assert_eq!((shape.after(61), shape.before(0)), (0, 61));
        assert_eq!(shape.path(last).collect::<Vec<_>>(), [61, 0, 62, 63]);
    }
}
