//! An index whose inserts are all out of place, one entry each: whatever the suite does to an index
//! it does to parts that are replaced.

use gabion_media::pmem::Pool;
use parking_lot::{Mutex, MutexGuard};

use crate::index::CheckSummary;
use crate::{Index, OrderedIndex, Result};

/// An index that stores entries out of place.
pub(crate) trait OutOfPlace: Index<u64> + Sized {
    /// Stores a value in a new part, whether its key is there or not.
    fn put(&self, key: u64, value: u64) -> Result<()>;

    /// What those can do that know the order of their keys, if it does.
    fn order_of(renewed: &Renewed<Self>) -> Option<&dyn OrderedIndex<u64>>;
}

/// The index, and locks for the keys: whoever stores many entries at once sees to it that nobody
/// relies on what is found of their keys meanwhile.
pub(crate) struct Renewed<I> {
    index: I,
    locks: [Mutex<()>; 16],
}

impl<I> Renewed<I> {
    pub(crate) fn with(index: I) -> Renewed<I> {
        Renewed {
            index,
            locks: Default::default(),
        }
    }

    fn lock(&self, key: u64) -> MutexGuard<'_, ()> {
        self.locks[usize::try_from(key % 16).unwrap_or(0)].lock()
    }
}

impl<I: OutOfPlace> Index<u64> for Renewed<I> {
    fn get(&self, key: &u64) -> Result<Option<u64>> {
        let _lock = self.lock(*key);
        self.index.get(key)
    }

    fn insert(&self, key: &u64, value: u64) -> Result<Option<u64>> {
        let _lock = self.lock(*key);
        let before = self.index.get(key)?;
        self.index.put(*key, value)?;
        Ok(before)
    }

    fn update(&self, key: &u64, value: u64) -> Result<Option<u64>> {
        let _lock = self.lock(*key);
        self.index.update(key, value)
    }

    fn remove(&self, key: &u64) -> Result<Option<u64>> {
        let _lock = self.lock(*key);
        self.index.remove(key)
    }

    fn len(&self) -> Result<u64> {
        self.index.len()
    }

    fn for_each(&self, visit: &mut dyn FnMut(&u64, u64)) -> Result<()> {
        self.index.for_each(visit)
    }

    fn compact(&self) -> Result<()> {
        self.index.compact()
    }

    fn check(&self) -> Result<CheckSummary> {
        self.index.check()
    }

    fn pool(&self) -> &Pool {
        self.index.pool()
    }

    fn ordered(&self) -> Option<&dyn OrderedIndex<u64>> {
        I::order_of(self)
    }
}

impl<I: OutOfPlace + OrderedIndex<u64>> OrderedIndex<u64> for Renewed<I> {
    fn scan(&self, from: &u64, limit: usize, found: &mut Vec<(u64, u64)>) -> Result<()> {
        let _lock = self.lock(*from);
        self.index.scan(from, limit, found)
    }
}
