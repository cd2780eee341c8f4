//! Operations on all entries: counts, visits, and the check of the invariants.

use std::collections::HashSet;

use super::LevelTable;
use super::form::Form;
use super::places::Levels;
use crate::bucket::{Bucket, Value};
use crate::index::CheckSummary;
use crate::line::LineArray;
use crate::{Error, Result};

impl<F: Form> LevelTable<F> {
    /// All buckets.
    fn buckets(&self, levels: Levels) -> impl Iterator<Item = &F::Bucket> {
        let of_level =
            |level: LineArray| (0..level.len()).map(move |number| Self::bucket(level, number));
        let buckets = of_level(levels.top).chain(of_level(levels.bottom));
        buckets.map(|at| {
            let line = self.medium.at(at);
            self.medium.touch(line);
            line
        })
    }

    /// Counts all entries, while nobody writes.
    fn count(&self) -> u64 {
        let buckets = self.buckets(self.levels(self.top()));
        buckets.map(|line| u64::from(line.entry_count())).sum()
    }

    /// The number of entries, exact if nobody writes.
    pub(super) fn entries(&self) -> Result<u64> {
        self.stripes.entries(|| Ok(self.count()))
    }

    /// All entries, as they are at one moment.
    fn collect(&self) -> Vec<(u64, u64)> {
        let _held = self.stripes.lock_all();
        let buckets = self.buckets(self.levels(self.top()));
        let entries = buckets.flat_map(F::Bucket::entries);
        entries.map(|(key, value)| (key, value.word())).collect()
    }

    /// Visits all entries.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(&u64, u64)) -> Result<()> {
        for (key, value) in self.collect() {
            visit(&key, value);
        }
        Ok(())
    }

    /// Checks the invariants, while nobody writes.
    pub(super) fn check_all(&self) -> Result<CheckSummary> {
        let levels = self.levels(self.top());
        let mut keys = HashSet::new();
        for line in self.buckets(levels) {
            let wrong = |what| Error::damaged(what, self.medium.offset_of(line).raw());
            if !line.is_sound() {
                return Err(wrong("the tokens of a bucket"));
            }
            for (key, value) in line.entries() {
                if !value.is_whole() {
                    return Err(wrong("a partly written value"));
                }
                let places = self.places(&levels, self.hashes(key));
                if !places.into_iter().any(|place| std::ptr::eq(place, line)) {
                    return Err(wrong("the place of an entry"));
                }
                if !keys.insert(key) {
                    return Err(wrong("a duplicate key"));
                }
            }
        }
        let entries = keys.len() as u64;
        // The root and two levels.
        Ok(CheckSummary { entries, blocks: 3 })
    }
}
