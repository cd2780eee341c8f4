//! The lock of a directory: it can be open only once at a time.
//!
//! # What is locked
//! On the system these are advisory locks (flock), which the kernel releases when the process ends
//! in whatever way; so what a dead process left behind locks nothing. Two are taken:
//! - that of the directory itself, by a handle of its own. Nobody can take it away, whatever files
//!   are removed or put there by hand;
//! - that of a lock file in it, which says to other programs, and to file systems that lock no
//!   directories, what the first one says to this one.
//!
//! A [part](super::Disk::part) of a directory has a lock file only: the directory is somebody
//! else's.
//!
//! The lock file's content, the holder's process id, is a hint for the message to the others
//! ([`LockHolder`]); on a full disk it is not there.
//!
//! Whoever only reads shares both with others that do, and leaves no trace: it makes no lock file
//! and writes nothing to one.
//!
//! # Forks
//! A lock belongs to the open file, of which a forked child has a copy. The holder gives its locks
//! up explicitly, so they are free then, whoever has a copy; a child gives up nothing. Of a holder
//! that ends without giving them up, a child that lives on keeps them.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock, ftruncate};
use rustix::io::Errno;

use super::sim::SimLock;
use super::system::SystemDir;
use crate::lock_holder::LockHolder;
use crate::owner::Owner;
use crate::{Error, Result};

/// More than the content has.
const HOLDER_BYTES_MAX: u64 = 32;

/// The lock of a directory, held until it is dropped.
#[derive(Debug)]
pub struct DirLock {
    #[cfg_attr(not(test), expect(dead_code, reason = "held for its release"))]
    held: Held,
}

#[derive(Debug)]
#[expect(dead_code, reason = "as above")]
enum Held {
    System(SystemLock),
    Simulated(SimLock),
}

/// What is locked on the system, so far.
#[derive(Debug, Default)]
struct SystemLock {
    /// The handle of the directory, where that is locked.
    directory: Option<File>,
    /// The lock file, once it is locked.
    file: Option<File>,
    /// With others that only read.
    is_shared: bool,
    owner: Owner,
}

impl DirLock {
    /// Takes the lock of a directory, or only that of a part of it.
    pub(super) fn system(dir: &SystemDir, name: &str, is_part: bool) -> Result<DirLock> {
        let mut lock = SystemLock::default();
        let path = dir.path().join(name);
        if !is_part {
            lock.directory = lock_directory(dir, name, &path, lock.kind())?;
        }
        lock.take_file(dir.open_lock(name)?, &path)?;
        Ok(DirLock {
            held: Held::System(lock),
        })
    }

    /// Shares the lock with others that only read, and writes nothing.
    pub(super) fn system_shared(dir: &SystemDir, name: &str, is_part: bool) -> Result<DirLock> {
        let mut lock = SystemLock::default();
        lock.is_shared = true;
        let path = dir.path().join(name);
        if !is_part {
            lock.directory = lock_directory(dir, name, &path, lock.kind())?;
        }
        match dir.open_read(name) {
            Err(error) if error.is_not_found() => {}
            opened => lock.lock_file(opened?, &path)?,
        }
        Ok(DirLock {
            held: Held::System(lock),
        })
    }

    /// Makes a file and takes its lock alone.
    pub(super) fn new_file(dir: &SystemDir, name: &str) -> Result<DirLock> {
        let mut lock = SystemLock::default();
        lock.take_file(dir.create(name)?, &dir.path().join(name))?;
        Ok(DirLock {
            held: Held::System(lock),
        })
    }

    /// Takes the lock of a file alone, if it is there, and still there when it is locked.
    pub(super) fn old_file(dir: &SystemDir, name: &str) -> Result<Option<DirLock>> {
        let mut lock = SystemLock::default();
        match dir.open_write(name) {
            Err(error) if error.is_not_found() => return Ok(None),
            opened => lock.take_file(opened?, &dir.path().join(name))?,
        }
        let is_there = match &lock.file {
            Some(file) => dir.has_file(name, file)?,
            None => false,
        };
        Ok(is_there.then_some(DirLock {
            held: Held::System(lock),
        }))
    }

    pub(super) fn simulated(lock: SimLock) -> DirLock {
        DirLock {
            held: Held::Simulated(lock),
        }
    }
}

impl SystemLock {
    fn kind(&self) -> FlockOperation {
        match self.is_shared {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        }
    }

    /// Locks a file.
    fn lock_file(&mut self, file: File, path: &Path) -> Result<()> {
        match flock(&file, self.kind()) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(locked(&file, Some(&file), path)),
            Err(source) => return Err(Error::io("lock", path, None, source)),
        }
        self.file = Some(file);
        Ok(())
    }

    /// Locks a file, and tells in it who does.
    fn take_file(&mut self, file: File, path: &Path) -> Result<()> {
        self.lock_file(file, path)?;
        let Some(file) = &self.file else {
            return Ok(());
        };
        let told = || -> std::io::Result<()> {
            if file.metadata()?.len() > 0 {
                ftruncate(file, 0)?;
            }
            writeln!(&*file, "{}", std::process::id())
        };
        match told().map_err(|source| Error::io("lock", path, None, source)) {
            Err(error) if error.is_no_space() => Ok(()),
            written => written,
        }
    }
}

/// Locks the directory itself; `None` where the file system locks no directories.
fn lock_directory(
    dir: &SystemDir,
    name: &str,
    path: &Path,
    kind: FlockOperation,
) -> Result<Option<File>> {
    let directory = dir.reopen()?;
    match flock(&directory, kind) {
        Ok(()) => Ok(Some(directory)),
        Err(Errno::WOULDBLOCK) => {
            let file = dir.open_read(name).ok();
            Err(locked(&directory, file.as_ref(), path))
        }
        Err(Errno::BADF | Errno::INVAL | Errno::ISDIR | Errno::NOLCK | Errno::NOSYS) => Ok(None),
        Err(Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(source) => Err(Error::io("lock", dir.path(), None, source)),
    }
}

/// The error of who finds a file or directory locked; `named` may name the holder.
fn locked(found: &File, named: Option<&File>, path: &Path) -> Error {
    let mut content = String::new();
    if let Some(file) = named {
        // An unreadable holder is told as an unknown one; the refusal is what counts.
        let _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut content);
    }
    Error::Locked {
        path: path.to_path_buf(),
        holder: LockHolder::find(found, content.trim().parse().ok()),
    }
}

impl Drop for SystemLock {
    fn drop(&mut self) {
        // A forked child has copies of the handles, and the lock is its parent's.
        if !self.owner.is_this_process() {
            return;
        }
        if let Some(file) = &self.file {
            if !self.is_shared {
                // The old process id would only be a wrong hint, so failing here harms nothing.
                let _ = ftruncate(file, 0);
            }
            // The lock would go with the file, too, but a forked child has a copy of it.
            let _ = flock(file, FlockOperation::Unlock);
        }
        if let Some(directory) = &self.directory {
            let _ = flock(directory, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Disk;

    fn holder_of(refused: Result<DirLock>) -> Option<LockHolder> {
        match refused {
            Err(Error::Locked { holder, .. }) => holder,
            other => panic!("{other:?} is no refusal"),
        }
    }

    /// It was refused, and with it whoever wanted to look what fills the disk.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_lock_is_taken_where_there_is_no_space_for_its_content() {
        let dir = tempfile::tempdir().unwrap();
        // Has no space for anything that is written to it.
        std::os::unix::fs::symlink("/dev/full", dir.path().join("LOCK")).unwrap();
        let disk = Disk::system(dir.path()).unwrap();
        let lock = disk.lock("LOCK").unwrap();
        // The system knows the holder.
        assert_eq!(
            holder_of(disk.lock("LOCK")),
            Some(LockHolder::this_process())
        );
        drop(lock);
        disk.lock("LOCK").unwrap();
    }

    #[test]
    fn a_lock_that_was_given_up_is_free_whoever_has_a_copy_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::system(dir.path()).unwrap();
        let lock = disk.lock("LOCK").unwrap();
        let Held::System(held) = &lock.held else {
            unreachable!("the disk is the system's")
        };
        // As a process has them that was forked and has not become another program.
        let copies = [&held.file, &held.directory].map(|file| file.as_ref().unwrap().try_clone());
        assert!(matches!(disk.lock("LOCK"), Err(Error::Locked { .. })));
        drop(lock);
        let again = disk.lock("LOCK").unwrap();
        drop(copies);
        assert!(matches!(disk.lock("LOCK"), Err(Error::Locked { .. })));
        drop(again);
    }

    /// A check made the lock file, and so it needed a directory that it could write to.
    #[test]
    fn who_only_reads_shares_the_lock_and_leaves_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        let sim = crate::SimDisk::new();
        for disk in [Disk::system(dir.path()).unwrap(), Disk::simulated(&sim)] {
            let reader = disk.lock_shared("LOCK").unwrap();
            drop((disk.lock_shared("LOCK").unwrap(), reader));
            assert_eq!(disk.list().unwrap(), Vec::<String>::new());

            let writer = disk.lock("LOCK").unwrap();
            let refused = disk.lock_shared("LOCK");
            let is_told = matches!(&refused, Err(Error::Locked { holder, .. })
                if *holder == Some(LockHolder::this_process()));
            assert!(is_told, "{refused:?}");
            drop(writer);
            let reader = disk.lock_shared("LOCK").unwrap();
            assert!(matches!(disk.lock("LOCK"), Err(Error::Locked { .. })));
            drop(reader);
            disk.lock("LOCK").unwrap();
        }
        assert_eq!(sim.ops(), 1, "the creation of the lock file");
    }
}
