//! Results as comma-separated values: one row for each, every figure in a column of its own.
//!
//! Curves stay in the JSON, which has a form for them. A figure that a target does not have is an
//! empty field; what has a form of its own, such as settings, is JSON inside of its field.

use std::io::{self, Write};

use crate::result::{BytesWritten, PhaseResult};

/// A column: its name, and its field of a result.
type Column = (&'static str, fn(&PhaseResult) -> String);

/// The columns in their order, which only grows at its end.
const COLUMNS: &[Column] = &[
    ("target", |r| r.target.clone()),
    ("workload", |r| r.workload.clone()),
    ("phase", |r| r.phase.clone()),
    ("repetition", |r| r.repetition.to_string()),
    ("records", |r| r.records.to_string()),
    ("operations", |r| r.operations.to_string()),
    ("threads", |r| r.threads.to_string()),
    ("key_bytes", |r| r.key_bytes.to_string()),
    ("value_bytes", |r| r.value_bytes.to_string()),
    ("seed", |r| r.seed.to_string()),
    ("rate_per_s", |r| text(r.rate_per_s)),
    ("seconds", |r| r.seconds.to_string()),
    ("ops_per_s", |r| r.ops_per_s.to_string()),
    ("latency_us_p50", |r| r.latency_us.p50.to_string()),
    ("latency_us_p95", |r| r.latency_us.p95.to_string()),
    ("latency_us_p99", |r| r.latency_us.p99.to_string()),
    ("latency_us_p999", |r| r.latency_us.p999.to_string()),
    ("latency_us_max", |r| r.latency_us.max.to_string()),
    ("cpu_user_s", |r| r.cpu_user_s.to_string()),
    ("cpu_sys_s", |r| r.cpu_sys_s.to_string()),
    ("rss_bytes_max", |r| text(r.rss_bytes_max)),
    ("bytes_user", |r| r.bytes_user.to_string()),
    ("bytes_written_log", |r| written(r, |w| w.log)),
    ("bytes_written_flush", |r| written(r, |w| w.flush)),
    ("bytes_written_compaction", |r| written(r, |w| w.compaction)),
    ("bytes_written_split", |r| written(r, |w| w.split)),
    ("bytes_written_merge", |r| written(r, |w| w.merge)),
    ("bytes_written_gc", |r| written(r, |w| w.gc)),
    ("bytes_written_checkpoint", |r| written(r, |w| w.checkpoint)),
    ("bytes_written_metadata", |r| written(r, |w| w.metadata)),
    ("bytes_written_total", |r| written(r, |w| w.total)),
    ("bytes_written_process", |r| text(r.bytes_written_process)),
    ("bytes_read_process", |r| text(r.bytes_read_process)),
    ("wa_without_log", |r| text(r.wa_without_log)),
    ("wa_with_log", |r| text(r.wa_with_log)),
    ("wa_process", |r| text(r.wa_process)),
    ("space_bytes", |r| r.space_bytes.to_string()),
    ("space_amplification", |r| text(r.space_amplification)),
    ("files", |r| r.files.to_string()),
    ("stall_s", |r| text(r.stall_s)),
    ("slowdown_s", |r| text(r.slowdown_s)),
    ("settle_s", |r| r.settle_s.to_string()),
    ("found", |r| r.found.to_string()),
    ("latency_us_by_operation", |r| {
        json(&r.latency_us_by_operation)
    }),
    ("settings", |r| json(&r.settings)),
    ("version", |r| r.version.clone()),
    ("machine", |r| r.machine.clone()),
    ("notes", |r| json(&r.notes)),
    ("records_live", |r| text(r.records_live)),
    ("bytes_written_drive", |r| text(r.bytes_written_drive)),
    ("restart_log_bytes", |r| text(r.restart_log_bytes)),
    ("memory_bytes", |r| text(r.memory_bytes)),
    ("conflicts", |r| text(r.conflicts)),
];

/// Writes a row of names and a row for each result.
pub fn write(results: &[PhaseResult], out: &mut impl Write) -> io::Result<()> {
    let mut rows = ::csv::Writer::from_writer(out);
    rows.write_record(COLUMNS.iter().map(|(name, _)| name))?;
    for result in results {
        rows.write_record(COLUMNS.iter().map(|(_, field)| field(result)))?;
    }
    rows.flush()
}

fn text(figure: Option<impl ToString>) -> String {
    figure.map_or_else(String::new, |figure| figure.to_string())
}

fn written(result: &PhaseResult, purpose: fn(&BytesWritten) -> u64) -> String {
    text(result.bytes_written.as_ref().map(purpose))
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("strings and figures have a form in JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::sample;

    fn rows(results: &[PhaseResult]) -> Vec<::csv::StringRecord> {
        let mut bytes = Vec::new();
        write(results, &mut bytes).unwrap();
        let mut reader = ::csv::ReaderBuilder::new()
            .has_headers(false)
            .from_reader(bytes.as_slice());
        reader.records().map(Result::unwrap).collect()
    }

    fn field<'a>(rows: &'a [::csv::StringRecord], row: usize, name: &str) -> &'a str {
        let column = rows[0].iter().position(|column| column == name).unwrap();
        &rows[row][column]
    }

    #[test]
    fn every_result_is_one_row() {
        let mut results = sample::results(2, 2, 2);
        results[0].target = "a \"b\", c\nd".to_owned();
        results[0].bytes_written = None;
        results[1].repetition = 7;
        let rows = rows(&results);
        assert_eq!(rows.len(), results.len() + 1);
        assert_eq!(field(&rows, 1, "target"), results[0].target);
        assert_eq!(field(&rows, 1, "bytes_written_total"), "");
        assert_eq!(field(&rows, 2, "repetition"), "7");
        let total = results[1].bytes_written.unwrap().total.to_string();
        assert_eq!(field(&rows, 2, "bytes_written_total"), total);
        let settings: serde_json::Value =
            serde_json::from_str(field(&rows, 2, "settings")).unwrap();
        assert_eq!(settings, results[1].settings);
    }

    #[test]
    fn every_scalar_field_of_the_json_has_a_column() {
        let json = serde_json::to_value(sample::empty()).unwrap();
        let columns: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        let curves = ["throughput", "latency_curve", "borders", "pm"];
        for name in json.as_object().unwrap().keys() {
            let prefix = format!("{name}_");
            let has = columns.iter().any(|c| c == name || c.starts_with(&prefix));
            assert!(has || curves.contains(&name.as_str()), "{name}");
        }
    }

    #[test]
    fn no_results_leave_the_names() {
        assert_eq!(rows(&[]).len(), 1);
    }
}
