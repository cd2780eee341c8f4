//! A new store that is filled from another one: whole, or known to be a part only.
//!
//! # The mark
//! A directory that is being filled holds a file `INCOMPLETE`, from before its first other file to
//! after all of them are durable. Nobody opens, checks, repairs or removes a store beside it. The
//! mark is locked as long as somebody is at work: so who finds one that is free knows that its
//! maker died, and clears away what that one has left.
//!
//! # The name
//! A directory of the system is filled under its name with `.incomplete` behind it, then renamed,
//! then loses the mark: under its own name nobody ever finds less than all of it, and what a crash
//! leaves between these two steps is marked still.
//!
//! # Invariants
//! - N1. Without the mark there is no file in it, or all of them, durably.
//! - N2. Only who holds the lock of the mark removes a file, and none that is not a store's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gabion_media::{DirLock, Disk};

use crate::engine::is_file_of_store;
use crate::names::INCOMPLETE;
use crate::{Error, Result};

/// What is behind the name of a directory while it is filled.
const INCOMPLETE_SUFFIX: &str = ".incomplete";

/// Fills an empty directory, or one in which that was interrupted, with what `fill` writes to it,
/// durably. After an error nothing is left in it, unless the medium fails.
pub(crate) fn fill<T>(disk: &Disk, fill: impl FnOnce() -> Result<T>) -> Result<T> {
    let mark = Mark::set(disk)?;
    match fill().and_then(|filled| mark.remove().map(|()| filled)) {
        Ok(filled) => Ok(filled),
        Err(error) => {
            mark.give_up();
            Err(error)
        }
    }
}

/// Makes the directory `path` with what `fill` writes, durably, to the empty directory that it is
/// given. After an error nothing is left of it.
pub(crate) fn fill_new_dir<T>(path: &Path, fill: impl FnOnce(&Disk) -> Result<T>) -> Result<T> {
    let place = incomplete(path)?;
    clear_left(path)?;
    refuse_existing(path)?;
    if !place.is_dir() || place.is_symlink() {
        refuse_existing(&place)?;
    }
    let disk = Disk::create_system(&place)?;
    let mark = Mark::set(&disk)?;
    let filled = fill(&disk).and_then(|filled| {
        // DURABLE: `fill` has made all files and their names durable.
        disk.rename_dir(path)?;
        Ok(filled)
    });
    let filled = match filled {
        Ok(filled) => mark.remove().map(|()| filled),
        Err(error) => Err(error),
    };
    if filled.is_err() {
        mark.give_up();
        // A renaming whose sync fails has renamed.
        remove_empty(if place.is_dir() { &place } else { path });
    }
    filled
}

/// Removes a directory, unless there is something in it.
fn remove_empty(path: &Path) {
    let removed = Disk::system(path).and_then(|disk| match disk.list()?.is_empty() {
        true => disk.remove_dir(),
        false => Ok(()),
    });
    if let Err(error) = removed {
        tracing::warn!(%error, "an unfinished directory could not be removed");
    }
}

/// Removes what was left under the name of a new directory, if that is all that is there.
fn clear_left(path: &Path) -> Result<()> {
    if !path.join(INCOMPLETE).exists() {
        return Ok(());
    }
    let disk = Disk::system(path)?;
    if let Some(mark) = Mark::find(&disk)? {
        mark.clear()?;
        disk.remove_dir()?;
    }
    Ok(())
}

fn refuse_existing(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(_) => Err(gabion_media::Error::AlreadyExists { path: path.into() }.into()),
        Err(_) => Ok(()),
    }
}

/// The mark of a directory, which is held by whoever fills it.
struct Mark<'d> {
    disk: &'d Disk,
    _lock: DirLock,
}

impl<'d> Mark<'d> {
    /// Marks an empty directory, or empties one that is marked.
    fn set(disk: &'d Disk) -> Result<Mark<'d>> {
        if let Some(mark) = Mark::find(disk)? {
            mark.clear()?;
            // DURABLE: what was there is gone before the first new file.
            disk.sync_dir()?;
            return Ok(mark);
        }
        if !disk.list()?.is_empty() {
            let path = disk.path().to_owned();
            return Err(gabion_media::Error::AlreadyExists { path }.into());
        }
        let mark = Mark {
            disk,
            _lock: disk.lock_new_file(INCOMPLETE)?,
        };
        // DURABLE: the mark, before there is anything else (N1).
        disk.sync_dir()?;
        Ok(mark)
    }

    /// The mark that somebody has left; `None` where there is none, and an error where somebody is
    /// at work.
    fn find(disk: &'d Disk) -> Result<Option<Mark<'d>>> {
        let lock = disk.lock_old_file(INCOMPLETE)?;
        Ok(lock.map(|lock| Mark { disk, _lock: lock }))
    }

    /// Removes all other files.
    fn clear(&self) -> Result<()> {
        let names = self.disk.list()?;
        if let Some(name) = names
            .iter()
            .find(|name| *name != INCOMPLETE && !is_file_of_store(name))
        {
            let path = self.disk.path_of(name);
            return Err(gabion_media::Error::AlreadyExists { path }.into());
        }
        for name in names.iter().filter(|name| *name != INCOMPLETE) {
            tracing::debug!(name, "removed the files of an interrupted copy");
            self.disk.remove(name)?;
        }
        Ok(())
    }

    /// Says that the directory is whole.
    fn remove(&self) -> Result<()> {
        self.disk.remove(INCOMPLETE)?;
        // DURABLE: all else is, so this is the moment from which on there is a store.
        Ok(self.disk.sync_dir()?)
    }

    /// Removes everything; what cannot be removed stays marked.
    fn give_up(self) {
        let removed = self
            .clear()
            .and_then(|()| Ok(self.disk.remove(INCOMPLETE)?));
        if let Err(error) = removed {
            tracing::warn!(%error, "an unfinished copy could not be removed and stays marked as \
                                    unfinished");
        }
    }
}

/// Where a directory is filled: beside its path.
fn incomplete(path: &Path) -> Result<PathBuf> {
    match path.file_name() {
        Some(name) => {
            let mut name = OsString::from(name);
            name.push(INCOMPLETE_SUFFIX);
            Ok(path.with_file_name(name))
        }
        None => Err(Error::InvalidOption {
            option: "path",
            why: format!(
                "the path {} does not end with a name for the new directory",
                path.display()
            ),
        }),
    }
}
