//! Ingests of sorted pairs.

use std::fmt;

use crate::engine::wip;
use crate::limits::check_limits;
use crate::{Error, Keyspace, Result};

/// How much of a key an error shows.
const SHOWN_BYTES: usize = 40;

/// An ingest of sorted pairs into a keyspace: [`Ingest::finish`] adds all of them at one moment, or
/// none. If you drop it before that, or after an error, nothing remains in the store.
///
/// Use this if the source of the pairs may fail; otherwise [`Keyspace::ingest`] is shorter.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = gabion::Db::open(dir.path())?;
/// # let lines = ["granite\tgrey", "slate\tblack"];
/// let mut ingest = db.default_keyspace().begin_ingest()?;
/// for line in lines {
///     let (key, value) = line.split_once('\t').ok_or("a line without a tab")?;
///     ingest.put(key, value)?;
/// }
/// ingest.finish()?;
/// assert_eq!(db.get("slate")?.as_deref(), Some(&b"black"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is written before `finish`"]
pub struct Ingest<'k> {
    engine: wip::WipIngest<'k>,
    last_key: Vec<u8>,
    pairs: u64,
    user_bytes: u64,
    /// What ended it.
    failure: Option<Error>,
}

impl fmt::Debug for Ingest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingest")
            .field("pairs", &self.pairs)
            .finish_non_exhaustive()
    }
}

impl Keyspace {
    /// Adds sorted pairs to the keyspace, all of them or none, and returns their number. They
    /// replace earlier values of their keys, all at one moment, for readers and after a crash, by
    /// the time this returns. Earlier snapshots and iterators do not see them.
    ///
    /// This is for large loads: the calling thread writes the pairs straight into tables, bucket by
    /// bucket, bypassing the log and the MemTables, so that it writes each byte once. Other writes
    /// continue meanwhile; at the end they wait for about two syncs, and for a thousand lookups at
    /// most. If MemTables hold the same keys, or many keys between them, the store flushes them
    /// first; it flushes what gets in the way later while writers wait. The pairs are durable when
    /// this returns, whatever the store's durability, and so are all writes acknowledged before.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = gabion::Db::open(dir.path())?;
    /// let pairs = (0..100_000_u32).map(|number| (format!("{number:08}"), "stone"));
    /// let count = db.default_keyspace().ingest(pairs)?;
    /// assert_eq!(count, 100_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] for keys that do not ascend strictly; [`Error::Unsupported`] of
    /// engines [without ingests](crate::Capabilities::ingest); and as [`Keyspace::put`]. After an
    /// error the store has none of the pairs. If the error made the store read-only, it has all or
    /// none, which the next open shows.
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        let mut ingest = self.begin_ingest()?;
        for (key, value) in pairs {
            ingest.put(key, value)?;
        }
        ingest.finish()
    }

    /// Begins an ingest that takes pair by pair.
    ///
    /// # Errors
    /// [`Error::Unsupported`] of engines [without ingests](crate::Capabilities::ingest),
    /// [`Error::ReadOnly`], [`Error::Closed`].
    pub fn begin_ingest(&self) -> Result<Ingest<'_>> {
        Ok(Ingest {
            engine: self.handle().ingest(self.inner())?,
            last_key: Vec::new(),
            pairs: 0,
            user_bytes: 0,
            failure: None,
        })
    }
}

impl Ingest<'_> {
    /// Adds a pair.
    ///
    /// # Errors
    /// As [`Keyspace::ingest`]. An error ends the ingest: each later call fails with it.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.check()?;
        let added = self.add(key.as_ref(), value.as_ref());
        added.inspect_err(|error| self.failure = Some(error.clone()))
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_limits(key, value)?;
        if self.pairs > 0 && key <= self.last_key.as_slice() {
            let shown = &key[..key.len().min(SHOWN_BYTES)];
            return Err(Error::OutOfOrder {
                position: self.pairs + 1,
                key: shown.escape_ascii().to_string(),
            });
        }
        self.engine.add(key, value)?;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.pairs += 1;
        self.user_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Adds all pairs to the keyspace, durably, and returns their number.
    ///
    /// # Errors
    /// As [`Keyspace::ingest`].
    pub fn finish(self) -> Result<u64> {
        self.check()?;
        self.engine.finish(self.user_bytes)?;
        Ok(self.pairs)
    }

    fn check(&self) -> Result<()> {
        match &self.failure {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}
