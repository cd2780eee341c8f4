//! Cells whose words may not be durable yet: marks in DRAM, never on the medium.
//!
//! For structures whose writers take no lock by which readers could tell. A cell is whatever number
//! a structure has for the words that it means: the offset of one, or the hash of a key.
//!
//! A writer marks a cell before it stores a word there and takes the mark away when that is
//! durable. So a reader who finds no mark after it has read the word knows that the word is
//! durable, and one who finds a mark must see to that itself. Cells may share a mark, which costs a
//! flush now and then.

use crate::atomic::{AtomicU32, Ordering, count_log};

/// Marks for cells.
#[derive(Debug)]
pub(crate) struct PendingCells {
    counts: Box<[AtomicU32]>,
}

/// A cell that is marked until this is dropped.
#[derive(Debug)]
pub(crate) struct PendingMark<'a>(&'a AtomicU32);

impl PendingCells {
    /// 16 KiB, which stay in the cache.
    const COUNTS_LOG: u32 = count_log(12);

    pub(crate) fn new() -> PendingCells {
        PendingCells {
            counts: (0..1 << Self::COUNTS_LOG)
                .map(|_| AtomicU32::new(0))
                .collect(),
        }
    }

    #[inline]
    fn count(&self, cell: u64) -> &AtomicU32 {
        let mixed = cell.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - Self::COUNTS_LOG);
        // The index is below the number of counts; the mask tells the compiler.
        &self.counts[(mixed & ((1 << Self::COUNTS_LOG) - 1)) as usize]
    }

    /// Marks a cell.
    #[inline]
    pub(crate) fn mark(&self, cell: u64) -> PendingMark<'_> {
        let count = self.count(cell);
        // ORDER: Relaxed: the store to the cell that follows is a release, so whoever sees that
        // sees the mark, or its end.
        count.fetch_add(1, Ordering::Relaxed);
        PendingMark(count)
    }

    /// Whether a cell is marked. Its word was loaded before.
    #[inline]
    pub(crate) fn is_marked(&self, cell: u64) -> bool {
        // ORDER: Acquire pairs with the release of the last mark; the load of the word was an
        // acquire and stays before this.
        self.count(cell).load(Ordering::Acquire) != 0
    }

    /// Whether any cell is marked. The words in question were loaded before. Reads 16 KiB.
    pub(crate) fn is_any_marked(&self) -> bool {
        // ORDER: Acquire: as in `is_marked`.
        let is_marked = |count: &AtomicU32| count.load(Ordering::Acquire) != 0;
        self.counts.iter().any(is_marked)
    }
}

impl Drop for PendingMark<'_> {
    #[inline]
    fn drop(&mut self) {
        // ORDER: Release: the word is durable before the mark goes.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_counted() {
        let pending = PendingCells::new();
        assert!(!pending.is_marked(64));
        let one = pending.mark(64);
        let two = pending.mark(64);
        drop(one);
        assert!(pending.is_marked(64) && pending.is_any_marked());
        drop(two);
        assert!(!pending.is_marked(64) && !pending.is_any_marked());
    }
}
