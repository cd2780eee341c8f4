//! A table: one block with buckets, spare buckets, and the number of spares given out.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::pmem::{Medium, PAtomicU64, POff};
use parking_lot::{Mutex, MutexGuard};

use super::form::Form;
use crate::line::{LINE_BYTES, Line, LineArray};
use crate::{Error, Result};

/// What offsets of tables are multiples of.
pub(super) const TABLE_ALIGN: u64 = 256;

/// Lines of a chain that are passed before it may be taken for a ring.
const LONG_CHAIN_LINES: u64 = 64;

/// Where a table is and how large: the word of the root that names it is that of its buckets, each
/// of so many lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table<F> {
    array: LineArray,
    form: PhantomData<F>,
}

impl<F: Form> Table<F> {
    /// Bits of a table's number of buckets, at least: four lines in all, and more than one bucket.
    pub(super) const BITS_MIN: u32 = if F::LINES == 1 { 2 } else { 1 };

    /// Bytes of a bucket.
    pub(super) const BUCKET_BYTES: u64 = F::LINES * LINE_BYTES;

    /// The table at `offset`, with so many bits.
    pub(super) fn new(offset: u64, bits: u32) -> Table<F> {
        Table::of_word(LineArray::new(offset, bits).0)
    }

    /// The table that a word names.
    #[inline]
    pub(super) fn of_word(word: u64) -> Table<F> {
        Table {
            array: LineArray(word),
            form: PhantomData,
        }
    }

    /// The word that names the table.
    pub(super) fn word(self) -> u64 {
        self.array.0
    }

    /// The table that the word at `at` names, checked; none if there is none yet.
    pub(super) fn read(medium: &Medium, at: POff<PAtomicU64>) -> Result<Option<Table<F>>> {
        // ORDER: Relaxed: nobody writes while a table is opened.
        let word = medium.at(at).load(medium, Ordering::Relaxed);
        if word == 0 {
            return Ok(None);
        }
        let table = Table::of_word(word);
        if table
            .array
            .is_within(medium, Self::BITS_MIN, Self::bytes_of)
        {
            return Ok(Some(table));
        }
        Err(damaged(at.raw()))
    }

    /// Offset of the first bucket.
    pub(super) fn offset(self) -> u64 {
        self.array.offset()
    }

    /// Binary logarithm of the number of buckets.
    #[inline]
    pub(super) fn bits(self) -> u32 {
        self.array.bits()
    }

    /// Number of buckets.
    #[inline]
    pub(super) fn len(self) -> u64 {
        self.array.len()
    }

    /// The number of the bucket that is the home of a hash.
    #[inline]
    pub(super) fn home(self, hash: u64) -> u64 {
        self.array.home(hash)
    }

    /// Where the first line of the bucket with a number is.
    #[inline]
    pub(super) fn bucket(self, number: u64) -> POff<Line> {
        self.array.line(number * F::LINES)
    }

    /// Whether a line at this offset has another line of its bucket behind it.
    #[inline]
    pub(super) fn is_inner(self, line: u64) -> bool {
        (line - self.offset()) / LINE_BYTES % F::LINES != F::LINES - 1
    }

    /// Number of spares.
    #[inline]
    pub(super) fn spare_count(self) -> u64 {
        self.len() / 2
    }

    /// Lines of a chain, at most: those of its bucket and of all spares. Where there are more,
    /// damaged links lead in a ring.
    #[inline]
    pub(super) fn chain_lines_max(self) -> u64 {
        (1 + self.spare_count()) * F::LINES
    }

    /// Whether links lead in a ring, after so many lines of a chain.
    #[inline]
    pub(super) fn is_ring(self, passed: u64) -> bool {
        // Nearly all chains are short: the size of the table is asked for none of them.
        passed > LONG_CHAIN_LINES && passed >= self.chain_lines_max()
    }

    /// Bytes of buckets, spares and the last line.
    pub(super) fn bytes(self) -> u64 {
        Self::bytes_of(self.len())
    }

    fn bytes_of(buckets: u64) -> u64 {
        (buckets + buckets / 2) * Self::BUCKET_BYTES + LINE_BYTES
    }

    /// Where the first line of the spare with a number is: behind the buckets.
    #[inline]
    pub(super) fn spare(self, number: u64) -> POff<Line> {
        self.bucket(self.len() + number)
    }

    /// The number of the spare at which a link points, if it is one.
    #[inline]
    pub(super) fn spare_at(self, link: u64) -> Option<u64> {
        let bytes = link.wrapping_sub(self.spare(0).raw());
        let number = bytes / Self::BUCKET_BYTES;
        let is_spare = bytes.is_multiple_of(Self::BUCKET_BYTES) && number < self.spare_count();
        is_spare.then_some(number)
    }

    /// The number of spares that were given out, in the last line.
    pub(super) fn given(self, medium: &Medium) -> &PAtomicU64 {
        medium.at(self.spare(self.spare_count()).cast())
    }

    /// What is known of the spares of a table that is opened.
    pub(super) fn find_spares(self, medium: &Medium) -> Result<SpareBuckets> {
        // ORDER: Relaxed: nobody writes while a table is opened.
        let given = self.given(medium).load(medium, Ordering::Relaxed);
        if given > self.spare_count() {
            return Err(damaged(medium.offset_of(self.given(medium)).raw()));
        }
        let spares = SpareBuckets::default();
        spares.begin(given);
        Ok(spares)
    }

    /// Bits that suit so many entries: two for each line, or nearly.
    pub(super) fn suitable_bits(entries: u64) -> u32 {
        Self::bits_for(entries / 2)
    }

    /// Bits of the first table for a capacity: 2.5 entries for each line, or nearly.
    pub(super) fn planned_bits(capacity: u64) -> u32 {
        Self::bits_for(capacity / 5 * 2 + capacity % 5 * 2 / 5)
    }

    /// Bits of a table with so many lines in its buckets, or more.
    fn bits_for(lines: u64) -> u32 {
        let buckets = lines.div_ceil(F::LINES);
        let buckets = buckets.clamp(1 << Self::BITS_MIN, 1 << LineArray::BITS_MAX);
        buckets.next_power_of_two().ilog2()
    }
}

pub(super) fn damaged(offset: u64) -> Error {
    Error::damaged("the table of a P-CLHT", offset)
}

/// Links lead in a ring, in the chain of the bucket at this offset.
#[cold]
pub(super) fn damaged_chain(offset: u64) -> Error {
    Error::damaged("the chain of a bucket", offset)
}

/// The spares of the table in use. Used under the lock of a stripe, so that the table stays.
#[derive(Debug, Default)]
pub(super) struct SpareBuckets {
    /// The next one to give out.
    next: AtomicU64,
    /// What the medium says of how many were given out.
    noted: AtomicU64,
    noting: Mutex<()>,
}

impl SpareBuckets {
    /// Spares that are given out from one note on the medium to the next, at most.
    const BATCH: u64 = 64;

    /// Begins with a table whose last line says that so many were given out.
    pub(super) fn begin(&self, given: u64) {
        // ORDER: Relaxed: published by the mirror of the table, or by the locks.
        self.next.store(given, Ordering::Relaxed);
        self.noted.store(given, Ordering::Relaxed);
    }

    /// A spare that nobody has.
    pub(super) fn take<F: Form>(
        &self,
        medium: &Medium,
        table: Table<F>,
    ) -> Option<SpareBucket<'_>> {
        // ORDER: Relaxed: the number is unique, whoever else takes one.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= table.spare_count() {
            return None;
        }
        // ORDER: Acquire pairs with the release of `confirm`: what is noted is durable.
        let mut note = None;
        if self.noted.load(Ordering::Acquire) <= number {
            let noting = self.noting.lock();
            // ORDER: Relaxed: under the lock.
            if self.noted.load(Ordering::Relaxed) <= number {
                let batch = (table.spare_count() / Self::BATCH).clamp(1, Self::BATCH);
                let now = (number + batch).min(table.spare_count());
                let given = table.given(medium);
                // ORDER: Relaxed: read by recovery only.
                given.store(medium, now, Ordering::Relaxed);
                medium.flush(given);
                note = Some((noting, now));
            }
        }
        Some(SpareBucket {
            number,
            spares: self,
            note,
        })
    }
}

/// A spare that was taken. It may be linked after a fence and [`SpareBucket::confirm`].
pub(super) struct SpareBucket<'a> {
    pub(super) number: u64,
    spares: &'a SpareBuckets,
    /// What the medium will say of how many were given out. Others wait until it is durable.
    note: Option<(MutexGuard<'a, ()>, u64)>,
}

impl SpareBucket<'_> {
    /// Says that a fence came after the spare was taken.
    pub(super) fn confirm(self) {
        if let Some((_noting, now)) = self.note {
            // ORDER: Release pairs with the acquire of `take`.
            self.spares.noted.store(now, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::{Best, Wide};
    use super::*;

    #[test]
    fn a_table_knows_its_parts() {
        let table = Table::<Best>::new(4096, 3);
        assert_eq!(
            (table.offset(), table.bits(), table.spare_count()),
            (4096, 3, 4)
        );
        assert_eq!((table.home(u64::MAX), table.home(1)), (7, 0));
        assert_eq!(table.spare(0).raw(), 4096 + 8 * 64);
        assert_eq!(table.spare_at(table.spare(3).raw()), Some(3));
        for link in [
            0,
            table.spare(0).raw() - 64,
            table.spare(4).raw(),
            table.spare(0).raw() + 8,
        ] {
            assert_eq!(table.spare_at(link), None);
        }
        assert_eq!(table.bytes(), (8 + 4 + 1) * 64);
        assert!(!table.is_inner(4096) && !table.is_inner(4096 + 64));
    }

    #[test]
    fn wide_buckets_have_four_lines() {
        let table = Table::<Wide>::new(4096, 2);
        assert_eq!((table.bucket(1).raw(), table.spare(1).raw()), (4352, 5376));
        assert_eq!(table.spare_at(5376), Some(1));
        assert_eq!(
            (table.spare_at(5376 + 64), table.spare_at(5632)),
            (None, None)
        );
        let inner = (0..8).map(|line| table.is_inner(4096 + 64 * line));
        assert!(inner.eq([true, true, true, false].into_iter().cycle().take(8)));
        assert_eq!(table.bytes(), 6 * 256 + 64);
    }

    #[test]
    fn sizes_suit_the_entries() {
        type Narrow = Table<Best>;
        let least = Narrow::BITS_MIN;
        assert_eq!(
            (Narrow::suitable_bits(0), Narrow::planned_bits(0)),
            (least, least)
        );
        assert_eq!(
            (Narrow::suitable_bits(16), Narrow::suitable_bits(18)),
            (3, 4)
        );
        assert_eq!(
            (Narrow::planned_bits(10), Narrow::planned_bits(10_000_000)),
            (2, 22)
        );
        assert_eq!(Narrow::planned_bits(u64::MAX), LineArray::BITS_MAX);
        assert_eq!(
            (
                Table::<Wide>::planned_bits(0),
                Table::<Wide>::planned_bits(10_000_000)
            ),
            (1, 20)
        );
    }
}
