//! The result of a phase, as JSON and as a row of a table.

use std::collections::BTreeMap;

use gabion::{Stats, WrittenBytes};
use serde::Serialize;

use super::measure::Percentiles;
use crate::output::{bytes_text, count_text};

/// How far, in percent, the system's count of bytes written may be from the store's own before a
/// result says so.
const COUNTS_APART_PERCENT_MAX: f64 = 2.0;

/// Bytes that the store wrote, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BytesWritten {
    log: u64,
    flush: u64,
    compaction: u64,
    split: u64,
    merge: u64,
    gc: u64,
    checkpoint: u64,
    metadata: u64,
    total: u64,
}

impl BytesWritten {
    /// What was written from `before` to `after`.
    pub(crate) fn between(before: &WrittenBytes, after: &WrittenBytes) -> BytesWritten {
        let mut written = BytesWritten {
            log: after.log.saturating_sub(before.log),
            flush: after.flush.saturating_sub(before.flush),
            compaction: after.compaction.saturating_sub(before.compaction),
            split: after.split.saturating_sub(before.split),
            merge: after.merge.saturating_sub(before.merge),
            gc: after.gc.saturating_sub(before.gc),
            checkpoint: after.checkpoint.saturating_sub(before.checkpoint),
            metadata: after.metadata.saturating_sub(before.metadata),
            total: 0,
        };
        written.total = written.log
            + written.flush
            + written.compaction
            + written.split
            + written.merge
            + written.gc
            + written.checkpoint
            + written.metadata;
        written
    }

    /// Everything since `stats` began to count.
    pub(crate) fn of(stats: &Stats) -> BytesWritten {
        BytesWritten::between(&WrittenBytes::default(), &stats.written)
    }

    /// All purposes together.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The purposes that wrote something, with their bytes.
    pub(crate) fn by_purpose(&self) -> Vec<(&'static str, u64)> {
        let mut purposes = vec![
            ("log", self.log),
            ("flush", self.flush),
            ("compaction", self.compaction),
            ("split", self.split),
            ("merge", self.merge),
            ("gc", self.gc),
            ("checkpoint", self.checkpoint),
            ("metadata", self.metadata),
        ];
        purposes.retain(|(_, bytes)| *bytes > 0);
        purposes
    }

    /// Bytes written per byte that the user wrote, without the log and with it; `None` when the
    /// user wrote nothing.
    pub(crate) fn amplification(&self, bytes_user: u64) -> (Option<f64>, Option<f64>) {
        (
            amplification(self.total - self.log, bytes_user),
            amplification(self.total, bytes_user),
        )
    }
}

/// `written` per byte of the user; `None` when the user wrote nothing.
pub(crate) fn amplification(written: u64, bytes_user: u64) -> Option<f64> {
    (bytes_user > 0).then(|| written as f64 / bytes_user as f64)
}

/// Latency of one kind of operation.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OperationLatency {
    /// How many latencies were taken: one per call, so one per batch.
    pub(crate) calls: u64,
    /// The percentiles.
    #[serde(flatten)]
    pub(crate) latency_us: Percentiles,
}

/// Figures of the persistent-memory model; no engine on a disk has them.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum PersistentMemory {}

/// What one phase did and cost.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PhaseResult {
    /// The engine.
    pub(crate) target: String,
    /// The phase with its distribution.
    pub(crate) workload: String,
    /// The phase.
    pub(crate) phase: String,
    /// Records that the run is about.
    pub(crate) records: u64,
    /// Operations done.
    pub(crate) operations: u64,
    /// Threads that did them.
    pub(crate) threads: usize,
    /// Size of every key.
    pub(crate) key_bytes: usize,
    /// Size of every value.
    pub(crate) value_bytes: usize,
    /// Where the random numbers start.
    pub(crate) seed: u64,
    /// Time in which the operations were done, background work that went on afterwards excluded.
    pub(crate) seconds: f64,
    /// Operations per second.
    pub(crate) ops_per_s: f64,
    /// Latency over all operations.
    pub(crate) latency_us: Percentiles,
    /// Processor time in user mode, background work included.
    pub(crate) cpu_user_s: f64,
    /// Processor time in the kernel, background work included.
    pub(crate) cpu_sys_s: f64,
    /// Largest resident memory during the phase.
    pub(crate) rss_bytes_max: Option<u64>,
    /// Bytes of keys and values that the operations wrote.
    pub(crate) bytes_user: u64,
    /// Bytes that the store wrote, by its own count, background work included.
    pub(crate) bytes_written: BytesWritten,
    /// The same by the system's count for the process.
    pub(crate) bytes_written_process: Option<u64>,
    /// Write amplification without the log.
    pub(crate) wa_without_log: Option<f64>,
    /// Write amplification with the log.
    pub(crate) wa_with_log: Option<f64>,
    /// Write amplification by the system's count.
    pub(crate) wa_process: Option<f64>,
    /// Size of the store's files at the end.
    pub(crate) space_bytes: u64,
    /// Time for which writers were stopped.
    pub(crate) stall_s: f64,
    /// Time by which writers were slowed down.
    pub(crate) slowdown_s: f64,
    /// Time from the last operation until everything was on disk and no background work was due.
    pub(crate) settle_s: f64,
    /// Reads that found a value, and entries that scans returned.
    pub(crate) found: u64,
    /// Latency of each kind of operation.
    pub(crate) latency_us_by_operation: BTreeMap<&'static str, OperationLatency>,
    /// Always null: for targets on persistent memory.
    pub(crate) pm: Option<PersistentMemory>,
    /// What the run was set to.
    pub(crate) settings: serde_json::Value,
    /// Version of the program.
    pub(crate) version: &'static str,
    /// Where it ran.
    pub(crate) machine: String,
    /// What a reader of the figures must know.
    pub(crate) notes: Vec<String>,
}

/// What must be said about two counts of the same bytes that do not agree.
pub(crate) fn counts_note(own: u64, process: Option<u64>) -> Option<String> {
    let Some(process) = process else {
        return Some("the system does not say how many bytes the process wrote".to_owned());
    };
    if process == 0 && own > 0 {
        return Some(
            "the system counts no writes here: the store is on a file system in memory, or the \
             writes are not counted for processes"
                .to_owned(),
        );
    }
    let apart = (process as f64 - own as f64).abs() * 100.0 / (own.max(1) as f64);
    (process != own && apart > COUNTS_APART_PERCENT_MAX).then(|| {
        format!(
            "the system counts {} written, the store {}: {apart:.1} % apart",
            bytes_text(process),
            bytes_text(own)
        )
    })
}

/// The columns of the table: title and width.
const COLUMNS: [(&str, usize); 14] = [
    ("phase", 12),
    ("operations", 11),
    ("seconds", 8),
    ("ops/s", 11),
    ("p50 us", 8),
    ("p99 us", 8),
    ("p99.9 us", 9),
    ("max us", 10),
    ("WA", 6),
    ("+log", 6),
    ("system", 6),
    ("written", 10),
    ("RSS", 10),
    ("settle s", 8),
];

/// The table's first line.
pub(crate) fn table_header() -> String {
    row(COLUMNS.map(|(title, _)| title.to_owned()))
}

/// The table's line for one phase.
pub(crate) fn table_row(result: &PhaseResult) -> String {
    let micros = |value: f64| match value {
        value if value < 100.0 => format!("{value:.2}"),
        value => format!("{value:.0}"),
    };
    let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    row([
        result.phase.clone(),
        count_text(result.operations),
        format!("{:.2}", result.seconds),
        format!("{:.0}", result.ops_per_s),
        micros(result.latency_us.p50),
        micros(result.latency_us.p99),
        micros(result.latency_us.p999),
        micros(result.latency_us.max),
        ratio(result.wa_without_log),
        ratio(result.wa_with_log),
        ratio(result.wa_process),
        bytes_text(result.bytes_written.total),
        result.rss_bytes_max.map_or("-".to_owned(), bytes_text),
        format!("{:.2}", result.settle_s),
    ])
}

fn row(cells: [String; COLUMNS.len()]) -> String {
    let mut line = String::new();
    for (at, (cell, (_, width))) in cells.iter().zip(COLUMNS).enumerate() {
        let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
        match at {
            0 => line.extend([cell.as_str(), &padding]),
            _ => line.extend([" ", &padding, cell]),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amplification_needs_bytes_of_the_user() {
        let mut written = BytesWritten {
            log: 100,
            flush: 90,
            compaction: 210,
            ..BytesWritten::default()
        };
        written.total = 400;
        assert_eq!(written.amplification(100), (Some(3.0), Some(4.0)));
        assert_eq!(written.amplification(0), (None, None));
    }

    #[test]
    fn counts_that_agree_to_two_percent_need_no_note() {
        assert_eq!(counts_note(1000, Some(1019)), None);
        assert_eq!(counts_note(0, Some(0)), None);
        assert!(
            counts_note(1000, Some(1021))
                .unwrap()
                .contains("2.1 % apart")
        );
        assert!(counts_note(1000, Some(979)).is_some());
        assert!(
            counts_note(1000, Some(0))
                .unwrap()
                .contains("counts no writes")
        );
        assert!(counts_note(1000, None).is_some());
    }

    #[test]
    fn rows_line_up_with_the_header() {
        let cells = COLUMNS.map(|_| "1".to_owned());
        assert_eq!(row(cells).len(), table_header().len());
    }
}
