//! Updates: a value becomes what a closure makes of it, with everybody else kept out.

use gabion_media::pmem::PoolClass;

use super::writepath::KeyChange;
use super::{Flushed, Mapped, MappedKeyspace, PoolStore};
use crate::Result;
use crate::engine::write::Update;
use crate::expiry::StoredRecord;
use crate::limits::check_limits;
use crate::types::Kind;

impl<S: PoolStore> Mapped<S> {
    /// Changes the value of a key to what `change` makes of it, where `None` stands for no value,
    /// and returns the one that it had. Keeps all other writers out as a batch does.
    pub(crate) fn update(
        &self,
        keyspace: &MappedKeyspace,
        key: &[u8],
        change: Update<'_>,
        sync: bool,
    ) -> Result<Option<StoredRecord>> {
        self.health.check_writable()?;
        self.with(|opened| {
            opened.check_space()?;
            if sync && !opened.can_sync() {
                return Err(Self::unsupported(
                    "synced writes to a store without a checkpoint",
                ));
            }
            let is_checkpointed = sync && opened.pool.class() == PoolClass::PowerBySync;
            let _stay = is_checkpointed.then(|| self.stay()).transpose()?;
            let alone = self.gate.close();
            self.health.check_writable()?;
            let old = opened.find(keyspace.id, key)?;
            let old = old.map(|value| StoredRecord::new(Kind::Put, value));
            let changed = change(old.as_ref().map(StoredRecord::value));
            let Some((kind, value)) = changed.as_write(old.as_ref()) else {
                return Ok(old);
            };
            check_limits(key, &value)?;
            let change = KeyChange {
                keyspace: keyspace.id,
                kind,
                key,
                value: &value,
            };
            change.check::<S>()?;
            let flushed = if sync {
                Flushed::Strict
            } else {
                Flushed::Relaxed
            };
            change.apply(opened, flushed)?;
            drop(alone);
            if sync {
                self.sync(opened)?;
            }
            self.counters.count_write((key.len() + value.len()) as u64);
            self.work_inline(opened);
            Ok(old)
        })
    }
}
