//! Scans: from leaf to leaf, in either direction, each in the order of its sequence array.
//!
//! The array is made when a scan first comes to a leaf whose slots have changed. Deletes do not
//! change it: slots whose pair was deleted are passed over.

use std::borrow::Borrow;
use std::cmp::Ordering;

use super::item::{compare, key_of};
use super::leaf::Leaf;
use super::mnode::LockedNode;
use super::readpath::{NodeSearch, NodeView};
use super::{SpTree, TreeKey};
use crate::stored_key::KeyParts;
use crate::{OrderedIndex, Result};

/// Times that a leaf is copied without its lock before it is copied with it.
const TRIES: u32 = 4;

/// Where a scan goes from its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanDirection {
    /// To the key and those above it, the least one first.
    Up,
    /// To those below it, the greatest one first.
    Down,
}

/// How much a scan takes: it ends with the pair that reaches one of them.
#[derive(Clone, Copy, Debug)]
pub struct ScanLimit {
    /// Number of pairs.
    pub pairs: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
}

/// So many pairs, however large they are.
impl From<usize> for ScanLimit {
    fn from(pairs: usize) -> ScanLimit {
        ScanLimit {
            pairs,
            bytes: usize::MAX,
        }
    }
}

/// What a scan takes, and where to.
pub(super) struct ScanOutput<'t, T, F> {
    way: ScanDirection,
    /// What becomes of the two words of a pair, and its bytes.
    make: F,
    /// How much is left to be taken.
    left: ScanLimit,
    found: &'t mut Vec<T>,
}

impl<'t, T, F: Fn([u64; 2]) -> Result<(T, usize)>> ScanOutput<'t, T, F> {
    pub(super) fn new(
        way: ScanDirection,
        limit: ScanLimit,
        found: &'t mut Vec<T>,
        make: F,
    ) -> Self {
        ScanOutput {
            way,
            make,
            left: limit,
            found,
        }
    }

    fn is_full(&self) -> bool {
        self.left.pairs == 0 || self.left.bytes == 0
    }

    /// Takes pairs until there are enough.
    fn take(&mut self, pairs: impl Iterator<Item = [u64; 2]>) -> Result<()> {
        for pair in pairs {
            if self.is_full() {
                break;
            }
            let (entry, bytes) = (self.make)(pair)?;
            self.found.push(entry);
            self.left.pairs -= 1;
            self.left.bytes = self.left.bytes.saturating_sub(bytes);
        }
        Ok(())
    }
}

impl<K: TreeKey + ?Sized, const N: usize> SpTree<K, N> {
    /// Brings what is in the write buffer into the leaf, and sorts the slots if they have changed
    /// since that was done.
    fn sort(&self, node: &LockedNode<'_>) -> Result<()> {
        if node.is_sorted() {
            return Ok(());
        }
        self.flush(node)?;
        let leaf = self.leaf(node.leaf())?;
        let mut keys = Vec::with_capacity(N);
        for (slot, key, value) in leaf.entries() {
            let slot = u8::try_from(slot).unwrap_or(0);
            keys.push((key_of::<K>(&self.medium, [key, value])?, slot));
        }
        keys.sort_unstable();
        if let Some(order) = self.nodes.order(node.number) {
            order.set(keys.iter().map(|(_, slot)| *slot));
            node.note_sorted();
        }
        Ok(())
    }

    /// Appends the entries of a leaf on one side of a key until there are enough. Means nothing if
    /// somebody writes meanwhile.
    fn copy<T, F: Fn([u64; 2]) -> Result<(T, usize)>>(
        &self,
        seen: &NodeView<'_>,
        key: &KeyParts<'_>,
        taking: &mut ScanOutput<'_, T, F>,
    ) -> Result<()> {
        let leaf: Leaf<'_, N> = self.leaf(seen.node.leaf())?;
        let Some(order) = self.nodes.order(seen.number) else {
            return Ok(());
        };
        let (slots, count) = order.get();
        let bitmap = leaf.bitmap();
        // Of slots whose pair was deleted the item may be gone. The remainder changes nothing but
        // for the array of a leaf that was given up.
        let mut live = [0; 64];
        let mut lives = 0;
        for slot in slots.iter().take(count).map(|slot| usize::from(*slot) % N) {
            live[lives] = slot;
            lives += usize::from(bitmap >> slot & 1 != 0);
        }
        let live = &live[..lives];
        self.medium
            .touch_range(leaf.at, super::layout::leaf_bytes(N));
        let place = match self.router.compare(seen.node.lkey(), key) {
            Ordering::Less => self.first_from(leaf, live, key)?,
            Ordering::Equal | Ordering::Greater => 0,
        };
        let (below, above) = live.split_at(place);
        let pair = |slot: &usize| leaf.pair(*slot);
        match taking.way {
            ScanDirection::Up => taking.take(above.iter().map(pair)),
            ScanDirection::Down => taking.take(below.iter().rev().map(pair)),
        }
    }

    /// The place of the first of some slots, in the order of their keys, that is not below a key.
    fn first_from(&self, leaf: Leaf<'_, N>, slots: &[usize], key: &KeyParts<'_>) -> Result<usize> {
        let (mut begin, mut end) = (0, slots.len());
        while begin < end {
            let middle = begin.midpoint(end);
            match compare::<K>(&self.medium, leaf.pair(slots[middle]), key)? {
                Ordering::Less => begin = middle + 1,
                Ordering::Equal | Ordering::Greater => end = middle,
            }
        }
        Ok(begin)
    }

    /// Appends what a leaf has of a scan. Returns the bound at which it goes on, and the number of
    /// a node there or near; none if it was the last leaf on its way.
    fn scan_leaf<T, F: Fn([u64; 2]) -> Result<(T, usize)>>(
        &self,
        search: &mut NodeSearch<'_, '_, K, N>,
        key: &KeyParts<'_>,
        taking: &mut ScanOutput<'_, T, F>,
    ) -> Result<Option<(u64, u64)>> {
        let (begin, left) = (taking.found.len(), taking.left);
        let mut tries = 0;
        loop {
            let seen = match taking.way {
                ScanDirection::Up => search.node()?,
                ScanDirection::Down => search.node_before()?,
            };
            let further = seen.further(taking.way);
            Leaf::<N>::prefetch_all(&self.medium, seen.node.leaf());
            // The next node's lines, and then those of its leaf, come while this one is copied.
            if let Some((_, next)) = further
                && let Some(next) = self.nodes.get(next)
            {
                Leaf::<N>::prefetch_all(&self.medium, next.leaf());
            }
            if tries >= TRIES || !seen.node.is_sorted() {
                // The write buffer may come into the leaf.
                let _within = self.pool.write_guard();
                let Some(locked) = seen.node.lock_seen(seen.number, seen.word) else {
                    continue;
                };
                self.sort(&locked)?;
                self.copy(&seen, key, taking)?;
                return Ok(further);
            }
            let copied = self.copy(&seen, key, taking);
            if seen.node.is_still(seen.word) {
                return copied.map(|()| further);
            }
            taking.found.truncate(begin);
            taking.left = left;
            tries += 1;
        }
    }

    /// Appends what becomes of the entries on one side of a key, and tells whether it ended for its
    /// limit: there may be more then.
    pub(super) fn scan_with<T, F: Fn([u64; 2]) -> Result<(T, usize)>>(
        &self,
        key: &K,
        mut taking: ScanOutput<'_, T, F>,
    ) -> Result<bool> {
        // The bound at which the next leaf begins or ends, and the number of its node.
        let mut next: Option<(K::Owned, u64)> = None;
        while !taking.is_full() {
            // Not for long: a leaf at a time.
            let _pins = self.pin();
            let key = next.as_ref().map_or(key, |(key, _)| key.borrow());
            let mut search = match &next {
                Some((_, number)) => NodeSearch::at(self, key, *number),
                None => NodeSearch::new(self, key),
            };
            // A range that has changed since begins where this one began, and its end is still one
            // of a leaf: what lies between is not missed.
            let further = self.scan_leaf(&mut search, &KeyParts::of(key), &mut taking)?;
            let Some((bound, number)) = further else {
                break;
            };
            next = Some((self.router.key(bound)?, number));
        }
        Ok(taking.is_full())
    }
}

impl NodeView<'_> {
    /// The bound at which a scan goes on from here, and the number of a node.
    fn further(&self, way: ScanDirection) -> Option<(u64, u64)> {
        match way {
            ScanDirection::Up => Some((self.hkey, self.next.checked_sub(1)?)),
            ScanDirection::Down => Some((self.node.lkey(), self.node.prev().checked_sub(1)?)),
        }
    }
}

impl<const N: usize> OrderedIndex<u64> for SpTree<u64, N> {
    fn scan(&self, from: &u64, limit: usize, found: &mut Vec<(u64, u64)>) -> Result<()> {
        let make = |[key, value]: [u64; 2]| Ok(((key, value), 0));
        self.scan_with(
            from,
            ScanOutput::new(ScanDirection::Up, limit.into(), found, make),
        )?;
        Ok(())
    }
}
