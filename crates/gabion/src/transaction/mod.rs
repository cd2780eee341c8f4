//! Transactions: reads as of one moment, and writes that take effect together if nothing that they
//! depend on has changed.
//!
//! # Idea
//! Transactions are optimistic: a transaction reads at the sequence number of its beginning, keeps
//! its writes in memory, and records what it read. Its commit is one batch. The leader of the write
//! group checks it before the append: if anything that the transaction read has a newer version,
//! the leader writes nothing and the caller runs the transaction again. So nobody waits for a
//! transaction, it does not affect readers, and there are no locks and no deadlocks.
//!
//! # Rooms
//! | file | what |
//! |---|---|
//! | `write_set` | the writes of a transaction before its commit, and the way back to a savepoint |
//! | `iter` | ranges: the snapshot's pairs with the transaction's own in between |
//! | `merges` | what a transaction has merged, before anybody else sees it |
//! | `options` | isolation and limits |
//! | `retry` | a closure that is run until it is committed |
//!
//! # Isolation
//! | level | what a commit checks |
//! |---|---|
//! | [`Isolation::Serializable`] | all keys and ranges that were read, found or not |
//! | [`Isolation::Snapshot`] | keys and ranges that are written, and those read for update; of keys
//! that are merged into only those that were read |
//!
//! At the first level all committed transactions have an order in which each reads what the ones
//! before it have written. The second level permits write skew.
//!
//! A transaction that only writes, or only reads, never conflicts: the first takes effect at its
//! commit, the second at its beginning.
//!
//! # Linearization and durability points
//! Those of a batch (`engine/ssd/commit`): no other write takes place between the check, the append
//! and the publication.

mod iter;
mod merges;
mod options;
mod retry;
mod write_set;

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::engine::{OpenTransaction, ReadMark, ReadSet, Write};
use crate::expiry::{Expiry, StoredRecord, stored, time_of};
use crate::limits::{BATCH_BYTES_MAX, check_limits};
use crate::log::BatchEncoder;
use crate::memory::TableMemory;
use crate::operands::{MergeContext, new_moment};
use crate::ranges::{deleted_range, prefix_bounds, range_bounds};
use crate::store_handle::StoreHandle;
use crate::types::Kind;
use crate::{Db, Durability, Error, Keyspace, Result, Slice};

use write_set::WriteSet;

pub use iter::TransactionIter;
pub use options::{Isolation, TransactionOptions};

/// The store's count of a transaction's memory is brought up to date in steps of so many bytes.
const HELD_STEP: usize = 64 << 10;

/// Memory that the batch of a commit begins with, if it may take so much.
const BATCH_BYTES: usize = 4 << 10;

/// Several reads and writes that take effect together, or not at all.
///
/// It reads the store as it was when the transaction began, with its own writes on top. It writes
/// nothing before [`Transaction::commit`]; dropping it rolls it back. It can move between threads,
/// but only one may use it at a time. While it lives, it keeps old versions alive, as a
/// [`Snapshot`](crate::Snapshot) does, so it should be short
/// ([`Options::transaction_age_max`](crate::Options::transaction_age_max)).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = gabion::Db::open(dir.path())?;
/// let accounts = db.keyspace("accounts")?;
/// accounts.put("alice", [100])?;
///
/// let mut transaction = db.begin()?;
/// let alice = transaction.get(&accounts, "alice")?.map_or(0, |value| value[0]);
/// let bob = transaction.get(&accounts, "bob")?.map_or(0, |value| value[0]);
/// transaction.put(&accounts, "alice", [alice - 30])?;
/// transaction.put(&accounts, "bob", [bob + 30])?;
/// transaction.commit()?;
/// assert_eq!(accounts.get("bob")?.as_deref(), Some(&[30][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// In addition to the errors of each method: [`Error::ForeignKeyspace`] for a keyspace of another
/// store, [`Error::TransactionTooOld`], [`Error::KeyspaceDropped`], and [`Error::Limit`] if its
/// reads and writes take more than [`TransactionOptions::bytes_max`]. After an error you may
/// continue to use the transaction.
pub struct Transaction {
    store: Arc<StoreHandle>,
    open: Arc<OpenTransaction>,
    options: TransactionOptions,
    own: WriteSet,
    reads: RefCell<ReadSet>,
    /// What was read and is not checked for itself, of keyspaces with merges: a key that was read
    /// and is merged into depends on what was read.
    seen: RefCell<ReadSet>,
    /// Whether anything was read of the store.
    has_read: Cell<bool>,
    /// Bytes that the reads and the writes take.
    bytes: Cell<usize>,
    /// What of them is counted below the store's ceiling.
    held: OnceCell<Option<TableMemory>>,
    savepoints: Vec<Mark>,
}

/// What rolling back to a savepoint goes back to, besides the writes.
struct Mark {
    number: u64,
    reads: ReadMark,
    bytes: usize,
}

/// A point in a transaction that it can be rolled back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(u64);

/// Tells savepoints apart, those of other transactions and of ones that have ended as well.
static NEXT_SAVEPOINT: AtomicU64 = AtomicU64::new(0);

impl Db {
    /// Begins a transaction that is [serializable](Isolation::Serializable).
    ///
    /// # Errors
    /// [`Error::Unsupported`] of engines without
    /// [transactions](crate::Capabilities::transactions); [`Error::Closed`].
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(TransactionOptions::default())
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// As [`Db::begin`].
    pub fn begin_with(&self, options: TransactionOptions) -> Result<Transaction> {
        let store = self.store();
        let open = store.engine.begin_transaction()?;
        let since = open.read()?.point().seq;
        Ok(Transaction {
            store: Arc::clone(store),
            open,
            options,
            own: WriteSet::default(),
            reads: RefCell::new(ReadSet::new(since)),
            seen: RefCell::default(),
            has_read: Cell::new(false),
            bytes: Cell::new(0),
            held: OnceCell::new(),
            savepoints: Vec::new(),
        })
    }
}

impl Transaction {
    /// Returns the value of a key: the transaction's own, or the one from before it began.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.read(keyspace, key.as_ref(), self.checks_reads())
    }

    /// As [`Transaction::get`], but makes the commit depend on the key at any isolation: the commit
    /// conflicts if anybody else writes the key meanwhile.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get_for_update(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Slice>> {
        self.read(keyspace, key.as_ref(), true)
    }

    fn read(&self, keyspace: &Keyspace, key: &[u8], is_checked: bool) -> Result<Option<Slice>> {
        self.check_own(keyspace)?;
        if let Some(own) = self.own.get(keyspace.id(), key) {
            let own = self.own_at(keyspace, key, own, is_checked)?;
            return Ok(own.map(StoredRecord::into_value));
        }
        self.note_read(keyspace, key, is_checked)?;
        let held = self.open.read()?;
        let engine = &self.store.engine;
        engine.get(keyspace.inner(), key, Some(held.point()))
    }

    /// An own record, if it has not expired at the transaction's moment; of a merge what it amounts
    /// to, for which its key is read.
    fn own_at(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        own: Option<&StoredRecord>,
        is_checked: bool,
    ) -> Result<Option<StoredRecord>> {
        let moment = self.open.read()?.point().moment;
        let Some(own) = own else {
            return Ok(None);
        };
        let Some(mut operands) = merges::operands_of(own)? else {
            return Ok(own.clone().at(|| moment));
        };
        if merges::is_open(&operands) {
            self.note_read(keyspace, key, is_checked)?;
            let held = self.open.read()?;
            let engine = &self.store.engine;
            let base = engine.find_record(keyspace.inner(), key, Some(held.point()))?;
            merges::set_base(&mut operands, base.as_ref())?;
        }
        let operator = keyspace.inner().merge_operator();
        operands.read(merges::asked(&operator, key, moment))
    }

    fn note_read(&self, keyspace: &Keyspace, key: &[u8], is_checked: bool) -> Result<()> {
        self.has_read.set(true);
        match self.notes(keyspace, is_checked) {
            Some(notes) => {
                let bytes = notes.borrow_mut().note_key(keyspace.id(), key);
                self.take_bytes(bytes)
            }
            None => Ok(()),
        }
    }

    /// Where reads of a keyspace are noted that the commit checks, or does not; `None` where
    /// nothing can depend on them.
    fn notes(&self, keyspace: &Keyspace, is_checked: bool) -> Option<&RefCell<ReadSet>> {
        if is_checked {
            return Some(&self.reads);
        }
        let merges = keyspace.inner().merge_operator().is_some();
        merges.then_some(&self.seen)
    }

    /// Whether a commit checks what is read for nothing but reading.
    fn checks_reads(&self) -> bool {
        self.options.isolation == Isolation::Serializable
    }

    /// When the value of a key expires, as [`Keyspace::expires_at`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn expires_at(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<SystemTime>> {
        self.check_own(keyspace)?;
        let key = key.as_ref();
        let is_checked = self.checks_reads();
        let record = match self.own.get(keyspace.id(), key) {
            Some(own) => self.own_at(keyspace, key, own, is_checked)?,
            None => {
                self.note_read(keyspace, key, is_checked)?;
                let held = self.open.read()?;
                let engine = &self.store.engine;
                engine.find_record(keyspace.inner(), key, Some(held.point()))?
            }
        };
        Ok(record.and_then(|record| record.expires()).map(time_of))
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(keyspace, key)?.is_some())
    }

    /// The values of several keys, in the order of the keys.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>> {
        let get = |key: &K| self.get(keyspace, key);
        keys.iter().map(get).collect()
    }

    /// All pairs of a keyspace, in key order.
    ///
    /// # Errors
    /// Of the items, as [`Transaction::range`].
    pub fn iter(&self, keyspace: &Keyspace) -> TransactionIter<'_> {
        self.range::<&[u8]>(keyspace, ..)
    }

    /// The pairs of a keyspace with keys in `range`, in the order of their keys; reversed with
    /// `.rev()`. Everything that it passes counts as read, absent keys included, as far as it has
    /// advanced from either end.
    ///
    /// # Errors
    /// Of the items, as [`Keyspace::range`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> TransactionIter<'_> {
        TransactionIter::new(self, keyspace, range_bounds(&range))
    }

    /// The pairs of a keyspace whose keys begin with `prefix`, in key order.
    ///
    /// # Errors
    /// Of the items, as [`Transaction::range`].
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> TransactionIter<'_> {
        self.range(keyspace, prefix_bounds(prefix.as_ref()))
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// [`Error::Limit`] as [`Keyspace::put`].
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        if let Some(after) = keyspace.inner().default_expiry() {
            return self.put_expiring(keyspace, key, value, after);
        }
        let value = value.as_ref();
        self.write(keyspace, key.as_ref(), value, || {
            Some(StoredRecord::new(Kind::Put, Slice::new(value)))
        })
    }

    /// Sets a key to a value that expires, as [`Keyspace::put_expiring`]. A `Duration` counts from
    /// this call.
    ///
    /// # Errors
    /// [`Error::Limit`] as [`Keyspace::put`].
    pub fn put_expiring(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<()> {
        let value = value.as_ref();
        let moment = expiry.into().moment(self.store.engine.moment()?);
        self.write(keyspace, key.as_ref(), value, || {
            let stored = Slice::new(&stored(moment, value));
            Some(StoredRecord::new(Kind::PutExpiring, stored))
        })
    }

    /// Merges an operand into the value of a key, as [`Keyspace::merge`]. If the transaction does
    /// not read the key, it does not conflict with others that merge into it.
    ///
    /// # Errors
    /// As [`Keyspace::merge`].
    pub fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.check_own(keyspace)?;
        keyspace.check_operand(key, operand)?;
        let moment = self.open.read()?.point().moment;
        let operator = keyspace.inner().merge_operator();
        let own = self.own.get(keyspace.id(), key);
        let now = self.store.engine.moment()?;
        let asked = MergeContext {
            expires: new_moment(keyspace.inner().default_expiry(), now),
            ..merges::asked(&operator, key, moment)
        };
        let own = merges::onto_own(own, operand, asked)?;
        self.take_bytes(WriteSet::bytes_of(key, operand.len()))?;
        self.own.write(keyspace.id(), key, own);
        Ok(())
    }

    /// Removes a key and its value, if present.
    ///
    /// # Errors
    /// [`Error::Limit`] as [`Keyspace::delete`].
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(keyspace, key.as_ref(), &[], || None)
    }

    /// Gives a key the record that `record` makes of a value, or takes it away.
    fn write(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        record: impl FnOnce() -> Option<StoredRecord>,
    ) -> Result<()> {
        self.check_own(keyspace)?;
        check_limits(key, value)?;
        self.open.read()?;
        self.take_bytes(WriteSet::bytes_of(key, value.len()))?;
        self.own.write(keyspace.id(), key, record());
        Ok(())
    }

    /// Removes all keys in `range` and their values.
    ///
    /// # Errors
    /// As [`Keyspace::delete_range`].
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        self.check_own(keyspace)?;
        keyspace.require_order("deletes of ranges")?;
        self.open.read()?;
        if let Some((lower, upper)) = deleted_range(range_bounds(&range))? {
            self.take_bytes(WriteSet::bytes_of(&lower, upper.len()))?;
            let upper = (!upper.is_empty()).then_some(upper);
            self.own.delete_range(keyspace.id(), lower, upper);
        }
        Ok(())
    }

    /// Marks a point in the transaction, to roll back to.
    pub fn savepoint(&mut self) -> Savepoint {
        // ORDER: Relaxed; the number only has to differ.
        let number = NEXT_SAVEPOINT.fetch_add(1, Ordering::Relaxed);
        self.own.set_savepoint();
        self.savepoints.push(Mark {
            number,
            reads: self.reads.get_mut().mark(),
            bytes: self.bytes.get(),
        });
        Savepoint(number)
    }

    /// Undoes the writes since a savepoint, and forgets reads made only since then. The savepoint
    /// stays valid; later ones do not.
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`].
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let is_it = |mark: &Mark| mark.number == savepoint.0;
        let at = self.savepoints.iter().position(is_it);
        let at = at.ok_or(Error::NoSuchSavepoint)?;
        self.savepoints.truncate(at + 1);
        self.own.rollback_to(at);
        if let Some(mark) = self.savepoints.last() {
            self.reads.get_mut().truncate(mark.reads);
            self.bytes.set(mark.bytes);
        }
        Ok(())
    }

    /// Commits at the store's durability, if nobody has written what the transaction depends on
    /// since it began; otherwise has no effect. See [`Isolation`].
    ///
    /// # Errors
    /// [`Error::Conflict`]; and as [`Db::write`].
    pub fn commit(self) -> Result<()> {
        let durability = self.store.durability;
        self.commit_with(durability)
    }

    /// As [`Transaction::commit`], at the given durability.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        // Held until the commit is done: what it looks for stays there to be found.
        let held = self.open.read()?;
        if self.own.is_empty() {
            return Ok(());
        }
        // Each write counts more than it is long.
        let mut operations = BatchEncoder::with_capacity(self.bytes.get().min(BATCH_BYTES));
        let user_bytes = self.own.encode(&mut operations);
        let size = operations.bytes().len() as u64;
        if size > BATCH_BYTES_MAX {
            return Err(Error::Limit {
                what: "batch of a transaction",
                size,
                limit: BATCH_BYTES_MAX,
            });
        }
        let mut reads = self.reads.take();
        // Who has read nothing depends on nothing.
        if self.options.isolation == Isolation::Snapshot && self.has_read.get() {
            self.own.note_all(&mut reads, &self.seen.borrow());
        }
        let reads = Arc::new(reads);
        let write = match reads.is_empty() {
            true => Write::Batch(&operations),
            false => Write::Transaction(&operations, &reads),
        };
        let written = self.store.engine.write(write, user_bytes, durability);
        drop(held);
        written
    }

    /// Ends the transaction without any effect, as dropping it does.
    pub fn rollback(self) {}

    /// An error unless a keyspace is of the transaction's store.
    fn check_own(&self, keyspace: &Keyspace) -> Result<()> {
        match keyspace.store_id() == self.store.id {
            true => Ok(()),
            false => Err(Error::ForeignKeyspace {
                keyspace: keyspace.name().to_owned(),
            }),
        }
    }

    /// Counts bytes that it takes more; an error if these are too many.
    fn take_bytes(&self, bytes: usize) -> Result<()> {
        let all = self.bytes.get() + bytes;
        let limit = self.options.bytes_max;
        if all as u64 > limit {
            return Err(Error::Limit {
                what: "transaction (reads and writes together)",
                size: all as u64,
                limit,
            });
        }
        let steps = |bytes: usize| bytes / HELD_STEP;
        if steps(all) > steps(self.bytes.get()) {
            let held = self.held.get_or_init(|| self.store.engine.charge_memory());
            if let Some(held) = held {
                held.set((steps(all) * HELD_STEP) as u64);
            }
        }
        self.bytes.set(all);
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.store.engine.end_transaction(&self.open);
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("isolation", &self.options.isolation)
            .field("bytes", &self.bytes.get())
            .finish_non_exhaustive()
    }
}
