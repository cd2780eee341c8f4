//! What a transaction has read, as its commit checks it.
//!
//! # Idea
//! A transaction reads at one number, which stays registered until it ends. It may take effect at a
//! later one if nothing of what it read, and of what it looked for and did not find, was written in
//! between. So it notes keys, and ranges as far as it came in them. Nobody keeps a list of what was
//! written lately: what is newer than the number is still in MemTables, or in tables whose largest
//! number says so, and the engine looks there (`conflicts`).
//!
//! # Invariants
//! - A1. What was noted is never taken back but by [`ReadSet::truncate`], in the order in which it
//!   was noted.

use std::collections::HashMap;
use std::ops::Bound;

use crate::log::LogOp;
use crate::types::{Kind, Seq, hash_key};

/// Keys from which on a key that was read before is found by its hash. Fewer are compared.
const INDEXED_FROM: usize = 64;

/// A key that was read.
#[derive(Debug)]
pub(crate) struct ReadKey {
    pub(crate) keyspace: u32,
    pub(crate) hash: u64,
    pub(crate) key: Box<[u8]>,
}

/// A range that was read: from its first key up to, but without, `upper`.
#[derive(Debug)]
pub(crate) struct ReadRange {
    pub(crate) keyspace: u32,
    pub(crate) lower: Vec<u8>,
    pub(crate) upper: Option<Vec<u8>>,
}

/// What a transaction has read at one number.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    since: Seq,
    keys: Vec<ReadKey>,
    /// The places of keys by their hashes, from [`INDEXED_FROM`] keys on. Of two keys with one hash
    /// the first.
    index: HashMap<u64, usize>,
    ranges: Vec<ReadRange>,
}

/// How much was read up to a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadMark {
    keys: usize,
    ranges: usize,
}

impl ReadSet {
    /// Nothing read yet, at a number.
    pub(crate) fn new(since: Seq) -> ReadSet {
        ReadSet {
            since,
            ..ReadSet::default()
        }
    }

    /// The number at which it was read.
    pub(crate) fn since(&self) -> Seq {
        self.since
    }

    /// Whether nothing was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    /// Notes that a key was read; returns the bytes that this takes.
    pub(crate) fn note_key(&mut self, keyspace: u32, key: &[u8]) -> usize {
        let hash = hash_key(key);
        if self.has_key(keyspace, hash, key) {
            return 0;
        }
        let at = self.keys.len();
        self.keys.push(ReadKey {
            keyspace,
            hash,
            key: key.into(),
        });
        if at + 1 == INDEXED_FROM {
            let places = self.keys.iter().enumerate();
            self.index = places.map(|(at, own)| (own.hash, at)).collect();
        } else if at + 1 > INDEXED_FROM {
            self.index.entry(hash).or_insert(at);
        }
        size_of::<ReadKey>() + size_of::<(u64, usize)>() + key.len()
    }

    fn has_key(&self, keyspace: u32, hash: u64, key: &[u8]) -> bool {
        let is_it =
            |own: &ReadKey| own.hash == hash && own.keyspace == keyspace && *own.key == *key;
        match self.index.is_empty() {
            true => self.keys.iter().any(is_it),
            false => self
                .index
                .get(&hash)
                .is_some_and(|at| is_it(&self.keys[*at])),
        }
    }

    /// Whether a key was read, by itself or in a range.
    pub(crate) fn has(&self, keyspace: u32, key: &[u8]) -> bool {
        let is_in = |own: &ReadRange| {
            let is_below = own.upper.as_ref().is_none_or(|upper| key < &upper[..]);
            own.keyspace == keyspace && *key >= *own.lower && is_below
        };
        self.has_key(keyspace, hash_key(key), key) || self.ranges.iter().any(is_in)
    }

    /// Notes that a range was read; returns its place.
    pub(crate) fn note_range(
        &mut self,
        keyspace: u32,
        lower: Vec<u8>,
        upper: Option<Vec<u8>>,
    ) -> usize {
        self.ranges.push(ReadRange {
            keyspace,
            lower,
            upper,
        });
        self.ranges.len() - 1
    }

    /// The range at a place, which goes on being read.
    pub(crate) fn range_mut(&mut self, at: usize) -> Option<&mut ReadRange> {
        self.ranges.get_mut(at)
    }

    /// How much was read up to now.
    pub(crate) fn mark(&self) -> ReadMark {
        ReadMark {
            keys: self.keys.len(),
            ranges: self.ranges.len(),
        }
    }

    /// Forgets what was only read since a moment.
    pub(crate) fn truncate(&mut self, mark: ReadMark) {
        self.keys.truncate(mark.keys);
        self.ranges.truncate(mark.ranges);
        match mark.keys < INDEXED_FROM {
            true => self.index.clear(),
            false => self.index.retain(|_, at| *at < mark.keys),
        }
    }

    /// The keys.
    pub(crate) fn keys(&self) -> &[ReadKey] {
        &self.keys
    }

    /// The ranges.
    pub(crate) fn ranges(&self) -> &[ReadRange] {
        &self.ranges
    }

    /// The first key of what was read that a write changes.
    pub(crate) fn changed_by(&self, write: &LogOp<'_>) -> Option<Vec<u8>> {
        let (lower, upper) = match write.kind {
            Kind::DeleteRange if write.value.is_empty() => (write.key, Bound::Unbounded),
            Kind::DeleteRange => (write.key, Bound::Excluded(write.value)),
            Kind::Put | Kind::PutExpiring | Kind::Delete | Kind::Merge | Kind::Operand => {
                (write.key, Bound::Included(write.key))
            }
        };
        let is_above = |key: &[u8]| match upper {
            Bound::Unbounded => false,
            Bound::Excluded(upper) => key >= upper,
            Bound::Included(upper) => key > upper,
        };
        let keys = self
            .keys
            .iter()
            .filter(|own| own.keyspace == write.keyspace);
        let mut keys = keys.filter(|own| *own.key >= *lower && !is_above(&own.key));
        if let Some(own) = keys.next() {
            return Some(own.key.to_vec());
        }
        let ranges = self
            .ranges
            .iter()
            .filter(|own| own.keyspace == write.keyspace);
        let mut firsts = ranges.filter_map(|own| {
            let first = lower.max(&own.lower);
            let is_in = own.upper.as_ref().is_none_or(|upper| first < &upper[..]);
            (is_in && !is_above(first)).then(|| first.to_vec())
        });
        firsts.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op<'o>(kind: Kind, key: &'o [u8], value: &'o [u8]) -> LogOp<'o> {
        LogOp {
            seq: 1,
            kind,
            keyspace: 7,
            key,
            value,
        }
    }

    #[test]
    fn a_write_changes_what_was_read_of_its_keys() {
        let mut reads = ReadSet::new(5);
        assert!(reads.is_empty());
        reads.note_key(7, b"d");
        reads.note_key(8, b"a");
        reads.note_range(7, b"m".to_vec(), Some(b"p".to_vec()));
        let at = reads.note_range(7, b"x".to_vec(), Some(b"z".to_vec()));
        reads.range_mut(at).unwrap().upper = Some(b"x".to_vec());
        let changed = |kind, key, value| {
            let changed = reads.changed_by(&op(kind, key, value));
            changed.map(|key| String::from_utf8(key).unwrap())
        };
        let put = |key| changed(Kind::Put, key, b"value");
        assert_eq!(put(b"d").as_deref(), Some("d"));
        for other in [&b"a"[..], b"c", b"d\0", b"l", b"p", b"x"] {
            assert_eq!(put(other), None, "{other:?}");
        }
        assert_eq!(put(b"m").as_deref(), Some("m"));
        assert_eq!(changed(Kind::Delete, b"o", b"").as_deref(), Some("o"));
        let range = |lower, upper| changed(Kind::DeleteRange, lower, upper);
        assert_eq!(range(b"a", b"d"), None);
        assert_eq!(range(b"a", b"d\0").as_deref(), Some("d"));
        assert_eq!(range(b"e", b"m"), None);
        assert_eq!(range(b"e", b"n").as_deref(), Some("m"));
        assert_eq!(range(b"o", b"").as_deref(), Some("o"));
        assert_eq!(range(b"p", b""), None);
        let read = [&b"d"[..], b"m", b"oz"];
        assert!(read.into_iter().all(|key| reads.has(7, key)));
        let others = [&b"a"[..], b"d\0", b"p", b"x"];
        assert!(!others.into_iter().any(|key| reads.has(7, key)));
        assert!(reads.has(8, b"a") && !reads.has(8, b"m"));
    }

    #[test]
    fn a_key_is_noted_once_and_forgotten_with_what_was_read_later() {
        let mut reads = ReadSet::new(5);
        let key = |number: usize| number.to_le_bytes();
        let mut marks = Vec::new();
        for number in 0..4 * INDEXED_FROM {
            marks.push(reads.mark());
            assert!(reads.note_key(1, &key(number)) > 0);
            assert_eq!(reads.note_key(1, &key(number)), 0);
            assert_eq!(reads.note_key(1, &key(0)), 0);
        }
        for (number, mark) in marks.iter().enumerate().rev() {
            reads.truncate(*mark);
            assert_eq!(reads.keys().len(), number);
            assert!(reads.note_key(1, &key(number)) > 0, "it was forgotten");
            assert_eq!(reads.note_key(1, &key(number)), 0);
            reads.truncate(*mark);
        }
        assert!(reads.is_empty());
    }
}
