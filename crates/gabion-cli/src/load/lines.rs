//! Files of one record per line: JSON lines and dumps.

use std::fmt;
use std::io;

use gabion::text::bytes_text;
use memchr::memchr;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::input::{Input, Place, Record, Text};
use crate::dump;
use crate::failure::Failure;

/// The longest line with a JSON object: as long as the longest value, which it may become.
const JSON_BYTES_MAX: usize = 1 << 30;
/// The longest line of a dump: the longest pair, with four bytes for each of its bytes.
const DUMP_BYTES_MAX: usize = (1 << 32) + (1 << 20);
/// The field that is the key unless the command says otherwise.
const KEY_FIELD: &str = "key";

/// Lines with their places.
struct Lines<'a> {
    input: &'a Input,
    text: Text,
    /// The line that comes next, counted from 1.
    number: u64,
    line: Vec<u8>,
    /// Bytes that a line may have.
    bytes_max: usize,
}

impl<'a> Lines<'a> {
    fn open(input: &'a Input, text: Text, bytes_max: usize) -> Lines<'a> {
        Lines {
            input,
            text,
            number: 1,
            line: Vec::new(),
            bytes_max,
        }
    }

    /// Goes on to a place that an earlier load came to.
    fn go_on(&mut self, place: Place) -> Result<(), Failure> {
        let gone = self.text.skip_to(place.offset);
        gone.map_err(|error| self.input.unreadable(place.line, &error))?;
        self.number = place.line;
        Ok(())
    }

    /// A sentence about the line read last.
    fn wrong(&self, what: &str) -> Failure {
        self.input.wrong((self.number - 1).max(1), what)
    }

    /// The byte that comes next; `None` at the end of the file.
    fn peek(&mut self) -> Result<Option<u8>, Failure> {
        match self.text.fill() {
            Ok(bytes) => Ok(bytes.first().copied()),
            Err(error) => Err(self.input.unreadable(self.number, &error)),
        }
    }

    /// Reads the next line into `self.line`, with its end if it has one; `false` at the end of the
    /// file.
    fn advance(&mut self) -> Result<bool, Failure> {
        self.line.clear();
        let read = self.read_line();
        read.map_err(|error| self.input.unreadable(self.number, &error))?;
        if self.line.is_empty() {
            return Ok(false);
        }
        self.number += 1;
        if self.content().len() > self.bytes_max {
            let most = bytes_text(self.bytes_max as u64);
            return Err(self.wrong(&format!(
                "the line is longer than {most}, the limit for this format"
            )));
        }
        Ok(true)
    }

    /// The line read last, without its end.
    fn content(&self) -> &[u8] {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    fn read_line(&mut self) -> io::Result<()> {
        while self.line.last() != Some(&b'\n') {
            let bytes = self.text.fill()?;
            let count = memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1);
            if count == 0 {
                break;
            }
            self.line.extend_from_slice(&bytes[..count]);
            self.text.consume(count)?;
            if self.content().len() > self.bytes_max {
                break;
            }
        }
        Ok(())
    }
}

/// Records from JSON lines.
pub(super) struct JsonLines<'a> {
    lines: Lines<'a>,
    key: Option<String>,
    value: Option<String>,
}

impl<'a> JsonLines<'a> {
    /// The records of a text, whose keys are in the field `key`.
    pub(super) fn open(
        input: &'a Input,
        text: Text,
        key: Option<String>,
        value: Option<String>,
    ) -> JsonLines<'a> {
        JsonLines {
            lines: Lines::open(input, text, JSON_BYTES_MAX),
            key,
            value,
        }
    }

    pub(super) fn text(&self) -> &Text {
        &self.lines.text
    }

    /// The text, and the line that comes next.
    pub(super) fn position(&mut self) -> (&mut Text, u64) {
        (&mut self.lines.text, self.lines.number)
    }

    /// The line that comes next.
    pub(super) fn line_behind(&self) -> u64 {
        self.lines.number
    }

    /// Goes on to a place that an earlier load came to.
    pub(super) fn go_on(&mut self, place: Place) -> Result<(), Failure> {
        self.lines.go_on(place)
    }

    /// Reads the next record; `false` at the end.
    pub(super) fn next(&mut self, record: &mut Record) -> Result<bool, Failure> {
        while self.lines.advance()? {
            let text = self.lines.content();
            if !text.trim_ascii().is_empty() {
                fill(record, text, self.key.as_deref(), self.value.as_deref())
                    .map_err(|what| self.lines.wrong(&what))?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Makes a record of a line that holds a JSON object.
fn fill(
    record: &mut Record,
    text: &[u8],
    key: Option<&str>,
    value: Option<&str>,
) -> Result<(), String> {
    let text = std::str::from_utf8(text).map_err(|error| {
        format!(
            "column {} is not UTF-8 text; convert the file, for instance with iconv",
            error.valid_up_to() + 1
        )
    })?;
    let mut json = serde_json::Deserializer::from_str(text);
    let fields = (&mut json).deserialize_map(FieldsVisitor);
    let fields = fields
        .and_then(|fields| json.end().map(|()| fields))
        .map_err(|error| {
            let problem = problem(&error, true);
            match error.is_eof() {
                true => format!("the line is cut off: {problem}"),
                false => format!("the line is not a JSON object: {problem}"),
            }
        })?;
    // What is there twice says two things, of which one would be lost.
    let named = |name: &str| {
        let mut found = fields.iter().filter(|(field, _)| field == name);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(format!("the object has the field {name:?} twice")),
            (found, None) => Ok(found.map(|(_, value)| *value)),
        }
    };
    let missing = |name: &str| format!("the object has no field {name:?}");
    let key = match key {
        Some(name) => named(name)?.ok_or_else(|| missing(name))?,
        None => {
            let first = fields.first().map(|(name, _)| name.as_str());
            let first =
                first.ok_or("the object has no field that can be the key; name one with --key")?;
            let key = named(KEY_FIELD)?;
            key.or(named(first)?).ok_or_else(|| missing(first))?
        }
    };
    record.key.clear();
    record
        .key
        .extend_from_slice(plain(key).as_deref().map_err(Clone::clone)?.as_bytes());
    record.value.clear();
    match value {
        None => record.value.extend_from_slice(text.as_bytes()),
        Some(name) => {
            let value = named(name)?.ok_or_else(|| missing(name))?;
            match plain(value) {
                Ok(value) => record.value.extend_from_slice(value.as_bytes()),
                Err(_) => record.value.extend_from_slice(value.get().as_bytes()),
            }
        }
    }
    Ok(())
}

/// What the parser says, which knows of one line only: with the column if that is the line's.
fn problem(error: &serde_json::Error, is_of_line: bool) -> String {
    let said = error.to_string();
    match said.rsplit_once(" at line ") {
        Some((what, _)) if is_of_line => format!("{what} at column {}", error.column()),
        Some((what, _)) => what.to_owned(),
        None => said,
    }
}

/// A string without quotes and escapes, or a number or truth value as it stands in the file.
fn plain(value: &RawValue) -> Result<String, String> {
    match value.get() {
        text if text.starts_with('"') => serde_json::from_str(text).map_err(|error| {
            let problem = problem(&error, false);
            format!("{text} is not a string that can be stored: {problem}")
        }),
        text if text.starts_with(['{', '[']) || text == "null" => {
            Err("the key must be a string or a number".to_owned())
        }
        text => Ok(text.to_owned()),
    }
}

/// Collects the fields of an object in the order of the file, their values as they stand there.
struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object such as {\"key\": \"a\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(fields)
    }
}

/// Records from a dump.
pub(super) struct DumpLines<'a> {
    lines: Lines<'a>,
    /// Records that came before the line that comes next.
    records: u64,
}

impl<'a> DumpLines<'a> {
    /// The records of a text.
    pub(super) fn open(input: &'a Input, text: Text) -> Result<DumpLines<'a>, Failure> {
        let mut lines = Lines::open(input, text, DUMP_BYTES_MAX);
        let is_there = lines.advance()?;
        let first = lines.line.strip_suffix(b"\n");
        if first != Some(dump::FIRST_LINE.as_bytes()) {
            let version = dump::FIRST_LINE;
            return Err(lines.wrong(&match is_there {
                true if lines.line.starts_with(dump::NAME.as_bytes()) => format!(
                    "the dump has a version that this program does not read, or is damaged; the \
                     first line must be {version}"
                ),
                true => format!("the file is not a dump; the first line of a dump is {version}"),
                false => "the dump is cut off: it is empty".to_owned(),
            }));
        }
        Ok(DumpLines { lines, records: 0 })
    }

    pub(super) fn text(&self) -> &Text {
        &self.lines.text
    }

    /// The text, and the line that comes next.
    pub(super) fn position(&mut self) -> (&mut Text, u64) {
        (&mut self.lines.text, self.lines.number)
    }

    /// The line that comes next.
    pub(super) fn line_behind(&self) -> u64 {
        self.lines.number
    }

    /// Goes on to a place that an earlier load came to, after that many records.
    pub(super) fn go_on(&mut self, place: Place, records: u64) -> Result<(), Failure> {
        self.records = records;
        self.lines.go_on(place)
    }

    /// Reads the next record; `false` at the end, if the dump is whole.
    pub(super) fn next(&mut self, record: &mut Record) -> Result<bool, Failure> {
        let next = self.lines.peek()?;
        let checksum = match next {
            Some(dump::MARK) => Some(self.lines.text.checksum()),
            _ => None,
        };
        if !self.lines.advance()? {
            let number = self.lines.number;
            let what = "the dump is cut off: the last line is missing";
            return Err(self.lines.input.wrong(number, what));
        }
        let line = self.lines.line.strip_suffix(b"\n");
        if let Some(checksum) = checksum {
            return self.end(checksum);
        }
        let Some(line) = line else {
            return Err(self.lines.wrong("the dump is cut off within this line"));
        };
        record.key.clear();
        record.value.clear();
        record.expires = dump::read_record(line, &mut record.key, &mut record.value)
            .map_err(|what| self.lines.wrong(&format!("the dump is damaged: {what}")))?;
        self.records += 1;
        Ok(true)
    }

    /// Holds the line read last, before which the text has that checksum, against the last line of
    /// a dump with these records, behind which there is nothing.
    fn end(&mut self, checksum: u64) -> Result<bool, Failure> {
        let last_line = dump::last_line(self.records, checksum);
        let line = self.lines.line.trim_ascii_end();
        if line != last_line.as_bytes() {
            return Err(self
                .lines
                .wrong(&match last_line.as_bytes().starts_with(line) {
                    true => "the dump is cut off within the last line".to_owned(),
                    false => format!(
                        "the dump is damaged: after the lines before, this line must be {last_line}"
                    ),
                }));
        }
        match self.lines.peek()? {
            None => Ok(false),
            Some(_) => {
                self.lines.advance()?;
                Err(self
                    .lines
                    .wrong("the dump is damaged: more lines follow the last one"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(
        text: &str,
        key: Option<&str>,
        value: Option<&str>,
    ) -> Result<(String, String), String> {
        let mut record = Record::default();
        fill(&mut record, text.as_bytes(), key, value)?;
        Ok((
            String::from_utf8(record.key).unwrap(),
            String::from_utf8(record.value).unwrap(),
        ))
    }

    #[test]
    fn a_line_over_the_limit_is_told_by_its_number_and_ends_there() {
        let text = [&b"abc\r\nab\n"[..], &[b'x'; 5000]].concat();
        for (bytes_max, whole) in [(2, 0), (3, 2), (4999, 2), (5000, 3)] {
            let input = Input::in_memory();
            let mut lines = Lines::open(&input, Text::of(&text, 10), bytes_max);
            let is_whole = |lines: &mut Lines| lines.advance().is_ok_and(|more| more);
            let found = (0..3).take_while(|_| is_whole(&mut lines)).count();
            assert_eq!(found, whole, "{bytes_max}");
            if whole < 3 {
                let said = lines.wrong("x").to_string();
                assert!(said.contains(&format!("line {}", whole + 1)), "{said}");
                assert!(lines.line.len() <= bytes_max + 10 + 2);
            }
        }
    }

    #[test]
    fn the_key_is_the_field_asked_for_or_key_or_the_first() {
        let text = r#"{"id": 12345678901234567890123, "key": "a\tb", "x": {"y": 1}}"#;
        assert_eq!(json(text, None, None).unwrap().0, "a\tb");
        assert_eq!(
            json(text, Some("id"), None).unwrap().0,
            "12345678901234567890123"
        );
        assert_eq!(
            json(r#"{"b": 1.50, "a": 2}"#, None, None).unwrap().0,
            "1.50"
        );
    }

    #[test]
    fn the_value_is_the_line_as_it_stands_or_one_field() {
        let text = r#"{"key":"k",  "n": 1.0, "s": "a\"b", "o": {"x": [1, 2]}}"#;
        assert_eq!(json(text, None, None).unwrap().1, text);
        assert_eq!(json(text, None, Some("n")).unwrap().1, "1.0");
        assert_eq!(json(text, None, Some("s")).unwrap().1, "a\"b");
        assert_eq!(json(text, None, Some("o")).unwrap().1, r#"{"x": [1, 2]}"#);
    }

    #[test]
    fn lines_that_are_no_records_are_refused_with_a_reason() {
        for (text, reason) in [
            (r#"{"key": "a", "b"#, "cut off"),
            ("[1, 2]", "not a JSON object"),
            (r#"{"key": "a"} x"#, "not a JSON object"),
            ("{}", "no field that can be the key"),
            (r#"{"key": null}"#, "must be a string or a number"),
            (r#"{"key": [1]}"#, "must be a string or a number"),
            (r#"{"key": 1, "key": 2}"#, "\"key\" twice"),
            (r#"{"a": 1, "a": 2}"#, "\"a\" twice"),
            (r#"{"key": "\ud800"}"#, "not a string that can be stored"),
        ] {
            let error = json(text, None, None).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(!error.contains("line 1"), "{error}");
        }
        let error = json(r#"{"a": 1}"#, Some("id"), None).unwrap_err();
        assert!(error.contains("no field \"id\""), "{error}");
    }
}
