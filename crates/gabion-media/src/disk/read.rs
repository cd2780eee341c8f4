//! Files that are read anywhere.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::sim::SimFile;
use crate::{Error, Result};

/// A file opened for reading. Clones share one handle and may read at the same time.
///
/// It stays readable when the file is removed.
#[derive(Clone, Debug)]
pub struct ReadFile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: File,
    len: u64,
    path: PathBuf,
}

#[derive(Debug)]
enum File {
    System(std::fs::File),
    Simulated(SimFile),
}

impl ReadFile {
    pub(super) fn from_system(file: std::fs::File, path: PathBuf) -> Result<ReadFile> {
        let metadata = file.metadata();
        let len = metadata
            .map_err(|source| Error::io("read the length of", &path, None, source))?
            .len();
        Ok(ReadFile(Arc::new(Shared {
            file: File::System(file),
            len,
            path,
        })))
    }

    pub(super) fn simulated(file: SimFile, path: PathBuf) -> ReadFile {
        let len = file.len();
        ReadFile(Arc::new(Shared {
            file: File::Simulated(file),
            len,
            path,
        }))
    }

    /// Fills the buffer with the bytes from `offset` on. A file that ends before is
    /// [`Error::ShortRead`].
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let read = match &self.0.file {
            File::System(file) => file.read_exact_at(buffer, offset),
            File::Simulated(file) => file.read_exact_at(buffer, offset),
        };
        read.map_err(|source| {
            if source.kind() == io::ErrorKind::UnexpectedEof {
                let wanted = buffer.len() as u64;
                return Error::ShortRead {
                    path: self.0.path.clone(),
                    offset,
                    wanted,
                };
            }
            Error::io("read", &self.0.path, Some(offset), source)
        })
    }

    /// Length of the file in bytes when it was opened.
    #[expect(
        clippy::len_without_is_empty,
        reason = "an empty file is nothing special"
    )]
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}
