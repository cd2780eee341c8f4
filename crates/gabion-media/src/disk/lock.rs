//! The lock of a directory: one opener at a time.
//!
//! On the system it is an advisory lock (flock) of an open file, which the kernel releases when
//! the process ends in whatever way; so a lock file that a dead process left behind locks nothing.
//! The file's content, the holder's process id, only serves the message to the others.

use std::fs::File;
use std::io::{Read, Write};

use rustix::fs::{FlockOperation, flock, ftruncate};

use super::sim::SimLock;
use super::system::SystemDir;
use crate::{Error, Result};

/// The lock of a directory, held until it is dropped.
#[derive(Debug)]
pub struct DirLock {
    held: Held,
}

#[derive(Debug)]
enum Held {
    System(File),
    /// Released when it is dropped.
    Simulated(#[expect(dead_code, reason = "held for its release")] SimLock),
}

impl DirLock {
    pub(super) fn system(dir: &SystemDir, name: &str) -> Result<DirLock> {
        let path = dir.path().join(name);
        let failed = |source: std::io::Error| Error::io("lock", &path, None, source);
        let mut file = dir.open_lock(name)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut content = String::new();
                // An unreadable holder is told as an unknown one; the refusal is what counts.
                let _ = file.read_to_string(&mut content);
                return Err(Error::Locked {
                    holder: content.trim().parse().ok(),
                    path,
                });
            }
            Err(source) => return Err(failed(source.into())),
        }
        ftruncate(&file, 0).map_err(|source| failed(source.into()))?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(DirLock {
            held: Held::System(file),
        })
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
            // The lock itself goes with the file. The old process id would only mislead whoever
            // comes between the next holder's lock and its id, so failing here harms nothing.
            Held::System(file) => drop(ftruncate(file, 0)),
            Held::Simulated(_) => {}
        }
    }
}
