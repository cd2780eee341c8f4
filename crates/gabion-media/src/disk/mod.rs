//! One directory of files on a medium.
//!
//! # Idea
//! A store needs few things of a file system: files that grow at their end, files that are read
//! anywhere, one kind of preallocated file for the log, names that change atomically, and syncs.
//! [`Disk`] offers exactly these, below one directory, on one of two media:
//!
//! - the *system's* files (`system`, `mapping`, `file_map`, `writeback`): operations relative to
//!   one open handle of the directory, so that they keep working on it even if it is moved;
//! - a *simulated* disk in memory (`sim`): the same results for the same operations, and the
//!   failures that real disks keep for bad days.
//!
//! The files that a disk hands out (`append_file`, `read_file`, `log_file`, `lock`) hold an enum of
//! the two media, so an operation costs one predictable branch and no indirect call.
//!
//! # Invariants
//! - I1. No operation reaches outside the directory: names are plain file names.
//! - I2. Nothing is overwritten by accident: `create_*` refuses names that exist; only
//!   [`Disk::rename`] and [`Disk::replace`] replace a file, as a whole.
//! - I3. After a failed sync a file object takes no more writes, and a directory no more syncs: a
//!   later one could succeed without the names.
//! - I4. Bytes are counted when the medium has accepted them, under the purpose of the file.
//! - I5. Nothing is changed by a process that was forked since the disk or the file was opened.

mod append_file;
#[expect(
    unsafe_code,
    reason = "mapping a file into memory is raw memory access"
)]
mod file_map;
mod lock;
#[expect(
    unsafe_code,
    reason = "several threads write their parts of one mapping"
)]
mod log_file;
#[expect(
    unsafe_code,
    reason = "mapping a file into memory is raw memory access"
)]
mod mapping;
mod random_file;
mod read_file;
mod sim;
mod system;
#[expect(unsafe_code, reason = "the system's call is declared here")]
mod writeback;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub use self::append_file::Appender;
pub use self::file_map::FileMap;
pub use self::lock::DirLock;
pub use self::log_file::{LogFile, LogSpace, LogSync};
pub use self::random_file::RandomFile;
pub use self::read_file::ReadFile;
pub use self::sim::{CreationHold, Fault, FaultKind, ReadStep, SimDisk, Tear};

#[cfg(feature = "pmem")]
pub(crate) use self::system::{set_len as set_file_len, sync_data as sync_file_data};

use self::system::SystemDir;
use crate::counts::Counters;
use crate::owner::Owner;
use crate::{Error, Purpose, Result, WriteCounts};

/// Suffix of the file that [`Disk::replace`] fills before it takes its place. Such a file is the
/// remains of an interrupted replacement and of no use.
pub const TEMPORARY_SUFFIX: &str = ".tmp";

/// How much of a file is copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// How large a medium is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRoom {
    /// Bytes that this user can still write to it, as the file system tells it. Other programs
    /// write, too, and some file systems promise more than they have.
    pub free_bytes: u64,
    /// Bytes that it has in all.
    pub total_bytes: u64,
}

/// One directory on a medium. Clones share the directory's handle and its write counts.
#[derive(Clone, Debug)]
pub struct Disk {
    medium: Medium,
    counters: Arc<Counters>,
    /// What the names of all files begin with.
    prefix: Arc<str>,
    /// The failed sync of the directory after which there are no others.
    failure: Arc<OnceLock<String>>,
    owner: Owner,
    read_only: bool,
}

#[derive(Clone, Debug)]
enum Medium {
    System(Arc<SystemDir>),
    Simulated(SimDisk),
}

impl Disk {
    /// Opens an existing directory of the system.
    pub fn system(dir: &Path) -> Result<Disk> {
        let dir = SystemDir::open(dir)?;
        Ok(Disk {
            medium: Medium::System(Arc::new(dir)),
            counters: Arc::default(),
            prefix: Arc::default(),
            failure: Arc::default(),
            owner: Owner::current(),
            read_only: false,
        })
    }

    /// Opens a directory of the system and makes it, with its parents, where it is missing.
    ///
    /// The parents of new directories are synced: the directory survives the loss of power.
    pub fn create_system(dir: &Path) -> Result<Disk> {
        system::create_dir_durably(dir)?;
        Disk::system(dir)
    }

    /// Opens the directory of a simulated disk.
    pub fn simulated(sim: &SimDisk) -> Disk {
        Disk {
            medium: Medium::Simulated(sim.clone()),
            counters: Arc::default(),
            prefix: Arc::default(),
            failure: Arc::default(),
            owner: Owner::current(),
            read_only: false,
        }
    }

    /// The same disk for reading only: what would change it is [`Error::ReadOnly`], a sync does
    /// nothing, and files to be written anywhere are opened for reading. So it works on a medium
    /// that nobody may write to.
    #[must_use]
    pub fn read_only(self) -> Disk {
        Disk {
            read_only: true,
            ..self
        }
    }

    /// Whether it is for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        match &self.medium {
            Medium::System(dir) => dir.path(),
            Medium::Simulated(sim) => sim.dir(),
        }
    }

    /// The files whose names begin with `prefix`, as a disk of its own: the names that it takes and
    /// lists are without the prefix. It shares the directory's handle and the write counts.
    #[must_use]
    pub fn part(&self, prefix: &str) -> Disk {
        Disk {
            prefix: format!("{}{prefix}", self.prefix).into(),
            ..self.clone()
        }
    }

    /// Path of a file of the directory, for messages.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path().join(format!("{}{name}", self.prefix))
    }

    /// Names of the files in the directory, sorted. Directories are left out.
    pub fn list(&self) -> Result<Vec<String>> {
        let names = match &self.medium {
            Medium::System(dir) => dir.list()?,
            Medium::Simulated(sim) => sim.list()?,
        };
        if self.prefix.is_empty() {
            return Ok(names);
        }
        let own = names
            .iter()
            .filter_map(|name| name.strip_prefix(&*self.prefix));
        Ok(own.map(str::to_owned).collect())
    }

    /// Whether there is a file of that name.
    pub fn exists(&self, name: &str) -> Result<bool> {
        match self.len_of(name) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Length of a file in bytes.
    pub fn len_of(&self, name: &str) -> Result<u64> {
        let name = &*self.full_name(name)?;
        match &self.medium {
            Medium::System(dir) => dir.len_of(name),
            Medium::Simulated(sim) => sim.len_of(name),
        }
    }

    /// Numbers that are others if the name has another file, or the file has changed since: what
    /// was copied of a file with the same ones need not be read again. The system takes them from
    /// the file's number, its length and when it was last written to.
    pub fn stamp_of(&self, name: &str) -> Result<[u64; 4]> {
        let name = &*self.full_name(name)?;
        match &self.medium {
            Medium::System(dir) => dir.stamp_of(name),
            Medium::Simulated(sim) => sim.stamp_of(name),
        }
    }

    /// Creates an empty file that grows at its end; an error if the name exists.
    ///
    /// The name survives the loss of power after the next [`Disk::sync_dir`].
    pub fn create_append(&self, name: &str, purpose: Purpose) -> Result<Appender> {
        let name = &*self.changed_name(name)?;
        let file = match &self.medium {
            Medium::System(dir) => append_file::File::System(dir.create(name)?),
            Medium::Simulated(sim) => append_file::File::Simulated(sim.create(name, 0)?),
        };
        Ok(Appender::new(
            file,
            0,
            self.path().join(name),
            purpose,
            &self.counters,
        ))
    }

    /// Opens an existing file to continue at its end.
    pub fn reopen_append(&self, name: &str, purpose: Purpose) -> Result<Appender> {
        let name = &*self.changed_name(name)?;
        let (file, len) = match &self.medium {
            Medium::System(dir) => {
                let file = dir.open_write(name)?;
                let len = dir.len_of(name)?;
                (append_file::File::System(file), len)
            }
            Medium::Simulated(sim) => {
                let file = sim.open("open for writing", name)?;
                let len = file.len();
                (append_file::File::Simulated(file), len)
            }
        };
        Ok(Appender::new(
            file,
            len,
            self.path().join(name),
            purpose,
            &self.counters,
        ))
    }

    /// Creates a log file of `capacity` bytes, all zero, whose space is reserved; an error if the
    /// capacity is zero or 4 GiB and more, or the name exists. If the space is not there, no file
    /// is left behind.
    pub fn create_log(&self, name: &str, capacity: u64) -> Result<LogFile> {
        let name = &*self.changed_name(name)?;
        LogFile::check_capacity(capacity, &self.path().join(name))?;
        match &self.medium {
            Medium::System(dir) => {
                let file = dir.create(name)?;
                LogFile::prepare_system(file, capacity, self.path().join(name), &self.counters)
                    .inspect_err(|_| {
                        // The first error is the one to tell; a file that could not be removed
                        // either is found by the store's next start.
                        let _ = dir.remove(name);
                    })
            }
            Medium::Simulated(sim) => {
                let file = sim.create(name, capacity)?;
                let path = self.path().join(name);
                Ok(LogFile::simulated(file, capacity, path, &self.counters))
            }
        }
    }

    /// Creates an empty file that is written anywhere; an error if the name exists.
    ///
    /// The name survives the loss of power after the next [`Disk::sync_dir`].
    pub fn create_random(&self, name: &str) -> Result<RandomFile> {
        let name = &*self.changed_name(name)?;
        let file = match &self.medium {
            Medium::System(dir) => random_file::File::System(dir.create(name)?.into()),
            Medium::Simulated(sim) => random_file::File::Simulated(sim.create(name, 0)?.into()),
        };
        Ok(RandomFile::new(
            file,
            self.path().join(name),
            &self.counters,
        ))
    }

    /// Opens an existing file to write it anywhere.
    pub fn open_random(&self, name: &str) -> Result<RandomFile> {
        let name = &*match self.read_only {
            true => self.full_name(name)?,
            false => self.changed_name(name)?,
        };
        let file = match &self.medium {
            Medium::System(dir) if self.read_only => {
                random_file::File::System(dir.open_read(name)?.into())
            }
            Medium::System(dir) => random_file::File::System(dir.open_write(name)?.into()),
            Medium::Simulated(sim) => {
                random_file::File::Simulated(sim.open("open for writing", name)?.into())
            }
        };
        let file = RandomFile::new(file, self.path().join(name), &self.counters);
        Ok(match self.read_only {
            true => file.read_only(),
            false => file,
        })
    }

    /// Makes a log file that nobody needs any more a new one under another name: an error if that
    /// name exists. It reads as what it held before, and keeps its capacity.
    ///
    /// `None`, and the file stays under its name, when a sync of it may be running or has failed.
    /// The new name survives the loss of power after the next [`Disk::sync_dir`].
    pub fn recycle_log(&self, file: LogFile, name: &str) -> Result<Option<LogFile>> {
        if self.exists(name)? {
            return Err(Error::AlreadyExists {
                path: self.path_of(name),
            });
        }
        let old_name = file.path().file_name().and_then(OsStr::to_str);
        let old_name = old_name.and_then(|name| name.strip_prefix(&*self.prefix));
        let Some(old_name) = old_name.map(str::to_owned) else {
            return Ok(None);
        };
        let Some(file) = file.reuse(self.path_of(name)) else {
            return Ok(None);
        };
        self.rename(&old_name, name)?;
        Ok(Some(file))
    }

    /// Opens a file to read it anywhere.
    pub fn open_read(&self, name: &str) -> Result<ReadFile> {
        let name = &*self.full_name(name)?;
        match &self.medium {
            Medium::System(dir) => {
                ReadFile::from_system(dir.open_read(name)?.into(), self.path().join(name))
            }
            Medium::Simulated(sim) => {
                let file = sim.open("open for reading", name)?;
                Ok(ReadFile::simulated(file.into(), self.path().join(name)))
            }
        }
    }

    /// Reads a whole file.
    pub fn read_all(&self, name: &str) -> Result<Vec<u8>> {
        let file = self.open_read(name)?;
        let size = usize::try_from(file.len()).map_err(|_| {
            let source = std::io::Error::from(std::io::ErrorKind::FileTooLarge);
            Error::io("read the whole of", file.path(), None, source)
        })?;
        let mut content = vec![0; size];
        file.read_exact_at(&mut content, 0)?;
        Ok(content)
    }

    /// Gives a file, new or not, this content: durably, and atomically even against the loss of
    /// power.
    ///
    /// The content is written to a file with [`TEMPORARY_SUFFIX`], synced, renamed, and the
    /// directory is synced. No file is opened after the renaming: where this fails for
    /// [too many files](Error::is_too_many_files), nothing has changed.
    pub fn replace(&self, name: &str, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.replace_by(name, purpose, |file| file.append(bytes))
    }

    /// Gives a file the first `len` bytes of what it has, as [`Disk::replace`] does: whatever the
    /// system believes to have written, the new file is on the medium. Takes a mebibyte of memory.
    ///
    /// Nothing is written where there is no space for all of it, if the file system can tell: who
    /// tries again and again does not wear the medium out.
    pub fn rewrite(&self, name: &str, len: u64, purpose: Purpose) -> Result<()> {
        let from = self.open_read(name)?;
        self.replace_by(name, purpose, |to| {
            to.reserve(len)?;
            copy(&from, to, len)
        })
    }

    /// As [`Disk::replace`], with what `fill` appends.
    fn replace_by(
        &self,
        name: &str,
        purpose: Purpose,
        fill: impl FnOnce(&mut Appender) -> Result<()>,
    ) -> Result<()> {
        let temporary = format!("{name}{TEMPORARY_SUFFIX}");
        match self.remove(&temporary) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        let mut file = self.create_append(&temporary, purpose)?;
        let filled = fill(&mut file).and_then(|()| file.sync());
        drop(file);
        if let Err(error) = filled.and_then(|()| self.rename(&temporary, name)) {
            // The first error is the one to tell; the next replacement removes the rest.
            let _ = self.remove(&temporary);
            return Err(error);
        }
        // DURABLE: the content was synced above under its temporary name; the synced directory
        // holds either the old name's file or this one.
        self.sync_dir()
    }

    /// Renames a file and replaces the file of the new name, if there is one, atomically. It
    /// survives the loss of power after the next [`Disk::sync_dir`].
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (&*self.changed_name(from)?, &*self.changed_name(to)?);
        match &self.medium {
            Medium::System(dir) => dir.rename(from, to),
            Medium::Simulated(sim) => sim.rename(from, to),
        }
    }

    /// Removes a file: one system call, no sync. Open files of it stay readable. It survives the
    /// loss of power after the next [`Disk::sync_dir`].
    pub fn remove(&self, name: &str) -> Result<()> {
        let name = &*self.changed_name(name)?;
        match &self.medium {
            Medium::System(dir) => dir.remove(name),
            Medium::Simulated(sim) => sim.remove(name),
        }
    }

    /// Whether a file of the disk and another one lie on the same file system, so that a sync
    /// promises the same of both. A simulated disk is taken for that of any file.
    #[cfg(feature = "pmem")]
    pub(crate) fn shares_file_system(&self, name: &str, file: &std::fs::File) -> Result<bool> {
        match &self.medium {
            Medium::System(dir) => dir.shares_file_system(&self.full_name(name)?, file),
            Medium::Simulated(_) => Ok(true),
        }
    }

    /// Makes a file also one of the directory `target`, under the same name there: a second name
    /// for the same bytes. False, and nothing done, where the two media do not allow that; an error
    /// if the name exists. It survives the loss of power after the next [`Disk::sync_dir`] of
    /// `target`.
    pub fn link_to(&self, target: &Disk, name: &str) -> Result<bool> {
        match (&self.medium, &target.medium) {
            (Medium::System(from), Medium::System(to)) => {
                from.link(&self.full_name(name)?, to, &target.changed_name(name)?)
            }
            _ => Ok(false),
        }
    }

    /// Copies the first `len` bytes of a file into a new one of the same name in the directory
    /// `target`, and syncs it there. An error if the name exists.
    pub fn copy_to(&self, target: &Disk, name: &str, len: u64, purpose: Purpose) -> Result<()> {
        let from = self.open_read(name)?;
        let mut to = target.create_append(name, purpose)?;
        copy(&from, &mut to, len)?;
        to.sync()
    }

    /// Gives the directory itself another path, which must be free or an empty directory: durably,
    /// and atomically. Only for directories of the system; the disk and its clones keep working on
    /// it, and tell the old path.
    pub fn rename_dir(&self, path: &Path) -> Result<()> {
        system::rename_dir_durably(self.system_dir("rename")?.path(), path)
    }

    /// Removes the directory itself with its files. Only for directories of the system.
    pub fn remove_dir(&self) -> Result<()> {
        system::remove_dir(self.system_dir("remove")?)
    }

    fn system_dir(&self, operation: &'static str) -> Result<&SystemDir> {
        self.check_owner()?;
        match &self.medium {
            Medium::System(dir) => Ok(dir),
            Medium::Simulated(sim) => {
                let source = std::io::Error::from(std::io::ErrorKind::Unsupported);
                Err(Error::io(operation, sim.dir(), None, source))
            }
        }
    }

    /// Cuts a file, or lengthens it with zeros, to `len` bytes. It survives the loss of power
    /// after [`Disk::sync_file`].
    pub fn truncate(&self, name: &str, len: u64) -> Result<()> {
        let name = &*self.changed_name(name)?;
        match &self.medium {
            Medium::System(dir) => dir.truncate(name, len),
            Medium::Simulated(sim) => {
                let changed = sim.open("open for writing", name)?.set_len(len);
                changed.map_err(|source| {
                    Error::io(
                        "set the length of",
                        &self.path().join(name),
                        Some(len),
                        source,
                    )
                })
            }
        }
    }

    /// Makes the present content of a file durable, whoever wrote it: what an earlier process
    /// wrote and did not sync may still be in the system's memory only.
    pub fn sync_file(&self, name: &str) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let name = &*self.changed_name(name)?;
        match &self.medium {
            Medium::System(dir) => dir.sync_file(name)?,
            Medium::Simulated(sim) => {
                let synced = sim.open("open for writing", name)?.sync();
                synced
                    .map_err(|source| Error::io("sync", &self.path().join(name), None, source))?;
            }
        }
        self.counters.add_file_sync();
        Ok(())
    }

    /// Makes the names in the directory durable as they are now. If this fails, no clone of this
    /// disk, nor any [part](Disk::part), syncs the directory again: a second sync could succeed
    /// without names that somebody else counts on.
    pub fn sync_dir(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.check_owner()?;
        Error::check_poisoned(self.failure.get(), || self.path().to_owned())?;
        let synced = match &self.medium {
            Medium::System(dir) => dir.sync(),
            Medium::Simulated(sim) => sim.sync_dir(),
        };
        if let Err(error) = synced {
            // Of two failures at once the first is the one to tell.
            let _ = self.failure.set(error.to_string());
            return Err(error);
        }
        self.counters.add_dir_sync();
        Ok(())
    }

    /// Takes the lock of the directory: one holder at a time, among processes and within one. It
    /// is released when the [`DirLock`] is dropped or its process ends.
    ///
    /// The lock file `name` is made where missing and stays. The directory is locked itself, too,
    /// if the file system can do that: nobody comes in who has removed the file. Of a
    /// [part](Disk::part) the file is locked alone, and only those exclude each other who name the
    /// same one. [`Error::Locked`] tells the holder, if the system vouches for it.
    ///
    /// In a process that was forked since, dropping it releases nothing.
    pub fn lock(&self, name: &str) -> Result<DirLock> {
        let name = &*self.changed_name(name)?;
        match &self.medium {
            Medium::System(dir) => DirLock::system(dir, name, !self.prefix.is_empty()),
            Medium::Simulated(sim) => Ok(DirLock::simulated(sim.lock(name)?)),
        }
    }

    /// Shares the lock of the directory with others that only read: [`Disk::lock`] is refused
    /// meanwhile, and this is while somebody has that. Writes nothing, and makes no file. Of a
    /// [part](Disk::part) without a lock file nothing is locked.
    pub fn lock_shared(&self, name: &str) -> Result<DirLock> {
        let name = &*self.full_name(name)?;
        match &self.medium {
            Medium::System(dir) => DirLock::system_shared(dir, name, !self.prefix.is_empty()),
            Medium::Simulated(sim) => Ok(DirLock::simulated(sim.lock_shared(name)?)),
        }
    }

    /// Makes a file, empty but for what its lock says, and takes its lock alone: of the directory
    /// nothing is locked. An error if the name exists.
    pub fn lock_new_file(&self, name: &str) -> Result<DirLock> {
        let name = &*self.changed_name(name)?;
        match &self.medium {
            Medium::System(dir) => DirLock::new_file(dir, name),
            Medium::Simulated(sim) => Ok(DirLock::simulated(sim.lock_new(name)?)),
        }
    }

    /// Takes the lock of a file alone, as [`Disk::lock_new_file`] has made it; `None` if there is
    /// none, or it goes before it is locked.
    pub fn lock_old_file(&self, name: &str) -> Result<Option<DirLock>> {
        let name = &*self.changed_name(name)?;
        match &self.medium {
            Medium::System(dir) => DirLock::old_file(dir, name),
            Medium::Simulated(sim) => Ok(sim.lock_old(name)?.map(DirLock::simulated)),
        }
    }

    /// How large the medium is, and how much of it is free. One system call.
    pub fn room(&self) -> Result<DiskRoom> {
        match &self.medium {
            Medium::System(dir) => dir.room(),
            Medium::Simulated(sim) => Ok(sim.room()),
        }
    }

    /// What was written through this disk and its clones.
    pub fn counts(&self) -> WriteCounts {
        self.counters.read()
    }

    /// An error in a process that was forked since the disk was opened: the files are not its own.
    fn check_owner(&self) -> Result<()> {
        self.owner.check(|| self.path().to_owned())
    }

    /// As [`Disk::full_name`], of a file that is going to be changed.
    fn changed_name<'n>(&self, name: &'n str) -> Result<Cow<'n, str>> {
        self.check_owner()?;
        if self.read_only {
            return Err(Error::ReadOnly {
                path: self.path_of(name),
            });
        }
        self.full_name(name)
    }

    /// The name in the directory of a file that is named without the prefix.
    fn full_name<'n>(&self, name: &'n str) -> Result<Cow<'n, str>> {
        let plain = !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
        if plain && self.prefix.is_empty() {
            return Ok(Cow::Borrowed(name));
        }
        if plain && !self.prefix.contains(['/', '\0']) {
            return Ok(Cow::Owned(format!("{}{name}", self.prefix)));
        }
        Err(Error::InvalidName {
            path: self.path().to_path_buf(),
            name: name.to_owned(),
        })
    }
}

/// Appends the first `len` bytes of a file to an empty one.
fn copy(from: &ReadFile, to: &mut Appender, len: u64) -> Result<()> {
    let size = |left: u64| usize::try_from(left).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
    let mut buffer = vec![0; size(len)];
    while to.len() < len {
        let part = &mut buffer[..size(len - to.len())];
        from.read_exact_at(part, to.len())?;
        to.append(part)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin_tests;
