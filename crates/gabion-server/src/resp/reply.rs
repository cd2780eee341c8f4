//! Writes replies, in RESP2 or RESP3, straight into the bytes that go out.
//!
//! A handler says what it means (a map, a null, a number); the writer knows how the client's
//! protocol says it. In RESP2 a map is a flat array, a set and a push are arrays, a boolean is an
//! integer, and a number with a fraction a bulk string.

use bytes::{BufMut, BytesMut};

/// Replies that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct ReplyBuffer {
    /// What has been written.
    pub(crate) out: BytesMut,
    /// Whether the client speaks RESP3.
    pub(crate) is_resp3: bool,
}

impl ReplyBuffer {
    /// A short line without a newline in it, such as `OK`.
    pub(crate) fn simple(&mut self, line: &str) {
        self.out.put_u8(b'+');
        self.out.put_slice(line.as_bytes());
        self.crlf();
    }

    /// `OK`.
    pub(crate) fn ok(&mut self) {
        self.out.put_slice(b"+OK\r\n");
    }

    /// An error: its code and a sentence. Newlines in it become spaces.
    pub(crate) fn error(&mut self, line: &str) {
        self.out.put_u8(b'-');
        let start = self.out.len();
        self.out.put_slice(line.as_bytes());
        for byte in &mut self.out[start..] {
            if matches!(*byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.crlf();
    }

    /// A whole number.
    pub(crate) fn integer(&mut self, number: i64) {
        self.out.put_u8(b':');
        self.digits(number);
        self.crlf();
    }

    /// How many there are of something.
    pub(crate) fn count(&mut self, count: usize) {
        self.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The same of a number that the store has.
    pub(crate) fn unsigned(&mut self, count: u64) {
        self.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A number with a fraction.
    pub(crate) fn double(&mut self, number: f64) {
        let text = double_text(number);
        match self.is_resp3 {
            true => {
                self.out.put_u8(b',');
                self.out.put_slice(text.as_bytes());
                self.crlf();
            }
            false => self.bulk(text),
        }
    }

    /// Yes or no, as a number in both protocols.
    pub(crate) fn flag(&mut self, yes: bool) {
        self.out.put_slice(if yes { b":1\r\n" } else { b":0\r\n" });
    }

    /// Yes or no: in RESP2 a number.
    pub(crate) fn boolean(&mut self, yes: bool) {
        if !self.is_resp3 {
            return self.flag(yes);
        }
        self.out.put_slice(if yes { b"#t\r\n" } else { b"#f\r\n" });
    }

    /// A number with a fraction, as `text` in RESP2.
    pub(crate) fn fraction(&mut self, number: f64, text: &str) {
        if !self.is_resp3 {
            return self.bulk(text);
        }
        self.out.put_u8(b',');
        self.out.put_slice(match number.is_nan() {
            true => b"nan",
            false => text.as_bytes(),
        });
        self.crlf();
    }

    /// A whole number of any length.
    pub(crate) fn big_number(&mut self, digits: &str) {
        if !self.is_resp3 {
            return self.bulk(digits);
        }
        self.out.put_u8(b'(');
        self.out.put_slice(digits.as_bytes());
        self.crlf();
    }

    /// Text of a form of three letters; in RESP2 without it.
    pub(crate) fn verbatim_as(&mut self, form: &[u8], text: &[u8]) {
        if !self.is_resp3 {
            return self.bulk(text);
        }
        let mut letters = [b' '; 3];
        for (letter, given) in letters.iter_mut().zip(form) {
            *letter = *given;
        }
        self.header(b'=', text.len() + 4);
        self.out.put_slice(&letters);
        self.out.put_u8(b':');
        self.out.put_slice(text);
        self.crlf();
    }

    /// Any bytes.
    pub(crate) fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.out.reserve(bytes.len() + 32);
        self.header(b'$', bytes.len());
        self.out.put_slice(bytes);
        self.crlf();
    }

    /// Text for people: in RESP3 marked as such.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if !self.is_resp3 {
            return self.bulk(text);
        }
        self.header(b'=', text.len() + 4);
        self.out.put_slice(b"txt:");
        self.out.put_slice(text.as_bytes());
        self.crlf();
    }

    /// No value.
    pub(crate) fn null(&mut self) {
        self.out.put_slice(match self.is_resp3 {
            true => b"_\r\n",
            false => b"$-1\r\n",
        });
    }

    /// No array, where one could have been.
    pub(crate) fn null_array(&mut self) {
        self.out.put_slice(match self.is_resp3 {
            true => b"_\r\n",
            false => b"*-1\r\n",
        });
    }

    /// Bytes, or no value.
    pub(crate) fn bulk_or_null(&mut self, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// The beginning of an array of `count` replies.
    pub(crate) fn array(&mut self, count: usize) {
        self.header(b'*', count);
    }

    /// The beginning of a map of `count` pairs.
    pub(crate) fn map(&mut self, count: usize) {
        match self.is_resp3 {
            true => self.header(b'%', count),
            false => self.header(b'*', count * 2),
        }
    }

    /// The beginning of a set of `count` replies.
    pub(crate) fn set(&mut self, count: usize) {
        self.header(if self.is_resp3 { b'~' } else { b'*' }, count);
    }

    /// The beginning of a message of `count` replies that nobody asked for.
    pub(crate) fn push(&mut self, count: usize) {
        self.header(if self.is_resp3 { b'>' } else { b'*' }, count);
    }

    fn header(&mut self, mark: u8, count: usize) {
        self.out.put_u8(mark);
        self.digits(i64::try_from(count).unwrap_or(i64::MAX));
        self.crlf();
    }

    fn digits(&mut self, number: i64) {
        let mut digits = [0; DIGITS_MAX];
        self.out.put_slice(decimal(number, &mut digits));
    }

    fn crlf(&mut self) {
        self.out.put_slice(b"\r\n");
    }
}

/// A number with a fraction, in at most 17 digits as Redis 7.0 shows it (`%.17g` of C), with an
/// exponent where it is very large or small.
pub(crate) fn double_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:.16e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..17).contains(&exponent) {
        // An exponent has a sign and two digits at least.
        return format!("{}e{exponent:+03}", without_zeros(digits));
    }
    let places = usize::try_from(16 - exponent).unwrap_or_default();
    without_zeros(&format!("{number:.places$}")).to_owned()
}

fn without_zeros(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

/// Bytes of the longest whole number.
pub(crate) const DIGITS_MAX: usize = 20;

/// Writes a number in decimal at the end of `digits`.
pub(crate) fn decimal(number: i64, digits: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut left = number.unsigned_abs();
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(left % 10).unwrap_or_default();
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    &digits[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(is_resp3: bool, write: impl FnOnce(&mut ReplyBuffer)) -> Vec<u8> {
        let mut reply = ReplyBuffer {
            is_resp3,
            ..ReplyBuffer::default()
        };
        write(&mut reply);
        reply.out.to_vec()
    }

    #[test]
    fn each_protocol_says_it_its_own_way() {
        for (write, resp2, resp3) in [
            (
                (|reply| reply.null()) as fn(&mut ReplyBuffer),
                "$-1\r\n",
                "_\r\n",
            ),
            (|reply| reply.null_array(), "*-1\r\n", "_\r\n"),
            (|reply| reply.map(2), "*4\r\n", "%2\r\n"),
            (|reply| reply.set(2), "*2\r\n", "~2\r\n"),
            (|reply| reply.push(3), "*3\r\n", ">3\r\n"),
            (
                |reply| reply.verbatim("a"),
                "$1\r\na\r\n",
                "=5\r\ntxt:a\r\n",
            ),
            (
                |reply| reply.error("ERR a\nb"),
                "-ERR a b\r\n",
                "-ERR a b\r\n",
            ),
        ] {
            assert_eq!(written(false, write), resp2.as_bytes());
            assert_eq!(written(true, write), resp3.as_bytes());
        }
    }

    #[test]
    fn doubles_are_shown_as_redis_shows_them() {
        for (number, text) in [
            (0.1, "0.10000000000000001"),
            (0.5, "0.5"),
            (1234.25, "1234.25"),
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (-1.5e300, "-1.5000000000000001e+300"),
            (1e-5, "1.0000000000000001e-05"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(double_text(number), text);
        }
        assert_eq!(written(true, |reply| reply.double(1.5)), b",1.5\r\n");
        assert_eq!(written(false, |reply| reply.double(1.5)), b"$3\r\n1.5\r\n");
    }

    #[test]
    fn numbers_are_written_as_the_library_writes_them() {
        for number in [0, 1, -1, 9, 10, i64::MAX, i64::MIN] {
            let expected = format!(":{number}\r\n");
            assert_eq!(
                written(false, |reply| reply.integer(number)),
                expected.as_bytes()
            );
        }
    }
}
