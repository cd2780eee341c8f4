//! The way to a key: along the highest level as far as it goes, then down.

use std::cmp::Ordering;

use super::layout::LEVELS;
use super::node::Node;
use super::{SkipList, damaged};
use crate::stored::Parts;
use crate::{Item, Result};

/// Where a key is, or would go.
pub(super) struct Path<'a> {
    /// The last node before the key on each level.
    pub(super) before: [Node<'a>; LEVELS],
    /// What its link led to: the node of the key, or the first one behind, or 0.
    pub(super) next: [u64; LEVELS],
    /// The node of the key.
    pub(super) found: Option<Node<'a>>,
}

impl<K: Item + ?Sized, const BITS: u32> SkipList<K, BITS> {
    #[inline]
    pub(super) fn head(&self) -> Node<'_> {
        Node::head(&self.medium, self.head)
    }

    #[inline]
    pub(super) fn node(&self, at: u64) -> Result<Node<'_>> {
        Node::new(&self.medium, at).ok_or_else(|| damaged(at))
    }

    /// Goes from `node` along a level up to the last node before a key, telling of each link that
    /// leads on. Returns that node, what its link led to, and whether that is the node of the key.
    /// `known` is a node at or behind the key.
    #[inline]
    fn walk<'a>(
        &'a self,
        mut node: Node<'a>,
        level: usize,
        key: &Parts<'_>,
        known: u64,
        mut step: impl FnMut(&Node<'a>),
    ) -> Result<(Node<'a>, u64, Option<Node<'a>>)> {
        loop {
            let at = node.next(level);
            if at == 0 || at == known {
                return Ok((node, at, None));
            }
            let next = self.node(at)?;
            match next.stored().compare(&self.medium, key) {
                Ordering::Less => {
                    step(&node);
                    node = next;
                }
                Ordering::Equal => return Ok((node, at, Some(next))),
                Ordering::Greater => return Ok((node, at, None)),
            }
        }
    }

    /// The node of a key, and the last one before it on level 0, unless the node was found on an
    /// upper level: then its place on level 0 is durable.
    #[inline]
    pub(super) fn find(&self, key: &Parts<'_>) -> Result<(Option<Node<'_>>, Option<Node<'_>>)> {
        let (mut node, mut known) = (self.head(), 0);
        for level in (0..LEVELS).rev() {
            let (before, next, found) = self.walk(node, level, key, known, |_| ())?;
            if found.is_some() {
                return Ok((found, (level == 0).then_some(before)));
            }
            (node, known) = (before, next);
        }
        Ok((None, Some(node)))
    }

    /// The next key behind `key` on a level. Others may change that meanwhile.
    pub(crate) fn next_on(&self, level: usize, key: &K) -> Result<Option<K::Owned>> {
        let _guard = self.pool.enter();
        let parts = Parts::of(key);
        let (mut node, mut known) = (self.head(), 0);
        for above in (level..LEVELS).rev() {
            let (before, next, found) = self.walk(node, above, &parts, known, |_| ())?;
            if let Some(found) = found {
                known = found.next(level);
                break;
            }
            (node, known) = (before, next);
        }
        if known == 0 {
            return Ok(None);
        }
        let key = self.node(known)?.key::<K>(&self.medium);
        key.ok_or_else(|| damaged(known)).map(Some)
    }

    /// The way to a key, for a writer: all of level 0 that was passed on it is durable.
    pub(super) fn find_path(&self, key: &Parts<'_>) -> Result<Path<'_>> {
        loop {
            let path = self.try_find_path(key)?;
            // Else it was taken out meanwhile, and perhaps inserted anew.
            let is_there = |found: Node<'_>| path.next[0] == found.at;
            if path.found.is_none_or(is_there) {
                return Ok(path);
            }
        }
    }

    fn try_find_path(&self, key: &Parts<'_>) -> Result<Path<'_>> {
        let head = self.head();
        let mut path = Path {
            before: [head; LEVELS],
            next: [0; LEVELS],
            found: None,
        };
        let (mut node, mut known) = (head, 0);
        let mut must_fence = false;
        let mut see = |node: &Node<'_>, level: usize| {
            if level == 0 && self.locks.is_locked(node.at) {
                let _within = self.pool.write_guard();
                node.flush_link(&self.medium, 0);
                must_fence = true;
            }
        };
        for level in (0..LEVELS).rev() {
            let passed = |node: &Node<'_>| see(node, level);
            let (before, next, found) = self.walk(node, level, key, known, passed)?;
            see(&before, level);
            path.before[level] = before;
            path.next[level] = next;
            path.found = path.found.or(found);
            (node, known) = (before, next);
        }
        if must_fence {
            // DURABLE: the way, before anything that is only reached over it.
            self.medium.fence();
        }
        Ok(path)
    }
}
