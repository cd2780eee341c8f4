//! Reads: down the trie without locks.

use super::Hot;
use super::path::ChildWord;
use crate::{Item, Result};

impl<K: Item + ?Sized> Hot<K> {
    /// The value of `key`. Reads as many nodes as the trie is high, and one leaf.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<u64>> {
        let _guard = self.pool.enter();
        loop {
            if let Some(answer) = self.try_get(key)? {
                return Ok(answer);
            }
            // Tells of damage if that was not because somebody is at work.
            self.seek(key)?;
        }
    }

    /// The answer; none if a node on the way was replaced.
    #[inline]
    fn try_get(&self, key: &K) -> Result<Option<Option<u64>>> {
        let mut must_fence = false;
        let mut place = self.root();
        let answer = loop {
            let child = self.child(&place);
            let leaf = child.is_leaf().then(|| self.leaf(child)).transpose()?;
            let found = leaf.filter(|leaf| leaf.has(key));
            let value = found.map(|leaf| leaf.value());
            if !self.vouch(&place, child, found, &mut must_fence) {
                return Ok(None);
            }
            if !child.is_node() {
                break value;
            }
            let node = self.node_below(&place, child)?;
            place = ChildWord::of(node, node.find(key));
        };
        if must_fence {
            // DURABLE: what was seen of writers who are at work.
            self.medium.fence();
        }
        Ok(Some(answer))
    }
}
