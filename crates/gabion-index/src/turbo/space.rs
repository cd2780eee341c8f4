//! Space of the pool for arrays and records.
//!
//! The allocator notes durably what is about to be published or given back, each with a *hint*:
//! where to look for the reference after a crash ([`is_referenced`]). Arrays move, so no hint can
//! be an offset: the hint of an array is its shard, as the hash with zeros below, that of a record
//! is its entry's hash with the lowest bit set, which belongs to the tag and leads nowhere.

use gabion_media::pmem::{BlockClaim, Guard, Medium, POff, Reserved, Retiring};

use super::TurboHash;
use super::layout::{BUCKET_BYTES, Bucket, ShardPlace};
use super::probe::{ProbePath, bits, bucket_at};
use super::recovery::{Plan, place_of, read_plan};
use crate::index::root_of;
use crate::{Item, Result};

/// What recovery of the pool asks: whether a table durably refers to a block. Reads the header, a
/// descriptor, and at most one path. The pool itself answers for its root.
pub(super) fn is_referenced(medium: &Medium, claim: BlockClaim) -> bool {
    let Ok(plan) = read_plan(medium, root_of(medium)) else {
        return false;
    };
    let Ok(place) = place_of(medium, &plan, claim.hint) else {
        return false;
    };
    if claim.hint & 1 == 0 {
        return place.count() != 0 && place.offset() == claim.block.raw();
    }
    ProbePath::new(place, claim.hint).any(|index| {
        let bucket: &Bucket = bucket_at(medium, place, index);
        let live = bucket.meta().live();
        bits(live).any(|slot| bucket.read_slot(medium, slot).value() == claim.block.raw())
    })
}

impl<K: Item + ?Sized, V: Item + ?Sized> TurboHash<K, V> {
    /// The hint of the array of the shard of `hash`.
    fn array_hint(&self, hash: u64) -> u64 {
        Plan::shard_hint(self.shard_index(hash), self.shard_shift)
    }

    /// Reserves space for an array of the shard of `hash`.
    pub(super) fn reserve_array(&self, bytes: u64, hash: u64) -> Result<Reserved<'_>> {
        let hint = self.array_hint(hash);
        Ok(self.pool.alloc_aligned(bytes, BUCKET_BYTES, hint)?)
    }

    /// Announces that an array goes out of use.
    pub(super) fn retire_array(
        &self,
        place: ShardPlace,
        hash: u64,
    ) -> Result<Option<Retiring<'_>>> {
        if place.count() == 0 {
            return Ok(None);
        }
        let array: POff<Bucket> = POff::new(place.offset());
        Ok(Some(self.pool.retire(array, self.array_hint(hash))?))
    }

    /// Reserves space for the record of an entry and writes it, without a fence.
    pub(super) fn reserve_record(&self, key: &K, value: &V, hash: u64) -> Result<Reserved<'_>> {
        let bytes = Self::bytes_of_record(key, value)?;
        let record = self.pool.alloc(bytes, hash | 1)?;
        self.write_record(record.offset::<u8>().raw(), key, value);
        Ok(record)
    }

    /// Announces that no slot will name a record any more.
    #[inline]
    pub(super) fn retire_record(&self, offset: u64, hash: u64) -> Result<Option<Retiring<'_>>> {
        if !Self::HAS_RECORDS {
            return Ok(None);
        }
        let record: POff = POff::new(offset);
        Ok(Some(self.pool.retire(record, hash | 1)?))
    }

    /// Gives a block back for use when its readers are gone.
    #[inline]
    pub(super) fn finish(&self, retiring: Option<Retiring<'_>>) {
        if let Some(retiring) = retiring {
            let guard: Guard<'_> = self.pool.enter();
            retiring.commit(&guard);
        }
    }
}
