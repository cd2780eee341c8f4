//! Figures about a table's shape: load, paths, memory.

use super::TurboHash;
use super::layout::SLOTS;
use super::probe::{ProbePath, SCOPE, bucket_at};
use crate::Item;

const _: () = assert!(size_of::<[u64; 16]>() as u64 == SCOPE * 8);

/// Figures of a table. Exact if nobody writes while they are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TurboStats {
    /// Entries.
    pub entries: u64,
    /// Slots with deleted entries.
    pub deleted: u64,
    /// Buckets of all shards.
    pub buckets: u64,
    /// Shards.
    pub shards: u64,
    /// Buckets of the largest shard.
    pub shard_buckets_max: u64,
    /// Home buckets by the number of buckets that a lookup of an absent key looks at: the first
    /// figure counts those with one, the last those with the whole scope.
    pub path_lengths: [u64; 16],
    /// Bytes of buckets, directory and mirror. Records and the allocator's losses come on top.
    pub bytes: u64,
}

impl TurboStats {
    /// Entries by slots, 0 to 1, the reserved slots included as in the paper.
    #[must_use]
    pub fn load_factor(&self) -> f64 {
        self.entries as f64 / (self.buckets * u64::from(SLOTS)).max(1) as f64
    }

    /// Mean number of buckets that a lookup of an absent key looks at.
    #[must_use]
    pub fn path_mean(&self) -> f64 {
        let buckets: u64 = self.path_lengths.iter().sum();
        let steps = (1..)
            .zip(&self.path_lengths)
            .map(|(length, count)| length * count);
        steps.sum::<u64>() as f64 / buckets.max(1) as f64
    }

    /// Largest number of buckets that a lookup of an absent key looks at.
    #[must_use]
    pub fn path_max(&self) -> u64 {
        let longest = self.path_lengths.iter().rposition(|&count| count != 0);
        longest.map_or(0, |index| index as u64 + 1)
    }
}

impl<K: Item + ?Sized, V: Item + ?Sized> TurboHash<K, V> {
    /// Looks at the metadata of all buckets.
    pub fn stats(&self) -> TurboStats {
        let mut stats = TurboStats {
            shards: self.shards.len() as u64,
            ..TurboStats::default()
        };
        for shard in &self.shards {
            let place = shard.place();
            let count = place.count();
            stats.buckets += count;
            stats.shard_buckets_max = stats.shard_buckets_max.max(count);
            for index in 0..count {
                let meta = bucket_at(&self.medium, place, index).meta();
                stats.entries += u64::from(meta.live().count_ones());
                stats.deleted += u64::from((meta.valid() & meta.deleted()).count_ones());
                let length = ProbePath::from_bucket(place, index)
                    .position(|index| bucket_at(&self.medium, place, index).meta().is_path_end());
                let scope = count.min(SCOPE) as usize;
                stats.path_lengths[length.unwrap_or(scope - 1)] += 1;
            }
        }
        let of_shards =
            (size_of::<super::layout::ShardDescriptor>() + size_of::<super::Shard>()) as u64;
        stats.bytes = stats.buckets * super::layout::BUCKET_BYTES + stats.shards * of_shards;
        stats
    }
}
