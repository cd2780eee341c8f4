//! Patterns as `KEYS` and `PSUBSCRIBE` take them: `*`, `?`, `[a-z]`, `[^a]`, and `\` for a byte as
//! it is.
//!
//! A star that fails goes on with its next byte, and only the last star does: so a match takes at
//! most the product of the two lengths, whatever the pattern is.

/// Whether all of `text` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    fold_matches(pattern, text, false)
}

/// The same, with letters of either case.
pub(crate) fn matches_any_case(pattern: &[u8], text: &[u8]) -> bool {
    fold_matches(pattern, text, true)
}

fn fold_matches(pattern: &[u8], text: &[u8], folds: bool) -> bool {
    let (mut at, mut in_text) = (0, 0);
    // Behind the last star, and how far the text had come there.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, in_text));
            continue;
        }
        let next = match (pattern.get(at..), text.get(in_text)) {
            (Some([]) | None, None) => return true,
            (_, None) => return false,
            (Some(rest), Some(byte)) => take_one(rest, *byte, folds),
            (None, Some(_)) => None,
        };
        match (next, star) {
            (Some(length), _) => {
                at += length;
                in_text += 1;
            }
            (None, Some((behind, from))) => {
                at = behind;
                in_text = from + 1;
                star = Some((behind, from + 1));
            }
            (None, None) => return false,
        }
    }
}

/// How many bytes of the pattern stand for `byte`; `None` if they do not.
fn take_one(pattern: &[u8], byte: u8, folds: bool) -> Option<usize> {
    let fold = |byte: u8| {
        if folds {
            byte.to_ascii_lowercase()
        } else {
            byte
        }
    };
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', rest @ ..] => {
            let (matches, length) = class(rest, byte, fold);
            matches.then_some(1 + length)
        }
        [b'\\', escaped, ..] => (fold(*escaped) == fold(byte)).then_some(2),
        [one, ..] => (fold(*one) == fold(byte)).then_some(1),
    }
}

/// Whether a class has the byte, and its length behind the bracket.
fn class(class: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> (bool, usize) {
    let byte = fold(byte);
    let is_negated = class.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut found = false;
    loop {
        match class.get(at..).unwrap_or_default() {
            // A class that is not closed ends with the pattern.
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= fold(*escaped) == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                let (from, to) = (fold(*from), fold(*to));
                found |= (from.min(to)..=from.max(to)).contains(&byte);
                at += 3;
            }
            [one, ..] => {
                found |= fold(*one) == byte;
                at += 1;
            }
        }
    }
    (found != is_negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("h?llo", "hallo", true),
            ("h*llo", "hllo", true),
            ("h*l*o", "heeello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("a\\*c", "a*c", true),
            ("a\\*c", "abc", false),
            ("a[\\]]c", "a]c", true),
            ("*foo", "barfoo", true),
            ("foo*", "fo", false),
            ("a", "", false),
            ("", "a", false),
            ("[abc", "c", true),
        ] {
            let found = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, expected, "{pattern} {text}");
        }
        assert!(matches_any_case(b"MAX*", b"maxclients"));
    }

    /// Stars that each try all places took exponential time.
    #[test]
    fn many_stars_take_no_time() {
        let pattern = [&b"*a"[..]; 40].concat();
        assert!(!matches(&[&pattern[..], b"b"].concat(), &[b'a'; 200]));
    }
}
