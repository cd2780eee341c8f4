//! Many operations at once, so that their cache misses overlap.
//!
//! A lookup waits for one or two lines from memory and computes little. So a batch goes over a
//! window of keys in steps: hash all and ask for the shards' descriptors; ask for the buckets, of
//! each the metadata and the line where the entry probably is; then look all of them up.

use std::borrow::Borrow;

use super::TurboHash;
use super::probe::prefetch_home;
use crate::{Error, Item, Result};

/// Keys whose lines are asked for at the same time: two lines each, and a processor core keeps
/// tens of lines in flight.
const WINDOW: usize = 32;

impl<K: Item + ?Sized, V: Item + ?Sized> TurboHash<K, V> {
    /// Looks up `keys`, and stores what is found at the same places of `values`. Faster than one by
    /// one if the table is larger than the cache. Each lookup is on its own: between them others
    /// may write.
    ///
    /// # Errors
    /// A damaged record, or slices of different lengths.
    pub fn get_many<Q>(&self, keys: &[Q], values: &mut [Option<V::Owned>]) -> Result<()>
    where
        Q: Borrow<K>,
    {
        if keys.len() != values.len() {
            return Err(Error::Lengths {
                one: keys.len(),
                two: values.len(),
            });
        }
        let pin = Self::HAS_RECORDS.then(|| self.pin());
        let mut hashes = [0; WINDOW];
        for (keys, values) in keys.chunks(WINDOW).zip(values.chunks_mut(WINDOW)) {
            self.prefetch_window(keys.iter().map(Borrow::borrow), &mut hashes);
            for ((key, value), hash) in keys.iter().zip(values).zip(&hashes) {
                *value = self.get_hashed(key.borrow(), *hash, pin.as_ref())?;
            }
        }
        Ok(())
    }

    /// Stores all `entries`, one after the other, and returns how many keys were new. Faster than
    /// one by one if the table is larger than the cache.
    ///
    /// # Errors
    /// As [`TurboHash::put`]; the entries before the failing one are stored.
    pub fn put_many<Q, W>(&self, entries: &[(Q, W)]) -> Result<u64>
    where
        Q: Borrow<K>,
        W: Borrow<V>,
    {
        let mut new = 0;
        let mut hashes = [0; WINDOW];
        for entries in entries.chunks(WINDOW) {
            self.prefetch_window(entries.iter().map(|(key, _)| key.borrow()), &mut hashes);
            for ((key, value), hash) in entries.iter().zip(&hashes) {
                new += u64::from(self.put_hashed(key.borrow(), value.borrow(), *hash)?);
            }
        }
        Ok(new)
    }

    /// Hashes keys and asks for what their lookups read first.
    #[inline]
    fn prefetch_window<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = &'k K>,
        hashes: &mut [u64; WINDOW],
    ) where
        K: 'k,
    {
        let count = keys.len();
        for (key, hash) in keys.zip(hashes.iter_mut()) {
            *hash = key.seeded_hash(&self.seed);
        }
        for hash in &hashes[..count] {
            prefetch_home(&self.medium, self.shard_of(*hash).place(), *hash);
        }
    }
}
