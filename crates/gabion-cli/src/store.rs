//! Opening stores for the commands.

use std::path::Path;

use gabion::{Db, Error, Keyspace, Options};

use crate::args::StoreArguments;
use crate::failure::Failure;

/// Opens the store in `dir`, which must exist, for reading: beside others who read, and without a
/// change of any file. Where somebody writes it, as it is now, if the engine can.
pub(crate) fn open_reading(dir: &Path) -> Result<Db, Failure> {
    require(dir)?;
    match Options::default().read_only(true).open(dir) {
        Err(locked) if locked.is_locked() => match Options::default().follower(true).open(dir) {
            Err(Error::Unsupported { .. }) => Err(locked.into()),
            opened => Ok(opened?),
        },
        opened => Ok(opened?),
    }
}

/// Opens the store in `dir`, which must exist, to follow whoever writes it, now or later.
pub(crate) fn open_following(dir: &Path) -> Result<Db, Failure> {
    require(dir)?;
    Ok(Options::default().follower(true).open(dir)?)
}

/// Opens the store in `dir`, which must exist: commands that read make nothing.
pub(crate) fn open_existing(dir: &Path, options: Options) -> Result<Db, Failure> {
    require(dir)?;
    Ok(options.create_if_missing(false).open(dir)?)
}

/// Fails unless `dir` is a directory with something in it. In an empty one, the library would leave
/// its lock file behind.
pub(crate) fn require(dir: &Path) -> Result<(), Failure> {
    match std::fs::metadata(dir) {
        Ok(metadata) if metadata.is_dir() => {
            let mut entries =
                std::fs::read_dir(dir).map_err(|error| Failure::file("list", dir, &error))?;
            match entries.next() {
                Some(_) => Ok(()),
                None => Err(Failure::new(format!(
                    "{} is not a Gabion store: the directory is empty; create a store with `gabion \
                     load` or `gabion put`",
                    dir.display()
                ))),
            }
        }
        Ok(_) => Err(Failure::new(format!(
            "{} is a file; name the directory of a store with --db",
            dir.display()
        ))),
        Err(error) => Err(Failure::new(format!(
            "there is no store at {} ({error}); create one with `gabion load` or `gabion put`",
            dir.display()
        ))),
    }
}

/// The keyspace that the command line names, which must exist.
pub(crate) fn existing_keyspace(db: &Db, arguments: &StoreArguments) -> Result<Keyspace, Failure> {
    match &arguments.keyspace {
        Some(name) => Ok(db.existing_keyspace(name)?),
        None => Ok(db.default_keyspace().clone()),
    }
}

/// The keyspace that the command line names, made if it does not exist.
pub(crate) fn keyspace(db: &Db, arguments: &StoreArguments) -> Result<Keyspace, Failure> {
    match &arguments.keyspace {
        Some(name) => Ok(db.keyspace(name)?),
        None => Ok(db.default_keyspace().clone()),
    }
}
