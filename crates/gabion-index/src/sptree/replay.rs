//! What the logs have for the leaves, after a crash or a close.
//!
//! An opening reads all pages, by all processors, and gives each run of leaves the records with its
//! keys. When the run is recovered, its leaves take those that count (L2 in `log.rs`): of each key
//! the last one becomes part of its leaf, all of a leaf at once and with its `merged`, as a flush
//! does it. So a crash during this leaves leaves that have their records and leaves that do not,
//! and to begin again is right. When all runs are recovered no record counts: the pages are taken
//! for use, or freed if there are no write buffers. Trees of strings have no records.

use super::bloom::tag_of;
use super::flush::FlushOutcome;
use super::leaf::Tagged;
use super::log::LoggedChange;
use super::mnode::LockedNode;
use super::parallel_recovery::LeafRun;
use super::steps::{Step, is_taken};
use super::{SpTree, TreeKey};
use crate::Result;
use crate::parallel::by_threads;

/// Pages that are worth a thread.
const PAGES_PER_THREAD: usize = 64;

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// Gives each run the valid records of its keys.
    pub(super) fn share_records(&self, runs: &mut [LeafRun<K>]) -> Result<()> {
        let chain = self.logs.chain()?;
        self.logs.set_count(chain.len());
        let threads = (chain.len() / PAGES_PER_THREAD + 1).min(self.processors());
        let firsts: Vec<&K::Owned> = runs
            .iter()
            .skip(1)
            .filter_map(|run| Some(&run.starts.first()?.0))
            .collect();
        let parts = chain.chunks(chain.len().div_ceil(threads).max(1));
        let shares = by_threads(parts.collect(), |pages| {
            let mut share = vec![Vec::new(); firsts.len() + 1];
            for record in pages.iter().flat_map(|page| self.logs.records(*page)) {
                let key = K::rebuild(record.key, &[]);
                let run = firsts.partition_point(|first| **first <= key);
                share[run].push(record);
            }
            Ok(share)
        })?;
        for share in shares {
            for (run, records) in runs.iter_mut().zip(share) {
                run.records.push(records);
            }
        }
        Ok(())
    }

    /// Brings the records of a run into its leaves, whose nodes, locked, are in the order of keys.
    pub(super) fn replay_run(
        &self,
        head: &LockedNode<'_>,
        nodes: &[LockedNode<'_>],
        records: &[Vec<LoggedChange>],
    ) -> Result<()> {
        let mut all = records.concat();
        if all.is_empty() || !is_taken(Step::Replay) {
            return Ok(());
        }
        all.sort_unstable();
        let ends = nodes.iter().map(|node| Some(node.lkey())).chain([None]);
        let mut rest = &all[..];
        for (node, end) in std::iter::once(head).chain(nodes).zip(ends) {
            let is_below = |record: &LoggedChange| end.is_none_or(|end| record.key < end);
            let (of_leaf, behind) = rest.split_at(rest.partition_point(is_below));
            let of_leaf = of_leaf
                .iter()
                .filter(|record| record.number > node.merged());
            let of_leaf: Vec<LoggedChange> = of_leaf.copied().collect();
            self.replay_leaf(node, &of_leaf)?;
            rest = behind;
        }
        Ok(())
    }

    /// Takes the pages for use, or frees them, when all runs are recovered.
    pub(super) fn end_replay(&self) -> Result<()> {
        let chain = self.logs.chain()?;
        if self.buffers.are_some() {
            self.logs.adopt(chain, Vec::new());
            return Ok(());
        }
        self.logs.free(&chain)
    }

    /// Brings the records of a leaf that count into it: of each key the last one, and of all the
    /// last number.
    fn replay_leaf(&self, node: &LockedNode<'_>, records: &[LoggedChange]) -> Result<()> {
        let Some(last) = records.iter().map(|record| record.number).max() else {
            return Ok(());
        };
        let changes: Vec<FlushOutcome> = records
            .chunk_by(|one, two| one.key == two.key)
            .filter_map(|of_key| {
                if is_taken(Step::LastOfKey) {
                    of_key.last()
                } else {
                    of_key.first()
                }
            })
            .map(|record| FlushOutcome {
                entry: Tagged {
                    key: record.key,
                    value: record.value.unwrap_or(0),
                    tag: tag_of(self.seed.hash_u64(record.key)),
                },
                is_delete: record.value.is_none(),
            })
            .collect();
        self.absorb(node, changes.iter().copied(), last)?;
        node.set_last(node.merged());
        let leaf = self.leaf(node.leaf())?;
        node.set_count(leaf.count());
        for change in changes.iter().filter(|change| !change.is_delete) {
            node.bloom.add(self.seed.hash_u64(change.entry.key));
        }
        Ok(())
    }
}
