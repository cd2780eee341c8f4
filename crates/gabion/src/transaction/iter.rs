//! The pairs of a range as a transaction sees them.
//!
//! # Invariants
//! - N1. What an end has passed is noted as read before its pair is handed out, so that no
//!   iterator that is forgotten, or left in the middle, leaves a read that the commit knows nothing
//!   of.
//! - N2. The ends meet: each source hands a pair to one of them.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;

use super::write_set::{DeletedRanges, WriteSetRange};
use super::{Transaction, merges};
use crate::engine::{self, ReadSet};
use crate::expiry::{StoredRecord, UnixMillis};
use crate::merge::MergeOperator;
use crate::ranges::key_range;
use crate::types::Kind;
use crate::{Error, Iter, Keyspace, Result, Slice};

/// The pairs of a keyspace in a range, as a transaction sees them: its own writes on those of its
/// beginning. In the order of their keys from the front, and in the opposite order from the back.
/// An error ends it.
#[must_use = "an iterator reads nothing before it is asked"]
pub struct TransactionIter<'t> {
    transaction: &'t Transaction,
    keyspace: u32,
    /// Where its reads are noted, if they are.
    notes: Option<&'t RefCell<ReadSet>>,
    /// None once it has ended.
    sources: Option<Sources<'t>>,
    /// Why there are none, until it is told.
    refused: Option<Error>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// Places of what the two ends have read.
    front: Option<usize>,
    back: Option<usize>,
}

struct Sources<'t> {
    /// The transaction's moment.
    moment: UnixMillis,
    operator: Option<MergeOperator>,
    stored: Ends<Iter>,
    own: Option<(Ends<WriteSetRange<'t>>, &'t DeletedRanges)>,
}

/// An iterator with both ends in view.
struct Ends<I: Iterator> {
    iter: I,
    front: Option<I::Item>,
    back: Option<I::Item>,
}

/// One of the ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl<I: DoubleEndedIterator> Ends<I> {
    fn new(iter: I) -> Ends<I> {
        Ends {
            iter,
            front: None,
            back: None,
        }
    }

    /// What comes next at an end.
    fn peek(&mut self, end: End) -> Option<&I::Item> {
        match end {
            End::Front => {
                if self.front.is_none() {
                    self.front = self.iter.next().or_else(|| self.back.take());
                }
                self.front.as_ref()
            }
            End::Back => {
                if self.back.is_none() {
                    self.back = self.iter.next_back().or_else(|| self.front.take());
                }
                self.back.as_ref()
            }
        }
    }

    /// Takes what [`Ends::peek`] has shown.
    fn take(&mut self, end: End) -> Option<I::Item> {
        match end {
            End::Front => self.front.take(),
            End::Back => self.back.take(),
        }
    }
}

impl<'t> TransactionIter<'t> {
    pub(super) fn new(
        transaction: &'t Transaction,
        keyspace: &Keyspace,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> TransactionIter<'t> {
        let mut iter = TransactionIter {
            transaction,
            keyspace: keyspace.id(),
            notes: transaction.notes(keyspace, transaction.checks_reads()),
            sources: None,
            refused: None,
            lower: Vec::new(),
            upper: None,
            front: None,
            back: None,
        };
        let Some((lower, upper)) = key_range(bounds) else {
            return iter;
        };
        match Sources::new(transaction, keyspace, bounds, (&lower, upper.as_deref())) {
            Ok(sources) => iter.sources = Some(sources),
            Err(error) => iter.refused = Some(error),
        }
        iter.lower = lower;
        iter.upper = upper;
        iter
    }

    fn next_at(&mut self, end: End) -> Option<Result<(Slice, Slice)>> {
        if let Some(refused) = self.refused.take() {
            return Some(Err(refused));
        }
        let sources = self.sources.as_mut()?;
        let still_open = self.transaction.open.read().map(drop);
        let found = still_open.and_then(|()| sources.next(end));
        let noted = found.and_then(|found| {
            self.note(end, found.as_ref().map(|(key, _)| &key[..]))?;
            Ok(found)
        });
        if !matches!(noted, Ok(Some(_))) {
            self.sources = None;
        }
        noted.transpose()
    }

    /// Notes that an end has come to a key, or has passed all.
    fn note(&mut self, end: End, key: Option<&[u8]>) -> Result<()> {
        self.transaction.has_read.set(true);
        let Some(notes) = self.notes else {
            return Ok(());
        };
        let mut reads = notes.borrow_mut();
        let place = match end {
            End::Front => &mut self.front,
            End::Back => &mut self.back,
        };
        let mut bytes = 0;
        let at = *place.get_or_insert_with(|| {
            bytes = 2 * self.lower.len() + 64;
            reads.note_range(self.keyspace, self.lower.clone(), self.upper.clone())
        });
        if let Some(range) = reads.range_mut(at) {
            match (end, key) {
                (End::Front, Some(key)) => {
                    let upper = range.upper.get_or_insert_default();
                    upper.clear();
                    upper.extend_from_slice(key);
                    upper.push(0);
                }
                (End::Back, Some(key)) => {
                    range.lower.clear();
                    range.lower.extend_from_slice(key);
                }
                (End::Front, None) => range.upper.clone_from(&self.upper),
                (End::Back, None) => range.lower.clone_from(&self.lower),
            }
        }
        drop(reads);
        self.transaction.take_bytes(bytes)
    }
}

impl<'t> Sources<'t> {
    fn new(
        transaction: &'t Transaction,
        keyspace: &Keyspace,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        range: (&[u8], Option<&[u8]>),
    ) -> Result<Sources<'t>> {
        transaction.check_own(keyspace)?;
        let (store, held) = (&transaction.store, transaction.open.read()?);
        store.engine.share_snapshot(held.point());
        let scan = engine::scan_snapshot(store, keyspace.inner(), held.point(), lower, upper);
        let moment = held.point().moment;
        drop(held);
        let own = transaction.own.range(keyspace.id(), range.0, range.1);
        Ok(Sources {
            moment,
            operator: keyspace.inner().merge_operator(),
            stored: Ends::new(Iter::new(scan)),
            own: own.map(|(own, deleted)| (Ends::new(own), deleted)),
        })
    }

    fn next(&mut self, end: End) -> Result<Option<(Slice, Slice)>> {
        loop {
            let stored = match self.stored.peek(end) {
                Some(Ok((key, _))) => Some(key),
                Some(Err(_)) => return self.stored.take(end).transpose(),
                None => None,
            };
            let own = self.own.as_mut().and_then(|(own, _)| own.peek(end));
            let order = match (own, stored) {
                (None, None) => return Ok(None),
                (None, Some(_)) => Ordering::Greater,
                (Some(_), None) => Ordering::Less,
                (Some((own, _)), Some(stored)) => match end {
                    End::Front => own[..].cmp(&stored[..]),
                    End::Back => stored[..].cmp(&own[..]),
                },
            };
            if order.is_gt() {
                let pair = self.stored.take(end).transpose()?;
                let is_deleted = |key: &[u8]| {
                    let own = self.own.as_ref();
                    own.is_some_and(|(_, deleted)| deleted.covers(key))
                };
                match pair {
                    Some((key, _)) if is_deleted(&key) => continue,
                    pair => return Ok(pair),
                }
            }
            let stored = match order.is_eq() {
                true => self.stored.take(end).transpose()?,
                false => None,
            };
            let own = self.own.as_mut().and_then(|(own, _)| own.take(end));
            if let Some((key, Some(record))) = own
                && let Some(record) = self.record_of(key, record, stored)?
            {
                return Ok(Some((Slice::new(key), record.into_value())));
            }
        }
    }
}

impl Sources<'_> {
    /// What an own record is to a reader, where the store has this pair of its key.
    fn record_of(
        &self,
        key: &[u8],
        own: &StoredRecord,
        stored: Option<(Slice, Slice)>,
    ) -> Result<Option<StoredRecord>> {
        let Some(mut operands) = merges::operands_of(own)? else {
            return Ok(own.clone().at(|| self.moment));
        };
        if merges::is_open(&operands) {
            let base = stored.map(|(_, value)| StoredRecord::new(Kind::Put, value));
            merges::set_base(&mut operands, base.as_ref())?;
        }
        operands.read(merges::asked(&self.operator, key, self.moment))
    }
}

impl Iterator for TransactionIter<'_> {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Result<(Slice, Slice)>> {
        self.next_at(End::Front)
    }
}

impl DoubleEndedIterator for TransactionIter<'_> {
    fn next_back(&mut self) -> Option<Result<(Slice, Slice)>> {
        self.next_at(End::Back)
    }
}

impl std::iter::FusedIterator for TransactionIter<'_> {}

impl fmt::Debug for TransactionIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionIter").finish_non_exhaustive()
    }
}
