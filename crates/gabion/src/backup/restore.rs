//! Restores a backup as a new store.

use std::path::Path;

use gabion_media::Disk;

use super::BackupRepository;
use super::layout::{BackupDescription, BackupFile};
use super::objects::{self, object_name};
use super::transfer::{BackupOptions, Transfer};
use crate::names::LOCK;
use crate::new_dir::{fill, fill_new_dir};
use crate::{Error, Result};

impl BackupRepository {
    /// Makes a store of backup `id` in the directory `to`, which must not exist or be empty.
    /// Checks every byte against its hash. The store is durable when this returns, and opens as one
    /// that was closed cleanly.
    ///
    /// After an error nothing is left at `to`. After a crash, a file `INCOMPLETE` marks the
    /// unfinished directory, as with a [checkpoint](crate::Db::checkpoint): it does not open as a
    /// store, and the next restore to the same place removes it.
    ///
    /// # Errors
    /// [`Error::NoSuchBackup`]; [`Error::BackupDamaged`] for an object that is missing or damaged;
    /// [`Error::Cancelled`]; [`Error::Corruption`] and [`Error::NewerFormat`] of the description;
    /// [`Error::Media`] when there is something at `to`, or a medium fails or is full.
    pub fn restore(&self, id: u64, to: impl AsRef<Path>, options: BackupOptions<'_>) -> Result<()> {
        let _lock = self.disk.lock_shared(LOCK)?;
        let description = self.description(id)?;
        let mut transfer = Transfer::new(options, description.bytes());
        fill_dir(to.as_ref(), |target| {
            self.copy(id, &description, target, &mut transfer)
        })
    }

    /// As [`BackupRepository::restore`], to a directory of a disk of any kind, which is empty or
    /// holds what an interrupted restore has left.
    ///
    /// # Errors
    /// Those of [`BackupRepository::restore`].
    #[doc(hidden)]
    pub fn restore_on(&self, id: u64, target: &Disk, options: BackupOptions<'_>) -> Result<()> {
        let _lock = self.disk.lock_shared(LOCK)?;
        let description = self.description(id)?;
        let mut transfer = Transfer::new(options, description.bytes());
        fill(target, || {
            self.copy(id, &description, target, &mut transfer)
        })
    }

    /// Writes the files of a backup, durably.
    pub(super) fn copy(
        &self,
        id: u64,
        description: &BackupDescription,
        target: &Disk,
        transfer: &mut Transfer<'_>,
    ) -> Result<()> {
        for file in &description.files {
            self.copy_file(id, file, target, transfer)?;
        }
        // DURABLE: the files were synced, and now their names are.
        Ok(target.sync_dir()?)
    }

    fn copy_file(
        &self,
        id: u64,
        file: &BackupFile,
        target: &Disk,
        transfer: &mut Transfer<'_>,
    ) -> Result<()> {
        let mut to = target.create_random(&file.name)?;
        let mut end = 0;
        for piece in &file.pieces {
            let (object, place) = ((&piece.hash, piece.len), (&mut to, piece.offset));
            objects::copy_to(&self.disk, object, place, transfer).or_else(|fault| {
                let what = fault.told(piece.len)?;
                let file = self.disk.path_of(&object_name(&piece.hash));
                Err(Error::BackupDamaged { id, file, what })
            })?;
            end = piece.offset + piece.len;
        }
        if end < file.len {
            to.cut(file.len)?;
        }
        Ok(to.sync()?)
    }
}

/// Fills a directory that does not exist or is empty.
pub(super) fn fill_dir<T>(to: &Path, write: impl FnOnce(&Disk) -> Result<T>) -> Result<T> {
    if is_empty_dir(to) {
        let target = Disk::system(to)?;
        return fill(&target, || write(&target));
    }
    fill_new_dir(to, write)
}

fn is_empty_dir(path: &Path) -> bool {
    let entries = path.read_dir();
    !path.is_symlink() && entries.is_ok_and(|mut entries| entries.next().is_none())
}
