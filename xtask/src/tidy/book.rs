//! Rules for the book and for Markdown: what `docs/SUMMARY.md` lists, where links lead, how long a
//! page is, and that README.md's picture shows what its table says.

use super::tree::{File, Tree};
use super::{Finding, Rule};
use crate::picture::{self, PICTURE, TABLE};

/// The list of the book's pages.
const SUMMARY: &str = "docs/SUMMARY.md";

/// The folder of the book's pages.
const DOCS: &str = "docs/";

/// A page of more words is not read: say less, or make it two pages.
const WORDS_MAX: usize = 2000;

/// Pages that may be longer, and the reasons.
const WORDS_EXCEPTIONS: &[(&str, &str)] = &[
    (
        "docs/format.md",
        "a reference: all of it is needed to read a file",
    ),
    ("docs/results/equals.md", "the lab writes its tables"),
];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "book",
        says: "docs/SUMMARY.md lists each page below docs once, and nothing else",
        check: book,
    },
    Rule {
        name: "links",
        says: "links of Markdown files lead to files and headings that are there",
        check: links,
    },
    Rule {
        name: "pages",
        says: "links of the book's pages lead to Markdown of the book only",
        check: within,
    },
    Rule {
        name: "words",
        says: "no page below docs has more than 2,000 words",
        check: long_pages,
    },
    Rule {
        name: "picture",
        says: "docs/bytes-written.svg is what `cargo xtask picture` draws",
        check: pictures,
    },
];

/// The Markdown files with their texts.
fn pages(tree: &Tree) -> impl Iterator<Item = (&File, &str)> {
    tree.texts().filter(|(file, _)| file.path.ends_with(".md"))
}

/// The lines of a Markdown text that are no code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// The targets of the links of a Markdown text within the workspace, with their lines: a path, and
/// a heading or nothing.
fn targets(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    prose(text).flat_map(|(number, line)| {
        let links = line.split("](").skip(1);
        let links = links.filter_map(|rest| rest.split_once(')'));
        links
            .filter(|(target, _)| !target.contains(':'))
            .map(move |(target, _)| {
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                (number, path, heading)
            })
    })
}

/// The path in the workspace of a path that stands in a file; the file's own if it is empty.
fn resolve(file: &str, path: &str) -> String {
    if path.is_empty() {
        return file.to_owned();
    }
    let mut parts: Vec<_> = file.split('/').collect();
    parts.pop();
    for part in path.split('/').filter(|part| *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// What a link calls a heading by.
fn anchor(heading: &str) -> String {
    let letters = heading.trim_start_matches('#').trim().chars();
    letters
        .filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ => letter.is_alphanumeric().then_some(letter),
        })
        .flat_map(char::to_lowercase)
        .collect()
}

fn has_heading(text: &str, wanted: &str) -> bool {
    let mut headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    headings.any(|(_, line)| anchor(line) == wanted)
}

fn book(tree: &Tree) -> Vec<Finding> {
    let Some((_, summary)) = pages(tree).find(|(file, _)| file.path == SUMMARY) else {
        return vec![Finding::new(SUMMARY, 1, "there is no list of the pages")];
    };
    let listed: Vec<_> = targets(summary)
        .map(|(line, path, _)| (line, resolve(SUMMARY, path)))
        .collect();
    let is_page = |path: &str| path.starts_with(DOCS) && path != SUMMARY;
    let mut found = Vec::new();
    for (file, _) in pages(tree).filter(|(file, _)| is_page(&file.path)) {
        let count = listed.iter().filter(|(_, path)| *path == file.path).count();
        if count != 1 {
            let message = format!("{SUMMARY} lists this page {count} times");
            found.push(Finding::new(&file.path, 1, message));
        }
    }
    for (line, path) in listed.iter().filter(|(_, path)| !is_page(path)) {
        found.push(Finding::new(
            SUMMARY,
            *line,
            format!("{path} is not a page"),
        ));
    }
    found
}

fn links(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, text) in pages(tree) {
        for (line, path, heading) in targets(text) {
            let target = resolve(&file.path, path);
            let target = target.trim_end_matches('/');
            let inside = format!("{target}/");
            let there = |other: &&File| other.path == target || other.path.starts_with(&inside);
            let message = match tree.files.iter().find(there) {
                None => format!("the link leads to {target}, which is not there"),
                Some(other) => match &other.text {
                    Some(text) if !heading.is_empty() && !has_heading(text, heading) => {
                        format!("the link leads to #{heading}, which is not a heading of {target}")
                    }
                    _ => continue,
                },
            };
            found.push(Finding::new(&file.path, line, message));
        }
    }
    found
}

/// Links to Markdown that is no page: mdBook makes them lead to HTML, which only pages have.
fn within(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, text) in pages(tree).filter(|(file, _)| file.path.starts_with(DOCS)) {
        for (line, path, _) in targets(text) {
            let target = resolve(&file.path, path);
            if target.ends_with(".md") && !target.starts_with(DOCS) {
                let message = format!("{target} is not a page of the book; name it without a link");
                found.push(Finding::new(&file.path, line, message));
            }
        }
    }
    found
}

/// How many words a Markdown text has: what blanks enclose and has a letter or a digit, code
/// included, so that the bars of tables do not count.
pub(super) fn words(text: &str) -> usize {
    let words = text.split_whitespace();
    words
        .filter(|word| word.contains(char::is_alphanumeric))
        .count()
}

/// The words of all Markdown of the tree.
pub(super) fn all_words(tree: &Tree) -> usize {
    pages(tree).map(|(_, text)| words(text)).sum()
}

fn long_pages(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, text) in pages(tree).filter(|(file, _)| file.path.starts_with(DOCS)) {
        let count = words(text);
        let is_exception = WORDS_EXCEPTIONS.iter().any(|(path, _)| *path == file.path);
        if count > WORDS_MAX && !is_exception {
            let message = format!("{count} words, at most {WORDS_MAX} are allowed: say less");
            found.push(Finding::new(&file.path, 1, message));
        }
    }
    found
}

fn pictures(tree: &Tree) -> Vec<Finding> {
    let text = |path| {
        let mut texts = tree.texts().filter(|(file, _)| file.path == path);
        texts.next().map_or("", |(_, text)| text)
    };
    match picture::draw(text(TABLE)) {
        Err(why) => vec![Finding::new(TABLE, 1, why)],
        Ok(drawn) if drawn == text(PICTURE) => Vec::new(),
        Ok(_) => vec![Finding::new(
            PICTURE,
            1,
            "run `cargo xtask picture > docs/bytes-written.svg`",
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths and lines of what a rule finds.
    fn found(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let found = rule(&Tree::of(files)).into_iter();
        found.map(|finding| (finding.path, finding.line)).collect()
    }

    #[test]
    fn the_summary_lists_each_page_once() {
        let a = ("docs/a.md", "# A\n");
        let b = ("docs/x/b.md", "# B\n");
        let c = ("C.md", "# C\n");
        let of = |summary| found(book, &[a, b, c, (SUMMARY, summary)]);
        assert!(of("- [A](a.md)\n  - [B](x/b.md)\n").is_empty());
        assert_eq!(of("- [A](a.md)\n"), [(b.0.to_owned(), 1)]);
        let twice = of("- [A](a.md)\n- [B](x/b.md)\n- [A](a.md)\n");
        assert_eq!(twice, [(a.0.to_owned(), 1)]);
        let more = of("- [A](a.md)\n- [B](x/b.md)\n- [C](../C.md)\n");
        assert_eq!(more, [(SUMMARY.to_owned(), 3)]);
        assert_eq!(found(book, &[a]), [(SUMMARY.to_owned(), 1)]);
    }

    #[test]
    fn links_lead_to_what_is_there() {
        let b = ("docs/x/b.md", "# The `b`, once\n```sh\n# no heading\n```\n");
        let of = |text| found(links, &[b, ("docs/a.md", text), ("src/c.rs", "")]);
        let fine =
            "[b](x/b.md) [c](../src/c.rs)\n[d](../src) [e](https://x.org/b.md)\n[f](#a)\n\n# A\n";
        assert!(of(fine).is_empty());
        assert!(of("[b](x/b.md#the-b-once)\n").is_empty());
        let line = |line| [("docs/a.md".to_owned(), line)];
        assert_eq!(of("\n[b](b.md)\n"), line(2));
        assert_eq!(of("[b](x/b.md), [b](./b.md)\n"), line(1));
        assert_eq!(of("[b](x/b.md#no-heading)\n"), line(1));
        assert_eq!(of("[b](#b)\n"), line(1));
        assert!(of("```text\n[b](b.md)\n```\n").is_empty());
    }

    #[test]
    fn pages_link_to_no_other_markdown() {
        let readme = ("R.md", "[a](docs/x/a.md)\n");
        let of = |text| found(within, &[("docs/x/a.md", text), readme]);
        assert!(of("[b](../b.md) [c](../../src/c.rs) [d](#d) [e](https://x.org/b.md)").is_empty());
        assert_eq!(of("\n[r](../../R.md)\n"), [("docs/x/a.md".to_owned(), 2)]);
        assert_eq!(of("[r](../../R.md#r)\n"), [("docs/x/a.md".to_owned(), 1)]);
    }
    #[test]
    fn pages_have_a_limit_of_words() {
        assert_eq!(
            words("| a | b-c |\n|---|---|\n\n# D\n```sh\ne --f\n```\n"),
            6
        );
        let of = |path, count| found(long_pages, &[(path, &"word ".repeat(count))]);
        assert!(of("docs/a.md", WORDS_MAX).is_empty());
        assert_eq!(
            of("docs/a.md", WORDS_MAX + 1),
            [("docs/a.md".to_owned(), 1)]
        );
        assert!(of("A.md", WORDS_MAX + 1).is_empty());
        for (path, _) in WORDS_EXCEPTIONS {
            assert!(of(path, WORDS_MAX + 1).is_empty());
        }
    }

    #[test]
    fn the_picture_shows_the_table() {
        let table =
            "## Bytes written for each byte put\n\n| a | b | |\n|---|---|---|\n| c | 1 | |\n";
        let drawn = picture::draw(table).unwrap();
        assert!(found(pictures, &[(TABLE, table), (PICTURE, &drawn)]).is_empty());
        let stale = drawn.replace(">1<", ">2<");
        assert_eq!(
            found(pictures, &[(TABLE, table), (PICTURE, &stale)]),
            [(PICTURE.to_owned(), 1)]
        );
        assert_eq!(
            found(pictures, &[(TABLE, table)]),
            [(PICTURE.to_owned(), 1)]
        );
        assert_eq!(
            found(pictures, &[(PICTURE, &drawn)]),
            [(TABLE.to_owned(), 1)]
        );
    }
}
