//! The log's tail: how far it may move, and what moves it when nothing else does (paper, section
//! 2.3.6).
//!
//! # Idea
//! Each MemTable knows the log segment of its oldest record, its pin. The smallest pin of all
//! MemTables (`dirty_buckets`) bounds the tail: segments before it hold nothing that is not in a
//! table.
//!
//! A MemTable that gets few writes pins the tail for long. When the log exceeds its limit, the
//! store flushes the MemTables that pin the tail. If one is so small that its table would be a tiny
//! file, the store logs its records again at the head, under their old sequence numbers, and the
//! pin moves there.
//!
//! # Invariants
//! - I1: a tail is computed before the log is synced and recorded afterwards, so that records that
//!   were logged again are durable before the manifest says that their first copy is not needed.
//! - I2: what is in the log but not yet in a MemTable lies in no segment before the one that was
//!   current at the last publication.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::memtable::MemTable;
use crate::engine::range_deletes::RangeTombstones;
use crate::engine::wip::bucket::Bucket;
use crate::engine::wip::manifest::VersionEdit;
use crate::engine::wip::policy::log_length::LogLength;
use crate::engine::wip::writepath::freeze::sorted;
use crate::engine::wip::{Wip, WipKeyspace};
use crate::log::{RelogEncoder, SegmentPurpose};
use crate::types::{Kind, Seq};
use crate::{Result, Slice};

impl Wip {
    /// The first segment that is still needed when the MemTables `without` are tables or gone.
    pub(in super::super) fn log_tail<'t>(
        &self,
        without: impl IntoIterator<Item = &'t Arc<MemTable>>,
    ) -> u64 {
        // ORDER: Acquire pairs with the Release in `publish`. Taken first: what is published
        // later is pinned by then or lies in a later segment (I2).
        let published = self.published_segment.load(Ordering::Acquire);
        let pinned = self.written.oldest_pin(without);
        pinned.map_or(published, |pinned| pinned.min(published))
    }

    /// Deletes log segments before the tail that the manifest records.
    pub(in super::super) fn reclaim_log(&self) {
        let tail = self.versions.lock().manifest.state().log_tail;
        if let Err(error) = self.syncer.remove_before(tail) {
            // The next open, or the next call, removes them.
            tracing::warn!(%error, "a log segment that is no longer needed could not be removed \
                                    yet");
        }
    }

    /// Bytes of the log's segments.
    pub(in super::super) fn log_bytes(&self) -> u64 {
        self.syncer.live_bytes()
    }

    /// Moves the tail on when the log is larger than its limit, which is not below what a store at
    /// rest keeps, or than the medium has room for.
    pub(in super::super) fn relieve_log(&self) -> Result<()> {
        self.syncer.look_at_room();
        let (bytes, length) = (self.log_bytes(), LogLength::of(&self.options));
        if bytes <= length.most && !self.syncer.is_long_for_room(bytes) {
            return Ok(());
        }
        let tail = self.versions.lock().manifest.state().log_tail;
        for bucket in self.written.buckets() {
            let Some((keyspace, bucket)) = self.with_keyspace(bucket) else {
                continue;
            };
            self.count_visits(1);
            let table = Arc::clone(&bucket.state.load().active);
            if table.is_empty() || table.pin().is_none_or(|pin| pin > tail) {
                continue;
            }
            if table.user_bytes() <= length.relogged {
                self.relog(&keyspace, &bucket)?;
            } else {
                let _alone = self.leader.write();
                let mut install = self.lock_install();
                if Arc::ptr_eq(&bucket.state.load().active, &table) {
                    self.freeze(&mut install, &keyspace, &bucket);
                }
            }
        }
        self.advance_tail()
    }

    /// After a put that found no room: flushes what is in memory, so that files of the log go and
    /// deletes give room back. Whether there was any; if not, the put fails as it has failed. Where
    /// the background has found no room, this is done only if the medium is known to have what it
    /// takes: else each put would try in vain.
    pub(in super::super) fn gain_room(&self) -> bool {
        let holds_any = !self.written.is_empty() || self.has_frozen();
        holds_any
            && (self.schedule.check_shortage().is_ok() || self.syncer.has_room_to_flush())
            && self.flush().and_then(|()| self.advance_tail()).is_ok()
    }

    /// Gathers a log of many short files, as short runs of a program leave them, one each: what of
    /// their records is in MemTables is logged again, or flushed, and the files go. Done by an
    /// opening, before anybody can write.
    pub(in super::super) fn gather_log(&self) -> Result<()> {
        let length = LogLength::of(&self.options);
        if !length.is_scattered(self.log_bytes(), self.syncer.full_segments()) {
            return Ok(());
        }
        let mut frozen = Vec::new();
        for bucket in self.written.buckets() {
            let Some((keyspace, bucket)) = self.with_keyspace(bucket) else {
                continue;
            };
            if bucket.state.load().active.user_bytes() <= length.gathered {
                self.relog(&keyspace, &bucket)?;
            } else {
                let _alone = self.leader.write();
                frozen.extend(self.freeze_all([(&keyspace, &bucket)]));
            }
        }
        self.wait_flushed(&sorted(frozen))?;
        self.advance_tail()
    }

    /// Logs the records of a bucket's active MemTable again.
    pub(in super::super) fn relog(
        &self,
        keyspace: &Arc<WipKeyspace>,
        bucket: &Bucket,
    ) -> Result<()> {
        // The leader's lock keeps writers out: the MemTable does not change meanwhile.
        let mut leader = self.leader.write();
        if !keyspace.has(bucket) || bucket.is_dropped() {
            return Ok(());
        }
        let table = Arc::clone(&bucket.state.load().active);
        let mut encoder = RelogEncoder::new();
        for (seq, kind, key, value) in &records_of(&table) {
            encoder.op(*seq, *kind, keyspace.id, key, value);
        }
        if encoder.is_empty() {
            return Ok(());
        }
        // A record of old numbers, in the segment where it ends up.
        let segment = leader.append(&[encoder.payload()], 0, SegmentPurpose::Deletes)?;
        table.replace_pin(segment);
        self.written.repin(&table, segment);
        self.pace.spend(encoder.payload().len() as u64);
        Ok(())
    }

    /// Records how far the tail has moved, and deletes what lies before it.
    pub(in super::super) fn advance_tail(&self) -> Result<()> {
        let segment = self.log_tail([]);
        if segment <= self.versions.lock().manifest.state().log_tail {
            return Ok(());
        }
        self.syncer.sync().map_err(|error| self.fail(error))?;
        let edits = [VersionEdit::LogTail { segment }];
        self.apply(&mut self.versions.lock(), &edits)?;
        self.reclaim_log();
        Ok(())
    }
}

/// The records of a MemTable in the order of their numbers, in which a MemTable takes them; of a
/// range delete the value is the first key above it, empty for the end of all keys.
pub(in super::super) fn records_of(table: &MemTable) -> Vec<(Seq, Kind, Vec<u8>, Slice)> {
    let mut records: Vec<_> = Vec::new();
    let mut cursor = table.sorted();
    cursor.seek_first();
    while cursor.valid() {
        if cursor.kind() != Kind::DeleteRange {
            records.push((
                cursor.seq(),
                cursor.kind(),
                cursor.key().to_vec(),
                cursor.value(),
            ));
        }
        cursor.next();
    }
    for fragment in table.range_deletes().iter().flat_map(RangeTombstones::iter) {
        let upper = Slice::new(fragment.upper.as_deref().unwrap_or(&[]));
        for seq in &fragment.seqs {
            let lower = fragment.lower.to_vec();
            records.push((*seq, Kind::DeleteRange, lower, upper.clone()));
        }
    }
    records.sort_by_key(|(seq, ..)| *seq);
    records
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::Options;
    use crate::engine::ssd::Lifecycle;
    use crate::engine::wip::policy::log_length::FILES_MAX;

    /// Each run of a program that wrote anything left a file of the log for ever: 4,000 of them
    /// after 4,000 runs, each of which an opening had to read.
    #[test]
    fn short_runs_do_not_leave_ever_more_files() {
        for (threads, value_bytes) in [(0, 50), (1, 50), (0, 20_000), (1, 20_000)] {
            let sim = SimDisk::new();
            let options = || Options::default().background_threads(threads);
            let (mut most, runs) = (0, 100_u32);
            for number in 0..runs {
                let engine = Wip::open(Disk::simulated(&sim), options()).unwrap();
                let keyspace = engine.create_keyspace("keyspace").unwrap();
                let value = vec![7; value_bytes];
                engine.put_for_tests(&keyspace, &number.swap_bytes().to_le_bytes(), &value);
                engine.close().unwrap();
                let logs = sim
                    .names()
                    .iter()
                    .filter(|name| name.ends_with(".log"))
                    .count();
                most = most.max(logs);
            }
            println!("{threads} threads, {value_bytes} bytes: at most {most} files of the log");
            assert!(most as u64 <= FILES_MAX + 2, "{most} files");
            let engine = Wip::open(Disk::simulated(&sim), options()).unwrap();
            let keyspace = engine.create_keyspace("keyspace").unwrap();
            for number in 0..runs {
                let found = engine
                    .get(&keyspace, &number.swap_bytes().to_le_bytes(), None)
                    .unwrap();
                assert_eq!(found.map(|value| value.len()), Some(value_bytes));
            }
            engine.close().unwrap();
        }
    }
}
