//! The directory of a checkpoint: there as a whole, or not at all.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gabion_media::Disk;

use crate::engine::Handle;
use crate::{Error, Result};

/// What is behind the name of a directory while a checkpoint is written to it.
const INCOMPLETE_SUFFIX: &str = ".incomplete";

/// Writes a checkpoint of a store to `path`: to another directory first, which then gets that name.
pub(crate) fn write(engine: &Handle, path: &Path) -> Result<()> {
    let place = incomplete(path)?;
    for taken in [path, &place] {
        if taken.symlink_metadata().is_ok() {
            let path = taken.to_owned();
            return Err(gabion_media::Error::AlreadyExists { path }.into());
        }
    }
    let disk = Disk::create_system(&place)?;
    let written = engine.checkpoint(&disk).and_then(|()| {
        // DURABLE: the engine has made all of it durable.
        Ok(disk.rename_dir(path)?)
    });
    if written.is_err()
        && let Err(error) = disk.remove_dir()
    {
        let path = place.display();
        tracing::warn!(%error, %path, "what was written of a checkpoint could not be removed");
    }
    written
}

/// Where a checkpoint is written before it is complete: beside its path.
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
