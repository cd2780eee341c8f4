//! The errors of media: which operation on which file failed, and why.

use std::io;
use std::path::PathBuf;

/// Result of operations on media.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong on a medium.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused an operation on a file or directory.
    #[error("{operation} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}
