//! Text for people and their terminals.

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
