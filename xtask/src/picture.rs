//! The picture in README.md: `docs/bytes-written.svg`, drawn from a table of `docs/results.md`.
//!
//! It has the look of the lab's reports, in colours for light and dark. `cargo xtask picture`
//! prints it, and `cargo xtask tidy` compares it with the table, so that the two cannot part.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// The page that has the table.
pub(crate) const TABLE: &str = "docs/results.md";

/// The picture.
pub(crate) const PICTURE: &str = "docs/bytes-written.svg";

/// The heading above the table.
const HEADING: &str = "## Bytes written for each byte put";

/// What stands below the title.
const HINT: &str = "20 million random puts of 16 + 100 bytes, less is better";

/// Stores of this house; their bars have its colour.
const OURS: [&str; 2] = ["WipDB", "FlexDB"];

const WIDTH: usize = 720;
const MARGIN: usize = 20;
/// Height of what is above the first row, and of a row.
const HEAD: usize = 64;
const ROW: usize = 40;

const STYLE: &str = "\
text { font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; fill: #1c1d1f; }
.title { font-size: 16px; font-weight: 700; }
.name, .value { font-weight: 600; }
.value { text-anchor: end; }
.soft { font-weight: 400; fill: #5d6068; }
.card { fill: #ffffff; stroke: #e2ded6; }
.ours { fill: #4c5db4; }
.other { fill: #b9bcc4; }
@media (prefers-color-scheme: dark) {
  text { fill: #e9e8e4; }
  .soft { fill: #a3a7b0; }
  .card { fill: #1b1e23; stroke: #2a2e35; }
  .ours { fill: #8095f1; }
  .other { fill: #6b717c; }
}
";

/// A row of the table: the store, its figure as it is printed, and a remark or nothing.
struct Row<'a> {
    store: &'a str,
    figure: &'a str,
    bytes: f64,
    remark: &'a str,
}

/// Draws the table of `page` as an SVG, or says what is wrong with it.
pub(crate) fn draw(page: &str) -> Result<String, String> {
    let rows = rows(page)?;
    let longest = rows.iter().map(|row| row.bytes).fold(0.0, f64::max);
    let height = HEAD + rows.len() * ROW + MARGIN / 2;
    let title = HEADING.trim_start_matches(['#', ' ']);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
         viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"12\"/>\n\
         <text class=\"title\" x=\"{MARGIN}\" y=\"28\">{title}</text>\n\
         <text class=\"soft\" x=\"{MARGIN}\" y=\"47\">{HINT}</text>\n",
        WIDTH - 1,
        height - 1,
    );
    for (index, row) in rows.iter().enumerate() {
        let top = HEAD + index * ROW;
        let length = row.bytes / longest * (WIDTH - 2 * MARGIN) as f64;
        let class = match OURS.contains(&row.store) {
            true => "ours",
            false => "other",
        };
        let (text, end) = (top + 14, WIDTH - MARGIN);
        let (store, figure, remark) = (row.store, row.figure, row.remark);
        let _ = writeln!(
            svg,
            "<text class=\"name\" x=\"{MARGIN}\" y=\"{text}\">{store} \
             <tspan class=\"soft\">{remark}</tspan></text>\
             <text class=\"value\" x=\"{end}\" y=\"{text}\">{figure}</text>\
             <rect class=\"{class}\" x=\"{MARGIN}\" y=\"{}\" width=\"{length:.1}\" height=\"10\" \
             rx=\"2\"/>",
            top + 20,
        );
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn rows(page: &str) -> Result<Vec<Row<'_>>, String> {
    let mut lines = page.lines();
    if !lines.any(|line| line == HEADING) {
        return Err(format!("has no heading `{HEADING}`"));
    }
    // The two lines at the head of the table are no rows.
    let table = lines.skip_while(|line| !line.starts_with('|')).skip(2);
    let rows = table.take_while(|line| line.starts_with('|')).map(row);
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    match rows.is_empty() {
        true => Err(format!("has no table below `{HEADING}`")),
        false => Ok(rows),
    }
}

fn row(line: &str) -> Result<Row<'_>, String> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [store, figure, remark] = cells[..] else {
        return Err(format!("this row has not three cells: {line}"));
    };
    match figure.parse() {
        Ok(bytes) if bytes > 0.0 && !line.contains(['<', '&']) => Ok(Row {
            store,
            figure,
            bytes,
            remark,
        }),
        _ => Err(format!("this row has no figure, or marks of XML: {line}")),
    }
}

/// Prints the picture of the workspace at `root`.
pub(crate) fn print(root: &Path) -> ExitCode {
    let page = fs::read_to_string(root.join(TABLE)).map_err(|error| error.to_string());
    match page.and_then(|page| draw(&page)) {
        Ok(svg) => {
            print!("{svg}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("xtask: {TABLE}: {why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(rows: &str) -> String {
        format!("# Results\n\n{HEADING}\n\nWords.\n\n| store | bytes | |\n|---|---|---|\n{rows}\n")
    }

    #[test]
    fn bars_are_as_long_as_the_figures_say() {
        let svg = draw(&page("| WipDB | 2.5 | |\n| Other | 10 | no log |\n")).unwrap();
        assert!(svg.contains("class=\"ours\" x=\"20\" y=\"84\" width=\"170.0\""));
        assert!(svg.contains("class=\"other\" x=\"20\" y=\"124\" width=\"680.0\""));
        assert!(svg.contains("Other <tspan class=\"soft\">no log</tspan>"));
        assert!(svg.contains(">2.5</text>"));
    }

    #[test]
    fn says_what_is_wrong_with_the_table() {
        for (page, why) in [
            ("# Results\n".to_owned(), "no heading"),
            (page(""), "no table"),
            (page("| WipDB | 2.5 |\n"), "three cells"),
            (page("| WipDB | many | |\n"), "no figure"),
            (page("| WipDB | 0 | |\n"), "no figure"),
            (page("| <b> | 1 | |\n"), "marks of XML"),
        ] {
            let error = draw(&page).err().unwrap();
            assert!(error.contains(why), "{error}");
        }
    }
}
