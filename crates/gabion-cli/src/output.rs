//! Standard output: buffered, and quiet when its reader goes away.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde::Serialize;

use crate::failure::Failure;

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

/// A number of bytes for people, with three or four digits.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let mut size = bytes as f64;
    let mut units = ["KiB", "MiB", "GiB", "TiB"].into_iter().peekable();
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = "B";
    while size >= 1024.0 {
        let Some(next) = units.next() else { break };
        unit = next;
        size /= 1024.0;
    }
    match size {
        size if size < 100.0 => format!("{size:.1} {unit}"),
        _ => format!("{size:.0} {unit}"),
    }
}

/// A count for people: digits in groups of three.
pub(crate) fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (150 << 20, "150 MiB"),
            (5 << 30, "5.0 GiB"),
        ] {
            assert_eq!(bytes_text(bytes), text);
        }
    }

    #[test]
    fn counts_are_grouped() {
        for (count, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (20_000_000, "20,000,000"),
        ] {
            assert_eq!(count_text(count), text);
        }
    }
}
