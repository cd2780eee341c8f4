//! Writes: one leaf, under the lock of its node.

use super::SpTree;
use super::bloom::tag_of;
use super::leaf::Tagged;
use super::readpath::Search;
use crate::Result;

impl<const N: usize> SpTree<N> {
    /// Stores `value` under `key`, whether it is there or not, and returns the value before.
    ///
    /// # Errors
    /// No space in the pool: nothing has changed then.
    pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let hash = self.seed.hash_u64(key);
        let tag = tag_of(hash);
        let mut search = Search::new(self, key);
        loop {
            let node = search.lock();
            let leaf = self.leaf(node.leaf())?;
            if node.bloom.may_hold(hash)
                && let Some(slot) = leaf.find(key, tag)
            {
                return Ok(Some(leaf.replace(slot, value)));
            }
            if leaf.count() == N {
                self.split(node)?;
                continue;
            }
            leaf.put(&[Tagged { key, value, tag }]);
            node.bloom.add(hash);
            node.note_change();
            return Ok(None);
        }
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn update(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let hash = self.seed.hash_u64(key);
        let mut search = Search::new(self, key);
        loop {
            let seen = search.node();
            if !seen.node.bloom.may_hold(hash) {
                if seen.node.is_still(seen.word) {
                    return Ok(None);
                }
                continue;
            }
            let Some(node) = seen.node.lock_seen(seen.number, seen.word) else {
                continue;
            };
            let leaf = self.leaf(node.leaf())?;
            let slot = leaf.find(key, tag_of(hash));
            return Ok(slot.map(|slot| leaf.replace(slot, value)));
        }
    }

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn remove(&self, key: u64) -> Result<Option<u64>> {
        let hash = self.seed.hash_u64(key);
        let mut search = Search::new(self, key);
        loop {
            let seen = search.node();
            if !seen.node.bloom.may_hold(hash) {
                if seen.node.is_still(seen.word) {
                    return Ok(None);
                }
                continue;
            }
            let Some(node) = seen.node.lock_seen(seen.number, seen.word) else {
                continue;
            };
            let leaf = self.leaf(node.leaf())?;
            let Some(slot) = leaf.find(key, tag_of(hash)) else {
                return Ok(None);
            };
            let before = leaf.remove(slot);
            if leaf.count() <= N / 4 {
                // Leaves that are not merged now can be later; the entry is gone either way.
                let _ = self.merge_around(node);
            }
            return Ok(Some(before));
        }
    }
}
