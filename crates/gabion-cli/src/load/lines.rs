//! Files of one record per line: JSON lines and dumps.

use std::fmt;
use std::io::{BufRead, Read};

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Record;
use super::source::{Input, Place};
use crate::commands::dump;
use crate::escape::unescape;
use crate::failure::Failure;

/// The longest line with a JSON object: a value of a few hundred megabytes. A longer one is a file
/// of another form.
const JSON_BYTES_MAX: u64 = 1 << 30;
/// The longest line of a dump: the longest pair, with four bytes for each of its bytes.
const DUMP_BYTES_MAX: u64 = (1 << 32) + (1 << 20);
/// The field that is the key unless the command says otherwise.
const KEY_FIELD: &str = "key";

/// Lines with their places.
struct Lines<'a> {
    input: &'a Input,
    reader: Box<dyn BufRead>,
    place: Place,
    line: Vec<u8>,
    /// Bytes of a line at which the file cannot be what it was taken for.
    bytes_max: u64,
}

impl<'a> Lines<'a> {
    fn open(input: &'a Input, place: Option<Place>, bytes_max: u64) -> Result<Lines<'a>, Failure> {
        let place = place.unwrap_or(Place::START);
        Ok(Lines {
            input,
            reader: input.reader(place.offset)?,
            place,
            line: Vec::new(),
            bytes_max,
        })
    }

    /// Reads the next line into `self.line`, without its end, and gives its number; `None` at the
    /// end of the file.
    fn advance(&mut self) -> Result<Option<u64>, Failure> {
        self.line.clear();
        let read = self
            .reader
            .by_ref()
            .take(self.bytes_max)
            .read_until(b'\n', &mut self.line)
            .map_err(|error| self.input.unreadable(&error))?;
        if read == 0 {
            return Ok(None);
        }
        let number = self.place.line;
        if read as u64 == self.bytes_max {
            let gib = self.bytes_max >> 30;
            let what = format!("the line is longer than {gib} GiB");
            return Err(self.input.wrong(number, &what));
        }
        self.place.offset += read as u64;
        self.place.line += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
        }
        Ok(Some(number))
    }
}

/// Records from JSON lines.
pub(super) struct JsonLines<'a> {
    lines: Lines<'a>,
    key: Option<String>,
    value: Option<String>,
}

impl<'a> JsonLines<'a> {
    /// The records from `place` on, whose keys are in the field `key`.
    pub(super) fn open(
        input: &'a Input,
        key: Option<String>,
        value: Option<String>,
        place: Option<Place>,
    ) -> Result<JsonLines<'a>, Failure> {
        Ok(JsonLines {
            lines: Lines::open(input, place, JSON_BYTES_MAX)?,
            key,
            value,
        })
    }

    /// Where the next record starts.
    pub(super) fn place(&self) -> Place {
        self.lines.place
    }

    /// Reads the next record; `false` at the end.
    pub(super) fn next(&mut self, record: &mut Record) -> Result<bool, Failure> {
        loop {
            let Some(number) = self.lines.advance()? else {
                return Ok(false);
            };
            let mut text = self.lines.line.as_slice();
            if number == 1 {
                text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
            }
            if !text.trim_ascii().is_empty() {
                fill(record, text, self.key.as_deref(), self.value.as_deref())
                    .map_err(|what| self.lines.input.wrong(number, &what))?;
                return Ok(true);
            }
        }
    }
}

/// Makes a record of a line that holds a JSON object.
fn fill(
    record: &mut Record,
    text: &[u8],
    key: Option<&str>,
    value: Option<&str>,
) -> Result<(), String> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let fields = (&mut json).deserialize_map(FieldsVisitor);
    let fields = fields
        .and_then(|fields| json.end().map(|()| fields))
        .map_err(|error| {
            let problem = error.to_string();
            let problem = problem.replace(" at line 1 column ", " at column ");
            match error.is_eof() {
                true => format!("the line is cut off: {problem}"),
                false => format!("not a JSON object: {problem}"),
            }
        })?;
    // Of a name that is there twice the later field counts, as everywhere in JSON.
    let named = |name: &str| fields.iter().rev().find(|(field, _)| field == name);
    let missing = |name: &str| format!("the object has no field {name:?}");
    let (_, key) = match key {
        Some(name) => named(name).ok_or_else(|| missing(name))?,
        None => named(KEY_FIELD)
            .or(fields.first())
            .ok_or("the object has no field that could be the key")?,
    };
    record.key.clear();
    record
        .key
        .extend_from_slice(plain(key).as_deref().map_err(Clone::clone)?.as_bytes());
    record.value.clear();
    match value {
        None => record.value.extend_from_slice(text),
        Some(name) => {
            let (_, value) = named(name).ok_or_else(|| missing(name))?;
            match plain(value) {
                Ok(value) => record.value.extend_from_slice(value.as_bytes()),
                Err(_) => record.value.extend_from_slice(value.get().as_bytes()),
            }
        }
    }
    Ok(())
}

/// A string without quotes and escapes, or a number or truth value as it stands in the file.
fn plain(value: &RawValue) -> Result<String, String> {
    match value.get() {
        text if text.starts_with('"') => {
            serde_json::from_str(text).map_err(|error| format!("not a string: {error}"))
        }
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
    /// The file began with the line that promises a last line.
    framed: bool,
    ended: bool,
}

impl<'a> DumpLines<'a> {
    /// The records from `place` on.
    pub(super) fn open(input: &'a Input, place: Option<Place>) -> Result<DumpLines<'a>, Failure> {
        let mut dump = DumpLines {
            lines: Lines::open(input, None, DUMP_BYTES_MAX)?,
            framed: false,
            ended: false,
        };
        if let Some(place) = place {
            dump.lines.advance()?;
            dump.framed = dump.lines.line == dump::FIRST_LINE.as_bytes();
            dump.lines = Lines::open(input, Some(place), DUMP_BYTES_MAX)?;
        }
        Ok(dump)
    }

    /// Where the next record starts.
    pub(super) fn place(&self) -> Place {
        self.lines.place
    }

    /// Reads the next record; `false` at the end.
    pub(super) fn next(&mut self, record: &mut Record) -> Result<bool, Failure> {
        loop {
            let Some(number) = self.lines.advance()? else {
                return match self.framed && !self.ended {
                    true => Err(self.lines.input.wrong(
                        self.lines.place.line,
                        "the dump is cut off: its last line is missing",
                    )),
                    false => Ok(false),
                };
            };
            let line = self.lines.line.as_slice();
            if number == 1 && line == dump::FIRST_LINE.as_bytes() {
                self.framed = true;
                continue;
            }
            if self.framed && line.starts_with(dump::LAST_LINE.as_bytes()) {
                self.check_count(number)?;
                self.ended = true;
                continue;
            }
            if self.ended {
                return Err(self
                    .lines
                    .input
                    .wrong(number, "there is more after the dump's end"));
            }
            fill_unescaped(record, line).map_err(|what| self.lines.input.wrong(number, &what))?;
            return Ok(true);
        }
    }

    /// Holds the number of records in the last line against the lines before it.
    fn check_count(&self, number: u64) -> Result<(), Failure> {
        let line = &self.lines.line[dump::LAST_LINE.len()..];
        let claimed = std::str::from_utf8(line)
            .ok()
            .and_then(|count| count.parse::<u64>().ok());
        let records = number - 2;
        match claimed {
            Some(claimed) if claimed == records => Ok(()),
            _ => Err(self.lines.input.wrong(
                number,
                &format!("the dump has {records} records, its last line says otherwise"),
            )),
        }
    }
}

fn fill_unescaped(record: &mut Record, line: &[u8]) -> Result<(), String> {
    let tab = line
        .iter()
        .position(|byte| *byte == b'\t')
        .ok_or("no tab between key and value")?;
    record.key.clear();
    record.value.clear();
    unescape(&line[..tab], &mut record.key)?;
    unescape(&line[tab + 1..], &mut record.value)
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
            ("{}", "no field that could be the key"),
            (r#"{"key": null}"#, "must be a string or a number"),
            (r#"{"key": [1]}"#, "must be a string or a number"),
        ] {
            let error = json(text, None, None).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(!error.contains("line 1"), "{error}");
        }
        let error = json(r#"{"a": 1}"#, Some("id"), None).unwrap_err();
        assert!(error.contains("no field \"id\""), "{error}");
    }
}
