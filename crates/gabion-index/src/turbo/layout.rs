//! What a TurboHash keeps on its medium.
//!
//! All numbers are little-endian, all offsets count bytes from the start of the pool.
//!
//! **Header**, 64 bytes at the pool's root:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | magic, `GbTurbo1` |
//! | 8 | 4 | kinds: bit 0, keys are strings of bytes; bit 1, values are |
//! | 12 | 4 | binary logarithm of the number of shards, 0 to 20 |
//! | 16 | 8 | seed of the hash function |
//! | 24 | 8 | entries that the table was planned for |
//! | 32 | 8 | offset of the directory, a multiple of 64 |
//! | 40 | 16 | zero |
//! | 56 | 8 | hash of the bytes before under the seed 0 |
//!
//! **Directory**, one descriptor of 32 bytes per shard:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | place of the buckets, if the version is even |
//! | 8 | 8 | place of the buckets, if the version is odd |
//! | 16 | 8 | version, 0 to 255 |
//! | 24 | 8 | zero |
//!
//! **Place**, 8 bytes: bits 0 to 21 the number of buckets, bits 22 to 55 the offset of the first
//! one in units of 256 bytes, bits 56 to 63 the version that it came with. A place without buckets
//! is an empty shard.
//!
//! **Bucket**, 256 bytes, aligned to 256:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | metadata: bits 0 to 13 valid, bits 16 to 29 deleted, bits 32 to 63 sequence number |
//! | 8 | 14 | tags, one byte per slot |
//! | 22 | 10 | zero |
//! | 32 | 224 | 14 slots of 16 bytes |
//!
//! **Slot**, 16 bytes: key and value, if both are words. Else the key or, if keys are strings, the
//! key's hash; and the offset of a record.
//!
//! **Record**, a multiple of 8 bytes: 4 bytes length of the key (0 if keys are words), 4 bytes
//! length of the value, the key, the value, zeros.

use std::mem::offset_of;

use gabion_media::media_struct;
use gabion_media::pmem::PAtomicU64;

/// `GbTurbo1`, as the first word of a header.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"GbTurbo1");

/// What kind of structure the pool is told that it holds.
pub(super) const LAYOUT: u64 = MAGIC;

/// Bit of the kinds: keys are strings of bytes.
pub(super) const KIND_BYTE_KEYS: u64 = 1;
/// Bit of the kinds: values are strings of bytes.
pub(super) const KIND_BYTE_VALUES: u64 = 2;

/// Most shards of a table, as a binary logarithm.
pub(super) const SHARD_BITS_MAX: u32 = 20;

/// Bytes of a bucket, and its alignment: what the paper's medium reads and writes at once.
pub(super) const BUCKET_BYTES: u64 = 256;
/// Bytes of a bucket before its slots: metadata and tags.
pub(super) const HEAD_BYTES: u64 = 32;
/// Slots of a bucket.
pub(super) const SLOTS: u32 = 14;
/// Slots of a bucket that may hold entries; one is kept for near-place updates.
pub(super) const USABLE_SLOTS: u32 = 13;
/// Bits of all slots.
pub(super) const ALL_SLOTS: u16 = 0x3fff;
/// The slots, as bits, that lie in each of a bucket's cache lines.
pub(super) const SLOTS_OF_LINE: [u16; 4] = [0x0003, 0x003c, 0x03c0, 0x3c00];

/// Bytes of a cache line.
pub(super) const LINE_BYTES: u64 = 64;

/// Most buckets of a shard.
pub(super) const BUCKETS_MAX: u64 = (1 << ShardPlace::COUNT_BITS) - 1;

/// Bytes of a record before its key.
pub(super) const RECORD_HEADER_BYTES: u64 = 8;

media_struct! {
    /// The header of a table.
    pub(super) struct Header {
        pub(super) magic: PAtomicU64,
        /// Kinds in the low half, the logarithm of the number of shards in the high one.
        pub(super) kinds: PAtomicU64,
        pub(super) seed: PAtomicU64,
        pub(super) capacity: PAtomicU64,
        pub(super) directory: PAtomicU64,
        pub(super) unused: [PAtomicU64; 2],
        pub(super) check: PAtomicU64,
    }

    /// What the directory says of a shard.
    pub(super) struct ShardDescriptor {
        pub(super) places: [PAtomicU64; 2],
        pub(super) version: PAtomicU64,
        pub(super) unused: PAtomicU64,
    }

    /// A bucket.
    pub(super) struct Bucket {
        pub(super) meta: PAtomicU64,
        pub(super) tags: [PAtomicU64; 2],
        pub(super) unused: PAtomicU64,
        pub(super) slots: [Slot; SLOTS as usize],
    }

    /// A slot of a bucket.
    pub(super) struct Slot {
        pub(super) key: PAtomicU64,
        pub(super) value: PAtomicU64,
    }
}

/// Where a shard's buckets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardPlace(pub(super) u64);

impl ShardPlace {
    const COUNT_BITS: u32 = 22;
    const OFFSET_BITS: u32 = 34;
    const VERSION_SHIFT: u32 = Self::COUNT_BITS + Self::OFFSET_BITS;

    /// The place of `count` buckets from `offset` on, or `None` if that cannot be told in 8 bytes:
    /// too many buckets, or an offset beyond 4 TiB or not aligned.
    pub(super) fn new(offset: u64, count: u64, version: u8) -> Option<ShardPlace> {
        let unit = offset / BUCKET_BYTES;
        let fits = offset.is_multiple_of(BUCKET_BYTES)
            && unit >> Self::OFFSET_BITS == 0
            && count >> Self::COUNT_BITS == 0;
        fits.then(|| {
            let version = u64::from(version) << Self::VERSION_SHIFT;
            ShardPlace(count | unit << Self::COUNT_BITS | version)
        })
    }

    /// Number of buckets.
    #[inline]
    pub(super) fn count(self) -> u64 {
        self.0 & ((1 << Self::COUNT_BITS) - 1)
    }

    /// Offset of the first bucket.
    #[inline]
    pub(super) fn offset(self) -> u64 {
        (self.0 >> Self::COUNT_BITS & ((1 << Self::OFFSET_BITS) - 1)) * BUCKET_BYTES
    }

    /// The version that the place came with.
    #[inline]
    pub(super) fn version(self) -> u8 {
        (self.0 >> Self::VERSION_SHIFT & 0xff) as u8
    }

    /// Bytes of all buckets.
    pub(super) fn bytes(self) -> u64 {
        self.count() * BUCKET_BYTES
    }
}

/// A bucket's metadata: which slots hold what, and how often that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketMeta(pub(super) u64);

impl BucketMeta {
    /// Slots that were given an entry, as bits.
    #[inline]
    pub(super) fn valid(self) -> u16 {
        (self.0 & 0xffff) as u16 & ALL_SLOTS
    }

    /// Slots whose entry was deleted, as bits.
    #[inline]
    pub(super) fn deleted(self) -> u16 {
        (self.0 >> 16 & 0xffff) as u16 & ALL_SLOTS
    }

    /// Slots that hold an entry, as bits.
    #[inline]
    pub(super) fn live(self) -> u16 {
        self.valid() & !self.deleted()
    }

    /// Slots that never held an entry or lost theirs by an update, as bits.
    #[inline]
    pub(super) fn empty(self) -> u16 {
        !self.valid() & ALL_SLOTS
    }

    /// Whether it says nothing of slots that there are not, leaves a slot for the next update, and
    /// no entry was deleted that never was.
    #[inline]
    pub(super) fn is_sound(self) -> bool {
        let all = u64::from(ALL_SLOTS);
        let is_of_slots = self.0 & 0xffff_ffff & !(all | all << 16) == 0;
        is_of_slots && self.empty() != 0 && self.deleted() & !self.valid() == 0
    }

    /// Whether no entry can lie behind this bucket on a path that leads through it.
    #[inline]
    pub(super) fn is_path_end(self) -> bool {
        // Two slots or more are empty: the lowest is not the only one.
        let empty = self.empty();
        empty & empty.wrapping_sub(1) != 0
    }

    /// The sequence number: changes of the bucket, modulo 2^32.
    pub(super) fn sequence(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// After `slot` was given an entry, which takes the place of that in `old`, if any.
    #[inline]
    #[must_use]
    pub(super) fn with_entry(self, slot: u32, old: Option<u32>) -> BucketMeta {
        let bit = 1_u16 << slot;
        let old = old.map_or(0, |slot| 1_u16 << slot);
        self.next((self.valid() | bit) & !old, self.deleted() & !bit & !old)
    }

    /// After the entry in `slot` was deleted.
    #[inline]
    #[must_use]
    pub(super) fn without_entry(self, slot: u32) -> BucketMeta {
        self.next(self.valid(), self.deleted() | 1 << slot)
    }

    #[inline]
    fn next(self, valid: u16, deleted: u16) -> BucketMeta {
        let sequence = u64::from(self.sequence().wrapping_add(1));
        BucketMeta(u64::from(valid) | u64::from(deleted) << 16 | sequence << 32)
    }
}

/// The cache line of its bucket in which a slot lies.
#[inline]
pub(super) const fn line_of_slot(slot: u32) -> u64 {
    (offset_of!(Bucket, slots) as u64 + slot as u64 * size_of::<Slot>() as u64) / LINE_BYTES
}

const _: () = {
    assert!(size_of::<Header>() == 64);
    assert!(offset_of!(Header, kinds) == 8);
    assert!(offset_of!(Header, seed) == 16);
    assert!(offset_of!(Header, capacity) == 24);
    assert!(offset_of!(Header, directory) == 32);
    assert!(offset_of!(Header, check) == 56);
    assert!(size_of::<ShardDescriptor>() == 32);
    assert!(offset_of!(ShardDescriptor, version) == 16);
    // A descriptor lies in one cache line.
    assert!(LINE_BYTES.is_multiple_of(size_of::<ShardDescriptor>() as u64));
    assert!(size_of::<Slot>() == 16);
    assert!(offset_of!(Slot, value) == 8);
    assert!(size_of::<Bucket>() as u64 == BUCKET_BYTES);
    assert!(offset_of!(Bucket, meta) == 0);
    assert!(offset_of!(Bucket, tags) == 8);
    assert!(offset_of!(Bucket, slots) as u64 == HEAD_BYTES);
    // Metadata and tags lie in one cache line, and the tags end before the slots begin.
    assert!(HEAD_BYTES <= LINE_BYTES);
    assert!(offset_of!(Bucket, tags) + SLOTS as usize <= offset_of!(Bucket, unused));
    assert!(ALL_SLOTS.count_ones() == SLOTS && USABLE_SLOTS == SLOTS - 1);
    assert!(ShardPlace::VERSION_SHIFT == 56);
    let mut slot = 0;
    while slot < SLOTS {
        assert!(SLOTS_OF_LINE[(line_of_slot(slot) & 3) as usize] & (1 << slot) != 0);
        slot += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> Vec<(u64, u64)> {
        crate::suite::essay::table(include_str!("layout.rs"), name)
    }

    #[test]
    fn the_tables_say_what_the_constants_are() {
        for (name, bytes) in [("Header", 64), ("Directory", 32), ("Bucket", BUCKET_BYTES)] {
            let rows = table(name);
            let mut end = 0;
            for (offset, size) in rows {
                assert_eq!(offset, end, "{name}");
                end = offset + size;
            }
            assert_eq!(end, bytes, "{name}");
        }
        let offsets = |name| -> Vec<u64> { table(name).into_iter().map(|(at, _)| at).collect() };
        let bucket = [
            offset_of!(Bucket, meta),
            offset_of!(Bucket, tags),
            offset_of!(Bucket, tags) + SLOTS as usize,
            offset_of!(Bucket, slots),
        ];
        assert_eq!(offsets("Bucket"), bucket.map(|at| at as u64));
        let header = [
            offset_of!(Header, magic),
            offset_of!(Header, kinds),
            offset_of!(Header, kinds) + 4,
            offset_of!(Header, seed),
            offset_of!(Header, capacity),
            offset_of!(Header, directory),
            offset_of!(Header, unused),
            offset_of!(Header, check),
        ];
        assert_eq!(offsets("Header"), header.map(|at| at as u64));
        let directory = [
            offset_of!(ShardDescriptor, places),
            offset_of!(ShardDescriptor, places) + 8,
            offset_of!(ShardDescriptor, version),
            offset_of!(ShardDescriptor, unused),
        ];
        assert_eq!(offsets("Directory"), directory.map(|at| at as u64));
    }

    #[test]
    fn a_place_gives_back_what_it_was_made_of() {
        let far = ((1 << 34) - 1) * BUCKET_BYTES;
        for (offset, count, version) in [(0, 0, 0), (256, 1, 1), (far, BUCKETS_MAX, 255)] {
            let place = ShardPlace::new(offset, count, version).expect("it fits");
            assert_eq!(
                (place.offset(), place.count(), place.version()),
                (offset, count, version)
            );
            assert_eq!(place.bytes(), count * 256);
        }
        assert_eq!(ShardPlace::new(far + 256, 1, 0), None);
        assert_eq!(ShardPlace::new(128, 1, 0), None);
        assert_eq!(ShardPlace::new(0, BUCKETS_MAX + 1, 0), None);
    }

    #[test]
    fn metadata_follows_the_life_of_slots() {
        let meta = BucketMeta(u64::from(u32::MAX) << 32);
        assert_eq!((meta.live(), meta.empty()), (0, ALL_SLOTS));
        let meta = meta.with_entry(3, None);
        assert_eq!((meta.live(), meta.sequence()), (1 << 3, 0));
        let meta = meta.with_entry(5, Some(3));
        assert_eq!((meta.live(), meta.valid()), (1 << 5, 1 << 5));
        let meta = meta.without_entry(5);
        assert_eq!(
            (meta.live(), meta.valid(), meta.deleted()),
            (0, 1 << 5, 1 << 5)
        );
        let meta = meta.with_entry(5, None);
        assert_eq!(
            (meta.live(), meta.deleted(), meta.sequence()),
            (1 << 5, 0, 3)
        );
    }

    #[test]
    fn a_path_ends_where_two_slots_are_empty() {
        let mut meta = BucketMeta(0);
        for slot in 0..USABLE_SLOTS {
            assert!(meta.is_path_end());
            meta = meta.with_entry(slot, None);
        }
        assert!(!meta.is_path_end());
        assert!(!meta.without_entry(4).is_path_end());
        assert_eq!(meta.empty(), 1 << 13);
    }
}
