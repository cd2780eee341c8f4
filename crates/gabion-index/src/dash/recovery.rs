//! Creation and recovery of a table, and the check of its segments after that.
//!
//! Opening reads the directory. What else a crash may have left is mended segment by segment, by
//! the first writer that comes to one: an entry that was being moved is in two neighbours, and the
//! notes on the stash may tell of entries that are not there. Readers go on meanwhile: both entries
//! are equal, and a note too many only costs a look.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::pmem::{BlockClaim, Medium, POff, Pool, PoolOptions, Reachable};

use super::Dash;
use super::layout::{HEAD_BYTES, OverflowMeta, SegmentShape, bits, bucket_of, tag_of};
use crate::extendible::{Directory, Extendible, FirstHalf, Segment, find_segment, planned_parts};
use crate::index::{IndexPlan, root_of};
use crate::root::{ROOT_BYTES, create, expect_room, find, read};
use crate::{Error, Item, Result, Seed};

/// The magic of the root, and what kind of structure the pool is told that it holds.
const MAGIC: u64 = u64::from_le_bytes(*b"GbDash_1");

/// The hint of the record of an entry: its hash, with the lowest bit set, which only the tag has.
/// The hint of a segment or a directory is the offset of the word that refers to it, which is even.
pub(super) fn record_hint(hash: u64) -> u64 {
    hash | 1
}

/// What recovery of the pool asks: whether a table durably refers to a block.
fn is_referenced(medium: &Medium, claim: BlockClaim) -> bool {
    if claim.hint & 1 == 0 {
        return claim.is_in_word(medium);
    }
    let root = root_of(medium);
    let Ok([_, _, capacity, ..]) = read(medium, root, MAGIC) else {
        return false;
    };
    let word = POff::new(root + ROOT_BYTES);
    let Some(segment) = find_segment(medium, word, claim.hint) else {
        return false;
    };
    SegmentShape::planned(capacity)
        .path(claim.hint)
        .any(|number| {
            let at = bucket_of(segment, number);
            medium.try_at(at).is_some_and(|bucket| {
                medium.touch_range(at.raw(), HEAD_BYTES);
                let mut live = bits(bucket.meta().live());
                live.any(|slot| bucket.key(medium, slot) == claim.block.raw())
            })
        })
}

/// Which segments were looked through since the table was opened: a bit for each entry that the
/// directory had then.
#[derive(Debug)]
pub(super) struct RecoveredSegments {
    depth: u32,
    /// None if all are as they should be.
    bits: Box<[AtomicU64]>,
}

// ORDER: Relaxed throughout: the bits of a segment are read and set under its lock.
impl RecoveredSegments {
    /// Nothing is to be mended.
    fn all() -> RecoveredSegments {
        RecoveredSegments {
            depth: 1,
            bits: Box::default(),
        }
    }

    /// Every segment is.
    fn none(directory: Directory) -> RecoveredSegments {
        let words = directory.len().div_ceil(64);
        RecoveredSegments {
            depth: directory.bits(),
            bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn word(&self, number: u64) -> Option<&AtomicU64> {
        let index = usize::try_from(number / 64).ok()?;
        self.bits.get(index)
    }

    /// Whether the segment to which `hash` leads was looked through.
    #[inline]
    pub(super) fn has(&self, hash: u64) -> bool {
        let number = hash >> (64 - self.depth);
        let is_set = |word: &AtomicU64| word.load(Ordering::Relaxed) >> (number % 64) & 1 != 0;
        self.word(number).is_none_or(is_set)
    }

    /// The segment of `depth` bits to which `hash` leads was looked through.
    fn note(&self, hash: u64, depth: u32) {
        let count = 1_u64 << self.depth.saturating_sub(depth);
        let first = hash >> (64 - self.depth) & !(count - 1);
        for number in first..first + count {
            if let Some(word) = self.word(number) {
                word.fetch_or(1 << (number % 64), Ordering::Relaxed);
            }
        }
    }
}

impl<K: Item + ?Sized, const USABLE: u32> Dash<K, USABLE> {
    const KIND: u64 = if K::IS_WORD { 0 } else { 1 };

    /// See [`Dash::pool_options`].
    pub(super) fn options() -> PoolOptions {
        PoolOptions {
            layout: MAGIC,
            reachable: Reachable::ask_fn(is_referenced),
            ..PoolOptions::default()
        }
    }

    /// See [`Dash::create`].
    pub(super) fn make(pool: &Pool, plan: IndexPlan) -> Result<Self> {
        let shape = SegmentShape::planned(plan.capacity);
        let depth = shape.planned_depth(plan.capacity);
        expect_room(pool, ROOT_BYTES, planned_parts(depth, shape.bytes()))?;
        let seed = plan.seed.unwrap_or_else(Seed::random);
        let words = |_| vec![MAGIC, seed, plan.capacity, Self::KIND];
        let root = create(pool, ROOT_BYTES, words)?;
        let this = Self::with(pool, root, seed, plan.capacity, Some(0))?;
        let split = |segment, hash| this.split(segment, hash);
        this.segments.presplit(depth, split)?;
        Ok(this)
    }

    /// See [`Dash::open`].
    pub(super) fn find(pool: &Pool) -> Result<Self> {
        let (root, [_, seed, capacity, kind, ..]) = find(pool, MAGIC)?;
        if kind != Self::KIND {
            return Err(Error::OtherKind);
        }
        let mut this = Self::with(pool, root, seed, capacity, None)?;
        this.mended = RecoveredSegments::none(this.segments.directory());
        Ok(this)
    }

    fn with(
        pool: &Pool,
        root: u64,
        seed: u64,
        capacity: u64,
        entries: Option<u64>,
    ) -> Result<Self> {
        let shape = SegmentShape::planned(capacity);
        let word = POff::new(root + ROOT_BYTES);
        let first_half = FirstHalf::IsCleared;
        let this = Dash {
            medium: Medium::clone(pool),
            segments: Extendible::new(pool, word, shape.bytes(), first_half, entries),
            shape,
            seed: Seed::new(seed),
            mended: RecoveredSegments::all(),
            pool: pool.clone(),
            keys: PhantomData,
        };
        let empty = |_| this.empty_segment();
        this.segments.recover(empty, |split| {
            let segment = split.first;
            let moved = this.what_moves(segment, segment.depth() - 1)?;
            this.clear(segment, &moved.slots)
        })?;
        Ok(this)
    }

    /// Looks through a segment to which `hash` leads, under its lock, after a crash or not.
    #[cold]
    pub(super) fn mend(&self, segment: Segment, hash: u64) -> Result<()> {
        if self.mended.has(hash) {
            return Ok(());
        }
        for number in 0..self.shape.homes {
            self.drop_copies(segment, number);
        }
        self.note_overflow(segment)?;
        self.mended.note(hash, segment.depth());
        Ok(())
    }

    /// Drops the entries of the bucket behind a home that are at home as well: they were being
    /// moved from one to the other, either way.
    fn drop_copies(&self, segment: Segment, number: u64) {
        let home = self.bucket_at(segment, number);
        let behind = self.bucket_at(segment, self.shape.after(number));
        let mut copies = 0;
        for slot in bits(behind.meta().away()) {
            let (tag, key) = (behind.tag(slot), behind.key(&self.medium, slot));
            let meta = home.meta();
            let mut equals = bits(home.matches(tag) & meta.live() & !meta.away());
            if equals.any(|slot| home.key(&self.medium, slot) == key) {
                copies |= 1 << slot;
            }
        }
        if copies != 0 {
            // DURABLE: there is one of each entry, before one of them is changed.
            behind.publish(&self.medium, behind.meta().without(copies));
        }
    }

    /// Notes anew what of the homes of a segment is in its stash. Notes only become fewer, so that
    /// nothing is lost with what is not durable; and a reader finds all entries meanwhile, as the
    /// notes of each home change by one store.
    pub(super) fn note_overflow(&self, segment: Segment) -> Result<()> {
        let homes = usize::try_from(self.shape.homes).unwrap_or(0);
        let mut notes = vec![OverflowMeta::default(); homes];
        for stash in 0..self.shape.stashes {
            let bucket = self.bucket_at(segment, self.shape.homes + stash);
            for slot in bits(bucket.meta().live()) {
                let hash = self.hash_of(bucket.key(&self.medium, slot))?;
                let home = usize::try_from(self.shape.home(hash)).unwrap_or(0);
                notes[home] = notes[home].with(tag_of(hash), stash);
            }
        }
        for (number, note) in (0..).zip(notes) {
            let home = self.bucket_at(segment, number);
            if home.overflow() != note {
                home.set_overflow(&self.medium, note);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_looked_through_once_whatever_it_becomes() {
        let mended = RecoveredSegments::all();
        assert!(mended.has(0) && mended.has(u64::MAX));
        let words = (0..4).map(|_| AtomicU64::new(0)).collect();
        let mended = RecoveredSegments {
            depth: 8,
            bits: words,
        };
        let hash = 0x9a << 56 | 77;
        assert!(!mended.has(hash));
        // Sixteen entries of the directory lead to a segment of four bits.
        mended.note(hash, 4);
        assert!((0x90..0xa0).all(|number: u64| mended.has(number << 56)));
        assert!(!mended.has(0x8f << 56) && !mended.has(0xa0 << 56));
        mended.note(0xa5 << 56, 12);
        assert!(mended.has(0xa5 << 56) && !mended.has(0xa4 << 56));
    }
}
