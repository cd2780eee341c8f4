//! Floors: from a key to the entry of the greatest key up to it. For who keeps a trie as a
//! directory and can tell whether an answer is of use.

use super::Art;
use super::key;
use super::layout::Child;
use super::node::Node;

/// Nodes on the way to a word at most: one for each of its bytes.
const DEPTH: usize = 8;

impl Art<u64> {
    /// The value of the greatest key up to `key`; none if there is no such key. While others
    /// insert and delete near it, it may be the value of another key, or none. It may not be
    /// durable yet.
    #[inline]
    pub(crate) fn floor_hint(&self, key: u64) -> Option<u64> {
        let _guard = self.pool.enter();
        let mut path = [Child::NONE; DEPTH];
        let mut depth = 0;
        let mut node = self.root();
        let mut from = 0;
        loop {
            let level = node.level();
            if level < from || level >= DEPTH {
                return None;
            }
            let mask = key::mask(level - from);
            let ours = key::before(&key, level) & mask;
            let theirs = node.before() & mask;
            if theirs != ours {
                let is_below = theirs < ours;
                return if is_below {
                    self.last_below(node.child)
                } else {
                    self.before_path(&path[..depth], key)
                };
            }
            *path.get_mut(depth)? = node.child;
            depth += 1;
            let branch = key::branch(&key, level);
            node.prefetch(branch);
            let Some((_, child)) = node.find(branch) else {
                return self.before_path(&path[..depth], key);
            };
            if child.is_leaf() {
                let leaf = self.leaf(child).ok()?;
                return if leaf.word() <= key {
                    Some(leaf.value())
                } else {
                    self.before_path(&path[..depth], key)
                };
            }
            node = self.node(child).ok()?;
            from = level + 1;
        }
    }

    /// The value of the greatest key before those that a path leads to.
    fn before_path(&self, path: &[Child], key: u64) -> Option<u64> {
        path.iter().rev().find_map(|&child| {
            let node = Node::new(&self.medium, child)?;
            let byte = key::branch(&key, node.level())?;
            self.last_below(node.child_before(usize::from(byte))?)
        })
    }

    /// The value of the greatest key below a child.
    fn last_below(&self, mut child: Child) -> Option<u64> {
        for _ in 0..=DEPTH {
            if child.is_leaf() {
                return Some(self.leaf(child).ok()?.value());
            }
            child = self.node(child).ok()?.child_before(1 << 8)?;
        }
        None
    }
}
