//! Manual compactions: those that a user asks for.
//!
//! # Idea
//! The caller freezes the MemTables of the range and waits for their flush. Then it marks the
//! buckets of the range and waits until no mark is left. For each mark the background
//! (`policy/compaction_picker`) merges everything in the bucket into one run of the last level,
//! which drops old versions and tombstones that no reader needs. So the store's threads do all the
//! work, and stop if the store closes meanwhile.

use std::sync::Arc;

use crate::Result;
use crate::engine::ssd::SsdEngine;
use crate::engine::wip::bucket::Bucket;
use crate::engine::wip::{Wip, WipKeyspace};

impl Wip {
    /// Merges what the buckets of a range have into one run each, and waits until that is done.
    /// `upper` is the first key above the range.
    pub(crate) fn compact_range(
        &self,
        keyspace: &Arc<WipKeyspace>,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<()> {
        self.check_writable()?;
        let touched = || -> Vec<Arc<Bucket>> {
            let router = keyspace.router.load();
            router.touching(lower, upper).cloned().collect()
        };
        let frozen = {
            let _alone = self.leader.write();
            keyspace.dropped.check()?;
            let buckets = touched();
            self.freeze_all(buckets.iter().map(|bucket| (keyspace, bucket)))
        };
        self.wait_flushed(&frozen)?;
        {
            // Splits install the children with this lock held: none of them is missed (D1).
            let _install = self.lock_install();
            for bucket in touched() {
                bucket.demand.ask();
                self.touch(&bucket);
            }
        }
        self.after_job();
        let is_dropped = || keyspace.dropped.is_set();
        self.wait_until(|| is_dropped() || !touched().iter().any(|of| of.awaits_demand()))?;
        keyspace.dropped.check()
    }
}
