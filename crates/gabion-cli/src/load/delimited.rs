//! Files of columns: CSV, TSV and their relatives.

use gabion::text::{bytes_text, counted};

use super::columns::{NoRow, Row, Rows};
use super::input::{Input, Place, Record, Text};
use crate::failure::Failure;

/// How a file of columns is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// Between columns.
    pub(super) delimiter: u8,
    /// Whether `"` quotes.
    pub(super) quotes: bool,
    /// Whether the first line names the columns.
    pub(super) header: bool,
    /// Column of the key: a name, or a number from 1.
    pub(super) key: Option<String>,
    /// Column that alone is the value.
    pub(super) value: Option<String>,
}

/// Bytes that the columns of a record may have: those of the longest key and the longest value.
/// What is longer cannot be kept; mostly it is a quote that is not closed and swallows the rest of
/// the file, which this keeps out of memory.
const RECORD_BYTES_MAX: usize = (1 << 30) + (64 << 10);

/// Records from columns.
pub(super) struct Delimited<'a> {
    input: &'a Input,
    text: Text,
    columns: Columns,
    rows: Rows,
    row: Row,
    /// `row` is the first line, which is a record and not yet taken.
    row_is_pending: bool,
    roles: Roles,
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

impl<'a> Delimited<'a> {
    /// The records of a text.
    pub(super) fn open(
        input: &'a Input,
        text: Text,
        columns: Columns,
    ) -> Result<Delimited<'a>, Failure> {
        let mut source = Delimited {
            input,
            text,
            rows: Rows {
                delimiter: columns.delimiter,
                quotes: columns.quotes,
                bytes_max: RECORD_BYTES_MAX,
                line: 1,
            },
            row: Row::default(),
            row_is_pending: false,
            roles: Roles {
                width: 0,
                names: None,
                key: 0,
                value: None,
            },
            columns,
        };
        let is_there = source.read_row()?;
        source.roles = Roles::of(input, &source.columns, &source.row)?;
        source.row_is_pending = is_there && !source.columns.header;
        Ok(source)
    }

    pub(super) fn text(&self) -> &Text {
        &self.text
    }

    /// The text, and the line that comes next.
    pub(super) fn position(&mut self) -> (&mut Text, u64) {
        (&mut self.text, self.rows.line)
    }

    /// The line that comes next.
    pub(super) fn line_behind(&self) -> u64 {
        self.rows.line
    }

    /// Goes on to a place that an earlier load came to.
    pub(super) fn go_on(&mut self, place: Place) -> Result<(), Failure> {
        self.text
            .skip_to(place.offset)
            .map_err(|error| self.input.unreadable(place.line, &error))?;
        self.rows.line = place.line;
        self.row_is_pending = false;
        Ok(())
    }

    /// The line at which the record read last starts.
    pub(super) fn line(&self) -> u64 {
        self.row.line
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
        let key = self.row.column(self.roles.key);
        record.key.extend_from_slice(key.unwrap_or_default());
        record.value.clear();
        self.fill_value(&mut record.value)?;
        Ok(true)
    }

    /// Parses one record into `self.row`; `false` at the end of the file.
    fn read_row(&mut self) -> Result<bool, Failure> {
        let read = self.rows.read(&mut self.text, &mut self.row);
        read.map_err(|reason| match reason {
            NoRow::Read(error) => self.input.unreadable(self.rows.line, &error),
            NoRow::Unclosed { line } => self.input.wrong(
                line,
                "a quote is opened here and not closed before the end of the file; the file is cut \
                 off, or the quote is stray",
            ),
            NoRow::TooLong { line, quote } => {
                let stray = match quote {
                    Some(line) => {
                        format!("; a quote is opened in line {line} and not closed since")
                    }
                    None => String::new(),
                };
                let what = format!(
                    "the record that starts here is longer than {}, the limit for a key and a \
                     value{stray}",
                    bytes_text(RECORD_BYTES_MAX as u64)
                );
                self.input.wrong(line, &what)
            }
        })
    }

    fn wrong_width(&mut self) -> Failure {
        let (line, found) = (self.line(), self.row.len());
        let wanted = self.roles.width;
        let is_last = !self.read_row().unwrap_or(true);
        let cut = match is_last && found < wanted {
            true => "; it is the last line, so the file is probably cut off",
            false => "",
        };
        let found = counted(found as u64, "column", "columns");
        self.input.wrong(
            line,
            &format!("{found} where the first line has {wanted}{cut}"),
        )
    }

    /// Appends the value that the row has besides its key.
    fn fill_value(&self, value: &mut Vec<u8>) -> Result<(), Failure> {
        if let Some(column) = self.roles.value {
            value.extend_from_slice(self.row.column(column).unwrap_or_default());
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

impl Roles {
    /// The roles that the settings give to the columns of a file whose first line is `first`.
    fn of(input: &Input, columns: &Columns, first: &Row) -> Result<Roles, Failure> {
        let names = match columns.header && first.len() > 0 {
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
                    Some(names) => format!("the columns are {}", names.join(", ")),
                    None => {
                        let columns = counted(width as u64, "column", "columns");
                        format!("the file has {columns}, numbered from 1")
                    }
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
fn names(input: &Input, first: &Row) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for field in first.iter() {
        let wrong = |what: &str| {
            input.wrong(
                first.line,
                &format!("{what}; if the first line is a record, use --no-header"),
            )
        };
        let name = std::str::from_utf8(field)
            .map_err(|_| wrong("the header is not UTF-8 text"))?
            .trim();
        if name.is_empty() {
            return Err(wrong("a column of the header has no name"));
        }
        if name.contains('\0') {
            return Err(wrong(
                "a column of the header has a zero byte in the name, as UTF-16 text has; convert \
                 the file, for instance with `iconv -f UTF-16 -t UTF-8`",
            ));
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
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            line.push(columns.delimiter);
        }
        if plain(field) {
            line.extend_from_slice(field);
            continue;
        }
        line.push(b'"');
        for byte in *field {
            if *byte == b'"' {
                line.push(b'"');
            }
            line.push(*byte);
        }
        line.push(b'"');
    }
}

fn push_json_string(text: &str, json: &mut Vec<u8>) {
    serde_json::to_writer(json, text).expect("a string has a JSON form");
}
