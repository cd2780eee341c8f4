//! Drop: a keyspace goes, with its space.
//!
//! # Idea
//! A drop is a root without the keyspace. It has a sequence number, as a write has, so it takes
//! effect for readers as for a crash at one place among the writes: who reads below the number
//! finds the keyspace as it was, who reads from it on is told that there is none
//! ([`crate::engine::keyspaces`]).
//!
//! # Journey
//! 1. With the writer held, freeze what is in MemTables, so that a merge lets go of it; and sync
//!    the log: a power loss must not take writes back that were acknowledged before the drop, and
//!    leave the drop.
//! 2. Write the root.
//!    DURABLE: the keyspace is gone as a whole; replay leaves out what the log has of it.
//! 3. No name finds the keyspace any more, and the number is published.
//! 4. When no reader is registered below the number, and no merge is under way, the files are
//!    removed. Until then merges go on with the space, for these readers; afterwards they leave out
//!    what MemTables have of it.
//!
//! A crash before step 4 leaves the files to the next open.
//!
//! # Invariants
//! - X1: writers look whether the keyspace is there with the writer's lock held, and who works on
//!   its space with the merge lock held, which step 4 holds.
//! - X2: the number of a keyspace is never given out again, so records that the log still has of it
//!   are no other one's, nor are files.
//! - X3: files are removed while the directory is the store's: not by a reader that outlives it.
//!
//! # Linearization point
//! The number's publication.

use parking_lot::MutexGuard;

use super::layout::space_prefix;
use super::partition::DATA_NAME;
use super::writepath::FlexWriteHalf;
use super::{Flex, FlexKeyspace};
use crate::engine::ssd::{FeedSource, SsdEngine};
use crate::log::KeyspaceEvent;
use crate::types::SEQ_MAX;
use crate::{Error, Result};

impl Flex {
    /// Drops the keyspace of that name, durably; false when there is none.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.check_writable()?;
        if !self.drop_alone(&mut self.writer.lock(), name)? {
            return Ok(false);
        }
        tracing::debug!(name, "dropped a keyspace");
        // What was frozen has woken who merges. Nothing else is due, and who looks for something
        // looks at all keyspaces.
        {
            let _lock = self.merge_lock.lock();
            self.forget_dropped();
        }
        self.run_inline();
        Ok(true)
    }

    /// Steps 1 to 3.
    fn drop_alone(&self, writer: &mut FlexWriteHalf, name: &str) -> Result<bool> {
        self.health.check_writable()?;
        let mut root = self.root.lock();
        let Some(keyspace) = self.keyspaces.find(name) else {
            return Ok(false);
        };
        let seq = writer.next_seq;
        if seq > SEQ_MAX {
            return Err(Error::Limit {
                what: "sequence number",
                size: seq,
                limit: SEQ_MAX,
            });
        }
        self.freeze(writer);
        self.syncer.sync().map_err(|error| self.fail(error))?;
        let mut next = root.clone();
        next.keyspaces.remove(keyspace.id);
        next.last_seq = next.last_seq.max(seq);
        self.write_root(&mut root, next)?;
        writer.next_seq += 1;
        self.tell(writer, seq, keyspace.id, KeyspaceEvent::Dropped { name });
        keyspace.dropped.set(seq);
        self.keyspaces.leave(&keyspace);
        self.publish(seq);
        Ok(true)
    }

    /// Removes the files of dropped keyspaces that no reader is left for. The caller holds the
    /// merge lock. Those of a closed store are left to the next open: the directory may be another
    /// store's by now.
    pub(super) fn forget_dropped(&self) {
        if !self.has_directory() {
            return;
        }
        let keyspaces = self.keyspaces.load();
        for keyspace in keyspaces.forgettable(self.visible(), || self.snapshots.oldest()) {
            self.past_waits
                .lock()
                .add(&keyspace.partition.reader_waits());
            keyspace.partition.close();
            if let Err(error) = self.remove_space(keyspace) {
                // The next open removes what is left.
                tracing::warn!(%error, "a file of a dropped keyspace could not be removed");
            }
            self.keyspaces.forget(keyspace);
        }
    }

    /// As [`Flex::forget_dropped`], for a reader that has ended, and does not wait for a merge: who
    /// does that one does this.
    pub(super) fn forget_dropped_if_free(&self) {
        if !self.keyspaces.load().has_leaving() {
            return;
        }
        match self.merge_lock.try_lock() {
            Some(_lock) => self.forget_dropped(),
            None => self.schedule.wake(),
        }
    }

    /// Removes the files of a keyspace's space, which is closed.
    fn remove_space(&self, keyspace: &FlexKeyspace) -> Result<()> {
        let disk = self.disk.part(&space_prefix(keyspace.id));
        // An old handle holds the file open, but none of its blocks.
        let cut = disk.truncate(DATA_NAME, 0);
        for name in keyspace.partition.space().file_names() {
            disk.remove(&name)?;
        }
        Ok(cut?)
    }

    /// Keeps merges out, to work on a keyspace's space; an error if the keyspace was dropped or the
    /// store is closed.
    pub(super) fn lock_merges_of(&self, keyspace: &FlexKeyspace) -> Result<MutexGuard<'_, ()>> {
        let lock = self.merge_lock.lock();
        self.health.check_open()?;
        keyspace.dropped.check()?;
        Ok(lock)
    }
}
