//! How large buckets become, and how many there may be.
//!
//! # Capacity of a bucket
//! `bucket_bytes`, grown with the store so that a bucket's share of the MemTable budget stays worth
//! a flush, and varied by a quarter up or down from bucket to bucket, so that buckets that fill at
//! the same rate do not all split at the same time.
//!
//! # Number of buckets
//! Each bucket that is written takes memory for its MemTable. Where more buckets than memory for
//! them were made, each flush would write next to nothing, for ever. So no split makes more than
//! the MemTable budget has memory for; a bucket that may not split stays one and grows.

use crate::Options;

/// The share of the MemTable budget below which buckets grow instead of splitting: the paper's
/// MemTable.
const MEMTABLE_SHARE_BYTES: u64 = 2 << 20;

/// A bucket is not split when less than this of the MemTable budget would be left for each: a flush
/// of less costs more for its file than for what it writes.
const MEMTABLE_BYTES_MIN: u64 = 64 << 10;

/// Buckets grow to at most this many times `bucket_bytes`: 1 GiB by default, as in the paper.
const CAPACITY_GROWTH_MAX: u64 = 16;

/// Into how many buckets one with so many live bytes is split, at most.
pub(crate) fn split_ways(options: &Options, live: u64, capacity: u64) -> usize {
    let ways = options.tuning.split_ways as u64 * live / capacity;
    usize::try_from(ways).map_or(options.tuning.split_ways, |ways| {
        ways.min(options.tuning.split_ways)
    })
}

/// How many buckets there may be where active MemTables may use so much memory.
pub(crate) fn buckets_max(options: &Options, active_bytes_max: u64) -> u64 {
    let least = MEMTABLE_BYTES_MIN
        .min(options.tuning.bucket_bytes / 32)
        .max(1);
    active_bytes_max / least
}

/// The size at which buckets split in a store whose tables have `total` bytes, before it is varied.
pub(crate) fn capacity_base(options: &Options, total: u64) -> u64 {
    let share = MEMTABLE_SHARE_BYTES
        .min(options.tuning.bucket_bytes / 32)
        .max(1);
    let buckets_max = (options.memtable_budget() / share).max(1);
    let grown = total.saturating_mul(2) / buckets_max;
    let most = options
        .tuning
        .bucket_bytes
        .saturating_mul(CAPACITY_GROWTH_MAX);
    grown.clamp(options.tuning.bucket_bytes, most)
}

/// A capacity between three and five quarters of `base`, fixed for a bucket.
pub(crate) fn varied(base: u64, bucket: u64) -> u64 {
    // The multiplier is 2^64 divided by the golden ratio: neighbouring numbers spread evenly.
    let spread = bucket.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    (base / 4 * 3).saturating_add(base / 512 * spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tuning;

    #[test]
    fn a_bucket_may_be_as_large_as_can_be() {
        for bucket_bytes in [1 << 58, 1 << 60, u64::MAX] {
            let options = Options::default().tuning(Tuning::default().bucket_bytes(bucket_bytes));
            let base = capacity_base(&options, u64::MAX);
            assert!(base >= bucket_bytes);
            assert!((0..100).all(|bucket| varied(base, bucket) >= base / 4 * 3));
        }
    }
}
