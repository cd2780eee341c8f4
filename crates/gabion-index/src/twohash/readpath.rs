//! Lookups: without locks, by a second look at the words of both stripes.

use std::sync::atomic::Ordering;

use super::{Scheme, TwoHash};
use crate::bucket::{Bucket, Value};
use crate::line::LineArray;
use crate::lock::StripeChange;

impl<S: Scheme> TwoHash<S> {
    /// The value of `key`.
    #[inline]
    pub(super) fn lookup(&self, key: u64) -> Option<u64> {
        let hashes = self.hashes(key);
        loop {
            let table = self.table();
            let stripes = Self::stripes_of(table, hashes).map(|number| self.stripes.at(number));
            let seen = stripes.map(|stripe| stripe.look());
            let mut lines = self.seen_lines(table, hashes);
            let found = lines.find_map(|line| {
                line.touch(&self.medium, Some(key));
                self.log.read(line, |line| line.get_among(key))
            });
            let since = [stripes[0].since(seen[0]), stripes[1].since(seen[1])];
            // Tables change under all locks; so this was the one in use if it still is.
            if since.contains(&StripeChange::Changed) || self.table() != table {
                continue;
            }
            if since.contains(&StripeChange::Busy) {
                self.settle(table, hashes);
            }
            return found.map(Value::word);
        }
    }

    /// The lines of a key in a table that may be given up meanwhile: then they mean nothing.
    #[inline]
    fn seen_lines(&self, table: LineArray, hashes: [u64; 2]) -> impl Iterator<Item = &S::Bucket> {
        let spots = S::spots(table.bits(), hashes).map(|spot| spot.line);
        spots
            .chain(self.stash_in_use(table))
            .filter_map(move |number| self.medium.try_at(Self::line_at(table, number)))
    }

    /// The numbers of the lines of a stash that ever had an entry.
    #[inline]
    pub(super) fn stash_in_use(&self, table: LineArray) -> std::ops::Range<u64> {
        let (first, count) = (S::lines(table.bits()), S::stash_lines(table.bits()));
        if count == 0 {
            return first..first;
        }
        // ORDER: Acquire pairs with the releases in `fill_stash`, for an entry there, and in
        // `build`: who sees the number of another table's lines finds that the table has changed.
        first..first + self.stash_used.load(Ordering::Acquire).min(count)
    }

    /// Makes durable what a reader may have seen in the lines of a key while a writer was at work.
    #[cold]
    fn settle(&self, table: LineArray, hashes: [u64; 2]) {
        let _within = self.pool.write_guard();
        for line in self.seen_lines(table, hashes) {
            self.medium.flush(line);
        }
        self.medium.fence();
    }
}
