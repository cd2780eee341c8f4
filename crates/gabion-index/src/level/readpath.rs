//! Lookups: without locks, by a second look at the words of both stripes.

use super::LevelTable;
use super::form::Form;
use super::places::{Hashes, Levels};
use super::writepath::ValueOf;
use crate::bucket::{Bucket, Value};
use crate::line::LineArray;
use crate::lock::StripeChange;

impl<F: Form> LevelTable<F> {
    /// The value of `key`.
    #[inline]
    pub(super) fn lookup(&self, key: u64) -> Option<u64> {
        let hashes = self.hashes(key);
        loop {
            let top = self.top();
            let levels = self.levels(top);
            let [first, second] = hashes.0;
            let first = self.stripes.at(levels.stripe(first));
            let second = self.stripes.at(levels.stripe(second));
            let (seen_first, seen_second) = (first.look(), second.look());
            let found = self.search(&levels, hashes, key);
            let since = [first.since(seen_first), second.since(seen_second)];
            // Levels change under all locks; so they were those in use if the top still is.
            if since.contains(&StripeChange::Changed) || self.top() != top {
                continue;
            }
            if since.contains(&StripeChange::Busy) {
                self.settle(&levels, hashes);
            }
            return found.map(Value::word);
        }
    }

    /// Looks for a key in levels that may be given up meanwhile: then what this returns means
    /// nothing.
    #[inline]
    fn search(&self, levels: &Levels, hashes: Hashes, key: u64) -> Option<ValueOf<F>> {
        let find = |level: LineArray, hash| {
            let bucket = self.place(level, hash)?;
            bucket.touch(&self.medium, Some(key));
            self.log.read(bucket, |bucket| bucket.get(key))
        };
        let [first, second] = hashes.0;
        let Levels { top, bottom } = *levels;
        find(top, first)
            .or_else(|| find(top, second))
            .or_else(|| find(bottom, first))
            .or_else(|| find(bottom, second))
    }

    /// Makes durable what a reader may have seen in the places of a key while a writer was at work.
    #[cold]
    fn settle(&self, levels: &Levels, hashes: Hashes) {
        let _within = self.pool.write_guard();
        for level in [levels.top, levels.bottom] {
            for hash in hashes.0 {
                if let Some(line) = self.place(level, hash) {
                    self.medium.flush(line);
                }
            }
        }
        self.medium.fence();
    }
}
