//! A checkpoint: the store as it is at a moment, as a store of its own in another directory.
//!
//! Spaces are changed in place, so their files cannot be shared between two stores. The pairs of a
//! snapshot are written to a new store in the order of their keys, which leaves it without garbage
//! and costs about twice the live bytes: its log and its spaces. What fails is the copy: this store
//! goes on, and the error is what happened to the copy first.
//!
//! The new store is one from its first moment on, with a part of the pairs: that it is not whole is
//! told by the mark of its directory (`new_dir`).

use std::ops::Bound;
use std::sync::Arc;

use gabion_media::Disk;

use super::{Flex, FlexKeyspace, FlexScan, Write};
use crate::engine::ssd::{CommitWrites, Lifecycle};
use crate::expiry::ReadPoint;
use crate::log::BatchEncoder;
use crate::options::Durability;
use crate::sizes::TABLES_MOST;
use crate::{Options, Result, Tuning};

/// Memory for the MemTables of the new store, which takes keys in order.
const MEMTABLE_BYTES: u64 = 16 << 20;
/// Bytes of pairs that are written at a time.
const BATCH_BYTES: usize = 256 << 10;

impl Flex {
    /// Writes the store as it is now to an empty directory.
    pub(crate) fn checkpoint(self: &Arc<Flex>, target: &Disk) -> Result<()> {
        self.health.check_writable()?;
        let memtables = MEMTABLE_BYTES.min(self.options.memtable_budget());
        let options = Options {
            create_if_missing: true,
            error_if_exists: true,
            durability: Durability::Buffered,
            memory_bytes_max: self.options.memory_ceiling().min(memtables + TABLES_MOST),
            tuning: Tuning {
                memtable_budget_bytes: Some(memtables),
                cache_bytes: Some(0),
                ..self.options.tuning.clone()
            },
            ..self.options.clone()
        };
        let copy = Flex::open(target.clone(), options)?;
        let point = self.begin_snapshot();
        copy.moments.raise(point.moment);
        let copied = self.copy_keyspaces(&copy, point);
        self.end_snapshot(point);
        // DURABLE: a store that is closed is on the medium.
        let closed = copy.close();
        let result = copied.and(closed);
        result.map_err(|error| copy.health.as_error_of_copy(error))
    }

    /// Writes all pairs at a registered point to another store.
    fn copy_keyspaces(self: &Arc<Flex>, copy: &Flex, point: ReadPoint) -> Result<()> {
        let keyspaces = self.keyspaces.load();
        let all = keyspaces.iter().chain(keyspaces.leaving());
        for keyspace in all.filter(|keyspace| keyspace.dropped.check_at(point.seq).is_ok()) {
            let twin = copy.keyspace_with(&keyspace.name, Some(&keyspace.own.get()))?;
            self.copy_pairs(keyspace, copy, &twin, point)?;
        }
        Ok(())
    }

    fn copy_pairs(
        self: &Arc<Flex>,
        keyspace: &Arc<FlexKeyspace>,
        copy: &Flex,
        twin: &FlexKeyspace,
        point: ReadPoint,
    ) -> Result<()> {
        self.share_snapshot(point);
        let store = Arc::<Flex>::clone(self);
        let mut scan = FlexScan::new(store, keyspace, point, Bound::Unbounded, Bound::Unbounded);
        let (mut batch, mut user_bytes) = (BatchEncoder::default(), 0);
        loop {
            let is_pair = scan.advance()?;
            if is_pair {
                let (key, (kind, stored)) = (scan.key(), scan.stored());
                user_bytes += (key.len() + stored.len()) as u64;
                batch.op(kind, twin.id, key, stored);
            }
            let full = !is_pair || batch.bytes().len() >= BATCH_BYTES;
            if full && !batch.is_empty() {
                copy.write(Write::Batch(&batch), user_bytes, false)?;
                batch.clear();
                user_bytes = 0;
            }
            if !is_pair {
                return Ok(());
            }
        }
    }
}
