//! Reads: down the tree without locks, to the right where a split is not yet known above.

use super::FastFair;
use super::greatest::GREATEST;
use super::node::Node;
use super::tree::no_leaf;
use crate::blink::{Descent, Node as _, NodeRange, Tree};
use crate::{OrderedIndex, Result};

/// Times that a leaf is copied without its lock before it is copied with it.
const TRIES: u32 = 4;

impl<const N: usize> FastFair<N> {
    /// The value of `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub fn get(&self, key: u64) -> Result<Option<u64>> {
        if key == GREATEST {
            return Ok(self.get_greatest());
        }
        let _guard = self.pool.enter();
        loop {
            let leaf = self.descend(0, key)?.ok_or_else(no_leaf)?;
            let before = self.locks.stamp(leaf.at);
            if !before.is_locked() && leaf.head.range().has(key) {
                let found = leaf.find(key);
                // Nobody wrote meanwhile; and whoever wrote before has made it durable.
                if self.locks.stamp(leaf.at) == before {
                    return Ok(found);
                }
            }
            if let Some(found) = self.get_beside_writer(leaf, key) {
                return Ok(found);
            }
        }
    }

    /// Where the leaf of `key` ends and the next one begins; none if it is the last. Others may
    /// change that meanwhile.
    pub(crate) fn end_of_leaf(&self, key: u64) -> Result<Option<u64>> {
        let _guard = self.pool.enter();
        let (_, range) = self.descend_by(0, key, |_, _| ())?.ok_or_else(no_leaf)?;
        Ok(Some(range.bound).filter(|_| !range.is_last()))
    }

    /// As [`FastFair::get`] in a leaf that somebody writes to; none if it is not the leaf of the
    /// key, or entries moved both ways.
    #[cold]
    #[inline(never)]
    fn get_beside_writer(&self, leaf: Node<'_, N>, key: u64) -> Option<Option<u64>> {
        let before = self.locks.stamp(leaf.at);
        let range = leaf.head.range();
        let found = leaf.find_beside_writer(key, before.turn());
        let after = self.locks.stamp(leaf.at);
        if !range.has(key) || leaf.head.range() != range || after.turns() != before.turns() {
            return None;
        }
        if after.is_locked() {
            let _within = self.pool.write_guard();
            leaf.flush(&self.medium);
            // DURABLE: what was seen of the writer who is at work.
            self.medium.fence();
        }
        Some(found)
    }

    /// Entries of the leaf of `from`, from there on, and the bound of the leaf. `leaf` is where to
    /// look first.
    fn copy_leaf<'a>(
        &'a self,
        leaf: &mut Node<'a, N>,
        from: u64,
        entries: &mut Vec<(u64, u64)>,
    ) -> Result<NodeRange> {
        let mut tries = 0;
        loop {
            let lock = (tries >= TRIES).then(|| self.locks.lock(leaf.at));
            let before = self.locks.stamp(leaf.at);
            let range = leaf.head.range();
            if leaf.head.low() <= from && range.has(from) {
                entries.clear();
                let all = leaf.live_entries(range.bound);
                entries.extend(all.filter(|&(key, _)| key >= from));
                let is_still = self.locks.stamp(leaf.at) == before && !before.is_locked();
                if lock.is_some() || is_still {
                    return Ok(range);
                }
                tries += 1;
            } else {
                drop(lock);
                *leaf = self.descend(0, from)?.ok_or_else(no_leaf)?;
            }
        }
    }
}

impl<const N: usize> OrderedIndex<u64> for FastFair<N> {
    fn scan(&self, from: &u64, limit: usize, found: &mut Vec<(u64, u64)>) -> Result<()> {
        let end = found.len().saturating_add(limit);
        let mut from = *from;
        if from != GREATEST && limit > 0 {
            let _guard = self.pool.enter();
            let mut leaf = self.descend(0, from)?.ok_or_else(no_leaf)?;
            let mut entries = Vec::with_capacity(N);
            loop {
                let range = self.copy_leaf(&mut leaf, from, &mut entries)?;
                found.extend(entries.iter().take(end - found.len()));
                from = range.bound;
                if range.is_last() || found.len() == end {
                    break;
                }
                leaf = self.node(range.neighbour)?;
                leaf.prefetch();
            }
        }
        if found.len() < end
            && let Some(value) = self.get_greatest()
        {
            found.push((GREATEST, value));
        }
        Ok(())
    }
}
