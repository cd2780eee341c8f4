//! Drop: a keyspace goes, with all that it held.
//!
//! # Idea
//! A drop is one edit of the manifest. It has a sequence number, as a write has, so it takes effect
//! for readers as for a crash at one place among the writes: who reads below the number finds the
//! keyspace as it was, who reads from it on is told that there is none
//! ([`crate::engine::keyspaces`]). Nothing is written for what the keyspace held.
//!
//! # Journey
//! 1. With the manifest and the leader held, find how far the log's tail may move once the
//!    keyspace's MemTables are gone, and sync the log: a power loss must not take writes back that
//!    were acknowledged before the drop, and leave the drop.
//! 2. Name the drop, its number and the tail in the manifest, in one group.
//!    DURABLE: the keyspace is gone as a whole; replay leaves out what the log has of it.
//! 3. Install: no name and no job finds the keyspace any more, and frozen MemTables of it wait for
//!    no flush. The number is published. Buckets and their states stay as they are, for readers.
//! 4. When no reader is registered below the number, an empty bucket takes the place of them all.
//!    With the last who holds them MemTables give their memory back and tables their files, as all
//!    tables do that the manifest names no more.
//!
//! # Invariants
//! - X1: writers and jobs look whether the keyspace is there with a lock held that a drop holds:
//!   writers and whoever freezes or logs again the leader, whoever changes the manifest that one.
//!   So no record is logged and no edit is written of a keyspace that is gone; a job that finds it
//!   gone removes what it wrote, and has not failed.
//! - X2: the number of a keyspace is never given out again, so records that the log still has of it
//!   are no other one's.
//! - X3: an unregistered reader looks at the number of the drop after it has taken a state of a
//!   bucket. Step 4 comes after the number is published: who finds the empty bucket finds it.
//!
//! # Linearization point
//! The number's publication.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Result;
use crate::engine::ssd::{FeedSource, SsdEngine};
use crate::engine::wip::bucket::{Bucket, Router};
use crate::engine::wip::manifest::VersionEdit;
use crate::engine::wip::{VersionSet, Wip, WipKeyspace, retire_all};
use crate::log::KeyspaceEvent;

/// The number of the bucket that takes the place of all others; no bucket of the manifest has it.
const NO_BUCKET: u64 = 0;

impl Wip {
    /// Drops the keyspace of that name, durably; false when there is none.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.check_writable()?;
        {
            let mut versions = self.versions.lock();
            let Some(keyspace) = self.keyspaces.find(name) else {
                return Ok(false);
            };
            self.drop_alone(&mut versions, &keyspace)?;
        }
        tracing::debug!(name, "dropped a keyspace");
        self.forget_dropped();
        self.throttle.flushed(self.pool.allocated_bytes());
        self.after_job();
        self.reclaim_log();
        self.run_inline();
        Ok(true)
    }

    /// Steps 1 to 3.
    fn drop_alone(&self, versions: &mut VersionSet, keyspace: &Arc<WipKeyspace>) -> Result<()> {
        let mut leader = self.leader.write();
        leader.check()?;
        let buckets = keyspace.router.load_full();
        let states: Vec<_> = buckets
            .buckets()
            .iter()
            .map(|of| of.state.load_full())
            .collect();
        let tail = self.log_tail(states.iter().flat_map(|state| state.memtables()));
        self.syncer.sync().map_err(|error| self.fail(error))?;
        let seq = leader.take_number()?;
        let edits = [
            VersionEdit::DropKeyspace { id: keyspace.id },
            VersionEdit::LastSeq { seq },
            VersionEdit::LogTail { segment: tail },
        ];
        let applied = self.apply(versions, &edits);
        if applied.is_ok() {
            let mut install = self.lock_install();
            keyspace.dropped.set(seq);
            for bucket in buckets.buckets() {
                bucket.set_dropped();
                let state = bucket.state.load();
                retire_all(state.levels.files());
                state
                    .frozen
                    .iter()
                    .for_each(|table| install.remove_frozen(table));
                self.written.forget(bucket);
                // ORDER: Relaxed; a figure that orders nothing.
                self.bucket_count.fetch_sub(1, Ordering::Relaxed);
            }
            self.keyspaces.leave(keyspace);
            // Who looks at one before that still counts it.
            buckets.buckets().iter().for_each(|of| self.touch(of));
        }
        let event = match applied {
            Ok(()) => KeyspaceEvent::Dropped {
                name: &keyspace.name,
            },
            Err(_) => KeyspaceEvent::Void,
        };
        self.tell(&mut leader, seq, keyspace.id, event);
        // A number that nothing has is published all the same: writers wait for it.
        self.publish(seq, leader.segment());
        applied
    }

    /// Lets go of what dropped keyspaces held that no reader is left for.
    pub(in super::super) fn forget_dropped(&self) {
        let keyspaces = self.keyspaces.load();
        for keyspace in keyspaces.forgettable(self.visible(), || self.snapshots.oldest()) {
            let nothing = Bucket::new((keyspace.id, NO_BUCKET), &[], None, self.empty_state());
            let router = Router::new(vec![Arc::new(nothing)]);
            keyspace.router.store(Arc::new(router));
            self.keyspaces.forget(keyspace);
        }
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::engine::ssd::Lifecycle;
    use crate::{Options, Tuning};

    /// Parts of a bucket share a MemTable. It was counted once for each of them, so that a drop of
    /// two parts took the log from one MemTable of another keyspace: its writes were lost.
    #[test]
    fn a_drop_leaves_the_log_to_other_keyspaces() {
        let sim = SimDisk::new();
        let options = || {
            Options::default()
                .background_threads(0)
                .tuning(Tuning::default().sublevels_min(16).sublevels_max(16))
                .log_bytes_max(1 << 20)
        };
        let engine = Wip::open(Disk::simulated(&sim), options()).unwrap();
        let kept = engine.create_keyspace("kept").unwrap();
        let dropped = engine.create_keyspace("dropped").unwrap();
        let bucket = || Arc::clone(&dropped.router.load().buckets()[0]);
        for key in 0u8..4 {
            engine.put_for_tests(&dropped, &[key], &[key; 20 << 10]);
            engine.flush_for_tests(&dropped);
        }
        // Two MemTables pin the segment; then the log goes on.
        engine.put_for_tests(&dropped, b"key", b"value");
        engine.put_for_tests(&kept, b"key", b"value");
        let pinned = engine.log_tail([]);
        for _ in 0..8 {
            engine.put_for_tests(&dropped, b"key", &[7; 20 << 10]);
        }
        let whole = bucket();
        assert!(whole.reserve());
        assert!(engine.split(&dropped, &whole, 2).unwrap());
        let parts = dropped.router.load_full();
        let frozen = parts
            .buckets()
            .iter()
            .map(|part| part.state.load().frozen.len());
        assert_eq!(frozen.collect::<Vec<_>>(), [1, 1], "they share one");
        drop((parts, bucket, whole));
        assert!(engine.drop_keyspace("dropped").unwrap());
        assert_eq!(engine.log_tail([]), pinned);
        drop((kept, dropped));
        engine.close().unwrap();

        let engine = Wip::open(Disk::simulated(&sim), options()).unwrap();
        let kept = engine.keyspaces.find("kept").unwrap();
        let value = engine.get(&kept, b"key", None).unwrap();
        assert_eq!(value.as_deref(), Some(&b"value"[..]));
        engine.close().unwrap();
    }
}
