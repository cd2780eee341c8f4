//! Lookups: without locks, by a second look at the lock.

use std::sync::atomic::Ordering;

use gabion_media::pmem::POff;

use super::ClhtTable;
use super::form::Form;
use super::table::Table;
use crate::bucket::Bucket;
use crate::line::{LINE_BYTES, Line};
use crate::lock::StripeChange;

impl<F: Form> ClhtTable<F> {
    /// The table in use.
    #[inline]
    pub(super) fn table(&self) -> Table<F> {
        // ORDER: Acquire pairs with the release of `adopt`: the table is read as it was built.
        Table::of_word(self.table.load(Ordering::Acquire))
    }

    /// The first line of the bucket with a number.
    #[inline]
    pub(super) fn bucket(&self, table: Table<F>, number: u64) -> &Line {
        let line = self.medium.at(table.bucket(number));
        self.medium.touch(line);
        line
    }

    /// Whether another line of the same bucket follows.
    #[inline]
    pub(super) fn is_inner(&self, table: Table<F>, line: &Line) -> bool {
        table.is_inner(self.medium.offset_of(line).raw())
    }

    /// Asks for the lines of a key's home.
    #[inline]
    pub(super) fn prefetch_home(&self, table: Table<F>, hash: u64) {
        let first = table.bucket(table.home(hash)).raw();
        for line in 0..F::LINES {
            self.medium.prefetch(first + line * LINE_BYTES);
        }
    }

    /// The line that follows one in its bucket's chain, if there is one: the next of its own, or
    /// the first of the spare that is linked to the last.
    #[inline]
    pub(super) fn next(&self, table: Table<F>, line: &Line) -> Option<&Line> {
        let next = if F::LINES > 1 && self.is_inner(table, line) {
            POff::new(self.medium.offset_of(line).raw() + LINE_BYTES)
        } else {
            // ORDER: Acquire pairs with the release of the link: the spare is read as it was
            // written.
            let link = line.link.peek(Ordering::Acquire);
            table.spare(table.spare_at(link)?)
        };
        let line = self.medium.at(next);
        self.medium.touch(line);
        Some(line)
    }

    /// The value of `key`.
    #[inline]
    pub(super) fn lookup(&self, key: u64) -> Option<u64> {
        let hash = self.seed.hash_u64(key);
        let _guard = self.enter();
        loop {
            let table = self.table();
            let lock = self.lock_word(table, hash);
            let seen = lock.look();
            let found = self.search(table, hash, key);
            // The table changes under all locks; so it was the one in use if it still is, and the
            // lock was not taken and released.
            match lock.since(seen) {
                StripeChange::Quiet if self.table() == table => return found,
                StripeChange::Busy if self.table() == table => {
                    self.settle(table, hash);
                    return found;
                }
                _ => {}
            }
        }
    }

    /// Looks for a key in a table, which may be given up meanwhile: then what this returns means
    /// nothing.
    #[inline]
    fn search(&self, table: Table<F>, hash: u64, key: u64) -> Option<u64> {
        let (mut line, mut passed) = (self.bucket(table, table.home(hash)), 0);
        loop {
            if let Some(value) = line.get(key) {
                return Some(value);
            }
            line = self.next(table, line)?;
            passed += 1;
            // In a table that was given up, links may lead anywhere, in rings as well.
            if self.table() != table || table.is_ring(passed) {
                return None;
            }
        }
    }

    /// Makes durable what a reader may have seen in the chain of `hash` while a writer was at work.
    #[cold]
    pub(super) fn settle(&self, table: Table<F>, hash: u64) {
        let _within = self.pool.write_guard();
        let mut next = Some(self.bucket(table, table.home(hash)));
        for _ in 0..table.chain_lines_max() {
            let Some(line) = next else {
                break;
            };
            self.medium.flush(line);
            next = self.next(table, line).filter(|_| self.table() == table);
        }
        self.medium.fence();
    }
}
