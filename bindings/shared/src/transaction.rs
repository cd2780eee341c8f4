//! A transaction, as other languages use it.
//!
//! There, handles are dropped in any order and used by any thread. So the transaction is behind a
//! lock, ends once for all who share it, and its iterators borrow nothing of it: they ask for pages
//! of pairs, and ask again when the transaction has written meanwhile.
//!
//! # Invariants
//! - A transaction that is committed or rolled back stays [`Failure::Ended`] for everybody.
//! - A page that was fetched before a write of the transaction is not shown after it:
//!   [`SharedTransaction::changes`] has counted the write by then.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gabion::{Db, Durability, Keyspace, Savepoint, Slice, Transaction, TransactionOptions};

use crate::{Failure, Result};

/// A transaction that several handles share.
#[derive(Clone)]
pub struct SharedTransaction {
    shared: Arc<Shared>,
}

struct Shared {
    open: Mutex<Option<Open>>,
    changes: AtomicU64,
}

struct Open {
    transaction: Transaction,
    /// The savepoints, each with the number that the caller has for it.
    savepoints: Vec<(u64, Savepoint)>,
    next_savepoint: u64,
}

impl SharedTransaction {
    /// Begins a transaction.
    ///
    /// # Errors
    /// As [`Db::begin_with`].
    pub fn begin(db: &Db, options: TransactionOptions) -> Result<SharedTransaction> {
        let open = Open {
            transaction: db.begin_with(options)?,
            savepoints: Vec::new(),
            next_savepoint: 1,
        };
        Ok(SharedTransaction {
            shared: Arc::new(Shared {
                open: Mutex::new(Some(open)),
                changes: AtomicU64::new(0),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        let open = &self.shared.open;
        // Who panicked has left the transaction as its own calls leave it.
        open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads with the transaction.
    ///
    /// # Errors
    /// [`Failure::Ended`], and those of `read`.
    pub fn read<T>(&self, read: impl FnOnce(&Transaction) -> gabion::Result<T>) -> Result<T> {
        let open = self.lock();
        let open = open.as_ref().ok_or(Failure::Ended)?;
        Ok(read(&open.transaction)?)
    }

    /// Writes with the transaction.
    ///
    /// # Errors
    /// [`Failure::Ended`], and those of `write`.
    pub fn write<T>(&self, write: impl FnOnce(&mut Transaction) -> gabion::Result<T>) -> Result<T> {
        let mut open = self.lock();
        let open = open.as_mut().ok_or(Failure::Ended)?;
        // ORDER: Relaxed; counted and compared under the lock, or by the thread that writes.
        self.shared.changes.fetch_add(1, Ordering::Relaxed);
        Ok(write(&mut open.transaction)?)
    }

    /// How often the transaction has written, or rolled back to a savepoint.
    pub fn changes(&self) -> u64 {
        // ORDER: Relaxed, as in `write`.
        self.shared.changes.load(Ordering::Relaxed)
    }

    /// Marks this moment, and returns the number by which [`SharedTransaction::rollback_to`] knows
    /// it.
    ///
    /// # Errors
    /// [`Failure::Ended`].
    pub fn savepoint(&self) -> Result<u64> {
        let mut open = self.lock();
        let open = open.as_mut().ok_or(Failure::Ended)?;
        let number = open.next_savepoint;
        open.next_savepoint += 1;
        let savepoint = open.transaction.savepoint();
        open.savepoints.push((number, savepoint));
        Ok(number)
    }

    /// Takes back what was written since a savepoint, which stays.
    ///
    /// # Errors
    /// [`Failure::Ended`]; [`gabion::Error::NoSuchSavepoint`].
    pub fn rollback_to(&self, number: u64) -> Result<()> {
        let mut open = self.lock();
        let open = open.as_mut().ok_or(Failure::Ended)?;
        let at = open.savepoints.iter().position(|(own, _)| *own == number);
        let at = at.ok_or(gabion::Error::NoSuchSavepoint)?;
        // ORDER: Relaxed, as in `write`.
        self.shared.changes.fetch_add(1, Ordering::Relaxed);
        open.transaction.rollback_to(open.savepoints[at].1)?;
        open.savepoints.truncate(at + 1);
        Ok(())
    }

    /// Commits; the transaction has ended then, with success or without.
    ///
    /// # Errors
    /// [`Failure::Ended`], and as [`Transaction::commit`].
    pub fn commit(&self, durability: Option<Durability>) -> Result<()> {
        let open = self.lock().take().ok_or(Failure::Ended)?;
        match durability {
            Some(durability) => open.transaction.commit_with(durability)?,
            None => open.transaction.commit()?,
        }
        Ok(())
    }

    /// Ends the transaction without an effect; whether it was open.
    pub fn rollback(&self) -> bool {
        self.lock().take().is_some()
    }

    /// Whether it is neither committed nor rolled back.
    pub fn is_open(&self) -> bool {
        self.lock().is_some()
    }

    /// Up to `count` pairs from an end of a range, which counts as read as far as they go.
    pub(crate) fn page(
        &self,
        keyspace: &Keyspace,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        is_backward: bool,
        count: usize,
    ) -> Result<Vec<(Slice, Slice)>> {
        self.read(|transaction| {
            let iter = transaction.range::<&[u8]>(keyspace, bounds);
            match is_backward {
                true => iter.rev().take(count).collect(),
                false => iter.take(count).collect(),
            }
        })
    }
}
