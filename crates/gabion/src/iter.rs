//! Iterators over ranges of keys.

use std::fmt;
use std::time::SystemTime;

use gabion_media::Owner;

use crate::engine::{EngineScan, Walk};
use crate::expiry::time_of;
use crate::{Error, Result, Slice};

/// The pairs of a keyspace in a range, in key order from the front and in reverse order from the
/// back. The iterator sees exactly what was written before it began. With an engine that has no
/// [snapshots](crate::Capabilities::snapshots), it may also see some of what is written while it
/// runs.
///
/// An error ends the iteration. A live iterator keeps the store open and the versions that it may
/// still return, and holds memory for its current position: with
/// [`Engine::Wip`](crate::Engine::Wip) one block per sublevel of a bucket, with
/// [`Engine::Flex`](crate::Engine::Flex) some sixteen pairs, with
/// [`Engine::Sptree`](crate::Engine::Sptree) a page of at most 128 for each end.
#[must_use = "an iterator reads nothing before it is asked"]
pub struct Iter {
    scan: OwnScan,
}

impl Iter {
    pub(crate) fn new(scan: EngineScan) -> Iter {
        Iter {
            scan: OwnScan::new(scan),
        }
    }
}

/// A scan that belongs to this process. In a forked child a copy of it could wait for ever when it
/// advances, and its drop would release what the parent holds. So in a child the scan ends with an
/// error and is forgotten.
struct OwnScan {
    scan: EngineScan,
    owner: Owner,
}

impl OwnScan {
    fn new(scan: EngineScan) -> OwnScan {
        OwnScan {
            scan,
            owner: Owner::noted(),
        }
    }

    #[inline]
    fn get(&mut self) -> &mut EngineScan {
        if !self.owner.is_here() {
            self.forget();
        }
        &mut self.scan
    }

    #[cold]
    fn forget(&mut self) {
        let owner = std::mem::take(&mut self.owner).process();
        let refused = EngineScan::Refused(Some(Error::Forked { owner }));
        std::mem::forget(std::mem::replace(&mut self.scan, refused));
    }
}

impl Drop for OwnScan {
    fn drop(&mut self) {
        self.get();
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;

    #[inline]
    fn next(&mut self) -> Option<Result<(Slice, Slice)>> {
        let scan = self.scan.get();
        match scan.advance() {
            Ok(true) => {
                let key = Slice::new(scan.key());
                Some(Ok((key, scan.value())))
            }
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl DoubleEndedIterator for Iter {
    #[inline]
    fn next_back(&mut self) -> Option<Result<(Slice, Slice)>> {
        self.scan.get().next_back().transpose()
    }
}

impl std::iter::FusedIterator for Iter {}

/// The pairs of a keyspace in a range, in key order, lent one at a time.
///
/// A cursor lends each pair until it advances and copies no value, so it is the fastest way to scan
/// many pairs. An [`Iter`] returns pairs to keep, and goes both ways. Both see the same.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = gabion::Db::open(dir.path())?;
/// for key in ["a", "b", "c"] {
///     db.put(key, "12345")?;
/// }
/// let mut bytes = 0;
/// let mut cursor = db.default_keyspace().cursor("b"..);
/// while cursor.advance()? {
///     bytes += cursor.key().len() + cursor.value().len();
/// }
/// assert_eq!(bytes, 12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a cursor reads nothing before it is moved"]
pub struct Cursor {
    scan: OwnScan,
}

impl Cursor {
    pub(crate) fn new(scan: EngineScan) -> Cursor {
        Cursor {
            scan: OwnScan::new(scan),
        }
    }

    /// Advances to the next pair, at first to the first one. Returns false if there is none; then,
    /// and after an error, the cursor stays at its end.
    ///
    /// # Errors
    /// When a table cannot be read, or is damaged.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.scan.get().advance()
    }

    /// The key of the current pair; empty before the first one and at the end.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.scan.scan.key()
    }

    /// The value of the current pair; empty before the first one and at the end.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.scan.scan.value_bytes()
    }

    /// When the value of the current pair expires; `None` if it does not.
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.scan.scan.expires().map(time_of)
    }
}

/// All pairs of a keyspace, in any order. See [`Keyspace::pairs`](crate::Keyspace::pairs).
///
/// An error ends the iteration.
#[must_use = "an iterator reads nothing before it is asked"]
pub struct Pairs(Source);

enum Source {
    Scan(Iter),
    Walk(Walk),
}

impl Pairs {
    pub(crate) fn scan(iter: Iter) -> Pairs {
        Pairs(Source::Scan(iter))
    }

    pub(crate) fn walk(walk: Walk) -> Pairs {
        Pairs(Source::Walk(walk))
    }
}

impl Iterator for Pairs {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Result<(Slice, Slice)>> {
        match &mut self.0 {
            Source::Scan(iter) => iter.next(),
            Source::Walk(walk) => walk.next().transpose(),
        }
    }
}

impl std::iter::FusedIterator for Pairs {}

/// Shows what is only worth its name.
macro_rules! debug_by_name {
    ($($name:ident),*) => {
        $(impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        })*
    };
}

debug_by_name!(Iter, Cursor, Pairs);
