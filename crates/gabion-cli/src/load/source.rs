//! The format of the file to load, and its records one by one.

use super::delimited::{Columns, Delimited};
use super::input::{Input, Place, Record, Text};
use super::lines::{DumpLines, JsonLines};
use super::progress::Progress;
use crate::args::{Format, LoadArguments};
use crate::dump;
use crate::failure::Failure;

/// Bytes at the start of a text that decide on its form.
const SAMPLE_BYTES: usize = 64 << 10;

/// What files of Redis and Valkey begin with, before their version.
const RDB_MAGICS: [&[u8]; 2] = [b"REDIS0", b"VALKEY0"];

/// Everything that decides what the records of a file are. Its text form is part of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Columns.
    Delimited(Columns),
    /// One JSON object per line.
    Json {
        /// Field of the key.
        key: Option<String>,
        /// Field that alone is the value.
        value: Option<String>,
    },
    /// Escaped keys and values.
    Dump,
}

/// The format that the arguments ask for or, failing that, the file suggests.
pub(super) fn format(input: &Input, arguments: &LoadArguments) -> Result<Format, Failure> {
    match arguments.format {
        Format::Auto => guess(input, arguments),
        format => Ok(format),
    }
}

impl Form {
    /// The form of records in that format, as the arguments want them.
    pub(super) fn of(format: Format, arguments: &LoadArguments) -> Result<Form, Failure> {
        if arguments.databases.is_some() {
            return Err(Failure::usage("--databases is for RDB files"));
        }
        let columns = arguments.header || arguments.no_header || arguments.delimiter.is_some();
        let (key, value) = (arguments.key.clone(), arguments.value.clone());
        match format {
            Format::Jsonl if columns => Err(Failure::usage(
                "--header, --no-header and --delimiter are for CSV and TSV, not for JSON lines; \
                 leave them out",
            )),
            Format::Jsonl => Ok(Form::Json { key, value }),
            Format::Dump if columns || key.is_some() || value.is_some() => Err(Failure::usage(
                "a dump defines its keys and values itself; leave out --key, --value, --header, \
                 --no-header and --delimiter",
            )),
            Format::Dump => Ok(Form::Dump),
            Format::Rdb => Err(Failure::usage("an RDB file has keys of several types")),
            Format::Auto | Format::Csv | Format::Tsv => {
                let tabs = format == Format::Tsv;
                Ok(Form::Delimited(Columns {
                    delimiter: arguments
                        .delimiter
                        .unwrap_or(if tabs { b'\t' } else { b',' }),
                    quotes: !tabs,
                    header: !arguments.no_header,
                    key,
                    value,
                }))
            }
        }
    }
}

/// The format that the name's ending or the first line suggests.
fn guess(input: &Input, arguments: &LoadArguments) -> Result<Format, Failure> {
    let (_, extension) = input.endings();
    let by_name = extension.and_then(|extension| {
        Some(match extension.as_str() {
            "csv" => Format::Csv,
            "tsv" | "tab" => Format::Tsv,
            "jsonl" | "ndjson" => Format::Jsonl,
            "dump" => Format::Dump,
            "rdb" => Format::Rdb,
            _ => return None,
        })
    });
    if let Some(format) = by_name {
        return Ok(format);
    }
    if arguments.delimiter.is_some() {
        return Ok(Format::Csv);
    }
    if input.canonical().is_none() {
        return Err(Failure::usage(
            "input from a pipe has no name that tells its format; use --format",
        ));
    }
    let line = first_line(input)?;
    let text = line.trim_ascii();
    match text {
        text if text == dump::FIRST_LINE.as_bytes() => Ok(Format::Dump),
        text if RDB_MAGICS.iter().any(|magic| text.starts_with(magic)) => Ok(Format::Rdb),
        [b'{', ..] => Ok(Format::Jsonl),
        text if text.contains(&b'\t') => Ok(Format::Tsv),
        text if text.contains(&b',') => Ok(Format::Csv),
        _ => Err(Failure::usage(
            input
                .wrong_file(
                    "neither the name nor the first line tells the format; use --format or \
                     --delimiter",
                )
                .to_string(),
        )),
    }
}

/// The first line, cut after some thousand bytes.
fn first_line(input: &Input) -> Result<Vec<u8>, Failure> {
    let mut text = input.text()?;
    let mut line = Vec::new();
    while line.len() < SAMPLE_BYTES && !line.contains(&b'\n') {
        let bytes = text.fill().map_err(|error| input.unreadable(1, &error))?;
        let count = bytes.len().min(SAMPLE_BYTES);
        if count == 0 {
            break;
        }
        line.extend_from_slice(&bytes[..count]);
        text.consume(count)
            .map_err(|error| input.unreadable(1, &error))?;
    }
    let end = memchr::memchr(b'\n', &line).unwrap_or(line.len());
    line.truncate(end);
    Ok(line)
}

/// The records of a file, one after the other.
pub(super) struct Source<'a> {
    input: &'a Input,
    records: Records<'a>,
    /// The line at which the text is marked.
    marked_line: u64,
}

enum Records<'a> {
    Delimited(Box<Delimited<'a>>),
    Json(JsonLines<'a>),
    Dump(DumpLines<'a>),
}

impl<'a> Source<'a> {
    /// All records.
    pub(super) fn open(input: &'a Input, form: &Form) -> Result<Source<'a>, Failure> {
        Source::of(input, input.text()?, form)
    }

    /// The records of a text.
    pub(super) fn of(input: &'a Input, text: Text, form: &Form) -> Result<Source<'a>, Failure> {
        let records = match form {
            Form::Delimited(columns) => {
                Records::Delimited(Box::new(Delimited::open(input, text, columns.clone())?))
            }
            Form::Json { key, value } => {
                let (key, value) = (key.clone(), value.clone());
                Records::Json(JsonLines::open(input, text, key, value))
            }
            Form::Dump => Records::Dump(DumpLines::open(input, text)?),
        };
        Ok(Source {
            input,
            records,
            marked_line: 1,
        })
    }

    /// Goes on to where an earlier load came; `false` if the text is another one up to there. Who
    /// gets that has no use for the source.
    pub(super) fn go_on(&mut self, progress: &Progress) -> Result<bool, Failure> {
        let place = progress.place;
        match &mut self.records {
            Records::Delimited(records) => records.go_on(place)?,
            Records::Json(records) => records.go_on(place)?,
            Records::Dump(records) => records.go_on(place, progress.records)?,
        }
        // What ends without a line end may have ended inside a line.
        let is_line_end = matches!(self.text().last(), Some(b'\n' | b'\r'));
        Ok(is_line_end && self.place() == place)
    }

    /// Reads the next record; `false` at the end.
    pub(super) fn next(&mut self, record: &mut Record) -> Result<bool, Failure> {
        let (text, line) = match &mut self.records {
            Records::Delimited(records) => records.position(),
            Records::Json(records) => records.position(),
            Records::Dump(records) => records.position(),
        };
        text.mark();
        self.marked_line = line;
        match &mut self.records {
            Records::Delimited(records) => records.next(record),
            Records::Json(records) => records.next(record),
            Records::Dump(records) => records.next(record),
        }
    }

    /// Where the next record starts.
    pub(super) fn place(&self) -> Place {
        self.text().place(self.line_behind())
    }

    /// Where the record read last starts, or what was to be one and is none. Of the first record it
    /// says nothing: columns are looked at before it is asked for.
    pub(super) fn place_before(&self) -> Place {
        self.text().marked(self.marked_line)
    }

    /// The line that comes next.
    fn line_behind(&self) -> u64 {
        match &self.records {
            Records::Delimited(records) => records.line_behind(),
            Records::Json(records) => records.line_behind(),
            Records::Dump(records) => records.line_behind(),
        }
    }

    /// The text that the records are of.
    pub(super) fn text(&self) -> &Text {
        match &self.records {
            Records::Delimited(records) => records.text(),
            Records::Json(records) => records.text(),
            Records::Dump(records) => records.text(),
        }
    }

    /// A sentence about the record read last.
    pub(super) fn wrong(&self, what: &str) -> Failure {
        let line = match &self.records {
            Records::Delimited(records) => records.line(),
            Records::Json(_) | Records::Dump(_) => (self.line_behind() - 1).max(1),
        };
        self.input.wrong(line, what)
    }
}
