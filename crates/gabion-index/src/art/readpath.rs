//! Reads: down the trie without locks.

use super::Art;
use super::key::{self, Branch};
use super::layout::Child;
use super::node::Node;
use super::writepath::is_as_seen;
use crate::leaf::LeafRef;
use crate::retry::Attempt;
use crate::{Error, Item, Result};

impl<K: Item + ?Sized> Art<K> {
    /// The value of `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<u64>> {
        let _guard = self.pool.enter();
        loop {
            if let Some(found) = self.try_get(key)? {
                return Ok(found);
            }
        }
    }

    /// The value of `key`, looked for once; none if somebody was in the way.
    #[inline]
    pub(super) fn try_get(&self, key: &K) -> Attempt<Option<u64>> {
        let mut node = self.root();
        // Whether what was seen on the way was flushed, and must be fenced.
        let mut must_fence = false;
        // The place in the key from which on the node's prefix is to be compared.
        let mut from = 0;
        let found = loop {
            let level = node.level();
            if level < from {
                return Err(damaged(node.at()));
            }
            if !has_prefix(&node, level, key, from) {
                break None;
            }
            let branch = key::branch(key, level);
            node.prefetch(branch);
            let child = node.find(branch).map_or(Child::NONE, |(_, child)| child);
            let leaf = child.is_leaf().then(|| self.leaf(child)).transpose()?;
            let found = leaf.filter(|leaf| leaf.has(key));
            let value = found.map(|leaf| leaf.value());
            if self.locks.is_locked(node.at()) {
                self.flush_seen(&node, branch, leaf);
                must_fence = true;
            } else if found.map_or(node.is_dead(), |_| !is_as_seen(&node, branch, child)) {
                // The node's lock guards its children no more, or a leaf that is below another
                // node now.
                return Ok(None);
            }
            if child.is_none() || leaf.is_some() {
                break value;
            }
            node = self.node(child)?;
            from = level + 1;
        };
        if must_fence {
            // DURABLE: what was seen of writers who are at work.
            self.medium.fence();
        }
        Ok(Some(found))
    }

    /// Flushes what was seen under a lock that a writer holds.
    #[cold]
    #[inline(never)]
    pub(super) fn flush_seen(&self, node: &Node<'_>, branch: Branch, leaf: Option<LeafRef<'_>>) {
        let _within = self.pool.write_guard();
        node.flush(&self.medium, branch);
        if let Some(leaf) = leaf {
            self.medium.flush(&leaf.leaf.value);
        }
    }

    /// The root, which is never replaced.
    #[inline]
    pub(super) fn root(&self) -> Node<'_> {
        let root = Node::new(&self.medium, self.root);
        root.expect("the root was there when the trie was opened")
    }

    #[inline]
    pub(super) fn node(&self, child: Child) -> Result<Node<'_>> {
        Node::new(&self.medium, child).ok_or_else(|| damaged(child.at()))
    }

    /// The node that a child of another one is.
    #[inline]
    pub(super) fn node_below(&self, above: &Node<'_>, child: Child) -> Result<Node<'_>> {
        let node = self.node(child)?;
        // Else a wrong bit could lead in a circle.
        if node.level() <= above.level() {
            return Err(damaged(node.at()));
        }
        Ok(node)
    }

    #[inline]
    pub(super) fn leaf(&self, child: Child) -> Result<LeafRef<'_>> {
        LeafRef::new(&self.medium, child.at()).ok_or_else(|| damaged(child.at()))
    }
}

/// Whether the bytes of `key` from a place to the level of a node are those of the node's keys, as
/// far as the node knows, which are the last eight of them; the leaf tells the rest.
#[inline]
pub(super) fn has_prefix<K: Item + ?Sized>(
    node: &Node<'_>,
    level: usize,
    key: &K,
    from: usize,
) -> bool {
    if level == from {
        return true;
    }
    let differing = || node.before() ^ key::before(key, level);
    level <= key::len(key) && differing() & key::mask(level.saturating_sub(from)) == 0
}

#[cold]
pub(super) fn damaged(offset: u64) -> Error {
    Error::damaged("a child in a trie", offset)
}
