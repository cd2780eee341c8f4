//! lab reproduce: figures are kept as they come, whatever ends the run, and shown with the claims.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Outcome, Place, bare, names};

/// A scale at which each figure takes a second at most.
const SCALE: &str = "0.001";

fn arguments<'a>(dir: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let dir = ["lab", "reproduce", "--dir", dir.to_str().unwrap()];
    dir.iter().chain(more).copied().collect()
}

fn reproduce(dir: &Path, more: &[&str]) -> Outcome {
    bare(&arguments(dir, more))
}

fn files(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// All figures at the smallest scale, once; the second time nothing is made.
#[test]
fn every_figure_is_made_and_shown() {
    let place = Place::new();
    let (dir, html) = (place.path("kept"), place.path("out.html"));
    let html = html.to_str().unwrap();
    let scale = "0.0001";
    let outcome = reproduce(&dir, &["--scale", scale, "--html", html, "--json"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let claims: Vec<Value> = serde_json::from_str(&outcome.stdout).unwrap();
    let count = files(&dir).len() - 1;
    names(&outcome.stderr, &[&format!("({count} of {count})")]);
    let page = fs::read_to_string(html).unwrap();
    assert!(!page.contains("Not made yet"), "every figure is there");
    for (class, verdicts) in [
        ("held", &["holds", "holds better"][..]),
        ("broken", &["does not hold"]),
        (
            "absent",
            &["not comparable here", "too short to tell", "not run"],
        ),
    ] {
        let is_meant = |claim: &&Value| verdicts.iter().any(|verdict| claim["verdict"] == *verdict);
        let row = format!("<tr class=\"{class}\"><th scope=\"row\">");
        let count = claims.iter().filter(is_meant).count();
        assert_eq!(page.matches(&row).count(), count, "{class}");
    }
    for claim in &claims {
        let figure = claim["figure"].as_str().unwrap();
        assert!(page.contains(&format!("id=\"figure-{figure}\"")), "{claim}");
        let verdict = claim["verdict"].as_str().unwrap();
        let is_told = !["too short to tell", "not run"].contains(&verdict);
        assert_eq!(claim["ours"].is_number(), is_told, "{claim}");
        assert!(claim["paper"].is_number(), "{claim}");
        let command = claim["command"].as_str().unwrap();
        let shows = format!("gabion lab figure {figure} --scale ");
        assert!(command.starts_with(&shows), "{claim}");
    }
    let again = reproduce(&dir, &["--scale", scale]);
    assert_eq!(again.status, Some(0), "{again:?}");
    assert_eq!(again.stderr.matches(": kept").count(), count, "{again:?}");
    let told = format!("{} claims of {count} figures in", claims.len());
    names(&again.stdout, &[&told, "does not hold: "]);
}

/// Killed in its second figure, a run goes on with that one: the first is as it was, and what the
/// killed one has left of its stores is gone.
#[test]
fn a_killed_run_goes_on_where_it_was() {
    let place = Place::new();
    let dir = place.path("kept");
    let html = place.path("out.html");
    let only = [
        "--scale",
        SCALE,
        "--only",
        "3.1,2.8",
        "--html",
        html.to_str().unwrap(),
    ];
    // 2.8 is the first of them by the papers' order, so that 3.1 has to be there before.
    let first = reproduce(&dir, &["--scale", SCALE, "--only", "3.1"]);
    assert_eq!(first.status, Some(0), "{first:?}");
    let kept = dir.join("figure-3.1.json");
    let before = fs::read(&kept).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_gabion"))
        .args(arguments(&dir, &only))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let stores = dir.join("stores");
    while !stores.exists() {
        assert_eq!(child.try_wait().unwrap(), None, "the run ended by itself");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        files(&dir)
            .iter()
            .filter(|name| name.ends_with(".json"))
            .count(),
        2
    );
    let outcome = reproduce(&dir, &only);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    names(
        &outcome.stderr,
        &[
            "figure 3.1 (2 of 2): kept",
            "figure 2.8 (1 of 2): eight readers",
        ],
    );
    assert_eq!(fs::read(&kept).unwrap(), before);
    assert_eq!(
        files(&dir),
        ["figure-2.8.json", "figure-3.1.json", "terms.json"]
    );
    let page = fs::read_to_string(html).unwrap();
    names(
        &page,
        &["Reads recover while writes go on", "table-2.1", "6th"],
    );
}

/// An interrupt ends it in order, with what is done on the page and a word on how to go on.
#[test]
fn an_interrupted_run_says_how_to_go_on() {
    let place = Place::new();
    let (dir, html) = (place.path("kept"), place.path("out.html"));
    let html = html.to_str().unwrap();
    let first = reproduce(&dir, &["--scale", SCALE, "--only", "3.1"]);
    assert_eq!(first.status, Some(0), "{first:?}");
    let only = ["--scale", SCALE, "--only", "2.8,3.1", "--html", html];
    let child = Command::new(env!("CARGO_BIN_EXE_gabion"))
        .args(arguments(&dir, &only))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !dir.join("stores").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let interrupted = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupted.success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    names(
        &stderr,
        &["gabion: the run was interrupted; finished results are kept in"],
    );
    let page = fs::read_to_string(html).unwrap();
    names(&page, &["figure-3.1", "Not made yet: 2.3"]);
    assert_eq!(files(&dir), ["figure-3.1.json", "terms.json"]);
}

#[test]
fn what_cannot_be_meant_is_refused_in_a_sentence() {
    let place = Place::new();
    let dir = place.path("kept");
    let first = reproduce(&dir, &["--scale", SCALE, "--only", "3.1"]);
    assert_eq!(first.status, Some(0), "{first:?}");
    let refuse = |more: &[&str], words: &[&str]| {
        let outcome = reproduce(&dir, more);
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert_eq!(outcome.stderr.trim_end().lines().count(), 1, "{outcome:?}");
        names(&outcome.stderr, words);
    };
    refuse(
        &["--scale", "0.5"],
        &[
            "reproduction with other settings (scale 0.001, not 0.5)",
            "name another directory",
        ],
    );
    refuse(&["--scale", "0"], &["the scale 0 must be above 0"]);
    refuse(
        &["--scale", SCALE, "--only", "7"],
        &["there is no figure 7"],
    );
    let kept = dir.join("figure-3.1.json");
    fs::File::options()
        .write(true)
        .open(&kept)
        .unwrap()
        .set_len(9)
        .unwrap();
    refuse(
        &["--scale", SCALE, "--only", "3.1"],
        &["figure-3.1.json is damaged", "delete it"],
    );
}
