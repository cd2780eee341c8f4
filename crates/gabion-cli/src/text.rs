//! Words for people.

use gabion_lab::text::count_text;

/// A count and what it counts: `one` of them, or `many`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    let word = if count == 1 { one } else { many };
    format!("{} {word}", count_text(count))
}

/// `text` without what a terminal takes for a command: control characters but line ends and tabs
/// are escaped by `escape`.
pub(crate) fn shown(text: &str, escape: impl Fn(char) -> String) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            control if control.is_control() => shown.push_str(&escape(control)),
            printable => shown.push(printable),
        }
    }
    shown
}
