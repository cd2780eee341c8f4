//! Checking a store, whatever its engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gabion_media::Disk;
use serde::Serialize;

use super::files::engine_of;
use super::mapped;
use super::scmkv::Scmkv;
use super::sptree::TreeStore;
use super::ssd::ConsumerTable;
use super::{flexdb, wip};
use crate::log::{ReplayEnd, check_kept, replay_operations};
use crate::names::{CONSUMERS, CURRENT};
use crate::{Engine, Error, Result};

/// What a check found.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckReport {
    /// Table files that were read.
    pub tables: u64,
    /// Entries in them, including older versions and tombstones.
    pub entries: u64,
    /// Bytes of the table files.
    pub table_bytes: u64,
    /// Log segments that were read.
    pub log_segments: u64,
    /// Operations in the log, those that are in tables too included.
    pub log_operations: u64,
    /// What does not hold, in the order in which it was found.
    pub problems: Vec<Problem>,
}

/// Something that does not hold.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    /// The damaged file.
    pub file: PathBuf,
    /// Where in it, if that is known.
    pub offset: Option<u64>,
    /// What does not hold, as a sentence.
    pub what: String,
}

impl Problem {
    pub(crate) fn new(file: PathBuf, offset: Option<u64>, what: String) -> Problem {
        Problem { file, offset, what }
    }

    /// What an error says, of `file` unless the error names another one.
    pub(crate) fn of(error: &Error, file: &Path) -> Problem {
        match error {
            Error::Corruption { file, offset, what } => {
                Problem::new(file.clone(), Some(*offset), what.clone())
            }
            other => Problem::new(file.to_owned(), None, other.to_string()),
        }
    }
}

impl CheckReport {
    /// Turns corruption, and a missing file, into a problem of `file` unless the error names
    /// another one; other errors stay errors.
    pub(crate) fn add(&mut self, error: Error, file: &Path) -> Result<()> {
        match &error {
            Error::Corruption { .. } => {}
            Error::Media(media) if media.is_not_found() => {}
            _ => return Err(error),
        }
        self.problems.push(Problem::of(&error, file));
        Ok(())
    }

    /// Reads the log from segment `tail` on. `sealed` are the lengths that the store recorded;
    /// operations name keyspaces below `keyspaces`.
    pub(crate) fn check_log(
        &mut self,
        disk: &Disk,
        tail: u64,
        sealed: &BTreeMap<u64, u64>,
        keyspaces: u32,
    ) -> Result<()> {
        let mut operations = 0;
        let replayed = replay_operations(disk, tail, sealed, keyspaces, |_, _| {
            operations += 1;
            Ok(())
        });
        self.log_operations = operations;
        match replayed {
            Ok(end) => {
                self.log_segments = end.segments.len() as u64;
                self.check_kept(disk, end)
            }
            Err(error) => self.add(error, disk.path()),
        }
    }

    /// Reads the consumers of the store, and what is kept of the log for them.
    fn check_kept(&mut self, disk: &Disk, end: ReplayEnd) -> Result<()> {
        let consumers = match ConsumerTable::open(disk) {
            Ok(consumers) => consumers,
            Err(error) => return self.add(error, &disk.path_of(CONSUMERS)),
        };
        match check_kept(disk, end, &consumers.positions()) {
            Ok(()) => Ok(()),
            Err(error) => self.add(error, disk.path()),
        }
    }
}

/// Reads every byte of the store in the directory `path` and checks it: checksums, order, counts,
/// filters, and that all files fit together. Changes nothing.
///
/// Beside a process that has the store open for writing it is checked as a
/// [follower](crate::Options::follower) finds it, of engines with
/// [them](crate::Capabilities::followers); others must not be open.
///
/// Damage is reported in [`CheckReport::problems`].
///
/// # Errors
/// [`Error::NotAStore`], [`Error::NewerFormat`], [`Error::UnknownFeatures`],
/// [`Error::MissingFeature`], [`Error::Media`] when the store is open or the medium fails.
pub fn check(path: impl AsRef<Path>) -> Result<CheckReport> {
    let path = path.as_ref();
    check_disk(&existing(path)?)
}

/// As [`check`], on a disk of any kind.
///
/// # Errors
/// As there.
#[doc(hidden)]
pub fn check_disk(disk: &Disk) -> Result<CheckReport> {
    match engine_of_store(disk)? {
        Engine::Flex => flexdb::check_disk(disk),
        Engine::Scmkv => mapped::check_disk::<Scmkv>(disk),
        Engine::Sptree => mapped::check_disk::<TreeStore>(disk),
        Engine::Wip => wip::check_disk(disk),
    }
}

/// The directory of a store.
pub(super) fn existing(path: &Path) -> Result<Disk> {
    if path.is_dir() {
        return Ok(Disk::system(path)?);
    }
    Err(Error::NotAStore {
        path: path.to_owned(),
        why: "the directory does not exist".to_owned(),
    })
}

/// The engine of the store on a disk.
pub(super) fn engine_of_store(disk: &Disk) -> Result<Engine> {
    engine_of(disk)?.ok_or_else(|| Error::NotAStore {
        path: disk.path().to_owned(),
        why: format!(
            "the directory has none of the files {CURRENT}, {}, {} and {}",
            Engine::Flex.root_name(),
            Engine::Scmkv.root_name(),
            Engine::Sptree.root_name()
        ),
    })
}
