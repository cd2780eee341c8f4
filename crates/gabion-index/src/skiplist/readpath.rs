//! Reads: along the levels without locks.

use std::borrow::Borrow;

use super::node::Node;
use super::{SkipList, damaged};
use crate::{Item, OrderedIndex, Result};

impl<K: Item + ?Sized, const BITS: u32> SkipList<K, BITS> {
    /// The value of `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<u64>> {
        let _guard = self.pool.enter();
        let (found, before) = self.find(key)?;
        let value = found.map(|node| node.value());
        let busy = |node: &Option<Node<'_>>| node.is_some_and(|node| self.locks.is_locked(node.at));
        if busy(&found) || busy(&before) {
            self.settle(found, before);
        }
        Ok(value)
    }

    /// Makes durable what was seen of writers who are at work.
    #[cold]
    #[inline(never)]
    fn settle(&self, found: Option<Node<'_>>, before: Option<Node<'_>>) {
        let _within = self.pool.write_guard();
        if let Some(node) = found {
            self.medium.flush(&node.face.value);
        }
        if let Some(node) = before {
            node.flush_link(&self.medium, 0);
        }
        self.medium.fence();
    }
}

impl<K: Item + ?Sized, const BITS: u32> OrderedIndex<K> for SkipList<K, BITS> {
    fn scan(&self, from: &K, limit: usize, found: &mut Vec<(K::Owned, u64)>) -> Result<()> {
        if limit == 0 {
            return Ok(());
        }
        let _guard = self.pool.enter();
        let end = found.len().saturating_add(limit);
        let path = self.find_path(from)?;
        let (mut next, mut last) = (path.next[0], None);
        let mut must_fence = false;
        while next != 0 && found.len() < end {
            let node = self.node_behind(last, next)?;
            let value = node.value();
            (next, last) = (node.next(0), Some(node.stored()));
            self.medium.prefetch(next);
            if self.locks.is_locked(node.at) {
                let _within = self.pool.write_guard();
                self.medium.flush(&node.face.value);
                node.flush_link(&self.medium, 0);
                must_fence = true;
            }
            let key = node.key::<K>(&self.medium);
            let key = key.ok_or_else(|| damaged(node.at))?;
            debug_assert!(key.borrow() >= from, "keys rise");
            found.push((key, value));
        }
        if must_fence {
            // DURABLE: what was seen of writers who are at work.
            self.medium.fence();
        }
        Ok(())
    }
}
