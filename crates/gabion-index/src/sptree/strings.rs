//! Trees of strings: what they can be asked for.

use gabion_media::pmem::Pool;

use super::SpTree;
use super::item::ItemRef;
use super::scan::{Taking, Way};
use super::writepath::Value;
use crate::Result;
use crate::index::{Checked, Index, OrderedIndex, visit_by_scans};

impl<const N: usize> SpTree<[u8], N> {
    /// The value of `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let _pins = self.pin();
        self.look_up(key, |at| Ok(ItemRef::new(&self.medium, at)?.value()))
    }

    /// Appends the value of `key` to `target`, and says whether it is there.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn get_into(&self, key: &[u8], target: &mut Vec<u8>) -> Result<bool> {
        let _pins = self.pin();
        let begin = target.len();
        let found = self.look_up(key, |at| {
            target.truncate(begin);
            ItemRef::new(&self.medium, at)?.append_value(target);
            Ok(())
        })?;
        if found.is_none() {
            target.truncate(begin);
        }
        Ok(found.is_some())
    }

    /// Stores `value` under `key`, durably, and says whether another one was there.
    ///
    /// # Errors
    /// No space in the pool, or for bounds in DRAM; or a string of 4 GiB or more: nothing has
    /// changed then.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let _pins = self.pin();
        Ok(self.insert_value(key, Value::Bytes(value))?.is_some())
    }

    /// Stores `value` under `key`, durably, if another one is there, and says whether it was.
    ///
    /// # Errors
    /// As [`SpTree::put`].
    pub fn replace(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let _pins = self.pin();
        Ok(self.update_value(key, Value::Bytes(value))?.is_some())
    }

    /// Deletes `key`, durably, and says whether it was there.
    ///
    /// # Errors
    /// Damage on the medium, or no room for a note of the allocator: nothing has changed then.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        let _pins = self.pin();
        Ok(self.remove_value(key)?.is_some())
    }

    /// Appends up to `limit` pairs from `from` on, in the order of keys, to `found`.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn pairs_from(
        &self,
        from: &[u8],
        limit: usize,
        found: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<()> {
        self.pairs(from, Way::Up, limit, found)
    }

    /// Appends up to `limit` pairs whose keys are below `before`, the greatest one first, to
    /// `found`.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn pairs_before(
        &self,
        before: &[u8],
        limit: usize,
        found: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<()> {
        self.pairs(before, Way::Down, limit, found)
    }

    fn pairs(
        &self,
        key: &[u8],
        way: Way,
        limit: usize,
        found: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<()> {
        let taking = Taking {
            way,
            make: |[_, at]: [u64; 2]| {
                let item = ItemRef::new(&self.medium, at)?;
                Ok((item.key(), item.value()))
            },
            end: found.len().saturating_add(limit),
            found,
        };
        self.scan_with(key, taking)
    }

    /// The value of an item that was found, as a word.
    fn word_at(&self, at: u64) -> Result<u64> {
        ItemRef::new(&self.medium, at)?.word()
    }
}

/// As an index from strings to words, the tree has the eight bytes of a word as the value.
impl<const N: usize> Index<[u8]> for SpTree<[u8], N> {
    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        let _pins = self.pin();
        self.look_up(key, |at| self.word_at(at))
    }

    fn insert(&self, key: &[u8], value: u64) -> Result<Option<u64>> {
        let _pins = self.pin();
        let before = self.insert_value(key, Value::Bytes(&value.to_le_bytes()))?;
        before.map(|at| self.word_at(at)).transpose()
    }

    fn update(&self, key: &[u8], value: u64) -> Result<Option<u64>> {
        let _pins = self.pin();
        let before = self.update_value(key, Value::Bytes(&value.to_le_bytes()))?;
        before.map(|at| self.word_at(at)).transpose()
    }

    fn remove(&self, key: &[u8]) -> Result<Option<u64>> {
        let _pins = self.pin();
        let before = self.remove_value(key)?;
        before.map(|at| self.word_at(at)).transpose()
    }

    fn len(&self) -> Result<u64> {
        SpTree::len(self)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], u64)) -> Result<()> {
        visit_by_scans(self, visit)
    }

    fn compact(&self) -> Result<()> {
        SpTree::compact(self)
    }

    fn check(&self) -> Result<Checked> {
        SpTree::check(self)
    }

    fn pool(&self) -> &Pool {
        SpTree::pool(self)
    }

    fn ordered(&self) -> Option<&dyn OrderedIndex<[u8]>> {
        Some(self)
    }
}

impl<const N: usize> OrderedIndex<[u8]> for SpTree<[u8], N> {
    fn scan(&self, from: &[u8], limit: usize, found: &mut Vec<(Vec<u8>, u64)>) -> Result<()> {
        let taking = Taking {
            way: Way::Up,
            make: |[_, at]: [u64; 2]| {
                let item = ItemRef::new(&self.medium, at)?;
                Ok((item.key(), item.word()?))
            },
            end: found.len().saturating_add(limit),
            found,
        };
        self.scan_with(from, taking)
    }
}
