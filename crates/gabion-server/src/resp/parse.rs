//! Parses requests as they come.
//!
//! # Idea
//! A request is a *multibulk* (`*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`) or a line of words. The parser
//! looks at the connection's buffer and notes where the arguments lie; it copies none. When the
//! bytes do not suffice it keeps what it has found, and goes on there: each byte is looked at once,
//! however small the pieces are in which a request comes.
//!
//! # Invariants
//! - I1. `at` and all spans are offsets from the first byte of the request, and at most the number
//!   of bytes that have been shown. The owner of the buffer removes bytes only in front of that
//!   first byte, and only when a request is complete.
//! - I2. There is no recursion, and a request reserves memory only for arguments that have begun to
//!   come, whatever numbers it states.

use memchr::memchr as find;

use crate::args::{ArgSpan, Args};

/// The longest line that states a number, and the longest line of words.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// The most arguments of a request.
const ARGUMENTS_MAX: i64 = 1024 * 1024 * 1024;

/// The most arguments, and the longest one, of a client that has not said its password.
const UNKNOWN_ARGUMENTS_MAX: i64 = 10;
const UNKNOWN_BYTES_MAX: i64 = 16 << 10;

/// Limits of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    /// The longest argument, in bytes.
    pub(crate) bulk_bytes_max: usize,
    /// Whether the client still has to say its password.
    pub(crate) is_unknown: bool,
}

/// The result of parsing the bytes received so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A request of so many bytes; [`RequestParser::args`] has its arguments. Those of an empty
    /// line are none.
    Request(usize),
    /// The beginning of one, of which at least so many more bytes are to come.
    Incomplete(usize),
}

/// Bytes that are not a request. The connection replies with the error and ends.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    /// The number of arguments is none, or too large.
    #[error("Protocol error: invalid multibulk length")]
    Count,
    /// The length of an argument is none, or too large.
    #[error("Protocol error: invalid bulk length")]
    Length,
    /// An argument does not begin as one.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0))]
    NoDollar(u8),
    /// A line of words does not end.
    #[error("Protocol error: too big inline request")]
    LongLine,
    /// The line of a number of arguments does not end.
    #[error("Protocol error: too big mbulk count string")]
    LongCount,
    /// The line of a length does not end.
    #[error("Protocol error: too big bulk count string")]
    LongLength,
    /// A quote in a line of words is not closed.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// Too many arguments of a client without a password.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnknownCount,
    /// Too long an argument of such a client.
    #[error("Protocol error: unauthenticated bulk length")]
    UnknownLength,
}

/// The state of parsing a request.
#[derive(Debug, Default)]
pub(crate) struct RequestParser {
    /// Bytes that have been looked at (I1).
    at: usize,
    /// Arguments that are still to come; `None` before their number has.
    left: Option<usize>,
    /// The length of the argument that is coming.
    length: Option<usize>,
    spans: Vec<ArgSpan>,
    /// The words of a line without their quotes, if the request is one.
    words: Vec<u8>,
    is_line: bool,
}

impl RequestParser {
    /// Looks on. `bytes` begin where the request does.
    ///
    /// # Errors
    /// What makes the bytes no request. Then the parser is of no use any more.
    pub(crate) fn parse(
        &mut self,
        bytes: &[u8],
        limits: RequestLimits,
    ) -> Result<Parsed, ProtocolError> {
        match bytes.first() {
            None => Ok(Parsed::Incomplete(1)),
            Some(b'*') => self.multibulk(bytes, limits),
            Some(_) => self.line(bytes),
        }
    }

    /// The arguments of the request that [`RequestParser::parse`] has found in `bytes`.
    pub(crate) fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        let bytes = if self.is_line { &self.words } else { bytes };
        Args::new(bytes, &self.spans)
    }

    /// Gets ready for the next request.
    pub(crate) fn reset(&mut self) {
        self.at = 0;
        self.left = None;
        self.length = None;
        self.spans.clear();
        self.words.clear();
        self.is_line = false;
        if self.spans.capacity() > 1024 {
            self.spans.shrink_to(64);
        }
        if self.words.capacity() > INLINE_BYTES_MAX {
            self.words = Vec::new();
        }
    }

    fn multibulk(&mut self, bytes: &[u8], limits: RequestLimits) -> Result<Parsed, ProtocolError> {
        if self.left.is_none() {
            let Some(text) = self.number_line(bytes, ProtocolError::LongCount)? else {
                return Ok(Parsed::Incomplete(1));
            };
            let count = number(text).ok_or(ProtocolError::Count)?;
            if count > ARGUMENTS_MAX {
                return Err(ProtocolError::Count);
            }
            if limits.is_unknown && count > UNKNOWN_ARGUMENTS_MAX {
                return Err(ProtocolError::UnknownCount);
            }
            self.left = Some(usize::try_from(count).unwrap_or(0));
        }
        while let Some(left @ 1..) = self.left {
            if !self.bulk(bytes, limits)? {
                let coming = self.length.map_or(1, |length| self.at + length + 2);
                return Ok(Parsed::Incomplete(
                    coming.saturating_sub(bytes.len()).max(1),
                ));
            }
            self.left = Some(left - 1);
        }
        Ok(Parsed::Request(self.at))
    }

    /// Looks for one argument; false if it has not come as a whole.
    fn bulk(&mut self, bytes: &[u8], limits: RequestLimits) -> Result<bool, ProtocolError> {
        let length = match self.length {
            Some(length) => length,
            None => {
                match bytes.get(self.at) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(other) => return Err(ProtocolError::NoDollar(*other)),
                }
                let Some(text) = self.number_line(bytes, ProtocolError::LongLength)? else {
                    return Ok(false);
                };
                let stated = number(text).ok_or(ProtocolError::Length)?;
                let length = usize::try_from(stated).map_err(|_| ProtocolError::Length)?;
                if length > limits.bulk_bytes_max {
                    return Err(ProtocolError::Length);
                }
                if limits.is_unknown && stated > UNKNOWN_BYTES_MAX {
                    return Err(ProtocolError::UnknownLength);
                }
                self.length = Some(length);
                length
            }
        };
        let end = self.at + length;
        if bytes.len() < end + 2 {
            return Ok(false);
        }
        self.spans.push(self.at..end);
        self.at = end + 2;
        self.length = None;
        Ok(true)
    }

    /// The rest of the line that begins with a mark at `at`, and goes behind it; `None` if it has
    /// not come as a whole.
    fn number_line<'b>(
        &mut self,
        bytes: &'b [u8],
        too_long: ProtocolError,
    ) -> Result<Option<&'b [u8]>, ProtocolError> {
        let rest = bytes.get(self.at..).unwrap_or_default();
        let Some(end) = find(b'\r', rest).filter(|end| end + 1 < rest.len()) else {
            return match rest.len() > INLINE_BYTES_MAX {
                true => Err(too_long),
                false => Ok(None),
            };
        };
        self.at += end + 2;
        Ok(Some(rest.get(1..end).unwrap_or_default()))
    }

    fn line(&mut self, bytes: &[u8]) -> Result<Parsed, ProtocolError> {
        let seen = self.at.min(bytes.len());
        let Some(end) = find(b'\n', &bytes[seen..]).map(|end| seen + end) else {
            self.at = bytes.len();
            return match bytes.len() > INLINE_BYTES_MAX {
                true => Err(ProtocolError::LongLine),
                false => Ok(Parsed::Incomplete(1)),
            };
        };
        let line = &bytes[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.is_line = true;
        split_words(line, &mut self.words, &mut self.spans)?;
        self.at = end + 1;
        Ok(Parsed::Request(self.at))
    }
}

/// A number of a header line, in one spelling only.
fn number(text: &[u8]) -> Option<i64> {
    if let [digit @ b'0'..=b'9'] = text {
        return Some(i64::from(digit - b'0'));
    }
    crate::args::integer(text)
}

/// Takes a line apart into words, as a shell would: `"..."` with escapes, `'...'` with `\'` only.
fn split_words(
    mut line: &[u8],
    words: &mut Vec<u8>,
    spans: &mut Vec<ArgSpan>,
) -> Result<(), ProtocolError> {
    loop {
        line = line.trim_ascii_start();
        if line.is_empty() {
            return Ok(());
        }
        let start = words.len();
        line = take_word(line, words)?;
        spans.push(start..words.len());
    }
}

/// Takes the first word of `line`, and returns what is behind it.
fn take_word<'l>(mut line: &'l [u8], words: &mut Vec<u8>) -> Result<&'l [u8], ProtocolError> {
    loop {
        match line {
            [] => return Ok(line),
            [b'"', rest @ ..] => return take_quoted(rest, words),
            [b'\'', rest @ ..] => return take_single_quoted(rest, words),
            [byte, rest @ ..] => {
                line = rest;
                if byte.is_ascii_whitespace() || *byte == 0 {
                    return Ok(rest);
                }
                words.push(*byte);
            }
        }
    }
}

fn take_quoted<'l>(mut line: &'l [u8], words: &mut Vec<u8>) -> Result<&'l [u8], ProtocolError> {
    loop {
        match line {
            [] => return Err(ProtocolError::Quotes),
            [b'\\', b'x', high, low, rest @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                let digit = |digit: u8| hex(digit).unwrap_or_default();
                words.push(digit(*high) << 4 | digit(*low));
                line = rest;
            }
            [b'\\', escaped, rest @ ..] => {
                words.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                line = rest;
            }
            [b'"', rest @ ..] => return after_quote(rest),
            [byte, rest @ ..] => {
                words.push(*byte);
                line = rest;
            }
        }
    }
}

fn take_single_quoted<'l>(
    mut line: &'l [u8],
    words: &mut Vec<u8>,
) -> Result<&'l [u8], ProtocolError> {
    loop {
        match line {
            [] => return Err(ProtocolError::Quotes),
            [b'\\', b'\'', rest @ ..] => {
                words.push(b'\'');
                line = rest;
            }
            [b'\'', rest @ ..] => return after_quote(rest),
            [byte, rest @ ..] => {
                words.push(*byte);
                line = rest;
            }
        }
    }
}

/// A closing quote ends its word.
fn after_quote(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(next) if !next.is_ascii_whitespace() => Err(ProtocolError::Quotes),
        _ => Ok(rest),
    }
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: RequestLimits = RequestLimits {
        bulk_bytes_max: 1 << 20,
        is_unknown: false,
    };

    fn parsed(bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, ProtocolError> {
        let mut parser = RequestParser::default();
        Ok(match parser.parse(bytes, LIMITS)? {
            Parsed::Request(length) => {
                assert_eq!(length, bytes.len());
                Some(parser.args(bytes).iter().map(<[u8]>::to_vec).collect())
            }
            Parsed::Incomplete(_) => None,
        })
    }

    #[test]
    fn lines_are_split_as_by_a_shell() {
        let words = |line: &[u8]| parsed(line).map(Option::unwrap);
        assert_eq!(words(b"set  k\tv\r\n").unwrap(), [&b"set"[..], b"k", b"v"]);
        assert_eq!(
            words(b"\"a\\x41\\n\\q\" 'b\\'c' \"\"\n").unwrap(),
            [&b"aA\nq"[..], b"b'c", b""]
        );
        assert!(words(b"\r\n").unwrap().is_empty());
        for line in [&b"\"a\n"[..], b"'a\n", b"\"a\"b\n"] {
            assert_eq!(words(line), Err(ProtocolError::Quotes));
        }
    }

    #[test]
    fn numbers_that_no_client_means_are_refused() {
        for (bytes, why) in [
            (&b"*x\r\n"[..], ProtocolError::Count),
            (b"*3000000000\r\n", ProtocolError::Count),
            (b"*1\r\n$-1\r\n", ProtocolError::Length),
            (b"*1\r\n$2000000\r\n", ProtocolError::Length),
            (b"*1\r\n$2000000000000000000000\r\n", ProtocolError::Length),
            (b"*1\r\n:1\r\n", ProtocolError::NoDollar(b':')),
        ] {
            assert_eq!(parsed(bytes), Err(why), "{}", bytes.escape_ascii());
        }
        assert_eq!(parsed(b"*-10\r\n"), Ok(Some(Vec::new())));
        let long = vec![b'x'; INLINE_BYTES_MAX + 1];
        assert_eq!(parsed(&long), Err(ProtocolError::LongLine));
        let long = [b"*".to_vec(), long].concat();
        assert_eq!(parsed(&long), Err(ProtocolError::LongCount));
        let mut unknown = RequestParser::default();
        let limits = RequestLimits {
            is_unknown: true,
            ..LIMITS
        };
        let many = unknown.parse(b"*11\r\n", limits);
        assert_eq!(many, Err(ProtocolError::UnknownCount));
    }

    fn encoded(arguments: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    proptest! {
        /// A request that comes in pieces is what it is as a whole.
        #[test]
        fn pieces_make_the_whole(
            arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let bytes = encoded(&arguments);
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            ends.sort_unstable();
            let mut parser = RequestParser::default();
            for end in ends {
                let piece = parser.parse(&bytes[..end], LIMITS);
                prop_assert!(matches!(piece, Ok(Parsed::Incomplete(1..))), "{piece:?}");
            }
            let whole = parser.parse(&bytes, LIMITS);
            prop_assert_eq!(whole, Ok(Parsed::Request(bytes.len())));
            let found: Vec<_> = parser.args(&bytes).iter().map(<[u8]>::to_vec).collect();
            prop_assert_eq!(found, arguments);
        }

        /// Whatever comes, the parser answers, and stays inside of what it was shown.
        #[test]
        fn nothing_makes_it_panic(
            bytes in prop::collection::vec(
                prop_oneof![
                    prop::sample::select(&b"*$\r\n1"[..]),
                    any::<u8>(),
                ],
                0..200,
            ),
        ) {
            let mut parser = RequestParser::default();
            for end in 0..=bytes.len() {
                match parser.parse(&bytes[..end], LIMITS) {
                    Ok(Parsed::Request(length)) => {
                        prop_assert!(length <= end);
                        let _ = parser.args(&bytes[..end]).iter().count();
                        break;
                    }
                    Ok(Parsed::Incomplete(more)) => prop_assert!(more >= 1),
                    Err(_) => break,
                }
            }
        }
    }
}
