//! Charts as inline SVG: bars, stacks, lines and dots.
//!
//! A chart is as wide as its place on the page. Places across are therefore percentages, places
//! down are pixels, and text keeps its size. Lines, which know no percentages, lie in an inner SVG
//! that is stretched across, with strokes that are not. Colours come from classes: `t0` to `t7` for
//! targets, `p0` to `p7` for parts of a stack.

use std::fmt::{self, Write};

use super::format::{escaped, shortened};
use super::scale::Axis;

/// Colours there are for targets; more targets than that share them.
pub(super) const COLOURS: usize = 8;

/// Height of a line chart.
const HEIGHT: usize = 220;
/// Height of one row of bars, of its text, and of the bar below.
const ROW: usize = 38;
const ROW_TEXT: usize = 14;
const ROW_BAR: usize = 10;
/// Width of the inner SVG of lines.
const WIDTH: f64 = 1000.0;
/// Distance between the names at the ends of lines.
const NAME_STEP: f64 = 14.0;
/// Points of a line; more than a screen shows.
const POINTS_MAX: usize = 240;

/// Class of the target with this number.
pub(super) fn class(target: usize) -> String {
    format!("t{}", target % COLOURS)
}

/// What stands around every chart.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    /// What it shows.
    pub(super) title: &'static str,
    /// In which unit, and what is better.
    pub(super) hint: String,
    /// Colour classes and what they mean, where targets do not say it all.
    pub(super) legend: Vec<(String, &'static str)>,
}

impl Frame {
    fn open(&self, out: &mut String) -> fmt::Result {
        let (title, hint) = (self.title, escaped(&self.hint));
        write!(
            out,
            "<figure class=\"card\"><figcaption><b>{title}</b> <small>{hint}</small>"
        )?;
        if !self.legend.is_empty() {
            write!(out, "<span class=\"legend\">")?;
            for (class, name) in &self.legend {
                write!(out, "<span><i class=\"{class}\"></i>{name}</span>")?;
            }
            write!(out, "</span>")?;
        }
        writeln!(out, "</figcaption>")
    }

    /// Opens the SVG; `says` is what the chart shows, for those who cannot see it.
    fn open_svg(&self, out: &mut String, kind: &str, height: usize, says: &str) -> fmt::Result {
        let label = escaped(&format!("{}, {}. {says}", self.title, self.hint));
        writeln!(
            out,
            "<div class=\"{kind}\"><svg class=\"chart\" role=\"img\" aria-label=\"{label}\" \
             width=\"100%\" height=\"{height}\">"
        )
    }

    fn close(out: &mut String) -> fmt::Result {
        writeln!(out, "</svg></div></figure>")
    }
}

/// One row of a bar chart.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// The target's number.
    pub(super) target: usize,
    /// Its name.
    pub(super) name: String,
    /// The characters that the name may have before it is cut; `None` for those that fit into the
    /// narrowest card.
    pub(super) name_chars_max: Option<usize>,
    /// Colour class and length of each part of the bar, with its name; none where there is no
    /// figure.
    pub(super) parts: Vec<(String, &'static str, f64)>,
    /// Smallest and largest of the repetitions.
    pub(super) whisker: Option<(f64, f64)>,
    /// Another count of the same.
    pub(super) mark: Option<f64>,
    /// The figure in words.
    pub(super) value: String,
    /// The figure in relation to others.
    pub(super) aside: String,
    /// What is told on hovering, besides.
    pub(super) more: String,
}

/// Horizontal bars, one row for each target.
pub(super) fn bars(out: &mut String, frame: &Frame, axis: &Axis, rows: &[Row]) -> fmt::Result {
    let bottom = rows.len() * ROW;
    let says = rows
        .iter()
        .map(|row| format!("{}: {}", row.name, row.value));
    let says = says.collect::<Vec<_>>().join("; ");
    frame.open(out)?;
    frame.open_svg(out, "bars", bottom + 22, &says)?;
    ticks_across(out, axis, bottom, true)?;
    for (index, row) in rows.iter().enumerate() {
        bar(out, axis, row, index * ROW)?;
    }
    Frame::close(out)
}

fn bar(out: &mut String, axis: &Axis, row: &Row, top: usize) -> fmt::Result {
    let Row {
        name, value, aside, ..
    } = row;
    let class = class(row.target);
    let narrow = if aside.is_empty() { 20 } else { 16 };
    let told = [name.as_str(), ": ", value, " ", aside, "\n", &row.more].concat();
    writeln!(
        out,
        "<g class=\"row {class}\" data-t=\"{}\"><title>{}</title>\
         <rect class=\"hit\" y=\"{top}\" width=\"100%\" height=\"{ROW}\"/>\
         <text class=\"name\" y=\"{}\">{}</text>\
         <text class=\"value\" x=\"100%\" y=\"{}\">{} <tspan class=\"aside\">{}</tspan></text>",
        row.target,
        escaped(told.trim()),
        top + ROW_TEXT,
        escaped(&shortened(name, row.name_chars_max.unwrap_or(narrow))),
        top + ROW_TEXT,
        escaped(value),
        escaped(aside),
    )?;
    let bar_top = top + ROW_TEXT + 6;
    let mut length = 0.0;
    for (class, part, figure) in &row.parts {
        let (from, to) = (axis.place(length), axis.place(length + figure));
        length += figure;
        if to > from {
            write!(
                out,
                "<rect class=\"bar {class}\" x=\"{}\" y=\"{bar_top}\" width=\"{}\" \
                 height=\"{ROW_BAR}\"><title>{}: {}{part} {}</title></rect>",
                across(from),
                across(to - from),
                escaped(name),
                if part.is_empty() { "" } else { " " },
                escaped(&axis.text(*figure)),
            )?;
        }
    }
    let middle = bar_top + ROW_BAR / 2;
    if let Some((min, max)) = row.whisker.filter(|(min, max)| min < max) {
        let (min, max) = (across(axis.place(min)), across(axis.place(max)));
        for halo in [" halo", ""] {
            write!(
                out,
                "<g class=\"whisker{halo}\">\
                 <line x1=\"{min}\" x2=\"{max}\" y1=\"{middle}\" y2=\"{middle}\"/>"
            )?;
            for end in [&min, &max] {
                let (y1, y2) = (middle - 4, middle + 4);
                write!(
                    out,
                    "<line x1=\"{end}\" x2=\"{end}\" y1=\"{y1}\" y2=\"{y2}\"/>"
                )?;
            }
            write!(out, "</g>")?;
        }
    }
    if let Some(mark) = row.mark {
        let x = across(axis.place(mark));
        let (y1, y2) = (bar_top - 3, bar_top + ROW_BAR + 3);
        for halo in [" halo", ""] {
            write!(
                out,
                "<line class=\"mark{halo}\" x1=\"{x}\" x2=\"{x}\" y1=\"{y1}\" y2=\"{y2}\"/>"
            )?;
        }
    }
    writeln!(out, "</g>")
}

/// One line of a line chart.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// The target's number.
    pub(super) target: usize,
    /// Its name.
    pub(super) name: String,
    /// The points, from left to right.
    pub(super) points: Vec<(f64, f64)>,
    /// Points that are drawn as dots, with what is told on hovering.
    pub(super) dots: Vec<(f64, f64, String)>,
}

/// Lines over a common axis, named at their ends.
pub(super) fn lines(
    out: &mut String,
    frame: &Frame,
    (x, y): (&Axis, &Axis),
    series: &[Series],
) -> fmt::Result {
    let names: Vec<&str> = series.iter().map(|line| line.name.as_str()).collect();
    frame.open(out)?;
    frame.open_svg(
        out,
        "lines",
        HEIGHT,
        &format!("Lines of {}", names.join(", ")),
    )?;
    ticks_across(out, x, HEIGHT, false)?;
    for (value, text) in &y.ticks {
        let (at, text) = (down(y.place(*value)), escaped(text));
        writeln!(
            out,
            "<line class=\"grid\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick\" dx=\"-8\" dy=\"4\" y=\"{at:.1}\" text-anchor=\"end\">\
             {text}</text>"
        )?;
    }
    writeln!(
        out,
        "<svg class=\"paths\" width=\"100%\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         preserveAspectRatio=\"none\" data-x=\"{}\" data-y=\"{}\">",
        x.data(),
        y.data(),
    )?;
    for line in series {
        let (class, name) = (class(line.target), escaped(&line.name));
        write!(
            out,
            "<path class=\"line {class}\" data-t=\"{}\" data-name=\"{name}\" d=\"",
            line.target
        )?;
        for (index, point) in thinned(&line.points).into_iter().enumerate() {
            let letter = if index == 0 { 'M' } else { 'L' };
            let (at_x, at_y) = (x.place(point.0) * WIDTH, down(y.place(point.1)));
            write!(out, "{letter}{at_x:.1},{at_y:.1}")?;
        }
        writeln!(out, "\"><title>{name}</title></path>")?;
    }
    writeln!(out, "</svg>")?;
    for line in series {
        let class = class(line.target);
        write!(out, "<g class=\"{class}\" data-t=\"{}\">", line.target)?;
        for (at_x, at_y, told) in &line.dots {
            write!(
                out,
                "<circle class=\"dot\" r=\"3.5\" cx=\"{}\" cy=\"{:.1}\"><title>{}</title></circle>",
                across(x.place(*at_x)),
                down(y.place(*at_y)),
                escaped(told),
            )?;
        }
        writeln!(out, "</g>")?;
    }
    names_at_ends(out, y, series)?;
    Frame::close(out)
}

/// Names beside the last points of `series`, moved apart where they would cover one another.
fn names_at_ends(out: &mut String, y: &Axis, series: &[Series]) -> fmt::Result {
    let end = |line: &Series| line.points.last().map(|point| down(y.place(point.1)));
    let ends = series.iter().filter_map(|line| Some((end(line)?, line)));
    let mut ends: Vec<(f64, &Series)> = ends.collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = NAME_STEP / 2.0;
    for (at, _) in &mut ends {
        *at = at.max(free);
        free = *at + NAME_STEP;
    }
    let mut free = HEIGHT as f64;
    for (at, _) in ends.iter_mut().rev() {
        *at = at.min(free);
        free = *at - NAME_STEP;
    }
    for (at, line) in ends {
        writeln!(
            out,
            "<text class=\"end {}\" data-t=\"{}\" x=\"100%\" dx=\"8\" dy=\"4\" y=\"{at:.1}\">\
             {}</text>",
            class(line.target),
            line.target,
            escaped(&shortened(&line.name, 11)),
        )?;
    }
    Ok(())
}

/// One row of a dot chart: its link, its name, and a place and a text for each target.
pub(super) struct Dots {
    /// Where a click on the name leads.
    pub(super) link: String,
    /// The name.
    pub(super) name: String,
    /// What stands at the end of the row.
    pub(super) aside: String,
    /// Number, figure and text of each target.
    pub(super) dots: Vec<(usize, f64, String)>,
}

/// Rows of dots, one dot for each target, on an axis with a line at 1.
pub(super) fn dots(out: &mut String, frame: &Frame, axis: &Axis, rows: &[Dots]) -> fmt::Result {
    let bottom = rows.len() * ROW;
    frame.open(out)?;
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    frame.open_svg(
        out,
        "bars",
        bottom + 22,
        &format!("Rows: {}", names.join(", ")),
    )?;
    ticks_across(out, axis, bottom, true)?;
    let one = across(axis.place(1.0));
    writeln!(
        out,
        "<line class=\"one\" x1=\"{one}\" x2=\"{one}\" y2=\"{bottom}\"/>"
    )?;
    for (index, row) in rows.iter().enumerate() {
        let top = index * ROW;
        let (text, middle) = (top + ROW_TEXT, top + ROW_TEXT + 11);
        writeln!(
            out,
            "<a href=\"#{}\"><text class=\"name\" y=\"{text}\">{}</text></a>\
             <text class=\"value spare\" x=\"100%\" y=\"{text}\">\
             <tspan class=\"aside\">{}</tspan></text>\
             <line class=\"track\" x2=\"100%\" y1=\"{middle}\" y2=\"{middle}\"/>",
            row.link,
            escaped(&shortened(&row.name, 42)),
            escaped(&shortened(&row.aside, 30)),
        )?;
        for (target, figure, told) in &row.dots {
            writeln!(
                out,
                "<circle class=\"dot {}\" data-t=\"{target}\" r=\"6\" cx=\"{}\" cy=\"{middle}\">\
                 <title>{}</title></circle>",
                class(*target),
                across(axis.place(*figure)),
                escaped(told),
            )?;
        }
    }
    Frame::close(out)
}

/// Lines down at the ticks of `axis`, with their texts below `bottom`; the texts at the ends stay
/// inside of the chart where there is no room beside it.
fn ticks_across(out: &mut String, axis: &Axis, bottom: usize, is_inside: bool) -> fmt::Result {
    for (value, text) in &axis.ticks {
        let place = axis.place(*value);
        let anchor = match place {
            place if is_inside && place < 0.02 => "start",
            place if is_inside && place > 0.98 => "end",
            _ => "middle",
        };
        let x = across(place);
        writeln!(
            out,
            "<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y2=\"{bottom}\"/>\
             <text class=\"tick\" x=\"{x}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            bottom + 17,
            escaped(text),
        )?;
    }
    Ok(())
}

/// A place from 0 to 1 as a percentage of the width.
fn across(place: f64) -> String {
    format!("{:.2}%", place * 100.0)
}

/// A place from 0 to 1 as pixels from the top of a line chart.
fn down(place: f64) -> f64 {
    HEIGHT as f64 * (1.0 - place)
}

/// `points`, or means of neighbours where there are more than a screen shows.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let chunk = points.len().div_ceil(POINTS_MAX).max(1);
    let mean = |chunk: &[(f64, f64)]| {
        let sum: f64 = chunk.iter().map(|point| point.1).sum();
        (chunk[chunk.len() / 2].0, sum / chunk.len() as f64)
    };
    points.chunks(chunk).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Unit;

    #[test]
    fn long_lines_are_thinned_and_keep_their_mean() {
        let points: Vec<_> = (0..100_000).map(|i| (f64::from(i), 5.0)).collect();
        let thin = thinned(&points);
        assert!((POINTS_MAX / 2..=POINTS_MAX).contains(&thin.len()));
        assert!(thin.iter().all(|point| (point.1 - 5.0).abs() < 1e-9));
        assert_eq!(thinned(&points[..3]), points[..3]);
        assert!(thinned(&[]).is_empty());
    }

    #[test]
    fn names_at_ends_keep_their_distance_inside_of_the_chart() {
        let axis = Axis::linear([10.0], Unit::Count);
        for value in [0.0, 5.0, 10.0] {
            let series: Vec<Series> = (0..8)
                .map(|target| Series {
                    target,
                    name: target.to_string(),
                    points: vec![(0.0, value)],
                    dots: Vec::new(),
                })
                .collect();
            let mut out = String::new();
            names_at_ends(&mut out, &axis, &series).unwrap();
            let places = out.split(" y=\"").skip(1);
            let places = places.map(|rest| rest.split('"').next().unwrap());
            let places: Vec<f64> = places.map(|place| place.parse().unwrap()).collect();
            assert_eq!(places.len(), 8);
            assert!(places[0] >= 0.0 && places[7] <= HEIGHT as f64);
            assert!(
                places
                    .windows(2)
                    .all(|pair| pair[1] - pair[0] >= NAME_STEP - 0.11)
            );
        }
    }
}
