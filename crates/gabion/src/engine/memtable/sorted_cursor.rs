//! A cursor over the sorted runs of a MemTable.
//!
//! # Idea
//! The records lie in a few runs. For each run the cursor keeps how many of its records come before
//! the current one. Going forward, the current record is the smallest of those that stand at these
//! counts; going backward, the largest of those in front of them. Turning round needs no case.
//!
//! Most records lie in the largest run, so a step forward mostly stays in the same run. The cursor
//! remembers the second smallest record, the rival, and compares with that one alone.
//!
//! # Invariant
//! - C1: `before[i]` is the number of records of run `i` that come before the current one; at the
//!   end, all of them; before the first, none.
//! - C2: a known rival is the smallest record at the counts of all runs but the current one.

use std::cmp::Ordering;
use std::sync::Arc;

use super::arena::{ArenaRecord, PREFETCH_BYTES};
use super::sorted_view::{RUNS_MAX, SortedView};
use crate::types::{Kind, Seq};

/// Records that a step asks for ahead, when there have been some steps.
const PREFETCH_DISTANCE: usize = 6;
/// Records that a search asks for ahead: it may end where it began.
const PREFETCH_FIRST: usize = 1;

/// A cursor over the records that a table held when the cursor was made; by key, then newest
/// first. It stands on no record until it is moved, and it keeps the memory of the table.
pub(crate) struct SortedCursor {
    sorted: Arc<SortedView>,
    before: [usize; RUNS_MAX],
    /// The run of the current record.
    current: Option<usize>,
    rival: Rival,
    /// Records that were asked for ahead.
    ahead: usize,
}

/// The second smallest record at the counts.
#[derive(Clone, Copy)]
enum Rival {
    /// Not known, since the cursor moved backward.
    Unknown,
    /// All other runs are at their ends.
    None,
    /// The record of that run.
    Run(usize),
}

impl SortedCursor {
    pub(super) fn new(sorted: Arc<SortedView>) -> SortedCursor {
        SortedCursor {
            sorted,
            before: [0; RUNS_MAX],
            current: None,
            rival: Rival::Unknown,
            ahead: 0,
        }
    }

    /// Moves to the first record.
    pub(super) fn seek_first(&mut self) {
        self.before = [0; RUNS_MAX];
        self.prefetch_forward();
        self.settle();
    }

    /// Moves to the last record.
    pub(super) fn seek_last(&mut self) {
        for (before, run) in self.before.iter_mut().zip(self.sorted.runs()) {
            *before = run.len();
        }
        self.step_back();
    }

    /// Asks for the memory that [`SortedCursor::seek`] waits for first.
    pub(super) fn prefetch(&self, key: &[u8]) {
        for run in self.sorted.runs() {
            run.prefetch_search(key);
        }
    }

    /// Moves to the first record whose key is not below `key`.
    pub(super) fn seek(&mut self, key: &[u8]) {
        self.count_below(key);
        self.prefetch_forward();
        self.settle();
    }

    /// Moves to the last record whose key is below `key`.
    pub(super) fn seek_before(&mut self, key: &[u8]) {
        self.count_below(key);
        self.step_back();
    }

    /// Moves to the next record. The cursor must be valid.
    #[inline]
    pub(super) fn next(&mut self) {
        let current = self.current.expect("the cursor is valid");
        // Those to come are likely as long as this one.
        let bytes = self.at(current).map_or(0, ArenaRecord::footprint);
        self.before[current] += 1;
        let run = &self.sorted.runs()[current];
        run.prefetch(self.before[current] + self.ahead, bytes);
        if self.ahead < PREFETCH_DISTANCE {
            self.ahead += 1;
            run.prefetch(self.before[current] + self.ahead, bytes);
        }
        let stays = self.at(current).is_some_and(|record| match self.rival {
            Rival::Unknown => false,
            Rival::None => true,
            Rival::Run(rival) => self
                .at(rival)
                .is_none_or(|rival| record.order(rival) == Ordering::Less),
        });
        if !stays {
            self.settle();
        }
    }

    /// Moves past all records of the current run that have the current key. A key that was written
    /// a thousand times costs ten comparisons. The cursor must be valid.
    pub(super) fn next_key(&mut self) {
        let current = self.current.expect("the cursor is valid");
        let run = &self.sorted.runs()[current];
        let first = self.before[current];
        let end = run.end_of_key(first);
        // The last step goes by the rival, as any other does.
        self.before[current] = end - 1;
        self.next();
    }

    /// Moves to the previous record. The cursor must be valid.
    #[inline]
    pub(super) fn prev(&mut self) {
        debug_assert!(self.valid());
        self.step_back();
    }

    /// Whether the cursor stands on a record; the methods below need that.
    #[inline]
    pub(super) fn valid(&self) -> bool {
        self.current.is_some()
    }

    /// The record's key.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.record().key()
    }

    /// The record's sequence number.
    #[inline]
    pub(super) fn seq(&self) -> Seq {
        self.record().seq()
    }

    /// The record's kind.
    #[inline]
    pub(super) fn kind(&self) -> Kind {
        self.record().kind()
    }

    /// The record's value.
    #[inline]
    pub(super) fn value_bytes(&self) -> &[u8] {
        self.record().value()
    }

    /// The record.
    #[inline]
    pub(super) fn record(&self) -> ArenaRecord<'_> {
        let current = self.current.expect("the cursor is valid");
        self.at(current).expect("the cursor is valid")
    }

    fn count_below(&mut self, key: &[u8]) {
        for (before, run) in self.before.iter_mut().zip(self.sorted.runs()) {
            *before = run.count_below(key);
        }
    }

    /// Asks for the first records that steps forward will come to.
    fn prefetch_forward(&mut self) {
        self.ahead = PREFETCH_FIRST;
        for (before, run) in self.before.iter().zip(self.sorted.runs()) {
            for position in 0..=PREFETCH_FIRST {
                run.prefetch(before + position, PREFETCH_BYTES);
            }
        }
    }

    /// The record at the count of a run.
    #[inline]
    fn at(&self, run: usize) -> Option<ArenaRecord<'_>> {
        self.sorted.runs()[run].get(self.before[run])
    }

    /// Makes the smallest record at the counts the current one.
    fn settle(&mut self) {
        let mut best: Option<(usize, ArenaRecord<'_>)> = None;
        let mut second: Option<(usize, ArenaRecord<'_>)> = None;
        for run in 0..self.sorted.runs().len() {
            let Some(record) = self.at(run) else {
                continue;
            };
            let is_below = |other: Option<(usize, ArenaRecord<'_>)>| {
                other.is_none_or(|(_, other)| record.order(other) == Ordering::Less)
            };
            if is_below(best) {
                second = best;
                best = Some((run, record));
            } else if is_below(second) {
                second = Some((run, record));
            }
        }
        let rival = second.map_or(Rival::None, |(run, _)| Rival::Run(run));
        let current = best.map(|(run, _)| run);
        self.rival = rival;
        self.current = current;
    }

    /// Makes the largest record in front of the counts the current one.
    fn step_back(&mut self) {
        let mut best: Option<(usize, ArenaRecord<'_>)> = None;
        for (position, run) in self.sorted.runs().iter().enumerate() {
            let Some(record) = self.before[position]
                .checked_sub(1)
                .and_then(|at| run.get(at))
            else {
                continue;
            };
            if best.is_none_or(|(_, best)| record.order(best) == Ordering::Greater) {
                best = Some((position, record));
            }
        }
        let current = best.map(|(run, _)| run);
        self.current = current;
        self.rival = Rival::Unknown;
        if let Some(current) = current {
            self.before[current] -= 1;
            let ahead = self.before[current].wrapping_sub(PREFETCH_DISTANCE);
            self.sorted.runs()[current].prefetch(ahead, PREFETCH_BYTES);
        }
    }
}
