//! Shrinks the log of an idle store.
//!
//! # Idea
//! While writes come, the log keeps spare files, and the writes of all MemTables. After a while
//! without writes it needs neither: the store removes spare files, and shortens a log of more than
//! a segment. It flushes MemTables, except small ones that fit into half a segment together: it
//! logs those again in a new, small segment. Then it removes everything before that segment.
//!
//! # Invariants
//! - R1: a log of at most a segment stays as it is, and a shortened one holds at most half a
//!   segment. So each byte of the log causes at most one flush, and an idle store comes to do
//!   nothing.
//! - R2: as in `log_reclaim`: what is logged again is durable before the manifest says that its
//!   first copy is not needed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Result;
use crate::engine::memtable::MemTable;
use crate::engine::wip::Wip;
use crate::engine::wip::policy::log_length::LogLength;

/// What a record of the log has besides key and value, at most.
const RECORD_HEAD_BYTES: u64 = 40;

impl Wip {
    /// Gives back space of the log, if nobody writes.
    pub(in super::super) fn shrink_log(&self) -> Result<()> {
        if self.health.failure().is_some() || !self.is_idle() {
            return Ok(());
        }
        if self.is_log_too_long() {
            self.shorten_log()?;
        }
        match self.syncer.may_rest() {
            true => self.syncer.rest(),
            false => Ok(()),
        }
    }

    /// Whether [`Wip::shrink_log`] has something to do.
    pub(in super::super) fn may_shrink_log(&self) -> bool {
        self.syncer.may_rest() || self.is_log_too_long()
    }

    /// Whether the log holds more than a store at rest needs, and can be shortened.
    fn is_log_too_long(&self) -> bool {
        let length = LogLength::of(&self.options);
        if self.log_bytes() <= length.at_rest {
            return false;
        }
        let recorded = self.versions.lock().manifest.state().log_tail;
        let tail = self.log_tail([]);
        // ORDER: Acquire pairs with the Release in `publish`, as in `log_tail`.
        let current = self.published_segment.load(Ordering::Acquire);
        tail != current || tail > recorded || self.syncer.appended_lsn().offset() > length.rested
    }

    /// Makes the log hold nothing but small MemTables. They are logged again when no other one is
    /// left; until then this has to be called again.
    fn shorten_log(&self) -> Result<()> {
        if !self.lock_install().frozen.is_empty() {
            return Ok(());
        }
        let mut tables: Vec<_> = self
            .written
            .buckets()
            .into_iter()
            .filter_map(|bucket| self.with_keyspace(bucket))
            .map(|(keyspace, bucket)| {
                let bytes = relogged_bytes(&bucket.state.load().active);
                (bytes, keyspace, bucket)
            })
            .filter(|(bytes, ..)| *bytes > 0)
            .collect();
        tables.sort_by_key(|(bytes, ..)| *bytes);
        let sizes = tables.iter().map(|(bytes, ..)| *bytes);
        let small = LogLength::of(&self.options).relogged_when_idle(sizes);
        let large = tables.split_off(small);
        if !large.is_empty() {
            let _alone = self.leader.write();
            let mut install = self.lock_install();
            for (_, keyspace, bucket) in &large {
                self.freeze(&mut install, keyspace, bucket);
            }
            return Ok(());
        }
        {
            let mut leader = self.leader.write();
            let segment = leader.begin_small()?;
            // Who holds the leader alone finds everything published that is in the log.
            self.publish(self.visible(), segment);
        }
        for (_, keyspace, bucket) in &tables {
            self.relog(keyspace, bucket)?;
        }
        self.advance_tail()
    }
}

/// What it takes at most to log the records of a MemTable again.
fn relogged_bytes(table: &Arc<MemTable>) -> u64 {
    table.user_bytes() + table.items() as u64 * RECORD_HEAD_BYTES
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::Options;

    /// A limit below the smallest segment moves nothing of a log that a store at rest keeps.
    #[test]
    fn what_rests_is_left_alone_whatever_the_limit() {
        let options = Options::default()
            .log_bytes_max(1 << 10)
            .background_threads(0);
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("some").unwrap();
        for number in 0..30 {
            engine.put_for_tests(&keyspace, format!("key {number}").as_bytes(), &[7; 50]);
        }
        engine.wait_idle().unwrap();
        engine.put_for_tests(&keyspace, b"last", b"value");
        let before = engine.log_bytes();
        let at_rest = LogLength::of(&engine.options).at_rest;
        assert!((2 << 10..=at_rest).contains(&before), "{before}");
        // The log's thread may come at any time.
        for _ in 0..3 {
            engine.relieve_log().unwrap();
            assert_eq!(engine.log_bytes(), before);
        }
    }
}
