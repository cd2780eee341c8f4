//! Results as tables: a row for each phase of `bench`, and targets side by side for `lab`.

use std::fmt::Write;

use gabion_lab::result::PhaseResult;
use gabion_lab::stores::Comparison;
use gabion_lab::summary::{Case, Cell, Spread, Summary};
use gabion_lab::text::{bytes_text, count_text, digits, rounded_text};

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
    let ratio = |value: Option<f64>| value.map_or("-".to_owned(), digits);
    row([
        result.phase.clone(),
        count_text(result.operations),
        format!("{:.2}", result.seconds),
        format!("{:.0}", result.ops_per_s),
        digits(result.latency_us.p50),
        digits(result.latency_us.p99),
        digits(result.latency_us.p999),
        digits(result.latency_us.max),
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

/// A figure of the comparison: its title, how it is taken, and how it is shown.
type Compared = (
    &'static str,
    fn(&PhaseResult) -> Option<f64>,
    fn(f64) -> String,
);

/// Records that the stores held after each phase: shown only where they do not hold equally many,
/// which makes their other figures unfair.
const HELD: &str = "records held, where not equally many";

/// What `lab` compares, a table each.
const COMPARED: [Compared; 8] = [
    (
        HELD,
        |result| Some(result.records_live? as f64),
        rounded_text,
    ),
    (
        "log at the restart, MiB",
        |result| Some(result.restart_log_bytes? as f64 / (1 << 20) as f64),
        digits,
    ),
    (
        "restart, s",
        |result| (result.phase == "restart").then_some(result.seconds),
        digits,
    ),
    (
        "operations/s",
        |result| Some(result.ops_per_s),
        rounded_text,
    ),
    (
        "latency p99, us",
        |result| Some(result.latency_us.p99),
        digits,
    ),
    (
        "write amplification, system's count",
        |result| result.wa_process,
        digits,
    ),
    (
        "space amplification",
        |result| result.space_amplification,
        digits,
    ),
    (
        "memory, MiB",
        |result| Some(result.rss_bytes_max? as f64 / (1 << 20) as f64),
        rounded_text,
    ),
];

/// Targets side by side: a table for each figure that any of them has.
pub(crate) fn comparison(summary: &Summary<'_>) -> String {
    let mut text = String::new();
    for (title, figure, shown) in COMPARED {
        let mut rows = Vec::new();
        for case in &summary.cases {
            let first = case.cells.first().and_then(Option::as_ref);
            let cells = case.cells.iter();
            let cells: Vec<_> = cells
                .map(|cell| compared(cell.as_ref(), figure, shown, first))
                .collect();
            let is_told = title != HELD || are_apart(case, figure);
            if is_told && cells.iter().any(|cell| cell != "-") {
                rows.push((case.label.as_str(), cells));
            }
        }
        if !rows.is_empty() {
            let separator = if text.is_empty() { "" } else { "\n" };
            text.push_str(separator);
            text.push_str(&aligned(title, &summary.targets, &rows));
        }
    }
    text
}

/// Whether medians of the targets differ.
fn are_apart(case: &Case<'_>, figure: fn(&PhaseResult) -> Option<f64>) -> bool {
    let cells = case.cells.iter().flatten();
    let medians = Spread::of(cells.filter_map(|cell| Some(cell.spread(figure)?.median)));
    medians.is_some_and(|medians| medians.relative() > 0.0)
}

/// Median, spread and ratio to the first target; a dash where there is no figure.
fn compared(
    cell: Option<&Cell<'_>>,
    figure: fn(&PhaseResult) -> Option<f64>,
    shown: fn(f64) -> String,
    first: Option<&Cell<'_>>,
) -> String {
    let Some((cell, spread)) = cell.and_then(|cell| Some((cell, cell.spread(figure)?))) else {
        return "-".to_owned();
    };
    let mut text = shown(spread.median);
    if spread.count > 1 {
        let _ = write!(text, " ±{:.1}%", 50.0 * spread.relative());
    }
    if let Some(ratio) = first.and_then(|first| cell.ratio_to(first, figure)) {
        let _ = write!(text, " x{ratio:.2}");
    }
    text
}

/// How stores divided their keys while the regions of the keys changed: how many of their parts
/// begin in each quarter of the key space. Of the first repetition.
pub(crate) fn borders(results: &[PhaseResult]) -> String {
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for result in results.iter().filter(|result| result.repetition == 0) {
        for borders in &result.borders {
            let done = borders.operations as f64 / result.operations as f64;
            let label = format!(
                "{} after {:.0} % of {}",
                result.target,
                100.0 * done,
                result.phase
            );
            let begin_in = |quarter: f64| {
                let is_in = |place: &&f64| (4.0 * **place).floor().min(3.0) == quarter;
                borders.places.iter().filter(is_in).count().to_string()
            };
            rows.push((label, [0.0, 1.0, 2.0, 3.0].map(begin_in).to_vec()));
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = rows
        .iter()
        .map(|(label, cells)| (label.as_str(), cells.clone()))
        .collect();
    let quarters = ["1st quarter", "2nd quarter", "3rd quarter", "4th quarter"];
    aligned("parts that begin in", &quarters, &rows)
}

/// Numbers of a paper beside ours.
pub(crate) fn beside_paper(numbers: &[Comparison]) -> String {
    let labels: Vec<String> = numbers
        .iter()
        .map(|number| {
            let paper = &number.paper;
            format!(
                "{}, {}, {}",
                paper.target,
                paper.workload,
                paper.measure.name()
            )
        })
        .collect();
    let cells = |number: &Comparison| {
        let (paper, ours) = (number.paper.value, number.ours.median);
        vec![digits(paper), digits(ours), digits(ours / paper)]
    };
    let rows: Vec<_> = labels
        .iter()
        .zip(numbers)
        .map(|(label, number)| (label.as_str(), cells(number)))
        .collect();
    aligned("", &["paper", "ours", "ours/paper"], &rows)
}

/// Rows of cells under their targets, in columns as wide as they need to be.
fn aligned(title: &str, targets: &[&str], rows: &[(&str, Vec<String>)]) -> String {
    let length = |text: &str| text.chars().count();
    let labels = rows.iter().map(|(label, _)| length(label));
    let label_width = labels.chain([length(title)]).max().unwrap_or(0);
    let width_of = |at: usize| {
        let cells = rows.iter().map(|(_, cells)| length(&cells[at]));
        cells.chain([length(targets[at])]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..targets.len()).map(width_of).collect();
    let mut text = format!("{title:<label_width$}");
    for (target, width) in targets.iter().zip(&widths) {
        let _ = write!(text, "  {target:>width$}");
    }
    for (label, cells) in rows {
        let _ = write!(text, "\n{label:<label_width$}");
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(text, "  {cell:>width$}");
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_line_up_with_the_header() {
        let cells = COLUMNS.map(|_| "1".to_owned());
        assert_eq!(row(cells).len(), table_header().len());
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ("fillrandom", vec!["1".to_owned(), "20 ±1.0%".to_owned()]),
            ("x", vec!["100,000".to_owned(), "-".to_owned()]),
        ];
        assert_eq!(
            aligned("ops/s", &["wip", "empty"], &rows),
            "ops/s           wip     empty\n\
             fillrandom        1  20 ±1.0%\n\
             x           100,000         -\n"
        );
    }
}
