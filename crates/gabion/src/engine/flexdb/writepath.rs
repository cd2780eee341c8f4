//! A write: log, MemTable, publication.
//!
//! # Idea
//! Whoever writes holds the writer's lock: it appends to the log, inserts into MemTables and
//! publishes. Writes that must survive the loss of power queue instead; the head of the queue
//! leads: it takes all that wait behind it along and syncs the log once for all of them. While it
//! syncs, the next group gathers.
//!
//! # Invariants
//! - W1. The order of records in the log is the order of numbers, of inserts and of publication.
//! - W2. A write is in the log, and on the medium where that was asked for, before it is in a
//!   MemTable: no read returns a value that a power loss can undo which it was not allowed to.
//! - W3. A generation is frozen under the writer's lock, so all of its numbers are published.
//!
//! # Failures
//! A record that finds no space for the next segment of the log fails its write and changes
//! nothing; later writes may succeed. After a failed sync, or another failed write of the log, the
//! store is read-only: nobody knows what is on the medium.

use std::sync::Arc;

use super::generation::{Generation, GenerationList};
use super::{Flex, Write};
use crate::engine::ssd::SsdEngine;
use crate::log::Log;
use crate::types::Seq;
use crate::{Error, Result};

/// The write half of the log, and the number of the next write.
pub(crate) struct FlexWriteHalf {
    /// `None` before the store is settled and once it is closed.
    pub(super) log: Option<Log>,
    pub(super) next_seq: Seq,
}

impl FlexWriteHalf {
    /// The segment of the log's next record, unless that begins a new one.
    pub(super) fn segment(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::current_segment)
    }
}

impl Flex {
    /// After a put that found no room: merges what is in memory, so that files of the log go and
    /// deletes give room back. Whether there was any; if not, the put fails as it has failed. Where
    /// the background has found no room, this is done only if the medium is known to have what it
    /// takes: else each put would try in vain.
    pub(super) fn gain_room(&self) -> bool {
        let holds_any = {
            let view = self.view.load();
            !view.active().is_empty() || !view.frozen().is_empty()
        };
        holds_any
            && (self.schedule.check_shortage().is_ok() || self.syncer.has_room_to_flush())
            && self.flush().is_ok()
    }

    /// Asks for the memory that the insert of a single write waits for, so that it comes while the
    /// write is admitted and logged. Returns the hash of the key; 0 for a batch.
    #[inline]
    pub(super) fn prefetch(&self, write: Write<'_>) -> u64 {
        let hash = write.key_hash();
        if let Write::Single { keyspace, .. } = write {
            self.view.load().active().prefetch(keyspace.id, hash);
        }
        hash
    }

    /// Performs a write; `hash` is that of the key of a single one.
    pub(super) fn write_now(
        &self,
        writer: &mut FlexWriteHalf,
        write: Write<'_>,
        hash: u64,
    ) -> Result<()> {
        let first = self.log_write(writer, write)?;
        let view = self.view.load();
        self.insert(view.active(), write, hash, first);
        self.publish(writer.next_seq - 1);
        self.freeze_if_full(&view, writer);
        Ok(())
    }

    /// Inserts logged writes into the generation that takes writes, and publishes them.
    pub(super) fn insert_all<'w>(
        &self,
        writer: &mut FlexWriteHalf,
        writes: impl Iterator<Item = (Write<'w>, Seq)>,
    ) {
        let view = self.view.load();
        for (write, first) in writes {
            self.insert(view.active(), write, write.key_hash(), first);
        }
        self.publish(writer.next_seq - 1);
        self.freeze_if_full(&view, writer);
    }

    /// Appends a write to the log; returns its first sequence number.
    pub(super) fn log_write(&self, writer: &mut FlexWriteHalf, write: Write<'_>) -> Result<Seq> {
        // Whoever waited for the lock may find the store failed.
        self.health.check_writable()?;
        self.keyspaces.check_write(write)?;
        let first = writer.next_seq;
        let log = writer.log.as_mut().ok_or(Error::Closed)?;
        let segment = log.current_segment();
        let appended = write.log(first, |parts| log.append(parts, write.room_for()));
        if let Err(error) = appended {
            // A failure that ends the log ends all writing.
            return Err(match self.syncer.check() {
                Ok(()) => error,
                Err(cause) => self.fail(cause),
            });
        }
        if log.current_segment() != segment {
            self.schedule.wake_log();
        }
        writer.next_seq += u64::from(write.count());
        Ok(first)
    }

    /// Inserts a logged write into the generation that takes writes; `hash` is that of the key of a
    /// single one.
    fn insert(&self, active: &Generation, write: Write<'_>, hash: u64, first: Seq) {
        let protected = || self.snapshots.protect(|| self.read_point());
        match write {
            Write::Single {
                keyspace,
                kind,
                key,
                value,
            } => {
                let change = (kind, key, value);
                active.insert(keyspace.id, change, hash, first, protected);
            }
            Write::Batch(operations) | Write::Transaction(operations, _) => {
                active.insert_all(operations.ops(first).map_while(Result::ok), protected);
            }
        }
    }

    /// Bytes of the generation that takes writes at which it is frozen, if no other one waits.
    pub(super) fn active_bytes_max(&self) -> u64 {
        self.budget() / 5 * 2
    }

    fn freeze_if_full(&self, view: &GenerationList, writer: &FlexWriteHalf) {
        // As long as another one is merged, this one grows, and the log may shrink without it.
        if view.frozen().is_empty()
            && (view.active().bytes() > self.active_bytes_max()
                || self.is_log_long()
                || view.active().is_in_the_way())
        {
            self.freeze(writer);
        }
    }

    fn is_log_long(&self) -> bool {
        let bytes = self.syncer.live_bytes();
        bytes > self.options.log_bytes_max || self.syncer.is_long_for_room(bytes)
    }

    /// Lets a new generation take the writes; false if there were none.
    pub(super) fn freeze(&self, writer: &FlexWriteHalf) -> bool {
        if self.view.load().active().is_empty() {
            return false;
        }
        let segment = writer.segment();
        self.change_view(|view| {
            let next = Generation::after(view.active(), segment);
            view.waiting.insert(0, Arc::new(next));
        });
        self.schedule.wake();
        true
    }

    /// Merges everything written so far and waits for it; under steady writes something is always
    /// left to merge.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        let newest = {
            let writer = self.writer.lock();
            self.freeze(&writer);
            self.newest_frozen()
        };
        self.wait_merged(|| newest)
    }
}
