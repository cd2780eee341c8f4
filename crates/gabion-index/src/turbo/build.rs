//! Building a shard anew: larger, smaller, or of the same size without its deleted slots.
//!
//! One rule serves growth, garbage collection and shrinking: the new array has the size that suits
//! the entries that live. The array is made in DRAM, written past the cache, and put in use by the
//! version of the shard's descriptor, the paper's way. Readers of the old array go on until the
//! mirror in DRAM tells them of the new one.

use std::sync::atomic::Ordering;

use gabion_media::pmem::Reserved;

use super::TurboHash;
use super::layout::{BUCKETS_MAX, Bucket, BucketMeta, ShardDescriptor, ShardPlace, USABLE_SLOTS};
use super::probe::{ProbePath, bits, bucket_at, choose_slot, tag_of};
use super::shard::{Counts, LockedShard};
use crate::{Error, Item, Result};

/// Percent of the usable slots that are taken after a build, give or take what rounding the number
/// of buckets changes: 28 bytes per entry, and from 27 to 30 where that is most.
const LOAD_AFTER_BUILD: u64 = 70;

/// A shard whose taken slots are fewer than this percent shrinks.
const LOAD_BEFORE_SHRINK: u64 = 20;

/// The outcome of an operation that asked for a build.
pub(super) type IsMoved = bool;

/// An array of buckets in DRAM, in the making.
struct Image {
    bytes: Vec<u8>,
    metas: Vec<BucketMeta>,
    place: ShardPlace,
}

impl Image {
    /// An array of `count` empty buckets.
    fn new(count: u64) -> Option<Image> {
        let place = ShardPlace::new(0, count, 0)?;
        let buckets = usize::try_from(count).ok()?;
        Some(Image {
            bytes: vec![0; usize::try_from(place.bytes()).ok()?],
            metas: vec![BucketMeta(0); buckets],
            place,
        })
    }

    /// Puts an entry into the first bucket of its path that is not full; false if all are.
    fn add(&mut self, hash: u64, word: u64, value: u64) -> bool {
        for index in ProbePath::new(self.place, hash) {
            #[expect(clippy::cast_possible_truncation, reason = "an index into the image")]
            let index = index as usize;
            let meta = self.metas[index];
            if meta.is_path_end() {
                let slot = choose_slot(meta.empty(), hash);
                self.metas[index] = meta.with_entry(slot, None);
                let bucket = &mut self.bytes[index * size_of::<Bucket>()..][..size_of::<Bucket>()];
                bucket[std::mem::offset_of!(Bucket, tags) + slot as usize] = tag_of(hash);
                let at = std::mem::offset_of!(Bucket, slots) + slot as usize * 16;
                bucket[at..at + 8].copy_from_slice(&word.to_le_bytes());
                bucket[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
                return true;
            }
        }
        false
    }

    /// Whether an entry with this hash can be added.
    fn has_room(&self, hash: u64) -> bool {
        #[expect(clippy::cast_possible_truncation, reason = "an index into the image")]
        ProbePath::new(self.place, hash).any(|index| self.metas[index as usize].is_path_end())
    }

    /// The array as it goes to the medium.
    fn finish(mut self) -> Vec<u8> {
        let buckets = self.bytes.chunks_exact_mut(size_of::<Bucket>());
        for (bucket, meta) in buckets.zip(&self.metas) {
            bucket[..8].copy_from_slice(&meta.0.to_le_bytes());
        }
        self.bytes
    }
}

/// Buckets that suit `live` entries. From sixteen on, the nearest number with four significant
/// bits, so that arrays come in few sizes, those of the allocator. Rounding up always would give
/// some tables an eighth more buckets than they need, more than 32 bytes per entry.
pub(super) fn suitable_count(live: u64) -> u64 {
    unlimited_count(live).min(BUCKETS_MAX)
}

fn unlimited_count(live: u64) -> u64 {
    // More than any shard has room for, and few enough to count with.
    let live = live.min(1 << 48);
    let (entries, of_bucket) = (live * 100, u64::from(USABLE_SLOTS) * LOAD_AFTER_BUILD);
    let count = entries.div_ceil(of_bucket);
    match 1 << count.checked_ilog2().unwrap_or(0).saturating_sub(3) {
        1 => count,
        step => (entries + of_bucket * step / 2) / (of_bucket * step) * step,
    }
}

/// Bytes of the array that a shard begins with, unless a table for `capacity` entries would have
/// shards that are too large.
pub(super) fn planned_bytes(capacity: u64, shard_bits: u32) -> Result<u64> {
    let count = unlimited_count(capacity >> shard_bits).max(1);
    let place = ShardPlace::new(0, count, 0).ok_or(Error::ShardLimit)?;
    Ok(place.bytes())
}

/// Buckets that a shard begins with in a table for `capacity` entries: what suits its share.
pub(super) fn planned_count(capacity: u64, shard_bits: u32) -> u64 {
    suitable_count(capacity >> shard_bits).max(1)
}

impl<K: Item + ?Sized, V: Item + ?Sized> TurboHash<K, V> {
    /// Counts the entries of a locked shard, once after an open.
    #[cold]
    pub(super) fn count(&self, shard: &mut LockedShard<'_>) {
        let place = shard.place();
        let mut counts = Counts::default();
        for index in 0..place.count() {
            let meta = bucket_at(&self.medium, place, index).meta();
            counts.live += u64::from(meta.live().count_ones());
            counts.deleted += u64::from((meta.valid() & meta.deleted()).count_ones());
        }
        shard.set_counts(counts);
    }

    /// Whether deleted slots are so many that a build of about the same size shortens paths.
    #[inline]
    pub(super) fn is_littered(&self, shard: &LockedShard<'_>) -> bool {
        let counts = shard.counts().unwrap_or_default();
        counts.deleted * 4 >= counts.live
    }

    /// Makes room for one more entry. False if the shard stays as it is, because the pool has no
    /// space and the entry fits all the same.
    #[cold]
    pub(super) fn build_for_insert(
        &self,
        shard: &mut LockedShard<'_>,
        hash: u64,
        is_full: bool,
    ) -> Result<IsMoved> {
        let counts = shard.counts().unwrap_or_default();
        let mut count = suitable_count(counts.live + 1);
        if shard.place().count() == 0 {
            count = count.max(self.first_count);
        }
        match self.build(shard, hash, count, Some(hash)) {
            Ok(()) => Ok(true),
            Err(_) if !is_full => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives space back after a delete that left few entries. What cannot be done now can later.
    #[inline]
    pub(super) fn shrink_after_delete(&self, shard: &mut LockedShard<'_>, hash: u64) {
        let count = shard.place().count();
        if count > self.first_count && self.collects_garbage {
            let live = shard.counts().unwrap_or_default().live;
            if live * 100 < count * u64::from(USABLE_SLOTS) * LOAD_BEFORE_SHRINK {
                self.shrink(shard, hash, live);
            }
        }
    }

    #[cold]
    fn shrink(&self, shard: &mut LockedShard<'_>, hash: u64, live: u64) {
        let count = suitable_count(live).max(self.first_count);
        if count < shard.place().count() {
            // A shard that stays large is as good as before.
            let _ = self.build(shard, hash, count, None);
        }
    }

    /// Builds a locked shard anew with `count` buckets, or more if the entries need them or one
    /// more, the `newcomer` with that hash, does: keys may crowd at a place of an array whose load
    /// is low.
    pub(super) fn build(
        &self,
        shard: &mut LockedShard<'_>,
        hash: u64,
        count: u64,
        newcomer: Option<u64>,
    ) -> Result<()> {
        let (image, count, live) = self.image(shard.place(), count, newcomer)?;
        if count == 0 {
            return self.switch(shard, hash, None);
        }
        let array = self.reserve_array(image.len() as u64, hash)?;
        let offset = array.offset::<Bucket>().raw();
        self.medium.write_past_cache(offset, &image);
        let counts = Counts { live, deleted: 0 };
        self.switch(shard, hash, Some((array, count, counts)))
    }

    /// The entries at `place` as an array of at least `count` buckets with room for a newcomer.
    fn image(
        &self,
        place: ShardPlace,
        mut count: u64,
        newcomer: Option<u64>,
    ) -> Result<(Vec<u8>, u64, u64)> {
        loop {
            let mut image = Image::new(count).ok_or(Error::ShardLimit)?;
            if let Some(live) = self.fill(&mut image, place)
                && newcomer.is_none_or(|hash| image.has_room(hash))
            {
                return Ok((image.finish(), count, live));
            }
            if count >= BUCKETS_MAX {
                return Err(Error::ShardLimit);
            }
            // An eighth more, and at least one.
            count = (count + count / 8 + 1).min(BUCKETS_MAX);
        }
    }

    /// Adds all entries at `place` to an image and counts them; none if they do not fit.
    fn fill(&self, image: &mut Image, place: ShardPlace) -> Option<u64> {
        let mut live = 0;
        for index in 0..place.count() {
            let bucket = bucket_at(&self.medium, place, index);
            for slot in bits(bucket.meta().live()) {
                let slot = bucket.read_slot(&self.medium, slot);
                let word = slot.key();
                if !image.add(K::hash_of_slot(word, &self.seed), word, slot.value()) {
                    return None;
                }
                live += 1;
            }
        }
        Some(live)
    }

    /// Puts another array in use, which was written but not fenced, or none; and retires the old
    /// one.
    pub(super) fn switch(
        &self,
        shard: &mut LockedShard<'_>,
        hash: u64,
        array: Option<(Reserved<'_>, u64, Counts)>,
    ) -> Result<()> {
        let old = shard.place();
        let version = old.version().wrapping_add(1);
        let (offset, count, counts) = match &array {
            Some((array, count, counts)) => (array.offset::<Bucket>().raw(), *count, *counts),
            None => (0, 0, Counts::default()),
        };
        let place = ShardPlace::new(offset, count, version).ok_or(Error::ShardLimit)?;
        let retiring = self.retire_array(old, hash)?;
        let descriptor = self.descriptor(self.shard_index(hash));
        let set = &descriptor.places[usize::from(version & 1)];
        // ORDER: Relaxed: the directory is read by recovery only.
        set.store(&self.medium, place.0, Ordering::Relaxed);
        // The place lies in the version's line. On x86-64 stores to one line reach the medium in
        // their order, so the place is there when the version is.
        if !cfg!(target_arch = "x86_64") {
            self.medium.flush(set);
        }
        // DURABLE: the array, and what the allocator noted of both arrays.
        self.medium.fence();
        // ORDER: Relaxed: as above.
        let version = u64::from(version);
        descriptor
            .version
            .store(&self.medium, version, Ordering::Relaxed);
        // DURABLE: the switch.
        self.medium.persist(&descriptor.version);
        shard.move_to(place, counts);
        if let Some((array, ..)) = array {
            array.commit::<Bucket>();
        }
        self.finish(retiring);
        Ok(())
    }

    pub(super) fn descriptor(&self, shard: u64) -> &ShardDescriptor {
        self.medium.at(self.directory.element(shard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_suit_the_entries() {
        assert_eq!(suitable_count(0), 0);
        assert_eq!(suitable_count(1), 1);
        for live in 1..20_000 {
            let count = suitable_count(live);
            let load = live * 100 / (count * 13);
            // Half a step is a sixteenth at most.
            assert!(load <= LOAD_AFTER_BUILD * 17 / 16, "{live} {count}");
            assert!(
                count <= 16 || load >= LOAD_AFTER_BUILD * 16 / 17 - 1,
                "{live} {count}"
            );
            assert!(count < 16 || count.trailing_zeros() >= count.ilog2() - 3);
        }
    }

    /// Bytes of a table of `entries` for which it was planned, by entry: arrays as the allocator
    /// cuts them from chunks of `chunk_bytes`, descriptors and mirrors.
    fn bytes_per_entry(entries: u64, chunk_bytes: u64, rounded: impl Fn(u64) -> u64) -> f64 {
        let options = super::super::Options {
            capacity: entries,
            ..Default::default()
        };
        let bits = options.shard_bits();
        let array = rounded(planned_count(entries, bits) * size_of::<Bucket>() as u64);
        let arrays_of_chunk = (chunk_bytes / array).max(1) as f64;
        let of_shard = (size_of::<ShardDescriptor>() + size_of::<super::super::Shard>()) as f64;
        let array = (chunk_bytes as f64 / arrays_of_chunk).max(array as f64);
        (array + of_shard) * f64::from(1 << bits) / entries as f64
    }

    /// With as many entries as it was planned for, a table has 32 bytes for each at most, whatever
    /// their number: a byte is left for what the allocator and the process need besides.
    #[test]
    fn an_entry_has_31_bytes_at_most_at_every_size() {
        let chunk_bytes = 1 << 20;
        let pool = gabion_media::pmem::Pool::anonymous(gabion_media::pmem::PoolOptions {
            chunk_bytes,
            ..TurboHash::<u64, u64>::pool_options()
        })
        .expect("memory");
        let sizes = (1_000_000..4_000_000).step_by(997);
        let sizes = sizes.chain((4_000_000..100_000_000).step_by(99_991));
        let bytes: Vec<f64> = sizes
            .map(|entries| bytes_per_entry(entries, chunk_bytes, |size| pool.rounded_size(size)))
            .collect();
        let worst = bytes.iter().copied().fold(0.0, f64::max);
        let mean = bytes.iter().sum::<f64>() / bytes.len() as f64;
        assert!(worst <= 31.0, "{worst} bytes");
        assert!(mean <= 29.0, "{mean} bytes");
    }
}
