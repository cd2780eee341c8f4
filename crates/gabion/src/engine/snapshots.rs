//! Which sequence numbers somebody still reads at.
//!
//! A flush or a compaction drops a version when a newer one hides it from every reader. Readers at
//! a fixed number (snapshots, iterators) register it here; a reader of the newest state needs no
//! registration, because a job also protects the number that was visible when it began.
//!
//! Numbers are registered in about ascending order, and few differ: every iterator registers one,
//! so what is kept is a short sorted list, which costs neither a search nor an allocation.
//!
//! # Invariants
//! - I1: a number that registers after a job took its list is not below the visible number in that
//!   list, and a job keeps every version above that number. Both are taken under one lock.

use parking_lot::Mutex;

use crate::types::Seq;

/// The registered numbers.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// Ascending, with how many readers each has: at least one.
    readers: Mutex<Vec<(Seq, usize)>>,
}

impl Snapshots {
    /// Registers the number that `visible` returns.
    pub(crate) fn register(&self, visible: impl FnOnce() -> Seq) -> Seq {
        let mut readers = self.readers.lock();
        let seq = visible();
        add_reader(&mut readers, seq);
        seq
    }

    /// Registers a number that is registered already, for one more reader.
    pub(crate) fn register_again(&self, seq: Seq) {
        add_reader(&mut self.readers.lock(), seq);
    }

    /// Ends one registration.
    pub(crate) fn release(&self, seq: Seq) {
        let mut readers = self.readers.lock();
        let at = readers.partition_point(|(other, _)| *other < seq);
        let Some((other, count)) = readers.get_mut(at) else {
            return;
        };
        if *other == seq {
            *count -= 1;
            if *count == 0 {
                readers.remove(at);
            }
        }
    }

    /// What a job that begins now must protect.
    pub(crate) fn protect(&self, visible: impl FnOnce() -> Seq) -> Protected {
        let readers = self.readers.lock();
        let visible = visible();
        let mut bounds: Vec<Seq> = readers
            .iter()
            .map(|(seq, _)| *seq)
            .filter(|seq| *seq < visible)
            .collect();
        bounds.push(visible);
        Protected { bounds }
    }

    /// The oldest number that is registered.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        self.readers.lock().first().map(|(seq, _)| *seq)
    }

    /// Number of registrations.
    pub(crate) fn count(&self) -> usize {
        self.readers.lock().iter().map(|(_, count)| count).sum()
    }
}

fn add_reader(readers: &mut Vec<(Seq, usize)>, seq: Seq) {
    let at = match readers.last() {
        Some((last, _)) if *last < seq => readers.len(),
        _ => readers.partition_point(|(other, _)| *other < seq),
    };
    match readers.get_mut(at) {
        Some((other, count)) if *other == seq => *count += 1,
        _ => readers.insert(at, (seq, 1)),
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

impl Protected {
    /// Protects readers at `visible` and above.
    pub(crate) fn only(visible: Seq) -> Protected {
        Protected {
            bounds: vec![visible],
        }
    }

    /// The largest number of a stripe.
    pub(crate) fn last_of(&self, stripe: usize) -> Seq {
        self.bounds.get(stripe).copied().unwrap_or(0)
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
