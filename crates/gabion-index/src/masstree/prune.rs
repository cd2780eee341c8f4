//! Removal of empty nodes and layers.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Guard, POff};

use super::Masstree;
use super::damaged;
use super::layer::above;
use super::layout::{HINT_LAYER, TO_LAYER};
use super::node::Node;
use super::scan::SliceContent;
use crate::blink::{Descent, Node as _, NodeRemoval, NodeSplit, Tree};
use crate::{Item, Result};

impl<K: Item + ?Sized> Masstree<K> {
    /// Gives up the leaf of a layer whose low is `low` if it holds nothing, and its layer if that
    /// holds nothing then, and so on upwards.
    #[cold]
    pub(super) fn prune(&self, first: u64, low: u64, guard: &Guard<'_>) -> Result<()> {
        let (mut first, mut low) = (first, low);
        loop {
            let layer = self.layer(first);
            layer.give_up(0, low, guard)?;
            if first == self.root || !layer.first_leaf().is_empty() {
                return Ok(());
            }
            layer.lower(guard)?;
            match self.drop_layer(first, guard)? {
                Some((above, leaf_low)) => (first, low) = (above, leaf_low),
                None => return Ok(()),
            }
        }
    }

    /// Gives up a layer that has one node and no entry. Returns the layer above, and the low of its
    /// leaf, if that holds nothing then.
    fn drop_layer(&self, first: u64, guard: &Guard<'_>) -> Result<Option<(u64, u64)>> {
        let above = above(&self.medium, first).ok_or_else(|| damaged(first))?;
        // ORDER: Relaxed: these words do not change.
        let parent = above.first.load(&self.medium, Ordering::Relaxed);
        let word = above.slice.load(&self.medium, Ordering::Relaxed);
        // Nobody has come over the layer above here.
        Node::new(&self.medium, parent).ok_or_else(|| damaged(first))?;
        let layer = self.layer(parent);
        let Some((mut leaf, stray)) = layer.lock_leaf(word)? else {
            return Ok(None);
        };
        let slot = leaf.node.find(word);
        if slot.map(|slot| leaf.node.value(slot)) != Some(first | TO_LAYER) {
            return Ok(None);
        }
        let Some(_lock) = self.locks.try_beside(&[&leaf.lock], first) else {
            return Ok(None);
        };
        let node = self.layer(first).first_leaf();
        let range = node.body.head.range();
        // ORDER: Acquire: as in `Descent::top`.
        let top = node.body.top.load(&self.medium, Ordering::Acquire);
        if range.is_dead() || !range.is_last() || !node.is_empty() || top != first {
            return Ok(None);
        }
        let space: POff<u8> = POff::new(first);
        let retiring = self.pool.retire(space, HINT_LAYER)?;
        // DURABLE: what the allocator noted.
        self.medium.fence();
        layer.remove_entry(&mut leaf, word);
        node.body.head.give_up(&self.medium);
        retiring.commit(guard);
        let emptied = (leaf.count == 0).then(|| (parent, leaf.node.body.head.low()));
        drop(leaf);
        layer.adopt(stray);
        Ok(emptied)
    }

    /// Gives up all nodes and layers that hold nothing, and tells parents of nodes that they do not
    /// know.
    pub(super) fn prune_all(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        // Layers, each behind those that it is below.
        let mut layers = vec![(self.root, 0)];
        let mut number = 0;
        let guard = self.pool.enter();
        while let Some(&(first, depth)) = layers.get(number) {
            number += 1;
            let layer = self.layer(first);
            layer.give_up_all()?;
            let mut from = Some(0);
            while let Some(start) = from {
                let Some(copy) = self.copy(&layer, depth, start)? else {
                    break;
                };
                for (word, content) in copy.entries {
                    if let SliceContent::Layer(below) = content {
                        layer.expect_below(word, below)?;
                        layers.push((below, depth + 1));
                    }
                }
                from = copy.next;
            }
        }
        for (first, _) in layers.into_iter().rev() {
            self.prune(first, 0, &guard)?;
        }
        Ok(())
    }
}

impl Node<'_> {
    /// Whether there is no entry.
    fn is_empty(&self) -> bool {
        self.entries(self.body.head.range()).is_empty()
    }
}
