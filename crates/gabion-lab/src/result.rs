//! The one result format: what a phase did and cost, the same for every target.

use std::collections::BTreeMap;

use gabion::Stats;
use serde::{Deserialize, Serialize};

use crate::measure::Percentiles;

/// Bytes that the store wrote, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BytesWritten {
    /// The log.
    pub log: u64,
    /// Tables written from memory.
    pub flush: u64,
    /// Tables written from tables.
    pub compaction: u64,
    /// Splitting buckets.
    pub split: u64,
    /// Merging buckets.
    pub merge: u64,
    /// Collecting garbage.
    pub gc: u64,
    /// Checkpoints.
    pub checkpoint: u64,
    /// What the store notes about itself.
    pub metadata: u64,
    /// All of them.
    pub total: u64,
}

impl BytesWritten {
    /// Everything that a store of Gabion wrote since its statistics began to count.
    pub fn of(stats: &Stats) -> BytesWritten {
        let written = &stats.written;
        BytesWritten {
            log: written.log,
            flush: written.flush,
            compaction: written.compaction,
            split: written.split,
            merge: written.merge,
            gc: written.gc,
            checkpoint: written.checkpoint,
            metadata: written.metadata,
            total: written.total(),
        }
    }

    /// What was counted from `before` on.
    pub fn since(&self, before: &BytesWritten) -> BytesWritten {
        BytesWritten {
            log: self.log.saturating_sub(before.log),
            flush: self.flush.saturating_sub(before.flush),
            compaction: self.compaction.saturating_sub(before.compaction),
            split: self.split.saturating_sub(before.split),
            merge: self.merge.saturating_sub(before.merge),
            gc: self.gc.saturating_sub(before.gc),
            checkpoint: self.checkpoint.saturating_sub(before.checkpoint),
            metadata: self.metadata.saturating_sub(before.metadata),
            total: self.total.saturating_sub(before.total),
        }
    }

    /// All purposes together.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes written per byte that the user wrote, without the log and with it; `None` when the
    /// user wrote nothing.
    pub fn amplification(&self, bytes_user: u64) -> (Option<f64>, Option<f64>) {
        (
            amplification(self.total.saturating_sub(self.log), bytes_user),
            amplification(self.total, bytes_user),
        )
    }
}

/// `written` per byte of the user; `None` when the user wrote nothing.
pub fn amplification(written: u64, bytes_user: u64) -> Option<f64> {
    (bytes_user > 0).then(|| written as f64 / bytes_user as f64)
}

/// Latency of one kind of operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationLatency {
    /// How many calls there were: one per operation or batch.
    pub calls: u64,
    /// The percentiles.
    #[serde(flatten)]
    pub latency_us: Percentiles,
}

/// Figures of the persistent-memory model; no engine on a disk has them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum PersistentMemory {}

/// What was done in one stretch of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// End of the stretch in seconds since the phase began.
    pub seconds: f64,
    /// Operations per second in the stretch.
    pub ops_per_s: f64,
}

/// Where a store has its keys divided at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyBorders {
    /// Operations of the phase that were done.
    pub operations: u64,
    /// Where each part begins, from 0 for the first record in key order to 1 behind the last one.
    pub places: Vec<f64>,
}

/// One point of a latency distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyPoint {
    /// This part of the latencies, from 0 to 1 ...
    pub quantile: f64,
    /// ... is at most so long.
    pub micros: f64,
}

/// What one phase did and cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PhaseResult {
    /// The engine.
    pub target: String,
    /// The phase with its distribution.
    pub workload: String,
    /// The phase.
    pub phase: String,
    /// Records that the run is about.
    pub records: u64,
    /// Operations done.
    pub operations: u64,
    /// Threads that did them.
    pub threads: usize,
    /// Size of every key.
    pub key_bytes: usize,
    /// Size of every value.
    pub value_bytes: usize,
    /// Where the random numbers start.
    pub seed: u64,
    /// Time in which the operations were done, background work that went on afterwards excluded.
    pub seconds: f64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Latency over all operations.
    pub latency_us: Percentiles,
    /// Processor time in user mode, background work included.
    pub cpu_user_s: f64,
    /// Processor time in the kernel, background work included.
    pub cpu_sys_s: f64,
    /// Largest resident memory during the phase.
    pub rss_bytes_max: Option<u64>,
    /// Memory that the process could use, the page cache included, where the system says so.
    pub memory_bytes: Option<u64>,
    /// Bytes of keys and values that the operations wrote.
    pub bytes_user: u64,
    /// Bytes that the store wrote, by its own count, background work included; `None` where it
    /// does not count.
    pub bytes_written: Option<BytesWritten>,
    /// The same by the system's count for the process.
    pub bytes_written_process: Option<u64>,
    /// What was written to the drive of the store, by the system's count for the drive: by
    /// everybody, so that it is the store's only on an otherwise idle drive. `None` where the
    /// system does not count it, and where stores take turns.
    pub bytes_written_drive: Option<u64>,
    /// Write amplification without the log.
    pub wa_without_log: Option<f64>,
    /// Write amplification with the log.
    pub wa_with_log: Option<f64>,
    /// Write amplification by the system's count.
    pub wa_process: Option<f64>,
    /// What the store's files take at the end.
    pub space_bytes: u64,
    /// Time for which writers were stopped, where the store tells.
    pub stall_s: Option<f64>,
    /// Time by which writers were slowed down, where the store tells.
    pub slowdown_s: Option<f64>,
    /// Time from the last operation until everything was on disk and no background work was due.
    pub settle_s: f64,
    /// Reads that found a value, and entries that scans returned.
    pub found: u64,
    /// Transactions that were begun again because somebody else had written what they read; `None`
    /// in phases without transactions.
    pub conflicts: Option<u64>,
    /// Latency of each kind of operation.
    pub latency_us_by_operation: BTreeMap<String, OperationLatency>,
    /// Which repetition of the run this is, from 0.
    pub repetition: u32,
    /// Rate at which operations were due, in an open loop; `None` in a closed one.
    pub rate_per_s: Option<f64>,
    /// Bytes that the process read from storage, by the system's count.
    pub bytes_read_process: Option<u64>,
    /// Size of the store's files per byte of the records it holds, where that is known.
    pub space_amplification: Option<f64>,
    /// Files of the store at the end.
    pub files: u64,
    /// Records that the store held at the end, where that is known.
    pub records_live: Option<u64>,
    /// What the log held that a restart had to read, by the store's count; `None` in phases that
    /// do not restart it.
    pub restart_log_bytes: Option<u64>,
    /// Operations over time.
    pub throughput: Vec<TimelinePoint>,
    /// How the store divided its keys, after each quarter of a phase whose regions change; empty in
    /// other phases, and for stores that do not tell.
    pub borders: Vec<KeyBorders>,
    /// Distribution of the latencies of all operations.
    pub latency_curve: Vec<LatencyPoint>,
    /// Always null: for targets on persistent memory.
    pub pm: Option<PersistentMemory>,
    /// What the run was set to.
    pub settings: serde_json::Value,
    /// Version of the program.
    pub version: String,
    /// Where it ran.
    pub machine: String,
    /// What a reader of the figures must know.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amplification_needs_bytes_of_the_user() {
        let written = BytesWritten {
            log: 100,
            flush: 90,
            compaction: 210,
            total: 400,
            ..BytesWritten::default()
        };
        assert_eq!(written.amplification(100), (Some(3.0), Some(4.0)));
        assert_eq!(written.amplification(0), (None, None));
        let before = BytesWritten {
            log: 40,
            total: 40,
            ..BytesWritten::default()
        };
        let since = written.since(&before);
        assert_eq!((since.log, since.flush, since.total), (60, 90, 360));
    }
}
