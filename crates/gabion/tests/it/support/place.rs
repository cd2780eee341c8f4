//! Where the stores of tests lie: on a simulated disk, or, for engines that map a file, in a
//! directory of the system.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use gabion::Engine;
use gabion_media::{Disk, SimDisk};
use tempfile::TempDir;

/// The place of a store.
pub(crate) enum Place {
    Simulated(SimDisk),
    Directory(TempDir),
}

impl Place {
    /// An empty place for a store of an engine. A simulated disk records.
    pub(crate) fn of(engine: Engine) -> Place {
        if engine.capabilities().mapped {
            Place::Directory(directory())
        } else {
            Place::Simulated(SimDisk::recording())
        }
    }

    pub(crate) fn disk(&self) -> Disk {
        match self {
            Place::Simulated(sim) => Disk::simulated(sim),
            Place::Directory(dir) => Disk::system(dir.path()).expect("a directory"),
        }
    }

    /// What is left if the process ends now. In a directory, nobody may write meanwhile.
    pub(crate) fn kill(&self) -> Place {
        match self {
            Place::Simulated(sim) => Place::Simulated(sim.process_kill(sim.ops())),
            Place::Directory(dir) => {
                let copy = directory();
                for entry in std::fs::read_dir(dir.path()).expect("a directory") {
                    let from = entry.expect("a file").path();
                    let name = from.file_name().expect("a name");
                    copy_with_holes(&from, &copy.path().join(name)).expect("a copy");
                }
                Place::Directory(copy)
            }
        }
    }

    /// The names of the files.
    pub(crate) fn names(&self) -> Vec<String> {
        self.disk().list().expect("a directory")
    }
}

/// An empty directory: in shared memory if there is any, where syncs cost nothing.
fn directory() -> TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.unwrap_or_else(|_| tempfile::tempdir().expect("a directory"))
}

/// Copies a file, which may be much longer than what is in it.
pub(crate) fn copy_with_holes(from: &Path, to: &Path) -> std::io::Result<()> {
    let (mut from, mut to) = (File::open(from)?, File::create(to)?);
    to.set_len(from.metadata()?.len())?;
    let zeros = vec![0; 64 << 10];
    let mut bytes = zeros.clone();
    loop {
        let count = from.read(&mut bytes)?;
        let Some(bytes) = bytes.get(..count).filter(|bytes| !bytes.is_empty()) else {
            return Ok(());
        };
        if bytes == &zeros[..count] {
            let count = i64::try_from(count).expect("small");
            std::io::Seek::seek(&mut to, std::io::SeekFrom::Current(count))?;
        } else {
            to.write_all(bytes)?;
        }
    }
}
