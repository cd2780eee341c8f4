//! What the logs have for the leaves, after a crash or a close.
//!
//! Threads read the pages and keep the records that count (L2 in `log.rs`). Of each key the last
//! one becomes part of its leaf, all of a leaf at once and with its `merged`, as a flush does it.
//! So a crash during this leaves leaves that have their records and leaves that do not, and to
//! begin again is right. Afterwards no record counts: the pages are taken for use, or freed if
//! there are no write buffers. Trees of strings have no records.

use std::borrow::Borrow;

use super::bloom::tag_of;
use super::flush::Absorbed;
use super::leaf::Tagged;
use super::log::Logged;
use super::readpath::Search;
use super::recovery::by_threads;
use super::steps::{Step, is_made};
use super::{SpTree, TreeKey};
use crate::Result;

/// Pages that are worth a thread.
const PAGES_PER_THREAD: usize = 64;

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// Brings all that counts of the logs into the leaves, while nobody else uses the tree.
    pub(super) fn replay(&self) -> Result<()> {
        let chain = self.logs.chain()?;
        let threads = (chain.len() / PAGES_PER_THREAD + 1).min(self.processors());
        let parts = chain.chunks(chain.len().div_ceil(threads).max(1));
        let records = by_threads(parts.collect(), |pages| {
            let records = pages.iter().flat_map(|page| self.logs.records(*page));
            Ok(records
                .filter(|record| self.counts(record))
                .collect::<Vec<_>>())
        })?;
        let mut records = records.concat();
        if !is_made(Step::Replay) {
            records.clear();
        }
        records.sort_unstable();
        let share = records.len().div_ceil(threads).max(1);
        by_threads(self.parts(&records, share), |part| self.replay_part(part))?;
        if self.buffers.are_some() {
            self.logs.adopt(chain, Vec::new());
            Ok(())
        } else {
            self.logs.free(&chain)
        }
    }

    /// Whether the leaf of a record's key does not have the change.
    fn counts(&self, record: &Logged) -> bool {
        let key = K::rebuild(record.key, &[]);
        let seen = Search::new(self, key.borrow()).node();
        record.number > seen.node.merged()
    }

    /// Records in the order of keys, cut into parts of about `share` between leaves.
    fn parts<'a>(&self, records: &'a [Logged], share: usize) -> Vec<&'a [Logged]> {
        let mut parts = Vec::new();
        let mut rest = records;
        while let Some(last) = rest.get(share - 1) {
            let end = self.end_of_leaf(rest, last.key);
            let (part, behind) = rest.split_at(end);
            parts.push(part);
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(rest);
        }
        parts
    }

    /// Number of records up to the end of the leaf of a key.
    fn end_of_leaf(&self, records: &[Logged], key: u64) -> usize {
        let key = K::rebuild(key, &[]);
        let seen = Search::new(self, key.borrow()).node();
        records.partition_point(|record| seen.next == 0 || record.key < seen.hkey)
    }

    /// Brings records in the order of keys into their leaves.
    fn replay_part(&self, mut records: &[Logged]) -> Result<()> {
        let _within = self.pool.write_guard();
        while let Some(first) = records.first() {
            let (of_leaf, rest) = records.split_at(self.end_of_leaf(records, first.key));
            self.replay_leaf(of_leaf)?;
            records = rest;
        }
        Ok(())
    }

    /// Brings the records of a leaf into it: of each key the last one, and of all the last number.
    fn replay_leaf(&self, records: &[Logged]) -> Result<()> {
        let Some(first) = records.first() else {
            return Ok(());
        };
        let key = K::rebuild(first.key, &[]);
        let node = Search::new(self, key.borrow()).lock();
        let last = records.iter().map(|record| record.number).max();
        let changes: Vec<Absorbed> = records
            .chunk_by(|one, two| one.key == two.key)
            .filter_map(|of_key| {
                if is_made(Step::LastOfKey) {
                    of_key.last()
                } else {
                    of_key.first()
                }
            })
            .map(|record| Absorbed {
                entry: Tagged {
                    key: record.key,
                    value: record.value.unwrap_or(0),
                    tag: tag_of(self.seed.hash_u64(record.key)),
                },
                is_delete: record.value.is_none(),
            })
            .collect();
        self.absorb(&node, changes.iter().copied(), last.unwrap_or(0))?;
        node.set_last(node.merged());
        let leaf = self.leaf(node.leaf())?;
        node.set_count(leaf.count());
        for change in changes.iter().filter(|change| !change.is_delete) {
            node.bloom.add(self.seed.hash_u64(change.entry.key));
        }
        Ok(())
    }
}
