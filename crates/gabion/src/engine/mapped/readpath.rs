//! Gets: without locks, and never a part of a batch.

use std::cell::RefCell;

use super::{Mapped, MappedKeyspace, OpenPool, PoolStore, layout};
use crate::expiry::ReadPoint;
use crate::{Error, Result, Slice};

/// Memory that a thread keeps for the values that it reads, in bytes.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<S: PoolStore> Mapped<S> {
    /// Reads something of what is open, before each batch or after it. It may be read again. An
    /// error if a batch has failed in the middle: the next opening completes it.
    #[inline]
    pub(in crate::engine) fn read<R>(
        &self,
        mut read: impl FnMut(&OpenPool<S>) -> Result<R>,
    ) -> Result<R> {
        self.health.check_here()?;
        self.with(|opened| {
            let found = self.gate.read(|| read(opened));
            found.unwrap_or_else(|| Err(self.partial_batch_error()))
        })
    }

    #[cold]
    fn partial_batch_error(&self) -> Error {
        let cause = self.health.failure().unwrap_or("the batch did not finish");
        Error::ReadOnly {
            cause: format!("a batch was written in part, so nothing can be read: {cause}"),
        }
    }

    /// The value of a key now.
    #[inline]
    pub(crate) fn get(
        &self,
        keyspace: &MappedKeyspace,
        key: &[u8],
        snapshot: Option<ReadPoint>,
    ) -> Result<Option<Slice>> {
        if snapshot.is_some() {
            return Err(Self::unsupported("snapshots"));
        }
        self.read(|opened| opened.find(keyspace.id, key))
    }

    /// The values of several keys now: all of them before each batch, or after it.
    pub(crate) fn multi_get_now<K: AsRef<[u8]>>(
        &self,
        keyspace: &MappedKeyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>> {
        self.read(|opened| {
            keys.iter()
                .map(|key| opened.find(keyspace.id, key.as_ref()))
                .collect()
        })
    }

    /// There is no snapshot to read at.
    #[expect(clippy::unused_self, reason = "as the other engines have it")]
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        _keyspace: &MappedKeyspace,
        _keys: &[K],
        _snapshot: ReadPoint,
    ) -> Result<Vec<Option<Slice>>> {
        Err(Self::unsupported("snapshots"))
    }
}

impl<S: PoolStore> OpenPool<S> {
    #[inline]
    pub(super) fn find(&self, keyspace: u32, key: &[u8]) -> Result<Option<Slice>> {
        SCRATCH.with_borrow_mut(|value| {
            value.clear();
            let found = layout::with_key(keyspace, key, |key| self.store.get_into(key, value));
            let found = match found {
                Ok(true) => Some(Slice::new(value)),
                Ok(false) => None,
                Err(error) => return self.told(Err(error)),
            };
            if value.capacity() > SCRATCH_BYTES_MAX {
                *value = Vec::new();
            }
            Ok(found)
        })
    }
}
