//! Splits a command line into words.

/// The words of a line. A `#` in front makes it a remark.
///
/// # Errors
/// When a quotation does not end, or something stands right behind one.
pub(super) fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    if rest.starts_with(b"#") {
        return Ok(words);
    }
    while let Some((first, behind)) = rest.split_first() {
        let (word, behind) = match first {
            b'"' => quoted(behind)?,
            b'\'' => literal(behind)?,
            _ => {
                let end = rest.iter().position(u8::is_ascii_whitespace);
                let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
                (word.to_vec(), behind)
            }
        };
        if behind
            .first()
            .is_some_and(|byte| !byte.is_ascii_whitespace())
        {
            return Err("a space must follow the closing quote");
        }
        words.push(word);
        rest = behind.trim_ascii_start();
    }
    Ok(words)
}

const UNENDED: &str = "a quote is not closed";

/// What follows `"`, and what follows its end.
fn quoted(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), &'static str> {
    let mut word = Vec::new();
    loop {
        let (byte, behind) = rest.split_first().ok_or(UNENDED)?;
        rest = behind;
        match byte {
            b'"' => return Ok((word, rest)),
            b'\\' => {
                let (escaped, behind) = rest.split_first().ok_or(UNENDED)?;
                rest = behind;
                match (escaped, hexadecimal(rest)) {
                    (b'x', Some(byte)) => {
                        word.push(byte);
                        rest = rest.get(2..).unwrap_or_default();
                    }
                    (b'n', _) => word.push(b'\n'),
                    (b'r', _) => word.push(b'\r'),
                    (b't', _) => word.push(b'\t'),
                    (b'a', _) => word.push(7),
                    (b'b', _) => word.push(8),
                    (other, _) => word.push(*other),
                }
            }
            other => word.push(*other),
        }
    }
}

/// What follows `'`, and what follows its end.
fn literal(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), &'static str> {
    let mut word = Vec::new();
    loop {
        let (byte, behind) = rest.split_first().ok_or(UNENDED)?;
        rest = behind;
        match (byte, rest.split_first()) {
            (b'\'', _) => return Ok((word, rest)),
            (b'\\', Some((b'\'', behind))) => {
                word.push(b'\'');
                rest = behind;
            }
            (other, _) => word.push(*other),
        }
    }
}

/// The byte of two hexadecimal digits in front.
fn hexadecimal(text: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_would() {
        for (line, words) in [
            (&b""[..], &[][..]),
            (b"  # set a b", &[]),
            (b" set  a\tb \r", &[&b"set"[..], b"a", b"b"]),
            (b"set \"a b\" 'c d'", &[b"set", b"a b", b"c d"]),
            (
                br#""\x00\xfF\n\q" 'it\'s \n'"#,
                &[b"\0\xff\nq", br"it's \n"],
            ),
            (br#""" ''"#, &[b"", b""]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{}", line.escape_ascii());
        }
        for line in [&b"\"a"[..], b"'a", b"\"a\"b", b"\"\\"] {
            assert!(split(line).is_err(), "{}", line.escape_ascii());
        }
    }
}
