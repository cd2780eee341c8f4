//! Split: a full bucket becomes several (paper, section 2.3.5).
//!
//! # Idea
//! The pivots follow the sample-sort rule: each table names the keys that cut it evenly, all
//! candidates are sorted together, and the ones that cut that list evenly are taken, each weighted
//! by the bytes it stands for.
//!
//! A split writes no data. The new buckets refer to the old one's tables, each to the slice that
//! lies in its range, and share its MemTable until that is flushed; new writes go to new MemTables
//! at once, and there is no old bucket to read from any more. Compaction then turns each bucket's
//! slices into one table of its own, which is the one rewrite that the paper's bound counts.
//!
//! How many buckets: as many as leave each an `N`-th of the bucket size, by the estimate of what a
//! full compaction would leave. A bucket full of hidden versions is compacted in place instead, so
//! that updates of a fixed set of keys never breed tiny buckets.
//!
//! # Crash safety
//! One group of edits exchanges the bucket for its children. A log record is routed by key at
//! replay, so it finds its bucket whether it was written before or after.

use std::sync::Arc;

use super::bucket::{Bucket, BucketState, Router};
use super::file::TableFile;
use super::manifest::Edit;
use super::reads::Reads;
use super::table::Sketch;
use super::{Keyspace, Wip};
use crate::Result;

impl Wip {
    /// The bytes of a bucket's tables; of a shared table the part in the bucket's range.
    pub(super) fn bytes(bucket: &Bucket, state: &BucketState) -> Result<u64> {
        let mut bytes = 0;
        for file in state.levels.files() {
            bytes += slice_bytes(bucket, file)?;
        }
        Ok(bytes)
    }

    /// How much of a bucket of that many bytes a full compaction would leave, by the tables'
    /// sketches of their distinct keys.
    pub(super) fn live_bytes(state: &BucketState, bytes: u64) -> u64 {
        let mut entries = 0;
        let mut sketch = Sketch::default();
        for file in state.levels.files() {
            entries += file.meta.entries;
            sketch.merge(&file.meta.sketch);
        }
        let distinct = sketch.estimate().min(entries);
        match entries {
            0 => 0,
            entries => {
                let live = u128::from(bytes) * u128::from(distinct) / u128::from(entries);
                u64::try_from(live).unwrap_or(bytes)
            }
        }
    }

    /// Cuts a bucket that the caller has reserved into at most `ways`, unless there are too many by
    /// then; false when its tables offer no key to cut at.
    pub(super) fn split(
        &self,
        keyspace: &Arc<Keyspace>,
        bucket: &Arc<Bucket>,
        ways: usize,
    ) -> Result<bool> {
        let pivots = pivots(bucket, &bucket.state.load(), ways)?;
        if pivots.is_empty() {
            return Ok(false);
        }
        let mut versions = self.versions.lock();
        // Others may have split meanwhile. Then there is less room; how much is looked at again.
        if pivots.len() >= self.split_ways_max() {
            return Ok(true);
        }
        let state = bucket.state.load_full();
        let flushed_seq = versions.flushed_seq(bucket.id);
        let mut children = Vec::with_capacity(pivots.len() + 1);
        let mut edits = vec![Edit::RemoveBucket { id: bucket.id }];
        let lowers = std::iter::once(bucket.lower()).chain(pivots.iter().map(Vec::as_slice));
        let uppers = pivots
            .iter()
            .map(|key| Some(key.as_slice()))
            .chain([bucket.upper()]);
        for (lower, upper) in lowers.zip(uppers) {
            let id = versions.take_bucket_id();
            let mut child = Bucket::new(id, lower, upper, BucketState::clone(&state));
            child.reads = Reads::of_part(&bucket.reads, pivots.len() + 1);
            let levels = state.levels.within(&child);
            edits.push(Edit::AddBucket {
                id,
                keyspace: keyspace.id,
                lower: lower.to_vec(),
                flushed_seq,
            });
            for level in 0..levels.depth() {
                for run in levels.level(level) {
                    for file in run.tables.iter() {
                        let file = file.meta.file;
                        let level = u8::try_from(level).expect("there are a few levels");
                        edits.push(Edit::AddTable {
                            bucket: id,
                            level,
                            run: run.number,
                            file,
                        });
                    }
                }
            }
            children.push((child, Arc::new(levels)));
        }
        edits.push(versions.next_bucket_edit());
        self.apply(&mut versions, &edits)?;

        // No writer may be about to insert into the bucket that is replaced.
        let alone = self.leader.write();
        let mut install = self.lock_install();
        let demanded = bucket.demand.is_asked();
        // Since the state was cloned above only MemTables can have changed: tables change with
        // the manifest locked, which it has been all along.
        let state = bucket.state.load_full();
        let frozen = self.queue_frozen(&mut install, keyspace, bucket, &state);
        let share = state.active.keys() / children.len();
        let children = children.into_iter().map(|(child, levels)| {
            if demanded {
                child.demand.ask();
            }
            let common = child.common_prefix_len();
            child.state.store(Arc::new(BucketState {
                active: self.new_memtable(&state.active, common, share),
                frozen: frozen.clone(),
                levels,
                deletes: state.deletes.clone(),
            }));
            Arc::new(child)
        });
        let router = keyspace.router.load_full();
        let mut buckets = Vec::with_capacity(router.buckets().len() + pivots.len());
        let mut children = Some(children);
        for other in router.buckets() {
            match other.id == bucket.id {
                true => buckets.extend(children.take().into_iter().flatten()),
                false => buckets.push(Arc::clone(other)),
            }
        }
        keyspace.router.store(Arc::new(Router::new(buckets)));
        // Readers that hold the old router compare states: they notice, and route again.
        bucket.state.store(Arc::new(BucketState::clone(&state)));
        drop(install);
        drop(alone);
        drop(versions);
        self.counters.splits.add(1);
        tracing::debug!(
            bucket = bucket.id,
            ways = pivots.len() + 1,
            "split a bucket"
        );
        Ok(true)
    }
}

/// The bytes of a table; of a shared table the part in the bucket's range.
pub(super) fn slice_bytes(bucket: &Bucket, file: &TableFile) -> Result<u64> {
    Ok(
        match bucket.contains(&file.meta.smallest, &file.meta.largest) {
            true => file.meta.file_bytes,
            false => file.table()?.bytes_between(bucket.lower(), bucket.upper()),
        },
    )
}

/// The sample-sort rule: at most `ways - 1` keys that cut the bucket's tables into even parts.
fn pivots(bucket: &Bucket, state: &BucketState, ways: usize) -> Result<Vec<Vec<u8>>> {
    let mut candidates: Vec<(Vec<u8>, u64)> = Vec::new();
    for file in state.levels.files() {
        let table = file.table()?;
        let bytes = table.bytes_between(bucket.lower(), bucket.upper());
        for key in table.cut_keys(bucket.lower(), bucket.upper(), ways) {
            candidates.push((key, bytes / ways as u64));
        }
    }
    candidates.retain(|(key, _)| {
        key.as_slice() > bucket.lower() && bucket.upper().is_none_or(|upper| key.as_slice() < upper)
    });
    candidates.sort();
    let total: u64 = candidates.iter().map(|(_, weight)| weight.max(&1)).sum();
    let mut pivots: Vec<Vec<u8>> = Vec::with_capacity(ways - 1);
    let mut below = 0;
    for (key, weight) in candidates {
        let next = (pivots.len() as u64 + 1) * total / ways as u64;
        below += weight.max(1);
        if below >= next && pivots.len() < ways - 1 && pivots.last() != Some(&key) {
            pivots.push(key);
        }
    }
    Ok(pivots)
}
