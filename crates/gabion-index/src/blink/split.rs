//! Splits of nodes, and the update of their parents.

use std::sync::atomic::Ordering;

use gabion_media::pmem::Reserved;

use super::{Descent, LockedNode, Node, NodeInit, Tree};
use crate::Result;

/// How a tree grows.
pub(crate) trait NodeSplit: Tree {
    /// Reserves space for a node and writes it, without a fence.
    fn build(&self, born: &NodeInit, entries: &[(u64, u64)]) -> Result<Reserved<'_>> {
        let image = Self::image(born, entries);
        let bytes = image.len() as u64;
        let node = self.pool().alloc_aligned(bytes, Self::ALIGN, self.hint())?;
        let at = node.offset::<u8>().raw();
        self.medium().write(at, &image);
        self.medium().flush_range(at, bytes);
        Ok(node)
    }

    /// Moves the upper half of a full node to a new right neighbour, and tells the parent.
    #[cold]
    fn split(&self, full: LockedNode<'_, Self::Node<'_>>) -> Result<()> {
        let LockedNode { node, range, .. } = full;
        let entries = node.entries(range);
        let upper = &entries[entries.len() / 2..];
        let low = upper[0].0;
        let born = NodeInit {
            level: range.level(),
            low,
            neighbour: range.neighbour,
            bound: range.bound,
        };
        let new = self.build(&born, upper)?;
        // DURABLE: the new node, before the link to it.
        self.medium().fence();
        let at = new.offset::<u8>().raw();
        node.head().link(self.medium(), at, low);
        self.forget_from(&node, low);
        // DURABLE: the split.
        self.medium().persist(&node.head().state);
        new.commit::<u8>();
        drop(full);
        self.adopt(Some(self.node(at)?));
        Ok(())
    }

    /// Tells the parent of a node that is reached from its left neighbour, if it does not know. No
    /// space for that, or damage, is no harm: the next one who comes by tries again.
    fn adopt(&self, stray: Option<Self::Node<'_>>) {
        if let Some(node) = stray {
            let _ = self.try_adopt(node);
        }
    }

    /// As [`NodeSplit::adopt`].
    ///
    /// # Errors
    /// No space, or damage.
    #[cold]
    fn try_adopt(&self, node: Self::Node<'_>) -> Result<()> {
        let (level, low) = (node.head().level() + 1, node.head().low());
        while !node.head().range().is_dead() {
            if self.top()?.head().level() < level {
                self.grow(node)?;
                continue;
            }
            let parent = self.descend(level, low)?;
            let Some(parent) = parent.and_then(|parent| self.lock(parent, low)) else {
                continue;
            };
            // Whoever gives a node up has the lock of its parent, so it stays in use.
            let known = parent.node.entry_upto(low).filter(|(key, _)| *key == low);
            if node.head().range().is_dead() {
                return Ok(());
            }
            if let Some((_, at)) = known {
                if at == node.at() {
                    // There may have been no memory to note it before.
                    self.note_child(&node);
                    return Ok(());
                }
                drop(parent);
                // Only leaves are replaced.
                return if level == 1 {
                    self.pass_by(low)
                } else {
                    Ok(())
                };
            }
            if parent.count == Self::ROOM {
                self.split(parent)?;
                continue;
            }
            self.insert_entry(&parent, (low, node.at()));
            self.note_child(&node);
            break;
        }
        Ok(())
    }

    /// Puts a new node on top of the topmost, of which `right` is a neighbour.
    fn grow(&self, right: Self::Node<'_>) -> Result<()> {
        let _lock = self.locks().lock(self.top_lock());
        let top = self.top()?;
        let level = top.head().level();
        if level != right.head().level() || right.head().range().is_dead() {
            return Ok(());
        }
        let entries = [(0, top.at()), (right.head().low(), right.at())];
        let new = self.build(&NodeInit::lone(level + 1), &entries)?;
        // DURABLE: the new node, before anything leads to it.
        self.medium().fence();
        let at = new.offset::<u8>().raw();
        // Before there is a parent, by which it could be given up.
        self.note_child(&right);
        // ORDER: Release pairs with the acquire in `top`.
        // DURABLE: the tree's new height.
        self.top_word()
            .store_persist(self.medium(), at, Ordering::Release);
        new.commit::<u8>();
        Ok(())
    }
}

impl<T: Tree> NodeSplit for T {}
