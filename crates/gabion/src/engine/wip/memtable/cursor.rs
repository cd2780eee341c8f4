//! A cursor over the sorted records of a MemTable.
//!
//! # Idea
//! The records lie in a few runs. For each run the cursor keeps how many of its records come before
//! the current one. Going forward, the current record is the smallest of those that stand at these
//! counts; going backward, the largest of those in front of them. Turning round needs no case.
//!
//! # Invariant
//! - C1: `before[i]` is the number of records of run `i` that come before the current one; at the
//!   end, all of them; before the first, none.

use std::cmp::Ordering;
use std::sync::Arc;

use super::arena::Record;
use super::sorted::{RUNS_MAX, Sorted};
use crate::Slice;
use crate::types::{Kind, Seq};

/// Records that a step asks for ahead.
const PREFETCH_DISTANCE: usize = 6;

/// A cursor over the records that a table held when the cursor was made; by key, then newest
/// first. It stands on no record until it is moved, and it keeps the memory of the table.
pub(crate) struct MemCursor {
    sorted: Arc<Sorted>,
    before: [usize; RUNS_MAX],
    /// The run of the current record.
    current: Option<usize>,
}

impl MemCursor {
    pub(super) fn new(sorted: Arc<Sorted>) -> MemCursor {
        MemCursor {
            sorted,
            before: [0; RUNS_MAX],
            current: None,
        }
    }

    /// Moves to the first record.
    pub(crate) fn seek_first(&mut self) {
        self.before = [0; RUNS_MAX];
        self.settle();
    }

    /// Moves to the last record.
    pub(crate) fn seek_last(&mut self) {
        for (before, run) in self.before.iter_mut().zip(self.sorted.runs()) {
            *before = run.len();
        }
        self.step_back();
    }

    /// Moves to the first record whose key is not below `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.count_below(key);
        self.settle();
    }

    /// Moves to the last record whose key is below `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) {
        self.count_below(key);
        self.step_back();
    }

    /// Moves to the next record. The cursor must be valid.
    #[inline]
    pub(crate) fn next(&mut self) {
        let current = self.current.expect("the cursor is valid");
        self.before[current] += 1;
        self.settle();
    }

    /// Moves to the previous record. The cursor must be valid.
    #[inline]
    pub(crate) fn prev(&mut self) {
        debug_assert!(self.valid());
        self.step_back();
    }

    /// Whether the cursor stands on a record; the methods below need that.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.current.is_some()
    }

    /// The record's key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.record().key()
    }

    /// The record's sequence number.
    #[inline]
    pub(crate) fn seq(&self) -> Seq {
        self.record().seq()
    }

    /// The record's kind.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.record().kind()
    }

    /// The record's value, copied.
    #[inline]
    pub(crate) fn value(&self) -> Slice {
        Slice::new(self.value_bytes())
    }

    /// The record's value.
    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        self.record().value()
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        let current = self.current.expect("the cursor is valid");
        let run = &self.sorted.runs()[current];
        run.get(self.before[current]).expect("the cursor is valid")
    }

    fn count_below(&mut self, key: &[u8]) {
        for (before, run) in self.before.iter_mut().zip(self.sorted.runs()) {
            *before = run.count_below(key);
        }
    }

    /// Makes the smallest record at the counts the current one.
    #[inline]
    fn settle(&mut self) {
        if let [run] = self.sorted.runs() {
            let position = self.before[0];
            if let Some(ahead) = run.get(position + PREFETCH_DISTANCE) {
                ahead.prefetch();
            }
            self.current = (position < run.len()).then_some(0);
        } else {
            self.current = self.best(0, Ordering::Less);
        }
    }

    /// Makes the largest record in front of the counts the current one.
    #[inline]
    fn step_back(&mut self) {
        self.current = self.best(1, Ordering::Greater);
        if let Some(current) = self.current {
            self.before[current] -= 1;
        }
    }

    /// Among the records `back` in front of the counts, the run of the one that has that order to
    /// all others.
    fn best(&self, back: usize, wanted: Ordering) -> Option<usize> {
        let mut best: Option<(usize, Record<'_>)> = None;
        for (position, run) in self.sorted.runs().iter().enumerate() {
            let Some(record) = self.before[position]
                .checked_sub(back)
                .and_then(|at| run.get(at))
            else {
                continue;
            };
            if best.is_none_or(|(_, best)| record.order(best) == wanted) {
                best = Some((position, record));
            }
        }
        best.map(|(position, _)| position)
    }
}
