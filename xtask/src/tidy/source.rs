//! Tells the code of a Rust source from its comments, its strings and its tests.
//!
//! Rules about code must not be misled by the word `unsafe` in a sentence or by a brace in a
//! string. This is no parser: a scanner of characters knows comments (nested ones too), strings
//! (raw ones too) and character literals, which is all that the rules need.

/// One line of a source, taken apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// The code, with the content of strings and characters left out.
    pub(super) code: String,
    /// The text of comments, with their slashes.
    pub(super) comment: String,
    /// Whether the line is compiled for tests only.
    pub(super) is_test: bool,
}

impl Line {
    /// Whether the code contains `word` as a whole identifier.
    pub(super) fn has_word(&self, word: &str) -> bool {
        find_word(&self.code, word).is_some()
    }
}

/// Position of `word` in `text` where no identifier character touches it on either side.
pub(super) fn find_word(text: &str, word: &str) -> Option<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .find(|&at| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

/// The lines of a Rust source.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) lines: Vec<Line>,
}

enum State {
    Code,
    LineComment,
    /// Inside of so many nested `/*`.
    BlockComment(u32),
    String,
    /// Inside of a raw string that so many `#` close.
    RawString(usize),
}

impl Source {
    pub(super) fn parse(text: &str) -> Source {
        let mut source = Source { lines: split(text) };
        source.mark_test_regions();
        source
    }

    /// Declares the whole file to be a test.
    pub(super) fn mark_all_as_tests(&mut self) {
        for line in &mut self.lines {
            line.is_test = true;
        }
    }

    /// Names of the modules in other files that this one declares under `#[cfg(test)]`.
    pub(super) fn test_modules(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (start, _) in self.test_attributes() {
            let code = self.code_from(start);
            let Some(end) = code.find(['{', ';']) else {
                continue;
            };
            if code[end..].starts_with(';')
                && let Some(at) = find_word(&code[..end], "mod")
            {
                names.push(code[at + "mod".len()..end].trim().to_owned());
            }
        }
        names
    }

    /// The code from line index `start` on, in one string with newlines.
    fn code_from(&self, start: usize) -> String {
        let code: Vec<&str> = self.lines[start..]
            .iter()
            .map(|l| l.code.as_str())
            .collect();
        code.join("\n")
    }

    /// All code in one string; the line index of an offset is the number of newlines before it.
    pub(super) fn code(&self) -> String {
        self.code_from(0)
    }

    /// Indices of the lines with an attribute that limits what follows to tests, and whether it is
    /// an inner attribute, for the whole file.
    fn test_attributes(&self) -> impl Iterator<Item = (usize, bool)> {
        self.lines.iter().enumerate().filter_map(|(index, line)| {
            let code: String = line.code.split_whitespace().collect();
            let is_inner = code.starts_with("#![");
            ["cfg(test)]", "cfg(all(test,"]
                .iter()
                .any(|pattern| code.contains(pattern))
                .then_some((index, is_inner))
        })
    }

    /// Index of the last line of the item that begins, maybe with attributes, at line index
    /// `start`: that of its closing brace or semicolon.
    pub(super) fn item_end(&self, start: usize) -> usize {
        let mut depth = 0_i32;
        for (index, line) in self.lines.iter().enumerate().skip(start) {
            for c in line.code.chars() {
                match c {
                    '{' | '(' | '[' => depth += 1,
                    '}' | ')' | ']' => depth -= 1,
                    _ => {}
                }
                if (c == '}' && depth <= 0) || (c == ';' && depth == 0) {
                    return index;
                }
            }
        }
        self.lines.len() - 1
    }

    /// Marks the items that follow `#[cfg(test)]`, up to their closing brace or semicolon.
    fn mark_test_regions(&mut self) {
        let attributes: Vec<_> = self.test_attributes().collect();
        for (start, is_inner) in attributes {
            if is_inner {
                self.mark_all_as_tests();
                return;
            }
            let end = self.item_end(start);
            for line in &mut self.lines[start..=end] {
                line.is_test = true;
            }
        }
    }
}

/// Splits a text into lines of code and comments.
fn split(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![Line::default()];
    let mut state = State::Code;
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        let next = chars.get(at + 1).copied();
        let line = lines.last_mut().expect("there is always a line");
        if c == '\n' {
            if matches!(state, State::LineComment) {
                state = State::Code;
            }
            lines.push(Line::default());
            at += 1;
            continue;
        }
        let mut step = 1;
        match &mut state {
            State::Code => match (c, next) {
                ('/', Some('/')) => {
                    state = State::LineComment;
                    step = 0;
                }
                ('/', Some('*')) => {
                    state = State::BlockComment(0);
                    step = 0;
                }
                ('"', _) => {
                    line.code.push('"');
                    state = State::String;
                }
                ('r', Some('"' | '#')) if starts_raw_string(&chars, at) => {
                    let hashes = count_hashes(&chars, at + 1);
                    line.code.push('"');
                    state = State::RawString(hashes);
                    step = hashes + 2;
                }
                ('\'', _) => {
                    line.code.push('\'');
                    step = char_literal_len(&chars, at).unwrap_or(1);
                }
                _ => line.code.push(c),
            },
            State::LineComment => line.comment.push(c),
            State::BlockComment(depth) => {
                line.comment.push(c);
                if c == '/' && next == Some('*') {
                    *depth += 1;
                    line.comment.push('*');
                    step = 2;
                } else if c == '*' && next == Some('/') {
                    *depth -= 1;
                    line.comment.push('/');
                    step = 2;
                    if *depth == 0 {
                        state = State::Code;
                    }
                }
            }
            State::String => {
                if c == '\\' && next != Some('\n') {
                    step = 2;
                } else if c == '"' {
                    line.code.push('"');
                    state = State::Code;
                }
            }
            State::RawString(hashes) => {
                if c == '"' && count_hashes(&chars, at + 1) >= *hashes {
                    line.code.push('"');
                    step = *hashes + 1;
                    state = State::Code;
                }
            }
        }
        at += step;
    }
    if text.ends_with('\n') {
        lines.pop();
    }
    lines
}

fn count_hashes(chars: &[char], from: usize) -> usize {
    chars[from..].iter().take_while(|&&c| c == '#').count()
}

/// Whether the `r` at `at` opens a raw string: no part of an identifier other than the prefix `br`
/// or `cr`, and followed by hashes and a quotation mark.
fn starts_raw_string(chars: &[char], at: usize) -> bool {
    let is_part = |c: &char| c.is_alphanumeric() || *c == '_';
    let mut before = chars[..at].iter().rev();
    let ok_before = match before.next() {
        Some('b' | 'c') => !before.next().is_some_and(is_part),
        Some(c) => !is_part(c),
        None => true,
    };
    ok_before && chars.get(at + 1 + count_hashes(chars, at + 1)) == Some(&'"')
}

/// Length in characters of the character literal at `at`, or `None` for a lifetime or a label.
fn char_literal_len(chars: &[char], at: usize) -> Option<usize> {
    match chars.get(at + 1)? {
        '\\' => {
            // The escaped character may be a quotation mark itself, so look from the one after it.
            let rest = chars.get(at + 3..)?;
            Some(rest.iter().position(|&c| c == '\'')? + 4)
        }
        _ => (chars.get(at + 2) == Some(&'\'')).then_some(3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::parse(text).code()
    }

    #[test]
    fn comments_and_the_content_of_strings_are_no_code() {
        assert_eq!(code("a(); // b\nc();"), "a(); \nc();");
        assert_eq!(code("a /* b /* c */ d */ e"), "a  e");
        assert_eq!(code("f(\"x // y \\\" z\", 1)"), "f(\"\", 1)");
        assert_eq!(code("f(r#\"x \" y\"#, br\"z\", 1)"), "f(\"\", b\"\", 1)");
        assert_eq!(code("\"one \\\n two\" + x"), "\"\n\" + x");
        assert_eq!(code("r#type + for_r"), "r#type + for_r");
    }

    #[test]
    fn lifetimes_are_told_from_characters() {
        assert_eq!(
            code("f::<'a>('\"', '\\'', 'x', b'{')"),
            "f::<'a>(', ', ', b')"
        );
        assert_eq!(code("'\\u{7F}' 'outer: loop {"), "' 'outer: loop {");
    }

    #[test]
    fn comments_are_kept_apart_line_by_line() {
        let source = Source::parse("a(); // one\n/* two\nthree */ b();\n");
        let comments: Vec<_> = source.lines.iter().map(|l| l.comment.as_str()).collect();
        assert_eq!(comments, ["// one", "/* two", "three */"]);
    }

    #[test]
    fn a_semicolon_in_a_signature_does_not_end_an_item() {
        let source = Source::parse("#[cfg(test)]\nfn a(x: [u8; 4])\n{\n}\nfn b() {}\n");
        let is_test: Vec<_> = source.lines.iter().map(|l| l.is_test).collect();
        assert_eq!(is_test, [true, true, true, true, false]);
    }

    #[test]
    fn an_item_for_tests_ends_at_its_closing_brace() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { '}'; }\n}\nfn c() {}\n";
        let source = Source::parse(text);
        let is_test: Vec<_> = source.lines.iter().map(|l| l.is_test).collect();
        assert_eq!(is_test, [false, true, true, true, true, false]);
    }

    #[test]
    fn an_inner_attribute_makes_the_whole_file_a_test() {
        let source = Source::parse("//! x\n#![cfg(test)]\nfn a() {}\n");
        assert!(source.lines.iter().all(|line| line.is_test));
    }

    #[test]
    fn modules_in_other_files_are_named() {
        let source = Source::parse("#[cfg(test)]\nmod a;\n#[cfg(test)]\nmod b {}\nmod c;\n");
        assert_eq!(source.test_modules(), ["a"]);
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(find_word("an unsafe_code unsafe {", "unsafe"), Some(15));
        assert_eq!(find_word("unsafely", "unsafe"), None);
    }
}
