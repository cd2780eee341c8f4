//! The operating system's files below one directory.
//!
//! All names are resolved relative to the open handle of the directory.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::DiskRoom;
use crate::{Error, Result};

/// Permissions of new files before the process's mask: nobody else needs to read a store.
const FILE_MODE: Mode = Mode::from_raw_mode(0o640);

/// An open directory of the system.
#[derive(Debug)]
pub(super) struct SystemDir {
    path: PathBuf,
    handle: File,
}

impl SystemDir {
    pub(super) fn open(path: &Path) -> Result<SystemDir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(|source| Error::io("open the directory", path, None, source))?;
        Ok(SystemDir {
            path: path.to_path_buf(),
            handle: handle.into(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Another handle of the directory, whose lock is its own.
    pub(super) fn reopen(&self) -> Result<File> {
        let opened = self.openat(".", OFlags::RDONLY | OFlags::DIRECTORY);
        opened.map_err(|source| Error::io("open the directory", &self.path, None, source))
    }

    pub(super) fn list(&self) -> Result<Vec<String>> {
        let failed = |source: Errno| Error::io("list the directory", &self.path, None, source);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.handle).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_dir = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => {
                    let stat = rustix::fs::statat(
                        &self.handle,
                        entry.file_name(),
                        AtFlags::SYMLINK_NOFOLLOW,
                    );
                    FileType::from_raw_mode(stat.map_err(failed)?.st_mode).is_dir()
                }
                _ => false,
            };
            if !is_dir {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn len_of(&self, name: &str) -> Result<u64> {
        let stat = rustix::fs::statat(&self.handle, name, AtFlags::empty())
            .map_err(|source| self.failed("read the length of", name, source))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    pub(super) fn stamp_of(&self, name: &str) -> Result<[u64; 4]> {
        let stat = rustix::fs::statat(&self.handle, name, AtFlags::empty())
            .map_err(|source| self.failed("look at", name, source))?;
        Ok([
            stat.st_ino,
            u64::try_from(stat.st_size).unwrap_or(0),
            stat.st_mtime.cast_unsigned(),
            stat.st_mtime_nsec,
        ])
    }

    /// Creates a file, readable too, since a mapping needs that.
    pub(super) fn create(&self, name: &str) -> Result<File> {
        match self.openat(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
            Err(Errno::EXIST) => Err(Error::AlreadyExists {
                path: self.path.join(name),
            }),
            opened => opened.map_err(|source| self.failed("create", name, source)),
        }
    }

    pub(super) fn open_write(&self, name: &str) -> Result<File> {
        let opened = self.openat(name, OFlags::RDWR);
        opened.map_err(|source| self.failed("open for writing", name, source))
    }

    pub(super) fn open_read(&self, name: &str) -> Result<File> {
        let opened = self.openat(name, OFlags::RDONLY);
        opened.map_err(|source| self.failed("open for reading", name, source))
    }

    pub(super) fn open_lock(&self, name: &str) -> Result<File> {
        let opened = self.openat(name, OFlags::RDWR | OFlags::CREATE);
        opened.map_err(|source| self.failed("open the lock file", name, source))
    }

    /// Whether the file of that name is this one.
    pub(super) fn has_file(&self, name: &str, file: &File) -> Result<bool> {
        let here = match rustix::fs::statat(&self.handle, name, AtFlags::empty()) {
            Err(Errno::NOENT) => return Ok(false),
            here => here.map_err(|source| self.failed("look at", name, source))?,
        };
        let file = rustix::fs::fstat(file);
        let file = file.map_err(|source| self.failed("look at", name, source))?;
        Ok((here.st_dev, here.st_ino) == (file.st_dev, file.st_ino))
    }

    fn openat(&self, name: &str, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let handle = retry_on_intr(|| rustix::fs::openat(&self.handle, name, flags, FILE_MODE))?;
        Ok(handle.into())
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> Result<()> {
        rustix::fs::renameat(&self.handle, from, &self.handle, to)
            .map_err(|source| self.failed("rename", from, source))
    }

    /// Makes a file also one of another directory. False, and nothing done, where the two do not
    /// allow that.
    pub(super) fn link(&self, name: &str, target: &SystemDir, to: &str) -> Result<bool> {
        match rustix::fs::linkat(&self.handle, name, &target.handle, to, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS) => {
                Ok(false)
            }
            Err(Errno::EXIST) => Err(Error::AlreadyExists {
                path: target.path.join(to),
            }),
            Err(source) => Err(self.failed("link", name, source)),
        }
    }

    pub(super) fn remove(&self, name: &str) -> Result<()> {
        rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())
            .map_err(|source| self.failed("remove", name, source))
    }

    pub(super) fn truncate(&self, name: &str, len: u64) -> Result<()> {
        set_len(&self.open_write(name)?, len).map_err(|source| {
            Error::io(
                "set the length of",
                &self.path.join(name),
                Some(len),
                source,
            )
        })
    }

    pub(super) fn sync_file(&self, name: &str) -> Result<()> {
        sync_data(&self.open_write(name)?)
            .map_err(|source| Error::io("sync", &self.path.join(name), None, source))
    }

    pub(super) fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.handle)
            .map_err(|source| Error::io("sync the directory", &self.path, None, source))
    }

    pub(super) fn room(&self) -> Result<DiskRoom> {
        let stat = rustix::fs::fstatvfs(&self.handle).map_err(|source| {
            Error::io(
                "read the free space of the file system of",
                &self.path,
                None,
                source,
            )
        })?;
        Ok(DiskRoom {
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        })
    }

    /// Whether the file of that name and another one lie on the same file system.
    #[cfg(feature = "pmem")]
    pub(super) fn shares_file_system(&self, name: &str, file: &File) -> Result<bool> {
        let ours = rustix::fs::statat(&self.handle, name, AtFlags::empty());
        let ours = ours.map_err(|source| self.failed("look at", name, source))?;
        let other = rustix::fs::fstat(file);
        let other = other.map_err(|source| self.failed("compare", name, source))?;
        Ok(ours.st_dev == other.st_dev)
    }

    fn failed(&self, operation: &'static str, name: &str, source: Errno) -> Error {
        Error::io(operation, &self.path.join(name), None, source)
    }
}

/// Makes the content and the length of a file durable. Not tried again after any failure: the
/// system may have dropped the data that it could not write.
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(file)?)
}

pub(crate) fn set_len(file: &File, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::ftruncate(file, len))?)
}

/// Gives the space of a range back; false where the file system cannot do that.
pub(super) fn punch(file: &File, offset: u64, len: u64) -> io::Result<bool> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, len)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(source) => Err(source.into()),
    }
}

/// Reserves the space of the first `len` bytes and lengthens the file to them. False where the
/// file system cannot reserve.
pub(super) fn reserve(file: &File, len: u64, path: &Path) -> Result<bool> {
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(source) => Err(Error::io("reserve the space of", path, Some(len), source)),
    }
}

/// Reserves the space of a range and lengthens the file to it. False where the file system cannot
/// reserve. A failure leaves the length as it was, and nothing behind it.
pub(super) fn reserve_range(file: &File, offset: u64, len: u64) -> io::Result<bool> {
    let before = file.metadata()?.len();
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(source) => {
            // A part of it may have been taken, and the file be longer. The first error is the one
            // to tell.
            let _ = set_len(file, before);
            Err(source.into())
        }
    }
}

/// Reserves the space of so many bytes from the beginning of a file on, whose length stays, where
/// the file system can.
pub(super) fn reserve_behind_end(file: &File, len: u64) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, len)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        reserved => Ok(reserved?),
    }
}

/// Gives a directory another path: durably, and atomically. A directory with files in it is not
/// replaced.
pub(super) fn rename_dir_durably(from: &Path, to: &Path) -> Result<()> {
    rustix::fs::rename(from, to).map_err(|source| match source {
        Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR => Error::AlreadyExists {
            path: to.to_path_buf(),
        },
        source => Error::io("rename", from, None, source),
    })?;
    sync_parent(to)
}

/// Removes a directory and the files in it; it holds no directories.
pub(super) fn remove_dir(dir: &SystemDir) -> Result<()> {
    for name in dir.list()? {
        dir.remove(&name)?;
    }
    rustix::fs::rmdir(dir.path())
        .map_err(|source| Error::io("remove the directory", dir.path(), None, source))
}

/// Makes the name of a directory or file durable in the directory that it is in.
fn sync_parent(path: &Path) -> Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    SystemDir::open(parent.unwrap_or(Path::new(".")))?.sync()
}

/// Makes a directory and its missing parents, each one's name synced in its parent.
pub(super) fn create_dir_durably(dir: &Path) -> Result<()> {
    let missing: Vec<&Path> = dir
        .ancestors()
        .take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists())
        .collect();
    for new in missing.into_iter().rev() {
        match std::fs::create_dir(new) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("create the directory", new, None, source));
            }
            _ => {}
        }
        sync_parent(new)?;
    }
    Ok(())
}
