//! Files that are written anywhere.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::read_file::ReadFile;
use super::sim::SimFile;
use super::{system, writeback};
use crate::counts::Counters;
use crate::owner::Owner;
use crate::{Error, Purpose, Result};

/// A file that is written at any place, by one owner, and grows where a write reaches behind its
/// end. What was never written between reads as zeros.
#[derive(Debug)]
pub struct RandomFile {
    file: File,
    path: PathBuf,
    counters: Arc<Counters>,
    /// The failed sync after which the file takes no more writes.
    failure: Option<String>,
    owner: Owner,
    read_only: bool,
}

#[derive(Debug)]
pub(super) enum File {
    System(Arc<std::fs::File>),
    Simulated(Arc<SimFile>),
}

impl RandomFile {
    pub(super) fn new(file: File, path: PathBuf, counters: &Arc<Counters>) -> RandomFile {
        RandomFile {
            file,
            path,
            counters: Arc::clone(counters),
            failure: None,
            owner: Owner::current(),
            read_only: false,
        }
    }

    /// The same, of which nothing can be changed.
    pub(super) fn read_only(self) -> RandomFile {
        RandomFile {
            read_only: true,
            ..self
        }
    }

    /// Writes all bytes at `offset`. They survive the end of the process; the loss of power only
    /// after [`RandomFile::sync`].
    ///
    /// If this fails, a part of the bytes may have been written; the write may be tried again.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.check()?;
        let written = match &self.file {
            File::System(file) => file.write_all_at(bytes, offset),
            File::Simulated(file) => file.append(offset, bytes),
        };
        written.map_err(|source| Error::io("write to", &self.path, Some(offset), source))?;
        self.counters.add_bytes(purpose, bytes.len());
        Ok(())
    }

    /// Gives the space of a range back to the file system: it reads as zeros from now on. The
    /// length of the file stays. False, and nothing done, where the file system cannot do that.
    /// It survives the loss of power after [`RandomFile::sync`].
    pub fn punch(&mut self, offset: u64, len: u64) -> Result<bool> {
        self.check()?;
        match &self.file {
            File::System(file) => system::punch(file, offset, len),
            File::Simulated(file) => file.punch(offset, len).map(|()| true),
        }
        .map_err(|source| Error::io("free the space of", &self.path, Some(offset), source))
    }

    /// Reserves the space of a range, so that a write to it finds room, and lengthens the file to
    /// it; new bytes read as zeros. False, and nothing done, where the file system cannot reserve.
    ///
    /// If this fails, the length is as before, and nothing behind it is taken.
    pub fn reserve(&mut self, offset: u64, len: u64) -> Result<bool> {
        self.check()?;
        match &self.file {
            File::System(file) => system::reserve_range(file, offset, len),
            File::Simulated(file) => file.reserve(offset, len).map(|()| true),
        }
        .map_err(|source| Error::io("reserve the space of", &self.path, Some(offset), source))
    }

    /// Cuts the file to `len` bytes, which gives the space behind them back. It survives the loss
    /// of power after [`RandomFile::sync`].
    pub fn cut(&mut self, len: u64) -> Result<()> {
        self.check()?;
        let cut = match &self.file {
            File::System(file) => system::set_len(file, len),
            File::Simulated(file) => file.set_len(len),
        };
        cut.map_err(|source| Error::io("set the length of", &self.path, Some(len), source))
    }

    /// Lets the system begin to write `len` bytes from `offset` on to the medium, so that a later
    /// sync finds less to do. Does not wait for the medium, and makes nothing durable. Of use for
    /// ranges that are complete.
    pub fn begin_sync(&mut self, offset: u64, len: u64) {
        if let File::System(file) = &self.file
            && !self.read_only
        {
            writeback::begin(file, offset, len);
        }
    }

    /// Makes everything written so far durable. If this fails, the file takes no more writes or
    /// syncs: a second sync could succeed without the data.
    pub fn sync(&mut self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.check()?;
        let synced = match &self.file {
            File::System(file) => system::sync_data(file),
            File::Simulated(file) => file.sync(),
        };
        if let Err(source) = synced {
            let error = Error::io("sync", &self.path, None, source);
            self.failure = Some(error.to_string());
            return Err(error);
        }
        self.counters.add_file_sync();
        Ok(())
    }

    /// The file for reading, by the same handle of the system. Its [length](ReadFile::len) is that
    /// of now; what is written behind it can be read as well.
    pub fn reader(&self) -> Result<ReadFile> {
        let path = self.path.clone();
        match &self.file {
            File::System(file) => ReadFile::from_system(Arc::clone(file), path),
            File::Simulated(file) => Ok(ReadFile::simulated(Arc::clone(file), path)),
        }
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn check(&self) -> Result<()> {
        self.owner.check(|| self.path.clone())?;
        if self.read_only {
            return Err(Error::ReadOnly {
                path: self.path.clone(),
            });
        }
        Error::check_poisoned(self.failure.as_ref(), || self.path.clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Disk, Error, Fault, FaultKind, Purpose, SimDisk};

    #[test]
    fn a_failed_sync_stops_the_file_for_good() {
        let sim = SimDisk::recording();
        let disk = Disk::simulated(&sim);
        let mut file = disk.create_random("a").unwrap();
        file.write_at(10, b"abc", Purpose::Flush).unwrap();
        sim.inject(Fault::once(0, FaultKind::SyncFails { keep: false }));
        assert!(matches!(file.sync(), Err(Error::Io { .. })));
        let later = [
            file.sync(),
            file.write_at(0, b"x", Purpose::Flush),
            file.punch(0, 3).map(drop),
        ];
        for result in later {
            assert!(matches!(result, Err(Error::Poisoned { .. })));
        }
        assert_eq!(disk.counts().syncs(), 0);
    }

    #[test]
    fn a_file_is_read_by_the_handle_that_it_is_written_by() {
        let sim = SimDisk::new();
        let dir = tempfile::tempdir().unwrap();
        for disk in [Disk::simulated(&sim), Disk::system(dir.path()).unwrap()] {
            let mut file = disk.create_random("a").unwrap();
            file.write_at(0, b"abc", Purpose::Flush).unwrap();
            let reader = file.reader().unwrap();
            file.write_at(2, b"xyz", Purpose::Flush).unwrap();
            drop(file);
            let mut bytes = [0; 5];
            reader.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!((&bytes, reader.len()), (b"abxyz", 3));
            assert_eq!(sim.open_files(), u64::from(disk.path() == sim.dir()));
        }
    }

    #[test]
    fn a_punched_range_may_come_back_until_it_is_synced() {
        let sim = SimDisk::recording();
        let disk = Disk::simulated(&sim);
        let mut file = disk.create_random("a").unwrap();
        disk.sync_dir().unwrap();
        file.write_at(0, &[7; 3000], Purpose::Flush).unwrap();
        file.sync().unwrap();
        assert!(file.punch(1000, 5000).unwrap());
        let seen = disk.read_all("a").unwrap();
        assert_eq!((seen.len(), &seen[999..1001]), (3000, &[7, 0][..]));
        let cut = |style| sim.power_cut(sim.ops(), 1, style).raw("a").unwrap();
        assert_eq!(cut(crate::Tear::DropAll), [7; 3000]);
        assert_eq!(cut(crate::Tear::KeepAll), seen);
        file.sync().unwrap();
        let cut = |style| sim.power_cut(sim.ops(), 1, style).raw("a").unwrap();
        assert_eq!(cut(crate::Tear::DropAll), seen);
    }

    #[test]
    fn what_is_reserved_is_taken_and_what_is_punched_or_cut_is_given_back() {
        let sim = SimDisk::new();
        sim.set_capacity(Some(100 << 10));
        let disk = Disk::simulated(&sim);
        let mut file = disk.create_random("a").unwrap();
        assert!(file.reserve(0, 60 << 10).unwrap());
        assert_eq!(disk.room().unwrap().free_bytes, 40 << 10);
        let refused = file.reserve(50 << 10, 51 << 10).unwrap_err();
        assert!(refused.is_no_space(), "{refused}");
        assert_eq!(disk.len_of("a").unwrap(), 60 << 10);
        file.write_at(0, &[7; 60 << 10], Purpose::Flush).unwrap();
        file.punch(4 << 10, 16 << 10).unwrap();
        assert_eq!(disk.room().unwrap().free_bytes, 56 << 10);
        // A hole takes space again when it is written.
        let mut other = disk.create_random("b").unwrap();
        other.reserve(0, 50 << 10).unwrap();
        let full = file.write_at(4 << 10, &[8; 16 << 10], Purpose::Flush);
        assert!(full.unwrap_err().is_no_space());
        other.cut(0).unwrap();
        file.reserve(0, 60 << 10).unwrap();
        assert_eq!(disk.room().unwrap().free_bytes, 40 << 10);
        let bytes = disk.read_all("a").unwrap();
        assert_eq!((bytes[4095], bytes[20 << 10]), (7, 7));
        file.cut(1).unwrap();
        assert_eq!(disk.read_all("a").unwrap(), [7]);
    }

    #[test]
    fn beginning_to_sync_changes_nothing_that_can_be_read_and_makes_nothing_durable() {
        let sim = SimDisk::recording();
        let dir = tempfile::tempdir().unwrap();
        for disk in [Disk::simulated(&sim), Disk::system(dir.path()).unwrap()] {
            let mut file = disk.create_random("a").unwrap();
            disk.sync_dir().unwrap();
            file.write_at(3, &[7; 9000], Purpose::Flush).unwrap();
            for (offset, len) in [(3, 9000), (0, 0), (1 << 40, 1), (u64::MAX, u64::MAX)] {
                file.begin_sync(offset, len);
            }
            assert_eq!(disk.read_all("a").unwrap()[3..], [7; 9000]);
            assert_eq!(disk.counts().file_syncs, 0);
            if disk.path() == sim.dir() {
                let lost = sim.power_cut(sim.ops(), 1, crate::Tear::DropAll);
                assert_eq!(lost.raw("a").unwrap(), []);
            }
            file.sync().unwrap();
        }
    }

    #[test]
    fn a_short_write_is_an_error_and_may_be_tried_again() {
        let sim = SimDisk::new();
        let disk = Disk::simulated(&sim);
        let mut file = disk.create_random("a").unwrap();
        sim.inject(Fault::once(0, FaultKind::ShortWrite));
        assert!(file.write_at(4, b"abcd", Purpose::Gc).is_err());
        assert_eq!(disk.counts().total_bytes(), 0);
        file.write_at(4, b"abcd", Purpose::Gc).unwrap();
        assert_eq!(disk.read_all("a").unwrap(), b"\0\0\0\0abcd");
        assert_eq!(disk.counts().bytes_of(Purpose::Gc), 4);
    }
}
