//! Curves of figures, with the paper's points.

use super::outcome::Outcome;
use super::phases::restarts;
use crate::rows::{Row, Table};
use crate::text::Unit;

/// Lines over a common axis, and what the paper has there.
#[derive(Clone, Debug)]
pub struct Curve {
    /// What it shows.
    pub title: &'static str,
    /// What stands beside the title.
    pub hint: &'static str,
    /// What is counted along the axis, and up it.
    pub units: (Unit, Unit),
    /// Both axes are logarithmic.
    pub is_log: bool,
    /// Ours.
    pub lines: Vec<Line>,
    /// The paper's points.
    pub paper: Vec<(f64, f64)>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// No curves.
pub(super) fn none(_: &Outcome) -> Vec<Curve> {
    Vec::new()
}

/// Throughput of all phases with this name, over time.
fn over_time(outcome: &Outcome, phase: &str, title: &'static str) -> Vec<Curve> {
    let results = outcome.results.iter();
    let meant = results.filter(|result| result.phase == phase && result.throughput.len() > 1);
    let lines = meant.map(|result| {
        let moments = result.throughput.iter();
        let distribution = result.workload.trim_start_matches(phase);
        Line {
            name: format!("{}{distribution}", result.target),
            points: moments
                .map(|moment| (moment.seconds, moment.ops_per_s))
                .collect(),
        }
    });
    let lines: Vec<Line> = lines.collect();
    let curve = Curve {
        title,
        hint: "operations per second over time",
        units: (Unit::Seconds, Unit::PerSecond),
        is_log: false,
        lines,
        paper: Vec::new(),
    };
    if curve.lines.is_empty() {
        return Vec::new();
    }
    vec![curve]
}

/// Figure 2.7.
pub(super) fn regions(outcome: &Outcome) -> Vec<Curve> {
    over_time(
        outcome,
        "regions",
        "Puts while the distribution of keys changes",
    )
}

/// Figure 2.8.
pub(super) fn mixed(outcome: &Outcome) -> Vec<Curve> {
    over_time(outcome, "mixed", "Readers beside a writer")
}

/// Figure 2.9.
pub(super) fn restart_times(outcome: &Outcome) -> Vec<Curve> {
    let line = Line {
        name: "wip".to_owned(),
        points: restarts(&outcome.results),
    };
    vec![Curve {
        title: "Restart after a kill",
        hint: "seconds by gigabytes of log",
        units: (Unit::Count, Unit::Seconds),
        is_log: false,
        lines: vec![line],
        paper: vec![(1.5, 12.0)],
    }]
}

/// The figure's table of that name.
fn table<'a>(outcome: &'a Outcome, name: &str) -> Option<&'a Table> {
    outcome.tables.iter().find(|table| table.name == name)
}

/// Points from two columns of the rows that are meant.
fn points(
    table: Option<&Table>,
    x: &str,
    y: &str,
    is_meant: impl Fn(&Row) -> bool,
) -> Vec<(f64, f64)> {
    let rows = table.into_iter().flat_map(|table| {
        let point = |row| Some((table.value(row, x)?, table.value(row, y)?));
        let meant = table.rows.iter().filter(|row| is_meant(row));
        meant.filter_map(point).collect::<Vec<_>>()
    });
    rows.collect()
}

/// Figure 3.8: loads of each setup.
pub(super) fn load_factors(outcome: &Outcome) -> Vec<Curve> {
    let line = |column: &str| {
        let table = table(outcome, "loads");
        let numbers = table.into_iter().flat_map(|table| table.numbers(column));
        Line {
            name: column.to_owned(),
            points: numbers
                .filter_map(|(row, load)| Some((row.at.first()?.parse().ok()?, load)))
                .collect(),
        }
    };
    vec![Curve {
        title: "Load factor while the table grows",
        hint: "by hundredths of the inserts; the dot is the paper's peak, wherever it is",
        units: (Unit::Count, Unit::Count),
        is_log: false,
        lines: ["paper's shards", "own shards"].map(line).to_vec(),
        paper: vec![(100.0, 0.85)],
    }]
}

/// Figure 3.9: mean distances by load, of the tables in two of the three states.
pub(super) fn distances(outcome: &Outcome) -> Vec<Curve> {
    let states = [
        ("(a) loaded", "loaded"),
        ("(b) deleted and loaded anew", "loaded anew"),
    ];
    let lines = states.map(|(state, name)| {
        let is_meant = |row: &Row| row.at.iter().any(|at| at == state);
        Line {
            name: name.to_owned(),
            points: points(
                table(outcome, ""),
                "load of the 13 usable",
                "distance mean",
                is_meant,
            ),
        }
    });
    vec![Curve {
        title: "Buckets that a lookup of an absent key looks at",
        hint: "mean, by the load of the 13 usable slots",
        units: (Unit::Count, Unit::Count),
        is_log: false,
        lines: lines.to_vec(),
        paper: vec![(0.8, 1.34), (0.8, 6.13)],
    }]
}

/// Figure 4.8: times by keys.
pub(super) fn recoveries(outcome: &Outcome) -> Vec<Curve> {
    let line = |column: &str| Line {
        name: column.to_owned(),
        points: points(table(outcome, ""), "keys", column, |_| true),
    };
    let columns = [
        "plain, first answer",
        "plain, all",
        "buffers, first answer",
        "buffers, all",
    ];
    vec![Curve {
        title: "Opening an SPTree",
        hint: "seconds by keys, both scales logarithmic; the paper's point on 20 cores",
        units: (Unit::Count, Unit::Seconds),
        is_log: true,
        lines: columns.map(line).to_vec(),
        paper: vec![(250e6, 1.0)],
    }]
}
