//! Transactions beside everything else, and what their commits must say.
//!
//! The twin says what a commit finds: if anything that was read has another value now, it is a
//! conflict; if nobody has written to any of that since the transaction began, it is none. In
//! between, where somebody wrote what was there before, the engine may say either: it compares
//! numbers of writes, and a compaction may forget a key that came and went.

use std::ops::{Bound, RangeBounds};

use gabion::{Db, Durability, Error, Isolation, Savepoint, Transaction, TransactionOptions};

use super::action::{Part, Step};
use super::machine::{Expected, bounds, within};
use crate::support::{Bounds, Change, Operation, Subject, Twin};

/// What a commit depends on: keys of a keyspace, from the first one on, and below the second one.
type Noted = (usize, Bounds);

/// How commits ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ended {
    #[default]
    Committed,
    Conflicted,
    /// Somebody wrote what was there before.
    Undecided,
}

/// An open transaction and its twin.
pub(super) struct Open {
    transaction: Transaction,
    isolation: Isolation,
    /// What the store held when it began, and with its own writes.
    base: Twin,
    own: Twin,
    /// How much had been written then.
    since: usize,
    writes: Vec<Operation>,
    noted: Vec<Noted>,
    /// With its own writes then, and how many there were, and notes.
    savepoints: Vec<(Savepoint, Twin, usize, usize)>,
    /// Whether anything was read of the store, also before a rollback.
    has_read: bool,
}

impl Open {
    /// Begins one of a store that holds what its twin holds, after so many writes.
    pub(super) fn new(db: &Db, isolation: Isolation, twin: &Twin, since: usize) -> Open {
        let options = TransactionOptions::default().isolation(isolation);
        Open {
            transaction: db.begin_with(options).expect("begin"),
            isolation,
            base: twin.clone(),
            own: twin.clone(),
            since,
            writes: Vec::new(),
            noted: Vec::new(),
            savepoints: Vec::new(),
            has_read: false,
        }
    }

    /// Does a step and compares what it reads.
    pub(super) fn act(&mut self, subject: &Subject, step: &Step) {
        match step {
            Step::Get(keyspace, key, for_update) => {
                let handle = &subject.keyspaces[*keyspace];
                let key = key.bytes();
                let found = match for_update {
                    true => self.transaction.get_for_update(handle, &key),
                    false => self.transaction.get(handle, &key),
                };
                let expected = self.own.pairs(*keyspace).get(&key).map(|value| &value[..]);
                assert_eq!(found.expect("get").as_deref(), expected, "of a transaction");
                if !self.has_written(*keyspace, &key) {
                    self.note_key(*keyspace, key, *for_update);
                }
            }
            Step::Scan(keyspace, range, ends, steps) => {
                self.scan(subject, *keyspace, &bounds(range), *ends, *steps);
            }
            Step::Write(part) => self.write(subject, part),
            Step::Savepoint => {
                let savepoint = self.transaction.savepoint();
                let (writes, noted) = (self.writes.len(), self.noted.len());
                self.savepoints
                    .push((savepoint, self.own.clone(), writes, noted));
            }
            Step::RollBack(at) if !self.savepoints.is_empty() => {
                self.savepoints.truncate(at % self.savepoints.len() + 1);
                let (savepoint, own, writes, noted) = self.savepoints.last().expect("one");
                let rolled_back = self.transaction.rollback_to(*savepoint);
                rolled_back.expect("a savepoint");
                self.own = own.clone();
                self.writes.truncate(*writes);
                self.noted.truncate(*noted);
            }
            Step::RollBack(_) => {}
        }
    }

    fn scan(&mut self, subject: &Subject, keyspace: usize, range: &Bounds, ends: u64, steps: u8) {
        let handle = &subject.keyspaces[keyspace];
        let mut expected: Expected = within(self.own.pairs(keyspace), range);
        let mut iterator = self.transaction.range(handle, range.clone());
        // What each end has come to; all of the range, once one of them has found no more.
        let (mut front, mut back) = (None, None);
        for step in 0..steps {
            let is_front = ends >> (step % 64) & 1 == 0;
            let (found, expected) = match is_front {
                true => (iterator.next(), expected.pop_front()),
                false => (iterator.next_back(), expected.pop_back()),
            };
            let found = found.transpose().expect("a sound store can be scanned");
            assert!(
                found.as_ref().map(|(key, value)| (&**key, &**value))
                    == expected.as_ref().map(|(key, value)| (&key[..], &value[..])),
                "step {step} of a scan of a transaction"
            );
            let end = if is_front { &mut front } else { &mut back };
            let Some((key, _)) = expected else {
                (front, back) = (Some(range.clone()), None);
                break;
            };
            *end = Some(match is_front {
                true => (range.0.clone(), Bound::Included(key)),
                false => (Bound::Included(key), range.1.clone()),
            });
        }
        drop(iterator);
        let passed = [front, back].into_iter().flatten();
        for passed in passed.filter(holds_keys) {
            self.has_read = true;
            if self.isolation == Isolation::Serializable {
                self.noted.push((keyspace, passed));
            }
        }
    }

    fn write(&mut self, subject: &Subject, part: &Part) {
        let own = part.operation();
        if part.has_long_bound() {
            // Whether it holds any key depends on how long keys may be.
            return;
        }
        let handle = &subject.keyspaces[own.keyspace];
        let written = match &own.change {
            Change::Put(key, value) => self.transaction.put(handle, key, value),
            Change::Delete(key) => self.transaction.delete(handle, key),
            Change::DeleteRange(range) => self.transaction.delete_range(handle, range.clone()),
        };
        written.expect("a write of a transaction");
        if holds_keys(&touched(&own)) {
            self.own.apply(&own);
            self.writes.push(own);
        }
    }

    fn note_key(&mut self, keyspace: usize, key: Vec<u8>, for_update: bool) {
        self.has_read = true;
        if for_update || self.isolation == Isolation::Serializable {
            self.noted.push((keyspace, one_key(key)));
        }
    }

    fn has_written(&self, keyspace: usize, key: &[u8]) -> bool {
        let mut own = self.writes.iter();
        own.any(|own| own.keyspace == keyspace && touched(own).contains(&key.to_vec()))
    }

    /// A keyspace is dropped and another one made of its name: says whether that ends the
    /// transaction, as it has used it.
    pub(super) fn loses(&mut self, keyspace: usize) -> bool {
        let is_used = self.writes.iter().any(|own| own.keyspace == keyspace)
            || self.noted.iter().any(|noted| noted.0 == keyspace);
        // What it would find in the new one.
        self.base = self.base.without(keyspace);
        self.own = self.own.without(keyspace);
        // Old states may have used it, too.
        self.savepoints.clear();
        is_used
    }

    /// Commits a transaction of which a keyspace was dropped.
    pub(super) fn commit_lost(self) {
        let is_reader = self.writes.is_empty();
        match self.transaction.commit() {
            Ok(()) if is_reader => {}
            Err(Error::KeyspaceDropped | Error::Conflict { .. }) if !is_reader => {}
            other => panic!("a commit without its keyspace: {other:?}"),
        }
    }

    /// Commits it to a store that holds what `now` holds, after these writes; returns what it has
    /// written if it took effect.
    pub(super) fn commit(
        mut self,
        now: &Twin,
        written: &[Operation],
        durability: Durability,
    ) -> (Ended, Vec<Operation>) {
        let writes = std::mem::take(&mut self.writes);
        let mut noted = std::mem::take(&mut self.noted);
        if self.isolation == Isolation::Snapshot && self.has_read {
            noted.extend(writes.iter().map(|own| (own.keyspace, touched(own))));
        }
        if writes.is_empty() {
            // It only reads: there is nothing to check.
            noted.clear();
        }
        let is_changed = noted.iter().any(|(keyspace, keys)| {
            within(self.base.pairs(*keyspace), keys) != within(now.pairs(*keyspace), keys)
        });
        let is_touched = noted.iter().any(|(keyspace, keys)| {
            let since = written[self.since..].iter();
            let mut since = since.filter(|other| other.keyspace == *keyspace);
            since.any(|other| overlap(keys, &touched(other)))
        });
        assert!(is_touched || !is_changed, "what changes was written");
        let result = self.transaction.commit_with(durability);
        let ended = match &result {
            Ok(()) if is_changed => panic!("a commit took effect though {noted:?} has changed"),
            Err(Error::Conflict { .. }) if !is_touched => panic!("{result:?} of {noted:?}"),
            Ok(()) | Err(Error::Conflict { .. }) if is_touched && !is_changed => Ended::Undecided,
            Ok(()) => Ended::Committed,
            Err(Error::Conflict { .. }) => Ended::Conflicted,
            Err(error) => panic!("commit: {error}"),
        };
        (ended, if result.is_ok() { writes } else { Vec::new() })
    }
}

fn one_key(key: Vec<u8>) -> Bounds {
    (Bound::Included(key.clone()), Bound::Included(key))
}

/// The keys that an operation writes.
fn touched(operation: &Operation) -> Bounds {
    match &operation.change {
        Change::Put(key, _) | Change::Delete(key) => one_key(key.clone()),
        Change::DeleteRange(range) => range.clone(),
    }
}

/// Whether any key lies between the ends of a range.
fn holds_keys((lower, upper): &Bounds) -> bool {
    let first = match lower {
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => [key, &[0][..]].concat(),
        Bound::Unbounded => Vec::new(),
    };
    (Bound::Unbounded, upper.as_ref()).contains(&first)
}

/// Whether two ranges have a key in common: intervals do if each begins before the other ends.
fn overlap(one: &Bounds, other: &Bounds) -> bool {
    let range = |lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>| (lower.clone(), upper.clone());
    // The keys that all four pairs of ends allow.
    let mut all = [
        (&one.0, &one.1),
        (&one.0, &other.1),
        (&other.0, &one.1),
        (&other.0, &other.1),
    ]
    .into_iter();
    all.all(|(lower, upper)| holds_keys(&range(lower, upper)))
}
