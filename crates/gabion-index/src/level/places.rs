//! The levels, and the places of a key in them.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, POff};

use super::LevelTable;
use super::form::Form;
use crate::bucket::{Bucket, PairFlush};
use crate::line::{LINE_BYTES, LineArray};
use crate::lock::{StripeGuard, Stripes};

/// What offsets of levels are multiples of.
pub(super) const LEVEL_ALIGN: u64 = 256;

/// Bits of the top level, at least: so that the bottom has two buckets.
pub(super) const TOP_BITS_MIN: u32 = 2;

/// Places of a key.
pub(super) const PLACES: usize = 4;

/// Percent of the slots that a table is planned to fill: it holds some more.
const PLANNED_LOAD: u64 = 80;

/// The two hashes of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashes(pub(super) [u64; 2]);

impl Hashes {
    #[inline]
    pub(super) fn new(hash: u64) -> Hashes {
        Hashes([hash, hash.rotate_left(32)])
    }
}

/// The two levels of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    pub(super) top: LineArray,
    pub(super) bottom: LineArray,
}

impl Levels {
    /// The level of a place with a number: 0 is the top.
    #[inline]
    pub(super) fn of(place: usize) -> usize {
        place / 2
    }

    /// The number of the stripe of the group of a hash.
    #[inline]
    pub(super) fn stripe(&self, hash: u64) -> usize {
        Stripes::index(hash, self.bottom.bits())
    }
}

/// Bits of the top level of a table that is planned for so many entries, with so many slots in a
/// bucket.
pub(super) fn planned_bits(capacity: u64, slots: usize) -> u32 {
    // Both levels have one and a half times as many buckets as the top.
    let buckets = u128::from(capacity) * 200 / u128::from(3 * slots as u64 * PLANNED_LOAD);
    let buckets = u64::try_from(buckets).unwrap_or(u64::MAX);
    let buckets = buckets.clamp(1 << TOP_BITS_MIN, 1 << LineArray::BITS_MAX);
    buckets.next_power_of_two().ilog2()
}

impl<F: Form> LevelTable<F> {
    /// Bytes from one bucket to the next.
    pub(super) const STRIDE: u64 = {
        assert!(F::PADDING.is_multiple_of(8), "words are aligned");
        F::Bucket::BYTES + F::PADDING
    };

    /// Bits of the top level that was planned.
    pub(super) fn planned_bits(&self) -> u32 {
        planned_bits(self.facts.capacity, F::Bucket::SLOTS)
    }

    /// Slots of both levels.
    pub fn slots(&self) -> u64 {
        self.top().len() * 3 / 2 * F::Bucket::SLOTS as u64
    }

    /// Bytes of a level of so many buckets, with the line behind them.
    pub(super) fn bytes_of_level(buckets: u64) -> u64 {
        buckets * Self::STRIDE + LINE_BYTES
    }

    /// Where the bucket with a number is, or what follows the last one.
    #[inline]
    pub(super) fn bucket(level: LineArray, number: u64) -> POff<F::Bucket> {
        POff::new(level.offset() + number * Self::STRIDE)
    }

    /// The word of a level that names the one below.
    pub(super) fn below(&self, level: LineArray) -> &PAtomicU64 {
        self.medium.at(Self::bucket(level, level.len()).cast())
    }

    /// How a new pair becomes durable in a bucket, which with padding may lie in two cache lines.
    #[inline]
    pub(super) fn pair_flush(&self, line: &F::Bucket, slot: usize) -> PairFlush {
        match F::PADDING {
            0 => F::Bucket::flush_of(slot),
            _ => line.pair_flush(&self.medium, slot),
        }
    }

    #[inline]
    pub(super) fn hashes(&self, key: u64) -> Hashes {
        Hashes::new(self.seed.hash_u64(key))
    }

    /// The top level in use.
    #[inline]
    pub(super) fn top(&self) -> LineArray {
        // ORDER: Acquire pairs with the release of `adopt`: the levels are read as they were built.
        LineArray(self.top.load(Ordering::Acquire))
    }

    /// The levels below and with `top`. If it is not in use any more, they mean nothing.
    #[inline]
    pub(super) fn levels(&self, top: LineArray) -> Levels {
        // ORDER: Acquire: before the loads of buckets.
        let below = LineArray(self.below(top).peek(Ordering::Acquire));
        // The bits are known, and what is reused memory may say others.
        let bottom = LineArray::new(below.offset(), top.bits() - 1);
        Levels { top, bottom }
    }

    /// Asks for the lines of all places of a key.
    #[inline]
    pub(super) fn prefetch_places(&self, levels: &Levels, hashes: Hashes) {
        for level in [levels.top, levels.bottom] {
            for hash in hashes.0 {
                let bucket = Self::bucket(level, level.home(hash));
                self.medium.prefetch(bucket.raw());
            }
        }
    }

    /// The place of a key in a level by one of its hashes. None if the level is not there, because
    /// it is not in use any more.
    #[inline]
    pub(super) fn place(&self, level: LineArray, hash: u64) -> Option<&F::Bucket> {
        self.medium.try_at(Self::bucket(level, level.home(hash)))
    }

    /// All places of a key in levels that stay, whose free slots are looked for.
    #[inline]
    pub(super) fn places(&self, levels: &Levels, hashes: Hashes) -> [&F::Bucket; PLACES] {
        std::array::from_fn(|number| self.place_at(levels, hashes, number, None))
    }

    /// One of these places: by the first or the second hash, first in the top, then in the bottom.
    /// A watcher is told what a search for `key` reads.
    #[inline]
    pub(super) fn place_at(
        &self,
        levels: &Levels,
        hashes: Hashes,
        number: usize,
        key: Option<u64>,
    ) -> &F::Bucket {
        let level = match Levels::of(number) {
            0 => levels.top,
            _ => levels.bottom,
        };
        let bucket = self
            .medium
            .at(Self::bucket(level, level.home(hashes.0[number % 2])));
        bucket.touch(&self.medium, key);
        bucket
    }
}

/// The locks of both groups of a key.
pub(super) struct GroupLocks<'a> {
    pub(super) first: StripeGuard<'a>,
    pub(super) second: Option<StripeGuard<'a>>,
    pub(super) stripes: [usize; 2],
}

impl GroupLocks<'_> {
    /// Makes readers of both groups read again.
    pub(super) fn step(&mut self) {
        self.first.step();
        if let Some(second) = &mut self.second {
            second.step();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_two_neighbours_and_the_one_below() {
        let (top, bottom) = (LineArray::new(4096, 5), LineArray::new(64, 4));
        for hash in (0..64_u64).map(|number| number << 58) {
            assert_eq!(top.home(hash) / 2, bottom.home(hash));
        }
        let Hashes([first, second]) = Hashes::new(0x0123_4567_89ab_cdef);
        assert_eq!(
            (first, second),
            (0x0123_4567_89ab_cdef, 0x89ab_cdef_0123_4567)
        );
    }

    #[test]
    fn a_table_is_planned_with_room_to_spare() {
        for of_bucket in [3, 4] {
            let bits = |capacity| planned_bits(capacity, of_bucket);
            assert_eq!((bits(0), bits(8)), (2, 2));
            for capacity in [1000, 10_000_000] {
                let slots = ((of_bucket as u64) << bits(capacity)) * 3 / 2;
                assert!(slots * 8 / 10 >= capacity && slots * 4 / 10 < capacity);
            }
            assert_eq!(bits(u64::MAX), LineArray::BITS_MAX);
        }
    }
}
