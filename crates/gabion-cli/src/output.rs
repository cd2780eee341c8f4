//! Buffered standard output, and standard error; both tolerate readers that close them.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde::Serialize;

use crate::escape::escaped;
use crate::failure::Failure;
use crate::text::shown;

/// Says a line on standard error. Who no longer listens there is not waited for, and ends nothing.
/// What names of files and keyspaces hold is shown, and not obeyed by a terminal.
pub(crate) fn tell(line: &str) {
    let line = escaped_controls(line).replace('\n', "\\n");
    let _ = writeln!(io::stderr(), "{line}");
}

/// A text in which control characters, but line ends and tabs, are escaped.
fn escaped_controls(text: &str) -> String {
    shown(text, |control| {
        let mut buffer = [0; 4];
        escaped(control.encode_utf8(&mut buffer).as_bytes())
    })
}

/// Standard output.
pub(crate) struct Output {
    stdout: BufWriter<StdoutLock<'static>>,
    /// A person is watching, so every line is shown at once.
    watched: bool,
}

impl Output {
    /// Takes standard output for this command.
    pub(crate) fn new() -> Output {
        let stdout = io::stdout();
        Output {
            watched: stdout.is_terminal(),
            stdout: BufWriter::with_capacity(64 << 10, stdout.lock()),
        }
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stdout
            .write_all(bytes)
            .map_err(|error| Failure::output(&error))
    }

    /// Writes a line, or several with line ends between them.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.raw_line(&escaped_controls(line))
    }

    fn raw_line(&mut self, line: &str) -> Result<(), Failure> {
        self.bytes(line.as_bytes())?;
        self.bytes(b"\n")?;
        if self.watched { self.flush() } else { Ok(()) }
    }

    /// Writes figures as indented JSON.
    pub(crate) fn json(&mut self, figures: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(figures)
            .map_err(|error| Failure::new(format!("cannot write the figures: {error}")))?;
        self.json_text(&text)
    }

    /// Writes JSON.
    pub(crate) fn json_text(&mut self, text: &str) -> Result<(), Failure> {
        // A string of JSON may hold those control characters that are beyond ASCII's first 32.
        self.raw_line(&shown(text, |control| {
            format!("\\u{:04x}", u32::from(control))
        }))
    }

    /// Writes lines of a name and a figure, the figures in one column.
    pub(crate) fn figures(&mut self, figures: &[(&str, String)]) -> Result<(), Failure> {
        let width = figures
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or(0);
        for (name, figure) in figures {
            self.line(&format!("{name:<width$}  {figure}"))?;
        }
        Ok(())
    }

    /// Hands everything written so far to the reader.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.stdout.flush().map_err(|error| Failure::output(&error))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stdout.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()
    }
}
