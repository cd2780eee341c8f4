//! A new directory for a store: there as a whole, or not at all.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gabion_media::Disk;

use crate::{Error, Result};

/// What is behind the name of a directory while it is filled.
const INCOMPLETE_SUFFIX: &str = ".incomplete";

/// Makes the directory `path` with what `fill` writes, durably, to it: to another directory first,
/// which then gets that name. After an error nothing is left of it.
pub(crate) fn fill_new_dir<T>(path: &Path, fill: impl FnOnce(&Disk) -> Result<T>) -> Result<T> {
    let place = incomplete(path)?;
    for taken in [path, &place] {
        if taken.symlink_metadata().is_ok() {
            let path = taken.to_owned();
            return Err(gabion_media::Error::AlreadyExists { path }.into());
        }
    }
    let disk = Disk::create_system(&place)?;
    let filled = fill(&disk).and_then(|filled| {
        // DURABLE: `fill` has made all files and their names durable.
        disk.rename_dir(path)?;
        Ok(filled)
    });
    if filled.is_err()
        && let Err(error) = disk.remove_dir()
    {
        let path = place.display();
        tracing::warn!(%error, %path, "a directory that is not complete could not be removed");
    }
    filled
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
                "{} does not end with a name for the new directory",
                path.display()
            ),
        }),
    }
}
