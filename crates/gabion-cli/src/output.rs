//! Standard output, buffered, and standard error; both quiet when their readers go away.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Says a line on standard error. Who no longer listens there is not waited for, and ends nothing.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
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

    /// Writes a line.
    pub(crate) fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.bytes(line.as_bytes())?;
        self.bytes(b"\n")?;
        if self.watched { self.flush() } else { Ok(()) }
    }

    /// Writes figures as indented JSON.
    pub(crate) fn json(&mut self, figures: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(figures)
            .map_err(|error| Failure::new(format!("the figures cannot be written: {error}")))?;
        self.line(&text)
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
