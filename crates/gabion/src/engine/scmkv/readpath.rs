//! Gets and walks: without locks, and never a part of a batch.

use std::cell::RefCell;
use std::sync::Arc;

use gabion_index::scmkv::Entry;

use super::{Keyspace, Opened, ScmStore, layout, unsupported};
use crate::types::Seq;
use crate::{Result, Slice};

/// Memory that a thread keeps for the values that it reads, in bytes.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl ScmStore {
    /// The value of a key now.
    #[inline]
    pub(crate) fn get(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        snapshot: Option<Seq>,
    ) -> Result<Option<Slice>> {
        if snapshot.is_some() {
            return Err(unsupported("snapshots"));
        }
        self.with(|opened| self.gate.read(|| opened.find(keyspace.id, key)))
    }

    /// The values of several keys now: all of them before each batch, or after it.
    pub(crate) fn multi_get_now<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>> {
        let find = |opened: &Opened| {
            keys.iter()
                .map(|key| opened.find(keyspace.id, key.as_ref()))
                .collect()
        };
        self.with(|opened| self.gate.read(|| find(opened)))
    }

    /// There is no snapshot to read at.
    #[expect(clippy::unused_self, reason = "as the other engines have it")]
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        _keyspace: &Keyspace,
        _keys: &[K],
        _snapshot: Seq,
    ) -> Result<Vec<Option<Slice>>> {
        Err(unsupported("snapshots"))
    }

    /// A walk through all pairs of a keyspace.
    pub(crate) fn walk(self: &Arc<Self>, keyspace: &Keyspace) -> Walk {
        Walk {
            engine: Arc::clone(self),
            keyspace: keyspace.id,
            from: Some(0),
            entries: Vec::new(),
        }
    }
}

impl Opened {
    #[inline]
    fn find(&self, keyspace: u32, key: &[u8]) -> Result<Option<Slice>> {
        SCRATCH.with_borrow_mut(|value| {
            value.clear();
            let found = layout::with_key(keyspace, key, |key| self.store.get_into(key, value));
            let found = match found {
                Ok(true) => Some(Slice::new(value)),
                Ok(false) => None,
                Err(error) => return Err(self.error(error)),
            };
            if value.capacity() > SCRATCH_BYTES_MAX {
                *value = Vec::new();
            }
            Ok(found)
        })
    }
}

/// A walk through all pairs of a keyspace, bucket by bucket of the hash table. Costs a look at all
/// pairs of the store. It takes the pool for each bucket anew, so that it does not keep it from
/// being closed.
pub(crate) struct Walk {
    engine: Arc<ScmStore>,
    keyspace: u32,
    /// Where the next entries begin.
    from: Option<u64>,
    entries: Vec<Entry>,
}

impl Walk {
    /// The next pair.
    pub(crate) fn next(&mut self) -> Result<Option<(Slice, Slice)>> {
        loop {
            while let Some((key, value)) = self.entries.pop() {
                if let Some(key) = layout::key_of(self.keyspace, &key) {
                    return Ok(Some((Slice::new(key), Slice::new(&value))));
                }
            }
            let Some(from) = self.from.take() else {
                return Ok(None);
            };
            (self.entries, self.from) = self.engine.with(|opened| {
                let found = opened.store.entries_from(from);
                found.map_err(|error| opened.error(error))
            })?;
        }
    }
}
