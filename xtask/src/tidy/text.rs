//! Rules for every text file: length, blanks, forbidden words, paths of one machine.

use super::source::find_word;
use super::tree::{File, Tree};
use super::{Finding, Rule};

/// A file of more lines is split.
const LINES_MAX: usize = 800;

/// A Rust file of more lines is named in a note: most are best between 100 and 400.
const LINES_NOTE: usize = 400;

/// Columns that rustfmt keeps code to; this rule holds comments and strings to them as well.
const COLUMNS_MAX: usize = 100;

/// Size above which a file does not belong into the repository, outside of [`DATA`].
const BYTES_MAX: u64 = 1 << 20;

/// Example data, which is kept as its source has it.
const DATA: &str = "examples/data/";

/// Files that nobody here writes by hand, and the reasons.
const LENGTH_EXCEPTIONS: &[(&str, &str)] = &[
    ("Cargo.lock", "written by cargo"),
    ("fuzz/Cargo.lock", "written by cargo"),
    ("bindings/node/package-lock.json", "written by npm"),
    (
        "bindings/c/include/gabion.h",
        "written by cbindgen, as one file",
    ),
];

/// Words that mark unfinished work. They are put together here so that this file keeps its rule.
const MARKERS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// Roots of paths that exist on some machines only.
const MACHINE_ROOTS: [&str; 5] = [
    concat!("/", "home"),
    concat!("/", "root"),
    concat!("/", "work"),
    concat!("/", "tmp"),
    concat!("/", "Users"),
];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "length",
        says: "no text file has more than 800 lines",
        check: length,
    },
    Rule {
        name: "blanks",
        says: "no tabs but in Go, no spaces at the end of a line, one newline at the end of a file",
        check: blanks,
    },
    Rule {
        name: "columns",
        says: "no line of a Rust source is longer than 100 characters",
        check: columns,
    },
    Rule {
        name: "markers",
        says: "no marks of unfinished work: finish it or leave it out",
        check: markers,
    },
    Rule {
        name: "machine-paths",
        says: "no absolute paths of one machine: use relative paths and temporary directories",
        check: machine_paths,
    },
    Rule {
        name: "size",
        says: "no file over 1 MiB outside of examples/data",
        check: size,
    },
];

/// The text files that are written here, with their texts.
fn written(tree: &Tree) -> impl Iterator<Item = (&File, &str)> {
    tree.texts()
        .filter(|(file, _)| !file.path.starts_with(DATA))
}

/// The lines of all written files, numbered from 1.
fn lines(tree: &Tree) -> impl Iterator<Item = (&File, usize, &str)> {
    written(tree).flat_map(|(file, text)| {
        let lines = text.split('\n').enumerate();
        lines.map(move |(index, line)| (file, index + 1, line))
    })
}

fn length(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, text) in written(tree) {
        let count = text.lines().count();
        let is_exception = LENGTH_EXCEPTIONS.iter().any(|(path, _)| *path == file.path);
        if count > LINES_MAX && !is_exception {
            let message = format!("{count} lines, at most {LINES_MAX} are allowed: split the file");
            found.push(Finding::new(&file.path, LINES_MAX + 1, message));
        }
    }
    found
}

/// Sentences about Rust files that are allowed, but long enough to think again.
pub(super) fn long_files(tree: &Tree) -> Vec<String> {
    let long = |(file, text): (&File, &str)| {
        let count = text.lines().count();
        (count > LINES_NOTE && count <= LINES_MAX && file.path.ends_with(".rs"))
            .then(|| format!("{} has {count} lines", file.path))
    };
    written(tree).filter_map(long).collect()
}

fn blanks(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, number, line) in lines(tree) {
        // The formatter of Go indents by tabs.
        if line.contains('\t') && !file.path.ends_with(".go") {
            found.push(Finding::new(&file.path, number, "a tab: use spaces"));
        }
        if line.ends_with([' ', '\t', '\r']) {
            found.push(Finding::new(
                &file.path,
                number,
                "a blank at the end of the line",
            ));
        }
    }
    for (file, text) in written(tree) {
        let count = text.lines().count();
        if !text.is_empty() && !text.ends_with('\n') {
            found.push(Finding::new(
                &file.path,
                count,
                "no newline at the end of the file",
            ));
        }
        if text.ends_with("\n\n") {
            found.push(Finding::new(
                &file.path,
                count,
                "empty lines at the end of the file",
            ));
        }
    }
    found
}

fn columns(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, number, line) in lines(tree).filter(|(file, ..)| file.path.ends_with(".rs")) {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            let message = format!("{columns} columns, at most {COLUMNS_MAX} are allowed");
            found.push(Finding::new(&file.path, number, message));
        }
    }
    found
}

fn markers(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, number, line) in lines(tree) {
        for marker in MARKERS {
            if find_word(line, marker).is_some() {
                let message = format!("{marker}: finish it, or leave it out");
                found.push(Finding::new(&file.path, number, message));
            }
        }
    }
    found
}

fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, number, line) in lines(tree) {
        for root in MACHINE_ROOTS {
            if has_path_root(line, root) {
                let message = format!(
                    "the path {root} of one machine: use a path relative to the workspace, or \
                     ask for a temporary directory"
                );
                found.push(Finding::new(&file.path, number, message));
            }
        }
    }
    found
}

/// Whether `line` holds an absolute path below `root`. The same letters inside of a longer path or
/// a word, as in `target/x` or `a/tmpfs`, are none.
fn has_path_root(line: &str, root: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_-.~/}*".contains(c);
    let is_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    line.match_indices(root).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + root.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_name)
    })
}

fn size(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.files {
        if file.len > BYTES_MAX && !file.path.starts_with(DATA) {
            let message = format!(
                "{} bytes: keep files over 1 MiB out of the repository",
                file.len
            );
            found.push(Finding::new(&file.path, 1, message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines_found as check;
    use super::*;

    #[test]
    fn a_file_has_at_most_800_lines() {
        assert!(check(length, "a.rs", &"x\n".repeat(800)).is_empty());
        assert_eq!(check(length, "a.rs", &"x\n".repeat(801)), [801]);
        assert_eq!(check(length, "docs/a.md", &"x\n".repeat(801)), [801]);
        assert!(check(length, "Cargo.lock", &"x\n".repeat(801)).is_empty());
        assert!(check(length, "examples/data/a.csv", &"x\n".repeat(801)).is_empty());
    }

    #[test]
    fn a_long_file_is_noted() {
        let notes = |lines| long_files(&Tree::of(&[("a.rs", &"x\n".repeat(lines))]));
        assert!(notes(400).is_empty());
        assert_eq!(notes(401), ["a.rs has 401 lines"]);
    }

    #[test]
    fn tabs_and_blanks_at_the_end_are_found() {
        assert!(check(blanks, "a.md", "a b\n\nc\n").is_empty());
        assert!(check(blanks, "a.md", "").is_empty());
        assert_eq!(check(blanks, "a.md", "a\n\tb\n"), [2]);
        assert!(check(blanks, "a.go", "a\n\tb\n").is_empty());
        assert_eq!(check(blanks, "a.md", "a \n"), [1]);
        assert_eq!(check(blanks, "a.md", "a\r\n"), [1]);
        assert_eq!(check(blanks, "a.md", "a\nb"), [2]);
        assert_eq!(check(blanks, "a.md", "a\n\n"), [2]);
    }

    #[test]
    fn long_lines_of_rust_are_found_in_comments_too() {
        assert!(check(columns, "a.rs", &"ä".repeat(100)).is_empty());
        assert_eq!(
            check(columns, "a.rs", &format!("\n// {}", "x".repeat(98))),
            [2]
        );
        assert!(check(columns, "a.md", &"x".repeat(101)).is_empty());
    }

    #[test]
    fn marks_of_unfinished_work_are_found_as_words() {
        for marker in MARKERS {
            assert_eq!(check(markers, "a.rs", &format!("\n// {marker}: x")), [2]);
            assert_eq!(check(markers, "a.md", marker), [1]);
            assert!(check(markers, "a.rs", &format!("{marker}S")).is_empty());
        }
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for root in MACHINE_ROOTS {
            assert_eq!(
                check(machine_paths, "a.md", &format!("see {root}/x/y")),
                [1]
            );
            assert_eq!(
                check(machine_paths, "a.rs", &format!("\nopen(\"{root}\")")),
                [2]
            );
            for fine in [
                format!("target{root}/x"),
                format!("{root}fs/x"),
                format!("https://example.org{root}/x"),
                format!("$HOME{root}/x"),
            ] {
                assert!(check(machine_paths, "a.md", &fine).is_empty(), "{fine}");
            }
        }
    }

    #[test]
    fn large_files_are_found_outside_of_the_data() {
        let text = "x".repeat((1 << 20) + 1);
        assert_eq!(check(size, "a.bin", &text), [1]);
        assert!(check(size, "a.bin", &text[1..]).is_empty());
        assert!(check(size, "examples/data/a.csv", &text).is_empty());
    }
}
