//! The errors of indexes.

/// The result of an operation of an index.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of an index failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool has no space, or cannot be used.
    #[error(transparent)]
    Media(#[from] gabion_media::Error),
    /// Something on the medium is not what it should be.
    #[error("{what} at offset {offset} of the pool is damaged; restore the pool from a copy")]
    Damaged {
        /// The kind of structure.
        what: &'static str,
        /// Bytes from the start of the pool.
        offset: u64,
    },
    /// There is no such index in the pool.
    #[error("the pool holds no index of this kind; create one, or open the pool as what it holds")]
    NoRoot,
    /// There is an index in the pool already.
    #[error("the pool already holds an index; open it, or create another pool")]
    RootTaken,
    /// The index has other kinds of keys or values.
    #[error("the index was created for other kinds of keys or values; open it with those")]
    OtherKind,
    /// A shard cannot grow any more.
    #[error("a shard of the hash table cannot grow any further; create a table with more shards")]
    ShardLimit,
    /// A key or a value is too long.
    #[error("a key or value has {bytes} bytes; the limit is 4294967295")]
    TooLong {
        /// Its length in bytes.
        bytes: u64,
    },
    /// Two slices that belong together have different lengths.
    #[error("{one} keys were passed with {two} places for values; pass as many places as keys")]
    Lengths {
        /// Length of the first slice.
        one: usize,
        /// Length of the second slice.
        two: usize,
    },
    /// A key or a value is longer than the structure takes.
    #[error("the {what} has {bytes} bytes; the limit is {limit}")]
    Limit {
        /// Which of them.
        what: &'static str,
        /// Its length in bytes.
        bytes: u64,
        /// The longest that is allowed.
        limit: u64,
    },
    /// Too many keys fall into one bucket.
    #[error(
        "a bucket would need a chain of {lines} lines, and the limit is {limit}; enlarge the hash \
         table"
    )]
    ChainLimit {
        /// Lines of 64 bytes.
        lines: u64,
        /// The most lines of a chain.
        limit: u64,
    },
    /// Pages cannot have this size.
    #[error(
        "a page size of {bytes} bytes is not possible; use a power of two from 4096 to 1073741824"
    )]
    PageSize {
        /// The size in bytes.
        bytes: u64,
    },
}

impl Error {
    /// Something on the medium is not what it should be, at this offset of the pool.
    #[cold]
    pub(crate) fn damaged(what: &'static str, offset: u64) -> Error {
        Error::Damaged { what, offset }
    }

    /// Whether the pool, or the file system that it lies on, is full. Deletes go on, and the same
    /// operation succeeds once there is space.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::Media(error) if error.is_no_space())
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_full_file_system_is_as_a_full_pool() {
        let full = gabion_media::Error::PoolFull {
            path: "pool".into(),
            wanted: 64,
            free: 0,
        };
        let system = |kind: ErrorKind| gabion_media::Error::Io {
            operation: "reserve the space of",
            path: "pool".into(),
            offset: Some(0),
            source: kind.into(),
        };
        assert!(Error::from(full).is_no_space());
        assert!(Error::from(system(ErrorKind::StorageFull)).is_no_space());
        assert!(!Error::from(system(ErrorKind::PermissionDenied)).is_no_space());
        assert!(!Error::NoRoot.is_no_space());
    }
}
