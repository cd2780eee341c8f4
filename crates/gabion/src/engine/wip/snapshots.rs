//! Which sequence numbers somebody still reads at.
//!
//! A flush or a compaction drops a version when a newer one hides it from every reader. Readers at
//! a fixed number (snapshots, iterators) register it here; a reader of the newest state needs no
//! registration, because a job also protects the number that was visible when it began.
//!
//! # Invariants
//! - I1: a number that registers after a job took its list is not below the visible number in that
//!   list, and a job keeps every version above that number. Both are taken under one lock.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::types::Seq;

/// The registered numbers, with how many readers each has.
#[derive(Default)]
pub(crate) struct Snapshots {
    readers: Mutex<BTreeMap<Seq, usize>>,
}

impl Snapshots {
    /// Registers the number that `visible` returns.
    pub(crate) fn register(&self, visible: impl FnOnce() -> Seq) -> Seq {
        let mut readers = self.readers.lock();
        let seq = visible();
        *readers.entry(seq).or_insert(0) += 1;
        seq
    }

    /// Registers a number that is registered already, for one more reader.
    pub(crate) fn register_again(&self, seq: Seq) {
        *self.readers.lock().entry(seq).or_insert(0) += 1;
    }

    /// Ends one registration.
    pub(crate) fn release(&self, seq: Seq) {
        let mut readers = self.readers.lock();
        if let Some(count) = readers.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                readers.remove(&seq);
            }
        }
    }

    /// What a job that begins now must protect.
    pub(crate) fn protect(&self, visible: impl FnOnce() -> Seq) -> Protected {
        let readers = self.readers.lock();
        let visible = visible();
        let mut bounds: Vec<Seq> = readers
            .keys()
            .copied()
            .filter(|seq| *seq < visible)
            .collect();
        bounds.push(visible);
        Protected { bounds }
    }

    /// Number of registrations.
    pub(crate) fn count(&self) -> usize {
        self.readers.lock().values().sum()
    }
}

/// The numbers that a job protects: ascending, the last one is what was visible when it began.
#[derive(Clone, Debug)]
pub(crate) struct Protected {
    bounds: Vec<Seq>,
}

impl Protected {
    /// The readers that see version `seq` unless a newer version of the key hides it, as the
    /// position of the first bound that is not below it. Versions in one stripe hide each other;
    /// those above all bounds (`None`) are all kept.
    #[inline]
    pub(crate) fn stripe(&self, seq: Seq) -> Option<usize> {
        match self.bounds.as_slice() {
            [only] => (seq <= *only).then_some(0),
            bounds => {
                let stripe = bounds.partition_point(|bound| *bound < seq);
                (stripe < bounds.len()).then_some(stripe)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protects_registered_numbers_and_the_visible_one() {
        let snapshots = Snapshots::default();
        assert_eq!(snapshots.register(|| 10), 10);
        snapshots.register_again(10);
        snapshots.register(|| 20);
        let protected = snapshots.protect(|| 30);
        let stripes: Vec<_> = [1, 10, 11, 20, 21, 30, 31]
            .map(|seq| protected.stripe(seq))
            .to_vec();
        assert_eq!(
            stripes,
            [Some(0), Some(0), Some(1), Some(1), Some(2), Some(2), None]
        );
        snapshots.release(10);
        assert_eq!(snapshots.count(), 2);
        snapshots.release(10);
        snapshots.release(20);
        assert_eq!(snapshots.count(), 0);
        assert_eq!(snapshots.protect(|| 30).stripe(5), Some(0));
    }
}
