//! Snapshots: consistent views of an earlier moment.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::SystemTime;

use crate::engine::{self, EngineScan};
use crate::expiry::{ReadPoint, time_of};
use crate::ranges::{prefix_bounds, range_bounds};
use crate::store_handle::StoreHandle;
use crate::{Cursor, Iter, Keyspace, Result, Slice};

/// A view of all keyspaces as they were when the snapshot was taken. Clones share the view.
///
/// Taking a snapshot copies nothing and does not block. While it lives, the store keeps the
/// versions that it sees, so an old snapshot costs space under updates;
/// [`Engine::Flex`](crate::Engine::Flex) keeps them in memory.
///
/// # Errors
/// With an engine that has no [snapshots](crate::Capabilities::snapshots) each read is an
/// [`Error::Unsupported`](crate::Error::Unsupported); of an iterator, its first item is.
///
/// # Panics
/// Its methods, when the keyspace is not one of the snapshot's store.
pub struct Snapshot {
    store: Arc<StoreHandle>,
    point: ReadPoint,
}

impl Snapshot {
    pub(crate) fn new(store: &Arc<StoreHandle>) -> Snapshot {
        Snapshot {
            point: store.engine.begin_snapshot(),
            store: Arc::clone(store),
        }
    }

    /// The number of the last write that it sees.
    pub(crate) fn number(&self) -> u64 {
        self.point.seq
    }

    /// The value that `key` had.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let keyspace = self.own(keyspace);
        self.store
            .engine
            .get(keyspace, key.as_ref(), Some(self.point))
    }

    /// When the value that `key` had expires, if it does, as [`Keyspace::expires_at`].
    ///
    /// # Errors
    /// Those of [`Keyspace::expires_at`].
    pub fn expires_at(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<SystemTime>> {
        let (engine, keyspace) = (&self.store.engine, self.own(keyspace));
        let record = engine.find_record(keyspace, key.as_ref(), Some(self.point))?;
        Ok(record.and_then(|record| record.expires()).map(time_of))
    }

    /// The values that several keys had, as [`Keyspace::multi_get`] reads them.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>> {
        let keyspace = self.own(keyspace);
        self.store.engine.multi_get(keyspace, keys, self.point)
    }

    /// Whether `key` had a value.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(keyspace, key)?.is_some())
    }

    /// All pairs of a keyspace.
    pub fn iter(&self, keyspace: &Keyspace) -> Iter {
        self.range::<&[u8]>(keyspace, ..)
    }

    /// The pairs of a keyspace with keys in `range`.
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Iter {
        Iter::new(self.scan(keyspace, &range))
    }

    /// The pairs of a keyspace with keys in `range`, lent one at a time.
    pub fn cursor<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Cursor {
        Cursor::new(self.scan(keyspace, &range))
    }

    fn scan<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: &impl RangeBounds<K>) -> EngineScan {
        let keyspace = self.own(keyspace);
        let (lower, upper) = range_bounds(range);
        self.store.engine.share_snapshot(self.point);
        engine::scan_snapshot(&self.store, keyspace, self.point, lower, upper)
    }

    /// The keyspace as the engine has it. A number of one store says nothing in another.
    #[inline]
    fn own<'k>(&self, keyspace: &'k Keyspace) -> &'k engine::EngineKeyspace {
        assert!(
            keyspace.store_id() == self.store.id,
            "the keyspace belongs to another store than the snapshot"
        );
        keyspace.inner()
    }

    /// The pairs of a keyspace whose keys begin with `prefix`.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Iter {
        self.range(keyspace, prefix_bounds(prefix.as_ref()))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("seq", &self.point.seq)
            .finish_non_exhaustive()
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Snapshot {
        self.store.engine.share_snapshot(self.point);
        Snapshot {
            store: Arc::clone(&self.store),
            point: self.point,
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.store.engine.end_snapshot(self.point);
    }
}
