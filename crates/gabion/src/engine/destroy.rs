//! Removing a closed store, whatever its engine.
//!
//! The root goes last, and is still there after a power loss unless all else is gone. So what an
//! interrupted removal leaves is a store, which does not open, and is removed by the next try.

use std::path::Path;

use gabion_media::Disk;

use super::check::{engine_of_store, existing};
use super::mapped;
use super::scmkv::Scmkv;
use super::sptree::TreeStore;
use super::{flexdb, wip};
use crate::names::LOCK;
use crate::{Engine, Result};

/// Removes the store in the directory `path`, which must not be open: the files that are its own by
/// their names, and a pool that lies elsewhere ([`crate::MappedOptions::pool_path`]). Whatever
/// else is in the directory stays, and so do the directory itself and the lock file, by which
/// others are kept out to the end.
///
/// The store may be damaged, except for its root, the file by which it is known: nothing says then
/// that the files are Gabion's.
///
/// Durable when it returns. If it fails or is interrupted, by a loss of power too, some or all
/// files are still there, the root among them: the store is known as one and can be removed again,
/// but need not open.
///
/// # Errors
/// [`crate::Error::NotAStore`]; [`crate::Error::Corruption`] and [`crate::Error::NewerFormat`] of
/// the root; [`crate::Error::MissingFeature`] of an engine that this program was built without, for
/// the pool may lie elsewhere; [`crate::Error::Media`] when the store is open or the medium fails.
///
/// ```
/// # fn main() -> gabion::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let path = dir.path();
/// let db = gabion::Db::open(path)?;
/// db.put("stone", "granite")?;
/// db.close()?;
/// gabion::destroy(path)?;
/// assert_eq!(gabion::Db::open(path)?.get("stone")?, None);
/// # Ok(())
/// # }
/// ```
pub fn destroy(path: impl AsRef<Path>) -> Result<()> {
    destroy_disk(&existing(path.as_ref())?)
}

/// As [`destroy`], on a disk of any kind.
///
/// # Errors
/// As there.
#[doc(hidden)]
pub fn destroy_disk(disk: &Disk) -> Result<()> {
    engine_of_store(disk)?;
    let _lock = disk.lock(LOCK)?;
    // Whoever had the lock before may have removed it, or made another one.
    let engine = engine_of_store(disk)?;
    match engine {
        Engine::Flex => flexdb::check_root(disk)?,
        Engine::Scmkv => mapped::remove_pool::<Scmkv>(disk)?,
        Engine::Sptree => mapped::remove_pool::<TreeStore>(disk)?,
        Engine::Wip => wip::check_root(disk)?,
    }
    let root = engine.root_name();
    for name in disk.list()? {
        if name != root && engine.owns(&name) {
            disk.remove(&name)?;
        }
    }
    // DURABLE: all else is gone before the root.
    disk.sync_dir()?;
    disk.remove(root)?;
    Ok(disk.sync_dir()?)
}
