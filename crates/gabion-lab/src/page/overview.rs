//! All cases at a glance: ratios as dots, and a table with the best of each case in bold.

use std::fmt::{self, Write};

use super::charts::{Dots, Frame, class, dots};
use super::format::escaped;
use super::scale::Axis;
use crate::summary::{Case, Cell, Summary};
use crate::text::{Unit, percent};

/// Writes the section.
pub(super) fn write(out: &mut String, summary: &Summary) -> fmt::Result {
    writeln!(out, "<section id=\"overview\"><h2>At a glance</h2>")?;
    if summary.targets.len() > 1 {
        ratios(out, summary)?;
    }
    table(out, summary)?;
    writeln!(out, "</section>")
}

fn ratios(out: &mut String, summary: &Summary) -> fmt::Result {
    let row = |(index, case): (usize, &Case)| {
        let dot = |(target, cell): (usize, &Option<Cell>)| {
            let cell = cell.as_ref()?;
            let (ratio, name) = (cell.ratio?, summary.targets[target]);
            let (ratio_text, rate) = (Unit::Times.text(ratio), rate(cell));
            Some((target, ratio, format!("{name}: {ratio_text}, {rate}")))
        };
        let best = case.best.map_or_else(String::new, |best| {
            format!("best: {}", summary.targets[best])
        });
        Dots {
            link: format!("case-{index}"),
            name: case.label.clone(),
            aside: best,
            dots: case.cells.iter().enumerate().filter_map(dot).collect(),
        }
    };
    let rows: Vec<Dots> = summary.cases.iter().enumerate().map(row).collect();
    let ratios = rows.iter().flat_map(|row| row.dots.iter().map(|dot| dot.1));
    let axis = Axis::ratio(ratios);
    let frame = Frame {
        title: "Throughput over that of the first target",
        hint: format!(
            "{} = 1×, log scale, further right is better",
            summary.targets[0]
        ),
        legend: Vec::new(),
    };
    dots(out, &frame, &axis, &rows)
}

fn rate(cell: &Cell) -> String {
    cell.ops_per_s.map_or_else(
        || "no figure".to_owned(),
        |spread| Unit::PerSecond.text(spread.median),
    )
}

fn table(out: &mut String, summary: &Summary) -> fmt::Result {
    writeln!(
        out,
        "<div class=\"card\"><p class=\"hint\">Median operations per second, ratio to the first \
         target, and ↕ the distance from the smallest to the largest repetition as a part of the \
         median. Best in bold.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"group\" \
         aria-label=\"Overview\"><table class=\"overview\">\n<thead><tr><th scope=\"col\">Case</th>"
    )?;
    for (index, target) in summary.targets.iter().enumerate() {
        let (class, target) = (class(index), escaped(target));
        write!(
            out,
            "<th scope=\"col\" class=\"{class}\" data-t=\"{index}\"><i></i>{target}</th>"
        )?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for (index, case) in summary.cases.iter().enumerate() {
        write!(
            out,
            "<tr><th scope=\"row\"><a href=\"#case-{index}\">{}</a></th>",
            escaped(&case.label)
        )?;
        let medians = case.cells.iter().flatten();
        let medians = medians.filter_map(|cell| Some(cell.ops_per_s?.median));
        let most = medians.fold(0.0, f64::max);
        for (target, cell) in case.cells.iter().enumerate() {
            let is_best = case.best == Some(target);
            table_cell(out, target, cell.as_ref(), is_best, most)?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody></table></div></div>")
}

fn table_cell(
    out: &mut String,
    target: usize,
    cell: Option<&Cell>,
    is_best: bool,
    most: f64,
) -> fmt::Result {
    let Some((cell, spread)) = cell.and_then(|cell| Some((cell, cell.ops_per_s?))) else {
        return write!(out, "<td class=\"missing\" data-t=\"{target}\">–</td>");
    };
    let class = class(target);
    let class = if is_best {
        format!("{class} best")
    } else {
        class
    };
    let part = if most > 0.0 {
        spread.median / most
    } else {
        0.0
    };
    write!(
        out,
        "<td class=\"{class}\" data-t=\"{target}\"><span class=\"figure\">{}</span><small>",
        Unit::PerSecond.text(spread.median)
    )?;
    if let Some(ratio) = cell.ratio.filter(|_| target > 0) {
        write!(out, "{} ", Unit::Times.text(ratio))?;
    }
    if spread.count > 1 {
        write!(out, "<span>↕ {}</span>", percent(spread.relative()))?;
    }
    write!(
        out,
        "</small><span class=\"meter\"><i style=\"width:{:.1}%\"></i></span></td>",
        part.clamp(0.0, 1.0) * 100.0
    )
}
