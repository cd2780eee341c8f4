//! A single write, and what makes writes durable.

use std::sync::atomic::Ordering;

use gabion_media::pmem::PoolClass;

use super::{Flushed, Mapped, OpenPool, PoolStore, Write, layout};
use crate::options::Durability;
use crate::types::Kind;
use crate::{Error, Result};

/// Without threads, one of so many writes does the background's work.
const WRITES_UNATTENDED: u64 = 256;

/// What an operation does to a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyChange<'a> {
    pub(super) keyspace: u32,
    pub(super) kind: Kind,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

impl KeyChange<'_> {
    /// An error if the engine cannot do it.
    pub(super) fn check<S: PoolStore>(&self) -> Result<()> {
        let can = S::ENGINE.capabilities();
        if self.kind == Kind::DeleteRange && !can.ordered {
            return Err(Mapped::<S>::unsupported("deletes of ranges"));
        }
        if matches!(self.kind, Kind::Merge | Kind::Operand) {
            return Err(Mapped::<S>::unsupported("merges; use updates"));
        }
        if self.kind == Kind::PutExpiring {
            return Err(Mapped::<S>::unsupported("records that expire"));
        }
        let (size, limit) = (self.value.len() as u64, can.value_bytes_max);
        if size > limit {
            let what = "value";
            return Err(Error::Limit { what, size, limit });
        }
        Ok(())
    }

    /// Bytes of key and value in the pool.
    pub(super) fn pool_bytes(&self) -> u64 {
        let head = layout::with_key(self.keyspace, &[], <[u8]>::len);
        (head + self.key.len() + self.value.len()) as u64
    }

    pub(super) fn apply<S: PoolStore>(&self, opened: &OpenPool<S>, flushed: Flushed) -> Result<()> {
        layout::with_key(self.keyspace, self.key, |key| match self.kind {
            // What expires was refused, and so was what is merged.
            Kind::Put | Kind::PutExpiring | Kind::Merge | Kind::Operand => {
                opened.put(key, self.value, flushed)
            }
            Kind::Delete => opened.delete(key),
            Kind::DeleteRange => {
                let end = layout::end_of(self.keyspace, self.value);
                opened.told(opened.store.delete_range(key, &end))
            }
        })
    }
}

impl<S: PoolStore> Mapped<S> {
    /// Performs a write of so many bytes of keys and values.
    ///
    /// Takes effect where the structure in the pool says; durable as the head of this module says.
    /// If a checkpoint fails, the write is not acknowledged, but may have taken effect.
    pub(crate) fn write(&self, write: Write<'_>, user_bytes: u64, sync: bool) -> Result<()> {
        self.health.check_writable()?;
        self.with(|opened| {
            opened.check_space()?;
            if sync && !opened.can_sync() {
                return Err(Self::unsupported(
                    "synced writes to a store without a checkpoint",
                ));
            }
            // On persistent memory a sync is a fence, which changes nothing.
            let is_checkpointed = sync && opened.pool.class() == PoolClass::PowerBySync;
            let stay = is_checkpointed.then(|| self.stay()).transpose()?;
            match write {
                Write::Single {
                    keyspace,
                    kind,
                    key,
                    value,
                } => {
                    let change = KeyChange {
                        keyspace: keyspace.id,
                        kind,
                        key,
                        value,
                    };
                    self.write_one(opened, change, sync)?;
                }
                Write::Batch(operations) => self.write_batch(opened, operations)?,
                Write::Transaction(..) => return Err(Self::unsupported("transactions")),
            }
            if sync {
                self.sync(opened)?;
            }
            drop(stay);
            self.counters.count_write(user_bytes);
            self.work_inline(opened);
            Ok(())
        })
    }

    #[inline]
    pub(super) fn write_one(
        &self,
        opened: &OpenPool<S>,
        change: KeyChange<'_>,
        sync: bool,
    ) -> Result<()> {
        if change.kind == Kind::DeleteRange {
            return self.write_range_delete(opened, change);
        }
        change.check::<S>()?;
        let _pass = self.gate.pass();
        self.health.check_writable()?;
        let flushed = if sync {
            Flushed::Strict
        } else {
            Flushed::Relaxed
        };
        change.apply(opened, flushed)
    }

    /// Makes durable all that was written before this call, where that can be; on persistent memory
    /// what this thread has written, if its last write was strict or a delete.
    pub(super) fn sync(&self, opened: &OpenPool<S>) -> Result<()> {
        match opened.can_sync() {
            // DURABLE: by a checkpoint, which has all that is in the pool; on persistent memory it
            // is already.
            true => opened
                .pool
                .sync()
                .map_err(|error| self.fail(Error::from(error))),
            false => Ok(()),
        }
    }

    /// Brings everything acknowledged to a durability.
    pub(crate) fn persist(&self, durability: Durability) -> Result<()> {
        let _stay = self.stay()?;
        self.health.check()?;
        self.with(|opened| match durability {
            Durability::Buffered => Ok(()),
            Durability::Sync if !opened.can_sync() => Err(Self::unsupported(
                "synced writes to a store without a checkpoint",
            )),
            Durability::Sync | Durability::Interval(_) => {
                opened.persist().map_err(|error| self.fail(error))
            }
        })
    }

    /// Nothing waits in memory: makes everything durable, as far as that can be.
    pub(crate) fn flush(&self) -> Result<()> {
        self.persist(Durability::default())
    }

    /// Does the background's work now and then, for a store without threads.
    #[inline]
    pub(super) fn work_inline(&self, opened: &OpenPool<S>) {
        if self.options.background_threads > 0 {
            return;
        }
        // ORDER: Relaxed: any of the writers will do.
        let unattended = self.unattended.fetch_add(1, Ordering::Relaxed);
        if !unattended.is_multiple_of(WRITES_UNATTENDED) {
            return;
        }
        // The write is done; what fails here fails for whoever needs it as well, and is told there.
        while self.step(opened).unwrap_or(false) {}
    }

    /// Does a piece of the background's work; false if none is due. A close waits for no more than
    /// that.
    fn step(&self, opened: &OpenPool<S>) -> Result<bool> {
        let _stay = self.stay()?;
        opened.told(opened.store.work())
    }

    /// Waits until no background work is due.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.with(|opened| {
            while opened.shortage.is_none() && self.step(opened)? {}
            Ok(())
        })
    }

    /// Gives back what space of deleted and overwritten pairs can be given back, of all keyspaces,
    /// whatever the range.
    pub(crate) fn compact_range(
        &self,
        _keyspace: &super::MappedKeyspace,
        _lower: &[u8],
        _upper: Option<&[u8]>,
    ) -> Result<()> {
        let _stay = self.stay()?;
        self.health.check_writable()?;
        self.with(|opened| {
            opened.check_space()?;
            let stops = || self.health.check_open().is_err();
            opened.told(opened.store.compact(&stops))
        })?;
        self.health.check_open()
    }
}
