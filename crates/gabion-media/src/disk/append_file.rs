//! Files that grow at their end.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::sim::SimFile;
use super::system;
use crate::counts::Counters;
use crate::owner::Owner;
use crate::{Error, Purpose, Result};

/// A file that grows at its end, written by one owner.
#[derive(Debug)]
pub struct Appender {
    file: File,
    len: u64,
    path: PathBuf,
    purpose: Purpose,
    counters: Arc<Counters>,
    /// The failed sync after which the file takes no more writes.
    failure: Option<String>,
    owner: Owner,
}

#[derive(Debug)]
pub(super) enum File {
    System(std::fs::File),
    Simulated(SimFile),
}

impl Appender {
    pub(super) fn new(
        file: File,
        len: u64,
        path: PathBuf,
        purpose: Purpose,
        counters: &Arc<Counters>,
    ) -> Appender {
        Appender {
            file,
            len,
            path,
            purpose,
            counters: Arc::clone(counters),
            failure: None,
            owner: Owner::current(),
        }
    }

    /// Writes all bytes behind the end. They survive the end of the process; the loss of power
    /// only after [`Appender::sync`].
    ///
    /// If this fails, a part of the bytes may stand behind [`Appender::len`]; the length does not
    /// grow, and a later append writes over that part.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.check()?;
        let written = match &self.file {
            File::System(file) => file.write_all_at(bytes, self.len),
            File::Simulated(file) => file.append(self.len, bytes),
        };
        written.map_err(|source| Error::io("append to", &self.path, Some(self.len), source))?;
        self.len += bytes.len() as u64;
        self.counters.add_bytes(self.purpose, bytes.len());
        Ok(())
    }

    /// Reserves the space of the first `len` bytes of an empty file: an error if there is none,
    /// and nothing if the file system cannot reserve.
    pub(super) fn reserve(&self, len: u64) -> Result<()> {
        let reserved = match &self.file {
            File::System(file) => system::reserve_behind_end(file, len),
            File::Simulated(file) => file.check_space(len),
        };
        reserved.map_err(|source| Error::io("reserve the space of", &self.path, None, source))
    }

    /// Makes everything appended so far durable. If this fails, the file takes no more writes or
    /// syncs: a second sync could succeed without the data.
    pub fn sync(&mut self) -> Result<()> {
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

    /// Cuts off what failed appends have left behind the end.
    ///
    /// The loss of power may bring it back until the next [`Appender::sync`].
    pub fn cut(&mut self) -> Result<()> {
        self.check()?;
        let cut = match &self.file {
            File::System(file) => system::set_len(file, self.len),
            File::Simulated(file) => file.set_len(self.len),
        };
        cut.map_err(|source| Error::io("set the length of", &self.path, Some(self.len), source))
    }

    /// Bytes in the file.
    #[expect(
        clippy::len_without_is_empty,
        reason = "an empty file is nothing special"
    )]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn check(&self) -> Result<()> {
        self.owner.check(|| self.path.clone())?;
        Error::check_poisoned(self.failure.as_ref(), || self.path.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::Disk;

    #[test]
    fn reserved_space_is_taken_and_too_much_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::system(dir.path()).unwrap();
        let taken = |name: &str| {
            let file = std::fs::metadata(dir.path().join(name)).unwrap();
            (file.len(), file.blocks() * 512)
        };
        let mut file = disk.create_append("file", Purpose::Flush).unwrap();
        file.reserve(0).unwrap();
        file.reserve(1 << 20).unwrap();
        let (len, bytes) = taken("file");
        assert_eq!(len, 0);
        if bytes == 0 {
            println!("the file system below the temporary directory cannot reserve");
            return;
        }
        assert!(bytes >= 1 << 20, "{bytes}");
        file.append(b"what comes first").unwrap();
        file.sync().unwrap();
        assert_eq!(disk.read_all("file").unwrap(), b"what comes first");

        let whole = rustix::fs::statvfs(dir.path()).unwrap();
        let whole = whole.f_blocks * whole.f_frsize;
        let large = disk.create_append("large", Purpose::Flush).unwrap();
        let refused = large.reserve(whole + (1 << 30)).unwrap_err();
        assert!(refused.is_no_space(), "{refused}");
        assert_eq!(taken("large").0, 0);
    }

    /// A device that is always full and cannot be synced.
    fn full_device() -> Appender {
        let path = PathBuf::from("/dev/full");
        let device = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        Appender::new(
            File::System(device),
            0,
            path,
            Purpose::Flush,
            &Arc::default(),
        )
    }

    #[test]
    fn a_failed_append_does_not_count_and_may_be_tried_again() {
        let mut file = full_device();
        for _ in 0..2 {
            let error = file.append(b"abc").unwrap_err();
            assert!(error.is_no_space(), "{error}");
        }
        assert_eq!((file.len(), file.counters.read().total_bytes()), (0, 0));
    }

    #[test]
    fn a_failed_sync_stops_the_file_for_good() {
        let mut file = full_device();
        assert!(matches!(
            file.sync(),
            Err(Error::Io {
                operation: "sync",
                ..
            })
        ));
        for result in [file.sync(), file.append(b"abc")] {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        }
        assert_eq!(file.counters.read().syncs(), 0);
    }
}
