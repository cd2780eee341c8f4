//! The results of `bench` as a table.

use gabion_lab::result::PhaseResult;
use gabion_lab::text::{bytes_text, count_text};

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
        result
            .bytes_written
            .map_or("-".to_owned(), |written| bytes_text(written.total)),
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
    fn rows_line_up_with_the_header() {
        let cells = COLUMNS.map(|_| "1".to_owned());
        assert_eq!(row(cells).len(), table_header().len());
    }
}
