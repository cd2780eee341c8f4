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
//! # Backups
//! A backup is of such a moment, too. Its log and its manifest are written to the repository at
//! once, its tables are held until they are copied.
//!
//! Behind a backup with the log a restore puts what was logged later, and may have to flush in
//! between. A merge of then must not cover one of before the moment, which a table would have by
//! then (`operands`, O2). So MemTables are frozen at the moment; and their caller flushes them
//! before the backup counts, as a replay in between would put them together again with what
//! follows.
//!
//! # Durability
//! Files, then their names, then the manifest, then `CURRENT`: a directory with a `CURRENT` holds
//! the whole checkpoint, durably, as a store that was closed cleanly.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gabion_media::{Disk, Purpose};

use super::Wip;
use super::bucket::file::TableFile;
use super::manifest::{self, Manifest, ManifestState, VersionEdit};
use crate::backup::source::{BackupSource, SourceFile, SourcePiece};
use crate::log::{self, SealedLog};
use crate::names::table_name;
use crate::types::Seq;
use crate::{Error, Result};

/// What a checkpoint is made of.
struct Moment {
    state: ManifestState,
    /// Held so that they are not deleted.
    tables: HashMap<u64, Arc<TableFile>>,
    /// The first segment of the log that is needed.
    log_tail: u64,
    sealed: SealedLog,
    last_seq: Seq,
}

impl Wip {
    /// Writes the store as it is now to an empty directory.
    pub(crate) fn checkpoint(&self, target: &Disk) -> Result<()> {
        self.flush_for_copy()?;
        let moment = self.take_moment(target, false)?;
        self.give_tables(&moment, target)?;
        // DURABLE: the files were synced when they were written or copied, and now their names are.
        target.sync_dir()?;
        self.write_manifest(moment, target)
    }

    /// The store as it is now, for a backup: its tables, and in `staging` the log and a manifest.
    /// `is_continued` says that what is logged later will be put behind it.
    pub(crate) fn backup(&self, staging: &Disk, is_continued: bool) -> Result<BackupSource> {
        self.flush_for_copy()?;
        let moment = self.take_moment(staging, is_continued)?;
        let position = moment.last_seq;
        let mut tables: Vec<_> = moment.tables.values().cloned().collect();
        tables.sort_unstable_by_key(|table| table.meta.file);
        self.write_manifest(moment, staging)?;
        let files = tables.into_iter().map(source_of);
        Ok(BackupSource {
            position,
            files: files.collect::<Result<_>>()?,
        })
    }

    /// Leaves little of the log to be copied, where there is space for that.
    fn flush_for_copy(&self) -> Result<()> {
        match self.flush() {
            // All of the log is copied then: who has a full disk wants a copy on another one.
            Err(error) if error.is_no_space() && self.unsettled.is_settled() => Ok(()),
            flushed => flushed,
        }
    }

    /// Writes a manifest that names the files of the moment, and `CURRENT`.
    fn write_manifest(&self, moment: Moment, target: &Disk) -> Result<()> {
        let mut last = vec![
            VersionEdit::LogTail {
                segment: moment.log_tail,
            },
            VersionEdit::LogSealed {
                segment: moment.sealed.segment,
                length: moment.sealed.length,
            },
            VersionEdit::LastSeq {
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

    /// Takes the moment, and copies its log; `freeze` freezes all MemTables at it.
    fn take_moment(&self, target: &Disk, freeze: bool) -> Result<Moment> {
        let versions = self.versions.lock();
        let (end, last_seq, is_flushed) = {
            let leader = self.leader.write();
            leader.check()?;
            let is_flushed = self.written.is_empty() && !self.has_frozen();
            if freeze {
                self.freeze_everything();
            }
            (self.syncer.appended_lsn(), self.visible(), is_flushed)
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
        let (log_tail, sealed) = match is_flushed {
            // Tables hold all that the log does.
            true => (end.segment(), SealedLog::empty(end.segment())),
            false => {
                let tail = state.log_tail;
                let sealed = log::copy(&self.disk, target, tail, &state.sealed, end)?;
                (tail, sealed)
            }
        };
        Ok(Moment {
            state,
            tables,
            log_tail,
            sealed,
            last_seq,
        })
    }
}

/// The first segment of the log that a store needs which nobody has open, and the lengths of
/// segments that its manifest knows.
pub(crate) fn log_place(disk: &Disk) -> Result<(u64, BTreeMap<u64, u64>)> {
    let state = manifest::read(disk)?.state;
    Ok((state.log_tail, state.sealed))
}

/// A table as a backup takes it.
fn source_of(table: Arc<TableFile>) -> Result<SourceFile> {
    let (name, len) = (table_name(table.meta.file), table.meta.file_bytes);
    let piece = SourcePiece {
        offset: 0,
        len,
        known: Some(table.known()?),
        open: Box::new(move || {
            let file = table.open_raw()?;
            Ok(Box::new(move |buffer, offset| {
                Ok(file.read_exact_at(buffer, offset)?)
            }))
        }),
    };
    Ok(SourceFile {
        name,
        len,
        pieces: vec![piece],
    })
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
        let moment = engine.take_moment(&before, false).unwrap();
        assert_eq!(moment.tables.len(), 1);
        engine.give_tables(&moment, &before).unwrap();
        engine.close().unwrap();
        let given = engine.give_tables(&moment, &after);
        assert!(matches!(given, Err(Error::Closed)), "{given:?}");
        assert!(after.list().unwrap().is_empty());
    }
}
