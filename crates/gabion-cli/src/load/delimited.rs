//! Files of columns: CSV, TSV and their relatives.
//!
//! The csv crate takes a file that ends inside quotes for a complete one. To notice a file that was
//! cut off there, a line that no file contains is appended to the file on its way to the parser:
//! outside quotes it arrives as a record of its own, inside quotes as the end of a column.

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use csv::{ByteRecord, QuoteStyle, ReaderBuilder, WriterBuilder};

use super::Record;
use super::source::{Columns, Input, Place};
use crate::failure::Failure;

/// The line that marks the end of a file, between line ends.
const END_MARK: &[u8] = b"\0gabionEndOfFile\0";
const END_LINE: &[u8] = b"\n\0gabionEndOfFile\0\n";
/// The same for a file whose lines end in carriage return and line feed.
const END_LINE_CRLF: &[u8] = b"\r\n\0gabionEndOfFile\0\r\n";
/// Input that may go by without a complete record. A quote that is not closed swallows the rest of
/// the file; this keeps it out of memory.
const RECORD_BYTES_MAX: u64 = 256 << 20;

/// Records from columns.
pub(super) struct Delimited<'a> {
    input: &'a Input,
    columns: Columns,
    parser: Parser,
    /// Behind the last record taken.
    place: Place,
    row: ByteRecord,
    /// `row` is the first line, which is a record and not yet taken.
    row_is_pending: bool,
    roles: Roles,
}

/// The csv crate's parser at work on a part of the file.
struct Parser {
    reader: csv::Reader<Marked>,
    budget: Rc<Cell<u64>>,
    taken: Rc<Cell<u64>>,
    /// Lines end in carriage return and line feed. The parser stops between the two.
    crlf: bool,
    /// The file's place at which `reader` began.
    base: Place,
}

/// Which column is what.
struct Roles {
    /// Columns of every record.
    width: usize,
    /// Names of the columns, if the first line has them.
    names: Option<Vec<String>>,
    key: usize,
    value: Option<usize>,
}

/// The input, followed by the end mark, cut when a record is too long.
struct Marked {
    input: Box<dyn BufRead>,
    mark: &'static [u8],
    budget: Rc<Cell<u64>>,
    /// Bytes that came from the input, the mark's not among them.
    taken: Rc<Cell<u64>>,
}

impl Read for Marked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self.input.read(buffer)? {
            0 => self.mark.read(buffer)?,
            read => {
                self.taken.set(self.taken.get() + read as u64);
                read
            }
        };
        match self.budget.get().checked_sub(read as u64) {
            Some(left) => self.budget.set(left),
            None => {
                return Err(io::Error::other(format!(
                    "a record is longer than {} MiB; is a quote not closed?",
                    RECORD_BYTES_MAX >> 20
                )));
            }
        }
        Ok(read)
    }
}

impl<'a> Delimited<'a> {
    /// The records from `place` on, or all.
    pub(super) fn open(
        input: &'a Input,
        columns: Columns,
        place: Option<Place>,
    ) -> Result<Delimited<'a>, Failure> {
        let parser = Parser::open(input, &columns, Place::START, None)?;
        let mut source = Delimited {
            input,
            columns,
            parser,
            place: Place::START,
            row: ByteRecord::new(),
            row_is_pending: false,
            roles: Roles {
                width: 0,
                names: None,
                key: 0,
                value: None,
            },
        };
        source.row_is_pending = source.read_row()?;
        source.roles = Roles::of(input, &source.columns, &source.row)?;
        if source.columns.header {
            source.row_is_pending = false;
            source.place = source.behind_row();
        }
        if let Some(place) = place {
            source.parser = Parser::open(input, &source.columns, place, Some(source.parser.crlf))?;
            source.place = place;
            source.row_is_pending = false;
        }
        Ok(source)
    }

    /// Where the next record starts.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// The line at which the record read last starts.
    pub(super) fn line(&self) -> u64 {
        let inside = self
            .row
            .as_slice()
            .iter()
            .filter(|byte| **byte == b'\n')
            .count() as u64;
        let ended = u64::from(!self.parser.crlf);
        self.behind_row().line.saturating_sub(inside + ended).max(1)
    }

    /// Reads the next record; `false` at the end.
    pub(super) fn next(&mut self, record: &mut Record) -> Result<bool, Failure> {
        if !self.row_is_pending && !self.read_row()? {
            return Ok(false);
        }
        self.row_is_pending = false;
        if self.row.len() != self.roles.width {
            return Err(self.wrong_width());
        }
        record.key.clear();
        record.key.extend_from_slice(&self.row[self.roles.key]);
        record.value.clear();
        self.fill_value(&mut record.value)?;
        self.place = self.behind_row();
        Ok(true)
    }

    fn behind_row(&self) -> Place {
        let Parser {
            reader,
            taken,
            base,
            ..
        } = &self.parser;
        let position = reader.position();
        Place {
            // The last line may lack its end, which the end mark then gave it.
            offset: base.offset + position.byte().min(taken.get()),
            line: base.line + position.line() - 1,
        }
    }

    /// Parses one record into `self.row`; `false` at the end of the file.
    fn read_row(&mut self) -> Result<bool, Failure> {
        let more =
            self.parser
                .reader
                .read_byte_record(&mut self.row)
                .map_err(|error| match error.into_kind() {
                    csv::ErrorKind::Io(error) => self.input.unreadable(&error),
                    other => self.input.wrong(self.line(), &format!("{other:?}")),
                })?;
        self.parser.budget.set(RECORD_BYTES_MAX);
        let last = self.row.iter().next_back().unwrap_or_default();
        if !more || self.row.len() == 1 && last == END_MARK {
            return Ok(false);
        }
        if last.ends_with(END_LINE) || last.ends_with(END_LINE_CRLF) {
            // The record has no end of its own, which `line` takes to be a line feed.
            let line = self.line().saturating_sub(u64::from(self.parser.crlf)) + 1;
            return Err(self.input.wrong(
                line,
                "a quote is opened and not closed before the end of the file; the file is cut \
                 off, or the quote is stray",
            ));
        }
        Ok(true)
    }

    fn wrong_width(&mut self) -> Failure {
        let (line, found) = (self.line(), self.row.len());
        let wanted = self.roles.width;
        let is_last = !self.read_row().unwrap_or(true);
        let cut = match is_last && found < wanted {
            true => "; it is the last line, so the file is probably cut off",
            false => "",
        };
        let columns = if found == 1 { "column" } else { "columns" };
        self.input.wrong(
            line,
            &format!("{found} {columns} where the first line has {wanted}{cut}"),
        )
    }

    /// Appends the value that the row has besides its key.
    fn fill_value(&self, value: &mut Vec<u8>) -> Result<(), Failure> {
        if let Some(column) = self.roles.value {
            value.extend_from_slice(&self.row[column]);
            return Ok(());
        }
        let rest = self
            .row
            .iter()
            .enumerate()
            .filter(|(column, _)| *column != self.roles.key);
        let Some(names) = &self.roles.names else {
            let rest: Vec<&[u8]> = rest.map(|(_, field)| field).collect();
            join(&rest, &self.columns, value);
            return Ok(());
        };
        value.push(b'{');
        for (column, field) in rest {
            if value.len() > 1 {
                value.push(b',');
            }
            let text = std::str::from_utf8(field).map_err(|_| {
                self.input.wrong(
                    self.line(),
                    &format!(
                        "column {:?} is not UTF-8 text; convert the file, for instance with \
                         iconv, or load it with --no-header",
                        names[column]
                    ),
                )
            })?;
            push_json_string(&names[column], value);
            value.push(b':');
            push_json_string(text, value);
        }
        value.push(b'}');
        Ok(())
    }
}

impl Parser {
    /// A parser from `place` on.
    ///
    /// The first line shows how lines end, unless a parser that began at it has told already.
    fn open(
        input: &Input,
        columns: &Columns,
        place: Place,
        crlf: Option<bool>,
    ) -> Result<Parser, Failure> {
        let mut bytes = input.reader(place.offset)?;
        let sample = bytes.fill_buf().map_err(|error| input.unreadable(&error))?;
        let line_end = sample.iter().position(|byte| *byte == b'\n');
        let shown = || line_end.is_some_and(|at| at > 0 && sample[at - 1] == b'\r');
        let crlf = crlf.unwrap_or_else(shown);
        let budget = Rc::new(Cell::new(RECORD_BYTES_MAX));
        let taken = Rc::new(Cell::new(0));
        let marked = Marked {
            input: bytes,
            mark: if crlf { END_LINE_CRLF } else { END_LINE },
            budget: Rc::clone(&budget),
            taken: Rc::clone(&taken),
        };
        let reader = ReaderBuilder::new()
            .delimiter(columns.delimiter)
            .quoting(columns.quotes)
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(64 << 10)
            .from_reader(marked);
        Ok(Parser {
            reader,
            budget,
            taken,
            crlf,
            base: place,
        })
    }
}

impl Roles {
    /// The roles that the settings give to the columns of a file whose first line is `first`.
    fn of(input: &Input, columns: &Columns, first: &ByteRecord) -> Result<Roles, Failure> {
        let names = match columns.header && !first.is_empty() {
            true => Some(names(input, first)?),
            false => None,
        };
        let width = first.len();
        let find = |wanted: &str, flag: &str| -> Result<usize, Failure> {
            let named = names.iter().flatten().position(|name| name == wanted);
            let numbered = || {
                wanted
                    .parse()
                    .ok()
                    .filter(|number| (1..=width).contains(number))
            };
            let found = named.or_else(|| numbered().map(|number| number - 1));
            // An empty file has no columns, and no records that could miss one.
            found.or((width == 0).then_some(0)).ok_or_else(|| {
                let known = match &names {
                    Some(names) => format!("its columns are {}", names.join(", ")),
                    None => format!("it has {width} columns, numbered from 1"),
                };
                Failure::new(format!(
                    "{flag} {wanted}: the file has no such column; {known}"
                ))
            })
        };
        let key = columns
            .key
            .as_deref()
            .map_or(Ok(0), |key| find(key, "--key"))?;
        let value = columns
            .value
            .as_deref()
            .map(|value| find(value, "--value"))
            .transpose()?;
        Ok(Roles {
            width,
            names,
            key,
            value,
        })
    }
}

/// The names in a header line. A line whose columns are empty or alike is hardly a header, and
/// taken for one, a record would be lost.
fn names(input: &Input, first: &ByteRecord) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for field in first {
        let wrong = |what: &str| {
            input.wrong(
                1,
                &format!("{what}; if the first line is a record, say --no-header"),
            )
        };
        let name = std::str::from_utf8(field)
            .map_err(|_| wrong("the header is not UTF-8 text"))?
            .trim();
        if name.is_empty() {
            return Err(wrong("a column of the header has no name"));
        }
        if names.iter().any(|other| other == name) {
            return Err(wrong(&format!(
                "two columns of the header are named {name:?}"
            )));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Appends columns as they stand in a line.
fn join(fields: &[&[u8]], columns: &Columns, line: &mut Vec<u8>) {
    let plain = |field: &[u8]| {
        !columns.quotes
            || !field
                .iter()
                .any(|b| [columns.delimiter, b'"', b'\n', b'\r'].contains(b))
    };
    if fields.iter().all(|field| plain(field)) {
        for (at, field) in fields.iter().enumerate() {
            if at > 0 {
                line.push(columns.delimiter);
            }
            line.extend_from_slice(field);
        }
        return;
    }
    let mut writer = WriterBuilder::new()
        .delimiter(columns.delimiter)
        .quote_style(QuoteStyle::Necessary)
        .from_writer(Vec::new());
    writer
        .write_record(fields)
        .expect("a record fits in memory");
    let written = writer.into_inner().expect("memory takes every write");
    line.extend_from_slice(written.strip_suffix(b"\n").unwrap_or(&written));
}

fn push_json_string(text: &str, json: &mut Vec<u8>) {
    serde_json::to_writer(json, text).expect("a string has a JSON form");
}
