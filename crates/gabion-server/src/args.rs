//! The arguments of a command: slices of the bytes that came, without a copy.

use std::ops::Range;

/// The place of an argument in the received bytes of its command.
pub(crate) type ArgSpan = Range<usize>;

/// The arguments of a command, its name first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [ArgSpan],
}

impl<'a> Args<'a> {
    /// The parts `spans` of `bytes`.
    pub(crate) fn new(bytes: &'a [u8], spans: &'a [ArgSpan]) -> Args<'a> {
        Args { bytes, spans }
    }

    /// How many there are, the name included.
    pub(crate) fn len(self) -> usize {
        self.spans.len()
    }

    /// The argument at `index`, if there are so many.
    pub(crate) fn get(self, index: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(index)?;
        Some(&self.bytes[span.clone()])
    }

    /// The argument at `index`; nothing if there are fewer, which the check of the arity excludes
    /// where a handler asks for what must be there.
    pub(crate) fn at(self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// Those from `index` on.
    pub(crate) fn from(self, index: usize) -> Args<'a> {
        Args {
            bytes: self.bytes,
            spans: self.spans.get(index..).unwrap_or_default(),
        }
    }

    /// One by one.
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self.spans.iter().map(move |span| &self.bytes[span.clone()])
    }

    /// A copy that keeps itself.
    pub(crate) fn to_owned(self) -> OwnedArgs {
        let mut owned = OwnedArgs::default();
        for argument in self.iter() {
            let start = owned.bytes.len();
            owned.bytes.extend_from_slice(argument);
            owned.spans.push(start..owned.bytes.len());
        }
        owned
    }
}

/// Owned arguments, such as those of a command between `MULTI` and `EXEC`.
#[derive(Debug, Default)]
pub(crate) struct OwnedArgs {
    bytes: Vec<u8>,
    spans: Vec<ArgSpan>,
}

impl OwnedArgs {
    /// Of arguments that are apart.
    pub(crate) fn of(arguments: &[Vec<u8>]) -> OwnedArgs {
        let mut owned = OwnedArgs::default();
        for argument in arguments {
            let start = owned.bytes.len();
            owned.bytes.extend_from_slice(argument);
            owned.spans.push(start..owned.bytes.len());
        }
        owned
    }

    /// To read.
    pub(crate) fn borrow(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}

/// A whole number as Redis reads one: no sign `+`, no zeros in front, no spaces.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_canonical {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number with a fraction, as Redis reads one; not a NaN.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    if text.is_empty() || text.starts_with(char::is_whitespace) {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    // A number beyond all that there is must say so itself.
    let says_so = || text.trim_start_matches(['+', '-']).starts_with(['i', 'I']);
    (!number.is_nan() && (number.is_finite() || says_so())).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_in_one_spelling_only() {
        for (text, number) in [
            (&b"0"[..], Some(0)),
            (b"-1", Some(-1)),
            (b"9223372036854775807", Some(i64::MAX)),
            (b"-9223372036854775808", Some(i64::MIN)),
            (b"9223372036854775808", None),
            (b"-0", None),
            (b"007", None),
            (b"+1", None),
            (b" 1", None),
            (b"1 ", None),
            (b"", None),
            (b"-", None),
        ] {
            assert_eq!(integer(text), number, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn floats_are_numbers() {
        assert_eq!(float(b"1.5"), Some(1.5));
        assert_eq!(float(b"-inf"), Some(f64::NEG_INFINITY));
        for text in [&b""[..], b" 1", b"1 ", b"nan", b"1e999", b"x"] {
            assert_eq!(float(text), None, "{}", text.escape_ascii());
        }
    }
}
