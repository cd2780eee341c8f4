//! The commands of README.md and of the book in `docs` do what a reader expects of them: each of
//! them is run, in the order of its page, in a copy of what it needs.
//!
//! Numbers of records are cut, so that this takes seconds; nothing else is changed.

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;

use gabion::Engine;
use gabion_index::registry::{self, ReadProtocol, Registered};

use crate::support::Place;

/// Records of a command that asks for more.
const RECORDS_MAX: u64 = 2000;

/// Pages whose commands belong to figures that take long: results tell what was run.
const NOT_RUN: &[&str] = &["results.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What `](` and `)` enclose in SUMMARY.md: the pages of the book, by their paths in `docs`.
fn summary() -> Vec<String> {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let links = summary.split("](").skip(1);
    let pages = links.filter_map(|rest| rest.split_once(')'));
    pages.map(|(page, _)| page.to_owned()).collect()
}

/// README.md and the pages of the book whose commands are run.
fn pages() -> Vec<PathBuf> {
    let run = summary()
        .into_iter()
        .filter(|page| !page.starts_with("results/") && !NOT_RUN.contains(&page.as_str()))
        .map(|page| root().join("docs").join(page));
    iter::once(root().join("README.md")).chain(run).collect()
}

/// The commands of a page: what stands in blocks of `sh`, one per line unless a line goes on.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut is_inside = false;
    let mut command = String::new();
    for line in page.lines() {
        if line.starts_with("```") {
            is_inside = line == "```sh";
        } else if is_inside {
            command += line;
            let quotes = command.matches('\'').count();
            if let Some(rest) = command.strip_suffix('\\') {
                command = rest.to_owned();
            } else if quotes % 2 == 1 {
                command.push('\n');
            } else if !command.trim().is_empty() {
                commands.push(std::mem::take(&mut command));
            }
        }
    }
    commands
}

/// The command with the program of this build and with fewer records.
fn short(command: &str) -> String {
    let program = env!("CARGO_BIN_EXE_gabion");
    let command = command.replace("cargo run --release -p gabion-cli --", "gabion");
    let mut is_number = false;
    let words = command.split(' ').map(|word| {
        let number: Option<u64> = word.parse().ok();
        let word = match number {
            Some(number) if is_number => number.min(RECORDS_MAX).to_string(),
            _ if word == "gabion" => program.to_owned(),
            _ => word.to_owned(),
        };
        is_number = word == "--num";
        word
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn every_command_of_the_book_works() {
    let mut run = 0;
    for page in pages() {
        let place = Place::new();
        let dir = &place.path("");
        fs::create_dir_all(dir.join("examples")).unwrap();
        fs::create_dir_all(dir.join("target")).unwrap();
        let data = root().join("examples/data").canonicalize().unwrap();
        std::os::unix::fs::symlink(data, dir.join("examples/data")).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        for command in commands(&text) {
            if command.starts_with("cargo test") || command.starts_with("cargo build") {
                continue;
            }
            let output = Command::new("sh")
                .args(["-euc", &short(&command)])
                .current_dir(dir)
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{}: {command}\n{}",
                page.display(),
                String::from_utf8_lossy(&output.stderr)
            );
            run += 1;
        }
    }
    assert!(run > 20, "only {run} commands were found");
}

/// The row of an index in the table of its page.
fn row(index: &Registered) -> String {
    let keys = match index.strings {
        Some(_) => "words, strings",
        None => "words",
    };
    let reads = match index.reads {
        ReadProtocol::Optimistic => "optimistic",
        ReadProtocol::LockFree => "lock-free",
        other => panic!("docs/indexes.md does not say what {other:?} means"),
    };
    let (name, cost) = (index.name, index.persists);
    let (insert, update, remove) = (cost.insert, cost.update, cost.remove);
    format!("| `{name}` | {keys} | {reads} | {insert}, {update}, {remove} |")
}

/// Each form of an index stands on one page, with the properties that the registry has of it, and
/// no page has one that is not there.
#[test]
fn every_index_has_its_page() {
    let pages = summary().into_iter();
    let pages: Vec<(String, String)> = pages
        .filter(|page| page.starts_with("indexes/"))
        .map(|page| {
            let text = fs::read_to_string(root().join("docs").join(&page));
            (page, text.unwrap())
        })
        .collect();
    for index in registry::all() {
        let row = row(index);
        let on = pages
            .iter()
            .filter(|(_, text)| text.lines().any(|line| line == row));
        assert_eq!(
            on.count(),
            1,
            "no page, or several, below docs/indexes with: {row}"
        );
    }
    for (page, text) in &pages {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let mut names = rows.filter_map(|row| row.split('`').nth(1)).peekable();
        assert!(names.peek().is_some(), "{page} has no index");
        for name in names {
            assert!(registry::by_name(name).is_some(), "{page}: {name}");
        }
    }
}

#[test]
fn every_engine_has_its_page() {
    let pages = summary();
    for engine in Engine::ALL {
        let page = format!("engines/{engine}.md");
        assert!(pages.contains(&page), "docs/SUMMARY.md without {page}");
    }
}

#[test]
fn commands_are_found_and_cut() {
    let page =
        "text\n```sh\ngabion a \\\n  --num 9999 b\n\ngabion 'two\nlines'\n```\n```\nno\n```\n";
    let found = commands(page);
    assert_eq!(found, ["gabion a   --num 9999 b", "gabion 'two\nlines'"]);
    assert!(short(&found[0]).ends_with("a   --num 2000 b"));
    assert!(!short(&found[1]).starts_with("gabion"));
}
