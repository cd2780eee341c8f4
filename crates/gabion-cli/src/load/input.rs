//! The file to load: opening it, and its text from the first byte to the last.
//!
//! A text is read forward only, and counts and sums what was read: the sum tells a load that goes
//! on whether what it had read is still what the file begins with, and tells a dump that is whole
//! from one that is damaged.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Display, Path, PathBuf};
use std::rc::Rc;

use xxhash_rust::xxh3::Xxh3Default;

use super::unpack::{self, Packed};
use crate::failure::Failure;

/// Bytes read from the file at once.
const READ_BYTES: usize = 1 << 20;

/// A key with its value, in buffers that are used again.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// When it expires, in milliseconds since 1970, if the file says so.
    pub(super) expires: Option<u64>,
}

/// A place between two records of a text, and the text up to there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Bytes before it.
    pub(super) offset: u64,
    /// The line that starts here, counted from 1.
    pub(super) line: u64,
    /// XXH3 of the bytes before it.
    pub(super) checksum: u64,
}

/// The file, or standard input.
#[derive(Debug)]
pub(super) struct Input {
    path: PathBuf,
    kind: Kind,
    /// The bytes of the file are its text, whatever they look like.
    is_raw: bool,
}

#[derive(Debug)]
enum Kind {
    Stdin,
    /// Something that can be read once only.
    Pipe,
    File {
        /// Absolute path without links.
        canonical: PathBuf,
        length: u64,
    },
}

impl Input {
    /// The file at `path`; `-` is standard input.
    pub(super) fn open(path: &Path, is_raw: bool) -> Result<Input, Failure> {
        let input = |path: &Path, kind| Input {
            path: path.to_owned(),
            kind,
            is_raw,
        };
        if path == Path::new("-") {
            return Ok(input(Path::new("standard input"), Kind::Stdin));
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
        if !metadata.is_file() {
            return Ok(input(path, Kind::Pipe));
        }
        File::open(path).map_err(|error| refused(&error))?;
        let canonical = path.canonicalize().map_err(|error| refused(&error))?;
        let length = metadata.len();
        Ok(input(path, Kind::File { canonical, length }))
    }

    /// How sentences name it.
    pub(super) fn name(&self) -> Display<'_> {
        self.path.display()
    }

    /// The absolute path of what can be read again; `None` for what can be read once only.
    pub(super) fn canonical(&self) -> Option<&Path> {
        match &self.kind {
            Kind::File { canonical, .. } => Some(canonical),
            Kind::Stdin | Kind::Pipe => None,
        }
    }

    /// Length in bytes, where it is known.
    pub(super) fn length(&self) -> Option<u64> {
        match &self.kind {
            Kind::File { length, .. } => Some(*length),
            Kind::Stdin | Kind::Pipe => None,
        }
    }

    /// Whether the bytes of the file are taken as they are.
    pub(super) fn is_raw(&self) -> bool {
        self.is_raw
    }

    /// How the name says that the file is packed, and the ending that its name has besides.
    pub(super) fn endings(&self) -> (Option<Packed>, Option<String>) {
        let ending_of = |path: &Path| path.extension()?.to_str().map(str::to_ascii_lowercase);
        let packed = match (&self.kind, self.is_raw) {
            (Kind::Stdin, _) => return (None, None),
            (_, true) => None,
            (_, false) => ending_of(&self.path).and_then(|ending| Packed::by_ending(&ending)),
        };
        match (packed, self.path.file_stem()) {
            (Some(_), Some(stem)) => (packed, ending_of(Path::new(stem))),
            _ => (packed, ending_of(&self.path)),
        }
    }

    /// The text from its start. What can be read once only is read once only.
    pub(super) fn text(&self) -> Result<Text, Failure> {
        let bytes: Box<dyn Read> = match self.kind {
            Kind::Stdin => Box::new(io::stdin()),
            Kind::Pipe | Kind::File { .. } => Box::new(
                File::open(&self.path)
                    .map_err(|error| Failure::file("read", &self.path, &error))?,
            ),
        };
        let read = Rc::new(Cell::new(0));
        let bytes = Counted {
            bytes,
            count: Rc::clone(&read),
        };
        let bytes = BufReader::with_capacity(READ_BYTES, bytes);
        let bytes = match self.is_raw {
            true => Ok(Box::new(bytes) as Box<dyn BufRead>),
            false => unpack::text(bytes, self.endings().0),
        };
        let bytes = bytes.map_err(|error| self.unreadable(1, &error))?;
        Ok(Text::new(bytes, read))
    }

    /// A sentence about a line of the file.
    pub(super) fn wrong(&self, line: u64, what: &str) -> Failure {
        Failure::new(format!("{}, line {line}: {what}", self.path.display()))
    }

    /// A sentence about the file.
    pub(super) fn wrong_file(&self, what: &str) -> Failure {
        Failure::new(format!("{}: {what}", self.path.display()))
    }

    /// The line cannot be read.
    pub(super) fn unreadable(&self, line: u64, error: &io::Error) -> Failure {
        self.wrong(line, &format!("cannot read the line: {error}"))
    }
}

#[cfg(test)]
impl Input {
    /// Bytes in memory, of which [`Text::of`] makes a text.
    pub(super) fn in_memory() -> Input {
        Input {
            path: PathBuf::from("memory"),
            kind: Kind::Pipe,
            is_raw: false,
        }
    }
}

#[cfg(test)]
impl Text {
    /// Bytes in memory, which come in pieces of at most `piece` bytes.
    pub(super) fn of(bytes: &[u8], piece: usize) -> Text {
        let bytes = BufReader::with_capacity(piece, io::Cursor::new(bytes.to_vec()));
        Text::new(Box::new(bytes), Rc::default())
    }
}

/// Bytes on their way, counted.
struct Counted<R> {
    bytes: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buffer)?;
        self.count.set(self.count.get() + read as u64);
        Ok(read)
    }
}

/// A text that is read forward.
pub(super) struct Text {
    bytes: Box<dyn BufRead>,
    /// Bytes that were read of the file, packed as they are there.
    read: Rc<Cell<u64>>,
    /// Bytes of the text that were consumed, and their checksum.
    offset: u64,
    checksum: Xxh3Default,
    last: Option<u8>,
    /// Those numbers at the mark.
    marked: (u64, Xxh3Default),
}

impl Text {
    fn new(bytes: Box<dyn BufRead>, read: Rc<Cell<u64>>) -> Text {
        Text {
            bytes,
            read,
            offset: 0,
            checksum: Xxh3Default::new(),
            last: None,
            marked: (0, Xxh3Default::new()),
        }
    }

    /// The next bytes; none at the end.
    pub(super) fn fill(&mut self) -> io::Result<&[u8]> {
        loop {
            match self.bytes.fill_buf() {
                Ok([]) => return Ok(&[]),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // They are there now, so this reads nothing.
        self.bytes.fill_buf()
    }

    /// Goes past some of the bytes that [`Text::fill`] gave.
    pub(super) fn consume(&mut self, count: usize) -> io::Result<()> {
        let bytes = self.bytes.fill_buf()?;
        let gone = &bytes[..count.min(bytes.len())];
        self.checksum.update(gone);
        self.offset += gone.len() as u64;
        self.last = gone.last().copied().or(self.last);
        let count = gone.len();
        self.bytes.consume(count);
        Ok(())
    }

    /// Goes to `offset`, or to the end if that comes first.
    pub(super) fn skip_to(&mut self, offset: u64) -> io::Result<()> {
        while self.offset < offset {
            let wanted = usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
            let count = self.fill()?.len().min(wanted);
            if count == 0 {
                break;
            }
            self.consume(count)?;
        }
        Ok(())
    }

    /// Marks the place that is reached: a copy of the sum costs less than its end result.
    pub(super) fn mark(&mut self) {
        self.marked.0 = self.offset;
        self.marked.1.clone_from(&self.checksum);
    }

    /// The place that was marked last, at which `line` starts.
    pub(super) fn marked(&self, line: u64) -> Place {
        Place {
            offset: self.marked.0,
            line,
            checksum: self.marked.1.digest(),
        }
    }

    /// The place that is reached, at which `line` starts.
    pub(super) fn place(&self, line: u64) -> Place {
        Place {
            offset: self.offset,
            line,
            checksum: self.checksum(),
        }
    }

    /// XXH3 of the bytes that were consumed.
    pub(super) fn checksum(&self) -> u64 {
        self.checksum.digest()
    }

    /// The byte that was consumed last.
    pub(super) fn last(&self) -> Option<u8> {
        self.last
    }

    /// Bytes that were read of the file.
    pub(super) fn read(&self) -> u64 {
        self.read.get()
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
            let opened = scope.spawn(|| Input::open(&pipe, false).unwrap());
            let mut was_opened = false;
            while !opened.is_finished() && !was_opened {
                was_opened = write.open(&pipe).is_ok();
            }
            assert!(!was_opened, "nobody may open it yet");
            assert_eq!(opened.join().unwrap().length(), None);
        });
    }

    #[test]
    fn names_tell_how_a_file_is_packed_and_what_is_in_it() {
        for (name, is_raw, packed, ending) in [
            ("a.csv", false, None, Some("csv")),
            ("a.CSV.GZ", false, Some(Packed::Gzip), Some("csv")),
            ("a.b.jsonl.zst", false, Some(Packed::Zstd), Some("jsonl")),
            ("a.gz", false, Some(Packed::Gzip), None),
            ("a.csv.gz", true, None, Some("gz")),
            ("gz", false, None, None),
        ] {
            let input = Input {
                path: PathBuf::from(name),
                kind: Kind::Pipe,
                is_raw,
            };
            let ending = ending.map(str::to_owned);
            assert_eq!(input.endings(), (packed, ending), "{name}");
        }
    }
}
