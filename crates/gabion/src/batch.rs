//! Batches: several writes that take effect together.

use std::fmt;
use std::ops::RangeBounds;

use crate::expiry::{Expiry, stored, value_of};
use crate::limits::{BATCH_BYTES_MAX, check_limits};
use crate::log::BatchEncoder;
use crate::ranges::{deleted_range, range_bounds};
use crate::types::Kind;
use crate::{Error, Keyspace, Result};

/// A group of writes, across keyspaces, that become visible together and survive a crash together
/// or not at all. Later operations override earlier ones on the same key.
///
/// A batch encodes operations as they are added, so writing it costs one copy into the log.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = gabion::Db::open(dir.path())?;
/// use gabion::WriteBatch;
///
/// let accounts = db.keyspace("accounts")?;
/// let journal = db.keyspace("journal")?;
/// let mut batch = WriteBatch::new();
/// batch.put(&accounts, "alice", "90")?;
/// batch.put(&accounts, "bob", "110")?;
/// batch.put(&journal, "0001", "alice pays bob 10")?;
/// db.write(batch)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct WriteBatch {
    pub(crate) operations: BatchEncoder,
    /// Bytes of keys and values.
    pub(crate) user_bytes: u64,
    /// The store of the keyspaces in the batch, so that it cannot go to another one.
    pub(crate) store: Option<u64>,
}

impl fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBatch")
            .field("operations", &self.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Adds a put.
    ///
    /// # Errors
    /// [`Error::Limit`] when the key, the value or the batch is too long; the batch is unchanged.
    /// If only the store's engine does not [accept](crate::Capabilities::value_bytes_max) the
    /// value, the write of the batch fails.
    ///
    /// # Panics
    /// When the batch holds operations on another store's keyspaces.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        match keyspace.inner().default_expiry() {
            None => self.add(keyspace, Kind::Put, key.as_ref(), value.as_ref()),
            Some(after) => self.put_expiring(keyspace, key, value, after),
        }
    }

    /// Adds a put of a value that expires, as [`Keyspace::put_expiring`]. A `Duration` counts from
    /// this call.
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; [`Error::Unsupported`] of engines without
    /// [expiry](crate::Capabilities::expiry).
    ///
    /// # Panics
    /// Those of [`Keyspace::put_expiring`].
    pub fn put_expiring(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<()> {
        let moment = expiry.into().moment(keyspace.handle().moment()?);
        let stored = stored(moment, value.as_ref());
        self.add(keyspace, Kind::PutExpiring, key.as_ref(), &stored)
    }

    /// Adds a merge, as [`Keyspace::merge`].
    ///
    /// # Errors
    /// As [`WriteBatch::put`], and those of [`Keyspace::merge`] that need no look at the store.
    ///
    /// # Panics
    /// Those of [`Keyspace::merge`].
    pub fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        keyspace.check_operand(key, operand)?;
        self.add(keyspace, Kind::Operand, key, operand)
    }

    /// Adds a delete.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    ///
    /// # Panics
    /// Those of [`WriteBatch::put`].
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(keyspace, Kind::Delete, key.as_ref(), &[])
    }

    /// Adds a range delete, which also removes what earlier operations of the batch put into the
    /// range.
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; [`Error::Unsupported`] of engines without
    /// [order](crate::Capabilities::ordered).
    ///
    /// # Panics
    /// Those of [`WriteBatch::put`].
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        keyspace.require_order("deletes of ranges")?;
        match deleted_range(range_bounds(&range))? {
            Some((lower, upper)) => self.add(keyspace, Kind::DeleteRange, &lower, &upper),
            None => Ok(()),
        }
    }

    fn add(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        check_limits(key, value_of(kind, value))?;
        let size = (self.operations.bytes().len() + key.len() + value.len()) as u64 + 32;
        if size > BATCH_BYTES_MAX {
            return Err(Error::Limit {
                what: "batch",
                size,
                limit: BATCH_BYTES_MAX,
            });
        }
        let store = keyspace.store_id();
        assert!(
            self.store.is_none_or(|other| other == store),
            "a batch holds operations on keyspaces of one store"
        );
        self.store = Some(store);
        self.operations.op(kind, keyspace.id(), key, value);
        self.user_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.operations.count() as usize
    }

    /// Whether there is no operation.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Bytes of keys and values in the batch.
    pub fn bytes(&self) -> u64 {
        self.user_bytes
    }

    /// Removes all operations and keeps the memory for the next batch.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = gabion::Db::open(dir.path())?;
    /// let mut batch = gabion::WriteBatch::new();
    /// for round in [0u8, 1] {
    ///     batch.clear();
    ///     for stone in 0..100 {
    ///         batch.put(db.default_keyspace(), [round, stone], "stone")?;
    ///     }
    ///     db.write(&batch)?;
    /// }
    /// assert_eq!(db.iter().count(), 200);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&mut self) {
        self.operations.clear();
        self.user_bytes = 0;
        self.store = None;
    }
}
