//! Many operations at once, so that their cache misses overlap.
//!
//! A lookup waits for one or two lines from memory and computes little. So a batch takes its keys
//! in groups through the steps of a lookup, each step for all keys of a group before the next, and
//! works on two groups in turns: while one is computed on, the lines of the other are on their way.
//! No step waits for a line, and none of them locks or fences.
//!
//! | turn | group | step | reads | asks for |
//! |---|---|---|---|---|
//! | 1 | this | [`Lookup::look`] | metadata and tags | the line of the slot with the tag |
//! | 2 | next | [`TurboHash::approach`] | the shard's mirror | the line of the home's metadata |
//! | 3 | this | [`TurboHash::settle_at_home`] | the slot, the metadata again | |
//!
//! So exactly the lines are fetched that the lookup reads: one for most absent keys, one or two for
//! the others. What `look` saw is valid if the metadata and the mirror are the same at the end;
//! that is the rule of single lookups as well, only that more time passes in between. A lookup that
//! is not decided this way is done by itself.

use std::borrow::Borrow;

use super::TurboHash;
use super::probe::{home_at, prefetch_lines};
use super::readpath::{Lookup, prefetch};
use crate::{Error, Item, Result};

/// Keys of a group: as many lines as a processor core keeps in flight, and some more.
const GROUP: usize = 16;

/// Lookups that go through their steps together.
#[derive(Clone, Copy)]
struct Group<'a> {
    hashes: [u64; GROUP],
    lookups: [Option<Lookup<'a>>; GROUP],
}

impl Group<'_> {
    const EMPTY: Self = Group {
        hashes: [0; GROUP],
        lookups: [None; GROUP],
    };
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
        let mut groups = keys.chunks(GROUP);
        let mut pair = [Group::EMPTY; 2];
        let [this, next] = &mut pair;
        let (mut this, mut next) = (this, next);
        self.approach_all(groups.next(), next);
        for (keys, values) in keys.chunks(GROUP).zip(values.chunks_mut(GROUP)) {
            std::mem::swap(&mut this, &mut next);
            for lookup in this.lookups.iter_mut().take(keys.len()).flatten() {
                lookup.look();
                lookup.prefetch_next();
            }
            self.approach_all(groups.next(), next);
            let lookups = this.hashes.iter().zip(&this.lookups);
            for ((key, value), (&hash, lookup)) in keys.iter().zip(values).zip(lookups) {
                let found = self.settle_at_home(key.borrow(), hash, lookup.as_ref(), pin)?;
                *value = match found {
                    Some(found) => Some(self.value_of(found)?),
                    None => None,
                };
            }
        }
        Ok(())
    }

    /// Hashes the keys of a group and asks for the first lines that their lookups read.
    #[inline]
    fn approach_all<'a, Q: Borrow<K>>(&'a self, keys: Option<&[Q]>, group: &mut Group<'a>) {
        let places = group.hashes.iter_mut().zip(&mut group.lookups);
        for (key, (hash, lookup)) in keys.unwrap_or_default().iter().zip(places) {
            *hash = key.borrow().seeded_hash(&self.seed);
            *lookup = self.approach(*hash);
            if let Some(lookup) = lookup {
                prefetch(lookup.home);
            }
        }
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
        let mut hashes = [0; GROUP];
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
            let hash = hashes[index % GROUP];
            if let Some(entry) = entries.get(index + GROUP) {
                hashes[index % GROUP] = ask(entry);
            }
            new += u64::from(self.put_hashed(key.borrow(), value.borrow(), hash)?);
        }
        Ok(new)
    }
}
