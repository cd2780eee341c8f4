//! Split: a full bucket becomes several (paper, section 2.3.5).
//!
//! # Idea
//! The pivots follow the sample-sort rule: each table names the keys that cut it evenly, all
//! candidates are sorted together, and the ones that cut that list evenly are taken, each weighted
//! by the bytes it stands for. A run of many tables of about the same size, as an ingest makes
//! them, is cut between its tables, none of which is opened for that or shared afterwards.
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

use crate::Result;
use crate::engine::wip::bucket::{Bucket, BucketState, Levels, Run};
use crate::engine::wip::manifest::VersionEdit;
use crate::engine::wip::policy::read_counter::ReadCounter;
use crate::engine::wip::policy::run_limits::RunLimitEstimate;
use crate::engine::wip::{VersionSet, Wip, WipKeyspace};

impl Wip {
    /// Cuts a bucket that the caller has reserved into at most `ways`, unless there are too many by
    /// then; false when its tables offer no key to cut at.
    pub(in super::super) fn split(
        &self,
        keyspace: &Arc<WipKeyspace>,
        bucket: &Arc<Bucket>,
        ways: usize,
    ) -> Result<bool> {
        let pivots = pivots(bucket, &bucket.state.load(), ways)?;
        if pivots.is_empty() {
            return Ok(false);
        }
        let mut versions = self.versions.lock();
        bucket.check_dropped()?;
        // Others may have split meanwhile. Then there is less room; how much is looked at again.
        if pivots.len() >= self.split_ways_max() {
            return Ok(true);
        }
        let (children, edits) = children_of(&mut versions, keyspace, bucket, &pivots);
        self.apply(&mut versions, &edits)?;

        // No writer may be about to insert into the bucket that is replaced.
        let alone = self.leader.write();
        let mut install = self.lock_install();
        let demanded = bucket.demand.is_asked();
        // Since the children were made only MemTables can have changed: tables change with the
        // manifest locked, which it has been all along.
        let state = bucket.state.load_full();
        let frozen = self.queue_frozen(&mut install, keyspace, bucket, &state);
        let share = state.active.keys() / children.len();
        let children = children.into_iter().map(|(child, levels)| {
            if demanded {
                child.demand.ask();
            }
            let common = child.common_prefix_len();
            let active = self.new_memtable(&state.active, common, share);
            active.take_over_gaps(&state.active);
            child.state.store(Arc::new(BucketState {
                active,
                frozen: frozen.clone(),
                levels,
                deletes: state.deletes.clone(),
            }));
            Arc::new(child)
        });
        self.exchange(keyspace, std::slice::from_ref(bucket), children.collect());
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

/// The buckets that a bucket becomes which is cut at these keys, each with its slices of the
/// tables, and the edits that put them into its place.
fn children_of(
    versions: &mut VersionSet,
    keyspace: &WipKeyspace,
    bucket: &Bucket,
    pivots: &[Vec<u8>],
) -> (Vec<(Bucket, Arc<Levels>)>, Vec<VersionEdit>) {
    let state = bucket.state.load_full();
    let flushed_seq = versions.flushed_seq(bucket.id);
    let mut children = Vec::with_capacity(pivots.len() + 1);
    let mut edits = vec![VersionEdit::RemoveBucket { id: bucket.id }];
    let lowers = std::iter::once(bucket.lower()).chain(pivots.iter().map(Vec::as_slice));
    let uppers = pivots
        .iter()
        .map(|key| Some(key.as_slice()))
        .chain([bucket.upper()]);
    for (lower, upper) in lowers.zip(uppers) {
        let id = versions.take_bucket_id();
        let mut child = Bucket::new((keyspace.id, id), lower, upper, BucketState::clone(&state));
        child.reads = ReadCounter::of_part(&bucket.reads, pivots.len() + 1);
        child.sizing = RunLimitEstimate::of_part(&bucket.sizing, pivots.len() + 1);
        let levels = state.levels.within(&child);
        edits.push(VersionEdit::AddBucket {
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
                    edits.push(VersionEdit::AddTable {
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
    (children, edits)
}

/// A key that a table offers to split at.
struct Candidate {
    key: Vec<u8>,
    /// Bytes of the table that lie below the key, and behind the one that it offers before.
    below: u64,
    /// Bytes of the table that lie behind the last key that it offers, if that cuts nothing.
    above: u64,
}

/// The sample-sort rule: at most `ways - 1` keys that cut the bucket's tables into even parts. A
/// table that no key cuts, as one of a single large value, offers its smallest one.
fn pivots(bucket: &Bucket, state: &BucketState, ways: usize) -> Result<Vec<Vec<u8>>> {
    let mut candidates: Vec<Candidate> = Vec::new();
    let (fine, coarse): (Vec<&Run>, Vec<&Run>) =
        state.levels.runs().partition(|run| is_fine(run, ways));
    for run in fine {
        candidates.extend(run.tables.windows(2).map(|pair| Candidate {
            key: pair[1].meta.smallest.to_vec(),
            below: pair[0].meta.file_bytes,
            above: 0,
        }));
    }
    for file in coarse.into_iter().flat_map(|run| run.tables.iter()) {
        let table = file.table()?;
        let bytes = table.bytes_between(bucket.lower(), bucket.upper());
        let keys = table.cut_keys(bucket.lower(), bucket.upper(), ways);
        if keys.is_empty() {
            candidates.push(Candidate {
                key: file.meta.smallest.to_vec(),
                below: 0,
                above: bytes.max(1),
            });
        }
        let below = (bytes / ways as u64).max(1);
        candidates.extend(keys.into_iter().map(|key| Candidate {
            key,
            below,
            above: 0,
        }));
    }
    candidates.retain(|Candidate { key, .. }| {
        key.as_slice() > bucket.lower() && bucket.upper().is_none_or(|upper| key.as_slice() < upper)
    });
    candidates.sort_by(|a, b| a.key.cmp(&b.key));
    let weights = candidates.iter().map(|of| of.below + of.above);
    let total: u64 = weights.sum();
    let mut pivots: Vec<Vec<u8>> = Vec::with_capacity(ways - 1);
    let mut sum = 0;
    for Candidate { key, below, above } in candidates {
        let next = (pivots.len() as u64 + 1) * total / ways as u64;
        sum += below;
        if sum >= next && pivots.len() < ways - 1 && pivots.last() != Some(&key) {
            pivots.push(key);
        }
        sum += above;
    }
    Ok(pivots)
}

/// Whether a run has so many tables, none much larger than the others, that the bounds between
/// them cut it about as evenly as each of the tables would name `ways - 1` keys.
fn is_fine(run: &Run, ways: usize) -> bool {
    let sizes = || run.tables.iter().map(|file| file.meta.file_bytes);
    let part = sizes().sum::<u64>() / ways as u64;
    run.tables.len() >= ways && sizes().all(|bytes| bytes <= 2 * part)
}

#[cfg(test)]
mod tests {
    use gabion_media::{Disk, SimDisk};

    use super::*;
    use crate::engine::ssd::Lifecycle;
    use crate::{Options, Tuning};

    /// Large values come into tables of one block, which no key cuts. A bucket of such tables named
    /// no pivot, and grew beyond its capacity until compactions made tables of several blocks.
    #[test]
    fn a_bucket_of_tables_of_one_block_is_split() {
        let options = Options::default()
            .background_threads(0)
            .tuning(Tuning::default().sublevels_min(16).sublevels_max(16));
        let engine = Wip::open(Disk::simulated(&SimDisk::new()), options).unwrap();
        let keyspace = engine.create_keyspace("keyspace").unwrap();
        let bucket = || Arc::clone(&keyspace.router.load().buckets()[0]);
        for key in [5u8, 1, 7, 3, 8, 2, 6, 4] {
            engine.put_for_tests(&keyspace, &[key], &[key; 20 << 10]);
            let alone = engine.leader.write();
            engine.freeze(&mut engine.lock_install(), &keyspace, &bucket());
            drop(alone);
            assert!(engine.flush_one().unwrap());
        }
        let whole = bucket();
        let state = whole.state.load_full();
        assert_eq!(pivots(&whole, &state, 4).unwrap(), [[3], [5], [7]]);
        assert_eq!(pivots(&whole, &state, 2).unwrap(), [[5]]);
        // A table names no key that is not one of the bucket's.
        let part = Bucket::new((0, 9), &[3], Some(&[6]), BucketState::clone(&state));
        for pivot in pivots(&part, &state, 4).unwrap() {
            assert!((&[3][..]..&[6][..]).contains(&&pivot[..]) && pivot != [3]);
        }
        assert!(whole.reserve());
        assert!(engine.split(&keyspace, &whole, 4).unwrap());
        let router = keyspace.router.load();
        let lowers: Vec<&[u8]> = router.buckets().iter().map(|part| part.lower()).collect();
        assert_eq!(lowers, [&[][..], &[3], &[5], &[7]]);
        for key in 1u8..=8 {
            let value = engine.get(&keyspace, &[key], None).unwrap();
            assert_eq!(value.as_deref(), Some(&[key; 20 << 10][..]));
        }
        engine.close().unwrap();
    }
}
