//! Tests of the list of figures, and of what they say of the papers.

use super::*;
use crate::page::sample;
use crate::result::PhaseResult;

/// Each claim about a structure names a row of its figure as it is, and each curve has points.
#[test]
fn every_claim_about_a_structure_has_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let scale = Scale::new(0.000_1).unwrap();
    for figure in figures() {
        let tables = match figure.making {
            FigureSource::Structure(make) => make(scale).unwrap(),
            FigureSource::Files(make) => make(scale, dir.path()).unwrap(),
            FigureSource::Stores(_) => continue,
        };
        assert!(
            tables.iter().all(|table| !table.rows.is_empty()),
            "{}",
            figure.name
        );
        let outcome = Outcome {
            tables,
            ..Outcome::default()
        };
        let verdicts = figure.verdicts(&outcome).unwrap();
        assert_eq!(verdicts.len(), figure.claims.len(), "{}", figure.name);
        for curve in (figure.curves)(&outcome) {
            let is_drawn = |line: &Line| line.points.len() > 1;
            assert!(curve.lines.iter().all(is_drawn), "{}", curve.title);
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn every_figure_is_listed_once_with_what_a_reader_needs() {
    let mut names: Vec<&str> = Vec::new();
    for figure in figures() {
        names.extend([figure.name].iter().chain(figure.tables));
        assert!(figure.part > 0.0 && figure.part <= 1.0);
        assert!(!figure.about.is_empty() && !figure.caveat.is_empty());
        for name in [figure.name].iter().chain(figure.tables) {
            assert_eq!(named(name).unwrap().name, figure.name);
        }
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let sentence = named("7").unwrap_err().to_string();
    assert!(
        sentence.contains("no figure 7; choose from: 2.3, 2.6"),
        "{sentence}"
    );
}

/// What is not judged says why not.
#[test]
fn claims_that_are_not_comparable_have_a_reason() {
    let claims = figures().flat_map(|figure| figure.claims);
    for claim in claims.filter(|claim| claim.rule == Rule::Incomparable) {
        assert!(!claim.why.is_empty(), "{}", claim.says);
    }
}

#[test]
fn a_scale_leads_to_a_part_and_to_the_command_that_shows_it() {
    let figure = named("table-2.1").unwrap();
    assert_eq!(figure.name, "2.8");
    assert!((figure.part_at(0.5) - figure.part / 2.0).abs() < 1e-12);
    assert!((figure.part_at(1e9) - 1.0).abs() < 1e-12);
    for (name, command) in [
        ("3.9", "gabion lab figure 3.9 --scale 0.2"),
        ("2.8", "gabion lab figure 2.8 --scale 0.01 --dir DIR"),
        (
            "flexspace",
            "gabion lab figure flexspace --scale 0.125 --dir DIR",
        ),
        (
            "flexdb",
            "gabion lab figure flexdb --scale 0.01 --target flex,rocksdb --dir DIR",
        ),
    ] {
        let figure = named(name).unwrap();
        assert_eq!(figure.command(figure.part), command);
    }
}

fn result(target: &str, workload: &str) -> PhaseResult {
    PhaseResult {
        target: target.to_owned(),
        workload: workload.to_owned(),
        ..sample::empty()
    }
}

fn verdicts(name: &str, part: f64, results: Vec<PhaseResult>) -> Vec<Verdict> {
    let outcome = Outcome {
        part,
        results,
        ..Outcome::default()
    };
    named(name).unwrap().verdicts(&outcome).unwrap()
}

/// A store that flushed nothing has written nothing, which is no amplification to boast of; and a
/// small one is not compared with the paper's.
#[test]
fn a_bound_does_not_hold_by_what_was_not_measured() {
    let told = |part, wa_without_log| {
        let result = PhaseResult {
            wa_without_log: Some(wa_without_log),
            ..result("wip", "fillrandom uniform")
        };
        let verdicts = verdicts("2.6", part, vec![result]);
        let is_meant = |verdict: &&Verdict| verdict.claim.unit == Unit::Times;
        verdicts.iter().find(is_meant).unwrap().answer()
    };
    assert_eq!(told(1.0, 0.0), ClaimResult::TooShort);
    assert_eq!(told(1.0, 3.0), ClaimResult::Holds);
    assert_eq!(told(1.0, 9.0), ClaimResult::DoesNotHold);
    assert_eq!(told(0.5, 3.0), ClaimResult::NotComparable);
}

/// Reads that the page cache answers are not compared with reads that wait for a drive.
#[test]
fn reads_from_memory_are_not_compared_with_reads_from_a_drive() {
    let mut read = result("flex", "readrandom zipfian");
    read.ops_per_s = 1e7;
    let latency = crate::result::OperationLatency {
        calls: 1,
        latency_us: crate::measure::Percentiles {
            p99: 3.0,
            ..read.latency_us
        },
    };
    read.latency_us_by_operation = [("read".to_owned(), latency)].into();
    let mut fill = result("flex", "fillrandom zipfian");
    fill.ops_per_s = 1e6;
    let verdicts = verdicts("flexdb", 0.01, vec![read, fill]);
    let answers: Vec<_> = verdicts[..3].iter().map(Verdict::answer).collect();
    let expected = [
        ClaimResult::Holds,
        ClaimResult::NotComparable,
        ClaimResult::NotComparable,
    ];
    assert_eq!(answers, expected);
    assert!(verdicts[1].why().contains("page cache"));
}

/// What the paper has for a peer is no claim about ours, though the peer was run.
#[test]
fn numbers_of_peers_are_no_claims() {
    let of = |target: &str| PhaseResult {
        ops_per_s: 1e6,
        ..result(target, "fillrandom zipfian")
    };
    let claims = named("flexdb").unwrap().claims.len();
    let numbers = |results| verdicts("flexdb", 0.01, results).len() - claims;
    assert_eq!(numbers(vec![of("flex")]), 1);
    assert_eq!(numbers(vec![of("flex"), of("rocksdb")]), 1);
}

#[test]
fn a_claim_without_a_number_is_an_error() {
    let refused = named("3.1").unwrap().verdicts(&Outcome::default());
    let sentence = refused.unwrap_err().to_string();
    for words in ["figure 3.1", "a table is full", "the figure has no rows"] {
        assert!(sentence.contains(words), "{sentence}");
    }
}
