//! The facade: `Db` and `Keyspace`.

use std::borrow::Borrow;
use std::ops::{Deref, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::Disk;

use crate::engine::wip::{OpenStore, Wip};
use crate::engine::{self, Handle, KEY_BYTES_MAX, Scan, VALUE_BYTES_MAX, Write};
use crate::new_dir::fill_new_dir;
use crate::ranges::{deleted_range, prefix_bounds, range_bounds};
use crate::stripe::Striped;
use crate::types::{Kind, Seq};
use crate::{
    Cursor, Durability, Engine, Error, Iter, Options, Pairs, Result, Slice, Snapshot, Stats,
    WriteBatch,
};

/// Name of the keyspace that the methods of [`Db`] use.
pub const DEFAULT_KEYSPACE: &str = "default";

/// Tells open stores apart, so that a batch cannot go to another store than its keyspaces'.
static NEXT_STORE_ID: AtomicU64 = AtomicU64::new(1);

/// An open store, shared by everything that was made from it; closed when the last of them is
/// dropped.
pub(crate) struct Store {
    pub(crate) engine: Handle,
    id: u64,
    path: PathBuf,
    durability: Durability,
}

/// An open store in the hands of its users. Each thread's scans hold on to a lease of their own:
/// what counts the references to one store would be written by all threads that scan.
pub(crate) struct Opened {
    store: Arc<Store>,
    leases: Striped<Arc<Lease>>,
}

/// Keeps a store open.
#[repr(align(128))]
pub(crate) struct Lease(Arc<Store>);

impl Opened {
    fn new(store: Store) -> Arc<Opened> {
        let store = Arc::new(store);
        let leases = Striped::of(|| Arc::new(Lease(Arc::clone(&store))));
        Arc::new(Opened { store, leases })
    }

    /// What keeps the store open for a scan of this thread.
    pub(crate) fn lease(&self) -> &Arc<Lease> {
        self.leases.own()
    }
}

impl Deref for Opened {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl OpenStore for Lease {
    fn engine(&self) -> &Wip {
        self.0.engine.wip()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // `Db::close` reports errors; who only drops has chosen not to hear them.
        if let Err(error) = self.engine.close() {
            tracing::warn!(%error, "the store is not closed cleanly; the next open recovers it");
        }
    }
}

/// A store. Cloning is cheap and shares it; it closes when the last clone and everything made from
/// it (keyspaces, snapshots, iterators) are dropped, or by [`Db::close`].
///
/// The methods for keys and values use the keyspace [`DEFAULT_KEYSPACE`]; [`Db::keyspace`] makes
/// others.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("store");
/// let db = gabion::Db::open(&path)?;
/// db.put("basket", "stones")?;
/// assert_eq!(db.get("basket")?.as_deref(), Some(&b"stones"[..]));
/// for pair in db.prefix("bas") {
///     let (key, value) = pair?;
///     assert_eq!((&*key, &*value), (&b"basket"[..], &b"stones"[..]));
/// }
/// db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Db {
    default: Keyspace,
}

/// A named part of a store with its own keys. Cloning is cheap and shares it. All keyspaces share
/// the log, the memory and the order of writes, so a [`WriteBatch`] may span several.
#[derive(Clone)]
pub struct Keyspace {
    store: Arc<Opened>,
    inner: engine::Keyspace,
}

impl Db {
    /// Opens the store in the directory `path` with [`Options::default`]; makes it if the directory
    /// is missing or empty.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::default().open(path)
    }

    pub(crate) fn open_with(path: &Path, options: Options) -> Result<Db> {
        options.check()?;
        let disk = if options.create_if_missing {
            Disk::create_system(path)?
        } else if path.is_dir() {
            Disk::system(path)?
        } else {
            let why = "the directory does not exist".to_owned();
            return Err(Error::NotAStore {
                path: path.to_owned(),
                why,
            });
        };
        Db::open_on(disk, options)
    }

    /// Opens the store on a disk of any kind: how tests put a store on a simulated one.
    ///
    /// # Errors
    /// As [`Options::open`].
    #[doc(hidden)]
    pub fn open_on(disk: Disk, options: Options) -> Result<Db> {
        options.check()?;
        let path = disk.path().to_owned();
        let durability = options.durability;
        let engine = Handle::open(disk, options)?;
        // ORDER: Relaxed; the number only has to differ.
        let id = NEXT_STORE_ID.fetch_add(1, Ordering::Relaxed);
        let store = Opened::new(Store {
            engine,
            id,
            path,
            durability,
        });
        let inner = store.engine.create_keyspace(DEFAULT_KEYSPACE)?;
        Ok(Db {
            default: Keyspace { store, inner },
        })
    }

    fn store(&self) -> &Arc<Opened> {
        &self.default.store
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.default.store.engine
    }

    /// The engine of the store: the one that made it, whatever the options say.
    pub fn engine(&self) -> Engine {
        self.handle().engine()
    }

    /// The directory of the store.
    pub fn path(&self) -> &Path {
        &self.store().path
    }

    /// The keyspace that the methods of `Db` use.
    pub fn default_keyspace(&self) -> &Keyspace {
        &self.default
    }

    /// The keyspace of that name, made durably if it does not exist.
    ///
    /// # Errors
    /// [`Error::Limit`] for a name that is empty or longer than 255 bytes, and the errors of
    /// writes.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let inner = self.handle().create_keyspace(name)?;
        Ok(Keyspace {
            store: Arc::clone(self.store()),
            inner,
        })
    }

    /// The keyspace of that name.
    ///
    /// # Errors
    /// [`Error::NoSuchKeyspace`].
    pub fn existing_keyspace(&self, name: &str) -> Result<Keyspace> {
        match self.handle().find_keyspace(name) {
            Some(inner) => Ok(Keyspace {
                store: Arc::clone(self.store()),
                inner,
            }),
            None => Err(Error::NoSuchKeyspace {
                name: name.to_owned(),
                existing: self.keyspace_names().join(", "),
            }),
        }
    }

    /// The names of all keyspaces, in the order in which they were made.
    pub fn keyspace_names(&self) -> Vec<String> {
        self.handle().keyspace_names()
    }

    /// As [`Keyspace::put`] on the default keyspace.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }

    /// As [`Keyspace::get`] on the default keyspace.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.default.get(key)
    }

    /// As [`Keyspace::contains`] on the default keyspace.
    ///
    /// # Errors
    /// As there.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.contains(key)
    }

    /// As [`Keyspace::delete`] on the default keyspace.
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }

    /// As [`Keyspace::delete_range`] on the default keyspace.
    ///
    /// # Errors
    /// As there.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.default.delete_range(range)
    }

    /// As [`Keyspace::multi_get`] on the default keyspace.
    ///
    /// # Errors
    /// As there.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.default.multi_get(keys)
    }

    /// As [`Keyspace::iter`] on the default keyspace.
    pub fn iter(&self) -> Iter {
        self.default.iter()
    }

    /// As [`Keyspace::range`] on the default keyspace.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        self.default.range(range)
    }

    /// As [`Keyspace::prefix`] on the default keyspace.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.default.prefix(prefix)
    }

    /// Writes a batch at the store's durability: all of it or nothing. Takes the batch or a
    /// reference to it: who writes many keeps the memory of one ([`WriteBatch::clear`]).
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn write(&self, batch: impl Borrow<WriteBatch>) -> Result<()> {
        self.write_with(batch, self.store().durability)
    }

    /// Writes a batch that survives what `durability` says once this returns.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    ///
    /// # Panics
    /// When the batch's keyspaces belong to another store.
    pub fn write_with(&self, batch: impl Borrow<WriteBatch>, durability: Durability) -> Result<()> {
        let batch = batch.borrow();
        let Some(store) = batch.store else {
            return Ok(());
        };
        assert!(
            store == self.store().id,
            "the batch's keyspaces belong to another store"
        );
        let write = Write::Batch(&batch.operations);
        self.handle()
            .write(write, batch.user_bytes, durability.is_sync())
    }

    /// A view of all keyspaces as they are now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.store())
    }

    /// Writes all MemTables to tables and waits for them. Not needed for durability; it shortens
    /// the next open.
    ///
    /// # Errors
    /// [`Error::Media`] when the medium fails or is full, [`Error::ReadOnly`], [`Error::Closed`].
    pub fn flush(&self) -> Result<()> {
        self.handle().flush()
    }

    /// Brings everything written so far to a durability: with [`Durability::Sync`] it survives
    /// power loss once this returns.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub fn persist(&self, durability: Durability) -> Result<()> {
        self.handle().persist(durability)
    }

    /// As [`Keyspace::compact`] on the default keyspace.
    ///
    /// # Errors
    /// As there.
    pub fn compact<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.default.compact(range)
    }

    /// Writes the store as it is now to the directory `path`, which must not exist, as a store of
    /// its own: everything that was acknowledged before the call, whole batches only. Reads and
    /// writes go on meanwhile. Missing parents of `path` are made.
    ///
    /// WipDB links its tables, which costs no copy and no space as long as both stores have them,
    /// and copies what is left of the log after a flush; on another file system it copies the
    /// tables. FlexDB writes all pairs anew. The checkpoint is on the medium when this returns. It
    /// is written to `path` with `.incomplete` behind it, which a crash may leave there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
    /// let db = gabion::Db::open(&path)?;
    /// db.put("basket", "stones")?;
    /// db.checkpoint(&copy)?;
    /// db.put("basket", "sand")?;
    /// let copy = gabion::Db::open(&copy)?;
    /// assert_eq!(copy.get("basket")?.as_deref(), Some(&b"stones"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Media`] when `path` exists, or a medium fails or is full; then nothing is left at
    /// `path`, and this store is as it was. [`Error::ReadOnly`], [`Error::Closed`]; and
    /// [`Error::Unsupported`] of engines without snapshots.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        fill_new_dir(path.as_ref(), |disk| self.handle().checkpoint(disk))
    }

    /// As [`Db::checkpoint`], to an empty directory of a disk of any kind, which an error may leave
    /// with a part of the files.
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)]
    pub fn checkpoint_on(&self, disk: &Disk) -> Result<()> {
        self.handle().checkpoint(disk)
    }

    /// Waits until no background work is due.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub fn wait_idle(&self) -> Result<()> {
        self.handle().wait_idle()
    }

    /// Counts and sizes.
    pub fn stats(&self) -> Stats {
        self.handle().stats()
    }

    /// Syncs and closes the store, whatever else still refers to it: later calls fail with
    /// [`Error::Closed`].
    ///
    /// # Errors
    /// [`Error::Media`] when the last sync fails. The store is closed all the same.
    pub fn close(self) -> Result<()> {
        self.handle().close()
    }
}

impl Keyspace {
    pub(crate) fn id(&self) -> u32 {
        self.inner.id()
    }

    pub(crate) fn store_id(&self) -> u64 {
        self.store.id
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

    /// Gives `key` the value `value`, at the store's durability. Any bytes are a key or a value,
    /// also none at all.
    ///
    /// # Errors
    /// [`Error::Limit`] for a key over 65,535 bytes or a value over 1 GiB, or over what the engine
    /// [takes](crate::Capabilities::value_bytes_max); [`Error::Media`] when
    /// the medium fails or is full; [`Error::ReadOnly`] after an earlier failure;
    /// [`Error::Closed`].
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, self.store.durability)
    }

    /// As [`Keyspace::put`], at a durability of its own.
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
        self.write_one(Kind::Put, key.as_ref(), value.as_ref(), durability)
    }

    /// Removes `key` and its value, if it is there, at the store's durability.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, self.store.durability)
    }

    /// As [`Keyspace::delete`], at a durability of its own.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.write_one(Kind::Delete, key.as_ref(), &[], durability)
    }

    /// Removes all keys in `range` and their values, at the store's durability: all of them at
    /// once, for readers as for a crash. Snapshots and iterators that began before go on seeing
    /// them.
    ///
    /// Costs one write, whatever the number of keys, and one entry in each bucket of the range that
    /// holds anything. Scans seek past the range instead of stepping over each key, tables that
    /// hold nothing else are dropped without being read, and the entry itself goes at the bucket's
    /// next full compaction.
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
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.delete_range_with(range, self.store.durability)
    }

    /// As [`Keyspace::delete_range`], at a durability of its own.
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
    fn write_one(
        &self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<()> {
        check_limits(key, value)?;
        let user_bytes = (key.len() + value.len()) as u64;
        let write = Write::Single {
            keyspace: &self.inner,
            kind,
            key,
            value,
        };
        self.store
            .engine
            .write(write, user_bytes, durability.is_sync())
    }

    /// The value of `key`; `None` when it is not there. Blocks for no writer; reads at most one
    /// block of each table whose filter says that it may hold the key.
    ///
    /// # Errors
    /// [`Error::Corruption`] and [`Error::Media`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_at(key.as_ref(), None)
    }

    pub(crate) fn get_at(&self, key: &[u8], snapshot: Option<Seq>) -> Result<Option<Slice>> {
        self.store.engine.get(&self.inner, key, snapshot)
    }

    /// Whether `key` is there.
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
    pub fn iter(&self) -> Iter {
        self.range::<&[u8]>(..)
    }

    /// All pairs, in any order, with every engine. Where there are
    /// [snapshots](crate::Capabilities::snapshots), they are those of one moment; elsewhere a pair
    /// that is written meanwhile comes with one of its values, or not, and one that is not comes
    /// exactly once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use gabion::{Engine, Options};
    ///
    /// let db = Options::default().engine(Engine::Scmkv).pool_bytes(64 << 20).open(dir.path())?;
    /// db.put("stone", "granite")?;
    /// let pairs: Result<Vec<_>, _> = db.default_keyspace().pairs().collect();
    /// assert_eq!(pairs?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pairs(&self) -> Pairs {
        match self.store.engine.walk(&self.inner) {
            Some(walk) => Pairs::walk(walk, self.store.lease()),
            None => Pairs::scan(self.iter()),
        }
    }

    /// The pairs with keys in `range`, in the order of their keys; reversed with `.rev()`.
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
    pub fn cursor<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Cursor {
        Cursor::new(self.scan(&range))
    }

    fn scan<K: AsRef<[u8]>>(&self, range: &impl RangeBounds<K>) -> Scan {
        let (lower, upper) = range_bounds(range);
        let seq = self.store.engine.begin_snapshot();
        engine::scan(&self.store, &self.inner, seq, lower, upper)
    }

    /// Merges everything that the store holds in `range` into one sorted run per bucket, and waits
    /// for it. Overwritten and deleted versions that no snapshot and no iterator needs are gone
    /// then, and reads find all keys in one place. Buckets that the range only touches are merged
    /// whole.
    ///
    /// Writes and reads go on meanwhile; what is written meanwhile need not be part of it. Costs
    /// one flush of the range's MemTables, and reading and writing the buckets' tables once. The
    /// background does this by itself as far as it pays; this is for after a large deletion or
    /// load.
    ///
    /// # Errors
    /// As [`Db::flush`], and [`Error::Corruption`].
    pub fn compact<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        match engine::key_range(range_bounds(&range)) {
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
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.range(prefix_bounds(prefix.as_ref()))
    }
}

/// Checks a key and a value against the engine's limits.
#[inline]
pub(crate) fn check_limits(key: &[u8], value: &[u8]) -> Result<()> {
    let (key, value) = (key.len() as u64, value.len() as u64);
    if key > KEY_BYTES_MAX {
        return Err(Error::Limit {
            what: "key",
            size: key,
            limit: KEY_BYTES_MAX,
        });
    }
    if value > VALUE_BYTES_MAX {
        return Err(Error::Limit {
            what: "value",
            size: value,
            limit: VALUE_BYTES_MAX,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_cross_threads() {
        fn check<T: Send + Sync>() {}
        check::<Db>();
        check::<Keyspace>();
        check::<Snapshot>();
        check::<WriteBatch>();
        fn check_send<T: Send>() {}
        check_send::<Iter>();
    }
}
