//! Errors of media: the operation that failed, the file, the offset, and the remedy.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::lock_holder::LockHolder;

/// Result of operations on media.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong on a medium.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused an operation on a file or directory.
    #[error(
        "cannot {operation} {path}{place}: {source}{remedy}",
        path = path.display(),
        place = place(*offset),
        remedy = remedy(source),
    )]
    Io {
        /// What was tried: a verb phrase such as "append to".
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Where in the file, in bytes, if the operation has a place.
        offset: Option<u64>,
        /// The system's answer.
        source: io::Error,
    },

    /// A file of that name is there already and must not be overwritten.
    #[error(
        "{path} already exists and is not overwritten; move it away if it is not part of the store",
        path = path.display()
    )]
    AlreadyExists {
        /// The file.
        path: PathBuf,
    },

    /// The directory is open elsewhere, and its lock is held there.
    #[error(
        "{path} is locked by {holder}; close the store there first, as a directory can be open \
         only once at a time",
        path = path.display(),
        holder = holder_name(holder.as_ref()),
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The holder, if the system confirms it.
        holder: Option<LockHolder>,
    },

    /// The file or directory was opened by a process that this process was forked from. Nothing was
    /// changed.
    #[error(
        "{path} was opened by process {owner}, and this process is a fork of it and may not change \
         the file; open it after the fork, or after that process has closed it",
        path = path.display()
    )]
    Forked {
        /// The file or directory.
        path: PathBuf,
        /// Process id of the process that opened it.
        owner: u32,
    },

    /// The directory was opened for reading only.
    #[error(
        "cannot change {path}: it was opened read-only",
        path = path.display()
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },

    /// The file ends before the bytes that were asked for.
    #[error(
        "cannot read {wanted} bytes of {path}, offset {offset}: the file ends before; it was \
         truncated, or never completely written",
        path = path.display()
    )]
    ShortRead {
        /// The file.
        path: PathBuf,
        /// Where the read began, in bytes.
        offset: u64,
        /// How many bytes were asked for.
        wanted: u64,
    },

    /// The record does not fit into what is left of a preallocated log file.
    #[error(
        "{path} has {remaining} bytes left, and the record needs {wanted}; continue in a new log \
         file",
        path = path.display()
    )]
    LogFull {
        /// The log file.
        path: PathBuf,
        /// Size of the record in bytes.
        wanted: u64,
        /// Bytes left in the file.
        remaining: u64,
    },

    /// An earlier sync of this open file or directory failed, so its state on the medium is
    /// unknown.
    #[error(
        "{path} takes no more writes, as a sync failed: {cause}; writes since the previous sync \
         may be lost: fix the cause and open the store again",
        path = path.display()
    )]
    Poisoned {
        /// The file or directory.
        path: PathBuf,
        /// The failure, in words.
        cause: String,
    },

    /// A pool of persistent memory cannot be used as it is.
    #[error("cannot use the pool {path}: {fault}", path = path.display())]
    Pool {
        /// The pool's file, or a name in angle brackets if it has none.
        path: PathBuf,
        /// What is wrong with it.
        fault: PoolFault,
    },

    /// A pool of persistent memory has no space for a block.
    #[error(
        "the pool {path} has no block of {wanted} bytes left, and {free} bytes are free; delete \
         something, or copy the content into a larger pool",
        path = path.display()
    )]
    PoolFull {
        /// The pool's file, or a name in angle brackets if it has none.
        path: PathBuf,
        /// Bytes asked for.
        wanted: u64,
        /// Free bytes, in pieces that are too small.
        free: u64,
    },

    /// The name is not a plain file name; nothing outside the directory is ever touched.
    #[error(
        "{name:?} is not a plain file name for {path}: it must not be empty, \".\" or \"..\", nor \
         contain '/' or a zero byte",
        path = path.display()
    )]
    InvalidName {
        /// The directory.
        path: PathBuf,
        /// The name.
        name: String,
    },
}

/// What is wrong with a pool of persistent memory.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolFault {
    /// The file is not a pool.
    #[error(
        "the file is not a pool, as it does not begin with GABIONPM; name a pool, or create one \
         elsewhere"
    )]
    Foreign,
    /// The creation of the pool did not finish.
    #[error(
        "the creation of the pool was interrupted, and the pool is empty; remove the file and \
         create the pool again"
    )]
    Incomplete,
    /// A format version that this program does not know.
    #[error(
        "the pool has format version {found}, and this program reads versions up to {known}; use a \
         newer version of Gabion"
    )]
    Version {
        /// The pool's version.
        found: u32,
        /// The newest version that this program reads.
        known: u32,
    },
    /// Written by a machine with the other byte order.
    #[error(
        "the pool was written on a machine with the other byte order; copy the content on a \
         machine of that byte order"
    )]
    ByteOrder,
    /// Another kind of structure lies in it.
    #[error(
        "the pool holds a structure with layout id {found:#x}, not {wanted:#x}; open it as that \
         structure"
    )]
    Layout {
        /// The pool's layout id.
        found: u64,
        /// The one that was asked for.
        wanted: u64,
    },
    /// The file is shorter than the pool.
    #[error(
        "the file has {len} bytes, and the pool needs {size}; it was truncated, or not completely \
         copied: restore a copy"
    )]
    Truncated {
        /// Length of the file in bytes.
        len: u64,
        /// What it should be.
        size: u64,
    },
    /// A part of the pool has an impossible value.
    #[error("the {what} at offset {offset} is damaged; restore the pool from a copy")]
    Damaged {
        /// What is damaged.
        what: &'static str,
        /// Where, in bytes from the pool's start.
        offset: u64,
    },
    /// The system went down while the pool was open, which its class does not survive.
    #[error(
        "the system was restarted while the pool was open, and a pool of class Process may then be \
         inconsistent; open it with `salvage` to take it as it is, or restore a copy"
    )]
    Torn,
    /// The pool has a checkpoint, and the options do not name it.
    #[error(
        "the pool has a checkpoint, which replaces it after a power loss; name the checkpoint's \
         file in the options"
    )]
    CheckpointNeeded,
    /// The options name a checkpoint that the pool does not have.
    #[error("the pool was created without a checkpoint and cannot have one; open it without")]
    CheckpointUnknown,
    /// The file is not a checkpoint.
    #[error(
        "the file is not a checkpoint of a pool, as it does not begin with GABIONCP; name the \
         pool's checkpoint"
    )]
    ForeignCheckpoint,
    /// The checkpoint is of another pool.
    #[error("the checkpoint belongs to another pool; name the pool's checkpoint")]
    CheckpointOfAnother,
    /// The pool's class has no sync.
    #[error("the pool has class {class} and cannot be synced; create it with a checkpoint")]
    NoSync {
        /// The pool's class.
        class: &'static str,
    },
    /// The options have numbers that no pool can have.
    #[error(
        "a pool of {size} bytes with {heaps} heaps and chunks of {chunk_bytes} bytes is not \
         possible; change these options"
    )]
    Shape {
        /// Size in bytes.
        size: u64,
        /// Number of heaps.
        heaps: u32,
        /// Chunk size in bytes.
        chunk_bytes: u64,
    },
    /// No allocated block begins at the offset.
    #[error("no allocated block begins at offset {offset:#x}")]
    NotABlock {
        /// The offset.
        offset: u64,
    },
    /// More operations are in flight than the pool has intents for.
    #[error("too many blocks are reserved and not committed; finish some operations first")]
    Busy,
}

impl PoolFault {
    /// Where it is, in bytes from the start of the file, if it has a place.
    pub fn offset(&self) -> Option<u64> {
        match self {
            PoolFault::Damaged { offset, .. } | PoolFault::NotABlock { offset } => Some(*offset),
            _ => None,
        }
    }
}

impl Error {
    pub(crate) fn io(
        operation: &'static str,
        path: &Path,
        offset: Option<u64>,
        source: impl Into<io::Error>,
    ) -> Error {
        let path = path.to_path_buf();
        Error::Io {
            operation,
            path,
            offset,
            source: source.into(),
        }
    }

    /// Refuses to go on with the file or directory at `path` once a sync of it has failed, for the
    /// cause that was kept.
    pub(crate) fn check_poisoned(
        kept: Option<&String>,
        path: impl FnOnce() -> PathBuf,
    ) -> Result<()> {
        match kept {
            None => Ok(()),
            Some(cause) => Err(Error::Poisoned {
                path: path(),
                cause: cause.clone(),
            }),
        }
    }

    /// Whether the medium, or a pool on it, is full, so that the same operation succeeds once space
    /// is freed. One that was opened for reading only counts as full.
    pub fn is_no_space(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Error::PoolFull { .. } | Error::ReadOnly { .. })
            || matches!(self.kind(), Some(StorageFull | QuotaExceeded))
    }

    /// Whether the process, or the whole system, has as many files open as it may have: the same
    /// operation succeeds once some are closed.
    pub fn is_too_many_files(&self) -> bool {
        matches!(self, Error::Io { source, .. } if too_many_files(source).is_some())
    }

    /// Whether the file ended before the bytes that were to be read.
    pub fn is_short_read(&self) -> bool {
        matches!(self, Error::ShortRead { .. })
    }

    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == Some(io::ErrorKind::NotFound)
    }

    fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Error::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }
}

fn place(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(", offset {offset}"))
}

fn holder_name(holder: Option<&LockHolder>) -> String {
    holder.map_or_else(|| "another process".to_owned(), LockHolder::to_string)
}

/// What helps where too many files are open.
fn too_many_files(source: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(source)? {
        Errno::MFILE => Some(
            "; close other files of this process, or raise its limit of open files (ulimit -n), \
             and try again",
        ),
        Errno::NFILE => Some("; close files, or raise the system's limit of them, and try again"),
        _ => None,
    }
}

fn remedy(source: &io::Error) -> &'static str {
    if let Some(remedy) = too_many_files(source) {
        return remedy;
    }
    match source.kind() {
        io::ErrorKind::StorageFull => "; free space on its file system and try again",
        io::ErrorKind::QuotaExceeded => "; free space or raise the quota and try again",
        io::ErrorKind::PermissionDenied => "; give this user access to it",
        io::ErrorKind::ReadOnlyFilesystem => "; mount its file system writable",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os_error(code: i32) -> Error {
        Error::io(
            "append to",
            Path::new("/a/b"),
            Some(17),
            io::Error::from_raw_os_error(code),
        )
    }

    #[test]
    fn a_full_disk_is_told_with_file_offset_and_remedy() {
        let error = os_error(28);
        assert!(error.is_no_space() && !error.is_not_found());
        let sentence = error.to_string();
        for part in ["append to", "/a/b", "offset 17", "free space"] {
            assert!(
                sentence.contains(part),
                "{part:?} is missing in: {sentence}"
            );
        }
    }

    #[test]
    fn kinds_are_told_apart() {
        assert!(os_error(2).is_not_found() && !os_error(2).is_no_space());
        assert!(!os_error(5).is_not_found() && !os_error(5).is_no_space());
        assert!(os_error(122).is_no_space(), "a quota is a full disk");
        let pool = Error::PoolFull {
            path: "/a".into(),
            wanted: 4,
            free: 3,
        };
        assert!(pool.is_no_space() && !pool.is_not_found());
        let short = Error::ShortRead {
            path: "/a".into(),
            offset: 3,
            wanted: 4,
        };
        assert!(!short.is_not_found() && short.to_string().contains("offset 3"));
    }

    #[test]
    fn too_many_open_files_are_told_with_the_limit_to_raise() {
        for (code, remedy) in [(24, "ulimit -n"), (23, "the system's limit")] {
            let error = os_error(code);
            assert!(error.is_too_many_files() && !error.is_no_space());
            assert!(error.to_string().contains(remedy), "{error}");
        }
        assert!(!os_error(28).is_too_many_files());
    }

    #[test]
    fn a_lock_names_its_holder() {
        let locked = Error::Locked {
            path: "/s/LOCK".into(),
            holder: Some(LockHolder {
                process: 4711,
                program: "loader".to_owned(),
            }),
        };
        assert!(locked.to_string().contains("process 4711 (loader)"));
    }
}
