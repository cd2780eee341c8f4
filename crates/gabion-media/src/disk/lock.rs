//! The lock of a directory: one opener at a time.
//!
//! On the system it is an advisory lock (flock) of an open file, which the kernel releases when
//! the process ends in whatever way; so a lock file that a dead process left behind locks nothing.
//! The file's content, the holder's process id, only serves the message to the others; on a full
//! disk it is not there.
//!
//! Who only reads shares the lock with others that do, and leaves no trace: it makes no lock file
//! and writes nothing to one. Where there is none, it locks the directory itself.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock, ftruncate};

use super::sim::SimLock;
use super::system::SystemDir;
use crate::{Error, Result};

/// More than the content has.
const HOLDER_BYTES_MAX: u64 = 32;

/// The lock of a directory, held until it is dropped.
#[derive(Debug)]
pub struct DirLock {
    held: Held,
}

#[derive(Debug)]
enum Held {
    System(File),
    /// With others that only read.
    Shared(File),
    /// Released when it is dropped.
    Simulated(#[expect(dead_code, reason = "held for its release")] SimLock),
}

impl DirLock {
    pub(super) fn system(dir: &SystemDir, name: &str) -> Result<DirLock> {
        let path = dir.path().join(name);
        let failed = |source: std::io::Error| Error::io("lock", &path, None, source);
        let file = dir.open_lock(name)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(locked(&file, path)),
            Err(source) => return Err(failed(source.into())),
        }
        let told = || -> std::io::Result<()> {
            if file.metadata()?.len() > 0 {
                ftruncate(&file, 0)?;
            }
            writeln!(&file, "{}", std::process::id())
        };
        match told().map_err(failed) {
            Err(error) if error.is_no_space() => {}
            written => written?,
        }
        Ok(DirLock {
            held: Held::System(file),
        })
    }

    /// Shares the lock with others that only read, and writes nothing.
    pub(super) fn system_shared(dir: &SystemDir, name: &str) -> Result<DirLock> {
        let path = dir.path().join(name);
        let file = match dir.open_read(name) {
            Err(error) if error.is_not_found() => dir.open_itself()?,
            opened => opened?,
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(DirLock {
                held: Held::Shared(file),
            }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(locked(&file, path)),
            Err(source) => Err(Error::io("lock", &path, None, source)),
        }
    }

    pub(super) fn simulated(lock: SimLock) -> DirLock {
        DirLock {
            held: Held::Simulated(lock),
        }
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        match &self.held {
            // The old process id would only mislead whoever comes between the next holder's lock
            // and its id, so failing here harms nothing. The lock would go with the file, too, but
            // a process that is being started has a copy of it until it is another program.
            Held::System(file) => {
                let _ = ftruncate(file, 0);
                let _ = flock(file, FlockOperation::Unlock);
            }
            Held::Shared(file) => {
                let _ = flock(file, FlockOperation::Unlock);
            }
            Held::Simulated(_) => {}
        }
    }
}

/// Somebody else holds the lock of that file, or of the directory where it is that.
fn locked(file: &File, path: PathBuf) -> Error {
    let mut content = String::new();
    // An unreadable holder is told as an unknown one; the refusal is what counts.
    let _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut content);
    Error::Locked {
        holder: content.trim().parse().ok(),
        path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Disk;

    /// It was refused, and with it whoever wanted to look what fills the disk.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_lock_is_taken_where_there_is_no_space_for_its_content() {
        let dir = tempfile::tempdir().unwrap();
        // Has no space for anything that is written to it.
        std::os::unix::fs::symlink("/dev/full", dir.path().join("LOCK")).unwrap();
        let disk = Disk::system(dir.path()).unwrap();
        let lock = disk.lock("LOCK").unwrap();
        let refused = disk.lock("LOCK");
        assert!(matches!(refused, Err(Error::Locked { holder: None, .. })));
        drop(lock);
        disk.lock("LOCK").unwrap();
    }

    #[test]
    fn a_lock_that_was_given_up_is_free_whoever_has_a_copy_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::system(dir.path()).unwrap();
        let lock = disk.lock("LOCK").unwrap();
        let Held::System(file) = &lock.held else {
            unreachable!("the disk is the system's")
        };
        // As a process has it that was forked and has not become another program.
        let copy = file.try_clone().unwrap();
        assert!(matches!(disk.lock("LOCK"), Err(Error::Locked { .. })));
        drop(lock);
        let again = disk.lock("LOCK").unwrap();
        drop(copy);
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
                if *holder == Some(std::process::id()));
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
