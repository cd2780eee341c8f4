//! Segments that are kept for those who read on, though the store needs them no more.
//!
//! # Idea
//! Each reader that is known by a name stands at a position, and segments from there on stay. They
//! lie in front of the log's tail: no recovery replays them, and they are no part of the length by
//! which the log is shortened. They may take so many bytes; what is more goes from the front, and
//! with it the readers that stand there are *cut off*: nothing is kept for them any more.
//!
//! # Invariants
//! - K1. Kept segments follow each other and the log without a gap.
//! - K2. They are durable.

use std::collections::VecDeque;

use super::SealedLog;
use super::layout::Lsn;

/// What is kept, and for whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogRetention {
    /// The segments, ascending, with their lengths.
    pub(super) segments: VecDeque<SealedLog>,
    /// Where readers stand.
    readers: Vec<Lsn>,
    /// Readers that stand before this position are cut off.
    cut: Lsn,
}

impl LogRetention {
    /// Nothing yet, for readers at these positions.
    pub(super) fn of_readers(readers: &[Lsn]) -> LogRetention {
        LogRetention {
            readers: readers.to_vec(),
            ..LogRetention::default()
        }
    }

    /// Readers stand here now.
    pub(super) fn set_readers(&mut self, readers: &[Lsn]) {
        readers.clone_into(&mut self.readers);
    }

    /// Readers before a position are cut off.
    pub(super) fn cut_off(&mut self, before: Lsn) {
        self.cut = self.cut.max(before);
    }

    /// Whether a reader at that position is cut off.
    pub(super) fn is_invalidated(&self, at: Lsn) -> bool {
        at < self.cut
    }

    /// The first segment that a reader needs who is not cut off.
    pub(super) fn from(&self) -> Option<u64> {
        let readers = self.readers.iter().filter(|at| !self.is_invalidated(**at));
        readers.map(|at| at.segment()).min()
    }

    /// Bytes of the segments.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|log| log.length).sum()
    }

    /// Takes out the first segment, if nobody needs it or all of them have more than `bytes_max`
    /// bytes.
    pub(super) fn take_outdated(&mut self, bytes_max: u64) -> Option<SealedLog> {
        let first = *self.segments.front()?;
        let is_needed = self.from().is_some_and(|from| from <= first.segment);
        if is_needed {
            if self.bytes() <= bytes_max {
                return None;
            }
            self.cut_off(first.end());
        }
        self.segments.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(readers: &[Lsn], lengths: &[u64]) -> LogRetention {
        let mut kept = LogRetention::of_readers(readers);
        let segments = (1..).zip(lengths);
        kept.segments = segments
            .map(|(segment, &length)| SealedLog { segment, length })
            .collect();
        kept
    }

    fn take_all(kept: &mut LogRetention, bytes_max: u64) -> Vec<u64> {
        std::iter::from_fn(|| kept.take_outdated(bytes_max))
            .map(|log| log.segment)
            .collect()
    }

    #[test]
    fn what_the_slowest_reader_needs_stays() {
        let mut kept = kept(&[Lsn::new(3, 70), Lsn::new(2, 90)], &[100; 4]);
        assert_eq!(kept.from(), Some(2));
        assert_eq!(take_all(&mut kept, 1000), [1]);
        kept.set_readers(&[Lsn::new(3, 70), Lsn::new(4, 90)]);
        assert_eq!(take_all(&mut kept, 1000), [2]);
        kept.set_readers(&[]);
        assert_eq!(take_all(&mut kept, 1000), [3, 4]);
    }

    #[test]
    fn the_slowest_reader_is_cut_off_and_holds_nothing_up_from_then_on() {
        let (slow, fast) = (Lsn::new(1, 64), Lsn::new(4, 64));
        let mut kept = kept(&[slow, fast], &[100; 5]);
        assert_eq!(take_all(&mut kept, 500), [0; 0]);
        // The first one goes for its bytes, the others as nobody is left for them.
        assert_eq!(take_all(&mut kept, 499), [1, 2, 3]);
        assert!(kept.is_invalidated(slow) && !kept.is_invalidated(fast));
        assert_eq!((kept.from(), kept.bytes()), (Some(4), 200));
    }

    #[test]
    fn who_has_read_all_that_went_is_not_cut_off() {
        let mut kept = kept(&[Lsn::new(1, 100)], &[100; 2]);
        assert_eq!(take_all(&mut kept, 100), [1]);
        assert!(!kept.is_invalidated(Lsn::new(1, 100)));
        assert!(kept.is_invalidated(Lsn::new(1, 99)));
    }
}
