//! A reproduction as one page: all claims at a glance, then each figure by itself.
//!
//! The overview has a row for each claim: the paper's number, ours, how far they are apart, and
//! whether it holds. Below, each figure has its claims as bars with the paper's numbers as marks on
//! them, its curves with the paper's points, its lines or a table of its phases, and, for claims
//! that do not hold, the reason where a measurement has told it. Figures that are not there yet are
//! named.

use std::fmt::{self, Write};

use super::charts::{Frame, Row, Series, bars, lines};
use super::format::escaped;
use super::open;
use super::scale::Axis;
use crate::Error;
use crate::reproduce::{Curve, ENTRIES, Entry, Outcome, Rule, Terms, Verdict};
use crate::result::PhaseResult;
use crate::text::{Unit, count_text, digits, percent};

/// Characters of a claim's case. Cards of claims are broad enough for those and two numbers.
const CASE_CHARS_MAX: usize = 26;

/// A figure with what came of it and what that says about the claims.
struct Shown<'a> {
    entry: &'static Entry,
    outcome: &'a Outcome,
    verdicts: Vec<Verdict>,
}

/// How many claims there are, and how many of them hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// All that were run.
    pub claims: usize,
    /// Those that hold.
    pub held: usize,
    /// Those that were not run, as this program or this system cannot.
    pub not_run: usize,
}

impl Score {
    /// How many hold, of how many.
    pub fn text(&self) -> String {
        let Score {
            claims,
            held,
            not_run,
        } = self;
        match not_run {
            0 => format!("{held} of {claims}"),
            _ => format!("{held} of {claims}, {not_run} not run"),
        }
    }
}

/// The page of those figures that are there; `notes` stand below the title.
///
/// # Errors
/// [`Error::Meaningless`] if a figure has no number for one of its claims, [`Error::Request`] if it
/// is none of [`ENTRIES`].
pub fn page(terms: &Terms, outcomes: &[Outcome], notes: &[String]) -> Result<String, Error> {
    let shown = shown(outcomes)?;
    Ok(whole(terms, &shown, notes).expect("a string takes all that is written"))
}

/// Counts the claims of those figures that are there.
///
/// # Errors
/// As [`page`].
pub fn score(outcomes: &[Outcome]) -> Result<Score, Error> {
    Ok(score_of(&shown(outcomes)?))
}

/// The figures that are there, in the order of the papers.
fn shown(outcomes: &[Outcome]) -> Result<Vec<Shown<'_>>, Error> {
    for outcome in outcomes {
        Entry::named(&outcome.figure)?;
    }
    let found = ENTRIES.iter().filter_map(|entry| {
        let mut outcomes = outcomes.iter();
        let outcome = outcomes.find(|outcome| outcome.figure == entry.figure)?;
        Some((entry, outcome))
    });
    found
        .map(|(entry, outcome)| {
            Ok(Shown {
                entry,
                outcome,
                verdicts: entry.verdicts(outcome)?,
            })
        })
        .collect()
}

fn score_of(shown: &[Shown<'_>]) -> Score {
    let verdicts = || shown.iter().flat_map(|shown| &shown.verdicts);
    let count = |is_meant: fn(&&Verdict) -> bool| verdicts().filter(is_meant).count();
    Score {
        claims: count(|verdict| verdict.not_run.is_none()),
        held: count(|verdict| verdict.holds()),
        not_run: count(|verdict| verdict.not_run.is_some()),
    }
}

fn whole(terms: &Terms, shown: &[Shown<'_>], notes: &[String]) -> Result<String, fmt::Error> {
    let mut out = String::new();
    open(&mut out, "The papers, reproduced")?;
    header(&mut out, terms, shown, notes)?;
    writeln!(out, "<main>")?;
    overview(&mut out, shown)?;
    let mut source = None;
    for one in shown {
        if source != Some(one.entry.source) {
            source = Some(one.entry.source);
            writeln!(
                out,
                "<h2 class=\"paper\">{}</h2>",
                escaped(one.entry.source.title())
            )?;
        }
        figure(&mut out, one)?;
    }
    write!(
        out,
        "</main>\n<footer><p>Bars and lines are ours, marks and dots on them the paper's. A claim \
         with a number holds within the band that stands beside it. Reasons are those that a \
         measurement told when a claim was looked into; their numbers are of that one, not of this \
         run. Figures about structures are shown as <code>gabion lab figure</code> prints them. \
         Made by gabion-lab {}.</p></footer>\n\
         </body>\n</html>\n",
        escaped(&terms.version),
    )?;
    Ok(out)
}

fn header(out: &mut String, terms: &Terms, shown: &[Shown<'_>], notes: &[String]) -> fmt::Result {
    writeln!(out, "<header><h1>The papers, reproduced</h1>")?;
    for note in notes {
        writeln!(out, "<p class=\"note\">{}</p>", escaped(note))?;
    }
    if terms.scale < 1.0 {
        writeln!(
            out,
            "<p class=\"note\">Made at a scale of {}: sizes are those of scale 1 times that, and \
             what they are too small for may fail for that alone.</p>",
            terms.scale
        )?;
    }
    let seconds: f64 = shown.iter().map(|shown| shown.outcome.seconds).sum();
    let facts = [
        ("claims that hold", score_of(shown).text()),
        ("figures", format!("{} of {}", shown.len(), ENTRIES.len())),
        ("scale", terms.scale.to_string()),
        ("time", Unit::Seconds.text(seconds)),
        ("machine", terms.machine.clone()),
        ("peers", terms.peers.clone()),
        ("version", terms.version.clone()),
    ];
    write!(out, "<dl class=\"facts\">")?;
    for (name, value) in facts {
        write!(
            out,
            "<div><dt>{name}</dt><dd>{}</dd></div>",
            escaped(&value)
        )?;
    }
    writeln!(out, "</dl></header>")
}

/// A row for each claim.
fn overview(out: &mut String, shown: &[Shown<'_>]) -> fmt::Result {
    if shown.is_empty() {
        return writeln!(out, "<p class=\"none\">There are no figures yet.</p>");
    }
    writeln!(
        out,
        "<section id=\"overview\"><h2>At a glance</h2>\n<div class=\"card\"><div class=\"scroll\" \
         tabindex=\"0\" role=\"group\" aria-label=\"All claims\"><table class=\"claims\">\n<thead>\
         <tr><th scope=\"col\">Claim</th><th scope=\"col\">Figure</th><th scope=\"col\">Paper</th>\
         <th scope=\"col\">Here</th><th scope=\"col\">Apart</th><th scope=\"col\">Holds?</th></tr>\
         </thead>\n<tbody>"
    )?;
    for Shown {
        entry, verdicts, ..
    } in shown
    {
        for verdict in verdicts {
            let claim = &verdict.claim;
            let figure = entry.figure;
            let class = match (verdict.not_run, verdict.holds()) {
                (Some(_), _) => "absent",
                (None, true) => "held",
                (None, false) => "broken",
            };
            let holds = verdict.answer();
            writeln!(
                out,
                "<tr class=\"{class}\"><th scope=\"row\">{} <small>{}</small></th>\
                 <td><a href=\"#figure-{figure}\">{figure}</a></td><td>{}{}</td><td>{}</td>\
                 <td>{}</td><td class=\"verdict\">{holds}</td></tr>",
                escaped(claim.says),
                escaped(claim.case),
                escaped(&claim.paper_text()),
                band(claim.rule),
                escaped(&claim.unit.text(verdict.ours)),
                apart(verdict),
            )?;
        }
    }
    writeln!(out, "</tbody></table></div></div>")?;
    let is_absent = |entry: &&Entry| shown.iter().all(|shown| shown.entry.figure != entry.figure);
    let absent: Vec<&str> = ENTRIES
        .iter()
        .filter(is_absent)
        .map(|entry| entry.figure)
        .collect();
    if !absent.is_empty() {
        let absent = absent.join(", ");
        writeln!(out, "<p class=\"note\">Not made yet: {absent}.</p>")?;
    }
    writeln!(out, "</section>")
}

fn band(rule: Rule) -> String {
    match rule {
        Rule::Near(part) => format!(" <small>± {}</small>", percent(part)),
        Rule::AtMost | Rule::AtLeast | Rule::SameWay => String::new(),
    }
}

fn apart(verdict: &Verdict) -> String {
    let apart = verdict.apart() * 100.0;
    match apart.abs() {
        _ if !apart.is_finite() => "–".to_owned(),
        1000.0.. => format!("× {}", digits(verdict.ours / verdict.claim.paper)),
        _ => format!("{apart:+.0} %").replace('-', "−"),
    }
}

fn figure(out: &mut String, shown: &Shown<'_>) -> fmt::Result {
    let Shown {
        entry,
        outcome,
        verdicts,
    } = shown;
    let (name, title) = (entry.figure, escaped(entry.title()));
    write!(
        out,
        "<section id=\"figure-{name}\"><h2>{name}: {title}</h2>"
    )?;
    let tables = match entry.tables {
        [] => String::new(),
        tables => format!(", with {}", tables.join(", ")),
    };
    writeln!(
        out,
        "<p class=\"about\">At {} of the paper's size, in {}{tables}. {} {}</p>",
        part(outcome.part),
        Unit::Seconds.text(outcome.seconds),
        escaped(entry.about),
        escaped(entry.says()),
    )?;
    writeln!(out, "<div class=\"charts broad\">")?;
    let mut rest: &[Verdict] = verdicts;
    while let Some(first) = rest.first() {
        let same = |verdict: &&Verdict| verdict.claim.says == first.claim.says;
        let (group, others) = rest.split_at(rest.iter().take_while(same).count());
        claims(out, group)?;
        rest = others;
    }
    for curve in (entry.curves)(outcome) {
        draw(out, &curve)?;
    }
    writeln!(out, "</div>")?;
    reasons(out, verdicts)?;
    if !outcome.lines.is_empty() {
        let lines = escaped(&outcome.lines.join("\n"));
        writeln!(
            out,
            "<details><summary>The figure's lines</summary><pre>{lines}</pre></details>"
        )?;
    }
    if !outcome.results.is_empty() {
        phases(out, &outcome.results)?;
    }
    writeln!(out, "</section>")
}

/// A part of the paper's size.
fn part(part: f64) -> String {
    match part {
        whole if whole >= 1.0 => "all".to_owned(),
        part => format!("1/{}", Unit::Count.tick((1.0 / part).round())),
    }
}

/// Claims with the same words: a bar for each case, with the paper's number as a mark.
fn claims(out: &mut String, group: &[Verdict]) -> fmt::Result {
    let Some(Verdict { claim: first, .. }) = group.first() else {
        return Ok(());
    };
    let numbers = group
        .iter()
        .flat_map(|verdict| [verdict.ours, verdict.claim.paper]);
    let axis = Axis::linear(numbers, first.unit);
    let rows: Vec<Row> = group
        .iter()
        .map(|verdict| Row {
            target: if verdict.holds() { 2 } else { 3 },
            name: verdict.claim.case.to_owned(),
            name_chars_max: Some(CASE_CHARS_MAX),
            parts: vec![(String::new(), "", verdict.ours)],
            mark: Some(verdict.claim.paper),
            value: verdict.claim.unit.text(verdict.ours),
            aside: format!("paper {}", verdict.claim.paper_text()),
            ..Row::default()
        })
        .collect();
    let frame = Frame {
        title: first.says,
        hint: "the mark is the paper's number".to_owned(),
        legend: vec![
            ("t2".to_owned(), "holds"),
            ("t3".to_owned(), "does not hold"),
        ],
    };
    bars(out, &frame, &axis, &rows)
}

fn draw(out: &mut String, curve: &Curve) -> fmt::Result {
    let points = || {
        let ours = curve.lines.iter().flat_map(|line| &line.points);
        ours.chain(&curve.paper)
    };
    let axis = |values: Vec<f64>, unit| match curve.is_log {
        true => Axis::log(values, unit),
        false => Axis::linear(values, unit),
    };
    let x = axis(points().map(|point| point.0).collect(), curve.units.0);
    let y = axis(points().map(|point| point.1).collect(), curve.units.1);
    let ours = curve.lines.iter().enumerate().map(|(at, line)| Series {
        target: at,
        name: line.name.clone(),
        points: line.points.clone(),
        dots: Vec::new(),
    });
    let mut series: Vec<Series> = ours.collect();
    let told = |(at_x, at_y): &(f64, f64)| (*at_x, *at_y, format!("paper: {}", y.text(*at_y)));
    if !curve.paper.is_empty() {
        series.push(Series {
            target: 3,
            name: "paper".to_owned(),
            points: Vec::new(),
            dots: curve.paper.iter().map(told).collect(),
        });
    }
    let legend = match curve.paper.is_empty() {
        true => Vec::new(),
        false => vec![("t3".to_owned(), "the paper's point")],
    };
    let frame = Frame {
        title: curve.title,
        hint: curve.hint.to_owned(),
        legend,
    };
    lines(out, &frame, (&x, &y), &series)
}

/// Why claims do not hold or were not run; those of the same reason together.
fn reasons(out: &mut String, verdicts: &[Verdict]) -> fmt::Result {
    let mut told: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for verdict in verdicts.iter().filter(|verdict| !verdict.holds()) {
        let what = match verdict.not_run {
            Some(_) => "Not run",
            None => "Does not hold",
        };
        let (why, case) = (verdict.why(), verdict.claim.case);
        match told.iter_mut().find(|(_, one, _)| *one == why) {
            Some((_, _, cases)) => cases.push(case),
            None => told.push((what, why, vec![case])),
        }
    }
    for (what, why, cases) in told {
        let why = if why.is_empty() {
            "Why was not traced."
        } else {
            why
        };
        writeln!(
            out,
            "<p class=\"why\"><b>{what}: {}.</b> {}</p>",
            escaped(&cases.join("; ")),
            escaped(why)
        )?;
    }
    Ok(())
}

/// The phases of a figure about stores.
fn phases(out: &mut String, results: &[PhaseResult]) -> fmt::Result {
    write!(
        out,
        "<details><summary>All phases</summary><div class=\"card\"><div class=\"scroll\" \
         tabindex=\"0\" role=\"group\" aria-label=\"Phases\"><table>\n<thead><tr>"
    )?;
    for title in [
        "Phase",
        "Target",
        "Records",
        "Operations/s",
        "Seconds",
        "p99",
        "Amplification",
        "with log",
    ] {
        write!(out, "<th scope=\"col\">{title}</th>")?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    let ratio = |value: Option<f64>| value.map_or("–".to_owned(), digits);
    for result in results {
        writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td></tr>",
            escaped(&result.workload),
            escaped(&result.target),
            count_text(result.records),
            Unit::PerSecond.text(result.ops_per_s),
            Unit::Seconds.text(result.seconds),
            Unit::Micros.text(result.latency_us.p99),
            ratio(result.wa_without_log),
            ratio(result.wa_with_log),
        )?;
    }
    writeln!(out, "</tbody></table></div></div></details>")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, of_class, parsed};
    use super::*;
    use crate::page::sample;
    use crate::reproduce::Making;

    fn terms() -> Terms {
        Terms {
            scale: 0.5,
            version: "1.2 & 3".to_owned(),
            machine: "a <machine>".to_owned(),
            peers: "none".to_owned(),
        }
    }

    /// Outcomes of the figures about structures that take no time, as they are.
    fn outcomes(names: &[&str]) -> Vec<Outcome> {
        let outcome = |name: &&str| {
            let Making::Structure(figure) = Entry::named(name).unwrap().making().unwrap() else {
                panic!("{name} is about stores");
            };
            Outcome {
                figure: (*name).to_owned(),
                part: 0.01,
                seconds: 1.5,
                lines: figure.lines(0.000_1).unwrap(),
                results: Vec::new(),
            }
        };
        names.iter().map(outcome).collect()
    }

    fn made_of(outcomes: &[Outcome]) -> String {
        let page = page(&terms(), outcomes, &["a note".to_owned()]).unwrap();
        check(&page);
        page
    }

    /// The page has each figure, each claim in the overview, and each of the paper's points: a mark
    /// for a claim (drawn twice, over its own halo), a dot for a curve's.
    #[test]
    fn the_page_holds_each_figure_and_each_point_of_the_papers() {
        let outcomes = outcomes(&["3.8", "3.9", "table2"]);
        let page = made_of(&outcomes);
        let document = parsed(&page);
        let sections: Vec<&str> = document
            .descendants()
            .filter_map(|node| node.attribute("id"))
            .collect();
        assert_eq!(
            sections,
            ["overview", "figure-3.8", "figure-3.9", "figure-table2"]
        );
        let claims: usize = ["3.8", "3.9", "table2"]
            .iter()
            .map(|name| Entry::named(name).unwrap().claims.len())
            .sum();
        let rows = ["held", "broken"].map(|class| of_class(document.root(), class).count());
        assert_eq!(rows.iter().sum::<usize>(), claims);
        let score = score(&outcomes).unwrap();
        assert_eq!((score.claims, score.held), (claims, rows[0]));
        assert_eq!(of_class(document.root(), "mark").count(), 2 * claims);
        // The peak, and the distances at 0.8.
        assert_eq!(of_class(document.root(), "dot").count(), 3);
        for words in [
            "2.49",
            "at most 1.34",
            "Not made yet: 2.3,",
            "a note",
            "Made at a scale of 0.5",
            "P-HOT, B",
        ] {
            assert!(page.contains(words), "{words}");
        }
    }

    /// What does not hold is shown as that, with the reason, and with that there is none.
    #[test]
    fn a_claim_that_does_not_hold_is_told_with_its_reason() {
        let mut outcomes = outcomes(&["3.11"]);
        let page = made_of(&outcomes);
        assert!(
            page.contains("<tr class=\"broken\">"),
            "6 us are too few in any build"
        );
        assert!(page.contains("would be 350 GB/s"));
        assert!(page.contains("their numbers are of that one"));
        for line in &mut outcomes[0].lines {
            if line.contains(" 7168 buckets:") {
                "  7168 buckets: 5.0".clone_into(line);
            }
        }
        let page = made_of(&outcomes);
        assert!(!page.contains("would be 350 GB/s"));
    }

    /// What was not run is no claim that fails, and is told as what it is.
    #[test]
    fn a_claim_that_was_not_run_is_told_apart() {
        let outcome = Outcome {
            figure: "flexdb-ycsb".to_owned(),
            part: 0.01,
            ..Outcome::default()
        };
        let entry = Entry::named("flexdb-ycsb").unwrap();
        let not_run = entry.claims.len();
        let outcomes = [outcome];
        let page = made_of(&outcomes);
        let document = parsed(&page);
        assert_eq!(of_class(document.root(), "absent").count(), not_run);
        assert!(page.contains("<b>Not run: A; B; C; E; F.</b> The program was built without"));
        let score = score(&outcomes).unwrap();
        assert_eq!((score.claims, score.held, score.not_run), (0, 0, not_run));
        assert_eq!(score.text(), format!("0 of 0, {not_run} not run"));
    }

    /// No case is cut, and of those that share a plot each is another.
    #[test]
    fn every_case_of_a_claim_fits() {
        for entry in ENTRIES {
            for (at, claim) in entry.claims.iter().enumerate() {
                let (says, case) = (claim.says, claim.case);
                assert!(case.chars().count() <= CASE_CHARS_MAX, "{case}");
                let mut before = entry.claims[..at].iter();
                let is_told = before.any(|other| other.says == says && other.case == case);
                assert!(!is_told, "{says}: {case}");
            }
        }
    }

    #[test]
    fn phases_of_stores_are_shown_as_a_table() {
        let mut results = sample::results(2, 1, 1);
        for result in &mut results {
            "wip".clone_into(&mut result.target);
        }
        let outcome = Outcome {
            figure: "2.6".to_owned(),
            part: 1.0,
            seconds: 9.0,
            lines: Vec::new(),
            results,
        };
        let page = made_of(&[outcome]);
        assert!(page.contains("At all of the paper's size"), "{page}");
        assert!(page.contains("at least 800 k/s"));
    }

    #[test]
    fn no_figures_and_figures_that_are_none() {
        assert!(made_of(&[]).contains("There are no figures yet."));
        let outcome = Outcome {
            figure: "7".to_owned(),
            ..Outcome::default()
        };
        assert!(page(&terms(), &[outcome], &[]).is_err());
    }

    #[test]
    fn distances_are_signed_and_large_ones_are_factors() {
        let entry = Entry::named("3.8").unwrap();
        let told = |paper, ours| {
            let claim = crate::reproduce::Claim {
                paper,
                ..entry.claims[0]
            };
            let not_run = None;
            apart(&Verdict {
                claim,
                ours,
                not_run,
            })
        };
        assert_eq!(told(2.0, 1.0), "−50 %");
        assert_eq!(told(2.0, 2.2), "+10 %");
        assert_eq!(told(2.0, 60.0), "× 30.0");
        assert_eq!(told(0.0, 0.0), "–");
        assert_eq!([part(0.05), part(1.0 / 333.0)], ["1/20", "1/333"]);
        assert_eq!(part(0.000_1), "1/10 k");
    }
}
