//! The whole page: well-formed, complete whatever is missing, and at home in a browser.
//!
//! With `GABION_PAGE` set to the name of a file, the page of invented results is kept there, to be
//! looked at after a change.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;

use roxmltree::{Document, Node, ParsingOptions};

use super::{sample, write};
use crate::result::PhaseResult;

fn page(results: &[PhaseResult]) -> String {
    let mut bytes = Vec::new();
    write(
        results,
        "Engines & peers",
        &["2026-01-31".to_owned()],
        &mut bytes,
    )
    .unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Parses the page as XML, which refuses every tag that is not closed and every bare `<` or `&`.
pub(super) fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(page, options).unwrap()
}

pub(super) fn of_class<'a>(
    root: Node<'a, 'a>,
    class: &'a str,
) -> impl Iterator<Item = Node<'a, 'a>> {
    root.descendants().filter(move |node| {
        let classes = node.attribute("class").unwrap_or_default();
        classes.split(' ').any(|c| c == class)
    })
}

/// What holds for every page, whatever is in it.
pub(super) fn check(page: &str) {
    let document = parsed(page);
    for chart in of_class(document.root(), "chart") {
        assert_eq!(chart.attribute("role"), Some("img"));
        assert!(!chart.attribute("aria-label").unwrap_or_default().is_empty());
    }
    let mut ids: Vec<&str> = document
        .descendants()
        .filter_map(|n| n.attribute("id"))
        .collect();
    for link in document
        .descendants()
        .filter_map(|node| node.attribute("href"))
    {
        let id = link.strip_prefix('#').expect("links stay on the page");
        assert!(ids.contains(&id), "no {link}");
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id stands twice");
    for node in document.descendants().filter(Node::is_element) {
        for attribute in node.attributes() {
            let value = attribute.value();
            let is_broken = value.contains("NaN") || value.contains("inf");
            assert!(!is_broken || attribute.name() == "data-name", "{value}");
            if ["x", "y", "cx", "cy", "width", "x1", "x2"].contains(&attribute.name()) {
                let number = value.trim_end_matches('%').parse::<f64>();
                assert!(number.is_ok_and(f64::is_finite), "{value}");
            }
        }
    }
    for word in ["http:", "https:", "url(", "@import", "src="] {
        assert!(!page.contains(word), "the page holds {word}");
    }
}

#[test]
fn a_full_page_has_every_chart_of_every_case() {
    let results = sample::results(6, 8, 3);
    let page = page(&results);
    check(&page);
    let document = parsed(&page);
    let cases: Vec<_> = of_class(document.root(), "case").collect();
    assert_eq!(cases.len(), 8);
    for case in cases {
        let charts = of_class(case, "chart").count();
        assert!((6..=8).contains(&charts), "{charts} charts");
        assert_eq!(of_class(case, "line").count(), 12);
    }
    let best = of_class(document.root(), "best").count();
    assert_eq!(best, 8);
}

#[test]
fn the_same_results_make_the_same_page() {
    let results = sample::results(3, 3, 2);
    assert_eq!(page(&results), page(&results));
}

#[test]
fn any_number_of_targets_and_cases_makes_a_page() {
    for (targets, cases, repetitions) in [(0, 0, 0), (1, 1, 1), (2, 1, 1), (8, 8, 1), (1, 8, 2)] {
        check(&page(&sample::results(targets, cases, repetitions)));
    }
    let mut many = Vec::new();
    for index in 0..20 {
        many.extend(
            sample::results(2, 1, 1)
                .into_iter()
                .map(|result| PhaseResult {
                    workload: format!("workload {index}"),
                    ..result
                }),
        );
    }
    let page = page(&many);
    check(&page);
    assert_eq!(of_class(parsed(&page).root(), "case").count(), 20);
}

#[test]
fn missing_and_impossible_figures_leave_gaps() {
    let mut results = sample::results(3, 3, 2);
    results.retain(|result| result.target != "wip" || !result.workload.starts_with("over"));
    for (index, result) in results.iter_mut().enumerate() {
        match index % 6 {
            0 => result.throughput.clear(),
            1 => result.latency_curve.clear(),
            2 => result.ops_per_s = f64::NAN,
            3 => result.seconds = f64::INFINITY,
            4 => result.operations = 0,
            _ => result.latency_curve[3].micros = f64::NAN,
        }
    }
    check(&page(&results));
    let only_missing = [sample::empty()];
    check(&page(&only_missing));
    let mut no_figure = sample::empty();
    no_figure.ops_per_s = f64::NAN;
    let page = page(&[no_figure]);
    check(&page);
    assert!(page.contains("no figure"));
}

#[test]
fn names_are_text_and_never_markup() {
    let evil = "</script><b a='x' b=\"y\">&amp;\u{0}]]>";
    let mut results = sample::results(2, 2, 1);
    for result in &mut results {
        for text in [
            &mut result.target,
            &mut result.workload,
            &mut result.version,
            &mut result.machine,
        ] {
            text.push_str(evil);
        }
        result.notes = vec![evil.to_owned()];
        result.settings = serde_json::json!({ evil: evil });
        let latency = result.latency_us_by_operation.values().next().cloned();
        if let Some(latency) = latency {
            result
                .latency_us_by_operation
                .insert(evil.to_owned(), latency);
        }
    }
    let mut bytes = Vec::new();
    write(&results, evil, &[evil.to_owned()], &mut bytes).unwrap();
    let page = String::from_utf8(bytes).unwrap();
    check(&page);
    assert_eq!(page.matches("</script>").count(), 1);
    let document = parsed(&page);
    let heading = document.descendants().find(|node| node.has_tag_name("h1"));
    let seen = evil.replace('\u{0}', "\u{FFFD}");
    assert_eq!(heading.unwrap().text(), Some(seen.as_str()));
}

/// A script for the browser: notes in the page which charts are not drawn, and whether the page is
/// wider than the window.
const PROBE: &str = r#"<script>
window.addEventListener("load", function () {
  const charts = Array.from(document.querySelectorAll(".chart"));
  const drawn = charts.filter(function (chart) {
    const box = chart.getBoundingClientRect();
    return box.width > 100 ? box.height > 30 : false;
  });
  document.querySelector("[data-pick='1']").click();
  document.getElementById("theme").click();
  document.documentElement.dataset.probe = [
    charts.length, drawn.length, document.querySelectorAll(".faded").length > 0,
    document.documentElement.dataset.theme !== undefined,
    document.documentElement.scrollWidth > window.innerWidth,
  ].join(" ");
});
</script>"#;

#[test]
fn a_browser_shows_the_page() {
    let page = page(&sample::results(6, 8, 3));
    let charts = of_class(parsed(&page).root(), "chart").count();
    if let Some(path) = std::env::var_os("GABION_PAGE") {
        File::create(path)
            .unwrap()
            .write_all(page.as_bytes())
            .unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.html");
    let probed = page.replace("</body>", &format!("{PROBE}</body>"));
    File::create(&path)
        .unwrap()
        .write_all(probed.as_bytes())
        .unwrap();
    for width in [500, 1600] {
        let browser = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
            .args(["--enable-logging=stderr", "--virtual-time-budget=5000"])
            .arg(format!("--window-size={width},1000"))
            .arg(format!(
                "--user-data-dir={}",
                dir.path().join("profile").display()
            ))
            .arg(format!("file://{}", path.display()))
            .output();
        let Ok(output) = browser else {
            println!("skipped: there is no chromium on the search path");
            return;
        };
        let (dom, log) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        let console: Vec<_> = log
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .collect();
        assert!(console.is_empty(), "{console:?}");
        let probe = format!("data-probe=\"{charts} {charts} true true false\"");
        assert!(
            dom.contains(&probe),
            "at {width}: {}",
            &dom[..dom.len().min(300)]
        );
    }
}
