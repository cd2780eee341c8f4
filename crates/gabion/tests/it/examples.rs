//! The examples run, on a new store and again on the store that they left.

use std::path::PathBuf;
use std::process::Command;

/// Where cargo puts the examples that it builds for `cargo test`.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    profile.join("examples").join(name)
}

#[test]
fn every_example_runs_twice_and_says_what_it_did() {
    for (name, said) in [
        ("batch", "alice: 90\nbob: 110\n"),
        ("snapshot", "then: 2 stones, now: 1\n"),
        ("scan", "2026-11-05: 50 stones"),
        ("durability", "the store runs at interval:20"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let output = Command::new(example(name))
                .arg(dir.path())
                .output()
                .unwrap_or_else(|error| {
                    panic!("{name}: {error}; `cargo test -p gabion` builds the examples")
                });
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(
                output.status.success() && text.contains(said),
                "{name}: {text}"
            );
        }
    }
}
