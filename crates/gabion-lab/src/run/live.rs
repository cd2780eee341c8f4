//! Which records the store holds, so that its size can be compared with theirs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::workload::keys::KeyId;

/// One bit for each record of a fill, and a count of those that workloads inserted besides.
///
/// Threads that put and delete one record within [`CHANGES`] operations of each other may leave its
/// bit as either of them says.
// ORDER: Relaxed throughout; bits and counts are read after the threads have been joined.
#[derive(Debug)]
pub(super) struct Live {
    bits: Vec<AtomicU64>,
    inserted: AtomicU64,
    /// Inserted records were deleted: nobody knows how many are left.
    is_lost: AtomicBool,
}

/// Changes that are noted at once.
const CHANGES: usize = 32;

/// What one thread has put and deleted and not noted yet; dropping it notes the rest.
///
/// The bits of a large store are in no cache near the core. Looking at some of them together costs
/// hardly more than at one, since no look waits for another.
#[derive(Debug)]
pub(super) struct Changes<'a> {
    live: &'a Live,
    /// Records, and whether they were put.
    waiting: [(KeyId, bool); CHANGES],
    len: usize,
}

impl<'a> Changes<'a> {
    pub(super) fn of(live: &'a Live) -> Changes<'a> {
        Changes {
            live,
            waiting: [(KeyId::default(), false); CHANGES],
            len: 0,
        }
    }

    /// The record was put or deleted.
    #[inline]
    pub(super) fn add(&mut self, id: KeyId, is_put: bool) {
        self.waiting[self.len] = (id, is_put);
        self.len += 1;
        if self.len == CHANGES {
            self.note();
        }
    }

    /// A record that was not there before was put.
    #[inline]
    pub(super) fn insert(&mut self) {
        self.live.insert();
    }

    fn note(&mut self) {
        let waiting = &self.waiting[..self.len];
        let seen = waiting
            .iter()
            .fold(0, |seen, (id, _)| seen ^ self.live.look(*id));
        std::hint::black_box(seen);
        for (id, is_put) in waiting {
            match is_put {
                true => self.live.put(*id),
                false => self.live.delete(*id),
            }
        }
        self.len = 0;
    }
}

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        self.note();
    }
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

    /// The word of the record's bit.
    #[inline]
    fn look(&self, id: KeyId) -> u64 {
        self.word(id)
            .map_or(0, |(word, _)| word.load(Ordering::Relaxed))
    }

    /// Whether the record is there.
    pub(super) fn has(&self, id: KeyId) -> bool {
        self.word(id)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Those of a fill's records that are there, in key order.
    pub(super) fn records(&self) -> impl Iterator<Item = KeyId> {
        let numbers = 0..self.bits.len() as u64 * 64;
        let id = |number| KeyId {
            number,
            generation: 0,
        };
        numbers.map(id).filter(|id| self.has(*id))
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
    fn insert(&self) {
        self.inserted.fetch_add(1, Ordering::Relaxed);
    }

    /// The record was deleted.
    #[inline]
    fn delete(&self, id: KeyId) {
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
        let numbers: Vec<u64> = live.records().map(|id| id.number).collect();
        assert_eq!(numbers, [0, 63, 64, 129]);
        live.delete(id(64));
        live.delete(id(65));
        assert_eq!(live.count(), Some(4));
        live.delete(KeyId {
            number: 3,
            generation: 1,
        });
        assert_eq!(live.count(), None);
    }

    #[test]
    fn changes_are_noted_in_their_order_and_none_is_left_out() {
        let live = Live::new(1000);
        let id = |number| KeyId {
            number,
            generation: 0,
        };
        let mut changes = Changes::of(&live);
        for number in 0..100 {
            changes.add(id(number), true);
            changes.add(id(number), number % 2 == 0);
            changes.add(id(number), number % 5 != 0);
        }
        changes.insert();
        drop(changes);
        assert_eq!(live.count(), Some(81));
    }
}
