//! Atomic creation of files: whole or absent.
//!
//! A file is written beside its place, under its name with `.incomplete` behind it, and gets its
//! name when all of it is on the medium. Who is killed meanwhile leaves the part, which the next
//! run clears away: it is known by the bytes with which it begins, or where these are any by a name
//! that nobody else gives, and by the lock that its writer held as long as it lived.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::failure::Failure;

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// A file that is being written. Dropped before it is finished, it is gone.
pub(crate) struct NewFile {
    path: PathBuf,
    part: PathBuf,
    file: BufWriter<File>,
    is_finished: bool,
}

impl NewFile {
    /// Begins the file at `path`, which must not exist. What is written to it begins with `mark`.
    pub(crate) fn create(path: &Path, mark: &str) -> Result<NewFile, Failure> {
        NewFile::begin(path, ".incomplete", mark)
    }

    /// As [`NewFile::create`], of any bytes: only its name tells that a part is one.
    pub(crate) fn create_unmarked(path: &Path) -> Result<NewFile, Failure> {
        NewFile::begin(path, ".gabion-incomplete", "")
    }

    fn begin(path: &Path, suffix: &str, mark: &str) -> Result<NewFile, Failure> {
        let refused = |error: &io::Error| Failure::file("make", path, error);
        if fs::symlink_metadata(path).is_ok() {
            return Err(refused(&io::ErrorKind::AlreadyExists.into()));
        }
        let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
        name.push(suffix);
        let part = path.with_file_name(name);
        // The lock on a left-over is held until the new part is locked.
        let _left_over = clear(&part, mark)?;
        let file = File::create_new(&part).map_err(|error| refused(&error))?;
        lock(&file, &part)?;
        Ok(NewFile {
            path: path.to_owned(),
            part,
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            is_finished: false,
        })
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file
            .write_all(bytes)
            .map_err(|error| Failure::file("write to", &self.path, &error))
    }

    /// Gives the file its name.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let refused = |error: &io::Error| Failure::file("write to", &self.path, error);
        self.file.flush().map_err(|error| refused(&error))?;
        // DURABLE: all bytes are on the medium before the name says that they are all.
        self.file
            .get_ref()
            .sync_all()
            .map_err(|error| refused(&error))?;
        rename(&self.part, &self.path)
            .map_err(|error| Failure::file("make", &self.path, &error))?;
        self.is_finished = true;
        let dir = match self.path.parent() {
            Some(dir) if dir != Path::new("") => dir,
            _ => Path::new("."),
        };
        // DURABLE: the name is on the medium before the program says that it is done.
        File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(|error| Failure::file("sync", dir, &error))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // A part is of no use, and the next run would clear it away. The first error is told.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Renames a file to a name that nothing has.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system cannot look and rename at once.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match fs::symlink_metadata(to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(from, to),
        },
        renamed => Ok(renamed?),
    }
}

/// Removes what a writer left at `part` that did not come to its end, and gives the locked file. A
/// file that does not begin with `mark` is somebody else's.
fn clear(part: &Path, mark: &str) -> Result<Option<File>, Failure> {
    let refused = |error: &io::Error| Failure::file("clear away", part, error);
    let file = match File::open(part) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused(&error)),
    };
    lock(&file, part)?;
    let mut begin = Vec::new();
    let read = (&file).take(mark.len() as u64).read_to_end(&mut begin);
    read.map_err(|error| refused(&error))?;
    if !mark.as_bytes().starts_with(&begin) {
        return Err(Failure::new(format!(
            "{} is in the way and was not written by this command; move it away",
            part.display()
        )));
    }
    fs::remove_file(part).map_err(|error| refused(&error))?;
    Ok(Some(file))
}

/// Locks the file at `part`, which is gone or another one if somebody else works on it.
fn lock(file: &File, part: &Path) -> Result<(), Failure> {
    let taken = || {
        Failure::new(format!(
            "another process is writing {}; wait until it has finished",
            part.display()
        ))
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(taken()),
        // No locks on this file system, so none that tells of another writer.
        Err(TryLockError::Error(_)) => return Ok(()),
    }
    let own = file.metadata();
    let named = fs::symlink_metadata(part);
    match own.and_then(|own| Ok(own.ino() == named?.ino())) {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => Err(taken()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &str = "#mark ";

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn fill(path: &Path, bytes: &[u8]) {
        File::create(path).unwrap().write_all(bytes).unwrap();
    }

    /// A dump that was killed left its part under the final name, where nothing told it from a
    /// whole one.
    #[test]
    fn a_file_has_its_name_only_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut file = NewFile::create(&path, MARK).unwrap();
        file.write(b"#mark 1\n").unwrap();
        file.file.flush().unwrap();
        assert_eq!(names(dir.path()), ["a.incomplete"]);
        let second = NewFile::create(&path, MARK).err().unwrap();
        assert!(second.to_string().contains("another process"), "{second}");
        file.finish().unwrap();
        assert_eq!(names(dir.path()), ["a"]);
        assert_eq!(fs::read(&path).unwrap(), b"#mark 1\n");
    }

    #[test]
    fn what_a_killed_writer_left_is_cleared_away_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (path, part) = (dir.path().join("a"), dir.path().join("a.incomplete"));
        for left in [&b""[..], b"#ma", b"#mark 1\nhalf a li"] {
            fill(&part, left);
            let mut file = NewFile::create(&path, MARK).unwrap();
            file.write(b"#mark 1\n").unwrap();
            file.finish().unwrap();
            assert_eq!(names(dir.path()), ["a"]);
            assert_eq!(fs::read(&path).unwrap(), b"#mark 1\n");
            fs::remove_file(&path).unwrap();
        }
        fill(&part, b"precious");
        let refused = NewFile::create(&path, MARK).err().unwrap();
        assert!(refused.to_string().contains("in the way"), "{refused}");
        assert_eq!(fs::read(&part).unwrap(), b"precious");
    }

    #[test]
    fn a_file_that_failed_or_that_another_one_came_before_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        drop(NewFile::create(&path, MARK).unwrap());
        assert_eq!(names(dir.path()), Vec::<String>::new());
        let file = NewFile::create(&path, MARK).unwrap();
        fill(&path, b"precious");
        let refused = file.finish().unwrap_err();
        assert!(refused.to_string().contains("exists"), "{refused}");
        assert_eq!(names(dir.path()), ["a"]);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
