//! What a MemTable holds, in numbers: the writer counts, anyone reads.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::types::{Kind, Seq};

/// The totals of a table. The writer alone changes them.
#[derive(Default)]
pub(super) struct MemTableTotals {
    records: AtomicUsize,
    keys: AtomicUsize,
    user_bytes: AtomicU64,
    tombstones: AtomicU64,
    max_seq: AtomicU64,
}

impl MemTableTotals {
    /// Counts one more record, of `bytes` bytes of key and value; there are so many records and
    /// keys now. The caller holds the writer's lock, so plain stores do.
    #[inline]
    pub(super) fn add(&self, (records, keys): (usize, usize), bytes: usize, seq: Seq, kind: Kind) {
        // ORDER: Relaxed; statistics that order nothing, stored under the writer's lock.
        self.keys.store(keys, Ordering::Relaxed);
        let user_bytes = self.user_bytes.load(Ordering::Relaxed) + bytes as u64;
        self.user_bytes.store(user_bytes, Ordering::Relaxed);
        let max_seq = self.max_seq.load(Ordering::Relaxed).max(seq);
        self.max_seq.store(max_seq, Ordering::Relaxed);
        if kind == Kind::Delete {
            // ORDER: Relaxed (all), as above.
            let tombstones = self.tombstones.load(Ordering::Relaxed) + 1;
            self.tombstones.store(tombstones, Ordering::Relaxed);
        }
        // ORDER: Release pairs with the Acquire in `records`.
        self.records.store(records, Ordering::Release);
    }

    /// Records. Who sees the number sees all that it counts.
    #[inline]
    pub(super) fn records(&self) -> usize {
        // ORDER: Acquire pairs with the Release in `add`.
        self.records.load(Ordering::Acquire)
    }

    /// Distinct keys.
    pub(super) fn keys(&self) -> usize {
        // ORDER: Relaxed; a statistic that orders nothing.
        self.keys.load(Ordering::Relaxed)
    }

    /// Bytes of keys and values.
    pub(super) fn user_bytes(&self) -> u64 {
        // ORDER: Relaxed; a statistic that orders nothing.
        self.user_bytes.load(Ordering::Relaxed)
    }

    /// Deletes of single keys among the records.
    pub(super) fn tombstones(&self) -> u64 {
        // ORDER: Relaxed; a statistic that orders nothing.
        self.tombstones.load(Ordering::Relaxed)
    }

    /// The largest sequence number; 0 when there is no record.
    pub(super) fn max_seq(&self) -> Seq {
        // ORDER: Relaxed; a statistic that orders nothing.
        self.max_seq.load(Ordering::Relaxed)
    }
}
