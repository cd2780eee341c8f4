//! An iterator as other languages know it: it seeks, goes forward and backward from where it
//! stands, and hands out one pair or a page of them.
//!
//! # Idea
//! The facade's [`Cursor`] goes forward and lends its pairs, its [`Iter`] goes to either side and
//! gives them away. A walk is a cursor as long as it goes forward, and an iterator over what is
//! before it when it turns back. Only a turn and a seek search.
//!
//! In a transaction it is pages of pairs, which [`SharedTransaction`] explains. They begin with one
//! pair and double up to [`PAGE_PAIRS_MAX`], so that a short look reads, and depends on, little
//! that is not asked for.
//!
//! # Invariants
//! - What a walk shows is of one moment, where the engine has snapshots: that of its beginning, of
//!   its snapshot or of its transaction.
//! - A pair stays what it is until the walk moves.

use std::ops::Bound;
use std::time::SystemTime;

use gabion::{Cursor, Db, Iter, Keyspace, Pairs, Slice, Snapshot};

use crate::range::{Bounds, by_ref, is_empty};
use crate::{Failure, Result, SharedTransaction};

/// Most pairs of a transaction that are read ahead.
const PAGE_PAIRS_MAX: usize = 64;

/// Where a walk reads.
#[derive(Clone)]
pub enum Reader {
    /// A snapshot.
    Snapshot(Snapshot),
    /// A transaction.
    Transaction(SharedTransaction),
    /// The store as it is, where the engine has no snapshots.
    Live,
}

impl Reader {
    /// The store as it is at this moment.
    pub fn now(db: &Db) -> Reader {
        match db.engine().capabilities().snapshots {
            true => Reader::Snapshot(db.snapshot()),
            false => Reader::Live,
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; [`Failure::Ended`].
    pub fn get(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Slice>> {
        Ok(match self {
            Reader::Live => keyspace.get(key)?,
            Reader::Snapshot(snapshot) => snapshot.get(keyspace, key)?,
            Reader::Transaction(transaction) => transaction.read(|own| own.get(keyspace, key))?,
        })
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn contains(&self, keyspace: &Keyspace, key: &[u8]) -> Result<bool> {
        Ok(match self {
            Reader::Live => keyspace.contains(key)?,
            Reader::Snapshot(snapshot) => snapshot.contains(keyspace, key)?,
            Reader::Transaction(transaction) => {
                transaction.read(|own| own.contains(keyspace, key))?
            }
        })
    }

    /// When the value of a key expires; `None` if it does not, or is not there.
    ///
    /// # Errors
    /// As [`Reader::get`]; [`gabion::Error::Unsupported`] of engines without expiry.
    pub fn expires_at(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<SystemTime>> {
        Ok(match self {
            Reader::Live => keyspace.expires_at(key)?,
            Reader::Snapshot(snapshot) => snapshot.expires_at(keyspace, key)?,
            Reader::Transaction(transaction) => {
                transaction.read(|own| own.expires_at(keyspace, key))?
            }
        })
    }

    /// The values of keys, all of one moment where the engine has snapshots.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn multi_get(&self, keyspace: &Keyspace, keys: &[&[u8]]) -> Result<Vec<Option<Slice>>> {
        Ok(match self {
            Reader::Live => keyspace.multi_get(keys)?,
            Reader::Snapshot(snapshot) => snapshot.multi_get(keyspace, keys)?,
            Reader::Transaction(transaction) => {
                transaction.read(|own| own.multi_get(keyspace, keys))?
            }
        })
    }

    fn cursor(&self, keyspace: &Keyspace, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Cursor {
        match self {
            Reader::Snapshot(snapshot) => snapshot.cursor::<&[u8]>(keyspace, range),
            _ => keyspace.cursor::<&[u8]>(range),
        }
    }

    fn iter(&self, keyspace: &Keyspace, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Iter {
        match self {
            Reader::Snapshot(snapshot) => snapshot.range::<&[u8]>(keyspace, range),
            _ => keyspace.range::<&[u8]>(range),
        }
    }
}

/// The pairs of a keyspace in a range. Stands at no pair before it is told where to go.
pub struct Walk {
    reader: Reader,
    keyspace: Keyspace,
    bounds: Bounds,
    is_ordered: bool,
    position: Position,
    /// Whether there was a page since the last seek, whether backward, and of how many pairs.
    last_page: (bool, bool, usize),
}

enum Position {
    /// At no pair.
    Nowhere,
    /// At the pair of a cursor.
    Forward(Cursor),
    /// At a pair that an iterator gave from its end.
    Backward(Iter, Slice, Slice),
    /// At a pair of an engine without order.
    Unordered(Pairs, Slice, Slice),
    /// At a pair of a page.
    Page(Page),
}

/// Pairs of a transaction.
struct Page {
    pairs: Vec<(Slice, Slice)>,
    /// Which pair the walk stands at.
    at: usize,
    is_backward: bool,
    /// The transaction's changes when it was read.
    changes: u64,
}

impl Walk {
    /// A walk through what of a keyspace lies in `bounds`.
    pub fn new(db: &Db, keyspace: &Keyspace, reader: Reader, bounds: Bounds) -> Walk {
        Walk {
            reader,
            keyspace: keyspace.clone(),
            bounds,
            is_ordered: db.engine().capabilities().ordered,
            position: Position::Nowhere,
            last_page: (false, false, 0),
        }
    }

    /// Goes to the first pair; false if there is none.
    ///
    /// # Errors
    /// Of this and of all other moves: as [`Keyspace::range`]; the walk stands at no pair then.
    pub fn first(&mut self) -> Result<bool> {
        if !self.is_ordered {
            return self.first_unordered();
        }
        let bounds = self.bounds.clone();
        self.last_page.0 = false;
        self.go_forward(bounds)
    }

    /// Goes to the last pair; false if there is none.
    ///
    /// # Errors
    /// As [`Walk::first`].
    pub fn last(&mut self) -> Result<bool> {
        let bounds = self.bounds.clone();
        self.last_page.0 = false;
        self.go_backward(bounds)
    }

    /// Goes to the first pair whose key is `key` or above it; false if there is none.
    ///
    /// # Errors
    /// As [`Walk::first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let mut bounds = self.bounds.clone();
        self.last_page.0 = false;
        if is_above_start(key, &bounds.0) {
            bounds.0 = Bound::Included(key.to_vec());
        }
        self.go_forward(bounds)
    }

    /// Goes to the last pair whose key is `key` or below it; false if there is none.
    ///
    /// # Errors
    /// As [`Walk::first`].
    pub fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        let mut bounds = self.bounds.clone();
        self.last_page.0 = false;
        if is_below_end(key, &bounds.1) {
            bounds.1 = Bound::Included(key.to_vec());
        }
        self.go_backward(bounds)
    }

    /// Goes to the next pair; false if there is none, or if the walk stands at none.
    ///
    /// # Errors
    /// As [`Walk::first`].
    pub fn forward(&mut self) -> Result<bool> {
        match &mut self.position {
            Position::Nowhere => return Ok(false),
            Position::Forward(cursor) => {
                let moved = cursor.advance();
                return self.settle(moved);
            }
            Position::Unordered(pairs, key, value) => match pairs.next().transpose() {
                Ok(Some(pair)) => {
                    (*key, *value) = pair;
                    return Ok(true);
                }
                other => return self.settle(other.map(|_| false)),
            },
            Position::Page(page) => {
                if page.moves(&self.reader, false) {
                    return Ok(true);
                }
            }
            Position::Backward(..) => {}
        }
        let bounds = (Bound::Excluded(self.key().to_vec()), self.bounds.1.clone());
        self.go_forward(bounds)
    }

    /// Goes to the pair before; false if there is none, or if the walk stands at none.
    ///
    /// # Errors
    /// As [`Walk::first`].
    pub fn back(&mut self) -> Result<bool> {
        match &mut self.position {
            Position::Nowhere => return Ok(false),
            Position::Backward(iter, key, value) => match iter.next_back().transpose() {
                Ok(Some(pair)) => {
                    (*key, *value) = pair;
                    return Ok(true);
                }
                other => return self.settle(other.map(|_| false)),
            },
            Position::Page(page) => {
                if page.moves(&self.reader, true) {
                    return Ok(true);
                }
            }
            Position::Forward(_) | Position::Unordered(..) => {}
        }
        let bounds = (self.bounds.0.clone(), Bound::Excluded(self.key().to_vec()));
        self.go_backward(bounds)
    }

    /// Whether the walk stands at a pair.
    pub fn is_at_pair(&self) -> bool {
        !matches!(self.position, Position::Nowhere)
    }

    /// The key of the pair; empty where there is none.
    pub fn key(&self) -> &[u8] {
        match &self.position {
            Position::Nowhere => &[],
            Position::Forward(cursor) => cursor.key(),
            Position::Backward(_, key, _) | Position::Unordered(_, key, _) => key,
            Position::Page(page) => page.pair().map_or(&[], |(key, _)| key),
        }
    }

    /// The value of the pair; empty where there is none.
    pub fn value(&self) -> &[u8] {
        match &self.position {
            Position::Nowhere => &[],
            Position::Forward(cursor) => cursor.value(),
            Position::Backward(_, _, value) | Position::Unordered(_, _, value) => value,
            Position::Page(page) => page.pair().map_or(&[], |(_, value)| value),
        }
    }

    fn settle(&mut self, moved: gabion::Result<bool>) -> Result<bool> {
        if !matches!(moved, Ok(true)) {
            self.position = Position::Nowhere;
        }
        Ok(moved?)
    }

    fn first_unordered(&mut self) -> Result<bool> {
        self.position = Position::Nowhere;
        if self.bounds != (Bound::Unbounded, Bound::Unbounded) {
            return Err(unordered("ranges"));
        }
        let mut pairs = self.keyspace.pairs();
        if let Some(pair) = pairs.next() {
            let (key, value) = pair?;
            self.position = Position::Unordered(pairs, key, value);
        }
        Ok(self.is_at_pair())
    }

    fn go_forward(&mut self, bounds: Bounds) -> Result<bool> {
        self.check_order()?;
        if is_empty(&bounds) {
            self.position = Position::Nowhere;
            return Ok(false);
        }
        if matches!(self.reader, Reader::Transaction(_)) {
            return self.go_to_page(&bounds, false);
        }
        let range = (by_ref(&bounds.0), by_ref(&bounds.1));
        let mut cursor = self.reader.cursor(&self.keyspace, range);
        let moved = cursor.advance();
        self.position = Position::Forward(cursor);
        self.settle(moved)
    }

    fn go_backward(&mut self, bounds: Bounds) -> Result<bool> {
        self.check_order()?;
        if is_empty(&bounds) {
            self.position = Position::Nowhere;
            return Ok(false);
        }
        if matches!(self.reader, Reader::Transaction(_)) {
            return self.go_to_page(&bounds, true);
        }
        let range = (by_ref(&bounds.0), by_ref(&bounds.1));
        let mut iter = self.reader.iter(&self.keyspace, range);
        self.position = Position::Nowhere;
        if let Some(pair) = iter.next_back() {
            let (key, value) = pair?;
            self.position = Position::Backward(iter, key, value);
        }
        Ok(self.is_at_pair())
    }

    fn go_to_page(&mut self, bounds: &Bounds, is_backward: bool) -> Result<bool> {
        let count = match self.last_page {
            (true, direction, count) if direction == is_backward => (2 * count).min(PAGE_PAIRS_MAX),
            _ => 1,
        };
        self.last_page = (true, is_backward, count);
        self.position = Position::Nowhere;
        let Reader::Transaction(transaction) = &self.reader else {
            return Ok(false);
        };
        let changes = transaction.changes();
        let range = (by_ref(&bounds.0), by_ref(&bounds.1));
        let pairs = transaction.page(&self.keyspace, range, is_backward, count)?;
        if !pairs.is_empty() {
            self.position = Position::Page(Page {
                pairs,
                at: 0,
                is_backward,
                changes,
            });
        }
        Ok(self.is_at_pair())
    }

    fn check_order(&mut self) -> Result<()> {
        match self.is_ordered {
            true => Ok(()),
            false => {
                self.position = Position::Nowhere;
                Err(unordered("seeks and steps back"))
            }
        }
    }
}

impl Page {
    fn pair(&self) -> Option<&(Slice, Slice)> {
        self.pairs.get(self.at)
    }

    /// Moves within the page, if it goes that way, has another pair, and nothing was written since.
    fn moves(&mut self, reader: &Reader, is_backward: bool) -> bool {
        let is_fresh = match reader {
            Reader::Transaction(transaction) => {
                transaction.changes() == self.changes && transaction.is_open()
            }
            _ => false,
        };
        let can = is_fresh && self.is_backward == is_backward && self.at + 1 < self.pairs.len();
        self.at += usize::from(can);
        can
    }
}

fn unordered(operation: &'static str) -> Failure {
    let engine = gabion::Engine::Scmkv.name();
    Failure::Store(gabion::Error::Unsupported { engine, operation })
}

/// Whether a key is above all that a lower bound leaves out.
fn is_above_start(key: &[u8], start: &Bound<Vec<u8>>) -> bool {
    match start {
        Bound::Unbounded => true,
        Bound::Included(start) | Bound::Excluded(start) => key > start.as_slice(),
    }
}

/// Whether a key is below all that an upper bound leaves out.
fn is_below_end(key: &[u8], end: &Bound<Vec<u8>>) -> bool {
    match end {
        Bound::Unbounded => true,
        Bound::Included(end) | Bound::Excluded(end) => key < end.as_slice(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gabion::{Engine, Options, TransactionOptions};

    use super::*;
    use crate::range::between;
    use crate::{Code, guard};

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    /// Numbers that are as good as random, and the same for each seed.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % limit
        }

        fn key(&mut self) -> Vec<u8> {
            let len = self.below(3);
            (0..len)
                .map(|_| b"abcd"[usize::try_from(self.below(4)).unwrap()])
                .collect()
        }
    }

    /// The naive twin: a map, and the key at which the walk stands.
    fn step(
        model: &Model,
        bounds: &Bounds,
        at: &mut Option<Vec<u8>>,
        action: u64,
        key: &[u8],
    ) -> bool {
        let mut inside: Vec<_> = model
            .keys()
            .filter(|key| std::ops::RangeBounds::contains(bounds, *key))
            .collect();
        inside.sort();
        let found = match (action, &at) {
            (0, _) => inside.first(),
            (1, _) => inside.last(),
            (2, _) => inside.iter().find(|own| own.as_slice() >= key),
            (3, _) => inside.iter().rev().find(|own| own.as_slice() <= key),
            (4, Some(at)) => inside.iter().find(|own| **own > at),
            (_, Some(at)) => inside.iter().rev().find(|own| **own < at),
            (_, None) => None,
        };
        *at = found.map(|key| (*key).clone());
        at.is_some()
    }

    fn compare(engine: Engine, in_transaction: bool, seed: u64) {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::default().engine(engine).open(dir.path()).unwrap();
        let keyspace = db.default_keyspace().clone();
        let mut numbers = Numbers(seed);
        let mut model = Model::new();
        for _ in 0..12 {
            let key = numbers.key();
            keyspace.put(&key, &key).unwrap();
            model.insert(key.clone(), key);
        }
        let transaction = SharedTransaction::begin(&db, TransactionOptions::default()).unwrap();
        let (lower, upper) = (numbers.key(), numbers.key());
        let bounds = between(
            (numbers.below(2) == 0).then_some(&lower[..]),
            (numbers.below(2) == 0).then_some(&upper[..]),
        );
        let reader = match in_transaction {
            true => Reader::Transaction(transaction.clone()),
            false => Reader::now(&db),
        };
        let mut walk = Walk::new(&db, &keyspace, reader, bounds.clone());
        let mut at = None;
        for number in 0..200 {
            let (action, key) = (numbers.below(8), numbers.key());
            if action == 6 {
                // A walk of a snapshot notices nothing of it.
                match in_transaction {
                    true => {
                        transaction
                            .write(|own| own.put(&keyspace, &key, b"new"))
                            .unwrap();
                        model.insert(key, b"new".to_vec());
                    }
                    false => keyspace.put(&key, b"later").unwrap(),
                }
                continue;
            }
            let expected = step(&model, &bounds, &mut at, action, &key);
            let moved = match action {
                0 => walk.first(),
                1 => walk.last(),
                2 => walk.seek(&key),
                3 => walk.seek_back(&key),
                4 => walk.forward(),
                _ => walk.back(),
            };
            let place = format!("seed {seed}, step {number}, action {action}, key {key:?}");
            assert_eq!(moved.unwrap(), expected, "{place}");
            assert_eq!(
                walk.is_at_pair().then(|| walk.key().to_vec()),
                at,
                "{place}"
            );
            if let Some(at) = &at {
                assert_eq!(walk.value(), model[at], "{place}");
            }
        }
    }

    #[test]
    fn a_walk_goes_as_a_map_does() {
        for seed in 1..30 {
            compare(Engine::Wip, seed % 2 == 0, seed);
            compare(Engine::Flex, seed % 2 == 0, seed);
        }
    }

    #[test]
    fn a_walk_of_a_transaction_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let keyspace = db.default_keyspace().clone();
        let transaction = SharedTransaction::begin(&db, TransactionOptions::default()).unwrap();
        for number in 0..9 {
            transaction
                .write(|own| own.put(&keyspace, [number], "stone"))
                .unwrap();
        }
        let reader = Reader::Transaction(transaction.clone());
        let mut walk = Walk::new(&db, &keyspace, reader, between(None, None));
        assert!(walk.first().unwrap() && walk.forward().unwrap() && walk.forward().unwrap());
        transaction.commit(None).unwrap();
        assert_eq!(walk.key(), [2]);
        assert_eq!(walk.forward().unwrap_err().code(), Code::Ended);
        assert_eq!(transaction.commit(None).unwrap_err().code(), Code::Ended);
        assert!(!transaction.rollback());
    }

    #[test]
    fn a_walk_outlives_its_store() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let keyspace = db.default_keyspace().clone();
        for number in 0..9 {
            db.put([number], "stone").unwrap();
        }
        let mut walk = Walk::new(&db, &keyspace, Reader::now(&db), between(None, None));
        assert!(walk.first().unwrap());
        db.close().unwrap();
        // It may go on with what it began with, but not begin anew.
        let moved = guard(|| {
            walk.forward()?;
            walk.back()
        });
        assert!(matches!(moved, Err(Failure::Store(_))), "{moved:?}");
        drop(keyspace);
        assert!(walk.first().is_err());
    }
}
