//! Reads: the buffer of a node first, then the base, without locks; again if somebody wrote there.

use std::collections::BTreeMap;

use super::{Base, Layered};
use crate::spoton::bloom::tag_of;
use crate::spoton::buffer::Buffer;
use crate::spoton::mnode::{LockedNode, Mnode};
use crate::{OrderedIndex, Result};

/// Where bits of hashes begin that tell keys of a buffer apart.
const MIDDLE: u32 = 36;

/// How often a search begins where the router says: one that leads astray has no memory for more.
const TURNS_MAX: u32 = 4;

/// A node whose range holds a position, as it was seen.
#[derive(Clone, Copy)]
pub(super) struct NodeView<'a> {
    pub(super) node: &'a Mnode,
    pub(super) number: u64,
    /// Its word.
    pub(super) word: u64,
    /// What all its positions are below, if there is a node behind it.
    pub(super) bound: Option<u64>,
}

/// What a scan has of one node.
struct Copied {
    entries: Vec<(u64, u64)>,
    /// Where the scan goes on; none if there is nothing more.
    next: Option<u64>,
}

impl<B: Base, const PAGE: usize> Layered<B, PAGE> {
    /// The node whose range holds a position.
    #[inline]
    pub(super) fn see(&self, position: u64) -> NodeView<'_> {
        let mut number = self.router.find(&position).map_or(0, |hint| hint.node);
        let mut turns = 0;
        loop {
            let node = self.nodes.get(number);
            let Some((node, word)) = node.and_then(|node| Some((node, node.look()?))) else {
                turns += 1;
                // The first node is always there.
                let hint = self.router.find(&position).filter(|_| turns < TURNS_MAX);
                number = hint.map_or(0, |hint| hint.node);
                continue;
            };
            let bound = bound_of(node);
            let link = if position < node.lkey() {
                node.prev()
            } else if bound.is_some_and(|bound| position >= bound) {
                node.next()
            } else {
                return NodeView {
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

    /// The node whose range holds a position, locked.
    #[inline]
    pub(super) fn lock(&self, position: u64) -> LockedNode<'_> {
        loop {
            let seen = self.see(position);
            if let Some(node) = seen.node.lock_seen(seen.number, seen.word) {
                return node;
            }
        }
    }

    /// The buffer of a node that has the pairs with a position, if there is one.
    #[inline]
    pub(super) fn buffer_of(&self, node: &Mnode, position: u64) -> Option<&Buffer> {
        self.buffers.way(node.buffer()?, self.base.way(position))
    }

    /// All buffers of a node.
    pub(super) fn buffers_of(&self, node: &Mnode) -> impl Iterator<Item = &Buffer> {
        let number = node.buffer().into_iter();
        number.flat_map(|number| self.buffers.all_ways(number))
    }

    /// The tag of a key: bits in the middle of its hash. Where positions are hashes, the keys of a
    /// buffer share the first bits and the last ones.
    #[inline]
    pub(super) fn tag(&self, key: u64) -> u8 {
        tag_of(self.seed.hash_u64(key).rotate_left(MIDDLE))
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub fn get(&self, key: u64) -> Result<Option<u64>> {
        let (position, tag) = (self.base.position(key), self.tag(key));
        loop {
            let NodeView { node, word, .. } = self.see(position);
            let buffer = self.buffer_of(node, position);
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

    /// Appends entries of one node from a position on until `found` has `end`. Returns where the
    /// scan goes on, none if there is nothing more.
    pub(super) fn scan_node(
        &self,
        from: u64,
        end: usize,
        found: &mut Vec<(u64, u64)>,
    ) -> Result<Option<u64>> {
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

    /// Up to `limit` entries of a node from a position on, in the order of their keys. Means
    /// nothing if somebody writes meanwhile.
    fn copy(&self, seen: &NodeView<'_>, from: u64, limit: usize) -> Result<Copied> {
        // As many as a part has, most often.
        let wanted = limit.min(2 * self.shape.pairs + 2);
        let mut stored = Vec::with_capacity(wanted);
        // What is in the base is known up to there.
        let known = self.base.collect(from, wanted, &mut stored)?;
        let next = known.into_iter().chain(seen.bound).min();
        let mut entries: BTreeMap<u64, u64> = stored.into_iter().collect();
        for buffer in self.buffers_of(seen.node) {
            entries.extend(buffer.entries().map(|entry| (entry.key, entry.value)));
        }
        entries.retain(|key, _| {
            let position = self.base.position(*key);
            position >= from && next.is_none_or(|next| position < next)
        });
        let entries = entries.into_iter().take(limit).collect();
        Ok(Copied { entries, next })
    }
}

/// What all positions of a node are below, if there is a node behind it.
#[inline]
pub(super) fn bound_of(node: &Mnode) -> Option<u64> {
    let bound = node.hkey();
    (node.next() != 0).then_some(bound)
}

impl<B: Base + OrderedIndex<u64>, const PAGE: usize> OrderedIndex<u64> for Layered<B, PAGE> {
    fn scan(&self, from: &u64, limit: usize, found: &mut Vec<(u64, u64)>) -> Result<()> {
        let end = found.len().saturating_add(limit);
        let mut from = Some(*from);
        while let Some(key) = from.filter(|_| found.len() < end) {
            from = self.scan_node(key, end, found)?;
        }
        Ok(())
    }
}
