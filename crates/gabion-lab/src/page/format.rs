//! Text as HTML takes it.

/// `text` cut to `chars` characters, the last of them an ellipsis if something was cut.
pub(super) fn shortened(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(chars - 1).collect();
    short.push('…');
    short
}

/// `text` with the characters that mean something in HTML replaced, and with those that no document
/// may hold.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{FFFE}' | '\u{FFFF}' => escaped.push('\u{FFFD}'),
            c if c.is_control() && c != '\n' => escaped.push('\u{FFFD}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_characters() {
        assert_eq!(shortened("gäbion", 6), "gäbion");
        assert_eq!(shortened("gäbions", 6), "gäbio…");
    }

    #[test]
    fn what_means_something_in_html_is_escaped() {
        assert_eq!(
            escaped("<a b='c'>\"&\u{1}\n"),
            "&lt;a b=&#39;c&#39;&gt;&quot;&amp;\u{FFFD}\n"
        );
    }
}
