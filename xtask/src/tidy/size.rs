//! How large the workspace is: `cargo xtask size`.
//!
//! Counts lines of Rust that have code, and not those that are blank or hold comments only, so that
//! explaining something does not make it larger. Tests are what the rules take for tests. Words of
//! Markdown are counted as the rule on long pages counts them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use super::book;
use super::imports;
use super::source::{Line, Source};
use super::tree::{File, Tree};

/// How many of the longest files and functions are named.
const LONGEST: usize = 8;

/// What one package is made of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Package {
    files: usize,
    code: usize,
    tests: usize,
    comments: usize,
}

/// The crates outside of the workspace that its default members are built with.
#[derive(Debug, PartialEq, Eq)]
struct Dependencies {
    /// Those that a member names.
    direct: usize,
    all: usize,
    /// The longest chain from a member to one of them.
    depth: usize,
}

/// Prints the sizes of the workspace at `root`.
pub(crate) fn run(root: &Path) -> ExitCode {
    match Tree::read(root) {
        Ok(tree) => {
            print!("{}", report(&tree));
            match dependencies(root) {
                Ok(found) => println!(
                    "\ncrates of others in the default members: {} named, {} in all, {} deep",
                    found.direct, found.all, found.depth
                ),
                Err(why) => println!("\ncrates of others: unknown, {why}"),
            }
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn report(tree: &Tree) -> String {
    let mut packages: BTreeMap<&str, Package> = BTreeMap::new();
    let mut functions = Vec::new();
    let mut files = Vec::new();
    for (file, source) in tree.sources() {
        let package = packages.entry(package_of(&file.path)).or_default();
        package.add(source);
        files.push((source.lines.len(), file.path.clone()));
        functions.extend(functions_of(file, source));
    }
    let mut total = Package::default();
    let mut text = String::new();
    row(&mut text, "package", ["files", "code", "tests", "comments"]);
    for (name, package) in &packages {
        row(
            &mut text,
            name,
            package.columns().map(|count| count.to_string()),
        );
        total.merge(package);
    }
    row(
        &mut text,
        "all",
        total.columns().map(|count| count.to_string()),
    );
    longest(&mut text, "files, in lines", files);
    longest(&mut text, "functions without tests, in lines", functions);
    longest(
        &mut text,
        "circles of imports, in files",
        imports::sizes(tree),
    );
    let _ = writeln!(text, "\nwords of Markdown: {}", book::all_words(tree));
    text
}

fn row(text: &mut String, name: &str, columns: [impl AsRef<str>; 4]) {
    let _ = write!(text, "{name:24}");
    for column in columns {
        let _ = write!(text, "{:>10}", column.as_ref());
    }
    text.push('\n');
}

/// Adds the longest of what is named, longest first.
fn longest(text: &mut String, what: &str, mut named: Vec<(usize, String)>) {
    named.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let _ = writeln!(text, "\nlongest {what}");
    for (lines, name) in named.iter().take(LONGEST) {
        let _ = writeln!(text, "{lines:>6}  {name}");
    }
}

impl Package {
    fn add(&mut self, source: &Source) {
        self.files += 1;
        for line in &source.lines {
            match line {
                _ if is_blank(&line.code) => self.comments += usize::from(!is_blank(&line.comment)),
                Line { is_test: true, .. } => self.tests += 1,
                _ => self.code += 1,
            }
        }
    }

    fn merge(&mut self, other: &Package) {
        self.files += other.files;
        self.code += other.code;
        self.tests += other.tests;
        self.comments += other.comments;
    }

    fn columns(&self) -> [usize; 4] {
        [self.files, self.code, self.tests, self.comments]
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// The package that a source belongs to: a directory of `crates`, or one of the workspace itself.
fn package_of(path: &str) -> &str {
    let inner = path.strip_prefix("crates/").unwrap_or(path);
    inner.split_once('/').map_or(path, |(package, _)| package)
}

/// The functions of a file that are no tests, with their lines and places.
fn functions_of(file: &File, source: &Source) -> Vec<(usize, String)> {
    let mut functions = Vec::new();
    for (index, line) in source.lines.iter().enumerate() {
        let Some(name) = function_of(&line.code).filter(|_| !line.is_test) else {
            continue;
        };
        let end = source.item_end(index);
        // A declaration has no body, and one line or two.
        if source.lines[end].code.contains('}') {
            let place = format!("{name}, {}:{}", file.path, index + 1);
            functions.push((end - index + 1, place));
        }
    }
    functions
}

/// The name of the function that a line begins to define.
fn function_of(code: &str) -> Option<&str> {
    let mut words = code.split_whitespace().skip_while(|word| {
        let is_before = ["const", "async", "unsafe", "extern", "\"\""].contains(word);
        is_before || word.starts_with("pub") || *word == "in" || word.ends_with(')')
    });
    (words.next() == Some("fn")).then_some(())?;
    let name = words.next()?;
    name.split(['(', '<']).next()
}

/// Asks cargo for what the default members need, without what they need for tests or builds.
fn dependencies(root: &Path) -> Result<Dependencies, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["tree", "--locked", "--edges", "normal"])
        .args(["--prefix", "depth", "--no-dedupe", "--format", " {p}"])
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    match output.status.success() {
        true => Ok(count_dependencies(&String::from_utf8_lossy(&output.stdout))),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Counts what `cargo tree` tells: depth, name, version, and a path where the crate is a member.
fn count_dependencies(tree: &str) -> Dependencies {
    let (mut direct, mut all) = (BTreeSet::new(), BTreeSet::new());
    // The depth of the member that the lines are below.
    let mut member = 0;
    let mut deepest = 0;
    for line in tree.lines() {
        let Some((depth, name)) = line.split_once(' ') else {
            continue;
        };
        let Ok(depth) = depth.parse::<usize>() else {
            continue;
        };
        if name.contains("(/") {
            member = depth;
            continue;
        }
        // Below a member of depth 2, what has depth 2 is beside it, and belongs to what is above.
        member = member.min(depth - 1);
        if depth == member + 1 {
            direct.insert(name);
        }
        all.insert(name);
        deepest = deepest.max(depth - member);
    }
    Dependencies {
        direct: direct.len(),
        all: all.len(),
        depth: deepest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_tests_and_comments_are_told_apart() {
        let text = "//! Essay.\n\nfn one() {\n    // Why.\n    two(); // Beside code.\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn three() {}\n}\n";
        let tree = Tree::of(&[
            ("crates/some/src/lib.rs", text),
            ("crates/some/tests/it.rs", "fn four() {}\n"),
            ("xtask/src/main.rs", "fn main() {}\n"),
            ("README.md", "no source\n"),
        ]);
        let report = report(&tree);
        assert!(report.ends_with("\nwords of Markdown: 2\n"), "{report}");
        let columns = |name: &str| -> Vec<&str> {
            let row = report.lines().find(|line| line.starts_with(name));
            row.expect(name).split_whitespace().skip(1).collect()
        };
        assert_eq!(columns("some"), ["2", "3", "5", "2"]);
        assert_eq!(columns("xtask"), ["1", "1", "0", "0"]);
        assert_eq!(columns("all"), ["3", "4", "5", "2"]);
        assert!(
            report.contains("     4  one, crates/some/src/lib.rs:3\n"),
            "{report}"
        );
        assert!(
            !report.contains("three") && !report.contains("four"),
            "{report}"
        );
        assert!(
            report.contains("    10  crates/some/src/lib.rs\n"),
            "{report}"
        );
    }

    #[test]
    fn a_line_that_begins_a_function_is_known_by_its_words() {
        assert_eq!(function_of("fn one() {"), Some("one"));
        assert_eq!(
            function_of("    pub(crate) const fn two<T>(t: T)"),
            Some("two")
        );
        assert_eq!(
            function_of("    pub(in super::super) unsafe fn three("),
            Some("three")
        );
        assert_eq!(function_of("    let call: fn() = f;"), None);
        assert_eq!(function_of("    call(|x| fn_of(x))"), None);
    }

    #[test]
    fn crates_are_counted_once_and_members_not_at_all() {
        let tree = "0 cli v1 (/w/cli)\n1 lib v1 (/w/lib)\n2 a v1\n3 b v1\n1 a v1\n2 b v1\n\
                    1 c v2\n2 d v1\n3 b v1\n4 e v1\n\n0 lib v1 (/w/lib)\n1 a v1\n2 b v1\n";
        let expected = Dependencies {
            direct: 2,
            all: 5,
            depth: 4,
        };
        assert_eq!(count_dependencies(tree), expected);
    }
}
