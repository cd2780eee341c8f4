//! Golden persist traces: what each kind of operation does to the medium, as text that is checked
//! in, so that a further flush or fence shows in a diff.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::record::Run;
use super::subject::Subject;
use crate::pmem::trace::{LINE, Step};

impl<S: Subject> Run<S> {
    /// The stores, flushes and fences of each step after the setup, in their order. Offsets are
    /// counted in lines from the first line that a step touches, in the order of their first
    /// touch (`A`, `B`, ...), so that the text says nothing of where an allocation happened to lie.
    /// A step that does just what an earlier one of its kind did is left out.
    pub fn golden(&self) -> String {
        let mut text = String::new();
        let mut known = BTreeSet::new();
        let mut names = Names::default();
        let mut body = String::new();
        let mut kind = "";
        let mut is_wanted = false;
        for event in self.trace.iter() {
            match event.step {
                Step::Begin { op } => {
                    kind = self.names.get(op as usize).copied().unwrap_or("");
                    is_wanted = op as usize >= self.first();
                    names = Names::default();
                    body.clear();
                }
                Step::End { .. } => {
                    if is_wanted && known.insert((kind, body.clone())) {
                        let _ = write!(text, "{kind}\n{body}\n");
                    }
                }
                Step::Store { offset, bytes } => names.store(&mut body, "store", offset, bytes),
                Step::NtStore { offset, bytes } => {
                    names.store(&mut body, "ntstore", offset, bytes);
                }
                Step::Flush { offset } => {
                    let _ = writeln!(body, "  flush   {}", names.line(offset));
                }
                Step::Fence => body.push_str("  fence\n"),
                Step::Load { .. } => {}
            }
        }
        text
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

    fn store(&mut self, body: &mut String, what: &str, offset: u64, bytes: &[u8]) {
        let (line, at, len) = (self.line(offset), offset % LINE, bytes.len());
        let _ = writeln!(body, "  {what:<7} {line}+{at} {len} B");
    }
}
