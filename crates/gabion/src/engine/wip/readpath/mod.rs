//! A get, down the stairs: router, bucket, MemTables, filters, tables.
//!
//! # Linearization
//! A get without a snapshot takes effect when it loads the visible sequence number. It first takes
//! the bucket's state, then the number, then checks that the state is still the bucket's: then all
//! that is visible at that number is in the state, and no flush or compaction whose result is in
//! the state dropped a version that the number needs (jobs protect the number that was visible
//! when they began). A split gives the old bucket a last state of its own, so that the check
//! notices splits too.
//!
//! A get with a snapshot needs no such check: its number was visible before the call, and
//! registered numbers are protected.
//!
//! In a follower a router says from which number on it is right (`follow`): a get that finds a
//! larger one than the visible number looks again, for that is about to be published.
//!
//! Both look, after they took the state, whether the keyspace was dropped at their number or below
//! it (`drop`, X3).

mod conflicts;
pub(super) mod cursor;
mod fold;
pub(super) mod merge;
mod multi_get;
pub(super) mod residency;
pub(super) mod scan;

use std::cell::Cell;
use std::sync::Arc;

use super::bucket::{BucketState, Levels};
use super::table::Table;
use super::{Wip, WipKeyspace};
use crate::engine::memtable::MemEntry;
use crate::expiry::{ReadPoint, StoredRecord};
use crate::types::{Kind, SEQ_MAX, Seq, hash_key};
use crate::{Result, Slice};

/// Tables that are searched only after so many filters were asked, so that the cache misses of the
/// filters overlap.
const FILTERS_AT_ONCE: usize = 64;

impl Wip {
    /// The value of `key` at `snapshot`, or now.
    pub(crate) fn get(
        &self,
        keyspace: &WipKeyspace,
        key: &[u8],
        snapshot: Option<ReadPoint>,
    ) -> Result<Option<Slice>> {
        self.find(keyspace, key, snapshot, StoredRecord::into_value)
    }

    /// The record of `key` at `snapshot`, or now.
    pub(crate) fn find_record(
        &self,
        keyspace: &WipKeyspace,
        key: &[u8],
        snapshot: Option<ReadPoint>,
    ) -> Result<Option<StoredRecord>> {
        self.find(keyspace, key, snapshot, |record| record)
    }

    /// What `take` makes of the record of `key`.
    #[inline]
    fn find<T>(
        &self,
        keyspace: &WipKeyspace,
        key: &[u8],
        snapshot: Option<ReadPoint>,
        take: impl Fn(StoredRecord) -> T,
    ) -> Result<Option<T>> {
        let moment = || snapshot.map_or_else(|| self.moments.now(), |point| point.moment);
        let is_merge = Cell::new(false);
        let take_if_settled = |record: StoredRecord| match record.parts().0 {
            Kind::Merge => {
                is_merge.set(true);
                None
            }
            _ => record.at(moment).map(&take),
        };
        let hash = hash_key(key);
        loop {
            let router = match snapshot {
                Some(point) => keyspace.router_at(point.seq),
                None => keyspace.router.load(),
            };
            let bucket = router.route(key);
            let state = bucket.state.load();
            let seq = match snapshot {
                Some(point) => point.seq,
                None => {
                    let seq = self.visible();
                    if !Arc::ptr_eq(&state, &bucket.state.load()) || router.since() > seq {
                        continue;
                    }
                    seq
                }
            };
            keyspace.dropped.check_at(seq)?;
            // Most keys are in tables: what their search begins with comes while the MemTables are
            // asked.
            state.active.prefetch(hash);
            prefetch_in_levels(&state.levels, key, hash);
            let deleted = state.deletes.newest(key, seq);
            let found = match find_in_memory(&state, key, hash, seq) {
                Some(entry) => record_of(&entry, deleted).and_then(take_if_settled),
                None => {
                    self.count_read(bucket);
                    let key = (key, hash);
                    find_in_levels(&state.levels, key, seq, deleted, take_if_settled)?
                }
            };
            if is_merge.get() {
                let merged = self.find_merged(keyspace, &state, (key, hash), seq, moment())?;
                return Ok(merged.map(&take));
            }
            return Ok(found);
        }
    }
}

/// What an entry of a MemTable says of its key; what is not above `deleted` was deleted with a
/// range of keys.
#[inline]
pub(super) fn record_of(entry: &MemEntry<'_>, deleted: Seq) -> Option<StoredRecord> {
    let is_there = !entry.kind.is_tombstone() && entry.seq > deleted;
    is_there.then(|| StoredRecord::new(entry.kind, Slice::new(entry.value)))
}

/// Whether a version of a key says what reads find. A range delete that begins at the key does not:
/// readers ask the bucket's index of them, and what was ingested may be newer and lie below.
#[inline]
fn decides(kind: Kind) -> bool {
    kind != Kind::DeleteRange
}

/// The newest entry of `key` in the MemTables that is visible at `seq`.
#[inline]
pub(super) fn find_in_memory<'s>(
    state: &'s BucketState,
    key: &[u8],
    hash: u64,
    seq: Seq,
) -> Option<MemEntry<'s>> {
    state.memtables().find_map(|table| {
        table
            .get(key, hash, seq)
            .filter(|entry| decides(entry.kind))
    })
}

/// Asks for the memory that [`find_in_levels`] waits for first.
#[inline]
pub(super) fn prefetch_in_levels(levels: &Levels, key: &[u8], hash: u64) {
    for run in levels.runs() {
        if let Some(table) = run.table_for(key).and_then(|file| file.opened()) {
            table.prefetch_filter(hash);
        }
    }
}

/// What `take` makes of the record of a key with that hash in the tables at `seq`; what is not
/// above `deleted` was deleted with a range of keys.
#[inline]
pub(super) fn find_in_levels<T>(
    levels: &Levels,
    (key, hash): (&[u8], u64),
    seq: Seq,
    deleted: Seq,
    take: impl FnOnce(StoredRecord) -> Option<T>,
) -> Result<Option<T>> {
    let mut candidates: [Option<&Arc<Table>>; FILTERS_AT_ONCE] = [None; FILTERS_AT_ONCE];
    let mut runs = levels.runs();
    loop {
        let mut count = 0;
        for run in runs.by_ref() {
            if let Some(file) = run.table_for(key) {
                let table = file.table()?;
                if table.may_contain(hash) {
                    candidates[count] = Some(table);
                    count += 1;
                }
            }
            if count == FILTERS_AT_ONCE {
                break;
            }
        }
        for table in candidates[..count].iter().flatten() {
            if let Some(entry) = table.get(key, hash, seq)?
                && decides(entry.kind)
            {
                let is_there = !entry.kind.is_tombstone() && entry.seq > deleted;
                let record = is_there.then(|| StoredRecord::new(entry.kind, entry.value));
                return Ok(record.and_then(take));
            }
        }
        if count < FILTERS_AT_ONCE {
            return Ok(None);
        }
    }
}

/// Whether the tables have a version of `key` above `seq`.
pub(super) fn has_newer(levels: &Levels, key: &[u8], hash: u64, seq: Seq) -> Result<bool> {
    for file in levels.runs().filter_map(|run| run.table_for(key)) {
        let table = file.table()?;
        if table.may_contain(hash)
            && let Some(entry) = table.get(key, hash, SEQ_MAX)?
            && entry.seq > seq
        {
            return Ok(true);
        }
    }
    Ok(false)
}
