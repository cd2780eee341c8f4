//! The figures that every engine has.

use super::Shell;
use crate::engine::keyspaces::DroppableKeyspace;
use crate::stats::{Stats, WrittenBytes, nanos, ratio};

impl<K: DroppableKeyspace> Shell<K> {
    /// What was written and waited for, with nothing of what the engine keeps.
    pub(in crate::engine) fn shell_stats(&self) -> Stats {
        let counts = self.disk.counts();
        let written = WrittenBytes::of(&counts);
        let user_bytes = self.counters.user_bytes.get();
        let (transactions, oldest) = self.transactions.count_and_oldest();
        let since = |began| self.options.tuning.clock.now().saturating_sub(began);
        Stats {
            user_bytes,
            writes: self.counters.writes.get(),
            written,
            syncs: counts.syncs(),
            write_amplification_without_log: ratio(written.without_log(), user_bytes),
            write_amplification_with_log: ratio(written.total(), user_bytes),
            log_file_bytes: self.syncer.file_bytes(),
            log_bytes_kept_for_consumers: self.syncer.kept_bytes(),
            flushes: self.counters.flushes.get(),
            compactions: self.counters.compactions.get(),
            splits: self.counters.splits.get(),
            joins: self.counters.joins.get(),
            coalesced_tables: self.counters.coalesced_tables.get(),
            expired_tables_dropped: self.counters.expired_tables_dropped.get(),
            slowdown_ns: self.waits.slowdown_ns.get(),
            slowdown_ns_max: self.waits.slowdown_ns_max.get(),
            stall_ns: self.waits.stall_ns.get(),
            stalls: self.waits.stalls.get(),
            background_wait_ns: nanos(self.pace.waited()),
            visible_seq: self.visible(),
            snapshots: self.snapshots.count() as u64,
            transactions,
            transaction_age_ns_max: oldest.map_or(0, |began| nanos(since(began))),
            durability: self.options.durability.to_string(),
            read_only: match self.disk.is_read_only() {
                true => Some("the store was opened read-only".to_owned()),
                false => self.health.failure().map(str::to_owned),
            },
            ..Stats::default()
        }
    }
}
