//! What a history is made of: keys, values that say who wrote them, and what transactions did.

use std::ops::Range;

use gabion::{Isolation, Merge, MergeError};

/// Keyspaces of a history.
pub(super) const KEYSPACES: usize = 3;

/// Keys of a keyspace.
pub(super) const KEYS: usize = 7;

/// How many of them are lists; the others are registers.
const LISTS: usize = 2;

/// A key, of whichever keyspace: `keyspace * KEYS + number`.
pub(super) type Key = usize;

/// The numbers of the writes that a value is made of, oldest first: one of a register, all of a
/// list. Nothing where the key is not there.
pub(super) type Value = Vec<u64>;

/// From the call of an operation to its return, in ticks that all threads share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) call: u64,
    pub(super) end: u64,
}

/// How a transaction read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Key,
    /// Its commit depends on it, whatever the isolation.
    Update,
    Range,
}

/// What a transaction read of others.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) key: Key,
    pub(super) value: Value,
    pub(super) by: By,
}

/// What a transaction wrote.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) key: Key,
    pub(super) number: u64,
    /// What it made of the key; empty where it is gone. None where it appended to a list whatever
    /// that was.
    pub(super) value: Option<Value>,
}

impl Write {
    pub(super) fn is_delete(&self) -> bool {
        self.value.as_ref().is_some_and(Value::is_empty)
    }
}

/// Appends numbers to a value. An operand has eight bytes for each.
pub(super) struct AppendNumbers;

impl Merge for AppendNumbers {
    fn name(&self) -> &str {
        "append numbers"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, MergeError> {
        let mut value = decoded(base);
        operands
            .iter()
            .for_each(|operand| value.extend(numbers(operand)));
        Ok(Some(encoded(&value)))
    }

    fn partial_merge(&self, _key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        Some([left, right].concat())
    }
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    bytes.chunks(8).map(number)
}

/// A transaction, or what has the effect of one: a plain write, an update, the use of a snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) begin: Interval,
    /// Of its commit.
    pub(super) end: Interval,
    pub(super) reads: Vec<Read>,
    pub(super) writes: Vec<Write>,
    pub(super) is_committed: bool,
    /// The key by which its commit was refused, if it is one of the history.
    pub(super) refused_by: Option<Key>,
}

impl Record {
    /// Whether it wrote a key by merges alone, and had not read it.
    pub(super) fn only_merges(&self, key: Key) -> bool {
        let mut writes = self.writes.iter().filter(|write| write.key == key);
        let is_read = self.reads.iter().any(|read| read.key == key);
        !is_read && writes.all(|write| write.value.is_none())
    }
}

/// What happened to a store.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) isolation: Isolation,
    pub(super) records: Vec<Record>,
}

pub(super) fn is_list(key: Key) -> bool {
    key % KEYS < LISTS
}

pub(super) fn keys_of(keyspace: usize) -> Range<Key> {
    keyspace * KEYS..(keyspace + 1) * KEYS
}

pub(super) fn name_of(key: Key) -> Vec<u8> {
    let letter = if is_list(key) { 'l' } else { 'r' };
    format!("{letter}{}", key % KEYS).into_bytes()
}

/// The bytes of a value. Some are much longer than others.
pub(super) fn encoded(value: &[u64]) -> Vec<u8> {
    let count = u16::try_from(value.len()).expect("a short list");
    let mut bytes = Vec::from(count.to_le_bytes());
    value
        .iter()
        .for_each(|number| bytes.extend(number.to_le_bytes()));
    let filler = value.last().map_or(0, |number| number * 37 % 90);
    bytes.extend((0..filler).map(|_| b'.'));
    bytes
}

/// The value of bytes that a store returned.
pub(super) fn decoded(bytes: Option<&[u8]>) -> Value {
    let Some((count, rest)) = bytes.map(|bytes| bytes.split_at(2)) else {
        return Value::new();
    };
    let count = usize::from(u16::from_le_bytes(count.try_into().expect("two bytes")));
    let value: Value = numbers(rest.split_at(8 * count).0).collect();
    assert_eq!(bytes, Some(&encoded(&value)[..]), "a value is whole");
    value
}
