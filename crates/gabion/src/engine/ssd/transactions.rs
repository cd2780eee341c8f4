//! The transactions that are open, and the end of those that are too old.
//!
//! # Idea
//! An open transaction keeps old versions alive as a snapshot does. So a store knows which there
//! are and since when, and may be told to end those that are open for too long
//! ([`Options::transaction_age_max`](crate::Options::transaction_age_max)): their number is
//! registered no more, and what they do next is an error that says so.
//!
//! # Invariants
//! - O1. A number is released once: by whoever takes it out of [`OpenTransaction::take`].
//! - O2. Who reads at the number holds the lock under which it would be taken out.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::expiry::ReadPoint;
use crate::stripe::Striped;
use crate::{Error, Result};

/// A transaction that was begun.
#[derive(Debug)]
pub(crate) struct OpenTransaction {
    /// When, by the store's clock.
    begun: Duration,
    /// What it reads, until that is released.
    point: Mutex<Option<ReadPoint>>,
}

/// What a transaction reads, which stays registered as long as this lives.
pub(crate) struct PinnedReadPoint<'t> {
    point: ReadPoint,
    /// O2.
    _held: MutexGuard<'t, Option<ReadPoint>>,
}

impl PinnedReadPoint<'_> {
    /// The point.
    pub(crate) fn point(&self) -> ReadPoint {
        self.point
    }
}

impl OpenTransaction {
    /// What it reads; an error once the store has ended it.
    pub(crate) fn read(&self) -> Result<PinnedReadPoint<'_>> {
        let held = self.point.lock();
        let point = (*held).ok_or(Error::TransactionTooOld)?;
        Ok(PinnedReadPoint { point, _held: held })
    }

    /// Takes the point out, which the caller releases; `None` if somebody else has, or reads at it
    /// at this moment.
    pub(crate) fn take(&self) -> Option<ReadPoint> {
        self.point.try_lock()?.take()
    }
}

/// All transactions that are open.
#[derive(Debug, Default)]
pub(crate) struct OpenTransactions {
    open: Striped<Mutex<Vec<Arc<OpenTransaction>>>>,
}

impl OpenTransactions {
    /// Begins one that reads at `point`, which is registered for it.
    pub(crate) fn begin(&self, point: ReadPoint, now: Duration) -> Arc<OpenTransaction> {
        let begun = Arc::new(OpenTransaction {
            begun: now,
            point: Mutex::new(Some(point)),
        });
        self.open.own().lock().push(Arc::clone(&begun));
        begun
    }

    /// Forgets one that has ended. Another thread than that which began it may do so.
    pub(crate) fn end(&self, ended: &Arc<OpenTransaction>) {
        let is_it = |open: &Arc<OpenTransaction>| Arc::ptr_eq(open, ended);
        let forget = |stripe: &Mutex<Vec<Arc<OpenTransaction>>>| {
            let mut open = stripe.lock();
            let at = open.iter().position(is_it);
            at.map(|at| drop(open.swap_remove(at))).is_some()
        };
        if !forget(self.open.own()) {
            self.open.all().any(forget);
        }
    }

    /// How many there are, and when the oldest of them began.
    pub(crate) fn count_and_oldest(&self) -> (u64, Option<Duration>) {
        let (mut count, mut oldest) = (0, None);
        for stripe in self.open.all() {
            let open = stripe.lock();
            count += open.len() as u64;
            let first = open.iter().map(|open| open.begun).min();
            oldest = oldest.into_iter().chain(first).min();
        }
        (count, oldest)
    }

    /// Those that began before a moment.
    pub(crate) fn begun_before(&self, moment: Duration) -> Vec<Arc<OpenTransaction>> {
        let is_old = |open: &&Arc<OpenTransaction>| open.begun < moment;
        let mut old = Vec::new();
        for stripe in self.open.all() {
            old.extend(stripe.lock().iter().filter(is_old).cloned());
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_released_once_and_by_whoever_comes_first() {
        let transactions = OpenTransactions::default();
        let at = Duration::from_secs;
        let (first, second) = (
            transactions.begin(ReadPoint::early(7), at(1)),
            transactions.begin(ReadPoint::early(9), at(2)),
        );
        assert_eq!(transactions.count_and_oldest(), (2, Some(at(1))));
        assert_eq!(transactions.begun_before(at(1)).len(), 0);
        let old = transactions.begun_before(at(2));
        assert!(old.len() == 1 && Arc::ptr_eq(&old[0], &first));
        assert_eq!(first.read().unwrap().point().seq, 7);
        assert_eq!(
            (old[0].take(), first.take()),
            (Some(ReadPoint::early(7)), None)
        );
        assert!(matches!(
            first.read().map(|_| ()),
            Err(Error::TransactionTooOld)
        ));
        assert_eq!(second.read().unwrap().point().seq, 9);
        // Another thread ends it.
        std::thread::scope(|scope| {
            scope.spawn(|| transactions.end(&first)).join().unwrap();
        });
        transactions.end(&first);
        assert_eq!(transactions.count_and_oldest(), (1, Some(at(2))));
        transactions.end(&second);
        assert_eq!(transactions.count_and_oldest(), (0, None));
    }
}
