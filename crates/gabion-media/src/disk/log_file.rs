//! Log files: preallocated, appended to at the cost of a memory copy, synced from any thread.
//!
//! # Idea
//! A log file gets its space when it is created and reads as zeros behind what was appended, so a
//! reader finds the end of the log as zeros. On the system the file is mapped (`mapping`): an
//! append is a copy and survives the end of the process without a system call. Where the file
//! system cannot reserve space, a full disk would end the process at a store into the mapping; such
//! files are written by system calls instead.
//!
//! # Invariants
//! - I1. `position <= capacity`, and the file keeps its capacity until [`LogFile::finish`].
//! - I2. A failed sync, through whichever handle, stops all later appends and syncs of the file.
//!
//! # Durability
//! [`LogSync::sync`] makes durable all appends that happened before its call. An append that runs
//! at the same time may be in part on the medium, so records need checksums.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::mapping::Mapping;
use super::sim::SimFile;
use super::system;
use crate::counts::Counters;
use crate::{Error, Purpose, Result};

/// A preallocated file that grows by appends from one owner.
#[derive(Debug)]
pub struct LogFile {
    writer: Writer,
    position: u64,
    capacity: u64,
    shared: Arc<Shared>,
}

#[derive(Debug)]
enum Writer {
    /// A mapping of the whole file.
    Mapped(Mapping),
    /// Write calls, each record gathered in the buffer first.
    Called(Vec<u8>),
    /// The simulated disk, which behaves like a mapping.
    Simulated,
}

/// Makes the appends of a [`LogFile`] durable, from any thread, at the same time as appends and
/// even after the file is finished.
#[derive(Clone, Debug)]
pub struct LogSync(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: Handle,
    path: PathBuf,
    counters: Arc<Counters>,
    /// The failed sync after which the file takes no more writes. Set under `syncing`.
    failure: OnceLock<String>,
    /// One sync at a time: the system tells a failure to one caller only, so of two syncs at the
    /// same time one would report success for data that the other knows to be lost.
    syncing: Mutex<()>,
}

#[derive(Debug)]
enum Handle {
    System(File),
    Simulated(SimFile),
}

impl LogFile {
    /// Reserves and maps a new, empty file of the system.
    pub(super) fn prepare_system(
        file: File,
        capacity: u64,
        path: PathBuf,
        counters: &Arc<Counters>,
    ) -> Result<LogFile> {
        let writer = if system::reserve(&file, capacity, &path)? {
            let mapped = usize::try_from(capacity)
                .map_err(|_| std::io::ErrorKind::FileTooLarge.into())
                .and_then(|len| Mapping::new(&file, len));
            Writer::Mapped(mapped.map_err(|source| Error::io("map", &path, None, source))?)
        } else {
            system::set_len(&file, capacity)
                .map_err(|source| Error::io("set the length of", &path, Some(capacity), source))?;
            Writer::Called(Vec::new())
        };
        Ok(LogFile::new(
            writer,
            Handle::System(file),
            capacity,
            path,
            counters,
        ))
    }

    pub(super) fn simulated(
        file: SimFile,
        capacity: u64,
        path: PathBuf,
        counters: &Arc<Counters>,
    ) -> LogFile {
        LogFile::new(
            Writer::Simulated,
            Handle::Simulated(file),
            capacity,
            path,
            counters,
        )
    }

    fn new(
        writer: Writer,
        file: Handle,
        capacity: u64,
        path: PathBuf,
        counters: &Arc<Counters>,
    ) -> LogFile {
        let counters = Arc::clone(counters);
        let failure = OnceLock::new();
        let syncing = Mutex::new(());
        let shared = Arc::new(Shared {
            file,
            path,
            counters,
            failure,
            syncing,
        });
        LogFile {
            writer,
            position: 0,
            capacity,
            shared,
        }
    }

    /// Appends the parts one behind the other, as one record. They survive the end of the
    /// process; the loss of power only after [`LogSync::sync`].
    ///
    /// A record longer than [`LogFile::remaining`] is [`Error::LogFull`], and nothing of it is
    /// written. Costs a memory copy on file systems that can reserve space.
    #[inline]
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.shared.check()?;
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if size as u64 > self.remaining() {
            return Err(self.full(size));
        }
        match &mut self.writer {
            Writer::Mapped(mapping) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "the position lies within a mapping, so it is a usize"
                )]
                let mut offset = self.position as usize;
                for part in parts {
                    mapping.write(offset, part);
                    offset += part.len();
                }
            }
            Writer::Called(buffer) => {
                buffer.clear();
                parts.iter().for_each(|part| buffer.extend_from_slice(part));
                self.shared.write(&[buffer], self.position)?;
            }
            Writer::Simulated => self.shared.write(parts, self.position)?,
        }
        self.position += size as u64;
        self.shared.counters.add_bytes(Purpose::Log, size);
        Ok(())
    }

    #[cold]
    fn full(&self, size: usize) -> Error {
        Error::LogFull {
            path: self.shared.path.clone(),
            wanted: size as u64,
            remaining: self.remaining(),
        }
    }

    /// Bytes that still fit.
    pub fn remaining(&self) -> u64 {
        self.capacity - self.position
    }

    /// Bytes appended so far, and the offset of the next append.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Size of the file in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// A handle to sync the file with.
    pub fn sync_handle(&self) -> LogSync {
        LogSync(Arc::clone(&self.shared))
    }

    /// Ends the file at its position and gives the rest of its space back. This makes nothing
    /// durable; a [`LogSync`] taken before still does, the new length included.
    pub fn finish(self) -> Result<()> {
        let LogFile {
            writer,
            position,
            shared,
            ..
        } = self;
        // The mapping must not outlive the pages that it maps.
        drop(writer);
        let cut = match &shared.file {
            Handle::System(file) => system::set_len(file, position),
            Handle::Simulated(file) => file.set_len(position),
        };
        cut.map_err(|source| Error::io("set the length of", &shared.path, Some(position), source))
    }
}

impl LogSync {
    /// Makes all appends that happened before the call durable. May run at the same time as
    /// appends; of several syncs one runs at a time. If this fails, the file takes no more appends
    /// or syncs.
    pub fn sync(&self) -> Result<()> {
        let _one_at_a_time = self.0.syncing.lock();
        self.0.check()?;
        let synced = match &self.0.file {
            Handle::System(file) => system::sync_data(file),
            Handle::Simulated(file) => file.sync(),
        };
        if let Err(source) = synced {
            let error = Error::io("sync", &self.0.path, None, source);
            let first = self.0.failure.set(error.to_string());
            debug_assert!(first.is_ok(), "no sync runs after a failure");
            return Err(error);
        }
        self.0.counters.add_file_sync();
        Ok(())
    }
}

impl Shared {
    #[inline]
    fn check(&self) -> Result<()> {
        match self.failure.get() {
            None => Ok(()),
            Some(cause) => Err(self.poisoned(cause)),
        }
    }

    #[cold]
    fn poisoned(&self, cause: &str) -> Error {
        Error::Poisoned {
            path: self.path.clone(),
            cause: cause.to_owned(),
        }
    }

    fn write(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        match &self.file {
            Handle::System(file) => {
                let mut at = offset;
                for part in parts {
                    file.write_all_at(part, at)
                        .map_err(|source| Error::io("append to", &self.path, Some(at), source))?;
                    at += part.len() as u64;
                }
            }
            Handle::Simulated(file) => file.append_log(offset, parts),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_file_written_by_calls_does_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.log");
        let file = File::create_new(&path).unwrap();
        system::set_len(&file, 100).unwrap();
        let writer = Writer::Called(Vec::new());
        let counters = Arc::default();
        let mut log = LogFile::new(writer, Handle::System(file), 100, path.clone(), &counters);
        log.append(&[b"ab", b"cde"]).unwrap();
        log.append(&[b"f"]).unwrap();
        let full = log.append(&[&[1; 95]]).unwrap_err();
        assert!(
            matches!(
                full,
                Error::LogFull {
                    wanted: 95,
                    remaining: 94,
                    ..
                }
            ),
            "{full}"
        );
        log.sync_handle().sync().unwrap();
        let mut expected = b"abcdef".to_vec();
        expected.resize(100, 0);
        assert_eq!(std::fs::read(&path).unwrap(), expected);
        log.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abcdef");
        assert_eq!(counters.read().bytes_of(Purpose::Log), 6);
    }

    #[test]
    fn a_failed_sync_stops_the_file_and_all_its_handles() {
        let path = PathBuf::from("/dev/full");
        let device = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let writer = Writer::Called(Vec::new());
        let mut log = LogFile::new(writer, Handle::System(device), 100, path, &Arc::default());
        let (first, second) = (log.sync_handle(), log.sync_handle());
        assert!(log.append(&[b"abc"]).unwrap_err().is_no_space());
        assert_eq!(log.position(), 0);
        assert!(matches!(
            first.sync(),
            Err(Error::Io {
                operation: "sync",
                ..
            })
        ));
        for result in [first.sync(), second.sync(), log.append(&[b"abc"])] {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        }
    }
}
