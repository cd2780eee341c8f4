//! Splits of segments: what moves, and what the new segment looks like.
//!
//! The new segment has the entries that move in the slots that they had; only those of the stash
//! go home if there is room now. When the directory names it, durably, they are taken out of the
//! old one, and then the split is over.

use std::sync::atomic::Ordering;

use super::Dash;
use super::layout::{BUCKET_WORDS, Bucket, BucketMeta, OverflowMeta, SegmentShape, bits, tag_of};
use crate::extendible::{Segment, SplitHalves};
use crate::{Item, Result};

/// What a split moves.
pub(crate) struct SplitMoves {
    /// The slots of each bucket, as bits.
    pub(crate) slots: Vec<u16>,
    /// The bytes of the new segment.
    pub(crate) image: Vec<u8>,
}

/// A segment in the making, in DRAM.
struct Image {
    shape: SegmentShape,
    usable: u32,
    buckets: Vec<[u64; BUCKET_WORDS]>,
}

impl Image {
    fn new(shape: SegmentShape, usable: u32) -> Image {
        let buckets = (0..shape.buckets()).map(|_| [0; BUCKET_WORDS]).collect();
        Image {
            shape,
            usable,
            buckets,
        }
    }

    fn bucket(&mut self, number: u64) -> &mut [u64; BUCKET_WORDS] {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        &mut self.buckets[number]
    }

    /// Puts an entry into a slot.
    fn put(&mut self, number: u64, slot: u32, is_away: bool, tag: u8, pair: [u64; 2]) {
        let bucket = self.bucket(number);
        bucket[0] = BucketMeta(bucket[0]).with(slot, is_away).0;
        let slot = slot as usize;
        bucket[1 + slot / 8] |= u64::from(tag) << (8 * (slot % 8));
        bucket[4 + 2 * slot..6 + 2 * slot].copy_from_slice(&pair);
    }

    /// Puts an entry of the stash into one of its homes, or else into the slot of the stash where
    /// it was.
    fn put_home(&mut self, hash: u64, (number, slot): (u64, u32), pair: [u64; 2]) {
        let home = self.shape.home(hash);
        let tag = tag_of(hash);
        for (target, is_away) in [(home, false), (self.shape.after(home), true)] {
            let free = BucketMeta(self.bucket(target)[0]).free(self.usable);
            if free != 0 {
                return self.put(target, free.trailing_zeros(), is_away, tag, pair);
            }
        }
        let stash = number - self.shape.homes;
        let overflow = &mut self.bucket(home)[3];
        *overflow = OverflowMeta(*overflow).with(tag, stash).0;
        self.put(number, slot, false, tag, pair);
    }

    fn bytes(&self) -> Vec<u8> {
        let words = self.buckets.iter().flatten();
        words.flat_map(|word| word.to_le_bytes()).collect()
    }
}

impl<K: Item + ?Sized, const USABLE: u32> Dash<K, USABLE> {
    /// The bytes of a segment without entries.
    pub(super) fn empty_segment(&self) -> Vec<u8> {
        Image::new(self.shape, USABLE).bytes()
    }

    /// Splits the segment to which `hash` leads, whose lock is held.
    #[cold]
    pub(super) fn split(&self, segment: Segment, hash: u64) -> Result<()> {
        let moved = self.what_moves(segment, segment.depth())?;
        let SplitMoves { slots, image } = moved;
        let images = || {
            Ok(SplitHalves {
                first: None,
                second: image,
            })
        };
        self.segments
            .split(segment, hash, images, || self.clear(segment, &slots))
    }

    /// What moves when a segment of `depth` bits is split.
    pub(crate) fn what_moves(&self, segment: Segment, depth: u32) -> Result<SplitMoves> {
        let mut image = Image::new(self.shape, USABLE);
        let mut slots = Vec::new();
        let is_second = |hash: u64| hash >> (63 - depth) & 1 != 0;
        for number in 0..self.shape.buckets() {
            let bucket = self.bucket_at(segment, number);
            let meta = bucket.meta();
            let mut moved = 0;
            for slot in bits(meta.live()) {
                let pair = [bucket.key(&self.medium, slot), bucket.value(slot)];
                let hash = self.hash_of(pair[0])?;
                if !is_second(hash) {
                    continue;
                }
                moved |= 1 << slot;
                if number < self.shape.homes {
                    let is_away = meta.away() >> slot & 1 != 0;
                    image.put(number, slot, is_away, tag_of(hash), pair);
                } else {
                    image.put_home(hash, (number, slot), pair);
                }
            }
            slots.push(moved);
        }
        let image = image.bytes();
        Ok(SplitMoves { slots, image })
    }

    /// Takes what moved out of a segment.
    pub(crate) fn clear(&self, segment: Segment, slots: &[u16]) -> Result<()> {
        for (number, slots) in (0..).zip(slots) {
            if *slots != 0 {
                let bucket: &Bucket = self.bucket_at(segment, number);
                let meta = bucket.meta().without(*slots);
                // ORDER: Release pairs with the acquire of `meta`: who finds an entry gone finds
                // the new segment in the directory.
                bucket.meta.store(&self.medium, meta.0, Ordering::Release);
                self.medium.flush(&bucket.meta);
            }
        }
        let noted = self.note_overflow(segment);
        // DURABLE: what moved is gone here, before the split is over.
        self.medium.fence();
        noted
    }
}
