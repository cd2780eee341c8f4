//! Curves of figures, with the paper's points.

use crate::text::Unit;

use super::phases::restarts;
use super::{Cell, Outcome};

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

/// Figure 3.8: the numbers below the words of each setup.
pub(super) fn load_factors(outcome: &Outcome) -> Vec<Curve> {
    let setups = [
        ("the paper's setup", "paper's setup"),
        ("shards as the table", "by itself"),
    ];
    let lines = setups.iter().filter_map(|(words, name)| {
        let lines = outcome.lines.iter();
        let loads = lines
            .skip_while(|line| !line.contains(words))
            .nth(1)?
            .lines()
            .next()?;
        let loads = loads
            .split_whitespace()
            .filter_map(|load| load.parse::<f64>().ok());
        Some(Line {
            name: (*name).to_owned(),
            points: loads
                .enumerate()
                .map(|(at, load)| (at as f64 + 1.0, load))
                .collect(),
        })
    });
    vec![Curve {
        title: "Load factor while the table grows",
        hint: "by hundredths of the inserts; the dot is the paper's peak, wherever it is",
        units: (Unit::Count, Unit::Count),
        is_log: false,
        lines: lines.collect(),
        paper: vec![(100.0, 0.85)],
    }]
}

/// Figure 3.9: mean distances by load, of the tables in each of the three states.
pub(super) fn distances(outcome: &Outcome) -> Vec<Curve> {
    let states = [("(a) loaded", "loaded"), ("(b) deleted", "loaded anew")];
    let lines = states.map(|(words, name)| {
        let meant = outcome
            .lines
            .iter()
            .filter(|line| line.trim().starts_with(words));
        let points = meant.filter_map(|line| {
            let row = Cell {
                below: "",
                row: words,
                place: 0,
                is_last: false,
            };
            let numbers = row.numbers(std::slice::from_ref(line))?;
            Some((*numbers.get(1)?, *numbers.get(2)?))
        });
        Line {
            name: name.to_owned(),
            points: points.collect(),
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

/// Figure 4.8: lines that begin with a number of keys.
pub(super) fn recoveries(outcome: &Outcome) -> Vec<Curve> {
    let column = |at: usize, name: &str| {
        let points = outcome.lines.iter().filter_map(|line| {
            let (keys, seconds) = line.split_once(" keys:")?;
            let seconds = seconds.split(';').next()?.split_whitespace().nth(at)?;
            Some((keys.trim().parse().ok()?, seconds.parse().ok()?))
        });
        Line {
            name: name.to_owned(),
            points: points.collect(),
        }
    };
    vec![Curve {
        title: "Opening an SPTree",
        hint: "seconds by keys, both scales logarithmic; the paper's point on 20 cores",
        units: (Unit::Count, Unit::Seconds),
        is_log: true,
        lines: vec![
            column(0, "plain, first answer"),
            column(1, "plain, all"),
            column(2, "buffers, first answer"),
            column(3, "buffers, all"),
        ],
        paper: vec![(250e6, 1.0)],
    }]
}
