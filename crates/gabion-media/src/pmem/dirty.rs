//! Tracks the pages of a medium that changed since its last checkpoint.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// One bit for each page.
#[derive(Debug)]
pub(super) struct DirtyPages {
    words: Box<[AtomicU64]>,
}

impl DirtyPages {
    /// No page of a medium of `len` bytes is dirty.
    pub(super) fn new(len: u64) -> DirtyPages {
        let count = len.div_ceil(PAGE * 64);
        DirtyPages {
            words: (0..count).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Notes that a range changed. Costs a load where its pages are known to have.
    #[inline]
    pub(super) fn note(&self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        for page in offset / PAGE..=(offset + len - 1) / PAGE {
            let (word, bit) = self.place(page);
            // ORDER: Relaxed: a checkpoint reads the bits after it has waited for all writers at
            // their gate, whose lock orders both the bits and the bytes.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    fn place(&self, page: u64) -> (&AtomicU64, u64) {
        let index = usize::try_from(page / 64).unwrap_or(usize::MAX);
        (&self.words[index], 1 << (page % 64))
    }

    /// Takes the numbers of all dirty pages, in their order; none is dirty then.
    pub(super) fn take(&self) -> Vec<u64> {
        let mut pages = Vec::new();
        for (base, word) in (0..).step_by(64).zip(&self.words) {
            // ORDER: Relaxed: as for `note`.
            let mut bits = if word.load(Ordering::Relaxed) == 0 {
                0
            } else {
                word.swap(0, Ordering::Relaxed)
            };
            while bits != 0 {
                pages.push(base + u64::from(bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
        pages
    }

    /// Notes pages that were taken in vain.
    pub(super) fn put_back(&self, pages: &[u64]) {
        for page in pages {
            self.note(page * PAGE, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_noted_once_and_taken_once() {
        let dirty = DirtyPages::new(200 * PAGE);
        dirty.note(PAGE - 1, 2);
        dirty.note(PAGE - 1, 1);
        dirty.note(64 * PAGE, 3 * PAGE);
        dirty.note(199 * PAGE + 4095, 1);
        dirty.note(77, 0);
        assert_eq!(dirty.take(), [0, 1, 64, 65, 66, 199]);
        assert!(dirty.take().is_empty());
        dirty.put_back(&[3, 100]);
        assert_eq!(dirty.take(), [3, 100]);
    }
}
