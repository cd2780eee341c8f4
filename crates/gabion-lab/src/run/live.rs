//! Which records the store holds, so that its size can be compared with theirs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::workload::keys::KeyId;

/// One bit for each record of a fill, and a count of those that workloads inserted besides.
///
/// Threads that put and delete one record at the same instant may leave its bit as either of them
/// says, as the store does with the record.
// ORDER: Relaxed throughout; bits and counts are read after the threads have been joined.
#[derive(Debug)]
pub(super) struct Live {
    bits: Vec<AtomicU64>,
    inserted: AtomicU64,
    /// Inserted records were deleted: nobody knows how many are left.
    is_lost: AtomicBool,
}

// ORDER: Relaxed throughout; bits and counts are read after the threads have been joined.
impl Live {
    pub(super) fn new(num: u64) -> Live {
        let words = usize::try_from(num.div_ceil(64)).unwrap_or(usize::MAX);
        Live {
            bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
            inserted: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
        }
    }

    fn word(&self, id: KeyId) -> Option<(&AtomicU64, u64)> {
        let word = self.bits.get(usize::try_from(id.number / 64).ok()?)?;
        Some((word, 1 << (id.number % 64)))
    }

    /// The record was put.
    #[inline]
    pub(super) fn put(&self, id: KeyId) {
        if id.generation > 0 {
            return;
        }
        if let Some((word, bit)) = self.word(id)
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// A record that was not there before was put.
    #[inline]
    pub(super) fn insert(&self) {
        self.inserted.fetch_add(1, Ordering::Relaxed);
    }

    /// The record was deleted.
    #[inline]
    pub(super) fn delete(&self, id: KeyId) {
        if id.generation > 0 {
            self.is_lost.store(true, Ordering::Relaxed);
            return;
        }
        if let Some((word, bit)) = self.word(id)
            && word.load(Ordering::Relaxed) & bit != 0
        {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// How many records there are, unless the count was lost.
    pub(super) fn count(&self) -> Option<u64> {
        if self.is_lost.load(Ordering::Relaxed) {
            return None;
        }
        let count = |word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones());
        let old: u64 = self.bits.iter().map(count).sum();
        Some(old + self.inserted.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_once_until_they_are_deleted() {
        let live = Live::new(130);
        let id = |number| KeyId {
            number,
            generation: 0,
        };
        for number in [0, 63, 64, 129, 129] {
            live.put(id(number));
        }
        live.insert();
        assert_eq!(live.count(), Some(5));
        live.delete(id(64));
        live.delete(id(65));
        assert_eq!(live.count(), Some(4));
        live.delete(KeyId {
            number: 3,
            generation: 1,
        });
        assert_eq!(live.count(), None);
    }
}
