//! A reproduction as one page: what does not hold, all claims at a glance, then each figure by
//! itself.
//!
//! It opens with the claims by verdict and with those that do not hold ([`super::verdicts`]). The
//! overview has a row for each claim: the paper's number, ours, how far they are apart, and the
//! verdict. Below, each figure has its claims as bars with the paper's numbers as marks on them,
//! its curves with the paper's points, its rows or a table of its phases, and, for claims that do
//! not hold or are not judged, the reason where it is known. Figures that are not there yet are
//! named.

use std::fmt::{self, Write};

use super::charts::{Frame, Row, Series, bars, lines};
use super::format::escaped;
use super::open;
use super::scale::Axis;
use super::verdicts::{self, Shown, class, reason, shown};
use crate::Error;
use crate::figure::{ClaimResult, Curve, Outcome, PAPERS, Verdict, figures};
use crate::reproduce::FigureTerms;
use crate::result::PhaseResult;
use crate::rows::Table;
use crate::text::{Unit, count_text, digits};

/// Characters of a claim's case. Cards of claims are broad enough for those and two numbers.
const CASE_CHARS_MAX: usize = 26;

/// The page of those figures that are there; `notes` stand below the title.
///
/// # Errors
/// [`Error::Meaningless`] if a figure has no number for one of its claims, [`Error::Request`] if
/// there is no such figure.
pub fn page(terms: &FigureTerms, outcomes: &[Outcome], notes: &[String]) -> Result<String, Error> {
    let shown = shown(outcomes)?;
    Ok(whole(terms, &shown, notes).expect("a string takes all that is written"))
}

fn whole(terms: &FigureTerms, shown: &[Shown<'_>], notes: &[String]) -> Result<String, fmt::Error> {
    let mut out = String::new();
    open(&mut out, "The papers, reproduced")?;
    header(&mut out, terms, shown, notes)?;
    writeln!(out, "<main>")?;
    if shown.is_empty() {
        writeln!(out, "<p class=\"none\">There are no figures yet.</p>")?;
    } else {
        verdicts::write(&mut out, shown)?;
        overview(&mut out, shown)?;
    }
    for paper in PAPERS {
        let is_of = |one: &&Shown<'_>| paper.figures.iter().any(|it| it.name == one.figure.name);
        let mut of_paper = shown.iter().filter(is_of).peekable();
        if of_paper.peek().is_some() {
            writeln!(out, "<h2 class=\"paper\">{}</h2>", escaped(paper.title))?;
        }
        of_paper.try_for_each(|one| figure(&mut out, one))?;
    }
    write!(
        out,
        "</main>\n<footer><p>Bars and lines are ours, marks and dots on them the paper's. A claim \
         holds within the band that stands beside the paper's number. Reasons are those that a \
         measurement told when a claim was looked into; their numbers are of that one, not of this \
         run. Figures about structures are shown as <code>gabion lab figure</code> prints them. \
         Made by gabion-lab {}.</p></footer>\n\
         </body>\n</html>\n",
        escaped(&terms.version),
    )?;
    Ok(out)
}

fn header(
    out: &mut String,
    terms: &FigureTerms,
    shown: &[Shown<'_>],
    notes: &[String],
) -> fmt::Result {
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
        (
            "figures",
            format!("{} of {}", shown.len(), figures().count()),
        ),
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
    writeln!(
        out,
        "<section id=\"overview\"><h2>At a glance</h2>\n<div class=\"card\"><div class=\"scroll\" \
         tabindex=\"0\" role=\"group\" aria-label=\"All claims\"><table class=\"claims\">\n<thead>\
         <tr><th scope=\"col\">Claim</th><th scope=\"col\">Figure</th><th scope=\"col\">Paper</th>\
         <th scope=\"col\">Here</th><th scope=\"col\">Apart</th><th scope=\"col\">Verdict</th></tr>\
         </thead>\n<tbody>"
    )?;
    for one in shown {
        let figure = one.figure.name;
        for verdict in &one.verdicts {
            let (claim, answer) = (&verdict.claim, verdict.answer());
            let band = match &*claim.rule.band() {
                "" => String::new(),
                band => format!(" <small>{band}</small>"),
            };
            writeln!(
                out,
                "<tr class=\"{}\"><th scope=\"row\">{} <small>{}</small></th>\
                 <td><a href=\"#figure-{figure}\">{figure}</a></td><td>{}{band}</td><td>{}</td>\
                 <td>{}</td><td class=\"verdict\">{}</td></tr>",
                class(answer),
                escaped(claim.says),
                escaped(claim.case),
                escaped(&claim.paper_text()),
                escaped(&claim.unit.text(verdict.ours)),
                apart(verdict),
                answer.name(),
            )?;
        }
    }
    writeln!(out, "</tbody></table></div></div>")?;
    let is_absent = |name: &&str| shown.iter().all(|one| one.figure.name != *name);
    let absent = figures().map(|figure| figure.name).filter(is_absent);
    let absent: Vec<&str> = absent.collect();
    if !absent.is_empty() {
        let absent = absent.join(", ");
        writeln!(out, "<p class=\"note\">Not made yet: {absent}.</p>")?;
    }
    writeln!(out, "</section>")
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
        figure,
        outcome,
        verdicts,
    } = shown;
    let (name, about) = (figure.name, escaped(figure.about));
    write!(
        out,
        "<section id=\"figure-{name}\"><h2>{name}: {about}</h2>"
    )?;
    let tables = match figure.tables {
        [] => String::new(),
        tables => format!(", with {}", tables.join(", ")),
    };
    writeln!(
        out,
        "<p class=\"about\">At {} of the paper's size, in {}{tables}. {} {}</p>",
        part(outcome.part),
        Unit::Seconds.text(outcome.seconds),
        escaped(figure.caveat),
        escaped(figure.says()),
    )?;
    writeln!(out, "<div class=\"charts broad\">")?;
    let mut rest: &[Verdict] = verdicts;
    while let Some(first) = rest.first() {
        let same = |verdict: &&Verdict| verdict.claim.says == first.claim.says;
        let (group, others) = rest.split_at(rest.iter().take_while(same).count());
        claims(out, group)?;
        rest = others;
    }
    for curve in (figure.curves)(outcome) {
        draw(out, &curve)?;
    }
    writeln!(out, "</div>")?;
    reasons(out, verdicts)?;
    if !outcome.tables.is_empty() {
        let texts: Vec<String> = outcome.tables.iter().map(Table::text).collect();
        let rows = escaped(&texts.join("\n"));
        writeln!(
            out,
            "<details><summary>The figure's rows</summary><pre>{rows}</pre></details>"
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
            target: match class(verdict.answer()) {
                "held" => 2,
                "broken" => 3,
                _ => 4,
            },
            name: verdict.claim.case.to_owned(),
            name_chars_max: Some(CASE_CHARS_MAX),
            parts: vec![(String::new(), "", verdict.ours)],
            mark: Some(verdict.claim.paper),
            value: verdict.claim.unit.text(verdict.ours),
            aside: format!("paper {}", verdict.claim.paper_text()),
            ..Row::default()
        })
        .collect();
    let classes = [
        ("held", "t2", "holds"),
        ("broken", "t3", "does not hold"),
        ("absent", "t4", "not judged"),
    ];
    let is_there = |one: &str| group.iter().any(|it| class(it.answer()) == one);
    let there = classes.iter().filter(|(class, ..)| is_there(class));
    let frame = Frame {
        title: first.says,
        hint: "the mark is the paper's number".to_owned(),
        legend: there
            .map(|(_, color, words)| ((*color).to_owned(), *words))
            .collect(),
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

/// Why claims do not hold or are not judged; those of the same reason together.
fn reasons(out: &mut String, verdicts: &[Verdict]) -> fmt::Result {
    let mut told: Vec<(ClaimResult, &str, Vec<&str>)> = Vec::new();
    for verdict in verdicts.iter().filter(|verdict| !verdict.answer().holds()) {
        let (answer, why, case) = (verdict.answer(), reason(verdict), verdict.claim.case);
        match told.iter_mut().find(|it| (it.0, it.1) == (answer, why)) {
            Some((.., cases)) => cases.push(case),
            None => told.push((answer, why, vec![case])),
        }
    }
    for (answer, why, cases) in told {
        writeln!(
            out,
            "<p class=\"why\"><b>{}: {}.</b> {}</p>",
            answer.name(),
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
    use crate::figure::{Claim, FigureSource, named};
    use crate::page::sample;
    use crate::page::verdicts::score;
    use crate::scale::Scale;

    fn terms() -> FigureTerms {
        FigureTerms {
            scale: 0.5,
            version: "1.2 & 3".to_owned(),
            machine: "a <machine>".to_owned(),
            peers: "none".to_owned(),
        }
    }

    /// Outcomes of the figures about structures that take no time, as they are.
    fn outcomes(names: &[&str]) -> Vec<Outcome> {
        let outcome = |name: &&str| {
            let FigureSource::Structure(make) = named(name).unwrap().making else {
                panic!("{name} is about stores");
            };
            Outcome {
                figure: (*name).to_owned(),
                part: 0.01,
                seconds: 1.5,
                tables: make(Scale::new(0.000_1).unwrap()).unwrap(),
                results: Vec::new(),
            }
        };
        names.iter().map(outcome).collect()
    }

    fn parsed_text(node: roxmltree::Node<'_, '_>) -> String {
        node.descendants().filter_map(|node| node.text()).collect()
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
            [
                "verdicts",
                "broken",
                "overview",
                "figure-3.8",
                "figure-3.9",
                "figure-table2"
            ]
        );
        let claims: usize = ["3.8", "3.9", "table2"]
            .iter()
            .map(|name| named(name).unwrap().claims.len())
            .sum();
        let score = score(&outcomes).unwrap();
        assert_eq!(score.claims(), claims);
        let failed = score.count(ClaimResult::DoesNotHold);
        assert_eq!(of_class(document.root(), "failed").count(), failed);
        let has_command = |node| parsed_text(node).contains("gabion lab figure ");
        assert!(of_class(document.root(), "failed").all(has_command));
        // A row of the overview for each claim, and one of those that are counted.
        let rows = of_class(document.root(), "verdict").count();
        assert_eq!(rows, claims + 4);
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

    /// What does not hold comes first, with the reason and with what shows it.
    #[test]
    fn a_claim_that_does_not_hold_is_told_with_its_reason() {
        let mut outcomes = outcomes(&["3.11"]);
        let page = made_of(&outcomes);
        assert!(
            page.contains("<tr class=\"failed\">"),
            "6 us are too few in any build"
        );
        assert!(page.contains("would be 350 GB/s"));
        assert!(page.contains("<code>gabion lab figure 3.11 --scale 0.01</code>"));
        assert!(page.contains("their numbers are of that one"));
        let rows = &mut outcomes[0].tables[0].rows;
        let row = rows.iter_mut().find(|row| row.at == ["7168"]).unwrap();
        row.values = vec![Some(5.0)];
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
        let not_run = named("flexdb-ycsb").unwrap().claims.len();
        let outcomes = [outcome];
        let page = made_of(&outcomes);
        assert!(page.contains("<b>not run: A; B; C; E; F.</b> The program was built without"));
        assert!(!page.contains("What does not hold"));
        let score = score(&outcomes).unwrap();
        assert_eq!(
            (score.claims(), score.count(ClaimResult::NotRun)),
            (not_run, not_run)
        );
        assert_eq!(score.text(), format!("not run: {not_run}"));
    }

    /// No case is cut, and of those that share a plot each is another.
    #[test]
    fn every_case_of_a_claim_fits() {
        for figure in figures() {
            for (at, claim) in figure.claims.iter().enumerate() {
                let (says, case) = (claim.says, claim.case);
                assert!(case.chars().count() <= CASE_CHARS_MAX, "{case}");
                let mut before = figure.claims[..at].iter();
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
            tables: Vec::new(),
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
        let figure = named("3.8").unwrap();
        let told = |paper, ours| {
            let claim = Claim {
                paper,
                ..figure.claims[0]
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
