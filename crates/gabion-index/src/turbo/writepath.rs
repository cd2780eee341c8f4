//! Writes: under the shard's lock, published by one store of a bucket's metadata.

use std::borrow::Borrow;
use std::sync::atomic::Ordering;

use super::TurboHash;
use super::layout::{Bucket, BucketMeta, ShardPlace};
use super::probe::{
    ProbePath, SCOPE, bits, bucket_at, choose_slot, home_at, prefetch_lines, tag_of,
};
use super::shard::LockedShard;
use crate::{Error, Item, Result};

/// Buckets on an insert's path from which on it is asked whether deleted slots are to blame.
const LONG_PATH: u64 = 4;

/// What to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryChange<B> {
    /// Nothing.
    Keep,
    /// Insert it, or replace its value.
    Put(B),
    /// Delete it, if it is there.
    Remove,
}

/// A slot of a bucket, with the bucket's metadata.
#[derive(Clone, Copy)]
pub(super) struct SlotRef<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) meta: BucketMeta,
    pub(super) slot: u32,
}

/// Where a key is, or would go.
#[derive(Clone, Copy)]
enum Located<'a> {
    /// The key is here; its slot holds `value`.
    Present { spot: SlotRef<'a>, value: u64 },
    /// The key is absent. It may go here; `path` buckets were looked at.
    Vacant { spot: SlotRef<'a>, path: u64 },
    /// The key is absent, and its scope is exhausted.
    Full,
}

#[inline]
fn is_full(located: Located<'_>) -> bool {
    matches!(located, Located::Full)
}

impl<K: Item + ?Sized, V: Item + ?Sized> TurboHash<K, V> {
    /// Stores `value` under `key`. Returns whether the key is new.
    ///
    /// # Errors
    /// No space in the pool for a shard that must grow or for a record: nothing has changed then.
    #[inline]
    pub fn put(&self, key: &K, value: &V) -> Result<bool> {
        self.put_hashed(key, value, key.seeded_hash(&self.seed))
    }

    #[inline]
    pub(super) fn put_hashed(&self, key: &K, value: &V, hash: u64) -> Result<bool> {
        self.change(key, hash, |old| {
            Ok((EntryChange::Put(value), old.is_none()))
        })
    }

    /// Stores `value` under `key` and returns the value before.
    ///
    /// # Errors
    /// As [`TurboHash::put`].
    #[inline]
    pub fn insert(&self, key: &K, value: &V) -> Result<Option<V::Owned>> {
        self.change(key, key.seeded_hash(&self.seed), |old| {
            Ok((EntryChange::Put(value), self.value_before(old)?))
        })
    }

    /// Stores `value` under `key` if the key is there, and returns the value before.
    ///
    /// # Errors
    /// As [`TurboHash::put`].
    #[inline]
    pub fn update(&self, key: &K, value: &V) -> Result<Option<V::Owned>> {
        self.change(key, key.seeded_hash(&self.seed), |old| {
            let change = old.map_or(EntryChange::Keep, |_| EntryChange::Put(value));
            Ok((change, self.value_before(old)?))
        })
    }

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// A damaged record.
    #[inline]
    pub fn remove(&self, key: &K) -> Result<Option<V::Owned>> {
        self.change(key, key.seeded_hash(&self.seed), |old| {
            Ok((EntryChange::<&V>::Remove, self.value_before(old)?))
        })
    }

    /// The value of `key`, which becomes `value` if the key is new.
    ///
    /// # Errors
    /// As [`TurboHash::put`].
    pub fn get_or_insert(&self, key: &K, value: &V) -> Result<V::Owned> {
        self.change(key, key.seeded_hash(&self.seed), |old| match old {
            Some(old) => Ok((EntryChange::Keep, self.value_of(old)?)),
            None => Ok((
                EntryChange::Put(value),
                V::rebuild(value.word(), value.bytes()),
            )),
        })
    }

    /// Stores `new` under `key` if the value is `expected`, where `None` is an absent key. Returns
    /// whether it was, and the value before.
    ///
    /// # Errors
    /// As [`TurboHash::put`].
    pub fn compare_and_swap(
        &self,
        key: &K,
        expected: Option<&V>,
        new: Option<&V>,
    ) -> Result<(bool, Option<V::Owned>)> {
        self.change(key, key.seeded_hash(&self.seed), |old| {
            let old = self.value_before(old)?;
            let is_equal = old.as_ref().map(Borrow::borrow) == expected;
            let change = match new {
                _ if !is_equal => EntryChange::Keep,
                Some(new) => EntryChange::Put(new),
                None => EntryChange::Remove,
            };
            Ok((change, (is_equal, old)))
        })
    }

    #[inline]
    fn value_before(&self, old: Option<u64>) -> Result<Option<V::Owned>> {
        old.map(|value| self.value_of(value)).transpose()
    }

    /// Finds a key, lets `decide` look at the second word of its slot, and does what it says.
    #[inline]
    pub(super) fn change<B: Borrow<V>, R>(
        &self,
        key: &K,
        hash: u64,
        decide: impl FnOnce(Option<u64>) -> Result<(EntryChange<B>, R)>,
    ) -> Result<R> {
        let _within = self.pool.write_guard();
        let shard = self.shard_of(hash);
        let place = shard.place();
        let home = home_at(&self.medium, place, hash);
        if let Some(home) = home {
            prefetch_lines(home, hash);
        }
        let mut shard_lock = shard.lock();
        if shard_lock.counts().is_none() {
            self.count(&mut shard_lock);
        }
        let mut located = match home {
            Some(home) if shard_lock.place() == place => self.locate(place, home, key, hash)?,
            _ => self.locate_on_path(shard_lock.place(), key, hash)?,
        };
        let old = match located {
            Located::Present { value, .. } => Some(value),
            _ => None,
        };
        let (change, result) = decide(old)?;
        match change {
            EntryChange::Keep => {}
            EntryChange::Remove => {
                if let Located::Present { spot, value } = located {
                    self.erase(&mut shard_lock, hash, spot, value)?;
                    self.shrink_after_delete(&mut shard_lock, hash);
                }
            }
            EntryChange::Put(value) => {
                if self.must_build(&shard_lock, located)
                    && self.build_for_insert(&mut shard_lock, hash, is_full(located))?
                {
                    located = self.locate_on_path(shard_lock.place(), key, hash)?;
                }
                self.enter(&mut shard_lock, key, value.borrow(), hash, located)?;
            }
        }
        Ok(result)
    }

    /// Looks for a key, and for the place where it would go: at home, where nearly all end.
    #[inline(always)]
    fn locate<'a>(
        &'a self,
        place: ShardPlace,
        home: &'a Bucket,
        key: &K,
        hash: u64,
    ) -> Result<Located<'a>> {
        let meta = home.meta();
        self.expect_sound(home, meta)?;
        if let Some(present) = self.locate_in(home, meta, key, hash)? {
            return Ok(present);
        }
        if !meta.is_path_end() {
            return self.locate_on_path(place, key, hash);
        }
        let free = match meta.deleted() {
            0 => meta.empty(),
            deleted => deleted,
        };
        let spot = SlotRef {
            bucket: home,
            meta,
            slot: choose_slot(free, hash),
        };
        Ok(Located::Vacant { spot, path: 1 })
    }

    /// Tells of damage if the metadata of a bucket is not as writers leave it: by a wrong bit they
    /// would write over an entry, or where there is no slot.
    #[inline(always)]
    pub(super) fn expect_sound(&self, bucket: &Bucket, meta: BucketMeta) -> Result<()> {
        if meta.is_sound() {
            return Ok(());
        }
        let offset = self.medium.offset_of(bucket).raw();
        Err(Error::damaged("the metadata of a bucket", offset))
    }

    /// Looks for a key in a bucket.
    #[inline(always)]
    fn locate_in<'a>(
        &'a self,
        bucket: &'a Bucket,
        meta: BucketMeta,
        key: &K,
        hash: u64,
    ) -> Result<Option<Located<'a>>> {
        let word = key.slot_word(hash);
        for slot in bits(bucket.matches(tag_of(hash)) & meta.live()) {
            let at = bucket.read_slot(&self.medium, slot);
            if at.key() == word {
                let value = at.value();
                if self.is_record_of(value, key)? {
                    let spot = SlotRef { bucket, meta, slot };
                    return Ok(Some(Located::Present { spot, value }));
                }
            }
        }
        Ok(None)
    }

    /// As [`TurboHash::locate`], for all cases.
    #[cold]
    #[inline(never)]
    fn locate_on_path(&self, place: ShardPlace, key: &K, hash: u64) -> Result<Located<'_>> {
        let mut reusable = None;
        for (index, path) in ProbePath::new(place, hash).zip(1..) {
            let bucket = bucket_at(&self.medium, place, index);
            let meta = bucket.meta();
            self.expect_sound(bucket, meta)?;
            if let Some(present) = self.locate_in(bucket, meta, key, hash)? {
                return Ok(present);
            }
            if reusable.is_none() && meta.deleted() != 0 {
                let slot = choose_slot(meta.deleted(), hash);
                reusable = Some(SlotRef { bucket, meta, slot });
            }
            if meta.is_path_end() {
                let spot = reusable.unwrap_or_else(|| {
                    let slot = choose_slot(meta.empty(), hash);
                    SlotRef { bucket, meta, slot }
                });
                return Ok(Located::Vacant { spot, path });
            }
        }
        let reused = reusable.map(|spot| Located::Vacant { spot, path: SCOPE });
        Ok(reused.unwrap_or(Located::Full))
    }

    /// Whether an insert should ask for a build of the shard first.
    #[inline]
    fn must_build(&self, shard: &LockedShard<'_>, located: Located<'_>) -> bool {
        match located {
            Located::Present { .. } => false,
            Located::Full => true,
            Located::Vacant { path, .. } => {
                path >= LONG_PATH && self.collects_garbage && self.is_littered(shard)
            }
        }
    }

    /// Writes an entry where it was located and publishes it.
    #[inline(always)]
    fn enter(
        &self,
        shard: &mut LockedShard<'_>,
        key: &K,
        value: &V,
        hash: u64,
        located: Located<'_>,
    ) -> Result<()> {
        let (spot, old) = match located {
            Located::Present { spot, value } => (spot, Some(value)),
            Located::Vacant { spot, .. } => (spot, None),
            Located::Full => return Err(Error::ShardLimit),
        };
        let word = key.slot_word(hash);
        if !Self::HAS_RECORDS {
            self.enter_slot(shard, spot, old.is_some(), hash, [word, value.word()]);
            return Ok(());
        }
        let record = self.reserve_record(key, value, hash)?;
        let retiring = match old {
            Some(old) => self.retire_record(old, hash)?,
            None => None,
        };
        let second = record.offset::<u8>().raw();
        self.enter_slot(shard, spot, old.is_some(), hash, [word, second]);
        record.commit::<u8>();
        self.finish(retiring);
        Ok(())
    }

    /// Writes both words of an entry into a slot of the bucket of `spot`, publishes it, and counts
    /// it. If `is_update`, it replaces the entry of `spot`.
    #[inline(always)]
    fn enter_slot(
        &self,
        shard: &mut LockedShard<'_>,
        spot: SlotRef<'_>,
        is_update: bool,
        hash: u64,
        words: [u64; 2],
    ) {
        let (slot, meta) = if is_update {
            let slot = choose_slot(spot.meta.empty(), hash);
            (slot, spot.meta.with_entry(slot, Some(spot.slot)))
        } else {
            (spot.slot, spot.meta.with_entry(spot.slot, None))
        };
        self.fill_slot(spot.bucket, slot, hash, words);
        self.publish(spot.bucket, meta);
        if !is_update {
            if spot.meta.deleted() >> slot & 1 != 0 {
                shard.count_reuse();
            } else {
                shard.count_insert();
            }
        }
    }

    /// Deletes the entry of a slot.
    #[inline]
    pub(super) fn erase(
        &self,
        shard: &mut LockedShard<'_>,
        hash: u64,
        spot: SlotRef<'_>,
        value: u64,
    ) -> Result<()> {
        let retiring = self.retire_record(value, hash)?;
        if Self::HAS_RECORDS {
            // DURABLE: the note that the record goes.
            self.medium.fence();
        }
        self.publish(spot.bucket, spot.meta.without_entry(spot.slot));
        self.finish(retiring);
        shard.count_delete();
        Ok(())
    }

    /// Writes a slot that no metadata names, and its tag, and makes them durable.
    #[inline(always)]
    fn fill_slot(&self, bucket: &Bucket, slot: u32, hash: u64, [word, second]: [u64; 2]) {
        let medium = &self.medium;
        let at = bucket.slot(slot);
        // ORDER: Release: pairs with the acquiring loads of readers, which see in the metadata that
        // the slot is not what it was, if they see any of these stores.
        at.key.store(medium, word, Ordering::Release);
        at.value.store(medium, second, Ordering::Release);
        let tags = &bucket.tags[(slot / 8) as usize];
        let shift = slot % 8 * 8;
        // ORDER: Relaxed: only the holder of the lock writes tags. Release as above.
        let others = tags.peek(Ordering::Relaxed) & !(0xff << shift);
        tags.store(
            medium,
            others | u64::from(tag_of(hash)) << shift,
            Ordering::Release,
        );
        // The tag lies in the metadata's line. On x86-64 stores to one line reach the medium in
        // their order, so the tag is there when the metadata is.
        if !cfg!(target_arch = "x86_64") {
            medium.flush(tags);
        }
        medium.persist(at);
    }

    /// Makes a change of a bucket visible and durable.
    #[inline]
    fn publish(&self, bucket: &Bucket, meta: BucketMeta) {
        // DURABLE: slot, tag and record, by the fence before; the change itself, by the persist.
        // ORDER: Release: pairs with the acquire in `Bucket::meta`.
        let medium = &self.medium;
        bucket.meta.store_persist(medium, meta.0, Ordering::Release);
    }
}

impl<K: Item + ?Sized> TurboHash<K, u64> {
    /// Adds `delta` to the value of `key`, wrapping around, where an absent key counts as 0.
    /// Returns the value before, `None` if the key is new.
    ///
    /// # Errors
    /// As [`TurboHash::put`].
    pub fn fetch_add(&self, key: &K, delta: u64) -> Result<Option<u64>> {
        self.change(key, key.seeded_hash(&self.seed), |old| {
            let old = self.value_before(old)?;
            Ok((EntryChange::Put(old.unwrap_or(0).wrapping_add(delta)), old))
        })
    }
}
