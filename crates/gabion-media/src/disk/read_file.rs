//! Files that are read anywhere.

use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::file_map::FileMap;
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
    System(Arc<std::fs::File>),
    Simulated(Arc<SimFile>),
}

impl ReadFile {
    pub(super) fn from_system(file: Arc<std::fs::File>, path: PathBuf) -> Result<ReadFile> {
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

    pub(super) fn simulated(file: Arc<SimFile>, path: PathBuf) -> ReadFile {
        let len = file.len();
        ReadFile(Arc::new(Shared {
            file: File::Simulated(file),
            len,
            path,
        }))
    }

    /// Fills the buffer with the bytes from `offset` on. A file that ends before is
    /// [`Error::ShortRead`]; an empty buffer is full wherever the file ends.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
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

    /// Says that the bytes of `place` will be read soon, so that the system begins to read those
    /// that it does not have in memory. Does not wait, and does nothing where that is not possible.
    pub fn will_need(&self, place: Range<u64>) {
        let Some(length) = NonZeroU64::new(place.end.saturating_sub(place.start)) else {
            return;
        };
        match &self.0.file {
            File::System(file) => {
                let advice = rustix::fs::Advice::WillNeed;
                // Only a matter of speed.
                let _ = rustix::fs::fadvise(file, place.start, Some(length), advice);
            }
            File::Simulated(file) => file.will_need(place),
        }
    }

    /// Whether the byte at `offset` can be read without waiting for the medium, as far as the
    /// system tells; true where it does not, and behind the end of the file. Costs a call, and may
    /// let the system begin to read what is not in memory.
    pub fn is_in_memory(&self, offset: u64) -> bool {
        match &self.0.file {
            File::System(file) => {
                let mut byte = [0];
                let mut buffers = [IoSliceMut::new(&mut byte)];
                let read = preadv2(file, &mut buffers, offset, ReadWriteFlags::NOWAIT);
                read != Err(Errno::AGAIN)
            }
            File::Simulated(file) => file.is_in_memory(),
        }
    }

    /// Maps the file, as long as it was when it was opened, for reading. It must be complete:
    /// nobody may change or cut it from now on.
    ///
    /// # Errors
    /// When the system gives no more address space or no more mappings, or cannot map files of
    /// this kind.
    pub fn map(&self) -> Result<FileMap> {
        let mapped = match &self.0.file {
            File::System(file) => FileMap::new(file, self.0.len),
            File::Simulated(file) => Ok(FileMap::copied(file.content())),
        };
        mapped.map_err(|source| Error::io("map", &self.0.path, None, source))
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
