//! Runs of free chunks, in memory only: recovery finds them again by walking the descriptors.

use std::collections::{BTreeMap, BTreeSet};

/// Free runs of chunks. Neighbouring runs are joined.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeExtents {
    /// Length of each run by its first chunk.
    runs: BTreeMap<u64, u64>,
    /// The same runs by length and first chunk.
    by_length: BTreeSet<(u64, u64)>,
    free: u64,
}

impl FreeExtents {
    /// Takes the first `count` chunks of the shortest run that has so many and, where `align` (in
    /// chunks, a power of two) asks for it, begins at such a multiple.
    pub(crate) fn take(&mut self, count: u64) -> Option<u64> {
        let &(length, start) = self.by_length.range((count, 0)..).next()?;
        self.by_length.remove(&(length, start));
        self.runs.remove(&start);
        self.free -= length;
        if length > count {
            self.insert(start + count, length - count);
        }
        Some(start)
    }

    /// Gives chunks back.
    pub(crate) fn give(&mut self, start: u64, count: u64) {
        let (mut first, mut length) = (start, count);
        if let Some((&before, &run)) = self.runs.range(..start).next_back() {
            debug_assert!(before + run <= start, "chunks are free once");
            if before + run == start {
                self.remove(before, run);
                (first, length) = (before, run + length);
            }
        }
        if let Some((&behind, &run)) = self.runs.range(start..).next() {
            debug_assert!(start + count <= behind, "chunks are free once");
            if start + count == behind {
                self.remove(behind, run);
                length += run;
            }
        }
        self.insert(first, length);
    }

    fn insert(&mut self, start: u64, length: u64) {
        self.runs.insert(start, length);
        self.by_length.insert((length, start));
        self.free += length;
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.runs.remove(&start);
        self.by_length.remove(&(length, start));
        self.free -= length;
    }

    /// Number of free chunks.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Length of the longest run.
    pub(crate) fn longest(&self) -> u64 {
        self.by_length.last().map_or(0, |(length, _)| *length)
    }

    /// Length of the run that ends at `end`.
    pub(crate) fn run_before(&self, end: u64) -> u64 {
        let last = self.runs.range(..end).next_back();
        last.filter(|(start, length)| **start + **length == end)
            .map_or(0, |(_, length)| *length)
    }
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of chunks are small"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The twin is an array of flags.
        #[test]
        fn runs_are_as_an_array_of_flags_has_them(
            steps in prop::collection::vec((1u64..9, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut extents = FreeExtents::default();
            extents.give(0, 64);
            let mut is_free = [true; 64];
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (count, choice) in steps {
                let give_back = !taken.is_empty() && count % 2 == 0;
                if give_back {
                    let (start, count) = taken.swap_remove(choice.index(taken.len()));
                    extents.give(start, count);
                    is_free[start as usize..(start + count) as usize].fill(true);
                } else if let Some(start) = extents.take(count) {
                    let range = start as usize..(start + count) as usize;
                    prop_assert!(is_free[range.clone()].iter().all(|free| *free));
                    is_free[range].fill(false);
                    taken.push((start, count));
                } else {
                    let longest = is_free.split(|free| !free).map(<[bool]>::len).max();
                    prop_assert!(longest.unwrap() < count as usize);
                }
                let free = is_free.iter().filter(|free| **free).count();
                prop_assert_eq!(extents.free(), free as u64);
                let longest = is_free.split(|free| !free).map(<[bool]>::len).max().unwrap();
                prop_assert_eq!(extents.longest(), longest as u64);
                let last = is_free.iter().rev().take_while(|free| **free).count();
                prop_assert_eq!(extents.run_before(64), last as u64);
            }
        }
    }
}
