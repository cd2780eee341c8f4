//! Repairing a closed store, whatever its engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gabion_media::Disk;
use serde::Serialize;

use super::check::{Problem, engine_of_store, existing};
use super::scmkv::ScmStore;
use super::sptree::SpStore;
use super::{flexdb, wip};
use crate::log::{LogOp, refuse_newer, replay_operations};
use crate::new_dir::{fill, fill_new_dir};
use crate::{Engine, Error, Result};

/// What a repair saved and what it could not.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Serialize)]
pub struct RepairReport {
    /// Entries saved from tables or spaces, including older versions and tombstones.
    pub entries: u64,
    /// Operations read from the log, including those that are in tables as well.
    pub log_operations: u64,
    /// What could not be read, in the order in which it was found.
    pub problems: Vec<Problem>,
    /// What is lost, or may be, in the order in which it was found. A problem need not be a loss:
    /// the damaged part may be obsolete, or one that a repair makes anew.
    pub lost: Vec<LostEntries>,
}

/// Entries that a repair could not save.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LostEntries {
    /// The keyspace of the entries, if known.
    pub keyspace: Option<String>,
    /// A lower bound: all lost keys are above this one. In WipDB, versions of the key itself may be
    /// lost too.
    pub above: Option<Vec<u8>>,
    /// An upper bound: all lost keys are below this one, with the same exception.
    pub below: Option<Vec<u8>>,
    /// Number of lost entries, if they can be counted, for example by the lengths in a damaged
    /// block if all that follows agrees with them.
    pub entries: Option<u64>,
    /// An upper bound of the number of lost entries, if known.
    pub entries_max: Option<u64>,
}

impl LostEntries {
    /// Nobody knows what of a keyspace.
    pub(crate) fn of_keyspace(name: &str) -> LostEntries {
        LostEntries {
            keyspace: Some(name.to_owned()),
            ..LostEntries::default()
        }
    }
}

impl RepairReport {
    /// Adds a part that is lost, of `file` unless the error names another one.
    pub(crate) fn lose(&mut self, error: &Error, file: &Path) {
        self.problems.push(Problem::of(error, file));
    }

    /// Replays the log from segment `tail` on as far as it can be read, and writes its operations
    /// by `write`; they name keyspaces below `keyspaces`, and `sealed` are the lengths that the
    /// store recorded. What cannot be read is lost, unless another program can read it; what cannot
    /// be written is an error.
    pub(crate) fn replay(
        &mut self,
        disk: &Disk,
        tail: u64,
        sealed: &BTreeMap<u64, u64>,
        keyspaces: u32,
        mut write: impl FnMut(LogOp<'_>) -> Result<()>,
    ) -> Result<()> {
        refuse_newer(disk, tail, sealed)?;
        let mut failed = Ok(());
        let replayed = replay_operations(disk, tail, sealed, keyspaces, |_, operation| {
            self.log_operations += 1;
            write(operation).inspect_err(|error| failed = Err(error.clone()))
        });
        failed?;
        if let Err(error) = replayed {
            self.lose(&error, disk.path());
            // Writes to any keyspace may have followed.
            self.lost.push(LostEntries::default());
        }
        Ok(())
    }

    /// As [`RepairReport::lose`], of a place in a file.
    pub(crate) fn lose_at(&mut self, file: PathBuf, offset: u64, what: String) {
        self.problems.push(Problem::new(file, Some(offset), what));
    }
}

/// Writes what can be read of the store in the directory `from`, which must not be open, to a new
/// store in the directory `to`, which must not exist. The store in `from` stays as it is, and is
/// not written to; on the same file system, the two share tables that are sound. The new store is
/// on the medium when this returns.
///
/// What lies in a damaged part is lost, for there is no second copy of it.
/// [`RepairReport::problems`] names each such part, and [`RepairReport::lost`] says between which
/// keys what is missing lay, and how much that is. If the newest version of a key is lost, an
/// older one may be found instead of it, also one that was deleted since: a copy of the store is
/// better, where there is one.
///
/// # Errors
/// [`Error::NotAStore`]; [`Error::Corruption`] when nothing of what says which keyspaces there are
/// can be read; [`Error::NewerFormat`], [`Error::UnknownFeatures`] and [`Error::MissingFeature`] of
/// a store with files that another program can read; [`Error::Unsupported`] of engines without
/// [it](crate::Capabilities::repair); [`Error::Media`] when the store is open, `to` exists, or the
/// medium of `to` fails or is full; then nothing is left at `to`.
pub fn repair(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<RepairReport> {
    let disk = existing(from.as_ref())?;
    engine_of_store(&disk)?;
    fill_new_dir(to.as_ref(), |target| repair_into(&disk, target))
}

/// As [`repair`], on disks of any kind; `target` is empty, or holds what an interrupted repair has
/// left.
///
/// # Errors
/// As there.
#[doc(hidden)]
pub fn repair_disk(disk: &Disk, target: &Disk) -> Result<RepairReport> {
    fill(target, || repair_into(disk, target))
}

/// Writes what can be read of the store on `disk` to an empty directory.
fn repair_into(disk: &Disk, target: &Disk) -> Result<RepairReport> {
    match engine_of_store(disk)? {
        Engine::Flex => flexdb::repair(disk, target),
        Engine::Scmkv => Err(ScmStore::unsupported("repairs")),
        Engine::Sptree => Err(SpStore::unsupported("repairs")),
        Engine::Wip => wip::repair(disk, target),
    }
}
