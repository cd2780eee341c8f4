//! Many entries at once, out of place: a leaf that is to get some is replaced by a new one, or by
//! two, with its entries and these. `blink/renewal.rs` says how, and what a crash leaves of it.
//!
//! An insert in place shifts entries and makes each line durable before it goes on, so the persists
//! of a batch are some times its entries. Out of place there are four, however many come, and those
//! of an insert in the parent if there are two new leaves.
//!
//! What a leaf gets takes effect with one store, that of the old leaf's link, and is durable with
//! its persist, the second of the four. A crash before leaves the old leaf as it was. Batches that
//! belong to several leaves are stored leaf by leaf.

use std::collections::BTreeMap;

use super::FastFair;
use super::greatest::GREATEST;
use super::tree::{LockedNode, no_leaf};
use crate::Result;
use crate::blink::{Descent, NodeSplit, Renewal};
use crate::index::insert_by_parts;

/// Entries for a leaf that are worth a new one.
const WORTH: usize = 2;

impl<const N: usize> FastFair<N> {
    /// Stores values, in the order of their keys, whether these are there or not. All are durable
    /// when this returns. Until then readers may see some that are not: whoever calls sees to it
    /// that nobody relies on what is found of these keys meanwhile.
    ///
    /// # Errors
    /// No space in the pool: some are stored then, and some not.
    pub(crate) fn insert_all(&self, entries: &[(u64, u64)]) -> Result<()> {
        self.put_all(entries, WORTH)
    }

    /// As [`FastFair::insert_all`], with so many entries of a leaf worth a new one.
    pub(super) fn put_all(&self, entries: &[(u64, u64)], worth: usize) -> Result<()> {
        insert_by_parts(self, entries, |rest| self.renew_leaf(rest, worth))
    }

    /// Stores those of `entries` that belong to the leaf of the first one, and returns how many
    /// they are; 0 if nothing was done, because it is better done in place.
    fn renew_leaf(&self, entries: &[(u64, u64)], worth: usize) -> Result<usize> {
        let key = entries.first().map_or(GREATEST, |(key, _)| *key);
        if key == GREATEST {
            return Ok(0);
        }
        let _within = self.pool.write_guard();
        let guard = self.pool.enter();
        let (leaf, stray) = self.lock_leaf(key)?.ok_or_else(no_leaf)?;
        let is_here = |key: u64| leaf.range.is_below_bound(key) && key != GREATEST;
        let count = entries.partition_point(|(key, _)| is_here(*key));
        // The first leaf is never given up.
        if count < worth || leaf.node.head.low() == 0 {
            drop(leaf);
            self.adopt(stray);
            return Ok(0);
        }
        let mut all: BTreeMap<u64, u64> = leaf.node.live_entries(leaf.range.bound).collect();
        all.extend(entries[..count].iter().copied());
        let all: Vec<(u64, u64)> = all.into_iter().collect();
        // What was reached from the left last may be an inner node instead.
        let is_stray = stray.is_some_and(|stray| stray.at == leaf.node.at);
        let is_done = self.renew(leaf, is_stray, &all, &guard)?;
        self.adopt(stray.filter(|_| !is_stray));
        Ok(if is_done { count } else { 0 })
    }
}

impl<const N: usize> Renewal for FastFair<N> {
    fn redirect<'a>(&'a self, node: &LockedNode<'a, N>, key: u64, at: u64) {
        // Else it lies behind the end of a damaged node.
        if let Ok(slot) = node.locate(key) {
            self.replace(node, slot, at);
        }
    }
}
