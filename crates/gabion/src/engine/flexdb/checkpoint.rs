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

use super::{Flex, Keyspace, Scan, Write};
use crate::engine::ssd::{Commit, Lifecycle};
use crate::log::BatchEncoder;
use crate::options::Durability;
use crate::sizes::TABLES_MOST;
use crate::types::{Kind, Seq};
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
        let seq = self.begin_snapshot();
        let copied = self.copy_keyspaces(&copy, seq);
        self.end_snapshot(seq);
        // DURABLE: a store that is closed is on the medium.
        let closed = copy.close();
        let result = copied.and(closed);
        result.map_err(|error| copy.health.told_by_another(error))
    }

    /// Writes all pairs at a registered number to another store.
    fn copy_keyspaces(self: &Arc<Flex>, copy: &Flex, seq: Seq) -> Result<()> {
        let keyspaces = self.keyspaces.load();
        let all = keyspaces.iter().chain(keyspaces.leaving());
        for keyspace in all.filter(|keyspace| keyspace.dropped.check_at(seq).is_ok()) {
            let twin = copy.create_keyspace(&keyspace.name)?;
            self.copy_pairs(keyspace, copy, &twin, seq)?;
        }
        Ok(())
    }

    fn copy_pairs(
        self: &Arc<Flex>,
        keyspace: &Arc<Keyspace>,
        copy: &Flex,
        twin: &Keyspace,
        seq: Seq,
    ) -> Result<()> {
        self.share_snapshot(seq);
        let store = Arc::<Flex>::clone(self);
        let mut scan = Scan::new(store, keyspace, seq, Bound::Unbounded, Bound::Unbounded);
        let (mut batch, mut user_bytes) = (BatchEncoder::default(), 0);
        loop {
            let is_pair = scan.advance()?;
            if is_pair {
                let (key, value) = (scan.key(), scan.value_bytes());
                user_bytes += (key.len() + value.len()) as u64;
                batch.op(Kind::Put, twin.id, key, value);
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
