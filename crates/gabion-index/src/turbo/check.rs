//! The invariants, checked; and what the registry knows of the table.

use std::collections::HashSet;

use gabion_media::pmem::Pool;

use super::layout::ShardPlace;
use super::probe::{ProbePath, bits, bucket_at, tag_of};
use super::{Options, TurboHash};
use crate::index::{CheckSummary, Index, IndexPlan, Makers};
use crate::registered::{IndexKind, PersistCounts, ReadProtocol, Registered};
use crate::{Error, Item, Result};

impl<K: Item + ?Sized, V: Item + ?Sized> TurboHash<K, V> {
    /// Checks all invariants, while nobody writes.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<CheckSummary> {
        let mut checked = CheckSummary {
            entries: 0,
            blocks: 1,
        };
        for (index, shard) in (0..).zip(&self.shards) {
            let locked = shard.lock();
            let place = locked.place();
            let entries = self.check_shard(index, place)?;
            let has_miscounted = locked.counts().is_some_and(|counts| counts.live != entries);
            if has_miscounted {
                return Err(Error::damaged("a count", place.offset()));
            }
            checked.entries += entries;
            checked.blocks += u64::from(place.count() != 0);
            checked.blocks += if Self::HAS_RECORDS { entries } else { 0 };
        }
        Ok(checked)
    }

    /// Checks the buckets of a shard and counts their entries.
    fn check_shard(&self, shard: u64, place: ShardPlace) -> Result<u64> {
        let mut keys = HashSet::new();
        for index in 0..place.count() {
            let bucket = bucket_at(&self.medium, place, index);
            let meta = bucket.meta();
            let offset = self.medium.offset_of(bucket).raw();
            self.expect_sound(bucket, meta)?;
            for slot in bits(meta.live()) {
                let at = bucket.read_slot(&self.medium, slot);
                let hash = K::hash_of_slot(at.key(), &self.seed);
                let is_tagged = bucket.matches(tag_of(hash)) >> slot & 1 != 0;
                if !is_tagged || self.shard_index(hash) != shard {
                    return Err(Error::damaged("the tag or the shard of an entry", offset));
                }
                if !self.is_reachable(place, index, hash) {
                    return Err(Error::damaged("the path of an entry", offset));
                }
                if !keys.insert(self.key_of(at.key(), at.value())?) {
                    return Err(Error::damaged("a duplicate key", offset));
                }
                self.value_of(at.value())?;
            }
        }
        Ok(keys.len() as u64)
    }

    /// Whether all buckets on the path of `hash` before `bucket` are full.
    fn is_reachable(&self, place: ShardPlace, bucket: u64, hash: u64) -> bool {
        for index in ProbePath::new(place, hash) {
            if index == bucket {
                return true;
            }
            if bucket_at(&self.medium, place, index).meta().is_path_end() {
                return false;
            }
        }
        false
    }
}

impl<K: Item + ?Sized> Index<K> for TurboHash<K, u64> {
    fn get(&self, key: &K) -> Result<Option<u64>> {
        TurboHash::get(self, key)
    }

    fn insert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        TurboHash::insert(self, key, &value)
    }

    fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        TurboHash::update(self, key, &value)
    }

    fn remove(&self, key: &K) -> Result<Option<u64>> {
        TurboHash::remove(self, key)
    }

    fn len(&self) -> Result<u64> {
        Ok(TurboHash::len(self))
    }

    fn for_each(&self, visit: &mut dyn FnMut(&K, u64)) -> Result<()> {
        use std::borrow::Borrow;
        for entry in self.iter() {
            let (key, value) = entry?;
            visit(key.borrow(), value);
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        TurboHash::compact(self)
    }

    fn check(&self) -> Result<CheckSummary> {
        TurboHash::check(self)
    }

    fn pool(&self) -> &Pool {
        TurboHash::pool(self)
    }
}

const fn makers<K: Item + ?Sized>() -> Makers<K> {
    Makers {
        pool_options: TurboHash::<K, u64>::pool_options,
        create: |pool, plan| {
            let IndexPlan { capacity, seed } = plan;
            let options = Options {
                capacity,
                seed,
                ..Options::default()
            };
            Ok(Box::new(TurboHash::<K, u64>::create(pool, &options)?))
        },
        open: |pool| {
            let options = Options::default();
            Ok(Box::new(TurboHash::<K, u64>::open(pool, &options)?))
        },
        create_ordered: None,
    }
}

/// What the registry knows.
pub(crate) static REGISTERED: Registered = Registered {
    name: "turbohash",
    title: "TurboHash",
    kind: IndexKind::Hash,
    reads: ReadProtocol::Optimistic,
    persists: PersistCounts {
        insert: 2,
        update: 2,
        remove: 1,
    },
    source: "X. Zhao, dissertation, chapter 3",
    words: makers(),
    strings: Some(makers()),
};
