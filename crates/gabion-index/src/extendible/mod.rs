//! Extendible hashing: the directory and the splits of tables that consist of segments.
//!
//! A directory of words leads from the first bits of a hash to a *segment*, a table of its own with
//! a fixed number of buckets. A segment that is full is split by one more bit, and the directory is
//! doubled when a segment has as many bits as it. What a segment looks like within is the table's.
//!
//! | word | bits 0 to 47 | bits 48 to 53 |
//! |---|---|---|
//! | of the root | offset of the directory | global depth |
//! | entry of the directory | offset of the segment | its local depth |
//!
//! # Rules
//! - The 2^(G-L) entries of the directory, which has G bits, for a segment of L bits are equal,
//!   except while it is split (`split.rs`) or replaced (`renew.rs`).
//! - A segment, and the entries that name it, change under the lock of its first stripe, and the
//!   directory as a whole under `growth`. Readers take no lock; they look at the stripe's word and
//!   at the entry of the directory before and after.
//! - Segments stay where they are, unless splits copy both halves, or a new segment takes the place
//!   of one (`renew.rs`).
//!
//! Source: R. Fagin and others, "Extendible hashing", ACM TODS 4(3), 1979.

mod mirror;
mod recovery;
mod renew;
mod split;
#[cfg(test)]
pub(crate) mod uneven;

use std::collections::HashSet;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::pmem::{Medium, PAtomicU64, POff, Pool, RoomRequest};
use parking_lot::Mutex;

use crate::index::CheckSummary;
use crate::line::{LINE_BYTES, LineArray};
use crate::lock::{Stripe, StripeChange, StripeGuard, Stripes};
use crate::{Error, Result, root};
use mirror::DirectoryMirror;

/// Alignment of segments: what the papers' medium reads and writes at once.
const SEGMENT_ALIGN: u64 = 256;

/// The blocks of a new table whose segments, of so many bytes each, all have one depth: with the
/// directories on the way there, and the copies that are made of one segment.
pub(crate) fn planned_parts(depth: u32, segment_bytes: u64) -> Vec<RoomRequest> {
    let segments = RoomRequest {
        bytes: segment_bytes,
        align: SEGMENT_ALIGN,
        count: (1 << depth) + if depth > 1 { 2 } else { 0 },
    };
    let directories = (1..=depth).map(|depth| root::part(Directory::bytes(depth), LINE_BYTES));
    directories.chain([segments]).collect()
}

/// Most bits of a segment: hashes that share so many are the work of somebody who knows the seed.
pub(crate) const DEPTH_MAX: u32 = 40;

/// The directory: an array in the order of the first bits of hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directory(pub(crate) LineArray);

impl Deref for Directory {
    type Target = LineArray;

    #[inline]
    fn deref(&self) -> &LineArray {
        &self.0
    }
}

impl Directory {
    fn new(offset: u64, depth: u32) -> Directory {
        Directory(LineArray::new(offset, depth))
    }

    /// Bytes of a directory with so many bits.
    fn bytes(depth: u32) -> u64 {
        size_of::<PAtomicU64>() as u64 * (1 << depth)
    }

    /// Where the entry with a number is.
    #[inline]
    pub(crate) fn entry(&self, number: u64) -> POff<PAtomicU64> {
        POff::new(self.offset() + number * size_of::<PAtomicU64>() as u64)
    }

    /// Whether some entries lie in one cache line whose stores reach the medium in their order.
    fn is_one_line(&self, entries: &Range<u64>) -> bool {
        let line = |number| self.entry(number).raw() / LINE_BYTES;
        cfg!(target_arch = "x86_64") && line(entries.start) == line(entries.end - 1)
    }

    /// The numbers of the entries for the segment of `depth` bits to which `hash` leads.
    pub(crate) fn entries_for(&self, hash: u64, depth: u32) -> Range<u64> {
        let count = 1 << (self.bits() - depth);
        let first = self.home(hash) & !(count - 1);
        first..first + count
    }
}

/// An entry of the directory: a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment(LineArray);

impl Segment {
    pub(crate) fn new(offset: u64, depth: u32) -> Segment {
        Segment(LineArray::new(offset, depth))
    }

    /// Where it is.
    #[inline]
    pub(crate) fn offset(self) -> u64 {
        self.0.offset()
    }

    /// Its local depth, 1 at least, whatever the word says.
    #[inline]
    pub(crate) fn depth(self) -> u32 {
        self.0.bits().max(1)
    }

    /// Whether `hash`, like `of`, which leads here, begins with the bits of the segment.
    #[inline]
    pub(crate) fn owns(self, of: u64, hash: u64) -> bool {
        (of ^ hash) >> (64 - self.depth()) == 0
    }

    /// Whether `hash`, which the segment owns, belongs to its second half.
    #[inline]
    pub(crate) fn is_second(self, hash: u64) -> bool {
        hash >> (63 - self.depth()) & 1 != 0
    }
}

/// What a split makes of the segment that is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstHalf {
    /// It is the first half, and what moved is left in it.
    Stays,
    /// It is the first half, and what moved is taken out of it before the split is over.
    IsCleared,
    /// Both halves may be new. Then segments may be replaced as a whole, too.
    MayBeCopied,
}

/// The bytes of the halves of a segment.
pub(crate) struct SplitHalves {
    /// None if the first half stays where it is.
    pub(crate) first: Option<Vec<u8>>,
    pub(crate) second: Vec<u8>,
}

/// A split under way: the entries of the directory that change, and to what.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    directory: Directory,
    entries: Range<u64>,
    /// The segment of the first half.
    pub(crate) first: Segment,
    second: Segment,
}

/// The segments of a table, and their locks.
pub(crate) struct Extendible {
    medium: Medium,
    stripes: Stripes,
    /// The word of the root that names the directory.
    word: POff<PAtomicU64>,
    /// The directory in use.
    directory: AtomicU64,
    /// The entries of directories in DRAM, if they are wanted there.
    mirror: Option<DirectoryMirror>,
    segment_bytes: u64,
    first_half: FirstHalf,
    /// Held by who changes the directory.
    growth: Mutex<()>,
    pool: Pool,
}

impl Extendible {
    /// Segments whose directory the word at `word` names; `entries` if their number is known. Not
    /// to be used before [`Extendible::recover`].
    pub(crate) fn new(
        pool: &Pool,
        word: POff<PAtomicU64>,
        segment_bytes: u64,
        first_half: FirstHalf,
        entries: Option<u64>,
    ) -> Extendible {
        Extendible {
            medium: Medium::clone(pool),
            stripes: Stripes::new(entries),
            word,
            directory: AtomicU64::new(0),
            mirror: None,
            segment_bytes,
            first_half,
            growth: Mutex::default(),
            pool: pool.clone(),
        }
    }

    /// Keeps the entries of the directory in DRAM from now on. Whoever calls has the only handle,
    /// after [`Extendible::recover`].
    pub(crate) fn keep_in_dram(&mut self) {
        let mirror = DirectoryMirror::new();
        let directory = self.directory();
        let entries = (0..directory.len()).map(|number| self.entry(directory, number));
        mirror.add(directory, entries);
        self.mirror = Some(mirror);
    }

    /// Bytes of DRAM of the entries of directories.
    pub(crate) fn dram_bytes(&self) -> u64 {
        self.mirror.as_ref().map_or(0, DirectoryMirror::bytes)
    }

    /// The number of entries; see [`Stripes::entries`].
    pub(crate) fn entries(&self, count: impl FnOnce() -> Result<u64>) -> Result<u64> {
        self.stripes.entries(count)
    }

    /// The directory in use.
    #[inline]
    pub(crate) fn directory(&self) -> Directory {
        // ORDER: Acquire pairs with the release of `adopt`: it is read as it was written.
        Directory(LineArray(self.directory.load(Ordering::Acquire)))
    }

    /// Uses a directory.
    fn adopt(&self, directory: Directory) {
        // ORDER: Release pairs with the acquire of `directory`.
        self.directory.store(directory.0.0, Ordering::Release);
    }

    /// The segment to which a hash leads. If the directory is given up meanwhile, and its space
    /// used, this may be anything.
    #[inline]
    pub(crate) fn segment(&self, hash: u64) -> Segment {
        let directory = self.directory();
        let number = directory.home(hash);
        let mirror = self.mirror.as_ref();
        mirror
            .and_then(|mirror| mirror.get(directory, number))
            .unwrap_or_else(|| self.entry(directory, number))
    }

    /// An entry of a directory in the pool.
    #[inline]
    fn entry(&self, directory: Directory, number: u64) -> Segment {
        let entry = self.medium.at(directory.entry(number));
        // ORDER: Acquire pairs with the release of `name`: the segment is there.
        Segment(LineArray(entry.load(&self.medium, Ordering::Acquire)))
    }

    /// The stripe that guards a segment to which `hash` leads.
    #[inline]
    fn stripe(&self, hash: u64, segment: Segment) -> &Stripe {
        self.stripes.at(Stripes::index(hash, segment.depth()))
    }

    /// Takes the lock of the segment to which `hash` leads, which stays as it is while it is held.
    /// `prefetch` asks for what will be read of it.
    #[inline]
    pub(crate) fn lock(&self, hash: u64, prefetch: impl Fn(Segment)) -> (Segment, StripeGuard<'_>) {
        loop {
            let segment = self.segment(hash);
            prefetch(segment);
            let held = self.stripe(hash, segment).lock();
            if self.segment(hash) == segment {
                return (segment, held);
            }
        }
    }

    /// What `search` finds in the segment to which `hash` leads, at one moment. It may be called
    /// with something that is no segment any more: then what it returns means nothing. If a writer
    /// was at work, `settle` makes durable what it may have seen.
    #[inline]
    pub(crate) fn read<T>(
        &self,
        hash: u64,
        search: impl Fn(Segment) -> T,
        settle: impl Fn(Segment),
    ) -> T {
        loop {
            let segment = self.segment(hash);
            let stripe = self.stripe(hash, segment);
            let seen = stripe.look();
            let found = search(segment);
            // Entries of the directory change under the lock; so this was the segment if it still
            // is, and the stripe was not taken and released.
            match stripe.since(seen) {
                StripeChange::Quiet if self.segment(hash) == segment => return found,
                StripeChange::Busy if self.segment(hash) == segment => {
                    settle(segment);
                    return found;
                }
                _ => {}
            }
        }
    }

    /// Checks that each segment is there once and all entries of the directory for it name it,
    /// while nobody writes; `check` looks at the segment itself first and says how many entries
    /// it has. Returns what the table consists of, with its root.
    pub(crate) fn check(
        &self,
        mut check: impl FnMut(Segment, u64) -> Result<u64>,
    ) -> Result<CheckSummary> {
        let mut checked = CheckSummary {
            entries: 0,
            blocks: 2,
        };
        let mut seen = HashSet::new();
        self.for_each_segment(|segment, from| {
            checked.entries += check(segment, from)?;
            checked.blocks += 1;
            if !seen.insert(segment.offset()) {
                return Err(Error::damaged("a duplicate segment", segment.offset()));
            }
            let directory = self.directory();
            for number in directory.entries_for(from, segment.depth()) {
                let followed = self.segment(number << (64 - directory.bits()));
                if followed != segment || self.entry(directory, number) != segment {
                    let what = "the entries of the directory for a segment";
                    return Err(Error::damaged(what, segment.offset()));
                }
            }
            Ok(())
        })?;
        Ok(checked)
    }

    /// Visits the segments, each with its least hash, while nobody splits one.
    ///
    /// # Errors
    /// What a visit says, or an entry of the directory that names no segment.
    pub(crate) fn for_each_segment(
        &self,
        mut visit: impl FnMut(Segment, u64) -> Result<()>,
    ) -> Result<()> {
        let mut hash = Some(0);
        while let Some(from) = hash {
            let (directory, segment) = (self.directory(), self.segment(from));
            if !self.is_segment_of(directory, segment) {
                return Err(self.damaged(directory.entry(directory.home(from)).raw()));
            }
            visit(segment, from)?;
            hash = segment_end(segment, from);
        }
        Ok(())
    }
}

/// The segment to which a hash leads by the directory that the word at `word` names, for recovery,
/// when there is no table yet.
pub(crate) fn find_segment(medium: &Medium, word: POff<PAtomicU64>, hash: u64) -> Option<Segment> {
    // ORDER: Relaxed: for recovery, when nobody writes.
    let load = |word: &PAtomicU64| LineArray(word.load(medium, Ordering::Relaxed));
    let directory = Directory(load(medium.try_at(word)?));
    if !(1..=DEPTH_MAX).contains(&directory.bits()) {
        return None;
    }
    let entry = medium.try_at(directory.entry(directory.home(hash)))?;
    Some(Segment(load(entry)))
}

/// The first hash behind those of a segment to which `hash` leads, if there is one.
pub(crate) fn segment_end(segment: Segment, hash: u64) -> Option<u64> {
    let width = 64 - segment.depth();
    (hash >> width << width).checked_add(1 << width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_knows_the_entries_of_a_segment() {
        let directory = Directory::new(4096, 4);
        let hash = 0b1011 << 60;
        assert_eq!(directory.home(hash), 11);
        assert_eq!(directory.entries_for(hash, 4), 11..12);
        assert_eq!(directory.entries_for(hash, 2), 8..12);
        assert_eq!(directory.entry(3).raw(), 4096 + 24);
        let segment = Segment::new(512, 2);
        assert!(segment.owns(hash, 0b1000 << 60) && !segment.owns(hash, 0b1100 << 60));
        assert!(segment.is_second(hash) && !segment.is_second(0b1000 << 60));
        assert_eq!(segment_end(segment, hash), Some(0b1100 << 60));
        assert_eq!(segment_end(segment, u64::MAX), None);
    }
}
