//! Lines of columns, from bytes.
//!
//! Columns lie between delimiters; a column that begins with `"` goes on to the next `"`, and may
//! hold delimiters and line ends; in it, `""` is one `"`. Lines end in `\n`, `\r\n` or `\r`, and
//! empty ones are no records. What comes behind a closing quote belongs to the column as it is, and
//! so does a quote that does not begin it.

use std::io;

use memchr::{memchr, memchr_iter, memchr3};

use super::input::Text;

/// Columns of one line.
#[derive(Debug, Default)]
pub(super) struct Row {
    data: Vec<u8>,
    /// Where each column ends in `data`.
    ends: Vec<usize>,
    /// The line at which it starts, counted from 1.
    pub(super) line: u64,
}

impl Row {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The column of that index, if there is one.
    pub(super) fn column(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let begin = match index.checked_sub(1) {
            Some(before) => self.ends[before],
            None => 0,
        };
        self.data.get(begin..end)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.column(index))
    }

    fn end_column(&mut self) {
        self.ends.push(self.data.len());
    }
}

/// Why there is no row.
#[derive(Debug)]
pub(super) enum NoRow {
    /// The bytes cannot be had.
    Read(io::Error),
    /// A quote is open at the end of the text.
    Unclosed {
        /// The line of the quote.
        line: u64,
    },
    /// The row is longer than is allowed.
    TooLong {
        /// The line at which it starts.
        line: u64,
        /// The line of the quote that is open.
        quote: Option<u64>,
    },
}

impl From<io::Error> for NoRow {
    fn from(error: io::Error) -> NoRow {
        NoRow::Read(error)
    }
}

/// Where in a row the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before its first byte.
    RowBegin,
    /// Before the first byte of a column.
    ColumnBegin,
    /// In a column, outside quotes.
    Plain,
    /// Inside the quote that began at that line.
    Quoted(u64),
    /// Behind a quote inside quotes: the first of two, or the closing one.
    QuoteInQuoted(u64),
    /// Behind its line end.
    RowEnd,
}

/// Takes rows from a text.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) delimiter: u8,
    /// Whether `"` quotes.
    pub(super) quotes: bool,
    /// Bytes that the columns of a row may have.
    pub(super) bytes_max: usize,
    /// The line that the next byte belongs to.
    pub(super) line: u64,
}

impl Rows {
    /// Reads the next row; `false` at the end of the text.
    pub(super) fn read(&mut self, text: &mut Text, row: &mut Row) -> Result<bool, NoRow> {
        row.data.clear();
        row.ends.clear();
        // A line feed behind a carriage return ends no further line.
        let mut after_return = text.last() == Some(b'\r');
        let mut at = At::RowBegin;
        while at != At::RowEnd {
            let bytes = text.fill()?;
            if bytes.is_empty() {
                return self.end(at, row);
            }
            let mut taken = 0;
            while taken < bytes.len() && at != At::RowEnd {
                (at, taken) = match at {
                    At::RowBegin => {
                        row.line = self.line;
                        let byte = bytes[taken];
                        self.line += u64::from(byte == b'\r' || byte == b'\n' && !after_return);
                        after_return = byte == b'\r';
                        match byte {
                            b'\r' | b'\n' => (At::RowBegin, taken + 1),
                            _ => (At::ColumnBegin, taken),
                        }
                    }
                    _ => self.step(at, bytes, taken, row),
                };
            }
            text.consume(taken)?;
            if row.data.len() > self.bytes_max {
                let (At::Quoted(quote) | At::QuoteInQuoted(quote)) = at else {
                    let line = row.line;
                    return Err(NoRow::TooLong { line, quote: None });
                };
                return Err(NoRow::TooLong {
                    line: row.line,
                    quote: Some(quote),
                });
            }
        }
        Ok(true)
    }

    /// Takes bytes from `taken` on; where that leads, and up to which byte.
    fn step(&mut self, at: At, bytes: &[u8], taken: usize, row: &mut Row) -> (At, usize) {
        let rest = &bytes[taken..];
        match at {
            At::RowBegin | At::RowEnd => (at, taken),
            At::ColumnBegin if self.quotes && rest[0] == b'"' => (At::Quoted(self.line), taken + 1),
            At::ColumnBegin | At::Plain => {
                let end = memchr3(self.delimiter, b'\n', b'\r', rest);
                row.data
                    .extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
                match end {
                    Some(end) => (self.end_column(rest[end], row), taken + end + 1),
                    None => (At::Plain, bytes.len()),
                }
            }
            At::Quoted(quote) => {
                let end = memchr(b'"', rest);
                let inside = &rest[..end.unwrap_or(rest.len())];
                row.data.extend_from_slice(inside);
                self.line += memchr_iter(b'\n', inside).count() as u64;
                match end {
                    Some(end) => (At::QuoteInQuoted(quote), taken + end + 1),
                    None => (at, bytes.len()),
                }
            }
            At::QuoteInQuoted(quote) if rest[0] == b'"' => {
                row.data.push(b'"');
                (At::Quoted(quote), taken + 1)
            }
            At::QuoteInQuoted(_) => (At::Plain, taken),
        }
    }

    /// Ends a column at `byte`, which is a delimiter or a line end.
    fn end_column(&mut self, byte: u8, row: &mut Row) -> At {
        row.end_column();
        if byte == self.delimiter {
            return At::ColumnBegin;
        }
        self.line += 1;
        At::RowEnd
    }

    /// What there is of a row at the end of the text.
    fn end(&self, at: At, row: &mut Row) -> Result<bool, NoRow> {
        match at {
            At::RowBegin => Ok(false),
            At::Quoted(line) => Err(NoRow::Unclosed { line }),
            At::ColumnBegin | At::Plain | At::QuoteInQuoted(_) | At::RowEnd => {
                row.end_column();
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_media::seeded::SeededRng;

    fn rows(text: &[u8], quotes: bool, piece: usize) -> Result<Vec<Vec<Vec<u8>>>, NoRow> {
        let mut rows = Rows {
            delimiter: b',',
            quotes,
            bytes_max: 1000,
            line: 1,
        };
        let mut text = Text::of(text, piece);
        let (mut row, mut all) = (Row::default(), Vec::new());
        while rows.read(&mut text, &mut row)? {
            all.push(row.iter().map(<[u8]>::to_vec).collect());
        }
        Ok(all)
    }

    /// The csv crate takes what it does not refuse for the same rows, but that it takes a text that
    /// ends inside quotes for a whole one.
    #[test]
    fn rows_are_those_of_the_csv_crate() {
        let mut rng = SeededRng::new(1);
        let (mut unclosed, mut compared) = (0, 0);
        for _ in 0..20_000 {
            let text: Vec<u8> = (0..rng.below(24))
                .map(|_| b"a,\"\n\r \0"[usize::try_from(rng.below(7)).unwrap()])
                .collect();
            let quotes = rng.below(4) > 0;
            let piece = 1 + usize::try_from(rng.below(5)).unwrap();
            let found = match rows(&text, quotes, piece) {
                Ok(found) => found,
                Err(NoRow::Unclosed { .. }) if quotes => {
                    unclosed += 1;
                    continue;
                }
                Err(error) => panic!("{:?}: {error:?}", text.escape_ascii().to_string()),
            };
            let mut reader = csv::ReaderBuilder::new()
                .quoting(quotes)
                .has_headers(false)
                .flexible(true)
                .from_reader(text.as_slice());
            let expected: Vec<Vec<Vec<u8>>> = reader
                .byte_records()
                .map(|record| record.unwrap().iter().map(<[u8]>::to_vec).collect())
                .collect();
            assert_eq!(found, expected, "{:?}", text.escape_ascii().to_string());
            compared += 1;
        }
        assert!(unclosed > 1000 && compared > 1000);
    }

    #[test]
    fn lines_are_counted_however_they_end() {
        for text in [
            "a,b\n\n\"c\nd\",e\nf\n",
            "a,b\r\n\r\n\"c\r\nd\",e\r\nf",
            "a,b\r\r\"c\nd\",e\rf\r",
        ] {
            for piece in 1..6 {
                let mut rows = Rows {
                    delimiter: b',',
                    quotes: true,
                    bytes_max: 100,
                    line: 1,
                };
                let mut bytes = Text::of(text.as_bytes(), piece);
                let (mut row, mut lines) = (Row::default(), Vec::new());
                while rows.read(&mut bytes, &mut row).unwrap() {
                    lines.push(row.line);
                }
                assert_eq!(lines, [1, 3, 5], "{text:?}");
            }
        }
    }

    /// A quote that was not closed was told of at the line of its record, which may begin long
    /// before it, or by the end of the file only.
    #[test]
    fn an_open_quote_is_told_by_its_line() {
        let text = b"a,b\nc,\"d\ne\",\"f\ng,h\n";
        assert!(matches!(
            rows(text, true, 3),
            Err(NoRow::Unclosed { line: 3 })
        ));
        let long = [&b"a\nb,\"c\n\",\"d"[..], &[b'e'; 2000]].concat();
        assert!(matches!(
            rows(&long, true, 7),
            Err(NoRow::TooLong {
                line: 2,
                quote: Some(3)
            })
        ));
        let long = [&b"a\nb,"[..], &[b'e'; 2000]].concat();
        assert!(matches!(
            rows(&long, true, 7),
            Err(NoRow::TooLong {
                line: 2,
                quote: None
            })
        ));
        assert_eq!(rows(&long[..900], true, 7).unwrap().len(), 2);
    }
}
