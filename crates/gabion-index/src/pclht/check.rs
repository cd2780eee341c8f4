//! Operations on all entries: counts, visits, and the check of the invariants.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::ClhtTable;
use super::form::Form;
use super::table::{Table, damaged, damaged_chain};
use crate::bucket::Bucket;
use crate::index::{CheckSummary, visit_by_hash};
use crate::line::Line;
use crate::{Error, Result};

impl<F: Form> ClhtTable<F> {
    /// Visits the entries in the chain of a bucket, with their hashes.
    ///
    /// # Errors
    /// Damaged links, which lead in a ring.
    pub(super) fn for_each_in(
        &self,
        table: Table<F>,
        number: u64,
        mut visit: impl FnMut(u64, u64, u64),
    ) -> Result<()> {
        let mut next = Some(self.bucket(table, number));
        for _ in 0..table.chain_lines_max() {
            let Some(line) = next else {
                break;
            };
            for (key, value) in line.entries() {
                visit(self.seed.hash_u64(key), key, value);
            }
            next = self.next(table, line);
        }
        match next {
            None => Ok(()),
            Some(_) => Err(damaged_chain(table.bucket(number).raw())),
        }
    }

    /// Counts all entries, while nobody writes.
    fn count(&self) -> Result<u64> {
        let _guard = self.enter();
        let (table, mut count) = (self.table(), 0);
        for number in 0..table.len() {
            self.for_each_in(table, number, |_, _, _| count += 1)?;
        }
        Ok(count)
    }

    /// Appends the entries under the lock of the hash `from`, without those whose hash is less, and
    /// returns the first hash of the next lock.
    fn collect(&self, from: u64, entries: &mut Vec<(u64, u64)>) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        let _guard = self.enter();
        let (table, _held) = self.lock(from);
        let bits = Self::lock_bits(table);
        let range = from >> (64 - bits);
        let buckets = table.bits() - bits;
        for number in range << buckets..(range + 1) << buckets {
            self.for_each_in(table, number, |hash, key, value| {
                if hash >= from {
                    entries.push((key, value));
                }
            })?;
        }
        Ok((range + 1 < 1 << bits).then(|| (range + 1) << (64 - bits)))
    }

    /// Visits all entries.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(&u64, u64)) -> Result<()> {
        visit_by_hash(|from, entries| self.collect(from, entries), visit)
    }

    /// The number of entries, exact if nobody writes. Where locks are in buckets it is counted.
    pub(super) fn entries(&self) -> Result<u64> {
        if Self::IN_BUCKETS {
            return self.count();
        }
        self.stripes.entries(|| self.count())
    }

    /// Checks the invariants, while nobody writes.
    pub(super) fn check_all(&self) -> Result<CheckSummary> {
        let table = self.table();
        // ORDER: Relaxed: nobody writes.
        let given = table
            .given(&self.medium)
            .load(&self.medium, Ordering::Relaxed);
        if given > table.spare_count() {
            return Err(damaged(table.offset()));
        }
        let (mut entries, mut linked) = (0, HashSet::new());
        for number in 0..table.len() {
            let mut keys = HashSet::new();
            let mut next = Some(self.bucket(table, number));
            while let Some(line) = next {
                self.check_line(table, number, line, &mut keys)?;
                // ORDER: Relaxed: nobody writes.
                let link = line.link.peek(Ordering::Relaxed);
                let spare = table.spare_at(link);
                let is_sound = match spare {
                    Some(spare) => {
                        let is_last = !self.is_inner(table, line);
                        is_last && spare < given && linked.insert(spare)
                    }
                    None => link == 0,
                };
                if !is_sound {
                    let offset = self.medium.offset_of(line).raw();
                    return Err(Error::damaged("the link of a bucket", offset));
                }
                next = self.next(table, line);
            }
            entries += keys.len() as u64;
        }
        Ok(CheckSummary { entries, blocks: 2 })
    }

    fn check_line(
        &self,
        table: Table<F>,
        number: u64,
        line: &Line,
        keys: &mut HashSet<u64>,
    ) -> Result<()> {
        let wrong = |what| Error::damaged(what, self.medium.offset_of(line).raw());
        let is_home = std::ptr::eq(line, self.bucket(table, number));
        let is_sound = match Self::IN_BUCKETS && is_home {
            true => line.is_sound_and_free(),
            false => line.is_sound(),
        };
        if !is_sound {
            return Err(wrong("the tokens of a bucket"));
        }
        for (key, _) in line.entries() {
            if table.home(self.seed.hash_u64(key)) != number {
                return Err(wrong("the home of an entry"));
            }
            if !keys.insert(key) {
                return Err(wrong("a duplicate key"));
            }
        }
        Ok(())
    }
}
