//! Reads: the buffer of a node first, then the base, without locks; again if somebody wrote there.

use std::collections::BTreeMap;

use super::{Base, Layered};
use crate::spoton::bloom::tag_of;
use crate::spoton::buffer::Buffer;
use crate::spoton::mnode::{Locked, Mnode};
use crate::{OrderedIndex, Result};

/// How often a search begins where the router says: one that leads astray has no memory for more.
const TURNS_MAX: u32 = 4;

/// A node whose range holds a key, as it was seen.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) node: &'a Mnode,
    pub(super) number: u64,
    /// Its word.
    pub(super) word: u64,
    /// What all its keys are below, if there is a node behind it.
    pub(super) bound: Option<u64>,
}

/// What a scan has of one node.
struct Copied {
    entries: Vec<(u64, u64)>,
    /// Where the scan goes on; none if there is nothing more.
    next: Option<u64>,
}

impl<B: Base, const PAGE: usize> Layered<B, PAGE> {
    /// The node whose range holds a key.
    #[inline]
    pub(super) fn see(&self, key: u64) -> Seen<'_> {
        let mut number = self.router.find(&key).map_or(0, |hint| hint.node);
        let mut turns = 0;
        loop {
            let node = self.nodes.get(number);
            let Some((node, word)) = node.and_then(|node| Some((node, node.look()?))) else {
                turns += 1;
                // The first node is always there.
                let hint = self.router.find(&key).filter(|_| turns < TURNS_MAX);
                number = hint.map_or(0, |hint| hint.node);
                continue;
            };
            let bound = bound_of(node);
            let link = if key < node.lkey() {
                node.prev()
            } else if bound.is_some_and(|bound| key >= bound) {
                node.next()
            } else {
                return Seen {
                    node,
                    number,
                    word,
                    bound,
                };
            };
            if node.is_still(word) {
                number = link.saturating_sub(1);
            }
        }
    }

    /// The node whose range holds a key, locked.
    #[inline]
    pub(super) fn lock(&self, key: u64) -> Locked<'_> {
        loop {
            let seen = self.see(key);
            if let Some(node) = seen.node.lock_seen(seen.number, seen.word) {
                return node;
            }
        }
    }

    #[inline]
    pub(super) fn buffer_of(&self, node: &Mnode) -> Option<&Buffer> {
        self.buffers.get(node.buffer()?)
    }

    #[inline]
    pub(super) fn tag(&self, key: u64) -> u8 {
        tag_of(self.seed.hash_u64(key))
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub fn get(&self, key: u64) -> Result<Option<u64>> {
        let tag = self.tag(key);
        loop {
            let Seen { node, word, .. } = self.see(key);
            let buffer = self.buffer_of(node);
            let found = match buffer.and_then(|buffer| buffer.find(key, tag)) {
                Some((_, value)) => Ok(Some(value)),
                None => self.base.get(&key),
            };
            // Nobody wrote meanwhile; and whoever wrote before has made it durable.
            if node.is_still(word) {
                return found;
            }
        }
    }

    /// Appends entries of one node from `from` on until `found` has `end`. Returns where the scan
    /// goes on, none if there is nothing more.
    fn scan_node(&self, from: u64, end: usize, found: &mut Vec<(u64, u64)>) -> Result<Option<u64>> {
        loop {
            let seen = self.see(from);
            let copied = self.copy(&seen, from, end - found.len());
            if seen.node.is_still(seen.word) {
                let copied = copied?;
                found.extend(copied.entries);
                return Ok(copied.next);
            }
        }
    }

    /// Up to `limit` entries of a node from `from` on, in their order. Means nothing if somebody
    /// writes meanwhile.
    fn copy(&self, seen: &Seen<'_>, from: u64, limit: usize) -> Result<Copied> {
        // As many as a part has, most often.
        let wanted = limit.min(2 * B::BUFFERED + 2);
        let mut stored = Vec::with_capacity(wanted);
        self.base.scan(&from, wanted, &mut stored)?;
        let last = stored.last().map(|(key, _)| *key);
        // What is in the base is known up to here.
        let last = last.filter(|_| stored.len() == wanted);
        let next = match (last.map(|last| last.checked_add(1)), seen.bound) {
            (Some(Some(next)), Some(bound)) => Some(next.min(bound)),
            (Some(next), None) => next,
            (_, bound) => bound,
        };
        let is_known = |key: u64| next.is_none_or(|next| key < next);
        let mut entries: BTreeMap<u64, u64> = stored.into_iter().collect();
        if let Some(buffer) = self.buffer_of(seen.node) {
            let behind = buffer.entries().filter(|entry| entry.key >= from);
            entries.extend(behind.map(|entry| (entry.key, entry.value)));
        }
        entries.retain(|key, _| is_known(*key));
        let entries = entries.into_iter().take(limit).collect();
        Ok(Copied { entries, next })
    }
}

/// What all keys of a node are below, if there is a node behind it.
#[inline]
pub(super) fn bound_of(node: &Mnode) -> Option<u64> {
    let bound = node.hkey();
    (node.next() != 0).then_some(bound)
}

impl<B: Base, const PAGE: usize> OrderedIndex<u64> for Layered<B, PAGE> {
    fn scan(&self, from: &u64, limit: usize, found: &mut Vec<(u64, u64)>) -> Result<()> {
        let end = found.len().saturating_add(limit);
        let mut from = Some(*from);
        while let Some(key) = from.filter(|_| found.len() < end) {
            from = self.scan_node(key, end, found)?;
        }
        Ok(())
    }
}
