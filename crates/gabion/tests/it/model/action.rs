//! The operations of the model test, in a form that prints briefly and shrinks well.

use std::ops::Bound;

use gabion::{Durability, Isolation};
use proptest::collection::vec;
use proptest::prelude::*;

use super::machine::{operation, range_delete};
use crate::support::{KEYSPACES, Operation};

/// A key. Few of them are different, so that keys are overwritten, deleted and found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A few bytes of a small alphabet, or none at all.
    Short(Vec<u8>),
    /// A number behind a prefix that many keys have.
    Prefixed(u16),
    /// A key that was appended.
    Appended(u16),
    /// As long as keys may be, or a little shorter, ending in a byte.
    Long { short_of_limit: u8, last: u8 },
}

/// A value: its length, and what its bytes are made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) len: u32,
    pub(super) seed: u16,
}

#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) lower: Bound<Key>,
    pub(super) upper: Bound<Key>,
}

/// One operation of a batch.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// A put, or a delete where there is no value.
    One(usize, Key, Option<Value>),
    Range(usize, Range),
}

/// One operation of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A read of a key, perhaps for update.
    Get(usize, Key, bool),
    /// Reads so many pairs of a range; each bit of the number before chooses the end of one.
    Scan(usize, Range, u64, u8),
    Write(Part),
    Savepoint,
    RollBack(usize),
}

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Put(usize, Key, Value),
    Delete(usize, Key),
    DeleteRange(usize, Range),
    Batch(Vec<Part>),
    /// A batch of many prefixed keys from a number on, with gaps.
    Fill {
        keyspace: usize,
        first: u16,
        count: u16,
        gap: u16,
        value: Value,
    },
    /// So many keys above all that were appended before, and a flush.
    Append {
        keyspace: usize,
        count: u8,
        value: Value,
    },
    /// The keys of [`ChangeAction::Fill`], as an ingest.
    Ingest {
        keyspace: usize,
        first: u16,
        count: u16,
        gap: u16,
        value: Value,
    },
    Get(usize, Key),
    MultiGet(usize, Vec<Key>),
    /// Reads a range from both ends; each bit of the last field chooses the end of one step.
    Scan(usize, Range, u64),
    Prefix(usize, Key, u64),
    TakeSnapshot,
    ReadSnapshot {
        number: usize,
        keyspace: usize,
        key: Key,
        range: Range,
        ends: u64,
    },
    DropSnapshot(usize),
    /// Begins an iterator that is read from later.
    HoldIterator(usize, Range),
    /// Takes some pairs from an iterator that was begun earlier.
    StepIterator {
        number: usize,
        steps: u8,
        ends: u64,
    },
    /// Begins a transaction.
    Begin(Isolation),
    /// Steps of a transaction that was begun earlier.
    Within(usize, Vec<Step>),
    Commit(usize, Durability),
    Flush,
    Persist,
    WaitIdle,
    /// A full compaction of a range.
    Compact(usize, Range),
    /// A drop of a keyspace other than the default one, of which another one is made at once.
    DropKeyspace(usize),
    Reopen,
    /// The process ends without closing; the disk has all that was written.
    Kill,
}

impl Part {
    pub(super) fn operation(&self) -> Operation {
        match self {
            Part::One(keyspace, key, value) => operation(*keyspace, key, *value),
            Part::Range(keyspace, range) => range_delete(*keyspace, range),
        }
    }

    /// Whether a key as long as keys may be is an end of a range.
    pub(super) fn has_long_bound(&self) -> bool {
        let is_long = |bound: &Bound<Key>| {
            matches!(
                bound,
                Bound::Included(Key::Long { .. }) | Bound::Excluded(Key::Long { .. })
            )
        };
        matches!(self, Part::Range(_, range) if is_long(&range.lower) || is_long(&range.upper))
    }
}

impl Action {
    /// How many operations it is.
    pub(super) fn operations(&self) -> u64 {
        match self {
            Action::Batch(parts) => parts.len() as u64,
            Action::MultiGet(_, keys) => keys.len() as u64,
            Action::Fill { count, .. } | Action::Ingest { count, .. } => u64::from(*count),
            Action::Append { count, .. } => u64::from(*count),
            Action::Within(_, steps) => steps.len() as u64,
            _ => 1,
        }
    }
}

const PREFIX: &[u8] = b"one prefix that is common to many keys/";

impl Key {
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Key::Short(bytes) => bytes.clone(),
            Key::Prefixed(number) => [PREFIX, format!("{number:05}").as_bytes()].concat(),
            Key::Appended(number) => [PREFIX, format!("a{number:05}").as_bytes()].concat(),
            Key::Long {
                short_of_limit,
                last,
            } => {
                let mut bytes = vec![b'l'; 0xfffe - usize::from(*short_of_limit)];
                bytes.push(*last);
                bytes
            }
        }
    }
}

pub(super) fn key() -> impl Strategy<Value = Key> {
    let letter = prop::sample::select(&[0_u8, b'a', b'b', b'm', 0xff][..]);
    prop_oneof![
        30 => vec(letter, 0..5).prop_map(Key::Short),
        60 => (0..2_000_u16).prop_map(Key::Prefixed),
        1 => (0..3_u8, 0..3_u8)
            .prop_map(|(short_of_limit, last)| Key::Long { short_of_limit, last }),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let len = prop_oneof![
        10 => Just(0_u32),
        100 => 0..100_u32,
        30 => 0..2_000_u32,
        10 => 2_000..40_000_u32,
        1 => 100_000..500_000_u32,
    ];
    (len, any::<u16>()).prop_map(|(len, seed)| Value { len, seed })
}

fn keyspace() -> impl Strategy<Value = usize> {
    0..KEYSPACES.len()
}

fn bound() -> impl Strategy<Value = Bound<Key>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => key().prop_map(Bound::Included),
        2 => key().prop_map(Bound::Excluded),
    ]
}

fn range() -> impl Strategy<Value = Range> {
    (bound(), bound()).prop_map(|(lower, upper)| Range { lower, upper })
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        20 => (keyspace(), key(), prop::option::weighted(0.7, value()))
            .prop_map(|(k, key, value)| Part::One(k, key, value)),
        1 => (keyspace(), range()).prop_map(|(k, range)| Part::Range(k, range)),
    ]
}

/// Any operation.
pub(super) fn action() -> impl Strategy<Value = Action> {
    let many = (
        keyspace(),
        0..2_000_u16,
        1..200_u16,
        1..10_u16,
        0..120_u32,
        any::<u16>(),
    );
    let read = (0..4_usize, keyspace(), key(), range(), any::<u64>());
    prop_oneof![
        30 => (keyspace(), key(), value()).prop_map(|(k, key, value)| Action::Put(k, key, value)),
        12 => (keyspace(), key()).prop_map(|(k, key)| Action::Delete(k, key)),
        4 => (keyspace(), range()).prop_map(|(k, range)| Action::DeleteRange(k, range)),
        10 => vec(part(), 0..20).prop_map(Action::Batch),
        8 => many.prop_map(|(keyspace, first, count, gap, len, seed)| {
            Action::Fill { keyspace, first, count, gap, value: Value { len, seed } }
        }),
        20 => (keyspace(), key()).prop_map(|(k, key)| Action::Get(k, key)),
        3 => (keyspace(), vec(key(), 0..10)).prop_map(|(k, keys)| Action::MultiGet(k, keys)),
        8 => (keyspace(), range(), any::<u64>()).prop_map(|(k, r, e)| Action::Scan(k, r, e)),
        4 => (keyspace(), key(), any::<u64>()).prop_map(|(k, p, e)| Action::Prefix(k, p, e)),
        4 => Just(Action::TakeSnapshot),
        6 => read.prop_map(|(number, keyspace, key, range, ends)| {
            Action::ReadSnapshot { number, keyspace, key, range, ends }
        }),
        3 => (0..4_usize).prop_map(Action::DropSnapshot),
        4 => (keyspace(), range()).prop_map(|(k, range)| Action::HoldIterator(k, range)),
        8 => (0..4_usize, any::<u8>(), any::<u64>())
            .prop_map(|(number, steps, ends)| Action::StepIterator { number, steps, ends }),
        4 => Just(Action::Flush),
        1 => Just(Action::Persist),
        2 => Just(Action::WaitIdle),
        3 => (keyspace(), range()).prop_map(|(k, range)| Action::Compact(k, range)),
        1 => Just(Action::Reopen),
        1 => Just(Action::Kill),
        30 => in_transactions(),
    ]
}

/// What is done in transactions.
fn in_transactions() -> impl Strategy<Value = Action> {
    let isolation = prop::sample::select(&[Isolation::Serializable, Isolation::Snapshot][..]);
    let level = prop::sample::select(&[Durability::Buffered, Durability::Sync][..]);
    let scan = (
        keyspace(),
        range(),
        any::<u64>(),
        prop_oneof![0..4_u8, Just(u8::MAX)],
    );
    let step = prop_oneof![
        6 => (keyspace(), key(), prop::bool::weighted(0.2))
            .prop_map(|(k, key, for_update)| Step::Get(k, key, for_update)),
        3 => scan.prop_map(|(k, range, ends, steps)| Step::Scan(k, range, ends, steps)),
        6 => part().prop_map(Step::Write),
        1 => Just(Step::Savepoint),
        1 => (0..4_usize).prop_map(Step::RollBack),
    ];
    prop_oneof![
        3 => isolation.prop_map(Action::Begin),
        4 => (0..4_usize, vec(step, 1..8)).prop_map(|(n, steps)| Action::Within(n, steps)),
        3 => (0..4_usize, level).prop_map(|(number, level)| Action::Commit(number, level)),
    ]
}

/// Ingests between any other operations.
pub(super) fn ingesting() -> impl Strategy<Value = Action> {
    let count = prop_oneof![3 => 0..8_u16, 2 => 1..400_u16];
    let len = prop_oneof![4 => 0..60_u32, 1 => 0..900_u32];
    let ingest = (
        0..2_usize,
        0..2_000_u16,
        count,
        1..10_u16,
        len,
        any::<u16>(),
    );
    prop_oneof![
        1 => ingest.prop_map(|(keyspace, first, count, gap, len, seed)| {
            Action::Ingest { keyspace, first, count, gap, value: Value { len, seed } }
        }),
        5 => action(),
    ]
}

/// Mostly appended keys, of which most flushes bring a few, and any operation between them.
pub(super) fn appending() -> impl Strategy<Value = Action> {
    let len = prop_oneof![10 => 0..120_u32, 2 => 4_000..9_000_u32];
    let value = (len, any::<u16>()).prop_map(|(len, seed)| Value { len, seed });
    let appended = (0..2_usize, (0..300_u16).prop_map(Key::Appended));
    prop_oneof![
        12 => (0..2_usize, 1..5_u8, value)
            .prop_map(|(keyspace, count, value)| Action::Append { keyspace, count, value }),
        1 => appended.clone().prop_map(|(keyspace, key)| Action::Delete(keyspace, key)),
        1 => appended.prop_map(|(keyspace, key)| Action::Get(keyspace, key)),
        3 => action(),
    ]
}

/// Drops of keyspaces between any other operations.
pub(super) fn dropping() -> impl Strategy<Value = Action> {
    prop_oneof![
        1 => (1..KEYSPACES.len()).prop_map(Action::DropKeyspace),
        9 => action(),
        1 => ingesting(),
    ]
}
