//! House rules that the compiler, rustfmt and clippy cannot express, checked over all files of the
//! workspace: `cargo xtask tidy`.
//!
//! A rule is a function from the [`Tree`] of files to [`Finding`]s, so that each rule's test can
//! give it a tree of a few lines that breaks it. The rules live in [`text`] (any text), [`book`]
//! (Markdown), [`rust`] (Rust sources), [`order`] (atomic orderings), [`imports`] (what files need
//! of each other) and [`manifest`] (Cargo's files and README.md); [`source`] tells code from
//! comments, strings and tests.
//!
//! Where a rule needs an exception, the exception stands in a table next to the rule, with its
//! reason; there is no way to switch a rule off from the place that breaks it.

mod book;
mod imports;
mod manifest;
mod order;
mod rust;
mod size;
mod source;
mod text;
mod tree;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

pub(crate) use size::run as size;
use tree::Tree;

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// Path of the file, relative to the workspace.
    path: String,
    /// Line number from 1.
    line: usize,
    /// What is wrong and what to do about it.
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// A named check of the whole tree.
struct Rule {
    name: &'static str,
    /// What holds where the rule is kept.
    says: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

const RULES: &[&[Rule]] = &[
    text::RULES,
    book::RULES,
    rust::RULES,
    order::RULES,
    imports::RULES,
    manifest::RULES,
];

/// Prints the name and the sentence of every rule.
pub(crate) fn list() {
    for rule in RULES.iter().copied().flatten() {
        println!("{:<14} {}", rule.name, rule.says);
    }
}

/// Checks the workspace at `root` and prints every finding to standard error.
pub(crate) fn run(root: &Path) -> ExitCode {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(why) => {
            eprintln!("xtask tidy: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut findings = 0;
    for rule in RULES.iter().copied().flatten() {
        let mut found = (rule.check)(&tree);
        found.sort();
        for finding in &found {
            eprintln!("{finding} [{}]", rule.name);
        }
        findings += found.len();
    }
    for note in text::long_files(&tree) {
        println!("note: {note}");
    }
    let files = tree.files.len();
    if findings == 0 {
        println!("tidy: {files} files keep the house rules");
        ExitCode::SUCCESS
    } else {
        eprintln!("tidy: {findings} findings in {files} files");
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line numbers that a rule finds in a tree of one file.
    pub(super) fn lines_found(
        rule: fn(&Tree) -> Vec<Finding>,
        path: &str,
        text: &str,
    ) -> Vec<usize> {
        let found = rule(&Tree::of(&[(path, text)]));
        assert!(found.iter().all(|finding| finding.path == path));
        found.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn rules_have_distinct_names() {
        let mut names: Vec<_> = RULES.iter().copied().flatten().map(|r| r.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_finding_reads_as_file_line_and_message() {
        let finding = Finding::new("a/b.rs", 7, "a tab");
        assert_eq!(finding.to_string(), "a/b.rs:7: a tab");
    }
}
