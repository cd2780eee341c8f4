//! A checkpoint: the store as it is at a moment, as a store of its own in another directory.
//!
//! # Idea
//! Tables never change, so a second name of the same file is as good as a copy: it costs no space
//! until this store drops the table. The log is copied from its tail on; MemTables are flushed
//! before, which leaves little of it, where there is space for that. A manifest with the state of
//! the moment names both.
//!
//! # The moment
//! Who holds the manifest finds a state of the store in which tables and log hold everything
//! acknowledged (I1 of the engine) and that no job changes; who holds the leader alone, too, finds
//! everything in front of the log's end in its place. The moment is when both are held: the
//! checkpoint is what a recovery would find if the process ended then. Writers wait for a few
//! instructions only, flushes and compactions until the log is copied. Tables are linked after
//! that: a file lives as long as somebody holds it, and has its name as long as the store has its
//! directory (`ssd/store_lock.rs`).
//!
//! # Durability
//! Files, then their names, then the manifest, then `CURRENT`: a directory with a `CURRENT` holds
//! the whole checkpoint, durably, as a store that was closed cleanly.

use std::collections::HashMap;
use std::sync::Arc;

use gabion_media::{Disk, Purpose};

use super::Wip;
use super::bucket::file::TableFile;
use super::manifest::{Edit, Manifest, ManifestState};
use crate::log::{self, SealedLog};
use crate::names::table_name;
use crate::types::Seq;
use crate::{Error, Result};

/// What a checkpoint is made of.
struct Moment {
    state: ManifestState,
    /// Held so that they are not deleted.
    tables: HashMap<u64, Arc<TableFile>>,
    sealed: SealedLog,
    last_seq: Seq,
}

impl Wip {
    /// Writes the store as it is now to an empty directory.
    pub(crate) fn checkpoint(&self, target: &Disk) -> Result<()> {
        match self.flush() {
            // All of the log is copied then: who has a full disk wants a copy on another one.
            Err(error) if error.is_no_space() && self.unsettled.is_settled() => {}
            flushed => flushed?,
        }
        let moment = self.take_moment(target)?;
        self.give_tables(&moment, target)?;
        // DURABLE: the files were synced when they were written or copied, and now their names are.
        target.sync_dir()?;
        let mut last = vec![
            Edit::LogSealed {
                segment: moment.sealed.segment,
                length: moment.sealed.length,
            },
            Edit::LastSeq {
                seq: moment.last_seq,
            },
        ];
        last.extend(self.moment_edit(moment.state.expires()));
        Manifest::create_closed(target, moment.state, &last)
    }

    /// Gives the tables of the moment names in another directory, or copies of them.
    fn give_tables(&self, moment: &Moment, target: &Disk) -> Result<()> {
        for file in moment.tables.values() {
            let _held = self.lock.hold().ok_or(Error::Closed)?;
            let name = table_name(file.meta.file);
            if !self.disk.link_to(target, &name)? {
                let bytes = file.meta.file_bytes;
                self.disk
                    .copy_to(target, &name, bytes, Purpose::Checkpoint)?;
            }
        }
        Ok(())
    }

    /// Takes the moment, and copies its log.
    fn take_moment(&self, target: &Disk) -> Result<Moment> {
        let versions = self.versions.lock();
        let (end, last_seq) = {
            let leader = self.leader.write();
            leader.check()?;
            (self.syncer.appended_lsn(), self.visible())
        };
        let state = versions.manifest.state().clone();
        let tables: HashMap<_, _> = self
            .buckets()
            .iter()
            .flat_map(|(_, bucket)| {
                let levels = Arc::clone(&bucket.state.load().levels);
                levels.files().cloned().collect::<Vec<_>>()
            })
            .filter(|file| state.files.contains_key(&file.meta.file))
            .map(|file| (file.meta.file, file))
            .collect();
        debug_assert_eq!(tables.len(), state.files.len(), "buckets hold all tables");
        let sealed = log::copy(&self.disk, target, state.log_tail, &state.sealed, end)?;
        Ok(Moment {
            state,
            tables,
            sealed,
            last_seq,
        })
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::SimDisk;

    use super::*;
    use crate::Options;
    use crate::engine::ssd::Lifecycle;

    /// Somebody closed the store after the moment was taken, and may have put other files in the
    /// directory since: it named those.
    #[test]
    fn a_checkpoint_names_no_table_after_its_store_was_closed() {
        let options = Options::default().background_threads(0);
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        engine.put_for_tests(&keyspace, b"key", b"value");
        engine.flush().unwrap();
        let target = || Disk::simulated(&SimDisk::new());
        let (before, after) = (target(), target());
        let moment = engine.take_moment(&before).unwrap();
        assert_eq!(moment.tables.len(), 1);
        engine.give_tables(&moment, &before).unwrap();
        engine.close().unwrap();
        let given = engine.give_tables(&moment, &after);
        assert!(matches!(given, Err(Error::Closed)), "{given:?}");
        assert!(after.list().unwrap().is_empty());
    }
}
