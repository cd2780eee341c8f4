//! The facade: `Keyspace`, through which keys and values are written and read.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::engine::{self, EngineHandle, EngineScan, UpdateOutcome, Write};
use crate::expiry::{Expiry, StoredRecord, UnixMillis, value_of};
use crate::limits::check_limits;
use crate::ranges::{deleted_range, key_range, prefix_bounds, range_bounds};
use crate::store_handle::StoreHandle;
use crate::types::Kind;
use crate::{Cursor, Durability, Error, Iter, KeyspaceOptions, Pairs, Result, Slice, Snapshot};

/// A named part of a store with its own keys. Cloning is cheap, shares it and keeps the store open.
/// All keyspaces share the log, the memory and the order of writes, so a
/// [`WriteBatch`](crate::WriteBatch) may span several.
///
/// Once the keyspace is [dropped](crate::Db::drop_keyspace), all calls fail with
/// [`Error::KeyspaceDropped`], except those through earlier snapshots and iterators.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) store: Arc<StoreHandle>,
    pub(crate) inner: engine::EngineKeyspace,
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Keyspace {
    /// The number of the keyspace in its store. The store never reuses it, not even for a keyspace
    /// of the same name after this one was [dropped](crate::Db::drop_keyspace), so notes about a
    /// keyspace never apply to a later one.
    ///
    /// A [checkpoint](crate::Db::checkpoint) has the same numbers, a [repaired](crate::repair)
    /// store may have others.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = gabion::Db::open(dir.path())?;
    /// let id = db.keyspace("drafts")?.id();
    /// assert_eq!(db.keyspace("drafts")?.id(), id);
    /// db.drop_keyspace("drafts")?;
    /// assert_ne!(db.keyspace("drafts")?.id(), id);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    pub(crate) fn store_id(&self) -> u64 {
        self.store.id
    }

    /// When a new value expires by default.
    fn default_moment(&self) -> Result<Option<UnixMillis>> {
        let Some(after) = self.inner.default_expiry() else {
            return Ok(None);
        };
        let now = self.store.engine.moment()?;
        Ok(Some(Expiry::After(after).moment(now)))
    }

    /// The durability of writes that do not give one.
    pub(crate) fn durability(&self) -> Durability {
        self.store.durability
    }

    pub(crate) fn inner(&self) -> &engine::EngineKeyspace {
        &self.inner
    }

    pub(crate) fn handle(&self) -> &EngineHandle {
        &self.store.engine
    }

    /// Returns an error if the engine does not order keys.
    pub(crate) fn require_order(&self, operation: &'static str) -> Result<()> {
        let engine = self.store.engine.engine();
        if engine.capabilities().ordered {
            return Ok(());
        }
        Err(Error::Unsupported {
            engine: engine.name(),
            operation,
        })
    }

    /// The keyspace's name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The options that the keyspace has instead of the store's.
    pub fn options(&self) -> KeyspaceOptions {
        self.inner.options()
    }

    /// Sets the value of `key` to `value`, at the store's durability. Keys and values are any
    /// bytes, and may be empty.
    ///
    /// With [`Durability::Sync`] it waits for the medium; concurrent writers share a sync. While
    /// the background cannot keep up, the store delays writes, first a little and finally
    /// altogether ([`Stats::slowdown_ns`](crate::Stats::slowdown_ns) counts for how long). Without
    /// [background threads](crate::Options::background_threads) the call does the work that is due.
    ///
    /// # Errors
    /// [`Error::Limit`] for a key over 65,535 bytes or a value over 1 GiB, or over what the engine
    /// [takes](crate::Capabilities::value_bytes_max); [`Error::Media`] when
    /// the medium fails or is full; [`Error::ReadOnly`] after an earlier failure;
    /// [`Error::Closed`]; [`Error::Unsupported`] for [`Durability::Sync`] of a store that was made
    /// without what that takes ([`MappedOptions::checkpoints`](crate::MappedOptions::checkpoints)).
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, self.store.durability)
    }

    /// As [`Keyspace::put`], at the given durability.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    #[inline]
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        match self.inner.default_expiry() {
            None => self.write_one(Kind::Put, key.as_ref(), value.as_ref(), durability),
            Some(after) => self.put_expiring_with(key, value, after, durability),
        }
    }

    /// Removes `key` and its value, if present, at the store's durability.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, self.store.durability)
    }

    /// As [`Keyspace::delete`], at the given durability.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.write_one(Kind::Delete, key.as_ref(), &[], durability)
    }

    /// Replaces the value of `key` by what `change` returns for it, with no other write in between,
    /// and returns the old value. `None` stands for no value. The new value keeps the
    /// [expiry](Keyspace::put_expiring) of the old one. At the store's durability.
    ///
    /// All other writers of the store wait meanwhile, so `change` must be short and must not use
    /// the store. If there was no room for its result, `change` may be called again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = gabion::Db::open(dir.path())?;
    /// let visits = db.default_keyspace();
    /// visits.update("today", |visits| Some([visits.map_or(0, |visits| visits[0]) + 1]))?;
    /// assert_eq!(visits.get("today")?.as_deref(), Some(&[1][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`] and [`Keyspace::get`]; then nothing has changed.
    pub fn update<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Slice>> {
        self.update_with(key, change, self.store.durability)
    }

    /// As [`Keyspace::update`], at the given durability.
    ///
    /// # Errors
    /// Those of [`Keyspace::update`].
    pub fn update_with<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&[u8]>) -> Option<V>,
        durability: Durability,
    ) -> Result<Option<Slice>> {
        let key = key.as_ref();
        check_limits(key, &[])?;
        let new = self.default_moment()?;
        let mut change = |old: Option<&[u8]>| {
            let value = change(old);
            UpdateOutcome::To(value.map(|value| value.as_ref().to_vec()), new)
        };
        let engine = &self.store.engine;
        let old = engine.update(&self.inner, key, &mut change, durability)?;
        Ok(old.map(StoredRecord::into_value))
    }

    /// Changes the value of `key` from `expected` to `new`, where `None` stands for no value.
    /// Returns false and changes nothing if the key has another value. At the store's durability.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = gabion::Db::open(dir.path())?;
    /// let locks = db.default_keyspace();
    /// assert!(locks.compare_and_swap("door", None, Some(b"alice"))?);
    /// assert!(!locks.compare_and_swap("door", None, Some(b"bob"))?);
    /// assert!(locks.compare_and_swap("door", Some(b"alice"), None)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::update`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let mut is_swapped = false;
        let expires = self.default_moment()?;
        let mut change = |old: Option<&[u8]>| {
            is_swapped = old == expected;
            match is_swapped {
                true => UpdateOutcome::To(new.map(<[u8]>::to_vec), expires),
                false => UpdateOutcome::Not,
            }
        };
        let key = key.as_ref();
        check_limits(key, new.unwrap_or_default())?;
        let engine = &self.store.engine;
        engine.update(&self.inner, key, &mut change, self.store.durability)?;
        Ok(is_swapped)
    }

    /// Removes all keys in `range` and their values, at the store's durability: all of them at
    /// once, for readers and after a crash. With engines that have
    /// [snapshots](crate::Capabilities::snapshots), earlier snapshots and iterators still see them.
    ///
    /// Costs one write, whatever the number of keys; but [`Engine::Sptree`](crate::Engine::Sptree)
    /// deletes each key, and blocks all other calls meanwhile. [`Engine::Wip`](crate::Engine::Wip)
    /// writes one entry in each non-empty bucket of the range. Scans then seek past the range
    /// instead of stepping over each key, the store drops tables that hold nothing else without
    /// reading them, and the bucket's next full compaction drops the entry itself.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = gabion::Db::open(dir.path())?;
    /// for day in ["2026-10-30", "2026-10-31", "2026-11-01"] {
    ///     db.put(day, "weather")?;
    /// }
    /// db.delete_range(.."2026-11")?;
    /// assert_eq!(db.iter().count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`]; the ends of the range are keys, with their limit.
    /// [`Error::Unsupported`] of engines without [order](crate::Capabilities::ordered).
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.delete_range_with(range, self.store.durability)
    }

    /// As [`Keyspace::delete_range`], at the given durability.
    ///
    /// # Errors
    /// Those of [`Keyspace::delete_range`].
    pub fn delete_range_with<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        durability: Durability,
    ) -> Result<()> {
        self.require_order("deletes of ranges")?;
        match deleted_range(range_bounds(&range))? {
            Some((lower, upper)) => self.write_one(Kind::DeleteRange, &lower, &upper, durability),
            None => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn write_one(
        &self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<()> {
        check_limits(key, value_of(kind, value))?;
        let user_bytes = (key.len() + value.len()) as u64;
        let write = Write::Single {
            keyspace: &self.inner,
            kind,
            key,
            value,
        };
        self.store.engine.write(write, user_bytes, durability)
    }

    /// Returns the value of `key`, or `None` if there is none. It does not wait for writers, with
    /// two exceptions: [`Engine::Scmkv`](crate::Engine::Scmkv) and
    /// [`Engine::Sptree`](crate::Engine::Sptree) wait for a batch or a range delete that is being
    /// applied, and [`Engine::Flex`](crate::Engine::Flex), if the pairs are not cached, for the
    /// short times that [`Db::reader_waits`](crate::Db::reader_waits) counts. If the key is not in
    /// memory, [`Engine::Wip`](crate::Engine::Wip) reads at most one block of each table whose
    /// filter matches the key, [`Engine::Flex`](crate::Engine::Flex) some sixteen pairs.
    ///
    /// # Errors
    /// [`Error::Corruption`], [`Error::Media`] and [`Error::Closed`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.store.engine.get(&self.inner, key.as_ref(), None)
    }

    /// Whether `key` has a value. Costs as much as [`Keyspace::get`].
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Returns the values of several keys as of one moment, in the order of `keys`. This is cheaper
    /// than as many gets, because the lookups wait for memory and the medium together. With an
    /// engine that has no [snapshots](crate::Capabilities::snapshots), the values may be of several
    /// moments.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        match self.store.engine.multi_get_now(&self.inner, keys) {
            Some(found) => found,
            None => Snapshot::new(&self.store).multi_get(self, keys),
        }
    }

    /// All pairs, in key order; reversed with `.rev()`.
    ///
    /// # Errors
    /// Of the items, as [`Keyspace::range`].
    pub fn iter(&self) -> Iter {
        self.range::<&[u8]>(..)
    }

    /// Returns all pairs, in any order, with every engine. With engines that have
    /// [snapshots](crate::Capabilities::snapshots), the pairs are as of one moment. With others, a
    /// pair that is written meanwhile appears with one of its values or not at all, and every other
    /// pair appears exactly once.
    ///
    /// # Errors
    /// Of the items, as [`Keyspace::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use gabion::{Engine, MappedOptions, Options};
    ///
    /// let mapped = MappedOptions::default().pool_bytes(64 << 20);
    /// let db = Options::default().engine(Engine::Scmkv).mapped(mapped).open(dir.path())?;
    /// db.put("stone", "granite")?;
    /// let pairs: Result<Vec<_>, _> = db.default_keyspace().pairs().collect();
    /// assert_eq!(pairs?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pairs(&self) -> Pairs {
        match engine::walk(&self.store, &self.inner) {
            Some(walk) => Pairs::walk(walk),
            None => Pairs::scan(self.iter()),
        }
    }

    /// The pairs with keys in `range`, in key order; reversed with `.rev()`. The call itself reads
    /// nothing.
    ///
    /// # Errors
    /// Of the items: [`Error::Corruption`], [`Error::Media`], [`Error::Closed`]; and the first one
    /// is [`Error::Unsupported`] with an engine without [order](crate::Capabilities::ordered).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = gabion::Db::open(dir.path())?;
    /// for key in ["a", "b", "c", "d"] {
    ///     db.put(key, "")?;
    /// }
    /// let keys: Result<Vec<_>, _> = db.range("b".."d").rev().map(|pair| Ok(pair?.0)).collect();
    /// assert_eq!(keys.map_err(|e: gabion::Error| e)?, [&b"c"[..], &b"b"[..]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        Iter::new(self.scan(&range))
    }

    /// The pairs with keys in `range`, in key order, lent one at a time.
    ///
    /// # Errors
    /// Of [`Cursor::advance`], as those of the items of [`Keyspace::range`].
    pub fn cursor<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Cursor {
        Cursor::new(self.scan(&range))
    }

    fn scan<K: AsRef<[u8]>>(&self, range: &impl RangeBounds<K>) -> EngineScan {
        let (lower, upper) = range_bounds(range);
        let point = self.store.engine.begin_snapshot();
        engine::scan(&self.store, &self.inner, point, lower, upper)
    }

    /// Compacts what the store holds in `range`, and waits for it: afterwards, overwritten and
    /// deleted versions that no snapshot and no iterator needs are gone. Writes and reads continue
    /// meanwhile; the compaction need not include them. The background does this by itself as far
    /// as it pays off; use this after a large deletion or load.
    ///
    /// - [`Engine::Wip`](crate::Engine::Wip) flushes, and merges all runs of each bucket that the
    ///   range touches into one: their tables are read and written once.
    /// - [`Engine::Flex`](crate::Engine::Flex) merges everything in memory, rewrites fragmented
    ///   intervals, and empties segments of the keyspace that have much garbage.
    /// - [`Engine::Scmkv`](crate::Engine::Scmkv) empties the pages with garbage, of all keyspaces;
    ///   it accepts only `..`.
    /// - [`Engine::Sptree`](crate::Engine::Sptree) merges small leaves with their neighbours, of
    ///   all keyspaces.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = gabion::Db::open(dir.path())?;
    /// db.compact("2026-10".."2026-11")?;
    /// db.compact::<&str>(..)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::flush`](crate::Db::flush); [`Error::Corruption`]; [`Error::Unsupported`] for other
    /// ranges than `..` of engines without [order](crate::Capabilities::ordered).
    pub fn compact<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        match key_range(range_bounds(&range)) {
            Some((lower, upper)) => {
                if !lower.is_empty() || upper.is_some() {
                    self.require_order("compactions of ranges")?;
                }
                let engine = &self.store.engine;
                engine.compact_range(&self.inner, &lower, upper.as_deref())
            }
            None => Ok(()),
        }
    }

    /// The pairs whose keys begin with `prefix`, in key order.
    ///
    /// # Errors
    /// Of the items, as [`Keyspace::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.range(prefix_bounds(prefix.as_ref()))
    }
}
