//! The directory of a store, as long as it is the store's.
//!
//! A scan may outlive the close of its store. From then on another program may have the directory
//! and have put other files there, a copy of an older time for one: names say nothing any more
//! about what the store knew by them. So what opens or removes a file by its name on a reader's
//! behalf does it within [`StoreLock::hold`], or not at all.

use gabion_media::{DirLock, Disk, Owner};
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};

use crate::Result;
use crate::names::LOCK;

/// The lock of the directory, until the store is closed.
pub(crate) struct StoreLock {
    /// Until the store is closed; of a follower without a lock.
    lock: RwLock<Option<Option<DirLock>>>,
    owner: Owner,
}

impl StoreLock {
    /// Takes the lock of a directory, or shares it with others that only read, too.
    pub(crate) fn take(disk: &Disk) -> Result<StoreLock> {
        let lock = match disk.is_read_only() {
            true => disk.lock_shared(LOCK),
            false => disk.lock(LOCK),
        };
        Ok(StoreLock {
            lock: RwLock::new(Some(Some(lock?))),
            owner: Owner::current(),
        })
    }

    /// That of a follower: the directory is somebody else's, and stays it.
    pub(crate) fn none() -> StoreLock {
        StoreLock {
            lock: RwLock::new(Some(None)),
            owner: Owner::current(),
        }
    }

    /// Keeps the directory the store's until the guard goes; `None` if it is not any more, or
    /// this is a forked child. A thread may do so several times at once.
    pub(crate) fn hold(&self) -> Option<MappedRwLockReadGuard<'_, Option<DirLock>>> {
        if !self.owner.is_here() {
            return None;
        }
        RwLockReadGuard::try_map(self.lock.read_recursive(), Option::as_ref).ok()
    }

    /// Gives the directory back, when nobody holds it.
    pub(crate) fn release(&self) {
        self.lock.write().take();
    }
}
