//! The reads and writes of a command.
//!
//! # Idea
//! A command holds the locks of its keys, so what it reads stays as it is until it has committed.
//! There are two ways to do the work, and the command's flags choose:
//!
//! - *direct*: reads go to the store; writes are gathered, a single one as it is and several as one
//!   batch. A direct command reads all that it needs before it writes, since it would not see its
//!   own writes. That is the way of short commands with one key.
//! - *whole*: reads and writes go through a transaction of the store, which sees its own writes.
//!   That is the way of commands with several keys, of `EXEC` and of scripts. It never conflicts:
//!   nobody else may write what it writes.
//!
//! # Invariants
//! - I1. Every record that expires has one key in `expiring`, at its moment, and no other does.
//! - I2. A number of elements that no record has any more is in `garbage`, by the same commit.
//! - I3. Counts change by what was committed, after the commit.

use std::ops::Bound;
use std::sync::Arc;

use gabion::{
    Durability, Isolation, Iter, Keyspace, Slice, Transaction, TransactionIter, TransactionOptions,
    WriteBatch,
};

use super::keys::{KEY_BYTES_MAX, after_prefix, expiry_key, meta_key, prefix, space_bytes};
use super::meta::{KeyRecord, RecordHead, SaveOutcome};
use super::sizes::DatabaseSize;
use super::{SPACES_KEY, Store};
use crate::events::EventClasses;
use crate::fault::{Fault, Result};

/// The most that a transaction holds in memory, in bytes: as much as a batch of the store.
const TRANSACTION_BYTES_MAX: u64 = 1 << 30;

/// Memory of a batch or a buffer that is kept for the next command, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// A keyspace of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Records of keys.
    Keys,
    /// Elements of large collections.
    Elements,
    /// Keys by moment.
    Expiring,
    /// Dead collections.
    Garbage,
    /// Settings of the store.
    Settings,
}

/// How a command reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WorkMode {
    /// All reads, then the writes.
    #[default]
    Direct,
    /// Through a transaction.
    Whole,
}

/// The only write of a command so far.
#[derive(Debug, Default)]
struct Single {
    room: Option<Room>,
    is_put: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The record that was read last.
#[derive(Debug, Default)]
struct Loaded {
    key: Vec<u8>,
    /// `None` when nothing is known of the key.
    found: Option<Option<KeyRecord>>,
}

/// A keyspace event, to be published.
#[derive(Debug)]
pub(crate) struct KeyEvent {
    /// Its class.
    pub(crate) class: EventClasses,
    /// What happened.
    pub(crate) name: &'static str,
    /// The database, as clients select it.
    pub(crate) database: usize,
    /// The key.
    pub(crate) key: Vec<u8>,
}

/// The effect of a commit on the size of a database.
#[derive(Debug)]
enum Change {
    Add(DatabaseSize),
    Clear,
}

/// The reads and writes of a command. A connection keeps one for all of its commands.
#[derive(Debug)]
pub(crate) struct Work {
    store: Arc<Store>,
    way: WorkMode,
    transaction: Option<Box<Transaction>>,
    single: Single,
    batch: WriteBatch,
    loaded: Loaded,
    /// A record that is being put together.
    record: Vec<u8>,
    changes: Vec<(u16, Change)>,
    /// Databases that were exchanged, to be exchanged back if nothing comes of it.
    swaps: Vec<(usize, usize)>,
    /// Keys that were looked for after they had expired: the moment, the database, the key.
    pub(crate) expired: Vec<(u64, u16, Vec<u8>)>,
    /// Events to publish after the commit.
    pub(crate) events: Vec<KeyEvent>,
    /// Whether anything was committed since somebody took this mark.
    pub(crate) has_committed: bool,
    /// Commands that ran, keys found and not found, since somebody took these counts.
    pub(crate) commands: u64,
    /// Keys that were looked for and found.
    pub(crate) hits: u64,
    /// Keys that were looked for and not found.
    pub(crate) misses: u64,
    /// Keys that were changed, each with its database in the store, if anybody wants to know.
    pub(crate) touched: Option<Vec<(u16, Vec<u8>)>>,
    /// Whether whole databases were emptied or exchanged.
    pub(crate) replaces_all: bool,
    /// Changes, as `rdb_changes_since_last_save` counts them.
    pub(crate) dirty: u64,
    /// The moment of the command, in milliseconds since 1970.
    pub(crate) now_ms: u64,
}

impl Work {
    /// Nothing yet.
    pub(crate) fn new(store: Arc<Store>) -> Work {
        Work {
            store,
            way: WorkMode::Direct,
            transaction: None,
            single: Single::default(),
            batch: WriteBatch::new(),
            loaded: Loaded::default(),
            record: Vec::new(),
            changes: Vec::new(),
            swaps: Vec::new(),
            events: Vec::new(),
            expired: Vec::new(),
            has_committed: false,
            commands: 0,
            hits: 0,
            misses: 0,
            touched: None,
            replaces_all: false,
            dirty: 0,
            now_ms: 0,
        }
    }

    /// A number that no collection of the store has had.
    ///
    /// # Errors
    /// As [`Store::next_number`].
    pub(crate) fn next_number(&self) -> Result<u64> {
        self.store.next_number()
    }

    /// Up to how many bytes a collection is kept in the record of its key.
    pub(crate) fn packed_bytes_max(&self) -> usize {
        self.store.packed_bytes_max
    }

    /// Begins a command.
    pub(crate) fn begin(&mut self, way: WorkMode, now_ms: u64, notes_touched: bool) {
        self.way = way;
        self.now_ms = now_ms;
        self.dirty = 0;
        self.replaces_all = false;
        self.events.clear();
        self.expired.clear();
        self.touched = notes_touched.then(Vec::new);
        self.loaded.found = None;
    }

    /// The record of a key that is there, at the command's moment.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub(crate) fn find(&mut self, space: u16, user_key: &[u8]) -> Result<Option<KeyRecord>> {
        let now_ms = self.now_ms;
        let Some(meta) = self.load(space, user_key)?.cloned() else {
            return Ok(None);
        };
        if meta.is_live(now_ms) {
            return Ok(Some(meta));
        }
        if let Some(moment) = meta.head.expires_ms {
            self.expired.push((moment, space, user_key.to_vec()));
        }
        Ok(None)
    }

    /// When the record of a key expires, or has expired.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub(crate) fn expires_at(&mut self, space: u16, user_key: &[u8]) -> Result<Option<u64>> {
        let found = self.load(space, user_key)?;
        Ok(found.and_then(|meta| meta.head.expires_ms))
    }

    /// Gives a key a record; the body comes in pieces. What the key was before is gone, and its
    /// elements too, unless the new record has the same number of them. Returns whether the key was
    /// there.
    ///
    /// # Errors
    /// For too long a key or value, and as [`Keyspace::get`].
    pub(crate) fn put(
        &mut self,
        space: u16,
        user_key: &[u8],
        head: RecordHead,
        body: &[&[u8]],
    ) -> Result<bool> {
        if user_key.len() > KEY_BYTES_MAX {
            return Err(Fault::line(
                "ERR the key is too long: this server takes keys up to 65,525 bytes",
            ));
        }
        let now_ms = self.now_ms;
        let old = self.load(space, user_key)?;
        let was_there = old.is_some_and(|old| old.is_live(now_ms));
        let old = old.map(|old| old.head);
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        head.encode(&mut record);
        for piece in body {
            record.extend_from_slice(piece);
        }
        let key = std::mem::take(&mut self.loaded.key);
        let written = self.write(Room::Keys, &key, Some(&record));
        self.loaded.key = key;
        if record.capacity() <= KEPT_BYTES_MAX {
            self.record = record;
        }
        written?;
        let change = DatabaseSize {
            keys: i64::from(old.is_none()),
            expiring: i64::from(head.expires_ms.is_some()),
        };
        self.replaced(space, user_key, old, Some(head), change)?;
        Ok(was_there)
    }

    /// The same, and what has become of the key.
    ///
    /// # Errors
    /// As [`Work::put`].
    pub(crate) fn put_collection(
        &mut self,
        space: u16,
        user_key: &[u8],
        head: RecordHead,
        body: &[&[u8]],
    ) -> Result<SaveOutcome> {
        Ok(match self.put(space, user_key, head, body)? {
            true => SaveOutcome::Changed,
            false => SaveOutcome::New,
        })
    }

    /// Removes a key with all that it has; false if it was not there.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub(crate) fn remove(&mut self, space: u16, user_key: &[u8]) -> Result<bool> {
        self.remove_but(space, user_key, None)
    }

    /// Removes a key whose elements, if those are their number, stay for another one.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub(crate) fn remove_but(
        &mut self,
        space: u16,
        user_key: &[u8],
        kept: Option<u64>,
    ) -> Result<bool> {
        let now_ms = self.now_ms;
        let Some(old) = self.load(space, user_key)? else {
            return Ok(false);
        };
        let (head, was_live) = (old.head, old.is_live(now_ms));
        let key = std::mem::take(&mut self.loaded.key);
        let written = self.write(Room::Keys, &key, None);
        self.loaded.key = key;
        written?;
        let change = DatabaseSize {
            keys: -1,
            expiring: 0,
        };
        let stays = kept.map(|elements| RecordHead {
            elements: Some(elements),
            expires_ms: None,
            ..head
        });
        self.replaced(space, user_key, Some(head), stays, change)?;
        Ok(was_live)
    }

    /// Keeps index, garbage and counts in step with a record that has taken another's place.
    fn replaced(
        &mut self,
        space: u16,
        user_key: &[u8],
        old: Option<RecordHead>,
        new: Option<RecordHead>,
        mut change: DatabaseSize,
    ) -> Result<()> {
        let before = old.and_then(|head| head.expires_ms);
        let after = new.and_then(|head| head.expires_ms);
        if before != after {
            if let Some(moment) = before {
                self.write(Room::Expiring, &expiry_key(moment, space, user_key), None)?;
            }
            if let Some(moment) = after {
                let key = expiry_key(moment, space, user_key);
                self.write(Room::Expiring, &key, Some(&[]))?;
            }
        }
        if let Some(dead) = old.and_then(|head| head.elements)
            && new.and_then(|head| head.elements) != Some(dead)
        {
            self.write(Room::Garbage, &prefix(space, dead), Some(&[]))?;
        }
        change.expiring -= i64::from(before.is_some());
        if change != DatabaseSize::default() {
            self.changes.push((space, Change::Add(change)));
        }
        self.touch(space, user_key);
        self.loaded.found = None;
        Ok(())
    }

    /// Notes that a key was changed. Families call it when they change elements only.
    pub(crate) fn touch(&mut self, space: u16, user_key: &[u8]) {
        self.dirty += 1;
        if let Some(touched) = &mut self.touched {
            touched.push((space, user_key.to_vec()));
        }
    }

    /// The record of a key, expired or not.
    fn load(&mut self, space: u16, user_key: &[u8]) -> Result<Option<&KeyRecord>> {
        let [high, low, known @ ..] = self.loaded.key.as_slice() else {
            return self.load_anew(space, user_key);
        };
        let is_known = self.loaded.found.is_some()
            && u16::from_le_bytes([*low, *high]) == space
            && known == user_key;
        if is_known {
            return Ok(self.loaded.found.as_ref().and_then(Option::as_ref));
        }
        self.load_anew(space, user_key)
    }

    fn load_anew(&mut self, space: u16, user_key: &[u8]) -> Result<Option<&KeyRecord>> {
        self.loaded.found = None;
        let mut key = std::mem::take(&mut self.loaded.key);
        meta_key(space, user_key, &mut key);
        let record = self.get(Room::Keys, &key);
        self.loaded.key = key;
        let found = match record? {
            Some(record) => Some(KeyRecord::read(record)?),
            None => None,
        };
        Ok(self.loaded.found.insert(found).as_ref())
    }

    /// The value of a key of the store.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub(crate) fn get(&mut self, room: Room, key: &[u8]) -> Result<Option<Slice>> {
        self.begin_whole()?;
        let keyspace = keyspace(&self.store, room);
        Ok(match &self.transaction {
            Some(transaction) => transaction.get(keyspace, key)?,
            None => keyspace.get(key)?,
        })
    }

    /// The pairs of the store with keys from `lower` on and before `upper`.
    ///
    /// # Errors
    /// When no transaction can begin.
    pub(crate) fn range(
        &mut self,
        room: Room,
        lower: Bound<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Result<Pairs<'_>> {
        self.begin_whole()?;
        let keyspace = keyspace(&self.store, room);
        let range = (lower, upper.map_or(Bound::Unbounded, Bound::Excluded));
        Ok(match &self.transaction {
            Some(transaction) => {
                Pairs::Whole(Box::new(transaction.range::<&[u8]>(keyspace, range)))
            }
            None => Pairs::Direct(keyspace.range::<&[u8]>(range)),
        })
    }

    /// Writes a value, or removes it.
    ///
    /// # Errors
    /// For too long a key or value, or too much in one command.
    pub(crate) fn write(&mut self, room: Room, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.begin_whole()?;
        let keyspace = keyspace(&self.store, room);
        if let Some(transaction) = &mut self.transaction {
            match value {
                Some(value) => transaction.put(keyspace, key, value)?,
                None => transaction.delete(keyspace, key)?,
            }
            return Ok(());
        }
        if self.single.room.is_none() && self.batch.is_empty() {
            self.single.room = Some(room);
            self.single.is_put = value.is_some();
            self.single.key.clear();
            self.single.key.extend_from_slice(key);
            self.single.value.clear();
            self.single
                .value
                .extend_from_slice(value.unwrap_or_default());
            return Ok(());
        }
        self.add_single()?;
        let keyspace = self::keyspace(&self.store, room);
        match value {
            Some(value) => self.batch.put(keyspace, key, value)?,
            None => self.batch.delete(keyspace, key)?,
        }
        Ok(())
    }

    /// Moves the only write into the batch.
    fn add_single(&mut self) -> Result<()> {
        if let Some(room) = self.single.room.take() {
            let keyspace = keyspace(&self.store, room);
            match self.single.is_put {
                true => {
                    let value = &self.single.value;
                    self.batch.put(keyspace, &self.single.key, value)?;
                }
                false => self.batch.delete(keyspace, &self.single.key)?,
            }
        }
        Ok(())
    }

    fn begin_whole(&mut self) -> Result<()> {
        if self.way == WorkMode::Whole && self.transaction.is_none() {
            let options = TransactionOptions::default()
                .isolation(Isolation::Snapshot)
                .bytes_max(TRANSACTION_BYTES_MAX);
            self.transaction = Some(Box::new(self.store.db.begin_with(options)?));
        }
        Ok(())
    }

    /// Makes the writes take effect together.
    ///
    /// # Errors
    /// As [`gabion::Db::write`]; then nothing has changed.
    pub(crate) fn commit(&mut self, durability: Durability) -> Result<()> {
        let writes = self.single.room.is_some() || !self.batch.is_empty();
        self.has_committed |= writes || self.transaction.is_some();
        let written = self.commit_writes(durability);
        if written.is_ok() {
            for (space, change) in self.changes.drain(..) {
                match change {
                    Change::Add(size) => self.store.sizes.add(space, size),
                    Change::Clear => self.store.sizes.clear(space),
                }
            }
            self.swaps.clear();
        }
        self.discard();
        written
    }

    fn commit_writes(&mut self, durability: Durability) -> Result<()> {
        if let Some(transaction) = self.transaction.take() {
            return Ok(transaction.commit_with(durability)?);
        }
        if let Some(room) = self.single.room.take() {
            let keyspace = keyspace(&self.store, room);
            let Single { key, value, .. } = &self.single;
            match self.single.is_put {
                true => keyspace.put_with(key, value, durability)?,
                false => keyspace.delete_with(key, durability)?,
            }
        } else if !self.batch.is_empty() {
            self.store.db.write_with(&self.batch, durability)?;
        }
        Ok(())
    }

    /// Forgets the writes.
    pub(crate) fn discard(&mut self) {
        self.transaction = None;
        self.single.room = None;
        if self.single.value.capacity() > KEPT_BYTES_MAX {
            self.single.value = Vec::new();
        }
        if !self.batch.is_empty() {
            match self.batch.bytes() > KEPT_BYTES_MAX as u64 {
                true => self.batch = WriteBatch::new(),
                false => self.batch.clear(),
            }
        }
        self.changes.clear();
        while let Some((one, other)) = self.swaps.pop() {
            self.store.exchange(one, other);
        }
        self.loaded.found = None;
    }

    /// Removes all keys of a database of the store, at the cost of two ranges. For commands that
    /// run alone, the whole way. What `expiring` has of them is dropped when its moment comes.
    ///
    /// # Errors
    /// When no transaction can begin.
    pub(crate) fn flush(&mut self, space: u16) -> Result<()> {
        self.replaces_all = true;
        self.begin_whole()?;
        let from = space_bytes(space);
        let to = after_prefix(&from);
        let range = (
            Bound::Included(&from[..]),
            to.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        );
        if let Some(transaction) = &mut self.transaction {
            for keyspace in [&self.store.keys, &self.store.elements] {
                transaction.delete_range::<&[u8]>(keyspace, range)?;
            }
        }
        self.changes.push((space, Change::Clear));
        self.dirty += 1;
        self.loaded.found = None;
        Ok(())
    }

    /// Exchanges two databases. For commands that run alone.
    ///
    /// # Errors
    /// As [`Work::write`].
    pub(crate) fn swap(&mut self, one: usize, other: usize) -> Result<()> {
        self.store.exchange(one, other);
        self.swaps.push((one, other));
        self.replaces_all = true;
        let spaces = self.store.spaces_record();
        self.write(Room::Settings, SPACES_KEY, Some(&spaces))?;
        self.dirty += 1;
        Ok(())
    }
}

fn keyspace(store: &Store, room: Room) -> &Keyspace {
    match room {
        Room::Keys => &store.keys,
        Room::Elements => &store.elements,
        Room::Expiring => &store.expiring,
        Room::Garbage => &store.garbage,
        Room::Settings => &store.settings,
    }
}

/// Pairs of the store, in order from either end.
#[derive(Debug)]
pub(crate) enum Pairs<'w> {
    /// Of the store itself.
    Direct(Iter),
    /// With the command's own writes.
    Whole(Box<TransactionIter<'w>>),
}

impl Iterator for Pairs<'_> {
    type Item = gabion::Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Pairs::Direct(iter) => iter.next(),
            Pairs::Whole(iter) => iter.next(),
        }
    }
}

impl DoubleEndedIterator for Pairs<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Pairs::Direct(iter) => iter.next_back(),
            Pairs::Whole(iter) => iter.next_back(),
        }
    }
}
