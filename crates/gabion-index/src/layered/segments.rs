//! CCEH as a base: a node for each segment, and its buffer in ways.
//!
//! # Positions
//! The position of a key is its hash. A segment has all hashes that begin with the same bits, so it
//! is a range of positions as a leaf is a range of keys, its split is that of a range, and nodes
//! follow segments by the same steps. Two keys may have one hash; they share all that depends on
//! the position, and no bound of a range lies between them.
//!
//! # Ways
//! A key lies in the bucket that the last bits of its hash name, or in one of the three behind. So
//! pairs that are to save lines of the medium must be near each other in these bits, and not in the
//! first ones: each way of a buffer is for eight buckets, two lines of the medium, and has room for
//! half of their pairs but one. It is merged by itself when it is full, so that a merge in place
//! writes two lines or three. Out of place the segment is written as a whole, so all ways are
//! merged when one is full. All ways of a node together are half of a segment, as in the paper, and
//! the node's lock is that of all. Small segments have two ways.
//!
//! A segment that splits keeps its number of buckets, so a key keeps its way.

use gabion_media::pmem::{BlockClaim, Medium, Pool, RoomRequest};

use super::base::Shape;
use super::{Base, Layered};
use crate::cceh::{Cceh, PAIRS, segment_bits};
use crate::line::LINE_BYTES;
use crate::spoton::buffer::ROOM;
use crate::{OrderedIndex, Result};

/// Binary logarithm of the buckets of a way, unless a segment is small.
const WAY_BITS: u32 = 3;

/// Binary logarithm of the number of ways for segments of so many buckets.
fn way_count_bits(segment_bits: u32) -> u32 {
    segment_bits.saturating_sub(WAY_BITS).max(1)
}

impl Base for Cceh<false> {
    const MAGIC: u64 = u64::from_le_bytes(*b"GbLayCc1");
    /// The word that names the directory, in a line of its own.
    const EMPTY_BYTES: u64 = LINE_BYTES;

    fn shape(entries: u64) -> Shape {
        let bits = segment_bits(entries);
        let ways = 1 << way_count_bits(bits);
        let slots = PAIRS << bits;
        Shape {
            ways,
            pairs: (slots / ways / 2).min(ROOM),
            // A segment is split when two fifths of it are full, or somewhat more.
            parts: entries.saturating_mul(5) / (2 * slots as u64),
        }
    }

    /// Zeros are a table without a directory, which gets one when it is found.
    fn place(_medium: &Medium, _at: u64) {}

    fn find(pool: &Pool, at: u64, seed: u64, entries: u64) -> Result<Self> {
        Cceh::at(pool, at, seed, entries)
    }

    fn planned_parts(entries: u64) -> Vec<RoomRequest> {
        Cceh::<false>::planned_parts(entries)
    }

    fn grow(&self, entries: u64) -> Result<()> {
        self.presplit(entries)
    }

    fn is_referenced(medium: &Medium, _at: u64, claim: BlockClaim) -> bool {
        claim.is_in_word(medium)
    }

    fn insert_all(&self, pairs: &[(u64, u64)]) -> Result<()> {
        Cceh::insert_all(self, pairs)
    }

    fn cached(self) -> Result<Self> {
        Ok(Cceh::cached(self))
    }

    fn dram_bytes(&self) -> u64 {
        Cceh::dram_bytes(self)
    }

    #[inline]
    fn position(&self, key: u64) -> u64 {
        self.hash(key)
    }

    #[inline]
    fn way(&self, position: u64) -> usize {
        let bits = self.segment_bits();
        let bucket = position & ((1 << bits) - 1);
        usize::try_from(bucket >> (bits - way_count_bits(bits))).unwrap_or(0)
    }

    fn next_part(&self, position: u64) -> Result<Option<u64>> {
        Ok(self.end_of_segment(position))
    }

    fn collect(
        &self,
        from: u64,
        _wanted: usize,
        found: &mut Vec<(u64, u64)>,
    ) -> Result<Option<u64>> {
        Ok(Cceh::collect(self, from, found))
    }

    fn order_of<const PAGE: usize>(_index: &Layered<Self, PAGE>) -> Option<&dyn OrderedIndex<u64>> {
        None
    }
}
