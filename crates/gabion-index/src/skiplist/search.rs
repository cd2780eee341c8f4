//! The way to a key: along the highest level as far as it goes, then down.

use std::cmp::Ordering;

use super::layout::LEVELS;
use super::node::Node;
use super::{SkipList, damaged};
use crate::stored_key::{KeyParts, StoredKey};
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

/// Searches of a writer before there must be damage: each of the others found a node that was taken
/// out before it came to level 0.
const TURNS_MAX: u32 = 1000;

/// Level from which on nodes are tall: they are known in DRAM, if any are.
pub(crate) const TALL_LEVEL: usize = 2;

impl<K: Item + ?Sized, const BITS: u32> SkipList<K, BITS> {
    #[inline]
    pub(super) fn head(&self) -> Node<'_> {
        Node::head(&self.medium, self.head)
    }

    #[inline]
    pub(super) fn node(&self, at: u64) -> Result<Node<'_>> {
        Node::new(&self.medium, at).ok_or_else(|| damaged(at))
    }

    /// The node at an offset, to which the link of another one leads.
    ///
    /// # Errors
    /// No node, or one whose key is not greater: links that are damaged can lead in a ring.
    #[inline]
    pub(super) fn node_behind(&self, before: Option<StoredKey>, at: u64) -> Result<Node<'_>> {
        let node = self.node(at)?;
        let stored = node.stored();
        let rises = |before: StoredKey| before.order(&self.medium, &stored) == Ordering::Less;
        before
            .is_none_or(rises)
            .then_some(node)
            .ok_or_else(|| damaged(at))
    }

    /// Goes from `node` along a level up to the last node before a key, telling of each link that
    /// leads on. Returns that node, what its link led to, and whether that is the node of the key.
    /// `known` is a node at or behind the key.
    #[inline]
    fn walk<'a>(
        &'a self,
        mut node: Node<'a>,
        level: usize,
        key: &KeyParts<'_>,
        known: u64,
        mut step: impl FnMut(&Node<'a>),
    ) -> Result<(Node<'a>, u64, Option<Node<'a>>)> {
        let mut last = None;
        loop {
            let at = node.next(level);
            if at == 0 || at == known {
                return Ok((node, at, None));
            }
            let next = self.node_behind(last, at)?;
            match next.stored().compare(&self.medium, key) {
                Ordering::Less => {
                    step(&node);
                    last = Some(next.stored());
                    node = next;
                }
                Ordering::Equal => return Ok((node, at, Some(next))),
                Ordering::Greater => return Ok((node, at, None)),
            }
        }
    }

    /// The tall node of a key, or one before it, as it is known in DRAM, and how its key stands to
    /// this one.
    #[inline]
    fn begin(&self, key: &K, parts: &KeyParts<'_>) -> Result<Option<(Node<'_>, Ordering)>> {
        let Some(at) = self.paths.as_ref().and_then(|paths| paths.find(key)) else {
            return Ok(None);
        };
        let node = self.node(at)?;
        let order = node.stored().compare(&self.medium, parts);
        // While others write, the node may be one behind the key.
        Ok(Some((node, order)).filter(|_| order != Ordering::Greater))
    }

    /// The node of a key, and the last one before it on level 0, unless the node was found on an
    /// upper level: then its place on level 0 is durable.
    #[inline]
    pub(super) fn find(&self, key: &K) -> Result<(Option<Node<'_>>, Option<Node<'_>>)> {
        let parts = &KeyParts::of(key);
        let (mut node, top) = match self.begin(key, parts)? {
            Some((tall, Ordering::Equal)) => return Ok((Some(tall), None)),
            Some((tall, _)) => (tall, TALL_LEVEL),
            None => (self.head(), LEVELS),
        };
        let mut known = 0;
        for level in (0..top).rev() {
            let (before, next, found) = self.walk(node, level, parts, known, |_| ())?;
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
        let parts = KeyParts::of(key);
        let tall = match level {
            ..=TALL_LEVEL => self.begin(key, &parts)?,
            _ => None,
        };
        let (mut node, mut known, top) = match tall {
            Some((tall, Ordering::Equal)) => (tall, tall.next(level), level),
            Some((tall, _)) => (tall, 0, TALL_LEVEL + 1),
            None => (self.head(), 0, LEVELS),
        };
        for above in (level..top).rev() {
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
    /// It has the levels that a node of the key can be on, and those below.
    pub(super) fn find_path(&self, key: &K) -> Result<Path<'_>> {
        for _ in 0..TURNS_MAX {
            let path = self.try_find_path(key)?;
            // Else it was taken out meanwhile, and perhaps inserted anew.
            let is_there = |found: Node<'_>| path.next[0] == found.at;
            if path.found.is_none_or(is_there) {
                return Ok(path);
            }
        }
        Err(damaged(self.head))
    }

    fn try_find_path(&self, key: &K) -> Result<Path<'_>> {
        let (head, parts) = (self.head(), &KeyParts::of(key));
        let mut path = Path {
            before: [head; LEVELS],
            next: [0; LEVELS],
            found: None,
        };
        // The links of tall nodes are on levels that such a way does not have.
        let tall = match self.height(key) {
            ..=TALL_LEVEL => self.begin(key, parts)?,
            _ => None,
        };
        let tall = tall.filter(|(_, order)| *order == Ordering::Less);
        let (mut node, top) = tall.map_or((head, LEVELS), |(tall, _)| (tall, TALL_LEVEL));
        let mut known = 0;
        let mut must_fence = false;
        let mut see = |node: &Node<'_>, level: usize| {
            if level == 0 && self.locks.is_locked(node.at) {
                let _within = self.pool.write_guard();
                node.flush_link(&self.medium, 0);
                must_fence = true;
            }
        };
        for level in (0..top).rev() {
            let passed = |node: &Node<'_>| see(node, level);
            let (before, next, found) = self.walk(node, level, parts, known, passed)?;
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
