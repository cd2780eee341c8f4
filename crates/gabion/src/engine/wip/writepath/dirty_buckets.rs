//! Which buckets hold writes in memory, since when, and which segments of the log their MemTables
//! pin.
//!
//! # Idea
//! A store may have very many buckets of which few are written. Whoever looks for MemTables with
//! something in them (a flush, the age of garbage, memory, the log's tail) finds them here, and
//! looks at no others. A MemTable comes in with its first record, which takes a lock once in its
//! life; it is out of the list of active ones when it is frozen, and its pin is gone when it is a
//! table.
//!
//! # Invariants
//! - W1: whoever holds the leader alone finds each bucket here whose active MemTable holds a
//!   record, and no other.
//! - W2: before a write is published the pin of its MemTable is here; it stays until the MemTable
//!   is a table, or gone with its keyspace. A pin is never larger here than the MemTable's own.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::engine::memtable::MemTable;
use crate::engine::wip::bucket::Bucket;

/// The list.
#[derive(Default)]
pub(in super::super) struct DirtyBuckets(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    /// Buckets with something in their active MemTables, by the time of its first record.
    buckets: BTreeMap<(u64, u64), Weak<Bucket>>,
    /// Pins of the MemTables that hold anything, by their addresses: what is in the list lives.
    pins: HashMap<usize, u64>,
    /// How many MemTables pin a segment.
    segments: BTreeMap<u64, usize>,
}

impl Lists {
    fn remove_pin(&mut self, table: &Arc<MemTable>) {
        if let Some(segment) = self.pins.remove(&address(table)) {
            let count = self.segments.get_mut(&segment);
            let left = count.map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 {
                self.segments.remove(&segment);
            }
        }
    }

    fn add_pin(&mut self, table: &Arc<MemTable>, segment: u64) {
        self.remove_pin(table);
        self.pins.insert(address(table), segment);
        *self.segments.entry(segment).or_default() += 1;
    }
}

fn address(table: &Arc<MemTable>) -> usize {
    Arc::as_ptr(table).addr()
}

impl DirtyBuckets {
    /// A bucket's active MemTable holds records since `since`, and pins what it pins.
    pub(in super::super) fn begin(&self, bucket: &Arc<Bucket>, table: &Arc<MemTable>, since: u64) {
        let mut lists = self.0.lock();
        bucket.set_written(since);
        let weak = Arc::downgrade(bucket);
        lists.buckets.insert((since, bucket.id), weak);
        if let Some(segment) = table.pin() {
            lists.add_pin(table, segment);
        }
    }

    /// A bucket's active MemTable was replaced by an empty one; returns since when it held
    /// records.
    pub(in super::super) fn freeze(&self, bucket: &Bucket) -> Option<u64> {
        let mut lists = self.0.lock();
        let since = bucket.take_written()?;
        lists.buckets.remove(&(since, bucket.id));
        Some(since)
    }

    /// The records of a MemTable were logged again in a later segment.
    pub(in super::super) fn repin(&self, table: &Arc<MemTable>, segment: u64) {
        self.0.lock().add_pin(table, segment);
    }

    /// A MemTable is a table by now, or nobody needs it.
    pub(in super::super) fn end(&self, table: &Arc<MemTable>) {
        self.0.lock().remove_pin(table);
    }

    /// A bucket is gone with its keyspace, or another one has its records.
    pub(in super::super) fn forget(&self, bucket: &Bucket) {
        self.freeze(bucket);
        for table in bucket.state.load().memtables() {
            self.end(table);
        }
    }

    /// The oldest segment that a MemTable pins, but for those of `without`, where one may come more
    /// than once, as the parts of a bucket share one.
    pub(in super::super) fn oldest_pin<'t>(
        &self,
        without: impl IntoIterator<Item = &'t Arc<MemTable>>,
    ) -> Option<u64> {
        let without: HashSet<usize> = without.into_iter().map(address).collect();
        let lists = self.0.lock();
        let mut left_out: BTreeMap<u64, usize> = BTreeMap::new();
        for table in &without {
            if let Some(segment) = lists.pins.get(table) {
                *left_out.entry(*segment).or_default() += 1;
            }
        }
        let is_pinned = |(segment, count): &(&u64, &usize)| left_out.get(segment) != Some(count);
        let first = lists.segments.iter().find(is_pinned);
        first.map(|(segment, _)| *segment)
    }

    /// The buckets whose active MemTables hold anything, those first that do so the longest.
    pub(in super::super) fn buckets(&self) -> Vec<Arc<Bucket>> {
        let lists = self.0.lock();
        lists.buckets.values().filter_map(Weak::upgrade).collect()
    }

    /// As [`DirtyBuckets::buckets`], those of which `is_due` says so of the time since when. Those
    /// times for which it does are the first or the last.
    pub(in super::super) fn buckets_since(&self, is_due: impl Fn(u64) -> bool) -> Vec<Arc<Bucket>> {
        let lists = self.0.lock();
        let due = |((since, _), _): &(&(u64, u64), &Weak<Bucket>)| is_due(*since);
        let first = lists.buckets.iter().take_while(due);
        let found: Vec<_> = first.filter_map(|(_, bucket)| bucket.upgrade()).collect();
        if !found.is_empty() {
            return found;
        }
        let last = lists.buckets.iter().rev().take_while(due);
        last.filter_map(|(_, bucket)| bucket.upgrade()).collect()
    }

    /// Whether no active MemTable holds any entry.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.0.lock().buckets.is_empty()
    }
}
