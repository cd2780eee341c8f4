//! Recognizes stores by their files, and which files belong to which engine.

use gabion_media::{Disk, TEMPORARY_SUFFIX};

use super::{flexdb, mapped};
use crate::names::{self, INCOMPLETE, LOCK, is_file_of_wip};
use crate::{Engine, Error, Result};

/// The engine of the store on a disk; none if there is no store. An error if there is a part of
/// one.
pub(super) fn engine_of(disk: &Disk) -> Result<Option<Engine>> {
    refuse_unfinished(disk)?;
    // CURRENT comes last: other stores have files of that name.
    for engine in Engine::ALL.iter().rev() {
        if disk.exists(engine.root_name())? {
            return Ok(Some(*engine));
        }
    }
    Ok(None)
}

/// An error if the directory holds a part of a store only.
fn refuse_unfinished(disk: &Disk) -> Result<()> {
    match disk.exists(INCOMPLETE)? {
        false => Ok(()),
        true => Err(Error::NotAStore {
            path: disk.path().to_owned(),
            why: format!(
                "the directory has a file {INCOMPLETE}, so a checkpoint, repair or restore into it \
                 did not finish; run that again, or remove the directory"
            ),
        }),
    }
}

impl Engine {
    /// The file by which a store of the engine is known.
    pub(super) fn root_name(self) -> &'static str {
        match self {
            Engine::Flex => flexdb::ROOT_NAME,
            Engine::Scmkv => names::SCMKV_ROOT,
            Engine::Sptree => names::SPTREE_ROOT,
            Engine::Wip => names::CURRENT,
        }
    }

    /// Whether a file of that name is one of a store of the engine, beside the lock.
    pub(super) fn owns(self, name: &str) -> bool {
        let whole = name.strip_suffix(TEMPORARY_SUFFIX).unwrap_or(name);
        whole == self.root_name()
            || match self {
                Engine::Flex => flexdb::is_own_file(whole),
                Engine::Scmkv | Engine::Sptree => mapped::is_own_file(whole),
                Engine::Wip => is_file_of_wip(whole),
            }
    }
}

/// Whether a file of that name is one of a store of any engine.
pub(crate) fn is_file_of_store(name: &str) -> bool {
    name == LOCK || Engine::ALL.iter().any(|engine| engine.owns(name))
}
