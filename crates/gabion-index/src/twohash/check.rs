//! Operations on all entries: counts, visits, and the check of the invariants.

use std::collections::HashSet;

use super::{Scheme, TwoHash};
use crate::bucket::{Bucket, Value};
use crate::index::CheckSummary;
use crate::{Error, Result};

impl<S: Scheme> TwoHash<S> {
    /// All lines with their numbers.
    fn lines(&self) -> impl Iterator<Item = (u64, &S::Bucket)> {
        let table = self.table();
        let count = S::lines(table.bits()) + S::stash_lines(table.bits());
        (0..count).map(move |number| (number, self.line(table, number)))
    }

    /// Counts all entries, while nobody writes.
    fn count(&self) -> u64 {
        let counts = self.lines().map(|(_, line)| line.entry_count());
        counts.map(u64::from).sum()
    }

    /// The number of entries, exact if nobody writes.
    pub(super) fn entries(&self) -> Result<u64> {
        self.stripes.entries(|| Ok(self.count()))
    }

    /// All entries, as they are at one moment.
    fn collect(&self) -> Vec<(u64, u64)> {
        let _held = self.stripes.lock_all();
        let entries = self.lines().flat_map(|(_, line)| line.entries());
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
        let bits = self.table().bits();
        let stash = self.stash_in_use(self.table());
        let mut keys = HashSet::new();
        for (number, line) in self.lines() {
            let wrong = |what| Error::damaged(what, self.medium.offset_of(line).raw());
            if !line.is_sound() {
                return Err(wrong("the tokens of a line"));
            }
            for slot in 0..S::Bucket::SLOTS {
                let Some((key, value)) = line.entry(slot) else {
                    continue;
                };
                if !value.is_whole() {
                    return Err(wrong("a partly written value"));
                }
                let mut spots = S::spots(bits, self.hashes(key));
                let is_its = spots.any(|spot| spot.line == number && spot.slots >> slot & 1 != 0);
                if !is_its && !stash.contains(&number) {
                    return Err(wrong("the place of an entry"));
                }
                if !keys.insert(key) {
                    return Err(wrong("a duplicate key"));
                }
            }
        }
        let entries = keys.len() as u64;
        // The root and the table.
        Ok(CheckSummary { entries, blocks: 2 })
    }
}
