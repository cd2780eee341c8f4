//! Bytes as text and back.
//!
//! Text shows printable UTF-8 as it is. Everything else is escaped, so that a line of output is a
//! line and a terminal stays sane: `\\` for the backslash, `\t`, `\n`, `\r`, and `\xNN` for every
//! other byte. [`unescape`] reads exactly what [`escape`] writes, for any bytes.

/// Appends `bytes` as escaped text.
pub(crate) fn escape(bytes: &[u8], text: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                control if control.is_control() => {
                    let mut buffer = [0; 4];
                    for byte in control.encode_utf8(&mut buffer).bytes() {
                        escape_byte(byte, text);
                    }
                }
                printable => text.push(printable),
            }
        }
        for byte in chunk.invalid() {
            escape_byte(*byte, text);
        }
    }
}

/// `bytes` as escaped text.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    escape(bytes, &mut text);
    text
}

fn escape_byte(byte: u8, text: &mut String) {
    text.push_str("\\x");
    push_hex(byte, text);
}

/// Appends the bytes that escaped `text` stands for, or says what is wrong with it.
pub(crate) fn unescape(text: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        bytes.extend_from_slice(&rest[..at]);
        let escape = &rest[at + 1..];
        let (byte, length) = match escape {
            [b'\\', ..] => (b'\\', 1),
            [b't', ..] => (b'\t', 1),
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b'x', high, low, ..] => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => return Err("\\x is not followed by two hexadecimal digits".to_owned()),
            },
            [b'x', ..] => return Err("the text ends within an escape".to_owned()),
            [other, ..] => {
                let other = escaped(&[*other]);
                return Err(format!(
                    "\\{other} is not an escape; write a backslash as \\\\"
                ));
            }
            [] => return Err("the text ends within an escape".to_owned()),
        };
        bytes.push(byte);
        rest = &escape[length..];
    }
    bytes.extend_from_slice(rest);
    Ok(())
}

/// `bytes` as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        push_hex(*byte, &mut text);
    }
    text
}

/// The bytes that hexadecimal digits stand for, or what is wrong with them.
pub(crate) fn unhex(text: &[u8]) -> Result<Vec<u8>, String> {
    if !text.len().is_multiple_of(2) {
        return Err(format!(
            "{} has an odd number of hexadecimal digits",
            escaped(text)
        ));
    }
    text.chunks_exact(2)
        .map(|pair| match (hex_digit(pair[0]), hex_digit(pair[1])) {
            (Some(high), Some(low)) => Ok(high << 4 | low),
            _ => Err(format!("{} is not hexadecimal", escaped(text))),
        })
        .collect()
}

fn push_hex(byte: u8, text: &mut String) {
    for digit in [byte >> 4, byte & 15] {
        text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_media::seeded::SeededRng;

    fn unescaped(text: &str) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        unescape(text.as_bytes(), &mut bytes).map(|()| bytes)
    }

    #[test]
    fn any_bytes_survive_a_round_trip() {
        let mut rng = SeededRng::new(1);
        for len in 0..300 {
            // Half of the bytes are drawn from those that need care.
            let bytes: Vec<u8> = (0..len)
                .map(|_| match rng.below(2) {
                    0 => b"\\\t\n\rx0a\xc2\x85\xff"[usize::try_from(rng.below(10)).unwrap()],
                    _ => u8::try_from(rng.below(256)).unwrap(),
                })
                .collect();
            let text = escaped(&bytes);
            assert!(!text.contains(['\t', '\n', '\r', '\0']), "{text:?}");
            assert_eq!(unescaped(&text).unwrap(), bytes);
            assert_eq!(unhex(hex(&bytes).as_bytes()).unwrap(), bytes);
        }
    }

    #[test]
    fn printable_text_stays_as_it_is() {
        assert_eq!(escaped("Grüße, 世界".as_bytes()), "Grüße, 世界");
        assert_eq!(escaped(b"a\\b\x00\xff\x1b"), r"a\\b\x00\xff\x1b");
        assert_eq!(escaped("\u{85}".as_bytes()), r"\xc2\x85");
    }

    #[test]
    fn wrong_escapes_are_refused() {
        for text in [r"\", r"a\x", r"a\x1", r"\xzz", r"\q"] {
            assert!(unescaped(text).is_err(), "{text}");
        }
        assert!(unhex(b"abc").unwrap_err().contains("odd"));
        assert!(unhex(b"zz").is_err());
    }
}
