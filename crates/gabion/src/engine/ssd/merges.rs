//! Merges in the writes of a group: operands become what the log and MemTables get.
//!
//! # Idea
//! What an operand amounts to depends on what its key has (`operands`). Whoever leads knows that:
//! nobody else writes meanwhile. Of the writes in front of an operand, in its batch and in its
//! group, no MemTable has anything yet, so they are looked at first.
//!
//! What is written for an operand may cover other operands of its key, as long as these are in the
//! same MemTable (`operands`, O2). So no MemTable is frozen within a group with operands, unless
//! the group is large: then each of its operands covers itself alone.
//!
//! A group without operands pays one look at each write.

use std::borrow::Cow;
use std::collections::HashMap;

use super::SsdEngine;
use crate::engine::keyspaces::{DroppableKeyspace, KeyspaceId};
use crate::engine::write::Write;
use crate::expiry::{StoredRecord, UnixMillis, value_of};
use crate::limits::check_limits;
use crate::log::{BatchEncoder, LogOp};
use crate::merge::{MergeError, MergeOperator};
use crate::operands::{OlderVersion, Operands, malformed_in_memory, resolve};
use crate::ranges::is_deleted_by;
use crate::types::{Kind, Seq};
use crate::{Error, Result, Slice};

/// The most bytes of a group whose operands cover others: what a MemTable may exceed its size by.
const COVERING_BYTES_MAX: usize = 1 << 20;

/// The writes of a group that are logged, as far as operands behind them need them.
pub(super) struct PendingMerges {
    /// Whether the group has operands.
    are_there: bool,
    /// Whether these may cover each other, and what is in MemTables.
    cover: bool,
    logged: Written,
    /// Writes that had operands, with their positions in the group.
    resolved: Vec<(usize, BatchEncoder)>,
}

/// A key of a keyspace.
type Place = (u32, Vec<u8>);

/// What was written last.
#[derive(Default)]
struct Written {
    records: HashMap<Place, (Seq, Kind, Vec<u8>)>,
    /// Keyspaces, ranges and numbers of range deletes.
    ranges: Vec<(u32, Vec<u8>, Vec<u8>, Seq)>,
}

impl Written {
    fn add(&mut self, operation: &LogOp<'_>) {
        let LogOp {
            seq,
            kind,
            keyspace,
            key,
            value,
        } = *operation;
        match kind {
            Kind::DeleteRange => {
                let range = (keyspace, key.to_vec(), value.to_vec(), seq);
                self.ranges.push(range);
            }
            _ => {
                let record = (seq, kind, value.to_vec());
                self.records.insert((keyspace, key.to_vec()), record);
            }
        }
    }

    fn append(&mut self, later: Written) {
        self.records.extend(later.records);
        self.ranges.extend(later.ranges);
    }

    /// What they say of a key, if anything.
    fn find(&self, keyspace: u32, key: &[u8]) -> Option<OlderVersion> {
        let record = self.records.get(&(keyspace, key.to_vec()));
        let written = record.map_or(0, |(seq, ..)| *seq);
        let is_deleted = self.ranges.iter().any(|(own, lower, upper, seq)| {
            *own == keyspace && *seq > written && is_deleted_by(lower, upper, key)
        });
        match record {
            _ if is_deleted => Some(OlderVersion::Nothing),
            Some((_, Kind::Delete, _)) => Some(OlderVersion::Nothing),
            Some((seq, kind, stored)) => {
                let record = StoredRecord::new(*kind, Slice::new(stored));
                Some(OlderVersion::Record(*seq, record))
            }
            None => None,
        }
    }
}

impl PendingMerges {
    /// For the writes of a group.
    pub(super) fn of<'w, K: 'w>(
        writes: impl Iterator<Item = Write<'w, K>> + Clone,
    ) -> PendingMerges {
        let are_there = writes.clone().any(|write| write.has_operands());
        let bytes = || writes.map(|write| write.bytes()).sum::<usize>();
        PendingMerges {
            are_there,
            cover: are_there && bytes() <= COVERING_BYTES_MAX,
            logged: Written::default(),
            resolved: Vec::new(),
        }
    }

    /// Whether no MemTable may be frozen between the writes of the group.
    pub(super) fn must_stay_together(&self) -> bool {
        self.cover
    }

    /// Logs the write at a position of the group, with what its operands amount to. Returns its
    /// first number.
    pub(super) fn append<E: SsdEngine>(
        &mut self,
        engine: &E,
        half: &mut E::WriteHalf,
        (position, write): (usize, Write<'_, E::Keyspace>),
    ) -> Result<Seq> {
        match self.are_there {
            true => self.append_resolved(engine, half, (position, write)),
            false => engine.append(half, write),
        }
    }

    #[cold]
    fn append_resolved<E: SsdEngine>(
        &mut self,
        engine: &E,
        half: &mut E::WriteHalf,
        (position, write): (usize, Write<'_, E::Keyspace>),
    ) -> Result<Seq> {
        let operations = write.encode();
        let mut own = Written::default();
        let resolved = match write.has_operands() {
            true => self.resolve(engine, &operations, E::next_seq(half), &mut own)?,
            false => operations,
        };
        let first = engine.append(half, Write::Batch(&resolved))?;
        if own.records.is_empty() {
            let written = resolved.ops(first).map_while(Result::ok);
            written.for_each(|operation| own.add(&operation));
        }
        self.logged.append(own);
        if write.has_operands() {
            self.resolved.push((position, resolved));
        }
        Ok(first)
    }

    /// The operations of a write whose first number is `first`, without operands; `own` has them.
    /// What the write itself writes over is left out.
    fn resolve<E: SsdEngine>(
        &self,
        engine: &E,
        operations: &BatchEncoder,
        first: Seq,
        own: &mut Written,
    ) -> Result<BatchEncoder> {
        let keyspaces = engine.keyspaces.load();
        let mut resolved = BatchEncoder::with_capacity(operations.bytes().len());
        let entries = entries_of(operations);
        for (seq, entry) in (first..).zip(entries.into_iter().flatten()) {
            let Entry {
                keyspace: id, key, ..
            } = entry;
            let (kind, stored) = match entry.what {
                What::Plain(kind, stored) => (kind, Cow::Borrowed(stored)),
                What::Merge(base, operands) => {
                    let keyspace = keyspaces.live(id).ok_or(Error::KeyspaceDropped)?;
                    let older = match base {
                        Base::Nothing => OlderVersion::Nothing,
                        Base::Plain(kind, stored) => {
                            OlderVersion::Record(seq, StoredRecord::new(kind, Slice::new(stored)))
                        }
                        Base::Before => self.older(engine, keyspace, key)?,
                    };
                    let moment = || engine.moments.now();
                    let operands = (&operands[..], seq);
                    let (kind, stored) = merge::<E>(keyspace, key, operands, older, moment)?;
                    (kind, Cow::Owned(stored))
                }
            };
            resolved.op(kind, id, key, &stored);
            own.add(&LogOp {
                seq,
                kind,
                keyspace: id,
                key,
                value: &stored,
            });
        }
        Ok(resolved)
    }

    /// What a key has before a write of the group.
    fn older<E: SsdEngine>(
        &self,
        engine: &E,
        keyspace: &E::Keyspace,
        key: &[u8],
    ) -> Result<OlderVersion> {
        let logged = self.logged.find(keyspace.id(), key);
        Ok(
            match logged.map_or_else(|| engine.older(keyspace, key), Ok)? {
                OlderVersion::Record(_, record)
                    if !self.cover && Operands::are_open_in(&record) =>
                {
                    OlderVersion::Unknown
                }
                older => older,
            },
        )
    }

    /// The write at a position of the group as it was logged.
    pub(super) fn logged<'w, K>(&'w self, position: usize, write: Write<'w, K>) -> Write<'w, K> {
        let mut resolved = self.resolved.iter();
        match resolved.find(|(own, _)| *own == position) {
            Some((_, operations)) => Write::Batch(operations),
            None => write,
        }
    }
}

/// What becomes of a key in a write.
struct Entry<'o> {
    keyspace: u32,
    key: &'o [u8],
    what: What<'o>,
}

enum What<'o> {
    /// An operation as it was handed in.
    Plain(Kind, &'o [u8]),
    /// Operands, in their order, and what they are merged into.
    Merge(Base<'o>, Vec<&'o [u8]>),
}

enum Base<'o> {
    /// What was there before the write.
    Before,
    /// What the write itself puts there.
    Plain(Kind, &'o [u8]),
    /// Nothing: the write deletes it.
    Nothing,
}

/// What a write does, each key once between deletes of ranges that have it. Nobody sees a moment
/// within a write, so all operands of a key are merged at the place of the last one.
fn entries_of(operations: &BatchEncoder) -> Vec<Option<Entry<'_>>> {
    let mut entries: Vec<Option<Entry<'_>>> = Vec::new();
    let mut last: HashMap<(u32, &[u8]), usize> = HashMap::new();
    let mut ranges: Vec<(u32, &[u8], &[u8], usize)> = Vec::new();
    // Numbers begin at 1.
    for operation in operations.ops(1).map_while(Result::ok) {
        let LogOp {
            keyspace,
            key,
            kind,
            value,
            ..
        } = operation;
        let at = entries.len();
        if kind == Kind::DeleteRange {
            ranges.push((keyspace, key, value, at));
        } else {
            let before = last.insert((keyspace, key), at);
            if kind == Kind::Operand {
                let deleted = ranges.iter().rev().find(|(own, lower, upper, _)| {
                    *own == keyspace && is_deleted_by(lower, upper, key)
                });
                let deleted = deleted.map(|(.., at)| *at);
                let before = before.filter(|before| deleted.is_none_or(|at| at < *before));
                let before = before.and_then(|before| entries.get_mut(before)?.take());
                let what = match before.map(|before| before.what) {
                    Some(What::Merge(base, mut operands)) => {
                        operands.push(value);
                        What::Merge(base, operands)
                    }
                    Some(What::Plain(Kind::Delete, _)) => What::Merge(Base::Nothing, vec![value]),
                    Some(What::Plain(kind, stored)) => {
                        What::Merge(Base::Plain(kind, stored), vec![value])
                    }
                    None if deleted.is_some() => What::Merge(Base::Nothing, vec![value]),
                    None => What::Merge(Base::Before, vec![value]),
                };
                entries.push(Some(Entry {
                    keyspace,
                    key,
                    what,
                }));
                continue;
            }
        }
        entries.push(Some(Entry {
            keyspace,
            key,
            what: What::Plain(kind, value),
        }));
    }
    entries
}

/// What is written for operands on top of what their key has.
pub(crate) fn merge<E: SsdEngine>(
    keyspace: &E::Keyspace,
    key: &[u8],
    (operands, seq): (&[&[u8]], Seq),
    older: OlderVersion,
    now: impl Fn() -> UnixMillis,
) -> Result<(Kind, Vec<u8>)> {
    let own = keyspace.own_options();
    let options = own.get();
    let asked = own.ask_now(options.merge.as_ref(), key, now);
    let (kind, stored) = resolve(asked, operands, seq, older)?;
    if kind == Kind::Merge && !E::KEEPS_OPERANDS {
        // The operator has failed: it says why once more.
        let operands = Operands::decode(&stored).map_err(malformed_in_memory)?;
        let why = MergeError::from("the operator does not give the same result twice");
        let unnamed = || MergeOperator::named("");
        let failed = || {
            options
                .merge
                .clone()
                .unwrap_or_else(unnamed)
                .failed(key, &why)
        };
        return Err(operands.read(asked).err().unwrap_or_else(failed));
    }
    check_limits(key, value_of(kind, &stored))?;
    Ok((kind, stored))
}
