//! Finds writes since a sequence number, for the commit of a transaction.
//!
//! # Idea
//! The caller has the write half of the log, so that nothing is written meanwhile, and a reader is
//! registered at the number, so that nothing is dropped that hides from it what it reads. Then what
//! is newer than the number is in MemTables and tables whose largest numbers are, which for a
//! transaction that takes less time than a flush is one MemTable.
//!
//! A compaction may drop a delete, and a put in front of it, if the key had no value at the number
//! and has none now: then nothing has changed for who reads by value.

use std::sync::Arc;

use super::cursor::{EntryCursor, ReadPattern, RunCursor};
use super::has_newer;
use crate::Result;
use crate::engine::wip::bucket::{Bucket, BucketState};
use crate::engine::wip::{Wip, WipKeyspace};
use crate::types::{SEQ_MAX, Seq};

impl Wip {
    /// Whether a write to a key has a number above `since`. `hash` is that of the key.
    pub(in crate::engine::wip) fn is_newer(
        keyspace: &WipKeyspace,
        key: &[u8],
        hash: u64,
        since: Seq,
    ) -> Result<bool> {
        let router = keyspace.router.load();
        let state = router.route(key).state.load();
        let newest = |entry: Option<_>| entry.is_some_and(|seq: Seq| seq > since);
        let mut tables = state.memtables().filter(|table| table.max_seq() > since);
        let in_memory =
            tables.any(|table| newest(table.get(key, hash, SEQ_MAX).map(|entry| entry.seq)));
        if in_memory || state.deletes.newest(key, SEQ_MAX) > since {
            return Ok(true);
        }
        match state.levels.max_seq() > since {
            true => has_newer(&state.levels, key, hash, since),
            false => Ok(false),
        }
    }

    /// The key of a write to a range with a number above `since`. O(what MemTables and tables with
    /// such numbers have in the range).
    pub(in crate::engine::wip) fn newer_in(
        keyspace: &WipKeyspace,
        (lower, upper): (&[u8], Option<&[u8]>),
        since: Seq,
    ) -> Result<Option<Vec<u8>>> {
        let router = keyspace.router.load();
        for bucket in router.touching(lower, upper) {
            let state = bucket.state.load();
            if let Some(key) = state.deletes.newer_in((lower, upper), since) {
                return Ok(Some(key));
            }
            for mut source in newer_sources(&state, since) {
                if let Some(key) = newer_of(&mut source, bucket, (lower, upper), since)? {
                    return Ok(Some(key));
                }
            }
        }
        Ok(None)
    }
}

/// Cursors over what may hold numbers above `since`.
fn newer_sources(state: &BucketState, since: Seq) -> Vec<EntryCursor> {
    let tables = state.memtables().filter(|table| table.max_seq() > since);
    let tables = tables.map(|table| EntryCursor::Memory(table.search()));
    let runs = state.levels.runs();
    let runs = runs.filter(|run| state.levels.max_seq() > since && run.seqs().1 > since);
    let runs = runs
        .map(|run| EntryCursor::Run(RunCursor::new(Arc::clone(&run.tables), ReadPattern::Cached)));
    tables.chain(runs).collect()
}

/// The first key of a source in a range and in a bucket whose newest version is above `since`.
fn newer_of(
    source: &mut EntryCursor,
    bucket: &Bucket,
    (lower, upper): (&[u8], Option<&[u8]>),
    since: Seq,
) -> Result<Option<Vec<u8>>> {
    let is_above = |key: &[u8]| {
        [upper, bucket.upper()]
            .iter()
            .flatten()
            .any(|end| key >= *end)
    };
    source.seek(lower.max(bucket.lower()))?;
    while source.valid() && !is_above(source.key()) {
        // The newest version of a key comes first.
        if source.seq() > since {
            return Ok(Some(source.key().to_vec()));
        }
        source.next_key()?;
    }
    Ok(None)
}
