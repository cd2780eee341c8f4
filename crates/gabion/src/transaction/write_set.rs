//! The writes of a transaction before its commit.
//!
//! # Idea
//! A keyspace has a map of the keys that were written, and the ranges that were deleted. A delete
//! of a range takes the keys in it out of the map, so that all that is in the map is newer than all
//! ranges, and the batch of a commit begins with the ranges.
//!
//! From the first savepoint on, each change leaves behind what it replaced; rolling back puts that
//! back, newest first.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::Bound;

use crate::engine::ReadSet;
use crate::expiry::StoredRecord;
use crate::log::BatchEncoder;
use crate::operands::Operands;
use crate::types::Kind;

/// A key that a transaction keeps.
type Bytes = Box<[u8]>;

/// What a write takes in memory besides key and value, roughly.
const WRITE_BYTES: usize = 64;

/// The writes of all keyspaces.
#[derive(Default)]
pub(super) struct WriteSet {
    /// Few: they are gone through.
    keyspaces: Vec<KeyspaceWrites>,
    undo: Vec<UndoRecord>,
    /// For each savepoint, how much there was to undo.
    marks: Vec<usize>,
}

/// The writes of a keyspace.
struct KeyspaceWrites {
    id: u32,
    writes: BTreeMap<Bytes, Option<StoredRecord>>,
    deleted: DeletedRanges,
}

/// Ranges of keys that ascend and do not touch; the first key, and the first one above, if there is
/// one.
#[derive(Clone, Default)]
pub(super) struct DeletedRanges(Vec<(Vec<u8>, Option<Vec<u8>>)>);

/// What a change replaced, in a keyspace by its position.
enum UndoRecord {
    Write(usize, Bytes, Option<Option<StoredRecord>>),
    Deleted(usize, DeletedRanges),
}

/// The own writes of a range, in the order of their keys.
pub(super) type WriteSetRange<'t> = btree_map::Range<'t, Bytes, Option<StoredRecord>>;

impl WriteSet {
    /// Bytes that a write takes, roughly.
    pub(super) fn bytes_of(key: &[u8], stored: usize) -> usize {
        WRITE_BYTES + key.len() + stored
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        let is_empty = |own: &KeyspaceWrites| own.writes.is_empty() && own.deleted.0.is_empty();
        self.keyspaces.iter().all(is_empty)
    }

    fn find(&self, keyspace: u32) -> Option<&KeyspaceWrites> {
        self.keyspaces.iter().find(|own| own.id == keyspace)
    }

    /// The position of a keyspace, which is made if it has no writes yet.
    fn position(&mut self, keyspace: u32) -> usize {
        let found = self.keyspaces.iter().position(|own| own.id == keyspace);
        found.unwrap_or_else(|| {
            self.keyspaces.push(KeyspaceWrites {
                id: keyspace,
                writes: BTreeMap::new(),
                deleted: DeletedRanges::default(),
            });
            self.keyspaces.len() - 1
        })
    }

    /// What the transaction itself says of a key: a record, or that it has none.
    pub(super) fn get(&self, keyspace: u32, key: &[u8]) -> Option<Option<&StoredRecord>> {
        let own = self.find(keyspace)?;
        match own.writes.get(key) {
            Some(record) => Some(record.as_ref()),
            None => own.deleted.covers(key).then_some(None),
        }
    }

    /// The writes of a range that holds keys, and the deleted ranges.
    pub(super) fn range(
        &self,
        keyspace: u32,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Option<(WriteSetRange<'_>, &DeletedRanges)> {
        let own = self.find(keyspace)?;
        let upper = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let range = own.writes.range::<[u8], _>((Bound::Included(lower), upper));
        Some((range, &own.deleted))
    }

    /// Gives a key a record, or takes it away.
    pub(super) fn write(&mut self, keyspace: u32, key: &[u8], record: Option<StoredRecord>) {
        let at = self.position(keyspace);
        let before = self.keyspaces[at].writes.insert(key.into(), record);
        if !self.marks.is_empty() {
            self.undo.push(UndoRecord::Write(at, key.into(), before));
        }
    }

    /// Deletes a range that holds keys.
    pub(super) fn delete_range(&mut self, keyspace: u32, lower: Vec<u8>, upper: Option<Vec<u8>>) {
        let at = self.position(keyspace);
        let own = &mut self.keyspaces[at];
        let mut covered = own.writes.split_off(&lower[..]);
        if let Some(upper) = &upper {
            own.writes.append(&mut covered.split_off(&upper[..]));
        }
        if !self.marks.is_empty() {
            let removed = covered.into_iter();
            let removed = removed.map(|(key, value)| UndoRecord::Write(at, key, Some(value)));
            self.undo.extend(removed);
            self.undo.push(UndoRecord::Deleted(at, own.deleted.clone()));
        }
        own.deleted.add(lower, upper);
    }

    /// From here on it can be rolled back to this moment.
    pub(super) fn set_savepoint(&mut self) {
        self.marks.push(self.undo.len());
    }

    /// Rolls back to the savepoint of that position; those after it are gone.
    pub(super) fn rollback_to(&mut self, savepoint: usize) {
        self.marks.truncate(savepoint + 1);
        let left = self.marks.last().copied().unwrap_or(0);
        while self.undo.len() > left {
            match self.undo.pop() {
                Some(UndoRecord::Write(at, key, Some(before))) => {
                    self.keyspaces[at].writes.insert(key, before);
                }
                Some(UndoRecord::Write(at, key, None)) => {
                    self.keyspaces[at].writes.remove(&key);
                }
                Some(UndoRecord::Deleted(at, before)) => self.keyspaces[at].deleted = before,
                None => {}
            }
        }
    }

    /// Adds all writes to a batch; returns the bytes of their keys and values.
    pub(super) fn encode(&self, batch: &mut BatchEncoder) -> u64 {
        let mut bytes = 0;
        let mut add = |kind, id, key: &[u8], value: &[u8]| {
            batch.op(kind, id, key, value);
            bytes += key.len() + value.len();
        };
        for own in &self.keyspaces {
            for (lower, upper) in &own.deleted.0 {
                let upper = upper.as_deref().unwrap_or_default();
                add(Kind::DeleteRange, own.id, lower, upper);
            }
            for (key, record) in &own.writes {
                let deleted = (Kind::Delete, &[][..]);
                let (kind, stored) = record.as_ref().map_or(deleted, StoredRecord::parts);
                match kind {
                    Kind::Merge => {
                        let operands = Operands::decode(stored).expect("it was encoded here");
                        if let Some((kind, stored)) = operands.base() {
                            add(kind, own.id, key, stored);
                        }
                        let mut merge = |operand: &[u8]| add(Kind::Operand, own.id, key, operand);
                        operands.iter().for_each(&mut merge);
                    }
                    _ => add(kind, own.id, key, stored),
                }
            }
        }
        bytes as u64
    }

    /// Notes all that is written as read, but what is merged into keys that are not in `seen`: that
    /// depends on nothing.
    pub(super) fn note_all(&self, reads: &mut ReadSet, seen: &ReadSet) {
        for own in &self.keyspaces {
            for (lower, upper) in &own.deleted.0 {
                reads.note_range(own.id, lower.clone(), upper.clone());
            }
            for (key, record) in &own.writes {
                if !record.as_ref().is_some_and(Operands::are_open_in) || seen.has(own.id, key) {
                    reads.note_key(own.id, key);
                }
            }
        }
    }
}

impl DeletedRanges {
    /// Whether a key is in one of them.
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        let above = self.0.partition_point(|(lower, _)| &lower[..] <= key);
        let last = above.checked_sub(1).and_then(|at| self.0.get(at));
        last.is_some_and(|(_, upper)| upper.as_ref().is_none_or(|upper| key < &upper[..]))
    }

    /// Adds a range that holds keys.
    fn add(&mut self, mut lower: Vec<u8>, mut upper: Option<Vec<u8>>) {
        // Those that touch it become one with it.
        let ends_before = |own: &(Vec<u8>, Option<Vec<u8>>)| {
            own.1.as_ref().is_some_and(|own_upper| *own_upper < lower)
        };
        let first = self.0.partition_point(ends_before);
        let begins_within =
            |own: &(Vec<u8>, Option<Vec<u8>>)| upper.as_ref().is_none_or(|upper| own.0 <= *upper);
        let count = self.0[first..].partition_point(begins_within);
        for (own_lower, own_upper) in self.0.drain(first..first + count) {
            lower = lower.min(own_lower);
            upper = upper.zip(own_upper).map(|(upper, own)| upper.max(own));
        }
        self.0.insert(first, (lower, upper));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Slice;
    use crate::log::LogOp;

    /// A change of a transaction, on keys of one byte.
    #[derive(Clone, Debug)]
    enum Step {
        Write(u8, Option<u8>),
        DeleteRange(u8, Option<u8>),
        Savepoint,
        Rollback(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..20u8, any::<Option<u8>>()).prop_map(|(key, value)| Step::Write(key, value)),
            3 => (0..20u8, prop::option::of(1..8u8)).prop_map(|(key, len)| {
                Step::DeleteRange(key, len.map(|len| key + len))
            }),
            2 => Just(Step::Savepoint),
            1 => any::<prop::sample::Index>().prop_map(Step::Rollback),
        ];
        prop::collection::vec(step, 0..60)
    }

    /// What each key has, if the transaction says anything of it.
    type Twin = [Option<Option<u8>>; 32];

    fn assert_equal(own: &WriteSet, twin: &Twin) {
        for (key, expected) in (0u8..).zip(twin) {
            let value = own.get(7, &[key]).map(|own| own.map(StoredRecord::value));
            let expected = expected
                .as_ref()
                .map(|value| value.as_ref().map(std::slice::from_ref));
            assert_eq!(value, expected, "{key}");
            assert!(own.get(8, &[key]).is_none());
        }
    }

    proptest! {
        #[test]
        fn own_writes_are_those_of_an_array(steps in steps()) {
            let mut own = WriteSet::default();
            let mut twin: Twin = [None; 32];
            let mut saved: Vec<Twin> = Vec::new();
            for step in steps {
                match step {
                    Step::Write(key, value) => {
                        let record = |value| StoredRecord::new(Kind::Put, Slice::new(&[value]));
                        own.write(7, &[key], value.map(record));
                        twin[usize::from(key)] = Some(value);
                    }
                    Step::DeleteRange(lower, upper) => {
                        own.delete_range(7, vec![lower], upper.map(|upper| vec![upper]));
                        let upper = upper.map_or(32, usize::from);
                        twin[usize::from(lower)..upper].fill(Some(None));
                    }
                    Step::Savepoint => {
                        own.set_savepoint();
                        saved.push(twin);
                    }
                    Step::Rollback(at) if !saved.is_empty() => {
                        let at = at.index(saved.len());
                        saved.truncate(at + 1);
                        own.rollback_to(at);
                        twin = saved[at];
                    }
                    Step::Rollback(_) => {}
                }
                assert_equal(&own, &twin);
            }
            // The batch says the same, and so do the ranges and keys that it writes.
            let mut batch = BatchEncoder::default();
            own.encode(&mut batch);
            let mut applied: Twin = [None; 32];
            for op in batch.ops(1) {
                let op = op.unwrap();
                let key = usize::from(op.key[0]);
                match op.kind {
                    Kind::Put => applied[key] = Some(Some(op.value[0])),
                    Kind::Delete => applied[key] = Some(None),
                    Kind::DeleteRange => {
                        let upper = op.value.first().map_or(32, |upper| usize::from(*upper));
                        applied[key..upper].fill(Some(None));
                    }
                    kind => unreachable!("there is no {kind:?} here"),
                }
            }
            prop_assert_eq!(applied, twin);
            let mut reads = ReadSet::new(1);
            own.note_all(&mut reads, &ReadSet::default());
            for (key, value) in (0u8..).zip(&twin) {
                let (kind, key) = (Kind::Put, &[key][..]);
                let put = LogOp { seq: 2, kind, keyspace: 7, key, value: &[] };
                prop_assert_eq!(reads.changed_by(&put).is_some(), value.is_some());
            }
        }
    }
}
