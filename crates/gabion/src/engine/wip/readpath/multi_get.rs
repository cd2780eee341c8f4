//! Gets of several keys at one moment, whose waits overlap.
//!
//! # Idea
//! A get is a chain of waits: for the line of a MemTable's directory and those of filters, for the
//! index of a table, for a block, which may be on the medium. The gets of a group go through the
//! chain together, one step for all of them and then the next, and each step first asks for what
//! the next one needs: lines of memory by prefetching, blocks by telling the system that they will
//! be read. So a group waits about as often as one get does. It needs no threads, and no ring of
//! requests: the system reads ahead on its own. Blocks that are mapped and were read before are
//! announced only when the system was found to drop such blocks (`residency`).
//!
//! A step asks again what the step before asked, which is then in the processor's caches; that is
//! cheaper than to keep the answers.
//!
//! # Linearization
//! The caller has registered the number to read at, so a state of a bucket holds what the number
//! needs whenever it is taken (see `readpath`).

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use super::{find_in_levels, find_in_memory, prefetch_in_levels, record_of};
use crate::engine::wip::bucket::BucketState;
use crate::engine::wip::table::Table;
use crate::engine::wip::{Wip, WipKeyspace};
use crate::expiry::{ReadPoint, StoredRecord};
use crate::types::{Kind, Seq, hash_key};
use crate::{Result, Slice};

/// Keys that go through the steps together: more than a processor has waits for memory under way
/// or a usual drive needs to be busy, few enough that their lines stay in the first-level cache.
const GROUP: usize = 32;

/// A key on its way.
struct Lookup<'k, S> {
    key: &'k [u8],
    hash: u64,
    state: S,
    /// The key's place among the results.
    position: usize,
}

impl<S: Deref<Target = Arc<BucketState>>> Lookup<'_, S> {
    /// The newest delete of a range with the key that a reader at `seq` sees.
    #[inline]
    fn deleted(&self, seq: Seq) -> Seq {
        self.state.deletes.newest(self.key, seq)
    }
}

impl Wip {
    /// The values of `keys` at `snapshot`, which is registered, in their order.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &WipKeyspace,
        keys: &[K],
        snapshot: ReadPoint,
    ) -> Result<Vec<Option<Slice>>> {
        keyspace.dropped.check_at(snapshot.seq)?;
        let mut values = vec![None; keys.len()];
        for (keys, values) in keys.chunks(GROUP).zip(values.chunks_mut(GROUP)) {
            self.get_group(keyspace, keys, snapshot, values)?;
        }
        Ok(values)
    }

    fn get_group<K: AsRef<[u8]>>(
        &self,
        keyspace: &WipKeyspace,
        keys: &[K],
        snapshot: ReadPoint,
        values: &mut [Option<Slice>],
    ) -> Result<()> {
        // Merges are asked for one by one in the end.
        let (is_merge, mut merges) = (Cell::new(false), Vec::new());
        let value_at = |found: Option<StoredRecord>| {
            let record = found?.at(|| snapshot.moment)?;
            if record.parts().0 == Kind::Merge {
                is_merge.set(true);
                return None;
            }
            Some(record.into_value())
        };
        let router = keyspace.router_at(snapshot.seq);
        let mut lookups = Vec::with_capacity(keys.len());
        for (position, key) in keys.iter().enumerate() {
            let key = key.as_ref();
            let hash = hash_key(key);
            let bucket = router.route(key);
            let state = bucket.state.load();
            state.active.prefetch(hash);
            prefetch_in_levels(&state.levels, key, hash);
            self.count_read(bucket);
            lookups.push(Lookup {
                key,
                hash,
                state,
                position,
            });
        }
        lookups.retain(|lookup| {
            let Lookup { key, hash, .. } = *lookup;
            let found = find_in_memory(&lookup.state, key, hash, snapshot.seq);
            if let Some(entry) = &found {
                values[lookup.position] = value_at(record_of(entry, lookup.deleted(snapshot.seq)));
                merges.extend(is_merge.take().then_some(lookup.position));
            }
            found.is_none()
        });
        for lookup in &lookups {
            for_candidates(&lookup.state, lookup.key, lookup.hash, |table| {
                table.prefetch_index(lookup.key);
            });
        }
        let lost = !lookups.is_empty() && self.residency.is_lost(|| is_first_in_memory(&lookups));
        for lookup in &lookups {
            for_candidates(&lookup.state, lookup.key, lookup.hash, |table| {
                table.will_need(lookup.key, lost);
            });
        }
        for lookup in &lookups {
            let Lookup { key, hash, .. } = *lookup;
            let deleted = lookup.deleted(snapshot.seq);
            let levels = &lookup.state.levels;
            let take = |record| value_at(Some(record));
            values[lookup.position] =
                find_in_levels(levels, (key, hash), snapshot.seq, deleted, take)?;
            merges.extend(is_merge.take().then_some(lookup.position));
        }
        for position in merges {
            values[position] = self.get(keyspace, keys[position].as_ref(), Some(snapshot))?;
        }
        Ok(())
    }
}

/// Whether the system still has the blocks of the first key that is looked for in tables.
#[cold]
fn is_first_in_memory<S: Deref<Target = Arc<BucketState>>>(lookups: &[Lookup<'_, S>]) -> bool {
    let mut known = true;
    if let Some(Lookup {
        key, hash, state, ..
    }) = lookups.first()
    {
        for_candidates(state, key, *hash, |table| known &= table.is_in_memory(key));
    }
    known
}

/// Calls `visit` for every open table whose filter lets the key pass. Tables that are not open yet
/// are opened when they are searched.
fn for_candidates(state: &BucketState, key: &[u8], hash: u64, mut visit: impl FnMut(&Table)) {
    for run in state.levels.runs() {
        if let Some(table) = run.table_for(key).and_then(|file| file.opened())
            && table.may_contain(hash)
        {
            visit(table);
        }
    }
}
