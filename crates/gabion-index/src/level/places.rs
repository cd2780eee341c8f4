//! The levels, and the places of a key in them.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, POff};

use super::LevelTable;
use crate::line::{Array, LINE_BYTES, Line, PairFlush};
use crate::lock::{Held, Stripes};

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
    pub(super) top: Array,
    pub(super) bottom: Array,
}

impl Levels {
    /// The number of the stripe of the group of a hash.
    #[inline]
    pub(super) fn stripe(&self, hash: u64) -> usize {
        Stripes::index(hash, self.bottom.bits())
    }
}

/// Bits of the top level of a table that is planned for so many entries.
pub(super) fn planned_bits(capacity: u64) -> u32 {
    // Both levels have one and a half times as many buckets as the top, of three slots each.
    let buckets = u128::from(capacity) * 200 / u128::from(9 * PLANNED_LOAD);
    let buckets = u64::try_from(buckets).unwrap_or(u64::MAX);
    let buckets = buckets.clamp(1 << TOP_BITS_MIN, 1 << Array::BITS_MAX);
    buckets.next_power_of_two().ilog2()
}

impl<const PADDING: u64> LevelTable<PADDING> {
    /// Bytes from one bucket to the next.
    pub(super) const STRIDE: u64 = {
        assert!(PADDING.is_multiple_of(8), "words are aligned");
        LINE_BYTES + PADDING
    };

    /// Bytes of a level of so many buckets, with the line behind them.
    pub(super) fn bytes_of_level(buckets: u64) -> u64 {
        buckets * Self::STRIDE + LINE_BYTES
    }

    /// Where the bucket with a number is, or what follows the last one.
    #[inline]
    pub(super) fn bucket(level: Array, number: u64) -> POff<Line> {
        POff::new(level.offset() + number * Self::STRIDE)
    }

    /// The word of a level that names the one below.
    pub(super) fn below(&self, level: Array) -> &PAtomicU64 {
        self.medium.at(Self::bucket(level, level.len()).cast())
    }

    /// How a new pair becomes durable in a bucket, which with padding may lie in two cache lines.
    #[inline]
    pub(super) fn pair_flush(&self, line: &Line, slot: usize) -> PairFlush {
        match PADDING {
            0 => PairFlush::WithToken,
            _ => line.pair_flush(&self.medium, slot),
        }
    }

    #[inline]
    pub(super) fn hashes(&self, key: u64) -> Hashes {
        Hashes::new(self.seed.hash_u64(key))
    }

    /// The top level in use.
    #[inline]
    pub(super) fn top(&self) -> Array {
        // ORDER: Acquire pairs with the release of `adopt`: the levels are read as they were built.
        Array(self.top.load(Ordering::Acquire))
    }

    /// The levels below and with `top`. If it is not in use any more, they mean nothing.
    #[inline]
    pub(super) fn levels(&self, top: Array) -> Levels {
        // ORDER: Acquire: before the loads of buckets.
        let below = Array(self.below(top).peek(Ordering::Acquire));
        // The bits are known, and what is reused memory may say others.
        let bottom = Array::new(below.offset(), top.bits() - 1);
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
    pub(super) fn place(&self, level: Array, hash: u64) -> Option<&Line> {
        let line = self.medium.try_at(Self::bucket(level, level.home(hash)))?;
        self.medium.touch(line);
        Some(line)
    }

    /// All places of a key in levels that stay: two in the top, two in the bottom.
    #[inline]
    pub(super) fn places(&self, levels: &Levels, hashes: Hashes) -> [&Line; PLACES] {
        let [first, second] = hashes.0;
        let Levels { top, bottom } = *levels;
        let place = |level: Array, hash| {
            let line = self.medium.at(Self::bucket(level, level.home(hash)));
            self.medium.touch(line);
            line
        };
        [
            place(top, first),
            place(top, second),
            place(bottom, first),
            place(bottom, second),
        ]
    }
}

/// The locks of both groups of a key.
pub(super) struct Groups<'a> {
    pub(super) first: Held<'a>,
    pub(super) second: Option<Held<'a>>,
    pub(super) stripes: [usize; 2],
}

impl Groups<'_> {
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
        let (top, bottom) = (Array::new(4096, 5), Array::new(64, 4));
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
        assert_eq!((planned_bits(0), planned_bits(8)), (2, 2));
        for capacity in [1000, 10_000_000] {
            let slots = (3_u64 << planned_bits(capacity)) * 3 / 2;
            assert!(slots * 8 / 10 >= capacity && slots * 4 / 10 < capacity);
        }
        assert_eq!(planned_bits(u64::MAX), Array::BITS_MAX);
    }
}
