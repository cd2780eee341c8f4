//! The report: one HTML page that needs nothing but a browser, made to be looked at.
//!
//! From top to bottom: what was compared under which settings ([`head`]), all cases at a glance
//! ([`overview`]), then every case by itself ([`case`]) in charts ([`charts`]) with a table behind
//! them ([`figures`]). Bars show medians over the repetitions, with whiskers from the smallest to
//! the largest; lines and stacks, which have no median, show the repetition nearest to it.
//!
//! A reproduction of the papers has a page of its own form ([`reproduction`]), which opens with the
//! claims by verdict ([`verdicts`]) and is made of the same charts.
//!
//! Each page is well-formed XML as well as HTML, asks for nothing over the network and says so in a
//! policy that the browser enforces. The same results make the same bytes.

pub mod csv;
pub mod reproduction;

mod case;
mod charts;
mod figures;
mod format;
mod head;
mod overview;
mod scale;
mod verdicts;

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Write};

pub use verdicts::{Score, score};

use crate::result::PhaseResult;
use crate::summary::Summary;
use format::escaped;

/// What runs in the page, and how it looks. Neither holds characters that XML would not.
const SCRIPT: &str = include_str!("script.js");
const STYLE: &str = include_str!("style.css");

/// Writes the report of `results` as one HTML page.
///
/// `notes` stand below the `title`, each by itself; the page knows no clock, so the date of the run
/// is one of them if it is to be told. Every part of the page copes with figures that are missing.
/// The errors are those of `out`.
pub fn write(
    results: &[PhaseResult],
    title: &str,
    notes: &[String],
    out: &mut impl Write,
) -> io::Result<()> {
    let page = page(results, title, notes).expect("a string takes all that is written");
    out.write_all(page.as_bytes())
}

fn page(results: &[PhaseResult], title: &str, notes: &[String]) -> Result<String, fmt::Error> {
    use fmt::Write;
    let summary = Summary::of(results);
    let title = escaped(title);
    let mut out = String::new();
    open(&mut out, &title)?;
    head::write(&mut out, &summary, results, &title, notes)?;
    writeln!(out, "<main>")?;
    if summary.cases.is_empty() {
        writeln!(out, "<p class=\"none\">There are no results.</p>")?;
    } else {
        overview::write(&mut out, &summary)?;
    }
    for (index, case) in summary.cases.iter().enumerate() {
        case::write(&mut out, &summary, index, case)?;
    }
    write!(
        out,
        "</main>\n<footer><p>Bars are medians over the repetitions, whiskers reach from the \
         smallest to the largest. Lines and stacks show the repetition whose throughput is nearest \
         to the median. Ratios are to the first target. Made by gabion-lab {}.</p></footer>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
    )?;
    Ok(out)
}

/// Opens a page, up to its body. `title` is escaped already.
fn open(out: &mut String, title: &str) -> fmt::Result {
    use fmt::Write;
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    )
}
