//! One case: its charts, with the notes that they need.

use std::fmt::{self, Write};

use super::charts::{Frame, Row, Series, bars, class, lines};
use super::figures;
use super::format::escaped;
use super::scale::{Axis, nines};
use crate::result::{BytesWritten, PhaseResult};
use crate::summary::{Case, Cell, Spread, Summary};
use crate::text::Unit;

/// A purpose of writing: its name, and its bytes.
pub(super) type Purpose = (&'static str, fn(&BytesWritten) -> u64);

/// The purposes of writing, in the order in which bytes pass through a store.
pub(super) const PURPOSES: [Purpose; 8] = [
    ("log", |written| written.log),
    ("flush", |written| written.flush),
    ("compaction", |written| written.compaction),
    ("split", |written| written.split),
    ("merge", |written| written.merge),
    ("gc", |written| written.gc),
    ("checkpoint", |written| written.checkpoint),
    ("metadata", |written| written.metadata),
];

/// Quantiles that have a dot on the latency curve.
const DOTS: [(f64, &str); 5] = [
    (0.5, "half"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
];

/// A figure of one result that it may not have.
pub(super) type Figure = fn(&PhaseResult) -> Option<f64>;

/// A part of a stacked bar: colour class, name, figure.
type Part = (String, &'static str, Figure);

/// The targets that ran a case: number, name, cell.
pub(super) type Ran<'a> = Vec<(usize, &'a str, &'a Cell<'a>)>;

/// Writes the section of `case`.
pub(super) fn write(out: &mut String, summary: &Summary, index: usize, case: &Case) -> fmt::Result {
    let ran: Ran = summary
        .targets
        .iter()
        .zip(&case.cells)
        .enumerate()
        .filter_map(|(target, (name, cell))| Some((target, *name, cell.as_ref()?)))
        .collect();
    writeln!(
        out,
        "<section id=\"case-{index}\" class=\"case\"><h2>{}</h2><p class=\"about\">{}</p>\
         \n<div class=\"charts wide\">",
        escaped(&case.label),
        escaped(&about(summary, case)),
    )?;
    throughput(out, &ran)?;
    over_time(out, &ran)?;
    latency(out, &ran)?;
    writeln!(out, "</div>\n<div class=\"charts\">")?;
    written(out, &ran)?;
    processor(out, &ran)?;
    for (title, figure, aside) in [
        (
            "Space",
            (|r| Some(r.space_bytes as f64)) as Figure,
            (|r| r.space_amplification) as Figure,
        ),
        (
            "Memory",
            |r| r.rss_bytes_max.map(|bytes| bytes as f64),
            |_| None,
        ),
    ] {
        let hint = match title {
            "Space" => "the store's files at the end, × the records they hold",
            _ => "largest resident memory of the process",
        };
        plain_bars(out, &ran, title, hint, Unit::Bytes, figure, aside)?;
    }
    waiting(out, &ran)?;
    writeln!(out, "</div>")?;
    notes(out, &ran)?;
    figures::write(out, &ran)?;
    writeln!(out, "</section>")
}

/// What the case asked for, and who did it best.
fn about(summary: &Summary, case: &Case) -> String {
    let example = case.example;
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let mut about = format!(
        "{} record{} of {} + {} B, {} operation{} by {} thread{}",
        Unit::Count.tick(example.records as f64),
        plural(example.records),
        example.key_bytes,
        example.value_bytes,
        Unit::Count.tick(example.operations as f64),
        plural(example.operations),
        example.threads,
        plural(example.threads as u64),
    );
    if let Some(rate) = example.rate_per_s {
        about += &format!(", due at {}", Unit::PerSecond.tick(rate));
    }
    if let Some(best) = case.best {
        about += &format!(". Best: {}", summary.targets[best]);
    }
    about + "."
}

fn throughput(out: &mut String, ran: &Ran) -> fmt::Result {
    let figure: Figure = |result| Some(result.ops_per_s);
    let aside = |cell: &Cell| cell.ratio.filter(|_| ran.len() > 1);
    let hint = "operations per second, more is better";
    bars_of(out, ran, "Throughput", hint, Unit::PerSecond, figure, aside)
}

/// One bar for each target, with an aside that is a figure of the typical repetition.
fn plain_bars(
    out: &mut String,
    ran: &Ran,
    title: &'static str,
    hint: &str,
    unit: Unit,
    figure: Figure,
    aside: Figure,
) -> fmt::Result {
    bars_of(out, ran, title, hint, unit, figure, |cell| {
        aside(cell.typical())
    })
}

fn bars_of(
    out: &mut String,
    ran: &Ran,
    title: &'static str,
    hint: &str,
    unit: Unit,
    figure: Figure,
    aside: impl Fn(&Cell) -> Option<f64>,
) -> fmt::Result {
    let row = |(target, name, cell): &(usize, &str, &Cell)| {
        let spread = cell.spread(figure);
        Row {
            target: *target,
            name: (*name).to_owned(),
            parts: Vec::from_iter(spread.map(|s| (class(*target), "", s.median))),
            whisker: spread.map(|spread| (spread.min, spread.max)),
            mark: None,
            name_chars_max: None,
            value: spread.map_or("no figure".to_owned(), |s| unit.text(s.median)),
            aside: aside(cell).map_or_else(String::new, |aside| Unit::Times.text(aside)),
            more: spread.map_or_else(String::new, |spread| range(spread, unit)),
        }
    };
    let rows: Vec<Row> = ran.iter().map(row).collect();
    let frame = Frame {
        title,
        hint: hint.to_owned(),
        legend: Vec::new(),
    };
    let ends = rows.iter().filter_map(|row| Some(row.whisker?.1));
    bars(out, &frame, &Axis::linear(ends, unit), &rows)
}

/// The ends of `spread` in words.
fn range(spread: Spread, unit: Unit) -> String {
    if spread.count < 2 {
        return String::new();
    }
    let (min, max) = (unit.text(spread.min), unit.text(spread.max));
    format!("{min} to {max} in {} repetitions", spread.count)
}

fn over_time(out: &mut String, ran: &Ran) -> fmt::Result {
    let line = |(target, name, cell): &(usize, &str, &Cell)| Series {
        target: *target,
        name: (*name).to_owned(),
        points: cell
            .typical()
            .throughput
            .iter()
            .map(|moment| (moment.seconds, moment.ops_per_s))
            .filter(|point| point.0.is_finite() && point.1.is_finite())
            .collect(),
        dots: Vec::new(),
    };
    let mut series: Vec<Series> = ran.iter().map(line).collect();
    series.retain(|line| line.points.len() > 1);
    for line in &mut series {
        let end = line.points[line.points.len() - 1];
        let told = format!("{}: done after {}", line.name, Unit::Seconds.text(end.0));
        line.dots.push((end.0, end.1, told));
    }
    if series.is_empty() {
        return Ok(());
    }
    let points = || series.iter().flat_map(|line| &line.points);
    let x = Axis::linear(points().map(|point| point.0), Unit::Seconds);
    let y = Axis::linear(points().map(|point| point.1), Unit::PerSecond);
    let frame = Frame {
        title: "Throughput over time",
        hint: "operations per second".to_owned(),
        legend: Vec::new(),
    };
    lines(out, &frame, (&x, &y), &series)
}

fn latency(out: &mut String, ran: &Ran) -> fmt::Result {
    let line = |(target, name, cell): &(usize, &str, &Cell)| {
        let curve = curve(cell.typical());
        let dot = |&(quantile, part): &(f64, &str)| {
            let at = nines(quantile)?;
            let (_, micros) = curve.iter().find(|point| point.0 >= at - 1e-6)?;
            let told = format!("{name}: {part} within {}", Unit::Micros.text(*micros));
            Some((at, *micros, told))
        };
        Series {
            target: *target,
            name: (*name).to_owned(),
            dots: DOTS.iter().filter_map(dot).collect(),
            points: curve,
        }
    };
    let mut series: Vec<Series> = ran.iter().map(line).collect();
    series.retain(|line| !line.points.is_empty());
    if series.is_empty() {
        return Ok(());
    }
    let points = || series.iter().flat_map(|line| &line.points);
    let x = Axis::nines(points().map(|point| point.0));
    let y = Axis::log(points().map(|point| point.1), Unit::Micros);
    let frame = Frame {
        title: "Latency",
        hint: "% of operations within so long, lower is better".to_owned(),
        legend: Vec::new(),
    };
    lines(out, &frame, (&x, &y), &series)
}

/// Nines and microseconds: the curve of `result`, or its percentiles where it has none.
fn curve(result: &PhaseResult) -> Vec<(f64, f64)> {
    let p = &result.latency_us;
    let percentiles = [(0.5, p.p50), (0.95, p.p95), (0.99, p.p99), (0.999, p.p999)];
    let curve = result.latency_curve.iter();
    let mut points: Vec<_> = curve.map(|point| (point.quantile, point.micros)).collect();
    if points.is_empty() {
        points.extend(percentiles);
    }
    points
        .into_iter()
        .filter(|point| point.1.is_finite() && point.1 > 0.0)
        .filter_map(|(quantile, micros)| Some((nines(quantile)?, micros)))
        .collect()
}

fn written(out: &mut String, ran: &Ran) -> fmt::Result {
    let typical: Vec<&PhaseResult> = ran.iter().map(|(.., cell)| cell.typical()).collect();
    let wrote = |r: &&&PhaseResult| {
        r.bytes_written.is_some_and(|w| w.total > 0) || r.bytes_written_process > Some(0)
    };
    if !typical.iter().any(|r| wrote(&r)) {
        return Ok(());
    }
    // Where nobody wrote on purpose, such as in reads after a load, there is nothing to divide by.
    let is_relative = typical.iter().all(|result| result.bytes_user > 0);
    let (unit, title, hint) = if is_relative {
        (
            Unit::Times,
            "Write amplification",
            "bytes written per byte of the user",
        )
    } else {
        (Unit::Bytes, "Bytes written", "although nobody asked for it")
    };
    let over = |result: &PhaseResult, bytes: u64| {
        let per = if is_relative {
            result.bytes_user as f64
        } else {
            1.0
        };
        bytes as f64 / per
    };
    let row = |(target, name, cell): &(usize, &str, &Cell)| {
        let result = cell.typical();
        let parts = result.bytes_written.map(|written| {
            let part = |(index, (name, purpose)): (usize, &Purpose)| {
                let bytes = purpose(&written);
                (bytes > 0).then(|| (format!("p{index}"), *name, over(result, bytes)))
            };
            PURPOSES
                .iter()
                .enumerate()
                .filter_map(part)
                .collect::<Vec<_>>()
        });
        let process = result
            .bytes_written_process
            .map(|bytes| over(result, bytes));
        // A store that does not count has a hollow bar up to what the system counted.
        let uncounted = || {
            let part = |process| ("hollow".to_owned(), "by the system's count", process);
            Vec::from_iter(process.map(part))
        };
        let own = result
            .bytes_written
            .map(|written| over(result, written.total));
        let said = |figure: Option<f64>| figure.map(|figure| unit.text(figure));
        Row {
            target: *target,
            name: (*name).to_owned(),
            parts: parts.unwrap_or_else(uncounted),
            mark: process,
            value: said(own)
                .or(said(process))
                .unwrap_or("no figure".to_owned()),
            aside: if own.is_none() && process.is_some() {
                "system"
            } else {
                ""
            }
            .to_owned(),
            more: said(process).map_or_else(String::new, |p| format!("by the system's count {p}")),
            ..Row::default()
        }
    };
    let rows: Vec<Row> = ran.iter().map(row).collect();
    let used = |class: &str| {
        rows.iter()
            .any(|row| row.parts.iter().any(|part| part.0 == class))
    };
    let legend = PURPOSES.iter().enumerate();
    let legend = legend.map(|(index, (name, _))| (format!("p{index}"), *name));
    let mut legend: Vec<_> = legend.filter(|(class, _)| used(class)).collect();
    legend.push(("system".to_owned(), "the system's count"));
    let frame = Frame {
        title,
        hint: hint.to_owned(),
        legend,
    };
    let length = |row: &Row| row.parts.iter().map(|part| part.2).sum::<f64>();
    let ends = rows
        .iter()
        .map(|row| length(row).max(row.mark.unwrap_or(0.0)));
    bars(out, &frame, &Axis::linear(ends, unit), &rows)
}

fn processor(out: &mut String, ran: &Ran) -> fmt::Result {
    let parts: [Part; 2] = [
        ("p2".to_owned(), "user", |r| Some(r.cpu_user_s)),
        ("p0".to_owned(), "kernel", |r| Some(r.cpu_sys_s)),
    ];
    let per_operation = |result: &PhaseResult, seconds: f64| {
        let micros = seconds * 1e6 / result.operations as f64;
        format!("{}/op", Unit::Micros.text(micros))
    };
    let hint = "seconds, background work included";
    stacks(out, ran, "Processor time", hint, &parts, per_operation)
}

fn waiting(out: &mut String, ran: &Ran) -> fmt::Result {
    let parts: [Part; 3] = [
        ("p2".to_owned(), "stopped", |r| r.stall_s),
        ("p1".to_owned(), "slowed down", |r| r.slowdown_s),
        ("p0".to_owned(), "settling afterwards", |r| Some(r.settle_s)),
    ];
    let hint = "seconds for which writers waited, and until all work was done";
    stacks(out, ran, "Waiting", hint, &parts, |_, _| String::new())
}

/// Stacked bars of seconds; nothing where all are zero.
fn stacks(
    out: &mut String,
    ran: &Ran,
    title: &'static str,
    hint: &str,
    parts: &[Part],
    aside: impl Fn(&PhaseResult, f64) -> String,
) -> fmt::Result {
    let row = |(target, name, cell): &(usize, &str, &Cell)| {
        let result = cell.typical();
        let figure = |(class, part, figure): &Part| {
            let figure = figure(result).filter(|figure| figure.is_finite())?;
            Some((class.clone(), *part, figure))
        };
        let parts: Vec<_> = parts.iter().filter_map(figure).collect();
        let sum: f64 = parts.iter().map(|part| part.2).sum();
        Row {
            target: *target,
            name: (*name).to_owned(),
            parts,
            value: Unit::Seconds.text(sum),
            aside: if result.operations > 0 {
                aside(result, sum)
            } else {
                String::new()
            },
            ..Row::default()
        }
    };
    let rows: Vec<Row> = ran.iter().map(row).collect();
    let length = |row: &Row| row.parts.iter().map(|part| part.2).sum::<f64>();
    if rows.iter().all(|row| length(row) <= 0.0) {
        return Ok(());
    }
    let frame = Frame {
        title,
        hint: hint.to_owned(),
        legend: parts.iter().map(|part| (part.0.clone(), part.1)).collect(),
    };
    let axis = Axis::linear(rows.iter().map(length), Unit::Seconds);
    bars(out, &frame, &axis, &rows)
}

/// What a reader of the figures must know, once for each target that says it.
fn notes(out: &mut String, ran: &Ran) -> fmt::Result {
    let mut said: Vec<(&str, &str)> = Vec::new();
    for (_, name, cell) in ran {
        for note in cell.results.iter().flat_map(|result| &result.notes) {
            if !said.contains(&(*name, note.as_str())) {
                said.push((name, note));
            }
        }
    }
    for (name, note) in said {
        let (name, note) = (escaped(name), escaped(note));
        writeln!(out, "<p class=\"note\"><b>{name}</b>: {note}</p>")?;
    }
    Ok(())
}
