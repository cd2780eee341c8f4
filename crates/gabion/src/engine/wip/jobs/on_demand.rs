//! Compactions that a user asks for.
//!
//! # Idea
//! The caller freezes the MemTables of the range and waits for their flush; then it marks the
//! buckets of the range and waits until no mark is left. The marks are what is due for the
//! background (`policy/due`), which merges everything that a marked bucket has into one run of the
//! last level, so that old versions and tombstones are gone that no reader needs. So the threads of
//! the store do all the work, and a store that is closed meanwhile is left by all of them.

use std::sync::Arc;

use crate::Result;
use crate::engine::ssd::SsdEngine;
use crate::engine::wip::bucket::Bucket;
use crate::engine::wip::{Keyspace, Wip};

impl Wip {
    /// Merges what the buckets of a range have into one run each, and waits until that is done.
    /// `upper` is the first key above the range.
    pub(crate) fn compact_range(
        &self,
        keyspace: &Arc<Keyspace>,
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
