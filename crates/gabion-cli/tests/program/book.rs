//! The commands of README.md and of the book in `docs` do what a reader expects of them: each of
//! them is run, in the order of its page, in a copy of what it needs.
//!
//! Numbers of records are cut, so that this takes seconds; nothing else is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Place;

/// Records of a command that asks for more.
const RECORDS_MAX: u64 = 2000;

/// Pages whose commands belong to figures that take long: results tell what was run.
const NOT_RUN: &[&str] = &["results.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and the pages of the book.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let mut pages: Vec<_> = docs
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .filter(|path| NOT_RUN.iter().all(|name| !path.ends_with(name)))
        .collect();
    pages.sort();
    pages.insert(0, root().join("README.md"));
    pages
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
    let command = command.replace("cargo run --release --bin gabion --", "gabion");
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
        place.file("big.txt", "a line of a large text\n".repeat(1000));
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

#[test]
fn commands_are_found_and_cut() {
    let page =
        "text\n```sh\ngabion a \\\n  --num 9999 b\n\ngabion 'two\nlines'\n```\n```\nno\n```\n";
    let found = commands(page);
    assert_eq!(found, ["gabion a   --num 9999 b", "gabion 'two\nlines'"]);
    assert!(short(&found[0]).ends_with("a   --num 2000 b"));
    assert!(!short(&found[1]).starts_with("gabion"));
}
