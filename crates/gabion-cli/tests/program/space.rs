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
    assert!(sentence.contains("cannot make"), "{sentence}");

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
            .contains("are not within the space")
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
        names(
            &outcome.stderr,
            &["holds something else", "for the space alone"],
        );
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

/// A command that failed left an empty space, which the next import would have found to be there.
#[test]
fn a_command_that_fails_makes_no_space() {
    let space = Space::new();
    let sentence = space.fails(1, &["insert", "5", "x"]);
    assert!(
        sentence.contains("nothing can be inserted at offset 5"),
        "{sentence}"
    );
    let folder = space.place.path(".");
    space.fails(1, &["import", folder.to_str().unwrap()]);
    space.fails(1, &["import", space.place.path("none").to_str().unwrap()]);
    space.fails(1, &["insert", "0", "x", "--reached", "7:9"]);
    assert!(!space.dir().exists());
    // A directory that was there stays, without a space.
    std::fs::create_dir(space.dir()).unwrap();
    space.fails(1, &["insert", "5", "x"]);
    space.fails(1, &["import", folder.to_str().unwrap()]);
    assert_eq!(std::fs::read_dir(space.dir()).unwrap().count(), 0);
    space.ok(&["insert", "0", "x"]);
    assert_eq!(space.ok(&["read"]), "x");
}

/// An export that was killed left a part of the file under its name, and the next one refused to
/// write there.
#[test]
fn an_exported_file_is_whole_or_not_there() {
    let space = Space::new();
    let lines: String = (0..300_000).map(|line| format!("line {line}\n")).collect();
    let file = space.place.file("text", &lines);
    space.ok(&["import", file.to_str().unwrap()]);
    let out = space.place.path("out");
    let (mut killed, incomplete) = (0, space.place.path("out.gabion-incomplete"));
    for round in 0..30 {
        let mut child = space.command(&["export", out.to_str().unwrap()]);
        let mut child = child.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(300 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        killed += u32::from(incomplete.exists());
        if out.exists() {
            assert!(std::fs::read_to_string(&out).unwrap() == lines);
            std::fs::remove_file(&out).unwrap();
        }
    }
    println!("space: {killed} exports were killed on their way");
    // What is left of one is in nobody's way, but of one that goes on.
    let left = std::fs::File::create(&incomplete).unwrap();
    left.lock().unwrap();
    let sentence = space.fails(1, &["export", out.to_str().unwrap()]);
    assert!(
        sentence.contains("another process is writing"),
        "{sentence}"
    );
    assert!(incomplete.exists() && !out.exists());
    drop(left);
    space.ok(&["export", out.to_str().unwrap()]);
    assert!(!incomplete.exists());
    assert!(std::fs::read_to_string(&out).unwrap() == lines);
    let sentence = space.fails(1, &["export", out.to_str().unwrap()]);
    assert!(sentence.contains("exists"), "{sentence}");
    assert!(!incomplete.exists());
}

/// An import that was killed left the first part of the file, and the next one refused to go on.
#[test]
fn a_killed_import_leaves_no_part() {
    let space = Space::new();
    let text = "granite, marble, basalt\n".repeat(400_000);
    for part in [1 << 20, 5 << 20, 9 << 20] {
        let mut child = space.command(&["import", "-"]);
        let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // The pipe holds less than this, so the command has read most of it.
        std::io::Write::write_all(&mut input, &text.as_bytes()[..part]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        if space.dir().join("TREE").exists() {
            let stats: serde_json::Value =
                serde_json::from_str(&space.ok(&["stats", "--json"])).unwrap();
            assert_eq!(stats["len"], 0);
            assert_eq!(stats["data_file_bytes"], 0);
        }
    }
    let file = space.place.file("text", &text);
    space.ok(&["import", file.to_str().unwrap()]);
    assert!(space.ok(&["read"]) == text);
}

/// Nothing told where the history of a space ends, so damage at its end could not be told from the
/// torn end of a crash.
#[test]
fn a_space_that_ends_too_early_is_refused() {
    let space = Space::new();
    space.ok(&["insert", "0", "granite"]);
    let checked = space.ok(&["check"]);
    assert!(checked.contains("in 1 extent, "), "{checked}");
    assert!(checked.contains("in 1 segment, "), "{checked}");
    let told: serde_json::Value = serde_json::from_str(&space.ok(&["check", "--json"])).unwrap();
    let reached = told["reached"].as_str().unwrap().to_owned();
    assert!(checked.trim_end().ends_with(&format!("reached {reached}")));
    let (version, offset) = reached.split_once(':').unwrap();
    let offset: u64 = offset.parse().unwrap();
    let later = format!("{version}:{}", offset + 1);
    for command in [
        &["read"][..],
        &["stats"],
        &["cut", "0", "1"],
        &["insert", "0", "x"],
    ] {
        let arguments = [command, &["--reached", &later]].concat();
        let sentence = space.fails(1, &arguments);
        assert!(sentence.contains("durable up to offset"), "{sentence}");
    }
    let outcome = space.run(&["check", "--reached", &later]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(outcome.stdout.contains("durable up to"), "{outcome:?}");
    assert_eq!(space.ok(&["read", "--reached", &reached]), "granite");
    // A change saves it, so it has come further.
    space.ok(&["insert", "0", "x"]);
    let stats: serde_json::Value = serde_json::from_str(&space.ok(&["stats", "--json"])).unwrap();
    let point = |text: &str| -> Vec<u64> {
        let parts = text.split(':');
        parts.map(|part| part.parse().unwrap()).collect()
    };
    assert!(point(stats["reached"].as_str().unwrap()) > point(&reached));
    assert!(
        space
            .fails(2, &["read", "--reached", "7"])
            .contains("two numbers")
    );
}

/// A cut left all that it had removed on the drive.
#[test]
fn what_is_cut_goes_back_to_the_file_system() {
    let space = Space::new();
    let text = "granite, marble, basalt\n".repeat(1_000_000);
    let file = space.place.file("text", &text);
    space.ok(&["import", file.to_str().unwrap()]);
    let len = text.len() - 10;
    space.ok(&["cut", "10", &len.to_string()]);
    assert_eq!(space.ok(&["read"]), text[..10]);
    let files = std::fs::read_dir(space.dir()).unwrap();
    let bytes: u64 = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes < 5 << 20, "{bytes}");
}
