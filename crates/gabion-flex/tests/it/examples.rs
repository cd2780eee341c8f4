//! The examples run, at small sizes.

use std::path::PathBuf;
use std::process::Command;

/// Runs an example, which cargo builds for `cargo test` beside the tests, and returns what it says.
fn run(name: &str, arguments: &[&str]) -> String {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let program: PathBuf = profile.join("examples").join(name);
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| {
            panic!("{name}: {error}; `cargo test -p gabion-flex` builds the examples")
        });
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {text}{errors}");
    text
}

#[test]
fn a_line_is_put_on_top_of_a_text() {
    let dir = tempfile::tempdir().unwrap();
    let space = dir.path().join("space");
    let text = run("first_line", &[space.to_str().unwrap(), "4"]);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("This line was not here before."));
    assert_eq!(lines.next(), Some("           1: a line of the text"));
    let said = text.lines().last().unwrap();
    let bytes = said.strip_prefix("the first line: ").unwrap();
    let bytes: u64 = bytes.split(' ').next().unwrap().parse().unwrap();
    assert!(bytes < 64 << 10, "{bytes} bytes for a line of 31: {text}");
}

#[test]
fn an_index_with_a_budget_is_measured_beside_one_without() {
    let dir = tempfile::tempdir().unwrap();
    let text = run(
        "index_budget",
        &[dir.path().to_str().unwrap(), "2000", "500"],
    );
    for said in [" extents, no limit", " extents, index in", "opening"] {
        assert!(text.contains(said), "{text}");
    }
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 0, "everything that was made is removed");
}

#[test]
fn the_cost_of_collections_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let text = run(
        "gc_cost",
        &[dir.path().to_str().unwrap(), "400000", "200000"],
    );
    for said in ["Zipfian    85 % in use", "scattered  space that is short"] {
        assert!(text.contains(said), "{text}");
    }
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 0, "everything that was made is removed");
}
