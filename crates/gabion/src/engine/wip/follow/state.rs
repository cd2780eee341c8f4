//! What a follower knows of the store that it follows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::wip::bucket::Bucket;
use crate::engine::wip::bucket::file::TableFile;
use crate::engine::wip::manifest::BucketRecord;
use crate::log::LogTail;
use crate::stats::FollowerStats;
use crate::types::Seq;

/// How far a follower has come.
pub(in crate::engine::wip) struct Following {
    /// Reads the log.
    pub(super) tail: LogTail,
    /// The open tables by their numbers.
    pub(super) files: HashMap<u64, Arc<TableFile>>,
    /// The buckets by their numbers, with what the manifest said of them.
    pub(super) built: HashMap<u64, Built>,
    /// Numbers up to here were read.
    pub(super) seen: Seq,
    /// What was built is not of the newest manifest.
    pub(super) is_stale: bool,
    /// Nothing of what was read is of use: all begins with the manifest.
    pub(super) restarts: bool,
    /// The log was read to its end when the store was opened.
    pub(super) is_open: bool,
    /// Operations that were read since it began with the manifest.
    pub(super) operations: u64,
    /// When it was read to its end last, by the store's clock.
    pub(super) caught_up: Duration,
    /// What it did.
    pub(super) stats: FollowerStats,
}

/// A bucket, and what it was built of.
#[derive(Clone)]
pub(super) struct Built {
    /// What the manifest said.
    pub(super) known: BucketRecord,
    /// The number up to which its tables have all, and the largest that they have.
    pub(super) in_tables: (Seq, Seq),
    /// The bucket.
    pub(super) bucket: Arc<Bucket>,
}
