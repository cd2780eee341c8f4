//! Many operations at once, so that their cache misses overlap.
//!
//! A lookup waits for one or two lines from memory and computes little. So a batch takes its keys
//! through the steps of a lookup in a pipeline, as a conveyor does: while one key is looked up, the
//! lines that later keys need are on their way. No step waits for a line, and none of them locks or
//! fences.
//!
//! | step of a lookup | keys ahead | reads | asks for |
//! |---|---|---|---|
//! | [`TurboHash::approach`] | [`FAR`] | the shard's mirror | the line of the home's metadata |
//! | [`TurboHash::look`] | [`NEAR`] | metadata and tags | the line of the slot whose tag matches |
//! | [`TurboHash::settle_on`] | 0 | the slot, the metadata again | |
//!
//! So exactly the lines are fetched that the lookup reads: one for most absent keys, one or two for
//! the others. What `look` saw is valid if the metadata and the mirror are the same at the end;
//! that is the rule of single lookups as well, only that more time passes in between. A lookup that
//! is not decided this way is done by itself.

use std::borrow::Borrow;

use super::TurboHash;
use super::layout::{Bucket, Meta, Place};
use super::probe::{home_at, prefetch_lines, tag_of};
use super::record::Pin;
use crate::{Error, Item, Result};

/// Keys between the first and the last step: as many lines as a processor core keeps in flight,
/// and some more. A power of two.
const FAR: usize = 16;

/// Keys between the second and the last step.
const NEAR: usize = 6;

/// A lookup on its way through the steps.
#[derive(Clone, Copy)]
struct Lookup<'a> {
    hash: u64,
    place: Place,
    /// The home bucket; none if the shard is empty.
    home: Option<&'a Bucket>,
    meta: Meta,
    /// Live slots whose tags match, as bits.
    candidates: u16,
}

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
        let pin = pin.as_ref();
        let key_at = |index: usize| keys.get(index).map(Borrow::borrow);
        let mut lookups = [const { Lookup::NONE }; FAR];
        for (index, key) in keys.iter().take(FAR).enumerate() {
            lookups[index] = self.approach(key.borrow());
        }
        for lookup in lookups.iter_mut().take(keys.len().min(NEAR)) {
            self.look(lookup);
        }
        for (index, (key, value)) in keys.iter().zip(values).enumerate() {
            // Places of keys that are not there hold lookups that are over or never began.
            self.look(&mut lookups[(index + NEAR) % FAR]);
            let found = self.settle_on(key.borrow(), &lookups[index % FAR], pin)?;
            if let Some(key) = key_at(index + FAR) {
                lookups[index % FAR] = self.approach(key);
            }
            *value = match found {
                Some(found) => Some(self.value_of(found)?),
                None => None,
            };
        }
        Ok(())
    }

    /// Hashes a key and asks for the first line that its lookup reads.
    #[inline]
    fn approach(&self, key: &K) -> Lookup<'_> {
        let hash = key.seeded_hash(&self.seed);
        let place = self.shard_of(hash).place();
        let home = home_at(&self.medium, place, hash);
        if let Some(bucket) = home {
            prefetch(bucket);
        }
        Lookup {
            hash,
            place,
            home,
            ..Lookup::NONE
        }
    }

    /// Finds out which slot may hold the key and asks for its line.
    #[inline]
    fn look(&self, lookup: &mut Lookup<'_>) {
        let Some(home) = lookup.home else {
            return;
        };
        lookup.meta = home.meta();
        lookup.candidates = home.matches(tag_of(lookup.hash)) & lookup.meta.live();
        if lookup.candidates != 0 {
            prefetch(home.slot(lookup.candidates.trailing_zeros()));
        } else if !lookup.meta.is_path_end() {
            // The next bucket of the path, except behind the last one, where a hint may miss.
            prefetch(std::ptr::from_ref(home).wrapping_add(1));
        }
    }

    /// The second word of the slot of a key, which was looked for by the steps before.
    #[inline]
    fn settle_on(
        &self,
        key: &K,
        lookup: &Lookup<'_>,
        pin: Option<&Pin<'_>>,
    ) -> Result<Option<u64>> {
        let Lookup {
            hash,
            place,
            home,
            meta,
            candidates,
        } = *lookup;
        if let Some(home) = home {
            return self.find_at_home(place, home, meta, candidates, key, hash, pin);
        }
        self.find_on_path(key, hash, pin)
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
        let mut hashes = [0; FAR];
        let ask = |(key, _): &(Q, W)| {
            let hash = key.borrow().seeded_hash(&self.seed);
            if let Some(home) = home_at(&self.medium, self.shard_of(hash).place(), hash) {
                prefetch_lines(home, hash);
            }
            hash
        };
        for (entry, hash) in entries.iter().zip(&mut hashes) {
            *hash = ask(entry);
        }
        for (index, (key, value)) in entries.iter().enumerate() {
            let hash = hashes[index % FAR];
            if let Some(entry) = entries.get(index + FAR) {
                hashes[index % FAR] = ask(entry);
            }
            new += u64::from(self.put_hashed(key.borrow(), value.borrow(), hash)?);
        }
        Ok(new)
    }
}

impl Lookup<'_> {
    /// No lookup.
    const NONE: Self = Lookup {
        hash: 0,
        place: Place(0),
        home: None,
        meta: Meta(0),
        candidates: 0,
    };
}

/// Asks for the cache line in which `value` begins.
#[inline]
fn prefetch<T>(value: *const T) {
    gabion_media::prefetch_line(value.cast());
}
