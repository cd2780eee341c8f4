//! Merges as they are read and written: operands, and what their key has below them.
//!
//! # Idea
//! A record of operands covers the versions of its key down to a number (`operands`); the reader
//! goes on below that, from one record to the next, until it has come to a value, a delete or the
//! end. Each step asks one source less, so a bucket of a few runs needs a few steps.
//!
//! A writer folds with what the MemTable has that takes its write, and leaves the rest for later
//! (`operands`, O2). Where values expire it looks on, for a value whose time is over must not come
//! back with what was merged into it.
//!
//! # Invariants
//! - F1: who writes a merge has the turn of its key: nobody inserts another version meanwhile.

use super::{decides, find_in_memory};
use crate::Result;
use crate::Slice;
use crate::engine::wip::bucket::BucketState;
use crate::engine::wip::{Wip, WipKeyspace};
use crate::expiry::{StoredRecord, UnixMillis};
use crate::operands::{OlderVersion, Operands, malformed_in_memory};
use crate::types::{Kind, SEQ_MAX, Seq};

/// A version of a key.
struct Version {
    seq: Seq,
    kind: Kind,
    stored: Slice,
}

impl Wip {
    /// The record of a key whose newest version at `seq` is a merge.
    #[cold]
    pub(super) fn find_merged(
        &self,
        keyspace: &WipKeyspace,
        state: &BucketState,
        (key, hash): (&[u8], u64),
        seq: Seq,
        moment: UnixMillis,
    ) -> Result<Option<StoredRecord>> {
        let deleted = state.deletes.newest(key, seq);
        let Some(newest) = version_at(state, (key, hash), seq, deleted)? else {
            return Ok(None);
        };
        let mut operands = decode(&newest.stored)?;
        fold_down(state, (key, hash), (newest.seq, deleted), &mut operands)?;
        let options = keyspace.own.get();
        operands.read(keyspace.own.ask(options.merge.as_ref(), key, moment))
    }

    /// What a key has below a merge that is about to be written (F1).
    pub(in crate::engine::wip) fn older(
        &self,
        keyspace: &WipKeyspace,
        state: &BucketState,
        key: &[u8],
        hash: u64,
    ) -> Result<OlderVersion> {
        let deleted = state.deletes.newest(key, SEQ_MAX);
        if !keyspace.own.expires() {
            let entry = state.active.get(key, hash, SEQ_MAX);
            return Ok(match entry.filter(|entry| decides(entry.kind)) {
                None => OlderVersion::Unknown,
                Some(entry) if entry.kind == Kind::Delete || entry.seq <= deleted => {
                    OlderVersion::Nothing
                }
                Some(entry) => {
                    let record = StoredRecord::new(entry.kind, Slice::new(entry.value));
                    OlderVersion::Record(entry.seq, record)
                }
            });
        }
        let Some(newest) = version_at(state, (key, hash), SEQ_MAX, deleted)? else {
            return Ok(OlderVersion::Nothing);
        };
        if newest.kind != Kind::Merge {
            let record = StoredRecord::new(newest.kind, newest.stored);
            return Ok(OlderVersion::Record(newest.seq, record));
        }
        let mut operands = decode(&newest.stored)?;
        fold_down(state, (key, hash), (newest.seq, deleted), &mut operands)?;
        let record = StoredRecord::new(Kind::Merge, Slice::new(&operands.encode()));
        Ok(OlderVersion::Record(newest.seq, record))
    }
}

/// What is stored of a merge.
fn decode(stored: &[u8]) -> Result<Operands> {
    Operands::decode(stored).map_err(malformed_in_memory)
}

/// Puts operands of a record on top of all that its key has below it; what is not above `deleted`
/// was deleted with a range of keys.
fn fold_down(
    state: &BucketState,
    key: (&[u8], u64),
    (own, deleted): (Seq, Seq),
    operands: &mut Operands,
) -> Result<()> {
    let mut own = own;
    while let Some(below) = operands.below(own) {
        let older = match below.checked_sub(1) {
            Some(seq) if seq > 0 => version_at(state, key, seq, deleted)?,
            _ => None,
        };
        match older {
            Some(older) => {
                let put = operands.set_base(older.seq, older.kind, &older.stored);
                put.map_err(malformed_in_memory)?;
                own = older.seq;
            }
            None => operands.set_no_base(),
        }
    }
    Ok(())
}

/// The newest version of a key with a number of at most `seq`, unless it deletes the key or is not
/// above `deleted`.
fn version_at(
    state: &BucketState,
    (key, hash): (&[u8], u64),
    seq: Seq,
    deleted: Seq,
) -> Result<Option<Version>> {
    let is_there = |version: &Version| version.seq > deleted && !version.kind.is_tombstone();
    if let Some(entry) = find_in_memory(state, key, hash, seq) {
        let version = Version {
            seq: entry.seq,
            kind: entry.kind,
            stored: Slice::new(entry.value),
        };
        return Ok(Some(version).filter(is_there));
    }
    for file in state.levels.runs().filter_map(|run| run.table_for(key)) {
        let table = file.table()?;
        if table.may_contain(hash)
            && let Some(entry) = table.get(key, hash, seq)?
            && decides(entry.kind)
        {
            let version = Version {
                seq: entry.seq,
                kind: entry.kind,
                stored: entry.value,
            };
            return Ok(Some(version).filter(is_there));
        }
    }
    Ok(None)
}
