//! A single write, and what makes writes durable.

use std::sync::atomic::Ordering;

use gabion_index::scmkv::Durability as Flushed;

use super::{Opened, ScmStore, VALUE_BYTES_MAX, Write, layout, unsupported};
use crate::options::Durability;
use crate::types::Kind;
use crate::{Error, Result};

/// Without threads, one of so many writes does the background's work.
const WRITES_UNATTENDED: u64 = 256;

/// What an operation does to a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) keyspace: u32,
    pub(super) kind: Kind,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

impl Change<'_> {
    /// An error if the engine cannot do it.
    pub(super) fn check(&self) -> Result<()> {
        if self.kind == Kind::DeleteRange {
            return Err(unsupported("deletes of ranges"));
        }
        let size = self.value.len() as u64;
        if size > VALUE_BYTES_MAX {
            return Err(Error::Limit {
                what: "value",
                size,
                limit: VALUE_BYTES_MAX,
            });
        }
        Ok(())
    }

    pub(super) fn apply(&self, opened: &Opened, flushed: Flushed) -> Result<()> {
        layout::with_key(self.keyspace, self.key, |key| match self.kind {
            Kind::Put => opened.put(key, self.value, flushed),
            Kind::Delete | Kind::DeleteRange => opened.delete(key),
        })
    }
}

impl ScmStore {
    /// Performs a write of so many bytes of keys and values.
    ///
    /// Takes effect at the store of a word in the hash table; durable as the engine's head says. If
    /// a checkpoint fails, the write is not acknowledged, but may have taken effect.
    pub(crate) fn write(&self, write: Write<'_>, user_bytes: u64, sync: bool) -> Result<()> {
        self.health.check_writable()?;
        self.with(|opened| {
            if sync && !opened.can_sync() {
                return Err(unsupported("synced writes without a checkpoint"));
            }
            match write {
                Write::Single {
                    keyspace,
                    kind,
                    key,
                    value,
                } => {
                    let keyspace = keyspace.id;
                    self.write_one(
                        opened,
                        Change {
                            keyspace,
                            kind,
                            key,
                            value,
                        },
                        sync,
                    )?;
                }
                Write::Batch(operations) => self.write_batch(opened, operations, user_bytes)?,
            }
            if sync {
                self.sync(opened)?;
            }
            self.counters.count_write(user_bytes);
            self.work_inline(opened)
        })
    }

    #[inline]
    pub(super) fn write_one(&self, opened: &Opened, change: Change<'_>, sync: bool) -> Result<()> {
        change.check()?;
        let _pass = self.gate.pass();
        self.health.check_writable()?;
        let flushed = if sync {
            Flushed::Strict
        } else {
            Flushed::Relaxed
        };
        change.apply(opened, flushed)
    }

    /// Makes durable what strict puts and deletes before this call have written, where that can be.
    pub(super) fn sync(&self, opened: &Opened) -> Result<()> {
        match opened.can_sync() {
            // DURABLE: by a checkpoint; on persistent memory it is already.
            true => opened
                .pool
                .sync()
                .map_err(|error| self.fail(Error::from(error))),
            false => Ok(()),
        }
    }

    /// Brings everything acknowledged to a durability.
    pub(crate) fn persist(&self, durability: Durability) -> Result<()> {
        self.health.check_writable()?;
        self.with(|opened| match durability {
            Durability::Buffered => Ok(()),
            Durability::Sync if !opened.can_sync() => {
                Err(unsupported("synced writes without a checkpoint"))
            }
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
    fn work_inline(&self, opened: &Opened) -> Result<()> {
        if self.options.background_threads > 0 {
            return Ok(());
        }
        // ORDER: Relaxed: any of the writers will do.
        let unattended = self.unattended.fetch_add(1, Ordering::Relaxed);
        if !unattended.is_multiple_of(WRITES_UNATTENDED) {
            return Ok(());
        }
        // The write is done; what fails here fails for whoever needs it as well, and is told there.
        while opened.store.work().unwrap_or(false) {}
        Ok(())
    }

    /// Waits until no background work is due.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.with(|opened| {
            while opened.store.work().map_err(|error| opened.error(error))? {}
            Ok(())
        })
    }

    /// Empties all pages that hold garbage now. The range is that of all keys.
    pub(crate) fn compact_range(
        &self,
        _keyspace: &super::Keyspace,
        _lower: &[u8],
        _upper: Option<&[u8]>,
    ) -> Result<()> {
        self.health.check_writable()?;
        self.with(|opened| {
            // Writers make garbage meanwhile, without end.
            for _ in 0..2 * opened.store.stats().pages {
                let collected = opened.store.collect_garbage();
                if collected.map_err(|error| opened.error(error))?.pages == 0 {
                    break;
                }
            }
            Ok(())
        })
    }
}
