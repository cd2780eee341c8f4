//! Whether the system drops what it has of tables from memory.
//!
//! # Idea
//! A block of a mapped table is read by a call once, and then wherever the system keeps it. If the
//! system needed the memory for something else, the next reader waits for the medium in a page
//! fault, of which nobody tells it. So reads whose waits would overlap if they were announced come
//! one after the other. To ask the system about every block costs as much as the search of a block;
//! so one read in [`ASK_ONE_IN`] asks on behalf of all. Once a block is found gone, the
//! next [`ANNOUNCED`] reads announce what they will read, and each of them asks.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// One read of a thread in so many asks, as long as nothing was found gone.
const ASK_ONE_IN: u32 = 32;

/// So many reads announce their blocks after one of which a block was gone.
const ANNOUNCED: u32 = 64;

/// What reads found of late.
#[derive(Debug, Default)]
pub(crate) struct PageResidency {
    /// How many reads are still to announce their blocks. About right is enough.
    left: AtomicU32,
}

impl PageResidency {
    /// Whether a read that begins now should announce even blocks that were read before;
    /// `is_in_memory` asks the system about one of those that it will read.
    #[inline]
    pub(in super::super) fn is_lost(&self, is_in_memory: impl FnOnce() -> bool) -> bool {
        // ORDER: Relaxed (all of this file); the number orders nothing.
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 && !is_one_in_many() {
            return false;
        }
        let next = match is_in_memory() {
            true => left.saturating_sub(1),
            false => ANNOUNCED,
        };
        if next != left {
            // ORDER: Relaxed, see above.
            self.left.store(next, Ordering::Relaxed);
        }
        next > 0
    }
}

#[inline]
fn is_one_in_many() -> bool {
    thread_local! {
        /// Reads of the thread that pass before one asks.
        static LEFT: Cell<u32> = const { Cell::new(ASK_ONE_IN - 1) };
    }
    LEFT.with(|left| {
        let is_due = left.get() == 0;
        left.set(if is_due { ASK_ONE_IN } else { left.get() } - 1);
        is_due
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_read_in_many_asks_until_a_block_is_gone() {
        let mut residency = PageResidency::default();
        let mut asked = 0;
        for _ in 0..10 * ASK_ONE_IN {
            assert!(!residency.is_lost(|| {
                asked += 1;
                true
            }));
        }
        assert_eq!(asked, 10);
        let reads = (0..).take_while(|_| !residency.is_lost(|| false)).count();
        assert!(reads < ASK_ONE_IN as usize);
        // All blocks are there again.
        let announced = (0..).take_while(|_| residency.is_lost(|| true)).count();
        assert_eq!(announced, ANNOUNCED as usize - 1);
        assert_eq!(*residency.left.get_mut(), 0);
    }
}
