//! Growth: nodes split, and their parents are told.

use std::sync::atomic::Ordering;

use gabion_media::pmem::Reserved;

use super::FastFair;
use super::layout::{Head, NO_KEY, node_align, node_bytes};
use super::node::Node;
use super::writepath::Locked;
use crate::Result;

/// What a new node begins with.
pub(super) struct Plan {
    pub(super) level: u64,
    pub(super) low: u64,
    pub(super) neighbour: u64,
    pub(super) bound: u64,
}

/// The bytes of a new node.
pub(super) fn image<const N: usize>(plan: &Plan, entries: &[(u64, u64)]) -> Vec<u8> {
    let head = [plan.level, plan.neighbour, plan.bound, 0, 0, plan.low];
    let free = (NO_KEY, 0);
    let slots = entries.iter().copied().chain(std::iter::repeat(free));
    let slots = slots.take(N).flat_map(|(key, value)| [key, value]);
    let mut bytes = Vec::with_capacity(size_of::<Head>() + N * 16);
    bytes.extend(head.into_iter().chain(slots).flat_map(u64::to_le_bytes));
    bytes
}

impl<const N: usize> FastFair<N> {
    /// Reserves space for a node and writes it, without a fence.
    fn build(&self, plan: &Plan, entries: &[(u64, u64)]) -> Result<Reserved<'_>> {
        // Recovery finds a node by its level and its low, which the node itself tells.
        let node = self.pool.alloc_aligned(node_bytes(N), node_align(N), 0)?;
        let at = node.offset::<u8>().raw();
        self.medium.write(at, &image::<N>(plan, entries));
        self.medium.flush_range(at, node_bytes(N));
        Ok(node)
    }

    /// Moves the upper half of a full node to a new right neighbour, and tells the parent.
    #[cold]
    pub(super) fn split(&self, full: Locked<'_, N>) -> Result<()> {
        let Locked { node, range, .. } = full;
        let entries: Vec<(u64, u64)> = node.entries(range.bound).collect();
        let upper = &entries[entries.len() / 2..];
        let low = upper[0].0;
        let plan = Plan {
            level: node.level(),
            low,
            neighbour: range.neighbour,
            bound: range.bound,
        };
        let new = self.build(&plan, upper)?;
        // DURABLE: the new node, before the link to it.
        self.medium.fence();
        let at = new.offset::<u8>().raw();
        node.link(&self.medium, at, low);
        new.commit::<u8>();
        drop(full);
        self.adopt(Some(self.node(at)?));
        Ok(())
    }

    /// Tells the parent of a node that is reached from its left neighbour, if it does not know. No
    /// space for that, or damage, is no harm: the next one who comes by tries again.
    pub(super) fn adopt(&self, stray: Option<Node<'_, N>>) {
        if let Some(node) = stray {
            let _ = self.try_adopt(node);
        }
    }

    #[cold]
    fn try_adopt(&self, node: Node<'_, N>) -> Result<()> {
        let (level, low) = (node.level() + 1, node.low());
        while !node.range().is_dead() {
            if self.top()?.level() < level {
                self.grow(node)?;
                continue;
            }
            let Some(parent) = self.lock(self.descend(level, low)?, low) else {
                continue;
            };
            // Whoever gives a node up has the lock of its parent, so it stays in use.
            let is_known = parent.locate(low).is_ok();
            if is_known || node.range().is_dead() {
                return Ok(());
            }
            if parent.count == N {
                self.split(parent)?;
                continue;
            }
            self.insert_at(&parent, parent.node.rank(low), (low, node.at));
            break;
        }
        Ok(())
    }

    /// Puts a new node on top of the topmost, of which `right` is a neighbour.
    fn grow(&self, right: Node<'_, N>) -> Result<()> {
        let _lock = self.locks.lock(self.header.raw());
        let top = self.top()?;
        if top.level() != right.level() || right.range().is_dead() {
            return Ok(());
        }
        let plan = Plan {
            level: top.level() + 1,
            low: 0,
            neighbour: 0,
            bound: NO_KEY,
        };
        let new = self.build(&plan, &[(0, top.at), (right.low(), right.at)])?;
        // DURABLE: the new node, before anything leads to it.
        self.medium.fence();
        let at = new.offset::<u8>().raw();
        // ORDER: Release pairs with the acquire in `top`.
        // DURABLE: the tree's new height.
        let word = &self.header().top;
        word.store_persist(&self.medium, at, Ordering::Release);
        new.commit::<u8>();
        Ok(())
    }
}
