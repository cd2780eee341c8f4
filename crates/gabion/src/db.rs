//! The facade: `Db`, an open store.

use std::borrow::Borrow;
use std::fmt;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gabion_flex::ReaderWaits;
use gabion_media::Disk;

use crate::backup::BackupOrigin;
use crate::engine::{EngineHandle, Write};
use crate::new_dir::{fill, fill_new_dir};
use crate::store_handle::{OpenedStore, StoreHandle};
use crate::{
    ArchivedLog, BackupInfo, BackupOptions, BackupRepository, Durability, Engine, Error, Iter,
    Keyspace, KeyspaceOptions, Options, Result, Slice, Snapshot, Stats, WriteBatch,
};

/// Name of the keyspace that the methods of [`Db`] use.
pub const DEFAULT_KEYSPACE: &str = "default";

/// Tells open stores apart, so that a batch cannot go to another store than its keyspaces'.
static NEXT_STORE_ID: AtomicU64 = AtomicU64::new(1);

/// A store. Cloning is cheap and shares it. It closes when the last clone and everything made from
/// it (keyspaces, snapshots, iterators) are dropped, or by [`Db::close`], which returns errors.
///
/// All methods take `&self`; any number of threads may call them at the same time.
///
/// The methods for keys and values use the keyspace [`DEFAULT_KEYSPACE`]; [`Db::keyspace`] creates
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

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db")
            .field("path", &self.path())
            .field("engine", &self.engine())
            .finish_non_exhaustive()
    }
}

/// How names begin that are for notes of tools about a store.
const RESERVED: &str = "gabion.";

/// An error if users' keyspaces cannot have that name.
fn refuse_reserved(name: &str) -> Result<()> {
    match name.starts_with(RESERVED) {
        true => Err(Error::ReservedName {
            name: name.to_owned(),
        }),
        false => Ok(()),
    }
}

impl Options {
    /// Opens the store in the directory `path`. If it was not closed, this recovers it first, and
    /// returns once the log is replayed into memory ([`Options::log_bytes_max`]).
    ///
    /// # Errors
    /// [`Error::InvalidOption`]; [`Error::NotAStore`] for a directory of other things;
    /// [`Error::NewerFormat`]; [`Error::MissingFeature`]; [`Error::Corruption`]; [`Error::Media`]
    /// when the medium fails, or the store is open elsewhere ([`Error::is_locked`]).
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        let path = path.as_ref();
        self.check()?;
        let disk = if self.create_if_missing && !self.read_only && !self.follower {
            if !path.exists() {
                self.engine.check_built()?;
            }
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
        Db::open_on(disk, self)
    }
}

impl Db {
    /// Opens the store in the directory `path` with [`Options::default`]; creates it if the
    /// directory is missing or empty.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::default().open(path)
    }

    /// Opens the store on a disk of any kind; tests use this to put a store on a simulated one.
    ///
    /// # Errors
    /// As [`Options::open`].
    #[doc(hidden)]
    pub fn open_on(disk: Disk, options: Options) -> Result<Db> {
        options.check()?;
        let path = disk.path().to_owned();
        let durability = options.durability;
        let (disk, options) = match options.read_only || options.follower {
            true => (disk.read_only(), options.for_reading()),
            false => (disk, options),
        };
        let engine = EngineHandle::open(disk, options)?;
        // ORDER: Relaxed; the number only has to differ.
        let id = NEXT_STORE_ID.fetch_add(1, Ordering::Relaxed);
        let store = StoreHandle::new(OpenedStore {
            engine,
            id,
            path,
            durability,
        });
        let inner = store.engine.create_keyspace(DEFAULT_KEYSPACE, None)?;
        Ok(Db {
            default: Keyspace { store, inner },
        })
    }

    /// Makes a [follower](crate::Options::follower) see what the writer has written since; returns
    /// whether there was anything new. Readers, snapshots and iterators continue meanwhile: all new
    /// writes up to some point become visible at once.
    ///
    /// The cost is linear in the new writes that are not in tables yet, or a few system calls if
    /// there are none. In a store that is not a follower, does nothing and returns false.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use gabion::{Db, Options};
    ///
    /// let db = Db::open(dir.path())?;
    /// let follower = Options::default().follower(true).open(dir.path())?;
    /// db.put("basket", "stones")?;
    /// assert_eq!(follower.get("basket")?, None);
    /// assert!(follower.catch_up()?);
    /// assert_eq!(follower.get("basket")?.as_deref(), Some(&b"stones"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corruption`]; [`Error::Media`]; [`Error::NotAStore`] when another store has taken
    /// the place of this one; [`Error::Closed`]. Readers keep what they saw, and the next call
    /// tries again.
    pub fn catch_up(&self) -> Result<bool> {
        self.handle().catch_up()
    }

    pub(crate) fn store(&self) -> &Arc<StoreHandle> {
        &self.default.store
    }

    pub(crate) fn handle(&self) -> &EngineHandle {
        &self.default.store.engine
    }

    /// The engine of the store: the one that created it, whatever the options say.
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

    /// Returns the keyspace of that name; creates it durably if it does not exist, which takes some
    /// syncs.
    ///
    /// # Errors
    /// [`Error::Limit`] for a name that is empty or longer than 255 bytes, [`Error::ReservedName`]
    /// for one that begins with `gabion.`, [`Error::OtherMergeOperator`] of a keyspace with an
    /// operator of a program's own, which [`Db::keyspace_with`] names, and the errors of writes.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        refuse_reserved(name)?;
        self.made_keyspace(name, None)
    }

    /// As [`Db::keyspace`], and gives the keyspace these options, whether it is new or had others.
    ///
    /// # Errors
    /// As [`Db::keyspace`]; [`Error::InvalidOption`]; [`Error::OtherMergeOperator`] where the
    /// keyspace has another operator than the options; [`Error::Unsupported`] for engines without
    /// [them](crate::Capabilities::keyspace_options).
    pub fn keyspace_with(&self, name: &str, options: &KeyspaceOptions) -> Result<Keyspace> {
        refuse_reserved(name)?;
        options.check()?;
        self.made_keyspace(name, Some(options))
    }

    /// A keyspace in which a tool keeps notes about the store, beside the keyspaces of its users:
    /// [`Db::keyspace`] cannot open it, [`Db::keyspace_names`] omits it, and a batch may write to
    /// it together with others. Creates it durably if it does not exist.
    ///
    /// The figures of the store count it under the name `gabion.` and `name`;
    /// [`Db::drop_keyspace`] takes that name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use gabion::{Error, WriteBatch};
    ///
    /// let db = gabion::Db::open(dir.path())?;
    /// let notes = db.reserved_keyspace("copied")?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(db.default_keyspace(), "stone", "granite")?;
    /// batch.put(&notes, "up to", "stone")?;
    /// db.write(batch)?;
    /// assert_eq!(db.keyspace_names(), ["default"]);
    /// assert!(matches!(db.keyspace("gabion.copied"), Err(Error::ReservedName { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::keyspace`]; the name may have seven bytes less.
    pub fn reserved_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.made_keyspace(&format!("{RESERVED}{name}"), None)
    }

    fn made_keyspace(&self, name: &str, options: Option<&KeyspaceOptions>) -> Result<Keyspace> {
        let inner = self.handle().create_keyspace(name, options)?;
        inner.options().check_operator(name)?;
        Ok(Keyspace {
            store: Arc::clone(self.store()),
            inner,
        })
    }

    /// The keyspace of that name.
    ///
    /// # Errors
    /// [`Error::NoSuchKeyspace`]; [`Error::ReservedName`] and [`Error::OtherMergeOperator`] as
    /// [`Db::keyspace`].
    pub fn existing_keyspace(&self, name: &str) -> Result<Keyspace> {
        refuse_reserved(name)?;
        match self.handle().find_keyspace(name) {
            Some(inner) => {
                inner.options().check_operator(name)?;
                Ok(Keyspace {
                    store: Arc::clone(self.store()),
                    inner,
                })
            }
            None => Err(self.no_such_keyspace(name)),
        }
    }

    /// Removes the keyspace of that name and all its records, durably and atomically, for readers
    /// and after a crash: earlier writes, at any durability, survive a power loss if the drop does.
    ///
    /// From then on, reads and writes through its handles fail with [`Error::KeyspaceDropped`], and
    /// the store refuses a whole batch that names it. Earlier snapshots and iterators still see it,
    /// through the old handles. When none of them is left, the store frees its memory and removes
    /// its files. If there is none, it does so before this returns, except for what a background
    /// job is working on. With [`Engine::Flex`], an old handle keeps the index of the keyspace in
    /// memory.
    ///
    /// You may reuse the name at once: that creates another, empty keyspace, and old handles still
    /// refer to the old one. You cannot drop the keyspace [`DEFAULT_KEYSPACE`], to which a `Db` is
    /// a handle.
    ///
    /// The cost is a sync of the log and one of a small write, for which writers wait, and the
    /// removal of the files. A drop writes nothing for the pairs.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use gabion::Error;
    ///
    /// let db = gabion::Db::open(dir.path())?;
    /// let drafts = db.keyspace("drafts")?;
    /// drafts.put("basket", "wire")?;
    /// db.drop_keyspace("drafts")?;
    /// assert!(matches!(drafts.get("basket"), Err(Error::KeyspaceDropped)));
    /// assert!(matches!(db.drop_keyspace("drafts"), Err(Error::NoSuchKeyspace { .. })));
    /// assert_eq!(db.keyspace("drafts")?.get("basket")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchKeyspace`]; [`Error::Unsupported`] for the default keyspace, and of engines
    /// without [it](crate::Capabilities::drop_keyspace); and those of writes: then the keyspace is
    /// there, unless the store has turned read-only, which leaves that to the next open.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        if name == DEFAULT_KEYSPACE {
            return Err(Error::Unsupported {
                engine: self.engine().name(),
                operation: "dropping the default keyspace; delete the keys instead",
            });
        }
        match self.handle().drop_keyspace(name)? {
            true => Ok(()),
            false => Err(self.no_such_keyspace(name)),
        }
    }

    fn no_such_keyspace(&self, name: &str) -> Error {
        Error::NoSuchKeyspace {
            name: name.to_owned(),
            existing: self.shown_names().join(", "),
        }
    }

    /// The names of all keyspaces but [reserved](Db::reserved_keyspace) ones, in the order in which
    /// they were made.
    pub fn keyspace_names(&self) -> Vec<String> {
        let mut names = self.handle().keyspace_names();
        names.retain(|name| !name.starts_with(RESERVED));
        names
    }

    /// As [`Db::keyspace_names`], escaped for a message: a name may contain anything, even terminal
    /// control sequences.
    fn shown_names(&self) -> Vec<String> {
        let names = self.keyspace_names();
        names
            .iter()
            .map(|name| name.escape_debug().to_string())
            .collect()
    }

    /// As [`Keyspace::put`] on the default keyspace.
    ///
    /// # Errors
    /// Those of [`Keyspace::put`].
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }

    /// As [`Keyspace::get`] on the default keyspace.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.default.get(key)
    }

    /// As [`Keyspace::contains`] on the default keyspace.
    ///
    /// # Errors
    /// Those of [`Keyspace::contains`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.contains(key)
    }

    /// As [`Keyspace::delete`] on the default keyspace.
    ///
    /// # Errors
    /// Those of [`Keyspace::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }

    /// As [`Keyspace::delete_range`] on the default keyspace.
    ///
    /// # Errors
    /// Those of [`Keyspace::delete_range`].
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.default.delete_range(range)
    }

    /// As [`Keyspace::multi_get`] on the default keyspace.
    ///
    /// # Errors
    /// Those of [`Keyspace::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.default.multi_get(keys)
    }

    /// As [`Keyspace::iter`] on the default keyspace.
    ///
    /// # Errors
    /// Those of the items of [`Keyspace::iter`].
    pub fn iter(&self) -> Iter {
        self.default.iter()
    }

    /// As [`Keyspace::range`] on the default keyspace.
    ///
    /// # Errors
    /// Those of the items of [`Keyspace::range`].
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        self.default.range(range)
    }

    /// As [`Keyspace::prefix`] on the default keyspace.
    ///
    /// # Errors
    /// Those of the items of [`Keyspace::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.default.prefix(prefix)
    }

    /// Writes a batch at the store's durability: all of it or nothing. Takes the batch or a
    /// reference to it, so that one batch can be reused ([`WriteBatch::clear`]).
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    ///
    /// # Panics
    /// When the batch's keyspaces belong to another store.
    pub fn write(&self, batch: impl Borrow<WriteBatch>) -> Result<()> {
        self.write_with(batch, self.store().durability)
    }

    /// Writes a batch at the given durability.
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
            "the batch has keyspaces of another store"
        );
        let write = Write::Batch(&batch.operations);
        self.handle().write(write, batch.user_bytes, durability)
    }

    /// Returns a view of all keyspaces as they are now. Copies nothing and does not block. With an
    /// engine that has no [snapshots](crate::Capabilities::snapshots), each read of the view is an
    /// error.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.store())
    }

    /// Writes what is in memory to its permanent place, and waits for that: [`Engine::Wip`] writes
    /// its MemTables to tables, [`Engine::Flex`] merges them into its spaces, and [`Engine::Scmkv`]
    /// and [`Engine::Sptree`] make everything durable that can be. Writes continue meanwhile; the
    /// flush need not include writes after the call.
    ///
    /// Durability does not need a flush (see [`Db::persist`]); a flush shortens the next open.
    ///
    /// # Errors
    /// [`Error::Media`] when the medium fails or is full, [`Error::ReadOnly`], [`Error::Closed`].
    pub fn flush(&self) -> Result<()> {
        self.handle().flush()
    }

    /// Makes everything written so far as durable as `durability` says. With [`Durability::Sync`],
    /// and also with [`Durability::Interval`], whose interval ends now, it survives power loss once
    /// this returns. With [`Durability::Buffered`] there is nothing to do: acknowledged writes
    /// already survive the process.
    ///
    /// # Errors
    /// As [`Db::flush`]; [`Error::Unsupported`] for [`Durability::Sync`] of a store that was made
    /// without what that takes ([`MappedOptions::checkpoints`](crate::MappedOptions::checkpoints)).
    pub fn persist(&self, durability: Durability) -> Result<()> {
        self.handle().persist(durability)
    }

    /// As [`Keyspace::compact`] on the default keyspace.
    ///
    /// # Errors
    /// Those of [`Keyspace::compact`].
    pub fn compact<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.default.compact(range)
    }

    /// Copies the store as it is now to the directory `path`, which must not exist, as a store of
    /// its own: all writes acknowledged before the call, whole batches only. Reads and writes
    /// continue meanwhile. Creates missing parents of `path`.
    ///
    /// WipDB links its tables, which costs no copy, and no space while both stores have them, and
    /// copies the rest of the log after a flush. To another file system it copies the tables. It
    /// works even on a full disk, unless the disk was full when the store was opened. FlexDB
    /// rewrites all pairs. The checkpoint is on the medium when this returns.
    ///
    /// The checkpoint is written to `path` plus `.incomplete` and renamed when it is complete. A
    /// file `INCOMPLETE` marks what a crash leaves in either place: it does not open as a store,
    /// and the next checkpoint or repair to the same `path` clears it away.
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
    /// [`Error::Unsupported`] of engines without [it](crate::Capabilities::checkpoint).
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        fill_new_dir(path.as_ref(), |disk| self.handle().checkpoint(disk))
    }

    /// As [`Db::checkpoint`], to a directory on a disk of any kind, which must be empty or hold the
    /// remains of an interrupted checkpoint.
    ///
    /// # Errors
    /// Those of [`Db::checkpoint`].
    #[doc(hidden)]
    pub fn checkpoint_on(&self, disk: &Disk) -> Result<()> {
        fill(disk, || self.handle().checkpoint(disk))
    }

    /// Adds the store as it is now to a repository of backups: all writes acknowledged before the
    /// call, whole batches only, with keyspaces, their options and expiry times. Reads and writes
    /// continue meanwhile.
    ///
    /// Reads and writes only what is new to the repository: after the first backup, what the store
    /// has written since. WipDB flushes its MemTables first, as a checkpoint does, and keeps its
    /// tables until they are copied. The backup is on the medium when this returns. An interrupted
    /// backup does not count as one; the next one clears it away.
    ///
    /// With [`BackupOptions::archive_log`], the log is archived first, as by [`Db::archive_log`],
    /// and goes on behind this backup.
    ///
    /// [`BackupRepository`] has an example.
    ///
    /// # Errors
    /// [`Error::is_locked`] if the repository is in use; [`Error::Cancelled`]; [`Error::Media`]
    /// when a medium fails or is full; [`Error::ReadOnly`], [`Error::Closed`]; and
    /// [`Error::Unsupported`] of engines without [it](crate::Capabilities::backup).
    pub fn backup(
        &self,
        repository: &BackupRepository,
        options: BackupOptions<'_>,
    ) -> Result<BackupInfo> {
        repository.create(&self.origin(), options)
    }

    /// Adds to a repository what was written since the last backup with the log
    /// ([`BackupOptions::archive_log`]), or since the last call: all writes acknowledged before the
    /// call. [`BackupRepository::restore_until`] restores the store to any of them. Reads and
    /// writes continue meanwhile.
    ///
    /// Costs a sync of the store's log, a read of what is new of it, and a file of that size in the
    /// repository; nothing is written if nothing is new. Call it as often as you would like to have
    /// the last writes safe: every few seconds or minutes. In between the store keeps its log for
    /// the repository, as for a [consumer](Db::consumer), up to
    /// [`Options::changes_bytes_max`](crate::Options::changes_bytes_max).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = |name: &str| dir.path().join(name);
    /// use gabion::{BackupOptions, BackupRepository, Db, RestoreUntil};
    ///
    /// let db = Db::open(path("store"))?;
    /// let repository = BackupRepository::create_or_open(path("backups"))?;
    /// db.backup(&repository, BackupOptions::default().archive_log(true))?;
    /// db.put("basket", "stones")?;
    /// let before = db.position()?.number();
    /// db.delete("basket")?;
    /// db.archive_log(&repository, BackupOptions::default())?;
    ///
    /// let until = RestoreUntil::Position(before);
    /// repository.restore_until(None, until, path("restored"), BackupOptions::default())?;
    /// let restored = Db::open(path("restored"))?;
    /// assert_eq!(restored.get("basket")?.as_deref(), Some(&b"stones"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::LogArchiveEnded`] if nothing can follow what is archived, as after an
    /// [ingest](crate::Keyspace::ingest): make a backup with the log then. Else as [`Db::backup`].
    pub fn archive_log(
        &self,
        repository: &BackupRepository,
        options: BackupOptions<'_>,
    ) -> Result<ArchivedLog> {
        repository.archive(&self.origin(), options)
    }

    fn origin(&self) -> BackupOrigin<'_> {
        BackupOrigin {
            engine: self.engine(),
            path: self.path(),
            handle: self.handle(),
        }
    }

    /// Waits until no background work is due, as if no more writes would come: the store does at
    /// once what it would do when idle. Use it for measurements, and before a program goes idle.
    /// Under constant writes it may never return.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub fn wait_idle(&self) -> Result<()> {
        self.handle().wait_idle()
    }

    /// Returns counts and sizes. This looks at each table, so do not call it for every request.
    pub fn stats(&self) -> Stats {
        self.handle().stats()
    }

    /// How often and for how long changes and background work could block readers of uncached data
    /// since the store was opened. Readers of cached data wait only while the very interval that
    /// they read changes. `None` for engines other than [`Engine::Flex`].
    pub fn reader_waits(&self) -> Option<ReaderWaits> {
        self.handle().reader_waits()
    }

    /// Syncs and closes the store, even if other handles still refer to it: from now on reads and
    /// writes through any handle fail with [`Error::Closed`]. Iterators that began before may
    /// continue on the data that they began with, or end with an error.
    ///
    /// Waits for writes and background jobs in progress. [`Engine::Flex`] merges everything in
    /// MemTables; [`Engine::Wip`] leaves that to the log; [`Engine::Scmkv`] and [`Engine::Sptree`]
    /// write their checkpoint.
    ///
    /// Dropping the last handle does the same, but only logs errors. In a forked child, which has a
    /// copy of the handles, neither closes anything: see [`Error::Forked`].
    ///
    /// # Errors
    /// [`Error::Media`] when the last sync fails, [`Error::ReadOnly`] when something failed before.
    /// The store is closed in any case.
    pub fn close(self) -> Result<()> {
        self.handle().close()
    }
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

    #[test]
    fn handles_are_shown_by_what_they_are_of() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let keyspace = db.keyspace("stones").unwrap();
        let mut batch = WriteBatch::new();
        batch.put(&keyspace, "granite", vec![7; 1000]).unwrap();
        let shown = format!("{db:?}");
        let path = format!("{:?}", dir.path());
        assert!(shown.contains(&path) && shown.contains("Wip"), "{shown}");
        assert_eq!(
            format!("{keyspace:?}"),
            r#"Keyspace { name: "stones", .. }"#
        );
        assert_eq!(
            format!("{batch:?}"),
            "WriteBatch { operations: 1, bytes: 1007, .. }"
        );
        assert_eq!(format!("{:?}", db.snapshot()), "Snapshot { seq: 0, .. }");
        assert_eq!(format!("{:?}", db.iter()), "Iter { .. }");
    }
}
