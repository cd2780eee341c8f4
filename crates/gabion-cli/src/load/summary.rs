//! What a load did and cost.

use std::path::Path;
use std::time::Duration;

use gabion::Stats;
use gabion::text::{bytes_text, count_text, counts_note};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;

/// The figures of a load.
pub(super) struct Summary<'a> {
    /// The file.
    pub(super) file: &'a Path,
    /// The store.
    pub(super) db: &'a Path,
    /// Records loaded by this command.
    pub(super) records: u64,
    /// Records of the same file that an interrupted command had loaded.
    pub(super) records_earlier: u64,
    /// Until the last record was on disk.
    pub(super) seconds: Duration,
    /// Bytes read from the file.
    pub(super) bytes_in: u64,
    /// The store's durability level.
    pub(super) durability: String,
    /// The store's figures at the end.
    pub(super) stats: Stats,
    /// What the system counts as written by the process, before and after.
    pub(super) process: (Option<u64>, Option<u64>),
}

impl Summary<'_> {
    /// Prints the summary.
    pub(super) fn print(&self, as_json: bool, output: &mut Output) -> Result<(), Failure> {
        let stats = &self.stats;
        let written = &stats.written;
        let amplification =
            |bytes: u64| (stats.user_bytes > 0).then(|| bytes as f64 / stats.user_bytes as f64);
        let wa_without_log = amplification(written.without_log());
        let wa_with_log = amplification(written.total());
        let (before, after) = self.process;
        let process = after
            .zip(before)
            .map(|(after, before)| after.saturating_sub(before));
        let seconds = self.seconds.as_secs_f64();
        let records_per_s = self.records as f64 / seconds.max(1e-9);
        if as_json {
            let mut by_purpose = json!(written);
            by_purpose["total"] = json!(written.total());
            return output.json(&json!({
                "file": self.file.display().to_string(),
                "db": self.db.display().to_string(),
                "records": self.records,
                "records_loaded_earlier": self.records_earlier,
                "seconds": seconds,
                "records_per_s": records_per_s,
                "bytes_in": self.bytes_in,
                "bytes_user": stats.user_bytes,
                "bytes_written": by_purpose,
                "bytes_written_process": process,
                "wa_without_log": wa_without_log,
                "wa_with_log": wa_with_log,
                "wa_process": process.and_then(amplification),
                "memtable_bytes": stats.memtable_bytes,
                "space_bytes": stats.space_bytes,
                "durability": self.durability,
                "notes": counts_note(written.total(), process).into_iter().collect::<Vec<_>>(),
            }));
        }
        let ratio = |ratio: Option<f64>| match ratio {
            Some(ratio) => format!("{ratio:.2}"),
            None => "-".to_owned(),
        };
        let purposes: Vec<String> = written
            .by_purpose()
            .into_iter()
            .map(|(purpose, bytes)| format!("{purpose} {}", bytes_text(bytes)))
            .collect();
        let earlier = match self.records_earlier {
            0 => String::new(),
            earlier => format!(" (and {} earlier)", count_text(earlier)),
        };
        output.line(&format!(
            "loaded {} into {}",
            self.file.display(),
            self.db.display()
        ))?;
        output.figures(&[
            ("records", format!("{}{earlier}", count_text(self.records))),
            (
                "time",
                format!("{seconds:.3} s, {records_per_s:.0} records/s"),
            ),
            ("read from the file", bytes_text(self.bytes_in)),
            ("keys and values", bytes_text(stats.user_bytes)),
            (
                "written by the store",
                format!("{} ({})", bytes_text(written.total()), purposes.join(", ")),
            ),
            (
                "write amplification",
                format!(
                    "{} without the log, {} with it",
                    ratio(wa_without_log),
                    ratio(wa_with_log)
                ),
            ),
            (
                "still in memory and log only",
                bytes_text(stats.memtable_bytes),
            ),
            (
                "durability",
                format!("{}; everything is on disk now", self.durability),
            ),
        ])
    }
}
