//! The entry of the greatest key, 2^64 - 1, which marks free slots in nodes and so has a place of
//! its own in the header: a value, and whether it is there.

use std::sync::atomic::Ordering;

use super::FastFair;
use super::layout::NO_KEY;

/// The key that no node holds.
pub(super) const GREATEST: u64 = NO_KEY;

// ORDER: Relaxed throughout: under the lock of the header.
impl<const N: usize> FastFair<N> {
    /// Its value.
    #[cold]
    pub(super) fn get_greatest(&self) -> Option<u64> {
        let _lock = self.locks.lock(self.header.raw());
        self.peek_greatest()
    }

    fn peek_greatest(&self) -> Option<u64> {
        let header = self.header();
        let is_there = header.has_greatest.load(&self.medium, Ordering::Relaxed) != 0;
        is_there.then(|| header.greatest.load(&self.medium, Ordering::Relaxed))
    }

    /// Stores its value; only if it is there, if `is_update`. Returns the value before.
    #[cold]
    pub(super) fn put_greatest(&self, value: u64, is_update: bool) -> Option<u64> {
        let _lock = self.locks.lock(self.header.raw());
        let before = self.peek_greatest();
        let (medium, header) = (&self.medium, self.header());
        if before.is_some() || !is_update {
            // ORDER: Release: the order within the line counts.
            header.greatest.store(medium, value, Ordering::Release);
            header.has_greatest.store(medium, 1, Ordering::Release);
            // DURABLE: both words, of one line: the value is on the medium when the mark is.
            medium.persist(header);
        }
        before
    }

    /// Takes it away.
    #[cold]
    pub(super) fn remove_greatest(&self) -> Option<u64> {
        let _lock = self.locks.lock(self.header.raw());
        let before = self.peek_greatest();
        if before.is_some() {
            // DURABLE: the delete.
            let mark = &self.header().has_greatest;
            mark.store_persist(&self.medium, 0, Ordering::Relaxed);
        }
        before
    }
}
