//! Golden persist traces: what each kind of operation does to the medium, as text that is checked
//! in, so that a further flush or fence shows in a diff.
//!
//! A line is a fence group: what is stored and flushed up to a fence, in its order, and the fence.
//!
//! ```text
//!   st A+8..24 B+0..64/8 | fl A B | nt C+0..256 | fence
//! ```
//!
//! | word | what |
//! |---|---|
//! | `st`, `nt` | stores through the cache, or past it |
//! | `A+8..24` | one store into bytes 8 to 23, counted from the beginning of line `A` |
//! | `B+0..64/8` | several stores of 8 bytes each, one behind the other |
//! | `fl` | the write-back of each line that is named |
//!
//! A group of more than [`COLUMNS`] columns goes on in lines that are further in. What is behind
//! the last fence of an operation is a group without one. Nothing is left out: two operations
//! have the same text only if they do the same steps in the same order.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::record::Run;
use super::subject::Subject;
use crate::pmem::trace::{LINE, TraceStep};

/// Columns that a line of the text has at most.
const COLUMNS: usize = 100;

impl<S: Subject> Run<S> {
    /// The stores, flushes and fences of each step after the setup, in their order. Offsets are
    /// counted in lines from the first line that a step touches, in the order of their first
    /// touch (`A`, `B`, ...), so that the text says nothing of where an allocation happened to lie.
    /// A step that does just what an earlier one of its kind did is left out.
    pub fn golden(&self) -> String {
        let mut text = String::new();
        let mut known = BTreeSet::new();
        let mut names = Names::default();
        let mut group = Vec::new();
        let mut body = String::new();
        let mut kind = "";
        let mut is_wanted = false;
        for event in self.trace.iter() {
            match event.step {
                TraceStep::Begin { op } => {
                    kind = self.names.get(op as usize).copied().unwrap_or("");
                    is_wanted = op as usize >= self.first();
                    names = Names::default();
                    group.clear();
                    body.clear();
                }
                TraceStep::End { .. } => {
                    write_group(&mut body, &group, false);
                    group.clear();
                    if is_wanted && known.insert((kind, body.clone())) {
                        let _ = write!(text, "{kind}\n{body}");
                    }
                }
                TraceStep::Store { offset, bytes } => {
                    group.push(names.mark("st", offset, bytes.len()))
                }
                TraceStep::NtStore { offset, bytes } => {
                    group.push(names.mark("nt", offset, bytes.len()));
                }
                TraceStep::Flush { offset } => group.push(names.mark("fl", offset, 0)),
                TraceStep::Fence => {
                    write_group(&mut body, &group, true);
                    group.clear();
                }
                TraceStep::Load { .. } => {}
            }
        }
        text
    }
}

/// A store or a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    what: &'static str,
    line: String,
    /// Where in the line a store begins.
    at: u64,
    /// Bytes that are stored.
    len: u64,
}

impl Mark {
    /// Whether `next` is a store of as many bytes right behind this one.
    fn is_followed_by(&self, next: &Mark) -> bool {
        let is_alike = self.line == next.line && self.len == next.len;
        self.what != "fl" && self.len > 0 && is_alike && self.at + self.len == next.at
    }
}

/// Appends a line to `body`: `group`, and a fence behind it if it `is_fenced`.
fn write_group(body: &mut String, group: &[Mark], is_fenced: bool) {
    let mut words = Vec::new();
    for marks in group.chunk_by(|mark, next| mark.what == next.what) {
        words.extend(["|".to_owned(), marks[0].what.to_owned()]);
        words.extend(marks.chunk_by(Mark::is_followed_by).map(word));
    }
    if is_fenced {
        words.extend(["|", "fence"].map(str::to_owned));
    }
    // Without the stroke before the first word.
    let mut columns = 0;
    for word in words.iter().skip(1) {
        let before = match columns {
            0 => "  ",
            _ if columns + 1 + word.len() > COLUMNS => "\n      ",
            _ => " ",
        };
        columns = match before.strip_prefix('\n') {
            Some(indent) => indent.len(),
            None => columns + before.len(),
        } + word.len();
        let _ = write!(body, "{before}{word}");
    }
    if columns > 0 {
        body.push('\n');
    }
}

/// Stores that follow each other, or one flush.
fn word(run: &[Mark]) -> String {
    let Mark {
        what,
        line,
        at,
        len,
    } = &run[0];
    let end = at + len * run.len() as u64;
    match (*what, run.len()) {
        ("fl", _) => line.clone(),
        (_, 1) => format!("{line}+{at}..{end}"),
        _ => format!("{line}+{at}..{end}/{len}"),
    }
}

/// Lines by the order in which they were first touched.
#[derive(Default)]
struct Names(Vec<u64>);

impl Names {
    fn line(&mut self, offset: u64) -> String {
        let line = offset / LINE;
        let known = self.0.iter().position(|known| *known == line);
        let number = known.unwrap_or_else(|| {
            self.0.push(line);
            self.0.len() - 1
        });
        let letter = char::from(b'A' + u8::try_from(number % 26).unwrap_or(0));
        if number < 26 {
            letter.to_string()
        } else {
            format!("{letter}{}", number / 26)
        }
    }

    fn mark(&mut self, what: &'static str, offset: u64, len: usize) -> Mark {
        Mark {
            what,
            line: self.line(offset),
            at: if what == "fl" { 0 } else { offset % LINE },
            len: len as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded::SeededRng;

    fn mark(what: &'static str, line: &str, at: u64, len: u64) -> Mark {
        Mark {
            what,
            line: line.into(),
            at,
            len,
        }
    }

    /// Reads one group back: the marks, and whether a fence follows.
    fn read(text: &str) -> (Vec<Mark>, bool) {
        let mut marks = Vec::new();
        let mut what = "";
        let mut is_fenced = false;
        for word in text.split_whitespace() {
            match word {
                "|" => {}
                "fence" => is_fenced = true,
                "st" => what = "st",
                "nt" => what = "nt",
                "fl" => what = "fl",
                line if what == "fl" => marks.push(mark("fl", line, 0, 0)),
                stores => {
                    let (line, range) = stores.split_once('+').unwrap();
                    let (range, each) = range.split_once('/').unwrap_or((range, ""));
                    let (at, end) = range.split_once("..").unwrap();
                    let [at, end]: [u64; 2] = [at, end].map(|number| number.parse().unwrap());
                    let each = each.parse().unwrap_or(end - at);
                    let count = (end - at).checked_div(each).unwrap_or(1);
                    marks.extend((0..count).map(|n| mark(what, line, at + n * each, each)));
                }
            }
        }
        (marks, is_fenced)
    }

    /// What cannot be read back would be a difference that no diff shows.
    #[test]
    fn a_group_says_all_that_is_done() {
        let mut random = SeededRng::new(1);
        let (mut runs, mut wrapped) = (0, 0);
        for _ in 0..2000 {
            let mut group: Vec<Mark> = Vec::new();
            for _ in 0..random.below(40) {
                let what = ["st", "st", "nt", "fl"][random.index(4)];
                let line = ["A", "B", "A1"][random.index(3)];
                let next = match group.last() {
                    Some(last) if last.what != "fl" && !random.one_in(3) => Mark {
                        at: last.at + last.len,
                        ..last.clone()
                    },
                    _ if what == "fl" => mark(what, line, 0, 0),
                    _ => mark(what, line, random.below(64), 4 * random.below(4)),
                };
                group.push(next);
            }
            let is_fenced = random.one_in(2);
            let mut text = String::new();
            write_group(&mut text, &group, is_fenced);
            assert_eq!(read(&text), (group, is_fenced), "{text}");
            assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
            runs += text.matches('/').count();
            wrapped += text.lines().count().saturating_sub(1);
        }
        assert!(runs > 1000 && wrapped > 1000);
    }
}
