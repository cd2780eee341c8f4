//! `gabion space`: a file is imported, edited in place and exported.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::{Outcome, Place, bare, names, outcome};

struct Space {
    place: Place,
}

impl Space {
    fn new() -> Space {
        Space {
            place: Place::new(),
        }
    }

    fn dir(&self) -> PathBuf {
        self.place.path("space")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command
            .arg("space")
            .args(arguments)
            .arg("--space")
            .arg(self.dir());
        command
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        outcome(&mut self.command(arguments))
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.status, Some(0), "{arguments:?}: {outcome:?}");
        outcome.stdout
    }

    fn fails(&self, status: i32, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.status, Some(status), "{arguments:?}: {outcome:?}");
        outcome.stderr
    }
}

#[test]
fn a_file_is_imported_edited_in_place_and_exported() {
    let space = Space::new();
    let lines: String = (0..200_000)
        .map(|number| format!("line {number}\n"))
        .collect();
    let file = space.place.file("text", &lines);
    space.ok(&["import", file.to_str().unwrap()]);
    space.ok(&["insert", "0", "a first line\n"]);
    space.ok(&["insert", "end", "the last line\n"]);
    space.ok(&["cut", "13", "7"]);
    let expected = format!("a first line\n{}the last line\n", &lines[7..]);
    assert_eq!(space.ok(&["read", "0", "20"]), expected[..20]);
    assert!(space.ok(&["read"]) == expected);
    let out = space.place.path("out");
    space.ok(&["export", out.to_str().unwrap()]);
    assert!(std::fs::read_to_string(&out).unwrap() == expected);
    let sentence = space.fails(1, &["export", out.to_str().unwrap()]);
    assert!(sentence.contains("cannot write"), "{sentence}");

    let stats: serde_json::Value = serde_json::from_str(&space.ok(&["stats", "--json"])).unwrap();
    assert_eq!(stats["len"], expected.len());
    // What the index has in memory, and may have.
    let figure = |name: &str| {
        stats[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {stats}"))
    };
    assert!(figure("tree_nodes") >= figure("tree_nodes_absent") + figure("tree_leaves_dirty"));
    assert!(figure("memory_bytes") >= figure("tree_memory_bytes"));
    assert_eq!(figure("tree_leaves_fetched"), 0);
    assert!(
        stats
            .get("tree_memory_bytes_max")
            .is_some_and(serde_json::Value::is_null)
    );
    let text = space.ok(&["stats"]);
    for line in ["extents", "nodes of the tree", "not in memory", "no limit"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(space.ok(&["check"]).starts_with("checked: "));
}

#[test]
fn standard_input_is_inserted() {
    let space = Space::new();
    let mut child = space
        .command(&["insert", "0"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"abc").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(space.ok(&["read"]), "abc");
}

#[test]
fn what_cannot_be_done_is_said() {
    let space = Space::new();
    assert!(space.fails(1, &["read"]).contains("there is no space at"));
    assert!(
        space
            .fails(2, &["insert", "x", "y"])
            .contains("a number of bytes, or `end`")
    );
    space.ok(&["insert", "0", "abc"]);
    assert!(space.fails(1, &["insert", "4", "x"]).contains("offset 4"));
    assert!(
        space
            .fails(1, &["cut", "2", "2"])
            .contains("do not lie in the space")
    );
    let file = space.place.file("text", "x");
    assert!(
        space
            .fails(1, &["import", file.to_str().unwrap()])
            .contains("already")
    );
    assert_eq!(space.ok(&["read"]), "abc");
}

#[test]
fn damage_is_named() {
    let space = Space::new();
    space.ok(&["insert", "0", "some bytes that will be damaged"]);
    let data = space.dir().join("DATA");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[4096 + 5] ^= 1;
    std::fs::remove_file(&data).unwrap();
    space.place.file("space/DATA", &bytes);
    let outcome = space.run(&["check"]);
    assert_eq!(outcome.status, Some(1));
    assert!(outcome.stdout.contains("DATA, offset 4096"), "{outcome:?}");
    let sentence = space.fails(1, &["read"]);
    assert!(sentence.contains("checksum"), "{sentence}");
}

/// A space was made among the files of a store, and the store's logs went with those that a space
/// does not need any more.
#[test]
fn no_space_is_made_among_other_things() {
    let place = Place::new();
    place.ok(&["put", "k", "v"]);
    let file = place.file("text", "x");
    let (db, file) = (place.db(), file.to_str().unwrap().to_owned());
    for arguments in [["insert", "0", "x"].as_slice(), &["import", &file]] {
        let space = ["space"].iter().chain(arguments).copied();
        let space = space.chain(["--space", db.to_str().unwrap()]);
        let outcome = bare(&space.collect::<Vec<_>>());
        assert_eq!(outcome.status, Some(1), "{outcome:?}");
        names(&outcome.stderr, &["holds something else", "of its own"]);
    }
    assert_eq!(place.ok(&["get", "k"]), "v\n");
    place.ok(&["check"]);
    // What is left of a space whose making was interrupted is nothing else.
    let space = Space::new();
    std::fs::create_dir(space.dir()).unwrap();
    for left in ["LOCK", "DATA", "TREE.tmp", "0000000000000001.log"] {
        space.place.file(&format!("space/{left}"), "");
    }
    space.ok(&["insert", "0", "abc"]);
    assert_eq!(space.ok(&["read"]), "abc");
}
