//! The facade: `Keyspace`, through which keys and values are written and read.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::engine::{self, Changed, Handle, Scan, Write};
use crate::expiry::{Expiry, Moment, Record, value_of};
use crate::limits::check_limits;
use crate::opened::Opened;
use crate::ranges::{deleted_range, key_range, prefix_bounds, range_bounds};
use crate::types::Kind;
use crate::{Cursor, Durability, Error, Iter, KeyspaceOptions, Pairs, Result, Slice, Snapshot};

/// A named part of a store with its own keys. Cloning is cheap, shares it and keeps the store open.
/// All keyspaces share the log, the memory and the order of writes, so a
/// [`WriteBatch`](crate::WriteBatch) may span several.
///
/// Once the keyspace was [dropped](crate::Db::drop_keyspace), all calls fail with
/// [`Error::KeyspaceDropped`], but those of snapshots and iterators that began before.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) store: Arc<Opened>,
    pub(crate) inner: engine::Keyspace,
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Keyspace {
    /// The number of the keyspace in its store. No other keyspace of the store ever has it, also
    /// none that gets the same name after this one was [dropped](crate::Db::drop_keyspace): what is
    /// noted down about a keyspace cannot be mistaken for a note about an earlier one.
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

    /// When a value that is new expires, if nothing else says it.
    fn default_moment(&self) -> Result<Option<Moment>> {
        let Some(after) = self.inner.default_expiry() else {
            return Ok(None);
        };
        let now = self.store.engine.moment()?;
        Ok(Some(Expiry::After(after).moment(now)))
    }

    /// The durability of writes that say none.
    pub(crate) fn durability(&self) -> Durability {
        self.store.durability
    }

    pub(crate) fn inner(&self) -> &engine::Keyspace {
        &self.inner
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.store.engine
    }

    /// An error if the engine cannot do what needs an order of the keys.
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

    /// The options that the keyspace has in place of the store's.
    pub fn options(&self) -> KeyspaceOptions {
        self.inner.options()
    }

    /// Gives `key` the value `value`, at the store's durability. Any bytes are a key or a value,
    /// also none at all.
    ///
    /// With [`Durability::Sync`] it waits for the medium, together with those that write at the
    /// same time. It is held back, first a little and at last altogether, while the background
    /// cannot keep up ([`Stats::slowdown_ns`](crate::Stats::slowdown_ns) counts for how long).
    /// Without [background threads](crate::Options::background_threads) it does the work that is
    /// due.
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

    /// Removes `key` and its value, if it is there, at the store's durability.
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

    /// Changes the value of `key` to what `change` makes of it, while no other write
    /// takes place, and returns the value that it had. `None` stands for no value. A value that
    /// takes the place of one that [expires](Keyspace::put_expiring) expires when that would have.
    /// At the store's durability.
    ///
    /// All other writers of the store wait meanwhile, so `change` must be short, and must not use
    /// the store. Where there was no room for what it made, it may be called again.
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
    /// As there.
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
            Changed::To(value.map(|value| value.as_ref().to_vec()), new)
        };
        let engine = &self.store.engine;
        let old = engine.update(&self.inner, key, &mut change, durability)?;
        Ok(old.map(Record::into_value))
    }

    /// Changes the value of `key` from `expected` to `new`, where `None` stands for no value;
    /// false, and nothing done, if it has another one. At the store's durability.
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
                true => Changed::To(new.map(<[u8]>::to_vec), expires),
                false => Changed::Not,
            }
        };
        let key = key.as_ref();
        check_limits(key, new.unwrap_or_default())?;
        let engine = &self.store.engine;
        engine.update(&self.inner, key, &mut change, self.store.durability)?;
        Ok(is_swapped)
    }

    /// Removes all keys in `range` and their values, at the store's durability: all of them at
    /// once, for readers as for a crash. Snapshots and iterators that began before go on seeing
    /// them, where there are [snapshots](crate::Capabilities::snapshots).
    ///
    /// Costs one write, whatever the number of keys, but that
    /// [`Engine::Sptree`](crate::Engine::Sptree) deletes each of them, and keeps everybody else out
    /// meanwhile. With [`Engine::Wip`](crate::Engine::Wip) one
    /// entry in each bucket of the range that holds anything. Scans seek past the range instead of
    /// stepping over each key, tables that hold nothing else are dropped without being read, and
    /// the entry itself goes at the bucket's next full compaction.
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
    /// As there.
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

    /// The value of `key`; `None` when it is not there. Waits for no writer, but that with
    /// [`Engine::Scmkv`](crate::Engine::Scmkv) and [`Engine::Sptree`](crate::Engine::Sptree) it
    /// waits for a batch, or a delete of a range, that is being applied, and with
    /// [`Engine::Flex`](crate::Engine::Flex), where the pairs are not cached, for the moments that
    /// [`Db::reader_waits`](crate::Db::reader_waits) tells of. What is
    /// not in memory is read: with [`Engine::Wip`](crate::Engine::Wip) at most one block of each
    /// table whose filter says that it may hold the key, with
    /// [`Engine::Flex`](crate::Engine::Flex) some sixteen pairs.
    ///
    /// # Errors
    /// [`Error::Corruption`], [`Error::Media`] and [`Error::Closed`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.store.engine.get(&self.inner, key.as_ref(), None)
    }

    /// Whether `key` is there. Costs as much as [`Keyspace::get`].
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The values of several keys at one moment, in the order of the keys. Cheaper than as many
    /// gets, because they wait for memory and the medium together. With an engine that has no
    /// [snapshots](crate::Capabilities::snapshots), of several moments.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        match self.store.engine.multi_get_now(&self.inner, keys) {
            Some(found) => found,
            None => Snapshot::new(&self.store).multi_get(self, keys),
        }
    }

    /// All pairs, in the order of their keys; reversed with `.rev()`.
    ///
    /// # Errors
    /// Of the items, as [`Keyspace::range`].
    pub fn iter(&self) -> Iter {
        self.range::<&[u8]>(..)
    }

    /// All pairs, in any order, with every engine. Where there are
    /// [snapshots](crate::Capabilities::snapshots), they are those of one moment; elsewhere a pair
    /// that is written meanwhile comes with one of its values, or not, and one that is not comes
    /// exactly once.
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

    /// The pairs with keys in `range`, in the order of their keys; reversed with `.rev()`. The call
    /// reads nothing yet.
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

    /// The pairs with keys in `range`, in the order of their keys, to look at without keeping them.
    ///
    /// # Errors
    /// Of [`Cursor::advance`], as those of the items of [`Keyspace::range`].
    pub fn cursor<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Cursor {
        Cursor::new(self.scan(&range))
    }

    fn scan<K: AsRef<[u8]>>(&self, range: &impl RangeBounds<K>) -> Scan {
        let (lower, upper) = range_bounds(range);
        let point = self.store.engine.begin_snapshot();
        engine::scan(&self.store, &self.inner, point, lower, upper)
    }

    /// Brings what the store holds in `range` into the best order that the engine knows, and waits
    /// for it: overwritten and deleted versions that no snapshot and no iterator needs are gone
    /// then. Writes and reads go on meanwhile; what is written meanwhile need not be part of it.
    /// The background does this by itself as far as it pays; this is for after a large deletion or
    /// load.
    ///
    /// - [`Engine::Wip`](crate::Engine::Wip) flushes, and merges all runs of each bucket that the
    ///   range touches into one: their tables are read and written once.
    /// - [`Engine::Flex`](crate::Engine::Flex) merges all that is in memory, writes intervals anew
    ///   that lie in pieces, and empties segments of the keyspace that have much garbage.
    /// - [`Engine::Scmkv`](crate::Engine::Scmkv) empties the pages that hold garbage, of all
    ///   keyspaces; it takes `..` only.
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

    /// The pairs whose keys begin with `prefix`, in the order of their keys.
    ///
    /// # Errors
    /// Of the items, as [`Keyspace::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.range(prefix_bounds(prefix.as_ref()))
    }
}
