//! Lookups: without locks, by a second look at the word of the stripe.

use std::sync::atomic::Ordering;

use super::PClht;
use super::table::Table;
use crate::line::{Array, Line};
use crate::lock::{Since, Stripes};

impl PClht {
    /// The table in use.
    #[inline]
    pub(super) fn table(&self) -> Table {
        // ORDER: Acquire pairs with the release of `adopt`: the table is read as it was built.
        Table(Array(self.table.load(Ordering::Acquire)))
    }

    /// The bucket with a number.
    #[inline]
    pub(super) fn bucket(&self, table: Table, number: u64) -> &Line {
        let line = self.medium.at(table.line(number));
        self.medium.touch(line);
        line
    }

    /// The spare that is linked to a bucket, if there is one.
    #[inline]
    pub(super) fn next(&self, table: Table, line: &Line) -> Option<&Line> {
        // ORDER: Acquire pairs with the release of the link: the spare is read as it was written.
        let link = line.link.peek(Ordering::Acquire);
        let spare = table.spare_at(link)?;
        let line = self.medium.at(table.spare(spare));
        self.medium.touch(line);
        Some(line)
    }

    /// The value of `key`.
    #[inline]
    pub(super) fn lookup(&self, key: u64) -> Option<u64> {
        let hash = self.seed.hash_u64(key);
        loop {
            let table = self.table();
            let stripe = self.stripes.at(Stripes::index(hash, table.bits()));
            let seen = stripe.look();
            let found = self.search(table, hash, key);
            // The table changes under all locks; so it was the one in use if it still is, and the
            // stripe was not taken and released.
            match stripe.since(seen) {
                Since::Quiet if self.table() == table => return found,
                Since::Busy if self.table() == table => {
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
    fn search(&self, table: Table, hash: u64, key: u64) -> Option<u64> {
        let mut line = self.bucket(table, table.home(hash));
        loop {
            if let Some(value) = line.get(key) {
                return Some(value);
            }
            line = self.next(table, line)?;
            // In a table that was given up, links may lead anywhere, in circles as well.
            if self.table() != table {
                return None;
            }
        }
    }

    /// Makes durable what a reader may have seen in the chain of `hash` while a writer was at work.
    #[cold]
    fn settle(&self, table: Table, hash: u64) {
        let mut next = Some(self.bucket(table, table.home(hash)));
        while let Some(line) = next {
            self.medium.flush(line);
            next = self.next(table, line).filter(|_| self.table() == table);
        }
        self.medium.fence();
    }
}
