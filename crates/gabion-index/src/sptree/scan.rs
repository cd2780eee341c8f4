//! Scans: from leaf to leaf, each in the order of its sequence array.
//!
//! The array is made when a scan first comes to a leaf whose slots have changed. Deletes do not
//! change it: a slot whose pair was deleted keeps its key until another pair takes the slot.

use super::SpTree;
use super::leaf::Leaf;
use super::mnode::Locked;
use super::readpath::{Search, Seen};
use crate::{OrderedIndex, Result};

/// Times that a leaf is copied without its lock before it is copied with it.
const TRIES: u32 = 4;

impl<const N: usize> SpTree<N> {
    /// Brings what is in the write buffer into the leaf, and sorts the slots if they have changed
    /// since that was done.
    fn sort(&self, node: &Locked<'_>) -> Result<()> {
        if node.is_sorted() {
            return Ok(());
        }
        self.flush(node)?;
        let leaf = self.leaf(node.leaf())?;
        let mut keys = [(0, 0); 64];
        let mut count = 0;
        for ((slot, key, _), place) in leaf.entries().zip(&mut keys) {
            *place = (key, u8::try_from(slot).unwrap_or(0));
            count += 1;
        }
        keys[..count].sort_unstable();
        if let Some(order) = self.nodes.order(node.number) {
            order.set(keys[..count].iter().map(|(_, slot)| *slot));
            node.note_sorted();
        }
        Ok(())
    }

    /// Appends the entries of a leaf from a key on until there are `end`. Means nothing if somebody
    /// writes meanwhile.
    fn copy(
        &self,
        seen: &Seen<'_>,
        from: u64,
        end: usize,
        found: &mut Vec<(u64, u64)>,
    ) -> Result<()> {
        let leaf: Leaf<'_, N> = self.leaf(seen.node.leaf())?;
        let Some(order) = self.nodes.order(seen.number) else {
            return Ok(());
        };
        let (slots, count) = order.get();
        // The remainder changes nothing but for the array of a leaf that was given up.
        let slots = slots.map(|slot| usize::from(slot) % N);
        let slots = slots.get(..count).unwrap_or(&[]);
        let first = if from <= seen.node.lkey() {
            0
        } else {
            slots.partition_point(|&slot| leaf.key(slot) < from)
        };
        let bitmap = leaf.bitmap();
        self.medium
            .touch_range(leaf.at, super::layout::leaf_bytes(N));
        let live = slots[first..]
            .iter()
            .filter(|&&slot| bitmap >> slot & 1 != 0);
        let left = end.saturating_sub(found.len());
        found.extend(
            live.take(left)
                .map(|&slot| (leaf.key(slot), leaf.value(slot))),
        );
        Ok(())
    }

    /// Appends what a leaf has of a scan; the node as it was.
    fn scan_leaf<'a>(
        &'a self,
        search: &mut Search<'a, N>,
        from: u64,
        end: usize,
        found: &mut Vec<(u64, u64)>,
    ) -> Result<Seen<'a>> {
        let begin = found.len();
        let mut tries = 0;
        loop {
            let seen = search.node();
            Leaf::<N>::prefetch_all(&self.medium, seen.node.leaf());
            // The next node's lines, and then those of its leaf, come while this one is copied.
            if let Some(next) = seen.node.next().checked_sub(1)
                && let Some(next) = self.nodes.get(next)
            {
                Leaf::<N>::prefetch_all(&self.medium, next.leaf());
            }
            if tries >= TRIES || !seen.node.is_sorted() {
                let Some(locked) = seen.node.lock_seen(seen.number, seen.word) else {
                    continue;
                };
                self.sort(&locked)?;
                self.copy(&seen, from, end, found)?;
                return Ok(seen);
            }
            let copied = self.copy(&seen, from, end, found);
            if seen.node.is_still(seen.word) {
                return copied.map(|()| seen);
            }
            found.truncate(begin);
            tries += 1;
        }
    }
}

impl<const N: usize> OrderedIndex<u64> for SpTree<N> {
    fn scan(&self, from: &u64, limit: usize, found: &mut Vec<(u64, u64)>) -> Result<()> {
        let end = found.len().saturating_add(limit);
        let mut from = *from;
        let mut search = Search::new(self, from);
        while found.len() < end {
            let seen = self.scan_leaf(&mut search, from, end, found)?;
            // A range that has changed since begins where this one began, and its end is still one
            // of a leaf: what lies between is not missed.
            let Some(next) = seen.next.checked_sub(1) else {
                break;
            };
            from = seen.hkey;
            search = Search::at(self, from, next);
        }
        Ok(())
    }
}
