//! The errors of spaces: sentences that name the file, the place and the remedy.

use std::path::PathBuf;

/// Result of the operations of spaces.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong with a space.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The medium refused an operation; the message names the file and the operation.
    #[error(transparent)]
    Media(#[from] gabion_media::Error),

    /// Bytes read from a medium do not pass their checks.
    #[error(
        "{file} is damaged at offset {offset}: {what}; restore the file from a copy, or run \
         `gabion space check` to see what is affected",
        file = file.display()
    )]
    Corruption {
        /// The damaged file.
        file: PathBuf,
        /// Offset in bytes of the damaged part.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },

    /// The directory holds no space, or only parts of one.
    #[error("{path} is not a space: {why}", path = path.display())]
    NotASpace {
        /// The directory.
        path: PathBuf,
        /// What is missing, or does not belong there.
        why: String,
    },

    /// The file was written by a newer version of Gabion.
    #[error(
        "{file} has format version {found}, and this program reads versions up to {supported}; \
         open it with a newer version of Gabion",
        file = file.display()
    )]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// The version that it states.
        found: u32,
        /// The newest version that this program knows.
        supported: u32,
    },

    /// A sync failed earlier, so the space takes no more writes. Reads go on.
    #[error(
        "the space {path} is read-only after an earlier failure: {cause}; no synced write is lost: \
         fix the cause and open the space again",
        path = path.display()
    )]
    ReadOnly {
        /// The directory.
        path: PathBuf,
        /// The failure, in words.
        cause: String,
    },

    /// The space has reached its capacity.
    #[error(
        "the space {path} is full: it holds {live} bytes, and {wanted} more would exceed the limit \
         of {limit}; remove data, or open the space with a larger capacity",
        path = path.display()
    )]
    Full {
        /// The directory.
        path: PathBuf,
        /// Bytes that were to be added.
        wanted: u64,
        /// Bytes that the space holds, without holes.
        live: u64,
        /// Bytes that it may hold.
        limit: u64,
    },

    /// The range is not within the address space.
    #[error("{len} bytes at offset {offset} are not within the space, which has {space_len} bytes")]
    OutOfRange {
        /// Where the range begins.
        offset: u64,
        /// Bytes in the range.
        len: u64,
        /// Bytes in the space.
        space_len: u64,
    },

    /// The address space would become longer than 2^48 bytes.
    #[error("the space has {space_len} bytes and cannot grow by {len}; the limit is 2^48 bytes")]
    TooLong {
        /// Bytes that were to be added.
        len: u64,
        /// Bytes in the space.
        space_len: u64,
    },

    /// An option has a value that cannot be used.
    #[error("{what}")]
    Options {
        /// Which option, and what it must be.
        what: String,
    },
}
