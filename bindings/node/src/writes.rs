//! Writes of a job: units in their order, and ranges that are deleted.
//!
//! Single writes that stand next to each other share a batch, and with it one frame of the log and
//! one sync. What one of them does wrong, such as a key that is too long, is told by itself. One
//! that is alone needs no batch: the store takes such writes of several threads side by side.

use gabion::{Durability, WriteBatch};
use gabion_bindings::range::{self, Bounds};
use gabion_bindings::{Reader, Result, SharedTransaction, Walk, guard};

use crate::job::Bytes;
use crate::packed::{Answers, Operation, Requests, Unit};
use crate::view::{Inner, durability};

/// Single writes share a batch until it has this many bytes.
const RUN_BYTES_MAX: u64 = 1 << 20;

/// How many keys that were read are deleted by one batch.
const CLEARED_KEYS_MAX: usize = 4096;

/// Single writes on their way.
struct Run<'a> {
    inner: &'a Inner,
    durability: Option<Durability>,
    batch: WriteBatch,
    /// How many of the last results are those of the batch.
    waiting: usize,
    results: Vec<Result<()>>,
}

impl Run<'_> {
    fn single(&mut self, operation: &Operation<'_>, is_last: bool) {
        let written = match &self.inner.transaction {
            Some(transaction) => Some(guard(|| self.inner.write_to(transaction, operation))),
            None if is_last && self.waiting == 0 => {
                Some(guard(|| self.inner.write_alone(operation, self.durability)))
            }
            None => None,
        };
        if let Some(written) = written {
            self.results.push(written);
            return;
        }
        match guard(|| self.inner.add(&mut self.batch, operation)) {
            Ok(()) => {
                self.results.push(Ok(()));
                self.waiting += 1;
                if self.batch.bytes() >= RUN_BYTES_MAX {
                    self.write();
                }
            }
            Err(failure) => {
                self.write();
                self.results.push(Err(failure));
            }
        }
    }

    fn whole(&mut self, operations: &[Operation<'_>]) {
        self.write();
        let written = guard(|| self.inner.write_whole(operations, self.durability));
        self.results.push(written);
    }

    /// Writes the batch.
    fn write(&mut self) {
        if !self.batch.is_empty() {
            let written = guard(|| self.inner.write(&self.batch, self.durability));
            let own = self.results.len() - self.waiting;
            self.results[own..].fill(written);
            self.batch.clear();
            self.waiting = 0;
        }
    }
}

impl Inner {
    /// Writes units, and answers each of them if one has failed.
    pub(crate) fn write_units(&self, packed: &[u8], is_sync: bool) -> Result<Option<Bytes>> {
        let mut units = Requests::new(packed);
        let mut run = Run {
            inner: self,
            durability: durability(is_sync),
            batch: WriteBatch::new(),
            waiting: 0,
            results: Vec::new(),
        };
        while !units.is_empty() {
            match units.unit()? {
                Unit::Single(operation) => run.single(&operation, units.is_empty()),
                Unit::Batch(count) => run.whole(&units.operations(count)?),
            }
        }
        run.write();
        if run.results.iter().all(Result::is_ok) {
            return Ok(None);
        }
        let mut answers = Answers::of(run.results.len());
        for result in &run.results {
            match result {
                Ok(()) => answers.add(None),
                Err(failure) => answers.add_failure(failure),
            }
        }
        Ok(Some(Bytes(answers.into_bytes())))
    }

    fn write_alone(&self, operation: &Operation<'_>, durability: Option<Durability>) -> Result<()> {
        let keyspace = &self.keyspace;
        match (operation, durability) {
            (Operation::Put(key, value), None) => keyspace.put(key, value)?,
            (Operation::Put(key, value), Some(level)) => keyspace.put_with(key, value, level)?,
            (Operation::Delete(key), None) => keyspace.delete(key)?,
            (Operation::Delete(key), Some(level)) => keyspace.delete_with(key, level)?,
        }
        Ok(())
    }

    fn write(&self, batch: &WriteBatch, durability: Option<Durability>) -> Result<()> {
        match durability {
            Some(durability) => self.db.write_with(batch, durability)?,
            None => self.db.write(batch)?,
        }
        Ok(())
    }

    fn add(&self, batch: &mut WriteBatch, operation: &Operation<'_>) -> Result<()> {
        match operation {
            Operation::Put(key, value) => batch.put(&self.keyspace, key, value)?,
            Operation::Delete(key) => batch.delete(&self.keyspace, key)?,
        }
        Ok(())
    }

    fn write_to(&self, transaction: &SharedTransaction, operation: &Operation<'_>) -> Result<()> {
        transaction.write(|own| match operation {
            Operation::Put(key, value) => own.put(&self.keyspace, key, value),
            Operation::Delete(key) => own.delete(&self.keyspace, key),
        })
    }

    /// Writes operations, all of them or none.
    fn write_whole(
        &self,
        operations: &[Operation<'_>],
        durability: Option<Durability>,
    ) -> Result<()> {
        let Some(transaction) = &self.transaction else {
            let mut batch = WriteBatch::new();
            for operation in operations {
                self.add(&mut batch, operation)?;
            }
            return self.write(&batch, durability);
        };
        let savepoint = transaction.savepoint()?;
        let written = operations
            .iter()
            .try_for_each(|operation| self.write_to(transaction, operation));
        if written.is_err() {
            transaction.rollback_to(savepoint)?;
        }
        written
    }

    /// Deletes all keys of a range.
    pub(crate) fn delete_range(&self, bounds: Bounds, is_sync: bool) -> Result<()> {
        if range::is_empty(&bounds) {
            return Ok(());
        }
        let keyspace = &self.keyspace;
        match (&self.transaction, durability(is_sync)) {
            (Some(transaction), _) => {
                transaction.write(|own| own.delete_range::<Vec<u8>>(keyspace, bounds))?;
            }
            (None, Some(level)) => keyspace.delete_range_with::<Vec<u8>>(bounds, level)?,
            (None, None) => keyspace.delete_range::<Vec<u8>>(bounds)?,
        }
        Ok(())
    }

    /// Deletes the keys of a range that a reader sees, up to a limit.
    pub(crate) fn delete_read(
        &self,
        reader: Reader,
        bounds: Bounds,
        is_reversed: bool,
        limit: Option<u32>,
        is_sync: bool,
    ) -> Result<()> {
        let mut walk = Walk::new(&self.db, &self.keyspace, reader, bounds);
        let mut left = limit.map_or(u64::MAX, u64::from);
        let mut is_there = match is_reversed {
            true => walk.last()?,
            false => walk.first()?,
        };
        while is_there && left > 0 {
            let mut keys = Vec::new();
            while is_there && left > 0 && keys.len() < CLEARED_KEYS_MAX {
                keys.push(walk.key().to_vec());
                left -= 1;
                is_there = match is_reversed {
                    true => walk.back()?,
                    false => walk.forward()?,
                };
            }
            let deletes: Vec<_> = keys.iter().map(|key| Operation::Delete(key)).collect();
            self.write_whole(&deletes, durability(is_sync))?;
        }
        Ok(())
    }
}
