//! The hash table doubles while the store is in use.
//!
//! # Idea
//! Buckets are numbered by the first bits of hashes, so each one becomes two neighbours in a table
//! of twice the size. They move one after the other, each under its stripe: the two new buckets are
//! written and made durable, and then the old one says that it has moved. Whoever finds that looks
//! into the next table. At the end the next table takes the place of the old one.
//!
//! # Recovery
//! A bucket that does not say that it has moved is the valid one, whatever is in the next table; it
//! moves again when the doubling goes on. A header with both tables tells that there is one.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, POff};

use super::layout::{Entry, Header, LINE_BYTES, TablePlace};
use super::log::ThreadLog;
use super::recovery::TABLE_HINT;
use super::table::entries;
use super::{Scmkv, Volume};
use crate::Result;

/// A chain of so many lines says that the table is too small: with one entry for each bucket, one
/// bucket of 10^13 has 16.
pub(super) const LONG_CHAIN_LINES: u64 = 3;

/// Entries for each bucket from which on the table doubles in the background.
const LOAD_MAX: u64 = 3;

/// Buckets that are looked at to tell how full the table is.
const SAMPLE: u64 = 1 << 12;

impl Volume {
    fn header(&self) -> &Header {
        self.medium.at(self.header)
    }

    /// Doubles the table.
    pub(super) fn enlarge(&self) -> Result<()> {
        let _enlarging = self.enlarging.lock();
        self.double()
    }

    /// Doubles the table as long as it has too many entries, and tells whether it is another one
    /// than `before`.
    pub(super) fn enlarge_if_crowded(&self, before: TablePlace) -> Result<bool> {
        let _enlarging = self.enlarging.lock();
        while self.load_of_sample()? >= LOAD_MAX {
            self.double()?;
        }
        Ok(self.table() != before)
    }

    /// Doubles the table, or ends a doubling that was begun.
    fn double(&self) -> Result<()> {
        if self.next_table().is_none() {
            self.clean_until(|| self.begin_enlarging())?;
        }
        let (table, next) = (self.table(), self.next_table());
        for index in 0..table.buckets() {
            let hash = index << (64 - table.log2());
            loop {
                match self.move_bucket(table, next, hash) {
                    Err(error) if error.is_no_space() => {
                        if !self.make_room()? {
                            return Err(error);
                        }
                    }
                    moved => break moved?,
                }
            }
        }
        self.finish_enlarging()
    }

    pub(super) fn begin_enlarging(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        let log2 = self.table().log2() + 1;
        let bytes = TablePlace::new(0, log2).bytes();
        let block = self.pool.alloc_aligned(bytes, LINE_BYTES, TABLE_HINT)?;
        let next = TablePlace::new(block.offset::<PAtomicU64>().raw(), log2);
        self.medium.zero(next.offset(), bytes);
        // DURABLE: the table is all zero, before the header refers to it.
        self.medium.fence();
        // DURABLE: as above.
        // ORDER: Relaxed: read by recovery.
        self.header()
            .next
            .store_persist(&self.medium, next.0, Ordering::Relaxed);
        block.commit::<PAtomicU64>();
        // ORDER: Release pairs with the Acquire of `next_table`.
        self.next.store(next.0, Ordering::Release);
        Ok(())
    }

    /// Moves the bucket of a hash to the next table.
    fn move_bucket(&self, table: TablePlace, next: TablePlace, hash: u64) -> Result<()> {
        let _within = self.pool.write_guard();
        let _stripe = self.stripes.lock(hash);
        let bucket: &PAtomicU64 = self.medium.at(POff::new(table.bucket_of(hash)));
        // ORDER: Acquire pairs with the Release of the publish, maybe by another thread.
        let entry = Entry(bucket.load(&self.medium, Ordering::Acquire));
        if entry.is_moved() {
            return Ok(());
        }
        let upper_bit = 1 << (64 - next.log2());
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        for (_, entry) in entries(&self.medium, bucket, entry)? {
            let record = self.record_at(entry.address())?;
            let half = if record.hash & upper_bit == 0 {
                &mut lower
            } else {
                &mut upper
            };
            half.push(entry);
        }
        let mut log = self.logs.mine();
        let first = self.half_of_bucket(&mut log, &lower, hash)?;
        let second = self.half_of_bucket(&mut log, &upper, hash | upper_bit);
        let second = second.inspect_err(|_| self.count_half_out(first))?;
        for (hash, half) in [(hash, first), (hash | upper_bit, second)] {
            let word: &PAtomicU64 = self.medium.at(POff::new(next.bucket_of(hash)));
            // ORDER: Release pairs with the Acquire of lookups.
            word.store(&self.medium, half.0, Ordering::Release);
            self.medium.flush(word);
        }
        // DURABLE: both halves, before the bucket says that it has moved.
        self.medium.fence();
        // ORDER: Release pairs with the Acquire of lookups: the halves are there.
        // DURABLE: the bucket has moved, before anyone changes the halves.
        bucket.store_persist(&self.medium, Entry::MOVED.0, Ordering::Release);
        self.count_half_out(entry);
        Ok(())
    }

    /// The bucket for some entries; a chain is written and flushed, not fenced. It counts as live
    /// at once: the other half may need another page, and then a cleaner finds the page of this
    /// one, which must not look empty to it.
    pub(super) fn half_of_bucket(
        &self,
        log: &mut ThreadLog,
        half: &[Entry],
        hash: u64,
    ) -> Result<Entry> {
        let many = match half {
            [] => return Ok(Entry::EMPTY),
            [one] => return Ok(*one),
            many => many,
        };
        let chain = self.write_chain(log, many, hash)?;
        self.pages
            .count_in(chain.address(), chain.lines() * LINE_BYTES);
        Ok(chain)
    }

    /// Nothing refers to the chain of a bucket any more, if it has one.
    pub(super) fn count_half_out(&self, bucket: Entry) {
        if bucket.is_chain() {
            self.pages
                .count_out(bucket.address(), bucket.lines() * LINE_BYTES);
        }
    }

    fn finish_enlarging(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        let old: POff<PAtomicU64> = POff::new(self.table().offset());
        let retiring = self.pool.retire(old, TABLE_HINT)?;
        // DURABLE: that the old table will go, before it does.
        self.medium.fence();
        let header = self.header();
        // No writer is between a look at the tables and its publish.
        let stripes = self.stripes.lock_all();
        let next = self.next_table();
        // DURABLE: all buckets have moved.
        // ORDER: Relaxed: read by recovery.
        header
            .table
            .store_persist(&self.medium, next.0, Ordering::Relaxed);
        // ORDER: Release pairs with the Acquire of `table`, and of `next_table`: who sees that
        // there is no next table any more sees the new one.
        self.table.store(next.0, Ordering::Release);
        // DURABLE: the table is the next one.
        // ORDER: Relaxed: read by recovery.
        header
            .next
            .store_persist(&self.medium, 0, Ordering::Relaxed);
        // ORDER: as above.
        self.next.store(TablePlace::NONE.0, Ordering::Release);
        drop(stripes);
        retiring.commit(&self.pool.enter());
        self.pool.collect();
        self.count_pages();
        Ok(())
    }

    /// Entries for each bucket, of a part of the table.
    fn load_of_sample(&self) -> Result<u64> {
        let table = self.table();
        let count = table.buckets().min(SAMPLE);
        let mut found = 0;
        for index in 0..count {
            // Hashes spread evenly, so that any buckets will do.
            let hash = index << (64 - table.log2());
            let _guard = self.pool.enter();
            let (bucket, entry) = self.bucket(hash)?;
            found += entries(&self.medium, bucket, entry)?.count() as u64;
        }
        Ok(found / count)
    }

    /// Doubles the table if its chains have become long because it is full, or if that was begun.
    pub(super) fn enlarge_if_due(&self) -> Result<()> {
        if !self.next_table().is_none() {
            return self.enlarge();
        }
        if self.counts.longest_chain() < LONG_CHAIN_LINES {
            return Ok(());
        }
        // Long chains from an uneven spread are no reason; they are forgotten.
        self.counts.forget_chains();
        match self.enlarge_if_crowded(self.table()) {
            Err(error) if error.is_no_space() => Ok(()),
            done => done.map(|_| ()),
        }
    }
}

impl Scmkv {
    /// Doubles the hash table, or ends a doubling that was interrupted. Others may read and write
    /// meanwhile. A crash in between loses nothing.
    ///
    /// # Errors
    /// No space: then the doubling may be done in part, which does no harm; try again.
    pub fn enlarge(&self) -> Result<()> {
        self.volume.enlarge()
    }
}
