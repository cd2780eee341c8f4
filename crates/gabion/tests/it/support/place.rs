//! Where the stores of tests lie: on a simulated disk, or, for engines that map a file, in a
//! directory of the system.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use gabion::Engine;
use gabion_media::pmem::Pool;
use gabion_media::{Disk, SimDisk};
use tempfile::TempDir;

/// A simulated disk keeps all that was ever written, several times.
const SIMULATED_BYTES_MAX: u64 = 64 << 20;

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

    /// A simulated disk, or a directory of the system where so many bytes are too much for the
    /// memory of a simulated one.
    pub(crate) fn for_bytes(bytes: u64) -> Place {
        match bytes > SIMULATED_BYTES_MAX {
            true => Place::Directory(tempfile::tempdir().expect("a directory")),
            false => Place::Simulated(SimDisk::recording()),
        }
    }

    /// Bytes of the blocks of all files that hold anything: what a file system takes, as holes take
    /// nothing. The manifest does not count: it is written anew when it is long.
    pub(crate) fn file_bytes(&self) -> u64 {
        let names = self.names();
        let names = names.iter().filter(|name| !name.starts_with("manifest"));
        let taken = |name: &String| match self {
            Place::Simulated(sim) => sim.raw(name).map_or(0, |file| taken_bytes(&file)),
            Place::Directory(dir) => {
                let file = std::fs::metadata(dir.path().join(name));
                file.map_or(0, |file| {
                    std::os::unix::fs::MetadataExt::blocks(&file) * 512
                })
            }
        };
        names.map(taken).sum()
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
                    let to = copy.path().join(name);
                    copy_with_holes(&from, &to).expect("a copy");
                    if name == "store.pool" {
                        // The copy holds all that the process has stored, as its file would.
                        Pool::adopt(&to).expect("a pool");
                    }
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

/// Bytes of the blocks of a file that hold anything.
pub(crate) fn taken_bytes(file: &[u8]) -> u64 {
    let is_taken = |block: &&[u8]| block.iter().any(|byte| *byte != 0);
    file.chunks(4096).filter(is_taken).count() as u64 * 4096
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
