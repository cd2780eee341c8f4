//! The file to load: opening it, its form, and its records one by one.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::Record;
use super::delimited::Delimited;
use super::lines::{DumpLines, JsonLines};
use super::progress::Identity;
use crate::args::{Format, LoadArguments};
use crate::commands::dump;
use crate::failure::Failure;

/// Bytes read from the file at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes at the start of a file that decide on its form.
const SAMPLE_BYTES: u64 = 64 << 10;

/// A place between two records of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Bytes before it.
    pub(super) offset: u64,
    /// The line that starts here, counted from 1.
    pub(super) line: u64,
}

impl Place {
    /// The start of a file.
    pub(super) const START: Place = Place { offset: 0, line: 1 };
}

/// The file, or standard input.
#[derive(Debug)]
pub(super) struct Input {
    path: PathBuf,
    identity: Option<Identity>,
}

impl Input {
    /// The file at `path`; `-` is standard input.
    pub(super) fn open(path: &Path) -> Result<Input, Failure> {
        if path == Path::new("-") {
            return Ok(Input {
                path: PathBuf::from("standard input"),
                identity: None,
            });
        }
        let refused = |error: &io::Error| Failure::file("read", path, error);
        let metadata = std::fs::metadata(path).map_err(|error| refused(&error))?;
        if metadata.is_dir() {
            return Err(Failure::new(format!(
                "{} is a directory; name a file to load",
                path.display()
            )));
        }
        // A pipe has no length, and cannot be read twice: who opens and closes it takes its reader
        // away from whoever has begun to write.
        let identity = match metadata.is_file() {
            true => {
                File::open(path).map_err(|error| refused(&error))?;
                Some(Identity {
                    path: path.canonicalize().map_err(|error| refused(&error))?,
                    length: metadata.len(),
                    modified_ns: metadata
                        .modified()
                        .ok()
                        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
                        .map_or(0, |since| since.as_nanos()),
                })
            }
            false => None,
        };
        Ok(Input {
            path: path.to_owned(),
            identity,
        })
    }

    /// What makes the file the same next time; `None` for what can be read once only.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.identity.clone()
    }

    /// Length in bytes, where it is known.
    pub(super) fn length(&self) -> Option<u64> {
        self.identity.as_ref().map(|identity| identity.length)
    }

    /// The bytes from `offset` on. What can be read once only must be read from its start.
    pub(super) fn reader(&self, offset: u64) -> Result<Box<dyn BufRead>, Failure> {
        let refused = |error: &io::Error| Failure::file("read", &self.path, error);
        if self.identity.is_none() && self.path == Path::new("standard input") {
            return Ok(Box::new(BufReader::with_capacity(READ_BYTES, io::stdin())));
        }
        let mut file = File::open(&self.path).map_err(|error| refused(&error))?;
        if offset > 0 {
            file.seek(SeekFrom::Start(offset))
                .map_err(|error| refused(&error))?;
        }
        Ok(Box::new(BufReader::with_capacity(READ_BYTES, file)))
    }

    /// A sentence about a line of the file.
    pub(super) fn wrong(&self, line: u64, what: &str) -> Failure {
        Failure::new(format!("{}, line {line}: {what}", self.path.display()))
    }

    /// The system refused to read.
    pub(super) fn unreadable(&self, error: &io::Error) -> Failure {
        Failure::file("read", &self.path, error)
    }

    /// The first line, cut after some thousand bytes.
    fn first_line(&self) -> Result<Vec<u8>, Failure> {
        let mut line = Vec::new();
        self.reader(0)?
            .take(SAMPLE_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(|error| self.unreadable(&error))?;
        Ok(line)
    }
}

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

impl Form {
    /// The form that the arguments ask for or, failing that, the file suggests.
    pub(super) fn of(input: &Input, arguments: &LoadArguments) -> Result<Form, Failure> {
        let format = match arguments.format {
            Format::Auto => guess(input, arguments)?,
            format => format,
        };
        let columns = arguments.header || arguments.no_header || arguments.delimiter.is_some();
        let (key, value) = (arguments.key.clone(), arguments.value.clone());
        match format {
            Format::Jsonl if columns => Err(Failure::usage(
                "--header, --no-header and --delimiter are for CSV and TSV, not for JSON lines",
            )),
            Format::Jsonl => Ok(Form::Json { key, value }),
            Format::Dump if columns || key.is_some() || value.is_some() => Err(Failure::usage(
                "a dump says itself what its keys and values are; leave out --key, --value, \
                 --header, --no-header and --delimiter",
            )),
            Format::Dump => Ok(Form::Dump),
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
    let extension = arguments
        .file
        .extension()
        .and_then(|extension| extension.to_str());
    let by_name = extension.and_then(|extension| {
        Some(match extension.to_ascii_lowercase().as_str() {
            "csv" => Format::Csv,
            "tsv" | "tab" => Format::Tsv,
            "jsonl" | "ndjson" => Format::Jsonl,
            "dump" => Format::Dump,
            _ => return None,
        })
    });
    if let Some(format) = by_name {
        return Ok(format);
    }
    if arguments.delimiter.is_some() {
        return Ok(Format::Csv);
    }
    if input.identity.is_none() {
        return Err(Failure::usage(
            "what comes through a pipe has no name to tell its form; say --format",
        ));
    }
    let line = input.first_line()?;
    let text = line.trim_ascii();
    match text {
        text if text == dump::FIRST_LINE.as_bytes() => Ok(Format::Dump),
        [b'{', ..] => Ok(Format::Jsonl),
        text if text.contains(&b'\t') => Ok(Format::Tsv),
        text if text.contains(&b',') => Ok(Format::Csv),
        _ => Err(Failure::usage(format!(
            "{}: neither the name nor the first line tells the form; say --format or --delimiter",
            input.path.display()
        ))),
    }
}

/// The records of a file, one after the other.
pub(super) struct Source<'a> {
    input: &'a Input,
    records: Records<'a>,
}

enum Records<'a> {
    Delimited(Box<Delimited<'a>>),
    Json(JsonLines<'a>),
    Dump(DumpLines<'a>),
}

impl<'a> Source<'a> {
    /// The records from `place` on, or all.
    pub(super) fn open(
        input: &'a Input,
        form: &Form,
        place: Option<Place>,
    ) -> Result<Source<'a>, Failure> {
        let records = match form {
            Form::Delimited(columns) => {
                Records::Delimited(Box::new(Delimited::open(input, columns.clone(), place)?))
            }
            Form::Json { key, value } => {
                let (key, value) = (key.clone(), value.clone());
                Records::Json(JsonLines::open(input, key, value, place)?)
            }
            Form::Dump => Records::Dump(DumpLines::open(input, place)?),
        };
        Ok(Source { input, records })
    }

    /// Reads the next record; `false` at the end.
    pub(super) fn next(&mut self, record: &mut Record) -> Result<bool, Failure> {
        match &mut self.records {
            Records::Delimited(records) => records.next(record),
            Records::Json(records) => records.next(record),
            Records::Dump(records) => records.next(record),
        }
    }

    /// Where the next record starts.
    pub(super) fn place(&self) -> Place {
        match &self.records {
            Records::Delimited(records) => records.place(),
            Records::Json(records) => records.place(),
            Records::Dump(records) => records.place(),
        }
    }

    /// A sentence about the record read last.
    pub(super) fn wrong(&self, what: &str) -> Failure {
        let line = match &self.records {
            Records::Delimited(records) => records.line(),
            Records::Json(_) | Records::Dump(_) => self.place().line - 1,
        };
        self.input.wrong(line, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::Command;
    use std::thread;

    /// Linux's number for an open that does not wait.
    const O_NONBLOCK: i32 = 0o4000;

    /// A pipe was opened to see whether it can be, closed, and opened again: a writer that came
    /// between was killed, or had written all to nobody, and the load waited for another one.
    #[test]
    fn a_pipe_is_not_opened_before_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        // Fails unless somebody reads, or waits for a writer.
        let mut write = File::options();
        write.write(true).custom_flags(O_NONBLOCK);
        thread::scope(|scope| {
            // Who opens a pipe waits for its other end.
            let opened = scope.spawn(|| Input::open(&pipe).unwrap());
            let mut was_opened = false;
            while !opened.is_finished() && !was_opened {
                was_opened = write.open(&pipe).is_ok();
            }
            assert!(!was_opened, "nobody may open it yet");
            assert_eq!(opened.join().unwrap().length(), None);
        });
    }
}
