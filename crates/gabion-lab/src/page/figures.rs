//! All figures of one case: the table behind its charts.

use std::fmt::{self, Write};

use super::case::{Figure, PURPOSES, Ran};
use super::charts::class;
use super::format::escaped;
use crate::result::PhaseResult;
use crate::summary::Cell;
use crate::text::Unit;

/// A row of the table: its name, its unit, and its figure.
type TableRow = (&'static str, Unit, Figure);

const TABLE: &[TableRow] = &[
    ("Operations per second", Unit::PerSecond, |r| {
        Some(r.ops_per_s)
    }),
    ("Operations", Unit::Count, |r| Some(r.operations as f64)),
    ("Time", Unit::Seconds, |r| Some(r.seconds)),
    ("Latency, half", Unit::Micros, |r| Some(r.latency_us.p50)),
    ("Latency, 95 %", Unit::Micros, |r| Some(r.latency_us.p95)),
    ("Latency, 99 %", Unit::Micros, |r| Some(r.latency_us.p99)),
    ("Latency, 99.9 %", Unit::Micros, |r| Some(r.latency_us.p999)),
    ("Latency, longest", Unit::Micros, |r| Some(r.latency_us.max)),
    ("Processor, user", Unit::Seconds, |r| Some(r.cpu_user_s)),
    ("Processor, kernel", Unit::Seconds, |r| Some(r.cpu_sys_s)),
    ("Resident memory, largest", Unit::Bytes, |r| {
        r.rss_bytes_max.map(|b| b as f64)
    }),
    ("Written by the user", Unit::Bytes, |r| {
        Some(r.bytes_user as f64)
    }),
    ("Written by the store", Unit::Bytes, |r| {
        Some(r.bytes_written?.total as f64)
    }),
    ("Written, system's count", Unit::Bytes, |r| {
        r.bytes_written_process.map(|b| b as f64)
    }),
    ("Written to the drive, by everybody", Unit::Bytes, |r| {
        r.bytes_written_drive.map(|b| b as f64)
    }),
    ("Log at the restart", Unit::Bytes, |r| {
        r.restart_log_bytes.map(|b| b as f64)
    }),
    ("Read, system's count", Unit::Bytes, |r| {
        r.bytes_read_process.map(|b| b as f64)
    }),
    ("Write amplification without log", Unit::Times, |r| {
        r.wa_without_log
    }),
    ("Write amplification with log", Unit::Times, |r| {
        r.wa_with_log
    }),
    ("Write amplification, system's count", Unit::Times, |r| {
        r.wa_process
    }),
    ("Space", Unit::Bytes, |r| Some(r.space_bytes as f64)),
    ("Space amplification", Unit::Times, |r| {
        r.space_amplification
    }),
    ("Records held", Unit::Count, |r| {
        r.records_live.map(|records| records as f64)
    }),
    ("Files", Unit::Count, |r| Some(r.files as f64)),
    ("Writers stopped", Unit::Seconds, |r| r.stall_s),
    ("Writers slowed down", Unit::Seconds, |r| r.slowdown_s),
    ("Settling", Unit::Seconds, |r| Some(r.settle_s)),
    ("Found", Unit::Count, |r| Some(r.found as f64)),
    ("Conflicts", Unit::Count, |r| r.conflicts.map(|c| c as f64)),
];

/// All figures: medians, with both ends where there are several repetitions.
pub(super) fn write(out: &mut String, ran: &Ran) -> fmt::Result {
    writeln!(
        out,
        "<details><summary>All figures</summary><div class=\"card scroll\" tabindex=\"0\" \
         role=\"group\" aria-label=\"All figures\"><table>\n<thead><tr><th scope=\"col\">\
         Median, smallest to largest</th>"
    )?;
    for (target, name, _) in ran {
        let (class, name) = (class(*target), escaped(name));
        write!(
            out,
            "<th scope=\"col\" class=\"{class}\" data-t=\"{target}\"><i></i>{name}</th>"
        )?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for (name, unit, figure) in TABLE {
        table_row(out, ran, name, *unit, figure)?;
    }
    for (purpose, bytes) in &PURPOSES {
        let figure = |result: &PhaseResult| Some(bytes(&result.bytes_written?) as f64);
        let has = |cell: &Cell| cell.spread(figure).is_some_and(|spread| spread.max > 0.0);
        if ran.iter().any(|(.., cell)| has(cell)) {
            let name = format!("Written by the store: {purpose}");
            table_row(out, ran, &name, Unit::Bytes, figure)?;
        }
    }
    by_operation(out, ran)?;
    writeln!(out, "</tbody></table></div></details>")
}

fn table_row(
    out: &mut String,
    ran: &Ran,
    name: &str,
    unit: Unit,
    figure: impl Fn(&PhaseResult) -> Option<f64>,
) -> fmt::Result {
    write!(out, "<tr><th scope=\"row\">{}</th>", escaped(name))?;
    for (target, _, cell) in ran {
        write!(out, "<td data-t=\"{target}\">")?;
        match cell.spread(&figure) {
            None => write!(out, "–")?,
            Some(spread) => {
                write!(out, "{}", unit.text(spread.median))?;
                if spread.min < spread.max {
                    let (min, max) = (unit.text(spread.min), unit.text(spread.max));
                    write!(out, "<small>{min} … {max}</small>")?;
                }
            }
        }
        write!(out, "</td>")?;
    }
    writeln!(out, "</tr>")
}

/// The latencies of each kind of operation, where there are several kinds.
fn by_operation(out: &mut String, ran: &Ran) -> fmt::Result {
    let results = || ran.iter().flat_map(|(.., cell)| &cell.results);
    let mut kinds: Vec<&str> = Vec::new();
    for kind in results().flat_map(|result| result.latency_us_by_operation.keys()) {
        if !kinds.contains(&kind.as_str()) {
            kinds.push(kind);
        }
    }
    kinds.sort_unstable();
    for kind in kinds {
        for (name, part) in [("half", 0), ("99 %", 1), ("99.9 %", 2)] {
            let figure = |result: &PhaseResult| {
                let latency = result.latency_us_by_operation.get(kind)?.latency_us;
                Some([latency.p50, latency.p99, latency.p999][part])
            };
            let name = format!("Latency of {kind}, {name}");
            table_row(out, ran, &name, Unit::Micros, figure)?;
        }
    }
    Ok(())
}
